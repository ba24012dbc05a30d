"""The skew ratio at every result of a test set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from imbtorch.counts import check_choice
from imbtorch.plots.style import figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = ["plot_skew_map"]


def plot_skew_map(
    ratios: Tensor, ax: Axes | None = None, *, kind: Literal["log", "linear", "indicator"] = "log", limit: float = 16.0
) -> tuple[Figure | None, Axes]:
    """Draw the skew ratio at every possible result of a test set.

    Args:
        ratios: ``[P + 1, N + 1]`` of :func:`~imbtorch.analysis.skew_map`: rows true positives, columns true negatives.
        ax: axes to draw into; by default those of a new figure.
        kind: ``"log"``: bright where a right positive counts more, dark where a right negative does, with lines at the
            powers of two (dashed below 1); ``"linear"``: the same without the logarithm, as the paper draws macro
            precision, with a line at 1; ``"indicator"``: white where the ratio exceeds 1, dark elsewhere, with the
            share of white in the title. Results without a ratio are hatched.
        limit: ratio from which on, and for ``"log"`` its inverse up to which, no more difference is shown.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for anything but one map, a kind that is none, or a limit of 1 or less.

    Source: Liu, Ghosh and Martin (2007), Figures 1 and 2.
    """
    check_choice("kind", kind, ("log", "linear", "indicator"))
    if ratios.ndim != 2:
        raise ValueError(f"one map [P + 1, N + 1] can be drawn, got shape {list(ratios.shape)}; choose one of them")
    if not limit > 1:
        raise ValueError(f"limit must be a ratio above 1, got {limit!r}")
    fig, ax = figure_and_axes(ax)
    from matplotlib.colors import LinearSegmentedColormap

    ax.patch.set(hatch="xxxx", edgecolor="0.6")  # seen through the results that have no ratio
    grey = LinearSegmentedColormap.from_list("grey", ["0.4", "1.0"])
    values = ratios.detach().cpu().double()
    if kind == "indicator":
        above = torch.where(values.isnan(), torch.nan, (values > 1).double())
        _draw_map(ax, above, grey, 0.0, 1.0)
        ax.set_title(f"skew ratio > 1 (white): {above.nanmean():.0%}", fontsize="medium")
    elif kind == "linear":
        _draw_linear(ax, values, grey, limit)
    else:
        _draw_logarithm(ax, values, grey, math.log2(limit))
    ax.set_xlabel("True negatives")
    ax.set_ylabel("True positives")
    return fig, ax


def _draw_map(ax: Axes, values: Tensor, colors: Colormap, low: float, high: float) -> Any:
    """Draw ``[P + 1, N + 1]`` values as areas of brightness."""
    frame = (-0.5, values.shape[1] - 0.5, -0.5, values.shape[0] - 0.5)
    options: dict[str, Any] = {"origin": "lower", "aspect": "auto", "extent": frame, "interpolation": "nearest"}
    return ax.imshow(values.tolist(), cmap=colors, vmin=low, vmax=high, **options)


def _draw_linear(ax: Axes, ratios: Tensor, colors: Colormap, limit: float) -> None:
    """Draw ratios as they are, up to a limit, with a line at 1."""
    shown = ratios.clamp(max=limit)
    picture = _draw_map(ax, shown, colors, 0.0, limit)
    bar = ax.get_figure().colorbar(picture, ax=ax, extend="max" if bool((ratios > limit).any()) else "neither")  # type: ignore[union-attr]
    bar.set_label("Skew ratio")
    finite = shown[~shown.isnan()]
    if len(finite) and finite.min() < 1 < finite.max():
        drawn = ax.contour(shown.tolist(), levels=[1.0], colors="black", linewidths=2.0)
        ax.clabel(drawn, fmt={1.0: "1"}, fontsize=8)


def _draw_logarithm(ax: Axes, ratios: Tensor, colors: Colormap, top: float) -> None:
    """Draw ratios by their logarithm to base 2, up to ``top`` either way, with lines at the powers of two."""
    logs = ratios.log2().clamp(-top, top)
    ticks = list(range(-math.floor(top), math.floor(top) + 1))
    bar = ax.get_figure().colorbar(_draw_map(ax, logs, colors, -top, top), ax=ax)  # type: ignore[union-attr]
    bar.set_ticks(ticks, labels=[_power(tick) for tick in ticks])
    bar.set_label("Skew ratio")
    finite = logs[~logs.isnan()]
    if not len(finite):
        return
    low, high = finite.min().item(), finite.max().item()
    lines = [tick for tick in ticks if low < tick < high]
    if lines:
        widths = [2.0 if line == 0 else 0.8 for line in lines]
        styles = ["dashed" if line < 0 else "solid" for line in lines]
        drawn = ax.contour(logs.tolist(), levels=lines, colors="black", linewidths=widths, linestyles=styles)
        places = [max(parts, key=len)[len(max(parts, key=len)) // 4] for parts in drawn.allsegs if parts]
        ax.clabel(drawn, fmt={line: _power(line) for line in lines}, fontsize=8, manual=places)  # off the frame
    elif high - low < 1e-9:
        ax.text(0.5, 0.5, f"{2**low:.3g} everywhere", ha="center", va="center", transform=ax.transAxes)


def _power(exponent: int) -> str:
    """Power of two as it is written at a line."""
    return f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"
