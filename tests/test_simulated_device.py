"""A theme of several modules: a simulated accelerator, on which nothing waits, no devices are mixed, values are equal.

The same metric on the CPU gives the expected values; other tests hold these against independent oracles.
"""

import functools
import itertools
import random
import warnings

import pytest
import torch
from simulated_device import AVAILABLE, Graph, Log, settings, waits
from torch import Tensor
from updates import CASES, LAYOUTS, SIZE, batch

import imbtorch
from imbtorch import ImbalanceReport, Recall, counts
from imbtorch.metrics import catalogue

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs torch 2.10, whose backends can be written in Python")

LAUNCHES = 12  # of a compute


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
    torch.testing.assert_close(moved(value, "cpu"), wanted, equal_nan=True)


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
    """Compute a metric on the CPU and on the device, where it makes one trip to the host."""
    torch.manual_seed(0)
    wanted, said = told(here.compute)
    torch.manual_seed(0)
    with Log() as log:
        value, said_there = told(there.compute)
    same(value, wanted)
    assert said_there == said
    assert len(log.waits) <= wait, log.waits
    assert len(log.launched) <= launches, log.launched
    assert log.copies.count("to the device") <= 1
    assert there.compute() is value  # nothing is computed again


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


# --- the state ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_an_update_does_not_wait_and_can_be_replayed(task, layout, scores, ignore_index):
    make = functools.partial(Recall, task, **SIZE[task], ignore_index=ignore_index, state=layout)
    given = batch(task, scores, ignore_index)
    here, there = updated(make, (given, {}))
    moving = moved(given)
    with waits("refused"), Log() as log:
        there.update(*moving)
    assert len(log.launched) <= 45
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
    assert torch.equal(there._state.cpu(), here._state)


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
        or (layout[0] != "multilabel" and ignore_index == 0 and "prevalence" in options)
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
            metric.interval("iam", samples=200, generator=torch.Generator().manual_seed(1)) for metric in (here, there)
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
