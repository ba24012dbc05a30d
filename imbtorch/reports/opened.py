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
from imbtorch.counts import Margins
from imbtorch.metrics.rows import Bound, Kind, Snapshot
from imbtorch.metrics.shared_result import LONGEST
from imbtorch.reports.files import FORMAT, SCHEMA, arguments_of_file, counts_of_file, digest_of, rows_of_file
from imbtorch.reports.report import ImbalanceReport
from imbtorch.reports.result import ReportResult


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
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise ValueError(f"{path} is not complete or was changed: {kind}{error}") from error


def open_report(path: str | PathLike[str], data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
    with checked_contents(path, data, FORMAT, SCHEMA):
        return result_of(data)


NUMBERS = float, [float], [[float]]
MEASURE = {"name": str, "average": (str, None), "arguments": {str: (bool, str, None, *NUMBERS)}}
SETTINGS = {
    "task": get_args(Task),
    "measures": {str: MEASURE},
    "per_class": ({str: MEASURE}, None),
    "intervals": [str],
    "logits": bool,
    "class_groups": ({str: [int]}, None),
    "groups": ([str], {str: [str]}, None),
    "per_group": ([str], None),
    "clusters": bool,
    "prevalence": ([float], None),
    "threshold": (float, [float]),
    "ignore_index": (int, None),
    "state": ("matrix", "margins"),
    "weighted": bool,
}
VALUE = {
    "name": str,
    "value": (float, None, "inf", "-inf"),
    "double": bool,
    "measure": str,
    "higher_is_better": (bool, None),
    "kind": (*get_args(Kind), "rule"),
    "of": str,
    "bound": get_args(Bound),
}
FORM = {"imbtorch": str, "signature": str, "class_names": [str], "settings": SETTINGS, "dependent": bool}
FORM |= {"notes": [str], "parts": [[str]], "values": [VALUE]}  # of contents but for counts


def _check(data: Mapping[str, Any]) -> None:
    """Raise for contents of a type, range or length that no report has, before anything is built from them."""
    known = {"notes": [], "parts": [], **data}
    wrong = [field for field, form in FORM.items() if not fits(known.get(field), form)]
    if wrong:
        raise ValueError(f"{wrong[0]} has another form")
    if not re.fullmatch(r"[\w.+!]{1,64}", data["imbtorch"]):
        raise ValueError("imbtorch is no version")
    settings, number = data["settings"], len(data["class_names"])
    cells = {"multilabel": (number, 2, 2)}.get(settings["task"], (number, number))
    buckets = (BUCKETS,) if settings["clusters"] else None
    names = settings["groups"]
    names = next(iter(names.values()), []) if isinstance(names, dict) else names
    groups = None if names is None else (len(names),)
    shapes = {"counts": (), "groups": groups, "buckets": None if buckets is None else (groups or ()) + buckets}
    for field, shape in shapes.items():
        fitting, given = data[field] is None, data[field]
        if shape is not None and isinstance(given, dict):
            fitting = given.keys() == set(Margins._fields) and settings["state"] == "margins"
            fitting = fitting and all(
                _are_counts(each, (*shape, number), settings["weighted"]) for each in given.values()
            )
        elif shape is not None:
            fitting = settings["state"] == "matrix" and _are_counts(given, shape + cells, settings["weighted"])
        if not fitting:
            raise ValueError(
                f"{field} must be numbers of samples that fit the classes and groups, below 2**63 together"
            )


def fits(value: Any, form: Any) -> bool:
    """Return whether a value has a form: one of a tuple, a list or mapping of others, a type, or a value."""
    if isinstance(form, tuple):
        return any(fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        keys = dict.fromkeys(value, form[str]) if isinstance(value, dict) and str in form else form
        return isinstance(value, dict) and value.keys() == keys.keys() and all(fits(value[k], keys[k]) for k in keys)
    if form is str:
        return isinstance(value, str) and len(value) <= LONGEST
    if form is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is form if isinstance(form, type) else value == form and type(value) is type(form)


def _are_counts(given: Any, shape: tuple[int, ...], weighted: bool) -> bool:
    """Return whether nested lists have a shape, and hold counts or sums of weights."""
    found = np.array(given, dtype=object)
    kinds = {int, float} if weighted else {int}
    if found.shape != shape or not set(map(type, found.flat)) <= kinds:
        return False
    return all(0 <= each < math.inf for each in found.flat) and found.sum() < 2**63


def result_of(data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
    _check(data)
    report = ImbalanceReport(**arguments_of_file(data))
    kind = torch.float64 if report.weighted else torch.int64
    groups, buckets = data["groups"], data["buckets"]
    at = Snapshot(
        counts_of_file(data["counts"], kind),
        None if groups is None else counts_of_file(groups, kind),
        report._prevalence,
        None if buckets is None else torch.tensor(buckets, dtype=kind),
        data["dependent"],
    )
    values, notes = data["values"], [*data.get("notes", ())]
    if any(each["kind"] == "rule" for each in values):
        values = [each for each in values if each["kind"] != "rule"]
        notes.append("the rule of imbtorch 0.6 is left out; Predictions.thresholds and .adjustments choose one")
    rows = report._settings.read(at)
    stored = {row: value for row, value in rows_of_file(values, report._settings.by).items() if row not in rows}
    more = data["imbtorch"], tuple(notes), tuple(data.get("parts", ()))
    return ReportResult({**rows, **stored}, at, report._settings, *more)
