"""Kernels of counting on a device: their counts against a loop in Python, and the launches that an update takes."""

import math

import pytest
import torch
from processes import launch
from rooms import FAULTS, Batch, Counting
from versions import needs_simulated_device

import imbtorch

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def counted_in_a_loop(counting, batch):
    """State of one batch of class indices, sample by sample."""
    size, groups, ignored = counting.size, counting.groups or 1, counting.ignore_index
    matrix = [[[0] * size for _ in range(size)] for _ in range(groups)]
    tally, samples = [0] * len(FAULTS), len(batch.target)
    weights = [1] * samples if batch.weight is None else batch.weight.tolist()
    squares = [[[0] * size for _ in range(size)] for _ in range(groups)]
    if batch.group is None or isinstance(batch.group, int):
        places = [batch.group or 0] * samples
    else:
        places = batch.group.tolist()
    for guess, truth, weight, place in zip(batch.preds.tolist(), batch.target.tolist(), weights, places, strict=True):
        if truth == ignored:
            continue
        wrong = (not 0 <= truth < size, not 0 <= guess < size, *[False] * 3)
        wrong += (not 0 <= weight < math.inf, not 0 <= place < groups)
        if any(wrong):
            tally[wrong.index(True)] += 1
        else:
            matrix[place][truth][guess] += weight
            squares[place][truth][guess] += weight**2
    cells = torch.tensor(matrix, dtype=counting.dtype)
    if counting.layout == "margins":
        cells = torch.stack((cells.diagonal(dim1=-2, dim2=-1), cells.sum(-1), cells.sum(-2)), -2)
    tallies = torch.tensor([*tally, 0], dtype=counting.dtype)  # no sample has an id or several positions
    if counting.squared:  # squares, with the same faults, and no counts whose squares are unknown
        behind = torch.tensor(squares, dtype=counting.dtype).flatten()
        return torch.cat((cells.flatten(), tallies[:-1], behind, tallies, tallies[-1:]))
    return torch.cat((cells.flatten(), tallies))


def some(number, generator, *wrong):
    """Random integers below a number, of which a tenth has one of other values."""
    drawn = torch.randint(number, (80,), generator=generator)
    for each in wrong:
        drawn = drawn.masked_fill(torch.rand(80, generator=generator) < 0.1 / len(wrong), each)
    return drawn


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("group", [None, "each", 2, 3, -1])
@pytest.mark.parametrize("weight", [None, "weight", "frequency"])
@pytest.mark.parametrize("ignored", [None, 1, -100])
@pytest.mark.parametrize(("size", "layout"), [(3, "matrix"), (3, "margins"), (300, "margins")])
def test_a_device_counts_as_a_loop_does(size, layout, ignored, weight, group):
    random = torch.Generator().manual_seed(0)
    weighted, groups = weight == "weight", None if group is None else 3
    counting = Counting.of("multiclass", size, None, 0.5, False, ignored, layout, weighted, groups)
    for kind in INTEGERS:
        wrong = (100,) if kind == torch.uint8 else (100, -3)
        target = some(min(size, 100), random, *wrong, 0 if ignored is None else ignored)
        preds = some(min(size, 100), random, *wrong).to(kind)
        target = target if ignored == -100 else target.to(kind)
        given = Batch(preds, target)
        if weight == "weight":
            values = torch.tensor([0.0, 0.5, 3.0, -1.0, torch.nan, torch.inf], dtype=torch.float64)
            given = given._replace(weight=values[torch.randint(6, (80,), generator=random)])
        elif weight == "frequency":
            given = given._replace(weight=some(5, random, -2))
        if group is not None:
            given = given._replace(group=some(3, random, 3, -1) if group == "each" else group)
        state = counting.zeros()
        counting.add_(state, given, defer=lambda: True)
        assert torch.equal(state, counted_in_a_loop(counting, given))


@pytest.mark.usefixtures("accelerator")
def test_an_int_group_out_of_range_raises_where_nothing_is_deferred():
    counting = Counting.of("binary", groups=3)
    given = Batch(torch.tensor([0, 1]), torch.tensor([0, 1]), group=3)
    with pytest.raises(ValueError, match=r"group holds 3 but the metric has groups 0..2 \(2 of 2 values\)"):
        counting.add_(counting.zeros(), given, defer=lambda: False)


CLASSES = torch.arange(40) % 5, torch.arange(40) % 4
CHANCES, TWO = torch.arange(40) / 40, torch.arange(40) % 2
LABELS = CHANCES.view(10, 4), TWO.view(10, 4)
LAUNCHES = {  # of an update, in which groups come as one index for all samples or as one for each
    "matrix": (9, lambda: imbtorch.ConfusionMatrix("multiclass", 5), CLASSES, None),
    "ignored": (10, lambda: imbtorch.ConfusionMatrix("multiclass", 5, ignore_index=0), CLASSES, None),
    "one group": (10, lambda: imbtorch.ImbalanceReport("multiclass", 5, groups=3), CLASSES, 1),
    "groups": (13, lambda: imbtorch.ImbalanceReport("multiclass", 5, groups=3), CLASSES, torch.arange(40) % 3),
    "margins": (21, lambda: imbtorch.Recall("multiclass", 5, state="margins"), CLASSES, None),
    "binary": (12, lambda: imbtorch.ConfusionMatrix("binary"), (CHANCES, TWO), None),
    "sweep": (12, lambda: imbtorch.ThresholdSweep("f1"), (CHANCES, TWO), None),
    "labels": (29, lambda: imbtorch.FScore("multilabel", num_labels=4), LABELS, None),
    "labels alone": (14, lambda: imbtorch.FScore("multilabel", num_labels=4, clusters=False), LABELS, None),
}


def launches_of_updates(rank, world):
    """Launches of a second update of each metric on the simulated accelerator; for a process of its own."""
    from simulated_device import Log, waits

    torch.distributed.destroy_process_group()  # which does not know the device
    found = {}
    for name, (_, make, given, group) in LAUNCHES.items():
        metric, given = make().to("sim"), [each.to("sim") for each in given]
        more = {"group": group.to("sim") if isinstance(group, torch.Tensor) else group} if group is not None else {}
        metric.update(*given, **more)
        with waits("refused"), Log() as log:
            metric.update(*given, **more)
        found[name] = len(log.launched)
    return found


@needs_simulated_device
def test_launches_of_an_update():
    assert launch(1, launches_of_updates) == [{name: number for name, (number, *_) in LAUNCHES.items()}]
