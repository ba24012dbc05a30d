"""Results of reports from JSON files, which ``result.to_json`` wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
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


def open_result(path: str | PathLike[str]) -> ReportResult:
    """Open the result of a report that ``result.to_json(path)`` wrote; no code of the file runs.

    The report is built with the settings of the file, and its values, intervals and table are computed from the counts
    of the file. Values that counts cannot give, such as areas under curves, rules, and those of your own functions,
    are read.

    The file holds counts and no rows. Two such files can therefore only be compared as independent samples, by
    :func:`imbtorch.statistics.compare`; a paired comparison of two models on the same samples needs their predictions.

    Args:
        path: path of the file.

    Raises:
        ValueError: for a file of another format or schema version, and one that is damaged or was changed.
        OSError: for a file that cannot be read.

    >>> import imbtorch, tempfile
    >>> result = imbtorch.report(preds=["cat", "dog", "dog"], target=["cat", "dog", "cat"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.to_json(f"{folder}/result.json")
    ...     opened = imbtorch.open_result(f"{folder}/result.json")
    >>> opened["accuracy"], opened.signature == result.signature
    (tensor(0.6667), True)
    """
    return contents(path)[1]


def contents(path: str | PathLike[str]) -> tuple[dict[str, Any], ReportResult]:
    """Read a file; return its contents and the result."""
    with open(path, "rb") as file:
        text = file.read()
    try:
        data = json.loads(text, parse_constant=int)  # an error for NaN, which is no JSON
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{path} holds no result of a report; result.to_json(path) writes one")
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} was written by imbtorch {data.get('imbtorch')!s:.40} with schema {data.get('schema')!r:.40}, and "
            f"this version reads schema {SCHEMA}; open it with the version that wrote it"
        )
    if data.get("sha256") != digest_of(data):
        raise ValueError(f"{path} is not complete or was changed")
    try:
        result = result_of(data)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise ValueError(f"{path} is not complete or was changed: {kind}{error}") from error
    return data, result


MEASURE = {"name": str, "average": (str, None), "arguments": {str: (bool, str, None, float, [float], [[float]])}}
SETTINGS: dict[str, Any] = dict.fromkeys(("logits", "clusters", "weighted"), bool)
SETTINGS |= {"measures": {str: MEASURE}, "per_class": ({str: MEASURE}, None), "class_groups": ({str: [int]}, None)}
SETTINGS |= {"task": get_args(Task), "state": ("matrix", "margins"), "intervals": [str], "ignore_index": (int, None)}
SETTINGS |= {"groups": ([str], None), "per_group": ([str], None)}
SETTINGS |= {"prevalence": ([float], None), "threshold": (float, [float])}
VALUE: dict[str, Any] = {"name": str, "measure": str, "of": str, "value": (float, None, "inf", "-inf"), "double": bool}
VALUE |= {"higher_is_better": (bool, None), "kind": get_args(Kind), "bound": get_args(Bound)}
FORM = {"imbtorch": str, "class_names": [str], "settings": SETTINGS, "values": [VALUE], "dependent": bool}
FORM |= {"signature": str, "notes": [str], "parts": [[str]]}  # of contents but for counts


def _check(data: Mapping[str, Any]) -> None:
    """Raise for contents of a type, range or length that no report has, before anything is built from them."""
    known = {"notes": [], "parts": [], **data}
    for field, form in FORM.items():
        if not _fits(known.get(field), form):
            raise ValueError(f"{field} has another form")
    if not re.fullmatch(r"[\w.+!]{1,64}", data["imbtorch"]):
        raise ValueError("imbtorch is no version")
    settings, number = data["settings"], len(data["class_names"])
    cells: dict[str, tuple[int, ...]] = {"": (number, 2, 2) if settings["task"] == "multilabel" else (number, number)}
    if settings["state"] == "margins":
        cells = dict.fromkeys(Margins._fields, (number,))
    groups = () if settings["groups"] is None else (len(settings["groups"]),)
    shapes = {"counts": (), "groups": groups or None, "buckets": (*groups, BUCKETS) if settings["clusters"] else None}
    for field, shape in shapes.items():
        parts, fits = data[field] if isinstance(data[field], dict) else {"": data[field]}, data[field] is None
        if shape is not None:
            sizes = {name: (*shape, *cell) for name, cell in cells.items()}
            fits = parts.keys() == sizes.keys() and all(_are_counts(parts[k], sizes[k], settings) for k in sizes)
        if not fits:
            raise ValueError(f"{field} must be numbers of samples of each class and group, below 2**63 together")


def _fits(value: Any, form: Any) -> bool:
    """Return whether a value has a form: one of a tuple, a list or mapping of others, a type, or a value."""
    if isinstance(form, tuple):
        return any(_fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        if not isinstance(value, dict) or not (str in form or value.keys() == form.keys()):
            return False
        return all(_fits(each, form.get(str, form.get(key))) for key, each in value.items())
    if form is str:
        return isinstance(value, str) and len(value) <= LONGEST
    if form is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is form if isinstance(form, type) else type(value) is type(form) and value == form


def _are_counts(given: Any, shape: tuple[int, ...], settings: Mapping[str, Any]) -> bool:
    """Return whether nested lists have a shape, and hold counts or sums of weights."""
    found, kinds = np.array(given, dtype=object), {int, float} if settings["weighted"] else {int}
    right = found.shape == shape and set(map(type, found.flat)) <= kinds
    return right and all(0 <= each < math.inf for each in found.flat) and found.sum() < 2**63


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
    rows = report._settings.read(at)
    stored = {row: value for row, value in rows_of_file(data["values"]).items() if row not in rows}
    more = data["imbtorch"], tuple(data.get("notes", ())), tuple(data.get("parts", ()))
    return ReportResult({**rows, **stored}, at, report._settings, *more)
