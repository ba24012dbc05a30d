"""Exact intervals of measures of two classes, given labels drawn at random within the predicted classes of a pool.

If k1 of the rows predicted positive and k0 of those predicted negative are positive, every measure is a function of k1
and k0 alone. Hypergeometric bounds of both form a box that holds them in at least 95% of all labellings of any pool. A
measure that rises with k1 and falls with k0 has its bounds at two corners of the box.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import special
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import check_choice
from imbtorch.intervals.intervals import Interval
from imbtorch.measures import geometric_mean
from imbtorch.measures.named import AveragedMeasure, resolved
from imbtorch.measures.traits import by_any_name
from imbtorch.tables import Cell

Aim: TypeAlias = Literal["f1", "recall", "precision"]
Whole: TypeAlias = NDArray[np.int64]
Rates: TypeAlias = NDArray[np.float64]

MOST_ROWS = 2**31 - 1  # rows up to which SciPy's hypergeometric probabilities are right to ROUNDING
ROUNDING = 1e-6  # relative error of a probability that is not taken for evidence
RARE = 1e-12  # chance of a number of positives that is not enumerated
SHARES = 201  # shares predicted positive at which extremes are searched; 20,001 differ by less than .001
SHARE_ERROR = 0.1  # part of the error of an interval of the population that is spent on the share predicted positive

_WHOLE = "accuracy adjusted_balanced_accuracy balanced_accuracy bottom_line dominance_area gmean iba kappa"
_WHOLE += " likelihood_ratio markedness mcc net_benefit p4 weighted_accuracy"
_AVERAGES = ("binary", "macro", "micro", "none")
# averages with which a measure rises with k1 and falls with k0; "" for measures of the whole matrix
RISING: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_WHOLE.split(), ("",)),
    **dict.fromkeys(("f1", "fowlkes_mallows", "precision"), _AVERAGES),
    **dict.fromkeys(("npv", "specificity"), (*_AVERAGES, "min")),
    **dict.fromkeys(("cba", "iam"), ("macro", "none", "weighted")),
    "iou": (*_AVERAGES, "weighted"),
    "recall": (*_AVERAGES, "min", "weighted"),
}
FALLING = ("expected_cost", "macro_averaged_absolute_error")


@dataclass(frozen=True)
class Dependence:
    """Way in which a measure depends on the positives among the rows predicted negative (k0) and positive (k1).

    Attributes:
        rising: whether it rises with k1 and falls with k0; False for the reverse.
        on: whether it depends on k0, and whether on k1.
        on_share: whether it depends on the share predicted positive, if rates take the place of k0 and k1.
    """

    rising: bool = True
    on: tuple[bool, bool] = (True, True)
    on_share: bool = True


def dependence(measure: AveragedMeasure) -> Dependence:
    """Return how a measure of two classes depends on the unknown positives.

    Raises:
        ValueError: for a measure, an average or arguments with which it does not always rise or always fall.
    """
    key, given = measure.traits.key, measure.arguments
    average = measure.average if measure.traits.averages else ""
    if average in RISING.get(key, ()) and _monotone(key, given):
        if average == "binary" and key in ("precision", "npv"):  # k1 / N1 and 1 - k0 / N0
            return Dependence(on=(key == "npv", key == "precision"), on_share=False)
        return Dependence(key != "likelihood_ratio" or bool(given["positive"]), (key != "net_benefit", True))
    if key in FALLING and _monotone(key, given):
        return Dependence(rising=False)
    others = [f"average={each!r}" for each in RISING.get(key, ()) if each not in ("", average)]
    remedy = " or ".join(others) or ("other arguments" if key in (*RISING, *FALLING) else "f1, mcc, iam or recall")
    raise ValueError(
        f"{measure} has no exact interval from labels drawn within the predicted classes, since one more right "
        f"prediction may raise or lower it; use {remedy}"
    )


def _monotone(key: str, given: Mapping[str, Any]) -> bool:
    """Return whether a measure of :data:`RISING` or :data:`FALLING` is monotone with these arguments."""
    if key == "gmean":
        return bool(given["correction"] == 0)
    if key == "iba":  # monotone in both recalls for alpha up to 1/3
        return by_any_name().get(given["measure"], given["measure"]) is geometric_mean and given["alpha"] <= 1 / 3
    if key == "expected_cost":  # no right prediction may cost more than a wrong one of the same predicted class
        costs = torch.as_tensor(given["costs"])
        return given["normalize"] is True and bool((costs.diagonal() <= costs.flip(0).diagonal()).all())
    return True


# --- labels and bounds -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """Labels drawn at random, without replacement, among the rows of a pool that are predicted as one class.

    Attributes:
        rows: number of these rows.
        labelled: number of them that are labelled.
        positives: labelled rows that are positive; an array gives bounds of all its counts at once.
        unclear: labelled rows that nobody can decide; bounds count them as positive or negative, whichever is wider.
    """

    rows: int
    labelled: int
    positives: int | Whole
    unclear: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for impossible counts."""
        if not 1 <= self.labelled <= self.rows <= MOST_ROWS:
            raise ValueError(
                f"of the rows predicted as a class 1 to all must be labelled, and a pool has at most {MOST_ROWS:,} "
                f"rows; got {self.labelled:,} labels of {self.rows:,} rows"
            )
        least, most = np.min(self.positives), np.max(self.positives) + self.unclear
        if not (0 <= self.unclear < self.labelled and 0 <= least <= most <= self.labelled):
            raise ValueError(
                f"positive and unclear rows must be among the {self.labelled:,} labelled ones, of which one at least "
                f"must be clear; got {self.positives} positive and {self.unclear} unclear"
            )

    @property
    def expected(self) -> Rates:
        """Number of positives among all rows, if they have the share of the clear labels."""
        return np.asarray(self.rows * self.positives / (self.labelled - self.unclear))

    def positive_bounds(self, error: float) -> tuple[Whole, Whole]:
        """Return bounds of the positives among all rows; each is wrong in at most this share of labellings."""
        low = least_positives(self.rows, self.labelled, self.positives, error)
        negatives = self.labelled - self.positives - self.unclear
        return low, self.rows - least_positives(self.rows, self.labelled, negatives, error)

    def rate_bounds(self, error: float) -> tuple[Rates, Rates]:
        """Return bounds of the share of positives in the population; each is wrong in at most this share of pools."""
        negatives = self.labelled - self.positives - self.unclear
        return least_rate(self.labelled, self.positives, error), 1 - least_rate(self.labelled, negatives, error)


def least_positives(rows: ArrayLike, labelled: ArrayLike, found: ArrayLike, error: ArrayLike) -> Whole:
    """Return the least number of positives among ``rows`` with which so many are found more often than ``error``.

    >>> int(least_positives(100, 10, 2, 0.0125))  # two are found in .009 of labellings if there are 2, in .026 if 3
    3
    """
    from scipy import stats  # which takes half a second to import

    rows, labelled, found = (np.asarray(each, np.int64) for each in (rows, labelled, found))
    low, high = np.broadcast_arrays(found, rows - labelled + found)
    while np.any(low < high):
        middle = (low + high) // 2
        likely = stats.hypergeom.sf(found - 1, rows, middle, labelled) > np.multiply(error, 1 - ROUNDING)
        low, high = np.where(likely, low, middle + 1), np.where(likely, middle, high)
    return low


def least_rate(samples: int, found: ArrayLike, error: float) -> Rates:
    """Return the lower bound of a rate by Clopper and Pearson (1934), given so many successes."""
    found = np.asarray(found, np.float64)
    return np.where(found > 0, special.betaincinv(np.maximum(found, 1), samples - found + 1, error), 0.0)


# --- intervals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledPool:
    """Pool whose rows are labelled at random within the predicted classes.

    Attributes:
        negative: labels of the rows predicted negative.
        positive: labels of the rows predicted positive.
        level: least coverage of the intervals.
    """

    negative: Labelled
    positive: Labelled
    level: float = 0.95
    _boxes: dict[float, list[tuple[Whole, Whole]]] = field(default_factory=dict, init=False, repr=False)  # by error

    @property
    def has_positives(self) -> bool:
        """True if some label is positive."""
        return bool(np.any(self.negative.positives) or np.any(self.positive.positives))

    def expected_cells(self) -> Tensor:
        """Return the cells of the pool if rows of each predicted class have the share of positives of its labels."""
        return self._counts(self.negative.expected, self.positive.expected)

    def value(self, measure: AveragedMeasure) -> Tensor:
        """Return the plug-in value, that of the expected cells."""
        return measure(self.expected_cells())

    def pool_interval(self, measure: AveragedMeasure) -> Interval:
        """Return the interval of the pool's value; it holds it in at least ``level`` of all labellings of any pool.

        Raises:
            ValueError: for a measure that is not monotone, see :func:`dependence`.
        """
        depends, classes = dependence(measure), (self.negative, self.positive)
        unknown = sum(on and each.labelled < each.rows for on, each in zip(depends.on, classes, strict=True))
        error = (1 - self.level) / 2 / max(unknown, 1)
        if error not in self._boxes:
            self._boxes[error] = [each.positive_bounds(error) for each in classes]
        (low0, high0), (low1, high1) = self._boxes[error]
        low, high = measure(self._counts(high0, low1)), measure(self._counts(low0, high1))
        low, high = (low, high) if depends.rising else (high, low)
        return Interval(self.value(measure), low, high, self.level, "exact, of the pool", measure=str(measure))

    def population_interval(self, measure: AveragedMeasure) -> Interval:
        """Return the interval of the value for new rows of the same source, if rows are independent.

        The bounds of the share predicted positive and of both rates hold together. The extremes are searched at
        :data:`SHARES` shares, since some measures are not monotone in the share.

        Raises:
            ValueError: for a measure that is not monotone, see :func:`dependence`.
        """
        depends, error = dependence(measure), (1 - self.level) / 2
        each = error * (1 - SHARE_ERROR * depends.on_share) / sum(depends.on)
        (low0, high0), (low1, high1) = self.negative.rate_bounds(each), self.positive.rate_bounds(each)
        rows0, rows1 = self.negative.rows, self.positive.rows
        least, most = (least_rate(rows0 + rows1, rows, SHARE_ERROR * error) for rows in (rows1, rows0))
        share = np.linspace(least, 1 - most, SHARES).reshape(-1, *[1] * np.broadcast(low0, low1).ndim)
        low = measure(_matrices(1 - share, share, (1 - share) * high0, share * low1))
        high = measure(_matrices(1 - share, share, (1 - share) * low0, share * high1))
        low, high = (low, high) if depends.rising else (high, low)
        ends, method = (low.amin(0), high.amax(0)), "exact, of the population"
        return Interval(self.value(measure), *ends, self.level, method, measure=str(measure))

    def _counts(self, positive0: ArrayLike, positive1: ArrayLike) -> Tensor:
        """Return the counts of the pool with so many positives among the rows of each predicted class."""
        return _matrices(self.negative.rows, self.positive.rows, positive0, positive1)


def _matrices(rows0: ArrayLike, rows1: ArrayLike, positive0: ArrayLike, positive1: ArrayLike) -> Tensor:
    """Return counts or rates ``[..., 2, 2]``, given rows by predicted class and the positives among them."""
    cells = np.subtract(rows0, positive0), np.subtract(rows1, positive1), positive0, positive1
    wide = np.stack(np.broadcast_arrays(*cells), -1).astype(np.float64)
    return torch.from_numpy(wide.reshape(*wide.shape[:-1], 2, 2))


# --- plan ------------------------------------------------------------------------------------------------------------


def plan_sizes(negative: int, positive: int, labels: int, aim: Aim = "f1") -> tuple[int, int]:
    """Return how many of the rows predicted negative and positive to label, one at least of each.

    For F1, MCC and IAM a third of the labels goes to the rows predicted positive, or their share of the pool if it is
    larger. With the aim recall it is a tenth, with precision as many as possible.

    Raises:
        ValueError: for a pool in which only one class is predicted, and for fewer than 2 labels or more than rows.

    >>> plan_sizes(99_000, 1_000, 600), plan_sizes(99_900, 100, 600), plan_sizes(4_000, 6_000, 600)
    ((400, 200), (500, 100), (240, 360))
    """
    check_choice("aim", aim, get_args(Aim))
    if negative < 1 or positive < 1:
        raise ValueError(
            "labels are drawn within both predicted classes, so rows of both must be predicted; got "
            f"{negative:,} rows predicted negative and {positive:,} predicted positive; choose another threshold"
        )
    if not 2 <= labels <= negative + positive:
        raise ValueError(f"labels must be 2 to {negative + positive:,}, the rows of the pool, got {labels:,}")
    least = {"f1": -(-labels // 3), "recall": -(-labels // 10), "precision": labels}[aim]
    number = min(positive, labels - 1, max(least, -(-labels * positive // (negative + positive))))
    number = max(number, labels - negative)
    return labels - number, number


def expected_widths(
    pool: tuple[int, int], sizes: tuple[int, int], precision: float, recall: float
) -> dict[str, Cell | float]:
    """Return F1 and recall with the means of their bounds over all labellings, their mean widths, and more.

    Args:
        pool: rows predicted negative and positive.
        sizes: numbers of them to label.
        precision: guessed precision of the pool.
        recall: guessed recall of the pool.

    Raises:
        ValueError: for guesses outside (0, 1], and those that no pool of this size has.
    """
    from scipy import stats  # which takes half a second to import

    for name, guess in (("precision", precision), ("recall", recall)):
        if not 0 < guess <= 1:
            raise ValueError(f"{name} must be a guess in (0, 1], got {guess}")
    hits = round(precision * pool[1])
    missed = round(hits * (1 - recall) / recall)
    if not hits or missed > pool[0]:
        raise ValueError(
            f"with precision {precision} and recall {recall} there are {hits:,} hits of {pool[1]:,} alarms and "
            f"{missed:,} misses of {pool[0]:,} other rows; guess others"
        )
    found, chances = list[Whole](), list[Rates]()
    for rows, number, size in zip(pool, (missed, hits), sizes, strict=True):
        every = np.arange(max(0, size - rows + number), min(size, number) + 1)
        likely = stats.hypergeom.pmf(every, rows, number, size)
        found, chances = [*found, every[likely > RARE]], [*chances, likely[likely > RARE]]
    chance = torch.from_numpy(np.outer(*chances) / np.outer(*chances).sum())
    labels = LabelledPool(Labelled(pool[0], sizes[0], found[0][:, None]), Labelled(pool[1], sizes[1], found[1]))
    row: dict[str, Cell | float] = {}
    for name in ("f1", "recall"):
        measure = resolved(name, name, Counting.of("binary"))
        interval, true = labels.pool_interval(measure), measure(labels._counts(missed, hits))
        low, high = (float((chance * end).sum()) for end in (interval.low, interval.high))
        row |= {name: Cell(float(true), low, high), f"width of {name}": high - low}
    return row | {"no miss found": float(chances[0][found[0] == 0].sum())}
