"""Bias and coverage of the gain that a sweep of logit adjustments tells, simulated.

Normal classes with a long tail give calibrated logits, which are also doubled, as those of overconfident networks. Of
200,000 samples the value at each tau is known. Validation sets of 300 and 1,000 are drawn from them; each chooses tau,
and the true gain of that tau is compared with the gain that the same set shows at it, with the gain that is told, and
with its interval. A second table has rare classes.

python examples/adjustments.py  # 100 sets a cell, some twenty minutes; prints adjustments.md
python examples/adjustments.py 20  # 20 sets
"""

import sys
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import imbtorch
from imbtorch import LogitAdjustment, Margins
from imbtorch.deciding.adjustments import Adjustments
from imbtorch.intervals.intervals import Interval

CLASSES, SAMPLES, CONFIDENCE = (3, 10, 56), (300, 1000), (1.0, 2.0)
MEASURES = {
    "balanced accuracy": imbtorch.balanced_accuracy,
    "macro F1": partial(imbtorch.f_score, average="macro"),
    "IAM": imbtorch.imbalance_accuracy,
}
TAUS = tuple(step / 8 for step in range(-16, 25))
POPULATION, DIMENSIONS, BUCKETS = 200_000, 8, 64


HEAD = """# The gain of logit adjustment

Written by `python examples/adjustments.py`; see there for what was simulated. Gains and biases are means in percentage
points; coverage is that of 95% intervals. Shown: share of sets whose interval is above 0.
"""


RARE_HEAD = """
## Rare classes

Twice as many sets. Shares fall evenly from the largest class to the rarest, or some classes are frequent and the others
rare. Logits: calibrated, times 2 or 3, or of a balanced loss, which leaves the shares out. Rarest: expected samples of
the rarest class. True gain: of balanced accuracy (BA). No hit: number of sets in which the range of BA says that no
sample of the rarest class, or of several, is right at either tau, and coverage in them.

| classes | samples | shares | gap | logits | rarest | true gain | BA | width | F1 | width | IAM | width | no hit | BA |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


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
        return torch.stack([LogitAdjustment(shares, tau)(logits).argmax(1) for tau in TAUS]), target


RARE = (
    Cell(2, 1000, rarest=1 / 99),
    Cell(2, 200, rarest=1 / 19),
    Cell(2, 300, 2.0, 1 / 99, gap=1.5),
    Cell(2, 5000, rarest=1 / 999),
    Cell(3, 60),
    Cell(3, 150),
    Cell(4, 200, rarest=0.05, gap=1.5),
    Cell(4, 400, 2.0, frequent=2),
    Cell(5, 500, 3.0),
    Cell(6, 150, balanced=True),
    Cell(7, 1000, rarest=0.005),
    Cell(8, 60, frequent=1),
    Cell(8, 300, frequent=1, gap=0.3),
    Cell(12, 600, 2.0, 0.05, frequent=6),
    Cell(15, 400, 3.0, 0.1, frequent=7, gap=0.7),
    Cell(20, 150, rarest=0.01, frequent=1),
    Cell(20, 300, rarest=0.01, frequent=1, gap=0.3),
    Cell(20, 1000, balanced=True),
    Cell(50, 500, balanced=True),
)


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


def simulated(cell: Cell, sets: int) -> dict[str, list[tuple[float, ...]]]:
    """Return measure -> for each set the true, the uncorrected, and the corrected gain with its bounds, and whether its
    text names rare classes without hits.
    """
    classes, samples = cell.classes, cell.samples
    chosen, target = cell.population()
    whole = counted(chosen, target, torch.zeros_like(target), classes, 1)
    truths = {name: measure(Adjustments(TAUS, whole).total) for name, measure in MEASURES.items()}
    plain, found = TAUS.index(0), {name: [] for name in MEASURES}
    for seed in range(sets):
        generator = torch.Generator().manual_seed(seed)
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


def rare_classes(sets: int) -> None:
    """Print the table of rare classes."""
    print(RARE_HEAD)
    for cell in RARE:
        found = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in simulated(cell, sets).items()}
        shares = f"1 : {cell.rarest:.3g}" + f", {cell.frequent} frequent" * bool(cell.frequent)
        logits = "balanced loss" if cell.balanced else f"x{cell.confidence:g}"
        rarest = cell.samples * cell.rarest / float(cell.shares().sum())
        row = [f"{cell.classes}", f"{cell.samples:,}", shares, f"{cell.gap:g}", logits, f"{rarest:.1f}"]
        first, blind = found["balanced accuracy"], found["balanced accuracy"][:, 5] > 0
        row.append(f"{100 * first[:, 0].mean():.1f}")
        for rows in found.values():
            row += [f"{coverage(rows).mean():.3f}", f"{100 * (rows[:, 4] - rows[:, 3]).mean():.1f}"]
        row += [f"{int(blind.sum())}", f"{coverage(first[blind]).mean():.3f}" if blind.any() else "-"]
        print("| " + " | ".join(row) + " |", flush=True)


def main(sets: int) -> None:
    """Print the tables as Markdown."""
    print(HEAD)
    print("| measure | classes | samples | logits | true gain | bias | corrected bias | coverage | width | shown |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    cells = []
    for classes in CLASSES:
        for samples in SAMPLES:
            for confidence in CONFIDENCE:
                for name, rows in simulated(Cell(classes, samples, confidence), sets).items():
                    true, seen, told, low, high, _ = torch.tensor(rows, dtype=torch.float64).T
                    covers = coverage(torch.tensor(rows, dtype=torch.float64)).mean()
                    scale = "calibrated" if confidence == 1 else "doubled"
                    numbers = [100 * x.mean() for x in (true, seen - true, told - true)]
                    cells.append((name, float(covers), *map(float, numbers)))
                    width, shown = 100 * (high - low).mean(), (low > 0).double().mean()
                    print(
                        f"| {name} | {classes} | {samples:,} | {scale} | {numbers[0]:.1f} | {numbers[1]:+.1f} | "
                        f"{numbers[2]:+.1f} | {covers:.3f} | {width:.1f} | {shown:.2f} |",
                        flush=True,
                    )
    for name in MEASURES:
        own = torch.tensor([row[1:] for row in cells if row[0] == name])
        print(
            f"\n{name}: coverage {own[:, 0].mean():.3f} on average, {own[:, 0].min():.3f} at least; bias of the "
            f"corrected gain {own[:, 3].min():+.1f} to {own[:, 3].max():+.1f} points, of the uncorrected gain "
            f"{own[:, 2].min():+.1f} to {own[:, 2].max():+.1f}."
        )
    rare_classes(2 * sets)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
