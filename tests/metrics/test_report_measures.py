"""What a report and a sweep take as a measure: names, classes, instances, partials, functions, words of a YAML file."""

import functools

import jsonargparse
import pytest
import torch
from processes import launch
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
    assert parsed(sweep, ThresholdSweep)._measure.name == "IndexBalancedAccuracy"


def test_the_value_of_a_batch_of_many_classes_sees_the_matrix_where_a_measure_of_each_class_needs_it():
    preds, target = samples(70, 500)  # more classes than a batch keeps a matrix for without need
    report = ImbalanceReport("multiclass", num_classes=70, measures=["accuracy"], per_class={"iou": jaccard_of_each})
    values = report(preds, target)
    expected = sklearn_metrics.jaccard_score(target, preds, average=None, labels=range(70))
    assert [values[f"iou/{index}"].item() for index in range(70)] == pytest.approx(expected.tolist(), abs=1e-6)


# --- class groups ---------------------------------------------------------------------------------------------------

NAMES = ["cat", "dog", "emu", "fox"]
GROUPS = {"head": ["cat", 1], "tail": ["emu", "fox"], "fore": [0, "fox", 2]}


def test_class_groups_are_means_over_their_classes():
    preds, target = samples(4)
    report = ImbalanceReport(
        "multiclass",
        class_names=NAMES,
        class_groups=GROUPS,
        measures=["iam"],
        per_class={"r": "recall", "iou": jaccard_of_each},
    )
    report.update(preds, target)
    values = report.compute()
    recalls = sklearn_metrics.recall_score(target, preds, average=None)
    ious = sklearn_metrics.jaccard_score(target, preds, average=None)
    for name, classes in (("head", [0, 1]), ("tail", [2, 3]), ("fore", [0, 3, 2])):
        assert values[f"r/{name}"].item() == pytest.approx(recalls[classes].mean(), abs=1e-6)
        assert values[f"iou/{name}"].item() == pytest.approx(ious[classes].mean(), abs=1e-6)
    assert report["r/tail"].higher_is_better is True
    assert report.class_groups == {"head": (0, 1), "tail": (2, 3), "fore": (0, 3, 2)}
    assert "class_groups={'head': (0, 1)" in repr(report)


@pytest.mark.parametrize("ignore_index", [None, 3])
def test_absent_and_ignored_classes_take_no_part(ignore_index):
    preds, target = torch.tensor([0, 0, 1, 2, 0, 0]), torch.tensor([0, 0, 1, 1, 2, 3])
    groups = {"absent": [4], "some": [1, 4], "with the fourth": [1, 3]}
    report = ImbalanceReport(
        "multiclass",
        num_classes=5,
        class_groups=groups,
        measures=["iam"],
        per_class=["recall"],
        ignore_index=ignore_index,
    )
    report.update(preds, target)
    with pytest.warns(UserWarning, match="had no target"):
        values = report.compute()
    assert values["recall/absent"].isnan()
    assert values["recall/some"].item() == 0.5
    assert values["recall/with the fourth"].item() == (0.25 if ignore_index is None else 0.5)


def test_groups_of_labels_equal_a_report_of_those_labels():
    generator = torch.Generator().manual_seed(3)
    preds, target = (torch.randint(2, (50, 4), generator=generator) for _ in range(2))
    report = ImbalanceReport("multilabel", class_names=NAMES, class_groups=GROUPS, per_class=["f1", "iam"])
    report.update(preds, target)
    for name, labels in (("head", [0, 1]), ("tail", [2, 3]), ("fore", [0, 3, 2])):
        alone = ImbalanceReport("multilabel", num_labels=len(labels), measures=["f1", "iam"])
        alone.update(preds[:, labels], target[:, labels])
        for measure in ("f1", "iam"):
            assert report.compute()[f"{measure}/{name}"].item() == alone.compute()[measure].item()


def test_a_value_of_a_report_as_a_function_of_counts():
    preds, target = samples(4)
    report = ImbalanceReport(
        "multiclass", class_names=NAMES, class_groups=GROUPS, groups=["x", "y"], soft=False, intervals=["iam"]
    )
    report.update(preds, target, group=torch.arange(len(target)) % 2)
    values = report.compute()
    for name in ("iam", "recall/emu", "recall/tail", "precision/fore"):
        read = report.measure(name)
        assert read(report.counts()).item() == pytest.approx(values[name].item(), abs=1e-6)
        assert read(report.counts().expand(3, 4, 4)).shape == (3,)
        assert read.higher_is_better is True
    for name in ("iam/x", "iam_worst", "iam_low"):
        with pytest.raises(ValueError, match=f"'{name}' is no function of the counts of all samples, but of their"):
            report.measure(name)
    with pytest.raises(ValueError, match="'recall/nobody', which is unknown"):
        report.measure("recall/nobody")


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
        class_names=NAMES,
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
    with pytest.raises(ValueError, match="average='micro' sums the counts of labels, which threshold="):
        imbtorch.NetBenefit("multilabel", **arguments, average="micro")
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\)"):
        imbtorch.NetBenefit("multilabel", num_labels=2, threshold=[0.2, 1.0])


def test_groups_of_many_classes_without_their_names():
    train = torch.arange(1000).flip(0)
    report = ImbalanceReport("multiclass", num_classes=1000, class_groups=imbtorch.shot_groups(train), measures=["iam"])
    assert report.keys() == [
        "iam",
        *(f"{each}/{name}" for each in ("recall", "precision") for name in ("many", "medium", "few")),
    ]
    target = torch.arange(1000)
    report.update(torch.where(target > 950, 0, target), target)  # of the 20 classes below 20 samples none is hit
    values = report.compute()
    assert values["recall/many"].item() == 1
    assert values["recall/medium"].item() == pytest.approx((950 - 899 + 1) / (979 - 899 + 1))
    assert values["recall/few"].item() == 0


def test_shot_groups_have_the_limits_of_the_literature():
    assert imbtorch.shot_groups(torch.tensor([101, 100, 20, 19])) == {"many": [0], "medium": [1, 2], "few": [3]}
    assert imbtorch.shot_groups([3, 2], many=2, few=2) == {"many": [0], "medium": [1]}
    for counts in ([1.5, 2.0], [-1, 2], [[1, 2]]):
        with pytest.raises(ValueError, match="train_counts must hold"):
            imbtorch.shot_groups(counts)
    with pytest.raises(ValueError, match="few=30 and many=20"):
        imbtorch.shot_groups([1], many=20, few=30)


@pytest.mark.parametrize(
    ("groups", "error", "text"),
    [
        ({"cat": ["dog"]}, ValueError, "'recall/cat' is reported already, and class_groups adds it once more"),
        ({"a:b": ["dog"]}, ValueError, "cannot bear :"),
        ({"{x}": ["dog"]}, ValueError, "cannot bear { }"),
        ({"[x]": ["dog"]}, ValueError, r"cannot bear \[ \]"),
        ({"tail": ["cow"]}, ValueError, r"class_groups\['tail'\] holds 'cow', which is no class"),
        ({"tail": [4]}, ValueError, "holds 4, which is no class; classes are 0..3"),
        ({"tail": [-1]}, ValueError, "holds -1"),
        ({"tail": ["dog", 1]}, ValueError, "must not hold a class twice"),
        ({"tail": []}, TypeError, "must be a sequence of class names or indices"),
        ({"tail": "dog"}, TypeError, "must be a sequence of class names or indices, got 'dog'"),
        ({"tail": [1.5]}, TypeError, r"class_groups\['tail'\] must be an int"),
        ({1: ["dog"]}, TypeError, "names that are non-empty strings, got 1"),
        (["cat"], TypeError, "class_groups must map names to classes"),
    ],
)
def test_class_groups_that_do_not_fit(groups, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", class_names=NAMES, class_groups=groups)


def test_class_groups_need_a_measure():
    with pytest.raises(ValueError, match="per_class, which names none"):
        ImbalanceReport("multiclass", class_names=NAMES, class_groups=GROUPS, per_class=())


def of_class_groups(rank, world):
    preds, target = samples(4)
    report = ImbalanceReport("multiclass", class_names=NAMES, class_groups=GROUPS)
    report.update(preds[rank::world], target[rank::world])
    return report.compute()["recall/tail"].item()


def test_class_groups_on_two_processes():
    preds, target = samples(4)
    expected = sklearn_metrics.recall_score(target, preds, average=None)[2:].mean()
    assert launch(2, of_class_groups) == [pytest.approx(expected, abs=1e-6)] * 2


def other_class_groups(rank, world):
    groups = {"tail": [2, 3]} if rank else {"tail": [1, 3]}
    report = ImbalanceReport("multiclass", class_names=NAMES, class_groups=groups)
    with pytest.raises(RuntimeError, match="not set up alike"):
        report.compute()


def test_processes_with_other_class_groups_are_told_apart():
    launch(2, other_class_groups)


@pytest.mark.parametrize("name", ["dominance", "dominance_area", "iba", "markedness"])
def test_measures_of_two_classes_of_each_class_by_name(name):
    report = filled(measures=["iam"], per_class=("recall", name))
    values = report.compute()
    preds, target = samples()
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
        with pytest.raises(ValueError, match=r"per_class must be one of 'precision', .*, got 'mcc'"):
            ImbalanceReport(task, **sizes, per_class=("mcc",))
    with pytest.raises(ValueError, match=r"per_class must be one of .*, got 'dominance'"):
        ImbalanceReport("binary", per_class=("dominance",))
    labels = ImbalanceReport("multilabel", num_labels=2, per_class=("mcc", "dominance"))
    assert {"mcc/0", "mcc/1", "dominance/0", "dominance/1"} < set(labels.keys())
