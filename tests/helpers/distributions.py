"""Matrices, predictions of epochs and distributions of values that tests share; the distributions are SciPy's."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WEIGHT = {"jeffreys": 0.5, "uniform": 1.0}  # on either side of each recall, for two classes
MATRICES = {
    "errors in both": [[90, 10], [1, 9]],
    "few positives": [[180, 20], [1, 2]],
    "no errors in one": [[80, 20], [0, 5]],
    "no errors": [[30, 0], [0, 4]],
    "no hits in one": [[95, 5], [4, 0]],
    "no hits": [[0, 7], [3, 0]],
}
CASES = [
    pytest.param(MATRICES[name], prior, id=f"{name}-{prior}") for name, prior in itertools.product(MATRICES, WEIGHT)
]


def seeded(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def betas(matrix, weight):
    """Posterior of each recall of two classes."""
    (tn, fp), (fn, tp) = matrix
    return stats.beta(tn + weight, fp + weight), stats.beta(tp + weight, fn + weight)


def mean_cdf(matrix, weight):
    """CDF of the mean of two recalls: that of one, averaged over the other's quantiles."""
    first, second = betas(matrix, weight)
    nodes = second.ppf((np.arange(4000) + 0.5) / 4000)
    return lambda z: first.cdf(2 * z - nodes).mean()


def distance(draws, cdf, points=100):
    """Kolmogorov distance of draws from a distribution, in units of what chance gives (1 in 1500 is above 2)."""
    ordered = np.sort(np.asarray(draws))
    places = np.unique(np.linspace(0, len(ordered) - 1, points).astype(int))
    return max(abs(cdf(ordered[i]) - (i + 0.5) / len(ordered)) for i in places) * math.sqrt(len(ordered))


def apart(first, second):
    """Two-sample Kolmogorov distance in units of what chance gives."""
    return stats.ks_2samp(first, second).statistic * math.sqrt(len(first) * len(second) / (len(first) + len(second)))


def score(c):
    """A measure without symmetries, of Torch and NumPy alike, defined for every matrix."""
    return (c[..., 0, 0] + 2.0 * c[..., 1, 1]) / (1 + c[..., 1, 0] + 3 * c[..., 0, 1])


def rates(c):
    """Recall of each class."""
    return c.diagonal(dim1=-2, dim2=-1) / c.sum(-1)


# --- many classes -----------------------------------------------------------------------------------------------------


def many(size=20, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        rng.multinomial(n, 0.7 * np.eye(size)[i] + 0.3 * rng.dirichlet(np.full(size, 0.3)))
        for i, n in enumerate(rng.integers(2, 60, size))
    ]
    return torch.from_numpy(np.stack(rows))


def whole(measure):
    """The measure as one of no known module, which is given matrices."""
    return lambda c: measure(c)


# --- comparisons ----------------------------------------------------------------------------------------------------

A, B = [[90, 10], [2, 18]], [[95, 5], [8, 12]]


def labels(size=3):
    """Targets and two predictions that often err on the same samples."""
    rng = np.random.default_rng(5)
    target = rng.choice(size, 90, p=[[1.0], [0.75, 0.25], [0.6, 0.25, 0.15]][size - 1])
    shared = rng.random(90) < 0.3
    wrong = (target + rng.integers(1, size, 90)) % size
    first, second = np.where(shared, wrong, target), np.where(shared, wrong, target)
    first[::29], second[::13] = 0, 1
    return first, second, target


def drawn(recalls, totals, seed=0):
    """Predictions ``[M, N]`` and targets of epochs that see the same hard samples; wrong ones go to the next class."""
    generator = seeded(seed)
    target = torch.repeat_interleave(torch.arange(len(totals)), torch.tensor(totals))
    shared, own = (
        torch.randn(len(target), generator=generator),
        torch.randn(len(recalls), len(target), generator=generator),
    )
    right = torch.special.ndtr((shared + own) / math.sqrt(2)) < torch.tensor(recalls)[:, target]
    return torch.where(right, target, (target + 1) % len(totals)), target


LEARNING = [[0.6, 0.3], [0.8, 0.5], [0.85, 0.6], [0.9, 0.6], [0.9, 0.65], [0.9, 0.6]]


def facts(found):
    """Everything that a choice among epochs found, up to rounding of the shortfall."""
    of_choice = ("epoch", "value", "corrected", "stability", "tied", "identical", "indistinguishable")
    return (*(getattr(found, of) for of in of_choice), round(found.shortfall, 12))


def half_sampled(predictions, target, score, coins, classes, level=0.95):
    """Half-sampling by loops: kept epoch, corrected counts, stability, set."""
    predictions, target, coins = predictions.numpy(), target.numpy(), coins.numpy()
    number = len(predictions)

    def value(epoch, where):
        return score(target[where], predictions[epoch][where])

    def best(values):
        return max(range(number), key=lambda epoch: (round(values[epoch], 11), epoch))

    def counts(epoch, where):
        return metrics.confusion_matrix(target[where], predictions[epoch][where], labels=range(classes))

    every = np.ones(len(target), bool)
    values = [value(epoch, every) for epoch in range(number)]
    kept = best(values)
    cross, choices, resampled = np.zeros((classes, classes)), [], []
    for coin in coins.T == 1:
        for choose, count in ((coin, ~coin), (~coin, coin)):
            seen = [value(epoch, choose) for epoch in range(number)]
            choices.append(best(seen))
            resampled.append(seen)
            cross += counts(choices[-1], count)
    corrected = counts(kept, every) / 10 + 9 * cross / coins.shape[1] / 10
    noise = np.array(resampled) - values
    spread = np.array(
        [[np.sqrt(np.mean((noise[:, j] - noise[:, e]) ** 2)) for j in range(number)] for e in range(number)]
    )
    floor = np.sort(spread[~np.eye(number, dtype=bool)])[(number * (number - 1) - 1) // 2] / 4
    alike = []
    for e in range(number):
        s = np.maximum(spread[e], floor)
        statistic = max((values[j] - values[e]) / s[j] for j in range(number))
        chance = [max((row[j] - row[e]) / s[j] for j in range(number)) for row in noise]
        if statistic <= np.quantile(chance, level):
            alike.append(e)
    top = int(np.argmax(values))
    below = max(values[top] - values[e] + np.quantile([row[e] - row[top] for row in noise], level) for e in alike)
    return kept, corrected, np.mean(np.array(choices) == kept), tuple(alike), below


def splitmix64(number):
    """Return the hash of figure 15 of Steele, Lea and Flood (2014) in Python's integers."""
    z = (number + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31
