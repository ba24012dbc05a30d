"""What a report and a sweep take as a measure: names, classes, instances, partials, functions, words of a YAML file."""

import functools

import jsonargparse
import pytest
import torch
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import FScore, ImbalanceReport, ThresholdSweep


def samples(classes=3, size=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (size,), generator=generator)
    noise = torch.randint(classes, (size,), generator=generator)
    return torch.where(torch.rand(size, generator=generator) < 0.6, target, noise), target


def filled(task="multiclass", classes=3, **arguments):
    sizes = {"num_classes": classes} if task == "multiclass" else {}
    report = ImbalanceReport(task, **sizes, **arguments)
    report.update(*samples(classes))
    return report


def jaccard_of_each(counts):
    hits = counts.diagonal()
    return hits / (counts.sum(0) + counts.sum(1) - hits)


# --- names, instances, partials -------------------------------------------------------------------------------------


def test_measures_by_name_equal_the_single_metrics():
    values = filled(measures=["mcc", "gmean"], per_class=()).compute()
    preds, target = samples()
    recalls = torch.tensor(sklearn_metrics.recall_score(target, preds, average=None))
    assert list(values) == ["mcc", "gmean"]
    assert values["mcc"].item() == pytest.approx(sklearn_metrics.matthews_corrcoef(target, preds), abs=1e-6)
    assert values["gmean"].item() == pytest.approx(recalls.prod().item() ** (1 / 3), abs=1e-6)


@pytest.mark.parametrize(
    "f2",
    [
        FScore("binary", beta=2),
        functools.partial(FScore, beta=2),
        functools.partial(imbtorch.f_score, beta=2),
        (functools.partial(imbtorch.f_score, beta=2), True),
    ],
)
def test_a_measure_with_an_argument_of_its_own(f2):
    preds, target = samples(2)
    expected = sklearn_metrics.fbeta_score(target, preds, beta=2)
    report = filled("binary", 2, measures={"f2": f2, "again": "recall"}, per_class=())
    assert report.compute()["f2"].item() == pytest.approx(expected, abs=1e-6)
    assert report["f2"].higher_is_better is True
    assert report.compute()["again"].item() == pytest.approx(sklearn_metrics.recall_score(target, preds), abs=1e-6)
    sweep = ThresholdSweep(f2, thresholds=torch.tensor([0.5]))
    sweep.update(preds.float(), target)
    assert sweep.compute()["value"].item() == pytest.approx(expected, abs=1e-6)


def test_a_sweep_takes_a_name():
    by_name, by_class = ThresholdSweep("iba"), ThresholdSweep(imbtorch.IndexBalancedAccuracy)
    assert by_name._settings_text() == by_class._settings_text()


@pytest.mark.parametrize(
    ("measures", "error", "text"),
    [
        (["iam", "youden"], ValueError, "measures must be one of .*'iam'.*got 'youden'"),
        ({"j": "youden"}, ValueError, "j must be one of .*'iam'.*got 'youden'"),
        (["iam", "iam"], ValueError, r"must not name a measure twice, got \['iam', 'iam'\]"),
        ("iam", TypeError, r"names such as \['iam', 'mcc'\].*got 'iam'"),
        ([imbtorch.ImbalanceAccuracy], TypeError, r"or map names to measures, as in \{'iam': ImbalanceAccuracy\}"),
        ({1: "iam"}, TypeError, "got the name 1"),
        ({"f2": FScore("multiclass", num_classes=4, beta=2)}, ValueError, "'f2' was made to count otherwise"),
    ],
)
def test_what_is_no_measure(measures, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", num_classes=3, measures=measures)


def test_measures_tell_reports_apart_on_several_processes():
    texts = {
        ImbalanceReport("binary", measures=measures, per_class=per_class)._settings_text()
        for measures in (["iam"], ["mcc"], {"iam": "mcc"})
        for per_class in ((), {"iou": jaccard_of_each}, {"iou": "recall"})
    }
    assert len(texts) == 9


# --- functions of one's own for each class --------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_function_for_each_class_equals_scikit_learn(task):
    classes = 2 if task == "binary" else 3
    report = filled(task, classes, measures=["iam"], per_class={"iou": jaccard_of_each, "sensitivity": "recall"})
    preds, target = samples(classes)
    values = report.compute()
    for index, expected in enumerate(sklearn_metrics.jaccard_score(target, preds, average=None)):
        assert values[f"iou/{index}"].item() == pytest.approx(expected, abs=1e-6)
    for index, expected in enumerate(sklearn_metrics.recall_score(target, preds, average=None)):
        assert values[f"sensitivity/{index}"].item() == pytest.approx(expected, abs=1e-6)
    assert report.per_class == ("iou", "sensitivity")
    assert report["iou/0"].higher_is_better is None
    assert report["sensitivity/0"].higher_is_better is True


def test_a_direction_for_each_class():
    misses = (lambda counts: 1 - counts.diagonal() / counts.sum(1), False)
    report = filled(measures=["iam"], per_class={"miss_rate": misses})
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
    report = filled(measures=["iam"], per_class={"iba": imbtorch.IndexBalancedAccuracy})
    preds, target = samples()
    for index in range(3):
        binary = imbtorch.IndexBalancedAccuracy("binary")
        binary.update((preds == index).long(), (target == index).long())
        assert report.compute()[f"iba/{index}"].item() == pytest.approx(binary.compute().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("per_class", "error", "text"),
    [
        ({"g": "gmean"}, ValueError, r"per_class\['g'\] has one value of all classes .* belongs among measures"),
        ({"": "recall"}, TypeError, "got the name ''"),
        ({"r": 3}, TypeError, r"measures\['r'\] must be a metric class of imbtorch, its name"),
        (["f2"], ValueError, "per_class must be one of .*'recall'.*got 'f2'"),
    ],
)
def test_what_is_no_measure_of_each_class(per_class, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", num_classes=3, per_class=per_class)


def test_a_function_for_each_class_that_gives_one_value():
    report = filled(measures=["iam"], per_class={"wrong": lambda counts: counts.sum()})
    with pytest.raises(ValueError, match=r"per_class\['wrong'\] must return one value for each class, \[3\].*got \[\]"):
        report.compute()


def test_a_function_for_each_class_gets_a_copy():
    def spoils(counts):
        counts.zero_()
        return counts[0]

    report = filled(measures=["accuracy"], per_class={"zero": spoils})
    preds, target = samples()
    assert report.compute()["zero/0"].item() == 0
    assert report.compute()["accuracy"].item() == pytest.approx((preds == target).double().mean().item())


# --- a YAML file ----------------------------------------------------------------------------------------------------

REPORT_IN_YAML = """
report:
  class_path: imbtorch.ImbalanceReport
  init_args:
    task: binary
    class_names: [ok, fraud]
    prefix: val_
    measures:
      iam: iam
      f2:
        class_path: imbtorch.FScore
        init_args: {task: binary, beta: 2}
      sensitivity: imbtorch.Recall
      right: imbtorch.measures.accuracy
    per_class: [recall]
"""


def parsed(text, kind):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--report", type=kind)
    return parser.instantiate(parser.parse_string(text)).report


def test_a_report_from_a_yaml_file():
    report = parsed(REPORT_IN_YAML, ImbalanceReport)
    assert report.keys() == [
        *("val_iam", "val_f2", "val_sensitivity", "val_right"),
        *("val_recall/ok", "val_recall/fraud"),
    ]
    preds, target = samples(2)
    report.update(preds, target)
    values = report.compute()
    assert values["val_f2"].item() == pytest.approx(sklearn_metrics.fbeta_score(target, preds, beta=2), abs=1e-6)
    assert values["val_sensitivity"].item() == pytest.approx(sklearn_metrics.recall_score(target, preds), abs=1e-6)
    assert values["val_right"].item() == pytest.approx(sklearn_metrics.accuracy_score(target, preds), abs=1e-6)


def test_names_in_a_yaml_file():
    text = """
report:
  class_path: imbtorch.ImbalanceReport
  init_args: {task: multiclass, num_classes: 3, measures: [iam, mcc], per_class: []}
"""
    assert parsed(text, ImbalanceReport).keys() == ["iam", "mcc"]
    sweep = "report: {class_path: imbtorch.ThresholdSweep, init_args: {measure: iba, thresholds: 11}}"
    assert parsed(sweep, ThresholdSweep)._measure.traits.name == "IndexBalancedAccuracy"
