"""The metric that accumulates counts and reports one measure of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from typing_extensions import Unpack

from imbtorch.counting import FAULTS, Batch, Counting, Layout, Task, Threshold
from imbtorch.counts import (
    Counts,
    Margins,
    Normalize,
    check_choice,
    normalized,
    rescaled,
    square,
    sums,
)
from imbtorch.kernels import reading_is_free
from imbtorch.measures import Average
from imbtorch.metrics.averaging import AveragedMeasure, Traits, chosen_average
from imbtorch.metrics.state import Setting, SummedState, rank_zero, warn_caller

if TYPE_CHECKING:
    from imbtorch.analysis.intervals import Interval

__all__ = ["ConfusionMatrix", "ConfusionMatrixMetric"]

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
    """What a metric counts with: :class:`~imbtorch.counting.Counting`, or something that is made of one."""

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
    """Whether classes without targets are worth a warning at compute."""

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
        """What is reported of counts."""
        raise NotImplementedError

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> Any:
        """What is reported of the state of one batch."""
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
        self._notify_listeners(batch)

    def _notify_listeners(self, batch: Batch) -> None:
        """Hand on what was counted, where somebody wants it."""
        if self._listeners:
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
        """Whether samples that cannot be counted are tallied rather than raised about at once."""
        return self._on_invalid == "warn" or not reading_is_free(self._state) or self._distributed()

    def _counter_of_a_batch(self) -> Counter:
        """What counts the value of one batch; it may keep less than the state does."""
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
        found = ", ".join(f"{int(count)} {fault}" for count, fault in zip(tally, FAULTS, strict=True) if count)
        text = f"{type(self).__name__} did not count {sum(map(int, tally))} of the samples it was given: {found}"
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

    def _unseen(self, actual: Tensor, priors: Tensor | None = None) -> Tensor:
        """Which classes, or labels, have no targets; where priors are given, those that should have some there."""
        if priors is not None:
            lacking = (actual == 0) & (priors > 0).to(actual.device)
            return lacking.any(-1) if self.task == "multilabel" else lacking
        unseen = (actual[:, 1] if self.task == "multilabel" else actual) == 0
        if self._counting.ignored_class is not None and self.task != "multilabel":
            unseen[self._counting.ignored_class] = False
        return unseen

    def _unseen_text(self, unseen: Tensor, read_at: bool = False, needed: bool = False) -> str:
        names = [self._label(index) for index in unseen.nonzero().flatten().tolist()]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        what = "classes had no target"
        if self.task == "multilabel":
            what = "labels had no positive or no negative target" if read_at else "labels had no positive target"
        then = "means over classes leave absent ones out, which flatters a partial validation"
        if needed:
            prior = "prior 0 or 1" if self.task == "multilabel" else "prior 0"
            then = f"what becomes of them in another population is unknown; give them {prior}"
        elif read_at:
            then = f"their share of the prevalence goes to the others, and {then}"
        return f"{type(self).__name__}: {len(names)} of {unseen.numel()} {what}: {shown}; {then}"

    def _label(self, index: int) -> str:
        """What a class or label is called."""
        return str(index)

    def _may_warn(self, kind: str) -> bool:
        """Whether a warning of this kind would be given."""
        return kind not in self._already_warned and not self.quiet and rank_zero()

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn once of each kind between resets, on rank zero."""
        if self._may_warn(kind):
            self._already_warned.add(kind)
            warn_caller(text)

    # --- looks ------------------------------------------------------------------------------------------------------

    def _narrow(self, value: Tensor) -> Tensor:
        """To float32, or float64 where that is the default dtype: half precision would hide differences."""
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
    def confmat(self) -> Tensor:
        """Copy of the counts of this process: int64 (float64 of weights) ``[K, K]``, for multilabel ``[L, 2, 2]``."""
        return confusion_counts(self._counter.counts(self._state)).clone()

    @property
    def margins(self) -> Margins:
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

    soft = Setting[float]("_counting.soft", "Share of the probabilities in soft counts; 0 where they are not kept.")

    def soft_counts(self) -> Counts:
        """Counts of all processes in which probabilities count a little (a collective step).

        They are (1 - share) C + share S, as :func:`imbtorch.soft_confusion_matrix` of one batch says, with the share
        that ``soft`` is. Given the same probabilities they do not depend on the number of processes, the order of
        samples or how they fall into batches, to the last bit.

        Returns:
            float64 ``[K, K]``, for multilabel ``[L, 2, 2]``; :class:`~imbtorch.counts.Margins` of ``[K]`` for
            ``state="margins"``.

        Raises:
            ValueError: where ``soft`` was not asked for, and as ``compute``.

        >>> from imbtorch import ImbalanceAccuracy
        >>> metric = ImbalanceAccuracy("binary", soft=0.5)
        >>> metric.update(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([0, 0, 1]))
        >>> metric.soft_counts()
        tensor([[1.6250, 0.3750],
                [0.1250, 0.8750]], dtype=torch.float64)
        """
        if not self.soft:
            raise ValueError(f"{type(self).__name__} keeps no soft counts; build it with soft=True")
        with self._counts_of_all():
            return self._counting.soft_counts(self._state)

    def _shown_arguments(self) -> dict[str, Any]:
        return super()._shown_arguments() | ({"soft": self.soft} if self.soft else {})


class ConfusionMatrixMetric(LocalCounts):
    """Accumulates a confusion matrix on the device, over all processes, and reports one measure of it.

    Subclasses set :attr:`measure`. Anything that can be computed from a confusion matrix is a few lines away::

        class ErrorRate(ConfusionMatrixMetric):
            higher_is_better = False
            measure = staticmethod(lambda counts: 1 - accuracy(counts))

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes; required for multiclass.
        num_labels: number of labels; required for multilabel.
        average: how values of classes (or labels) become one: ``"macro"``, ``"weighted"`` by targets, ``"none"`` for
            one value each, ``"micro"`` (sums before it divides), ``"binary"`` (the positive class alone). ``"auto"``
            is ``"binary"`` for precision, recall, specificity, F-score and Fowlkes-Mallows in the binary task, else
            ``"macro"``. Measures of the whole matrix take none but in the multilabel task, where it says how labels
            are averaged; binary measures are averaged over classes, each against the rest, in the multiclass task.
        threshold: a probability strictly above it predicts 1 (binary and multilabel). For multilabel also one for each
            label, such as those that a :class:`~imbtorch.ThresholdSweep` of the labels finds.
        logits: whether floating ``preds`` of the binary and multilabel tasks are logits; never guessed.
        ignore_index: samples with this target are left out; any integer. If it is one of the classes, that class also
            takes no part in a mean over classes.
        on_invalid: what becomes of a class out of range, a NaN score, or a probability outside [0, 1], none of which
            is ever counted: ``"raise"`` raises at once on the CPU of a single process, leaving the counts as they were,
            and else in ``compute`` on all processes alike, so that no device waits for the check; after that error
            call ``reset``. ``"warn"`` says in ``compute`` how many were left out.
        state: ``"matrix"`` keeps K x K counts, ``"margins"`` 3 x K (multiclass): 3 MB in place of 123 GB for 128,256
            classes. Measures that need the matrix refuse it.
        soft: report the value of soft counts, in which probabilities count a little; a share above 0 and below 1, or
            True for 0.02. It breaks the ties of a small validation set, of which a checkpoint would keep the earliest.
            ``preds`` must be floating then: multiclass scores are probabilities that sum to 1 within 0.01, or
            ``logits=True``; binary and multilabel ones count as 1 - p and p and take no threshold but 0.5. The state is
            twice as large. :attr:`confmat`, :attr:`margins` and :meth:`interval` stay of hard counts. See
            :meth:`soft_counts`.
        weighted: whether ``update`` takes ``weight``, what each sample weighs. Counts are then float64 sums of weights
            (not on MPS devices): exact for whole weights with sums below 2**53, which count like repeated samples, else
            up to rounding, whose last digits depend on the order of samples. Such counts have no intervals.
        kwargs: arguments of :class:`torchmetrics.Metric`: ``process_group``, ``dist_sync_on_step``,
            ``sync_on_compute``, ``dist_sync_fn``, ``distributed_available_fn``. Values are computed anew each time.

    Raises:
        ValueError: for an argument that is missing, unknown, or has no meaning for the task or measure.
        TypeError: for an argument of the wrong type.

    States are not part of ``state_dict`` unless ``persistent(True)`` is called.
    """

    average = Setting[str]("_average", "How values of classes or labels become one.")
    measure_arguments = Setting[dict[str, Any]](
        lambda metric: copy.deepcopy(metric._arguments), "What the measure takes beside the counts."
    )

    measure: ClassVar[Callable[..., Tensor]]
    """The function of counts that is reported."""
    averages: ClassVar[tuple[str, ...]] = ()
    """Averages that the measure takes; empty for measures of the whole matrix."""
    binary_only: ClassVar[bool] = False
    """Whether the measure takes two classes only."""
    short: ClassVar[str] = ""
    """Name that a report gives it."""
    needs_matrix: ClassVar[bool] = True
    """Whether the measure must see the whole matrix; False if it takes :class:`~imbtorch.counts.Margins` too."""

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        average: Average | Literal["auto"] | None = "auto",
        threshold: Threshold = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        state: Layout = "matrix",
        soft: bool | float = False,
        weighted: bool = False,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index, state, soft, weighted)
        if state == "margins" and self.needs_matrix:
            raise ValueError(
                f"{type(self).__name__} needs the matrix, which state='margins' does not keep; use state='matrix' (a "
                "metric of your own whose measure takes Margins sets needs_matrix = False)"
            )
        chosen = chosen_average(Traits.of(type(self)), counting, average)
        super().__init__(counting, on_invalid, **kwargs)
        self._average, self._arguments = chosen, dict[str, Any]()

    def _set_measure_arguments(self, **arguments: Any) -> None:
        """Keep what the measure takes beside the counts, and let it check that at once."""
        type(self).measure(torch.ones(2, 2, device="cpu"), **arguments)
        self._arguments = arguments

    def _traits(self) -> Traits:
        """What has to be known of the measure."""
        return Traits.of(type(self), self.higher_is_better)

    @property
    def _measure(self) -> AveragedMeasure:
        """The measure as it is read here; made anew, since a function of one's own may not be pickled."""
        return AveragedMeasure(self._traits(), self._counting, self._average, self._arguments)

    def _counter_of_a_batch(self) -> Counter:
        return counter_of_a_batch(self._counting, self._traits().needs_matrix)

    def compute(self) -> Tensor:
        """Value of all counts, of all processes; see the measure for its range and undefined cases.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._counter.counts(self._state)
        counts = counts if self._traits().needs_matrix else sums(counts)  # once, for the value and for the warnings
        self._report_problems(targets(counts))
        return self._reported(self._counting.soft_counts(self._state) if self.soft else counts)

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> Tensor:
        if self.soft:
            return self._reported(soft_counts_of(counter, state))
        counts = counter.counts(state)
        return self._reported(counts if self._traits().needs_matrix else sums(counts))

    def evaluate(self, counts: Counts) -> Tensor:
        """Value of the measure for any counts of this task: pure, batched and differentiable.

        Args:
            counts: ``[..., K, K]`` or :class:`~imbtorch.counts.Margins`; ``[..., L, 2, 2]`` for multilabel.

        Returns:
            ``[...]``, or ``[..., K]`` under ``average="none"``.
        """
        return self._measure(counts)

    def _reported(self, counts: Counts) -> Tensor:
        return self._narrow(self.evaluate(counts))

    def at_prevalence(self, priors: Tensor | Sequence[float]) -> Tensor:
        """Value in a population with other class shares, from the counts of all processes (a collective step).

        What the classifier does to each true class stays, how often the class comes changes
        (:func:`imbtorch.at_prevalence`): what a validation set that was rebalanced says about deployment. Recall and
        what is made of recalls alone (balanced accuracy, G-mean; for two classes specificity, dominance, IBA too) do
        not move; precision, F-score, accuracy, CBA, IAM and MCC do. For an interval there, give
        :func:`imbtorch.analysis.posterior` ``lambda counts: metric.evaluate(at_prevalence(counts, priors))``.

        Args:
            priors: ``[K]`` shares of the classes there, in any unit (``[1000, 1]``); for multilabel ``[L]``, for each
                label the share of its positives in [0, 1], to which its 2x2 counts are rescaled.

        Returns:
            What ``compute`` returns, of the same shape and dtype; :class:`ConfusionMatrix` gives rates for counts.

        Raises:
            ValueError: for priors that do not fit the classes, are negative, not finite or all 0; for a positive prior
                of a class without targets or of ``ignore_index``; for ``state="margins"`` of more than two classes,
                which does not keep what is rescaled; and as ``compute``.
            TypeError: for priors that are no numbers.

        >>> from imbtorch import Precision
        >>> metric = Precision("binary")
        >>> metric(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
        tensor(0.8000)
        >>> metric.at_prevalence([1000, 1])  # each positive is found, among 250 false alarms
        tensor(0.0040)
        """
        with self._counts_of_all() as counts:
            there = self._counting.class_priors(priors, "priors")
            self._report_problems(targets(counts), there, needed=True)
            counts = self._counting.soft_counts(self._state) if self.soft else counts
            return self._narrow(self.evaluate(rescaled(counts, there)))

    # --- looks ------------------------------------------------------------------------------------------------------

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw a value, one bar for each class, or the course of values over epochs.

        Args:
            val: a value of ``compute`` or ``forward``, or a sequence of them; by default ``compute()``.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.

        Raises:
            ModuleNotFoundError: without matplotlib (``pip install imbtorch[plot]``).
        """
        from imbtorch.plots.values import plot_values

        return plot_values(
            self.compute() if val is None else val,
            ax,
            name=type(self).__name__,
            bounds=(self.plot_lower_bound, self.plot_upper_bound),
            item="Label" if self.task == "multilabel" else "Class",
        )

    def interval(
        self,
        method: Literal["posterior", "bootstrap"] = "posterior",
        samples: int = 10_000,
        level: float = 0.95,
        generator: torch.Generator | None = None,
    ) -> Interval:
        """How sure the value is, from the counts of all processes, hard ones always (a collective step).

        Processes draw each for themselves: give all of them a generator of one seed where they must agree.

        Args:
            method: :func:`imbtorch.analysis.posterior` or :func:`imbtorch.analysis.bootstrap`.
            samples: number of draws.
            level: probability that the interval holds.
            generator: source of randomness, on the device of the metric.

        Returns:
            :class:`imbtorch.analysis.Interval` of the shape of ``compute()``.

        Raises:
            ValueError: for ``state="margins"``, which does not keep what is drawn; for ``average="min"``, since an
                interval of the lowest of several uncertain values does not cover it; for weighted counts, which do not
                say how many samples there were.
        """
        from imbtorch.analysis.intervals import bootstrap, posterior

        if self.weighted:
            raise ValueError(UNSURE)
        check_choice("method", method, ("posterior", "bootstrap"))
        if self._average == "min":
            raise ValueError(
                "the lowest of several uncertain values has no interval that covers it; use average='none'"
            )
        with self._counts_of_all() as counted:
            counts = confusion_counts(counted).clone()
        draw = posterior if method == "posterior" else bootstrap
        own = type(self).evaluate is not ConfusionMatrixMetric.evaluate
        measure = self.evaluate if own else self._measure  # which says whether margins will do
        return draw(measure, counts, samples=samples, level=level, generator=generator, event_dims=counts.ndim)

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments() | self.measure_arguments
        if self.averages or (self.binary_only and self.task == "multiclass") or self.task == "multilabel":
            shown["average"] = self.average
        return shown


def targets(counts: Counts) -> Tensor:
    """Number of targets of each class."""
    return counts.actual if isinstance(counts, Margins) else counts.sum(-1)


def confusion_counts(counts: Counts) -> Tensor:
    """Return counts if they are a whole matrix, else raise."""
    if isinstance(counts, Margins):
        raise ValueError("state='margins' keeps no confusion matrix; use state='matrix', or .margins")
    return counts


def soft_counts_of(counter: Counter, state: Tensor) -> Counts:
    """Soft counts of a state, of what can count them."""
    assert isinstance(counter, Counting)
    return counter.soft_counts(state)


def counter_of_a_batch(counting: Counting, needs_matrix: bool) -> Counting:
    """What counts the value of one batch: a large matrix only for what must see it, for it takes K * K again."""
    needs_matrix = needs_matrix or counting.soft > 0  # margins do not say in which row a probability was
    small = counting.cells <= 4096 or needs_matrix or counting.layout == "margins"
    return counting if small else replace(counting, layout="margins")


class ConfusionMatrix(ConfusionMatrixMetric):
    """Confusion matrix, rows true and columns predicted: the counts that all other metrics read.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        normalize: ``"true"`` for shares of the true class, ``"pred"`` of the predicted class, ``"all"`` of all samples;
            None for int64 counts.
        kwargs: arguments of :class:`ConfusionMatrixMetric`, but for ``average``.

    >>> metric = ConfusionMatrix("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]])
    """

    warns_of_unseen = False
    normalize = Setting[Normalize | None]("_normalize", "What counts are divided by.")
    measure = staticmethod(square)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        normalize: Normalize | None = None,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        check_choice("normalize", normalize, (None, *get_args(Normalize)))
        if "average" in kwargs:
            raise ValueError("ConfusionMatrix reports counts and takes no average; use normalize")
        super().__init__(task, num_classes, **kwargs)
        self._normalize = normalize

    def evaluate(self, counts: Counts) -> Tensor:
        """Return the counts, or rates of them: ``[..., K, K]``, for multilabel ``[..., L, 2, 2]``."""
        if isinstance(counts, Margins):
            raise TypeError("a confusion matrix cannot be read off Margins")
        return counts if self.normalize is None else normalized(counts, self.normalize)

    def _reported(self, counts: Counts) -> Tensor:
        value = self.evaluate(counts)
        return value.clone() if self.normalize is None else self._narrow(value)

    def _shown_arguments(self) -> dict[str, Any]:
        return CountsMetric._shown_arguments(self) | ({"normalize": self.normalize} if self.normalize else {})

    def plot(
        self,
        val: Tensor | Sequence[Tensor] | None = None,
        ax: Any | None = None,
        labels: Sequence[str] | None = None,
    ) -> tuple[Any, Any]:
        """Draw the matrix with counts and rates.

        Args:
            val: a value of ``compute`` or ``forward``; by default ``compute()``.
            ax: matplotlib axes to draw into; by default a new figure.
            labels: class names.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.matrix import plot_confusion_matrix

        counts = self.compute() if val is None else val
        if not isinstance(counts, Tensor):
            raise TypeError("a confusion matrix is drawn from one tensor; choose an element of the sequence")
        return plot_confusion_matrix(counts, ax, labels=labels, normalize=self.normalize or "true")
