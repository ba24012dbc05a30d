"""Checks of arguments that many functions share."""

import inspect
from functools import partial

import pytest
import torch
from rooms import computed_on_cpu

import imbtorch
from imbtorch import balanced_accuracy, papers, statistics

TARGET = torch.tensor([0, 0, 0, 1, 1, 0])
COUNTS = torch.tensor([[3, 1], [1, 1]])
COLUMNS = {"y": [0, 1] * 4, "p": [0, 1, 1, 0] * 2, "g": list("aabb") * 2}
GROUPED = imbtorch.report(COLUMNS, target="y", preds="p", group="g")
FUNCTIONS = {
    "beats_baseline": (balanced_accuracy, COUNTS),
    "bootstrap": (balanced_accuracy, COUNTS),
    "compare": (balanced_accuracy, COUNTS, COUNTS),
    "compare_groups": (GROUPED, "recall", "a", "b"),
    "invariance_table": ({"a": balanced_accuracy},),
    "invariances": (balanced_accuracy,),
    "measure_correlations": ({"a": balanced_accuracy},),
    "over_runs": ({"a": [TARGET, TARGET]}, TARGET, balanced_accuracy),
    "paired_compare": (balanced_accuracy, TARGET, TARGET, TARGET, 2),
    "perturbed_scores": (12, 0.25, 0.0, 0.0),
    "posterior": (balanced_accuracy, COUNTS),
    "select_epoch": ({"a": TARGET}, TARGET, balanced_accuracy),
}


def of_name(name):
    return getattr(papers, name, None) or getattr(statistics, name)


def called(name):
    return partial(of_name(name), *FUNCTIONS[name])


def methods():
    sweep = imbtorch.ThresholdSweep("f1", also=["auc"])
    sweep.update(torch.tensor([0.1, 0.2, 0.6, 0.7, 0.9, 0.3]), TARGET)
    report, metric = imbtorch.ImbalanceReport("binary"), imbtorch.BalancedAccuracy("binary")
    for counting in (report, metric):
        counting.update(TARGET, TARGET)
    data = imbtorch.Predictions({"label": [0, 1], "old": [0, 1], "new": [1, 1]}, target="label")
    yield data.compare, ("old", "new", "recall")
    yield from ((sweep.best, ()), (sweep.interval, ("auc",)), (sweep.interval, ("value",)))
    yield from ((report.interval, ("iam",)), (report.result().interval, ("iam",)), (metric.interval, ()))


def test_a_seed_is_no_generator_anywhere():
    taking = [name for name in [*papers.__all__, *statistics.__all__] if callable(of_name(name))]
    assert sorted(FUNCTIONS) == [
        name for name in sorted(taking) if "generator" in inspect.signature(of_name(name)).parameters
    ]
    calls = [(called(name), ()) for name in FUNCTIONS]
    for call, arguments in [*calls, *methods()]:
        for seed in (0, 7):
            remedy = rf"torch.Generator, got {seed}; pass torch.Generator\(\).manual_seed\(0\)$"
            with pytest.raises(TypeError, match=remedy):
                call(*arguments, generator=seed)


class Elsewhere(torch.Generator):
    device = torch.device("cuda", 0)


def test_a_generator_of_another_device_is_refused():
    for name in FUNCTIONS:
        with pytest.raises(ValueError, match=r"generator must be on the CPU.* got one on cuda:0; pass torch.Generator"):
            called(name)(generator=Elsewhere())


@pytest.mark.parametrize("default", ["cpu", "meta"])
def test_tensors_are_brought_to_the_cpu(default):
    @computed_on_cpu
    def devices(*given, **named):
        made = torch.zeros(1)
        return made.device.type, [each.device.type for each in (*given[0], *given[1]["a"], named["b"])], type(given[0])

    tensor = torch.zeros(2)
    with torch.device(default):
        found = devices(imbtorch.Margins(tensor, tensor, tensor), {"a": [tensor]}, b=tensor)
    assert found == ("cpu", ["cpu"] * 5, imbtorch.Margins)


def test_the_remedy_for_a_list_of_tensors_works():
    metric = imbtorch.Accuracy("binary")
    for sizes, remedy in (((3, 3), "stack"), ((3, 2), "cat")):
        parts = [torch.zeros(size, dtype=torch.long) for size in sizes]
        with pytest.raises(TypeError, match=rf"use torch\.{remedy}\(preds\)"):
            metric.update(parts, parts)
        joined = getattr(torch, remedy)(parts)
        metric.update(joined, joined)


SIGNS = torch.tensor([-1, 1, -1, -1, 1])


@pytest.mark.parametrize(
    ("metric", "target", "shape"),
    [
        (imbtorch.Recall("binary"), SIGNS, (5,)),
        (imbtorch.Recall("multiclass", num_classes=2), SIGNS, (5, 2)),
        (imbtorch.Recall("multilabel", num_labels=2), torch.stack((SIGNS, -SIGNS), 1), (5, 2)),
        (imbtorch.ThresholdSweep("f1"), SIGNS, (5,)),
        (imbtorch.Recall("binary", ignore_index=-100), torch.tensor([-1, 1, -100, -1, 1]), (5,)),
    ],
)
def test_classes_of_both_signs_get_a_remedy_that_keeps_the_negatives(metric, target, shape):
    scores = torch.linspace(0.1, 0.4, 5).reshape(5, *[1] * (len(shape) - 1)).expand(shape).clone()
    if metric.task == "multiclass":
        scores[:, 0] = 1 - scores[:, 1]
    with pytest.raises(
        ValueError, match=r"target holds class -1 but .*if the classes are -1 and 1, pass \(target \+ 1\) // 2"
    ) as told:
        metric.update(scores, target)
    assert "ignore_index" not in str(told.value)
    metric.update(scores, torch.where(target == -100, target, (target + 1) // 2))  # as advised


def test_other_classes_out_of_range_may_be_marks():
    for target in (torch.tensor([-1, 0, 1]), torch.tensor([-1, -1, -1]), torch.tensor([-1, 0, 0])):
        with pytest.raises(ValueError, match="if -1 marks ignored samples, pass ignore_index=-1"):
            imbtorch.Recall("binary").update(torch.zeros(3), target)


@pytest.mark.parametrize(
    "metric",
    [imbtorch.Recall("binary"), imbtorch.Recall("multilabel", num_labels=1), imbtorch.ThresholdSweep("f1")],
)
def test_percentages_are_told_from_logits(metric):
    target = torch.tensor([0, 1, 1])
    shape = (3, 1) if metric.task == "multilabel" else (3,)
    percent = torch.tensor([12.0, 50.0, 99.0]).reshape(shape)
    with pytest.raises(ValueError, match=r"got 12 .*; divide percentages by 100, or pass logits=True for raw scores$"):
        metric.update(percent, target.reshape(shape))
    with pytest.raises(ValueError, match=r"got -2 .*\); pass logits=True for raw scores$"):
        metric.update(torch.tensor([-2.0, 3.0, 0.5]).reshape(shape), target.reshape(shape))
    metric.update(percent / 100, target.reshape(shape))
