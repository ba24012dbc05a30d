"""Sums of results that shards of the samples wrote."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from imbtorch.reports.opened import contents, result_of
from imbtorch.reports.result import ReportResult


def merge_results(*paths: str | PathLike[str]) -> ReportResult:
    """Add the counts of results of the same settings, classes and groups, such as those of shards.

    Values, intervals and table are computed from the sums, as if one report had counted all samples. Values that counts
    cannot give, such as areas under curves, are left out.

    Args:
        paths: paths of files that ``result.to_json`` wrote.

    Raises:
        ValueError: for files of different settings, and as :func:`imbtorch.open_result`.
    """
    files = [contents(path)[0] for path in paths]
    settings = [each["settings"] | {"class_names": each["class_names"]} for each in files]
    for path, own in zip(paths, settings, strict=True):
        for name, value in settings[0].items():
            if own[name] != value:
                raise ValueError(
                    f"{paths[0]} and {path} differ in {name}, {value!r} and {own[name]!r}; report both with the same "
                    "settings, and name all classes by class_names=[...]"
                )
    summed = {name: _sum([each[name] for each in files]) for name in ("counts", "groups", "buckets")}
    notes = dict.fromkeys(note for each in files for note in each.get("notes", ()))
    if any(each["values"] for each in files):
        notes["values that need more than counts, such as areas under curves, are left out"] = None
    dependent = any(each["dependent"] for each in files)
    return result_of(files[0] | summed | {"dependent": dependent, "values": [], "notes": list(notes)})


def _sum(parts: list[Any]) -> Any:
    """Add counts, as lists or by name; None if there are none."""
    if isinstance(parts[0], dict):
        return {name: _sum([part[name] for part in parts]) for name in parts[0]}
    return None if parts[0] is None else np.sum(parts, 0).tolist()
