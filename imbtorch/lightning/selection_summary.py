"""Which epoch each measure would select, and which one was kept: told at the end of training."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from imbtorch.counts import Counts, Margins
from imbtorch.lightning.base import Callback, is_fitting, reports
from imbtorch.lightning.selection_table import (
    Column,
    SelectionTable,
    ValidationHistory,
    choices,
    read_column,
    selection,
)
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.plots import plot_selection

__all__ = ["SelectionSummary"]


class SelectionSummary(Callback):
    """Tells at the end of ``fit`` which epoch each measure would select, which one was kept, and how sure that is.

    After every validation it keeps the counts of a report, summed over all processes; it never communicates itself. At
    the end rank zero prints :meth:`table`. Validations of one epoch are told apart by their step, those of one step
    replace each other. The counts go into checkpoints, as the cells that are not zero, so that a resumed run has the
    whole history::

        Trainer(callbacks=[ModelCheckpoint(monitor="val_iam", mode="max"), SelectionSummary(out="out")])

    Without Lightning, :func:`imbtorch.analysis.select_model` makes such a table of a mapping of epochs to counts.

    Args:
        report: attribute of the report, such as ``"val"``; by default the one that validation computes.
        measures: names of the report; other names are those of :meth:`~imbtorch.ImbalanceReport.default_measures` and
            of the functions in :mod:`imbtorch.measures`, read as the report would. A measure without a direction is
            shown and selects nothing. What a ``ModelCheckpoint`` monitors is shown as well.
        out: folder for the table, ``<report>_selection.txt``, and for a picture of all measures over the epochs,
            ``<report>_selection.png``, which needs matplotlib; by default neither is written.

    Raises:
        ValueError: without measures and for one named twice; at the start of ``fit`` for a report or measure that is
            unknown or a history that counts otherwise; in the sanity check if ``report`` must say which one is meant.
        TypeError: for measures that are no names.
        ModuleNotFoundError: at the start of ``fit`` for ``out`` without matplotlib.
    """

    def __init__(
        self,
        report: str | None = None,
        measures: Sequence[str] = ("iam", "accuracy", "balanced_accuracy", "gmean", "mcc"),
        out: str | Path | None = None,
    ) -> None:
        if isinstance(measures, str) or not all(isinstance(name, str) for name in measures):
            raise TypeError(f"measures must be a sequence of names such as ('iam', 'accuracy'), got {measures!r}")
        if not measures or len(set(measures)) < len(measures):
            raise ValueError(f"measures must name one measure or more and none twice, got {list(measures)}")
        self.report = report
        self.measures = tuple(measures)
        self.out = None if out is None else Path(out)
        self._path = ""  # of the report that is followed
        self._columns: dict[str, Column] = {}  # measures, and what is monitored besides
        self._named: tuple[str, ...] = ()  # measures alone
        self._banded = ""  # the one whose interval is drawn
        self._validations: list[dict[str, Any]] = []
        self._kept: dict[str, dict[str, Any]] = {}  # state key of a checkpoint callback -> what it kept, and when
        self._marks: dict[str, tuple[Any, ...]] = {}  # tell whether it has kept something else
        self._before: dict[str, object] = {}
        self._epoch = 0  # of the last training batch
        self._stage = "fit"  # or "validate", ...
        self._told = False

    # --- in checkpoints ---------------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """One for each report: measures and folder may change when a run is resumed."""
        return self._generate_state_key(report=self.report)

    def state_dict(self) -> dict[str, Any]:
        """Counts of the validations and epochs of the checkpoints, as tensors and plain values."""
        return {"validations": list(self._validations), "kept": {key: dict(kept) for key, kept in self._kept.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the history of a checkpoint, but only where training goes on from it: not in ``validate``."""
        if self._stage == "fit":
            self._validations, self._kept = list(state_dict["validations"]), dict(state_dict["kept"])

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Let the checkpoint that is being written know that it is the one that is kept."""
        self._look_at_checkpoints(trainer, trainer.current_epoch)
        checkpoint["callbacks"][self.state_key] = self.state_dict()

    # --- during fit -------------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forget another trainer's run, and ask for matplotlib before the training rather than after it."""
        self._stage = stage
        if stage == "fit" and trainer.global_step == 0:  # a checkpoint is restored after this
            self._validations, self._kept = [], {}
        if stage == "fit" and self.out is not None:
            try:
                import matplotlib  # noqa: F401
            except ImportError as error:
                raise ModuleNotFoundError(
                    "SelectionSummary(out=...) draws a picture, which needs matplotlib: pip install 'imbtorch[plot]'"
                ) from error

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the report and check all names."""
        found = dict(reports(pl_module))
        self._path, self._told = "", False
        if self.report is not None and self.report not in found:
            raise ValueError(f"the module has no report {self.report!r}; it has {sorted(found) or 'none'}")
        if not found:
            raise ValueError("SelectionSummary needs an ImbalanceReport, and the module has none among its children")
        path = next(iter(found)) if len(found) == 1 else self.report
        if path is not None:
            self._follow(path, found[path], trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """See what the checkpoint callbacks have kept before this run, and whether its history can be gone on with."""
        if self._path:
            self._check_counting(pl_module.get_submodule(self._path))
        before, self._kept, self._marks = self._kept, {}, {}
        for checkpoint in _with_best(trainer):
            kept = before.get(checkpoint.state_key, {})
            if kept.get("path") != checkpoint.best_model_path:  # kept by a run without this callback
                kept = {"path": checkpoint.best_model_path, "epoch": None, "step": None}
            self._kept[checkpoint.state_key] = kept | {"how": _how(checkpoint)}
            self._marks[checkpoint.state_key] = _mark(checkpoint)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """See what was kept after the last batch: no step was taken since, though an epoch may have ended."""
        self._look_at_checkpoints(trainer, self._epoch)
        self._epoch = trainer.current_epoch

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """See what was kept after the very last batch."""
        self._look_at_checkpoints(trainer, self._epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember what was computed before, by training for example."""
        self._before = {path: report.last_result for path, report in reports(pl_module)}

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the counts that this validation computed, on all processes alike."""
        if not is_fitting(trainer):
            return
        computed = {
            path: report
            for path, report in reports(pl_module)
            if report.last_result is not None and report.last_result is not self._before.get(path)
        }
        if not self._path and len(computed) == 1:
            self._follow(*next(iter(computed.items())), trainer)
        several = f"validation computed several reports ({', '.join(computed)}); choose one, as in "
        several += f"SelectionSummary(report={next(iter(computed), '')!r})"
        if trainer.sanity_checking:
            if not self._path and computed:
                raise ValueError(several)
        elif self._path in computed:
            self._record(computed[self._path], trainer.current_epoch, trainer.global_step)
        elif computed and not self._path:
            self._warn(trainer, several)  # after hours of training not worth an error
        else:
            self._warn_of_nothing_computed(trainer, self._path or next(path for path, _ in reports(pl_module)))

    def _warn_of_nothing_computed(self, trainer: Any, name: str) -> None:
        self._warn(
            trainer,
            f"no report was computed by validation, so there is no history; call self.{name}.update(...) in "
            f"validation_step and self.log_dict(self.{name}) in on_validation_epoch_end",
        )

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Print the table and write the files, on rank zero."""
        if not trainer.is_global_zero:
            return
        if not self._validations:
            self._warn(trainer, "fit ended without a validation, so there is nothing to tell")
            return
        text = str(self.table())
        print(f"\n{text}")  # noqa: T201
        if self.out is not None:
            from matplotlib.figure import Figure

            self.out.mkdir(parents=True, exist_ok=True)
            stem = re.sub(r"[^-\w.]", "_", self._path)
            (self.out / f"{stem}_selection.txt").write_text(f"{text}\n", encoding="utf-8")
            figure = Figure(figsize=(9.5, 4.2 + 0.2 * (len(self._columns) + 1 + len(self._kept))), layout="constrained")
            self.plot(figure.subplots())
            figure.savefig(self.out / f"{stem}_selection.png", dpi=120)

    def _follow(self, path: str, report: ImbalanceReport, trainer: Any) -> None:
        """Take this report for the one that is meant, and find out how it reads the measures."""
        columns = dict(read_column(report, name) for name in self.measures)
        self._named = tuple(columns)
        logged, banded = report.keys(), ""
        for monitor in [getattr(checkpoint, "monitor", None) for checkpoint in trainer.checkpoint_callbacks]:
            if monitor in logged:
                name, column = read_column(report, _measure_of(report, monitor))
                name = next((known for known, other in columns.items() if other == column), name)
                columns.setdefault(name, column)
                banded = banded or name
        self._path, self._columns, self._banded = path, columns, banded or self._named[0]

    def _check_counting(self, report: ImbalanceReport) -> None:
        """Refuse a history that cannot be compared with what the report counts."""
        for entry in self._validations[-1:]:
            if entry["counting"] != report.counting.name:
                raise ValueError(
                    f"the report {self._path!r} counts otherwise ({report.counting.name}) than the history that the "
                    f"run goes on from ({entry['counting']}); give it the arguments that it had, or start a new run"
                )

    def _record(self, report: ImbalanceReport, epoch: int, step: int) -> None:
        """Keep the cells that are not zero: few of the many that many classes have."""
        result = report.last_result
        assert result is not None
        counts = result.counts
        stacked = (torch.stack(tuple(counts)) if isinstance(counts, Margins) else counts).cpu()
        cells = stacked.flatten().nonzero().flatten()
        self._check_counting(report)
        self._validations = [each for each in self._validations if (each["epoch"], each["step"]) != (epoch, step)]
        self._validations.append(
            {
                "epoch": epoch,
                "step": step,
                "counting": report.counting.name,
                "margins": isinstance(counts, Margins),
                "shape": list(stacked.shape),
                "cells": cells,
                "counts": stacked.flatten()[cells],
            }
        )

    def _look_at_checkpoints(self, trainer: Any, epoch: int) -> None:
        """Note the epoch and step of what the checkpoint callbacks have newly kept, in the order of the callbacks."""
        kept = {}
        for checkpoint in _with_best(trainer):
            key, mark = checkpoint.state_key, _mark(checkpoint)
            old = self._marks.get(key, (None, None, None))
            if mark[0] != old[0] or mark[1] is not old[1] or mark[2] != old[2]:
                place = {"path": mark[0], "epoch": epoch, "step": trainer.global_step}
                self._marks[key], self._kept[key] = mark, place | {"how": _how(checkpoint)}
            kept[key] = self._kept[key]
        self._kept = kept

    def _warn(self, trainer: Any, text: str) -> None:
        """Say the first thing that is missing, which explains what else is."""
        if trainer.is_global_zero and not self._told:
            self._told = True
            warnings.warn(f"SelectionSummary: {text}", UserWarning, stacklevel=3)

    # --- results ----------------------------------------------------------------------------------------------------

    def history(self) -> ValidationHistory:
        """Counts and values of the validations, in their order; never communicates."""
        epochs, steps = ([entry[key] for entry in self._validations] for key in ("epoch", "step"))
        return ValidationHistory.of(epochs, steps, [_unpacked(entry) for entry in self._validations], self._columns)

    def table(self) -> SelectionTable:
        """Epochs that the measures, max-min and the checkpoints select, with every measure at each of them.

        Never communicates, so that rank zero alone may call it.

        Raises:
            RuntimeError: before the first validation.
        """
        return selection(self._path, self._some_history(), self._columns, self._named, self._kept_by())

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measures over the epochs, what is selected, and the interval of the monitored measure as a band.

        Args:
            ax: matplotlib axes to draw into; by default those of a new figure.

        Returns:
            Figure (None if axes were given) and axes.

        Raises:
            RuntimeError: before the first validation.
        """
        history = self._some_history()
        found = choices(history, self._columns, self._named)
        selected = {how: choice.chosen[0] for how, choice in found.items() if choice.chosen}
        kept = {how: history.at(*place) for how, place in self._kept_by().items()}
        selected |= {how: at for how, at in kept.items() if at is not None}
        band = self._columns[self._banded].interval(list(history.counts.values()))
        stepwise = len(set(history.epochs)) < len(history.epochs)
        return plot_selection(
            history.values,
            ax,
            selected=selected,
            intervals={} if band is None else {self._banded: band},
            places=history.steps if stepwise else history.epochs,
            xlabel="Step" if stepwise else "Epoch",
        )

    def _some_history(self) -> ValidationHistory:
        if not self._validations or not self._columns:
            raise RuntimeError("no validation of fit was kept yet, so there is nothing to select from")
        return self.history()

    def _kept_by(self) -> dict[str, tuple[int | None, int | None]]:
        """Epoch and step of what each checkpoint callback kept; where two are called alike, they are numbered."""
        found: dict[str, tuple[int | None, int | None]] = {}
        for kept in self._kept.values():
            same = sum(known["how"] == kept["how"] for known in self._kept.values())
            number = f" ({1 + sum(name.startswith(kept['how']) for name in found)})" if same > 1 else ""
            found[kept["how"] + number] = (kept["epoch"], kept["step"])
        return found


def _measure_of(report: ImbalanceReport, name: str) -> str:
    """The measure itself where its limit is named, as ``intervals=True`` adds them."""
    short = report[name].name
    measure = short.removesuffix("_low").removesuffix("_high")
    return measure if short not in report.measures and measure in report.measures else short


def _unpacked(entry: Mapping[str, Any]) -> Counts:
    flat = torch.zeros(math.prod(entry["shape"]), dtype=entry["counts"].dtype)
    flat[entry["cells"]] = entry["counts"]
    counts = flat.reshape(entry["shape"])
    return Margins(*counts.unbind()) if entry["margins"] else counts


def _with_best(trainer: Any) -> Iterator[Any]:
    """Checkpoint callbacks that have kept something."""
    return (each for each in trainer.checkpoint_callbacks if getattr(each, "best_model_path", ""))


def _how(checkpoint: Any) -> str:
    monitor = getattr(checkpoint, "monitor", None)
    return f"kept by {type(checkpoint).__name__}" + (f"({monitor})" if monitor else ", the last")


def _mark(checkpoint: Any) -> tuple[Any, ...]:
    """What changes with the file that is kept, which may be overwritten under its name; no value leaves the device."""
    score = getattr(checkpoint, "best_model_score", None)
    last = getattr(checkpoint, "_last_global_step_saved", None) if score is None else None
    return checkpoint.best_model_path, score, last
