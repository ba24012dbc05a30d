"""Choice of the multiple of a logit adjustment from counts of buckets, and what it gains on other samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import CountedMargins, Margins, Measure, evaluated, ratio
from imbtorch.deciding.thresholds import Limits, infeasible
from imbtorch.intervals.draws import AGREE, DIFFER, clusters_drawn, gammas, pooled_recall, times_drawn
from imbtorch.intervals.intervals import Interval, moved_outwards, outermost, quantiles, stretch
from imbtorch.measures.named import AveragedMeasure

RESAMPLES = 100  # resamples of buckets, each of which has a best tau
DRAWS = 2000  # resamples for the interval of the gain
CELLS_AT_ONCE = 4_000_000  # cells of resampled counts in memory, 32 MB


@dataclass(frozen=True, eq=False)
class AdjustmentPoint:
    """A multiple of a logit adjustment, with its value. :meth:`imbtorch.LogitAdjustmentSweep.best` finds it.

    Attributes:
        tau: multiple of the log class shares.
        prior: class shares of training ``[K]``.
        value: value of the measure at ``tau``.
        plain: value of the measure without adjustment.
        counts: margins ``[K]`` at ``tau``.
        kept: name of each constrained value -> value at ``tau``.
        logits: whether the scores were logits; None if it is unknown.
        gain: gain of ``tau`` over the plain rule, corrected for the choice, if ``value`` is worse than ``plain``; else
            None. ``tau`` is a mean over resamples, which may gain on new data although its value here is lower.

    >>> counts = Margins(*torch.tensor([[6, 2], [8, 2], [6, 4]]))
    >>> print(AdjustmentPoint(1.0, torch.tensor([0.8, 0.2]), 0.875, 0.75, counts, {}))
    tau 1: value 0.875 (without adjustment 0.750)
    """

    tau: float
    prior: Tensor
    value: float
    plain: float
    counts: Margins
    kept: dict[str, float]
    logits: bool | None = None
    gain: Interval | None = None
    _advice = staticmethod(str)  # text about the rule of the sweep, which DecidingSweep replaces

    def __str__(self) -> str:
        """Return one line, with the corrected gain in place of a plain value that is better."""
        kept = "".join(f", {name} {value:.3f}" for name, value in self.kept.items())
        compared = f"without adjustment {self.plain:.3f}"
        if self.gain is not None:
            found, low, high = (float(part) for part in (self.gain.estimate, self.gain.low, self.gain.high))
            compared = f"gain corrected for the choice {found:+.3f} [{low:+.3f}, {high:+.3f}]"
        return f"tau {self.tau:g}: value {self.value:.3f} ({compared}){kept}{self._advice()}"


@dataclass(frozen=True, eq=False)
class Adjustments:
    """Counts of each bucket of clusters at each tau, from which a tau is chosen.

    **The choice** is the mean of the best taus of resampled buckets, rounded to the grid, which is steadier than the
    single best tau. With limits it is the mean over the resamples in which some tau keeps them, moved to the nearest
    tau that keeps them on all samples. Of tied taus the nearest to 0 is the best. The resamples have a fixed seed, so
    that all processes choose alike.

    ``taus`` are sorted, 0 among them; ``buckets`` are margins ``[B, T, K]`` on the CPU, with targets ``[B, 1, K]``.
    """

    taus: tuple[float, ...]
    buckets: Margins

    @cached_property
    def plain(self) -> int:
        """Index of the plain rule, tau = 0."""
        return self.taus.index(0.0)

    @cached_property
    def total(self) -> Margins:
        """Margins of all samples, ``[T, K]``."""
        return over_buckets(self.buckets)

    @cached_property
    def _times(self) -> Tensor:
        """Number of times that each resample holds each bucket, float64 ``[R, B]``."""
        number = len(self.buckets.actual)
        if number == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        return times_drawn((RESAMPLES, number), torch.Generator().manual_seed(0))

    def _resamples(self) -> Iterator[Margins]:
        """Yield margins ``[r, T, K]`` of some resamples at a time."""
        cells = 2 * self.buckets.correct[0].numel()
        flat = [part.double().flatten(1) for part in self.buckets]
        for times in torch.split(self._times, max(1, CELLS_AT_ONCE // cells)):
            right, actual, predicted = (
                (times @ part).reshape(len(times), *like.shape[1:])
                for part, like in zip(flat, self.buckets, strict=True)
            )
            yield CountedMargins(right, actual.expand(right.shape), predicted)

    def _best_of_each(self, objective: Measure, limits: Limits) -> Tensor:
        """Return the index of the best tau of each resample ``[R]``; -1 where none keeps the limits."""
        found = []
        for counts in self._resamples():
            goodness = evaluated(objective, counts).nan_to_num(nan=-torch.inf)
            kept = self._kept(limits, counts)
            best = self._first_of_the_best(torch.where(kept, goodness, -torch.inf))
            found.append(torch.where(kept.any(-1), best, -1))
        return torch.cat(found)

    @cached_property
    def _from_zero(self) -> Tensor:
        """Indices of the taus, the nearest to 0 first."""
        return torch.tensor(sorted(range(len(self.taus)), key=lambda place: (abs(self.taus[place]), place)))

    def _first_of_the_best(self, goodness: Tensor) -> Tensor:
        """Return the index of the greatest of values ``[..., T]``; of tied ones, that of the tau nearest to 0."""
        return self._from_zero[goodness[..., self._from_zero].argmax(-1)]

    @staticmethod
    def _kept(limits: Limits, counts: Margins) -> Tensor:
        """Return whether counts ``[..., T, K]`` keep all limits."""
        kept = torch.ones(counts.actual.shape[:-1], dtype=torch.bool)
        for limit in limits.values():
            kept = kept & limit.kept(counts)
        return kept

    def _place(self, best: Tensor, feasible: Tensor, fallback: Tensor) -> int:
        """Return the index of the feasible tau nearest to the mean of the best ones of resamples."""
        taus = torch.tensor(self.taus, dtype=torch.float64)
        best = best[best >= 0]
        mean = taus[best].mean() if len(best) else taus[fallback]
        return int(self._first_of_the_best(torch.where(feasible, -(taus - mean).abs(), -torch.inf)))

    @computed_on_cpu
    def chosen(self, objective: Measure, limits: Limits) -> int:
        """Choose a tau that maximises a function of margins within limits; return its index.

        Raises:
            InfeasibleError: if no tau keeps the limits on all samples; it says what is reachable.
        """
        goodness = evaluated(objective, self.total).nan_to_num(nan=-torch.inf)
        feasible = self._kept(limits, self.total)
        if not bool(feasible.any()):
            each = {name: limit.kept(self.total) for name, limit in limits.items()}
            raise infeasible(limits, each, self.total, "tau")
        single = self._first_of_the_best(torch.where(feasible, goodness, -torch.inf))
        return self._place(self._best_of_each(objective, limits), feasible, single)

    @computed_on_cpu
    def held_out(self, objective: Measure, limits: Limits) -> Margins:
        """Count each bucket at the tau that the resamples without it choose; return margins ``[K]``.

        A bucket takes part in no choice that it is counted at, so that the values of these counts are not flattered by
        the choice. Without a tau that keeps the limits, a bucket is counted at the tau of all samples.
        """
        best = self._best_of_each(objective, limits)
        right, actual, predicted = self.buckets
        places = []
        for index, times in enumerate(self._times.T):
            without = best[times == 0]
            if not bool((without >= 0).any()):
                places.append(self.chosen(objective, limits))
                continue
            rest = [total - part[index] for total, part in zip(self._sums, self.buckets, strict=True)]
            feasible = self._kept(limits, Margins(rest[0], rest[1].expand(rest[0].shape), rest[2]))
            feasible = feasible if bool(feasible.any()) else torch.ones_like(feasible)
            places.append(self._place(without, feasible, torch.tensor(self.plain)))
        each = torch.arange(len(places)), torch.tensor(places)
        return CountedMargins(right[each].sum(0), actual.sum(0)[0], predicted[each].sum(0))

    @cached_property
    def _sums(self) -> Margins:
        return Margins(*(part.sum(0) for part in self.buckets))

    @computed_on_cpu
    def gain(
        self, objective: Measure, limits: Limits, index: int, level: float, generator: torch.Generator | None
    ) -> Interval:
        """Compute what a tau gains over the plain rule, with an interval.

        The estimate is that of :meth:`held_out`. Resampled buckets at the tau, with a pseudo-sample of each class, give
        bounds, stretched about their value as those of :func:`imbtorch.statistics.bootstrap` with clusters; they are
        also shifted for the bias of resamples and to the estimate, and the outermost bounds are returned.
        """
        right, actual, predicted = self.buckets
        parts = torch.stack(
            (right[:, index], predicted[:, index], right[:, self.plain], predicted[:, self.plain], actual[:, 0]), 1
        ).double()

        def difference(counts: Tensor) -> Tensor:
            """Return the gain of counts ``[..., 5, K]``."""
            hits, chosen, plain_hits, plain, targets = counts.unbind(-2)
            after = evaluated(objective, CountedMargins(hits, targets, chosen))
            return after - evaluated(objective, CountedMargins(plain_hits, targets, plain))

        pooled = parts.sum(0)
        seen = difference(pooled)
        held = evaluated(objective, self.held_out(objective, limits))
        estimate = held - evaluated(objective, at(self.total, self.plain))
        resamples = clusters_drawn(parts, DRAWS, generator, 2)
        if index != self.plain:  # else the gain is 0 whatever the samples are
            resamples = (_with_prior(some, pooled, generator) for some in resamples)
        drawn = torch.cat([difference(some) for some in resamples])
        drawn = torch.where(drawn.isnan(), seen, drawn)
        wider = stretch(difference, parts, pooled, level, 2)
        low, high = (seen + wider * (end - seen) for end in quantiles(drawn, level))
        for shift in (2 * (seen - drawn.mean()), estimate - seen):  # of small classes, and of the choice
            low, high = moved_outwards(low, high, shift)
        low, high = outermost(low, high, estimate)
        method, blind = f"pseudo-samples and {len(parts)} resampled buckets", int(_without_hits(pooled).sum())
        if blind and index != self.plain:
            method += f"; no sample of {'the rarest class' if blind == 1 else f'the {blind} rarest classes'} is right"
        return Interval(estimate, low, high, level, method)


def _with_prior(parts: Tensor, pooled: Tensor, generator: torch.Generator | None) -> Tensor:
    """Add a pseudo-sample of each class with targets to resamples, whose class totals stay as they are.

    Resamples cannot show a changed decision that no sample of a class has. The pseudo-sample is that of the pooled
    prior of :func:`imbtorch.statistics.posterior`, for each rule independently: it is right with the mean recall of the
    rule, and if it is wrong, it is predicted as another class, drawn at random. The mean says nothing of classes
    without hits that are rarer than every class with hits; they have the prior of
    :func:`imbtorch.statistics.paired_compare`. ``parts`` are ``[S, 5, K]`` hits and predictions of the chosen rule,
    those of the plain rule, and targets; ``pooled`` the same of all samples.
    """
    occurs, size = pooled.any(0), pooled.shape[-1]
    if int(occurs.sum()) < 2:
        return parts
    hits, chosen, plain_hits, plain, targets = parts.unbind(-2)
    right, plain_right = (pooled_recall(pooled[place], pooled[4]) for place in (0, 2))
    shares = torch.cat((right * plain_right, right * (1 - plain_right), (1 - right) * plain_right))
    shares = torch.cat((shares, 1 - shares.sum(0, keepdim=True))).unsqueeze(-1)
    unlike = torch.tensor([AGREE, DIFFER, DIFFER, AGREE], dtype=torch.float64).unsqueeze(-1)
    shares = torch.where(_without_hits(pooled), unlike, shares) * (pooled[4] > 0)
    both, gained, lost, neither = gammas(shares.flatten(), len(parts), generator).T.reshape(-1, 4, size).unbind(1)
    others = occurs.double() * (1 - torch.eye(size, dtype=torch.float64))
    column = torch.multinomial(others, len(parts), True, generator=generator).T
    scale = ratio(targets, targets + both + gained + lost + neither)

    def rule(hits: Tensor, predicted: Tensor, right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
        """Return hits and predictions of a rule with the right and the wrong part of the pseudo-samples."""
        found = (hits + right) * scale
        false = (predicted - hits).scatter_add(1, column, wrong)
        return found, found + false * ratio((targets - found).sum(-1, keepdim=True), false.sum(-1, keepdim=True))

    after = rule(hits, chosen, both + gained, lost + neither)
    return torch.stack((*after, *rule(plain_hits, plain, both + lost, gained + neither), targets), -2)


def _without_hits(pooled: Tensor) -> Tensor:
    """Return which classes have samples, none of them right, and fewer than every class with hits, bools ``[K]``."""
    hits, targets = pooled[0] + pooled[2], pooled[4]
    return (targets > 0) & (targets < torch.where(hits > 0, targets, torch.inf).min())


def over_buckets(buckets: Margins) -> Margins:
    """Sum margins over buckets: ``[T, K]`` of ``[B, T, K]``."""
    right, actual, predicted = (part.sum(0) for part in buckets)
    return CountedMargins(right, actual.expand(right.shape), predicted)


def at(counts: Margins, index: int) -> Margins:
    """Return the margins ``[K]`` at one tau."""
    return CountedMargins(*(part[index] for part in counts))


def maximised(measure: AveragedMeasure) -> Measure:
    """Return a measure as a function to maximise."""
    return measure if measure.higher_is_better else lambda counts: -measure(counts)
