"""Distribution functions that torch lacks."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["beta_cdf", "normal_quantile", "student_quantile"]

TINY = 1e-300


def beta_cdf(x: Tensor, a: float, b: float) -> Tensor:
    """Regularised incomplete beta function: share of Beta(a, b) below x, to about 1e-12.

    Args:
        x: float64 ``[...]`` in [0, 1].
        a: concentration, > 0.
        b: concentration, > 0.

    Returns:
        Float64 ``[...]`` in [0, 1].

    Source: Press et al., Numerical Recipes, section 6.4: continued fraction by Lentz's method.

    >>> beta_cdf(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), 3.0, 3.0)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    upper = x > (a + 1) / (a + b + 2)  # there the fraction of the other end converges sooner
    first, second = torch.where(upper, b, a).double(), torch.where(upper, a, b).double()
    place = torch.where(upper, 1 - x, x)
    logs = torch.lgamma(first + second) - torch.lgamma(first) - torch.lgamma(second)
    logs = logs + torch.xlogy(first, place) + torch.special.xlog1py(second, -place)
    value = logs.exp() * _fraction(place, first, second) / first
    return torch.where(upper, 1 - value, value).clamp(0, 1)


def _fraction(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Continued fraction of the incomplete beta function; it takes some sqrt(max(a, b)) steps."""
    c = torch.ones_like(x)
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 200 + int(8 * float(torch.maximum(a, b).max()) ** 0.5)):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _away_from_zero(1 + even * d)
        c = _away_from_zero(1 + even / c)
        result = result * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _away_from_zero(1 + odd * d)
        c = _away_from_zero(1 + odd / c)
        result = result * d * c
        if bool(((d * c - 1).abs() < 1e-14).all()):
            break
    return result


def _away_from_zero(x: Tensor) -> Tensor:
    return torch.where(x.abs() < TINY, TINY, x)


def normal_quantile(level: float) -> float:
    """Half the width of an interval of a standard normal distribution that holds the share ``level``.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return math.sqrt(2) * float(torch.special.erfinv(torch.tensor(level, dtype=torch.float64)))


@lru_cache(maxsize=256)
def student_quantile(q: float, freedom: int) -> float:
    """Value below which the share ``q`` of Student's t distribution lies, for q in (1/2, 1).

    >>> round(student_quantile(0.975, 19), 4)
    2.093
    """
    low, high = 0.0, 1.0
    while _student_cdf(torch.tensor(high), freedom) < q:
        high *= 2
    for _ in range(5):  # each a thousand times as narrow
        places = torch.linspace(low, high, 1001, dtype=torch.float64)
        reached = min(max(int((_student_cdf(places, freedom) < q).sum()), 1), 1000)
        low, high = places[reached - 1].item(), places[reached].item()
    return (low + high) / 2


def _student_cdf(t: Tensor, freedom: int) -> Tensor:
    return 1 - beta_cdf(freedom / (freedom + t.double() ** 2), freedom / 2, 0.5) / 2
