"""Any binary measure at every threshold, from one histogram of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.choosing.thresholds import OperatingPoint
from imbtorch.counts import Counts, check_choice, double, evaluated
from imbtorch.inference.intervals import Interval
from imbtorch.inference.scores import unresolved
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric
from imbtorch.metrics.histogram import Grid, Histogram
from imbtorch.metrics.limits import priced_text
from imbtorch.metrics.resolving import Measured, as_given, metric_class, resolved
from imbtorch.metrics.shared_result import SharedResult, checked_names
from imbtorch.metrics.state import Setting
from imbtorch.metrics.sweep_result import Also, SweepReading, SweepResult
from imbtorch.tasks import Counting, Task

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

    The best threshold is chosen on the data that it is measured on, so its value there flatters:
    ``interval("value")`` corrects it. Choose on validation data, measure on test data::

        sweep.compute()
        test = sweep.metric(imbtorch.FScore)  # with the best threshold
        test = sweep.metric(imbtorch.FScore, at=sweep.best(at_least={"recall": 0.8}, sure=0.9))

    By ``also`` values without a threshold are logged beside it, all of which :meth:`interval` knows:

    - ``"auc"``: area under the ROC curve.
    - ``"average_precision"``: mean precision at the score of each positive, which falls with the prevalence.
      Like ``"auc"`` it comes for several labels or classes as ``<name>/<label>``, and as ``<name>``, their mean (macro
      average) over those that have targets of both classes.
    - ``"partial_auc"``: what the point at the best threshold contributes to the area with its two neighbours on the
      curve (Liu, Ghosh and Martin 2007, eq. 3). It is not McClish's partial area (1989), which cuts the curve at a
      greatest false positive rate and is what scikit-learn's ``max_fpr`` means. It depends on how near the neighbouring
      points are, hence on the number of samples: compare models on the same samples only.

    Args:
        measure: metric class, instance or ``functools.partial`` of a class, or function of ``[..., 2, 2]`` counts. What
            has a positive class is read for it, functions of this package like their metrics. Net benefit needs the
            one price at which all thresholds are compared, as in ``functools.partial(NetBenefit, threshold=0.2)``.
        thresholds: their number, spaced evenly from 0 to 1, or a sorted tensor of thresholds in [0, 1]; by default
            those above. They are probabilities even with ``logits=True``, where logits are compared with theirs. They
            are rounded once to the dtype of the scores.
        task: ``"binary"``; ``"multilabel"``, each label apart; or ``"multiclass"`` with ``per_class=True``, each class
            against the rest.
        num_labels: number of labels.
        num_classes: number of classes.
        per_class: must be True for multiclass scores, which have no threshold of their own.
        class_names: names of labels or classes, for the names of the values.
        also: names of further values, see above.
        prevalence: shares of the classes in the population that everything is read at, in any unit: of the negatives
            and positives, ``[0.999, 0.001]``; of each class; for multilabel the share of positives of each label. By
            default those that were counted. Counts, ROC curve and AUC do not move. The classes that make up the rest
            beside one class keep their shares among themselves.
        higher_is_better: direction of a function of your own; measures of this package know theirs, and one without a
            direction (dominance) is refused unless given as ``(function, True)``.
        prefix: comes before each name.
        postfix: comes after each name.
        logits: whether scores are logits (softmax over classes for multiclass, else sigmoid); never guessed.
        ignore_index: target of the samples to leave out.
        on_invalid: see :class:`ConfusionMatrixMetric`; scores outside [0, 1] are refused as there.
        weighted: whether ``update`` takes ``weight``, see there.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for thresholds outside [0, 1] or not sorted, arguments that do not fit the task, a measure without a
            direction, and net benefit without a price.
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
    also = Setting[tuple[str, ...]]("_also", "Further values.")
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
        also: Sequence[Also] = (),
        prevalence: Tensor | Sequence[float] | None = None,
        higher_is_better: bool = True,
        prefix: str = "",
        postfix: str = "",
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        weighted: bool = False,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if isinstance(thresholds, str):
            raise TypeError(f"thresholds must be their number or a tensor, got {thresholds!r}; use task={thresholds!r}")
        if per_class != (task == "multiclass"):
            raise ValueError(
                "task='multiclass' needs per_class=True (each class against the rest); other tasks have no classes"
            )
        counting = Counting.of(task, num_classes, num_labels, 0.5, logits, ignore_index, weighted=weighted)
        if class_names is not None and task == "binary":
            raise ValueError(
                "class_names have no place in task='binary', whose values are one threshold and one value; leave them "
                "out, or name another task"
            )
        grid = Grid.of(thresholds, counting.logits)
        histogram = Histogram(counting, grid, grid.edges)
        super().__init__(counting, on_invalid, histogram, **kwargs)
        self._class_names = tuple(
            map(str, range(histogram.labels)) if class_names is None else checked_names(class_names)
        )
        if len(self._class_names) != histogram.labels:
            raise ValueError(f"class_names must hold {histogram.labels} names, got {len(self._class_names)}")
        self._measure = _swept_measure(measure, higher_is_better)
        self._also = _checked_also(also)
        self._priors = None if prevalence is None else counting.class_priors(prevalence, "prevalence")
        self._reading = SweepReading(
            counting,
            self._class_names,
            self._measure,
            self._measure.traits.key or str(getattr(self._measure.function, "__name__", "value")),
            grid.thresholds,
            self._also,
            self._priors,
            crowded=grid.name == DEFAULT,
        )
        self._name(self._reading.rows, prefix, postfix)

    @property
    def _histogram(self) -> Histogram:
        return cast(Histogram, self._counter)

    def _label(self, index: int) -> str:
        return str(index) if self.task == "binary" else self._class_names[index]

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        super()._apply(fn, exclude_state, recurse)
        self._counter = self._histogram.on(self._state.device)
        return self

    def _shown_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"measure": self._measure.function}
        grid = self._histogram.grid
        shown |= {} if grid.name == DEFAULT else {"thresholds": len(grid.thresholds)}
        shown |= {"also": self.also} if self.also else {}
        shown |= {} if self.prevalence is None else {"prevalence": list(self.prevalence)}
        return shown | super()._shown_arguments()

    def _settings_text(self) -> str:
        read = self._measure.function, self._measure.arguments, self._class_names
        return f"{super()._settings_text()} {canonical(read)}"

    # --- computing --------------------------------------------------------------------------------------------------

    def _reported(self, counts: Counts) -> dict[str, Tensor]:
        values = self._reading.values(cast(Tensor, counts))
        return self._by_full_name({row.name: value for row, value in values.items()})

    def compute(self) -> dict[str, Tensor]:
        """Best threshold and the value there, of all scores of all processes; ``<name>/<label>`` for several labels.

        Of equal values the lowest threshold is taken. Thresholds are float64: round them to the dtype of the scores.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._histogram.counts(self._own(self._state))
        actual = counts.sum(-1)
        self._report_problems(actual[:, 1] if self.task == "multiclass" else actual, self._priors)
        self._warn_of_crowds(counts)
        return self._keep(SweepResult(self._reading.values(counts), counts, self._reading))

    def _warn_of_crowds(self, histogram: Tensor) -> None:
        """Warn where the samples of a bin could move an area by too much, if their scores differ."""
        if self._histogram.grid.name != DEFAULT or not self._may_warn("crowded"):
            return
        lost, held = unresolved(histogram), double(histogram).sum(-2)
        lost = torch.where(held >= CROWD, lost, 0.0).flatten()
        place = lost.argmax()
        most, samples, place = torch.stack((lost[place], held.flatten()[place], place)).tolist()
        if most <= TOLERANCE:
            return
        index, grid = int(place) % held.shape[-1], self._histogram.grid
        if index == 0:
            above = "so low"
        elif index <= len(grid.thresholds):
            above = f"above {grid.thresholds[index - 1]:.10g}"
        else:
            above = f"of a logit above {grid.edges[index - 1]:.4g}"
        remedy = "" if self.logits else "; pass logits with logits=True, of which float32 tells more apart"
        self._warn_once(
            "crowded",
            f"{type(self).__name__}: {samples:g} scores {above} fall between two thresholds; unless they are equal, "
            f"AUC or average precision may be off by {most:.3f}{remedy}",
        )

    # --- of the last result -----------------------------------------------------------------------------------------

    def result(self) -> SweepResult:
        """Return the last computed result, which has the curves, and can be asked and pickled; never communicates.

        On a single process it is computed anew if counts came since; after ``reset`` the last result stays.

        Raises:
            RuntimeError: if several processes count and nothing was computed yet.
        """
        return cast(SweepResult, super().result())

    def interval(self, name: str, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """Return how sure a value of the last result is, as :meth:`SweepResult.interval` does; never communicates."""
        return self.result().interval(name, level, generator)

    def best(
        self,
        at_least: Mapping[str, float] | None = None,
        *,
        alerts: float | None = None,
        costs: Tensor | Sequence[Sequence[float]] | None = None,
        sure: float | None = None,
        generator: torch.Generator | None = None,
    ) -> OperatingPoint | dict[str, OperatingPoint]:
        """Return the best threshold of the last result within limits, as :meth:`SweepResult.best` does."""
        return self.result().best(at_least, alerts=alerts, costs=costs, sure=sure, generator=generator)

    def metric(
        self,
        cls: Callable[..., M],
        at: OperatingPoint | Mapping[str, OperatingPoint] | None = None,
        **arguments: Any,
    ) -> M:
        """Make a metric with the best threshold of the last result, as :meth:`SweepResult.metric` does."""
        return self.result().metric(cls, at, **arguments)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measure over the thresholds of the last result; :meth:`SweepResult.plot` draws the curves as well.

        Args:
            val: not used; the curve is that of the last computed result.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        return cast("tuple[Any, Any]", self.result().plot("value", ax))


M = TypeVar("M")
DEFAULT = Grid.of(None, False).name
TOLERANCE = 0.002  # of an area
CROWD = 100  # samples of a bin from which a warning is worth its line


def _swept_measure(measured: Measured, higher_is_better: bool) -> AveragedMeasure:
    """The measure as it is read of binary counts, with a direction; tried at once, not at the end of an epoch."""
    bare, direction = as_given("measure", measured)
    metric, keywords = metric_class(bare)
    binary = Counting.of("binary")
    if isinstance(bare, ConfusionMatrixMetric):
        if bare.task != "binary":
            raise ValueError(f"a sweep reads binary counts; make the metric with task='binary', got {bare!r}")
        binary = bare._counting
    elif metric is None:  # a function of the user's own
        direction = higher_is_better if direction is None else direction
    elif metric.reads_threshold:
        if "threshold" not in keywords:
            raise ValueError(priced_text("measure", metric.__name__))
        binary = Counting.of("binary", threshold=keywords["threshold"])
    found = resolved("measure", bare, binary, batched=True)
    if direction is not None:
        found = found.towards(direction)
    if found.higher_is_better is None:
        raise ValueError(
            f"measure {found.name} has no direction in which it could be best; give a function that has one, such as "
            "lambda counts: -imbtorch.dominance(counts).abs(), or (function, True)"
        )
    evaluated(found, torch.ones(3, 2, 2, dtype=torch.float64, device="cpu"))
    return found


def _checked_also(also: Sequence[Also]) -> tuple[str, ...]:
    """Names of further values."""
    if isinstance(also, str):
        raise TypeError(f"also must be a sequence of names, got the string {also!r}; write also=({also!r},)")
    for name in also:
        check_choice("also", name, get_args(Also))
    return tuple(dict.fromkeys(also))
