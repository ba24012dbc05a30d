"""One small metric class for each measure; constructor arguments are documented on :class:`ConfusionMatrixMetric`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch import measures
from imbtorch.counting import Task
from imbtorch.counts import check_choice
from imbtorch.measures import Measure
from imbtorch.measures.two_classes import measure_function
from imbtorch.metrics.base import MetricArguments
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric
from imbtorch.metrics.kinds import Correlation, Share
from imbtorch.metrics.two_classes import (
    P4,
    AccuracyDominanceArea,
    Dominance,
    LikelihoodRatio,
    Markedness,
    NetBenefit,
    OptimizedPrecision,
    WeightedAccuracy,
)

__all__ = [
    "P4",
    "Accuracy",
    "AccuracyDominanceArea",
    "AdjustedBalancedAccuracy",
    "BalancedAccuracy",
    "BottomLine",
    "ClassBalanceAccuracy",
    "CohenKappa",
    "ConfusionEntropy",
    "Dominance",
    "ExpectedCost",
    "FScore",
    "FowlkesMallows",
    "GeometricMean",
    "ImbalanceAccuracy",
    "IndexBalancedAccuracy",
    "Jaccard",
    "LikelihoodRatio",
    "MacroAveragedAbsoluteError",
    "Markedness",
    "MatthewsCorrCoef",
    "NegativePredictiveValue",
    "NetBenefit",
    "OptimizedPrecision",
    "Precision",
    "Recall",
    "RelativeClassifierInformation",
    "Specificity",
    "WeightedAccuracy",
]

PER_CLASS = ("macro", "weighted", "none", "min")
PER_CLASS_OR_POSITIVE = (*PER_CLASS, "micro", "binary")


# --- of all classes -------------------------------------------------------------------------------------------------


class Accuracy(Share):
    """Accuracy; formula: :func:`imbtorch.measures.accuracy`.

    One value of all samples. torchmetrics' ``MulticlassAccuracy`` averages recalls by default: that is
    :class:`BalancedAccuracy` here.

    >>> metric = Accuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7500)
    """

    short = "accuracy"
    measure = staticmethod(measures.accuracy)


class BalancedAccuracy(Share):
    """Balanced accuracy; formula: :func:`imbtorch.measures.balanced_accuracy`.

    >>> metric = BalancedAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8333)
    """

    short = "balanced_accuracy"
    measure = staticmethod(measures.balanced_accuracy)


class GeometricMean(Share):
    """G-mean of the recalls; formula: :func:`imbtorch.measures.geometric_mean`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        correction: takes the place of a recall of 0, in [0, 1].
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = GeometricMean("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7937)
    """

    short = "gmean"
    measure = staticmethod(measures.geometric_mean)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        correction: float = 0.0,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(correction=correction)


class MatthewsCorrCoef(Correlation):
    """Matthews correlation coefficient; formula: :func:`imbtorch.measures.matthews_corrcoef`.

    >>> metric = MatthewsCorrCoef("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7000)
    """

    short = "mcc"
    measure = staticmethod(measures.matthews_corrcoef)


class RelativeClassifierInformation(ConfusionMatrixMetric):
    """Relative classifier information; formula: :func:`imbtorch.measures.relative_classifier_information`.

    >>> metric = RelativeClassifierInformation("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    short = "rci"
    measure = staticmethod(measures.relative_classifier_information)


class ConfusionEntropy(ConfusionMatrixMetric):
    """Confusion entropy, lower is better; formula: :func:`imbtorch.measures.confusion_entropy`.

    >>> metric = ConfusionEntropy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.1981)
    """

    higher_is_better = False
    plot_lower_bound = 0.0
    short = "confusion_entropy"
    measure = staticmethod(measures.confusion_entropy)


class AdjustedBalancedAccuracy(Correlation):
    """Balanced accuracy adjusted for chance; with two classes informedness, Youden's J.

    Formula: :func:`imbtorch.measures.adjusted_balanced_accuracy`.

    >>> metric = AdjustedBalancedAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7500)
    """

    short = "adjusted_balanced_accuracy"
    measure = staticmethod(measures.adjusted_balanced_accuracy)


class BottomLine(Share):
    """Bottom line, the lowest of accuracy, macro precision, recall, F1 and CBA.

    Formula: :func:`imbtorch.measures.bottom_line`.

    >>> metric = BottomLine("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    short = "bottom_line"
    measure = staticmethod(measures.bottom_line)


class MacroAveragedAbsoluteError(ConfusionMatrixMetric):
    """Macro-averaged absolute error of classes in an order, lower is better.

    Formula: :func:`imbtorch.measures.macro_averaged_absolute_error`.

    >>> metric = MacroAveragedAbsoluteError("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.1667)
    """

    higher_is_better = False
    plot_lower_bound = 0.0
    short = "macro_averaged_absolute_error"
    measure = staticmethod(measures.macro_averaged_absolute_error)


class CohenKappa(Correlation):
    """Cohen's kappa; formula: :func:`imbtorch.measures.cohen_kappa`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        weights: None, or ``"linear"`` or ``"quadratic"`` for classes in an order, which needs the matrix.
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = CohenKappa("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6364)
    """

    short = "kappa"
    measure = staticmethod(measures.cohen_kappa)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        weights: Literal["linear", "quadratic"] | None = None,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(weights=weights)
        self.needs_matrix = weights is not None
        if self.needs_matrix and self._counting.layout == "margins":
            raise ValueError("weights need the whole matrix; use state='matrix'")


class ExpectedCost(ConfusionMatrixMetric):
    """Expected misclassification cost, lower is better; formula: :func:`imbtorch.measures.expected_cost`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        costs: ``[K, K]``, what a sample of the row's class costs when predicted as the column's.
        normalize: report the mean of a sample rather than the total; ``"trivial"``: in shares of what the best constant
            prediction costs.
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = ExpectedCost("binary", costs=[[0.0, 1.0], [5.0, 0.0]])
    >>> metric(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
    tensor(1.5000)
    """

    higher_is_better = False
    short = "expected_cost"
    measure = staticmethod(measures.expected_cost)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        costs: Tensor | Sequence[Sequence[float]],
        normalize: bool | Literal["trivial"] = True,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        weights = torch.as_tensor(costs, dtype=torch.float64, device="cpu")
        size = self._counting.classes
        if weights.shape != (size, size) or not bool(weights.isfinite().all()):
            raise ValueError(f"costs must be {size} x {size} finite numbers, got shape {list(weights.shape)}")
        check_choice("normalize", normalize, (True, False, "trivial"))
        self._arguments = {"costs": weights.clone(), "normalize": normalize}


# --- of each class, averaged ----------------------------------------------------------------------------------------


class Precision(Share):
    """Precision; formula: :func:`imbtorch.measures.precision`.

    >>> metric = Precision("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([0.5000, 1.0000, 1.0000])
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "precision"
    measure = staticmethod(measures.precision)


class Recall(Share):
    """Recall; formula: :func:`imbtorch.measures.recall`.

    >>> metric = Recall("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([1.0000, 0.5000, 1.0000])
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "recall"
    measure = staticmethod(measures.recall)


class Specificity(Share):
    """Specificity; formula: :func:`imbtorch.measures.specificity`.

    >>> metric = Specificity("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "specificity"
    measure = staticmethod(measures.specificity)


class FScore(Share):
    """F-score; formula: :func:`imbtorch.measures.f_score`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        beta: how many times as much recall counts as precision; 1 for F1.
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = FScore("binary", beta=2.0)
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "f1"
    measure = staticmethod(measures.f_score)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        beta: float = 1.0,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(beta=beta)


class FowlkesMallows(Share):
    """Fowlkes-Mallows index; formula: :func:`imbtorch.measures.fowlkes_mallows`.

    >>> metric = FowlkesMallows("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8047)
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "fowlkes_mallows"
    measure = staticmethod(measures.fowlkes_mallows)


class Jaccard(Share):
    """Jaccard index, intersection over union (IoU); formula: :func:`imbtorch.measures.jaccard`.

    >>> metric = Jaccard("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "iou"
    measure = staticmethod(measures.jaccard)


class NegativePredictiveValue(Share):
    """Negative predictive value; formula: :func:`imbtorch.measures.negative_predictive_value`.

    >>> metric = NegativePredictiveValue("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    averages = PER_CLASS_OR_POSITIVE
    short = "npv"
    measure = staticmethod(measures.negative_predictive_value)


class ClassBalanceAccuracy(Share):
    """Class balance accuracy (CBA); formula: :func:`imbtorch.measures.class_balance_accuracy`.

    >>> metric = ClassBalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    averages = PER_CLASS
    short = "cba"
    measure = staticmethod(measures.class_balance_accuracy)


class ImbalanceAccuracy(Correlation):
    """Imbalance accuracy metric (IAM); formula and what to know of it: :func:`imbtorch.measures.imbalance_accuracy`.

    >>> metric = ImbalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.3333)
    """

    averages = PER_CLASS
    short = "iam"
    measure = staticmethod(measures.imbalance_accuracy)


# --- of a measure of two classes that is given -----------------------------------------------------------------------


class IndexBalancedAccuracy(ConfusionMatrixMetric):
    """Index of balanced accuracy (IBA); formula: :func:`imbtorch.measures.index_balanced_accuracy`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        measure: what is weighted by dominance: a function of the counts, a metric class, or the name of either in
            reports or in :mod:`imbtorch.measures`; read with its defaults.
        alpha: influence of dominance, >= 0.
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = IndexBalancedAccuracy("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.6894)
    """

    higher_is_better = True
    binary_only = True
    plot_lower_bound = 0.0
    needs_matrix = False
    short = "iba"
    measure = staticmethod(measures.index_balanced_accuracy)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        measure: Measure | type[ConfusionMatrixMetric] | str = measures.geometric_mean,
        alpha: float = 0.05,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        if isinstance(measure, str):
            check_choice("measure", measure, tuple(BY_ANY_NAME))
            measure = BY_ANY_NAME[measure]
        self._set_measure_arguments(measure=measure_function(measure), alpha=alpha)
        metric = METRICS.get(self._arguments["measure"])
        self.needs_matrix = metric is None or metric.needs_matrix  # a function of the user's own may read cells
        if self.needs_matrix and self._counting.layout == "margins":
            raise ValueError(f"measure {measure!r} is not known to take Margins; use state='matrix'")


KIND = type(ConfusionMatrixMetric)  # for isinstance Python 3.10 takes Callable[..., Tensor] for a class
METRICS: dict[Callable[..., Tensor], type[ConfusionMatrixMetric]] = {
    each.measure: each
    for each in tuple(globals().values())
    if type(each) is KIND and issubclass(each, ConfusionMatrixMetric) and "measure" in vars(each)
}
BY_NAME: dict[str, type[ConfusionMatrixMetric]] = {each.short: each for each in METRICS.values()} | {"dice": FScore}
"""Metrics by the name that a report gives them."""
BY_ANY_NAME = BY_NAME | {each.measure.__name__: each for each in METRICS.values()}
"""Those, and by the name of their function."""
