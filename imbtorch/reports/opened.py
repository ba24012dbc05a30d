"""Results of reports from JSON files, which ``result.to_json`` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch

from imbtorch.metrics.rows import Snapshot
from imbtorch.reports.files import FORMAT, SCHEMA, arguments_of_file, counts_of_file, digest_of, rows_of_file
from imbtorch.reports.report import ImbalanceReport
from imbtorch.reports.result import ReportResult


def open_result(path: str | PathLike[str]) -> ReportResult:
    """Open the result of a report that ``result.to_json(path)`` wrote; no code of the file runs.

    The report is built with the settings of the file, and its values, intervals and table are computed from the counts
    of the file. Values that counts cannot give, such as areas under curves and those of your own functions, are read.

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
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{path} holds no result of a report; result.to_json(path) writes one")
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} was written by imbtorch {data.get('imbtorch')} with schema {data.get('schema')!r}, and this "
            f"version reads schema {SCHEMA}; open it with the version that wrote it"
        )
    if data.get("sha256") != digest_of(data):
        raise ValueError(f"{path} is not complete or was changed")
    try:
        result = result_of(data)
    except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(f"{path} is not complete or was changed: {type(error).__name__} {error}") from error
    return data, result


def result_of(data: Mapping[str, Any]) -> ReportResult:
    """Make a result of the contents of a file."""
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
    return ReportResult({**rows, **stored}, at, report._settings, data["imbtorch"], tuple(notes))
