"""The space of dominance and geometric mean: areas and trapezia by hand and against scikit-learn."""

import numpy as np
import pytest
import torch
from rooms import equal_area_gmean, feasible, greatest_gmean, greatest_value, largest_trapezium, space_points
from sklearn.metrics import auc, roc_auc_score

import imbtorch
from imbtorch.papers import skew_ratio
from imbtorch.statistics import partial_auc, select_model

TWO = torch.tensor([[90, 10], [2, 8]])  # TPR .8, TNR .9


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
