"""Files of predictions, read by DuckDB: CSV as text, Parquet and JSON lines, many at once, compressed or not."""

from __future__ import annotations

import csv
import glob
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from imbtorch.columns import Array, Column
from imbtorch.counts import check_choice
from imbtorch.predictions.labels import PLAN, POSITION
from imbtorch.predictions.paths import PACKED, found_files, note_on_copies
from imbtorch.predictions.sources import (
    BATCH,
    FILLED,
    LEAST,
    MOST_GROUPS,
    ORDER,
    ROWS,
    SQUARES,
    SUM,
    THOUSANDS,
    Arrays,
    Columns,
    Source,
    as_array,
    columns_of_groups,
    places,
)
from imbtorch.suggestions import first_names

KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".psv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
}
MAGIC = {b"PAR1": "parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
FOREIGN = {
    b"\xfe\xff": "in UTF-16 of big-endian order; convert it to UTF-8",
    b"PK": "a zip archive or Excel file; unpack it, or save it as CSV",
    b"ARROW1": "an Arrow file; pass polars.read_ipc(path)",
    b"BZh": "packed by bzip2; unpack it or use gzip",
    b"\xfd7zXZ": "packed by xz; unpack it or use gzip",
}
WRITTEN = ("label", ORDER, PLAN, POSITION)  # columns of files to label
ENCODINGS = ("utf-8", "latin-1", "utf-16")
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
FIRST, MOST_TELLING = 1000, 5  # rows that are looked at for columns that tell rows apart, and number of these columns
MOST_HELD = 20  # columns of a frame that are looked at
ROW = "'row ' || (row_number() OVER () - 1)"  # SQL
LINE_END = "\r\n|\r|\n"
HEAD, HEAD_LINES = 1_000_000, 100  # bytes and lines in which the head of a file must end
CHECKSUM = re.compile(rb"(?:\x15[\x80-\xff]*[\x00-\x7f]){4}")  # fourth number of a page of Parquet, by Thrift
KEY = r"regexp_replace(trim(CAST({0} AS VARCHAR)), '^([+-]?[0-9]+)\.0*$', '\1')"  # SQL of an id; 1.0 is 1
POINT = (
    r"regexp_replace({0}, '^(\s*[+-]?[0-9]*),([0-9]*([eE][+-]?[0-9]+)?\s*)$', '\1.\2') AS {0}"  # with decimal commas
)


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _name(path: str) -> str:
    """Return the name of one file as SQL; DuckDB would read it as a pattern, and some beginnings as addresses."""
    return literal(glob.escape(os.path.abspath(path)))


def _pointer(name: str) -> str:
    """Return the JSON pointer of a name as SQL."""
    return literal("/" + name.replace("~", "~0").replace("/", "~1"))


def duckdb() -> Any:
    """Load DuckDB, and PyArrow, through which it hands out columns."""
    try:
        importlib.import_module("pyarrow")
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise ImportError(
            f"files need {error.name or 'duckdb'}: pip install 'imbtorch[files]'", name=error.name
        ) from error


def connected() -> Any:
    """Open a connection of DuckDB; it installs and loads nothing that a name of a file or a query would need."""
    off = dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), False)
    return duckdb().connect(config=off)


@dataclass
class Relation(Source):
    """DuckDB relation: it groups there, and hands out batches; ``row`` is SQL for a text that names a row.

    ``columns`` are its names of columns, where those of the source differ; ``ordered`` the orders of categories.
    """

    relation: Any
    connection: Any = None
    row: str = ""
    columns: dict[str, str] | None = None
    ordered: dict[str, list[list[Any]]] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.columns or self.relation.columns)

    def _sql(self, name: str) -> str:
        """Return a column as SQL."""
        return quoted((self.columns or {}).get(name, name))

    def _select(self, names: Sequence[str]) -> Any:
        """Return the relation of some columns, which it names by :func:`places`."""
        cells = [f"{self._sql(name)} AS {place}" for name, place in places(names).items()]
        return self.relation.project(", ".join(cells))

    def _select_unordered(self, names: Sequence[str]) -> Any:
        """Return the relation of some columns, with its rows in any order."""
        return self._select(names)

    def orders(self, name: str) -> list[list[Any]]:
        """Return the categories of an ENUM, which always orders them."""
        if name in self.ordered:
            return self.ordered[name]
        kind = self._select([name]).types[0]
        if kind.id != "enum":
            return []
        self.notes += [f"classes have the order of an ENUM: {first_names(kind.children[0][1])}"]
        return [list(kind.children[0][1])]

    def verify(self, names: Sequence[str]) -> None:
        """Raise for damaged columns."""

    def check_numbers(self, names: Sequence[str]) -> None:
        """Raise for columns of numbers that may have thousands separators."""

    def type_of(self, name: str) -> str:
        """Return the name of the type of a column."""
        return str(self._select([name]).types[0])

    def different(self, name: str) -> int:
        """Return the number of different values of a column."""
        return int(self._select_unordered([name]).aggregate("count(DISTINCT x0)").fetchall()[0][0])

    def _number(self, name: str, cell: str) -> str:
        """Return a cell of weights as SQL of a number, whole of frequencies; null if it is none."""
        if self.type_of(name) == "VARCHAR":
            cell = f"replace({cell}, '_', '?')"  # DuckDB reads 1_0 as 10
        number = f"TRY_CAST({cell} AS DOUBLE)"
        return f"CASE WHEN {number} % 1 = 0 THEN {number} END" if self.called.get(name) == "frequency" else number

    def first_wrong(self, name: str) -> str:
        """Return a text on the first value of a column of weights that is none."""
        number = self._number(name, "x0")
        found = self._first(name, f"{number} IS NULL OR {number} < 0 OR {number} >= 'inf'::DOUBLE")
        text = str(found[1]) if found else ""
        remedy = "; leave rows without one out of the source"
        if re.fullmatch(THOUSANDS.format(".,"), text):
            remedy = "; write numbers without thousands separators"
        elif re.fullmatch(r"[+-]?\d*,\d+", text):
            remedy = "; decimal=',' reads decimal commas"
        return (f", got {text!r} in {found[0]}" if found else "") + remedy

    def _first(self, name: str, condition: Any) -> tuple[str, Any] | None:
        """Return the place and the value of the first row of which a condition holds for a column, ``x0``."""
        if not self.row:
            return None
        found = self.relation.project(f"{self.row} AS r, {self._sql(name)} AS x0").filter(condition).limit(1)
        return next(iter(found.fetchall()), None)

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Columns:
        """Group in DuckDB."""
        names = [*keys, *([] if sums is None else [sums])]
        self.verify(names)
        self.check_numbers([] if sums is None else [sums])
        selected, parts = self._select_unordered(names), [*places(keys).values(), f"count(*) AS {ROWS}"]
        with self._explained():
            if sums is not None:
                number = self._number(sums, places(names)[sums])
                parts += [f"sum({number}) AS {SUM}", f"min({number}) AS {LEAST}", f"count({number}) AS {FILLED}"]
                parts.append(f"sum({number} * {number}) AS {SQUARES}")
            table = selected.aggregate(", ".join(parts)).limit(MOST_GROUPS + 1).to_arrow_table()
        return columns_of_groups(self, keys, table, sums)

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Columns]:
        """Yield Arrow batches."""
        self.verify([*keys, *values])
        self.check_numbers(values)
        place, widths, start = places([*keys, *values]), dict[str, int](), 0
        with self._explained():
            for part in self._select([*keys, *values]).to_arrow_reader(BATCH):
                columns = {}
                for name in keys:
                    coded = part[place[name]].dictionary_encode()
                    levels, codes = coded.dictionary.to_pylist(), coded.indices
                    if codes.null_count:
                        codes = codes.fill_null(len(levels))
                        levels.append(None)
                    columns[name] = Column(self.call(name), levels, np.from_dlpack(codes).astype(np.int64))
                yield columns, {name: _array(name, part[place[name]], widths, start) for name in values}
                start += len(part)

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists."""
        selected = self._select([name])
        if not re.search(r"\[\d*\]$", str(selected.types[0])):
            return None
        with self._explained():
            first = selected.project("len(x0)").limit(1).fetchall()
        return int(first[0][0] or 0) if first else None

    def find(self, name: str, level: Any) -> str:
        """Return a text that says where a level occurs first."""
        found = self._first(name, _held(level))
        return f" in {found[0]}" if found else ""

    def first(self, name: str) -> Any:
        """Return the value in the first row, which groups do not tell."""
        return self._select([name]).limit(1).fetchall()[0][0]

    def where(self, name: str, level: Any) -> Relation:
        """Return the rows that hold a value."""
        names = [name, *(each for each in self.names if each != name and self.names.count(each) == 1)]
        found, orders = self._select(names).filter(_held(level)), {each: self.orders(each) for each in names}
        return Relation(found, connection=self.connection, columns=places(names), ordered=orders)

    def telling(self, names: Sequence[str]) -> list[str]:
        """Return the first columns of texts or integers whose first rows mostly hold different values."""
        found: list[str] = []
        for name in names:
            with suppress(duckdb().Error, ValueError):  # columns that nobody named may hold anything
                selected = self._select([name])
                if re.fullmatch("VARCHAR|UUID|U?[A-Z]*INT(EGER)?", str(selected.types[0])):
                    rows = selected.limit(FIRST).fetchall()
                    found += [name] if len(set(rows)) > 0.9 * len(rows) else []
            if len(found) == MOST_TELLING:
                break
        return found

    def paired(
        self,
        new: Relation,
        first: Mapping[str, str],
        second: Mapping[str, str],
        keys: Sequence[str],
        by_id: bool,
        telling: Sequence[str],
    ) -> Relation:
        """Return columns of both by their roles: of rows with the same id, or row by row if no column shows others."""

        def columns(source: Relation, names: Mapping[str, str]) -> Any:
            source.verify([*names.values(), *keys])
            place = places([*names.values(), *keys, *telling])
            cells = [f"{place[name]} AS {quoted(role)}" for role, name in names.items()]
            shown = [KEY.format(place[key]) for key in (*keys, *telling)]
            shown = [key_of([place[key] for key in keys])] if by_id else shown
            cells += [f"{each} AS key{at}" for at, each in enumerate(shown)]
            return source._select(list(place)).project(", ".join(cells))

        def query(sql: str) -> Any:
            return old.query("imbtorch_old", sql)

        with self._explained():
            columns(new, second).create_view("imbtorch_new")
            old = columns(self, first)
            if by_id:
                _check_ids(query, ", ".join(keys))
                both, row = "imbtorch_old AS o JOIN imbtorch_new AS n USING (key0)", "'the row with id ' || key0"
            else:
                both, row = "imbtorch_old AS o POSITIONAL JOIN imbtorch_new AS n", ROW
                _check_order(query, both, keys, telling)
            cells = [f"o.{quoted(role)}" for role in first] + [f"n.{quoted(role)}" for role in second]
            cells += ["key0"] if by_id else []
            orders = {role: self.orders(name) for role, name in first.items()}
            orders |= {role: new.orders(name) for role, name in second.items()}
            joined = query(f"SELECT {', '.join(cells)} FROM {both}")
            return Relation(joined, connection=self.connection, row=row, ordered=orders)

    def check_ids(self, keys: Sequence[str]) -> None:
        """Raise for rows with the same ids."""
        self.verify(keys)
        with self._explained():
            ids = self._select(keys).project(f"{key_of(list(places(keys).values()))} AS key0")
            _check_differ(partial(ids.query, "imbtorch_ids"), "the source", "imbtorch_ids", ", ".join(keys))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise errors of DuckDB as errors that say what to do."""
        try:
            yield
        except duckdb().Error as error:
            raise ValueError(_cause(str(error))) from None
        except RuntimeError as error:  # of DuckDB, which also stops for Ctrl-C
            if "interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise


def _held(level: Any) -> Any:
    """Return the condition that the column ``x0`` holds a value."""
    cell = duckdb().ColumnExpression("x0")
    return cell.isnull() if level is None else cell == duckdb().ConstantExpression(level)


def _array(name: str, part: Any, widths: dict[str, int], start: int) -> Array:
    """Return values of a batch; lists of equal length are rows. PyArrow's own conversion would import pandas."""
    arrow = importlib.import_module("pyarrow")
    kind = arrow.types
    if kind.is_list(part.type) or kind.is_large_list(part.type) or kind.is_fixed_size_list(part.type):
        lengths = part.value_lengths().fill_null(-1).to_numpy()
        wrong = np.flatnonzero((lengths != widths.setdefault(name, int(lengths[0]))) | (lengths < 0))
        if len(wrong):
            row, length = start + int(wrong[0]), int(lengths[wrong[0]])
            held = f"but row {row} holds " + (f"a list of {length} values" if length >= 0 else "no list")
            raise ValueError(f"column {name!r} must hold lists of equal length in every row, {held}")
        return _array(f"{name}, flat", part.flatten(), widths, start).reshape(len(part), -1)
    if not (kind.is_integer(part.type) or kind.is_floating(part.type) or kind.is_decimal(part.type)):
        return np.array(part.to_pylist(), dtype=object)
    if part.type not in (arrow.float32(), arrow.float64()):
        part = part.cast(arrow.float64())
    return np.from_dlpack(part.fill_null(float("nan")) if part.null_count else part)


def _check_order(query: Callable[[str], Any], both: str, keys: Sequence[str], telling: Sequence[str]) -> None:
    """Raise for sources of different lengths, for keys that differ, and for columns that show other pairs of rows.

    These hold the same values beside the same targets in both sources, in another order.
    """
    counts = "SELECT (SELECT count(*) FROM imbtorch_old), (SELECT count(*) FROM imbtorch_new)"
    old, new = query(counts).fetchall()[0]
    if old != new:
        raise ValueError(f"old has {old} rows and new {new}; both must be predictions of the same samples")
    same = "sum(hash({0}, {1})) = sum(hash({2}, {3}))"
    for at, name in enumerate([*keys, *telling]):
        is_key, o, n = at < len(keys), f"o.key{at}", f"n.key{at}"
        shown = "true" if is_key else same.format(o, KEY.format("o.target"), n, KEY.format("n.again"))
        differ, different = f"SELECT count(*) FILTER ({o} IS DISTINCT FROM {n}), {shown} FROM {both}", 0
        with nullcontext() if is_key else suppress(duckdb().Error):  # columns that nobody named may hold anything
            different, shows = query(differ).fetchall()[0]
        if different and shows:
            raise ValueError(
                f"column {name!r} of old and new differs in {different} rows, so their order differs: pair the rows by "
                f"id={name!r} (--id {name}), or pass by_row=True (--by-row) if they are of the same samples anyway"
            )


def _check_ids(query: Callable[[str], Any], name: str) -> None:
    """Raise for ids that occur twice in the old or new source, and those of only one of them."""
    tables = {"old": "imbtorch_old", "new": "imbtorch_new"}
    for called, table in tables.items():
        _check_differ(query, called, table, name)
    for there, called in (("old", "new"), ("new", "old")):
        only = query(f"SELECT key0 FROM {tables[there]} ANTI JOIN {tables[called]} USING (key0)").fetchall()
        if only:
            raise ValueError(f"{called} has no row with {name} {only[0][0]!r} ({len(only)} are missing)")


def _check_differ(query: Callable[[str], Any], called: str, table: str, name: str) -> None:
    """Raise for ids that occur twice in a source."""
    twice = query(f"SELECT key0 FROM {table} GROUP BY key0 HAVING count(key0) > 1 LIMIT 1").fetchall()
    if twice:
        raise ValueError(f"{called} has several rows with {name} {twice[0][0]!r}; ids must differ")


def key_of(cells: Sequence[str]) -> str:
    """Return the id of a row, which one or several cells make, as SQL; null if one of them is missing."""
    shown = list(map(KEY.format, cells))
    whole = f"to_json([{', '.join(shown)}])::VARCHAR"
    return shown[0] if len(shown) == 1 else f"CASE WHEN {' || '.join(shown)} IS NOT NULL THEN {whole} END"


def _cause(text: str) -> str:
    """Return the cause and the remedy of an error of DuckDB."""
    line = re.search(r"CSV Error on Line: (\d+)", text)
    file = re.search(r"\n\s*file = (.*)", text)
    where = ", ".join(filter(None, [file and file[1].strip(), line and f"line {line[1]}"]))
    where = f"{where}: " if where else ""
    columns = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if "nvalid unicode" in text or "not utf-8" in text:
        return f"{where}the file is not in UTF-8; encoding='latin-1' or encoding='utf-16' reads others"
    if "not latin-1" in text:
        return f"{where}the file is not in Latin-1; convert it to UTF-8, as 'iconv -f cp1252 -t utf-8' does"
    if columns:
        remedy = "quote cells that hold the separator; if rows begin with a name (R), write them by row.names=FALSE"
        return f"{where}{columns[2]} cells, but there are {columns[1]} columns; {remedy}"
    if "unterminated quote" in text:
        return f"{where}a quote is not closed; write quotes within quotes twice, in Spark by option('escape', '\"')"
    if "state machine reached an invalid state" in text:
        return f"{where}lines end in different ways, such as CR LF and LF; write all alike, as dos2unix does"
    return where + " ".join(
        re.split("\nPossible|\n\nLINE|\nTry setting", text.partition("Error: ")[2] or text)[0].split()
    )


def in_memory(source: Source, names: Sequence[str], like: Any, more: Sequence[str]) -> Relation:
    """Return columns as a relation of our own connection, in which they can be joined, and ``more`` that tell rows."""
    arrow, connection = importlib.import_module("pyarrow"), getattr(like, "connection", None) or connected()
    if isinstance(source, Relation):  # of the user's connection, which stays as it is
        columns = places([*names, *source.telling(more)])
        table = source._select(list(columns)).to_arrow_table()
    else:
        assert isinstance(source, Arrays)
        held = {}
        for name in dict.fromkeys([*names, *more[:MOST_HELD]]):
            with suppress(TypeError, ValueError) if name not in names else nullcontext():
                values = as_array(name, source.columns[name])
                kind = arrow.float32() if values.dtype == np.float32 else None  # as thresholds are compared
                try:  # NaN among texts is no text
                    held[name] = arrow.array([None if v != v else v for v in values.tolist()], kind)
                except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
                    raise TypeError(f"column {name!r} must hold values of one type: {error}; convert them") from None
        columns = places(list(held))
        table = arrow.table(list(held.values()), list(columns.values()))
    orders = {name: source.orders(name) for name in names}
    return Relation(connection.from_arrow(table), connection=connection, row=ROW, columns=columns, ordered=orders)


class Reader(NamedTuple):
    """Arguments of DuckDB for one file, its columns as SQL, and those columns of JSON that hold lists of numbers."""

    kind: str
    options: str
    head: tuple[str, ...]
    cells: tuple[str, ...]
    packed: str | None = None
    lists: frozenset[str] = frozenset()
    checksums: bool = False


class Files(Relation):
    """Files of one kind, whose columns are found by name in each; columns that are wanted help to find the head.

    Raises:
        FileNotFoundError: for paths that match no file.
        ValueError: for files that are damaged, of several kinds, named twice, or lack a column.
    """

    def __init__(
        self, given: Any, wanted: Sequence[str], encoding: str | None, decimal: str, head: bool, like: Any
    ) -> None:
        super().__init__(None)
        check_choice("encoding", encoding or ENCODINGS[0], ENCODINGS)
        check_choice("decimal", decimal, (".", ","))
        self.paths, self._decimal = found_files(given, KINDS), decimal
        self.connection = getattr(like, "connection", None) or connected()
        self.connection.execute("SET enable_progress_bar=true; SET enable_progress_bar_print=false")
        self._wanted, self._encoding, self._head = set(wanted), encoding or ENCODINGS[0], head
        self._intact: set[Any] = set()  # files, and columns of Parquet, that were verified
        self._readers = {path: self._reader(path) for path in self.paths}
        kinds = {reader.kind: path for path, reader in self._readers.items()}
        if len(kinds) > 1:
            raise ValueError(f"files must be of one kind, got {first_names(list(kinds.values()))}; name them by a glob")
        self.notes += note_on_copies(self.paths)
        if head and "csv" in kinds:
            self.unknown = "; head=False reads a file without a head"

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns of the first file."""
        return list(self._readers[self.paths[0]].head)

    def _select(self, names: Sequence[str], paths: Sequence[str] | None = None, raw: bool = False) -> Any:
        parts, wanted = [], list(dict.fromkeys(names))
        for reader, group in groupby(paths or self.paths, key=self._readers.__getitem__):
            some = list(group)
            lacking = [name for name in wanted if name not in reader.head]
            if lacking:
                raise ValueError(
                    f"{some[0]} has no column {lacking[0]!r}, which other files have; columns are "
                    f"{first_names(reader.head)}"
                )
            cells, function, options = [reader.cells[reader.head.index(name)] for name in wanted], reader.kind, ""
            if raw and reader.kind == "json":
                cells = list(map(quoted, wanted))  # also objects, as text
            if reader.kind == "json" and len({name.lower() for name in wanted}) < len(wanted):
                function = "json_objects"  # read_json takes names that differ in case for one
                cells = [
                    f"CAST(json->{at} AS DOUBLE[])" if name in reader.lists else f"json->>{at}"
                    for at, name in zip(map(_pointer, wanted), wanted, strict=True)
                ]
            elif reader.kind == "json":
                kinds = ["DOUBLE[]" if name in reader.lists else "VARCHAR" for name in wanted]
                typed = ", ".join(f"{literal(name)}: '{kind}'" for name, kind in zip(wanted, kinds, strict=True))
                options = f", columns={{{typed}}}, records=true"
            columns, files = ", ".join(f"{cell} AS x{at}" for at, cell in enumerate(cells)), ", ".join(map(_name, some))
            parts.append(f"SELECT {columns} FROM read_{function}([{files}]{reader.options}{options})")
        with self._explained():
            found = self.connection.sql(" UNION ALL ".join(parts))
            if self._decimal == "," and not raw:
                pairs = zip(found.columns, map(str, found.types), strict=True)
                found = found.project(", ".join(POINT.format(x) if kind == "VARCHAR" else x for x, kind in pairs))
            return found

    def _select_unordered(self, names: Sequence[str]) -> Any:
        """Read files of one layout at once, since a query of thousands of parts takes long."""
        seen = {layout: at for at, layout in enumerate(dict.fromkeys(self._readers.values()))}
        return self._select(names, sorted(self.paths, key=lambda path: seen[self._readers[path]]))

    def _first(self, name: str, condition: Any) -> tuple[str, Any] | None:
        """Return the place and the value of the first row of which a condition holds for a column, ``x0``."""
        for path in self.paths:
            found = Relation(self._select([name], [path]), row=ROW)._first("x0", condition)
            if found:
                return found[0] + f" of {path}" * (len(self.paths) > 1), found[1]
        return None

    def check_numbers(self, names: Sequence[str]) -> None:
        """Raise for numbers with decimal commas whose points, or whose commas, all stand before three digits."""
        if self._decimal != "," or self._readers[self.paths[0]].kind != "csv":
            return
        for sign, name in product(".,", names):
            held, alike = f"contains(x0, '{sign}')", f"regexp_full_match(trim(x0), {literal(THOUSANDS.format(sign))})"
            parts = f"any_value(x0) FILTER ({held}), count(*) FILTER ({held} AND NOT {alike})"
            cell, others = self._select([name], raw=True).aggregate(parts).fetchall()[0]
            if cell is not None and not others:
                raise ValueError(
                    f"{self.call(name)} holds {cell!r}, and {sign!r} stands before three digits in all numbers, as "
                    "thousands separators do; write the numbers without them"
                )

    def orders(self, name: str) -> list[list[Any]]:
        """Return the categories of a column of each file of Parquet whose schema orders them; none if it lost them."""
        found = []
        for path in self.paths if self._readers[self.paths[0]].kind == "parquet" else ():
            file = _parquet_file(path)
            if getattr(file.schema_arrow.field(name).type, "ordered", False) and file.metadata.num_rows:
                group, chunk = file.metadata.row_group(0), file.read_row_group(0, columns=[name]).column(0).chunk(0)
                cells = {cell.path_in_schema: cell for cell in map(group.column, range(group.num_columns))}
                found += [chunk.dictionary.to_pylist() if cells[name].has_dictionary_page else []]
        return found

    def verify(self, names: Sequence[str]) -> None:
        """Read compressed files, and pages of Parquet with checksums, to their end; DuckDB compares no checksum."""
        for path, reader in self._readers.items():
            key = path, None if reader.packed else frozenset(names)
            if key in self._intact or not (reader.packed or reader.checksums):
                continue
            try:
                if reader.packed:
                    with importlib.import_module("pyarrow").input_stream(path, compression=reader.packed) as stream:
                        while stream.read(HEAD):
                            pass
                else:
                    for _ in _parquet_file(path, page_checksum_verification=True).iter_batches(columns=list(names)):
                        pass
            except OSError as error:
                raise ValueError(f"{path} is damaged: {error}") from None
            self._intact.add(key)

    # --- heads --------------------------------------------------------------------------------------------------------

    def _reader(self, path: str) -> Reader:
        """Find out how to read a file, from its name and its beginning."""
        with open(path, "rb") as file:
            start = file.read(8)
        if not start:
            raise ValueError(f"{path} is empty; it must have a head and at least one row")
        foreign = next((cause for magic, cause in FOREIGN.items() if start.startswith(magic)), None)
        if foreign is not None:
            raise ValueError(f"{path} is {foreign}")
        found = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
        bare = Path(path).with_suffix("") if Path(path).suffix in PACKED else Path(path)
        kind = "parquet" if found == "parquet" else KINDS.get(bare.suffix.lower(), "")
        if kind == "parquet":
            return self._parquet(path)
        if start.startswith(b"\xff\xfe") and (kind == "json" or self._encoding == "utf-8"):
            remedy = "convert it to UTF-8" if kind == "json" else "encoding='utf-16' reads it"
            raise ValueError(f"{path} is not in UTF-8; {remedy}")
        text = self._beginning(path, found)
        if not kind:
            kind = "json" if text.lstrip("\ufeff \r\n").startswith(("{", "[")) else "csv"
        if kind == "json":
            return self._json(path, text, found)
        return self._csv(path, text.removeprefix("\ufeff"), found)

    def _beginning(self, path: str, packed: str | None) -> str:
        """Return the first lines of a file of text; cells that nobody names may be in another encoding."""
        try:
            with importlib.import_module("pyarrow").input_stream(path, compression=packed) as stream:
                start = stream.read(HEAD)
        except OSError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if len(start) == HEAD:
            start = start[: max(start.rfind(b"\n"), start.rfind(b"\r"))]
        return str(start.decode(self._encoding, "replace"))

    def _parquet(self, path: str) -> Reader:
        """Read the schema of Parquet; DuckDB renames columns whose names differ in case only."""
        with self._explained():
            cells = self.connection.sql(f"FROM read_parquet([{_name(path)}], hive_partitioning=false)").columns
        file, checksums = _parquet_file(path), False
        if file.num_row_groups:
            column = file.metadata.row_group(0).column(0)
            with open(path, "rb") as opened:
                opened.seek(column.dictionary_page_offset or column.data_page_offset)
                checksums = CHECKSUM.match(opened.read(40)) is not None
        head = tuple(file.schema_arrow.names)
        return Reader("parquet", ", hive_partitioning=false", head, tuple(map(quoted, cells)), checksums=checksums)

    def _json(self, path: str, text: str, packed: str | None) -> Reader:
        """Read the keys of the first objects of JSON lines, or of an array of objects."""
        if text.startswith("\ufeff"):
            raise ValueError(f"{path} begins with a byte order mark, which JSON must not have; save it without one")
        if whole := _rows_of_columns(path, text, packed):
            held = [isinstance(next((v for v in each.values() if v is not None), 0), list) for each in whole.values()]
            cells = [
                f"CAST(unnest(json->{at}->'$.*') AS DOUBLE[])" if lists else f"unnest(json->{at}->>'$.*')"
                for at, lists in zip(map(_pointer, whole), held, strict=True)
            ]
            options = f", format='unstructured', compression='{packed or 'none'}', maximum_object_size=2147483647"
            return Reader("json_objects", options, tuple(whole), tuple(cells), packed)
        array, keys = text.lstrip().startswith("["), dict[str, Any]()
        for row in _objects(path, text, array):
            keys |= {key: each for key, each in row.items() if keys.get(key) is None}
        form = "array" if array else "newline_delimited"
        options = f", format='{form}', compression='{packed or 'none'}', maximum_object_size=67108864"
        if not keys:
            raise ValueError(f'{path} holds no objects; write an object in each line, such as {{"label": 1}}')
        keys |= self._later_keys(path, options, sorted(self._wanted.difference(keys)))
        cells, lists = [], set()
        for key, each in keys.items():
            numbers = isinstance(each, list) and all(v is None or isinstance(v, (int, float)) for v in each)
            lists |= {key} if numbers else set()
            odd = isinstance(each, dict) or (isinstance(each, list) and not numbers)
            remedy = "write a value or a list of numbers in it"
            remedy += ", as pandas' to_json(orient='records', lines=True)" * isinstance(each, dict)
            text = f"column {key!r} of {path} holds {json.dumps(each):.60}; {remedy}"
            cells.append(
                f"CASE WHEN {quoted(key)} IS NOT NULL THEN error({literal(text)})::DOUBLE[] END" if odd else quoted(key)
            )
        options += ", hive_partitioning=false"
        return Reader("json", options, tuple(keys), tuple(cells), packed, frozenset(lists))

    def _later_keys(self, path: str, options: str, names: Sequence[str]) -> dict[str, Any]:
        """Return those of some keys that later objects of a JSON file hold, each with its first value."""
        keys = dict[str, Any]()
        for name in names:
            at = _pointer(name)
            found = f"FROM read_json_objects([{_name(path)}]{options}) WHERE (json->>{at}) IS NOT NULL LIMIT 1"
            with self._explained():
                rows = self.connection.sql(f"SELECT json->{at} {found}").fetchall()
            keys.update((name, json.loads(row)) for (row,) in rows)
        return keys

    def _csv(self, path: str, text: str, packed: str | None) -> Reader:
        """Find the head of a CSV file, its separator, and the lines before it."""
        lines = re.split(LINE_END, text)[:HEAD_LINES]
        stated = re.fullmatch(r'"?sep=(.)"?', lines[0])  # Excel's
        skip, signs = (1, [stated[1]]) if stated else (0, list(SEPARATORS)[:-1])
        while True:
            head, sign, height = _cells(lines[skip:], signs, self._wanted)
            named = [name.strip() for name in head]
            named[:1] = [name.removeprefix("#").strip() for name in named[:1]]
            comment = self._head and lines[skip].strip()[:1] in ("", "#") and not self._wanted <= set(named)
            if not comment or skip + 1 >= len(lines):
                break
            skip += 1
        named = named if self._head else list(map(str, range(len(head))))
        self._check_head(path, re.findall(LINE_END, text)[skip : skip + height], lines[skip + height :], sign)
        if sign != "," and packed is None and not path.endswith(".tsv"):
            self.notes = [f"columns of {os.path.basename(path)} are separated by {SEPARATORS.get(sign, sign)}"]
        cells = [f"ltrim(c{at})" if self._head and cell.startswith(" ") else f"c{at}" for at, cell in enumerate(head)]
        columns = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(len(head)))
        options = (
            f", auto_detect=false, all_varchar=true, columns={{{columns}}}, delim={literal(sign)}, quote='\"', "
            f"escape='\"', comment='', nullstr='', header=false, skip={skip + self._head}, strict_mode=true, "
            f"null_padding=false, compression='{packed or 'none'}', encoding={literal(self._encoding)}, "
            "hive_partitioning=false"
        )
        with open(path, "rb") as file:
            quotes = sign == "\t" and (packed or any(b'"' in part for part in iter(partial(file.read, HEAD), b"")))
        if quotes:
            self._check_quotes(path, options, len(head), skip + height)
        return Reader("csv", options, tuple(named), tuple(cells), packed)

    def _check_head(self, path: str, breaks: Sequence[str], rows: Sequence[str], sign: str) -> None:
        """Raise for a head with different line breaks, and for one that no row follows, or a line of dashes."""
        if len({*breaks}) > 1:
            raise ValueError(
                f"the head of {path} holds a line break that is not the one between rows; write each name in one line"
            )
        if self._head and not any(rows):
            raise ValueError(f"{path} must have a head and at least one row")
        if self._head and "---" in rows[0] and not re.sub(r'[-\s"]', "", rows[0].replace(sign, "")):
            raise ValueError(f"{path}: a line of dashes follows the head, as sqlcmd writes it; delete this line")

    def _check_quotes(self, path: str, options: str, width: int, before: int) -> None:
        """Raise for a quote that opens a cell in which whole rows lie, in a file that does not quote cells."""
        many = "length({0}) - length(replace({0}, chr({1}), ''))"
        tests = [
            f"contains({cell}, chr(10)) AND {many.format(cell, 9)} = {width - 1} * ({many.format(cell, 10)})"
            for cell in (f"c{at}" for at in range(width))
        ]
        rows, found = f"SELECT row_number() OVER () AS n, * FROM read_csv([{_name(path)}]{options})", None
        with suppress(duckdb().Error):  # of cells that nobody names; those that are read are told
            found = self.connection.sql(f"SELECT min(n) FROM ({rows}) WHERE {' OR '.join(tests)}").fetchall()[0][0]
        if found is not None:
            raise ValueError(
                f"{path}, line {before + found}: a quote opens a cell that ends in a later row, so that rows are lost; "
                "take such quotes out, or write cells with quotes in them quoted, as pandas' to_csv(sep='\\t') does"
            )


def _parquet_file(path: str, **options: Any) -> Any:
    """Open a file of Parquet with PyArrow, which would take some names for addresses."""
    file = importlib.import_module("pyarrow").OSFile(os.path.abspath(path))
    return importlib.import_module("pyarrow.parquet").ParquetFile(file, **options)


def _rows_of_columns(path: str, text: str, packed: str | None) -> dict[str, dict[str, Any]]:
    """Return the columns of a file that is one object of columns, as pandas' to_json() writes it; none of others."""
    if not re.match(r'\s*\{\s*"([^"\\]|\\.)*"\s*:\s*\{', text):
        return {}
    with importlib.import_module("pyarrow").input_stream(path, compression=packed) as stream:
        try:
            whole = json.loads(stream.read(), object_pairs_hook=_with_names_once)
        except (ValueError, RecursionError):  # of objects in lines
            return {}
    if not all(isinstance(each, dict) for each in whole.values()):
        return {}
    first, *others = map(list, whole.values())
    if any(each != first for each in others):
        raise ValueError(f"columns of {path} hold different rows, or the same in another order; write an object a row")
    return dict(whole)


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise a ValueError if it holds a name twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _objects(path: str, text: str, array: bool) -> Iterator[dict[str, Any]]:
    """Yield the first objects of lines or of an array, which may be cut off; DuckDB refuses anything else."""
    at = 0
    for _ in range(HEAD_LINES):
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,[]"))
        try:
            row, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if array or at == len(text):
                return
            remedy = "write an object in each line, as pandas' to_json(orient='records', lines=True)"
            where = f"line {text.count(chr(10), 0, at) + 1}"
            raise ValueError(
                f"{path}, {where}: no JSON: {getattr(error, 'msg', 'nested too deeply')}; {remedy}"
            ) from None
        if isinstance(row, dict):
            yield row


def _cells(lines: Sequence[str], signs: Sequence[str], wanted: set[str]) -> tuple[list[str], str, int]:
    """Return the cells of the head, the best separator, and the number of lines that the head takes."""
    found = []
    for sign in signs:
        reader = csv.reader((line + "\n" for line in lines), delimiter=sign)
        with suppress(StopIteration, csv.Error):
            head = next(reader)
            found.append((len(wanted & {name.strip() for name in head}), len(head), head, sign, reader.line_num))
    if not found:
        raise ValueError("the head of the file cannot be read; is it a CSV file?")
    match, width, head, sign, height = max(found, key=lambda each: each[:2])
    if not match and width == 1 and " " in head[0].strip("# ") and sign != " ":
        return _cells([lines[0].removeprefix("# "), *lines[1:]], " ", wanted)
    return head, sign, height


def write_labels(
    source: Files, plan: Any, known: Mapping[int, str], show: Sequence[str], whole: str | None, drawn: str | None
) -> None:
    """Write all rows of a pool, as they are, and the drawn rows alone, in their order, both with a column for labels.

    Args:
        source: files of the pool.
        plan: its plan.
        known: labels that some rows have already, by position.
        show: columns of the file of the drawn rows, which shows no predictions.
        whole: file of all rows; None for none.
        drawn: file of the drawn rows; None for none.
    """
    names = source.names
    taken, several = sorted({*WRITTEN}.intersection(names)), [name for name in names if names.count(name) > 1]
    if taken:
        raise ValueError(f"the file has a column {taken[0]!r} already, which would be written; rename it")
    if several:
        raise ValueError(f"the file has several columns {several[0]!r}, so rows would be short; rename them")
    if unknown := [name for name in show if name not in names]:
        raise ValueError(f"show names {unknown[0]!r}, which is no column; columns are {first_names(names)}")
    places, shown, start = dict(zip(plan.rows, range(1, len(plan.rows) + 1), strict=True)), dict[int, list[Any]](), 0
    selected = source._select(names, raw=True)
    pairs = zip(selected.columns, map(str, selected.types), strict=True)  # float32 in its own few digits
    selected = selected.project(", ".join(f"CAST({x} AS VARCHAR)" if kind == "FLOAT" else x for x, kind in pairs))
    with open(whole or os.devnull, "w", encoding="utf-8", newline="") as file, source._explained():
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, "label", ORDER, PLAN])
        for part in selected.to_arrow_reader(BATCH):
            cells = zip(*(part.column(at).to_pylist() for at in range(part.num_columns)), strict=True)
            for at, row in enumerate(cells, start):
                writer.writerow([*row, known.get(at, ""), places.get(at, ""), plan.id if at in places else ""])
                if at in places:
                    shown[at] = [row[names.index(name)] for name in show]
            start += part.num_rows
    if drawn is not None:
        with open(drawn, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([POSITION, *show, "label", PLAN])
            writer.writerows([at, *shown[at], known.get(at, ""), plan.id] for at in plan.rows)


def labels_of(source: Files, plan: Any) -> dict[int, str]:
    """Return the labels that a file of :func:`write_labels` holds, by position in the pool."""
    joined = next((name for name in (ORDER, POSITION) if name in source.names), "")
    if not joined or not {"label", PLAN} <= {*source.names}:
        raise ValueError(f"{source.paths[0]} is no file of 'imbtorch label': it has no columns {first_names(WRITTEN)}")
    known = dict[int, str]()
    rows = dict(enumerate(plan.rows, 1)) if joined == ORDER else {row: row for row in plan.rows}
    for part in source._select(["label", PLAN, joined], raw=True).to_arrow_reader(BATCH):
        for cells in zip(*(part.column(at).to_pylist() for at in range(3)), strict=True):
            label, own, place = (str("" if cell is None else cell).strip() for cell in cells)
            row = rows.get(int(float(place))) if own == plan.id and re.fullmatch(r"\d+(\.0*)?", place) else None
            if (label or own) and (row is None or row in known):
                raise ValueError(
                    f"{source.paths[0]} holds a row of plan {own!r}, {joined} {place!r}, that is not in its plan"
                )
            if label and row is not None:
                known[row] = label
    return known
