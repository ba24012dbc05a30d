"""Which value should choose the epoch of a network for two classes? Trains, measures, reports.

    pip install -e ".[study]"
    python examples/monitor_study/monitors.py              # all sets, see protocol.md for the time
    python examples/monitor_study/monitors.py --report     # the tables of results.md from results.csv
    python examples/monitor_study/monitors.py --sets wine  # some families, to --out FOLDER

Sets, splits and networks are those of the study of thresholds; ways and comparisons are in ``protocol.md``. A row of
``results.csv`` stands for a task, regime and measure; its values are means over seeds: the number of positives in the
validation part (``rare``), the test value of the epoch that each way keeps at the threshold chosen there, and the
validation value by which the second way keeps its epoch (``said``).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "threshold_study"), str(HERE.parent / "decision_study")]

import run as of_thresholds  # noqa: E402
from networks import logits_of, trained_together  # noqa: E402
from report import interval, table, told, write_tables  # noqa: E402
from train import rate_at  # noqa: E402

from imbtorch.counts import evaluated  # noqa: E402
from imbtorch.deciding.curves import matrices_of  # noqa: E402
from imbtorch.deciding.histogram import Grid  # noqa: E402
from imbtorch.deciding.steady import steady_threshold  # noqa: E402

FIRST, SEEDS = 60, 3
EPOCHS = {"constant": 20, "falling": 20, "short": 6}  # by regime
MEASURES = {name: of_thresholds.MEASURES[name] for name in ("balanced_accuracy", "iam", "f1")}
SHOWN = {name: of_thresholds.SHOWN[name] for name in MEASURES}
WAYS = {"half": "best value at 0.5", "best": "best value at the best threshold", "loss": "lowest loss", "last": "last"}
OTHERS = ("half", "loss", "last")  # which the second way is compared with
LEAST = {"half": 0.0, "loss": -1.0, "last": -1.0}  # points above which the interval must lie
ODDS = Grid.of(None, True).edges  # of the thresholds, as log-odds
HALF = int(ODDS.abs().argmin())
FIELDS = ("sets", "family", "task", "regime", "measure", "runs", "rare", *WAYS, "said")
Row = dict[str, str]


# training and reading -------------------------------------------------------------------------------------------------


def scores_of_epochs(
    regime: str, train: tuple[Tensor, Tensor], seed: int, others: Sequence[Tensor]
) -> Iterator[list[Tensor]]:
    """Yield the log-odds of class 1 of other samples after each epoch."""
    x, y = train
    batch_size = max(of_thresholds.SMALLEST, -(-len(y) // of_thresholds.STEPS))
    rate, samples = partial(rate_at, regime, of_thresholds.RATE), (x[None], y[None])
    for parameters in trained_together(samples, torch.ones(1, 2), [seed], batch_size, EPOCHS[regime], rate):
        with torch.inference_mode():
            logits = [logits_of(parameters, part[None])[0].double() for part in others]
        yield [(some[:, 1] - some[:, 0]).clone() for some in logits]


def matrices(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Histogram of scores ``[2, T + 1]``, and the counts at each threshold ``[T, 2, 2]``."""
    size = len(ODDS) + 1
    flat = target * size + torch.bucketize(scores, ODDS)
    found = torch.bincount(flat, minlength=2 * size).view(2, size)
    return found, matrices_of(found.double())


def latest_best(values: Sequence[float]) -> int:
    """Index of the greatest value, the latest of ties; an undefined one is the worst."""
    defined = [-math.inf if math.isnan(value) else value for value in values]
    return max(range(len(defined)), key=lambda epoch: (defined[epoch], epoch))


def kept(half: Sequence[float], best: Sequence[float], losses: Sequence[float]) -> dict[str, int]:
    """Epoch that each way keeps."""
    return {
        "half": latest_best(half),
        "best": latest_best(best),
        "loss": int(np.argmin(losses)),
        "last": len(losses) - 1,
    }


def read(
    regime: str, seed: int, train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> dict[str, dict[str, float]]:
    """Test value of each way by measure, and what the second way saw on validation data."""
    losses: list[float] = []
    read: dict[str, list[tuple[float, float, float]]] = {name: [] for name in MEASURES}
    for on_held, on_test in scores_of_epochs(regime, train, seed, (held[0], test[0])):
        losses.append(functional.binary_cross_entropy_with_logits(on_held, held[1].double()).item())
        histogram, before = matrices(on_held, held[1])
        _, after = matrices(on_test, test[1])
        for name, measure in MEASURES.items():
            place = steady_threshold(histogram, ODDS, measure)
            at_half, at_best = evaluated(measure, before[[HALF, place]]).tolist()
            read[name].append((at_half, at_best, evaluated(measure, after[place]).item()))
    found = {}
    for name, rows in read.items():
        half, best, tested = zip(*rows, strict=True)
        epochs = kept(half, best, losses)
        found[name] = {way: tested[epoch] for way, epoch in epochs.items()} | {"said": best[epochs["best"]]}
    return found


def rows_of(task: of_thresholds.Task, seeds: Sequence[int]) -> list[dict[str, object]]:
    """Rows of the file: means over seeds; runs without both classes in a part are left out."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in seeds:
        train, held, test = of_thresholds.parts(task, seed)
        if any(len(target.unique()) < 2 for _, target in (train, held, test)):
            continue
        for regime in EPOCHS:
            for name, row in read(regime, seed, train, held, test).items():
                found.setdefault((regime, name), []).append({"rare": int(held[1].sum())} | row)
    facts = {"sets": task.sets, "family": task.family, "task": task.name}
    lines: list[dict[str, object]] = []
    for (regime, measure), runs in found.items():
        means = {name: f"{math.fsum(run[name] for run in runs) / len(runs):.5f}" for name in runs[0]}
        lines.append(facts | {"regime": regime, "measure": measure, "runs": len(runs)} | means)
    return lines


# report ---------------------------------------------------------------------------------------------------------------


by_family = of_thresholds.by_family  # mean of each family in points: over its tasks, and within a task over regimes
gap = of_thresholds.gap


def verdict(rows: Sequence[Row]) -> str:
    """The nine comparisons of the protocol, and whether all of them hold."""
    lines, held = [], []
    for other in OTHERS:
        for name, shown in SHOWN.items():
            some = by_family([row for row in rows if row["measure"] == name], gap("best", other))
            low, high = interval(some)
            held.append(low > LEAST[other])
            cells = [f"{some.mean():+.2f}", f"[{low:+.2f}, {high:+.2f}]", f"above {LEAST[other]:+.0f}"]
            lines.append([WAYS[other], shown, str(len(some)), *cells, "yes" if held[-1] else "no"])
    head = ["minus", "test measure", "families", "mean", "95% interval", "lower end must be", "it is"]
    adopted = "adopted" if all(held) else "not adopted"
    return table(f"Best value at the best threshold, minus the others: {adopted}", head, lines)


def levels(rows: Sequence[Row]) -> str:
    """Mean test value of each way, and what the second way saw on validation data minus its test value."""
    of = {name: [row for row in rows if row["measure"] == name] for name in SHOWN}
    lines = [
        [shown, *(f"{by_family(some, lambda row, way=way: float(row[way])).mean():.1f}" for some in of.values())]
        for way, shown in WAYS.items()
    ]
    seen = [told(by_family(some, gap("said", "best")), units=False) for some in of.values()]
    lines.append(["the value that is kept, minus its test value", *seen])
    return table("Mean test value at the chosen threshold, by the kept epoch", ["epoch", *SHOWN.values()], lines)


def parts_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each regime, kind of families, and number of rare validation samples."""
    strata = {"fewer than 10 rare": (0, 10), "10 to 30 rare": (10, 31), "more rare": (31, math.inf)}
    found = {regime: [row for row in rows if row["regime"] == regime] for regime in EPOCHS}
    found |= {f"{sets} families": [row for row in rows if row["sets"] == sets] for sets in ("new", "keel")}
    return found | {
        name: [row for row in rows if low <= float(row["rare"]) < high] for name, (low, high) in strata.items()
    }


def exploratory(rows: Sequence[Row]) -> str:
    """The same comparisons by regime, families and rare samples."""
    lines = []
    for other in OTHERS:
        for name, shown in SHOWN.items():
            some = [[row for row in part if row["measure"] == name] for part in parts_of(rows).values()]
            cells = [told(by_family(part, gap("best", other))) for part in some]
            lines.append([WAYS[other], shown, *cells])
    return table("The same, exploratory", ["minus", "test measure", *parts_of(rows)], lines)


def report(folder: Path) -> str:
    """All tables."""
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    tasks, families = {(row["family"], row["task"]) for row in rows}, {row["family"] for row in rows}
    facts = f"{len(tasks)} tasks of {len(families)} families."
    return "\n".join([facts, "", verdict(rows), levels(rows), exploratory(rows)])


def main() -> None:
    """Run all tasks, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv and results.md")
    parser.add_argument("--sets", nargs="+", help="only these families, without the KEEL sets")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--report", action="store_true", help="only write the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    path = arguments.out / "results.csv"
    if not arguments.report:
        some = [source for source in of_thresholds.SOURCES if not arguments.sets or source.family in arguments.sets]
        made = [partial(of_thresholds.tasks_of, source) for source in some]
        made += [] if arguments.sets else [of_thresholds.keel]
        part = path.with_suffix(".part")
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            for tasks in made:
                for task in tasks():
                    writer.writerows(rows_of(task, range(FIRST, FIRST + arguments.seeds)))
                    file.flush()
        os.replace(part, path)
    write_tables(arguments.out / "results.md", report(arguments.out))


if __name__ == "__main__":
    main()
