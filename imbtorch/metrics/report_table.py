"""Table of the values of a report, as text, HTML, CSV or pandas."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any, TextIO

from imbtorch.tables import aligned, html_table, wrapped, write_csv

__all__ = ["ReportTable"]

Rows = dict[str, dict[str, float]]
FEW = 20  # number of groups of samples to print
COUNTS = ("support", "predicted")  # columns that count samples


@dataclass(frozen=True)
class ReportTable:
    """Table of a report, with a row for each class, class group and group of samples; print it for text.

    :meth:`imbtorch.ImbalanceReport.table` makes it.

    Attributes:
        overall: measure -> value over all classes.
        classes: class -> column -> value. Columns are ``"support"`` (number of targets), ``"predicted"`` (number of
            predictions) and the measures.
        class_groups: class group -> measure -> value.
        groups: group of samples -> ``"support"`` and measures -> value, the worst group first.
        bounds: (kind of row, name of row, measure) -> (low, high) of the interval; kinds are ``"overall"`` (whose name
            is empty), ``"class"`` and ``"group"``.
        baseline: sentence with the values of majority-class prediction.
        head: number of classes to print; None for all.
    """

    overall: dict[str, float]
    classes: Rows
    class_groups: Rows
    groups: Rows
    bounds: dict[tuple[str, str, str], tuple[float, float]]
    baseline: str
    head: int | None = None

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Rows],
        bounds: dict[tuple[str, str, str], tuple[float, float]],
        directions: Mapping[str, bool | None],
        baseline: str,
        sort: str | None,
        head: int | None,
    ) -> ReportTable:
        """Make a table and sort its rows.

        Args:
            parts: kind of row -> name -> column -> value.
            bounds: as the attribute.
            directions: measure -> whether higher is better; None without a direction.
            baseline: as the attribute.
            sort: column by which classes are sorted; None to keep their order.
            head: number of classes to print; None for all.
        """
        if head is not None and (isinstance(head, bool) or not isinstance(head, int) or head < 1):
            raise ValueError(f"head must be the number of classes to print, 1 or more, got {head!r}")
        classes, groups = parts["class"], parts["group"]
        columns = list(next(iter(classes.values())))
        if sort is not None:
            if sort not in columns:
                raise ValueError(f"sort must be a column of the classes, {', '.join(columns)}, got {sort!r}")
            classes = _worst_first(classes, sort, directions.get(sort))
        directed = next((key for key in parts["overall"].get("", {}) if directions.get(key) is not None), None)
        if directed is not None:
            groups = _worst_first(groups, directed, directions[directed])
        overall = parts["overall"].get("", {})
        return cls(overall, classes, parts["class group"], groups, bounds, baseline, head)

    def _parts(self) -> Iterator[tuple[str, Rows]]:
        """Yield each kind of row that the table has, with its rows."""
        parts = ("class", self.classes), ("class group", self.class_groups), ("group", self.groups)
        yield from ((kind, rows) for kind, rows in parts if rows)

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts: ``["overall"][measure]``, ``["classes"][name][column]``.

        ``"class_groups"`` and ``"groups"`` are added if the report has them, and
        ``["bounds"][kind][name][measure]``, a pair (low, high), if it has intervals.
        """
        found: dict[str, Any] = {"overall": dict(self.overall)}
        plural = {"class": "classes", "class group": "class_groups", "group": "groups"}
        found |= {plural[kind]: {name: dict(row) for name, row in rows.items()} for kind, rows in self._parts()}
        for (kind, name, measure), ends in self.bounds.items():
            found.setdefault("bounds", {}).setdefault(kind, {}).setdefault(name, {})[measure] = ends
        return found

    def to_csv(self, to: str | PathLike[str] | TextIO) -> None:
        """Write all values as CSV, one value in each line.

        The columns are ``kind``, ``name``, ``measure``, ``value``, ``low`` and ``high``. The kind is ``overall`` (whose
        name is empty), ``class``, ``class group`` or ``group``. A value that is nan is left empty, and
        so are ``low`` and ``high`` without an interval. The columns are the same for all reports, so tables of several
        runs can be joined. To get one column for each measure, select a kind in pandas and call
        ``pivot(index="name", columns="measure", values="value")``. Names that begin with =, +, - or @ and are no
        numbers get an apostrophe in front, since a spreadsheet would evaluate them as formulas.

        Args:
            to: path of a file, which is overwritten, or an open text file (opened with ``newline=""``).
        """
        lines: list[tuple[Any, ...]] = [("kind", "name", "measure", "value", "low", "high")]
        for kind, rows in (("overall", {"": self.overall}), *self._parts()):
            for name, values in rows.items():
                for measure, value in values.items():
                    lines.append((kind, name, measure, value, *self.bounds.get((kind, name, measure), ("", ""))))
        write_csv(lines, to)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each class; needs pandas, which imbtorch does not install.

        Raises:
            ModuleNotFoundError: without pandas (``pip install pandas``).
        """
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_pandas needs pandas: pip install pandas", name="pandas") from error
        return pandas.DataFrame.from_dict(self.classes, orient="index")

    def _cells(self) -> Iterator[tuple[list[list[str]], str]]:
        """Yield header and rows of each kind as text, and a line that counts the rows left out."""
        for kind, rows in self._parts():
            shown = {"class": self.head, "group": FEW}.get(kind) or len(rows)
            columns = list(dict.fromkeys(column for row in rows.values() for column in row))
            lines = [[kind, *columns]]
            for name, row in list(rows.items())[:shown]:
                lines.append([name, *(self._cell(kind, name, column, row.get(column)) for column in columns)])
            yield lines, f"... {len(rows) - shown} more" if shown < len(rows) else ""
        if self.overall:
            yield (
                [["measure", "all"], *([key, self._cell("overall", "", key, x)] for key, x in self.overall.items())],
                "",
            )

    def _cell(self, kind: str, name: str, measure: str, value: float | None) -> str:
        """Return the text of a value, with its interval in brackets."""
        if value is None:
            return ""
        if measure in COUNTS:
            return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
        text = "-" if math.isnan(value) else f"{value:.4f}"
        low, high = self.bounds.get((kind, name, measure), (math.nan, math.nan))
        return text if math.isnan(low) else f"{text} [{low:.4f}, {high:.4f}]"

    def __str__(self) -> str:
        """Return aligned text of at most 100 columns, with intervals in brackets."""
        blocks = []
        for lines, rest in self._cells():
            blocks.append("\n".join([*aligned(lines, names_left=True), *([rest] if rest else [])]))
        return "\n\n".join(blocks) + (f"\n{wrapped(self.baseline)}" if self.baseline else "")

    def _repr_html_(self) -> str:
        """Return HTML for notebooks; names are escaped."""
        blocks = [html_table(lines) + f"<p>{escape(rest)}</p>" * bool(rest) for lines, rest in self._cells()]
        return "".join(blocks) + f"<p>{escape(self.baseline)}</p>" * bool(self.baseline)


def _worst_first(rows: Rows, column: str, higher_is_better: bool | None) -> Rows:
    """Sort rows by a column, the worst first; the lowest counts as worst without a direction.

    If a measure sorts, nan comes after all other values, and rows without targets come last of all.
    """
    sign = -1 if higher_is_better is False else 1
    of_measure = column not in COUNTS

    def rank(name: str) -> tuple[bool, bool, float]:
        value, without_targets = rows[name].get(column, math.nan), rows[name]["support"] == 0
        return of_measure and without_targets, math.isnan(value), 0.0 if math.isnan(value) else sign * value

    return {name: rows[name] for name in sorted(rows, key=rank)}
