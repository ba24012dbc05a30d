"""Results of sweeps: values, curves, intervals and chosen thresholds, independent of the sweep."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import torch
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import check_generator, computed_on_cpu
from imbtorch.counting.tasks import Counting
from imbtorch.counts import check_choice, evaluated, two_by_two
from imbtorch.deciding.calibration import Calibration
from imbtorch.deciding.costs import Costs, prices
from imbtorch.deciding.curves import (
    area,
    area_interval,
    average_precision,
    average_precision_interval,
    bootstrap_histogram,
    by_labels,
    cells_at,
    matrices_of,
    partial_area_at,
    partial_areas,
    precision_recall_curve,
    roc_curve,
)
from imbtorch.deciding.histogram import Hidden, Histogram
from imbtorch.deciding.limits import alert_rate
from imbtorch.deciding.points import OperatingPoint, threshold_text
from imbtorch.deciding.problems import OF_THRESHOLDS
from imbtorch.deciding.rules import Threshold
from imbtorch.deciding.steady import HeldOut, counts_at, filled, gain_interval, held_out, pooled, single_thresholds
from imbtorch.deciding.sweep_settings import AP, Also, Chosen, SweepSettings, negated
from imbtorch.deciding.thresholds import held_text, probabilities, read_at, with_one
from imbtorch.intervals.buckets import resample_buckets
from imbtorch.intervals.draws import effective_samples
from imbtorch.intervals.intervals import Interval, check_level, outermost, posterior_of, quantiles
from imbtorch.reports.rows import PROMISED, Finder, Result, Row  # noqa: F401 - hints of a dataclass need Row
from imbtorch.reports.texts import UNSURE
from imbtorch.suggestions import first_names
from imbtorch.tables import Cell, Table

M = TypeVar("M")
Areas: TypeAlias = Literal["roc", "precision_recall", "average_precision"]
Curve: TypeAlias = Literal["value", Areas]
NOTHING = Hidden()
RESAMPLES = 400
DRAWS = 10_000  # draws, or resamples of buckets, for the interval of the value
MOST_DRAWN = 10  # most labels or classes in one picture
MOST_CORRECTED = 5  # labels up to which a picture shows the corrected intervals of their values
MOST_IN_TABLE = 20  # and a table, for which one waits


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Result):
    """Result of a sweep: its values and the histogram of scores, with curves, intervals and the choice of a threshold.

    :meth:`ThresholdSweep.result` returns it. ``result["value"]`` is one value, :attr:`values` is a dict of all, without
    prefix and postfix. A result never changes and never communicates. It can be pickled, so that you can choose a
    threshold later without the sweep; a function that is swept must then be defined at the top level of a module.

    In shapes, T is the number of thresholds, B the number of bins around them, and L the number of labels or classes;
    the binary task has no dimension L.

    >>> from imbtorch import ThresholdSweep
    >>> sweep = ThresholdSweep("f1", thresholds=5)
    >>> sweep.update(torch.tensor([0.1, 0.3, 0.6, 0.8, 0.9]), torch.tensor([0, 0, 1, 0, 1]))
    >>> result = sweep.result()
    >>> result["value"], result.best(at_least={"recall": 0.5}).threshold
    (tensor(0.8000), 0.5)
    """

    _histogram: Tensor
    _settings: SweepSettings
    _chosen: Chosen
    _buckets: Tensor | None  # histogram of each bucket of clusters, ``[M, ...]``
    _several: bool  # whether samples came with the ids of clusters or with several positions
    _hidden: Hidden = NOTHING

    @property
    def _all_counts(self) -> Tensor:
        return self._histogram

    @property
    def _came(self) -> tuple[Counting, bool]:
        return self._settings.counting, self._several

    @property
    def _finders(self) -> tuple[Finder, ...]:
        return OF_THRESHOLDS

    @property
    def logits(self) -> bool:
        """True if the scores were logits."""
        return self._settings.counting.logits

    @property
    def class_axis(self) -> int:
        """Number of dimensions of the scores if they were those of both classes, ``[N, 2, ...]``; else 0."""
        return self._settings.class_axis

    @property
    def log_odds(self) -> Tensor:
        """Log-odds of the chosen threshold, float64 ``[]`` or ``[L]``; above 36.7 its probability is 1 in float64."""
        self._check_measure()
        return self._chosen.log_odds.clone()

    @property
    def rule(self) -> Threshold:
        """Rule that decides by the chosen threshold, for :class:`torch.nn.Sequential`, export and NumPy arrays.

        Raises:
            ValueError: for ``task="multiclass"``, whose thresholds are those of each class against the rest.
        """
        if self._settings.counting.task == "multiclass":
            raise ValueError("a sweep of several classes has no rule; LogitAdjustmentSweep chooses one for them")
        rule = Threshold(log_odds=self.log_odds, logits=self.logits)
        rule._mark("class_axis", self.class_axis)
        return rule

    # --- curves -----------------------------------------------------------------------------------------------------

    def matrices(self) -> Tensor:
        """Return the counts at each threshold, ``[T, 2, 2]`` or ``[L, T, 2, 2]``."""
        return matrices_of(self._histogram)

    def rates(self) -> Tensor:
        """Return the number of negatives and positives in each bin of scores, ``[2, B]`` or ``[L, 2, B]``.

        With ``prevalence`` they are rates whose rows sum to the class shares.
        """
        return self._settings.of_rates(torch.clone, self._histogram)

    def curve(self) -> tuple[Tensor, Tensor]:
        """Return the thresholds ``[T]`` and the measure at each of them, ``[T]`` or ``[L, T]``."""
        self._check_measure()
        settings = self._settings
        values = partial(evaluated, settings.measure)
        return settings.stored[0].clone(), settings.of_rates(lambda r: values(matrices_of(r).double()), self._histogram)

    def roc(self) -> tuple[Tensor, Tensor]:
        """Return false and true positive rates, each ``[B + 1]`` or ``[L, B + 1]``, rising from (0, 0) to (1, 1).

        Rates of a class without targets are nan.
        """
        return roc_curve(self._histogram)

    def precision_recall(self) -> tuple[Tensor, Tensor]:
        """Return recalls and precisions, each ``[B]`` or ``[L, B]``, from the highest threshold to the lowest.

        The lowest threshold is below all scores. Precisions without positive predictions are nan. If there is a
        ``prevalence``, precisions are computed for it.
        """
        return precision_recall_curve(self.rates())

    def auc(self) -> Tensor:
        """Compute the area under the ROC curve by the trapezoid rule, ``[]`` or ``[L]``."""
        return by_labels(area, self._histogram)

    def average_precision(self) -> Tensor:
        """Compute the mean precision at the score of each positive, ``[]`` or ``[L]``.

        The definition is the same as in scikit-learn and torchmetrics. If there is a ``prevalence``, the value is
        computed for it.
        """
        return self._settings.of_rates(average_precision, self._histogram)

    def partial_auc(self) -> Tensor:
        """Compute the contribution of the point at each threshold to the AUC, ``[T]`` or ``[L, T]``.

        It consists of two trapezoids, between the point and the points at the next thresholds on both sides, which
        often predict the same. In contrast, the reported value ``partial_auc`` uses the next points that differ, and
        :func:`imbtorch.statistics.partial_auc` takes neighbours of your choice. Source: Liu, Ghosh and Martin (2007),
        eq. 3.
        """
        return partial_areas(self._histogram)

    # --- intervals and thresholds -----------------------------------------------------------------------------------

    def interval(self, name: str, *, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """Compute the interval of a value. Samples must be independent, or counted with ``clusters=True``.

        ``"value"`` is corrected for the choice of the threshold on the same samples; its estimate is therefore lower
        than the logged value. The intervals of ``"threshold"`` and ``"partial_auc"`` show how much they vary between
        samples of this size. The page "How a choice is corrected" describes the methods and their coverage.

        Args:
            name: ``"threshold"``, ``"value"``, ``"auc"``, ``"average_precision"`` or ``"partial_auc"``, logged or not.
            level: nominal coverage of the interval, in (0, 1).
            generator: source of randomness, on the CPU; by default one of a fixed seed.

        Returns:
            :class:`~imbtorch.statistics.Interval` of shape ``[]``, or ``[L]`` for several labels, with nan for labels
            that have targets of one class only.

        Raises:
            ValueError: for an unknown name, a level outside (0, 1), weighted counts, average precision with
                ``prevalence``, if no label has targets of both classes, and if all samples are in one bucket of
                clusters.
        """
        remedy = (
            "; for another measure, make a metric at a threshold, update it, and call its interval: "
            "sweep.metric(Recall, at=point).interval()"
        )
        if name == self._settings.name:
            remedy = f"; 'value' is the {name} at the chosen threshold"
        known = ("threshold", "value", *get_args(Also)) if self._settings.name else ("auc", AP)
        check_choice("name", name, known, remedy)
        if name in ("auc", AP):
            histogram = self._countable(repr(name), level, generator)
            if name == AP and self._settings.prevalence is not None:
                raise ValueError(
                    "average precision has no interval at another prevalence, because it then depends on the few "
                    "negatives that score above the positives; sweep without prevalence=, or use 'auc', which does not "
                    "depend on the prevalence"
                )
            if self._buckets is None:
                return (area_interval if name == "auc" else average_precision_interval)(histogram, level)
        of_label = self._value_interval if name == "value" else partial(self._resampled, name)
        return self._interval_of_labels(repr(name), of_label, level, generator)

    def _countable(self, what: str, level: float, generator: torch.Generator | None) -> Tensor:
        """Return the histogram, after the checks that all intervals share."""
        check_level(level)
        check_generator(generator)
        if self._settings.counting.weighted:
            raise ValueError(UNSURE)
        one_class = self._of_one_class(self._histogram)
        if bool(one_class.all()):
            raise ValueError(self._one_class_text(one_class, f"{what} has no interval"))
        if self._buckets is not None and len(filled(self._buckets)) < 2:
            raise ValueError(
                f"{what} has no interval, because all samples lie in one bucket of clusters; count samples of more "
                "clusters"
            )
        self._warn_if_dependent()
        return self._histogram

    def _parts(self) -> Sequence[Tensor]:
        """Return the histogram ``[2, B]`` of each label or class; with clusters that of each bucket, ``[M, 2, B]``."""
        return self._settings.parts(self._histogram, self._buckets)

    def _named(self, method: str) -> str:
        """Return the name of a method that resampled buckets; without ids each sample was a cluster of its own."""
        if self._several or self._settings.counting.task == "multilabel":
            return method
        return method.replace("cluster bootstrap", "bootstrap").replace("of clusters", "of buckets")

    def _interval_of_labels(
        self, what: str, of_label: Callable[..., Interval], level: float, generator: torch.Generator | None
    ) -> Interval:
        """Compute the interval of each label that has targets of both classes."""
        unknown = self._of_one_class(self._countable(what, level, generator))
        if self._buckets is not None:
            unknown |= torch.tensor([len(filled(each)) < 2 for each in self._parts()], device="cpu")
        nan = torch.tensor(torch.nan, dtype=torch.float64)
        parts = [  # by default each label has draws of its own: its point in text then says the same
            Interval(nan, nan, nan, level, "")
            if unknown[index]
            else of_label(index, each, level, generator or torch.Generator().manual_seed(0))
            for index, each in enumerate(self._parts())
        ]
        parts = [replace(each, method=self._named(each.method)) for each in parts]
        if self._settings.counting.task == "binary":
            return parts[0]
        low, high, estimate = (torch.stack([getattr(part, at) for part in parts]) for at in ("low", "high", "estimate"))
        return Interval(estimate, low, high, level, parts[int(unknown.int().argmin())].method)

    def _value_interval(
        self, index: int, histogram: Tensor, level: float, generator: torch.Generator | None
    ) -> Interval:
        """Compute the interval of the chosen value of one label, corrected for the choice."""
        settings = self._settings
        measure = settings.at_prevalence(settings.measure, index)
        corrected = self._held_out(index, histogram, generator)
        if histogram.ndim == 3:
            options: Any = {"draws": DRAWS, "level": level, "generator": generator}
            found = resample_buckets({"": measure}, corrected.counts, **options)[""]
            return replace(found, method=f"held-out buckets, {found.method}" + self._held_text(index, corrected))
        whole = settings.with_all(histogram)
        place = settings.choose(index, whole)
        assert place is not None
        found, at_chosen = (
            posterior_of({"": measure}, counts.double(), DRAWS, level, generator)[""]
            for counts in (corrected.counts, counts_at(whole.double(), place))
        )
        method = "held-out tenths, posterior" + self._held_text(index, corrected)
        low, high = outermost(found.low, found.high, at_chosen.low, at_chosen.high)
        return replace(found, low=low, high=high, method=method)

    def _corrected(self, index: int) -> Interval:
        """Compute the interval of the value at the chosen threshold of one label; equal calls draw alike."""
        return self._value_interval(index, self._parts()[index], 0.95, torch.Generator().manual_seed(0))

    def _held_out(self, index: int, histogram: Tensor, generator: torch.Generator | None) -> HeldOut:
        """Count samples of a label at the thresholds that other samples choose; raise if none keeps the limits."""
        settings = self._settings
        settings.within_limits(index, histogram)  # raises if no threshold keeps the limits
        return held_out(settings.with_all(histogram), lambda some: settings.choose(index, some), generator)

    def _held_text(self, index: int, corrected: HeldOut) -> str:
        """Return the limited measures on held-out samples as text; empty without limits."""
        limits = self._settings.limits_of(index)
        text = "; " * bool(limits) + held_text(limits, pooled(corrected.counts).double())
        if corrected.failed:
            parts = "tenths" if corrected.counts.ndim == 2 else "groups of buckets"
            text += f"; no threshold keeps the limits without {corrected.failed} of {corrected.folds} {parts}"
        return text

    def _resampled(
        self, name: str, index: int, histogram: Tensor, level: float, generator: torch.Generator | None
    ) -> Interval:
        """Compute percentiles over resamples; areas with clusters have intervals of their own."""
        if name in ("auc", AP):
            interval = area_interval if name == "auc" else average_precision_interval
            return interval(filled(histogram), level, clusters=True)
        kept = int(self._chosen.place.reshape(-1)[index])
        drawn = bootstrap_histogram(histogram, RESAMPLES, generator)
        if name == "threshold":
            estimate, values = self._settings.stored[0][kept], self._best_of_each(index, drawn)
        else:
            at = torch.tensor(kept)
            estimate, values = partial_area_at(pooled(histogram), at), partial_area_at(drawn, at.expand(len(drawn)))
        low, high = quantiles(values, level)
        low, high = outermost(low, high, estimate)
        method = "stratified bootstrap" if histogram.ndim == 2 else "bootstrap of buckets"
        return Interval(estimate, low, high, level, method)

    def _best_of_each(self, index: int, drawn: Tensor) -> Tensor:
        """Return the single best threshold of each resample ``[R, 2, B]``, without limits where none keeps them."""
        settings, free, found = self._settings, replace(self._settings, limits={}), []
        single = partial(single_thresholds, odds=settings.odds, objective=settings.objective(index))
        if not settings.constrained:
            return settings.stored[0][by_labels(single, drawn)[:, 0].long()]
        for each in drawn:
            place = settings.choose(index, each)
            if place is None:
                place = free.choose(index, each) if free.constrained else int(single(each.unsqueeze(0))[0, 0])
            assert place is not None
            found.append(min(place, len(settings.odds) - 1))
        return settings.stored[0][torch.tensor(found)]

    def gain(self, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """Estimate the gain of the chosen threshold over a threshold of 0.5 on new samples, with an interval.

        Each tenth of the samples, or of the buckets of clusters, is counted at the threshold that the others choose.
        The pages "How a choice is corrected" and "Coverage of 95% intervals" have its coverage; if 0.5 is already the
        best one, the gain of IAM is too high. Positive is better, also for a measure of which lower is better. With
        constraints, ``method`` gives the values of the constrained measures on held-out samples.

        Args:
            level: nominal coverage of the interval, in (0, 1).
            generator: source of randomness, on the CPU; by default one of a fixed seed.

        Returns:
            :class:`~imbtorch.statistics.Interval` of shape ``[]``, or ``[L]`` for several labels, with nan for labels
            that have targets of one class only.

        Raises:
            ValueError: for a level outside (0, 1), weighted counts, if no label has targets of both classes, and if no
                threshold satisfies the constraints.
        """
        self._check_measure()
        return self._interval_of_labels("the gain", self._gain, level, generator)

    def _gain(self, index: int, histogram: Tensor, level: float, generator: torch.Generator | None) -> Interval:
        """Compute the gain of one label."""
        settings = self._settings
        whole = settings.with_all(histogram)
        corrected = self._held_out(index, histogram, generator)
        place = settings.choose(index, whole)
        assert place is not None
        measure = settings.at_prevalence(settings.measure, index)
        objective = measure if settings.measure.higher_is_better else negated(measure)
        counts = pooled(corrected.counts).double()
        found = gain_interval(whole, place, settings.half, objective, counts, level, generator)
        return replace(found, method=found.method + self._held_text(index, corrected))

    def calibration(
        self, bins: int = 10, level: float = 0.95, generator: torch.Generator | None = None
    ) -> Calibration | dict[str, Calibration]:
        """Compare the scores with the shares of positives among the samples that have them.

        Rules, costs and ``tau=1`` trust probabilities; this says whether they may. Logits are read as the log-odds
        of probabilities. Of several classes each is compared with the rest.

        Args:
            bins: greatest number of bins of scores.
            level: nominal coverage of the interval of each share, in (0, 1).
            generator: source of randomness for resampled clusters, on the CPU; by default one of a fixed seed.

        Returns:
            :class:`~imbtorch.statistics.Calibration`, or for several labels or classes a dict of their names, without
            those that have no samples.

        Raises:
            ValueError: for ``bins`` below 1, a level outside (0, 1), a sweep at another ``prevalence``, and without
                samples.
        """
        check_level(level)
        check_generator(generator)
        generator = generator or torch.Generator().manual_seed(0)
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
            raise ValueError(f"bins must be a whole number of at least 1, got {bins!r}")
        if self._settings.prevalence is not None:
            raise ValueError("calibration compares scores with the counted samples; sweep without prevalence=")
        self._warn_if_dependent()
        names, weighted = self._settings.class_names, self._settings.counting.weighted
        found = {
            name: Calibration.of(part, self._settings.thresholds, bins, level, generator, weighted)
            for name, part in zip(names, self._parts(), strict=True)
            if bool(part.any())
        }
        if not found:
            raise ValueError("there is no calibration without samples; call update first")
        found = {name: replace(each, method=self._named(each.method)) for name, each in found.items()}
        return found["0"] if self._settings.counting.task == "binary" else found

    def best(
        self,
        *,
        at_least: Mapping[str, float] | None = None,
        alerts: float | None = None,
        costs: Costs | None = None,
        sure: float | None = None,
        generator: torch.Generator | None = None,
    ) -> OperatingPoint | dict[str, OperatingPoint]:
        """Find the best threshold that satisfies the constraints you set.

        Constraints add to the ones of the sweep, and a constraint of the same name replaces the one of the sweep;
        ``at_least={}`` removes all of them, also ``alerts``. Without constraints and costs it is the threshold of the
        sweep; with them it is the single best threshold, of tied ones the lowest, and predicting no positives is a
        candidate as well. On negatives alone, the normal samples of anomaly detection, limits of ``alerts`` and
        ``specificity`` give the lowest threshold that keeps them; the value is then undefined.

        A constraint that is just satisfied on validation data holds in the population about half of the time; ``holds``
        of the result gives a probability for each. ``sure`` restricts the choice to thresholds for which all
        constraints can be guaranteed, except in at most 1 - ``sure`` of validation sets: "learn then test"
        (Angelopoulos et al. 2021), a relative of conformal risk control, with exact binomial tests. Guarantees exist
        for ``recall``, ``specificity``, ``precision``, ``npv``, ``accuracy``, ``iou``, ``f1`` and ``alerts``; they need
        independent samples on which neither the model nor its epoch was chosen (see the page "How a choice is
        corrected").

        Args:
            at_least: name of a measure -> least value, such as ``{"recall": 0.8}``; by default the constraints of the
                sweep.
            alerts: greatest share of samples that may be predicted positive, in (0, 1], such as 0.005 for 50 in 10,000;
                by default the value of the sweep.
            costs: ``{"miss": 10, "false_alarm": 1, "investigation": 0}``, the last of which is paid for each flagged
                sample, right or wrong, or ``[[0, false_alarm], [miss, 0]]``. The threshold with the lowest expected
                cost is then chosen, instead of the best value of the measure.
            sure: level of a guarantee that all constraints hold in the population, in [0.5, 1); by default the value of
                the sweep, without one the constraints need to hold on the counted samples only.
            generator: source of randomness, on the CPU; by default one of a fixed seed.

        Returns:
            :class:`~imbtorch.statistics.OperatingPoint`, or for several labels or classes a dict of their names. A
            warning names points that predict all samples positive, or none.

        Raises:
            ValueError: if no threshold satisfies the constraints (the error says what is achievable) or none can be
                guaranteed to; for constraints out of range, an unknown measure or one of which lower is better; for
                ``sure`` with a measure that has no guarantee, also at the ``prevalence``; for constraints with weighted
                counts; and if only one class has targets, except for limits of alerts and specificity on negatives.
        """
        self._check_measure()
        check_generator(generator)
        generator = generator or torch.Generator().manual_seed(0)
        settings = self._settings.within(at_least, alerts, costs, sure)
        if settings.sure is not None:
            self._warn_if_dependent(PROMISED)
        points = {
            settings.class_names[index]: self._point(settings, index, histogram, generator)
            for index, histogram in self._to_choose_from(settings)
        }
        return points["0"] if settings.counting.task == "binary" else points

    @computed_on_cpu
    def _point(
        self, settings: SweepSettings, index: int, histogram: Tensor, generator: torch.Generator | None
    ) -> OperatingPoint:
        """Find the best threshold of a label."""
        shares = settings.shares_of(index)
        if settings.constrained:
            swept, best = settings.within_limits(index, histogram)
            counts, at, place = swept.counts[best], swept.rates[best], int(swept.places[best])
        else:
            known = None if self._settings.constrained else self._chosen.place.reshape(-1)[index]
            chosen = settings.choose(index, histogram) if known is None else int(known)
            assert chosen is not None
            every = matrices_of(pooled(histogram))
            counts, at, place = every[chosen], read_at(shares, every.double())[chosen], chosen
        threshold, worth = settings.at(place), None
        if histogram.ndim == 3:
            worth = effective_samples(counts_at(filled(with_one(histogram)), place).double(), 2)
        own, alone = replace(self, _settings=settings), not bool(counts[1].any())  # of normal samples
        flagged, half = at[:, 1].double(), read_at(shares, counts_at(pooled(histogram).double(), settings.half))
        point = OperatingPoint(
            threshold[0],
            math.nan if alone else evaluated(settings.measure, at).item(),
            counts,
            (flagged[1] / at[1].double().sum()).item(),
            math.nan if alone else (flagged[1] / flagged.sum()).item(),
            (at[..., 1].sum() / at.sum()).item(),
            probabilities(counts, settings.limits, shares, generator, worth),
            settings.sure,
            self.logits,
            threshold[1],
            settings.name if settings.costs is None else f"{settings.name} (threshold by costs)",
            {name: limit.bound for name, limit in settings.limits.items()},
            correct=None if settings.counting.weighted or alone else partial(own._corrected, index),
        )
        vars(point)["class_axis"] = self.class_axis
        if settings.costs is not None:
            vars(point)["costs"] = prices(settings.costs, at.double(), half)
        if point.alerts in (0, 1):
            warn_caller(f"ThresholdSweep: the chosen threshold predicts the same for all samples: {point}")
        return point

    def metric(
        self,
        /,
        cls: Callable[..., M],
        at: OperatingPoint | Mapping[str, OperatingPoint] | None = None,
        **arguments: Any,
    ) -> M:
        """Make a metric with the chosen threshold, or with that of each label for multilabel.

        Args:
            cls: metric class, :class:`~imbtorch.ImbalanceReport` or ``functools.partial`` of one.
            at: operating point of :meth:`best` (for multilabel its dict), to use its threshold instead.
            arguments: further arguments of the metric.

        Raises:
            ValueError: for ``task="multiclass"``, whose metrics predict the class with the highest score and have no
                threshold, for a threshold whose probability is rounded to 0 or 1, and if only one class has targets.
            TypeError: for ``at`` that is no operating point, or for multilabel no dict with one for each label.
        """
        if self._settings.counting.task == "multiclass":
            raise ValueError(
                "metrics of task='multiclass' have no thresholds; make one with task='binary' for a single class, and "
                "update it with that class against the rest"
            )
        if at is None:
            self._check_measure()
            self._to_choose_from()
            chosen, odds = self._values_of("threshold").tolist(), self._chosen.log_odds.reshape(-1).tolist()
        else:
            points = {"0": at} if isinstance(at, OperatingPoint) else at
            names = self._settings.class_names
            if not isinstance(points, Mapping) or not all(isinstance(points.get(n), OperatingPoint) for n in names):
                raise TypeError(self._no_point_text(cls, at))
            chosen, odds = ([getattr(points[name], each) for name in names] for each in ("threshold", "log_odds"))
        rounded = [text for text in map(threshold_text, chosen, odds) if "logit" in text]
        if rounded:
            raise ValueError(
                f"a metric takes a probability as its threshold, and that of {rounded[0]} is rounded; update a metric "
                "with the decisions of a rule: rule.take(result), then metric.update(rule(logits), target)"
            )
        same: dict[str, Any] = {
            "logits": self._settings.counting.logits,
            "ignore_index": self._settings.counting.ignore_index,
            "weighted": self._settings.counting.weighted,
        } | ({"clusters": True} if self._settings.counting.clusters else {})
        if self._settings.counting.task == "multilabel":
            same |= {"num_labels": self._settings.counting.num_labels, "threshold": chosen}
        return cls(self._settings.counting.task, **({"threshold": chosen[0]} | same | arguments))

    def _no_point_text(self, cls: Callable[..., Any], at: object) -> str:
        """Return the error message for something that is no operating point."""
        expected, task = "an operating point (sweep.best(...))", self._settings.counting.task
        if task == "multilabel":
            expected = "a dict with an operating point for each label (sweep.best(...))"
        got = f"a dict of {list(at)}" if isinstance(at, Mapping) else reprlib.repr(at)
        text = f"at must be {expected}, got {'one point' if isinstance(at, OperatingPoint) else got}"
        if isinstance(at, (int, float)):
            size = f", num_labels={len(self._settings.class_names)}" if task == "multilabel" else ""
            made = getattr(getattr(cls, "func", cls), "__name__", "the metric")
            text += f"; or build {made}({task!r}{size}, threshold={at!r})"
        return text

    def _check_measure(self) -> None:
        """Raise if there is no measure, for which a threshold could be chosen."""
        if not self._settings.name:
            raise ValueError(
                "no threshold was chosen, because the sweep computes areas alone; name a measure to choose one for, as "
                "in ThresholdSweep('f1', also=['auc'])"
            )

    def _of_one_class(self, histogram: Tensor) -> Tensor:
        """Return a bool ``[L]``, True for labels that lack positive or negative targets."""
        return (histogram.sum(-1) == 0).any(-1).reshape(-1)

    def _one_class_text(self, one_class: Tensor, consequence: str) -> str:
        """Return the message about labels that lack positive or negative targets."""
        names = [self._settings.class_names[index] for index in one_class.nonzero().flatten().tolist()]
        of_labels = "" if self._settings.counting.task == "binary" else f" of {first_names(names)}"
        return f"{consequence} without positive and negative targets{of_labels}; count samples of both"

    def _to_choose_from(self, settings: SweepSettings | None = None) -> list[tuple[int, Tensor]]:
        """Return index and histogram of each label or class except an ignored one; raise if one lacks a class.

        Limits of alerts and specificity can also be kept on normal samples alone.
        """
        ignored = self._settings.counting.ignored_class
        one_class = self._of_one_class(self._histogram)
        if settings is not None and settings.prevalence is None and settings.of_negatives:
            one_class &= self._histogram[..., 0, :].sum(-1).reshape(-1) == 0
        left_out = ignored if self._settings.counting.task == "multiclass" else None
        if left_out is not None:
            one_class[left_out] = False
        if bool(one_class.any()):
            raise ValueError(self._one_class_text(one_class, "no threshold can be chosen"))
        return [(index, each) for index, each in enumerate(self._parts()) if index != left_out]

    # --- table and pictures ------------------------------------------------------------------------------------------

    def table(self, digits: int = 3) -> Table:
        """Return positives, threshold, alert rate and value of each label or class, and the corrected value.

        ``alerts`` is the share of samples that the threshold flags, at ``prevalence`` if there is one. The corrected
        value, for the choice on the same samples, is the estimate of ``interval("value")`` with its bounds. It takes
        some 0.2 s a label, so with more than 20 labels or classes it is left out. It is nan for labels that have
        targets of one class only, and for weighted counts. The binary task has one row, for class 1. ``digits`` is the
        number of decimals of values. A note names labels and classes with fewer than ten positives.

        >>> from imbtorch import ThresholdSweep
        >>> sweep = ThresholdSweep("f1", thresholds=11)
        >>> scores = torch.tensor([0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75])
        >>> sweep.update(scores.repeat(5), torch.tensor([0, 0, 0, 1, 0, 1, 1, 1]).repeat(5))
        >>> print(sweep.table())
        class  positives  threshold  alerts  value             corrected
        1             20        0.3   0.625  0.889  0.775 [0.596, 0.963]
        value: f1 at the chosen threshold, corrected for the choice on the same samples (95% held-out tenths,
          posterior)
        """
        self._check_measure()
        task = self._settings.counting.task
        names = ("1",) if task == "binary" else self._settings.class_names
        columns = {
            "positives": self._histogram[..., 1, :].sum(-1).reshape(-1).tolist(),
            "threshold": self._values_of("threshold").tolist(),
            "alerts": self._alert_rates().tolist(),
            "value": self._values_of("value").tolist(),
        }
        within = self._settings.within_text
        where = f"threshold chosen {within}" if within else "chosen threshold"
        note = f"value: {self._settings.name} at the {where}"
        if len(names) <= MOST_IN_TABLE:
            nan = torch.full((len(names),), torch.nan)
            found = self._with_interval("value", nan, list(range(len(names))))
            bounds = zip(found.estimate.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
            columns["corrected"] = [Cell(*each) for each in bounds]
            method = found.method.partition(";")[0] or "interval"
            note += f", corrected for the choice on the same samples (95% {method})"
        rows = {name: {head: cells[at] for head, cells in columns.items()} for at, name in enumerate(names)}
        notes: tuple[str, ...] = (note,)
        texts = map(threshold_text, columns["threshold"], self._chosen.log_odds.reshape(-1).tolist())
        rounded = [f"{name}: {text}" for name, text in zip(names, texts, strict=True) if "logit" in text]
        notes += (f"probabilities that are rounded: {first_names(rounded)}",) if rounded else ()
        kind = "label" if task == "multilabel" else "class"
        return Table({kind: rows}, (*notes, *self.problems.values()), digits=digits)

    def plot(self, kind: Curve | None = None, ax: Any | None = None) -> Any:
        """Draw the measure over the thresholds, the ROC curve, and precision over recall.

        The chosen threshold is marked in each curve, with its value and the highest one, which of several labels or
        classes are in the legend. Of more than ten labels or classes, the ten with the fewest positives are drawn.

        Legends and error bars show 95% intervals (:meth:`interval`): the corrected interval of the chosen value, for up
        to five labels because it takes draws, AUC, and average precision. Intervals that cannot be computed are
        left out, such as the intervals of weighted counts. The default thresholds are spaced evenly as logits, and so
        is their axis.

        Args:
            kind: ``"value"``, ``"roc"``, ``"precision_recall"``, or ``"average_precision"``, which draws a bar for each
                label and a line for random guessing. By default the first three side by side; with several
                labels or classes, whose precisions cross, average precision replaces the third.
            ax: matplotlib axes for one of them, by default the measure over the thresholds; without axes a new figure
                is made.

        Returns:
            Figure (None if axes were given) and axes.

        Raises:
            ValueError: for an unknown ``kind``, and for all but ``"value"`` if no label has targets of both classes.
        """
        from imbtorch.plots.style import TITLE_PAD, figure_of_panels

        check_choice("kind", kind, (None, *get_args(Curve)))
        known = len(self._settings.class_names)
        if kind is None and ax is None:
            kinds: list[Curve] = ["value", "roc", "precision_recall" if known == 1 else AP]
            kinds = kinds if self._settings.name else kinds[1:]
            figure, axes = figure_of_panels(len(kinds), entries=3 + min(MOST_DRAWN, known))
            for each, beside in zip(kinds, axes, strict=True):
                self.plot(each, beside)
            return figure, axes
        if kind is None or kind == "value":
            labels = self._rarest(whole=False)
            figure, ax = self._plot_values(labels, ax)
        else:
            labels = self._rarest(whole=True)
            figure, ax = self._plot_areas(kind, labels, ax)
        if known > MOST_DRAWN:
            title = f"The {len(labels)} rarest of {known}", ax.get_title()
            ax.set_title("\n".join(filter(None, title)), fontsize="medium", pad=TITLE_PAD)
        return figure, ax

    def _rarest(self, whole: bool) -> list[int]:
        """Return the labels to draw: those with the fewest positives; ``whole`` needs targets of both classes."""
        histogram = self._histogram
        one_class = self._of_one_class(histogram)
        if whole and bool(one_class.all()):
            raise ValueError(self._one_class_text(one_class, "there is no curve"))
        positives = histogram[..., 1, :].sum(-1).reshape(-1).double()
        rarest = torch.where(one_class, torch.inf, positives).argsort(stable=True)[:MOST_DRAWN].sort().values
        return rarest[~one_class[rarest]].tolist() if whole else rarest.tolist()

    def _plot_values(self, labels: list[int], ax: Any | None) -> tuple[Any, Any]:
        """Draw the measure over the thresholds."""
        from imbtorch.plots.thresholds import plot_sweep

        thresholds, values = self.curve()
        chosen = torch.stack((self._values_of("threshold"), self._values_of("value")), -1)
        few, nan = len(chosen) <= MOST_CORRECTED, torch.full((len(chosen),), torch.nan)
        return plot_sweep(
            thresholds,
            values.reshape(-1, len(thresholds))[labels],
            ax,
            chosen=chosen[labels],
            corrected=self._with_interval("value", nan, labels) if few else None,
            labels=[self._settings.class_names[index] for index in labels],
            name=self._settings.name,
            scale="logit" if self._settings.crowded else "linear",
            within=self._settings.within_text,
            higher_is_better=bool(self._settings.measure.higher_is_better),
        )

    def _plot_areas(self, kind: Areas, labels: list[int], ax: Any | None) -> tuple[Any, Any]:
        """Draw curves with their areas, or average precisions alone."""
        from imbtorch.plots.operating import plot_average_precisions, plot_chosen_thresholds

        name, areas = ("auc", self.auc()) if kind == "roc" else (AP, self.average_precision())
        swept = self._settings.parts(self._histogram if kind == "roc" else self.rates(), None)
        rows = self._settings.rows_of("threshold")
        counts = {rows[index].of: matrices_of(swept[index]) for index in labels}
        shown = self._with_interval(name, areas, labels)
        if kind == AP:
            item = "Class" if self._settings.counting.task == "multiclass" else "Label"
            return plot_average_precisions(counts, ax, precisions=shown, item=item)
        return plot_chosen_thresholds(
            kind,
            counts,
            ax,
            places=self._chosen.place.reshape(-1)[labels],
            thresholds=self._values_of("threshold")[labels] if self._settings.name else None,
            chosen_for=f"{self._settings.name} {self._settings.within_text}".rstrip(),
            areas=shown,
        )

    def _alert_rates(self) -> Tensor:
        """Return the share of samples that the chosen threshold of each label flags, float64 ``[L]``."""
        places = self._chosen.place.reshape(-1)
        of_labels = self.rates().reshape(len(places), *self._histogram.shape[-2:])
        tn, fp, fn, tp = cells_at(of_labels, torch.arange(len(places)), places)
        return alert_rate(two_by_two(tn, fp, fn, tp)) * (self.log_odds.reshape(-1) < torch.inf)  # nothing is above 1

    def _values_of(self, name: str) -> Tensor:
        """Return a value of all labels, float64 ``[L]`` on the CPU."""
        return torch.stack([self._rows[row].double() for row in self._settings.rows_of(name)])

    def _with_interval(self, name: str, values: Tensor, labels: list[int]) -> Interval:
        """Return values of some labels with their 95% interval; bounds that cannot be computed are nan."""
        try:
            found = self.interval(name)
        except ValueError:  # no interval of weighted counts, or of average precision at another prevalence
            nan = torch.full_like(values, torch.nan)
            found = Interval(values, nan, nan, 0.95, "")
        estimate, low, high = (part.reshape(-1)[labels] for part in (found.estimate, found.low, found.high))
        return replace(found, estimate=estimate, low=low, high=high)

    def _repr_html_(self) -> str:
        """Return the values as a table for notebooks."""
        values = {row.name: {"value": value.item()} for row, value in self._rows.items()}
        return Table({type(self).__name__: values})._repr_html_()


def result_of_histogram(settings: SweepSettings, histogram: Histogram, state: Tensor, hidden: Hidden) -> SweepResult:
    """Choose the thresholds and compute the values from the state of a histogram, on the CPU."""
    settings = replace(settings, dtype=hidden.dtype or torch.float32)  # which is unknown of counts that were loaded
    counts = histogram.counts(state)
    buckets = histogram.counts(state, of_buckets=True) if settings.counting.clusters else None
    chosen, several = settings.chosen(counts, buckets), bool(settings.counting.dependent(state))
    return SweepResult(settings.values(counts, chosen), counts, settings, chosen, buckets, several, hidden)
