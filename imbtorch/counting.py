"""Predictions and targets to counts: the settings, the layout of the state, reading and adding a batch, errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import get_args

import torch
from torch import Tensor

from imbtorch.arguments import (
    Layout,
    Task,
    Threshold,
    check_flag,
    check_tensor,
    checked_size,
    checked_soft,
    checked_task,
    checked_thresholds,
    group_of_each,
    spread,
    whole_number,
)
from imbtorch.batches import (
    COMMON,
    FAULTS,
    Batch,
    add_batch,
    check_device,
    counted_samples,
    group_of_samples,
    highest,
    kept_targets,
    readable,
)
from imbtorch.counts import Counts, Margins, check_choice
from imbtorch.kernels import Table, integers, reading_is_free
from imbtorch.log_odds import logit_limit, of_class_one, wide
from imbtorch.soft import (
    UNEVEN,
    add_soft_masked,
    add_soft_of_two,
    count_soft,
    impossible_and_uneven,
    with_totals_of,
)

__all__ = ["Counting", "Layout", "Task", "Threshold"]


@dataclass(frozen=True)
class Counting:
    """How predictions and targets become counts: the one place that reads a sample.

    Counts live in a flat int64 state (float64 if samples have weights): the cells of the matrix (or correct, actual,
    predicted for margins) of each group, where soft counts are wanted as many again for those, then one spare cell for
    each of :data:`~imbtorch.batches.FAULTS`. Use :meth:`of`, which checks what a user gave.
    """

    task: Task
    size: int  # classes, or labels for multilabel
    threshold: float | tuple[float, ...] = 0.5  # several: one for each label
    logits: bool = False
    ignore_index: int | None = None
    layout: Layout = "matrix"
    soft: float = 0.0  # share of soft counts; 0 for none
    limits: Tensor | None = field(default=None, compare=False, repr=False)  # several thresholds, on a device
    weighted: bool = False
    groups: int | None = None  # their number
    table: Table = field(init=False, compare=False, repr=False)  # shape of the counts

    def __post_init__(self) -> None:
        """Derive what each update needs."""
        labels = self.size if self.task == "multilabel" else 1
        table = Table(self.classes, self.classes, labels, self.layout == "margins", self.groups or 1)
        object.__setattr__(self, "table", table)

    @classmethod
    def of(
        cls,
        task: Task | None,
        num_classes: int | None = None,
        num_labels: int | None = None,
        threshold: Threshold = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        layout: Layout = "matrix",
        soft: bool | float = False,
        weighted: bool = False,
        groups: int | None = None,
    ) -> Counting:
        """Check the arguments that say how to count."""
        task = checked_task(task)
        check_choice("state", layout, get_args(Layout))
        size = checked_size(task, num_classes, num_labels)
        check_flag("logits", logits)
        if layout == "margins" and task != "multiclass":
            raise ValueError(f"state='margins' is for task='multiclass'; task={task!r} keeps 4 counts a label anyway")
        ignored = None if ignore_index is None else whole_number("ignore_index", ignore_index, "an int or None")
        check_flag("weighted", weighted)
        chosen, share = checked_thresholds(task, size, threshold), checked_soft(soft)
        if share and (chosen != 0.5 or weighted):
            other = "weights" if weighted else f"no threshold but 0.5, got threshold={threshold!r}"
            raise ValueError(f"soft={soft!r} counts probabilities, which know {other}; leave one of them out")
        counting = cls(task, size, chosen, logits, ignored, layout, share, weighted=weighted, groups=groups)
        return counting.on(None)

    def on(self, device: torch.device | None) -> Counting:
        """Return the same with the thresholds of labels on a device, so that no update has to bring them there."""
        if not isinstance(self.threshold, tuple):
            return self
        dtype = torch.float32 if device is not None and device.type == "mps" else torch.float64
        return replace(self, limits=torch.tensor(self.threshold, dtype=dtype, device=device))

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for multilabel."""
        return None if self.task == "multilabel" else self.size

    @property
    def num_labels(self) -> int | None:
        """Number of labels of multilabel."""
        return self.size if self.task == "multilabel" else None

    @property
    def classes(self) -> int:
        """Number of classes that a target can take."""
        return self.size if self.task == "multiclass" else 2

    @property
    def dtype(self) -> torch.dtype:
        """Of the state: weights have digits."""
        return torch.float64 if self.weighted else torch.int64

    @property
    def cells(self) -> int:
        """Number of counts, hard and soft; the spare cells come behind them."""
        return self.table.cells * (2 if self.soft else 1)

    @property
    def ignored_class(self) -> int | None:
        """The class that ``ignore_index`` takes out, where it names one."""
        inside = self.ignore_index is not None and 0 <= self.ignore_index < self.classes
        return self.ignore_index if inside else None

    @property
    def ignored_target(self) -> int | None:
        """The ``ignore_index``, where there is one that an int64 target can equal."""
        index = self.ignore_index
        return index if index is not None and -(2**63) <= index < 2**63 else None

    @property
    def name(self) -> str:
        """An identifier that differs wherever the counts would; the state of a metric bears it."""
        parts: list[object] = [self.layout, self.task, self.size]
        if self.task != "multiclass":
            several = isinstance(self.threshold, tuple)
            text = hashlib.sha256(repr(self.threshold).encode()).hexdigest()[:12] if several else self.threshold
            parts += ["thresholds" if several else "threshold", text] + ["logits"] * self.logits
        if self.ignore_index is not None:
            parts += ["ignore", self.ignore_index]
        if self.soft:
            parts += ["soft", self.soft] + ["logits"] * (self.logits and self.task == "multiclass")
        parts += ["weighted"] * self.weighted + ([] if self.groups is None else ["groups", self.groups])
        return re.sub(r"\W", "_", "_".join(map(str, parts)))

    def of_a_batch(self, needs_matrix: bool) -> Counting:
        """What counts the value of one batch: a large matrix only for what must see it, for it takes K * K again."""
        needs_matrix = needs_matrix or self.soft > 0  # margins do not say in which row a probability was
        small = self.cells <= 4096 or needs_matrix or self.layout == "margins"
        return self if small else self._into_margins

    @cached_property
    def _into_margins(self) -> Counting:
        return replace(self, layout="margins")

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.cells + len(FAULTS), dtype=self.dtype, device=device)

    def class_priors(self, priors: Tensor | Sequence[float], name: str) -> Tensor:
        """Check the class shares of another population and return them on the CPU: ``[K]``, for labels ``[L, 2]``.

        For multilabel a user gives the share of positives of each label, which makes that of its negatives.
        """
        share = self._one_for_each(priors, name)
        labels = self.task == "multilabel"
        shares = torch.stack((1 - share, share), -1) if labels else share.clone()
        if labels and not bool((shares >= 0).all()):
            raise ValueError(f"{name} must hold the share of positives of each label, in [0, 1], got {priors!r}")
        if not bool((shares >= 0).all() & shares.sum().isfinite() & (shares.sum() > 0)):
            raise ValueError(f"{name} must be finite, non-negative and not all 0, got {priors!r}")
        if self.ignored_class is not None and bool(shares[..., self.ignored_class].any()):
            raise ValueError(
                f"{name} gives a share to class {self.ignored_class}, whose samples ignore_index leaves out; give it "
                "share 0, and the others their shares among themselves"
            )
        return shares

    def _one_for_each(self, priors: Tensor | Sequence[float], name: str) -> Tensor:
        """Return numbers, one for each class or label, as a float64 tensor, else raise."""
        try:
            share = torch.as_tensor(priors, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a sequence of numbers such as [0.99, 0.01], got {priors!r}") from error
        if share.shape != (self.size,):
            got = f"{list(share.shape)}" if share.ndim else f"the number {priors!r}"
            remedy = "; as in [0.99, 0.01], the positive class last" if self.task == "binary" else ""
            kind = "labels" if self.task == "multilabel" else "classes"
            raise ValueError(f"{name} must hold one share for each of {self.size} {kind}, got {got}{remedy}")
        return share

    def counts(self, state: Tensor) -> Counts:
        """Counts of a state, or of a stack ``[..., cells + faults]`` of them; groups are summed, else it is a view."""
        if self.groups is not None:
            return replace(self, groups=None).counts(self._of_groups(state).sum(-2))
        return self._viewed(state[..., : self.table.cells])

    def soft_counts(self, state: Tensor) -> Counts:
        """Soft counts with the row totals of the hard ones (:func:`imbtorch.soft.with_totals_of`), groups summed."""
        if self.groups is not None:
            whole = torch.cat((self._of_groups(state).sum(-2), self._of_groups(state, soft=True).sum(-2)), -1)
            return replace(self, groups=None).soft_counts(whole)
        return with_totals_of(self.counts(state), self._viewed(state[..., self.table.cells : self.cells]))

    def soft_counts_of_groups(self, state: Tensor) -> Counts:
        """Soft counts of each group, ``[..., G, K, K]``."""
        each = torch.cat((self._of_groups(state), self._of_groups(state, soft=True)), -1)
        return replace(self, groups=None).soft_counts(each)

    def _viewed(self, cells: Tensor) -> Counts:
        lead = cells.shape[:-1]
        if self.layout == "margins":
            return Margins(*cells.reshape(*lead, 3, self.size).unbind(-2))
        shape = (self.size, 2, 2) if self.task == "multilabel" else (self.size, self.size)
        return cells.reshape(*lead, *shape)

    def counts_of_groups(self, state: Tensor) -> Counts:
        """View a state as the counts of each group, ``[..., G, K, K]``."""
        return replace(self, groups=None).counts(self._of_groups(state))

    def _of_groups(self, state: Tensor, soft: bool = False) -> Tensor:
        cells = self.table.cells
        part = state[..., cells : 2 * cells] if soft else state[..., :cells]
        return part.reshape(*state.shape[:-1], self.table.groups, self.table.of_a_group)

    def faults(self, state: Tensor) -> Tensor:
        """Tally of the samples that were not counted, in the order of :data:`FAULTS`."""
        return state[..., self.cells :]

    # --- a batch ----------------------------------------------------------------------------------------------------

    def check(self, preds: Tensor, target: Tensor) -> None:
        """Check types and shapes, which costs nothing; values are checked while counting.

        Raises:
            ValueError: for shapes or devices that do not fit.
            TypeError: for what is no dense tensor, or floating targets.
        """
        check_tensor("preds", preds)
        check_tensor("target", target)
        if target.is_floating_point():
            raise TypeError(f"target must hold integers or bools, got {target.dtype}; use target.long()")
        if preds.device != target.device:
            raise ValueError(f"preds are on {preds.device} but target is on {target.device}; move one of them")
        if self.task == "multiclass" and preds.is_floating_point():
            self._check_class_scores(preds, target)
        else:
            self._check_same_shape(preds, target)

    def _check_same_shape(self, preds: Tensor, target: Tensor) -> None:
        """Check that each target has one prediction, or two columns of scores."""
        if self.task == "multilabel" and (target.ndim < 2 or target.shape[1] != self.size):
            raise ValueError(
                f"target must be [N, {self.size}, ...] for num_labels={self.size}, got {list(target.shape)}"
            )
        if preds.shape != target.shape and not self._of_two_columns(preds, target):
            raise ValueError(
                f"preds and target do not fit: got shapes {list(preds.shape)} and {list(target.shape)}, "
                f"expected preds of {list(target.shape)}{self._remedy(preds, target)}"
            )

    def _check_class_scores(self, preds: Tensor, target: Tensor) -> None:
        """Check that scores are ``[N, C, ...]`` beside targets ``[N, ...]``."""
        shapes = f"got shapes {list(preds.shape)} and {list(target.shape)}"
        if target.ndim == 0:
            raise ValueError(f"scores need a batch dimension, {shapes}; use preds.unsqueeze(0) and target.unsqueeze(0)")
        if preds.ndim != target.ndim + 1:
            alike = "use preds.long() if they are class indices, target.argmax(1) if each target is a one in a row"
            remedy = alike if preds.shape == target.shape else "reshape one"
            raise ValueError(f"floating preds are scores [N, C, ...] beside target [N, ...], {shapes}; {remedy}")
        if (preds.shape[:1], preds.shape[2:]) != (target.shape[:1], target.shape[1:]) or preds.shape[1] != self.size:
            if preds.ndim > 2 and preds.shape == (*target.shape, self.size):
                raise ValueError(f"scores hold the classes second, [N, C, ...], {shapes}; use preds.movedim(-1, 1)")
            if preds.shape[1] != self.size:
                found, remedy = f"{preds.shape[1]} classes", f"make the metric with num_classes={preds.shape[1]}"
                if preds.shape[1] == 1:
                    found, remedy = "1 class", "use task='binary' and preds.squeeze(1) for one score a sample"
                raise ValueError(
                    f"preds hold scores of {found} but num_classes={self.size}; {remedy}, or check the last layer of "
                    "the model"
                )
            expected = [*target.shape[:1], self.size, *target.shape[1:]]
            raise ValueError(f"preds and target do not fit: {shapes}, expected preds of {expected}")

    def _of_two_columns(self, preds: Tensor, target: Tensor) -> bool:
        """Whether binary scores are those of both classes, ``[N, 2, ...]``."""
        two = self.task == "binary" and preds.is_floating_point() and target.ndim > 0
        return two and preds.shape == (target.shape[0], 2, *target.shape[1:])

    def _remedy(self, preds: Tensor, target: Tensor) -> str:
        """What to do about shapes that do not fit."""
        if preds.numel() == target.numel():
            return "; use preds.reshape(target.shape) if the order of elements agrees"
        if preds.ndim != target.ndim + 1 or self.task == "multilabel":
            return ""
        if self.task == "multiclass":
            return "; integer preds are class indices, scores must be floating: preds.float()"
        if preds.shape == (*target.shape, 2):
            return " or of both classes, which come second: use preds.movedim(-1, 1)"
        return " or of both classes, [N, 2, ...]; for one score a class use task='multiclass'"

    def _plain(self, preds: Tensor, target: Tensor) -> bool:
        """Whether these are class indices as they come most often: to check all else costs as much as counting some."""
        return (
            type(preds) is type(target) is Tensor
            and preds.dtype in COMMON
            and target.dtype in COMMON
            and preds.shape == target.shape
            and preds.device == target.device
            and preds.layout is target.layout is torch.strided
            and self.task != "multilabel"
            and not self.soft
        )

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch and read its predictions.

        Raises:
            ValueError: for shapes or devices that do not fit.
            TypeError: for what is no dense tensor, or floating targets.
        """
        if self._plain(preds, target):
            return Batch(preds, target)
        self.check(preds, target)
        labels, truth = readable(preds), readable(target)
        if not preds.is_floating_point():
            if self.soft:
                raise TypeError(
                    f"preds must be floating scores where soft={self.soft} counts probabilities, got {preds.dtype}; "
                    "pass probabilities, or logits with logits=True"
                )
            return Batch(labels, truth)
        preds = preds.detach()
        if self.task == "multiclass" and self.soft:
            return Batch(preds, truth, soft=preds)
        if self.task == "multiclass":
            labels, best = highest(preds)
            return Batch(labels, truth, best)
        scores, uneven = self.probabilities(preds, truth)
        # logits beyond 17 have the same probability in float32, which a threshold could not tell apart
        judged = of_class_one(preds, truth.ndim) if self.logits else scores
        return Batch(judged > self._limit_of(judged), truth, scores, True, uneven, preds if self.soft else None)

    def _limit_of(self, scores: Tensor) -> float | Tensor:
        """What scores must exceed, rounded once to their dtype; beside labels ``[N, L, ...]`` one for each."""
        if not isinstance(self.threshold, tuple):
            return logit_limit(self.threshold) if self.logits else self.threshold
        assert self.limits is not None
        limits = torch.as_tensor(logit_limit(self.limits)) if self.logits else self.limits
        return limits.to(scores).view(-1, *[1] * (scores.ndim - 2))

    def with_axes(self, batch: Batch, target: Tensor, group: Tensor | int | None, weight: Tensor | None) -> Batch:
        """Add to each sample of a batch what it weighs, and its group.

        Args:
            batch: what was read of the target.
            target: as the user gave it.
            group: ``[N]`` indices, or one for all samples.
            weight: one for each target, or for its first dimensions, ``[N]`` for instance.

        Raises:
            ValueError: for shapes or devices that do not fit, and what this metric was not made for, or lacks.
            TypeError: for what is no tensor, and groups that are no integers.
        """
        if weight is not None and not self.weighted:
            raise ValueError("weight was given to a metric that counts each sample once; make it with weighted=True")
        if (group is None) != (self.groups is None):
            if group is None:
                raise ValueError(
                    "the metric has groups and needs that of each sample; use update(preds, target, group=ids), ids "
                    "being indices of groups"
                )
            raise ValueError(
                "group was given to a metric that has no groups; make an ImbalanceReport with groups=[...], or leave "
                "group out"
            )
        if weight is not None:
            batch = batch._replace(weight=spread("weight", weight, target, batch.truth).detach().to(torch.float64))
        return batch if group is None else batch._replace(group=group_of_each(group, target, batch.truth))

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place; see :func:`add_batch`."""
        if batch.soft is not None:
            add = self._add_scores if self.task == "multiclass" else self._add_probabilities
            add(state, batch, batch.soft, defer)
            return
        add_batch(state, self.table, batch, self.ignored_target, defer, self.error_message)

    def _add_scores(self, state: Tensor, batch: Batch, scores: Tensor, defer: Callable[[], bool]) -> None:
        """Add class scores to hard and soft counts."""
        table, ignored = self.table, self.ignored_target
        check_device(state, batch)
        if not batch.truth.numel():
            return
        if reading_is_free(state) and self._counted_at_once(state, batch, scores):
            return
        judged = self._judged(batch.truth, scores)._replace(group=batch.group)
        counted = self._counted(judged, add_batch(state, table, judged, ignored, defer, self.error_message))
        soft, rows = state[table.cells : self.cells], integers(batch.truth)
        if batch.group is not None:
            rows = rows + batch.group * table.rows  # of the table of all groups
        add_soft_masked(soft, table.of_all_groups, scores, rows, counted, self.logits)

    def _counted_at_once(self, state: Tensor, batch: Batch, scores: Tensor) -> bool:
        """Count class scores hard and soft on the CPU, if all of them are sound; else return False."""
        table, ignored, truth = self.table, self.ignored_target, batch.truth
        if batch.group is None:
            return count_soft(state, table, scores, truth, ignored, self.logits)
        kept = kept_targets(truth, ignored)
        group = torch.as_tensor(batch.group).expand(truth.shape)
        sound = (truth >= 0) & (truth < table.rows) & (group >= 0) & (group < table.groups)
        if bool((kept & ~sound).any()):
            return False
        rows = torch.where(kept, integers(truth) + group * table.rows, -1)
        return count_soft(state, table.of_all_groups, scores, rows, None if ignored is None else -1, self.logits)

    def _judged(self, truth: Tensor, scores: Tensor) -> Batch:
        """Class scores as predicted classes, with what shows whether they can be counted softly."""
        labels, best = highest(scores)
        if self.logits:
            return Batch(labels, truth, best.masked_fill(best.isinf(), torch.nan))  # as a softmax is then
        impossible, uneven = impossible_and_uneven(scores)
        return Batch(labels, truth, impossible, True, uneven)

    def _add_probabilities(self, state: Tensor, batch: Batch, scores: Tensor, defer: Callable[[], bool]) -> None:
        """Add what stands for probabilities of class 1 to hard and soft counts."""
        check_device(state, batch)
        cells, target = self.table.cells, state
        if reading_is_free(state):
            target = torch.zeros_like(state)  # a small one: so that the state changes in one operation, or not at all
        mask = add_batch(target, self.table, batch, self.ignored_target, defer, self.error_message)
        truth, counted = integers(batch.truth), self._counted(batch, mask)
        soft, group = target[cells : 2 * cells], group_of_samples(batch)
        add_soft_of_two(soft, self.table, scores, truth, counted, self.logits, group)
        if target is not state:
            state += target

    def _counted(self, batch: Batch, mask: Tensor | None) -> Tensor:
        """Which samples :func:`add_batch` counted."""
        return kept_targets(integers(batch.truth), self.ignored_target) if mask is None else mask

    def predicted(self, batch: Batch) -> tuple[Tensor, ...]:
        """Predicted classes and targets of a batch, and which samples are counted, flat; never waits for a device."""
        if batch.soft is not None and self.task == "multiclass":
            batch = self._judged(batch.truth, batch.soft)._replace(group=batch.group)
        return tuple(part.flatten() for part in counted_samples(batch, self.table, self.ignored_target))

    def probabilities(self, preds: Tensor, truth: Tensor) -> tuple[Tensor, Tensor | None]:
        """Probability of class 1, in float32 or wider; of both columns of scores also which do not sum to 1."""
        scores = wide(preds)
        if preds.ndim == truth.ndim:
            return (scores.sigmoid() if self.logits else scores), None
        if self.logits:
            return scores.softmax(1)[:, 1], None
        total = scores.sum(1)
        return scores[:, 1].masked_fill(total.isnan(), torch.nan), (total - 1).abs() > UNEVEN

    def error_message(self, fault: int, values: Tensor, samples: int) -> str:
        """What is wrong with a batch, by the first of the offending values."""
        value, share = values.flatten()[0].item(), f"{values.numel()} of {samples} values"
        if 2 <= fault <= 4:
            return f"preds {self._score_message(fault, value)} ({share}); " + (
                "a diverged model is the usual cause" if fault == 2 else "pass logits=True for raw scores"
            )
        if fault == 5:
            return f"weight holds {value:.6g} ({share}); weights must be finite and not negative"
        if fault == 6:
            return f"group holds {value} but the metric has groups 0..{(self.groups or 1) - 1} ({share})"
        return self._out_of_range("preds" if fault else "target", value, share)

    def _score_message(self, fault: int, value: float) -> str:
        """What is wrong with scores."""
        if fault == 2:
            soft_logits = self.soft and self.task == "multiclass" and self.logits
            undefined = ", or infinite logits whose probability is undefined" * self.logits
            return "hold NaN or infinite logits" if soft_logits else f"hold NaN scores{undefined}"
        if fault == 3:
            return f"hold {value:.6g}, which is no probability"
        return f"of {'a sample' if self.task == 'multiclass' else 'both classes'} do not sum to 1"

    def _out_of_range(self, name: str, value: float, share: str) -> str:
        """What to say of a class that there is not."""
        limit = f"num_classes={self.size}" if self.task == "multiclass" else f"task={self.task!r}"
        text = f"{name} holds class {value} but {limit} allows 0..{self.classes - 1} ({share})"
        if name == "preds":
            remedy = "raise num_classes, or pass floating scores" if self.task == "multiclass" else "pass 0 and 1"
            return f"{text}; {remedy}"
        text += f"; if {value} marks ignored samples, pass ignore_index={value}"
        return f"{text}; if classes run from 1 to {value}, subtract 1" if value == self.classes else text
