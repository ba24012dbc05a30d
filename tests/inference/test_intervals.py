"""Expected values come from SciPy's Beta distribution, numerical integration, enumeration and NumPy's generator."""

import importlib.util
import itertools
import math
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from sklearn import metrics as sklearn_metrics
from torch.utils._python_dispatch import TorchDispatchMode

import imbtorch
from imbtorch import balanced_accuracy, geometric_mean, imbalance_accuracy
from imbtorch.analysis import (
    Comparison,
    Interval,
    balanced_accuracy_posterior,
    bootstrap,
    compare,
    paired_compare,
    posterior,
)
from imbtorch.inference import draws as drawing
from imbtorch.inference import special
from imbtorch.measures.traits import needs_matrix

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WEIGHT = {"jeffreys": 0.5, "uniform": 1.0}  # on either side of each recall, for two classes
MATRICES = {
    "errors in both": [[90, 10], [1, 9]],
    "few positives": [[180, 20], [1, 2]],
    "no errors in one": [[80, 20], [0, 5]],
    "no errors": [[30, 0], [0, 4]],
    "no hits in one": [[95, 5], [4, 0]],
    "no hits": [[0, 7], [3, 0]],
}
CASES = [
    pytest.param(MATRICES[name], prior, id=f"{name}-{prior}") for name, prior in itertools.product(MATRICES, WEIGHT)
]


def seeded(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def betas(matrix, weight):
    """Posterior of each recall of two classes."""
    (tn, fp), (fn, tp) = matrix
    return stats.beta(tn + weight, fp + weight), stats.beta(tp + weight, fn + weight)


def mean_cdf(matrix, weight):
    """CDF of the mean of two recalls: that of one, averaged over the other's quantiles."""
    first, second = betas(matrix, weight)
    nodes = second.ppf((np.arange(4000) + 0.5) / 4000)
    return lambda z: first.cdf(2 * z - nodes).mean()


def mean_density(matrix, weight):
    first, second = betas(matrix, weight)
    nodes = second.ppf((np.arange(20_000) + 0.5) / 20_000)
    return lambda z: 2 * first.pdf(2 * z - nodes).mean()


def distance(draws, cdf, points=100):
    """Kolmogorov distance of draws from a distribution, in units of what chance gives (1 in 1500 is above 2)."""
    ordered = np.sort(np.asarray(draws))
    places = np.unique(np.linspace(0, len(ordered) - 1, points).astype(int))
    return max(abs(cdf(ordered[i]) - (i + 0.5) / len(ordered)) for i in places) * math.sqrt(len(ordered))


def apart(first, second):
    """Two-sample Kolmogorov distance in units of what chance gives."""
    return stats.ks_2samp(first, second).statistic * math.sqrt(len(first) * len(second) / (len(first) + len(second)))


def score(c):
    """A measure without symmetries, of Torch and NumPy alike, defined for every matrix."""
    return (c[..., 0, 0] + 2.0 * c[..., 1, 1]) / (1 + c[..., 1, 0] + 3 * c[..., 0, 1])


def rates(c):
    """Recall of each class."""
    return c.diagonal(dim1=-2, dim2=-1) / c.sum(-1)


# --- posterior ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_draws_follow_numerical_integration(matrix, prior):
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 40_000, generator=seeded(), draws=True)
    assert distance(found.draws, mean_cdf(matrix, WEIGHT[prior])) < 2
    first, second = betas(matrix, WEIGHT[prior])
    assert float(found.draws.mean()) == pytest.approx((first.mean() + second.mean()) / 2, abs=0.003)


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_draws_follow_the_convolution(matrix, prior):
    draws = posterior(balanced_accuracy, torch.tensor(matrix), prior, 40_000, generator=seeded(1), draws=True).draws
    exact = balanced_accuracy_posterior(torch.tensor(matrix), prior)
    for q in (0.01, 0.025, 0.25, 0.5, 0.9, 0.975):
        share = float((draws <= exact.quantile(q)).double().mean())
        assert share == pytest.approx(q, abs=4 * math.sqrt(q * (1 - q) / len(draws)) + 1e-3)


@pytest.mark.parametrize("prior", WEIGHT)
def test_limits_are_equal_tailed_where_both_classes_have_hits_and_errors(prior):
    cdf = mean_cdf(MATRICES["errors in both"], WEIGHT[prior])
    for level in (0.5, 0.9, 0.95):
        found = posterior(
            balanced_accuracy, torch.tensor(MATRICES["errors in both"]), prior, 100_000, level, generator=seeded(2)
        )
        assert cdf(float(found.low)) == pytest.approx((1 - level) / 2, abs=0.006)
        assert cdf(float(found.high)) == pytest.approx((1 + level) / 2, abs=0.006)


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("prior", WEIGHT)
def test_a_recall_is_drawn_from_its_beta_distribution(size, prior):
    weight = WEIGHT[prior]
    counts = torch.arange(size**2, dtype=torch.float64).reshape(size, size) % 7 + torch.eye(size, dtype=torch.float64)
    recall = posterior(
        lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1), counts, prior, 40_000, generator=seeded(), draws=True
    )
    hits, total = float(counts[1, 1]), float(counts[1].sum())
    expected = stats.beta(hits + weight, total - hits + weight)
    assert float(recall.draws.mean()) == pytest.approx(
        (hits + weight) / (total + 2 * weight), abs=5 * expected.std() / 200
    )
    assert distance(recall.draws, expected.cdf) < 2


def pooled_weights(counts):
    """Pseudo-counts on the right and wrong cells of a class, from the recalls of the classes with targets."""
    matrix = np.asarray(counts, dtype=float)
    hits, totals = matrix.diagonal(), matrix.sum(1)
    recalls = [h / n for h, n in zip(hits, totals, strict=True) if n > 0]
    share = (sum(recalls) + 0.5) / (len(recalls) + 1) if len(recalls) > 2 else 0.5
    return share, 1 - share


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_value_is_drawn_with_a_prior_that_keeps_the_mean_recall(classes):
    counts = torch.zeros(10, 10)  # the other classes have no targets
    counts[:classes, :classes] = (torch.arange(classes**2) % 7 + 3).reshape(classes, classes) + 20 * torch.eye(classes)
    right, wrong = pooled_weights(counts)
    hits, total = float(counts[1, 1]), float(counts[1].sum())
    expected = stats.beta(hits + right, total - hits + wrong)
    for prior in ("auto", "pooled"):
        found = posterior(lambda c: rates(c)[..., 1], counts, prior, 40_000, generator=seeded(), draws=True)
        assert distance(found.draws, expected.cdf) < 2


def test_values_of_classes_are_drawn_with_half_and_half():
    counts = torch.tensor([[40, 5, 2], [3, 20, 4], [1, 0, 3]])
    for prior in ("auto", "jeffreys"):
        found = posterior(rates, counts, prior, 40_000, generator=seeded(), draws=True)
        for index, (hits, total) in enumerate([(40, 47), (20, 27), (3, 4)]):
            assert distance(found.draws[:, index], stats.beta(hits + 0.5, total - hits + 0.5).cdf) < 2


def test_empty_cells_get_the_prior_of_their_row_one_at_a_time():
    counts = torch.tensor([[5, 2, 0, 0], [1, 4, 3, 1], [0, 0, 6, 0], [0, 1, 0, 2]])

    def cells(c):
        return c[..., 0, :] / c[..., 0, :].sum(-1, keepdim=True)

    drawn = posterior(cells, counts, "uniform", 40_000, generator=seeded(), draws=True).draws
    assert distance(drawn[:, 0], stats.beta(6, 3).cdf) < 2
    assert distance(drawn[:, 1], stats.beta(2, 7).cdf) < 2  # counted: the prior does not fall there
    assert bool(((drawn[:, 2] > 0) != (drawn[:, 3] > 0)).all())
    assert float((drawn[:, 2] > 0).double().mean()) == pytest.approx(0.5, abs=0.01)
    hit = drawn[:, 2][drawn[:, 2] > 0]
    assert distance(hit, stats.beta(1, 8).cdf) < 2


def test_a_row_without_empty_cells_gets_its_prior_on_any_wrong_one():
    counts = torch.tensor([[5, 2, 3], [1, 4, 3], [2, 1, 6]])
    drawn = posterior(rates, counts, "uniform", 40_000, generator=seeded(), draws=True).draws
    assert distance(drawn[:, 0], stats.beta(6, 6).cdf) < 2
    cell = posterior(lambda c: c[..., 0, 1] / c[..., 0, :].sum(-1), counts, "uniform", 40_000, generator=seeded())
    assert float(cell.estimate) == 0.2
    rng = np.random.default_rng(0)
    weights = [rng.dirichlet(alpha, 100_000)[:, 1] for alpha in ([6, 3, 3], [6, 2, 4])]
    assert [float(cell.low), float(cell.high)] == pytest.approx(
        np.quantile(np.concatenate(weights), [0.025, 0.975]).tolist(), abs=0.01
    )


def test_pseudo_counts_per_cell():
    prior = torch.tensor([[3.0, 0.25], [2.0, 7.0]])
    counts = torch.tensor([[5, 2], [1, 4]])
    for row, column in itertools.product(range(2), repeat=2):
        found = posterior(
            lambda c, i=row, j=column: c[..., i, j] / c[..., i, :].sum(-1),
            counts,
            prior,
            20_000,
            generator=seeded(),
            draws=True,
        )
        a = float(prior[row, column] + counts[row, column])
        assert distance(found.draws, stats.beta(a, float(prior[row].sum() + counts[row].sum()) - a).cdf) < 2


def test_fixed_totals_stay_and_measures_are_called_with_all_draws():
    seen = []

    def measure(counts):
        seen.append(counts)
        return counts.diagonal(dim1=-2, dim2=-1).sum(-1)

    counts = torch.tensor([[[90, 10, 0], [1, 9, 2], [0, 0, 0]], [[3, 0, 0], [0, 5, 0], [0, 9, 0]]])
    posterior(measure, counts, samples=50, generator=seeded(), totals="fixed")
    assert [each.shape[0] for each in seen if each.ndim == 4] == [50, 50, 50]  # as drawn, and at either limit
    for each in seen:
        torch.testing.assert_close(each.sum(-1), counts.sum(-1).double().expand(each.shape[:-1]))
        assert bool((each >= 0).all())


def test_drawn_totals_follow_their_dirichlet_distribution():
    counts = torch.tensor([[40, 5, 0, 2], [3, 20, 0, 4], [0, 0, 0, 0], [1, 2, 0, 3]])
    drawn = posterior(lambda c: c.sum(-1), counts, samples=40_000, generator=seeded(), draws=True).draws
    torch.testing.assert_close(drawn.sum(-1), torch.full((40_000,), 80.0, dtype=torch.float64))
    assert bool((drawn[:, 2] == 0).all())
    for index, total in ((0, 47), (1, 27), (3, 6)):
        assert distance(drawn[:, index] / 80, stats.beta(total + 0.5, 80 + 1.5 - total - 0.5).cdf) < 2


def test_drawn_totals_widen_what_reads_them_and_nothing_else():
    counts = torch.tensor([[280, 20], [3, 7]])
    width = {}
    for totals in ("drawn", "fixed"):
        found = posterior(
            {"precision": lambda c: c[..., 1, 1] / c[..., 1].sum(-1), "recalls": balanced_accuracy},
            counts,
            samples=40_000,
            generator=seeded(),
            totals=totals,
        )
        width[totals] = {name: float(each.high - each.low) for name, each in found.items()}
    assert width["drawn"]["recalls"] == pytest.approx(width["fixed"]["recalls"], rel=0.02)
    assert width["drawn"]["precision"] > 1.15 * width["fixed"]["precision"]


def test_class_without_targets_stays_empty():
    seen = []

    def measure(counts):
        seen.append(counts[..., 1, :])
        return balanced_accuracy(counts)

    counts = torch.tensor([[40, 3, 7], [0, 0, 0], [2, 0, 6]])
    found = posterior(measure, counts, "uniform", 40_000, generator=seeded(), draws=True)
    assert all(bool((each == 0).all()) for each in seen)
    assert distance(found.draws, mean_cdf([[40, 10], [2, 6]], 1.0)) < 2


def test_no_counts_at_all_have_no_interval():
    found = posterior(balanced_accuracy, torch.zeros(2, 2), samples=20)
    assert all(bool(each.isnan()) for each in (found.estimate, found.low, found.high))


# --- classes without errors, or without hits ------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [balanced_accuracy, imbalance_accuracy, geometric_mean])
@pytest.mark.parametrize("size", [2, 5])
def test_no_errors_at_all_reach_the_best_value(measure, size):
    found = posterior(measure, torch.diag(torch.arange(3, 3 + size)), generator=seeded())
    assert float(found.high) == float(found.estimate) == 1
    assert float(found.low) < 1


@pytest.mark.parametrize(("measure", "worst"), [(balanced_accuracy, 0), (imbalance_accuracy, -1), (geometric_mean, 0)])
def test_no_hits_at_all_reach_the_worst_value(measure, worst):
    found = posterior(measure, 4 * (1 - torch.eye(3)), generator=seeded())
    assert float(found.low) == float(found.estimate) == worst
    assert float(found.high) > worst


@pytest.mark.parametrize("prior", WEIGHT)
def test_upper_limit_is_that_with_the_recall_at_one(prior):
    matrix = MATRICES["no errors in one"]
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 100_000, generator=seeded())
    other, _ = betas(matrix, WEIGHT[prior])
    assert float(found.high) == pytest.approx((other.ppf(0.975) + 1) / 2, abs=1e-3)
    assert mean_cdf(matrix, WEIGHT[prior])(float(found.low)) == pytest.approx(0.025, abs=0.003)


@pytest.mark.parametrize("prior", WEIGHT)
def test_lower_limit_is_that_with_the_recall_at_zero(prior):
    matrix = MATRICES["no hits in one"]
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 100_000, generator=seeded())
    other, _ = betas(matrix, WEIGHT[prior])
    assert float(found.low) == pytest.approx(other.ppf(0.025) / 2, abs=1e-3)
    assert mean_cdf(matrix, WEIGHT[prior])(float(found.high)) == pytest.approx(0.975, abs=0.003)


def test_limits_hold_for_losses_as_well():
    found = posterior(lambda c: 1 - balanced_accuracy(c), torch.tensor(MATRICES["no errors"]), generator=seeded())
    assert float(found.low) == float(found.estimate) == 0


def test_class_without_errors_does_not_touch_its_neighbours_in_the_batch():
    both = torch.tensor([MATRICES["errors in both"], MATRICES["no errors in one"]])
    found = posterior(balanced_accuracy, both, samples=100_000, generator=seeded())
    assert mean_cdf(MATRICES["errors in both"], 0.5)(float(found.high[0])) == pytest.approx(0.975, abs=0.003)


@pytest.mark.parametrize("size", [10, 40])
def test_prior_does_not_pull_the_mean_of_many_classes_away(size):
    # one pseudo-count on either side of each recall would move the mean by several standard errors
    total = 10
    counts = torch.eye(size) * 9 + (1 - torch.eye(size)) / (size - 1)
    draws = posterior(balanced_accuracy, counts, samples=1000, generator=seeded(), draws=True).draws
    error = math.sqrt(0.9 * 0.1 / total / size)
    assert float(draws.mean()) == pytest.approx(0.9, abs=0.5 * error)


# --- what widens limits -----------------------------------------------------------------------------------------------


MULTICLASS = {
    "iam": imbalance_accuracy,
    "ba": balanced_accuracy,
    "gmean": geometric_mean,
    "mcc": imbtorch.matthews_corrcoef,
    "f1": imbtorch.f_score,
    "recall of each": lambda c: imbtorch.recall(c, "none"),
    "precision of each": lambda c: imbtorch.precision(c, "none"),
}


@pytest.mark.parametrize("totals", ["drawn", "fixed"])
@pytest.mark.parametrize("size", [2, 3, 20])
def test_no_estimate_lies_outside(size, totals):
    rng = np.random.default_rng(size)
    rows = rng.integers(1, 12, size)
    matrices = [
        np.stack(
            [rng.multinomial(n, rng.dirichlet(np.full(size, 0.2) + 3 * np.eye(size)[i])) for i, n in enumerate(rows)]
        )
        for _ in range(30)
    ]
    counts = torch.from_numpy(np.stack(matrices))
    for name, found in posterior(MULTICLASS, counts, samples=200, generator=seeded(), totals=totals).items():
        known = ~found.low.isnan()
        assert bool(known.any())
        assert bool(((found.low <= found.estimate) & (found.estimate <= found.high))[known].all()), name
        assert float(found.high[known].max()) < 1 + 1e-12, name
        assert float(found.low[known].min()) > (-1 if name in ("iam", "mcc") else 0) - 1e-12, name


def test_precision_without_false_positives_reaches_one_and_with_them_does_not():
    counts = torch.tensor([[40, 0, 9], [6, 5, 3], [2, 0, 8]])  # nothing was taken for class 1 by mistake
    found = posterior(lambda c: imbtorch.precision(c, "none"), counts, samples=4000, generator=seeded())
    assert float(found.high[1]) == float(found.estimate[1]) == 1
    assert float(found.low[1]) < 0.9
    assert 0.95 > float(found.high[0]) > float(found.estimate[0])


def test_curvature_stretches_by_twice_the_bias():
    """The square of one recall: mean and variance of its Beta distribution are known."""
    matrix = [[50, 10], [4, 6]]
    found = posterior(lambda c: rates(c)[..., 1] ** 2, torch.tensor(matrix), samples=200_000, generator=seeded())
    law = stats.beta(6.5, 4.5)
    shift = 2 * (law.mean() ** 2 - (law.mean() ** 2 + law.var()))  # E[x^2] is above the square of the mean
    assert float(found.low) == pytest.approx(law.ppf(0.025) ** 2 + shift, abs=2e-3)
    assert float(found.high) == pytest.approx(law.ppf(0.975) ** 2, abs=2e-3)
    mirrored = posterior(lambda c: -(rates(c)[..., 1] ** 2), torch.tensor(matrix), samples=200_000, generator=seeded())
    assert float(mirrored.high) == pytest.approx(-float(found.low))


@pytest.mark.parametrize("size", [3, 12])
def test_means_of_small_classes_are_as_wide_as_their_sampling_distribution(size):
    """Of n samples a recall has the variance r (1 - r) / n, its draws r (1 - r) / (n + 2); Student's t by SciPy."""
    total = 6
    counts = torch.zeros(size, size, dtype=torch.float64)
    counts[range(size), range(size)] = 4
    counts[range(size), [(i + 1) % size for i in range(size)]] = total - 4
    found = posterior(balanced_accuracy, counts, samples=100_000, generator=seeded(), draws=True)
    low, mean, high = np.quantile(found.draws, 0.025), float(found.draws.mean()), np.quantile(found.draws, 0.975)
    wider = math.sqrt((total + 2) / total) * stats.t(size * (total - 1)).ppf(0.975) / stats.norm.ppf(0.975)
    assert float(found.low) == pytest.approx(4 / 6 + wider * (low - mean), abs=3e-3)
    assert float(found.high) == pytest.approx(4 / 6 + wider * (high - mean), abs=3e-3)
    one = posterior(
        lambda c: rates(c)[..., [0]], counts, samples=100_000, generator=seeded()
    )  # single classes have not
    assert float(one.low[0]) == pytest.approx(stats.beta(4.5, 2.5).ppf(0.025), abs=5e-3)


def test_a_prior_that_moves_the_draws_moves_a_limit_back():
    """Large classes without errors and small ones with many: the mean recall pulls the small ones up."""
    size, total = 20, 8
    counts = torch.diag_embed(torch.tensor([400.0] * 10 + [2.0] * 10).double())
    counts[range(10, size), 0] = total - 2
    found = posterior(balanced_accuracy, counts, samples=50_000, generator=seeded(), draws=True)
    pooled = (10 + 10 / 4 + 0.5) / (size + 1)
    mean = (10 * (400 + pooled) / 401 + 10 * (2 + pooled) / 9) / size
    assert float(found.draws.mean()) == pytest.approx(mean, abs=1e-3)
    estimate = (10 + 10 / 4) / size
    low = float(np.quantile(found.draws, 0.025))
    wider = math.sqrt(10 / 8) * stats.t(10 * 7).ppf(0.975) / stats.norm.ppf(0.975)
    assert float(found.low) == pytest.approx(estimate + wider * (low - mean), abs=3e-3)


def test_numbering_of_classes_does_not_matter():
    counts = torch.diag_embed(torch.arange(1.0, 26)).double() + 1
    counts[20:] = counts[20:].round()
    order = torch.from_numpy(np.random.default_rng(0).permutation(25))
    found = posterior(balanced_accuracy, counts, samples=50_000, generator=seeded())
    other = posterior(balanced_accuracy, counts[order][:, order], samples=50_000, generator=seeded(1))
    assert [float(other.low), float(other.high)] == pytest.approx([float(found.low), float(found.high)], abs=2e-3)


# --- many classes -----------------------------------------------------------------------------------------------------


def many(size=20, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        rng.multinomial(n, 0.7 * np.eye(size)[i] + 0.3 * rng.dirichlet(np.full(size, 0.3)))
        for i, n in enumerate(rng.integers(2, 60, size))
    ]
    return torch.from_numpy(np.stack(rows))


def whole(measure):
    """The measure as one of no known module, which is given matrices."""
    return lambda c: measure(c)


def test_margins_of_sparse_draws_are_those_of_matrices(monkeypatch):
    monkeypatch.setattr(drawing, "SERIAL", drawing.CELLS_AT_ONCE)  # one chunk of draws for both
    counts = torch.stack([many(seed=0), many(seed=1)])
    counts[0, 3] = 0  # a class without targets
    for measure in (imbalance_accuracy, imbtorch.f_score, imbtorch.matthews_corrcoef):
        by_margins = posterior(measure, counts, samples=300, generator=seeded(), draws=True)
        by_matrices = posterior(whole(measure), counts, samples=300, generator=seeded(), draws=True)
        torch.testing.assert_close(by_margins.draws, by_matrices.draws)
        for name in ("estimate", "low", "high"):
            torch.testing.assert_close(getattr(by_margins, name), getattr(by_matrices, name))


def test_only_what_takes_margins_is_given_them(monkeypatch):
    monkeypatch.setattr(drawing, "SERIAL", drawing.CELLS_AT_ONCE)  # one chunk of draws for both
    seen = []

    class Reading:
        needs_matrix = False

        def __call__(self, counts):
            seen.append(counts)
            return balanced_accuracy(counts)

    posterior({"own": lambda c: seen.append(c) or c.sum((-1, -2)), "ours": Reading()}, many(), samples=20)
    assert {isinstance(each, imbtorch.Margins) for each in seen} == {True, False}
    for measure in (imbtorch.relative_classifier_information, imbtorch.confusion_entropy):  # raise for margins
        assert bool(posterior(measure, many(), samples=20).low < posterior(measure, many(), samples=20).high)
    found = posterior(partial(imbtorch.f_score, beta=2.0), many(), samples=400, generator=seeded())
    same = posterior(whole(partial(imbtorch.f_score, beta=2.0)), many(), samples=400, generator=seeded())
    torch.testing.assert_close(found.low, same.low)


@pytest.mark.parametrize("classes", [15, 16])  # from 16 on draws are margins for what takes them
@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_arguments_that_need_the_matrix_get_it(weights, classes):
    counts = torch.randint(1, 30, (classes, classes), generator=seeded())
    kappa = partial(imbtorch.cohen_kappa, weights=weights)
    found = posterior(kappa, counts, samples=50, generator=seeded())
    target, preds = (part.repeat_interleave(counts.flatten()) for part in torch.ones(classes, classes).nonzero().T)
    assert found.estimate.item() == pytest.approx(sklearn_metrics.cohen_kappa_score(target, preds, weights=weights))
    matrices = posterior(whole(kappa), counts, samples=50, generator=seeded())
    torch.testing.assert_close((found.low, found.high), (matrices.low, matrices.high))


def test_a_measure_of_ones_own_within_another_gets_matrices():
    """Index of balanced accuracy of a function that reads cells: of its metric it was declared, of the function not."""
    own = partial(
        imbtorch.index_balanced_accuracy, measure=lambda counts: counts[..., 1, 1] / counts[..., 1, :].sum(-1)
    )
    assert needs_matrix(own)
    assert not needs_matrix(imbtorch.index_balanced_accuracy)
    assert needs_matrix(partial(imbtorch.index_balanced_accuracy, measure="rci"))
    assert not needs_matrix(partial(imbtorch.index_balanced_accuracy, measure="mcc"))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0, 3.0, 4.0, 2.5])
def test_gammas_follow_their_distribution(alpha):
    drawn = drawing.gammas(torch.tensor([alpha, 0.0, 1.0], dtype=torch.float64), 20_000, seeded())
    assert distance(drawn[0], stats.gamma(alpha).cdf) < 2
    assert bool((drawn[1] == 0).all())
    assert distance(drawn[2], stats.expon.cdf) < 2


def most_memory(call):
    """Bytes that a call takes at its peak; what the process took before plays no part, as it does in getrusage."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("the peak of resident memory can be set back on Linux alone")
    reset.write_text("5")
    peaks = []
    for step in (lambda: None, call):
        step()
        peaks.append(1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]))
    return peaks[1] - peaks[0]


class Threaded(TorchDispatchMode):
    """Count operations that PyTorch may spread over threads, by name."""

    alone = ("empty_like", "new_empty", "index_select", "index_copy_", "rand", "split", "segment_reduce", "detach", "t")
    eager = ("index", "_index_put_impl_", "index_put_", "log", "log_")  # spread from 2,000 numbers on

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, name = func(*args, **(kwargs or {})), func.__name__.split(".")[0]
        least = 2000 if name in self.eager else drawing.SERIAL
        if isinstance(result, torch.Tensor) and result.numel() > least and name not in self.alone:
            self.seen[name] += 1
        return result


@pytest.mark.parametrize("size", [2, 10, 60])
def test_draws_are_not_spread_over_threads(size):
    """Threads wait for one another after each operation, wherever another process holds a core, for long."""
    with Threaded() as threaded:
        posterior({"iam": imbalance_accuracy, "ba": balanced_accuracy}, many(size), samples=4000, generator=seeded())
    assert sum(threaded.seen.values()) < 40, threaded.seen  # of all draws together; of each chunk there are hundreds


def test_memory_of_many_classes_is_bounded():
    """A thousand classes: 500 whole matrices would take 4 GB, the 60 of a function that needs them 480 MB."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 1000, 20_000)
    preds = np.where(rng.random(20_000) < 0.7, target, rng.integers(0, 1000, 20_000))
    counts = imbtorch.confusion_matrix(
        *(torch.from_numpy(each) for each in (preds, target)), "multiclass", num_classes=1000
    )
    assert most_memory(lambda: torch.ones(400_000_000, dtype=torch.uint8)) > 300e6  # it is seen, and no later peak
    for measure, samples in ((imbalance_accuracy, 500), (imbtorch.f_score, 500), (lambda c: rates(c)[..., 0], 60)):
        found = []
        assert most_memory(lambda: found.append(posterior(measure, counts, samples=samples))) < 300e6  # noqa: B023
        assert bool(found[0].low < found[0].high)


# --- exact posterior of balanced accuracy ---------------------------------------------------------------------------


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_convolution_against_numerical_integration(matrix, prior):
    found = balanced_accuracy_posterior(torch.tensor(matrix), prior)
    first, second = betas(matrix, WEIGHT[prior])
    spacing = float(found.grid[1] - found.grid[0])
    assert spacing == pytest.approx(1 / 8192)
    assert float(found.density.sum()) * spacing == pytest.approx(1)
    assert found.mean == pytest.approx((first.mean() + second.mean()) / 2, abs=1e-5)
    cdf = mean_cdf(matrix, WEIGHT[prior])
    for q in (0.001, 0.025, 0.3, 0.5, 0.8, 0.975, 0.999):
        assert cdf(found.quantile(q) - spacing) - 5e-4 <= q <= cdf(found.quantile(q) + spacing) + 5e-4
    places = [found.quantile(q) for q in np.linspace(0, 1, 101).tolist()]
    assert places == sorted(places)
    assert 0 <= places[0] < places[-1] <= 1


@pytest.mark.parametrize("name", ["errors in both", "few positives", "no errors in one"])
def test_density_and_mode_of_the_convolution(name):
    density = mean_density(MATRICES[name], 1.0)
    found = balanced_accuracy_posterior(torch.tensor(MATRICES[name]))
    for place in range(200, len(found.grid), 777):
        assert float(found.density[place]) == pytest.approx(density(float(found.grid[place])), rel=1e-2, abs=1e-3)
    best = optimize.minimize_scalar(lambda z: -density(z), bounds=(0, 1), method="bounded", options={"xatol": 1e-7})
    assert found.mode == pytest.approx(best.x, abs=2e-3)


def test_convolution_of_one_and_of_three_classes():
    one = balanced_accuracy_posterior(torch.tensor([[7, 3], [0, 0]]))
    assert one.mode == pytest.approx(0.7, abs=1 / 4096)
    for q in (0.025, 0.5, 0.975):
        assert one.quantile(q) == pytest.approx(stats.beta(8, 4).ppf(q), abs=1e-4)
    three = balanced_accuracy_posterior(torch.tensor([[7, 1, 2], [0, 5, 0], [9, 0, 0]]), "jeffreys")
    assert three.mean == pytest.approx((7.5 / 11 + 5.5 / 6 + 0.5 / 10) / 3)
    pooled = balanced_accuracy_posterior(torch.tensor([[7, 1, 2], [0, 5, 0], [9, 0, 0]]), "pooled")
    share = (0.7 + 1 + 0 + 0.5) / 4
    assert pooled.mean == pytest.approx(((7 + share) / 11 + (5 + share) / 6 + share / 10) / 3)


def test_convolution_where_the_density_is_infinite():
    """Fifty classes of three hits in three and one of none: the prior leaves a hundredth on the other side of each."""
    counts = torch.diag(torch.tensor([3] * 50 + [0]))
    counts[50, 0] = 3
    found = balanced_accuracy_posterior(counts, "pooled")
    share = 50.5 / 52
    rng = np.random.default_rng(0)
    simulated = sum(
        stats.beta(hits + share, 3 - hits + 1 - share).rvs(100_000, random_state=rng) / 51 for hits in [3] * 50 + [0]
    )
    assert [found.quantile(q) for q in (0.025, 0.5, 0.975)] == pytest.approx(
        np.quantile(simulated, [0.025, 0.5, 0.975]).tolist(), abs=4e-4
    )


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_probability_above(matrix, prior):
    found = balanced_accuracy_posterior(torch.tensor(matrix), prior)
    cdf = mean_cdf(matrix, WEIGHT[prior])
    for x in (0.0, 0.1, 0.5, 0.77, 0.85, 0.999, 1.0):
        assert found.probability_above(x) == pytest.approx(1 - cdf(x), abs=5e-4)
    assert found.probability_above(-1) == 1
    assert found.probability_above(2) == 0
    for q in (0.03, 0.4, 0.98):
        assert found.probability_above(found.quantile(q)) == pytest.approx(1 - q)


def test_convolution_of_many_samples():
    matrix = [[90_000, 10_000], [150, 850]]
    found = balanced_accuracy_posterior(torch.tensor(matrix))
    cdf = mean_cdf(matrix, 1.0)
    assert [cdf(found.quantile(q)) for q in (0.025, 0.5, 0.975)] == pytest.approx([0.025, 0.5, 0.975], abs=2e-3)


# --- bootstrap ------------------------------------------------------------------------------------------------------


def outcomes(cells):
    """Every multinomial outcome of the cells with its probability."""
    total = sum(cells)
    found = [c for c in itertools.product(range(total + 1), repeat=len(cells)) if sum(c) == total]
    chances = stats.multinomial(total, np.array(cells) / total).pmf(np.array(found))
    return [(outcome, chance) for outcome, chance in zip(found, chances, strict=True) if chance > 0]


def enumerated(matrix, stratified):
    """Values of the score and their probabilities, in order."""
    if stratified:
        rows = [outcomes(row) for row in matrix]
        every = [((a, b), p * q) for (a, p), (b, q) in itertools.product(*rows)]
    else:
        every = [((c[:2], c[2:]), p) for c, p in outcomes([*matrix[0], *matrix[1]])]
    values = np.round(score(np.array([each for each, _ in every], dtype=float)), 9)
    chances = np.array([chance for _, chance in every])
    order = np.argsort(values)
    return values[order], chances[order].cumsum()


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("matrix", [[[4, 1], [2, 3]], [[5, 0], [1, 2]], [[1, 1], [1, 1]], [[6, 2], [0, 1]]])
def test_bootstrap_against_enumeration(matrix, stratified):
    found = bootstrap(score, torch.tensor(matrix), 50_000, stratified=stratified, generator=seeded(), draws=True)
    values, cumulative = enumerated(matrix, stratified)
    assert cumulative[-1] == pytest.approx(1)
    draws = np.sort(np.round(found.draws.numpy(), 9))
    assert set(draws) <= set(values)
    last = np.searchsorted(values, values, side="right") - 1
    gaps = np.abs(np.searchsorted(draws, values, side="right") / len(draws) - cumulative[last])
    assert gaps.max() * math.sqrt(len(draws)) < 2
    for limit, q in ((float(found.low), 0.025), (float(found.high), 0.975)):
        below = cumulative[values < limit - 1e-6]
        upto = cumulative[values <= limit + 1e-6]
        assert (below[-1] if len(below) else 0) <= q + 0.003
        assert (upto[-1] if len(upto) else 0) >= q - 0.003


@pytest.mark.parametrize("cells", [[[5, 0, 3, 12]], [[7, 2], [0, 4]], [[0, 0, 0, 9]]])
def test_moments_of_resamples(cells):
    draws = drawing.multinomial(torch.tensor(cells).double(), 40_000, seeded()).numpy()
    assert (draws == draws.round()).all()
    assert (draws >= 0).all()
    for stratum, counts in enumerate(np.array(cells)):
        law = stats.multinomial(counts.sum(), counts / counts.sum())
        each = draws[:, stratum]
        assert (each.sum(-1) == counts.sum()).all()
        assert (each[:, counts == 0] == 0).all()
        np.testing.assert_allclose(each.mean(0), counts, atol=5 * math.sqrt(counts.max() / 40_000))
        np.testing.assert_allclose(np.cov(each.T), law.cov(), atol=0.15)


def test_bootstrap_of_a_class_without_errors_cannot_tell():
    found = bootstrap(balanced_accuracy, torch.tensor(MATRICES["no errors"]), stratified=True, generator=seeded())
    assert float(found.low) == float(found.high) == 1


def share_of_positives(c):
    """A measure of the class totals alone, of which the posterior of recalls knows all."""
    return (c[..., 1, :].sum(-1) / c.sum((-1, -2))) ** 2


def test_clusters_are_resampled_whole_and_stretched():
    """Every resample of three clusters by enumeration; Student's t by SciPy."""
    clusters = [[[4, 1], [2, 3]], [[5, 0], [1, 2]], [[1, 1], [0, 6]]]
    found = bootstrap(share_of_positives, torch.tensor(clusters), 60_000, clusters=True, generator=seeded(), draws=True)
    values = [
        float(share_of_positives(sum(torch.tensor(clusters[i]).double() for i in chosen)))
        for chosen in itertools.product(range(3), repeat=3)
    ]
    values, times = np.unique(np.round(values, 9), return_counts=True)
    shares = [float((np.abs(found.draws.numpy() - value) < 1e-6).mean()) for value in values]
    assert shares == pytest.approx((times / 27).tolist(), abs=0.01)
    assert [float(found.low), float(found.high)] == pytest.approx([values.min(), values.max()])  # stretched beyond
    level = 0.3
    found = bootstrap(share_of_positives, torch.tensor(clusters), 60_000, level, clusters=True, generator=seeded())
    estimate = float(found.estimate)
    assert estimate == pytest.approx((14 / 26) ** 2)
    drawn = np.repeat(values, times)
    stretch = stats.t(2).ppf(0.65) / stats.norm.ppf(0.65) * math.sqrt(3 / 2)
    low, high = (estimate + stretch * (np.quantile(drawn, q, method="inverted_cdf") - estimate) for q in (0.35, 0.65))
    shift = 2 * (estimate - drawn.mean())
    assert [float(found.low), float(found.high)] == pytest.approx(
        [min(low, low + shift), max(high, high + shift)], abs=5e-3
    )
    assert found.method == "cluster bootstrap"


def test_few_clusters_that_hold_most_of_a_class_have_few_degrees_of_freedom():
    """Formula of the docstring by NumPy and SciPy, of two values of two problems at once."""
    clusters = torch.randint(0, 9, (2, 12, 2, 2), generator=seeded())
    clusters[0, 0, 1] *= 40  # most positives are in one cluster

    def squares(c):
        return torch.stack((c[..., 0, :].sum(-1) ** 2, c[..., 1, :].sum(-1) ** 2), -1)

    level = 0.5  # at which limits stay within the resamples
    found = bootstrap(squares, clusters, 500, level, clusters=True, draws=True)
    kinds = set()
    for problem, label in itertools.product(range(2), range(2)):
        totals = clusters[problem, :, label].sum(-1).numpy().astype(float)
        change = (totals.sum() - totals) ** 2
        change -= change.mean()
        freedom = np.clip(3 * (change**2).sum() ** 2 / (change**4).sum() - 3, 2, 11)
        kinds.add(freedom > 5)
        stretch = stats.t(freedom).ppf(0.75) / stats.norm.ppf(0.75) * math.sqrt(12 / 11)
        draws, estimate = found.draws[:, problem, label].numpy(), totals.sum() ** 2
        low, high = estimate + stretch * (np.quantile(draws, [0.25, 0.75]) - estimate)
        shift = 2 * (estimate - draws.mean())
        limits = [float(limit[problem, label]) for limit in (found.low, found.high)]
        expected = [max(min(low, low + shift), draws.min()), min(max(high, high + shift), draws.max())]
        assert limits == pytest.approx(expected, rel=1e-6)
    assert kinds == {True, False}
    same = bootstrap(share_of_positives, clusters[1, :1].expand(5, 2, 2), 50, clusters=True)
    assert float(same.low) == pytest.approx(float(same.high))


def test_limits_of_clusters_stay_within_the_bounds():
    clusters = torch.tensor([[[9, 1], [0, 3]], [[2, 8], [3, 1]], [[10, 0], [0, 2]], [[7, 3], [2, 0]]])
    measures = {"ba": balanced_accuracy, "gmean": geometric_mean, "iam": imbalance_accuracy}
    for name, found in bootstrap(measures, clusters, 500, 0.999, clusters=True, generator=seeded()).items():
        assert float(found.low) >= (-1 if name == "iam" else 0)
        assert float(found.high) <= 1


def test_clusters_without_errors_count_as_samples():
    """No resample has an error either: the lower limit is that of as many right samples as there are clusters."""
    clusters = torch.tensor([[[0, 0], [0, 5]]] * 6 + [[[9, 1], [0, 0]]] * 6)
    found = bootstrap(lambda c: imbtorch.recall(c, "none"), clusters, 40_000, clusters=True, generator=seeded())
    assert float(found.low[1]) == pytest.approx(stats.beta(6.5, 0.5).ppf(0.025), abs=0.01)
    assert float(found.high[1]) == 1


def test_effective_samples_are_those_of_the_variance_among_clusters():
    whole = torch.tensor([[[4, 0], [0, 6]], [[4, 0], [6, 0]], [[0, 4], [0, 6]], [[0, 4], [0, 6]], [[4, 0], [0, 6]]])
    # each cluster is all right or all wrong, so that five clusters of equal size are worth four degrees of freedom
    assert drawing.effective_samples(whole.double(), 2).tolist() == pytest.approx([4, 4])
    rng = np.random.default_rng(0)
    hits = rng.binomial(20, 0.6, (4000, 30))  # independent samples, so that all of them count
    counts = torch.zeros(4000, 30, 2, 2, dtype=torch.float64)
    counts[..., 1, 1], counts[..., 1, 0] = torch.from_numpy(hits), torch.from_numpy(20 - hits)
    recall = hits.mean(1) / 20
    expected = recall * (1 - recall) / ((hits / 20).var(1, ddof=1) / 30)
    found = drawing.effective_samples(counts, 2)
    np.testing.assert_allclose(found[:, 1], np.minimum(expected, 600), rtol=1e-9)
    assert bool((found[:, 0] == 0).all())
    alike = torch.tensor([[[3, 1], [0, 0]]]).expand(6, 2, 2).double()
    assert float(drawing.effective_samples(alike, 2)[0]) == 24
    sizes = torch.zeros(3, 2, 2, dtype=torch.float64)
    sizes[:, 1, 1] = torch.tensor([8.0, 1, 1])  # no errors: 100 / 66 clusters of equal size
    assert float(drawing.effective_samples(sizes, 2)[1]) == pytest.approx(100 / 66)


def test_clusters_are_batched_and_chunked(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    clusters = torch.randint(0, 9, (2, 10, 3, 3), generator=generator)
    both = bootstrap(balanced_accuracy, clusters, 20_000, clusters=True, generator=seeded(), draws=True)
    assert both.low.shape == (2,)
    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", 7000)
    alone = bootstrap(balanced_accuracy, clusters[1], 20_000, clusters=True, generator=seeded(1), draws=True)
    assert apart(both.draws[:, 1], alone.draws) < 2
    each = bootstrap(lambda c: imbtorch.recall(c, "none"), clusters, 50, clusters=True)
    assert each.low.shape == (2, 3)
    labels = torch.randint(0, 9, (10, 4, 2, 2), generator=generator)  # ten clusters of four labels
    found = bootstrap(lambda c: balanced_accuracy(c).mean(-1), labels, 20_000, clusters=True, event_dims=3, draws=True)
    assert found.low.shape == ()
    assert float(found.estimate) == pytest.approx(float(balanced_accuracy(labels.sum(0)).mean()))
    blocks = torch.stack([torch.block_diag(*each) for each in labels])  # the same clusters as one matrix each

    def mean(c):
        return torch.stack([balanced_accuracy(c[..., i : i + 2, i : i + 2]) for i in (0, 2, 4, 6)]).mean(0)

    assert apart(found.draws, bootstrap(mean, blocks, 20_000, clusters=True, draws=True).draws) < 2


def test_clusters_that_cannot_be_resampled_are_refused():
    with pytest.raises(ValueError, match="M >= 2 clusters, got"):
        bootstrap(score, COUNTS, clusters=True)
    with pytest.raises(ValueError, match="M >= 2 clusters, got"):
        bootstrap(score, COUNTS.unsqueeze(0), clusters=True)
    with pytest.raises(ValueError, match="stratified=True keeps class totals"):
        bootstrap(score, COUNTS.expand(3, 2, 2), clusters=True, stratified=True)


@pytest.mark.parametrize("level", [0.2, 0.9, 0.95, 0.998])
def test_student_quantiles_are_those_of_scipy(level):
    freedom = np.array([[1, 1.5, 2, 7.3, 19], [400, 999.5, 1000.5, 20_000, 1e7]])
    found = special.student_quantile(level, torch.from_numpy(freedom))
    assert found.numpy() == pytest.approx(stats.t(freedom).ppf((1 + level) / 2), rel=1e-8)
    assert special.normal_quantile(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-12)


@pytest.mark.parametrize("pair", [(0.001, 99), (0.02, 3.1), (0.5, 0.5), (8, 2.5), (9e4, 1e4), (2e6, 0.01), (500, 3e8)])
def test_beta_distributions_are_those_of_scipy(pair):
    known = stats.beta(*pair)
    x = np.concatenate((np.linspace(0, 1, 1001), np.clip(known.mean() + known.std() * np.linspace(-9, 9, 99), 0, 1)))
    found = special.beta_cdf(torch.from_numpy(x), *pair).numpy()
    np.testing.assert_allclose(found, known.cdf(x), atol=1e-11)


def test_bootstrap_names_its_kind():
    counts = torch.tensor([[5, 1], [2, 3]])
    assert bootstrap(score, counts, 20).method == "bootstrap"
    assert bootstrap(score, counts, 20, stratified=True).method == "stratified bootstrap"
    assert posterior(score, counts, samples=20).method == "posterior"
    assert posterior(score, counts + 0.5, samples=20).method == "posterior of counts that are not whole"
    assert "not whole" in str(posterior(score, counts * 0.3, samples=20))


# --- both -----------------------------------------------------------------------------------------------------------

FINDERS = {
    "posterior": posterior,
    "bootstrap": bootstrap,
    "stratified": lambda *arguments, **named: bootstrap(*arguments, **named, stratified=True),
}
each_finder = pytest.mark.parametrize("find", FINDERS.values(), ids=FINDERS)


@each_finder
@pytest.mark.parametrize("device", DEVICES)
def test_generator_and_seed_reproduce(find, device):
    counts = torch.tensor([[50, 9], [3, 8]], device=device)

    def once(generator):
        found = find(score, counts, samples=300, generator=generator, draws=True)
        assert found.draws.device.type == device
        return found.draws

    first = once(seeded(3, device))
    assert torch.equal(first, once(seeded(3, device)))
    assert not torch.equal(first, once(seeded(4, device)))
    state = torch.get_rng_state()
    once(seeded(3, device))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(7)
    from_seed = once(None)
    torch.manual_seed(7)
    assert torch.equal(from_seed, once(None))


@each_finder
def test_batched_equals_looped(find):
    matrices = [MATRICES[name] for name in ("errors in both", "few positives", "no errors in one", "no hits in one")]
    stacked = torch.tensor([matrices, matrices])
    samples = 20_000
    found = find(score, stacked, samples=samples, generator=seeded(), draws=True)
    assert found.draws.shape == (samples, 2, 4)
    for each in (found.estimate, found.low, found.high):
        assert each.shape == (2, 4)
    for index, matrix in enumerate(matrices):
        alone = find(score, torch.tensor(matrix), samples=samples, generator=seeded(index + 1), draws=True)
        assert float(alone.estimate) == float(found.estimate[0, index])
        assert alone.low.shape == ()
        # values that one resample has are the others' as well, so that the distances are at most those of chance
        assert apart(alone.draws, found.draws[:, 0, index]) < 2
        assert apart(alone.draws, found.draws[:, 1, index]) < 2
        spread = float(alone.draws.std())
        assert float(found.low[0, index]) == pytest.approx(float(alone.low), abs=0.15 * spread)
        assert float(found.high[0, index]) == pytest.approx(float(alone.high), abs=0.25 * spread)


@each_finder
def test_values_of_each_class_equal_those_of_one_class_at_a_time(find):
    counts = torch.tensor([[[40, 5, 2], [3, 20, 4], [1, 2, 6]], [[9, 1, 1], [2, 7, 0], [0, 3, 5]]])
    found = find(lambda c: imbtorch.f_score(c, average="none"), counts, samples=300, generator=seeded(), draws=True)
    assert found.draws.shape == (300, 2, 3)
    assert found.estimate.shape == found.low.shape == found.high.shape == (2, 3)
    for index in range(3):  # a trailing dimension of size 1 keeps it a value of a class
        of_class = find(
            lambda c, i=index: imbtorch.f_score(c, average="none")[..., [i]], counts, samples=300, generator=seeded()
        )
        assert torch.equal(found.low[:, [index]], of_class.low)
        assert torch.equal(found.high[:, [index]], of_class.high)
    assert len(str(found).splitlines()) == 6


@each_finder
def test_a_value_of_several_matrices(find):
    labels = torch.tensor([MATRICES["errors in both"], MATRICES["few positives"]])
    found = find(lambda c: score(c).mean(-1), labels, samples=4000, generator=seeded(), event_dims=3, draws=True)
    assert found.draws.shape == (4000,)
    assert found.low.shape == ()
    each = find(score, labels, samples=4000, generator=seeded(1), draws=True)
    assert float(found.estimate) == pytest.approx(float(each.estimate.mean()))
    assert apart(found.draws, each.draws.mean(-1)) < 2
    stacked = find(lambda c: score(c).mean(-1), labels.expand(3, 2, 2, 2), samples=50, event_dims=3)
    assert stacked.low.shape == (3,)
    assert find(score, labels, samples=50, event_dims=3).low.shape == (2,)


@each_finder
def test_batches_may_be_empty(find):
    found = find(score, torch.zeros(0, 2, 2), samples=5)
    assert found.low.shape == found.high.shape == found.estimate.shape == (0,)


@each_finder
@pytest.mark.parametrize("cells", [1, 30])
def test_chunks_give_the_same_distribution(find, cells, monkeypatch):
    counts = torch.tensor([MATRICES["errors in both"], MATRICES["no errors in one"]])
    whole = find(score, counts, samples=20_000, generator=seeded(), draws=True)
    sizes = []

    def measure(matrices):
        sizes.append(matrices.numel())
        return score(matrices)

    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", cells)
    chunked = find(measure, counts, samples=1001, generator=seeded(1), draws=True)
    assert max(sizes) <= max(cells, counts.numel())
    assert chunked.draws.shape == (1001, 2)
    for index in range(2):
        assert apart(whole.draws[:, index], chunked.draws[:, index]) < 2
    assert bool((chunked.low <= chunked.estimate).all())
    assert bool((chunked.estimate <= chunked.high).all())


@each_finder
def test_measures_of_a_mapping_share_their_draws(find):
    counts = torch.tensor(MATRICES["errors in both"])
    measures = {"right": imbtorch.accuracy, "wrong": lambda c: 1 - imbtorch.accuracy(c)}
    found = find(measures, counts, samples=500, generator=seeded(), draws=True)
    assert list(found) == list(measures)
    torch.testing.assert_close(found["right"].draws + found["wrong"].draws, torch.ones(500, dtype=torch.float64))
    alone = find(imbtorch.accuracy, counts, samples=500, generator=seeded(), draws=True)
    assert torch.equal(alone.draws, found["right"].draws)
    assert find(measures, counts, samples=5)["right"].draws is None


@each_finder
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_dtypes_of_counts(find, dtype):
    found = find(score, torch.tensor(MATRICES["errors in both"], dtype=dtype), samples=50, generator=seeded())
    assert torch.equal(found.low, find(score, torch.tensor([[90, 10], [1, 9]]), samples=50, generator=seeded()).low)
    assert found.low.dtype == found.high.dtype == torch.float64


@each_finder
def test_level_narrows(find):
    widths = []
    for level in (0.5, 0.8, 0.95, 0.99):
        found = find(score, torch.tensor([[50, 9], [3, 8]]), samples=4000, level=level, generator=seeded())
        assert found.level == level
        widths.append(float(found.high - found.low))
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


def test_limits_of_a_linear_measure_are_numpys_quantiles():
    draws = posterior(
        balanced_accuracy, torch.tensor([[50, 9], [3, 8]]), samples=777, level=0.9, generator=seeded(), draws=True
    )
    assert [float(draws.low), float(draws.high)] == pytest.approx(
        np.quantile(draws.draws.numpy(), [0.05, 0.95]).tolist()
    )


def test_draws_without_a_value_leave_no_limits():
    # resamples without positives have no recall: they must not pass for the highest
    found = bootstrap(
        lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1), torch.tensor([[20, 0], [1, 1]]), generator=seeded()
    )
    assert bool(found.low.isnan())
    assert bool(found.high.isnan())
    assert float(found.estimate) == 0.5


# --- comparisons ----------------------------------------------------------------------------------------------------

A, B = [[90, 10], [2, 18]], [[95, 5], [8, 12]]


def test_compare_against_simulation():
    found = compare(balanced_accuracy, torch.tensor(A), torch.tensor(B), samples=100_000, generator=seeded())
    rng = np.random.default_rng(0)
    simulated = sum(
        sign * law.rvs(200_000, random_state=rng) / 2
        for sign, matrix in ((1, A), (-1, B))
        for law in betas(matrix, 0.5)
    )
    assert float(found.difference.estimate) == pytest.approx((0.9 + 0.9 - 0.95 - 0.6) / 2)
    expected = np.quantile(simulated, [0.025, 0.975])
    assert [float(found.difference.low), float(found.difference.high)] == pytest.approx(expected.tolist(), abs=0.004)
    assert float(found.probability) == pytest.approx((simulated > 0).mean(), abs=0.004)
    assert float(found.probability) > 0.9


def test_compare_with_itself_and_the_other_way_round():
    a, b = torch.tensor(A), torch.tensor(B)
    assert float(compare(balanced_accuracy, a, a, generator=seeded()).probability) == pytest.approx(0.5, abs=0.025)
    there, back = (compare(balanced_accuracy, *pair, generator=seeded()) for pair in ((a, b), (b, a)))
    assert float(there.probability + back.probability) == pytest.approx(1, abs=0.02)
    assert float(there.difference.low) == pytest.approx(-float(back.difference.high), abs=0.015)


def test_direction_is_mirrored():
    a, b = torch.tensor(A), torch.tensor(B)
    up = compare(balanced_accuracy, a, b, generator=seeded())
    down = compare(balanced_accuracy, a, b, higher_is_better=False, generator=seeded())
    assert float(up.probability + down.probability) == pytest.approx(1)
    assert torch.equal(up.difference.draws, down.difference.draws)
    target = torch.tensor([0] * 40 + [1] * 20)
    preds_a, preds_b = target.clone(), target.clone()
    preds_a[55:], preds_b[:5] = 0, 1
    pair = [
        paired_compare(balanced_accuracy, preds_a, preds_b, target, 2, higher_is_better=way, generator=seeded())
        for way in (True, False)
    ]
    assert float(pair[0].probability + pair[1].probability) == pytest.approx(1)


def test_equal_predictions_are_no_proof_of_equal_models():
    target = torch.tensor([0] * 12 + [1] * 4)
    same = target.clone()
    same[::5] = 1
    found = paired_compare(balanced_accuracy, same, same, target, 2, samples=20_000, generator=seeded())
    assert float(found.probability) == pytest.approx(0.5, abs=0.02)
    assert float(found.difference.estimate) == 0
    assert -0.2 < float(found.difference.low) < -0.005
    assert 0.005 < float(found.difference.high) < 0.2


def test_ties_count_one_half():
    a = torch.tensor([[[3, 1], [1, 3]]])
    found = compare(lambda c: (c > -1).double().sum((-1, -2)), a, a, samples=50)
    assert float(found.probability) == 0.5


def test_compare_is_batched():
    found = compare(balanced_accuracy, torch.tensor([A, B]), torch.tensor([B, A]), samples=4000, generator=seeded())
    assert found.probability.shape == found.difference.low.shape == (2,)
    assert float(found.probability.sum()) == pytest.approx(1, abs=0.04)


def test_compare_of_several_matrices_and_of_each_class():
    a, b = torch.tensor([A, B]), torch.tensor([B, A])
    found = compare(lambda c: score(c).mean(-1), a, b, samples=4000, generator=seeded(), event_dims=3)
    assert found.probability.shape == ()
    assert float(found.probability) == pytest.approx(0.5, abs=0.04)
    each = compare(lambda c: imbtorch.recall(c, "none"), a, b, samples=50)
    assert each.probability.shape == each.difference.low.shape == (2, 2)


def labels(size=3):
    """Targets and two predictions that often err on the same samples."""
    rng = np.random.default_rng(5)
    target = rng.choice(size, 90, p=[[1.0], [0.75, 0.25], [0.6, 0.25, 0.15]][size - 1])
    shared = rng.random(90) < 0.3
    wrong = (target + rng.integers(1, size, 90)) % size
    first, second = np.where(shared, wrong, target), np.where(shared, wrong, target)
    first[::29], second[::13] = 0, 1
    return first, second, target


def outcomes_of_pairs(a, b, target, kind):
    """How often both models, either, or none are right on the samples of a class."""
    right_a, right_b = (a == target)[target == kind], (b == target)[target == kind]
    pairs = itertools.product((True, False), repeat=2)
    return np.array([((right_a == x) & (right_b == y)).sum() for x, y in pairs])


@pytest.mark.parametrize("size", [2, 3])
def test_paired_compare_against_dirichlet_distributions_of_outcomes(size):
    a, b, target = labels(size)
    found = paired_compare(
        balanced_accuracy,
        *(torch.from_numpy(each) for each in (a, b, target)),
        size,
        samples=40_000,
        generator=seeded(),
    )
    rng = np.random.default_rng(1)
    simulated, estimate = 0.0, 0.0
    for kind in range(size):
        times = outcomes_of_pairs(a, b, target, kind)
        share = rng.dirichlet(times + np.array([0.25, 0.5, 0.5, 0.25]), 40_000)
        simulated = simulated + (share[:, 1] - share[:, 2]) / size
        estimate += (times[1] - times[2]) / times.sum() / size
    assert float(found.difference.estimate) == pytest.approx(estimate)
    assert apart(found.difference.draws, simulated) < 2
    expected = np.quantile(simulated, [0.025, 0.975])
    assert [float(found.difference.low), float(found.difference.high)] == pytest.approx(
        expected.tolist(), abs=0.1 * simulated.std()
    )
    assert float(found.probability) == pytest.approx((simulated > 0).mean(), abs=0.015)


def test_paired_draws_have_the_cells_and_totals_that_the_outcomes_say():
    a, b, target = labels(3)
    seen = []

    def measure(c):
        seen.append(c)
        return balanced_accuracy(c)

    inputs = [torch.from_numpy(each) for each in (a, b, target)]
    paired_compare(measure, *inputs, 3, samples=20_000, generator=seeded(), totals="fixed")
    totals = torch.bincount(inputs[2], minlength=3).double()
    for each, preds in zip(seen[-2:], (a, b), strict=True):
        torch.testing.assert_close(each.sum(-1), totals.expand(len(each), 3))
        counted = imbtorch.confusion_matrix(torch.from_numpy(preds), inputs[2], "multiclass", num_classes=3)
        hits = counted.diagonal()  # three quarters of a sample of prior on the right cell, as many on the wrong ones
        for index in range(3):
            law = stats.beta(float(hits[index]) + 0.75, float(totals[index] - hits[index]) + 0.75)
            assert distance(each[:, index, index] / totals[index], law.cdf) < 2
    seen.clear()
    paired_compare(measure, *inputs, 3, samples=20_000, generator=seeded())
    drawn = seen[-1].sum(-1)
    torch.testing.assert_close(seen[-2].sum(-1), drawn)  # both models saw the same samples
    assert distance(drawn[:, 2] / 90, stats.beta(float(totals[2]) + 0.5, float(90 - totals[2]) + 1.0).cdf) < 2


def test_paired_compare_says_what_to_make_of_arrays():
    labels = torch.tensor([0, 1])
    with pytest.raises(TypeError, match=r"preds_b must be a torch.Tensor, got ndarray; use torch.as_tensor\(preds_b\)"):
        paired_compare(balanced_accuracy, labels, labels.numpy(), labels, 2)


def test_paired_compare_of_one_class():
    target = torch.zeros(6, dtype=torch.long)
    found = paired_compare(imbtorch.accuracy, target, target, target, 1, samples=20)
    assert float(found.difference.low) == float(found.difference.high) == 0
    assert float(found.probability) == 0.5


def test_pairs_are_narrower_than_independent_test_sets_where_errors_coincide():
    a, b, target = (torch.from_numpy(each) for each in labels())
    paired = paired_compare(balanced_accuracy, a, b, target, 3, generator=seeded()).difference
    counts = [imbtorch.confusion_matrix(each, target, "multiclass", num_classes=3) for each in (a, b)]
    apart_ = compare(balanced_accuracy, *counts, generator=seeded()).difference
    torch.testing.assert_close(paired.estimate, apart_.estimate)
    assert float(paired.high - paired.low) < 0.7 * float(apart_.high - apart_.low)


def test_comparisons_reproduce_and_chunk(monkeypatch):
    a, b, target = (torch.from_numpy(each) for each in labels())

    def once():
        return paired_compare(balanced_accuracy, a, b, target, 3, samples=400, generator=seeded())

    first = once()
    assert torch.equal(first.difference.draws, once().difference.draws)
    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", 50)
    assert once().difference.draws.shape == (400,)
    assert apart(once().difference.draws, first.difference.draws) < 2


# --- coverage ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coverage():
    path = Path(__file__).parents[2] / "examples" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_example", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def share_covered(found, truth):
    return ((found.low <= truth + 1e-9) & (truth - 1e-9 <= found.high)).double().mean(0)


def test_precision_is_covered_where_totals_are_random(coverage):
    """Fixed totals take the precision of a rare class for far surer than it is."""
    torch.manual_seed(0)
    truth = coverage.expected(torch.tensor([1000.0, 10]).double(), torch.tensor([0.5, 0.9]).double(), False)
    counts = coverage.test_sets(truth, 400, "drawn")

    def precision(c):
        return imbtorch.precision(c, "none")[..., [1]]

    covered = {
        totals: float(share_covered(posterior(precision, counts, samples=500, totals=totals), precision(truth)))
        for totals in ("drawn", "fixed")
    }
    assert covered["drawn"] > 0.92
    assert covered["fixed"] < 0.6


def test_rare_classes_among_fifty_are_covered(coverage):
    """A recall of .9 from three samples: with the prior of averages it would lie near the mean of the others."""
    torch.manual_seed(0)
    totals = torch.tensor([3, 5, 10, *[40] * 47]).double()
    recalls = torch.tensor([0.9, 0.9, 0.9, *[0.5] * 47]).double()
    truth = coverage.expected(totals, recalls, True)
    counts = coverage.test_sets(truth, 100, "fixed")
    measures = {"each": lambda c: imbtorch.recall(c, "none"), "gmean": geometric_mean, "iam": imbalance_accuracy}
    found = posterior(measures, counts, samples=200)
    assert float(share_covered(found["each"], imbtorch.recall(truth, "none"))[:3].min()) > 0.9
    for name in ("gmean", "iam"):
        assert float(share_covered(found[name], measures[name](truth))) > 0.9, name


def test_clusters_are_covered_where_samples_resemble_each_other(coverage):
    torch.manual_seed(0)
    counts = coverage.clusters_of(coverage.Clustered(20, 50, 0.2), 400)
    truth = balanced_accuracy(torch.tensor([[0.72, 0.08], [0.06, 0.14]]))
    by_cluster = bootstrap(balanced_accuracy, counts, 500, clusters=True)
    assert float(share_covered(by_cluster, truth)) > 0.91
    assert float(share_covered(posterior(balanced_accuracy, counts.sum(1), samples=500), truth)) < 0.8


def test_differences_of_pairs_are_covered(coverage):
    torch.manual_seed(0)
    held, recalls = 0, torch.tensor([[0.9, 0.8], [0.9, 0.7]]).double()
    for _ in range(400):
        a, b, target = coverage.joint_counts(recalls, torch.tensor([200, 10]), 0.7)
        found = paired_compare(balanced_accuracy, a, b, target, 2, samples=400).difference
        held += float(found.low) <= 0.05 <= float(found.high)
    assert held >= 0.92 * 400


def test_cells_of_simulated_sets_are_as_expected(coverage):
    torch.manual_seed(0)
    truth = coverage.expected(torch.tensor([100.0, 20, 5]).double(), torch.tensor([0.9, 0.6, 0.5]).double(), True)
    assert truth.sum(-1).tolist() == pytest.approx([100, 20, 5])
    assert truth[0].tolist() == pytest.approx([90, 10 * 0.95, 10 * 0.05])
    assert truth[1].tolist() == pytest.approx([8 * 0.35, 12, 8 * 0.65])
    fixed = coverage.test_sets(truth, 4000, "fixed")
    assert bool((fixed.sum(-1) == torch.tensor([100, 20, 5])).all())
    np.testing.assert_allclose(fixed.mean(0), truth, atol=0.25)
    drawn = coverage.test_sets(truth, 4000, "drawn")
    assert bool((drawn.sum((-1, -2)) == 125).all())
    assert float(drawn[:, 1].sum(-1).var()) == pytest.approx(125 * 0.16 * 0.84, rel=0.1)


def test_peers_are_those_of_scipy(coverage):
    counts = torch.tensor([[[40, 6], [3, 11]]])
    torch.manual_seed(0)
    low, high = coverage.bca(counts, {"ba": balanced_accuracy}, "drawn", 20_000)["ba"]
    cells = np.repeat(np.arange(4), [40, 6, 3, 11])

    def value(samples, axis=-1):
        tn, fp, fn, tp = ((samples == k).sum(axis) for k in range(4))
        return (tn / (tn + fp) + tp / (tp + fn)) / 2

    theirs = stats.bootstrap(
        (cells,), value, n_resamples=20_000, vectorized=True, method="BCa", rng=np.random.default_rng(0), batch=1000
    ).confidence_interval
    assert [float(low), float(high)] == pytest.approx([theirs.low, theirs.high], abs=0.01)
    limits = coverage.classical(counts, {}, "drawn")["recall of a class"]
    for index, (hits, total) in enumerate([(40, 46), (11, 14)]):
        wilson = stats.binomtest(hits, total).proportion_ci(method="wilson")
        assert [float(end[0, index]) for end in limits] == pytest.approx([wilson.low, wilson.high])


# --- errors ---------------------------------------------------------------------------------------------------------

COUNTS = torch.tensor(A)
LABELS = torch.tensor([0, 1, 1])


@each_finder
@pytest.mark.parametrize("level", [0, 1, 95, -0.1, math.nan])
def test_levels_outside_are_refused(find, level):
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        find(score, COUNTS, level=level)


@each_finder
@pytest.mark.parametrize("samples", [-1, 0, 1])
def test_too_few_samples_are_refused(find, samples):
    with pytest.raises(ValueError, match="samples must be at least 2"):
        find(score, COUNTS, samples=samples)


@each_finder
def test_values_that_do_not_fit_the_counts_are_refused(find):
    with pytest.raises(ValueError, match=r"measure must return one value for each matrix, \[5\].*got \[\]"):
        find(lambda c: c.sum(), COUNTS, samples=5)
    with pytest.raises(ValueError, match=r"measure must return one value.*got \[15\]"):
        find(lambda c: score(c).flatten(), COUNTS.expand(3, 2, 2), samples=5)
    with pytest.raises(ValueError, match=r"measure must return one value.*float"):
        find(lambda c: 0.5, COUNTS, samples=5)


@each_finder
@pytest.mark.parametrize(("event_dims", "allowed"), [(1, "2..3"), (4, "2..3")])
def test_event_dims_must_fit_the_counts(find, event_dims, allowed):
    with pytest.raises(ValueError, match=rf"event_dims must lie in {allowed}.*got {event_dims}"):
        find(score, COUNTS.expand(3, 2, 2), samples=5, event_dims=event_dims)


@each_finder
def test_counts_must_be_square(find):
    with pytest.raises(ValueError, match="counts"):
        find(score, torch.ones(2, 3), samples=5)


@pytest.mark.parametrize(
    "prior",
    ["flat", torch.ones(3, 3), torch.zeros(2, 2), torch.tensor([[1.0, -1], [1, 1]]), torch.full((2, 2), math.nan)],
)
def test_priors_that_do_not_fit_are_refused(prior):
    with pytest.raises(ValueError, match="prior must be"):
        posterior(score, COUNTS, prior, 5)
    with pytest.raises(ValueError, match="prior must be"):
        compare(score, COUNTS, COUNTS, prior=prior, samples=5)


@pytest.mark.parametrize("stratified", [True, False])
def test_bootstrap_refuses_what_cannot_be_resampled(stratified):
    with pytest.raises(ValueError, match=r"counts must be whole to be resampled, got 0\.9; use posterior"):
        bootstrap(score, torch.tensor([[0.9, 0.1], [0.2, 0.8]]), 5, stratified=stratified)


@each_finder
@pytest.mark.parametrize(("wrong", "shown"), [(math.nan, "nan"), (-1.0, "-1"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_counts_that_are_none_are_refused(find, wrong, shown):
    counts = torch.tensor([[5.0, 1.0], [2.0, wrong]])
    with pytest.raises(ValueError, match=f"counts must be finite and not negative, got {shown}$"):
        find(score, counts, samples=5)
    for pair in ((counts, COUNTS), (COUNTS, counts)):
        with pytest.raises(ValueError, match=f"counts must be finite and not negative, got {shown}$"):
            compare(score, *pair, samples=5)


def test_exact_posterior_refuses():
    with pytest.raises(ValueError, match="prior must be one of"):
        balanced_accuracy_posterior(COUNTS, "flat")
    for counts in (torch.zeros(2, 2), torch.ones(3, 2, 2)):
        with pytest.raises(ValueError, match="counts must be one matrix"):
            balanced_accuracy_posterior(counts)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q must lie in"):
            balanced_accuracy_posterior(COUNTS).quantile(q)


@pytest.mark.parametrize(
    ("name", "wrong", "match"),
    [
        ("preds_a", torch.tensor([0, 1]), "preds_a must hold class indices"),
        ("preds_b", torch.tensor([0.0, 1.0, 1.0]), "preds_b must hold class indices"),
        ("preds_b", torch.tensor([0, 1, 2]), r"preds_b holds classes outside 0\.\.1"),
        ("target", torch.tensor([0, -1, 1]), r"target holds classes outside 0\.\.1"),
    ],
)
def test_paired_compare_refuses(name, wrong, match):
    arguments = {"preds_a": LABELS, "preds_b": LABELS, "target": LABELS, "num_classes": 2} | {name: wrong}
    with pytest.raises(ValueError, match=match):
        paired_compare(balanced_accuracy, **arguments)


def test_comparisons_check_level_and_samples():
    with pytest.raises(ValueError, match="level"):
        compare(score, COUNTS, COUNTS, level=95)
    with pytest.raises(ValueError, match="level"):
        paired_compare(score, LABELS, LABELS, LABELS, 2, level=95)
    with pytest.raises(ValueError, match="samples"):
        paired_compare(score, LABELS, LABELS, LABELS, 2, samples=1)


# --- printing -------------------------------------------------------------------------------------------------------


def test_printing():
    one = Interval(torch.tensor(0.5), torch.tensor(-0.25), torch.tensor(0.75), 0.95, "posterior")
    assert str(one) == "0.500 [-0.250, 0.750] (95 % posterior)"
    two = Interval(*torch.tensor([[0.5, 1.0], [0.25, 0.5], [0.75, 1.0]]), 0.9, "bootstrap")
    assert str(two).splitlines() == ["0.500 [0.250, 0.750] (90 % bootstrap)", "1.000 [0.500, 1.000] (90 % bootstrap)"]
    assert "draws" not in repr(one)
    found = Comparison(two, torch.tensor([0.25, 1.0]))
    assert str(found).splitlines() == [
        "a - b: 0.500 [0.250, 0.750] (90 % bootstrap); a is better with probability 0.250",
        "a - b: 1.000 [0.500, 1.000] (90 % bootstrap); a is better with probability 1.000",
    ]


# --- of metrics and reports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["posterior", "bootstrap"])
def test_a_class_that_never_came_stays_away(method):
    """Its recall would be 0 in every draw, and drag means below what was counted."""
    counts = torch.tensor([[40, 10, 0], [5, 45, 0], [0, 0, 0]])
    interval = getattr(imbtorch.analysis, method)
    padded = interval(imbtorch.imbalance_accuracy, counts, generator=torch.Generator().manual_seed(0))
    plain = interval(imbtorch.imbalance_accuracy, counts[:2, :2], generator=torch.Generator().manual_seed(1))
    for name in ("estimate", "low", "high"):
        assert getattr(padded, name) == pytest.approx(getattr(plain, name).item(), abs=0.02)


@pytest.mark.parametrize("method", ["posterior", "bootstrap"])
@pytest.mark.parametrize("average", ["auto", "none"])
@pytest.mark.parametrize(
    ("task", "size", "shape"),
    [("binary", {}, ()), ("multiclass", {"num_classes": 3}, ()), ("multilabel", {"num_labels": 2}, (2,))],
)
def test_interval_of_a_metric(task, size, shape, average, method):
    generator = torch.Generator().manual_seed(0)
    metric = imbtorch.Recall(task, average=average, **size)
    high = 3 if task == "multiclass" else 2
    metric.update(*(torch.randint(high, (80, *shape), generator=generator) for _ in range(2)))
    found = metric.interval(method, samples=2000, generator=generator)
    assert found.estimate.shape == metric.compute().shape
    assert found.estimate.tolist() == pytest.approx(metric.compute().tolist(), abs=1e-6)
    assert bool((found.low < found.estimate).all())
    assert bool((found.estimate < found.high).all())


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_intervals_of_recalls_rest_on_half_a_sample_of_prior(task):
    """So few samples that a prior of 1 / K on either side would show, for each class or label."""
    hits, totals = [2, 1, 3, 2], [3, 4, 5, 3]
    if task == "multiclass":
        target = torch.arange(4).repeat_interleave(torch.tensor(totals))
        missed = torch.cat([torch.arange(n) >= h for h, n in zip(hits, totals, strict=True)])
        preds = (target + missed) % 4
        metric = imbtorch.Recall("multiclass", 4, average="none")
    else:
        target = torch.stack([torch.arange(5) < n for n in totals], 1)
        preds = torch.stack([torch.arange(5) < h for h in hits], 1)
        metric = imbtorch.Recall("multilabel", num_labels=4, average="none")
    metric.update(preds, target)
    assert metric.compute().tolist() == pytest.approx([h / n for h, n in zip(hits, totals, strict=True)])
    found = metric.interval(samples=100_000, generator=seeded())
    for index, (hit, total) in enumerate(zip(hits, totals, strict=True)):
        right, other = (stats.beta(hit + each, total - hit + each).ppf([0.025, 0.975]) for each in (1 / 2, 1 / 4))
        assert [found.low[index].item(), found.high[index].item()] == pytest.approx(right.tolist(), abs=0.004)
        assert abs(right - other).max() > 0.01  # which would be seen


def test_interval_needs_the_matrix():
    with pytest.raises(ValueError, match="state='matrix'"):
        imbtorch.Recall("multiclass", num_classes=3, state="margins").interval()
    with pytest.raises(ValueError, match="method must be one of 'posterior', 'bootstrap'"):
        imbtorch.Recall("binary").interval("jackknife")


def test_a_report_with_intervals():
    report = imbtorch.ImbalanceReport("binary", intervals=True, prefix="val_", per_class=())
    preds, target = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1, 1, 0] * 8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0] * 8)
    report.update(preds, target)
    values = report.compute()
    assert len(values) == 3 * 10
    for name in imbtorch.ImbalanceReport.default_measures("binary"):
        low, value, high = (values[f"val_{name}{end}"].item() for end in ("_low", "", "_high"))
        assert low < value < high, name
        assert report[f"{name}_low"].compute().item() == low  # the seed is fixed
        assert report[f"{name}_low"].higher_is_better == report[name].higher_is_better
    (tnr_hits, tnr_all), (tpr_hits, tpr_all) = (32, 40), (32, 40)
    rates = (
        stats.beta(hits + 0.5, total - hits + 0.5).rvs(200_000, random_state=seed)
        for seed, (hits, total) in enumerate(((tnr_hits, tnr_all), (tpr_hits, tpr_all)))
    )
    expected = np.quantile(sum(rates) / 2, [0.025, 0.975])
    assert [values["val_balanced_accuracy_low"].item(), values["val_balanced_accuracy_high"].item()] == pytest.approx(
        expected.tolist(), abs=0.01
    )
    assert set(report(preds, target)) == {f"val_{name}" for name in imbtorch.ImbalanceReport.default_measures("binary")}
    with pytest.raises(ValueError, match="intervals draws whole matrices"):
        imbtorch.ImbalanceReport("multiclass", num_classes=3, intervals=True, state="margins")
    with pytest.raises(ValueError, match="measures already holds 'a_low'"):
        imbtorch.ImbalanceReport("binary", intervals=True, measures={"a": imbtorch.Accuracy, "a_low": imbtorch.Recall})


def test_a_report_of_labels_with_intervals():
    report = imbtorch.ImbalanceReport("multilabel", num_labels=2, intervals=True, per_class=())
    preds = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0], [1, 1]] * 8)
    target = torch.tensor([[0, 0], [1, 1], [1, 1], [1, 0], [0, 0]] * 8)
    report.update(preds, target)
    values = report.compute()
    rates = [(16, 24), (16, 16)]  # of 24 and 16 positives
    draws = [stats.beta(h + 0.5, n - h + 0.5).rvs(200_000, random_state=n) for h, n in rates]
    low = np.quantile(sum(draws) / 2, 0.025)
    high = np.quantile((draws[0] + 1) / 2, 0.975)  # all positives of the second label are found
    assert values["recall"].item() == pytest.approx((16 / 24 + 1) / 2)
    assert [values["recall_low"].item(), values["recall_high"].item()] == pytest.approx([low, high], abs=0.01)


def test_limits_of_a_ratio_may_be_infinite():
    generator = torch.Generator().manual_seed(0)
    found = posterior(imbtorch.likelihood_ratio, torch.tensor([[90, 0], [3, 7]]), generator=generator)
    hits, alarms = stats.beta(7.5, 3.5), stats.beta(0.5, 90.5)
    ratios = hits.rvs(100_000, random_state=0) / alarms.rvs(100_000, random_state=1)
    assert 5 < found.low < 1.05 * np.quantile(ratios, 0.025)
    assert found.high == math.inf
    found = bootstrap(imbtorch.likelihood_ratio, torch.tensor([[90, 2], [3, 7]]), generator=generator)
    assert 5 < found.low < found.estimate < found.high == math.inf
    clusters = torch.tensor([[[9, 0], [1, 2]]]).expand(8, 2, 2)
    found = bootstrap(imbtorch.likelihood_ratio, clusters, 2000, generator=generator, clusters=True)
    assert 0.3 < found.low < found.high == math.inf  # every resample is infinite, but eight clusters prove little


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_default_dtype_rounds_no_distribution(dtype):
    counts = torch.tensor([[90_000, 10_000], [30, 70]])
    torch.set_default_dtype(dtype)
    try:
        found = balanced_accuracy_posterior(counts)
    finally:
        torch.set_default_dtype(torch.float32)
    grid = np.linspace(0, 1, 40_001)
    rare = stats.beta(71, 31).sf(1.6 - grid)  # of which common recall is ``grid``
    above = np.sum((rare[1:] + rare[:-1]) / 2 * np.diff(stats.beta(90_001, 10_001).cdf(grid)))
    assert found.probability_above(0.8) == pytest.approx(above, abs=1e-3)


def test_many_samples_take_no_time():
    found = balanced_accuracy_posterior(torch.tensor([[9 * 10**10, 10**10], [1, 9]]))
    assert found.probability_above(0.8) == pytest.approx(stats.beta(10, 2).sf(0.7), abs=1e-3)
