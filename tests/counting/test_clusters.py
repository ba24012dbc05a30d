"""Buckets of clusters: their hash, the counts of each, and the intervals that resample them."""

import copy
import hashlib
import pickle

import numpy as np
import pytest
import scipy
import sklearn.metrics
import torch
import torchmetrics
from distributions import splitmix64
from processes import launch
from rooms import BUCKETS, batches, bucket_of_each, clusters, state_of

import imbtorch
from imbtorch import ImbalanceReport, Recall, cluster_ids

EXTREME = [0, 1, 2, -1, -2, 2**63 - 1, -(2**63), 0x9E3779B97F4A7C15 - 2**64]


@pytest.mark.parametrize("free", [True, False], ids=["read", "traced"])
def test_a_bucket_is_the_highest_bits_of_splitmix64(free, monkeypatch):
    monkeypatch.setattr(clusters, "reading_is_free", lambda ids: free)
    some = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 500, dtype=np.int64).tolist() + EXTREME
    wanted = [splitmix64(each) // 2**58 for each in some]
    assert bucket_of_each(torch.tensor(some)).tolist() == wanted


def test_the_published_stream_of_seed_0():
    """The first two numbers of the generator in Java and in Vigna's splitmix64.c."""
    assert [splitmix64(0), splitmix64(0x9E3779B97F4A7C15)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_running_numbers_and_few_ids_spread_over_the_buckets():
    """The number of samples in each of 64 buckets is as even as chance, by a chi-squared test."""
    for ids in (torch.arange(6400), torch.arange(6400) * 64, cluster_ids([f"patient {i}" for i in range(6400)])):
        held = np.bincount(bucket_of_each(ids), minlength=BUCKETS)
        assert 0.001 < scipy.stats.chisquare(held).pvalue < 0.999


def test_ids_of_names_are_hashes_of_their_text():
    names = ["patient 7", 7, "7", "patient 7"]
    found = cluster_ids(names)
    wanted = [int.from_bytes(hashlib.blake2b(str(each).encode(), digest_size=8).digest(), "big") for each in names]
    assert [each % 2**64 for each in found.tolist()] == wanted
    assert found[1] == found[2]
    with pytest.raises(TypeError, match=r"names must hold one name for each sample, got the string 'ab'"):
        cluster_ids("ab")


# --- counts of each bucket ------------------------------------------------------------------------------------------


def some_batch(task, samples, positions, seed):
    random = np.random.default_rng(seed)
    shape = (samples, *[3] * (task == "multilabel"), *positions)
    size = 3 if task == "multiclass" else 2
    return torch.tensor(random.integers(size, size=shape)), torch.tensor(random.integers(size, size=shape)), random


@pytest.mark.parametrize("path", ["read", "masked"])
@pytest.mark.parametrize("positions", [(), (2, 2)], ids=["samples", "pixels"])
@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "numbers"])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_each_bucket_holds_the_counts_of_its_clusters(task, ids, groups, positions, path, monkeypatch):
    if path == "masked":
        for module in ("counting.batches", "counting.clusters"):
            monkeypatch.setattr(f"imbtorch.{module}.reading_is_free", lambda state: False)
    size = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}[task]
    labels, classes = (3, 2) if task == "multilabel" else (1, 3 if task == "multiclass" else 2)
    report = ImbalanceReport(task, **size, groups=groups, clusters=True, ignore_index=-1)
    wanted, seen = np.zeros((groups or 1, BUCKETS, labels, classes, classes), int), 0
    for seed, samples in enumerate((5, 1, 400)):
        preds, target, random = some_batch(task, samples, positions, seed)
        target[random.random(target.shape) < 0.1] = -1
        own = random.integers(-50, 50, samples)
        group = random.integers(groups, size=samples) if groups else np.zeros(samples, int)
        given = {"cluster": torch.tensor(own)} if ids else {}
        report.update(preds, target, **given, **({"group": torch.tensor(group)} if groups else {}))
        for index in range(samples):
            bucket = splitmix64(int(own[index]) if ids else seen) // 2**58
            seen += 1
            rows = target[index].reshape(labels, -1) if labels > 1 else target[index].reshape(1, -1)
            columns = preds[index].reshape(rows.shape)
            for label, row, column in zip(
                np.repeat(range(labels), rows.shape[1]),
                rows.flatten().tolist(),
                columns.flatten().tolist(),
                strict=True,
            ):
                if row >= 0:
                    wanted[group[index], bucket, label, row, column] += 1
    counting, state = report.counting, state_of(report)
    found = counting.counts(state, of_groups=True, of_buckets=True)
    assert np.array_equal(found.reshape(wanted.shape), wanted)
    assert np.array_equal(counting.counts(state).reshape(wanted.shape[2:]), wanted.sum((0, 1)))
    assert np.array_equal(counting.counts(state, of_buckets=True).reshape(wanted.shape[1:]), wanted.sum(0))
    assert state[-2] == seen
    assert counting.dependent(state) == (seen if ids or positions else 0)
    assert not counting.faults(state).any()


@pytest.mark.parametrize("path", ["read", "masked"])
def test_a_group_out_of_range_never_becomes_a_part_of_another_group(path, monkeypatch):
    if path == "masked":
        monkeypatch.setattr(batches, "reading_is_free", lambda state: False)
    preds, target, ids = torch.tensor([0, 1, 1]), torch.tensor([0, 1, -1]), torch.arange(3)
    for wrong in (2, -1, 2**58, -(2**58)):  # 2 ** 58 times 64 is 0 in int64
        report = ImbalanceReport("binary", groups=2, clusters=True, ignore_index=-1)
        with pytest.raises(ValueError, match=f"group holds {wrong} but the metric has groups 0..1"):
            report.update(preds, target, group=torch.tensor([0, wrong, 0]), cluster=ids)
        assert not state_of(report).any()
        report.update(preds, target, group=torch.tensor([0, 1, wrong]), cluster=ids)  # that sample is ignored
        assert report.counting.counts(state_of(report), of_groups=True).sum((-1, -2)).tolist() == [1, 1]


def test_invalid_samples_are_tallied_beside_the_buckets():
    metric = Recall("multilabel", num_labels=2, on_invalid="warn")
    metric.update(torch.tensor([[0.2, 1.5], [0.3, 0.9]]), torch.tensor([[0, 1], [5, 1]]))
    assert state_of(metric)[-2:].tolist() == [2, 0]
    with pytest.warns(UserWarning, match=r"did not count 2 .*: 1 targets out of range, 1 probabilities outside"):
        metric.compute()
    metric.reset()
    assert not state_of(metric).any()


@pytest.mark.parametrize("clusters", [True, False])
def test_forward_returns_the_value_of_the_batch_and_counts_buckets(clusters):
    first, second = (Recall("multiclass", 3, average="micro", clusters=clusters) for _ in range(2))
    for seed in range(3):
        preds, target, random = some_batch("multiclass", 20, (), seed)
        ids = torch.tensor(random.integers(9, size=20))
        assert first(preds, target, cluster=ids).item() == pytest.approx((preds == target).double().mean().item())
        second.update(preds, target, cluster=ids)
        assert torch.equal(state_of(first), state_of(second))


def test_forward_counts_many_labels():
    """More cells than those of which a batch keeps margins alone."""
    preds, target = torch.tensor([[0, 1] * 1000, [1, 1] * 1000]), torch.tensor([[0, 1] * 1000, [1, 0] * 1000])
    for kept in (True, False):
        metric = Recall("multilabel", num_labels=2000, average="micro", clusters=kept)
        assert metric(preds, target).item() == 1
        assert metric.compute().item() == 1


def test_a_metric_without_clusters_ignores_the_ids_of_a_collection():
    members = {"with": Recall("multiclass", 3, clusters=True), "without": imbtorch.Precision("multiclass", 3)}
    collection = torchmetrics.MetricCollection({**members, "more": imbtorch.Accuracy("multiclass", 3)})
    preds, target, _ = some_batch("multiclass", 200, (), 0)
    for _ in range(2):
        collection.update(preds, target, cluster=torch.arange(200) // 10)
    wanted = sklearn.metrics.precision_score(target, preds, average="macro")
    assert collection.compute()["without"].item() == pytest.approx(wanted)
    assert sorted(map(len, collection.compute_groups.values())) == [1, 2]
    assert members["with"].interval().method.startswith("Fay-Feuer of ")


def test_labels_have_buckets_by_default_if_they_can_have_intervals():
    assert Recall("multilabel", num_labels=3).clusters
    assert ImbalanceReport("multilabel", num_labels=3).clusters
    assert not Recall("multilabel", num_labels=3, clusters=False).clusters
    assert not Recall("multilabel", num_labels=3, weighted=True).clusters
    assert not Recall("multilabel", num_labels=30_000).clusters  # 61 MB
    assert not Recall("multiclass", 3).clusters
    assert not imbtorch.ThresholdSweep("f1", task="multilabel", num_labels=3).clusters


def test_clusters_need_a_matrix_of_samples_and_memory():
    with pytest.raises(ValueError, match="clusters=True and weighted=True exclude each other"):
        Recall("multiclass", 3, clusters=True, weighted=True)
    with pytest.raises(ValueError, match="need the whole matrix; use state='matrix'"):
        ImbalanceReport("multiclass", 3, clusters=True, state="margins")
    with pytest.raises(
        ValueError, match=r"keeps 64 matrices, which take 512 MB here; count fewer classes, or resample"
    ):
        Recall("multiclass", 1000, clusters=True)
    with pytest.warns(
        UserWarning, match=r"the counts of 2 groups times 64 buckets of clusters take 164 MB.*clusters=F"
    ):
        ImbalanceReport("multiclass", 400, groups=2, clusters=True, per_class=())
    with pytest.raises(TypeError, match="clusters must be True or False, got 64"):
        Recall("multiclass", 3, clusters=64)


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        (
            ["a", "b", "c"],
            TypeError,
            r"cluster must be a tensor of integers, .*got list; imbtorch.cluster_ids\(names\)",
        ),
        (torch.rand(3), TypeError, r"got torch.float32; imbtorch.cluster_ids"),
        (torch.arange(2), ValueError, r"cluster must hold one value per sample: shape \[3\]"),
    ],
)
def test_ids_that_do_not_fit(ids, error, text):
    metric = Recall("multiclass", 3, clusters=True)
    with pytest.raises(error, match=text):
        metric.update(torch.arange(3), torch.arange(3), cluster=ids)
    assert not state_of(metric).any()


def test_copies_and_saved_states_keep_the_buckets():
    metric = Recall("multiclass", 3, clusters=True)
    metric.persistent(True)
    preds, target, random = some_batch("multiclass", 100, (), 0)
    metric.update(preds, target, cluster=torch.tensor(random.integers(9, size=100)))
    loaded = Recall("multiclass", 3, clusters=True)
    loaded.load_state_dict(metric.state_dict())
    for other in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), metric.clone(), loaded):
        assert torch.equal(state_of(other), state_of(metric))
    loaded.merge_state(metric)
    assert torch.equal(state_of(loaded), 2 * state_of(metric))


# --- intervals ------------------------------------------------------------------------------------------------------


def clustered(seed=0, clusters=40, size=25):
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(clusters), size)
    target = random.integers(0, 2, len(ids))
    right = random.random(len(ids)) < random.beta(2, 1, clusters)[ids]
    return torch.tensor(np.where(right, target, 1 - target)), torch.tensor(target), torch.tensor(ids)


def seeded():
    return torch.Generator().manual_seed(0)


def test_an_interval_resamples_whole_buckets():
    """The bounds are those of resampled sums of buckets, stretched by Student's t; samples alone are too sure."""
    preds, target, ids = clustered()
    report = ImbalanceReport("binary", measures=["accuracy"], clusters=True, intervals=["accuracy", "recall/1"])
    metric = imbtorch.Accuracy("binary", clusters=True)
    for each in (report, metric):
        each.update(preds, target, cluster=ids)
    found = report.interval("accuracy", generator=seeded())
    buckets = np.array([splitmix64(int(each)) // 2**58 for each in ids])
    hits = np.array([(preds == target).numpy()[buckets == each].sum() for each in np.unique(buckets)])
    sizes = np.array([(buckets == each).sum() for each in np.unique(buckets)])
    drawn = np.random.default_rng(1).integers(0, len(hits), (20_000, len(hits)))
    resampled, number = hits[drawn].sum(1) / sizes[drawn].sum(1), len(hits)
    stretch = scipy.stats.t.ppf(0.975, number - 1) / scipy.stats.norm.ppf(0.975) * np.sqrt(number / (number - 1))
    center = hits.sum() / sizes.sum()
    low, high = center + stretch * (np.quantile(resampled, [0.025, 0.975]) - center)
    assert [found.low.item(), found.high.item()] == pytest.approx([low, high], abs=0.02)
    assert found.method == f"cluster bootstrap of {number} buckets"
    alone = report.interval("accuracy", generator=seeded(), clusters=False)
    assert alone.high - alone.low < 0.7 * (found.high - found.low)
    own = metric.interval(generator=seeded())
    assert [own.low, own.high, own.method] == [found.low, found.high, found.method]
    values, result = report.compute(), pickle.loads(pickle.dumps(report.result()))
    assert [values["accuracy_low"].item(), values["accuracy_high"].item()] == pytest.approx([low, high], abs=0.02)
    again = result.interval("accuracy", generator=seeded())
    assert [again.low, again.high] == [found.low, found.high]


def test_values_of_groups_resample_the_buckets_of_the_group():
    preds, target, ids = clustered()
    group = ids % 2
    report = ImbalanceReport("binary", measures=["accuracy"], groups=["x", "y"], clusters=True, intervals=True)
    report.update(preds, target, group=group, cluster=ids)
    values = report.compute()
    for index, name in enumerate("xy"):
        chosen = group == index
        alone = ImbalanceReport("binary", measures=["accuracy"], clusters=True, intervals=True)
        alone.update(preds[chosen], target[chosen], cluster=ids[chosen])
        wanted = alone.compute()
        for end in ("low", "high"):
            assert values[f"accuracy/{name}_{end}"].item() == pytest.approx(wanted[f"accuracy_{end}"].item(), abs=0.015)


def labels_that_depend(samples=300, labels=14, hard=0.25, seed=0):
    """Targets of labels, and predictions that are chance for all labels of a quarter of the samples."""
    random = torch.Generator().manual_seed(seed)
    target = torch.rand(samples, labels, generator=random) < 0.3
    wrong = torch.rand(samples, labels, generator=random) < 0.1
    chance = torch.rand(samples, labels, generator=random) < 0.5
    is_hard = torch.rand(samples, 1, generator=random) < hard
    return torch.where(is_hard, chance, target ^ wrong).long(), target.long()


@pytest.mark.slow
def test_means_over_labels_hold_where_samples_are_hard_for_all_labels():
    """Coverage of the true balanced accuracy, .75 * .9 + .25 * .5 = .8, by default and from independent labels."""
    held = np.zeros(2)
    for seed in range(120):
        metric = imbtorch.BalancedAccuracy("multilabel", num_labels=14)
        metric.update(*labels_that_depend(seed=seed))
        for place, given in enumerate((None, False)):
            found = metric.interval(draws=1000, generator=seeded(), clusters=given)
            held[place] += bool(found.low <= 0.8 <= found.high)
    assert held[0] / 120 >= 0.9
    assert held[1] / 120 <= 0.85


def test_a_single_label_is_independent_until_ids_or_positions_say_otherwise():
    preds, target = labels_that_depend()
    names = ["recall/2", "recall/one"]
    for extra, positions, method in (
        ({}, 1, "posterior"),
        ({"cluster": torch.arange(300) // 3}, 1, "cluster bootstrap of "),
        ({}, 2, "cluster bootstrap of "),
    ):
        report = ImbalanceReport("multilabel", num_labels=14, class_groups={"one": [2], "two": [2, 3]})
        shaped = (each.reshape(300 // positions, positions, 14).movedim(1, 2).squeeze(-1) for each in (preds, target))
        report.update(*shaped, **extra)
        for name in names:
            assert report.interval(name).method.startswith(method)
            assert report.interval(name, clusters=True).method.startswith("cluster bootstrap")
            assert report.interval(name, clusters=False).method == "posterior"
        assert report.interval("recall/two").method.startswith("cluster bootstrap")
        each = Recall("multilabel", num_labels=14, average="none")
        each.update(
            *(part.reshape(300 // positions, positions, 14).movedim(1, 2).squeeze(-1) for part in (preds, target)),
            **extra,
        )
        assert each.interval().method.startswith(method)


def test_few_buckets_of_a_class_are_named():
    target = torch.tensor([0] * 300 + [1] * 6)
    ids = torch.cat((torch.arange(300), torch.tensor([0, 0, 1, 1, 2, 2])))
    report = ImbalanceReport("binary", class_names=["ok", "fraud"], measures=["balanced_accuracy"], clusters=True)
    report.update(target.clone(), target, cluster=ids)
    held = len({splitmix64(each) // 2**58 for each in (0, 1, 2)})
    assert report.interval("balanced_accuracy").method.endswith(f"; only {held} of them with 'fraud'")
    found = report.interval("recall/fraud", generator=seeded())
    assert found.method.endswith(f"; only {held} of them with 'fraud'")
    assert 0 < found.low < found.high == 1  # of the resamples that hold the class
    assert "only" not in report.interval("recall/ok").method
    bounded = ImbalanceReport("binary", class_names=["ok", "fraud"], measures=["f1"], clusters=True, intervals=True)
    bounded.update(target.clone(), target, cluster=ids)
    assert any(f"buckets; only {held} of them with 'fraud'" in note for note in bounded.result().table().notes)


@pytest.mark.parametrize("made", [lambda: Recall("multiclass", 3), lambda: ImbalanceReport("multiclass", 3)])
def test_samples_that_depend_without_clusters_are_told_once(made):
    flat, pixels = some_batch("multiclass", 60, (), 0)[:2], some_batch("multiclass", 20, (3,), 0)[:2]

    def ask(metric, **arguments):
        return metric.interval(*["recall"] * isinstance(metric, ImbalanceReport), **arguments)

    for batch, extra in ((flat, {"cluster": torch.arange(60)}), (pixels, {})):
        metric = made()
        metric.update(*batch, **extra)
        ask(metric, clusters=False)  # on purpose
        with pytest.warns(UserWarning, match="treats them as independent and is too narrow; build it with clusters=T"):
            ask(metric)
        ask(metric)
        metric.reset()
        metric.update(*flat)
        ask(metric)


# --- several processes ----------------------------------------------------------------------------------------------


def intervals_of_a_part(rank, world):
    preds, target, ids = clustered()
    report = ImbalanceReport("binary", measures=["accuracy", "iam"], clusters=True, intervals=True)
    own = slice(rank * 300, (rank + 1) * 300 if rank < world - 1 else None)  # also parts without samples
    if rank < world - 1 or world < 3:
        report.update(preds[own], target[own], cluster=ids[own])
    else:
        report.update(preds[own], target[own], cluster=ids[own])
        report.update(preds[:0], target[:0], cluster=ids[:0])
    values = {name: value.item() for name, value in report.compute().items()}
    return values, report.interval("iam", generator=seeded()).low.item()


def test_intervals_with_ids_are_equal_on_any_number_of_processes():
    [alone] = launch(1, intervals_of_a_part)
    for world in (2, 3):
        assert launch(world, intervals_of_a_part) == [alone] * world
