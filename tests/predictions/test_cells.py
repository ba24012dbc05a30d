"""What a cell means (`columns.py`), from any source: order of categories, decimal commas, words for no value."""

import csv
import importlib
import io
import json
import shlex

import numpy as np
import pytest
import sklearn.metrics
from compared import compared
from imblearn.metrics import macro_averaged_mean_absolute_error
from rooms import command_line

import imbtorch

duckdb = pytest.importorskip("duckdb", reason="needs imbtorch[files]")
pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
parquet = importlib.import_module("pyarrow.parquet")

RNG = np.random.default_rng(7)
T = RNG.choice(3, 300, p=[0.6, 0.25, 0.15])
Q, R = (np.clip(T + RNG.integers(-1, 2, 300), 0, 2) for _ in range(2))
Y = (RNG.random(300) < 0.2).astype(int)
P = np.where(RNG.random(300) < 0.15, 1 - Y, Y)
KNOWN = RNG.random(300) < 0.5
LEVELS = ["low", "medium", "high"]  # not in alphabetical order
NAMED = {"target": "label", "preds": "pred"}
MAE = "macro_averaged_absolute_error"


def write(path, separator=",", **columns):
    """Write columns as CSV and return the path."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return str(path)


# --- order of categories ----------------------------------------------------------------------------------------------


def ordered_frames(levels=LEVELS, pandas_only=False):
    """Return frames of pandas and Polars whose categories are ordered."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    codes = {"label": T, "pred": Q, "new": R}
    place = [levels.index(name) for name in LEVELS]
    frame = pandas.DataFrame(
        {
            name: pandas.Categorical.from_codes(np.array(place)[each], levels, ordered=True)
            for name, each in codes.items()
        }
    )
    if pandas_only:
        return frame, None
    polars = pytest.importorskip("polars", reason="needs polars")
    texts = {name: np.array(LEVELS)[each].tolist() for name, each in codes.items()}
    return frame, polars.DataFrame(texts, schema=dict.fromkeys(codes, polars.Enum(levels)))


def ordered_source(kind, folder):
    """Return a source of one kind."""
    frame, enum = ordered_frames()
    arrow, polars = pyarrow.Table.from_pandas(frame), importlib.import_module("polars")
    paths = [str(folder / f"{name}.parquet") for name in ("pandas", "polars")]
    frame.to_parquet(paths[0], row_group_size=100)
    enum.write_parquet(paths[1], row_group_size=100)
    connection = duckdb.connect()
    if "relation" in kind:
        connection.execute("CREATE TYPE level AS ENUM ('low', 'medium', 'high')")
        connection.register("plain", enum.cast(polars.String).to_arrow())
    return {
        "pandas": lambda: frame,
        "Polars": lambda: enum,
        "mapping": lambda: dict(frame),
        "PyArrow": lambda: arrow,
        "PyArrow of Polars": lambda: parquet.read_table(paths[1]),
        "Parquet of pandas": lambda: paths[0],
        "Parquet of Polars": lambda: paths[1],
        "both files": lambda: paths,
        "lazy": enum.lazy,
        "scan_parquet": lambda: polars.scan_parquet(paths[1]),
        "relation": lambda: connection.sql("SELECT label::level label, pred::level pred, new::level new FROM plain"),
        "relation of pandas": lambda: connection.from_df(frame),
    }[kind]()


KINDS = ["pandas", "Polars", "mapping", "PyArrow", "PyArrow of Polars", "Parquet of pandas", "Parquet of Polars"]
KINDS += ["both files", "lazy", "scan_parquet", "relation", "relation of pandas"]


@pytest.mark.filterwarnings("ignore:.*too few for this prevalence", "ignore:.*pandas")
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_keeps_the_order_of_categories(kind, tmp_path):
    source, shares = ordered_source(kind, tmp_path), [0.9, 0.08, 0.02]
    weight = (np.array(shares) / (np.bincount(T) / 300))[T]
    found = imbtorch.report(source, **NAMED, prevalence=shares, measures=["accuracy", MAE])
    assert list(found.table()["class"]) == LEVELS
    assert found["accuracy"].item() == pytest.approx(
        sklearn.metrics.accuracy_score(T, Q, sample_weight=weight), abs=1e-6
    )
    told = [note for note in found.table().notes if "ENUM" in note]
    assert told == ["classes have the order of an ENUM: low, medium, high"] * ("relation" in kind)
    found = imbtorch.report(source, **NAMED, measures=[MAE])[MAE].item()
    assert found == pytest.approx(macro_averaged_mean_absolute_error(T, Q), abs=1e-6)
    if kind != "both files":
        given = {"measure": MAE, "target": "label", "preds": ["pred", "new"]}
        gain = macro_averaged_mean_absolute_error(T, R) - macro_averaged_mean_absolute_error(T, Q)
        assert compared(source, **given).difference.estimate.item() == pytest.approx(gain)


def test_files_of_different_orders_are_an_error_that_class_names_mend(tmp_path):
    one, other = (ordered_frames(levels, pandas_only=True)[0] for levels in (LEVELS, LEVELS[::-1]))
    fewer = one[(T < 2) & (Q < 2)].copy()
    for name in fewer:
        fewer[name] = fewer[name].cat.remove_unused_categories()
    paths = [str(tmp_path / f"{at}.parquet") for at in range(3)]
    for path, frame in zip(paths, (one, other, fewer), strict=True):
        frame.to_parquet(path)
    text = r"order their categories differently, low, medium, high and high, medium, low; name all by class_names"
    expected = sklearn.metrics.confusion_matrix(np.tile(T, 2), np.tile(Q, 2)).tolist()
    tables = [parquet.read_table(path).select(["label", "pred"]) for path in paths]
    for source in (paths[:2], pyarrow.concat_tables(tables[:2])):
        with pytest.raises(ValueError, match=text):
            imbtorch.report(source, **NAMED)
        assert imbtorch.report(source, **NAMED, class_names=LEVELS).counts.tolist() == expected
    with pytest.raises(ValueError, match=text):
        compared(paths[0], paths[1], measure=MAE, **NAMED)
    given = {"measure": MAE, **NAMED, "class_names": LEVELS}
    assert compared(paths[0], paths[1], **given).difference.estimate == 0
    found = imbtorch.report([paths[0], paths[2]], **NAMED)  # some categories do not occur there
    few = (T < 2) & (Q < 2)
    expected = sklearn.metrics.confusion_matrix(np.r_[T, T[few]], np.r_[Q, Q[few]]).tolist()
    assert found.counts.tolist() == expected


def test_an_order_that_a_file_lost_is_an_error_that_class_names_mend(tmp_path):
    """Without dictionaries PyArrow orders categories by their first rows, and still says that they are ordered."""
    frame, _ = ordered_frames(pandas_only=True)
    frame.to_parquet(tmp_path / "p.parquet", use_dictionary=False)
    with pytest.raises(ValueError, match=r"says that categories of target are ordered, but not how; .* class_names="):
        imbtorch.report(tmp_path / "p.parquet", **NAMED)
    found = imbtorch.report(tmp_path / "p.parquet", **NAMED, class_names=LEVELS)
    assert found.counts.tolist() == sklearn.metrics.confusion_matrix(T, Q).tolist()
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame[:0]), tmp_path / "none.parquet", use_dictionary=False)
    frame.to_parquet(tmp_path / "p.parquet")
    found = imbtorch.report([tmp_path / "none.parquet", tmp_path / "p.parquet"], **NAMED)  # no rows, no order to lose
    assert list(found.table()["class"]) == LEVELS


def test_categories_without_an_order_are_sorted_and_no_order_is_told(tmp_path):
    frame, _ = ordered_frames(pandas_only=True)
    for name in frame:
        frame[name] = frame[name].cat.as_unordered()
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_csv(tmp_path / "p.csv")
    for source in (frame, tmp_path / "p.parquet", tmp_path / "p.csv", pyarrow.Table.from_pandas(frame)):
        found = imbtorch.report(source, **NAMED)
        assert list(found.table()["class"]) == sorted(LEVELS)
        assert not [note for note in found.table().notes if "order" in note]


# --- decimal commas ---------------------------------------------------------------------------------------------------


def comma(values):
    return [str(each).replace(".", ",") for each in values]


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    "form", [float, lambda each: f"{each:.2e}", lambda each: f" {each}.", lambda each: f"+{each}.0"]
)
def test_decimal_commas_are_read_in_every_column(form, kind, tmp_path):
    weight = RNG.integers(1, 9, 300) / 4
    scores = np.clip(0.6 * Y + 0.5 * RNG.random(300), 0, 1).round(3)
    columns = {"label": map(form, Y), "pred": map(form, P), "w": weight, "n": [float(each) for each in 4 * weight]}
    columns = {name: comma(values) for name, values in (columns | {"s": scores}).items()} | {"site": ["a,b", "c"] * 150}
    path = write(tmp_path / "p.csv", ";", **columns)
    if kind == "json":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        (path := tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    f1 = {
        name: imbtorch.report(path, **NAMED, decimal=",", **more)["f1"].item()
        for name, more in {"": {}, "w": {"weight": "w"}, "n": {"frequency": "n"}}.items()
    }
    assert f1[""] == pytest.approx(sklearn.metrics.f1_score(Y, P), abs=1e-6)
    for name in "wn":
        assert f1[name] == pytest.approx(sklearn.metrics.f1_score(Y, P, sample_weight=weight), abs=1e-6)
    auc = imbtorch.report(path, target="label", scores="s", decimal=",")["auc"].item()
    assert auc == pytest.approx(sklearn.metrics.roc_auc_score(Y, scores), abs=1e-6)
    groups = imbtorch.report(path, **NAMED, decimal=",", group="site").table()["group"]
    assert set(groups) == {"a,b", "c"}


def test_commas_of_texts_stay_and_other_signs_are_refused(tmp_path):
    texts = np.array(["cat, big", "dog,1", "1,2,3"])
    path = write(tmp_path / "p.csv", ";", label=texts[T], pred=texts[Q])
    expected = sklearn.metrics.confusion_matrix(texts[T], texts[Q]).tolist()
    assert imbtorch.report(path, **NAMED, decimal=",").counts.tolist() == expected
    with pytest.raises(ValueError, match="decimal"):
        imbtorch.report(path, **NAMED, decimal=";")


@pytest.mark.parametrize("bad", ["NA", "0,5", "1_0", "x", "1 000"])
def test_weights_that_are_no_numbers_are_named_with_their_row(bad, tmp_path):
    path = write(tmp_path / "p.csv", ";", label=Y[:4], pred=P[:4], w=[1, bad, 2, 3])
    for role in ("weight", "frequency"):
        kind = "finite" if role == "weight" else "whole"
        remedy = "decimal=',' reads decimal commas" if bad == "0,5" else "leave rows without one out of the source"
        text = rf"{role} must be a {kind} number of 0 or more in every row, got '{bad}' in row 1; {remedy}"
        with pytest.raises(ValueError, match=text):
            imbtorch.report(path, **NAMED, **{role: "w"}, missing="drop", class_names=["0", "1"])


# --- words for no value -----------------------------------------------------------------------------------------------

WORDS = ["none", "NONE", "na", "Na", "N/a", "Nan", "NAN", "Null", "(null)", "\\N", "n.a.", "NaT", "unknown", "Missing"]
WORDS += [
    "undefined",
    "unlabeled",
    "unlabelled",
    "#DIV/0!",
    "#VALUE!",
    "#NAME?",
    "#REF!",
    "<na>",
    "(none)",
    "<Unknown>",
]
WORDS += ["-", "--", "-----", "\u2014", " none ", "#SPILL!"]


@pytest.mark.parametrize("word", WORDS)
def test_words_for_no_value_are_no_class_beside_numbers(word, tmp_path):
    labels = np.where(KNOWN, Y.astype(str), word)
    preds = P.astype(str) if word != "--" else np.where(KNOWN, P.astype(str), word)  # as under the head of sqlcmd
    path = write(tmp_path / "x.csv", label=labels, pred=preds)
    text = (
        rf"^target holds {word.strip()!r}".replace("\\", r"\\")
        .replace("(", r"\(")
        .replace(")", r"\)")
        .replace("?", r"\?")
    )
    for source in (path, {"label": labels, "pred": preds}):
        for more in ({}, {"missing": "drop"}):
            with pytest.raises(ValueError, match=rf"{text}.*ignore=.*class_names=\[\.\.\.\]"):
                imbtorch.report(source, **NAMED, **more)
        found = imbtorch.report(source, **NAMED, ignore=word.strip(), measures=["f1"])["f1"].item()
        assert found == pytest.approx(sklearn.metrics.f1_score(Y[KNOWN], P[KNOWN]), abs=1e-6)
        named = imbtorch.report(source, **NAMED, class_names=["0", "1", word])
        assert (
            named.counts.tolist() == sklearn.metrics.confusion_matrix(labels, preds, labels=["0", "1", word]).tolist()
        )
    with pytest.raises(ValueError, match="target holds"):
        compared(path, path, measure="f1", **NAMED)


@pytest.mark.parametrize(
    ("others", "word"),
    [(["true", "false"], "unknown"), (["True", "False"], "None."), (["1.0", "2"], "missing"), ([0, 1, 2], "n.a.")],
)
def test_words_stand_beside_booleans_floats_and_mixed_columns(others, word):
    target = [*others, word, *others]
    preds = [*others, others[0], *others]
    if word == "None.":  # no word of the list
        assert len(imbtorch.report(preds=preds, target=target).table()["class"]) == 3
        return
    with pytest.raises(ValueError, match=rf"target holds '{word}' in row {len(others)}.*ignore='{word}'"):
        imbtorch.report(preds=preds, target=target)


@pytest.mark.filterwarnings("ignore:.*had no target")
@pytest.mark.parametrize(
    "classes",
    [
        ["0", "1", "2", "3+"],
        ["1", "2", "X"],
        ["1", "2", "X", "Y", "MT"],
        ["3", "4a", "4b"],
        ["0", "1", "<5"],
        ["0", "1", "other"],
        ["none", "mild", "severe"],
        ["unknown", "cat"],
        ["0", "1", "unknown animal"],
        ["0", "1", "nanny"],
        ["1", "2", "#1"],
        ["+", "-"],
        ["++", "--", "o"],
        ["0", "1", "-1a"],
        ["na", "eu", "asia"],
        ["none", "0.5", "x"],
    ],
)
def test_classes_that_are_no_words_for_no_value_stay_classes(classes, tmp_path):
    rows = RNG.integers(len(classes), size=(2, 200))
    target, preds = (np.array([*classes, *np.array(classes)[each]]) for each in rows)
    expected = sklearn.metrics.confusion_matrix(target, preds, labels=sorted(classes)).tolist()
    for source in (write(tmp_path / "x.csv", label=target, pred=preds), {"label": target, "pred": preds}):
        assert imbtorch.report(source, **NAMED).counts.tolist() == expected


@pytest.mark.parametrize("line", ["----,----", "-----------,---", '"-----","----"', " ---- , ---- "])
@pytest.mark.parametrize("names", [["0", "1"], ["cat", "dog"]])
def test_a_line_of_dashes_under_the_head_is_an_error(line, names, tmp_path, capsys):
    rows = [f"{a},{b}" for a, b in zip(np.array(names)[Y], np.array(names)[P], strict=True)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["label,pred", line, *rows, ""]), encoding="utf-8")
    assert command_line.main(["report", str(path), "--target", "label", "--preds", "pred"]) == 2
    assert "a line of dashes follows the head" in capsys.readouterr().err
    path.write_text("\n".join(["label,pred", *rows, ""]), encoding="utf-8")
    found = imbtorch.report(path, **NAMED)
    assert found.counts.tolist() == sklearn.metrics.confusion_matrix(Y, P).tolist()


def test_the_command_ignores_what_its_error_names(tmp_path, capsys):
    for word in ("--", "n.a.", "\\N", "(none)", "#DIV/0!"):
        labels = np.where(KNOWN, Y.astype(str), word)
        command = ["report", write(tmp_path / "x.csv", label=labels, pred=P), "--target", "label", "--preds", "pred"]
        assert command_line.main(command) == 2
        advice = capsys.readouterr().err.partition("leave such rows out by ")[2].partition("; if it is a class")[0]
        assert advice.startswith("--ignore")
        assert command_line.main([*command, *shlex.split(advice)]) == 0
        assert f"{sklearn.metrics.f1_score(Y[KNOWN], P[KNOWN]):.3f}" in capsys.readouterr().out


def test_texts_of_csv_are_what_python_reads(tmp_path):
    """Cells that look like words for no value in columns that nobody named change nothing."""
    path = write(tmp_path / "x.csv", label=Y, pred=P, note=["none", "unknown", "--"] * 100)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text(encoding="utf-8"))))
    expected = sklearn.metrics.confusion_matrix([row["label"] for row in rows], [row["pred"] for row in rows])
    assert imbtorch.report(path, **NAMED).counts.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        ([1.0, None, 0.0, 1.0], ["0", "1", "missing"]),
        ([True, None, False, True], ["0", "1", "missing"]),
        ([0.5, None, 2.0, 0.5], ["0.5", "2", "missing"]),
        (["1", None, "1.0", "1e0"], ["1", "missing"]),
    ],
)
def test_numbers_beside_a_class_of_missing_values_are_named_alike_by_all_sources(cells, classes, tmp_path):
    pandas = pytest.importorskip("pandas")
    columns, numbers = {"label": cells, "pred": cells[::-1]}, [None if each is None else float(each) for each in cells]
    frame = pandas.DataFrame(columns, dtype=object)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "a.json")
    for source in (columns, frame, tmp_path / "a.csv", tmp_path / "a.jsonl", tmp_path / "a.json"):
        found = imbtorch.report(source, **NAMED, missing="class", measures=["accuracy"])
        assert list(found.table()["class"]) == classes
        assert found.counts.sum() == 4
        assert found["accuracy"] == np.mean([a == b for a, b in zip(numbers, numbers[::-1], strict=True)])
