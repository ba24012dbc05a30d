"""Reads every monitor off the predictions that ``run.py`` kept; writes the study's CSV files.

    python examples/deep_study/measure.py kept                 # runs that stand in the CSV files are not read again
    python examples/deep_study/measure.py kept --out /tmp/x

Validation parts of each size are drawn from the run's pool; each monitor keeps an epoch by each part.

- ``results.csv``: for each run, size of the part, right or wrong validation labels, and test measure a column for each
  monitor: the **test value** of the kept epoch, mean over the parts. ``best`` is the best test value of all epochs,
  ``ties`` the number of epochs with the best validation value of the measure, ``absent`` the number of classes that
  the part lacks (means).
- ``stops.csv``: the same at the primary size where training stops early, by patience.
- ``curves.csv``: each epoch of the plain runs, by the first part of the primary size.
- ``runs.csv``: classes, samples, epochs and processor time of each run.
"""

from __future__ import annotations

import argparse
import csv
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from run import NOISE, STUDY, criterion
from torch import Tensor

import imbtorch

HERE = Path(__file__).parent
SIZES = (300, 1_000, 4_000, 8_000)  # of validation parts
PRIMARY = 1_000  # of them; digits have 300
SUBSAMPLES = 10
SOFT = 0.02  # weight of the values of soft counts
SCALES = torch.tensor([0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7])  # inverse temperatures
PATIENCES = (3, 10)
FEW = 10  # classes up to which G-mean is a monitor
MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "accuracy": imbtorch.accuracy,
    "balanced_accuracy": imbtorch.balanced_accuracy,
    "macro_f1": partial(imbtorch.f_score, average="macro"),
    "mcc": imbtorch.matthews_corrcoef,
    "iam": imbtorch.imbalance_accuracy,
    "gmean": imbtorch.geometric_mean,
}
MONITORED = (*MEASURES, "worst_recall", "iam_true")
RULES = {"earliest": "", "latest": "_latest", "soft": "_soft"}
MONITORS = ("loss", "loss_scaled", *(name + end for name in MONITORED for end in RULES.values()), "last")
RUN = ("task", "regime", "seed")
RESULT_FIELDS = (*RUN, "labels", "size", "measure", "best", "ties", "absent", *MONITORS)
STOP_FIELDS = (*RUN, "labels", "size", "patience", "measure", *(name for name in MONITORS if "latest" not in name))
CURVE_FIELDS = (
    *RUN,
    "epoch",
    "loss",
    *(f"validation_{name}" for name in MEASURES),
    *(f"test_{name}" for name in MEASURES),
)
RUN_FIELDS = (*RUN, "classes", "pool", "test", "rarest_pool", "epochs", "seconds")


@dataclass(frozen=True)
class Kept:
    """Predictions of a run: ``pool`` and ``test`` are logarithms of probabilities ``[epochs, samples, classes]``."""

    task: str
    regime: str
    seed: int
    pool: Tensor
    pool_target: Tensor
    test: Tensor
    test_target: Tensor
    counts: Tensor
    shares: Tensor
    rescaled: bool
    seconds: float

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Run of a file that is named by task, regime and seed."""
        task, regime, seed = path.stem.rsplit("_", 2)
        with np.load(path) as file:
            found = {name: torch.from_numpy(file[name]) for name in file.files}
        both = {name: found[name].float() for name in ("pool", "test")}
        targets = {name: found[name].long() for name in ("pool_target", "test_target")}
        rest = {name: found[name] for name in ("counts", "shares")}
        return cls(
            task,
            regime,
            int(seed),
            **both,
            **targets,
            **rest,
            rescaled=bool(found["rescaled"]),
            seconds=float(found["seconds"]),
        )

    @property
    def classes(self) -> int:
        return len(self.counts)

    @property
    def monitors(self) -> list[str]:
        """Measures that are monitored: G-mean where there are few classes, IAM at the true shares as well."""
        return [name for name in MONITORED if name != "gmean" or self.classes <= FEW]


def parts_of(kept: Kept) -> dict[int, list[Tensor]]:
    """Indices of the validation parts by size, alike for all regimes of a seed."""
    size = len(kept.pool_target)
    generator = torch.Generator().manual_seed(zlib.crc32(f"{kept.task} {kept.seed} parts".encode()))
    if size < min(SIZES[1:]):
        return {SIZES[0]: [torch.arange(size)]}
    orders = [torch.randperm(size, generator=generator) for _ in range(SUBSAMPLES)]
    parts = {wanted: [order[:wanted] for order in orders] for wanted in SIZES if wanted < size}
    return parts | {SIZES[-1]: [torch.arange(size)]}


def wrong_labels(kept: Kept) -> Tensor:
    """Targets of the pool of which 15% are changed to another class, each of the others as likely."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{kept.task} {kept.seed} wrong".encode()))
    target = kept.pool_target
    flipped = torch.rand(len(target), generator=generator) < NOISE
    return torch.where(
        flipped, (target + torch.randint(1, kept.classes, target.shape, generator=generator)) % kept.classes, target
    )


# values ---------------------------------------------------------------------------------------------------------------


def test_values(kept: Kept) -> dict[str, Tensor]:
    """Test values ``[epochs]``; where classes were thinned out, at the shares that the others have."""
    everything = torch.ones(1, len(kept.test_target))
    counts = counts_of(one_hot(kept.test), kept.test_target, everything)[:, 0]
    if kept.rescaled:
        counts = imbtorch.at_prevalence(counts, kept.shares)
    return {name: measure(counts).nan_to_num(0) for name, measure in MEASURES.items()}


def one_hot(logs: Tensor) -> Tensor:
    """Predicted classes as rows with a single 1."""
    return torch.zeros_like(logs).scatter_(-1, logs.argmax(-1, keepdim=True), 1.0)


def counts_of(scores: Tensor, labels: Tensor, parts: Tensor) -> Tensor:
    """Sum scores ``[epochs, samples, K]`` by class and by part ``[parts, samples]``: ``[epochs, parts, K, K]``."""
    epochs, _, classes = scores.shape
    by_sample = scores.transpose(0, 1)
    rows = []
    for value in range(classes):
        some = (labels == value).nonzero()[:, 0]
        rows.append((parts[:, some] @ by_sample[some].flatten(1)).view(-1, epochs, classes))
    return torch.stack(rows, 2).transpose(0, 1).double()


def soft_counts(hard: Tensor, summed: Tensor) -> Tensor:
    """Summed probabilities, in rows that sum to those of the hard counts."""
    actual, predicted = hard.sum(-1, keepdim=True), hard.sum(-2, keepdim=True)
    kept = summed * (actual.transpose(-1, -2) + predicted > 0)  # classes with neither targets nor predictions get none
    return kept * (actual / kept.sum(-1, keepdim=True)).nan_to_num(0)


def validation_values(kept: Kept, parts: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Values ``[epochs, parts]`` of the measures, hard and soft; an undefined one counts as the worst."""
    hard = counts_of(one_hot(kept.pool), labels, parts)
    soft = soft_counts(hard, counts_of(kept.pool.softmax(-1), labels, parts))
    of_hard, of_soft = (
        {name: value_of(name, counts, kept.shares) for name in kept.monitors} for counts in (hard, soft)
    )
    mixed = {f"{name}_soft": (1 - SOFT) * value + SOFT * of_soft[name] for name, value in of_hard.items()}
    return {name: value.nan_to_num(-math.inf) for name, value in (of_hard | mixed).items()}


def value_of(name: str, counts: Tensor, shares: Tensor) -> Tensor:
    """Value of a monitored measure; ``shares`` are the true ones, at which ``iam_true`` reads the counts."""
    if name == "iam_true":
        return imbtorch.imbalance_accuracy(at_shares(counts, shares))
    margins = imbtorch.margins(counts)
    if name == "worst_recall":
        return (margins.correct / margins.actual).nan_to_num(math.inf).amin(-1)
    return MEASURES[name](margins)


def at_shares(counts: Tensor, shares: Tensor) -> Tensor:
    """Matrices with rows of these shares; classes without samples keep none."""
    return (counts / counts.sum(-1, keepdim=True)).nan_to_num(0) * shares[:, None]


def losses(kept: Kept, parts: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Loss that is trained, and the same at its best temperature, ``[epochs, parts]``."""
    weights, added = criterion(kept.regime, kept.counts)
    of_parts = parts * weights[labels]
    of_parts /= of_parts.sum(1, keepdim=True)
    found = []
    for logs in kept.pool:
        right = logs.gather(1, labels[:, None])[:, 0]
        totals = torch.stack([(scale * logs + added).logsumexp(-1) for scale in SCALES])
        found.append((totals - SCALES[:, None] * right - added[labels]).double() @ of_parts.double().T)
    table = torch.stack(found).transpose(1, 2)  # [epochs, parts, scales]
    return {"loss": table[..., SCALES.tolist().index(1.0)], "loss_scaled": lowest_between(table, SCALES.log().double())}


def lowest_between(table: Tensor, places: Tensor) -> Tensor:
    """Minimum along the last dimension, by the parabola through the lowest value and its neighbours."""
    middle = table.argmin(-1, keepdim=True).clamp(1, len(places) - 2)
    y0, y1, y2 = (table.gather(-1, middle + step)[..., 0] for step in (-1, 0, 1))
    x0, x1, x2 = (places[middle[..., 0] + step] for step in (-1, 0, 1))
    first, second = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (second - first) / (x2 - x0)
    place = ((x0 + x1) / 2 - first / (2 * bend)).clamp(x0, x2)
    inside = y0 + first * (place - x0) + bend * (place - x0) * (place - x1)
    return torch.where(bend > 0, inside, table.amin(-1))


# epochs ---------------------------------------------------------------------------------------------------------------


def kept_epochs(values: Mapping[str, Tensor], lost: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Epoch ``[parts]`` that each monitor keeps, of ``[epochs, parts]``; of ties the earliest but for latest."""
    last = len(next(iter(lost.values()))) - 1
    kept = {name: table.argmin(0) for name, table in lost.items()}
    for name, table in values.items():
        kept[name] = table.argmax(0)
        if not name.endswith("_soft"):
            kept[f"{name}_latest"] = last - table.flip(0).argmax(0)
    kept["last"] = torch.full_like(kept["loss"], last)
    return kept


def stopped_epochs(table: Tensor, patience: int) -> Tensor:
    """Epoch ``[parts]`` kept of scores ``[epochs, parts]`` if training stops ``patience`` epochs after the best."""
    kept = []
    for scores in table.T.tolist():
        best, at = -math.inf, 0
        for epoch, score in enumerate(scores):
            if score > best:
                best, at = score, epoch
            elif epoch - at >= patience:
                break
        kept.append(at)
    return torch.tensor(kept)


def mean_at(tested: Tensor, epochs: Tensor) -> str:
    """Mean test value of the epochs."""
    return written(tested[epochs].mean().item())


def written(value: float) -> str:
    """Shortest text of at most four decimals."""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


# rows -----------------------------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Rows of the four files."""

    results: list[dict[str, object]]
    stops: list[dict[str, object]]
    curves: list[dict[str, object]]
    runs: list[dict[str, object]]


def rows_of(kept: Kept) -> Rows:
    """All rows of a run."""
    run = {"task": kept.task, "regime": kept.regime, "seed": kept.seed}
    rows = Rows([], [], [], [])
    tested = test_values(kept)
    measures = [name for name in MEASURES if name in kept.monitors]
    parts = parts_of(kept)
    primary = PRIMARY if PRIMARY in parts else SIZES[0]
    for kind, labels in (("right", kept.pool_target), ("wrong", wrong_labels(kept))):
        wanted = parts if kind == "right" else {primary: parts[primary]}
        drawn = torch.zeros(sum(map(len, wanted.values())), len(labels))
        for row, part in zip(drawn, [part for some in wanted.values() for part in some], strict=True):
            row[part] = 1
        all_values, all_lost = validation_values(kept, drawn, labels), losses(kept, drawn, labels)
        start = 0
        for size, some in wanted.items():
            those = slice(start, start + len(some))
            start += len(some)
            values = {name: table[:, those] for name, table in all_values.items()}
            lost = {name: table[:, those] for name, table in all_lost.items()}
            epochs = kept_epochs(values, lost)
            absent = np.mean([kept.classes - len(labels[part].unique()) for part in some])
            for name in measures:
                ties = (values[name] == values[name].amax(0)).sum(0).double().mean().item()
                row = run | {"labels": kind, "size": size, "measure": name, "best": written(tested[name].max().item())}
                row |= {"ties": written(ties), "absent": written(float(absent))}
                row |= {monitor: mean_at(tested[name], kept_at) for monitor, kept_at in epochs.items()}
                rows.results.append(row)
            if size == primary:
                rows.stops += stop_rows(run | {"labels": kind, "size": size}, values, lost, tested, measures)
                if kind == "right" and kept.regime == "plain":
                    rows.curves += curve_rows(run, values, lost, tested, measures)
    rarest = torch.bincount(kept.pool_target, minlength=kept.classes).min().item()
    sizes = {"classes": kept.classes, "pool": len(kept.pool_target), "test": len(kept.test_target)}
    rows.runs.append(run | sizes | {"rarest_pool": rarest, "epochs": len(kept.pool), "seconds": f"{kept.seconds:.1f}"})
    return rows


def stop_rows(
    head: dict[str, object],
    values: Mapping[str, Tensor],
    lost: Mapping[str, Tensor],
    tested: Mapping[str, Tensor],
    measures: Sequence[str],
) -> Iterator[dict[str, object]]:
    """Rows of ``stops.csv``: ``last`` is training to the end without choosing."""
    scores = {name: -table for name, table in lost.items()} | dict(values)
    for patience in PATIENCES:
        epochs = {name: stopped_epochs(table, patience) for name, table in scores.items()}
        epochs["last"] = torch.tensor([len(lost["loss"]) - 1])
        for name in measures:
            kept = {monitor: mean_at(tested[name], kept_at) for monitor, kept_at in epochs.items()}
            yield head | {"patience": patience, "measure": name} | kept


def curve_rows(
    run: dict[str, object],
    values: Mapping[str, Tensor],
    lost: Mapping[str, Tensor],
    tested: Mapping[str, Tensor],
    measures: Sequence[str],
) -> Iterator[dict[str, object]]:
    """Rows of ``curves.csv``."""
    for epoch, loss in enumerate(lost["loss"][:, 0].tolist()):
        row = {f"validation_{name}": written(values[name][epoch, 0].item()) for name in measures}
        row |= {f"test_{name}": written(tested[name][epoch].item()) for name in measures}
        yield run | {"epoch": epoch, "loss": written(loss)} | row


# files ----------------------------------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a file, none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows under their fields, in the order of task, regime and seed."""
    order = [(name, regime) for name, task in STUDY.items() for regime in task.regimes]
    rows = sorted(rows, key=lambda row: (order.index((str(row["task"]), str(row["regime"]))), int(str(row["seed"]))))
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


FILES = {"results": RESULT_FIELDS, "stops": STOP_FIELDS, "curves": CURVE_FIELDS, "runs": RUN_FIELDS}


def main() -> None:
    """Measure the runs that are not in the files yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, help="folder that run.py wrote")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the CSV files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = {name: read_csv(arguments.out / f"{name}.csv") for name in FILES}
    done = {f"{row['task']}_{row['regime']}_{row['seed']}" for row in known["runs"]}
    paths = [path for path in sorted(arguments.kept.glob("*.npz")) if path.stem not in done]
    for number, path in enumerate(paths, 1):
        rows = rows_of(Kept.read(path))
        for name, fields in FILES.items():
            known[name] += getattr(rows, name)
            if name != "runs" and (number % 10 == 0 or number == len(paths)):
                write_csv(arguments.out / f"{name}.csv", fields, known[name])
        if number % 10 == 0 or number == len(paths):  # last, since it says what is done
            write_csv(arguments.out / "runs.csv", RUN_FIELDS, known["runs"])
        print(f"{number} of {len(paths)}: {path.stem}", flush=True)


if __name__ == "__main__":
    main()
