"""Distribution functions that torch lacks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["beta_cdf", "normal_quantile", "student_quantile"]

TINY = 1e-300
MANY = 1000.0  # degrees of freedom from which a series of three terms is as good as the distribution function


def beta_cdf(x: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
    """Regularised incomplete beta function: share of Beta(a, b) below x, to about 1e-12.

    Args:
        x: float64 ``[...]`` in [0, 1].
        a: concentration, > 0, or float64 ``[...]`` of one for each.
        b: concentration, > 0, likewise.

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


def student_quantile(level: float, freedom: Tensor) -> Tensor:
    """Half the width of an interval of Student's t distribution that holds the share ``level``.

    Args:
        level: in (0, 1).
        freedom: degrees of freedom ``[...]``, >= 1, not necessarily whole.

    Returns:
        Float64 ``[...]``, to about 1e-9.

    Source: Abramowitz and Stegun (1964), 26.7.5, for many degrees of freedom.

    >>> student_quantile(0.95, torch.tensor([2.0, 19.0]))
    tensor([4.3027, 2.0930], dtype=torch.float64)
    """
    z, degrees = normal_quantile(level), freedom.double()
    slopes = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    series = z + sum(slope / degrees**power for power, slope in enumerate(slopes, 1))
    return torch.where(degrees < MANY, _student_root(level, z, degrees.clamp(max=MANY)), series)


def _student_root(level: float, start: float, degrees: Tensor) -> Tensor:
    """Quantile by Newton's method from below, where the distribution function is concave: it never overshoots."""
    scale = (torch.lgamma((degrees + 1) / 2) - torch.lgamma(degrees / 2)).exp() / (math.pi * degrees).sqrt()
    found = torch.full_like(degrees, start)
    for _ in range(100):
        outside = beta_cdf(degrees / (degrees + found**2), degrees / 2, 0.5)
        density = scale * (1 + found**2 / degrees) ** (-(degrees + 1) / 2)
        step = (level - 1 + outside) / (2 * density)
        found = found + step
        if bool((step.abs() <= 1e-12 * found).all()):
            break
    return found
