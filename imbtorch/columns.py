"""Classes of saved predictions, typed once: the same rules for arrays, frames, files and engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from imbtorch.reports.texts import checked_names
from imbtorch.suggestions import did_you_mean, first_names

Array: TypeAlias = Any  # NumPy array; the type checker would ask for a dtype
Missing: TypeAlias = Literal["raise", "drop", "class"]
WHOLE = np.iinfo(np.int64)
EXACT = 2**53  # up to which floating numbers hold every integer
LEFT_OUT, IGNORED, UNKNOWN = -1, -2, -3  # in place of the index of a class: missing, ignored, no class
WORDS = {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"}
WORDS |= {"NULL", "NaN", "None", "n/a", "nan", "null", ""}  # all texts that pandas reads as missing
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
NO_VALUE = r"none|na|n\.a\.?|n/a|null|nat|nan|unknown|missing|undefined|unlabell?ed"  # in any case, also in () or <>
NO_VALUE = (
    rf"(?i:{NO_VALUE}|\((?:{NO_VALUE})\)|<(?:{NO_VALUE})>|\\n|#[a-z0/_]+[!?]|#n/a|#getting_data|[-\u2013\u2014]+)"
)
MARKS = (-1, -100, 255)  # targets that usually mark samples to ignore


class Cell(NamedTuple):
    """Meaning of one value; its class is the whole number, for booleans 0 or 1, or the text."""

    kind: Literal["missing", "boolean", "whole", "fraction", "text"]
    value: Any


def read_cell(value: Any) -> Cell:
    """Read one value, however it is written; raise a TypeError for anything but texts, numbers and missing values.

    >>> [read_cell(each).value for each in (" 1.0", 1, "1e0", "TRUE", "1_0", "NA")]
    [1, 1, 1, 1, '1_0', None]
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
        return _number(value if isinstance(value, Decimal) else Decimal(float(value)), value)
    raise TypeError(f"got {value!r}")


def _number(number: Decimal, value: Any) -> Cell:
    """Return a whole number or a fraction; floating numbers that skip integers are too large for a class."""
    if number.is_infinite() or number.adjusted() > 30 or (isinstance(value, float) and abs(number) > EXACT):
        return Cell("whole", WHOLE.max + 1)
    return Cell("whole", int(number)) if number == number.to_integral_value() else Cell("fraction", value)


@dataclass(frozen=True)
class Column:
    """Values of samples, or of groups of equal samples: the different ones, and the place of each.

    ``codes`` are the places ``[N]`` of the values among the different ones, ``times`` the numbers of samples of groups,
    ``kept`` bools of the samples that are not left out; ``find`` says where a level occurs first. The type of each part
    of the column may order the levels (``orders``). ``again`` marks the targets of a second source.
    """

    name: str
    levels: list[Any]
    codes: Array
    times: Array | None = None
    orders: Sequence[list[Any]] = ()
    find: Callable[[Any], str] | None = None
    kept: Array | None = None
    again: bool = False

    def where(self, places: Sequence[int]) -> str:
        """Return a text that says where some levels occur first, and in how many rows."""
        wanted = np.isin(self.codes, places)
        if self.times is None:
            return f" in row {int(wanted.argmax())} ({int(wanted.sum())} of {len(wanted)} rows)"
        first = "" if self.find is None else self.find(self.levels[places[0]])
        return f"{first} ({self.times[wanted].sum():.15g} of {self.times.sum():.15g} rows)"

    @cached_property
    def cells(self) -> list[Cell]:
        """Meanings of the levels; raises a TypeError for a level that is no class."""
        found: list[Cell] = []
        try:
            found.extend(map(read_cell, self.levels))
        except TypeError as error:
            text = f"{self.name} must hold strings, integers or booleans, {error}{self.where([len(found)])}"
            raise TypeError(f"{text}; convert them") from None
        return found

    @cached_property
    def held(self) -> list[int]:
        """Places of the levels that occur among the samples that are kept."""
        kept = slice(None) if self.kept is None else self.kept
        times = None if self.times is None else self.times[kept]
        return list(np.flatnonzero(np.bincount(self.codes[kept], times, len(self.levels)) > 0).tolist())


@dataclass(frozen=True)
class Rules:
    """Arguments of a report that decide the classes, and the number of columns of scores without names."""

    class_names: Sequence[Any] | Mapping[Any, Any] | None = None
    positive: Any = None
    task: str | None = None
    ignore: Any = None
    missing: Missing = "raise"
    no_answer: Any = ()
    columns: int | None = None
    ignored_by: str = "ignore"  # name of the argument in errors

    @cached_property
    def names(self) -> list[str] | None:
        """Names of the classes."""
        given: Any = self.class_names
        if given is None:
            return None
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise TypeError(f"class_names must be a sequence in the order of the classes, like a list, got {given!r}")
        given = given.values() if isinstance(given, Mapping) else given
        return list(checked_names([str(each) for each in (given.tolist() if hasattr(given, "tolist") else given)]))

    @cached_property
    def marks(self) -> tuple[Any, ...]:
        """Targets whose samples are left out."""
        given = self.ignore if isinstance(self.ignore, (list, tuple, set)) else [self.ignore]
        return () if self.ignore is None else tuple(map(_bare, given))

    def ignores(self, value: Any) -> bool:
        """Return whether a target marks samples to leave out."""
        return any(read_cell(each) == read_cell(_bare(value)) for each in self.marks)

    def is_no_answer(self, value: Any) -> bool:
        """Return whether a prediction is no answer; None stands for all missing values."""
        given = self.no_answer if isinstance(self.no_answer, (list, tuple, set)) else [self.no_answer]
        return any(read_cell(each) == read_cell(_bare(value)) for each in map(_bare, given))

    def word(self, value: Any) -> str | None:
        """Return the class of a value that reads as missing, if it is one."""
        word = value.strip() if isinstance(value, str) else ""
        return (word or "missing") if self.missing == "class" or (word and word in (self.names or ())) else None


def _bare(value: Any) -> Any:
    """Return a text without the spaces around it; anything else as it is."""
    return value.strip() if isinstance(value, str) else value


@dataclass
class Classes:
    """Classes of targets and predictions, and the index of each.

    Of two ``binary`` classes the last one is positive, and they are ``swapped`` if ``positive`` put the first one last.
    ``alike`` strings are numbers or booleans beside missing values: ``1`` and ``1.0`` are one class.
    ``ordered`` says whether the order is more than alphabetical. A reader of the table must know the ``notes``.
    """

    rules: Rules
    kind: Literal["strings", "integers", "booleans"]
    names: tuple[str, ...] = ()
    index: dict[Any, int] = field(default_factory=dict)
    binary: bool = False
    swapped: bool = False
    ordered: bool = False
    alike: bool = False
    notes: list[str] = field(default_factory=list)

    def keys(self, column: Column) -> list[Any]:
        """Return the class of each level: a text, or the integer for integers and booleans; None if it is missing."""
        found: list[Any] = []
        for value, cell in zip(column.levels, column.cells, strict=True):
            as_it_is = isinstance(value, str) and (not self.alike or value in (self.rules.names or ()))
            key: Any = cell.value if self.kind != "strings" else value if as_it_is else str(cell.value)
            found.append(self.rules.word(value) if cell.kind == "missing" else key)
        return found

    def table(self, column: Column, of_target: bool) -> Array:
        """Return the index of the class of each level, or :data:`LEFT_OUT` or :data:`IGNORED`."""
        keys = self.keys(column)
        found = np.array([LEFT_OUT if key is None else self.index.get(key, UNKNOWN) for key in keys], dtype=np.int64)
        if of_target and self.rules.marks:
            found[list(map(self.rules.ignores, column.levels))] = IGNORED
        for at in column.held:
            if found[at] == UNKNOWN:
                text = f"{column.name} holds {keys[at]!r:.100}{column.where([at])}, which"
                meant = did_you_mean(keys[at], self.names) if self.kind == "strings" else ""
                remedy = "is none of class_names; add it there, or leave such rows out by "
                if self.rules.ignored_by == "unclear":
                    remedy = "is no class of the pool; correct it, or only if nobody can decide, pass "
                remedy += f"{self.rules.ignored_by}={keys[at]!r:.100}"
                if not of_target:
                    value = None if column.cells[at].kind == "missing" else keys[at]
                    remedy = "no target has; if it is a class, name all classes by class_names=[...]; if it is"
                    remedy += f" no answer, a report takes no_answer={value!r:.50}"
                raise ValueError(f"{text} {remedy}; classes are {first_names(self.names)}{meant}")
        return found


def without_left_out(columns: Sequence[Column], rules: Rules) -> list[Column]:
    """Return columns, the first of which holds targets, that do not look at the samples which ``rules`` leave out."""
    if rules.missing != "drop" and not rules.marks:
        return list(columns)
    kept, drop = np.ones(len(columns[0].codes), dtype=bool), rules.missing == "drop"
    for column in columns:
        pairs = zip(column.levels, column.cells, strict=True)
        out = [drop and cell.kind == "missing" and rules.word(each) is None for each, cell in pairs]
        if column is columns[0] or column.again:
            out = [left or rules.ignores(each) for left, each in zip(out, column.levels, strict=True)]
        else:
            out = [left and not rules.is_no_answer(each) for left, each in zip(out, column.levels, strict=True)]
        kept &= ~np.array(out)[column.codes]
    return [replace(column, kept=kept) for column in columns]


def typed(target: Column, preds: Sequence[Column], rules: Rules) -> Classes:
    """Decide the classes from all values of targets, and of the predictions of each model; none for scores."""
    columns = [target, *preds]
    places = [_checked(column, rules, column is target) for column in columns]
    if not places[0]:
        raise ValueError(f"{target.name} holds no class; all rows are missing, or left out by ignore")
    _check_words(target, rules, places[0])
    found = [(column, at) for column, some in zip(columns, places, strict=True) for at in some]
    kinds = {column.cells[at].kind for column, at in found}
    texts = {column.levels[at] if isinstance(column.levels[at], str) else "" for column, at in found}
    are_names = "missing" in kinds or ("fraction" in kinds and texts <= set(rules.names or ()))
    alike = "missing" in kinds and (kinds <= {"missing", "whole", "fraction"} or kinds == {"missing", "boolean"})
    classes = Classes(rules, "strings" if are_names else _kind(columns, places), alike=alike)
    keys = [[key[at] for at in some] for key, some in zip(map(classes.keys, columns), places, strict=True)]
    present = list(dict.fromkeys(keys[0]))
    predicted = {key for column, some in zip(preds, keys[1:], strict=True) for key in some if not column.again}
    if alike or classes.kind == "integers":
        _check_integers(classes, [(column, at) for column, at in found if column.cells[at].kind == "whole"])
    _check_marks(target, classes, places[0], predicted)
    if rules.names is None and any(column.orders for column in columns):
        present, classes.ordered = _ordered(classes, columns), True
    else:
        present.sort()
        if classes.kind == "strings" and rules.missing == "class":  # numbers first, by value
            present.sort(key=lambda name: float(name) if NUMBER.fullmatch(name) else float("inf"))
    _finish(classes, present, target)
    return classes


def _checked(column: Column, rules: Rules, of_target: bool) -> list[int]:
    """Return the places of the levels that are classes; raise for missing ones."""
    of_target |= column.again
    held = [at for at in column.held if not (of_target and rules.ignores(column.levels[at]))]
    missing = [at for at in held if column.cells[at].kind == "missing" and rules.word(column.levels[at]) is None]
    if missing and rules.missing == "raise":
        words = sorted({column.levels[at].strip() for at in missing if isinstance(column.levels[at], str)} - {""})
        written = f" written as {first_names(list(map(repr, words)))}" if words else ""
        named = f"class_names= that holds {words[0]!r}, or " if words else ""
        text = f"{column.name} has no value{column.where(missing)}{written}; missing='drop' leaves such rows out"
        counts = "; in a report no_answer=None counts them as misses"
        counts = "; estimate serves pools of which a plan drew the rows to label" if of_target else counts
        raise ValueError(f"{text}; {named}missing='class' makes a class of them{counts}")
    return sorted({*held}.difference(missing))


def _check_words(target: Column, rules: Rules, places: Sequence[int]) -> None:
    """Raise for a word that stands for no value beside whole numbers or booleans."""
    texts = [at for at in places if target.cells[at].kind == "text" and target.levels[at] not in (rules.names or ())]
    words = [at for at in texts if re.fullmatch(NO_VALUE, target.levels[at].strip())]
    rest = {target.cells[at].kind for at in {*places}.difference(words)}
    if words and rest and rest <= {"whole", "boolean", "missing"} and rules.missing != "class":
        word = target.levels[words[0]].strip()
        raise ValueError(
            f"{target.name} holds {word!r}{target.where(words[:1])} beside whole numbers; if it stands for no value, "
            f"leave such rows out by ignore={word!r}; if it is a class, name all classes by class_names=[...]"
        )


def _kind(columns: Sequence[Column], places: Sequence[Sequence[int]]) -> Literal["strings", "integers", "booleans"]:
    """Return the type of all classes; raise for fractions and mixed types."""
    pairs = list(zip(columns, places, strict=True))
    kinds = [{column.cells[at].kind for at in some} for column, some in pairs]
    if all(some in (set(), {"boolean"}, {"whole"}) for some in kinds) and (
        {"boolean"} not in kinds or {column.cells[at].value for column, some in pairs for at in some} <= {0, 1}
    ):
        return "booleans" if kinds[0] == {"boolean"} else "integers"
    texts = [{isinstance(column.levels[at], str) for at in some} for column, some in pairs]
    for (column, some), found, types in zip(pairs, kinds, texts, strict=True):
        if "fraction" in found and found <= {"fraction", "whole"}:
            remedy = "pass integers or strings, or name all classes by class_names=[...]"
            if column is not columns[0]:
                remedy = "if these are scores, pass them as scores=, or compare them with threshold= or alerts="
            raise ValueError(f"{column.name} holds {_fractions_text(column, some)}, which is no class; {remedy}")
        if len(types) > 1:
            first = isinstance(column.levels[int(column.codes[0])], str)
            at = next(at for at in some if isinstance(column.levels[at], str) != first)
            text = f"{column.name} must hold strings, integers or booleans, all of one type, got {column.levels[at]!r}"
            raise TypeError(f"{text}{column.where([at])}; convert all of them to strings")
        if types and types != texts[0]:
            called = ["strings" if True in each else "integers" for each in (texts[0], types)]
            raise TypeError(f"{columns[0].name} holds {called[0]} and {column.name} {called[1]}; convert one of them")
    if False in texts[0]:
        raise TypeError(f"{columns[0].name} and predictions mix booleans and other numbers; convert one of them")
    return "strings"


def _fractions_text(column: Column, places: Sequence[int]) -> str:
    """Return the first fraction of a column, and in how many rows there are some."""
    fractions = [at for at in places if column.cells[at].kind == "fraction"]
    where = column.where(fractions)
    if len(places) == len(column.levels) and all(0 <= float(each) <= 1 for each in column.levels):
        number = len(column.codes) if column.times is None else column.times.sum()
        where = f"{where.partition(' (')[0]} (all {number:,.15g} rows hold scores)"
    return f"{column.levels[fractions[0]]}{where}"


def _check_integers(classes: Classes, found: Sequence[tuple[Column, int]]) -> None:
    """Raise for integers that differ by leading zeros only, and those that int64 cannot hold; note what was text."""
    forms: dict[int, dict[bool, str]] = {}
    for column, at in found:
        text, number = column.levels[at], column.cells[at].value
        if not WHOLE.min <= number <= WHOLE.max:
            text = f"{column.name} holds a number{column.where([at])} that is too large for a class"
            raise ValueError(f"{text}; pass classes as strings with a letter, such as 'id 7'")
        if isinstance(text, str):
            some = forms.setdefault(number, {})
            some[bool(re.match(r"[+-]?0[0-9]", text.strip()))] = text
            if len(some) > 1:
                raise ValueError(f"{some[False]!r} and {some[True]!r} differ by leading zeros only; write them alike")
    if forms and classes.kind == "integers":
        held = first_names(list(map(str, sorted({column.cells[at].value for column, at in found}))))
        classes.notes.append(f"classes {held}: whole numbers, read from text")


def _check_marks(target: Column, classes: Classes, places: Sequence[int], predicted: set[Any]) -> None:
    """Raise for targets that look like marks of samples to ignore: no prediction holds them, beside proper classes."""
    keys, known = classes.keys(target), predicted | set(classes.rules.names or ())
    alone = [at for at in places if keys[at] not in known and str(keys[at]) not in known]
    marks = [at for at in alone if not re.search(r"\w", str(keys[at]))]
    if classes.kind == "integers":
        marks = [at for at in alone if keys[at] in MARKS]
        rest = {keys[at] for at in places}.difference(MARKS) | predicted
        marks = marks if rest and min(rest) >= 0 and max(rest) < max(MARKS) - 1 else []
    for at in marks[:1]:
        held = f"{target.name} holds {keys[at]!r}{target.where([at])}"
        if {keys[at] for at in places} == {-1, 1}:
            raise ValueError(f"{held} and 1; if -1 is the negative class, pass class_names=[-1, 1] and positive=1")
        raise ValueError(
            f"{held}, which no prediction does; if it marks rows without a class, leave them out by "
            f"ignore={keys[at]!r}; if it is a class, name all classes by class_names=[...]"
        )


def _ordered(classes: Classes, columns: Sequence[Column]) -> list[Any]:
    """Return the classes in the order of the types of some columns; raise if these differ."""
    orders = []
    for column in columns:
        if [] in column.orders:
            lost = f"the file says that categories of {column.name} are ordered, but not how"
            raise ValueError(f"{lost}; name all in their order by class_names=[...]")
        keys = dict(zip(column.levels, classes.keys(column), strict=True))
        orders += [[keys[level] for level in order] for order in column.orders]
    longest = max(orders, key=len)
    for order in orders:
        if [key for key in longest if key in order] != order:
            held = " and ".join(first_names(list(map(str, each))) for each in (longest, order))
            raise ValueError(f"columns order their categories differently, {held}; name all by class_names=[...]")
    return longest


def _finish(classes: Classes, present: list[Any], target: Column) -> None:
    """Set the order, the names and the positive class."""
    rules = classes.rules
    order, names = _order(classes, present)
    if len(names) < 2:
        raise ValueError(f"{target.name} holds one class only, {names[0]!r}; name all classes by class_names=[...]")
    classes.ordered |= rules.names is not None or classes.kind == "integers"
    if rules.positive is not None:
        classes.swapped, classes.binary = _is_first(rules.positive, names), True
    elif len(names) == 2 and classes.kind != "strings" and set(order) == {0, 1} and rules.task != "multiclass":
        classes.swapped, classes.binary = order[0] == 1, True
    if rules.task == "multilabel" or (rules.task == "binary" and not classes.binary):
        remedy = "positive= names the positive class, one of two" if rules.task == "binary" else "a label is a column"
        raise ValueError(f"task={rules.task!r} does not fit one column of the classes {first_names(names)}; {remedy}")
    if classes.kind == "strings":
        classes.notes += _check_texts(names, rules.columns == len(names) and not classes.ordered)
    step = -1 if classes.swapped else 1
    classes.names, classes.index = tuple(names[::step]), {each: at for at, each in enumerate(order[::step])}


def _order(classes: Classes, present: list[Any]) -> tuple[list[Any], list[str]]:
    """Return the classes in their order, and their names."""
    names, columns = classes.rules.names, classes.rules.columns
    if names is not None:
        return _of_names(classes, names, present), names
    if classes.kind == "booleans":
        return [0, 1], ["False", "True"]
    if classes.kind == "integers" and not classes.ordered:
        if columns is not None and columns > 2 and present[0] > 0 and present[-1] < columns:
            either = f"the {columns} columns of preds may be the classes 0 to {columns - 1} or 1 to {columns}"
            raise ValueError(f"target holds neither 0 nor {columns}, so that {either}; name them by class_names=[...]")
        present = list(range(columns or 2)) if set(present) <= set(range(columns or 2)) else present
    return present, list(map(str, present))


def _check_texts(names: Sequence[str], by_place: bool) -> list[str]:
    """Raise if columns have no names and no natural order; note texts that differ only in how they are written."""
    parts = {}
    for name in names:  # digits by value: int takes no more than some thousands
        texts = [part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
        parts[name] = [(len(part) * part.isdecimal(), part) for part in texts]
    natural = sorted(names, key=parts.__getitem__)
    if by_place and natural != names:
        text = f"the columns of scores have no names, and the classes sort as {first_names(names)}, not as "
        remedy = "name the columns (a frame or mapping), or the classes by class_names=[...]"
        raise ValueError(f"{text}{first_names(natural)}; {remedy}")
    forms, notes = dict[Any, str](), list[str]()
    for name in names:
        cell = read_cell(name)
        alike = forms.setdefault(cell.value if cell.kind == "whole" else name.strip().casefold(), name)
        if alike != name:
            notes.append(f"classes {alike!r} and {name!r} differ only in how they are written, and count apart")
    return notes


def _of_names(classes: Classes, names: list[str], present: Sequence[Any]) -> list[Any]:
    """Return the class of each name: the same value, or the integers from 0 on, which the names then describe."""
    given = classes.rules.class_names
    if isinstance(given, Mapping) or classes.kind == "strings":
        keys = list(given) if isinstance(given, Mapping) else names
        return [str(each) if classes.kind == "strings" else read_cell(each).value for each in keys]
    positions, cells = list(range(len(names))), list(map(read_cell, names))
    values = [cell.value for cell in cells if cell.kind == ("boolean" if classes.kind == "booleans" else "whole")]
    fits = len(values) == len(names) and set(present) <= set(values)
    if fits and set(values) != set(positions) and set(present) <= set(positions):
        both = f"class_names {first_names(names)} may be the classes themselves or names of 0 to {len(names) - 1}"
        raise ValueError(f"{both}; say which by a mapping of class to name, class_names={{0: {names[0]!r}, ...}}")
    return values if fits else positions


def _is_first(positive: Any, names: Sequence[str]) -> bool:
    """Return whether the first of two classes is the positive one; raise if neither is."""
    if len(names) != 2:
        text = f"positive is for two classes, but there are {len(names)}: {first_names(list(map(repr, names)))}"
        raise ValueError(f"{text}; leave it out, or report one class against the rest: target == positive")
    alike = [name for name in names if name == str(positive)]
    alike = alike or [name for name in names if read_cell(name).value == read_cell(positive).value]  # true, 1.0
    if not alike:
        meant = did_you_mean(str(positive), names)
        raise ValueError(f"positive is {positive!r}, which is none of the classes {first_names(names)}{meant}")
    return names.index(alike[0]) == 0
