"""Batch sampler for validation on several processes, which yields each sample exactly once."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized

import torch
from torch.utils.data import Dataset, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from imbtorch.compat import dealer_of_accelerate


class ExactBatchSampler(Sampler[list[int]]):
    """Batch sampler that yields each sample on exactly one process, in the same number of batches on every process.

    ``DistributedSampler`` repeats samples so that all processes have equally many, and the repeated ones are counted
    twice: in a rare class, one repeated sample can decide the result. Samplers of unequal length hang if processes
    synchronize in every batch. This sampler distributes the samples in turn, as ``DistributedSampler`` does, and cuts
    the samples of each process into equally many non-empty batches of nearly equal size, at most ``batch_size``::

        DataLoader(dataset, batch_sampler=ExactBatchSampler(SequentialSampler(dataset), batch_size=256))

    It works in Lightning (``fit``, ``validate``, ``test``), Fabric and plain ``torch.distributed``. Lightning
    constructs it again around a ``DistributedSampler`` of the whole dataset, from which it reads rank and world size;
    to validate on a part of the dataset, use ``torch.utils.data.Subset``. With ``use_distributed_sampler=False``, and
    without Lightning, it distributes the inner sampler's indices over the default process group; their order must be
    the same on all processes. For a loader that accelerate prepares, see :meth:`for_accelerate`.

    Args:
        sampler: sampler of indices, usually ``SequentialSampler(dataset)``. From a ``DistributedSampler`` only the
            dataset, rank, number of processes and shuffling are read, not its padded indices.
        batch_size: largest number of samples in a batch.
        drop_last: must be False; Lightning passes it.

    Raises:
        ValueError: for a batch size below 1 or ``drop_last=True``; when iterated, for fewer samples than processes, or
            for a batch size of 1 if the number of processes does not divide the number of samples.
        TypeError: for a dataset in place of a sampler, and for an iterator, which is empty after the first epoch.
        RuntimeError: when accelerate iterates it on several processes, since it would distribute the batches again.

    >>> list(ExactBatchSampler(SequentialSampler(range(5)), batch_size=4))
    [[0, 1], [2, 3, 4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        self.batch_size = _checked_batch_size(batch_size)
        if drop_last:
            raise ValueError("drop_last must be False, got True, which would leave samples out; leave the argument out")
        _check_sampler(sampler)
        self.sampler = sampler
        self.drop_last = drop_last

    def for_accelerate(self) -> Sampler[list[int]]:
        """Return a batch sampler for a loader that ``accelerate.Accelerator.prepare`` shards.

        accelerate distributes the batches of a loader over the processes, and drops or repeats samples unless all
        batches are full or the sampler has no ``batch_size``. The returned sampler has none, and yields the batches of
        all processes in turn. With accelerate's default settings each process therefore gets the batches that this
        sampler would give it::

            batches = ExactBatchSampler(SequentialSampler(dataset), batch_size=256).for_accelerate()
            loader = accelerator.prepare(DataLoader(dataset, batch_sampler=batches))
            for scores, target in loader:
                metric.update(scores, target)  # do not gather: compute() sums the counts of all processes
            value = metric.compute()

        Do not call ``accelerator.gather`` there: it would count each sample once per process, and batches differ in
        size. A loader that is not prepared needs the ``ExactBatchSampler`` itself.

        Returns:
            A batch sampler for ``DataLoader(batch_sampler=...)``.

        Raises:
            RuntimeError: when iterated on several processes without accelerate's sharding, as by a loader that is not
                prepared, or with ``dispatch_batches=True``.

        >>> exact = ExactBatchSampler(SequentialSampler(range(5)), batch_size=4)
        >>> list(exact.for_accelerate())  # on one process
        [[0, 1], [2, 3, 4]]
        """
        return _BatchesOfAllProcesses(self)

    def __len__(self) -> int:
        """Return the number of batches in an epoch, the same on every process."""
        _, world = self._place()
        return self._batches(self._size(), world)

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the batches of this process."""
        rank, world = self._place()
        dealer = dealer_of_accelerate()
        if dealer is not None and max(world, getattr(dealer, "num_processes", 1)) > 1:
            raise RuntimeError(
                "accelerate would distribute the batches of this process over all processes again, and most samples "
                "would be lost; construct the DataLoader with batch_sampler=ExactBatchSampler(sampler, batch_size)"
                ".for_accelerate(), or do not prepare it"
            )
        return self._dealt_out(world)[rank]

    def _place(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        if isinstance(self.sampler, DistributedSampler):
            return self.sampler.rank, self.sampler.num_replicas
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _dealt_out(self, world: int) -> list[Iterator[list[int]]]:
        """Return the batches of each process."""
        order = self._order()
        count = self._batches(len(order), world)
        return [_cut(order, rank, world, count) for rank in range(world)]

    def _size(self) -> int:
        source = self.sampler.dataset if isinstance(self.sampler, DistributedSampler) else self.sampler
        if not isinstance(source, Sized):
            raise TypeError(
                f"sampler must have a len(), the number of samples, got {type(source).__name__} without one; use "
                "SequentialSampler(dataset) with a dataset that has a len()"
            )
        return len(source)

    def _order(self) -> Sequence[int]:
        """Return all indices, in the order in which they are distributed."""
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
                f"{samples} samples cannot be distributed over {world} processes, each of which needs one; validate on "
                f"at most {samples} processes"
            )
        largest, smallest = -(-samples // world), samples // world
        batches = -(-largest // self.batch_size)
        if batches > smallest:
            raise ValueError(
                f"batch_size={self.batch_size} cannot distribute {samples} samples over {world} processes in equally "
                "many batches; use a batch_size of at least 2, or a number of processes that divides the samples"
            )
        return batches


class _BatchesOfAllProcesses(Sampler[list[int]]):
    """Batch sampler that yields the batches of all processes in turn; it must not have a ``batch_size``."""

    def __init__(self, exact: ExactBatchSampler) -> None:
        self.exact = exact

    @property
    def sampler(self) -> Sampler[int] | Iterable[int]:
        """Inner sampler; accelerate sets its epoch and may replace it by a seeded one."""
        return self.exact.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler[int] | Iterable[int]) -> None:
        self.exact.sampler = sampler

    def __len__(self) -> int:
        """Return the number of batches in an epoch, summed over all processes."""
        _, world = self.exact._place()
        return len(self.exact) * world

    def __iter__(self) -> Iterator[list[int]]:
        _, world = self.exact._place()
        dealer = dealer_of_accelerate()
        if world > 1 and type(dealer).__name__ != "BatchSamplerShard":
            raise RuntimeError(
                "ExactBatchSampler(...).for_accelerate() yields the batches of all processes, but accelerate does not "
                "distribute them here; pass the DataLoader to accelerator.prepare without dispatch_batches=True, or "
                "construct it with the ExactBatchSampler itself"
            )
        processes = getattr(dealer, "num_processes", 1)
        if world % processes:
            raise RuntimeError(
                f"the number of processes of accelerate must divide that of torch.distributed, got {processes} and "
                f"{world}; start all processes with one launcher"
            )
        return (batch for batches in zip(*self.exact._dealt_out(world), strict=True) for batch in batches)


def _cut(order: Sequence[int], rank: int, world: int, count: int) -> Iterator[list[int]]:
    """Yield the samples of one process in ``count`` batches of nearly equal size."""
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
    """Refuse samplers without indices in every epoch; warn about samplers whose order may differ between processes."""
    if isinstance(sampler, Dataset):
        raise TypeError(
            f"sampler must yield indices, got the dataset {type(sampler).__name__}; use SequentialSampler(dataset)"
        )
    if isinstance(sampler, Iterator):
        raise TypeError(
            f"sampler must yield its indices again in each epoch, got the iterator {type(sampler).__name__}, which is "
            "empty after the first; pass list(sampler), or SequentialSampler(dataset)"
        )
    if isinstance(sampler, Sampler) and not isinstance(sampler, (SequentialSampler, DistributedSampler)):
        warnings.warn(
            f"ExactBatchSampler around {type(sampler).__name__}: Lightning replaces it by a sampler of the whole "
            "dataset; elsewhere it must yield the same order on all processes. To validate on a part of a dataset, "
            "use SequentialSampler(torch.utils.data.Subset(dataset, indices))",
            UserWarning,
            stacklevel=3,
        )
