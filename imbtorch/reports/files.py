"""JSON files of results: the settings of a report, its counts, and the values that these cannot give."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins
from imbtorch.measures.named import AveragedMeasure, allowed_averages
from imbtorch.measures.traits import by_key, defaults_of
from imbtorch.reports.readings import FEW_CLASSES, Readings
from imbtorch.reports.rows import Kind, Row, Snapshot

FORMAT = "imbtorch report"
SCHEMA = 2  # version of the files
IN_CLASSES: tuple[Kind, ...] = ("class", "class group")


def text_of_file(
    rows: Mapping[Row, Tensor],
    signature: str,
    version: str,
    at: Snapshot,
    readings: Readings,
    notes: Sequence[str],
    problems: Mapping[str, str],
    parts: Sequence[Sequence[str]] = (),
) -> str:
    """Return the text of a file: version, settings, counts, and those values that the counts cannot give."""
    settings = _arguments(at, readings)
    of_counts, measures, own = readings.rows, settings["measures"], settings["per_class"]
    of_classes = {row.measure for row in of_counts if own is None or row.measure in own}
    known = {row for row in of_counts if row.measure in (of_classes if row.kind in IN_CLASSES else measures)}
    stored = {row: value for row, value in rows.items() if row not in known}
    data = {
        "format": FORMAT,
        "schema": SCHEMA,
        "imbtorch": version,
        "signature": signature,
        "class_names": readings.class_names,
        "settings": settings,
        "counts": _listed(at.counts),
        "groups": None if at.groups is None else _listed(at.groups),
        "buckets": None if at.buckets is None else at.buckets.tolist(),
        "dependent": at.dependent,
        "notes": list(notes),
        "problems": dict(problems),
        "values": [
            {
                **{"name": row.name, "value": _number(value.item()), "double": value.dtype == torch.float64},
                **{"measure": row.measure, "higher_is_better": row.better},
                **{"kind": row.kind, "of": row.of, "bound": row.bound},
            }
            for row, value in stored.items()
        ],
    }
    data |= {"parts": list(map(list, parts))} if parts else {}
    data |= {} if at.squares is None else {"squares": at.squares.tolist()}
    data["sha256"] = digest_of(json.loads(json.dumps(data, allow_nan=False)))
    return json.dumps(data, allow_nan=False, ensure_ascii=False)


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the hash of the contents of a file but for the hash that it holds."""
    rest = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _arguments(at: Snapshot, readings: Readings) -> dict[str, Any]:
    """Return the arguments of a report of the same settings, without measures whose code no file holds."""
    counting = readings.counting
    per_class: dict[str, Any] | None = _of_measures(readings.per_class)
    if not readings.per_class and counting.size > FEW_CLASSES:
        per_class = None  # the default of many classes, whose groups alone are reported
    shares = at.prevalence
    if shares is not None and counting.task == "multilabel":
        shares = shares[:, 1]
    measures = _of_measures(readings.measures)
    bounded = [row.name for row in readings.bounded if row.measure in {**measures, **(per_class or {})}]
    return {
        "task": counting.task,
        "measures": measures,
        "per_class": per_class,
        "intervals": bounded,
        "logits": counting.logits,
        "class_groups": readings.class_groups or None,
        "groups": {readings.grouped_by: readings.groups} if readings.grouped_by else readings.groups or None,
        "per_group": [key for key in readings.per_group if key in measures] if readings.groups else None,
        "clusters": counting.clusters,
        "prevalence": None if shares is None else shares.tolist(),
        "threshold": counting.threshold,
        "ignore_index": counting.ignore_index,
        "state": counting.layout,
        "weighted": counting.weighted,
    }


def _of_measures(measures: Mapping[str, AveragedMeasure]) -> dict[str, Any]:
    """Return the names, averages and arguments of measures of the catalogue; others are left out."""
    return {key: found for key, each in measures.items() if (found := _of_measure(each)) is not None}


def _of_measure(measure: AveragedMeasure) -> dict[str, Any] | None:
    """Return the name, average and arguments of a measure; None if a file cannot say how to compute it."""
    if not measure.traits.key:
        return None
    known = {**defaults_of(measure.function), "threshold": measure.counting.threshold}
    arguments = {
        key: _of_argument(value) for key, value in measure.arguments.items() if not _is_same(value, known.get(key))
    }
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError):  # a function or the like
        return None
    averaged = measure.average in allowed_averages(measure.traits, measure.counting)
    return {
        "name": measure.traits.key,
        "average": measure.average if averaged else None,
        "arguments": arguments,
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


def _number(value: float) -> float | str | None:
    """Return a number as strict JSON: None for nan, a text for infinite ones."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def _listed(counts: Counts) -> Any:
    """Return counts as lists."""
    if isinstance(counts, Margins):
        return {name: part.tolist() for name, part in counts._asdict().items()}
    return counts.tolist()


# --- back -------------------------------------------------------------------------------------------------------------


def arguments_of_file(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the report of a file."""
    settings = dict(data["settings"])
    for kind in ("measures", "per_class"):
        if settings[kind] is not None:
            settings[kind] = {key: _measure(each) for key, each in settings[kind].items()}
    if not isinstance(settings["threshold"], float):
        settings["threshold"] = torch.tensor(settings["threshold"], dtype=torch.float64)
    return settings | {"class_names": data["class_names"]}


def _measure(given: Mapping[str, Any]) -> partial[Tensor]:
    """Return a measure of the catalogue with its average and arguments."""
    arguments = {
        key: torch.tensor(each) if isinstance(each, list) else each for key, each in given["arguments"].items()
    }
    averaged = {} if given["average"] is None else {"average": given["average"]}
    return partial(by_key()[given["name"]], **averaged, **arguments)


def counts_of_file(given: Any, kind: torch.dtype) -> Counts:
    """Return the counts that a file holds."""
    if isinstance(given, dict):
        return Margins(**{name: torch.tensor(part, dtype=kind) for name, part in given.items()})
    return torch.tensor(given, dtype=kind)


def rows_of_file(values: Sequence[Mapping[str, Any]], by: str) -> dict[Row, Tensor]:
    """Return the values that a file holds; ``by`` is what groups the samples, if their names need it."""
    rows = {}
    for each in values:
        row = Row(*(each[name] for name in ("measure", "higher_is_better", "kind", "of", "bound")))
        row = replace(row, by=by) if row.kind == "group" else row
        number = math.nan if each["value"] is None else float(each["value"])
        rows[row] = torch.tensor(number, dtype=torch.float64 if each["double"] else torch.float32)
    return rows
