"""Means of a measure over images, such as the mean Dice per image, with their intervals."""

import torch
from torch import Tensor

from imbtorch.counting.arguments import checked_ids, computed_on_cpu, spread
from imbtorch.counts import check_choice
from imbtorch.intervals.draws import checked_whole, student_quantile
from imbtorch.intervals.intervals import Interval, check_level, warn_of_large_cluster
from imbtorch.measures.named import TRAITS
from imbtorch.measures.traits import by_key, short_name

EQUAL = 1e-9  # deviation of the mean below which all values are equal, but for rounding
NAMES = tuple(name for name, traits in TRAITS.items() if "binary" in traits.averages)


@computed_on_cpu
def over_images(
    measure: str, counts: Tensor, *, empty: str | int, cluster: Tensor | None = None, level: float = 0.95
) -> Interval | dict[str, Interval]:
    """Compute the mean over images of a measure of each image, such as the mean Dice of segmentation papers.

    The value of an image is that of the positive class; of several classes, or labels, each has a value, and the image
    their mean. ``empty`` says what a class counts that an image neither holds nor predicts. One with predictions and no
    target counts 0 (specificity and NPV, which are of the negatives, count 0 where an image has no negatives). The
    interval is Student's t on the logit, of images, or of patients as a ratio; if all have the same value, it is an
    exact bound (page "Intervals").

    Args:
        measure: ``"dice"`` (the same as ``"f1"``), ``"iou"``, ``"recall"``, ``"precision"``, ``"specificity"``,
            ``"npv"`` or ``"fowlkes_mallows"``.
        counts: ``[N, K, K]``, or ``[N, L, 2, 2]`` for L labels, from ``confusion_matrix(..., samplewise=True)``.
        empty: value of a class that an image neither holds nor predicts, 1 or 0, or ``"skip"`` to leave it out.
        cluster: ``[N]`` id of the patient of each image; by default images are independent.
        level: nominal coverage of the interval, in (0, 1).

    Returns:
        :class:`Interval`, nan bounds if fewer than two images or patients count; of several classes a dict
        with ``"dice"``, that of the means of images, and ``"dice/0"``, that of class 0, and so on.

    Raises:
        ValueError: for an unknown measure or rule, counts of another shape, and fewer than two images or patients.
        TypeError: for ids that are not integers.

    >>> counts = torch.tensor([[[90, 0], [0, 10]], [[90, 0], [5, 5]], [[99, 1], [0, 0]], [[100, 0], [0, 0]]])
    >>> print(over_images("dice", counts, empty="skip"))  # (1 + 2/3 + 0) / 3
    dice 0.556 [0.007, 0.995] (95% t on the logit, 3 of 4 images)
    """
    check_level(level)
    measure = short_name(measure)
    check_choice("measure", measure, NAMES)
    check_choice("empty", str(empty), ("skip", "1", "0"))
    wide = checked_whole(counts)
    labels, two = wide.ndim == 4, wide.shape[-1] == 2
    if wide.ndim != 3 and not (labels and two):
        remedy = f"got {list(wide.shape)}; confusion_matrix(..., samplewise=True) counts them"
        raise ValueError(f"counts must be a matrix for each image, [N, K, K], or [N, L, 2, 2] for labels, {remedy}")
    each, sampled = by_key()[measure](wide, average="none"), wide.sum((-2, -1)) > 0
    values = each[..., 1] if labels else each[:, 1:] if two else each  # [N, V]
    if empty != "skip":
        values = torch.where(values.isnan() & sampled.view(len(wide), -1), float(empty), values)
    values = torch.cat((values.nanmean(-1, keepdim=True), values), -1) if values.shape[-1] > 1 else values
    images, counted = torch.arange(len(wide)), (~values.isnan()).double()
    ids = images if cluster is None else spread("cluster", checked_ids(cluster), images, images)
    known, place = torch.unique(ids, return_inverse=True)
    if len(known) < 2:
        raise ValueError(f"over_images needs at least two images, or clusters of them, got {len(known)}")
    zeros = counted.new_zeros(len(known), values.shape[-1])
    number, sums = (zeros.index_add(0, place, part) for part in (counted, values.nan_to_num(0.0)))
    if cluster is not None:
        warn_of_large_cluster("over_images", number[:, 0])
    total, there, found = number.sum(0), (number > 0).sum(0), {}
    mean = sums.sum(0) / total
    variance = (sums - mean * number).square().sum(0) / (total.square() - number.square().sum(0))
    half = student_quantile(level, (there - 1).clamp(min=1)) * variance.sqrt() / (mean * (1 - mean))
    alike = ((1 - level) / 2) ** (1 / there)  # least share of a value that all clusters have, others being 0 or 1
    equal = variance.sqrt() < EQUAL
    low = torch.where(equal, mean * alike, (mean.logit() - half).sigmoid())
    high = torch.where(equal, 1 - (1 - mean) * alike, (mean.logit() + half).sigmoid())
    for at, name in enumerate([measure, *(f"{measure}/{index}" for index in range(len(mean) - 1))]):
        of = f" of {int(there[at])} clusters" * (cluster is not None)
        method = f"t on the logit, {int(total[at])} of {len(wide)} images{of}"
        ends = [torch.where(there > 1, end, torch.nan)[at] for end in (low, high)]
        found[name] = Interval(mean[at], ends[0], ends[1], level, method, measure=name)
    return found if len(found) > 1 else found[measure]
