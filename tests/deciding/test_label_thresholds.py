"""A theme of several modules: one threshold for each label, which a sweep of labels finds."""

import pickle

import numpy as np
import pytest
import torch
from processes import launch
from rooms import counter_of, settings_text, state_name
from sklearn.metrics import multilabel_confusion_matrix
from versions import traced

import imbtorch
from imbtorch import ConfusionMatrix, ImbalanceReport, ThresholdSweep, confusion_matrix

THRESHOLDS = (0.1, 0.5, 0.85)


def scores_and_targets(shape=(200, 3), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator), torch.randint(2, shape, generator=generator)


def expected(scores, target, thresholds=THRESHOLDS):
    """scikit-learn's counts ``[L, 2, 2]`` of scores ``[N, L]`` above the thresholds rounded to their dtype."""
    thresholds = np.array(thresholds, dtype=np.float64).astype(scores.numpy().dtype)
    return multilabel_confusion_matrix(target.numpy(), scores.numpy() > thresholds)


@pytest.mark.parametrize("given", [THRESHOLDS, list(THRESHOLDS), torch.tensor(THRESHOLDS, dtype=torch.float64)])
def test_each_label_has_its_own(given):
    scores, target = scores_and_targets()
    counts = confusion_matrix(scores, target, "multilabel", num_labels=3, threshold=given)
    assert np.array_equal(counts.numpy(), expected(scores, target))
    metric = ConfusionMatrix("multilabel", num_labels=3, threshold=given)
    metric.update(scores, target)
    assert torch.equal(metric.local_confmat, counts)
    assert metric.threshold == THRESHOLDS
    assert isinstance(metric.threshold, tuple)


def test_a_threshold_is_rounded_once_to_the_dtype_of_the_scores():
    thresholds = torch.tensor([0.1, 0.3, 0.7], dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        at = thresholds.to(dtype)
        above = torch.nextafter(at, torch.ones_like(at))
        counts = confusion_matrix(
            torch.stack((at, above)), torch.ones(2, 3).long(), "multilabel", num_labels=3, threshold=thresholds
        )
        assert counts[:, 1].tolist() == [[1, 1]] * 3  # strictly above predicts 1
    half = thresholds.half()  # compared in half precision, as torch compares them with a Python float
    counts = confusion_matrix(half[None], torch.ones(1, 3).long(), "multilabel", num_labels=3, threshold=thresholds)
    assert counts[:, 1, 1].tolist() == [
        int(each > threshold) for each, threshold in zip(half, thresholds.tolist(), strict=True)
    ]


def test_more_dimensions_and_logits():
    scores, target = scores_and_targets((20, 3, 4, 5))
    counts = confusion_matrix(scores, target, "multilabel", num_labels=3, threshold=THRESHOLDS)
    flat = [part.movedim(1, -1).reshape(-1, 3) for part in (scores, target)]
    assert np.array_equal(counts.numpy(), expected(*flat))
    logits = scores.double().logit()
    again = confusion_matrix(logits, target, "multilabel", num_labels=3, threshold=THRESHOLDS, logits=True)
    assert torch.equal(again, counts)


def test_what_a_sweep_finds_is_handed_over():
    scores, target = scores_and_targets()
    sweep = ThresholdSweep("f1", task="multilabel", num_labels=3, thresholds=101)
    sweep.update(scores, target)
    found = sweep.compute()
    thresholds = [found[f"threshold/{label}"] for label in range(3)]
    metric = imbtorch.FScore("multilabel", num_labels=3, average="none", threshold=thresholds)
    metric.update(scores, target)
    assert metric.compute().tolist() == [found[f"value/{label}"].item() for label in range(3)]
    report = ImbalanceReport("multilabel", num_labels=3, threshold=torch.stack(thresholds), measures=["f1"])
    report.update(scores, target)
    assert report.compute()["f1"].item() == pytest.approx(metric.compute().double().mean().item(), abs=1e-6)


def test_it_is_part_of_the_settings():
    one = ImbalanceReport("multilabel", num_labels=3, threshold=THRESHOLDS)
    other = ImbalanceReport("multilabel", num_labels=3, threshold=THRESHOLDS[::-1])
    assert "threshold=(0.1, 0.5, 0.85)" in repr(one)
    assert state_name(one) != state_name(other)
    assert settings_text(one) != settings_text(other)
    with pytest.raises(AttributeError, match="threshold cannot be changed"):
        one.threshold = 0.5


def test_it_follows_a_pickle_a_clone_and_a_move():
    scores, target = scores_and_targets()
    metric = ConfusionMatrix("multilabel", num_labels=3, threshold=THRESHOLDS)
    for copied in (pickle.loads(pickle.dumps(metric)), metric.clone(), metric.double(), metric.to("cpu")):
        copied.reset()
        copied.update(scores, target)
        assert np.array_equal(copied.local_confmat.numpy(), expected(scores, target))
    away = ConfusionMatrix("multilabel", num_labels=3, threshold=THRESHOLDS).to("meta")
    assert away.counting.thresholds.is_meta  # where the state is
    assert counter_of(away.to_empty(device="cpu")).thresholds.tolist() == list(THRESHOLDS)


@pytest.mark.slow
def test_a_compiled_update_counts_the_same():
    scores, target = scores_and_targets()
    metric = ConfusionMatrix("multilabel", num_labels=3, threshold=THRESHOLDS)
    traced(metric.update)(scores, target)
    assert np.array_equal(metric.local_confmat.numpy(), expected(scores, target))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"task": "multilabel", "num_labels": 3, "threshold": [0.5, 0.5]},
            ValueError,
            "one for each of 3 labels, got 2",
        ),
        ({"task": "multilabel", "num_labels": 2, "threshold": [0.5, 1.5]}, ValueError, "probability in .* got 1.5"),
        ({"task": "multilabel", "num_labels": 2, "threshold": [0.5, "0.5"]}, TypeError, "must be a number, got '0.5'"),
        ({"task": "binary", "threshold": [0.5, 0.5]}, ValueError, "must be one number for task='binary'"),
        ({"task": "multiclass", "num_classes": 2, "threshold": (0.5, 0.5)}, ValueError, "needs task='multilabel'"),
    ],
)
def test_thresholds_that_do_not_fit(arguments, error, text):
    with pytest.raises(error, match=text):
        imbtorch.Recall(**arguments)


def counted_on(rank, world):
    scores, target = scores_and_targets()
    report = ImbalanceReport("multilabel", num_labels=3, threshold=THRESHOLDS)
    report.update(scores[rank::world], target[rank::world])
    return report.counts().tolist()


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes(world):
    assert launch(world, counted_on) == [expected(*scores_and_targets()).tolist()] * world


def told_apart(rank, world):
    thresholds = (0.1, 0.5, 0.85) if rank else (0.5, 0.1, 0.85)
    with pytest.raises(RuntimeError, match="not set up alike"):
        ConfusionMatrix("multilabel", num_labels=3, threshold=thresholds).compute()


def test_processes_with_other_thresholds_are_told_apart():
    launch(2, told_apart)
