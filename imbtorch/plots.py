"""Pictures of values, of counts and of what a measure does; matplotlib is imported when one is drawn.

Lines differ in style and marker, areas in brightness and hatching, so that each picture can be read in black and white.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from imbtorch.analysis.correlation import Correlations
from imbtorch.analysis.intervals import Interval
from imbtorch.analysis.selection import Selection
from imbtorch.analysis.skew import Measure
from imbtorch.confusion import at_prevalence, check_choice, normalized, square

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "plot_accuracy_dominance",
    "plot_confusion_matrix",
    "plot_correlations",
    "plot_prevalence",
    "plot_selection",
    "plot_sensitivity",
    "plot_skew_map",
    "plot_values",
]

MAX_WRITTEN = 20  # classes up to which each cell has room for its numbers
MAX_NAMED = 40  # classes up to which each has its name at the axis
MAX_LETTERS = 30  # of a name; the rest is cut off
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")


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
    """
    fig, ax = figure_and_axes(ax)
    if isinstance(val, Tensor):
        values = val.detach().cpu().double()
        if values.ndim == 0:
            ax.plot([0], [values.item()], marker="o", markersize=10, linestyle="None")
            ax.annotate(f"{values.item():.4g}", (0, values.item()), (10, 0), textcoords="offset points", va="center")
            ax.set_xticks([])
        else:
            names = _names(labels, values.numel())
            ax.bar(range(len(names)), values.nan_to_num(0.0).tolist(), color="0.45")
            for index in values.isnan().nonzero().flatten().tolist():
                ax.annotate("none", (index, 0), ha="center", va="bottom", rotation=90, color="0.3")
            _name_ticks(ax, "x", names)
            ax.set_xlabel(literal(item))
    else:
        steps = torch.stack([torch.as_tensor(each).detach().cpu().double() for each in val])
        lines = steps.reshape(len(steps), -1).T
        names = _names([f"{item} {index}" for index in range(len(lines))] if labels is None else labels, len(lines))
        for index, line in enumerate(lines):
            ax.plot(range(len(line)), line.tolist(), label=names[index], **_style(index, len(line)))
        if len(lines) > 1:
            ax.legend(fontsize="small", ncols=1 + len(lines) // 12)
        ax.set_xlabel("Step")
    for bound in bounds:
        if bound is not None:
            ax.axhline(bound, linestyle="dashed", color="black", linewidth=0.8)
    ax.set_ylabel(literal(name))
    ax.grid(visible=True, axis="y", alpha=0.3)
    return fig, ax


def plot_confusion_matrix(
    counts: Tensor,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    normalize: Literal["true", "pred", "all"] = "true",
) -> tuple[Figure | None, Axes]:
    """Draw a confusion matrix: grey by rate, with the count and the rate in each cell where there is room.

    Beyond 20 classes, or in axes too small for numbers, a bar says which grey is which rate, and small rates are drawn
    darker than in proportion (by their square root), so that confusions of one in a hundred can be seen.

    Args:
        counts: ``[K, K]``, rows true, columns predicted.
        ax: axes to draw into; by default those of a new figure, whose size follows the number of classes.
        labels: K class names; by default 0 to K-1. Beyond 40 classes only some are written, of each at most 30 letters.
        normalize: what the rates are shares of: the true class, the predicted class, or all samples.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not one square matrix, or names that do not fit it.
    """
    if square(counts).ndim != 2:
        raise ValueError(f"one matrix [K, K] can be drawn, got shape {list(counts.shape)}; choose one of them")
    size = counts.shape[-1]
    names = _names(labels, size)
    rates = normalized(counts.detach().cpu(), normalize).double()
    side = min(max(3.6, 0.6 * size if size <= MAX_WRITTEN else 0.2 * size), 14.0)
    named = 0.08 * max(map(len, names), default=0) + 0.6
    fig, ax = figure_and_axes(ax, (side + named + (size > MAX_WRITTEN), side + named))
    top = 1.0 if normalize != "all" else max(rates.max().item(), 1e-12)
    written = [
        (row, column, f"{count:g}" if isinstance(count, float) else str(count), rates[row, column].item())
        for row, line in enumerate(counts.tolist())
        for column, count in enumerate(line)
        if count
    ]
    box = ax.get_window_extent().transformed(ax.get_figure().dpi_scale_trans.inverted())  # type: ignore[union-attr]
    cell = 72 * (side if fig else min(box.width, box.height)) / size  # points
    font = min(10.0, cell / 3, cell / (0.68 * max((len(text) for *_, text, _ in written), default=1)))
    if size <= MAX_WRITTEN and font >= 4:
        ax.imshow(rates.tolist(), cmap="Greys", vmin=0.0, vmax=top)
        for row, column, text, rate in written:
            color = "white" if rate > 0.5 * top else "black"
            ax.text(column, row, f"{text}\n{rate:.0%}", ha="center", va="center", fontsize=font, color=color)
    else:
        from matplotlib.colors import PowerNorm
        from matplotlib.ticker import PercentFormatter

        image = ax.imshow(rates.tolist(), cmap="Greys", norm=PowerNorm(0.5, 0.0, top))
        share = {"true": "the true class", "pred": "the predicted class", "all": "all samples"}[normalize]
        bar = ax.get_figure().colorbar(image, ax=ax, fraction=0.04, pad=0.02)  # type: ignore[union-attr]
        bar.set_ticks([tick for tick in (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1) if tick <= top])
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        bar.set_label(f"Share of {share}")
    _name_ticks(ax, "x", names)
    _name_ticks(ax, "y", names)
    ax.set_xlabel("Predicted class")
    ax.set_ylabel("True class")
    return fig, ax


def plot_accuracy_dominance(
    points: Selection | Tensor | None = None,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    trapezium: int | Literal["best"] | None = "best",
    levels: Sequence[float] = (0.25, 0.5, 0.75, 1.0, 1.25),
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
    places, labels = _dominance_points(points, labels)
    names = _names(labels, len(places))
    infeasible = places[:, 1] > (1 - places[:, 0].abs()).sqrt() + 0.01
    areas = torch.where(infeasible, -1.0, places[:, 1] * (places[:, 0] + 3) / 2)
    best = None if bool(infeasible.all()) else int(areas.argmax())
    shown = best if trapezium == "best" else trapezium
    if shown is not None and not 0 <= shown < len(places):
        raise ValueError(f"trapezium must be 'best', None or an index 0..{len(places) - 1}, got {trapezium!r}")
    fig, ax = figure_and_axes(ax)
    edge = torch.linspace(-1, 1, 401, dtype=torch.float64)
    limit = (1 - edge.abs()).sqrt()
    ax.fill_between(edge.tolist(), limit.tolist(), 1.0, color="0.9", linewidth=0, zorder=0)
    ax.plot(edge.tolist(), limit.tolist(), color="black", linewidth=1.2, zorder=2)
    for level in levels:
        height = 2 * level / (edge + 3)
        inside = height <= limit
        if inside.any():
            xs, ys = edge[inside].tolist(), height[inside].tolist()
            ax.plot(xs, ys, color="0.45", linestyle=(0, (6, 3)), linewidth=0.8, zorder=1)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            ax.text(xs[-1], ys[-1], f"{level:g}", fontsize=7, color="0.3", ha="center", va="center", bbox=box, zorder=2)
    if shown is not None:
        dominance, gmean = places[shown].tolist()
        corners = ([-1.0, -1.0, dominance, 1.0], [0.0, gmean, gmean, 0.0])
        ax.fill(*corners, facecolor="none", edgecolor="0.55", hatch="///", linewidth=1.0, zorder=1.5)
    for index, (dominance, gmean) in enumerate(places.tolist()):
        ax.plot(
            [dominance],
            [gmean],
            linestyle="None",
            marker=MARKERS[index // 3 % len(MARKERS)],
            markersize=8,
            markeredgecolor="black",
            markerfacecolor=("black", "white", "0.65")[index % 3],
            label=names[index] + " (infeasible)" * bool(infeasible[index]),
            clip_on=False,
            zorder=3,
        )
    if len(places) > 12:
        ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    elif len(places):
        taken = bool((infeasible & (places[:, 0] < 0)).any())
        corner: Literal["upper left", "upper right"] = "upper right" if taken else "upper left"
        ax.legend(fontsize="x-small", loc=corner, framealpha=0.95).set_zorder(2.5)  # below the points
    ax.set_xlim(-1.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_xlabel("Dominance")
    ax.set_ylabel("G-mean")
    return fig, ax


def plot_skew_map(
    ratios: Tensor, ax: Axes | None = None, *, kind: Literal["log", "indicator"] = "log", limit: float = 16.0
) -> tuple[Figure | None, Axes]:
    """Draw the skew ratio at every possible result of a test set.

    Args:
        ratios: ``[P + 1, N + 1]`` of :func:`~imbtorch.analysis.skew_map`: rows true positives, columns true negatives.
        ax: axes to draw into; by default those of a new figure.
        kind: ``"log"``: bright where a right positive counts more, dark where a right negative does, with lines at the
            powers of two (dashed below 1); ``"indicator"``: white where the ratio exceeds 1, dark elsewhere, with the
            share of white in the title. Results without a ratio are hatched.
        limit: ratio from which on, and its inverse up to which, ``"log"`` shows no more difference.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for anything but one map, a kind that is none, or a limit of 1 or less.

    Source: Liu, Ghosh and Martin (2007), Figures 1 and 2.
    """
    check_choice("kind", kind, ("log", "indicator"))
    if ratios.ndim != 2:
        raise ValueError(f"one map [P + 1, N + 1] can be drawn, got shape {list(ratios.shape)}; choose one of them")
    if not limit > 1:
        raise ValueError(f"limit must be a ratio above 1, got {limit!r}")
    fig, ax = figure_and_axes(ax)
    from matplotlib.colors import LinearSegmentedColormap

    values = ratios.detach().cpu().double()
    known = ~values.isnan()
    ax.patch.set(hatch="xxxx", edgecolor="0.6")  # seen through the results that have no ratio
    grey = LinearSegmentedColormap.from_list("grey", ["0.4", "1.0"])
    frame = (-0.5, values.shape[1] - 0.5, -0.5, values.shape[0] - 0.5)
    options: dict[str, Any] = {"origin": "lower", "aspect": "auto", "extent": frame, "interpolation": "nearest"}
    if kind == "indicator":
        above = torch.where(known, (values > 1).double(), torch.nan)
        ax.imshow(above.tolist(), cmap=grey, vmin=0.0, vmax=1.0, **options)
        ax.set_title(f"skew ratio > 1 (white): {above.nanmean():.0%}", fontsize="medium")
    else:
        top = math.log2(limit)
        logs = values.log2().clamp(-top, top)
        image = ax.imshow(logs.tolist(), cmap=grey, vmin=-top, vmax=top, **options)
        ticks = list(range(-math.floor(top), math.floor(top) + 1))
        bar = ax.get_figure().colorbar(image, ax=ax)  # type: ignore[union-attr]
        bar.set_ticks(ticks, labels=[_power(tick) for tick in ticks])
        bar.set_label("Skew ratio")
        finite = logs[~logs.isnan()]
        low, high = (finite.min().item(), finite.max().item()) if len(finite) else (0.0, 0.0)
        lines = [tick for tick in ticks if low < tick < high]
        if lines:
            widths = [2.0 if line == 0 else 0.8 for line in lines]
            styles = ["dashed" if line < 0 else "solid" for line in lines]
            drawn = ax.contour(logs.tolist(), levels=lines, colors="black", linewidths=widths, linestyles=styles)
            places = [max(parts, key=len)[len(max(parts, key=len)) // 4] for parts in drawn.allsegs if parts]
            ax.clabel(drawn, fmt={line: _power(line) for line in lines}, fontsize=8, manual=places)  # off the frame
        elif high - low < 1e-9 and len(finite):
            ax.text(0.5, 0.5, f"{2**low:.3g} everywhere", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel("True negatives")
    ax.set_ylabel("True positives")
    return fig, ax


def plot_correlations(
    correlations: Correlations, measure: str, ax: Axes | None = None, *, others: Sequence[str] | None = None
) -> tuple[Figure | None, Axes]:
    """Draw how one measure is correlated with the others, over the share of positives.

    Args:
        correlations: result of :func:`~imbtorch.analysis.measure_correlations`.
        measure: the name of the measure that the others are compared with.
        ax: axes to draw into; by default those of a new figure.
        others: names of the measures that are drawn, by default all others. A measure keeps its line from one picture
            to the next; where a correlation is nan, the line has a gap.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a name that the correlations do not have.

    Source: Garcia, Mollineda and Sanchez (2010), Figure 1.
    """
    names = correlations.names
    chosen = [name for name in names if name != measure] if others is None else list(others)
    for name in (measure, *chosen):
        check_choice("measure" if name == measure else "others", name, names)
    fig, ax = figure_and_axes(ax)
    shares = [100 * share for share in correlations.shares]
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    for name in chosen:
        ax.plot(
            correlations.of(measure, name).tolist(),
            shares,
            label=literal(name),
            **_style(names.index(name), len(shares)),
        )
    ax.set_xlim(-1.05, 1.05)
    ax.set_yticks(shares)
    ax.set_xlabel(literal(f"Correlation with {measure}"))
    ax.set_ylabel("Positive samples (%)")
    ax.grid(visible=True, alpha=0.3)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig, ax


def plot_prevalence(
    measures: Mapping[str, Measure],
    counts: Tensor,
    ax: Axes | None = None,
    *,
    span: tuple[float, float] = (1e-4, 0.5),
    steps: int = 121,
) -> tuple[Figure | None, Axes]:
    """Draw measures of one classifier over the share of positives, and say which of them do not move.

    What the classifier does to each class stays as counted; a dotted line marks the share of positives of the counts.

    Args:
        measures: name -> function of ``[..., 2, 2]`` counts.
        counts: ``[2, 2]`` counts or rates, class 1 being the positive one.
        ax: axes to draw into; by default those of a new figure.
        span: least and greatest share of positives, within (0, 1); widened to hold that of the counts.
        steps: points of each line, at least 2, in equal ratios.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not ``[2, 2]`` or lack a class, a span or a number of steps out of range, and a
            measure that does not return one value a matrix.

    Those made of the recalls of the two classes alone do not move. It is an assumption that the others move as drawn:
    that the samples of each class look in the other population as they did here.
    """
    if square(counts).shape != (2, 2):
        raise ValueError(
            f"counts must be one matrix [2, 2], got {list(counts.shape)}; take a class out of one_vs_rest(counts)"
        )
    wide = counts.detach().cpu().double()
    negatives, positives = wide.sum(-1).tolist()
    if not (negatives > 0 and positives > 0):
        raise ValueError(f"counts must hold targets of both classes, got {negatives:g} and {positives:g}")
    if not 0 < span[0] < span[1] < 1 or steps < 2:
        raise ValueError(f"span must hold two shares rising within (0, 1) and steps be 2 or more, got {span}, {steps}")
    own = positives / (negatives + positives)
    low, high = min(span[0], own), max(span[1], own)
    shares = torch.logspace(math.log10(low), math.log10(high), steps, dtype=torch.float64)
    rates = at_prevalence(wide, torch.stack((1 - shares, shares), -1))
    assert isinstance(rates, Tensor)
    values = {name: measure(rates) for name, measure in measures.items()}
    for name, value in values.items():
        if value.shape != shares.shape:
            raise ValueError(f"{name} must return one value for each matrix, got {list(value.shape)}; average it")
    fig, ax = figure_and_axes(ax, (8.0, 4.5))
    for index, (name, value) in enumerate(values.items()):
        still = bool(value.max() - value.min() < 1e-9)
        ax.plot(
            shares.tolist(), value.tolist(), label=literal(name + " (does not move)" * still), **_style(index, steps)
        )
    ax.axvline(own, color="0.4", linestyle=":", linewidth=1.5, zorder=0, label=f"as counted: {own:.3g}")
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xscale("log")
    ax.set_xlim(low, high * 1.05)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Share of positives")
    ax.set_ylabel("Measure")
    ax.grid(visible=True, alpha=0.3)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig, ax


def plot_selection(
    values: Mapping[str, Tensor | Sequence[float]],
    ax: Axes | None = None,
    *,
    selected: Mapping[str, int] | None = None,
    intervals: Mapping[str, Interval] | None = None,
    places: Sequence[float] | None = None,
    xlabel: str = "Epoch",
) -> tuple[Figure | None, Axes]:
    """Draw measures over epochs, and above them which epoch each way of choosing selects.

    Every way has a line of its own above the curves, so that no mark hides another where several select one epoch.

    Args:
        values: name of a measure -> ``[M]``, its value at each epoch; where it is nan the line has a gap.
        ax: axes to draw into; by default those of a new figure.
        selected: way of choosing -> index 0..M-1 of the epoch that it selects. A way that bears the name of a measure
            is marked like its line, any other with a black star.
        intervals: name of a measure -> interval with ``low`` and ``high`` of ``[M]``, drawn as a band behind its line.
        places: M positions along the x axis, increasing; by default 0 to M-1.
        xlabel: what they are.

    Returns:
        The new figure (None if axes were given) and the axes of the curves.

    Raises:
        ValueError: without measures, and for values, intervals, positions or indices that do not fit each other.

    Source: Mortaz (2020), section 3.5, for choosing between models by several measures.
    """
    lines = {name: torch.as_tensor(line).detach().cpu().double() for name, line in values.items()}
    sizes = {name: list(line.shape) for name, line in lines.items()}
    if not lines or len(set(map(tuple, sizes.values()))) > 1 or any(len(shape) != 1 for shape in sizes.values()):
        raise ValueError(f"values must hold one measure or more, of equally many epochs [M] each, got {sizes}")
    count = len(next(iter(lines.values())))
    xs = [float(index) for index in range(count)] if places is None else [float(place) for place in places]
    if len(xs) != count or any(b <= a for a, b in itertools.pairwise(xs)):
        raise ValueError(f"places must hold {count} increasing positions, got {xs}")
    ways, bands = dict(selected or {}), dict(intervals or {})
    for way, index in ways.items():
        if not 0 <= index < count:
            raise ValueError(f"selected must hold indices 0..{count - 1}, got {index!r} for {way!r}")
    for name, band in bands.items():
        check_choice("intervals", name, tuple(lines))
        if band.low.shape != (count,) or band.high.shape != (count,):
            raise ValueError(f"the interval of {name!r} must have limits [{count}], got {list(band.low.shape)}")
    strip = 0.2 * len(ways)  # inches
    fig, ax = figure_and_axes(ax, (8.5, 4.2 + strip))
    looks = {name: _style(index, count) for index, name in enumerate(lines)}
    for index, look in enumerate(looks.values()):  # so that lines and points can be told apart where they coincide
        look["linestyle"] = (0, (8, 4)) if index and index % len(LINES) == 0 else look["linestyle"]
        look["markersize"] = 5 + min(4, len(lines) - 1 - index) if count < 20 else 5
    for name, band in bands.items():
        low, high = (limit.detach().cpu().tolist() for limit in (band.low, band.high))
        shade: dict[str, Any] = {
            "color": looks[name]["color"],
            "label": literal(f"{100 * band.level:g} % interval of {name}"),
        }
        if count == 1:  # an area of no width cannot be seen
            ax.vlines(xs, low, high, alpha=0.25, linewidth=12, **shade)
        else:
            ax.fill_between(xs, low, high, alpha=0.15, linewidth=0, **shade)
    for name, line in lines.items():
        ax.plot(xs, line.tolist(), label=literal(name), **looks[name])
    ax.set_xlabel(literal(xlabel))
    ax.set_ylabel("Measure")
    if count == 1:
        ax.set_xticks(xs, [f"{xs[0]:g}"])
    else:
        ax.locator_params(axis="x", integer=True)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if ways:
        _mark_selected(ax, strip, ways, xs, looks)
    return fig, ax


def plot_sensitivity(
    measures: Mapping[str, Measure],
    support: Tensor | Sequence[float],
    ax: Axes | None = None,
    *,
    classes: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    until: float = 1.0,
    steps: int = 41,
) -> tuple[Figure | None, Axes]:
    """Draw measures of a classifier that starts perfect and loses a growing share of some classes.

    The lost samples of a class are predicted evenly as each of the other classes. The paper's figures do not say how
    its classifiers were made worse, so this shows the same test sets, not the same classifiers.

    Args:
        measures: name -> function of ``[..., K, K]`` counts.
        support: ``[K]``, samples of each class.
        ax: axes to draw into; by default those of a new figure.
        classes: the classes that lose samples; by default the rarest one.
        labels: K class names; by default 0 to K-1.
        until: the largest share that they lose, in (0, 1].
        steps: points of each line, at least 2.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for fewer than two classes, a class without samples or out of range, names that do not fit, a share
            or a number of steps out of range, and a measure that does not return one value a matrix.

    Source: Mortaz (2020), Figures 1 to 4, on the class frequencies of Tables 11 to 14.
    """
    numbers = torch.as_tensor(support, dtype=torch.float64).detach().cpu()
    if numbers.ndim != 1 or len(numbers) < 2 or not bool((numbers > 0).all()):
        raise ValueError(f"support must hold the samples of two classes or more, each above 0, got {support!r}")
    names = _names(labels, len(numbers))
    chosen = [int(numbers.argmin())] if classes is None else list(classes)
    if not chosen or any(not 0 <= index < len(numbers) for index in chosen):
        raise ValueError(f"classes must hold indices 0..{len(numbers) - 1}, got {classes!r}")
    if not 0 < until <= 1 or steps < 2:
        raise ValueError(f"until must lie in (0, 1] and steps be 2 or more, got {until!r} and {steps!r}")
    size, shares = len(numbers), torch.linspace(0, until, steps, dtype=torch.float64)
    lost = torch.zeros(size, dtype=torch.float64)
    lost[chosen] = 1.0
    even = (1 - torch.eye(size, dtype=torch.float64)) / (size - 1) - torch.eye(size, dtype=torch.float64)
    counts = numbers.diag() + shares.view(-1, 1, 1) * (numbers * lost).unsqueeze(-1) * even
    values = {name: measure(counts) for name, measure in measures.items()}
    for name, value in values.items():
        if value.shape != shares.shape:
            raise ValueError(f"{name} must return one value for each matrix, got {list(value.shape)}; average it")
    fig, ax = figure_and_axes(ax)
    for index, (name, value) in enumerate(values.items()):
        ax.plot(shares.tolist(), value.tolist(), label=literal(name), **_style(index, steps))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    if len(set(chosen)) == size:
        which = "each class"
    elif len(chosen) > 4:
        which = f"each of {len(chosen)} classes"
    else:
        which = f"class{'es' * (len(chosen) > 1)} {', '.join(names[index] for index in chosen)}"
    ax.set_xlabel(f"Share of {which} that is misclassified")
    ax.set_ylabel("Measure")
    ax.set_xlim(0.0, until)
    ax.grid(visible=True, alpha=0.3)
    ax.legend(fontsize="small")
    return fig, ax


def _mark_selected(
    ax: Axes, strip: float, ways: Mapping[str, int], xs: Sequence[float], looks: Mapping[str, dict[str, Any]]
) -> None:
    """Draw, in a strip of so many inches above axes, a line for each way of choosing with its mark."""
    from matplotlib.transforms import Bbox

    above = ax.inset_axes((0.0, 1.0, 1.0, 1.0), sharex=ax)

    def locate(*_: object) -> Bbox:  # in inches: a strip that grows with the axes would never settle in a layout
        box, inches = ax.get_position(), ax.get_figure().bbox.height / ax.get_figure().dpi  # type: ignore[union-attr]
        return Bbox.from_bounds(box.x0, box.y1 + 0.06 / inches, box.width, strip / inches)

    above.set_axes_locator(locate)
    for place in {xs[index] for index in ways.values()}:
        for axes in (above, ax):
            axes.axvline(place, color="0.5", linestyle=":", linewidth=0.8, zorder=0)
    for row, (way, index) in enumerate(ways.items()):
        above.axhline(row, color="0.9", linewidth=0.8, zorder=0)
        look: dict[str, Any] = {"color": "black", "marker": "*", "markersize": 9}
        if way in looks:
            look = {"color": looks[way]["color"], "marker": looks[way]["marker"], "markersize": 6}
        above.plot([xs[index]], [row], linestyle="None", **look)
        late = xs[index] > (xs[0] + xs[-1]) / 2
        above.annotate(
            f"{xs[index]:g}",
            (xs[index], row),
            (-7 if late else 7, 0),
            textcoords="offset points",
            ha="right" if late else "left",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},  # over the lines of other epochs
        )
    above.set_yticks(range(len(ways)), list(map(literal, ways)), fontsize=8)
    above.set_ylim(len(ways) - 0.5, -0.5)
    above.tick_params(left=False, bottom=False, labelbottom=False)
    above.spines[:].set_visible(False)
    above.set_title("Selected by", fontsize=8, loc="left", pad=2)


def _dominance_points(
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


def _power(exponent: int) -> str:
    """Power of two as it is written at a line."""
    return f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"


def _style(index: int, points: int) -> dict[str, Any]:
    """Look of a line; colour, dashes, marker and its places all differ between neighbours."""
    every = max(1, points // 10)
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 5,
        "markevery": (index % every, every),
    }


def _names(labels: Sequence[str] | None, size: int) -> list[str]:
    """Names of classes or models, cut to a length that leaves room for the picture."""
    names = [str(index) for index in range(size)] if labels is None else [str(label) for label in labels]
    if len(names) != size:
        raise ValueError(f"labels must hold {size} names, got {len(names)}")
    return [literal(name if len(name) <= MAX_LETTERS else name[: MAX_LETTERS - 1] + "…") for name in names]


def literal(text: str) -> str:
    """Write a text so that matplotlib draws it letter by letter; every name passes through here once.

    Two ``$`` would begin a formula, which raises where it cannot be parsed, and a legend leaves out what begins with
    ``_`` or is empty.
    """
    escaped = text.replace("$", r"\$")
    return escaped if escaped and escaped[0] != "_" else f" {escaped}"


def figure_and_axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> tuple[Figure | None, Axes]:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ModuleNotFoundError("pictures need matplotlib: pip install 'imbtorch[plot]'") from error
    if ax is not None:
        return None, ax
    fig, made = pyplot.subplots(figsize=figsize, layout="constrained")
    return fig, made


def _name_ticks(ax: Axes, axis: Literal["x", "y"], names: Sequence[str]) -> None:
    """Write the names of classes at an axis, every n-th where there are too many."""
    stride = 1 + (len(names) - 1) // MAX_NAMED
    places = range(0, len(names), stride)
    shown = [names[place] for place in places]
    box = ax.get_window_extent()
    inches = (box.width if axis == "x" else box.height) / ax.get_figure().dpi  # type: ignore[union-attr]
    font = min(10.0, max(5.0, 54 * inches / max(1, len(shown))))
    if axis == "y":
        ax.set_yticks(places, shown, fontsize=font)
    else:
        upright = (max(map(len, shown), default=0) + 1) * len(shown) * font > 110 * inches
        ax.set_xticks(places, shown, rotation=90 if upright else 0, fontsize=font)
