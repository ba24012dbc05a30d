"""Soft counts on plain tensors: each sample adds its probabilities to the row of its target in place of a 1.

Probabilities are rounded to multiples of 2^-24 and kept as integers, whose sum is the same in any order. On the CPU
the integers of a batch are summed in float64, which is exact below 2^53 and takes a third of the time of int64.
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

UNIT = 2**24  # units of one sample: float32 resolves multiples of 2^-24 below 1
UNEVEN = 0.01  # largest deviation from 1 of the sum of a sample's probabilities
WIDE = 20  # number of classes from which samples are added one by one, not by a matrix product
BLOCK = 1 << 18  # scores that the CPU reads at a time, so that it never copies all of them
SAMPLES = 4096  # samples that the CPU reads at a time, at most
DEVICE_BLOCK = 1 << 22  # scores that other devices read at a time

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
    """Count a batch of class scores, hard and soft, and return True if all its samples are valid.

    Else leave the state unchanged and return False. The state changes in one call at the very end, so that no error
    and no interrupt leaves half a batch in it.

    Args:
        state: flat counts on the CPU: hard ones, then soft ones, ``[2 * table.cells + ...]``.
        table: shape of the hard counts, and of the soft ones.
        scores: ``[N, K, ...]``, floating.
        target: class of each sample, ``[N, ...]``.
        ignored: target of the samples to leave out.
        logits: whether scores are logits; else they must be probabilities.
        group: group index of each sample, in the shape of the targets, or one for all; None for the first group.
    """
    rows = target
    if group is not None:  # one row for each class of each group
        kept = kept_targets(target, ignored)
        groups = torch.as_tensor(group).expand(target.shape)
        valid = (target >= 0) & (target < table.rows) & (groups >= 0) & (groups < table.groups)
        if bool((kept & ~valid).any()):
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
    """Return hard and soft counts ``[2 * classes, classes]`` of few classes; None if a sample is invalid.

    NumPy takes half the time of torch for few classes.
    """
    few = np.arange(classes, dtype=np.uint8)
    sums = np.zeros((2 * classes, classes))
    for block, part in blocks:
        samples, target = len(part), part.numpy()
        # rows of exactly 4096 numbers would collide in the cache; padding them saves a fifth of the time
        scores = np.empty((classes, samples + 16), block.numpy().dtype)[:, :samples]
        factors = np.empty((2 * classes, samples + 16))[:, :samples]
        np.copyto(scores, block.numpy().T)
        most = scores.max(0)
        if not (logits or _are_probabilities(scores, most, 0)):
            return None
        chosen = scores == most
        if np.count_nonzero(chosen) == samples:
            preds = np.einsum("kn,k->n", chosen.view(np.uint8), few)
        else:  # ties, where the first class is predicted, or NaN
            preds = scores.argmax(0)
        if logits:
            with np.errstate(invalid="ignore"):  # inf - inf
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
    """Count samples of many classes one by one; return False, with the state unchanged, if a sample is invalid.

    Args:
        state: see :func:`count_soft`.
        table: see :func:`count_soft`.
        blocks: scores and rows of the samples, in parts.
        rows: the rows that have targets, in increasing order.
        logits: see :func:`count_soft`.
    """
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
    # a single call from Python, so that no interrupt comes between the two additions
    deque(map(Tensor.index_add_, tables, (0, 0), (cells, torch.from_numpy(rows)), added), maxlen=0)
    return True


def _summed_margins(blocks: Iterator[Block], classes: int, logits: bool) -> Tensor | None:
    """Return hard and soft margins ``[6, classes]``; None if a sample is invalid."""
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
    """Return predicted classes ``[n]`` and probabilities in units ``[n, K]``; None if scores are no probabilities.

    The units are written to memory that all blocks share, since allocating it takes longer than the computation.
    """
    numbers = scores.numpy()
    if not (logits or _are_probabilities(numbers, numbers, 1)):
        return None
    units.copy_((scores.softmax(1).mul_(UNIT) if logits else scores * UNIT).round_())
    return torch.from_numpy(numbers.argmax(1)), units  # ten times as fast as torch's for 1000 classes


def _total(scores: Floats, axis: int) -> Floats:
    """Sum along an axis such that the sum of a sample does not depend on its batch.

    NumPy sums a batch of a single sample in another order, so that case takes a cumulative sum.
    """
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
        table: shape of the hard counts, and of the soft ones.
        scores: floating, ``[N, K, ...]``; with two classes the scores of class 1, in the shape of the targets.
        target: int64 class of each sample, ``[N, ...]``; ``[N, labels, ...]`` if there are several labels.
        counted: bools in the same shape, true for the samples that count; None for all.
        logits: whether scores are logits; else those of the samples that count are probabilities.
        group: int64 group index of each sample, in the same shape, arbitrary for samples that do not count; None for
            the first group.
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
    added = soft.new_zeros(len(soft) // 2) if of_two else soft  # with two classes, those of class 1 by row
    step = max(1, (BLOCK if soft.is_cpu else DEVICE_BLOCK) // table.columns)
    if len(rows) <= step:  # no loop, because torch.compile would compile the graph again for each size
        _add_block(added, table, scores, rows, counted, logits)
    else:
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            _add_block(added, table, scores[part], rows[part], counted if counted is None else counted[part], logits)
    if of_two:
        soft.add_(torch.stack((UNIT * hard.view(-1, 2).sum(-1) - added, added), -1).flatten())


def _add_block(soft: Tensor, table: Table, scores: Tensor, rows: Tensor, counted: Tensor | None, logits: bool) -> None:
    """Add scores ``[n, K]`` to flat soft counts, or scores ``[n]`` of class 1 to its soft counts ``[rows]``."""
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
    """Return probabilities of class 1 that do not depend on the batch; the last bit of torch's sigmoid does."""
    if not reading_is_free(logits):
        return logits.sigmoid()
    powers = -logits.numpy()
    with np.errstate(over="ignore"):
        np.exp(powers, out=powers)
    powers += 1
    return torch.from_numpy(np.reciprocal(powers, out=powers))


def impossible_and_uneven(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Check probabilities of classes ``[N, K, ...]``.

    Returns:
        Both ``[N, ...]``: the lowest score of each sample if it is negative, else the highest, NaN if any is; and
        bools, true for samples whose scores do not sum to 1.
    """
    scores = wide(scores)
    least, most = scores.amin(1), scores.amax(1)
    return least.where(least < 0, most), (scores.sum(1) - 1).abs() > UNEVEN  # amin and amax keep NaN


# --- reading soft counts --------------------------------------------------------------------------------------------


def with_totals_of(hard: Counts, soft: Counts) -> Counts:
    """Scale each row of soft counts to its total in hard counts, in float64.

    Classes with neither targets nor hard predictions get 0, since measures would count a class with the smallest
    probability as present. Their probability goes to the other cells of the same row. Margins do not hold the row, so
    there it goes to the correct predictions.

    Args:
        hard: ``[..., K, K]`` or :class:`Margins`.
        soft: soft counts of the same type and shape, in units of 2^-24.

    Returns:
        Soft counts of the same type and shape, float64.

    >>> hard, soft = torch.tensor([[2, 0], [0, 1]]), torch.tensor([[3, 1], [1, 1]])
    >>> with_totals_of(hard, soft)
    tensor([[1.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
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
    """Scale soft margins to the totals of hard ones, such that some confusion matrix has them.

    Scaling never adds errors. It makes the numbers of false negatives and of false positives equal, and limits the sum
    of both in each class to the number of errors, since every false negative of one class is a false positive of
    another.
    """
    present = (hard.actual + hard.predicted) > 0
    missed = hard.actual * (1 - ratio(soft.correct, soft.actual).clamp(max=1))
    false = (soft.predicted - soft.correct).clamp(min=0) * present
    of_missed, of_false = missed.sum(-1, keepdim=True), false.sum(-1, keepdim=True)
    errors = torch.minimum(of_missed, of_false)
    missed, false = missed * ratio(errors, of_missed), false * ratio(errors, of_false)
    excess = (missed + false - errors).clamp(min=0)  # positive in at most one class
    missed, false = (missed - excess).clamp(min=0), (false - excess).clamp(min=0)
    correct = hard.actual - missed
    return Margins(correct, hard.actual, correct + false)
