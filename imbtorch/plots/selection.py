"""Measures over epochs, with the epoch that each way of choosing selects."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import check_choice
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import BASELINE, LINES, add_legend, explain_baseline, figure_and_axes, line_style, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.2  # inches for each way of choosing
FEW = 20  # number of epochs below which each one has its marker


@computed_on_cpu
def plot_selection(
    values: Mapping[str, Tensor | Sequence[float]],
    ax: Axes | None = None,
    *,
    selected: Mapping[str, int] | None = None,
    intervals: Mapping[str, Interval] | None = None,
    places: Sequence[float] | None = None,
    xlabel: str = "Epoch",
    baseline: Mapping[str, float] | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw measures over epochs, and above them the epoch that each way of choosing selects.

    Each way has its own row above the curves, so that all marks are visible when several ways select the same epoch.

    Args:
        values: name of a measure -> ``[M]``, its value at each epoch; a nan leaves a gap in the line.
        ax: axes to draw into; by default the axes of a new figure.
        selected: way of choosing -> index 0..M-1 of the epoch that it selects. A way with the name of a measure has the
            marker of its line, any other a black star.
        intervals: name of a measure -> interval with ``low`` and ``high`` of ``[M]``, drawn as a band behind its line.
        places: M positions along the x axis, increasing; by default 0 to M-1.
        xlabel: label of the x axis.
        baseline: name of a measure -> its value for a baseline (:func:`imbtorch.statistics.trivial`), drawn as a
            dotted line in the colour of the measure.

    Returns:
        The new figure (None if axes were given) and the axes of the curves.

    Raises:
        ValueError: without measures; for values, intervals or positions of different lengths; for an index out of range
            or an unknown measure.

    Source: Mortaz (2020), section 3.5, for choosing between models by several measures.

    >>> figure, axes = plot_selection({"accuracy": [0.7, 0.9, 0.8], "IAM": [0.1, 0.2, 0.4]}, selected={"IAM": 2})
    >>> [line.get_label() for line in axes.get_lines()][:2]
    ['accuracy', 'IAM']
    """
    lines = _checked_lines(values)
    count = len(next(iter(lines.values())))
    xs = _checked_places(places, count)
    ways, bands = dict(selected or {}), dict(intervals or {})
    _check_shown(ways, bands, baseline or {}, lines, count)
    strip = ROW * len(ways)  # inches
    fig, ax = figure_and_axes(ax, (8.5, 4.2 + strip))
    looks = _looks(tuple(lines), count)
    for name, band in bands.items():
        _draw_band(ax, xs, band, name, looks[name]["color"])
    for name, line in lines.items():
        ax.plot(xs, line.tolist(), label=literal(name), **looks[name])
    _draw_baseline(ax, baseline or {}, looks)
    ax.set_xlabel(literal(xlabel))
    ax.set_ylabel("Value of the measure")
    if count == 1:
        ax.set_xticks(xs, [f"{xs[0]:g}"])
    else:
        ax.locator_params(axis="x", integer=True)
    ax.grid(visible=True, axis="y", alpha=0.3)
    add_legend(ax)
    if ways:
        _mark_selected(ax, strip, ways, xs, looks).set_title(
            f"{literal(xlabel)} selected by", fontsize=8, loc="left", pad=2
        )
    return fig, ax


def _checked_lines(values: Mapping[str, Tensor | Sequence[float]]) -> dict[str, Tensor]:
    """Check and convert the values of the measures."""
    lines = {name: torch.as_tensor(line).detach().cpu().double() for name, line in values.items()}
    shapes = {name: list(line.shape) for name, line in lines.items()}
    if len(set(map(tuple, shapes.values()))) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(
            f"values must hold at least one measure, all with values of the same epochs [M], got shapes {shapes}"
        )
    return lines


def _checked_places(places: Sequence[float] | None, count: int) -> list[float]:
    """Check and convert the positions of the epochs."""
    xs = [float(place) for place in (range(count) if places is None else places)]
    if len(xs) != count or any(right <= left for left, right in itertools.pairwise(xs)):
        raise ValueError(f"places must hold {count} increasing positions, got {xs}")
    return xs


def _check_shown(
    ways: Mapping[str, int],
    bands: Mapping[str, Interval],
    baseline: Collection[str],
    names: Collection[str],
    count: int,
) -> None:
    """Check the selected indices, and names and lengths of intervals and baselines."""
    for way, index in ways.items():
        if not 0 <= index < count:
            raise ValueError(f"selected must hold indices 0..{count - 1}, got {index!r} for {way!r}")
    for name, band in bands.items():
        check_choice("intervals", name, tuple(names))
        if band.low.shape != (count,) or band.high.shape != (count,):
            raise ValueError(f"the interval of {name!r} must have bounds [{count}], got {list(band.low.shape)}")
    for name in baseline:
        check_choice("baseline", name, tuple(names))


def _looks(names: Sequence[str], count: int) -> dict[str, dict[str, Any]]:
    """Choose looks by which lines and points can be distinguished where they coincide."""
    looks = {name: line_style(index, count) for index, name in enumerate(names)}
    for index, look in enumerate(looks.values()):
        look["linestyle"] = (0, (8, 4)) if index and index % len(LINES) == 0 else look["linestyle"]
        look["markersize"] = 5 + min(4, len(names) - 1 - index) if count < FEW else 5
    return looks


def _draw_band(ax: Axes, xs: Sequence[float], band: Interval, name: str, color: str) -> None:
    """Draw an interval as a band."""
    low, high = (bound.detach().cpu().tolist() for bound in (band.low, band.high))
    label = literal(f"{100 * band.level:g}% interval of {name}")
    if len(xs) == 1:  # a band without width would be invisible
        ax.vlines(xs, low, high, alpha=0.25, linewidth=12, color=color, label=label)
    else:
        ax.fill_between(xs, low, high, alpha=0.15, linewidth=0, color=color, label=label)


def _draw_baseline(ax: Axes, baseline: Mapping[str, float], looks: Mapping[str, dict[str, Any]]) -> None:
    """Draw the values of baselines as dotted lines."""
    for name, value in baseline.items():
        ax.axhline(value, color=looks[name]["color"], zorder=0, **BASELINE)
    if baseline:
        explain_baseline(ax)


def _mark_selected(
    ax: Axes, strip: float, ways: Mapping[str, int], xs: Sequence[float], looks: Mapping[str, dict[str, Any]]
) -> Axes:
    """Draw one row with a mark for each way of choosing, in a strip of ``strip`` inches above the axes; return it."""
    from matplotlib.transforms import Bbox

    above = ax.inset_axes((0.0, 1.0, 1.0, 1.0), sharex=ax)

    def locate(*_: object) -> Bbox:  # in inches: the layout would not converge if the strip grew with the axes
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
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},  # covers the lines of other epochs
        )
    above.set_yticks(range(len(ways)), list(map(literal, ways)), fontsize=8)
    above.set_ylim(len(ways) - 0.5, -0.5)
    above.tick_params(left=False, bottom=False, labelbottom=False)
    above.spines[:].set_visible(False)
    return above
