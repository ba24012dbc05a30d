"""Metrics that accumulate counts: update, forward, and what there is to say of what was counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from typing_extensions import Unpack

from imbtorch.batches import FAULTS, Batch
from imbtorch.counts import Counts, Margins, check_choice, sums
from imbtorch.kernels import reading_is_free
from imbtorch.measures import Average
from imbtorch.metrics.compat import warn_caller
from imbtorch.metrics.state import Setting, SummedState
from imbtorch.tasks import Counting, Layout, Task, Threshold
from imbtorch.waiting import rank_zero

__all__ = ["CountsMetric", "LocalCounts"]

OnInvalid = Literal["raise", "warn"]


class TorchmetricsArguments(TypedDict, total=False):
    """Keyword arguments of :class:`torchmetrics.Metric`."""

    dist_sync_on_step: bool
    process_group: Any
    dist_sync_fn: Callable[..., list[Tensor]] | None
    distributed_available_fn: Callable[[], bool] | None
    sync_on_compute: bool
    compute_with_cache: bool
    compute_on_cpu: bool


class MetricArguments(TorchmetricsArguments, total=False):
    """Keyword arguments of :class:`ConfusionMatrixMetric`, for metrics with a parameter of their own."""

    num_labels: int | None
    average: Average | Literal["auto"] | None
    threshold: Threshold
    logits: bool
    ignore_index: int | None
    on_invalid: OnInvalid
    state: Layout
    soft: bool | float
    weighted: bool


Listener: TypeAlias = Callable[[Tensor, Tensor, Tensor], object]
"""Takes predicted classes, targets, and which of them were counted."""

UNSURE = (
    "intervals take counts as numbers of independent samples, which sums of weights are not; count without "
    "weighted=True, or resample the samples themselves with their weights"
)


class Counter(Protocol):
    """Counter of a metric: :class:`~imbtorch.tasks.Counting`, or something that is made of one."""

    @property
    def name(self) -> str: ...
    @property
    def cells(self) -> int: ...
    def zeros(self, device: torch.device | None = None) -> Tensor: ...
    def read(self, preds: Tensor, target: Tensor) -> Batch: ...
    def add_(self, state: Tensor, batch: Batch, *, defer: Callable[[], bool]) -> None: ...
    def counts(self, state: Tensor) -> Counts: ...
    def faults(self, state: Tensor) -> Tensor: ...


class CountsMetric(SummedState):
    """Accumulates counts of predictions and targets; subclasses say what of them is reported.

    Constructor arguments are those of :class:`ConfusionMatrixMetric`.
    """

    warns_of_unseen: ClassVar[bool] = True
    """Classes without targets are worth a warning at compute."""

    counting = Setting[Counting]("_counting", "How samples become counts.")
    task = Setting[Task]("_counting.task", "What is classified.")
    num_classes = Setting[int | None]("_counting.num_classes", "Number of classes; None for multilabel.")
    num_labels = Setting[int | None]("_counting.num_labels", "Number of labels of multilabel.")
    threshold = Setting[float | tuple[float, ...]](
        "_counting.threshold", "Probability strictly above which 1 is predicted; a tuple of one for each label."
    )
    logits = Setting[bool]("_counting.logits", "Whether scores are logits.")
    ignore_index = Setting[int | None]("_counting.ignore_index", "Target of the samples that are left out.")
    weighted = Setting[bool]("_counting.weighted", "Whether samples may have weights.")
    on_invalid = Setting[OnInvalid]("_on_invalid", "What becomes of samples that cannot be counted.")

    def __init__(
        self,
        counting: Counting,
        on_invalid: OnInvalid = "raise",
        counter: Counter | None = None,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        check_choice("on_invalid", on_invalid, get_args(OnInvalid))
        counter = counter or counting
        super().__init__(counter.name, counter.cells + len(FAULTS), counting.dtype, **kwargs)
        self._counting, self._counter, self._on_invalid = counting, counter, on_invalid
        self._set_counting(counting.on(self._state.device))
        self.quiet = False  # in Lightning's sanity check, whose few batches miss classes for no fault of anybody's
        self._already_warned: set[str] = set()
        self._listeners: list[Listener] = []

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        """Follow moves to another device, with the thresholds of labels."""
        super()._apply(fn, exclude_state, recurse)
        self._set_counting(self._counting.on(self._state.device))
        return self

    def _set_counting(self, counting: Counting) -> None:
        """Take settings that say the same on another device."""
        if self._counter is self._counting:
            self._counter = counting
        self._counting = counting

    def _reported(self, counts: Counts) -> Any:
        """Return the values that are reported of counts."""
        raise NotImplementedError

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> Any:
        """Return the values that are reported of the state of one batch."""
        return self._reported(counter.counts(state))

    # --- counting ---------------------------------------------------------------------------------------------------

    def update(
        self, preds: Tensor, target: Tensor, *, group: Tensor | int | None = None, weight: Tensor | None = None
    ) -> None:
        """Count a batch.

        Args:
            preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1, probabilities or logits
                ``[N, ...]``, or those of both classes ``[N, 2, ...]`` (binary); ``[N, L, ...]`` (multilabel).
            target: class indices or 0/1, ``[N, ...]`` or ``[N, L, ...]``, of any integer or bool dtype.
            group: index of each sample's group, integers ``[N]``, or one for all of them; for the ``groups`` of a
                report.
            weight: what each sample weighs, ``[N]`` or one for each target, finite and not negative; for
                ``weighted=True``, where samples without it weigh 1.

        Raises:
            ValueError: for shapes or devices that do not fit, groups or weights for which the metric was not made; on
                the CPU of a single process also for values that cannot be counted (see ``on_invalid``). The counts are
                then as before.
            TypeError: for what is no dense tensor, or floating targets.
        """
        batch = self._read(self._counter, preds, target, group, weight)
        self._counter.add_(self._writable(exclusive=not self._leads), batch, defer=self._defer)
        if self._listeners:
            self._notify_listeners(batch)

    def _notify_listeners(self, batch: Batch) -> None:
        """Hand on what was counted."""
        predicted = self._counting.predicted(batch)
        for listener in self._listeners:
            listener(*predicted)

    def _read(
        self, counter: Counter, preds: Tensor, target: Tensor, group: Tensor | int | None, weight: Tensor | None
    ) -> Batch:
        """Check and read a batch, with what else is known of its samples."""
        batch = counter.read(preds, target)
        if group is None and weight is None and self._counting.groups is None:
            return batch
        return self._counting.with_axes(batch, target, group, weight)

    def _defer(self) -> bool:
        """Return whether samples that cannot be counted are tallied rather than raised about at once."""
        return self._on_invalid == "warn" or not reading_is_free(self._state) or self._distributed()

    def _counter_of_a_batch(self) -> Counter:
        """Return the counter of one batch for its value; it may keep less than the state does."""
        return self._counter

    def forward(
        self, preds: Tensor, target: Tensor, *, group: Tensor | int | None = None, weight: Tensor | None = None
    ) -> Any:
        """Count a batch and return its own value; arguments as for :meth:`update`.

        With ``dist_sync_on_step=True`` the value is that of the batches of all processes.
        """
        if self._is_synced:
            raise TorchMetricsUserError("The metric is synced; call unsync() before forward().")
        counter = self._counter_of_a_batch()
        batch, counted = self._read(counter, preds, target, group, weight), counter.zeros(self._state.device)
        counter.add_(counted, batch, defer=self._defer)
        state = self._writable(exclusive=True)
        if counter is self._counter:
            state.add_(counted)
        else:
            self._counter.add_(state, batch, defer=lambda: True)
        self._note_update()
        if self._listeners:
            self._notify_listeners(batch)
        if self.dist_sync_on_step and self._distributed():
            counted = self._summed(counted, self.dist_sync_fn, None)
        value = self._reported_of_a_batch(counter, counted)
        self._forward_cache = value
        return value

    def reset(self) -> None:
        """Set all counts to zero and start anew."""
        super().reset()
        self._already_warned = set()

    # --- what there is to say ---------------------------------------------------------------------------------------

    @contextmanager
    def _counts_of_all(self) -> Iterator[Counts]:
        """Counts of all processes, for the length of a ``with`` block; refuses what :meth:`compute` refuses."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            self._report_uncounted(self._counter.faults(self._state).tolist())
            yield self._counter.counts(self._state)

    def _report_uncounted(self, tally: Sequence[float]) -> bool:
        """Raise or warn about samples that were not counted; return whether there are any."""
        if not any(tally):
            return False
        text = uncounted_text(type(self).__name__, tally)
        if self._on_invalid == "raise":
            raise ValueError(f"{text}; mend the input and call reset() to start anew (on_invalid='warn' goes on)")
        self._warn_once("invalid", text)
        return True

    def _report_problems(self, actual: Tensor, priors: Tensor | None = None, needed: bool = False) -> None:
        """Raise or warn about samples that were not counted; warn once about classes without targets.

        Args:
            actual: targets of each class ``[K]`` over all processes, for labels ``[L, 2]``.
            priors: share of each class (``[L, 2]`` for multilabel) in the population that the counts are read at.
            needed: raise about classes without targets.
        """
        unseen = self._unseen(actual, priors)
        *tally, total, missing = torch.cat(
            (self._counter.faults(self._state), actual.sum().view(1), unseen.sum().view(1))
        ).tolist()  # one wait for all of them
        uncounted = self._report_uncounted(tally)
        if missing and needed:
            raise ValueError(self._unseen_text(unseen, read_at=True, needed=True))
        if total == 0 and not uncounted:
            self._warn_once("empty", f"{type(self).__name__} has counted no sample, so there is nothing to report")
        elif missing and not uncounted and self.warns_of_unseen and self._may_warn("unseen"):
            self._warn_once("unseen", self._unseen_text(unseen, read_at=priors is not None))

    def _unseen(self, actual: Tensor, priors: Tensor | None) -> Tensor:
        """Return which classes, or labels, have no targets; with priors, only those that should have some."""
        if priors is not None:
            lacking = (actual == 0) & (priors > 0).to(actual.device)
            return lacking.any(-1) if self.task == "multilabel" else lacking
        unseen = (actual[:, 1] if self.task == "multilabel" else actual) == 0
        if self._counting.ignored_class is not None and self.task != "multilabel":
            unseen[self._counting.ignored_class] = False
        return unseen

    def _unseen_text(self, unseen: Tensor, read_at: bool, needed: bool = False) -> str:
        names = [self._label(index) for index in unseen.nonzero().flatten().tolist()]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        what = "classes had no target"
        if self.task == "multilabel":
            what = "labels had no positive or no negative target" if read_at else "labels had no positive target"
        then = "means over classes and their intervals leave absent ones out, which flatters a partial validation"
        if needed:
            prior = "prior 0 or 1" if self.task == "multilabel" else "prior 0"
            then = f"what becomes of them in another population is unknown; give them {prior}"
        elif read_at:
            then = f"their share of the prevalence goes to the others, and {then}"
        return f"{type(self).__name__}: {len(names)} of {unseen.numel()} {what}: {shown}; {then}"

    def _label(self, index: int) -> str:
        """Return the name of a class or label."""
        return str(index)

    def _may_warn(self, kind: str) -> bool:
        """Return whether a warning of this kind would be given."""
        return kind not in self._already_warned and not self.quiet and rank_zero()

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn once of each kind between resets, on rank zero."""
        if self._may_warn(kind):
            self._already_warned.add(kind)
            warn_caller(text)

    # --- looks ------------------------------------------------------------------------------------------------------

    def _narrow(self, value: Tensor) -> Tensor:
        """Convert to float32, or float64 where that is the default dtype: half precision would hide differences."""
        wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        return value.to(device=self._state.device, dtype=wide)

    def _shown_arguments(self) -> dict[str, Any]:
        """Arguments that differ from the defaults."""
        shown: dict[str, Any] = {"task": self.task}
        if self.task != "binary":
            shown["num_labels" if self.task == "multilabel" else "num_classes"] = self._counting.size
        defaults = {"threshold": 0.5, "logits": False, "ignore_index": None, "on_invalid": "raise", "weighted": False}
        shown |= {name: value for name in defaults if (value := getattr(self, name)) != defaults[name]}
        if self._counting.layout != "matrix":
            shown["state"] = self._counting.layout
        return shown

    def _settings_text(self) -> str:
        return f"{super()._settings_text()} {canonical(self._shown_arguments())}"

    def extra_repr(self) -> str:
        """Arguments that differ from the defaults."""
        shown = self._shown_arguments().items()
        return ", ".join(f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in shown)

    def __repr__(self) -> str:
        """One line, as the metric was made."""
        return f"{type(self).__name__}({self.extra_repr()})"


def uncounted_text(name: str, tally: Sequence[float]) -> str:
    """Describe samples that a metric did not count, given how many have each of :data:`FAULTS`."""
    found = ", ".join(f"{int(count)} {fault}" for count, fault in zip(tally, FAULTS, strict=True) if count)
    return f"{name} did not count {sum(map(int, tally))} of the samples it was given: {found}"


def canonical(value: object) -> str:
    """Text of a setting that is equal in every process: no address of an object, no order of a set."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return canonical(value.tolist())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{canonical(key)}: {canonical(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if isinstance(value, partial):
        return f"{canonical(value.func)}{canonical(value.args)}{canonical(value.keywords)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


class LocalCounts(CountsMetric):
    """A metric that counts into a matrix or its margins, of which this process's part can be read."""

    @property
    def local_confmat(self) -> Tensor:
        """Copy of the counts of this process: int64 (float64 of weights) ``[K, K]``, for multilabel ``[L, 2, 2]``."""
        return confusion_counts(self._counter.counts(self._state)).clone()

    @property
    def local_margins(self) -> Margins:
        """Copy of the diagonal, row sums and column sums of this process: int64 (float64 of weights) ``[K]`` each."""
        return Margins(*(part.clone() for part in sums(self._counter.counts(self._state))))

    def add_listener(self, listener: Listener) -> None:
        """Hand every batch, once it is counted, to a function as well, until :meth:`remove_listener`.

        It is called with the predicted classes, the targets and a mask of the samples that were counted: int64, int64
        and bool ``[n]`` on the device of the batch, the samples of ``ignore_index`` among those that were not. A device
        is not waited for. Of a metric that counts as a follower in a compute group it hears nothing.

        >>> from imbtorch import ImbalanceAccuracy
        >>> metric, heard = ImbalanceAccuracy("binary"), []
        >>> metric.add_listener(lambda predicted, target, counted: heard.append(predicted[counted]))
        >>> metric.update(torch.tensor([0.2, 0.9]), torch.tensor([0, 1]))
        >>> heard
        [tensor([0, 1])]
        """
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Call a function no more that :meth:`add_listener` was given; do nothing about any other."""
        self._listeners = [known for known in self._listeners if known is not listener]

    soft = Setting[float]("_counting.soft", "Share of the value of soft counts; 0 where they are not kept.")

    def soft_counts(self) -> Counts:
        """Counts of all processes in which each sample adds its probabilities (a collective step).

        They are those of :func:`imbtorch.soft_confusion_matrix`; the share ``soft`` of their value is reported. Given
        the same probabilities they do not depend on the number of processes, the order of samples or how they fall
        into batches, to the last bit.

        Returns:
            float64 ``[K, K]``, for multilabel ``[L, 2, 2]``; :class:`~imbtorch.counts.Margins` of ``[K]`` for
            ``state="margins"``.

        Raises:
            ValueError: where ``soft`` was not asked for, and as ``compute``.

        >>> from imbtorch import ImbalanceAccuracy
        >>> metric = ImbalanceAccuracy("binary", soft=0.5)
        >>> metric.update(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([0, 0, 1]))
        >>> metric.soft_counts()
        tensor([[1.2500, 0.7500],
                [0.2500, 0.7500]], dtype=torch.float64)
        """
        if not self.soft:
            raise ValueError(
                f"{type(self).__name__} keeps no soft counts; build it with soft=True, and logits=True for raw logits"
            )
        with self._counts_of_all():
            return self._counting.counts(self._state, soft=True)

    def _shown_arguments(self) -> dict[str, Any]:
        return super()._shown_arguments() | ({"soft": self.soft} if self.soft else {})


def targets(counts: Counts) -> Tensor:
    """Number of targets of each class."""
    return counts.actual if isinstance(counts, Margins) else counts.sum(-1)


def confusion_counts(counts: Counts) -> Tensor:
    """Return counts if they are a whole matrix, else raise."""
    if isinstance(counts, Margins):
        raise ValueError("state='margins' keeps no confusion matrix; use state='matrix', or .local_margins")
    return counts
