"""Measures of a classifier over the multiple of a logit adjustment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.plots.style import LEGEND_ROW, add_legend, display_names, figure_and_axes, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@computed_on_cpu
def plot_adjustments(
    taus: Tensor, lines: Mapping[str, Tensor], ax: Axes | None = None, *, chosen: float | None = None
) -> tuple[Figure | None, Axes]:
    """Draw measures, name -> ``[T]``, over tau ``[T]``, and mark the chosen tau and the plain rule."""
    fig, ax = figure_and_axes(ax, (6.4, 4.4 + LEGEND_ROW * len(lines)))
    places = taus.tolist()
    for index, (name, values) in enumerate(zip(display_names(list(lines), len(lines)), lines.values(), strict=True)):
        heights = values.detach().cpu().double().tolist()
        ax.plot(places, heights, label=name, **line_style(index, len(places)))
        if chosen is not None:
            look = line_style(index, 1) | {"linestyle": "None", "markersize": 8, "clip_on": False}
            ax.plot([chosen], [heights[places.index(chosen)]], **look)
    ax.axvline(0.0, color="0.4", linestyle="dotted", linewidth=1, label="plain rule")
    if chosen is not None:
        ax.axvline(chosen, color="0.2", linestyle="dashed", linewidth=1, label=f"chosen tau {chosen:g}")
    ax.set(xlabel="tau, multiple of the log class shares of training", ylabel="Value")
    add_legend(ax, "below")
    return fig, ax
