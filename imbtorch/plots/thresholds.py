"""A measure over the thresholds of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from imbtorch.plots.style import COLORS, LINES, display_names, figure_and_axes, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_sweep"]


def plot_sweep(
    thresholds: Tensor,
    values: Tensor,
    ax: Axes | None = None,
    *,
    best: Tensor | None = None,
    labels: Sequence[str] | None = None,
    name: str = "value",
) -> tuple[Figure | None, Axes]:
    """Draw a measure over the thresholds, with the best one of each line and .5 marked.

    Args:
        thresholds: ``[T]`` in [0, 1].
        values: ``[T]``, or ``[L, T]`` for several labels or classes; where a value is nan the line has a gap.
        ax: axes to draw into; by default those of a new figure.
        best: ``[2]`` or ``[L, 2]``, the threshold to mark on each line and the value there; by default no mark.
        labels: L names; by default 0 to L-1. A single line is not named.
        name: what the values are; label of the y axis.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for values, best points or names that do not fit.
    """
    lines = _checked_lines(thresholds, values, best)
    names = display_names(labels, len(lines))
    fig, ax = figure_and_axes(ax)
    for index, (line, label) in enumerate(zip(lines, names, strict=True)):
        color, shown = COLORS[index % len(COLORS)], None if len(lines) == 1 else label
        ax.plot(thresholds.tolist(), line.tolist(), LINES[index % len(LINES)], color=color, label=shown)
        if best is not None:
            threshold, value = best.detach().cpu().double().reshape(-1, 2)[index].tolist()
            ax.plot([threshold], [value], "o", color=color)
            text = f"{value:.3f} at {threshold:.2f}"
            ax.annotate(text, (threshold, value), (0, 7), textcoords="offset points", ha="center")
    ax.axvline(0.5, color="0.4", linestyle="dotted", linewidth=1)
    ax.margins(y=0.12)  # room for the text above the best point
    ax.set(xlabel="Threshold", ylabel=literal(name), xlim=(0, 1))
    if len(lines) > 1:
        ax.legend(fontsize="small")
    return fig, ax


def _checked_lines(thresholds: Tensor, values: Tensor, best: Tensor | None) -> Tensor:
    """Values as ``[L, T]``."""
    lines = values.detach().cpu().double()
    if thresholds.ndim != 1 or lines.ndim not in (1, 2) or lines.shape[-1:] != thresholds.shape:
        got = f"{list(thresholds.shape)} and {list(lines.shape)}"
        raise ValueError(f"thresholds must be [T] and values [T] or [L, T], got shapes {got}")
    if best is not None and best.shape != (*lines.shape[:-1], 2):
        raise ValueError(f"best must be {[*lines.shape[:-1], 2]}, threshold and value, got {list(best.shape)}")
    return lines.reshape(-1, len(thresholds))
