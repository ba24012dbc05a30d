"""Skew ratio at every possible result of a test set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import check_choice
from imbtorch.plots.style import figure_and_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


@computed_on_cpu
def plot_skew_map(
    ratios: Tensor, ax: Axes | None = None, *, kind: Literal["log", "linear", "indicator"] = "log", limit: float = 16.0
) -> tuple[Figure | None, Axes]:
    """Draw the skew ratio at every possible result of a test set.

    The ratio is the number of right negatives that one right positive is worth. Results with an undefined ratio are
    hatched.

    Args:
        ratios: ``[P + 1, N + 1]`` from :func:`~imbtorch.papers.skew_map`: rows true positives, columns true
            negatives.
        ax: axes to draw into; by default the axes of a new figure.
        kind: ``"log"``: bright where a right positive is worth more, dark where a right negative is, with lines at the
            powers of two (dashed below 1); ``"linear"``: the same without the logarithm, as in the paper for macro
            precision, with a line at 1; ``"indicator"``: white where the ratio exceeds 1, dark elsewhere, with the
            share of white in the title.
        limit: largest ratio that is distinguished; larger ones look the same. For ``"log"``, so do ratios below its
            inverse.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for more than one map, an unknown kind, or a limit of 1 or less.

    Source: Liu, Ghosh and Martin (2007), Figures 1 and 2.

    >>> import imbtorch
    >>> from imbtorch.papers import skew_map
    >>> figure, axes = plot_skew_map(skew_map(imbtorch.accuracy, 5, 8))
    >>> [text.get_text() for text in axes.texts]
    ['1 everywhere']
    """
    check_choice("kind", kind, ("log", "linear", "indicator"))
    if ratios.ndim != 2:
        raise ValueError(f"ratios must be one map [P + 1, N + 1], got shape {list(ratios.shape)}; choose one of them")
    if not limit > 1:
        raise ValueError(f"limit must be a ratio above 1, got {limit!r}")
    fig, ax = figure_and_axes(ax)
    from matplotlib.colors import LinearSegmentedColormap

    ax.patch.set(hatch="xxxx", edgecolor="0.6")  # visible where the ratio is undefined
    grey = LinearSegmentedColormap.from_list("grey", ["0.4", "1.0"])
    values = ratios.detach().cpu().double()
    if kind == "indicator":
        above = torch.where(values.isnan(), torch.nan, (values > 1).double())
        _draw_map(ax, above, grey, 0.0, 1.0)
        undefined = ", undefined: hatched" * bool(values.isnan().any())
        ax.set_title(f"skew ratio > 1 (white): {above.nanmean():.0%}{undefined}", fontsize="medium")
    elif kind == "linear":
        _draw_linear(ax, values, grey, limit)
    else:
        _draw_logarithm(ax, values, grey, math.log2(limit))
    ax.set_xlabel("True negatives")
    ax.set_ylabel("True positives")
    return fig, ax


def _draw_map(ax: Axes, values: Tensor, colors: Colormap, low: float, high: float) -> Any:
    """Draw ``[P + 1, N + 1]`` values as brightness."""
    frame = (-0.5, values.shape[1] - 0.5, -0.5, values.shape[0] - 0.5)
    options: dict[str, Any] = {"origin": "lower", "aspect": "auto", "extent": frame, "interpolation": "nearest"}
    return ax.imshow(values.tolist(), cmap=colors, vmin=low, vmax=high, **options)


def _draw_linear(ax: Axes, ratios: Tensor, colors: Colormap, limit: float) -> None:
    """Draw ratios up to a limit on a linear scale, with a line at 1."""
    shown = ratios.clamp(max=limit)
    picture = _draw_map(ax, shown, colors, 0.0, limit)
    bar = ax.get_figure().colorbar(picture, ax=ax, extend="max" if bool((ratios > limit).any()) else "neither")  # type: ignore[union-attr]
    bar.set_label(_label_of_bar(ratios))
    finite = shown[~shown.isnan()]
    if len(finite) and finite.min() < 1 < finite.max():
        drawn = ax.contour(shown.tolist(), levels=[1.0], colors="black", linewidths=2.0)
        ax.clabel(drawn, fmt={1.0: "1"}, fontsize=8)


def _draw_logarithm(ax: Axes, ratios: Tensor, colors: Colormap, top: float) -> None:
    """Draw the logarithms of ratios to base 2, from -top to top, with lines at the powers of two."""
    logs = ratios.log2().clamp(-top, top)
    cut = (bool((ratios.log2() < -top).any()), bool((ratios.log2() > top).any()))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[cut]
    ticks = list(range(-math.floor(top), math.floor(top) + 1))
    bar = ax.get_figure().colorbar(_draw_map(ax, logs, colors, -top, top), ax=ax, extend=extend)  # type: ignore[union-attr]
    bar.set_ticks(ticks, labels=[_power(tick) for tick in ticks])
    bar.set_label(_label_of_bar(ratios))
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
        ax.clabel(drawn, fmt={line: _power(line) for line in lines}, fontsize=8, manual=places)  # away from the frame
    elif high - low < 1e-9:
        ax.text(0.5, 0.5, f"{2**low:.3g} everywhere", ha="center", va="center", transform=ax.transAxes)


def _label_of_bar(ratios: Tensor) -> str:
    """Return the label of the colour bar."""
    return "Skew ratio" + " (hatched: undefined)" * bool(ratios.isnan().any())


def _power(exponent: int) -> str:
    """Return a power of two as a text."""
    return f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"
