"""Bias and coverage of the gain that a sweep of logit adjustments tells: tables ``gains`` and ``rare_gains``.

Run by ``coverage.py``. Normal classes with a long tail give calibrated logits, which are also multiplied, as those of
overconfident networks, or leave the class shares out, as those of a balanced loss. Of 200,000 samples the value at each
tau is known. Validation sets are drawn from them; each chooses tau, and the true gain of that tau is compared with the
gain that the same set shows at it, with the gain that is told, and with its interval. Gains, biases and widths are in
percentage points. Shown: share of sets whose interval is above 0. No hit: number of sets whose text says that rare
classes have no correct prediction at either tau, and coverage in them.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

import imbtorch
from imbtorch import LogitAdjustment, Margins
from imbtorch.deciding.adjustments import Adjustments
from imbtorch.intervals.intervals import Interval

MEASURES = {"balanced accuracy": imbtorch.balanced_accuracy, "macro F1": partial(imbtorch.f_score, average="macro"),
    "IAM": imbtorch.imbalance_accuracy}  # fmt: skip
TAUS = tuple(step / 8 for step in range(-16, 25))
POPULATION, DIMENSIONS, BUCKETS = 200_000, 8, 64


class Cell(NamedTuple):
    """A population, and the number of samples of a set."""

    classes: int
    samples: int
    confidence: float = 1.0
    rarest: float = 0.02  # share of the rarest class in that of the largest
    frequent: int = 0  # number of frequent classes, of which the others have the share; 0: shares fall evenly
    gap: float = 0.9  # standard deviation of the centres of classes
    balanced: bool = False  # whether logits leave out the class shares

    def shares(self) -> Tensor:
        """Return the class shares, relative to the largest."""
        order = torch.arange(self.classes)
        if self.frequent:
            return torch.where(order < self.frequent, 1.0, self.rarest)
        return self.rarest ** (order / (self.classes - 1))

    def population(self) -> tuple[Tensor, Tensor]:
        """Return the class chosen at each tau ``[T, N]`` and the target of each sample ``[N]``."""
        generator = torch.Generator().manual_seed(self.classes)
        shares = self.shares()
        centres = torch.randn(self.classes, DIMENSIONS, generator=generator) * self.gap
        target = torch.multinomial(shares, POPULATION, True, generator=generator)
        points = centres[target] + torch.randn(POPULATION, DIMENSIONS, generator=generator)
        known = 0.0 if self.balanced else (shares / shares.sum()).log()
        logits = self.confidence * (known - torch.cdist(points, centres) ** 2 / 2)
        return torch.stack([LogitAdjustment(shares, tau, logits=True)(logits).argmax(1) for tau in TAUS]), target


CELLS = [(Cell(*case),) for case in product((3, 10, 56), (300, 1000), (1.0, 2.0))]
OF_RARE = (Cell(2, 1000, rarest=1 / 99), Cell(2, 200, rarest=1 / 19), Cell(2, 300, 2.0, 1 / 99, gap=1.5), Cell(2,
    5000, rarest=1 / 999), Cell(3, 60), Cell(3, 150), Cell(4, 200, rarest=0.05, gap=1.5), Cell(4, 400, 2.0,
    frequent=2), Cell(5, 500, 3.0), Cell(6, 150, balanced=True), Cell(7, 1000, rarest=0.005), Cell(8, 60, frequent=1),
    Cell(8, 300, frequent=1, gap=0.3), Cell(12, 600, 2.0, 0.05, frequent=6), Cell(15, 400, 3.0, 0.1, frequent=7,
    gap=0.7), Cell(20, 150, rarest=0.01, frequent=1), Cell(20, 300, rarest=0.01, frequent=1, gap=0.3), Cell(20, 1000,
    balanced=True), Cell(50, 500, balanced=True))  # fmt: skip
RARE = [(cell,) for cell in OF_RARE]


def counted(chosen: Tensor, target: Tensor, bucket: Tensor, classes: int, buckets: int) -> Margins:
    """Count margins of buckets: ``[B, T, K]``, the targets ``[B, 1, K]``."""
    taus = torch.arange(len(chosen)).unsqueeze(-1)
    cells = (bucket * len(chosen) + taus) * classes + chosen
    size = buckets * len(chosen) * classes
    right, predicted = (
        torch.bincount(part.flatten(), minlength=size).reshape(buckets, -1, classes)
        for part in (cells[chosen == target], cells)
    )
    actual = torch.bincount(bucket * classes + target, minlength=buckets * classes)
    return Margins(right, actual.reshape(buckets, 1, classes), predicted)


def simulated(cell: Cell, sets: int, seed: int) -> dict[str, list[tuple[float, ...]]]:
    """Return measure -> for each set the true, the uncorrected, and the corrected gain with its bounds, and whether its
    text names rare classes without hits.
    """
    classes, samples = cell.classes, cell.samples
    chosen, target = cell.population()
    whole = counted(chosen, target, torch.zeros_like(target), classes, 1)
    truths = {name: measure(Adjustments(TAUS, whole).total) for name, measure in MEASURES.items()}
    plain, found = TAUS.index(0), {name: [] for name in MEASURES}
    for number in range(sets):
        generator = torch.Generator().manual_seed(10**6 * seed + number)
        some = torch.randint(POPULATION, (samples,), generator=generator)
        buckets = torch.randint(BUCKETS, (samples,), generator=generator)
        own = Adjustments(TAUS, counted(chosen[:, some], target[some], buckets, classes, BUCKETS))
        for name, measure in MEASURES.items():
            place = own.chosen(measure, {})
            gain: Interval = own.gain(measure, {}, place, 0.95, generator)
            values, truth = measure(own.total), truths[name]
            row = (truth[place] - truth[plain], values[place] - values[plain], gain.estimate, gain.low, gain.high)
            found[name].append((*map(float, row), float("is right" in gain.method)))
    return found


def coverage(rows: Tensor) -> Tensor:
    """Return whether the bounds of each set ``[S, 6]`` hold the true gain."""
    true, _, _, low, high, _ = rows.T
    return ((low <= true + 1e-9) & (true <= high + 1e-9)).double()


KEYS = "classes, samples, times, share of the rarest, frequent, gap, balanced loss"
COLUMNS = f"{KEYS} | measure, true gain, bias, corrected bias, covered, width, shown"
RARE_COLUMNS = f"{KEYS} | expected of the rarest, true gain of BA, covered BA, BA width, covered macro F1, "
RARE_COLUMNS += "macro F1 width, covered IAM, IAM width, no hit, covered BA without hits"


def of_measures(sets: int, cell: Cell, seed: int) -> list[list[str | float]]:
    """Row of each measure: gain, bias as shown and as told, coverage and width."""
    rows: list[list[str | float]] = []
    for name, found in simulated(cell, sets, seed).items():
        every = torch.tensor(found, dtype=torch.float64)
        true, seen, told, low, high, _ = every.T
        means = [100 * float(x.mean()) for x in (true, seen - true, told - true)]
        width, shown = 100 * float((high - low).mean()), float((low > 0).double().mean())
        rows.append([name, *means, float(coverage(every).mean()), width, shown])
    return rows


def of_rare(sets: int, cell: Cell, seed: int) -> list[float]:
    """Expected samples of the rarest class, true gain of BA, coverages and widths, and sets without a hit."""
    found = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in simulated(cell, sets, seed).items()}
    first, blind = found["balanced accuracy"], found["balanced accuracy"][:, 5] > 0
    row = [cell.samples * cell.rarest / float(cell.shares().sum()), 100 * float(first[:, 0].mean())]
    for rows in found.values():
        row += [float(coverage(rows).mean()), 100 * float((rows[:, 4] - rows[:, 3]).mean())]
    return [*row, int(blind.sum()), float(coverage(first[blind]).mean()) if blind.any() else math.nan]
