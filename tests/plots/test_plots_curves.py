"""Isometrics of `curves.py` for ROC and for precision and recall, against scikit-learn and the matrix at each point."""

import functools

import numpy as np
import pytest
import torch
from rooms import least_precision, precision_recall_isometrics, precision_recall_points, roc_isometrics, roc_points
from sklearn.metrics import precision_recall_curve, roc_curve

import imbtorch
from imbtorch.papers import effective_skew_ratio

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


@pytest.mark.default_cases("F1")
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
