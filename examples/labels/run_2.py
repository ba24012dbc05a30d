"""Compute what labels within predicted classes are worth for every table of protocol_2.md, and write results_2.csv.

    pip install -e ".[study]"
    python examples/labels/run_2.py    # goes on where it stopped; 20 minutes of one core

Each row of ``results_2.csv`` is a table: ``rows``, ``predicted`` positive, ``hits`` (k1) and ``missed`` (k0) positives,
``labels``, and ``among_predicted`` (n1), with ``kind`` grid or corner. For each measure: ``coverage`` of the plan's
interval; root mean squared error ``by_plan``, ``uniform``, and ``with_positives`` (uniform labels with a positive);
median widths ``plan_width``, ``exact_width`` and ``posterior_width``.
"""

from __future__ import annotations

import argparse
import csv
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from imbtorch.measures.named import measure_of_counts
from imbtorch.predictions.label_bounds import ROUNDING, Labelled, LabelledPool, plan_sizes
from imbtorch.statistics import posterior

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

HERE = Path(__file__).parent
MEASURES = ("f1", "mcc", "iam", "precision", "recall", "balanced_accuracy")
CLAIMED = MEASURES[:4]
POOLS, SHARES = (2_000, 15_000, 100_000), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)
PRECISIONS, RECALLS, BUDGETS = (0.02, 0.1, 0.3, 0.6, 0.9, 0.98), (0.05, 0.3, 0.6, 0.9, 1.0), (100, 200, 600, 2_000)
TAIL, SETS, DRAWS = 1e-9, 200, 1_000
KEY = ("kind", "rows", "predicted", "hits", "missed", "labels", "among_predicted")
ERRORS, WIDTHS = ("by_plan", "uniform", "with_positives"), ("plan_width", "exact_width", "posterior_width")
FIELDS = [*KEY, *(f"{m}_{part}" for m in MEASURES for part in ("coverage", *ERRORS))]
FIELDS += [f"{m}_{part}" for m in CLAIMED for part in WIDTHS]


@dataclass(frozen=True)
class Table:
    """A pool's 2 x 2 table with a number of labels; ``sizes`` are those of the plan, or of a corner."""

    rows: int
    predicted: int
    hits: int
    missed: int
    labels: int
    sizes: tuple[int, int]
    kind: str = "grid"

    @property
    def key(self) -> tuple[str, ...]:
        """Text that names the table in the file."""
        found = self.rows, self.predicted, self.hits, self.missed, self.labels, self.sizes[1]
        return (self.kind, *map(str, found))


# tables ---------------------------------------------------------------------------------------------------------------


def grid() -> list[Table]:
    """Return the tables of all possible combinations of the steps."""
    found = {}
    for rows, share, labels, precision, recall in product(POOLS, SHARES, BUDGETS, PRECISIONS, RECALLS):
        predicted = round(share * rows)
        hits = round(precision * predicted)
        missed = round(hits / recall - hits)
        if labels < rows and missed <= rows - predicted:
            sizes = plan_sizes(rows - predicted, predicted, labels)
            found[rows, predicted, hits, missed, labels] = Table(rows, predicted, hits, missed, labels, sizes)
    return list(found.values())


def corners() -> list[Table]:
    """Return extreme tables and sizes, for coverage alone."""
    found = {}
    for rows, labels, predicted in product((2_000, 100_000), (100, 600), (1, 20, 1_000, -1)):
        predicted = predicted % rows
        others = rows - predicted
        most = min(predicted, labels - 1)
        wanted = plan_sizes(others, predicted, labels)[1], 1, labels - 1, most
        for among in {n for n in wanted if n <= predicted and 1 <= labels - n <= others}:
            for hits, missed in ((0, 0), (predicted, others), (predicted, 0), (0, others), (0, 1), (1, 0)):
                key = rows, predicted, hits, missed, labels
                found[(*key, among)] = Table(*key, (labels - among, among), "corner")
    return list(found.values())


def useful(row: dict[str, str]) -> bool:
    """Return whether the claims are about a table."""
    rows, predicted, hits, missed, labels = (int(row[name]) for name in KEY[1:6])
    if row["kind"] != "grid" or hits == 0:
        return False
    return hits >= 0.1 * predicted and hits >= 0.3 * (hits + missed) and predicted <= 0.1 * rows and labels >= 200


# measures and probabilities -------------------------------------------------------------------------------------------


def ratio(part: Array, whole: Array) -> Array:
    """Divide; 0 where the divisor is 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def values(tp: Array, fp: Array, fn: Array, tn: Array) -> dict[str, Array]:
    """Return the measures of imbtorch in closed form: they are computed for some 10^10 tables."""
    actual, predicted, negative, rest = tp + fn, tp + fp, tn + fp, tn + fn
    larger, largest = np.maximum(actual, predicted), np.maximum(negative, rest)
    recall, specificity = ratio(tp, actual), ratio(tn, negative)
    iam = ratio(2 * tp - larger, larger) + ratio(2 * tn - largest, largest)
    return {
        "f1": ratio(2 * tp, actual + predicted),
        "mcc": ratio(tp * tn - fp * fn, np.sqrt(np.multiply(actual, negative, dtype=float) * predicted * rest)),
        "iam": iam / np.maximum((larger > 0) * 1 + (largest > 0), 1),
        "precision": ratio(tp, predicted),
        "recall": recall,
        "balanced_accuracy": (recall + specificity) / np.maximum((actual > 0) * 1 + (negative > 0), 1),
    }


LOGS = gammaln(np.arange(max(POOLS) + 2) + 1.0)  # logarithms of factorials


def probabilities(rows: int, positives: int, labelled: int) -> tuple[Whole, Array]:
    """Return the numbers of labelled positives that count, and their hypergeometric probabilities."""
    mean = labelled * positives / rows
    spread = 7 * np.sqrt(mean * (1 - positives / rows)) + 12
    least, most = max(0, labelled - rows + positives), min(labelled, positives)
    found = np.arange(max(least, int(mean - spread)), min(most, int(mean + spread)) + 1)
    chosen = LOGS[positives] - LOGS[found] - LOGS[positives - found]
    others = LOGS[rows - positives] - LOGS[labelled - found] - LOGS[rows - positives - labelled + found]
    chance = np.exp(chosen + others - LOGS[rows] + LOGS[labelled] + LOGS[rows - labelled])
    kept = (chance.cumsum() > TAIL) & (chance[::-1].cumsum()[::-1] > TAIL)
    return found[kept], chance[kept]


def median(numbers: Array, weights: Array) -> float:
    """Return the weighted median."""
    order = np.argsort(numbers, axis=None)
    total = weights.ravel()[order].cumsum()
    return float(numbers.ravel()[order][np.searchsorted(total, total[-1] / 2)])


# the plan -------------------------------------------------------------------------------------------------------------


def by_plan(tables: list[Table]) -> Iterator[dict[str, float]]:
    """Yield coverage, errors and widths of tables that differ in their positives alone, so that intervals are equal."""
    rows, predicted, sizes = tables[0].rows, tables[0].predicted, tables[0].sizes
    chances = [
        (probabilities(rows - predicted, each.missed, sizes[0]), probabilities(predicted, each.hits, sizes[1]))
        for each in tables
    ]
    first = [min(each[place][0][0] for each in chances) for place in (0, 1)]
    last = [max(each[place][0][-1] for each in chances) for place in (0, 1)]
    counts = [np.arange(low, high + 1) for low, high in zip(first, last, strict=True)]
    pool = LabelledPool(
        Labelled(rows - predicted, sizes[0], counts[0][:, None]), Labelled(predicted, sizes[1], counts[1][None])
    )
    ends = {}
    for name in MEASURES:
        interval = pool.pool_interval(measure_of_counts(name, 2))
        shape = tuple(map(len, counts))
        ends[name] = [part.expand(shape).numpy() for part in (interval.estimate, interval.low, interval.high)]
    for each, ((missed, chance0), (hits, chance1)) in zip(tables, chances, strict=True):
        part = tuple(
            slice(found[0] - low, found[-1] - low + 1) for found, low in zip((missed, hits), first, strict=True)
        )
        chance = np.outer(chance0, chance1)
        true = values(each.hits, predicted - each.hits, each.missed, rows - predicted - each.missed)
        found = {}
        for name in MEASURES:
            value, low, high = (end[part] for end in ends[name])
            held = (low <= true[name] + 1e-12) & (true[name] <= high + 1e-12)
            found[f"{name}_coverage"] = float(chance[held].sum())
            found[f"{name}_by_plan"] = float(np.sqrt((chance * (value - true[name]) ** 2).sum()))
            if name in CLAIMED:
                found[f"{name}_plan_width"] = median(high - low, chance)
        yield found


# uniform labels -------------------------------------------------------------------------------------------------------


def uniform_errors(table: Table) -> dict[str, float]:
    """Return the root mean squared errors of uniform labels, with those without a positive as 0, and without them."""
    rows, predicted = table.rows, table.predicted
    true = values(table.hits, predicted - table.hits, table.missed, rows - predicted - table.missed)
    squares, without = dict.fromkeys(MEASURES, 0.0), 0.0
    for number, weight in zip(*probabilities(rows, predicted, table.labels), strict=True):
        hits, chance1 = probabilities(predicted, table.hits, number)
        missed, chance0 = probabilities(rows - predicted, table.missed, table.labels - number)
        chance = weight * np.outer(chance0, chance1)
        missed = missed[:, None]
        if hits[0] == missed[0, 0] == 0:
            without += chance[0, 0]
            chance[0, 0] = 0
        found = values(hits, number - hits, missed, table.labels - number - missed)
        for name in MEASURES:
            squares[name] += float((chance * (found[name] - true[name]) ** 2).sum())
    errors = {}
    for name in MEASURES:
        errors[f"{name}_uniform"] = float(np.sqrt(squares[name] + without * true[name] ** 2))
        errors[f"{name}_with_positives"] = (
            float(np.sqrt(squares[name] / (1 - without))) if without < 1 - 1e-9 else np.nan
        )
    return errors


def drawn(table: Table, sets: int, random: np.random.Generator) -> tuple[Whole, Whole, Whole]:
    """Draw uniform labels; return the labelled rows predicted positive, and the positives among both classes."""
    others = table.rows - table.predicted
    number = random.hypergeometric(table.predicted, others, table.labels, sets)
    hits = random.hypergeometric(table.hits, table.predicted - table.hits, number)
    return number, hits, random.hypergeometric(table.missed, others - table.missed, table.labels - number)


def least_of_many(rows: int, labelled: Whole, found: Whole, error: Array | float) -> Whole:
    """Return what ``least_positives`` returns, many times as fast for some hundred pairs in pools of these sizes."""
    low, high = found.copy(), rows - labelled + found
    while np.any(low < high):
        middle = (low + high) // 2
        mean = labelled * middle / rows
        terms = int(9 * np.sqrt(mean * (1 - middle / rows)).max() + 20)
        more = found[:, None] + np.arange(terms)
        k, n = middle[:, None], labelled[:, None]
        possible = (more <= n) & (more <= k) & (n - more <= rows - k)
        x = np.where(possible, more, np.maximum(n - rows + k, 0))
        chance = LOGS[k] - LOGS[x] - LOGS[k - x] + LOGS[rows - k] - LOGS[n - x] - LOGS[rows - k - n + x]
        chance = np.exp(chance - LOGS[rows] + LOGS[n] + LOGS[rows - n])
        likely = (found <= mean) | ((chance * possible).sum(1) > np.multiply(error, 1 - ROUNDING))
        low, high = np.where(likely, low, middle + 1), np.where(likely, middle, high)
    return low


def exact_intervals(table: Table, number: Whole, hits: Whole, missed: Whole) -> dict[str, tuple[Array, Array]]:
    """Return the exact intervals of uniform labels."""
    sizes, labelled, found = (
        (table.rows - table.predicted, table.predicted),
        (table.labels - number, number),
        (missed, hits),
    )
    unknown = sum((some < size) * 1 for some, size in zip(labelled, sizes, strict=True))

    def bounds(place: int, error: Array | float) -> tuple[Whole, Whole]:
        size, some, positive = sizes[place], labelled[place], found[place]
        return least_of_many(size, some, positive, error), size - least_of_many(size, some, some - positive, error)

    (low0, high0), (low1, high1) = (bounds(place, 0.025 / np.maximum(unknown, 1)) for place in (0, 1))
    least = values(low1, sizes[1] - low1, high0, sizes[0] - high0)
    most = values(high1, sizes[1] - high1, low0, sizes[0] - low0)
    alone = [end / sizes[1] for end in bounds(1, 0.025)]
    return {name: (least[name], most[name]) for name in MEASURES} | {"precision": (alone[0], alone[1])}


def posterior_intervals(table: Table, number: Whole, hits: Whole, missed: Whole) -> dict[str, tuple[Array, Array]]:
    """Return the intervals of reports of uniform labels."""
    others = table.labels - number
    counts = torch.from_numpy(np.stack([others - missed, number - hits, missed, hits], -1).reshape(-1, 2, 2))
    found = posterior(list_of(CLAIMED), counts, draws=DRAWS, generator=torch.Generator().manual_seed(78))
    return {name: (each.low.numpy(), each.high.numpy()) for name, each in found.items()}


def list_of(names: Iterable[str]) -> dict[str, str]:
    """Return measures by their names."""
    return {name: name for name in names}


def uniform_widths(table: Table) -> dict[str, float]:
    """Return median widths of both intervals of uniform labels."""
    labels = drawn(table, SETS, np.random.default_rng([78, zlib.crc32(" ".join(table.key).encode())]))
    some, times = np.unique(np.stack(labels), axis=1, return_counts=True)
    exact = exact_intervals(table, *some)
    found = {f"{name}_exact_width": median(exact[name][1] - exact[name][0], times) for name in CLAIMED}
    positive = some[1] + some[2] > 0
    if positive.any():
        intervals = posterior_intervals(table, *some[:, positive])
        found |= {f"{n}_posterior_width": median(high - low, times[positive]) for n, (low, high) in intervals.items()}
    return found


# the run --------------------------------------------------------------------------------------------------------------


def rows_of(tables: list[Table]) -> Iterator[dict[str, str]]:
    """Yield the rows of tables that differ in their positives alone."""
    for table, found in zip(tables, by_plan(tables), strict=True):
        if table.kind == "grid":
            found |= uniform_errors(table)
        if useful(dict(zip(KEY, table.key, strict=True))):
            found |= uniform_widths(table)
        numbers = {
            name: f"{value:.6f}" if name.endswith("coverage") else f"{value:.4g}" for name, value in found.items()
        }
        yield dict(zip(KEY, table.key, strict=True)) | numbers


def groups(tables: list[Table]) -> Iterator[list[Table]]:
    """Yield tables that differ in their positives alone."""
    found: dict[tuple[object, ...], list[Table]] = {}
    for each in tables:
        found.setdefault((each.kind, each.rows, each.predicted, each.labels, each.sizes), []).append(each)
    yield from found.values()


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, fields: list[str], rows: list[dict[str, str]]) -> None:
    """Append rows to a file."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Compute all tables that the file does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results_2.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = {tuple(row[name] for name in KEY) for row in read(given.out)} if given.out.exists() else set()
    wanted = list(groups([each for each in (*corners(), *grid()) if each.key not in done]))
    start = time.perf_counter()
    for place, some in enumerate(wanted, 1):
        write(given.out, FIELDS, list(rows_of(some)))
        print(f"{place} of {len(wanted)}: {' '.join(some[0].key)}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
