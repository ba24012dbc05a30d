"""Thresholds, adjustments and comparisons of `Predictions` (`saved.py`), against those of a training and peers."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from rooms import command_line, compare, digest_of

import imbtorch
from imbtorch import Predictions
from imbtorch.statistics import OperatingPoint, Verdict, paired_compare

pyarrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
pytest.importorskip("duckdb", reason="needs imbtorch[files]")

RNG = np.random.default_rng(21)
SIZE = 2000
Y = (RNG.random(SIZE) < 0.08).astype(int)
OLD, NEW = (1 / (1 + np.exp(3 - shift * Y - RNG.normal(size=SIZE))) for shift in (1.5, 2.5))
CUSTOMER = RNG.integers(400, size=SIZE)
CLASSES = np.array(["cat", "dog", "emu"])
T = RNG.choice(3, SIZE, p=[0.8, 0.15, 0.05])
P = RNG.dirichlet([1, 1, 1], SIZE) + 0.5 * np.eye(3)[T] + [0.6, 0.2, 0]
P /= P.sum(1, keepdims=True)
COLUMNS = {"fraud": Y, "old": OLD, "new": NEW, "customer": CUSTOMER, "label": CLASSES[T]}
COLUMNS |= {f"p_{name}": P[:, at] for at, name in enumerate(CLASSES)}


def seed():
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    importlib.import_module("pyarrow.csv").write_csv(pyarrow.table(COLUMNS), path)
    return path


@pytest.fixture(params=["csv", "mapping", "arrow", "arrays"])
def data(request, path):
    """Predictions of two classes, and the names of their columns or the columns."""
    if request.param == "arrays":
        return Predictions(target=Y, cluster=CUSTOMER), COLUMNS
    source = {"csv": path, "mapping": COLUMNS, "arrow": pyarrow.table(COLUMNS)}[request.param]
    return Predictions(source, target="fraud", cluster="customer"), {name: name for name in COLUMNS}


# --- thresholds and adjustments ---------------------------------------------------------------------------------------


def test_weighted_points_say_that_their_values_are_of_the_weight(tmp_path):
    """Alerts are NumPy's share of the weight, which is not that of the rows; text, table and file say so."""
    weight = np.where(NEW > 0.3, 5.0, 0.5)
    data = Predictions(COLUMNS | {"w": weight}, target="fraud", weight="w")
    point = data.thresholds("new", "f1").best()
    flagged = point.threshold < NEW
    assert point.alerts == pytest.approx(weight[flagged].sum() / weight.sum())
    assert abs(point.alerts - flagged.mean()) > 0.05
    point.to_json(tmp_path / "point.json")
    assert json.loads((tmp_path / "point.json").read_text(encoding="utf-8"))["weighted"] is True
    opened = imbtorch.open_result(tmp_path / "point.json")
    assert opened.weighted
    assert "not of the rows" in " ".join(str(opened).split())
    assert any(note.startswith("weighted: ") for note in data.thresholds("new", "f1").table().notes)
    plain = Predictions(COLUMNS, target="fraud").thresholds("new", "f1")
    assert not plain.best().weighted
    assert "weight" not in str(plain.table()) + str(plain.best())


def test_a_sweep_says_that_groups_are_pooled_and_names_the_positive_class():
    """The share of alerts is that of all rows; the row of the table is the class that `positive` names."""
    columns = COLUMNS | {"verdict": np.where(Y == 1, "fraud", "ok"), "day": CUSTOMER % 4}
    result = Predictions(columns, target="verdict", positive="fraud", group="day").thresholds("new", "f1", alerts=0.02)
    assert (result.best().threshold < NEW).mean() == result.best().alerts <= 0.02
    assert "budget within each group" in result.problems["groups"]
    assert result.problems["groups"] in result.table().notes
    assert list(result.table()["class"]) == ["fraud"]
    assert "groups" not in Predictions(columns, target="fraud").thresholds("new", "f1", alerts=0.02).problems


def test_a_point_names_the_column_of_its_scores(tmp_path):
    """A report of another column says so, also from a file; arrays have no names."""
    data = Predictions(COLUMNS, target="fraud")
    point = data.thresholds("new", "f1").best()
    point.to_json(tmp_path / "point.json")
    for each in (point, imbtorch.open_result(tmp_path / "point.json")):
        assert each.scores == "new"
        told = [note for note in data.report(scores="old", threshold=each).table().notes if "chosen for" in note]
        assert len(told) == 1
        assert "'new'" in told[0]
        assert "'old'" in told[0]
        assert "chosen for" not in str(data.report(scores="new", threshold=each).table())
    assert Predictions(target=Y).thresholds(NEW, "f1").best().scores == ""


def test_thresholds_are_those_of_a_sweep_of_the_training(data):
    """The best F1 over all thresholds is scikit-learn's; everything else is the sweep of the same tensors."""
    found, columns = data[0], data[1]
    result = found.thresholds(columns["new"], "f1", also=["auc"])
    sweep = imbtorch.ThresholdSweep("f1", also=["auc"], clusters=True)
    sweep.update(torch.from_numpy(NEW), torch.from_numpy(Y), cluster=torch.from_numpy(CUSTOMER))
    table = result.table()  # of CSV it also says that classes were read from text
    assert str(replace(table, notes=table.notes[:1])) == str(sweep.result().table())
    best, point = result.best(), sweep.best()
    assert (best.threshold, best.value) == (point.threshold, point.value)
    assert best.value == pytest.approx(sklearn.metrics.f1_score(Y, best.threshold < NEW))
    exact = [sklearn.metrics.f1_score(Y, each < NEW) for each in np.unique(NEW)]
    assert best.value == pytest.approx(max(exact), abs=0.01)
    assert best.corrected.low == point.corrected.low
    assert result.best(alerts=0.02).alerts <= 0.02
    assert result.best(costs=[[0, 1], [50, 0]]).recall > best.recall
    assert result.rule.predict(NEW).tolist() == (best.threshold < NEW).astype(int).tolist()
    exported = torch.export.export(result.rule, (torch.from_numpy(NEW),)).module()
    assert exported(torch.from_numpy(NEW)).tolist() == result.rule.predict(NEW).tolist()


def test_thresholds_of_labels_and_of_each_class(path):
    each = Predictions(path, target="label").thresholds("p_*", "f1")
    sweep = imbtorch.ThresholdSweep("f1", task="multiclass", num_classes=3)
    sweep.update(torch.from_numpy(P), torch.from_numpy(T))
    for name, point in zip(CLASSES, sweep.best().values(), strict=True):
        assert each.best()[name].threshold == point.threshold
    target = {name: (at == T).astype(int) for at, name in enumerate(CLASSES)}
    labels = Predictions(target=target, task="multilabel")
    scores = {name: P[:, at] for at, name in enumerate(CLASSES)}
    assert list(labels.thresholds(scores, "f1").best()) == list(CLASSES)


def test_weights_and_shares_are_those_of_a_sweep(path):
    weight = RNG.random(SIZE)
    result = Predictions(target=Y, weight=weight).thresholds(NEW, "precision", prevalence={"0": 0.99, 1: 0.01})
    point = result.best()
    right = sklearn.metrics.recall_score(Y, point.threshold < NEW, sample_weight=weight)
    assert point.recall == pytest.approx(right, abs=1e-6)
    false = 1 - sklearn.metrics.recall_score(1 - Y, point.threshold >= NEW, sample_weight=weight)
    assert point.precision == pytest.approx(0.01 * right / (0.01 * right + 0.99 * false), abs=1e-6)
    frequency = RNG.integers(1, 4, SIZE)
    counted = Predictions(target=Y, frequency=frequency).thresholds(NEW, "f1").best()
    repeated = Predictions(target=Y.repeat(frequency)).thresholds(NEW.repeat(frequency), "f1").best()
    assert (counted.threshold, counted.value) == (repeated.threshold, repeated.value)


def test_adjustments_are_those_of_a_sweep_of_the_training(path):
    prior = {"dog": 150, "cat": 800, "emu": 50}
    result = Predictions(path, target="label").adjustments("p_*", "balanced_accuracy", prior)
    sweep = imbtorch.LogitAdjustmentSweep("balanced_accuracy", [800, 150, 50])
    sweep.update(torch.from_numpy(P), torch.from_numpy(T))
    assert result.tau == sweep.result().tau
    gain, peer = result.gain(generator=seed()), sweep.gain(generator=seed())
    assert (gain.estimate, gain.low) == (peer.estimate, peer.low)
    preds = (np.log(P) - result.tau * np.log(np.array([800, 150, 50]) / 1000)).argmax(1)
    chosen = sklearn.metrics.balanced_accuracy_score(T, preds)
    assert chosen > sklearn.metrics.balanced_accuracy_score(T, P.argmax(1)) + 0.05
    assert result.best().value == pytest.approx(chosen, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: Predictions(COLUMNS, target="fraud").adjustments("new", "iam", [9, 1]),
            "needs? scores of both classes",
        ),
        (lambda: Predictions(COLUMNS, target="fraud", weight="old").adjustments("new", "iam", [9, 1]), "unweighted"),
        (lambda: Predictions(COLUMNS, target="label").thresholds("new", "f1"), "one score for each sample"),
        (lambda: Predictions(COLUMNS, target="fraud").report(), "preds or scores must be given"),
        (lambda: Predictions(COLUMNS, target="fraud", weight="old", frequency="new"), "exclude each other"),
        (lambda: Predictions(COLUMNS, target="fraud", missing="leave"), "missing must be"),
    ],
)
def test_what_does_not_fit_is_an_error(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def test_a_misspelt_argument_gets_its_suggestion():
    for call in (Predictions, imbtorch.report):
        with pytest.raises(TypeError, match="no argument 'postive'; did you mean 'positive'"):
            call(COLUMNS, target="fraud", postive=1)


def test_a_file_that_changed_between_two_calls_is_an_error(tmp_path):
    """By its size or its time."""
    file = tmp_path / "x.csv"
    file.write_text("y,p\n0,0\n1,1\n", encoding="utf-8")
    found = Predictions(file, target="y")
    assert found.report("p")["accuracy"] == found.report("p")["accuracy"] == 1
    stamp = os.stat(file)
    file.write_text("y,p\n0,0\n1,0\n", encoding="utf-8")  # of the same size
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 10))
    for call in (found.report, lambda name: found.compare(name, name, "accuracy", other=found)):
        with pytest.raises(ValueError, match=r"x\.csv changed since it was read; make new Predictions of it"):
            call("p")
    assert Predictions(file, target="y").report("p")["accuracy"] == 0.5


def test_only_the_named_columns_are_read(tmp_path):
    columns = {"y": [0, 1], "p": [0, 1], "broken": [b"\xff\xfe", b"\x00"]}
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    assert Predictions(tmp_path / "x.parquet", target="y").report("p")["accuracy"] == 1


# --- operating points -------------------------------------------------------------------------------------------------


def test_a_point_opens_again_and_decides_as_it_did(path, tmp_path):
    data = Predictions(path, target="fraud")
    point = data.thresholds("new", "f1").best(at_least={"precision": 0.3}, alerts=0.1, sure=None)
    point.to_json(tmp_path / "point.json")
    opened = imbtorch.open_result(tmp_path / "point.json")
    assert isinstance(opened, OperatingPoint)
    assert str(opened) == str(point)
    assert (opened.measure, dict(opened.limits)) == ("f1", {"precision": 0.3, "alerts": 0.1})
    assert opened.counts.tolist() == point.counts.tolist()
    assert (opened.corrected.estimate, opened.corrected.low) == (point.corrected.estimate, point.corrected.low)
    result = data.report(scores="new", threshold=opened)
    assert result.counts.tolist() == sklearn.metrics.confusion_matrix(Y, opened.threshold < NEW).tolist()
    assert float(result["f1"]) == pytest.approx(opened.value)
    with pytest.raises(ValueError, match="chosen for probabilities, but the scores are logits"):
        data.report(scores="new", threshold=opened, logits=True)


def test_a_point_of_logits_is_for_logits(path):
    logits = np.log(NEW / (1 - NEW))
    data = Predictions(target=Y)
    point = data.thresholds(logits, "f1", logits=True).best()
    counts = data.report(scores=logits, threshold=point, logits=True).counts
    assert counts.tolist() == point.counts.long().tolist()
    with pytest.raises(ValueError, match="chosen for logits, but the scores are probabilities"):
        data.report(scores=NEW, threshold=point)


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 2.0},
        {"threshold": "0.5"},
        {"counts": [[1, 2]]},
        {"counts": [[1, 2], [-3, 4]]},
        {"logits": "no"},
        {"limits": {"f1": "high"}},
        {"corrected": {"estimate": 1.0}},
        {"more": 1},
    ],
)
def test_a_damaged_point_is_an_error(change, path, tmp_path):
    """Also with a digest that fits what it was changed to."""
    file = tmp_path / "point.json"
    Predictions(path, target="fraud").thresholds("new", "f1").best().to_json(file)
    data = json.loads(file.read_text(encoding="utf-8")) | change
    for content in (data, data | {"sha256": digest_of(data)}):
        file.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ValueError, match="is not complete or was changed"):
            imbtorch.open_result(file)


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_each_model_has_a_threshold_of_its_own(data):
    found, columns = data
    compared = found.compare(columns["old"], columns["new"], "recall", threshold=[0.1, 0.4], generator=seed())
    preds = [torch.from_numpy((scores > cut).astype(int)) for scores, cut in ((NEW, 0.4), (OLD, 0.1))]
    expected = paired_compare(
        "recall", *preds, torch.from_numpy(Y), 2, cluster=torch.from_numpy(CUSTOMER), generator=seed()
    )
    for name in ("estimate", "low", "high"):
        assert getattr(compared.difference, name).item() == pytest.approx(getattr(expected.difference, name).item())
    shares = [100 * float((scores > cut).mean()) for scores, cut in ((OLD, 0.1), (NEW, 0.4))]
    assert f"predicted positive: old {shares[0]:.3g}% above 0.1, new {shares[1]:.3g}% above 0.4" in str(compared)
    assert "one that was chosen on these rows makes its model look better" in str(compared)
    one = found.compare(columns["old"], columns["new"], "recall", threshold=0.4, generator=seed())
    assert "chosen on these rows" not in str(one)


@pytest.mark.parametrize("alerts", [0.005, 0.02, 0.3])
def test_alerts_give_each_model_the_threshold_of_the_same_share(data, alerts):
    found, columns = data
    compared = found.compare(columns["old"], columns["new"], "precision", alerts=alerts)
    flagged = [np.argsort(-scores)[: int(alerts * SIZE)] for scores in (OLD, NEW)]
    gain = Y[flagged[1]].mean() - Y[flagged[0]].mean()
    assert compared.difference.estimate.item() == pytest.approx(gain)


def test_samples_with_equal_scores_are_flagged_together():
    scores = np.array([0.9, 0.8, 0.8, 0.8, 0.1, 0.05, 0.02, 0.01, 0.0, 0.0])
    for alerts, number in ((0.1, 1), (0.2, 1), (0.3, 1), (0.4, 4), (0.45, 4), (0.7, 7), (0.9, 8)):
        assert (scores > compare.at_alerts(scores, alerts)).sum() == number
    data = Predictions({"y": [1, 0] * 5, "a": scores, "b": np.arange(10) / 10}, target="y")
    assert data.compare("a", "b", "recall", alerts=0.4).difference.estimate.item() == pytest.approx(2 / 5 - 2 / 5)
    with pytest.raises(
        ValueError, match=r"alerts=0\.3 becomes 0\.1 for old and 0\.3 for new, since samples with equal"
    ):
        data.compare("a", "b", "recall", alerts=0.3)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"alerts": 1}, r"alerts must lie in \(0, 1\)"),
        ({"alerts": 0.1, "threshold": 0.5}, "both choose thresholds"),
        ({"threshold": [0.1, 0.2, 0.3]}, "one number or two"),
        ({"measure": "auc", "alerts": 0.1}, "is an area over all thresholds"),
        ({}, "if these are scores, .* compare them with threshold= or alerts="),
    ],
)
def test_thresholds_that_cannot_be_are_errors(more, text):
    with pytest.raises(ValueError, match=text):
        Predictions(COLUMNS, target="fraud").compare("old", "new", **{"measure": "f1", **more})


def test_a_margin_gives_the_verdict_of_the_command(path, capsys):
    verdict = Predictions(path, target="fraud").compare("old", "new", "f1", alerts=0.05, margin=0.01)
    assert isinstance(verdict, Verdict)
    words = ["compare", str(path), "--target", "fraud", "--scores", "old", "new", "--alerts", ".05"]
    code = command_line.main([*words, "--measure", "f1", "--margin", ".01"])
    assert capsys.readouterr().out == f"{verdict}\n"
    assert verdict.code == code == 0
    assert verdict.interval.level == 0.9
    back = Predictions(path, target="fraud").compare("new", "old", "f1", alerts=0.05, margin=0.01)
    assert back.code == 1
    assert float(back.interval.estimate) == pytest.approx(-float(verdict.interval.estimate))


def test_two_sources_are_two_predictions(tmp_path, path):
    """Paired by their order or by id; the second one may have columns of other names and no targets."""
    ids = np.array([f"c{at}" for at in range(SIZE)])
    order = RNG.permutation(SIZE)
    columns = {"id": ids, "fraud": Y, "flag": (OLD > 0.2).astype(int)}
    other = {"id": ids[order], "score": (NEW[order] > 0.2).astype(int)}
    gain = sklearn.metrics.f1_score(Y, NEW > 0.2) - sklearn.metrics.f1_score(Y, OLD > 0.2)
    found = Predictions(columns, target="fraud").compare(
        "flag", "score", "f1", other=Predictions(other, target="truth"), id="id"
    )
    assert found.difference.estimate.item() == pytest.approx(gain)
    straight = {"truth": Y, "score": (NEW > 0.2).astype(int)}
    found = Predictions(columns, target="fraud").compare(
        "flag", "score", "f1", other=Predictions(straight, target="truth")
    )
    assert found.difference.estimate.item() == pytest.approx(gain)


# --- command line -----------------------------------------------------------------------------------------------------


def run(*words):
    return command_line.main(list(map(str, words)))


def test_the_command_chooses_a_threshold_and_report_uses_it(path, tmp_path, capsys):
    point = tmp_path / "point.json"
    words = ["thresholds", path, "--target", "fraud", "--scores", "new", "--measure", "f1"]
    assert run(*words, "--at-least", "recall=.8", "--json", point) == 0
    shown = capsys.readouterr().out
    best = Predictions(path, target="fraud").thresholds("new", "f1").best(at_least={"recall": 0.8})
    assert "value: f1 at the threshold chosen with recall >= 0.8" in shown
    assert f"\n\n{best}\ncorrected for the choice: " in shown
    assert imbtorch.open_result(point).threshold == best.threshold
    assert run("report", path, "--target", "fraud", "--scores", "new", "--threshold", point) == 0
    assert f"{sklearn.metrics.f1_score(Y, best.threshold < NEW):.3f}" in capsys.readouterr().out
    result = tmp_path / "result.json"
    assert run("report", path, "--target", "fraud", "--scores", "new", "--json", result) == 0
    assert run("report", path, "--target", "fraud", "--scores", "new", "--threshold", result) == 2
    assert "holds no operating point" in capsys.readouterr().err


def test_the_command_takes_costs_alerts_calibration_and_draws(path, tmp_path, capsys):
    words = ["thresholds", path, "--target", "fraud", "--scores", "new", "--measure", "f1"]
    assert run(*words, "--costs", "miss=50,false_alarm=1", "--calibration", "--plot", tmp_path / "x.png") == 0
    shown = capsys.readouterr().out
    result = Predictions(path, target="fraud").thresholds("new", "f1")
    assert str(result.best(costs=[[0, 1], [50, 0]])) in shown
    assert str(result.calibration()) in shown
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert run(*words, "--alerts", ".05", "--sure", ".9", "--at-least", "precision=.2") == 0
    assert "promised at sure=0.9" in " ".join(capsys.readouterr().out.split())
    assert run(*words, "--at-least", "recall=.99,precision=.99") == 2
    assert "error" in capsys.readouterr().err
    for old, new in (("1", "miss=50,false_alarm=1"), ("2,30", "miss=30,false_alarm=2")):  # false alarm and miss, in 0.7
        assert run(*words, "--costs", old) == 2
        assert f"must name the costs, as in {new}, got '{old}'" in capsys.readouterr().err
    assert run(*words, "--costs", "mis=1") == 2
    assert "costs must be one of 'miss', 'false_alarm', 'investigation', got 'mis'" in capsys.readouterr().err
    assert run(*words, "--json", path) == 2
    assert "which is read" in capsys.readouterr().err


def test_a_report_at_a_saved_point_says_whether_its_limits_hold_on_these_rows(tmp_path):
    generator = torch.Generator().manual_seed(1)
    target = (torch.rand(6000, generator=generator) < 0.05).long()
    scores = (torch.randn(6000, generator=generator, dtype=torch.float64) + 2 * target - 2).sigmoid()
    scores[3000:] = (scores[3000:] * 1.3).clamp(max=0.999)  # more alerts than on the rows that choose
    chose, new = (
        Predictions({"y": target[part].tolist(), "score": scores[part].tolist()}, target="y")
        for part in (slice(3000), slice(3000, None))
    )
    found = chose.thresholds("score", "f1").best(alerts=0.02, at_least={"recall": 0.1}, sure=0.9)
    found.to_json(tmp_path / "point.json")
    point = imbtorch.open_result(tmp_path / "point.json")
    flagged = scores > point.threshold
    for data, part in ((chose, slice(3000)), (new, slice(3000, None))):
        notes = data.report(scores="score", threshold=point).table().notes
        alerts, recall = flagged[part].double().mean().item(), flagged[part][target[part] == 1].double().mean().item()
        said = [note for note in notes if "limit of" in note]
        assert said == [
            f"recall {recall:.4g}, {'which keeps' if recall >= 0.1 else 'below'} the limit of 0.1",
            f"alerts {alerts:.4g}, {'which keeps' if alerts <= 0.02 else 'above'} the limit of 0.02 "
            "(promised at sure=0.9 for new samples like the 3000 that chose it)",
        ]
        told = [note for note in notes if "probably chosen on these rows" in note]
        assert told == [
            f"probably chosen on these rows, so that f1 is too high on average; corrected: {found.corrected}"
        ] * (data is chose)
    assert "above the limit" in str(said)
    assert not [note for note in new.report(scores="score", threshold=0.3).table().notes if "limit" in note]


PROGRAM = """
import sys
sys.argv = ["imbtorch", *sys.argv[2:]]
sys.path.insert(0, {folder!r})
import entry_point
code = entry_point.command_line()
print(code, "torch" in sys.modules, "imbtorch" in sys.modules)
"""


@pytest.mark.parametrize("words", ["--help", "--version", "thresholds --help", "report x", "nothing", "report --tresh"])
def test_help_and_errors_of_options_need_no_torch(words):
    """A new process runs the module that the console script loads."""
    folder = str(Path(imbtorch.__file__).parent / "lightning")
    program = [sys.executable, "-c", PROGRAM.format(folder=folder), "-", *words.split()]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    code = 0 if "help" in words or "version" in words else 2
    assert done.stdout.splitlines()[-1] == f"{code} False False"
    if words == "--version":
        assert done.stdout.splitlines()[0] == f"imbtorch {imbtorch.__version__}"


def test_alerts_are_covered_in_the_simulation_that_the_page_shows():
    """Most of 45 cells of 400 sets hold the 95% that is promised; none is below what chance explains."""
    rows = (
        (Path(__file__).parents[2] / "examples" / "simulated" / "alerts.csv").read_text(encoding="utf-8").splitlines()
    )
    names, *cells = [row.split(",") for row in rows]
    least = scipy.stats.binom.ppf(0.001, 400, 0.95) / 400
    for name in ("recall", "precision", "F1"):
        shares = [float(cell[names.index(f"covered {name}")]) for cell in cells]
        assert min(shares) >= least
