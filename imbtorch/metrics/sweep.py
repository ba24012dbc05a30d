"""Any binary measure at every threshold, from one histogram of scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.analysis.scores import (
    area,
    average_precision,
    matrices_of,
    partial_areas,
    precision_recall_curve,
    roc_curve,
    unresolved,
)
from imbtorch.counting import Counting, Task
from imbtorch.counts import Counts, double, evaluated
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import ConfusionMatrixMetric, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.histogram import Grid, Histogram
from imbtorch.metrics.resolving import Measured, resolved
from imbtorch.metrics.shared import SharedResult, checked_names
from imbtorch.metrics.state import Setting
from imbtorch.plots import plot_sweep

__all__ = ["ThresholdSweep"]


class ThresholdSweep(SharedResult):
    """A binary measure at every threshold, and the threshold where it is best.

    The state is a histogram of the scores of either class between the thresholds: an update costs O(batch), all
    processes are summed by one ``all_reduce``, and every measure, the ROC curve and its area come from it. A score
    strictly above the threshold predicts 1, as in all metrics here (torchmetrics' binned curves take ``>=``).

    The default thresholds lie in the space of logits, 4,097 edges to +-100, so that they are dense wherever scores
    crowd: near 0 for rare events, near 0 and 1 for over-confident models. On calibrated scores at prevalences from .5
    to 1e-4, and with logits of a quarter or four times their size, AUC, average precision, best F1 and best G-mean are
    within .002 of scikit-learn's exact ones (101 even thresholds: AUC off by .18 at a prevalence of .001). ``compute``
    warns where a bin holds so many samples that this may not hold. Give ``logits=True`` where there are logits: in
    float32 probabilities of logits from 17 on are all 1. Half precision is read as float32. With many labels or classes
    a smaller number of thresholds saves memory: the default takes 64 kB for each::

        self.sweep = ThresholdSweep(imbtorch.IndexBalancedAccuracy, prefix="val_")
        self.sweep.update(scores, y)  # in validation_step
        self.log_dict(self.sweep)  # val_threshold and val_value, in on_validation_epoch_end

    The best threshold is chosen on the data that it is measured on, so its value there flatters: choose on validation
    data, measure on test data::

        best = sweep.compute()["threshold"].item()
        test = imbtorch.FScore("binary", threshold=best)

    Args:
        measure: metric class, instance or ``functools.partial`` of a class, or function of ``[..., 2, 2]`` counts. What
            has a positive class is read for it, functions of this package like their metrics.
        thresholds: their number, spaced evenly from 0 to 1, or a sorted tensor of thresholds in [0, 1]; by default
            those above. They are probabilities even with ``logits=True``, where logits are compared with theirs. They
            are rounded once to the dtype of the scores.
        task: ``"binary"``; ``"multilabel"``, each label apart; or ``"multiclass"`` with ``per_class=True``, each class
            against the rest.
        num_labels: number of labels.
        num_classes: number of classes.
        per_class: must be True for multiclass scores, which have no threshold of their own.
        class_names: names of labels or classes, for the names of the values.
        higher_is_better: direction of a function; metric classes know theirs.
        prefix: comes before each name.
        postfix: comes after each name.
        logits: whether scores are logits (softmax over classes for multiclass, else sigmoid); never guessed.
        ignore_index: target of the samples to leave out.
        on_invalid: see :class:`ConfusionMatrixMetric`; scores outside [0, 1] are refused as there.
        weighted: whether ``update`` takes ``weight``, see there.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for thresholds outside [0, 1] or not sorted, and arguments that do not fit the task.
        TypeError: for a measure that is none.

    >>> from imbtorch import balanced_accuracy
    >>> sweep = ThresholdSweep(balanced_accuracy, thresholds=11)
    >>> sweep.update(torch.tensor([0.1, 0.2, 0.35, 0.3, 0.8]), torch.tensor([0, 0, 0, 1, 1]))
    >>> sweep.compute()
    {'threshold': tensor(0.2000, dtype=torch.float64), 'value': tensor(0.8333)}
    """

    thresholds = Setting[Tensor](
        lambda sweep: sweep._histogram.grid.thresholds.clone(), "Sorted thresholds, float64 ``[T]`` on the CPU."
    )
    class_names = Setting[tuple[str, ...]]("_class_names", "Names of labels or classes.")

    def __init__(
        self,
        measure: Measured,
        thresholds: int | Tensor | None = None,
        task: Task = "binary",
        *,
        num_labels: int | None = None,
        num_classes: int | None = None,
        per_class: bool = False,
        class_names: Sequence[str] | None = None,
        higher_is_better: bool = True,
        prefix: str = "",
        postfix: str = "",
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        weighted: bool = False,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if per_class != (task == "multiclass"):
            raise ValueError(
                "task='multiclass' needs per_class=True (each class against the rest); other tasks have no classes"
            )
        counting = Counting.of(task, num_classes, num_labels, 0.5, logits, ignore_index, weighted=weighted)
        if class_names is not None and task == "binary":
            raise ValueError("class_names have no place in task='binary', whose values are one threshold and one value")
        grid = Grid.of(thresholds, counting.logits)
        histogram = Histogram(counting, grid, grid.edges)
        super().__init__(counting, on_invalid, histogram, **kwargs)
        self._class_names = tuple(
            map(str, range(histogram.labels)) if class_names is None else checked_names(class_names)
        )
        if len(self._class_names) != histogram.labels:
            raise ValueError(f"class_names must hold {histogram.labels} names, got {len(self._class_names)}")
        self._measure = _swept_measure(measure, higher_is_better)
        directions: dict[str, bool | None] = dict.fromkeys(self._names("threshold"))
        directions |= dict.fromkeys(self._names("value"), self._measure.traits.higher_is_better)
        self._name(directions, prefix, postfix)

    @property
    def _histogram(self) -> Histogram:
        return cast(Histogram, self._counter)

    def _names(self, name: str) -> list[str]:
        return [name] if self.task == "binary" else [f"{name}/{label}" for label in self._class_names]

    def _label(self, index: int) -> str:
        return str(index) if self.task == "binary" else self._class_names[index]

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        super()._apply(fn, exclude_state, recurse)
        self._counter = self._histogram.on(self._state.device)
        return self

    def _shown_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"measure": self._measure.traits.measure}
        grid = self._histogram.grid
        shown |= {} if grid.name == DEFAULT else {"thresholds": len(grid.thresholds)}
        return shown | super()._shown_arguments()

    def _settings_text(self) -> str:
        traits, names = self._measure.traits, self._class_names
        return f"{super()._settings_text()} {canonical((traits.measure, self._measure.arguments, names))}"

    # --- computing --------------------------------------------------------------------------------------------------

    def _evaluated(self, counts: Counts) -> dict[str, Tensor]:
        return self._best(cast(Tensor, counts))

    def compute(self) -> dict[str, Tensor]:
        """Best threshold and the value there, of all scores of all processes; ``<name>/<label>`` for several labels.

        Of equal values the lowest threshold is taken. Thresholds are float64: round them to the dtype of the scores.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._histogram.counts(self._state)
        actual = counts.sum(-1)
        self._report_problems(actual[:, 1] if self.task == "multiclass" else actual)
        self._warn_of_crowds(counts)
        return self._keep(self._own(counts), self._best(counts))

    def _warn_of_crowds(self, histogram: Tensor) -> None:
        """Warn where the samples of a bin could move an area by too much, if their scores differ."""
        if self._histogram.grid.name != DEFAULT or not self._may_warn("crowded"):
            return
        lost, held = unresolved(histogram), histogram.sum(-2)
        lost = torch.where(held >= CROWD, lost, 0.0).flatten()
        place = lost.argmax()
        most, samples, place = torch.stack((lost[place], held.flatten()[place], place)).tolist()
        if most <= TOLERANCE:
            return
        index = int(place) % held.shape[-1]
        above = f"above {self.thresholds[index - 1]:.10g}" if index else "so low"
        remedy = "" if self.logits else "; pass logits with logits=True, of which float32 tells more apart"
        self._warn_once(
            "crowded",
            f"{type(self).__name__}: {samples:g} scores {above} fall between two thresholds; unless they are equal, "
            f"AUC or average precision may be off by {most:.3f}{remedy}",
        )

    def _best(self, histogram: Tensor) -> dict[str, Tensor]:
        values, higher = self._at_each_threshold(histogram), self._measure.traits.higher_is_better
        ranked = values.nan_to_num(nan=-torch.inf if higher else torch.inf)
        best = ranked.argmax(-1, keepdim=True) if higher else ranked.argmin(-1, keepdim=True)
        thresholds = self._histogram.thresholds.to(best.device)[best].reshape(-1)
        found = {"threshold": thresholds, "value": self._narrow(values.gather(-1, best).reshape(-1))}
        return {
            each: value
            for name, part in found.items()
            for each, value in zip(self._names(name), part.unbind(), strict=True)
        }

    def _at_each_threshold(self, histogram: Tensor) -> Tensor:
        """Value ``[..., T]`` of the measure at each threshold."""
        return evaluated(self._measure, double(self._matrices(histogram)))  # int64 would divide in float32

    def _matrices(self, histogram: Tensor) -> Tensor:
        """Counts at each threshold; edges that no threshold can name come last."""
        return matrices_of(histogram)[..., : len(self._histogram.thresholds), :, :]

    def matrices(self) -> Tensor:
        """Counts ``[T, 2, 2]`` (``[L, T, 2, 2]``) at each threshold of the last computed result; never communicates."""
        return self._matrices(self._counted())

    def curve(self) -> tuple[Tensor, Tensor]:
        """Thresholds ``[T]`` and values ``[T]`` (``[L, T]``) of the last computed result; never communicates."""
        return self.thresholds, self._at_each_threshold(self._counted()).cpu()

    def roc_points(self) -> tuple[Tensor, Tensor]:
        """False and true positive rates ``[B + 1]`` (``[L, B + 1]``) around B bins, rising from (0, 0) to (1, 1).

        Of the last computed result; never communicates. nan for a class without targets.
        """
        return roc_curve(self._counted())

    def precision_recall_points(self) -> tuple[Tensor, Tensor]:
        """Recalls and precisions ``[B]`` (``[L, B]``), from the highest threshold to one below all scores.

        Of the last computed result; never communicates. Precisions are nan where nothing is predicted.
        """
        return precision_recall_curve(self._counted())

    def auc(self) -> Tensor:
        """Area under the ROC curve through :meth:`roc_points` by the trapezoid rule, ``[]`` or ``[L]``."""
        return area(self._counted())

    def average_precision(self) -> Tensor:
        """Mean precision at the score of each positive, as scikit-learn's and torchmetrics', ``[]`` or ``[L]``."""
        return average_precision(self._counted())

    def partial_auc(self) -> Tensor:
        """What the point of each threshold contributes to the area with its two neighbours, ``[T]`` or ``[L, T]``.

        In the order of the thresholds. Source: Liu, Ghosh and Martin (2007), eq. 3.
        """
        return partial_areas(self._counted())[..., : len(self._histogram.thresholds)]

    def _counted(self) -> Tensor:
        """Histogram of the last computed result."""
        return cast(Tensor, self.result().counts)

    # --- looks ------------------------------------------------------------------------------------------------------

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measure over the thresholds, with the best one and .5 marked; never communicates.

        Args:
            val: not used; the curve is that of the last computed result.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        thresholds, values = self.curve()
        found = self._best(self._counted())
        points = [[found[each].cpu().double() for each in self._names(name)] for name in ("threshold", "value")]
        best = torch.stack([torch.stack(part) for part in points], -1)
        return plot_sweep(
            thresholds,
            values,
            ax,
            best=best[0] if self.task == "binary" else best,
            labels=self._class_names,
            name=str(getattr(self._measure.traits.measure, "__name__", "value")).replace("_", " "),
        )


DEFAULT = Grid.of(None, False).name
TOLERANCE = 0.002  # of an area
CROWD = 100  # samples of a bin from which a warning is worth its line


def _swept_measure(measured: Measured, higher_is_better: bool) -> AveragedMeasure:
    """The measure as it is read of binary counts, with a direction; tried at once, not at the end of an epoch."""
    binary = Counting.of("binary")
    if isinstance(measured, ConfusionMatrixMetric):
        if measured.task != "binary":
            raise ValueError(f"a sweep reads binary counts; make the metric with task='binary', got {measured!r}")
        binary = measured._counting
    found = resolved("measure", measured, binary, batched=True)
    if found.traits.higher_is_better is None:
        if isinstance(measured, (type, ConfusionMatrixMetric)):
            raise ValueError(f"{found.traits.name} has no direction in which it could be best; give a function")
        found = found.towards(higher_is_better)
    evaluated(found, torch.ones(3, 2, 2, dtype=torch.float64, device="cpu"))
    return found
