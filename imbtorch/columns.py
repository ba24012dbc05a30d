"""Classes of saved predictions, typed once: the same rules for arrays, frames, files and engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor, bfloat16

from imbtorch.compat import warn_caller
from imbtorch.metrics.shared_result import checked_names
from imbtorch.suggestions import did_you_mean, first_names

Array: TypeAlias = Any
"""NumPy array of any dtype; the type checker would ask for one."""
Missing: TypeAlias = Literal["raise", "drop", "class"]
WHOLE = np.iinfo(np.int64)
EXACT = 2**53  # up to which floating numbers hold every integer
NARROW = 1_000_000  # span of integers up to which a table finds them
LEFT_OUT, IGNORED, UNKNOWN = -1, -2, -3  # in place of the index of a class: missing, ignored, no class
NO_VALUE = "missing"  # name of the class of missing values without a word
WORDS = {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"}
WORDS |= {"NULL", "NaN", "None", "n/a", "nan", "null", ""}  # all texts that pandas reads as missing
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
MARKS = (-1, -100, 255)  # targets that usually mark samples to ignore


class Cell(NamedTuple):
    """Meaning of one value; its class is the whole number, for booleans 0 or 1, or the text."""

    kind: Literal["missing", "boolean", "whole", "fraction", "text"]
    value: Any


def read_cell(value: Any) -> Cell:
    """Read one value, however it is written.

    >>> [read_cell(each).value for each in (" 1.0", 1, "1e0", "TRUE", "1_0", "NA")]
    [1, 1, 1, 1, '1_0', None]

    Raises:
        TypeError: for anything but texts, numbers, booleans and missing values.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in WORDS:
            return Cell("missing", None)
        if text.lower() in ("true", "false"):
            return Cell("boolean", int(text.lower() == "true"))
        return _number(Decimal(text), value) if NUMBER.fullmatch(text) else Cell("text", value)
    if isinstance(value, (bool, np.bool_)):
        return Cell("boolean", int(value))
    if isinstance(value, (int, np.integer)):
        return Cell("whole", int(value))
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return Cell("missing", None)
    if isinstance(value, (float, np.floating, Decimal)):
        return _number(Decimal(float(value) if isinstance(value, np.floating) else value), value)
    raise TypeError(f"got {value!r}")


def _number(number: Decimal, value: Any) -> Cell:
    """Return a whole number or a fraction; floating numbers that skip integers are too large for a class."""
    if number.is_infinite() or number.adjusted() > 30:
        return Cell("whole", WHOLE.max + 1)
    if number != number.to_integral_value():
        return Cell("fraction", value)
    return Cell("whole", WHOLE.max + 1 if isinstance(value, float) and abs(number) > EXACT else int(number))


def id_of(value: Any) -> int | str | None:
    """Return an id or a name: a whole number, a text (the same number only if written plainly), None if missing."""
    cell = read_cell(value)
    plain = not isinstance(value, str) or value == str(cell.value)
    if cell.kind == "whole" and plain and WHOLE.min <= cell.value <= WHOLE.max:
        return int(cell.value)
    return None if cell.kind == "missing" else str(value)


@dataclass(frozen=True)
class Column:
    """Values of samples, or of groups of equal samples: the different ones, and the place of each.

    Attributes:
        name: name for errors.
        levels: different values, in their order if it is known.
        codes: int64 ``[N]`` place of each value among them.
        times: ``[N]`` number of samples of each group; None for single samples.
        ordered: whether the levels have an order.
        find: function that tells where a level occurs first, such as ``" in row 3 of a.csv"``; None if nobody knows.
    """

    name: str
    levels: list[Any]
    codes: Array
    times: Array | None = None
    ordered: bool = False
    find: Callable[[Any], str] | None = None

    def __len__(self) -> int:
        """Return the number of samples or groups."""
        return len(self.codes)

    def where(self, places: Iterable[int]) -> str:
        """Return a text that says where some levels occur first, and in how many rows."""
        places = list(places)
        wanted = np.isin(self.codes, places)
        if self.times is not None:
            first = "" if self.find is None else self.find(self.levels[places[0]])
            return f"{first} ({self.times[wanted].sum():g} of {self.times.sum():g} rows)"
        return f" in row {int(wanted.argmax())} ({int(wanted.sum())} of {len(wanted)} rows)"

    @cached_property
    def cells(self) -> list[Cell]:
        """Meanings of the levels; raise TypeError for a level that is no class."""
        found = []
        for at, each in enumerate(self.levels):
            try:
                found.append(read_cell(each))
            except TypeError as error:
                raise TypeError(
                    f"{self.name} must hold strings, integers or booleans, {error}{self.where([at])}; convert them"
                ) from None
        return found

    def sizes(self) -> Array:
        """Return the number of samples of each level."""
        return np.bincount(self.codes, self.times, len(self.levels))


def as_array(name: str, given: Any) -> Array:
    """Convert values to an array."""
    if isinstance(given, Tensor):
        dense = given.detach().cpu()
        return (dense.float() if dense.dtype == bfloat16 else dense).numpy()
    if given is None or isinstance(given, str):
        raise TypeError(f"{name} must hold a value for each sample, got {given!r}; pass the column itself")
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], str):
        return np.array(given, dtype=object)  # NumPy would turn numbers among strings into strings
    try:
        arrow = {"zero_copy_only": False} if type(given).__module__.startswith("pyarrow") else {}
        found: Array = given.to_numpy(**arrow) if hasattr(given, "to_numpy") else np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} must be one column, or rows of equal length: {error}") from error
    if found.ndim == 0:
        raise TypeError(f"{name} must hold a value for each sample, got {given!r}")
    if isinstance(given, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(given).reshape(len(found), -1).any(1)
        if masked.any():
            raise ValueError(f"{name} has no value in row {int(masked.argmax())} ({int(masked.sum())} are masked)")
    if found.dtype.kind == "U" and isinstance(given, (list, tuple)):
        return np.array(given, dtype=object)
    if found.dtype == object and found.ndim == 1 and len(found):
        if isinstance(found[0], (list, tuple, np.ndarray)):
            return as_array(name, list(map(list, found)))
        if type(found[0]) is float and set(map(type, found)) == {float}:
            return found.astype(float)
    return found


def column_of(name: str, given: Any) -> Column:
    """Find the different values of a column.

    Raises:
        ValueError: for no values, and several columns.
        TypeError: for values that cannot be compared.
    """
    order, values = _order(given), as_array(name, given)
    if values.ndim != 1:
        raise ValueError(f"{name} must be one column, [N], got the shape {list(values.shape)}")
    if not len(values):
        raise ValueError(f"{name} is empty, so there is nothing to report")
    if values.dtype.kind in "iub" and order is None:
        least, most = int(values.min()), int(values.max())
        if most - least < NARROW:
            shifted = values.astype(np.int64) - least
            known = np.bincount(shifted).nonzero()[0]
            place = np.zeros(most - least + 1, dtype=np.int64)
            place[known] = np.arange(len(known))
            levels = (known + least).tolist()
            return Column(name, [bool(each) for each in levels] if values.dtype.kind == "b" else levels, place[shifted])
    if values.dtype.kind in "iubf" and order is None:
        unique, codes = np.unique(values, return_inverse=True)
        return Column(name, unique.tolist(), codes)
    listed = values.tolist()
    try:
        found = list(dict.fromkeys([*(order or ()), *listed]))
        index = {each: at for at, each in enumerate(found)}
        codes = np.fromiter(map(index.__getitem__, listed), np.int64, len(listed))
    except TypeError as error:
        raise TypeError(f"{name} must hold strings, integers or booleans: {error}") from error
    return Column(name, found, codes, ordered=order is not None)


def _order(given: Any) -> list[Any] | None:
    """Return the categories of a column whose type orders them: ordered Categorical, Enum, ordered dictionary."""
    kind = getattr(given, "dtype", None)
    if getattr(kind, "ordered", False) or type(kind).__name__ == "Enum":
        return list(kind.categories)
    if getattr(getattr(given, "type", None), "ordered", False):
        parts = given.unify_dictionaries().chunks if hasattr(given, "chunks") else [given]
        return list(parts[0].dictionary.to_pylist()) if parts else None
    return None


# --- classes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """Arguments that decide how values become classes; :func:`imbtorch.report` documents them.

    ``columns`` is the number of columns of scores without names.
    """

    class_names: Sequence[Any] | Mapping[Any, Any] | None = None
    positive: Any = None
    task: str | None = None
    ignore: tuple[Any, ...] = ()
    missing: Missing = "raise"
    columns: int | None = None

    def __post_init__(self) -> None:
        """Raise for class names that are no sequence."""
        given = self.class_names
        if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
            raise TypeError(
                f"class_names must be a sequence in the order of the classes, such as a list, got {given!r}"
            )

    @cached_property
    def names(self) -> list[str] | None:
        """Names of the classes."""
        given: Any = self.class_names
        if given is None:
            return None
        given = given.values() if isinstance(given, Mapping) else given
        return list(checked_names([str(each) for each in (given.tolist() if hasattr(given, "tolist") else given)]))

    def ignores(self, value: Any) -> bool:
        """Return whether a target marks samples to leave out."""
        same = [each for each in self.ignore if each == value or each is value]
        return bool(same) or (bool(self.ignore) and read_cell(value) in [read_cell(each) for each in self.ignore])

    def word(self, value: Any) -> str | None:
        """Return the class of a value that reads as missing, if it is one."""
        word = value.strip() if isinstance(value, str) else ""
        is_class = self.missing == "class" or bool(word and word in (self.names or ()))
        return (word or NO_VALUE) if is_class else None


@dataclass
class Classes:
    """Classes of targets and predictions, and the index of each value.

    Attributes:
        rules: arguments that decided.
        kind: type of the classes.
        names: their names, in the order of their indices.
        index: index of each class.
        binary: whether the last of two classes is the positive one.
        swapped: whether ``positive`` put the first of two classes last.
        ordered: whether their order is known rather than alphabetical.
        notes: what a reader of the table must know.
    """

    rules: Rules
    kind: Literal["strings", "integers", "booleans"]
    names: tuple[str, ...] = ()
    index: dict[Any, int] = field(default_factory=dict)
    binary: bool = False
    swapped: bool = False
    ordered: bool = False
    notes: list[str] = field(default_factory=list)

    def keys(self, column: Column) -> list[Any]:
        """Return the class of each level: a text, or the integer for integers and booleans; None if it is missing."""
        texts = self.kind == "strings"
        return [
            self.rules.word(each)
            if cell.kind == "missing"
            else (each if isinstance(each, str) else str(cell.value))
            if texts
            else cell.value
            for each, cell in zip(column.levels, column.cells, strict=True)
        ]

    def table(self, column: Column, of_target: bool) -> Array:
        """Return the index of the class of each level, or :data:`LEFT_OUT` or :data:`IGNORED`.

        Raises:
            ValueError: for a level that is no class.
        """
        keys = self.keys(column)
        found = np.array([LEFT_OUT if key is None else self.index.get(key, UNKNOWN) for key in keys], dtype=np.int64)
        if of_target and self.rules.ignore:
            found[list(map(self.rules.ignores, column.levels))] = IGNORED
        unknown = np.flatnonzero((found == UNKNOWN) & (column.sizes() > 0)).tolist()
        if unknown:
            shown, text = (
                keys[unknown[0]],
                f"{column.name} holds {keys[unknown[0]]!r}{column.where(unknown[:1])}, which ",
            )
            if of_target:
                raise ValueError(
                    f"{text}is none of class_names ({first_names(self.names)}); add it there, or leave such rows out by "
                    f"ignore={shown!r}"
                )
            meant = did_you_mean(shown, self.names) if isinstance(shown, str) else ""
            raise ValueError(
                f"{text}no target has ({first_names(self.names)}){meant}; if it is a "
                "class, name all classes by class_names=[...]"
            )
        return found


def typed(target: Column, preds: Sequence[Column], rules: Rules) -> Classes:
    """Decide the classes from all values of targets and predictions.

    Args:
        target: true classes.
        preds: predicted classes of each model; none for scores.
        rules: arguments that decide.

    Raises:
        ValueError: for missing values, fractions, values with two readings, and fewer than two classes.
        TypeError: for values that are no classes, and classes of different types.
    """
    columns = [target, *preds]
    places = [_checked(column, rules, column is target) for column in columns]
    if not places[0]:
        raise ValueError(f"{target.name} holds no class; all rows are missing, or left out by ignore")
    classes = Classes(rules, "strings")
    if not _all_named(columns, places, rules):
        classes.kind = _kind(columns, places)
    keys = [[classes.keys(column)[at] for at in some] for column, some in zip(columns, places, strict=True)]
    present = list(dict.fromkeys(keys[0]))
    predicted = {key for some in keys[1:] for key in some}
    if classes.kind == "integers":
        _check_integers(columns, places)
        if any(isinstance(column.levels[at], str) for column, some in zip(columns, places, strict=True) for at in some):
            held = first_names(list(map(str, sorted({*present, *predicted}))))
            classes.notes.append(f"classes {held}: whole numbers, read from text")
    _check_marks(target, classes, places[0], predicted)
    ordered = [column for column in columns if column.ordered]
    if ordered:
        present, classes.ordered = classes.keys(max(ordered, key=lambda column: len(column.levels))), True
        for column in ordered:
            ranks = [present.index(key) if key in present else -1 for key in classes.keys(column)]
            if -1 in ranks or ranks != sorted(ranks):
                raise ValueError(
                    f"{ordered[0].name} and {column.name} order their categories differently: {first_names(present)} "
                    f"and {first_names(list(map(str, column.levels)))}; name all classes by class_names=[...]"
                )
    elif classes.kind != "strings" or rules.missing != "class":
        present = sorted(present)
    else:
        present = sorted(present, key=lambda name: (0, float(name), "") if NUMBER.fullmatch(name) else (1, 0.0, name))
    _finish(classes, present, target)
    return classes


def _checked(column: Column, rules: Rules, of_target: bool) -> list[int]:
    """Return the places of the levels that are classes; raise for missing ones."""
    held = [at for at in np.flatnonzero(column.sizes() > 0).tolist()]
    held = [at for at in held if not (of_target and rules.ignores(column.levels[at]))]
    missing = [at for at in held if column.cells[at].kind == "missing" and rules.word(column.levels[at]) is None]
    if missing and rules.missing == "raise":
        words = sorted({column.levels[at].strip() for at in missing if isinstance(column.levels[at], str)} - {""})
        written = f" written as {first_names(list(map(repr, words)))}" if words else ""
        named = f"class_names= that holds {words[0]!r}, or " if words else ""
        raise ValueError(
            f"{column.name} has no value{column.where(missing)}{written}; missing='drop' leaves such rows out; {named}"
            "missing='class' makes a class of them"
        )
    return [at for at in held if at not in missing]


def _all_named(columns: Sequence[Column], places: Sequence[Sequence[int]], rules: Rules) -> bool:
    """Return whether values are texts because a missing value is a class, or class_names holds all their fractions."""
    cells = [(column.levels[at], column.cells[at]) for column, some in zip(columns, places, strict=True) for at in some]
    named = all(isinstance(each, str) and each in (rules.names or ()) for each, _ in cells)
    kinds = {cell.kind for _, cell in cells}
    return "missing" in kinds or ("fraction" in kinds and named)


def _kind(columns: Sequence[Column], places: Sequence[Sequence[int]]) -> Literal["strings", "integers", "booleans"]:
    """Return the type of all classes."""
    kinds = [{column.cells[at].kind for at in some} for column, some in zip(columns, places, strict=True)]
    alike = [some for some in kinds if some]
    if all(some in ({"boolean"}, {"whole"}) for some in alike):
        if {"whole"} not in alike:
            return "booleans"
        held = {column.cells[at].value for column, some in zip(columns, places, strict=True) for at in some}
        if {"boolean"} not in alike or held <= {0, 1}:
            return "booleans" if kinds[0] == {"boolean"} else "integers"
    for column, some, found in zip(columns, places, kinds, strict=True):
        if "fraction" in found and found <= {"fraction", "whole"}:
            at = next(at for at in some if column.cells[at].kind == "fraction")
            remedy = "pass integers or strings, or name all classes by class_names=[...]"
            remedy = remedy if column is columns[0] else "if these are scores, pass them as scores="
            held = f"{column.name} holds {column.levels[at]!s}{column.where([at])}"
            raise ValueError(f"{held}, which is no class; {remedy}")
    texts = [{isinstance(column.levels[at], str) for at in some} for column, some in zip(columns, places, strict=True)]
    for column, some, found in zip(columns, places, texts, strict=True):
        if len(found) > 1:
            first = isinstance(column.levels[int(column.codes[0])], str)
            at = next(at for at in some if isinstance(column.levels[at], str) != first)
            raise TypeError(
                f"{column.name} must hold strings, integers or booleans, all of one type, got {column.levels[at]!r}"
                f"{column.where([at])}; convert all of them to strings"
            )
        if found and found != texts[0]:
            called = ["strings" if True in each else "integers" for each in (texts[0], found)]
            raise TypeError(f"{columns[0].name} holds {called[0]} and {column.name} {called[1]}; convert one of them")
    if False in texts[0]:
        raise TypeError(f"{columns[0].name} and predictions mix booleans and other numbers; convert one of them")
    return "strings"


def _check_integers(columns: Sequence[Column], places: Sequence[Sequence[int]]) -> None:
    """Raise for integers that differ by leading zeros only, and those that int64 cannot hold."""
    forms: dict[int, dict[bool, str]] = {}
    for column, some in zip(columns, places, strict=True):
        for at in some:
            text, number = column.levels[at], column.cells[at].value
            if not WHOLE.min <= number <= WHOLE.max:
                raise ValueError(
                    f"{column.name} holds a number{column.where([at])} that is too large for a class; pass classes as "
                    "strings with a letter, such as 'id 7'"
                )
            if isinstance(text, str):
                forms.setdefault(number, {})[bool(re.match(r"[+-]?0[0-9]", text.strip()))] = text
    for found in forms.values():
        if len(found) > 1:
            raise ValueError(
                f"the classes {found[False]!r} and {found[True]!r} differ by leading zeros only; write them alike"
            )


def _check_marks(target: Column, classes: Classes, places: Sequence[int], predicted: set[Any]) -> None:
    """Raise for targets that look like marks of samples to ignore: no prediction holds them, beside proper classes."""
    keys, names = classes.keys(target), classes.rules.names or ()
    alone = [at for at in places if keys[at] not in predicted and str(keys[at]) not in names]
    marks = [at for at in alone if not re.search(r"\w", str(keys[at]))]
    if classes.kind == "integers":
        marks = [at for at in alone if keys[at] in MARKS]
        rest = {keys[at] for at in places if at not in marks} | predicted
        marks = marks if rest and min(rest) >= 0 and max(rest) < max(MARKS) - 1 else []
    if marks:
        mark = keys[marks[0]]
        raise ValueError(
            f"{target.name} holds {mark!r}{target.where(marks[:1])}, which no prediction does; if it marks rows without a "
            f"known class, leave them out by ignore={mark!r}; if it is a class, name all classes by class_names=[...]"
        )


def _finish(classes: Classes, present: list[Any], target: Column) -> None:
    """Set the order, the names and the positive class."""
    rules, names, columns = classes.rules, classes.rules.names, classes.rules.columns
    order = present
    if names is not None:
        order = _of_names(classes, names, present)
    elif classes.kind == "booleans":
        order, names = [0, 1], ["False", "True"]
    elif classes.kind == "integers" and not classes.ordered:
        if columns is not None and columns > 2 and present[0] > 0 and present[-1] < columns:
            raise ValueError(
                f"target holds neither 0 nor {columns}, so that the {columns} columns of preds may be the classes 0 to "
                f"{columns - 1} or 1 to {columns}; name them by class_names=[...]"
            )
        from_zero = list(range(columns or 2))
        order = from_zero if set(present) <= set(from_zero) else present
    names = list(map(str, order)) if names is None else names
    if len(names) < 2:
        raise ValueError(f"{target.name} holds one class only, {names[0]!r}; name all classes by class_names=[...]")
    classes.ordered |= rules.names is not None or classes.kind == "integers"
    if columns == len(names) and not classes.ordered:
        parts = [[int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)] for name in names]
        if parts != sorted(parts):
            natural = [names[at] for at in sorted(range(len(names)), key=parts.__getitem__)]
            raise ValueError(
                f"the columns of scores have no names, and the classes sort as {first_names(names)}, not as "
                f"{first_names(natural)}; name the columns (a frame or mapping), or the classes by class_names=[...]"
            )
    if rules.positive is not None:
        classes.swapped, classes.binary = _is_first(rules.positive, names), True
    elif len(names) == 2 and classes.kind != "strings" and set(order) == {0, 1} and rules.task != "multiclass":
        classes.swapped, classes.binary = order[0] == 1, True
    if rules.task in ("binary", "multilabel") and not (classes.binary and rules.task == "binary"):
        remedy = (
            "name the positive class, one of two, by positive=" if rules.task == "binary" else "pass a column a label"
        )
        raise ValueError(f"task={rules.task!r} does not fit one column of the classes {first_names(names)}; {remedy}")
    if classes.kind == "strings":
        _warn_of_look_alikes(names)
    step = -1 if classes.swapped else 1
    classes.names, classes.index = tuple(names[::step]), {each: at for at, each in enumerate(order[::step])}


def _of_names(classes: Classes, names: list[str], present: Sequence[Any]) -> list[Any]:
    """Return the class of each name: the same value, or the integers from 0 on, which the names then describe."""
    given = classes.rules.class_names
    if isinstance(given, Mapping):
        return [str(each) if classes.kind == "strings" else read_cell(each).value for each in given]
    if classes.kind == "strings":
        return list(names)
    positions, cells = list(range(len(names))), list(map(read_cell, names))
    values = [cell.value for cell in cells if cell.kind == ("boolean" if classes.kind == "booleans" else "whole")]
    fits = len(values) == len(names) and set(present) <= set(values)
    if fits and set(values) != set(positions) and set(present) <= set(positions):
        raise ValueError(
            f"class_names {first_names(names)} may be the classes themselves or names of 0 to {len(names) - 1}, and the "
            f"targets fit both; say which by a mapping of class to name, as in class_names={{0: {names[0]!r}, ...}}"
        )
    return values if fits else positions


def _is_first(positive: Any, names: Sequence[str]) -> bool:
    """Return whether the first of two classes is the positive one; raise if neither is."""
    if len(names) != 2:
        raise ValueError(
            f"positive is for two classes, but there are {len(names)}: {first_names(names)}; leave it out, or report "
            "one class against the rest: target == positive"
        )
    called = str(positive)
    if called not in names and read_cell(positive).kind in ("whole", "boolean"):  # true, 1.0
        value = read_cell(positive).value
        called = next((name for name in names if read_cell(name).value == value), called)
    if called not in names:
        raise ValueError(
            f"positive is {positive!r}, which is none of the classes {first_names(names)}{did_you_mean(called, names)}"
        )
    return names.index(called) == 0


def _warn_of_look_alikes(names: Sequence[str]) -> None:
    """Warn of classes that differ only by case, outer spaces, or how a number is written."""
    forms: dict[Any, list[str]] = {}
    for name in names:
        cell = read_cell(name)
        forms.setdefault(cell.value if cell.kind == "whole" else name.strip().casefold(), []).append(name)
    alike = next((some for some in forms.values() if len(some) > 1), None)
    if alike is not None:
        shown = " and ".join(map(repr, alike[:3]))
        warn_caller(f"the classes {shown} differ only in how they are written, and count as different classes")
