"""Comparisons of saved predictions in every layout, held against arrays and scikit-learn."""

import gzip
import importlib
import itertools
import json
import os

import numpy as np
import pytest
import sklearn.metrics
import torch
from compared import compared
from rooms import command_line

import imbtorch
from imbtorch.statistics import paired_compare

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
        found = compared(*sources, **given, measure="balanced_accuracy", generator=seed()).difference
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
        compared(*sources, **given)
    with pytest.raises(ValueError, match=rf"^{role} has no value in the row with id [42] \(2 of 4 rows\)"):
        compared(*sources, **given, id="image")
    found = compared(*sources, **given, missing="drop").difference.estimate.item()
    assert found == 0  # both models are right in the rows that are left


@pytest.mark.parametrize("measure", ["auc", "f1"])
def test_rows_without_a_score_are_an_error_unless_dropped(measure, tmp_path):
    there = np.arange(SIZE) % 50 != 7
    columns = {"y": Y, "a": np.where(there, SCORES[:, 0], np.nan), "b": SCORES[:, 1]}
    given = {"measure": measure, "target": "y", "scores": ["a", "b"]}
    given |= {} if measure == "auc" else {"threshold": 0.5}
    for source in (columns, parquet(tmp_path / "s.parquet", **columns)):
        with pytest.raises(ValueError, match=r"scores of old hold NaN in row 7 \(6 values\); leave"):
            compared(source, **given)
        found = compared(source, **given, missing="drop").difference.estimate.item()
        peer = sklearn.metrics.roc_auc_score if measure == "auc" else sklearn.metrics.f1_score
        scores = SCORES[there] if measure == "auc" else (SCORES[there] > 0.5).astype(int)
        assert found == pytest.approx(peer(Y[there], scores[:, 1]) - peer(Y[there], scores[:, 0]))


def test_pictures_beside_the_predictions_do_no_harm_by_row():
    """Their order cannot be compared, so without ``by_row`` they are an error."""
    pictures = {"image": [np.zeros(size) for size in (2, 3, 2)], "label": ["a", "b", "a"]}
    old, new = ({**pictures, "pred": preds} for preds in (["a", "b", "b"], ["a", "b", "a"]))
    given = {"measure": "accuracy", "target": "label", "preds": "pred"}
    found = compared(old, new, **given, by_row=True)
    assert found.difference.estimate.item() == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="image must be one column"):
        compared(old, new, **given)


def test_columns_of_mixed_types_are_named():
    mixed = {"label": ["a", "b", 3], "pred": ["a", "b", "a"]}
    with pytest.raises(TypeError, match="column 'label' must hold values of one type"):
        compared(mixed, mixed, measure="accuracy", target="label", preds="pred")


@pytest.mark.parametrize("measure", ["auc", "average_precision", "f1"])
@pytest.mark.parametrize("cluster", [None, "patient"])
def test_scores_are_compared_by_areas_or_at_a_threshold(measure, cluster, tmp_path):
    path = text(tmp_path / "s.csv", y=Y, a=SCORES[:, 0], b=SCORES[:, 1], patient=PATIENT)
    metric = {"auc": sklearn.metrics.roc_auc_score, "average_precision": sklearn.metrics.average_precision_score}
    given = {"target": "y", "scores": ["a", "b"], "cluster": cluster}
    given |= {} if measure in metric else {"threshold": 0.4}
    found = compared(path, **given, measure=measure, generator=seed()).difference
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
        (["--preds", "old"], "name two columns of one file, such as --preds old new, got old"),
        (["--preds", "old", "new", "label"], "such as --preds old new, got old, new, label"),
        (["--scores", "old", "new"], "scores need --threshold or --alerts"),
        (["--scores", "old", "new", "--threshold", ".5"], "--positive"),
        (["--preds", "old", "new", "--model", "label"], "the same column of a long source"),
        (["--preds", "old", "--model", "label"], "target and model are one column"),
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
    for measure, more in (("auc", {}), ("f1", {"threshold": 0.5})):
        found = []
        for decimal in ".,":
            path = tmp_path / "long.csv"
            text = "\n".join(["model;label;score", *lines, ""]).replace(".", decimal)
            path.write_text(text, encoding="utf-8")
            found.append(compared(path, measure=measure, decimal=decimal, generator=seed(), **options, **more))
        assert str(found[0]) == str(found[1])
    a, b = (sklearn.metrics.roc_auc_score(Y, np.round(SCORES[:, column], 6)) for column in (1, 0))
    comma = compared(path, measure="auc", decimal=",", **options)
    assert comma.difference.estimate.item() == pytest.approx(a - b)


# --- pairs by row -----------------------------------------------------------------------------------------------------

ROWS = np.random.default_rng(12)
SORTED = np.sort((ROWS.random(600) < 0.3).astype(int))  # sorted by class, as by ImageFolder
BEFORE = np.where((ROWS.random(600) < 0.25) & (ROWS.random(600) < 0.9), 1 - SORTED, SORTED)
AFTER = BEFORE.copy()
AFTER[ROWS.choice(np.flatnonzero(BEFORE == SORTED), 3, replace=False)] ^= 1
TURN = np.concatenate([ROWS.permutation(np.flatnonzero(each == SORTED)) for each in (0, 1)])
BY_ROW = {"measure": "balanced_accuracy", "target": "label", "preds": "pred"}
FORMS = {
    "text": lambda: np.array([f"s{at:04}" for at in range(600)]),
    "integers": lambda: np.arange(600),
    "large": lambda: np.arange(600) + 2**60,
    "sparse": lambda: np.array([f"{at // 2} {at % 2}" if at > 50 else "same" for at in range(600)]),
}


def written(kind, path, **columns):
    """Return columns as a source of one kind."""
    if kind in ("csv", "csv.gz"):
        path = text(path.with_suffix(".csv"), **columns)
        if kind == "csv":
            return path
        with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
            packed.write(plain.read())
        os.remove(path)
        return f"{path}.gz"
    listed = {name: each.tolist() for name, each in columns.items()}
    if kind == "parquet":
        return parquet(path.with_suffix(".parquet"), **listed)
    if kind == "jsonl":
        rows = [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]
        path.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return str(path.with_suffix(".jsonl"))
    if kind == "duckdb":
        return importlib.import_module("duckdb").connect().from_arrow(pyarrow.table(listed))
    if kind in ("pandas", "polars"):
        return pytest.importorskip(kind, reason=f"needs {kind}").DataFrame(listed)
    return pyarrow.table(listed) if kind == "arrow" else listed


NAMED_BY = ["filename", "uuid", "PassengerId", "TransactionID", "index", "Unnamed: 0", "sample", "url", 'key="a"']
SOURCES = ["csv", "csv.gz", "parquet", "jsonl", "duckdb", "pandas", "polars", "arrow", "mapping"]


@pytest.mark.parametrize(("name", "kind"), list(zip(NAMED_BY, SOURCES, strict=True)))
def test_columns_show_that_rows_are_other_pairs(name, kind, tmp_path):
    """Whatever the column of names is called; the interval by id is the oracle, that of arrays in one order."""
    form = list(FORMS)[(len(name) + len(kind)) % 4]
    base = {name: FORMS[form](), "label": SORTED}
    old = written(kind, tmp_path / "old", **base, pred=BEFORE)
    new = {key: each[TURN] for key, each in base.items()} | {"pred": AFTER[TURN]}
    new = written(kind, tmp_path / "new", **new)
    with pytest.raises(ValueError, match=rf"column {name!r} of old and new differs in \d+ rows.*--id {name}.*--by-row"):
        compared(old, new, **BY_ROW)
    gain = sklearn.metrics.balanced_accuracy_score(SORTED, AFTER) - sklearn.metrics.balanced_accuracy_score(
        SORTED, BEFORE
    )
    for more in ({"by_row": True}, {"id": name}):
        if more != {"id": name} or form != "sparse":
            found = compared(old, new, **BY_ROW, **more, generator=seed()).difference
            assert found.estimate.item() == pytest.approx(gain)
    if form != "sparse":
        tensors = (torch.from_numpy(each) for each in (AFTER, BEFORE, SORTED))
        right = paired_compare("balanced_accuracy", *tensors, 2, generator=seed()).difference
        assert found.low.item() == pytest.approx(right.low.item(), abs=0.002)


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "mapping", "duckdb"])
@pytest.mark.parametrize("layout", ["one below the other", "interleaved"])
def test_a_long_source_shows_other_pairs(layout, kind, tmp_path):
    names = FORMS["text"]()
    columns = {
        "run": np.repeat(["a", "b"], 600),
        "sample": np.r_[names, names[TURN]],
        "label": np.r_[SORTED, SORTED[TURN]],
        "pred": np.r_[BEFORE, AFTER[TURN]],
    }
    if layout == "interleaved":
        order = np.arange(1200).reshape(2, 600).T.ravel()
        columns = {name: each[order] for name, each in columns.items()}
    source = written(kind, tmp_path / "long", **columns)
    with pytest.raises(ValueError, match="column 'sample' of old and new differs in"):
        compared(source, **BY_ROW, model="run")
    found = compared(source, **BY_ROW, model="run", id="sample", generator=seed()).difference
    tensors = (torch.from_numpy(each) for each in (AFTER, BEFORE, SORTED))
    right = paired_compare("balanced_accuracy", *tensors, 2, generator=seed()).difference
    assert found.low.item() == pytest.approx(right.low.item(), abs=0.002)


def right_columns():
    """Yield columns of two right programs by row: of both sources, in their order."""
    draw = np.random.default_rng(4)
    yield {"sample": (FORMS["text"](), FORMS["text"]())}  # the same order
    yield {"time": tuple(np.array([f"12:{at:04}" for at in draw.integers(10_000, size=600)]) for _ in range(2))}
    yield {"loss": tuple(draw.random(600).round(6) for _ in range(2))}
    yield {"worker": tuple(draw.permutation(600) for _ in range(2))}  # of loaders with several workers
    yield {"rank": tuple(draw.permutation(600).argsort() for _ in range(2))}
    yield {
        "note": (np.array(["é"] * 600), np.array(["x"] * 600)),
        "fold": tuple(draw.integers(5, size=600) for _ in range(2)),
    }
    yield {"prompt": tuple(np.array([f"{at} {draw.integers(9)}" for at in range(600)]) for _ in range(2))}
    yield {"row": (np.arange(600), np.arange(600) + 7)}


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "mapping"])
def test_columns_of_right_programs_are_silent(kind, tmp_path):
    gain = sklearn.metrics.balanced_accuracy_score(SORTED, AFTER) - sklearn.metrics.balanced_accuracy_score(
        SORTED, BEFORE
    )
    for more in right_columns():
        old, new = (
            written(kind, tmp_path / name, label=SORTED, pred=preds, **{key: each[at] for key, each in more.items()})
            for at, (name, preds) in enumerate((("old", BEFORE), ("new", AFTER)))
        )
        assert compared(old, new, **BY_ROW).difference.estimate.item() == pytest.approx(gain)


@pytest.mark.default_cases("2")
@pytest.mark.parametrize("positives", [1, 2, 5, 50])
def test_random_columns_of_right_programs_show_no_other_pairs(positives):
    """Columns that are drawn anew for each source, such as places in a queue, among few positives."""
    draw, told = np.random.default_rng(positives), 0
    target = (np.arange(200) < positives).astype(int)
    for _ in range(8 if positives == 2 else 40):
        old, new = ({"label": target, "pred": target, "queue": draw.permutation(200)} for _ in range(2))
        try:
            compared(old, new, measure="accuracy", target="label", preds="pred", generator=seed())
        except ValueError as error:
            told += "differs in" in str(error)
    assert told <= (1 if positives == 1 else 0)  # at most one in 200 of them with a single positive


def test_columns_that_nobody_named_may_hold_anything(tmp_path):
    """Other encodings, after the first rows as well, odd JSON, and columns that only some files hold."""
    rows = [f"{t},{p},s{at}" for at, (t, p) in enumerate(zip(SORTED, BEFORE, strict=True))] * 3
    for place in (3, 1500):
        path = tmp_path / f"{place}.csv"
        lines = ["label,pred,note", *rows]
        path.write_bytes(
            "\n".join([*lines[:place], "1,1,caf\udce9", *lines[place:], ""]).encode(errors="surrogateescape")
        )
        assert compared(path, path, **BY_ROW).difference.estimate == 0
    (tmp_path / "parts").mkdir()
    text(tmp_path / "parts" / "a.csv", label=SORTED, pred=BEFORE, sample=np.arange(600))
    text(tmp_path / "parts" / "b.csv", label=SORTED, pred=BEFORE)
    assert compared(tmp_path / "parts", tmp_path / "parts", **BY_ROW).difference.estimate == 0
    lines = [{"label": 0, "pred": 0, "a": {"b": at}, "c": ["x", at], "d": [at]} for at in range(20)]
    lines += [{"label": 1, "pred": 1, "a": 1, "c": 2, "d": "e"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert compared(tmp_path / "x.jsonl", tmp_path / "x.jsonl", **BY_ROW).difference.estimate == 0
    odd = {"label": SORTED, "pred": BEFORE, "mixed": [*map(str, range(599)), 7], "image": None}
    odd |= {"image": FORMS["text"](), "objects": [object()] * 600, "lists": [[at] * (at % 3) for at in range(600)]}
    assert compared(odd, odd, **BY_ROW).difference.estimate == 0


@pytest.mark.parametrize(
    "pair", [*itertools.combinations_with_replacement(["csv", "parquet", "duckdb", "mapping", "pandas"], 2)]
)
def test_any_two_kinds_of_sources_are_compared(pair, tmp_path):
    """A relation of the user's own connection gets no view, and an older comparison changes nothing."""
    old = written(pair[0], tmp_path / "old", label=SORTED, pred=BEFORE, id=np.arange(600))
    new = written(pair[1], tmp_path / "new", label=SORTED[TURN], pred=AFTER[TURN], id=np.arange(600)[TURN])
    gain = sklearn.metrics.balanced_accuracy_score(SORTED, AFTER) - sklearn.metrics.balanced_accuracy_score(
        SORTED, BEFORE
    )
    for sources, sign in (((old, new), 1), ((new, old), -1)):
        found = compared(*sources, **BY_ROW, id="id").difference.estimate.item()
        assert found == pytest.approx(sign * gain)
    for source in (old, new):
        if "duckdb" in type(source).__module__:
            assert source.query(
                "here", "SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'imbtorch%'"
            ).fetchall() == [(0,)]


def test_ids_written_as_floats_are_the_same_ids(tmp_path):
    old = text(tmp_path / "old.csv", id=[1, 2, 3], label=[0, 1, 1], pred=[0, 1, 1])
    new = text(tmp_path / "new.csv", id=["3.0", "1.0", " 2.00"], label=[1, 0, 1], pred=[0, 0, 1])
    found = compared(old, new, measure="accuracy", target="label", preds="pred", id="id").difference
    assert found.estimate.item() == pytest.approx(2 / 3 - 1)


def test_the_text_names_columns_or_models():
    columns = {"y": [0, 1] * 50, "bad": [0, 0] * 50, "good": [0, 1] * 50}
    text = str(compared(columns, measure="recall", target="y", preds=["bad", "good"]))
    assert text.startswith("recall (binary), good - bad: 1.000 [")
    assert "; good is better" in " ".join(text.split())
    areas = {"y": [0, 1] * 50, "bad": [0.5, 0.4] * 50, "good": [0.1, 0.9] * 50}
    assert "auc, good - bad: 1.000" in str(compared(areas, measure="auc", target="y", scores=["bad", "good"]))
    long = {"y": [0, 1] * 100, "p": [0, 0] * 50 + [0, 1] * 50, "net": ["tree"] * 100 + ["deep"] * 100}
    assert "deep - tree: 1.000" in str(compared(long, measure="recall", target="y", preds="p", model="net"))
    one = compared({"y": [0, 1] * 9, "p": [0, 0] * 9}, {"y": [0, 1] * 9, "p": [0, 1] * 9}, measure="recall",
        target="y", preds="p")  # fmt: skip
    assert "new - old: 1.000" in str(one)


def test_two_columns_pair_rows(tmp_path, capsys):
    """Together they tell rows apart, also where their texts would join to the same one."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    keys = [("a", "b, c"), ("a, b", "c"), ("a", 'b"'), ('a"', "b"), *((f"p{at // 3}", str(at % 3)) for at in range(96))]
    target, old, new = rng.integers(2, size=(3, len(keys)))
    patient, image = zip(*keys, strict=True)
    turn = rng.permutation(len(keys))
    first = pandas.DataFrame({"patient": patient, "image": image, "label": target, "pred": old})
    second = pandas.DataFrame({"patient": patient, "image": image, "pred": new}).iloc[turn]
    expected = sklearn.metrics.accuracy_score(target, new) - sklearn.metrics.accuracy_score(target, old)
    data, other = (imbtorch.Predictions(each, target="label") for each in (first, second))
    found = data.compare("pred", "pred", "accuracy", other=other, id=["patient", "image"])
    assert found.difference.estimate.item() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"several rows with patient '.*'; ids must differ"):
        data.compare("pred", "pred", "accuracy", other=other, id="patient")
    missing = imbtorch.Predictions(second.iloc[1:], target="label")
    with pytest.raises(ValueError, match=r"new has no row with patient, image '\[.*\]' \(1 are missing\)"):
        data.compare("pred", "pred", "accuracy", other=missing, id=["patient", "image"])
    for name, frame in (("old", first), ("new", second.assign(label=target[turn]))):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["compare", tmp_path / "old.csv", tmp_path / "new.csv", "--target", "label", "--preds", "pred"]
    words += ["--id", "patient,image", "--measure", "accuracy", "--margin", ".3"]
    assert command_line.main(list(map(str, words))) in (0, 3)
    assert f"accuracy, new - old: {expected:+.3f} [" in capsys.readouterr().out
