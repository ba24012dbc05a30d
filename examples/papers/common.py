"""What the scripts of this folder share: arguments, Markdown tables, and the data sets."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

VARIABLE = "IMBTORCH_DATA"
ABSENT = ("?", "nan", "")


class Source(NamedTuple):
    """Where a data set lies and which of its classes Garcia et al. (2009), Table 2, take as the positive one."""

    files: tuple[str, ...]
    positive: str
    sizes: tuple[int, int]  # positive and negative samples


SOURCES = {
    "Breast": Source(("breast-cancer.csv",), "recurrence-events", (81, 196)),
    "Ecoli": Source(("ecoli.csv",), "imU", (35, 301)),
    "German": Source(("german.csv",), "2", (300, 700)),
    "Glass": Source(("glass.csv",), "3", (17, 197)),
    "Haberman": Source(("haberman.csv",), "2", (81, 225)),
    "Phoneme": Source(("phoneme.csv",), "1", (1586, 3818)),
    "Pima": Source(("pima-indians-diabetes.csv",), "1", (268, 500)),
    "Satimage": Source(("sat.trn", "sat.tst"), "4", (626, 5809)),
    "Vehicle": Source(("vehicle.arff",), "opel", (212, 634)),
    "Yeast": Source(("yeast.txt",), "2", (429, 1055)),
}


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Parser with what every script takes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller experiment that ends within a minute")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the results (default: %(default)s)")
    return parser


class Results:
    """Markdown that is printed as it comes and written to a file at the end."""

    def __init__(self, title: str, out: Path) -> None:
        self.out, self.parts = out, []
        out.mkdir(parents=True, exist_ok=True)
        self.say(f"# {title}")

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(text)
        print(text + "\n", flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], digits: int = 3) -> None:
        """Add a table; floats are rounded."""
        lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        for row in rows:
            cells = [f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell) for cell in row]
            lines.append(f"| {' | '.join(cells)} |")
        self.say("\n".join(lines))

    def picture(self, figure: mpl.figure.Figure, name: str, what: str) -> None:
        """Write a picture and add it."""
        figure.savefig(self.out / name, dpi=110)
        self.say(f"![{what}]({name})")

    def write(self, name: str) -> None:
        """Write the Markdown file."""
        (self.out / name).write_text("\n\n".join(self.parts) + "\n", encoding="utf-8")


def missing(names: Sequence[str]) -> str | None:
    """What hinders reading these data sets, in words; None if nothing does."""
    wanted = [file for name in names for file in SOURCES[name].files]
    folder = os.environ.get(VARIABLE)
    where = "examples/papers/README.md says where each file comes from."
    if not folder:
        return f"{VARIABLE} is not set; it must name a folder with {', '.join(wanted)}. {where}"
    absent = [file for file in wanted if not (Path(folder) / file).is_file()]
    return f"{VARIABLE}={folder} has no {', '.join(absent)}. {where}" if absent else None


def stop(reason: str) -> None:
    """End the script with a message and a code that says that something was left out."""
    sys.exit(f"left out, because data are missing: {reason}")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (nominal ones as one column for each value) and class names of a data set; incomplete rows are dropped."""
    rows = []
    for file in SOURCES[name].files:
        found = list(_rows(Path(os.environ[VARIABLE]) / file))
        rows += found[1:] if found[0][-1] == "37" else found  # a heading of column numbers
    rows = [row for row in rows if not any(cell in ABSENT for cell in row)]
    columns = list(zip(*rows, strict=True))
    return np.concatenate([_numbers(column) for column in columns[:-1]], 1), np.array(columns[-1])


def load_binary(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and 0/1 targets, grouped as in Garcia et al. (2009), Table 2."""
    inputs, classes = load(name)
    target = (classes == SOURCES[name].positive).astype(np.int64)
    sizes = int(target.sum()), int((1 - target).sum())
    if sizes != SOURCES[name].sizes:
        raise SystemExit(f"{name}: {sizes} positives and negatives, Table 2 has {SOURCES[name].sizes}; another file?")
    return inputs, target


def _rows(path: Path) -> Iterator[list[str]]:
    """Cells of a file with commas or white space; the heading of an ARFF file is left out."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".arff":
        lines = lines[1 + [line.lower() for line in lines].index("@data") :]
    lines = [line for line in lines if line and not line.startswith("%")]
    parsed = csv.reader(lines, quotechar="'", skipinitialspace=True) if "," in lines[0] else map(str.split, lines)
    for row in parsed:
        yield [cell.strip() for cell in row]


def _numbers(column: Sequence[str]) -> np.ndarray:
    """A column of numbers as it is, one of names as an indicator for each."""
    try:
        return np.array(column, dtype=np.float64)[:, None]
    except ValueError:
        return np.stack([np.array(column) == value for value in sorted(Counter(column))], 1).astype(np.float64)
