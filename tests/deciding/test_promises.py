"""Promises of `thresholds.py`: their tests, by SciPy; the walks, step by step; and how often they are wrong."""

import math

import numpy as np
import pytest
import torch
from rooms import PROPORTIONS, matrices_of, promised
from scipy import stats

from imbtorch import ImbalanceReport, ThresholdSweep


def counted(samples=400, prevalence=0.15, apart=1.5, seed=0, step=0.0):
    """Counts ``[K, 2, 2]`` at a threshold beside each of K - 1 scores of two normal classes."""
    rng = np.random.default_rng(seed)
    target = rng.random(samples) < prevalence
    scores = rng.normal(size=samples) + apart * target
    scores = np.floor(scores / step) * step if step else scores
    values = np.unique(scores)
    bins = [[0, *((scores == value) & (target == label) for value in values)] for label in (0, 1)]
    return matrices_of(torch.tensor([[int(np.sum(each)) for each in row] + [0] for row in bins]))


def p_value(name, bound, counts):
    """Exact binomial test of a limit at one threshold, by SciPy."""
    (tn, fp), (fn, tp) = counts.tolist()
    successes, trials, floor = {
        "recall": (tp, tp + fn, bound),
        "specificity": (tn, tn + fp, bound),
        "alerts": (tn + fn, tn + fp + fn + tp, 1 - bound),
        "precision": (tp, tp + fp, bound),
        "npv": (tn, tn + fn, bound),
        "accuracy": (tp + tn, tn + fp + fn + tp, bound),
        "iou": (tp, tp + fp + fn, bound),
        "f1": (tp, tp + fp + fn, bound / (2 - bound)),
    }[name]
    return stats.binomtest(successes, trials, floor, "greater").pvalue if trials else 1.0


@pytest.mark.parametrize(("name", "bound"), [("recall", 0.8), ("specificity", 0.7), ("alerts", 0.2)])
def test_monotone_limits_are_promised_wherever_their_test_succeeds(name, bound):
    counts = counted()
    expected = [p_value(name, bound, each) <= 0.1 for each in counts]
    assert promised(name, bound, counts, 0.1).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_the_lowest_promised_recall_is_that_of_an_order_statistic():
    """The recall just below the k-th highest of P scores has the distribution Beta(k, P - k + 1)."""
    counts = counted()
    found = promised("recall", 0.7, counts, 0.2)
    fn, tp = counts[:, 1].T.tolist()
    chances = [stats.beta.sf(0.7, hits, missed + 1) if hits else 0.0 for hits, missed in zip(tp, fn, strict=True)]
    assert found.tolist() == [chance >= 0.8 for chance in chances]


def walked(chances, starts, error):
    """The fallback procedure, one test at a time: a failed test loses what it was given."""
    level, reached = 0.0, []
    for place, chance in enumerate(chances):
        level += error / len(starts) * starts.count(place)
        level = level if chance <= level else 0.0
        reached.append(level > 0)
    return reached


def walk_of_precision(counts, bound, error):
    """Promises of a precision, from few alerts to many."""
    order = list(reversed(counts.tolist()))
    chances = [p_value("precision", bound, torch.tensor(each)) for each in order]
    passing = [place for place, ((_, fp), (_, tp)) in enumerate(order) if bound ** (fp + tp) <= error / 3]
    starts = []
    for reach in (1 / 8, 1 / 4, 1 / 2):
        below = [
            place
            for place, ((_, fp), (fn, tp)) in enumerate(order)
            if bound * (fp + tp) == 0 or bound * (fp + tp) / (bound * (fp + tp) + fn) <= reach
        ]
        starts.append(max(passing[0], *below))
    return walked(chances, starts, error)[::-1]


@pytest.mark.parametrize("step", [0.0, 0.3])
@pytest.mark.parametrize("bound", [0.2, 0.35, 0.5, 0.8])
def test_precision_is_promised_along_a_walk(bound, step):
    counts = counted(step=step)
    found = promised("precision", bound, counts, 0.2)
    assert found.tolist() == walk_of_precision(counts, bound, 0.2)
    assert bool(found.any()) == (bound < 0.8)
    exchanged = counts.flip(0, 1, 2)
    assert promised("npv", bound, exchanged, 0.2).tolist() == found.tolist()[::-1]
    assert p_value("npv", bound, exchanged[0]) == p_value("precision", bound, counts[-1])


@pytest.mark.parametrize(("name", "bound"), [("f1", 0.35), ("iou", 0.25), ("accuracy", 0.8)])
def test_measures_with_a_peak_are_promised_along_walks_in_both_directions(name, bound):
    counts = counted(samples=600)
    few_first = counts.flip(0)
    alerts, positives = few_first[..., 1].sum(-1).tolist(), counts[0, 1].sum().item()
    chances = [p_value(name, bound, each) for each in few_first]
    starts = [
        max(place for place, number in enumerate(alerts) if number <= 2 ** (third / 3) * positives)
        for third in range(-3, 4)
    ]
    chances = [0.0 if place in starts and p <= 0.1 / 7 else p for place, p in enumerate(chances)]
    more = walked(chances, starts, 0.05)[::-1]
    fewer = walked(chances[::-1], [len(chances) - 1 - start for start in starts], 0.05)
    found = promised(name, bound, counts, 0.1).tolist()
    assert found == [one or other for one, other in zip(more, fewer, strict=True)]
    assert 0 < sum(found) < len(found)


@pytest.mark.parametrize("name", PROPORTIONS)
def test_limits_that_no_test_is_needed_for_or_can_show(name):
    counts = counted(samples=60)
    nothing, everything = (1.0, 0.0) if name == "alerts" else (0.0, 1.0)
    assert promised(name, nothing, counts, 0.1).all()
    assert not promised(name, everything, counts, 0.1).any()


def test_a_walk_over_few_samples_finds_nothing():
    counts = torch.tensor([[[0, 3], [0, 2]], [[3, 0], [0, 2]], [[3, 0], [2, 0]]])
    for name in PROPORTIONS:
        assert not promised(name, 0.1 if name == "alerts" else 0.9, counts, 0.01).any()


def test_promises_are_about_the_measures_that_reports_show():
    counts, names = torch.tensor([[70, 20], [4, 6]]), list(PROPORTIONS)
    report = ImbalanceReport("binary", measures=[name for name in names if name != "alerts"])
    report.update(torch.tensor([0, 1, 0, 1]).repeat_interleave(counts.flatten()), torch.tensor([0] * 90 + [1] * 10))
    values = {**report.compute(), "alerts": torch.tensor(0.26)}
    for name, proportion in PROPORTIONS.items():
        cells = counts.flatten()
        share = (cells * torch.tensor(proportion.successes)).sum() / (cells * torch.tensor(proportion.trials)).sum()
        assert proportion.floor(values[name].item()) == pytest.approx(share.item(), abs=1e-6)


@pytest.mark.parametrize(
    ("apart", "prevalence", "name", "bound"),
    [(0.0, 0.3, "precision", 0.301), (1.5, 0.15, "precision", 0.5), (0.0, 0.1, "npv", 0.901), (1.5, 0.15, "f1", 0.505)],
)
def test_few_samples_make_a_promise_that_does_not_hold(apart, prevalence, name, bound):
    """At .8, with useless scores or a bound that the scores just miss or reach; truth by the normal distribution."""
    rng, runs, wrong = np.random.default_rng(1), 200, 0
    for _ in range(runs):
        target = rng.random(300) < prevalence
        scores = np.stack((rng.normal(size=300) + apart * target, target), 1)
        scores = scores[scores[:, 0].argsort()]
        positive = torch.tensor(scores[:, 1]).long()
        counts = matrices_of(torch.stack((1 - positive, positive)))
        found = promised(name, bound, counts, 0.2).nonzero().flatten()
        if not len(found):
            continue
        recall = counts[found, 1, 1]
        place = int(found[recall.argmin() if name == "npv" else recall.argmax()])
        tpr, fpr = (stats.norm.sf(scores[place, 0] - shift) for shift in (apart, 0))
        tp, fp, fn = prevalence * tpr, (1 - prevalence) * fpr, prevalence * (1 - tpr)
        tn = 1 - tp - fp - fn
        wrong += {"precision": tp / (tp + fp), "npv": tn / (tn + fn), "f1": 2 * tp / (2 * tp + fp + fn)}[name] < bound
    assert wrong / runs <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / runs)


def test_a_narrow_peak_of_f1_is_found():
    """Six tenths of the positives lie above nearly all negatives: F1 is .75 there, .66 at half as many alerts."""
    rng, runs, made, wrong = np.random.default_rng(0), 150, 0, 0
    for _ in range(runs):
        target = rng.random(1000) < 0.1
        easy = rng.random(1000) < 0.6
        scores = rng.normal(size=1000) + target * np.where(easy, 6.0, 0.5)
        order = scores.argsort()
        positive = torch.from_numpy(target[order]).long()
        counts = matrices_of(torch.stack((1 - positive, positive)))
        found = promised("f1", 0.66, counts, 0.1).nonzero().flatten()
        if len(found):
            cuts = scores[order][found.numpy()]  # a score below each threshold
            tp, fp = 0.1 * (0.6 * stats.norm.sf(cuts, 6) + 0.4 * stats.norm.sf(cuts, 0.5)), 0.9 * stats.norm.sf(cuts)
            made += 1
            wrong += bool((2 * tp / (tp + fp + 0.1) < 0.66).any())
    assert made / runs > 0.3  # .02 with starts at half as many, as many and twice as many
    assert wrong / runs <= 0.1


# --- of a sweep -----------------------------------------------------------------------------------------------------


def swept(measure="recall", **arguments):
    rng = np.random.default_rng(0)
    target = rng.random(2000) < 0.1
    sweep = ThresholdSweep(measure, logits=True, **arguments)
    sweep.update(torch.from_numpy(rng.normal(size=2000) + 2.5 * target), torch.from_numpy(target).long())
    sweep.compute()
    return sweep


def test_the_best_of_the_promised_thresholds_is_kept():
    """The highest recall of all cuts between scores at which the oracle promises a precision."""
    sweep = swept(at_least={"precision": 0.5})
    point = sweep.best(sure=0.9)
    counts = sweep.result().matrices()
    distinct = torch.stack(sorted(counts.unique(dim=0), key=lambda each: each[:, 0].sum().item()))
    kept = distinct[torch.tensor(walk_of_precision(distinct, 0.5, 0.1))]
    assert point.counts[1, 1] == kept[:, 1, 1].max()
    assert point.sure == 0.9
    assert 0.8 < point.holds["precision"] < 1
    assert "; promised at sure=0.9" in str(point)
    assert sweep.best(at_least={"precision": 0.5}).sure is None
    assert "promised" not in str(sweep.best(at_least={"precision": 0.5}))


def test_every_limit_is_promised_at_the_full_level():
    sweep = swept("f1")
    point = sweep.best(at_least={"recall": 0.6, "precision": 0.5}, alerts=0.15, sure=0.9)
    for name, bound in (("recall", 0.6), ("precision", 0.5), ("alerts", 0.15)):
        assert p_value(name, bound, point.counts) <= 0.1
    assert list(point.holds) == ["recall", "precision", "alerts"]


def test_promises_that_cannot_be_made_say_why():
    sweep = swept("f1")
    with pytest.raises(
        ValueError, match=r"promised to have precision >= 0.97 at sure=0.99 \(precision >= 0.97 at none\)"
    ):
        sweep.best(at_least={"precision": 0.97}, sure=0.99)
    with pytest.raises(
        ValueError, match=r"\(each limit at some, but never all at one\); count more samples, lower sure"
    ):
        sweep.best(at_least={"recall": 0.78, "precision": 0.54}, sure=0.9)
    for name in ("balanced_accuracy", "gmean", "mcc", "cba", "iam"):
        with pytest.raises(
            ValueError, match=f"sure= cannot promise '{name}'.*it can promise recall, specificity, alerts"
        ):
            sweep.best(at_least={name: 0.1}, sure=0.9)
    assert 0.9 < swept("f1").best(at_least={"mcc": 0.3}).holds["mcc"] <= 1  # without a promise
    with pytest.raises(ValueError, match="cannot promise 'accuracy' at the prevalence, because it depends on"):
        swept("f1", prevalence=[0.99, 0.01]).best(at_least={"accuracy": 0.1}, sure=0.9)
    weighted = ThresholdSweep("f1", weighted=True)
    weighted.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="sums of weights are not"):
        weighted.best(at_least={"recall": 0.5}, sure=0.9)


# --- in the constructor ---------------------------------------------------------------------------------------------


def test_a_sweep_logs_and_its_rule_holds_the_promised_threshold():
    """The oracle: the cut of highest recall among those whose precision the walk of the test above promises."""
    sweep = swept(at_least={"precision": 0.5}, sure=0.9)
    counts = sweep.result().matrices()
    distinct = torch.stack(sorted(counts.unique(dim=0), key=lambda each: each[:, 0].sum().item()))
    kept = distinct[torch.tensor(walk_of_precision(distinct, 0.5, 0.1))]
    found = sweep.compute()
    assert found["value"].item() == pytest.approx((kept[:, 1, 1].max() / kept[0, 1].sum()).item())
    assert sweep.rule.threshold == found["threshold"] == sweep.best().threshold
    assert sweep.best().sure == 0.9
    assert found["threshold"] > swept(at_least={"precision": 0.5}).compute()["threshold"]
    assert "sure=0.9" in repr(sweep)
    assert sweep.best(at_least={}).sure is None
    assert sweep.best(at_least={"precision": 0.4}, sure=0.6).sure == 0.6


@pytest.mark.slow
def test_a_promised_recall_is_missed_by_as_few_rules_as_it_says():
    """True recall of a threshold t of two normal classes: P(N(2, 1) > t)."""
    rng, missed, sets = np.random.default_rng(1), 0, 300
    for _ in range(sets):
        target = rng.random(400) < 0.2
        sweep = ThresholdSweep("precision", logits=True, at_least={"recall": 0.8}, sure=0.9)
        sweep.update(torch.from_numpy(rng.normal(size=400) + 2 * target), torch.from_numpy(target).long())
        threshold = sweep.compute()["threshold"].logit().item()
        missed += stats.norm.sf(threshold, 2) < 0.8
    assert 0 < missed / sets < 0.1 + 3 * math.sqrt(0.1 * 0.9 / sets)


def test_where_nothing_can_be_promised_the_worst_value_is_logged():
    with pytest.warns(UserWarning, match=r"no threshold can be promised to have precision >= 0.97 at sure=0.99"):
        sweep = swept(at_least={"precision": 0.97}, sure=0.99)
    assert sweep.compute()["value"] == 0
    with pytest.raises(ValueError, match="can be promised"):
        sweep.interval("value")


def test_a_sweep_that_could_not_promise_is_refused():
    for arguments, text in (
        ({"sure": 0.9}, "add at_least="),
        ({"sure": 0.4, "at_least": {"recall": 0.8}}, r"sure must be a probability in \[0.5, 1\)"),
        ({"sure": 0.9, "at_least": {"mcc": 0.8}}, "cannot promise 'mcc'"),
        ({"sure": 0.9, "at_least": {"recall": 0.8}, "clusters": True}, "needs independent samples"),
        ({"sure": 0.9, "at_least": {"f1": 0.5}, "prevalence": [0.9, 0.1]}, "cannot promise 'f1' at the prevalence"),
    ):
        with pytest.raises(ValueError, match=text):
            ThresholdSweep("precision", **arguments)


def test_the_held_out_value_and_gain_of_a_promised_threshold_name_its_limits():
    sweep = swept("precision", at_least={"recall": 0.7}, sure=0.9)
    generator = torch.Generator().manual_seed(0)
    assert "on held-out samples recall 0." in sweep.interval("value", generator=generator).method
    assert "on held-out samples recall 0." in sweep.gain(generator=generator).method
