"""A batch of samples as they are counted, and adding one to a state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.kernels import Table, add_masked, count_sound, integers, reading_is_free

__all__ = [
    "COMMON",
    "FAULTS",
    "Batch",
    "add_batch",
    "check_device",
    "counted_samples",
    "group_of_samples",
    "highest",
    "kept_targets",
    "readable",
]

# What can be wrong with a sample; each has a spare cell behind the counts, in this order (first match counts).
FAULTS = (
    "targets out of range",
    "predictions out of range",
    "NaN scores",
    "probabilities outside [0, 1]",
    "probabilities that do not sum to 1",
    "weights that are negative or not finite",
    "groups out of range",
)


class Batch(NamedTuple):
    """Samples as they are counted.

    Attributes:
        labels: predicted classes, integers or bools.
        truth: classes of the targets, integers or bools, in the same shape.
        scores: for scores the numbers that show whether a sample can be counted, in the same shape: the highest of all
            classes, or the probability of class 1.
        bounded: whether these are probabilities, which lie in [0, 1].
        uneven: which probabilities do not sum to 1, in the same shape.
        soft: where soft counts are wanted, the scores as they were given; for several classes they stand for
            ``labels`` too, since what counts them reads both at once.
        weight: float64 weights, in the same shape; None for 1 each.
        group: int64 indices of the groups, in the same shape, or one for all samples; None without groups.
    """

    labels: Tensor
    truth: Tensor
    scores: Tensor | None = None
    bounded: bool = False
    uneven: Tensor | None = None
    soft: Tensor | None = None
    weight: Tensor | None = None
    group: Tensor | int | None = None


def add_batch(
    state: Tensor,
    table: Table,
    batch: Batch,
    ignored: int | None,
    defer: Callable[[], bool],
    error_message: Callable[[int, Tensor, int], str],
) -> Tensor | None:
    """Add a batch to flat counts in place.

    Args:
        state: int64 or float64 ``[table.cells + ... + faults]``.
        table: shape of the counts.
        batch: what is counted.
        ignored: target of the samples to leave out.
        defer: whether to tally samples that cannot be counted, without waiting for the device, instead of raising; not
            asked where all samples are seen to be sound.
        error_message: of a fault, its offending values, and the number of samples.

    Returns:
        Which samples were counted; None for all that are not ignored.

    Raises:
        ValueError: for a state on another device and, unless deferred, values that cannot be counted; the state is then
            as before.
    """
    check_device(state, batch)
    if batch.truth.numel() == 0 or _counted_on_cpu(state, table, batch, ignored):
        return None
    group = group_of_samples(batch)
    labels, truth = integers(batch.labels), integers(batch.truth)
    keep = None if ignored is None else truth != ignored
    faults = _faults(batch, labels, truth, group, table)
    if not defer():
        read = (truth, labels, *[batch.scores] * 3, batch.weight, group)
        for place, (fault, values) in enumerate(zip(faults, read, strict=True)):
            if fault is None or values is None:
                continue
            wrong = fault if keep is None else fault & keep
            if bool(wrong.any()):
                raise ValueError(error_message(place, values[wrong], truth.numel()))
    return add_masked(state, table, labels, truth, keep, faults, batch.weight, group)


def group_of_samples(batch: Batch) -> Tensor | None:
    """Index of each sample's group, in the shape of the targets; None without groups."""
    if not isinstance(batch.group, int):
        return batch.group
    return torch.full((), batch.group, dtype=torch.int64, device=batch.truth.device).expand(batch.truth.shape)


def check_device(state: Tensor, batch: Batch) -> None:
    """Raise for a batch on another device than the counts."""
    if batch.truth.device != state.device:
        raise ValueError(
            f"preds are on {batch.truth.device} but the counts are on {state.device}; move the metric: "
            f"metric.to({str(batch.truth.device)!r})"
        )


def _counted_on_cpu(state: Tensor, table: Table, batch: Batch, ignored: int | None) -> bool:
    """Count a batch whose values can be read, if all of it is sound; else return False."""
    if not reading_is_free(state):
        return False
    if isinstance(batch.group, int):
        part, place = table._replace(groups=1), batch.group
        if not 0 <= place < table.groups:
            return False
        view = state[place * part.cells : (place + 1) * part.cells]
        return _counted_on_cpu(view, part, batch._replace(group=None), ignored)
    if not _trusted(batch):
        return False
    if batch.truth.ndim != 1 and table.labels == 1:
        batch = _flat(batch)
    weight = None if batch.weight is None else batch.weight.numpy()
    group = batch.group.numpy() if isinstance(batch.group, Tensor) else None
    return count_sound(state, table, batch.labels.numpy(), batch.truth.numpy(), ignored, weight, group)


def _flat(batch: Batch) -> Batch:
    """What is counted of a batch, in one dimension."""
    weight = None if batch.weight is None else batch.weight.reshape(-1)
    group = batch.group.reshape(-1) if isinstance(batch.group, Tensor) else None
    return Batch(batch.labels.reshape(-1), batch.truth.reshape(-1), weight=weight, group=group)


def _trusted(batch: Batch) -> bool:
    """Whether no score is NaN, no probability and no weight impossible; minimum and maximum cost less than masks."""
    if batch.weight is not None:
        least, most = torch.aminmax(batch.weight)
        if not 0 <= least.item() <= most.item() < torch.inf:
            return False
    if batch.scores is None:
        return True
    if not batch.bounded:
        return not math.isnan(batch.scores.sum().item())  # which is NaN for infinities of both signs too
    least, most = torch.aminmax(batch.scores)
    even = batch.uneven is None or not bool(batch.uneven.any())
    return even and bool(least.item() >= 0) and bool(most.item() <= 1)


def _faults(
    batch: Batch, labels: Tensor, truth: Tensor, group: Tensor | None, table: Table
) -> tuple[Tensor | None, ...]:
    """Which samples have which of :data:`FAULTS`; None where none can."""
    outside = (truth < 0) | (truth >= table.rows)
    weight = batch.weight
    heavy = None if weight is None else ~((weight >= 0) & (weight < torch.inf))  # true for NaN
    strange = None if group is None else (group < 0) | (group >= table.groups)
    if batch.scores is None:
        return outside, (labels < 0) | (labels >= table.columns), None, None, None, heavy, strange
    impossible = (batch.scores < 0) | (batch.scores > 1) if batch.bounded else None
    return outside, None, batch.scores.isnan(), impossible, batch.uneven, heavy, strange


def counted_samples(batch: Batch, table: Table, ignored: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted classes and targets, int64, and which samples are counted; never waits for a device."""
    labels, truth = integers(batch.labels), integers(batch.truth)
    counted = kept_targets(truth, ignored)
    for fault in _faults(batch, labels, truth, group_of_samples(batch), table):
        counted = counted if fault is None else counted & ~fault
    return labels, truth, counted


def kept_targets(truth: Tensor, ignored: int | None) -> Tensor:
    """Which samples are not left out."""
    return torch.ones_like(truth, dtype=torch.bool) if ignored is None else truth != ignored


# --- reading predictions and targets --------------------------------------------------------------------------------


def highest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Class of the highest score ``[N, C, ...]``, and that score, which is NaN where one is."""
    if scores.ndim == 2 and scores.dtype in (torch.float32, torch.float64) and reading_is_free(scores):
        labels = torch.from_numpy(scores.numpy().argmax(1))  # ten times as fast for 1000 classes
        return labels, scores.gather(1, labels.unsqueeze(1)).squeeze(1)
    best = torch.max(scores, 1)
    return best.indices, best.values


def readable(labels: Tensor) -> Tensor:
    """Labels of a dtype that NumPy and torch compare alike."""
    return labels if labels.dtype in COMMON or labels.is_floating_point() else integers(labels)


COMMON = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
