"""Tables and pictures of the study of deep networks from its CSV files; trains nothing.

    python examples/deep_study/report.py                # rewrites the tables of results.md, and the pictures
    python examples/deep_study/report.py --out /tmp/x   # of another folder, as measure.py --out made it

``results.md`` is written by hand above the line that begins the tables; below it stands what this script writes.
Differences are in points, that is hundredths of the measure; intervals and verdicts are those of ``protocol.md``.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

HERE = Path(__file__).parent
FIGURES = HERE.parent / "figures"
TASKS = ("glyphs", "glyphs-residual", "tokens", "chess", "digits", "digit")
MANY = TASKS[:5]  # tasks with ten classes or more
LARGE = TASKS[:4]  # tasks with validation parts of each size
REGIMES = ("plain", "weighted", "adjusted", "noise", "decay")
MEASURES = ("accuracy", "balanced_accuracy", "macro_f1", "mcc", "iam")
COMPARED = ("balanced_accuracy", "iam")  # test measures of the primary comparisons
SIZES = (300, 1_000, 4_000, 8_000)
PRIMARY = 1_000
RULES = {"earliest": "", "latest": "_latest", "soft": "_soft"}
NAMES = {
    "loss": "lowest loss",
    "loss_scaled": "loss, temperature-scaled",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "iam": "IAM",
    "iam_true": "IAM at the true shares",
    "gmean": "G-mean",
    "worst_recall": "worst-class recall",
    "last": "last epoch",
}
FEWEST = 4  # seeds from which something is said
MARK = "<!-- tables: written by report.py -->"
Array = NDArray[np.float64]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(cell: str) -> float:
    """Value of a cell, nan where it is empty."""
    return float(cell) if cell else math.nan


@dataclass(frozen=True)
class Setting:
    """Runs that are read together: how they were trained, and on which validation part the epochs were kept."""

    regime: str = "plain"
    labels: str = "right"
    size: int = PRIMARY
    patience: int | None = None


class Values:
    """Test values of the kept epochs, in points."""

    def __init__(self, folder: Path) -> None:
        self.cells: dict[tuple[str, str, str, int, int | None, str], dict[int, dict[str, str]]] = {}
        for name in ("results", "stops"):
            for row in rows_of(folder / f"{name}.csv"):
                patience = int(row["patience"]) if name == "stops" else None
                key = (row["task"], row["regime"], row["labels"], int(row["size"]), patience, row["measure"])
                self.cells.setdefault(key, {})[int(row["seed"])] = row

    def among(self, tasks: Sequence[str]) -> list[str]:
        """Tasks of some that have runs."""
        return [task for task in tasks if self.runs(task, "iam", Setting())]

    def runs(self, task: str, measure: str, setting: Setting) -> dict[int, dict[str, str]]:
        """Rows by seed; digits have 300 validation samples, which stand for the primary size."""
        small = task in ("digits", "digit") and setting.size == PRIMARY
        size = SIZES[0] if small else setting.size
        return self.cells.get((task, setting.regime, setting.labels, size, setting.patience, measure), {})

    def of(self, monitor: str, task: str, measure: str, setting: Setting) -> Array:
        """Test value of each run by a monitor; ``own`` is the test measure itself, with a rule: ``own_latest``."""
        name = measure + monitor.removeprefix("own") if monitor.startswith("own") else monitor
        rows = self.runs(task, measure, setting)
        return 100 * np.array([number(rows[seed][name]) for seed in sorted(rows)])

    def difference(self, pair: tuple[str, str], task: str, measures: Sequence[str], setting: Setting) -> Array:
        """Paired difference of two monitors for each run, mean over some test measures."""
        first, second = ([self.of(name, task, measure, setting) for measure in measures] for name in pair)
        return np.mean(np.subtract(first, second), 0) if len(first[0]) else np.empty(0)


# intervals and verdicts -----------------------------------------------------------------------------------------------


def interval(values: Array) -> tuple[float, float]:
    """Student's 95% interval of the mean; none below four runs."""
    if len(values) < FEWEST:
        return math.nan, math.nan
    reach = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)


def sign(values: Array) -> int:
    """1 for a gain, -1 for a loss, 0 for an inconclusive difference."""
    low, high = interval(values)
    return int(low > 0) - int(high < 0)


def told(values: Array) -> str:
    """Mean difference with its interval, in bold where that excludes 0; with fewer than four seeds, their number."""
    if not len(values):
        return ""
    low, high = interval(values)
    text = f"{values.mean():+.1f} " + (f"({len(values)} seeds)" if math.isnan(low) else f"[{low:+.1f}, {high:+.1f}]")
    return f"**{text}**" if sign(values) else text


def verdict(some: Sequence[Array]) -> str:
    """Gains and losses among tasks, and what the protocol's rule says of them."""
    signs = [sign(values) for values in some if len(values) >= FEWEST]
    gains, losses = signs.count(1), signs.count(-1)
    said = "open"
    if gains >= 3 and not losses:
        said = "holds"
    if losses >= 3 and not gains:
        said = "refuted"
    return f"gains in {gains}, loses in {losses} of {len(signs)}: {said}"


# tables ---------------------------------------------------------------------------------------------------------------


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table under its title."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([f"### {title}", "", *lines, ""])


def named(monitor: str) -> str:
    """Name of a monitor with its rule."""
    rule = next((rule for rule, end in RULES.items() if end and monitor.endswith(end)), "earliest")
    base = monitor.removesuffix(RULES[rule])
    if base in ("loss", "loss_scaled", "last"):
        return NAMES[base]
    return f"{'the measure itself' if base == 'own' else NAMES[base]}, {rule}"


def by_task(
    values: Values,
    title: str,
    pairs: Sequence[tuple[str, str]],
    setting: Setting,
    measures: Sequence[str] = COMPARED,
) -> str:
    """Each pair for each test measure: a column for each task, then the verdict."""
    tasks = values.among(TASKS)
    rows = []
    for pair in pairs:
        for measure in measures:
            some = [values.difference(pair, task, (measure,), setting) for task in tasks]
            versus = f"{named(pair[0])} - {named(pair[1])}"
            rows.append([versus, NAMES[measure], *(told(each) for each in some), verdict(some)])
    return table(title, ["comparison", "test measure", *tasks, "verdict"], rows)


PAIRS = (("own_latest", "loss"), ("own_latest", "accuracy_latest"), ("own_latest", "last"))
UNDECIDED = (  # the last five were added when the results were known
    *(("mcc_soft", name) for name in ("iam_soft", "balanced_accuracy_soft", "macro_f1_soft", "last")),
    *((f"{name}_latest", "mcc_latest") for name in ("iam", "balanced_accuracy", "macro_f1")),
    *((f"{name}_latest", "accuracy_latest") for name in ("iam", "balanced_accuracy")),
)
TIES = (("own_latest", "own"), ("own_soft", "own"), ("own_soft", "own_latest"))
SHARES = (("mcc_soft", "iam_soft"), ("iam_true_soft", "iam_soft"), ("iam_true_soft", "mcc_soft"), ("last", "iam_soft"))


def undecided(values: Values) -> str:
    """MCC and accuracy against the others, mean of five test measures."""
    tasks = values.among(MANY)
    rows = []
    for pair in UNDECIDED:
        some = [values.difference(pair, task, MEASURES, Setting()) for task in tasks]
        rows.append([f"{named(pair[0])} - {named(pair[1])}", *(told(each) for each in some), verdict(some)])
    title = "One monitor for all: MCC and accuracy against others, mean of five test measures"
    return table(title, ["comparison", *tasks, "verdict"], rows)


def worth(values: Values, title: str, tasks: Sequence[str], setting: Setting, end: str = "_latest") -> str:
    """Each monitor against the last epoch by each test measure: the mean over tasks of the means over runs."""
    monitors = ["loss", "loss_scaled", *(name + end for name in (*MEASURES, "worst_recall"))]
    rows = []
    for monitor in monitors:
        means = [
            np.mean([values.difference((monitor, "last"), task, (measure,), setting).mean() for task in tasks])
            for measure in MEASURES
        ]
        rows.append([named(monitor), *(f"{mean:+.1f}" for mean in means), f"{np.mean(means):+.1f}"])
    last = [np.mean([values.of("last", task, measure, setting).mean() for task in tasks]) for measure in MEASURES]
    rows.append(["*last epoch, test value*", *(f"{mean:.1f}" for mean in last), f"{np.mean(last):.1f}"])
    return table(title, ["monitor", *(NAMES[name] for name in MEASURES), "mean of five"], rows)


def levels(values: Values, measure: str) -> str:
    """Each monitor's mean test value in each task."""
    tasks = values.among(TASKS)
    monitors = ["loss", "loss_scaled", *(f"{name}_latest" for name in (*MEASURES, "worst_recall", "gmean")), "last"]
    rows = []
    for monitor in [*monitors, "best"]:
        means = [values.of(monitor, task, measure, Setting()).mean() for task in tasks]
        name = "*best epoch of the test part*" if monitor == "best" else named(monitor)
        rows.append([name, *("" if math.isnan(mean) else f"{mean:.1f}" for mean in means)])
    return table(f"Test {NAMES[measure]} of the kept epoch, plain loss, 1,000 samples", ["monitor", *tasks], rows)


def regimes(values: Values) -> str:
    """The primary comparisons under each regime: verdicts, and the mean over tasks."""
    rows = []
    for regime in REGIMES:
        setting = Setting(regime)
        for measure in COMPARED:
            cells = []
            for pair in PAIRS:
                some = [values.difference(pair, task, (measure,), setting) for task in values.among(TASKS)]
                some = [each for each in some if len(each) >= FEWEST]
                cells.append(f"{np.mean([each.mean() for each in some]):+.1f}; {verdict(some)}" if some else "")
            if any(cells):
                rows.append([regime, NAMES[measure], *cells])
    head = [f"{named(first)} - {named(second)}" for first, second in PAIRS]
    return table(
        "Ways to train, right validation labels: mean over tasks with four seeds; verdict",
        ["regime", "test measure", *head],
        rows,
    )


def sizes(values: Values) -> str:
    """The primary comparisons by the size of the validation part, the tasks that have all sizes."""
    rows = []
    for size in SIZES:
        setting = Setting(size=size)
        for measure in (*COMPARED, "macro_f1"):
            cells = []
            for pair in (*PAIRS, TIES[0]):
                some = [values.difference(pair, task, (measure,), setting) for task in values.among(LARGE)]
                cells.append(f"{np.mean([each.mean() for each in some]):+.1f}; {verdict(some)}")
            rows.append([f"{size:,}", NAMES[measure], *cells])
    head = [f"{named(first)} - {named(second)}" for first, second in (*PAIRS, TIES[0])]
    title = "By validation samples: mean over glyphs, glyphs-residual, tokens and chess; verdict"
    return table(title, ["samples", "test measure", *head], rows)


def stopping(values: Values) -> str:
    """Training that stops early against training to the end and keeping the best by the measure itself."""
    rows = []
    for patience in (3, 10):
        for monitor in ("loss", "accuracy", "own", "own_soft"):
            for measure in COMPARED:
                some = []
                for task in values.among(TASKS):
                    stopped = values.of(monitor, task, measure, Setting(patience=patience))
                    some.append(stopped - values.of("own_latest", task, measure, Setting()))
                stop = f"{named(monitor)}, patience {patience}"
                rows.append([stop, NAMES[measure], *(told(each) for each in some), verdict(some)])
    title = "Early stopping against training to the end with the measure itself, latest of ties"
    return table(title, ["stopped by", "test measure", *values.among(TASKS), "verdict"], rows)


def wrong_labels(values: Values) -> str:
    """Points of test IAM that wrong validation labels take from each monitor, and what is left, plain loss."""
    rows = []
    for monitor in ("loss", "accuracy_soft", "mcc_soft", "balanced_accuracy_soft", "iam_soft", "iam_true_soft"):
        cells = []
        for task in values.among(TASKS):
            right, wrong = (values.of(monitor, task, "iam", Setting(labels=kind)) for kind in ("right", "wrong"))
            cells.append(told(wrong - right))
        rows.append([named(monitor), *cells])
    return table(
        "Test IAM: 15% wrong validation labels - right ones, by monitor", ["monitor", *values.among(TASKS)], rows
    )


def ties(values: Values) -> str:
    """Epochs that tie for the best validation value, and classes that the part lacks, means."""
    rows = []
    for task in values.among(TASKS):
        for size in SIZES:
            setting = Setting(size=size)
            found = {measure: values.runs(task, measure, setting) for measure in MEASURES}
            if task in ("digits", "digit") and size != SIZES[0]:
                continue
            of = [np.mean([number(row["ties"]) for row in some.values()]) for some in found.values()]
            absent = np.mean([number(row["absent"]) for row in found["iam"].values()])
            rows.append([task, f"{size:,}", f"{absent:.1f}", *(f"{mean:.1f}" for mean in of)])
    head = ["task", "samples", "absent classes", *(NAMES[name] for name in MEASURES)]
    return table("Tied epochs of 20 and absent classes, plain loss", head, rows)


def trained(folder: Path) -> str:
    """Runs and processor time."""
    runs = rows_of(folder / "runs.csv")
    rows = []
    for task in TASKS:
        some = [row for row in runs if row["task"] == task]
        done = [str(sum(row["regime"] == regime for row in some)) for regime in REGIMES]
        seconds = sum(float(row["seconds"]) for row in some)
        rows.append([task, some[0]["classes"] if some else "", *done, f"{seconds / 60:.1f}"])
    total = sum(float(row["seconds"]) for row in runs) / 60
    title = f"Runs (seeds) by regime: {len(runs)}, {total:.0f} minutes of processor time to train"
    return table(title, ["task", "classes", *REGIMES, "minutes"], rows)


def tables(folder: Path) -> str:
    """All tables of the study, as they stand in ``results.md``."""
    values = Values(folder)
    large = values.among(LARGE)
    found = [trained(folder)]
    found.append(by_task(values, "Primary comparisons: plain loss, 1,000 samples (digits 300)", PAIRS, Setting()))
    pairs = (PAIRS[0], PAIRS[2])  # added when the results were known, as are those of the weighted loss
    found.append(by_task(values, "The same for other test measures", pairs, Setting(), ("accuracy", "macro_f1", "mcc")))
    found.append(by_task(values, "Loss weighted by class, right labels", pairs, Setting("weighted"), MEASURES))
    found.append(undecided(values))
    found.append(by_task(values, "Ties", TIES, Setting()))
    title = "Wrong validation labels (15%), plain loss, test IAM"
    found.append(by_task(values, title, SHARES, Setting(labels="wrong"), measures=("iam",)))
    title = "Wrong training and validation labels (15%), test IAM"
    found.append(by_task(values, title, SHARES, Setting("noise", "wrong"), measures=("iam",)))
    found.append(wrong_labels(values))
    if large:
        title = f"Worth beside the last epoch, plain loss, 1,000 samples, mean of {', '.join(large)}"
        found.append(worth(values, title, large, Setting()))
        found.append(worth(values, title.replace("1,000", "8,000"), large, Setting(size=8_000)))
        found.append(sizes(values))
    found += [levels(values, measure) for measure in ("balanced_accuracy", "macro_f1", "mcc", "iam")]
    found.append(regimes(values))
    others = [("own_latest", name) for name in ("mcc_latest", "loss_scaled", "worst_recall_latest")]
    title = "Against MCC, the temperature-scaled loss and worst-class recall"
    found.append(by_task(values, title, [*others, ("loss_scaled", "loss")], Setting()))
    found += [stopping(values), ties(values)]
    return "\n".join(found)


# pictures -------------------------------------------------------------------------------------------------------------

LOOKS = {
    "own_latest": ("the measure itself", "#0072B2", "o"),
    "mcc_latest": ("MCC", "#009E73", "s"),
    "accuracy_latest": ("accuracy", "#E69F00", "^"),
    "loss": ("the loss", "#D55E00", "D"),
}


def draw_sizes(folder: Path, path: Path) -> None:
    """Draw the worth of each monitor beside the last epoch, by the number of validation samples."""
    from matplotlib import pyplot

    values = Values(folder)
    tasks = values.among(LARGE)
    fig, axes = pyplot.subplots(1, 2, figsize=(8, 4.3), layout="constrained")
    for ax, measure in zip(axes, COMPARED, strict=True):
        for monitor, (label, color, marker) in LOOKS.items():
            means = [
                np.mean([values.difference((monitor, "last"), t, (measure,), Setting(size=size)).mean() for t in tasks])
                for size in SIZES
            ]
            ax.plot(SIZES, means, color=color, marker=marker, label=label)
        ax.axhline(0, color="black", linestyle="--", linewidth=1, label="last epoch")
        ax.set_xscale("log")
        ax.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
        ax.minorticks_off()
        ax.set_title(f"test {NAMES[measure]}", fontsize=11)
        ax.set_xlabel("validation samples")
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("percentage points better (+) or\nworse (-) than the last epoch")
    handles = axes[0].get_legend_handles_labels()
    fig.legend(
        *handles, loc="outside lower center", ncols=5, frameon=False, title="epoch kept by the best validation value of"
    )
    title = "The lowest loss is worst; the measure itself needs 1,000 samples to match the last epoch"
    fig.suptitle(title, fontsize=11, fontweight="bold")
    fig.savefig(path, dpi=100)
    pyplot.close(fig)


def run_to_draw(folder: Path) -> list[dict[str, str]]:
    """Return the first run on glyphs in which loss, accuracy and IAM keep three epochs, else the first run."""
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows_of(folder / "curves.csv"):
        runs.setdefault((row["task"], row["seed"]), []).append(row)
    found = [some for (task, _), some in runs.items() if task == "glyphs"] or list(runs.values())
    return next((some for some in found if len(set(kept_by(some).values())) == 3), found[0])


def kept_by(run: Sequence[dict[str, str]]) -> dict[str, int]:
    """Return the epochs that the loss, accuracy and IAM keep, the latest of ties."""
    columns = {"loss": [-number(row["loss"]) for row in run]}
    columns |= {name: [number(row[f"validation_{name}"]) for row in run] for name in ("accuracy", "iam")}
    return {name: max(range(len(some)), key=lambda epoch: (some[epoch], epoch)) for name, some in columns.items()}


def draw_run(folder: Path, path: Path) -> None:
    """Draw one training run: three validation curves that keep three epochs, and the test IAM of these."""
    from matplotlib import pyplot

    run = run_to_draw(folder)
    kept = kept_by(run)
    epochs = [int(row["epoch"]) + 1 for row in run]
    looks = {"loss": ("loss", "#D55E00", "D"), "accuracy": ("accuracy", "#E69F00", "^"), "iam": ("IAM", "#0072B2", "o")}
    fig, axes = pyplot.subplots(2, 2, figsize=(8, 4.8), sharex=True, layout="constrained")
    for ax, (name, (label, color, marker)) in zip(axes.flat, looks.items(), strict=False):
        column = "loss" if name == "loss" else f"validation_{name}"
        curve = [number(row[column]) for row in run]
        ax.plot(epochs, curve, color=color)
        ax.plot(epochs[kept[name]], curve[kept[name]], marker, color=color, markersize=9)
        best = "lowest" if name == "loss" else "highest"
        ax.set_title(f"validation {label}: {best} in epoch {epochs[kept[name]]}", fontsize=10)
    ax = axes.flat[3]
    tested = [number(row["test_iam"]) for row in run]
    ax.plot(epochs, tested, color="black")
    for name, (label, color, marker) in looks.items():
        epoch = kept[name]
        text = f"kept by {label}: IAM {tested[epoch]:.2f}"
        ax.plot(epochs[epoch], tested[epoch], marker, color=color, markersize=9, label=text)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title("test IAM of every epoch", fontsize=10)
    for ax in axes.flat:
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    kept_values = [tested[epoch] for epoch in kept.values()]
    title = f"One run, three monitors, three epochs: test IAM from {min(kept_values):.2f} to {max(kept_values):.2f}"
    fig.suptitle(title, fontsize=11, fontweight="bold")
    for ax in axes[1]:
        ax.set_xlabel("epoch")
        ax.set_xticks(range(0, len(epochs) + 1, 5))
    fig.savefig(path, dpi=100)
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
    figures = arguments.figures or (FIGURES if arguments.out == HERE else arguments.out)
    draw_run(arguments.out, figures / "deep_run.png")
    if Values(arguments.out).among(LARGE):
        draw_sizes(arguments.out, figures / "deep_sizes.png")


if __name__ == "__main__":
    main()
