"""Train with wrong labels in training, in validation, in both or in neither, and compare the epochs that are kept.

    pip install -e ".[study]"
    python examples/wrong_labels/run.py                            # 31 data sets, five seeds: a minute
    python examples/wrong_labels/run.py --sets 2 --out /tmp/small  # the first two of them
    python examples/wrong_labels/run.py --report                   # the tables of results.md from results.csv

A row of ``results.csv`` stands for a data set, the share of wrong labels in either part, and a test measure.
``best`` is the best test value of all epochs; the columns after it hold the cost of a monitor: the best value minus
that of the epoch with the best validation value of the monitor, the latest of tied ones, mean over seeds.
``iam_true`` is IAM at the class shares of all samples with right labels. ``results.md`` says what is trained.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "decision_study"))  # where the modules below are found

from keel import DataSet, family, real_sets, scaled, split  # noqa: E402
from measure import MEASURES, write_csv  # noqa: E402
from networks import logits_of, losses, trained_together  # noqa: E402
from report import NAMES, table, write_tables  # noqa: E402

SETS = """ecoli glass yeast car ecoli4 ecoli-0-2-3-4_vs_5 ecoli-0-6-7_vs_3-5 zoo dermatology-6 winequality-red-8_vs_6-7
yeast6 flare-F ecoli-0-3-4-7_vs_5-6 ecoli-0-3-4_vs_5 ecoli-0-2-6-7_vs_3-5 led7digit-0-2-4-5-6-7-8-9_vs_1
shuttle-c0-vs-c4 abalone9-18 winequality-red-8_vs_6 kr-vs-k-three_vs_eleven new-thyroid1 winequality-white-3_vs_7
dermatology flare segment0 glass2 glass-0-1-4-6_vs_2 ecoli-0-4-6_vs_5 newthyroid appendicitis
winequality-white-3-9_vs_5"""
SEEDS, EPOCHS, RATE = range(5, 10), 120, 3e-3
SHARES = (0.0, 0.05, 0.15)  # of wrong labels
CELLS = [(train, valid) for train in SHARES for valid in SHARES if train == valid or 0.0 in (train, valid)]
MONITORS = (*MEASURES, "iam_true", "loss", "last")
KEY = ("set", "training", "validation", "measure")
FOUR = ("balanced_accuracy", "macro_f1", "gmean", "iam")
Samples = tuple[Tensor, Tensor]  # features [runs, samples, features] and classes [runs, samples]


# training -------------------------------------------------------------------------------------------------------------


def noisy(target: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """Give a share of the samples another class, each of the others as likely."""
    classes = int(target.max()) + 1
    flipped = torch.rand(len(target), generator=generator) < share
    shift = torch.randint(1, classes, (len(target),), generator=generator)
    return torch.where(flipped, (target + shift) % classes, target)


def parts_of(data: DataSet, seeds: Sequence[int]) -> tuple[Samples, Samples, Samples]:
    """Training samples of each share of wrong labels, validation samples of each cell, test samples of each share.

    Runs are ordered by share or cell and within it by seed. Labels that are wrong at a low share are so at a high one.
    """
    train, valid, test = [], [], []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        indices = split(data.target, generator)
        some = [scaled(data.features, indices[0])[part] for part in indices]
        state = generator.get_state()
        labels = {share: noisy(data.target, generator.set_state(state), share) for share in SHARES}
        train.append([(some[0], labels[share][indices[0]]) for share in SHARES])
        valid.append([(some[1], labels[share][indices[1]]) for _, share in CELLS])
        test.append([(some[2], data.target[indices[2]]) for _ in SHARES])
    return stacked(train), stacked(valid), stacked(test)


def stacked(by_seed: Sequence[Sequence[Samples]]) -> Samples:
    """Features and labels of all runs, which are given seed by seed."""
    features, labels = zip(*(run for some in zip(*by_seed, strict=True) for run in some), strict=True)
    return torch.stack(features), torch.stack(labels)


# costs ----------------------------------------------------------------------------------------------------------------


def counts_of(logits: Tensor, target: Tensor) -> Tensor:
    """Counts ``[runs, K, K]``."""
    runs, _, classes = logits.shape
    cells = (torch.arange(runs)[:, None] * classes + target) * classes + logits.argmax(-1)
    return torch.bincount(cells.flatten(), minlength=runs * classes**2).view(runs, classes, classes).double()


def values(counts: Tensor) -> dict[str, Tensor]:
    """Values ``[runs]`` of all measures, rounded so that those that are equal but for the order of a sum tie."""
    return {name: measure(counts).float() for name, measure in MEASURES.items()}


def in_cells(by_share: Tensor) -> Tensor:
    """Values of each cell, ``[..., cells * seeds]``, of those of each share of wrong training labels."""
    some = by_share.unflatten(-1, (len(SHARES), -1))
    return some[..., [SHARES.index(train) for train, _ in CELLS], :].flatten(-2)


def study(data: DataSet, seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS) -> Iterator[dict[str, object]]:
    """Rows of a data set."""
    numbers = [zlib.crc32(f"{data.name} {seed}".encode()) for seed in seeds]
    train, valid, test = parts_of(data, numbers)
    shares, runs = (data.counts / len(data.target)).double(), len(valid[1])
    network = in_cells(torch.arange(len(train[1])))  # that each cell's run validates
    validated, tested = [], []
    weights, batch_size = torch.ones(runs, len(shares)), max(64, -(-train[1].shape[1] // 40))  # at most 40 steps
    some = (train, weights[: len(train[1])], numbers * len(SHARES), batch_size, epochs, lambda step, steps: RATE)
    for epoch, parameters in enumerate(trained_together(*some)):
        tested.append(values(counts_of(logits_of(parameters, test[0]), test[1])))
        logits = logits_of([parameter[network] for parameter in parameters], valid[0])
        counts = counts_of(logits, valid[1])
        at_shares = (counts / counts.sum(-1, keepdim=True)).nan_to_num(0) * shares[:, None]
        others = {"iam_true": values(at_shares)["iam"], "loss": -losses(logits, valid[1], weights)}
        validated.append(values(counts) | others | {"last": torch.full((runs,), float(epoch))})
    kept = {}
    for monitor in MONITORS:
        some = torch.stack([epoch[monitor] for epoch in validated]).nan_to_num(-math.inf)
        kept[monitor] = len(some) - 1 - some.flip(0).argmax(0)  # the latest of tied epochs
    for measure in MEASURES:
        reached = in_cells(torch.stack([epoch[measure] for epoch in tested]).double())
        best = reached.max(0).values
        columns = {"best": best} | {name: best - reached.gather(0, kept[name][None])[0] for name in MONITORS}
        means = {name: some.view(len(CELLS), -1).mean(1).tolist() for name, some in columns.items()}
        for index, cell in enumerate(CELLS):
            row = dict(zip(KEY, (data.name, *cell, measure), strict=True))
            yield row | {name: round(some[index], 4) for name, some in means.items()}


# tables ---------------------------------------------------------------------------------------------------------------


def interval(gains: pd.Series) -> tuple[float, float]:
    """95% bootstrap interval of the mean over data sets that draws whole families, stretched for their number."""
    families = gains.groupby(family)
    if (number := len(families)) < 2:
        return math.nan, math.nan
    drawn = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), 10_000)
    means = drawn @ families.sum().to_numpy() / (drawn @ families.size().to_numpy())
    stretch = stats.t.ppf(0.975, number - 1) / stats.norm.ppf(0.975) * math.sqrt(number / (number - 1))
    return tuple(gains.mean() + stretch * (np.quantile(means, [0.025, 0.975]) - gains.mean()))


def gain(costs: pd.DataFrame, first: str, second: str) -> str:
    """Mean gain of a monitor over another in points; bold if its interval excludes 0."""
    gains = 100 * (costs[second] - costs[first]).groupby(costs["set"]).mean()
    low, high = interval(gains)
    text = f"{gains.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def tables(path: Path) -> str:
    """Both tables of gains, from a file of costs."""
    costs = pd.read_csv(path)
    costs["own"] = [row[row["measure"]] for _, row in costs.iterrows()]
    cells = costs[costs["measure"].isin(FOUR)].groupby(["training", "validation"])
    best = [[*map("{:.0%}".format, cell), gain(some, "own", "loss"), gain(some, "own", "last")] for cell, some in cells]
    head = ["wrong training labels", "wrong validation labels", "over the lowest loss", "over the last epoch"]
    title = "Gain of the best epoch, mean of balanced accuracy, macro F1, G-mean and IAM"
    both = costs[(costs["training"] == 0.15) & (costs["validation"] == 0.15)]
    two = both["set"].map(pd.read_csv(HERE.parent / "decision_study" / "tasks.csv", index_col="task")["classes"]) == 2
    parts = {"all": both, "two classes": both[two], "three to nine": both[~two]}
    parts = {f"{name} ({some['set'].nunique()})": some for name, some in parts.items() if len(some)}
    names = NAMES | {"iam_true": "IAM at the true class shares"}
    others = [
        [names[monitor], NAMES[name], *(gain(some[some["measure"] == name], monitor, "own") for some in parts.values())]
        for monitor, name in [*(("mcc", name) for name in MEASURES if name != "mcc"), ("iam_true", "iam")]
    ]
    second = "15% wrong labels in both parts: gain of another monitor over the measure itself"
    return "\n".join([table(title, head, best), table(second, ["monitor", "test measure", *parts], others)])


def main() -> None:
    """Study the data sets, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv and results.md")
    parser.add_argument("--sets", type=int, help="number of data sets")
    parser.add_argument("--report", action="store_true", help="only write the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.csv"
    if not arguments.report:
        sets = {data.name: data for data in real_sets()}
        rows = [row for name in SETS.split()[: arguments.sets] for row in study(sets[name])]
        write_csv(path, (*KEY, "best", *MONITORS), rows)
    write_tables(arguments.out / "results.md", tables(path))


if __name__ == "__main__":
    main()
