"""Is the mean of resamples' best thresholds a better threshold than the lowest of the best? Trains, measures, reports.

    pip install -e ".[study]"
    python examples/threshold_study/run.py              # all sets, see protocol.md for the time
    python examples/threshold_study/run.py --report     # the tables of results.md from results.csv
    python examples/threshold_study/run.py --sets wine  # some families, to --out FOLDER

Sets, splits, rules and comparisons are in ``protocol.md``. A row of ``results.csv`` stands for a task, model, measure
and limit; its values are means over seeds: the number of positives in the validation part (``rare``), the test value of
each rule, the validation value that it chose by (``said``), and with a limit the share of runs in which the test part
keeps it (``kept``).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression
from torch import Tensor

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "decision_study"))  # where `tasks` and others are found, after this study's files

from keel import package_data, scaled, split  # noqa: E402
from networks import logits_of, trained_together  # noqa: E402
from report import array, holm, interval, p_value, table, told, write_tables  # noqa: E402
from scipy import stats  # noqa: E402
from tasks import keel_sets, keel_tasks  # noqa: E402
from train import rate_at  # noqa: E402

import imbtorch  # noqa: E402
from imbtorch.counts import evaluated  # noqa: E402
from imbtorch.deciding import steady  # noqa: E402
from imbtorch.deciding.curves import matrices_of  # noqa: E402
from imbtorch.deciding.histogram import Grid  # noqa: E402
from imbtorch.deciding.steady import Tried, steady_threshold  # noqa: E402
from imbtorch.deciding.thresholds import Limit, best_of_tied, bounded  # noqa: E402

Array = NDArray[np.float64]
FIRST, SEEDS, KEEL_SEEDS = 60, 5, 3  # seeds 60 to 64 of new sets, 60 to 62 of KEEL sets
MOST, FEWEST, TASKS = 4_000, 15, 3  # rows of a set, positives of a task, and tasks of a set
LARGEST, THINNED = 0.25, 0.15  # share of positives above which they are thinned out, and the share they then have
QUANTILES = (0.9, 0.95, 0.98)
EPOCHS, RATE, STEPS, SMALLEST = 20, 3e-3, 25, 8


def of_positives(measure: Callable[..., Tensor], counts: Tensor) -> Tensor:
    """Value of the positive class."""
    return measure(counts, average="none")[..., 1]


def alerts(counts: Tensor) -> Tensor:
    """Share of samples that are predicted positive."""
    return counts[..., 1].sum(-1) / counts.sum((-2, -1))


def saved(counts: Tensor) -> Tensor:
    """Negative expected cost of a sample, where a missed positive costs as much as ten false alarms."""
    return -imbtorch.expected_cost(counts, costs=torch.tensor([[0.0, 1.0], [10.0, 0.0]], dtype=torch.float64))


F1, RECALL, PRECISION = (
    partial(of_positives, measure) for measure in (imbtorch.f_score, imbtorch.recall, imbtorch.precision)
)
MEASURES: dict[str, Callable[..., Tensor]] = {
    "balanced_accuracy": imbtorch.balanced_accuracy,
    "macro_f1": partial(imbtorch.f_score, average="macro"),
    "iam": imbtorch.imbalance_accuracy,
    "f1": F1,
    "gmean": imbtorch.geometric_mean,
    "mcc": imbtorch.matthews_corrcoef,
    "accuracy": imbtorch.accuracy,
}
LIMITED: dict[tuple[str, str], tuple[Callable[..., Tensor], dict[str, Limit]]] = {
    ("f1", "recall >= 0.8"): (F1, {"recall": Limit(RECALL, 0.8, True)}),
    ("precision", "recall >= 0.9"): (PRECISION, {"recall": Limit(RECALL, 0.9, True)}),
    ("recall", "precision >= 0.5"): (RECALL, {"precision": Limit(PRECISION, 0.5, True)}),
    ("recall", "alerts <= 0.1"): (RECALL, {"alerts": Limit(alerts, 0.1, False)}),
    ("saved", "costs 10 to 1"): (saved, {}),
}
RULES = ("half", "lowest", "nearest", "steady")
NAMES = {"half": "0.5", "lowest": "lowest of tied best", "nearest": "nearest 0.5 of tied best", "steady": "resampled"}
FIELDS = ("sets", "family", "task", "model", "measure", "limit", "runs", "rare", *RULES)
FIELDS += tuple(f"said_{rule}" for rule in RULES) + tuple(f"kept_{rule}" for rule in RULES[1:])


# sets -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A file of the package: ``target`` and ``dropped`` are columns; ``numeric`` if the target is cut at quantiles."""

    family: str
    path: str
    numeric: bool = False
    target: int | str = -1
    dropped: tuple[int | str, ...] = ()
    separator: str = ","
    header: int | None = None
    decimal: str = "."


def classes(family: str, path: str = "", **columns: object) -> Source:
    """A set of classes, by default in KEEL's format."""
    return Source(family, f"classification/{path or f'{family}/{family}.dat'}", **columns)  # type: ignore[arg-type]


def numbers(family: str, path: str = "", **columns: object) -> Source:
    """A set with a numeric target."""
    return Source(family, f"regression/{path or f'{family}/{family}.dat'}", True, **columns)  # type: ignore[arg-type]


KEEL_CLASSES = "automobile australian bupa contraceptive hayes-roth ionosphere lymphography mammographic monk-2"
KEEL_CLASSES += " movement_libras nursery post-operative saheart spectfheart splice tae wisconsin"
KEEL_NUMBERS = "baseball autoMPG6 compactiv laser puma32h quake"
SOURCES = (
    *map(classes, KEEL_CLASSES.split()),
    classes("fars"),
    classes("iris", "iris0/iris0.dat"),
    classes("ada", "ada/ada_train.data", separator=r"\s+"),
    classes("hiva", "hiva/hiva_train.data", separator=r"\s+"),
    classes("sylva", "sylva/sylva_train.data", separator=r"\s+"),
    classes("hypothyroid", "hypothyroid/hypothyroid.data.txt", target=0),
    classes("hepatitis", "hepatitis/hepatitis.data.txt", target=0),
    classes("cm1", "cm1/cm1.arff.txt"),
    classes("kc1", "kc1/kc1.arff.txt"),
    classes("pc1", "pc1/pc1.arff"),
    *map(numbers, KEEL_NUMBERS.split()),
    numbers("ele", "ele_1/ele-1.dat"),
    numbers("rates", "mortgage/mortgage.dat"),
    numbers("rates", "treasury/treasury.dat"),
    numbers("weather", "wankara/wankara.dat"),
    numbers("weather", "wizmir/wizmir.dat"),
    numbers("airfoil", "airfoil/airfoil_self_noise.dat.txt", separator="\t"),
    numbers("bikes", "boom_bikes/day.csv", header=0, dropped=("instant", "dteday", "casual", "registered")),
    numbers("casp", "casp/CASP.csv", header=0, target="RMSD"),
    numbers("communities", "communities/communities.data", dropped=(0, 1, 2, 3, 4)),
    numbers("computers", "cpu_performance/machine.data.txt", target=8, dropped=(0, 1, 9)),
    numbers("fires", "forestfires/forestfires.csv", header=0),
    numbers("grid", "electrical_grid_stability/Data_for_UCI_named.csv", header=0, target="stab", dropped=("stabf",)),
    numbers("insurance", "insurance/insurance.csv", header=0),
    numbers("motor", "excitation_current/synchronous_machine.csv", header=0, separator=";", decimal=","),
    numbers("qsar", "qsar-fish-toxicity/qsar_fish_toxicity.csv", separator=";"),
    numbers("qsar", "qsar_aquatic_toxicity/qsar_aquatic_toxicity.csv", separator=";"),
    numbers("servo", "servo/servo.data"),
    numbers("yacht", "yacht_hydrodynamics/yacht_hydrodynamics.data.txt", separator=r"\s+"),
    Source("maternal", "regression/maternal_health_risk/Maternal Health Risk Data Set.csv", header=0),
    Source("skillcraft", "regression/skillcraft1/SkillCraft1_Dataset.csv", header=0, target=1, dropped=("GameID",)),
    Source("stroke", "regression/stroke/full_data.csv", header=0),
    Source("wine", "wine"),
    Source("diabetes", "diabetes", True),
)


@dataclass(frozen=True)
class Task:
    """Features ``[samples, features]``, nan where missing, and classes 0 and 1, the rare one."""

    sets: str
    family: str
    name: str
    features: Tensor
    target: Tensor


def frame(source: Source) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of features, and the target."""
    if source.family in ("wine", "diabetes"):
        x, y = (load_wine if source.family == "wine" else load_diabetes)(return_X_y=True)
        return pd.DataFrame(x), pd.Series(y)
    path = package_data() / source.path
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if "." in path.suffix else []
    start = next((place + 1 for place, line in enumerate(lines) if line.strip().lower() == "@data"), 0)
    data = pd.read_csv(
        path,
        sep=source.separator,
        header=source.header,
        skiprows=start,
        decimal=source.decimal,
        comment="%" if start else None,
        na_values=["?", "<null>"],
        skipinitialspace=True,
    ).dropna(axis=1, how="all")
    if path.name.endswith("_train.data"):  # whose labels are in another file
        return data, pd.Series(np.loadtxt(path.with_suffix(".labels")))
    target = data.columns[source.target] if isinstance(source.target, int) and source.header == 0 else source.target
    target = data.columns[-1] if target == -1 else target
    return data.drop(columns=[target, *source.dropped]), data[target]


def tasks_of(source: Source) -> list[Task]:
    """Tasks of a set: rows that a fixed seed draws, and rare classes against the rest or high values against others."""
    x, y = frame(source)
    some = np.random.default_rng(0).permutation(len(x))[:MOST]
    x, y = x.iloc[some], y.iloc[some].to_numpy()
    encoded = pd.get_dummies(x).to_numpy(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without numbers
        features = torch.from_numpy(encoded[:, np.nanmax(encoded, 0) > np.nanmin(encoded, 0)])
    name = Path(source.path).parent.name or source.family
    if source.numeric:
        cuts = {f"{name} above {quantile}": y > np.quantile(y, quantile) for quantile in QUANTILES}
        rare = {cut: positive for cut, positive in cuts.items() if positive.mean() <= LARGEST}
    else:
        labels, counts = np.unique(y.astype(str), return_counts=True)
        order = np.argsort(counts, kind="stable")
        enough = [place for place in order if counts[place] >= FEWEST]
        small = [place for place in enough if counts[place] <= LARGEST * len(y)] or enough[:1]
        rare = {f"{name} {labels[place]}": y.astype(str) == labels[place] for place in small}
    found = []
    for title, positive in rare.items():
        kept = np.arange(len(y))
        if positive.mean() > LARGEST:  # thin out the positives
            number = round(THINNED / (1 - THINNED) * (~positive).sum())
            kept = np.sort(np.concatenate([np.flatnonzero(~positive), np.flatnonzero(positive)[:number]]))
        target = torch.from_numpy(positive[kept]).long()
        if target.sum() >= FEWEST:
            found.append(Task("new", source.family, title, features[kept], target))
    return found[:TASKS]


def keel() -> list[Task]:
    """Two-class sets of the study of decisions."""
    sets = keel_sets()
    return [
        Task("keel", task.unit, task.name, sets[task.name].features, sets[task.name].target)
        for task in keel_tasks()
        if task.classes == 2
    ]


# training and rules ---------------------------------------------------------------------------------------------------


def parts(task: Task, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Training, validation and test part; rows with the features of a row in an earlier part are removed."""
    seen: set[bytes] = set()
    found = []
    indices = split(task.target, torch.Generator().manual_seed(seed))
    features = scaled(task.features, indices[0])
    for some in indices:
        rows = [row.tobytes() for row in task.features[some].numpy()]
        new = torch.tensor([row not in seen for row in rows])
        seen.update(rows)
        found.append((features[some][new], task.target[some][new]))
    return found


def regression(train: tuple[Tensor, Tensor], seed: int, others: Sequence[Tensor]) -> list[Tensor]:
    """Probabilities of class 1 by logistic regression."""
    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models that have not converged
        model.fit(*(part.numpy() for part in train))
    return [torch.from_numpy(model.predict_proba(part.numpy())[:, 1]).double() for part in others]


def network(train: tuple[Tensor, Tensor], seed: int, others: Sequence[Tensor]) -> list[Tensor]:
    """Probabilities of class 1 by the network of the study of decisions, at a rate that falls to zero."""
    x, y = train
    batch_size = max(SMALLEST, -(-len(y) // STEPS))
    rate, samples = partial(rate_at, "falling", RATE), (x[None], y[None])
    *_, parameters = trained_together(samples, torch.ones(1, 2), [seed], batch_size, EPOCHS, rate)
    with torch.inference_mode():
        logits = [logits_of(parameters, part[None])[0].double() for part in others]
    return [(some[:, 1] - some[:, 0]).sigmoid().clone() for some in logits]


MODELS = {"logistic regression": regression, "network": network}
THRESHOLDS = torch.cat((Grid.of(None, False).thresholds, torch.ones(1, dtype=torch.float64)))
HALF = int((THRESHOLDS - 0.5).abs().argmin())


def histogram(scores: Tensor, target: Tensor) -> Tensor:
    """Samples of each class between the thresholds ``[2, T + 1]``."""
    bins = torch.bucketize(scores.contiguous(), THRESHOLDS)
    size = len(THRESHOLDS) + 1
    return torch.bincount(target * size + bins, minlength=2 * size).view(2, size)


def kept_by(limits: dict[str, Limit], counts: Tensor) -> Tensor:
    """Whether counts ``[..., 2, 2]`` keep all limits."""
    kept = torch.ones(counts.shape[:-2], dtype=torch.bool)
    for limit in limits.values():
        kept = kept & limit.kept(counts)
    return kept


def steady_within(held: Tensor, measure: Callable[..., Tensor], limits: dict[str, Limit]) -> int:
    """Index of the mean of the best thresholds of resamples, moved to the nearest one that keeps the limits.

    As :func:`imbtorch.deciding.steady.steady_threshold`, with limits in each resample and on all samples.
    """
    odds = bounded(THRESHOLDS.logit())
    every = Tried.of(held, odds)
    tried = every.thinned()

    def values(histogram: Tensor) -> Tensor:
        counts = matrices_of(histogram)
        return torch.where(kept_by(limits, counts), evaluated(measure, counts), -torch.inf).nan_to_num(nan=-torch.inf)

    drawn, on_all = values(steady._resampled(tried.histogram)), values(every.histogram)
    drawn = drawn[(drawn > -torch.inf).any(-1)]
    if not len(drawn):
        drawn, tried = on_all.unsqueeze(0), every
    bests = tried.places[best_of_tied(drawn, odds[tried.places])]
    closeness = -(odds - odds[bests].mean()).abs()
    counts = matrices_of(every.histogram)
    allowed = kept_by(limits, counts)[every.at(torch.arange(len(odds)))]
    one_of_bests = allowed & torch.zeros_like(allowed).index_fill(0, bests, True)
    mean, nearest = (best_of_tied(torch.where(some, closeness, -torch.inf), odds) for some in (allowed, one_of_bests))
    loss = evaluated(measure, counts[torch.stack((every.at(nearest), every.at(mean)))])
    of_resamples = drawn[:, tried.at(nearest)] - drawn[:, tried.at(mean)]
    of_resamples = of_resamples[of_resamples.isfinite()]
    explained = steady.EXPLAINED * (of_resamples.std(unbiased=False) if len(of_resamples) else 0.0)
    return int(nearest if one_of_bests.any() and loss[0] - loss[1] > explained else mean)


def chosen(held: Tensor, measure: Callable[..., Tensor], limits: dict[str, Limit]) -> dict[str, int] | None:
    """Index of the threshold of each rule; None if no threshold keeps the limits."""
    counts = matrices_of(held.double())
    kept, values = kept_by(limits, counts), evaluated(measure, counts).nan_to_num(nan=-torch.inf)
    if not kept.any():
        return None
    values = torch.where(kept, values, -torch.inf)
    return {
        "half": HALF,
        "lowest": int(values.argmax()),
        "nearest": int(best_of_tied(values, bounded(THRESHOLDS.logit()))),
        "steady": steady_within(held, measure, limits)
        if limits
        else steady_threshold(held, THRESHOLDS.logit(), measure),
    }


def read(held: Tensor, tested: Tensor) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    """Test values, validation values and kept limits of each rule, by measure and limit."""
    before, after = matrices_of(held.double()), matrices_of(tested.double())
    plain = {(name, ""): (measure, {}) for name, measure in MEASURES.items()}
    for key, (measure, limits) in (plain | LIMITED).items():
        found = chosen(held, measure, limits)
        if found is None:
            continue
        places = list(found.values())
        test, said = (evaluated(measure, counts[places]).tolist() for counts in (after, before))
        row = dict(zip(found, test, strict=True)) | {f"said_{rule}": x for rule, x in zip(found, said, strict=True)}
        for limit in limits.values():
            kept = limit.kept(after[places]).double().tolist()
            row |= {f"kept_{rule}": x for rule, x in zip(found, kept, strict=True) if rule != "half"}
        yield key, row


def rows_of(task: Task, seeds: Sequence[int]) -> list[dict[str, object]]:
    """Rows of the file: means over seeds; undefined values and runs without both classes in a part are left out."""
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for seed in seeds:
        train, held, test = parts(task, seed)
        if any(len(target.unique()) < 2 for _, target in (train, held, test)):
            continue
        for model, fitted in MODELS.items():
            scores = fitted(train, seed, (held[0], test[0]))
            histograms = [histogram(some, part[1]) for some, part in zip(scores, (held, test), strict=True)]
            for key, row in read(*histograms):
                if not any(math.isnan(row[rule]) for rule in RULES):
                    found.setdefault((model, *key), []).append({"rare": int(held[1].sum())} | row)
    facts = {"sets": task.sets, "family": task.family, "task": task.name}
    lines: list[dict[str, object]] = []
    for (model, measure, limit), runs in found.items():
        means = {name: f"{math.fsum(run[name] for run in runs) / len(runs):.5f}" for name in runs[0]}
        lines.append(facts | {"model": model, "measure": measure, "limit": limit, "runs": len(runs)} | means)
    return lines


# report ---------------------------------------------------------------------------------------------------------------

SHOWN = {"balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1", "iam": "IAM", "f1": "F1", "gmean": "G-mean"}
SHOWN |= {"mcc": "MCC", "accuracy": "accuracy"}
Row = dict[str, str]


def by_family(rows: Sequence[Row], value: Callable[[Row], float]) -> Array:
    """Mean of each family, in points: over its tasks, and within a task over models."""
    tasks: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        tasks.setdefault((row["family"], row["task"]), []).append(100 * value(row))
    families: dict[str, list[float]] = {}
    for (family, _), some in tasks.items():
        families.setdefault(family, []).append(math.fsum(some) / len(some))
    return array({family: math.fsum(some) / len(some) for family, some in sorted(families.items())})


def gap(first: str, second: str) -> Callable[[Row], float]:
    """Difference of two columns."""
    return lambda row: float(row[first]) - float(row[second])


def primary(rows: Sequence[Row]) -> str:
    """The three tests of the protocol."""
    names = ("macro_f1", "iam", "balanced_accuracy")
    found = [by_family([row for row in rows if row["measure"] == name], gap("steady", "lowest")) for name in names]
    worse = found[2] + 1  # balanced accuracy is not worse by a point
    p = [*(p_value(some) for some in found[:2]), float(stats.ttest_1samp(worse, 0, alternative="greater").pvalue)]
    lines = []
    for name, some, corrected in zip(names, found, holm(p), strict=True):
        low, high = interval(some)
        tested = "not worse by 1" if name == "balanced_accuracy" else "differs from 0"
        cells = [f"{some.mean():+.2f}", f"[{low:+.2f}, {high:+.2f}]", f"{some.std(ddof=1):.1f}", tested]
        lines.append([SHOWN[name], str(len(some)), *cells, f"{corrected:.4f}"])
    head = ["measure", "families", "mean", "95% interval", "standard deviation", "tested", "p (Holm)"]
    return table("Primary tests: resampled - lowest of tied best, new families", head, lines)


def rules(rows: Sequence[Row], title: str) -> str:
    """Test value of each rule minus that of 0.5, with the worst family, and resampled against the others."""
    lines = []
    of = {name: [row for row in rows if row["measure"] == name] for name in SHOWN}
    for rule in RULES[1:]:
        found = [by_family(some, gap(rule, "half")) for some in of.values()]
        lines.append(
            [f"{NAMES[rule]} - 0.5", *(f"{told(some, units=False)}, worst {some.min():+.1f}" for some in found)]
        )
    for rule in ("lowest", "nearest"):
        found = [by_family(some, gap("steady", rule)) for some in of.values()]
        lines.append([f"resampled - {NAMES[rule]}", *(told(some, units=False) for some in found)])
    for rule in RULES:
        found = [by_family(some, gap(f"said_{rule}", rule)) for some in of.values()]
        lines.append([f"{NAMES[rule]}: validation - test", *(told(some, units=False) for some in found)])
    families = len({row["family"] for row in rows})
    return table(f"{title} ({families} families)", ["rule", *SHOWN.values()], lines)


def by_rarity(rows: Sequence[Row], title: str) -> str:
    """Test value of two rules minus that of 0.5, by the number of rare validation samples."""
    strata = {"fewer than 10": (0, 10), "10 to 30": (10, 31), "more": (31, math.inf)}
    lines = []
    for rule in ("steady", "lowest"):
        for name, shown in SHOWN.items():
            parts = (
                [row for row in rows if row["measure"] == name and low <= float(row["rare"]) < high]
                for low, high in strata.values()
            )
            lines.append([f"{NAMES[rule]} - 0.5", shown, *(told(by_family(some, gap(rule, "half"))) for some in parts)])
    return table(title, ["comparison", "test measure", *strata], lines)


def limits(rows: Sequence[Row], title: str) -> str:
    """Resampled within limits against today's choice: test value, and how often the test part keeps the limit."""
    lines = []
    for measure, limit in [*LIMITED, ("all four", "limits")]:
        some = [row for row in rows if (row["measure"], row["limit"]) == (measure, limit)]
        if limit == "limits":
            some = [row for row in rows if row["kept_steady"]]
        kept = [row for row in some if row["kept_steady"]]
        cells = [told(by_family(some, gap("steady", "lowest")))]
        if kept:
            shares = [by_family(kept, lambda row, name=f"kept_{rule}": float(row[name])) for rule in RULES[1:]]
            cells += [f"{share.mean():.0f}" for share in shares] + [told(shares[2] - shares[0], units=False)]
        lines.append([measure, limit, *cells, *[""] * (5 - len(cells))])
    head = ["measure", "limit", "resampled - lowest", *(f"{NAMES[rule]} keeps it" for rule in RULES[1:]), "difference"]
    return table(title, head, lines)


def report(folder: Path) -> str:
    """All tables."""
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    plain = {sets: [row for row in rows if row["sets"] == sets and not row["limit"]] for sets in ("new", "keel")}
    limited = {sets: [row for row in rows if row["sets"] == sets and row["limit"]] for sets in ("new", "keel")}
    tables = []
    if plain["new"]:
        tables += [primary(plain["new"]), rules(plain["new"], "New families, both models")]
        for model in MODELS:
            tables.append(rules([row for row in plain["new"] if row["model"] == model], f"New families, {model}"))
        tables.append(limits(limited["new"], "New families, within limits and by costs"))
        tables.append(by_rarity(plain["new"], "New families, both models, by rare validation samples"))
    if plain["keel"]:
        tables.append(rules(plain["keel"], "KEEL families with new splits, secondary"))
        tables.append(limits(limited["keel"], "KEEL families within limits and by costs"))
    number = len({(row["family"], row["task"]) for row in plain["new"]})
    families = sorted({row["family"] for row in plain["new"]})
    return "\n".join([f"New: {number} tasks of {len(families)} families: {', '.join(families)}.", "", *tables])


def main() -> None:
    """Run tasks that have no rows yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv and results.md")
    parser.add_argument("--sets", nargs="+", help="only these families, without the KEEL sets")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--report", action="store_true", help="only write the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    path = arguments.out / "results.csv"
    if not arguments.report:
        some = [source for source in SOURCES if not arguments.sets or source.family in arguments.sets]
        runs = [(partial(tasks_of, source), arguments.seeds) for source in some]
        if not arguments.sets:
            runs.append((keel, KEEL_SEEDS))
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            for made, seeds in runs:
                for task in made():
                    writer.writerows(rows_of(task, range(FIRST, FIRST + seeds)))
                    file.flush()
    write_tables(arguments.out / "results.md", report(arguments.out))


if __name__ == "__main__":
    main()
