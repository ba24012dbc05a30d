"""Predictions and targets to counts, and every check of a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imbtorch.confusion import Counts, Margins, Normalize, check_choice, normalized

__all__ = ["Task", "confusion_matrix"]

Task: TypeAlias = Literal["binary", "multiclass", "multilabel"]
Layout: TypeAlias = Literal["matrix", "margins"]
Integers: TypeAlias = npt.NDArray[Any]
BLOCK = 65_536  # samples that the CPU counts at a time, so that large batches need no memory for each sample

# What can be wrong with a sample; each has a spare cell behind the counts, in this order (first match counts).
FAULTS = ("targets out of range", "predictions out of range", "NaN scores", "probabilities outside [0, 1]")


def confusion_matrix(
    preds: Tensor,
    target: Tensor,
    task: Task,
    *,
    num_classes: int | None = None,
    num_labels: int | None = None,
    threshold: float = 0.5,
    logits: bool = False,
    ignore_index: int | None = None,
    normalize: Normalize | None = None,
) -> Tensor:
    """Confusion matrix of one batch; rows are true classes, columns predicted ones.

    Args:
        preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1 or probabilities ``[N, ...]``
            (binary) or ``[N, L, ...]`` (multilabel). The class of the highest score is predicted; a probability
            strictly above ``threshold`` predicts 1, as in torchmetrics.
        target: class indices or 0/1 of any integer or bool dtype: ``[N, ...]``; multilabel ``[N, L, ...]``.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes, required for multiclass.
        num_labels: number of labels, required for multilabel.
        threshold: a probability in [0, 1]; binary and multilabel only. It is rounded to the dtype of the scores.
        logits: whether floating ``preds`` are logits rather than probabilities (binary and multilabel; never guessed).
        ignore_index: samples with this target are left out; any integer, inside or outside the classes.
        normalize: ``"true"`` divides by the row sums, ``"pred"`` by the column sums, ``"all"`` by the total.

    Returns:
        int64 ``[K, K]`` (``[2, 2]`` for binary, ``[L, 2, 2]`` for multilabel), or rates of the default dtype.

    Raises:
        ValueError: for shapes that do not fit, an argument that is missing or unknown, a class out of range, a NaN
            score, or a probability outside [0, 1].
        TypeError: for floating targets and inputs that are no tensors.

    >>> confusion_matrix(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), "multiclass", num_classes=3)
    tensor([[1, 1, 0],
            [0, 1, 0],
            [0, 0, 1]])
    """
    counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index)
    check_choice("normalize", normalize, (None, *get_args(Normalize)))
    state = counting.zeros(target.device if isinstance(target, Tensor) else torch.device("cpu"))
    counting.count_(state, preds, target, defer=lambda: False)
    counts = cast(Tensor, counting.counts(state))
    return counts if normalize is None else normalized(counts, normalize).to(torch.get_default_dtype())


def reading_is_free(x: Tensor) -> bool:
    """Whether a value can be read without waiting for a device or breaking a traced graph."""
    return x.is_cpu and not torch.compiler.is_compiling()


@dataclass(frozen=True)
class Counting:
    """How predictions and targets become counts: the one place that reads a sample.

    Counts live in a flat int64 state: the cells of the matrix (or correct, actual, predicted for margins), then one
    spare cell for each of :data:`FAULTS`. Use :meth:`of`, which checks what a user gave.
    """

    task: Task
    size: int  # classes, or labels for multilabel
    threshold: float = 0.5
    logits: bool = False
    ignore_index: int | None = None
    layout: Layout = "matrix"

    @classmethod
    def of(
        cls,
        task: Task,
        num_classes: int | None = None,
        num_labels: int | None = None,
        threshold: float = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        layout: Layout = "matrix",
    ) -> Counting:
        """Check the arguments that say how to count."""
        check_choice("task", task, get_args(Task))
        check_choice("state", layout, get_args(Layout))
        if task == "binary" and num_classes is None:
            num_classes = 2
        wanted, size = ("num_labels", num_labels) if task == "multilabel" else ("num_classes", num_classes)
        other, given = ("num_classes", num_classes) if task == "multilabel" else ("num_labels", num_labels)
        if given is not None:
            raise ValueError(f"task={task!r} takes {wanted}, got {other}={given!r}")
        if size is None:
            raise ValueError(f"task={task!r} needs {wanted}: the number of {wanted[4:]}, as in {wanted}=10")
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{wanted} must be an int, got {size!r}")
        if task == "binary" and size != 2:
            raise ValueError(f"task='binary' has two classes, got num_classes={size}; use task='multiclass'")
        if size < (1 if task == "multilabel" else 2):
            raise ValueError(f"{wanted} must be at least {1 if task == 'multilabel' else 2}, got {size}")
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
            raise TypeError(f"threshold must be a number, got {threshold!r}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be a probability in [0, 1] (for logits too), got {threshold!r}")
        if task == "multiclass" and threshold != 0.5:
            raise ValueError(
                f"threshold={threshold!r} has no meaning for task='multiclass', where the highest score is predicted; "
                "use task='binary' or 'multilabel', or threshold the scores yourself"
            )
        if not isinstance(logits, bool):
            raise TypeError(f"logits must be True or False, got {logits!r}")
        if ignore_index is not None and (isinstance(ignore_index, bool) or not isinstance(ignore_index, int)):
            raise TypeError(f"ignore_index must be an int or None, got {ignore_index!r}")
        if layout == "margins" and task != "multiclass":
            raise ValueError(f"state='margins' is for task='multiclass'; task={task!r} keeps 4 counts a label anyway")
        return cls(task, size, float(threshold), logits, ignore_index, layout)

    @property
    def classes(self) -> int:
        """Number of classes that a target can take."""
        return self.size if self.task == "multiclass" else 2

    @property
    def cells(self) -> int:
        """Number of counts; the spare cells come behind them."""
        if self.task == "multilabel":
            return 4 * self.size
        return 3 * self.size if self.layout == "margins" else self.size * self.size

    @property
    def ignored_class(self) -> int | None:
        """The class that ``ignore_index`` takes out, where it names one."""
        inside = self.ignore_index is not None and 0 <= self.ignore_index < self.classes
        return self.ignore_index if inside else None

    @property
    def _ignored(self) -> int | None:
        """The ``ignore_index``, where there is one that an int64 target can equal."""
        index = self.ignore_index
        return index if index is not None and -(2**63) <= index < 2**63 else None

    @property
    def name(self) -> str:
        """An identifier that differs wherever the counts would; the state of a metric bears it."""
        parts: list[object] = [self.layout, self.task, self.size]
        if self.task != "multiclass":
            parts += ["threshold", self.threshold] + ["logits"] * self.logits
        if self.ignore_index is not None:
            parts += ["ignore", self.ignore_index]
        return re.sub(r"\W", "_", "_".join(map(str, parts)))

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.cells + len(FAULTS), dtype=torch.int64, device=device)

    def shares(self, priors: Tensor | Sequence[float], name: str) -> Tensor:
        """Check the class shares of another population and return them on the CPU: ``[K]``, for labels ``[L, 2]``.

        For multilabel a user gives the share of positives of each label, which makes that of its negatives.
        """
        kind = "labels" if self.task == "multilabel" else "classes"
        try:
            share = torch.as_tensor(priors, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a sequence of numbers such as [0.99, 0.01], got {priors!r}") from error
        if share.shape != (self.size,):
            got = f"{list(share.shape)}" if share.ndim else f"the number {priors!r}"
            remedy = "; as in [0.99, 0.01], the positive class last" if self.task == "binary" else ""
            raise ValueError(f"{name} must hold one share for each of {self.size} {kind}, got {got}{remedy}")
        if self.task == "multilabel":
            if not bool(((share >= 0) & (share <= 1)).all()):
                raise ValueError(f"{name} must hold the share of positives of each label, in [0, 1], got {priors!r}")
            share = torch.stack((1 - share, share), -1)
        elif not bool((share >= 0).all() & share.sum().isfinite() & (share.sum() > 0)):
            raise ValueError(f"{name} must be finite, non-negative and not all 0, got {priors!r}")
        if self.ignored_class is not None and bool((share[..., self.ignored_class] > 0).any()):
            raise ValueError(
                f"{name} gives a share to class {self.ignored_class}, whose samples ignore_index leaves out; give it "
                "share 0, and the others their shares among themselves"
            )
        return share

    def counts(self, state: Tensor) -> Counts:
        """View a state (or a stack ``[..., cells + 4]`` of them) as counts."""
        lead, cells = state.shape[:-1], state[..., : self.cells]
        if self.layout == "margins":
            return Margins(*cells.reshape(*lead, 3, self.size).unbind(-2))
        shape = (self.size, 2, 2) if self.task == "multilabel" else (self.size, self.size)
        return cells.reshape(*lead, *shape)

    def faults(self, state: Tensor) -> Tensor:
        """Tally of the samples that were not counted, in the order of :data:`FAULTS`."""
        return state[..., self.cells :]

    def check(self, preds: Tensor, target: Tensor) -> None:
        """Check types and shapes, which costs nothing; values are checked while counting."""
        if (
            isinstance(preds, Tensor)
            and isinstance(target, Tensor)
            and preds.dtype in _COMMON
            and target.dtype in _COMMON
            and preds.shape == target.shape
            and preds.device == target.device
            and self.task != "multilabel"
        ):
            return  # class indices that fit
        for name, value in (("preds", preds), ("target", target)):
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"{name} must be a torch.Tensor, got {type(value).__name__}; use torch.as_tensor({name})"
                )
            if value.is_complex():
                raise TypeError(f"{name} must be real, got {value.dtype}")
        if target.is_floating_point():
            raise TypeError(f"target must hold integers or bools, got {target.dtype}; use target.long()")
        if preds.device != target.device:
            raise ValueError(f"preds are on {preds.device} but target is on {target.device}; move one of them")
        expected: tuple[int, ...] = target.shape
        if self.task == "multiclass" and preds.is_floating_point():
            if target.ndim == 0:
                raise ValueError(
                    f"scores need a batch dimension, got shapes {list(preds.shape)} and []; use preds.unsqueeze(0) and "
                    "target.unsqueeze(0)"
                )
            if preds.ndim != target.ndim + 1:
                remedy = "use preds.long() if they are class indices" if preds.shape == target.shape else "reshape one"
                raise ValueError(
                    f"floating preds are scores [N, C, ...] beside target [N, ...], got shapes {list(preds.shape)} "
                    f"and {list(target.shape)}; {remedy}"
                )
            if preds.shape[1] != self.size:
                found = f"{preds.shape[1]} class{'es' * (preds.shape[1] != 1)}"
                raise ValueError(
                    f"preds hold scores of {found} but num_classes={self.size}; make the metric with num_classes="
                    f"{preds.shape[1]}, or check the last layer of the model"
                )
            expected = (*target.shape[:1], self.size, *target.shape[1:])
        elif self.task == "multilabel" and (target.ndim < 2 or target.shape[1] != self.size):
            raise ValueError(
                f"target must be [N, {self.size}, ...] for num_labels={self.size}, got {list(target.shape)}"
            )
        if preds.shape != expected:
            remedy = ""
            if preds.numel() == target.numel():
                remedy = "; use preds.reshape(target.shape) if the order of elements agrees"
            elif preds.ndim == target.ndim + 1 and self.task != "multilabel":
                remedy = (
                    "; for one score a class use task='multiclass'"
                    if self.task == "binary"
                    else "; integer preds are class indices, scores must be floating: preds.float()"
                )
            raise ValueError(
                f"preds and target do not fit: got shapes {list(preds.shape)} and {list(target.shape)}, "
                f"expected preds of {list(expected)}{remedy}"
            )

    def count_(self, state: Tensor, preds: Tensor, target: Tensor, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place.

        Args:
            state: int64 ``[cells + 4]``.
            preds: see :func:`confusion_matrix`.
            target: see :func:`confusion_matrix`.
            defer: whether to tally samples that cannot be counted, without waiting for the device, instead of raising;
                not asked where all samples are seen to be sound.

        Raises:
            ValueError: for shapes that do not fit and, unless deferred, values that cannot be counted; the state is
                then as before.
            TypeError: for what is no tensor, or floating targets.
        """
        self.check(preds, target)
        if preds.device != state.device:
            raise ValueError(
                f"preds are on {preds.device} but the counts are on {state.device}; move the metric: "
                f"metric.to({str(preds.device)!r})"
            )
        if target.numel() == 0:
            return
        labels, quality = self._labels(preds)
        truth = _readable(target)
        if reading_is_free(state) and self._count_sound(state, labels, truth, quality):
            return
        labels, truth = labels.long(), truth.long()
        keep = truth.ne(self._ignored).flatten() if self._ignored is not None else None
        index = self._route(labels, truth, quality).flatten()
        if not defer():
            bad = index >= self.cells if keep is None else (index >= self.cells) & keep
            if bool(bad.any()):
                fault = int(index[bad].min()) - self.cells
                offender = ((index == fault + self.cells) & bad).nonzero().flatten()
                values = (truth, labels, quality, quality)[fault]
                assert values is not None
                raise ValueError(self._complaint(fault, values.flatten()[offender], index.numel()))
        if self.layout == "margins":
            self._add_margins_masked(state, index, labels.flatten(), truth.flatten(), keep)
        else:
            state.index_add_(0, index, _one_each(index) if keep is None else keep.long())

    def _labels(self, preds: Tensor) -> tuple[Tensor, Tensor | None]:
        """Predicted classes; for scores also the numbers that show whether a sample can be trusted."""
        if not preds.is_floating_point():
            return _readable(preds), None
        preds = preds.detach()
        if self.task == "multiclass":
            if preds.ndim == 2 and preds.dtype in (torch.float32, torch.float64) and reading_is_free(preds):
                labels = torch.from_numpy(preds.numpy().argmax(1))  # ten times as fast for 1000 classes
                return labels, preds.gather(1, labels.unsqueeze(1)).squeeze(1)
            best = torch.max(preds, 1)  # NaN counts as the maximum, so the highest score shows it
            return best.indices, best.values
        chances = preds.sigmoid() if self.logits else preds
        return chances > self.threshold, chances

    # On the CPU values can be read, so minimum and maximum decide beforehand, which is cheaper than masks; NumPy takes
    # them, and products of integers, in less time than torch, and costs less to call.

    def _count_sound(self, state: Tensor, labels: Tensor, truth: Tensor, quality: Tensor | None) -> bool:
        """Count a batch on the CPU if all its samples are sound; else return False, with the state as before."""
        if quality is not None and not self._trusted(quality):
            return False
        guess, true = labels.numpy(), truth.numpy()
        if true.ndim != 1 and self.task != "multilabel":
            guess, true = guess.reshape(-1), true.reshape(-1)
        if true.size <= BLOCK:
            return self._count_block(state, guess, true)
        rows = max(1, BLOCK * len(true) // true.size)
        blocks = [slice(start, start + rows) for start in range(0, len(true), rows)]
        for place, block in enumerate(blocks):
            if not self._count_block(state, guess[block], true[block]):
                for counted in blocks[:place]:
                    self._count_block(state, guess[counted], true[counted], undo=True)
                return False
        return True

    def _trusted(self, quality: Tensor) -> bool:
        """Whether no score is NaN, and no probability outside [0, 1]."""
        if self.task == "multiclass":
            return not bool(quality.isnan().any())
        least, most = torch.aminmax(quality)
        return bool(least.item() >= 0) and bool(most.item() <= 1)

    def _count_block(self, state: Tensor, guess: Integers, true: Integers, undo: bool = False) -> bool:
        """Count samples on the CPU if all of them are sound, or take them out again."""
        columns, keep = self._columns, None
        if self.ignore_index is not None:
            counted = self._count_rows(guess, true, self.ignore_index) if true.size >= 8192 else None
            if counted is not None:
                state[: self.cells].add_(counted, alpha=-1 if undo else 1)
                return True
            keep = (true != self.ignore_index).astype(np.int64)  # an ignored sample counts as one of weight 0
            true = true * keep
        if not _below(true, self.classes):
            return False
        if not _below(guess, columns) and (keep is None or not _below(guess := guess * keep, columns)):
            return False
        if self.layout == "margins":
            hits, seen = guess == true, np.ones_like(true, np.int64) if keep is None else keep
            truth = true.astype(np.int64)
            index = np.concatenate((truth, truth + self.size, np.add(guess, 2 * self.size, dtype=np.int64)))
            weights = torch.from_numpy(np.concatenate((hits * seen, seen, seen)))
        else:
            index = np.multiply(true, columns, dtype=np.int64)
            index += guess
            if self.task == "multilabel":
                index += np.arange(self.size).reshape(-1, *[1] * (index.ndim - 2)) * (2 * columns)
                index = index.reshape(-1)
            weights = _ones(len(index)) if keep is None else torch.from_numpy(keep.reshape(-1))
        if undo:
            weights = -weights
        if len(index) < 1024:
            state.index_add_(0, torch.from_numpy(index), weights)
        else:  # takes longer to start, but half the time for each sample
            state.scatter_add_(0, torch.from_numpy(index), weights)
        return True

    def _count_rows(self, guess: Integers, true: Integers, ignored: int) -> Tensor | None:
        """Count with the ignored target as a row of its own, which is cheaper than a mask; None where it is not."""
        low, columns = min(ignored, 0), self._columns
        rows = max(ignored + 1, self.classes) - low
        cells = rows * columns
        if self.task == "multilabel" or self.layout == "margins" or true.size < cells:
            return None
        row = np.subtract(true, low, dtype=np.int64) if low else true
        if not (_below(row, rows) and _below(guess, columns)):
            return None
        index = np.multiply(row, columns, out=row if low else None, dtype=np.int64)
        index += guess
        counts = np.zeros(cells, np.int64)
        torch.from_numpy(counts).scatter_add_(0, torch.from_numpy(index), _ones(len(index)))
        counts[(ignored - low) * columns : (ignored - low + 1) * columns] = 0
        inside = counts[-low * columns : (self.classes - low) * columns]
        return torch.from_numpy(inside) if inside.sum() == counts.sum() else None

    @property
    def _columns(self) -> int:
        """Number of cells in a row of the matrix."""
        return self.size if self.task == "multiclass" else 2

    def _cell(self, labels: Tensor, truth: Tensor) -> Tensor:
        """Flat index of each sample's cell: of the matrix, or for margins of its targets."""
        if self.layout == "margins":
            return truth + self.size
        index = torch.add(labels, truth, alpha=self._columns)
        if self.task == "multilabel":
            label = torch.arange(self.size, device=index.device) * (2 * self._columns)
            index = index + label.view(-1, *[1] * (index.ndim - 2))
        return index

    def _route(self, labels: Tensor, truth: Tensor, quality: Tensor | None) -> Tensor:
        """Each sample's cell, or the spare cell of what is wrong with it."""
        index, last = self._cell(labels, truth), self.classes - 1
        if quality is None:
            index.masked_fill_((labels < 0) | (labels > last), self.cells + 1)
        else:
            if self.task != "multiclass":
                index.masked_fill_((quality < 0) | (quality > 1), self.cells + 3)
            index.masked_fill_(quality.isnan(), self.cells + 2)
        return index.masked_fill_((truth < 0) | (truth > last), self.cells)

    def _add_margins_masked(
        self, state: Tensor, index: Tensor, labels: Tensor, truth: Tensor, keep: Tensor | None
    ) -> None:
        sound = index < self.cells if keep is None else (index < self.cells) & keep
        cells = (index, torch.where(sound, labels + 2 * self.size, 0), torch.where(sound, truth, 0))
        weights = (_one_each(index) if keep is None else keep.long(), sound.long(), (sound & (labels == truth)).long())
        state.index_add_(0, torch.cat(cells), torch.cat(weights))

    def _complaint(self, fault: int, values: Tensor, samples: int) -> str:
        """What is wrong with a batch, by its first offending value."""
        value, share = values[0].item(), f"{values.numel()} of {samples} values"
        if fault == 2:
            return f"preds hold NaN scores ({share}); a diverged model is the usual cause"
        if fault == 3:
            return f"preds hold {value:.6g}, which is no probability ({share}); pass logits=True for raw scores"
        name = "target" if fault == 0 else "preds"
        limit = f"num_classes={self.size}" if self.task == "multiclass" else f"task={self.task!r}"
        text = f"{name} holds class {value} but {limit} allows 0..{self.classes - 1} ({share})"
        if fault == 1:
            text += "; raise num_classes, or pass floating scores" if self.task == "multiclass" else "; pass 0 and 1"
        if fault == 0:
            text += f"; if {value} marks ignored samples, pass ignore_index={value}"
            if value == self.classes:
                text += f"; if classes run from 1 to {value}, subtract 1"
        return text


def _readable(labels: Tensor) -> Tensor:
    """Labels of a dtype that minimum and maximum know."""
    return labels if labels.dtype in _COMMON else labels.long()


_COMMON = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def _below(x: Integers, limit: int) -> bool:
    """Whether all values lie in ``0..limit - 1``; read as unsigned, negative ones are large."""
    return bool(np.maximum.reduce(x.view(_UNSIGNED[x.dtype]), None) < limit)


_UNSIGNED = {np.dtype(f"{kind}{size}"): np.dtype(f"u{size}") for kind in "iu" for size in (1, 2, 4, 8)}
_UNSIGNED[np.dtype(bool)] = np.dtype(bool)


@lru_cache(maxsize=8)
def _ones(samples: int) -> Tensor:
    """Weights of 1 on the CPU; batches are of few sizes."""
    return torch.ones(samples, dtype=torch.int64, device="cpu")  # whatever the default device


def _one_each(index: Tensor) -> Tensor:
    """Weights of 1 on any device, without memory for each."""
    return torch.ones((), dtype=torch.int64, device=index.device).expand(index.numel())
