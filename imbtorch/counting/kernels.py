"""Kernels of counting, on plain tensors and ints: find the cell of each sample and add 1 to it.

On the CPU, where values can be read, a whole batch is checked first and then counted without masks. NumPy does both,
since its reductions of integers take less than half the time of torch's. On other devices nothing waits for a value:
each valid sample goes to its cell, and each invalid one to a spare cell behind the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Integers: TypeAlias = npt.NDArray[Any]
FEW = 4096  # batches below this size are added one by one; a separate table would take a third more time
BLOCK = 65_536  # samples that the CPU counts at a time, which bounds the memory that a large batch takes


class CountsShape(NamedTuple):
    """Shape of flat counts: ``[groups, buckets, labels, rows, columns]``; for margins ``[groups, buckets, 3, rows]``.

    Attributes:
        rows: number of true classes.
        columns: number of predicted classes, or of bins of a score.
        labels: number of labels; each has its own predictions, targets and table.
        margins: whether to keep only the diagonal, row sums and column sums.
        groups: number of groups of samples.
        buckets: number of buckets of clusters. Each sample is counted in the tables of one part, which is a bucket of a
            group.
    """

    rows: int
    columns: int
    labels: int = 1
    margins: bool = False
    groups: int = 1
    buckets: int = 1

    @property
    def cells(self) -> int:
        """Number of counts."""  # in one expression, since each update reads it
        of_a_part = 3 * self.rows if self.margins else self.labels * self.rows * self.columns
        return self.groups * self.buckets * of_a_part

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.groups * self.buckets

    @property
    def of_a_part(self) -> int:
        """Number of counts of one part."""
        return self.cells // self.parts


class BatchArrays(NamedTuple):
    """Arrays of a batch, all in one shape; :func:`count_valid` documents them."""

    preds: Integers
    target: Integers
    weight: Integers | None
    part: Integers | None

    def mapped(self, function: Callable[[Integers], Integers]) -> BatchArrays:
        """Apply a function to each array."""
        weight, part = (each if each is None else function(each) for each in (self.weight, self.part))
        return BatchArrays(function(self.preds), function(self.target), weight, part)


def reading_is_free(x: Tensor) -> bool:
    """Return whether reading a value neither waits for a device nor breaks a traced graph."""
    return x.is_cpu and not torch.compiler.is_compiling()


def array(x: Tensor) -> Integers:
    """Return a tensor on the CPU as an array in the same memory; copy a lazily negated one (``x.conj().imag``)."""
    try:
        return x.numpy()
    except RuntimeError:  # NumPy has no negative bit; asking for it would take as long as the rest
        return x.resolve_neg().numpy()


def integers(labels: Tensor) -> Tensor:
    """Convert labels to int64; a uint64 above the int64 range becomes the largest int64, which is no class."""
    if labels.dtype != torch.uint64:
        return labels.long()
    wrapped = labels.view(torch.int64)
    return wrapped.masked_fill(wrapped < 0, torch.iinfo(torch.int64).max)


def kept_targets(target: Tensor, ignored: int | None) -> Tensor:
    """Return bools in the shape of the targets, true for the samples that are not ignored."""
    return torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored


# --- on the CPU -----------------------------------------------------------------------------------------------------


def count_valid(
    state: Tensor,
    shape: CountsShape,
    preds: Integers,
    target: Integers,
    ignored: int | None,
    weight: Integers | None,
    part: Integers | None,
    *,
    preds_are_valid: bool,
) -> bool:
    """Count a batch and return True if all its samples are valid; else leave the state unchanged and return False.

    The state changes in one operation at the very end, so that no error and no interrupt leaves half a batch in it.
    Arguments are those of :func:`add_masked`, with finite weights in float64 or int64, and whether all predictions are
    known to be valid columns.
    """
    counts, samples = state.numpy()[: shape.cells], BatchArrays(preds, target, weight, part)
    if target.ndim != 1 and shape.labels == 1 and (part is None or part.shape == target.shape):
        samples = samples.mapped(np.ravel)
    if shape.margins or target.size < max(len(counts), FEW):
        found = _cells_and_weights(shape, samples, ignored, preds_are_valid)
        if found is None:
            return False
        cells, weights = found
        if weights is None and len(counts) <= target.size:
            counts += np.bincount(cells, minlength=len(counts))
        else:
            np.add.at(counts, cells, 1 if weights is None else weights.astype(counts.dtype, copy=False))
        return True
    total: Integers | None = None
    for block in _blocks(shape, samples):
        counted = _counts_of_a_block(shape, block, ignored, preds_are_valid)
        if counted is None:
            return False
        total = counted if total is None else total + counted
    assert total is not None
    counts += total.astype(counts.dtype, copy=False)
    return True


def below(x: Integers, size: int) -> bool:
    """Return whether all values lie in ``0..size - 1``; negative values are large when read as unsigned."""
    unsigned, largest = _UNSIGNED[x.dtype]
    seen = x.view(unsigned)
    return bool(seen.item(seen.argmax()) < min(size, largest))  # for few values, a third of the time of max


# for each dtype, the unsigned dtype of the same size, and the smallest unsigned value that stands for a negative one
_UNSIGNED = {np.dtype(f"i{size}"): (np.dtype(f"u{size}"), 1 << 8 * size - 1) for size in (1, 2, 4, 8)}
_UNSIGNED |= {np.dtype(f"u{size}"): (np.dtype(f"u{size}"), 1 << 8 * size) for size in (1, 2, 4, 8)}
_UNSIGNED[np.dtype(bool)] = (np.dtype(bool), 2)


def _blocks(shape: CountsShape, samples: BatchArrays) -> Iterator[BatchArrays]:
    """Yield pieces of a batch; yield it whole if it is small, or if a piece would have fewer samples than cells."""
    target = samples.target
    if target.size <= BLOCK or shape.cells > BLOCK:
        yield samples
        return
    rows = max(1, BLOCK * len(target) // target.size)
    for start in range(0, len(target), rows):
        yield samples.mapped(itemgetter(slice(start, start + rows)))


def _counts_of_a_block(
    shape: CountsShape, samples: BatchArrays, ignored: int | None, preds_are_valid: bool
) -> Integers | None:
    """Return counts of a block of samples, ``[shape.cells]``; None if a sample is invalid.

    Ignored samples are counted in an extra row, which takes two thirds of the time of a mask, unless that row makes the
    counts large.
    """
    preds, target, weight, part = samples
    if ignored is not None and weight is None and part is None and shape.labels == 1:
        low = min(ignored, 0)
        rows = max(ignored + 1, shape.rows) - low
        if rows * shape.columns <= min(target.size, BLOCK):
            row = np.subtract(target, low, dtype=np.int64) if low else target
            if not (below(row, rows) and (preds_are_valid or below(preds, shape.columns))):
                return None
            cells = np.multiply(row, shape.columns, dtype=np.int64)
            cells += preds
            counts = np.bincount(cells, minlength=rows * shape.columns).reshape(rows, shape.columns)
            counts[ignored - low] = 0
            inside = counts[-low : shape.rows - low]
            return inside.reshape(-1) if inside.sum() == counts.sum() else None
    found = _cells_and_weights(shape, samples, ignored, preds_are_valid)
    return None if found is None else np.bincount(*found, shape.cells)


def _cells_and_weights(
    shape: CountsShape, samples: BatchArrays, ignored: int | None, preds_are_valid: bool
) -> tuple[Integers, Integers | None] | None:
    """Return cells and weights (None for 1 each) of samples; None if a sample is invalid."""
    preds, target, weight, part = samples
    if ignored is not None:  # an ignored sample is counted with weight 0
        keep = (target != ignored).astype(np.int64)
        preds, target, part = preds * keep, target * keep, part if part is None else part * keep
        weight = keep if weight is None else weight * keep
    valid = below(target, shape.rows) and (preds_are_valid or below(preds, shape.columns))
    if not valid or (part is not None and not below(part, shape.parts)):
        return None
    if shape.margins:
        return _cells_of_margins(shape, preds, target, weight, part)
    if part is not None and part.shape == target.shape:  # in place, since new memory takes more time than arithmetic
        cells = part * (shape.labels * shape.rows)
        cells += target
        cells *= shape.columns
    elif target.dtype == np.int64:  # for few values, passing a dtype to NumPy doubles the time
        cells = target * shape.columns
    else:
        cells = np.multiply(target, shape.columns, dtype=np.int64)
    cells += preds
    if part is not None and part.shape != target.shape:
        cells += part * shape.of_a_part
    if shape.labels > 1:
        cells += np.arange(shape.labels).reshape(-1, *[1] * (cells.ndim - 2)) * (shape.rows * shape.columns)
    return cells.reshape(-1), None if weight is None else weight.reshape(-1)


def _cells_of_margins(
    shape: CountsShape, preds: Integers, target: Integers, weight: Integers | None, part: Integers | None
) -> tuple[Integers, Integers | None]:
    """Return cells and weights (None for 1 each) of correct predictions, of targets and of predictions."""
    first = 0 if part is None else np.multiply(part, shape.of_a_part, dtype=np.int64)
    own, predicted = np.add(target, first, dtype=np.int64), np.add(preds, first + 2 * shape.rows, dtype=np.int64)
    hit = preds == target
    cells = np.concatenate((own[hit], own + shape.rows, predicted), None)
    return cells, None if weight is None else np.concatenate((weight[hit], weight, weight), None)


# --- on any device --------------------------------------------------------------------------------------------------


def add_masked(
    state: Tensor,
    shape: CountsShape,
    preds: Tensor,
    target: Tensor,
    ignored: int | None,
    faults: Iterable[tuple[int, Tensor, Tensor]],
    weight: Tensor | None,
    part: Tensor | int | None,
) -> None:
    """Count a batch without reading a value; an invalid sample adds 1 to the spare cell of its first fault.

    Launches of operations take most of the time here, so there are as few as possible; most work in place.

    Args:
        state: flat counts ``[shape.cells + spare cells]``.
        shape: shape of the counts.
        preds: column of each sample, integers or bools; ``[N, labels, ...]`` if there are several labels.
        target: int64 row of each sample, in the same shape.
        ignored: row of the samples to leave out; None to keep all.
        faults: indices of spare cells, descending, each with bools in the same shape, true for the samples with that
            fault, and the values that show it.
        weight: weight of each sample, in the same shape and in the dtype of the state; None for 1 each. An invalid
            sample always adds 1.
        part: int64 part of each sample, in a shape that broadcasts to it, or one for all; None for the first part.
    """
    cell = _first_cells(shape, preds, target, part)
    for place, fault, _ in faults:  # the first fault comes last, and its cell stays
        cell.masked_fill_(fault, shape.cells + place)
    if weight is not None:
        added = torch.where(cell < shape.cells, weight, 1)
        if ignored is not None:
            added.masked_fill_(target == ignored, 0)  # the weight of an ignored sample may be NaN
    elif ignored is not None:
        added = (target != ignored).to(state.dtype)
    else:
        added = state.new_ones(()).expand(cell.shape)
    if shape.margins:  # `cell` is that of the target; an invalid sample adds 0 to the other two
        valid, hit = cell < shape.cells, preds == target
        correct = cell - shape.rows
        predicted = (correct - target).add_(preds).add_(2 * shape.rows)
        counted = added * valid
        cell = torch.stack((correct * valid, cell, predicted * valid))
        added = torch.stack((counted * hit, added, counted))
    state.index_add_(0, cell.flatten(), added.flatten())


def _first_cells(shape: CountsShape, preds: Tensor, target: Tensor, part: Tensor | int | None) -> Tensor:
    """Return the cell of each sample in new memory; for margins, that of its target."""
    cell = target + shape.rows if shape.margins else torch.add(preds, target, alpha=shape.columns)
    if shape.labels > 1:
        size = shape.rows * shape.columns
        label = torch.arange(0, shape.labels * size, size, device=cell.device)
        cell.add_(label.view(-1, *[1] * (cell.ndim - 2)))
    return cell if part is None else cell.add_(part, alpha=shape.of_a_part)
