"""Single values, values of classes, and values over epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import (
    BASELINE,
    MAX_NAMED,
    add_legend,
    display_names,
    explain_baseline,
    figure_and_axes,
    interval_note,
    line_style,
    literal,
    name_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@computed_on_cpu
def plot_values(
    val: Tensor | Sequence[Tensor] | Interval,
    ax: Axes | None = None,
    *,
    name: str = "",
    value_range: tuple[float | None, float | None] = (None, None),
    item: str = "Class",
    labels: Sequence[str] | None = None,
    baseline: Tensor | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw a single value as a point, values of classes as bars, and a sequence over epochs as lines.

    Args:
        val: ``[]``, ``[K]``, or a sequence of either; or values with their interval, drawn as error bars where the
            bounds are not nan.
        ax: axes to draw into; by default the axes of a new figure.
        name: label of the y axis.
        value_range: least and greatest possible value, drawn as dashed lines; None for no line.
        item: kind of the K things that have a value each, such as ``"Class"``; label of the x axis of bars.
        labels: K names; by default 0 to K-1.
        baseline: value of a baseline (:func:`imbtorch.statistics.trivial`), ``[]`` or ``[K]`` like one of the
            values, drawn as dotted lines; nan for none.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a number of names, or a shape of bounds or baseline values, other than that of the values.

    >>> figure, axes = plot_values(torch.tensor([0.75, 0.5]), name="recall", labels=["dog", "cat"])
    >>> axes.get_ylabel(), [float(bar.get_height()) for bar in axes.patches]
    ('recall', [0.75, 0.5])
    """
    fig, ax = figure_and_axes(ax)
    if isinstance(val, Interval):
        draw_interval(ax, val)
        note, val = interval_note(val), val.estimate
        name += f" ({note})" if note else ""
    lines = 0
    if not isinstance(val, Tensor):
        lines = _draw_lines(ax, val, item, labels)
    elif val.ndim == 0:
        _draw_point(ax, val.item())
    else:
        _draw_bars(ax, val.detach().cpu().double(), item, labels)
    if baseline is not None:
        draw_baseline(ax, baseline, val)
    for bound in value_range:
        if bound is not None:
            ax.axhline(bound, linestyle="dashed", color="black", linewidth=0.8)
    if lines > 1 or baseline is not None:
        add_legend(ax, columns=1 + lines // 24)
    ax.set_ylabel(literal(name))
    ax.grid(visible=True, axis="y", alpha=0.3)
    return fig, ax


def draw_interval(ax: Axes, interval: Interval, sideways: bool = False) -> None:
    """Draw an error bar at each value that has an interval, with the values at 0, 1, ... of x or, sideways, of y."""
    center, low, high = (
        part.detach().cpu().double().reshape(-1) for part in (interval.estimate, interval.low, interval.high)
    )
    if not center.shape == low.shape == high.shape:
        raise ValueError(
            f"bounds must be {list(center.shape)} like the values, got {list(low.shape)} and {list(high.shape)}"
        )
    known = (~(center.isnan() | low.isnan() | high.isnan())).nonzero().flatten()
    center, low, high = center[known], low[known], high[known]
    lengths = [(center - low).clamp(min=0).tolist(), (high - center).clamp(min=0).tolist()]
    x, y = (center.tolist(), known.tolist()) if sideways else (known.tolist(), center.tolist())
    along, up = (lengths, None) if sideways else (None, lengths)
    ax.errorbar(x, y, xerr=along, yerr=up, fmt="none", ecolor="black", capsize=3, linewidth=1.0)


def draw_baseline(ax: Axes, baseline: Tensor, val: Tensor | Sequence[Tensor]) -> None:
    """Draw dotted lines: as wide as each bar, or as wide as the axes for a point or curves."""
    shape = torch.as_tensor(val if isinstance(val, Tensor) else val[0]).shape
    if baseline.shape != shape:
        raise ValueError(f"baseline must be {list(shape)} like one of the values, got {list(baseline.shape)}")
    levels = baseline.detach().cpu().double().reshape(-1)
    known = (~levels.isnan()).nonzero().flatten().tolist()
    if isinstance(val, Tensor) and val.ndim:
        for index in known:
            level = levels[index].item()
            ax.plot([index - 0.4, index + 0.4], [level, level], color="black", **(BASELINE | {"linewidth": 2}))
    else:
        for index in known:
            color = "0.4" if isinstance(val, Tensor) else line_style(index, len(val))["color"]
            ax.axhline(levels[index].item(), color=color, zorder=0, **BASELINE)
    explain_baseline(ax)


def _draw_point(ax: Axes, value: float) -> None:
    """Draw one value as a point with its number."""
    ax.plot([0], [value], marker="o", markersize=10, linestyle="None")
    ax.annotate(f"{value:.4g}", (0, value), (10, 0), textcoords="offset points", va="center")
    ax.set_xticks([])


def _draw_bars(ax: Axes, values: Tensor, item: str, labels: Sequence[str] | None) -> None:
    """Draw values as bars, and mark the undefined ones."""
    names = display_names(labels, values.numel())
    ax.bar(range(len(names)), values.nan_to_num(0.0).tolist(), color="0.45")
    undefined = values.isnan().nonzero().flatten().tolist()
    if len(names) <= MAX_NAMED:
        for index in undefined:
            ax.annotate("undefined", (index, 0), ha="center", va="bottom", rotation=90, color="0.3", fontsize="small")
    elif undefined:
        ax.set_title(f"{len(undefined)} of {len(names)} have no value", fontsize="small", loc="right")
    name_ticks(ax, "x", names)
    ax.set_xlabel(literal(item))


def _draw_lines(ax: Axes, steps: Sequence[Tensor], item: str, labels: Sequence[str] | None) -> int:
    """Draw one line over the steps for each value, and return the number of lines."""
    stacked = torch.stack([torch.as_tensor(step).detach().cpu().double() for step in steps])
    lines = stacked.reshape(len(stacked), -1).T
    names = display_names([f"{item} {index}" for index in range(len(lines))] if labels is None else labels, len(lines))
    for index, line in enumerate(lines):
        ax.plot(range(len(line)), line.tolist(), label=names[index], **line_style(index, len(line)))
    ax.set_xlabel("Step")
    ax.locator_params(axis="x", integer=True)
    return len(lines)
