"""Shared look of all pictures: axes, legends, colours, dashes, markers and the spelling of names.

Lines differ in dashes and marker, areas in brightness and hatching, so that every picture can be read without colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from imbtorch.intervals.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NAMED = 40  # most classes of which each is named at the axis
MAX_LETTERS = 30  # longest name that is written in full; the middle of a longer one is cut out
LAST_LETTERS = 10  # kept at the end of a cut name, where numbers stand
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito
LINES = ("-", "--", ":", "-.")
TITLE_PAD = 12  # points between axes and title, for markers at the upper end
BASELINE: dict[str, Any] = {"linestyle": ":", "linewidth": 1}  # look of the lines of baselines
LEGEND_ROW = 0.18  # inches
LETTERS = 13  # of a legend in an inch
NARROW = 18  # letters up to which two names stand beside each other below axes
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")


def figure_of_panels(number: int, entries: int) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure with panels side by side, and with room for legends of that many entries below them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.7 * number, 4.1 + LEGEND_ROW * entries), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False).flat)


def figure_and_axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> tuple[Figure | None, Axes]:
    """Return the given axes, or make a new figure of ``figsize`` inches and return it with its axes.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ModuleNotFoundError("pictures need matplotlib: pip install 'imbtorch[plot]'") from error
    if ax is not None:
        return None, ax
    fig, made = pyplot.subplots(figsize=figsize, layout="constrained")
    return fig, made


def line_style(index: int, points: int) -> dict[str, Any]:
    """Return the look of a line, which differs from its neighbours; about ten of its points have a marker."""
    every = max(1, points // 10)
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 5,
        "markevery": (index % every, every),
    }


def explain_baseline(ax: Axes) -> None:
    """Add one entry for the dotted lines of all baselines to the legend."""
    ax.plot([], [], color="0.4", label="baseline", **BASELINE)


def add_legend(
    ax: Axes, place: Literal["beside", "below"] = "beside", columns: int | None = None, title: str = ""
) -> None:
    """Draw the legend of axes outside of them, where it covers no data: to the right, or below the x axis.

    In a figure without a layout engine, which would cut it off there, it is drawn inside.
    """
    options: dict[str, Any] = {"fontsize": "small", "frameon": False, "title": title, "title_fontsize": "small"}
    if ax.get_figure().get_layout_engine() is None:  # type: ignore[union-attr]
        legend = ax.legend(loc="best", ncols=columns or 1, **options | {"frameon": True})
        letters = int(ax.get_window_extent().width / ax.figure.dpi * LETTERS) - 6  # beside a line and its frame
        for text in (legend.get_title(), *legend.get_texts()):
            text.set_text("\n".join(wrap(text.get_text(), max(letters, 12))) or text.get_text())
        return
    if place == "beside":
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=columns or 1, **options)
        return
    from matplotlib.transforms import ScaledTranslation

    _, names = ax.get_legend_handles_labels()
    columns = columns or (2 if max(map(len, names), default=0) <= NARROW else 1)
    figure = ax.get_figure()
    inches = 0.5  # room for the labels of the x axis
    down = ax.transAxes + ScaledTranslation(0, -inches, figure.dpi_scale_trans)  # type: ignore[union-attr]
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=down, ncols=columns, **options)


def default_title(ax: Axes, text: str) -> None:
    """Write a title above axes that have none."""
    ax.set_title(ax.get_title() or text, fontsize="medium", pad=TITLE_PAD)


def literal(text: str) -> str:
    """Write a text so that matplotlib draws it as it is; call it once for every name.

    Two ``$`` would enclose a formula, and a legend leaves out names that are empty or begin with ``_``.
    """
    escaped = text.replace("$", r"\$")
    return escaped if escaped and escaped[0] != "_" else f" {escaped}"


def display_names(labels: Sequence[str] | None, size: int) -> list[str]:
    """Return the names of classes or models as they are drawn, long ones cut; by default 0 to size - 1."""
    names = [str(index) for index in range(size)] if labels is None else [str(label) for label in labels]
    if len(names) != size:
        raise ValueError(f"labels must hold {size} names, got {len(names)}")
    return [literal(_cut(name)) for name in names]


def _cut(name: str) -> str:
    """Cut out the middle of a long name."""
    first = MAX_LETTERS - LAST_LETTERS - 1
    return name if len(name) <= MAX_LETTERS else f"{name[:first]}…{name[-LAST_LETTERS:]}"


def probability(value: float) -> str:
    """Return a probability as a text with enough digits to tell it from 0 and 1."""
    nearest = min(value, 1 - value)
    if nearest <= 0:
        return f"{value:.2f}"
    digits = max(2, 1 - math.floor(math.log10(nearest)))
    if digits <= 6:
        return f"{value:.{digits}f}"
    return f"{value:.1e}" if value < 0.5 else f"1 - {1 - value:.1e}"


def legend_texts(names: Sequence[str], *notes: Sequence[str]) -> list[str]:
    """Return the text of each entry of a legend: its name, as :func:`display_names` writes it, and notes behind it.

    >>> legend_texts(["cat", "dog"], ["AUC 0.9", "AUC 0.8"], ["threshold 0.20", ""])
    ['cat: AUC 0.9, threshold 0.20', 'dog: AUC 0.8']
    """
    texts = []
    for name, *some in zip(names, *notes, strict=True):
        text = ", ".join(filter(None, some))
        texts.append(f"{name}: {text}" if text and not name.isspace() else text or name)
    return texts


def bracketed(interval: Interval) -> list[str]:
    """Return each value as a text, with its bounds in brackets unless they are nan; a text is empty for nan.

    >>> import torch
    >>> bracketed(Interval(torch.tensor([0.8]), torch.tensor([0.7]), torch.tensor([0.9]), 0.95, "posterior"))
    ['0.800 [0.700, 0.900]']
    """
    rows = zip(*(part.reshape(-1).tolist() for part in (interval.estimate, interval.low, interval.high)), strict=True)
    texts = []
    for value, low, high in rows:
        bounds = "" if math.isnan(low) else f" [{low:.3f}, {high:.3f}]"
        texts.append("" if math.isnan(value) else f"{value:.3f}{bounds}")
    return texts


def interval_note(interval: Interval | None) -> str:
    """Return a text that explains error bars, such as ``95% interval``; empty if there are none."""
    return "" if interval is None or bool(interval.low.isnan().all()) else f"{100 * interval.level:g}% interval"


def brackets_note(interval: Interval | None) -> str:
    """Return a text that explains the brackets of :func:`bracketed`; empty if there are none."""
    note = interval_note(interval)
    return f"in brackets: {note}" if note else ""


def name_ticks(ax: Axes, axis: Literal["x", "y"], names: Sequence[str]) -> None:
    """Write names at an axis; if there are too many, write every second, third, ... of them."""
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
