"""The table of results, as text, HTML, CSV, dict and pandas, and what other texts share with it."""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from math import nan
from os import PathLike
from textwrap import wrap
from typing import Any, TextIO

WIDTH = 100  # characters of a printed line
NAME = 40  # characters of the name of a row in a table that is wider
COUNTS = ("support", "predicted", "positives")  # columns that count samples, or sum their weights
SMALL = ("alerts", "score", "share")  # columns of probabilities that may be tiny, printed with three significant digits


class Cell(float):
    """Value in a table: a float with the bounds of its interval.

    Args:
        value: the float.
        low: lower bound; nan without an interval.
        high: upper bound; nan without an interval.
        mark: text before the value when it is printed, such as ``"*"``.
        text: what is printed in place of value and interval.

    >>> recall = Cell(0.9, 0.8, 0.95)
    >>> recall > 0.85, recall.low
    (True, 0.8)
    """

    low: float
    high: float
    mark: str
    text: str

    def __new__(cls, value: float, low: float = nan, high: float = nan, mark: str = "", text: str = "") -> Cell:
        """Make a cell."""
        cell = super().__new__(cls, value)
        cell.low, cell.high, cell.mark, cell.text = low, high, mark, text
        return cell


@dataclass(frozen=True)
class Table:
    """Table of results in one or several blocks; print it for text.

    A value is found by what is printed: ``table["class"]["cat"]["recall"]`` is in the block whose head begins with
    "class", in the row "cat" and the column "recall". A value with an interval is a :class:`Cell`. Text rounds values
    and writes intervals in brackets; all other forms hold them in full precision.

    Attributes:
        blocks: first word of the head -> name of a row -> column -> value. A nan is undefined; None leaves a cell
            empty, and a block has no column without values.
        notes: sentences to read beside the values.
        title: first line of the text.
        printed: first word of the head -> number of rows to print; by default all. The other forms always hold all.
        digits: decimals of values in text, Markdown and LaTeX.

    >>> table = Table({"class": {"cat": {"support": 20, "recall": Cell(0.9, 0.7, 1.0)}, "dog": {"recall": nan}}})
    >>> print(table)
    class  support                recall
    cat         20  0.900 [0.700, 1.000]
    dog                                -
    >>> import sys
    >>> table.to_csv(sys.stdout)
    kind,name,support,recall,recall_low,recall_high
    class,cat,20,0.9,0.7,1.0
    class,dog,,,,
    """

    blocks: Mapping[str, Mapping[str, Mapping[str, Any]]]
    notes: tuple[str, ...] = ()
    title: str = ""
    printed: Mapping[str, int] = field(default_factory=dict)
    digits: int = 3

    def __post_init__(self) -> None:
        """Check the number of decimals."""
        if isinstance(self.digits, bool) or not isinstance(self.digits, int) or not 0 <= self.digits <= 15:
            raise ValueError(f"digits must be the number of decimals, 0 to 15, got {self.digits!r}")

    def __getitem__(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows of a block."""
        if kind not in self.blocks:
            raise KeyError(f"the table has no block {kind!r}; blocks are {', '.join(map(repr, self.blocks))}")
        return self.blocks[kind]

    def to_dict(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return dicts: ``["class"]["cat"]["recall"]``, with bounds as ``"recall_low"`` and ``"recall_high"``."""
        return {
            kind: {name: dict(_with_bounds(row)) for name, row in rows.items()} for kind, rows in self.blocks.items()
        }

    def to_rows(self) -> list[list[Any]]:
        """Return the head and all rows as lists of cells; None is an empty cell.

        The columns are ``kind`` (the first word of the block), ``name``, and those of all blocks, with
        ``<column>_low`` and ``<column>_high`` for the bounds of intervals.
        """
        rows = [
            {"kind": kind, "name": name, **row} for kind, some in self.to_dict().items() for name, row in some.items()
        ]
        head = _columns(rows)
        return [head, *([row.get(column) for column in head] for row in rows)]

    def to_csv(self, to: str | PathLike[str] | TextIO) -> None:
        """Write :meth:`to_rows` as CSV; a value that is nan or missing is an empty cell.

        Text that begins with =, +, - or @ and is no number gets an apostrophe in front, since a spreadsheet would
        evaluate it as a formula.

        Args:
            to: path of a file, which is replaced, or an open text file (opened with ``newline=""``).

        Raises:
            TypeError: for anything but a path or an open file.
        """
        if isinstance(to, (str, PathLike)):
            self.to_csv(buffer := io.StringIO(newline=""))
            replace_file(to, buffer.getvalue().encode())
            return
        if not hasattr(to, "write"):
            raise TypeError(f"to must be a path or an open text file such as sys.stdout, got {to!r}")
        for row in self.to_rows():
            line = io.StringIO(newline="")  # csv quotes those line ends that it writes
            csv.writer(line, lineterminator="\r\n").writerow(map(_cell_of_csv, row))
            to.write(line.getvalue()[:-2] + "\n")

    def to_pandas(self) -> Any:
        """Return :meth:`to_rows` as a ``pandas.DataFrame`` indexed by kind and name: ``.loc["class"]`` is one block.

        Raises:
            ModuleNotFoundError: without pandas, which imbtorch does not install (``pip install pandas``).
        """
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_pandas needs pandas: pip install pandas", name="pandas") from error
        head, *rows = self.to_rows()
        return pandas.DataFrame(rows, columns=head).set_index(["kind", "name"])

    def to_markdown(self, digits: int | None = None) -> str:
        r"""Return a Markdown table for each block, rounded as the text, and the notes below.

        Args:
            digits: decimals of values, by default those of the table.

        >>> table = Table({"class": {"cat | dog": {"recall": Cell(0.9, 0.7, 1.0)}}}, ("Baseline: always 'cat'",))
        >>> print(table.to_markdown())
        | class | recall |
        |---|--:|
        | cat \| dog | 0.900 [0.700, 1.000] |
        <BLANKLINE>
        Baseline: always 'cat'
        """
        parts = [_marked(self.title)] * bool(self.title)
        for (head, *lines), rest in self._printed(digits):
            rows = [[_marked(cell) for cell in line] for line in (head, *lines)]
            ruler = "".join(["|---", *["|--:"] * (len(head) - 1), "|"])
            text = [f"| {' | '.join(row)} |" for row in rows]
            parts.append("\n".join([text[0], ruler, *text[1:], *["", rest] * bool(rest)]))
        bullet = "- " if len(self.notes) > 1 else ""
        parts += ["\n".join(f"{bullet}{_marked(note)}" for note in self.notes)] * bool(self.notes)
        return "\n\n".join(parts)

    def to_latex(self, digits: int | None = None, transpose: bool = False) -> str:
        r"""Return a LaTeX table (package booktabs) for each block, rounded as the text, and the notes as comments.

        Measures are spelled out: ``balanced_accuracy`` is "Balanced accuracy".

        Args:
            digits: decimals of values, by default those of the table.
            transpose: whether rows become columns, such as many classes or labels.

        >>> print(Table({"class": {"a_1": {"recall": Cell(0.9)}}}).to_latex())
        \begin{tabular}{lr}
        \toprule
        class & Recall \\
        \midrule
        a\_1 & 0.900 \\
        \bottomrule
        \end{tabular}
        """
        parts = []
        for ((kind, *head), *lines), _ in self._printed(digits):
            lines = [[spelled(name) if kind == "measure" else name, *cells] for name, *cells in lines]
            head = [kind, *map(spelled, head)]
            head, *lines = map(list, zip(head, *lines, strict=True)) if transpose else (head, *lines)
            rows = [
                " & ".join(LATEX.sub(_of_latex, printable(cell)) for cell in line) + r" \\" for line in (head, *lines)
            ]
            rules = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", rows[0], r"\midrule"
            parts.append("\n".join([*rules, *rows[1:], r"\bottomrule", r"\end{tabular}"]))
        return "\n\n".join([*parts, *(f"% {printable(note)}" for note in self.notes)])

    def _printed(self, digits: int | None = None) -> Iterator[tuple[list[list[str]], str]]:
        """Yield head and rows of each block as text, and a line that counts the rows left out."""
        digits = self.digits if digits is None else replace(self, digits=digits).digits
        for kind, rows in self.blocks.items():
            columns, shown = _columns(rows.values()), list(rows.items())[: self.printed.get(kind)]
            lines = [[name, *(_text(column, row.get(column), digits) for column in columns)] for name, row in shown]
            yield [[kind, *columns], *lines], f"... {len(rows) - len(shown)} more" * (len(shown) < len(rows))

    def __str__(self) -> str:
        """Return aligned text of at most 100 columns."""
        blocks = "\n\n".join(
            "\n".join([*aligned(lines, names_left=True), *filter(None, [rest])]) for lines, rest in self._printed()
        )
        notes = [wrapped(note) for note in self.notes]
        if len(notes) > 1:
            notes = ["", *(wrapped(f"- {note}") for note in self.notes)]
        return "\n".join([*filter(None, [wrapped(self.title), blocks]), *notes])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks; names are escaped."""
        blocks = [html_table(lines) + f"<p>{escape(rest)}</p>" * bool(rest) for lines, rest in self._printed()]
        return "".join([*blocks, *(f"<p>{escape(printable(note))}</p>" for note in self.notes)])


def _columns(rows: Collection[Mapping[str, Any]]) -> list[str]:
    """Return the columns that have a value in some row."""
    every = dict.fromkeys(column for row in rows for column in row)
    return [column for column in every if any(row.get(column) is not None for row in rows)]


def _with_bounds(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield columns and plain values of a row, with its bounds as columns of their own."""
    for column, value in row.items():
        yield column, float(value) if isinstance(value, Cell) else value
        if isinstance(value, Cell) and value.low == value.low:
            yield from ((f"{column}_low", value.low), (f"{column}_high", value.high))


ACRONYMS = ("iam", "cba", "f1", "mcc", "npv", "iba", "op", "rci", "p4", "auc", "sd")


def spelled(name: str) -> str:
    """Return the key of a measure, or another head, as papers write it; other texts as they are."""
    plain = name.replace("_", " ").capitalize() if re.fullmatch(r"[a-z]+(_[a-z]+)*", name) else name
    return name.upper() if name in ACRONYMS else {"iou": "IoU", "gmean": "G-mean"}.get(name, plain)


def _text(column: str, value: Any, digits: int) -> str:
    """Return a value as rounded text, with its interval in brackets."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Cell) and value.text:
        return value.text
    if value != value:
        return "-"
    if isinstance(value, int) or column in COUNTS:
        return f"{value:.2f}".removesuffix(".00")
    if column == "threshold":
        return f"{value:.6g}"
    form = f"#.{max(digits, 1)}g" if column in SMALL else f".{digits}f"
    if not isinstance(value, Cell):
        return f"{value:{form}}"
    return f"{value.mark}{value:{form}}" + f" [{value.low:{form}}, {value.high:{form}}]" * (value.low == value.low)


INTERVAL = r"[-+.,\dinfa ]*\](?![(\[:])"
MARKDOWN = re.compile(  # what Markdown takes for a mark, also of links; intervals are none
    rf"([\\`*<|&~$]|(?<!\w)_|_(?!\w)|\[(?!{INTERVAL})|(?<=http):|(?<=https):|(?<=www)\.)"
)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text with escapes in place of control characters and those that turn the direction of text."""
    return CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


LATEX = re.compile(r"[\\{}$&#%_^~]")  # what LaTeX takes for a command


def _of_latex(sign: re.Match[str]) -> str:
    """Return a sign as LaTeX prints it."""
    names = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return names.get(sign[0], f"\\{sign[0]}")


def _marked(text: str) -> str:
    """Return a text for Markdown, in one line, with a backslash before its marks."""
    return MARKDOWN.sub(r"\\\1", printable(text))


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # beginnings of text that spreadsheets evaluate


def _cell_of_csv(value: Any) -> Any:
    """Return a value as a cell of CSV, which no spreadsheet takes for a formula."""
    if value is None or value != value:
        return ""
    if not isinstance(value, str) or not value.startswith(FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


@contextmanager
def moved_when_whole(*paths: str | PathLike[str]) -> Iterator[list[str]]:
    """Yield a new name in the folder of each file; when the block ends, all are moved, or after an error removed."""
    besides = [os.path.join(os.path.dirname(path), f".imbtorch-{secrets.token_hex(8)}") for path in paths]
    try:
        yield besides
        for beside, path in zip(besides, paths, strict=True):
            os.replace(beside, path)
    finally:
        for beside in filter(os.path.exists, besides):
            os.unlink(beside)


def replace_file(path: str | PathLike[str], data: bytes) -> None:
    """Write a file beside an older one and move it there, so that an error leaves the older one as it is."""
    real, device = os.path.realpath(path), os.path.abspath(path).startswith(("/dev/", "/proc/"))
    old = os.path.exists(path)
    can_move = os.access(os.path.dirname(real), os.W_OK) and not (old and not os.access(real, os.W_OK))
    if device or not can_move or (old and not os.path.isfile(path)):
        with open(path, "wb") as file:
            file.write(data)
        return
    with moved_when_whole(real) as (beside,):
        with open(beside, "xb") as file:
            file.write(data)
        if old:
            shutil.copymode(real, beside)


def wrapped(text: str) -> str:
    """Break a line of text that is wider than :data:`WIDTH`; what follows is indented by two spaces."""
    return "\n".join(wrap(printable(text), WIDTH, subsequent_indent="  ", break_on_hyphens=False))


def shortened(name: str, width: int) -> str:
    """Leave out the middle of a long name.

    >>> shortened("val_balanced_accuracy", 10)
    'val_..racy'
    """
    return name if len(name) <= width else f"{name[: width // 2 - 1]}..{name[len(name) - (width - width // 2 - 1) :]}"


def aligned(rows: Sequence[Sequence[str]], names_left: bool = False) -> list[str]:
    """Format rows as lines with right-aligned columns, except for names on the left.

    Columns that do not fit into :data:`WIDTH` characters stand in a second block of lines below, which repeats the
    first column, without rows that are empty there; names in that column are then shortened.

    >>> aligned([["class", "recall"], ["cat", "0.5"]], names_left=True)
    ['class  recall', 'cat       0.5']
    """
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        rows = [[shortened(first, NAME), *rest] for first, *rest in rows]
        widths[0] = max(len(first) for first, *_ in rows)
        blocks: list[list[int]] = []
        for column in range(1, len(widths)):
            if not blocks or sum(widths[each] + 2 for each in (*blocks[-1], column)) + widths[0] > WIDTH:
                blocks.append([])
            blocks[-1].append(column)
        if len(blocks) > 1:
            parts = [[[row[0], *(row[column] for column in block)] for row in rows] for block in blocks]
            return [line for part in parts for line in aligned([row for row in part if any(row[1:])], names_left)]
    lines = []
    for first, *rest in rows:
        name = first.ljust(widths[0]) if names_left else first.rjust(widths[0])
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([name, *cells]).rstrip())
    return lines


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as an HTML table whose head is the first row; cells are escaped.

    >>> html_table([["class", "recall"], ["<cat>", "0.5"]])
    '<table><tr><th>class</th><th>recall</th></tr><tr><td>&lt;cat&gt;</td><td>0.5</td></tr></table>'
    """
    lines = []
    for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True):
        lines.append("".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in row))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def spans(indices: Sequence[int], names: Sequence[object] | None = None) -> str:
    """Format increasing indices as ranges, with names in place of indices if they are given.

    >>> spans([3, 5, 6, 7])
    '3, 5 to 7'
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    ends = [[run[0]] if len(run) == 1 else [run[0], run[-1]] for run in runs]
    return ", ".join(" to ".join(str(index if names is None else names[index]) for index in end) for end in ends)


def baseline_line(name: str, values: Mapping[str, float]) -> str:
    """Format the values of a baseline; return an empty string without values.

    >>> baseline_line("always predicting 'ok'", {"accuracy": 0.99})
    "Baseline: always predicting 'ok': accuracy 0.990"
    """
    return f"Baseline: {name}: {', '.join(f'{key} {value:.3f}' for key, value in values.items())}" if values else ""
