"""A theme of several modules: a simulated accelerator, on which nothing waits, no devices are mixed, values are equal.

The same metric on the CPU gives the expected values; other tests hold these against independent oracles.
"""

import dataclasses
import functools
import itertools
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from rooms import SeenSamples, catalogue, counts, same_samples, state_of
from simulated_device import AVAILABLE, Graph, Log, settings, waits
from torch import Tensor
from torchmetrics import MetricCollection, MetricTracker
from updates import CASES, LAYOUTS, ONE_OF_EACH_KERNEL, SIZE, batch

import imbtorch
from imbtorch import HandTill, ImbalanceReport, LogitAdjustmentSweep, Recall, ThresholdSweep, papers, plots, statistics

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs torch 2.10, whose backends can be written in Python")

LAUNCHES = 12  # of a compute
IDS = {"cluster": torch.arange(40) // 4}
MOST = {  # launches of an update; ignore_index takes three
    ("binary", "matrix"): 15,
    ("multiclass", "matrix"): 12,
    ("multiclass", "margins"): 24,
    ("multilabel", "matrix"): 32,
}


@pytest.fixture(params=["plain", "deterministic", "without float64"])
def _variant(request, monkeypatch):
    """Make the device like CUDA, like CUDA with deterministic algorithms, and like Apple's."""
    monkeypatch.setattr(counts, "TYPES_WITH_FLOAT64", {"cpu": True})
    monkeypatch.setitem(settings, "float64", request.param != "without float64")
    torch.use_deterministic_algorithms(request.param == "deterministic")
    yield
    torch.use_deterministic_algorithms(False)


VARIANTS = ["plain", "deterministic", "without float64"]


@pytest.fixture
def _default_device():
    torch.set_default_device("sim")
    yield
    torch.set_default_device(None)


def moved(values, device="sim"):
    """The same values with their tensors on a device."""
    if isinstance(values, dict):
        return {name: moved(each, device) for name, each in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(moved(each, device) for each in values)
    return values.to(device) if isinstance(values, Tensor) else values


def told(call):
    """Result of a call and the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, [str(each.message) for each in caught]


def named(value):
    return value if isinstance(value, dict) else {"": value}


def same(value, wanted, device="sim"):
    """Hold values on the device against those on the CPU."""
    value, wanted = named(value), named(wanted)
    assert {each.device.type for each in value.values()} == {device}
    # thresholds are float64 where the device has it
    torch.testing.assert_close(moved(value, "cpu"), wanted, equal_nan=True, check_dtype=settings["float64"])


def updated(make, *batches):
    """A metric on the CPU and the same one on the device, both updated with batches: tensors and keyword arguments."""
    here, there = make(), make().to("sim")
    for given, more in batches:
        here.update(*given, **more)
        there_given, there_more = moved(given), moved(more)
        with waits("refused"), Log() as log:
            there.update(*there_given, **there_more)
        assert not log.copies
    return here, there


def agree(here, there, wait=1, launches=LAUNCHES):
    """Compute a metric on the CPU and on the device, where it makes one trip to the host; a rule gets its numbers."""
    torch.manual_seed(0)
    wanted, said = told(here.compute)
    torch.manual_seed(0)
    with Log() as log:
        value, said_there = told(there.compute)
    same(value, wanted)
    assert said_there == said
    assert len(log.waits) <= wait, log.waits
    assert len(log.launched) <= launches, log.launched
    numbers = there.rule.state_dict() if getattr(there, "rule", None) else ()
    assert log.copies.count("to the device") <= 1 + len(numbers)


def pairwise(*axes, possible=lambda *_: True):
    """Combinations in which any two values of different axes occur together, if that is possible."""
    generator = random.Random(0)
    drawn = [case for case in (tuple(map(generator.choice, axes)) for _ in range(400)) if possible(*case)]
    pairs = {case: set(itertools.combinations(enumerate(case), 2)) for case in drawn}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        chosen.append(max(drawn, key=lambda case: len(pairs[case] & missing)))
        missing -= pairs[chosen[-1]]
    return chosen


# --- the device itself ----------------------------------------------------------------------------------------------


WAITING = {
    "_local_scalar_dense": lambda x: bool(x[0] > 2),
    "nonzero": lambda x: x[x > 2],
    "_index_put_impl_": lambda x: x.masked_fill(x > 2, 0).index_put_((x > 2,), x[:1]),
    "equal": lambda x: torch.equal(x, x),
    "copy to the host": lambda x: torch.empty(5).copy_(x, non_blocking=True),
    "copy to the device": lambda x: x + torch.ones(5).to("sim"),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_device_notes_waits_and_refuses_them(name):
    x = torch.arange(5.0).to("sim")
    with Log() as log:
        WAITING[name](x)
    assert [text.partition(" at ")[0] for text in log.waits] == [name]
    with waits("refused"), pytest.raises(RuntimeError, match=f"the device is waited for: {name} at "):
        WAITING[name](x)
    with waits("refused"), Log() as log:
        torch.ones(5).to("sim", non_blocking=True).add_(x)
    assert (log.launched, log.copies, log.waits) == (["add"], ["to the device"], [])


def test_the_device_refuses_what_others_refuse(monkeypatch):
    x = torch.arange(5.0).to("sim")
    with pytest.raises(RuntimeError, match="same device"):
        torch.where(x > 2, x, torch.ones(5))
    with pytest.raises(RuntimeError, match="'sim' device type for generator"):
        torch.rand(5, device="sim", generator=torch.Generator())
    torch.use_deterministic_algorithms(True)
    try:
        assert x.long().cumsum(0).tolist() == [0, 1, 3, 6, 10]
        with pytest.raises(RuntimeError, match="cumsum does not have a deterministic implementation"):
            x.cumsum(0)
    finally:
        torch.use_deterministic_algorithms(False)
    monkeypatch.setitem(settings, "float64", False)
    with pytest.raises(TypeError, match="doesn't support float64"):
        x.double()


def test_the_device_draws_other_numbers():
    torch.manual_seed(0)
    first = torch.rand(5, device="sim").tolist()
    torch.manual_seed(0)
    assert torch.rand(5, device="sim").tolist() == first
    assert torch.rand(5).tolist() != first


# --- the state ------------------------------------------------------------------------------------------------------


@pytest.mark.default_cases(*ONE_OF_EACH_KERNEL)
@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_an_update_does_not_wait_and_can_be_replayed(task, layout, scores, ignore_index):
    make = functools.partial(Recall, task, **SIZE[task], ignore_index=ignore_index, state=layout)
    given = batch(task, scores, ignore_index)
    here, there = updated(make, (given, {}))
    moving = moved(given)
    with waits("refused"), Log() as log:
        there.update(*moving)
    assert len(log.launched) <= MOST[task, layout]
    with Graph() as graph:
        there.update(*moving)
    there.reset()
    here.reset()
    for seed in range(3):
        fresh = batch(task, scores, ignore_index, seed=seed)
        for old, new in zip(moving, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        here.update(*fresh)
    assert torch.equal(state_of(there).cpu(), state_of(here))


def test_buckets_of_a_sweep_can_be_replayed():
    """The bucket of a sample without an id depends on the number of samples before it, which a replay must read."""
    here, there = ThresholdSweep("f1", 101, clusters=True), ThresholdSweep("f1", 101, clusters=True).to("sim")
    moving = moved(scores_of(here))
    there.update(*moving)
    with waits("refused"), Graph() as graph:
        there.update(*moving)
    there.reset()
    for seed in range(3):
        fresh = scores_of(here, seed)
        for old, new in zip(moving, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        here.update(*fresh)
    assert torch.equal(state_of(there).cpu(), state_of(here))


@pytest.mark.parametrize("make", [lambda: Recall("binary"), lambda: ThresholdSweep("f1")])
def test_dependent_samples_take_one_launch_more(make):
    scores, target = moved(batch("binary"))
    launches = []
    for given, more in (((scores, target), {}), ((scores.view(8, 5), target.view(8, 5)), {}), ((scores, target), IDS)):
        metric, more = make().to("sim"), moved(more)
        for _ in range(2):
            with waits("refused"), Log() as log:
                metric.update(*given, **more)
        launches.append(len(log.launched))
    assert launches[1:] == [launches[0] + 1] * 2


@pytest.mark.parametrize("make", [Recall, ImbalanceReport])
def test_samples_of_several_processes_are_noted_without_a_wait(make):
    """Two launches more in the first updates, until they hold 16 samples, and none later."""
    launches = {}
    for several in (False, True):
        metric = make("binary", distributed_available_fn=lambda several=several: several).to("sim")
        launches[several] = []
        for seed in range(5):
            given = moved(tuple(part[:6] for part in batch("binary", seed=seed)))
            with waits("refused"), Log() as log:
                metric.update(*given)
            assert not log.copies
            launches[several].append(len(log.launched))
    more = [ours - alone for alone, ours in zip(*launches.values(), strict=True)]
    assert more == [2, 2, 2, 0, 0]
    texts = []
    for other in (0, 1):
        seen = [SeenSamples(), SeenSamples()]
        for each, seed in zip(seen, (0, other), strict=True):
            given = moved(batch("binary", seed=seed))
            with waits("refused"):
                each.add(*given)
        slots = torch.stack([torch.tensor(each.slots(rank, 2)) for rank, each in enumerate(seen)])
        texts.append(same_samples(slots.amax(0).tolist(), 0)[0])
    assert texts == ["the first batch is the same on all processes", ""]


@pytest.mark.default_cases("multiclass-matrix-raise", "multilabel-matrix-warn")
@pytest.mark.parametrize("on_invalid", ["raise", "warn"])
@pytest.mark.parametrize(("task", "layout"), LAYOUTS)
def test_what_cannot_be_counted_is_told_by_compute(task, layout, on_invalid):
    make = functools.partial(Recall, task, **SIZE[task], state=layout, on_invalid=on_invalid)
    good, (preds, target) = batch(task), batch(task, seed=1)
    target.view(-1)[3] = 77
    there = make().to("sim")
    for moving in (moved(good), moved((preds, target))):
        with waits("refused"):
            there.update(*moving)
    if on_invalid == "raise":
        with pytest.raises(ValueError, match="did not count 1 of the samples it was given: 1 "):
            there.compute()
        return
    here = make()
    here.update(*good)
    here.update(preds, target)
    agree(here, there)


# --- every metric ---------------------------------------------------------------------------------------------------

OF_TWO_CLASSES = {"ExpectedCost": {"costs": torch.tensor([[0.0, 1.0], [5.0, 0.0]])}, "NetBenefit": {"threshold": 0.2}}


@pytest.mark.default_cases("P4-binary-plain", "P4-multiclass-deterministic", "P4-multilabel-without float64")
@pytest.mark.parametrize(
    ("name", "task", "_variant"),
    [
        (name, task, VARIANTS[(index + place) % 3])
        for index, name in enumerate([*catalogue.__all__, "ConfusionMatrix"])
        for place, task in enumerate(SIZE)
        if task != "multiclass" or name not in OF_TWO_CLASSES
    ],
    indirect=["_variant"],
)
def test_every_metric(name, task, _variant):
    make = functools.partial(getattr(imbtorch, name), task, **SIZE[task], **OF_TWO_CLASSES.get(name, {}))
    here, there = updated(make, (batch(task), {}))
    agree(here, there)
    given = batch(task, seed=1)
    moving = moved(given)
    wanted = here(*given)
    with waits("refused" if settings["float64"] else "allowed"), Log() as log:
        value = there(*moving)
    same(value, wanted)
    assert len(log.copies) <= (
        0 if settings["float64"] else 2
    )  # without float64 it makes the trip that a compute makes


# --- reports --------------------------------------------------------------------------------------------------------

OPTIONS = {
    "groups": lambda task: {"groups": ["first", "second"]},
    "class groups": lambda task: {"class_groups": {"tail": [0] if task == "binary" else [3, 4]}},
    "clusters": lambda task: {"clusters": True},
    "weights": lambda task: {"weighted": True},
    "prevalence": lambda task: {
        "prevalence": {"binary": [0.9, 0.1], "multiclass": [5, 1, 1, 1, 1], "multilabel": [0.2] * 5}[task]
    },
    "intervals": lambda task: {"intervals": ["iam", "recall"]},
}
SAMPLES = 200


def possible(layout, scores, ignore_index, variant, *chosen):
    """Return whether a report takes these arguments; all others are refused."""
    options = set(itertools.compress(OPTIONS, chosen))
    return not (
        ("weights" in options and (variant == "without float64" or options & {"clusters", "intervals"}))
        or (layout[1] == "margins" and options & {"intervals", "prevalence", "clusters"})
        or (ignore_index == 0 and "prevalence" in options)
    )


def samples_of(task, scores, ignore_index, options, seed=0):
    """A batch and what else an update needs."""
    preds, target = batch(task, scores != "labels", ignore_index, SAMPLES, seed)
    preds = preds.clamp(0.01, 0.99).logit() if scores == "logits" else preds
    generator = torch.Generator().manual_seed(seed)
    more = {
        "groups": {"group": torch.randint(2, (SAMPLES,), generator=generator)},
        "weights": {"weight": torch.rand(SAMPLES, generator=generator)},
        "clusters": {"cluster": torch.arange(SAMPLES) // 4},
    }
    return (preds, target), {name: each for option in options for name, each in more.get(option, {}).items()}


REPORTS = pairwise(
    LAYOUTS, ["labels", "probabilities", "logits"], [None, 0, -100], VARIANTS, *[(False, True)] * 6, possible=possible
)


def case_id(value):
    return "-".join(value) if isinstance(value, tuple) else None


@pytest.mark.default_cases(
    "multiclass-matrix-probabilities-None-plain-groups-clusters-intervals",
    "multiclass-margins-labels-0-plain-groups-class groups-weights",
    "binary-matrix-labels-None-without float64-clusters-prevalence",
)
@pytest.mark.parametrize(
    ("layout", "scores", "ignore_index", "_variant", "options"),
    [(*case[:4], tuple(itertools.compress(OPTIONS, case[4:]))) for case in REPORTS],
    indirect=["_variant"],
    ids=case_id,
)
def test_reports(layout, scores, ignore_index, _variant, options):
    task, state = layout
    arguments = SIZE[task] | {"state": state, "ignore_index": ignore_index, "logits": scores == "logits"}
    for option in options:
        arguments |= OPTIONS[option](task)
    make = functools.partial(ImbalanceReport, task, **arguments)
    batches = [samples_of(task, scores, ignore_index, options, seed) for seed in range(2)]
    here, there = updated(make, *batches)
    agree(here, there)
    assert str(there.table()) == str(here.table())
    if state == "matrix" and "weights" not in options:
        ends = [
            metric.interval("iam", draws=200, generator=torch.Generator().manual_seed(1)) for metric in (here, there)
        ]
        assert ends[0].low.item() == ends[1].low.item()
        assert ends[0].high.item() == ends[1].high.item()
    given, more = batches[0]
    torch.manual_seed(0)
    wanted, said = told(lambda: here(*given, **more))
    moving, moving_more = moved(given), moved(more)
    torch.manual_seed(0)
    with Log() as log:
        value, said_there = told(lambda: there(*moving, **moving_more))
    same(value, wanted)
    assert said_there == said
    assert len(log.waits) <= 1, log.waits


# --- sweeps, and metrics that keep all samples ----------------------------------------------------------------------

LABELS = {"task": "multilabel", "num_labels": 5}
SWEEPS = {
    "curves": lambda: ThresholdSweep("f1", also=["auc", "average_precision", "partial_auc"]),
    "limits": lambda: ThresholdSweep("f1", at_least={"recall": 0.5}, alerts=0.9),
    "costs": lambda: ThresholdSweep("f1", costs=[[0, 1], [5, 0]], ignore_index=-100),
    "prevalence": lambda: ThresholdSweep("precision", prevalence=[0.6, 0.4], logits=True),
    "labels": lambda: ThresholdSweep("f1", **LABELS, also=["auc"], ignore_index=-100),
    "limits of labels": lambda: ThresholdSweep("precision", **LABELS, at_least={"recall": 0.5}, prevalence=[0.4] * 5),
    "clusters": lambda: ThresholdSweep("f1", clusters=True, also=["auc"]),
    "images": lambda: ThresholdSweep("f1", 101, **LABELS, clusters=True),
    "classes": lambda: ThresholdSweep("iba", task="multiclass", num_classes=5, prevalence=[1] * 5),
    "adjustments": lambda: LogitAdjustmentSweep("balanced_accuracy", [5, 4, 3, 2, 1]),
    "floors": lambda: LogitAdjustmentSweep(
        "f1", [5, 4, 3, 2, 1], logits=True, at_least={"accuracy": 0.1}, class_groups={"tail": [3, 4]}
    ),
    "hand and till": lambda: HandTill(5, ignore_index=0),
    "hand and till of logits": lambda: HandTill(5, logits=True),
}


def scores_of(metric, seed=0):
    """Scores and targets for a metric of scores; only those of the first class or label say something."""
    task = getattr(metric, "task", "multiclass")
    (preds, target), _ = samples_of(task, "probabilities", metric.ignore_index, (), seed)
    if task != "multiclass":
        preds = (preds + target.clamp(0, 1)) / 2
        return (preds.clamp(0.01, 0.99).logit() if metric.logits else preds), target
    return (preds.log() if metric.logits else preds / preds.sum(1, keepdim=True)), target


def read(sweep):
    """What a sweep tells beside its values."""
    generator = torch.Generator().manual_seed(1)
    if isinstance(sweep, LogitAdjustmentSweep):
        return plain((str(sweep.best()), str(sweep.table()), sweep.gain(generator=generator)))
    best = str(sweep.best()) if sweep.task == "binary" else sweep.result().curve
    return plain((best, sweep.interval("value", generator=generator)))


def plain(found):
    """The numbers in a result, as text."""
    if isinstance(found, Tensor):
        return str(found.detach().cpu().double().tolist())
    if dataclasses.is_dataclass(found):
        return plain({each.name: getattr(found, each.name) for each in dataclasses.fields(found)})
    if isinstance(found, dict):
        return str({name: plain(each) for name, each in found.items()})
    if isinstance(found, (tuple, list)):
        return str([plain(each) for each in found])
    return repr(found)


@pytest.mark.default_cases("limits-deterministic", "labels-plain", "floors-without float64")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize("kind", SWEEPS)
def test_sweeps(kind, _variant):
    more = {"cluster": torch.arange(SAMPLES) // 4} if kind == "clusters" else {}
    here, there = updated(SWEEPS[kind], *[(scores_of(SWEEPS[kind](), seed), more) for seed in range(2)])
    if isinstance(here, HandTill):
        agree(here, there, wait=2, launches=1000)
    else:
        agree(here, there, wait=1)  # also for whether the logits look like logits
        assert read(there) == read(here)
    given = scores_of(here, seed=2)
    moving = moved(given)
    wanted = here(*given)
    with Log() as log:
        value = there(*moving)
    same(value, wanted)
    assert len(log.waits) <= 1 + isinstance(here, HandTill), log.waits


def test_probabilities_in_place_of_logits_are_told_by_compute():
    """The counts of a sweep over tau hold no scores."""
    sweep = LogitAdjustmentSweep("balanced_accuracy", [5, 4, 3, 2, 1], logits=True).to("sim")
    for logits, told in ((True, 0), (False, 1)):
        scores, target = scores_of(sweep)
        scores = moved((scores if logits else scores.softmax(1), target))
        sweep.reset()
        with waits("refused"):
            sweep.update(*scores)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            sweep.compute()
            sweep.compute()
        assert sum("sum to 1 over the classes in each sample" in str(each.message) for each in found) == told


@pytest.mark.parametrize("make", [
    lambda: ImbalanceReport("binary", logits=True),
    lambda: Recall("multilabel", num_labels=5, logits=True),
    lambda: ThresholdSweep("f1", logits=True),
], ids=["report", "labels", "sweep"])  # fmt: skip
def test_the_first_logits_are_held_on_the_device_until_compute(make):
    """One launch more in the first updates, until they hold 32 samples, and none later."""
    metrics = {logits: make().to("sim") for logits in (True, False)}
    launches = {logits: [] for logits in metrics}
    shape = (5,) if metrics[True].task == "multilabel" else ()
    for epoch in range(2):
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            probabilities = (3 * torch.randn(20, *shape, generator=generator) - 3).sigmoid()
            target = (torch.rand(20, *shape, generator=generator) < probabilities).long()
            for logits, metric in metrics.items():
                given = moved((probabilities if logits else probabilities.logit(), target))
                with waits("refused"), Log() as log:
                    metric.update(*given)
                assert not log.copies
                launches[logits].append(len(log.launched))
        for logits, metric in metrics.items():
            with Log() as log:
                _, texts = told(metric.compute)
            assert sum("crowd near 0" in text for text in texts) == logits, epoch
            assert len(log.waits) <= 1
            assert metric.like_probabilities == logits
            metric.reset()
    first, _, later, last, *again = launches[False]
    assert later == last
    assert first == later + 1
    assert launches[False] == launches[True]
    assert again == launches[False][:4]


# --- the life of a metric -------------------------------------------------------------------------------------------

KINDS = {
    "matrix": lambda: imbtorch.ConfusionMatrix("multiclass", 5, ignore_index=0),
    "margins": lambda: Recall("multiclass", 5, state="margins", average="none"),
    "thresholds": lambda: Recall("multilabel", num_labels=5, threshold=[0.1, 0.3, 0.5, 0.7, 0.9]),
    "report": lambda: ImbalanceReport("multiclass", 5, clusters=True, prevalence=[5, 4, 3, 2, 1]),
} | {kind: SWEEPS[kind] for kind in ("limits", "labels", "clusters", "floors", "hand and till")}


def back(metric):
    metric.to("cpu").compute()
    return metric.to("sim:1").to("sim")


def loaded(metric):
    """A new metric with the state dict of a metric."""
    new = pickle.loads(pickle.dumps(metric))
    new.reset()
    metric.persistent(True)
    new.persistent(True)
    new.load_state_dict(metric.state_dict())
    return new


def merged(metric):
    """A metric with the samples of another one on the device and of one on the CPU."""
    for device in ("sim", "cpu"):
        other = metric.clone().to(device)
        metric.merge_state(other)
    return metric


ACTS = {
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "clone": lambda metric: metric.clone(),
    "there and back": back,
    "state dict": loaded,
    "merge": merged,
}
HERE = {"there and back": lambda metric: metric}


@pytest.mark.default_cases(
    "matrix-pickle", "margins-state dict", "report-merge", "limits-there and back", "floors-clone"
)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_life_of_a_metric(kind, act):
    here, there = updated(KINDS[kind], (scores_of(KINDS[kind]()), {}))
    here, there = HERE.get(act, ACTS[act])(here), ACTS[act](there)
    given = scores_of(here, seed=1)
    here.update(*given)
    there.update(*moved(given))
    same(there.compute(), here.compute())
    assert there.device.type == "sim"


@pytest.mark.default_cases("multiclass-matrix-without float64", "multiclass-margins-plain")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize(("task", "layout"), LAYOUTS)
def test_counts_are_added(task, layout, _variant):
    make = functools.partial(ImbalanceReport, task, **SIZE[task], state=layout, clusters=False)
    here, there = updated(make)
    shape = {"binary": (2, 2), "multiclass": (5, 5), "multilabel": (5, 2, 2)}[task]
    cells = torch.randint(1, 9, shape, generator=torch.Generator().manual_seed(0))
    for added in (cells, cells.float()):
        here.add(added)
        there.add(added.to("sim"))
        here.add(added)
        there.add(added)  # a table that was read on the host
    agree(here, there)
    with pytest.raises(ValueError, match=r"whole numbers from 0 to below 2\*\*63, got -1$"):
        there.add(-cells.clamp(max=1).to("sim"))


@pytest.mark.default_cases("True-plain")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize("compute_groups", [True, False])
def test_collections_and_trackers(compute_groups, _variant):
    def make():
        metrics = {
            "matrix": imbtorch.ConfusionMatrix("multiclass", 5),
            "recall": Recall("multiclass", 5),
            "mcc": imbtorch.MatthewsCorrCoef("multiclass", 5),
            "report": ImbalanceReport("multiclass", 5, prefix="val_"),
        }
        return MetricCollection(metrics, compute_groups=compute_groups)

    here, there = MetricTracker(make(), maximize=[True] * 4), MetricTracker(make(), maximize=[True] * 4).to("sim")
    for seed in range(2):
        for tracker in (here, there):
            tracker.increment()
        for part in range(2):
            given = batch("multiclass", seed=2 * seed + part, samples=SAMPLES)
            here.update(*given)
            moving = moved(given)
            with waits("refused" if part else "allowed"):  # torchmetrics compares states after the first update
                there.update(*moving)
        same(there.compute(), here.compute())
    same(there.compute_all(), here.compute_all())
    collection, expected = make().to("sim"), make()
    same(collection(*moving), expected(*given))
    same(collection.clone(prefix="a_").compute(), expected.clone(prefix="a_").compute())


@pytest.mark.default_cases("adjustment-plain", "threshold-without float64")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize("make", [
    lambda device: imbtorch.LogitAdjustment(torch.tensor([5.0, 4, 3, 2, 1], device=device), tau=0.7, logits=True),
    lambda device: imbtorch.Threshold(0.3),
    lambda device: imbtorch.Threshold(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], device=device), logits=True),
], ids=["adjustment", "threshold", "thresholds"])  # fmt: skip
def test_rules(make, _variant):
    here, there = make("cpu"), make("sim").to("sim")
    scores = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
    moving = scores.to("sim")
    with waits("refused"):
        decided = there(moving)
    same(decided, here(scores))
    numbers, wanted = there.state_dict(), here.state_dict()
    for name in ("chosen", "class_axis"):  # which are read at each use, and stay on the CPU
        assert torch.equal(numbers.pop(name, torch.ones(())), wanted.pop(name, torch.ones(())))
    same(numbers, wanted if settings["float64"] else moved(numbers, "cpu"))


@pytest.mark.default_cases("limits-plain")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize("kind", ["adjustments", "limits"])
def test_a_rule_takes_what_a_sweep_found(kind, _variant):
    here, there = updated(SWEEPS[kind], (scores_of(SWEEPS[kind]()), {}))
    given = scores_of(here, seed=1)[0]
    for sweep in (here, there):
        sweep.compute()
    moving = given.to("sim")
    with waits("refused"):
        decided = there.rule(moving)
    assert decided.device.type == "sim"
    assert here.rule.chosen
    torch.testing.assert_close(decided.cpu(), here.rule(given))


@pytest.mark.parametrize(("missing", "text"), [(False, "predicts at its start"), (True, "holds no rule, so the")])
@pytest.mark.parametrize("kind", ["adjustments", "limits"])
def test_a_rule_that_was_never_chosen_tells_without_a_wait(kind, missing, text):
    here, there = updated(SWEEPS[kind], (scores_of(SWEEPS[kind]()), {}))
    given = scores_of(here, seed=1)[0].to("sim")
    if missing:
        torch.nn.ModuleDict({"sweep": there}).load_state_dict({})
    with waits("refused"), pytest.warns(UserWarning, match=text):
        there.rule(given)
    with waits("refused"):
        there.rule(given)


# --- training -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lightning_fits_validates_and_tests_on_the_device(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from trainings import QUIET, THIRD_PARTY

    def make_metrics():
        return {
            "report": ImbalanceReport("multiclass", 3, prefix="val_", per_class=["recall"]),
            "recall": Recall("multiclass", 3),
            "sweep": LogitAdjustmentSweep("balanced_accuracy", [3, 2, 1], logits=True, prefix="sweep_"),
        }

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(3, 3)
            self.report, self.recall, self.sweep = make_metrics().values()
            self.seen = []

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            scores = self.net(batch[0])
            assert scores.device == self.report.device == torch.device("sim", 0)
            with waits("refused"):
                self.report.update(scores, batch[1])
                self.sweep.update(scores, batch[1])
                self.recall.update(scores, batch[1])
            self.seen.append((scores.cpu(), batch[1].cpu()))
            self.log("recall", self.recall)

        def on_validation_epoch_start(self):
            self.seen = []

        def on_validation_epoch_end(self):
            self.log_dict(self.report)
            self.log_dict(self.sweep)

        test_step = validation_step
        on_test_epoch_start, on_test_epoch_end = on_validation_epoch_start, on_validation_epoch_end

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    features, target = torch.randn(120, 3), torch.arange(120) % 3
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, target), 40)
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path, monitor="val_iam", mode="max")
    strategy = SingleDeviceStrategy(torch.device("sim", 0), accelerator=_accelerator())
    trainer = lightning.Trainer(
        **QUIET | {"accelerator": "auto"}, strategy=strategy, max_epochs=2, logger=False, callbacks=[checkpoint],
        deterministic=True, default_root_dir=tmp_path,
    )  # fmt: skip
    module = Module()
    try:
        with warnings.catch_warnings():
            for text in (*THIRD_PARTY, "LogitAdjustmentSweep: its rule stays"):  # which a test says
                warnings.filterwarnings("ignore", text)
            trainer.fit(module, data, data)
            for run in (trainer.validate, trainer.test):
                (logged,) = run(module, data, ckpt_path=checkpoint.best_model_path, verbose=False)
                assert sum(len(truth) for _, truth in module.seen) == 120
                expected = MetricCollection(make_metrics())
                for scores, truth in module.seen:
                    expected.update(scores, truth)
                wanted = expected.compute()
                assert logged == pytest.approx({name: value.item() for name, value in wanted.items()})
    finally:
        torch.use_deterministic_algorithms(False)


def _accelerator():
    from lightning.pytorch.accelerators import Accelerator

    class Sim(Accelerator):
        name = staticmethod(lambda: "sim")
        is_available = staticmethod(lambda: True)
        auto_device_count = staticmethod(lambda: 1)
        parse_devices = staticmethod(int)
        get_parallel_devices = staticmethod(lambda devices: [torch.device("sim", 0)])
        setup_device = teardown = lambda self, *_: None
        get_device_stats = lambda self, device: {}  # noqa: E731

    return Sim()


# --- analysis -------------------------------------------------------------------------------------------------------

TABLE = torch.tensor([[40, 6, 4], [3, 20, 2], [1, 2, 9]])
BINARY = torch.tensor([[80, 10], [4, 16]])
RATES = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
TARGET = torch.arange(60) % 3
GUESSES = torch.stack([torch.where(torch.arange(60) % step == 0, 0, TARGET) for step in (2, 3, 4)])
MEASURES = {"recall": imbtorch.recall, "iam": imbtorch.imbalance_accuracy}
TWO = {"accuracy": imbtorch.accuracy, "precision": lambda counts: imbtorch.precision(counts, "binary")}


def drawn():
    """A source of randomness, which lies on the CPU."""
    return {"generator": torch.Generator().manual_seed(0)}


ANALYSIS = {
    "posterior": lambda put: statistics.posterior(imbtorch.recall, put(TABLE), draws=200, **drawn()),
    "posterior of several": lambda put: statistics.posterior(MEASURES, put(TABLE), draws=200, **drawn()),
    "draws": lambda put: statistics.posterior(imbtorch.recall, put(TABLE), draws=200, keep_draws=True, **drawn()).draws,
    "bootstrap": lambda put: statistics.bootstrap(imbtorch.recall, put(TABLE), draws=200, **drawn()),
    "clusters": lambda put: statistics.bootstrap(
        imbtorch.recall, put(torch.stack([TABLE] * 4)), draws=200, clusters=True, **drawn()
    ),
    "compare": lambda put: statistics.compare(imbtorch.recall, put(TABLE), put(TABLE.T), draws=200, **drawn()),
    "paired_compare": lambda put: statistics.paired_compare(
        imbtorch.recall, put(GUESSES[0]), put(GUESSES[1]), put(TARGET), 3, draws=200, **drawn()
    ),
    "over_runs": lambda put: statistics.over_runs(
        {"a": [put(GUESSES[0]), put(GUESSES[1])]}, put(TARGET), imbtorch.recall, draws=100, **drawn()
    ).models["a"],
    "beats_baseline": lambda put: statistics.beats_baseline(imbtorch.recall, put(TABLE), draws=200, **drawn()),
    "skill": lambda put: statistics.skill(imbtorch.recall, put(TABLE)),
    "trivial": lambda put: statistics.trivial(imbtorch.recall, put(TABLE)),
    "samples_needed": lambda put: statistics.samples_needed(
        imbtorch.recall, put(RATES), put(torch.tensor([0.9, 0.1])), 0.5, test_sets=20, draws=20
    ),
    "select_epoch": lambda put: statistics.select_epoch(
        put(GUESSES), put(TARGET), MEASURES, repeats=4, draws=100, **drawn()
    ),
    "select_model": lambda put: str(statistics.select_model({"a": put(TABLE), "b": put(TABLE.T)}, MEASURES)),
    "undominated": lambda put: statistics.undominated(put(torch.tensor([[0.1, 0.2], [0.3, 0.1], [0.0, 0.0]]))),
    "partial_auc": lambda put: statistics.partial_auc(put(BINARY)),
    "invariances": lambda put: papers.invariances(imbtorch.accuracy, samples=8),
    "measure_correlations": lambda put: papers.measure_correlations(TWO, [0.1], n=100, draws=2),
    "perturbed_scores": lambda put: papers.perturbed_scores(12, 0.25, 0.1, 0.1, **drawn()),
    "prevalence_curves": lambda put: papers.prevalence_curves(TWO, put(BINARY), steps=5),
    "sensitivity_curves": lambda put: papers.sensitivity_curves(TWO, put(torch.tensor([9, 5])), steps=5),
    "skew": lambda put: papers.skew(imbtorch.imbalance_accuracy, put(TABLE)),
    "skew_delta": lambda put: papers.skew_delta(imbtorch.imbalance_accuracy, put(TABLE)),
    "skew_ratio": lambda put: papers.skew_ratio(imbtorch.accuracy, put(BINARY)),
    "effective_skew_ratio": lambda put: papers.effective_skew_ratio(imbtorch.accuracy, put(BINARY)),
    "skew_map": lambda put: papers.skew_map(imbtorch.accuracy, 3, 4),
    "implied_cost": lambda put: papers.implied_cost(imbtorch.imbalance_accuracy, put(TABLE)),
    "merge_classes": lambda put: imbtorch.merge_classes(put(TABLE), {"a": ["x"], "b": ["y", "z"]}, "xyz"),
    "at_prevalence": lambda put: imbtorch.at_prevalence(put(TABLE), put(torch.tensor([0.5, 0.3, 0.2]))),
    "confusion_matrix": lambda put: imbtorch.confusion_matrix(
        put(GUESSES[0]), put(TARGET), "multiclass", num_classes=3
    ),
}


@pytest.mark.default_cases("posterior-plain", "bootstrap-without float64", "skew-deterministic")
@pytest.mark.parametrize("_variant", VARIANTS, indirect=True)
@pytest.mark.parametrize("name", ANALYSIS)
def test_analysis_of_counts_on_the_device(name, _variant):
    assert plain(ANALYSIS[name](moved)) == plain(ANALYSIS[name](lambda given: given))


@pytest.mark.default_cases("posterior", "merge_classes")
@pytest.mark.usefixtures("_default_device")
@pytest.mark.parametrize("name", ANALYSIS)
def test_analysis_while_the_device_is_the_default(name):
    with torch.device("cpu"):
        wanted = plain(ANALYSIS[name](lambda given: given))
    assert plain(ANALYSIS[name](moved)) == wanted
    assert plain(ANALYSIS[name](lambda given: given)) == wanted


def test_every_function_of_counts_is_tried():
    functions = {
        name for name in [*papers.__all__, *statistics.__all__] if name.islower() and not name.startswith("plot_")
    }
    of_others = {"compare_groups", "invariance_table", "mean_auc", "over_images"}  # results, tables, scores, images
    assert functions - set(ANALYSIS) == of_others


# --- the default device ---------------------------------------------------------------------------------------------


@pytest.mark.default_cases("matrix", "limits", "adjustments")
@pytest.mark.usefixtures("_default_device")
@pytest.mark.parametrize("kind", KINDS | SWEEPS)
def test_metrics_while_the_device_is_the_default(kind):
    make, ids = (KINDS | SWEEPS)[kind], torch.arange(SAMPLES, device="cpu") // 4
    more = {"cluster": ids} if kind == "clusters" else {}
    with torch.device("cpu"):
        here = make()
        given = scores_of(here)
        here.update(*given, **more)
        wanted, told_here = here.compute(), read(here) if kind in SWEEPS and not isinstance(here, HandTill) else None
    there = make()
    assert there.device.type == "sim"
    there.update(*moved(given), **({"cluster": ids.to("sim")} if more else {}))
    same(there.compute(), wanted)
    if told_here is not None:
        assert read(there) == told_here


def points(drawing):
    """Ends of the data, lines, images and marks of a picture."""
    figure, axes = drawing
    found = []
    for ax in (figure or axes.figure).axes:
        parts = [ax.dataLim, *(line.get_xydata() for line in ax.lines), *(image.get_array() for image in ax.images)]
        found += [np.asarray(part).tolist() for part in (*parts, *(marks.get_offsets() for marks in ax.collections))]
    return found


PLOTS = {
    "report": lambda: report_of().plot(),
    "epochs": lambda: report_of().plot([report_of().compute()] * 2),
    "metric": lambda: updated_on_default(Recall("multiclass", 5)).plot(),
    "sweep": lambda: updated_on_default(SWEEPS["limits"]()).plot(),
    "labels": lambda: updated_on_default(SWEEPS["labels"]()).plot(),
    "adjustments": lambda: updated_on_default(SWEEPS["floors"]()).plot(),
    "confusion matrix": lambda: plots.plot_confusion_matrix(torch.tensor(TABLE.tolist())),
    "values": lambda: plots.plot_values(torch.tensor([0.5, 0.25])),
    "accuracy and dominance": lambda: papers.plot_accuracy_dominance(torch.tensor([[0.1, 0.8]])),
    "skew map": lambda: papers.plot_skew_map(papers.skew_map(imbtorch.precision, 5, 8)),
    "correlations": lambda: papers.plot_correlations(ANALYSIS["measure_correlations"](moved), "accuracy"),
    "prevalence": lambda: papers.plot_prevalence(TWO, torch.tensor(BINARY.tolist())),
    "sensitivity": lambda: papers.plot_sensitivity(TWO, [5, 9]),
    "selection": lambda: plots.plot_selection({"a": [0.1, 0.5], "b": [0.9, 0.4]}, selected={"a": 1}),
    "roc": lambda: plots.plot_roc(swept_counts(), measure=imbtorch.accuracy),
    "precision and recall": lambda: plots.plot_precision_recall(swept_counts(), measure=imbtorch.accuracy),
    "dominance": lambda: papers.plot_dominance_curve(swept_counts()),
    "thresholds": lambda: plots.plot_sweep(torch.tensor([0.2, 0.6]), torch.tensor([0.3, 0.7])),
}


def updated_on_default(metric):
    with torch.device("cpu"):
        given = scores_of(metric)
    metric.update(*moved(given, metric.device))
    return metric


def report_of():
    return updated_on_default(ImbalanceReport("multiclass", 5))


def swept_counts():
    return torch.tensor([[[50, 50], [1, 19]], [[80, 20], [5, 15]], [[95, 5], [12, 8]]])


@pytest.mark.default_cases("report")
@pytest.mark.usefixtures("_default_device")
@pytest.mark.parametrize("name", PLOTS)
def test_pictures_while_the_device_is_the_default(name):
    pytest.importorskip("matplotlib")
    with torch.device("cpu"):
        wanted = points(PLOTS[name]())
    assert points(PLOTS[name]()) == wanted
