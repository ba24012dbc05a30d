"""Measures by simulation how honest the choice of an epoch is: `imbtorch.analysis.select_epoch` against the truth.

    python examples/choosing.py --quick                       # half a minute
    python examples/choosing.py --classes 2 --rare 10         # one case of the full run, some four minutes
    python examples/choosing.py > choosing.md                 # all ten cases, less than an hour

Each run draws a validation set and the predictions of 40 epochs on it, of which the true confusion rates are known. The
epochs see the same samples, and a sample that is hard in one epoch is hard in the next. One epoch is chosen by the
value; its value, the corrected one, its interval and the set of epochs that cannot be told from it are held against
the true value of the chosen epoch and against the epoch that is truly the best.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import imbtorch
from imbtorch.analysis import posterior, select_epoch

EPOCHS = 40
COMMON = 200  # samples of the largest class
MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "BA": imbtorch.balanced_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
    "G-mean": imbtorch.geometric_mean,
    "macro F1": imbtorch.f_score,
}
CASES = {2: (5, 10, 30, 100), 5: (5, 10, 30), 10: (5, 10, 30)}  # classes -> samples of the rarest class
HARD = 0.5  # share of a sample's difficulty that stays over all epochs
STEADY = 0.8  # correlation of the rest with the next epoch


class Seen(NamedTuple):
    """What one run found for one measure."""

    raw: float  # value of the chosen epoch minus its true value
    corrected: float
    covered: bool
    covered_raw: bool  # by the plain interval at the chosen epoch
    width: float  # over that of the plain interval
    best_in_set: bool
    size: int  # of the set
    stability: float
    truly_best: bool


# --- epochs with known truth ----------------------------------------------------------------------------------------


def recalls(scenario: str, classes: int, generator: torch.Generator) -> Tensor:
    """True recalls ``[EPOCHS, K]``; class 0 is the most common, the last the rarest."""
    time = torch.linspace(0, 1, EPOCHS, dtype=torch.float64)
    common, rare = {
        "plateau": (0.9 + 0 * time, 0.6 + 0 * time),
        "learning": (0.6 + 0.3 * (1 - torch.exp(-8 * time)), 0.2 + 0.45 * (1 - torch.exp(-5 * time))),
        "drift": (0.97 - 0.2 * time, 0.45 + 0.3 * time),
        "overfitting": (0.8 + 0.15 * time, 0.75 - 1.2 * (time - 0.4) ** 2),
        "jitter": (0.9 + 0 * time, 0.6 + 0 * time),
    }[scenario]
    rarity = torch.linspace(0, 1, classes, dtype=torch.float64)
    mixed = common.unsqueeze(-1) * (1 - rarity) + rare.unsqueeze(-1) * rarity
    if scenario == "jitter":
        mixed = torch.sigmoid(torch.logit(mixed) + 0.3 * torch.randn(mixed.shape, generator=generator).double())
    return mixed


SCENARIOS = ("plateau", "learning", "drift", "overfitting", "jitter")


def confused(classes: int) -> Tensor:
    """What a wrong prediction is, ``[K, K]``: one half the most common class, the rest evenly."""
    wrong = 1 - torch.eye(classes, dtype=torch.float64)
    wrong = wrong / wrong.sum(-1, keepdim=True)
    wrong[1:] /= 2
    wrong[1:, 0] += 0.5
    return wrong


def drawn(right: Tensor, totals: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Predictions ``[EPOCHS, N]`` and targets ``[N]``."""
    target = torch.repeat_interleave(torch.arange(len(totals)), totals)
    number = len(target)
    noise = torch.randn(EPOCHS, number, generator=generator)
    for epoch in range(1, EPOCHS):
        noise[epoch] = STEADY * noise[epoch - 1] + math.sqrt(1 - STEADY**2) * noise[epoch]
    difficulty = math.sqrt(HARD) * torch.randn(number, generator=generator) + math.sqrt(1 - HARD) * noise
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
    chosen = select_epoch(predictions, target, MEASURES, num_classes=len(totals), samples=draws, generator=generator)
    for name, found in chosen.items():
        true = MEASURES[name](expected)
        value = true[found.epoch].item()
        best = true.max() - true < 1e-9
        of_best = best.nonzero().flatten()
        one = int(of_best[torch.randint(len(of_best), (1,), generator=generator)])
        predicted = predictions[found.epoch].long()
        counts = imbtorch.confusion_matrix(predicted, target, "multiclass", num_classes=len(totals))
        plain = posterior(MEASURES[name], counts, samples=draws, generator=generator)
        low, high = found.interval.low.item(), found.interval.high.item()
        plain_low, plain_high = plain.low.item(), plain.high.item()
        yield (
            name,
            Seen(
                raw=found.value - value,
                corrected=found.corrected - value,
                covered=low <= value <= high,
                covered_raw=plain_low <= value <= plain_high,
                width=(high - low) / (plain_high - plain_low),
                best_in_set=one in found.indistinguishable,
                size=len(found.indistinguishable),
                stability=found.stability,
                truly_best=bool(best[found.epoch]),
            ),
        )


# --- tables ---------------------------------------------------------------------------------------------------------


def study(classes: int, rare: int, runs: int, draws: int, seed: int) -> dict[str, dict[str, list[Seen]]]:
    """What was seen, by measure and scenario."""
    totals = torch.logspace(math.log10(COMMON), math.log10(rare), classes).round().long()
    seen: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for number, scenario in enumerate(SCENARIOS):
        generator = torch.Generator().manual_seed(seed * 1000 + number * 100 + classes * 7 + rare)
        for _ in range(runs):
            for name, one in run(scenario, totals, generator, draws):
                seen[name][scenario].append(one)
    return seen


def mean(seen: list[Seen], what: str) -> float:
    return sum(getattr(each, what) for each in seen) / len(seen)


def bias_row(by_scenario: dict[str, list[Seen]]) -> list[str]:
    raw = [mean(seen, "raw") for seen in by_scenario.values()]
    left = [mean(seen, "corrected") for seen in by_scenario.values()]
    worst = max(left, key=abs)
    average = sum(map(abs, left)) / len(left)
    return [f"{sum(raw) / len(raw):+.3f}", f"{sum(left) / len(left):+.3f}", f"{average:.3f}", f"{worst:+.3f}"]


def interval_row(by_scenario: dict[str, list[Seen]]) -> list[str]:
    plain = [mean(seen, "covered_raw") for seen in by_scenario.values()]
    ours = [mean(seen, "covered") for seen in by_scenario.values()]
    widths = sorted(one.width for seen in by_scenario.values() for one in seen)
    return [
        f"{sum(plain) / len(plain):.2f} / {min(plain):.2f}",
        f"{sum(ours) / len(ours):.2f} / {min(ours):.2f}",
        f"{widths[len(widths) // 2]:.2f}",
    ]


def set_row(by_scenario: dict[str, list[Seen]]) -> list[str]:
    held = [mean(seen, "best_in_set") for seen in by_scenario.values()]
    every = [one for seen in by_scenario.values() for one in seen]
    return [
        f"{sum(held) / len(held):.3f} / {min(held):.3f}",
        f"{mean(every, 'size'):.0f}",
        f"{mean(every, 'stability'):.2f}",
        f"{mean([one for name, seen in by_scenario.items() if name != 'plateau' for one in seen], 'truly_best'):.2f}",
    ]


COLUMNS = [
    "K", "rare", "measure", "raw bias", "corrected", "mean abs", "worst", "plain coverage", "coverage", "width",
    "best in set", "set size", "stability", "truly best",
]  # fmt: skip


def main() -> None:
    """Run the cases that were asked for, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs of few cases")
    parser.add_argument("--classes", type=int, nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rare", type=int, nargs="+", help="samples of the rarest class (default: 5 to 100)")
    parser.add_argument("--runs", type=int, default=None, help="of each case and scenario (default: 200; quick: 10)")
    parser.add_argument("--draws", type=int, default=1000, help="of each posterior")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    runs = given.runs or (10 if given.quick else 200)
    torch.set_num_threads(1)
    start = time.perf_counter()
    print(f"{runs} runs of each of {len(SCENARIOS)} scenarios: {', '.join(SCENARIOS)}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for classes in given.classes:
        for rare in given.rare or (CASES[classes][1:2] if given.quick else CASES[classes]):
            for name, seen in study(classes, rare, runs, given.draws, given.seed).items():
                cells = [str(classes), str(rare), name, *bias_row(seen), *interval_row(seen), *set_row(seen)]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\ntorch {torch.__version__}, {time.perf_counter() - start:.0f} s on one core")


if __name__ == "__main__":
    main()
