"""Simulates the coverage of 95% intervals, compared with other packages and methods.

    pip install tqdm prob_conf_mat confidenceinterval confidence-intervals  # the last three are peers
    python examples/coverage.py --quick          # a minute of two cores; prints
    python examples/coverage.py                  # twelve minutes of two cores; writes examples/coverage.md
    python examples/coverage.py --promises --out promises.md  # one section

Intervals: test sets are drawn from classes whose recalls and confusions are known, with class totals fixed or drawn at
random; the true value is that of the expected counts. Errors go to all other classes evenly, or (concentrated) to a
neighbour and to the largest class. A cell is one measure, of one class where it has one for each, of one case. Sets in
which a class has no targets are left out there; a section of its own measures them.

Peers get what they need and no more: ``prob_conf_mat`` (Dirichlet for class totals and for each row, half a sample on
each cell), percentile and BCa bootstrap (BCa from the cells: SciPy's formula, its jackknife weighted by the counts),
``confidenceinterval`` (Takahashi's delta method for F1), Wilson's interval for recall and precision, and MOVER from
Wilson's intervals for balanced accuracy and dominance. A peer that is not installed is left out and named.

Comparisons: the true difference of two models varies from set to set; of the sets where a probability was said, how
often was the likelier model truly better? Clusters: images whose recalls and class shares vary; patients of one class;
labels of one sample that are wrong together. Tails: many classes, half of them rare. Small classes: bias of IAM,
differences of models, and a choice with one better candidate. Areas: scores of four families of
distributions. Kept predictions: clusters in the choice of an epoch and in paired
comparisons. Thresholds: the value at a threshold that was chosen on the same samples, and its gain over .5.
Promises: in how many samples does ``ThresholdSweep.best(..., sure=)`` promise limits, and in how many wrongly? Sweeps
with clusters: patients whose scores resemble each other. Seeds: means over seeds, and differences of two models, equal
and unequal, of independent samples and of clusters.
Scores: differences of AUC and average precision of two models.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from scipy import stats
from scipy.optimize import brentq
from torch import Tensor
from tqdm import tqdm

import imbtorch
from imbtorch.deciding.curves import area_interval, average_precision_interval
from imbtorch.intervals.intervals import HEAVY, largest_cluster
from imbtorch.statistics import (
    Interval,
    beats_baseline,
    bootstrap,
    compare,
    over_runs,
    paired_compare,
    posterior,
    select_epoch,
)

Measures = dict[str, Callable[[Tensor], Tensor]]
Limits = tuple[Tensor, Tensor]
Method = Callable[[Tensor, Measures, str], dict[str, Limits]]

LEVEL = 0.95
Z = float(stats.norm.ppf(0.975))
AVERAGES: Measures = {
    "balanced accuracy": imbtorch.balanced_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
    "CBA": imbtorch.class_balance_accuracy,
    "G-mean": imbtorch.geometric_mean,
    "macro F1": partial(imbtorch.f_score, average="macro"),
    "MCC": imbtorch.matthews_corrcoef,
}
OF_CLASSES: Measures = {
    "recall of a class": partial(imbtorch.recall, average="none"),
    "precision of a class": partial(imbtorch.precision, average="none"),
    "F1 of a class": partial(imbtorch.f_score, average="none"),
}
OF_TWO: Measures = {
    "IBA": imbtorch.index_balanced_accuracy,
    "OP": imbtorch.optimized_precision,
    "dominance": imbtorch.dominance,
}


# --- cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Expected counts of a test set."""

    name: str
    counts: Tensor


def expected(totals: Tensor, recalls: Tensor, concentrated: bool) -> Tensor:
    """Expected counts ``[K, K]``; concentrated errors: 0.6 to the next class, 0.3 to the largest, 0.1 to all others."""
    size = len(totals)
    right = torch.eye(size, dtype=torch.float64)
    wrong = (1 - right) / (size - 1)
    if concentrated:
        wrong = 0.1 * wrong + 0.6 * right.roll(1, 1)
        wrong[0, 1] += 0.3
        wrong[1:, 0] += 0.3
    return totals.unsqueeze(-1) * (recalls.unsqueeze(-1) * right + (1 - recalls).unsqueeze(-1) * wrong)


def cases(size: int) -> Iterator[Case]:
    """Cases of two classes, or of more with 1000 samples in the largest and 3 in the smallest."""
    if size == 2:
        rates = ((0.9, 0.9), (0.99, 0.5), (0.99, 0.99), (0.97, 0.97), (0.9, 0.1), (0.999, 0.9))
        for totals in ((300, 3), (300, 10), (300, 30), (300, 100), (1000, 1000)):
            for pair in rates:
                truth = expected(torch.tensor(totals).double(), torch.tensor(pair).double(), False)
                yield Case(f"{totals[0]}/{totals[1]}, TNR {pair[0]:g}, TPR {pair[1]:g}", truth)
        return
    totals = torch.logspace(3, float(np.log10(3)), size, dtype=torch.float64).round()
    for ends in ((0.5, 0.5), (0.9, 0.9), (0.99, 0.99), (0.95, 0.4), (0.999, 0.1)):
        recalls = torch.linspace(*ends, size, dtype=torch.float64)
        name = f"recall {ends[0]:g}" + f" falling to {ends[1]:g}" * (ends[0] != ends[1])
        for concentrated in (False, True):
            yield Case(f"{name}, {('uniform', 'concentrated')[concentrated]}", expected(totals, recalls, concentrated))


def multinomial(totals: Tensor, weights: Tensor) -> Tensor:
    """Counts ``[N, C]`` of totals ``[N]`` by weights ``[C]``: each cell a part of what is left."""
    counts, left = totals.new_zeros(len(totals), len(weights)), totals.clone()
    remaining = weights.flip(0).cumsum(0).flip(0)
    for index, chance in enumerate((weights / remaining.clamp(min=1e-300)).clamp(0, 1).tolist()):
        counts[:, index] = torch.binomial(left, torch.full_like(left, chance))
        left = left - counts[:, index]
    return counts


def test_sets(truth: Tensor, number: int, totals: str) -> Tensor:
    """Counts ``[number, K, K]`` in which all classes have targets."""
    actual = truth.sum(-1)
    every = actual.round().expand(number, -1)
    if totals == "drawn":
        found: list[Tensor] = []
        while sum(map(len, found)) < number:
            some = multinomial(actual.sum().round().expand(4 * number), actual / actual.sum())
            found.append(some[(some > 0).all(-1)])
        every = torch.cat(found)[:number]
    return torch.stack([multinomial(every[:, index], row / row.sum()) for index, row in enumerate(truth)], 1)


# --- methods --------------------------------------------------------------------------------------------------------


def limits(found: Mapping[str, Interval]) -> dict[str, Limits]:
    return {name: (each.low, each.high) for name, each in found.items()}


def own(counts: Tensor, measures: Measures, totals: str, draws: int) -> dict[str, Limits]:
    """The posterior; raises where limits do not hold the estimate."""
    fixed = "fixed" if totals == "fixed" else "drawn"
    parts = [posterior(measures, some, draws=draws, totals=fixed) for some in counts.split(100)]
    found = {}
    for name in measures:
        ends = [torch.cat([getattr(part[name], end) for part in parts]) for end in ("low", "estimate", "high")]
        assert not bool(((ends[1] < ends[0]) | (ends[1] > ends[2])).any()), f"{name}: an estimate lies outside"
        found[name] = ends[0], ends[2]
    return found


def percentile(counts: Tensor, measures: Measures, totals: str, draws: int) -> dict[str, Limits]:
    return limits(bootstrap(measures, counts, draws, stratified=totals == "fixed"))


def bca(counts: Tensor, measures: Measures, totals: str, draws: int) -> dict[str, Limits]:
    """Bias-corrected and accelerated bootstrap."""
    size = counts.shape[-1]
    resamples = bootstrap(measures, counts, draws, stratified=totals == "fixed", keep_draws=True)
    units = torch.eye(size * size, dtype=torch.float64).reshape(-1, 1, size, size)
    without = (counts - units).clamp(min=0)  # a sample of each cell left out
    weight = counts.flatten(1).t()
    found = {}
    for name, measure in measures.items():
        drawn, estimate = resamples[name].draws, resamples[name].estimate
        assert drawn is not None
        left_out = measure(without).nan_to_num()
        times = weight.reshape(*weight.shape, *[1] * (left_out.ndim - 2))
        centred = (left_out * times).sum(0) / times.sum(0) - left_out
        cubed, squared = (times * centred**3).sum(0), (times * centred**2).sum(0)
        acceleration = (cubed / (6 * squared**1.5)).nan_to_num()
        below = ((drawn < estimate).double() + (drawn <= estimate).double()).mean(0) / 2
        bias = torch.special.ndtri(below.clamp(1 / draws, 1 - 1 / draws))
        ordered = drawn.sort(0).values
        ends = []
        for sign in (-1, 1):
            shifted = bias + sign * Z
            place = torch.special.ndtr(bias + shifted / (1 - acceleration * shifted)) * (draws - 1)
            ends.append(ordered.gather(0, place.round().long().clamp(0, draws - 1).unsqueeze(0))[0])
        found[name] = ends[0], ends[1]
    return found


def conjugate(counts: Tensor, measures: Measures, totals: str, draws: int) -> dict[str, Limits]:
    """Posterior as prob_conf_mat draws it."""
    package = importlib.import_module("prob_conf_mat.stats")
    generator = np.random.default_rng(0)
    matrices = counts.numpy()
    rates = package.dirichlet_sample(generator, matrices + package.dirichlet_prior("half", matrices.shape), draws)
    actual = matrices.sum(-1)
    shares = package.dirichlet_sample(generator, actual + package.dirichlet_prior("half", actual.shape), draws)
    rows = shares if totals == "drawn" else actual[None] / actual.sum(-1)[None, :, None]
    drawn = torch.from_numpy(rates * rows[..., None])
    quantiles = torch.tensor([0.025, 0.975], dtype=torch.float64)
    return {name: tuple(measure(drawn).quantile(quantiles, 0).unbind()) for name, measure in measures.items()}  # type: ignore[misc]


def takahashi(counts: Tensor, measures: Measures, totals: str) -> dict[str, Limits]:
    """Delta method of confidenceinterval, for drawn totals."""
    package = importlib.import_module("confidenceinterval.takahashi_methods")
    found: dict[str, list[list[float]]] = {"macro F1": []}
    size = counts.shape[-1]
    if totals == "drawn":
        for matrix in counts.long():
            truth, preds = np.divmod(np.repeat(np.arange(size * size), matrix.flatten().numpy()), size)
            found["macro F1"].append(list(package.macro_f1_score_takahashi(truth, preds)[1]))
    return {name: tuple(torch.tensor(ends).t().unbind()) for name, ends in found.items() if ends}  # type: ignore[misc]


def wilson(hits: Tensor, totals: Tensor) -> Limits:
    share = hits / totals
    centre = (share + Z**2 / (2 * totals)) / (1 + Z**2 / totals)
    half = Z / (1 + Z**2 / totals) * (share * (1 - share) / totals + Z**2 / (4 * totals**2)).sqrt()
    return centre - half, centre + half


def classical(counts: Tensor, measures: Measures, totals: str) -> dict[str, Limits]:
    """Wilson's intervals; MOVER for sums of recalls."""
    tp, actual, predicted = imbtorch.margins(counts)
    found = {"recall of a class": wilson(tp, actual), "precision of a class": wilson(tp, predicted)}
    low, high = found["recall of a class"]
    share = tp / actual
    down, up = ((share - low) ** 2).sum(-1).sqrt(), ((high - share) ** 2).sum(-1).sqrt()
    mean, size = share.mean(-1), counts.shape[-1]
    found["balanced accuracy"] = mean - down / size, mean + up / size
    if size == 2:
        lower = ((share[:, 1] - low[:, 1]) ** 2 + (high[:, 0] - share[:, 0]) ** 2).sqrt()
        upper = ((high[:, 1] - share[:, 1]) ** 2 + (share[:, 0] - low[:, 0]) ** 2).sqrt()
        difference = share[:, 1] - share[:, 0]
        found["dominance"] = difference - lower, difference + upper
    return found


# --- intervals ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Coverage and mean width of a method for a measure in a case."""

    size: int
    totals: str
    case: str
    measure: str
    method: str
    place: int
    coverage: float
    width: float


def cells(size: int, totals: str, case: Case, methods: Mapping[str, tuple[Method, int]], most: int) -> Iterator[Cell]:
    """Cells of a case; each method sees as many of the test sets as it can take."""
    measures = AVERAGES | OF_CLASSES | (OF_TWO if size == 2 else {})
    counts = test_sets(case.counts, most, totals)
    for name, (method, number) in methods.items():
        for measure, (low, high) in method(counts[:number], measures, totals).items():
            value = measures[measure](case.counts)
            known = ~(low.isnan() | high.isnan())
            held = ((low <= value + 1e-9) & (value - 1e-9 <= high) & known).double().sum(0) / known.sum(0)
            width = torch.where(known, high - low, 0.0).sum(0) / known.sum(0)
            pairs = zip(held.reshape(-1).tolist(), width.reshape(-1).tolist(), strict=True)
            for place, (share, wide) in enumerate(pairs):
                yield Cell(size, totals, case.name, measure, name, place, share, wide)


def cells_of(quick: bool, size: int, totals: str, case: Case) -> list[Cell]:
    """Cells of a case by all methods."""
    number, draws = (40, 200) if quick else (400, 500 if size < 50 else 300)
    methods: dict[str, tuple[Method, int]] = {"imbtorch": (partial(own, draws=draws), number)}
    methods |= peers(20 if quick else 100 if size < 50 else 20, 200 if quick else 500, size)
    return list(cells(size, totals, case, methods, number))


def peers(number: int, draws: int, size: int) -> dict[str, tuple[Method, int]]:
    """Methods that are installed, and how many test sets each is given."""
    found: dict[str, tuple[Method, int]] = {
        "percentile": (partial(percentile, draws=draws), number),
        "Wilson, MOVER": (classical, number),
    }
    if size <= 10:
        found["BCa"] = (partial(bca, draws=draws), number)
    optional: dict[str, tuple[str, Method]] = {
        "prob_conf_mat": ("prob_conf_mat", partial(conjugate, draws=draws)),
        "confidenceinterval": ("confidenceinterval", takahashi),
    }
    for name, (package, method) in optional.items():
        if importlib.util.find_spec(package) is not None:
            found[name] = method, number
    return found


def intervals(quick: bool, run: Run) -> str:
    """Coverage of intervals, for each number of classes and either kind of totals."""
    sizes = (2, 3) if quick else (2, 3, 10, 50)
    jobs = [(quick, size, totals, case) for size in sizes for totals in ("fixed", "drawn") for case in cases(size)]
    every = [cell for part in run("intervals", cells_of, jobs) for cell in part]
    parts = ["## Intervals", overall(every)]
    for size, totals in dict.fromkeys((cell.size, cell.totals) for cell in every):
        chosen = [cell for cell in every if (cell.size, cell.totals) == (size, totals)]
        parts.append(table_of_methods(f"K = {size}, totals {totals}", chosen))
    return "\n\n".join([*parts, low_cells(every)])


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def overall(every: list[Cell]) -> str:
    """All cells of imbtorch against what was aimed at."""
    rows = []
    for measure in dict.fromkeys(cell.measure for cell in every):
        found = np.array([c.coverage for c in every if c.measure == measure and c.method == "imbtorch"])
        rows.append([measure, str(len(found)), *shares(found)])
    found = np.array([c.coverage for c in every if c.method == "imbtorch"])
    columns = ["imbtorch", "cells", "mean", "below .93", "below .85", "below .75", "least"]
    return markdown(columns, [*rows, ["all", str(len(found)), *shares(found)]])


def shares(found: np.ndarray) -> list[str]:
    below = [f"{100 * (found < limit).mean():.1f}%" for limit in (0.93, 0.85, 0.75)]
    return [f"{found.mean():.3f}", *below, f"{found.min():.3f}"]


def table_of_methods(title: str, every: list[Cell]) -> str:
    """Mean and least coverage of each method, and how many times as wide as imbtorch's its median interval is."""
    methods = list(dict.fromkeys(cell.method for cell in every))
    rows = []
    for measure in dict.fromkeys(cell.measure for cell in every):
        row = [measure]
        widths = {(c.case, c.place): c.width for c in every if (c.measure, c.method) == (measure, "imbtorch")}
        for method in methods:
            chosen = [c for c in every if (c.measure, c.method) == (measure, method)]
            if not chosen:
                row.append("")
                continue
            found = np.array([c.coverage for c in chosen])
            wide = float(np.nanmedian([c.width / widths[c.case, c.place] for c in chosen]))  # nan: no limits in any set
            row.append(f"{np.nanmean(found):.3f} / {np.nanmin(found):.2f}" + f", x{wide:.2f}" * (method != "imbtorch"))
        rows.append(row)
    return f"### {title}\n\nMean / least coverage, times imbtorch's width (median)\n\n" + markdown(
        ["measure", *methods], rows
    )


def low_cells(every: list[Cell]) -> str:
    """What imbtorch covers least."""
    worst = sorted((c for c in every if c.method == "imbtorch"), key=lambda cell: cell.coverage)[:20]
    rows = [
        [f"{c.coverage:.3f}", str(c.size), c.totals, c.measure, str(c.place) if "class" in c.measure else "", c.case]
        for c in worst
    ]
    return "### Least covered by imbtorch\n\n" + markdown(["coverage", "K", "totals", "measure", "class", "case"], rows)


# --- comparisons ----------------------------------------------------------------------------------------------------


def joint_counts(recalls: Tensor, totals: Tensor, together: float) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions of two models and targets; with probability ``together`` a sample is as hard for both."""
    target = torch.repeat_interleave(torch.arange(len(totals)), totals)
    size = len(totals)
    first, second = torch.rand(2, len(target))
    second = torch.where(torch.rand(len(target)) < together, first, second)
    wrong = (target + torch.randint(1, size, (len(target),))) % size
    preds = [torch.where(u < rate[target], target, wrong) for u, rate in zip((first, second), recalls, strict=True)]
    return preds[0], preds[1], target


def comparisons(quick: bool, run: Run) -> str:
    """Coverage of differences, and whether probabilities come true."""
    sizes = (2,) if quick else (2, 5, 10)
    rows = run("comparisons", compared, list(product((quick,), sizes, (10, 30, 100), (0.02, 0.1), (0.0, 0.7))))
    columns = ["K", "rare", "spread", "shared", "paired: BA", "IAM", "G-mean", "said", "true", "compare: said", "true"]
    text = (
        "Recalls are 0.8 plus a normal error of each model and class, whose standard deviation is the spread; classes "
        "have 200 samples, the rare one fewer; the shared part of the samples is as hard for both models. Coverage of "
        "the difference by paired_compare; the mean probability that the likelier model is better by balanced "
        "accuracy (said), and how often it is (true). compare gets the counts of the same test set, as if independent."
    )
    return f"## Comparisons\n\n{text}\n\n{markdown(columns, rows)}\n\n{against_baseline(quick, run)}"


def against_baseline(quick: bool, run: Run) -> str:
    """Return the table of what `beats_baseline` says."""
    rows = run("trivial", beaten, list(product((30 if quick else 300,), (10, 30, 100), (0.02, 0.1, 0.3))))
    text = (
        "Against trivial predictions: of 200 samples and the rare ones, both recalls are 0.5 plus a normal error "
        "(balanced accuracy), or the recall of the rare class is 0.5 and false alarms are as many as hits, times the "
        "exponential of a normal error (accuracy). Spread: standard deviation of the error. The mean probability that "
        "beats_baseline gives the likelier side (said), and how often that side is true."
    )
    columns = ["rare", "spread", "balanced accuracy: said", "true", "accuracy: said", "true"]
    return f"{text}\n\n{markdown(columns, rows)}"


def beaten(sets: int, rare: int, spread: float) -> list[str]:
    """Row of the table of trivial predictions."""
    totals, row = torch.tensor([200.0, rare], dtype=torch.float64), [str(rare), f"{spread:g}"]
    errors = spread * torch.randn(2, sets, dtype=torch.float64)
    of_accuracy = 1 - 0.5 * rare / 200 * errors[0].exp().clamp(max=300 / rare)
    cases = {
        "balanced_accuracy": (0.5 + errors.T).clamp(0.02, 0.98),
        "accuracy": torch.stack((of_accuracy, torch.full_like(of_accuracy, 0.5)), -1),
    }
    for name, recalls in cases.items():
        measure = getattr(imbtorch, name)
        rates = torch.stack((recalls, 1 - recalls), -1)
        truth = torch.stack((rates[:, 0], rates[:, 1].flip(-1)), 1) * totals.unsqueeze(-1)
        counts = torch.stack([test_sets(each, 1, "drawn")[0] for each in truth])
        chances = beats_baseline(measure, counts, draws=1000)
        trivial = 0.5 if name == "balanced_accuracy" else (totals.max() / totals.sum()).item()
        right = (chances >= 0.5) == (measure(truth) > trivial)
        row += [f"{torch.maximum(chances, 1 - chances).mean():.2f}", f"{right.double().mean():.2f}"]
    return row


def three_averages(counts: Tensor) -> Tensor:
    """Values ``[..., 3]``."""
    return torch.stack([AVERAGES[name](counts) for name in ("balanced accuracy", "IAM", "G-mean")], -1)


def compared(quick: bool, size: int, rare: int, spread: float, shared: float) -> list[str]:
    """Row of the table of comparisons."""
    sets, draws = (20, 200) if quick else (300, 1000)
    measure, totals = three_averages, torch.full((size,), 200)
    totals[-1] = rare
    held, said, right = torch.zeros(3), torch.zeros(2), torch.zeros(2)
    for _ in range(sets):
        recalls = (0.8 + spread * torch.randn(2, size)).clamp(0.05, 0.995)
        a, b, target = joint_counts(recalls, totals, shared)
        truth = [measure(expected(totals.double(), each.double(), False)) for each in recalls]
        paired = paired_compare(measure, a, b, target, size, draws=draws, totals="fixed")
        counts = [imbtorch.confusion_matrix(each, target, "multiclass", num_classes=size) for each in (a, b)]
        apart = compare(measure, *counts, draws=draws, totals="fixed")
        difference = truth[0] - truth[1]
        held += ((paired.difference.low <= difference) & (difference <= paired.difference.high)).float()
        for place, found in enumerate((paired, apart)):
            chance = float(found.probability[0])
            said[place] += max(chance, 1 - chance)
            right[place] += float((chance >= 0.5) == bool(difference[0] > 0))
    cover = [str(size), str(rare), f"{spread:g}", f"{shared:g}", *(f"{each:.3f}" for each in (held / sets).tolist())]
    return cover + [f"{x / sets:.2f}" for pair in zip(said.tolist(), right.tolist(), strict=True) for x in pair]


# --- a gate ---------------------------------------------------------------------------------------------------------

TESTS = ((300, 300), (540, 60), (580, 20), (1425, 75), (2850, 150), (480, 90, 30))
LONG_TEST = (200, 120, 80, 60, 45, 35, 25, 15, 10, 10)
DISAGREEMENTS = {  # name -> rates beyond the loss in frequent and in rare classes, and shares of the loss in these
    "by the loss alone": ((0, 0), (1, 1)),
    "by .02": ((0.02, 0.02), (1, 1)),
    "by .02, in rare classes by .08": ((0.02, 0.08), (1, 1)),
    "by .02, the loss in rare classes": ((0.02, 0.02), (0, 1)),
    "by .01 in frequent classes, the loss in rare ones": ((0.01, 0), (0, 1)),
    "by the loss, three times as high in rare classes": ((0, 0), (1 / 3, 1)),
    "in rare classes alone": ((0, 0), (0, 1)),
}
LOOKED_AT = ((1900, 100), (1600, 400), (9000, 1000))


def gate(quick: bool, run: Run) -> str:
    """How often a model that is worse by the margin is called not worse, and an equal one."""
    sets = 20 if quick else 300
    jobs = [
        (sets, sizes, "BA", 0.01, name)
        for sizes, name in product((*TESTS, LONG_TEST), DISAGREEMENTS)
        if len(set(sizes)) > 1 or "rare" not in name
    ]
    jobs += [
        (sets, sizes, measure, margin, name)
        for sizes, margin in (((400, 20), 0.03), ((2850, 150), 0.01), ((480, 90, 30), 0.03))
        for measure, name in product(("macro F1", "IAM"), DISAGREEMENTS)
    ]
    rows = run("gate", passed, jobs)
    columns = [
        "samples",
        "measure",
        "margin",
        "models disagree",
        "not worse",
        "undecided",
        "equal",
        "no loss: not worse",
    ]
    text = (
        "The new model is worse than the old one by the margin: in all classes, or in rare ones alone, which have "
        "fewer samples than the mean class. Beyond that loss, the models disagree in the given share of samples. A "
        "gate calls the model not worse if the 90% interval of paired_compare lies above the margin, which should "
        "happen in .05 of the sets, and undecided if the interval holds the margin; both are shares of the sets in "
        "which a prediction differs. Equal: share of the other sets. No loss: share of the sets in which a prediction "
        "differs that are called not worse if the models disagree likewise, but neither is better."
    )
    looked = run("looks", looks, [(sets, *each) for each in product(LOOKED_AT, ("by .02", "by the loss alone"))])
    about = (
        "Looks at a growing sample: the share of sets of which a model that is worse by .01 of balanced accuracy is "
        "called not worse at one of 20 sizes up to the given one, evenly spaced, and at the last."
    )
    shown = ["samples", "models disagree", "one of 20 looks", "last look"]
    return f"## A gate for new models\n\n{text}\n\n{markdown(columns, rows)}\n\n{about}\n\n{markdown(shown, looked)}"


class Disagreement:
    """Two models that disagree in given shares of each class, the new one worse by a margin."""

    def __init__(self, sizes: tuple[int, ...], name: str, measure: str, margin: float) -> None:
        self.samples, self.measure = torch.tensor(sizes), OVER_SEEDS[measure]
        rare = (self.samples < self.samples.double().mean()).long()
        rates, shares = (torch.tensor(each, dtype=torch.float64)[rare] for each in DISAGREEMENTS[name])
        self.won = rates

        def loss(times: float) -> float:
            lost = rates + times * shares
            return float(self.value(lost, rates) - self.value(rates, lost)) - margin

        times = brentq(loss, 0, 0.8 / float(shares.max())) if margin else 0.0
        self.lost = rates + times * shares

    def value(self, won: Tensor, lost: Tensor) -> Tensor:
        """Value of a model that wins some samples and loses others to the other model; .85 of the rest are right."""
        return self.measure(expected(self.samples.double(), 0.85 * (1 - won - lost) + won, False))

    def drawn(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions of the new and of the old model."""
        size = len(self.samples)
        drawn, wrong = torch.rand(len(target)), (target + torch.randint(1, size, (len(target),))) % size
        both = torch.where(torch.rand(len(target)) < 0.85, target, wrong)
        lost = drawn < self.lost[target]
        won = ~lost & (drawn < (self.lost + self.won)[target])
        old = torch.where(lost, target, torch.where(won, wrong, both))
        return torch.where(lost, wrong, torch.where(won, target, both)), old


def not_worse(measure: str, margin: float, new: Tensor, old: Tensor, target: Tensor, size: int) -> tuple[bool, bool]:
    """Whether a gate passes the new model, and whether it is undecided."""
    interval = paired_compare(OVER_SEEDS[measure], new, old, target, size, level=0.9, draws=500).difference
    return bool(interval.low >= -margin), bool(interval.low < -margin <= interval.high)


def passed(sets: int, sizes: tuple[int, ...], measure: str, margin: float, name: str) -> list[str]:
    """Row of the table of gates."""
    target = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    found: dict[float, list[tuple[bool, bool]]] = {margin: [], 0.0: []}
    for worse, verdicts in found.items():
        models = Disagreement(sizes, name, measure, worse)
        for _ in range(sets if bool(models.won.any()) or worse else 0):
            new, old = models.drawn(target)
            if not bool((new == old).all()):
                verdicts.append(not_worse(measure, margin, new, old, target, len(sizes)))
    at_margin = [f"{share:.3f}" for share in np.mean(found[margin], 0)] if found[margin] else ["-", "-"]
    equal = f"{1 - len(found[margin]) / sets:.3f}"
    none = f"{np.mean(found[0.0], 0)[0]:.3f}" if found[0.0] else "-"
    return [", ".join(map(str, sizes)), measure, f"{margin:g}", name, *at_margin, equal, none]


def looks(sets: int, sizes: tuple[int, ...], name: str) -> list[str]:
    """Row of the table of looks."""
    models, found = Disagreement(sizes, name, "BA", 0.01), []
    for _ in range(sets):
        target = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[torch.randperm(sum(sizes))]
        new, old = models.drawn(target)
        ends = [sum(sizes) * number // 20 for number in range(1, 21)]
        some = [each for each in ends if len(target[:each].unique()) == len(sizes)]
        passes = [not_worse("BA", 0.01, new[:end], old[:end], target[:end], len(sizes))[0] for end in some]
        found.append((any(passes), passes[-1]))
    return [", ".join(map(str, sizes)), name, *(f"{share:.3f}" for share in np.mean(found, 0))]


# --- clusters -------------------------------------------------------------------------------------------------------


def beta(mean: float, correlation: float, shape: tuple[int, ...]) -> Tensor:
    """Shares whose variance is the correlation times mean (1 - mean): that of samples within a cluster."""
    if not correlation:
        return torch.full(shape, mean, dtype=torch.float64)
    strength = (1 - correlation) / correlation
    drawn = torch._sample_dirichlet(torch.tensor([mean, 1 - mean], dtype=torch.float64).mul(strength).expand(*shape, 2))
    return drawn[..., 0].contiguous()


class Clustered(NamedTuple):
    """Kind of clusters: ``apart`` where all samples of a cluster are of one class."""

    number: int
    size: int
    correlation: float
    positive: float = 0.2
    tpr: float = 0.7
    tnr: float = 0.9
    apart: bool = False

    def expected(self) -> Tensor:
        """Expected counts of a sample."""
        rates = torch.tensor([[self.tnr, 1 - self.tnr], [1 - self.tpr, self.tpr]], dtype=torch.float64)
        return rates * torch.tensor([[1 - self.positive], [self.positive]], dtype=torch.float64)


def clusters_of(kind: Clustered, sets: int) -> Tensor:
    """Counts ``[sets, number, 2, 2]`` of clusters whose shares of positives, TPR and TNR all vary."""
    shape = (sets, kind.number)
    share = beta(kind.positive, kind.correlation, shape)
    if kind.apart:
        share = (torch.rand(shape) < kind.positive).double()
    positives = torch.binomial(torch.full(shape, float(kind.size), dtype=torch.float64), share)
    tp = torch.binomial(positives, beta(kind.tpr, kind.correlation, shape))
    negatives = kind.size - positives
    tn = torch.binomial(negatives, beta(kind.tnr, kind.correlation, shape))
    return torch.stack((torch.stack((tn, negatives - tn), -1), torch.stack((positives - tp, tp), -1)), -2)


def conditions(counts: Tensor, measure: Callable[[Tensor], Tensor]) -> Limits | None:
    """Percentiles by confidence_intervals, whose conditions are the clusters."""
    if importlib.util.find_spec("confidence_intervals") is None:
        return None
    package = importlib.import_module("confidence_intervals")
    found = []
    for matrices in counts.long():
        flat = matrices.flatten(1)
        cell = torch.cat([torch.repeat_interleave(torch.arange(4), row) for row in flat]).numpy()
        cluster = torch.repeat_interleave(torch.arange(len(flat)), flat.sum(-1)).numpy()

        def value(samples: np.ndarray) -> float:
            return float(measure(torch.from_numpy(np.bincount(samples, minlength=4)).reshape(2, 2)))

        found.append(package.evaluate_with_conf_int(cell, value, None, cluster, num_bootstraps=100, alpha=5)[1])
    low, high = torch.tensor(np.array(found), dtype=torch.float64).t()
    return low, high


KINDS = (
    *(Clustered(number, 50, correlation) for number, correlation in product((20, 50, 200), (0.0, 0.05, 0.2, 0.5))),
    *(Clustered(number, 50, 0.2, tnr=0.925) for number in (40, 100, 300)),  # precision near recall
    Clustered(20, 50, 0.2, 0.1, 0.7, 0.9),
    Clustered(20, 50, 0.5, 0.1, 0.9, 0.9),
    Clustered(20, 30, 0.2, 0.1, 0.95, 0.95),
    Clustered(40, 50, 0.5, 0.05, 0.8, 0.95),
    Clustered(20, 20, 0.2, 0.1, 0.8, 0.9, apart=True),
    Clustered(40, 20, 0.2, 0.1, 0.9, 0.9, apart=True),
    Clustered(50, 10, 0.3, 0.2, 0.7, 0.9, apart=True),
    Clustered(5, 50, 0.2, 0.3, 0.8, 0.8),
)


def clusters(quick: bool, run: Run) -> str:
    """Coverage where samples come in clusters, and where labels are wrong together."""
    sets, some = (50, 1) if quick else (400, 30)
    found = run("clusters", clustered, [(sets, some, kind) for kind in KINDS])
    names = ["balanced accuracy", "G-mean", "IAM", "macro F1"]
    columns = ["clusters", "samples", "correlation", "positive", "TPR", "TNR", *names, "resamples, BA", "samples, BA"]
    text = (
        f"{sets} sets in which both classes came. Coverage of clusters=True; of balanced accuracy by "
        f"confidence_intervals (conditions are the clusters; {some} sets, 100 resamples) and by the posterior of the "
        "sum, which treats samples as independent. Clusters apart contain samples of one class each."
    )
    odd = run("odd clusters", of_odd_clusters, [(sets // 2, kind) for kind in ODD])
    about_odd = (
        f"{sets // 2} sets. Sizes are equal, of a Pareto distribution (its shape is given; 10 to 5,000 samples), or "
        "equal but for a few large ones. Recalls may fall by 0.15 from 10 samples to 100, and again to 1,000. "
        "Positives lie in all clusters or a few. Coverage of recalls and averages by bootstrap, and of the difference "
        f"of balanced accuracy by paired_compare ({sets // 4} sets) from a poorer model whose recalls do not fall. How "
        "often the text names the largest cluster, of all sets and of those that miss the balanced accuracy, and how "
        "often a warning does."
    )
    columns_odd = ["clusters", "samples", "holding positives", "falls", "correlation", "TNR", "TPR"]
    columns_odd += ["covered: TNR", "TPR", "BA", "macro F1", "IAM", "paired: BA", "named", "of misses", "warned"]
    labels = run("labels", labelled, [(2 * sets // 5, *each) for each in product((50, 200), (5, 20), (0.0, 0.3, 0.8))])
    about = (
        "Labels with a tenth of positives, TPR 0.7 and TNR 0.95 on average; the difficulty of a sample is common to "
        f"its labels to the share that is given. Coverage of their mean, {2 * sets // 5} sets."
    )
    ways = ["posterior: BA", "F1", "each sample a cluster: BA", "F1"]
    return "\n\n".join(
        [
            f"## Clusters\n\n{text}\n\n{markdown(columns, found)}",
            f"### Few and unequal clusters\n\n{about_odd}\n\n{markdown(columns_odd, odd)}",
            f"### Labels that are wrong together\n\n{about}",
            markdown(["samples", "labels", "common", *ways], labels),
        ]
    )


class Odd(NamedTuple):
    """Kind of clusters: few with recalls near one, some that hold all positives, or of very different sizes."""

    number: int
    size: int = 50  # 0: of a Pareto distribution
    holding: int = 0  # clusters with positives; 0: all
    falls: bool = False  # whether recalls fall with the size
    correlation: float = 0.2
    tnr: float = 0.9
    tpr: float = 0.7
    shape: float = 1.5  # of the Pareto distribution
    large: int = 0  # clusters 75 times as large as the others

    def drawn(self, random: np.random.Generator, sets: int) -> Tensor:
        """Counts ``[sets, number, 2, 2]``."""
        shape = (sets, self.number)
        sizes = np.where(np.arange(self.number) < self.large, 75 * self.size, self.size) + np.zeros(shape, int)
        if not self.size:
            sizes = np.minimum(10 * (random.pareto(self.shape, shape) + 1), 5000).astype(int)
        share = random.beta(0.3 * self.strength, 0.7 * self.strength, shape)
        if self.holding:
            share = np.where(random.random(shape).argsort(1) < self.holding, 0.4, 0.0)
        positives = random.binomial(sizes, share)
        return self.predicted(random, np.stack((sizes - positives, positives)))

    @property
    def strength(self) -> float:
        """Sum of the parameters of the beta distributions."""
        return (1 - self.correlation) / self.correlation

    def predicted(self, random: np.random.Generator, actual: np.ndarray, falls: bool | None = None) -> Tensor:
        """Counts ``[..., 2, 2]`` of a model, given negatives and positives ``[2, ...]`` of clusters."""
        fall = (
            0.15 * np.clip(np.log10(np.maximum(actual.sum(0), 1) / 10), 0, 2) * (self.falls if falls is None else falls)
        )
        rows = []
        for totals, mean in zip(actual, (self.tnr - fall, self.tpr - fall), strict=True):
            right = random.binomial(totals, random.beta(mean * self.strength, (1 - mean) * self.strength))
            rows.append((right, totals - right))
        (tn, fp), (tp, fn) = rows
        return torch.from_numpy(np.stack((np.stack((tn, fp), -1), np.stack((fn, tp), -1)), -2))


ODD = (
    *(Odd(15, tnr=tnr, correlation=each) for tnr, each in ((0.97, 0.2), (0.97, 0.5), (0.995, 0.2), (0.9, 0.2))),
    Odd(15, 200, tnr=0.97, correlation=0.1),
    Odd(40, tnr=0.97),
    *(Odd(30, holding=holding) for holding in (2, 3, 5)),
    Odd(100, 20, holding=4),
    *(Odd(number, 0, correlation=0.1, tnr=0.95, tpr=0.8) for number in (30, 100)),
    *(Odd(number, 0, falls=True, correlation=0.1, tnr=0.95, tpr=0.8) for number in (30, 100, 300, 1000)),
    *(Odd(100, 0, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, shape=each) for each in (1.2, 2.0, 3.0)),
    *(Odd(number, 4, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, large=2) for number in (30, 60)),
)
MEASURED_ODD: Measures = {
    "recall": partial(imbtorch.recall, average="none"),
    "BA": imbtorch.balanced_accuracy,
    "macro F1": AVERAGES["macro F1"],
    "IAM": imbtorch.imbalance_accuracy,
}


def of_odd_clusters(sets: int, kind: Odd) -> list[str]:
    """Row of the table of few and unequal clusters."""
    random = generator()
    total = sum(kind.drawn(random, 2000).sum((0, 1)) for _ in range(10))
    assert isinstance(total, Tensor)
    counts = kind.drawn(random, sets)
    counts = counts[(counts.sum((1, -1)) > 0).all(-1)]
    each = [bootstrap(MEASURED_ODD, part, 500, clusters=True) for part in counts]
    held = {}
    for name, measure in MEASURED_ODD.items():
        low, high = (torch.stack([getattr(part[name], at) for part in each]) for at in ("low", "high"))
        held[name] = (low <= measure(total)) & (measure(total) <= high)
    named = torch.tensor(["largest" in part["BA"].method for part in each])
    warned = torch.tensor([bool(largest_cluster(part.sum((-1, -2)), HEAVY)) for part in counts])
    sizes = f"{kind.size}" if kind.size else f"Pareto, {kind.shape:g}"
    sizes += f", {kind.large} of {75 * kind.size}" if kind.large else ""
    row = [f"{kind.number}", sizes, f"{kind.holding}" if kind.holding else "all", "yes" if kind.falls else "no"]
    row += [f"{each:g}" for each in (kind.correlation, kind.tnr, kind.tpr)]
    row += [f"{share:.3f}" for found in held.values() for share in found.double().mean(0).reshape(-1).tolist()]
    row += [paired_with_odd(sets // 2, kind, total, random) if kind.large or not kind.size else "-"]
    missed = named[~held["BA"]].double()
    row += [f"{named.double().mean():.2f}", f"{missed.mean():.2f}" if len(missed) else "-"]
    return [*row, f"{warned.double().mean():.2f}"]


def paired_with_odd(sets: int, kind: Odd, total: Tensor, random: np.random.Generator) -> str:
    """Coverage of the difference of balanced accuracy from a model that does not depend on sizes."""
    actual = total.sum(-1).numpy()
    other = expected(torch.from_numpy(actual).double(), torch.tensor([kind.tnr, kind.tpr]).double() - 0.1, False)
    true, held = (imbtorch.balanced_accuracy(total) - imbtorch.balanced_accuracy(other)).item(), []
    poorer = kind._replace(tnr=kind.tnr - 0.1, tpr=kind.tpr - 0.1)
    while len(held) < sets:
        counts = kind.drawn(random, 1)[0]
        if not bool(counts.sum((0, -1)).all()):
            continue
        both = [counts, poorer.predicted(random, counts.sum(-1).numpy().T, falls=False)]
        ids = torch.arange(kind.number).repeat_interleave(counts.sum((-1, -2)))
        target = torch.cat([torch.arange(2).repeat_interleave(each) for each in counts.sum(-1)])
        preds = [torch.cat([torch.arange(2).repeat_interleave(row) for row in each.flatten(0, 1)]) for each in both]
        preds = [shuffled_within(each, 2 * ids + target) for each in preds]
        found = paired_compare("balanced_accuracy", *preds, target, 2, draws=400, cluster=ids)
        held.append(inside(found.difference, true))
    return f"{np.mean(held):.3f}"


def shuffled_within(values: Tensor, groups: Tensor) -> Tensor:
    """Shuffle values within sorted groups."""
    order = torch.randperm(len(values))
    return values[order[groups[order].argsort(stable=True)]]


def clustered(sets: int, some: int, kind: Clustered) -> list[str]:
    """Row of the table of clusters."""
    chosen = {name: AVERAGES[name] for name in ("balanced accuracy", "G-mean", "IAM", "macro F1")}
    counts = clusters_of(kind, sets)
    counts = counts[(counts.sum((1, -1)) > 0).all(-1)]
    by_cluster = [bootstrap(chosen, part, 1000, clusters=True) for part in counts.split(100)]
    row = [f"{kind.number}" + ", apart" * kind.apart, *(f"{each:g}" for each in kind[1:6])]
    for name, measure in chosen.items():
        low, high = (torch.cat([getattr(part[name], end) for part in by_cluster]) for end in ("low", "high"))
        row.append(share_within(low, high, measure(kind.expected())))
    measure = chosen["balanced accuracy"]
    ignored, value = posterior(measure, counts.sum(1), draws=1000), measure(kind.expected())
    slow = kind.number > 20 or kind.size < 50  # two seconds a set, and more for more clusters
    theirs = None if slow else conditions(counts[:some], measure)
    row.append("-" if theirs is None else share_within(*theirs, value))
    return [*row, share_within(ignored.low, ignored.high, value)]


def labels_of(sets: int, samples: int, labels: int, common: float) -> Tensor:
    """Counts ``[sets, samples, labels, 2, 2]``; labels of a sample share a part of what makes them wrong."""
    positive = torch.rand(sets, samples, labels) < 0.1
    own, shared = torch.randn(sets, samples, labels), torch.randn(sets, samples, 1)
    hard = common**0.5 * shared + (1 - common) ** 0.5 * own  # standard normal
    limits = torch.tensor([float(stats.norm.ppf(share)) for share in (0.95, 0.7)])
    right = hard < limits[positive.long()]
    cells = 2 * positive.long() + (positive == right).long()
    return torch.nn.functional.one_hot(cells, 4).double().unflatten(-1, (2, 2))


def labelled(sets: int, samples: int, labels: int, common: float) -> list[str]:
    """Row of the table of labels: coverage of means over labels."""
    measures: Measures = {
        "balanced accuracy": lambda counts: imbtorch.balanced_accuracy(counts).mean(-1),
        "F1": lambda counts: imbtorch.f_score(counts).mean(-1),
    }
    truth = torch.tensor([[0.9 * 0.95, 0.9 * 0.05], [0.1 * 0.3, 0.1 * 0.7]], dtype=torch.float64).expand(labels, 2, 2)
    held: dict[str, list[Limits]] = {}
    for _ in range(0, sets, 20):
        counts = labels_of(20, samples, labels, common)
        ways = {
            "posterior": posterior(measures, counts.sum(1), draws=300, event_dims=3),
            "clusters": bootstrap(measures, counts, 300, event_dims=3, clusters=True),
        }
        for way, name in product(ways, measures):
            held.setdefault(f"{way} {name}", []).append((ways[way][name].low, ways[way][name].high))
    row = [str(samples), str(labels), f"{common:g}"]
    for name, parts in held.items():
        low, high = (torch.cat(ends) for ends in zip(*parts, strict=True))
        row.append(share_within(low, high, measures[name.split(" ", 1)[1]](truth)))
    return row


# --- buckets of clusters --------------------------------------------------------------------------------------------


class Dependent(NamedTuple):
    """Kind of test sets whose samples depend: clusters of several classes, as reports count them with their ids."""

    clusters: int
    size: int = 10  # samples of a cluster, on average
    classes: int = 3
    zipf: bool = False  # whether sizes fall as 1 / rank
    gathered: float = 3.0  # strength of a cluster's class shares; the smaller, the more its samples are of one class
    varied: float = 0.2  # correlation of the hits of a cluster

    def shares(self) -> np.ndarray:
        """Class shares, each half as large as the one before, down to a twentieth of the largest."""
        falling = np.maximum(0.5 ** np.arange(self.classes), 0.05)
        return falling / falling.sum()

    def recalls(self) -> np.ndarray:
        return np.linspace(0.9, 0.6, self.classes)

    def expected(self) -> Tensor:
        """Expected counts of a sample: errors fall on the next class."""
        hits = self.shares() * self.recalls()
        missed = np.roll(np.diag(self.shares() - hits), 1, axis=1)
        return torch.from_numpy(np.diag(hits) + missed)

    def drawn(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Targets, predictions and ids of the samples of one set."""
        rank = 1 / np.arange(1, self.clusters + 1) if self.zipf else np.ones(self.clusters)
        sizes = np.maximum(1, np.round(rank / rank.sum() * self.clusters * self.size)).astype(int)
        ids = np.repeat(random.permutation(self.clusters), sizes)
        of_each = random.gamma(np.tile(self.gathered * self.shares(), (self.clusters, 1))) + 1e-12
        bounds = np.cumsum(of_each / of_each.sum(1, keepdims=True), 1)[ids]
        target = np.minimum((random.random((len(ids), 1)) > bounds).sum(1), self.classes - 1)
        strength = (1 - self.varied) / self.varied
        mean = np.tile(self.recalls(), (self.clusters, 1))
        hit = random.random(len(ids)) < random.beta(strength * mean, strength * (1 - mean))[ids, target]
        return target, np.where(hit, target, (target + 1) % self.classes), ids


DEPENDENT = (
    *(Dependent(number) for number in (5, 10, 20, 60, 200, 2000)),
    *(Dependent(number, zipf=True) for number in (20, 60, 200, 2000)),
    *(Dependent(number, classes=2, varied=0.5) for number in (10, 40, 300)),
    *(Dependent(number, classes=10, gathered=1.0) for number in (30, 200)),
    Dependent(60, classes=10, size=50, gathered=100.0),
    Dependent(300, classes=100, size=20, gathered=20.0),
    Dependent(400, classes=100, size=20, gathered=2.0, varied=0.1),
)


def buckets(quick: bool, run: Run) -> str:
    """Coverage of the intervals of reports with clusters."""
    sets = 10 if quick else 150
    kinds = [kind for kind in DEPENDENT if not quick or kind.classes * kind.clusters < 1000]
    found = run("buckets", of_buckets, [(sets if kind.classes < 100 else sets // 4, kind) for kind in kinds])
    names = ["balanced accuracy", "IAM", "macro F1", "MCC"]
    peers = ["BA: clusters=False", "samples resampled", "clusters resampled"]
    about = ["clusters", "samples", "classes", "sizes", "buckets of the rarest"]
    labels = [(2 * sets // 3, *each) for each in product((50, 300), (3, 14, 50), (0.0, 0.3, 0.8))]
    of_labels = run("report of labels", labels_of_a_report, labels[:4] if quick else labels)
    pixels = run("images", images_of_a_report, [(sets, number) for number in ((5, 30) if quick else (5, 10, 30, 200))])
    shares = run("another population", at_other_shares, [(sets, number) for number in ((30,) if quick else (30, 200))])
    return "\n\n".join(
        [
            "## Reports with clusters",
            f"{sets} sets, a quarter as many of 100 classes. Class shares halve from class to class; class shares and "
            "recalls vary among clusters; in the last row a cluster holds few of the classes. Coverage of "
            "`intervals=True` with `clusters=True` and ids; mean number of buckets that contain the rarest class; "
            "balanced accuracy without clusters, and by percentiles of resampled samples and of resampled clusters, as "
            "peers do.",
            markdown([*about, *names, *peers], found),
            f"Labels as above, by default and with `clusters=False`, {2 * sets // 3} sets; mean over labels, and one "
            "label:",
            markdown(["samples", "labels", "common", "BA", "F1", "BA, independent", "recall of a label"], of_labels),
            "Images of 256 pixels, half of them positive, without ids; the share of wrong pixels of an image is 0.6 "
            "u², with u uniform in [0, 1]:",
            markdown(["images", "IoU", "IoU, independent"], pixels),
            "Clusters of 10 samples, three classes, read at equal class shares (`prevalence=[1, 1, 1]`):",
            markdown(["clusters", "accuracy", "IAM"], shares),
        ]
    )


def generator() -> np.random.Generator:
    """NumPy's source of randomness, from the seed of torch."""
    return np.random.default_rng(int(torch.randint(2**31, ())))


def bounds_of(report: imbtorch.ImbalanceReport, name: str) -> tuple[float, float]:
    values = report.compute()
    return values[f"{name}_low"].item(), values[f"{name}_high"].item()


def of_buckets(sets: int, kind: Dependent) -> list[str]:
    """Row of the table of reports with clusters."""
    names = {"balanced_accuracy": "balanced accuracy", "iam": "IAM", "f1": "macro F1", "mcc": "MCC"}
    truth = {name: AVERAGES[long](kind.expected()).item() for name, long in names.items()}
    held: dict[str, list[bool]] = {name: [] for name in (*names, "independent", "samples", "clusters")}
    rarest: list[int] = []
    random = generator()
    for _ in range(sets):
        target, preds, ids = kind.drawn(random)
        if len(np.unique(target)) < kind.classes:
            continue
        report = imbtorch.ImbalanceReport(
            "multiclass", kind.classes, measures=list(names), per_class=(), intervals=True, clusters=True
        )
        report.update(torch.from_numpy(preds), torch.from_numpy(target), cluster=torch.from_numpy(ids))
        values = report.compute()
        for name in names:
            held[name].append(values[f"{name}_low"].item() <= truth[name] <= values[f"{name}_high"].item())
        of_each = report.counting.counts(report._state, of_buckets=True)
        assert isinstance(of_each, Tensor)
        rarest.append(int((of_each.sum(-1) > 0).sum(0).min()))
        alone = report.interval("balanced_accuracy", clusters=False, draws=500)
        held["independent"].append(bool(alone.low <= truth["balanced_accuracy"] <= alone.high))
        cells = np.zeros((kind.clusters, kind.classes, 2))
        np.add.at(cells, (ids, target, (preds == target).astype(int)), 1)
        for way in ("samples", "clusters") if kind.classes < 100 else ():
            if way == "samples":
                drawn = random.multinomial(len(ids), cells.sum(0).ravel() / len(ids), 300).reshape(300, -1, 2)
            else:
                drawn = cells[random.integers(kind.clusters, size=(300, kind.clusters))].sum(1)
            recall = drawn[..., 1] / np.where(drawn.sum(-1) > 0, drawn.sum(-1), np.nan)
            low, high = np.quantile(np.nanmean(recall, -1), [0.025, 0.975])
            held[way].append(bool(low <= truth["balanced_accuracy"] <= high))
    sizes = "Zipf" if kind.zipf else "equal"
    row = [f"{kind.clusters}", f"{kind.size}", f"{kind.classes}", sizes, f"{np.mean(rarest):.0f}"]
    return [*row, *(f"{np.mean(each):.3f}" if each else "-" for each in held.values())]


def labels_of_a_report(sets: int, samples: int, labels: int, common: float) -> list[str]:
    """Row of the table of labels, as a report counts them by default."""
    truth = {"balanced_accuracy": 0.825, "f1": 2 * 0.07 / (0.1 + 0.07 + 0.045), "recall": 0.7}
    held: dict[str, list[bool]] = {"balanced_accuracy": [], "f1": [], "independent": [], "recall/0": []}
    for _ in range(sets):
        cells = labels_of(1, samples, labels, common)[0].flatten(-2).argmax(-1)
        report = imbtorch.ImbalanceReport(
            "multilabel", num_labels=labels, measures=["balanced_accuracy", "f1"], per_class=["recall"]
        )
        report.update(cells % 2, cells // 2)
        if not bool((cells // 2).any(0).all()):
            continue
        for name in ("balanced_accuracy", "f1", "recall/0"):
            found = report.interval(name, draws=500)
            held[name].append(bool(found.low <= truth[name.split("/")[0]] <= found.high))
        found = report.interval("balanced_accuracy", clusters=False, draws=500)
        held["independent"].append(bool(found.low <= truth["balanced_accuracy"] <= found.high))
    return [
        f"{samples}",
        f"{labels}",
        f"{common:g}",
        *(f"{np.mean(each):.3f}" if each else "-" for each in held.values()),
    ]


def images_of_a_report(sets: int, images: int) -> list[str]:
    """Row of the table of images."""
    held: dict[bool | None, int] = {None: 0, False: 0}
    wrong = 0.6 / 3  # the mean of 0.6 u ** 2
    truth = (1 - wrong) / (1 + wrong)  # each class has half of the pixels and as many misses as false positives
    target = torch.arange(2).repeat_interleave(128).reshape(1, 16, 16).repeat(images, 1, 1)
    for _ in range(sets):
        share = 0.6 * torch.rand(images, 1, 1) ** 2
        report = imbtorch.ImbalanceReport("multiclass", 2, measures=["iou"], per_class=(), clusters=True)
        report.update(torch.where(torch.rand(target.shape) < share, 1 - target, target), target)
        for clusters in held:
            found = report.interval("iou", clusters=clusters, draws=1000)
            held[clusters] += bool(found.low <= truth <= found.high)
    return [f"{images}", *(f"{each / sets:.3f}" for each in held.values())]


def at_other_shares(sets: int, number: int) -> list[str]:
    """Row of the table of another population."""
    kind = Dependent(number)
    there = imbtorch.at_prevalence(kind.expected(), [1, 1, 1])
    truth = {"accuracy": imbtorch.accuracy(there).item(), "iam": imbtorch.imbalance_accuracy(there).item()}
    held, random = dict.fromkeys(truth, 0), generator()
    for _ in range(sets):
        target, preds, ids = kind.drawn(random)
        report = imbtorch.ImbalanceReport(
            "multiclass", 3, measures=list(truth), per_class=(), intervals=True, clusters=True, prevalence=[1, 1, 1]
        )
        report.update(torch.from_numpy(preds), torch.from_numpy(target), cluster=torch.from_numpy(ids))
        for name in truth:
            low, high = bounds_of(report, name)
            held[name] += low <= truth[name] <= high
    return [f"{number}", *(f"{each / sets:.3f}" for each in held.values())]


# --- long tails -----------------------------------------------------------------------------------------------------


def tails(size: int) -> Iterator[Case]:
    """Cases of many classes: totals that fall from 1000 to 3, or half of the classes with five samples each."""
    falling = torch.logspace(3, float(np.log10(3)), size, dtype=torch.float64).round()
    rare = torch.tensor([400.0] * (size - size // 2) + [5.0] * (size // 2), dtype=torch.float64)
    for first, last in ((0.95, 0.4), (0.999, 0.1), (0.4, 0.95), (0.7, 0.7)):
        recalls = torch.linspace(first, last, size, dtype=torch.float64)
        yield Case(f"recall {first:g} to {last:g}", expected(falling, recalls, True))
    for recall in (0.0, 0.05, 0.3, 0.7):
        recalls = torch.where(rare > 5, 0.8, recall).double()
        yield Case(f"half rare, recall {recall:g}", expected(rare, recalls, True))


def long_tails(quick: bool, run: Run) -> str:
    """Coverage of averages over many classes, and where sets lack a class."""
    sets = 20 if quick else 100
    sizes = (3, 10) if quick else (3, 5, 10, 20, 50, 100)
    jobs = [(sets if size < 50 else sets // 2, size, case) for size in sizes for case in tails(size)]
    rows = run("tails", tailed, jobs)
    names = ["balanced accuracy", "IAM", "G-mean", "macro F1"]
    text = (
        f"{sets} sets with fixed totals, half as many of 50 classes and more; errors go to a neighbour and the largest "
        "class. Coverage of averages."
    )
    lacking = run("lacking", lacked, [(10 * sets, size, rare) for size in (3, 10) for rare in (1, 2, 3)])
    about = (
        "Totals are drawn: 300 samples of each class but the rarest, of which some are expected; recalls fall from 0.9 "
        "to 0.5. Sets without the rarest class, and how often their intervals cover the value over all "
        "classes, and over the classes that are there."
    )
    columns = ["K", "expected", "sets", "BA: of all", "of those there", "IAM: of all", "of those there"]
    return "\n\n".join(
        [
            f"## Long tails\n\n{text}\n\n{markdown(['K', 'case', *names], rows)}",
            f"### Sets that lack a class\n\n{about}\n\n{markdown(columns, lacking)}",
        ]
    )


def tailed(sets: int, size: int, case: Case) -> list[str]:
    """Row of the table of long tails."""
    measures = {name: AVERAGES[name] for name in ("balanced accuracy", "IAM", "G-mean", "macro F1")}
    found = own(test_sets(case.counts, sets, "fixed"), measures, "fixed", 500)
    return [str(size), case.name, *(share_within(*found[name], each(case.counts)) for name, each in measures.items())]


def lacked(sets: int, size: int, rare: int) -> list[str]:
    """Row of the table of sets that lack a class."""
    totals = torch.tensor([300.0] * (size - 1) + [rare], dtype=torch.float64)
    truth = expected(totals, torch.linspace(0.9, 0.5, size, dtype=torch.float64), False)
    every = multinomial(totals.sum().expand(sets), totals / totals.sum())
    every = every[every[:, -1] == 0]
    counts = torch.stack([multinomial(every[:, index], row / row.sum()) for index, row in enumerate(truth)], 1)
    there = truth.clone()
    there[-1] = 0
    row = [str(size), str(rare), str(len(counts))]
    for name in ("balanced accuracy", "IAM"):
        found = posterior(AVERAGES[name], counts, draws=500)
        row += [share_within(found.low, found.high, AVERAGES[name](each)) for each in (truth, there)]
    return row


# --- small classes --------------------------------------------------------------------------------------------------

SMALL = (
    *((size, each, 0.7, False) for size, each in ((7, 6), (30, 3), (30, 5), (30, 10), (30, 20), (30, 40), (100, 5))),
    (5, 5, 0.9, False),
    (10, 20, 0.9, False),
    (30, 50, 0.995, False),
    (30, 10, 0.7, True),
    (30, 10, 0.4, True),
)
DIFFERING = (
    (2, 5, 0.9, 0.5, 0.0),
    (3, 5, 0.9, 0.3, 0.0),
    (10, 5, 0.7, 0.7, 0.0),
    (10, 5, 0.9, 0.5, 0.0),
    (10, 5, 0.9, 0.5, 0.7),
    (30, 5, 0.9, 0.5, 0.0),
    (5, 10, 0.95, 0.4, 0.7),
    (10, 20, 0.9, 0.6, 0.0),
)
ONE_BETTER = (
    (20, 100, 0.6, 1),
    (20, 100, 0.7, 1),
    (20, 100, 0.75, 1),
    (20, 100, 0.85, 1),
    (20, 100, 0.8, 20),
    (20, 30, 0.8, 1),
    (50, 100, 0.75, 1),
)


def small_classes(quick: bool, run: Run) -> str:
    """Coverage of values and differences in small classes, and of a choice with one better candidate."""
    sets = 20 if quick else 200
    values_of = run("small", biased, [(sets, totals, *case) for totals in ("fixed", "drawn") for case in SMALL])
    text = (
        f"{sets} sets of classes of equal size and recall; errors go to all classes evenly, or (concentrated) to a "
        "neighbour and the largest class. Bias: mean value less the true one, and as the interval says it "
        "(`Interval.bias`). Width: mean over that of the range that contains the central 95% of the estimates."
    )
    names = ["balanced accuracy", "macro F1", "IAM"]
    columns = ["K", "samples", "recall", "totals", *names, "IAM: width", "bias", "bias said"]
    differences = run("differing", differing, [(sets // 2, *case) for case in DIFFERING])
    about = (
        f"{sets // 2} pairs of models whose recalls are those given in every class, with fixed totals; the shared part "
        "of the samples is as hard for both. compare gets the counts of the same test set, as if independent."
    )
    ways = [f"{way}: {name}" for way in ("paired", "compare") for name in ("BA", "IAM", "G-mean")]
    chosen = run("better", one_better, [(sets // 2, *case) for case in ONE_BETTER])
    choice = (
        f"{sets // 2} choices by balanced accuracy with `select_epoch` among candidates with recall 0.6 of the "
        "positives and 0.9 of nine times as many negatives, except better ones. Coverage of the kept candidate's true "
        "value by the interval, and mean of the uncorrected and the corrected value less the true one."
    )
    return "\n\n".join(
        [
            f"## Small classes\n\n{text}\n\n{markdown(columns, values_of)}",
            f"### Differences\n\n{about}",
            markdown(["K", "samples", "recall of a", "of b", "shared", *ways], differences),
            f"### One better candidate\n\n{choice}",
            markdown(
                ["positives", "candidates", "recall of better", "better", "coverage", "value", "corrected"], chosen
            ),
        ]
    )


def biased(sets: int, totals: str, size: int, each: int, recall: float, concentrated: bool) -> list[str]:
    """Row of the table of small classes."""
    measures = {name: AVERAGES[name] for name in ("balanced accuracy", "macro F1", "IAM")}
    ones = torch.ones(size, dtype=torch.float64)
    truth = expected(each * ones, recall * ones, concentrated)
    counts = test_sets(truth, sets, totals)
    given = "fixed" if totals == "fixed" else "drawn"
    parts = [posterior(measures, some, draws=500, totals=given) for some in counts.split(50)]
    row = [str(size), str(each), f"{recall:g}" + ", concentrated" * concentrated, totals]
    for name, measure in measures.items():
        low, high = (torch.cat([getattr(part[name], end) for part in parts]) for end in ("low", "high"))
        row.append(share_within(low, high, measure(truth)))
    iam, said = measures["IAM"](counts), torch.cat([part["IAM"].bias for part in parts])  # type: ignore[misc]
    off = iam.mean() - measures["IAM"](truth)
    return [*row, relative_width(low, high, iam), f"{float(off):+.3f}", f"{float(said.mean()):+.3f}"]


def differing(sets: int, size: int, each: int, first: float, second: float, shared: float) -> list[str]:
    """Row of the table of models that differ."""
    totals = torch.full((size,), each)
    recalls = torch.tensor([[first], [second]], dtype=torch.float64).expand(2, size)
    values = [three_averages(expected(totals.double(), some, False)) for some in recalls]
    held = torch.zeros(2, 3)
    for _ in range(sets):
        a, b, target = joint_counts(recalls, totals, shared)
        counts = [imbtorch.confusion_matrix(some, target, "multiclass", num_classes=size) for some in (a, b)]
        found = (
            paired_compare(three_averages, a, b, target, size, draws=500, totals="fixed").difference,
            compare(three_averages, *counts, draws=500, totals="fixed").difference,
        )
        truth = values[0] - values[1]
        held += torch.stack([(some.low <= truth) & (truth <= some.high) for some in found]).float()
    shares_held = [f"{share:.3f}" for share in (held / sets).flatten().tolist()]
    return [str(size), str(each), f"{first:g}", f"{second:g}", f"{shared:g}", *shares_held]


def one_better(sets: int, positives: int, candidates: int, recall: float, better: int) -> list[str]:
    """Row of the table of choices."""
    target = (torch.arange(10 * positives) < positives).long()
    recalls = torch.full((candidates, 1), 0.6)
    recalls[:better] = recall
    truths, found = [], []
    for _ in range(sets):
        right = torch.rand(candidates, len(target)) < torch.where(target == 1, recalls, 0.9)
        predictions = torch.where(right, target, 1 - target)
        chosen = select_epoch(predictions, target, imbtorch.balanced_accuracy, draws=1000)
        assert chosen.interval is not None
        truths.append(float(recalls[chosen.epoch] + 0.9) / 2)
        found.append([float(chosen.interval.low), float(chosen.interval.high), chosen.value, chosen.corrected])
    (low, high, value, corrected), truth = torch.tensor(found).t(), torch.tensor(truths)
    off = [f"{float((some - truth).mean()):+.3f}" for some in (value, corrected)]
    return [str(positives), str(candidates), f"{recall:g}", str(better), share_within(low, high, truth), *off]


# --- areas under curves ---------------------------------------------------------------------------------------------


class Apart(NamedTuple):
    """Scores of positives, a share of which lies above or below all others."""

    share: float
    place: float
    others: Any

    def sf(self, x: Any) -> Any:
        """Probability of a score above x."""
        return self.share * (np.asarray(x) < self.place) + (1 - self.share) * self.others.sf(x)

    def isf(self, q: Any) -> Any:
        """Score that is exceeded with probability q."""
        first = self.share if self.place > 0 else 0.0
        inside = (np.asarray(q) - first) / (1 - self.share)
        return np.where((inside < 0) | (inside > 1), self.place, self.others.isf(inside.clip(0, 1)))

    def rvs(self, size: Any, random_state: np.random.Generator) -> Any:
        """Random scores; no two are equal."""
        apart = self.place + random_state.normal(size=size)
        return np.where(random_state.random(size) < self.share, apart, self.others.rvs(size, random_state=random_state))


def scores_of(family: str, area: float) -> tuple[Any, Any]:
    """Distributions of the scores of negatives and positives with this area under the ROC curve.

    In a family such as "normal, 0.1 first" the area is that of the other positives.
    """
    if "," in family:
        base, (share, where) = family.split(",")[0], family.split(",")[1].split()
        negative, positive = scores_of(base, area)
        return negative, Apart(float(share), 60.0 if where == "first" else -60.0, positive)
    apart = float(stats.norm.ppf(area))
    if family == "exponential":
        return stats.expon(), stats.expon(scale=area / (1 - area))
    if family == "heavy tails":
        grid = np.linspace(0, 16, 161)
        tails = [true_areas((stats.t(3), stats.t(3, loc=shift)), 0.5)[0] for shift in grid]
        return stats.t(3), stats.t(3, loc=float(np.interp(area, tails, grid)))
    spread = 2.0 if family == "wide positives" else 1.0
    return stats.norm(), stats.norm(apart * float(np.hypot(1, spread)), spread)


def true_areas(scores: tuple[Any, Any], prevalence: float) -> tuple[float, float]:
    """Area under the ROC curve and average precision, integrated over the positives' quantiles."""
    negative, positive = scores
    recall = (np.arange(20_000) + 0.5) / 20_000
    false = negative.sf(positive.isf(recall))
    return float(1 - false.mean()), float(
        (prevalence * recall / (prevalence * recall + (1 - prevalence) * false)).mean()
    )


def delong(histogram: Tensor) -> Limits:
    """DeLong's interval, from the scores of each class above which a sample of the other lies; no scores are equal."""
    negatives, positives = histogram.double().unbind(-2)
    below = negatives.cumsum(-1) / negatives.sum(-1, keepdim=True)
    above = 1 - positives.cumsum(-1) / positives.sum(-1, keepdim=True)
    area = (positives * below).sum(-1) / positives.sum(-1)
    variance = torch.zeros_like(area)
    for own, beaten in ((positives, below), (negatives, above)):
        total = own.sum(-1)
        variance += (own * (beaten - area.unsqueeze(-1)) ** 2).sum(-1) / (total * (total - 1))
    return area - Z * variance.sqrt(), area + Z * variance.sqrt()


def areas(quick: bool, run: Run) -> str:
    """Coverage and width of intervals of the area under the ROC curve and of average precision."""
    sets, families = 100 if quick else 500, ("normal", "wide positives", "exponential", "heavy tails")
    cases = list(product(families, (0.7, 0.85, 0.95), (20, 50, 200), (0.1,)))
    cases += product(("normal", "wide positives", "heavy tails"), (0.7, 0.96, 0.998), (10,), (0.001,))
    cases += product(("normal", "heavy tails"), (0.6, 0.998), (100,), (0.01,))
    cases += [("normal", 0.998, 200, 0.5), ("exponential", 0.96, 10, 0.2)]
    cases += product(("normal, 0.1 first", "normal, 0.2 first"), (0.8,), (5, 10, 20), (0.01,))
    cases += product(("normal, 0.1 last", "normal, 0.2 last"), (0.99,), (5, 10, 20, 50), (0.1,))
    rows = run("areas", of_scores, [(sets, *case) for case in cases])
    columns = ["scores", "AUC", "positives", "share", "AUC: imbtorch", "named", "width", "DeLong"]
    columns += ["average precision"]
    text = (
        f"{sets} sets each, in which so many samples on average, and this share of them, are positive. True values are "
        "integrals. In the last rows a share of the positives scores above all others (first) or below (last). Named: "
        "of the sets that miss the AUC, the share whose text says that positives may rank last. Width: mean over that "
        "of the range that contains the central 95% of the estimates."
    )
    return f"## Areas under curves\n\n{text}\n\n{markdown([*columns, 'imbtorch', 'width'], rows)}"


def of_scores(sets: int, family: str, area: float, positives: int, prevalence: float) -> list[str]:
    """Row of the table of areas."""
    rng, scores = np.random.default_rng(torch.initial_seed()), scores_of(family, area)
    truth, size = true_areas(scores, prevalence), round(positives / prevalence)
    found, named = [], list[bool]()
    for number in [min(50, sets - start) for start in range(0, sets, 50)]:
        target = rng.random((number, size)) < prevalence
        target[~target.any(1), 0] = True  # e^-10 of sets
        drawn = np.where(target, *(each.rvs((number, size), random_state=rng) for each in scores[::-1]))
        order = np.take_along_axis(target, drawn.argsort(1), 1)
        histogram = torch.from_numpy(np.stack((~order, order), 1)).long()
        intervals_of = area_interval(histogram), average_precision_interval(histogram)
        missed = (truth[0] < intervals_of[0].low) | (truth[0] > intervals_of[0].high)
        named += ["rank last" in area_interval(each).method for each in histogram[missed]]
        ends = [end for each in intervals_of for end in (each.estimate, each.low, each.high)]
        found.append(torch.stack((*ends, *delong(histogram))))
    auc, auc_low, auc_high, ap, ap_low, ap_high, *peer = torch.cat(found, 1).unbind()
    row = [family, f"{area:g}", str(positives), f"{prevalence:g}"]
    row += [share_within(auc_low, auc_high, truth[0]), f"{np.mean(named):.2f}" if named else "-"]
    row += [relative_width(auc_low, auc_high, auc)]
    row += [share_within(*peer, truth[0]), f"{truth[1]:.3g}"]
    return [*row, share_within(ap_low, ap_high, truth[1]), relative_width(ap_low, ap_high, ap)]


def relative_width(low: Tensor, high: Tensor, estimates: Tensor) -> str:
    """Mean width over that of the range that contains the central 95% of the estimates."""
    spread = estimates.quantile(0.975) - estimates.quantile(0.025)
    return f"x{float((high - low).mean() / spread):.2f}"


def share_within(low: Tensor, high: Tensor, value: Tensor) -> str:
    return f"{float(((low <= value) & (value <= high)).double().mean()):.3f}"


# --- thresholds -----------------------------------------------------------------------------------------------------

FEW_POSITIVES = (
    ("normal", 0.85, 3, 60),
    ("wide positives", 0.95, 3, 60),
    ("normal", 0.85, 3, 300),
    ("wide positives", 0.85, 10, 300),
    *(("normal", 0.85, positives, 300) for positives in (10, 20, 50)),
)
NO_GAIN = (("normal", 0.85, 30, 300), ("normal", 0.85, 60, 200), ("normal", 0.96, 30, 300))
CHOSEN_BY: Measures = {
    "f1": partial(imbtorch.f_score, average="binary"),
    "mcc": imbtorch.matthews_corrcoef,
    "iam": imbtorch.imbalance_accuracy,
    "balanced_accuracy": imbtorch.balanced_accuracy,
}


def chosen_thresholds(quick: bool, run: Run) -> str:
    """Coverage and bias of the value at the chosen threshold, and of its gain over .5."""
    sets = 4 if quick else 150
    rows = run("thresholds", of_chosen, [(sets, *case, name) for case in FEW_POSITIVES for name in CHOSEN_BY])
    none = run("no gain", of_chosen, [(sets, *case, name, True) for case in NO_GAIN for name in CHOSEN_BY])
    columns = ["scores", "AUC", "positives", "measure", "true", "logged", "corrected", "covered", "width"]
    columns += ["gain: true", "corrected", "covered", "width"]
    text = (
        f"{sets} sets in which so many samples on average, and one at least, are positive. True: mean of the expected "
        "value at the threshold that the set chose. Logged, corrected: mean of the logged value and of the estimate of "
        '`ThresholdSweep.interval("value")`, less the true one. Gain: the same of `ThresholdSweep.gain`, over a '
        "threshold of 0.5, which is the mean score of negatives."
    )
    about = (
        "The same where nothing can be gained: scores are shifted so that 0.5 is the best threshold of the population."
    )
    return f"## Chosen thresholds\n\n{text}\n\n{markdown(columns, rows)}\n\n{about}\n\n{markdown(columns, none)}"


def of_chosen(
    sets: int, family: str, area: float, positives: int, size: int, name: str, none: bool = False
) -> list[str]:
    """Row of the table of chosen thresholds; with ``none`` a threshold of 0.5 is the best one."""
    rng, scores, share = np.random.default_rng(torch.initial_seed()), scores_of(family, area), positives / size
    measure, best = CHOSEN_BY[name], 0.0

    def counts_at(cuts: Sequence[float]) -> Tensor:
        rates = torch.tensor([[float(each.sf(cut)) for each in scores] for cut in cuts], dtype=torch.float64)
        return torch.stack((1 - rates, rates), -1) * torch.tensor([[1 - share], [share]], dtype=torch.float64)

    if none:
        grid = np.linspace(-3, 6, 1801).tolist()
        best = grid[int(measure(counts_at(grid)).argmax())]
    sweep, found = imbtorch.ThresholdSweep(name, logits=True), list[Tensor]()
    while len(found) < sets:
        target = rng.random(size) < share
        if not target.any():
            continue
        drawn = np.where(target, *(each.rvs(size, random_state=rng) for each in scores[::-1])).clip(-90, 90) - best
        sweep.reset()
        sweep.update(torch.from_numpy(drawn), torch.from_numpy(target).long())
        logged, result = sweep.compute(), sweep.result()
        true, plain = measure(counts_at((float(logged["threshold"].double().logit()) + best, best)))
        held = result._held_out(0, result._histogram, None)  # takes most of the time
        with mock.patch.object(type(result), "_held_out", return_value=held):
            value, gain = result.interval("value"), result.gain()
        true_gain = true - plain
        covered = [each.low - 1e-9 <= what <= each.high + 1e-9 for each, what in ((value, true), (gain, true_gain))]
        row = (true, logged["value"] - true, value.estimate - true, covered[0], value.high - value.low)
        row = (*row, true_gain, gain.estimate - true_gain, covered[1], gain.high - gain.low)
        found.append(torch.tensor([float(each) for each in row]))
    means = torch.stack(found).mean(0).tolist()
    shown = [f"{mean:{form}}" for mean, form in zip(means, (*GIVEN, *GIVEN[:1], *GIVEN[2:]), strict=True)]
    return [family, f"{area:g}", f"{positives} of {size}", name, *shown]


GIVEN = (".3f", "+.3f", "+.3f", ".3f", ".2f")  # forms of the columns of a value: true, biases, coverage, width


# --- promises -------------------------------------------------------------------------------------------------------


class Promised(NamedTuple):
    """A population of scores, and what is promised of it."""

    family: str
    area: float
    negatives: int
    positives: int
    limits: Mapping[str, float]
    sure: float = 0.9
    objective: str = "recall"  # or another measure, or "costs"
    step: float = 0.0  # to which scores are rounded down


PROMISES = (
    Promised("normal", 0.92, 970, 30, {"recall": 0.8}, objective="precision"),
    Promised("normal", 0.5, 970, 30, {"recall": 0.8}, 0.95, "precision"),
    Promised("heavy tails", 0.9, 300, 10, {"recall": 0.6}, 0.8, "precision"),
    Promised("normal", 0.92, 900, 100, {"alerts": 0.05}),
    Promised("normal", 0.92, 900, 100, {"specificity": 0.95}),
    Promised("normal", 0.98, 900, 100, {"precision": 0.5}),
    Promised("normal", 0.98, 900, 100, {"precision": 0.9}),
    Promised("normal", 0.92, 900, 100, {"precision": 0.5}),
    Promised("normal", 0.92, 900, 100, {"precision": 0.5}, step=0.5),
    Promised("normal", 0.76, 900, 100, {"precision": 0.5}),
    Promised("normal", 0.98, 990, 10, {"precision": 0.5}),
    Promised("normal", 0.92, 990, 10, {"precision": 0.5}),
    Promised("heavy tails", 0.95, 1900, 100, {"precision": 0.4}, 0.8),
    Promised("heavy tails", 0.95, 1900, 100, {"precision": 0.55}, 0.8),
    Promised("normal", 0.5, 710, 290, {"precision": 0.3}, 0.95),
    Promised("normal", 0.5, 380, 20, {"precision": 0.051}, 0.8),
    Promised("normal", 0.92, 900, 100, {"npv": 0.98}, objective="specificity"),
    Promised("normal", 0.92, 900, 100, {"accuracy": 0.91}),
    Promised("normal", 0.92, 900, 100, {"f1": 0.5}),
    Promised("normal", 0.85, 600, 400, {"iou": 0.5}),
    Promised("normal, 0.6 first", 0.64, 900, 100, {"f1": 0.66}),
    Promised("normal, 0.6 first", 0.64, 900, 100, {"f1": 0.74}),
    Promised("normal, 0.5 first", 0.8, 4900, 100, {"f1": 0.55}),
    Promised("normal", 0.97, 950, 50, {"f1": 0.66}),
    Promised("normal", 0.5, 710, 290, {"f1": 0.451}, 0.8),
    Promised("normal", 0.92, 900, 100, {"recall": 0.6, "precision": 0.5}, objective="f1"),
    Promised("normal", 0.92, 900, 100, {"recall": 0.63, "precision": 0.59}, objective="f1"),
    Promised("normal", 0.92, 3600, 400, {"recall": 0.6, "precision": 0.57}, 0.8, "costs"),
    Promised("normal", 0.92, 900, 100, {"recall": 0.8, "alerts": 0.2}, objective="f1"),
    Promised("normal", 0.5, 900, 100, {"alerts": 0.05, "precision": 0.101}, 0.8),
)


def promises(quick: bool, run: Run) -> str:
    """How often limits are promised, and how often wrongly."""
    sets = 20 if quick else 400
    rows = run("promises", kept_promises, [(sets, *case) for case in PROMISES])
    columns = ["scores", "AUC", "samples", "limits", "best by", "sure", "promised", "wrong", "recall"]
    text = (
        f"{sets} samples each, of so many negatives and positives on average. Promised: share of the samples for which "
        "`ThresholdSweep.best(..., sure=)` finds a threshold. Wrong: share of all samples for which it finds one where "
        "a limit does not hold, which should be 1 - sure or less. Recall: mean true recall at the thresholds found."
    )
    return f"## Promises\n\n{text}\n\n{markdown(columns, rows)}"


ELSEWHERE: tuple[tuple[Any, ...], ...] = tuple(  # limits, and the measure that prefers thresholds just within them
    ("normal", 0.86, negatives, positives, {name: floor}, 0.9, best, 0.0, share)
    for negatives, positives, share, name, best, floors in (
        (450, 50, 0.01, "precision", "recall", (0.02, 0.05)),
        (1600, 400, 0.01, "precision", "recall", (0.05, 0.1)),
        (270, 30, 0.5, "precision", "recall", (0.6, 0.8)),
        (250, 250, 0.1, "npv", "specificity", (0.95, 0.97, 0.98)),
        (450, 50, 0.01, "recall", "specificity", (0.5, 0.8)),
    )
    for floor in floors
)


def promises_elsewhere(quick: bool, run: Run) -> str:
    """How often limits are promised for another prevalence, and how often wrongly."""
    sets = 20 if quick else 200
    rows = run("promises elsewhere", kept_promises, [(sets, *case) for case in ELSEWHERE])
    rows = [[*row[:3], f"{case[-1]:g}", *row[3:]] for row, case in zip(rows, ELSEWHERE, strict=True)]
    columns = ["scores", "AUC", "samples", "prevalence", "limits", "best by", "sure", "promised", "wrong", "recall"]
    text = f"{sets} samples each, as above; limits are those in a population with another share of positives."
    return f"## Promises at another prevalence\n\n{text}\n\n{markdown(columns, rows)}"


def kept_promises(
    sets: int,
    family: str,
    area: float,
    negatives: int,
    positives: int,
    limits: Mapping[str, float],
    sure: float,
    objective: str,
    step: float,
    prevalence: float | None = None,
) -> list[str]:
    """Row of the table of promises."""
    rng, scores, size = np.random.default_rng(torch.initial_seed()), scores_of(family, area), negatives + positives
    floors, alerts = {name: bound for name, bound in limits.items() if name != "alerts"}, limits.get("alerts")
    costs = [[0, 1], [negatives / positives, 0]] if objective == "costs" else None
    there = (negatives, positives) if prevalence is None else (1 - prevalence, prevalence)
    shares = None if prevalence is None else there
    sweep = imbtorch.ThresholdSweep("f1" if costs else objective, logits=True, prevalence=shares)
    wrong, recalls = 0, []
    for _ in range(sets):
        sweep.reset()
        target = rng.random(size) < positives / size
        drawn = np.where(target, *(each.rvs(size, random_state=rng) for each in scores[::-1])).clip(-90, 90)
        drawn = np.floor(drawn / step) * step if step else drawn
        sweep.update(torch.from_numpy(drawn), torch.from_numpy(target).long())
        sweep.compute()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of thresholds that flag nobody or everybody
                point = sweep.best(floors, alerts=alerts, costs=costs, sure=sure)
        except ValueError:  # no threshold keeps the limits, or none can be promised
            continue
        cut = float(torch.tensor(point.threshold, dtype=torch.float64).logit())
        cut = (math.floor(cut / step) + 1) * step if step else cut
        rates = [float(each.sf(cut)) for each in scores]  # of either class that is predicted positive
        found = [[total * (1 - rate), total * rate] for total, rate in zip(there, rates, strict=True)]
        wrong += not all(holds(name, bound, torch.tensor(found)) for name, bound in limits.items())
        recalls.append(rates[1])
    row = [family + f", steps of {step:g}" * bool(step), f"{area:g}", f"{negatives}, {positives}"]
    row += [", ".join(f"{name} {'<=' if name == 'alerts' else '>='} {bound:g}" for name, bound in limits.items())]
    row += [objective, f"{sure:g}", f"{len(recalls) / sets:.3f}", f"{wrong / sets:.3f}"]
    return [*row, f"{np.mean(recalls):.2f}" if recalls else "-"]


def holds(name: str, bound: float, counts: Tensor) -> bool:
    """Whether a limit holds in expected counts ``[2, 2]``."""
    if name == "alerts":
        return bool(counts[:, 1].sum() / counts.sum() <= bound)
    per_class = {"f1": imbtorch.f_score, "iou": imbtorch.jaccard, "npv": imbtorch.negative_predictive_value}
    per_class |= {name: getattr(imbtorch, name) for name in ("recall", "precision", "specificity")}
    if name == "accuracy":
        return bool(imbtorch.accuracy(counts) >= bound)
    return bool(per_class[name](counts, average="binary") >= bound)


# --- sweeps with clusters -------------------------------------------------------------------------------------------

LOGITS = torch.linspace(-8, 6, 199, dtype=torch.float64)
SWEPT = {"f1": partial(imbtorch.f_score, average="binary"), "balanced_accuracy": imbtorch.balanced_accuracy}


@dataclass(frozen=True)
class Scored:
    """Patients of 20 samples with calibrated logits of two normal classes 1.5 standard deviations apart.

    Attributes:
        patients: number of patients.
        alone: whether all samples of a patient are of one class; otherwise shares of positives vary.
        prevalence: share of positives.
        within: share of the variance of scores of a class that the patients explain.
    """

    patients: int
    alone: bool
    prevalence: float
    within: float

    def drawn(self, random: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, targets and ids."""
        share = np.full((self.patients, 1), self.prevalence)
        if not self.alone:
            share = random.beta(2 * share, 2 - 2 * share)
        target = random.random((self.patients, 1 if self.alone else 20)) < share
        target = np.broadcast_to(target, (self.patients, 20))
        common, own = random.normal(size=(self.patients, 1)), random.normal(size=(self.patients, 20))
        score = self.within**0.5 * common + (1 - self.within) ** 0.5 * own + 1.5 * target
        logits = 1.5 * (score - 0.75) + math.log(self.prevalence / (1 - self.prevalence))
        flat = (torch.from_numpy(each.copy()).flatten() for each in (logits, target.astype(int)))
        return (*flat, torch.arange(self.patients).repeat_interleave(20))  # type: ignore[return-value]

    def expected(self, threshold: float) -> Tensor:
        """Shares of the cells in the population at a threshold."""
        odds = math.log(threshold / (1 - threshold)) - math.log(self.prevalence / (1 - self.prevalence))
        below = stats.norm.cdf(odds / 1.5 + 0.75 - np.array([0, 1.5]))
        rows = torch.tensor(np.stack((below, 1 - below), 1))
        return rows * torch.tensor([[1 - self.prevalence], [self.prevalence]])


def sweeps_of_clusters(quick: bool, run: Run) -> str:
    """Coverage of what sweeps say of thresholds and areas, with and without clusters."""
    sets = 20 if quick else 200
    kinds = [Scored(number, alone, 0.3 if alone else 0.1, 0.5) for number in (10, 30, 100) for alone in (True, False)]
    kinds += [Scored(number, True, 0.1, 0.5) for number in (10, 30)]
    kinds += [Scored(30, True, 0.3, within) for within in (0.0, 0.9)]
    rows = run("sweeps of clusters", swept_patients, [(sets, kind) for kind in (kinds[:2] if quick else kinds)])
    about = ["patients", "classes of a patient", "positives", "within", "AUC", "AP"]
    names = [f"{name}: {what}" for name in ("F1", "BA") for what in ("value", "gain")]
    text = (
        f"Coverage of `ThresholdSweep(clusters=True)` on {sets} sets each, except sets without a class. Patients have "
        "20 samples. True values are those of the population, at the chosen threshold. Within: share of the variance "
        "of a class's scores that patients explain. The last column is without clusters."
    )
    columns = [*about, *names, "AUC, independent"]
    return f"## Sweeps with clusters\n\n{text}\n\n{markdown(columns, rows)}"


def swept_patients(sets: int, kind: Scored) -> list[str]:
    """Row of the table of sweeps with clusters."""
    areas = true_areas((stats.norm(), stats.norm(1.5)), kind.prevalence)
    held: dict[str, list[bool]] = {}
    random = generator()

    def note(name: str, interval: Interval, value: float) -> None:
        held.setdefault(name, []).append(bool((interval.low <= value) & (value <= interval.high)))

    for _ in range(sets):
        logits, target, ids = kind.drawn(random)
        if not 0 < int(target.sum()) < len(target):
            continue
        independent = imbtorch.ThresholdSweep("f1", LOGITS.sigmoid(), logits=True)
        independent.update(logits, target)
        note("auc, independent", independent.interval("auc"), areas[0])
        for name, measure in SWEPT.items():
            sweep = imbtorch.ThresholdSweep(name, LOGITS.sigmoid(), logits=True, clusters=True)
            sweep.update(logits, target, cluster=ids)
            threshold = float(sweep.compute()["threshold"])
            value, plain = (float(measure(kind.expected(each))) for each in (threshold, 0.5))
            note(f"value of {name}", sweep.interval("value"), value)
            note(f"gain of {name}", sweep.gain(), value - plain)
        note("auc", sweep.interval("auc"), areas[0])
        note("ap", sweep.interval("average_precision"), areas[1])
    order = ["auc", "ap", "value of f1", "gain of f1", "value of balanced_accuracy", "gain of balanced_accuracy"]
    order += ["auc, independent"]
    about = [f"{kind.patients}", "one" if kind.alone else "both", f"{kind.prevalence:g}", f"{kind.within:g}"]
    return [*about, *(f"{np.mean(held[name]):.3f}" for name in order)]


# --- seeds ----------------------------------------------------------------------------------------------------------

TRAINED = {  # test samples and recall of each class
    "20 rare": ((180, 20), (0.93, 0.7)),
    "20 rare, clean": ((180, 20), (0.97, 0.97)),
    "long tail": (
        (200, 140, 100, 70, 50, 35, 25, 20, 20, 20),
        (0.92, 0.9, 0.88, 0.85, 0.8, 0.78, 0.75, 0.72, 0.7, 0.65),
    ),
}
OVER_SEEDS: Measures = {
    "BA": imbtorch.balanced_accuracy,
    "macro F1": partial(imbtorch.f_score, average="macro"),
    "IAM": imbtorch.imbalance_accuracy,
}


def seeds(quick: bool, run: Run) -> str:
    """Coverage of means over seeds, and of differences of two models that are equally good."""
    sets = 4 if quick else 150
    rows = run("seeds", over_seeds, [(sets, *case) for case in product(TRAINED, (3, 5, 10), (0.0, 0.01, 0.03))])
    columns = ["classes", "seeds", "deviation"]
    columns += [f"{name}: {what}" for name in OVER_SEEDS for what in ("mean", "shared", "own")]
    text = (
        f"{sets} sets. A model errs where a normal number of the sample (variance 1), common to its seeds, and one of "
        "sample and seed (variance 1) fall below a bound. The recalls of a seed deviate together by a normal number of "
        "this standard deviation. Mean: how often the interval of `over_runs` covers the expected value for new seeds "
        "and new samples. Shared and own: how often that of the difference of two models of equal expectation covers "
        "0, if both have the same number of each sample, and if each has its own."
    )
    about = (
        f"{sets} sets. Recalls of the rare classes (all classes of ten, and .95 of the frequent one of two) differ "
        "between both models. A model errs where a normal number is too high; the shared part of its variance belongs "
        "to the sample and is common to all seeds of both models. How often the interval of the difference covers the "
        "true one, and its mean width."
    )
    unequal = run("unequal seeds", over_unequal_seeds, [(sets, *case) for case in UNEQUAL_SEEDS])
    measured = [f"{name}: {what}" for name in OVER_SEEDS for what in ("difference", "width")]
    clustered_ = run("seeds of clusters", over_clusters, [(2 * sets // 3, *case) for case in CLUSTERED_SEEDS])
    about_clusters = (
        f"{2 * sets // 3} sets of clusters of ten samples, five seeds; a quarter of the samples is positive. A cluster "
        "has samples of both classes, or of one. The shares of the variance are those of the cluster and class, of "
        "these and the model, and of the sample; the rest belongs to sample and seed."
    )
    names = ["mean", "difference", "mean without ids"]
    return "\n\n".join(
        [
            f"## Means over seeds\n\n{text}\n\n{markdown(columns, rows)}",
            f"### Unequal models over seeds\n\n{about}",
            markdown(["classes", "rare", "recall of a", "of b", "shared", "seeds", "deviation", *measured], unequal),
            f"### Seeds and clusters\n\n{about_clusters}",
            markdown(
                ["clusters", "classes of one", "a", "b", "parts", *(f"{m}: {n}" for m in OVER_SEEDS for n in names)],
                clustered_,
            ),
        ]
    )


def over_seeds(sets: int, name: str, number: int, deviation: float) -> list[str]:
    """Row of the table of seeds."""
    samples, recalls = (torch.tensor(each, dtype=torch.float64) for each in TRAINED[name])
    size, grid = len(samples), torch.tensor(stats.norm.ppf((np.arange(400) + 0.5) / 400)) * deviation

    def rates(shift: Tensor) -> Tensor:
        return (recalls + shift.unsqueeze(-1)).clamp(0.01, 0.995)

    wrong = (1 - rates(grid)).unsqueeze(-1) / (size - 1) * (1 - torch.eye(size))
    expected = (torch.diag_embed(rates(grid)) + wrong) * samples.unsqueeze(-1)
    true = {each: measure(expected).mean().item() for each, measure in OVER_SEEDS.items()}
    covered = dict.fromkeys(product(OVER_SEEDS, ("mean", "shared", "own")), 0)
    for index in range(2 * sets):
        own = index >= sets
        target = torch.multinomial(samples / samples.sum(), int(samples.sum()), True)
        hard = torch.randn(1 + own, len(target)).double().expand(2, -1)
        runs = {}
        for model, of_samples in zip("ab", hard, strict=True):
            bounds = torch.special.ndtri(rates(torch.randn(number).double() * deviation)) * math.sqrt(2)
            right = bounds[:, target] + of_samples + torch.randn(number, len(target)) > 0
            other = (target + torch.randint(1, size, right.shape)) % size
            runs[model] = list(torch.where(right, target, other))
        for each, measure in OVER_SEEDS.items():
            found = over_runs(runs, target, measure, num_classes=size, draws=400)
            mean, difference = found.models["a"], found.differences["a", "b"]
            covered[each, "mean"] += bool(mean.low <= true[each] <= mean.high) * (not own)
            covered[each, "own" if own else "shared"] += bool(difference.low <= 0 <= difference.high)
    return [name, str(number), f"{deviation:g}", *(f"{each / sets:.3f}" for each in covered.values())]


RARE_SEEDS = ((8, 0.97, 0.87), (15, 0.97, 0.87), (15, 0.8, 0.6), (40, 0.995, 0.95))
UNEQUAL_SEEDS = (  # classes, samples of the rarest, recalls of both models, shared part, seeds, deviation
    *((2, *case, shared, number, 0.0) for case in RARE_SEEDS for shared in (0.9, 0.5) for number in (3, 10)),
    *((2, 15, 0.97, 0.87, shared, 5, 0.03) for shared in (0.9, 0.5)),
    *((10, 8, 0.95, 0.8, shared, number, 0.0) for shared in (0.9, 0.5) for number in (3, 10)),
    *((10, 8, 0.9, 0.8, shared, 5, 0.03) for shared in (0.9, 0.5)),
)


def over_unequal_seeds(
    sets: int, size: int, rare: int, first: float, second: float, shared: float, number: int, deviation: float
) -> list[str]:
    """Row of the table of unequal models."""
    samples = torch.tensor([250 - rare, rare])
    if size > 2:
        samples = torch.logspace(2, math.log10(rare), size).round().long()
    recalls = torch.tensor([[first], [second]], dtype=torch.float64).repeat(1, size)
    if size == 2:
        recalls[:, 0] = 0.95
    grid = torch.tensor(stats.norm.ppf((np.arange(400) + 0.5) / 400)) * deviation
    counts = [
        torch.stack([expected(samples.double(), (each + shift).clamp(0.01, 0.995), False) for shift in grid])
        for each in recalls
    ]
    of_each = {name: [measure(each).mean().item() for each in counts] for name, measure in OVER_SEEDS.items()}
    true = {name: values[0] - values[1] for name, values in of_each.items()}
    target = torch.arange(size).repeat_interleave(samples)
    found = []
    for _ in range(sets):
        common, runs = math.sqrt(shared) * torch.randn(len(target)), {}
        for name, each in zip("ab", recalls, strict=True):
            rates = (each + deviation * torch.randn(number, 1).double()).clamp(0.01, 0.995)
            drawn = common + math.sqrt(1 - shared) * torch.randn(number, len(target))
            other = (target + torch.randint(1, size, drawn.shape)) % size
            runs[name] = list(torch.where(drawn < torch.special.ndtri(rates)[:, target], target, other))
        row: list[float] = []
        for name, measure in OVER_SEEDS.items():
            interval = over_runs(runs, target, measure, num_classes=size, draws=400).differences["a", "b"]
            row += [inside(interval, true[name]), (interval.high - interval.low).item()]
        found.append(row)
    about = [str(size), str(rare), f"{first:g}", f"{second:g}", f"{shared:g}", str(number), f"{deviation:g}"]
    return [*about, *(f"{each:.3f}" for each in np.mean(found, 0))]


CLUSTERED_SEEDS = tuple(  # clusters, of one class, recalls of both models, parts of the variance
    (number, apart, *case)
    for number in (15, 40, 100)
    for case in (
        (((0.9, 0.7), (0.9, 0.7)), (0.7, 0.1, 0.1)),
        (((0.95, 0.95), (0.95, 0.85)), (0.7, 0.1, 0.1)),
        (((0.95, 0.95), (0.95, 0.85)), (0.2, 0.1, 0.4)),
    )
    for apart in (False, True)
)


def over_clusters(
    sets: int, number: int, apart: bool, recalls: tuple[tuple[float, ...], ...], parts: tuple[float, ...]
) -> list[str]:
    """Row of the table of seeds and clusters."""
    shares = torch.tensor([0.75, 0.25])
    expected_of = [expected(shares.double(), torch.tensor(each).double(), False) for each in recalls]
    values = [{name: measure(each) for name, measure in OVER_SEEDS.items()} for each in expected_of]
    ids, found = torch.arange(number).repeat_interleave(10), []
    while len(found) < sets:
        share = (torch.rand(number) < 0.25).float() if apart else beta(0.25, 0.2, (number,)).float()
        target = (torch.rand(len(ids)) < share[ids]).long()
        if not 0 < int(target.sum()) < len(target):
            continue
        common = math.sqrt(parts[0]) * torch.randn(number, 2)[ids, target] + math.sqrt(parts[2]) * torch.randn(len(ids))
        runs = {}
        for name, each in zip("ab", recalls, strict=True):
            own = math.sqrt(parts[1]) * torch.randn(number, 2)[ids, target]
            drawn = common + own + math.sqrt(1 - sum(parts)) * torch.randn(5, len(ids))
            runs[name] = list(torch.where(drawn < torch.special.ndtri(torch.tensor(each))[target], target, 1 - target))
        row = []
        for name, measure in OVER_SEEDS.items():
            compared = partial(over_runs, runs, target, measure, num_classes=2, draws=300)
            with_ids, alone, true = compared(cluster=ids), compared(), [each[name].item() for each in values]
            row += [
                inside(with_ids.models["a"], true[0]),
                inside(with_ids.differences["a", "b"], true[0] - true[1]),
                inside(alone.models["a"], true[0]),
            ]
        found.append(row)
    about = [str(number), "one" if apart else "both", *(", ".join(f"{x:g}" for x in each) for each in recalls)]
    return [*about, " ".join(f"{100 * each:g}" for each in parts), *(f"{each:.3f}" for each in np.mean(found, 0))]


# --- scores of two models -------------------------------------------------------------------------------------------


def paired_scores(quick: bool, run: Run) -> str:
    """Coverage of differences of AUC and average precision of two models."""
    sets, sizes = 4 if quick else 200, ((5, 200), (20, 200), (20, 1000), (100, 1000))
    shifts = ((1.0, 1.0), (1.5, 1.0), (2.5, 1.0), (3.0, 2.5), (4.0, 4.0))
    rows = run("paired scores", of_two_models, [(sets, *size, *shift) for size, shift in product(sizes, shifts)])
    columns = ["positives", "negatives", "AUC of a", "AUC of b", "AUC covered", "width", "AP covered", "width"]
    text = (
        f"{sets} sets. Scores of both models are normal with variance 1, of which .8 are common to both; positives are "
        "shifted. Covered: how often the interval of `paired_compare` covers the true difference."
    )
    return f"## Scores of two models\n\n{text}\n\n{markdown(columns, rows)}"


def of_two_models(sets: int, positives: int, negatives: int, *shifts: float) -> list[str]:
    """Row of the table of scores of two models."""
    target = (torch.arange(positives + negatives) < positives).long()
    cuts, share = np.linspace(-8, 8 + max(shifts), 20_001), positives / (positives + negatives)
    areas_, precisions = [stats.norm.cdf(shift / math.sqrt(2)) for shift in shifts], []
    for shift in shifts:
        hit, alarm = stats.norm.sf(cuts - shift), stats.norm.sf(cuts)
        precision = share * hit / np.maximum(share * hit + (1 - share) * alarm, 1e-300)
        precisions.append(-np.trapezoid(precision, hit))
    row = [str(positives), str(negatives), *(f"{each:.3f}" for each in areas_)]
    for name, (one, other) in (("auc", areas_), ("average_precision", precisions)):
        covered, width = 0, 0.0
        for _ in range(sets):
            common = math.sqrt(0.8) * torch.randn(len(target))
            a, b = (shift * target + common + math.sqrt(0.2) * torch.randn(len(target)) for shift in shifts)
            found = paired_compare(name, a, b, target, draws=400).difference
            covered += bool(found.low <= one - other <= found.high)
            width += (found.high - found.low).item() / sets
        row += [f"{covered / sets:.3f}", f"{width:.3f}"]
    return row


# --- clusters where predictions are kept ----------------------------------------------------------------------------


class Alike(NamedTuple):
    """Kind of test sets of two classes whose samples resemble each other, and of the models that predict them.

    The difficulty of a sample is normal; ``parts`` are the shares of its variance that belong to the cluster and class,
    to these and the model, to the sample, and to the sample and the model. The first two add up to 1 where samples of a
    class are equal within a cluster.
    """

    clusters: int
    size: int  # samples of a cluster, on average
    parts: tuple[float, float, float, float]
    apart: bool = False  # whether all samples of a cluster are of one class
    zipf: bool = False  # whether sizes fall as 1 / rank
    positive: float = 0.25

    def drawn(self, recalls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions ``[M, N]`` of models with recalls ``[M, 2]``, targets, and ids of clusters."""
        rank = 1 / torch.arange(1, self.clusters + 1) if self.zipf else torch.ones(self.clusters)
        sizes = (rank / rank.sum() * self.clusters * self.size).round().clamp(min=1).long()
        ids, models = torch.arange(self.clusters).repeat_interleave(sizes), len(recalls)
        share = beta(self.positive, 0.2, (self.clusters,)).float()
        if self.apart:
            share = (torch.rand(self.clusters) < self.positive).float()
        target = (torch.rand(len(ids)) < share[ids]).long()
        parts = (
            torch.randn(self.clusters, 2)[ids, target],
            torch.randn(models, self.clusters, 2)[:, ids, target],
            torch.randn(len(ids)),
            torch.randn(models, len(ids)),
        )
        difficulty = sum(math.sqrt(share) * part for share, part in zip(self.parts, parts, strict=True))
        right = torch.special.ndtr(difficulty) < recalls[:, target]
        return torch.where(right, target, 1 - target), target, ids

    def truth(self, recalls: Tensor) -> Tensor:
        """Values ``[M, 3]`` of the models."""
        return three_measures(expected(torch.tensor([1 - self.positive, self.positive]), recalls, False).double())

    def row(self) -> list[str]:
        """First cells of a row."""
        names = ["one class" if self.apart else "both", "Zipf" if self.zipf else "equal"]
        return [f"{self.clusters}", f"{self.size}", " ".join(f"{100 * each:g}" for each in self.parts), *names]


def three_measures(counts: Tensor) -> Tensor:
    """Values ``[..., 3]``."""
    return torch.stack([AVERAGES[name](counts) for name in ("balanced accuracy", "macro F1", "IAM")], -1)


EQUAL, OWN, SAME = (0.5, 0.5, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
CORRELATED, SINGLE = (0.2, 0.1, 0.4, 0.3), (0.0, 0.0, 0.5, 0.5)
SIZES = ((10, 20), (20, 20), (50, 20), (100, 10))
UNEQUAL = [Alike(30, 20, parts, zipf=True) for parts in (EQUAL, CORRELATED)]
OF_EPOCHS = [Alike(*size, *rest) for size, *rest in product(SIZES, (EQUAL, OWN, CORRELATED), (False, True))] + UNEQUAL
OF_PAIRS = [
    Alike(*size, *rest) for size, *rest in product(SIZES, (EQUAL, SAME, CORRELATED, SINGLE), (False, True))
] + UNEQUAL
MODELS = {
    "equal": torch.tensor([[0.85, 0.65], [0.85, 0.65]]),
    "different": torch.tensor([[0.9, 0.6], [0.8, 0.8]]),
    "high": torch.tensor([[0.98, 0.9], [0.97, 0.95]]),
}


def kept(quick: bool, run: Run) -> str:
    """Coverage of select_epoch and paired_compare with clusters."""
    sets, pairs = (4, 4) if quick else (100, 150)
    epochs = [(sets, kind, "stay") for kind in OF_EPOCHS] + [(sets, kind, "learn") for kind in OF_EPOCHS[6:12]]
    of_epochs = run("epochs of clusters", chosen_of_clusters, epochs[:4] if quick else epochs)
    jobs = [(pairs, kind, name) for kind, name in product(OF_PAIRS, MODELS)]
    of_pairs = run("pairs of clusters", compared_of_clusters, jobs[:6] if quick else jobs)
    about = ["clusters", "samples", "parts", "classes", "sizes"]
    names = ["BA", "macro F1", "IAM"]
    return "\n\n".join(
        [
            "## Clusters where predictions are kept",
            "A quarter of the samples is positive; a cluster holds samples of both classes, in shares that vary, or of "
            "one. Parts: percentages of the variance of a sample's difficulty that belong to its cluster and class, to "
            "these and the model, to the sample, and to the sample and the model; without the last two the samples of "
            "a class in a cluster are equal. Sets without one of the classes are left out.",
            f"`select_epoch(cluster=ids)`, {sets} sets, 30 epochs, 40 divisions, 400 draws. Recalls stay at .85 and "
            ".6, or learn from .9 and .3 to .85 and .7. Coverage of the interval, mean excess of the value and of the "
            "corrected value of balanced accuracy, how often the best epoch is among the indistinguishable ones and "
            "the shortfall holds, and the coverage without ids.",
            markdown(
                [*about, "recalls", *names, "BA: value", "corrected", "best among", "shortfall", "BA without ids"],
                of_epochs,
            ),
            f"`paired_compare(cluster=ids)`, {pairs} sets, 600 draws. Recalls of both models are .85 and .65 (equal), "
            ".9 and .6 against .8 and .8 (different), or .98 and .9 against .97 and .95 (high). Coverage of the "
            "difference, its mean width over 3.92 standard deviations of the difference (balanced accuracy), mean "
            "probability of the likelier model (said) and how often it is better (true), and the coverage without ids.",
            markdown([*about, "models", *names, "BA: width", "said", "true", "BA without ids"], of_pairs),
        ]
    )


def chosen_of_clusters(sets: int, kind: Alike, shape: str) -> list[str]:
    """Row of the table of choices."""
    time = torch.linspace(0, 1, 30).unsqueeze(-1)
    ends = ([0.85, 0.6], [0.85, 0.6]) if shape == "stay" else ([0.9, 0.3], [0.85, 0.7])
    recalls = torch.tensor(ends[0]) + time * (torch.tensor(ends[1]) - torch.tensor(ends[0]))
    truth, found = kind.truth(recalls), []
    for _ in range(sets):
        preds, target, ids = kind.drawn(recalls)
        if len(target.unique()) < 2:
            continue
        measures = {str(at): (lambda counts, at=at: three_measures(counts)[..., at]) for at in range(3)}
        choose = partial(select_epoch, preds, target, num_classes=2, repeats=40, draws=400)
        choices = list(choose(measures, cluster=ids).values())
        alone = choose(measures["0"])
        true = [truth[choice.epoch, at].item() for at, choice in enumerate(choices)]
        row = [inside(choice.interval, value) for choice, value in zip(choices, true, strict=True)]
        worst = min(truth[each, 0].item() for each in choices[0].indistinguishable)
        best = truth[:, 0].max().item()
        row += [choices[0].value - true[0], (choices[0].corrected or 0.0) - true[0]]
        row += [int(truth[:, 0].argmax()) in choices[0].indistinguishable, best - worst <= choices[0].shortfall + 1e-9]
        found.append([*row, inside(alone.interval, truth[alone.epoch, 0].item())])
    return [*kind.row(), shape, *(f"{each:.3f}" for each in np.mean(found, 0))]


def inside(interval: Interval | None, value: float) -> bool:
    assert interval is not None
    return interval.low.item() <= value <= interval.high.item()


def compared_of_clusters(sets: int, kind: Alike, models: str) -> list[str]:
    """Row of the table of pairs."""
    true = kind.truth(MODELS[models]).diff(dim=0)[0].neg()
    found, differences = [], []
    for _ in range(sets):
        (first, second), target, ids = kind.drawn(MODELS[models])
        if len(target.unique()) < 2:
            continue
        compared = partial(paired_compare, three_measures, first, second, target, 2, draws=600, higher_is_better=True)
        with_ids, alone = compared(cluster=ids), compared()
        held = [(each.difference.low <= true) & (true <= each.difference.high) for each in (with_ids, alone)]
        width = (with_ids.difference.high - with_ids.difference.low)[0].item()
        chance = with_ids.probability[0].item()
        right = float((chance >= 0.5) == bool(true[0] > 0)) if true[0] else math.nan
        found.append([*held[0].tolist(), width, max(chance, 1 - chance), right, held[1][0].item()])
        differences.append(with_ids.difference.estimate[0].item())
    means, spread = np.mean(np.array(found, float), 0), 3.92 * np.std(differences)
    row = [*means[:3], means[3] / spread if spread else math.nan, *means[4:]]
    return [*kind.row(), models, *(("-" if math.isnan(each) else f"{each:.3f}") for each in row)]


# --- running --------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Calls a function with each of several tuples of arguments, each from a seed of its own, in many processes."""

    pool: ProcessPoolExecutor
    seed: int

    def __call__(self, title: str, function: Callable[..., Any], jobs: list[tuple[Any, ...]]) -> list[Any]:
        """Results in the order of the jobs; they do not depend on the number of processes."""
        seeds = np.random.SeedSequence([self.seed, *title.encode()]).generate_state(len(jobs)).tolist()
        done = self.pool.map(partial(seeded, function), seeds, jobs)
        return list(tqdm(done, title, len(jobs)))


def seeded(function: Callable[..., Any], seed: int, job: tuple[Any, ...]) -> Any:
    warnings.filterwarnings("ignore", ".* the largest of", UserWarning)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the peers draw from it
    return function(*job)


SECTIONS: dict[str, Callable[[bool, Run], str]] = {
    "intervals": intervals,
    "comparisons": comparisons,
    "gate": gate,
    "clusters": clusters,
    "buckets": buckets,
    "tails": long_tails,
    "small": small_classes,
    "areas": areas,
    "thresholds": chosen_thresholds,
    "promises": promises,
    "elsewhere": promises_elsewhere,
    "swept": sweeps_of_clusters,
    "seeds": seeds,
    "scores": paired_scores,
    "kept": kept,
}


def main() -> None:
    """Run the sections that were asked for, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=section.__doc__)
    parser.add_argument("--quick", action="store_true", help="few test sets and draws; prints instead of writing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    given = parser.parse_args()
    for name in ("prob_conf_mat", "confidenceinterval", "confidence_intervals"):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and left out")
    chosen = [name for name in SECTIONS if getattr(given, name)] or list(SECTIONS)
    parts = [
        "# Coverage of 95% intervals\n\nWritten by `python examples/coverage.py`, whose docstring describes the "
        "simulations. BA is balanced accuracy, G-mean the geometric mean of the recalls, MCC the Matthews correlation "
        "coefficient, IAM the imbalance accuracy metric."
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        run = Run(pool, given.seed)
        parts += [SECTIONS[name](given.quick, run) for name in chosen]
    spent = sum(os.times()[:4]) / 60  # of this process and of those that it has waited for
    parts.append(f"torch {torch.__version__}, seed {given.seed}, {spent:.1f} minutes of processor time.")
    text = "\n\n".join(parts) + "\n"
    if given.quick:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
