"""Batches of samples, ready to be counted, and their addition to a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.clusters import bucket_of_each, bucket_of_numbers
from imbtorch.counting.kernels import (
    BLOCK,
    CountsShape,
    Integers,
    add_masked,
    array,
    below,
    count_valid,
    integers,
    kept_targets,
    reading_is_free,
)

ErrorMessage: TypeAlias = Callable[[int, Tensor, int, Tensor], str]
# Faults of a sample. Each has a spare cell behind the counts, in this order; the first one that applies is tallied.
FAULTS = (
    "targets out of range",
    "predictions out of range",
    "NaN scores",
    "probabilities outside [0, 1]",
    "probabilities that do not sum to 1",
    "negative or infinite weights or frequencies",
    "groups out of range",
)


class Batch(NamedTuple):
    """Samples, ready to be counted.

    Attributes:
        preds: predicted classes, integers or bools; an array of valid classes if they were derived on the CPU.
        target: true classes, integers or bools, in the same shape.
        scores: the scores from which ``preds`` were derived, used to find invalid samples: the highest score, or the
            probability or logit of class 1, in the same shape; or all class scores ``[N, C, ...]``. None if the user
            passed classes, and for an array. Predictions derived from scores are always valid classes.
        bounded: whether ``scores`` are probabilities, which must lie in [0, 1].
        uneven: bools in the same shape, true where the probabilities of a sample do not sum to 1.
        weight: float64 weights, or int64 numbers of samples, in the same shape; None for 1 each.
        group: int64 group indices, in the same shape, or one for all samples; None without groups.
        bucket: int64 buckets of the samples' clusters, in a shape that broadcasts to it; None without clusters.
        dependent: whether the samples came with the ids of clusters or have several positions, such as pixels.
        squares: float64 sums of squared weights, if each weight is the sum of those of equal samples; else None.
    """

    preds: Tensor | Integers
    target: Tensor
    scores: Tensor | None = None
    bounded: bool = False
    uneven: Tensor | None = None
    weight: Tensor | None = None
    group: Tensor | int | None = None
    bucket: Tensor | None = None
    dependent: bool = False
    squares: Tensor | None = None


def add_batch(
    state: Tensor,
    shape: CountsShape,
    batch: Batch,
    ignored: int | None,
    defer: Callable[[], bool],
    error_message: ErrorMessage,
) -> None:
    """Add a batch to flat counts in place.

    With buckets, a sample without the id of a cluster is a cluster of its own; its id is the number of
    samples before it.

    Args:
        state: int64 or float64: the counts ``[shape.cells]``; one spare cell for each of :data:`FAULTS`; of a shape
            with buckets the number of samples; and the number of dependent samples.
        shape: shape of the counts.
        batch: samples to count.
        ignored: target of the samples to leave out.
        defer: function that returns whether to tally invalid samples, without waiting for the device, instead of
            raising a ValueError that leaves the state as it is; not called if all samples are known to be valid.
        error_message: function of a fault, the offending values, the number of samples and the targets that count; it
            returns a text.
    """
    check_device(batch, state)
    if shape.buckets > 1 and batch.bucket is None:
        batch = in_own_buckets(batch, state)
    elif shape.buckets == 1 and batch.bucket is not None:
        batch = batch._replace(bucket=None)
    _count(state, shape, batch, ignored, defer, error_message)
    if shape.buckets > 1 or batch.dependent:
        size = batch.target.shape[0] if batch.target.ndim else 1
        own = slice(-2 if shape.buckets > 1 else -1, None if batch.dependent else -1)
        if reading_is_free(state):
            array(state)[own] += size  # an operation of torch takes some 5 us
        else:
            state[own].add_(size)


def _count(
    state: Tensor,
    shape: CountsShape,
    batch: Batch,
    ignored: int | None,
    defer: Callable[[], bool],
    error_message: ErrorMessage,
) -> None:
    """Count a batch or its faults; see :func:`add_batch`."""
    if batch.target.numel() == 0 or (reading_is_free(state) and _count_at_once(state, shape, batch, ignored)):
        return
    target = integers(batch.target)
    if not defer():
        for place, fault, values in reversed(list(_faults(batch, shape))):
            kept = kept_targets(target, ignored)
            wrong = fault & kept
            if bool(wrong.any()):
                raise ValueError(error_message(place, values[wrong], target.numel(), target[kept]))
    preds = batch.preds if isinstance(batch.preds, Tensor) else torch.from_numpy(batch.preds)
    add_masked(state, shape, preds, target, ignored, _faults(batch, shape), batch.weight, _parts(batch, shape))


def check_device(batch: Batch, state: Tensor) -> None:
    """Raise ValueError for a batch that is not on the device of the state."""
    if batch.target.device != state.device:
        raise ValueError(
            f"preds are on {batch.target.device} but the counts are on {state.device}; move the metric: "
            f"metric.to({str(batch.target.device)!r})"
        )


def in_own_buckets(batch: Batch, state: Tensor) -> Batch:
    """Make each sample a cluster of its own, whose id is the number of samples before it, which the state holds."""
    shape = batch.target.shape
    size = shape[0] if shape else 1
    if reading_is_free(state):
        buckets = bucket_of_numbers(int(array(state)[-2]), size)
    else:
        buckets = bucket_of_each(torch.arange(size, device=state.device) + state[-2])
    return batch._replace(bucket=buckets.view(shape[:1] + (1,) * (len(shape) - 1)))


def _parts(batch: Batch, shape: CountsShape) -> Tensor | int | None:
    """Return the part of each sample, or one for all; None without groups and clusters."""
    group, bucket = batch.group, batch.bucket
    if group is None:
        return bucket
    first = group * shape.buckets if shape.buckets > 1 else group
    return first if bucket is None else bucket + first


def _count_at_once(state: Tensor, shape: CountsShape, batch: Batch, ignored: int | None) -> bool:
    """Count a batch on the CPU and return True if all its samples are valid; else count nothing, return False."""
    preds, target, scores, bounded, uneven, weight, group, bucket, *_ = batch
    if scores is not None and (not _lie_within(scores, 1) if bounded else _hold_nan(scores)):
        return False
    if (uneven is not None and bool(uneven.any())) or (weight is not None and not _lie_within(weight, LARGEST)):
        return False
    if isinstance(group, int):
        if not 0 <= group < shape.groups:
            return False
        shape = shape._replace(groups=1)
        state, group = state[group * shape.cells : (group + 1) * shape.cells], None
    part = None if bucket is None else array(bucket)
    if group is not None:
        part = array(group)
        if bucket is not None:
            # a group out of range could become a valid part; that of an ignored sample does not matter
            part = part if ignored is None else np.where(array(target) == ignored, 0, part)
            if not below(part, shape.groups):
                return False
            part = part * shape.buckets + array(bucket)
    return count_valid(
        state,
        shape,
        array(preds) if isinstance(preds, Tensor) else preds,
        array(target),
        ignored,
        None if weight is None else array(weight),
        part,
        preds_are_valid=scores is not None or not isinstance(preds, Tensor),
    )


def _hold_nan(scores: Tensor) -> bool:
    """Return whether scores hold NaN; in half precision also whether they hold infinities of both signs."""
    known = scores.dtype in (torch.float32, torch.float64)  # NumPy's max takes a third of the time of torch's sum
    return math.isnan(array(scores).max() if known else scores.sum().item())


LARGEST = torch.finfo(torch.float64).max


def _lie_within(x: Tensor, limit: float) -> bool:
    """Return whether all numbers lie in [0, limit]; NaN does not. Finding the extremes is faster than masks."""
    least, most = torch.aminmax(x)
    return bool(0 <= least.item() <= most.item() <= limit)


def _faults(batch: Batch, shape: CountsShape) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each possible fault, the last of :data:`FAULTS` first: its index, bools of the samples with it, values.

    The bools of one fault exist at a time, which bounds the memory that a batch takes.
    """
    target, scores, weight, group = batch.target, batch.scores, batch.weight, batch.group
    if isinstance(group, int):
        if not 0 <= group < shape.groups:
            yield 6, torch.ones_like(target, dtype=torch.bool), torch.full_like(target, group, dtype=torch.int64)
    elif group is not None:
        yield 6, _outside(group, shape.groups - 1), group
    if weight is not None:
        yield 5, _outside(weight, LARGEST), weight
    if scores is None:
        if isinstance(batch.preds, Tensor) and batch.preds.dtype != torch.bool:
            yield 1, _outside(batch.preds, shape.columns - 1), batch.preds
    else:
        one = scores.amax(1) if scores.ndim > target.ndim else scores  # the highest, which is NaN if any score is
        if batch.uneven is not None:
            yield 4, batch.uneven, one
        if batch.bounded:
            yield 3, _outside(one, 1), one
        yield 2, one.isnan(), one
    if target.dtype != torch.bool:
        yield 0, _outside(target, shape.rows - 1), target


def _outside(x: Tensor, most: float) -> Tensor:
    """Return bools, true for numbers outside [0, most] and for NaN; two operations, where comparisons take three."""
    if not x.is_floating_point():
        most = min(int(most), torch.iinfo(x.dtype).max)
    return x.clamp(0, most) != x


def counted_samples(batch: Batch, shape: CountsShape, ignored: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return int64 predictions and targets, and bools of the samples that count, without waiting for a device."""
    preds = batch.preds if isinstance(batch.preds, Tensor) else torch.from_numpy(batch.preds)
    preds, target = integers(preds), integers(batch.target)
    counted = kept_targets(target, ignored)
    for _, fault, _ in _faults(batch, shape):
        counted = counted & ~fault
    return preds, target, counted


# --- reading predictions and targets --------------------------------------------------------------------------------

FEW_CLASSES = 32  # up to this number, checking all scores for NaN is faster than gathering the highest ones
DESCENDING = np.arange(FEW_CLASSES, 0, -1, dtype=np.uint8)[:, None]
MANY = 512  # samples from which comparing classes takes less time than argmax, whose branches are guessed wrong


def highest(scores: Tensor) -> tuple[Tensor | Integers, Tensor | None]:
    """Return the class of the highest of scores ``[N, C, ...]``, and values that hold NaN if the scores do.

    On the CPU the classes of few are an array, without values, if no score is NaN.
    """
    if scores.ndim != 2 or scores.dtype not in (torch.float32, torch.float64) or not reading_is_free(scores):
        most = torch.max(scores, 1)
        return most.indices, most.values
    values, (samples, classes) = array(scores), scores.shape
    if classes > FEW_CLASSES:
        best = torch.from_numpy(values.argmax(1))  # ten times as fast as torch for 1000 classes
        return best, scores.gather(1, best.unsqueeze(1)).squeeze(1)
    if classes == 2 or samples < MANY:  # comparing two scores takes a fifth of the time of argmax
        preds, seen = values[:, 1] > values[:, 0] if classes == 2 else values.argmax(1), values
    elif samples <= BLOCK:
        preds, seen = _highest_of_few(values)
    else:
        parts = (_highest_of_few(values[start : start + BLOCK]) for start in range(0, samples, BLOCK))
        preds, seen = map(np.concatenate, zip(*parts, strict=True))
    # the squares of few scores are added in half the time of their maximum, and hold NaN as well
    nan = math.isnan(np.vdot(seen, seen) if samples < MANY else seen.max())
    return (torch.from_numpy(values.argmax(1)), scores) if nan else (preds, None)


def _highest_of_few(values: Integers) -> tuple[Integers, Integers]:
    """Return the class of the highest of scores ``[n, C]``, and this score, without the branches of an argmax."""
    of_classes = np.ascontiguousarray(values.T)
    most = np.maximum.reduce(of_classes)
    first = np.maximum.reduce((of_classes == most) * DESCENDING[-len(of_classes) :])
    return len(of_classes) - first, most


def extreme(scores: Tensor) -> Tensor:
    """Return the lowest score ``[N, ...]`` of each sample if it is negative, else the highest; NaN if any score is.

    Args:
        scores: ``[N, C, ...]`` in float32 or float64.
    """
    least, most = scores.amin(1), scores.amax(1)  # both keep NaN
    return least.where(least < 0, most)


def readable(labels: Tensor) -> Tensor:
    """Convert labels to int64 unless NumPy and torch handle their dtype alike; keep floats as they are."""
    return labels if labels.dtype in COMMON or labels.is_floating_point() else integers(labels)


COMMON = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
