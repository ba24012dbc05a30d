"""Bins of scores: a look-up on the CPU that is faster than a search among many edges.

A binary search mispredicts every other branch and takes 40 ns per score among 101 edges, 80 ns among 4,097 (less for
scores that it has just seen: a benchmark needs new ones). The leading bits of a float select a small interval that
holds at most one edge. A table gives the number of edges below each interval; one comparison with the next edge does
the rest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.batches import FAULTS, Batch, add_batch, extreme
from imbtorch.counting.kernels import CountsShape, Integers, array, integers, reading_is_free
from imbtorch.counting.logits import against_the_rest, like_probabilities, logit_threshold, of_class_one, wide
from imbtorch.counting.tasks import Counting, Multiclass, TwoClasses
from imbtorch.counts import has_float64

SHIFT = 13  # low bits of a float32 to drop; 10 binary digits stay, so an interval is a thousandth of its scores wide
HALF = 0x3F000000 >> SHIFT  # index of the interval that begins at 1/2
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
FEW_SCORES, FEW_EDGES = 1024, 32  # below these numbers a search is as fast as the table


def bins_of(scores: Tensor, edges: Tensor, logits: bool) -> Tensor:
    """Return the number of sorted edges ``[E]`` below each score, int64, as ``torch.bucketize`` does.

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
class _LookUp:
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
def _table(key: _Edges, dtype: torch.dtype, logits: bool) -> _LookUp | None:
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
    return _LookUp(below, ends, None if bool(rising.all()) else behind, logits)


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


def counted_edges(edges: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the greatest numbers of a dtype that scores of this dtype exceed if and only if they exceed the edges.

    Scores of float32 are compared with edges rounded to float32, those of half precision as float32.

    >>> counted_edges(torch.tensor([0.3, 0.7], dtype=torch.float64), torch.float16).tolist()
    [0.2998046875, 0.69970703125]
    """
    if dtype == torch.float64:
        return edges
    single = edges.float().double()
    kind = torch.finfo(dtype)
    exponent = (torch.frexp(single).exponent - 1).clamp(min=round(math.log2(kind.tiny)))
    step = torch.ldexp(torch.full_like(single, kind.eps), exponent)  # to the next number of the dtype
    return torch.where(single.isfinite(), (single / step).floor() * step, single)


# --- histogram -------------------------------------------------------------------------------------------------------
EDGES = 4097
FURTHEST = 100.0  # logit of the last edge
MOST_SCORES = 65_536  # of a batch, in which to look for scores that share a bin


@dataclass(frozen=True, eq=False)
class Grid:
    """Thresholds of a sweep, float64 ``[T]`` on the CPU, and the edges of its bins, in units of the scores."""

    edges: Tensor
    thresholds: Tensor
    name: str
    logits: bool = False

    @property
    def odds(self) -> Tensor:
        """Log-odds of the thresholds ``[T]``: -inf for 0, inf for a probability of 1."""
        return self.edges if self.logits else self.thresholds.logit()

    @classmethod
    def of(cls, thresholds: int | Tensor | None, logits: bool) -> Grid:
        """Check the number of thresholds or the sorted ones that a user gave, or make the default ones."""
        if thresholds is None:
            return cls._of_logits(logits)
        chosen = _probabilities(thresholds)
        digest = hashlib.sha256(chosen.numpy().tobytes()).hexdigest()[:12]
        edges = (
            torch.tensor([logit_threshold(each) for each in chosen.tolist()], dtype=torch.float64, device="cpu")
            if logits
            else chosen
        )
        return cls(edges, chosen, f"{len(chosen)}_{digest}", logits)

    @classmethod
    def _of_logits(cls, logits: bool) -> Grid:
        """Make edges 2 sinh(u) at evenly spaced u: almost even near 0, where scores are dense, geometric far off."""
        half = EDGES // 2
        places = [2 * math.sinh(index / half * math.asinh(FURTHEST / 2)) for index in range(1, half + 1)]
        odds = [-each for each in reversed(places)] + [0.0, *places]
        chances = [math.exp(min(each, 0.0)) / (1 + math.exp(-abs(each))) for each in odds]
        chosen = torch.tensor(chances, dtype=torch.float64, device="cpu")
        if not logits:
            chosen = chosen[(chosen > torch.finfo(torch.float32).tiny) & (chosen < 1)]  # float32 loses digits below it
            return cls(chosen, chosen, DEFAULT)
        # the same logits as in a metric with these thresholds, so that both count alike to the last bit
        edges = [
            float(logit_threshold(chance)) if chance < 1 else each for chance, each in zip(chances, odds, strict=True)
        ]
        return cls(torch.tensor(edges, dtype=torch.float64, device="cpu"), chosen, DEFAULT, True)


def _probabilities(thresholds: int | Tensor) -> Tensor:
    """Check thresholds and return them as a sorted float64 tensor."""
    if isinstance(thresholds, Tensor):
        grid = thresholds.detach().cpu().double().flatten().clone()
        if grid.numel() == 0 or not bool((grid[1:] >= grid[:-1]).all()) or not 0 <= grid[0] <= grid[-1] <= 1:
            raise ValueError(
                f"thresholds must be sorted and lie in [0, 1], got {grid[:5].tolist()}...; thresholds.sort().values "
                "sorts them; thresholds of logits are given as probabilities, torch.sigmoid(logit)"
            )
        return grid
    if isinstance(thresholds, bool) or not isinstance(thresholds, int):
        raise TypeError(f"thresholds must be a number of thresholds or a tensor, got {thresholds!r}")
    if thresholds < 2:
        raise ValueError(f"thresholds must be at least 2, got {thresholds}")
    return torch.arange(thresholds, dtype=torch.float64, device="cpu") / (thresholds - 1)


class Hidden(NamedTuple):
    """Facts about scores that their bins do not show; :meth:`Histogram.hidden_with` adds a batch.

    Attributes:
        lowest: least and greatest float64 probability below the lowest edge.
        mixed: bins with scores of both classes that differ in the first batch; None on other devices than the CPU.
        dtype: dtype of the scores, of several the coarsest; None before the first batch.
        doubtful: whether the first logits look like probabilities, which only the default bins show.
    """

    lowest: tuple[float, ...] = ()
    mixed: Tensor | None = None
    dtype: torch.dtype | None = None
    doubtful: bool = False


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of the scores of each class in each bin: ``[2, B]``, or ``[L, 2, B]`` for several labels.

    With clusters the state holds such counts for each bucket of clusters. ``edges`` are those of the grid on the device
    of the counts; a bin holds the scores above its lower edge, up to and including its upper edge.
    """

    counting: Counting
    grid: Grid
    edges: Tensor
    single: Tensor = field(init=False)  # edges in float32, the dtype of most scores
    shape: CountsShape = field(init=False)  # shape of the counts

    def __post_init__(self) -> None:
        """Derive the float32 edges and the shape of the counts, which each update needs."""
        object.__setattr__(self, "single", self.edges.float())
        buckets = self.counting.shape.buckets
        object.__setattr__(self, "shape", CountsShape(2, len(self.edges) + 1, self.labels, buckets=buckets))

    @property
    def labels(self) -> int:
        """Number of histograms, one for each label, or for each class against the rest."""
        return 1 if self.counting.task == "binary" else self.counting.size

    @property
    def cells(self) -> int:
        """Number of counts."""
        return self.shape.cells

    @property
    def length(self) -> int:
        """Number of counts and spare cells."""
        return self.cells + len(FAULTS) + self.counting.clusters + 1

    @property
    def name(self) -> str:
        """Identifier of the meaning of the counts; histograms that count differently have different names."""
        logits = "logits_" * (self.counting.logits and self.counting.task == "multiclass")
        return f"sweep_{self.grid.name}_{logits}{self.counting.name}"

    def on(self, device: torch.device) -> Histogram:
        """Return the same histogram with its edges on a device, so that updates need not move them."""
        return replace(self, edges=self.grid.edges.to(device, torch.float64 if has_float64(device) else torch.float32))

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.length, dtype=self.counting.dtype, device=device)

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch of scores, and find the bin of each score."""
        check_scores(preds)
        preds, target = self.counting.check(preds, target)
        target = integers(target)
        if isinstance(self.counting, Multiclass):
            return self._against_the_rest(preds, target)
        if self.counting.logits:
            odds = of_class_one(preds, target.ndim)
            return Batch(self._bins(odds), target, odds)
        assert isinstance(self.counting, TwoClasses)
        scores, uneven = self.counting.probabilities(preds, target)
        return Batch(self._bins(scores), target, scores, True, uneven)

    def _bins(self, scores: Tensor) -> Tensor:
        edges = self.single if scores.dtype == torch.float32 else self.edges
        return bins_of(scores, edges.to(scores.device), self.counting.logits)

    def _against_the_rest(self, preds: Tensor, target: Tensor) -> Batch:
        """Convert multiclass scores to scores of labels; all labels of a sample share its fault, if it has one."""
        scores = against_the_rest(preds) if self.counting.logits else wide(preds)
        target = target.unsqueeze(1)
        classes = torch.arange(self.labels, device=target.device).view(1, -1, *[1] * (target.ndim - 2))
        one_hot = (target == classes).long()
        outside = (target < 0) | (target >= self.labels)
        one_hot = torch.where(outside, target, one_hot)  # the invalid target is neither 0 nor 1
        if self.counting.ignored_target is not None:
            one_hot = torch.where(target == self.counting.ignored_target, LEFT_OUT, one_hot)
        if self.counting.logits:
            return Batch(self._bins(scores), one_hot, scores)
        worst = extreme(scores).unsqueeze(1).expand_as(scores)
        return Batch(self._bins(scores), one_hot, worst, True)

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place; see :func:`imbtorch.counting.batches.add_batch`."""
        ignored, times = self.counting.ignored_target, self._times
        if self.counting.task == "multiclass" and ignored is not None:
            ignored = LEFT_OUT

        def error_message(fault: int, values: Tensor, size: int, target: Tensor) -> str:
            return self.counting.error_message(fault, values[::times], size // times, target)

        add_batch(state, self.shape, batch, ignored, defer, error_message)

    def hidden_with(self, hidden: Hidden, preds: Tensor, batch: Batch, first: bool) -> Hidden:
        """Return what bins hide of the scores before and of a batch, ``preds`` as :meth:`read` takes them."""
        logits, several = self.counting.logits, self.counting.task == "multiclass"
        derived = logits and (several or preds.ndim > batch.target.ndim)  # a difference of logits
        dtype = torch.promote_types(preds.dtype, torch.float32) if derived else preds.dtype
        if dtype != hidden.dtype:
            known = [dtype] if hidden.dtype is None else [hidden.dtype, dtype]
            hidden = hidden._replace(dtype=max(known, key=lambda each: torch.finfo(each).eps))
        if not reading_is_free(preds):
            return hidden
        if first and self.grid.name == DEFAULT:
            scores = preds if several and not logits else cast(Tensor, batch.scores)
            hidden = hidden._replace(mixed=self._mixed(batch, scores.detach()))
        elif first and logits and not several:
            labels = self.counting.task == "multilabel"
            hidden = hidden._replace(doubtful=like_probabilities(cast(Tensor, batch.scores), of_labels=labels))
        if preds.dtype == torch.float64 and not logits:
            scores = preds if several else cast(Tensor, batch.scores)
            low = scores[(scores >= 0) & (scores <= self.grid.edges[0])]
            if low.numel():
                ends = [*hidden.lowest, *(each.item() for each in low.aminmax())]
                hidden = hidden._replace(lowest=(min(ends), max(ends)))
        return hidden

    def _mixed(self, batch: Batch, scores: Tensor) -> Tensor:
        """Return the bins, numbered on from label to label, in which scores of both classes are not all equal.

        They are those of the first samples of a batch on the CPU.
        """
        size, bins, target = len(self.edges) + 1, cast(Tensor, batch.preds), batch.target
        if self.labels > 1:
            bins = bins + torch.arange(0, self.labels * size, size).view(-1, *[1] * (bins.ndim - 2))
        rows = max(1, MOST_SCORES // max(1, target[:1].numel())) if target.ndim else None
        flat = (each[:rows].flatten() if each.ndim else each.view(1) for each in (bins, target.long(), scores.double()))
        place, positive, value = map(array, flat)
        order = np.lexsort((value, place))
        order = order[(positive[order] == 0) | (positive[order] == 1)]
        place, positive, value = place[order], positive[order], value[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        ends, positives = np.append(starts, len(place))[1:] - 1, np.add.reduceat(positive, starts)
        differ = (value[ends] > value[starts]) & (positives > 0) & (positives <= ends - starts)
        return torch.from_numpy(place[starts[differ]])

    def counts(self, state: Tensor, *, of_buckets: bool = False) -> Tensor:
        """Return the counts, ``[2, B]`` or ``[L, 2, B]``, or those of each bucket of clusters, ``[M, ...]``."""
        labels = () if self.counting.task == "binary" else (self.labels,)
        cells = state[: self.cells].reshape(self.shape.buckets, *labels, self.shape.rows, self.shape.columns)
        return cells if of_buckets else cells.sum(0) if self.counting.clusters else cells[0]

    def faults(self, state: Tensor) -> Tensor:
        """Return the tally of the samples that were not counted, in the order of :data:`FAULTS`."""
        return state[..., self.cells : self.cells + len(FAULTS)] // self._times

    @property
    def _times(self) -> int:
        """Number of histograms that count each sample: one, or for multiclass scores one for each class."""
        return self.labels if self.counting.task == "multiclass" else 1


DEFAULT = "logit_spaced"  # name of the default grid
LEFT_OUT = -(2**62)  # stands for an ignored class among targets 0 and 1


def check_scores(preds: object) -> None:
    """Raise unless predictions are floating scores."""
    if not isinstance(preds, Tensor) or not preds.is_floating_point():
        got = preds.dtype if isinstance(preds, Tensor) else type(preds).__name__
        raise TypeError(f"preds must be floating scores for a sweep, got {got}; pass probabilities or logits")
