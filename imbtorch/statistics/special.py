"""Distribution functions that torch lacks, by SciPy."""

from __future__ import annotations

import torch
from scipy import special
from torch import Tensor

__all__ = ["beta_cdf", "beta_quantile", "chi_square_quantile", "normal_quantile", "student_quantile"]


def beta_cdf(x: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
    """Compute the regularised incomplete beta function: the distribution function of Beta(a, b).

    Args:
        x: float64 ``[...]`` in [0, 1].
        a: first concentration, > 0, a number or float64 ``[...]``.
        b: second concentration, > 0, likewise.

    Returns:
        float64 ``[...]`` in [0, 1].

    >>> beta_cdf(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), 3.0, 3.0)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    first, second = (torch.as_tensor(each, dtype=torch.float64).numpy(force=True) for each in (a, b))
    return torch.as_tensor(special.betainc(first, second, x.numpy(force=True)), device=x.device)


def beta_quantile(q: float, a: Tensor, b: Tensor) -> Tensor:
    """Compute the value below which Beta(a, b) has probability ``q``.

    Args:
        q: in [0, 1].
        a: first concentrations ``[...]``, > 0.
        b: second concentrations ``[...]``, > 0.

    Returns:
        float64 ``[...]`` in [0, 1].

    >>> beta_quantile(0.5, torch.tensor([3.0]), torch.tensor([3.0]))
    tensor([0.5000], dtype=torch.float64)
    """
    first, second = (each.numpy(force=True).astype(float) for each in (a, b))
    return torch.as_tensor(special.betaincinv(first, second, q), device=a.device)


def chi_square_quantile(q: float, freedom: Tensor) -> Tensor:
    """Compute the value below which the chi-squared distribution has probability ``q``.

    Args:
        q: in [0, 1].
        freedom: degrees of freedom ``[...]``, > 0.

    Returns:
        float64 ``[...]``.

    >>> chi_square_quantile(0.95, torch.tensor([1.0, 10.0]))
    tensor([ 3.8415, 18.3070], dtype=torch.float64)
    """
    degrees = freedom.numpy(force=True).astype(float)
    return torch.as_tensor(2 * special.gammaincinv(degrees / 2, q), device=freedom.device)


def normal_quantile(level: float) -> float:
    """Compute half the width of the central interval of a standard normal distribution that has probability ``level``.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return float(special.ndtri((1 + level) / 2))


def student_quantile(level: float, freedom: Tensor) -> Tensor:
    """Compute half the width of the central interval of Student's t distribution that has probability ``level``.

    Args:
        level: in (0, 1).
        freedom: degrees of freedom ``[...]``, >= 1, not necessarily whole.

    Returns:
        Float64 ``[...]``.

    >>> student_quantile(0.95, torch.tensor([2.0, 19.0]))
    tensor([4.3027, 2.0930], dtype=torch.float64)
    """
    degrees = freedom.numpy(force=True).astype(float)
    return torch.as_tensor(special.stdtrit(degrees, (1 + level) / 2), device=freedom.device)
