"""Samples that a process remembers until it first syncs, to find the processes that count the same ones."""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.kernels import Integers, array, reading_is_free

SIZES = FEW, _, _, POSITIONS = 16, 64, 256, 1024  # first positions that are compared, more if fewer do not suffice
ORDERS = 1000  # fewest orders of these positions whose equality is no chance
NUMBERS = 64  # positions of a sample, and scores of a position, that are read
CLOSE, NEAR = 1e-5, 0.01  # difference of two sums, in standard deviations times samples or times their root
ROUNDING = 1e-15  # error of a sum of squares in float64, as a share
EMPTY = torch.iinfo(torch.int64).min  # slot of another process, which a maximum replaces


class Same(NamedTuple):
    """Text about processes that count the same samples, on the first of all, and whether further samples may tell."""

    text: str = ""
    unsure: bool = False


class SeenSamples:
    """First samples of a process in their order, and sums over all its scores, which no order changes.

    The sums are taken on the CPU. On another device they would take launches in each update, so that they are those of
    the first samples.
    """

    def __init__(self) -> None:
        self._asked = 0
        self.clear()

    def clear(self) -> None:
        """Forget all samples, since those of a sanity check may be other ones than those of the epoch."""
        self._first: list[tuple[Tensor, Tensor]] = []
        self._held = 0
        self._sums = [0.0] * 4

    def add(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch, without waiting for its device."""
        free = reading_is_free(preds)
        wanted, summed = self._held < (POSITIONS if free else FEW), free and preds.is_floating_point()
        if not target.numel() or not (wanted or summed):
            return
        if wanted:
            scores, classes = _positions(preds.detach(), target, POSITIONS)
            self._first.append((scores[:POSITIONS].clone(), classes[:POSITIONS].clone()))
            self._held += len(classes)
        if summed:
            sums = _sums(*_positions(_array(preds), array(target)))
            self._sums = [before + new for before, new in zip(self._sums, sums, strict=True)]

    @np.errstate(all="ignore")  # scores may be infinite, and a warning could be an error on this process alone
    def slots(self, rank: int, processes: int, empty: int = EMPTY) -> list[int]:
        """Return integers of each process, which a maximum over processes gathers; or a sum if ``empty`` is 0."""
        one, *sums = 0.0, *[math.nan] * 4
        if self._held:
            values, classes = (np.concatenate(each) for each in zip(*map(_read, self._first), strict=True))
            most = ORDERS * max(1, processes * (processes - 1) // 2)  # as many pairs may be equal by chance
            sizes = [size for size in SIZES if size < 4 * len(values)]
            one = next(filter(None, (fingerprint(values[:size], classes[:size], most) for size in sizes)), 0)
            if self._first[0][0].is_floating_point() and _differ(values):
                sums = self._sums if self._sums[0] else _sums(values, classes)
        self._asked += 1
        known = one and (self._sums[0] == 0 or sums[0] > 0)
        more = not known and self._asked < FEW and 0 < self._held < (POSITIONS if self._first[0][0].is_cpu else FEW)
        own: list[int] = np.array([one, more, *sums], np.float64).view(np.int64).tolist()
        return [empty] * len(own) * rank + own + [empty] * len(own) * (processes - 1 - rank)


def same_samples(slots: list[int], rank: int) -> Same:
    """Find the processes whose samples are the same, given the slots of all."""
    numbers = torch.tensor(slots, dtype=torch.int64, device="cpu").view(torch.float64).reshape(-1, 6)
    first, more, size, total, squares, above = numbers.unsqueeze(1).unbind(-1)  # [W, 1] each
    mean = total / size
    scatter = (squares - total * mean).clamp(min=0)  # about the mean, as squares of nearly equal scores say little
    spread = (scatter / size).sqrt()
    slack = spread * torch.minimum(CLOSE * size, NEAR * size.sqrt())
    close = size == size.mT
    for sums, most in ((total, slack), (scatter, 2 * spread * slack + ROUNDING * squares), (above, slack)):
        close &= (sums - sums.mT).abs() <= most
    in_order = ((first == first.mT) & (first != 0)).fill_diagonal_(False)
    same = (in_order | close.fill_diagonal_(False)).any(1).nonzero().flatten().tolist()
    if not same:
        return Same(unsure=bool(more.any()))
    which = "all processes" if len(same) == len(numbers) else f"processes {', '.join(map(str, same))} of {len(numbers)}"
    return Same("" if rank else f"the {'first batch is' if in_order.any() else 'samples are'} the same on {which}")


def digest(text: str) -> int:
    """Return a number of 48 bits that differs between texts, and is the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def fingerprint(values: Integers, classes: Integers, orders: int = ORDERS) -> int:
    """Return a number that differs between predictions ``[P]`` of targets ``[P]``; 0 if chance can make them equal.

    Chance is small for at least 16 predictions that have at least ``orders`` orders among targets of one class.
    """
    kinds = np.unique(values, return_inverse=True)[1]
    _, labels, totals = np.unique(classes, return_inverse=True, return_counts=True)
    cells = np.unique(labels * len(kinds) + kinds, return_counts=True)[1]
    known = sum(math.lgamma(each + 1) for each in totals) - sum(math.lgamma(each + 1) for each in cells)
    if len(classes) < FEW or known < math.log(orders):
        return 0
    return digest(f"{classes.tolist()} {values.astype(np.float32).tobytes().hex()}")


def _positions(preds: Any, target: Any, most: int | None = None) -> tuple[Any, Any]:
    """Return scores ``[P, C]`` and classes ``[P]`` of up to 64 positions of each sample, and up to 64 of its scores.

    Args:
        preds: tensor or array, as in an update.
        target: tensor or array of the same kind.
        most: number of samples to read; by default all.
    """
    samples = target.shape[0] if target.ndim else 1
    classes, scores = target.reshape(samples, -1), preds.reshape(samples, -1, math.prod(target.shape[1:]))
    step, among = -(-classes.shape[1] // NUMBERS), -(-scores.shape[1] // NUMBERS)
    classes, scores = classes[:most, ::step], scores[:most, ::among, ::step].swapaxes(1, 2)
    return scores.reshape(-1, scores.shape[2]), classes.reshape(-1)


def _array(scores: Tensor) -> Integers:
    """Return scores on the CPU as an array; NumPy has no bfloat16."""
    return array(scores.detach() if scores.dtype in (torch.float32, torch.float64) else scores.detach().float())


def _read(first: tuple[Tensor, Tensor]) -> tuple[Integers, Integers]:
    """Return one number for each position, and its class, on the host."""
    scores, classes = first
    return _values(_array(scores.cpu())), array(classes.cpu().long())


def _values(scores: Integers) -> Integers:
    """Return one number for each position ``[P]``, from scores ``[P, C]`` whose sum may be 1."""
    if scores.shape[1] == 1:
        return scores[:, 0].astype(np.float64)
    values: Integers = scores @ np.linspace(1, 2, scores.shape[1])
    return values


@np.errstate(all="ignore")
def _sums(scores: Integers, classes: Integers) -> list[float]:
    """Return the number of positions and the sums of their scores, of the squares, and of scores of classes above 0."""
    values = _values(scores) if scores.ndim > 1 else scores
    return [len(values), values.sum(), values @ values, values @ (classes > 0)]


def _differ(values: Integers) -> bool:
    """Return whether at least 16 values differ by more than a thousandth of their range."""
    finite = values[np.isfinite(values)]
    span = np.ptp(finite) if len(finite) else 0
    return span > 0 and len(np.unique(np.rint((finite - finite.min()) / span * 1000))) >= FEW
