"""Means of areas under ROC curves over classes or labels, with intervals from DeLong's components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from imbtorch.choosing.paired_scores import ranks
from imbtorch.counting.arguments import check_tensor, checked_ids, computed_on_cpu, spread, whole_number
from imbtorch.deciding.curves import area, area_influence, histogram_of_ranks
from imbtorch.intervals.draws import student_quantile
from imbtorch.intervals.intervals import Interval, check_level

FEWEST = 20  # positives, or clusters that hold some, below which sums of components are too narrow (.80 to .90)


@computed_on_cpu
def mean_auc(
    scores: Tensor,
    target: Tensor,
    *,
    other: Tensor | None = None,
    cluster: Tensor | None = None,
    min_positives: int = 1,
    label_names: Sequence[str] | None = None,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Compute the mean area under the ROC curve over classes or labels, or the difference of two models in it.

    Each sample adds DeLong's components of all labels, and each cluster those of its samples, so that labels of one
    sample and samples of one cluster may depend on each other. The interval is the estimate plus and minus Student's t
    times the standard error. It needs 20 positives and 20 negatives of each label, with ``cluster`` as many clusters
    that hold some; below that bounds are nan, and ``method`` names the label with the fewest.

    Args:
        scores: ``[N, L]`` scores of each class or label.
        target: ``[N]`` class indices, each class then against the rest; or ``[N, L]`` of 0 and 1, and -1 where the
            label of a sample is missing.
        other: ``[N, L]`` scores of a second model, which is subtracted.
        cluster: ``[N]`` ids of clusters, such as patients; by default samples are independent.
        min_positives: labels with fewer positives, or without negatives, are left out.
        label_names: L names; by default the indices.
        level: nominal coverage, in (0, 1).

    Returns:
        ``"auc"`` -> the mean, and for each label in it such a name as ``"auc/hernia"``.

    Raises:
        ValueError: for shapes that do not fit, other targets, NaN scores, and if no label has enough positives.
        TypeError: for scores that are not floating, and targets or ids that are not integers.

    Source: DeLong, DeLong and Clarke-Pearson (1988), Comparing the areas under two or more correlated receiver
    operating characteristic curves; Obuchowski (1997), Nonparametric analysis of clustered ROC curve data.

    >>> target = torch.arange(300) % 3
    >>> scores = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    >>> scores[torch.arange(300), target] += 0.5
    >>> print(mean_auc(scores, target)["auc"])
    0.883 [0.861, 0.905] (95% DeLong)
    """
    check_level(level)
    models = {"scores": scores} if other is None else {"scores": scores, "other": other}
    labels, names = _labels(models, target, label_names)
    ids = torch.arange(len(labels))
    if cluster is not None:
        ids = torch.unique(spread("cluster", checked_ids(cluster), ids, ids), return_inverse=True)[1]
    least = max(whole_number("min_positives", min_positives), 1)
    values, parts, held = dict[str, Tensor](), dict[str, Tensor](), dict[str, int]()
    for name, of_label, *columns in zip(names, labels.T, *(each.T for each in models.values()), strict=True):
        known = of_label >= 0
        if int((of_label == 1).sum()) < least or not bool((of_label == 0).any()):
            continue
        some = {model: column[known] for model, column in zip(models, columns, strict=True)}
        values[name], parts[name], held[name] = _components(some, of_label[known], ids[known], int(ids.max()) + 1)
    if not values:
        raise ValueError(f"target must hold a label with {least} positives and a negative")
    mean, together = (torch.stack([*each.values()]).mean(0) for each in (values, parts))
    whole = {"auc": (mean, together, min(held, key=held.__getitem__))}
    method = "DeLong" if cluster is None else f"DeLong, {int(ids.max()) + 1} clusters"
    found = {}
    for name, (value, sums, few) in {**whole, **{f"auc/{n}": (values[n], parts[n], n) for n in values}}.items():
        half, text = student_quantile(level, torch.tensor(held[few] - 1.0)) * sums.square().sum().sqrt(), method
        if held[few] < FEWEST:
            half, text = torch.full_like(value, torch.nan), f"{method}; only {held[few]} with {few!r}"
        low, high = ((value + way * half).clamp(0.0 if other is None else -1.0, 1.0) for way in (-1, 1))
        found[name] = Interval(value, low, high, level, text)
    return found


def _labels(
    models: Mapping[str, Tensor], target: Tensor, label_names: Sequence[str] | None
) -> tuple[Tensor, Sequence[str]]:
    """Return targets ``[N, L]`` of 0, 1 and -1, and names of the labels; raise for shapes that do not fit."""
    for name, each in {**models, "target": target}.items():
        check_tensor(name, each)
    shape = models["scores"].shape
    for name, each in models.items():
        if each.shape != shape or each.ndim != 2 or each.shape[:1] != target.shape[:1]:
            raise ValueError(f"{name} must be [N, L] with a row for each target, got {list(each.shape)}")
    if target.ndim == 1:
        target = (target.unsqueeze(-1) == torch.arange(shape[1])).long()
    if target.shape != shape or bool(((target < -1) | (target > 1)).any()):
        raise ValueError("target must hold class indices [N], or 0, 1 and -1 (missing) in the shape of scores")
    names = list(map(str, range(shape[1]) if label_names is None else label_names))
    if len(set(names)) != shape[1]:
        raise ValueError(f"label_names must be {shape[1]} different names, got {names}")
    return target, names


def _components(scores: Mapping[str, Tensor], target: Tensor, ids: Tensor, number: int) -> tuple[Tensor, Tensor, int]:
    """Compute the area of one label, or a difference of two, and what each cluster adds to it.

    Returns:
        The area; ``[M]`` components of the clusters, whose sum of squares is the variance; and the number of clusters
        that hold the rarer class.
    """
    places, positive, sizes = ranks(scores, target)
    one, value, part = torch.ones(1, len(positive), dtype=torch.float64), [], torch.zeros(len(positive)).double()
    for sign, place, size in zip((1, -1), places, sizes.tolist(), strict=False):
        counted = histogram_of_ranks(place, positive, size, one)[0]
        value.append(sign * area(counted))
        part += sign * (area_influence(counted)[0][positive.long(), place] - area(counted))
    sums, held = torch.zeros(number, dtype=torch.float64), []
    for of_class in (positive, ~positive):
        held.append(len(torch.unique(ids[of_class])))
        spare = (held[-1] / max(held[-1] - 1, 1)) ** 0.5
        sums.index_add_(0, ids[of_class], part[of_class] * spare / of_class.sum())
    return torch.stack(value).sum(), sums, min(held)
