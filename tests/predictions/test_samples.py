"""What samples of two classes show against their values (`samples.py`): confidences, and labels of alarms alone."""

import numpy as np
import pytest
import scipy.stats
from rooms import command_line

import imbtorch
from imbtorch import Predictions

pandas = pytest.importorskip("pandas", reason="needs pandas")

RNG = np.random.default_rng(3)
Y = (RNG.random(3000) < 0.1).astype(int)
SCORES = 1 / (1 + np.exp(3 - 3 * Y - 1.5 * RNG.normal(size=len(Y))))
FLAGGED = SCORES > 0.5


def told(result, word):
    return [note for note in result.table().notes if word in note]


def test_confidences_of_the_predicted_class_are_told():
    """They are max(p, 1 - p); their AUC is scikit-learn's of another thing, so that only a note tells."""
    confidence = np.maximum(SCORES, 1 - SCORES)
    data = Predictions({"y": Y, "confidence": confidence, "score": SCORES}, target="y")
    (note,) = told(data.report(scores="confidence"), "confidences of the predicted class")
    assert f"{(confidence[Y == 0] > 0.75).sum()} of {(Y == 0).sum()} rows of class '0'" in note
    assert data.thresholds("confidence", "f1").problems["confidences"] == note
    assert not told(data.report(scores="score"), "confidences")
    assert "confidences" not in data.thresholds("score", "f1").problems


def test_scores_that_are_high_for_their_own_reasons_are_no_confidences():
    """Scores of class 1 from 0.5 on are low in class 0; one score below 0.5 is no confidence of two classes."""
    shifted = 0.5 + SCORES / 2
    assert not told(imbtorch.report(target=Y, scores=shifted), "confidences")
    confidence = np.maximum(SCORES, 1 - SCORES)
    confidence[0] = 0.49
    assert not told(imbtorch.report(target=Y, scores=confidence), "confidences")


@pytest.mark.parametrize("of", ["scores", "preds"])
def test_labels_of_alarms_alone_are_told(of):
    """Every alarm has a label and nothing else: recall would be 1."""
    label = pandas.Series(Y).astype("Int64").where(FLAGGED)
    given = {"scores": SCORES} if of == "scores" else {"preds": FLAGGED.astype(int)}
    result = imbtorch.report(target=label, missing="drop", **given)
    assert result["recall"].item() == 1
    (note,) = told(result, "follow the alarms")
    assert f"{FLAGGED.sum()} of {FLAGGED.sum()} rows" in note
    assert "0 of 2," in note
    assert "imbtorch label" in note
    ignored = label.fillna(-1).astype(int)
    assert told(imbtorch.report(target=ignored, ignore=-1, **given), "follow the alarms") == [note]


@pytest.mark.parametrize(("more", "seed"), [(1.0, 11), (1.0, 12), (1.3, 13), (2.0, 14), (6.0, 15)])
def test_labels_that_follow_the_alarms_are_told_as_a_test_of_counts_decides(more, seed):
    """The oracle is SciPy's G-test of labels and alarms; rates that differ by less than half are not told."""
    draws = np.random.default_rng(seed).random(len(Y))
    labelled = draws < np.where(FLAGGED, min(0.15 * more, 1), 0.15)
    pair = [[(labelled == has) & (flag == FLAGGED) for flag in (False, True)] for has in (True, False)]
    sizes = np.array([[each.sum() for each in row] for row in pair])
    rates = sizes[:, 1] / sizes.sum(1)
    chance = scipy.stats.chi2_contingency(sizes, correction=False, lambda_="log-likelihood").pvalue
    expected = chance < 0.001 and max(rates) > 1.5 * min(rates)
    assert expected == (more >= 2)
    label = pandas.Series(Y).astype("Int64").where(labelled)
    result = imbtorch.report(target=label, missing="drop", preds=FLAGGED.astype(int))
    assert bool(told(result, "follow the alarms")) == expected


# --- groups -----------------------------------------------------------------------------------------------------------
SITES = ["g=1", "g=2", "g=10"]  # 1 is also a class


def sources(folder):
    """The same groups as every source holds them: numbers, floats beside missing values, and texts."""
    frame = pandas.DataFrame({"y": Y[:300], "p": FLAGGED[:300].astype(int)})
    whole = np.array([1, 2, 10])[np.arange(300) % 3]
    yield "integers", frame.assign(g=whole)
    yield "floats", frame.assign(g=whole.astype(float))
    yield "nullable", frame.assign(g=pandas.array(whole, dtype="Int64"))
    yield "texts", frame.assign(g=whole.astype(str))
    for name, each in (("1", whole), ("1.0", whole.astype(float))):
        frame.assign(g=each).to_csv(folder / f"{name}.csv", index=False)
        yield f"CSV {name}", str(folder / f"{name}.csv")
    frame.assign(g=whole.astype(float)).to_json(folder / "a.jsonl", orient="records", lines=True)
    yield "JSON", str(folder / "a.jsonl")


def test_a_group_has_one_name_from_every_source(tmp_path):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    for name, source in sources(tmp_path):
        result = imbtorch.report(source, target="y", preds="p", group="g", measures=["accuracy"])
        assert list(result.group_names) == SITES, name
    coded = pandas.DataFrame({"y": [0, 1] * 2, "p": [0, 1] * 2, "g": ["01", "1", "1.0", "01.0"]})
    found = imbtorch.report(coded, target="y", preds="p", group="g", class_names=[0, 1]).group_names
    assert list(found) == ["g=01", "g=01.0", "g=1"]  # what is no number is no other number either


@pytest.mark.parametrize(
    "names",
    [
        [f"{month} 2026" for month in ("Jan", "Feb", "Mar", "Apr", "Aug", "Dec")],
        [f"{month:%B}" for month in pandas.date_range("2026-01-15", periods=12, freq="30D")],
        [f"{month:%m/%Y}" for month in pandas.date_range("2025-09-01", periods=9, freq="MS")],
        [f"{month.year}-{month.month}" for month in pandas.date_range("2025-09-01", periods=9, freq="MS")],
        ["site 2", "site 10", "site 11"],
        ["-3", "2", "10"],
    ],
)
def test_months_are_ordered_by_time_and_digits_by_value(names):
    """The order is that of the dates from which pandas wrote the names."""
    frame = pandas.DataFrame({"y": Y[:600], "p": FLAGGED[:600].astype(int), "g": np.resize(names[::-1], 600)})
    result = imbtorch.report(frame, target="y", preds="p", group="g", measures=["accuracy"])
    assert list(result.group_names) == list(result.table(sort="name")["group"]) == names
    accuracy = [row["accuracy"] for row in result.table()["group"].values()]
    assert accuracy == sorted(accuracy)  # the worst first


def test_the_row_of_a_group_holds_its_alarms():
    """Alarms and their share are those that pandas counts."""
    frame = pandas.DataFrame({"y": Y, "p": FLAGGED.astype(int), "g": np.resize(["a", "b", "c"], len(Y))})
    rows = imbtorch.report(frame, target="y", preds="p", group="g").table()["group"]
    of_pandas = frame.groupby("g")["p"].agg(["sum", "mean"])
    for name, row in rows.items():
        assert row["alarms"] == of_pandas["sum"][name]
        assert row["alerts"] == pytest.approx(of_pandas["mean"][name])


def test_the_command_sorts_groups_by_name(tmp_path, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    *_, (_, path) = sources(tmp_path)
    words = ["report", path, "--target", "y", "--preds", "p", "--group", "g", "--measures", "accuracy"]
    assert command_line.main([*words, "--sort", "name", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[1] for line in lines if line.startswith("group,")] == SITES


@pytest.mark.parametrize("kind", ["csv", "pandas", "mapping"])
def test_a_report_finds_rows_with_the_same_id(kind, tmp_path, capsys):
    """As `compare` does: 1 and 1.0 are one id, and two columns tell rows apart together."""
    duckdb = pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    frame = pandas.DataFrame({"y": Y[:60], "p": FLAGGED[:60].astype(int), "key": range(60), "part": 0})
    twice = pandas.concat([frame, frame.iloc[[7]]])
    path = tmp_path / "a.csv"
    for each, good in ((frame, True), (twice, False), (twice.assign(part=range(61)), "both")):
        each.to_csv(path, index=False)
        source = {"csv": str(path), "pandas": each, "mapping": {name: each[name] for name in each}}[kind]
        if good is not True:
            with pytest.raises(ValueError, match="the source has several rows with key '7'; ids must differ"):
                imbtorch.report(source, target="y", preds="p", id="key")
            assert command_line.main(["report", str(path), "--target", "y", "--preds", "p", "--id", "key"]) == 2
            assert "several rows with key" in capsys.readouterr().err
        if good:
            assert imbtorch.report(source, target="y", preds="p", id=["key", "part"]).counts.sum() == len(each)
    with pytest.raises(ValueError, match="id= is for sources of columns"):
        imbtorch.report(target=[0, 1], preds=[0, 1], id="key")
    relation = duckdb.sql("SELECT 0 AS y, 1 AS p, 5 AS key UNION ALL SELECT 1, 1, 5")
    with pytest.raises(ValueError, match="several rows with key '5'"):
        imbtorch.report(relation, target="y", preds="p", id="key")
