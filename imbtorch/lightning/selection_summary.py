"""Table of the epochs that were kept and those that each measure selects, printed at the end of training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from imbtorch.compat import warn_once
from imbtorch.counts import Counts, Margins, rescaled, sums
from imbtorch.deciding.ties import best_first
from imbtorch.intervals.baselines import always_commonest
from imbtorch.lightning.base import Callback, is_fitting, reports, shared_results
from imbtorch.lightning.checkpoint_watcher import CheckpointWatcher
from imbtorch.lightning.loggers import log_figure, log_table
from imbtorch.measures.traits import by_any_name, declared, needs_matrix
from imbtorch.metrics.deciding import DecidingSweep
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.plots import plot_selection
from imbtorch.tables import Cell, Table


@dataclass(frozen=True, eq=False)
class ValidationHistory:
    """Counts and values of M validations; :meth:`SelectionSummary.history` returns it.

    Attributes:
        epochs: M epochs.
        steps: M numbers of optimizer steps that had been taken.
        values: name of a measure -> float64 ``[M]``.
        best: name of a measure with a direction -> indices of its best validations, the one to keep first.

    >>> ValidationHistory((0, 1), (9, 18), {"iam": torch.tensor([0.1, 0.4])}, {"iam": (1,)}, ()).at(epoch=1, step=18)
    1
    """

    epochs: tuple[int, ...]
    steps: tuple[int, ...]
    values: dict[str, Tensor]
    best: dict[str, tuple[int, ...]]
    _entries: Sequence[Mapping[str, Any]]

    @property
    def counts(self) -> dict[str, Counts]:
        """Counts by ``"epoch 3"``, or ``"epoch 3, step 40"`` where an epoch has several validations."""
        ends = (f", step {step}" * (self.unit == "step") for step in self.steps)
        names = (f"epoch {epoch}{end}" for epoch, end in zip(self.epochs, ends, strict=True))
        return dict(zip(names, map(_unpacked, self._entries), strict=True))

    def at(self, epoch: int | None, step: int | None) -> int | None:
        """Return the index of a validation; None if there was none then."""
        places = list(zip(self.epochs, self.steps, strict=True))
        return places.index((epoch, step)) if (epoch, step) in places else None  # type: ignore[arg-type]

    @property
    def unit(self) -> str:
        """``"epoch"``, or ``"step"`` where an epoch had several validations."""
        return "step" if len(set(self.epochs)) < len(self.epochs) else "epoch"


class SelectionSummary(Callback):
    """Table of the epoch that was kept and the one that each measure selects, printed at the end of ``fit``.

    After every validation the callback keeps the counts of a report, summed over all processes. At the end of ``fit``,
    also after Ctrl-C or an exception, rank zero prints :meth:`table`: the value of every measure at the kept epoch, at
    the best epoch of each measure, and of majority-class prediction. Loggers get it as ``<report>_selection_table``
    and, if matplotlib is installed, a picture of all measures over the epochs as ``<report>_selection``.

    Of tied epochs the rows of measures show the one that the first checkpoint callback with a monitor keeps: the latest
    for :class:`TiesCheckpoint`, the earliest for Lightning's own; without such a callback the latest. Values that a
    checkpoint callback monitors get a column even if ``measures`` leaves them out. Checkpoints hold the history, so
    that a resumed run has it from the beginning. The best of many values is too high, because it was selected:
    :func:`imbtorch.statistics.select_epoch` corrects it on predictions that you keep.

    Args:
        report: attribute of the report, such as ``"val"``; by default the only one, or the only one that a callback
            monitors.
        measures: names of values of the report (``"iam"``, ``"recall/cat"``), or of measures that it does not log. A
            measure without a known direction is shown and selects nothing.

    Raises:
        ValueError: for no measures, or one named twice; at the start of ``fit`` for an unknown report or measure, for
            several reports of which none is named or monitored, and for a history of a report that counts otherwise.
        TypeError: for a report or measures that are no names.

    >>> SelectionSummary(measures=["iam", "mcc"]).measures  # Trainer(callbacks=[checkpoint, SelectionSummary()])
    ('iam', 'mcc')
    """

    def __init__(
        self,
        report: str | None = None,
        measures: Sequence[str] = ("iam", "accuracy", "balanced_accuracy", "gmean", "mcc"),
    ) -> None:
        given: object = report
        if not isinstance(given, str | None):
            raise TypeError(
                f"report must be the attribute of a report, such as 'val', and measures=[...], got {given!r}"
            )
        if isinstance(measures, str) or not all(isinstance(name, str) for name in measures):
            raise TypeError(f"measures must be a sequence of names such as ('iam', 'accuracy'), got {measures!r}")
        if not measures or len(set(measures)) < len(measures):
            raise ValueError(f"measures must name one measure or more and none twice, got {list(measures)}")
        self.report, self.measures = report, tuple(measures)
        self._path = ""  # of the report, once it is known
        self._report: ImbalanceReport | None = None
        self._monitored: dict[str, str] = {}  # monitor of a checkpoint callback -> measure of the report
        self._swept: dict[str, bool | None] = {}  # those that are values of sweeps -> direction
        self._columns: dict[str, bool | None] = {}  # measures that were asked for and monitored -> direction
        self._ties: Any = "latest"
        self._validations: list[dict[str, Any]] = []
        self._kept: dict[str, dict[str, Any]] = {}  # state key of a checkpoint callback -> what it kept, and when
        self._watcher = CheckpointWatcher()
        self._before: object = None  # result of the report when the validation began
        self._epoch = 0  # of the last training batch
        self._stage = "fit"  # or "validate", ...
        self._already_warned: set[str] = set()

    # --- state in checkpoints ---------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """Key of the state in checkpoints, by the report: measures and folder may change when a run is resumed."""
        return self._generate_state_key(report=self.report)

    def state_dict(self) -> dict[str, Any]:
        """Return the validations and the epochs of the kept checkpoints, as tensors and plain values."""
        return {"validations": list(self._validations), "kept": {key: dict(kept) for key, kept in self._kept.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the history of a checkpoint for a resumed ``fit``; do nothing in ``validate`` and ``test``."""
        if self._stage == "fit":
            entries = [dict(entry) for entry in state_dict["validations"]]
            self._validations, self._kept = entries, dict(state_dict["kept"])

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the state to a checkpoint that is being written, which may itself be the one that is kept."""
        self._look_at_checkpoints(trainer, trainer.current_epoch)
        checkpoint["callbacks"][self.state_key] = self.state_dict()

    # --- during fit -------------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Drop the history of another run."""
        self._stage = stage
        if stage == "fit" and trainer.global_step == 0:  # a checkpoint is restored after this
            self._validations, self._kept = [], {}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the report and check all names."""
        known, self._already_warned = dict(reports(pl_module)), set()
        if not known:
            raise ValueError("SelectionSummary needs an ImbalanceReport, and the module has none among its children")
        if self.report is not None and self.report not in known:
            choice = f"; to choose the measure write measures=[{self.report!r}]" * (self.report in by_any_name())
            raise ValueError(f"the module has no report {self.report!r}; it has {sorted(known)}{choice}")
        keepers = [each for each in trainer.checkpoint_callbacks if getattr(each, "monitor", None)]
        monitors = {each.monitor for each in (*keepers, *trainer.early_stopping_callbacks)}
        values = [value for _, each in shared_results(pl_module) for value in each.values()]
        swept = {each.full_name: each.row.better for each in values if isinstance(each.report, DecidingSweep)}
        paths = _monitored(known, monitors, swept)
        if self.report is None and len(paths) != 1:
            choose = f"choose one, as in SelectionSummary(report={next(iter(known))!r})"
            raise ValueError(f"the module has several reports ({', '.join(known)}); {choose}")
        self._path = paths[0] if self.report is None else self.report
        self._report = report = known[self._path]
        mine = dict.fromkeys(each.monitor for each in keepers if each.monitor in report.keys())  # noqa: SIM118
        self._swept = {each.monitor: swept[each.monitor] for each in keepers if each.monitor in swept}
        self._monitored = {monitor: replace(report[monitor].row, bound="").name for monitor in mine}
        self._monitored |= {monitor: monitor for monitor in self._swept}
        asked = (report[name].row.name if name in report else name for name in self.measures)
        self._columns = {
            name: report[name].row.better if name in report else declared(report.measure(name), "higher_is_better")
            for name in (*asked, *(self._monitored[monitor] for monitor in mine))
        } | self._swept
        self._ties = getattr(keepers[0], "ties", "earliest") if keepers else "latest"

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note what the checkpoint callbacks kept before a resumed run, and check that its history can be continued."""
        counting = "" if self._report is None else self._report.counting.name
        if self._validations and self._validations[-1]["counting"] != counting:
            raise ValueError(
                f"the report {self._path!r} counts otherwise ({counting}) than the history that the run goes on from "
                f"({self._validations[-1]['counting']}); give it the arguments that it had, or start a new run"
            )
        before, self._kept, self._watcher = self._kept, {}, CheckpointWatcher()
        for checkpoint in self._watcher.newly_kept(trainer):
            kept = before.get(checkpoint.state_key, {})
            if kept.get("path") != checkpoint.best_model_path:  # kept by a run without this callback
                kept = {"path": checkpoint.best_model_path, "epoch": None, "step": None}
            self._kept[checkpoint.state_key] = kept | _rule_of(checkpoint)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note what was kept after the last batch: no step was taken since, though an epoch may have ended."""
        self._look_at_checkpoints(trainer, self._epoch)
        self._epoch = trainer.current_epoch

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Note what was kept after the very last batch."""
        self._look_at_checkpoints(trainer, self._epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember the result computed before, by training for example."""
        self._before = None if self._report is None else self._report.last_result

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the counts that this validation computed, on all processes alike."""
        if self._report is None or not is_fitting(trainer) or trainer.sanity_checking:
            return
        report, result, at = self._report, self._report.last_result, (trainer.current_epoch, trainer.global_step)
        if result is not None and result is not self._before:
            self._validations = [each for each in self._validations if (each["epoch"], each["step"]) != at]
            logged = {name: float(result.values[name]) for name in self._columns if _is_logged(report, name)}
            logged |= {name: float(trainer.callback_metrics.get(name, math.nan)) for name in self._swept}
            entry = {"epoch": at[0], "step": at[1], "counting": report.counting.name, "logged": logged}
            self._validations.append(entry | _packed(result.counts))
        elif trainer.is_global_zero:
            warn_once(
                self._already_warned,
                "missing",
                f"SelectionSummary: self.{self._path} was not computed by validation, so there is no history; call "
                f"self.{self._path}.update(...) in validation_step and self.log_dict(self.{self._path}) in "
                "on_validation_epoch_end",
            )

    def _look_at_checkpoints(self, trainer: Any, epoch: int) -> None:
        """Note the epoch and step of what the checkpoint callbacks have newly kept, in the order of the callbacks."""
        for checkpoint in self._watcher.newly_kept(trainer):
            place = {"path": checkpoint.best_model_path, "epoch": epoch, "step": trainer.global_step}
            self._kept[checkpoint.state_key] = place | _rule_of(checkpoint)
        order = [each.state_key for each in trainer.checkpoint_callbacks]
        self._kept = {key: self._kept[key] for key in order if key in self._kept}

    # --- the end of fit ---------------------------------------------------------------------------------------------

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Print the table of the stored counts, on rank zero alone: the other processes may be gone."""
        if is_fitting(trainer) and trainer.is_global_zero and self._validations:
            self._look_at_checkpoints(trainer, self._epoch)
            print(f"\n{self.table()}", flush=True)  # noqa: T201

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Print, write and log table and picture, on rank zero."""
        if not self._validations or not trainer.is_global_zero:
            return
        table, name, step = self.table(), f"{self._path}_selection", trainer.global_step
        print(f"\n{table}")  # noqa: T201
        loggers = [each for each in trainer.loggers if log_table(each, f"{name}_table", table, step)]
        if not (loggers and find_spec("matplotlib")):
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.5, 4.4 + 0.2 * len(table["selected"])), layout="constrained")
        self.plot(figure.subplots())
        for logger in loggers:
            log_figure(logger, name, figure, step)

    # --- results ----------------------------------------------------------------------------------------------------

    def history(self) -> ValidationHistory:
        """Return counts and values of the validations; never communicates, a RuntimeError before the first one."""
        report = self._report
        if report is None or not self._validations:
            raise RuntimeError("no validation of fit was kept yet, so there is nothing to select from")
        epochs, steps = (tuple(entry[key] for entry in self._validations) for key in ("epoch", "step"))
        values, best, rows = {}, {}, []
        for entry in self._validations:
            counts = _unpacked(entry)
            rows.append([_value(report, name, counts, entry["logged"]) for name in self._columns])
        for name, some in zip(self._columns, torch.tensor(rows, dtype=torch.float64).unbind(1), strict=True):
            values[name], better = some, self._columns[name]
            if better is not None:
                best[name] = tuple(best_first(values[name] if better else -values[name], self._ties))
        return ValidationHistory(epochs, steps, values, best, self._validations)

    def table(self) -> Table:
        """Return the kept epochs and those that the measures select, with every measure at each of them.

        Its block ``"selected"`` has rows such as ``"kept by val_iam"``, ``"kept last"``, ``"best iam"`` and
        ``"Baseline"``, and columns ``"epoch"`` (and ``"step"`` where an epoch had several validations), ``"tied"`` and
        the measures. A RuntimeError before the first validation.
        """
        history, kept = self.history(), _named([*self._kept.values()])
        chosen = [
            (how, one["epoch"], one["step"], self._monitored.get(one["monitor"], "")) for how, one in kept.items()
        ]
        for name, tied in history.best.items():
            epoch, step = (history.epochs[tied[0]], history.steps[tied[0]]) if tied else (None, None)
            chosen.append((f"best {name}", epoch, step, name))
        rows: dict[str, dict[str, Any]] = {}
        for how, epoch, step, measure in chosen:
            at, tied = history.at(epoch, step), history.best.get(measure, ())
            rows[how] = {
                "epoch": math.nan if epoch is None else epoch,
                "step": None if history.unit == "epoch" else math.nan if step is None else step,
                "tied": len(tied) if at in tied and len(tied) > 1 else None,
            }
            for name, values in history.values.items():
                mark = "*" * (at in history.best.get(name, ()))
                rows[how][name] = math.nan if at is None else Cell(values[at].item(), mark=mark)
        notes = [*self._notes(history, kept)]
        called, baseline = self._baseline(history)
        if baseline:
            rows["Baseline"] = {name: baseline.get(name, math.nan) for name in history.values}
            notes.insert(0, f"Baseline: {called}")
        number = len(history.epochs)
        title = f"Kept and best epochs of {number} validation{'s' * (number != 1)} of self.{self._path}"
        return Table({"selected": rows}, tuple(notes), f"{title} (epochs count from 0; * best of all epochs)")

    def _notes(self, history: ValidationHistory, kept: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Yield what is to be read beside the numbers."""
        if any(len(places) > 1 for places in history.best.values()):
            yield f"tied: number of {history.unit}s that share the best value; best rows show the {self._ties} of them"
        undirected = [name for name in history.values if name not in history.best]
        if undirected:
            yield f"{', '.join(undirected)}: no direction is known, so no epoch is selected"
        for how, one in kept.items():
            if one["epoch"] is None:
                yield f"{how}: kept by a run before this history, so its epoch is not known"
            elif history.at(one["epoch"], one["step"]) is None:
                yield f"{how}: the weights of step {one['step']} were not validated"
        if len(history.epochs) > 1:
            yield "The best of several values is too high, because it was selected; report its value on test data"

    def _baseline(self, history: ValidationHistory) -> tuple[str, dict[str, float]]:
        """Return the name of majority-class prediction and its values, at the targets of the last validation."""
        report, counts = self._report, _unpacked(self._validations[-1])
        if report is None or not bool(sums(counts).actual.any()):
            return "", {}
        if report.prevalence is not None:
            counts = rescaled(counts, report.counting.checked_prevalence(report.prevalence))
        name, counts = always_commonest(counts, report.class_names)
        return name, {each: _value(report, each, counts, dict.fromkeys(self._swept, math.nan)) for each in history.best}

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measures over the epochs, and which epochs are kept and best.

        Args:
            ax: matplotlib axes to draw into; by default the axes of a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        history, kept = self.history(), _named([*self._kept.values()])
        places = {how: history.at(one["epoch"], one["step"]) for how, one in kept.items()}
        places |= {name: tied[0] for name, tied in history.best.items() if tied}
        return plot_selection(
            history.values,
            ax,
            selected={how: at for how, at in places.items() if at is not None},
            places=history.steps if history.unit == "step" else history.epochs,
            xlabel="Step" if history.unit == "step" else "Epoch",
            baseline=self._baseline(history)[1],
        )


# --- values, names and counts ---------------------------------------------------------------------------------------


def _is_logged(report: ImbalanceReport, name: str) -> bool:
    """Return whether a value needs more than the counts of all samples, such as that of a group of samples."""
    return name in report and bool(report[name].row.bound or report[name].row.kind in ("group", "worst"))


def _value(report: ImbalanceReport, name: str, counts: Counts, logged: Mapping[str, float]) -> float:
    """Return the value of the counts of one validation."""
    if name in logged or _is_logged(report, name):
        return logged.get(name, math.nan)
    measure = report.measure(name)
    return float(measure(counts if needs_matrix(measure) else sums(counts)))


def _monitored(known: Mapping[str, ImbalanceReport], monitors: set[str], swept: Mapping[str, Any]) -> list[str]:
    """Return the paths of the reports that are monitored, or whose prefix begins the name of a monitored sweep."""
    paths = [path for path, each in known.items() if len(known) == 1 or not monitors.isdisjoint(each.keys())]
    prefixes = {path: each.prefix for path, each in known.items() if each.prefix}
    return paths or [path for path in prefixes if any(name.startswith(prefixes[path]) for name in monitors & {*swept})]


def _rule_of(checkpoint: Any) -> dict[str, Any]:
    """Return the monitor of a checkpoint callback, and its rule for ties."""
    return {"monitor": getattr(checkpoint, "monitor", None), "ties": getattr(checkpoint, "ties", "earliest")}


def _named(kept: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Name what was kept by its monitor; that of one monitor also by its rule for ties or its number."""
    named = {}
    for index, one in enumerate(kept):
        same = [place for place, other in enumerate(kept) if other["monitor"] == one["monitor"]]
        name = f"kept by {one['monitor']}" if one["monitor"] else "kept last"
        by_rule = one["monitor"] and len({kept[place]["ties"] for place in same}) == len(same) > 1
        number = f" ({same.index(index) + 1})" * (len(same) > 1)
        named[name + (f" ({one['ties']} of ties)" if by_rule else number)] = one
    return named


def _unpacked(entry: Mapping[str, Any]) -> Counts:
    """Return the counts of an entry of the history."""
    flat = torch.zeros(math.prod(entry["shape"]), dtype=entry["counts"].dtype)
    flat[entry["cells"]] = entry["counts"]
    counts = flat.reshape(entry["shape"])
    return Margins(*counts.unbind()) if entry["margins"] else counts


def _packed(counts: Counts) -> dict[str, Any]:
    """Return the cells of counts that are not zero, as plain values and tensors that a checkpoint can hold."""
    stacked = (torch.stack(tuple(counts)) if isinstance(counts, Margins) else counts).cpu()
    cells = stacked.flatten().nonzero().flatten()
    shape, held = list(stacked.shape), stacked.flatten()[cells]
    return {"margins": isinstance(counts, Margins), "shape": shape, "cells": cells, "counts": held}
