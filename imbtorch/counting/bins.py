"""Bins of scores: a look-up on the CPU that is faster than a search among many edges.

A binary search mispredicts every other branch and takes 40 ns per score among 101 edges, 80 ns among 4,097 (less for
scores that it has just seen: a benchmark needs new ones). The leading bits of a float select a small interval that
holds at most one edge. A table gives the number of edges below each interval; one comparison with the next edge does
the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.kernels import Integers, array, reading_is_free

__all__ = ["bins_of"]

SHIFT = 13  # low bits of a float32 to drop; 10 binary digits stay, so an interval is a thousandth of its scores wide
HALF = 0x3F000000 >> SHIFT  # index of the interval that begins at 1/2
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
FEW_SCORES, FEW_EDGES = 1024, 32  # below these numbers a search is as fast as the table


def bins_of(scores: Tensor, edges: Tensor, logits: bool) -> Tensor:
    """Return the number of edges below each score, as ``torch.bucketize`` does.

    Args:
        scores: float32 or float64 probabilities or logits of any shape.
        edges: sorted, float64 (float32 on a device without float64), ``[E]`` on the device of the scores.
        logits: whether scores and edges are logits.

    Returns:
        int64 in the shape of the scores.

    >>> bins_of(torch.tensor([0.1, 0.25, 0.9]), torch.tensor([0.25, 0.5], dtype=torch.float64), logits=False)
    tensor([0, 0, 2])
    """
    table = None
    many = scores.numel() >= FEW_SCORES and len(edges) >= FEW_EDGES
    if many and scores.dtype in DTYPES and reading_is_free(scores):
        table = _table(_Edges(edges), scores.dtype, logits)
    if table is None:
        return torch.bucketize(scores.contiguous(), edges.to(scores.dtype))
    return torch.from_numpy(table.look_up(scores.contiguous()))


@dataclass(frozen=True, eq=False)
class _Table:
    """Look-up table from intervals of scores to bins."""

    below: Integers  # number of edges below each interval
    edges: Integers
    behind: Integers | None  # for each edge, the bin after it and the edges equal to it; None if all edges differ
    logits: bool

    def look_up(self, scores: Tensor) -> Integers:
        """Return the bins of scores; those of NaN and of other invalid scores are arbitrary."""
        values = array(scores)
        found = self.below.take(_intervals(scores, self.logits), mode="clip")  # invalid scores are reported later
        passed = values > self.edges.take(found)
        if self.behind is None:
            return np.add(found, passed, dtype=np.int64)
        return np.where(passed, self.behind.take(found), found)


class _Edges:
    """Edges as the key of a cache, compared by value."""

    def __init__(self, edges: Tensor) -> None:
        self.edges = edges

    def __hash__(self) -> int:
        return hash((len(self.edges), self.edges[len(self.edges) // 3].item()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Edges) and (self.edges is other.edges or torch.equal(self.edges, other.edges))


@lru_cache(maxsize=8)
def _table(key: _Edges, dtype: torch.dtype, logits: bool) -> _Table | None:
    """Build the table of edges; return None if two different edges lie in one interval, or one is not finite."""
    edges = key.edges.to(dtype)
    intervals = _intervals(edges, logits)
    same = np.diff(intervals) == 0
    rising = np.diff(edges.numpy()) > 0
    if bool((same & rising).any()) or not bool(edges.isfinite().all()):
        return None
    cells = 2 * HALF + 1 if not logits else 1 << (32 - SHIFT)
    held = np.bincount(intervals, minlength=cells)
    below = (held.cumsum() - held).astype(np.int32)
    ends = np.append(edges.numpy(), np.inf).astype(DTYPES[dtype])
    behind = np.searchsorted(ends, ends, "right")
    return _Table(below, ends, None if bool(rising.all()) else behind, logits)


def _intervals(scores: Tensor, logits: bool) -> Integers:
    """Return the index of each score's interval, which rises with the score.

    Probabilities above 1/2 are indexed by their distance to 1, where floats are denser.
    """
    values = array(scores)
    if logits:
        bits = values.astype(np.float32, copy=False).view(np.int32)
        return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT) + (1 << (31 - SHIFT))
    upper = values > 0.5
    near = np.where(upper, 1 - values, values).astype(np.float32, copy=False).view(np.int32) >> SHIFT
    return np.where(upper, 2 * HALF - near, near)
