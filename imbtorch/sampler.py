"""Batches for validation on several processes that see each sample exactly once."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import FrameType
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

__all__ = ["ExactBatchSampler"]


class ExactBatchSampler(Sampler[list[int]]):
    """Every sample once over all processes, and the same number of non-empty batches on each.

    ``DistributedSampler`` repeats samples so that all processes have equally many, and what it repeats is counted
    twice: of a rare class one repeated sample decides the result. Samplers of unequal length, on the other hand, hang
    wherever processes meet in every batch. This one deals the samples out in turn, as ``DistributedSampler`` does, and
    cuts each process's share into equally many batches of nearly equal size, none larger than ``batch_size``::

        DataLoader(dataset, batch_sampler=ExactBatchSampler(SequentialSampler(dataset), batch_size=256))

    Works in Lightning (``fit``, ``validate``, ``test``), Fabric and plain ``torch.distributed``. Lightning builds it
    anew around a ``DistributedSampler`` of the whole dataset, from which rank and world size are read; to validate on
    a part, use ``torch.utils.data.Subset``. With ``use_distributed_sampler=False`` and without Lightning the inner
    sampler's order is dealt out over the default process group; it must be the same on all processes. For a loader
    that accelerate prepares see :meth:`for_accelerate`.

    Args:
        sampler: indices of the samples, usually ``SequentialSampler(dataset)``; of a ``DistributedSampler`` the
            dataset, rank, number of processes and shuffling are read, not its padded indices.
        batch_size: largest number of samples in a batch.
        drop_last: must be False; it is here because Lightning passes it.

    Raises:
        ValueError: for a batch size below 1 or ``drop_last=True``; when iterated, for fewer samples than processes, or
            a batch size of 1 where the processes do not divide the samples.
        TypeError: for a dataset in place of a sampler, and for an iterator, which is empty after the first epoch.
        RuntimeError: when accelerate iterates it on several processes, which would deal its batches out once more.

    >>> list(ExactBatchSampler(SequentialSampler(range(5)), batch_size=4))
    [[0, 1], [2, 3, 4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        self.batch_size = _checked_batch_size(batch_size)
        if drop_last:
            raise ValueError("drop_last=True would leave samples out; ExactBatchSampler sees each once")
        _check_sampler(sampler)
        self.sampler = sampler
        self.drop_last = drop_last

    def for_accelerate(self) -> Sampler[list[int]]:
        """Batches for a loader that ``accelerate.Accelerator.prepare`` shards: those of all processes in turn.

        accelerate deals the batches of a loader out to the processes, and drops or repeats samples unless all batches
        are full or the sampler has no ``batch_size``. What this returns has none, and its batches divide evenly, so
        that each process gets those that this sampler would have given it, with accelerate's default settings::

            batches = ExactBatchSampler(SequentialSampler(dataset), batch_size=256).for_accelerate()
            loader = accelerator.prepare(DataLoader(dataset, batch_sampler=batches))
            for scores, target in loader:
                metric.update(scores, target)  # do not gather: compute() sums the counts of all processes
            value = metric.compute()

        ``accelerator.gather`` there would count each sample once for every process, and batches differ in size.
        A loader that is not prepared needs the ``ExactBatchSampler`` itself.

        Raises:
            RuntimeError: when iterated on several processes by anything but the sharding of accelerate, such as a
                loader that was not prepared or ``dispatch_batches=True``.
        """
        return _BatchesOfAllProcesses(self)

    def __len__(self) -> int:
        """Batches of an epoch, the same on every process."""
        _, world = self._place()
        return self._batches(self._size(), world)

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of this process."""
        rank, world = self._place()
        dealer = _dealer_of_accelerate()
        if dealer is not None and max(world, getattr(dealer, "num_processes", 1)) > 1:
            raise RuntimeError(
                "accelerate deals the batches of this ExactBatchSampler, which are those of one process, out to all "
                "processes once more, so most samples would be lost; give the DataLoader that it prepares "
                "batch_sampler=ExactBatchSampler(sampler, batch_size).for_accelerate(), or do not prepare it"
            )
        return self._dealt_out(world)[rank]

    def _place(self) -> tuple[int, int]:
        """Rank and number of processes."""
        if isinstance(self.sampler, DistributedSampler):
            return self.sampler.rank, self.sampler.num_replicas
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _dealt_out(self, world: int) -> list[Iterator[list[int]]]:
        """Batches of each process."""
        order = self._order()
        count = self._batches(len(order), world)
        return [_cut(order, rank, world, count) for rank in range(world)]

    def _size(self) -> int:
        source = self.sampler.dataset if isinstance(self.sampler, DistributedSampler) else self.sampler
        if not isinstance(source, Sized):
            raise TypeError(
                f"ExactBatchSampler needs to know the number of samples; {type(source).__name__} has no len()"
            )
        return len(source)

    def _order(self) -> Sequence[int]:
        """All indices, in the order in which they are dealt out."""
        if not isinstance(self.sampler, DistributedSampler):
            return list(self.sampler)
        if not self.sampler.shuffle:
            return range(self._size())
        generator = torch.Generator().manual_seed(self.sampler.seed + self.sampler.epoch)
        order: list[int] = torch.randperm(self._size(), generator=generator).tolist()
        return order

    def _batches(self, samples: int, world: int) -> int:
        if world == 1:
            return -(-samples // self.batch_size)
        if samples < world:
            raise ValueError(
                f"{samples} samples cannot give each of {world} processes a batch; validate on at most {samples} "
                "processes"
            )
        largest, smallest = -(-samples // world), samples // world
        batches = -(-largest // self.batch_size)
        if batches > smallest:
            raise ValueError(
                f"batch_size={self.batch_size} cannot deal {samples} samples out to {world} processes in equally many "
                "batches; use a batch_size of at least 2, or a number of processes that divides the samples"
            )
        return batches


class _BatchesOfAllProcesses(Sampler[list[int]]):
    """The batches of all processes in turn, for accelerate to deal out; without ``batch_size``, and that on purpose."""

    def __init__(self, exact: ExactBatchSampler) -> None:
        self.exact = exact

    @property
    def sampler(self) -> Sampler[int] | Iterable[int]:
        """Inner sampler, whose epoch accelerate sets, and in whose place it may put a seeded one."""
        return self.exact.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler[int] | Iterable[int]) -> None:
        self.exact.sampler = sampler

    def __len__(self) -> int:
        """Batches of an epoch on all processes together."""
        _, world = self.exact._place()
        return len(self.exact) * world

    def __iter__(self) -> Iterator[list[int]]:
        _, world = self.exact._place()
        dealer = _dealer_of_accelerate()
        if world > 1 and type(dealer).__name__ != "BatchSamplerShard":
            raise RuntimeError(
                "ExactBatchSampler(...).for_accelerate() yields the batches of all processes, and accelerate does not "
                "deal them out here; pass the DataLoader to accelerator.prepare without dispatch_batches=True, or give "
                "it the ExactBatchSampler itself"
            )
        processes = getattr(dealer, "num_processes", 1)
        if world % processes:
            raise RuntimeError(
                f"accelerate deals batches out to {processes} processes, but {world} are known to torch.distributed; "
                "the batches for them could not be told apart"
            )
        return (batch for batches in zip(*self.exact._dealt_out(world), strict=True) for batch in batches)


# accelerate/data_loader.py, BatchSamplerShard: `for idx, batch in enumerate(self.batch_sampler)` deals the batches out,
# and tells the sampler nothing of it
def _dealer_of_accelerate() -> Any | None:
    """What deals batches out to processes in the present call stack: a shard or dispatcher of accelerate, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            owner = frame.f_locals.get("self")
            if type(owner).__name__ in ("BatchSamplerShard", "DataLoaderDispatcher"):
                return owner
        frame = frame.f_back
    return None


def _cut(order: Sequence[int], rank: int, world: int, count: int) -> Iterator[list[int]]:
    """Share of one process, in so many batches of nearly equal size."""
    share = order[rank::world]
    size = len(share)
    for index in range(count):
        yield list(share[index * size // count : (index + 1) * size // count])


def _checked_batch_size(batch_size: object) -> int:
    try:
        size = 0 if isinstance(batch_size, bool) else operator.index(batch_size)  # type: ignore[arg-type]
    except TypeError:
        size = 0
    if size < 1:
        raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
    return size


def _check_sampler(sampler: object) -> None:
    """Refuse what gives no indices in every epoch; warn about what would not give them everywhere alike."""
    if isinstance(sampler, Dataset):
        raise TypeError(
            f"sampler must give indices, got the dataset {type(sampler).__name__}; use SequentialSampler(dataset)"
        )
    if isinstance(sampler, Iterator):
        raise TypeError(
            f"sampler must give its indices anew in each epoch, got the iterator {type(sampler).__name__}, which is "
            "empty after the first; pass list(...) of it, or SequentialSampler(dataset)"
        )
    if isinstance(sampler, Sampler) and not isinstance(sampler, (SequentialSampler, DistributedSampler)):
        warnings.warn(
            f"ExactBatchSampler around {type(sampler).__name__}: Lightning puts a sampler of the whole dataset in "
            "its place, and elsewhere it must give all processes the same order. To validate on a part of a "
            "dataset use SequentialSampler(torch.utils.data.Subset(dataset, indices))",
            UserWarning,
            stacklevel=3,
        )
