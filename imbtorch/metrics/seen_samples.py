"""Samples that a process remembers until it first syncs, to find the processes that count the same ones."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.kernels import Integers, array, reading_is_free

SIZES = FEW, _, _, POSITIONS = 16, 64, 256, 1024  # first positions that are compared, more if fewer do not suffice
ORDERS = 1000  # fewest orders of these positions whose equality is no chance
MOST = 64  # positions of a sample, and scores of a position, that are read
CLOSE, NEAR = 1e-5, 0.01  # difference of two sums, in standard deviations times samples or times their root
ROUNDING = 1e-15  # error of a sum of squares in float64, as a share
EMPTY = torch.iinfo(torch.int64).min  # slot of another process, which a maximum replaces


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
        self._held, self._sums = 0, np.zeros(4)

    @np.errstate(all="ignore")  # scores may be infinite, and a warning could be an error on this process alone
    def add(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch, without waiting for its device."""
        free = reading_is_free(preds)
        wanted, summed = self._held < (POSITIONS if free else FEW), free and preds.is_floating_point()
        if not target.numel() or not (wanted or summed):
            return
        samples = target.shape[0] if target.ndim else 1
        classes = target.reshape(samples, -1)
        scores = preds.detach().reshape(samples, -1, classes.shape[1])
        classes = classes[:, :: -(-classes.shape[1] // MOST)]
        scores = scores[:, :: -(-scores.shape[1] // MOST), :: -(-scores.shape[2] // MOST)]
        if wanted:
            first = slice(-(-POSITIONS // classes.shape[1]))
            self._first.append((scores[first].clone(), classes[first].clone()))
            self._held += classes[first].numel()
        if summed:
            self._sums = self._sums + _sums(*_on_host(scores, classes))

    @np.errstate(all="ignore")
    def slots(self, rank: int, processes: int, empty: int = EMPTY) -> list[int]:
        """Return integers of each process, which a maximum over processes gathers; or a sum if ``empty`` is 0."""
        one, sums, more = 0, np.full(4, math.nan), False
        self._asked += 1
        if self._held:
            values, classes = map(np.concatenate, zip(*(_on_host(*each) for each in self._first), strict=True))
            most = ORDERS * max(1, processes * (processes - 1) // 2)  # as many pairs may be equal by chance
            sizes = [size for size in SIZES if size < 4 * len(values)]
            one = next(filter(None, (fingerprint(values[:size], classes[:size], most) for size in sizes)), 0)
            scores, cpu = self._first[0][0].is_floating_point(), self._first[0][0].is_cpu
            if scores and _differ(values):
                sums = self._sums if cpu else _sums(values, classes)
            known = one and not (scores and cpu and np.isnan(sums).any())
            more = not known and self._asked < FEW and self._held < (POSITIONS if cpu else FEW)
        own: list[int] = np.array([one, more, *sums], np.float64).view(np.int64).tolist()
        return [empty] * len(own) * rank + own + [empty] * len(own) * (processes - 1 - rank)


def same_samples(slots: list[int], rank: int) -> tuple[str, bool]:
    """Find the processes whose samples are the same, given the slots of all.

    Returns:
        Text about them on the first process, and whether further samples may tell of some.
    """
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
    if not same or rank:
        return "", not same and bool(more.any())
    which = "all processes" if len(same) == len(numbers) else f"processes {', '.join(map(str, same))} of {len(numbers)}"
    return f"the {'first batch is' if in_order.any() else 'samples are'} the same on {which}", False


def digest(text: str) -> int:
    """Return a number of 48 bits that differs between texts, and is the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def fingerprint(values: Integers, classes: Integers, orders: int) -> int:
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


def _on_host(scores: Tensor, classes: Tensor) -> tuple[Integers, Integers]:
    """Return a number for each position ``[P]``, from scores ``[N, C, T]`` whose sum may be 1, and classes ``[P]``."""
    kind = scores.dtype if scores.dtype == torch.float32 else torch.float64  # NumPy has no bfloat16
    weights = 1 + np.arange(scores.shape[1]) / scores.shape[1]
    values = np.einsum("c,nct->nt", weights, array(scores.to("cpu", kind)))
    return values.ravel(), array(classes.cpu().long()).ravel()


def _sums(values: Integers, classes: Integers) -> Integers:
    """Return the number of positions and the sums of their scores, of the squares, and of scores of classes above 0."""
    return np.array([len(values), values.sum(), values @ values, values @ (classes > 0)])


def _differ(values: Integers) -> bool:
    """Return whether at least 16 values differ by more than a thousandth of their range."""
    finite = values[np.isfinite(values)]
    span = np.ptp(finite) if len(finite) else 0
    return bool(span > 0) and len(np.unique(np.rint((finite - finite.min()) / span * 1000))) >= FEW
