"""Random frames through every kind of source (`sources.py`, `files.py`): never two different values.

An error is allowed, as what a file cannot say is one; it must be one that says so. ``IMBTORCH_FUZZ=3600`` draws
frames for an hour, ``IMBTORCH_FUZZ_FROM=7`` begins with the frame of this number.
"""

import csv
import gzip
import importlib
import json
import math
import os
import random
import time
import warnings
from collections import Counter

import pytest
from helpers.compared import compared

import imbtorch

pytest.importorskip("duckdb", reason="needs imbtorch[files]")
pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("polars", reason="needs polars")
duckdb, pyarrow, pandas, polars = map(importlib.import_module, ("duckdb", "pyarrow", "pandas", "polars"))
parquet = importlib.import_module("pyarrow.parquet")

SECONDS, FIRST = float(os.environ.get("IMBTORCH_FUZZ", "10")), int(os.environ.get("IMBTORCH_FUZZ_FROM", "0"))
CLASSES = {
    "bits": [0, 1],
    "whole": [0, 1, 2, 10],
    "signed": [-3, 0, 4],
    "ids": [2**40, 2**40 + 1, 7],
    "booleans": [False, True],
    "floats": [0.0, 1.0, 2.0],
    "texts": ["cat", "dog", "house cat"],
    "odd texts": [
        "a,b",
        'say "hi"',
        "two\nlines",
        "a;b",
        "tab\there",
        "é猫",
        " space",
        "x ",
        "a|b",
        "'",
        "\\N\\",
        "=1",
    ],
    "numbers as texts": ["0", "1", "1.0", "01", "2", "1e0", "+1"],
    "words": ["true", "False", "TRUE", "yes", "none", "unknown", "a"],
    "values": ["NA", "nan", "null", "", "a", "b"],
    "mixed": ["1", "2", "X", "3+", "-"],
    "fractions": ["0.5", "1.5", "2"],
    "halves": [0.5, 1.0, 2.0],
}
NAMES = ["label", "Label", "pred", "imbtorch_rows", "x0", "key0", "a b", "a,b", 'a"b', "a.b", "é", "select", "pred_1"]
NAMES += ["*", "a'b", "a/b~", "1"]


def drawn(number):
    """Return the columns of a random frame, and how to report it."""
    draw = random.Random(number)
    kind = draw.choice(list(CLASSES))
    some = CLASSES[kind]
    some = draw.sample(some, draw.randint(min(2, len(some)), min(5, len(some))))
    size = draw.choice([1, 3, 20, 60, 200])
    gaps = draw.choice([0, 0, 0, 0.05])
    columns = {}
    target, preds, other, score, extra, number = draw.sample(NAMES, 6)
    for name in (target, preds, other):
        columns[name] = [None if draw.random() < gaps else draw.choice(some) for _ in range(size)]
    columns[score] = [round(draw.random(), draw.choice([1, 3, 17])) for _ in range(size)]
    columns[extra] = [draw.choice(["A", "B", "c d"]) for _ in range(size)]
    columns[number] = [draw.choice([0, 1, 2, 3]) for _ in range(size)]
    more = {"missing": draw.choice(["raise", "drop", "class"])}
    if draw.random() < 0.4:
        more |= {draw.choice(["weight", "frequency"]): number}
    if draw.random() < 0.3:
        more |= {draw.choice(["group", "cluster"]): extra}
    if draw.random() < 0.3:
        more |= {"class_names": [str(each) for each in CLASSES[kind]] if draw.random() < 0.7 else list(CLASSES[kind])}
    if draw.random() < 0.2:
        more |= {"ignore": draw.choice([some[0], str(some[0]), -1, "none"])}
    if draw.random() < 0.2:
        more |= {"positive": draw.choice([some[0], str(some[-1])])}
    how = draw.choice(["preds", "preds", "preds", "scores", "scores", "compare"])
    names = {"target": target, "preds": preds, "other": other, "scores": score}
    return columns, names, how, more, draw


def sources(columns, folder, draw):
    """Yield a name and a source with the same columns, each kind of file also in two parts."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    yield "mapping", columns
    frame = pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in columns.items()})
    yield "pandas", frame
    yield "pandas, typed", frame.infer_objects().convert_dtypes() if draw.random() < 0.5 else frame.infer_objects()
    arrow = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    yield "pyarrow", arrow
    table = polars.DataFrame(columns, strict=False)
    yield "polars", table
    yield "lazy", table.lazy()
    folded = len({name.lower() for name in columns}) < len(columns)
    if not folded:  # DuckDB renames columns that differ in case
        yield "duckdb", duckdb.connect().from_arrow(arrow)
    cut = draw.randrange(len(rows) + 1)
    for at, (name, part) in enumerate((("whole", rows), ("first", rows[:cut]), ("second", rows[cut:]))):
        for ending, write in WRITERS.items():
            (folder / ending).mkdir(exist_ok=True)
            if part:
                write(folder / ending / f"{name}[{at}]*.{ending}", list(columns), part, draw)
    for ending in WRITERS:
        yield ending, folder / ending / f"whole[0]*.{ending}"
        parts = [folder / ending / f"{name}*.{ending}" for name in ("first[1]", "second[2]")]
        yield f"{ending} in parts", [path for path in parts if path.exists()]


def write_csv(path, names, rows, draw):
    """Write rows as CSV with one of several separators and line ends."""
    separator = draw.choice([",", ";", "\t", "|"]) if path.suffix == ".csv" else ","
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator=draw.choice(["\n", "\r\n"]))
        writer.writerow(names)
        writer.writerows(["" if row[name] is None else row[name] for name in names] for row in rows)


def write_json(path, names, rows, draw):
    """Write rows as lines of JSON, an array or an object of columns; the first two may leave missing values out."""
    columns = {name: {str(at): row[name] for at, row in enumerate(rows)} for name in names}
    rows = [{name: row[name] for name in names if row[name] is not None or draw.random() < 0.5} for row in rows]
    rows[0] = dict.fromkeys(names) | rows[0]
    lines = [json.dumps(row, ensure_ascii=draw.random() < 0.5) for row in rows]
    text = f"[{', '.join(lines)}]" if draw.random() < 0.3 else "\n".join(lines)
    text = json.dumps(columns) if path.name.startswith("whole") and draw.random() < 0.3 else text
    kind = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with open(path, "wb") if kind is None else pyarrow.CompressedOutputStream(str(path), kind) as file:
        file.write(text.encode())


def write_parquet(path, names, rows, draw):
    """Write rows as Parquet, by PyArrow or Polars."""
    columns = {name: [row[name] for row in rows] for name in names}
    if draw.random() < 0.5:
        polars.DataFrame(columns, strict=False).write_parquet(path)
        return
    options = {"write_page_checksum": draw.random() < 0.5, "compression": draw.choice(["none", "zstd", "snappy"])}
    parquet.write_table(pyarrow.table({name: pyarrow.array(each) for name, each in columns.items()}), path, **options)


WRITERS = {"csv": write_csv, "csv.gz": write_csv, "jsonl": write_json, "jsonl.zst": write_json}
WRITERS |= {"parquet": write_parquet}
SAID = (ValueError, TypeError)
OF_COMPARE = ("missing", "cluster", "class_names", "ignore", "positive")


def outcome(source, names, how, more):
    """Return the classes, counts and values of a report or comparison, or its error."""
    named = {"target": names["target"]}
    try:
        if how == "compare":
            more = {key: each for key, each in more.items() if key in OF_COMPARE}
            preds = [names["preds"], names["other"]]
            found = compared(source, measure="accuracy", **named, preds=preds, **more).difference
            return {"difference": found.estimate.item()}
        more = named | {how: names[how]} | more
        found = imbtorch.report(source, **more, measures=["accuracy", "balanced_accuracy"])
    except SAID as error:
        return error
    rows = {f"{kind} {name}": row for kind, each in found.table().to_dict().items() for name, row in each.items()}
    values = {f"{name} {key}": value for name, row in rows.items() for key, value in row.items()}
    counts = {f"counts {at}": value for at, value in enumerate(found.counts.flatten().tolist())}
    return counts | {key: value for key, value in values.items() if isinstance(value, (int, float))}


def alike(one, other):
    if one.keys() != other.keys():
        return False
    pairs = [(one[key], other[key]) for key in one]
    return all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_two_sources_of_one_frame_give_different_values(tmp_path):
    end, number, seen = time.monotonic() + SECONDS, FIRST, Counter()
    while number == FIRST or time.monotonic() < end:
        columns, names, how, more, draw = drawn(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        found = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, source in sources(columns, folder, draw):
                found[name] = outcome(source, names, how, more)
        values = {name: each for name, each in found.items() if isinstance(each, dict)}
        first = next(iter(values.values()), None)
        wrong = [name for name, each in values.items() if not alike(first, each)]
        texts = {name: str(each)[:300] for name, each in found.items()}
        assert not wrong, f"frame {number}: {wrong[0]} differs; {how}, {names}, {more}, {columns}: {texts}"
        seen.update([f"{how}, {'values' if len(values) == len(found) else 'errors' if not values else 'both'}"])
        importlib.import_module("shutil").rmtree(folder)
        number += 1
    assert sum(count for kind, count in seen.items() if "values" in kind or "both" in kind) > 0, seen
