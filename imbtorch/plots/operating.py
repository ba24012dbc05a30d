"""ROC and precision-recall curves of classifiers over their thresholds, with operating points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Measure, evaluated
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.curves import (
    class_totals,
    least_precision,
    precision_recall_isometrics,
    precision_recall_points,
    roc_isometrics,
    roc_points,
)
from imbtorch.plots.style import (
    LEGEND_ROW,
    LINES,
    TITLE_PAD,
    add_legend,
    bracketed,
    brackets_note,
    default_title,
    display_names,
    figure_and_axes,
    legend_texts,
    line_style,
    literal,
    probability,
)
from imbtorch.plots.values import draw_baseline, plot_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Models: TypeAlias = Any
"""Counts ``[T, 2, 2]`` at each threshold, a sweep or its result; or name -> one of these."""
GUESSING = "random guessing"
MARK = "marked threshold"
NEAR_THE_EDGE = 0.65  # rate or recall from which a text beside its point would leave the axes
FEW = 4  # most operating points that have room for large marks
UNREACHABLE = "out of reach at these class shares"
VISIBLE = 0.02  # share of positives from which the part out of reach is seen
EVEN_LEVELS = 9  # lines of equal value where no operating point is marked


@computed_on_cpu
def plot_roc(
    models: Models,
    ax: Axes | None = None,
    *,
    marked: int | Mapping[str, int] | None = None,
    measure: Measure | None = None,
    levels: Sequence[float] | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw ROC curves with their areas, with operating points and lines of equal value of a measure.

    A dotted line marks random guessing.

    Args:
        models: name -> :class:`~imbtorch.ThresholdSweep`, its result, or ``[T, 2, 2]`` counts at each threshold; or
            one of these.
        ax: axes to draw into; by default the axes of a new figure.
        marked: name -> index of the threshold to mark; for a single model, the index alone.
        measure: function of ``[..., 2, 2]`` counts, equal at all points of one line; by default no lines are drawn.
        levels: values of the measure at its lines; by default those at the marked points, or nine even ones.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not ``[T, 2, 2]`` of the same samples with targets of both classes, an unknown
            name or index, models of different class shares together with a measure, and a measure that does not return
            one value for each matrix.
        TypeError: for models that are neither counts nor sweeps.

    Source: Fawcett (2006), An introduction to ROC analysis; for the lines Flach (2003), Liu, Ghosh and Martin (2007).

    >>> from imbtorch import ThresholdSweep
    >>> sweep = ThresholdSweep("f1")
    >>> sweep.update(torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0]))
    >>> figure, axes = plot_roc({"my model": sweep})
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['random guessing', 'my model: AUC 0.750']
    """
    return _plot(models, ax, marked, measure, levels, roc_isometrics, _draw_roc)


@computed_on_cpu
def plot_precision_recall(
    models: Models,
    ax: Axes | None = None,
    *,
    measure: Measure | None = None,
    levels: Sequence[float] | None = None,
    marked: int | Mapping[str, int] | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw precision over recall, with operating points and lines of equal value of a measure.

    The curve jumps from threshold to threshold, because average precision is the area below these steps. The grey area
    is out of reach at these class shares; with less than 2% positives it is too low to be seen, and the legend leaves
    it out. A dotted line marks random guessing, whose precision is the share of positives. All models must have the
    same class shares, since their order can change with the shares.

    Args:
        models: see :func:`plot_roc`.
        ax: axes to draw into; by default the axes of a new figure.
        measure: see :func:`plot_roc`.
        levels: see :func:`plot_roc`.
        marked: see :func:`plot_roc`.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: see :func:`plot_roc`; also for models of different class shares.
        TypeError: for models that are neither counts nor sweeps.

    Source: Davis and Goadrich (2006), The relationship between precision-recall and ROC curves; Boyd et al. (2012).

    >>> from imbtorch import ThresholdSweep
    >>> sweep = ThresholdSweep("f1")
    >>> sweep.update(torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0]))
    >>> figure, axes = plot_precision_recall({"my model": sweep})
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['out of reach at these class shares', 'random guessing', 'my model']
    """
    _common_totals(named_counts(models))
    return _plot(models, ax, marked, measure, levels, precision_recall_isometrics, _draw_precision_recall)


def _plot(
    models: Models,
    ax: Axes | None,
    marked: int | Mapping[str, int] | None,
    measure: Measure | None,
    levels: Sequence[float] | None,
    isometrics: Callable[[Measure, float, float], Tensor],
    draw: Callable[..., Any],
) -> tuple[Figure | None, Axes]:
    """Draw curves of models, with operating points and lines of equal value of a measure."""
    named = named_counts(models)
    places = marked_places(marked, named)
    lines = None if measure is None else isometrics(measure, *_common_totals(named))
    fig, ax = figure_and_axes(ax, (5.0, 5.0))
    if measure is not None and lines is not None:
        _draw_isometrics(ax, lines, _levels(levels, measure, named, places, lines))
    texts = model_texts(models)
    if draw is _draw_roc:
        areas = [f"AUC {torch.trapezoid(*_roc_curve(each).T.flip(0)):.3f}" for each in named.values()]
        texts = dict(zip(named, legend_texts([texts.get(name, " ") for name in named], areas), strict=True))
    draw(ax, named, places, texts)
    add_legend(ax, "below")
    return fig, ax


@computed_on_cpu
def plot_chosen_thresholds(
    kind: Literal["roc", "precision_recall"],
    counts: Mapping[str, Tensor],
    ax: Axes | None = None,
    *,
    places: Tensor,
    thresholds: Tensor | None,
    chosen_for: str,
    areas: Interval,
) -> tuple[Figure | None, Axes]:
    """Draw the curve of each label with its chosen threshold, and the area below it in the legend.

    The threshold of a single label is written at its point. Those of several would overlap there, and stand in the
    legend.

    Args:
        kind: ROC curve, or precision over recall.
        counts: name of a label -> ``[T, 2, 2]`` counts or rates at each threshold; an empty name is not written.
        ax: axes to draw into; by default the axes of a new figure.
        places: ``[L]``, index of the chosen threshold of each label.
        thresholds: ``[L]``, these thresholds; None to mark none.
        chosen_for: measure that they were chosen for, with the limits.
        areas: ``[L]``, area below each curve with its interval; bounds are nan where there is none.
    """
    fig, ax = figure_and_axes(ax, (5.0, 4.7 + LEGEND_ROW * len(counts)))
    area, draw = ("AUC", _draw_roc) if kind == "roc" else ("AP", _draw_precision_recall)
    single, names = len(counts) == 1, display_names(list(counts), len(counts))
    notes = [f"{area} {text}" for text in bracketed(areas)]
    chosen = [f"threshold {probability(value)}" for value in ([] if thresholds is None else thresholds.tolist())]
    texts = legend_texts(names, notes) if single or not chosen else legend_texts(names, notes, chosen)
    marked = dict(zip(counts, places.tolist(), strict=True)) if chosen else {}
    mark = literal(f"threshold chosen for {chosen_for}")
    points = draw(ax, counts, marked, dict(zip(counts, texts, strict=True)), mark)
    x, y = next(iter(points.values()), (math.nan, math.nan))
    if single and x == x and y == y:  # precision is nan without positive predictions
        side, offset = ("right", (-9, -16)) if x > NEAR_THE_EDGE else ("left", (9, -9 if kind == "roc" else 5))
        ax.annotate(chosen[0], (x, y), offset, textcoords="offset points", ha=side)
    add_legend(ax, "below", title=brackets_note(areas))
    return fig, ax


@computed_on_cpu
def plot_average_precisions(
    counts: Mapping[str, Tensor], ax: Axes | None = None, *, precisions: Interval, item: str
) -> tuple[Figure | None, Axes]:
    """Draw the average precision ``[L]`` of each label as a bar, with that of random guessing as a dotted line."""
    names = list(counts)
    fig, ax = plot_values(precisions, ax, name="average precision", value_range=(0.0, 1.0), item=item, labels=names)
    draw_baseline(ax, torch.tensor(_shares(counts)[0]), precisions.estimate)
    ax.set_title("Dotted: random guessing (share of positives)", fontsize="medium", pad=TITLE_PAD)
    return fig, ax


def _draw_roc(
    ax: Axes, named: Mapping[str, Tensor], places: Mapping[str, int], texts: Mapping[str, str], mark: str = MARK
) -> dict[str, list[float]]:
    """Draw ROC curves above random guessing, and return the operating points."""
    curves = {name: _roc_curve(counts) for name, counts in named.items()}
    points = {name: roc_points(named[name])[index] for name, index in places.items()}
    ax.plot([0, 1], [0, 1], color="0.4", linestyle=":", linewidth=1, zorder=1, label=GUESSING)
    default_title(ax, "ROC")
    ax.set(xlabel="False positive rate", ylabel="True positive rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return draw_curves(ax, curves, points, texts, mark)


def _roc_curve(counts: Tensor) -> Tensor:
    """Return the points of a ROC curve with both ends, ``[T + 2, 2]``."""
    ends = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return torch.cat((ends[:1], rising(counts, roc_points(counts)), ends[1:]))


def _draw_precision_recall(
    ax: Axes, named: Mapping[str, Tensor], places: Mapping[str, int], texts: Mapping[str, str], mark: str = MARK
) -> dict[str, list[float]]:
    """Draw precision over recall, and random guessing if all shares are equal; return the operating points."""
    curves = {}
    for name, counts in named.items():
        curve = rising(counts, precision_recall_points(counts))
        curve = curve[~curve[:, 1].isnan()]  # precision is undefined where nothing is predicted positive
        curves[name] = torch.cat((curve[:1] * torch.tensor([0.0, 1.0]), curve))
    points = {name: precision_recall_points(named[name])[index] for name, index in places.items()}
    (share, *_), same = _shares(named)
    if same:
        recall = torch.linspace(0, 1, 201, dtype=torch.float64)
        least, seen = least_precision(recall, share).tolist(), UNREACHABLE if share >= VISIBLE else None
        ax.fill_between(recall.tolist(), least, color="0.9", linewidth=0, zorder=0, label=seen)
        ax.axhline(share, color="0.4", linestyle=":", linewidth=1, zorder=1, label=GUESSING)
    default_title(ax, "Precision over recall")
    ax.set(xlabel="Recall", ylabel="Precision", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return draw_curves(ax, curves, points, texts, mark, drawstyle="steps-pre")


def model_texts(models: Models) -> dict[str, str]:
    """Return the text of the legend for each model; a single model without a name has none."""
    names = list(models) if isinstance(models, Mapping) else []
    return dict(zip(names, display_names(names, len(names)), strict=True))


def named_counts(models: Models) -> dict[str, Tensor]:
    """Return the counts of each model by its name; a single model has an empty name."""
    named = {}
    for name, model in (models if isinstance(models, Mapping) else {"": models}).items():
        swept = model.result() if hasattr(model, "result") else model
        counts = swept.matrices() if hasattr(swept, "matrices") else swept
        if not isinstance(counts, Tensor):
            raise TypeError(
                f"models must be counts [T, 2, 2] at each threshold, or a ThresholdSweep, got a {type(model).__name__}"
            )
        class_totals(counts)
        named[name] = counts
    if not named:
        raise ValueError("models is empty; give at least one model with its counts at each threshold")
    return named


def marked_places(marked: int | Mapping[str, int] | None, named: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the index of the marked threshold of each model that has one."""
    places = {"": marked} if isinstance(marked, int) else dict(marked or {})
    for name, index in places.items():
        if name not in named:
            raise ValueError(f"marked must name models out of {list(named)}, got {name!r}")
        if not 0 <= index < len(named[name]):
            raise ValueError(f"marked must hold indices 0..{len(named[name]) - 1}, got {index!r} for {name!r}")
    return places


def _common_totals(named: Mapping[str, Tensor]) -> tuple[float, float]:
    """Return the negatives and positives of the first model, after a check that all have its class shares."""
    shares, same = _shares(named)
    if not same:
        got = dict(zip(named, shares, strict=True))
        raise ValueError(f"models must have the same share of positives to be compared here, got {got}")
    return class_totals(next(iter(named.values())))


def _shares(named: Mapping[str, Tensor]) -> tuple[list[float], bool]:
    """Return the share of positives of each model, and whether all have the same."""
    totals = [class_totals(counts) for counts in named.values()]
    shares = [positives / (negatives + positives) for negatives, positives in totals]
    return shares, max(shares) - min(shares) <= 1e-6


def rising(counts: Tensor, points: Tensor) -> Tensor:
    """Sort points ``[T, 2]`` by the number of positive predictions, from few to many."""
    return points[counts.detach().cpu()[..., 1].sum(-1).argsort(stable=True)]


def _levels(
    levels: Sequence[float] | None,
    measure: Measure,
    named: Mapping[str, Tensor],
    places: Mapping[str, int],
    lines: Tensor,
) -> list[float]:
    """Choose the values of the lines: those that were given, else those at marked points, else even ones."""
    if levels is not None:
        return sorted(set(levels))
    in_use = [named[name][index].detach().cpu().double() for name, index in places.items()]
    if in_use:
        values: list[float] = evaluated(measure, torch.stack(in_use)).tolist()
        return sorted(set(values))
    known = lines[~lines.isnan()]
    even: list[float] = torch.linspace(known.min().item(), known.max().item(), EVEN_LEVELS + 2)[1:-1].tolist()
    return sorted(set(even))


def _draw_isometrics(ax: Axes, lines: Tensor, levels: Sequence[float]) -> None:
    """Draw lines of equal value, labelled with it, of ``[S, S]`` values over the unit square."""
    inside = [level for level in levels if bool((lines < level).any() and (lines > level).any())]
    if not inside:
        return
    ticks = torch.linspace(0, 1, len(lines), dtype=torch.float64).tolist()
    drawn = ax.contour(ticks, ticks, lines.tolist(), levels=inside, colors="0.55", linewidths=0.8, linestyles="dashed")
    ax.clabel(drawn, fmt="%.3g", fontsize=7)
    ax.plot([], [], color="0.55", linewidth=0.8, linestyle="dashed", label="lines of equal value, numbered")


def draw_curves(
    ax: Axes,
    curves: Mapping[str, Tensor],
    points: Mapping[str, Tensor],
    texts: Mapping[str, str],
    mark: str = MARK,
    **options: Any,
) -> dict[str, list[float]]:
    """Draw a curve for each model, then the operating points, and return these."""
    looks = {name: line_style(index, len(curve)) for index, (name, curve) in enumerate(curves.items())}
    for name, curve in curves.items():
        line = looks[name]
        if len(looks) <= len(LINES):  # then colours and dashes tell curves apart, and markers are operating points
            line = {key: line[key] for key in ("color", "linestyle")}
        ax.plot(*curve.T.tolist(), label=texts.get(name), linewidth=1.5, zorder=2.5, **line, **options)
    marked = {name: point.tolist() for name, point in points.items()}
    dot: dict[str, Any] = {"markersize": 11 if len(marked) <= FEW else 8, "markeredgewidth": 1.5, "clip_on": False}
    for index, (name, (x, y)) in enumerate(marked.items()):
        look = {"color": looks[name]["color"], "marker": looks[name]["marker"], "markerfacecolor": "white"}
        ax.plot([x], [y], linestyle="None", zorder=3, label=None if index else mark, **look, **dot)
    return marked
