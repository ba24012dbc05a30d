"""Log-odds from logits, and signs that scores taken for logits are probabilities."""

import math

import torch
from torch import Tensor

from imbtorch.counts import has_float64


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


ENOUGH = 32  # scores that can look like probabilities
LOW, SOME = 0.05, 0.05  # share of probabilities below the first number, if some are above 0.5
NEAR, MANY, FEWEST = 0.1, 0.12, 4  # share, and least number, of others that lie below this share of the largest one
ZEROS = 0.02  # share of probabilities that may be rounded to 0; a head that ends in ReLU gives more
FEW_ROWS = 4  # rows that sum to 1 not by chance
PROBABILITIES = (
    "the scores lie in [0, 1] and crowd near 0, as probabilities do, but logits=True takes them for logits; write "
    "logits=False, or pass scores before the sigmoid or softmax"
)
SUMS = (
    "sum to 1 over the classes in each sample, so that they are probabilities, but logits=True takes them for logits; "
    "write logits=False, or pass the logits before the softmax"
)


# --- probabilities in place of logits ---------------------------------------------------------------------------------


def like_probabilities(scores: Tensor, of_labels: bool) -> bool:
    """Return whether logits on the CPU, ``[N, ...]`` or ``[N, L, ...]`` of labels, look like probabilities.

    They lie in [0, 1], as those of some untrained networks do, and also crowd near 0, where logits have no end.
    """
    if scores.numel() < ENOUGH:
        return False
    lowest, highest = torch.aminmax(scores)
    if not bool((lowest >= 0) & (lowest < LOW) & (highest <= 1)):
        return False
    each = scores.movedim(1, 0).flatten(1) if of_labels else scores.reshape(1, -1)
    largest, zeros = each.amax(1), (each == 0).sum(1)
    near = (each < near_zero(largest).unsqueeze(1)).sum(1) - zeros
    return crowd_near_zero(torch.as_tensor(each.shape[1]), largest, zeros, near)


def near_zero(largest: Tensor) -> Tensor:
    """Return the number below which many probabilities lie, given the largest one."""
    return torch.where(largest > 0.5, LOW, NEAR * largest)


def crowd_near_zero(samples: Tensor, largest: Tensor, zeros: Tensor, near: Tensor) -> bool:
    """Return whether the scores of some label, all in [0, 1], crowd near 0 as probabilities do.

    Args:
        samples: number of scores, ``[]`` or ``[L]``.
        largest: greatest score, ``[L]``.
        zeros: number of scores that are 0, ``[L]``.
        near: number of the others below :func:`near_zero`, ``[L]``.
    """
    many = (torch.where(largest > 0.5, SOME, MANY) * (samples - zeros)).clamp(min=FEWEST)
    few_zeros = zeros <= (ZEROS * samples).clamp(min=1)
    return bool((few_zeros & (near >= many) & (samples >= ENOUGH)).any())


def sum_to_one(scores: Tensor) -> Tensor:
    """Return whether the scores of all samples, ``[N, C, ...]``, sum to 1, although they differ, on their device."""
    if len(scores) < FEW_ROWS:
        return torch.zeros((), dtype=torch.bool)
    slack = 1e-4 if scores.dtype in (torch.float32, torch.float64) else 0.01
    wide = scores.to(torch.float64 if has_float64(scores.device) else torch.float32)
    differ = (wide.amax(0) - wide.amin(0)).max() > 10 * slack
    return differ & (wide >= 0).all() & ((wide.sum(1) - 1).abs() <= slack).all()
