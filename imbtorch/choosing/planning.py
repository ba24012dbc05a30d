"""Size of a test set that makes the interval of a measure narrow enough."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import check_square, double, evaluated
from imbtorch.intervals.draws import multinomial
from imbtorch.intervals.intervals import posterior_of
from imbtorch.measures.named import Measured, measure_of_counts

START = 30  # samples of the rarest class that are tried first
MOST = 2**30  # greatest number of samples of the rarest class that is tried
PRECISE = 1.01  # the result is at most 1% above the least number that suffices for the test sets drawn here


@computed_on_cpu
def samples_needed(
    measure: Measured,
    rates: Tensor,
    prevalence: Tensor,
    width: float,
    assurance: float = 0.8,
    *,
    level: float = 0.95,
    test_sets: int = 400,
    draws: int = 1000,
    seed: int = 0,
) -> int:
    """Find the number of samples of the rarest class that makes the interval of a measure no wider than ``width``.

    Random test sets of a classifier with these rates are drawn, with class totals that vary as ``prevalence`` says.
    The result is the number at which the share ``assurance`` of test sets has a :func:`posterior` interval that is
    narrow enough; a test set that lacks a class does not count as one. With other test sets that share is within 0.05
    of ``assurance`` in simulations: a percent more samples narrows intervals by half a percent.

    Args:
        measure: name in the catalogue, or function of ``[..., K, K]`` with a value ``[...]``.
        rates: ``[K, K]`` expected rates of the classifier: each row has the shares of a class that are predicted as
            each class. Rows are normalised to sum to 1, so you can pass the counts of a first test set.
        prevalence: ``[K]`` shares of the classes, normalised to sum to 1. A class of prior 0 is left out.
        width: distance of the interval's bounds, in units of the measure.
        assurance: probability that the interval of a test set of that size is so narrow, in (0, 1).
        level: nominal coverage of the interval, in (0, 1).
        test_sets: number of test sets drawn for each size that is tried.
        draws: number of draws of each posterior.
        seed: seed of the randomness, the same for each size that is tried.

    Returns:
        Expected samples of the class with the smallest positive prevalence, at least 1. Divide by it for the size of
        the test set.

    Raises:
        ValueError: for shapes that do not fit, negative or empty rows and prevalence, a width that is not positive, an
            assurance outside (0, 1), a measure without a value for these test sets or with several values, and a width
            that 2^30 samples do not reach.

    >>> from imbtorch import balanced_accuracy
    >>> rates, prevalence = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0.95, 0.05])
    >>> 60 < samples_needed(balanced_accuracy, rates, prevalence, 0.1) < 90  # 1.96² * 0.8 * 0.2 / 0.1² = 61.5
    True
    """
    _check(width, assurance)
    shares, relative = _shares(rates, prevalence)
    called, cells = measure_of_counts(measure, len(shares)), shares.numel()
    evaluated(called, shares * relative.unsqueeze(-1))
    at_once = max(1, 20_000_000 // cells // draws)

    def widths(rarest: int) -> Tensor:
        """Compute the widths of the intervals of test sets with so many samples of the rarest class."""
        generator = torch.Generator().manual_seed(seed)
        size = (relative.sum() * rarest).round().expand(test_sets, 1)
        totals = multinomial(relative.unsqueeze(0), size, generator).squeeze(-2)
        counts = multinomial(shares, totals, generator)
        whole = (totals > 0)[:, relative > 0].all(-1)
        found = torch.full((test_sets,), torch.inf, dtype=torch.float64)
        parts = []
        for some in torch.split(counts[whole], at_once):
            interval = posterior_of({"": called}, some, draws, level, generator)[""]
            parts.append(interval.high - interval.low)
        return found.masked_scatter(whole, torch.cat(parts)) if parts else found

    low, high, size = 0, None, START
    while high is None or (high - low > 1 and high > PRECISE * low):
        ordered = widths(size).sort().values  # nan is last
        there = ordered[math.ceil(assurance * test_sets) - 1].item()
        if bool(ordered[-1].isnan()):
            raise ValueError(f"measure has no value for test sets with {size} samples of the rarest class")
        low, high = (low, size) if there <= width else (size, high)
        if low >= MOST:
            raise ValueError(f"width {width!r} is not reached with {MOST} samples of the rarest class")
        size = _next(size, low, high, there / width)
    return high


def _next(size: int, low: int, high: int | None, too_wide: float) -> int:
    """Return the size to try next: widths fall with its root. Half a percent is added to enclose the result."""
    guess = round(min(size * too_wide**2, MOST) * (1.005 if too_wide > 1 else 0.995))
    if high is None:
        return min(MOST, max(guess, low + 1 + low // 20))
    return guess if low < guess < high else (low + high) // 2


def _check(width: float, assurance: float) -> None:
    """Check the width and the assurance."""
    if not width > 0:
        raise ValueError(f"width must be positive, got {width!r}")
    if not 0 < assurance < 1:
        raise ValueError(f"assurance must lie in (0, 1), got {assurance!r}")


def _shares(rates: Tensor, prevalence: Tensor) -> tuple[Tensor, Tensor]:
    """Normalise rows to sum to 1, float64 ``[K, K]``, and the class shares to 1 for the rarest class, ``[K]``."""
    wide = double(check_square(rates)).cpu()
    classes = torch.as_tensor(prevalence, dtype=torch.float64).cpu()
    if wide.ndim != 2 or classes.shape != wide.shape[:1]:
        raise ValueError(f"rates must be [K, K] and prevalence [K], got {list(wide.shape)} and {list(classes.shape)}")
    for name, values in (("rates", wide), ("prevalence", classes)):
        if not bool((values >= 0).all() & values.isfinite().all()):
            raise ValueError(f"{name} must be finite and not negative, got {values.tolist()}")
    totals = wide.sum(-1, keepdim=True)
    come = classes > 0
    if not bool(come.any()):
        raise ValueError(f"prevalence must not all be 0, got {classes.tolist()}")
    if bool((come & (totals.squeeze(-1) == 0)).any()):
        raise ValueError("rates has an empty row for a class of positive prevalence; give the rates of its predictions")
    return torch.where(totals > 0, wide / totals, 0.0), classes / classes[come].min()
