"""Any binary measure at every threshold, from one histogram of scores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.batches import FAULTS, Batch, add_batch
from imbtorch.counting import Counting, Task
from imbtorch.counts import Counts, double, evaluated
from imbtorch.kernels import Table, integers
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric
from imbtorch.metrics.resolving import Measured, resolved
from imbtorch.metrics.shared import SharedResult, checked_names
from imbtorch.metrics.state import Setting
from imbtorch.plots import plot_sweep

__all__ = ["ThresholdSweep"]


class ThresholdSweep(SharedResult):
    """A binary measure at every threshold, and the threshold where it is best.

    The state is a histogram of the scores of either class between the thresholds: an update costs O(batch), all
    processes are summed by one ``all_reduce``, and every measure, the ROC curve and its area come from it. A score
    strictly above the threshold predicts 1, as in all metrics here (torchmetrics' binned curves take ``>=``)::

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
        thresholds: their number, spaced evenly from 0 to 1, or a sorted tensor of thresholds in [0, 1]. They are
            rounded once to the dtype of the scores.
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
        lambda sweep: sweep._histogram.edges.cpu().double().clone(), "Sorted thresholds, float64 ``[T]`` on the CPU."
    )
    class_names = Setting[tuple[str, ...]]("_class_names", "Names of labels or classes.")

    def __init__(
        self,
        measure: Measured,
        thresholds: int | Tensor = 101,
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
        histogram = Histogram(counting, _grid(thresholds))
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
        shown = {"measure": self._measure.traits.measure, "thresholds": len(self._histogram.edges)}
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
        return self._keep(self._own(counts), self._best(counts))

    def _best(self, histogram: Tensor) -> dict[str, Tensor]:
        values, higher = self._at_each_threshold(histogram), self._measure.traits.higher_is_better
        ranked = values.nan_to_num(nan=-torch.inf if higher else torch.inf)
        best = ranked.argmax(-1, keepdim=True) if higher else ranked.argmin(-1, keepdim=True)
        thresholds = self._histogram.edges.to(best.device)[best].reshape(-1)
        found = {"threshold": thresholds, "value": self._narrow(values.gather(-1, best).reshape(-1))}
        return {
            each: value
            for name, part in found.items()
            for each, value in zip(self._names(name), part.unbind(), strict=True)
        }

    def _at_each_threshold(self, histogram: Tensor) -> Tensor:
        """Value ``[..., T]`` of the measure at each threshold."""
        return evaluated(self._measure, double(matrices_of(histogram)))  # int64 would divide in float32

    def matrices(self) -> Tensor:
        """Counts ``[T, 2, 2]`` (``[L, T, 2, 2]``) at each threshold of the last computed result; never communicates."""
        return matrices_of(self._counted())

    def curve(self) -> tuple[Tensor, Tensor]:
        """Thresholds ``[T]`` and values ``[T]`` (``[L, T]``) of the last computed result; never communicates."""
        return self.thresholds, self._at_each_threshold(self._counted()).cpu()

    def roc_points(self) -> tuple[Tensor, Tensor]:
        """False and true positive rates ``[T + 2]`` (``[L, T + 2]``), rising from (0, 0) to (1, 1).

        Of the last computed result; never communicates. nan for a class without targets.
        """
        rates = double(self.matrices().flip(-3))  # rising rates
        rates = rates[..., 1] / rates.sum(-1)  # [..., T, 2]: false, true positive rate
        ends = torch.zeros_like(rates[..., :1, :]), torch.ones_like(rates[..., :1, :])
        points = torch.cat((ends[0], rates, ends[1]), -2)
        return points[..., 0], points[..., 1]

    def auc(self) -> Tensor:
        """Area under the ROC curve through :meth:`roc_points` by the trapezoid rule, ``[]`` or ``[L]``."""
        false, true = self.roc_points()
        return torch.trapezoid(true, false)

    def partial_auc(self) -> Tensor:
        """What each point contributes to the area with its two neighbours on the ROC curve, ``[T]`` or ``[L, T]``.

        In the order of the thresholds; :func:`imbtorch.analysis.partial_auc` has that of a point and neighbours of your
        own. Source: Liu, Ghosh and Martin (2007), eq. 3.
        """
        false, true = self.roc_points()
        steps = (false[..., 1:] - false[..., :-1]) * (true[..., 1:] + true[..., :-1]) / 2
        return (steps[..., :-1] + steps[..., 1:]).flip(-1)

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


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of the scores of either class between thresholds: ``[2, T + 1]``, ``[L, 2, T + 1]`` of several labels.

    Attributes:
        counting: how predictions and targets are read.
        edges: sorted thresholds ``[T]``; a bin holds the scores above one of them, up to the next.
    """

    counting: Counting
    edges: Tensor

    @property
    def labels(self) -> int:
        """Number of histograms: of labels, or of classes against the rest."""
        return 1 if self.counting.task == "binary" else self.counting.size

    @property
    def table(self) -> Table:
        """Shape of the counts."""
        return Table(2, len(self.edges) + 1, self.labels)

    @property
    def cells(self) -> int:
        """Number of counts."""
        return self.table.cells

    @property
    def name(self) -> str:
        """An identifier that differs wherever the counts would."""
        digest = hashlib.sha256(self.edges.cpu().double().numpy().tobytes()).hexdigest()[:12]
        logits = "logits_" * (self.counting.logits and self.counting.task == "multiclass")
        return f"sweep_{len(self.edges)}_{digest}_{logits}{self.counting.name}"

    def on(self, device: torch.device) -> Histogram:
        """Return the same with its thresholds on a device, so that no update has to bring them there."""
        return replace(self, edges=self.edges.to(device, torch.float32 if device.type == "mps" else torch.float64))

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.cells + len(FAULTS), dtype=self.counting.dtype, device=device)

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch of scores, and find the bin of each.

        Raises:
            ValueError: as :meth:`Counting.read`.
            TypeError: as there, and for predictions that are no scores.
        """
        if not isinstance(preds, Tensor) or not preds.is_floating_point():
            got = preds.dtype if isinstance(preds, Tensor) else type(preds).__name__
            raise TypeError(f"preds must be floating scores to be swept, got {got}; pass probabilities or logits")
        self.counting.check(preds, target)
        truth, preds = integers(target), preds.detach()
        if self.counting.task == "multiclass":
            return self._against_the_rest(preds, truth)
        scores, uneven = self.counting.probabilities(preds, truth)
        return Batch(self._bins(scores), truth, scores, True, uneven)

    def _bins(self, scores: Tensor) -> Tensor:
        return torch.bucketize(scores.contiguous(), self.edges.to(scores.device, scores.dtype))

    def _against_the_rest(self, preds: Tensor, truth: Tensor) -> Batch:
        """Multiclass scores as those of labels; a sample that cannot be counted has its fault in all of them."""
        wide = preds.to(torch.promote_types(preds.dtype, torch.float32))
        scores = wide.softmax(1) if self.counting.logits else wide
        truth = truth.unsqueeze(1)
        classes = torch.arange(self.labels, device=truth.device).view(1, -1, *[1] * (truth.ndim - 2))
        one_hot = (truth == classes).long()
        outside = (truth < 0) | (truth >= self.labels)
        one_hot = torch.where(outside, truth, one_hot)  # which is neither 0 nor 1
        if self.counting.ignored_target is not None:
            one_hot = torch.where(truth == self.counting.ignored_target, LEFT_OUT, one_hot)
        least, most = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
        worst = torch.where(least < 0, least, most).expand_as(scores)  # NaN where one is
        return Batch(self._bins(scores), one_hot, worst, True)

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place; see :func:`imbtorch.batches.add_batch`."""
        if self.counting.task != "multiclass":
            add_batch(state, self.table, batch, self.counting.ignored_target, defer, self.counting.error_message)
            return
        add_batch(
            state,
            self.table,
            batch,
            None if self.counting.ignored_target is None else LEFT_OUT,
            defer,
            lambda fault, values, size: self.counting.error_message(fault, values[:: self.labels], size // self.labels),
        )

    def counts(self, state: Tensor) -> Tensor:
        """View a state as ``[..., 2, T + 1]``, ``[..., L, 2, T + 1]`` for several labels."""
        shape = (2, len(self.edges) + 1)
        lead = state.shape[:-1] if self.counting.task == "binary" else (*state.shape[:-1], self.labels)
        return state[..., : self.cells].reshape(*lead, *shape)

    def faults(self, state: Tensor) -> Tensor:
        """Tally of the samples that were not counted, in the order of :data:`FAULTS`."""
        tally = state[..., self.cells :]
        return tally // self.labels if self.counting.task == "multiclass" else tally


LEFT_OUT = -(2**62)  # in the place of an ignored class among 0 and 1


def matrices_of(histogram: Tensor) -> Tensor:
    """Counts ``[..., T, 2, 2]`` at each threshold, of a histogram ``[..., 2, T + 1]``."""
    positive = histogram.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    negative = histogram.sum(-1, keepdim=True) - positive
    return torch.stack((negative, positive), -1).transpose(-3, -2)


def _grid(thresholds: int | Tensor) -> Tensor:
    """Sorted float64 thresholds."""
    if isinstance(thresholds, Tensor):
        grid = thresholds.detach().cpu().double().flatten().clone()
        if grid.numel() == 0 or not bool((grid[1:] >= grid[:-1]).all()) or not 0 <= grid[0] <= grid[-1] <= 1:
            raise ValueError(
                f"thresholds must be sorted and lie in [0, 1], got {grid[:5].tolist()}...; thresholds.sort().values "
                "sorts them, and thresholds of logits are those of their sigmoid"
            )
        return grid
    if isinstance(thresholds, bool) or not isinstance(thresholds, int):
        raise TypeError(f"thresholds must be their number or a tensor, got {thresholds!r}")
    if thresholds < 2:
        raise ValueError(f"thresholds must be at least 2, got {thresholds}")
    return torch.arange(thresholds, dtype=torch.float64) / (thresholds - 1)


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
