"""Results in JSON files: to open them, and to add those of shards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from imbtorch.deciding import money, points
from imbtorch.deciding.money import CostPoint
from imbtorch.deciding.points import OperatingPoint
from imbtorch.predictions import estimates, labels
from imbtorch.predictions.estimates import Estimate
from imbtorch.predictions.paths import check_twice
from imbtorch.reports.opened import checked_contents, open_report, read_file, result_of
from imbtorch.reports.result import ReportResult


def open_result(path: str | PathLike[str]) -> ReportResult | Estimate | OperatingPoint | CostPoint:
    """Open the result of a report, an estimate, or an operating point of a sweep, that ``to_json(path)`` wrote.

    No code of the file runs. A report is built with the settings of the file, and its values, intervals and table are
    computed from the counts of the file. Values that counts cannot give, such as areas under curves and those of your
    own functions, are read.

    The file of a report holds counts and no rows. Two such files can therefore only be compared as independent samples,
    by :func:`imbtorch.statistics.compare`; a paired comparison needs the predictions of both models.

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
    data = read_file(path)
    if data["format"] == labels.FORMAT:
        raise ValueError(f"{path} is a plan of rows to label, which estimate takes once they are labelled (plan=)")
    if data["format"] == estimates.FORMAT or "pool" in data:
        return estimates.opened_estimate(path, data)
    if data["format"] == money.FORMAT:
        with checked_contents(path, data, money.FORMAT, money.SCHEMA):
            return money.cost_point_of(data)
    if data["format"] != points.FORMAT:
        return open_report(path, data)
    with checked_contents(path, data, points.FORMAT, points.SCHEMA):
        return points.point_of(data)


def merge_results(*paths: str | PathLike[str]) -> ReportResult:
    """Add the counts of results of the same settings, classes and groups, such as those of shards.

    Values, intervals and table are computed from the sums, as if one report had counted all samples. Values that counts
    cannot give, such as areas under curves, are left out.

    Args:
        paths: paths of files that ``result.to_json`` wrote.

    Raises:
        ValueError: for files of different settings, a file that is named twice, a sum beside its parts, and as
            :func:`imbtorch.open_result`.

    >>> import imbtorch, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [f"{folder}/{shard}.json" for shard in range(2)]
    ...     imbtorch.report(target=[0, 1], preds=[0, 1]).to_json(paths[0])
    ...     imbtorch.report(target=[0, 1, 1], preds=[1, 1, 0]).to_json(paths[1])
    ...     merge_results(*paths).counts
    tensor([[1, 1],
            [1, 2]])
    """
    if not paths:
        raise ValueError("merge_results needs the paths of results; name those of all shards")
    check_twice([os.fspath(path) for path in paths])
    files = [read_file(path) for path in paths]
    for path, data in zip(paths, files, strict=True):
        if data["format"] == estimates.FORMAT or "pool" in data:
            raise ValueError(f"{path}: {estimates.NO_COUNTS}")
        open_report(path, data)
    parts, equal = _parts(paths, files)
    settings = [each["settings"] | {"class_names": each["class_names"]} for each in files]
    for path, own in zip(paths, settings, strict=True):
        for name, value in settings[0].items():
            if own[name] != value:
                raise ValueError(
                    f"{paths[0]} and {path} differ in {name}, {value!r} and {own[name]!r}; report both with the same "
                    "settings, and name all classes by class_names=[...]"
                )
    summed = {name: _sum([each[name] for each in files]) for name in ("counts", "groups", "buckets")}
    squares = [each.get("squares") for each in files]
    summed["squares"] = None if None in squares else _sum(squares)
    notes = dict.fromkeys([*(note for each in files for note in each.get("notes", ())), *equal])
    if any(each["values"] for each in files):
        notes["values that need more than counts, such as areas under curves, are left out"] = None
    dependent = any(each["dependent"] for each in files)
    more = {"dependent": dependent, "values": [], "notes": list(notes), "parts": parts}
    return result_of(files[0] | summed | more)


def _parts(paths: Sequence[Any], files: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """Return names and digests of all files in a sum, and a note on equal ones; raise for a sum beside its parts."""
    seen: dict[tuple[str, ...], tuple[int, bool]] = {}  # a file, the path that holds it, and whether in a sum
    digests, equal = dict[str, int](), list[str]()
    for at, (path, data) in enumerate(zip(paths, files, strict=True)):
        own = "/".join(Path(os.path.abspath(path)).parts[-2:]), data["sha256"]
        held = dict.fromkeys([own, *map(tuple, data.get("parts", ()))])
        for part in held:
            other, summed = seen.setdefault(part, (at, part != own))
            if other != at and (summed or part != own):
                raise ValueError(f"{paths[other]} and {path} both hold {part[0]}, whose samples would count twice")
            first = digests.setdefault(part[1], at)
            if first != at:
                equal = [f"{paths[first]} and {path} hold equal results; if one is a copy, its samples count twice"]
    return [list(part) for part in seen], equal


def _sum(parts: list[Any]) -> Any:
    """Add counts, as lists or by name; None if there are none."""
    if isinstance(parts[0], dict):
        return {name: _sum([part[name] for part in parts]) for name in parts[0]}
    whole = [np.array(part, dtype=object) for part in parts]  # Python's integers have no end
    return None if parts[0] is None else sum(whole[1:], whole[0]).tolist()
