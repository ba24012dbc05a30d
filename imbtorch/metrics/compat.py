"""Workarounds for torchmetrics, Lightning and transformers; comments quote the lines that make them necessary."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
from torchmetrics import Metric, MetricCollection

__all__ = [
    "callback_of",
    "evaluation_of_transformers",
    "ignore_warnings",
    "stop_ignoring",
    "updated_by_collection",
    "warn_caller",
]

# --- torchmetrics ---------------------------------------------------------------------------------------------------

# torchmetrics/collections.py, MetricCollection.update: "only update the first member" of a compute group, `m0.update(
# *args, **m0._filter_kwargs(**kwargs))`; then `_compute_groups_create_state_ref` gives all members its state. No
# argument tells the metric that this update is for all of them.
_COLLECTION_UPDATE = MetricCollection.update.__code__


def updated_by_collection() -> bool:
    """Return whether the caller's caller is a ``MetricCollection`` that updates the first member of a group."""
    if torch.compiler.is_compiling():
        return False
    caller = sys._getframe(2)
    return caller.f_code is _COLLECTION_UPDATE and bool(caller.f_locals["self"]._groups_checked)


# torchmetrics/metric.py wraps `update` and `compute` of each instance (`self.update = self._wrap_update(self.update)`)
# and MetricCollection calls them for the user, so that no fixed `stacklevel` points to the user's line.
_PASSED = (
    f"{Path(__file__).parent.parent}{os.sep}",
    f"{Path(inspect.getfile(Metric)).parent}{os.sep}",
    contextlib.__file__,
)


def warn_caller(text: str) -> None:
    """Warn at the user's line that called this package or torchmetrics, at any depth of calls."""
    caller, level = sys._getframe(1), 2
    while caller.f_back is not None and caller.f_code.co_filename.startswith(_PASSED):
        caller, level = caller.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


# --- Lightning ------------------------------------------------------------------------------------------------------


# lightning/pytorch/trainer/connectors/data_connector.py, `_resolve_sampler` in validation and test: `rank_zero_warn(
# "Using `DistributedSampler` with the dataloaders. During `trainer.{mode}()`, ...")` warns of every DistributedSampler,
# even one that repeats no samples. It does so between two hooks, so that no `with` block can catch the warning.
LIGHTNINGS_SAMPLER_WARNING = r"Using `DistributedSampler` with the dataloaders\. During `trainer\.(validate|test)\(\)`"


def ignore_warnings(message: str) -> list[Any]:
    """Ignore user warnings until :func:`stop_ignoring` is called with the returned filters."""
    known = list(warnings.filters)
    warnings.filterwarnings("ignore", message, UserWarning)
    return [entry for entry in warnings.filters if entry not in known]


def stop_ignoring(entries: list[Any]) -> None:
    """Show warnings again; filters that others have set in the meantime stay."""
    active = cast("list[Any]", warnings.filters)
    for entry in entries:
        if entry in active:
            active.remove(entry)


# lightning/pytorch/utilities/model_helpers.py, `is_overridden`: `elif isinstance(instance, pl.Callback)`, else it
# raises. `lightning` and `pytorch_lightning` each have their own Callback and, in older versions, accept no other.
def callback_of(package: str, behaviour: type, name: str) -> Any:
    """Make a callback for one of Lightning's two packages with the behaviour of a class; launchers can pickle it."""
    base = importlib.import_module(package).Callback
    return type(name, (behaviour, base), {"__reduce__": lambda self: (callback_of, (package, behaviour, name))})()


# --- transformers ---------------------------------------------------------------------------------------------------


# transformers/trainer.py, `evaluation_loop` with `batch_eval_metrics`: `metrics = self.compute_metrics(EvalPrediction(
# ...), compute_result=is_last_step)` marks the last batch but not the first, and after an exception there is no last
# batch. Each evaluation runs its loop in a new frame, which therefore identifies it.
def evaluation_of_transformers() -> FrameType | None:
    """Return the frame of the transformers function that called this one, directly or not; None without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("transformers."):
        frame = frame.f_back
    return frame
