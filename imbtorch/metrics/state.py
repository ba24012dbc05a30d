"""Metric with one flat state that is counted in place and summed over processes by one ``all_reduce``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Generic, NoReturn, TypeVar, overload

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_sum
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from imbtorch.compat import is_traced, warn_caller
from imbtorch.counting.arguments import cpu_by_default, refuse_arguments_of_others
from imbtorch.counts import has_float64
from imbtorch.metrics.merging import UnmergedDefaults, updated_by_collection
from imbtorch.metrics.seen_samples import SeenSamples, digest, same_samples
from imbtorch.suggestions import did_you_mean

T = TypeVar("T")
SHOWN = 80  # characters that an error shows of each of two settings, from shortly before they differ
SAME_SAMPLES = (
    "so that each sample seems to be counted by each of them, and intervals are too narrow. Give each process its own "
    "samples: leave use_distributed_sampler=True in Lightning, or use imbtorch.ExactBatchSampler; do not gather before "
    "update; an IterableDataset must yield every n-th sample. If processes share their batches on purpose (tensor "
    "parallelism), pass process_group= with one process of each batch"
)
CHANGED = {"_stale": True, "_empty": False}  # flags of a metric after its counts changed


class Setting(Generic[T]):
    """Attribute that is chosen in the constructor and cannot be set later, since the counts depend on it.

    Args:
        read: dotted path from the metric to the value, or a function of the metric.
        doc: docstring of the attribute.
        remedy: alternative to building a new metric, appended to the error.
    """

    def __init__(self, read: str | Callable[[Any], T], doc: str, remedy: str = "") -> None:
        self._read: Callable[[Any], T] = attrgetter(read) if isinstance(read, str) else read
        self._remedy = remedy
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the name of the attribute."""
        self._name = name

    @overload
    def __get__(self, metric: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, metric: object, owner: type) -> T: ...
    def __get__(self, metric: object | None, owner: type) -> Setting[T] | T:
        """Read the setting."""
        return self if metric is None else self._read(metric)

    def __set__(self, metric: object, value: object) -> NoReturn:
        """Refuse with an AttributeError."""
        constructors = [inspect.signature(base.__init__) for base in type(metric).__mro__[:-1]]  # type: ignore[misc]
        is_argument = self._name != "counting" and any(self._name in each.parameters for each in constructors)
        given = f" with {self._name}={value!r}{self._remedy}" if is_argument else ""
        raise AttributeError(
            f"{self._name} cannot be changed, since counts or values depend on it; build a new "
            f"{type(metric).__name__}{given}"
        )


def property_names(cls: type) -> list[str]:
    """Return the names of all properties of a class."""
    return [name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, property)]


class ProcessGroup:
    """Process group of a metric, which copies of the metric share and no other process knows."""

    def __init__(self, processes: Any | None = None) -> None:
        self.processes = processes

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        """Return the group itself."""
        return self

    def __reduce__(self) -> tuple[type[ProcessGroup], tuple[()]]:
        """Raise a TypeError when a metric that has a process group is pickled."""
        if self.processes is not None:
            raise TypeError(
                "a metric with a process_group cannot be pickled, since another process does not know the group; set "
                "metric.process_group = None before, and set it again where the metric is used"
            )
        return ProcessGroup, ()


class SyncedMetric(Metric):
    """Base of the metrics that compute from the states of all processes.

    The first sync in a process group compares the settings of its processes, before states of other lengths or dtypes
    could meet in one collective operation; functions by module and name. It also warns of processes with equal samples.

    Copies have the same ``process_group``. A process group cannot be pickled; pickling raises an error that says so.

    Attributes:
        last_updates: number of updates of this process that the last ``compute`` read; None before the first.
    """

    last_updates: int | None = None
    _group = ProcessGroup()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep TorchScript from compiling properties, which a scripted module does not read."""
        super().__init_subclass__(**kwargs)
        cls.__jit_unused_properties__ = property_names(cls)

    def __init__(self, **kwargs: Any) -> None:
        refuse_arguments_of_others(type(self).__name__, kwargs)
        try:
            super().__init__(**kwargs)
        except ValueError as error:  # "Unexpected keyword arguments: `class_group`", or a value that does not fit
            unknown = [name for name in kwargs if str(error).startswith("Unexpected") and f"`{name}`" in str(error)]
            if not unknown:
                raise
            meant = did_you_mean(unknown[0], inspect.signature(type(self)).parameters)
            raise TypeError(f"{type(self).__name__} has no argument {unknown[0]!r}{meant}") from None
        self._alike_in: list[Any] = []  # process groups in which all processes have the same settings
        self._seen = SeenSamples()
        self._unsure_in: list[Any] = []  # process groups whose processes had seen too few samples to compare
        counting = next(each for each in type(self).__mro__ if "update" in vars(each))
        if not str(counting.__module__).startswith("imbtorch."):  # an update may read what states do not show
            self._defaults = UnmergedDefaults()

    @property
    def process_group(self) -> Any | None:
        """Processes to sum over; None for all."""
        return self._group.processes

    @process_group.setter
    def process_group(self, processes: Any | None) -> None:
        self._group = ProcessGroup(processes)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle or copy; a copy compares settings at its own first sync."""
        return super().__getstate__() | {"_alike_in": [], "_unsure_in": []}

    # --- equal settings on all processes ----------------------------------------------------------------------------

    def _settings_text(self) -> str:
        """Return the settings that must be equal on all processes, as text."""
        return f"{type(self).__qualname__} dist_sync_on_step={self.dist_sync_on_step}"

    def _note_samples(self, preds: Tensor, target: Tensor) -> None:
        """Note samples until those of several processes have been compared."""
        if torch.compiler.is_compiling() or not self.distributed_available_fn():  # the cheap questions first
            return
        if not (is_traced(preds) or (self._alike_in and not self._unsure_in) or captures(preds.device)):
            self._seen.add(preds, target)

    def _check_first_sync(
        self, device: torch.device, dist_sync_fn: Callable[..., list[Tensor]] | None, process_group: Any | None
    ) -> tuple[str, bool]:
        """Compare the settings of several processes, once for each process group (a collective step).

        Return what to warn of behind the next collective step, and whether further samples may tell more. The largest
        digest and the largest negative digest are opposite numbers only if all digests are equal.

        Raises:
            RuntimeError: on all processes, if their settings differ or there is no backend for the device of a state.
        """
        initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
        group = process_group or (torch.distributed.group.WORLD if initialized else None)
        alone = dist_sync_fn is None and initialized and torch.distributed.get_world_size(group) == 1
        if alone or any(known is group for known in self._alike_in):
            return "", False
        kinds = backend_devices(group) if dist_sync_fn is None else []
        misplaced = bool(kinds) and device.type not in kinds
        device = torch.device(kinds[0]) if misplaced else device
        text = self._settings_text()
        own, encoded = digest(text), text.encode()
        rank, slots = self._slots(group) if dist_sync_fn is None else (0, [])  # a function can gather one process alone
        numbers = torch.tensor([own, -own, len(encoded), misplaced, *slots], device=device)
        highest, opposite, length, elsewhere, *slots = over_processes(
            numbers, dist_sync_fn, group, largest=True
        ).tolist()
        if elsewhere:
            raise RuntimeError(
                f"{type(self).__name__} is on a device for which its process group has no backend, on this process or "
                f"another one; move it by metric.to({kinds[0]!r}), or make it an attribute of the module that you move"
            )
        if highest != -opposite:  # show the texts of the highest and of the lowest digest, on all processes
            texts = torch.zeros(2, length, dtype=torch.uint8)
            for row, shown in zip(texts, (own == highest, own == -opposite), strict=True):
                row[: len(encoded)] = torch.tensor([*encoded], dtype=torch.uint8) if shown else 0
            rows = over_processes(texts.to(device), dist_sync_fn, group, largest=True).tolist()
            one, another = where_they_differ(*(bytes(row).rstrip(b"\0").decode() for row in rows))
            raise RuntimeError(
                f"{type(self).__name__} is not set up alike on all processes, so that their samples must not be put "
                f"together: on one process it is {one}, on another one {another}. Build it from the same arguments on "
                "every process (class names in the same order)"
            )
        self._alike_in.append(group)
        return same_samples(slots, rank)

    def _slots(self, group: Any | None, **options: int) -> tuple[int, list[int]]:
        """Return the rank of this process in its group, and what it tells the others of its samples."""
        rank = torch.distributed.get_rank(group)
        return rank, self._seen.slots(rank, torch.distributed.get_world_size(group), **options)

    def _warn_of_samples(self, text: str) -> None:
        """Warn of processes that count the same samples."""
        if text:
            warn_caller(f"{type(self).__name__}: {text}, {SAME_SAMPLES}")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for ``items``, which Lightning's ``log_dict`` calls, with a remedy."""
        if name == "items":
            raise AttributeError(
                f"{type(self).__name__} is a single metric and has no items; log it with self.log(name, metric). "
                "self.log_dict takes an ImbalanceReport or a MetricCollection"
            )
        return super().__getattr__(name)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Compute from the states of all processes.

        No cached value and no warning precedes the collective step, since a process that stopped there would leave the
        others waiting.
        """

        @functools.wraps(compute)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with (
                self.sync_context(
                    dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
                ),
                cpu_by_default(),
            ):
                value, self.last_updates = compute(*args, **kwargs), self._update_count
            return value

        return wrapped

    @contextmanager
    def sync_context(
        self,
        dist_sync_fn: Callable[..., list[Tensor]] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        should_unsync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> Generator[None, None, None]:
        """Sync for a ``with`` block; restore this process's state after it, even if the block raises."""
        self.sync(dist_sync_fn, process_group, should_sync, distributed_available)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def _refuse_synced(self) -> None:
        """Raise if the metric is synced, since what it counted now would be lost."""
        if self._is_synced:
            raise TorchMetricsUserError(
                "The metric is synced: it holds the counts of all processes until unsync() restores its own, so that "
                "new counts would be lost; count outside sync_context(), or call unsync() first"
            )

    def __copy__(self) -> SyncedMetric:
        """Copy with a separate state, since two metrics must never share one."""
        return self.clone()  # type: ignore[return-value]

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw a value, a bar for each class, or a line of values over epochs.

        Args:
            val: value of ``compute`` or ``forward``, or a sequence of them; by default ``compute()``.
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
            name=type(self).__name__ + ", weighted" * getattr(self, "weighted", False),
            value_range=(self.plot_lower_bound, self.plot_upper_bound),
            item="Label" if getattr(self, "task", None) == "multilabel" else "Class",
        )


class SummedState(SyncedMetric):
    """Base of the metrics whose only state is one flat tensor that sums over batches and processes.

    The state keeps its address in update, reset and compute, so that updates cost O(batch) and can be captured in a
    CUDA graph. torchmetrics shares states by reference (compute groups, wrappers). This class therefore records whether
    it owns its tensor and whether other objects hold it, and copies it before it would change another metric's counts.

    ``metric_state`` and ``state_dict`` return copies. A state that other objects hold cannot be captured in a CUDA
    graph: ``update`` and ``forward`` raise. If you capture an update first and share the state afterwards (in a
    ``MetricCollection`` with compute groups, or by reading the attribute of its name) or move the metric to another
    device, ``reset`` takes another tensor and replays count into the old one: capture again.

    Args:
        name: attribute that returns the state. Metrics that count differently need different names, since torchmetrics'
            ``MetricCollection`` merges metrics whose states have equal names and first values.
        length: number of cells.
        cell: dtype of the cells, int64 or, for weights, float64.
        kwargs: arguments of :class:`torchmetrics.Metric`.
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, name: str, length: int, cell: torch.dtype = torch.int64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name = f"counts_{name}"
        # add_state would keep a second tensor of the same size as default; a broadcast zero needs no memory
        self._defaults[name] = torch.zeros((), dtype=cell).expand(length)
        self._persistent[name] = False
        self._reductions[name] = dim_zero_sum
        self._state_name = name
        self._local: tuple[Tensor, bool, bool] | None = None  # state of this process while the metric is synced
        self._leads = False  # True if a collection makes the current update for all metrics of the group
        self._bind(_zeros(length, cell))
        self._device = self._state.device  # torchmetrics before 1.9 does not ask for the default device
        self._note_change()

    # --- ownership of the tensor ------------------------------------------------------------------------------------

    def _bind(self, state: Tensor) -> None:
        """Use a tensor that no other object holds as the state."""
        self._state, self._owned, self._lent = _normal(state), True, False

    def _writable(self, exclusive: bool) -> Tensor:
        """Return the state for writing; copy it first if another metric counts in the same tensor.

        Args:
            exclusive: copy the state also if other objects merely hold it, so that they do not see the change. The
                members of a compute group must see the updates of their leader (:attr:`_leads`) and no other change.
        """
        self._refuse_synced()
        if self._lent and captures(self._state.device):
            raise RuntimeError(
                f"the state of {type(self).__name__} is shared with other objects, such as the compute group of a "
                "MetricCollection, so that a CUDA graph would go on counting in a tensor that the metric gives up; "
                "capture a clone(), or a MetricCollection(..., compute_groups=False)"
            )
        # In torchmetrics, two MulticlassConfusionMatrix in a collection that counted 30 samples share one tensor. If
        # both are then updated separately with 60 more, each holds 150 samples instead of 90.
        if not self._owned or (exclusive and self._lent):
            self._bind(self._state.clone())
        return self._state

    def __getattr__(self, name: str) -> Any:
        """Return the state under its name; from then on other objects may hold it."""
        if name == self.__dict__.get("_state_name"):
            self._lent = True
            return self._state
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Accept a state from outside, such as a compute group's reference; later updates copy it first."""
        if name != self.__dict__.get("_state_name"):
            super().__setattr__(name, value)
            return
        if misfit := self._misfit(value):
            raise ValueError(misfit)
        if self._is_synced:  # a collection may set it; it is this process's own state, which unsync restores
            self._local = value, False, True
        else:
            self._state, self._owned, self._lent = value, False, True
        self._note_change()

    @property
    def metric_state(self) -> dict[str, list[Tensor] | Tensor]:
        """Copy of the state of this process, by its name."""
        return {self._state_name: self._state.clone()}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return a copy of the state, if ``persistent(True)`` asked for it; arguments as in torch."""
        lent = self._lent
        saved = super().state_dict(*args, **kwargs)
        self._lent = lent  # torchmetrics reads the state by its name and copies it
        return saved

    def _completed(self, value: Any) -> Any:
        """Return a state from outside with the cells that older versions did not keep."""
        return value

    def _misfit(self, value: object) -> str:
        """Describe the error in a state from outside; return an empty text if it fits."""
        if isinstance(value, Tensor) and value.dtype == self._state.dtype and value.shape == self._state.shape:
            plain = value.layout == torch.strided and not (value.is_meta and not self._state.is_meta)
            return "" if plain else f"state {self._state_name!r} must be a dense tensor with values"
        got = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        kind = str(self._state.dtype).removeprefix("torch.")
        return f"state {self._state_name!r} must be {kind} {list(self._state.shape)}, got {got}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle, and copy a state in memory that another process shares."""
        super().__setstate__(state)
        shared = not self._state.is_cpu or self._state.is_shared()  # type: ignore[no-untyped-call]
        self.__dict__["_state"] = _normal(self._state.clone() if shared else self._state)

    def __hash__(self) -> int:
        """Hash by identity; torchmetrics' hash would change when the state is replaced."""
        return hash((type(self).__name__, id(self)))

    # --- reset, move, merge and load --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Set all counts to zero, in place unless another object holds the tensor."""
        self._unsync_state()
        self._seen.clear()
        self._update_count = 0
        self._forward_cache: Any = None
        self._note_change()
        if self._owned and not self._lent:
            self._state.zero_()
        else:
            self._bind(torch.zeros_like(self._state))
        self._empty = True

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], exclude_state: Any = (), recurse: bool = True
    ) -> torch.nn.Module:
        """Move the counts to another device; they keep their dtype."""
        super()._apply(fn, exclude_state=(self._state_name,))
        probe = fn(torch.zeros(1, dtype=torch.int64, device=self._state.device))
        check_cell(self._state.dtype, probe.device)
        if self._state.is_meta and not probe.is_meta:  # to_empty: there are no counts yet
            self._bind(torch.zeros(self._state.shape, dtype=self._state.dtype, device=probe.device))
        elif probe.device != self._state.device:
            self._bind(self._state.to(probe.device))
        if probe.device.type == "cpu" and probe.is_shared():  # type: ignore[no-untyped-call]
            self._state.share_memory_()  # type: ignore[no-untyped-call]
        return self

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the counts of another metric with the same settings, or of its ``metric_state``, which holds no names.

        Raises:
            ValueError: for another class of metric, or for counts with other settings (task, classes, threshold, ...)
                or names of classes, labels or groups of samples, also in another order.
        """
        if isinstance(incoming_state, SummedState):
            if type(incoming_state) is not type(self):
                raise ValueError(f"cannot merge {type(incoming_state).__name__} into {type(self).__name__}")
            if differ := self._other_names(incoming_state._names()):
                raise ValueError(f"cannot merge counts of other {differ}; build both with the same names")
            counted, updates = {incoming_state._state_name: incoming_state._state}, incoming_state._update_count
        elif isinstance(incoming_state, dict):
            counted, updates = incoming_state, 1
        else:
            raise ValueError(f"incoming_state must be a dict or a {type(self).__name__}, got {type(incoming_state)}")
        self._reduce_states(counted)
        self._note_change()
        self._update_count += updates

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        if self._state_name not in incoming_state:
            raise ValueError(
                f"cannot merge counts of {sorted(incoming_state)} into {self._state_name!r}; build both metrics with "
                "the same arguments"
            )
        incoming = self._completed(incoming_state[self._state_name])
        if misfit := self._misfit(incoming):
            raise ValueError(misfit)
        self._writable(exclusive=True).add_(incoming.to(self._state.device))

    def _names(self) -> dict[str, list[str]]:
        """Return the names that give the counts their meaning, by argument; without those that are indices."""
        return {}

    def _other_names(self, saved: object, arguments: Sequence[str] = ("class_names", "groups")) -> str:
        """Describe names of other counts that differ from those of this metric; counts without names may be any."""
        for argument, own in self._names().items():
            other = saved.get(argument, own) if isinstance(saved, dict) and argument in arguments else own
            if other != own:
                one, another = where_they_differ(str(own), str(other))
                return f"{argument}: {another}, where this {type(self).__name__} has {one}"
        return ""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Add the names to the metadata of a state dict, where no key tells of them."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata") and (names := self._names()):
            destination._metadata.setdefault(prefix[:-1], {})["names"] = names

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copy a saved state into the tensor; refuse a state with other settings or names."""
        for key in [key for key in state_dict if key.startswith(f"{prefix}counts_")]:
            value = self._completed(state_dict.pop(key))
            if key != prefix + self._state_name:
                remedy = "build the metric with the arguments of the saved one"
                if f"{key}_clusters" == prefix + self._state_name:
                    remedy = "a metric with clusters=False counts like the saved one"
                error_msgs.append(
                    f"{key} counts differently from this {type(self).__name__}, whose state is {self._state_name!r}; "
                    f"{remedy}; or remove its state from the checkpoint"
                )
            elif misfit := self._misfit(value):
                error_msgs.append(misfit)
            elif differ := self._other_names(local_metadata.get("names")):
                error_msgs.append(
                    f"{key} holds counts of other {differ}; build the metric with the names of the saved one, or "
                    "remove its state from the checkpoint"
                )
            elif not bool((value.isfinite() & (value >= 0)).all()):
                error_msgs.append(f"{key} holds counts below 0 or not finite, which no update gives")
            else:
                self._writable(exclusive=True).copy_(value)
                self._note_change()
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    # --- update and compute -----------------------------------------------------------------------------------------

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        """Count an update only if it succeeds, without the gradient bookkeeping of torchmetrics."""

        @functools.wraps(update)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            self._refuse_synced()
            self.__dict__["_leads"] = self._lent and updated_by_collection()
            update(*args, **kwargs)
            self._note_update()

        return wrapped

    def _note_update(self) -> None:
        """Count an update without ``Module.__setattr__``, whose checks cost as much as counting a small batch."""
        # a compiled graph that read the number would be compiled again for each update
        count = 1 if torch.compiler.is_compiling() else self._update_count + 1
        self.__dict__.update(_update_count=count, **CHANGED)

    def _note_change(self) -> None:
        """Note that the counts may no longer be zero, and may differ from those of the last computed value.

        The flags are set here but not read, so that a compiled step does not depend on them.
        """
        self.__dict__.update(CHANGED)

    def _distributed(self) -> bool:
        """Return whether several processes count together."""
        return bool(self.distributed_available_fn())

    # --- several processes ------------------------------------------------------------------------------------------

    def sync(
        self,
        dist_sync_fn: Callable[..., list[Tensor]] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Replace this process's counts by the sum over all processes.

        Args:
            dist_sync_fn: function that gathers a tensor from all processes, called as ``fn(tensor, group=...)``; by
                default one ``all_reduce`` sums without gathering.
            process_group: processes to sum over; by default those of the metric, or all.
            should_sync: False to do nothing.
            distributed_available: function that returns whether several processes run.

        Raises:
            TorchMetricsUserError: if the metric is synced already.
            RuntimeError: on all processes, if their settings differ.
        """
        if self._is_synced and should_sync:
            raise TorchMetricsUserError("The Metric has already been synced.")
        available = distributed_available or self._distributed
        if not should_sync or not available():
            return
        total = self._summed(self._state, dist_sync_fn, process_group)
        self._local = self._state, self._owned, self._lent
        self._state, self._owned, self._lent = total, True, False
        self._is_synced = True

    def _settings_text(self) -> str:
        return f"{super()._settings_text()} {self._state_name} {self._state.dtype} {list(self._state.shape)}"

    def _summed(
        self, state: Tensor, dist_sync_fn: Callable[..., list[Tensor]] | None, process_group: Any | None
    ) -> Tensor:
        """Return the sum of a tensor over all processes, as a new tensor; raise if their settings differ.

        If the first sync of a group comes after too few samples, as in Lightning's sanity check, the next ones compare
        them in the same collective step.
        """
        group = process_group or self.process_group
        text, unsure = self._check_first_sync(state.device, dist_sync_fn, group)
        if dist_sync_fn is not None or not any(each is group for each in self._unsure_in):
            total = over_processes(state, dist_sync_fn, group)
        else:
            rank, slots = self._slots(group, empty=0)
            carried = torch.tensor(slots, device=state.device).view(state.dtype)
            both = over_processes(torch.cat((state, carried)), None, group)
            total = both[: len(state)]
            text, unsure = same_samples(both[len(state) :].view(torch.int64).tolist(), rank)
        self._unsure_in = [each for each in self._unsure_in if each is not group] + [group] * unsure
        self._warn_of_samples(text)
        return total

    def unsync(self, should_unsync: bool = True) -> None:
        """Restore this process's own counts.

        Raises:
            TorchMetricsUserError: if the metric is not synced.
        """
        if not should_unsync:
            return
        if not self._is_synced:
            raise TorchMetricsUserError("The Metric has already been un-synced.")
        self._unsync_state()

    def _unsync_state(self) -> None:
        if self._local is not None:
            self._state, self._owned, self._lent = self._local
        self._local = None
        self._is_synced = False


def over_processes(
    own: Tensor, dist_sync_fn: Callable[..., list[Tensor]] | None, group: Any | None, largest: bool = False
) -> Tensor:
    """Return the sum or the maximum of a tensor over all processes, by a function that gathers or by ``all_reduce``."""
    if dist_sync_fn is not None:
        gathered = torch.stack(dist_sync_fn(own, group=group))
        return gathered.amax(0) if largest else gathered.sum(0)
    own, operation = own.clone(), torch.distributed.ReduceOp.MAX if largest else torch.distributed.ReduceOp.SUM
    torch.distributed.all_reduce(own, operation, group=group)
    return own


def backend_devices(group: Any | None) -> list[str]:
    """Return the types of devices for which a process group has a backend; nothing where torch does not know them."""
    try:
        config = torch.distributed.get_backend_config(group)  # such as "cpu:gloo,cuda:nccl"
    except (TypeError, ValueError):  # a group of another package, or one without this process
        return []
    return [backend.partition(":")[0] for backend in config.split(",")]


def where_they_differ(*texts: str) -> list[str]:
    """Return the parts of texts that begin shortly before the first difference."""
    differences = (at for at, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    start = max(0, next(differences, min(map(len, texts))) - SHOWN // 2)
    return [f"{'... ' * (start > 0)}{text[start:][:SHOWN]}{' ...' * (len(text) > start + SHOWN)}" for text in texts]


def captures(device: torch.device) -> bool:
    """Return whether a CUDA graph is captured at the moment."""
    return not torch.compiler.is_compiling() and device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _normal(state: Tensor) -> Tensor:
    """Return a tensor that can be changed outside ``inference_mode``, even if it was created inside."""
    with torch.inference_mode(False):
        return state.clone() if state.is_inference() else state


def check_cell(cell: torch.dtype, device: torch.device) -> None:
    """Raise if a device does not support the dtype of the counts, or cannot count in this version of torch."""
    if cell == torch.float64 and not has_float64(device):
        raise ValueError(
            f"weighted=True counts in float64, which the device {device} does not have; keep the metric on the CPU and "
            "give it preds.cpu(), target.cpu() and weight.cpu()"
        )
    if device.type == "mps" and torch.__version__ < "2.9":
        raise RuntimeError(
            f"torch {torch.__version__} cannot count on the device {device}, where its index_add_ refuses integers; "
            "install torch 2.9 or later, or keep the metric on the CPU and give it preds.cpu() and target.cpu()"
        )


def _zeros(length: int, cell: torch.dtype) -> Tensor:
    """Return a new state; raise an error with its size if it does not fit in memory."""
    check_cell(cell, torch.get_default_device())
    try:
        return torch.zeros(length, dtype=cell)
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(
            f"the counts take {8 * length / 1e9:,.1f} GB, which this device does not have; for measures that do not "
            "need the matrix, state='margins' keeps three numbers a class"
        ) from error
