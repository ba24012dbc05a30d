"""Comparison of the scores of two models on one test set: areas under the ROC curve, and average precisions."""

from __future__ import annotations

import torch
from torch import Tensor

from imbtorch.counting.errors import check_tensor
from imbtorch.counts import ratio
from imbtorch.statistics.draws import chunks
from imbtorch.statistics.intervals import Interval, quantiles
from imbtorch.statistics.scores import area_interval, average_precision

__all__ = ["SCORE_MEASURES", "compare_areas", "compare_average_precisions", "histogram_of_ranks", "of_scores"]

SCORE_MEASURES = ("auc", "average_precision")


def of_scores(preds_a: Tensor, preds_b: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Check the scores of two models, and return their bins and the targets.

    Returns:
        ``[2, N]`` index of each sample's score among the different scores of a model, ``[N]`` targets as bools, and the
        number of different scores of each model ``[2]``.

    Raises:
        ValueError: for shapes that differ, NaN scores, targets other than 0 and 1, and targets of one class.
        TypeError: for scores that are not floating, and targets that are not integers or bools.
    """
    for name, scores in (("preds_a", preds_a), ("preds_b", preds_b)):
        check_tensor(name, scores)
        if not scores.is_floating_point():
            raise TypeError(f"{name} must hold scores for 'auc' and 'average_precision', got {scores.dtype}")
        if scores.shape != target.shape or target.ndim != 1:
            raise ValueError(f"{name} and target must be [N], got {list(scores.shape)} and {list(target.shape)}")
        if bool(scores.isnan().any()):
            raise ValueError(f"{name} holds NaN in row {int(scores.isnan().int().argmax())}")
    check_tensor("target", target)
    if target.is_floating_point():
        raise TypeError(f"target must hold 0 and 1, got {target.dtype}; use target.long()")
    positive = target == 1
    if not bool((positive | (target == 0)).all()) or not 0 < int(positive.sum()) < len(target):
        raise ValueError("target must hold 0 and 1, and samples of both")
    found = [torch.unique(scores, return_inverse=True) for scores in (preds_a, preds_b)]
    return torch.stack([place for _, place in found]), positive, torch.tensor([len(each) for each, _ in found])


def histogram_of_ranks(place: Tensor, positive: Tensor, size: int, weight: Tensor) -> Tensor:
    """Count weights ``[R, N]`` of samples at each of the different scores of one model, ``[R, 2, size]``."""
    cell = positive.long() * size + place
    return weight.new_zeros(len(weight), 2 * size).index_add_(1, cell, weight).view(-1, 2, size)


def compare_areas(places: Tensor, positive: Tensor, sizes: Tensor, level: float) -> Interval:
    """Compute the difference of two areas under ROC curves (MOVER with the correlation of DeLong).

    The distances of the bounds of both areas (:func:`~imbtorch.statistics.scores.area_interval`) from their estimates
    are combined as standard deviations of correlated values are. The correlation is that of the shares of the other
    class that each sample outranks.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures; DeLong, DeLong and
    Clarke-Pearson (1988).
    """
    one = torch.ones(1, len(positive), dtype=torch.float64)
    counted = [
        histogram_of_ranks(place, positive, int(size), one)[0] for place, size in zip(places, sizes, strict=True)
    ]
    a, b = (area_interval(each, level) for each in counted)
    outranked = torch.stack([_outranked(each, place, positive) for each, place in zip(counted, places, strict=True)])
    covariance = torch.stack(
        [torch.cov(outranked[:, of_class]) / max(int(of_class.sum()), 1) for of_class in (positive, ~positive)]
    ).sum(0)
    correlation = ratio(covariance[0, 1], (covariance[0, 0] * covariance[1, 1]).sqrt()).nan_to_num().clamp(-1, 1)

    def distance(first: Tensor, second: Tensor) -> Tensor:
        return (first**2 + second**2 - 2 * correlation * first * second).clamp(min=0).sqrt()

    estimate = a.estimate - b.estimate
    if torch.equal(*places):  # the same ranks: no difference, whatever the samples
        return Interval(estimate, estimate, estimate, level, "equal ranks")
    low = estimate - distance(a.estimate - a.low, b.high - b.estimate)
    high = estimate + distance(a.high - a.estimate, b.estimate - b.low)
    return Interval(estimate, low, high, level, "MOVER, DeLong's correlation")


def _outranked(histogram: Tensor, place: Tensor, positive: Tensor) -> Tensor:
    """Return the share of the other class that each sample outranks, ties half; for negatives that outranks them."""
    totals = histogram.sum(-1, keepdim=True)
    below = ratio(histogram.cumsum(-1) - histogram / 2, totals)
    return torch.where(positive, below[0][place], 1 - below[1][place])


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
    for some in chunks(draws, 4 * number, positive.device):
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
