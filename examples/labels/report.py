"""Print the tables and the verdict of the study of labels from ``results.csv``; criteria are those of ``protocol.md``.

python examples/labels/report.py           # the tables of results.md
python examples/labels/report.py --write   # puts them behind the mark of results.md
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MARK = "<!-- tables: written by report.py -->"
UNIFORM, TWO, SCORES = "uniform", "two strata", "strata of scores"
F1, IAM = ("f1", "macro_f1"), ("iam",)
LEAST, SHARE, BELOW, WIDTH, UNIFORM_TIMES, TWO_TIMES, WORSE = 0.9, 0.95, 0.03, 0.75, 2.0, 1.3, 1.1
RARE, Z = 0.03, 1.959964
SHOWN = {"recall": "recall", "precision": "precision", "f1": "F1", "balanced_accuracy": "balanced accuracy"}
SHOWN |= {"macro_f1": "macro F1", "iam": "IAM"}


@dataclass(frozen=True)
class Cell:
    """A case and a measure, with the rows of the three methods."""

    classes: str
    scores: str
    positives: str
    budget: str
    measure: str
    rows: dict[str, dict[str, str]]

    def __call__(self, method: str, column: str) -> float:
        """Return a number of a method."""
        return float(self.rows[method][column])

    @property
    def real(self) -> bool:
        """Whether the pool is real."""
        return not self.positives

    @property
    def rare(self) -> bool:
        """Whether at most 3% of the rows are positive."""
        return self.real or float(self.positives) <= RARE

    @property
    def there(self) -> bool:
        """Whether the scores are useful and at most 3% of the rows positive."""
        return self.rare and self.scores != "noise"

    @property
    def exact(self) -> bool:
        """Whether a method knows the value exactly, since all rows that it depends on are labelled."""
        return min(self(method, "error") for method in (TWO, SCORES)) < 1e-12

    def width(self, method: str) -> float:
        """Return the median width divided by that of uniform labels."""
        return self(method, "width") / self(UNIFORM, "width")

    def gain(self, method: str, over: str = UNIFORM) -> float:
        """Return how many times smaller the squared error is than that of another method."""
        return max(self(over, "error"), 1e-15) / max(self(method, "error"), 1e-15)

    def shown(self, method: str) -> float:
        """Return the lower end of the 95% interval of the squared error divided by that of uniform labels."""
        own, other = self(method, "error"), self(UNIFORM, "error")
        if own == 0 or other == 0:
            return 0.0 if own == 0 else math.inf
        parts = (self(each, "error_se") / self(each, "error") for each in (method, UNIFORM))
        return own / other * math.exp(-Z * math.hypot(*parts))


def cells_of(path: Path) -> list[Cell]:
    """Read the cells of a file."""
    found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in ("classes", "scores", "positives", "budget", "measure"))
            found.setdefault(key, {})[row["method"]] = row
    return [Cell(*key, rows) for key, rows in found.items()]


def middle(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# criteria -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A criterion: what is wanted, what was found, and whether it holds."""

    number: int
    wanted: str
    found: str
    holds: bool


def times(cells: Sequence[Cell], method: str, over: str, least: float, number: int) -> list[Judged]:
    """Judge the squared errors of F1 and IAM against another method."""
    judged = []
    for name, some in (("F1", F1), ("IAM", IAM)):
        gains = [cell.gain(method, over) for cell in cells if cell.there and cell.measure in some]
        single = sum(gain >= least for gain in gains)
        text = f"{middle(gains):.2f} ({single} of {len(gains)}; least {min(gains):.2f})"
        judged.append(
            Judged(number, f"squared error of {name} {least:g} times below {over}", text, middle(gains) >= least)
        )
    return judged


def criteria(cells: Sequence[Cell], method: str) -> list[Judged]:
    """Judge the criteria of the protocol for a method."""
    covered = [cell(method, "coverage") for cell in cells]
    enough = sum(each >= LEAST for each in covered) / len(covered)
    lower = [cell(UNIFORM, "coverage") - cell(method, "coverage") for cell in cells]
    too_low = sum(each > BELOW + 1e-9 for each in lower)
    widths = [cell.width(method) for cell in cells if cell.there]
    narrow = sum(each <= WIDTH for each in widths)
    shown = [cell.shown(method) for cell in cells]
    worse = sum(each > WORSE for each in shown)
    judged = [
        Judged(1, "coverage >= .90 in 95% of cells", f"{100 * enough:.1f}%; least {min(covered):.3f}", enough >= SHARE),
        Judged(
            2,
            "coverage nowhere .03 below uniform's",
            f"{too_low} of {len(cells)} cells; most {max(lower):.3f}",
            not too_low,
        ),
        Judged(
            3,
            "width .75 of uniform's",
            f"{statistics.median(widths):.2f} ({narrow} of {len(widths)})",
            statistics.median(widths) <= WIDTH,
        ),
        *times(cells, method, UNIFORM, UNIFORM_TIMES, 4),
    ]
    if method == SCORES:
        judged += times(cells, method, TWO, TWO_TIMES, 5)
    text = f"{worse} of {len(cells)} cells; highest bound {max(shown):.2f}"
    return [*judged, Judged(6, "nowhere shown worse than uniform by 10%", text, not worse)]


def verdict(cells: Sequence[Cell]) -> str:
    """Return the verdict by the protocol's rule."""
    failed = {
        method: sorted({each.number for each in criteria(cells, method) if not each.holds}) for method in (SCORES, TWO)
    }
    if not failed[SCORES]:
        return "Strata of scores are adopted: all criteria hold."
    why = f"strata of scores fail criterion {', '.join(map(str, failed[SCORES]))}"
    if not failed[TWO]:
        return f"Two strata are adopted: {why}; all criteria of two strata hold."
    return f"Not adopted: {why}; two strata fail {', '.join(map(str, failed[TWO]))}."


# tables ---------------------------------------------------------------------------------------------------------------


def of_criteria(cells: Sequence[Cell]) -> str:
    """Return the table of criteria."""
    two = {each.wanted: each for each in criteria(cells, TWO)}
    rows = []
    for each in criteria(cells, SCORES):
        other = two.get(each.wanted)
        texts = [f"{some.found}: {'holds' if some.holds else '**fails**'}" if some else "" for some in (each, other)]
        rows.append([f"{each.number}", each.wanted, *texts])
    return table(["", "criterion (single cells in brackets)", SCORES, TWO], rows)


def gains(cells: Sequence[Cell], first: str, key: Callable[[Cell], str | None]) -> str:
    """Return how many times smaller squared errors are than uniform's, by a group of cells."""
    groups = list(dict.fromkeys(filter(None, map(key, cells))))
    rows = []
    for group in groups:
        some = [cell for cell in cells if key(cell) == group]
        row = [group]
        for measure in SHOWN:
            own = [cell for cell in some if cell.measure == measure and not cell.exact]
            if not own:
                row.append("")
                continue
            means = [middle(cell.gain(method) for cell in own) for method in (SCORES, TWO)]
            row.append(f"{means[0]:.1f} ({means[1]:.1f})")
        widths = [statistics.median(cell.width(method) for cell in some) for method in (SCORES, TWO)]
        rows.append([*row, f"{widths[0]:.2f} ({widths[1]:.2f})"])
    return table([first, *SHOWN.values(), "width"], rows)


def coverage(cells: Sequence[Cell]) -> str:
    """Return coverage by method and group of scores."""
    groups = {
        "useful, generated": lambda cell: not cell.real and cell.scores != "noise",
        "noise": lambda cell: cell.scores == "noise",
        "real": lambda cell: cell.real,
    }
    rows = []
    for name, inside in groups.items():
        some = [cell for cell in cells if inside(cell)]
        for method in (UNIFORM, TWO, SCORES):
            of_pool = [cell(method, "coverage") for cell in some]
            of_all = [cell(method, "population") for cell in some]
            population = "" if math.isnan(of_all[0]) else f"{statistics.fmean(of_all):.3f}, {min(of_all):.3f}"
            text = f"{statistics.fmean(of_pool):.3f}, {min(of_pool):.3f}"
            rows.append([name, method, str(len(some)), text, f"{sum(each < 0.95 for each in of_pool)}", population])
    return table(["scores", "method", "cells", "mean, least", "below .95", "population: mean, least"], rows)


def failures(cells: Sequence[Cell]) -> str:
    """Return where criteria 2 and 6 fail, and the gain over two strata, by kind of pool."""
    rows = []
    for name, classes, real in (
        ("2, generated", "2", False),
        ("2, real", "2", True),
        ("3, generated", "3", False),
        ("3, real", "3", True),
    ):
        some = [cell for cell in cells if cell.classes == classes and cell.real == real]
        row = [name, str(len(some))]
        for method in (SCORES, TWO):
            lower = sum(cell(UNIFORM, "coverage") - cell(method, "coverage") > BELOW + 1e-9 for cell in some)
            least = min(cell(method, "coverage") for cell in some)
            row.append(f"{lower} ({least:.3f}), {sum(cell.shown(method) > WORSE for cell in some)}")
        for measure in (F1, IAM):
            gained = middle(cell.gain(SCORES, TWO) for cell in some if cell.there and cell.measure in measure)
            row += [f"{gained:.2f}"]
        rows.append(row)
    head = ["classes, pools", "cells", f"{SCORES}: fail 2 (least coverage), 6", f"{TWO}: the same"]
    return table([*head, "F1: gain over two strata", "IAM: the same"], rows)


def widths(cells: Sequence[Cell]) -> str:
    """Return the median ratio of widths by measure."""
    rows = []
    for method in (SCORES, TWO):
        some = [[cell.width(method) for cell in cells if cell.there and cell.measure == measure] for measure in SHOWN]
        rows.append([method, *(f"{statistics.median(each):.2f}" for each in some)])
    return table(["method", *SHOWN.values()], rows)


def by_positives(cell: Cell) -> str | None:
    """Name the share of positives and the budget of useful generated cells."""
    if cell.real or cell.scores == "noise":
        return None
    return f"{100 * float(cell.positives):g}%, {int(cell.budget):,} labels"


def tables(folder: Path) -> str:
    """Return all tables."""
    cells = cells_of(folder / "results.csv")
    there = [cell for cell in cells if cell.there]
    redrawn = {}
    for cell in cells:
        if not cell.real:
            redrawn.setdefault((cell.classes, cell.positives, cell.budget), []).append(cell(UNIFORM, "unreported"))
    worst = max(redrawn, key=lambda key: statistics.fmean(redrawn[key]))
    lacking = f"{100 * statistics.fmean(redrawn[worst]):.0f}% of uniform sets lack a class with {worst[0]} classes, "
    lacking += f"{100 * float(worst[1]):g}% positives and {worst[2]} labels; such sets were drawn anew."
    parts = [
        verdict(cells),
        "### Criteria",
        of_criteria(cells),
        "### Squared error: how many times below that of uniform labels, by scores",
        "At most 3% positives; geometric means of strata of scores (two strata), and the median ratio of widths. Cells "
        "in which a method knows the value exactly are left out, here and below.",
        gains([cell for cell in cells if cell.rare], "scores", lambda cell: cell.scores),
        "### The same by positives and labels (generated pools, useful scores)",
        gains(cells, "positives, labels", by_positives),
        "### The same by number of classes (at most 3% positives, useful scores)",
        gains(there, "classes", lambda cell: cell.classes),
        "### Where criteria 2 and 6 fail (added when the results were known)",
        failures(cells),
        "### Median width divided by uniform's, by measure (criterion 3; added when the results were known)",
        widths(cells),
        "### Coverage of 95% intervals",
        coverage(cells),
        lacking,
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Print the tables, or write them into results.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into results.md")
    text = tables(HERE)
    if not parser.parse_args().write:
        print(text)
        return
    path = HERE / "results.md"
    before = path.read_text(encoding="utf-8").split(MARK)[0].rstrip()
    path.write_text(f"{before}\n\n{MARK}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
