"""Values of models over seeds or folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import COLORS, add_legend, display_names, interval_note, literal, name_ticks
from imbtorch.plots.values import draw_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 0.25  # of the points of a model on either side of its mean
BESIDE = 3  # most panels in a row


@computed_on_cpu
def plot_runs(
    panels: Mapping[str, tuple[Mapping[str, Tensor], Mapping[str, Interval]]],
    ax: Axes | None = None,
    item: str = "seed",
) -> tuple[Figure | None, list[Axes]]:
    """Draw a panel for each measure: in a row for each model the values of its runs, and their mean with its interval.

    Args:
        panels: name of a measure -> for each model the values of its runs ``[S]``, and their mean.
        ax: axes to draw the only panel into; by default a new figure.
        item: kind of run, such as ``"seed"``, for the legend.

    Returns:
        The new figure (None if axes were given) and the axes of each panel.

    >>> mean = torch.tensor(0.75)
    >>> means = {"net": Interval(mean, mean - 0.2, mean + 0.2, 0.95, "")}
    >>> figure, (axes,) = plot_runs({"iam": ({"net": torch.tensor([0.5, 1.0])}, means)})
    >>> axes.lines[0].get_xdata().tolist(), axes.get_xlabel()
    ([0.5, 1.0], 'iam')
    """
    if ax is not None:
        ((measure, (values, means)),) = panels.items()
        _draw(ax, measure, values, means, item)
        add_legend(ax, "below", columns=2)
        return None, [ax]
    from matplotlib.figure import Figure

    across, rows, models = min(len(panels), BESIDE), -(-len(panels) // BESIDE), len(next(iter(panels.values()))[0])
    figure = Figure(figsize=(2.2 + 3.6 * across, 0.5 + rows * (1.0 + 0.4 * models)), layout="constrained")
    axes: list[Axes] = list(figure.subplots(rows, across, sharey=True, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for own, (measure, (values, means)) in zip(axes, panels.items(), strict=False):
        _draw(own, measure, values, means, item)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure, axes[: len(panels)]


def _draw(ax: Axes, measure: str, values: Mapping[str, Tensor], means: Mapping[str, Interval], item: str) -> None:
    """Draw a panel, the first model at the top."""
    label: str | None = item
    for place, each in enumerate(values.values()):
        beside = place + torch.linspace(-WIDTH, WIDTH, len(each) + 2)[1:-1]
        ax.plot(each, beside, "o", color=COLORS[1], markersize=5, markerfacecolor="None", label=label)
        label = None
    found = list(means.values())
    center, low, high = (torch.stack([getattr(one, end) for one in found]) for end in ("estimate", "low", "high"))
    mean = Interval(center, low, high, found[0].level, "")
    label = " with its ".join(filter(None, ("mean", interval_note(mean))))
    ax.plot(center, range(len(found)), "D", color="black", markersize=6, label=label)
    draw_interval(ax, mean, sideways=True)
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.locator_params(axis="x", nbins=6)
    name_ticks(ax, "y", display_names(list(values), len(values)))
    ax.set_xlabel(literal(measure))
    ax.grid(visible=True, axis="x", alpha=0.3)
