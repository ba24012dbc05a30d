"""Pools of which some rows are labelled: plans that say which, and results with exact intervals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch

from imbtorch.columns import IGNORED, LEFT_OUT, Array, Classes, Column, Rules, read_cell, typed, without_left_out
from imbtorch.counting.arguments import whole_number
from imbtorch.counts import check_choice
from imbtorch.intervals.intervals import Interval
from imbtorch.measures.named import AveragedMeasure
from imbtorch.predictions.label_bounds import Aim, Labelled, LabelledPool, plan_sizes
from imbtorch.predictions.samples import Given
from imbtorch.predictions.scores import are_above, checked_scores
from imbtorch.predictions.sources import ORDER, Arrays, floats, placed
from imbtorch.reports.description import described, result_of_counts
from imbtorch.reports.files import digest_of
from imbtorch.reports.opened import checked_contents, fits, read_file
from imbtorch.reports.readings import ENDS
from imbtorch.reports.result import ReportResult, means_text
from imbtorch.suggestions import first_names
from imbtorch.tables import Table, replace_file
from imbtorch.version import __version__

Of: TypeAlias = Literal["pool", "population"]
LISTS = ("rows", "predicted", "classes", "pool")
FORMAT, SCHEMA = "imbtorch label plan", 1
TWO = "labels within predicted classes are of two classes"
WHOSE: dict[str, str] = {
    "pool": "of the pool (exact: holds in {:.4g}% or more of all labellings of any pool)",
    "population": "of the population (new rows of the same source; exact in {:.4g}% or more of all pools if rows are "
    "independent)",
}
TRUST = (
    "on trust: drawn at random within the classes that this model and threshold predict; not complaints, not labels "
    "drawn for another model or used for the threshold"
)
UNFIT: dict[str, str] = {
    "cluster": "its intervals hold for rows drawn one by one, also if patients repeat, but not if whole patients, days "
    "or files were labelled",
    "group": "report the pool of each group alone",
    "weight": "each row counts once",
    "frequency": "each row counts once",
}


class Read(NamedTuple):
    """Rows of a pool, or groups of equal rows: predicted class, class (0, 1 or a code below), place in the order."""

    preds: Array
    labels: Array
    order: Array
    times: Array
    names: tuple[str, str]


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Rows of a pool to label, drawn at random within each predicted class. :meth:`Predictions.label_plan` makes it.

    Attributes:
        rows: positions of the rows to read, in their order; a prefix of it may be labelled.
        predicted: predicted class of each of them, 0 or 1.
        classes: names of the negative and the positive class.
        pool: numbers of rows of the pool that are predicted negative and positive.
        threshold: score strictly above which 1 is predicted; None for predicted classes.

    >>> from imbtorch import Predictions
    >>> data = Predictions({"pred": [0] * 90 + [1] * 10}, target="label")
    >>> plan = data.label_plan("pred", labels=12)
    >>> plan.pool, sum(plan.predicted)
    ((90, 10), 4)
    """

    rows: tuple[int, ...]
    predicted: tuple[int, ...]
    classes: tuple[str, str]
    pool: tuple[int, int]
    threshold: float | None = None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a JSON file, for ``estimate(..., plan=path)``."""
        data: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA, "imbtorch": __version__}
        data |= {name: list(getattr(self, name)) for name in LISTS}
        data["threshold"] = self.threshold
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}).encode())


FORM: dict[str, Any] = {**dict.fromkeys(("format", "imbtorch", "sha256"), str), "schema": int, "classes": [str]}
FORM |= {"rows": [int], "predicted": [int], "pool": [int], "threshold": (float, None)}


def open_plan(path: Any) -> LabelPlan:
    """Open the file of a plan."""
    data = read_file(path)
    with checked_contents(path, data, FORMAT, SCHEMA):
        if not fits(data, FORM) or len(data["classes"]) != 2 or len(data["pool"]) != 2:
            raise ValueError("a plan has rows, predicted classes, two names and two numbers of rows")
        rows, preds, pool = (data[name] for name in ("rows", "predicted", "pool"))
        sizes = [preds.count(each) for each in (0, 1)]
        if len({*rows}) != len(preds) or sum(sizes) != len(preds) or not all(map(int.__le__, sizes, pool)):
            raise ValueError("each row of a plan stands once, with its predicted class, and the pool holds all")
        if min(rows, default=0) < 0 or max(rows, default=0) >= sum(pool):
            raise ValueError("rows of a plan are positions in the pool")
        return LabelPlan(**{name: tuple(data[name]) for name in LISTS}, threshold=data["threshold"])


def planned(read: Read, labels: int, aim: Aim, seed: int, threshold: float | None) -> LabelPlan:
    """Draw rows within each predicted class, in an order that mixes them in proportion."""
    places = [np.flatnonzero(read.preds == each) for each in (0, 1)]
    sizes = plan_sizes(len(places[0]), len(places[1]), labels, aim)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(some, size, replace=False) for some, size in zip(places, sizes, strict=True)])
    when = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    order = rows[np.argsort(when, kind="stable")]
    pool = len(places[0]), len(places[1])
    return LabelPlan(tuple(order.tolist()), tuple(read.preds[order].tolist()), read.names, pool, threshold)


# --- rows ------------------------------------------------------------------------------------------------------------


def read_pool(
    given: Given, rules: Rules, threshold: float | None, logits: bool, unclear: Any, plan: LabelPlan | None
) -> Read:
    """Read predicted classes, and labels with their order where there are any, as all reports read them.

    Args:
        given: columns of the pool; without a target only the predictions are read.
        rules: rules for the classes.
        threshold: score strictly above which 1 is predicted; None for classes.
        logits: whether scores are logits.
        unclear: value or list of values of labels that nobody can decide.
        plan: plan that gives the names of the classes, and the order of rows in memory.
    """
    source, target = given.source, given.target.get("")
    pred = given.preds[""]
    if isinstance(source, Arrays) and ORDER not in source.names and plan is not None:
        source.columns[ORDER] = _order_of(plan, len(source.array(pred)))
    labels = [] if target is None else [target, *[ORDER] * (ORDER in source.names)]
    keys = [*labels, *[pred] * (threshold is None)]
    found = source.counted(keys) if keys else ({}, {})
    rules = replace(rules, ignore=unclear, ignored_by="unclear")
    own = None if target is None else found[0][target]
    classes = _classes(None if threshold is not None else found[0][pred], own, rules, plan)
    parts, start = list[tuple[Array, ...]](), 0
    batches: Iterable[Any] = [found]  # groups, unless a plan needs the position of each row
    if threshold is not None or target is None:
        batches = source.batches(labels, [pred]) if threshold is not None else source.batches([pred], [])
    for columns, arrays in batches:
        if threshold is None:
            preds = classes.table(columns[pred], False)[columns[pred].codes]
        else:
            scores = floats(given.argument, arrays[pred], start)
            kept = np.ones(len(scores), dtype=bool)
            scores, _ = checked_scores(scores, kept, given.argument, start, logits=logits)
            preds = are_above(scores, placed(threshold, [source.type_of(pred)]), logits).astype(np.int64)
        known = np.full(len(preds), LEFT_OUT)
        if target is not None:
            known = classes.table(columns[target], True)[columns[target].codes]
        order = _places(columns[ORDER]) if ORDER in labels else np.zeros(len(preds), dtype=np.int64)
        times = next((each.times for each in columns.values() if each.times is not None), np.ones(len(preds)))
        parts.append((preds, known, order, times))
        start += len(preds)
    if not parts:
        raise ValueError("there are no rows, so there is nothing to label")
    preds, known, order, times = (np.concatenate(some) for some in zip(*parts, strict=True))
    return Read(preds, known, order, times, (classes.names[0], classes.names[1]))


def _order_of(plan: LabelPlan, rows: int) -> Array:
    """Return the place of each row in memory in the order of a plan, or None."""
    found = np.full(rows, None)
    if max(plan.rows, default=-1) >= rows:
        raise ValueError(f"the plan holds row {max(plan.rows)}, but there are {rows}; take those it was drawn from")
    found[list(plan.rows)] = range(1, len(plan.rows) + 1)
    return found


def _meant_by_scores(labels: list[Column], rules: Rules) -> tuple[Column, Rules]:
    """Return a column of the two classes that scores are of, named by class_names, or by positive and the labels."""
    if rules.names is not None:
        if labels and labels[0].held:
            return labels.pop(), rules
        return Column("scores", rules.names, np.arange(len(rules.names))), rules
    positive = 1 if rules.positive is None else read_cell(rules.positive).value
    other: Any = 0 if positive == 1 else f"not {positive}"
    for column in labels:  # one at most, of which the most frequent class is meant
        held = [at for at in column.held if column.cells[at].value != positive]
        sizes = np.bincount(column.codes, column.times)
        other = column.cells[max(held, key=sizes.__getitem__)].value if held else other
    column = Column("scores", [other, positive], np.arange(2))
    return column, replace(rules, class_names=[other, positive], positive=positive)


def _classes(preds: Column | None, target: Column | None, rules: Rules, plan: LabelPlan | None) -> Classes:
    """Decide the two classes: by the predicted ones, or of scores by names, labels and the positive class."""
    scored, labels = preds is None, [] if target is None else [target]
    labels = without_left_out(labels, replace(rules, missing="drop")) if labels else []
    if plan is not None:
        rules = replace(rules, positive=plan.classes[1] if rules.positive is None else rules.positive)
        rules = replace(rules, class_names=plan.classes) if preds is not None and rules.names is None else rules
    elif rules.names is not None and rules.positive is None:
        rules = replace(rules, positive=rules.names[-1])
    if preds is None:
        preds, rules = _meant_by_scores(labels, rules)
    missing = [at for at in preds.held if preds.cells[at].kind == "missing" and rules.word(preds.levels[at]) is None]
    if missing:
        raise ValueError(f"{preds.name} has no value{preds.where(missing)}; predict a class for each row of a pool")
    classes = typed(preds, labels, replace(rules, ignore=None))
    if not classes.binary:
        raise ValueError(f"{TWO}, one of which is positive; name it by positive=, of {first_names(classes.names)}")
    if plan is not None and classes.names[scored:] != plan.classes[scored:]:
        planned = first_names(plan.classes)
        raise ValueError(f"classes are {first_names(classes.names)}, but in the plan {planned}; draw a plan for these")
    return replace(classes, rules=rules)


def _places(column: Column) -> Array:
    """Return the places of rows in the order; 0 for rows outside of it."""
    found = np.zeros(len(column.levels), dtype=np.int64)
    for at in column.held:
        cell = column.cells[at]
        if cell.kind not in ("whole", "missing") or (cell.kind == "whole" and cell.value < 1):
            raise ValueError(f"{ORDER} holds {column.levels[at]!r}{column.where([at])}, which is no place in an order")
        found[at] = cell.value or 0
    return found[column.codes]


# --- results ---------------------------------------------------------------------------------------------------------


def pool_of(
    read: Read, plan: LabelPlan | None, numbers: Mapping[Any, int] | None, level: float
) -> tuple[LabelledPool, list[str]]:
    """Return the labels of each predicted class, and what a reader must know of them.

    Raises:
        ValueError: for labels that are not those of the plan.
    """
    sizes, notes = [int(read.times[read.preds == each].sum()) for each in (0, 1)], [TRUST]
    if plan is not None:
        _check_plan(read, plan, sizes)
        sizes, notes = list(plan.pool), []
    elif numbers is not None:
        by_name = {str(name): whole_number("plan", number) for name, number in numbers.items()}
        if by_name.keys() != {*read.names}:
            raise ValueError(f"plan must hold the number of rows predicted as {read.names[0]!r} and {read.names[1]!r}")
        sizes, seen = [by_name[name] for name in read.names], sizes
        for name, size, rows in zip(read.names, sizes, seen, strict=True):
            if size < rows:
                raise ValueError(f"plan holds {size:,} rows predicted as {name!r}, but the source has {rows:,} of them")
    found = []
    for each, name in enumerate(read.names):
        own = read.preds == each
        kinds = read.labels >= 0, read.labels == 1, read.labels == IGNORED
        clear, positive, unclear = (int(read.times[own & kind].sum()) for kind in kinds)
        if not sizes[each] or not clear:
            what = "no row is predicted" if not sizes[each] else "no clear label is of a row predicted"
            raise ValueError(f"{what} as {name!r}, so the positives among such rows are unknown; label some of both")
        found.append(Labelled(sizes[each], clear + unclear, positive, unclear))
        notes += [f"nobody could decide {unclear} rows predicted as {name!r}; bounds take either"] * (unclear > 0)
    missed = found[0]
    if not missed.positives and missed.labelled < missed.rows:
        most = int(missed.positive_bounds(0.0125)[1])
        notes.append(f"no missed positive among {missed.labelled:,} labels; up to {most:,} of {missed.rows:,} may be")
    return LabelledPool(found[0], found[1], level), notes


def _check_plan(read: Read, plan: LabelPlan, sizes: Sequence[int]) -> None:
    """Raise for a pool that is not that of the plan, and labels that are no prefix of its order."""
    inside = read.order > 0
    order, preds = read.order[inside], read.preds[inside]
    if (read.times[inside] != 1).any() or len({*order.tolist()}) < len(order):
        raise ValueError(f"{ORDER} holds a place twice; take the file that the plan came with")
    if sorted(order.tolist()) != list(range(1, len(plan.rows) + 1)):
        raise ValueError(f"{ORDER} must hold the places 1 to {len(plan.rows)} of the plan, got {len(order)} places")
    expected = np.array(plan.predicted)[order - 1]
    if (expected != preds).any():
        first = int(order[(expected != preds)].min())
        raise ValueError(
            f"the row with {ORDER} {first} is predicted otherwise than in the plan; draw a plan for this model"
        )
    if sum(sizes) > len(order) and tuple(sizes) != plan.pool:
        raise ValueError(
            f"predicted are {sizes[0]:,} and {sizes[1]:,} rows, but in the plan {plan.pool}; draw a new plan"
        )
    if (read.labels[~inside] != LEFT_OUT).any():
        raise ValueError(f"a row without {ORDER} has a label; labels that were not drawn by the plan bias the values")
    labelled = np.zeros(len(plan.rows) + 1, dtype=bool)
    labelled[order] = read.labels[inside] != LEFT_OUT
    for each, name in enumerate(plan.classes):
        own = labelled[1:][np.array(plan.predicted) == each]
        if own.any() and not own[: own.sum()].all():
            places = np.flatnonzero(np.array(plan.predicted) == each) + 1
            first = int(places[np.flatnonzero(~own)[0]])
            raise ValueError(
                f"the row with {ORDER} {first} has no label, but a later row predicted as {name!r} has one; label it, "
                "or mark it with unclear= if nobody can decide"
            )


@dataclass(frozen=True, eq=False, repr=False)
class LabelledResult(ReportResult):
    """Result of a report of a pool, of which rows are labelled at random within the predicted classes.

    Values are those that the pool has if the rows of each predicted class have the share of positives of its labels.
    """

    _pool: Any = None
    _of: Of = "pool"

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
            name: measure of the report.
            level: least coverage of the interval, in (0, 1).
            options: nothing, since an exact interval needs no draws.

        Raises:
            ValueError: for a name that is not reported, and a measure without an exact interval.
        """
        if options:
            raise TypeError(f"an exact interval takes no {next(iter(options))}=")
        known = self._settings.measures
        if name not in known:
            raise ValueError(f"{name!r} is not a measure of this report; measures are {first_names(list(known))}")
        return self._exact(known[name], level)

    def _exact(self, measure: AveragedMeasure, level: float) -> Interval:
        pool: LabelledPool = replace(self._pool, level=level)
        return pool.pool_interval(measure) if self._of == "pool" else pool.population_interval(measure)

    def _whole_table(self) -> Table:
        whole = super()._whole_table()
        blocks = dict(whole.blocks)
        columns = ("pool", "labelled", f"{self._settings.class_names[1]} among labels")
        for name, each in zip(self._settings.class_names, (self._pool.negative, self._pool.positive), strict=True):
            numbers = dict(zip(columns, (each.rows, each.labelled, int(each.positives)), strict=True))
            blocks["class"] = {**blocks["class"], name: numbers}
        blocks = {"predicted": blocks.pop("class"), **blocks}
        notes = (
            WHOSE[self._of].format(100 * self._pool.level),
            *filter(None, [means_text(self._settings)]),
            *self._notes,
        )
        return replace(whole, blocks=blocks, notes=notes)

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write settings, labels and values to a JSON file, which :func:`imbtorch.open_result` opens."""
        super().to_json(path)
        data = read_file(path)
        data["pool"] = {"of": self._of, "level": self._pool.level}
        data["pool"] |= {name: _listed(getattr(self._pool, name)) for name in ("negative", "positive")}
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}, ensure_ascii=False).encode())


def _listed(labels: Labelled) -> list[int]:
    """Return the numbers of labels of a predicted class."""
    return [labels.rows, labels.labelled, int(labels.positives), labels.unclear]


def result_of_pool(
    pool: LabelledPool, notes: Sequence[str], of: Of, names: Sequence[str], measures: Any
) -> LabelledResult:
    """Return the values of a pool with their intervals."""
    check_choice("of", of, get_args(Of))
    readings = described("binary", class_names=names, measures=measures, weighted=True, per_class=())
    (rest, hits), sizes = (each.expected.item() for each in (pool.negative, pool.positive)), pool.negative.rows
    counts = torch.tensor([[sizes - rest, pool.positive.rows - hits], [rest, hits]], dtype=torch.float64)
    return with_pool(result_of_counts(readings, counts), pool, of, notes)


def with_pool(plain: ReportResult, pool: LabelledPool, of: Of, notes: Sequence[str]) -> LabelledResult:
    """Return a result with the exact intervals of a pool."""
    rows = {row: value for row, value in plain.rows.items() if not row.bound}
    result = LabelledResult(rows, plain._at, plain._settings, plain._version, tuple(notes), (), pool, of)
    for row in list(rows):
        if row.kind == "overall":
            interval = result._exact(plain._settings.measures[row.measure], pool.level)
            rows |= {replace(row, bound=end): getattr(interval, end).to(rows[row].dtype) for end in ENDS}
    return replace(result, _rows=rows)


def opened_pool(result: ReportResult, data: Mapping[str, Any]) -> LabelledResult:
    """Make a result of a pool of the contents of a file."""
    form = {"of": get_args(Of), "level": float, "negative": [int], "positive": [int]}
    if not fits(data, form) or not len(data["negative"]) == len(data["positive"]) == 4 or not 0 < data["level"] < 1:
        raise ValueError("pool has other contents than labels of two predicted classes")
    pool = LabelledPool(Labelled(*data["negative"]), Labelled(*data["positive"]), data["level"])
    return with_pool(result, pool, data["of"], result._notes)
