"""Results of reports from JSON files, which ``result.to_json`` wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, get_args

import numpy as np
import torch

from imbtorch.counting.arguments import Task
from imbtorch.counting.clusters import BUCKETS
from imbtorch.reports.description import described
from imbtorch.reports.files import FORMAT, SCHEMA, arguments_of_file, counts_of_file, digest_of, rows_of_file
from imbtorch.reports.result import ReportResult
from imbtorch.reports.rows import Bound, Kind, Snapshot
from imbtorch.reports.texts import LONGEST


def read_file(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a JSON file of a result; raise for anything else."""
    with open(path, "rb") as file:
        text = file.read()
    try:
        data = json.loads(text, parse_constant=int)  # an error for NaN, which is no JSON
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(data, dict) or not str(data.get("format")).startswith("imbtorch "):
        raise ValueError(f"{path} holds no result of imbtorch; result.to_json(path) writes one")
    return data


@contextmanager
def checked_contents(path: str | PathLike[str], data: Mapping[str, Any], form: str, schema: int) -> Iterator[None]:
    """Raise for contents of another format or schema, and for errors of the ``with`` block that reads them."""
    if data.get("format") != form:
        raise ValueError(f"{path} holds {data['format']!s:.40}, not {form}")
    if data.get("schema") != schema:
        raise ValueError(
            f"{path} was written by imbtorch {data.get('imbtorch')!s:.40} with schema {data.get('schema')!r:.40}, and "
            f"this version reads schema {schema}; open it with the version that wrote it"
        )
    if data.get("sha256") != digest_of(data):
        raise ValueError(f"{path} is not complete or was changed")
    try:
        if not re.fullmatch(r"[\w.+!]{1,64}", data["imbtorch"]):
            raise ValueError("imbtorch is no version")
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise ValueError(f"{path} is not complete or was changed: {kind}{error}") from error


def open_report(path: str | PathLike[str], data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
    with checked_contents(path, data, FORMAT, SCHEMA):
        return result_of(data)


MEASURES = {
    str: {"name": str, "average": (str, None), "arguments": {str: (bool, str, None, float, [float], [[float]])}}
}
SETTINGS = dict.fromkeys(("logits", "clusters", "weighted"), bool) | {
    "task": get_args(Task),
    "state": ("matrix", "margins"),
    "measures": MEASURES,
    "per_class": (MEASURES, None),
    "class_groups": ({str: [int]}, None),
    "groups": ([str], {str: [str]}, None),
    "per_group": ([str], None),
    "intervals": [str],
    "prevalence": ([float], None),
    "threshold": (float, [float]),
    "ignore_index": (int, None),
}
VALUE = dict.fromkeys(("name", "measure", "of"), str) | {
    "value": (float, None, "inf", "-inf"),
    "double": bool,
    "higher_is_better": (bool, None),
    "kind": (*get_args(Kind), "rule"),
    "bound": get_args(Bound),
}
FORM = {"imbtorch": str, "class_names": [str], "settings": SETTINGS, "values": [VALUE], "dependent": bool}
FORM |= {"signature": str, "notes": [str], "parts": [[str]]}  # of contents but for counts


def _check(data: Mapping[str, Any]) -> None:
    """Raise for contents of a type, range or length that no report has, before anything is built from them."""
    known = {"notes": [], "parts": [], **data}
    for field, form in FORM.items():
        if not fits(known.get(field), form):
            raise ValueError(f"{field} has another form")
    settings, number = data["settings"], len(data["class_names"])
    cells: dict[str, tuple[int, ...]] = {"": (number, 2, 2) if settings["task"] == "multilabel" else (number, number)}
    if settings["state"] == "margins":
        cells = dict.fromkeys(("correct", "actual", "predicted"), (number,))
    names = settings["groups"]
    names = next(iter(names.values()), []) if isinstance(names, dict) else names
    groups = () if names is None else (len(names),)
    shapes = {"counts": (), "groups": groups or None, "buckets": (*groups, BUCKETS) if settings["clusters"] else None}
    if data.get("squares") is not None:
        shapes["squares"] = groups if settings["weighted"] else None
    for field, shape in shapes.items():
        parts = data[field] if isinstance(data[field], dict) else {"": data[field]}
        fitting = parts == {"": None} if shape is None else parts.keys() == cells.keys()
        if not fitting or not all(
            shape is None or _are_counts(part, (*shape, *cells[name]), settings["weighted"], field != "squares")
            for name, part in parts.items()
        ):
            raise ValueError(f"{field} must be numbers of samples of each class and group, below 2**63 together")


def fits(value: Any, form: Any) -> bool:
    """Return whether a value has a form: one of a tuple, a list or mapping of others, a type, or a value."""
    if isinstance(form, tuple):
        return any(fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        if not isinstance(value, dict) or not (str in form or value.keys() == form.keys()):
            return False
        return all(fits(each, form.get(str, form.get(key))) for key, each in value.items())
    if form is str:
        return isinstance(value, str) and len(value) <= LONGEST
    if form is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is form if isinstance(form, type) else type(value) is type(form) and value == form


def _are_counts(given: Any, shape: tuple[int, ...], weighted: bool, small: bool = True) -> bool:
    """Return whether nested lists have a shape, and hold counts or sums of weights, below 2**63 if ``small``."""
    found = np.array(given, dtype=object)
    kinds = {int, float} if weighted else {int}
    right = found.shape == shape and set(map(type, found.flat)) <= kinds
    return right and all(0 <= each < math.inf for each in found.flat) and not (small and found.sum() >= 2**63)


def result_of(data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
    _check(data)
    readings = described(**arguments_of_file(data))
    kind = torch.float64 if readings.counting.weighted else torch.int64
    groups, buckets, squares = data["groups"], data["buckets"], data.get("squares")
    at = Snapshot(
        counts_of_file(data["counts"], kind),
        None if groups is None else counts_of_file(groups, kind),
        readings.prevalence,
        None if buckets is None else torch.tensor(buckets, dtype=kind),
        data["dependent"],
        None if squares is None else torch.tensor(squares, dtype=kind),
    )
    values, notes = data["values"], [*data.get("notes", ())]
    if any(each["kind"] == "rule" for each in values):
        values = [each for each in values if each["kind"] != "rule"]
        notes.append("the rule of imbtorch 0.6 is left out; Predictions.thresholds and .adjustments choose one")
    rows = readings.read(at)
    stored = {row: value for row, value in rows_of_file(values, readings.by).items() if row not in rows}
    more = data["imbtorch"], tuple(notes), tuple(data.get("parts", ()))
    return ReportResult({**rows, **stored}, at, readings, *more)
