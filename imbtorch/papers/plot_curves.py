"""Measures as lines: correlations, values over the share of positives, values over the share of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Measure, check_choice
from imbtorch.papers.correlation import Correlations
from imbtorch.papers.prevalence import prevalence_curves
from imbtorch.papers.sensitivity import SensitivityCurves, sensitivity_curves
from imbtorch.plots.style import add_legend, display_names, figure_and_axes, line_style, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LISTED = 4  # most classes of which the label of an axis names each


@computed_on_cpu
def plot_correlations(
    correlations: Correlations, measure: str, ax: Axes | None = None, *, others: Sequence[str] | None = None
) -> tuple[Figure | None, Axes]:
    """Draw the correlation of one measure with the others over the share of positives.

    Args:
        correlations: result of :func:`~imbtorch.papers.measure_correlations`.
        measure: name of the measure to compare the others with.
        ax: axes to draw into; by default the axes of a new figure.
        others: names of the measures to draw; by default all others. A measure has the same line in every picture of
            the same correlations; a nan leaves a gap in the line.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for a name that the correlations do not have.

    Source: Garcia, Mollineda and Sanchez (2010), Figure 1.

    >>> import imbtorch
    >>> from imbtorch.papers import measure_correlations
    >>> found = measure_correlations({"accuracy": imbtorch.accuracy, "G-mean": imbtorch.geometric_mean})
    >>> figure, axes = plot_correlations(found, "accuracy")
    >>> axes.get_xlabel(), [text.get_text() for text in axes.get_legend().get_texts()]
    ('Correlation with accuracy', ['G-mean'])
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
    add_legend(ax)
    return fig, ax


@computed_on_cpu
def plot_prevalence(
    measures: Mapping[str, Measure],
    counts: Tensor,
    ax: Axes | None = None,
    *,
    span: tuple[float, float] = (1e-4, 0.5),
    steps: int = 121,
) -> tuple[Figure | None, Axes]:
    """Draw measures of one classifier over the share of positives, and name the constant ones.

    The recall of each class is held at its value in the counts; a dotted line marks the share of positives in them. The
    numbers come from :func:`~imbtorch.papers.prevalence_curves`.

    Args:
        measures: name -> function of ``[..., 2, 2]`` counts.
        counts: ``[2, 2]`` counts or rates; class 1 is positive.
        ax: axes to draw into; by default the axes of a new figure.
        span: least and greatest share of positives, within (0, 1); widened to include the share in the counts.
        steps: number of points of each line, at least 2, in equal ratios.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for counts that are not ``[2, 2]`` or lack a class, a span or a number of steps out of range, and a
            measure that does not return one value for each matrix.

    >>> import imbtorch, torch
    >>> measures = {"accuracy": imbtorch.accuracy, "balanced accuracy": imbtorch.balanced_accuracy}
    >>> figure, axes = plot_prevalence(measures, torch.tensor([[950, 50], [10, 90]]))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['accuracy', 'balanced accuracy (constant)', 'share in the counts: 0.0909']
    """
    curves = prevalence_curves(measures, counts, span=span, steps=steps)
    fig, ax = figure_and_axes(ax, (8.0, 4.5))
    labels = {name: name + " (constant)" * (name in curves.constant) for name in curves.values}
    _draw_measures(ax, curves.shares, {labels[name]: value for name, value in curves.values.items()})
    marked = f"share in the counts: {curves.counted:.3g}"
    ax.axvline(curves.counted, color="0.4", linestyle=":", linewidth=1.5, zorder=0, label=marked)
    ax.set_xscale("log")
    ax.set_xlim(curves.shares[0].item(), curves.shares[-1].item() * 1.05)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Share of positives")
    add_legend(ax)
    return fig, ax


@computed_on_cpu
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
    """Draw measures of a perfect classifier that misclassifies a growing share of some classes.

    The numbers come from :func:`~imbtorch.papers.sensitivity_curves`. Precision, and with it its mean over classes,
    jumps down at a share of 1: with no right prediction left, the precision of the class drops to 0. The label of the
    x axis explains such a jump.

    Args:
        measures: name -> function of ``[..., K, K]`` counts.
        support: ``[K]``, number of samples of each class.
        ax: axes to draw into; by default the axes of a new figure.
        classes: misclassified classes; by default the rarest one.
        labels: K class names; by default 0 to K-1.
        until: largest misclassified share, in (0, 1].
        steps: number of points of each line, at least 2.

    Returns:
        The new figure (None if axes were given) and the axes.

    Raises:
        ValueError: for fewer than two classes, a class without samples or out of range, names that do not fit, a share
            or a number of steps out of range, and a measure that does not return one value for each matrix.

    Source: Mortaz (2020), Figures 1 to 4.

    >>> import imbtorch
    >>> figure, axes = plot_sensitivity({"IAM": imbtorch.imbalance_accuracy}, [100, 10], labels=["dog", "cat"])
    >>> axes.get_xlabel()
    'Share of class cat that is misclassified'
    """
    curves = sensitivity_curves(measures, support, classes=classes, until=until, steps=steps)
    names = display_names(labels, curves.num_classes)
    fig, ax = figure_and_axes(ax)
    _draw_measures(ax, curves.shares, curves.values)
    jump = "\n(curves jump at 1, where no right prediction is left)" if _jumps_at_the_end(curves, until) else ""
    ax.set_xlabel(f"Share of {_classes_in_words(curves, names)} that is misclassified{jump}")
    ax.set_xlim(0.0, until)
    add_legend(ax)
    return fig, ax


def _draw_measures(ax: Axes, xs: Tensor, values: Mapping[str, Tensor]) -> None:
    """Draw one line for each measure, and a thin line at 0."""
    for index, (name, value) in enumerate(values.items()):
        ax.plot(xs.tolist(), value.tolist(), label=literal(name), **line_style(index, len(xs)))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_ylabel("Value of the measure")
    ax.grid(visible=True, alpha=0.3)


def _jumps_at_the_end(curves: SensitivityCurves, until: float) -> bool:
    """Return whether the last step to a share of 1 is by far the largest one of any measure."""
    changes = [value.diff().abs() for value in curves.values.values() if len(value) > 2]
    return until == 1 and any(bool(change[-1] > max(0.05, 2.5 * change[:-1].max().item())) for change in changes)


def _classes_in_words(curves: SensitivityCurves, names: Sequence[str]) -> str:
    """Return a phrase for the misclassified classes."""
    chosen = curves.classes
    if len(chosen) == curves.num_classes:
        return "each class"
    if len(chosen) > MOST_LISTED:
        return f"each of {len(chosen)} classes"
    return f"class{'es' * (len(chosen) > 1)} {', '.join(names[index] for index in chosen)}"
