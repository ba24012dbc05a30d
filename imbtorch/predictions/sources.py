"""Sources of predictions: arrays, frames, lazy frames of engines, and DuckDB relations, all read the same way."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from imbtorch.columns import Array, Column, as_array, column_of, id_of
from imbtorch.suggestions import did_you_mean, first_names

Batch: TypeAlias = tuple[dict[str, Column], dict[str, Array]]
ROWS, SUM, LEAST, FILLED = "imbtorch_rows", "imbtorch_sum", "imbtorch_least", "imbtorch_filled"  # names of aggregates
MOST_GROUPS = 10_000_000  # rows of a group_by from which a column is no column of classes
BATCH = 500_000  # rows of a batch


class Source(Protocol):
    """Columns of predictions.

    Attributes:
        names: names of all columns.
        label: text that calls a column by its role in errors.
        notes: what a reader of the results must know about the source.
    """

    names: list[str]
    called: dict[str, str]
    notes: list[str]

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Batch:
        """Return columns of samples or of groups of equal samples, and the values or sums of one more column."""

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Batch]:
        """Yield columns of classes and arrays of numbers, some rows at a time."""

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists; None for single values."""

    def where(self, name: str, level: Any) -> Any:
        """Return the source of the rows that hold a value."""

    def beside(self, new: Any, first: Mapping[str, str], second: Mapping[str, str], shared: Sequence[str]) -> Any:
        """Return columns of this source and of another one, row by row; ``shared`` columns must be equal."""

    def joined(self, new: Any, first: Mapping[str, str], second: Mapping[str, str], keys: tuple[str, str]) -> Any:
        """Return columns of this source and of another one, of the rows with the same id."""


@dataclass
class Arrays:
    """Columns in memory."""

    columns: dict[str, Any]
    called: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _read: dict[str, Column] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.columns)

    def _column(self, name: str) -> Column:
        if name not in self._read:
            self._read[name] = column_of(self.called.get(name, f"column {name!r}"), self.columns[name])
        return self._read[name]

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Batch:
        """Return the columns, and the values of one more."""
        return next(self.batches(keys, [] if sums is None else [sums]))

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Batch]:
        """Yield all rows at once."""
        columns = {name: self._column(name) for name in keys}
        arrays = {name: as_array(self.called.get(name, name), self.columns[name]) for name in values}
        rows = {name: len(each) for name, each in {**columns, **arrays}.items()}
        for name, number in rows.items():
            if number != next(iter(rows.values())):
                called = [self.called.get(each, f"column {each!r}") for each in (name, next(iter(rows)))]
                raise ValueError(
                    f"{called[0]} has {number} rows and {called[1]} {next(iter(rows.values()))}; both must be of the "
                    "same samples"
                )
        yield columns, arrays

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists."""
        found = as_array(name, self.columns[name])
        return found.shape[1] if found.ndim == 2 else None

    def where(self, name: str, level: Any) -> Arrays:
        """Return the rows that hold a value."""
        column = self._column(name)
        rows = column.codes == column.levels.index(level)
        return Arrays({each: as_array(each, values)[rows] for each, values in self.columns.items()})

    def beside(self, new: Arrays, first: Mapping[str, str], second: Mapping[str, str], shared: Sequence[str]) -> Arrays:
        """Return columns of both, row by row."""
        found = {role: self.columns[name] for role, name in first.items()}
        found |= {role: new.columns[name] for role, name in second.items()}
        check_rows(
            *(len(as_array("rows", some[0].columns[some[1]])) for some in ((self, first["old"]), (new, second["new"])))
        )
        for name in shared:
            ids = [list(map(id_of, as_array(name, each.columns[name]).tolist())) for each in (self, new)]
            check_order(name, sum(one != other for one, other in zip(*ids, strict=True)))
        return Arrays(found)

    def joined(self, new: Arrays, first: Mapping[str, str], second: Mapping[str, str], keys: tuple[str, str]) -> Arrays:
        """Return columns of both, of the rows with the same id."""
        ids = [
            [id_of(value) for value in as_array(key, each.columns[key]).tolist()]
            for key, each in zip(keys, (self, new), strict=True)
        ]
        place = {each: at for at, each in enumerate(ids[1])}
        twice = [next((each for each, times in Counter(some).items() if times > 1), None) for some in ids]
        lacking = [[each for each in ids[0] if each not in place], [each for each in place if each not in set(ids[0])]]
        check_ids(keys, twice, lacking)
        order = np.array([place[each] for each in ids[0]])
        found = {role: self.columns[name] for role, name in first.items()}
        return Arrays(found | {role: as_array(role, new.columns[name])[order] for role, name in second.items()})


@dataclass
class Engine:
    """Lazy frame of an engine that narwhals knows: it groups there, and only counts come back."""

    frame: Any
    called: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.frame.collect_schema().names())

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Batch:
        """Group on the engine."""
        nw = importlib.import_module("narwhals")
        wanted = [nw.len().alias(ROWS)]
        if sums is not None:
            column = nw.col(sums)
            wanted += [column.sum().alias(SUM), column.min().alias(LEAST), column.count().alias(FILLED)]
        grouped = self.frame.group_by(*dict.fromkeys(keys)).agg(*wanted).head(MOST_GROUPS + 1)
        return columns_of_groups(self, keys, grouped.collect(), sums)

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Batch]:
        """Yield batches of Polars; other engines hand out none."""
        names = list(dict.fromkeys([*keys, *values]))
        native = self.frame.select(names).to_native()
        if not hasattr(native, "collect_batches"):
            raise ValueError(
                f"{type(native).__module__.partition('.')[0]} hands out no batches of rows, which scores need; write "
                "Parquet files and report these, or count on its workers as the recipe 'Scores on Spark' shows"
            )
        for part in native.collect_batches(chunk_size=BATCH):
            yield next(Arrays({name: part[name] for name in names}, self.called).batches(keys, values))

    def width(self, name: str) -> int | None:
        """Return None: columns of lists are read from files and arrays only."""
        return None

    def where(self, name: str, level: Any) -> Engine:
        """Return the rows that hold a value."""
        nw = importlib.import_module("narwhals")
        return Engine(self.frame.filter(nw.col(name) == level))

    def beside(self, new: Engine, first: Mapping[str, str], second: Mapping[str, str], shared: Sequence[str]) -> Engine:
        """Raise: rows of an engine have no order."""
        raise ValueError("rows of an engine have no order; pair them by id= (--id), a column that both frames hold")

    def joined(self, new: Engine, first: Mapping[str, str], second: Mapping[str, str], keys: tuple[str, str]) -> Engine:
        """Return columns of both, of the rows with the same id."""
        nw = importlib.import_module("narwhals")
        parts = [
            frame.select(nw.col(key).alias(ROWS), *(nw.col(name).alias(role) for role, name in some.items()))
            for frame, key, some in ((self.frame, keys[0], first), (new.frame, keys[1], second))
        ]
        both = parts[0].join(parts[1], on=ROWS, how="inner")
        sizes = [
            each.select(nw.len().alias(SUM), nw.col(ROWS).n_unique().alias(LEAST)).collect() for each in (*parts, both)
        ]
        numbers = {int(each[name].to_list()[0]) for each in sizes for name in (SUM, LEAST)}
        if len(numbers) > 1:
            raise ValueError(
                f"ids {keys[0]!r} must occur once in each frame, and be the same; got {sorted(numbers)} rows and ids"
            )
        return Engine(both)


def columns_of_groups(source: Source, keys: Sequence[str], table: Any, sums: str | None) -> Batch:
    """Return the columns of a grouped table; raise for too many groups, and sums that are no weights."""

    def listed(name: str) -> list[Any]:
        return list(table[name].to_list() if hasattr(table[name], "to_list") else table[name].to_pylist())

    columns = {
        name: column_of(source.called.get(name, f"column {name!r}"), listed(name)) for name in dict.fromkeys(keys)
    }
    times = np.array(listed(ROWS), dtype=np.float64)
    if not len(times):
        raise ValueError("there are no rows, so there is nothing to report")
    if len(times) > MOST_GROUPS:
        most = max(columns, key=lambda name: len(columns[name].levels))
        raise ValueError(
            f"{source.called.get(most, most)} {most!r} has more than {MOST_GROUPS:,} different values beside the other "
            "columns; it looks like an id, not like classes; name another column"
        )
    if times.sum() >= 2**53:
        raise ValueError(
            "there are 2**53 rows or more, which floating numbers cannot count; report parts and merge them"
        )
    find = getattr(source, "find", None)
    for name, found in columns.items():
        where = None if find is None else partial(find, name)
        columns[name] = replace(found, times=times, find=where)
    if sums is None:
        return columns, {}
    least, filled, totals = (np.array(listed(name), dtype=np.float64) for name in (LEAST, FILLED, SUM))
    if not (filled == times).all() or not (least >= 0).all() or not np.isfinite(totals).all():
        raise ValueError(f"{source.called.get(sums, sums)} must be finite and not negative, without missing values")
    if totals.sum() >= 2**53 and source.called.get(sums) == "frequency":
        raise ValueError(
            "frequency sums to 2**53 or more, which floating numbers of the engine cannot count; report parts and merge them"
        )
    return columns, {sums: totals}


def check_rows(old: int, new: int) -> None:
    """Raise for sources of different lengths."""
    if old != new:
        raise ValueError(f"old has {old} rows and new {new}; both must be predictions of the same samples")


def check_order(name: str, different: int) -> None:
    """Raise for a column of ids that shows another order of the rows."""
    if different:
        raise ValueError(
            f"column {name!r} of old and new differs in {different} rows, so their order differs: pair the rows by id={name!r} "
            f"(--id {name}), or pass by_row=True (--by-row) if they are of the same samples all the same"
        )


def check_ids(keys: Sequence[str], twice: Sequence[Any], lacking: Sequence[Sequence[Any]]) -> None:
    """Raise for ids that occur twice in the old or new source, and those of only one of them."""
    for key, called, double in zip(keys, ("old", "new"), twice, strict=True):
        if double is not None:
            raise ValueError(f"{called} has several rows with {key} {double!r}; ids must differ")
    for key, called, some in zip(keys, ("new", "old"), lacking, strict=True):
        if some:
            raise ValueError(f"{called} has no row with {key} {some[0]!r} ({len(some)} are missing)")


def open_frame(given: Any) -> Source | None:
    """Return the source of a frame or mapping of columns; None for anything else."""
    if isinstance(given, Mapping):
        return Arrays({str(name): each for name, each in given.items()})
    if type(given).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        from imbtorch.predictions.files import Relation

        return Relation(given)
    nw = importlib.import_module("narwhals")
    try:
        frame = nw.from_native(given)
    except TypeError:
        return None
    if isinstance(frame, nw.LazyFrame):
        return Engine(frame)
    if isinstance(frame, nw.DataFrame):
        names = list(map(str, frame.columns))
        return Arrays({name: frame[each].to_native() for name, each in zip(names, frame.columns, strict=True)})
    return None


# --- names ------------------------------------------------------------------------------------------------------------


def chosen(source: Source, argument: str, given: Any, but: Sequence[str] = ()) -> dict[str, str]:
    """Return label -> column for the columns that an argument names; a single column has the label "".

    Args:
        source: columns.
        argument: name of the argument, for errors.
        given: name, pattern with * and ?, sequence of names, or mapping of label to name.
        but: columns that no pattern means, since other arguments name them.

    Raises:
        ValueError: for names that the source does not have.
        TypeError: for anything else.
    """
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
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


def _known(source: Source, argument: str, name: Any) -> str:
    """Return the name of one column; raise if there is none, or several."""
    times = source.names.count(name)
    if times > 1:
        raise ValueError(f"there are several columns {name!r}; rename them, or pass head=False if there is no head")
    if not times:
        raise ValueError(
            f"{argument}: there is no column {name!r}{did_you_mean(str(name), source.names)}; columns are "
            f"{first_names(source.names)}; head=False reads a file without a head"
        )
    return str(name)


def by_class(columns: Mapping[str, str], classes: Sequence[str], argument: str) -> list[str]:
    """Return the column of each class, in their order: of the same name, but for a common beginning.

    Raises:
        ValueError: for columns of no class, and classes without a column.
    """
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
            f"column {columns[unknown[0]].removeprefix(f'{argument}, ')!r} of {argument} matches no class; classes are {first_names(classes)}"
            f"{did_you_mean(unknown[0], classes)}; leave the column out, by a list of columns or a narrower pattern such "
            "as 'p?', or name all classes by class_names=[...]"
        )
    raise ValueError(f"{argument} has no column for {first_names([repr(name) for name in lacking])}; add it")
