"""Choice of tau over resampled buckets, its correction and its gain, against loops and simulated populations."""

import numpy as np
import pytest
import torch
from adjustments import TAUS, decided, long_tail
from rooms import Adjustments, InfeasibleError, Limit, counter_of, state_of, times_of
from scipy import stats

from imbtorch import LogitAdjustmentSweep, Margins, accuracy, balanced_accuracy, recall


def adjustments(samples=600, classes=4, seed=0, taus=TAUS, buckets=64):
    """Counts by a loop over buckets and taus, from an argmax for each tau."""
    logits, target, prior = long_tail(samples, classes, seed)
    chosen, own = decided(logits, prior, taus), torch.arange(samples) % buckets
    right, actual, predicted = (torch.zeros(buckets, size, classes).long() for size in (len(taus), 1, len(taus)))
    for bucket in range(buckets):
        truth = target[own == bucket]
        actual[bucket, 0] = truth.bincount(minlength=classes)
        for place, each in enumerate(chosen[:, own == bucket]):
            right[bucket, place] = truth[truth == each].bincount(minlength=classes)
            predicted[bucket, place] = each.bincount(minlength=classes)
    return Adjustments(taus, Margins(right, actual, predicted))


def value(found, place, times=None, measure=balanced_accuracy):
    times = torch.ones(64).double() if times is None else times
    right, actual, predicted = found.buckets
    parts = (right[:, place], actual[:, 0], predicted[:, place])
    return float(measure(Margins(*((times.unsqueeze(-1) * part).sum(0) for part in parts))))


def nearest(found, mean, allowed):
    return min(allowed, key=lambda place: (round(abs(found.taus[place] - mean), 9), abs(found.taus[place])))


def best_of(found, times, allowed, measure=balanced_accuracy):
    values = {place: value(found, place, times, measure) for place in allowed}
    return min(values, key=lambda place: (-values[place], abs(found.taus[place])))


def test_the_choice_is_the_mean_of_the_best_taus_of_resamples():
    found = adjustments(taus=(-0.5, 0.0, 0.5, 1.0, 1.5))
    every = range(5)
    best = [found.taus[best_of(found, times, every)] for times in times_of(found)]
    assert len(best) == 100
    assert len(set(best)) > 1
    assert times_of(found).sum(1).tolist() == [64] * 100
    assert found.chosen(balanced_accuracy, {}) == nearest(found, sum(best) / 100, every)


def test_floors_hold_on_all_samples():
    found = adjustments(taus=(0.0, 0.25, 0.5, 0.75, 1.0, 1.25))
    plain = value(found, 0, measure=accuracy)
    floor = plain - 0.06
    limits = {"accuracy": Limit(accuracy, floor, True)}
    best = []
    for times in times_of(found):
        feasible = [place for place in range(6) if value(found, place, times, accuracy) >= floor - 1e-12]
        best += [found.taus[best_of(found, times, feasible)]] if feasible else []
    allowed = [place for place in range(6) if value(found, place, None, accuracy) >= floor - 1e-12]
    chosen = found.chosen(balanced_accuracy, limits)
    assert 0 < len(best) < 100 or 0 < len(allowed) < 6
    assert chosen == nearest(found, sum(best) / len(best), allowed)
    assert chosen != found.chosen(balanced_accuracy, {})
    assert value(found, chosen, measure=accuracy) >= floor


def test_unreachable_floors_say_what_is_reachable():
    found = adjustments()
    limits = {"accuracy": Limit(accuracy, 0.99, True)}
    highest = max(value(found, place, None, accuracy) for place in range(len(TAUS)))
    with pytest.raises(InfeasibleError, match=f"no tau has accuracy >= 0.99: the highest accuracy is {highest:.4g}"):
        found.chosen(balanced_accuracy, limits)
    both = limits | {"recall": Limit(lambda counts: recall(counts, "none")[..., 3], 0.01, True)}
    with pytest.raises(InfeasibleError, match="the highest accuracy with the other limits is"):
        found.chosen(balanced_accuracy, both)


def test_ties_go_to_the_plain_rule():
    right = torch.ones(64, 3, 2).long()
    same = Adjustments((-1.0, 0.0, 1.0), Margins(right, torch.ones(64, 1, 2).long(), right))
    assert same.taus[same.chosen(balanced_accuracy, {})] == 0
    assert same.taus[same.chosen(lambda counts: counts.correct.sum(-1) * torch.nan, {})] == 0  # nothing is defined


def test_held_out_buckets_are_counted_at_the_tau_that_others_choose():
    found = adjustments(samples=300, taus=(0.0, 0.5, 1.0, 1.5))
    best = [best_of(found, times, range(4)) for times in times_of(found)]
    right = torch.zeros(4).long()
    places = []
    for bucket in range(64):
        without = [found.taus[each] for each, times in zip(best, times_of(found), strict=True) if times[bucket] == 0]
        assert 15 < len(without) < 60
        places.append(nearest(found, sum(without) / len(without), range(4)))
        right += found.buckets.correct[bucket, places[-1]]
    assert len(set(places)) > 1
    counts = found.held_out(balanced_accuracy, {})
    assert counts.correct.tolist() == right.tolist()
    assert counts.actual.tolist() == found.buckets.actual.sum((0, 1)).tolist()
    assert counts.predicted.sum() == counts.actual.sum()


@pytest.mark.slow
def test_the_estimate_of_the_gain_is_hardly_biased():
    """Of 60 samples of 300, with the truth from 200,000 others: the chosen value is too high, the estimate is not."""
    logits, target, prior = long_tail(200_000, 6, seed=99, gap=1.0)
    chosen = decided(logits, prior)
    truth = [float(sum((each == target)[target == k].double().mean() for k in range(6)) / 6) for each in chosen]
    naive, held = [], []
    for seed in range(60):
        logits, target, prior = long_tail(300, 6, seed, gap=1.0)
        found = counted(logits, target, prior)
        place = found.chosen(balanced_accuracy, {})
        naive.append(value(found, place) - value(found, found.plain) - truth[place] + truth[found.plain])
        estimate = found.gain(balanced_accuracy, {}, place, 0.95, torch.Generator().manual_seed(0)).estimate
        held.append(float(estimate) - truth[place] + truth[found.plain])
    naive, held = (torch.tensor(each).mean() for each in (naive, held))
    assert abs(held) < 0.7 * naive
    assert naive > 0.01


def counted(logits, target, prior):
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(logits, target)
    return Adjustments(TAUS, counter_of(sweep).of_buckets(state_of(sweep)))


def test_the_interval_of_the_gain_holds_the_estimate_and_the_gain_seen():
    found = adjustments(2000)
    place = found.chosen(balanced_accuracy, {})
    gain = found.gain(balanced_accuracy, {}, place, 0.95, torch.Generator().manual_seed(0))
    seen = value(found, place) - value(found, found.plain)
    held = found.held_out(balanced_accuracy, {})
    assert gain.estimate == pytest.approx(float(balanced_accuracy(held)) - value(found, found.plain))
    assert gain.low <= min(gain.estimate, seen) <= max(gain.estimate, seen) <= gain.high
    wide = found.gain(balanced_accuracy, {}, place, 0.99, torch.Generator().manual_seed(0))
    assert wide.low < gain.low < gain.high < wide.high


def test_one_bucket_gives_the_single_best():
    whole = adjustments()
    one = Adjustments(TAUS, Margins(*(part.sum(0, keepdim=True) for part in whole.buckets)))
    assert one.chosen(balanced_accuracy, {}) == best_of(whole, None, range(len(TAUS)))


def rarely_right(hits, rules_differ=True):
    """Two classes, one of them rare with 0 or 1 hits at both taus, in 64 buckets: 4 more false alarms at the second."""
    right, actual, predicted = torch.zeros(64, 2, 2).long(), torch.zeros(64, 1, 2).long(), torch.zeros(64, 2, 2).long()
    actual[..., 0], actual[:10, :, 1] = 3, 1
    right[..., 0], right[:hits, :, 1] = 3, 1
    predicted[..., 0] = actual.sum(-1)
    predicted[:hits] += torch.tensor([-1, 1])
    if rules_differ:
        right[60:, 1, 0] -= 1
        predicted[60:, 1] += torch.tensor([-1, 1])
    return Adjustments((0.0, 1.0), Margins(right, actual, predicted))


@pytest.mark.parametrize(("hits", "unlike"), [(0, 0.5), (1, 0.25)])
def test_the_range_reaches_gains_that_no_sample_shows(hits, unlike):
    """Oracle: buckets resampled by NumPy, with a pseudo-sample for each class, right under either rule by the half.

    Of a class without hits, the pseudo-sample differs between the rules by half a sample in either direction.
    """
    random, draws = np.random.default_rng(0), 40_000
    times = random.multinomial(64, np.full(64, 1 / 64), draws)
    totals = np.stack((3.0 * times.sum(1), times[:, :10].sum(1)), 1)
    agreeing = random.gamma(0.25, size=(2, draws, 2)).sum(0)
    gained, lost = random.gamma([0.25, unlike], size=(2, draws, 2))
    changed = gained - lost - np.stack((times[:, 60:].sum(1), np.zeros(draws)), 1)
    gains = (changed / (totals + agreeing + gained + lost)).mean(1)
    low, high = np.quantile(gains, [0.025, 0.975])
    seen, left_out = -4 / 192 / 2, np.array([-4 / 189 / 2] * 60 + [-3 / 189 / 2] * 4)
    change = (left_out - left_out.mean()) ** 2
    freedom = 3 * change.sum() ** 2 / (change**2).sum() - 3
    wider = stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975) * np.sqrt(64 / 63)  # as clusters of bootstrap
    low, high = (seen + wider * (end - seen) for end in (low, high))
    shift = 2 * (seen - gains.mean())
    found = rarely_right(hits).gain(balanced_accuracy, {}, 1, 0.95, torch.Generator().manual_seed(0))
    assert float(found.low) == pytest.approx(low + min(shift, 0), rel=0.08)
    assert found.estimate == 0  # others always choose the plain rule
    assert float(found.high) == pytest.approx(high + max(shift, 0) - seen, rel=0.08)
    assert found.high > 0.05  # resamples of the buckets alone never gain
    assert ("no sample of the rarest class is right" in found.method) == (hits == 0)


def test_the_plain_rule_gains_nothing_over_itself():
    same = rarely_right(0, rules_differ=False)
    found = same.gain(balanced_accuracy, {}, 0, 0.95, torch.Generator().manual_seed(0))
    assert (found.low, found.estimate, found.high) == (0, 0, 0)
    assert "is right" not in found.method


def test_pseudo_samples_keep_totals_and_margins_consistent():
    found = adjustments(samples=200, classes=5, taus=(0.0, 1.0))
    seen = []

    def measure(counts):
        seen.append(counts)
        return balanced_accuracy(counts)

    found.gain(measure, {}, 1, 0.95, torch.Generator().manual_seed(0))
    drawn = [counts for counts in seen if counts.actual.ndim == 2 and not bool((counts.actual % 1).any())]
    drawn = [counts for counts in drawn if bool((counts.correct % 1).any())]
    assert sum(len(counts.actual) for counts in drawn) == 2 * 2000  # of both rules
    for right, actual, predicted in drawn:
        assert bool(((right <= actual + 1e-9) & (right <= predicted + 1e-9)).all())
        torch.testing.assert_close(predicted.sum(-1), actual.sum(-1))


@pytest.mark.slow
def test_the_range_holds_the_gain_of_rare_classes():
    """A twentieth of 150 samples; the truth is that of 200,000 others. Resamples of the buckets alone hold .83."""
    logits, target, prior = long_tail(200_000, 4, seed=99, gap=2.0)
    each = [chosen == target for chosen in decided(logits, prior)]
    truth = [float(sum(right[target == k].double().mean() for k in range(4)) / 4) for right in each]
    held = []
    for seed in range(60):
        found = counted(*long_tail(150, 4, seed, gap=2.0))
        place = found.chosen(balanced_accuracy, {})
        gain = found.gain(balanced_accuracy, {}, place, 0.95, torch.Generator().manual_seed(0))
        held.append(bool(gain.low - 1e-9 <= truth[place] - truth[found.plain] <= gain.high + 1e-9))
    assert sum(held) >= 56
