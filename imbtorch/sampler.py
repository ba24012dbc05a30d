"""Batches for validation on several processes that see each sample exactly once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized

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
    sampler's order is dealt out over the default process group; it must be the same on all processes.

    Args:
        sampler: indices of the samples, usually ``SequentialSampler(dataset)``; of a ``DistributedSampler`` the
            dataset, rank, number of processes and shuffling are read, not its padded indices.
        batch_size: largest number of samples in a batch.
        drop_last: must be False; it is here because Lightning passes it.

    Raises:
        ValueError: for a batch size below 1 or ``drop_last=True``; when iterated, for fewer samples than processes, or
            a batch size of 1 where the processes do not divide the samples.
        TypeError: for a dataset in place of a sampler.
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, got {batch_size!r}")
        if drop_last:
            raise ValueError("drop_last=True would leave samples out; ExactBatchSampler sees each once")
        if isinstance(sampler, Dataset):
            raise TypeError(
                f"sampler must give indices, got the dataset {type(sampler).__name__}; use SequentialSampler(dataset)"
            )
        if isinstance(sampler, Sampler) and not isinstance(sampler, (SequentialSampler, DistributedSampler)):
            warnings.warn(
                f"ExactBatchSampler around {type(sampler).__name__}: Lightning puts a sampler of the whole dataset in "
                "its place, and elsewhere it must give all processes the same order. To validate on a part of a "
                "dataset use SequentialSampler(torch.utils.data.Subset(dataset, indices))",
                UserWarning,
                stacklevel=2,
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __len__(self) -> int:
        """Batches of an epoch, the same on every process."""
        _, world = self._place()
        return self._batches(self._size(), world)

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of this process."""
        rank, world = self._place()
        order = self._order()
        batches = self._batches(len(order), world)
        share = order[rank::world]
        for index in range(batches):
            yield list(share[index * len(share) // batches : (index + 1) * len(share) // batches])

    def _place(self) -> tuple[int, int]:
        """Rank and number of processes."""
        if isinstance(self.sampler, DistributedSampler):
            return self.sampler.rank, self.sampler.num_replicas
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

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
