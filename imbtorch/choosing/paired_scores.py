"""Differences of two models in areas under curves of their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_tensor, checked_ids, spread
from imbtorch.counting.clusters import BUCKETS
from imbtorch.counts import ratio
from imbtorch.deciding.curves import AREAS, INFLUENCES, average_precision, histogram_of_ranks
from imbtorch.deciding.ties import ROUNDING
from imbtorch.intervals.draws import chunks, normal_quantile, student_quantile
from imbtorch.intervals.intervals import Interval, quantiles, warn_of_large_cluster
from imbtorch.waiting import announced

FEW_POSITIVES = 30  # below which percentiles of average precision are too narrow
MOST_RESAMPLED = 20_000  # samples up to which average precisions are compared by resamples
CORRELATED = 2.0  # greatest distance that correlates, as a multiple of the one that the variance explains


def compare_scores(
    measure: str,
    preds_a: Tensor,
    preds_b: Tensor,
    target: Tensor,
    cluster: Tensor | None,
    draws: int,
    level: float,
    generator: torch.Generator | None,
) -> tuple[Interval, Tensor]:
    """Compare the scores of two models; return the interval of a minus b, and the probability that a is better."""
    places, positive, sizes = ranks({"preds_a": preds_a, "preds_b": preds_b}, target)
    if cluster is not None:
        ids = spread("cluster", checked_ids(cluster), target, target)
        interval = compare_clusters(measure, places, positive, sizes, ids, level)
    elif measure == "auc" or len(target) > MOST_RESAMPLED or int(positive.sum()) < FEW_POSITIVES:
        interval = compare_areas(measure, places, positive, sizes, level)
    else:
        interval = compare_average_precisions(places, positive, sizes, draws, level, generator)
    if interval.draws is not None:
        tied = interval.draws.abs() < ROUNDING
        return interval, ((interval.draws > 0) & ~tied).double().mean() + tied.double().mean() / 2
    half = (interval.high - interval.low) / 2 / normal_quantile(level)
    return interval, torch.special.ndtr(ratio(interval.estimate, half))


def ranks(preds: Mapping[str, Tensor], target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Check scores of R models for class 1, and return their ranks and the targets.

    Returns:
        ``[R, N]`` index of each sample's score among the different scores of a model, ``[N]`` targets as bools, and the
        number of different scores of each model ``[R]``.

    Raises:
        ValueError: for shapes that differ, NaN scores, targets other than 0 and 1, and targets of one class.
        TypeError: for scores that are not floating, and targets that are not integers or bools.
    """
    check_tensor("target", target)
    for name, scores in preds.items():
        check_tensor(name, scores)
        if not scores.is_floating_point():
            raise TypeError(f"{name} must hold scores for 'auc' and 'average_precision', got {scores.dtype}")
        if scores.shape != target.shape or target.ndim != 1:
            raise ValueError(f"{name} and target must be [N], got {list(scores.shape)} and {list(target.shape)}")
        if bool(scores.isnan().any()):
            raise ValueError(f"{name} holds NaN in row {int(scores.isnan().int().argmax())}")
    if target.is_floating_point():
        raise TypeError(f"target must hold 0 and 1, got {target.dtype}; use target.long()")
    positive = target == 1
    if not bool((positive | (target == 0)).all()) or not 0 < int(positive.sum()) < len(target):
        raise ValueError("target must hold 0 and 1, and samples of both")
    found = [torch.unique(scores, return_inverse=True) for scores in preds.values()]
    return torch.stack([place for _, place in found]), positive, torch.tensor([len(each) for each, _ in found])


def compare_areas(measure: str, places: Tensor, positive: Tensor, sizes: Tensor, level: float) -> Interval:
    """Compute the difference of two areas under ROC curves, or of two average precisions (MOVER), without draws.

    The distances of the bounds of both values from their estimates are combined as standard deviations of correlated
    values are. The correlation is that of the influences of single samples; for areas it is DeLong's, of the shares of
    the other class that each sample outranks.

    The bounds of average precision also allow for positives that have not come, whose ranks need not correlate.
    Therefore at most twice the distance that its variance explains counts as correlated.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures; DeLong, DeLong and
    Clarke-Pearson (1988); Efron (1982) for the influences. The limit of what correlates is ours.
    """
    one = torch.ones(1, len(positive), dtype=torch.float64)
    counted = [
        histogram_of_ranks(place, positive, int(size), one)[0] for place, size in zip(places, sizes, strict=True)
    ]
    value, interval = AREAS[measure]
    a, b = (replace(interval(each, level), estimate=value(each)) for each in counted)  # equal to those of resamples
    found, rises = zip(*map(INFLUENCES[measure], counted), strict=True)
    influence = torch.stack([each[positive.long(), place] for each, place in zip(found, places, strict=True)])
    totals, rise = counted[0].sum(-1), torch.stack(rises)
    covariance = torch.outer(rise, rise) * (1 / totals).sum()
    for of_class in (positive, ~positive):  # a class of one sample does not show how it varies
        some = influence[:, of_class]
        covariance = covariance + (torch.cov(some) / some.shape[1] if some.shape[1] > 1 else torch.nan)
    correlation = ratio(covariance[0, 1], (covariance[0, 0] * covariance[1, 1]).sqrt())
    if measure == "auc":
        return _combined(a, b, correlation, places, "MOVER, DeLong's correlation")
    quantile = student_quantile(level, (totals[1] - 1).clamp(min=1))
    most = (CORRELATED * quantile * covariance.diagonal().sqrt()).nan_to_num().tolist()
    return _combined(a, b, correlation, places, "MOVER, jackknife's correlation", most)


def compare_clusters(
    measure: str, places: Tensor, positive: Tensor, sizes: Tensor, cluster: Tensor, level: float
) -> Interval:
    """Compute the difference of two areas of samples in clusters, such as the visits of patients.

    As :func:`compare_areas` with the intervals of clusters and with the correlation of both areas when each cluster is
    left out in turn. More than 64 clusters are pooled into 64.
    """
    number = len(torch.unique(cluster))
    if number < 2:
        raise ValueError(f"cluster must name at least 2 clusters, got {number}")
    warn_of_large_cluster("paired_compare", torch.unique(cluster, return_counts=True)[1])
    part = torch.unique(cluster, return_inverse=True)[1] % BUCKETS
    counted = [
        torch.bincount((2 * part + positive) * size + place, minlength=2 * size * min(number, BUCKETS))
        .double()
        .view(-1, 2, size)
        for place, size in zip(places, sizes.tolist(), strict=True)
    ]
    value, interval = AREAS[measure]
    a, b = (interval(each, level, clusters=True) for each in counted)
    left = torch.stack([value(each.sum(0) - each) for each in counted])
    covariance = torch.cov(left[:, left.isfinite().all(0)])
    correlation = ratio(covariance[0, 1], (covariance[0, 0] * covariance[1, 1]).sqrt())
    return _combined(a, b, correlation, places, f"MOVER of {number} clusters")


def _combined(
    a: Interval, b: Interval, correlation: Tensor, places: Tensor, method: str, most: Sequence[float] = (math.inf,) * 2
) -> Interval:
    """Combine two intervals of correlated values into that of their difference; of a distance ``most`` correlates."""
    correlation = correlation.nan_to_num().clamp(-1, 1)

    def distance(first: Tensor, second: Tensor) -> Tensor:
        both = correlation * first.clamp(max=most[0]) * second.clamp(max=most[1])
        return (first**2 + second**2 - 2 * both).clamp(min=0).sqrt()

    estimate = a.estimate - b.estimate
    if torch.equal(*places):  # the same ranks: no difference, whatever the samples
        return Interval(estimate, estimate, estimate, a.level, "equal ranks")
    low = estimate - distance(a.estimate - a.low, b.high - b.estimate)
    high = estimate + distance(a.high - a.estimate, b.estimate - b.low)
    return Interval(estimate, low, high, a.level, method)


def compare_average_precisions(
    places: Tensor,
    positive: Tensor,
    sizes: Tensor,
    draws: int,
    level: float,
    generator: torch.Generator | None,
) -> Interval:
    """Compute the difference of two average precisions, with percentiles over resamples of each class."""

    def difference(weight: Tensor) -> Tensor:
        values = [
            average_precision(histogram_of_ranks(place, positive, int(size), weight))
            for place, size in zip(places, sizes, strict=True)
        ]
        return values[0] - values[1]

    number = len(positive)
    drawn = []
    sizes_of_parts = chunks(draws, 4 * number, positive.device)
    for some in announced(sizes_of_parts, draws, "a comparison of average precisions", "fewer draws= shorten it"):
        weight = torch.zeros(some, number, dtype=torch.float64)
        for of_class in (positive, ~positive):
            members = of_class.nonzero().flatten()
            chosen = members[torch.randint(len(members), (some, len(members)), generator=generator)]
            weight.scatter_add_(1, chosen, torch.ones(chosen.shape, dtype=torch.float64))
        drawn.append(difference(weight))
    values = torch.cat(drawn)
    estimate = difference(torch.ones(1, number, dtype=torch.float64))[0]
    low, high = quantiles(values, level)
    low, high = torch.minimum(low, estimate), torch.maximum(high, estimate)
    return Interval(estimate, low, high, level, "stratified bootstrap", values)
