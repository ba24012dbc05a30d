"""Sweeps of thresholds against scikit-learn at each threshold: any dtype, any chunks, any number of processes."""

import copy
import functools
import importlib
import os
import pickle
import re
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import image
from processes import launch, run_script
from sklearn import metrics as sk
from torchmetrics import MetricCollection

import imbtorch
from imbtorch.metrics.sweep import ThresholdSweep

mpl.use("Agg")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def quietly(oracle):
    @functools.wraps(oracle)
    def silent(target, preds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return oracle(target, preds)

    return silent


def gmean(target, preds):
    return (sk.recall_score(target, preds) * sk.recall_score(target, preds, pos_label=0)) ** 0.5


def iba(target, preds):
    """Index of balanced accuracy as the paper has it: alpha = .05 on the plain G-mean, dominance of the positives."""
    dominance = sk.recall_score(target, preds) - sk.recall_score(target, preds, pos_label=0)
    return (1 + 0.05 * dominance) * gmean(target, preds)


MEASURES = {
    "f1": (imbtorch.FScore, lambda t, p: sk.f1_score(t, p, zero_division=0)),
    "f1 function": (imbtorch.f_score, lambda t, p: sk.f1_score(t, p, zero_division=0)),
    "precision": (imbtorch.Precision, lambda t, p: sk.precision_score(t, p, zero_division=0)),
    "recall": (imbtorch.recall, sk.recall_score),
    "gmean": (imbtorch.GeometricMean, gmean),
    "iba": (imbtorch.IndexBalancedAccuracy, iba),
    "mcc": (imbtorch.MatthewsCorrCoef, sk.matthews_corrcoef),
    "lambda": (lambda counts: counts[..., 1, 1] / counts.sum((-2, -1)), lambda t, p: np.mean(t & p)),
}


def even(n, dtype):
    """Thresholds i/(n-1) as NumPy floats, each divided in float64 and rounded once."""
    return torch.tensor([index / (n - 1) for index in range(n)], dtype=torch.float64).to(dtype).double().numpy()


def data(dtype=torch.float32, shape=(300,), seed=0, thresholds=101):
    """Random targets with few positives and scores, a third of them exactly on a threshold, with both ends."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(shape, generator=generator) < 0.2).long()
    scores = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.6 * target).div(1.6).to(dtype)
    grid = torch.tensor([index / (thresholds - 1) for index in range(thresholds)], dtype=torch.float64).to(dtype)
    on_it = torch.rand(shape, generator=generator) < 0.33
    scores = torch.where(on_it, grid[torch.randint(thresholds, shape, generator=generator)], scores)
    scores.view(-1)[:4] = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=dtype)
    target.view(-1)[:4] = torch.tensor([0, 1, 1, 0])
    return scores, target


def expected_matrices(scores, target, grid):
    scores, target = scores.double().numpy(), target.long().numpy()
    return [sk.confusion_matrix(target, scores > t, labels=[0, 1]).tolist() for t in grid]


def expected_values(oracle, scores, target, grid):
    scores, target = scores.double().numpy(), target.long().numpy()
    return [quietly(oracle)(target, (scores > t).astype(int)) for t in grid]


def item(values):
    return {name: value.item() for name, value in values.items()}


# --- the oracle at each threshold -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_at_every_threshold(name):
    measure, oracle = MEASURES[name]
    scores, target = data()
    sweep = ThresholdSweep(measure, 101)
    sweep.update(scores, target)
    found = sweep.compute()
    expected = expected_values(oracle, scores, target, even(101, torch.float32))
    thresholds, values = sweep.result().curve()
    assert thresholds.tolist() == even(101, torch.float64).tolist()
    assert values.tolist() == pytest.approx(expected, abs=1e-12)
    assert found["value"].dtype == torch.float32
    assert found["value"].item() == pytest.approx(max(expected), abs=1e-6)
    # of equal values the lowest threshold
    assert found["threshold"].item() == next(i for i in range(101) if expected[i] > max(expected) - 1e-12) / 100


@pytest.mark.parametrize(
    ("dtype", "target_dtype"), list(zip(DTYPES, (torch.int64, torch.uint8, torch.int32, torch.bool), strict=True))
)
def test_scores_on_a_threshold_predict_zero_in_every_dtype(dtype, target_dtype):
    scores, target = data(dtype)
    wide = torch.promote_types(dtype, torch.float32)  # half precision is read as float32
    for thresholds, grid in ((101, even(101, wide)), (torch.tensor([0.1, 0.25, 0.3, 0.7], dtype=torch.float64), None)):
        sweep = ThresholdSweep(imbtorch.FScore, thresholds)
        sweep.update(scores, target.to(target_dtype))
        grid = thresholds.to(wide).double().numpy() if grid is None else grid
        sweep.compute()
        assert sweep.result().matrices().tolist() == expected_matrices(scores, target, grid)


def test_float32_thresholds_are_fractions_rounded_once_rather_than_a_linspace():
    fractions = torch.tensor([index / 100 for index in range(101)], dtype=torch.float64).float()
    assert int((torch.linspace(0, 1, 101) != fractions).sum()) == 20  # so the difference can be seen at all
    sweep = ThresholdSweep(imbtorch.FScore, 101)
    sweep.update(fractions, torch.ones(101, dtype=torch.long))
    with pytest.warns(UserWarning, match="no target"):
        sweep.compute()
    assert sweep.result().matrices()[:, 1, 1].tolist() == list(range(100, -1, -1))


@pytest.mark.parametrize("name", ["f1", "iba", "lambda"])
def test_each_label_is_swept_apart(name):
    measure, oracle = MEASURES[name]
    scores, target = data(shape=(150, 3, 2))
    sweep = ThresholdSweep(measure, 21, "multilabel", num_labels=3, class_names=["a", "b", "c"], prefix="val_")
    sweep.update(scores, target)
    found = sweep.compute()
    assert list(found) == [f"val_{each}/{label}" for each in ("threshold", "value") for label in "abc"]
    grid = even(21, torch.float32)
    for index, label in enumerate("abc"):
        flat = scores[:, index].flatten(), target[:, index].flatten()
        expected = expected_values(oracle, *flat, grid)
        assert sweep.result().curve()[1][index].tolist() == pytest.approx(expected, abs=1e-12)
        assert found[f"val_value/{label}"].item() == pytest.approx(max(expected), abs=1e-6)
        assert sweep.result().matrices()[index].tolist() == expected_matrices(*flat, grid)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("extra", [(), (5,)])
def test_each_class_is_swept_against_the_rest(logits, extra):
    generator = torch.Generator().manual_seed(3)
    raw = torch.randn(120, 4, *extra, generator=generator)
    target = torch.randint(4, (120, *extra), generator=generator)
    ignored = torch.rand(120, *extra, generator=generator) < 0.1
    chances = raw.softmax(1)
    sweep = ThresholdSweep(
        imbtorch.FScore, 21, "multiclass", num_classes=4, per_class=True, logits=logits, ignore_index=7
    )
    sweep.update(raw if logits else chances, target.masked_fill(ignored, 7))
    found = sweep.compute()
    for index in range(4):
        kept = chances.select(1, index)[~ignored], (target[~ignored] == index).long()
        expected = expected_values(lambda t, p: sk.f1_score(t, p, zero_division=0), *kept, even(21, torch.float32))
        assert sweep.result().curve()[1][index].tolist() == pytest.approx(expected, abs=1e-12)
        assert found[f"value/{index}"].item() == pytest.approx(max(expected), abs=1e-6)


@pytest.mark.parametrize("ignore_index", [0, 3])
def test_an_ignored_class_takes_no_part(ignore_index):
    scores, _ = data(shape=(200, 4))
    target = torch.randint(4, (200,), generator=torch.Generator().manual_seed(1))
    sweep = ThresholdSweep(imbtorch.FScore, 11, "multiclass", num_classes=4, per_class=True, ignore_index=ignore_index)
    sweep.update(scores, target)
    sweep.compute()  # without a warning: the class is left out on purpose
    kept = target != ignore_index
    for index in range(4):
        matrices = expected_matrices(scores[kept, index], target[kept] == index, even(11, torch.float32))
        assert sweep.result().matrices()[index].tolist() == matrices


def test_logits_and_ignored_samples_of_two_classes():
    scores, target = data(torch.float64)
    ignored = torch.arange(len(target)) % 7 == 0
    sweep = ThresholdSweep(imbtorch.MatthewsCorrCoef, 101, logits=True, ignore_index=-100)
    sweep.update(4 * scores - 2, target.masked_fill(ignored, -100))
    sweep.compute()
    chances = (4 * scores - 2).sigmoid()[~ignored]
    assert sweep.result().matrices().tolist() == expected_matrices(chances, target[~ignored], even(101, torch.float64))


def test_a_measure_of_which_less_is_better():
    scores, target = data()

    def cost(counts):
        return (5.0 * counts[..., 1, 0] + counts[..., 0, 1]) / counts.sum((-2, -1))

    sweep = ThresholdSweep(cost, 101, higher_is_better=False)
    sweep.update(scores, target)
    found = sweep.compute()
    expected = expected_values(
        lambda t, p: np.mean(5 * (t & ~p & 1) + (1 - t) * p), scores, target, even(101, torch.float32)
    )
    assert sweep.result().curve()[1].tolist() == pytest.approx(expected)
    assert found["value"].item() == pytest.approx(min(expected))
    assert found["threshold"].item() == expected.index(min(expected)) / 100
    assert sweep["value"].higher_is_better is False
    assert ThresholdSweep(imbtorch.confusion_entropy)["value"].higher_is_better is False  # functions know their metric


def test_undefined_values_are_never_the_best():
    sweep = ThresholdSweep(lambda counts: torch.where(counts[..., 1, 1] > 1, torch.nan, counts[..., 1, 1].double()), 11)
    sweep.update(torch.tensor([0.31, 0.75, 0.1]), torch.tensor([1, 1, 0]))
    assert item(sweep.compute()) == pytest.approx({"threshold": 0.4, "value": 1.0})


# --- handing a threshold over ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_the_recipe_gives_a_metric_the_value_of_the_sweep(dtype, seed):
    """Every sample's score is on a threshold, so that one of them would be lost by a step too many or too few."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 101, (400,), generator=generator)
    target = (torch.rand(400, generator=generator) * 100 < steps - 40).long()
    scores = (steps.double() / 100).to(dtype)
    sweep = ThresholdSweep(imbtorch.FScore, 101)
    sweep.update(scores, target)

    best = sweep.compute()["threshold"].item()
    test = imbtorch.FScore("binary", threshold=best)

    test.update(scores, target)
    rounded = torch.tensor(best, dtype=torch.float64).to(torch.promote_types(dtype, torch.float32))
    assert test.compute() == sweep.compute()["value"]
    preds = (scores > rounded).int()
    assert test.compute().item() == pytest.approx(sk.f1_score(target, preds))
    assert test.local_confmat.tolist() == sk.confusion_matrix(target, preds).tolist()


def test_the_recipe_at_threshold_zero():
    scores, target = torch.tensor([0.25, 0.5, 0.75]), torch.tensor([1, 0, 1])
    sweep = ThresholdSweep(imbtorch.Recall, 101)
    sweep.update(scores, target)
    best = sweep.compute()["threshold"].item()
    assert best == 0
    assert imbtorch.Recall("binary", threshold=best)(scores, target) == 1


# --- ROC ------------------------------------------------------------------------------------------------------------


def test_roc_and_its_area_where_scores_lie_on_the_thresholds():
    generator = torch.Generator().manual_seed(5)
    steps = torch.randint(101, (500,), generator=generator)
    target = (torch.rand(500, generator=generator) * 100 < steps).long()
    scores = (steps.double() / 100).float()
    sweep = ThresholdSweep(imbtorch.FScore, 101)
    sweep.update(scores, target)
    sweep.compute()
    false, true = sweep.result().roc()
    assert len(false) == len(true) == 103
    curve = sk.roc_curve(target, scores, drop_intermediate=False)
    # points at scores that do not occur repeat their neighbours
    expected = np.unique(np.stack(curve[:2], 1), axis=0)
    assert np.unique(torch.stack((false, true), 1).numpy(), axis=0) == pytest.approx(expected)
    assert sweep.result().auc().item() == pytest.approx(sk.roc_auc_score(target, scores), abs=1e-12)
    assert false.diff().min() >= 0
    assert true.diff().min() >= 0


def test_partial_areas_by_hand():
    """Liu, Ghosh and Martin (2007), eq. 3: the two trapezoids beside each point."""
    sweep = ThresholdSweep(imbtorch.FScore, torch.tensor([0.2, 0.6]))
    sweep.update(torch.tensor([0.1, 0.25, 0.7, 0.5, 0.5, 0.9, 0.1, 0.65]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    sweep.compute()
    # (FPR, TPR): (0, 0), at .6 (1/4, 2/4), at .2 (3/4, 3/4), (1, 1)
    assert [part.tolist() for part in sweep.result().roc()] == [[0, 0.25, 0.75, 1], [0, 0.5, 0.75, 1]]
    areas = [0.25 * 0.5 / 2, 0.5 * 1.25 / 2, 0.25 * 1.75 / 2]
    assert sweep.result().auc().item() == pytest.approx(sum(areas))
    assert sweep.result().partial_auc().tolist() == pytest.approx([areas[1] + areas[2], areas[0] + areas[1]])


def test_roc_of_labels():
    scores, target = data(torch.float64, (200, 3))
    steps = (scores * 20).round() / 20
    sweep = ThresholdSweep(imbtorch.FScore, 21, "multilabel", num_labels=3)
    sweep.update(steps, target)
    sweep.compute()
    expected = [sk.roc_auc_score(target[:, label], steps[:, label]) for label in range(3)]
    assert sweep.result().auc().tolist() == pytest.approx(expected)
    assert sweep.result().partial_auc().shape == (3, 21)


# --- the life of a metric -------------------------------------------------------------------------------------------


def test_chunks_equal_one_update():
    scores, target = data(shape=(97,))
    whole, parts = ThresholdSweep(imbtorch.FScore, 101), ThresholdSweep(imbtorch.FScore, 101)
    whole.update(scores, target)
    for chunk in (slice(0, 1), slice(1, 1), slice(1, 60), slice(60, 97)):
        parts.update(scores[chunk], target[chunk])
    assert item(parts.compute()) == item(whole.compute())
    assert torch.equal(parts.result().matrices(), whole.result().matrices())


def test_children_are_metrics_that_lightning_can_log():
    scores, target = data()
    sweep = ThresholdSweep(imbtorch.FScore, 101, prefix="val_", postfix="_x")
    sweep.update(scores, target)
    children = dict(sweep.items())
    assert list(children) == sweep.keys() == list(sweep) == ["val_threshold_x", "val_value_x"]
    assert children["val_threshold_x"].higher_is_better is None
    assert children["val_value_x"].higher_is_better is True
    assert sweep["value"] is children["val_value_x"]
    values = {name: child.compute().item() for name, child in children.items()}
    assert values == item(sweep.compute())
    assert values["val_value_x"] == pytest.approx(
        max(expected_values(MEASURES["f1"][1], scores, target, even(101, torch.float32))), abs=1e-6
    )
    children["val_value_x"].reset()
    assert sweep.update_count == 0


def test_reset_forward_and_clones():
    scores, target = data()
    sweep = ThresholdSweep(imbtorch.GeometricMean, 11)
    first = sweep(scores[:100], target[:100])
    oracle = MEASURES["gmean"][1]
    assert first["value"].item() == pytest.approx(
        max(expected_values(oracle, scores[:100], target[:100], even(11, torch.float32))), abs=1e-6
    )
    sweep(scores[100:], target[100:])
    total = item(sweep.compute())
    assert total["value"] == pytest.approx(
        max(expected_values(oracle, scores, target, even(11, torch.float32))), abs=1e-6
    )
    for twin in (pickle.loads(pickle.dumps(sweep)), copy.deepcopy(sweep), sweep.clone()):
        assert item(twin.compute()) == total
        twin.update(scores, target)
        assert item(sweep.compute()) == total
        assert repr(twin) == "ThresholdSweep(measure=geometric_mean, thresholds=11, task='binary')"
    other = ThresholdSweep(imbtorch.GeometricMean, 11)
    other.update(scores[100:], target[100:])
    sweep.reset()
    sweep.update(scores[:100], target[:100])
    sweep.merge_state(other)
    assert item(sweep.compute()) == total


def test_an_empty_sweep_warns_once():
    sweep = ThresholdSweep(imbtorch.FScore, 11)
    with pytest.warns(UserWarning, match="counted no sample"):
        found = sweep.compute()
    assert torch.isnan(found["value"])
    assert sweep.result().matrices().sum() == 0
    assert torch.isnan(sweep.result().auc())
    assert not hasattr(sweep, "local_confmat")
    assert not hasattr(sweep, "local_margins")


def test_a_collection_merges_only_sweeps_that_count_alike():
    scores, target = torch.tensor([0.15, 0.85, 0.15]), torch.tensor([0, 1, 1])
    sweeps = {
        "f1": ThresholdSweep(imbtorch.FScore, torch.tensor([0.1, 0.5])),
        "recall": ThresholdSweep(imbtorch.Recall, torch.tensor([0.1, 0.5])),
        "other": ThresholdSweep(imbtorch.FScore, torch.tensor([0.1, 0.6])),
    }
    collection = MetricCollection(dict(sweeps))
    collection.update(scores, target)
    assert sorted(map(sorted, collection.compute_groups.values())) == [["f1", "recall"], ["other"]]
    later = torch.tensor([0.55, 0.55, 0.55]), torch.tensor([1, 1, 0])
    collection.update(*later)
    for name, oracle, grid in (
        ("f1", sk.f1_score, [0.1, 0.5]),
        ("recall", sk.recall_score, [0.1, 0.5]),
        ("other", sk.f1_score, [0.1, 0.6]),
    ):
        expected = expected_values(oracle, torch.cat((scores, later[0])), torch.cat((target, later[1])), grid)
        assert collection[name].compute()["value"].item() == pytest.approx(max(expected)), name


@pytest.mark.parametrize("different", [{"logits": True}, {"ignore_index": 2}, {"ignore_index": 1}])
def test_sweeps_of_classes_that_read_scores_differently_do_not_share_a_state(different):
    """Their first batch may well give equal counts, which is what torchmetrics goes by."""
    plain = {"num_classes": 3, "per_class": True, "thresholds": 2}
    one = ThresholdSweep(imbtorch.FScore, task="multiclass", **plain)
    two = ThresholdSweep(imbtorch.FScore, task="multiclass", **plain, **different)
    collection = MetricCollection({"one": one, "two": two})
    collection.update(torch.full((2, 3), 1 / 3), torch.tensor([0, 0]))
    assert len(collection.compute_groups) == 2
    with pytest.raises(ValueError, match="cannot merge"):
        one.merge_state(two)


def test_plot_shows_the_curve_the_best_point_and_a_half():
    scores, target = data(shape=(200, 2))
    sweep = ThresholdSweep(imbtorch.f_score, 21, "multilabel", num_labels=2, class_names=["cat", "dog"])
    sweep.update(scores, target)
    found = sweep.compute()
    figure, axes = sweep.plot()
    lines = axes.get_lines()
    for index, label in enumerate(("cat", "dog")):
        curve = next(line for line in lines if line.get_label() == label)
        assert curve.get_xdata() == pytest.approx(even(21, torch.float64))
        flat = scores[:, index], target[:, index]
        assert curve.get_ydata() == pytest.approx(
            expected_values(MEASURES["f1"][1], *flat, even(21, torch.float32)), abs=1e-12
        )
        point = found[f"threshold/{label}"].item(), found[f"value/{label}"].item()
        assert any(
            (line.get_xdata()[0], line.get_ydata()[0]) == pytest.approx(point)
            for line in lines
            if len(line.get_xdata()) == 1
        )
        assert f"{point[1]:.3f} at {point[0]:.2f}" in [text.get_text() for text in axes.texts]
    assert any(list(line.get_xdata()) == [0.5, 0.5] for line in lines)
    assert axes.get_ylabel() == "f1"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["cat", "dog"]
    mpl.pyplot.close(figure)
    figure, axes = mpl.pyplot.subplots()
    single = ThresholdSweep(lambda counts: counts[..., 1, 1].double(), 11)
    single.update(*data())
    assert single.plot(ax=axes) == (None, axes)
    assert axes.get_legend() is None
    mpl.pyplot.close(figure)


def test_repr_tells_what_was_asked_for():
    sweep = ThresholdSweep(imbtorch.FScore, 11, **CLASSES, logits=True, ignore_index=1)
    shown = "measure=f_score, thresholds=11, task='multiclass', num_classes=3, logits=True, ignore_index=1"
    assert repr(sweep) == f"ThresholdSweep({shown})"


# --- what is refused ------------------------------------------------------------------------------------------------

GOOD = torch.tensor([0.2, 0.8]), torch.tensor([0, 1])
CLASSES = {"task": "multiclass", "num_classes": 3, "per_class": True}
THIRDS = torch.full((2, 3), 1 / 3)
BAD_INPUT = {
    "nan": ({}, torch.tensor([0.5, torch.nan]), GOOD[1], ValueError, "preds hold NaN scores"),
    "above": ({}, torch.tensor([0.5, 1.5]), GOOD[1], ValueError, "preds hold 1.5.*logits=True"),
    "below": ({}, torch.tensor([-0.25, 0.5]), GOOD[1], ValueError, "preds hold -0.25.*logits=True"),
    "target": ({}, GOOD[0], torch.tensor([0, 2]), ValueError, "target holds class 2 .*ignore_index=2"),
    "int preds": ({}, torch.tensor([0, 1]), GOOD[1], TypeError, "preds must be floating.*pass probabilities"),
    "no tensor": ({}, [0.5, 0.5], GOOD[1], TypeError, "preds must be floating.*list"),
    "float target": ({}, GOOD[0], torch.tensor([0.0, 1.0]), TypeError, r"target must hold integers.*target\.long"),
    "shapes": ({}, torch.full((2, 1), 0.5), GOOD[1], ValueError, "preds and target do not fit.*reshape"),
    "all infinite": (
        {**CLASSES, "logits": True},
        torch.full((2, 3), torch.inf),
        GOOD[1],
        ValueError,
        "preds hold NaN scores, or infinite logits whose probability is undefined",
    ),
    "class nan": (CLASSES, torch.full((2, 3), torch.nan), GOOD[1], ValueError, "preds hold NaN scores"),
    "class above": (CLASSES, 3 * torch.eye(3)[:2], GOOD[1], ValueError, "preds hold 3.*logits=True"),
    "class target": (CLASSES, THIRDS, torch.tensor([0, 3]), ValueError, "target holds class 3 .*ignore_index=3"),
    "class negative": (CLASSES, THIRDS, torch.tensor([-1, 0]), ValueError, "target holds class -1"),
    "class shape": (CLASSES, torch.full((2, 4), 0.25), GOOD[1], ValueError, "preds hold scores of 4 classes"),
    "class floats": (CLASSES, THIRDS, torch.tensor([0.0, 1.0]), TypeError, "target must hold integers"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
@pytest.mark.parametrize("call", ["update", "forward"])
def test_bad_input_names_the_argument_and_leaves_the_state(case, call):
    arguments, preds, target, error, message = BAD_INPUT[case]
    sweep = ThresholdSweep(imbtorch.FScore, 11, **arguments)
    sweep.update(*(GOOD if not arguments else (THIRDS, torch.tensor([0, 2]))))
    before = sweep._state.clone()
    with pytest.raises(error, match=message):
        getattr(sweep, call)(preds, target)
    assert torch.equal(sweep._state, before)
    assert sweep.update_count == 1


def test_bad_samples_can_be_left_out_with_a_warning():
    sweep = ThresholdSweep(imbtorch.FScore, 11, on_invalid="warn")
    sweep.update(torch.tensor([0.2, 0.8, torch.nan, 2.0, 0.5]), torch.tensor([0, 1, 1, 1, 5]))
    with pytest.warns(UserWarning, match="did not count 3"):
        sweep.compute()
    assert sweep.result().matrices().tolist() == expected_matrices(*GOOD, even(11, torch.float32))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"thresholds": 1}, ValueError, "thresholds must be at least 2"),
        ({"thresholds": "multiclass", "num_classes": 3}, TypeError, "got 'multiclass'; use task='multiclass'"),
        ({"thresholds": True}, TypeError, "thresholds must be their number or a tensor"),
        ({"thresholds": 0.5}, TypeError, "thresholds must be their number or a tensor"),
        ({"thresholds": torch.tensor([0.5, 0.1])}, ValueError, r"thresholds must be sorted.*sort\(\)"),
        ({"thresholds": torch.tensor([0.5, 1.1])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([-0.5, 0.1])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([torch.nan])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([])}, ValueError, "thresholds must be sorted and lie in"),
        ({"task": "multiclass", "num_classes": 3}, ValueError, "per_class=True"),
        ({"per_class": True}, ValueError, "per_class"),
        ({"class_names": ["a", "b"]}, ValueError, "have no place in task=.binary.*leave them out"),
        ({"task": "multiclass", "per_class": True}, ValueError, "needs num_classes"),
        ({"task": "multilabel"}, ValueError, "needs num_labels"),
        ({"task": "other"}, ValueError, "task must be one of"),
        ({**CLASSES, "class_names": ["a", "b"]}, ValueError, "class_names must hold 3 names, got 2"),
        ({**CLASSES, "class_names": ["a", "b", "b"]}, ValueError, "class_names must differ"),
        ({**CLASSES, "class_names": "abc"}, TypeError, "class_names must be a sequence"),
        ({"class_names": ["no", "yes"]}, ValueError, "class_names"),
        ({"measure": imbtorch.ConfusionMatrix}, ValueError, "no direction.*give a function"),
        ({"measure": 3}, TypeError, "must be a metric class"),
        ({"on_invalid": "drop"}, ValueError, "on_invalid"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ThresholdSweep(**{"measure": imbtorch.FScore, **arguments})


def test_a_measure_that_returns_no_value_for_each_threshold():
    for measure in (lambda counts: counts.sum(), lambda counts: counts[1, 1] / counts.sum()):
        with pytest.raises(ValueError, match=r"must return \[\d+\], one value for each matrix.*counts\[..., 0, 0\]"):
            ThresholdSweep(measure, 101)


# --- several processes ----------------------------------------------------------------------------------------------


def uneven(rank, world):
    """Batches of 13 go round among the ranks but the last, which has none (on one process, to that one)."""
    calls, original = [], torch.distributed.all_reduce

    def counted(*args, **kwargs):
        calls.append("all_reduce")
        return original(*args, **kwargs)

    warnings.simplefilter("error")
    scores, target = data()
    classes = data(shape=(300, 3), seed=8)[0]
    one, many = ThresholdSweep(imbtorch.IndexBalancedAccuracy, 101), ThresholdSweep(imbtorch.FScore, 21, **CLASSES)
    for index, start in enumerate(range(0, 300, 13)):
        if rank == index % max(1, world - 1):
            chunk = slice(start, start + 13)
            one.update(scores[chunk], target[chunk])
            many.update(classes[chunk], (target + target.roll(1))[chunk])
    torch.distributed.all_reduce = counted
    answer = [item(one.compute()), item(many.compute())]
    collectives = len(calls)
    answer += [{name: child.compute().item() for name, child in many.items()}, one.result().matrices().tolist()]
    torch.distributed.all_reduce = original
    return *answer, many.result().matrices().tolist(), collectives, len(calls)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_processes_gives_the_same_numbers(world):
    scores, target = data()
    classes, of_three = data(shape=(300, 3), seed=8)[0], target + target.roll(1)
    best = max(expected_values(iba, scores, target, even(101, torch.float32)))
    for one, many, logged, matrices, of_classes, collectives, with_children in launch(world, uneven):
        assert one["value"] == pytest.approx(best, abs=1e-6)
        assert matrices == expected_matrices(scores, target, even(101, torch.float32))
        for index in range(3):
            assert of_classes[index] == expected_matrices(classes[:, index], of_three == index, even(21, torch.float32))
        assert logged == many
        assert collectives == 2  # one a sweep
        assert with_children == 3  # and one for all children


def bad_on_one_rank(rank, world):
    sweep = ThresholdSweep(imbtorch.FScore, 11)
    scores = GOOD[0] if rank == 0 else torch.tensor([0.5, torch.nan])
    sweep.update(scores, GOOD[1])
    try:
        sweep.compute()
    except ValueError as error:
        return str(error)


def test_bad_input_of_one_process_raises_on_all():
    for answer in launch(2, bad_on_one_rank):
        assert "1 NaN scores" in answer


# --- the example ----------------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[2] / "examples" / "operating_point.py"


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_operating_point(given, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}
    folder = environment.pop("IMBTORCH_DATA", None)
    if given:
        if not folder or not (Path(folder) / "ecoli.csv").exists():
            pytest.skip("IMBTORCH_DATA names no folder with ecoli.csv")
        environment["IMBTORCH_DATA"] = folder
    done = run_script(EXAMPLE, "--out", str(tmp_path), "--epochs", "60", folder=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert ("ecoli" if given else "breast cancer") in done.stdout
    for words in ("flatters", "few positives", "Newcombe"):
        assert words in " ".join(done.stdout.split())
    number = r"(-?\d\.\d{3})"
    rows = re.findall(rf"test at +([01]\.?\d*\S*)(?: \(floor\))? +{number} +\[{number}, {number}\]", done.stdout)
    assert float(rows[0][0]) == 0.5
    assert len(rows) == 3
    for _, value, low, high in rows:
        assert 0 <= float(low) <= float(value) <= float(high) <= 1.05
    (kept,) = re.findall(rf"IBA on validation at \S+ +{number}", done.stdout)
    (corrected,) = re.findall(rf"corrected for the choice +{number}", done.stdout)
    assert float(corrected) < float(kept)
    (chance,) = re.findall(r"recall with probability ([\d.]+); promised at sure=0.8", done.stdout)
    assert float(chance) >= 0.79  # .8 by 2000 draws
    pixels = image.imread(tmp_path / "operating_point.png")
    assert min(pixels.shape[:2]) > 400
    assert pixels[..., :3].std() > 0.1


def test_importing_the_example_starts_nothing():
    spec = importlib.util.spec_from_file_location("operating_point", EXAMPLE)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_column_of_scores_is_swept_without_a_warning():
    scores = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    target = torch.arange(50) % 2
    column, copied = imbtorch.ThresholdSweep(imbtorch.FScore), imbtorch.ThresholdSweep(imbtorch.FScore)
    column.update(scores[:, 1], target)
    copied.update(scores[:, 1].clone(), target)
    assert column.compute() == copied.compute()


def test_rates_are_what_values_are_read_off():
    scores, target = torch.rand(40, 3), (torch.arange(40) % 4 == 0).long().unsqueeze(1).expand(-1, 3)
    for priors in (None, [0.1, 0.5, 0.01]):
        sweep = ThresholdSweep(imbtorch.FScore, 11, "multilabel", num_labels=3, prevalence=priors)
        sweep.update(scores, target)
        rates = sweep.result().rates()
        counts = sweep.result().counts
        if priors is None:
            assert torch.equal(rates, counts)
            continue
        positives = torch.tensor(priors, dtype=torch.float64)
        torch.testing.assert_close(rates.sum(-1), torch.stack((1 - positives, positives), -1))
        within = counts.double()
        torch.testing.assert_close(rates / rates.sum(-1, keepdim=True), within / within.sum(-1, keepdim=True))


def test_a_function_of_ones_own_in_a_sweep_harms_no_matrix():
    sweep = ThresholdSweep(lambda counts: counts[..., 0, 0].mul_(0) + counts[..., 1, 1], 5)
    sweep.update(torch.tensor([0.1, 0.9, 0.6]), torch.tensor([0, 1, 0]))
    sweep.compute()
    assert sweep.result().matrices().sum((-2, -1)).tolist() == [3] * 5


def test_a_sweep_of_classes_calls_itself_by_its_name_and_tallies_each_sample_once(accelerator):
    sweep = ThresholdSweep(imbtorch.FScore, 5, "multiclass", num_classes=4, per_class=True)
    assert "task='multiclass'" in repr(sweep)
    assert (sweep.task, sweep.num_classes, sweep.num_labels) == ("multiclass", 4, None)
    assert not hasattr(sweep, "margins")
    scores, target = torch.rand(6, 4), torch.tensor([0, 1, 2, 3, 9, 0])
    scores[0, 2], scores[1, 0], scores[2, 1] = float("nan"), 1.5, -0.5
    sweep.update(scores, target)
    with pytest.raises(ValueError, match=r"4 of the samples.*: 1 targets out of range, 1 NaN scores, 2 probabilities"):
        sweep.compute()
