"""Intervals of means of shares over classes, such as balanced accuracy, of samples in clusters."""

from __future__ import annotations

import torch
from scipy import special
from torch import Tensor

from imbtorch.counts import Measure, ratio
from imbtorch.intervals.draws import LUCKY, effective_clusters
from imbtorch.measures import balanced_accuracy, recall
from imbtorch.measures.named import AveragedMeasure

HALF = 0.5  # samples by which a bound allows for more than came, in the class in which they count most (mid-P)


def recall_weights(measure: Measure, counts: Tensor) -> Tensor | None:
    """Return the weight of each class in a mean of recalls, ``[..., K]``; None for any other measure."""
    if not isinstance(measure, AveragedMeasure) or measure.function not in (balanced_accuracy, recall):
        return None
    of_labels = measure.counting.task == "multilabel"
    if of_labels or measure.of_class is not None or measure.average in ("binary", "micro", "weighted", "min"):
        return None
    actual = counts.sum(-1).double()
    chosen = torch.zeros_like(actual)
    chosen[..., list(measure.over_classes or range(counts.shape[-1]))] = 1
    known = chosen * (actual > 0)
    weight = ratio(known, known.sum(-1, keepdim=True))
    value, mean = measure(counts).double(), (weight * ratio(counts.diagonal(dim1=-2, dim2=-1), actual)).sum(-1)
    return weight if value.shape == mean.shape and torch.allclose(value, mean, rtol=1e-9, atol=1e-12) else None


def shared_worth(
    values: Tensor, squares: Tensor, actual: Tensor, weight: Tensor, hashed: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute the effective number of independent samples of each class, for a mean over classes.

    As :func:`worth_of_hits`, but with one correlation within clusters for all classes, because the upper bounds of all
    of them add up to far too wide an interval of the mean. A class counts as much as in the variance of the mean.

    Args:
        values: ``[..., M, K]`` sums of the values of samples, such as hits, by cluster and class.
        squares: sums of the squared values.
        actual: numbers of samples.
        weight: ``[..., K]`` weight of each class.
        hashed: number of buckets of clusters, as in :func:`effective_clusters`, which decides if no sample differs.

    Returns:
        Effective numbers ``[..., K]``, and the factor ``[...]`` by which the variance of the mean grows because classes
        share clusters.
    """
    total, several = actual.sum(-2), (actual**2).sum(-2)
    mean, own, held = ratio(values.sum(-2), total), ratio(values, actual), (actual > 0).sum(-2).to(total)
    counts, freedom = ratio(weight**2, total), (held - 1).clamp(min=0)
    degrees, known = ratio((counts * freedom).sum(-1) ** 2, (counts**2 * freedom).sum(-1)), (counts * freedom).sum(-1)
    quantile = 2 * special.gammaincinv(degrees.clamp(min=1).numpy(force=True) / 2, LUCKY)
    lucky = torch.as_tensor(quantile, device=degrees.device) / degrees.clamp(min=1)
    apart = (actual * (own - mean.unsqueeze(-2)) ** 2).sum(-2)
    among = ratio((counts * apart).sum(-1), known * lucky)
    within = ratio((counts * (squares - values * own).sum(-2)).sum(-1), (counts * (total - held)).sum(-1))
    size = ratio((counts * torch.where(held > 1, total - ratio(several, total), 0.0)).sum(-1), known)
    spread = among + (size - 1) * within
    rho, alike = ratio(among - within, spread).clamp(0, 1).unsqueeze(-1), effective_clusters(actual, -2, hashed)
    worth = torch.where(spread.unsqueeze(-1) > 0, ratio(total**2, total + (several - total) * rho), alike)
    influence = weight.unsqueeze(-2) * ratio(values - actual * mean.unsqueeze(-2), total.unsqueeze(-2))
    together = ratio(influence.sum(-1).square().sum(-1), influence.square().sum((-2, -1)))
    return worth, together.clamp(min=1)


def class_variances(shares: Tensor, worth: Tensor, weight: Tensor, pseudo: float = 0.5) -> Tensor:
    """Compute the variance that each class adds to a weighted mean of shares, ``[..., K]``.

    A sample with the mean share of the classes, and of one more class with the share ``pseudo``, is added to each. The
    variance is unbiased for classes with that share.
    """
    known = weight > 0
    mean = (torch.where(known, shares, 0.0).sum(-1, keepdim=True) + pseudo) / (known.sum(-1, keepdim=True) + 1)
    hits = worth * shares
    return weight**2 * ratio((hits + mean) * (worth - hits + 1 - mean), worth * (worth**2 + worth + 1))


def bounds_of_mean(
    shares: Tensor, worth: Tensor, weight: Tensor, variances: Tensor, wider: Tensor, level: float, spare: float
) -> tuple[Tensor, Tensor]:
    """Compute bounds of a weighted mean of shares over classes, ``[...]``.

    Each bound allows for some of one more sample against it, in the class in which that moves the mean most, as an
    exact bound of a share and the bounds of Fay and Feuer do. The distribution is the Beta distribution with the same
    mean and variance (Korn and Graubard).

    Args:
        shares: ``[..., K]`` shares of the classes.
        worth: effective numbers of samples.
        weight: weights of the classes, which sum to 1.
        variances: :func:`class_variances`.
        wider: factor of the variance ``[...]``.
        level: nominal coverage.
        spare: samples that a bound allows for: 1 as an exact bound, half as mid-P.

    Source: Fay and Feuer (1997), Confidence intervals for directly standardized rates; Korn and Graubard (1998),
    Confidence intervals for proportions with small expected number of positive counts estimated from survey data.
    """
    ends = []
    for share in (1 - shares, shares):
        most, place = (weight * ratio(1 - share, worth + 1)).max(-1, keepdim=True)
        number, part, of_class, own = (each.gather(-1, place) for each in (worth, share, weight, variances))
        exact = of_class**2 * (number * part + spare) * (number - number * part + 1 - spare)
        exact = exact / ((number + 1) ** 2 * (number + 2))
        variance = variances.sum(-1) * wider + (exact - own).clamp(min=0)[..., 0]
        centre = (weight * share).sum(-1)
        mean = (centre + spare * most[..., 0]).clamp(1e-12, 1)
        size = (ratio(mean * (1 - mean), variance) - 1).clamp(min=1e-3)
        alpha, beta = (each.numpy(force=True) for each in (mean * size, (1 - mean).clamp(min=1e-12) * size))
        end = torch.as_tensor(special.betaincinv(alpha, beta, (1 + level) / 2), device=mean.device)
        ends.append(torch.where(mean >= 1, 1.0, torch.maximum(end, centre)))
    return 1 - ends[0], ends[1]


def bounds_of_recalls(
    hits: Tensor, actual: Tensor, weight: Tensor, level: float, hashed: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute bounds of a weighted mean of recalls, given hits and targets ``[..., M, K]`` of M clusters."""
    worth, together = shared_worth(hits, hits, actual, weight, hashed)
    recalls = ratio(hits.sum(-2), actual.sum(-2))
    return bounds_of_mean(recalls, worth, weight, class_variances(recalls, worth, weight), together, level, HALF)
