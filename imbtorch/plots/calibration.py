"""Reliability diagram: the share of positives over the score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from imbtorch.plots.style import COLORS, figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM = 0.5  # log-odds beside the outermost points


def plot_calibration(
    score: Tensor,
    share: Tensor,
    above: Tensor,
    number: Tensor,
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    scale: Literal["logit", "linear"] = "logit",
) -> tuple[Figure | None, Axes]:
    """Draw the share of positives over the mean score of D bins, in log-odds or from 0 to 1.

    A share of 0 or 1 is an open mark, in log-odds at the edge. Without axes, a histogram of the samples stands below.

    Args:
        score: ``[D]`` mean scores.
        share: ``[3, D]`` shares of positives, their lower and their upper bounds, which may be nan.
        above: ``[D]`` lower edges of the bins.
        number: ``[D]`` number of samples in each bin.
        ax: axes to draw into; by default those of a new figure.
        level: nominal coverage of the intervals.
        scale: ``"logit"`` or ``"linear"``.
    """
    known = torch.cat((score, *share))
    known = torch.cat((known[(known > 0) & (known < 1)], known.new_tensor([0.5]))).logit()
    low, high = (known.amin() - ROOM).sigmoid().item(), (known.amax() + ROOM).sigmoid().item()
    low, high = (low, high) if scale == "logit" else (0.0, 1.0)
    shares, lower, upper = share.clamp(low, high)
    places = score.clamp(low, high)
    figure, ax = figure_and_axes(ax, (5.2, 5.6))
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="Score", ylabel="Share of positives")
    ax.set(xscale=scale, yscale=scale)
    ax.plot([low, high], [low, high], color="0.4", linestyle="dotted", linewidth=1, label="calibrated")
    ends = torch.stack((shares - lower, upper - shares)).clamp(min=0).nan_to_num()
    look: dict[str, Any] = {"color": COLORS[1], "linestyle": "None", "marker": "o", "capsize": 3, "clip_on": False}
    text = "" if bool(lower.isnan().all()) else f" ({100 * level:g}% interval)"
    within = (share[0] > 0) & (share[0] < 1)
    for chosen, label, face in ((within, f"share of positives{text}", None), (~within, "share of 0 or 1", "w")):
        if bool(chosen.any()):
            part = places[chosen].numpy(), shares[chosen].numpy(), ends[:, chosen].numpy()
            ax.errorbar(*part, label=label, markerfacecolor=face, **look)
    for axis in (ax.xaxis, ax.yaxis) if scale == "logit" else ():
        axis.set_minor_formatter("")
    ax.legend(loc="upper left", fontsize="small", frameon=False)
    if figure is None:
        return None, ax
    grid = figure.add_gridspec(2, 1, height_ratios=(5, 1))
    ax.set_subplotspec(grid[0])
    beneath = figure.add_subplot(grid[1], sharex=ax)
    edges = torch.cat((above, above.new_tensor([1.0]))).clamp(low, high)
    beneath.bar(
        edges[:-1].numpy(),
        number.numpy(),
        edges.diff().numpy(),
        align="edge",
        color="0.75",
        edgecolor="0.4",
        linewidth=0.5,
    )
    beneath.set(yscale="log", xlabel="Score", ylabel="Samples")
    beneath.yaxis.set_minor_formatter("")
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False)
    return figure, ax
