"""Problems of the result of a report, found from its description and its counts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import Margins, check_square, double, ratio, targets
from imbtorch.intervals.intervals import HEAVY, large_cluster_text
from imbtorch.reports.groups import comparable_groups, few_samples_text, group_problems
from imbtorch.reports.readings import Readings, largest_bucket, rarest_text
from imbtorch.reports.rows import Finder, Row, dependence_text
from imbtorch.reports.texts import UNSQUARED
from imbtorch.suggestions import first_names

if TYPE_CHECKING:
    from imbtorch.reports.result import ReportResult

SIDES = "negatives", "positives"
BY_CLASS = {  # dimension along which weights do not change -> what they depend on, and the remedy
    -1: "true class alone ({}), so leave weight out and pass prevalence= with the class shares of the population, for "
    "the same values with intervals of the numbers of samples",
    -2: "predicted class alone ({}), as if a model's predictions had drawn the rows; Predictions.estimate of the drawn "
    "labels has intervals that hold for any such plan",
}


def unseen_classes(counting: Counting, actual: Tensor, prevalence: Tensor | None) -> Tensor:
    """Return a mask of the classes or labels without targets; given class shares, only of those with a share.

    Args:
        counting: how samples are counted.
        actual: number of targets of each class, ``[K]``; ``[L, 2]`` for multilabel.
        prevalence: share of each class, of the same shape, in the population that the values describe.
    """
    if prevalence is not None:
        lacking = (actual == 0) & (prevalence > 0)
        return lacking.any(-1) if counting.task == "multilabel" else lacking
    unseen = (actual[:, 1] if counting.task == "multilabel" else actual) == 0
    if counting.ignored_class is not None and counting.task != "multilabel":
        unseen[counting.ignored_class] = False
    return unseen


def unseen_text(counting: Counting, names: Sequence[str], *, at_prevalence: bool, needed: bool = False) -> str:
    """Describe classes or labels without targets: what becomes of means, or what to do if they are ``needed``."""
    what = "classes had no target"
    if counting.task == "multilabel":
        what = "labels had no positive or no negative target" if at_prevalence else "labels had no positive target"
    then = "means leave them out if they were not predicted either, and count them as 0 if they were"
    if counting.task != "multilabel":
        then += " (balanced_accuracy and gmean always leave them out)"
    if needed:
        share = "prevalence 0 or 1" if counting.task == "multilabel" else "prevalence 0"
        then = f"their predictions in another population are unknown; give them {share}"
    elif at_prevalence:
        then = f"their prevalence is shared among the others; {then}"
    return f"{len(names)} of {counting.size} {what}: {first_names(names)}; {then}"


def describe_unseen(counting: Counting, names: Sequence[str], actual: Tensor, prevalence: Tensor | None) -> str:
    """Describe the classes or labels without targets; return "" if there are none, or no targets at all."""
    unseen = unseen_classes(counting, actual, prevalence).tolist()
    some = [name for name, yes in zip(names, unseen, strict=True) if yes]
    found = bool(some) and bool(actual.any())
    return unseen_text(counting, some, at_prevalence=prevalence is not None) if found else ""


def _unseen(result: ReportResult) -> str:
    readings, at = result._readings, result._at
    return describe_unseen(readings.counting, readings.class_names, targets(at.counts), at.prevalence)


def _of_groups(kind: str, result: ReportResult) -> str:
    """Describe one kind of problem of groups of samples."""
    groups, readings = result._at.groups, result._readings
    return "" if groups is None else group_problems(readings.counting, groups, readings.group_names).get(kind, "")


def _dependent(result: ReportResult) -> str:
    readings, at = result._readings, result._at
    found = readings.bounded and bool(targets(at.counts).any())
    return dependence_text(readings.counting, at.dependent) if found else ""


def _large_cluster(result: ReportResult) -> str:
    largest = largest_bucket(result._at, HEAVY) if result._readings.bounded else ""
    return large_cluster_text(largest) if largest else ""


def _few_clusters(result: ReportResult) -> str:
    """Name the class of which the worst group has targets in few clusters."""
    readings, at = result._readings, result._at
    directed = [each for each in readings.measures.values() if each.higher_is_better is not None]
    if at.groups is None or at.buckets is None or not at.dependent or not directed:
        return ""
    values, sign = at.value(directed[0], of_groups=True).double(), 1 if directed[0].higher_is_better else -1
    comparable = comparable_groups(readings.counting, at.groups)[1] & ~values.isnan()
    place = int(torch.where(comparable, sign * values, torch.inf).argmin())
    few = rarest_text(at.buckets[place], readings.class_names) if bool(comparable.any()) else ""
    number = int(at.buckets[place].flatten(1).any(1).sum())
    where = f"by {directed[0].name}, the worst group is {readings.group_names[place]}"
    return f"{where}: it has {number} buckets of clusters, {few}" if few else ""


def _few_samples(result: ReportResult) -> str:
    """Say where one error more in a class would change a value at the prevalence far more than in the counts."""
    readings, at = result._readings, result._at
    share = at.prevalence
    if share is None or readings.counting.weighted or isinstance(at.counts, Margins):
        return ""
    rows = [row for row in readings.rows if not row.bound and _within_one(readings, row)]
    if not rows:
        return ""
    labels = readings.counting.task == "multilabel"
    actual = double(at.counts).sum(-1)
    weights = ratio(share.to(actual), actual)
    actual, weights = (actual.amin(0), weights.amax(0)) if labels else (actual, weights)

    def read(counts: Tensor) -> Tensor:
        found = readings.read(replace(at, counts=counts, prevalence=None), drawn=False)
        return torch.stack([found[row] for row in rows])

    def samples_text(index: int, _: int) -> str:
        of_class = f"samples of {readings.class_names[index]}"
        return f"{actual[index]:g} {f'{SIDES[index]} of a label' if labels else of_class}"

    names, classes = [row.name for row in rows], weights.topk(2).indices.tolist()
    return few_samples_text(read, names, double(at.counts), share, classes, samples_text)


def _within_one(readings: Readings, row: Row) -> bool:
    """Return whether a value is of a measure with a range of at most [-1, 1]."""
    measure = readings.measures.get(row.measure) or readings.per_class.get(row.measure)
    low, high = (None, None) if measure is None else measure.traits.value_range
    return low is not None and high is not None and low >= -1 and high <= 1


def _weights_by_class(result: ReportResult) -> str:
    """Say if weights depend on the true or on the predicted class alone, as far as the counts show."""
    readings, squares = result._readings, result._at.squares_of(None)
    if squares is None or readings.counting.task == "multilabel":
        return ""
    sums = check_square(result._at.counts)
    for dim, text in BY_CLASS.items():
        weights = ratio(squares.sum(dim), sums.sum(dim))
        alike = torch.allclose(squares, sums * weights.unsqueeze(dim), rtol=1e-6, atol=0)
        several = bool(((sums > 0).sum(dim) > 1).any())
        if alike and several and not torch.allclose(weights[weights > 0], weights.amax(), rtol=1e-6, atol=0):
            pairs = zip(readings.class_names, weights.tolist(), strict=True)
            return "weights depend on the " + text.format(first_names([f"{name} {each:.4g}" for name, each in pairs]))
    return ""


def _no_interval(result: ReportResult) -> str:
    """Name values without an interval, since they depend on classes without targets."""
    values, low = result._rows, [row for row in result._readings.rows if row.bound == "low" and row.kind != "group"]
    names = [replace(row, bound="").name for row in low if row in values and bool(values[row].isnan())]
    if result._readings.counting.weighted and result._at.squares is None:
        return f"bounds are nan, since {UNSQUARED}" if names else ""
    found = bool(names) and bool(targets(result._at.counts).any())
    return f"bounds are nan for values that depend on classes without targets: {first_names(names)}" if found else ""


FINDERS: tuple[Finder, ...] = (
    ("unseen", _unseen),
    ("empty groups", partial(_of_groups, "empty groups")),
    ("lacking groups", partial(_of_groups, "lacking groups")),
    ("dependent", _dependent),
    ("large cluster", _large_cluster),
    ("few clusters", _few_clusters),
    ("few samples", _few_samples),
    ("weights by class", _weights_by_class),
    ("no interval", _no_interval),
)
"""Kind of each problem of a report, and the function of a result that describes it."""
