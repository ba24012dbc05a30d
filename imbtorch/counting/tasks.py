"""Settings of the three tasks, how they read batches, and the layout of their states."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol, get_args

import torch
from torch import Tensor

from imbtorch.counting.arguments import (
    Layout,
    Task,
    Thresholds,
    check_flag,
    check_pair,
    check_tensor,
    checked_ids,
    checked_size,
    checked_task,
    checked_thresholds,
    group_of_each,
    misfit,
    misfit_of_class_scores,
    spread,
    value_message,
    whole_number,
)
from imbtorch.counting.batches import COMMON, FAULTS, Batch, add_batch, highest, readable
from imbtorch.counting.clusters import BUCKETS, bucket_of_each
from imbtorch.counting.kernels import CountsShape, integers, reading_is_free
from imbtorch.counting.logits import logit_threshold, of_class_one, wide
from imbtorch.counts import Counts, Margins, check_choice, has_float64, sums

FEW_CELLS = 6_000_000  # cells up to which labels have buckets by default: 48 MB
HUGE = 1e150  # weights whose squares float64 does not hold; larger ones count with less
MOST = 2**62  # samples in a cell, of which two processes sum without overflow
MANY_CELLS = 1_000_000  # cells up to which a state is copied to the host as a whole: 8 MB
MOST_CELLS = 60_000_000  # cells of all buckets that a state may have: 480 MB
UNEVEN = 0.01  # largest deviation from 1 of the sum of the probabilities of both classes
KNOWN = (torch.float32, *COMMON, torch.float16, torch.bfloat16, torch.float64)  # dtypes of predictions


@dataclass(frozen=True)
class Counting:
    """Settings of a task, for reading predictions and targets and for counting them in a state.

    The state is a flat int64 tensor (float64 if samples have weights). It holds the cells of the matrix (or correct,
    actual, predicted for margins) of each group and bucket, one spare cell for each of
    :data:`~imbtorch.counting.batches.FAULTS`, with clusters the number of samples, and the number of samples that came
    with the id of a cluster or have several positions. In front of the last cell, a matrix of weights also keeps sums
    of squared weights, with cells and spare cells as before, and the number of counts that came without squares.
    Construct it by :meth:`of`, which checks its arguments.
    """

    task: ClassVar[Task]

    size: int  # classes, or labels for multilabel
    threshold: float | tuple[float, ...] = 0.5  # a tuple holds one for each label
    logits: bool = False
    ignore_index: int | None = None
    layout: Layout = "matrix"
    thresholds: Tensor | None = field(default=None, compare=False, repr=False)  # thresholds of labels, on a device
    weighted: bool = False
    groups: int | None = None  # number of groups; None without groups
    clusters: bool = False  # whether counts are kept for each bucket of clusters
    group_names: tuple[str, ...] | None = field(
        default=None, compare=False, repr=False
    )  # for errors, if users gave any
    sized_by_names: bool = field(default=False, compare=False, repr=False)  # for errors: class_names gave the size
    shape: CountsShape = field(init=False, compare=False, repr=False)  # shape of the counts
    one_position: int = field(init=False, compare=False, repr=False)  # dimensions of targets without further positions
    ignored_target: int | None = field(init=False, compare=False, repr=False)  # ignore_index if it fits into int64
    ignored_class: int | None = field(init=False, compare=False, repr=False)  # ignore_index if it is a class

    def __post_init__(self) -> None:
        """Derive the fields that each update needs."""
        labels, index = self.num_labels or 1, self.ignore_index
        buckets = BUCKETS if self.clusters else 1
        shape = CountsShape(self.classes, self.classes, labels, self.layout == "margins", self.groups or 1, buckets)
        object.__setattr__(self, "shape", shape)
        can_equal = index is not None and -(2**63) <= index < 2**63
        object.__setattr__(self, "ignored_target", index if can_equal else None)
        object.__setattr__(self, "one_position", 1 if self.num_labels is None else 2)
        is_class = index is not None and 0 <= index < self.classes
        object.__setattr__(self, "ignored_class", index if is_class else None)

    @staticmethod
    def of(
        task: Task | None,
        num_classes: int | None = None,
        num_labels: int | None = None,
        threshold: Thresholds = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        layout: Layout = "matrix",
        weighted: bool = False,
        groups: int | None = None,
        clusters: bool | None = False,
    ) -> Counting:
        """Check the arguments of a metric and return the settings of its task; raise ValueError or TypeError.

        ``clusters=None`` keeps buckets if the task has several labels and their counts need no weights and little
        memory.
        """
        task = checked_task(task)
        check_choice("state", layout, get_args(Layout))
        size = checked_size(task, num_classes, num_labels)
        check_flag("logits", logits)
        if layout == "margins" and task != "multiclass":
            raise ValueError(
                f"state='margins' is for task='multiclass', got task={task!r}, which keeps only 4 counts "
                "per label; leave state out"
            )
        ignored = None if ignore_index is None else whole_number("ignore_index", ignore_index, "an int or None")
        check_flag("weighted", weighted)
        chosen = checked_thresholds(task, size, threshold)
        kind = {"binary": Binary, "multilabel": Multilabel, "multiclass": Multiclass}[task]
        found = kind(size, chosen, logits, ignored, layout, weighted=weighted, groups=groups)
        if clusters is None:
            clusters = task == "multilabel" and not weighted and BUCKETS * found.cells <= FEW_CELLS
        return replace(found, clusters=found._checked_clusters(clusters)).on(None)

    def _checked_clusters(self, clusters: bool) -> bool:
        """Return whether counts are kept for each bucket; raise for settings without intervals, and much memory."""
        check_flag("clusters", clusters)
        if clusters and self.weighted:
            raise ValueError(
                "clusters=True and weighted=True exclude each other, since intervals of weights treat samples as "
                "independent; leave one of them out"
            )
        if clusters and self.layout == "margins":
            raise ValueError("clusters=True is for intervals, which need the whole matrix; use state='matrix'")
        if clusters:
            several = "classes" if self.num_labels is None else "labels"
            counted = "groups" if self.groups else several
            remedy = "resample the clusters yourself with imbtorch.statistics.bootstrap(..., clusters=True)"
            check_memory(BUCKETS * self.cells, "matrices", f"count fewer {counted}, or {remedy}")
        return clusters

    @property
    def counting(self) -> Counting:
        """Settings themselves, as of each counter."""
        return self

    def on(self, device: torch.device | None) -> Counting:
        """Return the same settings with the thresholds of labels on a device, so that updates need not copy them."""
        if not isinstance(self.threshold, tuple):
            return self
        dtype = torch.float64 if has_float64(device) else torch.float32
        return replace(self, thresholds=torch.tensor(self.threshold, dtype=dtype, device=device))

    # --- counts and classes -----------------------------------------------------------------------------------------

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for multilabel."""
        return self.size

    @property
    def num_labels(self) -> int | None:
        """Number of labels of multilabel."""
        return None

    @property
    def classes(self) -> int:
        """Number of classes that a target can take."""
        return self.size

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the state: float64 if samples have weights, else int64."""
        return torch.float64 if self.weighted else torch.int64

    @property
    def cells(self) -> int:
        """Number of counts, without the spare cells behind them."""
        return self.shape.cells

    @property
    def length(self) -> int:
        """Number of counts and spare cells."""
        return self.cells + len(FAULTS) + self.clusters + self.squared * (self.cells + len(FAULTS) + 1) + 1

    @property
    def squared(self) -> bool:
        """True if the state keeps sums of squared weights, for intervals."""
        return self.weighted and self.layout == "matrix"

    @property
    def name(self) -> str:
        """Identifier that differs between settings whose counts can differ; it is part of the state's name."""
        parts: list[object] = [self.layout, self.task, self.size, *self._name_of_conversion()]
        if self.ignore_index is not None:
            parts += ["ignore", self.ignore_index]
        parts += ["weighted"] * self.weighted + ([] if self.groups is None else ["groups", self.groups])
        parts += ["clusters"] * self.clusters
        return re.sub(r"\W", "_", "_".join(map(str, parts)))

    def _name_of_conversion(self) -> list[object]:
        """Return the parts of the name for settings that turn scores into classes."""
        return []

    def checked_prevalence(self, prevalence: Tensor | Sequence[float]) -> Tensor:
        """Check the class shares of another population and return them on the CPU, ``[K]`` or for labels ``[L, 2]``.

        Args:
            prevalence: ``[K]`` shares of the classes; for multilabel ``[L]`` shares of positives.

        Raises:
            ValueError: for another number of shares, negative or infinite ones, a sum of 0, shares of positives above
                1, and a share of the class that ``ignore_index`` leaves out.
            TypeError: for anything but a sequence of numbers.
        """
        there = self._class_shares(self._one_for_each(prevalence))
        if not bool((there >= 0).all() & there.sum().isfinite() & (there.sum() > 0)):
            raise ValueError(f"prevalence must be finite, non-negative and not all 0, got {prevalence!r}")
        if self.ignored_class is not None and bool(there[..., self.ignored_class].any()):
            raise ValueError(
                f"prevalence must be 0 for class {self.ignored_class}, whose samples ignore_index leaves out, got "
                f"{prevalence!r}; give it 0, and the other classes their shares of the rest"
            )
        return there

    def _class_shares(self, given: Tensor) -> Tensor:
        return given.clone()

    def _one_for_each(self, prevalence: Tensor | Sequence[float]) -> Tensor:
        """Convert numbers, one for each class or label, to a float64 tensor; raise ValueError or TypeError."""
        try:
            given = torch.as_tensor(prevalence, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"prevalence must be a sequence of numbers such as [0.99, 0.01], got {prevalence!r}"
            ) from error
        if given.shape != (self.size,):
            got = f"{list(given.shape)}" if given.ndim else f"the number {prevalence!r}"
            remedy = "; as in [0.99, 0.01], the positive class last" if self.task == "binary" else ""
            kind = "classes" if self.num_labels is None else "labels"
            raise ValueError(f"prevalence must hold one share for each of {self.size} {kind}, got {got}{remedy}")
        return given

    # --- the state --------------------------------------------------------------------------------------------------

    def of_a_batch(self, needs_matrix: bool) -> Counting:
        """Return the settings for counting one batch, which has no buckets.

        Margins take the place of a large matrix, unless it is needed.
        """
        of_labels = self.num_labels is not None
        small = self.shape.of_a_part <= 4096 or needs_matrix or self.layout == "margins" or of_labels
        return self._without_buckets if small else self._margins_only

    @cached_property
    def _without_buckets(self) -> Counting:
        return replace(self, clusters=False) if self.clusters else self

    @cached_property
    def _margins_only(self) -> Counting:
        return replace(self, layout="margins", clusters=False)

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""
        return torch.zeros(self.length, dtype=self.dtype, device=device)

    def counts(self, state: Tensor, *, of_groups: bool = False, of_buckets: bool = False) -> Counts:
        """View a state, or a stack ``[..., length]`` of them, as counts.

        They are ``[..., K, K]`` (for labels ``[..., L, 2, 2]``) or :class:`~imbtorch.counts.Margins`; of groups or
        buckets ``[..., G, K, K]``, ``[..., B, K, K]`` or ``[..., G, B, K, K]``; a view unless these are summed.
        """
        shape, cells = self.shape, state[..., : self.cells]
        if shape.parts > 1 or of_groups or of_buckets:
            cells = cells.reshape(*state.shape[:-1], shape.groups, shape.buckets, shape.of_a_part)
            cells = cells if of_buckets else cells.sum(-2) if self.clusters else cells.squeeze(-2)
            place = -3 if of_buckets else -2  # of the groups
            cells = cells if of_groups else cells.sum(place) if shape.groups > 1 else cells.squeeze(place)
        lead = cells.shape[:-1]
        if self.layout == "margins":
            return Margins(*cells.reshape(*lead, 3, self.size).unbind(-2))
        labels = () if self.num_labels is None else (self.num_labels,)
        return cells.reshape(*lead, *labels, self.classes, self.classes)

    def squares(self, state: Tensor) -> Tensor | None:
        """Return the sums of squared weights, of groups ``[G, ...]``, of a state on the CPU; None if one is unknown."""
        if not self.squared or bool(state[-2]):
            return None
        found = self.counts(state[self.cells + len(FAULTS) :], of_groups=self.groups is not None)
        return found if isinstance(found, Tensor) and bool(found.isfinite().all()) else None

    def completed(self, state: Tensor) -> Tensor:
        """Return a state of version 0.7, whose squares of weights are unknown, in the present layout."""
        if not self.squared or state.shape != (self.cells + len(FAULTS) + 1,):
            return state
        unknown = state.new_zeros(self.cells + len(FAULTS) + 1)
        unknown[-1] = 1
        return torch.cat((state[:-1], unknown, state[-1:]))

    def faults(self, state: Tensor) -> Tensor:
        """Return the tallies of invalid samples, in the order of :data:`FAULTS`."""
        return state[..., self.cells : self.cells + len(FAULTS)]

    def on_host(
        self, state: Tensor, *, matrix: bool, buckets: bool, copy: Callable[[Tensor], Tensor] = Tensor.cpu
    ) -> tuple[Counting, Tensor]:
        """Copy a state to the host, at once; of a large one on another device only what is needed.

        Args:
            state: flat counts.
            matrix: whether more than the margins is needed.
            buckets: whether the counts of each bucket are needed.
            copy: function that copies a flat state to the host.

        Returns:
            The settings that describe the copied counts, and these counts.
        """
        kept: Counting = self
        if not state.is_cpu and self.cells > MANY_CELLS:
            kept = kept if buckets else kept._without_buckets
            if kept.cells > MANY_CELLS and not matrix and self.num_labels is None:
                kept = kept._margins_only
        if kept is not self:
            counts = self.counts(state, of_groups=self.groups is not None)
            if kept.layout == "margins":
                counts = torch.stack(sums(counts), -2)
            assert isinstance(counts, Tensor)
            state = torch.cat((counts.flatten(), self.faults(state), state[-1:]))
        return kept, copy(state)

    def dependent(self, state: Tensor) -> Tensor:
        """Return the number of samples that came with the id of a cluster or with several positions, ``[]``."""
        return state[-1]

    # --- a batch ----------------------------------------------------------------------------------------------------

    def check(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Check types and shapes, and return both tensors in dtypes that NumPy and torch handle alike.

        Values are checked later, while they are counted.

        Raises:
            ValueError: for shapes or devices that do not fit.
            TypeError: for anything but dense tensors, and for floating targets.
        """
        usual = (  # the full check takes as long as counting a small batch
            type(preds) is type(target) is Tensor
            and preds.dtype in KNOWN
            and target.dtype in COMMON
            and preds.layout is target.layout is torch.strided
            and preds.device == target.device
            and not (preds.is_nested or target.is_nested)
        )
        if not usual:
            check_pair(preds, target)
            preds, target = readable(preds), readable(target)
        self._check_shapes(preds, target)
        return preds.detach() if preds.requires_grad else preds, target

    def _check_shapes(self, preds: Tensor, target: Tensor) -> None:
        """Raise ValueError for shapes that do not fit."""
        raise NotImplementedError

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch and read its predictions; raise the errors of :meth:`check`."""
        raise NotImplementedError

    def with_axes(
        self,
        batch: Batch,
        target: Tensor,
        group: Tensor | int | None = None,
        weight: Tensor | None = None,
        cluster: Tensor | None = None,
        frequency: Tensor | None = None,
        squares: Tensor | None = None,
    ) -> Batch:
        """Add groups, weights, clusters and frequencies to a batch; raise for those that do not fit it or the metric.

        Args:
            batch: the batch as :meth:`read` returns it.
            target: targets as the user passed them.
            group: group indices ``[N]``, or one for all samples; None without groups.
            weight: one weight per element of ``target``, or per index of its leading dimensions, such as ``[N]``.
            cluster: one id per sample, ``[N]``; not read without clusters.
            frequency: number of samples that each row stands for, ``[N]``.
            squares: sums of squared weights of rows that stand for several samples, ``[N]``.
        """
        batch = batch._replace(squares=squares)
        if cluster is not None or target.ndim > self.one_position:
            batch = batch._replace(dependent=True)
        if frequency is not None:
            batch = self._with_frequency(batch, target, frequency, cluster)
        if weight is not None and not self.weighted:
            raise ValueError(
                "weight was passed to a metric without weights; construct it with weighted=True or leave weight out"
            )
        if group is None and self.groups is not None:
            raise ValueError(
                "group is missing, but the metric has groups; use update(preds, target, group=indices) with the index "
                "of each sample's group"
            )
        if group is not None and self.groups is None:
            raise ValueError(
                "group was passed to a metric without groups; construct an ImbalanceReport with groups=[...], or "
                "leave group out"
            )
        if weight is not None:
            batch = batch._replace(weight=spread("weight", weight, target, batch.target).detach().to(torch.float64))
        if cluster is not None and self.clusters:
            buckets = bucket_of_each(checked_ids(cluster))
            if buckets.shape != target.shape[:1] or buckets.device != target.device:
                buckets = spread("cluster", buckets, target, batch.target)
            elif batch.target.ndim > 1:
                buckets = buckets.view(-1, *[1] * (batch.target.ndim - 1))
            batch = batch._replace(bucket=buckets)
        if group is None:
            return batch
        return batch._replace(group=group_of_each(group, target, batch.target, self.group_names or ()))

    def _with_frequency(self, batch: Batch, target: Tensor, frequency: Tensor, cluster: Tensor | None) -> Batch:
        """Add the number of samples that each row of a batch stands for, or raise for numbers that do not fit."""
        if self.weighted:
            raise ValueError(
                "frequency is a number of samples, which weighted=True does not count; pass weight instead"
            )
        if self.clusters and cluster is None:
            raise ValueError(
                "frequency stands for samples whose clusters are unknown, but the metric was built with clusters (the "
                "default of task='multilabel'); pass cluster=ids of each row, or build it with clusters=False"
            )
        check_tensor("frequency", frequency)
        if frequency.is_floating_point():
            raise TypeError(f"frequency must hold integers, got {frequency.dtype}; use weight for other numbers")
        times = integers(spread("frequency", frequency, target, batch.target))
        if reading_is_free(times) and times.double().abs().sum() >= 2**53:
            raise ValueError("frequency must sum to less than 2**53 in a batch, which float64 holds exactly; split it")
        return batch._replace(weight=times)

    def add_counts_(self, state: Tensor, counts: Tensor) -> None:
        """Add counts to a state in place; see :meth:`imbtorch.ImbalanceReport.add`."""
        check_tensor("counts", counts)
        if self.clusters:
            raise ValueError(
                "counts cannot be added to a metric with clusters (the default of task='multilabel'), since they do "
                "not show the counts of each cluster; build it with clusters=False"
            )
        labels = () if self.num_labels is None else (self.num_labels,)
        groups = () if self.groups is None else (self.groups,)
        shape = (*groups, *labels, self.classes, self.classes)
        if counts.shape != shape:
            raise ValueError(f"counts must have the shape {list(shape)} of this metric, got {list(counts.shape)}")
        kind = torch.float64 if self.weighted else counts.dtype if counts.is_floating_point() else torch.int64
        device = state.device if has_float64(state.device) else torch.device("cpu")
        wide, largest = counts.detach().to(device).to(kind), torch.inf if self.weighted else 2.0**63
        wrong = ~((wide >= 0) & (wide < largest) & (self.weighted | (wide == wide.round())))
        if bool(wrong.any()):
            allowed = "finite and not negative" if self.weighted else "whole numbers from 0 to below 2**63"
            raise ValueError(f"counts must be {allowed}, got {wide[wrong][0].item():g}")
        added = wide.to(state.dtype)
        if self.layout == "margins":
            added = torch.stack((added.diagonal(dim1=-2, dim2=-1), added.sum(-1), added.sum(-2)), -2)
        added = added.reshape(-1).to(state.device)
        if not self.weighted and bool((added > MOST - state[: self.cells]).any()):
            raise ValueError(f"counts must not add up to more than 2**62 in a cell, got {wide.max().item():g} more")
        state[: self.cells] += added
        if self.squared:
            state[-2] += 1  # their squares are unknown

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place; see :func:`imbtorch.counting.batches.add_batch`."""
        add_batch(state, self.shape, batch, self.ignored_target, defer, self.error_message)
        if self.squared:  # behind the counts lie the squares, like a state of their own, whose faults nobody reads
            squares, behind = batch.squares, state[self.cells + len(FAULTS) :]
            if squares is None and batch.weight is not None:
                squares = batch.weight.abs().clamp(max=HUGE) * batch.weight
            batch = batch._replace(weight=squares, dependent=False)
            add_batch(behind, self.shape, batch, self.ignored_target, lambda: True, self.error_message)

    def error_message(self, fault: int, values: Tensor, samples: int, target: Tensor) -> str:
        """Return the error message for a fault; see :func:`imbtorch.counting.arguments.value_message`."""
        return value_message(
            fault,
            values,
            samples,
            target,
            task=self.task,
            classes=self.classes,
            groups=self.shape.groups,
            group_names=self.group_names,
            logits=self.logits,
            sized_by_names=self.sized_by_names,
        )


def check_memory(cells: int, counts: str, remedy: str) -> None:
    """Raise ValueError if the counts of all buckets of clusters, of so many cells, take too much memory."""
    if cells > MOST_CELLS:
        raise ValueError(f"clusters=True keeps {BUCKETS} {counts}, which take {8e-6 * cells:,.0f} MB here; {remedy}")


# --- two classes, by a threshold ------------------------------------------------------------------------------------


class TwoClasses(Counting):
    """Settings of the tasks that compare a score with a threshold."""

    @property
    def classes(self) -> int:
        """Number of classes that a target can take."""
        return 2

    def _name_of_conversion(self) -> list[object]:
        several = isinstance(self.threshold, tuple)
        text = hashlib.sha256(repr(self.threshold).encode()).hexdigest()[:12] if several else self.threshold
        return ["thresholds" if several else "threshold", text, *["logits"] * self.logits]

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch and compare its scores with the threshold; raise the errors of :meth:`check`."""
        preds, target = self.check(preds, target)
        if not preds.is_floating_point():
            return Batch(preds, target)
        # logits are compared directly: in float32 the probability of every logit above 17 is 1
        scores, uneven = (of_class_one(preds, target.ndim), None) if self.logits else self.probabilities(preds, target)
        own = preds if preds.ndim == target.ndim else scores  # compared in its dtype, as torch and NumPy do
        return Batch(own > self._threshold_for(own), target, scores, not self.logits, uneven)

    def probabilities(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return probabilities of class 1, in float32 or wider, and bools of the samples whose two do not sum to 1."""
        scores = wide(preds)
        if preds.ndim == target.ndim:
            return scores, None
        total = scores.sum(1)
        return scores[:, 1].masked_fill(total.isnan(), torch.nan), (total - 1).abs() > UNEVEN

    def _threshold_for(self, scores: Tensor) -> float | Tensor:
        """Return the threshold, or its logit, for scores; several in their dtype, broadcast over ``[N, L, ...]``."""
        if not isinstance(self.threshold, tuple):
            return logit_threshold(self.threshold) if self.logits else self.threshold
        assert self.thresholds is not None
        thresholds = torch.as_tensor(logit_threshold(self.thresholds)) if self.logits else self.thresholds
        return thresholds.to(scores).view(-1, *[1] * (scores.ndim - 2))


class Binary(TwoClasses):
    """Settings of ``task="binary"``: one score per sample, ``[N, ...]``, or two, ``[N, 2, ...]``."""

    task = "binary"

    def _check_shapes(self, preds: Tensor, target: Tensor) -> None:
        if preds.shape == target.shape:
            return
        shape = target.shape
        if not (preds.is_floating_point() and shape and preds.shape == (shape[0], 2, *shape[1:])):
            raise ValueError(misfit(preds, target, self.task))


class Multilabel(TwoClasses):
    """Settings of ``task="multilabel"``: one score per label, ``[N, L, ...]``; each label is counted on its own."""

    task = "multilabel"

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for multilabel."""
        return None

    @property
    def num_labels(self) -> int | None:
        """Number of labels."""
        return self.size

    def _class_shares(self, given: Tensor) -> Tensor:
        if not bool(((given >= 0) & (given <= 1)).all()):
            raise ValueError(
                f"prevalence must hold the share of positives of each label, in [0, 1], got {given.tolist()}"
            )
        return torch.stack((1 - given, given), -1)

    def _check_shapes(self, preds: Tensor, target: Tensor) -> None:
        if target.ndim < 2 or target.shape[1] != self.size:
            raise ValueError(
                f"target must have shape [N, {self.size}, ...] for num_labels={self.size}, got {list(target.shape)}"
            )
        if preds.shape != target.shape:
            raise ValueError(misfit(preds, target, self.task))


# --- several classes, by the highest score --------------------------------------------------------------------------


class Multiclass(Counting):
    """Settings of ``task="multiclass"``: class indices ``[N, ...]``, or scores ``[N, C, ...]``."""

    task = "multiclass"

    def _check_shapes(self, preds: Tensor, target: Tensor) -> None:
        shape = target.shape
        if preds.is_floating_point():
            if not shape or preds.shape != (shape[0], self.size, *shape[1:]):
                raise ValueError(misfit_of_class_scores(preds, target, self.size, self.sized_by_names))
        elif preds.shape != shape:
            raise ValueError(misfit(preds, target, self.task))

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch and find the class of each sample's highest score; raise the errors of :meth:`check`."""
        preds, target = self.check(preds, target)
        if not preds.is_floating_point():
            return Batch(preds, target)
        classes, scores = highest(preds)
        return Batch(classes, target, scores)


class Counter(Protocol):
    """Interface of the objects that count batches, such as :class:`~imbtorch.counting.tasks.Counting`."""

    @property
    def counting(self) -> Counting:
        """Task and options by which predictions and targets are read."""

    @property
    def name(self) -> str:
        """Identifier that differs between counters that count differently."""

    @property
    def length(self) -> int:
        """Number of cells of a state."""

    def on(self, device: torch.device) -> Counter:
        """Return the same counter with its tensors on a device, so that updates need not move them."""

    def zeros(self, device: torch.device | None = None) -> Tensor:
        """Return an empty state."""

    def read(self, preds: Tensor, target: Tensor) -> Batch:
        """Check a batch."""

    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None:
        """Add a batch to a state in place."""

    def counts(self, state: Tensor) -> Counts:
        """View a state as counts."""

    def faults(self, state: Tensor) -> Tensor:
        """Return the tallies of invalid samples."""
