"""What all pictures share: axes, colours, dashes, markers and the way names are written.

Lines differ in dashes and marker, areas in brightness and hatching, so that a picture can be read in black and white.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLORS",
    "LINES",
    "MARKERS",
    "MAX_NAMED",
    "TRIVIAL",
    "display_names",
    "explain_trivial",
    "figure_and_axes",
    "figure_of_panels",
    "line_style",
    "literal",
    "name_ticks",
    "probability",
]

MAX_NAMED = 40  # classes up to which each has its name at the axis
MAX_LETTERS = 30  # of a name; what lies between its first and last ones is cut out
LAST_LETTERS = 10  # which tell apart what is numbered
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito
LINES = ("-", "--", ":", "-.")
TRIVIAL: dict[str, Any] = {"linestyle": ":", "linewidth": 1}  # lines of predictions that look at nothing
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")


def figure_of_panels(number: int) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure with panels beside each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.7 * number, 4.6), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False).flat)


def figure_and_axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> tuple[Figure | None, Axes]:
    """Return the axes that were given, or those of a new figure of a size in inches.

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
    """Look of a line of so many points; colour, dashes, marker and its places all differ between neighbours."""
    every = max(1, points // 10)
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 5,
        "markevery": (index % every, every),
    }


def explain_trivial(ax: Axes) -> None:
    """Name all dotted lines of trivial predictions by one entry of the legend."""
    ax.plot([], [], color="0.4", label="trivial prediction", **TRIVIAL)


def literal(text: str) -> str:
    """Write a text so that matplotlib draws it letter by letter; every name passes through here once.

    Two ``$`` would begin a formula, which raises where it cannot be parsed, and a legend leaves out what begins with
    ``_`` or is empty.
    """
    escaped = text.replace("$", r"\$")
    return escaped if escaped and escaped[0] != "_" else f" {escaped}"


def display_names(labels: Sequence[str] | None, size: int) -> list[str]:
    """Names of classes or models as they are drawn, cut to a length that leaves room for the picture.

    Raises:
        ValueError: unless there are as many as ``size``; without labels they are 0 to size - 1.
    """
    names = [str(index) for index in range(size)] if labels is None else [str(label) for label in labels]
    if len(names) != size:
        raise ValueError(f"labels must hold {size} names, got {len(names)}")
    return [literal(_cut(name)) for name in names]


def _cut(name: str) -> str:
    """A name without its middle, if it is long."""
    first = MAX_LETTERS - LAST_LETTERS - 1
    return name if len(name) <= MAX_LETTERS else f"{name[:first]}…{name[-LAST_LETTERS:]}"


def probability(value: float) -> str:
    """Return a probability with enough digits to tell it from 0 and 1."""
    nearest = min(value, 1 - value)
    if nearest <= 0:
        return f"{value:.2f}"
    digits = max(2, 1 - math.floor(math.log10(nearest)))
    if digits <= 6:
        return f"{value:.{digits}f}"
    return f"{value:.1e}" if value < 0.5 else f"1 - {1 - value:.1e}"


def name_ticks(ax: Axes, axis: Literal["x", "y"], names: Sequence[str]) -> None:
    """Write names at an axis, every n-th where there are too many."""
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
