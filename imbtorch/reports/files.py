"""Contents of the JSON files of results: settings, measures, numbers, cells and counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins
from imbtorch.measures.named import AveragedMeasure, allowed_averages
from imbtorch.measures.traits import by_key, defaults_of
from imbtorch.metrics.rows import Row, Snapshot
from imbtorch.reports.readings import FEW_CLASSES, LEVEL, Readings
from imbtorch.tables import Cell, Table

FORMAT = "imbtorch report"
SCHEMA = 1  # version of the files; raise it when a version that reads the last one would misread the next
INFINITE = {"inf": math.inf, "-inf": -math.inf}


def file_of_result(
    rows: Mapping[Row, Tensor], table: Table, signature: str, version: str, at: Snapshot, readings: Readings
) -> str:
    """Return the text of a file.

    Args:
        rows: values of a result.
        table: its table.
        signature: its signature.
        version: version of the package that computed it.
        at: its counts.
        readings: its settings.
    """
    data = {
        "format": FORMAT,
        "schema": SCHEMA,
        "imbtorch": version,
        "signature": signature,
        "class_names": readings.class_names,
        "settings": _settings(at, readings),
        "level": LEVEL,
        "values": [
            {
                "name": row.name,
                "value": _number(value.item()),
                "measure": row.measure,
                "higher_is_better": row.better,
                "kind": row.kind,
                "of": row.of,
                "bound": row.bound,
                "double": value.dtype == torch.float64,
            }
            for row, value in rows.items()
        ],
        "counts": _listed(at.counts),
        "groups": None if at.groups is None else _listed(at.groups),
        "buckets": None if at.buckets is None else at.buckets.tolist(),
        "dependent": at.dependent,
        "table": {
            "blocks": {
                kind: {name: {column: _of_cell(cell) for column, cell in row.items()} for name, row in block.items()}
                for kind, block in table.blocks.items()
            },
            "notes": table.notes,
            "printed": table.printed,
        },
    }
    return json.dumps(data, allow_nan=False, ensure_ascii=False)


def _settings(at: Snapshot, readings: Readings) -> dict[str, Any]:
    """Return the arguments of a report of the same settings, measures by name."""
    counting = readings.counting
    groups = {row.of: value.measure.over_classes for row, value in readings.values.items() if row.kind == "class group"}
    per_class: dict[str, Any] | None = {key: _of_measure(each) for key, each in readings.per_class.items()}
    if not per_class and counting.size > FEW_CLASSES:
        per_class = None  # the default of many classes, whose groups alone are reported
    shares = at.prevalence
    if shares is not None and counting.task == "multilabel":
        shares = shares[:, 1]
    return {
        "task": counting.task,
        "measures": {key: _of_measure(each) for key, each in readings.measures.items()},
        "per_class": per_class,
        "intervals": [row.name for row in readings.bounded],
        "logits": counting.logits,
        "class_groups": groups or None,
        "groups": readings.groups or None,
        "per_group": readings.per_group if readings.groups else None,
        "clusters": counting.clusters,
        "prevalence": None if shares is None else shares.tolist(),
        "threshold": counting.threshold,
        "ignore_index": counting.ignore_index,
        "state": counting.layout,
        "weighted": counting.weighted,
    }


def _of_measure(measure: AveragedMeasure) -> dict[str, Any]:
    """Return the name, average and arguments of a measure of the catalogue; of others the name and direction."""
    found = {"name": measure.traits.key or None, "function": getattr(measure.function, "__name__", measure.name)}
    if not measure.traits.key:
        return found | {"higher_is_better": measure.higher_is_better}
    known = {**defaults_of(measure.function), "threshold": measure.counting.threshold}
    arguments = {key: value for key, value in measure.arguments.items() if not _is_same(value, known.get(key))}
    try:
        json.dumps({key: _of_argument(value) for key, value in arguments.items()}, allow_nan=False)
    except (TypeError, ValueError):  # a function or the like: the file cannot say how to compute the measure
        return found | {"name": None, "higher_is_better": measure.higher_is_better}
    averaged = measure.average in allowed_averages(measure.traits, measure.counting)
    return found | {
        "average": measure.average if averaged else None,
        "arguments": {key: _of_argument(value) for key, value in arguments.items()},
    }


def _is_same(value: Any, default: Any) -> bool:
    """Return whether an argument has its default."""
    return value is default or (type(value) is type(default) and not isinstance(value, Tensor) and value == default)


def _of_argument(value: Any) -> Any:
    """Return an argument as JSON; a measure of the catalogue by its name."""
    names = {function: key for key, function in by_key().items()}
    if callable(value) and value in names:
        return names[value]
    return value.tolist() if isinstance(value, Tensor) else value


def measure_of_file(key: str, given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a measure of a file: a function of the catalogue, or one that says that its code is missing."""
    if given["name"] is None:
        return _Missing(key, given["function"], given["higher_is_better"])
    arguments = {
        name: torch.tensor(each) if isinstance(each, list) else each for name, each in given["arguments"].items()
    }
    averaged = {} if given["average"] is None else {"average": given["average"]}
    return partial(by_key()[given["name"]], **averaged, **arguments)


class _Missing:
    """Function whose code no file holds.

    Args:
        key: name of its values in the report.
        name: name of the function.
        higher_is_better: its direction.
    """

    def __init__(self, key: str, name: str, higher_is_better: bool | None) -> None:
        self.key, self.__name__, self.higher_is_better = key, name, higher_is_better

    def __call__(self, *_: Any, **__: Any) -> Tensor:
        """Raise a ValueError."""
        raise ValueError(
            f"{self.key!r} is computed by {self.__name__}, whose code the file does not hold: its stored values and "
            "the table are all; build a report with that function and add(result.counts)"
        )


def _number(value: float) -> float | str | None:
    """Return a number as strict JSON: None for nan, a text for infinite ones."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def number_of_file(value: float | str | None) -> float:
    """Return the number that :func:`_number` wrote."""
    if value is None:
        return math.nan
    return INFINITE[value] if isinstance(value, str) else value


def _of_cell(cell: Any) -> Any:
    """Return a cell of a table: a number, or with its bounds three."""
    if isinstance(cell, Cell) and cell.low == cell.low:
        return [_number(each) for each in (cell, cell.low, cell.high)]
    return _number(float(cell)) if isinstance(cell, float) else cell


def cell_of_file(given: Any) -> Any:
    """Return the cell that :func:`_of_cell` wrote."""
    if isinstance(given, list):
        value, low, high = map(number_of_file, given)
        return Cell(value, low, high)
    return given if isinstance(given, int) else Cell(number_of_file(given))


def _listed(counts: Counts) -> Any:
    """Return counts as lists."""
    return (
        {name: part.tolist() for name, part in counts._asdict().items()}
        if isinstance(counts, Margins)
        else counts.tolist()
    )


def counts_of_file(given: Any, kind: torch.dtype) -> Counts:
    """Return the counts that :func:`_listed` wrote."""
    if isinstance(given, dict):
        return Margins(**{name: torch.tensor(part, dtype=kind) for name, part in given.items()})
    return torch.tensor(given, dtype=kind)
