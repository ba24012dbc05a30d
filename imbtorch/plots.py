"""Pictures of values and counts; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from imbtorch.confusion import normalized, square

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_confusion_matrix", "plot_values"]

MAX_WRITTEN = 20  # classes up to which each cell has room for its numbers
MAX_NAMED = 40  # classes up to which each has its name at the axis


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
    fig, ax = _axes(ax)
    if isinstance(val, Tensor):
        values = val.detach().cpu().double()
        names = list(labels) if labels is not None else [str(index) for index in range(values.numel())]
        if values.ndim == 0:
            ax.plot([0], [values.item()], marker="o", markersize=10, linestyle="None")
            ax.annotate(f"{values.item():.4g}", (0, values.item()), (10, 0), textcoords="offset points", va="center")
            ax.set_xticks([])
        else:
            ax.bar(range(len(names)), values.nan_to_num(0.0).tolist(), color="0.45")
            for index in values.isnan().nonzero().flatten().tolist():
                ax.annotate("none", (index, 0), ha="center", va="bottom", rotation=90, color="0.3")
            _name_ticks(ax, "x", names)
            ax.set_xlabel(item)
    else:
        steps = torch.stack([torch.as_tensor(each).detach().cpu().double() for each in val])
        lines = steps.reshape(len(steps), -1).T
        names = list(labels) if labels is not None else [f"{item} {index}" for index in range(len(lines))]
        for index, line in enumerate(lines):
            style = ("-", "--", ":", "-.")[index // 10 % 4]
            ax.plot(range(len(line)), line.tolist(), marker=".", linestyle=style, label=names[index])
        if len(lines) > 1:
            ax.legend(fontsize="small", ncols=1 + len(lines) // 12)
        ax.set_xlabel("Step")
    for bound in bounds:
        if bound is not None:
            ax.axhline(bound, linestyle="dashed", color="black", linewidth=0.8)
    ax.set_ylabel(name)
    ax.grid(visible=True, axis="y", alpha=0.3)
    return fig, ax


def plot_confusion_matrix(
    counts: Tensor,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    normalize: Literal["true", "pred", "all"] = "true",
) -> tuple[Figure | None, Axes]:
    """Draw a confusion matrix: grey by rate, and up to 20 classes the count and the rate in each cell.

    Args:
        counts: ``[K, K]``, rows true, columns predicted.
        ax: axes to draw into; by default those of a new figure, whose size follows the number of classes.
        labels: K class names; by default 0 to K-1. Beyond 40 classes only some are written.
        normalize: what the rates are shares of: the true class, the predicted class, or all samples.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not one square matrix, or names that do not fit it.
    """
    if square(counts).ndim != 2:
        raise ValueError(f"one matrix [K, K] can be drawn, got shape {list(counts.shape)}; choose one of them")
    size = counts.shape[-1]
    names = list(labels) if labels is not None else [str(index) for index in range(size)]
    if len(names) != size:
        raise ValueError(f"labels must hold {size} names, got {len(names)}")
    fig, ax = _axes(ax, side=min(max(4.0, 0.62 * size if size <= MAX_WRITTEN else 0.2 * size), 14.0))
    rates = normalized(counts.detach().cpu(), normalize).double()
    ax.imshow(rates.tolist(), cmap="Greys", vmin=0.0, vmax=1.0 if normalize != "all" else None)
    if size <= MAX_WRITTEN:
        font = 10 if size <= 6 else 7 if size <= 12 else 5
        for row, (count_row, rate_row) in enumerate(zip(counts.tolist(), rates.tolist(), strict=True)):
            for column, (count, rate) in enumerate(zip(count_row, rate_row, strict=True)):
                if count:
                    dark = rate / max(1.0 if normalize != "all" else float(rates.max()), 1e-12) > 0.5
                    text = f"{count:g}\n{rate:.0%}" if isinstance(count, float) else f"{count}\n{rate:.0%}"
                    ax.text(
                        column, row, text, ha="center", va="center", fontsize=font, color="white" if dark else "black"
                    )
    _name_ticks(ax, "x", names)
    _name_ticks(ax, "y", names)
    ax.set_xlabel("Predicted class")
    ax.set_ylabel("True class")
    return fig, ax


def _axes(ax: Axes | None, side: float | None = None) -> tuple[Figure | None, Axes]:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ModuleNotFoundError("pictures need matplotlib: pip install 'imbtorch[plot]'") from error
    if ax is not None:
        return None, ax
    fig, made = pyplot.subplots(figsize=(side, side) if side else None, layout="constrained")
    return fig, made


def _name_ticks(ax: Axes, axis: Literal["x", "y"], names: Sequence[str]) -> None:
    """Write the names of classes at an axis, every n-th where there are too many."""
    stride = 1 + (len(names) - 1) // MAX_NAMED
    places = range(0, len(names), stride)
    shown = [names[place] for place in places]
    if axis == "y":
        ax.set_yticks(places, shown)
    else:
        long = max(map(len, shown)) > (4 if len(shown) <= 12 else 1)
        ax.set_xticks(places, shown, rotation=90 if long else 0)
