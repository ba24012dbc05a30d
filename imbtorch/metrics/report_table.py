"""A report as text."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from imbtorch.analysis.tables import aligned

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
    """

    names: list[str]
    columns: dict[str, list[float]]
    overall: dict[str, float]
    groups: dict[str, dict[str, float]] = field(default_factory=dict)

    def _rows(self) -> dict[str, dict[str, float]]:
        """Numbers of each class by column."""
        return {
            name: {column: numbers[index] for column, numbers in self.columns.items()}
            for index, name in enumerate(self.names)
        }

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested dict: ``["classes"][name][column]``, ``["overall"][measure]``, ``["groups"][name][measure]``."""
        rows = self._rows()
        groups = {"groups": {name: dict(row) for name, row in self.groups.items()}} if self.groups else {}
        return {"classes": rows, "overall": dict(self.overall), **groups}

    def to_pandas(self) -> Any:
        """``pandas.DataFrame`` with a row for each class; needs pandas, which imbtorch does not install."""
        return importlib.import_module("pandas").DataFrame(self.columns, index=self.names)

    def __str__(self) -> str:
        """Return aligned text."""
        rows = self._rows()
        overall = [[name, _cell("", value)] for name, value in self.overall.items()]
        lines = [*_aligned(rows), *([""] if self.groups else []), *_aligned(self.groups)]
        return "\n".join([*lines, "", *aligned(overall)])


def _aligned(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines of a table with a row for each name; none without rows."""
    if not rows:
        return []
    cells = [["", *next(iter(rows.values()))]]
    cells += [[name, *(_cell(column, value) for column, value in row.items())] for name, row in rows.items()]
    return aligned(cells)


def _cell(column: str, value: float) -> str:
    if column in ("support", "predicted"):
        return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
    return "-" if value != value else f"{value:.4f}"
