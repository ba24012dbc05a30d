"""Results of reports as JSON files: written by ``result.to_json``, and opened again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins
from imbtorch.measures.traits import by_key, defaults_of
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.report_result import Opened, ReportResult
from imbtorch.readings.averaging import AveragedMeasure, allowed_averages
from imbtorch.readings.readings import FEW_CLASSES, LEVEL, Readings
from imbtorch.readings.rows import Row, Snapshot
from imbtorch.readings.tables import Cell, Table

__all__ = ["file_of_result", "open_result"]

FORMAT = "imbtorch report"
SCHEMA = 1  # version of the files; raise it when a version that reads the last one would misread the next
INFINITE = {"inf": math.inf, "-inf": -math.inf}


def open_result(path: str | PathLike[str]) -> ReportResult:
    """Open the result of a report that ``result.to_json(path)`` wrote.

    Its values, intervals and table are those of the file, its counts give any other measure. Measures of the catalogue
    are computed again where a method needs them, as in ``interval``. The code of your own functions is in no file:
    their stored values open, and methods that would have to call them raise an error.

    The file holds counts and no rows. Two such files can therefore only be compared as independent samples, by
    :func:`imbtorch.statistics.compare`; a paired comparison of two models on the same samples needs their predictions.

    Args:
        path: path of the file.

    Raises:
        ValueError: for a file of another format, and one of a later schema version, which says what wrote it.
        OSError: for a file that cannot be read.

    >>> import imbtorch, tempfile
    >>> result = imbtorch.report(preds=["cat", "dog", "dog"], target=["cat", "dog", "cat"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.to_json(f"{folder}/result.json")
    ...     opened = imbtorch.open_result(f"{folder}/result.json")
    >>> opened["accuracy"], opened.signature == result.signature
    (tensor(0.6667), True)
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{path} holds no result of a report; result.to_json(path) writes one")
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} was written by imbtorch {data.get('imbtorch')} with schema {data.get('schema')!r}, and this "
            f"version reads schema {SCHEMA}; open it with the version that wrote it"
        )
    try:
        return _result(data)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path} is not complete or was changed: {type(error).__name__} {error}") from error


def _result(data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
    settings = dict(data["settings"])
    for each in ("measures", "per_class"):
        if settings[each] is not None:
            settings[each] = {key: _measure(key, given) for key, given in settings[each].items()}
    threshold = settings["threshold"]
    settings["threshold"] = threshold if isinstance(threshold, float) else torch.tensor(threshold, dtype=torch.float64)
    report = ImbalanceReport(class_names=data["class_names"], **settings)
    kind = torch.float64 if settings["weighted"] else torch.int64
    rows = {}
    for value in data["values"]:
        row = Row(*(value[each] for each in ("measure", "higher_is_better", "kind", "of", "bound")))
        rows[row] = torch.tensor(_float(value["value"]), dtype=torch.float64 if value["double"] else torch.float32)
    shares, buckets = report._prevalence, data["buckets"]
    at = Snapshot(
        _counts(data["counts"], kind),
        None if data["groups"] is None else _counts(data["groups"], kind),
        shares,
        None if buckets is None else torch.tensor(buckets, dtype=kind),
        data["dependent"],
    )
    blocks = {
        kind: {name: {column: _cell(cell) for column, cell in row.items()} for name, row in block.items()}
        for kind, block in data["table"]["blocks"].items()
    }
    table = Table(blocks, tuple(data["table"]["notes"]), printed=data["table"]["printed"])
    return ReportResult(rows, at, report._settings, Opened(data["imbtorch"], table))


def file_of_result(result: ReportResult, version: str, at: Snapshot, readings: Readings) -> str:
    """Return the text of a file.

    Args:
        result: the result.
        version: version of the package that computed it.
        at: its counts.
        readings: its settings.
    """
    table = result.table()
    data = {
        "format": FORMAT,
        "schema": SCHEMA,
        "imbtorch": version,
        "signature": result.signature,
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
            for row, value in result.rows.items()
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


def _measure(key: str, given: Mapping[str, Any]) -> Callable[..., Any]:
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


def _float(value: float | str | None) -> float:
    """Return the number that :func:`_number` wrote."""
    if value is None:
        return math.nan
    return INFINITE[value] if isinstance(value, str) else value


def _of_cell(cell: Any) -> Any:
    """Return a cell of a table: a number, or with its bounds three."""
    if isinstance(cell, Cell) and cell.low == cell.low:
        return [_number(each) for each in (cell, cell.low, cell.high)]
    return _number(float(cell)) if isinstance(cell, float) else cell


def _cell(given: Any) -> Any:
    """Return the cell that :func:`_of_cell` wrote."""
    if isinstance(given, list):
        value, low, high = map(_float, given)
        return Cell(value, low, high)
    return given if isinstance(given, int) else Cell(_float(given))


def _listed(counts: Counts) -> Any:
    """Return counts as lists."""
    return (
        {name: part.tolist() for name, part in counts._asdict().items()}
        if isinstance(counts, Margins)
        else counts.tolist()
    )


def _counts(given: Any, kind: torch.dtype) -> Counts:
    """Return the counts that :func:`_listed` wrote."""
    if isinstance(given, dict):
        return Margins(**{name: torch.tensor(part, dtype=kind) for name, part in given.items()})
    return torch.tensor(given, dtype=kind)
