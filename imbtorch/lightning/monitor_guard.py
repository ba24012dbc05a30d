"""Stops a training whose callbacks would keep the worst epoch of a logged metric."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils._pytree import tree_leaves
from torch.utils.data.distributed import DistributedSampler

from imbtorch.lightning.base import Callback, is_fitting
from imbtorch.metric import CountsMetric
from imbtorch.named import ReportedValue
from imbtorch.report import ImbalanceReport
from imbtorch.sampler import ExactBatchSampler
from imbtorch.state import SummedState

__all__ = ["MonitorGuard"]


class _Guard:
    """What the guard does, whichever Lightning package calls it."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """A few batches never hold all classes, so do not warn about it."""
        _set_quiet(pl_module, True)

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """From here on classes without targets are worth a warning."""
        _set_quiet(pl_module, False)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what validation logged, for the first time in the sanity check."""
        if is_fitting(trainer):
            self._check(trainer, pl_module)
            self._check_sampler(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Check what the module logged at the end of the last training epoch, after this callback had its turn."""
        self._check(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what training logged."""
        self._check(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what the module logged at the end of the last training epoch."""
        self._check(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Check once more before a checkpoint is written."""
        if is_fitting(trainer):
            self._check(trainer, pl_module)

    def _check(self, trainer: Any, pl_module: Any) -> None:
        """Raise about a monitor with the wrong mode; warn about a metric's value logged in place of the metric."""
        if not self._speaks(trainer):
            return
        better = {}
        plain = set()
        loaders: dict[int, set[str]] = {}
        for name, value in _logged(trainer):
            if isinstance(value, (SummedState, ReportedValue)) and "/dataloader_idx_" in name:
                counter = value.report if isinstance(value, ReportedValue) else value
                loaders.setdefault(id(counter), set()).add(name.rpartition("_")[2])
            if isinstance(value, (SummedState, ReportedValue)) and value.higher_is_better is not None:
                better[name] = value.higher_is_better
            elif isinstance(value, Tensor):
                plain.add(name)
        for who, key, mode in _monitors(trainer):
            if key in better and mode != ("max" if better[key] else "min"):
                right, direction = ("max", "higher") if better[key] else ("min", "lower")
                raise ValueError(
                    f"{who}(monitor={key!r}) has mode={mode!r}, but of {key!r} {direction} is better, so it would "
                    f"act on the worst epoch. Write {who}(monitor={key!r}, mode={right!r}). "
                    "(IMBTORCH_MONITOR_GUARD=0 switches this check off.)"
                )
        if any(len(indices) > 1 for indices in loaders.values()):
            self._warn(
                "shared",
                "one metric or report is logged for several dataloaders, so what stands under each of them is the "
                "value of all their samples; give each dataloader a metric or report of its own",
            )
        for name in sorted(plain & _names_of_metrics(pl_module)) if plain else ():
            self._warn(
                "plain",
                f"{name!r} was logged as a plain value although the module has a metric of that name. Log the metric, "
                "not its value: then it is computed once at the end of the epoch, over all processes, and reset, and "
                "its monitors are checked",
            )

    def _check_sampler(self, trainer: Any) -> None:
        """Warn where validation counts samples twice."""
        if not self._speaks(trainer) or "padded" in self._told:
            return
        if not any(isinstance(value, (SummedState, ReportedValue)) for _, value in _logged(trainer)):
            return
        for loader in tree_leaves(trainer.val_dataloaders):
            batches = getattr(loader, "batch_sampler", None)
            found = (getattr(loader, "sampler", None), getattr(batches, "sampler", None))
            sampler = next((each for each in found if isinstance(each, DistributedSampler)), None)
            if sampler is None or sampler.drop_last or isinstance(batches, ExactBatchSampler):
                continue
            samples = len(sampler.dataset)  # type: ignore[arg-type]
            if sampler.total_size > samples and trainer.is_global_zero:
                self._warn(
                    "padded",
                    f"validation counts {sampler.total_size - samples} of {samples} samples twice, because "
                    f"DistributedSampler gives all {sampler.num_replicas} processes equally many; of a rare class "
                    "that can decide the result. Give the DataLoader batch_sampler=imbtorch.ExactBatchSampler("
                    "SequentialSampler(dataset), batch_size) to count each once",
                )

    def _speaks(self, trainer: Any) -> bool:
        """Whether this is the guard to speak, where one was given beside the registered one."""
        return self is next((each for each in trainer.callbacks if isinstance(each, _Guard)), self)

    def _warn(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            warnings.warn(text, UserWarning, stacklevel=2)


class MonitorGuard(_Guard, Callback):
    """Raises where a callback or scheduler monitors a logged metric of this package in the wrong direction.

    ``ModelCheckpoint`` and ``EarlyStopping`` default to ``mode="min"``; with ``val_iam`` that keeps the worst epoch.
    The guard compares the mode of everything that has ``monitor`` and ``mode``, and of ``ReduceLROnPlateau``, with
    ``higher_is_better`` of the logged metric: during the sanity check, else at the first end of validation; for
    training keys at the end of the training epoch. It also warns, once each, about a value logged in place of the
    metric, one metric logged for several dataloaders, and a padded ``DistributedSampler`` that feeds validation.
    Metrics without a direction, and those of other packages, are left alone.

    Installed with imbtorch into every ``Trainer``, of ``lightning`` and of ``pytorch_lightning``; the environment
    variable ``IMBTORCH_MONITOR_GUARD=0`` switches it off.
    """


def lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``lightning`` its guard (entry point)."""
    return _guards("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``pytorch_lightning`` its guard (entry point)."""
    return _guards("pytorch_lightning")


def _guards(package: str) -> list[Any]:
    return [] if os.environ.get("IMBTORCH_MONITOR_GUARD") == "0" else [_guard_of(package)]


def _guard_of(package: str) -> Any:
    """Guard that is a callback of one of the two packages, and that launchers can pickle."""
    base = importlib.import_module(package).Callback
    if issubclass(MonitorGuard, base):
        return MonitorGuard()
    return type("MonitorGuard", (_Guard, base), {"__reduce__": lambda self: (_guard_of, (package,))})()


def _logged(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Keys and values of what the running loop has logged; nothing where Lightning keeps it elsewhere."""
    results = getattr(trainer, "_results", None)
    for result in results.values() if isinstance(results, dict) else ():
        meta, value = getattr(result, "meta", None), getattr(result, "value", None)
        name = getattr(meta, "name", None)
        if not isinstance(name, str) or value is None:
            continue
        names = [name, f"{name}_step", f"{name}_epoch"] if getattr(meta, "forked", False) else [name]
        index = getattr(meta, "dataloader_idx", None) if getattr(meta, "add_dataloader_idx", False) else None
        for each in names:
            yield each if index is None else f"{each}/dataloader_idx_{index}", value


def _monitors(trainer: Any) -> Iterator[tuple[str, str, str]]:
    """Who monitors which key in which mode."""
    for callback in trainer.callbacks:
        key, mode = getattr(callback, "monitor", None), getattr(callback, "mode", None)
        if isinstance(key, str) and mode in ("min", "max"):
            yield type(callback).__name__, key, mode
    for config in trainer.lr_scheduler_configs:
        if isinstance(config.scheduler, ReduceLROnPlateau) and isinstance(config.monitor, str):
            yield type(config.scheduler).__name__, config.monitor, config.scheduler.mode


def _names_of_metrics(module: nn.Module) -> set[str]:
    """Names under which the metrics of a module would be logged: a report's names, else the attribute."""
    names = set()
    for path, child in module.named_modules():
        if isinstance(child, ImbalanceReport):
            names.update(child.keys())
        elif isinstance(child, SummedState):
            names.add(path.rpartition(".")[2])
    return names


def _set_quiet(module: nn.Module, quiet: bool) -> None:
    for child in module.modules():
        if isinstance(child, CountsMetric):
            child.quiet = quiet
