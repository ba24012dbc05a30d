"""Sources of predictions: arrays, frames, lazy frames of engines, and DuckDB relations, all read the same way."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from itertools import chain, count, product
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, bfloat16

from imbtorch.columns import EXACT, WHOLE, Array, Column, read_cell
from imbtorch.suggestions import did_you_mean, first_names

Columns: TypeAlias = tuple[dict[str, Column], dict[str, Array]]
ROWS, SUM, LEAST, FILLED = "imbtorch_rows", "imbtorch_sum", "imbtorch_least", "imbtorch_filled"  # names of aggregates
SQUARES = "imbtorch_squares"
THOUSANDS = r"[+-]?[1-9][0-9]{{0,2}}([{}][0-9]{{3}})+"  # numbers that may have these thousands separators
NARROW = 1_000_000  # span of integers up to which a table finds them
MOST_GROUPS = 10_000_000  # rows of a group_by from which a column is no column of classes
BATCH = 500_000  # rows of a batch
MOST_UNNAMED, MOST_ROWS = 8, 1_000_000  # columns and rows of a source in which models may stand one below the other
ORDER = "label_order"  # column of the place of each row that a plan drew, from 1
SHARED = {("weight", "group"), ("weight", "cluster"), ("frequency", "group"), ("frequency", "cluster")}
SHARED |= {("group", "cluster"), ("id", "cluster"), ("target", "group"), ("miss", "false_alarm")}
SHARED |= {("miss", "investigation"), ("false_alarm", "investigation")}  # roles that one column may have together


@dataclass
class Source:
    """Columns of predictions."""

    called: dict[str, str] = field(default_factory=dict, kw_only=True)  # column -> its role, for errors
    notes: list[str] = field(default_factory=list, kw_only=True)  # what a reader of the results must know
    unknown: str = field(default="", kw_only=True)  # remedy for a column that there is not

    @cached_property
    def names(self) -> list[str]:
        """Names of all columns."""
        raise NotImplementedError

    def call(self, name: str) -> str:
        """Return the name of a column for errors."""
        return self.called.get(name, f"column {name!r}")

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Columns:
        """Return columns of samples or of groups of equal samples, and the values or sums of one more column."""
        raise NotImplementedError

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Columns]:
        """Yield columns of classes and arrays of numbers, some rows at a time."""
        raise NotImplementedError

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists; None for single values."""
        return None

    def orders(self, name: str) -> list[list[Any]]:
        """Return the categories of each part of a column whose type orders them."""
        return []

    def type_of(self, name: str) -> str:
        """Return the name of the type of a column, where it has one."""
        return ""

    def different(self, name: str) -> int:
        """Return the number of different values of a column that nobody named, which may hold anything."""
        return len(self.counted([name])[0][name].levels)

    def first_wrong(self, name: str) -> str:
        """Return a text on the first value of a column of weights that is none, where rows can be found."""
        return ""


@dataclass
class Arrays(Source):
    """Columns in memory."""

    columns: dict[str, Any]
    _arrays: dict[str, Array] = field(default_factory=dict)  # columns that were converted
    _read: dict[str, Column] = field(default_factory=dict)  # columns that were read
    ordered: dict[str, list[list[Any]]] = field(default_factory=dict)  # orders of categories that lists do not tell
    twice: Sequence[str] = ()  # names that further columns of a frame have

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [*self.columns, *self.twice]

    def array(self, name: str) -> Array:
        """Return a column as an array; it is converted once."""
        if name not in self._arrays:
            self._arrays[name] = as_array(self.call(name), self.columns[name])
        return self._arrays[name]

    def type_of(self, name: str) -> str:
        """Return the name of the type of a column, where it has one."""
        given = self.columns[name]
        return str(getattr(given, "dtype", getattr(given, "type", "")))

    def _column(self, name: str) -> Column:
        if name not in self._read:
            self._read[name] = column_of(self.call(name), self.array(name), self.orders(name))
        return self._read[name]

    def orders(self, name: str) -> list[list[Any]]:
        """Return the categories of an ordered Categorical, an Enum, and each part of an ordered dictionary."""
        if name in self.ordered:
            return self.ordered[name]
        given = self.columns[name]
        kind: Any = getattr(given, "dtype", None)
        if getattr(kind, "ordered", False) or type(kind).__name__ == "Enum":
            return [list(kind.categories)]
        if getattr(getattr(given, "type", None), "ordered", False):
            return [part.dictionary.to_pylist() for part in getattr(given, "chunks", [given])]
        return []

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Columns:
        """Return the columns, and the values of one more."""
        return next(self.batches(keys, [] if sums is None else [sums]))

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Columns]:
        """Yield all rows at once."""
        columns = {name: self._column(name) for name in keys}
        arrays = {name: self.array(name) for name in values}
        codes = {name: each.codes for name, each in columns.items()}
        rows = [(self.call(name), len(each)) for name, each in {**codes, **arrays}.items()]
        for called, number in rows:
            if number != rows[0][1]:
                first = f"{rows[0][0]} {rows[0][1]}"
                raise ValueError(f"{called} has {number} rows and {first}; both must be of the same samples")
        yield columns, arrays

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists."""
        found = self.array(name)
        return found.shape[1] if found.ndim == 2 else None


def note_on_models(source: Source, named: Sequence[str], target: str, size: int) -> list[str]:
    """Return a note on models one below the other: a column whose values each stand once beside each id."""
    numbers = dict[str, int]()
    for name in [each for each in source.names if each not in named][: MOST_UNNAMED if size <= MOST_ROWS else 0]:
        with suppress(Exception):  # columns that nobody named may hold anything
            numbers |= {name: number} if 1 < (number := source.different(name)) < size and not size % number else {}
    for (name, number), (other, ids) in product(numbers.items(), repeat=2):
        if number < ids == size // number:
            columns, first = source.counted([name, other, target])[0], np.zeros(ids, dtype=np.int64)
            models, of_id, codes = (columns[each].codes for each in (name, other, target))
            first[of_id] = codes
            if len(np.unique(of_id * number + models)) == size == len(codes) and (first[of_id] == codes).all():
                held = f"each value of {other!r} stands {number} times, once beside each of {name!r}; if {name!r} names"
                return [f"{held} models, report each alone or pass group={name!r}; else pass cluster={other!r}"]
    return []


@dataclass
class Engine(Source):
    """Lazy frame of an engine that narwhals knows: it groups there, and only counts come back."""

    frame: Any

    @cached_property
    def _types(self) -> Any:
        return self.frame.collect_schema()

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self._types.names())

    def _column(self, name: str) -> Any:
        """Return a column by its place, since Polars reads names such as ``*`` and ``^a$`` as patterns."""
        return importlib.import_module("narwhals").nth(self.names.index(name))

    def orders(self, name: str) -> list[list[Any]]:
        """Return the categories of an Enum, which narwhals calls ordered categories of all engines."""
        kind = self._types[name]
        return [list(kind.categories)] if type(kind).__name__ == "Enum" else []

    def type_of(self, name: str) -> str:
        """Return the name of the type of a column."""
        return str(self._types[name])

    def different(self, name: str) -> int:
        """Return the number of different values of a column, as the engine counts them."""
        return int(self.frame.select(self._column(name).n_unique()).collect()[0, 0])

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Columns:
        """Group on the engine."""
        nw = importlib.import_module("narwhals")
        wanted, place = [nw.len().alias(ROWS)], places([*keys, *([] if sums is None else [sums])])
        if sums is not None:
            column = nw.col(place[sums]).cast(nw.Float64)  # sums of narrow numbers wrap
            if self.called.get(sums) == "frequency":
                column = nw.when(column % 1 == 0).then(column)
            wanted += [column.sum().alias(SUM), column.min().alias(LEAST), column.count().alias(FILLED)]
            wanted.append((column * column).sum().alias(SQUARES))
        selected = self.frame.select(*(self._column(name).alias(alias) for name, alias in place.items()))
        grouped = selected.group_by(*(place[name] for name in dict.fromkeys(keys))).agg(*wanted).head(MOST_GROUPS + 1)
        return columns_of_groups(self, keys, grouped.collect(), sums)

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Columns]:
        """Yield batches of Polars; other engines hand out none."""
        names = list(dict.fromkeys([*keys, *values]))
        native = self.frame.select(*map(self._column, names)).to_native()
        if not hasattr(native, "collect_batches"):
            raise ValueError(
                f"{type(native).__module__.partition('.')[0]} hands out no batches of rows, which scores need; write "
                "Parquet files and report these, or count on its workers as the recipe 'Scores on Spark' shows"
            )
        for part in native.collect_batches(chunk_size=BATCH):
            yield next(Arrays({name: part[name] for name in names}, called=self.called).batches(keys, values))


def places(names: Sequence[str]) -> dict[str, str]:
    """Return a name of each column within a query: engines take names that differ in case for one."""
    return {name: f"x{at}" for at, name in enumerate(dict.fromkeys(names))}


def columns_of_groups(source: Source, keys: Sequence[str], table: Any, sums: str | None) -> Columns:
    """Return the columns of a grouped table; raise for too many groups, and sums that are no weights."""

    def listed(name: str) -> list[Any]:
        return list(table[name].to_list() if hasattr(table[name], "to_list") else table[name].to_pylist())

    orders = {name: source.orders(name) for name in keys if source.called.get(name) not in ("group", "cluster")}
    values = {name: listed(place) for name, place in places(keys).items()}
    grouped = Arrays(values, ordered=orders, called=source.called)
    columns = {name: grouped._column(name) for name in grouped.names}
    times = np.array(listed(ROWS), dtype=np.float64)
    if not len(times):
        raise ValueError("there are no rows, so there is nothing to report")
    if len(times) > MOST_GROUPS:
        most = max(columns, key=lambda name: len(columns[name].levels))
        remedy = "it looks like an id, not like classes; name another column"
        if source.called.get(most) == "cluster":
            remedy = "report parts of the rows, such as one file or one year each, and add them by imbtorch merge"
        raise ValueError(
            f"{source.call(most)} ({most}) has more than {MOST_GROUPS:,} different values beside the other columns; "
            f"{remedy}"
        )
    uncounted = "which floating numbers cannot count; report parts and merge them"
    if times.sum() >= EXACT:
        raise ValueError(f"there are 2**53 rows or more, {uncounted}")
    find = getattr(source, "find", None)
    columns = {name: replace(each, times=times, find=find and partial(find, name)) for name, each in columns.items()}
    if sums is None:
        return columns, {}
    least, filled, totals = (np.array(listed(name), dtype=np.float64) for name in (LEAST, FILLED, SUM))
    if not (filled == times).all() or not (least >= 0).all() or not np.isfinite(totals).all():
        kind = "whole" if source.called.get(sums) == "frequency" else "finite"
        wrong = source.first_wrong(sums) or "; leave rows without one out of the source"
        raise ValueError(f"{source.call(sums)} must be a {kind} number of 0 or more in every row{wrong}")
    if totals.sum() >= EXACT and source.called.get(sums) == "frequency":
        raise ValueError(f"frequency sums to 2**53 or more, {uncounted}")
    return columns, {sums: totals, SQUARES: np.array(listed(SQUARES), dtype=np.float64)}


# --- arrays -----------------------------------------------------------------------------------------------------------


def id_of(value: Any) -> int | str | None:
    """Return an id or a name: a whole number, a text (the same number only if written plainly), None if missing."""
    if isinstance(value, date) or type(value).__name__ in ("Period", "UUID"):  # also of datetime
        return None if type(value).__name__ == "NaTType" else str(value).removesuffix(" 00:00:00")  # of days
    cell = read_cell(value)
    plain = not isinstance(value, str) or re.sub(r"\.0*$", "", value) == str(cell.value)  # "1.0", but no "01"
    if cell.kind == "whole" and plain and WHOLE.min <= cell.value <= WHOLE.max:
        return int(cell.value)
    return None if cell.kind == "missing" else str(value)


def as_array(name: str, given: Any) -> Array:
    """Convert values to an array."""
    if isinstance(given, Tensor):
        dense = given.detach().cpu()
        return (dense.float() if dense.dtype == bfloat16 else dense).numpy()
    if given is None or isinstance(given, str):
        raise TypeError(f"{name} must hold a value for each sample, got {given!r}; pass the column itself")
    listed = isinstance(given, (list, tuple))
    if listed and len(given) and isinstance(given[0], str):
        return np.array(given, dtype=object)  # NumPy would turn numbers among strings into strings
    try:
        found = _to_numpy(given)
    except ValueError as error:
        raise ValueError(f"{name} must be one column, or rows of equal length: {error}") from error
    if found.ndim == 0:
        raise TypeError(f"{name} must hold a value for each sample, got {given!r}")
    masked: Any = np.argwhere(getattr(given, "mask", ())) if isinstance(given, np.ma.MaskedArray) else ()
    if len(masked):
        raise ValueError(f"{name} has no value in row {int(masked[0][0])} ({len(masked)} values are masked)")
    if found.dtype.kind == "U" and listed:
        return np.array(given, dtype=object)
    return _of_objects(name, found)


def _to_numpy(given: Any) -> Array:
    """Convert values of any package, so that those that are missing are told and narrow numbers stay narrow."""
    narrow = narrow_float(str(getattr(given, "dtype", "")))
    if type(given).__module__.startswith("pyarrow"):
        given = given.cast(given.type.value_type) if hasattr(given.type, "index_type") else given  # keeps null
        return given.to_numpy(zero_copy_only=False)
    if narrow and hasattr(given, "isna"):  # of pandas
        return given.to_numpy(dtype=narrow, na_value=np.nan)
    return given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)


def _of_objects(name: str, given: Array) -> Array:
    """Convert lists to rows, and objects that are floats to floats."""
    if given.dtype.kind == "M":  # dates as other sources hold them, not numbers of nanoseconds
        return given.astype("datetime64[us]").astype(object)
    if given.dtype != object or given.ndim != 1 or not len(given):
        return given
    if isinstance(given[0], (list, tuple, np.ndarray)):
        return as_array(name, given.tolist())
    return given.astype(float) if type(given[0]) is float and set(map(type, given)) == {float} else given


def narrow_float(kind: str) -> str:
    """Return which floating numbers of 16 or 32 bits a type of any package holds; "" for other types."""
    found = re.search(r"bfloat16|half|float16|float32|\bfloat\b", kind.lower())
    return {"half": "float16", "float": "float32"}.get(found[0], found[0]) if found else ""


def placed(threshold: Any, kinds: Sequence[str], logits: bool = False) -> Any:
    """Return a threshold as a number of the type that the scores had, as ``scores > threshold`` takes it everywhere.

    Scores of 32 and 64 bits keep their type, which then does so itself. Of logits its logit is that number.
    """
    if threshold is None:
        return None
    found, several = list(map(narrow_float, kinds)), np.ndim(threshold) > 0
    given = list(threshold) if several else [threshold] * len(found)
    if {*found} <= {"float32"} or {*found} <= {""} or len(given) != len(found):
        return threshold
    exact = [torch.tensor(float(each), dtype=torch.float64) for each in given]
    exact = [each.logit() for each in exact] if logits else exact
    kept = [each.to(getattr(torch, kind or "float64")).double() for each, kind in zip(exact, found, strict=True)]
    rounded = [each.sigmoid().item() if logits else each.item() for each in kept]
    return rounded if several or len({*rounded}) > 1 else rounded[0]


def floats(called: str, given: Array, start: int) -> Array:
    """Convert numbers, also those written as text, to floats that torch can count, float32 at least."""
    if given.dtype.kind in "fbiu":
        return given.copy() if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
    try:
        found: Array = given.astype(np.float64)
        if given.dtype.kind != "O" or not any("_" in each for each in given.flat if isinstance(each, str)):
            return found
    except (TypeError, ValueError):
        pass
    found = np.empty(given.shape)
    for place, each in np.ndenumerate(given):
        try:
            missing = read_cell(each).kind == "missing"
            found[place] = np.nan if missing else float("_" if isinstance(each, str) and "_" in each else each)
        except (TypeError, ValueError):  # noqa: PERF203
            text = each if isinstance(each, str) else ""
            remedy = "; percentages: divide by 100" if text.endswith("%") else ""
            commas = re.fullmatch(r"[+-]?\d*,\d+", text) and not re.fullmatch(THOUSANDS.format(".,"), text)
            remedy = "; decimal=',' reads decimal commas" if commas else remedy
            raise TypeError(
                f"{called} must hold numbers, got {each!r} in row {start + place[0]}, which is no number{remedy}"
            ) from None
    return found


def column_of(name: str, values: Array, orders: Sequence[list[Any]]) -> Column:
    """Find the different values of a column; raise for none, several columns, and values that cannot be compared."""
    if values.ndim != 1:
        remedy = "of lists of labels make a column of 0 and 1 for each label"
        raise ValueError(f"{name} must be one column, [N], got the shape {list(values.shape)}; {remedy}")
    if not len(values):
        raise ValueError(f"{name} is empty, so there is nothing to report")
    if values.dtype.kind in "iub" and not orders:
        least, most = int(values.min()), int(values.max())
        if most - least < NARROW:
            shifted = values.astype(np.int64) - least
            known = np.bincount(shifted).nonzero()[0]
            place = np.zeros(most - least + 1, dtype=np.int64)
            place[known] = np.arange(len(known))
            return Column(name, (known + least).astype(values.dtype).tolist(), place[shifted])
    if values.dtype.kind in "iubf" and not orders:
        unique, codes = np.unique(values, return_inverse=True)
        return Column(name, unique.tolist(), codes)
    listed = values.tolist()
    index = defaultdict[Any, int](count().__next__)  # a new value takes the next number
    try:
        codes = np.fromiter(map(index.__getitem__, chain(*orders, listed)), np.int64)
    except TypeError as error:
        raise TypeError(f"{name} must hold strings, integers or booleans: {error}") from error
    return Column(name, list(index), codes[len(codes) - len(listed) :], orders=orders)


# --- names ------------------------------------------------------------------------------------------------------------


def chosen(source: Source, argument: str, given: Any, but: Sequence[str] = ()) -> dict[str, str]:
    """Return label -> column for the columns that an argument names; a single column has the label "".

    A name, a pattern with * and ?, a sequence of names, or a mapping of label to name is given. No pattern means the
    columns ``but``, which other arguments name.
    """
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    given = str(given) if type(given) is int else given
    if isinstance(given, Mapping):
        return {str(label): _known(source, argument, name) for label, name in given.items()}
    if isinstance(given, (list, tuple)):
        return {str(name): _known(source, argument, name) for name in given}
    if not isinstance(given, str):
        kind = type(given).__name__
        raise TypeError(f"{argument} must name columns of the source, got {kind}; leave the source out for arrays")
    if "," in given and given not in source.names and not re.search(r"[*?]", given):  # as on the command line
        pairs = [each.rpartition("=") for each in given.split(",")]
        return {(label or name).strip(): _known(source, argument, name.strip()) for label, _, name in pairs}
    parts = re.split(r"([*?])", given)
    if given in source.names or len(parts) == 1:
        return {"": _known(source, argument, given)}
    pattern = re.compile("".join({"*": ".+", "?": "."}.get(part, re.escape(part)) for part in parts))
    found = [name for name in source.names if pattern.fullmatch(name) and name not in but]
    if not found:
        raise ValueError(f"there is no column like {given!r}; columns are {first_names(source.names)}")
    return {name[len(parts[0]) : len(name) - len(parts[-1])]: _known(source, argument, name) for name in found}


def single(source: Source, argument: str, given: Any) -> str:
    """Return the only column that an argument names."""
    found = chosen(source, argument, given)
    if list(found) != [""]:
        raise ValueError(f"{argument} must name one column, got {given!r}")
    return found[""]


def check_roles(roles: Iterable[tuple[str, str]]) -> None:
    """Raise for one column in two roles that exclude each other, of pairs of a role and a column."""
    seen: dict[str, list[str]] = {}
    for role, column in roles:
        for other in seen.setdefault(column, []):
            if not {(role, other), (other, role)} & SHARED:
                raise ValueError(f"{other} and {role} are one column, {column!r}; name another column for one of them")
        seen[column].append(role)


def _known(source: Source, argument: str, name: Any) -> str:
    """Return the name of one column; raise if there is none, or several."""
    name = str(name) if type(name) is int else name  # frames may name columns by integers
    times = source.names.count(name)
    if times > 1:
        raise ValueError(f"there are several columns {name!r}; rename them{source.unknown}")
    if not times:
        raise ValueError(
            f"{argument}: there is no column {name!r}{did_you_mean(str(name), source.names)}; columns are "
            f"{first_names(source.names)}{source.unknown}"
        )
    return str(name)


def by_class(columns: Mapping[str, str], classes: Sequence[str], argument: str) -> list[str]:
    """Return the column of each class, in their order: of the same name, but for a common beginning."""
    labels = list(columns)
    for start in range(min(map(len, labels)) + 1):
        if len({label[:start] for label in labels}) > 1:
            break
        found = {label[start:]: columns[label] for label in labels}
        if set(found) == set(classes):
            return [found[name] for name in classes]
    unknown = [label for label in labels if label not in classes]
    lacking = [name for name in classes if name not in labels]
    if unknown:
        raise ValueError(
            f"column {columns[unknown[0]].removeprefix(f'{argument}, ')!r} of {argument} matches no class; classes are "
            f"{first_names(classes)}{did_you_mean(unknown[0], classes)}; leave the column out, by a list of columns or "
            "a narrower pattern such as 'p?', or name all classes by class_names=[...]"
        )
    raise ValueError(f"{argument} has no column for {first_names([repr(name) for name in lacking])}; add it")
