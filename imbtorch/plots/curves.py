"""Measures as lines: over the share of positives, over errors, beside one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from imbtorch.counts import Measure, check_choice
from imbtorch.plots.style import display_names, figure_and_axes, line_style, literal
from imbtorch.properties.correlation import Correlations
from imbtorch.properties.prevalence import prevalence_curves
from imbtorch.properties.sensitivity import SensitivityCurves, sensitivity_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_correlations", "plot_prevalence", "plot_sensitivity"]

MOST_LISTED = 4  # classes up to which an axis names each


def plot_correlations(
    correlations: Correlations, measure: str, ax: Axes | None = None, *, others: Sequence[str] | None = None
) -> tuple[Figure | None, Axes]:
    """Draw how one measure is correlated with the others, over the share of positives.

    Args:
        correlations: result of :func:`~imbtorch.analysis.measure_correlations`.
        measure: the name of the measure that the others are compared with.
        ax: axes to draw into; by default those of a new figure.
        others: names of the measures that are drawn, by default all others. A measure keeps its line from one picture
            to the next; where a correlation is nan, the line has a gap.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a name that the correlations do not have.

    Source: Garcia, Mollineda and Sanchez (2010), Figure 1.
    """
    names = correlations.names
    chosen = [name for name in names if name != measure] if others is None else list(others)
    for name in (measure, *chosen):
        check_choice("measure" if name == measure else "others", name, names)
    fig, ax = figure_and_axes(ax)
    shares = [100 * share for share in correlations.shares]
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    for name in chosen:
        look = line_style(names.index(name), len(shares))
        ax.plot(correlations.of(measure, name).tolist(), shares, label=literal(name), **look)
    ax.set_xlim(-1.05, 1.05)
    ax.set_yticks(shares)
    ax.set_xlabel(literal(f"Correlation with {measure}"))
    ax.set_ylabel("Positive samples (%)")
    ax.grid(visible=True, alpha=0.3)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig, ax


def plot_prevalence(
    measures: Mapping[str, Measure],
    counts: Tensor,
    ax: Axes | None = None,
    *,
    span: tuple[float, float] = (1e-4, 0.5),
    steps: int = 121,
) -> tuple[Figure | None, Axes]:
    """Draw measures of one classifier over the share of positives, and say which of them do not move.

    What the classifier does to each class stays as counted; a dotted line marks the share of positives of the counts.
    The numbers are those of :func:`~imbtorch.analysis.prevalence_curves`.

    Args:
        measures: name -> function of ``[..., 2, 2]`` counts.
        counts: ``[2, 2]`` counts or rates, class 1 being the positive one.
        ax: axes to draw into; by default those of a new figure.
        span: least and greatest share of positives, within (0, 1); widened to hold that of the counts.
        steps: points of each line, at least 2, in equal ratios.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not ``[2, 2]`` or lack a class, a span or a number of steps out of range, and a
            measure that does not return one value for each matrix.
    """
    curves = prevalence_curves(measures, counts, span=span, steps=steps)
    fig, ax = figure_and_axes(ax, (8.0, 4.5))
    labels = {name: name + " (does not move)" * (name in curves.constant) for name in curves.values}
    _draw_measures(ax, curves.shares, {labels[name]: value for name, value in curves.values.items()})
    marked = f"as counted: {curves.counted:.3g}"
    ax.axvline(curves.counted, color="0.4", linestyle=":", linewidth=1.5, zorder=0, label=marked)
    ax.set_xscale("log")
    ax.set_xlim(curves.shares[0].item(), curves.shares[-1].item() * 1.05)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Share of positives")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig, ax


def plot_sensitivity(
    measures: Mapping[str, Measure],
    support: Tensor | Sequence[float],
    ax: Axes | None = None,
    *,
    classes: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    until: float = 1.0,
    steps: int = 41,
) -> tuple[Figure | None, Axes]:
    """Draw measures of a classifier that starts perfect and loses a growing share of some classes.

    The numbers are those of :func:`~imbtorch.analysis.sensitivity_curves`.

    Args:
        measures: name -> function of ``[..., K, K]`` counts.
        support: ``[K]``, samples of each class.
        ax: axes to draw into; by default those of a new figure.
        classes: the classes that lose samples; by default the rarest one.
        labels: K class names; by default 0 to K-1.
        until: the largest share that they lose, in (0, 1].
        steps: points of each line, at least 2.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for fewer than two classes, a class without samples or out of range, names that do not fit, a share
            or a number of steps out of range, and a measure that does not return one value for each matrix.

    Source: Mortaz (2020), Figures 1 to 4.
    """
    curves = sensitivity_curves(measures, support, classes=classes, until=until, steps=steps)
    names = display_names(labels, curves.num_classes)
    fig, ax = figure_and_axes(ax)
    _draw_measures(ax, curves.shares, curves.values)
    ax.set_xlabel(f"Share of {_which_classes(curves, names)} that is misclassified")
    ax.set_xlim(0.0, until)
    ax.legend(fontsize="small")
    return fig, ax


def _draw_measures(ax: Axes, xs: Tensor, values: Mapping[str, Tensor]) -> None:
    """Draw a line for each measure, and a thin one at 0."""
    for index, (name, value) in enumerate(values.items()):
        ax.plot(xs.tolist(), value.tolist(), label=literal(name), **line_style(index, len(xs)))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_ylabel("Measure")
    ax.grid(visible=True, alpha=0.3)


def _which_classes(curves: SensitivityCurves, names: Sequence[str]) -> str:
    """The classes that lose samples, in words."""
    chosen = curves.classes
    if len(chosen) == curves.num_classes:
        return "each class"
    if len(chosen) > MOST_LISTED:
        return f"each of {len(chosen)} classes"
    return f"class{'es' * (len(chosen) > 1)} {', '.join(names[index] for index in chosen)}"
