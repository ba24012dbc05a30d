"""Comparisons of two models, with the uncertainty of their difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from imbtorch.choosing.looks import at_look, level_to_draw, quantile_of_look
from imbtorch.choosing.outcomes import JointOutcomes, checked_outcomes
from imbtorch.choosing.paired_scores import compare_scores
from imbtorch.choosing.runs import draw_counts
from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Counts, Measure, check_choice, check_square, margins, ratio
from imbtorch.deciding.curves import AREAS
from imbtorch.intervals.class_means import bounds_of_mean, class_variances, recall_weights, shared_worth
from imbtorch.intervals.draws import (
    AGREE,
    DIFFER,
    SPARSE_FROM,
    Prior,
    Totals,
    checked_whole,
    chunks,
    gammas,
    normal_quantile,
    scaled,
    student_quantile,
    worth_of_hits,
)
from imbtorch.intervals.intervals import (
    TOO_NARROW,
    Interval,
    check_draws,
    class_shares,
    interval_texts,
    largest_cluster,
    posterior_of,
    quantiles,
    values,
    warn_of_large_cluster,
)
from imbtorch.measures.named import Measured, measure_of_counts, measure_text, measures_of_counts
from imbtorch.measures.traits import direction_of, needs_matrix, short_name
from imbtorch.reports.result import ReportResult
from imbtorch.suggestions import first_names
from imbtorch.tables import html_table, wrapped
from imbtorch.waiting import announced

# --- classes ---------------------------------------------------------------------------------------------------------
POSITIONS = (
    "paired_compare: samples have several positions, such as pixels, but no clusters, so the interval treats all "
    "positions as independent and is too narrow; pass cluster=torch.arange(len(target)), or the id of each patient"
)
PRIOR = 2 * (AGREE + DIFFER)  # samples of a class
SEPARATE = 1000  # clusters of each class at most whose weights are drawn one by one
RARE = 1 / 3  # share of samples that only one model predicts right, in one more class
SPARE_OF_MEANS = 0.9  # samples that a bound allows for; with a whole one a bound of a single share is exact
SPARE = 0.5  # samples by which a bound allows for more than the prior, as an exact bound of a share does


@dataclass(frozen=True)
class Comparison:
    """Difference of two models a and b. :func:`compare` and :func:`paired_compare` compute it.

    Attributes:
        difference: interval of the value of a minus the value of b.
        probability: ``[...]`` probability that a is better; ties count one half.
        measure: name of the measure and its average, such as ``recall (binary)``; empty for functions without a name.
        notes: lines below the text, such as the share of samples that each model predicts positive.
        names: names of a and b in texts.

    >>> value = torch.tensor([0.2])
    >>> print(Comparison(Interval(value, value - 0.15, value + 0.15, 0.95, "posterior"), torch.tensor([0.99])))
    a - b: 0.200 [0.050, 0.350] (95% posterior); a is better with probability 0.990
    """

    difference: Interval
    probability: Tensor
    measure: str = ""
    notes: tuple[str, ...] = ()
    names: tuple[str, str] = ("a", "b")

    def __str__(self) -> str:
        """Return text, a line for each value."""
        better = f"{self.names[0]} is better with probability"
        lines = [f"{self._head()}: {text}; {better} {chance:.3f}" for text, chance in self._rows()]
        return "\n".join(map(wrapped, (*lines, *self.notes)))

    def _repr_html_(self) -> str:
        """Return a table for notebooks, a row for each value."""
        rows = [[text, f"{chance:.3f}"] for text, chance in self._rows()]
        return html_table([[self._head(), f"probability that {self.names[0]} is better"], *rows])

    def _head(self) -> str:
        """Return the name of the difference."""
        return ", ".join(filter(None, (self.measure, " - ".join(self.names))))

    def _rows(self) -> Iterator[tuple[str, float]]:
        """Yield the difference as text and the probability, of each value."""
        return zip(interval_texts(self.difference), self.probability.flatten().tolist(), strict=True)


@computed_on_cpu
def compare(
    measure: Measured,
    counts_a: Tensor,
    counts_b: Tensor,
    *,
    higher_is_better: bool | None = None,
    prior: Prior = "auto",
    draws: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    event_dims: int = 2,
    totals: Totals = "drawn",
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    """Compare two models that were tested on *independent* test sets, by their posteriors.

    For two models that predicted the same test set, use :func:`paired_compare`, which takes into account that their
    results depend on each other; if the models err on the same samples, the interval of ``compare`` is too wide. The
    bounds of the difference are the outermost of the equal-tailed bounds of its draws and of those that follow from the
    two intervals of :func:`posterior` (MOVER), with all that widens them. What :func:`posterior` says of minima,
    weights, samples that resemble each other and classes without targets holds for differences as well.

    In simulations (page "Coverage of 95% intervals": 2 to 30 classes of 5 to 20 samples, recalls that differ by 0 to
    0.6) the interval covered the true difference in 0.90 to 1.0 of sets.

    Args:
        measure: name in the catalogue, averaged as in a report, or function of counts, as in :func:`posterior`.
        counts_a: ``[..., K, K]`` counts of model a.
        counts_b: ``[..., K, K]`` counts of model b.
        higher_is_better: direction; by default the measure's attribute ``higher_is_better``, or True if it has none.
        prior: prior of both models, as in :func:`posterior`.
        draws: number of draws.
        level: nominal coverage of the interval of the difference, in (0, 1).
        generator: source of randomness, on the CPU; by default torch's.
        event_dims: number of event dimensions, as in :func:`posterior`.
        totals: ``"drawn"`` or ``"fixed"`` class totals, as in :func:`posterior`.
        names: names of a and b, with which the text of the result says what was subtracted and what is better.

    Returns:
        :class:`Comparison`, on the CPU.

    Raises:
        ValueError: as :func:`posterior`, for counts of different shapes, and for a measure without a direction.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> a, b = torch.tensor([[90, 10], [1, 9]]), torch.tensor([[95, 5], [6, 4]])
    >>> print(compare(balanced_accuracy, a, b, generator=generator))
    balanced_accuracy, a - b: 0.225 [0.017, 0.363] (95% posterior); a is better with probability 0.983
    """
    names = _checked_names(names)
    shapes = [list(check_square(counts).shape) for counts in (counts_a, counts_b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"counts_a and counts_b must be matrices of the same shape, got {shapes[0]} and {shapes[1]}")
    wide = [checked_whole(counts, event_dims) for counts in (counts_a, counts_b)]
    called = measures_of_counts(measure, counts_a, event_dims)[""]
    better = direction_of(called, higher_is_better)
    a, b = (
        posterior_of({"": called}, counts, draws, level, generator, prior, True, event_dims, totals)[""]
        for counts in wide
    )
    assert a.draws is not None
    assert b.draws is not None
    below = ((a.estimate - a.low) ** 2 + (b.high - b.estimate) ** 2).sqrt()
    above = ((a.high - a.estimate) ** 2 + (b.estimate - b.low) ** 2).sqrt()
    drawn = a.draws - b.draws
    ends = quantiles(drawn, level)
    found = _comparison(a.estimate - b.estimate, drawn, ends, (-below, above), level, "posterior", better, called)
    return replace(found, names=names)


def compare_groups(
    result: ReportResult, name: str, a: str, b: str, *, level: float = 0.95, generator: torch.Generator | None = None
) -> Comparison:
    """Compare a value of two groups of samples of a report, such as the recall at two sites.

    The bounds follow from the intervals of both values (MOVER), as groups hold different samples. With clusters they
    are those of resampled clusters; if clusters have samples in both groups, the interval is wider than needed.

    Args:
        result: result of a report with groups.
        name: name of a value of groups, such as ``"recall"``.
        a: name of a group.
        b: name of another group.
        level: nominal coverage of the interval of the difference, in (0, 1).
        generator: source of randomness, as of the intervals of the result.

    Returns:
        :class:`Comparison` of a minus b; the probability that a is better is that of a normal distribution.

    Raises:
        ValueError: for a value or group that is not reported, and as ``result.interval``.

    >>> from imbtorch import Predictions
    >>> columns = {"label": [1] * 100 + [0] * 40, "pred": [1] * 80 + [0] * 60}
    >>> columns["site"] = ["n", "s"] * 40 + ["s"] * 20 + ["n", "s"] * 20
    >>> result = Predictions(columns, target="label", group="site").report("pred", measures=["recall"])
    >>> print(compare_groups(result, "recall", "n", "s"))
    recall, n - s: 0.333 [0.206, 0.462] (95% posterior); n is better with probability 1.000
    """
    names = _checked_names((a, b))
    rows = {row.of: row for row in result.rows if row.kind == "group" and row.measure == name and not row.bound}
    for group in names:
        if group not in rows:
            held = f"it has those of {first_names(list(rows))}" if rows else "name the groups of samples by group="
            raise ValueError(f"the result has no {name!r} of a group {group!r}; {held}")
    first, second = (result.interval(rows[group].name, level=level, generator=generator) for group in names)
    difference = first.estimate - second.estimate
    below = ((first.estimate - first.low) ** 2 + (second.high - second.estimate) ** 2).sqrt()
    above = ((first.high - first.estimate) ** 2 + (second.estimate - second.low) ** 2).sqrt()
    side = torch.where(difference > 0, below, above)
    chance = torch.special.ndtr(normal_quantile(level) * difference / side)
    interval = Interval(difference, difference - below, difference + above, level, first.method)
    return Comparison(interval, 1 - chance if rows[a].better is False else chance, name, (), names)


@computed_on_cpu
def paired_compare(
    measure: Measured,
    preds_a: Tensor,
    preds_b: Tensor,
    target: Tensor,
    num_classes: int | None = None,
    *,
    higher_is_better: bool | None = None,
    draws: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    totals: Totals = "drawn",
    cluster: Tensor | None = None,
    looks: int | None = None,
    look: int | None = None,
    names: tuple[str, str] = ("a", "b"),
    ignore_index: int | None = None,
) -> Comparison:
    """Compare two models on one test set, through the joint table of both predictions and the targets.

    If both models err on the same samples, their difference is less uncertain than either value. Means of recalls over
    classes, such as balanced accuracy, have bounds without draws (Fay and Feuer's). For other measures the prior has
    half a sample of each class that only a predicts right, and half a sample that only b does, so equal predictions do
    not imply equal models (page "Intervals"). In simulations the interval covered the true difference in 0.92 to 1.0
    of sets, and a model that is worse by exactly a margin passed a gate in 0 to 0.06 of them. Decide by the interval:
    for models that hardly differ the probability is too high (0.74 to 0.81 said, 0.59 to 0.77 true).

    **Clusters.** Samples that resemble each other, such as the visits of a patient, need ``cluster=ids``: they then
    count as many samples as their clusters are worth. In simulations of 10 to 100 clusters the interval covered 0.95 to
    1.0, without ids as little as 0.17. With ten clusters it is up to seven times as wide as needed.

    **Scores.** ``"auc"`` and ``"average_precision"`` compare the scores of two models for class 1, ``[N]`` each, by
    DeLong's correlation (MOVER), or percentiles over resamples of each class; average precision of fewer than 30
    positives, or of more than 20,000 samples, by the correlation of what single samples change (MOVER, jackknife). In
    simulations with 5 positives or more the first covered 0.92 to 1.0, the second 0.90 to 0.97, the third 0.94 to 1.0.
    With ``cluster`` they leave out one cluster at a time, and covered 0.91 to 0.99 on 10 to 40 patients.

    **Labels.** ``[N, L]`` of 0 and 1 are L labels (positions if ``num_classes=2``); ``average="none"`` compares each.

    **Looks.** The interval holds for one look at the samples. Whoever looks again as samples come passes
    ``looks=20, look=7``: the bounds of all looks together then err as often as those of one.

    Args:
        measure: name in the catalogue, averaged as in a report (of two classes, recall is that of the positive class);
            function of counts, as in :func:`imbtorch.statistics.posterior`; or ``"auc"`` or ``"average_precision"``.
        preds_a: ``[N, ...]`` class indices predicted by model a, or ``[N]`` scores.
        preds_b: ``[N, ...]`` class indices predicted by model b, or ``[N]`` scores.
        target: ``[N, ...]`` class indices; ``[N]`` of 0 and 1 for scores.
        num_classes: number of classes K, by default the largest index plus one; left out for scores.
        higher_is_better: direction; by default the measure's attribute ``higher_is_better``, or True if it has none.
        draws: number of draws.
        level: nominal coverage of the interval of the difference, in (0, 1).
        generator: source of randomness, on the CPU; by default torch's.
        totals: ``"drawn"`` or ``"fixed"`` class totals, as in :func:`imbtorch.statistics.posterior`.
        cluster: ids of clusters (:func:`imbtorch.cluster_ids` makes them of names); by default samples are independent,
            and a warning says so of targets ``[N, ...]`` with several positions, which need ``[N]`` ids.
        looks: number of looks that were planned before the first, each with as many new samples.
        look: this look, 1 to ``looks``; the samples are all that came so far.
        names: names of a and b in the text of the result, such as ``("new", "old")``.
        ignore_index: target of the samples, or of single labels, to leave out.

    Returns:
        :class:`Comparison` of a minus b, on the CPU, with the probability that a is better.

    Raises:
        ValueError: for shapes that differ, classes out of range, no samples, a level outside (0, 1), fewer than 2
            samples or clusters, an unknown ``totals``, and a measure without a direction.
        TypeError: for predictions and targets that are not tensors of integers or bools, and ids that are not of
            integers.

    Source: Fay and Feuer (1997), Confidence intervals for directly standardized rates.

    >>> target = torch.tensor([0] * 90 + [1] * 10)
    >>> a, b = target.clone(), target.clone()
    >>> a[:9], b[:9], b[95:] = 1, 1, 0  # both have the same nine false positives; b also misses five positives
    >>> print(paired_compare("balanced_accuracy", a, b, target, 2, generator=torch.Generator().manual_seed(0)))
    balanced_accuracy, a - b: 0.250 [0.033, 0.446] (95% paired Fay-Feuer); a is better with probability
      0.988
    """
    check_draws(draws, level, generator)
    check_choice("totals", totals, get_args(Totals))
    names = _checked_names(names)
    at = None if looks is None and look is None else quantile_of_look(level, looks, look)
    if at is not None:
        level = level_to_draw(at)
    measure = short_name(measure)
    if isinstance(measure, str) and measure in AREAS:
        given = {"num_classes": num_classes, "higher_is_better": higher_is_better, "totals": totals}
        given["ignore_index"] = ignore_index
        unused = [name for name, value in given.items() if value not in (None, 2, True, "drawn")]
        if unused:
            raise ValueError(f"{unused[0]} must be left out for {measure!r}, which compares scores of class 1")
        interval, chance = compare_scores(measure, preds_a, preds_b, target, cluster, draws, level, generator)
        found = Comparison(interval, chance, measure)
    else:
        preds = {"preds_a": preds_a, "preds_b": preds_b}
        outcomes = checked_outcomes(preds, target, num_classes, cluster, ignore_index)
        called = measure_of_counts(measure, *outcomes.measured)
        better = direction_of(called, higher_is_better)
        if cluster is None and target.ndim > 1 and not outcomes.labels:
            warn_caller(POSITIONS)
        found = compare_outcomes(called, outcomes, better, draws, level, generator, totals)
    if at is not None:
        found = replace(found, difference=at_look(found.difference, at, f"look {look} of {looks}"))
    return replace(found, names=names)


def _checked_names(names: tuple[str, str]) -> tuple[str, str]:
    """Return the names of two models; raise unless they are two different texts."""
    pair = tuple(names) if isinstance(names, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(each, str) and each for each in pair) or pair[0] == pair[1]:
        raise ValueError(f"names must be two different texts, that of a first, such as ('new', 'old'), got {names!r}")
    return pair


def compare_outcomes(
    measure: Measure,
    outcomes: JointOutcomes,
    higher_is_better: bool,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    totals: Totals = "drawn",
    times: float = 1.0,
) -> Comparison:
    """Compare two predictions by their joint outcomes, as :func:`paired_compare` does.

    With ``times``, as of so many times as many samples, or clusters, with the same shares.
    """
    if outcomes.labels:
        return _compare_labels(measure, outcomes, higher_is_better, draws, level, generator, totals)
    if outcomes.clusters == 1:
        raise ValueError("cluster must name at least 2 clusters, got 1")
    weights = recall_weights(measure, outcomes.pooled().counted())
    if weights is not None:
        return _compare_means(measure, outcomes, weights[0], level, higher_is_better, times)
    pairs = _Pairs(outcomes, times)

    def difference(of_a: Counts, of_b: Counts) -> Tensor:
        return values(measure, of_a) - values(measure, of_b)

    estimate, changes = difference(*pairs.outcomes.counted()), _changes(measure, pairs)
    sparse = outcomes.classes >= SPARSE_FROM and not needs_matrix(measure)
    cells = 6 * outcomes.classes if sparse else 2 * outcomes.classes**2
    sizes: Iterable[int] = chunks(draws, max(cells, len(pairs.outcomes.times)), estimate.device)
    sizes = announced(sizes, draws, "a paired comparison", "fewer draws= shorten it")
    parts, apart = [], []
    for size in sizes:
        of_a, of_b = pairs.draw(size, generator, totals, sparse)
        parts.append(difference(of_a, of_b))
        right, actual, _ = margins(of_a)
        apart.append(ratio(right - margins(of_b).correct, actual))
    drawn, recalls = torch.cat(parts), torch.cat(apart)
    # the draws of a class of n samples vary as if it had 1 + prior more, and the prior pulls them to no difference
    share = class_shares(drawn, recalls.reshape(len(recalls), *[1] * (drawn.ndim - 1), -1), (-1,))
    wider = (1 + ratio((1 + PRIOR) * share, pairs.worth).sum(-1)).sqrt()
    spare = gammas(drawn.new_tensor([SPARE]), draws, generator).view(-1, *[1] * (drawn.ndim - 1))
    lower, higher = (_largest(each, pairs.worth[pairs.classes], spare) for each in (-changes, changes))
    ends = quantiles(drawn - lower, level)[0], quantiles(drawn + higher, level)[1]
    about = wider * (ends[0] - drawn.mean(0)), wider * (ends[1] - drawn.mean(0))
    method = "paired posterior" + ("" if pairs.clusters is None else _of_clusters(pairs.clusters))
    return _comparison(estimate, drawn, ends, about, level, method, higher_is_better, measure)


def _compare_labels(
    measure: Measure,
    outcomes: JointOutcomes,
    higher_is_better: bool,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    totals: Totals,
) -> Comparison:
    """Compare predictions of labels by draws that weight whole samples, or clusters, as those of :func:`over_runs`."""
    if totals != "drawn" or outcomes.clusters < 2:
        raise ValueError(
            "labels need totals='drawn', since samples are drawn with all labels, and two samples or clusters"
        )

    def difference(counts: Tensor) -> Tensor:
        a, b = counts.unbind(-4)
        return values(measure, a, 3) - values(measure, b, 3)

    estimate = difference(outcomes.counted())
    sizes: Iterable[int] = chunks(draws, max(8 * outcomes.labels, len(outcomes.times)), estimate.device)
    sizes = announced(sizes, draws, "a paired comparison", "fewer draws= shorten it")
    drawn = torch.cat([difference(draw_counts(outcomes, [1, 1], size, generator)) for size in sizes])
    ends, number = quantiles(drawn, level), outcomes.clusters
    wider = student_quantile(level, torch.tensor(number - 1.0)) / normal_quantile(level)  # for few clusters
    about = wider * (ends[0] - drawn.mean(0)), wider * (ends[1] - drawn.mean(0))
    method = f"paired Bayesian bootstrap of {number} clusters of labels"
    return _comparison(estimate, drawn, ends, about, level, method, higher_is_better, measure)


def _of_clusters(clusters: Tensor) -> str:
    """Say how many clusters ``[M, K]`` there are, and warn of a large one."""
    sizes = clusters.sum(-1)
    warn_of_large_cluster("paired_compare", sizes)
    largest = largest_cluster(sizes)
    return f" of {len(sizes)} clusters" + (f"; {largest}, {TOO_NARROW}" if largest else "")


def _compare_means(
    measure: Measure, outcomes: JointOutcomes, weight: Tensor, level: float, higher_is_better: bool, times: float
) -> Comparison:
    """Compare two means of recalls over classes, by the samples that only one of the models predicts right."""
    a, b = outcomes.preds == outcomes.target
    only, method = [outcomes.times * each for each in (a & ~b, b & ~a)], "paired Fay-Feuer"
    worth = actual = outcomes.actual()
    gains, losses = (ratio(outcomes.actual(each), actual) for each in only)
    together = torch.ones((), dtype=torch.float64)
    if outcomes.cluster is not None:
        of_clusters = outcomes.of_clusters(outcomes.times)
        changes, squares = (outcomes.of_clusters(each) for each in (only[0] - only[1], only[0] + only[1]))
        worth, together = shared_worth(changes, squares, of_clusters, weight)
        method += _of_clusters(of_clusters)
    worth = times * worth
    estimate = (weight * (gains - losses)).sum(-1)
    low, high = bounds_of_difference(gains, losses, worth, weight, together, level)
    distance = torch.where(estimate > 0, estimate - low, high - estimate) / normal_quantile(level)
    chance = torch.special.ndtr(ratio(estimate if higher_is_better else -estimate, distance))
    return Comparison(Interval(estimate, low, high, level, method), chance, measure_text(measure))


def bounds_of_difference(
    gains: Tensor, losses: Tensor, worth: Tensor, weight: Tensor, together: Tensor, level: float
) -> tuple[Tensor, Tensor]:
    """Compute bounds of the difference of two means of recalls over classes, ``[...]``.

    The bounds of what only one model predicts right are combined like those of two independent values (MOVER). One
    factor multiplies both variances, so that they sum to the variance of the difference.

    Args:
        gains: ``[..., K]`` share of the samples of each class that only the first model predicts right.
        losses: the same of the second model.
        worth: effective numbers of samples.
        weight: weights of the classes, which sum to 1.
        together: factor of the variance ``[...]``, as from :func:`shared_worth`.
        level: nominal coverage.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures.
    """
    variances = [class_variances(each, worth, weight, RARE) for each in (gains, losses)]
    shared = 2 * (weight**2 * ratio(gains * losses, worth)).sum(-1)  # no sample is in both shares
    wider = together * (1 + ratio(shared, (variances[0] + variances[1]).sum(-1)))
    (low, high), (least, most) = (
        bounds_of_mean(each, worth, weight, own, wider, level, SPARE_OF_MEANS)
        for each, own in zip((gains, losses), variances, strict=True)
    )
    gained, lost = (weight * gains).sum(-1), (weight * losses).sum(-1)
    below, above = torch.hypot(gained - low, most - lost), torch.hypot(high - gained, lost - least)
    return (gained - lost - below).clamp(min=-1), (gained - lost + above).clamp(max=1)


def _changes(measure: Measure, pairs: _Pairs) -> Tensor:
    """Compute the change of the difference by one more sample of a class that a, or b, alone predicts wrong.

    The sample is predicted as the rarest other class.

    Returns:
        ``[2, R, ...]`` for a and b and the R classes with targets.
    """
    counts, rows, seen = pairs.outcomes.counted(), pairs.classes, pairs.outcomes.seen
    rarest = seen[pairs.actual[seen].argsort(stable=True)]
    other = torch.where(rows == rarest[0], rarest[1 % len(rarest)], rarest[0])
    unit = ratio(pairs.actual, pairs.worth)[rows]  # samples that count as one
    parts = []
    for some in torch.split(torch.arange(len(rows)), chunks(len(rows), counts[0].numel(), counts.device)):
        right, wrong = (torch.zeros(len(some), *counts.shape[1:], dtype=counts.dtype) for _ in range(2))
        right[torch.arange(len(some)), rows[some], rows[some]] = unit[some]
        wrong[torch.arange(len(some)), rows[some], other[some]] = unit[some]
        parts.append(torch.stack([values(measure, each + wrong) - values(measure, each + right) for each in counts]))
    a, b = torch.cat(parts, 1).nan_to_num()
    return torch.stack((a, -b))


def _largest(changes: Tensor, samples: Tensor, mass: Tensor) -> Tensor:
    """Compute the largest of :func:`_changes` above 0, by mass ``[D, ...]`` instead of one sample."""
    most, place = changes.clamp(min=0).amax(0).max(0)
    number = samples[place] + 1
    return most * mass * number / (number + mass)


class _Pairs:
    """Posterior of the joint outcomes of two models on the samples of each class.

    With clusters the outcomes of a class count as many samples as those of its clusters are worth, and the class totals
    are those of clusters with random weights (Bayesian bootstrap). The sum over clusters that hold less than a
    thousandth of each class is drawn at once, as a normal distribution with its mean and covariance.
    """

    def __init__(self, outcomes: JointOutcomes, times: float = 1.0) -> None:
        outcomes = outcomes if times == 1 else replace(outcomes, times=outcomes.times * times)
        self.outcomes, self.times = outcomes.pooled(), times
        self.actual = self.outcomes.actual()
        self.worth, self.clusters = self.actual, None
        if outcomes.cluster is not None:
            if outcomes.clusters < 2:
                raise ValueError(f"cluster must name at least 2 clusters, got {outcomes.clusters}")
            self.clusters = outcomes.of_clusters(outcomes.times) / times  # [M, K], each of which comes so often
            many = times * ratio(self.clusters, self.actual).amax(-1) < 1 / SEPARATE
            self.separate, others = self.clusters[~many], self.clusters[many]
            variances, axes = torch.linalg.eigh(others.t() @ others)
            self.others = times * others.sum(0).unsqueeze(-1), axes * (times * variances.clamp(min=0)).sqrt()
            a, b = outcomes.preds == outcomes.target
            only = (outcomes.of_clusters(outcomes.times * each) / times for each in (a & ~b, b & ~a))
            self.worth = times * torch.minimum(*(worth_of_hits(each, self.clusters, 0) for each in only))
        self.classes = (self.actual > 0).nonzero().flatten()
        seen = self.outcomes.seen.tolist()
        options = [[j for j in seen if j != i] for i in self.classes.tolist()]
        self.wrong = torch.tensor(options, dtype=torch.long)  # [R, wrong classes]

    def draw(self, samples: int, generator: torch.Generator | None, totals: Totals, sparse: bool) -> Sequence[Counts]:
        """Draw counts of both models, ``[samples, K, K]`` each; ``sparse`` ones are margins."""
        rows, wrong, target = len(self.classes), self.wrong.shape[-1], self.outcomes.target
        fast: torch.Generator | np.random.Generator | None = generator
        if sparse:
            fast = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, (), generator=generator))))
        cells = gammas(self.outcomes.times * ratio(self.worth, self.actual)[target], samples, fast)
        shares = self.actual.new_tensor([AGREE, DIFFER, DIFFER, AGREE] if wrong else [AGREE])
        lumps = gammas(shares.repeat_interleave(rows), samples, fast)
        row = self.classes.repeat(len(shares))
        columns = row.unsqueeze(-1).expand(2, -1, samples)
        if wrong:  # both right, only a right, only b right, both wrong
            place = self.classes.unsqueeze(-1).expand(-1, samples)
            drawn = torch.rand(3, rows, samples, dtype=torch.float64, generator=generator)
            option = (drawn * wrong).long().clamp(max=wrong - 1)
            chosen = [self.wrong.gather(1, each) for each in option]
            column_a = torch.cat((place, place, chosen[0], chosen[1]))
            column_b = torch.cat((place, chosen[0], place, chosen[2]))
            columns = torch.stack((column_a, column_b))
        sums = self.outcomes.actual(cells).index_add_(0, row, lumps)
        total = self.actual.unsqueeze(-1).expand(-1, samples)
        if totals == "drawn":
            if self.clusters is None:
                total = gammas(torch.where(self.actual > 0, self.actual + 0.5, 0.0), samples, generator)
            else:
                weights = gammas(self.actual.new_full((len(self.separate),), self.times), samples, generator)
                total = self.separate.t() @ weights
                if len(self.separate) < len(self.clusters):
                    mean, spread = self.others
                    normal = torch.randn(len(spread), samples, dtype=torch.float64, generator=generator)
                    total = (total + mean + spread @ normal).clamp(min=0)
            total = total * self.actual.sum() / total.sum(0)
        scale = ratio(total, sums)
        cells, more = scaled(cells, scale, target), (lumps * scale[row], row, columns)
        return self.outcomes.margins(cells, more) if sparse else self.outcomes.matrices(cells, more).unbind(1)


def _comparison(
    estimate: Tensor,
    draws: Tensor,
    ends: tuple[Tensor, Tensor],
    about: tuple[Tensor, Tensor],
    level: float,
    method: str,
    higher_is_better: bool,
    measure: Measure,
) -> Comparison:
    """Summarise draws of a difference, with bounds as given, or at least that far from the estimate."""
    low, high = ends
    better = draws if higher_is_better else -draws
    probability = (better > 0).double().mean(0) + (better == 0).double().mean(0) / 2
    probability = torch.where(low.isnan(), low, probability)
    below, above = (torch.where(each.isfinite(), each, 0.0) for each in about)
    low, high = torch.minimum(low, estimate + below), torch.maximum(high, estimate + above)
    low, high = torch.minimum(low, estimate), torch.maximum(high, estimate)
    return Comparison(Interval(estimate, low, high, level, method, draws), probability, measure_text(measure))
