"""Measures over the share of positives, by hand from two recalls."""

import functools
import math

import numpy as np
import pytest
import torch

import imbtorch
from imbtorch.papers import prevalence_curves

TWO = torch.tensor([[90, 10], [2, 8]])  # TPR .8, TNR .9
READ = {
    "precision": functools.partial(imbtorch.precision, average="binary"),
    "IAM": imbtorch.imbalance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
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
    with pytest.raises(ValueError, match=r"recalls must return one value for each matrix, \[121\], got \[121, 2\]"):
        prevalence_curves({"recalls": lambda counts: imbtorch.recall(counts, "none")}, TWO)
