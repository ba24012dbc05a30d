"""Problems of the results of sweeps: what a result has to say against itself, as texts that a metric warns of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imbtorch.counting.logits import PROBABILITIES, crowd_near_zero, near_zero
from imbtorch.counts import ratio, two_by_two
from imbtorch.deciding.adjustments import maximised
from imbtorch.deciding.costs import swapped_text
from imbtorch.deciding.curves import by_labels, cells_at, unresolved
from imbtorch.deciding.thresholds import InfeasibleError, worst_value
from imbtorch.reports.groups import few_samples_text
from imbtorch.reports.problems import describe_unseen
from imbtorch.reports.rows import Finder
from imbtorch.suggestions import first_names

if TYPE_CHECKING:
    from imbtorch.deciding.adjustment_result import LogitAdjustmentResult
    from imbtorch.deciding.sweep_result import SweepResult

TOLERANCE, FEW_TOLERANCE = 0.002, 0.01  # errors of an area that need no warning: of one bin, of AUC by few scores
FEW_POSITIVES = 10  # below which a threshold rests on few scores
CROWD = 100  # number of samples in a bin from which to warn
APART = 0.3  # total variation between prior and samples from which their order may be wrong
ALIKE = 0.1  # total variation between both, each sorted, below which it is


# --- thresholds ------------------------------------------------------------------------------------------------------


def _unseen(result: SweepResult) -> str:
    settings, actual = result._settings, result._histogram.sum(-1)
    several = settings.counting.task == "multiclass"
    names = ("0", "1") if settings.counting.task == "binary" else settings.class_names
    return describe_unseen(settings.counting, names, actual[:, 1] if several else actual, settings.prevalence)


def _like_probabilities(result: SweepResult) -> str:
    """Describe logits that all look like probabilities, which is seen in the bins of any device."""
    settings, histogram = result._settings, result._histogram
    if not result.logits or not settings.crowded:
        return PROBABILITIES * result._hidden.doubtful
    low, high, slack = 0.0, 1.0, 0
    if settings.counting.task == "multiclass":  # log-odds of probabilities against the rest
        others = len(settings.class_names) - 1
        low, high, slack = -math.log(others - 1 + math.e), 1 - math.log(others), 2
    edges = settings.edges
    begin, end = torch.bucketize(torch.tensor([low, high], dtype=torch.float64), edges).tolist()
    counts = by_labels(lambda some: some.sum(-2), histogram).reshape(-1, histogram.shape[-1])
    below = torch.nn.functional.pad(counts.double().cumsum(-1), (1, 0))  # scores below each bin, [L, B + 1]
    if bool((below[:, begin - slack] + below[:, -1] - below[:, end + 1]).any()):
        return ""
    last = ((counts > 0) * torch.arange(counts.shape[-1])).amax(-1).clamp(max=len(edges) - 1)
    largest = (edges[last] - low) / (high - low)
    near = torch.bucketize(low + (high - low) * near_zero(largest), edges, right=True).clamp(min=begin + 1)
    zeros = counts[:, begin].double() * (not slack)
    below_near = below.gather(1, near.unsqueeze(1)).squeeze(1) - zeros
    return PROBABILITIES if crowd_near_zero(below[:, -1], largest, zeros, below_near) else ""


def _beyond_the_ends(result: SweepResult) -> str:
    """Describe scores of both classes beyond an outermost edge, where the histogram cannot tell them apart."""
    histogram, logits = result._histogram, result.logits
    if not result._settings.crowded:
        return ""
    differ = len(set(result._hidden.lowest)) > 1  # of 0, and of what float32 rounds to it, all are equal
    ends = histogram[..., [0, -1]].reshape(-1, 2, 2) if logits else histogram[..., :1].reshape(-1, 2, 1)
    mixed = ends.bool().all(1, keepdim=True) & (logits or differ)
    if not bool(mixed.any()):
        return ""
    samples, edge = ends.mul(mixed).sum().item(), result._settings.edges[-1 if logits else 0].item()
    where = f"a logit of +-{edge:.4g}" if logits else f"a probability of {edge:.2g}"
    remedy = "scale or shift the scores" if logits else "pass logits with logits=True, scaled or shifted"
    return (
        f"{samples:g} scores of both classes lie beyond {where} and count as equal, although they may differ, so that "
        f"no threshold separates them; {remedy}. imbtorch.report ranks any scores exactly"
    )


def _in_mixed_bins(result: SweepResult) -> str:
    """Describe bins by which AUC loses the order of few scores, which a first batch showed to differ: not of trees."""
    if result._hidden.mixed is None:
        return ""
    of_labels, edges = result._histogram.reshape(-1, *result._histogram.shape[-2:]), result._settings.edges
    label, place = result._hidden.mixed // of_labels.shape[-1], result._hidden.mixed % of_labels.shape[-1]
    inside = (place > 0) & (place < len(edges))  # those at the ends are told otherwise
    counts = of_labels[label, :, place].double() * inside.unsqueeze(-1)
    pairs = torch.zeros(len(of_labels), dtype=torch.float64).index_add_(0, label, counts.prod(-1))
    lost = ratio(pairs, 2 * of_labels.sum(-1).double().prod(-1)).max().item()
    if not lost > FEW_TOLERANCE:
        return ""
    fullest = counts.prod(-1).argmax()
    return (
        f"scores of both classes differ but fall between the same two thresholds, such as "
        f"{counts[fullest].sum().item():g} scores above {_above(result, int(place[fullest]))}, so that "
        f"{_harm(result, f'AUC may be off by {lost:.3f}')}; imbtorch.report ranks any scores exactly"
    )


def _crowds(result: SweepResult) -> str:
    """Describe a bin whose samples could change AUC or average precision too much."""
    settings, logits = result._settings, result.logits
    if not settings.crowded:
        return ""

    def worst(some: Tensor) -> Tensor:
        """Return the greatest loss of a bin of each label, the samples in the bin, and its index."""
        held = some.sum(-2).double()
        held[:, 0] = 0.0  # probabilities of the lowest bin are 0, or too small for float32
        held[:, -1].mul_(not logits)  # of logits the ends are told
        crowded = held >= CROWD
        lost = torch.where(crowded, unresolved(some), 0.0) if bool(crowded.any()) else torch.zeros_like(held)
        most, place = lost.max(-1)
        return torch.stack((most, held[torch.arange(len(some)), place], place.double()), -1)

    of_labels = by_labels(worst, result._histogram.reshape(-1, *result._histogram.shape[-2:]))
    most, samples, place = of_labels[of_labels[:, 0].argmax()].tolist()
    if most <= TOLERANCE:
        return ""
    last = int(place) == len(settings.edges)
    lie = f"above {_above(result, int(place))} " + ("count as equal" if last else "fall between two thresholds")
    remedy = "" if logits else "; pass logits with logits=True, which float32 resolves better"
    harm = _harm(result, f"AUC or average precision may be off by {most:.3f}")
    return f"{samples:g} scores {lie}; unless they are equal, {harm}{remedy}"


def _harm(result: SweepResult, of_areas: str) -> str:
    """Say what crowded scores harm: areas only where they were asked for."""
    return of_areas if {"auc", "average_precision"} & {*result._settings.also} else "no threshold separates them"


def _above(result: SweepResult, place: int) -> str:
    """Return the lower edge of a bin as text."""
    edge = result._settings.edges[place - 1].item()
    return f"a logit of {edge:.4g}" if result.logits else f"{edge:.10g}"


def _without_threshold(result: SweepResult) -> str:
    """Describe limits that no threshold keeps, and say what is reachable."""
    settings = result._settings
    texts = settings.problems(result._histogram) if settings.limits else []
    if not texts:
        return ""
    worst = worst_value(settings.measure.higher_is_better, settings.measure.traits.value_range)
    more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
    return f"{'; '.join(texts[:3])}{more}; the worst possible value, {worst:g}, is reported"


def _best_at_an_end(result: SweepResult) -> str:
    """Describe a measure that is best where all samples are flagged, or none, and is swept without limits."""
    measure, free = result._settings.measure, not result._settings.constrained
    if not (free and measure.traits.at_an_end and measure.average == "binary"):
        return ""
    return (
        f"{measure.name} alone is best where all samples are flagged, or none, whatever the scores; add limits, such "
        "as alerts=0.01 or at_least={'precision': 0.5}, or sweep a measure of both errors, such as 'f1'"
    )


def _swapped_costs(result: SweepResult) -> str:
    """Describe costs of which a false alarm is dearer than a miss of the rarer class."""
    costs = result._settings.costs
    if costs is None:
        return ""
    (true_negative, false_alarm), (miss, hit) = costs.tolist()
    return swapped_text(false_alarm - true_negative, miss - hit, result._histogram.sum(-1).reshape(-1, 2).sum(0))


def _few_samples(result: SweepResult) -> str:
    """Describe, as a report does, a value at the prevalence that one error more would change far too much."""
    settings, shares, places = result._settings, result._settings.shares(), result._chosen.place.reshape(-1)
    low, high = settings.measure.traits.value_range
    known = low is not None and high is not None and low >= -1 and high <= 1
    if shares is None or settings.counting.weighted or not (known and settings.name):
        return ""
    of_labels = result._histogram.reshape(len(places), *result._histogram.shape[-2:])
    counts = two_by_two(*cells_at(of_labels, torch.arange(len(places)), places))

    def samples_text(index: int, most: int) -> str:
        of_label = "" if settings.counting.task == "binary" else f" of {settings.class_names[most]}"
        return f"{counts[most, index].sum():g} {('negatives', 'positives')[index]}{of_label}"

    names = [row.name for row in settings.rows_of("value")]
    return few_samples_text(settings.measure, names, counts, shares.reshape(-1, 2), (0, 1), samples_text)


def _few_positives(result: SweepResult) -> str:
    """Name labels and classes whose thresholds depend on a few scores."""
    settings, positives = result._settings, result._histogram[..., 1, :].sum(-1).reshape(-1).tolist()
    names = [name for name, number in zip(settings.class_names, positives, strict=True) if 0 < number < FEW_POSITIVES]
    if not names or settings.counting.weighted:
        return ""
    of = "" if settings.counting.task == "binary" else f" of {first_names(names)}"
    what = f"fewer than {FEW_POSITIVES} positives{of}"
    return f"{what}: the threshold rests on a few scores, and another sample would choose another one"


OF_THRESHOLDS: tuple[Finder, ...] = (
    ("few positives", _few_positives),
    ("unseen", _unseen),
    ("probabilities", _like_probabilities),
    ("crowded", _beyond_the_ends),
    ("crowded", _in_mixed_bins),
    ("crowded", _crowds),
    ("infeasible", _without_threshold),
    ("few samples", _few_samples),
    ("measure", _best_at_an_end),
    ("costs", _swapped_costs),
)
"""Kind of each problem of a sweep, and the function of a result that describes it."""


# --- logit adjustments -----------------------------------------------------------------------------------------------


def _unseen_classes(result: LogitAdjustmentResult) -> str:
    settings, actual = result._tau_settings, result._buckets.actual.sum((0, 1))
    return describe_unseen(settings.counting, settings.class_names, actual, None)


def _another_order(result: LogitAdjustmentResult) -> str:
    """Describe a prior that fits the classes of the samples in another order than that of the classes."""
    prior, actual = result._tau_settings.prior, result._buckets.actual.sum((0, 1))
    if not bool(actual.any()):
        return ""
    shares = actual.double() / actual.sum()
    apart, sorted_apart = (
        (one - other).abs().sum().item() / 2
        for one, other in ((prior, shares), (prior.sort().values, shares.sort().values))
    )
    if apart <= APART or sorted_apart >= ALIKE:
        return ""
    largest = [result._tau_settings.class_names[int(each.argmax())] for each in (prior, shares)]
    return (
        "prior fits the samples in another order of the classes only: its largest number is that of class "
        f"{largest[0]!r}, and most samples are of class {largest[1]!r}; pass prior in the order of the classes, such "
        "as torch.bincount(labels, minlength=K)"
    )


def _without_tau(result: LogitAdjustmentResult) -> str:
    """Describe floors that no tau keeps, and say what is reachable."""
    if result._feasible or not bool(result._buckets.actual.any()):
        return ""
    try:
        result._adjustments.chosen(maximised(result._tau_settings.measure), result._tau_settings.limits)
    except InfeasibleError as error:
        return f"{error}; the worst possible value, {result['value'].item():g}, is reported"
    return ""


def _at_an_end(result: LogitAdjustmentResult) -> str:
    """Describe a chosen tau behind which a better one may lie."""
    taus = result._tau_settings.taus
    if result.tau == 0 or result.tau not in (taus[0], taus[-1]):
        return ""
    return (
        f"the chosen tau {result.tau:g} is an end of the grid, so that a better one may lie beyond it; pass taus= that "
        "reach further"
    )


OF_ADJUSTMENTS: tuple[Finder, ...] = (
    ("unseen", _unseen_classes),
    ("order", _another_order),
    ("infeasible", _without_tau),
    ("end", _at_an_end),
)
