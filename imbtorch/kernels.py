"""Counting on plain tensors and ints: in which cell a sample belongs, and one more there.

The CPU can read values, so it looks at a whole batch first and counts without masks, with NumPy, whose reductions of
integers take less than half the time of torch's. A device is never waited for: there each sample is routed to its cell
or, if it cannot be counted, to a spare cell behind the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "Integers",
    "Table",
    "add_masked",
    "below",
    "count_sound",
    "integers",
    "kept_targets",
    "reading_is_free",
]

Integers: TypeAlias = npt.NDArray[Any]
FEW = 4096  # samples that are added one by one, for a table of their own takes a third more time than they do
BLOCK = 65_536  # samples that the CPU counts at a time, so that large batches need no memory for each sample


class Table(NamedTuple):
    """Shape of flat counts: ``[groups, labels, rows, columns]``, or ``[groups, 3, rows]`` for margins.

    Attributes:
        rows: classes of a target.
        columns: classes of a prediction, or bins of a score.
        labels: tables beside each other, each with predictions and targets of its own.
        margins: keep the diagonal, row sums and column sums alone.
        groups: tables behind each other, of which each sample is counted in one.
    """

    rows: int
    columns: int
    labels: int = 1
    margins: bool = False
    groups: int = 1

    @property
    def cells(self) -> int:
        """Number of counts."""
        return self.groups * (3 * self.rows if self.margins else self.labels * self.rows * self.columns)

    @property
    def of_a_group(self) -> int:
        """Number of counts of one group."""
        return self.cells // self.groups

    @property
    def of_all_groups(self) -> Table:
        """The same with a row for each class of each group."""
        return self._replace(rows=self.groups * self.rows, groups=1) if self.groups > 1 else self


class Samples(NamedTuple):
    """Arrays of a batch, in one shape, as :func:`count_sound` takes them."""

    preds: Integers
    target: Integers
    weight: Integers | None
    group: Integers | None

    def mapped(self, function: Callable[[Integers], Integers]) -> Samples:
        """Apply a function to each array."""
        weight, group = (part if part is None else function(part) for part in (self.weight, self.group))
        return Samples(function(self.preds), function(self.target), weight, group)


def reading_is_free(x: Tensor) -> bool:
    """Return whether a value can be read without waiting for a device or breaking a traced graph."""
    return x.is_cpu and not torch.compiler.is_compiling()


def integers(labels: Tensor) -> Tensor:
    """Return labels as int64 of the same value; a uint64 beyond int64 becomes its largest, which is no class."""
    if labels.dtype != torch.uint64:
        return labels.long()
    wrapped = labels.view(torch.int64)
    return wrapped.masked_fill(wrapped < 0, torch.iinfo(torch.int64).max)


def kept_targets(target: Tensor, ignored: int | None) -> Tensor:
    """Return which samples are not left out."""
    return torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored


# --- on the CPU -----------------------------------------------------------------------------------------------------


def count_sound(
    state: Tensor,
    table: Table,
    preds: Integers,
    target: Integers,
    ignored: int | None,
    weight: Integers | None,
    group: Integers | None,
    *,
    preds_are_sound: bool,
) -> bool:
    """Count a batch if all its samples are sound; else return False, with the state as before.

    The state changes in one operation at the very end, so that no error and no interrupt leaves half a batch in it.

    Args:
        state: flat counts on the CPU, ``[table.cells + ...]``.
        table: their shape.
        preds: column of each sample; ``[N, labels, ...]`` if there are several labels.
        target: row of each sample, in the same shape.
        ignored: row of the samples to leave out, which are not checked otherwise.
        weight: float64 of each sample, finite, in the same shape; None for 1 each.
        group: of each sample, in the same shape; None for the first.
        preds_are_sound: whether all of them are known to be columns.
    """
    counts, samples = state.numpy()[: table.cells], Samples(preds, target, weight, group)
    if target.ndim != 1 and table.labels == 1:
        samples = samples.mapped(np.ravel)
    if table.margins or target.size < max(len(counts), FEW):
        found = _cells_and_weights(table, samples, ignored, preds_are_sound)
        if found is None:
            return False
        cells, weights = found
        np.add.at(counts, cells, 1 if weights is None else weights.astype(counts.dtype, copy=False))
        return True
    total: Integers | None = None
    for block in _blocks(table, samples):
        counted = _counts_of_a_block(table, block, ignored, preds_are_sound)
        if counted is None:
            return False
        total = counted if total is None else total + counted
    assert total is not None
    counts += total.astype(counts.dtype, copy=False)
    return True


def below(x: Integers, limit: int) -> bool:
    """Return whether all values lie in ``0..limit - 1``; read as unsigned, negative ones are large."""
    unsigned, limits = _UNSIGNED[x.dtype]
    seen = x.view(unsigned)
    return bool(seen.item(seen.argmax()) < min(limit, limits))  # of few values it takes a third of the time of max


# of each dtype, the one that reads negative values as large, and the first value that it takes for negative
_UNSIGNED = {np.dtype(f"i{size}"): (np.dtype(f"u{size}"), 1 << 8 * size - 1) for size in (1, 2, 4, 8)}
_UNSIGNED |= {np.dtype(f"u{size}"): (np.dtype(f"u{size}"), 1 << 8 * size) for size in (1, 2, 4, 8)}
_UNSIGNED[np.dtype(bool)] = (np.dtype(bool), 2)


def _blocks(table: Table, samples: Samples) -> Iterator[Samples]:
    """Yield parts of a batch; one alone where a table for each part would be larger than the part."""
    target = samples.target
    if target.size <= BLOCK or table.cells > BLOCK:
        yield samples
        return
    rows = max(1, BLOCK * len(target) // target.size)
    for start in range(0, len(target), rows):
        yield samples.mapped(itemgetter(slice(start, start + rows)))


def _counts_of_a_block(table: Table, samples: Samples, ignored: int | None, preds_are_sound: bool) -> Integers | None:
    """Return counts of a block of samples, ``[table.cells]``; None if one of them is not sound.

    What is ignored is counted in a row of its own, which takes two thirds of the time of a mask, unless that row makes
    the table large.
    """
    preds, target, weight, group = samples
    if ignored is not None and weight is None and group is None and table.labels == 1:
        low = min(ignored, 0)
        rows = max(ignored + 1, table.rows) - low
        if rows * table.columns <= min(target.size, BLOCK):
            row = np.subtract(target, low, dtype=np.int64) if low else target
            if not (below(row, rows) and (preds_are_sound or below(preds, table.columns))):
                return None
            cells = np.multiply(row, table.columns, dtype=np.int64)
            cells += preds
            counts = np.bincount(cells, minlength=rows * table.columns).reshape(rows, table.columns)
            counts[ignored - low] = 0
            inside = counts[-low : table.rows - low]
            return inside.reshape(-1) if inside.sum() == counts.sum() else None
    found = _cells_and_weights(table, samples, ignored, preds_are_sound)
    return None if found is None else np.bincount(*found, table.cells)


def _cells_and_weights(
    table: Table, samples: Samples, ignored: int | None, preds_are_sound: bool
) -> tuple[Integers, Integers | None] | None:
    """Return cells and weights (None for 1 each) of samples; None if one of them is not sound."""
    preds, target, weight, group = samples
    if ignored is not None:  # an ignored sample counts as one of weight 0
        keep = (target != ignored).astype(np.int64)
        preds, target, group = preds * keep, target * keep, group if group is None else group * keep
        weight = keep if weight is None else weight * keep
    sound = below(target, table.rows) and (preds_are_sound or below(preds, table.columns))
    if not sound or (group is not None and not below(group, table.groups)):
        return None
    if table.margins:
        return _cells_of_margins(table, preds, target, weight, group)
    if group is not None:  # in place, for memory takes more time than arithmetic
        cells = group * (table.labels * table.rows)
        cells += target
        cells *= table.columns
    elif target.dtype == np.int64:  # a dtype that NumPy has to be told takes as long again for few values
        cells = target * table.columns
    else:
        cells = np.multiply(target, table.columns, dtype=np.int64)
    cells += preds
    if table.labels > 1:
        cells += np.arange(table.labels).reshape(-1, *[1] * (cells.ndim - 2)) * (table.rows * table.columns)
    return cells.reshape(-1), None if weight is None else weight.reshape(-1)


def _cells_of_margins(
    table: Table, preds: Integers, target: Integers, weight: Integers | None, group: Integers | None
) -> tuple[Integers, Integers | None]:
    """Return cells and weights of hits, targets and predictions."""
    first = 0 if group is None else np.multiply(group, table.of_a_group, dtype=np.int64)
    own, predicted = np.add(target, first, dtype=np.int64), np.add(preds, first + 2 * table.rows, dtype=np.int64)
    hit = preds == target
    cells = np.concatenate((own[hit], own + table.rows, predicted), None)
    return cells, None if weight is None else np.concatenate((weight[hit], weight, weight), None)


# --- on any device --------------------------------------------------------------------------------------------------


def add_masked(
    state: Tensor,
    table: Table,
    preds: Tensor,
    target: Tensor,
    keep: Tensor | None,
    faults: Sequence[Tensor | None],
    weight: Tensor | None,
    group: Tensor | None,
) -> Tensor:
    """Count a batch without reading a value: what is not sound adds to the spare cell of its first fault.

    Args:
        state: flat counts ``[table.cells + ... + len(faults)]``, the spare cells last.
        table: their shape.
        preds: int64 column of each sample; ``[N, labels, ...]`` if there are several labels.
        target: int64 row of each sample, in the same shape.
        keep: which samples count at all, in the same shape.
        faults: for each spare cell, which samples have the fault; None where none can.
        weight: of each sample, in the same shape; None for 1 each, which a faulty sample always adds to its tally.
        group: int64 group of each sample, in the same shape; None for the first.

    Returns:
        Which samples were counted, in the same shape.
    """
    wrong, sound = _first_fault(len(state) - len(faults), target, faults)
    kept = state.new_ones(()).expand_as(target) if keep is None else keep.to(state.dtype)
    if weight is not None:  # of an ignored sample it may be NaN
        kept = torch.where(kept > 0, torch.where(sound, weight, 1.0), 0.0)
    (cell, _), *others = _parts(table, preds, target, group)
    indices, weights = [torch.where(sound, cell, wrong).flatten()], [kept.flatten()]  # the first tallies the faults too
    for cell, counted in others:
        indices.append(torch.where(sound, cell, 0).flatten())
        weights.append((kept * sound if counted is None else kept * sound * counted).flatten())
    one = len(others) == 0  # not `not others`, which torch 2.4 does not trace
    state.index_add_(0, indices[0] if one else torch.cat(indices), weights[0] if one else torch.cat(weights))
    return sound if keep is None else sound & keep


def _first_fault(spare: int, target: Tensor, faults: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the spare cell (the first is ``spare``) of each sample's first fault (0: none), and which are sound."""
    wrong = torch.zeros_like(target)
    for place, fault in reversed(list(enumerate(faults))):
        if fault is not None:
            wrong = wrong.masked_fill(fault, spare + place)
    return wrong, wrong == 0


def _parts(table: Table, preds: Tensor, target: Tensor, group: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """Return cells and weights (None for 1 each) to add for each sample."""
    offset = None if group is None else group * table.of_a_group
    if table.margins:
        hits = (preds == target).long()
        start = target if offset is None else target + offset
        predicted = preds if offset is None else preds + offset
        return [(start + table.rows, None), (predicted + 2 * table.rows, None), (start, hits)]
    index = torch.add(preds, target, alpha=table.columns)
    if table.labels > 1:
        label = torch.arange(table.labels, device=index.device) * (table.rows * table.columns)
        index = index + label.view(-1, *[1] * (index.ndim - 2))
    return [(index if offset is None else index + offset, None)]
