"""Tables and pictures of the study from its CSV files; trains nothing.

    python examples/monitor_study/report.py                # rewrites the tables of results.md, and the pictures
    python examples/monitor_study/report.py --out /tmp/x   # of another folder, as run.py --out made it

``results.md`` is written by hand above the line that begins the tables; below it stands what this script writes.
Regrets are in points, that is hundredths of the measure. Intervals are those of ``protocol.md``.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

HERE = Path(__file__).parent
FIGURES = HERE.parent / "figures"
MEASURES = ("accuracy", "balanced_accuracy", "macro_f1", "mcc", "gmean", "iam")
PRIMARY = ("balanced_accuracy", "macro_f1", "gmean", "iam")
REGIMES = ("plain", "weighted", "noise")
RULES = {"earliest": "", "latest": "_latest", "soft": "_soft"}  # of the measure's own monitor
CELLS = ("neither", "training only", "validation only", "both")  # parts with wrong labels
HEAD = ("set", "regime", "variant", "measure", "best", "ties", "sd", "training", "validation")  # the rest are monitors
NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "gmean": "G-mean",
    "iam": "IAM",
}
OUTCOMES = {NAMES[name]: (name,) for name in MEASURES} | {"mean of four": PRIMARY}  # rows by test measure
MARK = "<!-- tables: written by report.py -->"
RESAMPLES = 10_000
Array = NDArray[np.float64]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def seen_before() -> set[str]:
    """Sets that an earlier script had been run on before the protocol was written: no confirmation can rest on them.

    They are named by its output, ``examples/soft_selection.md``, which stands in the history of the repository.
    """
    return {row["set"] for row in rows_of(HERE / "seen.csv")}


@dataclass(frozen=True)
class Costs:
    """Mean regrets of some sets: ``regrets`` holds ``[sets, regimes, measures]`` for each monitor, in points."""

    sets: list[dict[str, str]]
    regimes: Sequence[str]
    regrets: dict[str, Array]
    best: Array
    ties: Array

    @classmethod
    def read(cls, folder: Path, variant: str) -> Costs:
        """All sets that have rows of a variant."""
        rows = [row for row in rows_of(folder / "results.csv") if row["variant"] == variant]
        return cls.of_rows(folder, REGIMES, rows)

    @classmethod
    def with_wrong_labels(cls, folder: Path, share: str) -> Costs:
        """All sets that were trained and validated with a share of wrong labels; regimes are the cells."""
        cells = dict(zip((("0", "0"), (share, "0"), ("0", share), (share, share)), CELLS, strict=True))
        rows = [row | {"regime": cells.get((row["training"], row["validation"]), "")} for row in noise_rows(folder)]
        return cls.of_rows(folder, CELLS, [row for row in rows if row["regime"]])

    @classmethod
    def of_rows(cls, folder: Path, regimes: Sequence[str], rows: Sequence[dict[str, str]]) -> Costs:
        """Costs of the sets that have rows."""
        cells = {(row["set"], row["regime"], row["measure"]): row for row in rows}
        names = {key[0] for key in cells}
        sets = [row for row in rows_of(folder / "sets.csv") if row["set"] in names]

        def column(name: str) -> Array:
            return np.array(
                [
                    [[float(cells[row["set"], r, m].get(name) or "nan") for m in MEASURES] for r in regimes]
                    for row in sets
                ]
            ).reshape(len(sets), len(regimes), len(MEASURES))

        monitors = [name for name in next(iter(cells.values()), ()) if name not in HEAD]
        return cls(sets, regimes, {name: 100 * column(name) for name in monitors}, 100 * column("best"), column("ties"))

    def where(self, wanted: Callable[[dict[str, str]], bool]) -> Costs:
        """Costs of the sets that are wanted."""
        keep = np.array([wanted(row) for row in self.sets], dtype=bool)
        regrets = {name: values[keep] for name, values in self.regrets.items()}
        sets = [row for row, kept in zip(self.sets, keep, strict=True) if kept]
        return Costs(sets, self.regimes, regrets, self.best[keep], self.ties[keep])

    def of(self, monitor: str) -> Array:
        """Regrets of a monitor; of ``"own, <rule>"`` those of each measure monitored by itself under that rule."""
        if not monitor.startswith("own, "):
            return self.regrets[monitor]
        postfix = RULES[monitor.removeprefix("own, ")]
        return np.stack([self.regrets[name + postfix][:, :, index] for index, name in enumerate(MEASURES)], 2)

    def outcome(self, monitor: str, measures: Sequence[str] = PRIMARY, regimes: Sequence[str] = ()) -> Array:
        """Mean regret of each set over some measures and regimes, by default all regimes."""
        chosen = self.of(monitor)[:, [self.regimes.index(name) for name in regimes or self.regimes]]
        return chosen[:, :, [MEASURES.index(name) for name in measures]].mean((1, 2))

    @property
    def families(self) -> list[str]:
        """Family of each set."""
        return [row["family"] for row in self.sets]


# intervals ------------------------------------------------------------------------------------------------------------


@functools.cache
def family_draws(number: int) -> NDArray[np.int64]:
    """How often each of so many families is drawn in each resample."""
    return np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), RESAMPLES)


def family_interval(values: Array, families: Sequence[str], level: float = 0.95) -> tuple[float, float]:
    """Bootstrap interval of the mean over sets that draws whole families, stretched for their number."""
    names, index = np.unique(families, return_inverse=True)
    number = len(names)
    if number < 2:
        return math.nan, math.nan
    sums, sizes = np.bincount(index, values), np.bincount(index)
    drawn = family_draws(number)
    means = drawn @ sums / (drawn @ sizes)
    tail = (1 - level) / 2
    stretch = stats.t.ppf(1 - tail, number - 1) / stats.norm.ppf(1 - tail) * math.sqrt(number / (number - 1))
    middle = values.mean()
    low, high = middle + stretch * (np.quantile(means, [tail, 1 - tail]) - middle)
    return float(low), float(high)


def set_interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean, as if sets were independent."""
    if len(values) < 2:
        return math.nan, math.nan
    reach = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)


def shown(interval: tuple[float, float]) -> str:
    """Text of an interval."""
    return "none" if math.isnan(interval[0]) else f"[{interval[0]:+.2f}, {interval[1]:+.2f}]"


def difference(
    costs: Costs, first: str, second: str, measures: Sequence[str] = PRIMARY, regimes: Sequence[str] = ()
) -> Array:
    """Paired difference of two monitors for each set."""
    return costs.outcome(first, measures, regimes) - costs.outcome(second, measures, regimes)


def told(costs: Costs, values: Array) -> str:
    """Mean difference with its family interval, in bold where that excludes 0."""
    interval = family_interval(values, costs.families)
    text = f"{values.mean():+.2f} {shown(interval)}"
    return f"**{text}**" if interval[0] > 0 or interval[1] < 0 else text


# tables ---------------------------------------------------------------------------------------------------------------

COMPARISONS = (
    ("own, earliest", "loss"),
    ("own, soft", "loss"),
    ("own, soft", "own, earliest"),
    ("own, latest", "own, earliest"),
    ("own, soft", "own, latest"),
    ("own, soft", "accuracy"),
)

LIKE_WITH_LIKE = (  # ties by the same rule on both sides
    ("own, soft", "accuracy_soft"),
    ("own, latest", "accuracy_latest"),
    ("own, earliest", "accuracy"),
    ("own, soft", "last_epoch"),
)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table under its title."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([f"### {title}", "", *lines, ""])


COMPARED = (  # head of a table of comparisons
    "comparison",
    "first",
    "second",
    "difference, 95% (families)",
    "corrected for their number",
    "95% (sets)",
    "sets less/equal/more",
)


def compared(
    costs: Costs, first: str, second: str, measures: Sequence[str], regimes: Sequence[str], number: int
) -> list[str]:
    """Means, difference, its intervals, one of them for so many comparisons, and in how many sets the first is less."""
    values = difference(costs, first, second, measures, regimes)
    return [
        f"{first} - {second}",
        f"{costs.outcome(first, measures, regimes).mean():.2f}",
        f"{costs.outcome(second, measures, regimes).mean():.2f}",
        told(costs, values),
        shown(family_interval(values, costs.families, 1 - 0.05 / number)),
        shown(set_interval(values)),
        f"{(values < 0).sum()}/{(values == 0).sum()}/{(values > 0).sum()}",
    ]


def comparisons(
    costs: Costs, pairs: Sequence[tuple[str, str]], measures: Sequence[str], title: str, regimes: Sequence[str] = ()
) -> str:
    """Each pair of monitors in a row."""
    return table(title, COMPARED, [compared(costs, *pair, measures, regimes, len(pairs)) for pair in pairs])


def one_monitor(costs: Costs) -> str:
    """Measured monitor with the lowest mean regret over all measures and regimes, for the settling half."""
    names = [name + postfix for name in MEASURES for postfix in RULES.values()]
    return min(names, key=lambda name: costs.outcome(name, MEASURES).mean())


def all_monitors(costs: Costs, title: str, regimes: Sequence[str] = REGIMES) -> str:
    """Mean regret of each monitor by each test measure, the lowest of each column in bold."""
    table_of = {
        name: values[:, [REGIMES.index(r) for r in regimes]].mean((0, 1)) for name, values in costs.regrets.items()
    }
    lowest = np.min([values for name, values in table_of.items()], 0)
    rows = []
    for name, values in table_of.items():
        cells = [f"**{v:.2f}**" if v == low else f"{v:.2f}" for v, low in zip(values, lowest, strict=True)]
        rows.append([name, *cells, f"{values.mean():.2f}"])
    best = costs.best[:, [REGIMES.index(r) for r in regimes]].mean((0, 1))
    rows.append(["*best test value of all epochs*", *(f"{value:.2f}" for value in best), f"{best.mean():.2f}"])
    return table(title, ["monitor", *(NAMES[name] for name in MEASURES), "mean of six"], rows)


def of_one_monitor(settle: Costs, costs: Costs, where: str) -> list[str]:
    """The settling half's monitor beside others on some sets; nothing where no sets settle."""
    if not settle.sets:
        return []
    pairs = [(one_monitor(settle), other) for other in ("loss", "accuracy", "last_epoch")]
    title = f"One monitor, named by the settling half, over all six test measures, {where}"
    return [comparisons(costs, pairs, MEASURES, title)]


def by_measure_and_regime(costs: Costs, first: str, second: str, where: str) -> str:
    """Difference of two monitors by each test measure, and their mean over four, in each regime."""
    rows = [
        [name, *(told(costs, difference(costs, first, second, measures, (regime,))) for regime in REGIMES)]
        for name, measures in OUTCOMES.items()
    ]
    return table(f"{first} - {second}, by test measure and regime, {where}", ["test measure", *REGIMES], rows)


def by_classes(costs: Costs) -> dict[str, Costs]:
    """All sets, those with two classes, and those with more, where there are some."""
    parts = {
        "all": costs,
        "two classes": costs.where(lambda row: row["classes"] == "2"),
        "three or more": costs.where(lambda row: row["classes"] != "2"),
    }
    return {name: some for name, some in parts.items() if some.sets}


def mcc_by_classes(costs: Costs, where: str) -> str:
    """MCC against the other monitors over all test measures, by number of classes and regime."""
    rows = []
    for classes, some in by_classes(costs).items():
        for other in ("iam_latest", "balanced_accuracy_latest", "macro_f1_latest", "accuracy_latest", "last_epoch"):
            cells = [told(some, difference(some, "mcc_latest", other, MEASURES, (regime,))) for regime in REGIMES]
            rows.append([f"{classes} ({len(some.sets)})", f"mcc_latest - {other}", *cells])
    return table(f"MCC against others, mean of six test measures, {where}", ["sets", "comparison", *REGIMES], rows)


def strata(costs: Costs, pairs: Sequence[tuple[str, str]]) -> str:
    """Difference by the number of validation samples of the rarest class, and by the number of classes."""
    kinds: dict[str, Callable[[dict[str, str]], bool]] = {
        "rarest class < 10 validation samples": lambda row: int(row["rarest_validation"]) < 10,
        "10 to 30": lambda row: 10 <= int(row["rarest_validation"]) <= 30,
        "> 30": lambda row: int(row["rarest_validation"]) > 30,
        "two classes": lambda row: row["classes"] == "2",
        "three or more": lambda row: row["classes"] != "2",
    }
    rows = []
    for name, wanted in kinds.items():
        some = costs.where(wanted)
        if some.sets:
            told_pairs = [told(some, difference(some, *pair)) for pair in pairs]
            rows.append([name, f"{len(some.sets)} ({len(set(some.families))})", *told_pairs])
    head = ["sets", "number (families)", *(f"{first} - {second}" for first, second in pairs)]
    return table("Where: by validation samples of the rarest class, and by classes", head, rows)


def variants(folder: Path, wanted: Callable[[dict[str, str]], bool], pairs: Sequence[tuple[str, str]]) -> str:
    """Difference under each variant, of the sets that have them all."""
    base = Costs.read(folder, "base").where(lambda row: row["variants"] == "1" and wanted(row))
    rows = []
    for variant in ("base", "wide", "sharp", "flat"):
        costs = Costs.read(folder, variant).where(wanted) if variant != "base" else base
        if not costs.sets:
            continue
        if variant in ("sharp", "flat"):  # hard monitors are those of the base variant
            own = {name: values for name, values in costs.regrets.items() if not np.isnan(values).any()}
            costs = Costs(costs.sets, costs.regimes, base.regrets | own, costs.best, costs.ties)
        rows.append([variant, str(len(costs.sets)), *(told(costs, difference(costs, *pair)) for pair in pairs)])
    head = ["variant", "sets", *(f"{first} - {second}" for first, second in pairs)]
    return table("Variants: ten times the weights, logits times 4, logits times 1/4", head, rows)


def sureness(folder: Path, wanted: Callable[[dict[str, str]], bool]) -> str:
    """Cost of the loss beside that of the measure itself, by how sure the network is of itself."""
    base = Costs.read(folder, "base").where(lambda row: row["variants"] == "1" and wanted(row))
    rows = []
    for variant, name in {"sharp": "logits times 4", "base": "as trained", "flat": "logits times 1/4"}.items():
        costs = base if variant == "base" else Costs.read(folder, variant).where(wanted)
        for regime in REGIMES if costs.sets else ():
            pair = [costs.outcome(monitor, regimes=(regime,)).mean() for monitor in ("loss", "own, soft")]
            difference_told = told(costs, difference(costs, "own, soft", "loss", regimes=(regime,)))
            rows.append([name, regime, *(f"{cost:.1f}" for cost in pair), difference_told])
    head = ["probabilities", "regime", "loss", "own, soft", "own, soft - loss"]
    return table("The loss depends on how sure the network is: mean regret, sets with variants", head, rows)


def ties(costs: Costs) -> str:
    """Median number of epochs that tie for the best validation value."""
    rows = [
        [NAMES[measure], *(f"{np.median(costs.ties[:, r, m]):.0f}" for r in range(len(REGIMES)))]
        for m, measure in enumerate(MEASURES)
    ]
    return table("Epochs that tie for the best validation value, median over sets", ["monitor", *REGIMES], rows)


# wrong labels ---------------------------------------------------------------------------------------------------------

SHARES = {"15%": ".15", "5%": ".05"}  # of wrong labels; the first is the primary one
OF_IAM = (("mcc", "iam"), ("iam_true", "iam"), ("iam_true", "mcc"))
WRONG = CELLS[2:]  # cells whose validation labels are wrong


def noise_rows(folder: Path) -> list[dict[str, str]]:
    """Rows of ``noise.csv``, none without such a file."""
    path = folder / "noise.csv"
    return rows_of(path) if path.exists() else []


def by_cell(costs: Costs, pairs: Sequence[tuple[str, str]], measures: Sequence[str]) -> list[str]:
    """Differences of pairs of monitors in each cell."""
    return [told(costs, difference(costs, *pair, measures, (cell,))) for pair in pairs for cell in costs.regimes]


def of_iam(shares: dict[str, Costs], rule: str) -> str:
    """MCC and IAM at the true class shares beside IAM, for test IAM, by cell and number of classes."""
    rows = []
    for share, costs in shares.items():
        for classes, some in by_classes(costs).items():
            for pair in OF_IAM:
                first, second = (name + RULES[rule] for name in pair)
                cells = by_cell(some, [(first, second)], ("iam",))
                rows.append([share, f"{classes} ({len(some.sets)})", f"{first} - {second}", *cells])
    return table(f"Wrong labels, test IAM, {rule}, by cell", ["wrong", "sets", "comparison", *CELLS], rows)


def of_measures(costs: Costs, rule: str, classes: str = "all") -> str:
    """Measure itself beside the loss, the last epoch, MCC and itself at the true class shares, by cell."""
    rows, own, end = [], f"own, {rule}", RULES[rule]
    for other in ("loss", "last_epoch", f"mcc{end}"):
        for name, measures in OUTCOMES.items():
            rows.append([f"{own} - {other}", name, *by_cell(costs, [(own, other)], measures)])
    for name in ("macro_f1", "mcc", "iam"):
        pair = (f"{name}_true{end}", f"{name}{end}")
        rows.append([" - ".join(pair), NAMES[name], *by_cell(costs, [pair], (name,))])
    head = ["comparison", "test measure", *CELLS]
    return table(f"15% wrong labels, each test measure, {rule}, {classes} ({len(costs.sets)} sets)", head, rows)


def calibrated(costs: Costs) -> str:
    """Loss at the best temperature beside the loss as trained and the measure itself, mean of the primary measures."""
    pairs = (("loss_scaled", "loss"), ("own, soft", "loss"), ("own, soft", "loss_scaled"))
    rows = [[f"{first} - {second}", *by_cell(costs, [(first, second)], PRIMARY)] for first, second in pairs]
    title = "The loss at the temperature that is best on the validation part, mean of four test measures"
    return table(title, ["comparison", *CELLS], rows)


def costs_by_cell(costs: Costs) -> str:
    """Cost of each monitor on test IAM by cell, and what wrong validation labels add for the same networks."""
    rows = []
    for name in ("loss", "loss_scaled", *(f"{name}_soft" for name in MEASURES), "mcc_true_soft", "iam_true_soft"):
        values = costs.of(name)[:, :, MEASURES.index("iam")]
        added = [told(costs, values[:, right + 2] - values[:, right]) for right in range(2)]
        rows.append([name, *(f"{mean:.1f}" for mean in values.mean(0)), *added])
    values = costs.of("last_epoch")[:, :, MEASURES.index("iam")]
    rows.append(["last_epoch", *(f"{mean:.1f}" for mean in values.mean(0)), "", ""])
    best = costs.best[:, :, MEASURES.index("iam")].mean(0)
    rows.append(["*best test IAM of all epochs*", *(f"{mean:.1f}" for mean in best), "", ""])
    head = ["monitor", *CELLS, "validation only - neither", "both - training only"]
    return table("15% wrong labels: cost on test IAM", head, rows)


def wrong_labels(folder: Path) -> list[str]:
    """Tables of the addendum; none without its data."""
    shares = {share: Costs.with_wrong_labels(folder, cell) for share, cell in SHARES.items()}
    costs = shares["15%"]
    if not costs.sets:
        return []
    pairs = [tuple(f"{name}_soft" for name in pair) for pair in OF_IAM]
    rows = [
        [cell, *compared(costs, first, second, ("iam",), (cell,), len(WRONG) * len(pairs))]
        for cell in WRONG
        for first, second in pairs
    ]
    number = f"{len(costs.sets)} sets ({len(set(costs.families))} families)"
    title = f"15% wrong labels, test IAM: primary comparisons of the addendum, {number}"
    found = [table(title, ["wrong labels", *COMPARED], rows), of_iam(shares, "soft"), costs_by_cell(costs)]
    found += [of_measures(costs, "soft"), calibrated(costs), of_iam({"15%": costs}, "latest")]
    some = {name: some for name, some in by_classes(costs).items() if name != "three or more"}
    return found + [of_measures(each, "latest", name) for name, each in some.items()]


def part(row: dict[str, str], *halves: str) -> bool:
    """Whether a set belongs to one of some halves."""
    return row["half"] in halves


def without_seen(costs: Costs) -> Costs:
    """Sets that no script had been run on before the protocol."""
    seen = seen_before()
    return costs.where(lambda row: row["set"] not in seen)


def tables(folder: Path) -> str:
    """All tables of the study, as they stand in ``results.md``."""
    everything = Costs.read(folder, "base")
    settle, report, generated = (
        everything.where(lambda row, half=half: part(row, half)) for half in ("settle", "report", "generated")
    )
    both = everything.where(lambda row: part(row, "settle", "report"))
    reported = report if report.sets else both
    lines = [
        f"{len(both.sets)} sets of {len(set(both.families))} families: {len(settle.sets)} to settle, "
        f"{len(report.sets)} ({len(set(report.families))} families) to report. {len(generated.sets)} generated sets.",
        "",
    ]
    unseen = without_seen(reported)
    those = f"{len(unseen.sets)} sets ({len(set(unseen.families))} families) of the reporting half"
    title = f"Primary comparisons, the {those} that no script had seen before the protocol"
    found = [comparisons(unseen, COMPARISONS, PRIMARY, title)]
    found.append(comparisons(unseen, LIKE_WITH_LIKE, PRIMARY, "Like with like, the same sets"))
    title = "Right labels alone (plain and weighted loss), the same sets"
    pairs = [("own, soft", other) for other in ("loss", "accuracy_soft", "last_epoch")]
    found.append(comparisons(unseen, pairs, PRIMARY, title, ("plain", "weighted")))
    those = f"{len(unseen.sets)} unseen sets"
    others = ("own, earliest", "loss", "accuracy_latest", "mcc_latest", "last_epoch")
    found += [by_measure_and_regime(unseen, "own, latest", other, those) for other in others]
    found += [*of_one_monitor(settle, unseen, those), mcc_by_classes(unseen, those)]
    found += wrong_labels(folder)
    title = f"Primary comparisons, the whole reporting half ({len(reported.sets)} sets)"
    found.append(comparisons(reported, COMPARISONS, PRIMARY, title))
    found.append(comparisons(both, COMPARISONS, PRIMARY, f"The same over all {len(both.sets)} sets"))
    found += of_one_monitor(settle, reported, "reporting half")
    found.append(all_monitors(reported, "Mean regret in points, reporting half, mean of three regimes"))
    found += [
        all_monitors(reported, f"Mean regret in points, reporting half, {regime}", (regime,)) for regime in REGIMES
    ]
    pairs = [*COMPARISONS[:3], *COMPARISONS[4:], ("own, soft", "last_epoch")]
    found += [by_measure_and_regime(reported, *pair, "reporting half") for pair in pairs]
    chosen = COMPARISONS[1:]
    found += [strata(both, chosen), variants(folder, lambda row: part(row, "settle", "report"), chosen)]
    found += [sureness(folder, lambda row: part(row, "settle", "report")), ties(reported)]
    if generated.sets:
        found.append(all_monitors(generated, "Generated sets with 400 rare validation samples, mean of three regimes"))
    return "\n".join([*lines, *found])


# pictures -------------------------------------------------------------------------------------------------------------


def forest(ax, place: float, values: Array, families: Sequence[str], look: tuple[str, str], label: str | None) -> None:  # type: ignore[no-untyped-def]
    """Draw a mean and its interval over families."""
    color, marker = look
    low, high = family_interval(values, families)
    ax.plot([low, high], [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
    ax.plot(values.mean(), place, marker, color=color, markersize=6, label=label)


def finished(ax, title: str) -> None:  # type: ignore[no-untyped-def]
    """Set what all panels share."""
    ax.axvline(0, color="black", linewidth=1, zorder=0)
    ax.set_title(title, fontsize=10)
    ax.grid(axis="x", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def draw_regret(costs: Costs, path: Path) -> None:
    """Draw what the measure itself gains over the lowest loss, by measure and way to train."""
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, len(REGIMES), figsize=(8, 4.6), sharey=True, layout="constrained")
    looks = {"own, latest": ("#0072B2", "s"), "own, earliest": ("#E69F00", "o")}
    titles = {"plain": "plain loss", "weighted": "class-weighted loss", "noise": "15% wrong labels"}
    for ax, regime in zip(axes, REGIMES, strict=True):
        for shift, (monitor, look) in zip((-0.13, 0.13), looks.items(), strict=True):
            for row, measure in enumerate(MEASURES):
                gains = difference(costs, "loss", monitor, (measure,), (regime,))
                label = f"{monitor.removeprefix('own, ')} of tied epochs" if row == 0 else None
                forest(ax, row + shift, gains, costs.families, look, label)
        finished(ax, titles[regime])
    axes[0].set_yticks(range(len(MEASURES)), [NAMES[name] for name in MEASURES])
    axes[0].invert_yaxis()
    axes[1].set_xlabel("percentage points on test data gained over the epoch of the lowest validation loss")
    handles = axes[0].get_legend_handles_labels()
    title = f"Monitoring the measure itself beats the loss ({len(costs.sets)} small tables)"
    fig.suptitle(title, fontsize=12, fontweight="bold")
    fig.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    fig.savefig(path, dpi=120)
    pyplot.close(fig)


def draw_labels(costs: Costs, path: Path) -> None:
    """Draw what the best epoch gains over two others, by the labels that are wrong."""
    from matplotlib import pyplot

    fig, ax = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    others = {
        "loss": ("over the epoch of the lowest validation loss", ("#D55E00", "D")),
        "last_epoch": ("over the last epoch", ("#009E73", "s")),
    }
    for row, cell in enumerate(CELLS):
        for shift, (other, (name, look)) in zip((-0.12, 0.12), others.items(), strict=True):
            gains = difference(costs, other, "own, latest", PRIMARY, (cell,))
            forest(ax, row + shift, gains, costs.families, look, None if row else name)
    finished(ax, "With wrong labels, keep the best epoch")
    ax.title.set(fontsize=11, fontweight="bold")
    names = ["no label wrong", "training labels wrong", "validation labels wrong", "both wrong"]
    ax.set_yticks(range(len(CELLS)), names)
    ax.invert_yaxis()
    ax.legend(loc="lower right", frameon=False, fontsize=9)
    ax.set_xlabel("mean gain on test data in percentage points, 95% interval")
    fig.savefig(path, dpi=120)
    pyplot.close(fig)


def main() -> None:
    """Write the tables and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the CSV files and of results.md")
    parser.add_argument("--figures", type=Path, help="folder of the pictures; by default examples/figures, or --out")
    arguments = parser.parse_args()
    path = arguments.out / "results.md"
    above = path.read_text(encoding="utf-8").split(MARK)[0] if path.exists() else ""
    text = tables(arguments.out)
    path.write_text(f"{above}{MARK}\n\n{text}", encoding="utf-8")
    print(text)
    costs = Costs.read(arguments.out, "base")
    reported = without_seen(costs.where(lambda row: part(row, "report")))
    figures = arguments.figures or (FIGURES if arguments.out == HERE else arguments.out)
    draw_regret(reported if reported.sets else costs, figures / "study_regret.png")
    if (wrong := Costs.with_wrong_labels(arguments.out, SHARES["15%"])).sets:
        draw_labels(wrong, figures / "study_labels.png")


if __name__ == "__main__":
    main()
