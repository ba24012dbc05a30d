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
NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "gmean": "G-mean",
    "iam": "IAM",
}
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
    regrets: dict[str, Array]
    best: Array
    ties: Array

    @classmethod
    def read(cls, folder: Path, variant: str) -> Costs:
        """All sets that have rows of a variant."""
        cells = {
            (row["set"], row["regime"], row["measure"]): row
            for row in rows_of(folder / "results.csv")
            if row["variant"] == variant
        }
        names = {key[0] for key in cells}
        sets = [row for row in rows_of(folder / "sets.csv") if row["set"] in names]

        def column(name: str) -> Array:
            return np.array(
                [[[float(cells[row["set"], r, m][name] or "nan") for m in MEASURES] for r in REGIMES] for row in sets]
            ).reshape(len(sets), len(REGIMES), len(MEASURES))

        monitors = list(next(iter(cells.values())))[7:] if cells else []
        return cls(sets, {name: 100 * column(name) for name in monitors}, 100 * column("best"), column("ties"))

    def where(self, wanted: Callable[[dict[str, str]], bool]) -> Costs:
        """Costs of the sets that are wanted."""
        keep = np.array([wanted(row) for row in self.sets], dtype=bool)
        regrets = {name: values[keep] for name, values in self.regrets.items()}
        sets = [row for row, kept in zip(self.sets, keep, strict=True) if kept]
        return Costs(sets, regrets, self.best[keep], self.ties[keep])

    def of(self, monitor: str) -> Array:
        """Regrets of a monitor; of ``"own, <rule>"`` those of each measure monitored by itself under that rule."""
        if not monitor.startswith("own, "):
            return self.regrets[monitor]
        postfix = RULES[monitor.removeprefix("own, ")]
        return np.stack([self.regrets[name + postfix][:, :, index] for index, name in enumerate(MEASURES)], 2)

    def outcome(self, monitor: str, measures: Sequence[str] = PRIMARY, regimes: Sequence[str] = REGIMES) -> Array:
        """Mean regret of each set over some measures and regimes."""
        chosen = self.of(monitor)[:, [REGIMES.index(name) for name in regimes]]
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
    costs: Costs, first: str, second: str, measures: Sequence[str] = PRIMARY, regimes: Sequence[str] = REGIMES
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


def comparisons(
    costs: Costs,
    pairs: Sequence[tuple[str, str]],
    measures: Sequence[str],
    title: str,
    regimes: Sequence[str] = REGIMES,
) -> str:
    """Each pair: means, difference, both intervals, the corrected one, and in how many sets the first costs less."""
    rows = []
    for first, second in pairs:
        values = difference(costs, first, second, measures, regimes)
        rows.append(
            [
                f"{first} - {second}",
                f"{costs.outcome(first, measures, regimes).mean():.2f}",
                f"{costs.outcome(second, measures, regimes).mean():.2f}",
                told(costs, values),
                shown(family_interval(values, costs.families, 1 - 0.05 / len(pairs))),
                shown(set_interval(values)),
                f"{(values < 0).sum()}/{(values == 0).sum()}/{(values > 0).sum()}",
            ]
        )
    head = ["comparison", "first", "second", "difference, 95 % (families)", "corrected for their number"]
    return table(title, [*head, "95 % (sets)", "sets less/equal/more"], rows)


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


DECISIONS = (
    ("balanced accuracy", "balanced_accuracy_soft", ("balanced_accuracy",), REGIMES),
    ("G-mean", "gmean_soft", ("gmean",), REGIMES),
    ("macro F1", "mcc_soft", ("macro_f1",), REGIMES),
    ("MCC", "mcc_soft", ("mcc",), REGIMES),
    ("IAM or CBA, labels are right", "iam_soft", ("iam",), ("plain", "weighted")),
    ("IAM or CBA, 15 % of labels are wrong", "mcc_soft", ("iam",), ("noise",)),
    ("accuracy", "accuracy_soft", ("accuracy",), REGIMES),
    ("several of the six, or none yet", "mcc_soft", MEASURES, REGIMES),
)


def decisions(costs: Costs) -> str:
    """Which monitor for whom; the choice was made after the data were seen, its figures are those of these sets."""
    rows = []
    for reader, monitor, measures, regimes in DECISIONS:
        others = ("loss", "accuracy_soft", "last_epoch")
        means = [f"{costs.outcome(name, measures, regimes).mean():.1f}" for name in (monitor, *others)]
        told_pairs = [told(costs, difference(costs, monitor, name, measures, regimes)) for name in others[:2]]
        rows.append([reader, f"`val_{monitor}`", *means, *told_pairs])
    head = [
        "what you report on test data",
        "monitor",
        "costs",
        "loss",
        "accuracy, soft",
        "last epoch",
        "- loss",
        "- accuracy, soft",
    ]
    return table("Which monitor, for whom: points lost, reporting half", head, rows)


def by_measure_and_regime(costs: Costs, first: str, second: str) -> str:
    """Difference of two monitors by each test measure in each regime."""
    rows = [
        [NAMES[measure], *(told(costs, difference(costs, first, second, (measure,), (regime,))) for regime in REGIMES)]
        for measure in MEASURES
    ]
    return table(f"{first} - {second}, by test measure and regime", ["test measure", *REGIMES], rows)


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
            costs = Costs(costs.sets, base.regrets | own, costs.best, costs.ties)
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


def part(row: dict[str, str], *halves: str) -> bool:
    """Whether a set belongs to one of some halves."""
    return row["half"] in halves


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
    seen = seen_before()
    unseen = reported.where(lambda row: row["set"] not in seen)
    those = f"{len(unseen.sets)} sets ({len(set(unseen.families))} families) of the reporting half"
    title = f"Primary comparisons, the {those} that no script had seen before the protocol"
    found = [comparisons(unseen, COMPARISONS, PRIMARY, title)]
    found.append(comparisons(unseen, LIKE_WITH_LIKE, PRIMARY, "Like with like, the same sets"))
    title = "Right labels alone (plain and weighted loss), the same sets"
    pairs = [("own, soft", other) for other in ("loss", "accuracy_soft", "last_epoch")]
    found.append(comparisons(unseen, pairs, PRIMARY, title, ("plain", "weighted")))
    title = f"Primary comparisons, the whole reporting half ({len(reported.sets)} sets)"
    found.append(comparisons(reported, COMPARISONS, PRIMARY, title))
    found.append(comparisons(both, COMPARISONS, PRIMARY, f"The same over all {len(both.sets)} sets"))
    if settle.sets:
        one = one_monitor(settle)
        pairs = [(one, other) for other in ("loss", "accuracy", "last_epoch")]
        title = "One monitor, named by the settling half, over all six test measures, reporting half"
        found.append(comparisons(reported, pairs, MEASURES, title))
    found.append(decisions(reported))
    found.append(all_monitors(reported, "Mean regret in points, reporting half, mean of three regimes"))
    found += [
        all_monitors(reported, f"Mean regret in points, reporting half, {regime}", (regime,)) for regime in REGIMES
    ]
    pairs = [*COMPARISONS[:3], *COMPARISONS[4:], ("own, soft", "last_epoch")]
    found += [by_measure_and_regime(reported, *pair) for pair in pairs]
    chosen = (COMPARISONS[1], COMPARISONS[2], COMPARISONS[4], COMPARISONS[5])
    found += [strata(both, chosen), variants(folder, lambda row: part(row, "settle", "report"), chosen)]
    found += [sureness(folder, lambda row: part(row, "settle", "report")), ties(reported)]
    if generated.sets:
        found.append(all_monitors(generated, "Generated sets with 400 rare validation samples, mean of three regimes"))
    return "\n".join([*lines, *found])


# pictures -------------------------------------------------------------------------------------------------------------


FRONT = {
    "loss": "lowest loss",
    "last_epoch": "last epoch",
    "accuracy": "accuracy",
    "own, earliest": "the measure itself,\nearliest of ties",
    "own, latest": "the measure itself,\nlatest of ties",
    "own, soft": "the measure itself,\nsoft",
    "mcc_latest": "MCC,\nlatest of ties",
}


def draw_regret(costs: Costs, path: Path) -> None:
    """Forest plot: what each rule of the own measure costs more or less than the lowest loss."""
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, len(REGIMES), figsize=(8, 4.4), sharey=True, layout="constrained")
    looks = {"own, earliest": ("#E69F00", "o"), "own, latest": ("#0072B2", "s"), "own, soft": ("#000000", "D")}
    for ax, regime in zip(axes, REGIMES, strict=True):
        for place, (monitor, (color, marker)) in enumerate(looks.items()):
            for row, measure in enumerate(MEASURES):
                values = difference(costs, monitor, "loss", (measure,), (regime,))
                low, high = family_interval(values, costs.families)
                y = row + 0.24 * (place - 1)
                ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt")
                label = FRONT[monitor].replace("\n", " ") if row == 0 else None
                ax.plot(values.mean(), y, marker, color=color, markersize=5, label=label)
        ax.axvline(0, color="0.4", linewidth=1, linestyle="--", zorder=0)
        ax.set_title({"plain": "plain loss", "weighted": "weighted loss", "noise": "15 % label noise"}[regime])
        ax.grid(axis="x", color="0.92")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(MEASURES)), [NAMES[name] for name in MEASURES])
    axes[0].invert_yaxis()
    axes[1].set_xlabel("test points lost, minus those lost by the lowest validation loss (left: better than the loss)")
    handles = axes[0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside upper center", ncols=3, frameon=False, columnspacing=1.2, handletextpad=0.2)
    fig.savefig(path, dpi=130)
    pyplot.close(fig)


def draw_front(costs: Costs, path: Path) -> None:
    """What each monitor costs on test data; the whisker is the interval of its difference from the lowest loss."""
    from matplotlib import pyplot

    measures = ("balanced_accuracy", "macro_f1", "iam")
    fig, axes = pyplot.subplots(1, len(measures), figsize=(8, 3.6), sharey=True, layout="constrained")
    for ax, measure in zip(axes, measures, strict=True):
        reference = costs.outcome("loss", (measure,)).mean()
        for row, monitor in enumerate(FRONT):
            cost = costs.outcome(monitor, (measure,)).mean()
            color = "#56B4E9" if row > 2 else "#BBBBBB"
            ax.barh(row, cost, color=color, height=0.66)
            if monitor != "loss":
                low, high = family_interval(difference(costs, monitor, "loss", (measure,)), costs.families)
                ax.plot([reference + low, reference + high], [row, row], color="black", linewidth=1.3)
            ax.text(0.99, row, f"{cost:.1f}", transform=ax.get_yaxis_transform(), ha="right", va="center")
        ax.axvline(reference, color="black", linestyle="--", linewidth=1)
        ax.set_title(f"test {NAMES[measure]}", fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlim(0, 1.2 * ax.get_xlim()[1])
    axes[0].set_yticks(range(len(FRONT)), FRONT.values())
    axes[0].invert_yaxis()
    axes[1].set_xlabel(
        f"points below the best epoch, mean of {len(costs.sets)} imbalanced sets and three ways to train"
    )
    fig.savefig(path, dpi=130)
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
    reported = costs.where(lambda row: part(row, "report"))
    figures = arguments.figures or (FIGURES if arguments.out == HERE else arguments.out)
    for name, draw in {"study_regret": draw_regret, "study_front": draw_front}.items():
        draw(reported if reported.sets else costs, figures / f"{name}.png")


if __name__ == "__main__":
    main()
