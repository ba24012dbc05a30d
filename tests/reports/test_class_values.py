"""Measures of each class in `metrics/report.py`, against scikit-learn."""

import pytest
import torch
from report_cases import batch_of, directed, jaccard_of_each, report_of
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import ImbalanceReport

# --- functions of one's own for each class --------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_function_for_each_class_equals_scikit_learn(task):
    classes = 2 if task == "binary" else 3
    report = report_of(task, classes, measures=["iam"], per_class={"iou": jaccard_of_each, "sensitivity": "recall"})
    preds, target = batch_of(classes)
    values = report.compute()
    for index, expected in enumerate(sklearn_metrics.jaccard_score(target, preds, average=None)):
        assert values[f"iou/{index}"].item() == pytest.approx(expected, abs=1e-6)
    for index, expected in enumerate(sklearn_metrics.recall_score(target, preds, average=None)):
        assert values[f"sensitivity/{index}"].item() == pytest.approx(expected, abs=1e-6)
    assert report.per_class == ("iou", "sensitivity")
    assert report["iou/0"].higher_is_better is None
    assert report["sensitivity/0"].higher_is_better is True


def test_a_direction_for_each_class():
    misses = directed(lambda counts: 1 - counts.diagonal() / counts.sum(1), False)
    report = report_of(measures=["iam"], per_class={"miss_rate": misses})
    assert report["miss_rate/1"].higher_is_better is False


def test_a_function_for_each_label_sees_two_by_two():
    generator = torch.Generator().manual_seed(1)
    preds, target = (torch.randint(2, (60, 3), generator=generator) for _ in range(2))
    report = ImbalanceReport(
        "multilabel",
        class_names=["a", "b", "c"],
        measures=["iam"],
        per_class={"iou": lambda counts: counts[1, 1] / (counts.sum() - counts[0, 0])},
    )
    report.update(preds, target)
    values = report.compute()
    for index, name in enumerate("abc"):
        expected = sklearn_metrics.jaccard_score(target[:, index], preds[:, index])
        assert values[f"iou/{name}"].item() == pytest.approx(expected, abs=1e-6)


def test_measures_of_each_class_may_be_of_one_against_the_rest():
    report = report_of(measures=["iam"], per_class={"iba": imbtorch.index_balanced_accuracy})
    preds, target = batch_of()
    for index in range(3):
        binary = imbtorch.IndexBalancedAccuracy("binary")
        binary.update((preds == index).long(), (target == index).long())
        assert report.compute()[f"iba/{index}"].item() == pytest.approx(binary.compute().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("per_class", "error", "text"),
    [
        ({"g": "gmean"}, ValueError, r"per_class\['g'\] has one value for all classes .* name it in measures"),
        ({"": "recall"}, TypeError, "got the name ''"),
        ({"r": 3}, TypeError, r"per_class\['r'\] must be the name of a measure"),
        (["f2"], ValueError, "per_class must be one of .*got 'f2'.*did you mean 'f1'"),
    ],
)
def test_what_is_no_measure_of_each_class(per_class, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", num_classes=3, per_class=per_class)


def test_a_function_for_each_class_that_gives_one_value():
    report = report_of(measures=["iam"], per_class={"wrong": lambda counts: counts.sum()})
    with pytest.raises(ValueError, match=r"per_class\['wrong'\] must return one value for each class, \[3\].*got \[\]"):
        report.compute()


def test_a_function_for_each_class_gets_a_copy():
    def spoils(counts):
        counts.zero_()
        return counts[0]

    report = report_of(measures=["accuracy"], per_class={"zero": spoils})
    preds, target = batch_of()
    assert report.compute()["zero/0"].item() == 0
    assert report.compute()["accuracy"].item() == pytest.approx((preds == target).double().mean().item())


# --- a YAML file ----------------------------------------------------------------------------------------------------


def test_the_value_of_a_batch_of_many_classes_sees_the_matrix_where_a_measure_of_each_class_needs_it():
    preds, target = batch_of(70, 500)  # more classes than a batch keeps a matrix for without need
    report = ImbalanceReport("multiclass", num_classes=70, measures=["accuracy"], per_class={"iou": jaccard_of_each})
    values = report(preds, target)
    expected = sklearn_metrics.jaccard_score(target, preds, average=None, labels=range(70))
    assert [values[f"iou/{index}"].item() for index in range(70)] == pytest.approx(expected.tolist(), abs=1e-6)


# --- class groups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dominance", "dominance_area", "iba", "markedness"])
def test_measures_of_two_classes_of_each_class_by_name(name):
    report = report_of(measures=["iam"], per_class=("recall", name))
    values = report.compute()
    preds, target = batch_of()
    for index in range(3):
        (tn, fp), (fn, tp) = sklearn_metrics.confusion_matrix(target == index, preds == index).tolist()
        tpr, tnr = tp / (tp + fn), tn / (tn + fp)
        wanted = {
            "dominance": tpr - tnr,
            "dominance_area": (tpr * tnr) ** 0.5 * (tpr - tnr + 3) / 2,
            "iba": (tpr * tnr) ** 0.5 * (1 + 0.05 * (tpr - tnr)),
            "markedness": tp / (tp + fp) + tn / (tn + fn) - 1,
        }[name]
        assert values[f"{name}/{index}"].item() == pytest.approx(wanted, abs=1e-6)
    assert report.per_class == ("recall", name)


def test_names_that_have_no_value_of_each_class():
    for task, sizes in (("multiclass", {"num_classes": 3}), ("binary", {})):
        with pytest.raises(ValueError, match=r"per_class must be one of .*, got 'mcc'"):
            ImbalanceReport(task, **sizes, per_class=("mcc",))
    with pytest.raises(ValueError, match=r"per_class must be one of .*, got 'dominance'"):
        ImbalanceReport("binary", per_class=("dominance",))
    labels = ImbalanceReport("multilabel", num_labels=2, per_class=("mcc", "dominance"))
    assert {"mcc/0", "mcc/1", "dominance/0", "dominance/1"} < set(labels.keys())
