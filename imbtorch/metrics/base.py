"""Base classes of the metrics that accumulate counts: update, forward, errors and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import unwrap
from typing import Any, ClassVar, Literal, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.compat import is_traced, rank_zero, warn_once
from imbtorch.counting.arguments import Layout, Task, Thresholds
from imbtorch.counting.batches import FAULTS, Batch
from imbtorch.counting.kernels import reading_is_free
from imbtorch.counting.logits import ENOUGH, PROBABILITIES, like_probabilities
from imbtorch.counting.tasks import MANY_CELLS, Counter, Counting
from imbtorch.counts import Counts, Margins, check_choice, confusion_counts, shown_dtype, sums
from imbtorch.measures import Average
from imbtorch.metrics.seen_samples import MOST, digest
from imbtorch.metrics.state import Setting, SummedState, captures
from imbtorch.reports.problems import unseen_classes, unseen_text
from imbtorch.reports.rows import dependence_text

OnInvalid = Literal["raise", "warn"]

ONE_HOT = (
    "predictions and targets [N, C] look one-hot, but are counted as C positions of each sample; for samples of one "
    "class pass preds.argmax(1) and target.argmax(1), for samples with C labels use task='multilabel'"
)
ONCE_A_FIT = {"crowded"}  # kinds of warnings that a reset does not bring back, since each epoch would
_UPDATES: dict[str, list[Any]] = {}
"""Methods ``update`` that classes outside this package define, by their name."""


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
    """Keyword arguments that metrics with an argument of their own pass on to :class:`ConfusionMatrixMetric`."""

    num_labels: int | None
    average: Average | Literal["auto"] | None
    threshold: Thresholds
    logits: bool
    ignore_index: int | None
    on_invalid: OnInvalid
    state: Layout
    weighted: bool
    clusters: bool | None


class CountsMetric(SummedState):
    """Base of the metrics that accumulate counts of predictions and targets; subclasses define the reported values.

    Users' arguments are documented in :class:`ConfusionMatrixMetric`.
    """

    _own_update: ClassVar[str] = ""
    """Digest of the name of an ``update`` that a class outside this package defines, numbered within functions."""

    warns_of_unseen: bool = True
    """True if ``compute`` warns about classes without targets, which a mean over classes leaves out."""

    counting = Setting[Counting]("_counting", "Task and options by which samples are counted.")
    task = Setting[Task]("_counting.task", "Task: binary, multiclass or multilabel.")
    num_classes = Setting[int | None]("_counting.num_classes", "Number of classes; None for multilabel.")
    logits = Setting[bool]("_counting.logits", "True if scores are logits.")
    ignore_index = Setting[int | None]("_counting.ignore_index", "Target of the samples that are not counted.")
    clusters = Setting[bool]("_counting.clusters", "True if counts are kept for each bucket of clusters.")
    on_invalid = Setting[OnInvalid]("_on_invalid", "Response to samples that cannot be counted.")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let ``forward`` call an ``update`` that a class outside this package defines."""
        super().__init_subclass__(**kwargs)
        if not str(cls.update.__module__).startswith("imbtorch."):  # None for a class that exec has made
            # a collection merges metrics whose states have equal names, so that each update needs a name of its own
            name = canonical(cls.update)
            alike = _UPDATES.setdefault(name, [])
            if cls.update not in alike:
                alike.append(cls.update)
            number = alike.index(cls.update) if "<locals>" in name else 0
            cls._own_update = f"_{digest(f'{name} {number}'):012x}"
            if str(cls.forward.__module__).startswith("imbtorch."):
                cls.forward = _forward_through_update  # type: ignore[method-assign, assignment]

    def __init__(
        self,
        counting: Counting,
        on_invalid: OnInvalid = "raise",
        counter: Counter | None = None,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        check_choice("on_invalid", on_invalid, get_args(OnInvalid))
        counter = counter or counting
        super().__init__(f"{counter.name}{self._own_update}", counter.length, counting.dtype, **kwargs)
        self._counter, self._on_invalid = counter.on(self._state.device), on_invalid
        self.quiet = False  # True in Lightning's sanity check, whose few batches often lack classes
        self._already_warned: set[str] = set()
        self.like_probabilities = False  # whether the first logits of the last epoch look like probabilities
        self.watched: list[Any] | None = None  # whether each batch held classes, while Lightning tests
        self._first: list[Tensor] = []  # these logits, [P, C] each
        self._suffice = False  # whether they are enough
        self._unjudged = False  # whether they were held on another device

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        """Move counts and thresholds to another device."""
        super()._apply(fn, exclude_state, recurse)
        self._counter = self._counter.on(self._state.device)
        return self

    @property
    def _counting(self) -> Counting:
        """Task and options by which samples are counted."""
        return self._counter.counting

    def _reported(self, counts: Counts) -> Any:
        """Return the values that the metric reports for counts."""
        raise NotImplementedError

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> Any:
        """Return the values that the metric reports for the state of one batch."""
        return self._reported(counter.counts(state))

    # --- counting ---------------------------------------------------------------------------------------------------

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        *,
        group: Tensor | int | None = None,
        weight: Tensor | None = None,
        cluster: Tensor | None = None,
        frequency: Tensor | None = None,
    ) -> None:
        """Count a batch; never waits for a GPU.

        Args:
            preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1, probabilities or logits
                ``[N, ...]``, or scores of both classes ``[N, 2, ...]`` (binary); ``[N, L, ...]`` (multilabel).
            target: class indices or 0/1, ``[N, ...]`` or ``[N, L, ...]``, of any integer or bool dtype.
            group: index of the group of each sample, integers ``[N]``, or one index for the whole batch. It is required
                for reports that were built with ``groups``, and an error for all other metrics, also sweeps.
            weight: weight of each sample, ``[N]``, or of each target, finite and not negative. It is an error unless
                the metric was built with ``weighted=True``, which logit adjustment sweeps do not have. The default
                weight is 1.
            cluster: id of the cluster of each sample, such as its patient, any integers ``[N]``, for intervals. It is
                ignored unless the metric has ``clusters=True``; logit adjustment sweeps always use it. By default each
                sample, with all its labels and positions (pixels or tokens), is a cluster of its own.
                :func:`imbtorch.cluster_ids` makes ids of names.
            frequency: number of samples that each row represents, any integers ``[N]``, such as the ``count(*)`` of a
                database. All these samples are counted, and intervals use their number. The default is 1.

        Raises:
            ValueError: for mismatched shapes or devices; for groups or weights if the metric was built without them;
                for ``frequency`` with ``weighted=True``, or with clusters but
                without ids. On the CPU of a single process also for values that cannot be counted (see
                ``on_invalid``). The counts then stay as they were.
            TypeError: for anything but dense tensors, and for floating targets.
        """
        batch = self._read(self._counter, preds, target, group, weight, cluster, frequency)
        self._counter.add_(self._writable(exclusive=not self._leads), batch, defer=self._defer)

    def _read(
        self,
        counter: Counter,
        preds: Tensor,
        target: Tensor,
        group: Tensor | int | None,
        weight: Tensor | None,
        cluster: Tensor | None,
        frequency: Tensor | None,
    ) -> Batch:
        """Check and read a batch, including the groups, weights, clusters and frequencies of its samples."""
        batch, counting = counter.read(preds, target), self._counting
        if self.watched is not None:
            self.watched.append(not preds.is_floating_point() or ((preds == 0) | (preds == 1)).all())
        self._note_samples(preds, target)
        if target.ndim == 2 and not preds.is_floating_point() and _are_one_hot(self, preds, target):
            self._warn_once("one-hot", f"{type(self).__name__}: {ONE_HOT}")
        if counting.logits:
            self._look_at_logits(preds, batch)
        plain = frequency is None and cluster is None and weight is None and group is None and counting.groups is None
        if plain and target.ndim == counting.one_position:
            return batch
        return counting.with_axes(batch, target, group, weight, cluster, frequency)

    def _look_at_logits(self, preds: Tensor, batch: Batch) -> None:
        """Hold the first 32 samples since a reset; judge them where reading is free, else :meth:`compute` does."""
        if torch.compiler.is_compiling() or (self._update_count and self._suffice):
            return
        if not preds.numel() or is_traced(preds) or captures(preds.device):
            return
        scores = self._to_judge(preds, batch)
        if scores is None:
            return
        if not self._update_count or (self._first and self._first[0].device != scores.device):
            self._first = []
        some = scores.detach()[: ENOUGH - sum(map(len, self._first))]
        some = some.reshape(*some.shape[:2], -1)
        some = some[:, :, :: -(-some.shape[2] // MOST)].movedim(1, 2)
        self._first.append(some.clone(memory_format=torch.contiguous_format).flatten(0, 1))
        self._suffice = sum(map(len, self._first)) >= ENOUGH
        self._unjudged = not reading_is_free(preds)
        if not self._unjudged:
            self._judge(torch.cat(self._first), counted=False)

    def _copied(self, state: Tensor) -> Tensor:
        """Copy a state to the host, and in the same trip, unless it is large, first logits that are to be judged."""
        if not self._unjudged or state.is_cpu or len(state) > MANY_CELLS:
            return state.cpu()
        first = torch.cat(self._first).float()
        bits = first.contiguous().view(torch.int32).flatten().long()  # which int64 and float64 states can hold
        both = torch.cat((state.view(torch.int64), bits)).cpu()
        self._first = [both[len(state) :].int().view(torch.float32).reshape(first.shape)]
        return both[: len(state)].view(state.dtype)

    def _to_judge(self, preds: Tensor, batch: Batch) -> Tensor | None:
        """Return scores ``[N, C, ...]`` that may be probabilities; None for several classes, whose argmax is theirs."""
        if self.task == "multiclass" or batch.scores is None:
            return None
        return batch.scores if self.task == "multilabel" else batch.scores.reshape(batch.target.shape or 1).unsqueeze(1)

    def _judge(self, scores: Tensor, counted: bool) -> None:
        """Warn once if the first logits, ``[P, C]`` on the CPU, look like probabilities."""
        self.like_probabilities = like_probabilities(scores, of_labels=True)
        if self.like_probabilities:
            self._warn_once("probabilities", f"{type(self).__name__}: {PROBABILITIES}")

    def _defer(self) -> bool:
        """Return whether an error about samples that cannot be counted is left to ``compute``."""
        return self._on_invalid == "warn" or not reading_is_free(self._state) or self._distributed()

    def _counter_of_a_batch(self) -> Counter:
        """Return the counter for the value of one batch, which may keep less than the state does."""
        return self._counter

    @torch.jit.unused
    def forward(
        self,
        preds: Tensor,
        target: Tensor,
        *,
        group: Tensor | int | None = None,
        weight: Tensor | None = None,
        cluster: Tensor | None = None,
        frequency: Tensor | None = None,
    ) -> Any:
        """Count a batch and return the value of this batch; arguments as for :meth:`update`.

        On a GPU a single metric does so without waiting; a report or a sweep waits once, to copy counts to the host.
        With ``dist_sync_on_step=True`` the value covers the current batches of all processes.
        """
        self._refuse_synced()
        counter = self._counter_of_a_batch()
        batch = self._read(counter, preds, target, group, weight, cluster, frequency)
        counted = counter.zeros(self._state.device)
        counter.add_(counted, batch, defer=self._defer)
        state = self._writable(exclusive=True)
        if counter is self._counter:
            state.add_(counted)
        else:
            self._counter.add_(state, batch, defer=lambda: True)
        self._note_update()
        return self._value_of_a_batch(counter, counted)

    def _value_of_a_batch(self, counter: Counter, counted: Tensor) -> Any:
        """Return the value for the state of one batch, and keep it for callers of ``forward``."""
        if self.dist_sync_on_step and self._distributed():
            counted = self._summed(counted, self.dist_sync_fn, None)
        value = self._reported_of_a_batch(counter, counted)
        self._forward_cache = value
        return value

    def reset(self) -> None:
        """Set all counts to zero and start anew."""
        super().reset()
        self._already_warned = self._already_warned & ONCE_A_FIT

    # --- errors and warnings ----------------------------------------------------------------------------------------

    @contextmanager
    def _state_of_all(self) -> Iterator[Tensor]:
        """Yield the state of all processes, on the CPU, for a ``with`` block; raise as :meth:`compute` does."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            state = self._state.cpu()
            self._report_uncounted(self._counter.faults(state).tolist())
            yield state

    def _report_uncounted(self, tally: Sequence[float]) -> bool:
        """Raise or warn about samples that were not counted; return whether there are any."""
        if not any(tally):
            return False
        text = uncounted_text(type(self).__name__, tally)
        if self._on_invalid == "raise":
            raise ValueError(f"{text}; correct the input and call reset(), or leave them out by on_invalid='warn'")
        self._warn_once("invalid", text)
        return True

    def _report_problems(
        self, faults: Tensor, actual: Tensor, prevalence: Tensor | None = None, needed: bool = False
    ) -> None:
        """Raise or warn about samples that were not counted; warn once about classes without targets.

        All tensors are on the CPU.

        Args:
            faults: tallies of the samples that were not counted.
            actual: number of targets of each class over all processes, ``[K]``; ``[L, 2]`` for multilabel.
            prevalence: share of each class (``[L, 2]`` for multilabel) in the population that the values describe.
            needed: raise, instead of warning, about classes without targets.
        """
        if self._unjudged and self._may_warn("probabilities"):
            self._judge(torch.cat(self._first).cpu(), counted=True)
            self._first, self._unjudged = [], False
        unseen = unseen_classes(self._counting, actual, prevalence)
        total, missing = torch.stack((actual.sum(), unseen.sum().to(actual))).tolist()
        uncounted = self._report_uncounted(faults.tolist())
        if missing and needed:
            raise ValueError(self._unseen_text(unseen, prevalence, needed=True))
        if total == 0 and not uncounted:
            self._warn_once("empty", f"{type(self).__name__} has counted no sample, so there is nothing to report")
        elif missing and not uncounted and self.warns_of_unseen and self._may_warn("unseen"):
            self._warn_once("unseen", self._unseen_text(unseen, prevalence))

    def _unseen_text(self, unseen: Tensor, prevalence: Tensor | None, needed: bool = False) -> str:
        names = [self._label(index) for index in unseen.nonzero().flatten().tolist()]
        text = unseen_text(self._counting, names, at_prevalence=prevalence is not None, needed=needed)
        return f"{type(self).__name__}: {text}"

    def _label(self, index: int) -> str:
        """Return the name of a class or label."""
        return str(index)

    def _warn_if_dependent(self, state: Tensor, clusters: bool | None = None) -> None:
        """Warn once of :func:`~imbtorch.reports.rows.dependence_text`, unless the user asked for such an interval."""
        text = dependence_text(self._counting, bool(self._counting.dependent(state)))
        if text and clusters is not False and bool(state[:-1].any()):
            self._warn_once("dependent", f"{type(self).__name__}: {text}")

    def _may_warn(self, kind: str) -> bool:
        """Return whether a warning of this kind would be shown."""
        return kind not in self._already_warned and not self.quiet and rank_zero()

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn on rank zero, once for each kind of warning between resets."""
        if self._may_warn(kind):
            warn_once(self._already_warned, kind, text, again=kind in ONCE_A_FIT)

    def _names(self) -> dict[str, list[str]]:
        given = {"class_names": getattr(self, "class_names", ()), "groups": self._counting.group_names or ()}
        indices = {argument: list(map(str, range(len(names)))) for argument, names in given.items()}
        return {argument: list(names) for argument, names in given.items() if list(names) != indices[argument]}

    # --- values and text --------------------------------------------------------------------------------------------

    def _narrow(self, value: Tensor) -> Tensor:
        """Convert a value to the dtype in which it is reported, on the device of the counts, without a wait."""
        return value.to(shown_dtype()).to(self._state.device, non_blocking=True)

    def _shown_arguments(self) -> dict[str, Any]:
        """Return the arguments that differ from the defaults."""
        shown: dict[str, Any] = {"task": self.task}
        if self.task != "binary":
            shown["num_labels" if self.task == "multilabel" else "num_classes"] = self._counting.size
        if self.clusters != (self.task == "multilabel" and not self._counting.weighted):
            shown["clusters"] = self.clusters
        defaults = {"threshold": 0.5, "logits": False, "ignore_index": None, "on_invalid": "raise", "weighted": False}
        shown |= {
            name: value for name, default in defaults.items() if (value := getattr(self, name, default)) != default
        }
        if self._counting.layout != "matrix":
            shown["state"] = self._counting.layout
        return shown

    def _settings_text(self) -> str:
        return f"{super()._settings_text()} {canonical(self._shown_arguments())}"

    def extra_repr(self) -> str:
        """Return the arguments that differ from the defaults, as text."""
        shown = self._shown_arguments().items()
        return ", ".join(f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in shown)

    def __repr__(self) -> str:
        """Return the call that builds the metric, in one line."""
        return f"{type(self).__name__}({self.extra_repr()})"


@torch.jit.unused
def _forward_through_update(metric: CountsMetric, *args: Any, **kwargs: Any) -> Any:
    """Count a batch with the ``update`` of a subclass, and return the value of what it counted."""
    metric._refuse_synced()
    before, updates = metric._state.clone(), metric._update_count
    metric.update(*args, **kwargs)
    was_reset = metric._update_count <= updates
    return metric._value_of_a_batch(metric._counter, metric._state - (0 if was_reset else before))


def _are_one_hot(metric: CountsMetric, preds: Tensor, target: Tensor) -> bool:
    """Return whether the first batch looks like one-hot predictions and targets of single-label classes."""
    of_labels = metric._counting.num_labels is not None
    if not reading_is_free(target) or of_labels or metric._update_count or target.shape[1] < 2:
        return False
    return all(bool(((each == 0) | (each == 1)).all() & (each.sum(1) == 1).all()) for each in (preds, target))


def uncounted_text(name: str, tally: Sequence[float]) -> str:
    """Describe the samples that a metric did not count, given their number for each of :data:`FAULTS`."""
    found = ", ".join(f"{int(count)} {fault}" for count, fault in zip(tally, FAULTS, strict=True) if count)
    return f"{name} did not count {sum(map(int, tally))} of the samples it was given: {found}"


def canonical(value: object) -> str:
    """Convert a setting to a text that is equal in every process, without addresses of objects or the order of sets.

    Functions, classes and objects of unknown kinds are named by module and name, whatever their code is.
    """
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return canonical(value.tolist())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{canonical(key)}: {canonical(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if isinstance(value, (set, frozenset)):
        return canonical(sorted(map(canonical, value)))
    if isinstance(value, partial):
        return f"{canonical(value.func)}{canonical(value.args)}{canonical(value.keywords)}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name, None) for each in fields(value)}
        return type(value).__qualname__ + canonical(parts)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    bare: Any = unwrap(value) if callable(value) else value
    named = bare if hasattr(bare, "__qualname__") else type(bare)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


class TaskOptions:
    """Options that metrics of labels and weights have."""

    num_labels = Setting[int | None]("_counting.num_labels", "Number of labels; None for other tasks than multilabel.")
    weighted = Setting[bool]("_counting.weighted", "True if samples may have weights.")


class LocalCounts(TaskOptions, CountsMetric):
    """Metric that accumulates a matrix or its margins, and also shows the counts of this process alone."""

    threshold = Setting[float | tuple[float, ...]](
        "_counting.threshold", "Probability strictly above which 1 is predicted; a tuple if each label has its own."
    )

    @property
    def local_confmat(self) -> Tensor:
        """Copy of this process's counts: int64 (float64 if weighted) ``[K, K]``, for multilabel ``[L, 2, 2]``."""
        return confusion_counts(self._counter.counts(self._state)).clone()

    @property
    def local_margins(self) -> Margins:
        """Copy of this process's diagonal, row sums and column sums: int64 (float64 if weighted) ``[K]`` each."""
        return Margins(*(part.clone() for part in sums(self._counter.counts(self._state))))

    def add(self, counts: Tensor) -> None:
        """Add counts that exist already, such as a confusion matrix of a database or of another program.

        Args:
            counts: whole numbers of any dtype (any finite ones if the metric is ``weighted``), rows true and columns
                predicted: ``[K, K]``; for multilabel ``[L, 2, 2]``; with groups ``[G, K, K]`` or ``[G, L, 2, 2]``.

        Raises:
            ValueError: for another shape, for counts that are negative or not whole, and for a metric with clusters,
                whose counts would need to be known for each cluster; and for cells that would exceed 2**62.
            RuntimeError: for a metric that shares the counts of another one in a ``MetricCollection``.
            TypeError: for anything but a dense tensor.

        >>> from imbtorch import Accuracy
        >>> metric = Accuracy("binary")
        >>> metric.add(torch.tensor([[90, 10], [1, 9]]))
        >>> metric.compute()
        tensor(0.9000)
        """
        if not self._owned:
            raise RuntimeError(
                f"this {type(self).__name__} follows another metric of its MetricCollection, whose next update would "
                "replace the added counts; build MetricCollection(..., compute_groups=False)"
            )
        self._counting.add_counts_(self._writable(exclusive=True), counts)
        self._note_update()
