"""Three ways to estimate the measures of a scored pool from a few labels: uniform labels, two strata, strata of scores.

Every function takes many sets of labels at once (dimension ``S``); a user has one. K is the number of classes, class 0
the frequent one; H is the number of strata, D of draws. Pools are known by counts alone: a stratum is a number of rows.
No function sees the classes of rows that were not labelled: ``label`` returns the labels of rows drawn at random.

Strata of scores, for each class c but 0, in the order of the classes, among the labels that are no earlier class:

- Position z of a row: normal quantile of the rank of its score for class c, so that only the order of scores counts.
- Curve: the rate of a stratum is mu = (1 - spread) mean(sigmoid(a + b (z - z_c))) + spread * (its mean over the pool),
  where z_c is the quantile above which as many rows lie as are predicted as c.
- Rate of the stratum: Beta with mean mu and ``firmness`` pseudo-counts of its rarer side.
- a, b, spread and firmness lie on a grid; all is integrated by the beta-binomial likelihood of all strata. The
  prior has two versions: flat in a, and multiplied by the square root of the rate in the pool (as Jeffreys' prior of a
  rare total). The bounds are the outermost of both, the value is that of the second.
- The rows that were not labelled are drawn from the Beta posterior of their stratum, so that counts are of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, ndtri
from torch import Tensor

import imbtorch
from imbtorch.statistics import posterior

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Labels = Callable[[Whole], Whole]  # rows to label in each stratum [S, H] -> labels [S, H, K]

NAMES = {
    2: ("recall", "precision", "f1", "balanced_accuracy", "iam"),
    3: ("recall", "precision", "f1", "balanced_accuracy", "macro_f1", "iam"),
}
DRAWN = 0.995  # share of the draws between the bounds of intervals that are read as 95% intervals
SHIFT = 4  # times the curvature by which bounds move outwards
PILOT, DEFENSIVE, EVEN = (
    0.4,
    0.3,
    0.9,
)  # shares of labels: first stage; proportional to sizes; even over predicted classes
POINTS, GROWTH, SMALLEST, PARTS = 8, 2.0, 20, 4  # points, growth and least rows of strata; strata of a rare class


# measures -------------------------------------------------------------------------------------------------------------


def measures(counts: Array) -> Array:
    """Compute the measures ``NAMES[K]`` of counts ``[..., K, K]`` (rows true), as imbtorch does, on the last dimension.

    Recall, precision and F1 are those of the last class.
    """
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    actual, predicted = counts.sum(-1), counts.sum(-2)
    either, larger = actual + predicted > 0, np.maximum(actual, predicted)
    recall, precision = _ratio(right, actual), _ratio(right, predicted)
    f1, iam = _ratio(2 * right, actual + predicted), _ratio(2 * right - larger, larger)
    balanced = _ratio(recall.sum(-1), (actual > 0).sum(-1))
    means = [_ratio(np.where(either, part, 0).sum(-1), either.sum(-1)) for part in (f1, iam)]
    found = [recall[..., -1], precision[..., -1], f1[..., -1], balanced, *means]
    if counts.shape[-1] == 2:
        del found[4]  # macro F1
    return np.stack(found, -1)


def _ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Divide; 0 where the divisor is 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


# intervals ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimates:
    """Values and bounds ``[S, measures]``, and the medians of the draws (nan where there are no draws)."""

    value: Array
    low: Array
    high: Array
    median: Array


def estimates_of(matrices: Array) -> Estimates:
    """Return estimates from draws of the pool's matrix ``[S, D, K, K]``.

    The value is that of the mean matrix. The bounds are quantiles with ``DRAWN`` between them. They move outwards by
    ``SHIFT`` times the difference of the value and the mean of the draws' values, but not below the lowest draw.
    """
    drawn, value = measures(matrices), measures(matrices.mean(1))
    shift = SHIFT * (value - drawn.mean(1))
    low, high = np.quantile(drawn, [(1 - DRAWN) / 2, (1 + DRAWN) / 2], axis=1)
    low = np.minimum(low, np.maximum(low + shift, drawn.min(1)))
    high = np.maximum(high, np.minimum(high + shift, 1))
    return Estimates(value, np.minimum(low, value), np.maximum(high, value), np.median(drawn, 1))


# uniform labels -------------------------------------------------------------------------------------------------------


def of_last_class(measure: Callable[..., Tensor], counts: Tensor) -> Tensor:
    """Return the value of the last class, as a value of a class."""
    return measure(counts, average="none")[..., [-1]]


REPORTED: Mapping[str, Callable[..., Tensor]] = {
    "recall": partial(of_last_class, imbtorch.recall),
    "precision": partial(of_last_class, imbtorch.precision),
    "f1": partial(of_last_class, imbtorch.f_score),
    "balanced_accuracy": imbtorch.balanced_accuracy,
    "macro_f1": partial(imbtorch.f_score, average="macro"),
    "iam": imbtorch.imbalance_accuracy,
}


def uniform_report(counts: Whole, draws: int, seed: int) -> Estimates:
    """Return values and 95% intervals of a report of uniform labels ``[S, K, K]``: those of ``imbtorch.posterior``."""
    size = counts.shape[-1]
    different, place = np.unique(counts.reshape(len(counts), -1), axis=0, return_inverse=True)
    chosen = {name: REPORTED[name] for name in NAMES[size]}
    parts = []
    for start in range(0, len(different), 100):
        some = torch.from_numpy(different[start : start + 100]).reshape(-1, size, size)
        found = posterior(chosen, some, draws=draws, generator=torch.Generator().manual_seed(seed + start))
        ends = [[each.estimate, each.low, each.high] for each in found.values()]
        parts.append(np.array([[end.reshape(-1).numpy() for end in three] for three in ends]))
    value, low, high = np.concatenate(parts, -1).transpose(1, 2, 0)[:, place.ravel()]
    return Estimates(value, low, high, np.full_like(value, np.nan))


# allocation -----------------------------------------------------------------------------------------------------------


def allocate(weights: Array, total: ArrayLike, room: Whole) -> Whole:
    """Divide ``total`` labels by weights ``[S, H]``, at most ``room`` for each; what does not fit goes elsewhere."""
    weights = np.where(room > 0, weights + 1e-12, 0.0)
    total = np.minimum(np.broadcast_to(total, len(room)), room.sum(1))
    exact = np.zeros(weights.shape)
    for _ in range(weights.shape[1]):
        free = (exact < room) & (weights > 0)
        rest = total - np.where(free, 0, exact).sum(1)
        own = np.where(free, weights, 0)
        further = np.where(free, np.minimum(_ratio(own, own.sum(1, keepdims=True)) * rest[:, None], room), exact)
        if np.allclose(further, exact):
            break
        exact = further
    found = np.floor(exact + 1e-9).astype(np.int64)
    left = np.where(found < room, exact - found, -1)
    order = (-left).argsort(1, kind="stable").argsort(1, kind="stable")
    return found + ((order < (total - found.sum(1))[:, None]) & (found < room))


# two strata -----------------------------------------------------------------------------------------------------------


def two_strata(predicted: Whole, budget: int, label: Labels, random: np.random.Generator, draws: int) -> Estimates:
    """Estimate from strata of the predicted class, of sizes ``predicted`` ``[S, K]``.

    A third of the labels goes to predicted rare classes, in equal parts. The rates of each stratum have the posterior
    of a Dirichlet prior that is worth one sample (for two classes Jeffreys').
    """
    size = predicted.shape[1]
    shares = np.array([2 / 3, *[1 / 3 / (size - 1)] * (size - 1)])
    number = allocate(np.broadcast_to(shares, predicted.shape), budget, predicted)
    labels = label(number)
    rates = random.gamma(labels[:, None] + 1 / size, size=(len(number), draws, size, size))
    left = np.broadcast_to((predicted - number)[:, None], rates.shape[:-1])
    drawn = np.zeros(rates.shape, np.int64)
    for c in range(size - 1, 0, -1):
        drawn[..., c] = random.binomial(left, _ratio(rates[..., c], rates[..., : c + 1].sum(-1)))
        left = left - drawn[..., c]
    drawn[..., 0] = left
    return estimates_of((drawn + labels[:, None]).swapaxes(2, 3))


# strata of scores -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreStrata:
    """Strata of a pool.

    Attributes:
        stratum: ``[N]`` stratum of each row.
        sizes: ``[H]`` rows.
        predicted: ``[H]`` predicted class.
        positions: ``[K - 1, H, POINTS]`` z of equally spaced rows, by the score of each class but 0.
        cuts: ``[K - 1]`` quantile z_c of the share predicted as c.
    """

    stratum: Whole
    sizes: Whole
    predicted: Whole
    positions: Array
    cuts: Array

    @classmethod
    def of(cls, scores: Array, predicted: Whole) -> ScoreStrata:
        """Cut a pool with scores ``[N, K]`` (any increasing function of the class's odds) and predicted classes.

        Within a predicted class the least confident rows come first. Strata of class 0 grow by ``GROWTH``, from half
        the number of predicted rare rows on; a rare class has ``PARTS`` equal ones. Equal scores stay together.
        """
        number, size = scores.shape
        stratum = np.zeros(number, np.int64)
        classes: list[int] = []
        for c in range(size):
            rows = np.flatnonzero(predicted == c)
            if len(rows):
                part = _cut(scores[rows, c], 0 if c else (predicted != 0).sum() / 2)
                stratum[rows] = part + len(classes)
                classes += [c] * (part.max() + 1)
        sizes = np.bincount(stratum, minlength=len(classes))
        first = np.cumsum(sizes) - sizes
        places = (first[:, None] + (np.arange(POINTS) + 0.5) / POINTS * sizes[:, None]).astype(np.int64)
        positions = []
        for c in range(1, size):
            z = _normal_ranks(scores[:, c])
            positions.append(z[np.lexsort((z, stratum))][places])
        shares = np.bincount(predicted, minlength=size)[1:] / number
        cuts = ndtri(1 - shares.clip(10 / number, 0.5))
        return cls(stratum, sizes, np.array(classes), np.array(positions), cuts)


def _cut(confidence: Array, first: float) -> Whole:
    """Return the stratum of each row of one predicted class, from the least confident on."""
    number = len(confidence)
    if first:
        ends, size = [0], max(first, number / GROWTH**12, SMALLEST)
        while number - ends[-1] > 1.5 * size:
            ends.append(ends[-1] + int(size))
            size *= GROWTH
    else:
        ends = np.linspace(0, number, min(PARTS, max(1, number // SMALLEST)) + 1)[:-1].astype(int).tolist()
    ordered = np.sort(confidence)
    return np.searchsorted(np.unique(ordered[ends])[1:], confidence, side="right")


def _normal_ranks(scores: Array) -> Array:
    """Return normal quantiles of ranks; equal scores share their mean rank."""
    _, place, number = np.unique(scores, return_inverse=True, return_counts=True)
    return ndtri((np.cumsum(number) - number / 2) / len(scores))[place]


SLOPES, FLAT = (0.0, 0.6, 1.2, 1.8, 2.4, 3.2, 4.2), 0.25  # b, and the prior probability of the first
SPREADS, FIRMNESS = (0.0, 0.2), (0.5, 2.0, 10.0)
LEVELS = np.arange(-9, 4.1, 0.6)  # a, log-odds at the cut
POWERS = (0.0, 0.5)  # of the rate in the pool, by which the prior is multiplied


class RateCurves:
    """Prior of the rates of one class in the strata, on a grid of G curves."""

    def __init__(self, strata: ScoreStrata, c: int) -> None:
        slope, level, spread, firmness = (
            part.ravel()[:, None] for part in np.meshgrid(SLOPES, LEVELS, SPREADS, FIRMNESS, indexing="ij")
        )
        z = strata.positions[c - 1] - strata.cuts[c - 1]
        rate = expit(level[..., None] + slope[..., None] * z).mean(-1)  # [G, H]
        whole = rate @ (strata.sizes / strata.sizes.sum())
        mean = ((1 - spread) * rate + spread * whole[:, None]).clip(1e-8, 1 - 1e-6)
        worth = firmness / np.minimum(mean, 1 - mean)
        self.hits, self.others = worth * mean, worth * (1 - mean)
        self._constant = (gammaln(worth) - gammaln(self.hits) - gammaln(self.others)).sum(-1)
        chance = np.where(slope == 0, FLAT, (1 - FLAT) / (len(SLOPES) - 1))[:, 0]
        self._constant += np.log(chance)
        self._whole = np.log(whole)

    def likelihood(self, hits: Whole, number: Whole) -> Array:
        """Return logarithms ``[S, G]`` of likelihood times prior, given ``hits`` among ``number`` labels ``[S, H]``."""
        hits, number = hits[:, None], number[:, None]
        log = gammaln(self.hits + hits) + gammaln(self.others + (number - hits))
        log -= gammaln(self.hits + self.others + number)
        return log.sum(-1) + self._constant

    def weights(self, likelihood: Array, power: float) -> Array:
        """Return posterior weights ``[S, G]``; the prior has this power of the rate in the pool."""
        total = likelihood + power * self._whole
        weights = np.exp(total - total.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def mean(self, hits: Whole, number: Whole) -> Array:
        """Return posterior mean rates ``[S, H]``."""
        of_curves = (self.hits + hits[:, None]) / (self.hits + self.others + number[:, None])
        return np.einsum("sg,sgh->sh", self.weights(self.likelihood(hits, number), POWERS[-1]), of_curves)

    def draw(self, weights: Array, hits: Whole, number: Whole, left: Whole, random: np.random.Generator) -> Whole:
        """Draw how many of the ``left`` rows ``[S, D, H]`` belong to the class."""
        sums = weights.cumsum(1)
        wanted = (np.arange(left.shape[1]) + random.random((len(hits), 1))) / left.shape[1]
        curve = np.stack([np.searchsorted(each / each[-1], some) for each, some in zip(sums, wanted, strict=True)])
        curve = random.permuted(curve.clip(max=sums.shape[1] - 1), axis=1)  # draws of classes are independent
        rate = random.beta(self.hits[curve] + hits[:, None], self.others[curve] + (number - hits)[:, None])
        return random.binomial(left, rate)


def score_strata(
    strata: ScoreStrata, sets: int, budget: int, label: Labels, random: np.random.Generator, draws: int
) -> Estimates:
    """Estimate from strata of scores, labelled in two stages.

    ``PILOT`` of the labels come first. Each predicted class gets ``EVEN`` / K of the labels and a part of the rest in
    proportion to its rows. Within class 0 the first stage is in proportion to the roots of sizes, within others to
    sizes. The second stage fills up to a target: ``DEFENSIVE`` in proportion to sizes, the rest to sizes times the
    standard deviation of a label at the posterior mean rates.
    """
    size = len(strata.positions) + 1
    curves = [RateCurves(strata, c) for c in range(1, size)]
    own = strata.predicted == np.arange(size)[:, None]  # [K, H]
    rows = own @ strata.sizes
    shares = EVEN / size * (rows > 0) + (1 - EVEN) * rows / rows.sum()

    def divided(weights: Array) -> Array:
        """Scale weights ``[S, H]`` so that predicted classes have their shares."""
        return weights * (_ratio(shares, weights @ own.T) @ own)

    room = np.broadcast_to(strata.sizes, (sets, len(strata.sizes)))
    start = divided(np.where(strata.predicted == 0, np.sqrt(room), room.astype(float)))
    number = allocate(start, round(PILOT * budget), room)
    labels = label(number)
    rates, rest = np.zeros(labels.shape), np.ones(number.shape)
    for c, curve in enumerate(curves, 1):
        mean = curve.mean(labels[..., c], number - labels[..., 1:c].sum(-1))
        rates[..., c], rest = rest * mean, rest * (1 - mean)
    rates[..., 0] = rest
    deviation = np.sqrt((rates * (1 - rates)).sum(-1) / 2)
    target = (1 - DEFENSIVE) * divided(room * deviation) + DEFENSIVE * divided(room.astype(float))
    more = allocate(np.maximum(target * budget - number, 0), budget - number.sum(1), room - number)
    labels, number = labels + label(more), number + more
    seen = [(labels[..., c], number - labels[..., 1:c].sum(-1)) for c in range(1, size)]
    likelihoods = [curve.likelihood(*some) for curve, some in zip(curves, seen, strict=True)]
    found = []
    for power in POWERS:
        left = np.broadcast_to((room - number)[:, None], (sets, draws // len(POWERS), room.shape[1]))
        drawn = np.zeros((*left.shape, size), np.int64)
        for c, (curve, likelihood, some) in enumerate(zip(curves, likelihoods, seen, strict=True), 1):
            drawn[..., c] = curve.draw(curve.weights(likelihood, power), *some, left, random)
            left = left - drawn[..., c]
        drawn[..., 0] = left
        drawn += labels[:, None]
        found.append(estimates_of(np.einsum("sdhc,ph->sdcp", drawn, own.astype(float), optimize=True)))
    return outermost(found)


def outermost(of_priors: Sequence[Estimates]) -> Estimates:
    """Return the estimates of the last prior, with the outermost bounds of all."""
    low, high = np.min([each.low for each in of_priors], 0), np.max([each.high for each in of_priors], 0)
    return Estimates(of_priors[-1].value, low, high, of_priors[-1].median)


# simulation -----------------------------------------------------------------------------------------------------------


class Oracle:
    """Labels of rows drawn without replacement from strata whose classes are counted in ``classes [H, K]``."""

    def __init__(self, classes: Whole, sets: int, random: np.random.Generator) -> None:
        self.left = np.broadcast_to(classes, (sets, *classes.shape)).copy()
        self.random = random

    def __call__(self, number: Whole) -> Whole:
        """Return the labels ``[S, H, K]`` of ``number`` further rows ``[S, H]``."""
        found = np.zeros_like(self.left)
        rows, wanted = self.left.sum(-1), number
        for c in range(self.left.shape[-1] - 1, 0, -1):
            rows = rows - self.left[..., c]
            found[..., c] = self.random.hypergeometric(self.left[..., c], rows, wanted)
            wanted = wanted - found[..., c]
        found[..., 0] = wanted
        self.left = self.left - found
        return found


def uniform_counts(
    matrix: Whole, budget: int, sets: int, random: np.random.Generator, least: Sequence[int]
) -> tuple[Whole, int]:
    """Draw counts ``[sets, K, K]`` of uniform labels that hold the classes ``least``, and how many draws it took."""
    kept, drawn = [np.zeros((0, *matrix.shape), np.int64)], 0
    while sum(map(len, kept)) < sets:
        some = random.multivariate_hypergeometric(matrix.ravel(), budget, size=1_000).reshape(-1, *matrix.shape)
        whole = np.flatnonzero((some.sum(-1)[:, list(least)] > 0).all(1))
        wanted = whole[: sets - sum(map(len, kept))]
        drawn += 1_000 if len(wanted) == len(whole) else int(wanted[-1]) + 1
        kept.append(some[wanted])
    return np.concatenate(kept), drawn
