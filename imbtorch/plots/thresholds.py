"""Measure of a classifier over its thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import (
    LEGEND_ROW,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR_AN_END = 0.2  # share of the axis at each end where a text centred on its point would leave the axes


@computed_on_cpu
def plot_sweep(
    thresholds: Tensor,
    values: Tensor,
    ax: Axes | None = None,
    *,
    chosen: Tensor | None = None,
    corrected: Interval | None = None,
    labels: Sequence[str] | None = None,
    name: str = "value",
    scale: Literal["linear", "logit"] = "linear",
    within: str = "",
    higher_is_better: bool = True,
) -> tuple[Figure | None, Axes]:
    """Draw a measure over the thresholds, and mark the chosen threshold of each line and the threshold 0.5.

    A line jumps where a threshold passes the score of a sample; the fewer samples, the larger its steps. The chosen
    threshold of a single line is written above its mark. Those of several lines would overlap there, and stand in the
    legend. Beside a chosen value that is not the best one of its line stands that one.

    Args:
        thresholds: ``[T]`` in [0, 1].
        values: ``[T]``, or ``[L, T]`` for several labels or classes; a nan leaves a gap in the line.
        ax: axes to draw into; by default the axes of a new figure.
        chosen: ``[2]`` or ``[L, 2]``, the threshold to mark on each line and the value there; by default no mark.
        corrected: values ``[]`` or ``[L]`` corrected for the choice of the threshold, with their intervals, which the
            legend shows beside the values at the marks; nan for none.
        labels: L names; by default 0 to L-1. A single line is not named.
        name: label of the y axis.
        scale: scale of the x axis: ``"logit"`` for thresholds that crowd near 0 or 1, as for rare events. It shows 0.5
            and the thresholds at which values change; a chosen one beyond them is marked at the end of the axis.
        within: text of the limits or costs by which the threshold was chosen, such as ``"with recall >= 0.9"``.
        higher_is_better: direction of the measure.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for values or chosen points of a wrong shape, and for a wrong number of names.

    >>> values = torch.tensor([0.3, 0.7, 0.5])
    >>> figure, axes = plot_sweep(torch.tensor([0.2, 0.4, 0.6]), values, chosen=torch.tensor([0.6, 0.5]), name="F1")
    >>> [text.get_text() for text in axes.texts]
    ['chosen 0.500 at 0.60, highest 0.700']
    """
    lines = _checked_lines(thresholds, values, chosen)
    names = display_names(labels, len(lines))
    fig, ax = figure_and_axes(ax, (6.4, 4.6 + LEGEND_ROW * len(lines)))
    ax.set(xlabel="Threshold", ylabel=literal(name), xlim=(0, 1))
    if scale == "logit":
        ax.set_xscale("logit")
        ax.tick_params(axis="x", which="minor", labelsize=6)  # 0.2, 0.3 and 0.4 would run into one another
        ax.set_xlim(_span(thresholds, lines))
    points = [] if chosen is None else chosen.detach().cpu().double().reshape(-1, 2).tolist()
    at_marks = _at_marks(points, lines, higher_is_better)
    notes = [] if corrected is None else [f"corrected {text}" if text else "" for text in bracketed(corrected)]
    single = len(lines) == 1
    texts = [None] if single else legend_texts(names, *filter(None, (at_marks, notes)))
    for index, (line, text) in enumerate(zip(lines, texts, strict=True)):
        look = line_style(index, len(line)) | {"markevery": []}  # the legend alone shows the marker of the chosen point
        look["marker"] = None if single or not points else look["marker"]
        ax.plot(thresholds.tolist(), line.tolist(), label=text, **look)
    low, high = ax.get_xlim()
    for index, (threshold, value) in enumerate(points):
        place = min(max(threshold, low), high)  # a logit axis ends before 0 and 1
        look = line_style(index, 1) | {"linestyle": "None", "markersize": 6, "clip_on": False}
        both = f"{value:.3f} on these samples, {notes[0]}" if single and any(notes) else None
        ax.plot([place], [value], label=both, **look)
        if single:
            _write(ax, at_marks[0], place, lines.nan_to_num(nan=value).max().item())  # above the line, not on it
    ax.axvline(0.5, color="0.4", linestyle="dotted", linewidth=1, label="threshold 0.5")
    ax.margins(y=0.12)  # room for the text above the chosen point
    default_title(ax, literal(f"{name} at each threshold"))
    title = f"chosen {literal(within)}\n" if within else ""
    title += "corrected: for the choice of the threshold\n" if any(notes) else ""
    add_legend(ax, "below", title=(title + brackets_note(corrected)).rstrip("\n"))
    return fig, ax


def _at_marks(points: Sequence[Sequence[float]], lines: Tensor, higher_is_better: bool) -> list[str]:
    """Write the chosen value of each line with its threshold, and the best value of the line if it is another one."""
    sign, word = (1, "highest") if higher_is_better else (-1, "lowest")
    ends = (sign * (sign * lines).nan_to_num(nan=-torch.inf).amax(-1)).tolist()
    texts = []
    for (threshold, value), end in zip(points, ends, strict=False):
        beside = f", {word} {end:.3f}" if f"{end:.3f}" != f"{value:.3f}" and math.isfinite(end) else ""
        texts.append(f"chosen {value:.3f} at {probability(threshold)}{beside}")
    return texts


def _write(ax: Axes, text: str, x: float, y: float) -> None:
    """Write a text above a point, within the axes."""
    across = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))[0]
    side, aside = ("left", 5) if across < NEAR_AN_END else ("right", -5) if across > 1 - NEAR_AN_END else ("center", 0)
    ax.annotate(text, (x, y), (aside, 7), textcoords="offset points", ha=side)


def _span(thresholds: Tensor, lines: Tensor) -> tuple[float, float]:
    """Return the ends of a logit axis around 0.5 and the thresholds at which a value changes."""
    known = lines.nan_to_num(nan=-1.0)
    changes = torch.zeros(len(thresholds), dtype=torch.bool)
    changes[1:] = (known.diff(dim=-1) != 0).any(0)
    changes[:-1] |= changes[1:].clone()
    shown = torch.tensor([0.3, 0.7, *thresholds[changes].tolist()], dtype=torch.float64)
    shown = shown[(shown > 0) & (shown < 1)].logit()
    low, high = shown.amin().item(), shown.amax().item()
    room = 0.04 * (high - low)
    ends = torch.tensor([low - room, high + room], dtype=torch.float64).sigmoid().tolist()
    return ends[0], min(ends[1], 1 - 2.0**-53)


def _checked_lines(thresholds: Tensor, values: Tensor, chosen: Tensor | None) -> Tensor:
    """Check the shapes, and return the values as ``[L, T]``."""
    lines = values.detach().cpu().double()
    if thresholds.ndim != 1 or lines.ndim not in (1, 2) or lines.shape[-1:] != thresholds.shape:
        got = f"{list(thresholds.shape)} and {list(lines.shape)}"
        raise ValueError(f"thresholds must be [T] and values [T] or [L, T], got shapes {got}")
    if chosen is not None and chosen.shape != (*lines.shape[:-1], 2):
        raise ValueError(f"chosen must be {[*lines.shape[:-1], 2]}, threshold and value, got {list(chosen.shape)}")
    return lines.reshape(-1, len(thresholds))
