"""A theme of several modules: predictions that are no answer, against scikit-learn and exact fractions."""

import importlib
import json
import re
import shlex
from fractions import Fraction

import numpy as np
import pytest
import sklearn.metrics
from rooms import command_line, parser

import imbtorch
from imbtorch import Predictions

pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
pytest.importorskip("duckdb", reason="needs imbtorch[files]")

OF_SKLEARN = {
    "recall": sklearn.metrics.recall_score,
    "precision": sklearn.metrics.precision_score,
    "f1": sklearn.metrics.f1_score,
}
SOURCES = ("arrays", "lists", "mapping", "pandas", "polars", "csv", "parquet", "jsonl", "duckdb", "lazy")


def source_of(kind, path, columns):
    """Return columns as a source of one kind; None stands for a missing value."""
    table = pyarrow.table(columns)
    if kind in ("csv", "parquet", "jsonl"):
        path = path.with_suffix(f".{kind}")
        if kind == "parquet":
            importlib.import_module("pyarrow.parquet").write_table(table, path)
        elif kind == "csv":
            importlib.import_module("pyarrow.csv").write_csv(table, path)
        else:
            path.write_text("\n".join(map(json.dumps, table.to_pylist())), encoding="utf-8")
        return path
    if kind == "duckdb":
        return importlib.import_module("duckdb").connect().from_arrow(table)
    if kind in ("pandas", "polars", "lazy"):
        frame = pytest.importorskip("polars" if kind == "lazy" else kind).DataFrame(columns)
        return frame.lazy() if kind == "lazy" else frame
    return columns


def draw(rng, names, mark):
    """Draw targets and predictions, some of which are no answer."""
    size = int(rng.integers(10, 80))
    target = rng.choice(names, size)
    target[: len(names)] = names
    preds = np.where(rng.random(size) < 0.4, rng.choice(names, size), target).astype(object)
    preds[rng.random(size) < rng.choice([0.05, 0.3, 0.9])] = mark
    return target, preds


def reported(kind, path, target, preds, **arguments):
    """Report predictions from a source of one kind."""
    if kind in ("arrays", "lists"):
        held = (np.array(preds, dtype=object), target) if kind == "arrays" else (list(preds), target.tolist())
        return Predictions(target=held[1], **arguments).report(held[0])
    source = source_of(kind, path, {"label": target.tolist(), "pred": list(preds)})
    return Predictions(source, target="label", **arguments).report("pred")


@pytest.mark.default_cases("csv", "mapping", "polars")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", SOURCES)
def test_several_classes_have_the_values_of_scikit_learn_with_labels(kind, tmp_path):
    """1,000 random cases, 100 of each source: texts and integers, marks of any kind, missing predictions."""
    rng = np.random.default_rng(SOURCES.index(kind))
    for case in range(100):
        names = np.array(["cat", "dog", "emu", "fox"][: rng.integers(3, 5)])
        mark = [None, "INVALID", "I cannot say"][case % 3]
        target, preds = draw(rng, names, mark)
        result = reported(kind, tmp_path / f"{case}", target, preds, no_answer=mark)
        texts = np.array(["nothing" if each is None else each for each in preds])
        for name, peer in OF_SKLEARN.items():
            expected = peer(target, texts, labels=names, average="macro", zero_division=0)
            assert float(result.values[name]) == pytest.approx(expected, abs=1e-6), (case, name)
            each = peer(target, texts, labels=names, average=None, zero_division=0)
            for at, of_class in zip(names, each, strict=True) if name != "f1" else ():
                assert float(result.values[f"{name}/{at}"].nan_to_num(0)) == pytest.approx(of_class, abs=1e-6)
        right = sklearn.metrics.accuracy_score(target, texts)
        assert float(result["accuracy"]) == pytest.approx(right, abs=1e-6)


def values_by_hand(counts):
    """Return the values of two classes by exact fractions, of counts ``[[n0, n1, none], [p0, p1, none]]``."""
    (tn, fp, quiet), (fn, tp, silent) = counts
    positives, negatives = fn + tp + silent, tn + fp + quiet
    recall, specificity = Fraction(tp, positives), Fraction(tn, negatives)
    found = {"recall": recall, "specificity": specificity, "accuracy": Fraction(tp + tn, positives + negatives)}
    found["precision"] = Fraction(tp, tp + fp) if tp + fp else Fraction(0)
    found["f1"] = Fraction(2 * tp, positives + tp + fp)
    found["balanced_accuracy"] = (recall + specificity) / 2
    found["gmean"] = float(recall * specificity) ** 0.5
    iam = Fraction(0)
    for right, actual, predicted in ((tn, negatives, tn + fn), (tp, positives, tp + fp)):
        wrong = max(actual - right, predicted - right)
        iam += Fraction(right - wrong, max(actual, predicted)) / 2
    return found | {"iam": iam}


@pytest.mark.parametrize("names", [(0, 1), (False, True), ("ok", "fraud")])
def test_two_classes_have_the_values_of_exact_fractions(names, tmp_path):
    """An unanswered positive is a miss, and an unanswered negative is no true negative."""
    rng = np.random.default_rng(1)
    positive = {"positive": "fraud"} if "fraud" in names else {}
    for case in range(60):
        counts = rng.integers([[1, 0, 0], [0, 1, 0]], rng.choice([3, 30], (2, 3)) + 1)
        target = np.repeat([names[0], names[1]], counts.sum(1))
        preds = [
            each for row in counts for name, number in zip((*names, None), row, strict=True) for each in [name] * number
        ]
        columns = {"label": target.tolist(), "pred": preds}
        data = Predictions(columns, target="label", no_answer=None, **positive)
        expected = values_by_hand(counts.tolist())
        result = data.report("pred", measures=list(expected))
        for name, value in expected.items():
            assert float(result[name]) == pytest.approx(float(value), abs=1e-6), (case, name)
        answered = counts[:, :2].sum()
        note = f"answered {answered / counts.sum():.3f}; right among the answered {counts.trace() / answered:.3f}"
        assert note in result.table().notes
    result.to_json(tmp_path / "result.json")
    opened = imbtorch.open_result(tmp_path / "result.json")
    assert {name: float(each) for name, each in opened.values.items()} == pytest.approx(
        {name: float(each) for name, each in result.values.items()}, nan_ok=True
    )


def test_shares_of_the_population_are_those_of_the_classes():
    """Of classes alone, by name or in their order: recalls stay, and precision is by hand."""
    target, preds = ["a"] * 8 + ["b"] * 4, ["a"] * 5 + ["b", None, None] + ["b"] * 3 + [None]
    data = Predictions({"y": target, "p": preds}, target="y", no_answer=None)
    by_name = data.report("p", prevalence={"a": 0.9, "b": 0.1})
    in_order = data.report("p", prevalence=[0.9, 0.1])
    assert float(by_name["precision/b"]) == pytest.approx(0.1 * 0.75 / (0.1 * 0.75 + 0.9 / 8))
    assert float(in_order["precision/b"]) == float(by_name["precision/b"])


def test_missing_targets_are_no_answers():
    columns = {"y": ["a", "b", None, "a"], "p": ["a", None, "b", "b"]}
    with pytest.raises(ValueError, match="target has no value in row 2"):
        Predictions(columns, target="y", no_answer=None).report("p")
    dropped = Predictions(columns, target="y", no_answer=None, missing="drop").report("p")
    assert dropped.counts.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]


MANY = {"a": [0, 1, 1], "b": [1, 1, 0], "c": [0, 1, 0], "d": [1, 0, 0]}
LABELS = {"y": ["a", "b", "c", "a"], "p": ["a", "INVALID", "c", "b"], "s": [0.5] * 4, "z": [0, 1, 0, 1]}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda data: data.report("p", measures=["mcc"]), r"measures of predictions that may be no answer are .*'mcc'"),
        (lambda data: data.report("p", measures=["specificity"]), "got .'specificity'."),
        (lambda data: data.report(scores=["s", "s", "s"]), "no_answer is for predicted classes"),
        (lambda data: data.compare("p", "p", "f1"), "a comparison takes no no_answer="),
        (
            lambda data: Predictions(MANY, target=["a", "b"], no_answer="x").report(["c", "d"]),
            "and labels always",
        ),
        (lambda data: Predictions(LABELS, target="z").report({"z": "s"}), "as for labels, but target names one"),
    ],
)
def test_what_has_no_answer_to_leave_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call(Predictions(LABELS, target="y", no_answer="INVALID"))


def test_errors_name_the_remedy_and_marks_that_nothing_holds_are_silent(capsys, tmp_path):
    with pytest.raises(ValueError, match=r"only preds holds 'INVALID' in row 1 .*; no_answer='INVALID' counts such"):
        Predictions(LABELS, target="y", ignore="INVALID").report("p")
    with pytest.raises(ValueError, match="if it is no answer, a report takes no_answer='INVALID'"):
        Predictions(LABELS, target="y").report("p")
    silent = {"y": ["a", "b", "a"], "p": ["a", None, "a"]}
    with pytest.raises(ValueError, match="no_answer=None counts them as misses"):
        Predictions(silent, target="y").report("p")
    with pytest.raises(ValueError, match="a report takes no_answer=None"):
        Predictions(silent, target="y", missing="class").report("p")
    plain = {"y": LABELS["y"], "p": ["a", "b", "c", "b"]}
    assert Predictions(plain, target="y", ignore=-100, no_answer="INVALID").report("p").counts.trace() == 3
    path = source_of("csv", tmp_path / "x", {"y": LABELS["y"], "p": LABELS["p"]})
    words = ["report", str(path), "--target", "y", "--preds", "p"]
    assert command_line.main(words) == 2
    assert "--no-answer INVALID" in capsys.readouterr().err
    assert command_line.main([*words, "--no-answer", "INVALID", "--no-answer", "refused"]) == 0
    assert "answered 0.750; right among the answered 0.667" in capsys.readouterr().out


def test_values_with_commas_are_named_on_the_command_line(tmp_path, capsys):
    """The remedy of the error works as it stands; the F1 is that of 1 hit, 1 miss and no false alarm."""
    rows = '1,1\n0,"I\'m sorry, but I can\'t"\n1,0\n0,no\n0,0\n"skip, ask",1\n'
    (tmp_path / "a.csv").write_text(f"label,pred\n{rows}", encoding="utf-8")
    words = ["report", str(tmp_path / "a.csv"), "--target", "label", "--preds", "pred", "--measures", "f1"]
    words += ["--ignore", "skip, ask", "--no-answer", "no"]
    assert command_line.main(words) == 2
    advised = shlex.split(re.search("--no-answer [^;]*", capsys.readouterr().err)[0])
    assert advised == ["--no-answer", "I'm sorry, but I can't"]
    assert command_line.main([*words, *advised, "--csv"]) == 0
    out = capsys.readouterr().out
    assert float(re.search("measure,f1,.*?([0-9.]+)$", out, re.M)[1]) == pytest.approx(2 / 3, abs=1e-6)
    assert command_line.main([*words, *advised]) == 0
    assert "rows left out because ignore names their target: 1" in capsys.readouterr().out


def test_names_with_commas_and_equal_signs_have_shares():
    """A name ends at the last = before its number; a number ends at the next comma."""
    assert parser.shares_in("emu, rare=1,a=b=.5") == {"emu, rare": 1, "a=b": 0.5}
    assert parser.plan_in("no, never=3,yes=4") == {"no, never": 3, "yes": 4}
    assert parser.parsed(["report", "x", "--target=t", "--preds=p", "--ignore=--", "--ignore=-1"]).ignore == [
        "--",
        "-1",
    ]
