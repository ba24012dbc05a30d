"""Steady choice of a threshold: the mean of the best thresholds of resamples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from imbtorch.arguments import computed_on_cpu
from imbtorch.choosing.thresholds import Limits, best_of_tied, distinct, log_odds
from imbtorch.counts import Measure, evaluated
from imbtorch.inference.scores import matrices_of

__all__ = ["RESAMPLES", "steady_threshold"]

RESAMPLES = 100  # resamples of the samples, each of which has a best threshold
MOST = 512  # thresholds that resamples try; of more that predict differently every second, third, ... is tried
EXPLAINED = 0.5  # standard deviations, over resamples, of a loss that resampling explains


class Tried(NamedTuple):
    """Thresholds that predict differently, with the samples between them.

    Attributes:
        histogram: float64 ``[2, K + 1]``.
        first: index of the lowest threshold of the grid that predicts the same, ``[K]``.
        places: index of that nearest .5, ``[K]``.
    """

    histogram: Tensor
    first: Tensor
    places: Tensor

    def at(self, index: int) -> int:
        """Return which of them predicts as a threshold of the grid does, or the last one below it."""
        return max(int(torch.searchsorted(self.first, index, right=True)) - 1, 0)

    def thinned(self) -> Tried:
        """Keep at most :data:`MOST` of them; the samples between two that are kept are merged."""
        number = len(self.first)
        kept = torch.arange(0, number, -(-number // MOST))
        group = torch.searchsorted(kept, torch.arange(number + 1))
        merged = self.histogram.new_zeros(2, len(kept) + 1).index_add_(1, group, self.histogram)
        return Tried(merged, self.first[kept], self.places[kept])


@computed_on_cpu
def steady_threshold(
    histogram: Tensor, thresholds: Tensor, objective: Measure, limits: Limits | None = None
) -> int | None:
    """Choose the mean of the best thresholds of resamples, which is steadier than the single best threshold.

    The samples are resampled 100 times, with a fixed seed, so that all processes choose alike. In each resample the
    best threshold is found; of tied ones, also of those between which no sample lies, it is the one nearest .5. Their
    log-odds are averaged and rounded to the grid. Resamples that lack a class, or in which no threshold keeps the
    limits, do not count. With limits the mean is moved to the nearest threshold that keeps them on all samples.

    Few different scores, such as those of a small forest, leave gaps in which a mean may fall, on the wrong side of
    many samples. If it loses against the nearest threshold that was the best of a resample by more than half a standard
    deviation of that loss over resamples, the latter is chosen.

    Args:
        histogram: ``[2, B]`` whole counts.
        thresholds: ``[T]`` sorted thresholds, between the first T + 1 bins.
        objective: function of counts ``[..., 2, 2]`` that is maximised; undefined values are never the best.
        limits: limits that the threshold must keep; None for none.

    Returns:
        Index among the thresholds: of the one nearest .5 if a class has no samples, None if no threshold keeps the
        limits.

    >>> from imbtorch import balanced_accuracy
    >>> steady_threshold(torch.tensor([[9, 0, 0, 0], [0, 0, 0, 9]]), torch.tensor([0.2, 0.4, 0.7]), balanced_accuracy)
    1
    """
    odds = log_odds(thresholds)
    middle = int(best_of_tied(torch.zeros_like(odds), odds))
    if not bool(histogram.sum(-1).all()):
        return middle
    small, first = distinct(histogram, len(thresholds))
    ends = torch.cat((first[1:] - 1, first.new_tensor([len(thresholds) - 1])))
    every = Tried(small.double(), first, torch.clamp(torch.tensor(middle), first, ends))
    counts = matrices_of(every.histogram)
    kept = _kept(limits, counts)
    if not bool(kept.any()):
        return None
    tried = every.thinned()
    drawn = matrices_of(_resampled(tried.histogram))
    values = torch.where(_kept(limits, drawn), evaluated(objective, drawn), -torch.inf).nan_to_num(nan=-torch.inf)
    values = values[(values > -torch.inf).any(-1)]
    if not len(values):
        values = torch.where(kept, evaluated(objective, counts), -torch.inf).nan_to_num(nan=-torch.inf).unsqueeze(0)
        tried = every
    bests = tried.places[best_of_tied(values, odds[tried.places])]
    mean = odds[bests].mean()
    allowed = kept[torch.searchsorted(first, torch.arange(len(odds)), right=True) - 1]
    steady, nearest = (
        int(best_of_tied(torch.where(some, -(odds - mean).abs(), -torch.inf), odds))
        for some in (allowed, allowed & torch.zeros_like(allowed).index_fill(0, bests, True))
    )
    if not bool(allowed[nearest]):
        return steady
    loss = evaluated(objective, counts[[every.at(nearest), every.at(steady)]])
    of_resamples = values[:, tried.at(nearest)] - values[:, tried.at(steady)]
    explained = EXPLAINED * of_resamples[of_resamples.isfinite()].std(unbiased=False).nan_to_num()
    return nearest if loss[0] - loss[1] > explained else steady


def _resampled(histogram: Tensor) -> Tensor:
    """Draw all samples of a histogram ``[2, B]`` with replacement; return the draws with both classes ``[R, 2, B]``."""
    cells = histogram.flatten()
    held = cells.nonzero().flatten()
    shares = (cells[held] / cells.sum()).numpy()
    drawn = torch.zeros(RESAMPLES, len(cells), dtype=torch.float64)
    drawn[:, held] = torch.from_numpy(
        np.random.default_rng(0).multinomial(int(cells.sum()), shares, RESAMPLES)
    ).double()
    drawn = drawn.view(RESAMPLES, *histogram.shape)
    return drawn[drawn.sum(-1).all(-1)]


def _kept(limits: Limits | None, counts: Tensor) -> Tensor:
    """Return whether counts ``[..., 2, 2]`` keep all limits."""
    kept = torch.ones(counts.shape[:-2], dtype=torch.bool)
    for limit in (limits or {}).values():
        kept = kept & limit.kept(counts)
    return kept
