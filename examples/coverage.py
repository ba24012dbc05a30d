"""Simulates how often 95% intervals cover the true value; ``coverage.md`` says what came out.

    pip install -e ".[examples]" tqdm
    python examples/coverage.py looks images         # simulate two tables: simulated/looks.csv and images.csv
    python examples/coverage.py gate --sets 20       # print rows of 20 sets a cell instead
    python examples/coverage.py --page               # write the tables of coverage.md and figures of methods.md

A table is described by the function that it decorates. A row is a cell: its settings, the number of sets, the seed, and
what the sets gave. ``covered`` begins the columns of intervals of imbtorch; BA is balanced accuracy. Results do not
depend on ``--jobs``.

Test sets are drawn from classes whose recalls and confusions are known, with class totals fixed or drawn at random; the
true value is that of the expected counts. Errors go to all other classes evenly, or (concentrated) to a neighbour and
to the largest class. Peers are the percentile bootstrap, Wilson's interval for recall and precision, and MOVER from
Wilson's intervals.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from tqdm import tqdm

import imbtorch
from imbtorch.counting.clusters import BUCKETS
from imbtorch.deciding.calibration import Calibration
from imbtorch.deciding.curves import area_interval, average_precision_interval
from imbtorch.intervals.buckets import resample_buckets
from imbtorch.intervals.intervals import HEAVY, largest_cluster
from imbtorch.statistics import (
    Interval,
    beats_baseline,
    bootstrap,
    compare,
    over_images,
    over_runs,
    paired_compare,
    posterior,
    select_epoch,
)

HERE = Path(__file__).parent
sys.path.append(str(HERE))

import coverage_alerts as alerts_  # noqa: E402
import coverage_epochs as epochs_  # noqa: E402
import coverage_gains as gains_  # noqa: E402
import coverage_weights as weights_  # noqa: E402
import coverage_widths as widths_  # noqa: E402

Array = Any  # of NumPy
Measures = dict[str, Callable[[Tensor], Tensor]]
Limits = tuple[Tensor, Tensor]
Method = Callable[[Tensor, Measures, str], dict[str, Limits]]

Z = float(stats.norm.ppf(0.975))
AVERAGES: Measures = {"balanced accuracy": imbtorch.balanced_accuracy, "IAM": imbtorch.imbalance_accuracy, "CBA":
    imbtorch.class_balance_accuracy, "G-mean": imbtorch.geometric_mean, "macro F1": partial(imbtorch.f_score,
    average="macro"), "MCC": imbtorch.matthews_corrcoef}  # fmt: skip
OF_CLASSES: Measures = {"recall of a class": partial(imbtorch.recall, average="none"),
    "precision of a class": partial(imbtorch.precision, average="none"), "F1 of a class":
    partial(imbtorch.f_score, average="none")}  # fmt: skip
OVER_SEEDS: Measures = {"BA": imbtorch.balanced_accuracy, "macro F1": partial(imbtorch.f_score, average="macro"),
    "IAM": imbtorch.imbalance_accuracy}  # fmt: skip
OF_TWO: Measures = {"IBA": imbtorch.index_balanced_accuracy, "OP": imbtorch.optimized_precision, "dominance":
    imbtorch.dominance}  # fmt: skip


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def means(rows: Sequence[Sequence[Any]]) -> list[float]:
    """Means of columns."""
    return np.mean(np.array(rows, float), 0).tolist()


def within(interval: Interval, value: Tensor) -> list[bool]:
    """Whether an interval of several values covers each."""
    return ((interval.low <= value) & (value <= interval.high)).tolist()


def inside(interval: Interval | None, value: float) -> bool:
    assert interval is not None
    return bool(interval.low <= value <= interval.high)


class Seen:
    """Intervals of a cell, by name, with the true values."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[float, float, float]]] = {}

    def add(self, names: Sequence[str], interval: Interval, values: Tensor | float) -> None:
        """Add an interval of one value, or of several with a name each; bounds and estimate relative to the truth."""
        apart = [(each - values).flatten().tolist() for each in (interval.low, interval.high, interval.estimate)]
        for name, *row in zip(names, *apart, strict=True):
            self.rows.setdefault(name, []).append(tuple(row))

    def summary(self) -> tuple[list[float], list[float]]:
        """Coverage of each name, and mean width over the range that contains the central 95% of the estimates."""
        found = [widths_.summary(*torch.tensor(rows, dtype=torch.float64).T) for rows in self.rows.values()]
        return [row[0] for row in found], [row[2] if math.isfinite(row[2]) else math.nan for row in found]


def share_within(low: Tensor, high: Tensor, value: Tensor | float) -> float:
    return float(((low <= value) & (value <= high)).double().mean())


# --- tables ---------------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Simulation of a CSV file: ``columns`` names the settings of a cell, and after ``|`` what the function returns."""

    columns: str
    function: Callable[..., Any]  # of the number of sets and the settings; returns a row, or a list of rows
    cells: list[tuple[Any, ...]]
    sets: int
    seed: int
    takes_seed: bool  # whether the function draws from generators of its own

    def jobs(self, sets: int, seed: int) -> list[tuple[Any, ...]]:
        """Arguments of the function for each cell."""
        return [(sets, *cell, *([seed] * self.takes_seed)) for cell in self.cells]


TABLES: dict[str, Table] = {}


def table(
    name: str,
    columns: str,
    cells: Iterable[tuple[Any, ...]],
    sets: int,
    seed: int = 0,
    takes_seed: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the function that simulates a cell of a table."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        TABLES[name] = Table(columns, function, list(cells), sets, seed, takes_seed)
        return function

    return decorated


def one(kinds: Iterable[Any]) -> list[tuple[Any]]:
    """Cells of one setting."""
    return [(kind,) for kind in kinds]


def columns_of(form: str) -> str:
    """Columns of each of three measures."""
    return " | " + ", ".join(form.replace("{}", name) for name in OVER_SEEDS)


def text(value: Any) -> str:
    """Cell of a CSV file: three digits of a number, nothing for nan."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {'<=' if name == 'alerts' else '>='} {bound:g}" for name, bound in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else f"{value:.3g}"
    return " ".join(map(text, value)) if isinstance(value, tuple) else str(getattr(value, "name", value))


FIXED, RARE = ("fixed", "drawn"), (10, 30, 100)  # totals of classes; samples of a rare class
THREE, WIDE = "covered BA, covered macro F1, covered IAM", "width BA, width macro F1, width IAM"
LABELS = "samples, labels, common"
KIND = "clusters, samples, parts, one-class, Zipf sizes, positive"
LIMITS = "scores, AUC, negatives, positives, limits, sure, best by, step"
THRESHOLD = (
    "scores, AUC, positives, samples, measure, no gain | true, logged bias, corrected bias, covered value, width, "
)
THRESHOLD += "true gain, gain bias, covered gain, gain width"

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


@table("intervals", "", [(k, totals, case) for k in (2, 3, 10, 50) for totals in FIXED for case in cases(k)], 400)
def cells_of(sets: int, size: int, totals: str, case: Case) -> list[Cell]:
    """Cells of a case by all methods; peers get a quarter of the test sets, of 50 classes a twentieth."""
    some = -(-sets // (4 if size < 50 else 20))
    methods: dict[str, tuple[Method, int]] = {
        "imbtorch": (partial(own, draws=500 if size < 50 else 300), sets),
        "percentile": (partial(percentile, draws=500), some),
        "Wilson, MOVER": (classical, some),
    }
    return list(cells(size, totals, case, methods, sets))


def summarised(every: Sequence[Cell]) -> dict[str, list[list[Any]]]:
    """Rows of three tables: by method (width: median over imbtorch's), all cells of imbtorch, the least covered."""
    found: dict[str, list[list[Any]]] = {"intervals": [], "intervals_overall": [], "intervals_least": []}
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in every:
        groups.setdefault((cell.size, cell.totals, cell.measure, cell.method), []).append(cell)
    for (*where, method), chosen in groups.items():
        widths = {(c.case, c.place): c.width for c in groups[(*where, "imbtorch")]}
        covered = np.array([c.coverage for c in chosen])
        wide = float(np.nanmedian([c.width / widths[c.case, c.place] for c in chosen]))  # nan: no limits in any set
        found["intervals"].append([*where, method, np.nanmean(covered), np.nanmin(covered), wide])
    own_cells = sorted((c for c in every if c.method == "imbtorch"), key=lambda cell: cell.coverage)
    for measure in (*dict.fromkeys(cell.measure for cell in every), "all"):
        covered = np.array([c.coverage for c in own_cells if measure in (c.measure, "all")])
        below = [(covered < limit).mean() for limit in (0.93, 0.85, 0.75)]
        found["intervals_overall"].append([measure, len(covered), covered.mean(), *below, covered.min()])
    for c in own_cells[:20]:
        place = c.place if "class" in c.measure else ""
        found["intervals_least"].append([c.size, c.totals, c.measure, place, c.case, c.coverage])
    return found


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


@table("trivial", "rare, spread | BA said, BA true, accuracy said, accuracy true", product(RARE, (0.02, 0.1, 0.3)), 300)
def beaten(sets: int, rare: int, spread: float) -> list[float]:
    """Mean probability by `beats_baseline` of the likelier side (said), and how often that side is true.

    Of 200 samples and the rare ones, both recalls are .5 plus a normal error with this spread (balanced accuracy), or
    the recall of the rare class is .5 and false alarms are as many as hits, times the exponential of a normal error.
    """
    totals, row = torch.tensor([200.0, rare], dtype=torch.float64), []
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
        row += [float(torch.maximum(chances, 1 - chances).mean()), float(right.double().mean())]
    return row


def three_averages(counts: Tensor) -> Tensor:
    """Values ``[..., 3]``."""
    return torch.stack([AVERAGES[name](counts) for name in ("balanced accuracy", "IAM", "G-mean")], -1)


@table("comparisons",
    "K, rare, spread, shared | covered BA, covered IAM, covered G-mean, said, true, compare said, compare true",
    product((2, 5, 10), RARE, (0.02, 0.1), (0.0, 0.7)), 300)  # fmt: skip
def compared(sets: int, size: int, rare: int, spread: float, shared: float) -> list[float]:
    """Coverage of differences by `paired_compare`, and what both functions say of the likelier model.

    Recalls are .8 plus a normal error of each model and class with this spread; classes have 200 samples, one is rare;
    the shared part of the samples is as hard for both models. `compare` takes the counts as independent.
    """
    measure, totals = three_averages, torch.full((size,), 200)
    totals[-1] = rare
    rows = []
    for _ in range(sets):
        recalls = (0.8 + spread * torch.randn(2, size)).clamp(0.05, 0.995)
        a, b, target = joint_counts(recalls, totals, shared)
        truth = [measure(expected(totals.double(), each.double(), False)) for each in recalls]
        paired = paired_compare(measure, a, b, target, size, draws=1000, totals="fixed")
        counts = [imbtorch.confusion_matrix(each, target, "multiclass", num_classes=size) for each in (a, b)]
        difference, row = truth[0] - truth[1], list[float]()
        for found in (paired, compare(measure, *counts, draws=1000, totals="fixed")):
            chance = float(found.probability[0])
            row += [max(chance, 1 - chance), float((chance >= 0.5) == bool(difference[0] > 0))]
        rows.append([*within(paired.difference, difference), *row])
    return means(rows)


@table("named_comparisons", "K, rare, spread, shared | covered BA, width BA, said, true", product((2, 5, 10), RARE,
    (0.02, 0.1), (0.0, 0.7)), 400)  # fmt: skip
def compared_by_name(sets: int, size: int, rare: int, spread: float, shared: float) -> list[float]:
    """Coverage of `paired_compare("balanced_accuracy", ...)`, whose method is not that of a function, and what it says.

    Models and samples are those of `compared`.
    """
    totals, seen, found = torch.full((size,), 200), Seen(), []
    totals[-1] = rare
    for _ in range(sets):
        recalls = (0.8 + spread * torch.randn(2, size)).clamp(0.05, 0.995)
        a, b, target = joint_counts(recalls, totals, shared)
        paired = paired_compare("balanced_accuracy", a, b, target, size)
        true, chance = float(recalls[0].mean() - recalls[1].mean()), float(paired.probability)
        seen.add(("BA",), paired.difference, true)
        found.append([max(chance, 1 - chance), float((chance >= 0.5) == (true > 0))])
    covered, wide = seen.summary()
    return [*covered, *wide, *means(found)]


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


GATES = [*((sizes, "BA", 0.01, name) for sizes, name in product((*TESTS, LONG_TEST), DISAGREEMENTS) if len(set(sizes))
    > 1 or "rare" not in name), *((sizes, measure, margin, name) for sizes, margin in (((400, 20), 0.03), ((2850,
    150), 0.01), ((480, 90, 30), 0.03)) for measure, name in product(("macro F1", "IAM"), DISAGREEMENTS))]  # fmt: skip


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


@table("gate", "samples, measure, margin, disagreement | not worse, undecided, equal, no loss not worse", GATES, 300)
def passed(sets: int, sizes: tuple[int, ...], measure: str, margin: float, name: str) -> list[float]:
    """Share of verdicts of a gate, the 90% interval of `paired_compare`, on a model that is worse by the margin.

    Not worse (should be .05) and undecided are shares of the sets in which a prediction differs; equal is the share of
    the others. No loss: share called not worse if the models disagree likewise, but neither is better.
    """
    target = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    found: dict[float, list[tuple[bool, bool]]] = {margin: [], 0.0: []}
    for worse, verdicts in found.items():
        models = Disagreement(sizes, name, measure, worse)
        for _ in range(sets if bool(models.won.any()) or worse else 0):
            new, old = models.drawn(target)
            if not bool((new == old).all()):
                verdicts.append(not_worse(measure, margin, new, old, target, len(sizes)))
    at_margin, equal_models = (means(each) if each else [math.nan] * 2 for each in found.values())
    return [*at_margin, 1 - len(found[margin]) / sets, equal_models[0]]


PLANNED = [((9000, 1000), "BA"), *product(((1900, 100), (1600, 400)), OVER_SEEDS)]


@table("looks", "samples, measure | one of 20 looks, planned, last look, equal planned, equal last", PLANNED, 1000)
def looks(sets: int, sizes: tuple[int, ...], measure: str) -> list[float]:
    """Share of sets that call a model not worse at one of 20 growing sizes: each look alone, by a plan, at the last.

    The model is worse by .01, which at most .05 should pass, and disagrees by .02 besides; so do equal models.
    """
    found = []
    for margin in (0.01, 0.0):
        models, passes = Disagreement(sizes, "by .02", measure, margin), []
        compared = partial(paired_compare, OVER_SEEDS[measure], num_classes=len(sizes), level=0.9, draws=1000)
        for _ in range(sets):
            target = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[torch.randperm(sum(sizes))]
            new, old = models.drawn(target)
            alone, planned = [], []
            for look in range(1, 21):
                some = slice(sum(sizes) * look // 20)
                if len(target[some].unique()) < len(sizes):
                    continue
                each = new[some], old[some], target[some]
                alone.append(bool(compared(*each).difference.low >= -0.01))
                planned.append(alone[-1] and bool(compared(*each, looks=20, look=look).difference.low >= -0.01))
            passes.append((any(alone), any(planned), alone[-1]))
        found += means(passes)[0 if margin else 1 :]
    return found


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


class Odd(NamedTuple):
    """Kind of clusters: few with recalls near one, some that hold all positives, or of very different sizes."""

    number: int
    size: int = 50
    holding: int = 0  # clusters with positives; 0: all
    falls: bool = False  # whether recalls fall by .15 from 10 samples to 100, and again to 1,000
    correlation: float = 0.2
    tnr: float = 0.9
    tpr: float = 0.7
    shape: float = 0.0  # of a Pareto distribution of sizes, 10 to 5,000
    large: int = 0  # clusters 75 times as large as the others
    lognormal: float = 0.0  # deviation of the logarithm of sizes, whose median is 30, at most 5,000

    def drawn(self, random: np.random.Generator, sets: int) -> Tensor:
        """Counts ``[sets, number, 2, 2]``."""
        shape = (sets, self.number)
        sizes = np.where(np.arange(self.number) < self.large, 75 * self.size, self.size) + np.zeros(shape, int)
        if self.shape:
            sizes = np.minimum(10 * (random.pareto(self.shape, shape) + 1), 5000).astype(int)
        if self.lognormal:
            sizes = np.clip(30 * random.lognormal(0, self.lognormal, shape), 1, 5000).astype(int)
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


ODD = (*(Odd(15, tnr=tnr, correlation=each) for tnr, each in ((0.97, 0.2), (0.97, 0.5), (0.995, 0.2), (0.9, 0.2))),
    Odd(15, 200, tnr=0.97, correlation=0.1), Odd(40, tnr=0.97), *(Odd(30, holding=holding) for holding in (2, 3, 5)),
    Odd(100, 20, holding=4), *(Odd(number, 0, correlation=0.1, tnr=0.95, tpr=0.8, shape=1.5) for number in (30, 100)),
    *(Odd(number, 0, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, shape=1.5) for number in (30, 100, 300, 1000)),
    *(Odd(100, 0, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, shape=each) for each in (1.2, 2.0, 3.0)),
    *(Odd(number, 4, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, large=2) for number in (30, 60)),
    *(Odd(number, 0, falls=True, correlation=0.1, tnr=0.95, tpr=0.8, lognormal=each) for number, each in product(
    (30, 100, 300), (1.0, 1.5))))  # fmt: skip
MEASURED_ODD: Measures = {"recall": partial(imbtorch.recall, average="none"), "BA": imbtorch.balanced_accuracy,
    "macro F1": AVERAGES["macro F1"], "IAM": imbtorch.imbalance_accuracy}  # fmt: skip


@table("odd_clusters", f"clusters, samples, holding positives, falls, correlation, TNR, TPR, Pareto, "
    f"large, lognormal | covered TNR, covered TPR, {THREE}, covered difference, named, named of misses, warned, "
    f"width TNR, width TPR, {WIDE}, width difference", one(ODD), 200)  # fmt: skip
def of_odd_clusters(sets: int, kind: Odd) -> list[float]:
    """Coverage by `bootstrap`, and of the difference of balanced accuracy from a poorer model whose recalls never fall.

    Named: how often the text names the largest cluster, of all sets and of those that miss the balanced accuracy;
    warned: how often a warning does.
    """
    random = generator()
    total = sum(kind.drawn(random, 2000).sum((0, 1)) for _ in range(10))
    assert isinstance(total, Tensor)
    counts = kind.drawn(random, sets)
    counts = counts[(counts.sum((1, -1)) > 0).all(-1)]
    each = [bootstrap(MEASURED_ODD, part, 500, clusters=True) for part in counts]
    seen, held = Seen(), []
    for part in each:
        for name, measure in MEASURED_ODD.items():
            seen.add(("TNR", "TPR") if name == "recall" else (name,), part[name], measure(total))
        held.append(inside(part["BA"], MEASURED_ODD["BA"](total).item()))
    named = torch.tensor(["largest" in part["BA"].method for part in each])
    warned = torch.tensor([bool(largest_cluster(part.sum((-1, -2)), HEAVY)) for part in counts])
    paired = paired_with_odd(-(-sets // 2), kind, total, random) if kind.falls or kind.shape else (math.nan, math.nan)
    (covered, wide), missed = seen.summary(), ~torch.tensor(held)
    told = [mean(each.double().tolist()) for each in (named, named[missed], warned)]
    return [*covered, paired[0], *told, *wide, paired[1]]


def paired_with_odd(sets: int, kind: Odd, total: Tensor, random: np.random.Generator) -> tuple[float, float]:
    """Coverage and width of the difference of balanced accuracy from a model that does not depend on sizes."""
    actual = total.sum(-1).numpy()
    other = expected(torch.from_numpy(actual).double(), torch.tensor([kind.tnr, kind.tpr]).double() - 0.1, False)
    true, seen = (imbtorch.balanced_accuracy(total) - imbtorch.balanced_accuracy(other)).item(), Seen()
    poorer = kind._replace(tnr=kind.tnr - 0.1, tpr=kind.tpr - 0.1)
    while len(seen.rows.get("", ())) < sets:
        counts = kind.drawn(random, 1)[0]
        if not bool(counts.sum((0, -1)).all()):
            continue
        both = [counts, poorer.predicted(random, counts.sum(-1).numpy().T, falls=False)]
        ids = torch.arange(kind.number).repeat_interleave(counts.sum((-1, -2)))
        target = torch.cat([torch.arange(2).repeat_interleave(each) for each in counts.sum(-1)])
        preds = [torch.cat([torch.arange(2).repeat_interleave(row) for row in each.flatten(0, 1)]) for each in both]
        preds = [shuffled_within(each, 2 * ids + target) for each in preds]
        found = paired_compare("balanced_accuracy", *preds, target, 2, draws=400, cluster=ids)
        seen.add(("",), found.difference, true)
    (covered,), (wide,) = seen.summary()
    return covered, wide


def shuffled_within(values: Tensor, groups: Tensor) -> Tensor:
    """Shuffle values within sorted groups."""
    order = torch.randperm(len(values))
    return values[order[groups[order].argsort(stable=True)]]


@table("clusters", "clusters, samples, correlation, positive, TPR, TNR, one-class | covered BA, "
    "covered G-mean, covered IAM, covered macro F1, independent BA", one(KINDS), 400)  # fmt: skip
def clustered(sets: int, kind: Clustered) -> list[float]:
    """Coverage of ``clusters=True``, and of the posterior of the sum, which ignores clusters."""
    chosen = {name: AVERAGES[name] for name in ("balanced accuracy", "G-mean", "IAM", "macro F1")}
    counts = clusters_of(kind, sets)
    counts = counts[(counts.sum((1, -1)) > 0).all(-1)]
    by_cluster = [bootstrap(chosen, part, 1000, clusters=True) for part in counts.split(100)]
    row = []
    for name, measure in chosen.items():
        low, high = (torch.cat([getattr(part[name], end) for part in by_cluster]) for end in ("low", "high"))
        row.append(share_within(low, high, measure(kind.expected())))
    measure = chosen["balanced accuracy"]
    ignored, value = posterior(measure, counts.sum(1), draws=1000), measure(kind.expected())
    return [*row, share_within(ignored.low, ignored.high, value)]


class Few(NamedTuple):
    """Kind of clusters whose alarms have few errors or none: right and wrong ones of a cluster resemble each other."""

    alarms: int
    size: int  # alarms of a cluster
    correlation: float  # 0 independent, 1 equal
    errors: float  # expected number

    def drawn(self, random: np.random.Generator, sets: int) -> Array:
        """Wrong alarms ``[sets, clusters]``."""
        share, shape = self.errors / self.alarms, (sets, self.alarms // self.size)
        if self.correlation == 1:
            return self.size * random.binomial(1, share, shape)
        strength = (1 - self.correlation) / self.correlation if self.correlation else math.inf
        chance = random.beta(share * strength, (1 - share) * strength, shape) if self.correlation else share
        return random.binomial(self.size, chance, shape)


FEW = [Few(*each) for each in product((5, 40, 200, 2000), (1, 4, 20), (0.0, 0.3, 1.0), (0.3, 1.0, 3.0, 5.0))
    if each[0] >= 2 * each[1] and each[3] <= each[0] / 2 and (each[1] > 1 or not each[2])]  # fmt: skip


@table("clusters_without_errors", "alarms, size, correlation, errors | without errors, covered precision, "
    "covered recall, covered precision of buckets, covered share, width, widest, "
    "width of buckets, widest of buckets, widest with errors", one(FEW), 200)  # fmt: skip
def with_few_errors(sets: int, kind: Few) -> list[float]:
    """Coverage over all sets, with and without errors, and widths of the precision.

    Protocol. Each cluster has ``size`` alarms, four times as many true negatives, and misses that are binomial with
    probability .3. Recall is read off the transposed counts, whose positives are the alarms. Clusters are known to
    `bootstrap`, or put into 64 buckets at random, as a state holds them; ``share`` is that of a calibration of one bin,
    whose positives are the errors, and a quarter of the sets are counted so. Widths are divided by those of the exact
    bound at the number of clusters, 1 - .025^(1/M), in sets without errors (mean and largest), or of Clopper-Pearson's
    interval of the alarms in sets with one or two (largest). Aims, fixed beforehand: coverage .90 (.88 at a correlation
    of .3), mean width 1.1 where clusters are known, 2.5 with one or two errors of independent alarms in ten clusters or
    more. An interval with unknown bounds (one bucket) counts as covering.
    """
    random = generator()
    wrong = kind.drawn(random, sets)
    shape, truth, number = wrong.shape, 1 - kind.errors / kind.alarms, wrong.sum(1)
    rows = (np.full(shape, 4 * kind.size), wrong), (random.binomial(kind.size, 0.3, shape), kind.size - wrong)
    counts = torch.from_numpy(np.stack([np.stack(row, -1) for row in rows], -2)).double()
    ways = {"precision": (imbtorch.precision, counts), "recall": (imbtorch.recall, counts.mT)}
    held, width = dict[str, list[bool]](), np.zeros(0)
    for name, (function, each) in ways.items():
        known = bootstrap(partial(function, average="none"), each, 500, clusters=True)
        low, high = known.low[:, 1], known.high[:, 1]
        held[name] = ((low <= truth) & (truth <= high)).tolist()
        width = width if len(width) else (high - low).numpy()
    of_buckets, exact, clean = list[float](), 1 - 0.025 ** (1 / shape[1]), number == 0
    more: dict[str, list[bool]] = {"precision": [], "share": []}
    measure = partial(imbtorch.precision, average="none")
    for each, errors in zip(counts[: -(-sets // 4)], number, strict=False):
        place = torch.from_numpy(random.integers(BUCKETS, size=shape[1]))
        buckets = torch.zeros(BUCKETS, 2, 2, dtype=torch.float64).index_add_(0, place, each)
        found = resample_buckets({"": measure}, buckets, draws=500, level=0.95, generator=None)[""]
        low, high = float(found.low[1]), float(found.high[1])
        more["precision"].append(not (low > truth or high < truth))
        of_buckets += [] if errors else [(high - low) / exact]
        bins = buckets[..., 1].flip(-1).unsqueeze(-1)  # right and wrong alarms, as negatives and positives
        share = Calibration.of(bins, torch.ones(0), 1, 0.95, None, False)
        more["share"].append(not bool((share.low > 1 - truth) | (share.high < 1 - truth)))
    few = (number > 0) & (number < 3)
    ends = stats.beta.ppf((0.025, 0.975), number[few, None] + (0, 1), kind.alarms - number[few, None] + (1, 0)).T
    widths = [mean(width[clean]) / exact, largest(width[clean]) / exact, mean(of_buckets), largest(of_buckets)]
    of_few = largest(width[few] / (ends[1] - ends[0]))
    return [mean(clean), *map(mean, held.values()), *map(mean, more.values()), *widths, of_few]


def largest(values: Sequence[float]) -> float:
    return max(values) if len(values) else math.nan


def labels_of(sets: int, samples: int, labels: int, common: float) -> Tensor:
    """Counts ``[sets, samples, labels, 2, 2]``; labels of a sample share a part of what makes them wrong.

    A tenth of the labels is positive; TPR .7 and TNR .95 on average.
    """
    positive = torch.rand(sets, samples, labels) < 0.1
    own, shared = torch.randn(sets, samples, labels), torch.randn(sets, samples, 1)
    hard = common**0.5 * shared + (1 - common) ** 0.5 * own  # standard normal
    limits = torch.tensor([float(stats.norm.ppf(share)) for share in (0.95, 0.7)])
    right = hard < limits[positive.long()]
    cells = 2 * positive.long() + (positive == right).long()
    return torch.nn.functional.one_hot(cells, 4).double().unflatten(-1, (2, 2))


@table("labels", f"{LABELS} | independent BA, independent F1, covered BA, covered F1", product((50, 200), (5, 20),
    (0.0, 0.3, 0.8)), 200)  # fmt: skip
def labelled(sets: int, samples: int, labels: int, common: float) -> list[float]:
    """Coverage of means over labels by a posterior that takes labels as independent, and with samples as clusters."""
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
    row = []
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


DEPENDENT = (*(Dependent(number) for number in (5, 10, 20, 60, 200, 2000)), *(Dependent(number, zipf=True) for number
    in (20, 60, 200, 2000)), *(Dependent(number, classes=2, varied=0.5) for number in (10, 40, 300)),
    *(Dependent(number, classes=10, gathered=1.0) for number in (30, 200)), Dependent(60, classes=10, size=50,
    gathered=100.0), Dependent(300, classes=100, size=20, gathered=20.0), Dependent(400, classes=100, size=20,
    gathered=2.0, varied=0.1))  # fmt: skip


def generator() -> np.random.Generator:
    """NumPy's source of randomness, from the seed of torch."""
    return np.random.default_rng(int(torch.randint(2**31, ())))


@table("buckets", "clusters, samples, classes, Zipf sizes, gathered, varied | buckets of the rarest, covered BA, "
    "covered IAM, covered macro F1, covered MCC, independent BA, samples resampled BA, clusters resampled BA, "
    "width BA, width IAM, width macro F1, width MCC", one(DEPENDENT), 200)  # fmt: skip
def of_buckets(sets: int, kind: Dependent) -> list[float]:
    """Mean number of buckets that hold the rarest class; coverage of a report with ids, without, of two peers."""
    names = {"balanced_accuracy": "balanced accuracy", "iam": "IAM", "f1": "macro F1", "mcc": "MCC"}
    truth = {name: AVERAGES[long](kind.expected()).item() for name, long in names.items()}
    held: dict[str, list[bool]] = {name: [] for name in ("independent", "samples", "clusters")}
    rarest, seen = list[int](), Seen()
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
            ends = (values[f"{name}{end}"].double() for end in ("", "_low", "_high"))
            seen.add((name,), Interval(*ends, 0.95, "report"), truth[name])
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
    covered, wide = seen.summary()
    return [mean(rarest), *covered, *(mean(each) for each in held.values()), *wide]


@table("report_of_labels", f"{LABELS} | covered BA, covered F1, independent BA, covered recall of a label",
    product((50, 300), (3, 14, 50), (0.0, 0.3, 0.8)), 200)  # fmt: skip
def labels_of_a_report(sets: int, samples: int, labels: int, common: float) -> list[float]:
    """Coverage of means over labels and of one label, as a report counts them by default."""
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
    return [mean(each) for each in held.values()]


@table("images", "images | covered IoU, independent IoU", one((5, 10, 30, 200)), 200)
def images_of_a_report(sets: int, images: int) -> list[float]:
    """Coverage of the IoU of images of 256 pixels, of which a share of .6 u ** 2 is wrong (u uniform in [0, 1])."""
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
    return [each / sets for each in held.values()]


PICTURES = list(product((10, 40, 200), (1, 4), (0.0, 0.25, 0.5), ("skip", 1, 0)))
HARDLY_MISSED = [
    (number, 1, 0.0, "skip", 0.97, misses) for number, misses in product((10, 40, 200), (0.005, 0.01, 0.02))
]
OF_PICTURES = "patients, images, empty, rule, Dice, misses | covered Dice, width"


@table("over_images", OF_PICTURES, [(*cell, 0.8, 0.05) for cell in PICTURES], 1000)
@table("rare_misses", OF_PICTURES, [(*cell, 0.9, 0.02) for cell in PICTURES] + HARDLY_MISSED, 1000)
def of_pictures(
    sets: int, patients: int, each: int, empty: float, rule: str | int, dice: float, misses: float
) -> list[float]:
    """Coverage of `over_images(cluster=ids)`, and its width over 3.92 deviations of the mean, which an oracle knows.

    Patients have `each` images on average (geometric), Dice and empty images vary among them. Of the images with
    targets some are missed, of the empty ones a fifth has a prediction.
    """
    false, random, held, widths, values = 0.2, generator(), [], [], []
    found = dice * (1 - misses)
    truth = {"skip": (1 - empty) * found / (1 - empty + empty * false), 1: (1 - empty) * found + empty * (1 - false)}
    for _ in range(sets):
        ids = np.repeat(np.arange(patients), random.geometric(1 / each, patients))
        mean = random.beta(9 * dice, 9 * (1 - dice), patients)[ids].clip(1e-9, 1 - 1e-9)
        value = random.beta(5 * mean, 5 * (1 - mean)) * (random.random(len(ids)) > misses)
        without = random.random(len(ids)) < (random.beta(2 * empty, 2 * (1 - empty), patients)[ids] if empty else 0)
        right = np.where(without, 0, np.rint(1000 * value))
        alarms = np.where(without, random.random(len(ids)) < false, 1000 - right)
        cells = [np.full(len(ids), 5000.0), alarms, np.where(without, 0, 1000 - right), right]
        counts = torch.from_numpy(np.stack(cells, -1).reshape(-1, 2, 2))
        interval = over_images("dice", counts, empty=rule, cluster=torch.from_numpy(ids))
        assert isinstance(interval, Interval)
        held.append(inside(interval, truth.get(rule, (1 - empty) * found)))
        values.append(interval.estimate.item())
        widths.append((interval.high - interval.low).item())
    return [float(np.mean(held)), float(np.nanmean(widths) / (3.92 * np.nanstd(values)))]


@table("another_population", "clusters | covered accuracy, covered IAM, width accuracy, width IAM", one((30, 200)), 200)
def at_other_shares(sets: int, number: int) -> list[float]:
    """Coverage of a report with clusters that is read at equal class shares."""
    kind = Dependent(number)
    there = imbtorch.at_prevalence(kind.expected(), [1, 1, 1])
    truth = {"accuracy": imbtorch.accuracy(there).item(), "iam": imbtorch.imbalance_accuracy(there).item()}
    seen, random = Seen(), generator()
    for _ in range(sets):
        target, preds, ids = kind.drawn(random)
        report = imbtorch.ImbalanceReport(
            "multiclass", 3, measures=list(truth), per_class=(), intervals=True, clusters=True, prevalence=[1, 1, 1]
        )
        report.update(torch.from_numpy(preds), torch.from_numpy(target), cluster=torch.from_numpy(ids))
        values = report.compute()
        for name in truth:
            ends = (values[f"{name}{end}"].double() for end in ("", "_low", "_high"))
            seen.add((name,), Interval(*ends, 0.95, "report"), truth[name])
    return [each for part in seen.summary() for each in part]


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


TAILS = [(size, case) for size in (3, 5, 10, 20, 50, 100) for case in tails(size)]


@table("tails", "K, case | covered BA, covered IAM, covered G-mean, covered macro F1", TAILS, 200)
def tailed(sets: int, size: int, case: Case) -> list[float]:
    """Coverage of averages over many classes; totals are fixed."""
    measures = {name: AVERAGES[name] for name in ("balanced accuracy", "IAM", "G-mean", "macro F1")}
    found = own(test_sets(case.counts, sets, "fixed"), measures, "fixed", 500)
    return [share_within(*found[name], each(case.counts)) for name, each in measures.items()]


@table("lacking",
    "K, rarest | sets without it, covered BA of all classes, covered BA, covered IAM of all classes, covered IAM",
    product((3, 10), (1, 2, 3)), 1000)  # fmt: skip
def lacked(sets: int, size: int, rare: int) -> list[float]:
    """Number of sets that lack the rarest class, and coverage of the value over all classes, and over those there.

    300 samples of each other class are expected, and few of the rarest; recalls fall from .9 to .5.
    """
    totals = torch.tensor([300.0] * (size - 1) + [rare], dtype=torch.float64)
    truth = expected(totals, torch.linspace(0.9, 0.5, size, dtype=torch.float64), False)
    every = multinomial(totals.sum().expand(sets), totals / totals.sum())
    every = every[every[:, -1] == 0]
    counts = torch.stack([multinomial(every[:, index], row / row.sum()) for index, row in enumerate(truth)], 1)
    there = truth.clone()
    there[-1] = 0
    row: list[float] = [len(counts)]
    for name in ("balanced accuracy", "IAM"):
        found = posterior(AVERAGES[name], counts, draws=500)
        row += [share_within(found.low, found.high, AVERAGES[name](each)) for each in (truth, there)]
    return row


# --- small classes --------------------------------------------------------------------------------------------------

SMALL = (*((size, each, 0.7, False) for size, each in ((7, 6), (30, 3), (30, 5), (30, 10), (30, 20), (30,
    40), (100, 5))), (5, 5, 0.9, False), (10, 20, 0.9, False), (30, 50, 0.995, False), (30, 10, 0.7,
    True), (30, 10, 0.4, True))  # fmt: skip
DIFFERING = ((2, 5, 0.9, 0.5, 0.0), (3, 5, 0.9, 0.3, 0.0), (10, 5, 0.7, 0.7, 0.0), (10, 5, 0.9, 0.5, 0.0), (10, 5,
    0.9, 0.5, 0.7), (30, 5, 0.9, 0.5, 0.0), (5, 10, 0.95, 0.4, 0.7), (10, 20, 0.9, 0.6, 0.0))  # fmt: skip
ONE_BETTER = ((20, 100, 0.6, 1), (20, 100, 0.7, 1), (20, 100, 0.75, 1), (20, 100, 0.85, 1), (20, 100, 0.8, 20), (20,
    30, 0.8, 1), (50, 100, 0.75, 1))  # fmt: skip


@table("small", f"totals, K, samples, recall, concentrated | {THREE}, IAM width, IAM bias, IAM bias said", [(totals,
    *case) for totals in FIXED for case in SMALL], 200)  # fmt: skip
def biased(sets: int, totals: str, size: int, each: int, recall: float, concentrated: bool) -> list[float]:
    """Coverage in classes of equal size and recall; width of IAM over the central 95% of the estimates; its bias.

    Bias: mean value less the true one, and as the interval says it (`Interval.bias`).
    """
    measures = {name: AVERAGES[name] for name in ("balanced accuracy", "macro F1", "IAM")}
    ones = torch.ones(size, dtype=torch.float64)
    truth = expected(each * ones, recall * ones, concentrated)
    counts = test_sets(truth, sets, totals)
    given = "fixed" if totals == "fixed" else "drawn"
    parts = [posterior(measures, some, draws=500, totals=given) for some in counts.split(50)]
    row = []
    for name, measure in measures.items():
        low, high = (torch.cat([getattr(part[name], end) for part in parts]) for end in ("low", "high"))
        row.append(share_within(low, high, measure(truth)))
    iam, said = measures["IAM"](counts), torch.cat([part["IAM"].bias for part in parts])  # type: ignore[misc]
    off = iam.mean() - measures["IAM"](truth)
    return [*row, relative_width(low, high, iam), float(off), float(said.mean())]


@table("differing", "K, samples, recall of a, recall of b, shared | covered BA, covered IAM, covered G-mean, "
    "covered BA by compare, covered IAM by compare, covered G-mean by compare", DIFFERING, 200)  # fmt: skip
def differing(sets: int, size: int, each: int, first: float, second: float, shared: float) -> list[float]:
    """Coverage of the differences of two models by `paired_compare` and `compare`, totals fixed."""
    totals = torch.full((size,), each)
    recalls = torch.tensor([[first], [second]], dtype=torch.float64).expand(2, size)
    values = [three_averages(expected(totals.double(), some, False)) for some in recalls]
    held = []
    for _ in range(sets):
        a, b, target = joint_counts(recalls, totals, shared)
        counts = [imbtorch.confusion_matrix(some, target, "multiclass", num_classes=size) for some in (a, b)]
        found = (
            paired_compare(three_averages, a, b, target, size, draws=500, totals="fixed").difference,
            compare(three_averages, *counts, draws=500, totals="fixed").difference,
        )
        held.append([one for some in found for one in within(some, values[0] - values[1])])
    return means(held)


@table("better", "positives, candidates, recall of better, better | covered BA, bias, corrected bias, width BA",
    ONE_BETTER, 200)  # fmt: skip
def one_better(sets: int, positives: int, candidates: int, recall: float, better: int) -> list[float]:
    """Coverage of the true value of the candidate that `select_epoch` keeps; bias of the value, and corrected.

    Recalls are .6 of the positives, except better ones, and .9 of nine times as many negatives.
    """
    target = (torch.arange(10 * positives) < positives).long()
    recalls = torch.full((candidates, 1), 0.6)
    recalls[:better] = recall
    found, seen = [], Seen()
    for _ in range(sets):
        right = torch.rand(candidates, len(target)) < torch.where(target == 1, recalls, 0.9)
        predictions = torch.where(right, target, 1 - target)
        chosen = select_epoch(predictions, target, imbtorch.balanced_accuracy, draws=1000)
        assert chosen.interval is not None
        assert chosen.corrected is not None
        truth = float(recalls[chosen.epoch] + 0.9) / 2
        seen.add(("BA",), chosen.interval, truth)
        found.append([chosen.value - truth, chosen.corrected - truth])
    covered, wide = seen.summary()
    return [*covered, *means(found), *wide]


# --- areas under curves ---------------------------------------------------------------------------------------------

FAMILIES = ("normal", "wide positives", "exponential", "heavy tails")
AREAS = [  # scores, area, positives, their share; a share of the positives may score above all others, or below
    *product(FAMILIES, (0.7, 0.85, 0.95), (20, 50, 200), (0.1,)),
    *product(("normal", "wide positives", "heavy tails"), (0.7, 0.96, 0.998), (10,), (0.001,)),
    *product(("normal", "heavy tails"), (0.6, 0.998), (100,), (0.01,)),
    ("normal", 0.998, 200, 0.5),
    ("exponential", 0.96, 10, 0.2),
    *product(("normal, 0.1 first", "normal, 0.2 first"), (0.8,), (5, 10, 20), (0.01,)),
    *product(("normal, 0.1 last", "normal, 0.2 last"), (0.99,), (5, 10, 20, 50), (0.1,)),
]


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


@table("areas", "scores, AUC, positives, share | covered AUC, named, AUC width, DeLong AUC, average precision, "
    "covered AP, AP width", AREAS, 500)  # fmt: skip
def of_scores(sets: int, family: str, area: float, positives: int, prevalence: float) -> list[float]:
    """Coverage and width, over the central 95% of the estimates, of intervals of both areas under curves.

    Named: of the sets that miss the AUC, the share whose text says that positives may rank last.
    """
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
    row = [share_within(auc_low, auc_high, truth[0]), mean(named), relative_width(auc_low, auc_high, auc)]
    row += [share_within(*peer, truth[0]), truth[1]]
    return [*row, share_within(ap_low, ap_high, truth[1]), relative_width(ap_low, ap_high, ap)]


def relative_width(low: Tensor, high: Tensor, estimates: Tensor) -> float:
    """Mean width over that of the range that contains the central 95% of the estimates."""
    spread = estimates.quantile(0.975) - estimates.quantile(0.025)
    return float((high - low).mean() / spread)


# --- thresholds -----------------------------------------------------------------------------------------------------

FEW_POSITIVES = (("normal", 0.85, 3, 60), ("wide positives", 0.95, 3, 60), ("normal", 0.85, 3, 300),
    ("wide positives", 0.85, 10, 300), *(("normal", 0.85, positives, 300) for positives in (10, 20, 50)))  # fmt: skip
NO_GAIN = (("normal", 0.85, 30, 300), ("normal", 0.85, 60, 200), ("normal", 0.96, 30, 300))
CHOSEN_BY: Measures = {"f1": partial(imbtorch.f_score, average="binary"), "mcc": imbtorch.matthews_corrcoef, "iam":
    imbtorch.imbalance_accuracy, "balanced_accuracy": imbtorch.balanced_accuracy}  # fmt: skip


@table("thresholds", THRESHOLD, [(*case, name, False) for case in FEW_POSITIVES for name in CHOSEN_BY], 200)
@table("no_gain", THRESHOLD, [(*case, name, True) for case in NO_GAIN for name in CHOSEN_BY], 200)
def of_chosen(
    sets: int, family: str, area: float, positives: int, size: int, name: str, none: bool = False
) -> list[float]:
    """True value at the chosen threshold, bias as logged and corrected, coverage and width; then those of its gain.

    The gain is over a threshold of .5, which is the mean score of negatives; with ``none`` it is the best threshold of
    the population. At least one sample is positive.
    """
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
    return torch.stack(found).mean(0).tolist()


# --- promises -------------------------------------------------------------------------------------------------------


PROMISES: tuple[tuple[Any, ...], ...] = tuple(  # scores, area, negatives, positives, limits, sure, best by, step
    (family, area, *sizes, limits, sure, best, step)
    for family, area, sizes, sure, best, step, several in (
        ("normal", 0.92, (970, 30), 0.9, "precision", 0.0, [{"recall": 0.8}]),
        ("normal", 0.5, (970, 30), 0.95, "precision", 0.0, [{"recall": 0.8}]),
        ("heavy tails", 0.9, (300, 10), 0.8, "precision", 0.0, [{"recall": 0.6}]),
        ("normal", 0.92, (900, 100), 0.9, "recall", 0.0, [{"alerts": 0.05}, {"specificity": 0.95}]),
        ("normal", 0.98, (900, 100), 0.9, "recall", 0.0, [{"precision": 0.5}, {"precision": 0.9}]),
        *(("normal", 0.92, (900, 100), 0.9, "recall", step, [{"precision": 0.5}]) for step in (0.0, 0.5)),
        ("normal", 0.76, (900, 100), 0.9, "recall", 0.0, [{"precision": 0.5}]),
        *(("normal", area, (990, 10), 0.9, "recall", 0.0, [{"precision": 0.5}]) for area in (0.98, 0.92)),
        ("heavy tails", 0.95, (1900, 100), 0.8, "recall", 0.0, [{"precision": 0.4}, {"precision": 0.55}]),
        ("normal", 0.5, (710, 290), 0.95, "recall", 0.0, [{"precision": 0.3}]),
        ("normal", 0.5, (380, 20), 0.8, "recall", 0.0, [{"precision": 0.051}]),
        ("normal", 0.92, (900, 100), 0.9, "specificity", 0.0, [{"npv": 0.98}]),
        ("normal", 0.92, (900, 100), 0.9, "recall", 0.0, [{"accuracy": 0.91}, {"f1": 0.5}]),
        ("normal", 0.85, (600, 400), 0.9, "recall", 0.0, [{"iou": 0.5}]),
        ("normal, 0.6 first", 0.64, (900, 100), 0.9, "recall", 0.0, [{"f1": 0.66}, {"f1": 0.74}]),
        ("normal, 0.5 first", 0.8, (4900, 100), 0.9, "recall", 0.0, [{"f1": 0.55}]),
        ("normal", 0.97, (950, 50), 0.9, "recall", 0.0, [{"f1": 0.66}]),
        ("normal", 0.5, (710, 290), 0.8, "recall", 0.0, [{"f1": 0.451}]),
        ("normal", 0.92, (900, 100), 0.9, "f1", 0.0, [{"recall": 0.6, "precision": 0.5}]),
        ("normal", 0.92, (900, 100), 0.9, "f1", 0.0, [{"recall": 0.63, "precision": 0.59}]),
        ("normal", 0.92, (3600, 400), 0.8, "costs", 0.0, [{"recall": 0.6, "precision": 0.57}]),
        ("normal", 0.92, (900, 100), 0.9, "f1", 0.0, [{"recall": 0.8, "alerts": 0.2}]),
        ("normal", 0.5, (900, 100), 0.8, "recall", 0.0, [{"alerts": 0.05, "precision": 0.101}]),
    )
    for limits in several
)
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


@table("promises", f"{LIMITS} | promised, wrong, recall", PROMISES, 400, seed=11)
@table("promises_elsewhere", f"{LIMITS}, prevalence | promised, wrong, recall", ELSEWHERE, 200)
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
) -> list[float]:
    """Share of samples for which `ThresholdSweep.best(..., sure=)` finds a threshold, and for which a wrong one.

    Wrong: a limit does not hold at the threshold, which should be so in 1 - sure or less. Recall: mean at thresholds.
    """
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
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # of thresholds that flag nobody or everybody, and recall without limits
                sweep.compute()
                point = sweep.best(at_least=floors, alerts=alerts, costs=costs, sure=sure)
        except ValueError:  # no threshold keeps the limits, or none can be promised
            continue
        cut = float(torch.tensor(point.threshold, dtype=torch.float64).logit())
        cut = (math.floor(cut / step) + 1) * step if step else cut
        rates = [float(each.sf(cut)) for each in scores]  # of either class that is predicted positive
        found = [[total * (1 - rate), total * rate] for total, rate in zip(there, rates, strict=True)]
        wrong += not all(holds(name, bound, torch.tensor(found)) for name, bound in limits.items())
        recalls.append(rates[1])
    return [len(recalls) / sets, wrong / sets, mean(recalls)]


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


class Scored(NamedTuple):
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


PATIENTS = [*(Scored(number, alone, 0.3 if alone else 0.1, 0.5) for number in (10, 30, 100) for alone in (True,
    False)), *(Scored(number, True, 0.1, 0.5) for number in (10, 30)), *(Scored(30, True, 0.3, within) for within in
    (0.0, 0.9))]  # fmt: skip


@table("sweeps_of_clusters", "patients, one-class, positives, within | covered AUC, covered AP, covered F1, "
    "covered gain of F1, covered BA, covered gain of BA, independent AUC, width AUC, width AP, width F1, "
    "width gain of F1, width BA, width gain of BA", one(PATIENTS), 200)  # fmt: skip
def swept_patients(sets: int, kind: Scored) -> list[float]:
    """Coverage of areas, values and gains at the chosen threshold, and of AUC without clusters."""
    areas = true_areas((stats.norm(), stats.norm(1.5)), kind.prevalence)
    seen, alone, random = Seen(), list[bool](), generator()
    for _ in range(sets):
        logits, target, ids = kind.drawn(random)
        if not 0 < int(target.sum()) < len(target):
            continue
        independent = imbtorch.ThresholdSweep("f1", LOGITS.sigmoid(), logits=True)
        independent.update(logits, target)
        alone.append(inside(independent.interval("auc"), areas[0]))
        held = {}
        for name, measure in SWEPT.items():
            sweep = imbtorch.ThresholdSweep(name, LOGITS.sigmoid(), logits=True, clusters=True)
            sweep.update(logits, target, cluster=ids)
            threshold = float(sweep.compute()["threshold"])
            value, plain = (float(measure(kind.expected(each))) for each in (threshold, 0.5))
            held |= {name: (sweep.interval("value"), value), f"gain of {name}": (sweep.gain(), value - plain)}
        for name, area in zip(("auc", "average_precision"), areas, strict=True):
            seen.add((name,), sweep.interval(name), area)
        for name, (interval, value) in held.items():
            seen.add((name,), interval, value)
    covered, wide = seen.summary()
    return [*covered, mean(alone), *wide]


# --- seeds ----------------------------------------------------------------------------------------------------------

TRAINED = {  # test samples and recall of each class
    "20 rare": ((180, 20), (0.93, 0.7)),
    "20 rare, clean": ((180, 20), (0.97, 0.97)),
    "long tail": (
        (200, 140, 100, 70, 50, 35, 25, 20, 20, 20),
        (0.92, 0.9, 0.88, 0.85, 0.8, 0.78, 0.75, 0.72, 0.7, 0.65),
    ),
}


@table("seeds", "classes, seeds, deviation" + columns_of("covered {} mean, covered {} shared, covered {} own"),
    product(TRAINED, (3, 5, 10), (0.0, 0.01, 0.03)), 200)  # fmt: skip
def over_seeds(sets: int, name: str, number: int, deviation: float) -> list[float]:
    """Coverage of means over seeds, and of differences of two models that are equally good.

    A model errs where a normal number of the sample, common to its seeds, and one of sample and seed fall below a
    bound. The recalls of a seed deviate together. Mean: for new seeds and new samples. Shared and own: of two models
    that have the same numbers of samples, and numbers of their own.
    """
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
    return [each / sets for each in covered.values()]


RARE_SEEDS = ((8, 0.97, 0.87), (15, 0.97, 0.87), (15, 0.8, 0.6), (40, 0.995, 0.95))
UNEQUAL_SEEDS = (  # classes, samples of the rarest, recalls of both models, shared part, seeds, deviation
    *((2, *case, shared, number, 0.0) for case in RARE_SEEDS for shared in (0.9, 0.5) for number in (3, 10)),
    *((2, 15, 0.97, 0.87, shared, 5, 0.03) for shared in (0.9, 0.5)),
    *((10, 8, 0.95, 0.8, shared, number, 0.0) for shared in (0.9, 0.5) for number in (3, 10)),
    *((10, 8, 0.9, 0.8, shared, 5, 0.03) for shared in (0.9, 0.5)),
)


@table("unequal_seeds", "classes, rare, recall of a, recall of b, shared, seeds, deviation" +
    columns_of("covered {}, {} width"), UNEQUAL_SEEDS, 200)  # fmt: skip
def over_unequal_seeds(
    sets: int, size: int, rare: int, first: float, second: float, shared: float, number: int, deviation: float
) -> list[float]:
    """Coverage and width of the difference of two models over seeds.

    Recalls are those of the rare classes (all of ten classes, and .95 of the frequent one of two). A model errs where a
    normal number is too high, of which the shared part belongs to the sample.
    """
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
    return means(found)


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


@table("seeds_of_clusters", "clusters, one-class, recalls, parts" +
    columns_of("covered {} mean, covered {} difference, independent {} mean"), CLUSTERED_SEEDS, 200)  # fmt: skip
def over_clusters(
    sets: int, number: int, apart: bool, recalls: tuple[tuple[float, ...], ...], parts: tuple[float, ...]
) -> list[float]:
    """Coverage of means and differences of five seeds in clusters of ten samples, and of means without ids.

    A quarter of the samples is positive. Parts of the variance are those of the cluster and class, of these and the
    model, and of the sample; the rest belongs to sample and seed.
    """
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
    return means(found)


# --- scores of two models -------------------------------------------------------------------------------------------


TWO_SIZES = ((5, 200), (20, 200), (20, 1000), (100, 1000), (5, 20_000), (20, 20_000), (100, 20_000), (1000, 20_000),
    (10_000, 20_000))  # fmt: skip
TWO_SHIFTS = ((1.0, 1.0), (1.5, 1.0), (2.5, 1.0), (3.0, 2.5), (4.0, 4.0))


@table("paired_scores",
    "positives, negatives, shift of a, shift of b | AUC of a, AUC of b, covered AUC, AUC width, covered AP, AP width",
    [(*size, *shift) for size, shift in product(TWO_SIZES, TWO_SHIFTS)], 1000)  # fmt: skip
def of_two_models(sets: int, positives: int, negatives: int, *shifts: float) -> list[float]:
    """Coverage and width of differences of areas; .8 of the variance of scores is common, positives are shifted."""
    target = (torch.arange(positives + negatives) < positives).long()
    cuts, share = np.linspace(-8, 8 + max(shifts), 20_001), positives / (positives + negatives)
    areas_, precisions = [stats.norm.cdf(shift / math.sqrt(2)) for shift in shifts], []
    for shift in shifts:
        hit, alarm = stats.norm.sf(cuts - shift), stats.norm.sf(cuts)
        precision = share * hit / np.maximum(share * hit + (1 - share) * alarm, 1e-300)
        precisions.append(-np.trapezoid(precision, hit))
    row = list(areas_)
    for name, (one, other) in (("auc", areas_), ("average_precision", precisions)):
        covered, width = 0, 0.0
        for _ in range(sets):
            common = math.sqrt(0.8) * torch.randn(len(target))
            a, b = (shift * target + common + math.sqrt(0.2) * torch.randn(len(target)) for shift in shifts)
            found = paired_compare(name, a, b, target, draws=400).difference
            covered += bool(found.low <= one - other <= found.high)
            width += (found.high - found.low).item() / sets
        row += [covered / sets, width]
    return row


def of_patients(patients: int, shape: float, shifts: Sequence[float], seed: int) -> tuple[Array, Array, Array]:
    """Scores of two models ``[2, N]``, targets and patients, who have 5 to 59 visits each.

    Patients differ in their share of positives, a quarter on average; .3 of the variance of scores belongs to the
    patient, .2 to patient and model, .2 to the visit.
    """
    drawn = np.random.default_rng(seed)
    ids = np.repeat(np.arange(patients), drawn.integers(5, 60, patients))
    target = (drawn.random(len(ids)) < drawn.beta(shape, 3 * shape, patients)[ids]).astype(int)
    common = math.sqrt(0.3) * drawn.standard_normal(patients)[ids] + math.sqrt(0.2) * drawn.standard_normal(len(ids))
    own = math.sqrt(0.2) * drawn.standard_normal((2, patients))[:, ids]
    noise = math.sqrt(0.3) * drawn.standard_normal((2, len(ids)))
    return np.asarray(shifts)[:, None] * target + common + own + noise, target, ids


AREAS_OF_SCORES = {"auc": roc_auc_score, "average_precision": average_precision_score}


@table("paired_patients", "patients, shape, shift of a, shift of b | covered AUC, AUC width, covered AP, AP width",
    [(*kind, *shifts) for kind in product((10, 20, 40), (0.5, 0.1)) for shifts in ((1.0, 1.0), (2.0, 1.3), (3.0, 2.0))],
    200)  # fmt: skip
def of_patients_covered(sets: int, patients: int, shape: float, *shifts: float) -> list[float]:
    """Coverage and width of differences of areas of patients; a shape of .1: most positives belong to few of them."""
    scores, target, _ = of_patients(20_000, shape, shifts, 0)
    truth = {name: np.subtract(*(area(target, each) for each in scores)) for name, area in AREAS_OF_SCORES.items()}
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in truth}
    for seed in range(1, sets + 1):
        scores, target, ids = of_patients(patients, shape, shifts, seed)
        if len({*ids[target == 1]}) < 2:
            continue
        for name, value in truth.items():
            tensors = map(torch.from_numpy, (*scores, target))
            interval = paired_compare(name, *tensors, cluster=torch.from_numpy(ids)).difference
            found[name].append((bool(interval.low <= value <= interval.high), float(interval.high - interval.low)))
    return [each for pairs in found.values() for each in means(pairs)]


@table("seeds_of_scores", "positives, samples, shift of a, shift of b, seeds | covered AUC, covered AUC difference, "
    "covered AP, covered AP difference", [(*size, *shifts, seeds) for size in ((10, 500), (30, 500)) for
    shifts in ((2.0, 2.0), (3.0, 2.0), (1.0, 0.7)) for seeds in (3, 8)], 200)  # fmt: skip
def of_seeds_of_scores(sets: int, positives: int, samples: int, a: float, b: float, seeds: int) -> list[float]:
    """Coverage of means over seeds of areas; the shift of a seed deviates by .2 (standard deviation).

    Of the variance of scores .5 is common to all, and .25 to the seeds of a model.
    """
    drawn = np.random.default_rng(positives + samples)

    def runs(target: Array, number: int) -> dict[str, list[Array]]:
        common = math.sqrt(0.5) * drawn.standard_normal(len(target))
        kept = {}
        for name, shift in (("a", a), ("b", b)):
            own = common + 0.5 * drawn.standard_normal(len(target))
            kept[name] = [
                (shift + 0.2 * drawn.standard_normal()) * target + own + 0.5 * drawn.standard_normal(len(target))
                for _ in range(number)
            ]
        return kept

    many, target = (np.arange(each * samples) < each * positives for each in (40, 1))
    values = [[[area(many, some[0]) for area in AREAS_OF_SCORES.values()] for some in runs(many, 1).values()]
        for _ in range(100)]  # fmt: skip
    truth, covered = np.mean(values, 0).T, []
    for _ in range(sets):
        found = over_runs(runs(target.astype(int), seeds), target.astype(int), list(AREAS_OF_SCORES), draws=300)
        row = []
        for (one, other), each in zip(truth, found.values(), strict=True):
            mean_, difference = each.models["a"], each.differences["a", "b"]
            row += [bool(mean_.low <= one <= mean_.high), bool(difference.low <= one - other <= difference.high)]
        covered.append(row)
    return means(covered)


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
MODELS = {"equal": torch.tensor([[0.85, 0.65], [0.85, 0.65]]), "different": torch.tensor([[0.9, 0.6], [0.8, 0.8]]),
    "high": torch.tensor([[0.98, 0.9], [0.97, 0.95]])}  # fmt: skip


@table("epochs_of_clusters",
    f"{KIND}, recalls | {THREE}, BA bias, BA corrected bias, best among, shortfall holds, independent BA, {WIDE}",
    [(kind, "stay") for kind in OF_EPOCHS] + [(kind, "learn") for kind in OF_EPOCHS[6:12]], 200)  # fmt: skip
def chosen_of_clusters(sets: int, kind: Alike, shape: str) -> list[float]:
    """Coverage of `select_epoch(cluster=ids)` among 30 epochs, biases, sets of epochs, and coverage without ids.

    Recalls stay at .85 and .6, or learn from .9 and .3 to .85 and .7. Best among: the best epoch is one of the
    indistinguishable ones; within: the worst of them is below the best by the shortfall at most.
    """
    time = torch.linspace(0, 1, 30).unsqueeze(-1)
    ends = ([0.85, 0.6], [0.85, 0.6]) if shape == "stay" else ([0.9, 0.3], [0.85, 0.7])
    recalls = torch.tensor(ends[0]) + time * (torch.tensor(ends[1]) - torch.tensor(ends[0]))
    truth, found, seen = kind.truth(recalls), [], Seen()
    measures = {name: AVERAGES[name] for name in ("balanced accuracy", "macro F1", "IAM")}
    for _ in range(sets):
        preds, target, ids = kind.drawn(recalls)
        if len(target.unique()) < 2:
            continue
        choose = partial(select_epoch, preds, target, num_classes=2, repeats=40, draws=400)
        choices = list(choose(measures, cluster=ids).values())
        alone = choose(measures["balanced accuracy"])
        true = [truth[choice.epoch, at].item() for at, choice in enumerate(choices)]
        for name, choice, value in zip(measures, choices, true, strict=True):
            assert choice.interval is not None
            seen.add((name,), choice.interval, value)
        worst = min(truth[each, 0].item() for each in choices[0].indistinguishable)
        best = truth[:, 0].max().item()
        row = [choices[0].value - true[0], (choices[0].corrected or 0.0) - true[0]]
        row += [int(truth[:, 0].argmax()) in choices[0].indistinguishable, best - worst <= choices[0].shortfall + 1e-9]
        found.append([*row, inside(alone.interval, truth[alone.epoch, 0].item())])
    covered, wide = seen.summary()
    return [*covered, *means(found), *wide]


@table("pairs_of_clusters", f"{KIND}, models | {THREE}, BA width, said, true, independent BA", product(OF_PAIRS,
    MODELS), 200)  # fmt: skip
def compared_of_clusters(sets: int, kind: Alike, models: str) -> list[float]:
    """Coverage of `paired_compare(cluster=ids)`, width over 3.92 deviations, probabilities, coverage without ids."""
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
    spread, row = 3.92 * np.std(differences), means(found)
    return [*row[:3], row[3] / spread if spread else math.nan, *row[4:]]


@table("named_pairs_of_clusters", f"{KIND}, models | covered BA, width BA, said, true", product(OF_PAIRS, MODELS), 400)
def clusters_by_name(sets: int, kind: Alike, models: str) -> list[float]:
    """Coverage of `paired_compare("balanced_accuracy", ..., cluster=ids)`, as `compared_by_name`."""
    true, seen, found = float(kind.truth(MODELS[models]).diff(dim=0)[0, 0].neg()), Seen(), []
    for _ in range(sets):
        (first, second), target, ids = kind.drawn(MODELS[models])
        if len(target.unique()) < 2:
            continue
        paired = paired_compare("balanced_accuracy", first, second, target, 2, cluster=ids)
        chance = float(paired.probability)
        seen.add(("BA",), paired.difference, true)
        found.append([max(chance, 1 - chance), float((chance >= 0.5) == (true > 0)) if true else math.nan])
    covered, wide = seen.summary()
    return [*covered, *wide, *means(found)]


# --- simulations ----------------------------------------------------------------------------------------------------

for _name, _columns, _function, _cells, _sets, _seed in (
    ("epochs", epochs_.COLUMNS, epochs_.of_epochs, epochs_.CELLS, 200, 1),
    ("few_hits", epochs_.FEW_HITS, epochs_.few_hits, epochs_.FEW, 200, 1),
    ("gains", gains_.COLUMNS, gains_.of_measures, gains_.CELLS, 200, 0),
    ("rare_gains", gains_.RARE_COLUMNS, gains_.of_rare, gains_.RARE, 200, 0),
):
    table(_name, _columns, _cells, _sets, _seed, takes_seed=True)(_function)
table("alerts", alerts_.COLUMNS, alerts_.CELLS, 400)(alerts_.of_alerts)
table("class_means", widths_.MEANS_COLUMNS, widths_.MEANS_CELLS, 2000, 1)(widths_.of_means)
table("class_means_of_100", widths_.MEANS_COLUMNS, widths_.MEANS_OF_100, 300, 1)(widths_.of_means)
table("rare_precision", widths_.PRECISIONS_COLUMNS, widths_.PRECISIONS, 400)(widths_.of_precisions)
table("mean_areas", widths_.AREAS_COLUMNS, widths_.AREAS, 400)(widths_.of_mean_areas)
table("class_pairs", widths_.PAIRS_COLUMNS, widths_.PAIRS_CELLS, 2000, 1)(widths_.of_pairs)
table("weights", weights_.COLUMNS, weights_.CELLS, 1000)(weights_.of_weights)
OF_INTERVALS = {  # settings and values of the three tables of one simulation
    "intervals": "K, totals, measure, method | mean, least, width",
    "intervals_overall": "measure | cells, mean, below 0.93, below 0.85, below 0.75, least",
    "intervals_least": "K, totals, measure, class, case | covered",
}


def simulated(name: str, sets: int | None, seed: int | None, pool: ProcessPoolExecutor) -> dict[str, list[list[str]]]:
    """Header and rows of the files of a table; each cell has a seed of its own, so that processes do not matter."""
    table = TABLES[name]
    number, first = sets or table.sets, table.seed if seed is None else seed
    jobs, title = table.jobs(number, first), name.replace("_", " ")
    seeds = np.random.SeedSequence([first, *title.encode()]).generate_state(len(jobs)).tolist()
    found = list(tqdm(pool.map(partial(seeded, table.function), seeds, jobs), title, len(jobs)))
    if name == "intervals":
        files = summarised([cell for part in found for cell in part])
        return {
            file: [header(OF_INTERVALS[file]), *(with_sets(OF_INTERVALS[file], row, number, first) for row in rows)]
            for file, rows in files.items()
        }
    rows = [header(table.columns)]
    for cell, job, out in zip(table.cells, jobs, found, strict=True):
        several = out if isinstance(out[0], list) else [out]
        rows += [[*settings_of(cell), *(text(each) for each in (job[0], first, *row))] for row in several]
    return {name: rows}


def settings_of(cell: tuple[Any, ...]) -> list[str]:
    """Settings of a cell as text, those of a kind of clusters one by one."""
    return [text(each) for part in cell for each in (part if hasattr(part, "_fields") else (part,))]


def header(columns: str) -> list[str]:
    return columns.replace(" | ", ", sets, seed, ").split(", ")


def with_sets(columns: str, row: list[Any], sets: int, seed: int) -> list[str]:
    """Row whose settings are followed by the number of sets and the seed."""
    place = len(columns.split(" | ", maxsplit=1)[0].split(", "))
    return [text(each) for each in (*row[:place], sets, seed, *row[place:])]


def seeded(function: Callable[..., Any], seed: int, job: tuple[Any, ...]) -> Any:
    warnings.filterwarnings("ignore", ".* the largest of", UserWarning)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the peers draw from it
    return function(*job)


# --- the page -------------------------------------------------------------------------------------------------------

WIDTH = re.compile("width (?!of buckets).*")
PAGE, METHODS, FOLDER = HERE / "coverage.md", HERE / "methods.md", HERE / "simulated"
MARKS = "<!-- tables printed by coverage.py --page -->", "<!-- end of tables -->"
KINDS_OF_INTERVALS = {  # tables whose columns of coverage are read together
    "value: small classes, long tails": ("small", "tails"),
    "the same, a class lacks": ("lacking",),
    "value: clusters, labels": ("clusters", "labels", "buckets", "report_of_labels", "images", "another_population"),
    "value: odd clusters": ("odd_clusters",),
    "mean over images": ("over_images",),
    "the same, complete misses are rare": ("rare_misses",),
    "value: clusters, few errors": ("clusters_without_errors",),
    "weighted value, difference": ("weights",),
    "difference of models": ("comparisons", "differing", "alerts"),
    "the same, clusters": ("pairs_of_clusters",),
    "balanced accuracy by name: difference": ("named_comparisons",),
    "by name, clusters": ("named_pairs_of_clusters",),
    "mean recall of clusters": ("class_means", "class_means_of_100"),
    "its difference, rows and clusters": ("class_pairs",),
    "AUC, average precision": ("areas",),
    "their differences": ("paired_scores", "rare_precision"),
    "the same, patients": ("paired_patients",),
    "mean AUC, difference": ("mean_areas",),
    "means over seeds of both": ("seeds_of_scores",),
    "threshold: value, gain": ("thresholds", "no_gain"),
    "sweep with clusters": ("sweeps_of_clusters",),
    "gain of tau": ("gains", "rare_gains"),
    "chosen epoch: value": ("epochs", "better"),
    "chosen epoch, clusters": ("epochs_of_clusters",),
    "seeds: mean, difference": ("seeds", "unequal_seeds"),
    "seeds, clusters": ("seeds_of_clusters",),
}
RATES = {  # other columns: what a reader wants of them
    "gate passes a model worse by the margin (aim .05)": ("gate", "not worse"),
    "the same, at one of 20 looks": ("looks", "one of 20 looks"),
    "the same, planned looks": ("looks", "planned"),
    "`best(..., sure=.9)` is wrong (aim .1)": ("promises", "wrong"),
    "bias of a chosen epoch's value": ("epochs", "bias"),
    "the same, corrected": ("epochs", "corrected bias"),
    "bias of the gain of a threshold": ("thresholds", "gain bias"),
    "the same, IAM, nothing to gain": ("no_gain", "gain bias"),
    "bias of the gain of tau, percent": ("gains", "corrected bias"),
}
RELATIVE = {  # columns of widths that are relative to the central 95% of the estimates; others begin with "width"
    **dict.fromkeys(("class_means", "class_means_of_100", "class_pairs", "over_images", "rare_misses"), ("width",)),
    "areas": ("AUC width", "AP width"),
    "small": ("IAM width",),
    "pairs_of_clusters": ("BA width",),
}
OLDER: tuple[str, ...] = ()  # files of 0.7.0 whose method has changed since
ONLY = {"promises": ("sure", "0.9"), "no_gain": ("measure", "iam")}


def cells_in(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def settings(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Columns that name the cells of a file."""
    keys = list(rows[0])
    return [*keys[: keys.index("sets")], *(key for key in ("measure",) if key in keys[keys.index("sets") :])]


def telling(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """As few of these columns as tell the cells apart."""
    keys = settings(rows)
    for key in keys[::-1]:
        others = [other for other in keys if other != key]
        if len({tuple(row[other] for other in others) for row in rows}) == len(rows):
            keys = others
    return keys


def named(row: Mapping[str, str], keys: Sequence[str]) -> str:
    """Settings as text; those that are no or 0 are left out."""
    parts = []
    for key, value in ((key, row[key]) for key in keys if row[key] not in ("", "no", "0")):
        number = value.replace(".", "").replace(" ", "").isdecimal()
        parts.append(f"{key} {value.replace(' ', '/')}" if number else key if value == "yes" else value)
    return ", ".join(parts)


def sets_of(*names: str) -> str:
    """Number of simulated sets of a cell of some files, from the fewest to the most."""
    numbers = {int(row["sets"]) for name in names for row in cells_in(name)}
    return "-".join(str(number) for number in sorted({min(numbers), max(numbers)}))


def covered(row: Mapping[str, str]) -> dict[str, float]:
    """Column -> coverage by imbtorch."""
    return {key: float(value) for key, value in row.items() if key.startswith("covered") and value}


def wide(name: str) -> list[float]:
    """Widths of imbtorch's intervals of a file, relative to the central 95% of the estimates."""
    keys = [key for key in cells_in(name)[0] if key in RELATIVE.get(name, ()) or WIDTH.fullmatch(key)]
    return [float(row[key]) for row in cells_in(name) for key in keys if row[key]]


def weak_cells(limit: float) -> list[list[str]]:
    """File, settings and name common to its cells below a limit, and names and coverage of these cells."""
    rows = []
    for file in ("intervals_least", *(file for files in KINDS_OF_INTERVALS.values() for file in files)):
        found, low = cells_in(file), []
        for row in found:
            below = {key[8:]: value for key, value in covered(row).items() if value < limit}
            low += [(row, below)] if below else []
        if low:
            names = {name for _, below in low for name in below}
            (alike,) = names if len(names) == 1 < len(low) else ("",)
            differ = {key for key in settings(found) if len({row[key] for row, _ in low}) > 1 or len(low) == 1}
            common = [key for key in settings(found) if key not in differ and len({row[key] for row in found}) > 1]
            keys = [key for key in telling(found) if key in differ]
            heading = ", ".join(filter(None, (named(low[0][0], common), alike)))
            parts = []
            for row, below in low:
                values = [f"{'' if alike else name} {value:.3f}".strip() for name, value in below.items()]
                parts.append(f"{named(row, keys)}: {', '.join(values)}")
            rows.append([file, f"{heading} - {'; '.join(parts)}" if heading else "; ".join(parts)])
    return rows


def printed() -> str:
    """Tables of the page, as Markdown."""
    least = [float(row["covered"]) for row in cells_in("intervals_least")]
    whole = {row["measure"]: row for row in cells_in("intervals_overall")}["all"]
    first = ["value: 2 to 50 classes", "intervals", whole["sets"], whole["cells"], whole["mean"]]
    kinds = [[*first, f"from {min(least):.3f}", str(sum(value < 0.9 for value in least)), error_of("400"), ""]]
    for kind, names in KINDS_OF_INTERVALS.items():
        found = [value for name in names for row in cells_in(name) for value in covered(row).values()]
        below = sum(value < 0.9 for value in found)
        files = ", ".join(f"{name}*" if name in OLDER else name for name in names)
        row = [kind, files, sets_of(*names), str(len(found)), f"{mean(found):.3f}"]
        widths = [value for name in names for value in wide(name)]
        told = f"{mean(widths):.2f}, {min(widths):.2f}-{max(widths):.2f}" if widths else ""
        kinds.append([*row, f"{min(found):.3f}-{max(found):.3g}", str(below), error_of(sets_of(*names)), told])
    rates = []
    for what, (name, column) in RATES.items():
        key, only = ONLY.get(name, ("sets", ""))
        found = [float(row[column]) for row in cells_in(name) if row[column] and only in ("", row[key])]
        row = [what, name, sets_of(name), str(len(found))]
        rates.append([*row, f"{mean(found):.3f}", f"{min(found):.3g} to {max(found):.3g}"])
    tables = [
        markdown(["95% interval of", "CSV", "sets", "cells", "mean", "range", "< .90", "error", "width"], kinds),
        "Every cell below .90:\n\n" + markdown(["CSV", "cells"], weak_cells(0.9)),
        markdown(["other rates", "CSV", "sets", "cells", "mean", "range"], rates),
    ]
    return "\n\n".join(tables)


def error_of(sets: str) -> str:
    """Monte-Carlo error of the coverage of a cell, the standard deviation at a coverage of .95; of the fewest sets."""
    return f"{(0.95 * 0.05 / int(sets.split('-')[0])) ** 0.5:.3f}"


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(line) + " |" for line in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def cells_text(found: re.Match[str]) -> str:
    """Coverage and width of the cells of some files, behind the mark that names them."""
    names = found[1].split(", ")
    held = [value for name in names for row in cells_in(name) for value in covered(row).values()]
    text = f"covers {min(held):.3f} to {max(held):.3g}, {mean(held):.3f} in the mean of {len(held)} cells (error "
    text += error_of(sets_of(*names)).lstrip("0") + ")"
    if widths := [value for name in names for value in wide(name)]:
        text += f"; width {mean(widths):.2f}, up to {max(widths):.2f}"
    return f"<!-- cells of {found[1]} -->{text}.<!-- end -->"


def written(page: str) -> str:
    """Page whose tables are those that the CSV files print."""
    page = re.sub("<!-- cells of (.*?) -->.*?<!-- end -->", cells_text, page, flags=re.DOTALL)
    if MARKS[0] not in page:
        return page
    above, rest = page.split(MARKS[0])
    return f"{above}{MARKS[0]}\n\n{printed()}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


def main() -> None:
    """Simulate the tables that were asked for, or print those of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], metavar="table", help=", ".join(TABLES))
    parser.add_argument(
        "--page", action="store_true", help="write the tables of coverage.md and the figures of methods.md"
    )
    parser.add_argument("--sets", type=int, help="sets of a cell; prints instead of writing")
    parser.add_argument("--seed", type=int, help="default: that of the CSV file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    given = parser.parse_args()
    if not given.tables and not given.page:
        parser.error(f"name tables, or --page: {', '.join(TABLES)}")
    with ProcessPoolExecutor(given.jobs) as pool:
        for name in given.tables:
            for file, rows in simulated(name, given.sets, given.seed, pool).items():
                if given.sets:
                    print(f"{file}.csv")
                    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
                else:
                    with (FOLDER / f"{file}.csv").open("w", encoding="utf-8", newline="") as out:
                        csv.writer(out, lineterminator="\n").writerows(rows)
    if given.page:
        for page in (PAGE, METHODS):
            page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
