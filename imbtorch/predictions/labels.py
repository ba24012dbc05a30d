"""Plans of the rows of a pool to label, drawn at random within predicted classes, and the labels that come back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NamedTuple, get_args

import numpy as np

from imbtorch.columns import IGNORED, LEFT_OUT, Array, Classes, Column, Rules, read_cell, typed, without_left_out
from imbtorch.counting.arguments import whole_number
from imbtorch.predictions.label_bounds import Aim, Labelled, LabelledPool, expected_widths, plan_sizes
from imbtorch.predictions.samples import Given
from imbtorch.predictions.scores import are_above, checked_scores
from imbtorch.predictions.sources import ORDER, Arrays, floats, placed
from imbtorch.reports.files import digest_of
from imbtorch.reports.opened import checked_contents, fits, read_file
from imbtorch.suggestions import first_names
from imbtorch.tables import Table, replace_file
from imbtorch.version import __version__

PLAN, POSITION = "label_plan", "label_row"  # columns of the plan's short id, and of the position of a row in the pool
DRAWN = (ORDER, PLAN)  # columns that only labels have which a plan drew
LISTS = ("rows", "predicted", "classes", "pool")
DRAW = ("threshold", "seed", "aim", "digest")
FORMAT, SCHEMA = "imbtorch label plan", 2
TWO = "labels within predicted classes are of two classes"
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
    """Rows of a pool, or groups of equal rows: predicted class, class (0, 1 or a code below), place in the order.

    ``ids`` are the ids of rows, where they have some; ``in_order`` is whether rows stand one by one in their order.
    """

    preds: Array
    labels: Array
    order: Array
    times: Array
    names: tuple[str, str]
    ids: Array | None = None
    in_order: bool = False

    @property
    def digest(self) -> str:
        """Hash of the predicted classes in the order of rows, or of their ids; empty if this is unknown."""
        if self.ids is None:
            return hashlib.sha256(self.preds.astype(np.uint8).tobytes()).hexdigest() * self.in_order
        pairs = sorted(zip(self.ids.tolist(), self.preds.tolist(), strict=True))
        return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class LabelPlan:
    """Rows of a pool to label, drawn at random within each predicted class. :meth:`Predictions.label_plan` makes it.

    Plans nest: one of more labels of the same pool, seed and aim holds all rows of this one.

    Attributes:
        rows: positions of the rows to read, or their ids, in their order; a prefix of it may be labelled.
        predicted: predicted class of each of them, 0 or 1.
        classes: names of the negative and the positive class.
        pool: numbers of rows of the pool that are predicted negative and positive.
        threshold: score strictly above which 1 is predicted; None for predicted classes.
        seed: seed of the draw; None in plans of 0.7.
        aim: measure that the labels serve; None in plans of 0.7.
        digest: hash of the predicted classes of the pool; empty in plans of 0.7.

    >>> from imbtorch import Predictions
    >>> data = Predictions({"pred": [0] * 90 + [1] * 10}, target="label")
    >>> plan = data.label_plan("pred", labels=12)
    >>> plan.pool, sum(plan.predicted)
    ((90, 10), 4)
    """

    rows: tuple[Any, ...]
    predicted: tuple[int, ...]
    classes: tuple[str, str]
    pool: tuple[int, int]
    threshold: float | None = None
    seed: int | None = None
    aim: Aim | None = None
    digest: str = ""

    def __repr__(self) -> str:
        drawn = f"{len(self.rows)} labels of {sum(self.pool)} rows, {self.predicted.count(1)} of {self.pool[1]}"
        return f"LabelPlan({drawn} predicted as {self.classes[1]!r})"

    @property
    def id(self) -> str:
        """Short id, which each drawn row holds in the column ``label_plan``; empty for plans of 0.7."""
        if not self.digest:
            return ""
        return "p" + digest_of({name: getattr(self, name) for name in (*LISTS, *DRAW)})[:7]  # no spreadsheet's number

    @property
    def by_id(self) -> bool:
        """True if rows are known by their ids in place of positions."""
        return isinstance(self.rows[0], str)

    def check_holds(self, other: LabelPlan) -> None:
        """Raise unless all rows of another plan are those that this one drew first."""
        for name in ("seed", "aim", "threshold", "classes", "pool", "digest"):
            mine, own = getattr(self, name), getattr(other, name)
            if mine != own:
                text = "of other predictions" if name == "digest" else f"with {name} {own}, not {mine}"
                raise ValueError(
                    f"the labelled rows were drawn {text}; only a plan of the same draw holds their labels"
                )
        if not {*other.rows} <= {*self.rows}:
            raise ValueError(f"labels must be {len(other.rows)} or more to hold those given, got {len(self.rows)}")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a JSON file, for ``estimate(..., plan=path)``."""
        data: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA, "imbtorch": __version__, "id": self.id}
        data |= {name: list(getattr(self, name)) for name in LISTS} | {name: getattr(self, name) for name in DRAW}
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}).encode())

    def expected(self, precision: float, recall: float) -> Table:
        """Return how wide the intervals of F1 and recall will be, for a guess of precision and recall of the pool.

        All numbers of positives that may be found are enumerated. A second row is of a plan of twice the labels.

        Args:
            precision: guessed share of positives among the rows predicted positive, in (0, 1].
            recall: guessed share of the positives that are predicted positive, in (0, 1].

        Returns:
            Table with a row for each number of labels. It holds both values with the means of their bounds, mean
            widths, and the share of labellings in which no missed positive is found, so that the table has bounds and
            no value.

        >>> from imbtorch import Predictions
        >>> plan = Predictions({"pred": [0] * 9_900 + [1] * 100}, target="label").label_plan("pred", labels=300)
        >>> print(plan.expected(precision=0.6, recall=0.5))
        labels                    f1  width of f1                recall  width of recall  no miss found
        300     0.545 [0.282, 0.716]        0.435  0.500 [0.187, 0.901]            0.715          0.293
        600     0.545 [0.374, 0.685]        0.311  0.500 [0.277, 0.813]            0.536          0.044
        means over all labellings, if precision is 0.6 and recall 0.5
        """
        sizes = self.predicted.count(0), self.predicted.count(1)
        double = min(2 * len(self.rows), sum(self.pool))
        wanted = [sizes, plan_sizes(*self.pool, double, self.aim)] if self.aim is not None else [sizes]
        rows = {f"{sum(each):,}": expected_widths(self.pool, each, precision, recall) for each in wanted}
        return Table({"labels": rows}, (f"means over all labellings, if precision is {precision} and recall {recall}",))


FORM: dict[str, Any] = {**dict.fromkeys(("format", "imbtorch", "sha256"), str), "schema": int, "classes": [str]}
FORM |= {"rows": ([int], [str]), "predicted": [int], "pool": [int], "threshold": (float, None)}
OF_TWO = {"seed": (int, None), "aim": (*get_args(Aim), None), "digest": str, "id": str}  # fields of schema 2


def open_plan(path: Any) -> LabelPlan:
    """Open the file of a plan, also one of 0.7."""
    data = read_file(path)
    old = data.get("schema") == 1
    with checked_contents(path, data, FORMAT, 1 if old else SCHEMA):
        if not fits(data, FORM if old else FORM | OF_TWO) or len(data["classes"]) != 2 or len(data["pool"]) != 2:
            raise ValueError("a plan has rows, predicted classes, two names and two numbers of rows")
        rows, preds, pool = (data[name] for name in ("rows", "predicted", "pool"))
        sizes = [preds.count(each) for each in (0, 1)]
        if not 0 < len({*rows}) == len(preds) == sum(sizes) or not all(map(int.__le__, sizes, pool)):
            raise ValueError("each row of a plan stands once, with its predicted class, and the pool holds all")
        fields: dict[str, Any] = {name: tuple(data[name]) for name in LISTS}
        plan = LabelPlan(**fields, **{name: data[name] for name in DRAW if name in data})
        if not plan.by_id and (min(rows) < 0 or max(rows) >= sum(pool)):
            raise ValueError("rows of a plan are positions in the pool")
        if plan.id != data.get("id", ""):
            raise ValueError("the id is not that of the plan")
        return plan


def planned(read: Read, labels: int, aim: Aim, seed: int, threshold: float | None) -> LabelPlan:
    """Draw rows within each predicted class, and mix the classes.

    Each class has one random order, of which a plan takes the first rows, so a plan of more labels holds all of them.
    Their classes follow each other at random, since an investigator would learn a pattern.
    """
    pool = int((read.preds == 0).sum()), int((read.preds == 1).sum())
    sizes, seed = plan_sizes(*pool, labels, aim), whole_number("seed", seed)
    names = np.arange(len(read.preds)) if read.ids is None else read.ids
    preds = np.random.default_rng([seed, 2]).permutation(np.repeat([0, 1], sizes))
    rows = np.empty(labels, dtype=names.dtype)
    for each, size in enumerate(sizes):
        own = np.sort(names[read.preds == each])
        rows[preds == each] = np.random.default_rng([seed, each]).permutation(own)[:size]
    at = None if threshold is None else float(threshold)
    return LabelPlan(tuple(rows.tolist()), tuple(preds.tolist()), read.names, pool, at, seed, aim, read.digest)


# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Columns of a pool, and how they are read.

    Rows that a plan has drawn may name the column of their positions or ids in place of predictions.
    """

    given: Given
    rules: Rules
    threshold: float | None
    logits: bool
    plan: LabelPlan | None

    @property
    def blind(self) -> bool:
        """True if the plan alone knows the predictions."""
        return self.given.argument not in ("preds", "scores")

    @property
    def id(self) -> str | None:
        """Column of ids."""
        return self.given.preds[""] if self.given.argument == "id" else self.given.more.get("id")

    @property
    def marks(self) -> list[str]:
        """Columns of the plan in the source."""
        names = self.given.source.names
        return [] if self.plan is None or self.id is not None else [each for each in DRAWN if each in names]

    @property
    def ordered(self) -> bool:
        """True if rows have positions: those in memory and in files, unless they are only some of the pool."""
        source = self.given.source
        return self.id is None and not self.blind and (isinstance(source, Arrays) or hasattr(source, "paths"))

    @property
    def by_row(self) -> bool:
        """True if rows are read one by one in their order; groups will do for trusted labels, and those of 0.7."""
        whole = not self.given.target or (self.plan is not None and (not self.marks or bool(self.plan.id)))
        return self.ordered and (whole or self.threshold is not None)

    def check(self) -> None:
        """Raise for a source whose rows cannot be joined to a plan."""
        plan, marks = self.plan, self.marks
        if self.given.target and plan is None:
            return
        if plan is not None and plan.by_id != (self.id is not None):
            raise ValueError(
                "the plan has ids; name their column by id=" if plan.by_id else "the plan has no ids for id="
            )
        if self.id is None and not (self.ordered or self.blind or ORDER in marks):
            raise ValueError("rows of this source have no order; name a column that tells them apart by id=")
        if plan is not None and plan.id and PLAN not in marks and (ORDER in marks or self.given.argument == POSITION):
            raise ValueError(f"the source lacks the column {PLAN!r} of the plan's id; take the file that it came with")

    def read(self, unclear: Any) -> Read:
        """Read predicted classes, and labels with their order where there are any, as all reports read them.

        Args:
            unclear: value or list of values of labels that nobody can decide.
        """
        self.check()
        source, target, pred = self.given.source, self.given.target.get(""), self.given.preds[""]
        labels = list(dict.fromkeys(filter(None, [target, *self.marks, self.id])))
        keys = list(dict.fromkeys([*labels, *[pred] * (self.threshold is None)]))
        found = source.counted(keys) if keys else ({}, {})
        classes = self._typed(found[0], unclear)
        batches: Iterable[Any] = [found]
        if self.by_row or self.threshold is not None:
            batches = source.batches(keys, []) if self.threshold is None else source.batches(labels, [pred])
        parts, start = list[tuple[Array, ...]](), 0
        for columns, arrays in batches:
            parts.append(self._part(columns, arrays, classes, start))
            start += len(parts[-1][0])
        if not parts:
            raise ValueError("there are no rows, so there is nothing to label")
        preds, known, order, times, ids = (np.concatenate(some) for some in zip(*parts, strict=True))
        if self.id is not None and (len({*ids.tolist()}) < len(ids) or (times != 1).any()):
            raise ValueError(f"{source.call(self.id)} holds an id twice; name a column that tells rows apart by id=")
        if self.plan is not None and self.ordered and not self.marks:
            _place_all(order, self.plan)
        names = classes.names[0], classes.names[1]
        return Read(preds, known, order, times, names, None if self.id is None else ids, self.by_row)

    def _typed(self, columns: Mapping[str, Column], unclear: Any) -> Classes:
        """Decide the two classes; raise for rows of another plan."""
        predicted = columns.get(self.given.preds[""]) if self.threshold is None else None
        if self.blind and self.plan is not None:
            predicted = Column("the plan", list(self.plan.classes), np.arange(2))
        if self.plan is not None and PLAN in self.marks:
            _check_id(columns[PLAN], self.plan)
        rules = replace(self.rules, ignore=unclear, ignored_by="unclear")
        return _classes(predicted, columns.get(self.given.target.get("", "")), rules, self.plan)

    def _part(
        self, columns: Mapping[str, Column], arrays: Mapping[str, Array], classes: Classes, start: int
    ) -> tuple[Array, ...]:
        """Return predicted classes, labels, places, numbers and ids of some rows."""
        target, order = self.given.target.get(""), self._order(columns)
        preds = self._predicted(columns, arrays, classes, order, start)
        known = np.full(len(preds), LEFT_OUT)
        if target is not None:
            known = classes.table(columns[target], True)[columns[target].codes]
        times = next((each.times for each in columns.values() if each.times is not None), np.ones(len(preds)))
        ids = np.zeros(0) if self.id is None else _ids(columns[self.id])
        return preds, known, np.zeros(len(preds), np.int64) if order is None else order, times, ids

    def _order(self, columns: Mapping[str, Column]) -> Array | None:
        """Return the places of rows in the order of the plan, 0 outside of it; None if no column tells them."""
        if self.plan is None or (self.id is None and not self.blind):
            return _places(columns[ORDER]) if ORDER in self.marks else None
        column = columns[self.given.preds[""] if self.id is None else self.id]
        places = {str(row): at for at, row in enumerate(self.plan.rows, 1)}
        order = np.array([places.get(each, 0) for each in _ids(column)], dtype=np.int64)
        if self.blind and not order.all():
            where = column.where([int(column.codes[int(order.argmin())])])
            raise ValueError(f"{column.name} holds a row that the plan has not drawn{where}; take the file of its rows")
        return order

    def _predicted(
        self,
        columns: Mapping[str, Column],
        arrays: Mapping[str, Array],
        classes: Classes,
        order: Array | None,
        start: int,
    ) -> Array:
        """Return the predicted class of each row, 0 or 1."""
        source, pred = self.given.source, self.given.preds[""]
        if self.blind and self.plan is not None and order is not None:
            found: Array = np.array(self.plan.predicted)[order - 1]
            return found
        if self.threshold is None:
            return classes.table(columns[pred], False)[columns[pred].codes]
        scores = floats(self.given.argument, arrays[pred], start)
        kept = np.ones(len(scores), dtype=bool)
        scores, _ = checked_scores(scores, kept, self.given.argument, start, logits=self.logits)
        return are_above(scores, placed(self.threshold, [source.type_of(pred)], self.logits), self.logits).astype(
            np.int64
        )


def _ids(column: Column) -> Array:
    """Return the ids of rows as texts; 7.0, as frames write it beside missing values, is 7."""
    missing = [at for at in column.held if column.cells[at].kind == "missing"]
    if missing:
        raise ValueError(f"{column.name} has no value{column.where(missing)}; each row needs its id")
    return np.array([re.sub(r"^([+-]?\d+)\.0+$", r"\1", str(each).strip()) for each in column.levels])[column.codes]


def _is_other(read: Read, plan: LabelPlan) -> bool:
    """Return whether rows of a whole pool are predicted otherwise than when the plan was drawn, as far as is known."""
    if read.ids is None and not read.in_order:
        return False
    if read.ids is None and read.order[list(plan.rows)].tolist() != list(range(1, len(plan.rows) + 1)):
        return False  # somebody sorted the rows, which hold their places
    return plan.digest not in ("", read.digest)


def _place_all(order: Array, plan: LabelPlan) -> None:
    """Write the place of each row of a whole pool in the order of a plan, which knows its position."""
    if len(order) != sum(plan.pool):
        raise ValueError(
            f"the plan was drawn from {sum(plan.pool):,} rows, but there are {len(order):,}; take all of these in "
            f"their order, or rows with the columns {first_names(DRAWN)} that 'imbtorch label' writes"
        )
    order[list(plan.rows)] = range(1, len(plan.rows) + 1)


def _check_id(column: Column, plan: LabelPlan) -> None:
    """Raise for rows that another plan has drawn."""
    found = {str(column.levels[at]).strip(): at for at in column.held if column.cells[at].kind != "missing"}
    other = [at for name, at in found.items() if name != plan.id]
    if other or not found:
        got = repr(column.levels[other[0]]) + column.where(other[:1]) if other else "none"
        raise ValueError(f"rows come from another plan: {PLAN} is {got}, not {plan.id!r}; take the plan of this file")


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


# --- labels ----------------------------------------------------------------------------------------------------------


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
        by_name = {str(name): whole_number(f"plan[{name!r}]", number) for name, number in numbers.items()}
        if by_name.keys() != {*read.names}:
            raise ValueError(f"plan must hold the number of rows predicted as {read.names[0]!r} and {read.names[1]!r}")
        sizes, seen = [by_name[name] for name in read.names], sizes
        for name, size, rows in zip(read.names, sizes, seen, strict=True):
            if size < rows:
                raise ValueError(f"plan holds {size:,} rows predicted as {name!r}, but the source has {rows:,} of them")
        share = f"{100 * sizes[1] / max(sum(sizes), 1):.3g}%"
        notes.append(f"these {sum(sizes):,} rows imply that {share} are predicted as {read.names[1]!r} (alert rate)")
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
        most = int(missed.positive_bounds((1 - level) / 4)[1])
        notes.append(f"no missed positive among {missed.labelled:,} labels; up to {most:,} of {missed.rows:,} may be")
    return LabelledPool(found[0], found[1], level), notes


def _check_plan(read: Read, plan: LabelPlan, sizes: Sequence[int]) -> None:
    """Raise for a pool that is not that of the plan, and labels that are no prefix of its order."""
    inside = read.order > 0
    order, preds = read.order[inside], read.preds[inside]
    if (read.times[inside] != 1).any() or len({*order.tolist()}) < len(order):
        raise ValueError("a row of the plan stands twice; take the file that the plan came with")
    if sorted(order.tolist()) != list(range(1, len(plan.rows) + 1)):
        raise ValueError(
            f"the source must hold all rows of the plan, {ORDER} 1 to {len(plan.rows)}, got {len(order)} of them"
        )
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
    if sum(sizes) > len(order) and _is_other(read, plan):
        raise ValueError(
            "the rows are not predicted as those that the plan was drawn from, in their order; take that pool, or draw "
            "a plan for this one"
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
