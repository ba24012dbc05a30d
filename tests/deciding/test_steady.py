"""The steady choice of a threshold against loops over every threshold, and what it gains on other samples."""

import math

import numpy as np
import pytest
import torch
from rooms import (
    counts_at,
    gain_interval,
    held_out,
    objective_of,
    single_threshold,
    steady,
    steady_threshold,
    sweep_settings,
)
from sklearn import metrics as sk
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sweeps import data, drawn, rates_of

import imbtorch
from imbtorch import ThresholdSweep

GRID = torch.tensor([0.0, 0.05, 0.2, 0.35, 0.45, 0.6, 0.7, 0.9, 0.99, 1.0], dtype=torch.float64)


def odds_of(threshold):
    threshold = min(max(threshold, 0.05), 0.99)  # 0 and 1 count as the outermost thresholds between them
    return math.log(threshold / (1 - threshold))


def value_at(histogram, place):
    """Balanced accuracy of a histogram of two lists."""
    (negatives, positives) = histogram
    return (sum(negatives[: place + 1]) / sum(negatives) + sum(positives[place + 1 :]) / sum(positives)) / 2


def best_by_loops(histogram):
    values = [value_at(histogram, place) for place in range(len(GRID))]
    tied = [place for place, value in enumerate(values) if value >= max(values) - 1e-12]
    return min(tied, key=lambda place: (abs(odds_of(GRID[place].item())), place))


def histogram_of(seed, samples=60):
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(samples, generator=generator) < 0.3).long()
    bins = torch.randint(len(GRID) + 1, (samples,), generator=generator)
    bins = (bins + 3 * target).clamp(max=len(GRID))
    histogram = torch.zeros(2, len(GRID) + 1, dtype=torch.long)
    histogram.index_put_((target, bins), torch.tensor(1), accumulate=True)
    return histogram


@pytest.mark.parametrize("seed", range(20))
def test_the_mean_of_the_best_of_resamples_against_loops(monkeypatch, seed):
    """Without the check for few values, which has tests of its own."""
    monkeypatch.setattr(steady, "EXPLAINED", math.inf)
    histogram = histogram_of(seed)
    cells = histogram.flatten()
    held = cells.nonzero().flatten()
    draws = np.random.default_rng(0).multinomial(60, (cells[held] / 60).double().numpy(), 100)
    bests = []
    for times in draws:
        whole = np.zeros(len(cells), dtype=int)
        whole[held.numpy()] = times
        rows = whole.reshape(2, -1).tolist()
        if all(map(sum, rows)):
            bests.append(odds_of(GRID[best_by_loops(rows)].item()))
    mean = sum(bests) / len(bests)
    nearest = sorted(range(len(GRID)), key=lambda place: abs(odds_of(GRID[place].item()) - mean))
    assert steady_threshold(histogram, GRID.logit(), imbtorch.balanced_accuracy) == min(
        (place for place in nearest if odds_of(GRID[place].item()) == odds_of(GRID[nearest[0]].item())),
        key=lambda place: abs(GRID[place].item() - 0.5),
    )
    assert single_threshold(histogram, GRID.logit(), imbtorch.balanced_accuracy) == best_by_loops(histogram.tolist())


def test_it_is_steadier_and_better_than_the_single_best_threshold():
    """Test F1 of 20 positives by the normal distribution, over 40 samples of 200."""
    steady_values, single_values, steady_odds, single_odds = [], [], [], []
    for seed in range(40):
        logits, target = drawn(200, seed=seed)
        sweep = ThresholdSweep("f1", logits=True)
        sweep.update(logits, target)
        found = sweep.compute()["threshold"].item()
        single = sweep.thresholds[
            single_threshold(sweep.result().counts, sweep.thresholds.logit(), objective_of(sweep))
        ]
        for threshold, values, odds in (
            (found, steady_values, steady_odds),
            (single.item(), single_values, single_odds),
        ):
            false, true = rates_of(threshold)
            values.append(2 * 0.1 * true / (0.1 * true + 0.9 * false + 0.1))
            odds.append(math.log(threshold / (1 - threshold)))
    assert np.mean(steady_values) > np.mean(single_values) + 0.005
    assert np.std(steady_odds) < 0.8 * np.std(single_odds)


def test_hard_predictions_keep_a_threshold_of_a_half():
    scores, target = (
        torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]).repeat(20),
        torch.tensor([0, 1, 0, 1, 1, 0]).repeat(20),
    )
    for measure in ("f1", "balanced_accuracy", "iam", "accuracy"):
        for thresholds in (None, 11):
            sweep = ThresholdSweep(measure, thresholds)
            sweep.update(scores, target)
            assert sweep.compute()["threshold"] == 0.5


def test_a_mean_that_falls_where_everything_is_flagged_is_not_taken():
    """In a part of the resamples flagging everything is best, at .5; a mean with .9 lies below all scores."""
    scores = torch.tensor([0.9] * 40 + [0.95] * 40)
    target = torch.tensor([0] * 22 + [1] * 18 + [0] * 12 + [1] * 28)
    sweep = ThresholdSweep("balanced_accuracy")
    sweep.update(scores, target)
    found = sweep.compute()
    assert 0.9 <= found["threshold"] < 0.95
    assert found["value"].item() == pytest.approx(sk.balanced_accuracy_score(target, scores > 0.92), abs=1e-6)


@pytest.mark.filterwarnings("ignore:ThresholdSweep. .* fall between two thresholds")
def test_a_small_forest_keeps_the_value_of_the_best_threshold():
    """Scores are multiples of a fifth, so that a mean of two thresholds may flag other samples than both."""
    lost = []
    for seed in range(12):
        x, y = make_classification(1200, 10, n_informative=4, weights=[0.9], flip_y=0.01, random_state=seed)
        forest = RandomForestClassifier(5, max_depth=6, random_state=0).fit(x[:400], y[:400])
        scores, target = torch.from_numpy(forest.predict_proba(x[400:700])[:, 1]), torch.from_numpy(y[400:700])
        sweep = ThresholdSweep("balanced_accuracy")
        sweep.update(scores, target)
        best = max(sk.balanced_accuracy_score(target, scores > cut) for cut in [-1.0, *scores.unique().tolist()])
        lost.append(best - sweep.compute()["value"].item())
    assert np.mean(lost) < 0.02
    assert max(lost) < 0.1


def test_without_both_classes_the_threshold_is_a_half():
    for target in (torch.zeros(20).long(), torch.ones(20).long()):
        sweep = ThresholdSweep("accuracy")
        sweep.update(torch.rand(20), target)
        with pytest.warns(UserWarning, match="had no"):
            assert sweep.compute()["threshold"] == 0.5
    empty = ThresholdSweep("f1", 101)
    with pytest.warns(UserWarning, match="counted no sample"):
        assert empty.compute()["threshold"] == 0.5


def test_many_labels_take_the_best_threshold_nearest_a_half(monkeypatch):
    scores, target = data(torch.float64, (80, 3))
    monkeypatch.setattr(sweep_settings, "MOST_STEADY", 2)
    sweep = ThresholdSweep("f1", 101, "multilabel", num_labels=3)
    sweep.update(scores, target)
    found = sweep.compute()
    cuts = [index / 100 for index in range(101)]
    for label in range(3):
        values = [sk.f1_score(target[:, label], scores[:, label] > cut, zero_division=0) for cut in cuts]
        tied = [cut for cut, value in zip(cuts, values, strict=True) if value > max(values) - 1e-12]
        assert found[f"threshold/{label}"] == min(tied, key=lambda cut: abs(math.log((cut or 1e-9) / (1 - cut))))
        assert found[f"value/{label}"].item() == pytest.approx(max(values), abs=1e-6)


def agreement(counts):
    """Share of right predictions, from the matrix itself."""
    return counts.diagonal(dim1=-2, dim2=-1).sum(-1) / counts.sum((-2, -1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("measure", "oracle"), [("f1", sk.f1_score), ("mcc", sk.matthews_corrcoef), (agreement, sk.accuracy_score)]
)
def test_more_labels_than_fit_a_block_take_the_best_threshold(measure, oracle, weighted, monkeypatch):
    """Against scikit-learn at every threshold; the scores of a label lie between some of the thresholds only."""
    monkeypatch.setattr(sweep_settings, "MOST_STEADY", 2)
    generator = np.random.default_rng(0)
    target = generator.random((60, 40)) < 0.4
    scores = np.round(0.1 + 0.7 * generator.random((60, 40)) + 0.1 * target, 1) + 0.001
    weight = generator.random(60) if weighted else np.ones(60)
    sweep = ThresholdSweep(
        measure, 41, "multilabel", num_labels=40, also=("auc",), weighted=weighted, higher_is_better=True
    )
    given = {"weight": torch.from_numpy(weight)} if weighted else {}
    sweep.update(torch.from_numpy(scores), torch.from_numpy(target), **given)
    found, cuts = sweep.compute(), np.linspace(0, 1, 41)
    for label in (0, 31, 32, 39):
        sides = target[:, label], scores[:, label]
        values = [oracle(sides[0], sides[1] > cut, sample_weight=weight) for cut in cuts]
        tied = [cut for cut, value in zip(cuts, values, strict=True) if value > max(values) - 1e-9]
        nearest = min(abs(cut - 0.5) for cut in tied)
        assert abs(found[f"threshold/{label}"].item() - 0.5) == pytest.approx(nearest)
        assert found[f"value/{label}"].item() == pytest.approx(max(values), abs=1e-6)
        area = sk.roc_auc_score(*sides, sample_weight=weight)
        assert found[f"auc/{label}"].item() == pytest.approx(area, abs=1e-6)
        single = sweep.interval("auc").estimate[label].item() if not weighted else area
        assert single == pytest.approx(area)


@pytest.mark.parametrize("measure", ["f1", "iam"])
def test_forward_and_compute_of_one_batch_agree(measure):
    for seed in range(10):
        logits, target = drawn(150, seed=seed)
        sweep = ThresholdSweep(measure, logits=True)
        assert sweep(logits, target) == sweep.compute()


# --- on other samples -----------------------------------------------------------------------------------------------


def test_no_sample_takes_part_in_the_choice_that_it_is_counted_at():
    histogram, seen = histogram_of(0, samples=300), []

    def choose(rest):
        seen.append(histogram - rest)
        return len(seen) % 5

    found = held_out(histogram, choose, torch.Generator().manual_seed(0))
    counts = sum(counts_at(own, (index + 1) % 5) for index, own in enumerate(seen))
    assert len(seen) == found.folds == 20
    assert torch.equal(sum(seen), 2.0 * histogram)
    torch.testing.assert_close(found.counts, counts / 2)


def test_folds_without_a_choice_are_left_out():
    histogram, calls = histogram_of(1, samples=300), []

    def choose(rest):
        calls.append(rest)
        return None if len(calls) % 2 else 4

    found = held_out(histogram, choose, torch.Generator().manual_seed(0))
    own = sum(counts_at(histogram - rest, 4) for rest in calls[1::2])
    assert found.failed == 10
    expected = own / own.sum(-1, keepdim=True) * histogram.sum(-1, keepdim=True)
    torch.testing.assert_close(found.counts, expected)


def test_the_gain_over_a_half():
    """The estimate is that of the held-out counts; its range holds the gain on large data."""
    logits, target = drawn(400, seed=3)
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(logits, target)
    found = sweep.gain(generator=torch.Generator().manual_seed(0))
    raw = sweep.compute()["value"].item() - sk.f1_score(target, logits > 0)
    assert found.low < found.estimate < found.high
    assert found.estimate.item() < raw + 0.02
    (false, true), (false_half, true_half) = rates_of(sweep.compute()["threshold"].item()), rates_of(0.5)
    truth = 0.2 * true / (0.1 * true + 0.9 * false + 0.1) - 0.2 * true_half / (0.1 * true_half + 0.9 * false_half + 0.1)
    assert found.low < truth < found.high
    wrong = ThresholdSweep(
        lambda counts: counts[..., 1, 0] + counts[..., 0, 1] * 1.0, higher_is_better=False, logits=True
    )
    wrong.update(*drawn(400, seed=3))
    fewer = wrong.gain(generator=torch.Generator().manual_seed(0))
    assert fewer.low <= fewer.estimate <= fewer.high


def test_a_threshold_of_a_half_gains_nothing_over_itself():
    histogram = histogram_of(2)
    counts = counts_at(histogram.double(), 4)
    found = gain_interval(histogram, 4, 4, imbtorch.balanced_accuracy, counts, 0.95, torch.Generator().manual_seed(0))
    assert (found.low, found.estimate, found.high) == (0, 0, 0)


# --- buckets of clusters --------------------------------------------------------------------------------------------


def test_equal_buckets_choose_the_single_best_threshold():
    """Every resample of equal buckets is the same set of samples."""
    for seed in range(5):
        histogram = histogram_of(seed)
        buckets = histogram.expand(7, *histogram.shape)
        assert steady_threshold(buckets, GRID.logit(), imbtorch.balanced_accuracy) == best_by_loops(histogram.tolist())


def test_the_mean_of_the_best_of_resampled_buckets_against_loops(monkeypatch):
    """Of many resamples by NumPy; the choice may be the next threshold of the grid."""
    monkeypatch.setattr(steady, "EXPLAINED", math.inf)
    for seed in range(5):
        buckets = torch.stack([histogram_of(10 * seed + index, 12) for index in range(6)])
        random, bests = np.random.default_rng(seed), []
        for _ in range(300):
            whole = buckets[random.integers(6, size=6)].sum(0).tolist()
            if all(map(sum, whole)):
                bests.append(odds_of(GRID[best_by_loops(whole)].item()))
        chosen = odds_of(GRID[steady_threshold(buckets, GRID.logit(), imbtorch.balanced_accuracy)].item())
        nearest = min(abs(odds_of(each.item()) - np.mean(bests)) for each in GRID)
        assert abs(chosen - np.mean(bests)) <= nearest + 0.4


def test_no_bucket_takes_part_in_the_choice_that_it_is_counted_at():
    """Each of five buckets has another number of negatives, by which the missing one is known."""
    buckets = torch.zeros(6, 2, 8, dtype=torch.long)
    for index in range(5):
        buckets[index, 0, 0], buckets[index, 1, index + 1] = 2**index, 3
    places = []

    def choose(some):
        missing = 31 - int(some[:, 0].sum())
        places.append(missing.bit_length() - 1)
        return places[-1]

    found = held_out(buckets, choose, torch.Generator().manual_seed(0))
    assert sorted(places) == list(range(5))  # the sixth one is empty
    # bucket i holds its positives in bin i + 1, which is above the threshold i
    assert found.counts.tolist() == [[[2**index, 0], [0, 3]] for index in range(5)]
    assert (found.failed, found.folds) == (0, 5)


def test_more_buckets_than_ten_are_held_out_in_ten_groups():
    buckets = torch.stack([histogram_of(seed, 12) for seed in range(33)])
    sizes = []

    def choose(some):
        sizes.append(33 - len(some))
        return None if len(sizes) == 1 else 4

    found = held_out(buckets, choose)
    assert sorted(sizes) == [3] * 7 + [4] * 3
    assert (found.failed, found.folds) == (1, 10)
    assert found.counts.sum() == 12 * (33 - sizes[0])


def test_the_range_of_a_gain_covers_with_clusters():
    """Patients of one class whose 20 samples are equal; the threshold gains what the population says."""
    held = {True: 0, False: 0}
    for seed in range(40):
        logits, target = drawn(40, prevalence=0.3, seed=seed)
        logits = logits - 2.0  # so that a half is too high
        ids = torch.arange(40).repeat_interleave(20)
        for clusters in held:
            sweep = ThresholdSweep("balanced_accuracy", 129, logits=True, clusters=clusters)
            given = {"cluster": ids} if clusters else {}
            sweep.update(logits.repeat_interleave(20), target.repeat_interleave(20), **given)
            places = sweep.compute()["threshold"].item(), 0.5
            shifted = [1 / (1 + math.exp(-math.log(place / (1 - place)) - 2.0)) for place in places]
            rates = [rates_of(place, 0.3) for place in shifted]
            truth = sum(sign * (true - false) / 2 for sign, (false, true) in zip((1, -1), rates, strict=True))
            found = sweep.gain(generator=torch.Generator().manual_seed(seed))
            held[clusters] += bool(found.low <= truth <= found.high)
    assert held[True] >= 0.88 * 40
    assert held[False] <= 0.75 * 40
