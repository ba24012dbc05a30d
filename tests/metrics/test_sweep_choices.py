"""Values, intervals and operating points of a sweep, beside scikit-learn, SciPy and populations of known truth."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from processes import launch
from scipy import stats
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from sklearn import metrics as sk
from versions import traced

import imbtorch
from imbtorch import ThresholdSweep
from imbtorch.choosing import thresholds
from imbtorch.inference.scores import area_interval, average_precision_interval, partial_area_at, unresolved

ALSO = ("auc", "average_precision", "partial_auc")
LABELS = {"task": "multilabel", "num_labels": 2, "class_names": ["cat", "dog"]}


def drawn(samples, prevalence=0.1, seed=0):
    """Calibrated logits of two normal classes two standard deviations apart, and targets."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(samples, generator=generator) < prevalence).long()
    evidence = torch.randn(samples, generator=generator, dtype=torch.float64) + 2 * target - 1
    return 2 * evidence + math.log(prevalence / (1 - prevalence)), target


def rates_of(threshold, prevalence=0.1):
    """True false and true positive rate of a threshold in the population of :func:`drawn`."""
    cut = (math.log(threshold / (1 - threshold)) - math.log(prevalence / (1 - prevalence))) / 2
    return stats.norm.sf(cut + 1), stats.norm.sf(cut - 1)


def swept(measure="f1", samples=2000, seed=0, **arguments):
    logits, target = drawn(samples, seed=seed)
    sweep = ThresholdSweep(measure, logits=True, **arguments)
    if arguments.get("task") == "multilabel":
        logits, target = torch.stack((logits, -logits), 1), torch.stack((target, 1 - target), 1)
    sweep.update(logits, target)
    sweep.compute()
    return sweep, logits, target


# --- values beside the threshold ------------------------------------------------------------------------------------


def test_further_values_are_logged_with_a_direction():
    sweep, logits, target = swept(also=ALSO, prefix="val_")
    assert sweep.keys() == ["val_threshold", "val_value", "val_auc", "val_average_precision", "val_partial_auc"]
    found = {name: value.item() for name, value in sweep.compute().items()}
    assert found["val_auc"] == pytest.approx(sk.roc_auc_score(target, logits), abs=1e-3)
    assert found["val_average_precision"] == pytest.approx(sk.average_precision_score(target, logits), abs=2e-3)
    assert all(sweep[name].higher_is_better is True for name in ALSO)
    assert {name: sweep[name].compute().item() for name in ALSO} == {name: found[f"val_{name}"] for name in ALSO}
    assert sweep.also == ALSO
    assert "also=('auc'" in repr(sweep)


def test_further_values_of_labels():
    sweep, logits, target = swept(also=("average_precision", "auc"), **LABELS)
    found = sweep.compute()
    names = [f"{name}{label}" for name in ("average_precision", "auc") for label in ("/cat", "/dog", "")]
    assert list(found)[4:] == names
    for index, label in enumerate(("cat", "dog")):
        expected = sk.average_precision_score(target[:, index], logits[:, index])
        assert found[f"average_precision/{label}"].item() == pytest.approx(expected, abs=2e-3)
        assert sweep.interval("average_precision").estimate[index].item() == pytest.approx(expected, abs=2e-3)


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
    """Method 5, solved by SciPy: limits at which the estimate is z standard errors away."""
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
    assert found.high.item() == pytest.approx(wilson(point, size, quantile, 1), abs=1e-6)


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


def test_the_best_value_is_corrected_for_having_been_chosen():
    """F1 of 20 positives flatters by .08; truth by the normal distribution."""
    generator = torch.Generator().manual_seed(0)
    raw, corrected, held = [], [], []
    for seed in range(30):
        sweep, _, _ = swept(samples=200, seed=seed)
        false, true = rates_of(sweep.compute()["threshold"].item())
        truth = 2 * 0.1 * true / (0.1 * true + 0.9 * false + 0.1)
        found = sweep.interval("value", generator=generator)
        raw.append(sweep.compute()["value"].item() - truth)
        corrected.append(found.estimate.item() - truth)
        held.append(bool(found.low <= truth <= found.high))
    assert np.mean(raw) > 0.04
    assert abs(np.mean(corrected)) < 0.04
    assert np.mean(held) > 0.85


def test_three_quarters_of_the_correction_are_of_the_halves(monkeypatch):
    """The expectation over all ways in which two halves can fall, by accuracy, in fractions."""
    bins = [[3, 2, 2, 1], [1, 2, 1, 2]]

    def matrices(histogram):
        """Cells at each threshold; what lies above it is predicted positive."""
        found = []
        for place in range(3):
            (tn, fp), (fn, tp) = ((sum(row[: place + 1]), sum(row[place + 1 :])) for row in histogram)
            found.append((tn, fp, fn, tp))
        return found

    def best(histogram):
        right = [tn + tp for tn, _, _, tp in matrices(histogram)]
        return right.index(max(right))

    kept, crossed = matrices(bins)[best(bins)], [Fraction(0)] * 4
    for drawn in itertools.product(*(range(number + 1) for row in bins for number in row)):
        first = [list(drawn[:4]), list(drawn[4:])]
        second = [[whole - part for whole, part in zip(*rows, strict=True)] for rows in zip(bins, first, strict=True)]
        ways = math.prod(math.comb(number, part) for number, part in zip(bins[0] + bins[1], drawn, strict=True))
        halves = zip(matrices(second)[best(first)], matrices(first)[best(second)], strict=True)
        crossed = [sum_ + Fraction(ways * (a + b), 2**14) for sum_, (a, b) in zip(crossed, halves, strict=True)]
    assert min(abs(new - old) for old, new in zip(kept, crossed, strict=True)) > 0.25

    monkeypatch.setattr(thresholds, "REPEATS", 8000)
    generator = torch.Generator().manual_seed(0)
    found = thresholds.corrected_counts(torch.tensor(bins), 3, imbtorch.accuracy, generator).flatten().tolist()
    for old, new, value in zip(kept, crossed, found, strict=True):
        assert (value - old) / float(new - old) == pytest.approx(0.75, abs=0.02)


def test_intervals_of_each_value_and_label():
    generator = torch.Generator().manual_seed(0)
    sweep, _, _ = swept(samples=400, also=ALSO, **LABELS)
    found = sweep.compute()
    for name in ("threshold", *ALSO):
        interval = sweep.interval(name, generator=generator)
        assert interval.low.shape == (2,)
        expected = [found[f"{name}/{label}"].item() for label in ("cat", "dog")]
        assert interval.estimate.tolist() == pytest.approx(expected)
        assert (interval.low <= interval.estimate).all()
        assert (interval.estimate <= interval.high).all()
    wide, narrow = sweep.interval("auc", level=0.99), sweep.interval("auc", level=0.5)
    assert (wide.low < narrow.low).all()
    with pytest.raises(ValueError, match="name must be one of 'threshold', 'value', 'auc'"):
        sweep.interval("iam")
    with pytest.raises(ValueError, match="level must lie in"):
        sweep.interval("threshold", level=1.0)
    with pytest.raises(ValueError, match="average precision has no interval at another prevalence"):
        swept(prevalence=[0.99, 0.01])[0].interval("average_precision")
    weighted = ThresholdSweep("f1", weighted=True)
    weighted.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    for refused in (lambda: weighted.interval("auc"), lambda: weighted.best(at_least={"recall": 0.5})):
        with pytest.raises(ValueError, match="sums of weights are not"):
            refused()
    assert weighted.best().recall == 1


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


# --- operating points -----------------------------------------------------------------------------------------------


def oracle_points(logits, target):
    """Recall, precision and share of alerts at each cut between scores, and at none."""
    precision, recall, cuts = sk.precision_recall_curve(target, logits)
    alerts = np.array([(logits.numpy() >= cut).mean() for cut in cuts])
    return recall[:-1], precision[:-1], alerts


def test_limits_and_costs_against_all_cuts():
    sweep, logits, target = swept("precision", samples=600)
    recall, precision, alerts = oracle_points(logits, target)
    generator = torch.Generator().manual_seed(0)
    point = sweep.best(at_least={"recall": 0.8}, generator=generator)
    assert point.value == point.precision == pytest.approx(precision[recall >= 0.8].max())
    assert point.recall >= 0.8
    assert 0.3 < point.holds["recall"] < 0.8
    assert point.sure is None
    of_budget = swept("recall", samples=600)[0].best(alerts=0.05, generator=generator)
    assert of_budget.recall == pytest.approx(recall[alerts <= 0.05].max())
    assert of_budget.alerts <= 0.05
    both = swept("f1", samples=600)[0].best({"precision": 0.5}, alerts=0.1, generator=generator)
    f1 = 2 * precision * recall / (precision + recall)
    assert both.value == pytest.approx(f1[(precision >= 0.5) & (alerts <= 0.1)].max())
    assert list(both.holds) == ["precision", "alerts"]
    cheapest = sweep.best(costs=[[0.0, 1.0], [20.0, 0.0]])
    positives = int(target.sum())
    bills = alerts * 600 - recall * positives + 20 * (1 - recall) * positives
    (_, fp), (fn, _) = cheapest.counts.tolist()
    assert fp + 20 * fn == pytest.approx(bills.min())


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("highest", [0.9, 1.0, math.inf])
def test_flagging_nobody_is_a_candidate(logits, highest):
    """At 1 % positives and useless scores the cheapest cut between scores costs more than no alert, .01 a sample."""
    scores = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if logits:
        scores = scores.logit()
    scores[0] = highest if logits else min(highest, 1.0)  # one beyond which no threshold of the default lies
    target = torch.zeros(1000, dtype=torch.long)
    target[1::100] = 1
    sweep = ThresholdSweep("f1", logits=logits)
    sweep.update(scores, target)
    bills = [
        (Fraction(1, 1000) * int((target[scores > cut] == 0).sum() + (target[scores <= cut] == 1).sum()))
        for cut in scores.tolist()
    ]
    assert min(bills) == bills[int(scores.argmax())] == Fraction(1, 100)  # the highest score flags nobody
    for limits in ({}, {"alerts": 0.005}, {"alerts": 1e-6}, {"at_least": {"specificity": 0.9}}):
        with pytest.warns(UserWarning, match="flags nobody: value 0.000, recall 0.000"):
            point = sweep.best(costs=[[0, 1], [1, 0]], **limits)
        assert point.counts.tolist() == [[990, 0], [10, 0]]
        metric = sweep.metric(imbtorch.ExpectedCost, at=point, costs=[[0.0, 1.0], [1.0, 0.0]])
        assert metric(scores, target).item() == pytest.approx(0.01)


def test_nothing_is_chosen_without_both_classes():
    sweep, nothing = ThresholdSweep("f1", also=ALSO), ThresholdSweep("f1")
    sweep.update(torch.tensor([0.2, 0.6]), torch.tensor([0, 0]))
    with pytest.warns(UserWarning, match="no target"):
        sweep.compute()
    with pytest.warns(UserWarning, match="counted no sample"):
        nothing.compute()
    for each in (sweep, nothing):
        for refused in (each.best, lambda each=each: each.metric(imbtorch.FScore)):
            with pytest.raises(ValueError, match="no threshold can be chosen without positive and negative targets"):
                refused()
        for name in ("value", "threshold", *ALSO):
            with pytest.raises(ValueError, match=f"{name}' has no interval without positive and negative targets"):
                each.interval(name)
    labels = ThresholdSweep("f1", also=ALSO, **LABELS)
    labels.update(torch.tensor([[0.2, 0.6], [0.7, 0.1], [0.9, 0.8]]), torch.tensor([[0, 0], [1, 0], [1, 0]]))
    with pytest.warns(UserWarning, match="no positive target: dog"):
        labels.compute()
    with pytest.raises(ValueError, match="without positive and negative targets of dog; count samples of both"):
        labels.best()
    for name in ("value", "threshold", *ALSO):
        interval = labels.interval(name)
        for part in (interval.estimate, interval.low, interval.high):
            assert part.isnan().tolist() == [False, True]


def test_an_ignored_class_has_no_operating_point():
    target = torch.arange(200) % 3
    scores = (torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(3)[target]).softmax(1)
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3, per_class=True, ignore_index=1)
    sweep.update(scores, target)
    sweep.compute()
    points = sweep.best()
    assert list(points) == ["0", "2"]
    assert points["2"].counts.sum().item() == int((target != 1).sum())


def test_a_floor_that_is_asked_for_surely_is_truly_met():
    """Recall .8 in the population itself, which a floor on the sample alone misses half the time and more."""
    generator = torch.Generator().manual_seed(0)
    plain, told, sure = [], [], []
    for seed in range(30):
        sweep, _, _ = swept("precision", samples=400, seed=seed)
        point = sweep.best({"recall": 0.8}, generator=generator)
        plain.append(rates_of(point.threshold)[1] >= 0.8)
        told.append(point.holds["recall"])
        point = sweep.best({"recall": 0.8}, sure=0.9, generator=generator)
        assert point.sure == 0.9
        sure.append(rates_of(point.threshold)[1] >= 0.8)
    assert np.mean(plain) < 0.65
    assert abs(np.mean(plain) - np.mean(told)) < 0.15
    assert np.mean(sure) >= 0.82


def test_the_probability_of_a_recall_is_that_of_an_order_statistic():
    sweep, _, _ = swept("precision", samples=600)
    point = sweep.best({"recall": 0.8}, generator=torch.Generator().manual_seed(0))
    _, (fn, tp) = point.counts.tolist()
    assert point.holds["recall"] == pytest.approx(stats.beta.sf(0.8, tp, fn + 1), abs=0.04)


def test_what_cannot_be_met_is_said_with_what_can():
    sweep, logits, target = swept(samples=600)
    recall, _, alerts = oracle_points(logits, target)
    highest = recall[alerts <= 0.02].max()
    with pytest.raises(ValueError, match=rf"recall >= 0.9 and alerts <= 0.02: .*recall then is {highest:.4g}"):
        sweep.best({"recall": 0.9}, alerts=0.02)
    three = {"recall": 0.9, "precision": 0.9, "specificity": 0.999}
    with pytest.raises(ValueError, match=r"no threshold has recall >= 0.9 .*: without any one of them none keeps the"):
        sweep.best(three, alerts=0.001)
    with pytest.raises(ValueError, match=r"promised to have recall >= 0.99 at sure=0.999 \("):
        sweep.best({"recall": 0.99}, sure=0.999)
    labels, _, _ = swept(samples=300, **LABELS)
    with pytest.raises(ValueError, match=r"(cat|dog): no threshold has"):
        labels.best({"recall": 0.99, "precision": 0.99})
    for bad, message in (
        ({"at_least": {"recal": 0.8}}, "at_least must be one of"),
        ({"at_least": {"expected_cost": 0.8}}, "at_least"),
        ({"at_least": {"dominance": 0.8}}, "less is better or nothing"),
        ({"alerts": 50}, r"alerts must be a share.*50 in 10,000 are 0\.005"),
        ({"sure": 0.9}, "sure is the level of a promise"),
        ({"at_least": {"recall": 0.8}, "sure": 90}, r"sure must be a probability in \(0, 1\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            sweep.best(**bad)


@pytest.mark.parametrize(("costs", "words"), [([[0, 1], [0, 1]], "nobody"), ([[1, 0], [1, 0]], "everybody")])
def test_a_threshold_that_tells_nothing_apart_says_so(costs, words):
    sweep, _, _ = swept(samples=300)
    with pytest.warns(UserWarning, match=f"tells no samples apart: .*flags {words}"):
        point = sweep.best(costs=costs)
    assert f"which flags {words}" in str(point)


def test_net_benefit_is_swept_at_one_price():
    """That of its own threshold would make .001 the best of all: right alarms of everybody, false ones for nothing."""
    _, logits, target = swept(samples=600)
    chances = logits.sigmoid()
    priced = functools.partial(imbtorch.NetBenefit, threshold=0.2)
    cuts = [0.0, *chances.tolist()]
    expected = max(
        Fraction(int(target[chances > cut].sum()), 600) - Fraction(int((1 - target)[chances > cut].sum()), 600 * 4)
        for cut in cuts
    )
    for measure in (
        priced,
        functools.partial(imbtorch.net_benefit, threshold=0.2),
        imbtorch.NetBenefit("binary", threshold=0.2),
    ):
        sweep = swept(measure, samples=600)[0]
        assert sweep.compute()["value"].item() == pytest.approx(float(expected), abs=1e-6)
        assert sweep.best(alerts=0.9).value == pytest.approx(float(expected))
        metric = sweep.metric(imbtorch.ConfusionMatrix)
        found = imbtorch.net_benefit(metric(logits, target), threshold=0.2)
        assert found.item() == pytest.approx(float(expected))
    for unpriced in (imbtorch.NetBenefit, imbtorch.net_benefit, "net_benefit", functools.partial(imbtorch.NetBenefit)):
        with pytest.raises(ValueError, match=r"measure names NetBenefit, which prices.*partial\(NetBenefit, threshold"):
            ThresholdSweep(unpriced)
    with pytest.raises(ValueError, match=r"at_least names net_benefit, which prices .*costs"):
        swept(samples=100)[0].best({"net_benefit": 0.0})


def test_a_measure_without_a_direction_is_refused_whichever_way_it_is_given():
    ways = (imbtorch.Dominance, imbtorch.Dominance("binary"), imbtorch.dominance, "dominance")
    for without in (*ways, functools.partial(imbtorch.Dominance), functools.partial(imbtorch.dominance)):
        with pytest.raises(ValueError, match="measure Dominance has no direction in which it could be best"):
            ThresholdSweep(without)
    logits, target = drawn(300)
    chances = logits.sigmoid()
    sweep = ThresholdSweep(lambda counts: -imbtorch.dominance(counts).abs(), chances.sort().values)
    sweep.update(chances, target)
    gap = min(
        abs(
            Fraction(int(target[chances > cut].sum()), int(target.sum()))
            - Fraction(int((1 - target)[chances <= cut].sum()), int((1 - target).sum()))
        )
        for cut in chances.tolist()
    )
    assert sweep.compute()["value"].item() == pytest.approx(-float(gap), abs=1e-6)
    upwards = swept((imbtorch.dominance, True), samples=300)[0]
    assert upwards.compute()["value"] == 1
    assert upwards["value"].higher_is_better is True


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sweep: sweep.best(alerts="x"), "alerts must be a number, got 'x'"),
        (lambda sweep: sweep.best({"recall": "x"}), r"at_least\['recall'\] must be a number, got 'x'"),
        (lambda sweep: sweep.best({"recall": 0.1}, sure="x"), "sure must be a number, got 'x'"),
        (lambda sweep: sweep.interval("value", level="x"), "level must be a number, got 'x'"),
        (lambda sweep: sweep.best([0.8]), "at_least must be a dict of floors"),
    ],
)
def test_what_is_no_number_is_named(call, message):
    with pytest.raises(TypeError, match=message):
        call(swept(samples=100)[0])


# --- another population ---------------------------------------------------------------------------------------------


def test_everything_is_read_at_the_prevalence():
    """As if each negative had come eleven times: what scikit-learn makes of those weights."""
    logits, target = drawn(1000)
    positives = int(target.sum())
    weight = torch.where(target == 1, 1.0, 11.0).numpy()
    prevalence = [11 * (1000 - positives), positives]
    sweep = ThresholdSweep("f1", logits=True, also=ALSO[:2], prevalence=prevalence)
    sweep.update(logits, target)
    found = sweep.compute()
    assert found["average_precision"].item() == pytest.approx(
        sk.average_precision_score(target, logits, sample_weight=weight), abs=2e-3
    )
    assert found["auc"].item() == pytest.approx(sk.roc_auc_score(target, logits), abs=1e-3)
    assert sweep.prevalence == tuple(map(float, prevalence))
    chances = [found["threshold"].item()]
    preds = logits > math.log(chances[0] / (1 - chances[0]))
    assert found["value"].item() == pytest.approx(sk.f1_score(target, preds, sample_weight=weight), abs=1e-6)
    point = sweep.best(alerts=0.01, generator=torch.Generator().manual_seed(0))
    preds = (logits > math.log(point.threshold / (1 - point.threshold))).numpy()
    assert point.alerts <= 0.01
    assert point.alerts == pytest.approx(np.average(preds, weights=weight))
    assert point.precision == pytest.approx(sk.precision_score(target, preds, sample_weight=weight))
    value = sweep.interval("value", generator=torch.Generator().manual_seed(0))
    assert value.low < found["value"] < value.high + 0.1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_stays_nothing_at_other_shares(seed, weighted):
    """NPV where all are flagged is 0/0; a difference of sums left 1e-17 of either class, and values up to 2."""
    generator = torch.Generator().manual_seed(seed)
    scores, target = torch.rand(200, generator=generator, dtype=torch.float64), (torch.arange(200) < 13).long()
    weight = torch.tensor([1 / 187, 1 / 13], dtype=torch.float64)[target]
    sweep = ThresholdSweep("npv", 101, **({"weighted": True} if weighted else {"prevalence": [1, 1]}))
    sweep.update(scores, target, **({"weight": weight} if weighted else {}))
    expected = []
    for cut in sweep.thresholds.tolist():
        below = (
            weight[(scores <= cut) & (target == 0)].sum().item(),
            weight[(scores <= cut) & (target == 1)].sum().item(),
        )
        expected.append(below[0] / sum(below) if sum(below) else 0.0)
    assert sweep.result().curve()[1].tolist() == pytest.approx(expected, abs=1e-9)
    assert sweep.compute()["value"].item() == pytest.approx(max(expected), abs=1e-6)


def test_the_prevalence_of_labels_and_classes():
    sweep, _, target = swept("f1", **LABELS, prevalence=[0.5, 0.5])
    alone = ThresholdSweep("f1", logits=True, prevalence=[1, 1])
    alone.update(*drawn(2000))
    assert sweep.compute()["value/cat"] == alone.compute()["value"]
    classes = ThresholdSweep("f1", task="multiclass", num_classes=2, per_class=True, logits=True, prevalence=[1, 1])
    logits, target = drawn(2000)
    classes.update(torch.stack((torch.zeros_like(logits), logits), 1), target)
    assert classes.compute()["value/1"] == alone.compute()["value"]
    with pytest.raises(ValueError, match="prevalence must hold one share for each of 2 classes"):
        ThresholdSweep("f1", prevalence=0.01)
    with pytest.raises(ValueError, match="also must be one of 'auc'"):
        ThresholdSweep("f1", also=["aucc"])
    with pytest.raises(TypeError, match=r"also=\('auc',\)"):
        ThresholdSweep("f1", also="auc")


# --- handing on -----------------------------------------------------------------------------------------------------


def test_a_metric_is_made_with_the_threshold_that_was_chosen():
    sweep, logits, target = swept(ignore_index=-1)
    metric = sweep.metric(imbtorch.FScore)
    assert metric(logits, target) == sweep.compute()["value"]
    assert (metric.logits, metric.ignore_index) == (True, -1)
    point = sweep.best(alerts=0.02, generator=torch.Generator().manual_seed(0))
    assert sweep.metric(imbtorch.Recall, at=point)(logits, target).item() == pytest.approx(point.recall)
    two = sweep.metric(functools.partial(imbtorch.FScore, beta=2.0), soft=False)
    assert two.threshold == metric.threshold
    report = sweep.metric(imbtorch.ImbalanceReport, measures=["f1"], prefix="test_")
    assert report(logits, target)["test_f1"] == sweep.compute()["value"]


def test_a_metric_of_labels_has_a_threshold_for_each():
    sweep, logits, target = swept(**LABELS)
    metric = sweep.metric(imbtorch.FScore, average="none")
    assert metric(logits, target).tolist() == [sweep.compute()[f"value/{label}"].item() for label in ("cat", "dog")]
    points = sweep.best({"recall": 0.6}, generator=torch.Generator().manual_seed(0))
    found = sweep.metric(imbtorch.Recall, at=points, average="none")(logits, target)
    assert found.tolist() == pytest.approx([points[label].recall for label in ("cat", "dog")])
    classes = ThresholdSweep("f1", task="multiclass", num_classes=2, per_class=True)
    classes.update(torch.tensor([[0.2, 0.8], [0.7, 0.3]]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="have no thresholds; make one with task='binary'"):
        classes.metric(imbtorch.FScore)


# --- processes and graphs -------------------------------------------------------------------------------------------


def of_a_share(rank, world):
    logits, target = drawn(300)
    sweep = ThresholdSweep("f1", logits=True, also=ALSO, prevalence=[0.99, 0.01])
    sweep.update(logits[rank::world], target[rank::world])
    found = {name: value.item() for name, value in sweep.compute().items()}
    point = sweep.best({"recall": 0.5}, generator=torch.Generator().manual_seed(0))
    return found, str(point), sweep.interval("value", generator=torch.Generator().manual_seed(0)).low.item()


def test_any_number_of_processes_chooses_alike():
    alone = of_a_share(0, 1)
    for world in (2, 3):
        assert launch(world, of_a_share) == [alone] * world


def test_an_update_is_traced_as_one_graph():
    sweep, expected = (ThresholdSweep("f1", logits=True, also=ALSO) for _ in range(2))
    logits, target = drawn(300)
    update = traced(lambda *batch: sweep.update(*batch))
    update(logits, target)
    expected.update(logits, target)
    assert sweep.compute() == expected.compute()
