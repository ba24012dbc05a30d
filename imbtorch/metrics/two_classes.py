"""Metrics of the measures of two classes; constructor arguments are documented on :class:`ConfusionMatrixMetric`."""

from __future__ import annotations

import torch  # noqa: F401  (examples in docstrings read it)
from typing_extensions import Unpack

from imbtorch import measures
from imbtorch.counting import Task
from imbtorch.metrics.base import MetricArguments
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric
from imbtorch.metrics.kinds import Correlation, Share

__all__ = [
    "P4",
    "AccuracyDominanceArea",
    "Dominance",
    "LikelihoodRatio",
    "Markedness",
    "NetBenefit",
    "OptimizedPrecision",
    "WeightedAccuracy",
]


class WeightedAccuracy(Share):
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

    binary_only = True
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


class OptimizedPrecision(Correlation):
    """Optimized precision (OP); formula: :func:`imbtorch.measures.optimized_precision`.

    >>> metric = OptimizedPrecision("binary")
    >>> metric(torch.tensor([0.1, 0.2, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4167)
    """

    binary_only = True
    short = "op"
    measure = staticmethod(measures.optimized_precision)


class Markedness(Correlation):
    """Markedness; formula: :func:`imbtorch.measures.markedness`.

    >>> metric = Markedness("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    binary_only = True
    short = "markedness"
    measure = staticmethod(measures.markedness)


class P4(Share):
    """P4, the harmonic mean of precision, recall, specificity and NPV; formula: :func:`imbtorch.measures.p4`.

    >>> metric = P4("binary")
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.5000)
    """

    binary_only = True
    short = "p4"
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

    higher_is_better = True
    binary_only = True
    plot_lower_bound = 0.0
    needs_matrix = False
    short = "likelihood_ratio"
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
        self.__dict__["higher_is_better"] = positive  # torchmetrics refuses the assignment


class NetBenefit(ConfusionMatrixMetric):
    """Net benefit at the metric's ``threshold``, which sets the price of a false alarm as well as the predictions.

    Formula: :func:`imbtorch.measures.net_benefit`. Labels with thresholds of their own have prices of their own, and
    no ``average="micro"``, which would sum their counts before they are priced. A sweep over thresholds needs one price
    for all of them: ``ThresholdSweep(functools.partial(NetBenefit, threshold=0.2))``.

    >>> metric = NetBenefit("binary", threshold=0.2)
    >>> metric(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    tensor(0.4375)
    """

    higher_is_better = True
    binary_only = True
    needs_matrix = False
    reads_threshold = True
    short = "net_benefit"
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
