"""Expected values come from SciPy's Beta distribution, numerical integration, enumeration and NumPy's generator."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from distributions import DEVICES, MATRICES, WEIGHT, A, apart, betas, mean_cdf, rates, score, seeded, whole
from rooms import HEAVY, largest_cluster, quantiles
from rooms import draws as drawing
from scipy import stats
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import balanced_accuracy, geometric_mean, imbalance_accuracy
from imbtorch.statistics import Comparison, Interval, beats_baseline, bootstrap, compare, over_runs, posterior

# --- posterior ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", WEIGHT)
def test_bounds_are_equal_tailed_where_both_classes_have_hits_and_errors(prior):
    cdf = mean_cdf(MATRICES["errors in both"], WEIGHT[prior])
    for level in (0.5, 0.9, 0.95):
        found = posterior(
            balanced_accuracy, torch.tensor(MATRICES["errors in both"]), prior, 100_000, level, generator=seeded(2)
        )
        assert cdf(float(found.low)) == pytest.approx((1 - level) / 2, abs=0.006)
        assert cdf(float(found.high)) == pytest.approx((1 + level) / 2, abs=0.006)


def test_no_counts_at_all_have_no_interval():
    found = posterior(balanced_accuracy, torch.zeros(2, 2), draws=20)
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
def test_upper_bound_is_that_with_the_recall_at_one(prior):
    matrix = MATRICES["no errors in one"]
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 100_000, generator=seeded())
    other, _ = betas(matrix, WEIGHT[prior])
    assert float(found.high) == pytest.approx((other.ppf(0.975) + 1) / 2, abs=1e-3)
    assert mean_cdf(matrix, WEIGHT[prior])(float(found.low)) == pytest.approx(0.025, abs=0.003)


@pytest.mark.parametrize("prior", WEIGHT)
def test_lower_bound_is_that_with_the_recall_at_zero(prior):
    matrix = MATRICES["no hits in one"]
    found = posterior(balanced_accuracy, torch.tensor(matrix), prior, 100_000, generator=seeded())
    other, _ = betas(matrix, WEIGHT[prior])
    assert float(found.low) == pytest.approx(other.ppf(0.025) / 2, abs=1e-3)
    assert mean_cdf(matrix, WEIGHT[prior])(float(found.high)) == pytest.approx(0.975, abs=0.003)


def test_bounds_hold_for_losses_as_well():
    found = posterior(lambda c: 1 - balanced_accuracy(c), torch.tensor(MATRICES["no errors"]), generator=seeded())
    assert float(found.low) == float(found.estimate) == 0


def test_class_without_errors_does_not_touch_its_neighbours_in_the_batch():
    both = torch.tensor([MATRICES["errors in both"], MATRICES["no errors in one"]])
    found = posterior(balanced_accuracy, both, draws=100_000, generator=seeded())
    assert mean_cdf(MATRICES["errors in both"], 0.5)(float(found.high[0])) == pytest.approx(0.975, abs=0.003)


@pytest.mark.parametrize("size", [10, 40])
def test_prior_does_not_pull_the_mean_of_many_classes_away(size):
    # one pseudo-count on either side of each recall would move the mean by several standard errors
    total = 10
    counts = torch.eye(size) * 9 + torch.eye(size).roll(1, 1)
    draws = posterior(balanced_accuracy, counts, draws=1000, generator=seeded(), keep_draws=True).draws
    error = math.sqrt(0.9 * 0.1 / total / size)
    assert float(draws.mean()) == pytest.approx(0.9, abs=0.5 * error)


# --- what widens bounds -----------------------------------------------------------------------------------------------

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
    for name, found in posterior(MULTICLASS, counts, draws=200, generator=seeded(), totals=totals).items():
        known = ~found.low.isnan()
        assert bool(known.any())
        assert bool(((found.low <= found.estimate) & (found.estimate <= found.high))[known].all()), name
        assert float(found.high[known].max()) < 1 + 1e-12, name
        assert float(found.low[known].min()) > (-1 if name in ("iam", "mcc") else 0) - 1e-12, name


def test_precision_without_false_positives_reaches_one_and_with_them_does_not():
    counts = torch.tensor([[40, 0, 9], [6, 5, 3], [2, 0, 8]])  # nothing was taken for class 1 by mistake
    found = posterior(lambda c: imbtorch.precision(c, "none"), counts, draws=4000, generator=seeded())
    assert float(found.high[1]) == float(found.estimate[1]) == 1
    assert float(found.low[1]) < 0.9
    assert 0.95 > float(found.high[0]) > float(found.estimate[0])


def test_curvature_stretches_by_twice_the_bias():
    """The square of one recall: mean and variance of its Beta distribution are known."""
    matrix = [[50, 10], [4, 6]]
    found = posterior(lambda c: rates(c)[..., 1] ** 2, torch.tensor(matrix), draws=200_000, generator=seeded())
    law = stats.beta(6.5, 4.5)
    shift = 2 * (law.mean() ** 2 - (law.mean() ** 2 + law.var()))  # E[x^2] is above the square of the mean
    assert float(found.low) == pytest.approx(law.ppf(0.025) ** 2 + shift, abs=2e-3)
    assert float(found.high) == pytest.approx(law.ppf(0.975) ** 2, abs=2e-3)
    mirrored = posterior(lambda c: -(rates(c)[..., 1] ** 2), torch.tensor(matrix), draws=200_000, generator=seeded())
    assert float(mirrored.high) == pytest.approx(-float(found.low))


@pytest.mark.default_cases("3")
@pytest.mark.parametrize("size", [3, 12])
def test_means_of_small_classes_are_as_wide_as_their_sampling_distribution(size):
    """Of n samples a recall has the variance r (1 - r) / n, its draws r (1 - r) / (n + 2); Student's t by SciPy."""
    total = 6
    counts = torch.zeros(size, size, dtype=torch.float64)
    counts[range(size), range(size)] = 4
    counts[range(size), [(i + 1) % size for i in range(size)]] = total - 4
    found = posterior(balanced_accuracy, counts, draws=100_000, generator=seeded(), keep_draws=True)
    low, mean, high = np.quantile(found.draws, 0.025), float(found.draws.mean()), np.quantile(found.draws, 0.975)
    wider = math.sqrt((total + 2) / total) * stats.t(size * (total - 1)).ppf(0.975) / stats.norm.ppf(0.975)
    assert float(found.low) == pytest.approx(4 / 6 + wider * (low - mean), abs=3e-3)
    assert float(found.high) == pytest.approx(4 / 6 + wider * (high - mean), abs=3e-3)
    one = posterior(lambda c: rates(c)[..., [0]], counts, draws=100_000, generator=seeded())  # single classes have not
    assert float(one.low[0]) == pytest.approx(stats.beta(4.5, 2.5).ppf(0.025), abs=5e-3)


def test_a_prior_that_moves_the_draws_moves_a_bound_back():
    """Large classes without errors and small ones with many: the mean recall pulls the small ones up."""
    size, total = 20, 8
    counts = torch.diag_embed(torch.tensor([400.0] * 10 + [2.0] * 10).double())
    counts[range(10, size), 0] = total - 2
    found = posterior(balanced_accuracy, counts, draws=50_000, generator=seeded(), keep_draws=True)
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
    found = posterior(balanced_accuracy, counts, draws=50_000, generator=seeded())
    other = posterior(balanced_accuracy, counts[order][:, order], draws=50_000, generator=seeded(1))
    assert [float(other.low), float(other.high)] == pytest.approx([float(found.low), float(found.high)], abs=2e-3)


# --- many classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [15, 16])  # from 16 on draws are margins for what takes them
@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_arguments_that_need_the_matrix_get_it(weights, classes):
    counts = torch.randint(1, 30, (classes, classes), generator=seeded())
    kappa = partial(imbtorch.cohen_kappa, weights=weights)
    found = posterior(kappa, counts, draws=50, generator=seeded())
    target, preds = (part.repeat_interleave(counts.flatten()) for part in torch.ones(classes, classes).nonzero().T)
    assert found.estimate.item() == pytest.approx(sklearn_metrics.cohen_kappa_score(target, preds, weights=weights))
    matrices = posterior(whole(kappa), counts, draws=50, generator=seeded())
    torch.testing.assert_close((found.low, found.high), (matrices.low, matrices.high))


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
    found = bootstrap(score, torch.tensor(matrix), 50_000, stratified=stratified, generator=seeded(), keep_draws=True)
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


def test_bootstrap_of_a_class_without_errors_cannot_tell():
    found = bootstrap(balanced_accuracy, torch.tensor(MATRICES["no errors"]), stratified=True, generator=seeded())
    assert float(found.low) == float(found.high) == 1


def share_of_positives(c):
    """A measure of the class totals alone, of which the posterior of recalls knows all."""
    return (c[..., 1, :].sum(-1) / c.sum((-1, -2))) ** 2


def test_clusters_are_resampled_whole_and_stretched():
    """Every resample of three clusters by enumeration; Student's t by SciPy."""
    clusters = [[[4, 1], [2, 3]], [[5, 0], [1, 2]], [[1, 1], [0, 6]]]
    found = bootstrap(
        share_of_positives, torch.tensor(clusters), 60_000, clusters=True, generator=seeded(), keep_draws=True
    )
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

    level = 0.5  # at which bounds stay within the resamples
    with pytest.warns(UserWarning, match="the largest of 12 clusters holds"):
        found = bootstrap(squares, clusters, 500, level, clusters=True, keep_draws=True)
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
        bounds = [float(limit[problem, label]) for limit in (found.low, found.high)]
        expected = [max(min(low, low + shift), draws.min()), min(max(high, high + shift), draws.max())]
        assert bounds == pytest.approx(expected, rel=1e-6)
    assert kinds == {True, False}
    same = bootstrap(share_of_positives, clusters[1, :1].expand(5, 2, 2), 50, clusters=True)
    assert float(same.low) == pytest.approx(float(same.high))


def test_bounds_of_clusters_stay_within_the_range():
    clusters = torch.tensor([[[9, 1], [0, 3]], [[2, 8], [3, 1]], [[10, 0], [0, 2]], [[7, 3], [2, 0]]])
    measures = {"ba": balanced_accuracy, "gmean": geometric_mean, "iam": imbalance_accuracy}
    for name, found in bootstrap(measures, clusters, 500, 0.999, clusters=True, generator=seeded()).items():
        assert float(found.low) >= (-1 if name == "iam" else 0)
        assert float(found.high) <= 1


def exact(number):
    """Lower bound by Clopper and Pearson of as many right samples."""
    return stats.beta(number, 1).ppf(0.025)


def test_clusters_without_errors_count_as_samples():
    """No resample has an error either: the lower limit is that of as many right samples as there are clusters."""
    clusters = torch.tensor([[[0, 0], [0, 5]]] * 6 + [[[9, 1], [0, 0]]] * 6)
    found = bootstrap(lambda c: imbtorch.recall(c, "none"), clusters, 40_000, clusters=True, generator=seeded())
    assert float(found.low[1]) == pytest.approx(exact(6), abs=0.01)
    assert float(found.high[1]) == 1
    wrong = bootstrap(lambda c: imbtorch.recall(c, "none"), clusters.flip(-1), 40_000, clusters=True)
    assert float(wrong.high[1]) == pytest.approx(1 - exact(6), abs=0.01)


@pytest.mark.parametrize("each", [1, 5])
def test_false_alarms_come_in_the_numbers_of_alarms(each):
    """The many negatives of a cluster say nothing of the false alarms, but all of the specificity."""
    clusters = torch.tensor([[[20, 0], [1, each]]] * 40 + [[[20, 0], [1, 0]]] * 60)
    measures = {"precision": imbtorch.precision, "specificity": imbtorch.specificity, "f1": imbtorch.f_score}
    measures = {name: partial(measure, average="none") for name, measure in measures.items()}
    found = bootstrap(measures, clusters, 20_000, clusters=True, generator=seeded())
    alone = bootstrap(measures["precision"], clusters, 20_000, clusters=True, generator=seeded())
    assert float(found["precision"].low[1]) == pytest.approx(exact(40), abs=0.01)
    assert float(alone.low[1]) == pytest.approx(float(found["precision"].low[1]))  # whatever else is asked for
    assert float(found["specificity"].low[1]) == pytest.approx(exact(100), abs=0.005)
    false = each * -math.log(0.025)  # a bound of the number, by which F1 falls below what resamples show
    assert float(found["f1"].low[1]) > 2 * 32 * each / (2 * 32 * each + 100 + 8 * each + false) - 0.05


@pytest.mark.parametrize(("size", "false"), [(1, 0), (1, 1), (4, 0)])
def test_buckets_show_how_large_the_clusters_are(size, false):
    """49 clusters of right alarms among 20,000 rows; one false alarm hardly changes the width."""
    rows, alarms = torch.arange(20_000), 49 * size
    preds = (rows < alarms).long()
    preds[300] = false
    report = imbtorch.ImbalanceReport("binary", measures=["precision"], per_class=(), clusters=True)
    report.update(preds, (rows < 200).long(), cluster=torch.where(rows < alarms, rows // size, rows))
    found = report.interval("precision")
    width = 1 - stats.beta(49, 1 + false).ppf(0.025)
    assert 0.6 * width < 1 - float(found.low) < 1.7 * width
    assert float(found.high) == 1
    assert "of 64 buckets" in found.method


def test_copies_of_samples_in_clusters_are_biased_as_the_samples_are():
    """IAM of 40 classes of six samples, which come four times each; the truth is 2 * .6 - 1."""
    generator, covered = seeded(), 0
    target = torch.arange(40).repeat_interleave(6)
    for _ in range(10):
        other = (target + torch.randint(1, 40, target.shape, generator=generator)) % 40
        preds = torch.where(torch.rand(240, generator=generator) < 0.6, target, other)
        clusters = torch.zeros(240, 40, 40)
        clusters[torch.arange(240), target, preds] = 4
        found = bootstrap(imbalance_accuracy, clusters, 200, generator=generator, clusters=True)
        covered += float(found.low) <= 0.2 <= float(found.high)
        alone = posterior(imbalance_accuracy, clusters.sum(0) / 4, draws=20, generator=generator)
        assert float(found.bias) == pytest.approx(float(alone.bias), abs=1e-6)
    assert float(found.bias) < -0.1
    assert covered >= 9  # without the bias 24 of 30


def test_clusters_are_batched_and_chunked(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    clusters = torch.randint(0, 9, (2, 10, 3, 3), generator=generator)
    both = bootstrap(balanced_accuracy, clusters, 20_000, clusters=True, generator=seeded(), keep_draws=True)
    assert both.low.shape == (2,)
    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", 7000)
    alone = bootstrap(balanced_accuracy, clusters[1], 20_000, clusters=True, generator=seeded(1), keep_draws=True)
    assert apart(both.draws[:, 1], alone.draws) < 2
    each = bootstrap(lambda c: imbtorch.recall(c, "none"), clusters, 50, clusters=True)
    assert each.low.shape == (2, 3)
    labels = torch.randint(0, 9, (10, 4, 2, 2), generator=generator)  # ten clusters of four labels
    found = bootstrap(
        lambda c: balanced_accuracy(c).mean(-1), labels, 20_000, clusters=True, event_dims=3, keep_draws=True
    )
    assert found.low.shape == ()
    assert float(found.estimate) == pytest.approx(float(balanced_accuracy(labels.sum(0)).mean()))
    blocks = torch.stack([torch.block_diag(*each) for each in labels])  # the same clusters as one matrix each

    def mean(c):
        return torch.stack([balanced_accuracy(c[..., i : i + 2, i : i + 2]) for i in (0, 2, 4, 6)]).mean(0)

    assert apart(found.draws, bootstrap(mean, blocks, 20_000, clusters=True, keep_draws=True).draws) < 2


def test_a_class_in_few_clusters_has_an_interval():
    """Resamples without a class are left out; truth and coverage by simulation of 30 clusters, 3 with positives."""
    rng, sets = np.random.default_rng(0), 200
    positives = np.where(rng.random((sets, 30)).argsort(1) < 3, rng.binomial(30, 0.4, (sets, 30)), 0)
    recalls = rng.beta(0.7 * 4, 0.3 * 4, (2, sets, 30))
    recalls[0] = 0.9 + 0.1 * (recalls[0] - 0.7)
    right = rng.binomial(np.stack((30 - positives, positives)), recalls)
    rows = [np.stack((right[0], 30 - positives - right[0]), -1), np.stack((positives - right[1], right[1]), -1)]
    counts = torch.from_numpy(np.stack(rows, -2))
    measures = {"recall": lambda c: imbtorch.recall(c, "none"), "balanced": balanced_accuracy}
    found = bootstrap(measures, counts, 400, clusters=True, generator=seeded())
    for name, truth in (("recall", torch.tensor([0.9, 0.7])), ("balanced", 0.8)):
        assert bool(found[name].low.isfinite().all() & found[name].high.isfinite().all())
        held = (found[name].low <= truth) & (truth <= found[name].high)
        assert float(held.double().mean(0).min()) > 0.9
    single = bootstrap(measures["recall"], counts[0, :5] * torch.tensor([1, 0]).view(1, 2, 1), 50, clusters=True)
    assert single.low.isnan().tolist() == [False, True]  # a class without targets has no recall


def test_few_clusters_with_a_recall_near_one_are_covered():
    """Fifteen clusters with a recall of .97: their variance alone covers .84, since most sets lack the bad ones."""
    rng = np.random.default_rng(0)
    right = rng.binomial(40, rng.beta(0.97 * 4, 0.03 * 4, (400, 15)))
    counts = torch.zeros(400, 15, 2, 2, dtype=torch.long)
    counts[..., 0, 0], counts[..., 0, 1] = torch.from_numpy(right), torch.from_numpy(40 - right)
    counts[..., 1, 1] = 1
    found = bootstrap(lambda c: imbtorch.recall(c, "none")[..., 0], counts, 400, clusters=True, generator=seeded())
    assert float(((found.low <= 0.97) & (found.high >= 0.97)).double().mean()) > 0.89


def test_bounds_of_defined_values_are_numpys():
    drawn = torch.rand(50, 3, dtype=torch.float64, generator=seeded())
    drawn[::3, 1], drawn[:, 2] = math.nan, math.nan
    low, high = quantiles(drawn, 0.9, of_defined=True)
    kept = drawn[~drawn[:, 1].isnan(), 1].numpy()
    for column, values in ((0, drawn[:, 0].numpy()), (1, kept)):
        assert [low[column], high[column]] == pytest.approx(np.quantile(values, [0.05, 0.95]).tolist())
    assert bool(low[2].isnan() & high[2].isnan())
    assert quantiles(drawn, 0.9)[0].isnan().tolist() == [False, True, True]


def test_clusters_without_samples_take_no_part():
    clusters = torch.randint(0, 9, (6, 2, 2), generator=seeded())
    padded = torch.zeros(10, 2, 2, dtype=torch.long)
    padded[[0, 2, 3, 5, 8, 9]] = clusters
    found, same = (bootstrap(balanced_accuracy, c, 300, clusters=True, generator=seeded()) for c in (padded, clusters))
    assert (found.low, found.high) == (same.low, same.high)
    with pytest.raises(ValueError, match="samples in at least 2 clusters, got 1 of 4"):
        bootstrap(balanced_accuracy, padded[[0, 1, 4, 6]], clusters=True)


def test_the_text_names_a_cluster_that_is_large():
    clusters = torch.ones(20, 2, 2, dtype=torch.long)
    assert bootstrap("iam", clusters, 50, clusters=True).method == "cluster bootstrap"
    clusters[4] = 5  # 20 of 96 samples, 4.2 times the mean
    found = bootstrap("iam", clusters, 50, clusters=True)
    text = "cluster bootstrap; the largest of 20 clusters holds 21%, too narrow if values fall with cluster size"
    assert found.method == text
    found = bootstrap(balanced_accuracy, clusters, 50, clusters=True)
    assert found.method == text.replace("cluster bootstrap", "Fay-Feuer of clusters")


@pytest.mark.parametrize("clusters", [20, 40, 60, 100, 200])
def test_buckets_of_equal_clusters_are_rarely_large(clusters):
    """Three of forty patients in one bucket are no large cluster; in 200 clusters a tenfold one shares its bucket."""
    rng, told = np.random.default_rng(0), {1: 0, 10: 0}
    for times in told:
        for _ in range(200):
            sizes = np.bincount(rng.integers(64, size=clusters), [times] + [1] * (clusters - 1), minlength=64)
            told[times] += bool(largest_cluster(torch.from_numpy(sizes[sizes > 0]), hashed=64))
    assert told[1] <= 0.05 * 200  # 0.19 of the sets of 100 clusters before
    assert told[10] >= 0.8 * 200


def test_a_cluster_of_more_than_five_times_the_mean_is_warned_of():
    clusters = torch.ones(20, 2, 2, dtype=torch.long)
    clusters[4] = 7  # 28 of 104 samples, 5.4 times the mean
    with pytest.warns(UserWarning, match="^bootstrap: the largest of 20 clusters holds 27% of the samples; if") as told:
        bootstrap(balanced_accuracy, clusters, 50, clusters=True)
    assert told[0].filename == __file__
    both = torch.stack((torch.ones_like(clusters), clusters))  # of two problems, one is uneven
    with pytest.warns(UserWarning, match="holds 27%"):
        bootstrap(balanced_accuracy, both, 50, clusters=True)


def test_a_cluster_of_less_than_one_percent_is_never_large():
    """Heavy tails of few clusters are told as by five times the mean; of many small ones nobody is."""
    random = np.random.default_rng(0)
    for number in (15, 30, 100, 300, 1000, 57_944):
        for shape in (1.2, 1.5, 2.0, 3.0):
            for _ in range(20):
                sizes = np.minimum(10 * (random.pareto(shape, number) + 1), 5000).astype(int)
                share = sizes.max() / sizes.sum()
                expected = share * number > 5 and share >= 0.01
                assert bool(largest_cluster(torch.from_numpy(sizes), HEAVY)) == expected
    even = torch.full((57_944,), 10)
    even[0] = 52  # 5.2 times the mean, and 0.009%
    assert largest_cluster(even, HEAVY) == largest_cluster(even) == ""
    ids = torch.arange(len(even)).repeat_interleave(even)
    target = (ids % 50 == 0).long()
    preds = torch.where(ids % 7 == 0, 1 - target, target)
    over_runs({"a": [preds, target]}, target, "f1", draws=2, cluster=ids)  # warnings are errors here


@pytest.mark.parametrize("sizes", ["equal", "uniform", "poisson", "lognormal"])
def test_sizes_of_light_tails_are_no_reason_for_a_warning(sizes):
    random = np.random.default_rng(0)
    told = 0
    for number in (15, 30, 100, 1000):
        drawn = {
            "equal": np.full((50, number), 20),
            "uniform": random.integers(1, 41, (50, number)),
            "poisson": 1 + random.poisson(20, (50, number)),
            "lognormal": np.ceil(20 * np.exp(0.4 * random.standard_normal((50, number)))),
        }[sizes]
        told += sum(bool(largest_cluster(torch.from_numpy(each), HEAVY)) for each in drawn)
    assert told == 0


def test_clusters_that_cannot_be_resampled_are_refused():
    with pytest.raises(ValueError, match="M >= 2 clusters, got"):
        bootstrap(score, COUNTS, clusters=True)
    with pytest.raises(ValueError, match="M >= 2 clusters, got"):
        bootstrap(score, COUNTS.unsqueeze(0), clusters=True)
    with pytest.raises(ValueError, match="stratified=True keeps class totals"):
        bootstrap(score, COUNTS.expand(3, 2, 2), clusters=True, stratified=True)


def test_bootstrap_names_its_kind():
    counts = torch.tensor([[5, 1], [2, 3]])
    assert bootstrap(score, counts, 20).method == "bootstrap"
    assert bootstrap(score, counts, 20, stratified=True).method == "stratified bootstrap"
    assert posterior(score, counts, draws=20).method == "posterior"


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
        found = find(score, counts, draws=300, generator=generator, keep_draws=True)
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
    found = find(score, stacked, draws=samples, generator=seeded(), keep_draws=True)
    assert found.draws.shape == (samples, 2, 4)
    for each in (found.estimate, found.low, found.high):
        assert each.shape == (2, 4)
    for index, matrix in enumerate(matrices):
        alone = find(score, torch.tensor(matrix), draws=samples, generator=seeded(index + 1), keep_draws=True)
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
    found = find(lambda c: imbtorch.f_score(c, average="none"), counts, draws=300, generator=seeded(), keep_draws=True)
    assert found.draws.shape == (300, 2, 3)
    assert found.estimate.shape == found.low.shape == found.high.shape == (2, 3)
    for index in range(3):  # a trailing dimension of size 1 keeps it a value of a class
        of_class = find(
            lambda c, i=index: imbtorch.f_score(c, average="none")[..., [i]], counts, draws=300, generator=seeded()
        )
        assert torch.equal(found.low[:, [index]], of_class.low)
        assert torch.equal(found.high[:, [index]], of_class.high)
    assert len(str(found).splitlines()) == 6


@each_finder
def test_a_value_of_several_matrices(find):
    labels = torch.tensor([MATRICES["errors in both"], MATRICES["few positives"]])
    found = find(lambda c: score(c).mean(-1), labels, draws=4000, generator=seeded(), event_dims=3, keep_draws=True)
    assert found.draws.shape == (4000,)
    assert found.low.shape == ()
    each = find(score, labels, draws=4000, generator=seeded(1), keep_draws=True)
    assert float(found.estimate) == pytest.approx(float(each.estimate.mean()))
    assert apart(found.draws, each.draws.mean(-1)) < 2
    stacked = find(lambda c: score(c).mean(-1), labels.expand(3, 2, 2, 2), draws=50, event_dims=3)
    assert stacked.low.shape == (3,)
    assert find(score, labels, draws=50, event_dims=3).low.shape == (2,)


@each_finder
def test_batches_may_be_empty(find):
    found = find(score, torch.zeros(0, 2, 2), draws=5)
    assert found.low.shape == found.high.shape == found.estimate.shape == (0,)


@pytest.mark.default_cases("1-bootstrap", "30-posterior", "30-stratified")
@each_finder
@pytest.mark.parametrize("cells", [1, 30])
def test_chunks_give_the_same_distribution(find, cells, monkeypatch):
    counts = torch.tensor([MATRICES["errors in both"], MATRICES["no errors in one"]])
    whole = find(score, counts, draws=20_000, generator=seeded(), keep_draws=True)
    sizes = []

    def measure(matrices):
        sizes.append(matrices.numel())
        return score(matrices)

    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", cells)
    chunked = find(measure, counts, draws=1001, generator=seeded(1), keep_draws=True)
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
    found = find(measures, counts, draws=500, generator=seeded(), keep_draws=True)
    assert list(found) == list(measures)
    torch.testing.assert_close(found["right"].draws + found["wrong"].draws, torch.ones(500, dtype=torch.float64))
    alone = find(imbtorch.accuracy, counts, draws=500, generator=seeded(), keep_draws=True)
    assert torch.equal(alone.draws, found["right"].draws)
    assert find(measures, counts, draws=5)["right"].draws is None


@each_finder
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_dtypes_of_counts(find, dtype):
    found = find(score, torch.tensor(MATRICES["errors in both"], dtype=dtype), draws=50, generator=seeded())
    assert torch.equal(found.low, find(score, torch.tensor([[90, 10], [1, 9]]), draws=50, generator=seeded()).low)
    assert found.low.dtype == found.high.dtype == torch.float64


@each_finder
def test_level_narrows(find):
    widths = []
    for level in (0.5, 0.8, 0.95, 0.99):
        found = find(score, torch.tensor([[50, 9], [3, 8]]), draws=4000, level=level, generator=seeded())
        assert found.level == level
        widths.append(float(found.high - found.low))
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


def test_bounds_of_a_linear_measure_are_numpys_quantiles():
    draws = posterior(
        balanced_accuracy, torch.tensor([[50, 9], [3, 8]]), draws=777, level=0.9, generator=seeded(), keep_draws=True
    )
    assert [float(draws.low), float(draws.high)] == pytest.approx(
        np.quantile(draws.draws.numpy(), [0.05, 0.95]).tolist()
    )


def test_draws_without_a_value_leave_no_bounds():
    # resamples without positives have no recall: they must not pass for the highest
    found = bootstrap(
        lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1), torch.tensor([[20, 0], [1, 1]]), generator=seeded()
    )
    assert bool(found.low.isnan())
    assert bool(found.high.isnan())
    assert float(found.estimate) == 0.5


# --- errors ---------------------------------------------------------------------------------------------------------

COUNTS = torch.tensor(A)


@each_finder
@pytest.mark.parametrize(
    ("level", "remedy"),
    [(0, ""), (1, ""), (95, "; write 0.95"), (99.9, "; write 0.999"), (100, ""), (-0.1, ""), (math.nan, "")],
)
def test_levels_outside_are_refused(find, level, remedy):
    with pytest.raises(ValueError, match=rf"level must lie in \(0, 1\), got {level}{remedy}$"):
        find(score, COUNTS, level=level)


@each_finder
@pytest.mark.parametrize("samples", [-1, 0, 1])
def test_too_few_samples_are_refused(find, samples):
    with pytest.raises(ValueError, match="draws must be at least 2"):
        find(score, COUNTS, draws=samples)


@each_finder
def test_values_that_do_not_fit_the_counts_are_refused(find):
    with pytest.raises(ValueError, match=r"measure must return one value for each matrix, \[5\].*got \[\]"):
        find(lambda c: c.sum(), COUNTS, draws=5)
    with pytest.raises(ValueError, match=r"measure must return one value.*got \[15\]"):
        find(lambda c: score(c).flatten(), COUNTS.expand(3, 2, 2), draws=5)
    with pytest.raises(ValueError, match=r"measure must return one value.*float"):
        find(lambda c: 0.5, COUNTS, draws=5)


@each_finder
@pytest.mark.parametrize(("event_dims", "allowed"), [(1, "2..3"), (4, "2..3")])
def test_event_dims_must_fit_the_counts(find, event_dims, allowed):
    with pytest.raises(ValueError, match=rf"event_dims must lie in {allowed}.*got {event_dims}"):
        find(score, COUNTS.expand(3, 2, 2), draws=5, event_dims=event_dims)


@each_finder
def test_counts_must_be_square(find):
    with pytest.raises(ValueError, match="counts"):
        find(score, torch.ones(2, 3), draws=5)


@pytest.mark.parametrize(
    "prior",
    ["flat", torch.ones(3, 3), torch.zeros(2, 2), torch.tensor([[1.0, -1], [1, 1]]), torch.full((2, 2), math.nan)],
)
def test_priors_that_do_not_fit_are_refused(prior):
    with pytest.raises(ValueError, match="prior must be"):
        posterior(score, COUNTS, prior, 5)
    with pytest.raises(ValueError, match="prior must be"):
        compare(score, COUNTS, COUNTS, prior=prior, draws=5)


@pytest.mark.parametrize("find", [posterior, bootstrap, partial(bootstrap, stratified=True), compare, beats_baseline])
def test_counts_that_are_not_whole_are_refused(find):
    """Sums of weights, rates and means of counts do not hold the number of samples."""
    weighted = imbtorch.ImbalanceReport("binary", weighted=True)
    weighted.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1]), weight=torch.tensor([0.5, 2, 1.2, 0.4]))
    for counts, value in ((weighted.counts(), "0.5"), (COUNTS / 100, "0.9")):
        both = (counts, counts) if find is compare else (counts,)
        with pytest.raises(ValueError, match=rf"counts must be whole numbers of samples, got {value}.*sums of weights"):
            find(balanced_accuracy, *both, draws=5)
        find(balanced_accuracy, *(each.round() + 1 for each in both), draws=5)


@each_finder
@pytest.mark.parametrize(("wrong", "shown"), [(math.nan, "nan"), (-1.0, "-1"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_counts_that_are_none_are_refused(find, wrong, shown):
    counts = torch.tensor([[5.0, 1.0], [2.0, wrong]])
    with pytest.raises(ValueError, match=f"counts must be finite and not negative, got {shown}$"):
        find(score, counts, draws=5)
    for pair in ((counts, COUNTS), (COUNTS, counts)):
        with pytest.raises(ValueError, match=f"counts must be finite and not negative, got {shown}$"):
            compare(score, *pair, draws=5)


# --- printing -------------------------------------------------------------------------------------------------------


def test_printing():
    one = Interval(torch.tensor(0.5), torch.tensor(-0.25), torch.tensor(0.75), 0.95, "posterior")
    assert str(one) == "0.500 [-0.250, 0.750] (95% posterior)"
    two = Interval(*torch.tensor([[0.5, 1.0], [0.25, 0.5], [0.75, 1.0]]), 0.9, "bootstrap")
    assert str(two).splitlines() == ["0.500 [0.250, 0.750] (90% bootstrap)", "1.000 [0.500, 1.000] (90% bootstrap)"]
    assert "draws" not in repr(one)
    found = Comparison(two, torch.tensor([0.25, 1.0]))
    assert str(found).splitlines() == [
        "a - b: 0.500 [0.250, 0.750] (90% bootstrap); a is better with probability 0.250",
        "a - b: 1.000 [0.500, 1.000] (90% bootstrap); a is better with probability 1.000",
    ]


# --- of metrics and reports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["posterior", "bootstrap"])
def test_a_class_that_never_came_stays_away(method):
    """Its recall would be 0 in every draw, and drag means below what was counted."""
    counts = torch.tensor([[40, 10, 0], [5, 45, 0], [0, 0, 0]])
    interval = getattr(imbtorch.statistics, method)
    padded = interval(imbtorch.imbalance_accuracy, counts, generator=torch.Generator().manual_seed(0))
    plain = interval(imbtorch.imbalance_accuracy, counts[:2, :2], generator=torch.Generator().manual_seed(1))
    for name in ("estimate", "low", "high"):
        assert getattr(padded, name) == pytest.approx(getattr(plain, name).item(), abs=0.02)


def test_bounds_of_a_ratio_may_be_infinite():
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


def test_the_text_of_an_interval_names_its_bias():
    value, bias = torch.tensor([0.4, 0.8]), torch.tensor([-0.12, 0.001])
    lines = str(Interval(value, value - 0.1, value + 0.1, 0.95, "posterior", bias=bias)).splitlines()
    assert lines == [
        "0.400 [0.300, 0.500] (95% posterior; on average 0.12 too low)",
        "0.800 [0.700, 0.900] (95% posterior)",
    ]


def test_an_interval_names_its_estimate():
    interval = posterior("accuracy", torch.tensor([[8, 2], [1, 1]]), draws=100)
    with pytest.raises(AttributeError, match="no attribute 'value'; its value is `estimate`"):
        interval.value  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'center'$"):
        interval.center  # noqa: B018
