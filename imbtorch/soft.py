"""Soft counts on plain tensors: a sample adds its probabilities along the row of its target, in place of one 1.

They are kept as whole numbers of 2^-24, which add up to the same in any order. On the CPU those of a batch are summed
in float64, which is exact for whole numbers below 2^53 and takes a third of the time of integers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, double, margins, ratio
from imbtorch.kernels import Integers, Table, below, reading_is_free
from imbtorch.log_odds import of_class_one, wide

__all__ = [
    "UNEVEN",
    "add_soft_masked",
    "add_soft_of_two",
    "count_soft",
    "impossible_and_uneven",
    "with_totals_of",
]

UNIT = 2**24  # parts of one sample: what float32 can tell apart below 1
UNEVEN = 0.01  # how far the probabilities of a sample may be from summing to 1
WIDE = 20  # classes from which samples are read one by one rather than side by side
BLOCK = 1 << 18  # scores that the CPU reads at a time, so that there is never a copy of all of them
SAMPLES = 4096  # of few classes that it reads at a time
DEVICE_BLOCK = 1 << 22  # scores that a device reads at a time

Block: TypeAlias = tuple[Tensor, Tensor]
Floats: TypeAlias = npt.NDArray[Any]


# --- several classes, on the CPU ------------------------------------------------------------------------------------


def count_soft(state: Tensor, table: Table, scores: Tensor, true: Tensor, ignored: int | None, logits: bool) -> bool:
    """Count a batch of class scores, hard and soft, if all its samples are sound; else return False.

    The state changes in one call at the very end, so that no error and no interrupt leaves half a batch in it.

    Args:
        state: flat counts on the CPU: hard ones, then soft ones, ``[2 * table.cells + ...]``.
        table: shape of either; there may be several rows for each class, those of groups.
        scores: ``[N, K, ...]``, floating.
        true: row of each sample, ``[N, ...]``.
        ignored: row of the samples to leave out.
        logits: whether scores are logits; else they must be probabilities.
    """
    kept = true.numpy().reshape(-1)
    kept = kept if ignored is None else kept[kept != ignored]
    if kept.size and not below(kept, table.rows):
        return False
    blocks = _blocks(scores, true, table.columns, ignored)
    if not table.margins and table.rows >= min(WIDE, table.columns + 1):
        return _count_rows(state, table, blocks, np.bincount(kept, minlength=table.rows).nonzero()[0], logits)
    summed = _summed_margins if table.margins else _summed_columns
    sums = summed(blocks, table.rows, logits)
    if sums is None or not math.isfinite(sums.sum().item()):  # NaN, or infinite logits
        return False
    state[: 2 * table.cells].view(-1, table.rows).add_(sums.long())
    return True


def _blocks(scores: Tensor, true: Tensor, classes: int, ignored: int | None) -> Iterator[Block]:
    """Parts of a batch without the ignored samples: scores ``[n, classes]``, strided at will, and targets ``[n]``."""
    size = _samples_of_a_block(classes)
    places = true.numel() // max(1, len(true))
    step = max(1, size // max(1, places))
    for start in range(0, len(true), step):
        some, targets = scores[start : start + step], true[start : start + step]
        if scores.ndim > 2:
            some, targets = some.flatten(2).movedim(1, 0).reshape(classes, -1).t(), targets.reshape(-1)
        some, targets = wide(some), targets.long()
        for first in range(0, len(targets), size):
            block, part = some[first : first + size], targets[first : first + size]
            if ignored is not None and bool((left_out := part == ignored).any()):
                block, part = block[~left_out], part[~left_out]
            if len(part):
                yield block, part


def _samples_of_a_block(classes: int) -> int:
    return max(1, min(SAMPLES, BLOCK // classes))


def _summed_columns(blocks: Iterator[Block], classes: int, logits: bool) -> Tensor | None:
    """Hard and soft counts ``[2 * classes, classes]`` of samples that stand side by side; None if one is not sound.

    NumPy takes half the time of torch for so few classes.
    """
    few = np.arange(classes, dtype=np.uint8)
    sums = np.zeros((2 * classes, classes))
    for block, true in blocks:
        samples, target = len(true), true.numpy()
        # rows of 4096 numbers would start at the same place of the cache: some space between them saves a fifth
        scores = np.empty((classes, samples + 16), block.numpy().dtype)[:, :samples]
        factors = np.empty((2 * classes, samples + 16))[:, :samples]
        np.copyto(scores, block.numpy().T)
        most = scores.max(0)
        if not (logits or _are_probabilities(scores, most, 0)):
            return None
        chosen = scores == most
        if np.count_nonzero(chosen) == samples:
            labels = np.einsum("kn,k->n", chosen.view(np.uint8), few)
        else:  # ties, of which the first is predicted, or NaN
            labels = scores.argmax(0)
        if logits:
            with np.errstate(invalid="ignore"):  # of infinite ones
                scores -= most
            np.exp(scores, out=scores)
            scores *= UNIT / _total(scores, 0)
        else:
            scores *= UNIT
        np.rint(scores, out=factors[:classes])
        np.equal(target.astype(np.uint8), few[:, None], out=factors[classes:], casting="unsafe")
        counted = np.bincount(target * classes + labels, minlength=classes**2)
        sums[:classes] += counted.reshape(classes, classes)
        sums[classes:] += factors[classes:] @ factors[:classes].T
    return torch.from_numpy(sums)


def _count_rows(state: Tensor, table: Table, blocks: Iterator[Block], rows: Integers, logits: bool) -> bool:
    """Count samples of many classes one by one, of which some have targets; return whether all are sound."""
    place = np.zeros(table.rows, np.int64)
    place[rows] = np.arange(len(rows))
    soft, chosen = torch.zeros(len(rows), table.columns, dtype=torch.float64), []
    space = torch.empty(_samples_of_a_block(table.columns), table.columns, dtype=torch.float64)
    for block, true in blocks:
        found = _labels_and_units(block.contiguous(), logits, space[: len(true)])
        if found is None:
            return False
        labels, units = found
        soft.index_add_(0, torch.from_numpy(place[true.numpy()]), units)
        chosen.append(true * table.columns + labels)
    if not math.isfinite(soft.sum().item()):  # NaN, or infinite logits
        return False
    cells = torch.cat(chosen) if chosen else torch.zeros(0, dtype=torch.int64)
    tables = state[: table.cells], state[table.cells : 2 * table.cells].view(table.rows, table.columns)
    added = torch.ones_like(cells), soft.long()
    # one call for Python, so that no interrupt comes between the two
    deque(map(Tensor.index_add_, tables, (0, 0), (cells, torch.from_numpy(rows)), added), maxlen=0)
    return True


def _summed_margins(blocks: Iterator[Block], classes: int, logits: bool) -> Tensor | None:
    """Hard and soft margins ``[6, classes]``; None if a sample is not sound."""
    sums = torch.zeros(6, classes, dtype=torch.float64)
    space = torch.empty(_samples_of_a_block(classes), classes, dtype=torch.float64)
    for block, true in blocks:
        found = _labels_and_units(block.contiguous(), logits, space[: len(true)])
        if found is None:
            return None
        labels, units = found
        ones = torch.ones(len(true), dtype=torch.float64)
        sums[0].index_add_(0, true, (labels == true).double())
        sums[1].index_add_(0, true, ones)
        sums[2].index_add_(0, labels, ones)
        sums[3].index_add_(0, true, units.gather(1, true.unsqueeze(1)).squeeze(1))
        sums[4].index_add_(0, true, units.sum(1))
        sums[5] += units.sum(0)
    return sums


def _labels_and_units(scores: Tensor, logits: bool, units: Tensor) -> tuple[Tensor, Tensor] | None:
    """Classes that are predicted ``[n]`` and probabilities in units ``[n, K]``; None if they are no probabilities.

    Units are written to memory that all blocks share: the system takes longer to give some than the rest of this.
    """
    numbers = scores.numpy()
    if not (logits or _are_probabilities(numbers, numbers, 1)):
        return None
    units.copy_((scores.softmax(1).mul_(UNIT) if logits else scores * UNIT).round_())
    return torch.from_numpy(numbers.argmax(1)), units  # ten times as fast as torch's for 1000 classes


def _total(scores: Floats, axis: int) -> Floats:
    """Sum along an axis, of each sample the same in any batch: a single column NumPy sums in another order."""
    total: Floats = scores.sum(axis) if axis or scores.shape[1] > 1 else scores.cumsum(0)[-1]
    return total


def _are_probabilities(scores: Floats, most: Floats, axis: int) -> bool:
    """Whether scores lie in [0, 1] and sum to 1 along an axis; NaN do not."""
    if not (scores.min() >= 0 and most.max() <= 1):
        return False
    total = _total(scores, axis)
    return bool(total.min() >= 1 - UNEVEN and total.max() <= 1 + UNEVEN)


# --- on any device --------------------------------------------------------------------------------------------------


def add_soft_masked(soft: Tensor, table: Table, scores: Tensor, true: Tensor, counted: Tensor, logits: bool) -> None:
    """Add class scores to soft counts without reading a value.

    Args:
        soft: flat int64 soft counts ``[table.cells]``.
        table: their shape.
        scores: ``[N, K, ...]``, floating.
        true: int64 row of each sample, ``[N, ...]``.
        counted: which samples count, in the same shape.
        logits: whether scores are logits; else they are probabilities where they count.
    """
    rows, samples = scores.movedim(1, -1).flatten(0, -2) if scores.ndim > 2 else scores, true.numel()
    true, counted = true.flatten(), counted.flatten()
    step = max(1, DEVICE_BLOCK // table.columns)
    if samples <= step:  # without a loop over a size, which a traced graph would be compiled for
        _add_block(soft, table, rows, true, counted, logits)
        return
    for start in range(0, samples, step):
        part = slice(start, start + step)
        _add_block(soft, table, rows[part], true[part], counted[part], logits)


def _add_block(soft: Tensor, table: Table, scores: Tensor, true: Tensor, counted: Tensor, logits: bool) -> None:
    share = (wide(scores).softmax(1) if logits else wide(scores)).masked_fill(~counted.unsqueeze(1), 0)
    units, classes = (share * UNIT).round().long(), true.where(counted, 0)
    if not table.margins:
        soft.view(table.rows, table.columns).index_add_(0, classes, units)
        return
    own = units.gather(1, classes.unsqueeze(1)).squeeze(1)
    index = torch.cat((classes, classes + table.rows))
    soft.index_add_(0, index, torch.cat((own, units.sum(1))))
    soft[2 * table.rows :].add_(units.sum(0))


def add_soft_of_two(
    soft: Tensor,
    table: Table,
    scores: Tensor,
    true: Tensor,
    counted: Tensor,
    logits: bool,
    group: Tensor | None,
) -> None:
    """Add probabilities of class 1, and what is left of 1 for class 0, without reading a value.

    Args:
        soft: flat int64 soft counts ``[table.cells]``.
        table: their shape.
        scores: of class 1, ``[N, ...]``, ``[N, labels, ...]`` if there are several labels; or of both classes, ``[N, 2,
            ...]``.
        true: int64 class of each sample, in the same shape but for the two columns.
        counted: which samples count, in the same shape.
        logits: whether scores are logits; else they are probabilities where they count.
        group: int64 group of each sample, in the shape of ``true``, anything where it does not count; None for the
            first.
    """
    if not true.numel():
        return
    if not true.ndim:
        scores, true, counted = scores.view(1), true.view(1), counted.view(1)
        group = None if group is None else group.view(1)
    step = max(1, (BLOCK if true.is_cpu else DEVICE_BLOCK) * len(true) // true.numel())
    if len(true) <= step:  # without a loop over a size, which a traced graph would be compiled for
        _add_block_of_two(soft, table, scores, true, counted, logits, group)
        return
    for start in range(0, len(true), step):
        part = slice(start, start + step)
        groups = None if group is None else group[part]
        _add_block_of_two(soft, table, scores[part], true[part], counted[part], logits, groups)


def _add_block_of_two(
    soft: Tensor, table: Table, scores: Tensor, true: Tensor, counted: Tensor, logits: bool, group: Tensor | None
) -> None:
    shares = _sigmoid(scores, true.ndim) if logits else scores[:, 1] if scores.ndim > true.ndim else scores
    units = (_double(shares).masked_fill(~counted, 0) * UNIT).round().long()
    rows = true if group is None else true + group * (table.labels * table.rows)
    if table.labels > 1:
        label = torch.arange(table.labels, device=rows.device) * table.rows
        rows = rows + label.view(-1, *[1] * (rows.ndim - 2))
    zeros = (rows * table.columns).where(counted, 0).flatten()
    rest = (UNIT * counted.long() - units).flatten()
    soft.index_add_(0, torch.cat((zeros, zeros + 1)), torch.cat((rest, units.flatten())))


def _double(x: Tensor) -> Tensor:
    """Float64, or float32 where the device knows no other."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def _sigmoid(logits: Tensor, dimensions: int) -> Tensor:
    """Probability of class 1, of each logit the same in any batch: the last bit of torch's depends on its place."""
    odds = of_class_one(_double(logits), dimensions)
    if not reading_is_free(odds):
        return odds.sigmoid()
    with np.errstate(over="ignore"):
        powers = np.exp(-odds.numpy())
    return torch.from_numpy(np.asarray(1 / (1 + powers)))


def impossible_and_uneven(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Of class scores ``[N, K, ...]`` an impossible one of each sample, if it has one; which do not sum to 1."""
    scores = wide(scores)
    least, most = scores.amin(1), scores.amax(1)
    return least.where(least < 0, most), (scores.sum(1) - 1).abs() > UNEVEN  # NaN where one is


# --- reading them ---------------------------------------------------------------------------------------------------


def with_totals_of(hard: Counts, soft: Counts) -> Counts:
    """Scale each row of soft counts to its total in hard counts, in float64.

    Classes with neither targets nor hard predictions get nothing, since measures would take the least probability for
    a class that is there. Their part goes to the other cells of the row; margins do not say of which row it was, so
    there it goes to the right predictions.

    Args:
        hard: ``[..., K, K]`` or :class:`Margins`.
        soft: the same, in units of 2^-24.
    """
    if isinstance(hard, Margins):
        assert isinstance(soft, Margins)
        return _scaled_margins(margins(hard), Margins(*(double(part) / UNIT for part in soft)))
    assert isinstance(soft, Tensor)
    counts = double(hard)
    actual = counts.sum(-1)
    present = (actual + counts.sum(-2)) > 0
    kept = double(soft) * present.unsqueeze(-2)
    return kept * ratio(actual, kept.sum(-1)).unsqueeze(-1)


def _scaled_margins(hard: Margins, soft: Margins) -> Margins:
    """Soft margins with the totals of hard ones, such as a confusion matrix can have.

    Errors are only ever taken away: as many missed as falsely predicted samples, and no class with more of both than
    there are errors, since what is missed in a class is predicted as another.
    """
    present = (hard.actual + hard.predicted) > 0
    missed = hard.actual * (1 - ratio(soft.correct, soft.actual).clamp(max=1))
    false = (soft.predicted - soft.correct).clamp(min=0) * present
    of_missed, of_false = missed.sum(-1, keepdim=True), false.sum(-1, keepdim=True)
    errors = torch.minimum(of_missed, of_false)
    missed, false = missed * ratio(errors, of_missed), false * ratio(errors, of_false)
    excess = (missed + false - errors).clamp(min=0)  # of one class at most
    missed, false = (missed - excess).clamp(min=0), (false - excess).clamp(min=0)
    correct = hard.actual - missed
    return Margins(correct, hard.actual, correct + false)
