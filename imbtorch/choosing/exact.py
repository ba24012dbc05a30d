"""Posterior of balanced accuracy without sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import check_choice
from imbtorch.intervals.draws import beta_cdf, beta_quantile, checked_counts, pooled_recall

RecallPrior = Literal["uniform", "jeffreys", "pooled"]
OUTSIDE = 1e-10  # probability beyond either end of the grid
FINEST = 2.0**-50  # least width of a bin; below it the edges of bins are no longer distinct numbers


@dataclass(frozen=True)
class BalancedAccuracyPosterior:
    """Posterior of balanced accuracy as the probabilities of equal bins, exact up to their width.

    :func:`balanced_accuracy_posterior` computes it.

    Attributes:
        grid: ``[M]`` centres of the bins.
        density: ``[M]`` probability of each bin divided by its width; integrates to 1.
        mean: mean of the posterior.
        mode: centre of the likeliest bin.

    >>> found = BalancedAccuracyPosterior(torch.tensor([0.25, 0.75]), torch.tensor([0.5, 1.5]), 0.625, 0.75)
    >>> found.probability_above(0.5), round(found.quantile(0.25), 2)
    (0.75, 0.5)
    """

    grid: Tensor
    density: Tensor
    mean: float
    mode: float

    def quantile(self, q: float) -> float:
        """Return the value below which the share ``q`` of the posterior lies."""
        if not 0 <= q <= 1:
            raise ValueError(f"q must lie in [0, 1], got {q!r}")
        cumulative, width = self._cumulative()
        place = min(int(torch.searchsorted(cumulative, cumulative.new_tensor(q))), len(self.grid) - 1)
        share = float(cumulative[place] - (cumulative[place - 1] if place else 0))
        over = float(cumulative[place]) - q
        return min(1.0, max(0.0, float(self.grid[place]) + (0.5 - (over / share if share else 0.0)) * width))

    def probability_above(self, x: float) -> float:
        """Return the probability that balanced accuracy exceeds ``x``, such as the value of another model."""
        cumulative, width = self._cumulative()
        place = (x - float(self.grid[0])) / width + 0.5  # in bins from the lower edge of the first
        if place <= 0:
            return 1.0
        if place >= len(self.grid):
            return 0.0
        before = float(cumulative[int(place) - 1]) if int(place) else 0.0
        return 1 - before - (place - int(place)) * (float(cumulative[int(place)]) - before)

    def _cumulative(self) -> tuple[Tensor, float]:
        """Return the probability up to the upper edge of each bin, and the width of bins."""
        return self.density.cumsum(0) / self.density.sum(), float(self.grid[-1] - self.grid[0]) / (len(self.grid) - 1)


@computed_on_cpu
def balanced_accuracy_posterior(
    counts: Tensor, prior: RecallPrior = "uniform", points: int = 262_144
) -> BalancedAccuracyPosterior:
    """Compute the posterior of balanced accuracy without sampling, as the convolution of Beta distributions of recalls.

    All but 1e-9 of the probability lies in the bins, however narrow the posterior is. Each Beta distribution is cut
    into bins of exact probability, and the convolution keeps its mean. With 262,144 bins the distribution function is
    exact to 1e-6, for counts of any size. Only within a bin of 0 or 1, where the density may jump or be infinite (a
    class without errors), is the value, not its probability, exact: to the width of a bin.

    Args:
        counts: ``[K, K]`` counts; classes without targets are left out.
        prior: prior of the recall of each class, as in :func:`imbtorch.statistics.posterior`: ``"uniform"`` (Brodersen
            et al.), ``"jeffreys"``, or ``"pooled"`` for many classes.
        points: number of bins. The time grows with it and with the number of classes.

    Returns:
        :class:`BalancedAccuracyPosterior`.

    Raises:
        ValueError: for counts that are not one matrix, hold no targets, or are NaN, infinite or negative.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution, eq. 7.

    >>> found = balanced_accuracy_posterior(torch.tensor([[90, 10], [1, 9]]))
    >>> round(found.mean, 4)  # (91/102 + 10/12) / 2
    0.8627
    >>> round(found.probability_above(0.8), 3)
    0.87
    """
    check_choice("prior", prior, get_args(RecallPrior))
    wide = checked_counts(counts).cpu()
    if wide.ndim != 2 or not bool(wide.sum() > 0):
        raise ValueError(f"counts must be one matrix [K, K] with targets, got shape {list(wide.shape)}")
    present = wide.sum(-1) > 0
    hits, totals = wide.diagonal()[present], wide.sum(-1)[present]
    right, wrong = _weights(prior, hits, totals)
    a, b = hits + right, totals - hits + wrong
    means, variances = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    classes, mean = len(a), means.sum().item()
    ends = beta_quantile(OUTSIDE / classes, a, b), beta_quantile(1 - OUTSIDE / classes, a, b)
    most = torch.maximum(means - ends[0], ends[1] - means).max().item()  # of a recall from its mean
    bernstein = _bernstein(variances.sum().item(), most)
    low, high = max(ends[0].sum().item(), mean - bernstein), min(ends[1].sum().item(), mean + bernstein)
    width = max((high - low) / points, FINEST)
    first, last = (ends[0] / width).floor().tolist(), (ends[1] / width).ceil().tolist()
    size = 1 << math.ceil(math.log2(points + 2 * classes + 2))  # sums beyond it have no probability and may wrap
    product, shift, widest = torch.ones(size // 2 + 1, dtype=torch.complex128), 0.0, int(variances.argmax())
    for index in range(classes):
        edges = torch.arange(first[index], last[index] + 1, dtype=torch.float64) * width
        mass = beta_cdf(edges.clamp(0, 1), a[index], b[index]).diff()
        mass /= mass.sum()
        product *= torch.fft.rfft(mass, size)
        if index != widest:  # its bins keep their exact edges; the others are taken at their centres
            shift += means[index].item() - (mass @ (edges[1:] + edges[:-1])).item() / 2
    start, origin = math.floor(low / width) - classes, int(sum(first))
    mass = torch.fft.irfft(product, size).clamp(min=0).roll((origin - start) % size)
    mass = mass[: points + 2 * classes + 2]
    grid = (torch.arange(len(mass), dtype=torch.float64) + start + 0.5 * classes) * width + shift
    grid, width = grid / classes, width / classes
    density = mass / mass.sum() / width
    return BalancedAccuracyPosterior(grid, density, mean / classes, float(grid[int(density.argmax())]))


def _bernstein(variance: float, most: float) -> float:
    """Bound the distance from its mean that a sum exceeds with the probability beyond the grid (Bernstein)."""
    logarithm = math.log(2 / OUTSIDE)
    linear = most * logarithm / 3
    return linear + math.sqrt(linear**2 + 2 * variance * logarithm)


def _weights(prior: str, hits: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """Return pseudo-counts of right and of wrong predictions of each class."""
    if prior == "pooled":
        share = pooled_recall(hits, totals).expand_as(hits)
        return share, 1 - share
    weight = torch.full_like(hits, 1.0 if prior == "uniform" else 0.5)
    return weight, weight
