"""One small metric class for each measure; constructor arguments are documented on :class:`ConfusionMatrixMetric`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import Unpack

from imbtorch import measures
from imbtorch.counting import Counting, Task
from imbtorch.measures import Measure
from imbtorch.metrics.averaging import AveragedMeasure, Traits, chosen_average
from imbtorch.metrics.base import ConfusionMatrixMetric, MetricArguments

__all__ = [
    "Accuracy",
    "AccuracyDominanceArea",
    "BalancedAccuracy",
    "ClassBalanceAccuracy",
    "ConfusionEntropy",
    "Dominance",
    "ExpectedCost",
    "FScore",
    "FowlkesMallows",
    "GeometricMean",
    "ImbalanceAccuracy",
    "IndexBalancedAccuracy",
    "MatthewsCorrCoef",
    "OptimizedPrecision",
    "Precision",
    "Recall",
    "RelativeClassifierInformation",
    "Specificity",
    "WeightedAccuracy",
]

Measured: TypeAlias = (
    type[ConfusionMatrixMetric] | ConfusionMatrixMetric | Callable[..., Any] | tuple[Callable[..., Tensor], bool | None]
)

PER_CLASS = ("macro", "weighted", "none", "min")
PER_CLASS_OR_POSITIVE = (*PER_CLASS, "micro", "binary")


# --- of all classes -------------------------------------------------------------------------------------------------


class Accuracy(ConfusionMatrixMetric):
    """Accuracy; formula: :func:`imbtorch.measures.accuracy`.

    One value of all samples. torchmetrics' ``MulticlassAccuracy`` averages recalls by default: that is
    :class:`BalancedAccuracy` here.

    >>> metric = Accuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7500)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "accuracy"
    measure = staticmethod(measures.accuracy)


class BalancedAccuracy(ConfusionMatrixMetric):
    """Balanced accuracy; formula: :func:`imbtorch.measures.balanced_accuracy`.

    >>> metric = BalancedAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8333)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "balanced_accuracy"
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

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
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


class MatthewsCorrCoef(ConfusionMatrixMetric):
    """Matthews correlation coefficient; formula: :func:`imbtorch.measures.matthews_corrcoef`.

    >>> metric = MatthewsCorrCoef("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.7000)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = -1.0, 1.0
    needs_matrix = False
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


class ExpectedCost(ConfusionMatrixMetric):
    """Expected misclassification cost, lower is better; formula: :func:`imbtorch.measures.expected_cost`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        costs: ``[K, K]``, what a sample of the row's class costs when predicted as the column's.
        normalize: report the mean of a sample rather than the total.
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
        normalize: bool = True,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        weights = torch.as_tensor(costs, dtype=torch.float64, device="cpu")
        size = self._counting.classes
        if weights.shape != (size, size) or not bool(weights.isfinite().all()):
            raise ValueError(f"costs must be {size} x {size} finite numbers, got shape {list(weights.shape)}")
        self._arguments = {"costs": weights.clone(), "normalize": normalize}


# --- of each class, averaged ----------------------------------------------------------------------------------------


class Precision(ConfusionMatrixMetric):
    """Precision; formula: :func:`imbtorch.measures.precision`.

    >>> metric = Precision("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([0.5000, 1.0000, 1.0000])
    """

    higher_is_better = True
    averages = PER_CLASS_OR_POSITIVE
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "precision"
    measure = staticmethod(measures.precision)


class Recall(ConfusionMatrixMetric):
    """Recall; formula: :func:`imbtorch.measures.recall`.

    >>> metric = Recall("multiclass", num_classes=3, average="none")
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([1.0000, 0.5000, 1.0000])
    """

    higher_is_better = True
    averages = PER_CLASS_OR_POSITIVE
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "recall"
    measure = staticmethod(measures.recall)


class Specificity(ConfusionMatrixMetric):
    """Specificity; formula: :func:`imbtorch.measures.specificity`.

    >>> metric = Specificity("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    higher_is_better = True
    averages = PER_CLASS_OR_POSITIVE
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "specificity"
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

    higher_is_better = True
    averages = PER_CLASS_OR_POSITIVE
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
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


class FowlkesMallows(ConfusionMatrixMetric):
    """Fowlkes-Mallows index; formula: :func:`imbtorch.measures.fowlkes_mallows`.

    >>> metric = FowlkesMallows("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8047)
    """

    higher_is_better = True
    averages = PER_CLASS_OR_POSITIVE
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "fowlkes_mallows"
    measure = staticmethod(measures.fowlkes_mallows)


class ClassBalanceAccuracy(ConfusionMatrixMetric):
    """Class balance accuracy (CBA); formula: :func:`imbtorch.measures.class_balance_accuracy`.

    >>> metric = ClassBalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    higher_is_better = True
    averages = PER_CLASS
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "cba"
    measure = staticmethod(measures.class_balance_accuracy)


class ImbalanceAccuracy(ConfusionMatrixMetric):
    """Imbalance accuracy metric (IAM); formula and what to know of it: :func:`imbtorch.measures.imbalance_accuracy`.

    >>> metric = ImbalanceAccuracy("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.3333)
    """

    higher_is_better = True
    averages = PER_CLASS
    plot_lower_bound, plot_upper_bound = -1.0, 1.0
    needs_matrix = False
    short = "iam"
    measure = staticmethod(measures.imbalance_accuracy)


# --- of two classes; in the multiclass task each class against the rest, averaged -----------------------------------


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

    higher_is_better = True
    binary_only = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    short = "weighted_accuracy"
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

    binary_only = True
    plot_lower_bound, plot_upper_bound = -1.0, 1.0
    needs_matrix = False
    short = "dominance"
    measure = staticmethod(measures.dominance)


class AccuracyDominanceArea(ConfusionMatrixMetric):
    """Area of the accuracy-dominance trapezium; formula: :func:`imbtorch.measures.accuracy_dominance_area`.

    >>> metric = AccuracyDominanceArea("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.8839)
    """

    higher_is_better = True
    binary_only = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.5
    needs_matrix = False
    short = "area"
    measure = staticmethod(measures.accuracy_dominance_area)


class IndexBalancedAccuracy(ConfusionMatrixMetric):
    """Index of balanced accuracy (IBA); formula: :func:`imbtorch.measures.index_balanced_accuracy`.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        measure: what is weighted by dominance, a function of the counts.
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
        measure: Measure = measures.geometric_mean,
        alpha: float = 0.05,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        super().__init__(task, num_classes, **kwargs)
        self._set_measure_arguments(measure=measure, alpha=alpha)
        if self._counting.layout == "margins" and self._traits().needs_matrix:
            raise ValueError(f"measure {measure!r} is not known to take Margins; use state='matrix'")

    def _traits(self) -> Traits:
        return with_arguments(super()._traits(), self._arguments)


class OptimizedPrecision(ConfusionMatrixMetric):
    """Optimized precision (OP); formula: :func:`imbtorch.measures.optimized_precision`.

    >>> metric = OptimizedPrecision("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4167)
    """

    higher_is_better = True
    binary_only = True
    plot_lower_bound, plot_upper_bound = -1.0, 1.0
    needs_matrix = False
    short = "op"
    measure = staticmethod(measures.optimized_precision)


# --- what a user may give as a measure ------------------------------------------------------------------------------

METRICS: dict[Callable[..., Tensor], type[ConfusionMatrixMetric]] = {
    each.measure: each
    for each in tuple(globals().values())
    if isinstance(each, type) and issubclass(each, ConfusionMatrixMetric) and each is not ConfusionMatrixMetric
}
BY_NAME: dict[str, type[ConfusionMatrixMetric]] = {each.short: each for each in METRICS.values()}
"""Metrics by the name that a report gives them."""


def resolved(name: str, measured: Measured, counting: Counting, batched: bool = False) -> AveragedMeasure:
    """How a measure is read off the counts of a task, whichever way it was given.

    Functions of this package are read like their metrics: in the binary task for the positive class, if they have one.

    Args:
        name: what messages call it.
        measured: metric class, instance, or ``functools.partial`` of a class; function of the counts or ``partial`` of
            one; or ``(function, higher_is_better)``.
        counting: what is counted.
        batched: whether a user's own function takes leading dimensions.

    Raises:
        ValueError: for a metric whose settings do not fit.
        TypeError: for what is no measure.
    """
    direction: bool | None = None
    if _is_pair(measured):
        measured, direction = measured
    if isinstance(measured, ConfusionMatrixMetric):
        return _of_instance(name, measured, counting)
    function: object = measured
    keywords: dict[str, Any] = {}
    if isinstance(measured, partial) and not measured.args:
        function, keywords = measured.func, dict(measured.keywords)
    if isinstance(function, type) and issubclass(function, ConfusionMatrixMetric):
        return _of_instance(name, _built(name, function, keywords, counting), counting)
    if callable(function) and isinstance(function, Hashable) and function in METRICS:
        return _of_function(name, METRICS[function], keywords, counting, direction)
    if not callable(measured) or isinstance(measured, (type, Metric)):
        raise TypeError(
            f"measures[{name!r}] must be a metric class of imbtorch, an instance or functools.partial of one, a "
            f"function of the counts, or a pair (function, higher_is_better), got {measured!r}"
        )
    return AveragedMeasure(Traits(name, measured, higher_is_better=direction, batched=batched), counting)


def _of_function(
    name: str,
    metric: type[ConfusionMatrixMetric],
    keywords: dict[str, Any],
    counting: Counting,
    direction: bool | None,
) -> AveragedMeasure:
    """A function of this package, read like its metric."""
    average = keywords.pop("average", "auto")
    _check_arguments(name, metric, keywords)
    traits = with_arguments(Traits.of(metric), keywords)
    traits = traits if direction is None else replace(traits, higher_is_better=direction)
    return AveragedMeasure(traits, counting, chosen_average(traits, counting, average), keywords)


def _is_pair(measured: Measured) -> TypeGuard[tuple[Callable[..., Tensor], bool | None]]:
    """Whether a function comes with its direction."""
    if not isinstance(measured, tuple) or len(measured) != 2 or isinstance(measured[0], (type, Metric)):
        return False
    return measured[1] in (True, False, None)


def with_arguments(traits: Traits, arguments: Mapping[str, Any]) -> Traits:
    """Traits of a measure that was given arguments, of which a function may need to see the matrix."""
    functions = [each for each in arguments.values() if callable(each)]
    reads_cells = any(each not in METRICS or METRICS[each].needs_matrix for each in functions)
    return replace(traits, needs_matrix=traits.needs_matrix or reads_cells)


def _built(
    name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any], counting: Counting
) -> ConfusionMatrixMetric:
    """Make a metric, without memory for its counts."""
    _check_arguments(name, metric, keywords)
    same: dict[str, Any] = {name: getattr(counting, name) for name in ("threshold", "logits", "ignore_index")}
    if counting.task != "binary":
        same["num_labels" if counting.task == "multilabel" else "num_classes"] = counting.size
    with torch.device("meta"):
        return metric(counting.task, **{**same, **keywords})


def _check_arguments(name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any]) -> None:
    """Raise where a measure lacks an argument without which it has no value."""
    parameters = list(signature(metric.measure).parameters.values())[1:]
    missing = [each.name for each in parameters if each.default is each.empty and each.name not in keywords]
    if missing:
        raise TypeError(
            f"{metric.__name__} takes arguments of its own; give {name!r} functools.partial({metric.__name__}, "
            f"{missing[0]}=...)"
        )


def _of_instance(name: str, metric: ConfusionMatrixMetric, counting: Counting) -> AveragedMeasure:
    """Traits and arguments of a metric that counts alike; its state plays no part."""
    if replace(metric._counting, layout=counting.layout) != counting:
        raise ValueError(
            f"{name!r} was made to count otherwise ({metric!r}) than what it is to be read off; give both the same "
            "task, number of classes, threshold, logits and ignore_index, or pass functools.partial of the class"
        )
    return replace(metric._measure, counting=counting)
