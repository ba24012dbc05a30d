"""Samples of a source as metrics take them: classes as indices, scores in the order of the classes, in parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy import special

from imbtorch.columns import (
    IGNORED,
    LEFT_OUT,
    Array,
    Classes,
    Column,
    Rules,
    natural,
    read_cell,
    typed,
    without_left_out,
)
from imbtorch.counting.arguments import Task
from imbtorch.counting.clusters import cluster_ids
from imbtorch.deciding.costs import NAMES
from imbtorch.predictions.parts import Part
from imbtorch.predictions.scores import are_above, checked_scores
from imbtorch.predictions.sources import (
    SQUARES,
    Arrays,
    Columns,
    Source,
    by_class,
    check_roles,
    chosen,
    floats,
    id_of,
    note_on_models,
    placed,
    single,
)
from imbtorch.reports.texts import checked_names
from imbtorch.suggestions import first_names

MOST_GROUPS = 1000  # groups of samples
MONTHS = "January February March April May June July August September October November December".lower().split()
HIGH, ENOUGH = 0.75, 10  # score that few rows of class 0 have, and number of these rows that tells
UNLIKE, SURELY = 1.5, 0.001  # ratio of two alert rates that is told, if chance makes one so rarely


@dataclass(frozen=True)
class Given:
    """Columns of a source by their roles."""

    source: Source
    target: dict[
        str, str
    ]  # label -> column; a single column of classes has the label ""; empty before rows are labelled
    preds: dict[str, str]  # label or class -> column of predictions; a single one has the label ""
    scored: bool  # whether predictions are scores
    argument: str  # name of the argument of predictions
    more: dict[str, str]  # group, cluster, weight, frequency -> column

    @property
    def labels(self) -> bool:
        """True if each sample may have several labels."""
        return bool(self.target) and list(self.target) != [""]

    @property
    def sums(self) -> str | None:
        """Column of weights or frequencies."""
        return self.more.get("weight", self.more.get("frequency"))


def from_arrays(argument: str, preds: Any, target: Any, more: Mapping[str, Any]) -> Given:
    """Return the columns that arguments hold."""
    source = Arrays({}, {})

    def add(name: str, value: Any, split: bool) -> dict[str, str]:
        table: Any = value if isinstance(value, Mapping) else None
        if table is None and hasattr(value, "columns") and hasattr(value, "to_numpy"):
            table = {label: value[label] for label in value.columns}
        if table is None:
            source.columns[name], source.called[name] = value, name
            array = source.array(name)
            if not (split and array.ndim > 1):
                return {"": name}
            del source.columns[name]
            if array.ndim > 2 or array.shape[1] < 2:
                remedy = f"; pass {name}[:, 0]" if array.ndim == 2 else ""
                shape = list(array.shape)
                raise ValueError(f"{name} must be [N], or [N, L] for labels, got the shape {shape}{remedy}")
            table = {str(at): array[:, at] for at in range(array.shape[1])}
        if not table or (split and name == "target" and len(table) == 1):
            of_one = f" of one column; pass the column itself, target[{next(iter(table), '')!r}]"
            raise ValueError(f"{name} is a table{of_one}" if table else f"{name} has no columns")
        found = {str(label): f"{name}, {label}" for label in table}
        source.columns.update(zip(found.values(), table.values(), strict=True))
        source.called.update({column: f"column {label!r} of {name}" for label, column in found.items()})
        return found

    of_target = {} if target is None else add("target", target, True)
    of_preds = add(argument, preds, list(of_target) != [""])
    names = {name: add(name, value, False)[""] for name, value in more.items()}
    arrays = [source.array(each) for each in of_preds.values()]
    labels, alone = list(of_target) != [""], list(of_preds) == [""]
    scored = argument == "scores" or (bool(of_target) and any(each.dtype.kind == "f" for each in arrays))
    if not labels and argument == "preds":
        scored = scored or not alone or arrays[0].ndim == 2
        if scored and alone and arrays[0].ndim == 1:
            scored = not _are_classes(arrays[0], source.array("target"))
    return Given(source, of_target, of_preds, scored, argument, names)


def _are_classes(preds: Array, target: Array) -> bool:
    """Return whether floating predictions are classes: whole numbers, not only 0 and 1, that targets hold as well."""
    held = np.unique(preds)
    if np.isnan(held).any() or set(held.tolist()) <= {0.0, 1.0}:
        return False
    return target.dtype.kind in "iuf" and bool(np.isin(held, target).all() and (held == np.rint(held)).all())


def from_source(source: Source, argument: str, preds: Any, target: Any, more: Mapping[str, Any]) -> Given:
    """Return the columns of a source that arguments name; those of a pool without labels have no target."""
    names = {name: single(source, name, each) for name, each in more.items()}
    of_target = {} if target is None else chosen(source, "target", target, list(names.values()))
    of_preds = chosen(source, argument, preds, [*names.values(), *of_target.values()])
    several = {"target": of_target, argument: of_preds}
    check_roles([*((role, c) for role, columns in several.items() for c in columns.values()), *names.items()])
    source.called |= {names[role]: role for role in ("group", "cluster") if role in names}
    for name, columns in several.items():
        source.called |= {c: name if label == "" else f"column {c!r} of {name}" for label, c in columns.items()}
    source.called |= {names[role]: role for role in ("weight", "frequency") if role in names}
    if of_target and list(of_target) != [""]:
        of_target, of_preds = _same_labels(of_target, of_preds)
    elif list(of_preds) != [""] and argument != "scores":
        raise ValueError(
            "preds names several columns, as for labels, but target names one; name the columns of scores by scores="
        )
    return Given(source, of_target, of_preds, argument == "scores", argument, names)


def _same_labels(target: dict[str, str], preds: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Name the labels of two lists of columns alike, which may begin differently."""
    for one in range(min(map(len, target)) + 1):
        for two in range(min(map(len, preds)) + 1):
            begins = {name[:one] for name in target}, {name[:two] for name in preds}
            if max(map(len, begins)) == 1 and {name[one:] for name in target} == {name[two:] for name in preds}:
                first = {name[one:].lstrip("_-. ") or name: column for name, column in target.items()}
                return first, {name[two:].lstrip("_-. ") or name: column for name, column in preds.items()}
    return target, preds


@dataclass
class Seen:
    """Rows of two classes, counted by whether they have a label and are predicted positive, and their scores."""

    samples: Samples
    threshold: float | tuple[float, ...] | None  # of scores; of several labels one for each
    rows: Array = field(default_factory=lambda: np.zeros((3, 2)))  # [no label, ignored, labelled] x [negative, alarm]
    negatives: Array = field(default_factory=lambda: np.zeros(2))  # rows of class 0, and those with high scores
    lowest: float = np.inf

    def add(self, preds: Array, target: Array, ones: Array) -> None:
        """Count samples, some of which may be left out."""
        samples, alarms = self.samples, preds == 1
        if samples.given.scored and preds.ndim == 1:
            of_zero = preds[target == 0]
            self.negatives += len(of_zero), (of_zero > HIGH).sum()
            self.lowest = min(self.lowest, preds[target >= 0].min(initial=np.inf))
        if samples.given.scored:
            if not isinstance(self.threshold, float) or (preds.ndim > 1 and samples.logits):
                return
            alarms = are_above(preds if preds.ndim == 1 else preds[:, 1], self.threshold, samples.logits)
        for at, some in enumerate((target == LEFT_OUT, target == IGNORED, target >= 0)):
            some = some & (preds == preds if preds.ndim == 1 else True) & (samples.given.scored or preds >= 0)
            self.rows[at] += ones[some & ~alarms].sum(), ones[some & alarms].sum()

    def problems(self) -> dict[str, str]:
        """Return what speaks against the values: confidences in place of scores, and labels of alarms alone."""
        found, names, (number, high) = {}, self.samples.names, self.negatives
        if number >= ENOUGH and high > number / 2 and self.lowest >= 0.5 and not self.samples.logits:
            found["confidences"] = (
                f"no score is below 0.5, and {high:g} of {number:g} rows of class {names[0]!r} have one above {HIGH}, "
                f"as if they were confidences of the predicted class; pass scores of {names[1]!r}, which are 1 - "
                f"confidence where {names[0]!r} is predicted"
            )
        missing, ignored, labelled = self.rows
        lacking = missing + ignored if not labelled[0] else missing
        pair = np.stack((labelled, lacking))
        (one, other), sizes = pair[:, 1], pair.sum(1)
        expected = np.outer(sizes, pair.sum(0)) / max(sizes.sum(), 1)
        g_test = 2 * special.xlogy(pair, pair / np.where(expected > 0, expected, 1)).sum()
        low, high = sorted((one * sizes[1], other * sizes[0]))
        unlike = high > UNLIKE * low and special.chdtrc(1, g_test) < SURELY
        if one and sizes.all() and ((not labelled[0] and lacking[0]) or unlike):
            found["alarms"] = (
                f"{one:,.10g} of {sizes[0]:,.10g} rows with a label are predicted {names[1]!r}, and {other:,.10g} of "
                f"{sizes[1]:,.10g} without one: labels that follow the alarms leave recall, and all that depends on "
                "it, unknown; imbtorch label (Predictions.label_plan) draws rows whose labels tell it"
            )
        return found


@dataclass(frozen=True)
class Samples:
    """Samples of a source, typed; :func:`samples_of` makes them."""

    given: Given
    rules: Rules
    logits: bool
    task: Task
    names: tuple[str, ...]  # of classes or labels, in the order of their indices
    columns: list[str]  # of predictions, in the order of the names where each has one
    rows: int
    groups: tuple[str, ...]
    classes: Classes | None  # of single-label samples
    grouped: Columns  # groups of equal samples, of predicted classes
    notes: list[str]  # what a reader of the results must know; parts() adds how many rows were left out
    problems: dict[str, str] = field(default_factory=dict)  # what speaks against the values, which parts() finds

    @property
    def may_abstain(self) -> bool:
        """True if predictions may be no answer, which counts as a class behind the others."""
        return bool(self.rules.no_answer != ())

    @property
    def ignored_label(self) -> int | None:
        """Target of the labels to leave out, in the parts; None without."""
        return IGNORED if self.given.labels and self.rules.marks else None

    def parts(self, threshold: float | tuple[float, ...] | None = None) -> Iterator[Part]:
        """Yield all samples, some at a time; raise for values that are no classes, scores or weights.

        Problems that need the alarms are found at a threshold of scores.
        """
        seen = Seen(self, threshold) if self.task == "binary" else None
        given, start, one_hot = self.given, 0, self.given.labels and self.rules.task is None
        left_out, unknown = np.zeros(2), 0  # rows without a value, and with a target to ignore; labels to ignore
        for columns, arrays in self._batches():
            target = self._codes(columns, [given.target[name] for name in self.names] if given.labels else [], True)
            times = columns[next(iter(given.target.values()))].times
            extra = self._extra(columns, arrays, times)
            keep = extra.get("group", np.zeros(len(target))) >= 0
            marked = (target == IGNORED).reshape(len(target), -1)
            keep &= (target != LEFT_OUT if given.labels else target >= 0).reshape(len(target), -1).all(1)
            if given.scored:
                preds, keep = self._scores(arrays, start, keep)
            else:
                preds = self._codes(columns, self.columns, False)
                keep &= (preds >= 0).reshape(len(preds), -1).all(1)
            ignored = np.zeros(len(marked), dtype=bool) if given.labels else marked.any(1)
            ones = np.ones(len(keep)) if times is None else times
            if seen is not None:
                seen.add(preds, target, ones)
            left_out += ones[~keep & ~ignored].sum(), ones[ignored].sum()
            start += len(keep)
            if not keep.all():
                preds, target, *some = (each[keep] for each in (preds, target, *extra.values()))
                extra = dict(zip(extra, some, strict=True))
            unknown += given.labels * int((target == IGNORED).sum())
            one_hot = one_hot and bool((target.sum(-1) == 1).all())
            if one_hot and start == self.rows > 1:
                raise ValueError(
                    "every row of target holds one 1, as one-hot codes of single classes do: pass their indices, "
                    "target.argmax(1), as target; or task='multilabel' if they are labels of which each row has one"
                )
            all_arrays = {"preds": preds, "target": target, **extra}
            tensors = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in all_arrays.items()}
            yield Part(tensors.pop("preds"), tensors.pop("target"), tensors)
        self.problems.update({} if seen is None else seen.problems())
        for number, why in zip(left_out, ("a value is missing", "ignore names their target"), strict=True):
            self.notes.extend([f"rows left out because {why}: {number:,.10g}"] if number else [])
        self.notes.extend([f"labels left out of single rows because ignore names them: {unknown:,}"] if unknown else [])

    def _batches(self) -> Iterator[Columns]:
        """Return what the source grouped, or its rows in batches."""
        given = self.given
        if not (given.labels or given.scored):
            return iter([self.grouped])
        keys = [*given.target.values(), *(given.more[role] for role in ("group", "cluster") if role in given.more)]
        numbers = [] if given.sums is None else [given.sums]
        numbers += [given.more[role] for role in NAMES if role in given.more]
        if given.scored:
            return given.source.batches(keys, [*self.columns, *numbers])
        return given.source.batches([*keys, *self.columns], numbers)

    def _codes(self, columns: Mapping[str, Column], names: Sequence[str], of_target: bool) -> Array:
        """Return indices ``[n]`` of classes, or 0 and 1 of labels ``[n, L]``; negative for what is left out."""
        if self.given.labels:
            return np.stack([self._label(columns[name], of_target) for name in names], -1)
        assert self.classes is not None
        column = columns[self.given.target[""] if of_target else self.columns[0]]
        table = self.classes.table(column, of_target)
        if self.may_abstain and not of_target:
            table[list(map(self.rules.is_no_answer, column.levels))] = len(self.names)
        return table[column.codes]

    def _label(self, column: Column, of_target: bool) -> Array:
        """Return 0 and 1 of one label."""
        found = np.full(len(column.levels), LEFT_OUT)
        for at, each in enumerate(column.levels):
            cell = read_cell(each)
            if of_target and self.rules.ignores(each):
                found[at] = IGNORED
            elif cell.kind in ("whole", "boolean") and cell.value in (0, 1):
                found[at] = int(cell.value)
            elif cell.kind != "missing":
                remedy = "for one class of each sample pass one column"
                remedy = remedy if of_target else "if these are scores, pass them as scores="
                raise ValueError(f"{column.name} holds {each!s}{column.where([at])}, but labels are 0 and 1; {remedy}")
        missing = [at for at in column.held if found[at] == LEFT_OUT]
        if missing and self.rules.missing != "drop":
            raise ValueError(f"{column.name} has no value{column.where(missing)}; missing='drop' leaves such rows out")
        return found[column.codes]

    def _scores(self, arrays: Mapping[str, Array], start: int, keep: Array) -> tuple[Array, Array]:
        """Return scores ``[n]`` or ``[n, K]``, and the samples to keep that have some."""
        given = self.given
        parts = [floats(given.source.call(name), arrays[name], start) for name in self.columns]
        scores = parts[0] if len(parts) == 1 else np.stack(parts, -1)
        if "" in given.preds and scores.ndim == 2 and self.classes is not None and self.classes.swapped:
            scores = scores[:, ::-1]
        how: Any = {"names": self.names, "missing": self.rules.missing, "logits": self.logits}
        return checked_scores(scores, keep, given.argument, start, whole=not given.labels, **how)

    def placed(self, threshold: Any) -> Any:
        """Return a threshold, or one for each label, as a number of the type of the scores."""
        columns = self.columns[-1:] if self.task == "binary" else self.columns
        return placed(threshold, [self.given.source.type_of(name) for name in columns], self.logits)

    def _extra(self, columns: Mapping[str, Column], arrays: Mapping[str, Array], times: Array | None) -> dict[str, Any]:
        """Return groups, clusters, and weights or frequencies."""
        more, found = self.given.more, {}
        if times is not None and self.given.sums is None:
            found["frequency"] = times.astype(np.int64)
        if "group" in more:
            column, place = columns[more["group"]], {name: at for at, name in enumerate(self.groups)}
            names = [_name_of_group(each, self.rules) for each in column.levels]
            found["group"] = np.array([LEFT_OUT if name is None else place[name] for name in names])[column.codes]
        if "cluster" in more:
            found["cluster"] = ids_of(columns[more["cluster"]])
        for name in ("weight", "frequency", *NAMES):
            if name in more:
                found[name] = _weights(name, arrays[more[name]])
        return found | ({"squares": arrays[SQUARES]} if "weight" in more and SQUARES in arrays else {})


def samples_of(given: Given, rules: Rules, logits: bool) -> Samples:
    """Read the classes of a source from all its values; labels are read part by part."""
    grouped = _grouped(given, rules)
    columns = grouped[0]
    target = columns[next(iter(given.target.values()))]
    rows = int(len(target.codes) if target.times is None else target.times.sum())
    groups = _names_of_groups(columns[given.more["group"]], rules) if "group" in given.more else ()
    notes = list(dict.fromkeys(given.source.notes))
    if "cluster" not in given.more:
        named = [*given.target.values(), *given.preds.values(), *given.more.values()]
        notes += note_on_models(given.source, named, next(iter(given.target.values())), rows)
    if rules.no_answer != () and (given.labels or given.scored):
        raise ValueError("no_answer is for predicted classes; scores and labels always answer")
    if given.labels:
        given, names, of_preds = _of_labels(given, rules)
        return Samples(given, rules, logits, "multilabel", names, of_preds, rows, groups, None, grouped, notes)
    if given.scored:
        if "" in given.preds:
            rules = replace(rules, columns=given.source.width(given.preds[""]))
        classes = typed(target, [], rules)
        of_preds = _columns_of_scores(given, classes, rules.columns, rows)
    else:
        of_preds = [given.preds[""]]
        columns[of_preds[0]] = preds = _answers(target, columns[of_preds[0]], rules)
        classes = typed(target, [preds], rules)
    task: Task = "binary" if classes.binary else "multiclass"
    notes += classes.notes
    return Samples(given, rules, logits, task, classes.names, of_preds, rows, groups, classes, grouped, notes)


def _grouped(given: Given, rules: Rules) -> Columns:
    """Return the columns that decide the classes: of predicted classes, groups of equal samples."""
    keys = list(given.target.values())[:1] + [each for role, each in given.more.items() if role == "group"]
    if given.labels or given.scored:
        grouped = given.source.counted(keys)
    else:
        keys += [*given.preds.values(), *(each for role, each in given.more.items() if role == "cluster")]
        grouped = given.source.counted(keys, given.sums)
    columns = grouped[0]
    if not given.labels:
        some = [name for name in columns if name != given.more.get("cluster")]
        columns.update(zip(some, without_left_out([columns[name] for name in some], rules), strict=True))
    return grouped


def _answers(target: Column, preds: Column, rules: Rules) -> Column:
    """Return only the predictions that answer; raise for targets to ignore that only predictions hold."""
    marked = [at for at in preds.held if rules.ignores(preds.levels[at])]
    if marked and not any(rules.ignores(target.levels[at]) for at in range(len(target.levels))):
        value = preds.levels[marked[0]]
        raise ValueError(
            f"ignore={value!r} leaves out targets, but only {preds.name} holds {value!r}{preds.where(marked)}; "
            f"no_answer={value!r} counts such predictions as misses and as no class"
        )
    silent = [rules.is_no_answer(each) for each in preds.levels]
    if not any(silent):
        return preds
    there = ~np.array(silent)[preds.codes]
    return replace(preds, kept=there if preds.kept is None else there & preds.kept)


def _columns_of_scores(given: Given, classes: Classes, width: int | None, rows: int) -> list[str]:
    """Return the columns of scores in the order of the classes; one for the positive class, or for all of them."""
    names = classes.names
    if "" not in given.preds:
        if classes.binary and list(given.preds) == [names[-1]]:
            return list(given.preds.values())
        return by_class(given.preds, names, given.argument)
    if width is None and not classes.binary:
        raise ValueError(
            f"{given.argument} are one score for each sample, but the classes are {first_names(names)}: floating "
            "preds are scores (convert classes to integers); of two classes name the positive one by positive=, of "
            "several pass scores of all classes, [N, K]"
        )
    if width is not None and width != len(names):
        remedy = f"; for one score pass {given.argument}[:, 0]" if width == 1 else ""
        raise ValueError(
            f"{given.argument} have the shape [{rows}, {width}], but there are {len(names)} classes "
            f"({first_names(names)}), each of which needs a column{remedy}; class_names=[...] names all classes"
        )
    return [given.preds[""]]


def _of_labels(given: Given, rules: Rules) -> tuple[Given, tuple[str, ...], list[str]]:
    """Match the columns of labels; return them, the names of the labels, and the columns of predictions."""
    if rules.positive is not None or rules.task not in (None, "multilabel"):
        raise ValueError("target has several columns, each of which is a label; leave positive and task out")
    names = list(given.target)
    if rules.class_names is not None:
        named = checked_names([str(each) for each in rules.class_names])
        if len(named) != len(names):
            raise ValueError(f"class_names holds {len(named)} names for {len(names)} labels; name each")
        if set(named) != set(names):
            of_preds = {named[names.index(label)]: each for label, each in given.preds.items() if label in names}
            given = replace(given, target=dict(zip(named, given.target.values(), strict=True)), preds=of_preds)
        names = list(named)
    return given, tuple(names), by_class(given.preds, names, given.argument)


def _weights(name: str, given: Array) -> Array:
    """Return weights or costs, float64 ``[N]``, or frequencies, int64."""
    found = floats(name, given, 0).astype(np.float64)
    wrong = ~((found >= 0) & np.isfinite(found) & ((name != "frequency") | (found == np.rint(found))))
    if wrong.any():
        row, kind = int(wrong.argmax()), "whole" if name == "frequency" else "finite"
        if np.isnan(found[row]):
            number = int(np.isnan(found).sum())
            raise ValueError(f"{name} has no value in row {row} ({number} of {len(found)} rows); leave such rows out")
        raise ValueError(f"{name} must be {kind} and not negative, got {found[row]:g} in row {row}")
    return found.astype(np.int64) if name == "frequency" else found


def ids_of(column: Column) -> Array:
    """Return the ids of clusters, int64 ``[N]``: whole numbers as they are, however typed, and hashes of texts."""
    ids = [id_of(each) for each in column.levels]
    missing = [at for at, each in enumerate(ids) if each is None]
    if missing and set(missing) & set(column.held):
        raise ValueError(f"{column.name} has no value{column.where(missing)}; give each sample an id, or leave it out")
    texts = [at for at, each in enumerate(ids) if isinstance(each, str)]
    found = np.array([each if isinstance(each, int) else 0 for each in ids], dtype=np.int64)
    found[texts] = cluster_ids([str(ids[at]) for at in texts]).numpy()
    return found[column.codes]


def _name_of_group(value: Any, rules: Rules) -> str | None:
    """Return the name of a group of samples, None if it is missing."""
    found = id_of(value)
    return str(found) if found is not None else "missing" if rules.missing == "class" else None


def _names_of_groups(column: Column, rules: Rules) -> tuple[str, ...]:
    """Return the names of groups of samples, sorted: numbers in them by value, months by time."""
    names = [_name_of_group(each, rules) for each in column.levels]
    missing = [at for at, name in enumerate(names) if name is None and at in column.held]
    if missing and rules.missing == "raise":
        raise ValueError(
            f"{column.name} has no value{column.where(missing)}; missing='drop' leaves such rows out, missing='class' "
            "makes a group of them"
        )
    found = list(dict.fromkeys(name for name in names if name is not None))
    if len(found) > MOST_GROUPS:
        raise ValueError(f"{column.name} has {len(found):,} different values; group= is for sites and the like")
    for key in (lambda name: float(name) if read_cell(name).kind == "whole" else None, month_of):
        keys: list[Any] = list(map(key, found))
        if None not in keys:
            return tuple(sorted(found, key=dict(zip(found, zip(keys, found, strict=True), strict=True)).__getitem__))
    return tuple(sorted(found, key=natural))


def month_of(name: str) -> tuple[int, int] | None:
    """Return year and month of ``Jan 2026``, ``2026 January`` or ``1/2026``, a year of 0 without one; else None."""
    if numbers := re.fullmatch(r"(0?[1-9]|1[0-2])[./-](\d{4})", name):
        return int(numbers[2]), int(numbers[1])
    found = re.fullmatch(r"(\d{4})?\W*([a-z]{3,9})\.?\W*(\d{4})?", name.lower())
    place = [at for at, month in enumerate(MONTHS, 1) if found and found[2] in (month, month[:3])]
    return (int(found[1] or found[3] or 0), place[0]) if found and place else None
