"""Ways around what torchmetrics, Lightning and transformers do not say; each names the lines that it answers to."""

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
# *args, **m0._filter_kwargs(**kwargs))`; then `_compute_groups_create_state_ref` gives all members its state. Nothing
# tells the metric that this update is meant for all of them, and no argument could.
_COLLECTION_UPDATE = MetricCollection.update.__code__


def updated_by_collection() -> bool:
    """Return whether the caller's caller is a ``MetricCollection`` that updates the leader of a compute group."""
    if torch.compiler.is_compiling():
        return False
    caller = sys._getframe(2)
    return caller.f_code is _COLLECTION_UPDATE and bool(caller.f_locals["self"]._groups_checked)


# torchmetrics/metric.py wraps `update` and `compute` of each instance (`self.update = self._wrap_update(self.update)`)
# and MetricCollection calls them for the user, so that no fixed `stacklevel` finds the user's line.
_PASSED = (
    f"{Path(__file__).parent.parent}{os.sep}",
    f"{Path(inspect.getfile(Metric)).parent}{os.sep}",
    contextlib.__file__,
)


def warn_caller(text: str) -> None:
    """Warn at the line that called into this package or torchmetrics, however deep the warning arises."""
    caller, level = sys._getframe(1), 2
    while caller.f_back is not None and caller.f_code.co_filename.startswith(_PASSED):
        caller, level = caller.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


# --- Lightning ------------------------------------------------------------------------------------------------------


# lightning/pytorch/trainer/connectors/data_connector.py, `_resolve_sampler` in validation and test: `rank_zero_warn(
# "Using `DistributedSampler` with the dataloaders. During `trainer.{mode}()`, ...")` comes for each DistributedSampler,
# whether it repeats samples or not, between two hooks: a `with` block of warnings cannot enclose it.
LIGHTNINGS_SAMPLER_WARNING = r"Using `DistributedSampler` with the dataloaders\. During `trainer\.(validate|test)\(\)`"


def ignore_warnings(message: str) -> list[Any]:
    """Ignore user warnings until :func:`stop_ignoring` is called with what this returns."""
    known = list(warnings.filters)
    warnings.filterwarnings("ignore", message, UserWarning)
    return [entry for entry in warnings.filters if entry not in known]


def stop_ignoring(entries: list[Any]) -> None:
    """Let warnings through again, leaving the filters that others have set meanwhile."""
    active = cast("list[Any]", warnings.filters)
    for entry in entries:
        if entry in active:
            active.remove(entry)


# lightning/pytorch/utilities/model_helpers.py, `is_overridden`: `elif isinstance(instance, pl.Callback)`, else it
# raises. Each of `lightning` and `pytorch_lightning` has a Callback of its own and, in older versions, takes no other.
def callback_of(package: str, behaviour: type, name: str) -> Any:
    """Make a callback of one of Lightning's two packages that behaves as a class says; launchers can pickle it."""
    base = importlib.import_module(package).Callback
    return type(name, (behaviour, base), {"__reduce__": lambda self: (callback_of, (package, behaviour, name))})()


# --- transformers ---------------------------------------------------------------------------------------------------


# transformers/trainer.py, `evaluation_loop` with `batch_eval_metrics`: `metrics = self.compute_metrics(EvalPrediction(
# ...), compute_result=is_last_step)` says which batch is the last but not which is the first, and after an exception no
# last one comes. The frame of the loop is another one in each evaluation.
def evaluation_of_transformers() -> FrameType | None:
    """Return the frame of the function of transformers that called, however indirectly; None where none did."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("transformers."):
        frame = frame.f_back
    return frame
