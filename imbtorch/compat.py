"""Workarounds for torchmetrics, Lightning, transformers and accelerate.

Comments quote the lines that make them necessary. All reads of private attributes and call frames of these packages are
here; classes that inherit from torchmetrics use its protected attributes (``_update_count``, ``_is_synced``) as well.
Tested with torchmetrics 1.7 to 1.9, Lightning 2.4 to 2.6, transformers 5.23 and accelerate 1.15.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, MutableSet
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch

# --- torchmetrics ---------------------------------------------------------------------------------------------------


# torchmetrics/wrappers/tracker.py, MetricTracker.increment: `self.append(deepcopy(self._base_metric))` adds a submodule
# for each step, which a tracker that was just built lacks, so that strict loading refuses what the copies saved.
def is_tracked(key: str, prefix: str) -> bool:
    """Return whether a saved entry belongs to a step of a ``MetricTracker`` whose base metric has the prefix."""
    tracker, base, inside = prefix.partition("_base_metric.")
    return bool(base) and re.fullmatch(rf"{re.escape(tracker)}\d+\.{re.escape(inside)}\w+", key) is not None


# torchmetrics/metric.py wraps `update` and `compute` of each instance (`self.update = self._wrap_update(self.update)`)
# and MetricCollection calls them for the user, so that no fixed `stacklevel` points to the user's line.
_TORCHMETRICS = importlib.util.find_spec("torchmetrics")
_PASSED = (
    f"{Path(__file__).parent}{os.sep}",
    f"{Path(str(_TORCHMETRICS.origin)).parent}{os.sep}" if _TORCHMETRICS else "torchmetrics",
    contextlib.__file__,
)


def warn_caller(text: str, again: bool = False) -> None:
    """Warn at the user's line that called this package or torchmetrics, at any depth of calls.

    Python shows a text once for each line of a process, however many trainings a notebook runs, unless ``again``.
    """
    caller, level = sys._getframe(1), 2
    while caller.f_back is not None and caller.f_code.co_filename.startswith(_PASSED):
        caller, level = caller.f_back, level + 1
    if again:
        warnings.warn_explicit(text, UserWarning, caller.f_code.co_filename, caller.f_lineno)
    else:
        warnings.warn(text, UserWarning, stacklevel=level)


def warn_once(shown: MutableSet[Any], key: Any, text: str, again: bool = False) -> None:
    """Warn as :func:`warn_caller` does, unless the key is among those shown, and add it to them."""
    if key not in shown:
        shown.add(key)
        warn_caller(text, again)


# --- torch ----------------------------------------------------------------------------------------------------------


# torch/_functorch/vmap.py wraps tensors, whose values then raise "data-dependent control flow"; torch.jit.trace,
# torch.compile and make_fx would keep the answer of one batch. No public function tells a wrapped tensor, or a dispatch
# mode that traces.
def is_traced(x: torch.Tensor) -> bool:
    """Return whether a compiler, a trace or a transform such as ``torch.vmap`` follows operations on a tensor."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return True
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._C._len_torch_dispatch_stack())


# torch/jit/_trace.py, `_check_trace`: `fn_outs = run_mod_and_filter_tensor_outputs(func, inputs, "Python function")`
def checks_trace() -> bool:
    """Return whether torch compares a trace with the module that it was made of."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_check_trace":
        frame = frame.f_back
    return frame is not None


# --- processes --------------------------------------------------------------------------------------------------------


def rank_zero() -> bool:
    """Return whether this process has rank 0, so that it logs for all."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"  # some launchers set these to an empty string
    return rank.strip() == "0"


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


# lightning/pytorch/trainer/connectors/logger_connector/result.py: `_ResultCollection(dict)` holds a `_ResultMetric` for
# each `self.log`, also before `trainer.callback_metrics` shows it, with `has_reset` where another loop logged it.
def logged(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and results of what the running loop has logged; nothing if Lightning keeps them elsewhere."""
    yield from _entries(getattr(trainer, "_results", None))


# lightning/pytorch/loops/training_epoch_loop.py: `self._results = _ResultCollection(training=True)`, which
# `trainer._results` does not show during validation.
def logged_in_training(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and results of what this training epoch has logged; nothing if Lightning keeps them elsewhere."""
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    yield from _entries(getattr(loop, "_results", None))


# lightning/pytorch/loops/evaluation_loop.py, `reset`: `self.batch_progress.reset_on_restart()` where a fit resumes in
# the middle of a validation, `self.batch_progress.reset_on_run()` before any other.
def _entries(results: Any) -> Iterator[tuple[str, Any]]:
    for result in results.values() if isinstance(results, dict) else ():
        meta = getattr(result, "meta", None)
        name = getattr(meta, "name", None)
        if not isinstance(name, str) or getattr(result, "value", None) is None:
            continue
        names = [name, f"{name}_step", f"{name}_epoch"] if getattr(meta, "forked", False) else [name]
        index = getattr(meta, "dataloader_idx", None) if getattr(meta, "add_dataloader_idx", False) else None
        for each in names:
            yield each if index is None else f"{each}/dataloader_idx_{index}", result


# lightning/pytorch/callbacks/model_checkpoint.py, `_save_checkpoint`: `self._last_global_step_saved =
# trainer.global_step`.
def step_of_last_save(checkpoint: Any) -> int | None:
    """Return the step at which a checkpoint callback last wrote a file; None if Lightning keeps it elsewhere."""
    return getattr(checkpoint, "_last_global_step_saved", None)


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


# transformers/trainer_callback.py, TrainerState: `global_step: int = 0`, `max_steps: int = 0`
def training_has_ended(evaluation: FrameType | None) -> bool:
    """Return whether the Trainer whose evaluation runs in a frame has taken its last step."""
    state = getattr(evaluation.f_locals.get("self"), "state", None) if evaluation else None
    return 0 < getattr(state, "max_steps", 0) <= getattr(state, "global_step", 0)


# --- accelerate ------------------------------------------------------------------------------------------------------


# accelerate/data_loader.py: `BatchSamplerShard` distributes the batches of `enumerate(self.batch_sampler)` without
# notifying the sampler, so that only the call stack shows it
def dealer_of_accelerate() -> Any | None:
    """Return the shard or dispatcher of accelerate in the call stack that distributes batches, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            owner = frame.f_locals.get("self")
            if type(owner).__name__ in ("BatchSamplerShard", "DataLoaderDispatcher"):
                return owner
        frame = frame.f_back
    return None
