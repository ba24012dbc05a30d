"""Sweeps of dependent samples (`metrics/sweep.py`): counts of buckets, what resamples them, and warnings."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from distributions import splitmix64
from matplotlib import pyplot as plt
from processes import launch
from rooms import BUCKETS, buckets_of, state_of
from sklearn import metrics as sk
from sweeps import drawn

import imbtorch
from imbtorch import ImbalanceReport, LogitAdjustmentSweep, Recall, ThresholdSweep

INTERVALS = ("value", "threshold", "auc", "average_precision", "partial_auc")
TOO_NARROW = "without clusters, so the interval treats them as independent and is too narrow; build it with clusters=T"


def seeded():
    return torch.Generator().manual_seed(0)


def patients(number=10, each=60, seed=0, within=0.0):
    """Logits, targets and ids of patients of one class each, whose samples are equal but for a noise within them."""
    logits, target = drawn(number, prevalence=0.4, seed=seed)
    noise = torch.randn(number, each, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ids = torch.arange(number).repeat_interleave(each)
    return (logits.unsqueeze(1) + within * noise).flatten(), target.repeat_interleave(each), ids


# --- counts of each bucket ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["read", "masked"])
@pytest.mark.parametrize("positions", [(), (2,)], ids=["samples", "pixels"])
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "numbers"])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_each_bucket_holds_the_scores_of_its_clusters(task, ids, positions, path, monkeypatch):
    if path == "masked":
        for module in ("batches", "clusters"):
            monkeypatch.setattr(f"imbtorch.counting.{module}.reading_is_free", lambda state: False)
    size = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}[task]
    labels = 1 if task == "binary" else 3
    sweep = ThresholdSweep("f1", 5, task, **size, clusters=True, ignore_index=-1, logits=True)
    wanted, seen, random = np.zeros((BUCKETS, labels, 2, 6), int), 0, np.random.default_rng(0)
    edges = [-np.inf, np.log(1 / 3), 0, np.log(3), np.inf]
    for samples in (5, 1, 300):
        shape = (samples, *[3] * (task == "multilabel"), *positions)
        target = random.integers(3 if task == "multiclass" else 2, size=shape)
        target[random.random(target.shape) < 0.1] = -1
        logits = random.normal(size=(samples, *([] if task == "binary" else [3]), *positions))
        own = random.integers(-50, 50, samples)
        given = {"cluster": torch.tensor(own)} if ids else {}
        sweep.update(torch.tensor(logits), torch.tensor(target), **given)
        for index in range(samples):
            bucket = splitmix64(int(own[index]) if ids else seen) // 2**58
            seen += 1
            for label in range(labels):
                odds = (logits[index] if task == "binary" else logits[index, label]).reshape(-1)
                if task == "multiclass":
                    others = np.delete(logits[index], label, 0)
                    odds = odds - np.log(np.exp(others).sum(0)).reshape(-1)
                truth = (target[index, label] if task == "multilabel" else target[index]).reshape(-1)
                for score, row in zip(odds, truth, strict=True):
                    if row >= 0:
                        row = int(row == label) if task == "multiclass" else row
                        wanted[bucket, label, row, np.searchsorted(edges, score)] += 1
    sweep.compute()
    result = sweep.result()
    assert np.array_equal(buckets_of(result).reshape(wanted.shape), wanted)
    assert np.array_equal(result.counts.reshape(wanted.shape[1:]), wanted.sum(0))
    assert state_of(sweep)[-2:].tolist() == [seen, seen if ids or positions else 0]


def test_the_order_of_updates_and_their_number_do_not_matter():
    logits, target, ids = patients()
    whole, parts, first, second = (ThresholdSweep("f1", clusters=True, logits=True) for _ in range(4))
    whole.update(logits, target, cluster=ids)
    for some in torch.randperm(600, generator=seeded()).split(70):
        parts.update(logits[some], target[some], cluster=ids[some])
    assert torch.equal(state_of(whole), state_of(parts))
    first.update(logits[:99], target[:99], cluster=ids[:99])
    second.update(logits[99:], target[99:], cluster=ids[99:])
    first.merge_state(second)
    assert torch.equal(state_of(first), state_of(whole))
    again = pickle.loads(pickle.dumps(whole.clone()))
    assert torch.equal(state_of(again), state_of(whole))
    whole.persistent(True)
    second.reset()
    second.persistent(True)
    second.load_state_dict(whole.state_dict())
    assert second.compute() == whole.compute()
    assert second.interval("value", generator=seeded()).low == whole.interval("value", generator=seeded()).low


@pytest.mark.parametrize("ids", [True, False])
def test_forward_returns_what_compute_returns_for_the_batch_alone(ids):
    sweep = ThresholdSweep("f1", clusters=True, logits=True)
    others = ThresholdSweep("f1", clusters=True, logits=True)
    for seed in range(2):
        logits, target, own = patients(seed=seed, within=1.0)
        given = {"cluster": own} if ids else {}
        alone = ThresholdSweep("f1", clusters=True, logits=True)
        alone.update(logits, target, **given)
        assert sweep(logits, target, **given) == alone.compute()
        others.update(logits, target, **given)
        assert torch.equal(state_of(sweep), state_of(others))


def test_the_repr_and_the_metric_of_a_sweep_tell_of_clusters():
    assert "clusters" not in repr(ThresholdSweep("f1", task="multilabel", num_labels=2))
    sweep = ThresholdSweep("f1", clusters=True, logits=True)
    assert repr(sweep) == "ThresholdSweep(measure=f_score, task='binary', logits=True, clusters=True)"
    logits, target, ids = patients()
    sweep.update(logits, target, cluster=ids)
    report = sweep.metric(ImbalanceReport)
    report.update(logits, target, cluster=ids)
    assert report.interval("f1").method.startswith("cluster bootstrap")


# --- what resamples them --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_copies_of_samples_say_no_more_than_the_samples():
    """Sixty equal samples of each of ten patients are worth ten samples."""
    once, copies, independent = (
        ThresholdSweep("f1", logits=True, clusters=clusters) for clusters in (True, True, False)
    )
    for each, sweep in ((1, once), (60, copies), (60, independent)):
        logits, target, ids = patients(each=each)
        sweep.update(logits, target, cluster=ids)
    assert copies.compute() == once.compute()
    for name in INTERVALS[:4]:
        widths = []
        for sweep in (once, copies):
            found = sweep.interval(name, generator=seeded())
            assert 0 <= found.low <= found.estimate <= found.high <= 1
            widths.append(float(found.high - found.low))
        assert widths[1] == pytest.approx(widths[0], rel=0.25)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            narrow = independent.interval(name, generator=seeded())
        if name != "threshold":  # which lies between few scores
            assert widths[1] > 2 * (narrow.high - narrow.low)
    ends = [sweep.gain(generator=seeded()) for sweep in (once, copies)]
    assert float(ends[1].low) == pytest.approx(float(ends[0].low), abs=0.05)
    assert float(ends[1].high) == pytest.approx(float(ends[0].high), abs=0.05)
    point = copies.best(at_least={"recall": 0.5})
    assert point.holds["recall"] == pytest.approx(once.best(at_least={"recall": 0.5}).holds["recall"], abs=0.05)
    assert "corrected" in str(copies.table())
    plt.close(copies.result().plot()[0])


@pytest.mark.slow
def test_intervals_of_patients_hold_the_true_area():
    """The area of two normal classes two standard deviations apart is .921; samples of a patient are alike."""
    truth, held = float(torch.special.ndtr(torch.tensor(2**0.5))), np.zeros(2)
    for seed in range(60):
        logits, target, ids = patients(30, 10, seed)
        for place, clusters in enumerate((True, False)):
            sweep = ThresholdSweep("f1", 129, logits=True, clusters=clusters)
            sweep.update(logits, target, **({"cluster": ids} if clusters else {}))
            found = sweep.interval("auc")
            held[place] += bool(found.low <= truth <= found.high)
    assert held[0] >= 0.88 * 60
    assert held[1] <= 0.75 * 60


@pytest.mark.filterwarnings("ignore:ThresholdSweep. 1 of 3 labels had no positive target")
def test_labels_have_intervals_of_their_own():
    logits, target, ids = patients(40, 5, within=1.0)
    single = ThresholdSweep("f1", logits=True, clusters=True)
    single.update(logits, target, cluster=ids)
    labels = ThresholdSweep("f1", task="multilabel", num_labels=3, logits=True, clusters=True)
    columns = torch.stack((torch.zeros_like(logits), logits, logits), 1)
    labels.update(columns, torch.stack((0 * target, target, target), 1), cluster=ids)
    assert labels.compute()["threshold/1"] == single.compute()["threshold"]
    for name in ("auc", "average_precision"):
        found, wanted = labels.interval(name), single.interval(name)
        assert found.low[0].isnan()
        assert found.low[1:].tolist() == [wanted.low.item()] * 2
        assert found.method == wanted.method


def test_limits_are_kept_on_held_out_buckets():
    logits, target, ids = patients(60, 10, within=1.0)
    sweep = ThresholdSweep("precision", logits=True, clusters=True, at_least={"recall": 0.5})
    sweep.update(logits, target, cluster=ids)
    threshold = sweep.compute()["threshold"].item()
    assert sk.recall_score(target, logits.sigmoid() > threshold) >= 0.5
    found = sweep.interval("value", generator=seeded())
    assert found.method.startswith("held-out buckets, cluster bootstrap of ")
    assert "; on held-out samples recall 0." in found.method
    assert "resampled buckets, held-out estimate; on held-out samples recall" in sweep.gain().method


def test_what_needs_independent_samples_or_memory_is_refused():
    logits, target, ids = patients()
    sweep = ThresholdSweep("f1", logits=True, clusters=True)
    sweep.update(logits, target, cluster=ids)
    with pytest.raises(ValueError, match="sure= needs independent samples, but the sweep counts clusters of"):
        sweep.best(at_least={"recall": 0.1}, sure=0.8)
    with pytest.raises(ValueError, match="clusters=True and weighted=True exclude each other"):
        ThresholdSweep("f1", weighted=True, clusters=True)
    with pytest.raises(ValueError, match="keeps 64 histograms, which take 515 MB here; count fewer labels or"):
        ThresholdSweep("f1", task="multilabel", num_labels=140, clusters=True)
    with pytest.warns(UserWarning, match=r"and 64 buckets of clusters take 118 MB; fewer thresholds= take less"):
        ThresholdSweep("f1", task="multilabel", num_labels=32, clusters=True)
    sweep.reset()
    sweep.update(logits, target, cluster=torch.zeros_like(ids))
    for read in (lambda: sweep.interval("auc"), lambda: sweep.interval("value"), sweep.gain):
        with pytest.raises(ValueError, match="all samples lie in one bucket of clusters; count samples of"):
            read()


# --- warnings -------------------------------------------------------------------------------------------------------


def dependent(how, rank=1):
    """A sweep without clusters, of samples with ids or with two positions."""
    logits, target, ids = patients(within=1.0)
    sweep = ThresholdSweep("f1", logits=True)
    if how == "ids":
        sweep.update(logits, target, cluster=ids)
    else:
        sweep.update(logits.view(-1, 2), target.view(-1, 2))
    return sweep


ASKED = {
    **{name: (lambda sweep, name=name: sweep.interval(name)) for name in INTERVALS},
    "gain": lambda sweep: sweep.gain(),
    "table": lambda sweep: sweep.table(),
    "picture": lambda sweep: plt.close(sweep.plot()[0]),
    "result": lambda sweep: sweep.result().interval("auc"),
    "pickled result": lambda sweep: pickle.loads(pickle.dumps(sweep.result())).interval("auc"),
    "clone": lambda sweep: sweep.clone().interval("auc"),
    "pickle": lambda sweep: copy.deepcopy(pickle.loads(pickle.dumps(sweep))).interval("auc"),
}


@pytest.mark.default_cases("value-ids", "auc-positions", "table-ids", "result-positions", "pickled result-ids")
@pytest.mark.parametrize("how", ["ids", "positions"])
@pytest.mark.parametrize("name", ASKED)
def test_a_sweep_without_clusters_warns_of_dependent_samples(name, how):
    with pytest.warns(UserWarning, match=TOO_NARROW) as caught:
        ASKED[name](dependent(how))
    assert len(caught) == 1


def test_it_warns_once_and_not_of_a_choice():
    sweep = dependent("ids")
    sweep.compute()
    sweep.best()
    sweep.best(at_least={"recall": 0.3})
    with pytest.warns(UserWarning, match="so the promise treats them as independent and fails more often than it says"):
        sweep.best(at_least={"recall": 0.1}, sure=0.8)
    sweep.interval("auc")
    sweep.gain()
    sweep.table()
    sweep.reset()
    sweep.result().interval("auc")  # the last result, of which it was told
    logits, target, _ = patients(within=1.0)
    sweep.update(logits, target)
    sweep.interval("auc")


@pytest.mark.parametrize(
    "make", [lambda: ThresholdSweep("f1"), lambda: ImbalanceReport("binary"), lambda: Recall("binary")]
)
def test_merged_and_reset_metrics_know_of_dependent_samples(make):
    scores, target = torch.rand(40, generator=seeded()), torch.arange(40) % 2

    def ask(metric):
        return metric.interval(*({ThresholdSweep: ["auc"], ImbalanceReport: ["iam"], Recall: []}[type(metric)]))

    first, second = make(), make()
    first.update(scores, target)
    ask(first)
    second.update(scores.view(20, 2), target.view(20, 2))
    first.merge_state(second)
    with pytest.warns(UserWarning, match=TOO_NARROW):
        ask(first)
    if not isinstance(first, Recall):  # which has no result
        second.compute()
        second.reset()
        with pytest.warns(UserWarning, match=TOO_NARROW):
            second.result().interval("auc" if isinstance(second, ThresholdSweep) else "iam")


def test_tau_is_chosen_with_clusters_without_an_argument():
    logits, target, ids = patients(30, within=1.0)
    sweep = LogitAdjustmentSweep("balanced_accuracy", [6, 4], logits=True)
    sweep.update(torch.stack((-logits / 2, logits / 2), 1), target, cluster=ids)
    sweep.compute()
    assert len({splitmix64(each) // 2**58 for each in range(30)}) == int(
        buckets_of(sweep.result()).actual.any(-1).sum()
    )
    sweep.gain()  # without a warning


# --- several processes ----------------------------------------------------------------------------------------------


def swept_by_parts(rank, world):
    logits, target, ids = patients(30, within=1.0)
    sweep = ThresholdSweep("f1", logits=True, clusters=True)
    sweep.update(logits[rank::world], target[rank::world], cluster=ids[rank::world])
    values = {name: value.item() for name, value in sweep.compute().items()}
    ends = [sweep.interval(name, generator=seeded()) for name in ("value", "auc", "average_precision")]
    return values, [(each.low.item(), each.high.item()) for each in (*ends, sweep.gain(generator=seeded()))]


def test_clusters_give_the_same_on_any_number_of_processes():
    [alone] = launch(1, swept_by_parts)
    assert launch(2, swept_by_parts) == [alone] * 2


def warned_of_another_rank(rank, world):
    scores, target = torch.rand(40, generator=seeded()), torch.arange(40) % 2
    ids = {} if rank == 0 else {"cluster": target}
    told = []
    for metric, arguments in (
        (ThresholdSweep("f1"), ("auc",)),
        (ImbalanceReport("binary"), ("iam",)),
        (imbtorch.Accuracy("binary"), ()),
    ):
        metric.update(scores, target, **ids)
        metric.compute()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metric.interval(*arguments)
        told.append([TOO_NARROW in str(each.message) for each in caught])
    return told


def test_rank_zero_warns_of_what_another_rank_saw():
    assert launch(2, warned_of_another_rank) == [[[True]] * 3, [[]] * 3]
