"""Every door of saved predictions (`saved.py` and the command) x every source x plain, bad and odd inputs.

A cell, which is one input in one source at one door, gives what NumPy counts in the plain rows, or an error of the
class that ``INPUTS`` names, whose text names the argument, the row and the remedy. Sources without an order of rows
need not name one. All doors meet the plain rows in all sources. Since one reader serves them, reports meet another
input in all sources that it lists, and other doors in those that ``DOORS`` names. ``EXEMPT`` says what is left out.
"""

import contextlib
import csv
import functools
import gzip
import importlib
import io
import itertools
import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rooms import command_line

import imbtorch
from imbtorch import Predictions

duckdb = pytest.importorskip("duckdb", reason="needs imbtorch[files]")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
parquet = importlib.import_module("pyarrow.parquet")

# --- rows -------------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(83)
SIZE, ROW = 40, 7  # number of rows, and the row in which most inputs differ
Y = (RNG.random(SIZE) < 0.35).astype(int)
Y[[ROW, ROW + 1]] = 1
PRED, NEW = (np.where(RNG.random(SIZE) < share, 1 - Y, Y) for share in (0.3, 0.1))
PRED[[ROW, ROW + 1]] = 1
SCORE, OTHER = (np.clip(0.1 + 0.35 * Y + 0.5 * RNG.random(SIZE), 0, 1).round(2) for _ in range(2))
SCORE[ROW] = 0.81
P_0 = (1 - SCORE).round(2)
PART = [int(y) if at % 2 else None for at, y in enumerate(Y)]  # labels of half of the rows
ROWS = {
    "truth": Y.tolist(),
    "pred": PRED.tolist(),
    "new": NEW.tolist(),
    "score": SCORE.tolist(),
    "other": OTHER.tolist(),
    "p_0": P_0.tolist(),
    "p_1": SCORE.tolist(),
    "part": PART,
    "id": list(range(100, 100 + SIZE)),
    "site": [("north", "south", "west")[at % 3] for at in range(SIZE)],
    "patient": [at // 2 for at in range(SIZE)],
    "w": [0.5 + at % 4 for at in range(SIZE)],
    "n": [1 + at % 3 for at in range(SIZE)],
    "x": [f"text {at}" for at in range(SIZE)],
}
CLASSES = ("truth", "pred", "new", "part")
PROBABILITIES = ("score", "p_1", "other")


def put(value, *names, row=ROW):
    """Return columns with one other value."""
    return {name: [value if at == row else each for at, each in enumerate(ROWS[name])] for name in names}


def each(function, *names):
    """Return columns with other values; missing ones stay."""
    return {name: [None if value is None else function(value) for value in ROWS[name]] for name in names}


def put_score(value):
    """Return columns of scores with one other value, and one that fits it for class 0."""
    return put(value, "score", "p_1") | put(1 - value if isinstance(value, float) else value, "p_0")


# --- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """Columns with how they are to be written."""

    columns: dict[str, list[Any]]
    types: dict[str, str] = field(default_factory=dict)  # column -> narrow type
    dictionary: tuple[str, ...] = ()  # categorical columns
    twice: str = ""  # column that is written a second time
    head: bool = True
    separator: str = ","
    encoding: str = "utf-8"

    def arrow(self, dictionary=()):
        """Return a PyArrow table."""
        arrays, names = [], []
        for name, values in self.columns.items():
            kind = self.types.get(name)
            array = pyarrow.array(values, kind or (None if values else pyarrow.array(ROWS[name]).type))
            arrays.append(array.dictionary_encode() if name in (*self.dictionary, *dictionary) else array)
            names.append(str(name))
        if self.twice:
            arrays, names = [*arrays, arrays[names.index(self.twice)]], [*names, self.twice]
        return pyarrow.table(arrays, names=names)

    def cells(self, part=slice(None)):
        """Return the lines of a text file, and its head."""
        names = [*self.columns, *([self.twice] if self.twice else [])]
        lines = zip(
            *(["" if cell is None else cell for cell in self.columns[name][part]] for name in names), strict=True
        )
        return [*([names] if self.head else []), *lines]


def in_memory(sheet, convert):
    return None, {name: convert(sheet, name, values) for name, values in sheet.columns.items()}


def as_numpy(sheet, name, values):
    whole = None in values and not any(isinstance(value, float) for value in values)
    return np.array(values, dtype=object if whole else sheet.types.get(name))


def as_torch(sheet, name, values):
    if any(isinstance(value, str | date) for value in values):
        return None  # no tensor holds them
    filled = [math.nan if value is None else value for value in values]
    return torch.tensor(filled, dtype=getattr(torch, sheet.types.get(name, ""), None))


def of_pandas(sheet):
    columns = {}
    for name, values in sheet.columns.items():
        columns[name] = pd.Series(values, dtype=sheet.types.get(name))
        if name in sheet.dictionary:
            columns[name] = columns[name].astype("category")
        elif any(isinstance(value, date) for value in values):
            columns[name] = pd.to_datetime(columns[name])
    frame = pd.DataFrame(columns)
    return pd.concat([frame, frame[[sheet.twice]]], axis=1) if sheet.twice else frame


def of_arrow_types(sheet):
    numbers = [name for name in sheet.columns if not isinstance(name, str)]
    frame = sheet.arrow().to_pandas(types_mapper=pd.ArrowDtype)
    return frame.rename(columns={str(name): name for name in numbers})


def write_csv(sheet, path, compressed=False, part=slice(None)):
    opened = gzip.open if compressed else open
    with opened(path, "wt", newline="", encoding=sheet.encoding) as file:
        csv.writer(file, delimiter=sheet.separator).writerows(sheet.cells(part))
    return str(path)


def write_folder(sheet, folder):
    for name, part in (("a.csv", slice(SIZE // 2)), ("b.csv", slice(SIZE // 2, None))):
        write_csv(sheet, folder / name, part=part)
    return str(folder)


def write_parquet(sheet, path):
    parquet.write_table(sheet.arrow(), path)
    return str(path)


def write_lines(sheet, path):
    rows = [dict(zip(sheet.columns, values, strict=True)) for values in zip(*sheet.columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
    return str(path)


CONNECTION = duckdb.connect()
SOURCES: dict[str, Callable[[Sheet, Path], Any]] = {  # -> source, or None with the values
    "lists": lambda sheet, _: in_memory(sheet, lambda _, __, values: values),
    "NumPy": lambda sheet, _: in_memory(sheet, as_numpy),
    "torch": lambda sheet, _: in_memory(sheet, as_torch),
    "mapping": lambda sheet, _: dict(sheet.columns),
    "pandas": lambda sheet, _: of_pandas(sheet),
    "pandas, Arrow types": lambda sheet, _: of_arrow_types(sheet),
    "Polars": lambda sheet, _: polars.from_arrow(sheet.arrow()),
    "Polars, lazy": lambda sheet, _: polars.from_arrow(sheet.arrow()).lazy(),
    "PyArrow": lambda sheet, _: sheet.arrow((*CLASSES, "site", "patient")),
    "DuckDB": lambda sheet, _: CONNECTION.from_arrow(sheet.arrow()),
    "CSV": lambda sheet, folder: write_csv(sheet, folder / "rows.csv"),
    "CSV, gz": lambda sheet, folder: write_csv(sheet, folder / "rows.csv.gz", True),
    "Parquet": lambda sheet, folder: write_parquet(sheet, folder / "rows.parquet"),
    "JSON lines": lambda sheet, folder: write_lines(sheet, folder / "rows.jsonl"),
    "folder": lambda sheet, folder: write_folder(sheet, folder),
}
VALUES = ("lists", "NumPy", "torch")  # arguments hold them
EVERY = tuple(SOURCES)
FIVE = ("lists", "pandas", "Polars, lazy", "DuckDB", "CSV")
THREE = ("pandas", "Polars, lazy", "CSV")
TEXTS = ("CSV", "CSV, gz", "folder")
WITHOUT_ORDER = ("Polars, lazy", "DuckDB")  # they need not name a row

# --- doors ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One input in one source."""

    input: "Input"
    source: Any
    values: dict[str, Any] | None  # values that the arguments hold
    partner: Any = None  # source of the old model, with plain rows

    def column(self, role, default):
        """Return the name of the column of an argument, or its values."""
        name = self.input.roles.get(role, default)
        if isinstance(name, dict):
            return {label: self.take(each) for label, each in name.items()}
        return self.take(name)

    def take(self, name):
        name = self.input.names.get(name, name)
        return name if self.values is None else self.values[name]

    def data(self, target="truth", source=None):
        """Return the predictions, with the roles and options of the input."""
        given = {role: self.take(name) for role, name in self.input.roles.items() if role in MORE}
        source = self.source if source is None else source
        return Predictions(source, target=self.column("target", target), **given, **self.input.options)

    def scoring(self, *names):
        """Return the arguments of scores that a door takes."""
        return {name: value for name, value in self.input.scoring.items() if name in names}


MORE = ("group", "cluster", "weight", "frequency")
BY_CLASS = {"0": "p_0", "1": "p_1"}


def rows_of_pool(case, given):
    """Return how many plain rows are predicted as each class, by its name in the input."""
    right = Truth(case.input)
    preds = right.pred if given is classes_of else right.flagged
    return dict(zip(case.input.classes, np.bincount(preds).tolist(), strict=True))


def numbers_of(result):
    """Return counts of a report, and the accuracy of each group, sorted."""
    groups = [float(value) for name, value in result.values.items() if name.startswith("accuracy/")]
    return [*result.counts.double().flatten().tolist(), *sorted(groups)]


def at_threshold(case):
    return {"threshold": 0.5} | case.scoring("threshold", "logits")


def classes_of(case):
    """Return the arguments of predicted classes."""
    return {"preds": case.column("preds", "pred"), **case.input.scoring}


def scores_of(case):
    return {"scores": case.column("scores", "score"), **at_threshold(case)}


def new_of(case, given):
    """Return the column of the new model."""
    return case.column("new", "new") if given is classes_of else case.column("other", "other")


def report(case, given):
    return numbers_of(case.data().report(**given(case)))


def thresholds(case):
    point = case.data().thresholds(case.column("scores", "score"), "f1", **case.scoring("logits")).best()
    return [point.threshold, point.value]


def report_at_a_point(case):
    """Return the number of samples, and the counts of a report at a chosen point less those of the point."""
    logits = case.scoring("logits")
    scores = case.column("scores", "score")
    point = case.data().thresholds(scores, "f1", **logits).best()
    result = case.data().report(scores=scores, threshold=point, **logits)
    return [float(result.counts.sum()), *(result.counts - point.counts).flatten().tolist()]


def adjustments(case):
    scores = case.column("by class", BY_CLASS)
    result = case.data().adjustments(scores, "balanced_accuracy", [3, 1], taus=[0, 1], **case.scoring("logits"))
    return [float(result.table()["value"]["balanced_accuracy"]["plain"])]


def difference(data, old, new, **more):
    return [float(data.compare(old, new, "accuracy", **more).difference.estimate)]


def comparison(case, given):
    (_, old), *more = given(case).items()
    return difference(case.data(), old, new_of(case, given), **dict(more))


def comparison_with_new(case, given):
    (_, column), *more = given(case).items()
    ids = {"id": case.input.roles["id"]} if "id" in case.input.roles else {}
    return difference(case.data(source=case.partner), column, column, other=case.data(), **dict(more), **ids)


def plan(case, given):
    ordered = not isinstance(case.source, (polars.LazyFrame, duckdb.DuckDBPyRelation))
    ids = {} if ordered else {"id": case.take("id")}  # in place of positions
    return list(case.data().label_plan(labels=6, **given(case), **ids).pool)


def estimate(case, given):
    return [float(case.data("part").estimate(plan=rows_of_pool(case, given), measures=["f1"], **given(case))["f1"])]


# --- commands ---------------------------------------------------------------------------------------------------------


class CommandError(Exception):
    """Text of an error of the command."""


def run(*words):
    """Run the command, and return what it prints; raise for errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line.main([str(word) for word in words])
    if code == 2:
        raise CommandError(err.getvalue())
    return out.getvalue()


def flags(case, *roles, target="truth"):
    """Return the words of a command: the file, its columns and options."""
    words = [case.source]
    words += [] if target is None else ["--target", case.column("target", target)]
    for role in roles:
        words += [f"--{role}", case.take(case.input.roles[role])] if role in case.input.roles else []
    for name, value in case.input.options.items():
        words += ["--no-head"] if name == "head" else [f"--{name.replace('_', '-')}={value}"]
    return words


def words_of(given):
    """Return arguments as the words of a command."""
    return [
        word for name, value in given.items() for word in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]


def written(case):
    """Return the path of a file that a command has not written yet."""
    path = Path(case.source)
    return next(
        path.with_name(f"out_{at}.csv") for at in itertools.count() if not path.with_name(f"out_{at}.csv").exists()
    )


def json_of(case, *words):
    path = written(case)
    run(*words, "--json", path)
    return imbtorch.open_result(path)


def command_report(case, given):
    return numbers_of(json_of(case, "report", *flags(case, *MORE), *words_of(given(case))))


def command_thresholds(case):
    words = *flags(case, *MORE), "--scores", case.column("scores", "score"), "--measure", "f1"
    words += ("--logits",) if "logits" in case.input.scoring else ()
    point = json_of(case, "thresholds", *words)
    return [point.threshold, point.value]


def command_compare(case, *words):
    text = run("compare", *words, *flags(case, "cluster")[1:], "--measure", "accuracy", "--margin", ".2")
    return [float(re.search(r"new - old: ([+-][0-9.]+)", text)[1])]


def command_comparison(case, given):
    (name, old), *more = given(case).items()
    return command_compare(case, case.source, f"--{name}", old, new_of(case, given), *words_of(dict(more)))


def command_comparison_with_new_classes(case):
    more = ["--id", case.input.roles["id"]] if "id" in case.input.roles else []
    return command_compare(case, case.partner, case.source, "--preds", case.column("preds", "pred"), *more)


def command_label(case, given):
    """Return the pool of the plan that the command writes."""
    path = written(case)
    run("label", *flags(case, target=None), *words_of(given(case)), "--labels", 6, "--out", path)
    return json.loads(path.with_suffix(".plan.json").read_text(encoding="utf-8"))["pool"]


def command_estimate(case, given):
    sizes = ",".join(f"{label}={size}" for label, size in rows_of_pool(case, given).items())
    words = *flags(case, target="part"), "--plan", sizes, "--measures", "f1", *words_of(given(case))
    return [float(json_of(case, "estimate", *words)["f1"])]


# --- right values -----------------------------------------------------------------------------------------------------


class Truth:
    """Plain rows, of which NumPy counts what a door has to give."""

    def __init__(self, given, without=(), found=()):
        columns = {**ROWS, **given.meant}
        self.found = found  # by the door, such as a threshold of which the value is asked for
        kept = [at for at in range(SIZE) if at not in without]
        self.rows = {name: np.array(values, dtype=object)[kept] for name, values in columns.items()}
        self.label, self.pred, self.new = (self.rows[name].astype(int) for name in ("truth", "pred", "new"))
        self.score, self.other = (self.rows[name].astype(float) for name in ("score", "other"))
        cut = given.scoring.get("threshold", 0.5)
        self.flagged, self.flagged_by_other = self.score > cut, self.other > cut
        name = given.roles.get("weight", given.roles.get("frequency"))
        self.weight = np.ones(len(kept)) if name is None else self.rows[name].astype(float)
        group = given.roles.get("group")
        self.group = None if group is None else self.rows[group]

    def counts(self, preds):
        size = max(2, self.label.max() + 1, preds.max() + 1)
        matrix = np.zeros((size, size))
        np.add.at(matrix, (self.label, preds.astype(int)), self.weight)
        groups = [] if self.group is None else list(dict.fromkeys(self.group))
        right = self.label == preds
        shares = [np.average(right[own], weights=self.weight[own]) for own in (self.group == name for name in groups)]
        return [*matrix.ravel(), *sorted(shares)]

    def f1_at(self, cut):
        found = self.score > cut
        hits = self.weight[found & (self.label == 1)].sum()
        return 2 * hits / (self.weight[found].sum() + self.weight[self.label == 1].sum())

    def at_threshold(self):
        return [self.found[0], self.f1_at(self.found[0])]

    def balanced_accuracy(self):
        recalls = [
            np.average((self.score > 0.5)[self.label == each] == each, weights=self.weight[self.label == each])
            for each in (0, 1)
        ]
        return [np.mean(recalls)]

    def f1_of_pool(self, preds):
        labels, preds = self.rows["part"], preds.astype(int)
        known = np.array([label is not None for label in labels])
        expected = [
            (preds == each).sum() * labels[known & (preds == each)].astype(float).mean() for each in (0, 1)
        ]  # positives among the rows that are predicted 0, and 1
        return [2 * expected[1] / (preds.sum() + sum(expected))]


@dataclass(frozen=True)
class Door:
    """Function that reads predictions, and one of the plain rows that gives the right numbers."""

    call: Callable[[Case], list[float]]
    right: Callable[[Truth], list[float]]
    words: dict[str, str] = field(default_factory=dict)  # role -> name of the argument in errors
    within: float = 1e-6
    meets: tuple[str, ...] = EVERY  # sources in which it meets the inputs that do not differ by source
    command: str = ""  # that reads CSV by this door


OLD, OF_NEW = {"preds": "old", "scores": "old", "other": "new"}, {"preds": "new", "scores": "new"}
REPORTS = ("report of classes", "imbtorch report of classes")
SCORED_REPORTS = ("report of scores", "imbtorch report of scores")
COMPARED = ("comparison of classes", "imbtorch compare of classes")
COMPARED_SCORES = ("comparison of scores", "imbtorch compare of scores")
NEW_CLASSES, NEW_SCORES = "comparison with new classes", "comparison with new scores"
PLANS, SCORED_PLANS = ("plan for classes", "imbtorch label of classes"), ("plan for scores", "imbtorch label of scores")
ESTIMATES = ("estimate of classes", "imbtorch estimate of classes")
SCORED_ESTIMATES = ("estimate of scores", "imbtorch estimate of scores")
OF_CLASSES = (*REPORTS, *COMPARED)  # doors that compare predicted classes with targets
OF_SCORES = (*SCORED_REPORTS, "thresholds", "adjustments", *COMPARED_SCORES)
OF_TARGETS = (*OF_CLASSES, *OF_SCORES)
POOLS, SCORED_POOLS = (*PLANS, *ESTIMATES), (*SCORED_PLANS, *SCORED_ESTIMATES)
TWO_SOURCES = (NEW_CLASSES, NEW_SCORES, "imbtorch compare of two files")
LABELS = ("imbtorch label of classes", "imbtorch label of scores")
ALL_ESTIMATES, SCORED = (*ESTIMATES, *SCORED_ESTIMATES), (*OF_SCORES, *SCORED_POOLS)
IN_PYTHON = ("plan for classes", "estimate of classes", "estimate of scores")  # commands have no such option
REPORTED = (*REPORTS, *SCORED_REPORTS)
WEIGHTED = (*REPORTED, "thresholds")
COUNTED = (*WEIGHTED, "adjustments")


def pair(doors, call, command, right, meets=EVERY, words=None, within=1e-6):
    """Return a door of Python, and the command that reads CSV by it."""
    door, of_command = doors
    words = {} if words is None else words
    return {door: Door(call, right, words, 1e-6, meets, of_command), of_command: Door(command, right, words, within)}


def both(classes, scores, call, command, right, meets=EVERY, *more):
    """Return the doors of predicted classes and of scores."""
    found = {}
    for doors, given, names in (
        (classes, classes_of, ("pred", "new")),
        (scores, scores_of, ("flagged", "flagged_by_other")),
    ):
        own = [functools.partial(each, given=given) for each in (call, command)]
        found |= pair(doors, *own, lambda t, names=names: right(t, *(getattr(t, name) for name in names)), meets, *more)
    return found


def gain(t, old, new):
    """Return the new model's accuracy less the old one's."""
    return [(t.label == new).mean() - (t.label == old).mean()]


IN_MEMORY, LAZY, FILE = ("pandas",), ("Polars, lazy",), ("CSV",)
DOORS = {
    **both(REPORTS, SCORED_REPORTS, report, command_report, lambda t, preds, _: t.counts(preds)),
    "report at a point": Door(report_at_a_point, lambda t: [len(t.label), 0, 0, 0, 0], meets=IN_MEMORY),
    "thresholds": Door(thresholds, Truth.at_threshold, meets=(*IN_MEMORY, *FILE)),
    "imbtorch thresholds": Door(command_thresholds, Truth.at_threshold),
    "adjustments": Door(adjustments, Truth.balanced_accuracy, meets=IN_MEMORY),
    **both(COMPARED, COMPARED_SCORES, comparison, command_comparison, gain, LAZY, OLD, 6e-4),
    NEW_CLASSES: Door(
        functools.partial(comparison_with_new, given=classes_of), lambda t: gain(t, t.new, t.pred), OF_NEW
    ),
    NEW_SCORES: Door(
        functools.partial(comparison_with_new, given=scores_of),
        lambda t: gain(t, t.flagged_by_other, t.flagged),
        OF_NEW,
    ),
    "imbtorch compare of two files": Door(
        command_comparison_with_new_classes, lambda t: gain(t, t.new, t.pred), OF_NEW, 6e-4
    ),
    **both(PLANS, SCORED_PLANS, plan, command_label, lambda _, preds, __: np.bincount(preds), LAZY),
    **both(ESTIMATES, SCORED_ESTIMATES, estimate, command_estimate, lambda t, preds, _: t.f1_of_pool(preds), IN_MEMORY),
}
COMMANDS = tuple(name for name in DOORS if name.startswith("imbtorch"))

# --- inputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Right:
    """The result of the plain rows, without some of them."""

    without: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refused:
    """An error whose text names arguments (or whatever the patterns say), a row, and a remedy."""

    error: type[Exception]
    names: tuple[str, ...]
    remedy: str
    row: int | None = None


@dataclass(frozen=True)
class Input:
    """Columns in place of those of ``ROWS``, and what each door has to make of them."""

    expected: dict[str, Right | Refused]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    meant: dict[str, list[Any]] = field(default_factory=dict)  # plain values of columns that are written otherwise
    roles: dict[str, Any] = field(default_factory=dict)  # argument -> column
    options: dict[str, Any] = field(default_factory=dict)  # of Predictions
    scoring: dict[str, Any] = field(default_factory=dict)  # threshold and logits
    sheet: dict[str, Any] = field(default_factory=dict)  # of Sheet
    names: dict[str, Any] = field(default_factory=dict)  # column -> its name in the source
    classes: tuple[str, str] = ("0", "1")  # names of the predicted classes
    sources: tuple[str, ...] = THREE
    everywhere: bool = False  # whether sources differ so much that each door meets all


def to(doors, expected):
    return dict.fromkeys(doors, expected)


DROP = r"missing='drop'|--missing drop"
SOME_REMEDY = r"[;,] \w+"  # a clause behind the fault
NO_ID = "give each sample an id|leave"
DROPPED, SITE = {"missing": "drop"}, {"group": "site"}
LABELLED = ["ok", "fraud"]


def texts(columns=None):
    """Return classes as texts, with changes."""
    return each(LABELLED.__getitem__, *CLASSES) | (columns or {})


def text_input(expected, columns=None, **more):
    return Input(
        expected,
        texts(columns),
        options={"positive": "fraud"} | more.pop("options", {}),
        classes=("ok", "fraud"),
        roles={"by class": {"ok": "p_0", "fraud": "p_1"}} | more.pop("roles", {}),
        **more,
    )


def put_text(value, *names, row=ROW):
    held = {**ROWS, **texts()}
    return {name: [value if at == row else each for at, each in enumerate(held[name])] for name in names}


DAYS = {"day": [date(2024, 1, 1) + timedelta(at // 4) for at in range(SIZE)]}
FLOAT32 = {name: [round(value, 1) for value in ROWS[name]] for name in ("score", "other")}
LOG_ODDS = {name: [math.log(value / (1 - value)) for value in ROWS[name]] for name in PROBABILITIES} | {
    "p_0": [0.0] * SIZE
}
OUTSIDE = next(at for at, value in enumerate(LOG_ODDS["score"]) if not 0 <= value <= 1)
PERCENT = next(at for at, value in enumerate(ROWS["score"]) if 100 * value > 1)
NUMBERED = {name: at for at, name in enumerate(ROWS)}
PLACES = {name: str(at) for name, at in NUMBERED.items()}
TYPED = ("pandas", "pandas, Arrow types", "Polars", "Polars, lazy", "PyArrow", "DuckDB", "Parquet")
TWICE = ("pandas", "pandas, Arrow types", "PyArrow", "CSV", "CSV, gz", "folder")
ORDERS = {"label_order": [at // 2 + 1 if at % 2 else None for at in range(SIZE)]}


def missing(role, row=ROW, remedy=DROP):
    return Refused(ValueError, (role,), remedy, row)


MISSING_CLASS = to(OF_CLASSES, missing("preds")) | to(POOLS, missing("preds", remedy=SOME_REMEDY))
MISSING_SCORE = to(OF_SCORES, missing("scores")) | to(SCORED_POOLS, missing("scores", remedy=SOME_REMEDY))
INPUTS: dict[str, Input] = {
    "plain rows": Input(to(DOORS, Right()), sources=EVERY, everywhere=True),
    "texts": text_input(to(DOORS, Right())),
    # a missing value in each role
    "a missing target": Input(
        to((*OF_TARGETS, *TWO_SOURCES, "imbtorch thresholds"), missing("target"))
        | to((*PLANS, *SCORED_PLANS), Right()),
        put(None, "truth"),
        sources=EVERY,
    ),
    "a missing target, dropped": Input(
        to((*OF_TARGETS, NEW_CLASSES, NEW_SCORES), Right((ROW,))), put(None, "truth"), options=DROPPED
    ),
    "a missing prediction": Input(
        MISSING_CLASS | to([NEW_CLASSES], missing("preds")), put(None, "pred"), sources=EVERY
    ),
    "a missing prediction, dropped": Input(
        to(OF_CLASSES, Right((ROW,))), put(None, "pred"), options=DROPPED, sources=FIVE
    ),
    "a missing prediction of the new model": Input(to(COMPARED, missing("new")), put(None, "new")),
    "a missing score": Input(
        MISSING_SCORE | to([NEW_SCORES, "imbtorch thresholds"], missing("scores")), put_score(None), sources=EVERY
    ),
    "a missing score, dropped": Input(
        to((*OF_SCORES, "report at a point"), Right((ROW,))), put_score(None), options=DROPPED, sources=FIVE
    ),
    "a score of NaN": Input(MISSING_SCORE, put_score(math.nan), sources=FIVE),
    "a score of NaN, dropped": Input(to(OF_SCORES, Right((ROW,))), put_score(math.nan), options=DROPPED),
    "a missing score of the new model": Input(to(COMPARED_SCORES, missing("other")), put(None, "other")),
    "a missing group": Input(to(REPORTED, missing("group")), put(None, "site"), roles=SITE, sources=FIVE),
    "a missing group, dropped": Input(to(REPORTED, Right((ROW,))), put(None, "site"), roles=SITE, options=DROPPED),
    "a missing cluster": Input(
        to(OF_TARGETS, missing("cluster", remedy=NO_ID)),
        put(None, "patient"),
        roles={"cluster": "patient"},
        sources=FIVE,
    ),
    "a missing weight": Input(
        to(WEIGHTED, missing("weight", remedy="leave")), put(None, "w"), roles={"weight": "w"}, sources=FIVE
    ),
    "a missing frequency": Input(
        to(COUNTED, missing("frequency", remedy="leave")), put(None, "n"), roles={"frequency": "n"}
    ),
    **{
        f"a null in a dictionary of {name}": text_input(
            expected, put_text(None, name), options=options, roles=roles, sheet={"dictionary": (name,)}, sources=TYPED
        )
        for name, expected, roles, options in (
            ("pred", MISSING_CLASS, {}, {}),
            ("truth", to((*OF_CLASSES, "report of scores", "thresholds"), missing("target")), {}, {}),
            ("site", to(REPORTED, missing("group")), SITE, {}),
            ("patient", to(OF_CLASSES, missing("cluster", remedy=NO_ID)), {"cluster": "patient"}, {}),
        )
    },
    "a null in a dictionary, dropped": text_input(
        to(OF_CLASSES, Right((ROW,))),
        put_text(None, "pred"),
        options=DROPPED,
        sheet={"dictionary": ("pred",)},
        sources=TYPED,
    ),
    # scores that are none
    "percentages": Input(
        to(SCORED, Refused(ValueError, ("scores",), r"divided? by 100", PERCENT)),
        each(lambda value: 100 * value, *PROBABILITIES, "p_0"),
    ),
    "a score above 1": Input(to(SCORED, Refused(ValueError, ("scores",), SOME_REMEDY, ROW)), put_score(1.5)),
    "a score below 0": Input(to(SCORED, Refused(ValueError, ("scores",), SOME_REMEDY, ROW)), put_score(-0.25)),
    "logits in place of probabilities": Input(
        to(SCORED, Refused(ValueError, ("scores",), "logits|sigmoid", OUTSIDE)), LOG_ODDS
    ),
    "logits": Input(
        to((*SCORED_REPORTS, "thresholds", "adjustments", "report at a point", *SCORED_POOLS), Right()),
        LOG_ODDS,
        scoring={"threshold": 0.3, "logits": True},
        sources=FIVE,
    ),
    "a word among scores": Input(
        to(SCORED, Refused(TypeError, ("scores", "'high'"), "number", ROW)),
        each(str, *PROBABILITIES, "p_0") | {name: [*map(str, values)] for name, values in put_score("high").items()},
        sources=("lists", "CSV"),
    ),
    "a percent sign among scores": Input(
        to(SCORED, Refused(TypeError, ("scores",), "divide by 100", ROW)),
        each(str, *PROBABILITIES, "p_0") | {name: [*map(str, values)] for name, values in put_score("81%").items()},
        sources=("lists", "CSV"),
    ),
    "float32 scores at the threshold": Input(
        to((*SCORED_REPORTS, *COMPARED_SCORES, NEW_SCORES, "report at a point", *SCORED_POOLS), Right()),
        FLOAT32,
        FLOAT32,
        scoring={"threshold": 0.3},
        sheet={"types": dict.fromkeys(FLOAT32, "float32")},
        sources=("NumPy", "torch", "Parquet", "CSV"),
    ),
    "float32 scores at the threshold, one missing": Input(
        to((*SCORED_REPORTS, *COMPARED_SCORES, NEW_SCORES, "report at a point"), Right((ROW,))),
        FLOAT32 | {"score": [None if at == ROW else value for at, value in enumerate(FLOAT32["score"])]},
        FLOAT32,
        scoring={"threshold": 0.3},
        options=DROPPED,
        sheet={"types": dict.fromkeys(FLOAT32, "float32")},
        sources=(*VALUES, *TYPED, "CSV"),
    ),
    # weights and frequencies that are none
    "a negative weight": Input(
        to(WEIGHTED, missing("weight", remedy="not negative|0 or more")), put(-1.0, "w"), roles={"weight": "w"}
    ),
    "an infinite weight": Input(
        to(WEIGHTED, missing("weight", remedy="finite")), put(math.inf, "w"), roles={"weight": "w"}
    ),
    "fractional frequencies with a whole sum": Input(
        to(COUNTED, missing("frequency", remedy="whole")),
        {"n": [1.5 if at in (ROW, ROW + 1) else float(value) for at, value in enumerate(ROWS["n"])]},
        roles={"frequency": "n"},
    ),
    # one column in two roles that fit each other
    "a weight that is the group": Input(to(REPORTED, Right()), roles={"weight": "n", "group": "n"}, sources=EVERY),
    "a frequency that is the group": Input(to(REPORTED, Right()), roles={"frequency": "n", "group": "n"}, sources=FIVE),
    "a weight that is the cluster": Input(
        to(WEIGHTED, Refused(ValueError, ("clusters?", "weight(ed)?"), "leave one of them out")),
        roles={"weight": "n", "cluster": "n"},
    ),
    "a frequency that is the cluster": Input(to(COUNTED, Right()), roles={"frequency": "n", "cluster": "n"}),
    "a group that is the cluster": Input(to(REPORTED, Right()), roles={"group": "site", "cluster": "site"}),
    "the target as the group": Input(to(REPORTED, Right()), roles={"group": "truth"}),
    "an id that is the cluster": Input(to(TWO_SOURCES, Right()), roles={"id": "id", "cluster": "id"}),
    # ... and that do not
    **{
        f"one column as {one} and {two}": Input(
            to(doors, Refused(ValueError, (one, two), "name|pass|choose|take|leave")), roles={one: name, two: name}
        )
        for one, two, name, doors in (
            ("target", "preds", "truth", (*OF_CLASSES, NEW_CLASSES)),
            ("target", "preds", "part", ESTIMATES),
            ("target", "scores", "truth", (*SCORED_REPORTS, "thresholds", *COMPARED_SCORES)),
            ("target", "scores", "part", SCORED_ESTIMATES),
            ("target", "new", "truth", COMPARED),
            ("preds", "new", "pred", COMPARED),
            ("scores", "other", "score", COMPARED_SCORES),
            ("preds", "group", "pred", REPORTS),
            ("preds", "cluster", "pred", OF_CLASSES),
            ("preds", "weight", "pred", REPORTS),
            ("preds", "frequency", "pred", REPORTS),
            ("scores", "group", "score", SCORED_REPORTS),
            ("scores", "cluster", "score", (*SCORED_REPORTS, "thresholds", *COMPARED_SCORES)),
            ("scores", "weight", "score", (*SCORED_REPORTS, "thresholds")),
            ("target", "weight", "truth", WEIGHTED),
            ("target", "frequency", "truth", COUNTED),
            ("target", "cluster", "truth", OF_TARGETS),
        )
    },
    # names
    "a name twice": Input(
        to((*OF_CLASSES, *POOLS), Refused(ValueError, ("'pred'",), "rename")),
        sheet={"twice": "pred"},
        sources=TWICE,
        everywhere=True,
    ),
    "a name twice that nobody named": Input(
        to(("thresholds", *OF_CLASSES, "plan for classes", *ESTIMATES, *TWO_SOURCES), Right())
        | to(LABELS, Refused(ValueError, ("'x'",), "rename")),
        sheet={"twice": "x"},
        sources=("pandas", "PyArrow", "CSV"),
    ),
    "integer names": Input(
        to(DOORS, Right()), names=NUMBERED, sources=("mapping", "pandas", "pandas, Arrow types"), everywhere=True
    ),
    "integer names as texts": Input(
        to(("report of classes", "adjustments", "comparison of classes", "plan for classes"), Right()),
        names=PLACES,
        sources=("mapping", "pandas", "pandas, Arrow types"),
    ),
    "no head": Input(
        to(DOORS, Right()), names=PLACES, options={"head": False}, sheet={"head": False}, sources=("CSV",)
    ),
    "a name that there is not": Input(
        to((*OF_CLASSES, *PLANS, *ESTIMATES), Refused(ValueError, ("preds", "'predd'"), "'pred'")),
        roles={"preds": "predd"},
    ),
    "a name of scores that there is not": Input(
        to(
            (*SCORED_REPORTS, "thresholds", *COMPARED_SCORES, *SCORED_PLANS, *SCORED_ESTIMATES),
            Refused(ValueError, ("scores", "'scor'"), "'score'"),
        ),
        roles={"scores": "scor"},
    ),
    # dates as ids
    "days as clusters": Input(
        to((*REPORTS, "thresholds", *COMPARED), Right()), DAYS, DAYS, roles={"cluster": "day"}, sources=FIVE
    ),
    "days as groups": Input(to(REPORTED, Right()), DAYS, DAYS, roles={"group": "day"}, sources=FIVE),
    "days as ids": Input(
        to(TWO_SOURCES, Right()),
        {"day": [date(2024, 1, 1) + timedelta(at) for at in range(SIZE)]},
        roles={"id": "day"},
        sources=tuple(name for name in EVERY if name not in VALUES),
    ),
    # labels that a plan drew
    "a column label_order": Input(
        to(
            (*OF_TARGETS, *TWO_SOURCES, "imbtorch thresholds", *LABELS),
            Refused(ValueError, ("label_order",), "plan|estimate|rename"),
        ),
        ORDERS,
        sources=("mapping", *THREE, "DuckDB"),
    ),
    "a column label_order, rows without labels dropped": Input(
        to(OF_TARGETS, Refused(ValueError, ("label_order",), "plan|estimate")),
        ORDERS,
        roles={"target": "part"},
        options=DROPPED,
    ),
    # other sizes
    **{
        f"a row less of {name} as {role}": Input(
            to(doors, Refused(ValueError, (role, str(SIZE - 1), str(SIZE)), "same samples")),
            {name: ROWS[name][:-1]},
            roles={} if role in ("target", "preds", "scores", "new", "other") else {role: name},
            sources=(*VALUES, "mapping"),
        )
        for role, name, doors in (
            ("target", "truth", OF_TARGETS),
            ("target", "part", ALL_ESTIMATES),
            ("preds", "pred", (*OF_CLASSES, *ESTIMATES)),
            ("scores", "score", (*SCORED_REPORTS, "thresholds", *COMPARED_SCORES, *SCORED_ESTIMATES)),
            ("new", "new", COMPARED),
            ("group", "site", REPORTED),
            ("cluster", "patient", OF_TARGETS),
            ("weight", "w", WEIGHTED),
            ("frequency", "n", COUNTED),
        )
    },
    "fewer rows of the new model": Input(
        to(TWO_SOURCES, Refused(ValueError, ("old", "new", str(SIZE), str(SIZE - 1)), "same samples")),
        {name: values[:-1] for name, values in ROWS.items()},
    ),
    "an empty source": Input(
        to(DOORS, Refused(ValueError, ("empty|no rows|no class|at least one row|(got|new) 0",), "")),
        {name: [] for name in ROWS},
        sources=(*FIVE, "Parquet"),
    ),
    # classes that are written in two ways
    "a space behind a predicted class": text_input(
        to(OF_CLASSES, Refused(ValueError, ("preds", "'fraud '"), SOME_REMEDY, ROW))
        | to(POOLS, Refused(ValueError, ("'fraud '",), SOME_REMEDY)),
        put_text("fraud ", "pred"),
        sources=FIVE,
    ),
    "a space behind a target": text_input(
        to((*OF_TARGETS, *ALL_ESTIMATES), Refused(ValueError, ("fraud ['\",]",), SOME_REMEDY)),
        put_text("fraud ", "truth", "part"),
    ),
    "whole numbers written in several ways": Input(
        to((*OF_CLASSES, *POOLS, *SCORED_REPORTS, "thresholds"), Right()),
        {
            name: [
                None if value is None else (f"{value}", f"{value}.0", f"{value}e0", f" {value}")[at % 4]
                for at, value in enumerate(ROWS[name])
            ]
            for name in CLASSES
        },
    ),
    "numbers and texts in one column": Input(
        to([name for name in DOORS if name not in (*COMMANDS, *TWO_SOURCES)], Right()),
        {
            name: [
                None if value is None else (value, float(value), str(value))[at % 3]
                for at, value in enumerate(ROWS[name])
            ]
            for name in CLASSES
        },
        sources=("lists", "mapping"),
    ),
    "predictions with leading zeros": Input(
        to((*OF_CLASSES, *POOLS), Refused(ValueError, ("leading zeros",), "alike")),
        each(str, *CLASSES) | {"pred": ["01" if at == ROW else str(value) for at, value in enumerate(ROWS["pred"])]},
    ),
    "predictions that are booleans": Input(
        to((*OF_CLASSES, *POOLS), Right()), each(bool, "pred"), classes=("False", "True")
    ),
    "a word for no value among predictions": text_input(MISSING_CLASS, put_text("NA", "pred")),
    "predictions of another type than targets": Input(
        to(OF_CLASSES, Refused((TypeError, ValueError), ("preds",), SOME_REMEDY))  # CSV has no types
        | to(ESTIMATES, Refused((TypeError, ValueError), ("preds|yes",), SOME_REMEDY)),
        each(["no", "yes"].__getitem__, "pred"),
    ),
    # three classes where two are meant
    "a third class among predictions": Input(
        to(OF_CLASSES, Refused(ValueError, ("preds", "2"), SOME_REMEDY, ROW))
        | to(POOLS, Refused(ValueError, ("2",), "positive|two classes|leave")),
        put(2, "pred"),
        sources=FIVE,
    ),
    "a third class among targets": Input(
        to(
            (*OF_SCORES, *ALL_ESTIMATES),
            Refused(ValueError, ("2",), "positive|column for|two classes|each class|class.names|unclear"),
        ),
        put(2, "truth", "part"),
    ),
    "a third class beside a positive one": Input(
        to(
            (*OF_CLASSES, *SCORED_REPORTS, "thresholds", *POOLS),
            Refused(ValueError, ("positive|two classes", "2"), SOME_REMEDY),
        )
        | to(SCORED_ESTIMATES, Refused(ValueError, ("target", "2"), "unclear", ROW)),
        put(2, "truth", "part", "pred"),
        options={"positive": 1},
    ),
    "three classes": Input(to(OF_CLASSES, Right()), put(2, "truth", "pred", "new"), put(2, "truth", "pred", "new")),
    # marks
    "a mark to ignore": Input(
        to((*OF_TARGETS, *TWO_SOURCES, "imbtorch thresholds"), Right((ROW,)))
        | to(IN_PYTHON, Refused(ValueError, ("ignore",), SOME_REMEDY)),
        put(-100, "truth", "part"),
        options={"ignore": -100},
    ),
    "a mark that is not ignored": Input(
        to(OF_TARGETS, Refused(ValueError, ("target", "-100"), "ignore", ROW))
        | to(ALL_ESTIMATES, Refused(ValueError, ("-100",), SOME_REMEDY)),
        put(-100, "truth", "part"),
    ),
    "no answer where each row needs one": Input(
        to(
            [name for name in DOORS if name not in REPORTS and not re.match("imbtorch (label|estimate)", name)],
            Refused(ValueError, (r"no.answer",), f"{SOME_REMEDY}|predict a class"),
        ),
        options={"no_answer": 0},
        sources=("lists", "CSV"),
    ),
    # arguments that do not fit
    "a threshold beside classes": Input(
        to((*REPORTS, *POOLS), Refused(ValueError, ("threshold",), "scores")),
        scoring={"threshold": 0.5},
        sources=("lists", "CSV"),
    ),
    # text files
    "decimal commas": Input(
        to(DOORS, Right()),
        each(lambda value: str(value).replace(".", ","), *PROBABILITIES, "p_0"),
        options={"decimal": ","},
        sheet={"separator": ";"},
        sources=("CSV",),
    ),
    "decimal commas that nobody named": Input(
        to(SCORED, Refused((TypeError, ValueError), ("scores",), r"decimal=','|--decimal ,")),
        each(lambda value: str(value).replace(".", ","), *PROBABILITIES, "p_0"),
        sheet={"separator": ";"},
        sources=("CSV",),
    ),
    "Latin-1": Input(
        to(DOORS, Right()),
        {"x": ["caf\xe9"] * SIZE},
        options={"encoding": "latin-1"},
        sheet={"encoding": "latin-1"},
        sources=("CSV",),
    ),
    "Latin-1 in a column that nobody named": Input(
        to((*OF_CLASSES, *TWO_SOURCES, "thresholds", *ESTIMATES), Right())
        | to(LABELS, Refused(ValueError, ("UTF-8|utf-8|encod",), "--encoding")),
        {"x": ["caf\xe9"] * SIZE},
        sheet={"encoding": "latin-1"},
        sources=("CSV",),
    ),
}


@dataclass(frozen=True)
class Exempt:
    """Cells that are left out, and why."""

    why: str
    sources: tuple[str, ...] = EVERY
    doors: tuple[str, ...] = tuple(DOORS)
    inputs: str = ""  # pattern of their names


EXEMPT = (
    Exempt("a command reads files, which differ by CSV only", tuple(set(EVERY) - {"CSV"}), COMMANDS),
    Exempt("two sources are columns with names", VALUES, TWO_SOURCES),
    Exempt("rows of two lazy frames have no order, which an error says", ("Polars, lazy",), TWO_SOURCES),
    Exempt("no tensor holds texts or dates", ("torch",), inputs="texts|group$|group,|days|words"),
    Exempt(
        "integers beside NaN are floats, and floating predictions in memory are scores",
        ("torch",),
        inputs="a missing prediction",
    ),
    Exempt(
        "two sources are paired by one function, which takes 100 ms",
        tuple(set(EVERY) - {"CSV"}),
        (NEW_CLASSES, "imbtorch compare of two files"),
        "^(?!integer names$)",
    ),
    Exempt(
        "as before; labels that only the new source lacks, and float32, meet all sources",
        tuple(set(EVERY) - {"CSV"}),
        (NEW_SCORES,),
        "^(?!a missing target$|float32)",
    ),
)


def sources_of(name, door):
    """Return the sources in which a door meets an input."""
    given, own = INPUTS[name], DOORS[door]
    left_out = [each for each in EXEMPT if door in each.doors and re.search(each.inputs, name)]
    found = [source for source in given.sources if not any(source in each.sources for each in left_out)]
    if given.everywhere:
        return found
    found = [source for source in found if source != "CSV" or own.command not in given.expected]
    return [source for source in found if source in own.meets] or found[:1]


# --- cells ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that makes an input in a source; each is made once."""

    @functools.cache
    def built(name, source, partner=False):
        given = INPUTS[name]
        columns = {**ROWS, **given.columns}
        if partner:  # the plain rows with the predictions of the other model
            columns = {
                **ROWS,
                "pred": ROWS["new"],
                "score": ROWS["other"],
                **{k: given.columns[k] for k in ("day", "x") if len(given.columns.get(k, ())) == SIZE},
            }
            if given.options.get("positive") == "fraud":
                columns |= texts() | {"pred": texts()["new"]}
            for plain in FLOAT32 if "float32" in name else ():
                columns[plain] = FLOAT32["other"]
        renamed = {given.names.get(column, column): values for column, values in columns.items()}
        sheet = {key: value for key, value in given.sheet.items() if not (partner and key == "twice")}
        found = SOURCES[source](Sheet(renamed, **sheet), tmp_path_factory.mktemp("rows"))
        return found if source in VALUES else (found, None)

    def case(name, source, door):
        partner = built(name, source, True)[0] if door in TWO_SOURCES else None
        return Case(INPUTS[name], *built(name, source), partner)

    return case


def fault_of(case, door, expected, source):
    """Return what is wrong with a cell; an empty text if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = door.call(case)
    except Exception as error:
        text, kind = str(error), type(error)
    else:
        if isinstance(expected, Refused):
            return f"gives {np.round(found, 3).tolist()} in place of an error"
        right = door.right(Truth(case.input, expected.without, found))
        close = len(found) == len(right) and np.allclose(found, right, atol=door.within)
        return "" if close else f"gives {np.round(found, 3).tolist()}, right is {np.round(right, 3).tolist()}"
    told = f"{kind.__name__}: {text}"
    if isinstance(expected, Right):
        return told
    wrong = [] if kind is CommandError or issubclass(kind, expected.error) else [f"is no {expected.error}"]
    wrong += ["is a traceback"] if "Traceback" in text else []
    for name in expected.names:
        name = door.words.get(name, name)
        wrong += [] if re.search(rf"\b{name}\b" if name.isalpha() else name, text) else [f"does not name {name}"]
    if expected.row is not None and source not in WITHOUT_ORDER and not re.search(rf"\brow {expected.row}\b", text):
        wrong.append(f"does not name row {expected.row}")
    wrong += [] if re.search(expected.remedy, text) else [f"has no remedy {expected.remedy}"]
    return f"{' and '.join(wrong)}: {told}" if wrong else ""


CELLS = [(name, door) for name, given in INPUTS.items() for door in given.expected if sources_of(name, door)]


@pytest.mark.parametrize(("name", "door"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_a_door(name, door, build):
    expected, told = INPUTS[name].expected[door], []
    for source in sources_of(name, door):
        fault = fault_of(build(name, source, door), DOORS[door], expected, source)
        told += [f"{name}, {source}, {door}: {fault}"] if fault else []
    assert not told, "\n".join(told)
