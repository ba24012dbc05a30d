"""A report as text."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, TextIO

from imbtorch.analysis.tables import aligned, write_csv

__all__ = ["ReportTable"]


@dataclass(frozen=True)
class ReportTable:
    """A report as text: a row for each class, the overall values below.

    Attributes:
        names: class names.
        columns: column name -> one number a class: support (targets) and predicted, as counted; precision, recall, f1,
            and the terms that CBA and IAM average.
        overall: name -> value of the measures of all classes.
        groups: group -> its samples as ``"support"`` and the same measures of it.
        intervals: name, such as ``iam`` or ``recall/fraud`` -> limits of its interval, where there is one.
        trivial: text of what always predicting the most common class would be worth.
    """

    names: list[str]
    columns: dict[str, list[float]]
    overall: dict[str, float]
    groups: dict[str, dict[str, float]]
    intervals: dict[str, tuple[float, float]]
    trivial: str

    def _rows(self) -> dict[str, dict[str, float]]:
        """Numbers of each class by column."""
        return {
            name: {column: numbers[index] for column, numbers in self.columns.items()}
            for index, name in enumerate(self.names)
        }

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested dict: ``["classes"][name][column]``, ``["overall"][measure]``, ``["groups"][name][measure]``.

        Where there are intervals ``["intervals"][name]`` is a pair of limits.
        """
        groups = {"groups": {name: dict(row) for name, row in self.groups.items()}} if self.groups else {}
        limits = {"intervals": dict(self.intervals)} if self.intervals else {}
        return {"classes": self._rows(), "overall": dict(self.overall), **groups, **limits}

    def to_csv(self, to: str | PathLike[str] | TextIO) -> None:
        """Write all numbers as CSV, one a row: of which part of the table, its name, measure, value and interval.

        ``part`` is ``overall`` (whose name is empty), ``class`` or ``group``; ``low`` and ``high`` are empty where a
        value has no interval, and so is a value that is nan. Equal columns let tables of many runs be joined, and
        ``pandas.read_csv(to).pivot(index="name", columns="measure", values="value")`` of a part is wide.

        Args:
            to: path of a file that is written anew, or a text file that is open (with ``newline=""``).
        """
        parts = (("overall", {"": self.overall}), ("class", self._rows()), ("group", self.groups))
        rows: list[Sequence[Any]] = [("part", "name", "measure", "value", "low", "high")]
        for part, of_part in parts:
            for name, values in of_part.items():
                for measure, value in values.items():
                    limits = self.intervals.get(f"{measure}/{name}" if name else measure, ("", ""))
                    rows.append((part, name, measure, value, *limits))
        write_csv(rows, to)

    def to_pandas(self) -> Any:
        """``pandas.DataFrame`` with a row for each class; needs pandas, which imbtorch does not install."""
        return importlib.import_module("pandas").DataFrame(self.columns, index=self.names)

    def __str__(self) -> str:
        """Return aligned text, with the limits of intervals in brackets."""
        overall = [[name, self._cell(name, value)] for name, value in self.overall.items()]
        lines = [*self._aligned(self._rows()), *([""] if self.groups else []), *self._aligned(self.groups)]
        return "\n".join([*lines, "", *aligned(overall), *([self.trivial] if self.trivial else [])])

    def _aligned(self, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Lines of a table with a row for each name; none without rows."""
        if not rows:
            return []
        cells = [["", *next(iter(rows.values()))]]
        for name, row in rows.items():
            cells.append([name, *(self._cell(f"{column}/{name}", value) for column, value in row.items())])
        return aligned(cells)

    def _cell(self, name: str, value: float) -> str:
        """Text of a value: ``recall/fraud`` of a class, ``iam/site A`` of a group, ``iam`` of all."""
        if name.startswith(("support/", "predicted/")):
            return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
        text = "-" if value != value else f"{value:.4f}"
        if name not in self.intervals:
            return text
        low, high = self.intervals[name]
        return f"{text} [{low:.4f}, {high:.4f}]"
