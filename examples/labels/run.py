"""Simulate sets of labels for every case of the protocol, and write a row for each case, method and measure.

    pip install -e ".[study]" scikit-learn
    python examples/labels/run.py                  # goes on where it stopped; see protocol.md for the time
    python examples/labels/run.py --out other.csv --sets 100 --only chess

Columns of ``results.csv``: ``coverage`` of the pool's value and of the ``population``'s (generated pools; value of the
mean of the pools' matrices), shares of sets whose interval lies ``below`` or ``above`` the pool's value, median
``width``, mean squared ``error`` of the value with its standard error ``error_se``, squared error ``median_error`` of
the median of the draws, mean ``truth`` and ``bias``, ``unreported``, the share of uniform sets without a row of some
class (they are drawn anew), and ``seconds`` of the case.
"""

from __future__ import annotations

import argparse
import csv
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from methods import (
    NAMES,
    Estimates,
    Oracle,
    ScoreStrata,
    measures,
    score_strata,
    two_strata,
    uniform_counts,
    uniform_report,
)
from pools import Case, cases, pool_of

HERE = Path(__file__).parent
SETS, POOLS, DRAWS = 1_000, 20, 1_200
METHODS = ("uniform", "two strata", "strata of scores")
FIELDS = ("classes", "scores", "positives", "budget", "method", "measure", "sets", "coverage", "population", "below")
FIELDS += ("above", "width", "error", "error_se", "median_error", "truth", "bias", "unreported", "seconds")


def simulated(case: Case, sets: int, pools: int) -> tuple[dict[str, Estimates], np.ndarray, np.ndarray, float]:
    """Return estimates by method, true values, matrices of the pools, and the share of sets redrawn."""
    random = np.random.default_rng([66, zlib.crc32(" ".join(case.key).encode())])
    size, some = case.classes, sets // pools
    parts: dict[str, list[Estimates]] = {method: [] for method in METHODS}
    truths, matrices, uniform, tried = [], [], [], 0
    for place in range(pools):
        if place == 0 or not case.real:
            pool = pool_of(case, random)
            strata = ScoreStrata.of(pool.scores, pool.predicted)
            number = len(strata.sizes)
            classes = np.bincount(strata.stratum * size + pool.target, minlength=number * size).reshape(number, size)
            matrix = np.bincount(pool.target * size + pool.predicted, minlength=size * size).reshape(size, size)
        matrices.append(matrix)
        truths.append(np.broadcast_to(measures(matrix.astype(float)), (some, len(NAMES[size]))))
        counts, drawn = uniform_counts(matrix, case.budget, some, random, range(size))
        uniform.append(counts)
        tried += drawn
        predicted = np.broadcast_to(matrix.sum(0), (some, size))
        label = Oracle(matrix.T, some, random)
        parts["two strata"].append(two_strata(predicted, case.budget, label, random, DRAWS))
        label = Oracle(classes, some, random)
        parts["strata of scores"].append(score_strata(strata, some, case.budget, label, random, DRAWS))
    parts["uniform"].append(uniform_report(np.concatenate(uniform), DRAWS, int(random.integers(2**31))))
    together = {
        method: Estimates(*map(np.concatenate, zip(*map(fields, parts[method]), strict=True))) for method in METHODS
    }
    return together, np.concatenate(truths), np.stack(matrices), 1 - sets / tried


def fields(estimates: Estimates) -> tuple[np.ndarray, ...]:
    """Return the parts of estimates."""
    return estimates.value, estimates.low, estimates.high, estimates.median


def rows_of(case: Case, sets: int = SETS, pools: int = POOLS) -> Iterator[dict[str, object]]:
    """Yield the rows of a case."""
    start = time.perf_counter()
    found, truth, matrices, unreported = simulated(case, sets, pools)
    population = measures(matrices.mean(0).astype(float))
    names = dict(zip(FIELDS, case.key, strict=False))
    seconds = time.perf_counter() - start
    for method, each in found.items():
        below, above = each.high < truth - 1e-9, each.low > truth + 1e-9
        held = (each.low <= population + 1e-9) & (population <= each.high + 1e-9)
        squares, width = (each.value - truth) ** 2, each.high - each.low
        columns = {
            "coverage": 1 - (below | above).mean(0),
            "population": np.full(len(population), np.nan) if case.real else held.mean(0),
            "below": below.mean(0),
            "above": above.mean(0),
            "width": np.median(width, 0),
            "error": squares.mean(0),
            "error_se": squares.std(0, ddof=1) / np.sqrt(sets),
            "median_error": ((each.median - truth) ** 2).mean(0),
            "truth": truth.mean(0),
            "bias": (each.value - truth).mean(0),
        }
        for place, measure in enumerate(NAMES[case.classes]):
            values = {name: f"{column[place]:.6g}" for name, column in columns.items()}
            told = {"unreported": f"{unreported:.4f}" if method == "uniform" else "", "seconds": f"{seconds:.1f}"}
            yield names | {"method": method, "measure": measure, "sets": sets} | values | told


def main() -> None:
    """Run all cases that the file does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    parser.add_argument("--sets", type=int, default=SETS, help="sets of labels of a case")
    parser.add_argument("--pools", type=int, default=POOLS, help="pools that they are drawn from")
    parser.add_argument("--only", default="", help="run cases whose scores contain this text")
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if given.out.exists():
        with given.out.open(encoding="utf-8", newline="") as file:
            done = {tuple(row[name] for name in FIELDS[:4]) for row in csv.DictReader(file)}
    wanted = [case for case in cases() if case.key not in done and given.only in case.scores]
    for place, case in enumerate(wanted, 1):
        rows = list(rows_of(case, given.sets, given.pools))
        new = not given.out.exists()
        with given.out.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(rows)
        print(f"{place} of {len(wanted)}: {', '.join(case.key)}, {rows[0]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
