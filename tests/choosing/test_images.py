"""Means over images, held against NumPy, scikit-learn and the rule that MONAI documents."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import f1_score

import imbtorch
from imbtorch import confusion_matrix
from imbtorch.statistics import over_images

RULES = ("skip", 1, 0)


def pictures(seed=0, images=12, classes=2):
    """Labels and predictions of small images: some empty, some with predictions only."""
    random = np.random.default_rng(seed)
    target = random.integers(classes, size=(images, 6, 6)) * (random.random((images, 6, 6)) < 0.3)
    preds = np.where(random.random(target.shape) < 0.2, random.integers(classes, size=target.shape), target)
    target[:4], preds[:2] = 0, 0
    return torch.from_numpy(preds), torch.from_numpy(target)


def counted(preds, target, classes=2):
    task = {"task": "binary"} if classes == 2 else {"task": "multiclass", "num_classes": classes}
    return confusion_matrix(preds, target, **task, samplewise=True)


def monai_dice(preds, target, ignore_empty):
    """MONAI's ``compute_dice``: without targets nan if ignored, else 1 without predictions and 0 with them."""
    if target.any():
        return 2 * (preds & target).sum() / (preds.sum() + target.sum())
    return math.nan if ignore_empty else float(not preds.any())


def test_the_mean_dice_of_images_is_none_of_the_values_of_direct_calls():
    preds, target = pictures()
    counts = counted(preds, target)
    each = [f1_score(t.flatten(), p.flatten(), zero_division=np.nan) for p, t in zip(preds, target, strict=True)]
    assert np.isnan(each).tolist() == [True, True, *[False] * 10]
    assert each[2:4] == [0, 0]  # predictions without targets
    for empty, expected in (
        ("skip", np.nanmean(each)),
        (1, np.nan_to_num(each, nan=1).mean()),
        (0, np.nansum(each) / 12),
    ):
        assert over_images("dice", counts, empty=empty).estimate.item() == pytest.approx(expected)
    assert imbtorch.f_score(counts, average="binary").isnan().tolist() == np.isnan(each).tolist()
    np.testing.assert_allclose(imbtorch.f_score(counts, average="binary"), each)


def test_follows_monai_but_for_images_with_predictions_only():
    preds, target = pictures(1)
    counts, pairs = counted(preds, target), list(zip(preds.numpy() == 1, target.numpy() == 1, strict=True))
    included = [monai_dice(*pair, ignore_empty=False) for pair in pairs]
    assert over_images("dice", counts, empty=1).estimate.item() == pytest.approx(np.mean(included))
    ignored = [monai_dice(*pair, ignore_empty=True) for pair in pairs]
    only = sum(bool(p.any()) and not t.any() for p, t in pairs)
    assert only == 2
    number = np.count_nonzero(~np.isnan(ignored))
    expected = np.nansum(ignored) / (number + only)  # they count 0 here
    assert over_images("dice", counts, empty="skip").estimate.item() == pytest.approx(expected)


@pytest.mark.parametrize("empty", RULES)
def test_classes_and_their_mean_within_each_image(empty):
    preds, target = pictures(2, classes=4)
    undefined = {"skip": np.nan, 1: 1.0, 0: 0.0}[empty]
    each = np.array(
        [
            f1_score(t.flatten(), p.flatten(), labels=range(4), average=None, zero_division=np.nan)
            for p, t in zip(preds.numpy(), target.numpy(), strict=True)
        ]
    )
    each = np.where(np.isnan(each), undefined, each / (2 - each))  # IoU, for which scikit-learn takes no nan
    found = over_images("iou", counted(preds, target, 4), empty=empty)
    assert list(found) == ["iou", "iou/0", "iou/1", "iou/2", "iou/3"]
    assert found["iou"].estimate.item() == pytest.approx(np.nanmean(np.nanmean(each, 1)))
    for index in range(4):
        assert found[f"iou/{index}"].estimate.item() == pytest.approx(np.nanmean(each[:, index]))
    assert str(found["iou/2"]).startswith("iou/2 ")


@pytest.mark.parametrize("measure", ["recall", "precision", "specificity", "npv", "fowlkes_mallows"])
def test_labels_are_read_one_by_one(measure):
    """As images of two classes, of which an image that is empty in one label takes part in the others."""
    random = np.random.default_rng(3)
    target = torch.from_numpy(random.integers(2, size=(8, 3, 5)) * (random.random((8, 3, 1)) < 0.6))
    preds = torch.from_numpy(np.where(random.random(target.shape) < 0.2, 1 - target, target))
    counts = confusion_matrix(preds, target, "multilabel", num_labels=3, samplewise=True)
    found = over_images(measure, counts, empty="skip")
    for label in range(3):
        alone = over_images(measure, counted(preds[:, label], target[:, label]), empty="skip")
        assert found[f"{measure}/{label}"].estimate == alone.estimate
        assert found[f"{measure}/{label}"].low == alone.low


def interval_of_numpy(values, patients, level=0.95):
    """Student's t on the logit of a ratio, in NumPy."""
    kept = ~np.isnan(values)
    sums = np.array(
        [[values[kept & (patients == each)].sum(), (kept & (patients == each)).sum()] for each in set(patients)]
    )
    mean = sums[:, 0].sum() / sums[:, 1].sum()
    apart = sums[:, 0] - mean * sums[:, 1]
    deviation = np.sqrt((apart**2).sum() / (sums[:, 1].sum() ** 2 - (sums[:, 1] ** 2).sum()))
    half = stats.t.ppf((1 + level) / 2, (sums[:, 1] > 0).sum() - 1) * deviation / (mean * (1 - mean))
    centre = np.log(mean / (1 - mean))
    return 1 / (1 + np.exp(half - centre)), 1 / (1 + np.exp(-half - centre))


@pytest.mark.parametrize("empty", RULES)
def test_the_interval_is_of_images_or_of_patients(empty):
    preds, target = pictures(4, images=30)
    values = imbtorch.f_score(counted(preds, target), average="binary").numpy()
    values = np.where(np.isnan(values), {"skip": np.nan, 1: 1.0, 0: 0.0}[empty], values)
    patients = np.array([0] * 5 + [1, 2, 3] * 5 + [9, 7] * 5)
    for cluster, ids in ((None, np.arange(30)), (torch.from_numpy(patients), patients)):
        found = over_images("dice", counted(preds, target), empty=empty, cluster=cluster, level=0.9)
        expected = interval_of_numpy(values, ids, 0.9)
        np.testing.assert_allclose([found.low.item(), found.high.item()], expected)
    assert found.method.startswith(f"t on the logit, {np.count_nonzero(~np.isnan(values))} of 30 images of ")


def test_of_equal_numbers_it_is_students_interval_without_the_logit_of_the_means():
    """With one image a patient the deviation is that of a mean, by SciPy."""
    preds, target = pictures(5, images=25)
    target[:4] = target[4:8]
    values = imbtorch.f_score(counted(preds, target), average="binary").numpy()
    found = over_images("dice", counted(preds, target), empty="skip", cluster=torch.arange(25))
    half = stats.sem(values) * stats.t.ppf(0.975, 24) / (values.mean() * (1 - values.mean()))
    assert found.high.logit().item() - found.estimate.logit().item() == pytest.approx(half)


def test_images_that_are_all_right_or_all_wrong_have_exact_bounds():
    right = torch.tensor([[[5, 0], [0, 5]]]).expand(10, -1, -1)
    found = over_images("dice", right, empty="skip")
    assert found.low.item() == pytest.approx(stats.beta.ppf(0.025, 10, 1))  # Clopper and Pearson
    assert found.high == 1
    found = over_images("dice", right.flip(-1), empty="skip")
    assert (found.low, found.high.item()) == (0, pytest.approx(stats.beta.ppf(0.975, 1, 10)))


@pytest.mark.parametrize("rare", [0, 5])
def test_equal_images_have_the_bound_of_a_value_that_others_may_lack(rare):
    """Of images with IoU .8 but for a share that has 0 or 1, ten equal ones do not tell the share; by NumPy."""
    usual, other = torch.tensor([[90, 0], [2, 8]]), torch.tensor([[90, rare], [5 - rare, 5 * (not rare)]])
    found = over_images("iou", usual.expand(10, -1, -1), empty="skip")
    share = 0.025 ** (1 / 10)
    assert [found.low.item(), found.high.item()] == pytest.approx([0.8 * share, 0.8 * share + 1 - share])
    extreme = over_images("iou", other.expand(2, -1, -1), empty="skip").estimate.item()
    draw, covered = np.random.default_rng(0), 0
    for _ in range(400):
        unusual = draw.random(10) < 0.05
        images = torch.stack([other if each else usual for each in unusual])
        found = over_images("iou", images, empty="skip")
        covered += bool(found.low <= 0.95 * 0.8 + 0.05 * extreme <= found.high)
    assert covered / 400 > 0.95


def test_images_without_a_pixel_that_counts_are_left_out():
    counts = counted(*pictures(6))
    void = torch.cat((counts, torch.zeros(3, 2, 2, dtype=torch.long)))
    for empty in RULES:
        found, without = (over_images("dice", each, empty=empty) for each in (void, counts))
        assert (found.estimate, found.low) == (without.estimate, without.low)


def test_one_image_that_counts_has_no_interval():
    counts = torch.tensor([[[5, 0], [1, 5]], [[9, 0], [0, 0]]])
    found = over_images("dice", counts, empty="skip")
    assert found.estimate.item() == pytest.approx(10 / 11)
    assert found.low.isnan()
    assert found.high.isnan()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"empty": True}, ValueError, "empty must be one of 'skip', '1', '0', got 'True'"),
        ({"measure": "iam"}, ValueError, "measure must be one of 'precision'"),
        ({"counts": torch.ones(2, 2)}, ValueError, r"counts must be a matrix for each image, .*; confusion_matrix\("),
        ({"counts": torch.ones(4, 2, 3, 3)}, ValueError, r"got \[4, 2, 3, 3\]"),
        ({"counts": torch.ones(1, 2, 2)}, ValueError, "needs at least two images, or clusters of them, got 1"),
        ({"counts": torch.full((3, 2, 2), math.nan)}, ValueError, "counts must be finite and not negative"),
        ({"cluster": torch.zeros(3)}, TypeError, "cluster must be a tensor of integers"),
        ({"cluster": torch.zeros(2, dtype=torch.long)}, ValueError, r"shape \[3\] .* got \[2\]"),
        ({"cluster": torch.zeros(3, dtype=torch.long)}, ValueError, "at least two images, or clusters of them, got 1"),
        ({"level": 95}, ValueError, r"level must lie in \(0, 1\)"),
    ],
)
def test_refuses_what_it_cannot_average(arguments, error, match):
    given = {"measure": "dice", "counts": torch.ones(3, 2, 2), "empty": "skip"} | arguments
    with pytest.raises(error, match=match):
        over_images(**given)


def test_one_patient_with_most_images_is_named():
    counts = torch.tensor([[[5, 1], [1, 5]]]).repeat(40, 1, 1)
    counts[::3, 1, 0] = 4
    patients = torch.arange(40).clamp(min=30)
    with pytest.warns(UserWarning, match="over_images: the largest of 10 clusters holds 78%"):
        over_images("dice", counts, empty="skip", cluster=patients)
