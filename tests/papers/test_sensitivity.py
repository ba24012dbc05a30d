"""Measures over the errors of one class, by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

import imbtorch
from imbtorch.papers import sensitivity_curves

THREE = {
    "accuracy": imbtorch.accuracy,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
}


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
    with pytest.raises(ValueError, match=r"recalls must return one value for each matrix, \[41\], got \[41, 2\]"):
        sensitivity_curves({"recalls": lambda counts: imbtorch.recall(counts, "none")}, [5, 5])
