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

from imbtorch.counts import Counts, Margins, double, has_float64, margins, ratio
from imbtorch.kernels import Integers, Table, below, integers, kept_targets, reading_is_free
from imbtorch.log_odds import wide

__all__ = [
    "UNEVEN",
    "add_soft",
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


def count_soft(
    state: Tensor,
    table: Table,
    scores: Tensor,
    target: Tensor,
    ignored: int | None,
    logits: bool,
    group: Tensor | int | None,
) -> bool:
    """Count a batch of class scores, hard and soft, if all its samples are sound; else return False.

    The state changes in one call at the very end, so that no error and no interrupt leaves half a batch in it.

    Args:
        state: flat counts on the CPU: hard ones, then soft ones, ``[2 * table.cells + ...]``.
        table: shape of either.
        scores: ``[N, K, ...]``, floating.
        target: class of each sample, ``[N, ...]``.
        ignored: class of the samples to leave out.
        logits: whether scores are logits; else they must be probabilities.
        group: of each sample, in the shape of the targets, or of all; None for the first.
    """
    rows = target
    if group is not None:  # each class of each group has a row
        kept = kept_targets(target, ignored)
        groups = torch.as_tensor(group).expand(target.shape)
        sound = (target >= 0) & (target < table.rows) & (groups >= 0) & (groups < table.groups)
        if bool((kept & ~sound).any()):
            return False
        rows = torch.where(kept, integers(target) + groups * table.rows, -1)
        table, ignored = table.of_all_groups, None if ignored is None else -1
    counted = rows.numpy().reshape(-1)
    counted = counted if ignored is None else counted[counted != ignored]
    if counted.size and not below(counted, table.rows):
        return False
    blocks = _blocks(scores, rows, table.columns, ignored)
    if not table.margins and table.rows >= min(WIDE, table.columns + 1):
        return _count_rows(state, table, blocks, np.bincount(counted, minlength=table.rows).nonzero()[0], logits)
    summed = _summed_margins if table.margins else _summed_columns
    sums = summed(blocks, table.rows, logits)
    if sums is None or not math.isfinite(sums.sum().item()):  # NaN, or infinite logits
        return False
    state[: 2 * table.cells].view(-1, table.rows).add_(sums.long())
    return True


def _blocks(scores: Tensor, rows: Tensor, classes: int, ignored: int | None) -> Iterator[Block]:
    """Yield parts of a batch without the ignored samples: scores ``[n, classes]``, of any strides, and rows ``[n]``."""
    size = _samples_of_a_block(classes)
    places = rows.numel() // max(1, len(rows))
    step = max(1, size // max(1, places))
    for start in range(0, len(rows), step):
        some, part = scores[start : start + step], rows[start : start + step]
        if scores.ndim > 2:
            some, part = some.flatten(2).movedim(1, 0).reshape(classes, -1).t(), part.reshape(-1)
        some, part = wide(some), part.long()
        for first in range(0, len(part), size):
            block, own = some[first : first + size], part[first : first + size]
            if ignored is not None and bool((left_out := own == ignored).any()):
                block, own = block[~left_out], own[~left_out]
            if len(own):
                yield block, own


def _samples_of_a_block(classes: int) -> int:
    return max(1, min(SAMPLES, BLOCK // classes))


def _summed_columns(blocks: Iterator[Block], classes: int, logits: bool) -> Tensor | None:
    """Return hard and soft counts ``[2 * classes, classes]`` of samples side by side; None if one is not sound.

    NumPy takes half the time of torch for so few classes.
    """
    few = np.arange(classes, dtype=np.uint8)
    sums = np.zeros((2 * classes, classes))
    for block, part in blocks:
        samples, target = len(part), part.numpy()
        # rows of 4096 numbers would start at the same place of the cache: some space between them saves a fifth
        scores = np.empty((classes, samples + 16), block.numpy().dtype)[:, :samples]
        factors = np.empty((2 * classes, samples + 16))[:, :samples]
        np.copyto(scores, block.numpy().T)
        most = scores.max(0)
        if not (logits or _are_probabilities(scores, most, 0)):
            return None
        chosen = scores == most
        if np.count_nonzero(chosen) == samples:
            preds = np.einsum("kn,k->n", chosen.view(np.uint8), few)
        else:  # ties, of which the first is predicted, or NaN
            preds = scores.argmax(0)
        if logits:
            with np.errstate(invalid="ignore"):  # of infinite ones
                scores -= most
            np.exp(scores, out=scores)
            scores *= UNIT / _total(scores, 0)
        else:
            scores *= UNIT
        np.rint(scores, out=factors[:classes])
        np.equal(target.astype(np.uint8), few[:, None], out=factors[classes:], casting="unsafe")
        counted = np.bincount(target * classes + preds, minlength=classes**2)
        sums[:classes] += counted.reshape(classes, classes)
        sums[classes:] += factors[classes:] @ factors[:classes].T
    return torch.from_numpy(sums)


def _count_rows(state: Tensor, table: Table, blocks: Iterator[Block], rows: Integers, logits: bool) -> bool:
    """Count samples of many classes one by one, of which some have targets; return whether all are sound."""
    place = np.zeros(table.rows, np.int64)
    place[rows] = np.arange(len(rows))
    soft, chosen = torch.zeros(len(rows), table.columns, dtype=torch.float64), []
    space = torch.empty(_samples_of_a_block(table.columns), table.columns, dtype=torch.float64)
    for block, target in blocks:
        found = _preds_and_units(block.contiguous(), logits, space[: len(target)])
        if found is None:
            return False
        preds, units = found
        soft.index_add_(0, torch.from_numpy(place[target.numpy()]), units)
        chosen.append(target * table.columns + preds)
    if not math.isfinite(soft.sum().item()):  # NaN, or infinite logits
        return False
    cells = torch.cat(chosen) if chosen else torch.zeros(0, dtype=torch.int64)
    tables = state[: table.cells], state[table.cells : 2 * table.cells].view(table.rows, table.columns)
    added = torch.ones_like(cells), soft.long()
    # one call for Python, so that no interrupt comes between the two
    deque(map(Tensor.index_add_, tables, (0, 0), (cells, torch.from_numpy(rows)), added), maxlen=0)
    return True


def _summed_margins(blocks: Iterator[Block], classes: int, logits: bool) -> Tensor | None:
    """Return hard and soft margins ``[6, classes]``; None if a sample is not sound."""
    sums = torch.zeros(6, classes, dtype=torch.float64)
    space = torch.empty(_samples_of_a_block(classes), classes, dtype=torch.float64)
    for block, target in blocks:
        found = _preds_and_units(block.contiguous(), logits, space[: len(target)])
        if found is None:
            return None
        preds, units = found
        ones = torch.ones(len(target), dtype=torch.float64)
        sums[0].index_add_(0, target, (preds == target).double())
        sums[1].index_add_(0, target, ones)
        sums[2].index_add_(0, preds, ones)
        sums[3].index_add_(0, target, units.gather(1, target.unsqueeze(1)).squeeze(1))
        sums[4].index_add_(0, target, units.sum(1))
        sums[5] += units.sum(0)
    return sums


def _preds_and_units(scores: Tensor, logits: bool, units: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return predicted classes ``[n]`` and probabilities in units ``[n, K]``; None if they are no probabilities.

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
    """Return whether scores lie in [0, 1] and sum to 1 along an axis; NaN does not."""
    if not (scores.min() >= 0 and most.max() <= 1):
        return False
    total = _total(scores, axis)
    return bool(total.min() >= 1 - UNEVEN and total.max() <= 1 + UNEVEN)


# --- on any device --------------------------------------------------------------------------------------------------


def add_soft(
    counts: Tensor,
    table: Table,
    scores: Tensor,
    target: Tensor,
    counted: Tensor | None,
    logits: bool,
    group: Tensor | None,
) -> None:
    """Add scores to soft counts without reading a value.

    Args:
        counts: flat int64 hard counts of the same samples, and soft counts behind them, ``[2 * table.cells]``.
        table: shape of either.
        scores: floating, ``[N, K, ...]``; of two classes those of class 1, in the shape of the targets.
        target: int64 class of each sample, ``[N, ...]``; ``[N, labels, ...]`` if there are several labels.
        counted: which samples count, in the same shape; None for all.
        logits: whether scores are logits; else they are probabilities where they count.
        group: int64 group of each sample, in the same shape, anything where it does not count; None for the first.
    """
    hard, soft = counts.view(2, -1)
    rows = target if group is None else target + group * (table.labels * table.rows)
    if table.labels > 1:
        label = torch.arange(table.labels, device=rows.device) * table.rows
        rows = rows + label.view(-1, *[1] * (rows.ndim - 2))
    if counted is not None:
        rows, counted = rows.where(counted, 0), counted.flatten()
    of_two = scores.ndim == target.ndim
    rows, scores = rows.flatten(), scores.flatten() if of_two else scores.movedim(1, -1).flatten(0, -2)
    added = soft.new_zeros(len(soft) // 2) if of_two else soft  # of two classes what class 1 gets of each row
    step = max(1, (BLOCK if soft.is_cpu else DEVICE_BLOCK) // table.columns)
    if len(rows) <= step:  # without a loop over a size, which a traced graph would be compiled for
        _add_block(added, table, scores, rows, counted, logits)
    else:
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            _add_block(added, table, scores[part], rows[part], counted if counted is None else counted[part], logits)
    if of_two:
        soft.add_(torch.stack((UNIT * hard.view(-1, 2).sum(-1) - added, added), -1).flatten())


def _add_block(soft: Tensor, table: Table, scores: Tensor, rows: Tensor, counted: Tensor | None, logits: bool) -> None:
    """Add scores ``[n, K]`` to flat soft counts, or ``[n]`` of class 1 of two to those of that class ``[rows]``."""
    if scores.ndim == 1:
        shares = scores.to(torch.float64 if has_float64(scores.device) else torch.float32)
        shares = _sigmoid(shares) if logits else shares
    else:
        shares = wide(scores).softmax(1) if logits else wide(scores)
    if counted is not None:
        shares = shares.masked_fill(~counted.view(-1, *[1] * (scores.ndim - 1)), 0)
    units = (shares * UNIT).round_().long()
    if scores.ndim == 1:
        soft.index_add_(0, rows, units)
    elif not table.margins:
        cells = (rows * table.columns).unsqueeze(1) + torch.arange(table.columns, device=rows.device)
        soft.index_add_(0, cells.flatten(), units.flatten())
    else:
        own = units.gather(1, rows.unsqueeze(1)).squeeze(1)
        index = torch.cat((rows, rows + table.rows))
        soft.index_add_(0, index, torch.cat((own, units.sum(1))))
        soft[2 * table.rows :].add_(units.sum(0))


def _sigmoid(logits: Tensor) -> Tensor:
    """Return the probability of class 1, the same in any batch: the last bit of torch's depends on the place in it."""
    if not reading_is_free(logits):
        return logits.sigmoid()
    powers = -logits.numpy()
    with np.errstate(over="ignore"):
        np.exp(powers, out=powers)
    powers += 1
    return torch.from_numpy(np.reciprocal(powers, out=powers))


def impossible_and_uneven(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return of class scores ``[N, K, ...]`` an impossible one of each sample, if any, and which do not sum to 1."""
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
    """Scale soft margins to the totals of hard ones, such that a confusion matrix can have them.

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
