"""How should scores become alerts if each row has its own costs? Trains, chooses, measures, reports.

    python examples/costs_study/run.py --tables FOLDER     # all tables; FOLDER as tables.py wrote it
    python examples/costs_study/run.py --report            # the tables of results.md from results.csv

Ways, data and comparisons are in ``protocol.md``. A row of ``results.csv`` stands for a table, a kind of amounts and a
split. Its values are savings in percentage points, one for each model, training and way.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "decision_study"))

from keel import family, real_sets, scaled, split  # noqa: E402
from networks import logits_of, trained_together  # noqa: E402
from report import interval, table, told, write_tables  # noqa: E402
from train import rate_at  # noqa: E402

SPLITS, TABLES, FEWEST, STEPS, EPOCHS, RATE, SMALLEST = 8, 8, 50, 25, 20, 3e-3, 16
WAYS = {"own": "own ratio, one offset", "weights": "weights, one threshold"}
WAYS |= {"constant": "constant costs", "textbook": "textbook"}
MODELS = {"trees": "boosted trees", "logistic": "logistic regression", "network": "network"}
TRAININGS = ("plain", "weighted")
SIGMAS = ("0.5", "1", "2")
SHIFTS = {"alike": 0.0, "larger": 0.5, "smaller": -0.5}  # of z, for positives
KEY = ("table", "sigma", "amount", "relation", "split")
COLUMNS = tuple(f"{model} {training} {way}" for model in MODELS for training in TRAININGS for way in WAYS)
Array = NDArray[np.float64]
Row = dict[str, str]


# costs and ways -------------------------------------------------------------------------------------------------------


class Costs(NamedTuple):
    """Costs of each row."""

    miss: Array
    false_alarm: Array
    investigation: Array

    def of(self, rows: NDArray[np.int64]) -> Costs:
        """Costs of some rows."""
        return Costs(*(each[rows] for each in self))

    @property
    def flagged(self) -> Array:
        """Costs of a negative row if flagged."""
        return self.investigation + self.false_alarm

    @property
    def gain(self) -> Array:
        """What a positive row costs less if flagged."""
        return self.miss - self.investigation

    def parts(self, target: Array) -> tuple[Array, Array]:
        """Costs of each row if flagged, and if not."""
        return np.where(target == 1, self.investigation, self.flagged), np.where(target == 1, self.miss, 0.0)

    def total(self, target: Array, flagged: NDArray[np.bool_]) -> float:
        """Sum of the costs of all rows."""
        return math.fsum(np.where(flagged, *self.parts(target)))


def of_ratio(odds: Array, costs: Costs) -> Array:
    """Log-odds minus the log of the cost ratio of the row; -inf if it is never flagged, inf if always."""
    with np.errstate(divide="ignore"):
        ratio = np.log(costs.flagged) - np.log(np.where(costs.gain > 0, costs.gain, 1.0))
    return np.where(costs.gain > 0, odds - ratio, -np.inf)


def of_weights(odds: Array, costs: Costs) -> Array:
    """Log-odds; -inf if the row is never flagged."""
    return np.where(costs.gain > 0, odds, -np.inf)


def cheapest(values: Array, target: Array, costs: Costs) -> float:
    """Threshold of values, above which rows are flagged, with the lowest costs; of ties that with fewest alerts."""
    flagged, left = costs.parts(target)
    order = np.argsort(-values, kind="stable")
    ordered, added = values[order], (flagged - left)[order]
    total = np.concatenate([[0.0], np.cumsum(added)])  # if the first so many rows are flagged
    cuts = np.flatnonzero(np.concatenate([[ordered[0] < np.inf], ordered[:-1] > ordered[1:], [ordered[-1] > -np.inf]]))
    least = total[cuts].min()
    cut = int(cuts[total[cuts] <= least + 1e-9 * (1 + abs(least))][0])
    above = ordered[cut - 1] if cut else np.inf
    below = ordered[cut] if cut < len(ordered) else -np.inf
    if np.isinf(above):
        return float(below)  # strictly above it are those that are always flagged, or none
    return float((above + below) / 2)


def savings(odds: Sequence[Array], target: Sequence[Array], costs: Sequence[Costs]) -> dict[str, float]:
    """Savings of each way in percentage points on the second part, thresholds chosen on the first."""
    means = Costs(
        costs[0].miss[target[0] == 1].mean(keepdims=True),
        costs[0].false_alarm[target[0] == 0].mean(keepdims=True),
        costs[0].investigation.mean(keepdims=True),
    ).of(np.zeros(len(target[0]), dtype=np.int64))
    own, weighted = ([change(*part) for part in zip(odds, costs, strict=True)] for change in (of_ratio, of_weights))
    flags = {
        "own": own[1] > cheapest(own[0], target[0], costs[0]),
        "weights": weighted[1] > cheapest(weighted[0], target[0], costs[0]),
        "constant": odds[1] > cheapest(odds[0], target[0], means),
        "textbook": own[1] > 0,
    }
    every = np.ones(len(target[1]), dtype=bool)
    base = min(costs[1].total(target[1], every), costs[1].total(target[1], ~every))
    foresight = math.fsum(np.minimum(*costs[1].parts(target[1])))
    return {way: 100 * (base - costs[1].total(target[1], some)) / (base - foresight) for way, some in flags.items()}


# models ---------------------------------------------------------------------------------------------------------------


def of_scikit_learn(model: str, weighted: bool, x: Array, y: Array, others: Sequence[Array]) -> list[Array]:
    """Log-odds of other rows by a model of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    weights = "balanced" if weighted else None
    if model == "trees":
        fitted = HistGradientBoostingClassifier(early_stopping=False, class_weight=weights, random_state=0)
    else:
        fitted = LogisticRegression(max_iter=1000, class_weight=weights)
    fitted.fit(x, y)
    return [fitted.decision_function(some).astype(float) for some in others]


def of_networks(parts: Sequence[tuple[torch.Tensor, ...]], target: torch.Tensor, seed: int) -> list[list[list[Array]]]:
    """Log-odds by training, set of features of one width and part, of networks trained together on one split."""
    train = torch.stack([part[0] for part in parts] * len(TRAININGS))
    runs, each = len(train), len(parts)
    balanced = len(target) / (2 * torch.bincount(target, minlength=2).float())
    weights = torch.ones(runs, 2)
    weights[each:] = balanced
    batch = max(SMALLEST, -(-len(target) // STEPS))
    seen = (train, target.expand(runs, -1))
    for trained in trained_together(seen, weights, [seed] * runs, batch, EPOCHS, partial(rate_at, "falling", RATE)):
        parameters = trained
    found: list[list[list[Array]]] = []
    for first in range(0, runs, each):
        own = [parameter[first : first + each] for parameter in parameters]
        with torch.inference_mode():
            logits = [logits_of(own, torch.stack([part[place] for part in parts])).double() for place in (1, 2)]
        found.append([[(some[i, :, 1] - some[i, :, 0]).numpy().copy() for some in logits] for i in range(each)])
    return found


def scores_of(
    features: Sequence[torch.Tensor], target: torch.Tensor, rows: Sequence[torch.Tensor], seed: int
) -> Iterator[tuple[int, str, str, list[Array]]]:
    """Yield the place of a set of features, a model, a training, and log-odds of the rows to choose and to test by."""
    parts = [tuple(scaled(each, rows[0])[some] for some in rows) for each in features]
    y = target[rows[0]]
    networks = [of_networks(some, y, seed) for some in (parts[:1], parts[1:]) if some]  # all seen sets are one wider
    by_training = [[odds for found in networks for odds in found[which]] for which in range(len(TRAININGS))]
    for (place, part), (which, training) in itertools.product(enumerate(parts), enumerate(TRAININGS)):
        x, *others = (some.numpy() for some in part)
        for model in ("trees", "logistic"):
            yield place, model, training, of_scikit_learn(model, which == 1, x, y.numpy(), others)
        yield place, "network", training, by_training[which][place]


# tables ---------------------------------------------------------------------------------------------------------------


def study(
    name: str, features: Sequence[torch.Tensor], target: torch.Tensor, kinds: Callable[[int], dict[str, Costs]]
) -> Iterator[Row]:
    """Yield the savings of a table in each split.

    Args:
        name: name of the table.
        features: sets of features ``[N, D]``.
        target: classes of all rows.
        kinds: returns costs by kind of amounts, given the place of a set of features; a kind is ``sigma amount
            relation``, and empty for a table with its own costs.
    """
    for number in range(SPLITS):
        seed = zlib.crc32(f"{name} {number}".encode())
        rows = split(target, torch.Generator().manual_seed(seed))
        truth = [target[some].numpy().astype(float) for some in rows[1:]]
        found: dict[str, dict[str, float]] = {}
        for place, model, training, odds in scores_of(features, target, rows, seed % 2**31):
            for kind, costs in kinds(place).items():
                parts = [costs.of(some.numpy()) for some in rows[1:]]
                values = savings(odds, truth, parts)
                found.setdefault(kind, {}).update({f"{model} {training} {way}": value for way, value in values.items()})
        for kind, values in found.items():
            sigma, amount, relation = kind.split() or ("", "", "")
            key = dict(zip(KEY, (name, sigma, amount, relation, str(number)), strict=True))
            yield key | {column: f"{values[column]:.2f}" for column in COLUMNS}


def cost_table(path: Path) -> Iterator[Row]:
    """Yield the savings of a table with its own costs."""
    with np.load(path) as file:
        features, target = torch.from_numpy(file["features"]), torch.from_numpy(file["target"])
        costs = Costs(file["miss"], file["false_alarm"], np.zeros(len(target)))
    yield from study(path.stem, [features], target, lambda place: {"": costs})


def keel_table(name: str, features: torch.Tensor, target: torch.Tensor) -> Iterator[Row]:
    """Yield the savings of a KEEL table with simulated amounts."""
    drawn = torch.randn(len(target), generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    z = {relation: drawn + shift * target for relation, shift in SHIFTS.items()}
    sets = [features, *(torch.cat([features, some[:, None]], 1) for some in z.values())]
    positive, one = target.double().mean().item(), np.ones(len(target))

    def kinds(place: int) -> dict[str, Costs]:
        amount, relations = ("unseen", list(SHIFTS)) if place == 0 else ("seen", [list(SHIFTS)[place - 1]])
        found = {}
        for sigma, relation in itertools.product(SIGMAS, relations):
            spread = float(sigma)
            miss = np.exp(spread * z[relation].double().numpy() - spread**2 / 2) / positive
            found[f"{sigma} {amount} {relation}"] = Costs(miss, 0 * one, one)
        return found

    yield from study(name, sets, target, kinds)


def keel_tables() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield of each family the table of two classes with most positives; of these the eight with most."""
    best = {}
    for data in real_sets():
        if len(data.counts) == 2 and data.counts[1] >= max(FEWEST, best.get(family(data.name), (0, None))[0] + 1):
            best[family(data.name)] = (int(data.counts[1]), data)
    for _, data in sorted(best.values(), key=lambda pair: -pair[0])[:TABLES]:
        yield data.name, data.features, data.target


# report ---------------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    """Rows of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def differences(rows: Sequence[Row], first: str, second: str, part: str = "") -> dict[str, Array]:
    """Mean difference of two ways in the splits of each table, over columns that begin with ``part`` or hold it."""
    pairs = [
        (f"{model} {training} {first}", f"{model} {training} {second}") for model in MODELS for training in TRAININGS
    ]
    pairs = [pair for pair in pairs if part in pair[0]]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        values = [float(row[one]) - float(row[other]) for one, other in pairs]
        found.setdefault(row["table"], {}).setdefault(row["split"], []).extend(values)
    return {name: np.array([np.mean(each) for each in splits.values()]) for name, splits in found.items()}


def of_tables(rows: Sequence[Row], first: str, second: str, part: str = "") -> Array:
    """Mean difference of each table."""
    return np.array([each.mean() for each in differences(rows, first, second, part).values()])


def tables(path: Path) -> str:
    """All tables of the results."""
    rows = read(path)
    keel = [row for row in rows if row["sigma"]]
    own = [row for row in rows if not row["sigma"]]
    found = differences(rows, "own", "weights")
    lines = []
    for name, values in found.items():
        low, high = interval(values)
        lines.append([name, f"{values.mean():+.2f}", f"[{low:+.2f}, {high:+.2f}]", "yes" if high < -1 else "no"])
    mean = np.mean([values.mean() for values in found.values()])
    adopted = mean > 0 and all(line[-1] == "no" for line in lines)
    lines.append([f"mean of {len(found)} tables", f"{mean:+.2f}", "", ""])
    title = f"Own ratio and one offset minus weights and one threshold: {'' if adopted else 'not '}adopted"
    texts = [table(title, ["table", "points of savings", "95% interval", "wholly below -1"], lines)]
    lines = []
    for name in found:
        some = [row for row in rows if row["table"] == name]
        for training in TRAININGS:
            cells = [
                f"{np.mean([float(row[f'{model} {training} {way}']) for row in some for model in MODELS]):.1f}"
                for way in WAYS
            ]
            lines.append([name, training, *cells])
    texts.append(table("Mean savings, in percent of the possible ones", ["table", "training", *WAYS.values()], lines))
    pairs = [("own", "constant"), ("own", "textbook"), ("weights", "constant")]
    head = ["difference", "training", *sorted({row["table"] for row in own}), "KEEL tables"]
    lines = []
    for (first, second), training in itertools.product([("own", "weights"), *pairs], TRAININGS):
        each = differences(own, first, second, f" {training} ")
        of_keel = told(of_tables(keel, first, second, f" {training} "), units=False)
        cells = [*(told(each[name], units=False) for name in head[2:-1]), of_keel]
        lines.append([f"{WAYS[first]}, minus {WAYS[second]}", training, *cells])
    texts.append(table("Differences, exploratory", head, lines))
    parts = {MODELS[model]: (keel, model) for model in MODELS}
    for name, key in (("sigma ", "sigma"), ("amount ", "amount"), ("amounts of positives ", "relation")):
        kinds = dict.fromkeys(row[key] for row in keel)
        parts |= {name + kind: ([row for row in keel if row[key] == kind], "") for kind in kinds}
    lines = [[name, told(of_tables(some, "own", "weights", part))] for name, (some, part) in parts.items()]
    title = "Own ratio minus weights in the KEEL tables, exploratory"
    return "\n".join([*texts, table(title, ["part", "points of savings (tables)"], lines)])


def main() -> None:
    """Study the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, help="folder of pakdd.npz and vub.npz; without it they are left out")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv and results.md")
    parser.add_argument("--keel", help="begin of the names of KEEL tables; all by default")
    parser.add_argument("--report", action="store_true", help="only write the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.csv"
    if not arguments.report:
        found = [cost_table(arguments.tables / f"{name}.npz") for name in ("pakdd", "vub") if arguments.tables]
        found += [keel_table(*each) for each in keel_tables() if each[0].startswith(arguments.keel or "")]
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, (*KEY, *COLUMNS), lineterminator="\n")
            writer.writeheader()
            for rows in found:
                writer.writerows(rows)
                file.flush()
    write_tables(arguments.out / "results.md", tables(path))


if __name__ == "__main__":
    main()
