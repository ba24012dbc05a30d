"""Class groups of `metrics/report.py`: means over some classes, against scikit-learn and reports of these alone."""

from collections import Counter

import pytest
import torch
from processes import launch
from report_cases import ANIMALS, GROUPS, batch_of, jaccard_of_each
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import ImbalanceReport

# --- class groups ---------------------------------------------------------------------------------------------------


def test_class_groups_are_means_over_their_classes():
    preds, target = batch_of(4)
    report = ImbalanceReport(
        "multiclass",
        class_names=ANIMALS,
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
    report = ImbalanceReport("multilabel", class_names=ANIMALS, class_groups=GROUPS, per_class=["f1", "iam"])
    report.update(preds, target)
    for name, labels in (("head", [0, 1]), ("tail", [2, 3]), ("fore", [0, 3, 2])):
        alone = ImbalanceReport("multilabel", num_labels=len(labels), measures=["f1", "iam"])
        alone.update(preds[:, labels], target[:, labels])
        for measure in ("f1", "iam"):
            assert report.compute()[f"{measure}/{name}"].item() == alone.compute()[measure].item()


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
    for counts in ([1.5, 2.0], [-1, 2], [[1, 2]], Counter([0, 1, 1]), ["cat", "dog"]):
        with pytest.raises(ValueError, match="train_counts must hold"):
            imbtorch.shot_groups(counts)
    with pytest.raises(ValueError, match="few=30 and many=20"):
        imbtorch.shot_groups([1], many=20, few=30)


def test_labels_in_place_of_counts_are_an_error_that_says_how_to_count_them():
    labels = torch.arange(1000) % 4
    with pytest.raises(ValueError, match=r"no class; .*pass it torch\.bincount\(labels, minlength=4\)$"):
        ImbalanceReport("multiclass", num_classes=4, class_groups=imbtorch.shot_groups(labels))
    groups = imbtorch.shot_groups(torch.bincount(labels, minlength=4))  # as it says: 250 samples of each
    assert ImbalanceReport("multiclass", num_classes=4, class_groups=groups).class_groups == {"many": (0, 1, 2, 3)}


def test_a_warning_names_shot_groups_that_lack_the_last_classes():
    counts = torch.arange(100)
    text = r"only the first 99 of 100 classes, .*torch\.bincount\(labels, minlength=100\)$"
    with pytest.warns(UserWarning, match=text) as caught:
        ImbalanceReport("multiclass", num_classes=100, class_groups=imbtorch.shot_groups(counts[1:]))
    assert caught[0].filename == __file__
    groups = imbtorch.shot_groups(counts)
    for some in (groups, {"few": groups["few"]}, {"head": [0, 1], "tail": [2, 3]}):  # warnings are errors here
        ImbalanceReport("multiclass", num_classes=100, class_groups=some)


@pytest.mark.parametrize(
    ("groups", "error", "text"),
    [
        ({"cat": ["dog"]}, ValueError, "'recall/cat' is already reported, and class_groups adds it again"),
        ({"a:b": ["dog"]}, ValueError, "cannot hold :"),
        ({"{x}": ["dog"]}, ValueError, "cannot hold { }"),
        ({"[x]": ["dog"]}, ValueError, r"cannot hold \[ \]"),
        ({"tail": ["cow"]}, ValueError, r"class_groups\['tail'\] holds 'cow', which is no class"),
        ({"tail": [4]}, ValueError, "holds 4, which is no class; use indices 0..3"),
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
        ImbalanceReport("multiclass", class_names=ANIMALS, class_groups=groups)


def test_class_groups_need_a_measure():
    with pytest.raises(ValueError, match="per_class, which is empty"):
        ImbalanceReport("multiclass", class_names=ANIMALS, class_groups=GROUPS, per_class=())


def of_class_groups(rank, world):
    preds, target = batch_of(4)
    report = ImbalanceReport("multiclass", class_names=ANIMALS, class_groups=GROUPS)
    report.update(preds[rank::world], target[rank::world])
    return report.compute()["recall/tail"].item()


def test_class_groups_on_two_processes():
    preds, target = batch_of(4)
    expected = sklearn_metrics.recall_score(target, preds, average=None)[2:].mean()
    assert launch(2, of_class_groups) == [pytest.approx(expected, abs=1e-6)] * 2


def other_class_groups(rank, world):
    groups = {"tail": [2, 3]} if rank else {"tail": [1, 3]}
    report = ImbalanceReport("multiclass", class_names=ANIMALS, class_groups=groups)
    with pytest.raises(RuntimeError, match="not set up alike"):
        report.compute()


def test_processes_with_other_class_groups_are_told_apart():
    launch(2, other_class_groups)
