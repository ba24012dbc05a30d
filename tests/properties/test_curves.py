"""Measures over class shares and over errors, and the accuracy-dominance space, by hand and against scikit-learn."""

import functools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, auc, precision_recall_curve, roc_auc_score, roc_curve

import imbtorch
from imbtorch.analysis import (
    effective_skew_ratio,
    partial_auc,
    prevalence_curves,
    select_model,
    sensitivity_curves,
    skew_ratio,
    undominated,
)
from imbtorch.properties.dominance import (
    equal_area_gmean,
    feasible,
    greatest_gmean,
    greatest_value,
    largest_trapezium,
    space_points,
)
from imbtorch.properties.isometrics import (
    least_precision,
    precision_recall_isometrics,
    precision_recall_points,
    roc_isometrics,
    roc_points,
)

TWO = torch.tensor([[90, 10], [2, 8]])  # TPR .8, TNR .9
READ = {
    "precision": functools.partial(imbtorch.precision, average="binary"),
    "IAM": imbtorch.imbalance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
}
THREE = {
    "accuracy": imbtorch.accuracy,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
}


# --- the share of positives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [TWO, TWO.half(), TWO.double().requires_grad_(), TWO / 110])
def test_measures_over_the_share_of_positives(counts):
    """By hand, from TPR .8 and TNR .9."""
    curves = prevalence_curves(READ, counts)
    share = curves.shares.numpy()
    np.testing.assert_allclose(share[[0, -1]], [1e-4, 0.5])
    np.testing.assert_allclose(np.diff(np.log(share)), np.log(5000) / 120)  # equal ratios
    precision, right = 0.8 * share / (0.8 * share + 0.1 * (1 - share)), 0.9 * (1 - share)
    rest = right / np.maximum(1 - share, right + 0.2 * share)  # the smaller of precision and recall
    near = {"rtol": 1e-3} if counts.dtype == torch.half else {"rtol": 1e-6}
    np.testing.assert_allclose(curves.values["precision"].detach(), precision, **near)
    np.testing.assert_allclose(curves.values["accuracy"].detach(), 0.8 * share + right, **near)
    np.testing.assert_allclose(curves.values["IAM"].detach(), np.minimum(precision, 0.8) + rest - 1, atol=1e-6)
    np.testing.assert_allclose(curves.values["balanced accuracy"].detach(), 0.85, **near)
    assert curves.counted == pytest.approx(1 / 11, rel=1e-3)
    assert curves.constant == ("balanced accuracy",)


@pytest.mark.parametrize(
    ("counts", "span", "ends"),
    [
        ([[1, 1], [3, 15]], (0.01, 0.5), (0.01, 0.9)),
        ([[90000, 9990], [2, 8]], (0.01, 0.5), (1e-4, 0.5)),
        ([[90, 10], [2, 8]], (0.01, 0.2), (0.01, 0.2)),
    ],
)
def test_the_span_holds_the_share_that_was_counted(counts, span, ends):
    curves = prevalence_curves(READ, torch.tensor(counts), span=span, steps=5)
    assert curves.shares[[0, -1]].tolist() == pytest.approx(ends)
    assert all(len(value) == 5 for value in curves.values.values())


def test_a_measure_that_is_undefined_somewhere_is_not_called_constant():
    never = {"nan": lambda counts: counts.sum((-1, -2)) * math.nan}
    assert prevalence_curves(never, TWO).constant == ()


def test_what_has_no_share_of_positives_is_refused():
    for wrong in (torch.ones(3, 3), torch.ones(2, 2, 2)):
        with pytest.raises(ValueError, match=r"counts must be one matrix \[2, 2\], got .*one_vs_rest"):
            prevalence_curves(READ, wrong)
    for wrong in ([[0, 0], [1, 2]], [[1, 2], [0, 0]]):
        with pytest.raises(ValueError, match=r"targets of both classes, got"):
            prevalence_curves(READ, torch.tensor(wrong))
    for arguments in ({"span": (0.5, 0.1)}, {"span": (0, 0.5)}, {"span": (0.1, 1)}, {"steps": 1}):
        with pytest.raises(ValueError, match=r"span must hold two shares rising within \(0, 1\) and steps"):
            prevalence_curves(READ, TWO, **arguments)
    with pytest.raises(ValueError, match=r"recalls must return \[121\], one value for each matrix, got \[121, 2\]"):
        prevalence_curves({"recalls": lambda counts: imbtorch.recall(counts, "none")}, TWO)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_rare_class_that_degrades_moves_iam_but_not_accuracy():
    """On the heavily skewed set, by hand: class 2 of 100 samples gives s/2 of them to each other class."""
    curves = sensitivity_curves(THREE, torch.tensor([1_000_000, 100, 100]), classes=[2], steps=5)
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(curves.shares, shares)
    moved = 100 * shares
    np.testing.assert_allclose(curves.values["accuracy"], 1 - moved / 1_000_200)
    cba = (1e6 / (1e6 + moved / 2) + 100 / (100 + moved / 2) + 1 - shares) / 3
    np.testing.assert_allclose(curves.values["CBA"], cba)
    np.testing.assert_allclose(curves.values["IAM"], 2 * cba - 1)
    assert (curves.num_classes, curves.classes) == (3, (2,))


def test_every_class_degrades_alike_on_a_balanced_set():
    curves = sensitivity_curves(THREE, [100, 100, 100], classes=range(3), until=0.5, steps=3)
    np.testing.assert_allclose(curves.values["accuracy"], [1.0, 0.75, 0.5])
    np.testing.assert_allclose(curves.values["CBA"], [1.0, 0.75, 0.5])
    np.testing.assert_allclose(curves.values["IAM"], [1.0, 0.5, 0.0], atol=1e-12)
    assert curves.classes == (0, 1, 2)


@pytest.mark.parametrize(("support", "rarest"), [([1000, 60, 50, 2], 3), ([5, 3, 9], 1)])
def test_the_rarest_class_degrades_by_default(support, rarest):
    """Sample by sample: all of the rarest are wrong in the end, and no sample is lost."""
    curves = sensitivity_curves({"accuracy": imbtorch.accuracy, "n": lambda counts: counts.sum((-1, -2))}, support)
    assert curves.classes == (rarest,)
    np.testing.assert_allclose(curves.values["n"], sum(support))
    target = np.repeat(np.arange(len(support)), support)
    predicted = np.where(target == rarest, (rarest + 1) % len(support), target)
    assert curves.values["accuracy"][-1].item() == pytest.approx(accuracy_score(target, predicted))
    assert len(curves.shares) == 41


def test_what_cannot_degrade_is_refused():
    for wrong in ([5], [], [5, 0], [[1, 2]], [5, math.nan]):
        with pytest.raises(ValueError, match="support must hold the samples of two classes or more"):
            sensitivity_curves(THREE, wrong)
    for wrong in ([], [2], [-1]):
        with pytest.raises(ValueError, match=r"classes must hold indices 0\.\.1"):
            sensitivity_curves(THREE, [5, 5], classes=wrong)
    for arguments in ({"until": 0.0}, {"until": 1.5}, {"steps": 1}):
        with pytest.raises(ValueError, match=r"until must lie in \(0, 1\] and steps be 2 or more"):
            sensitivity_curves(THREE, [5, 5], **arguments)
    with pytest.raises(ValueError, match=r"recalls must return \[41\], one value for each matrix, got \[41, 2\]"):
        sensitivity_curves({"recalls": lambda counts: imbtorch.recall(counts, "none")}, [5, 5])


# --- area of one operating point -------------------------------------------------------------------------------------


def test_area_of_one_point_is_that_of_the_three_point_curve():
    target = torch.tensor([0] * 100 + [1] * 10)
    preds = torch.tensor([0] * 90 + [1] * 10 + [0] * 2 + [1] * 8)
    assert partial_auc(TWO).item() == pytest.approx(roc_auc_score(target, preds))
    assert partial_auc(TWO.half() / 110).dtype == torch.float16
    assert torch.isnan(partial_auc(torch.tensor([[5, 3], [0, 0]])))


def test_areas_beside_neighbours_equal_those_of_the_curve():
    """The contributions of every second point cover the curve once."""
    false, true = np.array([0, 0.1, 0.25, 0.6, 1]), np.array([0, 0.5, 0.75, 0.9, 1])
    points = torch.stack([torch.tensor([[1 - f, f], [1 - t, t]]) for f, t in zip(false, true, strict=True)]) * 20
    parts = partial_auc(points[1:-1], points[:-2], points[2:])
    for index, part in enumerate(parts.tolist()):
        assert part == pytest.approx(auc(false[index : index + 3], true[index : index + 3]))
    assert (parts[0] + parts[2]).item() == pytest.approx(auc(false, true))


def test_skew_ratio_of_a_partial_area():
    """Liu, Ghosh and Martin (2007), Table 2: (tn1 - tn2) / (tp2 - tp1)."""
    left, right = torch.tensor([[190, 10], [70, 30]]), torch.tensor([[60, 140], [5, 95]])
    ratio = skew_ratio(lambda counts: partial_auc(counts, left, right), torch.tensor([[150, 50], [20, 80]]))
    assert ratio.item() == pytest.approx((190 - 60) / (95 - 30))


def test_areas_are_of_two_classes():
    for name in ("counts", "left", "right"):
        given = {"counts": TWO, name: torch.ones(3, 3)}
        with pytest.raises(ValueError, match=rf"{name} must be of two classes, got \[3, 3\]; use one_vs_rest"):
            partial_auc(**given)


# --- the accuracy-dominance space ------------------------------------------------------------------------------------


def test_every_classifier_is_feasible_and_its_trapezium_has_its_area():
    """All matrices of 12 negatives and 7 positives; the greatest G-mean is reached where one recall is 1."""
    tp, tn = torch.meshgrid(torch.arange(8), torch.arange(13), indexing="ij")
    counts = torch.stack((torch.stack((tn, 12 - tn), -1), torch.stack((7 - tp, tp), -1)), -2).flatten(0, 1)
    points = select_model(dict(enumerate(counts))).points
    dominance, gmean, area = points.unbind(-1)
    assert feasible(points[:, :2], rounding=1e-12).all()
    perfect = (tp.flatten() == 7) | (tn.flatten() == 12)
    torch.testing.assert_close(greatest_gmean(dominance[perfect]), gmean[perfect])
    assert (greatest_gmean(dominance[~perfect]) > gmean[~perfect]).all()
    for value, place, height in zip(area.tolist(), dominance, gmean, strict=True):
        torch.testing.assert_close(equal_area_gmean(value, place), height)
    assert largest_trapezium(points[:, :2]) == int(area.argmax())


def test_an_infeasible_point_never_has_the_largest_trapezium():
    printed = torch.tensor([[-0.36, 0.94], [-0.06, 0.74], [-0.36, 0.805]])  # the first: SVM on Pima, as in the paper
    assert feasible(printed).tolist() == [False, True, True]
    assert feasible(printed, rounding=0.0).tolist() == [False, True, False]
    assert largest_trapezium(printed) == 1
    assert largest_trapezium(printed[:1]) is None
    assert largest_trapezium(torch.empty(0, 2)) is None


# --- thresholds ------------------------------------------------------------------------------------------------------


def test_points_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(300, generator=generator) < 0.2).long()
    scores = ((torch.randn(300, generator=generator) + target) * 4).round()
    thresholds = scores.unique()
    predicted = (scores >= thresholds.unsqueeze(-1)).long()
    counts = torch.stack([imbtorch.confusion_matrix(row, target, "binary") for row in predicted])
    false, true, falling = roc_curve(target, scores, drop_intermediate=False)
    np.testing.assert_array_equal(falling[:0:-1], thresholds)
    np.testing.assert_allclose(roc_points(counts), np.stack((false, true), -1)[:0:-1])
    precision, recall, _ = precision_recall_curve(target, scores)
    np.testing.assert_allclose(precision_recall_points(counts), np.stack((recall, precision), -1)[:-1])
    assert precision_recall_points(torch.tensor([[[8, 0], [2, 0]]]))[0, 1].isnan()


MEASURES = {
    "accuracy": imbtorch.accuracy,
    "F1": functools.partial(imbtorch.f_score, average="binary"),
    "G-mean": imbtorch.geometric_mean,
    "MCC": imbtorch.matthews_corrcoef,
}


@pytest.mark.parametrize("name", MEASURES)
def test_isometrics_are_the_value_of_the_matrix_at_each_point(name):
    """Every tenth of either rate of 40 negatives and 10 positives, where all counts are whole."""
    measure = MEASURES[name]
    surface = roc_isometrics(measure, 40, 10, steps=11)
    for row, column in ((0, 0), (3, 1), (8, 2), (10, 10), (5, 9)):
        counts = torch.tensor([[40 - 4 * column, 4 * column], [10 - row, row]])
        assert surface[row, column].item() == pytest.approx(measure(counts).item())
    surface = precision_recall_isometrics(measure, 40, 10, steps=11)
    for precision, recall, false in ((5, 4, 4), (10, 3, 0), (8, 8, 2), (2, 5, 20)):
        counts = torch.tensor([[40 - false, false], [10 - recall, recall]])
        assert surface[precision, recall].item() == pytest.approx(measure(counts).item())


@pytest.mark.parametrize("name", MEASURES)
def test_the_slope_of_an_isometric_is_the_effective_skew_ratio(name):
    """Theorem 0.1 of Liu et al., by differences of the surface: d TPR / d FPR = - (dm / d FPR) / (dm / d TPR)."""
    surface = roc_isometrics(MEASURES[name], 90, 10, steps=1001)
    for row, column in ((800, 100), (600, 50), (500, 300)):
        up = (surface[row + 1, column] - surface[row - 1, column]).item()
        right = (surface[row, column + 1] - surface[row, column - 1]).item()
        counts = torch.tensor([[90 - 0.09 * column, 0.09 * column], [10 - 0.01 * row, 0.01 * row]])
        assert -right / up == pytest.approx(effective_skew_ratio(MEASURES[name], counts).item(), rel=1e-3)


def test_no_classifier_is_below_the_least_precision():
    surface = precision_recall_isometrics(imbtorch.accuracy, 30, 10, steps=201)
    rates = torch.linspace(0, 1, 201, dtype=torch.float64)
    reached = ~surface.isnan()
    least = least_precision(rates, 0.25)
    lowest = torch.where(reached, rates.unsqueeze(-1), 2.0).amin(0)
    assert ((lowest >= least - 1e-9) & (lowest < least + 1 / 199))[1:].all()
    assert not reached[:, 0].any()
    assert least[[0, -1]].tolist() == [0.0, 0.25]


def test_what_no_other_point_dominates():
    generator = torch.Generator().manual_seed(3)
    points = (torch.rand(60, 2, generator=generator) * 10).round()  # many are equal
    expected = [not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points.tolist()) for p in points.tolist()]
    assert undominated(points).tolist() == expected
    assert 1 < sum(expected) < 30
    assert undominated(torch.tensor([[0.0, math.nan], [0.1, 0.5], [-0.5, 0.4]])).tolist() == [False, True, False]
    assert undominated(torch.empty(0, 2)).tolist() == []
    with pytest.raises(ValueError, match=r"points must be \[M, 2\] .*got \[2\]"):
        undominated(torch.zeros(2))


def test_a_selection_knows_what_no_other_dominates():
    models = {  # TPR, TNR: .2, .9; .8, .8; .7, .7; 1, .5
        "cautious": torch.tensor([[90, 10], [8, 2]]),
        "balanced": torch.tensor([[80, 20], [2, 8]]),
        "worse": torch.tensor([[70, 30], [3, 7]]),
        "eager": torch.tensor([[50, 50], [0, 10]]),
    }
    found = select_model(models)
    assert found.undominated == ("balanced", "eager")  # G-mean .8 at 0 beats .7 at 0 and .42 at -.7
    assert str(found).endswith("none lies northeast of balanced, eager")
    assert select_model({"a": torch.eye(3)}).undominated is None


def test_the_greatest_value_at_a_dominance():
    edge = torch.linspace(-1, 1, 41, dtype=torch.float64)
    torch.testing.assert_close(greatest_value(imbtorch.geometric_mean, edge, 10, 3), greatest_gmean(edge))
    grid = torch.linspace(0, 1, 41, dtype=torch.float64)
    tpr, tnr = (each.flatten() for each in torch.meshgrid(grid, grid, indexing="ij"))
    counts = torch.stack((torch.stack((tnr, 1 - tnr), -1) * 90, torch.stack((1 - tpr, tpr), -1) * 10), -2)
    for measure in (imbtorch.accuracy, imbtorch.imbalance_accuracy, imbtorch.matthews_corrcoef):
        points = space_points(counts, measure)
        limits = greatest_value(measure, points[:, 0], 90, 10, steps=201)
        assert (points[:, 1] <= limits + 1e-6).all()
        assert (points[:, 1] >= limits - 1e-6).any()


def test_points_of_counts():
    points = space_points(torch.stack((TWO, TWO.flip(0, 1))), imbtorch.accuracy)
    np.testing.assert_allclose(points, [[-0.1, 98 / 110], [0.1, 98 / 110]])
    with pytest.raises(ValueError, match=r"counts must be \[M, 2, 2\], got \[2, 2\]"):
        space_points(TWO)
