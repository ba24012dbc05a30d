"""Predictions from every source, held against scikit-learn on the cleaned data: types, layouts, files and frames."""

import csv
import gzip
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
from decimal import Decimal

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from imblearn.metrics import macro_averaged_mean_absolute_error
from rooms import command_line
from rooms import report as saved_report
from rooms import scores as saved_scores

import imbtorch

duckdb = pytest.importorskip("duckdb", reason="needs imbtorch[files]")
pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
parquet = importlib.import_module("pyarrow.parquet")

RNG = np.random.default_rng(3)
Y = (RNG.random(300) < 0.2).astype(int)
Q = np.where(RNG.random(300) < 0.15, 1 - Y, Y)
KNOWN = RNG.random(300) < 0.5
NAMES = np.array(["cat", "dog", "emu"])
T = RNG.choice(3, 300, p=[0.6, 0.3, 0.1])
P = RNG.dirichlet([1, 1, 1], 300) + 0.8 * np.eye(3)[T]
P /= P.sum(1, keepdims=True)


def write(path, columns, separator=",", head=True, encoding="utf-8"):
    """Write columns as text, and return the path."""
    with open(path, "w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([list(columns)] * head)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def value(result, name="f1"):
    return pytest.approx(float(result[name]), abs=1e-6)


def run(*words):
    """Run the command; return its exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        code = command_line.main([str(each) for each in words])
    finally:
        sys.stdout, sys.stderr = streams
    return code, out.getvalue(), err.getvalue()


# --- types ------------------------------------------------------------------------------------------------------------

FORMS = {
    "0": str,
    "0.0": lambda v: str(float(v)),
    "savetxt": lambda v: f"{v:.18e}",
    " 0": lambda v: f" {v}",
    "00": lambda v: f"0{v}",
    "0.": lambda v: f"{v}.",
    "1e0": lambda v: f"{v}e0",
    "true": lambda v: str(bool(v)).lower(),
    "True": lambda v: str(bool(v)),
}


@pytest.mark.parametrize("form", FORMS)
def test_two_whole_numbers_are_the_binary_task_however_written(form, tmp_path):
    path = write(tmp_path / "a.csv", {"label": map(FORMS[form], Y), "pred": map(FORMS[form], Q)})
    result = imbtorch.report(path, target="label", preds="pred")
    assert sklearn.metrics.f1_score(Y, Q) == value(result)
    told = [note for note in result.table().notes if "read from text" in note]
    assert bool(told) == ("rue" not in form)
    lists = imbtorch.report(preds=list(map(FORMS[form], Q)), target=list(map(FORMS[form], Y)))
    assert lists.signature == result.signature


def test_mixed_forms_and_types_of_equal_classes_agree(tmp_path):
    for labels, preds in (("010", ["0.0", "1.0", "1"]), (["True", "False", "True"], "101")):
        path = write(tmp_path / "m.csv", {"label": list(labels), "pred": list(preds)})
        assert imbtorch.report(path, target="label", preds="pred").signature.split(" | ")[1] == "binary, 2 classes"
    mixed = imbtorch.report(preds=[True, True, False], target=["1", "0", "0"])
    assert mixed.counts.tolist() == [[1, 1], [0, 1]]


def test_words_for_booleans_are_text(tmp_path):
    for words in (("F", "T"), ("no", "yes"), ("healthy", "ill")):
        path = write(tmp_path / "w.csv", {"label": np.array(words)[Y], "pred": np.array(words)[Q]})
        result = imbtorch.report(path, target="label", preds="pred")
        assert sklearn.metrics.f1_score(Y, Q, average="macro") == value(result)
        assert list(result.table()["class"]) == list(words)


@pytest.mark.filterwarnings("ignore:.*too few for this prevalence")
def test_integers_of_floats_keep_their_order_for_shares_and_ordinal_measures(tmp_path):
    y = RNG.integers(0, 12, 300)
    q = np.clip(y + RNG.integers(-1, 2, 300), 0, 11)
    shares = (np.arange(12) + 1.0) ** 2
    weight = (shares / shares.sum() / (np.bincount(y) / 300))[y]
    path = write(tmp_path / "g.csv", {"label": y.astype(float), "pred": q.astype(float)})
    options = {"target": "label", "preds": "pred"}
    found = imbtorch.report(path, **options, measures=["accuracy"], prevalence=shares.tolist())
    assert sklearn.metrics.accuracy_score(y, q, sample_weight=weight) == value(found, "accuracy")
    found = imbtorch.report(path, **options, measures=["macro_averaged_absolute_error"])
    assert macro_averaged_mean_absolute_error(y, q) == value(found, "macro_averaged_absolute_error")
    arrays = imbtorch.report(preds=q.astype(float), target=y.astype(float))
    assert arrays.counts.tolist() == sklearn.metrics.confusion_matrix(y, q).tolist()


def test_a_gate_reads_floats_as_integers(tmp_path):
    y = np.zeros(20000, int)
    y[:600] = 1
    old, new = y.copy(), y.copy()
    old[:120], old[600:700], new[:150], new[600:720] = 0, 1, 0, 1
    gain = sklearn.metrics.f1_score(y, new) - sklearn.metrics.f1_score(y, old)
    for kind in (int, float):
        files = [
            write(tmp_path / f"{name}.csv", {"label": y.astype(kind), "pred": each.astype(kind)})
            for name, each in (("old", old), ("new", new))
        ]
        more = ("--target", "label", "--preds", "pred", "--measure", "f1", "--margin", ".03")
        code, out, _ = run("compare", *files, *more)
        assert code == 1
        assert f"new - old: {gain:+.3f} [" in out


@pytest.mark.parametrize(
    ("target", "preds", "text"),
    [
        (["7", "007", "8"], ["7", "8", "8"], "'7' and '007' differ by leading zeros only"),
        (["7", "8"], ["07", "8"], "differ by leading zeros only"),
        (["0", "1"], ["0.25", "1"], "preds holds 0.25 in row 0 .*scores="),
        ([0, 1], [Decimal("0.25"), Decimal("1")], "preds holds 0.25 in row 0 .*scores="),
        (["0.5", "1"], ["1", "1"], "target holds 0.5 in row 0"),
        ([0, 1, -100], [0, 1, 0], "target holds -100 in row 2 .*ignore=-100"),
        (["0", "1", "-1"], ["0", "1", "0"], "target holds -1 in row 2 .*ignore=-1"),
        ([0, 1, 255], [0, 1, 1], "ignore=255"),
        (["0", "1", "?"], ["0", "1", "0"], r"ignore='\?'"),
        ([0, 1, "a"], ["0", "1", "0"], "all of one type, got 'a' in row 2"),
        ([True, False, True], [2, 0, 1], "mix booleans and other numbers"),
        (["a", "b", b"c"], ["a", "b", "a"], "must hold strings, integers or booleans, got b'c' in row 2"),
    ],
)
def test_values_with_two_readings_are_errors(target, preds, text):
    with pytest.raises((ValueError, TypeError), match=text):
        imbtorch.report(preds=preds, target=target)


def test_fractions_are_classes_if_class_names_holds_them_all():
    doses = ["0.5", "1.5", "2"]
    result = imbtorch.report(preds=["0.5", "1.5", "2", "2"], target=["0.5", "2", "2", "1.5"], class_names=doses)
    assert list(result.table()["class"]) == doses


@pytest.mark.parametrize("word", ["", "NA", "N/A", "n/a", "NaN", "nan", "None", "null", "NULL", "<NA>", "#N/A"])
def test_missing_targets_are_an_error_unless_dropped_or_named(word, tmp_path):
    labels = np.where(KNOWN, Y.astype(str), word)
    path = write(tmp_path / "x.csv", {"label": labels, "pred": Q})
    first, number = int((~KNOWN).argmax()), int((~KNOWN).sum())
    for source, target, preds in ((path, "label", "pred"), (None, labels, Q)):
        with pytest.raises(ValueError, match=rf"target has no value in row {first} \({number} of 300 rows\)"):
            imbtorch.report(source, target=target, preds=preds)
        dropped = imbtorch.report(source, target=target, preds=preds, missing="drop")
        assert sklearn.metrics.f1_score(Y[KNOWN], Q[KNOWN]) == value(dropped)
        assert f"rows left out because a value is missing: {number}" in dropped.table().notes
        kept = imbtorch.report(source, target=target, preds=preds, missing="class")
        expected = sklearn.metrics.balanced_accuracy_score(labels, Q.astype(str))
        assert expected == value(kept, "balanced_accuracy")
        assert list(kept.table()["class"]) == ["0", "1", word or "missing"]
        if word:
            named = imbtorch.report(source, target=target, preds=preds, class_names=["0", "1", word])
            assert named.counts.tolist() == kept.counts.tolist()


def test_spaces_around_a_mark_do_not_matter(tmp_path):
    columns = {"label": ["a", " x", "b", "x ", "a"], "pred": ["a", "b", "b", "a", "b"]}
    path = tmp_path / "p.csv"
    path.write_text("\n".join(map(",".join, [list(columns), *zip(*columns.values(), strict=True)])), encoding="utf-8")
    for source in (columns, path):
        for mark in ("x", " x", "  x  "):
            found = imbtorch.report(source, target="label", preds="pred", ignore=mark)
            assert found.counts.tolist() == sklearn.metrics.confusion_matrix(["a", "b", "a"], ["a", "b", "b"]).tolist()
            turned = imbtorch.report(source, target="pred", preds="label", no_answer=mark)
            assert list(turned.table()["class"]) == ["a", "b", "no answer"]


def test_ignored_targets_are_left_out_and_counted(tmp_path):
    for mark in ("-1", "-100", "255", "?"):
        labels = np.where(KNOWN, Y.astype(str), mark)
        path = write(tmp_path / "x.csv", {"label": labels, "pred": Q})
        result = imbtorch.report(path, target="label", preds="pred", ignore=mark)
        assert sklearn.metrics.f1_score(Y[KNOWN], Q[KNOWN]) == value(result)
        assert f"rows left out because ignore names their target: {(~KNOWN).sum()}" in result.table().notes
        code, out, _ = run("report", path, "--target", "label", "--preds", "pred", "--ignore", mark, "--measures", "f1")
        assert code == 0
        assert f"{sklearn.metrics.f1_score(Y[KNOWN], Q[KNOWN]):.3f}" in out
    result = imbtorch.report(preds=P, target=np.where(KNOWN, T, -100), ignore=[-100, -1])
    assert result.counts.tolist() == sklearn.metrics.confusion_matrix(T[KNOWN], P[KNOWN].argmax(1)).tolist()


def ordered_forms():
    pandas, polars = (pytest.importorskip(name) for name in ("pandas", "polars"))
    levels = ["low", "medium", "high"]
    yield lambda codes: pandas.Series(pandas.Categorical.from_codes(codes, levels, ordered=True))
    yield lambda codes: polars.Series(np.array(levels)[codes].tolist(), dtype=polars.Enum(levels))
    kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string(), ordered=True)
    yield lambda codes: pyarrow.array(np.array(levels)[codes].tolist()).dictionary_encode().cast(kind)


def test_ordered_columns_keep_their_order():
    q = np.clip(T + RNG.integers(-1, 2, 300), 0, 2)
    shares, key = [0.9, 0.08, 0.02], "macro_averaged_absolute_error"
    weight = (np.array(shares) / (np.bincount(T) / 300))[T]
    for made in list(ordered_forms())[:2]:
        options = {"preds": made(q), "target": made(T)}
        assert macro_averaged_mean_absolute_error(T, q) == value(imbtorch.report(**options, measures=[key]), key)
        found = imbtorch.report(**options, measures=["accuracy"], prevalence=shares)
        assert sklearn.metrics.accuracy_score(T, q, sample_weight=weight) == value(found, "accuracy")
    texts = np.array(["low", "medium", "high"])
    with pytest.raises(ValueError, match=r"needs the order of the classes.*class_names=\[...\]"):
        imbtorch.report(preds=texts[q], target=texts[T], measures=[key])
    found = imbtorch.report(preds=texts[q], target=texts[T], measures=[key], class_names=texts)
    assert macro_averaged_mean_absolute_error(T, q) == value(found, key)


def test_columns_that_order_classes_differently_are_refused():
    pandas = pytest.importorskip("pandas")
    one, other = (pandas.Series(pandas.Categorical(["a", "b"], categories=list(c), ordered=True)) for c in ("ab", "ba"))
    with pytest.raises(ValueError, match="order their categories differently"):
        imbtorch.report(preds=one, target=other)


def test_class_names_of_integers_are_values_unless_both_readings_fit():
    with pytest.raises(ValueError, match="may be the classes themselves or names of 0 to 2"):
        imbtorch.report(preds=[1, 2], target=[1, 2], class_names=[1, 2, 3])
    options = {"preds": [1, 2, 0], "target": [1, 2, 0]}
    turned = imbtorch.report(preds=[1, 2, 2], target=[1, 2, 0], class_names=[2, 0, 1])
    assert turned.counts.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    named = imbtorch.report(**options, class_names={2: "two", 0: "0", 1: "1"})
    assert list(named.table()["class"]) == ["two", "0", "1"]


def test_look_alikes_hard_scores_and_scores_of_the_other_class_are_told():
    alike = imbtorch.report(preds=["cat", "Cat", "dog"], target=["cat", "Cat", "dog"])
    assert any("'Cat' and 'cat' differ only in how they are written" in note for note in alike.table().notes)
    found = imbtorch.report(preds=Q.astype(float), target=Y.astype(float))
    assert any(note.startswith("all scores are 0 or 1") for note in found.table().notes)
    assert sklearn.metrics.f1_score(Y, Q) == value(found)
    turned = imbtorch.report(preds=0.1 + 0.8 * (1 - Y) * RNG.random(300), target=Y)
    assert any("so the scores may be those of the other class" in note for note in turned.table().notes)


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rounded_probabilities_are_divided_by_their_sums(digits, kind):
    five = RNG.dirichlet([4, 1, 1, 1, 1], 600)
    y = np.array([RNG.choice(5, p=row) for row in five])
    rounded = five.round(digits)
    expected = rounded / rounded.sum(1, keepdims=True)
    result = imbtorch.report(preds=rounded.astype(kind), target=y)
    for at in range(5):
        assert sklearn.metrics.roc_auc_score(y == at, expected[:, at].round(12)) == pytest.approx(
            float(result[f"auc/{at}"]), abs=4e-3 if kind == np.float32 else 1e-6
        )


@pytest.mark.parametrize(
    "scores", [1 / (1 + np.exp(-P)), 0.9 * P, np.where(T[:, None] == 1, 0, P)], ids=["sigmoids", "weights", "zeros"]
)
def test_other_sums_are_no_probabilities(scores):
    with pytest.raises(ValueError, match=r"not probabilities over classes: sigmoids or percentages\? logits=True only"):
        imbtorch.report(preds=scores, target=T)


def test_percentages_and_texts_of_scores(tmp_path):
    with pytest.raises(ValueError, match="percentages must be divided by 100"):
        imbtorch.report(preds=100 * P[:, 1], target=T == 1)
    columns = {"label": Y, "score": [f"{v}%" for v in range(300)]}
    path = write(tmp_path / "p.csv", columns)
    with pytest.raises(TypeError, match=r"scores must hold numbers, got '0%' in row 0.*percentages: divide by 100"):
        imbtorch.report(path, target="label", scores="score")
    columns["score"] = [f"{v:.3f}".replace(".", ",") for v in P[:, 0]]
    path = write(tmp_path / "p.csv", columns, ";")
    with pytest.raises(TypeError, match=r"decimal=',' reads decimal commas"):
        imbtorch.report(path, target="label", scores="score")
    found = imbtorch.report(path, target="label", scores="score", decimal=",")
    assert sklearn.metrics.roc_auc_score(Y, P[:, 0].round(3)) == value(found, "auc")


def test_text_of_scores_of_labels_is_never_cut():
    truth = np.stack([T == 0, T != 1, T == 2], 1).astype(int)
    scores = np.clip(0.6 * truth + 0.45 * RNG.random(truth.shape), 0, 0.99).round(3)
    names = list("abc")
    target = {name: truth[:, at] for at, name in enumerate(names)}
    for kind in (str, Decimal, lambda v: 1 if v > 0.9 else v):
        preds = {name: np.array([kind(str(v) if kind is Decimal else v) for v in scores[:, at].tolist()], object)
                 for at, name in enumerate(names)}  # fmt: skip
        if kind in (str, Decimal):
            with pytest.raises(ValueError, match=r"if these are scores, pass them as scores="):
                imbtorch.report(preds=preds, target=target)
        found = imbtorch.report(scores=preds, target=target, measures=["f1"])
        assert sklearn.metrics.f1_score(truth, scores > 0.5, average="macro") == value(found)


def test_one_hot_targets_are_an_error_that_names_argmax():
    pandas = pytest.importorskip("pandas")
    for eye in (np.eye(3)[T], np.eye(3)[T].astype(bool), pandas.DataFrame(np.eye(3)[T]), np.eye(2)[Y]):
        scores = P if np.shape(eye)[1] == 3 else np.stack([P[:, 0], 1 - P[:, 0]], 1)
        with pytest.raises(ValueError, match=r"target.argmax\(1\).*task='multilabel'"):
            imbtorch.report(preds=scores if not isinstance(eye, pandas.DataFrame) else pandas.DataFrame(P), target=eye)
    found = imbtorch.report(preds=P, target=np.eye(3)[T], task="multilabel", measures=["f1"])
    assert sklearn.metrics.f1_score(np.eye(3)[T], P > 0.5, average="macro") == value(found)


def test_columns_without_names_beside_text_classes_out_of_order_need_names():
    names = np.array(["c1", "c2", "c10"])
    with pytest.raises(ValueError, match="sort as c1, c10, c2, not as c1, c2, c10; name the columns"):
        imbtorch.report(preds=P, target=names[T])
    named = imbtorch.report(preds={name: P[:, at] for at, name in enumerate(names)}, target=names[T])
    assert named.counts.tolist() == imbtorch.report(preds=P, target=names[T], class_names=names).counts[
        [0, 2, 1]][:, [0, 2, 1]].tolist()  # fmt: skip


def test_thresholds_groups_and_lists_of_scores():
    site = np.array(["A", "B", "C"])[RNG.integers(3, size=300)]
    found = imbtorch.report(preds=P[:, 1], target=T == 1, threshold=0.3, group=site, measures=["f1"])
    assert sklearn.metrics.f1_score(T == 1, P[:, 1] > 0.3) == value(found)
    each = {name: sklearn.metrics.f1_score((T == 1)[site == name], P[site == name, 1] > 0.3) for name in "ABC"}
    assert {name: value(found, f"f1/{name}") for name in "ABC"} == each
    assert min(each.values()) == value(found, "f1_worst")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"label": NAMES[T], "probs": P.tolist()})
    lists = imbtorch.report(frame, target="label", scores="probs")
    assert lists.counts.tolist() == sklearn.metrics.confusion_matrix(T, P.argmax(1)).tolist()
    assert imbtorch.report(preds=frame["probs"], target=frame["label"]).signature == lists.signature


@pytest.mark.filterwarnings("ignore:.*had no target of a class")
def test_areas_of_groups_are_those_of_their_samples_alone(tmp_path):
    site, weight = np.array(["A", "B", "C"])[RNG.integers(3, size=300)], RNG.random(300)
    two = {"preds": P[:, 1].round(1), "target": (T == 1) | (site == "C")}  # C has no negatives, so no AUC
    for options in ({}, {"weight": weight}, {"prevalence": [0.6, 0.4]}):
        found = imbtorch.report(**two, group=site, **options)
        assert {name for name in found if name.startswith("auc/")} == {"auc/A", "auc/B", "auc/C"}
        assert math.isnan(found["auc/C"])
        for name in "AB":
            some = {key: each[site == name] if isinstance(each, np.ndarray) else each for key, each in options.items()}
            score, target = two["preds"][site == name], two["target"][site == name]
            weights = np.where(target, 0.4 / target.mean(), 0.6 / (1 - target.mean()))
            weights = some.get("weight", weights if "prevalence" in some else None)
            area = sklearn.metrics.roc_auc_score(target, score, sample_weight=weights)
            precision = sklearn.metrics.average_precision_score(target, score, sample_weight=weights)
            assert value(found, f"auc/{name}") == pytest.approx(area, abs=1e-6)
            assert value(found, f"average_precision/{name}") == pytest.approx(precision, abs=1e-6)
    found.to_json(tmp_path / "r.json")
    assert str(imbtorch.open_result(tmp_path / "r.json").table()) == str(found.table())
    several = imbtorch.report(preds=P, target=T, group=site)
    area = sklearn.metrics.roc_auc_score(T[site == "A"], P[site == "A"], multi_class="ovr")
    assert value(several, "auc/A") == pytest.approx(area, abs=1e-6)
    assert several.table()["group"]["A"]["auc"] == pytest.approx(area, abs=1e-6)


def test_areas_of_many_samples_are_those_of_bins(monkeypatch):
    monkeypatch.setattr(saved_scores, "MOST_ROWS", 100)
    for options, names in (
        ({"preds": P[:, 1], "target": T == 1}, ["auc", "average_precision"]),
        ({"preds": P, "target": T}, ["auc", "auc/1", "average_precision/2"]),
    ):
        binned = imbtorch.report(**options, intervals=True)
        assert any("by the bins of a sweep, since there are 300 samples" in note for note in binned.table().notes)
        monkeypatch.setattr(saved_scores, "MOST_ROWS", 1000)
        exact = imbtorch.report(**options, intervals=True)
        monkeypatch.setattr(saved_scores, "MOST_ROWS", 100)
        for name in names:
            assert float(exact[name]) == pytest.approx(float(binned[name]), abs=2e-3)
        assert binned.values.keys() == exact.values.keys()
    with pytest.raises(ValueError, match="needs scores"):
        imbtorch.report(preds=Q, target=Y, measures=["auc"])
    assert "auc" in imbtorch.report(preds=P[:, 1], target=T == 1, measures=["auc", "f1"]).values


# --- sources ----------------------------------------------------------------------------------------------------------


def columns():
    found = {"id": np.arange(300), "label": NAMES[T], "pred": NAMES[P.argmax(1)], "site": np.array(["A", "B"])[Y]}
    return found | {f"p_{name}": P[:, at] for at, name in enumerate(NAMES)} | {"n": 1 + np.arange(300) % 3, "y": Y}


def sources(folder):
    """Yield a name and a source with the same columns."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    data = columns()
    arrow = pyarrow.table({name: pyarrow.array(each.tolist()) for name, each in data.items()})
    yield "mapping", data
    yield "lists", {name: each.tolist() for name, each in data.items()}
    yield "tensors", data | {name: torch.from_numpy(data[name]) for name in ("y", "n", "p_cat")}
    yield "pandas", pandas.DataFrame(data)
    yield "polars", polars.DataFrame({name: each.tolist() for name, each in data.items()})
    yield "lazy polars", polars.LazyFrame({name: each.tolist() for name, each in data.items()})
    yield "pyarrow", arrow
    connection = duckdb.connect()
    yield "duckdb", connection.from_arrow(arrow)
    text = write(folder / "a.csv", data)
    yield "csv", text
    yield "tsv", write(folder / "a.tsv", data, "\t")
    yield "semicolons", write(folder / "s.csv", data, ";")
    yield "bars", write(folder / "s.txt", data, "|")
    with open(text, "rb") as file, gzip.open(folder / "a.csv.gz", "wb") as packed:
        packed.write(file.read())
    yield "gzip", folder / "a.csv.gz"
    path = folder / "a.csv.zst"
    connection.execute(f"COPY (FROM read_csv('{text}', all_varchar=true)) TO '{path}' (FORMAT csv, COMPRESSION zstd)")
    yield "zstd", str(path)
    parquet.write_table(arrow, folder / "a.parquet")
    yield "parquet", folder / "a.parquet"
    rows = arrow.to_pylist()
    for name, some in (("a.jsonl", rows), ("b.ndjson", rows)):
        (folder / name).write_text("\n".join(json.dumps(row) for row in some), encoding="utf-8")
    yield "json", folder / "a.jsonl"
    parts = folder / "parts" / "day=1"
    parts.mkdir(parents=True)
    (parts / "_SUCCESS").write_text("", encoding="utf-8")
    turned = {name: data[name] for name in reversed(list(data))}
    files = [
        write(parts / f"{at}.csv", {name: each[at::3] for name, each in (turned if at else data).items()})
        for at in range(3)
    ]
    yield "glob", str(parts / "*.csv")
    yield "folder", folder / "parts"
    yield "paths", files


@pytest.fixture(scope="module")
def every_source(tmp_path_factory):
    return dict(sources(tmp_path_factory.mktemp("sources")))


OPTIONS = {
    "classes": {"preds": "pred", "target": "label"},
    "groups": {"preds": "pred", "target": "label", "group": "site"},
    "frequencies": {"preds": "pred", "target": "label", "frequency": "n"},
    "weights": {"preds": "pred", "target": "label", "weight": "n"},
    "clusters": {"preds": "pred", "target": "label", "cluster": "id", "intervals": ["f1"]},
    "scores": {"scores": "p_*", "target": "label"},
    "list of scores": {"scores": ["p_dog", "p_cat", "p_emu"], "target": "label"},
    "mapping of scores": {"scores": {"emu": "p_emu", "cat": "p_cat", "dog": "p_dog"}, "target": "label"},
    "one score": {"scores": "p_cat", "target": "y", "weight": "n"},
}


@pytest.mark.filterwarnings("ignore:the AUC is")
@pytest.mark.parametrize("options", OPTIONS)
def test_every_source_gives_the_counts_of_scikit_learn(options, every_source):
    given, data = OPTIONS[options], columns()
    weight = data["n"] if {"frequency", "weight"} & given.keys() else None
    target, preds = (NAMES[T], NAMES[P.argmax(1)]) if given["target"] == "label" else (Y, (P[:, 0] > 0.5).astype(int))
    expected = sklearn.metrics.confusion_matrix(target, preds, sample_weight=weight)
    first = None
    for name, source in every_source.items():
        result = imbtorch.report(source, **given)
        assert result.counts.tolist() == expected.tolist(), name
        found = {key: each.item() for key, each in result.values.items()}
        first = first or found
        assert found == pytest.approx(first, abs=1e-6, nan_ok=True), name
    if options == "scores":
        for at, name in enumerate(NAMES):
            assert sklearn.metrics.roc_auc_score(at == T, P[:, at]) == pytest.approx(first[f"auc/{name}"], abs=1e-6)


@pytest.mark.filterwarnings("ignore:report. auc")
def test_labels_of_every_source(tmp_path):
    truth = np.stack([T == 0, T != 1, T == 2], 1).astype(int)
    data = {f"y_{name}": truth[:, at] for at, name in enumerate(NAMES)}
    data |= {f"p_{name}": P[:, at] for at, name in enumerate(NAMES)}
    data |= {f"h_{name}": (P[:, at] > 0.5).astype(int) for at, name in enumerate(NAMES)}
    path = write(tmp_path / "l.csv", data)
    expected = sklearn.metrics.f1_score(truth, P > 0.5, average="macro")
    for source in (path, data, pyarrow.table(data)):
        for more in ({"scores": "p_*"}, {"preds": "h_*"}, {"preds": ["h_cat", "h_dog", "h_emu"]}):
            assert expected == value(imbtorch.report(source, target="y_*", **more, measures=["f1"]))
    with pytest.raises(ValueError, match=r"column 'p_cat' of preds holds 0\.\d+ in row 0 .*scores="):
        imbtorch.report(path, target="y_*", preds="p_*")


def test_only_named_columns_are_read(tmp_path):
    table = pyarrow.table({"label": [0, 1], "pred": [0, 1], "note": ["x", "y"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.csv").write_bytes(b"label,pred,note\n0,0,caf\xe9\n1,1,x\n")
    assert imbtorch.report(tmp_path / "b.csv", target="label", preds="pred")["accuracy"] == 1
    (tmp_path / "a.parquet").write_bytes(data[: len(data) - 20])
    with pytest.raises(ValueError, match=r"a\.parquet"):
        imbtorch.report(tmp_path / "a.parquet", target="label", preds="pred")


# --- layouts ----------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "quoted semicolons": b'"label";"pred"\n0;0\n1;1\n0;1\n',
    "decimal commas elsewhere": b"label;pred;score\n0;0;0,93\n1;1;0,12\n0;1;,5\n",
    "tabs and a comma": b"label\tpred\ttext\n0\t0\thello, you\n1\t1\tx\n0\t1\ty\n",
    "Excel's line": b"sep=,\nlabel,pred\n0,0\n1,1\n0,1\n",
    "Excel's other line": b"sep=;\r\nlabel;pred\r\n0;0\r\n1;1\r\n0;1\r\n",
    "spaces after commas": b"id, label, pred\n1, 0, 0\n2, 1, 1\n3, 0, 1\n",
    "a column twice": b"id,id,label,pred\n1,1,0,0\n2,2,1,1\n3,3,0,1\n",
    "unnamed columns": b"label,pred,,\n0,0,,\n1,1,,\n0,1,,\n",
    "byte-order mark": b"\xef\xbb\xbflabel,pred\n0,0\n1,1\n0,1\n",
    "comments before the head": b"# made by x, y\n# on Monday\nlabel,pred\n0,0\n1,1\n0,1\n",
    "head of savetxt": b"# label,pred\n0.0,0.0\n1.0,1.0\n0.0,1.0\n",
    "carriage returns": b"label,pred\r0,0\r1,1\r0,1\r",
    "quoted lines": b'label,note,pred\n0,"two\nlines",0\n1,"a ""b""",1\n0,x,1\n',
    "blank line": b"label,pred\n0,0\n\n1,1\n0,1\n",
    "columns of other cases": b"Label,label,pred\n9,0,0\n9,1,1\n9,0,1\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_csv_are_read(name, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(LAYOUTS[name])
    assert imbtorch.report(path, target="label", preds="pred").counts.tolist() == [[1, 1], [0, 1]]
    path.rename(tmp_path / "x.data")
    assert run("report", tmp_path / "x.data", "--target", "label", "--preds", "pred")[0] == 0


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (b"0,0\n1,1\n0,1\n", ["--target", "0", "--preds", "1"], "--no-head"),
        (b"label,pred\ncaf\xe9,b\nb,b\n", [], "--encoding latin-1"),
        ("label,pred\nä,b\nb,b\n".encode("utf-16"), [], "--encoding utf-16"),
        (b"label,pred\n0,0\n1,1,1\n", [], "line 3: 3 cells, but there are 2 columns"),
        (gzip.compress(b"label,pred\n" + b"0,1\n" * 99999)[:150], [], "damaged: Truncated"),
        (b"PK\x03\x04xxxxxxxxx", [], "a zip archive or Excel file"),
        (b"id,label,cat,dog\n0,cat,.9,.1\n1,dog,.2,.8\n", ["--target", "label", "--scores", "*"], "narrower pattern"),
        (b"predict,p0,p1,y\n0,.8,.2,0\n1,.1,.9,1\n", ["--target", "y", "--scores", "p*"], "such as 'p?'"),
        (b"label,pred\n0,0\n1,NA\n", [], "--missing drop"),
        (b"label,pred\n0,0\n1,1\n-1,0\n", [], "--ignore -1"),
        (b"label,pred\n0,0\n1,.25\n", [], "pass them as --scores"),
        (b"[{}]", [], "write an object in each line"),
    ],
)
def test_other_files_are_errors_that_name_the_option(content, options, text, tmp_path):
    path, json_path = tmp_path / ("x.json" if content.startswith(b"[") else "x.csv"), tmp_path / "out.json"
    path.write_bytes(content)
    code, out, err = run("report", path, *(options or ["--target", "label", "--preds", "pred"]), "--json", json_path)
    assert (code, out) == (2, "")
    assert text in err
    assert "Traceback" not in err
    assert not json_path.exists()


def test_options_read_what_errors_name(tmp_path):
    path = tmp_path / "x.csv"
    for content, options, names in (
        (b"0,0\n1,1\n0,1\n", ["--target", "0", "--preds", "1", "--no-head"], ["0", "1"]),
        (b"label,pred\ncaf\xe9,b\nb,b\n", ["--encoding", "latin-1"], ["b", "café"]),
        ("label,pred\nä,b\nb,b\n".encode("utf-16"), ["--encoding", "utf-16"], ["b", "ä"]),
        (b"id,label,cat,dog\n0,cat,.9,.1\n1,dog,.2,.8\n", ["--target", "label", "--scores", "cat,dog"], ["cat", "dog"]),
        (b"label,a,b\ncat,.9,.1\ndog,.2,.8\n", ["--target", "label", "--scores", "cat=a,dog=b"], ["cat", "dog"]),
        (b"predict,p0,p1,p2,y\n0,.8,.1,.1,0\n1,.1,.8,.1,1\n2,.1,.1,.8,2\n", ["--target", "y", "--scores", "p?"], "012"),
        (b"label,score\n0,.2\n1,.35\n", ["--target", "label", "--scores", "score", "--threshold", ".3"], "01"),
        (b"label,pred\nok,ok\nfraud,ok\n", ["--class-names", "ok,fraud"], ["ok", "fraud"]),
        (b"label,pred,site\n0,0,A\n1,1,A\n0,1,B\n1,1,B\n", ["--group", "site"], "01"),
    ):
        path.write_bytes(content)
        base = [] if "--target" in options else ["--target", "label", "--preds", "pred"]
        assert run("report", path, *base, *options, "--json", tmp_path / "x.json")[0] == 0, options
        assert list(imbtorch.open_result(tmp_path / "x.json").table()["class"]) == list(names)


def test_a_column_that_one_of_many_files_lacks_is_named(tmp_path):
    write(tmp_path / "a.csv", {"label": [0, 1], "pred": [0, 1]})
    write(tmp_path / "b.csv", {"label": [0, 1], "prediction": [0, 1]})
    with pytest.raises(ValueError, match=r"b\.csv has no column 'pred', which other files have"):
        imbtorch.report(tmp_path / "*.csv", target="label", preds="pred")
    write(tmp_path / "b.csv", {"label": [0, ""], "pred": [0, 1]})
    with pytest.raises(ValueError, match=r"target has no value in row 1 of .*b\.csv \(1 of 4 rows\)"):
        imbtorch.report(tmp_path / "*.csv", target="label", preds="pred")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        imbtorch.report(tmp_path / "*.parquet", target="label", preds="pred")
    write(tmp_path / "c.tsv", {"label": [0, 1], "pred": [0, 1]}, "\t")
    (tmp_path / "d.jsonl").write_text('{"label": 1, "pred": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="files must be of one kind"):
        imbtorch.report([tmp_path / "c.tsv", tmp_path / "d.jsonl"], target="label", preds="pred")


def test_types_of_duckdb_are_not_trusted(tmp_path):
    """It reads 0x1 as 1, yes as true, dates anew, and 1.5 in a late row as 2; a folder label=9 replaces a column."""
    folder = tmp_path / "label=9"
    folder.mkdir()
    for texts in (
        ["0x1", "0x2"],
        ["yes", "no"],
        ["2024-1-5", "2024-2-5"],
        ["#1", "#2"],
        ["1:00", "2:00"],
        ["1_0", "2_0"],
    ):
        path = write(folder / "x.csv", {"label": texts * 2, "pred": texts[::-1] * 2})
        assert list(imbtorch.report(path, target="label", preds="pred").table()["class"]) == sorted(texts)
    rows = "\n".join(json.dumps({"label": each, "pred": each}) for each in ("1.0", 1, "2", 2.0, "007")) + "\n"
    (tmp_path / "x.jsonl").write_text(rows, encoding="utf-8")
    assert list(imbtorch.report(tmp_path / "x.jsonl", target="label", preds="pred").table()["class"]) == ["1", "2", "7"]


@pytest.mark.slow
def test_a_fraction_in_a_late_row_is_found(tmp_path):
    path = write(tmp_path / "x.csv", {"label": [0, 1] * 600_000, "pred": [1] * 1_000_001 + [1.5] + [0] * 199_998})
    with pytest.raises(ValueError, match=r"preds holds 1.5 in row 1000001 \(1 of 1200000 rows\), .*scores="):
        imbtorch.report(path, target="label", preds="pred")


# --- drawn files ------------------------------------------------------------------------------------------------------


@st.composite
def files(draw):
    """Text of a CSV file with oddities, its options, and the cleaned classes."""
    size = draw(st.integers(4, 12))
    kind = draw(st.sampled_from(["whole", "text", "boolean"]))
    classes = {"whole": [0, 1, 2, 10], "text": ["a", "B c", "d,e", 'f"g'], "boolean": [0, 1]}[kind]
    some = st.lists(st.sampled_from(classes), min_size=size, max_size=size)
    target, preds = draw(some), draw(some)
    preds = [each if each in target else target[0] for each in preds]
    forms = {
        "whole": [str, lambda v: f"{v}.0", lambda v: f" {v}", lambda v: f"{v}e0", lambda v: f"{v}.", lambda v: f"+{v}"],
        "text": [str],
        "boolean": [lambda v: str(bool(v)), lambda v: str(bool(v)).upper(), lambda v: str(bool(v)).lower()],
    }[kind]
    cells = [[draw(st.sampled_from(forms))(each) for each in column] for column in (target, preds)]
    drop = draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True))
    for row in drop:
        cells[draw(st.integers(0, 1))][row] = draw(st.sampled_from(["", "NA", "nan", " ", "NULL"]))
    notes = [draw(st.sampled_from(["x", "1,5", "", 'a "b"', "two\nlines"])) for _ in range(size)]
    buffer = io.StringIO()
    separator, end = draw(st.sampled_from([",", ";", "\t", "|"])), draw(st.sampled_from(["\n", "\r\n"]))
    writer = csv.writer(buffer, delimiter=separator, lineterminator=end)
    order = draw(st.permutations([("label", cells[0]), ("pred", cells[1]), ("note", notes)]))
    writer.writerow([name for name, _ in order])
    writer.writerows(zip(*(column for _, column in order), strict=True))
    before = draw(st.sampled_from(["", "\ufeff", f"# a comment{end}", f"sep={separator}{end}"]))
    kept = [row for row in range(size) if row not in drop]
    return before + buffer.getvalue(), bool(drop), [target[row] for row in kept], [preds[row] for row in kept]


@pytest.mark.filterwarnings("ignore:.*had no target")
@given(files())
def test_drawn_files_are_right_or_an_error(tmp_path_factory, drawn):
    text, dropped, target, preds = drawn
    path = tmp_path_factory.mktemp("drawn") / "x.csv"
    path.write_text(text, encoding="utf-8", newline="")
    if dropped:
        with pytest.raises(ValueError, match="has no value"):
            imbtorch.report(path, target="label", preds="pred")
    try:
        found = imbtorch.report(path, target="label", preds="pred", missing="drop")
    except ValueError as error:
        held = set(map(str, target))
        if not re.search("one class only|no target has|holds no class", str(error)):
            raise
        if len(held) > 1 and set(map(str, preds)) <= held:
            raise
        return
    names = list(found.table()["class"])
    shown = [str(bool(each)) if set(names) == {"False", "True"} else str(each) for each in (*target, *preds)]
    half = len(target)
    expected = sklearn.metrics.confusion_matrix(shown[:half], shown[half:], labels=names)
    assert found.counts.tolist() == expected.tolist()


# --- the command ------------------------------------------------------------------------------------------------------


def test_tables_are_printed_in_every_form(tmp_path):
    path = write(tmp_path / "a.csv", {"label": NAMES[T], "pred": NAMES[P.argmax(1)]})
    command = ["report", path, "--target", "label", "--preds", "pred"]
    result = imbtorch.report(path, target="label", preds="pred")
    assert r"cat & " in run(*command, "--latex")[1]
    assert run(*command, "--latex")[1].startswith(r"\begin{tabular}")
    assert run(*command, "--markdown")[1].startswith("| class |")
    rows = list(csv.reader(io.StringIO(run(*command, "--csv")[1])))
    assert rows[0] == result.table().to_rows()[0]
    assert run(*command)[1] == f"{result.table()}\n\n{result.signature}\n"


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(tmp_path):
    path = write(tmp_path / "a.csv", {"label": np.arange(3000) % 999, "pred": np.arange(3000) % 999})
    command = f"{sys.executable} -m imbtorch report {path} --target label --preds pred --csv"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -1"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kind,name")


def test_progress_is_shown_on_a_terminal_only(tmp_path, monkeypatch):
    shown = threading.Event()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def flush(self):
            shown.set()

    class Slow:
        def query_progress(self):
            return 42.0

    monkeypatch.setattr(saved_report, "SLOW", 0.01)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with saved_report.progress(Slow()):
        assert shown.wait(60)
    assert terminal.getvalue().startswith("\rreading: 42%")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before = threading.active_count()
    with saved_report.progress(Slow()):
        assert threading.active_count() == before
    assert sys.stderr.getvalue() == ""


@pytest.mark.slow
def test_import_imbtorch_loads_no_reader():
    program = (
        "import sys, imbtorch; print([n for n in ('duckdb', 'pyarrow', 'pandas', 'narwhals') if n in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "[]\n", done.stderr
