"""Measures by simulation how often 95 % intervals hold the true value, and prints it for each method and measure.

    python examples/coverage.py --quick            # one minute at most
    python examples/coverage.py --binary --many    # both sections, under ten minutes

Test sets are drawn with fixed class totals from classes whose recalls are known; the true value is that of the expected
counts. Each test set gets an interval by each method, all test sets of a case in one batched call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

import imbtorch
from imbtorch.analysis import intervals

Method = Callable[[Tensor, int], dict[str, intervals.Interval]]

MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "IAM": imbtorch.imbalance_accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
    "G-mean": imbtorch.geometric_mean,
    "MCC": imbtorch.matthews_corrcoef,
}
METHODS: dict[str, Method] = {
    "posterior, Jeffreys": lambda counts, draws: intervals.posterior(MEASURES, counts, samples=draws),
    "posterior, uniform": lambda counts, draws: intervals.posterior(MEASURES, counts, "uniform", samples=draws),
    "bootstrap, stratified": lambda counts, draws: intervals.bootstrap(MEASURES, counts, draws, stratified=True),
    "bootstrap": lambda counts, draws: intervals.bootstrap(MEASURES, counts, draws),
}
NEGATIVES = 300


def expected(totals: Tensor, recalls: Tensor) -> Tensor:
    """Expected counts ``[K, K]``: the wrong predictions of a class are spread evenly over the other classes."""
    size = len(totals)
    right = torch.eye(size, dtype=torch.float64)
    return totals.unsqueeze(-1) * (
        recalls.unsqueeze(-1) * right + (1 - recalls).unsqueeze(-1) * (1 - right) / (size - 1)
    )


def test_sets(truth: Tensor, number: int) -> Tensor:
    """Counts ``[number, K, K]`` with the class totals of the expected ones: each cell a part of what is left."""
    counts = truth.new_zeros(number, *truth.shape)
    left, behind = truth.sum(-1).round().expand(number, -1).clone(), truth.sum(-1)
    for column in range(truth.shape[-1]):
        chance = (truth[:, column] / behind.clamp(min=1e-12)).clamp(0, 1)
        counts[..., column] = torch.binomial(left, chance.expand_as(left)) if column < len(truth) - 1 else left
        left = left - counts[..., column]
        behind = behind - truth[:, column]
    return counts


def coverage(truth: Tensor, number: int, draws: int, at_once: int) -> dict[str, list[float]]:
    """Share of test sets whose interval holds the true value, for each method a figure for each measure."""
    kinds, times = torch.unique(test_sets(truth, number), dim=0, return_counts=True)
    found = {}
    for name, method in METHODS.items():
        held = dict.fromkeys(MEASURES, 0)
        for some, often in zip(kinds.split(at_once), times.split(at_once), strict=True):
            for which, interval in method(some, draws).items():
                value = MEASURES[which](truth)
                within = (interval.low <= value + 1e-9) & (value <= interval.high + 1e-9)
                held[which] += int((within * often).sum())
        found[name] = [each / number for each in held.values()]
    return found


def table(title: str, rows: list[list[str]], number: int) -> None:
    """Print a Markdown table."""
    columns = ["case", *METHODS]
    error = 2 * (0.95 * 0.05 / number) ** 0.5
    print(f"\n### {title}\n\n{' / '.join(MEASURES)}; {number} test sets, two standard errors at .95: +-{error:.3f}\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def row(case: str, found: dict[str, list[float]]) -> list[str]:
    """Cells of a row, coverages without their leading zero."""
    return [case, *(" ".join(f"{each:.2f}".removeprefix("0") for each in found[name]) for name in METHODS)]


def binary(quick: bool) -> None:
    """Two classes, few positives."""
    number, draws = (1000, 500) if quick else (3000, 1000)
    for tnr in (0.9, 0.99):
        rows = []
        for tpr in (0.5, 0.9, 0.99):
            for positives in (3, 10, 30, 100):
                truth = expected(torch.tensor([NEGATIVES, positives]).double(), torch.tensor([tnr, tpr]).double())
                rows.append(row(f"n+ {positives}, TPR {tpr:g}", coverage(truth, number, draws, 2000)))
        table(f"K = 2, {NEGATIVES} negatives, TNR {tnr:g}", rows, number)


def many(quick: bool) -> None:
    """Ten and a hundred classes whose totals fall geometrically from 500 to 10."""
    for size in (10, 100):
        number, draws = ((150, 300), (24, 150))[size > 10] if quick else ((600, 500), (80, 200))[size > 10]
        totals = torch.logspace(torch.tensor(500.0).log10(), 1, size).round().double()
        falling = torch.linspace(0.95, 0.4, size, dtype=torch.float64)
        cases = {f"recall {p:g}": torch.full_like(falling, p) for p in (0.5, 0.9, 0.99)} | {
            "recall .95 falling to .4": falling
        }
        if quick and size > 10:
            cases = {"recall 0.9": cases["recall 0.9"]}
        rows = [row(name, coverage(expected(totals, p), number, draws, 100)) for name, p in cases.items()]
        table(f"K = {size}, 500 samples in the largest class to 10 in the smallest", rows, number)


SECTIONS = {"binary": binary, "many": many}


def main() -> None:
    """Run the sections that were asked for, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=section.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer test sets and draws")
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    torch.set_num_threads(1)
    torch.manual_seed(given["seed"])
    start = time.perf_counter()
    chosen = [name for name in SECTIONS if given[name]] or list(SECTIONS)
    for name in chosen:
        SECTIONS[name](given["quick"])
    print(f"\ntorch {torch.__version__}, {time.perf_counter() - start:.0f} s on one core")


if __name__ == "__main__":
    main()
