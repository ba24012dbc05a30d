"""A theme of several modules: one state over all processes, the same number on 1, 2 and 3, and never a hang."""

import copy
import dataclasses
import functools
import os
import pickle
import re
import subprocess
import sys
import warnings

import pytest
import torch
from processes import counted_collectives, launch
from report_cases import directed
from rooms import SeenSamples, counter_of, same_samples, state_of
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.utilities.distributed import gather_all_tensors
from versions import needs_simulated_device

import imbtorch
from imbtorch import Accuracy, ExactBatchSampler, ImbalanceReport, LogitAdjustmentSweep, ThresholdSweep

WORLDS = (1, 2, 3)


def long_tail(samples=101, rare=3, seed=0):
    """Targets of three classes, the last of them rare, and predictions that are right in two of three."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(2, (samples,), generator=generator)
    target[torch.randperm(samples, generator=generator)[:rare]] = 2
    noise = torch.randint(3, (samples,), generator=generator)
    return torch.where(torch.rand(samples, generator=generator) < 0.66, target, noise), target


# --- the same number, whatever the number of processes --------------------------------------------------------------


def exact_epoch(rank, world):
    preds, target = long_tail()
    loader = DataLoader(
        TensorDataset(preds, target),
        batch_sampler=ExactBatchSampler(SequentialSampler(range(len(target))), batch_size=16),
        num_workers=0,
    )
    report = ImbalanceReport("multiclass", num_classes=3)
    metric = imbtorch.ImbalanceAccuracy("multiclass", num_classes=3, state="margins")
    batches = 0
    for some_preds, some_target in loader:
        report.update(some_preds, some_target)
        metric.update(some_preds, some_target)
        batches += 1
    values = {name: value.item() for name, value in report.compute().items()}
    return batches, report.counts().tolist(), values, metric.compute().item(), int(report.local_confmat.sum())


@pytest.mark.parametrize("world", WORLDS)
def test_every_sample_counts_once_on_any_number_of_processes(world):
    preds, target = long_tail()
    answers = launch(world, exact_epoch)
    expected = confusion_matrix(target, preds).tolist()
    assert sum(map(sum, expected)) == 101
    assert sum(local for *_, local in answers) == 101  # what the ranks counted themselves came back after the sync
    assert len({batches for batches, *_ in answers}) == 1
    single = ImbalanceReport("multiclass", num_classes=3)
    single.update(preds, target)
    for _, counts, values, margins_value, _ in answers:
        assert counts == expected
        assert values == {name: value.item() for name, value in single.compute().items()}
        assert values["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(target, preds))
        assert margins_value == values["iam"]


def uneven(rank, world):
    """Rank r sees r batches of different sizes, so that rank 0 sees none."""
    results = {}
    for task, classes in (("binary", {}), ("multiclass", {"num_classes": 4}), ("multilabel", {"num_labels": 2})):
        metric = imbtorch.ClassBalanceAccuracy(task, **classes)
        whole = imbtorch.ClassBalanceAccuracy(task, **classes, distributed_available_fn=lambda: False)
        for source in range(world):
            generator = torch.Generator().manual_seed(source)
            for batch in range(source):
                shape = (5 + 3 * batch, 2) if task == "multilabel" else (5 + 3 * batch,)
                high = 4 if task == "multiclass" else 2
                preds = torch.randint(high, shape, generator=generator)
                target = torch.randint(high, shape, generator=generator)
                whole.update(preds, target)
                if source == rank:
                    metric.update(preds, target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results[task] = metric.compute().item(), whole.compute().item()
    return results


@pytest.mark.parametrize("world", [2, 3])
def test_uneven_batches_and_a_rank_without_data(world):
    for answer in launch(world, uneven):
        for found, expected in answer.values():
            assert found == expected


def empty_rank_with_warnings_as_errors(rank, world):
    warnings.simplefilter("error")
    metric = imbtorch.BalancedAccuracy("binary")
    report = ImbalanceReport("binary")
    if rank == 1:
        for each in (metric, report):
            each.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    return metric.compute().item(), report.compute()["iam"].item(), report["iam"].compute().item()


def test_a_rank_without_data_warns_of_nothing():
    assert len(set(launch(2, empty_rank_with_warnings_as_errors))) == 1


# --- collectives ----------------------------------------------------------------------------------------------------


def collectives_of_a_report(rank, world):
    report = ImbalanceReport("multiclass", num_classes=8)  # 9 measures and 2 x 8 per-class values
    assert len(report) == 25
    report.update(torch.arange(8), torch.arange(8).roll(1))
    with counted_collectives() as first:
        report.compute()
    with counted_collectives() as whole:
        report.compute()
    with counted_collectives() as singly:
        values = {name: value.compute().item() for name, value in report.items()}
    report.reset()
    report.update(torch.arange(8), torch.arange(8))
    with counted_collectives() as after_reset:
        fresh = {name: value.compute().item() for name, value in report.items()}
    metric = imbtorch.ConfusionMatrix("multiclass", num_classes=8)
    with counted_collectives() as forward:
        metric(torch.arange(8), torch.arange(8))
    metric.compute()
    with counted_collectives() as single:
        metric.compute()
    return first, whole, singly, after_reset, forward, single, values["accuracy"], fresh["accuracy"]


@pytest.mark.parametrize("world", [2, 3])
def test_one_all_reduce_serves_all_values(world):
    for first, whole, singly, after_reset, forward, single, before, after in launch(world, collectives_of_a_report):
        assert first == ["all_reduce"] * 2  # settings are compared once
        assert whole == singly == after_reset == single == ["all_reduce"]
        assert forward == []
        assert (before, after) == (0.0, 1.0)


def nobody_skips(rank, world):
    report = ImbalanceReport("binary", per_class=())
    metric = imbtorch.Accuracy("binary")
    both, seen = (report, metric), []
    for each in both:
        each.update(torch.tensor([1, 0]), torch.tensor([1, 1]))
    seen.append((metric.compute().item(), report["accuracy"].compute().item(), report["iam"].compute().item()))
    if rank == 1:  # rank 0 could now answer from a cache, and rank 1 could not
        for each in both:
            each.update(torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1, 1, 1]))
    seen.append((metric.compute().item(), report["accuracy"].compute().item(), report.compute()["accuracy"].item()))
    return seen


def test_no_rank_answers_from_what_it_alone_has_cached():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for first, second in launch(2, nobody_skips):
            assert first[:2] == (0.5, 0.5)
            assert second == (0.75, 0.75, 0.75)


def reads_that_differ(rank, world):
    report = ImbalanceReport("binary", per_class=())
    report.update(torch.tensor([1, 0]), torch.tensor([1, 1]))
    first = report["accuracy"].compute().item()
    if rank == 1:
        report.update(torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1, 1, 1]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        second = report["precision"].compute().item()
    return (
        first,
        second,
        len([each for each in told if "counted since" in str(each.message)]),
        [
            report.compute()["accuracy"].item(),
            report["precision"].compute().item(),
            report["accuracy"].compute().item(),
        ],
    )


def test_a_rank_that_counts_between_two_reads_waits_for_nobody():
    for rank, (first, second, told, fresh) in enumerate(launch(2, reads_that_differ, timeout=60)):
        assert (first, second, told) == (0.5, 1.0, rank)  # the sum of the first read, and who knows better says so
        assert fresh == [0.75, 1.0, 0.75]


# --- invalid input on one rank --------------------------------------------------------------------------------------


def invalid_on_one_rank(rank, world, kind, on_invalid):
    metric = imbtorch.ImbalanceAccuracy("multiclass", num_classes=3, on_invalid=on_invalid)
    report = ImbalanceReport("multiclass", num_classes=3, on_invalid=on_invalid)
    scores, target = torch.eye(3), torch.arange(3)
    if rank == 1 and kind == "label":
        target = torch.tensor([0, 1, 3])
    if rank == 1 and kind == "nan":
        scores = scores.clone()
        scores[2, 0] = torch.nan
    errors = []
    for each in (metric, report):
        each.update(scores, target)
        before = state_of(each).clone()
        if on_invalid == "warn":
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                value = each.compute()
            errors.append((str(caught[0].message) if caught else "", float(value if each is metric else value["iam"])))
        else:
            with pytest.raises(ValueError, match="did not count 1 of the samples") as error:
                each.compute()
            errors.append(str(error.value))
        assert torch.equal(before, state_of(each))
        assert not each._is_synced
        each.reset()
        each.update(torch.eye(3), torch.arange(3))
        assert float(each.compute() if each is metric else each.compute()["iam"]) == 1.0
    return errors


@pytest.mark.parametrize("kind", ["label", "nan"])
def test_invalid_input_of_one_rank_raises_on_all(kind):
    answers = launch(2, invalid_on_one_rank, kind, "raise")
    assert answers[0] == answers[1]
    assert ("1 targets out of range" if kind == "label" else "1 NaN scores") in answers[0][0]


def test_invalid_input_can_be_left_out_with_a_warning_of_rank_zero():
    zero, one = launch(2, invalid_on_one_rank, "label", "warn")
    assert "1 targets out of range" in zero[0][0]
    assert one[0][0] == ""
    assert zero[0][1] == one[0][1] == 1.0


# --- torchmetrics' arguments and methods ----------------------------------------------------------------------------


def torchmetrics_contract(rank, world):
    preds, target = torch.tensor([0, 1]), torch.tensor([0, rank % 2])

    def made(**kwargs):
        metric = imbtorch.Accuracy("binary", **kwargs)
        metric.update(preds, target)
        return metric

    def counts(metric):
        return metric.local_confmat.tolist()

    local, every = [[1, 1 - rank % 2], [0, rank % 2]], [[3, 2], [0, 1]]
    found = {}
    metric = made()
    tensor = state_of(metric)
    metric.compute()
    assert state_of(metric) is tensor, "the original tensor comes back"
    assert counts(metric) == local
    inside = []

    def fail():
        with metric.sync_context():
            inside.append(counts(metric))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert inside == [every]
    assert state_of(metric) is tensor
    assert not metric._is_synced
    metric.sync()
    assert counts(metric) == every
    with pytest.raises(Exception, match="already been synced"):
        metric.sync()
    with pytest.raises(Exception, match="synced"):
        metric(preds, target)
    metric.unsync()
    assert counts(metric) == local
    with pytest.raises(Exception, match="un-synced"):
        metric.unsync()
    metric.sync(should_sync=False)
    assert counts(metric) == local
    metric.sync()
    metric.reset()
    assert state_of(metric) is tensor
    assert counts(metric) == [[0, 0], [0, 0]]

    found["local"] = made(sync_on_compute=False).compute().item()
    found["unavailable"] = made(distributed_available_fn=lambda: False).compute().item()
    calls = []

    def gather(state, group=None):
        calls.append(group)
        return gather_all_tensors(state, group=group)

    gathered = made(dist_sync_fn=gather)
    found["gathered"] = gathered.compute().item()
    assert len(calls) == 2  # the settings, and the counts
    gathered.compute()
    assert len(calls) == 3
    found["all"] = made().compute().item()
    pair = torch.distributed.new_group([0, 1])
    metric = made(process_group=pair)
    copies = metric.clone(), copy.deepcopy(torch.nn.ModuleList([metric]))[0], copy.copy(metric)
    if rank < 2:
        found["pair"] = [each.compute().item() for each in (metric, *copies)]
        with pytest.raises(TypeError, match=r"cannot be pickled, .*set metric\.process_group = None before"):
            pickle.dumps(metric)
    metric.process_group = None
    found["pickled"] = pickle.loads(pickle.dumps(metric)).compute().item()
    on_step = imbtorch.Accuracy("binary", dist_sync_on_step=True)
    found["on_step"] = on_step(preds, target).item()
    assert counts(on_step) == local
    plain = imbtorch.Accuracy("binary")
    found["off_step"] = plain(preds, target).item()
    whole, part = made(), made()
    part.merge_state(whole)
    found["merged"] = counts(part)
    return found


def test_the_contract_of_torchmetrics():
    for rank, found in enumerate(launch(3, torchmetrics_contract)):
        alone = 0.5 + 0.5 * (rank % 2)
        assert found["local"] == found["unavailable"] == found["off_step"] == alone
        assert found["gathered"] == found["all"] == found["on_step"] == found["pickled"] == pytest.approx(4 / 6)
        assert found["merged"] == [[2, 2 - 2 * (rank % 2)], [0, 2 * (rank % 2)]]
        if rank < 2:
            assert found["pair"] == pytest.approx([0.75] * 4)


def inference_epochs(rank, world):
    metric = imbtorch.Accuracy("binary")
    for _ in range(2):
        with torch.inference_mode():
            metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
            assert metric.compute() == 1
        metric.update(torch.tensor([0, 1]), torch.tensor([1, 0]))
        assert metric.compute() == 0.5
        metric.reset()
    return True


def test_a_synced_compute_under_inference_mode_leaves_a_state_that_counts_on():
    assert all(launch(2, inference_epochs))


# --- the sampler ----------------------------------------------------------------------------------------------------


def batches_of_all_ranks(rank, world, samples, batch_size):
    sampler = ExactBatchSampler(SequentialSampler(range(samples)), batch_size)
    try:
        batches = list(sampler)
    except ValueError as error:
        with pytest.raises(ValueError, match="processes"):
            len(sampler)
        return str(error)
    assert len(batches) == len(sampler)
    return batches


@pytest.mark.parametrize(
    ("world", "samples", "batch_size"), [(1, 10, 4), (2, 101, 16), (2, 97, 16), (3, 101, 7), (3, 3, 64), (3, 9, 1)]
)
def test_each_sample_once_in_equally_many_batches(world, samples, batch_size):
    answers = launch(world, batches_of_all_ranks, samples, batch_size)
    assert sorted(index for batches in answers for batch in batches for index in batch) == list(range(samples))
    assert len({len(batches) for batches in answers}) == 1
    sizes = [len(batch) for batches in answers for batch in batches]
    assert min(sizes) >= 1
    assert max(sizes) <= batch_size
    assert all(max(map(len, batches)) - min(map(len, batches)) <= 1 for batches in answers)


def test_what_cannot_be_dealt_out_is_an_error_on_every_rank():
    few = launch(3, batches_of_all_ranks, 2, 4)
    assert few == [few[0]] * 3
    assert "2 samples" in few[0]
    single = launch(2, batches_of_all_ranks, 5, 1)
    assert single == [single[0]] * 2
    assert "batch_size=1" in single[0]


def harm(counts):
    return counts.fill_diagonal_(0).sum()


@dataclasses.dataclass(frozen=True)
class Weighted:
    """Measure with a parameter."""

    weight: float

    def __call__(self, counts):
        """Return a weighted count."""
        return self.weight * counts[0, 0]


def report(**arguments):
    return ImbalanceReport("multiclass", 3, **arguments)


def labels(**arguments):
    return ThresholdSweep("f1", 11, "multilabel", num_labels=2, **arguments)


def adjusted(prior=(3, 2, 1), measure="recall", **arguments):
    return LogitAdjustmentSweep(measure, prior, logits=True, **arguments)


SETTINGS = {
    "clusters": [lambda: Accuracy("binary"), lambda: Accuracy("binary", clusters=True)],
    "threshold": [lambda: Accuracy("binary"), lambda: Accuracy("binary", threshold=0.9)],
    "logits": [lambda: Accuracy("binary"), lambda: Accuracy("binary", logits=True)],
    "ignore_index": [lambda: Accuracy("multiclass", 3), lambda: Accuracy("multiclass", 3, ignore_index=-100)],
    "measure": [lambda: Accuracy("binary"), lambda: imbtorch.Recall("binary")],
    "layout": [lambda: Accuracy("multiclass", 3), lambda: Accuracy("multiclass", 3, state="margins")],
    "classes": [lambda: Accuracy("multiclass", 3), lambda: Accuracy("multiclass", 4)],
    "labels": [lambda: Accuracy("multilabel", num_labels=2), lambda: Accuracy("multilabel", num_labels=3)],
    "task": [lambda: Accuracy("binary"), lambda: Accuracy("multiclass", 2)],
    "weights": [lambda: Accuracy("binary"), lambda: Accuracy("binary", weighted=True)],
    "on_invalid": [lambda: Accuracy("binary"), lambda: Accuracy("binary", on_invalid="warn")],
    "each step": [lambda: Accuracy("binary"), lambda: Accuracy("binary", dist_sync_on_step=True)],
    "average": [
        lambda: imbtorch.Recall("multiclass", 3),
        lambda: imbtorch.Recall("multiclass", 3, average="weighted"),
    ],
    "metric": [lambda: Accuracy("multiclass", 3), lambda: imbtorch.HandTill(3)],
    "ranked classes": [lambda: imbtorch.HandTill(3), lambda: imbtorch.HandTill(4)],
    "ranked logits": [lambda: imbtorch.HandTill(3), lambda: imbtorch.HandTill(3, logits=True)],
    "class names": [
        lambda: ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"]),
        lambda: ImbalanceReport("multiclass", class_names=["dog", "cat", "emu"]),
    ],
    "groups": [report, lambda: report(groups=["x", "y"])],
    "group names": [lambda: report(groups=["x", "y"]), lambda: report(groups=["y", "x"])],
    "names": [report, lambda: report(prefix="val_")],
    "measures": [report, lambda: report(measures=["iam"])],
    "intervals": [report, lambda: report(intervals=["iam"])],
    "prevalence": [lambda: report(prevalence=[1, 2, 3]), lambda: report(prevalence=[3, 2, 1])],
    "direction": [
        lambda: report(measures={"harm": directed(harm, True)}),
        lambda: report(measures={"harm": directed(harm, False)}),
    ],
    "average in a report": [
        lambda: report(measures={"f1": functools.partial(imbtorch.f_score, average="macro")}),
        lambda: report(measures={"f1": functools.partial(imbtorch.f_score, average="micro")}),
    ],
    "field of an object": [
        lambda: report(measures={"mine": Weighted(1.0)}),
        lambda: report(measures={"mine": Weighted(2.0)}),
    ],
    "thresholds": [
        lambda: ThresholdSweep(imbtorch.f_score, torch.tensor([0.2, 0.5])),
        lambda: ThresholdSweep(imbtorch.f_score, torch.tensor([0.3, 0.5])),
    ],
    "number of thresholds": [lambda: ThresholdSweep("f1", 11), lambda: ThresholdSweep("f1", 21)],
    "swept clusters": [lambda: ThresholdSweep("f1", 11), lambda: ThresholdSweep("f1", 11, clusters=True)],
    "swept measure": [lambda: ThresholdSweep("f1", 11), lambda: ThresholdSweep("mcc", 11)],
    "swept direction": [
        lambda: ThresholdSweep(imbtorch.accuracy, 11),
        lambda: ThresholdSweep(imbtorch.accuracy, 11, higher_is_better=False),
    ],
    "swept prevalence": [lambda: ThresholdSweep("f1", 11), lambda: ThresholdSweep("f1", 11, prevalence=[9, 1])],
    "limits": [
        lambda: ThresholdSweep("precision", 11, at_least={"recall": 0.1}),
        lambda: ThresholdSweep("precision", 11, at_least={"recall": 0.2}),
    ],
    "swept prior": [lambda: adjusted(), lambda: adjusted([1, 2, 3])],
    "swept taus": [lambda: adjusted(), lambda: adjusted(taus=[0, 1])],
    "adjusted measure": [lambda: adjusted(), lambda: adjusted(measure="accuracy")],
    "floors": [lambda: adjusted(), lambda: adjusted(at_least={"accuracy": 0.2})],
    "swept labels": [lambda: labels(class_names=["a", "b"]), lambda: labels(class_names=["b", "a"])],
    "beta": [lambda: imbtorch.FScore("binary", beta=1.0), lambda: imbtorch.FScore("binary", beta=2.0)],
}


def count_some(metric, rank):
    """Give a metric a batch that it takes."""
    sizes = {"binary": 2, "multiclass": metric.num_classes}
    task = getattr(metric, "task", "multiclass")
    generator = torch.Generator().manual_seed(rank)
    if task == "multilabel":
        target = torch.randint(2, (8, metric.num_labels), generator=generator)
        scores = torch.rand(target.shape, generator=generator)
    else:
        target = torch.arange(8) % sizes[task]
        shape = (8,) if task == "binary" else (8, sizes[task])
        scores = torch.rand(shape, generator=generator)
    if getattr(metric, "groups", None):
        metric.update(scores, target, group=target % 2)
    else:
        metric.update(scores, target)


def error_of(read):
    """Return the text of the error about other settings."""
    with pytest.raises(RuntimeError) as caught:
        read()
    return str(caught.value)


def counts_otherwise(rank, world):
    """Compute metrics of other settings on the last process, and metrics of the same settings after each."""
    warnings.simplefilter("ignore")
    found = {}
    for name, (first, other) in SETTINGS.items():
        metric, alike = (other if rank == world - 1 else first)(), first()
        for each in (metric, alike):
            count_some(each, rank)
        found[name] = [error_of(metric.compute), error_of(metric.compute)]  # also the second time
        with alike.sync_context():
            ranked = isinstance(alike, imbtorch.HandTill)
            swept = isinstance(alike, LogitAdjustmentSweep)
            counts = None if ranked else counter_of(alike).counts(state_of(alike))
            found[name].append(len(alike.targets) if ranked else int((counts.actual[0] if swept else counts).sum()))
    return found


SHOWN = {  # what the error shows of two processes
    "threshold": ("threshold_0_5", "threshold_0_9"),
    "class names": ("'cat', 'dog', 'emu'", "'dog', 'cat', 'emu'"),
    "metric": ("Accuracy", "HandTill"),
    "field of an object": ("'weight': 1.0", "'weight': 2.0"),
    "beta": ("'beta': 1.0", "'beta': 2.0"),
    "weights": ("int64", "weighted torch.float64"),
}


@pytest.mark.parametrize("world", [2, 3])
def test_processes_that_count_otherwise_are_told_so_on_all_of_them(world):
    answers = launch(world, counts_otherwise)
    for name in SETTINGS:
        *texts, _ = answers[0][name]
        assert all("is not set up alike on all processes, so that their samples" in text for text in texts), name
        parts = re.search(r": on one process it is (.*), on another one (.*)\. Build it", texts[0]).groups()
        assert parts[0] != parts[1]
        assert all(len(part) < 90 for part in parts)
        for part, shown in zip(sorted(parts), sorted(SHOWN.get(name, ("", ""))), strict=True):
            assert shown in part, name
        for *told, counted in (answer[name] for answer in answers):
            assert [text.partition(" ")[2] for text in told] == [texts[0].partition(" ")[2]] * 2, name
            assert counted == 8 * world * (2 if name in ("labels", "swept labels") else 1), name


def other_ways(rank, world):
    """Read metrics of other settings in each way that sums over processes."""

    def made(**arguments):
        other = {"prevalence": [2, 1, 1], "groups": 2, **arguments} if rank else {"prevalence": [1, 1, 2], **arguments}
        metric = ImbalanceReport("multiclass", 3, **other)
        count_some(metric, rank)
        return metric

    def stepwise():
        metric = Accuracy("multiclass", 3 + rank, dist_sync_on_step=True)
        metric(torch.tensor([0, 1]), torch.tensor([0, 1]))

    def in_a_collection():
        threshold = 0.5 + 0.1 * rank
        members = {name: cls("binary", threshold=threshold) for name, cls in (("a", Accuracy), ("r", imbtorch.Recall))}
        collection = MetricCollection(members)
        collection.update(torch.rand(4), torch.tensor([0, 1, 0, 1]))
        collection.compute()

    def gathered():
        made(dist_sync_fn=gather_all_tensors).compute()

    def within():
        with made().sync_context():
            raise AssertionError("the counts were summed")

    reads = [
        lambda: made()["iam"].compute(),
        lambda: made().counts(),
        lambda: made().interval("iam"),
        lambda: made().sync(),
        lambda: Accuracy("binary", threshold=0.5 + 0.1 * rank).at_prevalence([1, 1]),
        stepwise,
        in_a_collection,
        gathered,
        within,
    ]
    texts = [error_of(read) for read in reads]
    metric = made()
    local = metric.local_confmat
    error_of(metric.compute)
    assert not metric._is_synced
    assert torch.equal(metric.local_confmat, local)
    same = Accuracy("binary")
    if rank == 0:  # the other has no data
        same.update(torch.tensor([0, 1]), torch.tensor([0, 0]))
    return texts, same.compute().item()


def test_every_way_of_reading_compares_settings_first():
    for texts, value in launch(2, other_ways):
        assert all("is not set up alike on all processes" in text for text in texts)
        assert value == 0.5


def reads_alone(rank, world):
    """Read a value on the first process alone, and then another report on all."""
    first, other = ImbalanceReport("binary"), ImbalanceReport("binary", measures=["mcc"])
    for metric in (first, other):
        metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    return error_of(lambda: (rank or first["iam"].compute(), other.compute()))


def test_a_process_that_reads_alone_is_told_when_the_others_first_read_another_metric():
    """As the guide says; after the first sums nothing is compared any more."""
    for text in launch(2, reads_alone, timeout=60):
        assert "ImbalanceReport is not set up alike on all processes" in text


def number_of_comparisons(rank, world):
    """Return the collectives of the first and the second time, for metrics, copies, subgroups and other groups."""
    pair = torch.distributed.new_group([0, 1])

    def calls(read, times=2):
        made = []
        for _ in range(times):
            with counted_collectives() as each:
                read()
            made.append(each.count("all_reduce"))
        return made

    found = {}
    metric, step, ranked = Accuracy("binary"), Accuracy("binary", dist_sync_on_step=True), imbtorch.HandTill(3)
    batch = torch.tensor([0, 1]), torch.tensor([0, 0])
    metric.update(*batch)
    found["compute"] = calls(metric.compute)
    metric.reset()
    metric.update(*batch)
    found["after a reset"] = calls(metric.compute, 1)
    copies = metric.clone(), pickle.loads(pickle.dumps(metric))
    found["copies"] = [calls(copy.compute) for copy in copies]
    found["each step"] = calls(lambda: step(*batch), 3)
    scores = torch.eye(3)
    ranked.update(scores, torch.arange(3))
    found["ranked"] = calls(ranked.compute)
    ranked_step = imbtorch.HandTill(3, dist_sync_on_step=True)
    found["ranked each step"] = calls(lambda: ranked_step(scores, torch.arange(3)), 3)
    if rank < 2:
        metric.sync(process_group=pair)
        found["pair"] = int(counter_of(metric).counts(state_of(metric)).sum())
        metric.unsync()
    found["everyone again"] = calls(metric.compute, 1), metric.compute().item()
    return found


def test_settings_are_compared_at_the_first_sync_alone():
    for rank, found in enumerate(launch(3, number_of_comparisons)):
        assert found.pop("pair", 4) == 4, rank
        assert found == {
            "compute": [2, 1],
            "after a reset": [1],
            "copies": [[2, 1], [2, 1]],
            "each step": [2, 1, 1],
            "ranked": [1, 0],  # the samples are gathered
            "ranked each step": [1, 0, 0],
            "everyone again": ([1], 0.5),
        }


def sums_on_a_device_alone(rank, world):
    """Compute metrics of the CPU and of the simulated accelerator in a group that sums on the accelerator alone."""
    import simulated_device  # noqa: F401, registers the device, which other packages would choose for their tests

    all_reduce = torch.distributed.all_reduce

    def by_the_device(tensor, *args, **kwargs):
        assert tensor.device.type == "sim"
        there = tensor.cpu()
        all_reduce(there, *args, **kwargs)
        tensor.copy_(there)

    torch.distributed.all_reduce = by_the_device
    torch.distributed.get_backend_config = lambda group=None: "sim:nccl"
    found = []
    for made, batch in ((Accuracy, ([0, 1], [0, rank])), (imbtorch.HandTill, (torch.eye(2), torch.arange(2)))):
        for devices in (["cpu", "cpu"], ["cpu", "sim"]):
            metric = made("binary" if made is Accuracy else 2).to(devices[rank])
            metric.update(*(torch.as_tensor(part).to(devices[rank]) for part in batch))
            found.append(error_of(metric.compute))
    metric = Accuracy("binary").to("sim")
    metric.update(torch.tensor([0, 1]).to("sim"), torch.tensor([0, rank]).to("sim"))
    return found, metric.compute().item()


@needs_simulated_device
def test_a_device_that_the_group_cannot_sum_is_an_error_on_all_processes():
    (zero, value), other = launch(2, sums_on_a_device_alone, timeout=60)
    assert (zero, value) == other
    assert value == 0.75
    for text, name in zip(zero, ["Accuracy"] * 2 + ["HandTill"] * 2, strict=True):
        assert text.startswith(f"{name} is on a device for which its process group has no backend")
        assert "move it by metric.to('sim'), or make it an attribute of the module" in text


# functions, whose addresses could differ between processes, and sets, whose order could
SETTINGS_OF_A_REPORT = """
import functools, torch, imbtorch

def made():
    return lambda counts, names=None: counts[0, 0]

measures = {
    "mine": functools.partial(made(), names={"cat", "dog", "emu"}),
    "lambda": lambda counts: counts[1, 1],
    "f2": functools.partial(imbtorch.f_score, beta=2),
    "iam": imbtorch.imbalance_accuracy,
    "quiet": torch.no_grad()(imbtorch.accuracy),
}
report = imbtorch.ImbalanceReport("multiclass", 3, measures=measures, prevalence=[1, 2, 3])
costs = imbtorch.ExpectedCost("binary", costs=torch.eye(2))
print(report._settings_text(), costs._settings_text(), imbtorch.HandTill(3)._settings_text())
"""


@pytest.mark.slow
def test_the_settings_text_is_the_same_in_every_process_whatever_its_hash_seed(capsys):
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another one than this process has
    command, environment = [sys.executable, "-c", SETTINGS_OF_A_REPORT], {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    exec(SETTINGS_OF_A_REPORT, {"__name__": "__main__"})
    assert capsys.readouterr().out == done.stdout
    assert "made.<locals>.<lambda>" in done.stdout


# --- every process counts every sample --------------------------------------------------------------------------------


def told_of(shards, batch=None):
    """Return what is told of processes that count these predictions and targets, in batches of a size."""
    slots = []
    for rank, (preds, target) in enumerate(shards):
        seen, size = SeenSamples(), batch or max(1, len(target))
        for start in range(0, len(target), size):
            seen.add(preds[start : start + size], target[start : start + size])
        slots.append(torch.tensor(seen.slots(rank, len(shards))))
    return same_samples(torch.stack(slots).amax(0).tolist(), 0)[0]


def uneven_classes(target, generator, errors):
    wrong = torch.rand(len(target), generator=generator) < errors
    return torch.where(wrong, 1 - target, target)


SCORES = {  # predictions of targets; of a model that says little, of rounded scores, of scores at both ends
    "ordinary": lambda target, noise, generator: (noise + 1.5 * target).sigmoid(),
    "logits": lambda target, noise, generator: 3 * noise,
    "rare class": lambda target, noise, generator: (noise - 12).sigmoid(),
    "three classes": lambda target, noise, generator: torch.randn(len(target), 3, generator=generator).softmax(1),
    "half precision": lambda target, noise, generator: noise.bfloat16(),
    "constant": lambda target, noise, generator: torch.full_like(noise, 0.3),
    "nearly constant": lambda target, noise, generator: 0.5 + 1e-6 * noise,
    "saturated": lambda target, noise, generator: (60 * (noise + target) - 30).sigmoid(),
    "two nearly constant": lambda target, noise, generator: torch.where(noise > 0, 0.2, 0.8) + 1e-6 * noise,
    "votes of 20 trees": lambda target, noise, generator: (20 * noise.sigmoid()).round() / 20,
    "two digits": lambda target, noise, generator: (100 * noise.sigmoid()).round() / 100,
    "mostly 0": lambda target, noise, generator: torch.where(noise < 1, 0, noise.sigmoid()),
    "classes": lambda target, noise, generator: uneven_classes(target, generator, 0.2),
    "few errors": lambda target, noise, generator: uneven_classes(target, generator, 0.05),
    "classes of few positives": lambda target, noise, generator: (noise > 0.7).long(),
}


ORDERS = {
    "mixed": lambda target, world: target,
    "sorted": lambda target, world: target.sort().values,
    "in turns": lambda target, world: torch.arange(len(target)) // world % 2,  # all processes have equal targets
}


def drawn_shards(generator, world, kind, size):
    """Predictions and targets of each process; often equal targets, as of a set that is sorted or dealt in turns."""

    def drawn(*choices):
        return choices[int(torch.randint(len(choices), (1,), generator=generator))]

    samples = world * size
    target, order = (torch.rand(samples, generator=generator) < drawn(0.5, 0.1, 0.03, 0.0)).long(), drawn(*ORDERS)
    target = ORDERS[order](target, world)
    preds = SCORES[kind](target, torch.randn(samples, generator=generator), generator)
    starts = [(rank, None, world) if order == "in turns" else (rank * size, (rank + 1) * size) for rank in range(world)]
    return [(preds[slice(*each)], target[slice(*each)]) for each in starts], drawn(4, 16, None)


@pytest.mark.default_cases("2-300", "8-60")
@pytest.mark.parametrize(("world", "programs"), [(2, 300), (8, 60), (2, 2000), (8, 2000)])
def test_right_programs_are_silent_and_wrong_ones_told(world, programs):
    """Programs in which each process has samples of its own, and in which the last one has those of the first."""
    generator, told = torch.Generator().manual_seed(world), {kind: [[], []] for kind in SCORES}
    which = "all processes" if world == 2 else f"processes 0, {world - 1} of {world}"
    for number in range(programs):
        kind, size = list(SCORES)[number % len(SCORES)], 16 + int(184 * torch.rand((), generator=generator) ** 2)
        shards, batch = drawn_shards(generator, world, kind, size)
        assert told_of(shards, batch) == "", (kind, size, batch)
        if number % 4 == 0:  # 16 and 15 kinds take turns
            shuffled = torch.randperm(size, generator=generator)
            for of_kind, order in zip(told[kind], (slice(None), shuffled), strict=True):
                shards[-1] = tuple(part[order] for part in shards[0])
                text = told_of(shards, batch)
                assert text in ("", f"the first batch is the same on {which}", f"the samples are the same on {which}")
                of_kind.append(text != "")
    shares = {kind: [sum(each) / len(each) for each in found] for kind, found in told.items()}
    common = [shares[kind] for kind in ("ordinary", "logits", "rare class", "three classes", "half precision")]
    assert [in_order for in_order, _ in common] == [1] * 5
    assert sum(mixed for _, mixed in common) / 5 > 0.8
    assert shares["constant"] == [0, 0]
    assert shares["classes"][0] > 0.5
    assert shares["classes"][1] == 0  # the page says so


PAIR = torch.Generator().manual_seed(7)
MANY = torch.rand(200, generator=PAIR), (torch.rand(200, generator=PAIR) < 0.2).long()


@pytest.mark.parametrize(
    ("preds", "target", "told"),
    [
        (torch.arange(16.0), torch.zeros(16), True),
        (torch.arange(15.0), torch.zeros(15), False),  # too few
        (torch.zeros(500), torch.arange(500) % 2, False),  # one predicted class
        (torch.arange(500) % 2, torch.arange(500) % 2, False),  # no errors: the order can be that of the classes
        (torch.arange(500) // 3 % 2, torch.arange(500) % 2, True),
        (torch.arange(96.0).reshape(2, 3, 4, 4), torch.zeros(2, 4, 4), True),  # positions
        (torch.arange(32.0).reshape(4, 8).bfloat16(), torch.zeros(4, 8), True),  # labels
        (torch.arange(48.0).reshape(24, 2).half(), torch.zeros(24), True),  # both classes
        (torch.zeros(0), torch.zeros(0), False),
        (torch.full((20,), torch.inf), torch.zeros(20), False),
        (torch.full((20,), torch.nan), torch.zeros(20), False),
        (torch.full((20, 3), torch.inf), torch.zeros(20), False),
        (torch.arange(20.0).double() * 1e307, torch.zeros(20), True),
    ],
)
def test_equal_samples_that_no_chance_makes_equal(preds, target, told):
    target = target.long()
    assert bool(told_of([(preds, target)] * 2)) is told
    assert bool(told_of([(preds, target), (preds.clone(), target.bool())])) is told
    if told:
        for other in (preds.roll(1, 0), preds + 1):
            assert "first batch" not in told_of([(preds, target), (other, target)])
        assert told_of([(preds, target), (preds + 1 + preds / 9, target)]) == ""


def test_sums_tell_equal_samples_in_any_order_batches_and_rounding():
    scores, target = MANY
    order = torch.randperm(200, generator=PAIR)
    rounding = scores * (1 + 1e-6 * torch.randn(200, generator=PAIR))
    for other in ((scores[order], target[order]), (rounding, target), (rounding[order], target[order])):
        for shards in ([MANY, other], [MANY, (1 - scores, target), other]):
            for batch in (3, 64):
                assert "the samples are the same on" in told_of(shards, batch)
    for other in ((scores[1:], target[1:]), (scores + 1e-4, target), (scores, 1 - target)):
        assert told_of([(scores[order], target[order]), other], 64) == ""


def test_samples_are_compared_in_a_limited_number_of_sums():
    """Constant scores could wait for others for ever."""
    seen, unsure = SeenSamples(), []
    for _ in range(20):
        seen.clear()
        seen.add(torch.full((20,), 0.3), torch.zeros(20).long())
        unsure.append(same_samples(seen.slots(0, 1), 0)[1])
    assert unsure == [True] * 15 + [False] * 5


def test_batches_of_other_shapes_are_compared():
    """As of texts of other lengths, and a single sample."""
    parts = [
        (torch.rand(4, 3, size, generator=PAIR), torch.randint(3, (4, size), generator=PAIR)) for size in (5, 200, 1)
    ]
    seen = [SeenSamples(), SeenSamples()]
    for preds, target in parts:
        for each in seen:
            each.add(preds.requires_grad_(), target.to(torch.uint8))
            each.add(torch.tensor(0.5), torch.tensor(1))
    slots = torch.stack([torch.tensor(each.slots(rank, 2)) for rank, each in enumerate(seen)])
    assert same_samples(slots.amax(0).tolist(), 0)[0] == "the first batch is the same on all processes"
    assert same_samples(slots.amax(0).tolist(), 1)[0] == ""


class Unsharded(IterableDataset):
    def __init__(self, *columns):
        self.columns = columns

    def __iter__(self):
        return zip(*self.columns, strict=True)


def epochs(rank, world, kind):
    """Run two epochs and return the warnings of each, and the number of counted samples."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(200, generator=generator) < 0.2).long()
    scores = torch.rand(200, generator=generator) * 0.7 + 0.3 * target
    data = TensorDataset(scores, target)
    options = {"batch_size": 20}
    process_group = None
    if kind == "exact":
        options = {"batch_sampler": ExactBatchSampler(SequentialSampler(data), batch_size=20)}
    elif kind == "iterable":
        data = Unsharded(scores, target)
    elif kind == "tensor parallel":
        groups = [torch.distributed.new_group([each]) for each in range(world)]
        process_group = groups[rank]
    metrics = [
        ImbalanceReport("binary", process_group=process_group),
        ThresholdSweep("f1", process_group=process_group),
        imbtorch.HandTill(2, process_group=process_group),
    ]
    loader, texts = DataLoader(data, **options), []
    for epoch in range(2):
        for some_scores, some_target in loader:
            for metric in metrics[:2]:
                metric(some_scores, some_target) if epoch else metric.update(some_scores, some_target)
            metrics[2].update(torch.stack((1 - some_scores, some_scores), 1), some_target)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for metric in metrics:
                metric.compute()
        texts.append([str(each.message) for each in caught])
        counted = int(metrics[0].counts().sum())
        [metric.reset() for metric in metrics]
    return texts, counted


@pytest.mark.parametrize("kind", ["all", "iterable", "exact", "tensor parallel"])
def test_processes_that_all_count_all_samples_are_told_once(kind):
    (first, counted), (second, _) = launch(2, epochs, kind)
    told = kind in ("all", "iterable")
    assert counted == (400 if told else 200)
    assert second == [[], []]  # rank zero warns
    assert [text.partition(":")[0] for text in first[0]] == ["ImbalanceReport", "ThresholdSweep", "HandTill"] * told
    assert all("the first batch is the same on all processes" in text for text in first[0])
    assert all("process_group=" in text and "ExactBatchSampler" in text for text in first[0])
    assert first[1] == []


def programs(rank, world):
    """Yield a name, the batches of this process, and whether it counts in the group of the last processes alone."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(41, generator=generator) < 0.3).long()
    scores = torch.rand(41, generator=generator) * 0.7 + 0.3 * target
    own = torch.randperm(41, generator=torch.Generator().manual_seed(rank))

    def batches(order, preds=scores, size=4):
        return list(zip(preds[order].split(size), target[order].split(size), strict=True))

    whole, part = torch.arange(41), torch.arange(rank, 41, world)
    yield "small batches", batches(whole)
    yield "an order of its own", batches(own)
    yield "an order and batches of its own", batches(own, size=4 + rank)
    yield "rounding of its own", batches(own, scores + 1e-8 * rank)
    yield "classes", batches(whole, (scores > 0.5).long())
    yield "first and last", batches(whole[1:] if 0 < rank < world - 1 else own)
    yield "one each", [(each[None], label[None]) for each, label in zip(scores, target, strict=True)]
    yield "its own samples", batches(part)
    yield "its own constant scores", batches(part, torch.full((41,), 0.3))
    yield "its own scores of trees", batches(part, (scores * 10).round() / 10)
    yield "padded", batches(torch.cat((part, whole[rank : rank + 14 - len(part)])))


def told_by_processes(rank, world):
    """Return the warnings of each program: of a report, of a sweep and of a metric that ranks."""
    last, found = torch.distributed.new_group([1, 2]), {}
    first, few = torch.distributed.new_group([0, 1]), Accuracy("binary")
    few.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    for group in (None, first, None, last, None):  # the processes agree on what they have compared in which group
        if group is None or rank in ((0, 1) if group is first else (1, 2)):
            with few.sync_context(process_group=group):
                found[f"samples of {group and ('first' if group is first else 'last')}"] = int(state_of(few).sum())

    def texts(batches, *epochs, **arguments):
        made = [
            ImbalanceReport("binary", **arguments),
            ThresholdSweep("f1", **arguments),
            imbtorch.HandTill(2, **arguments),
        ]
        made = made if batches[0][0].is_floating_point() else made[:1]
        caught = []
        for end in (*epochs, None):
            for scores, target in batches[:end]:
                for metric in made[:2]:
                    metric.update(scores, target)
                if made[2:]:
                    made[2].update(torch.stack((1 - scores, scores), 1), target)
            with warnings.catch_warnings(record=True) as told, counted_collectives() as calls:
                warnings.simplefilter("always")
                for metric in made:
                    metric.compute()
                    metric.reset()
            caught.append(
                [str(each.message).partition(", so")[0] for each in told if "the same on" in str(each.message)]
            )
            caught.append(calls.count("all_reduce"))
        return caught

    for name, batches in programs(rank, world):
        found[name] = texts(batches)
        if name == "small batches":
            found["after a sanity check"] = texts(batches, 2)
            found["weights after a sanity check"] = weighted(batches)
        if name == "first and last" and rank:
            found["a group"] = texts(list(programs(2, world))[1][1], process_group=last)
    return found


def weighted(batches):
    """Return what a metric whose counts are floats tells after eight samples, and after all; and its counts."""
    metric, caught = imbtorch.Recall("binary", weighted=True), []
    for end in (2, None, None):
        metric.reset()
        for each in batches[:end]:
            metric.update(*each, weight=torch.full_like(each[0], 0.5))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            metric.compute()
        caught.append([str(each.message).partition(", so")[0] for each in told])
        with metric.sync_context():
            caught[-1].append(float(metric.local_confmat.sum()))
    return caught


def test_processes_with_the_same_samples_are_told_in_any_program():
    zero, one, two = launch(3, told_by_processes, timeout=60)
    assert [each.get("samples of None") for each in (zero, one, two)] == [6] * 3
    assert [each.get("samples of first") for each in (zero, one, two)] == [4, 4, None]
    everyone, kinds = "the same on all processes", ("ImbalanceReport", "ThresholdSweep", "HandTill")
    in_order = [f"{kind}: the first batch is {everyone}" for kind in kinds]
    mixed = [f"{kind}: the samples are {everyone}" for kind in kinds]
    some = [f"{kind}: the samples are the same on processes 0, 2 of 3" for kind in kinds]
    calls = 5  # settings of three metrics, and the counts of two
    expected = {
        "small batches": [in_order, calls],
        "an order of its own": [mixed, calls],
        "an order and batches of its own": [mixed, calls],
        "rounding of its own": [mixed, calls],
        "classes": [in_order[:1], 2],
        "first and last": [some, calls],
        "one each": [in_order, calls],
        "its own samples": [[], calls],
        "its own constant scores": [[], calls],
        "its own scores of trees": [[], calls],
        "padded": [[], calls],
        "after a sanity check": [[], calls, in_order[:2], 2],  # in the collective step that sums the counts
    }
    for name, told in expected.items():
        assert zero[name] == told, name
        silent = [each if isinstance(each, int) else [] for each in told]
        assert one[name] == two[name] == silent, name
    assert zero["weights after a sanity check"] == [[12.0], [f"Recall: the first batch is {everyone}", 61.5], [61.5]]
    assert one["weights after a sanity check"] == [[12.0], [61.5], [61.5]]
    assert one["a group"] == [in_order, calls]  # the first process of the group tells
    assert two["a group"] == [[], calls]


# --- tensors that processes share -------------------------------------------------------------------------------------


def counts_of_distributed_tensors(rank, world):
    """Follow the remedy of the error for each placement of distributed tensors; return the counts of all processes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(13, 3, generator=generator), torch.arange(13) % 3
    line, table = init_device_mesh("cpu", (world,)), init_device_mesh("cpu", (1, world))
    found = []
    for mesh, *kinds in (
        (line, Shard(0)),
        (line, Shard(1)),
        (line, Replicate()),
        (table, Replicate(), Shard(0)),
        (table, Shard(0), Shard(0)),
    ):
        of_target = [Shard(0) if kind.is_shard() else kind for kind in kinds]
        given = {"preds": distribute_tensor(scores, mesh, kinds), "target": distribute_tensor(target, mesh, of_target)}
        own, report = {}, ImbalanceReport("multiclass", 3)
        for name, plain in (("preds", target), ("target", scores)):
            with pytest.raises(TypeError, match=f"{name} must be an ordinary tensor, got a DTensor") as error:
                report.update(*((given[name], plain) if name == "preds" else (plain, given[name])))
            remedy = str(error.value).partition("; use ")[2]
            own[name] = eval(remedy, {**given, "Shard": Shard})
        report.update(**own)
        report.compute()
        found.append(report.result().counts.tolist())
    return found


def test_the_remedy_for_distributed_tensors_counts_each_sample_once():
    pytest.importorskip("torch.distributed.tensor", reason="needs torch 2.5, which made distributed tensors public")
    generator = torch.Generator().manual_seed(0)
    expected = confusion_matrix(torch.arange(13) % 3, torch.rand(13, 3, generator=generator).argmax(1)).tolist()
    for found in launch(2, counts_of_distributed_tensors):
        assert found == [expected] * 5
