"""Models in the accuracy-dominance space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from imbtorch.choosing.models import Selection
from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.deciding.ties import undominated
from imbtorch.measures.traits import measure_function, of_two_classes
from imbtorch.papers.dominance import (
    dominance_points,
    equal_area_gmean,
    feasible,
    greatest_gmean,
    greatest_value,
    largest_trapezium,
    space_points,
)
from imbtorch.plots.operating import Models, draw_curves, marked_places, model_texts, named_counts, rising
from imbtorch.plots.style import MARKERS, add_legend, display_names, figure_and_axes, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25)
EDGE = torch.linspace(-1, 1, 401, dtype=torch.float64)  # dominance of the points at which the limit is drawn
UNREACHABLE = "out of reach of any classifier"
UNDOMINATED = "front of the undominated models"
DOMINANCE = "Dominance (recall of positives - recall of negatives)"


@computed_on_cpu
def plot_accuracy_dominance(
    points: Selection | Mapping[str, Tensor] | Tensor | None = None,
    ax: Axes | None = None,
    *,
    y: Callable[..., Any] | str | None = None,
    labels: Sequence[str] | None = None,
    trapezium: int | Literal["best"] | None = "best",
    levels: Sequence[float] = LEVELS,
    front: bool = False,
    path: bool = False,
) -> tuple[Figure | None, Axes]:
    """Draw models in the accuracy-dominance space: G-mean (or another measure) over dominance, and lines of equal area.

    No classifier lies above the curve G-mean = sqrt(1 - abs(dominance)); a point above it, by more than the rounding of
    two decimals, is named infeasible. For another measure, the curve is its greatest value at the class totals of the
    counts, drawn if all models have the same totals. Three models in a row share a marker, filled black, white and
    grey.

    Args:
        points: result of :func:`~imbtorch.statistics.select_model` on two classes; name -> ``[2, 2]`` counts, such as
            ``SelectionSummary.history().counts`` of each epoch; ``[M, 2, 2]`` counts; or ``[M, 2]`` pairs of dominance
            in [-1, 1] and G-mean in [0, 1]. None draws the empty space.
        ax: axes to draw into; by default the axes of a new figure.
        y: measure to draw instead of G-mean, with higher values better: a name of the catalogue, a function of the
            counts or a ``functools.partial`` of one, averaged as in reports of two classes. It needs counts. The area
            is then y (dominance + 3) / 2, which has no meaning where y is negative.
        labels: M names; by default the names of the selection or mapping, else 0 to M-1.
        trapezium: area to hatch: ``"best"`` for the largest feasible one, the index of a model, or None.
        levels: areas at which lines of equal area are drawn, in (0, 1.5).
        front: draw steps through the models that no other model exceeds in both coordinates
            (:func:`~imbtorch.statistics.undominated`).
        path: join the points in their order, such as the epochs of a training, from white to black; the legend names
            the first, the last and the hatched one.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a selection among more than two classes, points outside the space, a ``y`` without counts, a
            wrong number of names, or an index out of range.
        TypeError: for a ``y`` that is not a measure.

    Source: Garcia, Mollineda and Sanchez (2009), Figures 1 and 2.

    >>> models = {"cautious": torch.tensor([[95, 5], [8, 2]]), "balanced": torch.tensor([[80, 20], [2, 8]])}
    >>> figure, axes = plot_accuracy_dominance(models)
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['cautious', 'balanced', 'out of reach of any classifier', 'lines of equal area', 'area of balanced']
    """
    models = _models(points, y, labels)
    places = models.places
    names = display_names(models.names, len(places))
    shown = largest_trapezium(places, models.possible) if trapezium == "best" else trapezium
    if shown is not None and not 0 <= shown < len(places):
        raise ValueError(f"trapezium must be 'best', None or an index 0..{len(places) - 1}, got {trapezium!r}")
    fig, ax = figure_and_axes(ax, (8.0, 4.8))
    if path:
        _draw_path(ax, places, names, shown)
    else:
        _draw_models(ax, places, names, models.possible)
    draw_dominance_space(ax, levels, models.limit, models.label)
    ax.set_ylim(min(0.0, float(places[:, 1].nan_to_num().min()) * 1.05) if len(places) else 0.0, 1.0)
    if shown is not None:
        dominance, height = places[shown].tolist()
        _draw_trapezium(ax, dominance, height, f"area of {names[shown]}")
    if front:
        _draw_front(ax, places)
    add_legend(ax)
    return fig, ax


@computed_on_cpu
def plot_dominance_curve(
    models: Models,
    ax: Axes | None = None,
    *,
    marked: int | Mapping[str, int] | None = None,
    levels: Sequence[float] = LEVELS,
) -> tuple[Figure | None, Axes]:
    """Draw classifiers over their thresholds in the accuracy-dominance space, with lines of equal area.

    A curve begins at the left end, where all predictions are negative, and ends at the right, where all are positive.

    Args:
        models: name -> :class:`~imbtorch.ThresholdSweep`, its result, or ``[T, 2, 2]`` counts at each threshold; or
            one of these.
        ax: axes to draw into; by default the axes of a new figure.
        marked: name -> index of the threshold to mark; for a single model, the index alone.
        levels: areas at which lines of equal area are drawn, in (0, 1.5).

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not ``[T, 2, 2]`` of the same samples with targets of both classes, and an
            unknown name or index.
        TypeError: for models that are neither counts nor sweeps.

    Source: Garcia, Mollineda and Sanchez (2009), Figure 1; they name the curve as future work.

    >>> from imbtorch import ThresholdSweep
    >>> sweep = ThresholdSweep("f1")
    >>> sweep.update(torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0]))
    >>> figure, axes = plot_dominance_curve({"my model": sweep})
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['out of reach of any classifier', 'lines of equal area', 'my model']
    """
    named = named_counts(models)
    places = marked_places(marked, named)
    ends = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    curves = {name: rising(counts, dominance_points(counts)) for name, counts in named.items()}
    curves = {name: torch.cat((ends[:1], curve, ends[1:])) for name, curve in curves.items()}
    points = {name: dominance_points(named[name])[index] for name, index in places.items()}
    fig, ax = figure_and_axes(ax, (6.4, 5.6))
    draw_dominance_space(ax, levels)
    draw_curves(ax, curves, points, model_texts(models))
    add_legend(ax, "below")
    return fig, ax


def draw_dominance_space(ax: Axes, levels: Sequence[float], limit: Tensor | None = None, label: str = "G-mean") -> None:
    """Draw the limit of all classifiers and lines of equal area, with entries for the legend.

    ``limit`` is the greatest value at each dominance of :data:`EDGE`, by default that of G-mean; nan if unknown.
    """
    edge, limit = EDGE, greatest_gmean(EDGE) if limit is None else limit
    known = not bool(limit.isnan().any())
    if known:
        ax.fill_between(edge.tolist(), limit.tolist(), 1.0, color="0.9", linewidth=0, zorder=0, label=UNREACHABLE)
        ax.plot(edge.tolist(), limit.tolist(), color="black", linewidth=1.2, zorder=2)
    label_of_lines: str | None = "lines of equal area"  # of the first one that is drawn
    for level in levels:
        height = equal_area_gmean(level, edge)
        inside = height <= limit if known else height <= 1
        if inside.any():
            xs, ys = edge[inside].tolist(), height[inside].tolist()
            ax.plot(xs, ys, color="0.45", linestyle=(0, (6, 3)), linewidth=0.8, zorder=1, label=label_of_lines)
            label_of_lines = None
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            ax.text(xs[-1], ys[-1], f"{level:g}", fontsize=7, color="0.3", ha="center", va="center", bbox=box, zorder=2)
    ax.set_xlim(-1.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_xlabel(DOMINANCE)
    ax.set_ylabel(label)


class _Models(NamedTuple):
    """Models to draw: ``[M, 2]`` points, their names, their feasibility, and the limit and the name of the y axis."""

    places: Tensor
    names: Sequence[str] | None
    possible: Tensor
    limit: Tensor | None = None
    label: str = "G-mean"


def _models(
    points: Selection | Mapping[str, Tensor] | Tensor | None,
    y: Callable[..., Any] | str | None,
    labels: Sequence[str] | None,
) -> _Models:
    """Read the points of models in any of the accepted forms."""
    if isinstance(points, Mapping):
        if not points:
            raise ValueError("points is empty; give the counts of at least one model, or None for the empty space")
        return _of_counts(torch.stack(list(points.values())), y, list(points) if labels is None else labels)
    if isinstance(points, Tensor) and points.ndim == 3:
        return _of_counts(points, y, labels)
    if y is not None:
        raise ValueError(
            "y needs counts, [M, 2, 2] or name -> [2, 2]; points and selections hold dominance and G-mean alone"
        )
    if isinstance(points, Selection):
        if points.points is None:
            raise ValueError("the selection has no points, since dominance needs two classes; use one_vs_rest(counts)")
        return _of_points(points.points[:, :2], points.models if labels is None else labels)
    return _of_points(points, labels)


def _of_points(points: Tensor | None, labels: Sequence[str] | None) -> _Models:
    """Read models given by dominance and G-mean; such points can be infeasible."""
    places = torch.empty(0, 2) if points is None else points.detach().cpu()
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(
            f"points must be [M, 2] of dominance and G-mean, or [M, 2, 2] counts, got {list(places.shape)}"
        )
    places = places.double()
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 1.0])
    if not bool(((places >= low) & (places <= high)).all()):
        raise ValueError(f"dominance must lie in [-1, 1] and G-mean in [0, 1], got {places.tolist()}")
    return _Models(places, labels, feasible(places))


def _of_counts(counts: Tensor, y: Callable[..., Any] | str | None, labels: Sequence[str] | None) -> _Models:
    """Read models given by their counts, which are always feasible."""
    if y is None:
        places = space_points(counts)
        return _Models(places, labels, torch.ones(len(places), dtype=torch.bool))
    function = measure_function(y, "y")
    measure = of_two_classes(function)
    places = space_points(counts, measure)
    totals = counts.detach().cpu().double().sum(-1)
    same = bool(torch.allclose(totals, totals[:1]) & (totals > 0).all())
    limit = greatest_value(measure, EDGE, *totals[0].tolist()) if same else torch.full_like(EDGE, torch.nan)
    name = getattr(function, "__name__", "<")  # a partial has no name, a lambda none to show
    label = "Value of the measure" if "<" in name else name.replace("_", " ").capitalize()
    return _Models(places, labels, torch.ones(len(places), dtype=torch.bool), limit, literal(label))


def _draw_trapezium(ax: Axes, dominance: float, height: float, label: str) -> None:
    """Hatch the area of a point; a point below 0 has none."""
    if height > 0:
        corners = ([-1.0, -1.0, dominance, 1.0], [0.0, height, height, 0.0])
        ax.fill(*corners, facecolor="none", edgecolor="0.55", hatch="///", linewidth=1.0, zorder=1.5, label=label)


def _draw_models(ax: Axes, places: Tensor, names: Sequence[str], possible: Tensor) -> None:
    """Draw a point for each model."""
    for index, (dominance, height) in enumerate(places.tolist()):
        ax.plot(
            [dominance],
            [height],
            linestyle="None",
            marker=MARKERS[index // 3 % len(MARKERS)],
            markersize=8,
            markeredgecolor="black",
            markerfacecolor=("black", "white", "0.65")[index % 3],
            label=names[index] + " (infeasible)" * (not possible[index]),
            clip_on=False,
            zorder=3,
        )


def _draw_path(ax: Axes, places: Tensor, names: Sequence[str], shown: int | None) -> None:
    """Join the points in their order, and name the first, the last and the hatched one."""
    ax.plot(places[:, 0].tolist(), places[:, 1].tolist(), color="black", linewidth=0.9, zorder=2.6)
    last = max(1, len(places) - 1)
    named = {0: "o", len(places) - 1: "s"} | ({} if shown is None else {shown: "*"})
    for index, (dominance, height) in enumerate(places.tolist()):
        ax.plot(
            [dominance],
            [height],
            linestyle="None",
            marker=named.get(index, "o"),
            markersize=13 if index == shown else 8 if index in named else 4.5,
            markeredgecolor="black",
            markerfacecolor=str(1 - index / last),
            label=names[index] if index in named else "_",
            clip_on=False,
            zorder=4 if index in named else 3,
        )


def _draw_front(ax: Axes, places: Tensor) -> None:
    """Draw steps through the undominated points."""
    corners = places[undominated(places)]
    corners = corners[corners[:, 0].argsort()]
    xs, ys = corners[:, 0].tolist(), corners[:, 1].tolist()
    if xs:
        low = ax.get_ylim()[0]
        steps = ([-1.0, *xs, xs[-1]], [ys[0], *ys, low])
        ax.plot(*steps, color="#0072B2", linewidth=1.5, drawstyle="steps-pre", label=UNDOMINATED, zorder=2.5)
