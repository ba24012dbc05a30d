"""Files that 0.7.0 wrote: results, points, plans, states and a checkpoint open with the values of scikit-learn."""

import csv
import json
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from scipy.stats import hypergeom
from sklearn import metrics

import imbtorch

FOLDER = Path(__file__).parent / "saved_by_0_7"
NAMES = ["cat", "dog", "emu"]
TARGET = np.array([0, 1, 2, 0, 0, 1, 0, 2, 0, 1, 0, 0] * 4)
PREDS = np.array([0, 1, 2, 0, 1, 1, 0, 0, 0, 2, 0, 0] * 3 + [0, 1, 1, 0, 0, 0, 2, 2, 0, 1, 0, 1])
GROUP = np.arange(48) % 2
SCORES = np.array([0.05, 0.9, 0.75, 0.1, 0.6, 0.8, 0.2, 0.3, 0.15, 0.45, 0.25, 0.35] * 4)
POSITIVE = (TARGET == 1).astype(int)
LABELS = np.stack((TARGET == 1, TARGET == 2), 1).astype(int)
LABEL_SCORES = np.stack((SCORES, SCORES[::-1]), 1)
WEIGHT = np.linspace(0.5, 2, 48)
OF_TWO = {
    "f1": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
}


def opened(name):
    return imbtorch.open_result(FOLDER / f"{name}.json")


def values_as_written(name):
    """Return the values, such as ends of intervals, that the text of a file holds."""
    values = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["values"]
    return {value["name"]: value["value"] for value in values}


def check_two_classes(result, target, preds, weight=None):
    for name, peer in OF_TWO.items():
        assert result[name].item() == pytest.approx(peer(target, preds, sample_weight=weight)), name


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_of_two_classes_open():
    result = opened("binary")
    check_two_classes(result, POSITIVE, SCORES > 0.5)
    assert (result.counts.numpy() == metrics.confusion_matrix(POSITIVE, SCORES > 0.5)).all()
    for name, value in values_as_written("binary").items():
        assert result[name].item() == pytest.approx(value)

    result = opened("scores")
    check_two_classes(result, POSITIVE, SCORES > 0.4)
    assert result["auc"].item() == pytest.approx(metrics.roc_auc_score(POSITIVE, SCORES))
    assert result["average_precision"].item() == pytest.approx(metrics.average_precision_score(POSITIVE, SCORES))
    assert result["auc_low"] < result["auc"] < result["auc_high"]

    result = opened("weighted")
    check_two_classes(result, POSITIVE, SCORES > 0.4, WEIGHT)
    assert result["auc"].item() == pytest.approx(metrics.roc_auc_score(POSITIVE, SCORES, sample_weight=WEIGHT))

    shares = np.where(POSITIVE == 1, 0.05 / POSITIVE.mean(), 0.95 / (1 - POSITIVE.mean()))
    check_two_classes(opened("prevalence"), POSITIVE, SCORES > 0.4, shares)


def test_results_of_several_classes_open():
    recalls = metrics.recall_score(TARGET, PREDS, average=None)
    result = opened("groups_and_clusters")
    assert [result[f"recall/{name}"].item() for name in NAMES] == pytest.approx(recalls)
    for group, name in enumerate(("north", "south")):
        target, right = TARGET[group == GROUP], (TARGET == PREDS)[group == GROUP]
        own = np.mean([right[each == target].mean() for each in np.unique(target)])
        assert result[f"balanced_accuracy/{name}"].item() == pytest.approx(own)
    assert "cluster bootstrap" in str(result.interval("iam"))
    for name, value in values_as_written("groups_and_clusters").items():
        assert result[name].item() == pytest.approx(value)

    result = opened("margins")
    assert result["recall"].item() == pytest.approx(recalls.mean())
    assert result["recall/pets"].item() == pytest.approx(recalls[:2].mean())

    answered = np.arange(48) % 10 != 0
    result = opened("no_answer")
    right = [(answered & (TARGET == PREDS))[each == TARGET].mean() for each in range(3)]
    assert [result[f"recall/{name}"].item() for name in NAMES] == pytest.approx(right)


def test_results_of_labels_open():
    result = opened("multilabel")
    for at, name in enumerate(("dog", "emu")):
        recall = metrics.recall_score(LABELS[:, at], LABEL_SCORES[:, at] > 0.5)
        assert result[f"recall/{name}"].item() == pytest.approx(recall)
        area = metrics.roc_auc_score(LABELS[:, at], LABEL_SCORES[:, at])
        assert result[f"auc/{name}"].item() == pytest.approx(area)


def test_results_of_shards_merge():
    merged = imbtorch.merge_results(FOLDER / "shard_one.json", FOLDER / "shard_two.json")
    assert (merged.counts.numpy() == metrics.confusion_matrix(TARGET, PREDS)).all()


# --- operating points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target", "scores", "weight", "measure"),
    [
        ("point", POSITIVE, SCORES, None, "f1"),
        ("point_logits", POSITIVE, SCORES, None, "f1"),
        ("point_sure", POSITIVE, SCORES, None, "precision"),  # of 20 times these samples
        ("point_weighted", POSITIVE, SCORES, WEIGHT, "balanced_accuracy"),
        ("point_of_dog", LABELS[:, 0], LABEL_SCORES[:, 0], None, "f1"),
        ("point_of_emu", LABELS[:, 1], LABEL_SCORES[:, 1], None, "f1"),
    ],
)
def test_operating_points_open(name, target, scores, weight, measure):
    point = opened(name)
    preds = scores > point.threshold
    expected = [OF_TWO[key](target, preds, sample_weight=weight) for key in (measure, "recall", "precision")]
    assert [point.value, point.recall, point.precision] == pytest.approx(expected)
    assert point.alerts == pytest.approx(np.average(preds, weights=weight))
    assert (point.measure, point.logits) == (measure, name == "point_logits")
    if name == "point_sure":
        assert (point.sure, point.limits, point.recall >= 0.5) == (0.9, {"recall": 0.5}, True)
    else:
        at_each = [OF_TWO[measure](target, cut < scores, sample_weight=weight) for cut in np.unique(scores)]
        assert point.value == pytest.approx(max(at_each))
    if name == "point_weighted":
        assert point.corrected is None
    else:
        written = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["corrected"]
        interval = point.corrected
        assert [interval.estimate.item(), interval.low.item(), interval.high.item()] == pytest.approx(
            [written[end] for end in ("estimate", "low", "high")]
        )
    if name in ("point", "point_weighted"):
        again = imbtorch.report(target=target, scores=scores, threshold=point, weight=weight)
        assert again[measure].item() == pytest.approx(point.value)


# --- pools ------------------------------------------------------------------------------------------------------------


def labelled_rows():
    """Return predictions, labels and weights of the labelled rows of the file that the plan came with."""
    with open(FOLDER / "to_label.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pool = np.array([row["pred"] == "fraud" for row in rows])
    known = np.array([row["label"] != "" for row in rows])
    target = np.array([row["label"] == "fraud" for row in rows])[known]
    preds = pool[known]
    share = np.array([(pool == each).sum() / (preds == each).sum() for each in (0, 1)])
    return pool, target, preds, share[preds.astype(int)]


def check_pool(result):
    """Check values, and the exact interval of precision, whose alarms are a hypergeometric sample."""
    pool, target, preds, weight = labelled_rows()
    for name, peer in OF_TWO.items():
        assert result[name].item() == pytest.approx(peer(target, preds, sample_weight=weight), abs=1e-6)
    alarms, labels, hits = pool.sum(), preds.sum(), (target & preds).sum()
    numbers = np.arange(alarms + 1)
    ends = hypergeom.sf(hits - 1, alarms, numbers, labels), hypergeom.cdf(hits, alarms, numbers, labels)
    possible = numbers[np.min(ends, 0) > 0.025]
    interval = result.interval("precision")
    assert (float(interval.low), float(interval.high)) == pytest.approx((possible[0] / alarms, possible[-1] / alarms))
    for name, value in values_as_written("pool").items():
        assert result[name].item() == pytest.approx(value)


def test_the_result_of_a_pool_opens(tmp_path):
    check_pool(opened("pool"))
    opened("pool").to_json(tmp_path / "again.json")
    assert str(imbtorch.open_result(tmp_path / "again.json").table()) == str(opened("pool").table())
    result = opened("population")
    for name, value in values_as_written("population").items():
        assert result[name].item() == pytest.approx(value)
    text = " ".join(str(result.table()).split())
    assert "of the population" in text
    assert "f1 0.760 [0.248, 0.962] precision 0.692 [0.386, 0.909]" in text  # as 0.7 printed it, without marks
    assert isinstance(result, imbtorch.statistics.Estimate)


def test_a_plan_opens():
    data = imbtorch.Predictions(FOLDER / "to_label.csv", target="label", positive="fraud")
    check_pool(data.estimate("pred", plan=FOLDER / "to_label.plan.json", measures=list(OF_TWO)))


# --- states -----------------------------------------------------------------------------------------------------------


def adjusted_recall(tau):
    """Return the balanced accuracy of the adjusted probabilities of the states."""
    adjusted = np.log(np.eye(3)[PREDS] * 0.6 + 0.4 / 3) - tau * np.log(np.array([28, 12, 8]) / 48)
    return metrics.balanced_accuracy_score(TARGET, adjusted.argmax(1))


def test_states_load():
    states = torch.load(FOLDER / "states.pt", weights_only=True)
    report = imbtorch.ImbalanceReport(
        "multiclass", class_names=NAMES, groups=["north", "south"], clusters=True, class_groups={"pets": ["cat", "dog"]}
    )
    report.load_state_dict(states["report"])
    assert np.array_equal(report.counts(), metrics.confusion_matrix(TARGET, PREDS))

    grid = np.linspace(0, 1, 21)
    best = [max(metrics.f1_score(y, cut < s) for cut in grid) for y, s in zip(LABELS.T, LABEL_SCORES.T, strict=True)]
    sweep = imbtorch.ThresholdSweep("f1", thresholds=21)
    sweep.load_state_dict(states["sweep"])
    assert sweep.compute()["value"].item() == pytest.approx(best[0])
    for rule in (sweep.rule, imbtorch.Threshold(0.5)):
        rule.load_state_dict(states["threshold"])
        assert metrics.f1_score(POSITIVE, rule(torch.from_numpy(SCORES))) == pytest.approx(best[0])

    sweep = imbtorch.ThresholdSweep("f1", thresholds=21, task="multilabel", num_labels=2)
    sweep.load_state_dict(states["labels"])
    preds = sweep.rule(torch.from_numpy(LABEL_SCORES))
    assert metrics.f1_score(LABELS, preds, average=None) == pytest.approx(best)

    recall = imbtorch.Recall("binary")
    recall.persistent(True)
    recall.load_state_dict(states["recall"])
    assert recall.compute().item() == pytest.approx(metrics.recall_score(POSITIVE, SCORES > 0.4))


def test_states_of_adjustments_load():
    states = torch.load(FOLDER / "states.pt", weights_only=True)
    prior = {"cat": 28, "dog": 12, "emu": 8}
    sweep = imbtorch.LogitAdjustmentSweep("balanced_accuracy", prior, class_names=NAMES, taus=[0, 0.5, 1])
    sweep.load_state_dict(states["adjustment"])
    assert sweep.compute()["value"].item() == pytest.approx(adjusted_recall(float(sweep.rule.tau)))
    rule = imbtorch.LogitAdjustment([28, 12, 8], logits=False)
    rule.load_state_dict(states["tau"])
    preds = rule(torch.from_numpy(np.eye(3)[PREDS] * 0.6 + 0.4 / 3)).argmax(1)
    assert metrics.balanced_accuracy_score(TARGET, preds) == pytest.approx(adjusted_recall(float(rule.tau)))


class Module(lightning.LightningModule):
    """Module whose checkpoint was written."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
        self.val = imbtorch.ImbalanceReport("binary", prefix="val_")
        self.sweep = imbtorch.ThresholdSweep("f1", prefix="val_best_")


def test_a_checkpoint_loads():
    module = Module.load_from_checkpoint(FOLDER / "lightning.ckpt", map_location="cpu")
    best = max(metrics.f1_score(POSITIVE, cut < SCORES) for cut in np.unique(SCORES))
    assert metrics.f1_score(POSITIVE, module.sweep.rule(torch.from_numpy(SCORES))) == pytest.approx(best)

    callbacks = torch.load(FOLDER / "lightning.ckpt", weights_only=False)["callbacks"]
    saved = next(state for key, state in callbacks.items() if "TiesCheckpoint" in key)
    checkpoint = imbtorch.lightning.ModelCheckpoint(dirpath=saved["dirpath"], monitor="val_iam", mode="max")
    checkpoint.load_state_dict(saved)
    (tn, fp), (fn, tp) = metrics.confusion_matrix(POSITIVE, SCORES > 0.5)
    iam = ((tn - max(fp, fn)) / max(tn + fp, tn + fn) + (tp - max(fp, fn)) / max(tp + fn, tp + fp)) / 2
    assert checkpoint.best_model_score.item() == pytest.approx(iam)

    summary = imbtorch.lightning.SelectionSummary()
    summary.load_state_dict(callbacks[summary.state_key])
    assert len(summary.state_dict()["validations"]) == 2
