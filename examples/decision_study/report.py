"""Tables and pictures of the study of decisions from results.csv; trains nothing.

    python examples/decision_study/report.py                # rewrites the tables of results.md, and the pictures
    python examples/decision_study/report.py --out /tmp/x   # of another folder, as measure.py --out made it

``results.md`` is written by hand above the line that begins the tables; this script writes what is below it.
Differences are in points, that is hundredths of the measure; units, intervals and verdicts are as in ``protocol.md``.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

HERE = Path(__file__).parent
FIGURES = HERE.parent / "figures"
STRATA = ("two", "three to nine", "ten and more")
REGIMES = ("constant", "falling", "short", "weighted", "pretrained")
MEASURES = ("balanced_accuracy", "macro_f1", "mcc", "iam", "accuracy", "gmean")
COMPARED = ("balanced_accuracy", "iam")
NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "iam": "IAM",
    "gmean": "G-mean",
    "last": "last epoch",
    "own": "own epoch",
    "loss": "lowest loss",
    "ap": "average precision",
}
KEY = ("task", "regime", "size", "rule", "measure")
MAIN = "main"  # validation size: 1,000 of large pools, otherwise all
MARGIN = 1.0  # points within which a difference counts as equal
FEWEST = 3  # units from which an interval is given
MARK = "<!-- tables: written by report.py -->"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Way:
    """Epoch that is kept, and the rule that is applied to it."""

    epoch: str
    rule: str = "none"

    def __str__(self) -> str:
        rule = {"none": "", "chosen": ", chosen rule", "tau 1": ", tau = 1"}.get(self.rule, f", {self.rule}")
        return (NAMES[self.epoch] if self.epoch in ("last", "own", "loss") else f"best {NAMES[self.epoch]}") + rule


LAST, OWN, LOSS = Way("last"), Way("own"), Way("loss")
RULE = (Way("last", "chosen"), LAST)
PRIMARY = (RULE, (OWN, LAST), (OWN, LOSS))
TODAY = Way("last", "rule of today")


class Values:
    """Test values of a run of the study in points, by task."""

    def __init__(self, path: Path) -> None:
        with (HERE / "tasks.csv").open(encoding="utf-8", newline="") as file:
            self.tasks = {row["task"]: row for row in csv.DictReader(file) if row["stratum"]}
        with path.open(encoding="utf-8", newline="") as file:
            self.cells = {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}
        self.run = sorted({key[0] for key in self.cells}, key=list(self.tasks).index)
        self.large = [task for task in self.run if any(key[0] == task and key[2] == "1000" for key in self.cells)]
        with (HERE / "rare.csv").open(encoding="utf-8", newline="") as file:
            self.rare = {row["task"]: int(row["rare"]) for row in csv.DictReader(file)}

    def among(self, stratum: str | None) -> list[str]:
        """Tasks of a stratum, None for all."""
        return [task for task in self.run if stratum in (None, self.tasks[task]["stratum"])]

    def cell(self, task: str, regime: str, size: str, rule: str, measure: str) -> dict[str, str]:
        """Row of the file; empty if there is none."""
        if size == MAIN:
            size = "1000" if task in self.large else "all"
        if rule == "rule of today":
            rule = "resampled" if self.tasks[task]["stratum"] == STRATA[0] else "chosen"
        return self.cells.get((task, regime, size, rule, measure), {})

    def of(self, way: Way, measure: str, regime: str, size: str = MAIN) -> Callable[[str], float]:
        """Function that gives the value of a task, nan if it has none."""

        def value(task: str) -> float:
            text = self.cell(task, regime, size, way.rule, measure).get(way.epoch, "")
            return 100 * float(text) if text else math.nan

        return value

    def difference(
        self,
        pair: tuple[Way, Way],
        measure: str,
        regime: str | tuple[str, str] = "falling",
        size: str = MAIN,
    ) -> Callable[[str], float]:
        """Function that gives the difference of two ways in a task, in a regime or each in its own."""
        regimes = (regime, regime) if isinstance(regime, str) else regime
        first, second = (self.of(way, measure, each, size) for way, each in zip(pair, regimes, strict=True))
        return lambda task: first(task) - second(task)

    def by_unit(self, value: Callable[[str], float], tasks: Sequence[str]) -> dict[str, float]:
        """Mean value of the tasks of each unit."""
        found: dict[str, list[float]] = {}
        for task in tasks:
            if not math.isnan(value(task)):
                found.setdefault(self.tasks[task]["unit"], []).append(value(task))
        return {unit: math.fsum(some) / len(some) for unit, some in sorted(found.items())}


# intervals and verdicts -----------------------------------------------------------------------------------------------


def interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean; none below three units."""
    if len(values) < FEWEST:
        return math.nan, math.nan
    reach = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)


def equal(values: Array) -> bool:
    """Whether the 90% interval lies within the margin."""
    low, high = interval(values, 0.9)
    return low > -MARGIN and high < MARGIN


def p_value(values: Array) -> float:
    """Two-sided p of Student's t-test of a mean of 0; none below three units."""
    if len(values) < FEWEST:
        return math.nan
    t = values.mean() / (values.std(ddof=1) / math.sqrt(len(values)))
    return float(2 * stats.t.sf(abs(t), len(values) - 1))


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected by Holm's procedure."""
    corrected, highest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = highest
    return corrected


def told(values: Array, units: bool = True) -> str:
    """Mean with its interval and the number of units; bold where it excludes 0, "=" where the 90% one is equal."""
    if not len(values):
        return ""
    low, high = interval(values)
    text = f"{values.mean():+.1f}" + ("" if math.isnan(low) else f" [{low:+.1f}, {high:+.1f}]")
    text = f"**{text}**" if low > 0 or high < 0 else text
    return text + " =" * equal(values) + (f" ({len(values)})" if units else "")


# tables ---------------------------------------------------------------------------------------------------------------


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table under its title."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([f"### {title}", "", *lines, ""])


def write_tables(path: Path, text: str) -> None:
    """Print the tables, and write them below what is written by hand in a file."""
    above = path.read_text(encoding="utf-8").split(MARK)[0] if path.exists() else ""
    path.write_text(f"{above}{MARK}\n\n{text}", encoding="utf-8")
    print(text)


def array(found: dict[str, float]) -> Array:
    """Values of the units."""
    return np.array(list(found.values()))


def named(pair: tuple[Way, Way]) -> str:
    """Names of two ways."""
    return f"{pair[0]} - {pair[1]}"


def what_was_run(values: Values) -> str:
    """Units, tasks and runs by stratum."""
    rows = []
    for stratum in STRATA:
        tasks = values.among(stratum)
        units = {values.tasks[task]["unit"] for task in tasks}
        runs = [int(values.cell(task, "falling", MAIN, "none", "iam").get("runs", 0)) for task in tasks]
        seeds = f"{min(runs)} to {max(runs)}" if runs else ""
        rows.append([stratum, str(len(units)), str(len(tasks)), seeds, ", ".join(sorted(units))])
    return table("What was run", ["classes", "units", "tasks", "seeds", "units"], rows)


def primary(values: Values) -> str:
    """The six tests of the protocol."""
    tests = [(pair, measure) for pair in PRIMARY for measure in COMPARED]
    found = [array(values.by_unit(values.difference(pair, measure), values.run)) for pair, measure in tests]
    corrected = holm([p_value(some) for some in found])
    rows = []
    for (pair, measure), some, p in zip(tests, found, corrected, strict=True):
        (low, high), (inner, outer) = interval(some), interval(some, 0.9)
        said = [("gain" if some.mean() > 0 else "loss")] * (p < 0.05) + ["equal"] * equal(some)
        cells = [f"{some.mean():+.2f}", f"[{low:+.2f}, {high:+.2f}]", f"[{inner:+.2f}, {outer:+.2f}]", f"{p:.4f}"]
        rows.append([named(pair), NAMES[measure], str(len(some)), *cells, ", ".join(said) or "inconclusive"])
    head = ["comparison", "test measure", "units", "mean", "95% interval", "90% interval", "p (Holm)", "verdict"]
    return table("Primary tests: rate falling over 20 epochs, all units", head, rows)


def by_stratum(values: Values, title: str, pairs: Sequence[tuple[Way, Way]]) -> str:
    """Differences for all units and for each stratum, falling rate."""
    rows = [row for pair in pairs for row in rows_by_stratum(values, named(pair), pair)]
    return table(title, ["comparison", "test measure", "all", *STRATA], rows)


def rows_by_stratum(
    values: Values, name: str, pair: tuple[Way, Way], regime: str | tuple[str, str] = "falling"
) -> list[list[str]]:
    """Difference of each measure for all units and for each stratum."""
    rows = []
    for measure in MEASURES:
        value = values.difference(pair, measure, regime)
        cells = [told(array(values.by_unit(value, values.among(stratum)))) for stratum in (None, *STRATA)]
        if any(cells):
            rows.append([name, NAMES[measure], *cells])
    return rows


def by_regime(values: Values, pairs: Sequence[tuple[Way, Way]], stratum: str | None, measures: Sequence[str]) -> str:
    """Differences for each regime."""
    rows = []
    for pair in pairs:
        for measure in measures:
            cells = [
                told(array(values.by_unit(values.difference(pair, measure, regime), values.among(stratum))))
                for regime in REGIMES
            ]
            rows.append([named(pair), NAMES[measure], *cells])
    title = f"By regime: {'all units' if stratum is None else f'{stratum} classes'}"
    return table(title, ["comparison", "test measure", *REGIMES], rows)


def by_size(values: Values) -> str:
    """Differences by the size of the validation part, large pools."""
    rows = []
    for pair in (*PRIMARY, (Way("last", "tau 1"), LAST)):
        for measure in MEASURES[:5]:
            cells = [
                told(array(values.by_unit(values.difference(pair, measure, size=size), values.large)))
                for size in ("300", "1000", "all")
            ]
            rows.append([named(pair), NAMES[measure], *cells])
    title = "By validation samples: glyphs, tokens and chess with their merges, falling rate"
    return table(title, ["comparison", "test measure", "300", "1,000", "4,000"], rows)


def by_rarity(values: Values) -> str:
    """Differences with two classes by the number of rare validation samples."""
    bounds = ((0, 10), (10, 31), (31, 10**9))
    rows = []
    for pair in (*PRIMARY, (Way("last", "tau 1"), LAST)):
        for measure in MEASURES:
            cells = []
            for low, high in bounds:
                tasks = [task for task in values.among(STRATA[0]) if low <= values.rare[task] < high]
                cells.append(told(array(values.by_unit(values.difference(pair, measure), tasks))))
            rows.append([named(pair), NAMES[measure], *cells])
    title = "Two classes, by rare validation samples, falling rate"
    return table(title, ["comparison", "test measure", "fewer than 10", "10 to 30", "more"], rows)


def thresholds(values: Values) -> str:
    """Other ways to choose a threshold, added when the results were known: two classes, falling rate, last epoch."""
    ways = {"nearest .5": "of tied thresholds the one nearest 0.5", "chosen tau": "tau as with more classes"}
    rows = []
    for rule, name in ways.items():
        for second, against in ((Way("last", "chosen"), "the lowest of tied thresholds"), (LAST, "threshold 0.5")):
            pair = (Way("last", rule), second)
            found = [array(values.by_unit(values.difference(pair, m), values.among(STRATA[0]))) for m in MEASURES]
            rows.append([f"{name} - {against}", *(told(some, units=False) for some in found)])
    title = "Two classes, other ways to choose the threshold, added when the results were known"
    return table(title, ["comparison", *(NAMES[name] for name in MEASURES)], rows)


def rule_of_today(values: Values) -> str:
    """Gain of the rule that the library chooses today, at the last epoch; added when the results were known."""
    rows = []
    for stratum in (None, *STRATA):
        for measure in MEASURES:
            gains = [values.difference((TODAY, LAST), measure, regime) for regime in REGIMES]
            cells = [told(array(values.by_unit(gain, values.among(stratum)))) for gain in gains]
            if any(cells):
                rows.append([stratum or "all", NAMES[measure], *cells])
    title = "The rule of today (two classes: the resampled threshold), added when the results were known"
    return table(title, ["classes", "test measure", *REGIMES], rows)


def advice(values: Values) -> str:
    """The own epoch with the rule of today against other ways; added when the results were known."""
    own = Way("own", "rule of today")
    pairs = [(own, Way(epoch)) for epoch in ("last", "loss", "accuracy")]
    pairs += [(own, Way(epoch, "rule of today")) for epoch in ("last", "loss", "accuracy")]
    pairs.append((Way("last", "for balanced accuracy"), LAST))
    rows = []
    for measure in MEASURES:  # what the differences are to be compared with
        for way in (LAST, LOSS):
            some = [values.by_unit(values.of(way, measure, "falling"), values.among(each)) for each in (None, *STRATA)]
            cells = [f"{array(found).mean():.1f} ({len(found)})" if found else "" for found in some]
            rows.append([f"mean value of the {way}", NAMES[measure], *cells])
    rows += [row for pair in pairs for row in rows_by_stratum(values, named(pair), pair)]
    title = "The own epoch with the rule of today, added when the results were known"
    return table(title, ["comparison", "test measure", "all", *STRATA], rows)


def promised(values: Values) -> str:
    """What the chosen rule said on validation data minus what it is on test data, and the mean setting."""
    rows = []
    for stratum in STRATA:
        for measure in MEASURES:

            def excess(task: str, measure: str = measure) -> float:
                row = values.cell(task, "falling", MAIN, "chosen", measure)
                return 100 * (float(row["said"]) - float(row["last"])) if row else math.nan

            def setting(task: str, measure: str = measure) -> float:
                row = values.cell(task, "falling", MAIN, "chosen", measure)
                return float(row["setting"]) if row else math.nan

            found = array(values.by_unit(excess, values.among(stratum)))
            if len(found):
                mean = array(values.by_unit(setting, values.among(stratum))).mean()
                rows.append([stratum, NAMES[measure], told(found), f"{mean:.2f}"])
    head = ["classes", "measure", "validation - test", "mean tau (two classes: threshold)"]
    return table("The chosen rule at the last epoch: what it promised, falling rate", head, rows)


def levels(values: Values, measure: str) -> str:
    """Values of each unit by the main ways, falling rate, by stratum."""
    ways = (LAST, OWN, LOSS, Way("last", "chosen"), Way("own", "chosen"), Way("last", "tau 1"))
    rows = []
    for stratum in STRATA:
        columns = [values.by_unit(values.of(way, measure, "falling"), values.among(stratum)) for way in ways]
        weighted = values.by_unit(values.of(LAST, measure, "weighted"), values.among(stratum))
        for unit in columns[0]:
            cells = [f"{column[unit]:.1f}" for column in (*columns, weighted) if unit in column]
            rows.append([stratum, unit, *cells])
    head = ["classes", "unit", *(str(way) for way in ways), "class-weighted loss, last epoch"]
    return table(f"Test {NAMES[measure]}, falling rate", head, rows)


def weighted_loss(first: Values, second: Values) -> str:
    """Class-weighted loss against the plain one, and against the plain one with a rule; last epoch, falling rate."""
    plain = (LAST, Way("last", "chosen"), Way("last", "tau 1"))
    compared = [(first, f"weighted - plain, {way}", (LAST, way)) for way in plain]
    compared.append((second, f"weighted - plain, {TODAY}", (LAST, TODAY)))  # these two when the results were known
    compared.append((second, f"weighted, {TODAY} - plain, {TODAY}", (TODAY, TODAY)))
    rows = [row for some, name, pair in compared for row in rows_by_stratum(some, name, pair, ("weighted", "falling"))]
    title = "Class-weighted loss against the plain one, falling rate"
    return table(title, ["comparison", "test measure", "all", *STRATA], rows)


def runs_of(folder: Path) -> tuple[Values, Values]:
    """Values of the first run and of the second, from which the rule of today is measured; one run has both."""
    first, second = folder / "results.csv", folder / "second_run.csv"
    return Values(first), Values(second if second.exists() else first)


def tables(folder: Path) -> str:
    """All tables."""
    values, second = runs_of(folder)
    found = [what_was_run(values), primary(values)]
    found.append(by_stratum(values, "The same comparisons by the number of classes, falling rate", PRIMARY))
    tau = ((Way("last", "tau 1"), LAST), (Way("last", "chosen"), Way("last", "tau 1")))
    found.append(by_stratum(values, "tau = 1, which needs no validation data, falling rate", tau))
    after = tuple((Way(epoch, "chosen"), Way("last", "chosen")) for epoch in ("own", "loss"))
    found.append(by_stratum(values, "The epoch when the rule is chosen, falling rate", after))
    others = tuple((OWN, Way(epoch)) for epoch in ("accuracy", "mcc", "ap"))
    found.append(by_stratum(values, "Other monitors, without a rule, falling rate", others))
    found += [by_regime(values, (*PRIMARY, tau[0]), stratum, MEASURES[:5]) for stratum in (None, *STRATA)]
    if values.large:
        found.append(by_size(values))
    found += [by_rarity(values), thresholds(values), rule_of_today(second), advice(second)]
    found += [weighted_loss(values, second), promised(values)]
    found += [levels(values, measure) for measure in COMPARED]
    return "\n".join(found)


# pictures -------------------------------------------------------------------------------------------------------------

LOOKS = {"two": ("#0072B2", "o"), "three to nine": ("#E69F00", "^"), "ten and more": ("#D55E00", "D")}


KINDS = {  # in the order of the picture
    "falling": "20 epochs, learning\nrate falling to 0",
    "constant": "20 epochs,\nconstant learning rate",
    "weighted": "20 epochs,\nclass-weighted loss",
    "short": "6 epochs",
    "pretrained": "6 epochs, pretrained\non other small data",
}


def finished(ax, title: str) -> None:  # type: ignore[no-untyped-def]
    """Set what all panels share."""
    ax.axvline(0, color="black", linewidth=1)
    ax.set_title(title, fontsize=10)
    ax.grid(axis="x", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("percentage points on test data")


def save(fig, path: Path) -> None:  # type: ignore[no-untyped-def]
    """Write a PNG of at most 64 colours, half of the bytes."""
    from PIL import Image

    with io.BytesIO() as file:
        fig.savefig(file, dpi=100)
        Image.open(file).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def draw_rule(folder: Path, path: Path) -> None:
    """Draw the gain of the chosen rule in each unit, sorted, and its mean with an interval for each stratum."""
    from matplotlib import pyplot

    _, values = runs_of(folder)
    fig, axes = pyplot.subplots(1, 2, figsize=(8, 6.2), layout="constrained")
    fig.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    for ax, measure in zip(axes, COMPARED, strict=True):
        gain = values.difference((TODAY, LAST), measure)
        of_units = values.by_unit(gain, values.run)
        order = sorted(of_units, key=lambda unit: of_units[unit])
        for stratum, (color, marker) in LOOKS.items():
            found = values.by_unit(gain, values.among(stratum))
            ax.plot(list(found.values()), [order.index(unit) for unit in found], marker, color=color, alpha=0.75)
        ax.plot([of_units[unit] for unit in order], range(len(order)), "k|", markersize=11, markeredgewidth=1.6)
        rows = [*LOOKS.items(), (None, ("black", "s"))]
        for place, (stratum, (color, marker)) in enumerate(rows):
            means = array(values.by_unit(gain, values.among(stratum)))
            height = -2 - place
            if len(means) >= FEWEST:
                ax.plot(interval(means), [height] * 2, color=color, linewidth=2.5)
            if len(means):
                ax.plot(means.mean(), height, marker, color=color, markersize=8)
        ax.axhline(-1, color="0.6", linewidth=0.8)
        labels = [f"{stratum or 'all'} {'classes' if stratum else 'units'}" for stratum, _ in rows]
        ax.set_yticks([*range(len(order)), *(-2 - place for place in range(len(rows)))], [*order, *labels], fontsize=8)
        for text in ax.get_yticklabels()[len(order) :]:
            text.set_fontweight("bold")
        gaining = sum(gain > 0.5 for gain in of_units.values())
        finished(ax, f"test {NAMES[measure]}: {gaining} of {len(order)} units")
    fig.suptitle(
        "A chosen rule gains more than half a point over argmax in most units",
        fontsize=11,
        fontweight="bold",
    )
    marks = [pyplot.Line2D([], [], color=color, marker=marker, linestyle="") for color, marker in LOOKS.values()]
    marks.append(pyplot.Line2D([], [], color="black", marker="|", linestyle="", markersize=11, markeredgewidth=1.6))
    names = [*(f"tasks of {stratum} classes" for stratum in LOOKS), "mean of the unit"]
    title = "above: each unit; below: means with 95% intervals"
    fig.legend(marks, names, loc="outside lower center", ncols=4, frameon=False, title=title, fontsize=8.5)
    save(fig, path)
    pyplot.close(fig)


def draw_epochs(folder: Path, path: Path) -> None:
    """Draw what the best epoch gains over two others, by regime."""
    from matplotlib import pyplot

    values, _ = runs_of(folder)
    labels = {
        (OWN, LOSS): ("over the epoch of the lowest validation loss", "#D55E00", "D"),
        (OWN, LAST): ("over the last epoch", "#009E73", "s"),
    }
    names = list(KINDS.values())
    fig, axes = pyplot.subplots(1, 2, figsize=(8.4, 4.4), sharey=True, layout="constrained")
    for ax, measure in zip(axes, COMPARED, strict=True):
        for shift, (pair, (label, color, marker)) in zip((-0.15, 0.15), labels.items(), strict=True):
            for place, regime in enumerate(KINDS):
                found = array(values.by_unit(values.difference(pair, measure, regime), values.run))
                if len(found) >= FEWEST:
                    ax.plot(interval(found), [place + shift] * 2, color=color, linewidth=2)
                    ax.plot(found.mean(), place + shift, marker, color=color, label=None if place else label)
                    names[place] = f"{KINDS[regime]}\n({len(found)} units)"
        finished(ax, f"test {NAMES[measure]}")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    handles = axes[0].get_legend_handles_labels()
    fig.suptitle(
        "The last epoch is nowhere clearly worse than the best one, that of the lowest loss often is",
        fontsize=11,
        fontweight="bold",
    )
    title = "mean gain of the best epoch, 95% interval"
    fig.legend(*handles, loc="outside lower center", ncols=2, frameon=False, title=title)
    save(fig, path)
    pyplot.close(fig)


def main() -> None:
    """Write the tables and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.csv and of results.md")
    parser.add_argument("--figures", type=Path, help="folder of the pictures; by default examples/figures, or --out")
    arguments = parser.parse_args()
    write_tables(arguments.out / "results.md", tables(arguments.out))
    figures = arguments.figures or (FIGURES if arguments.out == HERE else arguments.out)
    draw_rule(arguments.out, figures / "decision_rule.png")
    draw_epochs(arguments.out, figures / "decision_epochs.png")


if __name__ == "__main__":
    main()
