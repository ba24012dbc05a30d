"""Counts of random halves, part by part."""

from functools import partial

import pytest
import torch
from distributions import LEARNING, drawn, facts, half_sampled, seeded, splitmix64
from rooms import epochs, halves
from sklearn import metrics

from imbtorch import Margins, balanced_accuracy, cluster_ids, geometric_mean
from imbtorch.statistics import bootstrap, select_epoch

# --- clusters -------------------------------------------------------------------------------------------------------

IDS = cluster_ids(f"patient {number // 4}" for number in range(81))


def test_halves_of_clusters_agree_with_loops():
    predictions, target = drawn(LEARNING, [61, 20])
    ids = IDS[torch.randperm(81, generator=seeded(5))]
    found = select_epoch(predictions, target, balanced_accuracy, cluster=ids, repeats=25, generator=seeded(1))
    salts = torch.randint(-(2**63), 2**63 - 1, (25,), generator=seeded(1)).tolist()
    coins = [[splitmix64(each + salt) >> 63 for salt in salts] for each in ids.tolist()]
    kept, corrected, stability, alike, below = half_sampled(
        predictions, target, metrics.balanced_accuracy_score, torch.tensor(coins), 2
    )
    assert found.epoch == kept
    assert found.corrected == pytest.approx(balanced_accuracy(torch.from_numpy(corrected)).item())
    assert found.stability == pytest.approx(stability)
    assert (found.indistinguishable, found.shortfall) == (alike, pytest.approx(below))
    assert f"(95% Fay-Feuer of {len({splitmix64(each) >> 58 for each in ids.tolist()})} buckets)" in " ".join(
        str(found).split()
    )


def test_the_interval_of_a_single_epoch_resamples_buckets_of_its_clusters():
    predictions, target = drawn(LEARNING[3:4], [61, 20])
    choose = partial(select_epoch, predictions, target, balanced_accuracy, repeats=3, draws=400)
    found = choose(cluster=IDS, generator=seeded(2))
    generator = seeded(2)
    torch.randint(-(2**63), 2**63 - 1, (3,), generator=generator)
    buckets = [splitmix64(each) >> 58 for each in IDS.tolist()]
    counts = torch.zeros(64, 2, 2)
    for bucket, truth, predicted in zip(buckets, target.tolist(), predictions[0].tolist(), strict=True):
        counts[bucket, truth, predicted] += 1
    wanted = bootstrap(balanced_accuracy, counts, 400, generator=generator, clusters=True)
    assert (found.interval.low, found.interval.high) == (wanted.low, wanted.high)
    found = choose(cluster=torch.zeros(81).long())
    assert found.interval.low.isnan()
    assert found.interval.high.isnan()
    assert found.corrected == pytest.approx(found.value)


def test_halves_of_clusters_hold_where_samples_of_a_cluster_are_equal():
    """20 patients of 20 equal samples, epochs equally good."""
    generator, covered, off = seeded(7), {"samples": 0, "clusters": 0}, {"samples": 0.0, "clusters": 0.0}
    for _ in range(40):
        ids = torch.arange(20).repeat_interleave(20)
        target = (torch.arange(400) % 4 == 0).long()
        wrong = torch.rand(2, 30, 20, generator=generator) > torch.tensor([0.9, 0.6]).view(2, 1, 1)
        predictions = target ^ wrong[target, :, ids].t().long()
        for kind, options in (("samples", {}), ("clusters", {"cluster": ids})):
            found = select_epoch(
                predictions, target, balanced_accuracy, repeats=40, draws=300, generator=generator, **options
            )
            covered[kind] += found.interval.low.item() <= 0.75 <= found.interval.high.item()
            off[kind] += (found.corrected - 0.75) / 40
    assert covered["samples"] < 10
    assert covered["clusters"] >= 35
    assert abs(off["clusters"]) < 0.05 < off["samples"]


def test_few_clusters_of_a_class_are_too_few_hits():
    """Of 40 samples of class 1, 4 clusters hold all; the geometric mean of recalls is 0 without a hit."""
    predictions, target = drawn([[0.9, 0.5]] * 3, [60, 40])
    choose = partial(select_epoch, predictions, target, geometric_mean, draws=50, generator=seeded())
    assert choose().sparse == ()
    ids = torch.cat((torch.arange(60), 100 + torch.arange(40) // 10))
    same = torch.arange(40) // 10 % 2 == 0
    predictions[:, 60:] = torch.where(same, 1, 0)
    assert choose(cluster=ids).sparse == (1,)
    assert choose(cluster=ids).interval is None


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cluster": IDS[:5]}, ValueError, r"cluster must hold one id per sample, \[81\], got \[5\]"),
        ({"cluster": IDS.double()}, TypeError, r"cluster must be a tensor of integers.*imbtorch.cluster_ids"),
        ({"cluster": IDS, "num_classes": 969}, ValueError, "64 matrices, which are too large for more than 968"),
    ],
)
def test_ids_that_do_not_fit(options, error, text):
    predictions, target = drawn(LEARNING[:2], [61, 20])
    with pytest.raises(error, match=text):
        select_epoch(predictions, target, balanced_accuracy, **options)


# --- many classes ---------------------------------------------------------------------------------------------------


def many(classes=12, number=30):
    recalls = [[0.3 + 0.02 * epoch] * classes for epoch in range(number)]
    return drawn(recalls, [8] * classes)


def test_margins_stand_for_matrices_where_those_are_too_many(monkeypatch):
    predictions, target = many()
    whole = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), draws=50)
    monkeypatch.setattr(epochs, "CELLS_IN_ALL", 1000)
    assert facts(select_epoch(predictions, target, balanced_accuracy, generator=seeded(), draws=50)) == facts(whole)
    read = []

    def recall_of_margins(counts):
        read.append(type(counts))
        return balanced_accuracy(counts)

    select_epoch(predictions, target, recall_of_margins, generator=seeded(), draws=50)
    assert read.count(Margins) > 2


def test_parts_of_the_repeats_and_epochs_change_nothing(monkeypatch):
    predictions, target = many()
    whole = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), draws=50, repeats=10)
    monkeypatch.setattr(halves, "SAMPLES_AT_ONCE", 500)
    monkeypatch.setattr(halves, "CELLS_AT_ONCE", 30 * 144 * 10)
    assert facts(whole) == facts(
        select_epoch(predictions, target, balanced_accuracy, generator=seeded(), draws=50, repeats=10)
    )
    monkeypatch.setattr(halves, "CELLS_AT_ONCE", 1)  # one repeat, one matrix at a time; other coins
    parts = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), draws=50, repeats=10)
    assert (parts.epoch, parts.value, parts.repeats) == (whole.epoch, whole.value, 10)
    assert parts.corrected == pytest.approx(whole.corrected, abs=0.03)


def test_a_function_that_takes_margins_for_something_else_gets_matrices(monkeypatch):
    def first_row(counts):  # of Margins it would be the diagonal
        return counts[0].sum(-1) if isinstance(counts, Margins) else balanced_accuracy(counts)

    predictions, target = many()
    monkeypatch.setattr(epochs, "CELLS_IN_ALL", 1000)
    found = select_epoch(predictions, target, first_row, generator=seeded(), draws=50)
    assert len(found.compared) == 7
    assert found.value == pytest.approx(metrics.balanced_accuracy_score(target, predictions[found.epoch]))
