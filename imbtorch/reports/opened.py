"""Results of reports from JSON files, which ``result.to_json`` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch

from imbtorch.metrics.rows import Row, Snapshot
from imbtorch.reports.files import FORMAT, SCHEMA, cell_of_file, counts_of_file, measure_of_file, number_of_file
from imbtorch.reports.report import ImbalanceReport
from imbtorch.reports.result import Opened, ReportResult
from imbtorch.tables import Table


def open_result(path: str | PathLike[str]) -> ReportResult:
    """Open the result of a report that ``result.to_json(path)`` wrote.

    Its values, intervals and table are read from the file; any other measure is computed from its counts. Measures of
    the catalogue are computed again where a method needs them, as in ``interval``. The code of your own functions is in
    no file: their stored values open, and methods that would have to call them raise an error.

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
            settings[each] = {key: measure_of_file(key, given) for key, given in settings[each].items()}
    threshold = settings["threshold"]
    settings["threshold"] = threshold if isinstance(threshold, float) else torch.tensor(threshold, dtype=torch.float64)
    report = ImbalanceReport(class_names=data["class_names"], **settings)
    kind = torch.float64 if settings["weighted"] else torch.int64
    rows = {}
    for value in data["values"]:
        row = Row(*(value[each] for each in ("measure", "higher_is_better", "kind", "of", "bound")))
        rows[row] = torch.tensor(
            number_of_file(value["value"]), dtype=torch.float64 if value["double"] else torch.float32
        )
    shares, buckets = report._prevalence, data["buckets"]
    at = Snapshot(
        counts_of_file(data["counts"], kind),
        None if data["groups"] is None else counts_of_file(data["groups"], kind),
        shares,
        None if buckets is None else torch.tensor(buckets, dtype=kind),
        data["dependent"],
    )
    blocks = {
        kind: {name: {column: cell_of_file(cell) for column, cell in row.items()} for name, row in block.items()}
        for kind, block in data["table"]["blocks"].items()
    }
    table = Table(blocks, tuple(data["table"]["notes"]), printed=data["table"]["printed"])
    return ReportResult(rows, at, report._settings, Opened(data["imbtorch"], table))
