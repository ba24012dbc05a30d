"""Sweeps of thresholds against scikit-learn at each threshold: any dtype, any chunks, any number of processes."""

import copy
import functools
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from processes import launch
from report_cases import directed
from sklearn import metrics as sk
from sweeps import (
    ALSO,
    LABELS,
    MEASURES,
    best_of_all_thresholds,
    data,
    drawn,
    even,
    expected_matrices,
    expected_values,
    iba,
    item,
    rare,
    swept,
)
from torchmetrics import MetricCollection
from versions import traced

import imbtorch
from imbtorch import ThresholdSweep

# --- the oracle at each threshold -----------------------------------------------------------------------------------


@pytest.mark.default_cases("f1", "precision", "mcc", "lambda")
@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_at_every_threshold(name):
    measure, oracle = MEASURES[name]
    scores, target = data()
    sweep = ThresholdSweep(measure, 101)
    sweep.update(scores, target)
    found = sweep.compute()
    expected = expected_values(oracle, scores, target, even(101, torch.float32))
    thresholds, values = sweep.result().curve()
    grid = even(101, torch.float32).tolist()  # with which float32 scores are compared
    assert thresholds.tolist() == grid
    assert values.tolist() == pytest.approx(expected, abs=1e-12)
    assert found["value"].dtype == torch.float32
    chosen = round(100 * found["threshold"].item())
    assert found["threshold"].item() == grid[chosen]
    assert found["value"].item() == pytest.approx(expected[chosen], abs=1e-6)
    assert max(expected) - 0.1 < expected[chosen]


@pytest.mark.parametrize("name", ["f1", "iba", "lambda"])
def test_each_label_is_swept_apart(name):
    measure, oracle = MEASURES[name]
    scores, target = data(shape=(150, 3, 2))
    sweep = ThresholdSweep(measure, 21, "multilabel", num_labels=3, class_names=["a", "b", "c"], prefix="val_")
    sweep.update(scores, target)
    found = sweep.compute()
    assert list(found) == [f"val_{each}/{label}" for each in ("threshold", "value") for label in "abc"] + ["val_value"]
    grid = even(21, torch.float32)
    for index, label in enumerate("abc"):
        flat = scores[:, index].flatten(), target[:, index].flatten()
        expected = expected_values(oracle, *flat, grid)
        assert sweep.result().curve()[1][index].tolist() == pytest.approx(expected, abs=1e-12)
        chosen = round(20 * found[f"val_threshold/{label}"].item())
        assert found[f"val_value/{label}"].item() == pytest.approx(expected[chosen], abs=1e-6)
        assert sweep.result().matrices()[index].tolist() == expected_matrices(*flat, grid)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("extra", [(), (5,)])
def test_each_class_is_swept_against_the_rest(logits, extra):
    generator = torch.Generator().manual_seed(3)
    raw = torch.randn(120, 4, *extra, generator=generator)
    target = torch.randint(4, (120, *extra), generator=generator)
    ignored = torch.rand(120, *extra, generator=generator) < 0.1
    chances = raw.softmax(1)
    sweep = ThresholdSweep(imbtorch.f_score, 21, "multiclass", num_classes=4, logits=logits, ignore_index=7)
    sweep.update(raw if logits else chances, target.masked_fill(ignored, 7))
    found = sweep.compute()
    for index in range(4):
        kept = chances.select(1, index)[~ignored], (target[~ignored] == index).long()
        expected = expected_values(lambda t, p: sk.f1_score(t, p, zero_division=0), *kept, even(21, torch.float32))
        assert sweep.result().curve()[1][index].tolist() == pytest.approx(expected, abs=1e-12)
        chosen = round(20 * found[f"threshold/{index}"].item())
        assert found[f"value/{index}"].item() == pytest.approx(expected[chosen], abs=1e-6)


@pytest.mark.parametrize("ignore_index", [0, 3])
def test_an_ignored_class_takes_no_part(ignore_index):
    scores, _ = data(shape=(200, 4))
    target = torch.randint(4, (200,), generator=torch.Generator().manual_seed(1))
    sweep = ThresholdSweep(imbtorch.f_score, 11, "multiclass", num_classes=4, ignore_index=ignore_index)
    sweep.update(scores, target)
    sweep.compute()  # without a warning: the class is left out on purpose
    kept = target != ignore_index
    for index in range(4):
        matrices = expected_matrices(scores[kept, index], target[kept] == index, even(11, torch.float32))
        assert sweep.result().matrices()[index].tolist() == matrices


def test_logits_and_ignored_samples_of_two_classes():
    scores, target = data(torch.float64)
    ignored = torch.arange(len(target)) % 7 == 0
    sweep = ThresholdSweep(imbtorch.matthews_corrcoef, 101, logits=True, ignore_index=-100)
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
    chosen = round(100 * found["threshold"].item())
    assert found["value"].item() == pytest.approx(expected[chosen])
    assert min(expected) <= expected[chosen] < min(expected) + 0.05 < np.mean(expected)
    assert sweep["value"].higher_is_better is False
    assert ThresholdSweep(imbtorch.confusion_entropy)["value"].higher_is_better is False  # functions know their metric


def test_undefined_values_are_never_the_best():
    sweep = ThresholdSweep(lambda counts: torch.where(counts[..., 1, 1] > 1, torch.nan, counts[..., 1, 1].double()), 11)
    sweep.update(torch.tensor([0.31, 0.75, 0.1]), torch.tensor([1, 1, 0]))
    assert item(sweep.compute()) == pytest.approx({"threshold": 0.5, "value": 1.0})


# --- the life of a metric -------------------------------------------------------------------------------------------


def test_children_are_metrics_that_lightning_can_log():
    scores, target = data()
    sweep = ThresholdSweep(imbtorch.f_score, 101, prefix="val_", postfix="_x")
    sweep.update(scores, target)
    children = dict(sweep.items())
    assert list(children) == sweep.keys() == list(sweep) == ["val_threshold_x", "val_value_x"]
    assert children["val_threshold_x"].higher_is_better is None
    assert children["val_value_x"].higher_is_better is True
    assert sweep["value"] is children["val_value_x"]
    values = {name: child.compute().item() for name, child in children.items()}
    assert values == item(sweep.compute())
    expected = expected_values(MEASURES["f1"][1], scores, target, even(101, torch.float32))
    assert values["val_value_x"] == pytest.approx(expected[round(100 * values["val_threshold_x"])], abs=1e-6)
    children["val_value_x"].reset()
    assert sweep.update_count == 0


def test_reset_forward_and_clones():
    scores, target = data()
    sweep = ThresholdSweep(imbtorch.geometric_mean, 11)
    first = sweep(scores[:100], target[:100])
    oracle = MEASURES["gmean"][1]
    alone = ThresholdSweep(imbtorch.geometric_mean, 11)
    alone.update(scores[:100], target[:100])
    assert first == alone.compute()
    sweep(scores[100:], target[100:])
    total = item(sweep.compute())
    expected = expected_values(oracle, scores, target, even(11, torch.float32))
    assert total["value"] == pytest.approx(expected[round(10 * total["threshold"])], abs=1e-6)
    for twin in (pickle.loads(pickle.dumps(sweep)), copy.deepcopy(sweep), sweep.clone()):
        assert item(twin.compute()) == total
        twin.update(scores, target)
        assert item(sweep.compute()) == total
        assert repr(twin) == "ThresholdSweep(measure=geometric_mean, thresholds=11, task='binary')"
    other = ThresholdSweep(imbtorch.geometric_mean, 11)
    other.update(scores[100:], target[100:])
    sweep.reset()
    sweep.update(scores[:100], target[:100])
    sweep.merge_state(other)
    assert item(sweep.compute()) == total


def test_an_empty_sweep_warns_once():
    sweep = ThresholdSweep(imbtorch.f_score, 11)
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
        "f1": ThresholdSweep(imbtorch.f_score, torch.tensor([0.1, 0.5])),
        "iou": ThresholdSweep(imbtorch.jaccard, torch.tensor([0.1, 0.5])),
        "other": ThresholdSweep(imbtorch.f_score, torch.tensor([0.1, 0.6])),
    }
    collection = MetricCollection(dict(sweeps))
    collection.update(scores, target)
    assert sorted(map(sorted, collection.compute_groups.values())) == [["f1", "iou"], ["other"]]
    later = torch.tensor([0.55, 0.55, 0.55]), torch.tensor([1, 1, 0])
    collection.update(*later)
    for name, oracle, grid in (
        ("f1", sk.f1_score, [0.1, 0.5]),
        ("iou", sk.jaccard_score, [0.1, 0.5]),
        ("other", sk.f1_score, [0.1, 0.6]),
    ):
        grid = torch.tensor(grid).double().tolist()
        expected = expected_values(oracle, torch.cat((scores, later[0])), torch.cat((target, later[1])), grid)
        found = collection[name].compute()
        assert found["value"].item() == pytest.approx(expected[grid.index(found["threshold"].item())]), name


@pytest.mark.parametrize("different", [{"logits": True}, {"ignore_index": 2}, {"ignore_index": 1}])
def test_sweeps_of_classes_that_read_scores_differently_do_not_share_a_state(different):
    """Their first batch may well give equal counts, which is what torchmetrics goes by."""
    plain = {"num_classes": 3, "thresholds": 2}
    one = ThresholdSweep(imbtorch.f_score, task="multiclass", **plain)
    two = ThresholdSweep(imbtorch.f_score, task="multiclass", **plain, **different)
    collection = MetricCollection({"one": one, "two": two})
    collection.update(torch.full((2, 3), 1 / 3), torch.tensor([0, 0]))
    assert len(collection.compute_groups) == 2
    with pytest.raises(ValueError, match="cannot merge"):
        one.merge_state(two)


def test_repr_tells_what_was_asked_for():
    sweep = ThresholdSweep(imbtorch.f_score, 11, **CLASSES, logits=True, ignore_index=1)
    shown = "measure=f_score, thresholds=11, task='multiclass', num_classes=3, logits=True, ignore_index=1"
    assert repr(sweep) == f"ThresholdSweep({shown})"


# --- what is refused ------------------------------------------------------------------------------------------------

GOOD = torch.tensor([0.2, 0.8]), torch.tensor([0, 1])
CLASSES = {"task": "multiclass", "num_classes": 3}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"thresholds": 1}, ValueError, "thresholds must be at least 2"),
        ({"thresholds": "multiclass", "num_classes": 3}, TypeError, "got 'multiclass'; use task='multiclass'"),
        ({"thresholds": True}, TypeError, "thresholds must be a number of thresholds or a tensor"),
        ({"thresholds": 0.5}, TypeError, "thresholds must be a number of thresholds or a tensor"),
        ({"thresholds": torch.tensor([0.5, 0.1])}, ValueError, r"thresholds must be sorted.*sort\(\)"),
        ({"thresholds": torch.tensor([0.5, 1.1])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([-0.5, 0.1])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([torch.nan])}, ValueError, "thresholds must be sorted and lie in"),
        ({"thresholds": torch.tensor([])}, ValueError, "thresholds must be sorted and lie in"),
        ({"class_names": ["a", "b"]}, ValueError, "must be left out in task=.binary"),
        ({"task": "multiclass"}, ValueError, "needs num_classes"),
        ({"task": "multilabel"}, ValueError, "needs num_labels"),
        ({"task": "other"}, ValueError, "task must be one of"),
        ({**CLASSES, "class_names": ["a", "b"]}, ValueError, "class_names must hold 3 names, got 2"),
        ({**CLASSES, "class_names": ["a", "b", "b"]}, ValueError, "class_names must differ"),
        ({**CLASSES, "class_names": "abc"}, TypeError, "class_names must be a sequence"),
        ({"class_names": ["no", "yes"]}, ValueError, "class_names"),
        ({"measure": imbtorch.ConfusionMatrix}, TypeError, "got <class 'imbtorch.metrics.single.Conf"),
        ({"measure": 3}, TypeError, "must be the name of a measure"),
        ({"on_invalid": "drop"}, ValueError, "on_invalid"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ThresholdSweep(**{"measure": imbtorch.f_score, **arguments})


def test_a_measure_that_returns_no_value_for_each_threshold():
    for measure in (lambda counts: counts.sum(), lambda counts: counts[1, 1] / counts.sum()):
        with pytest.raises(ValueError, match=r"must return one value for each matrix, \[\d+\].*counts\[..., 0, 0\]"):
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
    one, many = ThresholdSweep(imbtorch.index_balanced_accuracy, 101), ThresholdSweep(imbtorch.f_score, 21, **CLASSES)
    for index, start in enumerate(range(0, 300, 13)):
        if rank == index % max(1, world - 1):
            chunk = slice(start, start + 13)
            one.update(scores[chunk], target[chunk])
            many.update(classes[chunk], (target + target.roll(1))[chunk])
    torch.distributed.all_reduce = counted
    answer = [item(one.compute()), item(many.compute())]
    collectives = len(calls)
    answer += [
        {name: child.compute().item() for name, child in zip(many, many.values(), strict=True)},
        one.result().matrices().tolist(),
    ]
    torch.distributed.all_reduce = original
    return *answer, many.result().matrices().tolist(), collectives, len(calls)


@pytest.mark.default_cases("2")
@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_processes_gives_the_same_numbers(world):
    scores, target = data()
    classes, of_three = data(shape=(300, 3), seed=8)[0], target + target.roll(1)
    expected = expected_values(iba, scores, target, even(101, torch.float32))
    for one, many, logged, matrices, of_classes, collectives, with_children in launch(world, uneven):
        assert one["value"] == pytest.approx(expected[round(100 * one["threshold"])], abs=1e-6)
        assert matrices == expected_matrices(scores, target, even(101, torch.float32))
        for index in range(3):
            assert of_classes[index] == expected_matrices(classes[:, index], of_three == index, even(21, torch.float32))
        assert logged == many
        assert collectives == (2 if world == 1 else 4)  # one a sweep, and one that compares its settings once
        assert with_children == collectives + 1  # and one for all children


def bad_on_one_rank(rank, world):
    sweep = ThresholdSweep(imbtorch.f_score, 11)
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


def test_a_column_of_scores_is_swept_without_a_warning():
    scores = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    target = torch.arange(50) % 2
    column, copied = imbtorch.ThresholdSweep(imbtorch.f_score), imbtorch.ThresholdSweep(imbtorch.f_score)
    column.update(scores[:, 1], target)
    copied.update(scores[:, 1].clone(), target)
    assert column.compute() == copied.compute()


def test_a_function_of_ones_own_in_a_sweep_harms_no_matrix():
    sweep = ThresholdSweep(lambda counts: counts[..., 0, 0].mul_(0) + counts[..., 1, 1], 5)
    sweep.update(torch.tensor([0.1, 0.9, 0.6]), torch.tensor([0, 1, 0]))
    sweep.compute()
    assert sweep.result().matrices().sum((-2, -1)).tolist() == [3] * 5


def test_a_sweep_of_classes_calls_itself_by_its_name_and_tallies_each_sample_once(accelerator):
    sweep = ThresholdSweep(imbtorch.f_score, 5, "multiclass", num_classes=4)
    assert "task='multiclass'" in repr(sweep)
    assert (sweep.task, sweep.num_classes, sweep.num_labels) == ("multiclass", 4, None)
    assert not hasattr(sweep, "margins")
    scores, target = torch.rand(6, 4), torch.tensor([0, 1, 2, 3, 9, 0])
    scores[0, 2], scores[1, 0], scores[2, 1] = float("nan"), 1.5, -0.5
    sweep.update(scores, target)
    with pytest.raises(ValueError, match=r"4 of the samples.*: 1 targets out of range, 1 NaN scores, 2 probabilities"):
        sweep.compute()


def test_further_values_are_logged_with_a_direction():
    sweep, logits, target = swept(also=ALSO, prefix="val_")
    assert sweep.keys() == ["val_threshold", "val_value", "val_auc", "val_average_precision", "val_partial_auc"]
    found = {name: value.item() for name, value in sweep.compute().items()}
    assert found["val_auc"] == pytest.approx(sk.roc_auc_score(target, logits), abs=1e-3)
    assert found["val_average_precision"] == pytest.approx(sk.average_precision_score(target, logits), abs=2e-3)
    assert all(sweep[name].higher_is_better is True for name in ALSO)
    assert {name: sweep[name].compute().item() for name in ALSO} == {name: found[f"val_{name}"] for name in ALSO}
    assert sweep.also == ALSO
    assert "also=('auc'" in repr(sweep)


def test_further_values_of_labels():
    sweep, logits, target = swept(also=("average_precision", "auc"), **LABELS)
    found = sweep.compute()
    names = [f"{name}{label}" for name in ("average_precision", "auc") for label in ("/cat", "/dog", "")]
    assert list(found)[5:] == names
    for index, label in enumerate(("cat", "dog")):
        expected = sk.average_precision_score(target[:, index], logits[:, index])
        assert found[f"average_precision/{label}"].item() == pytest.approx(expected, abs=2e-3)
        assert sweep.interval("average_precision").estimate[index].item() == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_the_mean_of_labels_or_classes_has_the_name_without_a_suffix(task):
    """The oracle is scikit-learn's value of each label at its threshold; labels without positives are left out."""
    draw = np.random.default_rng(0)
    classes = draw.integers(3, size=300)
    scores = 0.4 * np.eye(4)[classes] + draw.dirichlet(np.ones(4), 300) * 0.6
    target = np.eye(4, dtype=int)[classes]  # the last one has no positives
    options = {"num_labels": 4} if task == "multilabel" else {"num_classes": 4}
    sweep = ThresholdSweep("f1", task=task, **options)
    sweep.update(torch.from_numpy(scores), torch.from_numpy(target if task == "multilabel" else classes))
    with pytest.warns(UserWarning, match="had no"):
        found = sweep.compute()
    each = [sk.f1_score(target[:, at], scores[:, at] > found[f"threshold/{at}"].item()) for at in range(3)]
    assert found["value"].item() == pytest.approx(np.mean(each), abs=1e-6)
    assert sweep["value"].higher_is_better
    assert len(sweep.table().rows()) == 4 if hasattr(sweep.table(), "rows") else True
    assert sweep.interval("value").estimate.shape == (4,)


def test_there_is_no_mean_while_a_label_keeps_no_limit():
    scores = torch.tensor([[0.9, 0.2], [0.8, 0.9], [0.2, 0.6], [0.1, 0.7]])
    target = torch.tensor([[1, 1], [1, 0], [0, 0], [0, 0]])
    sweep = ThresholdSweep("recall", task="multilabel", num_labels=2, at_least={"precision": 0.9})
    sweep.update(scores, target)
    with pytest.warns(UserWarning, match="1: no threshold has precision >= 0.9"):
        found = sweep.compute()
    assert (found["value/0"], found["value/1"]) == (1, 0)  # the worst possible value
    assert found["value"].isnan()
    sweep.reset()
    sweep.update(scores, torch.tensor([[1, 0], [1, 1], [0, 0], [0, 0]]))
    assert sweep.compute()["value"] == 1


def test_net_benefit_is_swept_at_one_price():
    """That of its own threshold would make .001 the best of all: right alarms of everybody, false ones for nothing."""
    _, logits, target = swept(samples=600)
    chances = logits.sigmoid()

    def benefit(cut):
        hits, false = int(target[chances > cut].sum()), int((1 - target)[chances > cut].sum())
        return Fraction(hits, 600) - Fraction(false, 600 * 4)

    expected = max(map(benefit, [0.0, *chances.tolist()]))
    for measure in (
        functools.partial(imbtorch.net_benefit, threshold=0.2),
        imbtorch.NetBenefit("binary", threshold=0.2).evaluate,
    ):
        sweep = swept(measure, samples=600)[0]
        logged = sweep.compute()
        assert logged["value"].item() == pytest.approx(float(benefit(logged["threshold"].item())), abs=1e-6)
        assert sweep.best(alerts=0.9).value == pytest.approx(float(expected))
        metric = sweep.metric(imbtorch.ConfusionMatrix, at=sweep.best(alerts=0.9))
        found = imbtorch.net_benefit(metric(logits, target), threshold=0.2)
        assert found.item() == pytest.approx(float(expected))
    for unpriced in (imbtorch.net_benefit, "net_benefit", functools.partial(imbtorch.net_benefit)):
        with pytest.raises(ValueError, match=r"names net_benefit, which prices.*partial\(imbtorch.net_benefit, thresh"):
            ThresholdSweep(unpriced)
    with pytest.raises(ValueError, match=r"at_least names net_benefit, which prices .*costs"):
        swept(samples=100)[0].best(at_least={"net_benefit": 0.0})


def test_a_measure_without_a_direction_is_refused_whichever_way_it_is_given():
    for without in (imbtorch.dominance, "dominance", functools.partial(imbtorch.dominance)):
        with pytest.raises(ValueError, match="measure dominance has no direction; pass higher_is_better=True or False"):
            ThresholdSweep(without)
    logits, target = drawn(300)
    chances = logits.sigmoid()
    sweep = ThresholdSweep(lambda counts: -imbtorch.dominance(counts).abs(), chances.sort().values)
    sweep.update(chances, target)
    found = sweep.compute()
    cut = found["threshold"].item()
    right = Fraction(int(target[chances > cut].sum()), int(target.sum()))
    left = Fraction(int((1 - target)[chances <= cut].sum()), int((1 - target).sum()))
    assert found["value"].item() == pytest.approx(-float(abs(right - left)), abs=1e-6)
    upwards = swept(directed(imbtorch.dominance, True), samples=300)[0]
    assert upwards.compute()["value"] > 0.98
    assert upwards["value"].higher_is_better is True


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sweep: sweep.best(alerts="x"), "alerts must be a number, got 'x'"),
        (lambda sweep: sweep.best(at_least={"recall": "x"}), r"at_least\['recall'\] must be a number, got 'x'"),
        (lambda sweep: sweep.best(at_least={"recall": 0.1}, sure="x"), "sure must be a number, got 'x'"),
        (lambda sweep: sweep.interval("value", level="x"), "level must be a number, got 'x'"),
        (lambda sweep: sweep.best(at_least=[0.8]), "at_least must be a dict of floors"),
    ],
)
def test_what_is_no_number_is_named(call, message):
    with pytest.raises(TypeError, match=message):
        call(swept(samples=100)[0])


def test_everything_is_read_at_the_prevalence():
    """As if each negative had come eleven times: what scikit-learn makes of those weights."""
    logits, target = drawn(1000)
    positives = int(target.sum())
    weight = torch.where(target == 1, 1.0, 11.0).numpy()
    prevalence = [11 * (1000 - positives), positives]
    sweep = ThresholdSweep("f1", logits=True, also=ALSO[:2], prevalence=prevalence)
    sweep.update(logits, target)
    found = sweep.compute()
    assert found["average_precision"].item() == pytest.approx(
        sk.average_precision_score(target, logits, sample_weight=weight), abs=2e-3
    )
    assert found["auc"].item() == pytest.approx(sk.roc_auc_score(target, logits), abs=1e-3)
    assert sweep.prevalence == tuple(map(float, prevalence))
    chances = [found["threshold"].item()]
    preds = logits > math.log(chances[0] / (1 - chances[0]))
    assert found["value"].item() == pytest.approx(sk.f1_score(target, preds, sample_weight=weight), abs=1e-6)
    point = sweep.best(alerts=0.01, generator=torch.Generator().manual_seed(0))
    preds = (logits > math.log(point.threshold / (1 - point.threshold))).numpy()
    assert point.alerts <= 0.01
    assert point.alerts == pytest.approx(np.average(preds, weights=weight))
    assert point.precision == pytest.approx(sk.precision_score(target, preds, sample_weight=weight))
    value = sweep.interval("value", generator=torch.Generator().manual_seed(0))
    assert value.low < found["value"] < value.high + 0.1


@pytest.mark.filterwarnings("ignore:.*too few for this prevalence")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_stays_nothing_at_other_shares(seed, weighted):
    """NPV where all are flagged is 0/0; a difference of sums left 1e-17 of either class, and values up to 2."""
    generator = torch.Generator().manual_seed(seed)
    scores, target = torch.rand(200, generator=generator, dtype=torch.float64), (torch.arange(200) < 13).long()
    weight = torch.tensor([1 / 187, 1 / 13], dtype=torch.float64)[target]
    sweep = ThresholdSweep("npv", 101, **({"weighted": True} if weighted else {"prevalence": [1, 1]}))
    sweep.update(scores, target, **({"weight": weight} if weighted else {}))
    expected = []
    for cut in sweep.thresholds.tolist():
        below = (
            weight[(scores <= cut) & (target == 0)].sum().item(),
            weight[(scores <= cut) & (target == 1)].sum().item(),
        )
        expected.append(below[0] / sum(below) if sum(below) else 0.0)
    assert sweep.result().curve()[1].tolist() == pytest.approx(expected, abs=1e-9)
    found = sweep.compute()
    assert found["value"].item() == pytest.approx(expected[round(100 * found["threshold"].item())], abs=1e-6)


def test_the_prevalence_of_labels_and_classes():
    sweep, _, target = swept("f1", **LABELS, prevalence=[0.5, 0.5])
    alone = ThresholdSweep("f1", logits=True, prevalence=[1, 1])
    alone.update(*drawn(2000))
    assert sweep.compute()["value/cat"] == alone.compute()["value"]
    classes = ThresholdSweep("f1", task="multiclass", num_classes=2, logits=True, prevalence=[1, 1])
    logits, target = drawn(2000)
    classes.update(torch.stack((torch.zeros_like(logits), logits), 1), target)
    assert classes.compute()["value/1"] == alone.compute()["value"]
    with pytest.raises(ValueError, match="prevalence must hold one share for each of 2 classes"):
        ThresholdSweep("f1", prevalence=0.01)
    with pytest.raises(ValueError, match="also must be one of 'auc'"):
        ThresholdSweep("f1", also=["aucc"])
    with pytest.raises(TypeError, match=r"also=\('auc',\)"):
        ThresholdSweep("f1", also="auc")


def of_a_share(rank, world):
    logits, target = drawn(300)
    sweep = ThresholdSweep("f1", logits=True, also=ALSO, prevalence=[0.99, 0.01])
    sweep.update(logits[rank::world], target[rank::world])
    found = {name: value.item() for name, value in sweep.compute().items()}
    point = sweep.best(at_least={"recall": 0.5}, generator=torch.Generator().manual_seed(0))
    return found, str(point), sweep.interval("value", generator=torch.Generator().manual_seed(0)).low.item()


def test_any_number_of_processes_chooses_alike():
    alone = of_a_share(0, 1)
    for world in (2, 3):
        assert launch(world, of_a_share) == [alone] * world


def test_an_update_is_traced_as_one_graph():
    sweep, expected = (ThresholdSweep("f1", logits=True, also=ALSO) for _ in range(2))
    logits, target = drawn(300)
    update = traced(lambda *batch: sweep.update(*batch))
    update(logits, target)
    expected.update(logits, target)
    found, right = sweep.compute(), expected.compute()
    torch.testing.assert_close(found.pop("threshold"), right.pop("threshold"))  # a graph notes no dtype of the scores
    assert found == right


@pytest.mark.default_cases("0.5-1.0", "0.01-0.25", "0.001-4.0")
@pytest.mark.parametrize("gain", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("prevalence", [0.5, 0.01, 1e-3, 1e-4])
def test_the_default_grid_holds_for_rare_events(prevalence, gain):
    logits, target = rare(prevalence, gain, positives=100 if prevalence < 1e-3 else 400, dtype=torch.float32)
    f1, gmean = best_of_all_thresholds(logits, target)
    auc, precision = sk.roc_auc_score(target, logits), sk.average_precision_score(target, logits)
    of_logits = ThresholdSweep("f1", logits=True)
    of_logits.update(logits, target)
    of_chances = ThresholdSweep("f1")
    of_chances.update(logits.double().sigmoid(), target)
    for sweep in (of_logits, of_chances):
        assert sweep.result().curve()[1].max().item() == pytest.approx(f1, abs=0.002)
        assert sweep.result().auc().item() == pytest.approx(auc, abs=0.002)
        assert sweep.result().average_precision().item() == pytest.approx(precision, abs=0.002)
    sweep = ThresholdSweep("gmean", logits=True)
    sweep.update(logits, target)
    assert sweep.result().curve()[1].max().item() == pytest.approx(gmean, abs=0.002)


def test_areas_and_curves_are_those_of_scikit_learn_where_scores_of_a_bin_are_equal():
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(21, (400,), generator=generator)
    target = (torch.rand(400, generator=generator) * 40 < steps).long()
    sweep = ThresholdSweep("f1", 21)
    sweep.update(steps / 20.0, target)
    sweep.compute()
    assert sweep.result().average_precision().item() == pytest.approx(
        sk.average_precision_score(target, steps), abs=1e-12
    )
    precision, recall, _ = sk.precision_recall_curve(target, steps)
    found = torch.stack(sweep.result().precision_recall()).flip(1)
    found = found[:, ~found[1].isnan()]
    np.testing.assert_allclose(np.unique(found, axis=1), np.unique([recall[:-1], precision[:-1]], axis=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.parametrize("gain", [1.0, 8.0])
def test_a_metric_of_the_threshold_counts_what_the_sweep_counted(task, dtype, gain):
    logits, target = rare(0.2, gain, positives=400, dtype=dtype)
    settings = {"task": task, "logits": True} | ({"num_labels": 2} if task == "multilabel" else {})
    if task == "multilabel":
        logits, target = torch.stack((logits, logits + 30), 1), torch.stack((target, target), 1)
    sweep = ThresholdSweep("f1", **settings)
    sweep.update(logits, target)
    found = sweep.compute()
    best = [value.item() for name, value in found.items() if name.startswith("threshold")]
    values = [value.item() for name, value in found.items() if name.startswith("value")][: len(best)]
    average = {"average": "none"} if task == "multilabel" else {}
    metric = imbtorch.FScore(**settings, **average, threshold=best if task == "multilabel" else best[0])
    metric.update(logits, target)
    assert metric.compute().flatten().tolist() == values
    for index, value in enumerate(values):
        scores = logits.reshape(len(logits), -1)[:, index].double()
        preds = scores > math.log(best[index] / (1 - best[index]))
        assert value == pytest.approx(sk.f1_score(target.reshape(len(target), -1)[:, index], preds), abs=1e-6)


@pytest.mark.filterwarnings("ignore:ThresholdSweep.*had no .*target")
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_macro_averages_are_those_of_scikit_learn(task):
    """Over the classes that come: the last of four never does."""
    random = np.random.default_rng(0)
    target = random.choice(3, 500, p=[0.6, 0.3, 0.1])
    scores = 0.7 * random.dirichlet([2.0, 1.0, 0.5, 0.5], 500) + 0.3 * np.eye(4)[target]
    options = {"num_classes": 4} if task == "multiclass" else {"num_labels": 4}
    sweep = ThresholdSweep(imbtorch.f_score, task=task, also=("auc", "average_precision", "partial_auc"), **options)
    one_hot = np.eye(4, dtype=int)[target]
    given = torch.from_numpy(scores), torch.from_numpy(target if task == "multiclass" else one_hot)
    sweep.update(*given)
    values, present = sweep.compute(), (one_hot[:, :3], scores[:, :3])
    wanted = {
        "auc": sk.roc_auc_score(*present, average="macro"),
        "average_precision": sk.average_precision_score(*present, average="macro"),
    }
    assert {name: values[name].item() for name in wanted} == pytest.approx(wanted, abs=0.002)
    assert "partial_auc" not in values
    assert sweep["auc"].higher_is_better
    sweep.reset()
    sweep.update(*(each[target == 0] for each in given))
    assert math.isnan(sweep.compute()["auc"])


@pytest.mark.parametrize(("negatives", "told"), [(100, True), (100_000, False)])
def test_few_negatives_at_a_prevalence_are_told(negatives, told):
    """One false positive of 100 at 1000:1 takes the precision of 8 perfect positives from 1 to .09 (8 / 10 of the
    positives against 1000 / 100 negatives for each); in the counts it would be 8 / 9.
    """
    scores = torch.cat((torch.linspace(0, 0.5, negatives), torch.tensor([0.1, 0.2] + [0.9] * 8)))
    target = torch.cat((torch.zeros(negatives), torch.ones(10))).long()
    sweep = ThresholdSweep("precision", prevalence=[1000, 1])
    sweep.update(scores, target)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sweep.compute()
        sweep.compute()
    texts = [str(each.message) for each in caught if "too few for this prevalence" in str(each.message)]
    assert len(texts) == told
    if told:
        change = (1 - 0.8 / (0.8 + 1000 / 100)) - (1 - 8 / 9)
        assert (
            f"100 negatives are too few for this prevalence; one error more would change value, by up to {change:.2f}"
            in texts[0]
        )


def test_a_prevalence_may_name_its_classes():
    in_order, named = [0.7, 0.2, 0.1], {"emu": 0.1, "cat": 0.7, "dog": 0.2}
    arguments = {"task": "multiclass", "num_classes": 3, "class_names": ["cat", "dog", "emu"]}
    sweeps = [ThresholdSweep("f1", prevalence=each, **arguments) for each in (in_order, named)]
    assert [each.prevalence for each in sweeps] == [tuple(in_order)] * 2
    with pytest.raises(ValueError, match=r"prevalence must name every class; missing are \['emu'\]"):
        ThresholdSweep("f1", prevalence={"cat": 0.7, "dog": 0.3}, **arguments)


# --- areas alone, and what is logged ----------------------------------------------------------------------------------


def test_areas_need_no_measure_and_choose_no_threshold():
    logits, target = drawn(500)
    sweep = ThresholdSweep(also=["auc", "average_precision"], logits=True, prefix="test_")
    sweep.update(logits, target)
    found = sweep.compute()
    assert list(found) == list(sweep) == ["test_auc", "test_average_precision"]
    exact = sk.roc_auc_score(target, logits), sk.average_precision_score(target, logits)
    assert [value.item() for value in found.values()] == pytest.approx(exact, abs=0.002)
    assert repr(sweep).startswith("ThresholdSweep(also=('auc', 'average_precision')")
    result = pickle.loads(pickle.dumps(sweep)).result()
    assert result.interval("auc").low < exact[0] < result.interval("auc").high
    _, axes = sweep.plot()
    assert [ax.get_title() for ax in axes] == ["ROC", "Precision over recall"]
    assert not [text for ax in axes for text in ax.texts]
    plt.close("all")
    refused = (sweep.best, sweep.gain, sweep.table, result.curve, lambda: result.rule, lambda: result.log_odds)
    for call in (*refused, lambda: sweep.plot("value"), lambda: sweep.metric(imbtorch.Recall)):
        with pytest.raises(ValueError, match="no threshold was chosen, because the sweep computes areas alone"):
            call()
    with pytest.raises(ValueError, match="name must be one of 'auc', 'average_precision', got 'value'"):
        sweep.interval("value")


@pytest.mark.parametrize(
    "arguments",
    [{}, {"also": ["partial_auc"]}, {"also": ["auc"], "alerts": 0.1}, {"also": ["auc"], "costs": [[0, 1], [5, 0]]}],
)
def test_whatever_is_chosen_is_chosen_for_a_measure(arguments):
    with pytest.raises(ValueError, match="measure must name what the threshold is chosen for, such as 'f1'"):
        ThresholdSweep(**arguments)


@pytest.mark.parametrize(("task", "size"), [("multilabel", "num_labels"), ("multiclass", "num_classes")])
def test_thresholds_of_several_labels_are_computed_but_not_logged(task, size):
    scores = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    target = scores.argmax(1) if task == "multiclass" else (scores > 0.6).long()
    sweep = ThresholdSweep("f1", task=task, also=["auc"], prefix="val_", **{size: 3})
    sweep.update(scores.softmax(1) if task == "multiclass" else scores, target)
    logged = {f"val_{name}{of}" for name in ("value", "auc") for of in ("", "/0", "/1", "/2")}
    assert {name for name, _ in sweep.items()} == logged
    assert sweep.compute().keys() - logged == {f"val_threshold/{at}" for at in range(3)}
    assert sweep["threshold/1"].compute() == sweep.compute()["val_threshold/1"]
