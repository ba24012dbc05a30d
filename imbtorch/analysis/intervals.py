"""How sure a value is: intervals and comparisons from the confusion matrix alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, overload

import torch
from torch import Tensor

from imbtorch.counts import Measure, check_choice, double, ratio, square

__all__ = [
    "BalancedAccuracyPosterior",
    "Comparison",
    "Interval",
    "balanced_accuracy_posterior",
    "bootstrap",
    "compare",
    "paired_compare",
    "posterior",
]

Prior: TypeAlias = Literal["jeffreys", "uniform"] | Tensor

CELLS_AT_ONCE = 4_000_000  # matrices are drawn in chunks of at most so many cells: 32 MB of float64


@dataclass(frozen=True)
class Interval:
    """A value with its interval.

    Fields have the shape of the value: the leading dimensions of the counts, and behind them those of a measure with
    several values, such as ``[K]`` for one of each class.

    Attributes:
        estimate: value of the counts themselves.
        low: lower limit.
        high: upper limit.
        level: share of the posterior, or of resamples, that lies within.
        method: how it was found.
        draws: ``[samples, ...]`` values of the draws where asked for, else None.
    """

    estimate: Tensor
    low: Tensor
    high: Tensor
    level: float
    method: str
    draws: Tensor | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return text such as ``0.133 [-0.311, 0.540] (95 % posterior)``, a line for each value."""
        rows = zip(*(each.double().flatten().tolist() for each in (self.estimate, self.low, self.high)), strict=True)
        unit = f"({100 * self.level:g} % {self.method})"
        return "\n".join(f"{value:.3f} [{low:.3f}, {high:.3f}] {unit}" for value, low, high in rows)


@overload
def posterior(
    measure: Measure,
    counts: Tensor,
    prior: Prior = ...,
    samples: int = ...,
    level: float = ...,
    generator: torch.Generator | None = ...,
    draws: bool = ...,
    event_dims: int = ...,
) -> Interval: ...
@overload
def posterior(
    measure: Mapping[str, Measure],
    counts: Tensor,
    prior: Prior = ...,
    samples: int = ...,
    level: float = ...,
    generator: torch.Generator | None = ...,
    draws: bool = ...,
    event_dims: int = ...,
) -> dict[str, Interval]: ...
def posterior(
    measure: Measure | Mapping[str, Measure],
    counts: Tensor,
    prior: Prior = "jeffreys",
    samples: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    draws: bool = False,
    event_dims: int = 2,
) -> Interval | dict[str, Interval]:
    """Posterior interval: where the value of the measure lies, given what was counted.

    Each true class's row is Dirichlet distributed, class totals fixed; the measure of every draw gives equal-tailed
    limits. The prior is on the recall of a class. ``"jeffreys"`` puts 1/K of a sample on the right cell and 1/K on the
    wrong ones together, K counting the classes with targets: for two classes Jeffreys' prior, for more the same total
    pull on the mean recall, since half a sample for each of 100 classes moves it by more than its standard error.
    ``"uniform"`` puts one and one, which for binary balanced accuracy is the posterior of Brodersen et al. (2010).

    A class without errors (or without hits) is drawn at the very limit as well, so that the interval reaches what the
    counts cannot exclude: with few samples near perfection equal-tailed limits alone stop short of it.

    Coverage of 95 % intervals of IAM, balanced accuracy, G-mean and MCC, in this order (some rows of
    ``examples/coverage.py``; two standard errors at .95: .008 for two classes with 300 negatives, .018 for K 10, .049
    for K 100; of many classes the largest has 500 samples, the smallest 10), by the posterior with either prior and by
    the bootstrap, stratified and not:

    ================================  =================  =================  =================  =================
    case                              jeffreys           uniform            stratified         bootstrap
    ================================  =================  =================  =================  =================
    n+ 3, TPR .9, TNR .9              .95 .97 .97 .95    .96 .96 .95 .93    .93 .27 .27 .82    1.00 .60 .60 .99
    n+ 10, TPR .9, TNR .9             .95 .96 .96 .96    .94 .95 .94 .94    .94 .65 .65 .87    1.00 .66 .66 .99
    n+ 30, TPR .9, TNR .9             .94 .94 .94 .95    .94 .95 .95 .93    .94 .92 .93 .94    .99 .94 .94 .97
    n+ 100, TPR .9, TNR .9            .95 .94 .94 .94    .95 .94 .94 .94    .95 .94 .94 .94    .96 .94 .94 .95
    n+ 3, TPR .99, TNR .99            .96 .97 .97 .98    .96 .97 .97 .96    .80 .60 .60 .80    .94 .60 .60 1.00
    n+ 10, TPR .99, TNR .99           .97 .94 .94 .96    .96 .90 .90 .95    .82 .61 .61 .82    .95 .61 .61 .95
    n+ 30, TPR .99, TNR .99           .97 .93 .93 .96    .97 .89 .89 .92    .84 .67 .67 .83    .96 .67 .67 .96
    n+ 100, TPR .99, TNR .99          .96 .96 .96 .94    .93 .90 .90 .90    .91 .83 .83 .90    .98 .84 .84 .90
    n+ 30, TPR .9, TNR .99            .89 .93 .93 .95    .81 .94 .94 .93    .95 .91 .91 .92    .96 .94 .94 .93
    K 10, recall .5                   .96 .93 .93 .94    .96 .95 .95 .96    .96 .93 .93 .95    .98 .94 .94 .95
    K 10, recall .9                   .94 .93 .93 .95    .93 .81 .79 .91    .94 .92 .93 .95    .99 .92 .93 .95
    K 10, recall .99                  .95 .97 .96 .94    .82 .75 .74 .78    .92 .81 .81 .93    .94 .81 .81 .94
    K 10, recall .95 falling to .4    .94 .94 .93 .95    .95 .96 .96 .96    .95 .94 .94 .95    .96 .94 .94 .97
    K 100, recall .5                  .90 .88 .65 .96    .93 .89 .66 .94    .90 .85 .62 .93    .93 .94 .68 .93
    K 100, recall .9                  .96 .91 .90 .94    .54 .05 .05 .38    .95 .93 .91 .95    .97 .95 .91 .93
    K 100, recall .99                 .93 .90 .90 .97    .00 .10 .10 .00    .94 .91 .93 .96    .88 .94 .95 .96
    K 100, recall .95 falling to .4   .88 .95 .68 .94    .76 .94 .74 .89    .88 .95 .70 .90    .85 .96 .66 .95
    ================================  =================  =================  =================  =================

    Use the posterior with ``"jeffreys"``; ``"uniform"`` for binary classifiers far from perfection, or to repeat
    published intervals; :func:`bootstrap` once each class has errors and some hundred samples, and where class totals
    are to vary as well. Of 32 cases, 24 of them binary, ``"jeffreys"`` covers .91 to .99 in all but these:

    - IAM .89 at n+ 30, TPR .9, TNR .99, where both kinds of error are equally many: IAM has a kink there.
    - K 100: G-mean .65 and .68 with recalls down to .5 and .4. The logarithm of a recall from ten samples is biased,
      in the estimate itself, and a hundred classes do not average that out; no method here mends it. Besides, IAM .88
      and .90, balanced accuracy .88 and .90, G-mean .90, which are within their error of .91.

    Args:
        measure: function of ``[..., K, K]`` with one value ``[...]``, or several such as ``[..., K]``, for each matrix;
            or name -> function, which share the draws.
        counts: ``[..., K, K]`` counts, not rates; they need not be whole.
        prior: ``"jeffreys"``, ``"uniform"``, or pseudo-counts ``[K, K]`` of the cells.
        samples: number of draws.
        level: probability that the interval holds, in (0, 1).
        generator: source of randomness, on the device of the counts; by default torch's.
        draws: keep the values of the draws.
        event_dims: how many of the last dimensions of the counts a value is made of: 2 for a matrix, 3 where the
            measure makes one value of the labels of ``[..., L, 2, 2]``.

    Returns:
        :class:`Interval`, or name -> interval.

    Raises:
        ValueError: for counts that are NaN, infinite or negative, a level outside (0, 1), fewer than 2 samples, values
            that do not fit the counts, and pseudo-counts that do not fit or are not positive.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> print(posterior(balanced_accuracy, torch.tensor([[90, 10], [1, 9]]), generator=generator))
    0.900 [0.754, 0.952] (95 % posterior)
    """
    _check(samples, level)
    wide = _checked(counts, event_dims)
    totals = wide.sum(-1, keepdim=True)
    alpha = torch.where(totals > 0, wide + _pseudo_counts(prior, wide), 0.0)
    hits = wide.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    limits = [(hits == totals) & (totals > 0), (hits == 0) & (totals > 0)]

    def drawn() -> Iterator[list[Tensor]]:
        for size in _chunks(samples, wide.numel()):
            # a gamma of concentration 0 is not defined: such cells stay empty
            gammas = torch._standard_gamma(alpha.clamp(min=1e-30).expand(size, *alpha.shape).contiguous(), generator)
            gammas = torch.where(alpha > 0, gammas, 0.0)
            rates = ratio(gammas, gammas.sum(-1, keepdim=True))
            plain = torch.where(totals > 0, rates * totals, 0.0)
            faultless = torch.where(limits[0], wide, plain) if bool(limits[0].any()) else plain
            hopeless = plain
            if bool(limits[1].any()):
                wrong = plain - torch.diag_embed(plain.diagonal(dim1=-2, dim2=-1))
                scale = ratio(totals, wrong.sum(-1, keepdim=True))
                hopeless = torch.where(limits[1], wrong * scale, plain)
            yield [plain, *(each for each in (faultless, hopeless) if each is not plain)]

    return _intervals(measure, wide, drawn(), level, "posterior", draws, event_dims)


@overload
def bootstrap(
    measure: Measure,
    counts: Tensor,
    samples: int = ...,
    level: float = ...,
    stratified: bool = ...,
    generator: torch.Generator | None = ...,
    draws: bool = ...,
    event_dims: int = ...,
) -> Interval: ...
@overload
def bootstrap(
    measure: Mapping[str, Measure],
    counts: Tensor,
    samples: int = ...,
    level: float = ...,
    stratified: bool = ...,
    generator: torch.Generator | None = ...,
    draws: bool = ...,
    event_dims: int = ...,
) -> dict[str, Interval]: ...
def bootstrap(
    measure: Measure | Mapping[str, Measure],
    counts: Tensor,
    samples: int = 10_000,
    level: float = 0.95,
    stratified: bool = False,
    generator: torch.Generator | None = None,
    draws: bool = False,
    event_dims: int = 2,
) -> Interval | dict[str, Interval]:
    """Percentile bootstrap interval: the measure of resampled test sets.

    Resampling the cells of the matrix has the same distribution as resampling the samples, at a cost that does not
    depend on their number. Use :func:`posterior` for rare classes: with 10 positives of recall .9 the 95 % bootstrap of
    balanced accuracy covers .66, stratified .65, the posterior .96 (table there), since a class without errors in the
    test set has none in any resample either.

    Args:
        measure: function of ``[..., K, K]`` with one value ``[...]``, or several such as ``[..., K]``, for each matrix;
            or name -> function, which share the resamples.
        counts: ``[..., K, K]`` whole counts.
        samples: number of resamples.
        level: share of the resamples within the interval, in (0, 1).
        stratified: keep the number of targets of each class.
        generator: source of randomness, on the device of the counts; by default torch's.
        draws: keep the values of the resamples.
        event_dims: as in :func:`posterior`.

    Returns:
        :class:`Interval`, or name -> interval.

    Raises:
        ValueError: for counts that are NaN, infinite, negative or not whole, a level outside (0, 1), fewer than 2
            samples, and values that do not fit the counts.

    Source: Efron and Tibshirani (1993), An introduction to the bootstrap, ch. 13.

    >>> from imbtorch import accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> print(bootstrap(accuracy, torch.tensor([[90, 10], [1, 9]]), generator=generator))
    0.900 [0.836, 0.955] (95 % bootstrap)
    """
    _check(samples, level)
    wide = _checked(counts, event_dims)
    broken = wide != wide.round()
    if bool(broken.any()):
        raise ValueError(
            f"counts must be whole to be resampled, got {wide[broken][0].item():g}; use posterior for counts that are "
            "not whole"
        )
    cells = wide if stratified else wide.flatten(-2).unsqueeze(-2)  # [..., strata, cells]
    chunks = (_resampled(cells, size, generator) for size in _chunks(samples, wide.numel()))
    drawn = ([chunk.reshape(len(chunk), *wide.shape)] for chunk in chunks)
    method = "stratified bootstrap" if stratified else "bootstrap"
    return _intervals(measure, wide, drawn, level, method, draws, event_dims)


@dataclass(frozen=True)
class Comparison:
    """Whether one model is better than another.

    Attributes:
        difference: interval of the value of a minus that of b.
        probability: ``[...]``, that a is better; ties count one half.
    """

    difference: Interval
    probability: Tensor

    def __str__(self) -> str:
        """Return text, a line for each value."""
        rows = zip(str(self.difference).splitlines(), self.probability.flatten().tolist(), strict=True)
        return "\n".join(f"a - b: {text}; a is better with probability {chance:.3f}" for text, chance in rows)


def compare(
    measure: Measure,
    counts_a: Tensor,
    counts_b: Tensor,
    *,
    higher_is_better: bool = True,
    prior: Prior = "jeffreys",
    samples: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    event_dims: int = 2,
) -> Comparison:
    """Compare two models that were tested on *independent* test sets, by their posteriors.

    On one and the same test set their results depend on each other: use :func:`paired_compare`, which sees that. The
    limits of the difference are equal-tailed, without the rule of :func:`posterior` for classes without errors.

    Args:
        measure: function of ``[..., K, K]`` with a value ``[...]``.
        counts_a: ``[..., K, K]`` of model a.
        counts_b: ``[..., K, K]`` of model b.
        higher_is_better: direction of the measure.
        prior: see :func:`posterior`.
        samples: number of draws.
        level: probability that the interval of the difference holds.
        generator: source of randomness, on the device of the counts.
        event_dims: as in :func:`posterior`.

    Returns:
        :class:`Comparison`.

    Raises:
        ValueError: as :func:`posterior`.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> a, b = torch.tensor([[90, 10], [1, 9]]), torch.tensor([[95, 5], [6, 4]])
    >>> print(compare(balanced_accuracy, a, b, generator=generator))
    a - b: 0.225 [0.014, 0.363] (95 % posterior); a is better with probability 0.984
    """
    values = []
    for counts in (counts_a, counts_b):
        found = posterior(measure, counts, prior, samples, level, generator, True, event_dims)
        assert found.draws is not None
        values.append((found.estimate, found.draws))
    (estimate_a, draws_a), (estimate_b, draws_b) = values
    return _comparison(estimate_a - estimate_b, draws_a - draws_b, level, "posterior", higher_is_better)


def paired_compare(
    measure: Measure,
    preds_a: Tensor,
    preds_b: Tensor,
    target: Tensor,
    num_classes: int,
    *,
    higher_is_better: bool = True,
    samples: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Comparison:
    """Compare two models on one test set, through the joint table of both predictions and the targets.

    Where both models err on the same samples, their difference is surer than either value. The non-zero cells of the
    joint table are resampled as a whole (percentile bootstrap), so each resample holds pairs as they occurred.

    Args:
        measure: function of ``[..., K, K]`` with a value ``[...]``.
        preds_a: ``[N]`` class indices predicted by model a.
        preds_b: ``[N]`` class indices predicted by model b.
        target: ``[N]`` class indices.
        num_classes: K.
        higher_is_better: direction of the measure.
        samples: number of resamples.
        level: share of the resamples within the interval of the difference.
        generator: source of randomness, on the device of the inputs.

    Returns:
        :class:`Comparison`.

    Raises:
        ValueError: for shapes that differ and classes out of range.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([0] * 90 + [1] * 10)
    >>> a, b = target.clone(), target.clone()
    >>> a[:9], b[:9], b[95:] = 1, 1, 0  # both take the same nine for positives; b misses five positives besides
    >>> print(paired_compare(balanced_accuracy, a, b, target, 2, generator=generator))
    a - b: 0.250 [0.083, 0.417] (95 % paired bootstrap); a is better with probability 0.997
    """
    _check(samples, level)
    for name, labels in (("preds_a", preds_a), ("preds_b", preds_b), ("target", target)):
        if labels.shape != target.shape or labels.is_floating_point():
            raise ValueError(f"{name} must hold class indices {list(target.shape)}, got {labels.dtype} {labels.shape}")
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
            raise ValueError(f"{name} holds classes outside 0..{num_classes - 1}")
    a, b, truth = (labels.long().flatten() for labels in (preds_a, preds_b, target))
    joint, times = torch.unique((truth * num_classes + a) * num_classes + b, return_counts=True)
    cell_a = joint // num_classes
    cell_b = joint // num_classes**2 * num_classes + joint % num_classes

    def matrices(times: Tensor) -> tuple[Tensor, Tensor]:
        empty = times.new_zeros(*times.shape[:-1], num_classes**2)
        pair = (empty.index_add(-1, cell, times) for cell in (cell_a, cell_b))
        first, second = (each.reshape(*times.shape[:-1], num_classes, num_classes) for each in pair)
        return first, second

    def difference(times: Tensor) -> Tensor:
        of_a, of_b = matrices(times)
        return _values(measure, of_a) - _values(measure, of_b)

    wide = times.double()
    chunks = _chunks(samples, max(num_classes**2, joint.numel()))
    drawn = torch.cat([difference(_resampled(wide.unsqueeze(0), size, generator).squeeze(-2)) for size in chunks])
    return _comparison(difference(wide), drawn, level, "paired bootstrap", higher_is_better)


@dataclass(frozen=True)
class BalancedAccuracyPosterior:
    """Posterior of balanced accuracy on a grid, exact up to its spacing.

    Attributes:
        grid: ``[M]`` values from 0 to 1.
        density: ``[M]``, integrates to 1.
        mean: its mean.
        mode: its highest point.
    """

    grid: Tensor
    density: Tensor
    mean: float
    mode: float

    def quantile(self, q: float) -> float:
        """Value below which the share ``q`` of the posterior lies."""
        if not 0 <= q <= 1:
            raise ValueError(f"q must lie in [0, 1], got {q!r}")
        # each point stands for the bin around it: between the points half of the first and the last would be lost
        spacing = float(self.grid[1] - self.grid[0])
        cumulative = self.density.cumsum(0) / self.density.sum()
        place = min(int(torch.searchsorted(cumulative, torch.tensor(q, dtype=cumulative.dtype))), len(self.grid) - 1)
        share = float(cumulative[place] - (cumulative[place - 1] if place else 0))
        over = float(cumulative[place]) - q
        return float(self.grid[place]) + (0.5 - (over / share if share else 0.0)) * spacing


def balanced_accuracy_posterior(
    counts: Tensor, prior: Literal["jeffreys", "uniform"] = "uniform", points: int = 4096
) -> BalancedAccuracyPosterior:
    """Posterior of balanced accuracy without sampling: the convolution of the classes' Beta distributions.

    Args:
        counts: ``[K, K]``; classes without targets take no part.
        prior: ``"uniform"`` (Brodersen et al.) or ``"jeffreys"``, on the recall of each class, as in :func:`posterior`.
        points: grid points of each Beta distribution.

    Returns:
        :class:`BalancedAccuracyPosterior`.

    Raises:
        ValueError: for counts that are not one matrix or hold no targets.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution, eq. 7.

    >>> found = balanced_accuracy_posterior(torch.tensor([[90, 10], [1, 9]]))
    >>> round(found.mean, 4)  # (91/102 + 10/12) / 2
    0.8627
    """
    check_choice("prior", prior, ("uniform", "jeffreys"))
    wide = double(square(counts)).cpu()
    if wide.ndim != 2 or not bool(wide.sum() > 0):
        raise ValueError(f"counts must be one matrix [K, K] with targets, got shape {list(wide.shape)}")
    classes = (wide.sum(-1) > 0).sum()
    weight = float(_weight(prior, classes))
    hits, totals = wide.diagonal(), wide.sum(-1)
    mass = None
    for right, total in zip(hits.tolist(), totals.tolist(), strict=True):
        if total > 0:
            each = _beta_masses(right + weight, total - right + weight, points)
            mass = each if mass is None else _convolved(mass, each)
    assert mass is not None
    spacing = 1.0 / (points * int(classes))
    grid = (torch.arange(len(mass), dtype=torch.float64) + 0.5 * int(classes)) * spacing  # sums of bin centres
    density = mass / mass.sum() / spacing
    mean = float((grid * mass).sum() / mass.sum())
    return BalancedAccuracyPosterior(grid, density, mean, float(grid[int(density.argmax())]))


# --- shared pieces --------------------------------------------------------------------------------------------------


def _check(samples: int, level: float) -> None:
    if samples < 2:
        raise ValueError(f"samples must be at least 2, got {samples!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")


def _chunks(samples: int, cells: int) -> list[int]:
    """Sizes of chunks of draws that bound the memory."""
    most = max(1, CELLS_AT_ONCE // max(cells, 1))
    return [min(most, samples - start) for start in range(0, samples, most)]


def _pseudo_counts(prior: Prior, counts: Tensor) -> Tensor:
    """Prior of each cell: on the right one, and spread over the wrong ones."""
    size = counts.shape[-1]
    if isinstance(prior, Tensor):
        if prior.shape != counts.shape[-2:] or not bool((prior > 0).all()):
            raise ValueError(f"prior must be positive pseudo-counts {[size, size]}, got shape {list(prior.shape)}")
        return prior.to(counts)
    check_choice("prior", prior, ("jeffreys", "uniform"))
    actual = counts.sum(-1)
    weight = _weight(prior, (actual > 0).sum(-1)[..., None, None])
    # a class that neither came nor was predicted takes no part, as in the measures, unless there is but one class
    seen = (actual > 0) | (counts.sum(-2) > 0)
    seen = torch.where(seen.sum(-1, keepdim=True) > 1, seen, True).unsqueeze(-2)
    right = torch.eye(size, dtype=counts.dtype, device=counts.device)
    wrong = (1 - right) * seen
    return weight * (right + ratio(wrong, wrong.sum(-1, keepdim=True)))


def _weight(prior: str, classes: Tensor) -> Tensor:
    """Pseudo-count on either side of a recall: Jeffreys' half for two classes, their sum kept for more."""
    return 1 / classes.clamp(min=2).double() if prior == "jeffreys" else torch.ones_like(classes, dtype=torch.float64)


def _resampled(cells: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """Multinomial resamples ``[samples, ..., strata, cells]`` of each stratum, by chained binomials.

    Each cell takes its share of what the cells before it left; empty cells cost nothing.
    """
    result = cells.new_zeros(samples, *cells.shape)
    left = cells.sum(-1).expand(samples, *cells.shape[:-1]).clone()
    behind = cells.sum(-1)  # counts of the cells that have not had their turn
    filled = (cells > 0).flatten(0, -2).any(0).nonzero().flatten().tolist()
    for index in filled:
        chance = ratio(cells[..., index], behind).clamp(0, 1).expand_as(left)
        taken = torch.binomial(left, chance, generator=generator)
        result[..., index] = taken
        left -= taken
        behind = behind - cells[..., index]
    return result


def _checked(counts: Tensor, event_dims: int = 2) -> Tensor:
    """Counts in float64 that can be drawn from."""
    if not 2 <= event_dims <= max(2, square(counts).ndim):
        raise ValueError(
            f"event_dims must lie in 2..{counts.ndim} for counts {list(counts.shape)}, got {event_dims!r}; 2 is one "
            "matrix for each value"
        )
    wide = double(counts)
    wrong = ~(wide.isfinite() & (wide >= 0))
    if bool(wrong.any()):
        raise ValueError(f"counts must be finite and not negative, got {wide[wrong][0].item():g}")
    return wide


def _values(measure: Measure, counts: Tensor, event_dims: int = 2) -> Tensor:
    """Values of the measure, whose leading dimensions must be those of the counts."""
    value = measure(counts)
    lead = counts.shape[: counts.ndim - event_dims]
    if not isinstance(value, Tensor) or value.shape[: len(lead)] != lead:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"measure must return one value for each matrix, {list(lead)}, or several, {[*lead, '...']}, got {got}"
        )
    return value.double()


def _intervals(
    measure: Measure | Mapping[str, Measure],
    counts: Tensor,
    drawn: Iterator[list[Tensor]],
    level: float,
    method: str,
    draws: bool,
    event_dims: int,
) -> Interval | dict[str, Interval]:
    """Evaluate measures on draws that come in chunks, each as one or more variants of the same draws."""
    measures = measure if isinstance(measure, Mapping) else {"": measure}
    values: dict[str, list[list[Tensor]]] = {name: [] for name in measures}
    for variants in drawn:
        for name, each in measures.items():
            values[name].append([_values(each, variant, event_dims) for variant in variants])
    found = {}
    for name, each in measures.items():
        plain, *limits = [torch.cat(parts) for parts in zip(*values[name], strict=True)]
        ends = [_quantiles(variant, level) for variant in (plain, *limits)]
        low = torch.stack([end[0] for end in ends]).amin(0)
        high = torch.stack([end[1] for end in ends]).amax(0)
        estimate = _values(each, counts, event_dims)
        found[name] = Interval(estimate, low, high, level, method, plain if draws else None)
    return found if isinstance(measure, Mapping) else found[""]


def _quantiles(values: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Equal-tailed limits over the first dimension (``torch.quantile`` stops at 16 million values), nan if any is."""
    ordered = values.sort(0).values
    ordered = torch.where(ordered[-1].isnan(), math.nan, ordered)  # they sort last, as if they were high
    last = len(values) - 1
    limits = []
    for q in ((1 - level) / 2, (1 + level) / 2):
        place = q * last
        below = ordered[math.floor(place)]
        limits.append(below + (place - math.floor(place)) * (ordered[math.ceil(place)] - below))
    return limits[0], limits[1]


def _comparison(estimate: Tensor, draws: Tensor, level: float, method: str, higher_is_better: bool) -> Comparison:
    low, high = _quantiles(draws, level)
    better = draws if higher_is_better else -draws
    probability = (better > 0).double().mean(0) + (better == 0).double().mean(0) / 2
    probability = torch.where(low.isnan(), low, probability)
    return Comparison(Interval(estimate, low, high, level, method, draws), probability)


def _beta_masses(a: float, b: float, points: int) -> Tensor:
    """Probability of each of ``points`` equal bins of [0, 1] under Beta(a, b).

    Integrated over the angle t with x = sin(t)^2, in which the density is smooth for a, b >= 1/2.
    """
    edges = torch.linspace(0, 1, points + 1, dtype=torch.float64).sqrt().asin()
    inner = torch.tensor([-math.sqrt(0.6), 0.0, math.sqrt(0.6)], dtype=torch.float64)  # Gauss-Legendre, three nodes
    weights = torch.tensor([5.0, 8.0, 5.0], dtype=torch.float64) / 9
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    t = middle.unsqueeze(-1) + half.unsqueeze(-1) * inner
    logs = (2 * a - 1) * t.sin().log() + (2 * b - 1) * t.cos().log()
    mass = (half.unsqueeze(-1) * weights * (logs - logs.max()).exp()).sum(-1)
    return mass / mass.sum()


def _convolved(first: Tensor, second: Tensor) -> Tensor:
    """Distribution of a sum, by the fast Fourier transform."""
    size = len(first) + len(second) - 1
    product = torch.fft.rfft(first, size) * torch.fft.rfft(second, size)
    summed: Tensor = torch.fft.irfft(product, size)
    return summed.clamp(min=0)
