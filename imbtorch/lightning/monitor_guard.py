"""Stops a training whose callbacks would keep the worst epoch of a logged metric."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils._pytree import tree_leaves
from torch.utils.data.distributed import DistributedSampler

from imbtorch.lightning.base import Callback, is_fitting
from imbtorch.metrics.base import CountsMetric
from imbtorch.metrics.shared import ReportedValue, SharedResult
from imbtorch.metrics.state import SyncedMetric
from imbtorch.sampler import ExactBatchSampler

__all__ = ["MonitorGuard"]

LoggedMetric: TypeAlias = SyncedMetric | ReportedValue
# what Lightning says of every DistributedSampler, whether it repeats samples or not, before it builds ours around it
LIGHTNINGS_WARNING = r"Using `DistributedSampler` with the dataloaders\. During `trainer\.(validate|test)\(\)`"


class _Guard:
    """What the guard does, whichever Lightning package calls it."""

    def __init__(self) -> None:
        super().__init__()
        self._already_warned: set[str] = set()
        self._filters: list[Any] = []  # of warnings, while Lightning's is kept back
        self._replaces_lightnings_warning = False
        self._updates_before: dict[str, int] = {}  # updates that metrics held when the first batch of an epoch began

    # --- samples that are counted twice -----------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Keep back what Lightning says of the sampler; where samples are counted twice, the guard says so itself."""
        counts = any(isinstance(child, SyncedMetric) for child in pl_module.modules())
        self._replaces_lightnings_warning = counts and stage in ("validate", "test") and self._is_first(trainer)
        if self._replaces_lightnings_warning:
            known = list(warnings.filters)
            warnings.filterwarnings("ignore", LIGHTNINGS_WARNING, UserWarning)
            self._filters = [entry for entry in warnings.filters if entry not in known]

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Let Lightning's warnings through again, now that the loaders are there."""
        self._remove_filters()

    on_test_start = on_validation_start

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let Lightning's warnings through again."""
        self._remove_filters()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let Lightning's warnings through again, where there was nothing to validate."""
        self._remove_filters()

    def _remove_filters(self) -> None:
        active = cast("list[Any]", warnings.filters)
        for entry in self._filters:
            if entry in active:
                active.remove(entry)
        self._filters = []

    def _warn_of_repeated_samples(self, trainer: Any, stage: str, loaders: Any) -> None:
        for sampler in filter(None, map(_padded_sampler, tree_leaves(loaders))):
            samples = len(sampler.dataset)  # type: ignore[arg-type]
            self._warn(
                trainer,
                f"repeated in {stage}",
                f"{stage} counts {sampler.total_size - samples} of {samples} samples twice, because "
                f"DistributedSampler gives all {sampler.num_replicas} processes equally many; of a rare class "
                "that can decide the result. Give the DataLoader batch_sampler=imbtorch.ExactBatchSampler("
                "SequentialSampler(dataset), batch_size) to count each once",
            )

    # --- counts of an epoch before ----------------------------------------------------------------------------------

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """See which metrics hold counts before the first batch."""
        self._before_batch(pl_module, batch_idx)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """See which of them count on."""
        self._after_batch(trainer, pl_module, "training", batch_idx)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """See which metrics hold counts before the first batch."""
        self._before_batch(pl_module, batch_idx, dataloader_idx)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """See which of them count on."""
        self._after_batch(trainer, pl_module, "validation", batch_idx, dataloader_idx)

    on_test_batch_start = on_validation_batch_start

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """See which of them count on."""
        self._after_batch(trainer, pl_module, "test", batch_idx, dataloader_idx)

    def _before_batch(self, module: nn.Module, batch_idx: int, dataloader_idx: int = 0) -> None:
        if batch_idx == 0 and dataloader_idx == 0:
            self._updates_before = {path: metric.update_count for path, metric in _metrics(module)}

    def _after_batch(
        self, trainer: Any, module: nn.Module, stage: str, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx or dataloader_idx or not self._is_first(trainer):
            return
        for path, metric in _metrics(module):
            before = self._updates_before.get(path, 0)
            if 0 < before < metric.update_count:
                self._warn(
                    trainer,
                    f"piled up {path}",
                    f"self.{path} still held {before} earlier updates when this {stage} began, and counts on: its "
                    f"values are of all samples since its last reset, not of this {stage}, and change less and less. "
                    f"Log self.{path} itself, not what its compute() returns, so that Lightning resets it; or call "
                    f"self.{path}.reset() after compute()",
                )

    # --- what is logged and monitored -------------------------------------------------------------------------------

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """A few batches never hold all classes, so do not warn about it."""
        _set_quiet(pl_module, True)

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """From here on classes without targets are worth a warning."""
        _set_quiet(pl_module, False)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what validation logged, for the first time in the sanity check, and the samples that it saw."""
        if is_fitting(trainer):
            self._report_problems(trainer, pl_module)
        if self._replaces_lightnings_warning or (is_fitting(trainer) and any(_logged_metrics(trainer))):
            self._warn_of_repeated_samples(trainer, "validation", trainer.val_dataloaders)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Check the samples that the test saw."""
        if self._replaces_lightnings_warning:
            self._warn_of_repeated_samples(trainer, "test", trainer.test_dataloaders)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Check what the module logged at the end of the last training epoch, after this callback had its turn."""
        self._report_problems(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what training logged."""
        self._report_problems(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Check what the module logged at the end of the last training epoch."""
        self._report_problems(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Check once more before a checkpoint is written."""
        if is_fitting(trainer):
            self._report_problems(trainer, pl_module)

    def _report_problems(self, trainer: Any, pl_module: Any) -> None:
        """Raise about a monitor with the wrong mode; warn about what makes a monitor or a value doubtful."""
        if not self._is_first(trainer):
            return
        metrics = dict(_logged_metrics(trainer))
        _refuse_wrong_modes(trainer, metrics)
        self._warn_of_monitors_without_direction(trainer, metrics)
        self._warn_of_shared_metrics(trainer, metrics)
        self._warn_of_plain_values(trainer, pl_module)

    def _warn_of_monitors_without_direction(self, trainer: Any, metrics: Mapping[str, LoggedMetric]) -> None:
        for who, key, mode in _monitors(trainer):
            if key in metrics and metrics[key].higher_is_better is None:
                taken = "lowest" if mode == "min" else "highest"
                self._warn(
                    trainer,
                    f"no direction of {key} for {who}",
                    f"{who}(monitor={key!r}, mode={mode!r}) takes the {taken} {key!r} for the best, which cannot be "
                    "checked: no direction of it is known to be better. Monitor a measure that has one; a function in "
                    "measures= gets one as (function, True), or False where lower is better",
                )

    def _warn_of_shared_metrics(self, trainer: Any, metrics: Mapping[str, LoggedMetric]) -> None:
        loaders: dict[int, set[str]] = {}
        for name, value in metrics.items():
            if "/dataloader_idx_" in name:
                counter = value.report if isinstance(value, ReportedValue) else value
                loaders.setdefault(id(counter), set()).add(name.rpartition("_")[2])
        if any(len(indices) > 1 for indices in loaders.values()):
            self._warn(
                trainer,
                "shared",
                "one metric or report is logged for several dataloaders, so what stands under each of them is the "
                "value of all their samples; give each dataloader a metric or report of its own",
            )

    def _warn_of_plain_values(self, trainer: Any, module: nn.Module) -> None:
        plain = {name for name, value in _logged(trainer) if isinstance(value, Tensor)}
        for name in sorted(plain & _names_of_metrics(module)) if plain else ():
            self._warn(
                trainer,
                "plain",
                f"{name!r} was logged as a plain value although the module has a metric of that name. Log the metric, "
                "not its value: then it is computed once at the end of the epoch, over all processes, and reset, and "
                "its monitors are checked",
            )

    def _is_first(self, trainer: Any) -> bool:
        """Whether this is the guard to speak, where one was given beside the registered one."""
        return self is next((each for each in trainer.callbacks if isinstance(each, _Guard)), self)

    def _warn(self, trainer: Any, key: str, text: str) -> None:
        """Warn once, on one process."""
        if key not in self._already_warned and trainer.is_global_zero:
            self._already_warned.add(key)
            warnings.warn(text, UserWarning, stacklevel=2)


class MonitorGuard(_Guard, Callback):
    """Raises where a callback or scheduler monitors a logged metric of this package in the wrong direction.

    ``ModelCheckpoint`` and ``EarlyStopping`` default to ``mode="min"``; with ``val_iam`` that keeps the worst epoch.
    The guard compares the mode of everything that has ``monitor`` and ``mode``, and of ``ReduceLROnPlateau``, with
    ``higher_is_better`` of the logged metric: during the sanity check, else at the first end of validation; for
    training keys at the end of the training epoch. It also warns, once each, about

    - a monitored value without a direction, such as dominance or a function of the user's,
    - a value logged in place of the metric,
    - a metric that counts on where an epoch before left off, because nothing resets it,
    - one metric logged for several dataloaders,
    - a ``DistributedSampler`` that repeats samples in validation or test. Lightning's own warning, which comes whether
      samples are repeated or not, is kept back in ``validate`` and ``test`` of modules with metrics of this package.

    Metrics of other packages are left alone.

    Every ``Trainer`` of ``lightning`` or ``pytorch_lightning`` that is made after ``import imbtorch`` has a guard; in
    programs without imbtorch there is none. The environment variable ``IMBTORCH_MONITOR_GUARD=0`` (or false, off, no)
    switches it off.
    """


def lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``lightning`` its guard; see :mod:`imbtorch.lightning.entry_point`."""
    return _guards("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``pytorch_lightning`` its guard; see :mod:`imbtorch.lightning.entry_point`."""
    return _guards("pytorch_lightning")


def _guards(package: str) -> list[Any]:
    switch = os.environ.get("IMBTORCH_MONITOR_GUARD", "").strip().lower()
    return [] if switch in ("0", "false", "off", "no") else [_guard_of(package)]


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


def _logged_metrics(trainer: Any) -> Iterator[tuple[str, LoggedMetric]]:
    """Keys and metrics of this package that the running loop has logged."""
    for name, value in _logged(trainer):
        if isinstance(value, (SyncedMetric, ReportedValue)):
            yield name, value


def _monitors(trainer: Any) -> Iterator[tuple[str, str, str]]:
    """Who monitors which key in which mode."""
    for callback in trainer.callbacks:
        key, mode = getattr(callback, "monitor", None), getattr(callback, "mode", None)
        if isinstance(key, str) and mode in ("min", "max"):
            yield type(callback).__name__, key, mode
    for config in trainer.lr_scheduler_configs:
        if isinstance(config.scheduler, ReduceLROnPlateau) and isinstance(config.monitor, str):
            yield type(config.scheduler).__name__, config.monitor, config.scheduler.mode


def _refuse_wrong_modes(trainer: Any, metrics: Mapping[str, LoggedMetric]) -> None:
    """Raise where the worst value of a logged metric would be taken for the best."""
    for who, key, mode in _monitors(trainer):
        better = metrics[key].higher_is_better if key in metrics else None
        right, direction = ("max", "higher") if better else ("min", "lower")
        if better is not None and mode != right:
            raise ValueError(
                f"{who}(monitor={key!r}) has mode={mode!r}, but of {key!r} {direction} is better, so it would "
                f"act on the worst epoch. Write {who}(monitor={key!r}, mode={right!r}). "
                "(IMBTORCH_MONITOR_GUARD=0 switches this check off.)"
            )


def _padded_sampler(loader: Any) -> DistributedSampler[Any] | None:
    """Sampler of a loader if it repeats samples."""
    batches = getattr(loader, "batch_sampler", None)
    if isinstance(batches, ExactBatchSampler):
        return None
    for sampler in (getattr(loader, "sampler", None), getattr(batches, "sampler", None)):
        if isinstance(sampler, DistributedSampler):
            samples = len(sampler.dataset)  # type: ignore[arg-type]
            return sampler if sampler.total_size > samples else None
    return None


def _metrics(module: nn.Module) -> Iterator[tuple[str, SyncedMetric]]:
    """All metrics of this package that a module has, by the path of their attribute."""
    for path, child in module.named_modules():
        if isinstance(child, SyncedMetric):
            yield path, child


def _names_of_metrics(module: nn.Module) -> set[str]:
    """Names under which the metrics of a module would be logged: those of a report or sweep, else the attribute."""
    names = set()
    for path, metric in _metrics(module):
        names.update(metric.keys() if isinstance(metric, SharedResult) else [path.rpartition(".")[2]])
    return names


def _set_quiet(module: nn.Module, quiet: bool) -> None:
    for child in module.modules():
        if isinstance(child, CountsMetric):
            child.quiet = quiet
