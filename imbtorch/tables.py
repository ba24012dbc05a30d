"""Tables as text."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import PathLike
from typing import Any, TextIO

__all__ = ["aligned", "html_table", "spans", "trivial_line", "write_csv"]


def aligned(rows: Sequence[Sequence[str]], names_left: bool = False) -> list[str]:
    """Lines in which the cells of a column end at one place.

    Args:
        rows: cells, equally many in each.
        names_left: let the cells of the first column begin at one place instead.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        name = first.ljust(widths[0]) if names_left else first.rjust(widths[0])
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([name, *cells]).rstrip())
    return lines


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table, the first row as its head; what cells hold is escaped.

    >>> html_table([["class", "recall"], ["<cat>", "0.5"]])
    '<table><tr><th>class</th><th>recall</th></tr><tr><td>&lt;cat&gt;</td><td>0.5</td></tr></table>'
    """
    lines = []
    for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True):
        lines.append("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def spans(indices: Sequence[int], names: Sequence[object] | None = None) -> str:
    """Return text such as ``3, 5 to 9`` for increasing indices, by their names if those are given."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    ends = [[run[0]] if len(run) == 1 else [run[0], run[-1]] for run in runs]
    return ", ".join(" to ".join(str(index if names is None else names[index]) for index in end) for end in ends)


def trivial_line(name: str, values: Mapping[str, float]) -> str:
    """Return text such as ``Baseline: always predicting 'ok': accuracy 0.9900``; empty without values."""
    return f"Baseline: {name}: {', '.join(f'{key} {value:.4f}' for key, value in values.items())}" if values else ""


def write_csv(rows: Iterable[Sequence[Any]], to: str | PathLike[str] | TextIO) -> None:
    """Write cells as CSV with a comma between them; floats in full, None and nan as empty cells.

    Args:
        rows: cells, those of the head first.
        to: path of a file that is written anew, or a text file that is open (with ``newline=""``).

    >>> import sys
    >>> write_csv([["class", "recall"], ["cat, small", float("nan")], ["dog", 0.25]], sys.stdout)
    class,recall
    "cat, small",
    dog,0.25
    """
    if isinstance(to, (str, PathLike)):
        with open(to, "w", newline="", encoding="utf-8") as file:
            write_csv(rows, file)
        return
    if not hasattr(to, "write"):
        raise TypeError(f"to must be a path or a text file that is open, such as sys.stdout, got {to!r}")
    known = (["" if cell is None or cell != cell else cell for cell in row] for row in rows)
    csv.writer(to, lineterminator="\n").writerows(known)
