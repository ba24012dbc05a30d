"""Intervals of means over classes against exact bounds of shares, and the effective numbers of simple clusters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rooms import bounds_of_mean, bounds_of_recalls, class_variances, measure_of_counts, recall_weights, shared_worth
from scipy import stats

import imbtorch
from imbtorch.statistics import bootstrap


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("wrong", "number"), [(0, 3), (0, 40), (1, 12), (3, 60)])
def test_bounds_of_one_class_are_nearly_exact(wrong, number):
    """Of a class beside a common one without errors: Clopper and Pearson's bounds, by SciPy."""
    worth, weight = tensor(1e9, number), tensor(0.5, 0.5)
    shares = 1 - tensor(0, wrong / number)
    variances = class_variances(shares, worth, weight)
    low, high = bounds_of_mean(shares, worth, weight, variances, tensor(1), 0.95, spare=1.0)
    exact = stats.binomtest(number - wrong, number).proportion_ci(0.95, "exact")
    assert 2 * (1 - float(low)) == pytest.approx(1 - exact.low, rel=0.15)
    assert 2 * (1 - float(high)) == pytest.approx(1 - exact.high, abs=0.1 * (exact.high - exact.low))


def test_variances_are_unbiased_for_equal_classes():
    """The sum of shares of binomial numbers, whose variance is p (1 - p) / n each."""
    rng, rate, sizes = np.random.default_rng(0), 0.8, np.array([2, 3, 5, 10, 30])
    shares = torch.from_numpy(rng.binomial(sizes, rate, (100_000, 5)) / sizes)
    weight, worth = torch.full_like(shares, 0.2), tensor(*sizes).expand_as(shares)
    found = class_variances(shares, worth, weight, pseudo=rate).mean(0)
    np.testing.assert_allclose(found, rate * (1 - rate) / sizes / 25, rtol=0.06)


def test_samples_of_a_cluster_are_worth_what_they_tell():
    right = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)) < tensor(0.7, 0.9)
    one, weight = torch.ones(60, 2).double(), tensor(0.5, 0.5)
    alike = torch.eye(2).double().repeat(30, 1)  # each cluster holds samples of one class
    hits = alike * right
    alone, together = shared_worth(hits, hits, alike, weight)
    assert alone.tolist() == [30, 30]
    assert float(together) == 1
    copied, _ = shared_worth(7 * hits, 7 * hits, 7 * alike, weight)
    assert copied.tolist() == [30, 30]
    same = one * right[:, :1]  # both classes of a cluster are right, or both wrong
    assert float(shared_worth(same, same, one, weight)[1]) == pytest.approx(2)
    drawn = torch.from_numpy(np.random.default_rng(0).binomial(50, 0.8, (60, 2))).double()  # no correlation
    worth, _ = shared_worth(drawn, drawn, 50 * one, weight)
    assert bool((worth > 0.6 * 3000).all() & (worth <= 3000).all())


def test_only_means_of_recalls_have_weights():
    counts = torch.tensor([[8, 1, 1], [2, 6, 0], [0, 0, 0]])
    for name in ("balanced_accuracy", imbtorch.balanced_accuracy):
        assert recall_weights(measure_of_counts(name, 3), counts).tolist() == [0.5, 0.5, 0]
    for name in ("recall", "iam", "f1", "accuracy", "gmean"):  # macro recall counts the third class as 0
        assert recall_weights(measure_of_counts(name, 3), counts) is None
    few = replace(measure_of_counts("recall", 3), average="none", over_classes=(1,))
    assert recall_weights(few, counts).tolist() == [0, 1, 0]
    labels = replace(measure_of_counts("recall", 2, labels=3), over_classes=(2,))
    assert recall_weights(labels, torch.ones(3, 2, 2)) is None
    perfect = torch.tensor([[8, 0], [0, 6]])  # the recall of the positive class is no mean
    assert recall_weights(measure_of_counts("recall", 2), perfect) is None
    assert recall_weights(lambda c: imbtorch.balanced_accuracy(c), counts) is None


def test_a_long_tail_of_clusters_is_covered_and_narrow():
    """Six classes of 3 to 100 clusters of five; truth, coverage and spread of the estimate by simulation."""
    rng, sets, number = np.random.default_rng(0), 400, np.array([100, 50, 25, 12, 6, 3])
    recalls = np.linspace(0.95, 0.6, 6)
    of_class = np.repeat(np.arange(6), number)
    rates = rng.beta(recalls[of_class] * 4, (1 - recalls[of_class]) * 4, (sets, len(of_class)))  # correlation 0.2
    hits, actual = (np.zeros((sets, len(of_class), 6)) for _ in range(2))
    hits[:, np.arange(len(of_class)), of_class] = rng.binomial(5, rates)
    actual[:, np.arange(len(of_class)), of_class] = 5
    weight = torch.full((sets, 6), 1 / 6, dtype=torch.float64)
    low, high = bounds_of_recalls(torch.from_numpy(hits), torch.from_numpy(actual), weight, 0.95)
    covered = ((low <= recalls.mean()) & (recalls.mean() <= high)).double().mean()
    assert float(covered) >= 0.93
    estimates = (hits.sum(1) / actual.sum(1)).mean(1)
    assert float((high - low).mean()) < 1.3 * np.diff(np.quantile(estimates, (0.025, 0.975)))
    counts = torch.from_numpy(np.stack((hits[0, :, :2], (actual - hits)[0, :, 1::-1]), -1)).long()
    counts[:, 1] = counts[:, 1].flip(-1)
    found = bootstrap("balanced_accuracy", counts, 50, clusters=True)
    assert found.method.startswith("Fay-Feuer of clusters")


@pytest.mark.parametrize("patients", [30, 600])
def test_buckets_of_patients_without_errors_are_worth_their_patients(patients):
    """The spread of 64 buckets shows how many patients there are, up to its standard error of 18%."""
    counts = torch.zeros(patients, 2, 2, dtype=torch.long)
    counts[:, 0, 0], counts[::3, 1, 1] = 8, 2
    known = bootstrap("balanced_accuracy", counts, 50, clusters=True)
    report = imbtorch.ImbalanceReport("binary", measures=["balanced_accuracy"], per_class=(), clusters=True)
    target = torch.tensor([0] * 8 + [1] * 2).repeat(patients)
    keep = torch.ones(patients, 10, dtype=torch.bool)
    keep[torch.arange(patients) % 3 > 0, 8:] = False
    ids = torch.arange(patients).repeat_interleave(10)
    report.update(target[keep.flatten()], target[keep.flatten()], cluster=ids[keep.flatten()])
    hashed = report.interval("balanced_accuracy")
    assert (
        float(1 - known.low) * 0.6 < float(1 - hashed.low) < float(1 - known.low) * 1.6
    )  # as those of some 50 patients before


def test_the_order_of_classes_and_of_clusters_moves_no_bound_of_their_mean():
    rng = np.random.default_rng(0)
    counts = torch.from_numpy(rng.poisson(np.eye(4) * 3 + 0.4, (25, 4, 4)))
    order = [2, 0, 3, 1]
    found, moved = (
        bootstrap("balanced_accuracy", each, 50, clusters=True)
        for each in (counts, counts.flip(0)[:, order][:, :, order])
    )
    assert [float(moved.low), float(moved.high)] == pytest.approx([float(found.low), float(found.high)], abs=1e-12)
