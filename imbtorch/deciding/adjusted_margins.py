"""Margins of several classes at each multiple of a logit adjustment, which its sweep counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.batches import FAULTS, Batch, add_batch, check_device, counted_samples, extreme, in_own_buckets
from imbtorch.counting.clusters import BUCKETS
from imbtorch.counting.kernels import CountsShape, Integers, array, reading_is_free
from imbtorch.counting.tasks import UNEVEN, Counting
from imbtorch.counts import Margins, has_float64
from imbtorch.deciding.histogram import check_scores

IN_CACHE = 32_768  # scores that the CPU shifts at a time
BLOCK = 65_536  # samples that the CPU counts at a time, which bounds the memory that a large batch takes
FEW = 16  # classes up to which comparing them one by one is faster than an argmax
AT_ONCE = 2**24  # shifted scores that another device holds at a time


@dataclass(frozen=True, eq=False)
class AdjustedMargins:
    """Counts of the decisions at each tau: in each bucket of clusters the margins of each tau.

    The state holds, one after the other: for each bucket and tau the wrong and the right predictions of each class,
    ``[B, T, 2, K]``; the targets of each class ``[B, K]``; a spare cell for each of
    :data:`~imbtorch.counting.batches.FAULTS`; the number of samples; and that of samples which came with the id of a
    cluster or have several positions. ``taus`` are sorted; ``prior`` are the class shares of training ``[K]``.
    """

    counting: Counting
    taus: tuple[float, ...]
    prior: Tensor
    device: torch.device
    logs: Tensor = field(init=False)  # logarithms of the shares on the device
    shifts: Tensor = field(init=False)  # ``[T, K]``, what is subtracted from the scores
    targets: CountsShape = field(init=False)  # shape of the counts of targets

    def __post_init__(self) -> None:
        """Derive the logarithms, the shifts and the shape of the targets, which each update needs."""
        kind = torch.float64 if has_float64(self.device) else torch.float32
        object.__setattr__(self, "logs", self.prior.log().to(self.device, kind))
        taus = torch.tensor(self.taus, dtype=self.logs.dtype, device="cpu").to(self.logs.device, non_blocking=True)
        object.__setattr__(self, "shifts", taus.unsqueeze(-1) * self.logs)
        object.__setattr__(self, "targets", CountsShape(self.classes, 1, buckets=BUCKETS))

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return self.counting.size

    @property
    def cells(self) -> int:
        """Number of counts of predictions."""
        return BUCKETS * len(self.taus) * 2 * self.classes

    @property
    def length(self) -> int:
        """Number of counts and spare cells."""
        return self.cells + self.targets.cells + len(FAULTS) + 2

    @property
    def name(self) -> str:
        """Identifier of the meaning of the counts; counters that count differently have different names."""
        kept = np.asarray([*self.taus, *self.prior.log().tolist()]).tobytes()
        logits = "logits" if self.counting.logits else "probabilities"
        return f"adjusted_{hashlib.sha256(kept).hexdigest()[:12]}_{logits}_{self.counting.name}"

    def on(self, device: torch.device) -> AdjustedMargins:
        """Return the same counter with the logarithms on a device, so that updates need not move them."""
        return replace(self, device=device)

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.length, dtype=torch.int64, device=device)

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch; its ``preds`` are the scores themselves, whose classes :meth:`add_` finds at each tau."""
        check_scores(preds)
        preds, target = self.counting.check(preds, target)
        if self.counting.logits:
            return Batch(preds, target, preds)
        wide = preds if preds.dtype == torch.float64 else preds.float()
        return Batch(preds, target, extreme(wide), True, (wide.sum(1) - 1).abs() > UNEVEN)

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place; see :func:`imbtorch.counting.batches.add_batch`.

        A sample without the id of a cluster is a cluster of its own; its id is the number of samples before it.
        """
        check_device(batch, state)
        if batch.bucket is None:
            batch = in_own_buckets(batch, state)
        scores, behind = cast(Tensor, batch.preds), state[self.cells :]
        batch = batch._replace(preds=batch.target.new_zeros((), dtype=torch.int64).expand(batch.target.shape))
        ignored = self.counting.ignored_target
        _, target, counted = (part.flatten() for part in counted_samples(batch, self.targets, ignored))
        bucket = torch.zeros_like(target) if batch.bucket is None else batch.bucket.expand(batch.target.shape).flatten()
        times = (
            None if batch.weight is None else batch.weight.expand(batch.target.shape).flatten()
        )  # number of samples of each row
        rows = scores.movedim(1, -1).reshape(-1, self.classes)
        if reading_is_free(state):
            add_all = self._prepared_on_cpu(rows, target, counted, bucket, times)
            add_batch(behind, self.targets, batch, ignored, defer, self.counting.error_message)
            add_all(array(state[: self.cells]))
        else:
            add_batch(behind, self.targets, batch, ignored, defer, self.counting.error_message)
            chosen = self._chosen(rows)
            cells = self._cells_of(chosen, target, bucket)
            added = counted.to(state.dtype) if times is None else torch.where(counted, times, 0)
            state.index_add_(0, cells.flatten(), added.expand(cells.shape).flatten())

    def _wide(self, scores: Tensor) -> Tensor:
        """Convert scores to logits, in float64 where the device has it."""
        wide = scores.to(self.logs.dtype)
        return wide if self.counting.logits else wide.log()

    def _cells_of(self, chosen: Tensor, target: Tensor, bucket: Tensor) -> Tensor:
        """Return the cell of each tau and sample, ``[T, M]``, given the chosen classes ``[T, M]``."""
        size, taus = 2 * self.classes, len(self.taus)
        first = torch.arange(0, taus * size, size, device=chosen.device).unsqueeze(-1)
        cells = torch.add(chosen, chosen == target, alpha=self.classes)
        return cells.add_(first).add_(bucket, alpha=taus * size)

    def _chosen(self, rows: Tensor) -> Tensor:
        """Return the class with the highest adjusted score at each tau, ``[T, M]``, without waiting for the device."""
        logits = self._wide(rows)
        some = torch.split(self.shifts, max(1, AT_ONCE // max(1, logits.numel())))
        return torch.cat([(logits - shift.unsqueeze(1)).argmax(-1) for shift in some])

    def _prepared_on_cpu(
        self, rows: Tensor, target: Tensor, counted: Tensor, bucket: Tensor, times: Tensor | None
    ) -> Callable[[Integers], None]:
        """Find the cells of a batch, and return a function that adds them to the counts of predictions."""
        if not bool(counted.all()):
            rows, target, bucket = rows[counted], target[counted], bucket[counted]
            times = None if times is None else times[counted]
        if times is not None:
            return self._prepared_by_frequency(rows, target, bucket, times)
        dense = len(target) * len(self.taus) >= self.cells
        total = np.zeros(self.cells if dense else 0, dtype=np.int64)
        sparse: list[Integers] = []
        blocks = (torch.split(part, BLOCK) for part in (rows, target, bucket))
        for block, truth, place in zip(*blocks, strict=True):
            cells = self._cells_on_cpu(*(array(part) for part in (self._wide(block), truth, place))).reshape(-1)
            if dense:
                total += np.bincount(cells, minlength=self.cells)
            else:
                sparse.append(cells)

        def add(counts: Integers) -> None:
            """Add all cells to the counts."""
            if dense:
                counts += total
            for cells in sparse:
                np.add.at(counts, cells, 1)

        return add

    def _prepared_by_frequency(
        self, rows: Tensor, target: Tensor, bucket: Tensor, times: Tensor
    ) -> Callable[[Integers], None]:
        """Find the cells of rows that stand for several samples; see :meth:`_prepared_on_cpu`."""
        cells = self._cells_on_cpu(*(array(part) for part in (self._wide(rows), target, bucket)))
        added = np.tile(array(times), len(cells))  # add.at of NumPy 2 adds garbage where it broadcasts
        return lambda counts: np.add.at(counts, cells.reshape(-1), added)

    def _cells_on_cpu(self, logits: Integers, target: Integers, bucket: Integers) -> Integers:
        """Return the cell of each tau and sample, ``[T, M]``; samples and taus in blocks that fit the cache."""
        shifts, classes = array(self.shifts), self.classes
        cells = np.empty((len(shifts), len(logits)), dtype=np.int64)
        highest = highest_of_few if classes <= FEW else highest_of_many
        size = max(1, IN_CACHE // classes)
        for start in range(0, len(logits), size):
            some = slice(start, start + size)
            block = logits[some] if classes > FEW else np.ascontiguousarray(logits[some].T)
            first = bucket[some] * (len(shifts) * 2 * classes)
            at_once = max(1, IN_CACHE // block.size)
            for tau in range(0, len(shifts), at_once):
                own = cells[tau : tau + at_once, some]
                chosen = highest(block, shifts[tau : tau + at_once])
                np.equal(chosen, target[some], out=own)
                own += 2 * np.arange(tau, tau + len(own))[:, None]
                own *= classes
                own += chosen
                own += first
        return cells

    def of_buckets(self, state: Tensor) -> Margins:
        """Return copies of the counts of each bucket: ``[B, T, K]``, the targets ``[B, 1, K]``."""
        wrong, right = state[: self.cells].reshape(BUCKETS, -1, 2, self.classes).unbind(2)
        actual = state[self.cells :][: self.targets.cells].reshape(BUCKETS, 1, self.classes)
        return Margins(right.clone(), actual.clone(), wrong + right)

    def counts(self, state: Tensor) -> Margins:
        """Return the counts of all buckets, ``[T, K]``."""
        right, actual, predicted = (part.sum(0) for part in self.of_buckets(state))
        return Margins(right, actual.expand(right.shape), predicted)

    def faults(self, state: Tensor) -> Tensor:
        """Return the tallies of invalid samples, in the order of :data:`FAULTS`."""
        return state[-2 - len(FAULTS) : -2]


def highest_of_many(logits: Integers, shifts: Integers) -> Integers:
    """Return the class of the highest shifted logit, ``[T, M]`` of ``[M, K]`` and ``[T, K]``; of ties the first."""
    chosen: Integers = (logits - shifts[:, None]).argmax(-1)
    return chosen


def highest_of_few(logits: Integers, shifts: Integers) -> Integers:
    """Return the same as :func:`highest_of_many` for logits ``[K, M]``; for few classes it takes half the time."""
    shifted = logits[:, None] - shifts.T[:, :, None]
    lower = np.not_equal(shifted, shifted.max(0))
    chosen: Integers = lower[0].astype(np.uint8)  # number of classes before the first that has the highest logit
    for previous, each in pairwise(lower):
        each &= previous
        chosen += each
    return chosen
