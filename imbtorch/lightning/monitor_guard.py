"""Guard that stops a training whose callbacks would keep the worst epoch of a logged metric."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_leaves
from torch.utils.data.distributed import DistributedSampler
from torchmetrics import MetricCollection
from torchmetrics.metric import jit_distributed_available
from torchmetrics.wrappers.abstract import WrapperMetric

from imbtorch.compat import (
    LIGHTNINGS_SAMPLER_WARNING,
    callback_of,
    ignore_warnings,
    logged,
    logged_in_training,
    stop_ignoring,
    warn_once,
)
from imbtorch.deciding.rules import LogitAdjustment, Threshold
from imbtorch.lightning.base import Callback, is_fitting, reports, shared_results
from imbtorch.lightning.checkpoint_watcher import CheckpointWatcher
from imbtorch.lightning.loggers import mlflow_problem, names_for_mlflow
from imbtorch.measures.traits import by_any_name
from imbtorch.metrics.base import CountsMetric
from imbtorch.metrics.deciding import DecidingSweep
from imbtorch.metrics.flat_monitors import MANY, Course, is_harmed
from imbtorch.metrics.shared_result import ReportedValue, SharedResult
from imbtorch.metrics.state import SyncedMetric
from imbtorch.sampler import ExactBatchSampler
from imbtorch.suggestions import nearest_name, one_slip_apart

LoggedMetric: TypeAlias = SyncedMetric | ReportedValue
RULES = (LogitAdjustment, Threshold)

WAY_OUT = "(imbtorch.lightning.unguarded(...) around it switches off its checks, IMBTORCH_MONITOR_GUARD=0 all checks.)"
MISSED_NAME = "Early stopping conditioned on metric"  # begin of its error, which may come before the guard looks
REMEDIES = {  # part of an error of Lightning about what a module logged -> its likely cause
    "Could not find the `LightningModule` attribute": "a metric that is logged is no attribute of the module, or was "
    "replaced after it was first logged; build metrics once, in __init__, and only update them in steps",
}
NOT_ONE = "return of the metric logged as"  # part of its error about the metric of several values


class _Guard:
    """Hooks of the guard, for either Lightning package."""

    def __init__(self) -> None:
        super().__init__()
        self._already_warned: set[str] = set()
        self._ignored: list[Any] = []  # filters that suppress a warning of Lightning
        self._replaces_lightnings_warning = False
        self._before: dict[str, int] = {}  # path of a metric -> its updates when fit, validate or test began
        self._held: dict[str, int] = {}  # path of a metric -> its updates when this epoch or evaluation began
        self._updated: dict[str, str] = {}  # path of a metric -> stage whose first batch updated it last
        self._all_counts: set[str] = set()  # paths of the metrics that its first batch updated
        self._compared_names = False
        self._logged_as: dict[str, str | None] = {}  # logged name -> path of the metric that a fit logged first
        self._courses: dict[str, Course] = {}  # monitored name -> its validations in a fit
        self._best: dict[int, int] = {}  # id of a callback -> index of its best validation in a fit
        self._equal: dict[str, set[float]] = {}  # monitored name -> plain numbers that were the value of a report
        self._checkpoints = CheckpointWatcher()

    # --- processes that count together --------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that counts are summed over the right processes, before the first batch."""
        self._check_processes(trainer, pl_module)
        self._warn_of_names_in_mlflow(trainer, pl_module)
        self._logged_as, self._courses, self._best, self._equal = {}, {}, {}, {}
        self._already_warned = {key for key in self._already_warned if not key.startswith("flat ")}
        list(self._checkpoints.newly_kept(trainer))  # what an earlier fit has kept
        for _, sweep in _sweeps(pl_module).values():
            sweep.begin_fit()
        _set_all(pl_module, RULES, "quiet", True)  # until the first validation has chosen

    def _check_processes(self, trainer: Any, module: nn.Module) -> None:
        """Raise if several processes cannot sum their counts; warn if some of them get the same samples."""
        summing = [path for path, metric in _metrics(module) if _sums_over_all(metric)]
        if trainer.world_size == 1 or not summing or not self._is_first(trainer):
            return
        name = f"self.{summing[0]}"
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            raise RuntimeError(
                f"the trainer runs {trainer.world_size} processes, but torch.distributed is not initialized, so that "
                f"{name} would report the samples of one process; use a strategy that initializes it, or build the "
                "metric with a dist_sync_fn and a distributed_available_fn of your own"
            )
        if (copies := _tensor_parallel(trainer)) > 1:
            self._warn(
                trainer,
                "tensor parallel",
                f"{copies} tensor-parallel processes get the same samples, so that {name} counts each sample {copies} "
                "times. Sum over the data-parallel processes: build the metric in configure_model with "
                'process_group=self.device_mesh["data_parallel"].get_group()',
            )

    # --- samples that are counted twice -------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Hide Lightning's warning about the sampler: the guard warns only where samples are counted twice."""
        _set_all(pl_module, DecidingSweep, "decides", stage in ("fit", "validate"))
        self._before = _updates(pl_module)
        counts = any(True for _ in _metrics(pl_module))
        self._replaces_lightnings_warning = counts and stage in ("validate", "test") and self._is_first(trainer)
        if self._replaces_lightnings_warning:
            self._ignored = ignore_warnings(LIGHTNINGS_SAMPLER_WARNING)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Let Lightning's warnings through again, once the loaders are made; check processes if nothing is trained."""
        self._stop_ignoring()
        self._all_counts = set()
        self._note_best(trainer)
        if not is_fitting(trainer):
            self._check_processes(trainer, pl_module)
            self._warn_of_names_in_mlflow(trainer, pl_module)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin as before a validation; watch what reports count if the checkpoint was kept by the value of a sweep."""
        self.on_validation_start(trainer, pl_module)
        if any(sweep.keeps for _, sweep in _sweeps(pl_module).values()):
            for _, metric in _counting_metrics(pl_module):
                metric.watched = []

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Note by which value of a sweep a checkpoint that is tested was kept."""
        if trainer.state.fn != "test":
            return
        states = [each for each in checkpoint.get("callbacks", {}).values() if isinstance(each, dict)]
        kept = [(each["best_model_path"], each["monitor"]) for each in states if each.get("monitor")]
        kept, tested = [each for each in kept if each[0]], str(trainer.ckpt_path)
        there = [each for each in kept if each[0] == tested]  # unless its folder was moved
        by_name = [each for each in kept if os.path.basename(each[0]) == os.path.basename(tested)]
        monitors = {monitor for _, monitor in there or by_name or kept}
        for name, (_, sweep) in _sweeps(pl_module).items():
            sweep.keeps = name if monitors == {name} else sweep.keeps * (monitors == {sweep.keeps})

    def _warn_of_half_adoption(self, trainer: Any, module: nn.Module) -> None:
        """Warn of a test at 0.5 of a checkpoint that was kept by the value at a sweep's threshold, or at its tau."""
        tested = {path: metric for path, metric in _counting_metrics(module) if metric.watched}
        for name, (sweep_path, sweep) in _sweeps(module).items():
            unused = sweep.keeps == name and sweep.rule is not None and not sweep.rule.used
            if unused and tested and all(map(_counted_at_half, tested.values())):
                path, rule = next(iter(tested)), f"{_code(sweep_path)}.rule"
                self._warn(
                    trainer,
                    f"half {name}",
                    f"the checkpoint was kept by {name!r}, the value where {rule} decides, but the test counts the "
                    f"scores without it; write {_code(path)}.update({rule}(scores), target) in test_step",
                )
        for _, metric in _counting_metrics(module):
            metric.watched = None

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let Lightning's warnings through again, also if nothing was validated; let sweeps decide again."""
        self._stop_ignoring()
        _set_all(pl_module, DecidingSweep, "decides", True)
        _set_all(pl_module, RULES, "quiet", False)
        self._held, self._compared_names = {}, False

    def _stop_ignoring(self) -> None:
        stop_ignoring(self._ignored)
        self._ignored = []

    def _warn_of_names_in_mlflow(self, trainer: Any, module: nn.Module) -> None:
        """Warn of names of reports, sweeps and collections that MLflow refuses or takes for one."""
        children: list[tuple[str, Any]] = [*shared_results(module)]
        named = [*(each for each in module.modules() if isinstance(each, MetricCollection)), *dict(children).values()]
        problem = mlflow_problem(trainer.loggers, dict.fromkeys(name for each in named for name in each.keys()))  # noqa: SIM118
        if not problem or not self._is_first(trainer):
            return
        remedies = []
        for path, child in children:
            for argument in ("class_names", "groups", "class_groups"):
                given = list(getattr(child, argument, None) or ())
                if (better := names_for_mlflow(given)) != given:
                    remedies.append(f"build self.{path} with {argument} named {better}")
        kept = "It keeps ASCII letters, digits, '_', '-', '.', ' ' and '/' of names"
        remedy = "; ".join(remedies) or "choose names that differ in these"
        self._warn(trainer, "mlflow", f"{problem}. {kept}: {remedy}")

    def _warn_of_repeated_samples(self, trainer: Any, stage: str, loaders: Any) -> None:
        for loader in tree_leaves(loaders):
            batches = getattr(loader, "batch_sampler", None)
            if isinstance(batches, ExactBatchSampler):
                continue
            for sampler in (getattr(loader, "sampler", None), getattr(batches, "sampler", None)):
                if not isinstance(sampler, DistributedSampler):
                    continue
                samples = len(sampler.dataset)  # type: ignore[arg-type]
                if sampler.total_size > samples:
                    self._warn(
                        trainer,
                        f"repeated in {stage}",
                        f"{stage} counts {sampler.total_size - samples} of {samples} samples twice, because "
                        f"DistributedSampler gives all {sampler.num_replicas} processes equally many; of a rare class "
                        "that can decide the result. Give the DataLoader batch_sampler=imbtorch.ExactBatchSampler("
                        "SequentialSampler(dataset), batch_size) to count each once",
                    )

    # --- counts of an earlier or interrupted epoch --------------------------------------------------------------------

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note which metrics hold counts before the first batch."""
        if batch_idx == 0:
            self._held = _updates(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Warn about metrics that add this batch to earlier counts."""
        if batch_idx == 0:
            self._check_logged_reports(trainer, pl_module)
            self._warn_of_earlier_counts(trainer, pl_module, "training")

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Note which metrics hold counts before the first batch."""
        if batch_idx == dataloader_idx == 0:
            self._held = _updates(pl_module)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Warn about metrics that add this batch to earlier counts."""
        if batch_idx == dataloader_idx == 0:
            self._check_logged_reports(trainer, pl_module)
            self._warn_of_earlier_counts(trainer, pl_module, "test" if trainer.testing else "validation")

    on_test_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end

    def _warn_of_earlier_counts(self, trainer: Any, module: nn.Module, stage: str) -> None:
        for path, updates in _updates(module).items() if self._is_first(trainer) else ():
            before = self._held.get(path, 0)
            if updates <= before:
                continue
            other, self._updated[path] = self._updated.get(path, stage), stage
            self._all_counts.add(path)
            if before and other != stage:
                self._warn(
                    trainer,
                    f"two stages {path}",
                    f"self.{path} was updated in {other} and now in {stage}, without a reset in between, so that its "
                    "values are of the samples of both. Give each stage a metric of its own, such as a clone() of it",
                )
            elif before:
                self._warn(
                    trainer,
                    f"piled up {path}",
                    f"self.{path} still held {before} earlier updates when this {stage} began, and counts on: its "
                    f"values are of all samples since its last reset, not of this {stage}, and change less and less. "
                    f"{self._remedy(trainer, path, before)}",
                )

    def _remedy(self, trainer: Any, path: str, before: int) -> str:
        """Say how to reset a metric that held updates; logging it is no remedy for what an earlier run has left."""
        if before <= self._before.get(path, 0):
            act = getattr(trainer.state.fn, "value", trainer.state.fn)
            return (
                f"An earlier run, such as one that was interrupted, left them: call self.{path}.reset() before {act}()"
            )
        if getattr(trainer, "barebones", False):
            return f"Call self.{path}.reset() after compute(), since barebones=True logs nothing"
        return (
            f"Log self.{path} itself, not what its compute() returns, so that Lightning resets it; or call "
            f"self.{path}.reset() after compute()"
        )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Reset what an interrupted validation or test has updated, but no metric that held counts before it."""
        self._stop_ignoring()
        if NOT_ONE in str(exception) and (text := self._logged_as_one(trainer, pl_module)):
            exception.args = (text,)
        for begin, remedy in REMEDIES.items():
            if begin in str(exception) and any(_metrics(pl_module)):
                self._warn(trainer, begin, remedy)
        if MISSED_NAME in str(exception) and not self._compared_names and self._is_first(trainer):
            for text, _ in _unknown_monitors(trainer, pl_module):
                self._warn(trainer, text, text)
        _set_all(pl_module, DecidingSweep, "decides", True)
        _set_all(pl_module, (CountsMetric, *RULES), "quiet", False)
        for path, metric in _metrics(pl_module):
            if not trainer.training and self._held.get(path) == 0:
                metric.reset()
        self._held = {}

    # --- logged and monitored values ----------------------------------------------------------------------------------

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Hide warnings of classes without targets, which a few batches always have; leave rules as they are."""
        _set_all(pl_module, CountsMetric, "quiet", True)
        _set_all(pl_module, DecidingSweep, "decides", False)

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """Let warnings of classes without targets through again, and let sweeps decide."""
        _set_all(pl_module, CountsMetric, "quiet", False)
        _set_all(pl_module, DecidingSweep, "decides", True)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Hand rules to averaged models; check the values that validation logged, and the samples that it saw."""
        _hand_rules_to_averages(trainer, pl_module)
        self._check_resets(trainer, pl_module)
        if is_fitting(trainer):
            self._check_run(trainer, pl_module)
            if not trainer.sanity_checking:
                _set_all(pl_module, RULES, "quiet", False)
                self._note_values(trainer)
                self._warn_of_flat_values(trainer, pl_module)
                if not self._compared_names:
                    self._check_names(trainer, pl_module)
        elif self._is_first(trainer):
            self._warn_of_shared_metrics(trainer, dict(_logged_metrics(trainer)))
        read = any(metric.last_updates for path, metric in _metrics(pl_module) if path in self._all_counts)
        if self._replaces_lightnings_warning or (is_fitting(trainer) and (read or any(_logged_metrics(trainer)))):
            self._warn_of_repeated_samples(trainer, "validation", trainer.val_dataloaders)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Check the values that the test logged, the samples that it saw, and whether it used the rule."""
        self._warn_of_half_adoption(trainer, pl_module)
        self._check_resets(trainer, pl_module)
        if self._is_first(trainer):
            self._warn_of_shared_metrics(trainer, dict(_logged_metrics(trainer)))
        if self._replaces_lightnings_warning:
            self._warn_of_repeated_samples(trainer, "test", trainer.test_dataloaders)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Check the values that training logged, those of the module's own hook at the next call."""
        self._check_run(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Check what the epoch of training before has logged, once Lightning has computed it."""
        self._check_run(trainer, pl_module)
        self._note_values(trainer)
        self._note_best(trainer)
        self._warn_of_flat_values(trainer, pl_module)

    on_train_end = on_train_epoch_start

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Warn of monitored values that could not choose, and yet chose the kept epoch or the end."""
        self._note_best(trainer)
        self._warn_of_flat_values(trainer, pl_module, ended=True)
        sweeps = _sweeps(pl_module)
        for callback, _, key, _ in _monitors(trainer):
            if key in sweeps and getattr(callback, "best_model_path", None):
                sweeps[key][1].keeps = key

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Check once more before a checkpoint is written."""
        if is_fitting(trainer):
            self._check_run(trainer, pl_module)

    def _check_run(self, trainer: Any, pl_module: Any) -> None:
        """Raise for a monitor with the wrong mode; warn about doubtful monitors and values."""
        if self._is_first(trainer):
            metrics = dict(_logged_metrics(trainer))
            self._check_monitors(trainer, metrics)
            self._warn_of_shared_metrics(trainer, metrics)
            self._warn_of_equal_names(trainer, pl_module, metrics)
            self._warn_of_plain_values(trainer, pl_module)

    def _check_monitors(self, trainer: Any, metrics: Mapping[str, LoggedMetric]) -> None:
        """Raise if a callback would keep the worst value of a logged metric; warn if its direction is unknown."""
        for _, who, key, mode in _monitors(trainer):
            if key not in metrics:
                continue
            better = metrics[key].higher_is_better
            right, direction = ("max", "higher") if better else ("min", "lower")
            if better is None:
                taken = "lowest" if mode == "min" else "highest"
                self._warn(
                    trainer,
                    f"no direction of {key} for {who}",
                    f"{who}(monitor={key!r}, mode={mode!r}) takes the {taken} {key!r} for the best, which cannot be "
                    "checked: no direction of it is known to be better. Monitor a measure that has one; a function in "
                    "measures= gets one as (function, True), or False where lower is better",
                )
            elif mode != right:
                raise ValueError(
                    f"{who}(monitor={key!r}) has mode={mode!r}, but a {direction} {key!r} is better, so it would "
                    f"act on the worst epoch. Write {who}(monitor={key!r}, mode={right!r}). "
                    f"{WAY_OUT}"
                )

    def _check_names(self, trainer: Any, module: nn.Module) -> None:
        """Raise once, after the first validation, for a monitor one slip apart from a logged name; warn if similar."""
        self._compared_names = True
        for text, certain in _unknown_monitors(trainer, module) if self._is_first(trainer) else ():
            if certain:
                raise ValueError(f"{text} {WAY_OUT}")
            self._warn(trainer, text, text)

    # --- values that cannot choose ------------------------------------------------------------------------------------

    def _note_values(self, trainer: Any) -> None:
        """Note for each monitored value of this validation whether it could choose."""
        metrics = dict(_logged_metrics(trainer))
        for key in {key for _, _, key, _ in _monitors(trainer)} & metrics.keys():
            if Course.judges(metrics[key]) and key in trainer.callback_metrics:
                self._courses.setdefault(key, Course(metrics[key])).add(float(trainer.callback_metrics[key]))

    def _note_best(self, trainer: Any) -> None:
        """Note for each callback whether the last validation is its best one so far."""
        changed = {id(checkpoint) for checkpoint in self._checkpoints.newly_kept(trainer)}
        for callback, _, key, _ in _monitors(trainer):
            if key in self._courses and (id(callback) in changed or getattr(callback, "wait_count", None) == 0):
                self._best[id(callback)] = len(self._courses[key].flat) - 1

    def _warn_of_flat_values(self, trainer: Any, module: nn.Module, ended: bool = False) -> None:
        """Warn once of each monitored value that could not choose, if that harms."""
        for callback, who, key, mode in _monitors(trainer) if self._is_first(trainer) else ():
            course = self._courses.get(key)
            waited, patience = (getattr(callback, name, None) for name in ("wait_count", "patience"))
            stopped = waited is not None and patience is not None and waited >= patience
            keeps = stopped or hasattr(callback, "best_model_path")
            if course is None or (ended and not keeps):
                continue
            score = getattr(callback, "best_model_score", getattr(callback, "best_score", None))
            best = self._best.get(id(callback))
            best = course.best_by(None if score is None else float(score)) if best is None and ended else best
            if is_harmed(course.flat, best, ended, stopped):
                what = f"has {'stopped' if stopped else 'kept an epoch'} although {key!r} could not choose"
                if not ended:
                    what = f"has nothing to choose by so far, in {MANY} validations in a row"
                text = f"{who}(monitor={key!r}, mode={mode!r}) {what}: {course.reasons[(best or 0) if ended else -1]}"
                how = _sweep_to_monitor(course, module, trainer.callback_metrics)
                self._warn(trainer, f"flat {key}", f"{text}. {course.remedy(how)}")

    def _check_logged_reports(self, trainer: Any, module: nn.Module) -> None:
        """Raise if a step logs a report or sweep as a single value."""
        if text := self._logged_as_one(trainer, module):
            raise TypeError(text)

    def _logged_as_one(self, trainer: Any, module: nn.Module) -> str:
        """Return what is wrong with a report or sweep that is logged as a single value, also in a collection."""
        paths = {id(child): path for path, child in shared_results(module)}
        for name, result in logged(trainer):
            if id(result.value) in paths:
                call = _call(module, paths[id(result.value)], name)
                return (
                    f"self.log({name!r}) takes a single value, but {type(result.value).__name__} has a value for each "
                    f"name; write {call}"
                )
        return ""

    def _check_resets(self, trainer: Any, module: nn.Module) -> None:
        """Raise if a metric that this evaluation updated was reset after it was logged, before it was computed."""
        counters = {id(_counter_of(value)): name for name, value in _logged_metrics(trainer)}
        for path, metric in _metrics(module):
            if id(metric) in counters and path in self._all_counts and metric.last_updates == 0:
                raise ValueError(
                    f"self.{path} was reset after it was logged and before Lightning computed it, so that "
                    f"{counters[id(metric)]!r} is a value of no samples. Leave out self.{path}.reset(); Lightning "
                    "resets what is logged"
                )

    def _warn_of_shared_metrics(self, trainer: Any, metrics: Mapping[str, LoggedMetric]) -> None:
        loaders: dict[int, set[str]] = {}
        for name, value in metrics.items():
            if "/dataloader_idx_" in name:
                loaders.setdefault(id(_counter_of(value)), set()).add(name.rpartition("_")[2])
        if any(len(indices) > 1 for indices in loaders.values()):
            self._warn(
                trainer,
                "shared",
                "one metric or report is logged for several dataloaders, so that each of their values is of the "
                "samples of all; give each dataloader a metric or report of its own",
            )

    def _warn_of_equal_names(self, trainer: Any, module: nn.Module, metrics: Mapping[str, LoggedMetric]) -> None:
        """Warn if training and validation log two metrics under one name, so that one replaces the other."""
        paths = {id(metric): path for path, metric in _metrics(module)}
        for name, value in metrics.items():
            path = paths.get(id(_counter_of(value)))
            other = self._logged_as.setdefault(name, path)
            if path != other and path in paths.values() and other in paths.values():
                self._warn(
                    trainer,
                    "equal names",
                    f"self.{other} and self.{path} are both logged as {name!r}, so that one replaces the other for "
                    "monitors and loggers; give each a prefix of its own, such as prefix='train_'",
                )

    def _warn_of_plain_values(self, trainer: Any, module: nn.Module) -> None:
        """Warn of values that were logged instead of their metrics, and so are not checked."""
        plain = {name for name, result in logged(trainer) if isinstance(result.value, Tensor)}
        calls = _calls(module) if plain else {}
        names = plain & calls.keys()
        monitors = [(who, key, mode) for _, who, key, mode in _monitors(trainer) if key in names]
        unchecked = "".join(f". Not checked: {who}(monitor={key!r}, mode={mode!r})" for who, key, mode in monitors)
        # training may log plain values before a validation logs the monitored ones, which deserve their own warning
        warning = f"plain values{unchecked}"
        warned = not unchecked and any(each.startswith("plain values") for each in self._already_warned)
        if names and not warned:
            name = monitors[0][1] if monitors else min(names)
            self._warn(
                trainer,
                warning,
                f"{name!r} was logged as a plain value although the module has a metric of that name. Log the metric, "
                f"not its value: write {calls[name]}. Then it is computed once at the end of the epoch, over all "
                f"processes, and reset, and its monitors are checked{unchecked}",
            )
        if getattr(trainer, "validating", False):
            self._check_computed_values(trainer, module, monitors)

    def _check_computed_values(self, trainer: Any, module: nn.Module, monitors: list[tuple[str, str, str]]) -> None:
        """Warn of a monitor in the wrong direction of values that a report computed, once two epochs show it."""
        values = {value.full_name: value for _, each in shared_results(module) for value in each.values()}
        for who, key, mode in monitors:
            if (value := values.get(key)) is None or value.higher_is_better is None:
                continue
            number, right = float(trainer.callback_metrics[key]), "max" if value.higher_is_better else "min"
            last = value.report.last_result
            if last is not None and number == float(last.rows[value.row]) and number not in (0, 0.5, 1):
                self._equal.setdefault(key, set()).add(number)
            if mode != right and len(self._equal.get(key, ())) > 1:  # one number may be equal by chance
                self._warn(
                    trainer,
                    f"mode of {key}",
                    f"{who}(monitor={key!r}, mode={mode!r}) keeps the worst epoch: {key!r} was the value of the report "
                    f"in two epochs, and a {'higher' if right == 'max' else 'lower'} one is better; write "
                    f"mode={right!r}",
                )

    def _is_first(self, trainer: Any) -> bool:
        """Return whether this guard is the first of the trainer: only that one warns and raises."""
        return self is next((each for each in trainer.callbacks if isinstance(each, _Guard)), self)

    def _warn(self, trainer: Any, key: str, text: str) -> None:
        """Warn once, on one process."""
        if trainer.is_global_zero:
            warn_once(self._already_warned, key, text, again=True)


class MonitorGuard(_Guard, Callback):
    """Guard against callbacks and schedulers that monitor a logged metric of this package in the wrong direction.

    ``ModelCheckpoint`` and ``EarlyStopping`` default to ``mode="min"``; with ``val_iam`` that keeps the worst epoch.
    The guard compares the mode of everything that has ``monitor`` and ``mode``, and of ``ReduceLROnPlateau``, with
    ``higher_is_better`` of the logged metric. It raises

    - ``ValueError`` if they disagree: in the sanity check, or at the end of the first validation; for values logged by
      training at the end of the training epoch,
    - ``ValueError`` for a misspelt monitor, such as ``val_iamm``, at the end of the first validation: nothing logged
      it, and a name of this package that was logged differs by a letter, two swapped letters, case or separators,
    - ``ValueError`` for a metric that is reset after it was logged and before Lightning computes it,
    - ``TypeError`` for a report that a step passes to ``self.log``,
    - ``RuntimeError`` for several processes without ``torch.distributed``, which would sum their counts.

    It warns, once each, about

    - a monitored name that nothing has logged and that is only similar, such as ``iam`` for ``val_iam``, or that a
      report logs only if it is built with another measure,
    - a monitored value without a known direction, such as dominance or a function of your own,
    - a monitored value that cannot choose, because one class is predicted for all samples: after a ``fit`` of three
      validations or more that keeps such an epoch, when ``EarlyStopping`` stops by it, and after ten such validations
      in a row; once in each ``fit``,
    - a test at 0.5 of a checkpoint that was kept by the value of a sweep, whose rule was never used,
    - a value logged in place of the metric, with the monitors that therefore cannot be checked,
    - a metric that adds to the counts of an earlier epoch or of another stage, because nothing resets it,
    - two metrics that are logged under one name, and one metric that is logged for several dataloaders,
    - names that MLflow refuses or takes for one, at the start,
    - tensor-parallel processes, which get the same samples, if a metric has no ``process_group``,
    - a ``DistributedSampler`` that repeats samples in validation or test. Lightning's own warning, which comes even if
      no sample is repeated, is suppressed in ``validate`` and ``test`` of modules with metrics of this package.

    Sweeps of the module choose their rule in the validation of ``fit`` and in ``validate``, not in the sanity check, in
    ``test`` and in ``predict``. A rule that nobody chose may be used until the first validation of a ``fit`` has ended.
    At the end of a validation the guard copies the rules into each averaged model of a callback, such as
    ``EMAWeightAveraging``, whose checkpoints then hold them.

    If an exception or Ctrl-C interrupts a validation or test, the guard resets its counts, which belong to no result.
    Metrics of this package are also checked inside those wrappers of torchmetrics that can be logged, such as
    ``Running``. Metrics of other packages are left alone.

    Every ``Trainer`` of ``lightning`` or ``pytorch_lightning`` that is made after ``import imbtorch`` has a guard;
    programs that do not import imbtorch have none. :func:`unguarded` leaves out one callback or scheduler, and the
    environment variable ``IMBTORCH_MONITOR_GUARD=0`` (or false, off, no) switches the guard off.

    Examples:
        >>> import imbtorch, lightning
        >>> quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        >>> trainer = lightning.Trainer(accelerator="cpu", **quiet)
        >>> [type(callback).__name__ for callback in trainer.callbacks if "Guard" in type(callback).__name__]
        ['MonitorGuard']
    """


UNGUARDED = "imbtorch_unguarded"  # attribute of callbacks, which travels with them to other processes
_UNGUARDED_SCHEDULERS: WeakSet[Any] = WeakSet()  # since attributes of schedulers enter their state dict
Monitor = TypeVar("Monitor")


def unguarded(monitor: Monitor) -> Monitor:
    """Return a callback or scheduler that the guard leaves alone, because it acts on its value on purpose.

    Examples are a second checkpoint that keeps the worst epoch, an alarm with ``mode="min"``, and a monitor whose name
    is logged later.

    Args:
        monitor: callback with ``monitor`` and ``mode``, or a ``ReduceLROnPlateau``.

    Returns:
        The same object.

    Raises:
        TypeError: for anything else, such as a class or the name of a value.

    >>> from imbtorch.lightning import ModelCheckpoint
    >>> worst = unguarded(ModelCheckpoint(monitor="val_iam", mode="min"))
    """
    if isinstance(monitor, ReduceLROnPlateau):
        _UNGUARDED_SCHEDULERS.add(monitor)
    elif hasattr(monitor, "monitor") and hasattr(monitor, "mode") and not isinstance(monitor, type):
        setattr(monitor, UNGUARDED, True)
    else:
        raise TypeError(
            "unguarded takes a callback with a monitor, or a ReduceLROnPlateau, got "
            f"{monitor!r}; write unguarded(ModelCheckpoint(monitor=..., mode=...))"
        )
    return monitor


def guards(package: str) -> list[Any]:
    """Return the guard for a Trainer of a package, in a list for its entry point; empty where it is switched off."""
    if os.environ.get("IMBTORCH_MONITOR_GUARD", "").strip().lower() in ("0", "false", "off", "no"):
        return []
    ours = issubclass(MonitorGuard, importlib.import_module(package).Callback)
    return [MonitorGuard() if ours else callback_of(package, _Guard, "MonitorGuard")]


def _logged_metrics(trainer: Any) -> Iterator[tuple[str, LoggedMetric]]:
    """Yield keys and metrics of this package that the running loop has logged, also inside torchmetrics' wrappers."""
    for name, result in logged(trainer):
        if isinstance(result.value, (SyncedMetric, ReportedValue)):
            yield name, result.value
        elif isinstance(result.value, WrapperMetric) and type(result.value).__module__.startswith("torchmetrics."):
            inside = [metric for _, metric in _metrics(result.value)]
            if len({metric.higher_is_better for metric in inside}) == 1:
                yield name, inside[0]


def _counter_of(value: LoggedMetric) -> SyncedMetric:
    """Return the metric that counts: the report of a reported value, or the metric itself."""
    return value.report if isinstance(value, ReportedValue) else value


def _sums_over_all(metric: SyncedMetric) -> bool:
    """Return whether a metric sums over all processes, without processes or functions of the user's choice."""
    default = metric.distributed_available_fn is jit_distributed_available
    return default and metric.sync_on_compute and metric.process_group is None and metric.dist_sync_fn is None


def _tensor_parallel(trainer: Any) -> int:
    """Return the number of processes that share each sample by tensor parallelism; 1 without a mesh of devices."""
    mesh: Any = getattr(trainer.strategy, "device_mesh", None)
    names = getattr(mesh, "mesh_dim_names", None) or ()
    return int(mesh["tensor_parallel"].size()) if "tensor_parallel" in names else 1


def _monitors(trainer: Any) -> Iterator[tuple[Any, str, str, str]]:
    """Yield each callback or scheduler with a monitor, with its name, key and mode; none that is unguarded."""
    for callback in trainer.callbacks:
        key, mode = getattr(callback, "monitor", None), getattr(callback, "mode", None)
        if isinstance(key, str) and mode in ("min", "max") and not getattr(callback, UNGUARDED, False):
            name = type(callback).__name__
            yield callback, "ModelCheckpoint" if name == "TiesCheckpoint" else name, key, mode  # as most import it
    for config in trainer.lr_scheduler_configs:
        scheduler = config.scheduler
        guarded = isinstance(scheduler, ReduceLROnPlateau) and scheduler not in _UNGUARDED_SCHEDULERS
        if guarded and isinstance(config.monitor, str):
            yield scheduler, type(scheduler).__name__, config.monitor, scheduler.mode


def _metrics(module: nn.Module) -> Iterator[tuple[str, SyncedMetric]]:
    """Yield all metrics of this package that a module has, by the path of their attribute."""
    for path, child in module.named_modules():
        if isinstance(child, SyncedMetric):
            yield path, child


def _sweeps(module: nn.Module) -> dict[str, tuple[str, DecidingSweep]]:
    """Return the sweeps of a module, with the path of their attribute, by the names of their values."""
    found = [(path, each) for path, each in shared_results(module) if isinstance(each, DecidingSweep)]
    return {value.full_name: at for at in found for value in at[1].values() if value.row.measure == "value"}


def _counted_at_half(metric: CountsMetric) -> bool:
    """Return whether the batches that were watched held scores, and none of them classes, counted at 0.5."""
    given = getattr(metric, "threshold", 0.5)
    return not any(map(bool, metric.watched or ())) and {*(given if isinstance(given, tuple) else (given,))} == {0.5}


def _counting_metrics(module: nn.Module) -> Iterator[tuple[str, CountsMetric]]:
    """Yield the reports and metrics that count decisions, by the path of their attribute."""
    for path, metric in _metrics(module):
        if isinstance(metric, CountsMetric) and not isinstance(metric, DecidingSweep):
            yield path, metric


def _sweep_to_monitor(course: Course, module: nn.Module, known: Container[str]) -> str:
    """Return how to monitor a sweep of the module, or a new one, given the names that are logged."""
    name, mode, path = f"{getattr(course.counter, 'prefix', '')}sweep_value", "max", "sweep"
    first = (
        f"build self.sweep = {course.sweep(f', prefix={name[:-5]!r}')} in __init__, update it with the scores in "
        "validation_step, log it by self.log_dict(self.sweep), "
    )
    for own, (at, sweep) in _sweeps(module).items():
        if own == sweep["value"].full_name and sweep.task == course.counter.task and sweep.rule is not None:
            name, mode, path = own, "max" if sweep["value"].higher_is_better else "min", at
            first = "" if name in known else f"log it by {_call(module, path, name)}, "
            break
    return f"{first}write monitor={name!r}, mode={mode!r}, and in test_step update with {_code(path)}.rule(scores)"


def _calls(module: nn.Module) -> dict[str, str]:
    """Return the names under which the metrics of a module would be logged, with the call that logs each."""
    calls: dict[str, str] = {}
    for path, metric in _metrics(module):
        names = metric.keys() if isinstance(metric, SharedResult) else [path.rpartition(".")[2]]
        calls |= {name: _call(module, path, name) for name in names}
    return calls


def _call(module: nn.Module, path: str, name: str) -> str:
    """Return the call that logs a metric, given by the path of its attribute; in a collection, the whole collection."""
    metric, outer = module.get_submodule(path), path.rpartition(".")[0]
    if isinstance(module.get_submodule(outer), MetricCollection) and not isinstance(metric, SharedResult):
        return f"self.log_dict({_code(outer)})"
    return f"self.log_dict({_code(path)})" if isinstance(metric, SharedResult) else f"self.log({name!r}, {_code(path)})"


def _code(path: str) -> str:
    """Return the expression for an attribute: members of a list by index, of a dict by key."""
    return "self." + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)


def _unknown_monitors(trainer: Any, module: nn.Module) -> Iterator[tuple[str, bool]]:
    """Yield a text for each unknown monitored name that is like one of this package, and whether it is a slip."""
    metrics = dict(_logged_metrics(trainer))
    if not metrics:
        return
    results = *logged(trainer), *logged_in_training(trainer)
    known = {*trainer.callback_metrics, *_calls(module), *(name for name, _ in results)}
    for _, who, key, mode in _monitors(trainer):
        if key in known:
            continue
        unknown = f"{who}(monitor={key!r}): neither training nor the first validation logged {key!r}"
        slips = [name for name in metrics if one_slip_apart(key, name)]
        if slips:
            better = metrics[slips[0]].higher_is_better
            right = mode if better is None else "max" if better else "min"
            yield f"{unknown}, but {slips[0]!r} was logged. Write {who}(monitor={slips[0]!r}, mode={right!r}).", True
        elif remedy := _reportable(key, module):
            yield f"{unknown}. {remedy}", False
        elif similar := _similar_name(key, metrics):
            yield f"{unknown}; did you mean {similar!r}?", False


def _similar_name(key: str, metrics: Mapping[str, LoggedMetric]) -> str | None:
    """Return the logged value that a monitor may mean: the same name without the report's prefix, or a similar one."""
    for prefix in {metric.report.prefix for metric in metrics.values() if isinstance(metric, ReportedValue)} - {""}:
        names = {name.removeprefix(prefix): name for name in metrics if name.startswith(prefix)}
        near = nearest_name(key.removeprefix(prefix), names) if key.startswith(prefix) else None
        if key in names or near is not None:
            return names[near or key]
    return None


def _reportable(key: str, module: nn.Module) -> str:
    """Return how a report of the module would log a name that it does not log now; empty if it cannot."""
    for path, report in reports(module):
        if not key.startswith(report.prefix) or not key.endswith(report.postfix):
            continue
        measure, _, name = key.removeprefix(report.prefix).removesuffix(report.postfix).partition("/")
        argument = "per_class" if name in report.class_names else "measures"
        if measure in by_any_name() and (name in report.class_names or not name):
            return f"self.{path} logs it if it is built with {argument}=[..., {measure!r}]"
    return ""


def _updates(module: nn.Module) -> dict[str, int]:
    """Count the updates that each metric holds."""
    return {path: metric.update_count for path, metric in _metrics(module)}


def _set_all(module: nn.Module, kinds: type | tuple[type, ...], name: str, value: bool) -> None:
    """Set an attribute of all submodules of some kinds."""
    for child in module.modules():
        if isinstance(child, kinds):
            setattr(child, name, value)


def _hand_rules_to_averages(trainer: Any, module: nn.Module) -> None:
    """Copy the rules of a module into the averaged models of callbacks, which write theirs into checkpoints."""
    rules = {path: child for path, child in module.named_modules() if isinstance(child, RULES)}
    for callback in trainer.callbacks if rules else ():
        for averaged in vars(callback).values():
            if isinstance(averaged, AveragedModel):
                for path, child in averaged.module.named_modules():
                    if path in rules and type(child) is type(rules[path]):
                        child.load_state_dict(rules[path].state_dict())
