"""Curves of a histogram of scores of two classes, with the areas below them and their intervals.

A histogram is ``[..., 2, B]``: the samples of the negative and of the positive class in each of B bins of rising
scores; counts, or rates if the classes were rescaled to other shares. Scores of one bin are tied.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from imbtorch.counts import check_square, double, ratio, restore
from imbtorch.intervals.draws import clusters_drawn, multinomial, normal_quantile, student_quantile
from imbtorch.intervals.intervals import Interval, check_level, jackknife

ROUNDING = 1e-24  # variance below which the changes of an area are rounding errors
LABELS_AT_ONCE = 32  # histograms in memory at a time; what is computed of them, 1 MB each, stays in the cache


def by_labels(function: Callable[..., Tensor], histogram: Tensor, *others: Tensor) -> Tensor:
    """Apply a function to histograms ``[..., 2, B]`` and other tensors ``[..., *]``, some labels at a time."""
    if histogram.ndim == 2:
        return function(histogram, *others)
    flat = [torch.split(each.flatten(0, histogram.ndim - 3), LABELS_AT_ONCE) for each in (histogram, *others)]
    found = torch.cat([function(*some) for some in zip(*flat, strict=True)])
    return found.reshape(*histogram.shape[:-2], *found.shape[1:])


def matrices_of(histogram: Tensor) -> Tensor:
    """Compute counts ``[..., B - 1, 2, 2]`` at the threshold between each two bins of ``[..., 2, B]``.

    Both sides of a threshold are summed, because a difference from the total may leave a rounding error in place of 0.
    """
    positive, negative = histogram.flip(-1).cumsum(-1).flip(-1)[..., 1:], histogram.cumsum(-1)[..., :-1]
    return torch.stack((negative, positive), -1).transpose(-3, -2)


def cells_at(histogram: Tensor, row: Tensor, place: Tensor) -> list[Tensor]:
    """Count tn, fp, fn and tp, float64 ``[M]`` each, at M thresholds, each of a histogram of ``[R, 2, B]``."""
    size = histogram.shape[-1]
    below, above = (each.cumsum(-1).flatten() for each in (histogram, histogram.flip(-1)))
    found = []
    for start in (row * (2 * size), row * (2 * size) + size):  # of the negatives, of the positives
        found += [below.index_select(0, start + place), above.index_select(0, start + size - 2 - place)]
    return [double(each) for each in found]


def roc_curve(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Compute false and true positive rates ``[..., B + 1]``, rising from (0, 0) to (1, 1); nan without targets.

    >>> roc_curve(torch.tensor([[3, 1], [0, 2]]))
    (tensor([0.0000, 0.2500, 1.0000], dtype=torch.float64), tensor([0., 1., 1.], dtype=torch.float64))
    """
    above = _above(histogram)
    rates = above / above[..., -1:]
    return rates[..., 0, :], rates[..., 1, :]


def histogram_of_ranks(place: Tensor, positive: Tensor, size: int, weight: Tensor) -> Tensor:
    """Count weights ``[R, N]`` of samples at each of the different scores of one model, ``[R, 2, size]``."""
    cell = positive.long() * size + place
    return weight.new_zeros(len(weight), 2 * size).index_add_(1, cell, weight).view(-1, 2, size)


def area(histogram: Tensor) -> Tensor:
    """Compute the area ``[...]`` under the ROC curve by the trapezoid rule, so that ties count one half."""
    false, true = roc_curve(histogram)
    return torch.trapezoid(true, false)


def partial_auc(counts: Tensor, left: Tensor | None = None, right: Tensor | None = None) -> Tensor:
    r"""Compute the partial AUC: the contribution of an operating point to the area under the ROC curve.

    .. math:: \mathrm{pAUC} = \tfrac12 (\mathrm{FPR} - \mathrm{FPR}_1)(\mathrm{TPR} + \mathrm{TPR}_1)
        + \tfrac12 (\mathrm{FPR}_2 - \mathrm{FPR})(\mathrm{TPR} + \mathrm{TPR}_2)

    It consists of two trapezoids between the point and its two neighbours. By default the neighbours are the
    classifiers that never and that always predict the positive class. The area is then that of the whole three-point
    curve, (TPR + TNR)/2, which is :func:`~imbtorch.balanced_accuracy`.
    :class:`~imbtorch.ThresholdSweep` has it at every threshold.

    Args:
        counts: ``[..., 2, 2]`` counts or rates of the operating point.
        left: ``[..., 2, 2]`` of the neighbour with fewer positive predictions; None for a classifier that never
            predicts positive.
        right: ``[..., 2, 2]`` of the neighbour with more positive predictions; None for a classifier that always
            predicts positive.

    Returns:
        ``[...]`` in [0, 1], higher is better; negative if a neighbour lies on the other side; nan if a class has no
        targets.

    Raises:
        ValueError: for more than two classes.

    Source: Liu, Ghosh and Martin (2007), eq. 3; Garcia et al. (2010), section 2, for the area of one point.

    >>> partial_auc(torch.tensor([[8, 2], [1, 4]]))  # (4/5 + 8/10) / 2
    tensor(0.8000, dtype=torch.float64)
    """
    false, true = operating_rates(counts)
    ends = torch.zeros_like(false), torch.ones_like(false)
    before = (ends[0], ends[0]) if left is None else operating_rates(left, "left")
    behind = (ends[1], ends[1]) if right is None else operating_rates(right, "right")
    area = (false - before[0]) * (true + before[1]) + (behind[0] - false) * (true + behind[1])
    return restore(area / 2, counts)


def operating_rates(counts: Tensor, name: str = "counts") -> tuple[Tensor, Tensor]:
    """Compute false and true positive rates, float64 ``[...]``, of counts ``[..., 2, 2]``; nan without targets."""
    if check_square(counts).shape[-1] != 2:
        raise ValueError(f"{name} must be of two classes, got {list(counts.shape)}; use one_vs_rest(counts)")
    wide = double(counts)
    false, true = (wide[..., 1] / wide.sum(-1)).unbind(-1)
    return false, true


def partial_areas(histogram: Tensor) -> Tensor:
    """Compute :func:`partial_auc` of each point of the ROC curve with its two neighbours, float64 ``[..., B - 1]``.

    >>> partial_areas(torch.tensor([[3, 0, 1], [0, 0, 2]]))  # two thresholds of one point, a trapezoid beside each
    tensor([0.7500, 0.1250], dtype=torch.float64)
    """
    counts = _with_ends(histogram)
    return partial_auc(counts[..., 1:-1, :, :], left=counts[..., 2:, :, :], right=counts[..., :-2, :, :])


def partial_area_at(histogram: Tensor, index: Tensor) -> Tensor:
    """Compute :func:`partial_auc` ``[...]`` at the threshold of an index ``[...]``, with the next points that differ.

    >>> partial_area_at(torch.tensor([[3, 0, 1], [0, 0, 2]]), torch.tensor(1))  # the area of a single point
    tensor(0.8750, dtype=torch.float64)
    """
    counts = _with_ends(histogram)
    place = index.unsqueeze(-1) + 1
    point = _matrix_at(counts, place)
    differs = (counts != point.unsqueeze(-3)).flatten(-2).any(-1)
    order = torch.arange(counts.shape[-3], device=counts.device).expand_as(differs)
    lower = torch.where(differs & (order < place), order, -1).amax(-1, keepdim=True)
    higher = torch.where(differs & (order > place), order, order[..., -1:] + 1).amin(-1, keepdim=True)
    lower, higher = torch.where(lower < 0, place, lower), torch.where(higher > order[..., -1:], place, higher)
    return partial_auc(point, left=_matrix_at(counts, higher), right=_matrix_at(counts, lower))


def precision_recall_curve(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Compute recalls and precisions ``[..., B]``, from the highest threshold to the one below all scores.

    The precision is nan without positive predictions, the recall without positives.
    """
    false, true = _above(histogram)[..., 1:].unbind(-2)
    return true / true[..., -1:], true / (true + false)


def average_precision(histogram: Tensor) -> Tensor:
    """Average the precision at the score of each positive, ``[...]``, as scikit-learn does; nan without positives."""
    recall, precision = precision_recall_curve(histogram)
    start = torch.zeros_like(recall[..., :1])
    return (precision.nan_to_num() * recall.diff(dim=-1, prepend=start)).sum(-1)


def area_interval(histogram: Tensor, level: float = 0.95, *, clusters: bool = False) -> Interval:
    """Compute the interval of the area ``[...]`` under the ROC curve; samples, or clusters, must be independent.

    Newcombe's method 5 takes the variance from two exponential distributions, with the mean of both class sizes in
    place of each, and includes all areas that are compatible with the estimate. If the variance of DeLong's method with
    Student's t of the smaller class is larger (scores of positives scatter more than those of negatives), the variance
    is scaled up to it. A subgroup of 3 / P of all positives may be missing from P positives. If the model ranks it
    last, the true area is below the interval; ``method`` says so where that can be. The page
    "Coverage of 95% intervals" has simulations.

    With clusters the histogram is ``[M, 2, B]`` of M clusters, two or more, which hold samples. The variance is at
    least the jackknife's, which leaves out one cluster at a time, with its degrees of freedom
    (:func:`imbtorch.statistics.bootstrap` has the formula). The sizes of the classes are divided by the ratio of this
    variance to DeLong's, down to the effective number of clusters that hold the class; so they are where one of the two
    variances is unknown or 0.

    Source: Newcombe (2006), Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part
    2, method 5; DeLong, DeLong and Clarke-Pearson (1988).

    >>> print(area_interval(torch.tensor([[90, 10], [4, 16]])))
    0.850 [0.718, 0.923] (95% Newcombe method 5)
    """
    check_level(level)
    whole = histogram.sum(0) if clusters else histogram
    point, spread, *sides, low_ranked = by_labels(_area_moments, whole).unbind(-1)
    sizes = torch.stack(sides, -1)
    freedom = (sizes.amin(-1) - 1).clamp(min=1)
    if clusters:
        spread, freedom, sizes = _of_clusters(area, double(histogram), spread)
    (negatives, positives), z = sizes.unbind(-1), normal_quantile(level)
    mean = (negatives + positives) / 2 - 1

    def variance(value: Tensor) -> Tensor:
        factor = 1 + mean * (1 - value) / (2 - value) + mean * value / (1 + value)
        return value * (1 - value) * factor / (negatives * positives)

    wider = (student_quantile(level, freedom) / z) ** 2
    scale = ratio(wider * spread, variance(point)).clamp(min=1)

    def distance(value: Tensor) -> Tensor:
        return (value - point).abs() - z * (scale * variance(value)).sqrt()

    low, high = (_root(distance, end, point) for end in (0.0, 1.0))
    unseen = 1 - (1 - level) ** (1 / positives)  # largest share of positives that so many may lack by chance
    unseen = torch.where((low_ranked == 0) & (point * (1 - unseen) < low), unseen, 0.0)
    hidden = unseen.max().item() if unseen.numel() else 0.0
    text = f"; {100 * hidden:.2g}% of positives may rank last unseen" if hidden else ""
    return Interval(point, low, high, level, f"Newcombe method 5{', jackknife of clusters' * clusters}{text}")


def _of_clusters(value: Callable[[Tensor], Tensor], parts: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute variance, its degrees of freedom and the effective sizes of both classes, given clusters ``[M, 2, B]``.

    ``spread`` is the variance of the value for independent samples.
    """
    variance, freedom = jackknife(value, parts, parts.sum(0), 2)
    variance = torch.where(variance > ROUNDING, variance, 0.0)
    held = parts.sum(-1)  # [M, 2]
    sizes, least = held.sum(0), ratio(held.sum(0) ** 2, (held**2).sum(0))
    known = bool(((held > 0).sum(0) > 1).all() & (spread > 0) & (variance > 0))
    effective = torch.minimum(torch.maximum(sizes * spread / variance, least), sizes) if known else least
    return torch.maximum(variance, spread), freedom, effective


def _area_moments(histogram: Tensor) -> Tensor:
    """Compute the area, DeLong's variance, the class sizes, and the positives in the lower half of the negatives."""
    wide = double(histogram)
    point, totals = area(wide), wide.sum(-1)
    influence, rise = area_influence(wide)
    lower_half = wide.cumsum(-1)[..., 0, :] <= totals[..., :1] / 2
    low_ranked = (wide[..., 1, :] * lower_half).sum(-1)
    variance = _variance(wide, influence - point[..., None, None], rise)
    return torch.stack((point, variance, *totals.unbind(-1), low_ranked), -1)


def _variance(wide: Tensor, influence: Tensor, rise: Tensor) -> Tensor:
    """Estimate a variance from the influence of single samples ``[..., 2, B]`` and of the share of positives."""
    totals = wide.sum(-1)
    of_classes = ratio((wide * influence**2).sum(-1), totals * (totals - 1))
    return of_classes.sum(-1) + rise**2 * (1 / totals).sum(-1)


def average_precision_interval(histogram: Tensor, level: float = 0.95, *, clusters: bool = False) -> Interval:
    """Compute the interval of average precision ``[...]``; samples, or clusters, must be independent.

    Average precision is treated as a proportion, with the sample size that gives it the same variance: the bounds are
    Wilson's, with Student's t. That variance is the infinitesimal jackknife's, from the influence of each positive,
    each negative and their numbers. Close to 1 the variance is too small; the sample size is at most the number of
    positives over the average precision. With few positives average precision is too high, so the lower bound starts
    from the mean of precisions that leave out the positive at whose score each is read. A few positives may score above
    all negatives without having come yet, so the upper bound takes one more positive to be perfect.

    With clusters, variance and number of positives are those of :func:`area_interval`; the lower bound starts from
    precisions that leave out the cluster of the positive, and the upper bound takes one more cluster to be perfect.
    The page "Coverage of 95% intervals" has simulations.

    Source: Wilson (1927) for the bounds; Efron (1982), The jackknife, the bootstrap and other resampling plans,
    section 6.3, for the variance. The lower start, the greatest n and the additional positive are ours.

    >>> print(average_precision_interval(torch.tensor([[90, 8, 2], [4, 6, 10]])))
    0.635 [0.393, 0.825] (95% Wilson, jackknife)
    """
    check_level(level)
    whole = double(histogram).sum(0) if clusters else histogram
    point, start, variance, positives = by_labels(_precision_moments, whole).unbind(-1)
    freedom, worth = (positives - 1).clamp(min=1), positives
    if clusters:
        parts = double(histogram)
        variance, freedom, sizes = _of_clusters(average_precision, parts, variance)
        held = parts[:, 1].sum(-1)
        positives, worth = ratio(held.sum() ** 2, (held**2).sum()), sizes[1]
        others = whole - parts
        false, true = _counts_above(others)
        start = (parts[:, 1] / held.sum() * ratio(true, true + false)).sum()
    size = torch.where(variance > 0, point * (1 - point) / variance, torch.inf).minimum(worth / point)
    quantile = student_quantile(level, freedom)
    low, _ = _wilson(start, size, quantile)
    _, high = _wilson(point, size, quantile)
    high = (high * positives + 1) / (positives + 1)
    return Interval(point, low, high, level, f"Wilson, jackknife{' of clusters' * clusters}")


def _precision_moments(histogram: Tensor) -> Tensor:
    """Compute average precision, also from precisions without the positive itself, its variance, and the positives."""
    wide = double(histogram)
    positives = wide[..., 1, :].sum(-1)
    false, true = _counts_above(wide)
    share, others = wide[..., 1, :] / positives.unsqueeze(-1), (true - 1).clamp(min=0)
    point, start = ((share * ratio(each, each + false)).sum(-1) for each in (true, others))
    return torch.stack((point.clamp(max=1), start, _variance(wide, *precision_influence(wide)), positives), -1)


def area_influence(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the influence of a sample of each bin on the area, plus a constant, as :func:`precision_influence`.

    It is the share of the other class that a positive outranks, or that outranks a negative; ties count half.
    """
    below = ratio(histogram.cumsum(-1) - histogram / 2, histogram.sum(-1, keepdim=True))
    return torch.stack((1 - below[..., 1, :], below[..., 0, :]), -2), histogram.new_zeros(())


def precision_influence(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the influence of a sample of each bin on average precision, given float64 ``[..., 2, B]``.

    Returns:
        Influence ``[..., 2, B]`` with class sizes fixed, and that of the log-odds of positives ``[...]``.
    """
    negatives, positives = histogram.sum(-1, keepdim=True).unbind(-2)
    false, true = _counts_above(histogram)
    share, precision = histogram[..., 1, :] / positives, ratio(true, true + false)
    slope = share * precision * (1 - precision)  # derivative of the precision in a bin by the log-odds of positives
    rise = slope.sum(-1, keepdim=True)
    point = (share * precision).sum(-1, keepdim=True).clamp(max=1)
    of_positives = ratio(slope, true / positives).cumsum(-1) - rise + precision - point
    of_negatives = rise - ratio(slope, false / negatives).cumsum(-1)
    return torch.stack((of_negatives, of_positives), -2), rise.squeeze(-1)


def _counts_above(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the negatives and positives in each bin and above, each ``[..., B]``."""
    false, true = histogram.flip(-1).cumsum(-1).flip(-1).unbind(-2)
    return false, true


def _wilson(share: Tensor, size: Tensor, quantile: Tensor) -> tuple[Tensor, Tensor]:
    """Compute Wilson's bounds of a share of so many samples."""
    q = quantile**2 / size
    middle, half = (share + q / 2) / (1 + q), (q * share * (1 - share) + q * q / 4).sqrt() / (1 + q)
    return middle - half, middle + half


def _root(distance: Callable[[Tensor], Tensor], outer: float, inner: Tensor) -> Tensor:
    """Find the root of a function that is positive at the outer end and not near the inner one; nan stays."""
    far, near = torch.where(inner.isnan(), torch.nan, outer), inner
    for _ in range(60):
        middle = (far + near) / 2
        outside = distance(middle) > 0
        far, near = torch.where(outside, middle, far), torch.where(outside, near, middle)
    return far


def bootstrap_histogram(histogram: Tensor, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw histograms ``[samples, 2, B]`` by resampling whole counts ``[2, B]``; classes keep their sizes.

    Of ``[M, 2, B]`` clusters are resampled; draws that lack a class are left out.
    """
    if histogram.ndim == 3:
        drawn = torch.cat([*clusters_drawn(double(histogram), samples, generator, 2)])
        return drawn[drawn.sum(-1).all(-1)]
    held = histogram.sum(0) > 0
    drawn = histogram.new_zeros(samples, *histogram.shape, dtype=torch.float64)
    counts = double(histogram[:, held])
    drawn[..., held] = multinomial(counts, counts.sum(-1).expand(samples, 2), generator)
    return drawn


def unresolved(histogram: Tensor) -> Tensor:
    """Bound the error of AUC and average precision that binning causes, per bin, ``[..., B]``: 0 for equal scores.

    >>> unresolved(torch.tensor([[3, 1], [0, 2]]))  # a negative below, between or above two positives
    tensor([0.0000, 0.3333], dtype=torch.float64)
    """
    wide = double(histogram)
    within = ratio(wide, wide.sum(-1, keepdim=True))
    of_area = within.prod(-2) / 2
    false, true = _above(histogram)[..., 1:].flip(-1).unbind(-2)
    negatives, positives = wide.unbind(-2)
    precision = ratio(true, true + false)
    positives_first = within[..., 1, :] * (ratio(true, true + false - negatives) - precision)
    # negatives first: precision rises with each positive, up to its value at the last of them
    rise = torch.special.xlogy(false, ratio(true + false, true + false - positives))
    negatives_first = ratio(rise, positives.sum(-1, keepdim=True)) - within[..., 1, :] * (1 - precision)
    return torch.maximum(of_area, torch.maximum(positives_first, negatives_first))


def _above(histogram: Tensor) -> Tensor:
    """Sum the highest bins, float64 ``[..., 2, B + 1]``: none of them, one, up to all."""
    sums = double(histogram).flip(-1).cumsum(-1)
    return torch.cat((torch.zeros_like(sums[..., :1]), sums), -1)


def _with_ends(histogram: Tensor) -> Tensor:
    """Return counts ``[..., B + 1, 2, 2]`` at rising thresholds, with those below and above all bins."""
    return matrices_of(torch.nn.functional.pad(double(histogram), (1, 1)))


def _matrix_at(counts: Tensor, place: Tensor) -> Tensor:
    """Return the matrix ``[..., 2, 2]`` of counts ``[..., T, 2, 2]`` at an index ``[..., 1]``."""
    return torch.take_along_dim(counts, place.unsqueeze(-1).unsqueeze(-1), -3).squeeze(-3)


AREAS = {"auc": (area, area_interval), "average_precision": (average_precision, average_precision_interval)}
INFLUENCES = {"auc": area_influence, "average_precision": precision_influence}  # of single samples
