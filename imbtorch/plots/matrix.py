"""Confusion matrix as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import check_square, normalized
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import display_names, figure_and_axes, interval_note, name_ticks
from imbtorch.plots.values import draw_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_WRITTEN = 20  # most classes for which each cell has room for its numbers
LEAST_FONT = 4.0  # points of the smallest readable numbers
SHARE = {"true": "the true class", "pred": "the predicted class", "all": "all samples"}


@computed_on_cpu
def plot_confusion_matrix(
    counts: Tensor,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    normalize: Literal["true", "pred", "all"] = "true",
    recalls: Tensor | Interval | None = None,
) -> tuple[Figure | None, Axes]:
    """Draw a confusion matrix: darker grey for higher rates, with count and rate in each cell if there is room.

    Beyond 20 classes, or in axes too small for numbers, a colour bar shows the rates, and greys follow their square
    root, so that a confusion of one in a hundred is visible.

    Args:
        counts: ``[K, K]``, rows true, columns predicted.
        ax: axes to draw into; by default the axes of a new figure, with a size that follows the number of classes.
        labels: K class names; by default 0 to K-1. Names are cut to 30 letters; beyond 40 classes only some are
            written.
        normalize: whole that the rates are shares of: ``"true"`` class, ``"pred"`` (predicted class) or ``"all"``
            samples.
        recalls: recall of each class, ``[K]``, drawn beside the rows as points; with an interval, error bars are drawn
            where its bounds are not nan.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not one square matrix, and for a wrong number of names.

    >>> import torch
    >>> figure, axes = plot_confusion_matrix(torch.tensor([[8, 2], [1, 1]]), labels=["dog", "cat"])
    >>> axes.get_title(), axes.texts[0].get_text().split()
    ('Count and share of the true class', ['8', '80%'])
    """
    if check_square(counts).ndim != 2:
        raise ValueError(f"counts must be one matrix [K, K], got shape {list(counts.shape)}; choose one of them")
    size = counts.shape[-1]
    names = display_names(labels, size)
    rates = normalized(counts.detach().cpu(), normalize).double()
    side = min(max(3.6, 0.6 * size if size <= MAX_WRITTEN else 0.2 * size), 14.0)
    named = 0.08 * max(map(len, names), default=0) + 0.6
    strip = 1.2 if recalls is not None else 0.1  # inches for the recalls, or for a gap
    fig, ax = figure_and_axes(ax, (side + named + strip + (size > MAX_WRITTEN), side + named))
    if recalls is not None:
        _make_room(ax, strip)
    top = 1.0 if normalize != "all" else max(rates.max().item(), 1e-12)
    texts = _cell_texts(counts)
    box = ax.get_window_extent().transformed(ax.get_figure().dpi_scale_trans.inverted())  # type: ignore[union-attr]
    cell = 72 * (side if fig else min(box.width, box.height)) / size  # points
    font = min(10.0, cell / 3, cell / (0.68 * max(map(len, texts.values()), default=1)))
    if size <= MAX_WRITTEN and font >= LEAST_FONT:
        ax.imshow(rates.tolist(), cmap="Greys", vmin=0.0, vmax=top)
        for (row, column), text in texts.items():
            rate = rates[row, column].item()
            color = "white" if rate > 0.5 * top else "black"
            ax.text(column, row, f"{text}\n{_percent(rate)}", ha="center", va="center", fontsize=font, color=color)
        ax.set_title(f"Count and share of {SHARE[normalize]}", fontsize="small")
    else:
        _draw_with_bar(ax, rates, top, normalize, _axes_beside(ax, strip, 0.2))
    name_ticks(ax, "x", names)
    name_ticks(ax, "y", names)
    ax.set_xlabel("Predicted class")
    ax.set_ylabel("True class")
    if recalls is not None:
        _draw_recalls(ax, recalls)
    return fig, ax


def _draw_recalls(ax: Axes, recalls: Tensor | Interval) -> None:
    """Draw the recall of each class, with its interval if there is one, to the right of its row."""
    beside, label = _axes_beside(ax, 0.1, 0.95), "Recall"
    beside.set_ylim(ax.get_ylim())
    if isinstance(recalls, Interval):
        draw_interval(beside, recalls, sideways=True)
        label, recalls = "\n".join(("Recall", interval_note(recalls))).strip(), recalls.estimate
    values = recalls.detach().cpu().tolist()
    beside.plot(values, range(len(values)), marker="o", markersize=4, color="black", linestyle="")
    beside.set_xlim(-0.02, 1.02)
    beside.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    beside.tick_params(labelleft=False, left=False)
    beside.set_xlabel(label)
    beside.grid(visible=True, axis="x", alpha=0.3)


def _cell_texts(counts: Tensor) -> dict[tuple[int, int], str]:
    """Return the count of each non-empty cell as a text."""
    return {
        (row, column): f"{count:g}" if isinstance(count, float) else str(count)
        for row, line in enumerate(counts.tolist())
        for column, count in enumerate(line)
        if count
    }


def _percent(rate: float) -> str:
    """Return a rate in percent, which is neither 0 nor all of it unless it is exactly."""
    return "<1%" if 0 < rate < 0.005 else ">99%" if 0.995 <= rate < 1 else f"{rate:.0%}"


def _make_room(ax: Axes, inches: float) -> None:
    """Make axes narrower, for others to their right, unless a layout engine does it."""
    figure: Any = ax.get_figure()
    if figure.get_layout_engine() is None:
        place = ax.get_position()
        width = place.width - inches * figure.dpi / figure.bbox.width
        ax.set_position((place.x0, place.y0, max(width, place.width / 3), place.height))


def _axes_beside(ax: Axes, left: float, width: float) -> Axes:
    """Make axes of the same height to the right of others; in inches, so that the layout knows their room."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    figure: Any = ax.get_figure()
    area: Any = ax.transAxes
    inches = figure.dpi_scale_trans + ScaledTranslation(1, 0, area)
    return ax.inset_axes((left, 0.0, width, 1.0), transform=blended_transform_factory(inches, area))


def _draw_with_bar(
    ax: Axes, rates: Tensor, top: float, normalize: Literal["true", "pred", "all"], beside: Axes
) -> None:
    """Draw rates from 0 to ``top`` as greys, with a colour bar in the axes beside them."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    _make_room(ax, 0.9)
    image = ax.imshow(rates.tolist(), cmap="Greys", norm=PowerNorm(0.5, 0.0, top))
    bar = ax.get_figure().colorbar(image, cax=beside)  # type: ignore[union-attr]
    bar.set_ticks([tick for tick in (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1) if tick <= top])
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    bar.set_label(f"Share of {SHARE[normalize]}")
