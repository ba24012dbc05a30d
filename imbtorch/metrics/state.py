"""Metric with one flat state that is counted in place and summed over processes by one ``all_reduce``."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, NoReturn, TypeVar, overload

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_sum
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from imbtorch.arguments import refuse_arguments_of_others
from imbtorch.compat import updated_by_collection
from imbtorch.counts import has_float64
from imbtorch.suggestions import did_you_mean

__all__ = ["Setting", "SummedState", "SyncedMetric"]

T = TypeVar("T")
SHOWN = 1000  # characters of the settings that an error shows
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
        raise AttributeError(
            f"{self._name} cannot be changed, since counts or values depend on it; build a new "
            f"{type(metric).__name__} with {self._name}={value!r}{self._remedy}"
        )


def property_names(cls: type) -> list[str]:
    """Return the names of all properties of a class."""
    return [name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, property)]


class SyncedMetric(Metric):
    """Base of the metrics that compute from the states of all processes.

    The first sync in a process group compares the settings of its processes, before states of other lengths or dtypes
    could meet in one collective operation.

    Attributes:
        last_value: value that ``compute`` returned last, also after ``reset``; None before the first.
    """

    last_value: Any = None

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

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle or copy, without process groups, which no other process knows."""
        return super().__getstate__() | {"_alike_in": []}

    # --- equal settings on all processes ----------------------------------------------------------------------------

    def _settings_text(self) -> str:
        """Return the settings that must be equal on all processes, as text."""
        return f"{type(self).__qualname__} dist_sync_on_step={self.dist_sync_on_step}"

    @cached_property
    def _marks(self) -> tuple[int, int, int]:
        """Numbers whose sums over all processes tell whether the settings are alike: 1, h and h squared, h a digest.

        By the Cauchy-Schwarz inequality, the number of processes times the sum of the squares equals the square of the
        sum only if all digests are equal.
        """
        short = digest(self._settings_text()) >> 28  # 20 bits, so that float64 holds the sums of thousands of processes
        return 1, short, short**2

    def _check_marks(self, sums: Tensor) -> None:
        """Raise RuntimeError, on all processes, unless the sums of their marks show equal settings."""
        processes, digests, squares = map(int, sums.tolist())
        if processes * squares != digests**2:
            text = self._settings_text()
            raise RuntimeError(
                f"{type(self).__name__} is not set up alike on all processes, so that their samples must not be put "
                f"together; on this process it is {text[:SHOWN]}{' ...' if len(text) > SHOWN else ''}. Build it from "
                "the same arguments on every process (class names in the same order)"
            )

    def _check_first_sync(
        self, device: torch.device, dist_sync_fn: Callable[..., list[Tensor]] | None, process_group: Any | None
    ) -> None:
        """Compare the settings of several processes, once for each process group (a collective step).

        Raises:
            RuntimeError: on all processes, if their settings differ.
        """
        initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
        group = process_group or (torch.distributed.group.WORLD if initialized else None)
        alone = dist_sync_fn is None and initialized and torch.distributed.get_world_size(group) == 1
        if not alone and not any(known is group for known in self._alike_in):
            self._check_marks(total(torch.tensor(self._marks, device=device), dist_sync_fn, process_group))
            self._alike_in.append(group)

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
            with self.sync_context(
                dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
            ):
                self.last_value = compute(*args, **kwargs)
            return self.last_value

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
            name=type(self).__name__,
            bounds=(self.plot_lower_bound, self.plot_upper_bound),
            item="Label" if getattr(self, "task", None) == "multilabel" else "Class",
        )


class SummedState(SyncedMetric):
    """Base of the metrics whose only state is one flat tensor that sums over batches and processes.

    The state keeps its address in update, reset and compute, so that updates cost O(batch) and can be captured in a
    CUDA graph. torchmetrics shares states by reference (compute groups, wrappers). This class therefore records whether
    it owns its tensor and whether other objects hold it, and copies it before it would change another metric's counts.

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
        self._state, self._owned, self._lent = value, False, True
        self._note_change()

    def _misfit(self, value: object) -> str:
        """Describe the error in a state from outside; return an empty text if it fits."""
        if isinstance(value, Tensor) and value.dtype == self._state.dtype and value.shape == self._state.shape:
            return ""
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
        """Add the counts of another metric with the same settings, or of its ``metric_state``.

        Raises:
            ValueError: for another class of metric, or for counts with other settings (task, classes, threshold, ...).
        """
        if isinstance(incoming_state, SummedState):
            if type(incoming_state) is not type(self):
                raise ValueError(f"cannot merge {type(incoming_state).__name__} into {type(self).__name__}")
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
            raise ValueError(f"cannot merge counts of {sorted(incoming_state)} into {self._state_name!r}")
        incoming = incoming_state[self._state_name]
        if misfit := self._misfit(incoming):
            raise ValueError(misfit)
        self._writable(exclusive=True).add_(incoming.to(self._state.device))

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
        """Copy a saved state into the tensor; refuse a state with other settings."""
        for key in [key for key in state_dict if key.startswith(f"{prefix}counts_")]:
            value = state_dict.pop(key)
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

        The first sync in a process group compares the settings of its processes before.

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
        """Return the sum of a tensor over all processes, as a new tensor.

        Raises:
            RuntimeError: on all processes, if their settings differ.
        """
        group = process_group or self.process_group
        self._check_first_sync(state.device, dist_sync_fn, group)
        summed = total(torch.cat((state, state.new_tensor(self._marks))), dist_sync_fn, group)
        self._check_marks(summed[-3:])
        return summed[:-3]

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


def digest(text: str) -> int:
    """Return a number of 48 bits that differs between texts, and is the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def total(own: Tensor, dist_sync_fn: Callable[..., list[Tensor]] | None, group: Any | None) -> Tensor:
    """Sum a tensor over all processes, by a function that gathers tensors or, without one, in place."""
    if dist_sync_fn is not None:
        return torch.stack(dist_sync_fn(own, group=group)).sum(0)
    torch.distributed.all_reduce(own, group=group)
    return own


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
