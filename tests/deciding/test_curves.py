"""Areas under curves, their intervals and the errors of bins: scikit-learn, SciPy and populations of known truth."""

import math

import numpy as np
import pytest
import torch
from rooms import (
    area,
    area_interval,
    average_precision,
    average_precision_interval,
    jackknife,
    partial_area_at,
    unresolved,
)
from scipy import stats
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from sklearn import metrics as sk

from imbtorch import ThresholdSweep

# --- values beside the threshold ------------------------------------------------------------------------------------


def test_a_partial_area_is_that_of_the_point_and_the_next_points_that_differ():
    """Liu, Ghosh and Martin (2007), eq. 3, with empty bins between: the numbers of the hand-made case of the sweep."""
    sweep = ThresholdSweep("accuracy", also=["partial_auc"])
    scores, target = torch.tensor([0.1, 0.25, 0.7, 0.5, 0.5, 0.9, 0.1, 0.65]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    sweep.update(scores, target)
    found = sweep.compute()
    false, true, _ = sk.roc_curve(target, scores, drop_intermediate=False)
    preds = scores > found["threshold"].item()
    rates = [preds[target == kind].double().mean().item() for kind in (0, 1)]
    place = int(np.flatnonzero((false == rates[0]) & (true == rates[1]))[0])
    some = slice(max(place - 1, 0), place + 2)
    assert found["partial_auc"].item() == pytest.approx(trapezoid(true[some], false[some]))
    counts = torch.tensor([[2, 0, 0, 1], [0, 0, 0, 3]])
    for index in range(3):  # one point alone, whichever of its thresholds is meant
        expected = sk.roc_auc_score([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1])
        assert partial_area_at(counts, torch.tensor(index)).item() == pytest.approx(expected)


# --- intervals ------------------------------------------------------------------------------------------------------


def newcombe(area, m, n, scale=1.0):
    """Method 5, solved by SciPy: bounds at which the estimate is z standard errors away."""
    z, mean = stats.norm.ppf(0.975) * math.sqrt(scale), (m + n) / 2 - 1

    def away(value):
        spread = value * (1 - value) / (m * n) * (1 + mean * (1 - value) / (2 - value) + mean * value / (1 + value))
        return abs(value - area) - z * math.sqrt(spread)

    return [brentq(away, end, area + math.copysign(1e-12, end - area)) for end in (0, 1)]


@pytest.mark.parametrize("scatter", [0.7, 3.0])
def test_auc_intervals_are_those_of_newcombe_or_as_wide_as_delong(scatter):
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(1.5, scatter, 30).round(1), rng.normal(0, 1, 200).round(1)
    values = np.unique(np.r_[positive, negative])
    counts = torch.tensor(np.stack([[(scores == value).sum() for value in values] for scores in (negative, positive)]))
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    area, found = wins.mean(), area_interval(counts)
    delong = wins.mean(1).var(ddof=1) / 30 + wins.mean(0).var(ddof=1) / 200
    mean = 230 / 2 - 1
    own = area * (1 - area) / 6000 * (1 + mean * (1 - area) / (2 - area) + mean * area / (1 + area))
    delong *= (stats.t.ppf(0.975, 29) / stats.norm.ppf(0.975)) ** 2
    assert (delong > own) == (scatter == 3.0)  # both cases are there
    assert found.estimate.item() == pytest.approx(area)
    expected = newcombe(area, 200, 30, max(1.0, delong / own))
    assert [found.low.item(), found.high.item()] == pytest.approx(expected, abs=1e-9)


def test_auc_intervals_at_the_limit_and_without_a_class():
    perfect = area_interval(torch.tensor([[50, 0], [0, 5]]))
    assert perfect.high == 1
    assert 0.3 < perfect.low < 0.9
    assert area_interval(torch.tensor([[50, 0], [0, 0]])).low.isnan()


def influence(scores, target, change):
    """Derivative of scikit-learn's average precision by the weight of some samples."""
    values = [sk.average_precision_score(target, scores, sample_weight=1 + sign * 1e-5 * change) for sign in (1, -1)]
    return (values[0] - values[1]) / 2e-5


def wilson(share, size, quantile, sign):
    centre = share + quantile**2 / (2 * size)
    half = quantile * math.sqrt(share * (1 - share) / size + quantile**2 / (4 * size**2))
    return (centre + sign * half) / (1 + quantile**2 / size)


@pytest.mark.parametrize("digits", [1, 6])  # with ties, and without
def test_average_precision_intervals_are_those_of_a_share_that_varies_as_much(digits):
    """By the jackknife of scikit-learn's value, and by leaving each positive out of its own precision."""
    rng = np.random.default_rng(0)
    target = np.repeat([0, 1], [150, 25])
    scores = (rng.normal(size=175) + 1.3 * target).round(digits)
    values = np.unique(scores)
    counts = torch.tensor([[((scores == value) & (target == label)).sum() for value in values] for label in (0, 1)])
    found = average_precision_interval(counts, level=0.9)
    point = sk.average_precision_score(target, scores)
    rise, variance = influence(scores, target, target), 0.0
    for label, number, sign in ((0, 150, -1), (1, 25, 1)):
        of_samples = [influence(scores, target, np.eye(175)[i]) for i in np.flatnonzero(target == label)]
        own = number * np.array(of_samples) - sign * rise
        assert abs(own.mean()) < 1e-6
        variance += own.var(ddof=1) / number + rise**2 / number
    size = point * (1 - point) / variance
    assert size < 25 / point
    without = [((scores >= s) & (target == 1)).sum() - 1 for s in scores[target == 1]]
    without = np.mean(
        [
            hits / max(hits + ((scores >= s) & (target == 0)).sum(), 1)
            for hits, s in zip(without, scores[target == 1], strict=True)
        ]
    )
    quantile = stats.t.ppf(0.95, 24)
    assert found.estimate.item() == pytest.approx(point)
    assert found.low.item() == pytest.approx(wilson(without, size, quantile, -1), abs=1e-6)
    with_a_perfect_one = (25 * wilson(point, size, quantile, 1) + 1) / 26
    assert found.high.item() == pytest.approx(with_a_perfect_one, abs=1e-6)


def test_average_precision_intervals_at_the_limit_and_without_a_class():
    perfect = average_precision_interval(torch.tensor([[50, 0, 0, 0], [0, 2, 2, 1]]))  # alone, the highest has none
    assert perfect.low.item() == pytest.approx(wilson(0.8, 5, stats.t.ppf(0.975, 4), -1))
    assert perfect.estimate == perfect.high == 1
    ranked = torch.stack((torch.arange(98) < 49, torch.arange(98) >= 49)).long()  # 49 times 1/49 is more than 1
    assert average_precision_interval(ranked).low < average_precision_interval(ranked).high <= 1
    alone = average_precision_interval(torch.tensor([[40, 10], [0, 1]]))
    assert 0 <= alone.low < alone.estimate < alone.high <= 1
    assert average_precision_interval(torch.tensor([[50, 0], [0, 0]])).low.isnan()


@pytest.mark.parametrize("positives", [20, 50])
def test_intervals_of_areas_hold_the_true_ones(positives):
    """Two normal classes; truth by integration, estimates by scikit-learn."""
    rng, prevalence, runs = np.random.default_rng(0), 0.05, 200
    grid = np.linspace(-7, 8, 20_001)
    recall, false = stats.norm.sf(grid, 1.5), stats.norm.sf(grid)
    precision = prevalence * recall / (prevalence * recall + (1 - prevalence) * false)
    truth = trapezoid(precision * stats.norm.pdf(grid, 1.5), grid), stats.norm.cdf(1.5 / math.sqrt(2))
    n = int(positives / prevalence)
    target = rng.random((runs, n)) < prevalence
    scores = rng.normal(1.5 * target, 1)
    precisions = [sk.average_precision_score(*each) for each in zip(target, scores, strict=True)]
    order = np.take_along_axis(target, scores.argsort(1), 1)
    histogram = torch.from_numpy(np.stack((~order, order), 1)).long()
    found = average_precision_interval(histogram), area_interval(histogram)
    assert found[0].estimate.tolist() == pytest.approx(precisions)
    held = [((each.low <= true) & (true <= each.high)).double().mean() for each, true in zip(found, truth, strict=True)]
    assert all(share >= 0.92 for share in held)


def histograms_with_apart(positives, prevalence, share, place, apart=1.5, runs=300):
    """Histograms where a share of the positives lies at a place far from all negatives; true AUC and precision."""
    rng, size = np.random.default_rng(0), int(positives / prevalence)
    target = rng.random((runs, size)) < prevalence
    target[~target.any(1), 0] = True
    scores = np.where(target & (rng.random((runs, size)) < share), place, rng.normal(apart * target))
    order = np.take_along_axis(target, scores.argsort(1), 1)
    recall = (np.arange(100_000) + 0.5) / 100_000
    cuts = stats.norm.isf((recall - share * (place > 0)) / (1 - share), apart)  # nan among those apart
    false = np.where(np.isnan(cuts), float(place < 0), stats.norm.sf(cuts))
    precision = prevalence * recall / (prevalence * recall + (1 - prevalence) * false)
    return torch.from_numpy(np.stack((~order, order), 1)).long(), 1 - false.mean(), precision.mean()


@pytest.mark.parametrize(("positives", "share"), [(5, 0.1), (10, 0.1), (10, 0.2)])
def test_average_precision_covers_where_few_positives_lie_above_all(positives, share):
    """Without the additional positive .55 to .9: a sample that lacks the best positives knows nothing of them."""
    histogram, _, truth = histograms_with_apart(positives, 0.01, share, 50.0)
    found = average_precision_interval(histogram)
    assert float(((found.low <= truth) & (truth <= found.high)).double().mean()) > 0.93


@pytest.mark.slow
def test_auc_intervals_say_what_share_of_positives_may_be_unseen():
    """A tenth of positives below all negatives: sets without any of them miss the value, and say why."""
    histogram, truth, _ = histograms_with_apart(20, 0.1, 0.1, -50.0, apart=3.3)
    found = [area_interval(each) for each in histogram]
    text = "rank last unseen"
    too_high = [each for each in found if each.low > truth]
    assert len(too_high) > 10
    assert sum(text in each.method for each in too_high) > 0.7 * len(too_high)
    perfect = torch.tensor([[500, 0], [0, 30]])
    share = 1 - 0.05 ** (1 / 30)  # so many positives all miss it with probability .05
    assert stats.binom.pmf(0, 30, share) == pytest.approx(0.05)
    assert area_interval(perfect).method == f"Newcombe method 5; {100 * share:.2g}% of positives may {text}"
    assert text not in area_interval(torch.tensor([[60, 40], [4, 16]])).method


def test_what_a_bin_can_hide_is_what_the_worst_order_loses():
    """By scikit-learn: scores of one bin all in the best order, and all tied."""
    counts = torch.tensor([[40, 30], [2, 5]])
    target = np.repeat([0, 1, 0, 1], counts.T.flatten())
    tied, best = np.repeat([0, 1], counts.sum(0)), np.repeat([0, 0, 1, 2], counts.T.flatten())
    lost = [oracle(target, best) - oracle(target, tied) for oracle in (sk.roc_auc_score, sk.average_precision_score)]
    assert unresolved(counts)[1].item() == pytest.approx(max(lost))


@pytest.mark.parametrize(
    "counts", [[[500, 1], [2, 99]], [[50, 1, 3], [2, 30, 60]], [[7, 40], [3, 2]], [[0, 3], [2, 5]]]
)
def test_no_order_within_a_bin_moves_a_value_further_than_said(counts):
    """By scikit-learn: either class first, beside all of the bin tied."""
    wide = torch.tensor(counts)
    bins = wide.shape[1]
    said = unresolved(wide)
    target = np.concatenate([np.repeat([0, 1], wide[:, place].tolist()) for place in range(bins)])
    tied = np.repeat(np.arange(bins), wide.sum(0))
    for place in range(bins):
        for first in (0, 1):
            scores = tied + 0.5 * ((tied == place) & (target == first))
            for oracle in (sk.roc_auc_score, sk.average_precision_score):
                assert abs(oracle(target, scores) - oracle(target, tied)) <= said[place].item() + 1e-12
    assert said.max() < 0.4


# --- clusters -------------------------------------------------------------------------------------------------------


def of_patients(number, each, seed=0):
    """Histogram of each patient, whose samples share half of their variance; scores, targets and patients."""
    random = np.random.default_rng(seed)
    target = np.repeat(random.random(number) < 0.4, each).astype(int)
    scores = np.repeat(random.normal(size=number), each) + random.normal(size=number * each) + 2 * target
    order, patient = scores.argsort().argsort(), np.repeat(np.arange(number), each)
    histogram = torch.zeros(number, 2, number * each, dtype=torch.long)
    histogram[patient, target, order] = 1
    return histogram, scores, target, patient


@pytest.mark.parametrize(
    ("value", "oracle"), [(area, sk.roc_auc_score), (average_precision, sk.average_precision_score)]
)
def test_the_variance_of_leaving_out_patients_is_that_of_scikit_learns_values(value, oracle):
    histogram, scores, target, patient = of_patients(12, 5)
    without = [oracle(target[patient != index], scores[patient != index]) for index in range(12)]
    variance, freedom = jackknife(value, histogram.double(), histogram.sum(0).double(), 2)
    squares = (np.array(without) - np.mean(without)) ** 2
    assert variance.item() == pytest.approx(squares.sum() * 11 / 12)
    assert freedom.item() == pytest.approx(np.clip(3 * squares.sum() ** 2 / (squares**2).sum() - 3, 2, 11))


@pytest.mark.parametrize("interval", [area_interval, average_precision_interval])
def test_intervals_of_single_samples_are_about_those_of_independent_ones(interval):
    """Each sample is a cluster, so that both methods mean the same."""
    for seed in range(5):
        histogram, *_ = of_patients(200, 1, seed)
        found, wanted = interval(histogram, clusters=True), interval(histogram.sum(0))
        assert found.estimate == wanted.estimate
        for end in ("low", "high"):
            assert float(getattr(found, end)) == pytest.approx(float(getattr(wanted, end)), abs=0.02)


@pytest.mark.parametrize("interval", [area_interval, average_precision_interval])
def test_patients_without_errors_or_of_one_class_alone_leave_wide_intervals(interval):
    """The interval of one patient with positives says next to nothing, however many samples the patient has."""
    perfect = torch.zeros(9, 2, 2, dtype=torch.long)
    perfect[:6, 0, 0], perfect[6:, 1, 1] = 50, 50
    found = interval(perfect, clusters=True)
    assert found.estimate == found.high == 1
    assert 0.2 < float(found.low) < 0.8  # three patients with positives
    assert float(interval(perfect.sum(0)).low) > 0.95
    single = perfect.clone()
    single[7:] = 0
    single = single[:7]
    assert float(interval(single, clusters=True).low) < 0.4
