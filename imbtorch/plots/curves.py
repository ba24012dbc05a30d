"""Thresholds of a classifier in ROC and precision-recall space, and isometrics of measures there."""

from __future__ import annotations

import torch
from torch import Tensor

from imbtorch.counts import Measure, check_square, evaluated, ratio, two_by_two


def class_totals(counts: Tensor) -> tuple[float, float]:
    """Return the numbers of negatives and positives of a classifier that was counted at each of its thresholds.

    Args:
        counts: ``[T, 2, 2]`` counts or rates.

    Raises:
        ValueError: for another shape, a class without targets, and thresholds with counts of different samples.

    >>> class_totals(torch.tensor([[[8, 2], [1, 4]], [[9, 1], [3, 2]]]))
    (10.0, 5.0)
    """
    if check_square(counts).ndim != 3 or counts.shape[-1] != 2 or not len(counts):
        raise ValueError(
            f"counts must be [T, 2, 2], a matrix for each threshold, got {list(counts.shape)}; for several labels or "
            "classes choose one of them"
        )
    totals = counts.detach().cpu().double().sum(-1)
    if not bool((totals > 0).all()):
        raise ValueError(f"counts must hold targets of both classes, got {totals[0].tolist()}")
    if not torch.allclose(totals, totals[:1]):
        raise ValueError("counts must be of the same samples at each threshold, but their row sums differ")
    return totals[0, 0].item(), totals[0, 1].item()


def roc_points(counts: Tensor) -> Tensor:
    """Compute false and true positive rates at each threshold, ``[T, 2]`` in the order of the counts.

    Args:
        counts: ``[T, 2, 2]``; errors as in :func:`class_totals`.

    >>> roc_points(torch.tensor([[[8, 2], [1, 4]]]))
    tensor([[0.2000, 0.8000]], dtype=torch.float64)
    """
    class_totals(counts)
    wide = counts.detach().cpu().double()
    return wide[..., 1] / wide.sum(-1)


def precision_recall_points(counts: Tensor) -> Tensor:
    """Compute recall and precision at each threshold, ``[T, 2]`` in the order of the counts.

    Precision is nan without positive predictions.

    Args:
        counts: ``[T, 2, 2]``; errors as in :func:`class_totals`.

    >>> precision_recall_points(torch.tensor([[[8, 2], [1, 4]]]))
    tensor([[0.8000, 0.6667]], dtype=torch.float64)
    """
    recall = roc_points(counts)[:, 1]
    false, true = counts.detach().cpu().double()[..., 1].unbind(-1)
    return torch.stack((recall, true / (true + false)), -1)


def least_precision(recall: Tensor, share: float) -> Tensor:
    """Compute the least precision ``[...]`` that a classifier of this recall can have: all negatives are flagged.

    Args:
        recall: ``[...]`` in [0, 1].
        share: share of positives.

    Source: Boyd, Santos Costa, Davis and Page (2012), Unachievable region in precision-recall space.

    >>> least_precision(torch.tensor([1.0]), share=0.2)
    tensor([0.2000])
    """
    return ratio(share * recall, share * recall + 1 - share)


def roc_isometrics(measure: Measure, negatives: float, positives: float, steps: int = 101) -> Tensor:
    """Compute a measure on a grid over ROC space.

    Args:
        measure: function of ``[..., 2, 2]`` counts with a value ``[...]``.
        negatives: number or share of the negatives.
        positives: number or share of the positives.
        steps: number S of rates from 0 to 1 along each axis.

    Returns:
        float64 ``[S, S]``: rows true positive rates, columns false positive rates. Lines of equal values are the
        isometrics of the measure; their slope is the :func:`~imbtorch.papers.effective_skew_ratio`.

    Raises:
        ValueError: for a measure that does not return one value for each matrix.

    Source: Flach (2003), The geometry of ROC space; Liu, Ghosh and Martin (2007), Theorem 0.1.

    >>> from imbtorch import accuracy
    >>> roc_isometrics(accuracy, negatives=3, positives=1, steps=2)
    tensor([[0.7500, 0.0000],
            [1.0000, 0.2500]], dtype=torch.float64)
    """
    rates = torch.linspace(0, 1, steps, dtype=torch.float64)
    true, false = torch.meshgrid(positives * rates, negatives * rates, indexing="ij")
    return evaluated(measure, _matrices(false, true, negatives, positives))


def precision_recall_isometrics(measure: Measure, negatives: float, positives: float, steps: int = 101) -> Tensor:
    """Compute a measure on a grid over precision-recall space.

    Args:
        measure: function of ``[..., 2, 2]`` counts with a value ``[...]``.
        negatives: number or share of the negatives.
        positives: number or share of the positives.
        steps: number S of values from 0 to 1 along each axis.

    Returns:
        float64 ``[S, S]``: rows precisions, columns recalls; nan where no classifier can lie (:func:`least_precision`),
        and at a recall or a precision of 0, which do not determine the counts.

    Raises:
        ValueError: for a measure that does not return one value for each matrix.

    >>> from imbtorch import accuracy
    >>> precision_recall_isometrics(accuracy, negatives=3, positives=1, steps=3)  # half of the positives, no negative
    tensor([[   nan,    nan,    nan],
            [   nan, 0.7500, 0.7500],
            [   nan, 0.8750, 1.0000]], dtype=torch.float64)
    """
    rates = torch.linspace(0, 1, steps, dtype=torch.float64)
    precision, true = torch.meshgrid(rates, positives * rates, indexing="ij")
    false = true * (1 - precision) / precision
    possible = (precision > 0) & (true > 0) & (false <= negatives * (1 + 1e-12))
    matrices = _matrices(torch.where(possible, false, 0.0), true, negatives, positives)
    return torch.where(possible, evaluated(measure, matrices), torch.nan)


def _matrices(false: Tensor, true: Tensor, negatives: float, positives: float) -> Tensor:
    """Build counts ``[..., 2, 2]`` from false and true positives ``[...]``."""
    return two_by_two((negatives - false).clamp(min=0), false, positives - true, true)
