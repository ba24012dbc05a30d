"""Steady choice of a threshold, the mean of the best thresholds of resamples, and what it gains on other samples.

A histogram is ``[2, B]``, the number of negatives and positives in each of B bins of scores, or ``[M, 2, B]``, those of
M buckets of clusters, which are then resampled and held out as wholes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import CountedMargins, Measure, evaluated, ratio, two_by_two
from imbtorch.deciding.curves import cells_at, matrices_of
from imbtorch.deciding.thresholds import best_of_tied, bounded, distinct
from imbtorch.deciding.ties import ROUNDING
from imbtorch.intervals.draws import clusters_drawn, effective_samples, gammas, resampled_cells
from imbtorch.intervals.intervals import Interval, moved_outwards, quantiles, stretch

RESAMPLES = 100  # resamples of the samples, each of which has a best threshold
MOST = 512  # thresholds that resamples try; of more that predict differently every second, third, ... is tried
EXPLAINED = 0.5  # standard deviations, over resamples, of a loss that resampling explains
FOLDS, REPEATS = 10, 2  # parts of the samples, each counted at a threshold of the others, and random divisions
DRAWS = 2000  # draws of the posterior of a gain


def pooled(histogram: Tensor) -> Tensor:
    """Return the histogram ``[2, B]`` of all samples."""
    return histogram.sum(0) if histogram.ndim == 3 else histogram


def filled(buckets: Tensor) -> Tensor:
    """Return the buckets ``[M, ...]`` that hold samples."""
    return buckets[buckets.flatten(1).any(1)]


class Tried(NamedTuple):
    """Thresholds that predict differently, with the samples between them, float64 ``[2, K + 1]``.

    ``first`` is the index of the lowest threshold of the grid that predicts the same, ``places`` that nearest 0.5.
    """

    histogram: Tensor
    first: Tensor
    places: Tensor

    @classmethod
    def of(cls, histogram: Tensor, odds: Tensor) -> Tried:
        """Find all of them, given the log-odds of the thresholds ``[T]``."""
        small, first = distinct(histogram, len(odds))
        last = torch.cat((first[1:] - 1, first.new_tensor([len(odds) - 1])))
        return cls(small.double(), first, _middle(odds).clamp(first, last))

    def at(self, places: Tensor) -> Tensor:
        """Return which of them predict as thresholds of the grid do, or the last ones below these."""
        return (torch.searchsorted(self.first, places, right=True) - 1).clamp(min=0)

    def thinned(self) -> Tried:
        """Keep at most :data:`MOST` of them; the samples between two that are kept are merged."""
        number = len(self.first)
        kept = torch.arange(0, number, -(-number // MOST))
        group = torch.searchsorted(kept, torch.arange(number + 1))
        merged = self.histogram.new_zeros(2, len(kept) + 1).index_add_(1, group, self.histogram)
        return Tried(merged, self.first[kept], self.places[kept])

    def between(self, buckets: Tensor) -> Tensor:
        """Sum the bins of buckets between these thresholds, float64 ``[M, 2, K + 1]``."""
        group = torch.searchsorted(self.first, torch.arange(buckets.shape[-1]))
        summed = self.histogram.new_zeros(*buckets.shape[:-1], len(self.first) + 1)
        return summed.index_add_(-1, group, buckets.double())

    def values(self, objective: Measure, histogram: Tensor) -> Tensor:
        """Return the value at each of them ``[..., K]``, -inf where it is undefined."""
        return evaluated(objective, matrices_of(histogram)).nan_to_num(nan=-torch.inf)


def single_threshold(histogram: Tensor, odds: Tensor, objective: Measure) -> int:
    """Choose the threshold with the best value on all samples, of ties the one nearest 0.5; counts may be weighted."""
    whole = pooled(histogram)
    if not bool(whole.sum(-1).all()):  # a class has no samples
        return int(_middle(bounded(odds)))
    return int(single_thresholds(whole.unsqueeze(0), odds, objective)[0, 0])


@computed_on_cpu
def single_thresholds(histogram: Tensor, odds: Tensor, objective: Measure) -> Tensor:
    """Find the best threshold of each histogram ``[R, 2, B]``, of ties the one nearest 0.5.

    Thresholds between which no sample lies predict alike and are evaluated once.

    Returns:
        Index and value, float64 ``[R, 2]``; nan is never the best unless all values are.
    """
    number, odds = len(odds), bounded(odds)
    distance, every = odds.abs(), torch.arange(len(odds))
    equal = torch.where(odds.diff(prepend=odds[:1] - 1) > 0, every, 0).cummax(0).values  # the first of equal odds
    held = histogram[..., :number].sum(-2) > 0
    held[:, 0] = True
    row, first = held.nonzero().unbind(-1)
    last = torch.cat((first[1:], first[:1])) - 1  # the next row begins with 0
    nearest = _middle(odds).clamp(first, torch.where(last < 0, number - 1, last))
    places = torch.maximum(equal[nearest], first)
    tn, fp, fn, tp = cells_at(histogram, row, first)
    if getattr(objective, "needs_matrix", True):
        values = evaluated(objective, two_by_two(tn, fp, fn, tp))
    else:  # half the time
        pairs = (tn, tp), (tn + fp, fn + tp), (tn + fn, fp + tp)
        values = evaluated(objective, CountedMargins(*(torch.stack(pair, -1) for pair in pairs)))
    known = values.nan_to_num(nan=-torch.inf)
    most = torch.segment_reduce(known, "max", lengths=held.sum(-1), unsafe=True)
    far = distance[places].where(known >= (most - ROUNDING)[row], torch.inf)
    least = torch.segment_reduce(far, "min", lengths=held.sum(-1), unsafe=True)
    kept = (far == least[row]).nonzero().flatten()  # of a row two if they are as far from 0.5
    kept = kept[row[kept].diff(prepend=row.new_full((1,), -1)) > 0]
    return torch.stack((places[kept].double(), values[kept]), -1)


@computed_on_cpu
def steady_threshold(histogram: Tensor, odds: Tensor, objective: Measure) -> int:
    """Choose the mean of the best thresholds of resamples, which is steadier than the single best threshold.

    The samples, or their buckets of clusters, are resampled 100 times, with a fixed seed, so that all processes choose
    alike. In each resample the best threshold is found; of tied ones, also of those between which no sample lies, it is
    the one nearest 0.5. Their log-odds are averaged and rounded to the grid. Resamples that lack a class do not count.

    Few different scores, such as those of a small forest, leave gaps in which a mean may fall, on the wrong side of
    many samples. If it loses against the nearest threshold that was the best of a resample by more than half a standard
    deviation of that loss over resamples, the latter is chosen.

    ``odds`` are the sorted log-odds ``[T]`` of the thresholds between the first T + 1 bins. Undefined values are never
    the best; if a class has no samples, the threshold nearest 0.5 is chosen.

    >>> from imbtorch import balanced_accuracy
    >>> steady_threshold(torch.tensor([[9, 0, 0, 0], [0, 0, 0, 9]]), torch.tensor([-1.4, -0.4, 0.8]), balanced_accuracy)
    1
    """
    odds = bounded(odds)
    every = Tried.of(pooled(histogram), odds)
    on_all, tried = every.values(objective, every.histogram), every.thinned()
    parts = tried.histogram if histogram.ndim == 2 else tried.between(filled(histogram))
    values = tried.values(objective, _resampled(parts))
    values = values[(values > -torch.inf).any(-1)]
    if not len(values):
        return single_threshold(histogram, odds, objective)
    bests = tried.places[best_of_tied(values, odds[tried.places])]
    closeness = -(odds - odds[bests].mean()).abs()
    steady = best_of_tied(closeness, odds)
    nearest = best_of_tied(torch.full_like(closeness, -torch.inf).index_copy(0, bests, closeness[bests]), odds)
    loss = on_all[every.at(nearest)] - on_all[every.at(steady)]
    of_resamples = values[:, tried.at(nearest)] - values[:, tried.at(steady)]
    finite = of_resamples[of_resamples.isfinite()]
    explained = EXPLAINED * (finite - finite.mean()).square().mean().sqrt().nan_to_num()
    chosen = nearest if bool(loss > explained) else steady
    undefined = on_all[every.at(chosen)] == -torch.inf
    return single_threshold(histogram, odds, objective) if bool(undefined) else int(chosen)


def _middle(odds: Tensor) -> Tensor:
    """Return the index of the threshold nearest 0.5."""
    return odds.abs().argmin()


def _resampled(histogram: Tensor) -> Tensor:
    """Draw all samples or buckets with replacement; return the draws with both classes ``[R, 2, B]``."""
    if not bool(pooled(histogram).sum(-1).all()):
        return histogram.new_zeros(0, *histogram.shape[-2:])
    if histogram.ndim == 3:
        drawn = torch.cat([*clusters_drawn(histogram, RESAMPLES, torch.Generator().manual_seed(0), 2)])
        return drawn[drawn.sum(-1).all(-1)]
    drawn = resampled_cells(histogram, RESAMPLES)
    return drawn[drawn.sum(-1).all(-1)]


# --- on other samples -----------------------------------------------------------------------------------------------


class HeldOut(NamedTuple):
    """Counts of samples, or of each bucket, at thresholds that other samples chose, and the number of folds.

    ``failed`` of the folds leave samples with which no threshold keeps the limits.
    """

    counts: Tensor
    failed: int
    folds: int


@computed_on_cpu
def held_out(
    histogram: Tensor, choose: Callable[[Tensor], int | None], generator: torch.Generator | None = None
) -> HeldOut:
    """Count each tenth of the samples at the threshold that the other nine tenths choose.

    No sample takes part in a choice that it is counted at, so that the values of these counts are not flattered by the
    choice. Samples are divided at random, twice, and counts are averaged. The bins suffice for that: the number of
    samples of a bin in a fold is binomial. Folds for which ``choose`` returns None are left out. Buckets are divided
    once, into ten groups or fewer, and keep their counts.

    >>> generator = torch.Generator().manual_seed(0)
    >>> held_out(torch.tensor([[9, 0], [0, 9]]), lambda _: 0, generator).counts
    tensor([[9., 0.],
            [0., 9.]], dtype=torch.float64)
    """
    if histogram.ndim == 3:
        return _held_out_buckets(filled(histogram), choose, generator)
    whole, failed = histogram.double(), 0
    counted = whole.new_zeros(2, 2)
    for _ in range(REPEATS):
        left = whole.clone()
        for fold in range(FOLDS, 0, -1):
            own = torch.binomial(left, torch.full_like(left, 1 / fold), generator)
            left -= own
            place = choose(whole - own)
            if place is None:
                failed += 1
            else:
                counted += counts_at(own, place)
    totals = whole.sum(-1, keepdim=True)
    if bool((counted.sum(-1) == 0).any()):
        place = choose(whole)
        counted = counts_at(whole, 0 if place is None else place)
    return HeldOut(ratio(counted, counted.sum(-1, keepdim=True)) * totals, failed, REPEATS * FOLDS)


def _held_out_buckets(
    buckets: Tensor, choose: Callable[[Tensor], int | None], generator: torch.Generator | None
) -> HeldOut:
    """Count each group of buckets at the threshold that the other groups choose; see :func:`held_out`."""
    counts, failed = buckets.new_zeros(len(buckets), 2, 2), 0
    folds = torch.randperm(len(buckets), generator=generator).tensor_split(min(FOLDS, len(buckets)))
    for fold in folds:
        place = choose(buckets[~torch.isin(torch.arange(len(buckets)), fold)])
        if place is None:
            failed += 1
        else:
            counts[fold] = counts_at(buckets[fold], place)
    if not bool(counts.sum((0, -1)).all()):
        place = choose(buckets)
        counts = counts_at(buckets, 0 if place is None else place)
    return HeldOut(counts, failed, len(folds))


def counts_at(histogram: Tensor, place: int) -> Tensor:
    """Return the counts ``[..., 2, 2]`` of a histogram ``[..., 2, B]`` at a threshold."""
    return torch.stack((histogram[..., : place + 1].sum(-1), histogram[..., place + 1 :].sum(-1)), -1)


@computed_on_cpu
def gain_interval(
    histogram: Tensor,
    place: int,
    plain: int,
    objective: Measure,
    counts: Tensor,
    level: float,
    generator: torch.Generator | None,
) -> Interval:
    """Compute what the threshold at ``place`` gains over the one at ``plain``, with a range.

    The estimate is that of held-out counts ``[2, 2]``. The bounds are those of the posterior of the gain at the two
    thresholds, and the same shifted to the estimate; the outermost are returned. The posterior of buckets is that of
    their effective number of samples, and bounds of resampled buckets, stretched and shifted for their bias as those of
    :func:`imbtorch.statistics.bootstrap`, widen it.
    """
    buckets = filled(histogram).double() if histogram.ndim == 3 else None
    low, high = sorted((place, plain))

    def divided(each: Tensor) -> Tensor:
        """Return the counts ``[..., 2, 3]`` below, between and above the thresholds."""
        some = each[..., : low + 1], each[..., low + 1 : high + 1], each[..., high + 1 :]
        return torch.stack([part.sum(-1) for part in some], -1)

    def difference(cells: Tensor) -> Tensor:
        """Return the gain of cells ``[..., 2, 3]``."""
        below, between, above = cells.unbind(-1)
        lower, upper = torch.stack((below, between + above), -1), torch.stack((below + between, above), -1)
        after, before = (lower, upper) if place < plain else (upper, lower)
        return evaluated(objective, after) - evaluated(objective, before)

    whole = pooled(histogram).double()
    parts, totals = divided(whole), whole.sum(-1)
    share = torch.ones(2, dtype=torch.float64)  # of the samples, what they are worth
    if buckets is not None:
        below, between, above = divided(buckets).unbind(-1)
        moved = torch.stack((below + above, between), -1)  # by the other threshold
        moved = torch.stack((moved[:, 0], moved[:, 1].flip(-1)), 1)
        share = ratio(effective_samples(moved, 2), totals)
    prior = torch.full((2, 3), 0.5) if high > low else torch.tensor([0.5, 0.0, 0.5])
    drawn = gammas((parts * share.unsqueeze(-1) + prior).flatten(), DRAWS, generator).T.reshape(DRAWS, 2, 3)
    sizes = gammas(totals * share + 0.5, DRAWS, generator).T / share
    drawn = ratio(drawn, drawn.sum(-1, keepdim=True)) * sizes.unsqueeze(-1)
    seen = difference(parts)
    estimate = evaluated(objective, counts) - evaluated(objective, counts_at(whole, plain))
    values = difference(drawn)
    ends = [*quantiles(torch.where(values.isnan(), seen, values), level)]
    method = "range of the posterior, held-out estimate"
    if buckets is not None:
        resampled = torch.cat([difference(some) for some in clusters_drawn(divided(buckets), DRAWS, generator, 2)])
        resampled = torch.where(resampled.isnan(), seen, resampled)
        wider = stretch(difference, divided(buckets), parts, level, 2)
        low_end, high_end = (seen + wider * (end - seen) for end in quantiles(resampled, level))
        ends += moved_outwards(low_end, high_end, 2 * (seen - resampled.mean()))
        method = f"range of {len(buckets)} resampled buckets, held-out estimate"
    shift = estimate - seen
    bounds = torch.stack([*ends, *(end + shift for end in ends), estimate])
    return Interval(estimate, bounds.min(), bounds.max(), level, method)
