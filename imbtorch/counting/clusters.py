"""Buckets of clusters: a fixed number of parts into which whole clusters of samples are put by a hash of their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.kernels import Integers, array, reading_is_free

BUCKETS = 64
KEPT = 65_536  # running numbers whose buckets are kept

# the constants of splitmix64, the same as uint64 and as int64
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SIGNED = [constant - 2**64 for constant in (STEP, FIRST, SECOND)]


def cluster_ids(names: Iterable[object]) -> Tensor:
    """Convert names of clusters, such as patients or files, to ids for ``update(..., cluster=ids)``.

    An id is a hash of the name's text, alike in all processes and runs. Convert once, outside the training loop: for a
    batch of 4,096 names it takes longer than counting the batch.

    Args:
        names: names of the clusters, one for each sample; anything with a text, such as strings or paths.

    Returns:
        int64 ``[N]``; of 100,000 names, two share an id with a probability of 3e-10.

    >>> ids = cluster_ids(["patient 7", "patient 8", "patient 7"])
    >>> ids[0] == ids[2], ids[0] == ids[1]
    (tensor(True), tensor(False))
    """
    if isinstance(names, str):
        raise TypeError(f"names must hold one name for each sample, got the string {names!r}; write [{names!r}]")
    digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return torch.tensor([int.from_bytes(each, "big", signed=True) for each in digests], dtype=torch.int64)


def bucket_of_each(ids: Tensor) -> Tensor:
    """Return the bucket of each cluster, int64 in ``0..BUCKETS - 1``: the highest bits of splitmix64 of its id.

    Source: Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators, figure 15.

    Args:
        ids: int64 ids of clusters, of any shape.
    """
    if reading_is_free(ids):
        return torch.from_numpy((_mixed(array(ids).view(np.uint64)) >> np.uint64(58)).view(np.int64))
    step, first, second = SIGNED
    mixed = ids + step
    mixed = (mixed ^ _shifted(mixed, 30)) * first
    mixed = (mixed ^ _shifted(mixed, 27)) * second
    return _shifted(mixed, 58)  # the last step of splitmix64 does not change the highest bits


def coin_of_each(ids: Tensor, repeats: int, generator: torch.Generator | None) -> Tensor:
    """Throw coins for each cluster, int32 ``[C, R]``, alike in processes whose generators are in the same state.

    The coin is the highest bit of splitmix64 of the id plus a number drawn for the repeat, so that a process need not
    know the clusters of the others.
    """
    salts = torch.randint(-(2**63), 2**63 - 1, (repeats,), generator=generator)
    mixed = _mixed((array(ids)[:, None] + array(salts)).view(np.uint64))
    return torch.from_numpy((mixed >> np.uint64(63)).astype(np.int32))


def bucket_of_numbers(first: int, size: int) -> Tensor:
    """Return the buckets of ``size`` running numbers on the CPU, int64 ``[size]``; read only."""
    last = first + size
    return _first_buckets()[first:last] if last <= KEPT else bucket_of_each(torch.arange(first, last, device="cpu"))


@lru_cache(maxsize=1)
def _first_buckets() -> Tensor:
    """Return the buckets of the first running numbers, which each epoch counts anew."""
    with torch.inference_mode(False):
        return bucket_of_each(torch.arange(KEPT, device="cpu"))


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift int64 to the right as if they were unsigned."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mixed(mixed: Integers) -> Integers:
    """Compute splitmix64 but for its last step, with NumPy, which has unsigned integers."""
    mixed = mixed + np.uint64(STEP)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(SECOND)
    return mixed
