"""Log-odds from logits, computed without probabilities, which in float32 are rounded to 1 from a logit of 17 on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["against_the_rest", "logit_threshold", "of_class_one", "wide"]


def wide(preds: Tensor) -> Tensor:
    """Convert scores to float32 or wider, because sums and sigmoids in half precision lose digits."""
    return preds.to(torch.promote_types(preds.dtype, torch.float32))


def of_class_one(logits: Tensor, dimensions: int) -> Tensor:
    """Compute the log-odds of class 1 from logits of a sigmoid or, with one more dimension, of a two-class softmax.

    Args:
        logits: ``[N, ...]``, or ``[N, 2, ...]`` for both classes.
        dimensions: number of dimensions of the target ``[N, ...]``.

    Returns:
        ``[N, ...]`` in float32 or wider.

    >>> of_class_one(torch.tensor([[1.0, 3.0]]), dimensions=1)
    tensor([2.])
    """
    scores = wide(logits)
    return scores if scores.ndim == dimensions else scores[:, 1] - scores[:, 0]


def against_the_rest(logits: Tensor) -> Tensor:
    """Compute the log-odds of each class against all others.

    Args:
        logits: logits of a softmax, ``[N, C, ...]``.

    Returns:
        ``[N, C, ...]`` in float32 or wider; nan for a sample with a nan logit.

    >>> against_the_rest(torch.tensor([[50.0, 0.0, 0.0]]))  # 50 - log 2, and -log(exp(50) + 1)
    tensor([[ 49.3069, -50.0000, -50.0000]])
    """
    scores = wide(logits)
    highest, best = torch.max(scores, 1, keepdim=True)
    shifted = scores - highest
    powers = shifted.exp()
    classes = torch.arange(scores.shape[1], device=scores.device).view(1, -1, *[1] * (scores.ndim - 2))
    is_best = classes == best
    others = powers.masked_fill(is_best, 0.0).sum(1, keepdim=True)  # a difference of sums would lose small powers
    against_best = shifted.masked_fill(is_best, -math.inf).logsumexp(1, keepdim=True)  # since powers may be 0
    return shifted - torch.where(is_best, against_best, ((others - powers).clamp(min=0) + 1).log())


def logit_threshold(threshold: float | Tensor) -> float | Tensor:
    """Return the logit of a probability threshold: -inf for 0, inf for 1. Logits above it predict class 1.

    >>> logit_threshold(0.5), logit_threshold(1.0)
    (0.0, inf)
    """
    if isinstance(threshold, Tensor):
        return threshold.log() - torch.log1p(-threshold)
    if 0 < threshold < 1:
        return math.log(threshold) - math.log1p(-threshold)
    return math.inf if threshold else -math.inf
