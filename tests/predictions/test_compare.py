"""Comparisons of saved predictions in every layout, held against arrays and scikit-learn."""

import importlib

import numpy as np
import pytest
import sklearn.metrics
import torch
from rooms import command_line

import imbtorch
from imbtorch.statistics import compare_predictions, paired_compare

pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
pytest.importorskip("duckdb", reason="needs imbtorch[files]")

RNG = np.random.default_rng(11)
SIZE = 300
NAMES = np.array(["cat", "dog", "emu"])
T = RNG.choice(3, SIZE, p=[0.6, 0.3, 0.1])
OLD, NEW = (np.where(RNG.random(SIZE) < share, RNG.integers(3, size=SIZE), T) for share in (0.2, 0.3))
PATIENT = RNG.integers(40, size=SIZE)
Y = (T == 2).astype(int)
SCORES = np.clip(0.5 * Y[:, None] + 0.6 * RNG.random((SIZE, 2)), 0, 1)
IDS = np.array([f"image {at:03}" for at in range(SIZE)])


def seed():
    return torch.Generator().manual_seed(0)


def text(path, **columns):
    """Write a CSV file and return its path."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def parquet(path, **columns):
    """Write a Parquet file and return its path."""
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), path)
    return str(path)


def layouts(folder):
    """Yield the sources and arguments of one comparison in every layout."""
    columns = {"label": NAMES[T], "old": NAMES[OLD], "new": NAMES[NEW], "image": IDS, "patient": PATIENT}
    both = {"target": "label", "preds": ["old", "new"], "cluster": "patient"}
    yield (columns,), both
    yield (text(folder / "both.csv", **columns),), both
    yield (parquet(folder / "both.parquet", **columns),), both
    one = {"target": "label", "preds": "pred", "cluster": "patient"}
    base = {"label": NAMES[T], "image": IDS, "patient": PATIENT}
    files = [
        [write(folder / f"{name}.{kind}", **base, pred=NAMES[each]) for name, each in (("old", OLD), ("new", NEW))]
        for kind, write in (("csv", text), ("parquet", parquet))
    ]
    yield files[0], one
    yield (files[0][0], files[1][1]), one
    order = RNG.permutation(SIZE)
    turned = text(folder / "turned.csv", image=IDS[order], pred=NAMES[NEW[order]])
    yield (files[1][0], turned), one | {"id": "image"}
    twice = {name: np.concatenate([each, each]) for name, each in base.items()}
    long = {"pred": np.concatenate([NAMES[OLD], NAMES[NEW]]), "run": np.repeat(["v1", "v2"], SIZE)}
    yield (text(folder / "long.csv", **twice, **long),), one | {"model": "run"}


def test_all_layouts_give_the_comparison_of_arrays(tmp_path):
    arrays = [torch.from_numpy(each) for each in (NEW, OLD, T)]
    expected = paired_compare(
        "balanced_accuracy", *arrays, 3, cluster=torch.from_numpy(PATIENT), generator=seed()
    ).difference
    gain = sklearn.metrics.balanced_accuracy_score(T, NEW) - sklearn.metrics.balanced_accuracy_score(T, OLD)
    assert expected.estimate.item() == pytest.approx(gain)
    for number, (sources, given) in enumerate(layouts(tmp_path)):
        found = compare_predictions(*sources, **given, measure="balanced_accuracy", generator=seed()).difference
        for name in ("estimate", "low", "high"):
            assert getattr(found, name).item() == pytest.approx(getattr(expected, name).item()), number


@pytest.mark.parametrize("kind", ["csv", "parquet", "frames", "pandas"])
@pytest.mark.parametrize(("broken", "role"), [("label", "target of new"), ("pred", "new")])
def test_errors_name_the_first_row_or_id_without_a_value(kind, broken, role, tmp_path):
    """Of frames of pandas NaN stands for the missing text; columns that nobody named may hold anything."""
    sources = []
    for name, values in (("old", ["a", "b", "a", "b"]), ("new", ["a", "b", None, None])):
        columns = {"image": [3, 1, 4, 2], "label": ["a", "b", "a", "b"], "pred": ["a", "b", "b", "b"], "odd": [1] * 4}
        columns[broken] = values
        if kind == "csv":
            cells = {key: ["" if each is None else each for each in some] for key, some in columns.items()}
            sources.append(text(tmp_path / f"{name}.csv", **cells))
        elif kind == "parquet":
            sources.append(parquet(tmp_path / f"{name}.parquet", **columns))
        else:
            frame = columns | {"odd": [{}, [], "a", 1]}
            pandas = pytest.importorskip("pandas", reason="needs pandas") if kind == "pandas" else None
            sources.append(frame if pandas is None else pandas.DataFrame(frame).fillna(float("nan")))
    given = {"measure": "accuracy", "target": "label", "preds": "pred"}
    with pytest.raises(ValueError, match=rf"^{role} has no value in row 2 \(2 of 4 rows\)"):
        compare_predictions(*sources, **given)
    with pytest.raises(ValueError, match=rf"^{role} has no value in the row with id [42] \(2 of 4 rows\)"):
        compare_predictions(*sources, **given, id="image")
    found = compare_predictions(*sources, **given, missing="drop").difference.estimate.item()
    assert found == 0  # both models are right in the rows that are left


@pytest.mark.parametrize("measure", ["auc", "f1"])
def test_rows_without_a_score_are_an_error_unless_dropped(measure, tmp_path):
    there = np.arange(SIZE) % 50 != 7
    columns = {"y": Y, "a": np.where(there, SCORES[:, 0], np.nan), "b": SCORES[:, 1]}
    given = {"measure": measure, "target": "y", "scores": ["a", "b"]}
    for source in (columns, parquet(tmp_path / "s.parquet", **columns)):
        with pytest.raises(ValueError, match=r"scores hold NaN in row 7 \(6 rows\); missing='drop'"):
            compare_predictions(source, **given)
        found = compare_predictions(source, **given, missing="drop").difference.estimate.item()
        peer = sklearn.metrics.roc_auc_score if measure == "auc" else sklearn.metrics.f1_score
        scores = SCORES[there] if measure == "auc" else (SCORES[there] > 0.5).astype(int)
        assert found == pytest.approx(peer(Y[there], scores[:, 1]) - peer(Y[there], scores[:, 0]))


def test_pictures_beside_the_predictions_do_no_harm_by_row():
    """Their order cannot be compared, so without ``by_row`` they are an error."""
    pictures = {"image": [np.zeros(size) for size in (2, 3, 2)], "label": ["a", "b", "a"]}
    old, new = ({**pictures, "pred": preds} for preds in (["a", "b", "b"], ["a", "b", "a"]))
    given = {"measure": "accuracy", "target": "label", "preds": "pred"}
    found = compare_predictions(old, new, **given, by_row=True)
    assert found.difference.estimate.item() == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="image must be one column"):
        compare_predictions(old, new, **given)


def test_columns_of_mixed_types_are_named():
    mixed = {"label": ["a", "b", 3], "pred": ["a", "b", "a"]}
    with pytest.raises(TypeError, match="column 'label' must hold values of one type"):
        compare_predictions(mixed, mixed, measure="accuracy", target="label", preds="pred")


@pytest.mark.parametrize("measure", ["auc", "average_precision", "f1"])
@pytest.mark.parametrize("cluster", [None, "patient"])
def test_scores_are_compared_by_areas_or_at_a_threshold(measure, cluster, tmp_path):
    path = text(tmp_path / "s.csv", y=Y, a=SCORES[:, 0], b=SCORES[:, 1], patient=PATIENT)
    given = {"target": "y", "scores": ["a", "b"], "threshold": 0.4, "cluster": cluster}
    found = compare_predictions(path, **given, measure=measure, generator=seed()).difference
    metric = {"auc": sklearn.metrics.roc_auc_score, "average_precision": sklearn.metrics.average_precision_score}
    values = SCORES if measure in metric else SCORES > 0.4
    old, new = (metric.get(measure, sklearn.metrics.f1_score)(Y, each) for each in values.T)
    assert found.estimate.item() == pytest.approx(new - old, abs=1e-9)
    parts = [torch.from_numpy(each if measure in metric else each.astype(int)) for each in (values[:, 1], values[:, 0])]
    more = {} if measure in metric else {"num_classes": 2}
    if cluster is not None:
        more["cluster"] = torch.from_numpy(PATIENT)
    expected = paired_compare(measure, *parts, torch.from_numpy(Y), **more, generator=seed())
    assert found.low.item() == pytest.approx(expected.difference.low.item(), abs=1e-9)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preds", "old,new"], "new - old:"),
        (["--preds", "old", "new"], "new - old:"),
        (["--preds", "*"], "--preds old new"),
        (["--preds", "old"], "two columns of predictions"),
        (["--preds", "old", "new", "label"], "one column of predictions or two"),
        (["--scores", "old", "new"], "--positive"),
        (["--preds", "old", "new", "--model", "label"], "must name two models"),
    ],
)
def test_the_command_takes_two_columns_of_a_file(words, said, tmp_path, capsys):
    path = text(tmp_path / "both.csv", label=NAMES[T], old=NAMES[OLD], new=NAMES[NEW])
    code = command_line.main(["compare", path, "--target", "label", *words, "--measure", "f1", "--margin", ".01"])
    shown = capsys.readouterr()
    assert said in (shown.err if code == 2 else shown.out)
    assert (code == 2) == ("new - old" not in said)


def test_heads_in_other_scripts_are_read(tmp_path):
    """Also the bytes that Latin-1 does not have."""
    path = text(tmp_path / "x.csv", **{"label": ["猫", "x"], "预测": ["猫", "猫"]})
    assert imbtorch.report(path, target="label", preds="预测").counts.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("models", [("old", "new"), ("new", "old"), ("b", "a"), ("1", "2"), ("9", "10")])
def test_the_model_of_the_first_row_is_the_old_one(tmp_path, models):
    """Whatever the names are; scores with a decimal comma are those with a point."""
    lines = [
        f"{model};{y};{score:.6f}"
        for column, model in enumerate(models)
        for y, score in zip(Y, SCORES[:, column], strict=True)
    ]
    options = {"target": "label", "scores": "score", "model": "model", "by_row": True}
    for measure in ("auc", "f1"):
        found = []
        for decimal in ".,":
            path = tmp_path / "long.csv"
            text = "\n".join(["model;label;score", *lines, ""]).replace(".", decimal)
            path.write_text(text, encoding="utf-8")
            found.append(compare_predictions(path, measure=measure, decimal=decimal, generator=seed(), **options))
        assert str(found[0]) == str(found[1])
    a, b = (sklearn.metrics.roc_auc_score(Y, np.round(SCORES[:, column], 6)) for column in (1, 0))
    comma = compare_predictions(path, measure="auc", decimal=",", **options)
    assert comma.difference.estimate.item() == pytest.approx(a - b)


def test_the_text_names_columns_or_models():
    columns = {"y": [0, 1] * 50, "bad": [0, 0] * 50, "good": [0, 1] * 50}
    text = str(compare_predictions(columns, measure="recall", target="y", preds=["bad", "good"]))
    assert text.startswith("recall (binary), good - bad: 1.000 [")
    assert "; good is better" in " ".join(text.split())
    areas = {"y": [0, 1] * 50, "bad": [0.5, 0.4] * 50, "good": [0.1, 0.9] * 50}
    assert "auc, good - bad: 1.000" in str(
        compare_predictions(areas, measure="auc", target="y", scores=["bad", "good"])
    )
    long = {"y": [0, 1] * 100, "p": [0, 0] * 50 + [0, 1] * 50, "net": ["tree"] * 100 + ["deep"] * 100}
    assert "deep - tree: 1.000" in str(compare_predictions(long, measure="recall", target="y", preds="p", model="net"))
    one = compare_predictions({"y": [0, 1] * 9, "p": [0, 0] * 9}, {"y": [0, 1] * 9, "p": [0, 1] * 9}, measure="recall",
        target="y", preds="p")  # fmt: skip
    assert "new - old: 1.000" in str(one)
