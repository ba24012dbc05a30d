"""Distribution functions that torch lacks."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

__all__ = ["beta_cdf", "normal_quantile", "student_quantile"]

TINY = 1e-300
SMOOTH = 500.0  # concentrations from which one quadrature rule integrates a density, smooth and narrow
REACH = 12.0  # standard deviations beyond which such a density is 0
MANY = 200.0  # degrees of freedom from which a series of four terms is as good as the distribution function


def beta_cdf(x: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
    """Compute the regularised incomplete beta function: the distribution function of Beta(a, b), to about 1e-12.

    The error is about 1e-7 if one concentration is a thousand million and the other small.

    Args:
        x: float64 ``[...]`` in [0, 1].
        a: first concentration, > 0, a number or float64 ``[...]``.
        b: second concentration, > 0, likewise.

    Returns:
        float64 ``[...]`` in [0, 1].

    Source: Press et al., Numerical Recipes, section 6.4: continued fraction by Lentz's method, for large concentrations
    quadrature of the density.

    >>> beta_cdf(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), 3.0, 3.0)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    first, second = (torch.as_tensor(each, dtype=x.dtype, device=x.device) + 0 * x for each in (a, b))
    x = x.expand_as(first)
    mean, least = first / (first + second), torch.minimum(first, second)
    value, large = (x > mean).to(x), least >= SMOOTH
    deviations = (x - mean).abs() / (mean * (1 - mean) / (first + second + 1)).sqrt()
    near = torch.where(large, deviations <= REACH, (deviations <= 60) | (least < 0.5))  # elsewhere it is 0 or 1
    for some, method in ((large & near, _integrated), (~large & near, _by_fraction)):
        if bool(some.any()):  # in blocks, because a quadrature takes a hundred times their memory
            blocks = (torch.split(each[some], 2**13) for each in (x, first, second))
            value[some] = torch.cat([method(*block) for block in zip(*blocks, strict=True)])
    return value


def _integrated(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Integrate the density on both sides of x, without its constant, which would lose digits."""
    total = a + b
    mean, rest = a / total, b / total
    reach = REACH * (mean * rest / (total + 1)).sqrt()
    low, high = (mean - reach).clamp(min=0), (mean + reach).clamp(max=1)
    nodes, weights = (each.to(x.device) for each in _nodes_and_weights())

    def part(start: Tensor, stop: Tensor) -> Tensor:
        half = ((stop - start) / 2).unsqueeze(-1)
        off = (start - mean).unsqueeze(-1) + half * (1 + nodes)  # from the mean
        logs = (a - 1).unsqueeze(-1) * torch.log1p(off / mean.unsqueeze(-1))
        logs = logs + (b - 1).unsqueeze(-1) * torch.log1p(-off / rest.unsqueeze(-1))
        return (half * weights * logs.exp()).sum(-1)

    below = part(low, x)
    return below / (below + part(x, high))


@lru_cache(maxsize=1)
def _nodes_and_weights() -> tuple[Tensor, Tensor]:
    """Return nodes in [-1, 1] and weights of the Gauss-Legendre rule, which NumPy takes 15 ms to compute."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    return torch.from_numpy(nodes), torch.from_numpy(weights)


def _by_fraction(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute the distribution function of Beta(a, b) by a continued fraction."""
    upper = x > (a + 1) / (a + b + 2)  # there the fraction of 1 - x converges faster
    first, second = torch.where(upper, b, a), torch.where(upper, a, b)
    logs = torch.xlogy(a, x) + torch.special.xlog1py(b, -x) - _log_beta(a, b)
    value = logs.exp() * _fraction(torch.where(upper, 1 - x, x), first, second) / first
    return torch.where(upper, 1 - value, value).clamp(0, 1)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    """Compute the logarithm of the beta function; for large concentrations by Stirling's series without large terms."""
    small, large = torch.minimum(a, b), torch.maximum(a, b)
    total = small + large
    apart = (large - 0.5) * torch.log1p(small / large) + small * (total.log() - 1) + _stirling(total) - _stirling(large)
    rise = torch.where(large >= SMOOTH, apart, torch.lgamma(total) - torch.lgamma(large))
    return torch.lgamma(small) - rise


def _stirling(x: Tensor) -> Tensor:
    """Return the difference of the logarithm of the gamma function and Stirling's formula."""
    return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)


def _fraction(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Evaluate the continued fraction of the incomplete beta function, in some sqrt(max(a, b)) steps."""
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
    """Replace numbers that are nearly 0 by a tiny one."""
    return torch.where(x.abs() < TINY, TINY, x)


def normal_quantile(level: float) -> float:
    """Compute half the width of the central interval of a standard normal distribution that has probability ``level``.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return math.sqrt(2) * float(torch.special.erfinv(torch.tensor(level, dtype=torch.float64)))


def student_quantile(level: float, freedom: Tensor) -> Tensor:
    """Compute half the width of the central interval of Student's t distribution that has probability ``level``.

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
    slopes = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    quantile = torch.as_tensor(z + sum(slope / degrees**power for power, slope in enumerate(slopes, 1)))
    few = degrees < MANY
    if bool(few.any()):
        quantile[few] = _student_root(level, z, degrees[few])
    return quantile


def _student_root(level: float, start: float, degrees: Tensor) -> Tensor:
    """Find the quantile by Newton's method from below, where the distribution function is concave."""
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
