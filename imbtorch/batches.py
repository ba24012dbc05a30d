"""A batch of samples as they are counted, and adding one to a state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.kernels import Table, add_masked, count_sound, integers, kept_targets, reading_is_free

__all__ = [
    "COMMON",
    "FAULTS",
    "Batch",
    "add_batch",
    "counted_samples",
    "group_of_samples",
    "highest",
    "readable",
    "wrong_device",
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
        preds: predicted classes, integers or bools.
        target: classes of the targets, integers or bools, in the same shape.
        scores: for predictions that were read off scores, which are classes in any case, the numbers that show whether
            a sample can be counted: in the same shape the highest score, the probability or the logit of class 1; or
            class scores as they were given, ``[N, C, ...]``.
        bounded: whether these are probabilities, which lie in [0, 1].
        uneven: which probabilities do not sum to 1, in the same shape.
        soft: where soft counts are wanted, of two classes the probability or the logit of class 1, in the same shape;
            of several the scores as they were given, which stand for ``preds`` too, since what counts them reads both
            at once.
        weight: float64 weights, in the same shape; None for 1 each.
        group: int64 indices of the groups, in the same shape, or one for all samples; None without groups.
    """

    preds: Tensor
    target: Tensor
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
    if batch.target.device != state.device:
        raise wrong_device(state, batch)
    if batch.target.numel() == 0 or (reading_is_free(state) and _counted_at_once(state, table, batch, ignored)):
        return None
    group = group_of_samples(batch)
    preds, target = integers(batch.preds), integers(batch.target)
    keep = None if ignored is None else target != ignored
    faults = _faults(batch, preds, target, group, table)
    if not defer():
        read = (target, preds, *[_shown(batch)] * 3, batch.weight, group)
        for place, (fault, values) in enumerate(zip(faults, read, strict=True)):
            if fault is None or values is None:
                continue
            wrong = fault if keep is None else fault & keep
            if bool(wrong.any()):
                raise ValueError(error_message(place, values[wrong], target.numel()))
    return add_masked(state, table, preds, target, keep, faults, batch.weight, group)


def group_of_samples(batch: Batch) -> Tensor | None:
    """Index of each sample's group, in the shape of the targets; None without groups."""
    if not isinstance(batch.group, int):
        return batch.group
    return torch.full((), batch.group, dtype=torch.int64, device=batch.target.device).expand(batch.target.shape)


def wrong_device(state: Tensor, batch: Batch) -> ValueError:
    """Return the error of a batch on another device than the counts."""
    return ValueError(
        f"preds are on {batch.target.device} but the counts are on {state.device}; move the metric: "
        f"metric.to({str(batch.target.device)!r})"
    )


def _counted_at_once(state: Tensor, table: Table, batch: Batch, ignored: int | None) -> bool:
    """Count a batch whose values can be read, if all of it is sound; else return False."""
    preds, target, scores, bounded, uneven, _, weight, group = batch
    if scores is not None and (not _lie_within(scores, 1) if bounded else _hold_nan(scores)):
        return False
    if (uneven is not None and bool(uneven.any())) or (weight is not None and not _lie_within(weight, LARGEST)):
        return False
    if isinstance(group, int):
        if not 0 <= group < table.groups:
            return False
        table = table._replace(groups=1)
        state, group = state[group * table.cells : (group + 1) * table.cells], None
    return count_sound(
        state,
        table,
        preds.numpy(),
        target.numpy(),
        ignored,
        None if weight is None else weight.numpy(),
        None if group is None else group.numpy(),
        preds_are_sound=scores is not None,
    )


def _hold_nan(scores: Tensor) -> bool:
    """Return whether scores hold NaN, or are of half precision and hold infinities of both signs."""
    if scores.dtype not in (torch.float32, torch.float64):
        return math.isnan(scores.sum().item())
    return math.isnan(scores.numpy().max())  # after NumPy's argmax it takes a third of the time of a sum of torch


LARGEST = torch.finfo(torch.float64).max


def _lie_within(x: Tensor, limit: float) -> bool:
    """Return whether all numbers lie between 0 and a limit, as NaN does not; extremes cost less than masks."""
    least, most = torch.aminmax(x)
    return bool(0 <= least.item() <= most.item() <= limit)


def _shown(batch: Batch) -> Tensor | None:
    """Numbers that show whether each sample can be counted, one for each; NaN where one of several is."""
    several = batch.scores is not None and batch.scores.ndim > batch.target.ndim
    return batch.scores.amax(1) if several and batch.scores is not None else batch.scores


def _faults(
    batch: Batch, preds: Tensor, target: Tensor, group: Tensor | None, table: Table
) -> tuple[Tensor | None, ...]:
    """Return which samples have which of :data:`FAULTS`; None where none can."""
    outside, shown = (target < 0) | (target >= table.rows), _shown(batch)
    weight = batch.weight
    heavy = None if weight is None else ~((weight >= 0) & (weight < torch.inf))  # true for NaN
    strange = None if group is None else (group < 0) | (group >= table.groups)
    if shown is None:
        return outside, (preds < 0) | (preds >= table.columns), None, None, None, heavy, strange
    impossible = (shown < 0) | (shown > 1) if batch.bounded else None
    return outside, None, shown.isnan(), impossible, batch.uneven, heavy, strange


def counted_samples(batch: Batch, table: Table, ignored: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return predicted classes and targets, int64, and which samples are counted; never wait for a device."""
    preds, target = integers(batch.preds), integers(batch.target)
    counted = kept_targets(target, ignored)
    for fault in _faults(batch, preds, target, group_of_samples(batch), table):
        counted = counted if fault is None else counted & ~fault
    return preds, target, counted


# --- reading predictions and targets --------------------------------------------------------------------------------

FEW_CLASSES = 32  # for which a sum of all scores takes less time than to gather the highest of each sample


def highest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class of the highest score ``[N, C, ...]``, and numbers of which one is NaN where a score is."""
    if scores.ndim == 2 and scores.dtype in (torch.float32, torch.float64) and reading_is_free(scores):
        preds = torch.from_numpy(scores.numpy().argmax(1))  # ten times as fast for 1000 classes
        return preds, scores if scores.shape[1] <= FEW_CLASSES else scores.gather(1, preds.unsqueeze(1)).squeeze(1)
    best = torch.max(scores, 1)
    return best.indices, best.values


def readable(labels: Tensor) -> Tensor:
    """Return labels in a dtype that NumPy and torch compare alike."""
    return labels if labels.dtype in COMMON or labels.is_floating_point() else integers(labels)


COMMON = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
