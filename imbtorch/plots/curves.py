"""Thresholds of a classifier in ROC and precision-recall space, and isometrics of measures there."""

from __future__ import annotations

import torch
from torch import Tensor

from imbtorch.counts import Measure, check_square, evaluated, ratio, two_by_two


def class_totals(counts: Tensor) -> tuple[float, float]:
    """Return the numbers of negatives and positives of counts ``[T, 2, 2]`` at the thresholds of one classifier.

    Raises:
        ValueError: for another shape, a class without targets, and thresholds with counts of different samples.
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
    """Compute false and true positive rates at each threshold, ``[T, 2]`` of counts ``[T, 2, 2]``."""
    class_totals(counts)
    wide = counts.detach().cpu().double()
    return wide[..., 1] / wide.sum(-1)


def precision_recall_points(counts: Tensor) -> Tensor:
    """Compute recall and precision at each threshold, ``[T, 2]`` of counts ``[T, 2, 2]``.

    Precision is nan without positive predictions.

    >>> precision_recall_points(torch.tensor([[[8, 2], [1, 4]]]))
    tensor([[0.8000, 0.6667]], dtype=torch.float64)
    """
    recall = roc_points(counts)[:, 1]
    false, true = counts.detach().cpu().double()[..., 1].unbind(-1)
    return torch.stack((recall, true / (true + false)), -1)


def least_precision(recall: Tensor, share: float) -> Tensor:
    """Compute the least precision ``[...]`` of a classifier of this recall ``[...]``: all negatives are flagged.

    Source: Boyd, Santos Costa, Davis and Page (2012), Unachievable region in precision-recall space.
    """
    return ratio(share * recall, share * recall + 1 - share)


def roc_isometrics(measure: Measure, negatives: float, positives: float, steps: int = 101) -> Tensor:
    """Compute a measure on a grid over ROC space, given numbers or shares of both classes.

    Returns:
        float64 ``[S, S]``: rows true positive rates, columns false positive rates. Lines of equal values are the
        isometrics of the measure; their slope is the :func:`~imbtorch.papers.effective_skew_ratio`.

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
    """Compute a measure on a grid over precision-recall space, given numbers or shares of both classes.

    Returns:
        float64 ``[S, S]``: rows precisions, columns recalls; nan where no classifier can lie (:func:`least_precision`),
        and at a recall or a precision of 0, which do not determine the counts.

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
