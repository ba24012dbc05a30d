"""Tables and lists as text: aligned columns, HTML and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import PathLike
from textwrap import wrap
from typing import Any, TextIO

__all__ = ["WIDTH", "aligned", "baseline_line", "html_table", "shortened", "spans", "wrapped", "write_csv"]

WIDTH = 100  # characters of a printed line
NAME = 40  # characters of the name of a row in a table that is wider


def wrapped(text: str) -> str:
    """Break a line of text that is wider than :data:`WIDTH`; what follows is indented by two spaces.

    >>> print(wrapped("epoch 3: value 0.800, " + "and more " * 12))
    epoch 3: value 0.800, and more and more and more and more and more and more and more and more and
      more and more and more and more
    """
    return "\n".join(wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False))


def shortened(name: str, width: int) -> str:
    """Leave out the middle of a long name.

    >>> shortened("val_balanced_accuracy", 10)
    'val_..racy'
    """
    return name if len(name) <= width else f"{name[: width // 2 - 1]}..{name[len(name) - (width - width // 2 - 1) :]}"


def aligned(rows: Sequence[Sequence[str]], names_left: bool = False) -> list[str]:
    """Format rows as lines with right-aligned columns.

    Columns that do not fit into :data:`WIDTH` characters stand in a second block of lines below, which repeats the
    first column; names in that column are then shortened.

    Args:
        rows: cells, the same number in each row.
        names_left: whether to align the first column to the left.

    >>> aligned([["class", "recall"], ["cat", "0.5"]], names_left=True)
    ['class  recall', 'cat       0.5']
    """
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
            return [line for part in parts for line in aligned(part, names_left)]
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
        lines.append("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row))
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
    "Baseline: always predicting 'ok': accuracy 0.9900"
    """
    return f"Baseline: {name}: {', '.join(f'{key} {value:.4f}' for key, value in values.items())}" if values else ""


def write_csv(rows: Iterable[Sequence[Any]], to: str | PathLike[str] | TextIO) -> None:
    """Write rows as CSV, separated by commas; floats in full precision, None and nan as empty cells.

    Text that begins with =, +, - or @ and is no number gets an apostrophe in front, since a spreadsheet would evaluate
    it as a formula.

    Args:
        rows: cells of each row, the head first.
        to: path of a file to write or overwrite, or an open text file (opened with ``newline=""``).

    Raises:
        TypeError: for anything but a path or an open file.

    >>> import sys
    >>> write_csv([["class", "recall"], ["cat, small", float("nan")], ["dog", 0.25]], sys.stdout)
    class,recall
    "cat, small",
    dog,0.25
    >>> write_csv([["=1+1", "-1", -0.5]], sys.stdout)
    '=1+1,-1,-0.5
    """
    if isinstance(to, (str, PathLike)):
        with open(to, "w", newline="", encoding="utf-8") as file:
            write_csv(rows, file)
        return
    if not hasattr(to, "write"):
        raise TypeError(f"to must be a path or an open text file such as sys.stdout, got {to!r}")
    csv.writer(to, lineterminator="\n").writerows(map(_cell, row) for row in rows)


FORMULAS = ("=", "+", "-", "@", "\t")  # beginnings of text that spreadsheets evaluate


def _cell(value: Any) -> Any:
    """Return a value as a cell of CSV."""
    if value is None or value != value:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    """Return whether a text is a number such as -1."""
    try:
        float(text)
    except ValueError:
        return False
    return True
