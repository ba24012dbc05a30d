"""How a measure is read off the counts of a task: which counts it sees, and how its values become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from imbtorch.confusion import Counts, Margins, check_choice, double, margins, one_vs_rest, restore
from imbtorch.counting import Counting, Task
from imbtorch.measures import class_mean

if TYPE_CHECKING:
    from imbtorch.metric import ConfusionMatrixMetric

__all__ = ["Reading", "chosen_average"]


@dataclass(frozen=True)
class Reading:
    """How a measure is read off the counts of a task.

    Attributes:
        measure: function of counts.
        task: what was counted.
        average: how values of classes or labels become one; :func:`chosen_average` resolves ``"auto"``.
        averages: averages that the measure itself takes.
        binary_only: whether the measure takes two classes only.
        needs_matrix: whether it must see the matrix rather than margins.
        ignored: a class that takes no part in means.
        arguments: what the measure takes beside the counts.
    """

    measure: Callable[..., Tensor]
    task: Task
    average: str = "macro"
    averages: tuple[str, ...] = ()
    binary_only: bool = False
    needs_matrix: bool = False
    ignored: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, metric: type[ConfusionMatrixMetric], counting: Counting, average: str, **arguments: Any) -> Reading:
        """Read the measure of a metric class; the average must be one that it takes in this task."""
        return cls(
            metric.measure,
            counting.task,
            average,
            metric.averages,
            metric.binary_only,
            metric.needs_matrix,
            counting.ignored_class,
            arguments,
        )

    def __call__(self, counts: Counts) -> Tensor:
        """Value of ``[..., K, K]``, of ``[..., L, 2, 2]`` for multilabel, or of their :class:`Margins`."""
        if self.task == "multilabel":
            inner = "binary" if "binary" in self.averages else "macro"
            if self.average == "micro":
                summed = Margins(*(p.sum(-2) for p in counts)) if isinstance(counts, Margins) else counts.sum(-3)
                return self._measured(summed, inner)
            _, actual, predicted = margins(counts)
            values = double(self._measured(counts, inner))
            labels = class_mean(values, actual[..., 1], predicted[..., 1], self.average, samples=actual.sum(-1))
            return restore(labels, counts)
        if self.binary_only and self.task == "multiclass":
            _, actual, predicted = self._without_ignored(counts)
            values = double(self._measured(one_vs_rest(counts), ""))
            return restore(class_mean(values, actual, predicted, self.average), counts)
        return self._measured(counts, self.average)

    def _measured(self, counts: Counts, average: str) -> Tensor:
        if not self.averages:
            return self.measure(counts, **self.arguments)
        if self.ignored is not None and average in ("macro", "weighted", "none"):
            return restore(self.measure(self._without_ignored(counts), average=average, **self.arguments), counts)
        return self.measure(counts, average=average, **self.arguments)

    def _without_ignored(self, counts: Counts) -> Margins:
        """Margins in which the ignored class has neither targets nor predictions, so that no mean holds it."""
        result = margins(counts)
        if self.ignored is None:
            return result
        kept = torch.arange(result.actual.shape[-1], device=result.actual.device) != self.ignored
        return Margins(*(part * kept for part in result))


def chosen_average(metric: type[ConfusionMatrixMetric], task: Task, average: str = "auto") -> str:
    """Resolve ``"auto"``, and check an average against what a metric takes in a task.

    Raises:
        ValueError: for an average that has no meaning for the measure and task.
    """
    allowed = metric.averages
    if task == "multilabel":
        allowed = ("macro", "weighted", "none", "micro")
    elif metric.binary_only and task == "multiclass":
        allowed = ("macro", "weighted", "none")
    elif task == "multiclass":
        allowed = tuple(each for each in allowed if each != "binary")
    if average == "auto":
        return "binary" if task == "binary" and "binary" in allowed else "macro"
    if average is None:
        raise ValueError("average=None is spelled average='none' here (one value for each class)")
    if not allowed:
        raise ValueError(
            f"{metric.__name__} is one value of the whole matrix and takes no average in task={task!r}, got "
            f"{average!r}; BalancedAccuracy is the mean over classes"
        )
    check_choice(f"average of {metric.__name__} in task={task!r}", average, ("auto", *allowed))
    return average
