"""Thresholds under limits and costs, against all cuts, and the correction for having chosen."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from rooms import thresholds
from scipy import stats
from sweeps import ALSO, LABELS, oracle_points, rates_of, swept

import imbtorch
from imbtorch import ThresholdSweep

# --- intervals ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_best_value_is_corrected_for_having_been_chosen():
    """F1 of 20 positives is too high; truth by the normal distribution."""
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
    assert np.mean(raw) > 0.02
    assert abs(np.mean(corrected)) < 0.04
    assert np.mean(held) > 0.85


# --- operating points -----------------------------------------------------------------------------------------------


def test_limits_and_costs_against_all_cuts():
    sweep, logits, target = swept("precision", samples=600)
    recall, precision, alerts = oracle_points(logits, target)
    generator = torch.Generator().manual_seed(0)
    point = sweep.best(at_least={"recall": 0.8}, generator=generator)
    assert point.value == point.precision == pytest.approx(precision[recall >= 0.8].max())
    assert point.recall >= 0.8
    assert 0.3 < point.holds["recall"] < 0.8
    assert point.sure is None
    of_budget = swept("recall", samples=600, alerts=0.05)[0].best(generator=generator)
    assert of_budget.recall == pytest.approx(recall[alerts <= 0.05].max())
    assert of_budget.alerts <= 0.05
    both = swept("f1", samples=600)[0].best(at_least={"precision": 0.5}, alerts=0.1, generator=generator)
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
    """At 1% positives and useless scores the cheapest cut between scores costs more than no alert, .01 a sample."""
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


def test_a_floor_that_is_asked_for_surely_is_truly_met():
    """Recall .8 in the population itself, which a floor on the sample alone misses half the time and more."""
    generator = torch.Generator().manual_seed(0)
    plain, told, sure = [], [], []
    for seed in range(30):
        sweep, _, _ = swept("precision", samples=400, seed=seed)
        point = sweep.best(at_least={"recall": 0.8}, generator=generator)
        plain.append(rates_of(point.threshold)[1] >= 0.8)
        told.append(point.holds["recall"])
        point = sweep.best(at_least={"recall": 0.8}, sure=0.9, generator=generator)
        assert point.sure == 0.9
        sure.append(rates_of(point.threshold)[1] >= 0.8)
    assert np.mean(plain) < 0.65
    assert abs(np.mean(plain) - np.mean(told)) < 0.15
    assert np.mean(sure) >= 0.82


def test_the_probability_of_a_recall_is_that_of_an_order_statistic():
    sweep, _, _ = swept("precision", samples=600)
    point = sweep.best(at_least={"recall": 0.8}, generator=torch.Generator().manual_seed(0))
    _, (fn, tp) = point.counts.tolist()
    assert point.holds["recall"] == pytest.approx(stats.beta.sf(0.8, tp, fn + 1), abs=0.04)


def test_the_probabilities_of_limits_on_few_samples(monkeypatch):
    """Where one pseudo-count more or less moves a probability by .05 or more; of negatives that of Jeffreys' prior."""
    monkeypatch.setattr(thresholds, "DRAWS", 100_000)
    sweep = ThresholdSweep("precision")
    sweep.update(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]), torch.tensor([0, 0, 1, 0, 1, 1, 1, 1]))
    limits = {"recall": 0.75, "specificity": 0.75}
    point = sweep.best(at_least=limits, generator=torch.Generator().manual_seed(0))
    assert point.counts.tolist() == [[3, 0], [1, 4]]
    assert point.holds["recall"] == pytest.approx(stats.beta.sf(0.75, 4, 2), abs=0.01)
    assert point.holds["specificity"] == pytest.approx(stats.beta.sf(0.75, 3.5, 0.5), abs=0.01)


def test_a_threshold_without_a_value_is_never_chosen():
    """Precision as a division: 2/3, 1/2 and 1 at the cuts between the scores, nan where nothing is flagged."""
    sweep = ThresholdSweep(lambda counts: counts[..., 1, 1] / counts[..., 1].sum(-1))
    sweep.update(torch.tensor([0.1, 0.3, 0.6, 0.8]), torch.tensor([0, 1, 0, 1]))
    assert sweep.best().value in (0.5, 2 / 3, 1)
    point = sweep.best(at_least={"recall": 0.25})
    assert point.value == 1
    assert point.counts.tolist() == [[2, 0], [1, 1]]


def test_what_cannot_be_met_is_said_with_what_can():
    sweep, logits, target = swept(samples=600)
    recall, _, alerts = oracle_points(logits, target)
    highest = recall[alerts <= 0.02].max()
    with pytest.raises(ValueError, match=rf"alerts <= 0.02: .*recall with the other limits is {highest:.4g}"):
        sweep.best(at_least={"recall": 0.9}, alerts=0.02)
    three = {"recall": 0.9, "precision": 0.9, "specificity": 0.999}
    with pytest.raises(ValueError, match=r"has recall >= 0.9 .*: even without any one of them, no threshold"):
        sweep.best(at_least=three, alerts=0.001)
    with pytest.raises(ValueError, match=r"promised to have recall >= 0.99 at sure=0.999 \("):
        sweep.best(at_least={"recall": 0.99}, sure=0.999)
    labels, _, _ = swept(samples=300, **LABELS)
    with pytest.raises(ValueError, match=r"(cat|dog): no threshold has"):
        labels.best(at_least={"recall": 0.99, "precision": 0.99})
    for bad, message in (
        ({"at_least": {"recal": 0.8}}, "at_least must be one of"),
        ({"at_least": {"expected_cost": 0.8}}, "at_least"),
        ({"at_least": {"dominance": 0.8}}, "higher values of it are not better"),
        ({"alerts": 50}, r"alerts must be a share.*150 of 5,000 rows a day is 0\.03"),
        ({"sure": 0.9}, "sure is the probability that limits hold"),
        ({"at_least": {"recall": 0.8}, "sure": 90}, r"sure must be a probability in \[0.5, 1\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            sweep.best(**bad)
