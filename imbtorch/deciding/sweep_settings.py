"""Settings of sweeps: which threshold is chosen from a histogram of scores, and which values are reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import torch
from torch import Tensor

from imbtorch.counting.arguments import Task, in_class_order
from imbtorch.counting.logits import logit_threshold
from imbtorch.counting.tasks import Counting, check_memory
from imbtorch.counts import Measure, check_choice, double, evaluated, rescaled_rows, shown_dtype
from imbtorch.deciding.costs import Costs, checked_costs
from imbtorch.deciding.curves import area, average_precision, by_labels, partial_area_at
from imbtorch.deciding.histogram import DEFAULT, Grid, Histogram, counted_edges
from imbtorch.deciding.limits import alert_rate, at_observed_odds, check_promise, checked_limits, of_binary_counts
from imbtorch.deciding.steady import counts_at, pooled, single_threshold, single_thresholds, steady_threshold
from imbtorch.deciding.thresholds import (
    Candidates,
    InfeasibleError,
    Limits,
    all_promised,
    candidates,
    limits_text,
    with_one,
    worst_value,
)
from imbtorch.measures import expected_cost
from imbtorch.measures.named import AtPrevalence, AveragedMeasure, Measured, directed
from imbtorch.measures.traits import short_name
from imbtorch.reports.rows import Row
from imbtorch.reports.texts import UNSURE, checked_names

Also: TypeAlias = Literal["auc", "average_precision", "partial_auc"]
AP: Literal["average_precision"] = "average_precision"
PROMISES = (
    "sure= needs independent samples, but the sweep counts clusters of samples that depend on each other; promise on "
    "one sample of each cluster in a sweep without clusters, or leave sure out"
)
MOST_STEADY = 200  # labels or classes up to which thresholds are chosen by resampling


class Chosen(NamedTuple):
    """Chosen thresholds, each ``[]`` or ``[L]``: index, that of the last one for 1, probability, log-odds and value.

    ``feasible`` is whether some threshold of each label keeps the limits.
    """

    place: Tensor
    threshold: Tensor
    log_odds: Tensor
    value: Tensor
    feasible: bool = True


@dataclass(frozen=True, eq=False)
class SweepSettings:
    """Settings by which a sweep computes values from a histogram of scores; its results share them.

    Attributes:
        counting: how samples are counted.
        class_names: names of the labels or classes; ``("0",)`` in the binary task.
        measure: swept measure, with a direction.
        name: name of the measure in pictures; empty without one, for areas alone.
        thresholds: float64 ``[T]`` on the CPU, sorted.
        odds: their log-odds.
        also: names of further values.
        prevalence: class shares of the population for which values are computed; None for those of the counts.
        crowded: whether the thresholds crowd near 0 and 1, so that pictures show them as logits.
        limits: limits within which the threshold is chosen.
        costs: ``[2, 2]`` costs by which it is chosen in place of the measure; None without.
        sure: level of the guarantee that all limits hold; None if they need to hold on the counted samples only.
        dtype: dtype of the scores.
        class_axis: number of dimensions of the scores if they were those of both classes, ``[N, 2, ...]``; else 0.
    """

    counting: Counting
    class_names: tuple[str, ...]
    measure: AveragedMeasure
    name: str
    thresholds: Tensor
    odds: Tensor
    also: tuple[str, ...]
    prevalence: Tensor | None
    crowded: bool
    limits: Limits = field(default_factory=dict)
    costs: Tensor | None = None
    sure: float | None = None
    dtype: torch.dtype = torch.float64
    class_axis: int = 0

    @classmethod
    def of(
        cls,
        measure: Measured | None,
        thresholds: int | Tensor | None = None,
        task: Task = "binary",
        *,
        num_labels: int | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        also: Sequence[Also] = (),
        at_least: Mapping[str, float] | None = None,
        alerts: float | None = None,
        costs: Costs | None = None,
        sure: float | None = None,
        prevalence: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        higher_is_better: bool | None = None,
        logits: bool = False,
        ignore_index: int | None = None,
        weighted: bool = False,
        clusters: bool = False,
    ) -> SweepSettings:
        """Check the arguments of :class:`~imbtorch.ThresholdSweep`; raise ValueError or TypeError."""
        if isinstance(thresholds, str):
            raise TypeError(f"thresholds must be a number or a tensor, got {thresholds!r}; use task={thresholds!r}")
        counting = Counting.of(
            task, num_classes, num_labels, 0.5, logits, ignore_index, weighted=weighted, clusters=clusters
        )
        if class_names is not None and task == "binary":
            raise ValueError(
                "class_names must be left out in task='binary', which reports one threshold and one value; or use "
                "another task"
            )
        grid = Grid.of(thresholds, counting.logits)
        histogram = Histogram(counting, grid, grid.edges)
        if clusters:
            check_memory(histogram.cells, "histograms", "count fewer labels or classes, or fewer thresholds=")
        names = tuple(map(str, range(histogram.labels)) if class_names is None else checked_names(class_names))
        if len(names) != histogram.labels:
            raise ValueError(f"class_names must hold {histogram.labels} names, got {len(names)}")
        named_also = _checked_also(measure, also, (at_least, alerts, costs, sure, higher_is_better))
        swept = directed(of_binary_counts("measure", measure or "balanced_accuracy"), higher_is_better)
        evaluated(swept, torch.ones(3, 2, 2, dtype=torch.float64, device="cpu"))  # raises before the first epoch
        shares, named = None, ("0", "1") if task == "binary" else names
        if prevalence is not None:
            shares = counting.checked_prevalence(in_class_order("prevalence", prevalence, named))
        settings = cls(
            counting,
            names,
            swept,
            "" if measure is None else swept.traits.key or str(getattr(swept.function, "__name__", "value")),
            grid.thresholds,
            grid.odds,
            named_also,
            shares,
            crowded=grid.name == DEFAULT,
            limits=checked_limits({} if at_least is None else at_least, alerts),
            costs=checked_costs(costs),
        ).promising(sure)
        if weighted and settings.limits:
            raise ValueError(f"at_least and alerts need probabilities, and {UNSURE}")
        return settings

    @property
    def edges(self) -> Tensor:
        """Thresholds in the unit of the scores, between the bins."""
        return self.odds if self.counting.logits else self.thresholds

    @cached_property
    def stored(self) -> tuple[Tensor, Tensor]:
        """Thresholds and log-odds that the dtype of the scores represents, so that they give their counts again.

        A comparison of scores with a Python float rounds it to their dtype, which would move other thresholds.
        """
        edges = counted_edges(self.edges, self.dtype)
        if not self.counting.logits:
            return edges, edges.logit()
        found, slack = edges.sigmoid(), 1e-15 * (1 + edges.abs())
        for _ in range(8):  # the logit of a probability is rounded: it must not be below the edge
            found = torch.where(_logits(found) < edges + slack, torch.nextafter(found, torch.ones_like(found)), found)
        kept = (edges != self.edges) & (_logits(found).to(self.dtype) == edges)
        return torch.where(kept, found, self.thresholds), edges

    def histogram(self) -> Histogram:
        """Return the counter of scores, without counts."""
        grid = Grid.of(None if self.crowded else self.thresholds, self.counting.logits)
        return Histogram(self.counting, grid, grid.edges)

    def rows_of(self, name: str) -> list[Row]:
        """Return the rows of a value, one for each label or class; in the binary task one."""
        better = {"threshold": None, "value": self.measure.higher_is_better}.get(name, True)
        if self.counting.task == "binary":
            return [Row(name, better)]
        return [Row(name, better, "class", label) for label in self.class_names]

    @property
    def rows(self) -> list[Row]:
        """Rows of all reported values; the mean of labels or classes follows the values of each."""
        found = []
        for name in (*("threshold", "value") * bool(self.name), *self.also):
            found += self.rows_of(name)
            if self.counting.task != "binary" and name in ("value", "auc", AP):
                found.append(Row(name, found[-1].better))
        return found

    def chosen(self, histogram: Tensor, buckets: Tensor | None = None) -> Chosen:
        """Choose the threshold of each label from its counts, or with clusters from those of buckets ``[M, ...]``."""
        if not self.name:  # none is needed for areas
            place = torch.full(histogram.shape[:-2], self.half, device="cpu")
            return Chosen(place, self.stored[0][place], self.stored[1][place], place * torch.nan)
        return self._within_limits(histogram) if self.constrained else self._best(histogram, buckets)

    def values(self, histogram: Tensor, chosen: Chosen) -> dict[Row, Tensor]:
        """Return the value of each row, at the chosen thresholds."""
        wide = shown_dtype()
        found = {"threshold": chosen.threshold, "value": chosen.value} if self.name else {}
        whole = histogram.sum(-1).gt(0).all(-1)  # labels that have targets of both classes
        for name in self.also:
            if name == "partial_auc":
                found[name] = by_labels(partial_area_at, histogram, chosen.place)
            elif name == "auc":
                found[name] = by_labels(area, histogram)
            else:
                found[name] = self.of_rates(average_precision, histogram)
        values: list[Tensor] = []
        for name, part in found.items():
            values += part.to(part.dtype if name == "threshold" else wide).reshape(-1).unbind()  # float64 thresholds
            if self.counting.task != "binary" and name in ("value", "auc", AP):
                mean = torch.where(whole, part, torch.nan).nanmean().to(wide)
                values.append(mean if chosen.feasible or name != "value" else torch.full_like(mean, torch.nan))
        return dict(zip(self.rows, values, strict=True))

    @property
    def constrained(self) -> bool:
        """True if the threshold is chosen within limits or by costs."""
        return bool(self.limits) or self.costs is not None

    @property
    def of_negatives(self) -> bool:
        """True if there are limits, which negatives alone can show to be kept."""
        return bool(self.limits) and self.limits.keys() <= {"alerts", "specificity"}

    @property
    def within_text(self) -> str:
        """Limits and costs by which the threshold is chosen, as text; empty without."""
        parts = ["by costs"] * (self.costs is not None) + [f"with {limits_text(self.limits)}"] * bool(self.limits)
        return " ".join(parts if self.sure is None else [*parts, f"at sure={self.sure:g}"])

    @property
    def steady(self) -> bool:
        """True if thresholds are chosen by resampling: of whole counts, for up to 200 labels."""
        return not self.counting.weighted and len(self.class_names) <= MOST_STEADY

    @staticmethod
    def parts(histogram: Tensor, buckets: Tensor | None) -> Sequence[Tensor]:
        """Return the histogram of each label, ``[2, B]``, or with clusters that of their buckets, ``[M, 2, B]``."""
        if buckets is None:
            return histogram.reshape(-1, *histogram.shape[-2:]).unbind()
        return buckets.reshape(len(buckets), -1, *buckets.shape[-2:]).unbind(1)

    def _best(self, histogram: Tensor, buckets: Tensor | None) -> Chosen:
        """Choose without limits."""
        if self.steady:
            labels, rates = self.parts(histogram, buckets), self.parts(self.of_rates(torch.clone, histogram), None)
            places = [steady_threshold(each, self.odds, self.objective(i)) for i, each in enumerate(labels)]
            best = torch.tensor(places).reshape(histogram.shape[:-2])
            counts = torch.stack([counts_at(each, place) for each, place in zip(rates, places, strict=True)])
            value = evaluated(self.measure, double(counts)).reshape(best.shape)
        else:

            def singles(rates: Tensor) -> Tensor:
                return single_thresholds(rates.reshape(-1, *rates.shape[-2:]), self.odds, self.objective())

            best, value = self.of_rates(singles, histogram).reshape(*histogram.shape[:-2], 2).unbind(-1)
            best, value = best.long(), value if self.measure.higher_is_better else -value
        return Chosen(best, self.stored[0][best], self.stored[1][best], value)

    def choose(self, index: int, histogram: Tensor) -> int | None:
        """Choose a threshold for a label from ``[2, B]`` or buckets ``[M, 2, B]``; None if none keeps the limits."""
        if not self.constrained:
            choose = steady_threshold if self.steady else single_threshold
            return choose(histogram, self.odds, self.objective(index))
        try:
            swept, place = self.within_limits(index, histogram)
        except InfeasibleError:
            return None
        return int(swept.places[place])

    def with_all(self, histogram: Tensor) -> Tensor:
        """Return a histogram ``[..., 2, B]`` with all thresholds to choose from: within limits or by costs also 1."""
        return with_one(histogram) if self.constrained else histogram

    @property
    def half(self) -> int:
        """Index of the threshold nearest 0.5."""
        return int(self.odds.abs().argmin())

    def at(self, place: int) -> tuple[float, float]:
        """Return a threshold as probability and log-odds; behind the last one it is 1."""
        if place == len(self.odds):
            return 1.0, math.inf
        return self.stored[0][place].item(), self.stored[1][place].item()

    def within_limits(self, index: int, histogram: Tensor) -> tuple[Candidates, int]:
        """Return the thresholds that predict differently, and the index of the best that keeps the limits of a label.

        Raises:
            InfeasibleError: if none keeps them, or with ``sure`` if none can be promised to.
        """
        where = "" if self.counting.task == "binary" else f"{self.class_names[index]}: "
        swept = candidates(pooled(histogram), self.shares_of(index))
        objective = self.objective() if bool(swept.counts[0, 1].any()) else alert_rate  # the lowest, of negatives alone
        place, feasible = swept.best(objective, self.limits, where)
        if self.sure is not None:
            promised = all_promised(self._promised(index, histogram), swept.counts, self.sure, where)
            place = swept.best_of(objective, feasible & promised)
        return swept, place

    def _within_limits(self, histogram: Tensor) -> Chosen:
        """Choose within the limits.

        Where no threshold keeps them, it is the threshold nearest to 0.5 and the worst possible value. Without targets
        of both classes it is the threshold nearest to 0.5 and nan.
        """
        found, feasible = [], True
        for index, each in enumerate(histogram.reshape(-1, *histogram.shape[-2:])):
            place, value = self.half, torch.nan
            if bool(each.sum(-1).all()):
                try:
                    swept, best = self.within_limits(index, each)
                    place, value = int(swept.places[best]), evaluated(self.measure, swept.rates)[best].item()
                except InfeasibleError:
                    feasible = False
                    value = worst_value(self.measure.higher_is_better, self.measure.traits.value_range)
            found.append((min(place, len(self.odds) - 1), *self.at(place), value))
        places, *others = zip(*found, strict=True)
        shape = histogram.shape[:-2]
        chosen, odds, values = (torch.tensor(each, dtype=torch.float64).reshape(shape) for each in others)
        return Chosen(torch.tensor(places).reshape(shape), chosen, odds, values, feasible)

    def within(
        self,
        at_least: Mapping[str, float] | None,
        alerts: float | None,
        costs: Costs | None,
        sure: float | None,
    ) -> SweepSettings:
        """Return the settings with further limits; an empty ``at_least`` first removes all of these settings."""
        own = {} if at_least is not None and not at_least else self.limits
        limits = {**own, **checked_limits(at_least or {}, alerts)}
        if self.counting.weighted and limits:
            raise ValueError(f"limits need probabilities, and {UNSURE}")
        chosen = replace(self, limits=limits, costs=self.costs if costs is None else checked_costs(costs), sure=None)
        return chosen.promising(self.sure if sure is None and limits else sure)

    def promising(self, sure: float | None) -> SweepSettings:
        """Return the settings with the level at which the limits are guaranteed; raise for limits that cannot be."""
        if sure is not None:
            check_promise(self.limits, sure)
            if self.counting.clusters:
                raise ValueError(PROMISES)
            if self.prevalence is not None:
                at_observed_odds(self.limits, torch.ones(2), torch.ones(2))
        return replace(self, sure=sure)

    def _promised(self, index: int, histogram: Tensor) -> Limits:
        """Return the limits whose promise on the counted samples promises those at the prevalence."""
        shares = self.shares_of(index)
        return self.limits if shares is None else at_observed_odds(self.limits, pooled(histogram).sum(-1), shares)

    def problems(self, histogram: Tensor) -> list[str]:
        """Describe limits that no threshold keeps, for each label with targets of both classes."""
        texts = []
        for index, each in enumerate(histogram.reshape(-1, *histogram.shape[-2:])):
            if bool(each.sum(-1).all()):
                try:
                    self.within_limits(index, each)
                except InfeasibleError as error:
                    texts.append(str(error))
        return texts

    def limits_of(self, index: int) -> Limits:
        """Return the limits as functions of the counts of a label, which rescale them to the prevalence."""
        read = {name: self.at_prevalence(limit.measure, index) for name, limit in self.limits.items()}
        return {name: limit._replace(measure=read[name]) for name, limit in self.limits.items()}

    def at_prevalence(self, measure: Measure, index: int) -> Measure:
        """Return a measure as a function of the counts of a label, which rescales them to the prevalence."""
        shares = self.shares_of(index)
        return measure if shares is None else AtPrevalence(measure, shares)

    def of_rates(self, function: Callable[[Tensor], Tensor], histogram: Tensor) -> Tensor:
        """Apply a function to histograms, rescaled to the prevalence if there is one, of some labels at a time."""
        shares = self.shares()
        if shares is None:
            return by_labels(function, histogram)
        of_labels = shares.expand(histogram.shape[:-1])
        return by_labels(lambda some, share: function(rescaled_rows(double(some), share)), histogram, of_labels)

    def shares(self) -> Tensor | None:
        """Return the shares of negatives and positives at the prevalence, ``[2]`` or ``[L, 2]``."""
        if self.prevalence is None:
            return None
        prevalence = self.prevalence / self.prevalence.sum(-1, keepdim=True)
        return torch.stack((1 - prevalence, prevalence), -1) if self.counting.task == "multiclass" else prevalence

    def shares_of(self, index: int) -> Tensor | None:
        """Return the shares ``[2]`` of negatives and positives of a label at the prevalence."""
        shares = self.shares()
        return None if shares is None else shares.reshape(-1, 2)[index]

    def objective(self, index: int | None = None) -> Measure:
        """Return a function to maximise: at the prevalence of a label, or without ``index`` as is."""
        higher, measure = bool(self.measure.higher_is_better), cast(Measure, self.measure)
        if self.costs is not None:
            higher, measure = False, partial(expected_cost, costs=self.costs)
        measure = measure if index is None else self.at_prevalence(measure, index)
        return measure if higher else negated(measure)


def _checked_also(measure: Measured | None, also: Sequence[str], chosen_by: tuple[object, ...]) -> tuple[str, ...]:
    """Return the names of further values; raise if no measure says what the threshold is chosen for."""
    if isinstance(also, str):
        raise TypeError(f"also must be a sequence of names, got the string {also!r}; write also=({also!r},)")
    also = tuple(dict.fromkeys(map(short_name, also)))
    for each in also:
        check_choice("also", each, get_args(Also))
    if measure is None and (not also or "partial_auc" in also or any(each is not None for each in chosen_by)):
        raise ValueError(
            "measure must name what the threshold is chosen for, such as 'f1'; only also=['auc', 'average_precision'] "
            "needs none, which then computes areas alone"
        )
    return also


def _logits(probabilities: Tensor) -> Tensor:
    return cast(Tensor, logit_threshold(probabilities))


def negated(measure: Measure) -> Measure:
    """Return the negative of a measure."""
    return lambda counts: -measure(counts)
