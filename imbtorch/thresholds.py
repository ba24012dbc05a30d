"""Any binary measure at every threshold, from one histogram of scores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch import metrics as catalogue
from imbtorch.confusion import Counts, double
from imbtorch.counting import Counting, Layout, Task, reading_is_free
from imbtorch.metric import ConfusionMatrixMetric, OnInvalid, TorchmetricsArguments
from imbtorch.named import NamedValues, checked_names
from imbtorch.plots import COLORS, LINES, figure_and_axes

__all__ = ["ThresholdSweep"]


class ThresholdSweep(NamedValues):
    """A binary measure at every threshold, and the threshold where it is best.

    The state is a histogram of the scores of either class between the thresholds: an update costs O(batch), all
    processes are summed by one ``all_reduce``, and every measure, the ROC curve and its area come from it. A score of
    at least the threshold predicts 1 (``>=``, as in torchmetrics' binned curves)::

        self.sweep = ThresholdSweep(imbtorch.IndexBalancedAccuracy, prefix="val_")
        self.sweep.update(scores, y)  # in validation_step
        self.log_dict(self.sweep)  # val_threshold and val_value, in on_validation_epoch_end

    The best threshold is chosen on the data that it is measured on, so its value there flatters: choose on validation
    data, measure on test data. Metrics predict 1 *above* their ``threshold``, so hand it over one step lower, a step of
    the dtype of the scores (only at threshold 0 a score of 0 is then left to class 0)::

        best = sweep.compute()["threshold"].to(scores.dtype)
        test = imbtorch.FScore("binary", threshold=torch.nextafter(best, torch.zeros_like(best)).item())

    Args:
        measure: metric class (its positive class, where it has one) or function of ``[..., 2, 2]`` counts; the
            functions that have a positive class are read for it, like their metrics.
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
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for thresholds outside [0, 1] or not sorted, and arguments that do not fit the task.
        TypeError: for a measure that is none.

    >>> from imbtorch import balanced_accuracy
    >>> sweep = ThresholdSweep(balanced_accuracy, thresholds=11)
    >>> sweep.update(torch.tensor([0.1, 0.2, 0.35, 0.3, 0.8]), torch.tensor([0, 0, 0, 1, 1]))
    >>> sweep.compute()
    {'threshold': tensor(0.3000, dtype=torch.float64), 'value': tensor(0.8333)}
    """

    def __init__(
        self,
        measure: type[ConfusionMatrixMetric] | Callable[[Tensor], Tensor],
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
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if per_class != (task == "multiclass"):
            raise ValueError(
                "task='multiclass' needs per_class=True (each class against the rest); other tasks have no classes"
            )
        counting = Counting.of(task, num_classes, num_labels, 0.5, logits, ignore_index)  # checks what fits the task
        size = 1 if task == "binary" else cast(int, num_classes if task == "multiclass" else num_labels)
        grid = _grid(thresholds)
        digest = hashlib.sha256(grid.numpy().tobytes()).hexdigest()[:12]
        super().__init__(
            _Binning(
                "binary" if task == "binary" else "multilabel",
                size,
                logits=logits and task != "multiclass",
                ignore_index=ignore_index if task != "multiclass" or ignore_index is None else -1,
                thresholds=grid,
                kind=f"{counting.name}_{'logits_' * logits}{len(grid)}_{digest}",
            ),
            on_invalid,
            **kwargs,
        )
        self.measure, self.higher_is_best = _positive_class(measure, higher_is_better)
        self.swept_task, self.swept_logits, self.swept_ignore = task, logits, ignore_index
        self.thresholds = grid
        if class_names is not None and task == "binary":
            raise ValueError("class_names have no place in task='binary', whose values are one threshold and one value")
        self.class_names = [str(i) for i in range(size)] if class_names is None else checked_names(class_names)
        if len(self.class_names) != size:
            raise ValueError(f"class_names must hold {size} names, got {len(self.class_names)}")
        better: dict[str, bool | None] = dict.fromkeys(self._names("threshold"))
        self._name(better | dict.fromkeys(self._names("value"), self.higher_is_best), prefix, postfix)

    def _names(self, name: str) -> list[str]:
        return [name] if self.swept_task == "binary" else [f"{name}/{label}" for label in self.class_names]

    def _label(self, index: int) -> str:
        return self.class_names[index] if self.swept_task != "binary" else str(index)

    @property
    def _function(self) -> Callable[..., Tensor]:
        """The measure without its average."""
        return self.measure.func if isinstance(self.measure, partial) else self.measure

    def _shown_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"measure": self._function, "thresholds": len(self.thresholds), "task": self.swept_task}
        if self.swept_task != "binary":
            shown["num_labels" if self.swept_task == "multilabel" else "num_classes"] = len(self.class_names)
        if self.swept_logits:
            shown["logits"] = True
        return shown if self.swept_ignore is None else shown | {"ignore_index": self.swept_ignore}

    def _reads_matrix(self) -> bool:
        return True

    # --- counting ---------------------------------------------------------------------------------------------------

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count a batch of scores.

        Args:
            preds: floating scores ``[N, ...]`` (binary), ``[N, L, ...]`` (multilabel) or ``[N, C, ...]`` (multiclass).
            target: 0/1 or class indices, as in :meth:`ConfusionMatrixMetric.update`.

        Raises:
            ValueError: as there.
            TypeError: for predictions that are no scores.
        """
        super().update(*self._against_the_rest(preds, target))

    def forward(self, preds: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Count a batch and return its own best threshold and value; arguments as for :meth:`update`."""
        values: dict[str, Tensor] = super().forward(*self._against_the_rest(preds, target))
        return values

    def _against_the_rest(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Multiclass scores and targets as those of labels, each class against the rest."""
        if not isinstance(preds, Tensor) or not preds.is_floating_point():
            got = preds.dtype if isinstance(preds, Tensor) else type(preds).__name__
            raise TypeError(f"preds must be floating scores to be swept, got {got}; pass probabilities or logits")
        if self.swept_task != "multiclass":
            return preds, target
        size = len(self.class_names)
        counting = Counting.of("multiclass", size, ignore_index=self.swept_ignore)
        counting.check(preds, target)
        truth = target.long().unsqueeze(1)
        kept = truth != self.swept_ignore if self.swept_ignore is not None else torch.ones_like(truth, dtype=torch.bool)
        wrong = kept & ((truth < 0) | (truth >= size))
        if reading_is_free(truth) and not self._defer() and bool(wrong.any()):
            raise ValueError(counting._complaint(0, truth[wrong], truth.numel()))
        classes = torch.arange(size, device=truth.device).view(1, -1, *[1] * (truth.ndim - 2))
        one_hot = (truth == classes).long().masked_fill(wrong, 2).masked_fill(~kept, -1)
        return (preds.softmax(1) if self.swept_logits else preds), one_hot

    # --- computing --------------------------------------------------------------------------------------------------

    def _reported(self, counts: Counts) -> dict[str, Tensor]:
        return {f"{self.prefix}{name}{self.postfix}": value for name, value in self._best(counts).items()}

    def compute(self) -> dict[str, Tensor]:
        """Best threshold and the value there, of all scores of all processes; ``<name>/<label>`` for several labels.

        Of equal values the lowest threshold is taken. Thresholds are float64: round them to the dtype of the scores.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._counting.counts(self._state)
        self._tell(counts)
        return self._keep(counts, self._best(counts))

    def _best(self, counts: Counts) -> dict[str, Tensor]:
        values = self._swept(cast(Tensor, counts))
        worst = -torch.inf if self.higher_is_best else torch.inf
        ranked = values.nan_to_num(nan=worst)
        best = ranked.argmax(-1, keepdim=True) if self.higher_is_best else ranked.argmin(-1, keepdim=True)
        found = {
            "threshold": self.thresholds.to(best.device)[best].reshape(-1),
            "value": self._narrow(values.gather(-1, best).reshape(-1)),
        }
        return {
            each: value
            for name, part in found.items()
            for each, value in zip(self._names(name), part.unbind(), strict=True)
        }

    def _matrices(self, histogram: Tensor) -> Tensor:
        """Counts ``[..., T, 2, 2]`` at each threshold, of a histogram ``[..., 2, T + 1]``."""
        positive = histogram.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        negative = histogram.sum(-1, keepdim=True) - positive
        return torch.stack((negative, positive), -1).transpose(-3, -2)

    def _swept(self, histogram: Tensor) -> Tensor:
        """Value ``[..., T]`` of the measure at each threshold."""
        matrices = self._matrices(histogram)
        values = self.measure(double(matrices))  # int64 counts would be divided in float32
        if values.shape != matrices.shape[:-2]:
            raise ValueError(f"measure must return one value for each [2, 2], got {list(values.shape)}")
        return double(values)

    def matrices(self) -> Tensor:
        """Counts ``[T, 2, 2]`` (``[L, T, 2, 2]``) at each threshold of the last computed result; never communicates."""
        return self._matrices(cast(Tensor, self._last().counts))

    def curve(self) -> tuple[Tensor, Tensor]:
        """Thresholds ``[T]`` and values ``[T]`` (``[L, T]``) of the last computed result; never communicates."""
        return self.thresholds, self._swept(cast(Tensor, self._last().counts)).cpu()

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

        In the order of the thresholds. Source: Liu, Ghosh and Martin (2007), eq. 3.
        """
        false, true = self.roc_points()
        steps = (false[..., 1:] - false[..., :-1]) * (true[..., 1:] + true[..., :-1]) / 2
        return (steps[..., :-1] + steps[..., 1:]).flip(-1)

    @property
    def confmat(self) -> Tensor:
        """Refuse: a sweep has a matrix for each threshold, see :meth:`matrices`."""
        raise TypeError("a sweep keeps a histogram, not a matrix; matrices() gives the matrix of each threshold")

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
        lines = values.reshape(-1, len(thresholds))
        name = str(getattr(self._function, "__name__", "value")).replace("_", " ")
        figure, ax = figure_and_axes(ax)
        best = self._best(self._last().counts)
        for index, (line, label) in enumerate(zip(lines, self.class_names, strict=True)):
            color, style = COLORS[index % len(COLORS)], LINES[index % len(LINES)]
            shown = None if len(lines) == 1 else label
            ax.plot(thresholds.tolist(), line.tolist(), style, color=color, label=shown)
            threshold, value = (float(best[self._names(each)[index]]) for each in ("threshold", "value"))
            ax.plot([threshold], [value], "o", color=color)
            text = f"{value:.3f} at {threshold:.2f}"
            ax.annotate(text, (threshold, value), (0, 7), textcoords="offset points", ha="center")
        ax.axvline(0.5, color="0.4", linestyle="dotted", linewidth=1)
        ax.margins(y=0.12)  # room for the text above the best point
        ax.set(xlabel="Threshold", ylabel=name, xlim=(0, 1))
        if len(lines) > 1:
            ax.legend(fontsize="small")
        return figure, ax


@dataclass(frozen=True, eq=False)
class _Binning(Counting):
    """Counting into histograms ``[2, T + 1]`` of scores: the bin takes the place of the predicted class."""

    thresholds: Tensor = field(default_factory=lambda: torch.zeros(0))
    kind: str = ""
    layout: Layout = "matrix"

    @property
    def bins(self) -> int:
        return len(self.thresholds) + 1

    @property
    def cells(self) -> int:
        return 2 * self.bins * (1 if self.task == "binary" else self.size)

    @property
    def name(self) -> str:
        return f"sweep_{self.kind}_{super().name}"

    def counts(self, state: Tensor) -> Tensor:
        shape = (2, self.bins) if self.task == "binary" else (self.size, 2, self.bins)
        return state[..., : self.cells].reshape(*state.shape[:-1], *shape)

    def _labels(self, preds: Tensor) -> tuple[Tensor, Tensor | None]:
        chances = preds.sigmoid() if self.logits else preds
        rounded = self.thresholds.to(device=preds.device, dtype=preds.dtype)
        wide = torch.float64 if preds.dtype == torch.float64 else torch.float32
        return torch.bucketize(chances.to(wide).contiguous(), rounded.to(wide), right=True), chances

    @property
    def _columns(self) -> int:
        return self.bins


def _grid(thresholds: int | Tensor) -> Tensor:
    """Sorted float64 thresholds."""
    if isinstance(thresholds, Tensor):
        grid = thresholds.detach().cpu().double().flatten()
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


def _positive_class(
    measure: type[ConfusionMatrixMetric] | Callable[[Tensor], Tensor], higher_is_better: bool
) -> tuple[Callable[[Tensor], Tensor], bool]:
    """Function of ``[..., 2, 2]`` that reads the positive class where the measure has one, and its direction."""
    classes: dict[Any, type[ConfusionMatrixMetric]]
    classes = {getattr(catalogue, name).measure: getattr(catalogue, name) for name in catalogue.__all__}
    if isinstance(measure, type) and issubclass(measure, ConfusionMatrixMetric):
        if measure.higher_is_better is None:
            raise ValueError(f"{measure.__name__} has no direction in which it could be best; give a function")
        found, higher_is_better = measure, bool(measure.higher_is_better)
    elif callable(measure):
        if measure not in classes:
            return cast(Callable[[Tensor], Tensor], measure), higher_is_better
        found = classes[measure]
        if found.higher_is_better is not None:
            higher_is_better = bool(found.higher_is_better)
    else:
        raise TypeError(f"measure must be a metric class or a function of counts, got {measure!r}")
    function = found.measure
    return (partial(function, average="binary") if "binary" in found.averages else function), higher_is_better
