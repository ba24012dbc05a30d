"""Counts at each tau against one argmax per tau, in any dtype, shape, chunks and on the path of devices."""

import numpy as np
import pytest
import torch
from adjustments import TAUS, decided, expected_margins, long_tail
from rooms import AdjustedMargins, adjusted_margins, classes_at_each_tau, counter_of, state_name, state_of

import imbtorch
from imbtorch import LogitAdjustmentSweep


def counted(sweep):
    return [part.numpy() for part in counter_of(sweep).counts(state_of(sweep))]


def same(found, expected):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.fixture(params=["cpu", "device"])
def path(request):
    if request.param == "device":
        request.getfixturevalue("accelerator")


@pytest.mark.default_cases(
    "cpu-dtype0-3",
    "cpu-dtype1-40",
    "cpu-dtype2-17",
    "cpu-dtype3-2",
    "device-dtype0-16",
    "device-dtype1-2",
    "device-dtype2-40",
    "device-dtype3-17",
)
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("classes", [2, 3, 16, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_one_argmax_for_each_tau(classes, dtype):
    logits, target, prior = long_tail(700, classes)
    logits = logits.to(dtype)
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    for some, truth in zip(logits.split(300), target.split(300), strict=True):
        sweep.update(some, truth)
    assert same(counted(sweep), expected_margins(decided(logits, prior), target, classes))


@pytest.mark.usefixtures("path")
def test_tied_logits_give_the_lowest_class():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(3, (500, 6), generator=generator).float() / 4  # many ties, also after shifts of log 2
    target, prior = torch.randint(6, (500,), generator=generator), torch.tensor([4, 2, 2, 1, 1, 1])
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(logits, target)
    chosen = decided(logits, prior)
    plain = chosen[TAUS.index(0)]
    assert (logits == logits.amax(1, keepdim=True)).sum(1).gt(1).any()
    assert plain.tolist() == [row.index(max(row)) for row in logits.tolist()]
    assert same(counted(sweep), expected_margins(chosen, target, 6))


@pytest.mark.usefixtures("path")
def test_probabilities_with_zeros():
    logits, target, prior = long_tail(400, 4)
    chances = logits.softmax(1)
    chances[:, 3] = torch.where(torch.arange(400) % 3 == 0, 0.0, chances[:, 3])
    chances /= chances.sum(1, keepdim=True)
    sweep = LogitAdjustmentSweep("f1", prior)
    sweep.update(chances, target)
    chosen = decided(chances.log(), prior)
    assert chosen[-1][chances[:, 3] > 0].eq(3).any()
    assert not chosen[:, chances[:, 3] == 0].eq(3).any()  # a class without any probability is never chosen
    assert same(counted(sweep), expected_margins(chosen, target, 4))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("ignored", [None, -100, 2])
def test_several_positions_and_ignored_targets(ignored):
    logits, target, prior = long_tail(600, 3)
    scores = logits.reshape(20, 5, 6, 3).movedim(-1, 1)
    truth = target.reshape(20, 5, 6).clone()
    if ignored is not None:
        truth[:, 0] = ignored
    sweep = LogitAdjustmentSweep("recall", prior, logits=True, ignore_index=ignored)
    sweep.update(scores, truth)
    kept = torch.ones_like(truth, dtype=torch.bool) if ignored is None else truth != ignored
    chosen = decided(scores, prior)
    assert same(counted(sweep), expected_margins(chosen[:, kept], truth[kept], 3))


@pytest.mark.usefixtures("path")
def test_frequencies_repeat_rows():
    logits, target, prior = long_tail(90, 4)
    times, patients = torch.arange(90) % 4, torch.arange(90) % 7
    one, other = (LogitAdjustmentSweep("recall", prior, logits=True) for _ in range(2))
    one.update(logits, target, cluster=patients, frequency=times)
    other.update(
        *(each.repeat_interleave(times, 0) for each in (logits, target)), cluster=patients.repeat_interleave(times)
    )
    assert torch.equal(state_of(one)[:-2], state_of(other)[:-2])  # the last two are numbers of rows
    assert state_of(one).sum() > 90


@pytest.mark.usefixtures("path")
def test_clusters_stay_in_one_bucket():
    logits, target, prior = long_tail(300, 3)
    sweep = LogitAdjustmentSweep("recall", prior, logits=True)
    patients = torch.arange(300) % 5
    sweep.update(logits, target, cluster=patients)
    own = imbtorch.counting.clusters.bucket_of_each(torch.arange(5))
    right, actual, predicted = counter_of(sweep).of_buckets(state_of(sweep))
    assert actual.sum((1, 2)).nonzero().flatten().tolist() == sorted(set(own.tolist()))
    for bucket in set(own.tolist()):
        mine = own[patients] == bucket
        expected = expected_margins(decided(logits, prior)[:, mine], target[mine], 3)
        assert same([part[bucket].expand(right[0].shape).numpy() for part in (right, actual, predicted)], expected)


def test_samples_without_clusters_spread_over_the_buckets_alike_in_any_chunks():
    logits, target, prior = long_tail(640, 3)
    whole, chunks = (LogitAdjustmentSweep("recall", prior, logits=True) for _ in range(2))
    whole.update(logits, target)
    for some, truth in zip(logits.split(100), target.split(100), strict=True):
        chunks.update(some, truth)
    assert torch.equal(state_of(whole), state_of(chunks))
    sizes = counter_of(whole).of_buckets(state_of(whole)).actual.sum((1, 2))
    assert int(sizes.sum()) == 640
    assert 0 < sizes.min() <= sizes.max() < 25


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"target": 3}, "target holds class 3 but num_classes=3 allows 0..2"),
        ({"score": float("nan")}, "NaN scores"),
        ({"score": -0.2}, r"probabilities in \[0, 1\]"),
        ({"score": 0.9}, "sum to 1 over the classes"),
    ],
)
def test_invalid_samples_are_refused_and_nothing_is_counted(bad, text):
    logits, target, prior = long_tail(50, 3)
    chances = logits.softmax(1)
    chances[7] = torch.tensor([0.5, 0.3, 0.2])
    sweep = LogitAdjustmentSweep("recall", prior)
    sweep.update(chances, target)
    before = state_of(sweep).clone()
    wrong, truth = chances.clone(), target.clone()
    if "target" in bad:
        truth[7] = bad["target"]
    else:
        wrong[7, 2] = bad["score"]
        if bad["score"] == -0.2:
            wrong[7] = torch.tensor([0.9, 0.3, -0.2])
    if imbtorch.metrics.base.reading_is_free(wrong):
        with pytest.raises(ValueError, match=text):
            sweep.update(wrong, truth)
        assert torch.equal(state_of(sweep), before)
    else:
        sweep.update(wrong, truth)
        with pytest.raises(ValueError, match="did not count 1 of the samples"):
            sweep.compute()
    lenient = LogitAdjustmentSweep("recall", prior, on_invalid="warn")
    lenient.update(wrong, truth)
    with pytest.warns(UserWarning, match="did not count 1 of the samples"):
        lenient.compute()
    kept = torch.arange(50) != 7
    assert same(counted(lenient), expected_margins(decided(chances.log(), prior)[:, kept], target[kept], 3))


def test_predictions_that_are_no_scores_are_refused():
    sweep = LogitAdjustmentSweep("recall", [3, 2, 1])
    with pytest.raises(TypeError, match="floating scores"):
        sweep.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"num_classes=3"):
        sweep.update(torch.rand(2, 4), torch.tensor([0, 1]))


def test_other_priors_and_grids_have_other_states():
    counting = LogitAdjustmentSweep("recall", [3, 2, 1], logits=True)
    others = (
        LogitAdjustmentSweep("recall", [3, 1, 1], logits=True),
        LogitAdjustmentSweep("recall", [3, 2, 1], logits=True, taus=[0, 1]),
        LogitAdjustmentSweep("recall", [3, 2, 1]),
    )
    assert len({state_name(each) for each in (counting, *others)}) == 4
    assert state_name(LogitAdjustmentSweep("f1", [30, 20, 10], logits=True)) == state_name(counting)


def test_large_batches_are_counted_in_blocks(monkeypatch):
    logits, target, prior = long_tail(1000, 3)
    monkeypatch.setattr(adjusted_margins, "BLOCK", 64)
    monkeypatch.setattr(adjusted_margins, "IN_CACHE", 50)
    monkeypatch.setattr(adjusted_margins, "AT_ONCE", 5000)
    sweep = LogitAdjustmentSweep("recall", prior, logits=True)
    sweep.update(logits, target)  # more cells than samples and taus
    small = AdjustedMargins(sweep.counting, TAUS[:2], prior, torch.device("cpu"))
    state = small.zeros()
    small.add_(state, small.read(logits, target), defer=lambda: False)  # fewer
    chosen = decided(logits, prior)
    assert same(counted(sweep), expected_margins(chosen, target, 3))
    assert same([part.numpy() for part in small.counts(state)], expected_margins(chosen[:2], target, 3))
    assert torch.equal(classes_at_each_tau(counter_of(sweep), logits), chosen)
