"""Bias and coverage of the gain that a sweep of logit adjustments tells, simulated.

Normal classes with a long tail give calibrated logits, which are also doubled, as those of overconfident networks. Of
200,000 samples the value at each tau is known. Validation sets of 300 and 1,000 are drawn from them; each chooses tau,
and the true gain of that tau is compared with the gain that the same set shows at it, with the gain that is told, and
with its interval.

python examples/adjustments.py  # 100 sets a cell, some ten minutes; prints adjustments.md
python examples/adjustments.py 20  # 20 sets
"""

import sys
from functools import partial

import torch
from torch import Tensor

import imbtorch
from imbtorch import LogitAdjustment, Margins
from imbtorch.statistics.adjustments import Adjustments
from imbtorch.statistics.intervals import Interval

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


def population(classes: int, confidence: float) -> tuple[Tensor, Tensor]:
    """Return the class chosen at each tau ``[T, N]`` and the target of each sample ``[N]``."""
    generator = torch.Generator().manual_seed(classes)
    shares = 0.02 ** (torch.arange(classes) / (classes - 1))
    centres = torch.randn(classes, DIMENSIONS, generator=generator) * 0.9
    target = torch.multinomial(shares, POPULATION, True, generator=generator)
    points = centres[target] + torch.randn(POPULATION, DIMENSIONS, generator=generator)
    logits = confidence * ((shares / shares.sum()).log() - torch.cdist(points, centres) ** 2 / 2)
    return torch.stack([LogitAdjustment(shares, tau)(logits).argmax(1) for tau in TAUS]), target


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


def simulated(classes: int, confidence: float, samples: int, sets: int) -> dict[str, list[tuple[float, ...]]]:
    """Return measure -> for each set the true, the uncorrected, and the corrected gain with its bounds."""
    chosen, target = population(classes, confidence)
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
            found[name].append(tuple(float(each) for each in row))
    return found


def main(sets: int) -> None:
    """Print a table as Markdown."""
    print(HEAD)
    print("| measure | classes | samples | logits | true gain | bias | corrected bias | coverage | width | shown |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    cells = []
    for classes in CLASSES:
        for samples in SAMPLES:
            for confidence in CONFIDENCE:
                for name, rows in simulated(classes, confidence, samples, sets).items():
                    true, seen, told, low, high = torch.tensor(rows).T
                    covers = ((low <= true + 1e-9) & (true <= high + 1e-9)).double().mean()
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
