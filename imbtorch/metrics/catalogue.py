"""Metric classes, one for each measure; the constructor of :class:`ConfusionMatrixMetric` documents the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch import measures
from imbtorch.counting.arguments import Task
from imbtorch.counts import check_choice, has_float64
from imbtorch.measures import Measure
from imbtorch.measures.traits import measure_function
from imbtorch.metrics.base import MetricArguments
from imbtorch.metrics.single import ConfusionMatrixMetric

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


# --- measures of all classes ----------------------------------------------------------------------------------------


class Accuracy(ConfusionMatrixMetric):
    """Accuracy; formula: :func:`imbtorch.measures.accuracy`.

    It is the share of correct predictions among all samples. torchmetrics' ``MulticlassAccuracy`` by default averages
    recalls instead, as :class:`BalancedAccuracy` does.

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
    """G-mean, the geometric mean of the recalls; formula: :func:`imbtorch.measures.geometric_mean`.

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
        """Set the correction, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            correction: value in [0, 1] that replaces a recall of 0.
            average: average over labels in the multilabel task; ``"auto"`` is ``"macro"``.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
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
    """Balanced accuracy adjusted for chance; for two classes it is informedness, or Youden's J.

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
    """Macro-averaged absolute error of ordered classes, lower is better.

    Formula: :func:`imbtorch.measures.macro_averaged_absolute_error`.

    >>> metric = MacroAveragedAbsoluteError("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.1667)
    """

    measure = staticmethod(measures.macro_averaged_absolute_error)


class CohenKappa(ConfusionMatrixMetric):
    """Cohen's kappa; formula: :func:`imbtorch.measures.cohen_kappa`.

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
        """Set the weights of errors, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            weights: ``"linear"`` or ``"quadratic"`` weights of errors between ordered classes, which need the matrix;
                None to weigh all errors alike.
            average: average over labels in the multilabel task; ``"auto"`` is ``"macro"``.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(weights=weights)


class ExpectedCost(ConfusionMatrixMetric):
    """Expected misclassification cost, lower is better; formula: :func:`imbtorch.measures.expected_cost`.

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
        normalize: bool | Literal["baseline"] = True,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        """Set the costs, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            costs: ``[K, K]`` costs of a sample, rows its true class, columns its predicted class.
            normalize: True for the mean cost of a sample, False for the total, ``"baseline"`` for the ratio to the cost
                of the best constant prediction.
            average: average over labels in the multilabel task; ``"auto"`` is ``"macro"``.
            state: ``"matrix"``; the measure needs all of it.
            num_labels, threshold, logits, ignore_index, on_invalid, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.

        Raises:
            ValueError: for costs that are not finite or do not fit the classes, and as the base class.
        """
        super().__init__(task, num_classes, **kwargs)
        weights = torch.as_tensor(costs, dtype=torch.float64, device="cpu")
        size = self._counting.classes
        if weights.shape != (size, size) or not bool(weights.isfinite().all()):
            raise ValueError(f"costs must be {size} x {size} finite numbers, got shape {list(weights.shape)}")
        check_choice("normalize", normalize, (True, False, "baseline"))
        self._arguments = {"costs": weights.clone(), "normalize": normalize}
        self._costs = self._arguments["costs"]  # on the device of the counts, so that forward need not copy them

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        """Move the counts and the costs to another device."""
        super()._apply(fn, exclude_state, recurse)
        if has_float64(self._state.device):
            self._costs = self._arguments["costs"].to(self._state.device)
        return self

    def _arguments_on(self, device: torch.device) -> dict[str, Any]:
        return self._arguments if device != self._costs.device else self._arguments | {"costs": self._costs}


# --- measures of each class, averaged -------------------------------------------------------------------------------


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
        """Set beta, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            beta: weight of recall relative to precision; 1 for F1.
            average: average over classes or labels; ``"auto"`` is ``"binary"`` in the binary task, else ``"macro"``.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
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
    """Imbalance accuracy metric (IAM); formula and properties: :func:`imbtorch.measures.imbalance_accuracy`.

    >>> metric = ImbalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.3333)
    """

    measure = staticmethod(measures.imbalance_accuracy)


# --- measures of two classes ----------------------------------------------------------------------------------------


class WeightedAccuracy(ConfusionMatrixMetric):
    """Weighted accuracy; formula: :func:`imbtorch.measures.weighted_accuracy`.

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
        """Set the weight, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            alpha: weight of the positive class in [0, 1].
            average: average over classes, each against the rest, or over labels; not needed for two classes.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(alpha=alpha)


class Dominance(ConfusionMatrixMetric):
    """Dominance of the positive class; formula: :func:`imbtorch.measures.dominance`. It has no better direction.

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
        """Set the kind of ratio, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            positive: True for the ratio of a positive prediction, higher is better; False for a negative prediction,
                lower is better.
            average: average over classes, each against the rest, or over labels; not needed for two classes.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(positive=positive)


class NetBenefit(ConfusionMatrixMetric):
    """Net benefit at the metric's ``threshold``, which sets the predictions and the cost of a false alarm.

    Formula: :func:`imbtorch.measures.net_benefit`. If labels have different thresholds, their costs differ too, and
    ``average="micro"``, which sums the counts of labels first, is an error. A sweep needs the same cost at all its
    thresholds: ``ThresholdSweep(functools.partial(net_benefit, threshold=0.2))``.

    >>> metric = NetBenefit("binary", threshold=0.2)
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4375)
    """

    measure = staticmethod(measures.net_benefit)

    def __init__(
        self, task: Task | None = None, num_classes: int | None = None, **kwargs: Unpack[MetricArguments]
    ) -> None:
        """Set the threshold, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            average: average over classes, each against the rest, or over labels; not needed for two classes.
            threshold: probability strictly above which 1 is predicted; it also sets the cost of a false alarm.
            num_labels, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(threshold=self._counting.threshold)
        if self.average == "micro" and isinstance(self._counting.threshold, tuple):
            raise ValueError(
                f"average='micro' sums the counts of labels, but threshold={self._counting.threshold!r} prices each "
                "label differently; use average='macro' or one threshold"
            )

    def _arguments_on(self, device: torch.device) -> dict[str, Any]:
        thresholds = self._counting.thresholds
        if thresholds is None or thresholds.device != device or thresholds.dtype != torch.float64:
            return self._arguments
        return {"threshold": thresholds}


class IndexBalancedAccuracy(ConfusionMatrixMetric):
    """Index of balanced accuracy (IBA); formula: :func:`imbtorch.measures.index_balanced_accuracy`.

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
        measure: Measure | str = measures.geometric_mean,
        alpha: float = 0.05,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        """Set the measure and alpha, and the arguments of :class:`ConfusionMatrixMetric`.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            measure: measure that dominance weighs: a name of the catalogue, a function of counts or a
                ``functools.partial`` of one.
            alpha: influence of dominance, >= 0.
            average: average over classes, each against the rest, or over labels; not needed for two classes.
            num_labels, threshold, logits, ignore_index, on_invalid, state, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(measure=measure_function(measure), alpha=alpha)
