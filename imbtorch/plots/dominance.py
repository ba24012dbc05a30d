"""Models in the accuracy-dominance space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from imbtorch.analysis.dominance import equal_area_gmean, feasible, greatest_gmean, largest_trapezium
from imbtorch.analysis.selection import Selection
from imbtorch.plots.style import MARKERS, display_names, figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_accuracy_dominance"]

LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25)
MOST_INSIDE = 12  # models up to which the legend has room in the space


def plot_accuracy_dominance(
    points: Selection | Tensor | None = None,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    trapezium: int | Literal["best"] | None = "best",
    levels: Sequence[float] = LEVELS,
) -> tuple[Figure | None, Axes]:
    """Draw models in the accuracy-dominance space: G-mean over dominance, with lines of equal area.

    No classifier lies above the curve G-mean = sqrt(1 - abs(dominance)); a point that does is named infeasible (beyond
    the rounding of two decimals). Three models in a row share a marker, filled black, white and grey.

    Args:
        points: result of :func:`~imbtorch.analysis.select_model` on two classes, or ``[M, 2]`` of dominance in [-1, 1]
            and G-mean in [0, 1]; None for the empty space.
        ax: axes to draw into; by default those of a new figure.
        labels: M names; by default those of the selection, else 0 to M-1.
        trapezium: which point's area is hatched: the largest feasible one, that of an index, or none.
        levels: areas whose lines are drawn, in (0, 1.5).

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a selection among more than two classes, points outside the space, names or an index that do
            not fit.

    Source: Garcia, Mollineda and Sanchez (2009), Figures 1 and 2.
    """
    places, labels = _points_and_labels(points, labels)
    names = display_names(labels, len(places))
    shown = largest_trapezium(places) if trapezium == "best" else trapezium
    if shown is not None and not 0 <= shown < len(places):
        raise ValueError(f"trapezium must be 'best', None or an index 0..{len(places) - 1}, got {trapezium!r}")
    fig, ax = figure_and_axes(ax)
    draw_dominance_space(ax, levels)
    if shown is not None:
        dominance, gmean = places[shown].tolist()
        corners = ([-1.0, -1.0, dominance, 1.0], [0.0, gmean, gmean, 0.0])
        ax.fill(*corners, facecolor="none", edgecolor="0.55", hatch="///", linewidth=1.0, zorder=1.5)
    possible = feasible(places)
    for index, (dominance, gmean) in enumerate(places.tolist()):
        ax.plot(
            [dominance],
            [gmean],
            linestyle="None",
            marker=MARKERS[index // 3 % len(MARKERS)],
            markersize=8,
            markeredgecolor="black",
            markerfacecolor=("black", "white", "0.65")[index % 3],
            label=names[index] + " (infeasible)" * (not possible[index]),
            clip_on=False,
            zorder=3,
        )
    if len(places) > MOST_INSIDE:
        ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    elif len(places):
        taken = bool((~possible & (places[:, 0] < 0)).any())
        corner: Literal["upper left", "upper right"] = "upper right" if taken else "upper left"
        ax.legend(fontsize="x-small", loc=corner, framealpha=0.95).set_zorder(2.5)  # below the points
    return fig, ax


def draw_dominance_space(ax: Axes, levels: Sequence[float]) -> None:
    """Draw what a classifier can reach, and lines of equal area."""
    edge = torch.linspace(-1, 1, 401, dtype=torch.float64)
    limit = greatest_gmean(edge)
    ax.fill_between(edge.tolist(), limit.tolist(), 1.0, color="0.9", linewidth=0, zorder=0)
    ax.plot(edge.tolist(), limit.tolist(), color="black", linewidth=1.2, zorder=2)
    for level in levels:
        height = equal_area_gmean(level, edge)
        inside = height <= limit
        if inside.any():
            xs, ys = edge[inside].tolist(), height[inside].tolist()
            ax.plot(xs, ys, color="0.45", linestyle=(0, (6, 3)), linewidth=0.8, zorder=1)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            ax.text(xs[-1], ys[-1], f"{level:g}", fontsize=7, color="0.3", ha="center", va="center", bbox=box, zorder=2)
    ax.set_xlim(-1.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_xlabel("Dominance")
    ax.set_ylabel("G-mean")


def _points_and_labels(
    points: Selection | Tensor | None, labels: Sequence[str] | None
) -> tuple[Tensor, Sequence[str] | None]:
    """Dominance and G-mean ``[M, 2]`` and the names of the models, as far as they are known."""
    if isinstance(points, Selection):
        if points.points is None:
            raise ValueError("the selection has no points, for dominance is of two classes; use one_vs_rest(counts)")
        return points.points[:, :2], points.models if labels is None else labels
    places = torch.empty(0, 2) if points is None else points.detach().cpu()
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(f"points must be [M, 2] of dominance and G-mean, got {list(places.shape)}")
    places = places.double()
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 1.0])
    if not bool(((places >= low) & (places <= high)).all()):
        raise ValueError(f"dominance must lie in [-1, 1] and G-mean in [0, 1], got {places.tolist()}")
    return places, labels
