"""A value, the values of classes, and values over epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imbtorch.plots.style import display_names, figure_and_axes, line_style, literal, name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_values"]


def plot_values(
    val: Tensor | Sequence[Tensor],
    ax: Axes | None = None,
    *,
    name: str = "",
    bounds: tuple[float | None, float | None] = (None, None),
    item: str = "Class",
    labels: Sequence[str] | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw a value as a point, a value for each class as bars, a sequence over epochs as lines.

    Args:
        val: ``[]``, ``[K]``, or a sequence of either.
        ax: axes to draw into; by default those of a new figure.
        name: what the values are; label of the y axis.
        bounds: least and greatest possible value, drawn as dashed lines where known.
        item: what each of K values belongs to.
        labels: K names; by default 0 to K-1.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for names that do not fit the values.
    """
    fig, ax = figure_and_axes(ax)
    if not isinstance(val, Tensor):
        _draw_lines(ax, val, item, labels)
    elif val.ndim == 0:
        _draw_point(ax, val.item())
    else:
        _draw_bars(ax, val.detach().cpu().double(), item, labels)
    for bound in bounds:
        if bound is not None:
            ax.axhline(bound, linestyle="dashed", color="black", linewidth=0.8)
    ax.set_ylabel(literal(name))
    ax.grid(visible=True, axis="y", alpha=0.3)
    return fig, ax


def _draw_point(ax: Axes, value: float) -> None:
    ax.plot([0], [value], marker="o", markersize=10, linestyle="None")
    ax.annotate(f"{value:.4g}", (0, value), (10, 0), textcoords="offset points", va="center")
    ax.set_xticks([])


def _draw_bars(ax: Axes, values: Tensor, item: str, labels: Sequence[str] | None) -> None:
    names = display_names(labels, values.numel())
    ax.bar(range(len(names)), values.nan_to_num(0.0).tolist(), color="0.45")
    for index in values.isnan().nonzero().flatten().tolist():
        ax.annotate("none", (index, 0), ha="center", va="bottom", rotation=90, color="0.3")
    name_ticks(ax, "x", names)
    ax.set_xlabel(literal(item))


def _draw_lines(ax: Axes, steps: Sequence[Tensor], item: str, labels: Sequence[str] | None) -> None:
    stacked = torch.stack([torch.as_tensor(step).detach().cpu().double() for step in steps])
    lines = stacked.reshape(len(stacked), -1).T
    names = display_names([f"{item} {index}" for index in range(len(lines))] if labels is None else labels, len(lines))
    for index, line in enumerate(lines):
        ax.plot(range(len(line)), line.tolist(), label=names[index], **line_style(index, len(line)))
    if len(lines) > 1:
        ax.legend(fontsize="small", ncols=1 + len(lines) // 12)
    ax.set_xlabel("Step")
