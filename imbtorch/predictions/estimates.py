"""Values of a pool with exact intervals, from labels drawn within its predicted classes, with table and file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from os import PathLike
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import check_choice
from imbtorch.intervals.intervals import Interval, check_level
from imbtorch.measures.named import AveragedMeasure
from imbtorch.predictions.label_bounds import Labelled, LabelledPool, dependence
from imbtorch.reports import files
from imbtorch.reports.description import described
from imbtorch.reports.files import digest_of, text_of_file
from imbtorch.reports.opened import checked_contents, fits, result_of
from imbtorch.reports.readings import ENDS, Readings
from imbtorch.reports.result import means_text
from imbtorch.reports.rows import Finder, Result, Row, Snapshot, shown
from imbtorch.suggestions import first_names
from imbtorch.tables import Cell, Table, replace_file
from imbtorch.version import __version__

Of: TypeAlias = Literal["pool", "population"]
FORMAT, SCHEMA = "imbtorch estimate", 1
METHOD = "hypergeometric bounds within predicted classes"  # of files; "" of 0.7, whose tables marked no value
DEFINED = ("accuracy", "expected_cost", "macro_averaged_absolute_error", "net_benefit")  # without a positive
OF_ONE_CLASS = ("npv", "precision", "specificity")  # as DEFINED, if they are not means over both classes
FEW = 3  # missed positives among the labels below which the value jumps from one to the next
WHOSE: dict[str, str] = {
    "pool": "of the pool (exact: holds in {:.4g}% or more of all labellings of any pool)",
    "population": "of the population (new rows of the same source; exact in {:.4g}% or more of all pools if rows are "
    "independent)",
}
NO_COUNTS = (
    "an estimate has no counts, since only some rows are labelled: merge, posterior and compare would take its "
    "expected cells (expected_cells) for samples; label one plan of the whole pool, and read interval(name)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Result):
    """Estimate of a pool of which some rows are labelled: values with exact intervals, table and file.

    :meth:`Predictions.estimate` returns it. Values are those that the pool has if the rows of each predicted class have
    the share of positives of its labels. ``estimate["f1"]`` is one value, ``estimate["f1_low"]`` its lower bound.

    It has no counts, so it is neither added to others nor compared.

    >>> from imbtorch import Predictions
    >>> columns = {"pred": [0] * 90 + [1] * 10, "label": [0] * 20 + [1] * 3 + [None] * 72 + [1] * 4 + [0]}
    >>> estimate = Predictions(columns, target="label").estimate("pred", plan={0: 90, 1: 10}, measures=["f1"])
    >>> print(estimate.interval("f1"))
    f1 (binary) 0.538 [0.182, 0.818] (95% exact, of the pool)
    """

    _pool: LabelledPool
    _readings: Readings
    _of: Of = "pool"
    _notes: tuple[str, ...] = ()
    _version: str = __version__
    _method: str = METHOD

    @property
    def _came(self) -> tuple[Counting, bool]:
        return self._readings.counting, False

    @property
    def _finders(self) -> tuple[Finder, ...]:
        return FINDERS

    @property
    def counts(self) -> NoReturn:
        """None: this raises AttributeError, since only some rows are labelled."""
        raise AttributeError(NO_COUNTS)

    @property
    def expected_cells(self) -> Tensor:
        """Expected cells ``[2, 2]`` of the pool; they are no counts of samples."""
        return self._pool.expected_cells()

    @property
    def signature(self) -> str:
        """Version, numbers of labels and rows, and a hash of the labels, in one line."""
        parts = self._pool.negative, self._pool.positive
        digest = hashlib.sha256(repr([_listed(each) for each in parts]).encode()).hexdigest()[:8]
        labels, rows = sum(each.labelled for each in parts), sum(each.rows for each in parts)
        return f"imbtorch {self._version} | {labels} labels of {rows} rows | of the {self._of} | labels {digest}"

    def interval(self, name: str, *, level: float = 0.95, **options: Any) -> Interval:
        """Compute the exact interval of a measure.

        Args:
            name: measure of the estimate.
            level: least coverage of the interval, in (0, 1).
            options: nothing, since an exact interval needs no draws.

        Raises:
            ValueError: for a name that is not estimated, and a measure without an exact interval.
        """
        if options:
            raise TypeError(f"an exact interval takes no {next(iter(options))}=")
        known = self._readings.measures
        if name not in known:
            raise ValueError(f"{name!r} is not a measure of this estimate; measures are {first_names(list(known))}")
        return self._exact(known[name], level)

    def _exact(self, measure: AveragedMeasure, level: float) -> Interval:
        pool = replace(self._pool, level=level)
        found = pool.pool_interval(measure) if self._of == "pool" else pool.population_interval(measure)
        return replace(found, estimate=torch.full_like(found.estimate, nan)) if self._undefined(measure) else found

    def _undefined(self, measure: AveragedMeasure) -> bool:
        """Return whether a value needs a positive, but no label is one."""
        defined = measure.traits.key in (*DEFINED, *OF_ONE_CLASS * (measure.average == "binary"))
        return bool(self._method) and not self._pool.has_positives and not defined

    def _mark(self, measure: AveragedMeasure) -> str:
        """Return what the value of a measure depends on: ``"bounds"`` if labels only bound it, ``"few"``, or ``""``."""
        if not self._method:
            return ""
        on, pool = dependence(measure).on, self._pool
        classes = zip(on, (pool.negative, pool.positive), strict=True)
        partly = [uses and each.labelled < each.rows for uses, each in classes]
        false_alarms = pool.positive.labelled - pool.positive.unclear - pool.positive.positives
        if self._undefined(measure) or (partly[0] and not pool.negative.positives) or (partly[1] and not false_alarms):
            return "bounds"
        return "few" if partly[0] and pool.negative.positives < FEW else ""

    def _cell(self, row: Row) -> Cell:
        """Return a value for the table; a value that one label more would move stands behind its interval."""
        value, low, high = (float(self._rows[each]) for each in (row, *(replace(row, bound=end) for end in ENDS)))
        measure = self._readings.measures[row.measure]
        mark, interval = self._mark(measure), f"[{low:.3f}, {high:.3f}]"
        if mark == "few":
            return Cell(value, low, high, text=f"{interval} ~{value:.3f}")
        if not mark:
            return Cell(value, low, high)
        at_ends = tuple(end == most for end, most in zip((low, high), measure.traits.value_range, strict=True))
        if at_ends in ((False, True), (True, False)) and low < high:
            bound = f"at least {low:.3f}" if at_ends[1] else f"at most {high:.3f}"
            interval = f"{bound} ({50 * (1 + self._pool.level):.4g}%)"
        return Cell(nan, low, high, text=interval)

    def table(self) -> Table:
        """Return numbers of labels by predicted class, and all values with their intervals.

        Where fewer than three missed positives were found, the interval stands first. Where none was found, or no false
        alarm among alarms of which some are not labelled, the table has bounds in place of the value.
        """
        names = self._readings.class_names
        columns = ("pool", "labelled", f"{names[1]} among labels")
        blocks: dict[str, dict[str, dict[str, Any]]] = {"predicted": {}, "measure": {}}
        for name, each in zip(names, (self._pool.negative, self._pool.positive), strict=True):
            numbers = (each.rows, each.labelled, int(each.positives))
            blocks["predicted"][name] = dict(zip(columns, numbers, strict=True))
        for row in self._readings.rows:
            blocks["measure"][row.measure] = {"all": self._cell(row)}
        notes = [WHOSE[self._of].format(100 * self._pool.level), means_text(self._readings), *self._notes]
        notes += self.problems.values()
        return Table({kind: rows for kind, rows in blocks.items() if rows}, tuple(filter(None, notes)))

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write settings, labels and values to a JSON file, which :func:`imbtorch.open_result` opens.

        Args:
            path: path of the file; an older one is replaced once the new one is complete. To a pipe it is written once.
        """
        at = Snapshot(self.expected_cells)
        data = json.loads(
            text_of_file({}, self.signature, self._version, at, self._readings, self._notes, self.problems)
        )
        data |= {"format": FORMAT, "schema": SCHEMA, "expected_cells": data.pop("counts"), "estimates": {}}
        for row in self._readings.rows:
            numbers = [float(self._rows[each]) for each in (row, *(replace(row, bound=end) for end in ENDS))]
            listed: list[Any] = [number if isfinite(number) else None for number in numbers]
            entry = dict(zip(("value", *ENDS), listed, strict=True))
            data["estimates"][row.measure] = entry | {"mark": self._mark(self._readings.measures[row.measure])}
        data["pool"] = {"of": self._of, "level": self._pool.level, "method": self._method}
        data["pool"] |= {name: _listed(getattr(self._pool, name)) for name in ("negative", "positive")}
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}, ensure_ascii=False).encode())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


def _bounds_only(estimate: Estimate) -> str:
    """Name the values that the labels only bound."""
    measures = estimate._readings.measures
    some = [key for key, each in measures.items() if estimate._mark(each) == "bounds" and not estimate._undefined(each)]
    why = "since they show no missed positive, or no false alarm"
    return f"the labels bound but do not give {first_names(some)}, {why}" if some else ""


def _few_misses(estimate: Estimate) -> str:
    """Say that one missed positive more would move values far."""
    few = any(estimate._mark(each) == "few" for each in estimate._readings.measures.values())
    return "~: fewer than three missed positives were found, and one more moves the value far" * few


def _undefined_values(estimate: Estimate) -> str:
    """Say that values which need a positive are undefined."""
    undefined = any(map(estimate._undefined, estimate._readings.measures.values()))
    name = estimate._readings.class_names[1]
    return f"no label is {name!r}, so values that need one are undefined, but their bounds hold" * undefined


FINDERS: tuple[Finder, ...] = (
    ("bounds only", _bounds_only),
    ("few misses", _few_misses),
    ("undefined", _undefined_values),
)
"""Kind of each problem of an estimate, and the function of it that describes it."""


def _listed(labels: Labelled) -> list[int]:
    """Return the numbers of labels of a predicted class."""
    return [labels.rows, labels.labelled, int(labels.positives), labels.unclear]


def estimate_of(pool: LabelledPool, notes: Sequence[str], of: Of, names: Sequence[str], measures: Any) -> Estimate:
    """Return the values of a pool with their intervals."""
    check_choice("of", of, get_args(Of))
    settings = described("binary", class_names=names, measures=measures, weighted=True, per_class=())
    return _with_values(Estimate({}, pool, settings, of, tuple(notes)))


def _with_values(empty: Estimate) -> Estimate:
    """Return an estimate with the values and bounds of all its measures."""
    rows: dict[Row, Tensor] = {}
    for row in empty._readings.rows:
        interval = empty._exact(empty._readings.measures[row.measure], empty._pool.level)
        places = [row, *(replace(row, bound=end) for end in ENDS)]
        rows |= dict(zip(places, shown([interval.estimate, interval.low, interval.high]), strict=True))
    return replace(empty, _rows=dict(sorted(rows.items(), key=lambda each: each[0].bound != "")))


def opened_estimate(path: str | PathLike[str], data: Mapping[str, Any]) -> Estimate:
    """Make an estimate of the contents of a file, also of a report of 0.7 of a pool."""
    own = data["format"] == FORMAT
    form: dict[str, Any] = {"of": get_args(Of), "level": float, "negative": [int], "positive": [int]}
    form |= {"method": (METHOD, "")} if own else {}
    with checked_contents(path, data, *((FORMAT, SCHEMA) if own else (files.FORMAT, files.SCHEMA))):
        given, plain = data["pool"], result_of({**data, "counts": data["expected_cells"]} if own else data)
        if not fits(given, form) or not len(given["negative"]) == len(given["positive"]) == 4:
            raise ValueError("pool has other contents than labels of two predicted classes")
        check_level(given["level"])
        pool = LabelledPool(Labelled(*given["negative"]), Labelled(*given["positive"]), given["level"])
        more = given["of"], plain._notes, plain._version, given.get("method", "")
        return _with_values(Estimate({}, pool, plain._readings, *more))
