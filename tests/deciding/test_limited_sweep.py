"""Sweeps with limits (`metrics/sweep.py`): the value at the chosen threshold, against scikit-learn at every cut."""

import functools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from report_cases import directed
from rooms import CATALOGUE, Counting, resolved, settings_text, state_of
from scipy import stats
from sklearn import metrics as sk
from sweeps import drawn, oracle_points
from torchmetrics.classification import BinaryPrecisionAtFixedRecall

import imbtorch
from imbtorch import ThresholdSweep

MISSED = directed(lambda counts: counts[..., 1, 0] * 1.0, False)  # a measure without bounds


def swept(measure="precision", samples=2000, prevalence=0.1, seed=0, **arguments):
    logits, target = drawn(samples, prevalence, seed)
    sweep = ThresholdSweep(measure, logits=True, **arguments)
    sweep.update(logits, target)
    return sweep, logits, target


@pytest.mark.parametrize("floor", [0.5, 0.8, 0.9, 0.99])
def test_precision_at_a_recall(floor):
    sweep, logits, target = swept(at_least={"recall": floor})
    recall, precision, _ = oracle_points(logits, target)
    found = sweep.compute()
    assert found["value"].item() == pytest.approx(precision[recall >= floor].max(), abs=0.01)  # of 4,097 thresholds
    predicted = logits.sigmoid() > found["threshold"].item()
    assert found["value"].item() == pytest.approx(sk.precision_score(target, predicted), abs=1e-6)
    assert sk.recall_score(target, predicted) >= floor
    pair = BinaryPrecisionAtFixedRecall(min_recall=floor)
    pair.update(logits.sigmoid(), target)
    assert found["value"].item() == pytest.approx(pair.compute()[0].item(), abs=0.01)


def test_recall_within_a_budget_of_alerts():
    sweep, logits, target = swept("recall", alerts=0.05)
    recall, _, alerts = oracle_points(logits, target)
    assert sweep.compute()["value"].item() == pytest.approx(recall[alerts <= 0.05].max(), abs=0.01)
    assert sweep.alerts == 0.05
    assert (logits.sigmoid() > sweep.compute()["threshold"]).double().mean() <= 0.05


def test_costs_choose_and_the_measure_is_logged():
    costs = [[0, 1], [20, 0]]
    sweep, logits, target = swept("f1", costs=costs)
    found = sweep.compute()
    above = [logits > cut for cut in logits]
    spent = [((each & (target == 0)) + 20 * (~each & (target == 1)).long()).double().mean() for each in above]
    predicted = logits.sigmoid() > found["threshold"].item()
    own = (1.0 * (predicted & (target == 0)) + 20.0 * (~predicted & (target == 1))).mean().item()
    assert own == pytest.approx(float(min(spent)), abs=0.004)
    assert found["value"].item() == pytest.approx(sk.f1_score(target, predicted), abs=1e-6)
    assert found["threshold"] == sweep.best(costs=costs).threshold < swept("f1")[0].compute()["threshold"]


def test_normal_samples_alone_keep_limits_of_false_alarms():
    """The lowest of all thresholds that keeps the limit, by a loop; SciPy's exact test for guarantees."""
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(1000, generator=generator).square(), torch.zeros(1000, dtype=torch.int64)
    sweep = ThresholdSweep("f1", 1001)
    sweep.update(scores, target)
    sweep.quiet = True
    flags = {cut: int((scores > cut).sum()) for cut in sweep.thresholds.float().tolist()}
    for most, limits in ((20, {"alerts": 0.02}), (10, {"at_least": {"specificity": 0.99}})):
        point = sweep.best(**limits)
        assert point.threshold == pytest.approx(min(cut for cut, number in flags.items() if number <= most))
        assert point.alerts == flags[float(np.float32(point.threshold))] / 1000
        assert all(map(math.isnan, (point.value, point.recall, point.precision)))
        assert "value, recall and precision undefined without positives" in " ".join(str(point).split())
        assert point.corrected is None
        sure = sweep.best(**limits, sure=0.9)
        passing = [cut for cut, n in flags.items() if stats.binom.cdf(n, 1000, most / 1000) <= 0.1]
        assert sure.threshold == pytest.approx(min(passing))
    for refused in ({}, {"at_least": {"recall": 0.5}}, {"alerts": 0.1, "at_least": {"precision": 0.1}}):
        with pytest.raises(ValueError, match="no threshold can be chosen without positive and negative targets"):
            sweep.best(**refused)
    of_clusters = ThresholdSweep("f1", 1001, clusters=True)
    of_clusters.quiet = True
    of_clusters.update(scores, target, cluster=torch.arange(1000) // 4)
    assert of_clusters.best(alerts=0.02).threshold == sweep.best(alerts=0.02).threshold
    assert 0.2 < of_clusters.best(alerts=0.02).holds["alerts"] < 0.8


def test_a_measure_that_is_best_at_an_end_needs_limits():
    generator = torch.Generator().manual_seed(0)
    histograms = torch.randint(0, 9, (40, 2, 12), generator=generator)
    for traits in CATALOGUE.values():
        name = traits.key
        if not traits.higher_is_better or traits.reads_threshold or name == "expected_cost":
            continue
        measure = resolved(name, name, Counting.of("binary"))
        of_ends = []
        for histogram in histograms:  # at thresholds below all scores, between bins, and above all
            counts = [[[h[:k].sum(), h[k:].sum()] for h in histogram] for k in range(13)]
            values = measure(torch.tensor(counts, dtype=torch.float64)).nan_to_num(nan=-torch.inf)
            of_ends.append(max(values[0], values[-1]) >= values.max() - 1e-9)
        assert traits.at_an_end == all(of_ends), name
    assert {traits.key for traits in CATALOGUE.values() if traits.at_an_end} == {"recall", "specificity"}
    scores, target = torch.rand(300, generator=generator), torch.arange(300) % 5 // 4
    for name in ("recall", "specificity"):
        alone = ThresholdSweep(name)
        alone.update(scores, target)
        with pytest.warns(UserWarning, match=f"{name} alone is best where all samples are flagged, or none"):
            alone.compute()
        alone.update(scores, target)
        alone.compute()  # told once; warnings are errors
        limits = {"alerts": 0.2} if name == "recall" else {"at_least": {"recall": 0.5}}
        limited = ThresholdSweep(name, **limits)
        limited.update(scores, target)
        limited.compute()  # warnings are errors
        assert limited.best().threshold == alone.result().best(**limits).threshold
    balanced = ThresholdSweep(functools.partial(imbtorch.recall, average="macro"))
    balanced.update(scores, target)
    balanced.compute()


def test_limits_that_no_value_reaches_are_refused_at_once():
    with pytest.raises(ValueError, match=r"at_least\['recall'\] is 90, but recall is at most 1; 90% is 0.9"):
        ThresholdSweep("f1", at_least={"recall": 90})
    with pytest.raises(ValueError, match=r"at_least\['recall'\] is 1.5, but recall is at most 1"):
        swept("f1")[0].best(at_least={"recall": 1.5})
    with pytest.raises(ValueError, match=r"alerts must be a share .*, got 150; 150 of 5,000 rows a day is 0.03"):
        ThresholdSweep("f1", alerts=150)
    with pytest.raises(ValueError, match="balanced_accuracy is at most 1"):
        imbtorch.LogitAdjustmentSweep("iam", [9, 1], logits=True, at_least={"balanced_accuracy": 90})
    assert ThresholdSweep("f1", at_least={"likelihood_ratio": 5}).at_least == {"likelihood_ratio": 5}


def test_what_is_logged_is_what_best_finds():
    free, *_ = swept("f1")
    for limits in ({"at_least": {"recall": 0.85}}, {"alerts": 0.03}, {"at_least": {"precision": 0.8}, "alerts": 0.2}):
        sweep, *_ = swept("f1", **limits)
        point = free.best(**limits)
        assert sweep.compute()["threshold"] == point.threshold
        assert sweep.compute()["value"].item() == pytest.approx(point.value, abs=1e-6)
        assert sweep.best().threshold == point.threshold  # without arguments, the limits of the sweep
        assert sweep.best(at_least={}).threshold == free.best().threshold == free.compute()["threshold"]
        assert sweep.metric(imbtorch.FScore).threshold == point.threshold


@pytest.mark.default_cases("precision-0")
@pytest.mark.parametrize(("measure", "worst"), [("precision", 0), ("mcc", -1), (MISSED, 1e38)])
def test_limits_that_nothing_keeps_log_the_worst_value_with_one_warning(measure, worst):
    sweep, logits, target = swept(measure, samples=300, at_least={"recall": 0.9, "specificity": 0.99})
    rates = [sk.recall_score(target, logits > cut, average=None) for cut in logits]
    highest = max(recall for specificity, recall in rates if specificity >= 0.99)
    with pytest.warns(UserWarning, match="the highest recall with the other limits is") as caught:
        found = sweep.compute()
    assert len(caught) == 1
    assert f"{highest:.4g}" in str(caught[0].message)
    again = sweep.compute()
    assert again == found
    assert found["threshold"].item() == pytest.approx(0.5, abs=0.01)
    assert found["value"].isfinite()
    assert found["value"] == worst if isinstance(measure, str) else found["value"] > worst
    with pytest.raises(ValueError, match=r"no threshold has recall >= 0\.9 and specificity >= 0\.99"):
        sweep.interval("value")
    with pytest.raises(ValueError, match=r"no threshold has recall >= 0\.9 and specificity >= 0\.99"):
        sweep.best()


def test_early_stopping_goes_on_without_a_feasible_threshold():
    from lightning.pytorch.callbacks import EarlyStopping

    sweep, *_ = swept(samples=300, at_least={"recall": 0.9, "specificity": 0.99})
    with pytest.warns(UserWarning, match="worst possible value, 0,"):
        value = sweep.compute()["value"]
    stop, _ = EarlyStopping("value", mode="max", patience=1)._evaluate_stopping_criteria(value)
    assert not stop


def test_labels_are_chosen_one_by_one():
    logits, target = drawn(1000, 0.3)
    both = torch.stack((logits, logits / 4 + torch.randn(1000, generator=torch.Generator().manual_seed(1))), 1)
    sweep = ThresholdSweep(
        "precision",
        task="multilabel",
        num_labels=2,
        class_names=["a", "b"],
        logits=True,
        at_least={"recall": 0.9, "specificity": 0.7},
    )
    sweep.update(both, torch.stack((target, target), 1))
    with pytest.warns(UserWarning, match="ThresholdSweep: b: no threshold has recall >= 0.9 and specificity >= 0.7"):
        found = sweep.compute()
    single = ThresholdSweep("precision", logits=True, at_least={"recall": 0.9, "specificity": 0.7})
    single.update(logits, target)
    assert found["value/a"] == single.compute()["value"] > 0
    assert found["threshold/a"] == single.compute()["threshold"]
    assert found["value/b"] == 0


def test_limits_hold_at_the_prevalence():
    sweep, logits, target = swept("recall", prevalence=0.3, at_least={"precision": 0.5})
    at = ThresholdSweep("recall", logits=True, at_least={"precision": 0.5}, prevalence=[0.99, 0.01])
    at.update(logits, target)
    found = at.compute()
    predicted = logits.sigmoid() > found["threshold"].item()
    recall, false = (predicted[target == k].double().mean().item() for k in (1, 0))
    assert 0.01 * recall / (0.01 * recall + 0.99 * false) >= 0.5
    assert found["threshold"] > sweep.compute()["threshold"]


def test_nothing_is_flagged_if_only_that_keeps_the_budget():
    sweep = ThresholdSweep("accuracy", 101, alerts=0.01)
    sweep.update(torch.ones(100), torch.arange(100) % 2)
    found = sweep.compute()
    assert found["threshold"] == 1
    assert found["value"] == 0.5


@pytest.mark.slow
def test_the_corrected_value_is_chosen_within_the_limits():
    """Simulated: the estimate is closer to the truth than the logged value; held-out recalls fall below the floor."""
    generator = torch.Generator().manual_seed(0)
    logged, told, recalls, true = [], [], [], []
    large, truth = drawn(200_000, 0.1, seed=77)
    for seed in range(40):
        sweep, *_ = swept("precision", samples=300, seed=seed, at_least={"recall": 0.8})
        found = sweep.compute()
        interval = sweep.interval("value", generator=generator)
        assert "held-out tenths, posterior; on held-out samples recall 0." in interval.method
        recalls.append(float(interval.method.split("recall ")[1][:5]))
        logged.append(found["value"].item())
        told.append(interval.estimate.item())
        predicted = large.sigmoid() > found["threshold"].item()
        true.append((predicted & (truth == 1)).sum().item() / predicted.sum().item())
    bias = np.mean(logged) - np.mean(true)
    assert bias > 0.01
    assert abs(np.mean(told) - np.mean(true)) < bias
    assert np.mean(recalls) < 0.8


@pytest.mark.slow
def test_tenths_without_a_feasible_threshold_are_told():
    highest = max(
        sk.f1_score(target, logits > cut)
        for _, logits, target in [swept("recall", samples=400)]
        for cut in logits
        if sk.precision_score(target, logits > cut, zero_division=0) >= 0.6
    )
    tight, *_ = swept("recall", samples=400, at_least={"precision": 0.6, "f1": highest - 1e-9})
    method = tight.interval("value", generator=torch.Generator().manual_seed(0)).method
    failed = int(method.split("no threshold keeps the limits without ")[1].split(" of 20 tenths")[0])
    assert 0 < failed < 20
    free, *_ = swept("f1", samples=400)
    assert free.interval("value", generator=torch.Generator().manual_seed(0)).method == "held-out tenths, posterior"


def test_results_keep_the_limits():
    sweep, *_ = swept(at_least={"recall": 0.9}, also=("auc", "partial_auc"))
    result = pickle.loads(pickle.dumps(sweep.result()))
    assert result.best().threshold == sweep.compute()["threshold"]
    interval = result.interval("threshold", generator=torch.Generator().manual_seed(0))
    assert interval.low <= interval.estimate <= interval.high
    assert sweep.compute()["threshold"].item() == pytest.approx(interval.estimate.item(), abs=0.01)


def test_without_both_classes_the_value_is_nan():
    sweep = ThresholdSweep("precision", at_least={"recall": 0.9})
    sweep.update(torch.rand(10), torch.zeros(10).long())
    with pytest.warns(UserWarning, match="had no target"):
        assert math.isnan(sweep.compute()["value"])


def test_limits_are_settings():
    sweep = ThresholdSweep("precision", at_least={"recall": 0.9}, alerts=0.1, costs=[[0, 1], [5, 0]])
    assert sweep.at_least == {"recall": 0.9}
    assert torch.equal(sweep.costs, torch.tensor([[0.0, 1.0], [5.0, 0.0]]).double())
    assert "at_least={'recall': 0.9}, alerts=0.1, costs=[[0.0, 1.0], [5.0, 0.0]]" in repr(sweep)
    assert settings_text(sweep) != settings_text(ThresholdSweep("precision", at_least={"recall": 0.8}))
    with pytest.raises(AttributeError, match="at_least cannot be changed"):
        sweep.at_least = {}
    for arguments, error, text in (
        ({"at_least": {"recal": 0.5}}, ValueError, "recal"),
        ({"alerts": 2}, ValueError, "share of samples"),
        ({"costs": [1, 2]}, ValueError, "costs"),
        ({"at_least": {"recall": 0.5}, "weighted": True}, ValueError, "at_least and alerts need probabilities"),
    ):
        with pytest.raises(error, match=text):
            ThresholdSweep("precision", **arguments)


def test_limits_of_a_call_add_to_those_of_the_sweep():
    sweep, *_ = swept("f1", at_least={"recall": 0.6}, alerts=0.5)
    both = sweep.best(alerts=0.12)  # of which the recall of .6 stays
    free, *_ = swept("f1")
    assert both.threshold == free.best(at_least={"recall": 0.6}, alerts=0.12).threshold
    both = free.best(at_least={"recall": 0.6, "precision": 0.5}, alerts=0.5)
    assert sweep.best(at_least={"precision": 0.5}).threshold == both.threshold
    replaced = free.best(at_least={"recall": 0.9}, alerts=0.5)
    assert sweep.best(at_least={"recall": 0.9}).threshold == replaced.threshold
    assert sweep.best(at_least={}).threshold == free.best().threshold


@pytest.mark.parametrize(("name", "floor"), [("precision", 0.02), ("npv", 0.995)])
def test_a_floor_at_the_prevalence_is_promised_as_one_at_the_odds_of_the_samples(name, floor):
    """By the rates of a matrix of exact fractions that is just at the floor."""
    sweep, logits, target = swept("f1", samples=3000, prevalence=0.1)
    at_prevalence = ThresholdSweep("f1", logits=True, prevalence=[0.99, 0.01])
    at_prevalence.update(logits, target)
    odds = Fraction(int(target.sum()), int((1 - target).sum())) / Fraction(1, 99)
    odds = odds if name == "precision" else 1 / odds
    scaled = Fraction(floor) / (1 - Fraction(floor)) * odds
    converted = float(scaled / (1 + scaled))
    promised = all_promised_at(sweep, {name: converted}, 0.9)
    assert all_promised_at(at_prevalence, {name: floor}, 0.9) == promised
    with pytest.raises(ValueError, match="cannot promise 'alerts' at the prevalence, because it depends on the number"):
        at_prevalence.best(alerts=0.1, sure=0.9)


def all_promised_at(sweep, floors, sure):
    """Lowest and highest threshold that a sweep promises, found by measures that prefer these."""
    ends = []
    for higher in (True, False):
        alerts = directed(lambda counts: counts[..., 1].sum(-1) / counts.sum((-2, -1)), higher)
        chosen = ThresholdSweep(alerts, logits=True, prevalence=sweep.prevalence)
        state_of(chosen).copy_(state_of(sweep))
        ends.append(chosen.result().best(at_least=floors, sure=sure).threshold)
    assert ends[0] < ends[1]
    return ends


def test_limits_that_nothing_keeps_tell_what_is_reachable():
    """Whoever loosens limits in a loop reads numbers, not texts; the error travels between processes."""
    scores, target = torch.tensor([0.1, 0.6, 0.4, 0.8]), torch.tensor([0, 0, 1, 1])
    sweep = ThresholdSweep("f1")
    sweep.update(scores, target)
    sweep.compute()
    with pytest.raises(imbtorch.InfeasibleError) as raised:
        sweep.best(at_least={"recall": 0.9, "precision": 0.9})
    pairs = [
        (sk.recall_score(target, scores > cut), sk.precision_score(target, scores > cut))
        for cut in (0.0, 0.2, 0.5, 0.7)
    ]
    reachable = {
        "recall": max(recall for recall, precision in pairs if precision >= 0.9),
        "precision": max(precision for recall, precision in pairs if recall >= 0.9),
    }
    assert raised.value.limits == {"recall": 0.9, "precision": 0.9}
    assert raised.value.reachable == pytest.approx(reachable)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.reachable) == (str(raised.value), raised.value.reachable)
    sweep.best(at_least={"recall": raised.value.reachable["recall"], "precision": 0.9})
    with pytest.raises(imbtorch.InfeasibleError) as raised:
        sweep.best(at_least={"recall": 0.9}, sure=0.99)
    assert (raised.value.limits, raised.value.reachable) == ({"recall": 0.9}, {})
