"""Reads epochs and rules off the predictions that ``train.py`` kept; writes results.csv.

    python examples/decision_study/measure.py kept                  # of each file once: kept/*.csv
    python examples/decision_study/measure.py kept --out /tmp/x     # another folder for results.csv

A row of ``results.csv`` is of a task, regime, validation size, rule and test measure. Its columns ``last``,
``own``, ``loss``, ``accuracy``, ``mcc`` and ``ap`` hold the mean test value of the epoch that each keeps, over runs and
validation parts. ``setting`` is the mean tau or threshold at the last epoch, ``said`` the mean validation value there
with that rule.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from tasks import HERE, REGIMES
from torch import Tensor
from train import class_weights

import imbtorch
from imbtorch import Margins
from imbtorch.deciding.curves import matrices_of
from imbtorch.deciding.histogram import Grid
from imbtorch.deciding.steady import steady_threshold

MEASURES: dict[str, Callable[..., Tensor]] = {
    "accuracy": imbtorch.accuracy,
    "balanced_accuracy": imbtorch.balanced_accuracy,
    "macro_f1": partial(imbtorch.f_score, average="macro"),
    "mcc": imbtorch.matthews_corrcoef,
    "iam": imbtorch.imbalance_accuracy,
    "gmean": imbtorch.geometric_mean,
}
EPOCHS = ("last", "own", "loss", "accuracy", "mcc", "ap")
TAUS = np.arange(-16, 25) / 8
GRID = Grid.of(None, logits=True)
ODDS = GRID.edges  # of the thresholds
BUCKETS, RESAMPLES = 64, 100
SIZES, PARTS = (300, 1_000), 3  # drawn from the large pools; and all of it besides
KEY = ("task", "regime", "size", "rule", "measure")
FIELDS = (*KEY, "runs", *EPOCHS, "setting", "said")
Array = NDArray[np.float64]
Index = NDArray[np.int64]


def seeded(*words: object) -> np.random.Generator:
    """Generator that words name."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, words)).encode()))


class Run:
    """Predictions of one run: ``pool`` and ``test`` are logarithms of probabilities ``[epochs, samples, classes]``."""

    def __init__(self, name: str, regime: str, seed: int, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        self.name, self.regime, self.seed = name, regime, seed
        self.pool, self.test = arrays["pool"], arrays["test"]
        self.pool_target = arrays["pool_target"].astype(np.int64)
        self.test_target = arrays["test_target"].astype(np.int64)
        self.counts, self.shares = arrays["counts"], arrays["shares"].astype(float)
        self.rescaled = bool(arrays["rescaled"])
        self.tested_at_taus = functools.cache(self._tested_at_taus)
        self.validated_at_taus = functools.cache(self._validated_at_taus)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.counts)

    @property
    def measures(self) -> list[str]:
        """Test measures: G-mean with two classes only."""
        return [name for name in MEASURES if name != "gmean" or self.classes == 2]

    @functools.cached_property
    def log_prior(self) -> Array:
        """Logarithms of the training shares; a class without samples counts as one."""
        counts = np.maximum(self.counts, 1)
        return np.log(counts / counts.sum())

    def parts(self) -> dict[str, list[Index]]:
        """Validation parts by size, alike for all regimes of a seed; each in random order."""
        size, draw = len(self.pool_target), seeded(self.name, self.seed, "parts")
        found = {"all": [draw.permutation(size)]}
        if size == 4_000:
            orders = [draw.permutation(size) for _ in range(PARTS)]
            found |= {str(wanted): [order[:wanted] for order in orders] for wanted in SIZES}
        return found

    # test values ------------------------------------------------------------------------------------------------------

    def tested(self, predicted: Index) -> dict[str, Array]:
        """Test values of predictions ``[..., samples]``; where classes were thinned out, at the population's shares."""
        counts = torch.from_numpy(confusion(self.test_target, predicted, self.classes)).double()
        if self.rescaled:
            counts = counts / counts.sum(-1, keepdim=True) * torch.from_numpy(self.shares)[:, None]
        return values(counts, self.measures)

    def _tested_at_taus(self, epoch: int) -> dict[str, Array]:
        """Test values of an epoch at each tau, ``[T]``."""
        return self.tested(shifted(self.test[epoch], self.log_prior))

    def _validated_at_taus(self, epoch: int) -> Index:
        """Predicted classes of the validation pool at each tau, ``[T, samples]``."""
        return shifted(self.pool[epoch], self.log_prior)

    # epochs -----------------------------------------------------------------------------------------------------------

    def kept_epochs(self, part: Index) -> dict[str, dict[str, int]]:
        """Epoch that each way keeps, for each test measure."""
        logs, target = self.pool[:, part], self.pool_target[part]
        last = len(logs) - 1
        validated = values(margins_of(logs.argmax(-1), target, self.classes), self.measures)
        best = {name: last - int(np.nan_to_num(some, nan=-math.inf)[::-1].argmax()) for name, some in validated.items()}
        weights = class_weights(self.regime, torch.from_numpy(self.counts)).double().numpy()[target]
        right = np.take_along_axis(logs, target[None, :, None], 2)[..., 0].astype(float)
        both = {"last": last, "loss": int((-right @ weights).argmin())}
        both |= {"accuracy": best["accuracy"], "mcc": best["mcc"]}
        if self.classes == 2:
            areas = np.array([average_precision_score(target, some) for some in log_odds(logs)])
            both["ap"] = last - int(areas[::-1].argmax())
        return {name: both | {"own": best[name]} for name in self.measures}

    # rules ------------------------------------------------------------------------------------------------------------

    def chosen(self, part: Index, wanted: Mapping[int, list[str]]) -> Iterator[tuple[int, str, float, float, float]]:
        """Yield epoch, measure, tau or threshold, its validation value and its test value, for the wanted ones."""
        for epoch, names in wanted.items():
            if self.classes == 2:
                yield from self.chosen_thresholds(part, epoch, names)
            else:
                yield from self.chosen_taus(part, epoch, names)

    def chosen_thresholds(
        self, part: Index, epoch: int, names: list[str]
    ) -> Iterator[tuple[int, str, float, float, float]]:
        """Choose the single best threshold, the lowest of tied ones, as version 0.4 of the library chose."""
        for name in names:
            threshold, said, tested = self.threshold(part, epoch, name, lowest_of_tied)
            yield epoch, name, threshold, said, tested[name]

    def threshold(
        self, part: Index, epoch: int, name: str, place_of: Callable[[Tensor, str], int]
    ) -> tuple[float, float, dict[str, float]]:
        """Threshold that a rule chooses on the validation part, its value there and all test values."""
        bins = torch.bucketize(torch.from_numpy(log_odds(self.pool[epoch, part])), ODDS)
        size = len(ODDS) + 1
        flat = torch.from_numpy(self.pool_target[part]) * size + bins
        histogram = torch.bincount(flat, minlength=2 * size).view(2, size)
        place = place_of(histogram, name)
        predicted = (log_odds(self.test[epoch]) > ODDS[place].item()).astype(int)
        said = MEASURES[name](matrices_of(histogram)[place]).item()
        tested = {each: float(value) for each, value in self.tested(predicted).items()}
        return GRID.thresholds[place].item(), said, tested

    def chosen_taus(self, part: Index, epoch: int, names: list[str]) -> Iterator[tuple[int, str, float, float, float]]:
        """Choose tau by the mean of the best ones of resamples."""
        predicted, target = self.validated_at_taus(epoch)[:, part], self.pool_target[part]
        draws = drawn(seeded(self.name, self.seed, len(part), "resamples"))
        resampled = resampled_margins(predicted, target, self.classes, draws)
        validated = values(margins_of(predicted, target, self.classes), names)
        for name, table in values(resampled, names).items():
            place = mean_of_best(table)
            yield epoch, name, TAUS[place], validated[name][place], self.tested_at_taus(epoch)[name][place]

    def rows(self) -> Iterator[dict[str, object]]:
        """Rows of the run: a value for each part, which are averaged with those of the other runs."""
        none, one = (
            self.tested((self.test - tau * self.log_prior.astype(np.float32)).argmax(-1)) for tau in (0, 1)
        )  # [epochs]
        for size, some in self.parts().items():
            for part in some:
                run = {"task": self.name, "regime": self.regime, "seed": self.seed, "size": size}
                kept = self.kept_epochs(part)
                wanted: dict[int, list[str]] = {}
                for name, epochs in kept.items():
                    for epoch in sorted(set(epochs.values())):
                        wanted.setdefault(epoch, []).append(name)
                found = {(epoch, name): rest for epoch, name, *rest in self.chosen(part, wanted)}
                for name, epochs in kept.items():
                    head = run | {"measure": name}
                    for rule, table in (("none", none), ("tau 1", one)):
                        yield head | {"rule": rule} | {way: table[name][epoch] for way, epoch in epochs.items()}
                    setting, said, _ = found[epochs["last"], name]
                    row = head | {"rule": "chosen", "setting": setting, "said": said}
                    yield row | {way: found[epoch, name][2] for way, epoch in epochs.items()}
                    if self.classes == 2:
                        for row in self.other_thresholds(part, name, epochs):
                            yield head | row
                if self.regime == "falling":
                    for name, value in self.for_balanced_accuracy(part).items():
                        yield run | {"measure": name, "rule": "for balanced accuracy", "last": value}

    # added when the results were known --------------------------------------------------------------------------------

    def other_thresholds(self, part: Index, name: str, epochs: Mapping[str, int]) -> Iterator[dict[str, object]]:
        """Rows of other ways to choose a threshold: at all epochs, or at the last one, the one that is chosen today."""
        last = epochs["last"]
        if self.regime == "falling":
            threshold, said, tested = self.threshold(part, last, name, nearest_of_tied)
            yield {"rule": "nearest .5", "setting": threshold, "said": said, "last": tested[name]}
            _, _, tau, said, value = next(self.chosen_taus(part, last, [name]))
            yield {"rule": "chosen tau", "setting": tau, "said": said, "last": value}
        else:
            epochs = {"last": last}
        found = {epoch: self.threshold(part, epoch, name, resampled) for epoch in set(epochs.values())}
        threshold, said, _ = found[last]
        values = {way: found[epoch][2][name] for way, epoch in epochs.items()}
        yield {"rule": "resampled", "setting": threshold, "said": said} | values

    def for_balanced_accuracy(self, part: Index) -> dict[str, float]:
        """Test values of the last epoch with the rule that is chosen today for balanced accuracy."""
        last = len(self.test) - 1
        if self.classes == 2:
            return self.threshold(part, last, "balanced_accuracy", resampled)[2]
        _, _, tau, _, _ = next(self.chosen_taus(part, last, ["balanced_accuracy"]))
        place = TAUS.tolist().index(tau)
        return {name: float(table[place]) for name, table in self.tested_at_taus(last).items()}


# counting -------------------------------------------------------------------------------------------------------------


def log_odds(logs: NDArray[np.generic]) -> Array:
    """Logits of the second of two classes."""
    wide = logs.astype(float)
    return wide[..., 1] - wide[..., 0]  # type: ignore[no-any-return]


def tied(histogram: Tensor, name: str) -> Tensor:
    """Places of the thresholds that tie for the best value."""
    values = MEASURES[name](matrices_of(histogram)).nan_to_num(nan=-math.inf)
    return (values >= values.max() - 1e-12).nonzero().flatten()


def lowest_of_tied(histogram: Tensor, name: str) -> int:
    """Place of the lowest threshold with the best value."""
    return int(tied(histogram, name)[0])


def nearest_of_tied(histogram: Tensor, name: str) -> int:
    """Place of the threshold nearest 0.5 with the best value."""
    places = tied(histogram, name)
    return int(places[ODDS[places].abs().argmin()])


def resampled(histogram: Tensor, name: str) -> int:
    """Place of the threshold that the library chooses today."""
    return steady_threshold(histogram, ODDS, MEASURES[name])


def shifted(logs: NDArray[np.generic], log_prior: Array) -> Index:
    """Predicted classes at each tau, ``[T, samples]``."""
    prior = log_prior.astype(np.float32)
    return np.stack([(logs - np.float32(tau) * prior).argmax(-1) for tau in TAUS])


def confusion(target: Index, predicted: Index, classes: int) -> Index:
    """Counts ``[..., K, K]`` of predictions ``[..., samples]``."""
    flat = predicted.reshape(-1, len(target))
    index = (np.arange(len(flat))[:, None] * classes + target) * classes + flat
    counts = np.bincount(index.ravel(), minlength=len(flat) * classes * classes)
    return counts.reshape(*predicted.shape[:-1], classes, classes)


def margins_of(predicted: Index, target: Index, classes: int) -> Margins:
    """Margins ``[..., K]`` of predictions ``[..., samples]``."""
    flat = predicted.reshape(-1, len(target))
    rows = np.arange(len(flat))[:, None] * classes
    right = np.where(flat == target, rows + target, len(flat) * classes)
    correct = np.bincount(right.ravel(), minlength=len(flat) * classes + 1)[:-1]
    found = np.bincount((rows + flat).ravel(), minlength=len(flat) * classes)
    actual = np.broadcast_to(np.bincount(target, minlength=classes), (len(flat), classes))
    shape = (*predicted.shape[:-1], classes)
    return Margins(*(torch.from_numpy(np.array(some)).reshape(shape).double() for some in (correct, actual, found)))


def values(counts: Tensor | Margins, names: Iterable[str]) -> dict[str, Array]:
    """Values of some measures."""
    return {name: MEASURES[name](counts).double().numpy() for name in names}


def drawn(draw: np.random.Generator) -> Array:
    """Number of times that each resample draws each bucket, ``[RESAMPLES, BUCKETS]``."""
    return draw.multinomial(BUCKETS, np.full(BUCKETS, 1 / BUCKETS), RESAMPLES).astype(float)


def resampled_margins(predicted: Index, target: Index, classes: int, draws: Array) -> Margins:
    """Margins ``[T, RESAMPLES, K]``; samples go to the buckets in turn."""
    bucket = np.arange(len(target)) % BUCKETS
    size = len(predicted) * BUCKETS * classes
    cell = (np.arange(len(predicted))[:, None] * BUCKETS + bucket) * classes
    found = np.bincount((cell + predicted).ravel(), minlength=size)
    correct = np.bincount(np.where(predicted == target, cell + target, size).ravel(), minlength=size + 1)[:-1]
    actual = np.bincount(bucket * classes + target, minlength=BUCKETS * classes).reshape(BUCKETS, classes)
    both = (draws @ some.reshape(len(predicted), BUCKETS, classes) for some in (correct, found))
    right, predictions = (torch.from_numpy(some) for some in both)
    return Margins(right, torch.from_numpy(draws @ actual).expand_as(right), predictions)


def mean_of_best(table: Array) -> int:
    """Place of the mean of the best taus of resamples ``[T, RESAMPLES]``; a tie goes to the tau nearest 0."""
    table = np.nan_to_num(table, nan=-math.inf)
    tied = table >= table.max(0) - 1e-12
    distance = np.where(tied, np.abs(TAUS)[:, None], math.inf)
    mean = TAUS[distance.argmin(0)].mean()
    return int(np.abs(TAUS - mean).argmin())


# files ----------------------------------------------------------------------------------------------------------------


def runs_of(path: Path) -> Iterator[Run]:
    """Runs of a file, one for each seed."""
    name, regime, first = path.stem.rsplit("_", 2)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for place in range(len(arrays["pool"])):
        own = {key: some[place] if key != "rescaled" else some for key, some in arrays.items()}
        yield Run(name, regime, int(first) + place, own)


def written(value: object) -> object:
    """Numbers with five decimals at most."""
    return f"{value:.5f}".rstrip("0").rstrip(".") if isinstance(value, float | np.floating) else value


def write_csv(path: Path, fields: Iterable[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows, and let the file appear when it is whole."""
    part = path.with_suffix(".writing")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: written(value) for key, value in row.items()} for row in rows)
    os.replace(part, path)


def averaged(paths: Iterable[Path]) -> list[dict[str, object]]:
    """Rows of results.csv: means over runs, of the means over the parts of a run."""
    cells: dict[tuple[str, ...], dict[str, dict[str, list[float]]]] = {}
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                run = cells.setdefault(tuple(row[name] for name in KEY), {}).setdefault(row["seed"], {})
                for name in (*EPOCHS, "setting", "said"):
                    if row[name]:
                        run.setdefault(name, []).append(float(row[name]))
    found = []
    for key, runs in sorted(cells.items(), key=lambda cell: (cell[0][0], REGIMES.index(cell[0][1]), cell[0][2:])):
        means = [{name: float(np.mean(some)) for name, some in run.items()} for run in runs.values()]
        row = dict(zip(KEY, key, strict=True)) | {"runs": len(runs)}
        found.append(row | {name: float(np.mean([some[name] for some in means])) for name in means[0]})
    return found


def main() -> None:
    """Measure the files that are not measured yet, and average."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, help="folder that train.py wrote")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv")
    parser.add_argument("--runs-only", action="store_true", help="do not write results.csv: more runs are to come")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for path in sorted(arguments.kept.glob("*.npz")):
        if not path.with_suffix(".csv").exists():
            rows = [row for run in runs_of(path) for row in run.rows()]
            write_csv(path.with_suffix(".csv"), (*KEY, "seed", *EPOCHS, "setting", "said"), rows)
    if not arguments.runs_only:
        paths = sorted(path.with_suffix(".csv") for path in arguments.kept.glob("*.npz"))
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_csv(arguments.out / "results.csv", FIELDS, averaged(paths))


if __name__ == "__main__":
    main()
