"""Files (`files.py`, `paths.py`): which rows are read, whatever files, folders and columns are called, and damage."""

import csv
import gzip
import importlib
import itertools
import json
import os
import random
import threading

import numpy as np
import pytest
import sklearn.metrics
from compared import compared
from rooms import command_line
from rooms import files as saved_files

import imbtorch

duckdb = pytest.importorskip("duckdb", reason="needs imbtorch[files]")
pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
parquet = importlib.import_module("pyarrow.parquet")

GOOD = [(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)]  # [[2, 1], [1, 1]]
OTHER = [(0, 0), (1, 1)]
NAMED = {"target": "label", "preds": "pred"}


def packed(path, text, kind):
    """Write a text through PyArrow's compression."""
    with pyarrow.CompressedOutputStream(str(path), kind) as stream:
        stream.write(text.encode())


def save(path, rows, **more):
    """Write rows of targets and predictions in the format that the ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"label": [a for a, _ in rows], "pred": [b for _, b in rows]} | more
    lines = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    text = "\n".join([",".join(columns), *(",".join(map(str, line.values())) for line in lines)]) + "\n"
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    elif path.suffix in (".gz", ".zst"):
        packed(path, text, {".gz": "gzip", ".zst": "zstd"}[path.suffix])
    else:
        path.write_text(text, encoding="utf-8")
    return path


def matrix(*parts):
    pairs = np.array([pair for part in parts for pair in part])
    return sklearn.metrics.confusion_matrix(pairs[:, 0], pairs[:, 1]).tolist()


def counts(source, **more):
    return imbtorch.report(source, **NAMED, **more).counts.tolist()


# --- names ------------------------------------------------------------------------------------------------------------

ODD = ["p[1]", "p[!a]", "[]", "[[]", "]", "p?", "p*", "**", "{a,b}", "a,b", "a;b", "'", '"', "%41", "~", "$HOME", "#"]
ODD += [
    " p ",
    "p\n",
    "-",
    "--head",
    "x=1",
    "é猫",
    "p[1]/p",
    "layers=[64,32]/p",
    "run?/p",
    "s3:/p",
    "http:/host/p",
    "a b/p",
]
NEAR = ["p1", "p!", "[", "px", "p", "a", "b", "A", "p1/p", "layers=6/p", "runs/p", "layers=4/p"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "csv.gz"])
def test_a_name_is_a_name_before_it_is_a_pattern(ending, tmp_path, monkeypatch):
    """What Python's ``open`` reads is the oracle: the file of this name, and its rows alone."""
    monkeypatch.chdir(tmp_path)
    for name in NEAR:
        save(tmp_path / f"{name}.{ending}", OTHER)
    for at, name in enumerate(ODD if ending == "csv" else ODD[:: 4 if ending == "csv.gz" else 2]):
        path = save(tmp_path / f"{name}.{ending}", GOOD)
        assert os.path.isfile(f"{name}.{ending}")
        assert counts((f"{name}.{ending}", [f"{name}.{ending}"], path)[at % 3]) == matrix(GOOD), name
    old, new = f"p[1].{ending}", f"p1.{ending}"
    save(tmp_path / new, [(a, a) for a, _ in GOOD])
    gain = compared(old, new, measure="accuracy", **NAMED).difference.estimate
    assert gain == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("run[2]", [GOOD]),
        ("run[2]/*.csv", [GOOD]),
        ("*/layers=[64,32]/p.csv", [GOOD]),
        ("run[23]/*.csv", [OTHER, OTHER]),
        ("run?/p.csv", [OTHER, OTHER]),
        ("**/p.csv", [GOOD, OTHER, OTHER, GOOD]),
        ("**/layers=[64,32]/*", [GOOD]),
        ("sweep/**", [GOOD]),
        ("./sweep/*/../layers=[64,32]/p.csv", [GOOD]),
    ],
)
def test_folders_within_a_pattern_are_names(pattern, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, rows in {"run[2]": GOOD, "run2": OTHER, "run3": OTHER, "sweep/layers=[64,32]": GOOD}.items():
        save(tmp_path / folder / "p.csv", rows)
    assert counts(pattern) == counts(str(tmp_path / pattern)) == matrix(*parts)
    command = ["report", pattern, "--target", "label", "--preds", "pred", "--json", "out.json"]
    assert command_line.main(command) == 0
    assert imbtorch.open_result("out.json").counts.tolist() == matrix(*parts)


def test_a_backslash_is_refused_since_duckdb_may_read_another_file(tmp_path):
    if os.sep == "\\":
        pytest.skip("separates folders on Windows")
    for name in ("a\\b.csv", "a\\[b].csv", "a\\b/p.csv"):
        with pytest.raises(ValueError, match="names that contain a backslash; rename"):
            counts(save(tmp_path / name, GOOD))


def test_no_extension_is_loaded_and_no_address_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    connection = saved_files.connected()
    for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
        assert connection.sql(f"SELECT current_setting('{setting}')").fetchall() == [(False,)]
    with pytest.raises(duckdb.Error):
        connection.sql("FROM read_csv('http://localhost:9/a.csv')")
    for address in ("http://host/a.csv", "s3://bucket/a.csv", "hf://datasets/a.csv"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            counts(address)


# --- files that count twice -------------------------------------------------------------------------------------------


def test_one_file_is_not_read_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "p.csv", GOOD)
    save(tmp_path / "more" / "p.csv", OTHER)
    os.link(path, "hard.csv")
    os.symlink(path, "soft.csv")
    os.symlink(tmp_path / "more", "folder")
    same = [["p.csv", "p.csv"], ["p.csv", "./p.csv"], ["p.csv", path], ["p.csv", "hard.csv"], ["soft.csv", "p.csv"]]
    same += [["p.csv", "*.csv"], "*.csv", ".", ["more", "folder/p.csv"], ["more", "more/p.csv"]]
    for source in same:
        with pytest.raises(ValueError, match=r"p\.csv.* are the same file, so samples would count twice|the same file"):
            counts(source)
    code = command_line.main(["report", "p.csv", "soft.csv", "--target", "label", "--preds", "pred"])
    assert code == 2
    assert counts(["p.csv", "more/p.csv"]) == matrix(GOOD, OTHER)


@pytest.mark.parametrize("ending", ["csv.gz", "csv.zst", "csv.GZ"])
def test_a_file_beside_its_compressed_self_is_refused_in_one_folder(ending, tmp_path):
    rows = [save(tmp_path / name, GOOD) for name in ("a.csv", "a.csv.gz", "a.csv.zst")]
    packed(tmp_path / "b.csv.GZ", "label,pred\n0,0\n1,1\n", "gzip")
    other = tmp_path / f"{'b' if ending.endswith('GZ') else 'a'}.{ending}"
    plain = other.with_name(other.name[:5])
    save(plain, GOOD)
    for source in ([plain, other], [other, plain]):
        with pytest.raises(ValueError, match="are equal but for compression, so samples would count twice"):
            counts(source)
    elsewhere = save(tmp_path / "other day" / plain.name, OTHER)
    assert counts([elsewhere, other]) == (matrix(OTHER, OTHER if other.name[0] == "b" else GOOD))
    assert counts(rows[0]) == matrix(GOOD)


def told(source):
    return [note for note in imbtorch.report(source, **NAMED).table().notes if "hold the same bytes" in note]


def test_equal_bytes_are_a_note_and_shards_of_equal_counts_are_none(tmp_path):
    one = save(tmp_path / "day 1" / "p.csv", GOOD)
    copy, shard = save(tmp_path / "p (1).csv", GOOD), save(tmp_path / "day 2" / "p.csv", GOOD[::-1])
    assert counts([one, shard]) == counts([one, copy]) == matrix(GOOD, GOOD)
    assert told([one, copy]) == [f"{one} and {copy} hold the same bytes; if one is a copy, its samples count twice"]
    assert told([one, shard]) == told(one) == []


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "csv.gz"])
@pytest.mark.parametrize("folder", ["weight=1", "pred=1", "label=0", "site=C", "PRED=1", "filename=x"])
def test_a_folder_named_like_a_column_changes_nothing(folder, ending, tmp_path):
    weights, sites = [1, 9, 1, 4, 2], list("ABABA")
    path = save(tmp_path / folder / f"p.{ending}", GOOD, weight=weights, site=sites)
    target, preds = zip(*GOOD, strict=True)
    for source in (path, path.parent, str(tmp_path / "*" / "p.*")):
        found = imbtorch.report(source, **NAMED, weight="weight", measures=["accuracy"])["accuracy"].item()
        assert found == pytest.approx(sklearn.metrics.accuracy_score(target, preds, sample_weight=weights), abs=1e-6)
        assert set(imbtorch.report(source, **NAMED, group="site").table()["group"]) == {"A", "B"}


CASES = {"Label": list("ababb"), "label": list("aabbb"), "LABEL": list("bbbaa"), "imbtorch_rows": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "frame", "polars", "lazy", "duckdb"])
def test_columns_that_differ_in_case_are_different_ones(kind, tmp_path):
    source, cases = CASES, CASES | {"pred": CASES["LABEL"]}
    weights = {"imbtorch_rows": CASES["imbtorch_rows"]}
    if kind in ("csv", "parquet", "jsonl"):
        source = save(tmp_path / f"p.{kind}", GOOD, **CASES)
    elif kind == "frame":
        source = pytest.importorskip("pandas", reason="needs pandas").DataFrame(CASES)
    elif kind in ("polars", "lazy"):
        frame = pytest.importorskip("polars", reason="needs polars").DataFrame(CASES)
        source = frame.lazy() if kind == "lazy" else frame
    names = ["imbtorch_rows"] if kind == "duckdb" else [None, "imbtorch_rows"]
    if kind == "duckdb":  # which does not tell Label from label
        source = duckdb.connect().from_arrow(pyarrow.table({"label": cases["label"], "pred": cases["pred"]} | weights))
    columns = ["label", "pred"] if kind == "duckdb" else ["Label", "label", "LABEL"]
    for target, preds in itertools.pairwise(columns):
        for frequency in names:
            expected = sklearn.metrics.confusion_matrix(cases[target], cases[preds], sample_weight=cases.get(frequency))
            found = imbtorch.report(source, target=target, preds=preds, frequency=frequency).counts.tolist()
            assert found == expected.tolist(), (target, preds)
    if kind in ("csv", "parquet", "jsonl", "frame"):
        given = {"measure": "accuracy", "target": "Label", "preds": ["label", "LABEL"]}
        gain = compared(source, **given).difference.estimate.item()
        truth = np.array(CASES["Label"])
        wanted = [np.mean(truth == np.array(CASES[name])) for name in ("label", "LABEL")]
        assert gain == pytest.approx(wanted[1] - wanted[0])


def test_compressed_json_keeps_columns_that_differ_in_case_apart(tmp_path):
    rows = [{"A/b~": "x", "a/b~": "y", "s": [1, 0]}, {"A/b~": "y", "a/b~": None, "S": 1, "s": [0, 1]}]
    rows += [{"a/b~": "x", "A/b~": "y"}]
    packed(tmp_path / "p.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows), "gzip")
    found = imbtorch.report(
        tmp_path / "p.jsonl.gz", target="A/b~", preds="a/b~", missing="drop", class_names=["x", "y"]
    )
    assert found.counts.tolist() == [[0, 1], [1, 0]]


LISTS = [[0.9, 0.1], [0.6], [0.4, 0.5, 0.5], [0.7, 0.3]]  # one value was written into the next row


@pytest.mark.parametrize(
    "kind", ["parquet", "large", "jsonl", "array", "pandas", "polars", "lazy", "mapping", "arrow", "duckdb"]
)
@pytest.mark.parametrize(
    "lists", [LISTS, [LISTS[0], [], [0.1, 0.2, 0.3, 0.4], LISTS[3]], [LISTS[0], None, *LISTS[3:], LISTS[0]]]
)
def test_lists_of_unequal_length_are_an_error_that_names_the_row(kind, lists, tmp_path):
    columns = {"label": [0, 1, 1, 0], "z": lists}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    source = {"mapping": columns, "arrow": pyarrow.table(columns)}.get(kind)
    if kind in ("parquet", "large"):
        of = pyarrow.large_list if kind == "large" else pyarrow.list_
        columns["z"] = pyarrow.array(lists, of(pyarrow.float32()))
        parquet.write_table(pyarrow.table(columns), source := tmp_path / "z.parquet")
    elif kind in ("jsonl", "array"):
        text = json.dumps(rows) if kind == "array" else "\n".join(map(json.dumps, rows))
        (source := tmp_path / "z.json").write_text(text, encoding="utf-8")
    elif kind == "pandas":
        source = pytest.importorskip("pandas", reason="needs pandas").DataFrame(columns)
    elif kind in ("polars", "lazy"):
        frame = pytest.importorskip("polars", reason="needs polars").DataFrame(columns)
        source = frame.lazy() if kind == "lazy" else frame
    elif kind == "duckdb":
        source = duckdb.connect().from_arrow(pyarrow.table(columns))
    for more in ({}, {"logits": True}):
        with pytest.raises(ValueError, match=r"(lists of equal length.* row 1 holds|rows of equal length)"):
            imbtorch.report(source, target="label", scores="z", **more)


@pytest.mark.filterwarnings("ignore:the AUC is")
def test_lists_of_equal_length_are_rows_of_scores(tmp_path):
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.7, 0.3]])
    label = [0, 1, 1, 0]
    rows = [{"label": each, "z": score} for each, score in zip(label, scores.tolist(), strict=True)]
    (tmp_path / "z.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    fixed = pyarrow.FixedSizeListArray.from_arrays(scores.ravel(), 2)
    parquet.write_table(pyarrow.table({"label": label, "z": fixed}), tmp_path / "z.parquet")
    for path in ("z.json", "z.parquet"):
        found = imbtorch.report(tmp_path / path, target="label", scores="z")
        assert found["auc"].item() == pytest.approx(sklearn.metrics.roc_auc_score(label, scores[:, 1]))


def test_every_row_of_json_must_be_an_object(tmp_path):
    """DuckDB takes the whole row for the value of a single column if some row is no object."""
    for bad in ('["a"]', '"a"'):
        path = tmp_path / "p.jsonl"
        path.write_text(
            '{"label": "a", "pred": "a"}\n' * 200 + bad + '\n{"label": "b", "pred": "a"}\n', encoding="utf-8"
        )
        with pytest.raises(ValueError, match="in line 201: Expected OBJECT"):
            imbtorch.report(path, **NAMED)
        with pytest.raises(ValueError, match="in line 201: Expected OBJECT"):
            imbtorch.Predictions(path, target="label").label_plan("pred", labels=2)


# --- damage -----------------------------------------------------------------------------------------------------------

TEXT = "label,pred,text\n" + "".join(
    f"{a},{b},{''.join(random.Random(row).choices('abcdefgh ', k=120))}\n"
    for row, (a, b) in enumerate(itertools.islice(itertools.cycle(GOOD), 20_000))
)


@pytest.fixture(scope="module")
def streams():
    """Return the compressed bytes of one file of 2.5 MB, also as several members and frames."""
    made = {}
    for kind, ending in (("gzip", "gz"), ("zstd", "zst")):
        parts = []
        for text in (TEXT, TEXT[:1_000_003], TEXT[1_000_003:]):
            with pyarrow.CompressedOutputStream(sink := pyarrow.BufferOutputStream(), kind) as stream:
                stream.write(text.encode())
            parts.append(sink.getvalue().to_pybytes())
        made[ending], made[f"two.{ending}"] = parts[0], parts[1] + parts[2]
    return made


@pytest.mark.parametrize("ending", ["gz", "zst", "two.gz", "two.zst"])
def test_a_stream_is_read_to_its_end(ending, streams, tmp_path):
    whole, path = streams[ending], tmp_path / f"p.csv.{ending[-3:].lstrip('.')}"
    path.write_bytes(whole)
    assert counts(path) == (4000 * np.array(matrix(GOOD))).tolist()
    draw = random.Random(0)
    cuts = [*(draw.randrange(20, len(whole)) for _ in range(3)), len(whole) * 3 // 4, len(whole) - 4, len(whole) - 1]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"p\.csv\.(gz|zst) is damaged: Truncated"):
            counts(path)
    with pytest.raises(ValueError, match="no column 'lable'"):  # told before the stream is read to its end
        imbtorch.report(path, target="lable", preds="pred")
    path.write_bytes(whole + b"junk")
    with pytest.raises(ValueError, match="damaged"):
        counts(path)


def test_flipped_bits_of_gzip_are_found(streams, tmp_path):
    whole, path, draw = streams["gz"], tmp_path / "p.csv.gz", random.Random(1)
    for place in (len(whole) - 2, len(whole) - 6, *(draw.randrange(20, len(whole)) for _ in range(10))):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            counts(path)
        with pytest.raises(gzip.BadGzipFile if place > len(whole) - 9 else Exception):
            gzip.decompress(damaged)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_pages_of_parquet_with_checksums_are_verified(compression, tmp_path):
    draw, path = random.Random(2), tmp_path / "p.parquet"
    label = [draw.choice("abcdefgh") * 20 for _ in range(20_000)]
    table = pyarrow.table({"label": label, "pred": label, "text": [str(draw.random()) for _ in label]})
    options = {"compression": compression, "use_dictionary": False, "column_encoding": None}
    for checksum in (True, False):
        parquet.write_table(table, path, write_page_checksum=checksum, **options)
        assert sklearn.metrics.accuracy_score(label, label) == imbtorch.report(path, **NAMED)["accuracy"]
    parquet.write_table(table, path, write_page_checksum=True, **options)
    whole = path.read_bytes()
    for _ in range(5):
        damaged = bytearray(whole)
        damaged[draw.randrange(1000, len(whole) // 4)] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"p\.parquet"):
            counts(path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "csv.gz"])
def test_a_pipe_is_an_error_at_once(ending, tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo(path := tmp_path / f"p.{ending}")
    source = save(tmp_path / f"q.{ending}", GOOD)
    threading.Thread(target=lambda: path.open("wb").close(), daemon=True).start()
    for given in (path, [source, path], tmp_path, tmp_path / "p.*", "/dev/null"):
        with pytest.raises(ValueError, match=r"is not a regular file, such as a pipe.*; save it first"):
            counts(given)
    with pytest.raises(ValueError, match="save it first"):
        compared(source, path, measure="accuracy", **NAMED)
    path.open("rb").close()


# --- errors -----------------------------------------------------------------------------------------------------------

REPORTED = ["--target", "label", "--preds", "pred"]
JSON = '{"label": "a", "pred": "a"}\n'
SEVERAL = ["--target", "a,b", "--preds"]
ERRORS = [  # ending, content, what the error says, options after those that name columns
    ("csv", b"label,pred\r\n0,0\r\n0,1\n1,1\n", "lines end in different ways"),
    ("csv", b"label,pred\n" + b"0,1\n1,0\n" * 9000 + b"1,1\r\n", "lines end in different ways"),
    ("csv", b'text,label,pred\n"he said \\"hi\\", ok",0,1\nx,1,1\n', "in Spark by option('escape', '\"')"),
    ("tsv", b'"label"\t"pred"\n"1"\t0\t1\n"2"\t1\t1\n', "row.names=FALSE"),
    (
        "csv",
        b"label,pred\n0,0\n1,1,1\n",
        "line 3: 3 cells, but there are 2 columns; quote cells that hold the separator",
    ),
    (
        "jsonl",
        b"\xef\xbb\xbf" + JSON.encode(),
        "begins with a byte order mark, which JSON must not have; save it without",
    ),
    ("jsonl", JSON.encode("utf-16"), "not in UTF-8; convert it to UTF-8"),
    ("jsonl", JSON.encode("utf-16"), "not in UTF-8; convert it to UTF-8", "--encoding", "utf-16"),
    (
        "jsonl",
        b'{"label": 1, "pred": 1}\n{"label": 1\n',
        "line 2: no JSON: Expecting ',' delimiter; write an object in each line",
    ),
    ("jsonl", JSON.encode() * 200 + b'{"label": 1\n', "error: Malformed JSON in file"),
    ("jsonl", b'{"label": ' + b"[" * 100_000 + b"\n", "line 1: no JSON: nested too deeply; write an object"),
    ("jsonl", b'{"label": 1, "label": 0, "pred": 1}\n', 'duplicate key "label"'),
    ("jsonl", b'{"label": "a", "pred": {"a": 0.9}}\n', 'holds {"a": 0.9}; write a value or a list of numbers in it'),
    ("json", b'{"label": {"0": 0}, "pred": {"1": 1}}', "hold different rows, or the same in another order"),
    ("json", b'{"label": {"0": 0, "0": 1}, "pred": {"0": 1}}', "column 'label' of"),
    ("jsonl", b'{"label": "a", "pred": ["a"]}\n', 'holds ["a"]; write a value or a list of numbers in it'),
    ("jsonl", b'{"label": [0, 1], "pred": [0, 1]}\n' * 2, "make a column of 0 and 1 for each label"),
    ("json", b'{"label":{"0":0,"1":1},"pred":{"0":1,"1":1}}\n' * 2, "as pandas' to_json(orient='records', lines=True)"),
    ("json", b'{"label":{"0":0,"1":1},"pred":{"0":1,"1":nul', "line 1: no JSON: Expecting"),
    ("json", b"[]", "holds no objects; write an object in each line"),
    ("json", b"[1, 2]", "holds no objects; write an object in each line"),
    ("json", b'[{"label": 1, "pred": 1}, {"label": 0, "pred": 1}', "Malformed JSON"),
    ("tsv", b"label\tprediction\n0\t1\n", "columns are label, prediction; --no-head reads a file without a head"),
    ("csv", b"0,1\n1,1\n", "columns are 0, 1\n", "--no-head"),
    ("csv", b"label,label,pred\n0,1,1\n", "several columns 'label'; rename them; --no-head"),
    ("csv", b"label,pred,w\n0,0,1\n1,1,NA\n", "leave rows without one out", "--weight", "w", "--missing", "drop"),
    ("csv", b"a,b,a_p,b_p\n1,1,.9,.2\n0,0,.1,.4\n", "classes are a, b; leave the column out", *SEVERAL, "a_p,b_p"),
]


@pytest.mark.parametrize(("ending", "content", "text", "options"), [(*case[:3], case[3:]) for case in ERRORS])
def test_errors_name_the_cause_and_the_remedy(ending, content, text, options, tmp_path, capsys):
    path, out = tmp_path / f"a.{ending}", tmp_path / "out.json"
    path.write_bytes(content)
    assert command_line.main(["report", str(path), *REPORTED, *options, "--json", str(out)]) == 2
    said = capsys.readouterr()
    assert text in said.err
    assert "Traceback" not in said.err
    assert said.err.count("\n") == 1
    assert (said.out, out.exists()) == ("", False)


BYTES = {
    "spaces": b"label pred\n0 0\n1 1\n0 1\n",
    "quoted spaces": b'"label" "pred"\n"0" "0"\n"1" "1"\n"0" "1"\n',
    "savetxt": b"# label pred\n0.0e+00 0.0e+00\n1.0e+00 1.0e+00\n0.0e+00 1.0e+00\n",
    "array": b'[{"label": 0, "pred": 0}, {"label": 1, "pred": 1},\n {"label": 0, "pred": 1}]',
    "indented": json.dumps(
        [{"label": 0, "pred": 0}, {"label": 1, "pred": 1}, {"pred": 1, "label": 0}], indent=4
    ).encode(),
    "lines": b'\n{"label": 0, "pred": 0}\r\n{"pred": 1, "label": 1}\n\n{"label": 0, "pred": 1}',
    "a head of two lines": b'"two\nlines",label,pred\n1,0,0\n2,1,1\n3,0,1\n',
    "a comment with a quote": b'# say "hi\nlabel,pred\n0,0\n1,1\n0,1\n',
}


@pytest.mark.parametrize("case", BYTES)
def test_other_forms_are_read(case, tmp_path):
    for name in ("a.json" if BYTES[case].lstrip()[:1] in (b"{", b"[") else "a.csv", "a.data"):
        path = tmp_path / name
        path.write_bytes(BYTES[case])
        assert counts(path) == [[1, 1], [0, 1]], name
    bare = b"0 0\n1 1\n0 1\n"
    (tmp_path / "bare.txt").write_bytes(bare)
    found = imbtorch.report(tmp_path / "bare.txt", target="0", preds="1", head=False)
    assert found.counts.tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--class-names", "a", "b", "FILE"], "write files before options that take several values"),
        (["FILE", "--ignore", "--"], "write --option=VALUE if VALUE begins with -"),
        (["FILE", "--positive", "-x"], "write --option=VALUE if VALUE begins with -"),
    ],
)
def test_slips_of_the_command_are_told(words, text, tmp_path, capsys):
    path = save(tmp_path / "a.csv", GOOD)
    words = [str(path) if word == "FILE" else word for word in words]
    assert command_line.main(["report", *REPORTED, *words]) == 2
    assert text in capsys.readouterr().err
    assert command_line.main(["report", str(path), *REPORTED, "--class-names", "0", "1"]) == 0


def test_files_whose_columns_alternate_are_read_at_once(tmp_path, monkeypatch):
    """One part of the query for each order of columns, whatever the order of the files; errors name file and row."""
    rng, rows = np.random.default_rng(0), []
    for number in range(60):
        target, preds = rng.integers(3, size=(2, 5))
        head = [["label", "pred"], ["pred", "label"], ["x", "pred", "label"]][number % 3]
        cells = {"label": target, "pred": preds, "x": preds}
        lines = [
            ",".join(head),
            *(",".join(map(str, row)) for row in zip(*(cells[name] for name in head), strict=True)),
        ]
        (tmp_path / f"{number:02}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows += zip(target, preds, strict=True)
    texts, quoted = [], saved_files.literal
    monkeypatch.setattr(saved_files, "literal", lambda text: texts.append(text) or quoted(text))
    result = imbtorch.report(tmp_path, target="label", preds="pred")
    assert result.counts.tolist() == sklearn.metrics.confusion_matrix(*zip(*rows, strict=True)).tolist()
    order = [int(os.path.basename(text)[:2]) % 3 for text in texts if text.endswith(".csv")]
    assert order[:60] == sorted(order[:60])
    (tmp_path / "31.csv").write_text("pred,label\n1,1\nnever,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"'never' in row 1 of .*31\.csv"):
        imbtorch.report(tmp_path, target="label", preds="pred")


# --- quotes, heads and keys -------------------------------------------------------------------------------------------


def test_a_quote_that_swallows_rows_is_an_error_with_its_line(tmp_path):
    """Without quoting Python's csv reads four rows; the quote opens in the second one, line 3."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    rows = ["fine\t0\t1", '"hello\t1\t1', "x\t0\t1", 'world"\t1\t1']
    lines = ["id\ttext\tlabel\tpred", *(f"{at}\t{row}" for at, row in enumerate(rows))]
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert len(list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))) == 5
    with pytest.raises(ValueError, match="line 3: a quote opens a cell that ends in a later row"):
        imbtorch.report(path, target="label", preds="pred")
    frame = pandas.DataFrame({"text": ['"hello', "two\nlines", "a\ttab", 'world"'], "label": [0, 1, 0, 1], "pred": 1})
    frame.to_csv(path, sep="\t", index=False)
    assert imbtorch.report(path, target="label", preds="pred").counts.tolist() == [[0, 2], [0, 2]]
    path.write_text('text\tlabel\tpred\n5" disk\t0\t1\na\t1\t1\n', encoding="utf-8")
    assert imbtorch.report(path, target="label", preds="pred").counts.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("inner", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("outer", ["\n", "\r\n"])
def test_a_line_break_in_the_head_is_read_or_told(inner, outer, tmp_path):
    """Of ten rows all are read, or an error names the head; "target is empty" named no cause."""
    lines = [f'label,"my{inner}text",pred', *(f"{at % 2},t,{at % 2}" for at in range(10))]
    path = tmp_path / "a.csv"
    path.write_bytes("".join(line + outer for line in lines).encode())
    if inner == outer:
        assert imbtorch.report(path, target="label", preds="pred").counts.tolist() == [[5, 0], [0, 5]]
    else:
        with pytest.raises(ValueError, match=r"the head of .*a\.csv holds a line break that is not the one between"):
            imbtorch.report(path, target="label", preds="pred")


@pytest.mark.parametrize("array", [False, True])
def test_a_key_that_only_later_rows_hold_is_found(array, tmp_path):
    """The first of 300 objects with a group is the 151st; pandas counts the rows of each."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    rows = [{"y": at % 2, "p": at // 2 % 2} | ({"g": f"site {at % 2}"} if at >= 150 else {}) for at in range(300)]
    text = json.dumps(rows) if array else "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    named = {"target": "y", "preds": "p", "group": "g", "missing": "drop", "measures": ["accuracy"]}
    found = imbtorch.report(tmp_path / "a.json", **named)
    sizes = pandas.DataFrame(rows).groupby("g").size()
    assert {name: row["support"] for name, row in found.table()["group"].items()} == sizes.to_dict()
    with pytest.raises(ValueError, match="there is no column 'h'"):
        imbtorch.report(tmp_path / "a.json", **named | {"group": "h"})
