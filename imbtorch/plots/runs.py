"""Values of models over seeds or folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.intervals.intervals import Interval
from imbtorch.plots.style import COLORS, add_legend, display_names, figure_and_axes, interval_note, literal, name_ticks
from imbtorch.plots.values import draw_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 0.25  # of the points of a model on either side of its mean
BESIDE = 3  # most panels in a row


class Panel(NamedTuple):
    """Values of one measure.

    Attributes:
        values: name of a model -> value of each seed or fold, ``[S]``.
        means: mean of each model with its interval, ``[M]``; bounds that are nan are left out.
        measure: name of the measure.
    """

    values: Mapping[str, Tensor]
    means: Interval
    measure: str


def plot_runs(panel: Panel, ax: Axes | None = None, item: str = "seed") -> tuple[Figure | None, Axes]:
    """Draw the values of models as points, a row for each model, and its mean with the interval.

    Args:
        panel: values of one measure.
        ax: axes to draw into; by default the axes of a new figure.
        item: what a value is of, for the legend.

    Returns:
        The new figure (None if axes were given) and the axes.

    >>> mean = torch.tensor([0.75])
    >>> means = Interval(mean, mean - 0.2, mean + 0.2, 0.95, "")
    >>> figure, axes = plot_runs(Panel({"net": torch.tensor([0.5, 1.0])}, means, "iam"))
    >>> axes.lines[0].get_xdata().tolist(), axes.get_xlabel()
    ([0.5, 1.0], 'iam')
    """
    fig, ax = figure_and_axes(ax, (6.4, 1.7 + 0.4 * len(panel.values)))
    _draw(panel, ax, item)
    add_legend(ax, "below", columns=2)
    return fig, ax


def plot_runs_by_measure(panels: list[Panel], item: str = "seed") -> tuple[Figure, list[Axes]]:
    """Draw a panel for each measure, as :func:`plot_runs`; return the figure and the axes of the panels."""
    from matplotlib.figure import Figure

    across, rows = min(len(panels), BESIDE), -(-len(panels) // BESIDE)
    inches = 2.2 + 3.6 * across, 0.5 + rows * (1.0 + 0.4 * len(panels[0].values))
    figure = Figure(figsize=inches, layout="constrained")
    grid = figure.subplots(rows, across, sharey=True, squeeze=False)
    axes = list(grid.flat)
    for ax in axes[len(panels) :]:
        ax.remove()
    for panel, ax in zip(panels, axes, strict=False):
        _draw(panel, ax, item)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure, axes[: len(panels)]


@computed_on_cpu
def _draw(panel: Panel, ax: Axes, item: str) -> None:
    """Draw the values and means of a panel, the first model at the top."""
    names, means = display_names(list(panel.values), len(panel.values)), panel.means
    for place, (values, mean) in enumerate(zip(panel.values.values(), means.estimate.tolist(), strict=True)):
        beside = place + torch.linspace(-WIDTH, WIDTH, len(values) + 2, dtype=torch.float64)[1:-1]
        label = item if place == 0 else None
        ax.plot(values, beside, "o", color=COLORS[1], markersize=5, markerfacecolor="None", label=label)
        ax.plot([mean], [place], "D", color="black", markersize=6)
    draw_interval(ax, means, sideways=True)
    note = interval_note(means)
    ax.plot([], [], "D", color="black", markersize=6, label=f"mean with its {note}" if note else "mean")
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.locator_params(axis="x", nbins=6)
    name_ticks(ax, "y", names)
    ax.set_xlabel(literal(panel.measure))
    ax.grid(visible=True, axis="x", alpha=0.3)
