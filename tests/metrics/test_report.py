"""Values, names and arguments of reports on one process, against scikit-learn, imbalanced-learn and single metrics."""

import copy
import functools
import math
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from report_cases import (
    ANIMALS,
    COUNTING,
    GROUPS,
    NAMES,
    OVERALL,
    SIZES,
    TASKS,
    TWO_CLASSES,
    assert_same,
    batch_of,
    binary_peers,
    data,
    directed,
    error_rate,
    filled,
    numbers,
    peers,
    weighted,
)
from rooms import catalogue as metrics
from rooms import state_name, state_of
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.statistics import compare, posterior

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
@pytest.mark.parametrize("named", [False, True])
def test_per_class_names_up_to_20_classes(classes, per_class, named):
    names = [f"class {index}" for index in range(classes)] if named else None
    assert len(ImbalanceReport("multiclass", num_classes=classes, class_names=names)) == len(OVERALL) + per_class


def test_per_class_names_can_be_chosen():
    many = [f"class {index}" for index in range(21)]
    both = ImbalanceReport("multiclass", class_names=many, per_class=["recall", "precision"])
    assert both.keys()[len(OVERALL) :] == [f"{each}/{name}" for each in ("recall", "precision") for name in many]
    few = ImbalanceReport("multiclass", class_names=many[:20], per_class=())
    assert few.keys() == ImbalanceReport("multiclass", class_names=many).keys() == NAMES["multiclass"]
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


@pytest.mark.parametrize(
    ("arguments", "short", "logged"),
    [
        ({"intervals": ["iam"], "postfix": "_low"}, "iam", "iam_low"),
        ({"measures": {"iam": "iam", "val_iam": error_rate}, "prefix": "val_"}, "iam", "val_iam"),
        ({"class_names": ["cat", "cat_ema"], "postfix": "_ema"}, "recall/cat", "recall/cat_ema"),
        ({"measures": {"a": "iam", "x_a_y": "mcc"}, "prefix": "x_", "postfix": "_y"}, "a", "x_a_y"),
    ],
)
def test_a_logged_name_must_not_be_the_name_of_another_value(arguments, short, logged):
    affixes = {name: arguments[name] for name in ("prefix", "postfix") if name in arguments}
    called = " and ".join(f"{name}='{affix}'" for name, affix in affixes.items())
    with pytest.raises(ValueError, match=f"^{called} would log '{short}' as '{logged}', which is the name of another"):
        ImbalanceReport("binary", **arguments)
    plain = ImbalanceReport("binary", **{name: each for name, each in arguments.items() if name not in affixes})
    assert {short, logged} <= set(plain.keys())
    with pytest.raises(ValueError, match="would log 'threshold/a' as 'threshold/ab'"):
        imbtorch.ThresholdSweep("f1", task="multilabel", num_labels=2, class_names=["a", "ab"], postfix="b")


def test_a_prefix_may_begin_a_name():
    report = filled("multiclass", prefix="val_", measures={"iam": imbtorch.imbalance_accuracy, "val_mcc": error_rate})
    assert report.keys()[:2] == ["val_iam", "val_val_mcc"]
    for key, value in report.items():
        assert report[key] is value is report[value.name]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"class_names": ["a", "b"], "num_classes": 3}, ValueError, "holds 2 names for 3 classes; name each, in order"),
        ({"num_classes": 3, "measures": ["iamm"]}, ValueError, "got 'iamm'; did you mean 'iam'"),
        (
            {"num_classes": 3, "measures": ["?"]},
            ValueError,
            r"measures must be one of .* got '\?'; nearest: '\w+'(, '\w+'){4}$",
        ),
        ({"class_names": ["a", "b", "a"]}, ValueError, "class_names must differ, got a more than once"),
        ({"class_names": "abc"}, TypeError, "sequence of names"),
        ({"class_names": ["a", 1]}, TypeError, "non-empty strings"),
        ({"class_names": ["a", ""]}, TypeError, "non-empty strings"),
        ({"class_names": ["a"]}, ValueError, "num_classes must be at least 2"),
        ({}, ValueError, "needs num_classes"),
        ({"num_classes": 3, "per_class": "recall"}, TypeError, r"such as \('recall',\)"),
        ({"num_classes": 3, "per_class": ("gmean",)}, ValueError, "per_class must be one of .*'gmean'.* nearest: '"),
        ({"num_classes": 3, "measures": {"recall/1": error_rate}}, ValueError, "already contains 'recall/1'.*rename"),
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
def test_only_values_of_a_class_that_does_not_occur_are_nan(matrix, state):
    size = len(matrix)
    cells = [(i, j) for i, row in enumerate(matrix) for j, count in enumerate(row) for _ in range(count)]
    fit = {name: metric for name, metric in EVERY_MEASURE.items() if state == "matrix" or not metric.needs_matrix}
    measures = {name: metric.measure for name, metric in fit.items()}
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


# --- copies, devices, checkpoints -----------------------------------------------------------------------------------


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
    assert state_of(report).is_meta
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


# --- pictures and looks ---------------------------------------------------------------------------------------------


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


# --- another population ---------------------------------------------------------------------------------------------


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
    with pytest.warns(UserWarning, match=r"1 of 3 .* no target: owl; their prevalence is shared among the others"):
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


@pytest.mark.filterwarnings("ignore:.*are too few for this prevalence")
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


@pytest.mark.filterwarnings("ignore:.*are too few for this prevalence")
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
        (
            "multiclass",
            {"num_classes": 3, "ignore_index": 1},
            [1, 1, 1],
            ValueError,
            "must be 0 for class 1, .*give it 0",
        ),
        ("multilabel", {"num_labels": 2}, [0.5, 1.5], ValueError, "share of positives of each label"),
        ("multilabel", {"num_labels": 2, "ignore_index": 1}, {"0": 0}, ValueError, r"missing are \['1'\]"),
    ],
)
def test_prevalences_that_do_not_fit(task, arguments, prevalence, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport(task, prevalence=prevalence, **arguments)


def test_a_report_at_a_prevalence_counts_like_any_other():
    plain, there = filled("binary"), filled("binary", prevalence=[1000, 1])
    assert state_name(plain) == state_name(there)
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


PREDS, TARGET = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1])


@pytest.mark.parametrize("measured", [harm, directed(harm, True), functools.partial(harm)])
def test_a_function_of_ones_own_harms_no_other_value(measured):
    report = ImbalanceReport(
        "multiclass", 3, measures={"mine": measured, "accuracy": "accuracy"}, per_class=("recall",), intervals=False
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


def test_a_value_of_a_report_as_a_function_of_counts():
    preds, target = batch_of(4)
    report = ImbalanceReport(
        "multiclass", class_names=ANIMALS, class_groups=GROUPS, groups=["x", "y"], intervals=["iam"]
    )
    report.update(preds, target, group=torch.arange(len(target)) % 2)
    values = report.compute()
    for name in ("iam", "recall/emu", "recall/tail", "precision/fore"):
        read = report.measure(name)
        assert read(report.counts()).item() == pytest.approx(values[name].item(), abs=1e-6)
        assert read(report.counts().expand(3, 4, 4)).shape == (3,)
        assert read.higher_is_better is True
    for name in ("iam/x", "iam_worst", "iam_low"):
        with pytest.raises(ValueError, match=f"'{name}' is not a function of the counts of all samples, but of"):
            report.measure(name)
    with pytest.raises(ValueError, match="'recall/nobody', which is unknown"):
        report.measure("recall/nobody")


def precision_at(negatives, prevalence, errors):
    """Precision that a report logs for 100 positives with a recall of .8, and its warnings."""
    report = ImbalanceReport("binary", measures=["precision", "recall"], prevalence=prevalence)
    cells = torch.tensor([negatives - errors, errors, 20, 80])
    report.update(
        torch.tensor([0, 1, 0, 1]).repeat_interleave(cells), torch.tensor([0, 0, 1, 1]).repeat_interleave(cells)
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        value = report.compute()["precision"].item()
    return value, [str(each.message) for each in seen]


def test_a_precision_that_one_error_would_change_is_named():
    """At 1000:1 with a true false-positive rate of .01: too high by .27 in the mean, all of it in the sets named."""
    random, truth = np.random.default_rng(0), 0.8 / (0.8 + 1000 * 0.01)
    found = [precision_at(100, [1000, 1], int(errors)) for errors in random.binomial(100, 0.01, 200)]
    off = np.array([value - truth for value, _ in found])
    named = np.array([bool(texts) for _, texts in found])
    assert off.mean() > 0.2
    assert off[named].min() > 0.9
    assert np.abs(off[~named]).max() < 0.1
    assert 0.2 < named.mean() < 0.5
    many = [precision_at(10_000, [1000, 1], int(errors)) for errors in random.binomial(10_000, 0.01, 20)]
    assert not any(texts for _, texts in many)


def test_few_samples_are_named_once_and_only_where_the_prevalence_is_to_blame():
    value, texts = precision_at(100, [1000, 1], 0)
    assert value == 1
    assert texts == [
        "ImbalanceReport: 100 samples of 0 are too few for this prevalence; one error more would change precision, "
        "precision/1, by up to 0.91 more than without prevalence; count more of them, or compare "
        "intervals instead of values"
    ]  # .8 / (.8 + 10) is .926 less than 1; as counted, 80 / 81 is .012 less
    assert precision_at(100, None, 0) == (1, [])
    few = ImbalanceReport("binary", measures=["recall"], prevalence=[1, 1])
    few.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]))
    few.compute()  # a recall of two samples changes by .5 at any prevalence
    report = ImbalanceReport("multilabel", num_labels=2, measures=["precision"], per_class=(), prevalence=[0.001, 0.5])
    target = torch.tensor([[0, 1], [1, 0]]).repeat(50, 1)
    report.update(target, target)
    with pytest.warns(UserWarning, match="50 negatives of a label are too few for this prevalence"):
        report.compute()


@pytest.mark.filterwarnings("ignore:.*are too few for this prevalence")
def test_a_measure_of_a_report_at_a_prevalence_computes_what_the_report_logs():
    """Values by scikit-learn of samples whose weights bring the classes to their shares."""
    preds, target = data("multiclass", classes=4)
    shares = [900.0, 90.0, 9.0, 1.0]
    report = ImbalanceReport(
        "multiclass",
        class_names=ANIMALS,
        class_groups=GROUPS,
        prevalence=shares,
    )
    report.update(preds, target)
    fine = weighted(preds, target, shares)
    weight = {"sample_weight": (torch.tensor(shares) / target.bincount())[target]}
    of_each = sklearn_metrics.precision_score(target, preds, average=None, **weight)
    wanted = {
        **{name: fine[name] for name in ("accuracy", "balanced_accuracy", "precision", "recall", "f1", "mcc")},
        **{f"precision/{name}": value for name, value in zip(ANIMALS, of_each, strict=True)},
        "precision/head": (of_each[0] + of_each[1]) / 2,
        "precision/tail": (of_each[2] + of_each[3]) / 2,
    }
    counts, values = report.counts(), report.compute()
    plain = sklearn_metrics.precision_score(target, preds, average=None)
    assert of_each[2] != pytest.approx(plain[2], rel=0.1)  # the shares matter
    for name, value in wanted.items():
        read = report.measure(name)
        assert read(counts).item() == pytest.approx(value, abs=1e-6), name
        assert read(counts.expand(3, 4, 4)).tolist() == pytest.approx([value] * 3, abs=1e-6), name
        assert (read.higher_is_better, values[name].item()) == (True, pytest.approx(value, abs=1e-6)), name
    assert report.measure("confusion_entropy").higher_is_better is False  # not reported
    drawn = posterior(report.measure("precision/emu"), counts, generator=torch.Generator().manual_seed(0))
    assert drawn.estimate.item() == pytest.approx(of_each[2], abs=1e-6)
    binary = ImbalanceReport("binary", measures=["dominance"], prevalence=[9, 1])
    with pytest.raises(ValueError, match=r"measure dominance has no direction"):
        compare(binary.measure("dominance"), torch.eye(2), torch.eye(2))


def test_labels_with_thresholds_of_their_own_have_prices_of_their_own():
    """Net benefit of each label by scikit-learn's counts at its threshold; also of some of them."""
    generator = torch.Generator().manual_seed(3)
    scores, target = torch.rand(80, 4, generator=generator), torch.randint(2, (80, 4), generator=generator)
    thresholds = [0.2, 0.5, 0.4, 0.7]
    expected = []
    for label, price in enumerate(thresholds):
        flagged = scores[:, label].double() > price
        (_, fp), (_, tp) = sklearn_metrics.confusion_matrix(target[:, label], flagged)
        expected.append((tp - fp * price / (1 - price)) / 80)
    arguments = {"num_labels": 4, "threshold": thresholds}
    metric = imbtorch.NetBenefit("multilabel", **arguments)
    assert metric(scores, target).item() == pytest.approx(sum(expected) / 4, abs=1e-6)
    of_each = imbtorch.NetBenefit("multilabel", **arguments, average="none")
    assert of_each(scores, target).tolist() == pytest.approx(expected, abs=1e-6)
    report = ImbalanceReport(
        "multilabel",
        class_names=ANIMALS,
        threshold=thresholds,
        measures=["net_benefit"],
        per_class=["net_benefit"],
        class_groups=GROUPS,
    )
    report.update(scores, target)
    values = report.compute()
    assert values["net_benefit"].item() == pytest.approx(sum(expected) / 4, abs=1e-6)
    assert values["net_benefit/emu"].item() == pytest.approx(expected[2], abs=1e-6)
    assert values["net_benefit/tail"].item() == pytest.approx(sum(expected[2:]) / 2, abs=1e-6)
    assert report.measure("net_benefit/tail")(report.counts()).item() == pytest.approx(sum(expected[2:]) / 2)
    with pytest.raises(ValueError, match="average='micro' sums the counts of labels, but threshold="):
        imbtorch.NetBenefit("multilabel", **arguments, average="micro")
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\)"):
        imbtorch.NetBenefit("multilabel", num_labels=2, threshold=[0.2, 1.0])


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_too_few_classes_are_told_by_the_argument_that_named_them(named, scores):
    report = ImbalanceReport("multiclass", **({"class_names": ["cat", "dog"]} if named else {"num_classes": 2}))
    target = torch.tensor([0, 1, 2])
    wanted = ("class_names has 2 names", "name 3 classes") if named else ("num_classes=2", "num_classes(=| to )3")
    with pytest.raises(ValueError, match=rf"{wanted[0]}.*{wanted[1]}") as error:
        report.update(torch.eye(3) if scores else target, target)
    assert not named or "num_classes" not in str(error.value)


def test_a_prediction_of_minus_one_is_no_reason_for_more_classes():
    report = ImbalanceReport("multiclass", num_classes=3)
    with pytest.raises(ValueError, match=r"preds holds class -1 .*a prediction must be a class") as error:
        report.update(torch.tensor([0, -1, 2]), torch.tensor([0, 1, 2]))
    assert "raise" not in str(error.value)


def test_an_argument_that_is_misspelt_is_named_before_one_that_lacks():
    with pytest.raises(TypeError, match="no argument 'classnames'; did you mean 'class_names'"):
        ImbalanceReport("multiclass", classnames=["a", "b"])


def test_names_of_classes_are_told_of_the_function_that_takes_them():
    with pytest.raises(TypeError, match=r"target must be a torch.Tensor, got list; imbtorch.report\(preds="):
        ImbalanceReport("multiclass", 2).update(torch.tensor([0, 1]), ["a", "b"])
