"""ImbalanceReport on one process: names, values, what reading one of them means, and how it looks."""

import copy
import csv
import functools
import io
import itertools
import json
import math
import pickle
import re
import warnings
from multiprocessing.reduction import ForkingPickler

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from imblearn import metrics as imblearn_metrics
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.classification import MulticlassAccuracy

import imbtorch
from imbtorch import Accuracy, ImbalanceReport
from imbtorch.metrics import catalogue as metrics
from imbtorch.metrics.rows import Overall

mpl.use("Agg")
from matplotlib import pyplot as plt

OVERALL = ["iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc"]
BINARY = [*OVERALL, "iba"]
TWO_CLASSES = [*OVERALL, "dominance", "iba", "op", "dominance_area"]
NAMES = {"binary": BINARY, "multiclass": OVERALL, "multilabel": OVERALL}
SIZES = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}
TASKS = tuple(SIZES)
SINGLE = {
    "iam": "ImbalanceAccuracy",
    "cba": "ClassBalanceAccuracy",
    "accuracy": "Accuracy",
    "balanced_accuracy": "BalancedAccuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "FScore",
    "gmean": "GeometricMean",
    "mcc": "MatthewsCorrCoef",
    "dominance": "Dominance",
    "iba": "IndexBalancedAccuracy",
    "op": "OptimizedPrecision",
    "dominance_area": "AccuracyDominanceArea",
}
PER_CLASS = {
    "recall": "Recall",
    "precision": "Precision",
    "specificity": "Specificity",
    "f1": "FScore",
    "fowlkes_mallows": "FowlkesMallows",
    "cba": "ClassBalanceAccuracy",
    "iam": "ImbalanceAccuracy",
}
SHOWN = ["precision", "recall", "f1", "cba", "iam"]
COLUMNS = ["support", "predicted", *SHOWN]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def column(table, name):
    return [row[name] for row in table.classes.values()]


def data(task, samples=60, seed=0, classes=3):
    """Predicted and true classes (or labels), mostly equal, in which everything occurs."""
    random = torch.Generator().manual_seed(seed)
    high = classes if task == "multiclass" else 2
    shape = (samples, classes) if task == "multilabel" else (samples,)
    target = torch.randint(high, shape, generator=random)
    noise = torch.randint(high, shape, generator=random)
    target[:high] = torch.arange(high).reshape(-1, *[1] * (len(shape) - 1)).expand(target[:high].shape)
    return torch.where(torch.rand(shape, generator=random) < 0.6, target, noise), target


def filled(task, seed=0, **kwargs):
    sizes = {} if "class_names" in kwargs else SIZES[task]
    report = ImbalanceReport(task, **sizes, **kwargs)
    report.update(*data(task, seed=seed))
    return report


def numbers(values):
    return {name: value.item() for name, value in values.items()}


def assert_same(found, wanted, tolerance=2e-6):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(float(value), rel=tolerance, abs=tolerance, nan_ok=True), name


def error_rate(counts):
    return 1 - imbtorch.accuracy(counts)


def hits_of_last(counts):
    """Recall of the last class, read off the cells of one matrix."""
    return counts[-1, -1] / counts[-1].sum()


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_default_names(task):
    report = ImbalanceReport(task, **SIZES[task])
    classes = ["0", "1"] if task == "binary" else ["0", "1", "2"]
    names = NAMES[task] + [f"{each}/{name}" for each in ("recall", "precision") for name in classes]
    assert report.keys() == names
    assert list(ImbalanceReport.default_measures(task)) == NAMES[task]
    assert len(report) == len(names) == len(list(report.values()))
    assert [name for name, _ in report.items()] == names
    report.update(*data(task))
    assert list(report.compute()) == names
    assert list(dict(report)) == names  # keys() and [] make it a mapping


@pytest.mark.parametrize(("classes", "per_class"), [(20, 40), (21, 0), (1000, 0)])
def test_per_class_names_up_to_20_classes(classes, per_class):
    assert len(ImbalanceReport("multiclass", num_classes=classes)) == len(OVERALL) + per_class


def test_per_class_names_can_be_chosen():
    many = [f"class {index}" for index in range(21)]
    assert len(ImbalanceReport("multiclass", class_names=many)) == len(OVERALL) + 2 * 21
    assert len(ImbalanceReport("multiclass", class_names=many, per_class=())) == len(OVERALL)
    report = ImbalanceReport("multiclass", num_classes=21, per_class=("f1", "specificity"))
    assert report.keys()[len(OVERALL) :] == [f"{each}/{index}" for each in ("f1", "specificity") for index in range(21)]
    only = ImbalanceReport("multiclass", class_names=["cat", "dog"], measures={}, per_class=["recall"])
    assert only.keys() == ["recall/cat", "recall/dog"]


@pytest.mark.parametrize("name", ["a.b", "a/b", "a b", "ü - 1", "_values", "report"])
def test_any_class_name_will_do(name):
    report = ImbalanceReport("multiclass", class_names=[name, "other"], prefix="val_")
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    assert report.compute()[f"val_recall/{name}"] == 0.5
    assert report[f"val_recall/{name}"].compute() == report[f"recall/{name}"].compute() == 0.5
    assert name in str(report.table())
    restored = pickle.loads(pickle.dumps(report))
    assert restored[f"precision/{name}"].compute() == 1


def test_prefix_and_postfix():
    plain, report = filled("multiclass"), filled("multiclass", prefix="val_", postfix="_ema")
    assert report.keys() == [f"val_{name}_ema" for name, _ in plain.items()]
    assert_same(report.compute(), {f"val_{name}_ema": value for name, value in plain.compute().items()})
    assert report["iam"] is report["val_iam_ema"]
    assert report["recall/2"] is report["val_recall/2_ema"]
    assert [value.full_name for value in report.values()] == report.keys()
    assert "val_recall/2_ema" in repr(report["recall/2"])
    with pytest.raises(KeyError, match=r"val_oops.*not reported; names are iam, cba"):
        report["val_oops"]


def test_a_prefix_that_begins_a_name_hides_nothing():
    report = filled("multiclass", prefix="val_", measures={"iam": metrics.ImbalanceAccuracy, "val_iam": error_rate})
    assert report.keys()[:2] == ["val_iam", "val_val_iam"]
    for key, value in report.items():
        assert report[key] is value
    assert report["iam"] is report["val_iam"]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"class_names": ["a", "b"], "num_classes": 3}, ValueError, "holds 2 names for 3 classes; name each, in order"),
        ({"num_classes": 3, "measures": ["iamm"]}, ValueError, "got 'iamm'; did you mean 'iam'"),
        ({"num_classes": 3, "measures": ["?"]}, ValueError, r"measures must be one of .* got '\?'$"),
        ({"class_names": ["a", "b", "a"]}, ValueError, "class_names must differ, got a more than once"),
        ({"class_names": "abc"}, TypeError, "sequence of names"),
        ({"class_names": ["a", 1]}, TypeError, "non-empty strings"),
        ({"class_names": ["a", ""]}, TypeError, "non-empty strings"),
        ({"class_names": ["a"]}, ValueError, "num_classes must be at least 2"),
        ({}, ValueError, "needs num_classes"),
        ({"num_classes": 3, "per_class": "recall"}, TypeError, r"such as \('recall',\)"),
        ({"num_classes": 3, "per_class": ("gmean",)}, ValueError, "per_class must be one of .*'recall', .*'gmean'"),
        ({"num_classes": 3, "measures": {"recall/1": error_rate}}, ValueError, "already holds 'recall/1'.*rename"),
        ({"num_classes": 3, "measures": {}, "per_class": ()}, ValueError, "nothing to report"),
        ({"num_classes": 3, "state": "rows"}, ValueError, "state must be one of"),
        ({"num_classes": 3, "on_invalid": "skip"}, ValueError, "on_invalid must be one of"),
        ({"num_classes": 3, "measures": {"": error_rate}}, TypeError, "map names to measures"),
        ({"num_classes": 3, "measures": {1: error_rate}}, TypeError, "map names to measures, got the name 1"),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport("multiclass", **arguments)


def test_per_class_twice_is_an_error():
    with pytest.raises(ValueError, match="per_class"):
        ImbalanceReport("multiclass", num_classes=3, per_class=("recall", "recall"))


def test_names_of_other_tasks_must_fit_too():
    with pytest.raises(ValueError, match="class_names holds 3 names for 2 classes"):
        ImbalanceReport("binary", class_names=["a", "b", "c"], num_classes=2)
    with pytest.raises(ValueError, match="class_names holds 2 names for 3"):
        ImbalanceReport("multilabel", class_names=["a", "b"], num_labels=3)
    assert ImbalanceReport("multilabel", class_names=["a", "b"]).num_labels == 2
    assert ImbalanceReport("binary", class_names=["ok", "fraud"]).keys()[-2:] == ["precision/ok", "precision/fraud"]


# --- values ---------------------------------------------------------------------------------------------------------


def peers(preds, target, average):
    """The default names by scikit-learn, imbalanced-learn, and plain Python on their precision and recall."""
    precision, recall, _, _ = sklearn_metrics.precision_recall_fscore_support(target, preds)
    mean_precision, mean_recall, mean_f1, _ = sklearn_metrics.precision_recall_fscore_support(
        target, preds, average=average
    )
    cba = sum(map(min, zip(precision, recall, strict=True))) / len(recall)
    return {
        "iam": 2 * cba - 1,
        "cba": cba,
        "accuracy": sklearn_metrics.accuracy_score(target, preds),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(target, preds),
        "precision": mean_precision,
        "recall": mean_recall,
        "f1": mean_f1,
        "gmean": imblearn_metrics.geometric_mean_score(target, preds, correction=0.0),
        "mcc": sklearn_metrics.matthews_corrcoef(target, preds),
    }


def binary_peers(preds, target):
    values = peers(preds, target, "binary")
    tpr = imblearn_metrics.sensitivity_score(target, preds, average="binary")
    tnr = imblearn_metrics.specificity_score(target, preds, average="binary")
    weighted = imblearn_metrics.make_index_balanced_accuracy(alpha=0.05, squared=False)
    values["dominance"] = tpr - tnr
    values["iba"] = weighted(imblearn_metrics.geometric_mean_score)(target, preds, average="binary")
    values["op"] = values["accuracy"] - abs(tnr - tpr) / (tnr + tpr)
    values["dominance_area"] = (
        values["gmean"] * (values["dominance"] + 3) / 2
    )  # the mean height of the trapezium, times its width
    return values


@pytest.mark.parametrize("state", ["matrix", "margins"])
@pytest.mark.parametrize("seed", range(3))
def test_multiclass_values_equal_the_peers(seed, state):
    preds, target = data("multiclass", seed=seed)
    wanted = peers(preds, target, "macro")
    precision, recall, *_ = sklearn_metrics.precision_recall_fscore_support(target, preds)
    wanted |= {f"recall/{index}": value for index, value in enumerate(recall)}
    wanted |= {f"precision/{index}": value for index, value in enumerate(precision)}
    assert_same(filled("multiclass", seed, state=state).compute(), wanted)


@pytest.mark.parametrize("seed", range(3))
def test_binary_values_equal_the_peers(seed):
    preds, target = data("binary", seed=seed)
    values = filled("binary", seed, per_class=(), measures=TWO_CLASSES).compute()
    assert_same(values, binary_peers(preds, target))
    # precision, recall and F1 are those of the positive class, not means over both
    assert values["recall"] == pytest.approx(sklearn_metrics.recall_score(target, preds, pos_label=1))


@pytest.mark.parametrize("seed", range(3))
def test_multilabel_values_equal_the_peers(seed):
    """Precision, recall and F1 of each label's positive class, the others of each label's two classes; then means."""
    preds, target = data("multilabel", seed=seed)
    labels = [peers(preds[:, index], target[:, index], "binary") for index in range(3)]
    wanted = {name: sum(each[name] for each in labels) / 3 for name in OVERALL}
    wanted |= {f"{name}/{index}": labels[index][name] for name in ("recall", "precision") for index in range(3)}
    assert_same(filled("multilabel", seed).compute(), wanted)


COUNTING = [
    ("binary", {}),
    ("binary", {"ignore_index": -1}),
    ("multiclass", {}),
    ("multiclass", {"state": "margins"}),
    ("multiclass", {"ignore_index": 1}),
    ("multiclass", {"ignore_index": 1, "state": "margins"}),
    ("multilabel", {}),
    ("multilabel", {"ignore_index": -1}),
]


@pytest.mark.parametrize(("task", "arguments"), COUNTING)
def test_values_equal_the_single_metrics(task, arguments):
    report = filled(task, per_class=tuple(PER_CLASS), **arguments)
    classes = 2 if task == "binary" else 3
    wanted = {}
    for name in NAMES[task]:
        single = getattr(imbtorch, SINGLE[name])(task, **SIZES[task], **arguments)
        single.update(*data(task))
        wanted[name] = single.compute()
        assert report[name].higher_is_better is single.higher_is_better
    for name, metric in PER_CLASS.items():
        each = getattr(imbtorch, metric)(task, **SIZES[task], average="none", **arguments)
        each.update(*data(task))
        wanted |= {f"{name}/{index}": each.compute()[index] for index in range(classes)}
    values = report.compute()
    assert_same(values, wanted)
    for value in values.values():
        assert (value.shape, value.dtype, value.device.type) == ((), torch.float32, "cpu")


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_threshold_and_logits_are_passed_on(task):
    _, target = data(task)
    logits = torch.randn(target.shape, generator=torch.Generator().manual_seed(3))
    report = ImbalanceReport(task, **SIZES[task], threshold=0.7, logits=True)
    report.update(logits, target)
    wanted = ImbalanceReport(task, **SIZES[task])
    wanted.update((logits.double().sigmoid() > 0.7).long(), target)
    assert_same(report.compute(), wanted.compute())


def test_forward_returns_the_batch_and_accumulates():
    report = ImbalanceReport("multiclass", num_classes=3, prefix="train_")
    assert report["iam"]._forward_cache is None
    batches = [data("multiclass", samples=20, seed=seed) for seed in range(3)]
    for preds, target in batches:
        values = report(preds, target)
        alone = ImbalanceReport("multiclass", num_classes=3, prefix="train_")
        alone.update(preds, target)
        assert_same(values, alone.compute())
        for name, child in report.items():
            torch.testing.assert_close(child._forward_cache, values[name], equal_nan=True)
    preds, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert report.counts().tolist() == sklearn_metrics.confusion_matrix(target, preds).tolist()
    assert_same({name: report[name].compute() for name in OVERALL}, peers(preds, target, "macro"))
    report.reset()
    assert report["iam"]._forward_cache is None


def random_matrices():
    sizes = st.integers(2, 4)
    return sizes.flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 3), min_size=k, max_size=k), min_size=k, max_size=k)
    )


NEED_ARGUMENTS = {"ExpectedCost", "NetBenefit"}  # costs, a threshold
EVERY_MEASURE = {name: getattr(metrics, name) for name in metrics.__all__ if name not in NEED_ARGUMENTS}


@given(random_matrices(), st.sampled_from(["matrix", "margins"]))
@settings(deadline=None, max_examples=60)
def test_only_values_of_a_class_that_does_not_occur_are_nan(matrix, state):
    size = len(matrix)
    cells = [(i, j) for i, row in enumerate(matrix) for j, count in enumerate(row) for _ in range(count)]
    measures = {name: metric for name, metric in EVERY_MEASURE.items() if state == "matrix" or not metric.needs_matrix}
    report = ImbalanceReport("multiclass", num_classes=size, measures=measures, per_class=tuple(PER_CLASS), state=state)
    if cells:
        report.update(torch.tensor([j for _, j in cells]), torch.tensor([i for i, _ in cells]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = numbers(report.compute())
        report.compute()
        words = str(report.table()).split()
    support, predicted = [sum(row) for row in matrix], [sum(column) for column in zip(*matrix, strict=True)]
    unseen = [str(index) for index in range(size) if not support[index]]
    told = [f"{len(unseen)} of {size} classes had no target: {', '.join(unseen)};"] if cells else ["counted no sample"]
    assert len(caught) == bool(unseen)
    assert all(text in str(each.message) for text, each in zip(told, caught, strict=False))
    assert all(math.isnan(values[name]) == (not cells) for name in measures)
    for index, (actual, of_class) in enumerate(zip(support, predicted, strict=True)):
        for name in PER_CLASS:
            assert math.isnan(values[f"{name}/{index}"]) == (not actual and not of_class), (name, index)
        if actual or of_class:
            hits = matrix[index][index]
            assert values[f"recall/{index}"] == pytest.approx(hits / actual if actual else 0)
            assert values[f"cba/{index}"] == pytest.approx(hits / max(actual, of_class))
    assert "nan" not in words


def test_warnings_come_once_between_resets():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog", "owl"])
    for _ in range(2):
        report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
        with pytest.warns(UserWarning, match="1 of 3 classes had no target: owl;") as caught:
            report.compute()
        assert len(caught) == 1
        for value in report.values():  # filterwarnings = error: a second warning would raise
            value.compute()
        report.table()
        report.counts()
        report.reset()


def test_unseen_labels_are_named():
    report = ImbalanceReport("multilabel", class_names=["cat", "dog"])
    report.update(torch.tensor([[0, 1]]), torch.tensor([[0, 1]]))
    with pytest.warns(UserWarning, match="1 of 2 labels had no positive target: cat;"):
        report["iam"].compute()


def test_classes_are_named_in_what_update_complains_of():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog"])
    with pytest.raises(ValueError, match="target holds class 2"):
        report.update(torch.tensor([0]), torch.tensor([2]))
    assert report.counts().sum() == 0


def test_invalid_input_can_be_left_out():
    report = ImbalanceReport("multiclass", num_classes=2, on_invalid="warn", per_class=())
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 5]))
    with pytest.warns(UserWarning, match="did not count 1 .*1 targets out of range"):
        values = report.compute()
    assert values["accuracy"] == 1


# --- measures of one's own ------------------------------------------------------------------------------------------


class ShareOfThird(imbtorch.ConfusionMatrixMetric):
    """Reads a cell that only a matrix of three classes or more has."""

    higher_is_better = False
    measure = staticmethod(lambda counts: counts[..., 2, :].sum(-1) / counts.sum((-2, -1)))


def test_measures_are_metrics_functions_and_pairs():
    chosen = {
        "iam": metrics.ImbalanceAccuracy,
        "cen": metrics.ConfusionEntropy,
        "dominance": metrics.Dominance,
        "error": error_rate,
        "error_min": (error_rate, False),
        "hits": (hits_of_last, True),
        "open": (error_rate, None),
        "f2": functools.partial(imbtorch.f_score, beta=2.0),
        "cost": (functools.partial(imbtorch.expected_cost, costs=torch.ones(3, 3) - torch.eye(3)), False),
    }
    report = filled("multiclass", measures=chosen, per_class=())
    assert report.keys() == list(chosen)
    directions = {name: report[name].higher_is_better for name in chosen}
    assert directions == {
        "iam": True,
        "cen": False,
        "dominance": None,
        "error": None,
        "error_min": False,
        "hits": True,
        "open": None,
        "f2": True,
        "cost": False,
    }
    preds, target = data("multiclass")
    error = sklearn_metrics.zero_one_loss(target, preds)
    wanted = {
        "error": error,
        "error_min": error,
        "hits": sklearn_metrics.recall_score(target, preds, average=None)[2],
        "open": error,
        "f2": sklearn_metrics.fbeta_score(target, preds, beta=2.0, average="macro"),
        "cost": error,
    }
    values = report.compute()
    assert_same({name: values[name] for name in wanted}, wanted)
    assert report.table().overall["hits"] == pytest.approx(wanted["hits"])


def test_defaults_can_be_added_to_and_taken_from():
    measures = {name: each for name, each in ImbalanceReport.default_measures("binary").items() if name != "op"}
    report = filled("binary", measures=measures | {"error": error_rate}, per_class=())
    assert report.keys() == [name for name in BINARY if name != "op"] + ["error"]
    assert ImbalanceReport("binary", per_class=()).keys() == BINARY


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_function_sees_the_counts(state):
    seen = []

    def see(counts):
        seen.append(counts)
        return torch.tensor(0.25)

    report = filled("multiclass", measures={"seen": see}, state=state)
    assert report.compute()["seen"] == 0.25
    preds, target = data("multiclass")
    matrix = sklearn_metrics.confusion_matrix(target, preds)
    counts = seen[-1]
    if state == "matrix":
        assert counts.tolist() == matrix.tolist()
    else:
        assert counts.correct.tolist() == matrix.diagonal().tolist()
        assert counts.actual.tolist() == matrix.sum(1).tolist()
        assert counts.predicted.tolist() == matrix.sum(0).tolist()


def test_a_function_reads_each_label():
    """Not the stack of their matrices, in which the first two labels would be taken for rows."""
    preds, target = data("multilabel", classes=2)
    report = ImbalanceReport("multilabel", num_labels=2, measures={"hits": hits_of_last})
    report.update(preds, target)
    wanted = sklearn_metrics.recall_score(target, preds, average="macro")
    assert report.compute()["hits"] == pytest.approx(wanted)


def test_a_metric_of_ones_own_may_read_any_cell():
    preds, target = data("multiclass")
    report = ImbalanceReport("multiclass", num_classes=3, measures={"third": ShareOfThird}, per_class=())
    report.update(preds, target)
    assert report.compute()["third"] == pytest.approx((target == 2).float().mean().item())
    assert report["third"].higher_is_better is False


@pytest.mark.parametrize(
    ("measured", "error", "match"),
    [
        (
            metrics.ExpectedCost,
            TypeError,
            r"ExpectedCost takes arguments of its own; give 'x' functools.partial\(.*costs=",
        ),
        (
            metrics.Accuracy("binary"),
            ValueError,
            "'x' was made to count otherwise: task='binary', num_classes=2, where .*num_classes=3",
        ),
        (MulticlassAccuracy, TypeError, "must be a metric class of imbtorch"),
        (MulticlassAccuracy(num_classes=3), TypeError, "must be a metric class of imbtorch"),
        (ImbalanceReport, TypeError, "must be a metric class of imbtorch"),
        ("youden", ValueError, "x must be one of .*'accuracy'.*got 'youden'"),
        (None, TypeError, "must be a metric class of imbtorch"),
        ((error_rate,), TypeError, "or a pair"),
        ((error_rate, "max"), TypeError, r"or a pair \(function, higher_is_better\)"),
        ((error_rate, True, 1), TypeError, "or a pair"),
        ((metrics.Accuracy, True), TypeError, "or a pair"),
    ],
)
def test_what_is_no_measure(measured, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport("multiclass", num_classes=3, measures={"x": measured})


@pytest.mark.parametrize("name", [name for name in metrics.__all__ if getattr(metrics, name).needs_matrix])
def test_margins_are_refused_where_the_matrix_is_needed(name):
    measured = getattr(metrics, name)
    if name == "ExpectedCost":
        measured = functools.partial(measured, costs=torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"'x' needs the whole matrix, which state='margins' does not keep"):
        ImbalanceReport("multiclass", num_classes=3, measures={"x": measured}, state="margins")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda counts: 0.5, "float"),
        (lambda counts: None, "NoneType"),
        (lambda counts: torch.ones(2, 5), r"\[2, 5\]"),
        (lambda counts: torch.ones(0), r"\[0\]"),
    ],
    ids=["float", "None", "matrix", "empty"],
)
def test_a_function_must_return_one_value(task, function, got):
    report = filled(task, measures={"mine": function})
    with pytest.raises(ValueError, match=f"measure 'mine' must return a tensor of one value, got {got}"):
        report.compute()


def test_a_value_with_one_element_is_a_scalar():
    report = filled("multiclass", measures={"one": lambda counts: counts.sum().reshape(1, 1)}, per_class=())
    value = report.compute()["one"]
    assert (value.shape, value.dtype, value.item()) == ((), torch.float32, 60.0)


# --- reading a value ------------------------------------------------------------------------------------------------


def test_children_refuse_to_count():
    report = filled("multiclass")
    before = report.counts()
    with pytest.raises(TypeError, match="'iam' is read off a report; call update of the report itself"):
        report["iam"].update(*data("multiclass"))
    with pytest.raises(TypeError, match="'iam' is read off a report; call the report itself"):
        report["iam"](*data("multiclass"))
    assert torch.equal(report.counts(), before)


def test_children_have_no_state():
    report = filled("multiclass")
    report.persistent(True)
    assert list(report.state_dict()) == ["counts_matrix_multiclass_3"]
    assert report["iam"].metric_state == {}
    assert sum(isinstance(module, ImbalanceReport) for module in report.modules()) == 1


def joined(*seeds):
    """Predictions and targets of several batches."""
    return tuple(torch.cat(part) for part in zip(*(data("multiclass", seed=seed) for seed in seeds), strict=True))


class Reader:
    """Reads the next names of a report, each in its turn, and compares them with the peers' values of these batches.

    A name that is read again is computed again; what another name left behind must be noticed to be stale.
    """

    def __init__(self, report):
        self.report, self.names = report, itertools.cycle(OVERALL)

    def check(self, *seeds, names=2):
        expected = peers(*joined(*seeds), "macro")
        for name in itertools.islice(self.names, names):
            assert self.report[name].compute().item() == pytest.approx(expected[name], rel=2e-6, abs=2e-6), name


def support_of(*seeds):
    return torch.bincount(joined(*seeds)[1], minlength=3).tolist()


def test_a_value_is_fresh_after_whatever_changes_the_counts():
    report = filled("multiclass", seed=0)
    reader = Reader(report)
    reader.check(0)
    report.update(*data("multiclass", seed=1))
    reader.check(0, 1)
    report(*data("multiclass", seed=2))
    reader.check(0, 1, 2)
    report.merge_state(filled("multiclass", seed=3))
    reader.check(0, 1, 2, 3)
    report.merge_state(dict(filled("multiclass", seed=4).metric_state))
    reader.check(0, 1, 2, 3, 4)
    saved = filled("multiclass", seed=5)
    saved.persistent(True)
    report.load_state_dict(saved.state_dict())
    reader.check(5)
    report.reset()
    report.update(*data("multiclass", seed=6))
    reader.check(6)
    report.counts_matrix_multiclass_3 = filled("multiclass", seed=7).counts_matrix_multiclass_3
    reader.check(7)
    with torch.inference_mode():
        report.update(*data("multiclass", seed=8))
        reader.check(7, 8)
        report.update(*data("multiclass", seed=9))
        reader.check(7, 8, 9)
    report.update(*data("multiclass", seed=10))
    reader.check(7, 8, 9, 10)


def test_a_value_is_fresh_after_any_number_of_loads():
    """Whatever addresses the replaced states had."""
    report = ImbalanceReport("multiclass", num_classes=3)
    report.persistent(True)
    saved = []
    for seed in range(4):
        each = filled("multiclass", seed=seed)
        each.persistent(True)
        saved.append(each.state_dict())
    reader = Reader(report)
    for turn in range(60):
        for seed in (turn, turn + 1):
            report.load_state_dict(saved[seed % 4])
            report.state_dict()  # hands the state out, so that the next load takes a new one
        reader.check((turn + 1) % 4, names=1)


def test_the_table_is_fresh_after_any_number_of_epochs():
    """Whatever addresses the states had that reset replaced."""
    report = ImbalanceReport("multiclass", num_classes=3)
    for epoch in range(40):
        report.update(*data("multiclass", seed=epoch))
        assert report.metric_state  # hands the state out, so that reset takes a new one
        if epoch % 2 == 0:
            found = column(report.table(), "support")
            assert found == support_of(epoch)
        report.reset()


def test_the_same_name_twice():
    report = filled("multiclass")
    first = report["iam"].compute()
    assert report["iam"].compute() == first
    report.update(*data("multiclass", seed=1))
    assert report["iam"].compute() != first


def test_values_read_one_result(monkeypatch):
    report = filled("multiclass")
    computed = []
    original = Overall.values
    monkeypatch.setattr(Overall, "values", lambda *given: computed.append(1) or original(*given))
    for value in report.values():
        value.compute()
    assert len(computed) == 1
    values = {name: value.compute() for name, value in report.items()}
    assert len(computed) == 2
    assert_same(values, report.compute())


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("first", ["report", "accuracy"])
def test_grouped_in_a_collection(first, inference):
    with torch.inference_mode(inference):
        check_in_a_collection(first)


def check_in_a_collection(first):
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", per_class=())
    accuracy = imbtorch.Accuracy("multiclass", num_classes=3)
    both = {"report": report, "accuracy": accuracy}
    collection = MetricCollection({first: both.pop(first), **both})
    reader = Reader(report)
    for epoch in range(2):
        collection.update(*data("multiclass", seed=0))
        collection.update(*data("multiclass", seed=1))
        assert len(collection.compute_groups) == 1  # one of them counts for both
        reader.check(0, 1)
        collection.update(*data("multiclass", seed=2))
        reader.check(0, 1, 2)
        if epoch:
            collection(*data("multiclass", seed=3))
            reader.check(0, 1, 2, 3)
        assert column(report.table(), "support") == support_of(*range(3 + epoch))
        preds, target = joined(*range(3 + epoch))
        values = numbers(collection.compute())
        assert values["accuracy"] == values["val_accuracy"]
        assert values["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))
        assert set(values) == {"accuracy", *(f"val_{name}" for name in OVERALL)}
        collection.reset()
        assert report.counts().sum() == 0


def test_reset_by_values_happens_once(monkeypatch):
    report = filled("multiclass", prefix="val_")
    resets = []
    original = ImbalanceReport.reset
    monkeypatch.setattr(ImbalanceReport, "reset", lambda self: resets.append(1) or original(self))
    for _ in range(2):
        for value in report.values():
            value.compute()
        for value in report.values():
            value.reset()
        assert report.counts().sum() == 0
        report.update(*data("multiclass"))
    assert len(resets) == 2
    for value in report.values():  # nobody has read it since
        value.reset()
    assert len(resets) == 3
    assert report.counts().sum() == 0


@pytest.mark.parametrize("way", ["loaded", "merged", "set"])
def test_reset_by_a_value_whatever_the_counts_came_from(way):
    report, source = ImbalanceReport("multiclass", num_classes=3), filled("multiclass")
    if way == "loaded":
        source.persistent(True)
        report.load_state_dict(source.state_dict())
    elif way == "merged":
        report.merge_state(source)
    else:
        report.counts_matrix_multiclass_3 = source.counts_matrix_multiclass_3
    assert report.counts().sum() == 60
    report["iam"].reset()
    assert report.counts().sum() == 0
    assert source.counts().sum() == 60


def test_counts_and_values_are_copies():
    for task, state in (("multiclass", "matrix"), ("multiclass", "margins"), ("multilabel", "matrix")):
        report = filled(task, state=state)
        for part in report.counts() if state == "margins" else [report.counts()]:
            part.fill_(7)
        wanted = numbers(filled(task, state=state).compute())
        assert numbers(report.compute()) == wanted
        text = str(report.table())
        for value in report.compute().values():
            value.fill_(7.0)
        report.compute().clear()
        assert str(report.table()) == text
        report["cba"].compute().fill_(7.0)
        assert report["iam"].compute() == wanted["iam"]
        assert str(report.table()) == text


# --- copies, devices, checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda report: report.clone(),
        lambda report: pickle.loads(pickle.dumps(report)),
        lambda report: pickle.loads(ForkingPickler.dumps(report)),
    ],
    ids=["deepcopy", "clone", "pickle", "sent to a process"],
)
def test_copies_count_apart_and_their_values_read_the_copy(task, duplicate):
    report = filled(
        task, prefix="val_", measures=ImbalanceReport.default_measures(task) | {"error": (error_rate, False)}
    )
    before = numbers(report.compute())
    twin = duplicate(report)
    assert all(value.report is twin for value in twin.values())
    assert all(value.report is report for value in report.values())
    assert numbers(twin.compute()) == before
    assert repr(twin) == repr(report)
    assert [value.higher_is_better for value in twin.values()] == [value.higher_is_better for value in report.values()]
    twin.update(*data(task, seed=1))
    report["iam"].reset()
    assert report.counts().sum() == 0
    wanted = filled(task, prefix="val_")
    wanted.update(*data(task, seed=1))
    assert twin["iam"].compute() == wanted["iam"].compute()
    with pytest.raises(TypeError, match="call update of the report itself"):
        twin["iam"].update(*data(task))


def test_a_copy_of_a_module_reads_its_own_report():
    module = torch.nn.ModuleDict({"val": filled("multiclass")})
    twin = copy.deepcopy(module)
    assert {id(value.report) for value in twin["val"].values()} == {id(twin["val"])}
    child = copy.deepcopy(module["val"]["iam"])
    assert child.report is not module["val"]
    assert child.compute() == module["val"]["iam"].compute()


def test_counts_stay_out_of_checkpoints_unless_asked_for():
    report = filled("multiclass")
    assert report.state_dict() == {}
    ImbalanceReport("multiclass", num_classes=3).load_state_dict(report.state_dict())
    report.persistent(True)
    restored = ImbalanceReport("multiclass", num_classes=3)
    restored.persistent(True)
    restored.load_state_dict(report.state_dict())
    assert numbers(restored.compute()) == numbers(report.compute())
    other = ImbalanceReport("multiclass", num_classes=4)
    other.persistent(True)
    with pytest.raises(RuntimeError, match="counts differently from this ImbalanceReport"):
        other.load_state_dict(report.state_dict())


def test_merge_refuses_what_counts_differently():
    report = filled("multiclass")
    with pytest.raises(ValueError, match="cannot merge counts"):
        report.merge_state(ImbalanceReport("multiclass", num_classes=4))
    with pytest.raises(ValueError, match="cannot merge Accuracy into ImbalanceReport"):
        report.merge_state(imbtorch.Accuracy("multiclass", num_classes=3))


@pytest.mark.parametrize("task", TASKS)
def test_born_on_the_meta_device(task):
    with torch.device("meta"):
        report = ImbalanceReport(task, **SIZES[task])
    assert report._state.is_meta
    report.to_empty(device="cpu")
    assert report.counts().sum() == 0
    report.update(*data(task))
    assert numbers(report.compute()) == numbers(filled(task).compute())


@pytest.mark.parametrize(
    "convert", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.to("cpu").double()]
)
def test_conversions_leave_the_counts(convert):
    report = filled("multiclass")
    before = numbers(report.compute())
    module = convert(torch.nn.ModuleDict({"net": torch.nn.Linear(2, 2), "val": report}))
    assert module["val"].counts().dtype == torch.int64
    assert numbers(module["val"].compute()) == before
    assert {value.dtype for value in report.compute().values()} == {torch.float32}


# --- table ----------------------------------------------------------------------------------------------------------


def table_peers(preds, target):
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(target, preds)
    predicted = sklearn_metrics.confusion_matrix(target, preds).sum(0)
    cba = [min(pair) for pair in zip(precision, recall, strict=True)]
    iam = [2 * term - 1 for term in cba]
    return dict(zip(COLUMNS, map(list, (support, predicted, precision, recall, f1, cba, iam)), strict=True))


def test_a_table_says_what_looking_at_nothing_would_be_worth():
    """Of 1000 samples 10 are fraud: 990 right in all, recalls 1 and 0, CBA terms .99 and 0, read at 1:1 one half."""
    counts = {(0, 0): 985, (0, 1): 5, (1, 0): 7, (1, 1): 3}
    target, preds = (torch.tensor([pair[k] for pair, n in counts.items() for _ in range(n)]) for k in (0, 1))
    measures = ["accuracy", "balanced_accuracy", "iam", "dominance"]
    for prevalence, wanted in ((None, (0.99, 0.5, -0.01)), ([1, 1], (0.5, 0.5, -0.5))):
        report = ImbalanceReport("binary", class_names=["ok", "fraud"], measures=measures, prevalence=prevalence)
        report.update(preds, target)
        text = "Baseline: always predicting 'ok': accuracy {:.4f}, balanced_accuracy {:.4f}, iam {:.4f}".format(*wanted)
        assert str(report.table()).splitlines()[-1] == text


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_table_of_classes(state):
    names = ["a cat", "dog", "long-eared owl"]
    report = filled("multiclass", class_names=names, state=state, prefix="val_", per_class=SHOWN)
    wanted = table_peers(*data("multiclass"))
    table = report.table()
    nested = json.loads(json.dumps(table.to_dict()))
    assert list(nested["classes"]) == names
    for index, name in enumerate(names):
        assert nested["classes"][name] == pytest.approx({column: wanted[column][index] for column in COLUMNS})
    assert nested["overall"] == pytest.approx(peers(*data("multiclass"), "macro"), rel=1e-6)

    head, *lines = str(table).splitlines()
    assert head.split() == ["class", *COLUMNS]
    assert len({len(head), *map(len, lines[:3])}) == 1  # all end in one column
    for index, name in enumerate(names):
        assert lines[index].startswith(name)
        cells = [f"{wanted[column][index]:{'.0f' if column in COLUMNS[:2] else '.4f'}}" for column in COLUMNS]
        assert lines[index].split()[-7:] == cells
        for column, cell in zip(COLUMNS, cells, strict=True):
            end = head.index(f" {column}") + 1 + len(column)
            assert lines[index][:end].endswith(f" {cell}")
    assert lines[3] == ""
    *lines, last = lines
    assert last.startswith(
        f"Baseline: always predicting {names[int(torch.bincount(data('multiclass')[1]).argmax())]!r}: iam "
    )
    assert lines[4].split() == ["measure", "all"]
    overall = {line.split()[0]: line.split()[1] for line in lines[5:]}
    assert overall == {name: f"{value:.4f}" for name, value in peers(*data("multiclass"), "macro").items()}
    assert len(set(map(len, lines[4:]))) == 1


@pytest.mark.parametrize(("task", "arguments"), COUNTING)
def test_columns_hold_the_terms_of_the_overall_values(task, arguments):
    table = filled(task, per_class=SHOWN, **arguments).table()
    means = ("cba", "iam") if task == "binary" else ("precision", "recall", "f1", "cba", "iam")
    for name in means:
        terms = [term for term in column(table, name) if not math.isnan(term)]
        assert sum(terms) / len(terms) == pytest.approx(table.overall[name], rel=1e-6, abs=1e-6), name


def test_table_of_labels():
    names = ["cat", "dog", "owl"]
    table = filled("multilabel", class_names=names, per_class=SHOWN).table()
    preds, target = data("multilabel")
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(target, preds)
    columns = {"support": support, "predicted": preds.sum(0), "precision": precision, "recall": recall, "f1": f1}
    for name, values in columns.items():
        assert column(table, name) == pytest.approx(values.tolist()), name
    assert [line.split()[0] for line in str(table).splitlines()[1:4]] == names


def test_a_class_that_does_not_occur_has_dashes():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog", "owl"])
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    with pytest.warns(UserWarning, match="no target"):
        table = report.table()
    assert str(table).splitlines()[3].split() == ["owl", "0", "0", "-", "-"]
    assert math.isnan(table.to_dict()["classes"]["owl"]["recall"])


def test_table_in_pandas():
    pandas = pytest.importorskip("pandas")
    names = ["cat", "dog", "owl"]
    frame = filled("multiclass", class_names=names, per_class=SHOWN).table().to_pandas()
    wanted = pandas.DataFrame(table_peers(*data("multiclass")), index=names)
    pandas.testing.assert_frame_equal(frame, wanted, check_dtype=False)


def test_table_shows_the_last_result():
    report = ImbalanceReport("multiclass", num_classes=3, on_invalid="raise")
    report.update(*data("multiclass", seed=0))
    assert column(report.table(), "support") == support_of(0)  # computed for the occasion
    report.update(*data("multiclass", seed=1))
    assert column(report.table(), "support") == support_of(0, 1)
    report.compute()
    report.reset()
    assert column(report.table(), "support") == support_of(0, 1)  # an epoch's report, after the epoch
    report["iam"].reset()
    assert column(report.table(), "support") == support_of(0, 1)
    report.update(*data("multiclass", seed=2))
    assert column(report.table(), "support") == support_of(2)


@pytest.mark.parametrize("way", ["loaded", "set"])
def test_table_after_a_reset_shows_counts_from_elsewhere(way):
    report, source = filled("multiclass", seed=0), filled("multiclass", seed=1)
    report.compute()
    report.reset()
    if way == "loaded":
        source.persistent(True)
        report.load_state_dict(source.state_dict())
    else:
        report.counts_matrix_multiclass_3 = source.counts_matrix_multiclass_3
    assert column(report.table(), "support") == support_of(1)


def test_table_of_nothing():
    report = ImbalanceReport("multiclass", num_classes=3)
    with pytest.warns(UserWarning, match="counted no sample"):
        table = report.table()
    assert column(table, "support") == [0, 0, 0]
    assert all(map(math.isnan, table.overall.values()))
    assert "nan" not in str(table)


def test_several_processes_must_compute_before_they_show():
    """Showing never communicates, so rank zero alone may do it."""
    several = []
    report = ImbalanceReport("multiclass", num_classes=3, distributed_available_fn=lambda: bool(several))
    report.update(*data("multiclass", seed=0))
    several.append(1)
    for show in (report.table, report.plot):
        with pytest.raises(RuntimeError, match=r"call compute\(\) on all processes first"):
            show()
    several.clear()
    report.compute()
    several.append(1)
    report.update(*data("multiclass", seed=1))
    assert column(report.table(), "support") == support_of(0)


# --- pictures and looks ---------------------------------------------------------------------------------------------


def ticks(ax, axis):
    return [tick.get_text() for tick in getattr(ax, f"get_{axis}ticklabels")()]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_plot_of_the_matrix(task):
    names = ["cat", "dog", "owl"][: 2 if task == "binary" else 3]
    report = filled(task, class_names=names)
    fig, ax = report.plot()
    preds, target = data(task)
    matrix = sklearn_metrics.confusion_matrix(target, preds)
    assert fig is ax.figure
    assert ticks(ax, "x") == ticks(ax, "y") == names
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Predicted class", "True class")
    shares = matrix / matrix.sum(1, keepdims=True)
    torch.testing.assert_close(torch.tensor(ax.images[0].get_array().data), torch.tensor(shares))
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert matrix.all()
    for row, column in itertools.product(range(len(names)), repeat=2):
        assert written[column, row] == f"{matrix[row][column]}\n{shares[row][column]:.0%}"
    figure, axes = plt.subplots(1, 2)
    assert report.plot(ax=axes[1]) == (None, axes[1])
    assert axes[1].images
    assert not axes[0].images
    assert figure.axes == list(axes)


@pytest.mark.parametrize(
    ("task", "arguments", "item"), [("multiclass", {"state": "margins"}, "Class"), ("multilabel", {}, "Label")]
)
def test_plot_without_a_matrix_shows_recalls(task, arguments, item):
    names = ["cat", "dog", "owl"]
    _, ax = filled(task, class_names=names, **arguments).plot()
    preds, target = data(task)
    wanted = sklearn_metrics.recall_score(target, preds, average=None)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(wanted.tolist())
    assert ticks(ax, "x") == names
    assert (ax.get_xlabel(), ax.get_ylabel()) == (item, "recall")


def test_plot_of_a_course():
    results = [filled("multiclass", seed=seed, prefix="val_").compute() for seed in range(3)]
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_")
    _, ax = report.plot(results)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    for name in OVERALL:
        wanted = [peers(*data("multiclass", seed=seed), "macro")[name] for seed in range(3)]
        assert lines[f"val_{name}"] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"val_{name}" for name in OVERALL]


def test_plot_of_a_course_of_classes_alone():
    report = filled("multiclass", measures={}, per_class=("recall",))
    _, ax = report.plot([report.compute(), report.compute()])
    assert [line.get_label() for line in ax.lines] == report.keys()


def test_plot_shows_the_last_result():
    report = filled("multiclass", seed=0)
    report.compute()
    report.reset()
    _, ax = report.plot()
    assert sum(int(text.get_text().split("\n")[0]) for text in ax.texts) == 60


def test_repr_is_one_line_with_what_matters():
    report = ImbalanceReport(
        "multiclass", class_names=["cat", "dog"], prefix="val_", ignore_index=-1, per_class=("f1",), state="margins"
    )
    text = repr(report)
    assert re.fullmatch(r"ImbalanceReport\(.*\)", text)
    for part in ("task='multiclass'", "num_classes=2", "prefix='val_'", "ignore_index=-1", "state='margins'", "f1"):
        assert part in text
    assert "postfix" not in text
    assert repr(report["iam"]) == "ReportedValue('val_iam', higher_is_better=True)"
    assert "intervals" not in text
    assert "intervals=True" in repr(ImbalanceReport("binary", intervals=True))
    assert "val_" in str(torch.nn.ModuleDict({"val": report}))


# --- size, and torchmetrics' tools ----------------------------------------------------------------------------------


def test_a_thousand_classes():
    report = ImbalanceReport("multiclass", num_classes=1000, per_class=("recall", "precision"))
    assert len(report) == len(OVERALL) + 2000
    target = torch.arange(2000) % 1000
    preds = target.clone()
    preds[999] = 0
    report.update(preds, target)
    values = report.compute()
    assert values["recall/999"] == 0.5
    assert values["precision/0"] == pytest.approx(2 / 3)
    assert report["recall/998"].compute() == 1
    assert report["accuracy"].compute() == pytest.approx(1999 / 2000)


def test_all_numbers_as_csv(tmp_path):
    report = ImbalanceReport("binary", class_names=["ok", "fraud, card"], measures=["accuracy"], groups=["a", "b"])
    target, preds = torch.tensor([0, 0, 0, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 0, 0])
    report.update(preds, target, group=torch.tensor([0, 0, 0, 0, 1, 1]))
    table, text = report.table(), io.StringIO()
    table.to_csv(text)
    table.to_csv(tmp_path / "table.csv")
    with pytest.raises(TypeError, match=r"to must be a path or a text file that is open.* got None"):
        table.to_csv(None)
    assert (tmp_path / "table.csv").read_bytes().decode() == text.getvalue()
    rows = list(csv.DictReader(text.getvalue().splitlines()))
    found = {(row["kind"], row["name"], row["measure"]): row["value"] for row in rows}
    assert len(found) == len(rows) == 1 + 2 * 4 + 2 * 2
    wanted = {
        ("overall", "", "accuracy"): 4 / 6,
        ("class", "ok", "support"): 4,
        ("class", "fraud, card", "recall"): 1 / 2,
        ("class", "fraud, card", "precision"): 1 / 2,
        ("group", "a", "support"): 4,
        ("group", "a", "accuracy"): 3 / 4,
        ("group", "b", "accuracy"): 1 / 2,
    }
    assert {key: float(found[key]) for key in wanted} == pytest.approx(wanted)
    sure = ImbalanceReport("binary", measures=["accuracy"], intervals=True, per_class=())
    sure.update(torch.tensor([0, 0]), torch.tensor([0, 1]))
    sure.table().to_csv(text := io.StringIO())
    first, second, *_ = csv.DictReader(text.getvalue().splitlines())
    assert float(first["low"]) == pytest.approx(sure.compute()["accuracy_low"].item())
    assert (second["name"], second["measure"], second["low"]) == ("0", "support", "")


def test_the_course_of_values_beside_trivial_ones():
    report = ImbalanceReport("binary", measures=["accuracy", "gmean", "dominance"], per_class=())
    report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    results = [report.compute(), report.compute()]
    _, ax = report.plot(results)
    dotted = {line.get_color(): line.get_ydata() for line in ax.lines if line.get_linestyle() == ":"}
    course = {line.get_label(): line.get_color() for line in ax.lines}
    assert list(dotted[course["accuracy"]]) == [0.75, 0.75]  # always class 0
    assert list(dotted[course["gmean"]]) == [0.0, 0.0]
    assert "trivial prediction" in course
    report.reset()
    _, ax = ImbalanceReport("binary", measures=["accuracy"], per_class=()).plot(results)
    assert "trivial prediction" not in {line.get_label() for line in ax.lines}


def test_a_tracker_follows_the_values():
    tracker = MetricTracker(ImbalanceReport("multiclass", num_classes=3), maximize=True)
    for seed in range(3):
        tracker.increment()
        tracker.update(*data("multiclass", seed=seed))
        assert_same({name: tracker.compute()[name] for name in OVERALL}, peers(*data("multiclass", seed=seed), "macro"))
    every = tracker.compute_all()
    wanted = [peers(*data("multiclass", seed=seed), "macro")["mcc"] for seed in range(3)]
    assert every["mcc"].tolist() == pytest.approx(wanted, rel=1e-5)


# --- another population ---------------------------------------------------------------------------------------------


def weighted(preds, target, prevalence):
    """Values of scikit-learn on samples that weigh what brings the classes to their shares."""
    counted = target.bincount(minlength=len(prevalence))
    shares = torch.tensor(prevalence, dtype=torch.float64) * (counted > 0)
    weight = {"sample_weight": (shares / shares.sum() / counted)[target]}
    how = {"average": "binary"} if len(prevalence) == 2 else {"average": "macro"}
    recalls = sklearn_metrics.recall_score(target, preds, average=None, **weight)
    return {
        "accuracy": sklearn_metrics.accuracy_score(target, preds, **weight),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(target, preds, **weight),
        "precision": sklearn_metrics.precision_score(target, preds, zero_division=0, **how, **weight),
        "recall": sklearn_metrics.recall_score(target, preds, **how, **weight),
        "f1": sklearn_metrics.f1_score(target, preds, **how, **weight),
        "mcc": sklearn_metrics.matthews_corrcoef(target, preds, **weight),
    } | {f"recall/{index}": value for index, value in enumerate(recalls)}


def assert_holds(values, wanted):
    assert_same({name: values[name] for name in wanted}, wanted)


@pytest.mark.parametrize(
    "prevalence", [[1000, 1, 30], [0.2, 0.5, 0.3], torch.tensor([1, 1, 2]), {"1": 1, "2": 30, "0": 1000}]
)
def test_values_at_a_prevalence_equal_sklearns(prevalence):
    preds, target = data("multiclass")
    report = ImbalanceReport("multiclass", num_classes=3, prevalence=prevalence)
    report.update(preds, target)
    shares = [prevalence[str(i)] for i in range(3)] if isinstance(prevalence, dict) else list(map(float, prevalence))
    wanted = weighted(preds, target, shares)
    assert_holds(report.compute(), wanted)
    assert_holds({name: value.compute() for name, value in report.items()}, wanted)
    assert report.counts().tolist() == sklearn_metrics.confusion_matrix(target, preds).tolist()
    for name, value in report.compute().items():
        if name in SINGLE:
            alone = getattr(metrics, SINGLE[name])("multiclass", num_classes=3)
            alone.update(preds, target)
            assert alone.at_prevalence(shares) == value, name


@pytest.mark.parametrize("names", [["ok", "fraud"], None])
def test_precision_collapses_where_positives_are_rare(names):
    """By hand: of 1,000 negatives 50 are taken for positive, of one positive .9 is found."""
    prevalence = {"fraud": 1, "ok": 1000} if names else [1000, 1]
    report = ImbalanceReport("binary", class_names=names, prevalence=prevalence, measures=TWO_CLASSES)
    report.update(torch.tensor([0] * 95 + [1] * 5 + [0] * 10 + [1] * 90), torch.tensor([0] * 100 + [1] * 100))
    values = report.compute()
    of_class = {"recall/fraud": 0.9, "precision/ok": 950 / 950.1} if names else {"recall/1": 0.9}
    wanted = {
        "precision": 0.9 / 50.9,
        "recall": 0.9,
        "accuracy": 950.9 / 1001,
        "balanced_accuracy": 0.925,
        "cba": (0.95 + 0.9 / 50.9) / 2,
        "iam": 0.95 + 0.9 / 50.9 - 1,
        "gmean": math.sqrt(0.95 * 0.9),
        "dominance": -0.05,
    } | of_class
    assert_holds(values, wanted)
    assert report.counts().tolist() == [[95, 5], [10, 90]]


def test_labels_at_a_prevalence():
    preds, target = data("multilabel")
    positives = [0.01, 0.5, 0.2]
    report = ImbalanceReport("multilabel", class_names=list("abc"), prevalence=dict(zip("abc", positives, strict=True)))
    report.update(preds, target)
    each = [weighted(preds[:, i], target[:, i], [1 - share, share]) for i, share in enumerate(positives)]
    values = report.compute()
    assert_holds(values, {name: sum(one[name] for one in each) / 3 for name in ("accuracy", "precision", "f1", "mcc")})
    assert_holds(values, {f"precision/{name}": one["precision"] for name, one in zip("abc", each, strict=True)})


def test_a_class_without_targets_leaves_its_share_to_the_others():
    preds, target = torch.tensor([0, 0, 1, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 1, 1])
    report = ImbalanceReport("multiclass", class_names=["cat", "dog", "owl"], prevalence=[6, 2, 2])
    report.update(preds, target)
    with pytest.warns(UserWarning, match=r"1 of 3 .* no target: owl; their share of the prevalence goes to the others"):
        values = report.compute()
    present = weighted(preds, target, [3, 1])
    assert_holds(values, {"accuracy": present["accuracy"], "mcc": present["mcc"], "recall/cat": present["recall/0"]})
    assert values["precision"] == pytest.approx((6 / 7 + 2 / 5) / 2)  # .5 right of .583, .167 of .417
    report.compute()  # told once
    report.reset()
    report.quiet = True  # Lightning's sanity check
    report.update(torch.tensor([2]), torch.tensor([2]))
    assert report.compute()["iam"] == 1
    report.reset()
    assert all(value.isnan() for value in report.compute().values())


def test_a_class_that_has_no_share_is_not_missed():
    report = ImbalanceReport("multiclass", num_classes=3, prevalence=[3, 1, 0])
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    assert report.compute()["accuracy"] == pytest.approx(0.75 * 0.5 + 0.25)
    report.update(torch.tensor([2, 2]), torch.tensor([2, 0]))  # predicted where it has no targets, so it counts 0
    values = report.compute()
    assert values["balanced_accuracy"] == pytest.approx((1 / 3 + 1) / 2)
    assert values["recall"] == pytest.approx((1 / 3 + 1 + 0) / 3)
    only = ImbalanceReport("multiclass", num_classes=3, prevalence=[0, 0, 1])
    only.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    with pytest.warns(UserWarning, match="1 of 3 classes had no target: 2;"):
        assert all(value.isnan() for value in only.compute().values())


def test_an_ignored_class_has_no_share_and_may_go_unnamed():
    names = ["cat", "dog", "void"]
    preds, target = torch.tensor([0, 1, 1, 0, 0]), torch.tensor([0, 0, 1, 1, 2])
    for prevalence in ({"cat": 9, "dog": 1}, {"cat": 9, "dog": 1, "void": 0}, [9, 1, 0]):
        report = ImbalanceReport("multiclass", class_names=names, ignore_index=2, prevalence=prevalence)
        report.update(preds, target)
        assert report.prevalence == (9, 1, 0)
        assert_holds(report.compute(), {"precision": (0.9 + 0.1) / 2, "balanced_accuracy": 0.5})


@pytest.mark.parametrize("size", [3, 70])
def test_forward_reads_the_batch_at_the_prevalence(size):
    """A class that the batch lacks leaves its share to the others, without a word."""
    prevalence = list(range(1, size + 1))
    report = ImbalanceReport("multiclass", num_classes=size, prevalence=prevalence)
    preds, target = data("multiclass", classes=3)
    values = report(preds, target)
    assert not any(values[name].isnan() for name in OVERALL)
    weights = torch.tensor([1.0, 2, 3])[target] / target.bincount()[target]
    assert_holds(values, {"accuracy": sklearn_metrics.accuracy_score(target, preds, sample_weight=weights)})
    assert report.counts().sum() == 60


def test_a_table_at_a_prevalence_has_the_support_that_was_counted():
    report = filled("multiclass", prevalence=[1000, 1, 30], per_class=SHOWN)
    preds, target = data("multiclass")
    wanted = weighted(preds, target, [1000, 1, 30])
    table, values = report.table(), report.compute()
    assert column(table, "support") == target.bincount().tolist()
    assert column(table, "predicted") == preds.bincount().tolist()
    assert column(table, "recall") == pytest.approx([wanted[f"recall/{index}"] for index in range(3)])
    assert column(table, "precision") == pytest.approx([float(values[f"precision/{index}"]) for index in range(3)])
    assert table.overall["accuracy"] == pytest.approx(wanted["accuracy"])
    assert sum(column(table, "f1")) / 3 == pytest.approx(wanted["f1"])
    _, ax = report.plot()
    assert sum(int(text.get_text().split("\n")[0]) for text in ax.texts) == 60


def test_intervals_at_a_prevalence_are_those_of_the_rates():
    """The posterior by NumPy: Jeffreys' Beta distributions of both rates, at 1:1000, stretched by twice the bias."""
    report = ImbalanceReport("binary", prevalence=[1000, 1], intervals=True)
    report.update(torch.tensor([0] * 190 + [1] * 10 + [0] * 20 + [1] * 80), torch.tensor([0] * 200 + [1] * 100))
    values = numbers(report.compute())
    random = np.random.default_rng(0)
    hit, false = random.beta(80.5, 20.5, 200_000), random.beta(10.5, 190.5, 200_000)
    measures = {
        "precision": lambda hit, false: hit / (hit + 1000 * false),
        "accuracy": lambda hit, false: (hit + 1000 * (1 - false)) / 1001,
        "balanced_accuracy": lambda hit, false: (hit + 1 - false) / 2,
    }
    for name, measure in measures.items():
        drawn = measure(hit, false)
        low, high = np.quantile(drawn, [0.025, 0.975])
        shift = 2 * (measure(hit.mean(), false.mean()) - drawn.mean())
        low, high = min(low, max(low + shift, drawn.min())), max(high, high + shift)
        assert values[f"{name}_low"] == pytest.approx(low, abs=0.08 * (high - low)), name
        assert values[f"{name}_high"] == pytest.approx(high, abs=0.08 * (high - low)), name
        assert values[f"{name}_low"] < values[name] < values[f"{name}_high"]


def test_a_function_sees_rates_at_a_prevalence():
    seen = []
    report = ImbalanceReport(
        "multiclass", num_classes=2, prevalence=[3, 1], measures={"own": lambda c: seen.append(c) or c.sum()}
    )
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    assert report.compute()["own"] == 1
    assert seen[0].tolist() == [[0.375, 0.375], [0, 0.25]]
    assert report.counts().dtype == torch.int64


def test_margins_of_two_classes_at_a_prevalence():
    reports = [
        ImbalanceReport("multiclass", num_classes=2, prevalence=[3, 1], state=state) for state in ("matrix", "margins")
    ]
    for report in reports:
        report.update(*data("multiclass", classes=2))
    assert_same(reports[1].compute(), reports[0].compute())
    with pytest.raises(ValueError, match=r"prevalence needs the whole matrix .* use state='matrix'"):
        ImbalanceReport("multiclass", num_classes=3, prevalence=[3, 1, 1], state="margins")


@pytest.mark.parametrize(
    ("task", "arguments", "prevalence", "error", "match"),
    [
        ("binary", {}, 0.01, ValueError, "prevalence must hold one share for each of 2 classes, got the number 0.01"),
        ("binary", {}, [1, 1, 1], ValueError, r"each of 2 classes, got \[3\]"),
        ("binary", {}, [0, 0], ValueError, "not all 0"),
        ("binary", {}, [1, math.nan], ValueError, "must be finite"),
        ("binary", {}, [1, -1], ValueError, "non-negative"),
        ("binary", {}, "ab", TypeError, "sequence of numbers"),
        ("binary", {}, {"0": 1}, ValueError, r"must name every class; missing are \['1'\]"),
        ("multiclass", {"class_names": ["a", "b"]}, {"a": 1, "b": 1, "c": 1}, ValueError, r"class_names are \['c'\]"),
        ("multiclass", {"class_names": ["a", "b"]}, {"a": 1, "b": "x"}, TypeError, "sequence of numbers"),
        ("multiclass", {"num_classes": 3, "ignore_index": 1}, [1, 1, 1], ValueError, "share to class 1, .*share 0"),
        ("multilabel", {"num_labels": 2}, [0.5, 1.5], ValueError, "share of positives of each label"),
        ("multilabel", {"num_labels": 2, "ignore_index": 1}, {"0": 0}, ValueError, r"missing are \['1'\]"),
    ],
)
def test_prevalences_that_do_not_fit(task, arguments, prevalence, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport(task, prevalence=prevalence, **arguments)


def test_a_report_at_a_prevalence_counts_like_any_other():
    plain, there = filled("binary"), filled("binary", prevalence=[1000, 1])
    assert plain._state_name == there._state_name
    assert "prevalence=[1000.0, 1.0]" in repr(there)
    assert "prevalence" not in repr(plain)
    rare = ImbalanceReport("binary", prevalence=[1000, 1])
    both = MetricCollection({"plain": ImbalanceReport("binary"), "there": rare})
    for seed in range(3):
        both.update(*data("binary", seed=seed))
    assert len(both.compute_groups) == 1
    assert both["there"].counts().equal(both["plain"].counts())
    assert both["there"].counts().sum() == 180
    assert both["there"].compute()["precision"] < 0.1 < both["plain"].compute()["precision"]
    for other in (copy.deepcopy(there), pickle.loads(pickle.dumps(there)), there.clone()):
        assert_same(other.compute(), there.compute())
    assert_same(there.half().compute(), filled("binary", prevalence=[1000, 1]).compute())
    with torch.device("meta"):
        born = ImbalanceReport("binary", prevalence=[1000, 1])
    born = born.to_empty(device="cpu")
    born.update(*data("binary"))
    assert_same(born.compute(), there.compute())


def harm(counts):
    return counts.fill_diagonal_(0).sum()


class Harmful(imbtorch.ConfusionMatrixMetric):
    measure = staticmethod(harm)


PREDS, TARGET = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1])


@pytest.mark.parametrize("measured", [harm, Harmful, (harm, True), functools.partial(harm)])
def test_a_function_of_ones_own_harms_no_other_value(measured):
    report = ImbalanceReport(
        "multiclass", 3, measures={"mine": measured, "accuracy": Accuracy}, per_class=("recall",), intervals=False
    )
    report.update(PREDS, TARGET)
    for _ in range(2):
        values = report.compute()
        assert values["mine"] == 2
        assert values["accuracy"] == pytest.approx(0.6)
        assert values["recall/1"] == 0.5
    assert report.local_confmat.trace() == 3
    assert report(PREDS, TARGET)["accuracy"] == pytest.approx(0.6)


def test_products_of_cells_do_not_overflow():
    report = ImbalanceReport("binary", measures={"product": lambda c: c[0, 0] * c[1, 1]}, per_class=())
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    for _ in range(32):  # doubles the counts
        report.merge_state(report.metric_state)
    assert report.local_confmat.tolist() == [[2**32, 0], [0, 2**32]]
    assert report.compute()["product"] == 2.0**64


def test_functions_of_ones_own_keep_their_digits_under_a_default_of_half_precision():
    report = ImbalanceReport("binary", measures={"mine": lambda c: c.diagonal().sum() / c.sum()}, per_class=())
    report.update(torch.arange(1000) % 3 == 0, torch.ones(1000, dtype=torch.int64))
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.warns(UserWarning, match="no target"):
            value = report.compute()["mine"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert value == torch.tensor(0.334)


@pytest.mark.parametrize("names", [{"cat", "dog"}, frozenset({"cat", "dog"}), {"cat": 0, "dog": 1}, 3])
def test_class_names_have_an_order(names):
    with pytest.raises(TypeError, match="class_names must be a sequence in the order of the classes"):
        ImbalanceReport("multiclass", class_names=names)


def test_values_of_a_report_refuse_to_merge_and_draw_themselves():
    report = ImbalanceReport("binary")
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    with pytest.raises(TypeError, match="call merge_state of the report itself"):
        report["iam"].merge_state(report["iam"])
    figure, axes = report["iam"].plot()
    assert figure is not None
    assert axes.has_data()


@pytest.mark.parametrize("names", [["ok", "fraud"], ["fraud", "ok"]])
def test_the_commonest_class_is_that_of_the_population(names):
    """In a validation set with more frauds than in a thousand of the population."""
    shares = {"ok": 1000, "fraud": 1}
    report = ImbalanceReport("binary", class_names=names, prevalence=shares, measures=["accuracy", "iam"])
    ok = names.index("ok")
    target = torch.tensor([ok] * 100 + [1 - ok] * 120)
    report.update(torch.where(torch.arange(220) % 5 == 0, 1 - target, target), target)
    report.compute()
    assert "Baseline: always predicting 'ok': accuracy 0.9990, iam -0.0010" in str(report.table())
    _, ax = report.plot([report.compute()] * 2)
    levels = {round(float(level), 4) for line in ax.get_lines() for level in line.get_ydata()[:1]}
    assert 0.999 in levels


def test_labels_that_most_samples_have_are_always_predicted():
    report = ImbalanceReport("multilabel", num_labels=2, prevalence=[0.9, 0.2], measures=["accuracy"], per_class=())
    target = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]] * 5)
    report.update(target.flip(0), target)
    report.compute()
    assert "predicting of each label what is more common: accuracy 0.8500" in str(report.table())


def test_reported_values_without_an_interval_are_not_called_unknown():
    report = ImbalanceReport(
        "multiclass",
        class_names=[*"abcd"],
        groups=["x", "y"],
        class_groups={"tail": ["c"]},
        superclasses={"ab": ["a", "b"]},
        measures=["iam"],
        soft=True,
    )
    target = torch.arange(8) % 4
    report.update(torch.eye(4)[target], target, group=torch.arange(8) // 4)
    for name in ("iam/x", "iam_worst", "iam_soft", "iam/superclasses", "recall/tail"):
        assert name in report
        with pytest.raises(ValueError, match=f"{name!r} has no interval here, but overall values and those of single"):
            report.interval(name)
    with pytest.raises(ValueError, match=r"names \['iam/z'\], which are not reported"):
        report.interval("iam/z")
