"""Differences of AUC and average precision (`comparisons.py`), against scikit-learn, DeLong and a bootstrap."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from imbtorch.statistics import paired_compare


def scored(samples=400, shift=(1.5, 1.0), shared=0.7, positives=0.2, seed=0, ties=False):
    """Targets and correlated normal scores of two models."""
    generator = np.random.default_rng(seed)
    target = (generator.random(samples) < positives).astype(int)
    common = generator.normal(size=samples)
    scores = [
        each * target + np.sqrt(shared) * common + np.sqrt(1 - shared) * generator.normal(size=samples)
        for each in shift
    ]
    scores = [np.round(each, 1) for each in scores] if ties else scores
    return torch.tensor(scores[0]), torch.tensor(scores[1]), torch.tensor(target)


def delong(a, b, target):
    """Covariance of two areas, by the double loop of the definition."""
    sides = []
    for scores in (a, b):
        positive, negative = scores[target == 1].numpy(), scores[target == 0].numpy()
        wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
        sides.append((wins.mean(1), wins.mean(0)))
    return sum(np.cov([side[kind] for side in sides]) / len(sides[0][kind]) for kind in (0, 1))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("measure", "oracle"), [("auc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)]
)
def test_the_difference_is_that_of_scikit_learn(measure, oracle, ties):
    a, b, target = scored(ties=ties)
    found = paired_compare(measure, a, b, target, draws=100, generator=torch.Generator().manual_seed(0))
    assert found.difference.estimate.item() == pytest.approx(oracle(target, a) - oracle(target, b))
    assert found.difference.low < found.difference.estimate < found.difference.high
    assert str(found).startswith(f"{measure}, a - b: ")


@pytest.mark.default_cases("True")
@pytest.mark.parametrize("ties", [False, True])
def test_many_samples_give_the_interval_of_delong(ties):
    """Where the areas are far from 1, all methods agree."""
    a, b, target = scored(4_000, shift=(1.2, 1.0), positives=0.5, ties=ties)
    found = paired_compare("auc", a, b, target).difference
    covariance = delong(a, b, target)
    half = 1.96 * np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert (found.high - found.low).item() == pytest.approx(2 * half, rel=0.05)
    probability = paired_compare("auc", a, b, target).probability
    assert probability > 0.99


def test_average_precisions_are_resampled_by_class_together():
    a, b, target = scored(300)
    found = paired_compare("average_precision", a, b, target, draws=2000, generator=torch.Generator().manual_seed(0))
    generator, drawn = np.random.default_rng(1), []
    for _ in range(500):
        rows = np.concatenate(
            [generator.choice(np.flatnonzero(target == each), int((target == each).sum())) for each in (0, 1)]
        )
        drawn.append(np.subtract(*(sk.average_precision_score(target[rows], each[rows]) for each in (a, b))))
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert [found.difference.low.item(), found.difference.high.item()] == pytest.approx([low, high], abs=0.02)
    assert found.probability.item() == pytest.approx(np.mean(np.array(drawn) > 0), abs=0.05)


def test_equal_scores_do_not_differ():
    a, _, target = scored()
    for measure in ("auc", "average_precision"):
        found = paired_compare(measure, a, a / 4, target, draws=200)
        assert found.difference.estimate == 0
        assert found.difference.low.item() == pytest.approx(0, abs=1e-7)
        assert found.difference.high.item() == pytest.approx(0, abs=1e-7)
        assert found.probability == 0.5


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"preds_a": torch.tensor([0, 1, 1])}, TypeError, "preds_a must hold scores for 'auc'"),
        ({"preds_b": torch.tensor([0.1, 0.2])}, ValueError, r"preds_b and target must be \[N\], got \[2\] and \[3\]"),
        ({"preds_b": torch.tensor([0.1, float("nan"), 0.2])}, ValueError, "preds_b holds NaN in row 1"),
        ({"target": torch.tensor([0, 0, 0])}, ValueError, "target must hold 0 and 1, and samples of both"),
        ({"target": torch.tensor([0, 1, 2])}, ValueError, "target must hold 0 and 1"),
        ({"cluster": torch.tensor([0, 1, 1])}, ValueError, "cluster must be left out for 'auc'"),
        ({"measure": "recall"}, ValueError, "num_classes must be the number of classes"),
    ],
)
def test_scores_that_cannot_be_compared(change, error, text):
    scores = torch.tensor([0.2, 0.4, 0.9])
    arguments = {"measure": "auc", "preds_a": scores, "preds_b": scores, "target": torch.tensor([0, 1, 1])}
    with pytest.raises(error, match=text):
        paired_compare(**(arguments | change))
