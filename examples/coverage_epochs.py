"""Bias and coverage of the choice of an epoch by `select_epoch`: tables ``epochs`` and ``few_hits`` of ``coverage.py``.

Each run draws a validation set and the predictions of 40 epochs on it, of which the true confusion rates are known. The
epochs see the same samples, and a sample that is hard in one epoch is hard in the next. One epoch is chosen by the
value; its value, the corrected one, its interval, the set of indistinguishable epochs and the limit of how far these
lie below the best are compared with the true value of the chosen epoch and with the truly best epoch. A row
is the mean over seven scenarios, and ``worst`` or ``least`` the worst of them. ``few_hits`` is of G-mean where a class
has few hits: one recall of 0 makes it 0, and `select_epoch` corrects only a share of the runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import imbtorch
from imbtorch.statistics import posterior, select_epoch

EPOCHS = 40
DRAWS = 1000  # of each posterior
COMMON = 200  # samples of the largest class
MEASURES: dict[str, Callable[[Tensor], Tensor]] = {"BA": imbtorch.balanced_accuracy, "IAM":
    imbtorch.imbalance_accuracy, "G-mean": imbtorch.geometric_mean, "macro F1": partial(imbtorch.f_score,
    average="macro")}  # fmt: skip
CASES = {2: (5, 10, 30, 100), 5: (5, 10, 30), 10: (5, 10, 30)}  # classes -> samples of the rarest class
HARD = 0.5  # share of a sample's difficulty that stays over all epochs
STEADY = 0.8  # correlation of the rest with the next epoch


class Seen(NamedTuple):
    """Values of one run for one measure; None where the value is not corrected, or the choice has no stability."""

    raw: float  # value of the chosen epoch minus its true value
    corrected: float | None
    covered: bool | None
    covered_raw: bool  # by the plain interval at the chosen epoch
    width: float | None  # over that of the plain interval
    best_in_set: bool
    size: int  # of the set
    shortfall: float  # how far the worst of the set truly lies below the best
    limit: float  # what is said of that
    within: bool
    stability: float | None
    truly_best: bool


# --- epochs with known truth ----------------------------------------------------------------------------------------


def recalls(scenario: str, classes: int, generator: torch.Generator) -> Tensor:
    """True recalls ``[EPOCHS, K]``; class 0 is the most common, the last the rarest."""
    time = torch.linspace(0, 1, EPOCHS, dtype=torch.float64)
    swing = (1 - torch.cos(8 * math.pi * time)) / 2
    common, rare = {
        "plateau": (0.9 + 0 * time, 0.6 + 0 * time),
        "learning": (0.6 + 0.3 * (1 - torch.exp(-8 * time)), 0.2 + 0.45 * (1 - torch.exp(-5 * time))),
        "drift": (0.97 - 0.2 * time, 0.45 + 0.3 * time),
        "overfitting": (0.8 + 0.15 * time, 0.75 - 1.2 * (time - 0.4) ** 2),
        "jitter": (0.9 + 0 * time, 0.6 + 0 * time),
        "seesaw": (0.95 - 0.15 * swing, 0.45 + 0.3 * swing),
        "collapse": (0.8 + 0.15 * time, torch.where(time < 0.6, 0.35 + 0.5 * time, 0.2)),
    }[scenario]
    rarity = torch.linspace(0, 1, classes, dtype=torch.float64)
    mixed = common.unsqueeze(-1) * (1 - rarity) + rare.unsqueeze(-1) * rarity
    if scenario == "jitter":
        mixed = torch.sigmoid(torch.logit(mixed) + 0.3 * torch.randn(mixed.shape, generator=generator).double())
    return mixed


SCENARIOS = ("plateau", "learning", "drift", "overfitting", "jitter", "seesaw", "collapse")


def confused(classes: int) -> Tensor:
    """What a wrong prediction is, ``[K, K]``: one half the most common class, the rest evenly."""
    wrong = 1 - torch.eye(classes, dtype=torch.float64)
    wrong = wrong / wrong.sum(-1, keepdim=True)
    wrong[1:] /= 2
    wrong[1:, 0] += 0.5
    return wrong


def drawn(right: Tensor, totals: Tensor, generator: torch.Generator, hard: float = HARD) -> tuple[Tensor, Tensor]:
    """Predictions ``[EPOCHS, N]`` and targets ``[N]``."""
    target = torch.repeat_interleave(torch.arange(len(totals)), totals)
    number = len(target)
    noise = torch.randn(EPOCHS, number, generator=generator)
    for epoch in range(1, EPOCHS):
        noise[epoch] = STEADY * noise[epoch - 1] + math.sqrt(1 - STEADY**2) * noise[epoch]
    difficulty = math.sqrt(hard) * torch.randn(number, generator=generator) + math.sqrt(1 - hard) * noise
    correct = torch.special.ndtr(difficulty) < right[:, target]
    instead = torch.multinomial(confused(len(totals))[target], 1, generator=generator).squeeze(-1)
    return torch.where(correct, target, instead).to(torch.uint8), target


def truth(right: Tensor, totals: Tensor) -> Tensor:
    """Expected counts ``[EPOCHS, K, K]``."""
    rates = torch.diag_embed(right) + (1 - right).unsqueeze(-1) * confused(len(totals))
    return totals.unsqueeze(-1) * rates


def run(scenario: str, totals: Tensor, generator: torch.Generator, draws: int) -> Iterator[tuple[str, Seen]]:
    """One validation set, judged by each measure."""
    right = recalls(scenario, len(totals), generator)
    predictions, target = drawn(right, totals, generator)
    expected = truth(right, totals)
    chosen = select_epoch(predictions, target, MEASURES, num_classes=len(totals), draws=draws, generator=generator)
    for name, found in chosen.items():
        true = MEASURES[name](expected)
        value = true[found.epoch].item()
        best = true.max() - true < 1e-9
        of_best = best.nonzero().flatten()
        one = int(of_best[torch.randint(len(of_best), (1,), generator=generator)])
        predicted = predictions[found.epoch].long()
        counts = imbtorch.confusion_matrix(predicted, target, "multiclass", num_classes=len(totals))
        plain = posterior(MEASURES[name], counts, draws=draws, generator=generator)
        plain_low, plain_high = plain.low.item(), plain.high.item()
        covered = width = None
        if found.interval is not None:
            low, high = found.interval.low.item(), found.interval.high.item()
            covered, width = low <= value <= high, (high - low) / (plain_high - plain_low)
        shortfall = (true.max() - true[list(found.indistinguishable)].min()).item()
        yield (
            name,
            Seen(
                raw=found.value - value,
                corrected=None if found.corrected is None else found.corrected - value,
                covered=covered,
                covered_raw=plain_low <= value <= plain_high,
                width=width,
                best_in_set=one in found.indistinguishable,
                size=len(found.indistinguishable),
                shortfall=shortfall,
                limit=found.shortfall,
                within=shortfall <= found.shortfall + 1e-9,
                stability=found.stability,
                truly_best=bool(best[found.epoch]),
            ),
        )


# --- few hits -------------------------------------------------------------------------------------------------------


def one_and_gmean(counts: Tensor) -> Tensor:
    """G-mean and 1, which no recall makes 0: `select_epoch` corrects it always."""
    return 1 + imbtorch.geometric_mean(counts)


def few_hits(sets: int, classes: int, rare: int, recall: float, seed: int) -> list[float]:
    """Share of runs whose G-mean is corrected, their biases, and those of the others; half of the classes are rare."""
    is_rare = torch.arange(classes) >= classes // 2
    totals = torch.where(is_rare, rare, COMMON)
    generator = torch.Generator().manual_seed(seed * 10_000 + classes * 100 + rare * 10 + round(10 * recall))
    time = torch.linspace(0, 1, EPOCHS, dtype=torch.float64).unsqueeze(-1)
    right = torch.where(is_rare, recall * (1 - 0.5 * torch.exp(-4 * time)), 0.95 - 0.25 * torch.exp(-6 * time))
    true = imbtorch.geometric_mean(truth(right, totals))
    both = {"G-mean": imbtorch.geometric_mean, "always": one_and_gmean}
    rows: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(sets):
        predictions, target = drawn(right, totals, generator, hard=0.9)
        found = select_epoch(predictions, target, both, num_classes=classes, draws=DRAWS, generator=generator)
        always, value = found["always"], true[found["always"].epoch].item()
        assert always.corrected is not None
        rows[found["G-mean"].corrected is None].append((always.value - 1 - value, always.corrected - 1 - value))
    row = [len(rows[False]) / sets]
    for some in (rows[False], rows[True]):
        row += [sum(column) / len(some) for column in zip(*some, strict=True)] if some else [math.nan, math.nan]
    return row


# --- rows -----------------------------------------------------------------------------------------------------------

CELLS = [(classes, rare) for classes, several in CASES.items() for rare in several]
FEW = [(classes, rare, recall) for classes in CASES for rare in (5, 10, 20) for recall in (0.1, 0.3, 0.6)]
FEW_HITS = "K, rare, recall | corrected share, bias, corrected bias, bias of others, corrected bias of others"
COLUMNS = (
    "K, rare | measure, bias, corrected bias, worst corrected bias, corrected share, plain coverage, least plain "
    "coverage, covered mean, covered least, width, best among, least best among, set size, shortfall, limit, "
    "within limit, least within limit, stability, truly best"
)


def of_epochs(sets: int, classes: int, rare: int, seed: int) -> list[list[str | float]]:
    """Row of each measure."""
    totals = torch.logspace(math.log10(COMMON), math.log10(rare), classes).round().long()
    seen: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for number, scenario in enumerate(SCENARIOS):
        generator = torch.Generator().manual_seed(seed * 1000 + number * 100 + classes * 7 + rare)
        for _ in range(sets):
            for name, one in run(scenario, totals, generator, DRAWS):
                seen[name][scenario].append(one)
    return [[name, *row(by_scenario)] for name, by_scenario in seen.items()]


def mean(seen: list[Seen], what: str) -> float:
    """Mean over the runs that have it."""
    values = [getattr(each, what) for each in seen if getattr(each, what) is not None]
    return sum(values) / len(values) if values else math.nan


def row(by_scenario: dict[str, list[Seen]]) -> list[float]:
    """Values of one case and measure."""

    def over(what: str) -> list[float]:
        """Mean and least of the scenarios."""
        found = [value for seen in by_scenario.values() if not math.isnan(value := mean(seen, what))]
        return [sum(found) / len(found), min(found)] if found else [math.nan, math.nan]

    every = [one for seen in by_scenario.values() for one in seen]
    moving = [one for name, seen in by_scenario.items() if name != "plateau" for one in seen]
    left = [value for seen in by_scenario.values() if not math.isnan(value := mean(seen, "corrected"))]
    widths = sorted(one.width for one in every if one.width is not None)
    biases = [mean(every, "raw"), *([sum(left) / len(left), max(left, key=abs)] if left else [math.nan, math.nan])]
    return [
        *biases,
        len(widths) / len(every),
        *over("covered_raw"),
        *over("covered"),
        widths[len(widths) // 2] if widths else math.nan,
        *over("best_in_set"),
        *(mean(every, what) for what in ("size", "shortfall", "limit")),
        *over("within"),
        mean(every, "stability"),
        mean(moving, "truly_best"),
    ]
