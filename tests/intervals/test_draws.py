"""Random matrices against SciPy's distributions and numerical integration."""

import itertools
import math
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from distributions import CASES, WEIGHT, betas, distance, many, mean_cdf, rates, seeded, whole
from rooms import draws as drawing
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

import imbtorch
from imbtorch import balanced_accuracy, imbalance_accuracy
from imbtorch.statistics import posterior

# --- posterior ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_draws_follow_numerical_integration(matrix, prior):
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 40_000, generator=seeded(), keep_draws=True)
    assert distance(found.draws, mean_cdf(matrix, WEIGHT[prior])) < 2
    first, second = betas(matrix, WEIGHT[prior])
    assert float(found.draws.mean()) == pytest.approx((first.mean() + second.mean()) / 2, abs=0.003)


LARGE = [
    ([[10**6, 5], [2, 10**4]], "uniform"),
    ([[10**9, 5], [1, 1]], "jeffreys"),
    ([[10**6, 0], [0, 10**5]], "uniform"),
]


def integrated_cdf(matrix, prior):
    """CDF of the mean of two recalls by quadrature over the quantiles of the narrower one."""
    narrow, other = sorted(betas(matrix, WEIGHT[prior]), key=lambda each: each.std())
    u = (np.arange(20_000) + 0.5) / 20_000
    nodes = narrow.ppf(u)
    return lambda z: other.cdf(2 * z - nodes).mean()


@pytest.mark.parametrize(("matrix", "prior"), LARGE)
def test_draws_of_many_samples_follow_numerical_integration(matrix, prior):
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 20_000, generator=seeded(1), keep_draws=True)
    assert distance(found.draws, integrated_cdf(matrix, prior)) < 2


def test_draws_of_one_and_of_three_classes():
    one = posterior(balanced_accuracy, torch.tensor([[7, 3], [0, 0]]), "uniform", generator=seeded(), keep_draws=True)
    assert distance(one.draws, stats.beta(8, 4).cdf) < 2
    counts = torch.tensor([[7, 1, 2], [0, 5, 0], [9, 0, 0]])
    share = (0.7 + 1 + 0 + 0.5) / 4
    means = {
        "jeffreys": (7.5 / 11 + 5.5 / 6 + 0.5 / 10) / 3,
        "pooled": ((7 + share) / 11 + (5 + share) / 6 + share / 10) / 3,
    }
    for prior, mean in means.items():
        drawn = posterior(balanced_accuracy, counts, prior, generator=seeded(), keep_draws=True).draws
        assert float(drawn.mean()) == pytest.approx(mean, abs=5 * float(drawn.std()) / 100)


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("prior", WEIGHT)
def test_a_recall_is_drawn_from_its_beta_distribution(size, prior):
    weight = WEIGHT[prior]
    counts = torch.arange(size**2, dtype=torch.float64).reshape(size, size) % 7 + torch.eye(size, dtype=torch.float64)
    recall = posterior(
        lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1), counts, prior, 40_000, generator=seeded(), keep_draws=True
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


@pytest.mark.default_cases("3")
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_value_is_drawn_with_a_prior_that_keeps_the_mean_recall(classes):
    counts = torch.zeros(10, 10)  # the other classes have no targets
    counts[:classes, :classes] = (torch.arange(classes**2) % 7 + 3).reshape(classes, classes) + 20 * torch.eye(classes)
    right, wrong = pooled_weights(counts)
    hits, total = float(counts[1, 1]), float(counts[1].sum())
    expected = stats.beta(hits + right, total - hits + wrong)
    for prior in ("auto", "pooled"):
        found = posterior(lambda c: rates(c)[..., 1], counts, prior, 40_000, generator=seeded(), keep_draws=True)
        assert distance(found.draws, expected.cdf) < 2


def test_values_of_classes_are_drawn_with_half_and_half():
    counts = torch.tensor([[40, 5, 2], [3, 20, 4], [1, 0, 3]])
    for prior in ("auto", "jeffreys"):
        found = posterior(rates, counts, prior, 40_000, generator=seeded(), keep_draws=True)
        for index, (hits, total) in enumerate([(40, 47), (20, 27), (3, 4)]):
            assert distance(found.draws[:, index], stats.beta(hits + 0.5, total - hits + 0.5).cdf) < 2


def test_empty_cells_get_the_prior_of_their_row_one_at_a_time():
    counts = torch.tensor([[5, 2, 0, 0], [1, 4, 3, 1], [0, 0, 6, 0], [0, 1, 0, 2]])

    def cells(c):
        return c[..., 0, :] / c[..., 0, :].sum(-1, keepdim=True)

    drawn = posterior(cells, counts, "uniform", 40_000, generator=seeded(), keep_draws=True).draws
    assert distance(drawn[:, 0], stats.beta(6, 3).cdf) < 2
    assert distance(drawn[:, 1], stats.beta(2, 7).cdf) < 2  # counted: the prior does not fall there
    assert bool(((drawn[:, 2] > 0) != (drawn[:, 3] > 0)).all())
    assert float((drawn[:, 2] > 0).double().mean()) == pytest.approx(0.5, abs=0.01)
    hit = drawn[:, 2][drawn[:, 2] > 0]
    assert distance(hit, stats.beta(1, 8).cdf) < 2


def test_a_row_without_empty_cells_gets_its_prior_on_any_wrong_one():
    counts = torch.tensor([[5, 2, 3], [1, 4, 3], [2, 1, 6]])
    drawn = posterior(rates, counts, "uniform", 40_000, generator=seeded(), keep_draws=True).draws
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
            keep_draws=True,
        )
        a = float(prior[row, column] + counts[row, column])
        assert distance(found.draws, stats.beta(a, float(prior[row].sum() + counts[row].sum()) - a).cdf) < 2


def test_fixed_totals_stay_and_measures_are_called_with_all_draws():
    seen = []

    def measure(counts):
        correct = counts.diagonal(dim1=-2, dim2=-1)  # margins have none
        seen.append(counts)
        return correct.sum(-1)

    counts = torch.tensor([[[90, 10, 0], [1, 9, 2], [0, 0, 0]], [[3, 0, 0], [0, 5, 0], [0, 9, 0]]])
    posterior(measure, counts, draws=50, generator=seeded(), totals="fixed")
    assert [each.shape[0] for each in seen if each.ndim == 4] == [50, 50, 50]  # as drawn, and at either limit
    for each in seen:
        torch.testing.assert_close(each.sum(-1), counts.sum(-1).double().expand(each.shape[:-1]))
        assert bool((each >= 0).all())


def test_drawn_totals_follow_their_dirichlet_distribution():
    counts = torch.tensor([[40, 5, 0, 2], [3, 20, 0, 4], [0, 0, 0, 0], [1, 2, 0, 3]])
    drawn = posterior(lambda c: c.sum(-1), counts, draws=40_000, generator=seeded(), keep_draws=True).draws
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
            draws=40_000,
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
    found = posterior(measure, counts, "uniform", 40_000, generator=seeded(), keep_draws=True)
    assert all(bool((each == 0).all()) for each in seen)
    assert distance(found.draws, mean_cdf([[40, 10], [2, 6]], 1.0)) < 2


# --- many classes -----------------------------------------------------------------------------------------------------


def test_margins_of_sparse_draws_are_those_of_matrices(monkeypatch):
    monkeypatch.setattr(drawing, "SERIAL", drawing.CELLS_AT_ONCE)  # one chunk of draws for both
    counts = torch.stack([many(seed=0), many(seed=1)])
    counts[0, 3] = 0  # a class without targets
    for measure in (imbalance_accuracy, imbtorch.f_score, imbtorch.matthews_corrcoef):
        by_margins = posterior(measure, counts, draws=300, generator=seeded(), keep_draws=True)
        by_matrices = posterior(whole(measure), counts, draws=300, generator=seeded(), keep_draws=True)
        torch.testing.assert_close(by_margins.draws, by_matrices.draws)
        for name in ("estimate", "low", "high"):
            torch.testing.assert_close(getattr(by_margins, name), getattr(by_matrices, name))


def test_only_what_takes_margins_is_given_them(monkeypatch):
    monkeypatch.setattr(drawing, "SERIAL", drawing.CELLS_AT_ONCE)  # one chunk of draws for both
    seen = []

    class Own:
        needs_matrix = False

        def __call__(self, counts):
            seen.append(counts)
            return balanced_accuracy(counts)

    posterior({"own": lambda c: seen.append(c) or c.sum((-1, -2)), "ours": Own()}, many(), draws=20)
    assert {isinstance(each, imbtorch.Margins) for each in seen} == {True, False}
    for measure in (imbtorch.relative_classifier_information, imbtorch.confusion_entropy):  # raise for margins
        assert bool(posterior(measure, many(), draws=20).low < posterior(measure, many(), draws=20).high)
    found = posterior(partial(imbtorch.f_score, beta=2.0), many(), draws=400, generator=seeded())
    same = posterior(whole(partial(imbtorch.f_score, beta=2.0)), many(), draws=400, generator=seeded())
    torch.testing.assert_close(found.low, same.low)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0, 3.0, 4.0, 2.5])
def test_gammas_follow_their_distribution(alpha):
    drawn = drawing.gammas(torch.tensor([alpha, 0.0, 1.0], dtype=torch.float64), 20_000, seeded())
    assert distance(drawn[0], stats.gamma(alpha).cdf) < 2
    assert bool((drawn[1] == 0).all())
    assert distance(drawn[2], stats.expon.cdf) < 2


def most_memory(call):
    """Bytes that a call takes at its peak, the less of two tries, since what else the process does can only add.

    What the process took before plays no part, as it does in getrusage.
    """
    return min(peak_of(call) for _ in range(2))


def peak_of(call):
    """Bytes by which the resident memory rises at its peak during a call."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("the peak of resident memory can be set back on Linux alone")
    reset.write_text("5", encoding="ascii")
    peaks = []
    for step in (lambda: None, call):
        step()
        peaks.append(
            1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))[1])
        )
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
        posterior({"iam": imbalance_accuracy, "ba": balanced_accuracy}, many(size), draws=4000, generator=seeded())
    assert sum(threaded.seen.values()) < 40, threaded.seen  # of all draws together; of each chunk there are hundreds


@pytest.mark.slow
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
        assert most_memory(lambda: found.append(posterior(measure, counts, draws=samples))) < 300e6  # noqa: B023
        assert bool(found[0].low < found[0].high)


# --- bootstrap ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [[[5, 0, 3, 12]], [[7, 2], [0, 4]], [[0, 0, 0, 9]]])
def test_moments_of_resamples(cells):
    weights = torch.tensor(cells).double()
    totals = weights.sum(-1).expand(40_000, len(cells))
    draws = drawing.multinomial(weights, totals, seeded()).numpy()
    assert (draws == draws.round()).all()
    assert (draws >= 0).all()
    for stratum, counts in enumerate(np.array(cells)):
        law = stats.multinomial(counts.sum(), counts / counts.sum())
        each = draws[:, stratum]
        assert (each.sum(-1) == counts.sum()).all()
        assert (each[:, counts == 0] == 0).all()
        np.testing.assert_allclose(each.mean(0), counts, atol=5 * math.sqrt(counts.max() / 40_000))
        np.testing.assert_allclose(np.cov(each.T), law.cov(), atol=0.15)


def test_shares_that_do_not_sum_to_one_exactly_lose_no_sample():
    shares = torch.tensor([[0.1] * 10 + [0.0], [0.7, 0.1, 0.2] + [0.0] * 8]).double()
    assert shares[0].cumsum(0)[-1] != 1
    totals = torch.tensor([[10_000_000.0, 3.0]]).double().expand(500, 2)
    draws = drawing.multinomial(shares, totals, seeded())
    assert torch.equal(draws.sum(-1), totals)
    assert draws[..., 10].sum() == 0
    assert draws[:, 1, 3:].sum() == 0
    assert draws[:, 0, :10].mean(0).tolist() == pytest.approx([1_000_000.0] * 10, abs=300)  # 7 standard errors


def beta_binomial_clusters(rng, sets, sizes, recall, rho):
    """Counts ``[sets, M, 2, 2]`` whose positives are right with a chance that varies from cluster to cluster."""
    chance = recall
    if rho:
        strength = (1 - rho) / rho
        chance = rng.beta(recall * strength, (1 - recall) * strength, (sets, len(sizes)))
    hits = rng.binomial(np.broadcast_to(sizes, (sets, len(sizes))), chance)
    counts = torch.zeros(*hits.shape, 2, 2, dtype=torch.float64)
    counts[..., 1, 1], counts[..., 1, 0] = torch.from_numpy(hits), torch.from_numpy(sizes - hits)
    return counts


@pytest.mark.parametrize("sizes", [np.full(2000, 20), np.r_[np.full(1900, 5), np.full(100, 100)]])
@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5])
def test_effective_samples_are_those_of_a_beta_binomial_distribution(sizes, rho):
    """The variance of a recall is r (1 - r) / n for n effective samples; of many clusters, n is nearly exact."""
    counts = beta_binomial_clusters(np.random.default_rng(0), 50, sizes, 0.7, rho)
    expected = sizes.sum() ** 2 / (sizes * (1 + (sizes - 1) * rho)).sum()
    found = drawing.effective_samples(counts, 2)[:, 1]
    assert float(found.mean()) == pytest.approx(expected, rel=0.2)
    assert bool((found <= sizes.sum()).all())


def test_classes_without_errors_or_in_one_cluster_are_worth_their_clusters():
    sizes = torch.zeros(3, 2, 2, dtype=torch.float64)
    sizes[:, 1, 1] = torch.tensor([8.0, 1, 1])  # no errors: 100 / 66 clusters of equal size
    assert drawing.effective_samples(sizes, 2).tolist() == pytest.approx([0, 100 / 66])
    alone = torch.zeros(3, 2, 2, dtype=torch.float64)
    alone[0, 1] = torch.tensor([3.0, 7])
    assert drawing.effective_samples(alone, 2).tolist() == pytest.approx([0, 1])
    whole = torch.tensor([[[4, 0], [0, 6]], [[4, 0], [6, 0]], [[0, 4], [0, 6]]])  # each all right or all wrong
    assert drawing.effective_samples(whole.double(), 2).tolist() == pytest.approx([3, 3])


@pytest.mark.parametrize("sizes", [np.full(30, 4), np.full(5000, 1), np.r_[np.full(300, 1), 50, 80]])
def test_buckets_estimate_the_effective_number_of_clusters(sizes):
    """The sum of squares is right on average, except that none is below that of clusters of one sample."""
    random, squares = np.random.default_rng(0), []
    for _ in range(400):
        buckets = torch.from_numpy(np.bincount(random.integers(64, size=len(sizes)), sizes, 64))
        found = float(drawing.effective_clusters(buckets, 0, 64))
        assert found >= float(drawing.effective_clusters(buckets, 0)) - 1e-9
        squares.append(sizes.sum() ** 2 / found)
    assert np.mean(squares) == pytest.approx((sizes**2).sum(), rel=0.09)
    assert float(drawing.effective_clusters(torch.from_numpy(sizes.astype(float)), 0)) == pytest.approx(
        sizes.sum() ** 2 / (sizes**2).sum()
    )
