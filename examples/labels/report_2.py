"""Print criteria and tables of the second study of labels from its files, and draw its picture.

python examples/labels/report_2.py            # the tables of results_2.md
python examples/labels/report_2.py --write    # puts them behind the mark of results_2.md
python examples/labels/report_2.py --figure   # draws ../figures/labels.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from run_2 import CLAIMED, HERE, KEY, MEASURES, Table, drawn, posterior_intervals, read, useful

from imbtorch.measures.named import measure_of_counts
from imbtorch.predictions.label_bounds import Labelled, LabelledPool, plan_sizes

MARK = "<!-- tables: written by report_2.py -->"
SHOWN = {"f1": "F1", "mcc": "MCC", "iam": "IAM", "precision": "precision", "recall": "recall"}
SHOWN |= {"balanced_accuracy": "balanced accuracy"}
COVERAGE, GAIN, WORSE, TIMES, ABOVE, WIDTH, LEAST = 0.95, 3.0, 0.01, 1.1, 0.005, 0.75, 1.5
NOTHING = 1e-12  # errors below are rounding
FIGURE = HERE.parent / "figures" / "labels.png"
SHOWN_TABLE, SHOWN_SETS = Table(100_000, 1_000, 600, 400, 600, plan_sizes(99_000, 1_000, 600)), 24
Row = dict[str, str]


def gain(row: Row, measure: str, uniform: str = "uniform") -> float:
    """Return the squared error of uniform labels divided by that of the plan."""
    other, own = float(row[f"{measure}_{uniform}"]), float(row[f"{measure}_by_plan"])
    if np.isnan(other):
        return np.nan
    if own < NOTHING:
        return 1.0 if other < NOTHING else np.inf
    return (other / own) ** 2


def clearly_worse(row: Row, measure: str) -> bool:
    """Return whether the plan's root mean squared error is 1.1 times and .005 above that of uniform labels."""
    other, own = float(row[f"{measure}_uniform"]), float(row[f"{measure}_by_plan"])
    return own > TIMES * other and own > other + ABOVE


def narrowing(row: Row, measure: str, by: str) -> float:
    """Return the median width of the plan's interval divided by that of uniform labels; nan without the latter."""
    if not row[f"{measure}_{by}_width"]:
        return np.nan
    other, own = float(row[f"{measure}_{by}_width"]), float(row[f"{measure}_plan_width"])
    return 1.0 if other < NOTHING and own < NOTHING else own / max(other, NOTHING)


def middle(found: Iterable[float]) -> float:
    """Return the median; nan is left out, and infinity is the greatest."""
    numbers = sorted(each for each in found if not np.isnan(each))
    return (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) / 2


@cache
def tables() -> list[Row]:
    """Return the rows of all tables and corners."""
    return read(HERE / "results_2.csv")


@cache
def useful_tables() -> list[Row]:
    """Return the rows of the tables that the claims are about."""
    return [row for row in tables() if useful(row)]


def fresh_gains(kind: str = "rare") -> dict[str, float]:
    """Return the gain of F1 in each fresh pool: the errors of both models together."""
    found: dict[str, list[Row]] = {}
    for row in read(HERE / "fresh_2.csv"):
        if row["kind"] == kind:
            found.setdefault(row["pool"], []).append(row)
    sums = {
        pool: [sum(float(row[f"f1_{part}"]) ** 2 for row in rows) for part in ("uniform", "by_plan")]
        for pool, rows in found.items()
    }
    return {pool: uniform / plan for pool, (uniform, plan) in sums.items()}


# criteria -------------------------------------------------------------------------------------------------------------


def criteria() -> list[tuple[int, str, str, bool]]:
    """Return number, criterion, what was found, and whether it holds."""
    least = min(float(row[f"{name}_coverage"]) for row in tables() for name in MEASURES)
    found = [(1, "coverage of the pool at least .95 in every table", f"least {least:.4f}", least >= COVERAGE)]
    some = useful_tables()
    for name in ("f1", "mcc", "iam"):
        value = middle(gain(row, name) for row in some)
        found.append((2, f"median gain of {SHOWN[name]} at least 3", f"{value:.2f}", value >= GAIN))
    for name in ("f1", "mcc", "precision"):
        number = sum(clearly_worse(row, name) for row in some)
        text = f"{number} of {len(some)}"
        found.append((2, f"{SHOWN[name]} clearly worse in at most 1%", text, number <= WORSE * len(some)))
    for name in CLAIMED:
        by = {each: middle(narrowing(row, name, each) for row in some) for each in ("posterior", "exact")}
        text = f"{by['posterior']:.2f} by posterior, {by['exact']:.2f} by exact intervals"
        found.append((3, f"median width of {SHOWN[name]} at most .75", text, max(by.values()) <= WIDTH))
    gains = fresh_gains()
    text = ", ".join(f"{name} {value:.1f}" for name, value in gains.items())
    found.append((4, "gain of F1 in fresh pools at least 1.5", text, min(gains.values()) >= LEAST))
    return found


def text_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """Return a gain or a ratio with as many digits as it deserves."""
    if np.isinf(value):
        return "infinite"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def compared(some: list[Row]) -> str:
    """Return the table of uniform labels beside the plan."""
    rows = []
    for name, shown in SHOWN.items():
        errors = [middle(float(row[f"{name}_{part}"]) for row in some) for part in ("uniform", "by_plan")]
        gains = [gain(row, name) for row in some]
        widths = ["", ""]
        if name in CLAIMED and some[0][f"{name}_exact_width"]:
            widths = [f"{middle(narrowing(row, name, by) for row in some):.2f}" for by in ("posterior", "exact")]
        worse = sum(clearly_worse(row, name) for row in some)
        without = middle(gain(row, name, "with_positives") for row in some)
        least = min(gains)
        rows.append(
            [shown, *(f"{each:.4f}" for each in errors), *map(number, (middle(gains), without, least)), worse, *widths]
        )
    head = "measure, uniform, plan, median gain, without sets that lack positives, least gain, clearly worse"
    return text_table([*head.split(", "), "width to posterior", "width to exact"], rows)


def by_step(some: list[Row], column: str, label: Callable[[Row], str]) -> str:
    """Return median gains by a step of the grid."""
    found: dict[str, list[Row]] = {}
    for row in some:
        found.setdefault(label(row), []).append(row)
    rows = [
        [step, len(each), *(number(middle(gain(row, name) for row in each)) for name in MEASURES)]
        for step, each in sorted(found.items(), key=lambda item: float(item[0].rstrip("%")))
    ]
    return text_table([column, "tables", *SHOWN.values()], rows)


def share(row: Row) -> str:
    """Return the share predicted positive as the grid names it."""
    return f"{100 * int(row['predicted']) / int(row['rows']):.1f}%"


def listed(some: list[Row], measures: Sequence[str]) -> str:
    """Return the tables in which the plan is clearly worse."""
    rows = [
        [SHOWN[name], *(row[key] for key in KEY[1:]), row[f"{name}_uniform"], row[f"{name}_by_plan"]]
        for name in measures
        for row in some
        if clearly_worse(row, name)
    ]
    return text_table(["measure", *KEY[1:], "uniform", "plan"], rows) if rows else "None."


def coverages() -> str:
    """Return coverage by measure."""
    grid = [row for row in tables() if row["kind"] == "grid"]
    rows = []
    for name, shown in SHOWN.items():
        own = [float(row[f"{name}_coverage"]) for row in grid]
        corner = min(float(row[f"{name}_coverage"]) for row in tables() if row["kind"] == "corner")
        rows.append([shown, f"{min(own):.4f}", f"{middle(own):.4f}", f"{corner:.4f}"])
    return text_table(["measure", "least", "median", "least of the corners"], rows)


def fresh() -> str:
    """Return the fresh pools, one line a model."""
    rows = []
    for kind in ("rare", "frequent"):
        gains = fresh_gains(kind)
        for row in read(HERE / "fresh_2.csv"):
            if row["kind"] == kind:
                hits, missed, predicted = (int(row[key]) for key in ("hits", "missed", "predicted"))
                positives = f"{100 * (hits + missed) / int(row['rows']):.1f}%"
                own = [positives, share(row), f"{hits / predicted:.2f}", f"{hits / (hits + missed):.2f}"]
                told = "yes" if useful(row | {"kind": "grid"}) else "no"
                errors = row["f1_uniform"], row["f1_by_plan"]
                parts = [f"{float(each):.4f}" for each in errors]
                rows.append(
                    [row["pool"], row["model"], *own, told, *parts, number(gain(row, "f1")), number(gains[row["pool"]])]
                )
    head = "pool, model, positive, predicted, precision, recall, useful, uniform, plan, gain of F1, gain of the pool"
    return text_table(head.split(", "), rows)


def report() -> str:
    """Return all tables."""
    some = useful_tables()
    grid = [row for row in tables() if row["kind"] == "grid"]
    useless = [row for row in grid if not useful(row)]
    verdicts = [[n, what, f"{text}: {'holds' if held else '**fails**'}"] for n, what, text, held in criteria()]
    missing = sum(not row["f1_posterior_width"] for row in some)
    parts = [
        f"{len(grid)} tables, of which {len(some)} are useful, and {len(tables()) - len(grid)} corners. In {missing} "
        "useful tables no drawn set has a positive. Gains are of squared errors; uniform and plan are medians of root\n"
        "mean squared errors. Sets without a positive have the value 0; one column leaves them out.",
        "## Criteria\n\n" + text_table(["", "criterion", "found"], verdicts),
        "## Uniform labels and the plan: useful tables\n\n" + compared(some),
        "## The same: tables that are not useful, without a claim\n\n" + compared(useless),
        "## Median gains by labels (useful tables)\n\n" + by_step(some, "labels", lambda row: row["labels"]),
        "## Median gains by share predicted positive (200 labels or more, precision and recall useful)\n\n"
        + by_step([row for row in grid if good_scores(row)], "predicted", share),
        "## Claimed measures clearly worse than with uniform labels (useful tables)\n\n" + listed(some, CLAIMED),
        "## Coverage\n\n" + coverages(),
        "## Fresh pools, 300 labels\n\n" + fresh(),
    ]
    return "\n\n".join(parts)


def good_scores(row: Row) -> bool:
    """Return whether a table is useful, whatever share is predicted positive."""
    hits, missed, predicted, labels = (int(row[key]) for key in ("hits", "missed", "predicted", "labels"))
    return hits > 0 and hits >= 0.1 * predicted and hits >= 0.3 * (hits + missed) and labels >= 200


# picture --------------------------------------------------------------------------------------------------------------


def intervals_of_f1(sets: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return values and interval ends of F1 for drawn sets of labels of the pool that is shown, both ways."""
    table, random = SHOWN_TABLE, np.random.default_rng(seed)
    number, hits, missed = drawn(table, sets, random)
    value = 2 * hits / np.maximum(number + hits + missed, 1)
    low, high = posterior_intervals(table, number, hits, missed)["f1"]
    (n0, n1), others = table.sizes, table.rows - table.predicted
    a = random.hypergeometric(table.hits, table.predicted - table.hits, n1, sets)
    b = random.hypergeometric(table.missed, others - table.missed, n0, sets)
    plan = LabelledPool(Labelled(others, n0, b), Labelled(table.predicted, n1, a)).pool_interval(
        measure_of_counts("f1", 2)
    )
    return {
        "uniformly": (value, low, high),
        "by plan": tuple(each.numpy() for each in (plan.estimate, plan.low, plan.high)),
    }


def figure(path: Path) -> None:
    """Draw intervals of F1 from labels that are drawn uniformly, and by plan."""
    from matplotlib import pyplot

    found = intervals_of_f1(SHOWN_SETS)
    fig, axes = pyplot.subplots(1, 2, figsize=(8.4, 4.2), sharex=True, layout="constrained")
    for ax, (way, (value, low, high)), color in zip(axes, found.items(), ("#d95f02", "#1f6fb4"), strict=True):
        place = np.arange(len(value))
        ax.hlines(place, low, high, color=color, linewidth=2)
        ax.plot(value, place, "o", color=color, markersize=4)
        ax.axvline(0.6, color="0.2", linestyle="--", linewidth=1)
        ax.set(title=f"600 labels drawn {way}", xlabel="F1", xlim=(0, 1), ylim=(-1, len(value) + 1.2), yticks=[])
        ax.text(0.61, len(value) + 0.3, "F1 of the pool", fontsize=9, va="center")
    axes[0].set_ylabel(f"{SHOWN_SETS} sets of labels")
    fig.savefig(path, dpi=100)
    pyplot.close(fig)


def main() -> None:
    """Print or write the tables, or draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables behind the mark of results_2.md")
    parser.add_argument("--figure", action="store_true", help="draw the picture")
    given = parser.parse_args()
    if given.figure:
        figure(FIGURE)
    elif given.write:
        path = HERE / "results_2.md"
        head = path.read_text(encoding="utf-8").split(MARK)[0]
        path.write_text(f"{head}{MARK}\n\n{report()}\n", encoding="utf-8")
    else:
        print(report())


if __name__ == "__main__":
    main()
