"""Files of predictions, read by DuckDB: CSV as text, Parquet and JSON lines, many at once, compressed or not."""

from __future__ import annotations

import csv
import glob
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from imbtorch.columns import Array, Column
from imbtorch.counts import check_choice
from imbtorch.predictions.sources import (
    BATCH,
    FILLED,
    LEAST,
    MOST_GROUPS,
    ROWS,
    SUM,
    Batch,
    Source,
    as_array,
    columns_of_groups,
)
from imbtorch.suggestions import first_names

KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".psv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
}
PACKED = {".gz": "gzip", ".zst": "zstd"}
MAGIC = {b"PAR1": "parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
FOREIGN = {
    b"\xfe\xff": "in UTF-16 of big-endian order; convert it to UTF-8",
    b"PK": "a zip archive or Excel file; unpack it, or save it as CSV",
    b"ARROW1": "an Arrow file; pass polars.read_ipc(path)",
    b"BZh": "packed by bzip2; unpack it or use gzip",
    b"\xfd7zXZ": "packed by xz; unpack it or use gzip",
}
ENCODINGS = ("utf-8", "latin-1", "utf-16")
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
ROW = "'row ' || (row_number() OVER () - 1)"  # SQL
HEAD, HEAD_LINES = 1_000_000, 100  # bytes and lines in which the head of a file must end


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def duckdb() -> Any:
    """Load DuckDB, and PyArrow, through which it hands out columns."""
    try:
        importlib.import_module("pyarrow")
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise ImportError(
            f"files need {error.name or 'duckdb'}: pip install 'imbtorch[files]'", name=error.name
        ) from error


@dataclass
class Relation(Source):
    """DuckDB relation: it groups there, and hands out batches; ``row`` is SQL for a text that names a row."""

    relation: Any
    decimal: str = "."
    connection: Any = None
    row: str = ""

    @cached_property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.relation.columns)

    def _select(self, names: Sequence[str]) -> Any:
        """Return the relation of some columns."""
        return self.relation.project(", ".join(map(quoted, dict.fromkeys(names))))

    def counted(self, keys: Sequence[str], sums: str | None = None) -> Batch:
        """Group in DuckDB."""
        parts = [*map(quoted, dict.fromkeys(keys)), f"count(*) AS {ROWS}"]
        if sums is not None:
            number = f"CAST({quoted(sums)} AS DOUBLE)"
            parts += [f"sum({number}) AS {SUM}", f"min({number}) AS {LEAST}", f"count({number}) AS {FILLED}"]
        selected = self._select([*keys, *([] if sums is None else [sums])])
        with self._explained():
            table = selected.aggregate(", ".join(parts)).limit(MOST_GROUPS + 1).to_arrow_table()
        return columns_of_groups(self, keys, table, sums)

    def batches(self, keys: Sequence[str], values: Sequence[str]) -> Iterator[Batch]:
        """Yield Arrow batches."""
        arrow = importlib.import_module("pyarrow")
        with self._explained():
            selected = self._select([*keys, *values])
            if self.decimal == ",":
                texts = {name for name, kind in zip(selected.columns, selected.types, strict=True) if kind == "VARCHAR"}
                cells = {name: quoted(name) for name in selected.columns}
                for name in texts.intersection(values):
                    cells[name] = f"replace({quoted(name)}, ',', '.') AS {quoted(name)}"
                selected = selected.project(", ".join(cells.values()))
            for part in selected.to_arrow_reader(BATCH):
                columns = {}
                for name in keys:
                    coded = part[name].dictionary_encode()
                    levels, codes = coded.dictionary.to_pylist(), coded.indices
                    if codes.null_count:
                        codes = codes.fill_null(len(levels))
                        levels.append(None)
                    columns[name] = Column(self.call(name), levels, np.from_dlpack(codes).astype(np.int64))
                yield columns, {name: _array(arrow, name, part[name]) for name in values}

    def width(self, name: str) -> int | None:
        """Return the number of values in each row of a column of lists."""
        selected = self._select([name])
        if not re.search(r"\[\d*\]$", str(selected.types[0])):
            return None
        first = selected.project(f"len({quoted(name)})").limit(1).fetchall()
        return int(first[0][0]) if first else None

    def find(self, name: str, level: Any) -> str:
        """Return a text that says where a level occurs first."""
        if not self.row:
            return ""
        named = self.relation.project(f"{self.row} AS r, {quoted(name)} AS x")
        found = named.filter(f"x IS NOT DISTINCT FROM {_value(level)}").limit(1).fetchall()
        return f" in {found[0][0]}" if found else ""

    def first(self, name: str) -> Any:
        """Return the value in the first row, which groups do not tell."""
        return self._select([name]).limit(1).fetchall()[0][0]

    def where(self, name: str, level: Any) -> Relation:
        """Return the rows that hold a value."""
        found = self._select(self.names).filter(f"{quoted(name)} IS NOT DISTINCT FROM {_value(level)}")
        return Relation(found, decimal=self.decimal)

    def paired(
        self, new: Relation, first: Mapping[str, str], second: Mapping[str, str], keys: Sequence[str], by_id: bool
    ) -> Relation:
        """Return columns of both by their roles: of rows with the same id, or row by row if all keys agree."""

        def columns(source: Relation, names: Mapping[str, str]) -> Any:
            cells = [f"{quoted(name)} AS {quoted(role)}" for role, name in names.items()]
            cells += [f"trim(CAST({quoted(key)} AS VARCHAR)) AS key{at}" for at, key in enumerate(keys)]
            return source._select([*names.values(), *keys]).project(", ".join(cells))

        def query(sql: str) -> Any:
            return old.query("imbtorch_old", sql)

        with self._explained():
            columns(new, second).create_view("imbtorch_new")
            old = columns(self, first)
            if by_id:
                _check_ids(query, keys[0])
                both, row = "imbtorch_old AS o JOIN imbtorch_new AS n USING (key0)", "'the row with id ' || key0"
            else:
                both, row = "imbtorch_old AS o POSITIONAL JOIN imbtorch_new AS n", ROW
                _check_order(query, both, keys)
            cells = [f"o.{quoted(role)}" for role in first] + [f"n.{quoted(role)}" for role in second]
            cells += ["key0"] if by_id else []
            return Relation(query(f"SELECT {', '.join(cells)} FROM {both}"), decimal=self.decimal, row=row)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise errors of DuckDB as errors that say what to do."""
        try:
            yield
        except duckdb().Error as error:
            raise ValueError(_cause(str(error))) from None


def _array(arrow: Any, name: str, part: Any) -> Array:
    """Return values of a batch; lists of equal length are rows. PyArrow's own conversion would import pandas."""
    kind = arrow.types
    if kind.is_list(part.type) or kind.is_fixed_size_list(part.type):
        flat = _array(arrow, name, part.flatten())
        if part.null_count or len(flat) % len(part):
            raise ValueError(f"column {name!r} must hold lists of equal length in every row")
        return flat.reshape(len(part), -1)
    if not (kind.is_integer(part.type) or kind.is_floating(part.type) or kind.is_decimal(part.type)):
        return np.array(part.to_pylist(), dtype=object)
    if part.null_count or part.type not in (arrow.float32(), arrow.float64()):
        part = part.cast(arrow.float64())
    return np.from_dlpack(part.fill_null(float("nan")) if part.null_count else part)


def _check_order(query: Callable[[str], Any], both: str, keys: Sequence[str]) -> None:
    """Raise for sources of different lengths, and for ids that show another order of the rows."""
    counts = "SELECT (SELECT count(*) FROM imbtorch_old), (SELECT count(*) FROM imbtorch_new)"
    old, new = query(counts).fetchall()[0]
    if old != new:
        raise ValueError(f"old has {old} rows and new {new}; both must be predictions of the same samples")
    for at, name in enumerate(keys):
        differ = f"SELECT count(*) FROM {both} WHERE o.key{at} IS DISTINCT FROM n.key{at}"
        different = query(differ).fetchall()[0][0]
        if different:
            raise ValueError(
                f"column {name!r} of old and new differs in {different} rows, so their order differs: pair the rows by "
                f"id={name!r} (--id {name}), or pass by_row=True (--by-row) if they are of the same samples anyway"
            )


def _check_ids(query: Callable[[str], Any], name: str) -> None:
    """Raise for ids that occur twice in the old or new source, and those of only one of them."""
    tables = {"old": "imbtorch_old", "new": "imbtorch_new"}
    for called, table in tables.items():
        twice = query(f"SELECT key0 FROM {table} GROUP BY key0 HAVING count(key0) > 1 LIMIT 1").fetchall()
        if twice:
            raise ValueError(f"{called} has several rows with {name} {twice[0][0]!r}; ids must differ")
    for there, called in (("old", "new"), ("new", "old")):
        only = query(f"SELECT key0 FROM {tables[there]} ANTI JOIN {tables[called]} USING (key0)").fetchall()
        if only:
            raise ValueError(f"{called} has no row with {name} {only[0][0]!r} ({len(only)} are missing)")


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
        return f"{where}{columns[2]} cells, but there are {columns[1]} columns; quote cells that hold the separator"
    if "unterminated quote" in text:
        return f"{where}a quote is not closed"
    return where + " ".join(text.partition("\nPossible")[0].partition("\n\nLINE")[0].split())


def in_memory(columns: Mapping[str, Any], like: Any) -> Relation:
    """Return columns in memory as a relation that can be joined with another one."""
    arrow = importlib.import_module("pyarrow")
    connection, held = getattr(like, "connection", None) or duckdb().connect(), {}
    for name, each in columns.items():
        values = as_array(name, each).tolist()
        try:  # NaN among texts is no text
            held[name] = arrow.array([None if value != value else value for value in values])
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            raise TypeError(f"column {name!r} must hold values of one type: {error}; convert them") from None
    return Relation(connection.from_arrow(arrow.table(held)), connection=connection, row=ROW)


class Reader(NamedTuple):
    """Arguments of DuckDB for one file; special columns hold lists (JSON), or a space before each cell (CSV)."""

    kind: str
    options: str
    head: tuple[str, ...]
    special: frozenset[str] = frozenset()


class Files(Relation):
    """Files of one kind, whose columns are found by name in each; columns that are wanted help to find the head."""

    def __init__(
        self, paths: Sequence[str], wanted: Sequence[str], encoding: str, decimal: str, head: bool, like: Any = None
    ) -> None:
        super().__init__(None, decimal=decimal)
        self.paths, self.connection = list(paths), getattr(like, "connection", None) or duckdb().connect()
        self.connection.execute("SET enable_progress_bar=true; SET enable_progress_bar_print=false")
        self._wanted, self._encoding, self._head = set(wanted), encoding, head
        self._readers = {path: self._reader(path) for path in self.paths}
        kinds = {reader.kind: path for path, reader in self._readers.items()}
        if len(kinds) > 1:
            raise ValueError(f"files must be of one kind, got {first_names(list(kinds.values()))}; name them by a glob")

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns of the first file."""
        return list(self._readers[self.paths[0]].head)

    def _select(self, names: Sequence[str], paths: Sequence[str] | None = None) -> Any:
        parts, wanted = [], [name for name in dict.fromkeys(names) if self.names.count(name) < 2]
        for reader, group in groupby(paths or self.paths, key=self._readers.__getitem__):
            some = list(group)
            lacking = [name for name in wanted if name not in reader.head]
            if lacking:
                raise ValueError(
                    f"{some[0]} has no column {lacking[0]!r}, which other files have; columns are "
                    f"{first_names(reader.head)}"
                )
            called, options = f"[{', '.join(map(literal, some))}]", reader.options
            if reader.kind == "csv":
                cells = [f"c{reader.head.index(name)}" for name in wanted]
                spaced = [name in reader.special for name in wanted]
                cells = [f"ltrim({cell})" if space else cell for cell, space in zip(cells, spaced, strict=True)]
            else:
                cells = list(map(quoted, wanted))
            if reader.kind == "json":
                kinds = ["DOUBLE[]" if name in reader.special else "VARCHAR" for name in wanted]
                typed = ", ".join(f"{literal(name)}: '{kind}'" for name, kind in zip(wanted, kinds, strict=True))
                options += f", columns={{{typed}}}"
            columns = ", ".join(f"{cell} AS {quoted(name)}" for cell, name in zip(cells, wanted, strict=True))
            parts.append(f"SELECT {columns} FROM read_{reader.kind}({called}{options})")
        with self._explained():
            return self.connection.sql(" UNION ALL ".join(parts))

    def find(self, name: str, level: Any) -> str:
        """Return a text that says where a level occurs first."""
        for path in self.paths:
            found = Relation(self._select([name], [path]), row=ROW).find(name, level)
            if found:
                return found + f" of {path}" * (len(self.paths) > 1)
        return ""

    # --- heads --------------------------------------------------------------------------------------------------------

    def _reader(self, path: str) -> Reader:
        """Find out how to read a file, from its name and its beginning."""
        with open(path, "rb") as file:
            start = file.read(8)
        if not start:
            raise ValueError(f"{path} is empty; it must have a head and at least one row")
        if start.startswith(b"\xff\xfe") and self._encoding == "utf-8":
            raise ValueError(f"{path} is not in UTF-8; encoding='utf-16' reads it")
        foreign = next((cause for magic, cause in FOREIGN.items() if start.startswith(magic)), None)
        if foreign is not None:
            raise ValueError(f"{path} is {foreign}")
        found = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
        bare = Path(path).with_suffix("") if Path(path).suffix in PACKED else Path(path)
        kind = "parquet" if found == "parquet" else KINDS.get(bare.suffix.lower(), "")
        if kind == "parquet":
            with self._explained():
                head = self.connection.sql(f"FROM read_parquet([{literal(path)}], hive_partitioning=false)").columns
            return Reader("parquet", ", hive_partitioning=false", tuple(head))
        lines = self._lines(path, found)
        if not kind:
            kind = "json" if lines[0].lstrip().startswith("{") else "csv"
        if kind == "json":
            return self._json(path, lines, found)
        return self._csv(path, lines, found)

    def _lines(self, path: str, packed: str | None) -> list[str]:
        """Return the first lines of a file of text; cells that nobody names may be in another encoding."""
        try:
            with importlib.import_module("pyarrow").input_stream(path, compression=packed) as stream:
                start = stream.read(HEAD)
        except OSError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if len(start) == HEAD:
            start = start[: max(start.rfind(b"\n"), start.rfind(b"\r"))]
        return re.split("\r\n|\r|\n", start.decode(self._encoding, "replace").removeprefix("\ufeff"))[:HEAD_LINES]

    def _json(self, path: str, lines: Sequence[str], packed: str | None) -> Reader:
        """Read the keys of the first lines of JSON."""
        keys: dict[str, bool] = {}
        for number, line in enumerate(filter(str.strip, lines), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: no JSON: {error}; write an object in each line") from None
            if not isinstance(row, dict):
                raise ValueError(f'{path}, line {number}: write an object in each line, such as {{"label": 1}}')
            keys |= {key: isinstance(each, list) for key, each in row.items()}
        options = f", format='newline_delimited', compression='{packed or 'none'}', maximum_object_size=67108864"
        return Reader("json", options, tuple(keys), frozenset(key for key, listed in keys.items() if listed))

    def _csv(self, path: str, lines: list[str], packed: str | None) -> Reader:
        """Find the head of a CSV file, its separator, and the lines before it."""
        stated = re.fullmatch(r'"?sep=(.)"?', lines[0])  # Excel's
        skip, signs = (1, [stated[1]]) if stated else (0, list(SEPARATORS))
        while True:
            head, sign, height = _cells(lines[skip:], signs, self._wanted)
            named = [name.strip() for name in head]
            named[:1] = [name.removeprefix("#").strip() for name in named[:1]]
            comment = self._head and lines[skip].strip()[:1] in ("", "#") and not self._wanted <= set(named)
            if not comment or skip + 1 >= len(lines):
                break
            skip += 1
        if not self._head:
            named = list(map(str, range(len(head))))
        elif not any(lines[skip + height :]):
            raise ValueError(f"{path} must have a head and at least one row")
        if sign != "," and packed is None and not path.endswith(".tsv"):
            self.notes = [f"columns of {os.path.basename(path)} are separated by {SEPARATORS.get(sign, sign)}"]
        spaced = frozenset(name for name, cell in zip(named, head, strict=True) if self._head and cell.startswith(" "))
        columns = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(len(head)))
        options = (
            f", auto_detect=false, all_varchar=true, columns={{{columns}}}, delim={literal(sign)}, quote='\"', "
            f"escape='\"', comment='', nullstr='', header={self._head}, skip={skip}, strict_mode=true, "
            f"null_padding=false, compression='{packed or 'none'}', encoding={literal(self._encoding)}, "
            "hive_partitioning=false"
        )
        return Reader("csv", options, tuple(named), spaced)


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
    return max(found, key=lambda each: each[:2])[2:]


def _value(level: Any) -> str:
    """Return a value as SQL."""
    if isinstance(level, float):
        return f"'{level}'::DOUBLE"
    return "NULL" if level is None else literal(level) if isinstance(level, str) else str(level)


def open_files(
    given: Any, wanted: Sequence[str], encoding: str | None, decimal: str, head: bool, like: Any = None
) -> Files:
    """Open a path, a glob, a folder or a list of paths.

    Raises:
        FileNotFoundError: for paths that match no file.
        ValueError: for files that are damaged, of several kinds, or lack a column.
    """
    check_choice("encoding", encoding or ENCODINGS[0], ENCODINGS)
    paths: list[str] = []
    for each in given if isinstance(given, (list, tuple)) else [given]:
        path = os.fspath(each)
        found = [path]
        if os.path.isdir(path):
            every = (str(file) for file in sorted(Path(path).rglob("*")) if file.is_file())
            found = [file for file in every if Path(file).suffix.lower() in {*KINDS, *PACKED}]
            found = [file for file in found if not re.search(r"(^|[/\\])[._]", os.path.relpath(file, path))]
        elif not os.path.exists(path):
            found = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
        if not found:
            raise FileNotFoundError(f"there is no file {path!r}; a glob must match files, and a folder hold some")
        paths += found
    if not paths:
        raise ValueError("the source is an empty list of paths")
    return Files(paths, wanted, encoding or ENCODINGS[0], decimal, head, like)
