"""Files that version 0.6.0 wrote: results, states and a checkpoint open with the values of scikit-learn."""

from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from sklearn import metrics

import imbtorch

FOLDER = Path(__file__).parent / "saved_by_0_6"
NAMES = ["cat", "dog", "emu"]
TARGET = np.array([0, 1, 2, 0, 0, 1, 0, 2, 0, 1, 0, 0] * 4)
PREDS = np.array([0, 1, 2, 0, 1, 1, 0, 0, 0, 2, 0, 0] * 3 + [0, 1, 1, 0, 0, 0, 2, 2, 0, 1, 0, 1])
GROUP = np.arange(48) % 2
SCORES = np.array([0.05, 0.9, 0.75, 0.1, 0.6, 0.8, 0.2, 0.3, 0.15, 0.45, 0.25, 0.35] * 4)
POSITIVE = (TARGET == 1).astype(int)
WEIGHT = np.linspace(0.5, 2, 48)


def test_results_open():
    result = imbtorch.open_result(FOLDER / "groups.json")
    recalls = metrics.recall_score(TARGET, PREDS, average=None)
    assert [result[f"recall/{name}"].item() for name in NAMES] == pytest.approx(recalls)
    assert result["recall/pets"].item() == pytest.approx(recalls[:2].mean())
    south = metrics.balanced_accuracy_score(TARGET[GROUP == 1], PREDS[GROUP == 1])
    assert result["balanced_accuracy/south"].item() == pytest.approx(south)
    assert "cluster bootstrap" in str(result.interval("iam"))
    assert result["iam_low"] < result["iam"] < result["iam_high"]

    result = imbtorch.open_result(FOLDER / "margins.json")
    assert result["recall"].item() == pytest.approx(recalls.mean())

    result = imbtorch.open_result(FOLDER / "weighted.json")
    assert result["recall/1"].item() == pytest.approx(
        metrics.recall_score(TARGET == 2, PREDS == 2, sample_weight=WEIGHT)
    )


def test_results_of_scores_open():
    result = imbtorch.open_result(FOLDER / "scores_and_rule.json")
    assert result["auc"].item() == pytest.approx(metrics.roc_auc_score(POSITIVE, SCORES))
    assert result["average_precision"].item() == pytest.approx(metrics.average_precision_score(POSITIVE, SCORES))
    assert result["recall"].item() == pytest.approx(metrics.recall_score(POSITIVE, SCORES > 0.5))


def test_states_load():
    states = torch.load(FOLDER / "states.pt", weights_only=True)
    report = imbtorch.ImbalanceReport(
        "multiclass", class_names=NAMES, groups=["north", "south"], clusters=True, class_groups={"pets": ["cat", "dog"]}
    )
    report.load_state_dict(states["report"])
    assert np.array_equal(report.counts(), metrics.confusion_matrix(TARGET, PREDS))

    sweep = imbtorch.ThresholdSweep("f1", thresholds=21)
    sweep.load_state_dict(states["sweep"])
    values = {cut: metrics.f1_score(POSITIVE, cut < SCORES) for cut in np.linspace(0, 1, 21)}
    assert sweep.compute()["value"].item() == pytest.approx(max(values.values()))
    rule = imbtorch.Threshold(0.5)
    rule.load_state_dict(states["threshold"])
    assert metrics.f1_score(POSITIVE, rule(torch.from_numpy(SCORES))) == pytest.approx(max(values.values()))

    sweep = imbtorch.LogitAdjustmentSweep(
        "balanced_accuracy", {"cat": 28, "dog": 12, "emu": 8}, class_names=NAMES, taus=[0, 0.5, 1]
    )
    sweep.load_state_dict(states["adjustment"])
    probabilities = np.eye(3)[PREDS] * 0.6 + 0.4 / 3
    adjusted = np.log(probabilities) - float(sweep.rule.tau) * np.log(np.array([28, 12, 8]) / 48)
    recall = metrics.balanced_accuracy_score(TARGET, adjusted.argmax(1))
    assert sweep.compute()["value"].item() == pytest.approx(recall)


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
