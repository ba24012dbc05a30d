"""Any binary measure at every threshold, from one histogram of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.analysis.intervals import Interval, check_level, posterior, quantiles
from imbtorch.analysis.scores import (
    area,
    area_interval,
    average_precision,
    average_precision_interval,
    bootstrap_histogram,
    matrices_of,
    partial_area_at,
    partial_areas,
    precision_recall_curve,
    roc_curve,
    unresolved,
)
from imbtorch.analysis.thresholds import OperatingPoint, best_place, corrected_counts, distinct, operating_point
from imbtorch.counting import Counting, Task
from imbtorch.counts import Counts, Measure, check_choice, double, evaluated, rescaled_rows
from imbtorch.measures import expected_cost
from imbtorch.metrics.averaging import AtPrevalence, AveragedMeasure
from imbtorch.metrics.base import UNSURE, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.compat import warn_caller
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric
from imbtorch.metrics.histogram import Grid, Histogram
from imbtorch.metrics.limits import checked_limits, priced_text
from imbtorch.metrics.resolving import Measured, as_given, metric_class, resolved
from imbtorch.metrics.result import Result
from imbtorch.metrics.rows import Row
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
        rows = [*self._rows_of("threshold", None), *self._rows_of("value", self._measure.higher_is_better)]
        for name in self._also:
            rows += [*self._rows_of(name, True), *(Row(name, True) for name in self._averages(name))]
        self._name(rows, prefix, postfix)

    @property
    def _histogram(self) -> Histogram:
        return cast(Histogram, self._counter)

    def _rows_of(self, name: str, better: bool | None) -> list[Row]:
        """Rows of a value, one for each label or class."""
        if self.task == "binary":
            return [Row(name, better)]
        return [Row(name, better, "class", label) for label in self._class_names]

    def _names(self, name: str) -> list[str]:
        return [row.name for row in self._rows_of(name, None)]

    def _averages(self, name: str) -> list[str]:
        """Name of the mean over labels or classes, of a value that has one."""
        return [name] if self.task != "binary" and name != "partial_auc" else []

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
        return self._by_full_name(self._best(cast(Tensor, counts)))

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
        found = self._best(counts)
        return self._keep(SweepResult({value.row: found[value.name] for value in self.values()}, counts))

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

    def _best(self, histogram: Tensor) -> dict[str, Tensor]:
        values, higher = self._at_each_threshold(histogram), self._measure.higher_is_better
        ranked = values.nan_to_num(nan=-torch.inf if higher else torch.inf)
        best = ranked.argmax(-1, keepdim=True) if higher else ranked.argmin(-1, keepdim=True)
        found = {
            "threshold": self._histogram.grid.thresholds.to(best.device)[best.squeeze(-1)],
            "value": self._narrow(values.gather(-1, best).squeeze(-1)),
        }
        curves = {name: self._of_curve(name, histogram, best.squeeze(-1)) for name in self._also}
        found |= {name: self._narrow(part) for name, part in curves.items()}
        reported = {
            full: value
            for name, part in found.items()
            for full, value in zip(self._names(name), part.reshape(-1).unbind(), strict=True)
        }
        whole = histogram.sum(-1).gt(0).all(-1)  # labels that have targets of both classes
        means = {name: torch.where(whole, part, torch.nan).nanmean() for name, part in curves.items()}
        return reported | {full: self._narrow(means[name]) for name in curves for full in self._averages(name)}

    def _of_curve(self, name: str, histogram: Tensor, best: Tensor) -> Tensor:
        """A value of the curve, ``[]`` or ``[L]``, given the index of the best threshold."""
        if name == "auc":
            return area(histogram)
        return average_precision(self._rates(histogram)) if name == AP else partial_area_at(histogram, best)

    def _at_each_threshold(self, histogram: Tensor) -> Tensor:
        """Value ``[..., T]`` of the measure at each threshold."""
        return evaluated(self._measure, double(self._matrices(self._rates(histogram))))  # int64 divides in float32

    def _rates(self, histogram: Tensor) -> Tensor:
        """Histograms at the prevalence, as counted without one."""
        shares = self._shares()
        return histogram if shares is None else rescaled_rows(double(histogram), shares)

    def _shares(self) -> Tensor | None:
        """Shares ``[2]`` or ``[L, 2]`` of negatives and positives at the prevalence."""
        if self._priors is None:
            return None
        priors = self._priors / self._priors.sum(-1, keepdim=True)
        return torch.stack((1 - priors, priors), -1) if self.task == "multiclass" else priors

    def _matrices(self, histogram: Tensor) -> Tensor:
        """Counts at each threshold; edges that no threshold can name come last."""
        return matrices_of(histogram)[..., : len(self._histogram.grid.thresholds), :, :]

    def matrices(self) -> Tensor:
        """Counts ``[T, 2, 2]`` (``[L, T, 2, 2]``) at each threshold of the last computed result; never communicates."""
        return self._matrices(self._counted())

    def rates(self) -> Tensor:
        """Samples of either class in each bin of scores, ``[2, B]`` (``[L, 2, B]``), as values are read.

        At the ``prevalence`` rates whose rows sum to it, else counts. Of the last computed result; never communicates.
        """
        return self._rates(self._counted())

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

        Of the last computed result, at the ``prevalence``; never communicates. Precisions are nan where nothing is
        predicted.
        """
        return precision_recall_curve(self.rates())

    def auc(self) -> Tensor:
        """Area under the ROC curve through :meth:`roc_points` by the trapezoid rule, ``[]`` or ``[L]``."""
        return area(self._counted())

    def average_precision(self) -> Tensor:
        """Mean precision at the score of each positive, as scikit-learn's and torchmetrics', ``[]`` or ``[L]``.

        Of the last computed result, at the ``prevalence``; never communicates.
        """
        return average_precision(self.rates())

    def partial_auc(self) -> Tensor:
        """What the point of each threshold contributes to the area with its two neighbours, ``[T]`` or ``[L, T]``.

        In the order of the thresholds, a neighbour being that at the next threshold, which often predicts the same; the
        value ``partial_auc`` goes by the next points that differ, and :func:`imbtorch.analysis.partial_auc` by
        neighbours of your own. Source: Liu, Ghosh and Martin (2007), eq. 3.
        """
        return partial_areas(self._counted())[..., : len(self._histogram.grid.thresholds)]

    def _counted(self) -> Tensor:
        """Histogram of the last computed result."""
        return cast(Tensor, self.result().counts)

    # --- how sure, and which threshold ------------------------------------------------------------------------------

    def interval(self, name: str, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """How sure a value of the last computed result is; never communicates. Samples must be independent.

        - ``"value"``: corrected for the threshold having been chosen by it, so the estimate lies below what is logged.
          The samples are halved by coins, the threshold of one half is counted on the other
          (:func:`imbtorch.analysis.thresholds.corrected_counts`), and the limits are the :func:`~imbtorch.analysis.\
posterior`'s of these counts. F1 of 10, 20, 50 positives flatters by .10, .07, .04, the estimate by -.01, .01, .00
          (normal scores, 300 simulated samples each), and its limits held the true value in .95 or more.
        - ``"auc"``: method 5 of Newcombe (2006), widened where DeLong's variance is larger
          (:func:`~imbtorch.analysis.scores.area_interval`).
        - ``"average_precision"``: as a share of the positives (:func:`~imbtorch.analysis.scores.\
average_precision_interval`). Simulated, 95 % intervals held the true value in .91 or more of samples. Not at a
          ``prevalence``.
        - ``"partial_auc"``, at the threshold as it is, and ``"threshold"``: percentiles of 400 resamples of the scores
          of each class. They say what comes of other samples of this size, not how often the best threshold is covered.

        Args:
            name: ``"threshold"``, ``"value"``, ``"auc"``, ``"average_precision"`` or ``"partial_auc"``, logged or not.
            level: share within, in (0, 1).
            generator: source of randomness, on the CPU; by default torch's.

        Returns:
            :class:`~imbtorch.analysis.Interval` of ``[]``, for several labels ``[L]``: nan for those that have targets
            of one class alone.

        Raises:
            ValueError: for another name, a level outside (0, 1), weighted counts, average precision at a
                ``prevalence``, and where no label has targets of both classes.
        """
        check_choice("name", name, ("threshold", "value", *get_args(Also)))
        check_level(level)
        if self.weighted:
            raise ValueError(UNSURE)
        histogram = self._counted().cpu()
        one_class = self._of_one_class(histogram)
        if bool(one_class.all()):
            raise ValueError(self._one_class_text(one_class, f"{name!r} has no interval"))
        if name == "auc":
            return area_interval(histogram, level)
        if name == AP:
            if self._priors is not None:
                raise ValueError(
                    "average precision has no interval at another prevalence, where it is as uncertain as the few "
                    "negatives above the positives; sweep without prevalence=, or ask for 'auc', which does not move"
                )
            return average_precision_interval(average_precision(histogram), histogram[..., 1, :].sum(-1), level)
        of_label = self._value_interval if name == "value" else partial(self._resampled, name)
        nan = torch.tensor(torch.nan, dtype=torch.float64)
        parts = [
            Interval(nan, nan, nan, level, "") if one_class[index] else of_label(index, each, level, generator)
            for index, each in enumerate(self._of_labels(histogram))
        ]
        if self.task == "binary":
            return parts[0]
        low, high, estimate = (torch.stack([getattr(part, at) for part in parts]) for at in ("low", "high", "estimate"))
        return Interval(estimate, low, high, level, parts[int(one_class.int().argmin())].method)

    def _value_interval(
        self, index: int, histogram: Tensor, level: float, generator: torch.Generator | None
    ) -> Interval:
        """Interval of the best value, corrected for the choice."""
        measure = self._at_shares(index)
        counts = corrected_counts(histogram, len(self.thresholds), self._objective(measure), generator=generator)
        found = posterior(measure, counts, level=level, generator=generator)
        return replace(found, method="half-sampling, posterior")

    def _resampled(
        self, name: str, index: int, histogram: Tensor, level: float, generator: torch.Generator | None
    ) -> Interval:
        """Percentiles of the best threshold, or of what the point of the present one contributes to the area."""
        objective, number = self._objective(self._at_shares(index)), len(self.thresholds)

        def best(swept: Tensor) -> Tensor:
            small, places = distinct(swept, number)
            return places[best_place(objective, double(matrices_of(small)))]

        kept, drawn = best(histogram), bootstrap_histogram(histogram, RESAMPLES, generator)
        if name == "threshold":
            estimate, values = self.thresholds[kept], self.thresholds[torch.stack([best(each) for each in drawn])]
        else:
            estimate, values = partial_area_at(histogram, kept), partial_area_at(drawn, kept.expand(RESAMPLES))
        return Interval(estimate, *quantiles(values, level), level, "stratified bootstrap")

    def best(
        self,
        at_least: Mapping[str, float] | None = None,
        *,
        alerts: float | None = None,
        costs: Tensor | Sequence[Sequence[float]] | None = None,
        sure: float | None = None,
        generator: torch.Generator | None = None,
    ) -> OperatingPoint | dict[str, OperatingPoint]:
        """Best threshold within limits, of the last computed result; never communicates.

        Flagging nobody is a candidate, by a threshold of 1 if no other flags nobody.

        A limit that is just met on validation data is truly met about half the time: the threshold of the best F1 with
        recall .8 there truly has it in .59, .45, .51 of simulated samples with 10, 20, 50 positives. ``holds`` of the
        result tells how likely (.56, .56, .55 on average there), and ``sure`` asks for more: the best threshold at
        which the posterior says so with that probability (``sure=.9`` held in .94 to .99 of them). Everything is
        read at the ``prevalence`` if there is one.

        Args:
            at_least: floors, name of a measure -> least value, ``{"recall": 0.8}``.
            alerts: budget, greatest share of samples that are predicted positive: .005 for 50 in 10,000.
            costs: ``[[0, fp], [fn, 0]]``, what a sample of the row's class costs when predicted as the column's; the
                threshold of the lowest expected cost is then taken in the place of that with the best measure.
            sure: probability with which all limits must truly hold, in (0, 1).
            generator: source of randomness, on the CPU; by default torch's.

        Returns:
            :class:`~imbtorch.analysis.OperatingPoint`; name of label or class -> point for several. A warning says
            where it flags all samples or none.

        Raises:
            ValueError: where no threshold keeps the limits (the error says what can be reached), limits out of range,
                an unknown name, a measure of which less is better, ``sure`` with weighted counts, and where targets of
                one class alone were counted.
        """
        limits = checked_limits({} if at_least is None else at_least, alerts, sure)
        if self.weighted and limits:
            raise ValueError(f"limits need probabilities, and {UNSURE}")
        objective = self._objective(self._measure)
        if costs is not None:
            objective = _negated(partial(expected_cost, costs=torch.as_tensor(costs, dtype=torch.float64)))
        points = {}
        for index, histogram in self._to_choose_from():
            where = "" if self.task == "binary" else f"{self._label(index)}: "
            shares, thresholds = self._shares_of(index), self.thresholds
            point = operating_point(
                histogram, thresholds, self._measure, objective, limits, shares, sure, generator, where
            )
            if point.alerts in (0, 1):
                warn_caller(f"{type(self).__name__}: the best threshold tells no samples apart: {point}")
            points[self._label(index)] = point
        return points["0"] if self.task == "binary" else points

    def metric(
        self,
        cls: Callable[..., M],
        at: OperatingPoint | Mapping[str, OperatingPoint] | None = None,
        **arguments: Any,
    ) -> M:
        """Make a metric with the best threshold of the last computed result, for multilabel with one for each label.

        Args:
            cls: metric class, :class:`~imbtorch.ImbalanceReport` or ``functools.partial`` of one.
            at: what :meth:`best` found, to take its thresholds instead.
            arguments: further arguments of it.

        Raises:
            ValueError: for ``task="multiclass"``, whose metrics predict the class of the highest score, and where
                targets of one class alone were counted.
        """
        if self.task == "multiclass":
            raise ValueError(
                "metrics of task='multiclass' have no thresholds; make one with task='binary' for a class, and give it "
                "that class against the rest"
            )
        if at is None:
            self._to_choose_from()
            found = self._best(self._counted())
            chosen = [found[name].item() for name in self._names("threshold")]
        else:
            points = {"0": at} if isinstance(at, OperatingPoint) else at
            chosen = [points[self._label(index)].threshold for index in range(self._histogram.labels)]
        same: dict[str, Any] = {"logits": self.logits, "ignore_index": self.ignore_index, "weighted": self.weighted}
        if self.task == "multilabel":
            same |= {"num_labels": self.num_labels, "threshold": chosen}
        return cls(self.task, **({"threshold": chosen[0]} | same | arguments))

    def _of_labels(self, histogram: Tensor) -> Sequence[Tensor]:
        """Histogram ``[2, B]`` of each label or class."""
        return histogram.reshape(-1, *histogram.shape[-2:]).unbind()

    def _of_one_class(self, histogram: Tensor) -> Tensor:
        """Return which labels lack positive or negative targets, ``[L]``."""
        return (histogram.sum(-1) == 0).any(-1).reshape(-1)

    def _one_class_text(self, one_class: Tensor, consequence: str) -> str:
        """Say which labels lack positive or negative targets."""
        names = [self._label(index) for index in one_class.nonzero().flatten().tolist()]
        of_labels = "" if self.task == "binary" else f" of {', '.join(names[:20])}{', ...' * (len(names) > 20)}"
        return f"{consequence} without positive and negative targets{of_labels}; count samples of both"

    def _to_choose_from(self) -> list[tuple[int, Tensor]]:
        """Index and histogram of each label or class but an ignored one; raise if one has no two classes."""
        histogram, ignored = self._counted().cpu(), self._counting.ignored_class
        one_class = self._of_one_class(histogram)
        left_out = ignored if self.task == "multiclass" else None
        if left_out is not None:
            one_class[left_out] = False
        if bool(one_class.any()):
            raise ValueError(self._one_class_text(one_class, "no threshold can be chosen"))
        return [(index, each) for index, each in enumerate(self._of_labels(histogram)) if index != left_out]

    def _shares_of(self, index: int) -> Tensor | None:
        """Shares ``[2]`` of negatives and positives of a label at the prevalence."""
        shares = self._shares()
        return None if shares is None else shares.reshape(-1, 2)[index]

    def _at_shares(self, index: int) -> Measure:
        """The measure of counts of a label, read at the prevalence."""
        shares = self._shares_of(index)
        return self._measure if shares is None else AtPrevalence(self._measure, shares)

    def _objective(self, measure: Measure) -> Measure:
        """The measure so that higher is better."""
        return measure if self._measure.higher_is_better else _negated(measure)

    # --- looks ------------------------------------------------------------------------------------------------------

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measure over the thresholds, with the best one and .5 marked; never communicates.

        The default thresholds lie in the space of logits, and so does their axis then.

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
            name=str(getattr(self._measure.function, "__name__", "value")).replace("_", " "),
            scale="logit" if self._histogram.grid.name == DEFAULT else "linear",
        )


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Result):
    """Values that a sweep computed, with the histogram of scores that they were read off."""

    _histogram: Tensor

    @property
    def _counted(self) -> Tensor:
        return self._histogram


M = TypeVar("M")
Also: TypeAlias = Literal["auc", "average_precision", "partial_auc"]
AP = "average_precision"
RESAMPLES = 400
DEFAULT = Grid.of(None, False).name
TOLERANCE = 0.002  # of an area
CROWD = 100  # samples of a bin from which a warning is worth its line


def _negated(measure: Measure) -> Measure:
    """A measure of which less is better, turned round."""
    return lambda counts: -measure(counts)


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
