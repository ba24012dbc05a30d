"""One small metric class for each measure; constructor arguments are documented on :class:`ConfusionMatrixMetric`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch import measures
from imbtorch.counts import check_choice
from imbtorch.measures import Measure
from imbtorch.measures.traits import by_any_name, by_key, measure_function
from imbtorch.metrics.base import MetricArguments
from imbtorch.metrics.confusion_matrix import METRICS, ConfusionMatrixMetric
from imbtorch.tasks import Task

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


# --- of all classes -------------------------------------------------------------------------------------------------


class Accuracy(ConfusionMatrixMetric):
    """Accuracy; formula: :func:`imbtorch.measures.accuracy`.

    One value of all samples. torchmetrics' ``MulticlassAccuracy`` averages recalls by default: that is
    :class:`BalancedAccuracy` here.

    >>> metric = Accuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7500)
    """

    measure = staticmethod(measures.accuracy)


class BalancedAccuracy(ConfusionMatrixMetric):
    """Balanced accuracy; formula: :func:`imbtorch.measures.balanced_accuracy`.

    >>> metric = BalancedAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8333)
    """

    measure = staticmethod(measures.balanced_accuracy)


class GeometricMean(ConfusionMatrixMetric):
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


class MatthewsCorrCoef(ConfusionMatrixMetric):
    """Matthews correlation coefficient; formula: :func:`imbtorch.measures.matthews_corrcoef`.

    >>> metric = MatthewsCorrCoef("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7000)
    """

    measure = staticmethod(measures.matthews_corrcoef)


class RelativeClassifierInformation(ConfusionMatrixMetric):
    """Relative classifier information; formula: :func:`imbtorch.measures.relative_classifier_information`.

    >>> metric = RelativeClassifierInformation("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    measure = staticmethod(measures.relative_classifier_information)


class ConfusionEntropy(ConfusionMatrixMetric):
    """Confusion entropy, lower is better; formula: :func:`imbtorch.measures.confusion_entropy`.

    >>> metric = ConfusionEntropy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.1981)
    """

    measure = staticmethod(measures.confusion_entropy)


class AdjustedBalancedAccuracy(ConfusionMatrixMetric):
    """Balanced accuracy adjusted for chance; with two classes informedness, Youden's J.

    Formula: :func:`imbtorch.measures.adjusted_balanced_accuracy`.

    >>> metric = AdjustedBalancedAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7500)
    """

    measure = staticmethod(measures.adjusted_balanced_accuracy)


class BottomLine(ConfusionMatrixMetric):
    """Bottom line, the lowest of accuracy, macro precision, recall, F1 and CBA.

    Formula: :func:`imbtorch.measures.bottom_line`.

    >>> metric = BottomLine("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    measure = staticmethod(measures.bottom_line)


class MacroAveragedAbsoluteError(ConfusionMatrixMetric):
    """Macro-averaged absolute error of classes in an order, lower is better.

    Formula: :func:`imbtorch.measures.macro_averaged_absolute_error`.

    >>> metric = MacroAveragedAbsoluteError("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.1667)
    """

    measure = staticmethod(measures.macro_averaged_absolute_error)


class CohenKappa(ConfusionMatrixMetric):
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


class Precision(ConfusionMatrixMetric):
    """Precision; formula: :func:`imbtorch.measures.precision`.

    >>> metric = Precision("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([0.5000, 1.0000, 1.0000])
    """

    measure = staticmethod(measures.precision)


class Recall(ConfusionMatrixMetric):
    """Recall; formula: :func:`imbtorch.measures.recall`.

    >>> metric = Recall("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([1.0000, 0.5000, 1.0000])
    """

    measure = staticmethod(measures.recall)


class Specificity(ConfusionMatrixMetric):
    """Specificity; formula: :func:`imbtorch.measures.specificity`.

    >>> metric = Specificity("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    measure = staticmethod(measures.specificity)


class FScore(ConfusionMatrixMetric):
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


class FowlkesMallows(ConfusionMatrixMetric):
    """Fowlkes-Mallows index; formula: :func:`imbtorch.measures.fowlkes_mallows`.

    >>> metric = FowlkesMallows("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8047)
    """

    measure = staticmethod(measures.fowlkes_mallows)


class Jaccard(ConfusionMatrixMetric):
    """Jaccard index, intersection over union (IoU); formula: :func:`imbtorch.measures.jaccard`.

    >>> metric = Jaccard("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    measure = staticmethod(measures.jaccard)


class NegativePredictiveValue(ConfusionMatrixMetric):
    """Negative predictive value; formula: :func:`imbtorch.measures.negative_predictive_value`.

    >>> metric = NegativePredictiveValue("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    measure = staticmethod(measures.negative_predictive_value)


class ClassBalanceAccuracy(ConfusionMatrixMetric):
    """Class balance accuracy (CBA); formula: :func:`imbtorch.measures.class_balance_accuracy`.

    >>> metric = ClassBalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    measure = staticmethod(measures.class_balance_accuracy)


class ImbalanceAccuracy(ConfusionMatrixMetric):
    """Imbalance accuracy metric (IAM); formula and what to know of it: :func:`imbtorch.measures.imbalance_accuracy`.

    >>> metric = ImbalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.3333)
    """

    measure = staticmethod(measures.imbalance_accuracy)


# --- of two classes ---------------------------------------------------------------------------------------------------


class WeightedAccuracy(ConfusionMatrixMetric):
    """Weighted accuracy; formula: :func:`imbtorch.measures.weighted_accuracy`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        alpha: weight of the positive class in [0, 1].
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = WeightedAccuracy("binary", alpha=0.75)
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.6250)
    """

    measure = staticmethod(measures.weighted_accuracy)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        alpha: float = 0.5,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(alpha=alpha)


class Dominance(ConfusionMatrixMetric):
    """Dominance of the positive class; formula: :func:`imbtorch.measures.dominance`. No direction is better.

    >>> metric = Dominance("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(-0.5000)
    """

    measure = staticmethod(measures.dominance)


class AccuracyDominanceArea(ConfusionMatrixMetric):
    """Area of the accuracy-dominance trapezium; formula: :func:`imbtorch.measures.accuracy_dominance_area`.

    >>> metric = AccuracyDominanceArea("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.8839)
    """

    measure = staticmethod(measures.accuracy_dominance_area)


class OptimizedPrecision(ConfusionMatrixMetric):
    """Optimized precision (OP); formula: :func:`imbtorch.measures.optimized_precision`.

    >>> metric = OptimizedPrecision("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4167)
    """

    measure = staticmethod(measures.optimized_precision)


class Markedness(ConfusionMatrixMetric):
    """Markedness; formula: :func:`imbtorch.measures.markedness`.

    >>> metric = Markedness("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    measure = staticmethod(measures.markedness)


class P4(ConfusionMatrixMetric):
    """P4, the harmonic mean of precision, recall, specificity and NPV; formula: :func:`imbtorch.measures.p4`.

    >>> metric = P4("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    measure = staticmethod(measures.p4)


class LikelihoodRatio(ConfusionMatrixMetric):
    """Likelihood ratio of a positive (or negative) prediction; formula: :func:`imbtorch.measures.likelihood_ratio`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        positive: of a positive prediction, higher is better; False: of a negative one, lower is better.
        kwargs: arguments of :class:`ConfusionMatrixMetric`.

    >>> metric = LikelihoodRatio("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(1.)
    """

    measure = staticmethod(measures.likelihood_ratio)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        positive: bool = True,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(positive=positive)


class NetBenefit(ConfusionMatrixMetric):
    """Net benefit at the metric's ``threshold``, which sets the price of a false alarm as well as the predictions.

    Formula: :func:`imbtorch.measures.net_benefit`. Labels with thresholds of their own have prices of their own, and
    no ``average="micro"``, which would sum their counts before they are priced. A sweep over thresholds needs one price
    for all of them: ``ThresholdSweep(functools.partial(NetBenefit, threshold=0.2))``.

    >>> metric = NetBenefit("binary", threshold=0.2)
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4375)
    """

    measure = staticmethod(measures.net_benefit)

    def __init__(
        self, task: Task | None = None, num_classes: int | None = None, **kwargs: Unpack[MetricArguments]
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(threshold=self._counting.threshold)
        if self.average == "micro" and isinstance(self._counting.threshold, tuple):
            raise ValueError(
                f"average='micro' sums the counts of labels, which threshold={self._counting.threshold!r} prices "
                "apart; use average='macro' or one threshold"
            )


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
        self._set_measure_arguments(measure=measure_function(measure), alpha=alpha)


BY_KEY: dict[str, type[ConfusionMatrixMetric]] = {key: METRICS[measure] for key, measure in by_key().items()}
"""Metrics by the name that a report gives them."""
BY_ANY_NAME = {name: METRICS[measure] for name, measure in by_any_name().items()}
"""Those, and by the name of their function."""
