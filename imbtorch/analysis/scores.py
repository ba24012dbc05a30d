"""What a histogram of the scores of two classes says without choosing a threshold: curves and their areas.

A histogram is ``[..., 2, B]``: the samples of the negative and of the positive class in each of B bins of rising
scores; counts, or rates where the classes were brought to other shares. Scores of one bin are ties.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imbtorch.counts import double, ratio

__all__ = [
    "area",
    "average_precision",
    "matrices_of",
    "partial_areas",
    "precision_recall_curve",
    "roc_curve",
    "unresolved",
]


def matrices_of(histogram: Tensor) -> Tensor:
    """Counts ``[..., B - 1, 2, 2]`` at the threshold between each two bins.

    >>> matrices_of(torch.tensor([[3, 1], [0, 2]]))
    tensor([[[3, 1],
             [0, 2]]])
    """
    positive = histogram.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    negative = histogram.sum(-1, keepdim=True) - positive
    return torch.stack((negative, positive), -1).transpose(-3, -2)


def roc_curve(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """False and true positive rates ``[..., B + 1]``, rising from (0, 0) to (1, 1); nan for a class without targets.

    >>> roc_curve(torch.tensor([[3, 1], [0, 2]]))
    (tensor([0.0000, 0.2500, 1.0000], dtype=torch.float64), tensor([0., 1., 1.], dtype=torch.float64))
    """
    above = _above(histogram)
    rates = above / above[..., -1:]
    return rates[..., 0, :], rates[..., 1, :]


def area(histogram: Tensor) -> Tensor:
    """Area ``[...]`` under the ROC curve by the trapezoid rule: the chance that a positive scores higher, ties half.

    >>> area(torch.tensor([[3, 1], [0, 2]]))
    tensor(0.8750, dtype=torch.float64)
    """
    false, true = roc_curve(histogram)
    return torch.trapezoid(true, false)


def partial_areas(histogram: Tensor) -> Tensor:
    """What each point contributes to the area with its two neighbours on the ROC curve, ``[..., B - 1]``.

    In the order of the thresholds. Source: Liu, Ghosh and Martin (2007), eq. 3.
    """
    false, true = roc_curve(histogram)
    steps = (false[..., 1:] - false[..., :-1]) * (true[..., 1:] + true[..., :-1]) / 2
    return (steps[..., :-1] + steps[..., 1:]).flip(-1)


def precision_recall_curve(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Recalls and precisions ``[..., B]``, from the highest threshold to the one below all scores.

    The precision is nan where nothing is predicted, the recall without positives.

    >>> precision_recall_curve(torch.tensor([[3, 1], [0, 2]]))[1]
    tensor([0.6667, 0.3333], dtype=torch.float64)
    """
    false, true = _above(histogram)[..., 1:].unbind(-2)
    return true / true[..., -1:], true / (true + false)


def average_precision(histogram: Tensor) -> Tensor:
    """Mean ``[...]`` of the precision at the score of each positive, as scikit-learn's; nan without positives.

    >>> average_precision(torch.tensor([[3, 1], [0, 2]]))
    tensor(0.6667, dtype=torch.float64)
    """
    recall, precision = precision_recall_curve(histogram)
    start = torch.zeros_like(recall[..., :1])
    return (precision.nan_to_num() * recall.diff(dim=-1, prepend=start)).sum(-1)


def unresolved(histogram: Tensor) -> Tensor:
    """By how much the order within each bin could move the AUC or average precision, the larger, ``[..., B]``.

    Nothing is lost where the scores of a bin are equal, which a histogram cannot know.

    >>> unresolved(torch.tensor([[3, 1], [0, 2]]))  # a negative below, between or above two positives
    tensor([0.0000, 0.3333], dtype=torch.float64)
    """
    wide = double(histogram)
    within = ratio(wide, wide.sum(-1, keepdim=True))
    of_area = within.prod(-2) / 2
    false, true = _above(histogram)[..., 1:].flip(-1).unbind(-2)
    positives_first = ratio(true, true + false - wide[..., 0, :])
    of_precision = within[..., 1, :] * (positives_first - ratio(true, true + false))
    return torch.maximum(of_area, of_precision)


def _above(histogram: Tensor) -> Tensor:
    """Float64 sums ``[..., 2, B + 1]`` of the highest bins: of none of them, of one, of all."""
    sums = double(histogram).flip(-1).cumsum(-1)
    return torch.cat((torch.zeros_like(sums[..., :1]), sums), -1)
