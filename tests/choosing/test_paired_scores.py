"""Differences of AUC and average precision (`comparisons.py`), against scikit-learn, DeLong and a bootstrap."""

import numpy as np
import pytest
import torch
from rooms import precision_influence
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
    a, b, target = scored(6000, shift=(1.2, 1.0), positives=0.5, ties=ties)
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


def test_influences_are_the_derivatives_of_average_precision():
    """By the weight of one sample, at equal weights of the classes; and by the log-odds of positives."""
    a, _, target = scored(60, positives=0.4, ties=True)
    one, target = np.ones(60), target.numpy()
    place = torch.unique(a, return_inverse=True)[1]
    histogram = torch.zeros(2, int(place.max()) + 1, dtype=torch.float64)
    histogram.index_put_((torch.from_numpy(target), place), torch.ones(1, dtype=torch.float64), accumulate=True)
    influence, rise = precision_influence(histogram)

    def value(weight):
        return sk.average_precision_score(target, a, sample_weight=weight)

    step = 1e-5
    for sample in range(60):
        of_class = target == target[sample]
        moved = [np.where(of_class, 1 - sign * step, 1) for sign in (1, -1)]  # the weight of its class stays
        for sign, weight in zip((1, -1), moved, strict=True):
            weight[sample] += sign * step * of_class.sum()
        slope = (value(moved[0]) - value(moved[1])) / (2 * step)
        assert influence[target[sample], place[sample]].item() == pytest.approx(slope, abs=1e-6)
    odds = [np.where(target == 1, np.exp(sign * step), one) for sign in (1, -1)]
    assert rise.item() == pytest.approx((value(odds[0]) - value(odds[1])) / (2 * step), abs=1e-6)


def test_many_average_precisions_are_compared_without_draws():
    """With as many positives both methods agree; differences of 200 such sets lie as far apart as the interval says."""
    a, b, target = scored(30_000, shift=(1.6, 1.5), positives=0.1)
    found = paired_compare("average_precision", a, b, target)
    oracle = sk.average_precision_score(target, a) - sk.average_precision_score(target, b)
    assert found.difference.estimate.item() == pytest.approx(oracle)
    assert found.difference.draws is None
    assert found.difference.method == "MOVER, jackknife's correlation"
    sets = [scored(30_000, shift=(1.6, 1.5), positives=0.1, seed=seed) for seed in range(1, 201)]
    spread = np.std(
        [
            sk.average_precision_score(truth, one) - sk.average_precision_score(truth, other)
            for one, other, truth in sets
        ]
    )
    assert (found.difference.high - found.difference.low).item() == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_equal_scores_do_not_differ():
    a, _, target = scored()
    for measure in ("auc", "average_precision"):
        found = paired_compare(measure, a, a / 4, target, draws=200)
        assert found.difference.estimate == 0
        assert found.difference.low.item() == pytest.approx(0, abs=1e-7)
        assert found.difference.high.item() == pytest.approx(0, abs=1e-7)
        assert found.probability == 0.5


def patients(patients, seed, shift=(1.5, 1.2), spread=0.3):
    """Scores of two models, targets and ids: patients differ in their share of positives, and from model to model."""
    generator = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(patients), generator.integers(5, 60, patients))
    target = (generator.random(len(cluster)) < generator.beta(0.5, 1.5, patients)[cluster]).astype(int)
    common = np.sqrt(spread) * generator.standard_normal(patients)[cluster]
    scores = [
        each * target
        + common
        + np.sqrt(0.2) * generator.standard_normal(patients)[cluster]
        + np.sqrt(0.8 - spread) * generator.standard_normal(len(cluster))
        for each in shift
    ]
    return *map(torch.tensor, scores), torch.tensor(target), torch.tensor(cluster)


@pytest.mark.default_cases("average_precision-average_precision_score")
@pytest.mark.parametrize(
    ("measure", "oracle"), [("auc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)]
)
def test_intervals_of_patients_cover_the_difference(measure, oracle):
    """In 60 sets of 20 patients at most 8 miss (95% intervals: fewer than that in 0.999 of runs)."""
    a, b, target, _ = patients(20_000, 0)
    truth, missed, independent = oracle(target, a) - oracle(target, b), 0, 0
    for seed in range(1, 61):
        *scored, cluster = patients(20, seed)
        found = paired_compare(measure, *scored, cluster=cluster).difference
        missed += not found.low <= truth <= found.high
        if measure == "auc":
            plain = paired_compare(measure, *scored).difference
            independent += not plain.low <= truth <= plain.high
    assert missed <= 8
    assert measure != "auc" or independent > 2 * missed  # without ids it is too narrow


def test_a_cluster_for_each_sample_gives_the_interval_of_delong():
    a, b, target = scored(64, shift=(1.2, 1.0), positives=0.5)
    plain, alone = (paired_compare("auc", a, b, target, cluster=ids).difference for ids in (None, torch.arange(64)))
    assert (alone.high - alone.low).item() == pytest.approx((plain.high - plain.low).item(), rel=0.1)
    assert alone.estimate == plain.estimate
    renamed = paired_compare("auc", a, b, target, cluster=1000 - torch.arange(64)).difference
    assert renamed.low.item() == pytest.approx(alone.low.item())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"preds_a": torch.tensor([0, 1, 1])}, TypeError, "preds_a must hold scores for 'auc'"),
        ({"preds_b": torch.tensor([0.1, 0.2])}, ValueError, r"preds_b and target must be \[N\], got \[2\] and \[3\]"),
        ({"preds_b": torch.tensor([0.1, float("nan"), 0.2])}, ValueError, "preds_b holds NaN in row 1"),
        ({"target": torch.tensor([0, 0, 0])}, ValueError, "target must hold 0 and 1, and samples of both"),
        ({"target": torch.tensor([0, 1, 2])}, ValueError, "target must hold 0 and 1"),
        ({"cluster": torch.tensor([1, 1, 1])}, ValueError, "cluster must name at least 2 clusters, got 1"),
        ({"cluster": torch.tensor([0, 1])}, ValueError, "cluster"),
        ({"totals": "fixed"}, ValueError, "totals must be left out for 'auc'"),
        ({"higher_is_better": False}, ValueError, "higher_is_better must be left out for 'auc'"),
        ({"num_classes": 3}, ValueError, "num_classes must be left out for 'auc'"),
    ],
)
def test_scores_that_cannot_be_compared(change, error, text):
    scores = torch.tensor([0.2, 0.4, 0.9])
    arguments = {"measure": "auc", "preds_a": scores, "preds_b": scores, "target": torch.tensor([0, 1, 1])}
    with pytest.raises(error, match=text):
        paired_compare(**(arguments | change))


def test_perfect_models_are_equal():
    """Averages of precisions of 1 differ by rounding."""
    target = torch.tensor([0] * 30 + [1] * 7)
    scores = torch.arange(37.0)
    generator = torch.Generator().manual_seed(0)
    found = paired_compare("average_precision", scores, scores.sqrt(), target, draws=2000, generator=generator)
    assert found.probability.item() == 0.5


def test_the_number_of_classes_is_inferred():
    target, preds = torch.tensor([0, 1, 2, 1] * 10), torch.tensor([0, 1, 1, 1, 0] * 8)
    found, expected = (
        paired_compare("f1", preds, target, target, *given, generator=torch.Generator().manual_seed(0))
        for given in ((), (3,))
    )
    assert torch.equal(found.difference.low, expected.difference.low)
