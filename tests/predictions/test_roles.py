"""Roles of columns (`sources.py`): one column in two roles, labels that a plan drew, and columns that nobody named."""

import itertools

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import torch

import imbtorch
from imbtorch import Predictions

RNG = np.random.default_rng(4)
SIZE = 200
FRAME = pd.DataFrame({"label": (RNG.random(SIZE) < 0.4).astype(int), "n": RNG.integers(1, 4, SIZE)})
FRAME["pred"] = np.where(RNG.random(SIZE) < 0.25, 1 - FRAME["label"], FRAME["label"])
FRAME["score"] = (0.3 * FRAME["label"] + 0.7 * RNG.random(SIZE)).round(1)
LEGAL = [("weight", "group"), ("frequency", "group"), ("frequency", "cluster"), ("group", "cluster")]


def source_of(kind, frame, folder):
    """Return a frame in another form."""
    if kind == "lazy":
        return pytest.importorskip("polars").from_pandas(frame).lazy()
    if kind == "csv":
        pytest.importorskip("duckdb", reason="needs imbtorch[files]")
        frame.to_csv(folder / "f.csv", index=False)
        return str(folder / "f.csv")
    return frame


@pytest.mark.parametrize("kind", ["pandas", "lazy", "csv"])
@pytest.mark.parametrize("roles", LEGAL)
def test_roles_that_may_be_one_column_are_read_for_both(kind, roles, tmp_path):
    data = Predictions(source_of(kind, FRAME, tmp_path), target="label", **dict.fromkeys(roles, "n"))
    weight = FRAME["n"] if {"weight", "frequency"} & {*roles} else None
    right = sklearn.metrics.accuracy_score(FRAME["label"], FRAME["pred"], sample_weight=weight)
    assert float(data.report("pred", measures=["accuracy"])["accuracy"]) == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "csv"])
@pytest.mark.parametrize("role", ["preds", "scores", "weight", "frequency", "cluster"])
def test_a_target_in_another_role_is_an_error(kind, role, tmp_path):
    given = {"preds": "pred"} if role not in ("preds", "scores") else {}
    with pytest.raises(ValueError, match=f"target and {role} are one column, 'label'; name another"):
        imbtorch.report(source_of(kind, FRAME, tmp_path), target="label", **given, **{role: "label"})
    assert imbtorch.report(FRAME, target="label", preds="pred", group="label").counts.sum() == SIZE


def test_both_predictions_of_a_comparison_differ_from_the_target_and_the_ids():
    data = Predictions(FRAME, target="label")
    with pytest.raises(ValueError, match="target and new are one column"):
        data.compare("pred", "label", "f1")
    with pytest.raises(ValueError, match="old and id are one column"):
        data.compare("pred", "pred", "f1", other=data, id="pred")


@pytest.mark.parametrize("kind", ["pandas", "lazy", "csv"])
def test_labels_that_a_plan_drew_are_for_estimate_only(kind, tmp_path):
    data = Predictions(source_of(kind, FRAME.assign(label_order=None), tmp_path), target="label", missing="drop")
    calls = [lambda: data.report("pred"), lambda: data.thresholds("score", "f1")]
    calls += [lambda: data.compare("pred", "score", "f1"), lambda: data.adjustments("score", "f1", [1, 1])]
    calls.append(lambda: Predictions(FRAME, target="label").compare("pred", "pred", "f1", other=data))
    for call in calls:
        with pytest.raises(ValueError, match="estimate takes them by plan="):
            call()


@pytest.mark.parametrize("kind", ["pandas", "lazy", "csv"])
def test_fractional_frequencies_with_a_whole_sum_are_an_error(kind, tmp_path):
    frame = FRAME.assign(n=0.5)
    with pytest.raises(ValueError, match=r"frequency must be (a )?whole"):
        imbtorch.report(source_of(kind, frame, tmp_path), target="label", preds="pred", frequency="n")


def test_sums_of_narrow_numbers_in_an_engine_do_not_wrap():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"y": [0, 0, 0, 1], "p": [0, 0, 0, 1]})
    frame = frame.with_columns(n=polars.Series([1_500_000_000] * 3 + [1], dtype=polars.Int32))
    for role in ("weight", "frequency"):
        found = imbtorch.report(frame.lazy(), target="y", preds="p", **{role: "n"})
        assert found.counts.tolist() == [[4_500_000_000, 0], [0, 1]]


def test_columns_of_frames_may_have_integer_names_or_one_name():
    frame = pd.DataFrame(np.c_[1 - FRAME["score"], FRAME["score"]])
    frame["label"] = FRAME["label"]
    auc = sklearn.metrics.roc_auc_score(FRAME["label"], FRAME["score"])
    for scores in ("1", 1, [0, 1]):
        assert float(imbtorch.report(frame, target="label", scores=scores)["auc"]) == pytest.approx(auc, abs=1e-6)
    frame.columns = ["x", "x", "label"]
    with pytest.raises(ValueError, match="several columns 'x'; rename"):
        imbtorch.report(frame, target="label", scores="x")
    assert imbtorch.report(frame.assign(pred=FRAME["pred"]), target="label", preds="pred").counts.sum() == SIZE


def test_a_null_in_a_dictionary_of_arrow_is_missing():
    arrow = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"y": list("ababab"), "p": pd.Categorical(["a", "b", None, "b", "a", None])})
    for source in (frame, arrow.Table.from_pandas(frame)):
        with pytest.raises(ValueError, match=r"preds has no value in row 2 \(2 of 6 rows\)"):
            imbtorch.report(source, target="y", preds="p")
        found = imbtorch.report(source, target="y", preds="p", missing="drop")
        assert found.counts.tolist() == pd.crosstab(frame["y"], frame["p"]).to_numpy().tolist()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_a_threshold_is_compared_in_the_type_of_the_scores(kind):
    scores = torch.tensor(FRAME["score"].to_numpy()).to(getattr(torch, kind))
    found = imbtorch.report(target=FRAME["label"].to_numpy(), scores=scores, threshold=0.3)
    assert int(found.counts.sum(0)[1]) == int((scores > 0.3).sum())


@pytest.mark.parametrize("kind", ["pandas", "nullable", "arrow", "parquet"])
def test_a_missing_score_changes_no_other_at_the_threshold(kind, tmp_path):
    frame = pd.DataFrame({"label": [*FRAME["label"], 0], "score": pd.array([*FRAME["score"], None], dtype="Float32")})
    source = frame.astype({"score": "float32"}) if kind in ("pandas", "parquet") else frame
    source = source.astype({"score": "float[pyarrow]"}) if kind == "arrow" else source
    if kind == "parquet":
        pytest.importorskip("duckdb", reason="needs imbtorch[files]")
        source.to_parquet(tmp_path / "f.parquet")
        source = str(tmp_path / "f.parquet")
    found = imbtorch.report(source, target="label", scores="score", threshold=0.3, missing="drop")
    assert int(found.counts.sum(0)[1]) == int((FRAME["score"].to_numpy(np.float32) > 0.3).sum())


def test_missing_targets_beside_ignore_are_errors_unless_they_are_dropped():
    for missing in (None, pd.NA, float("nan")):
        columns = {"y": [0, 1, -1, missing], "p": [0, 1, 1, 1]}
        with pytest.raises(ValueError, match="target has no value in row 3"):
            imbtorch.report(columns, target="y", preds="p", ignore=-1)
        found = imbtorch.report(columns, target="y", preds="p", ignore=-1, missing="drop")
        assert found.counts.tolist() == [[1, 0], [0, 1]]


def test_labels_missing_in_one_of_two_sources_are_told_and_alerts_are_shares_of_all_rows():
    old = FRAME[["label", "score"]].assign(score=np.random.default_rng(0).random(SIZE))
    gaps = old.assign(label=old["label"].where(np.arange(SIZE) % 4 > 0))
    for first, second in ((old, gaps), (gaps, old)):
        for missing in ("raise", "drop"):
            data, other = (Predictions(each, target="label", missing=missing) for each in (first, second))
            if missing == "raise":
                with pytest.raises(ValueError, match=r"target.* has no value in row 0 \(50 of 200 rows\)"):
                    data.compare("score", "score", "f1", other=other, alerts=0.1)
                continue
            text = str(data.compare("score", "score", "f1", other=other, alerts=0.1))
            cut = np.sort(old["score"])[-21]  # strictly above which a tenth of all rows lies
            assert f"predicted positive of all rows: old 10% above {cut:.6g}" in " ".join(text.split())
            assert "a value is missing: target" in " ".join(text.split())


@pytest.mark.parametrize("kind", ["pandas", "lazy", "csv"])
def test_eight_columns_that_nobody_named_are_looked_at_for_models(kind, tmp_path):
    pairs = list(itertools.product(("a", "b"), range(9)))
    frame = pd.DataFrame({"label": [0, 1, 1] * 6, "pred": [0, 1, 0] * 6})
    frame["model"], frame["id"] = zip(*pairs, strict=True)
    for number, told in ((0, True), (6, True), (7, False)):
        wide = pd.concat([pd.DataFrame({f"x{at}": ["z"] * 18 for at in range(number)}), frame], axis=1)
        notes = imbtorch.report(source_of(kind, wide, tmp_path), target="label", preds="pred").table().notes
        assert any("names models" in note for note in notes) == told
