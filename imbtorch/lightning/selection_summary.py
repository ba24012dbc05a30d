"""Which epoch each measure would select, and which one was kept: told at the end of training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.epochs import ChosenEpoch
from imbtorch.choosing.models import Ties
from imbtorch.lightning.base import Callback, is_fitting, reports
from imbtorch.lightning.checkpoint_watcher import CheckpointWatcher
from imbtorch.lightning.kept_predictions import (
    PredictionListener,
    Processes,
    choose_with_predictions,
    why_not_predictable,
)
from imbtorch.lightning.loggers import file_name, log_figure, log_table
from imbtorch.lightning.selection_table import (
    Column,
    Kept,
    PackedCounts,
    SelectionTable,
    ValidationHistory,
    band,
    read_column,
    selected,
    selection,
    trivial_values,
)
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.plots import plot_selection
from imbtorch.tables import spans

__all__ = ["SelectionSummary"]


LARGE = 10_000_000  # bytes of the predictions of one validation from which a warning is worth its line
SLOW = 3.0  # seconds of silence after which one wonders


class SelectionSummary(Callback):
    """Tells at the end of ``fit`` which epoch each measure would select, which one was kept, and how sure that is.

    After every validation it keeps the counts of a report, summed over all processes. At the end rank zero prints
    :meth:`table`, with what makes the choice doubtful: ties, classes that were never predicted or are too rare, and
    what always predicting the most common class is worth. Validations of one epoch are told apart by their step, those
    of one step replace each other. The counts go into checkpoints, as the cells that are not zero, so that a resumed
    run has the whole history::

        Trainer(callbacks=[ModelCheckpoint(monitor="val_iam", mode="max"), SelectionSummary(out="out")])

    Of tied epochs the table selects the one that the attached checkpoint callback would keep: the latest for
    :class:`ModelCheckpoint`, the earliest for Lightning's own, by the first callback that monitors a value; the latest
    where none does.

    One of them serves a report; where a trainer has several, each names its own (``report="val"``).

    The best of many epochs looks better than it is. With ``predictions=True`` the choice is repeated on random halves
    of the samples (:func:`imbtorch.analysis.select_epoch`), and the table says for each way of choosing the value
    corrected for having been chosen, its interval, the share of the half-samples that keep the epoch ("-" where epochs
    tie), which epochs cannot be told from it, and how far below the best one these may lie. Where a monitor is of soft
    counts, hard counts choose there, and ties go by the soft values.

    Each process then keeps the predicted classes of its own samples, in the smallest integer dtype on the CPU: a byte
    for each sample (in segmentation each pixel) and validation up to 256 classes, in memory and in checkpoints; a
    warning tells of more than 10 MB a validation. Every validation must see the same samples in the same order
    (``shuffle=False``); the predictions of one that does not are left out with a warning, and its counts stay. At the
    end of ``fit`` all processes add up counts of the halves; else this callback never communicates. Lightning saves the
    state of rank zero alone: a run of one process goes on from a checkpoint with all its predictions, a run of several,
    or of another number, with those of the validations after it, among which alone epochs are then compared; the table
    says so.

    The loggers get the table as ``<report>_selection_table`` (text, in Weights & Biases rows and ``_notes``) and, where
    there is matplotlib, a picture of all measures over the epochs as ``<report>_selection``. Beside a CSV log they are
    files, the picture in ``figures``. A logger that takes no texts gets neither.

    Without Lightning, :func:`imbtorch.analysis.select_model` makes such a table of a mapping of epochs to counts.

    Args:
        report: attribute of the report, such as ``"val"``; by default the one that validation computes.
        measures: names of the report; other names are those of :meth:`~imbtorch.ImbalanceReport.default_measures` and
            of the functions in :mod:`imbtorch.measures`, read as the report would. A measure without a direction is
            shown and selects nothing. What a ``ModelCheckpoint`` monitors is shown as well.
        out: folder for the table, ``<report>_selection.txt``, and for the picture, ``<report>_selection.png``, which
            needs matplotlib; by default the loggers alone get them.
        predictions: keep the predicted classes of each validation and resample them at the end of ``fit``. Not for
            multilabel reports, ``state="margins"`` and ``weighted=True``.

    Raises:
        ValueError: without measures and for one named twice; at the start of ``fit`` for a report or measure that is
            unknown, a history that counts otherwise, or ``predictions`` of a report that has none; in the sanity check
            if ``report`` must say which one is meant.
        TypeError: for measures that are no names.
        ModuleNotFoundError: at the start of ``fit`` for ``out`` without matplotlib.
    """

    def __init__(
        self,
        report: str | None = None,
        measures: Sequence[str] = ("iam", "accuracy", "balanced_accuracy", "gmean", "mcc"),
        out: str | Path | None = None,
        predictions: bool = False,
    ) -> None:
        if isinstance(measures, str) or not all(isinstance(name, str) for name in measures):
            raise TypeError(f"measures must be a sequence of names such as ('iam', 'accuracy'), got {measures!r}")
        if not measures or len(set(measures)) < len(measures):
            raise ValueError(f"measures must name one measure or more and none twice, got {list(measures)}")
        self.report = report
        self.measures = tuple(measures)
        self.out = None if out is None else Path(out)
        self.predictions = predictions
        self._path = ""  # of the report that is followed
        self._columns: dict[str, Column] = {}  # measures, and what is monitored besides
        self._monitored: dict[str, str] = {}  # monitor of a checkpoint callback -> its column
        self._ties: Ties = "latest"  # which of tied epochs the attached checkpoint callback keeps
        self._banded = ""  # the one whose interval is drawn
        self._class_names: tuple[str, ...] = ()
        self._remedy = ""  # what could correct the kept value
        self._validations: list[dict[str, Any]] = []
        self._targets: Tensor | None = None  # of this process, in the order of its predictions
        self._listeners: dict[str, PredictionListener] = {}
        self._choices: dict[str, ChosenEpoch] = {}
        self._resampled: list[int] = []  # validations that these chose from
        self._kept: dict[str, dict[str, Any]] = {}  # state key of a checkpoint callback -> what it kept, and when
        self._watcher = CheckpointWatcher()
        self._before: dict[str, object] = {}
        self._epoch = 0  # of the last training batch
        self._processes = 1
        self._stage = "fit"  # or "validate", ...
        self._already_warned = False

    # --- in checkpoints ---------------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """One for each report: measures and folder may change when a run is resumed."""
        return self._generate_state_key(report=self.report)

    def state_dict(self) -> dict[str, Any]:
        """Validations and epochs of the checkpoints, as tensors and plain values."""
        return {
            "validations": list(self._validations),
            "kept": {key: dict(kept) for key, kept in self._kept.items()},
            "targets": self._targets,
            "processes": self._processes,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the history of a checkpoint, but only where training goes on from it: not in ``validate``."""
        if self._stage != "fit":
            return
        self._validations, self._kept = list(state_dict["validations"]), dict(state_dict["kept"])
        self._targets = state_dict.get("targets")
        if not self.predictions or self._processes > 1 or state_dict.get("processes") != 1:  # they are of rank zero
            self._targets = None
            self._validations = [
                {key: value for key, value in entry.items() if key != "predictions"} for entry in self._validations
            ]

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Let the checkpoint that is being written know that it is the one that is kept."""
        self._look_at_checkpoints(trainer, trainer.current_epoch)
        checkpoint["callbacks"][self.state_key] = self.state_dict()

    # --- during fit -------------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forget another trainer's run, and ask for matplotlib before the training rather than after it."""
        self._stage = stage
        self._processes = trainer.world_size
        if stage == "fit" and trainer.global_step == 0:  # a checkpoint is restored after this
            self._validations, self._kept, self._targets = [], {}, None
        if stage == "fit" and self.out is not None and not find_spec("matplotlib"):
            raise ModuleNotFoundError(
                "SelectionSummary(out=...) draws a picture, which needs matplotlib: pip install 'imbtorch[plot]'"
            )

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the report and check all names."""
        found = dict(reports(pl_module))
        self._path, self._already_warned = "", False
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
        before, self._kept, self._watcher = self._kept, {}, CheckpointWatcher()
        for checkpoint in self._watcher.newly_kept(trainer):
            kept = before.get(checkpoint.state_key, {})
            if kept.get("path") != checkpoint.best_model_path:  # kept by a run without this callback
                kept = {"path": checkpoint.best_model_path, "epoch": None, "step": None}
            self._kept[checkpoint.state_key] = kept | _kept_how(checkpoint)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """See what was kept after the last batch: no step was taken since, though an epoch may have ended."""
        self._look_at_checkpoints(trainer, self._epoch)
        self._epoch = trainer.current_epoch

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """See what was kept after the very last batch."""
        self._look_at_checkpoints(trainer, self._epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember what was computed before, by training for example, and listen to what is predicted."""
        self._before = {path: report.last_result for path, report in reports(pl_module)}
        self._stop_listening()
        if self.predictions and is_fitting(trainer) and not trainer.sanity_checking:
            followed = {path: report for path, report in reports(pl_module) if path == (self._path or path)}
            self._listeners = {path: PredictionListener(report) for path, report in followed.items()}

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Print the table of what was counted until then, on rank zero alone: the other processes may be gone."""
        self._stop_listening()
        if is_fitting(trainer) and trainer.is_global_zero and self._validations and self._columns:
            self._look_at_checkpoints(trainer, self._epoch)
            print(f"\n{self.table()}", flush=True)  # noqa: T201

    def _stop_listening(self) -> dict[str, PredictionListener]:
        """End what validation began; return those who listened."""
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.stop()
        return listeners

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the counts that this validation computed, on all processes alike."""
        if not is_fitting(trainer):
            return
        listeners, computed = self._stop_listening(), self._computed(pl_module)
        if not self._path and len(computed) == 1:
            self._follow(*next(iter(computed.items())), trainer)
        ambiguous = bool(computed) and not self._path
        if trainer.sanity_checking:
            if ambiguous:
                raise ValueError(_several(computed))
        elif self._path in computed:
            self._record(trainer, computed[self._path], listeners.get(self._path))
        elif ambiguous:
            self._warn(trainer, _several(computed))  # after hours of training not worth an error
        else:
            name = self._path or next(path for path, _ in reports(pl_module))
            self._warn(
                trainer,
                f"no report was computed by validation, so there is no history; call self.{name}.update(...) in "
                f"validation_step and self.log_dict(self.{name}) in on_validation_epoch_end",
            )

    def _computed(self, pl_module: Any) -> dict[str, ImbalanceReport]:
        """Reports that were computed since the validation began, by the path of their attribute."""
        return {
            path: report
            for path, report in reports(pl_module)
            if report.last_result is not None and report.last_result is not self._before.get(path)
        }

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Resample predictions, on all processes; print the table and hand it to files and loggers, on rank zero."""
        if not self._validations:
            self._warn(trainer, "fit ended without a validation, so there is nothing to tell")
            return
        if self.predictions:
            self._choose(trainer, pl_module.get_submodule(self._path))
        if not trainer.is_global_zero:
            return
        table = self.table()
        print(f"\n{table}")  # noqa: T201
        self._hand_over(trainer, table)

    def _hand_over(self, trainer: Any, table: SelectionTable) -> None:
        """Write the files, and hand table and picture to the loggers."""
        name, text, step = f"{self._path}_selection", str(table), trainer.global_step
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / f"{file_name(name)}.txt").write_text(f"{text}\n", encoding="utf-8")
        cells = table.rows_of_cells()
        loggers = [each for each in trainer.loggers if log_table(each, f"{name}_table", text, cells, table.notes, step)]
        if self.out is None and not (loggers and find_spec("matplotlib")):
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.5, 4.2 + 0.2 * (len(self._columns) + 1 + len(self._kept))), layout="constrained")
        self.plot(figure.subplots())
        if self.out is not None:
            figure.savefig(self.out / f"{file_name(name)}.png", dpi=120)
        for logger in loggers:
            log_figure(logger, name, figure, step)

    def _follow(self, path: str, report: ImbalanceReport, trainer: Any) -> None:
        """Take this report for the one that is meant, and find out how it reads the measures."""
        why = why_not_predictable(report)
        if self.predictions and why:
            raise ValueError(
                f"predictions=True resamples the predicted class of each sample, but the report {path!r} {why}"
            )
        columns = dict(read_column(report, name) for name in self.measures)
        named = tuple(columns)
        self._monitored = {name: _add_monitored(columns, report, name) for name in _monitors(trainer, report)}
        self._path, self._columns, self._banded = path, columns, [*self._monitored.values(), named[0]][0]
        self._class_names = report.class_names
        self._ties = _tie_rule(trainer)
        told = "SelectionSummary(predictions=True) corrects for that and says which epochs cannot be told from it"
        self._remedy = "" if why else told

    def _check_counting(self, report: ImbalanceReport) -> None:
        """Refuse a history that cannot be compared with what the report counts."""
        for entry in self._validations[-1:]:
            if entry["counting"] != report.counting.name:
                raise ValueError(
                    f"the report {self._path!r} counts otherwise ({report.counting.name}) than the history that the "
                    f"run goes on from ({entry['counting']}); give it the arguments that it had, or start a new run"
                )

    def _record(self, trainer: Any, report: ImbalanceReport, listener: PredictionListener | None) -> None:
        """Keep what was computed in the place of what is known of the same step."""
        result, epoch, step = report.last_result, trainer.current_epoch, trainer.global_step
        assert result is not None
        self._check_counting(report)
        self._validations = [each for each in self._validations if (each["epoch"], each["step"]) != (epoch, step)]
        logged = {column.logged for column in self._columns.values() if column.logged}
        entry = {
            "epoch": epoch,
            "step": step,
            "counting": report.counting.name,
            "logged": {name: float(result.values[name]) for name in sorted(logged)},
            **PackedCounts.pack(result.counts),
        }
        self._validations.append(entry)
        self._choices, self._resampled = {}, []
        if listener is not None:
            self._keep_predictions(trainer, entry, *listener.heard())

    def _keep_predictions(self, trainer: Any, entry: dict[str, Any], predicted: Tensor, target: Tensor) -> None:
        """Keep what was predicted, unless the samples are others than before."""
        if self._targets is None:
            self._targets = target
            if predicted.nbytes > LARGE and trainer.is_global_zero:
                warnings.warn(
                    f"SelectionSummary(predictions=True) keeps {predicted.nbytes / 1e6:,.0f} MB of predicted classes "
                    "for each validation, in the memory of this process and in every checkpoint; leave predictions "
                    "out, or validate on a part, if that is too much",
                    UserWarning,
                    stacklevel=2,
                )
        if torch.equal(target, self._targets):
            entry["predictions"] = predicted
            return
        number = len(self._targets)
        seen = f"{number} samples in another order" if len(target) == number else f"{len(target)} in place of {number}"
        self._warn(
            trainer,
            f"the validation of epoch {entry['epoch']}, step {entry['step']}, counted {seen}, so its predictions "
            "cannot be compared and are left out; give its DataLoader shuffle=False, and the same samples each time",
        )

    def _choose(self, trainer: Any, report: ImbalanceReport) -> None:
        """Resample the predictions of all processes: a collective step."""

        def announce(seconds: float) -> None:
            if trainer.is_global_zero and seconds > SLOW:
                text = f"SelectionSummary: resampling {len(self._validations)} validations, some {seconds:.0f} s"
                print(text, flush=True)  # noqa: T201

        predictions = [entry.get("predictions") for entry in self._validations]
        self._choices, self._resampled = choose_with_predictions(
            self.history(),
            predictions,
            self._targets,
            self._columns,
            self._ties,
            report.counting.classes,
            Processes(trainer.global_rank, trainer.world_size, trainer.strategy.root_device, report.process_group),
            announce,
        )

    def _look_at_checkpoints(self, trainer: Any, epoch: int) -> None:
        """Note the epoch and step of what the checkpoint callbacks have newly kept, in the order of the callbacks."""
        for checkpoint in self._watcher.newly_kept(trainer):
            place = {"path": checkpoint.best_model_path, "epoch": epoch, "step": trainer.global_step}
            self._kept[checkpoint.state_key] = place | _kept_how(checkpoint)
        order = [each.state_key for each in trainer.checkpoint_callbacks]
        self._kept = {key: self._kept[key] for key in order if key in self._kept}

    def _warn(self, trainer: Any, text: str) -> None:
        """Say the first thing that is missing, which explains what else is."""
        if trainer.is_global_zero and not self._already_warned:
            self._already_warned = True
            warnings.warn(f"SelectionSummary: {text}", UserWarning, stacklevel=3)

    # --- results ----------------------------------------------------------------------------------------------------

    def history(self) -> ValidationHistory:
        """Counts and values of the validations, in their order; never communicates."""
        return ValidationHistory.of(self._validations, self._columns)

    def table(self) -> SelectionTable:
        """Return the epochs that the checkpoints kept and the measures select, with every measure at each of them.

        Never communicates, so that rank zero alone may call it.

        Raises:
            RuntimeError: before the first validation.
        """
        history = self._some_history()
        return selection(
            self._path,
            history,
            self._columns,
            self._ties,
            self._kept_by(),
            self._choices,
            self._class_names,
            list(self._remarks(history)),
        )

    def _remarks(self, history: ValidationHistory) -> Iterator[str]:
        """What resampling found out, or what could be done in its place."""
        if len(history.epochs) < 2:
            return
        found = selected(history, self._columns, self._ties)
        if self._ties == "earliest" and any(len(places) > 1 for places in found.values()):
            yield "ties: the earliest is often the worst; imbtorch.lightning.ModelCheckpoint keeps the latest"
        if self._resampled:
            yield from self._remarks_on_choices(history)
        else:
            remedy = self._remedy or "other samples tell its value"
            if self.predictions:
                remedy = "no predictions agree with the counts of all processes, so nothing corrects for that"
            yield f"the best of {len(history.epochs)} looks better than it is; {remedy}"

    def _remarks_on_choices(self, history: ValidationHistory) -> Iterator[str]:
        yield "corrected: test the value elsewhere before you rely on it"
        yield "stability: share of random half-samples that keep the epoch; it is no probability of being the best"
        yield from self._remarks_on_predictions(history)
        left_out = [at for at in range(len(history.called)) if at not in self._resampled]
        kind = ("step" if history.stepwise else "epoch") + "s" * (len(left_out) > 1)
        if left_out:
            yield (
                f"{kind} {spans(left_out, history.called)}: no predictions that agree with the counts of all processes "
                "(other samples, or before a run was resumed), so not among those that are compared"
            )
        directed = {name: column for name, column in self._columns.items() if column.better is not None}
        bare = [name for name, column in directed.items() if name not in self._choices and column.measure]
        if bare:
            yield f"{', '.join(bare)}: resampling would keep another epoch, so the value is not corrected"
        fewer = {len(choice.compared) for choice in self._choices.values()}
        if fewer and min(fewer) < len(self._resampled):
            yield f"only the best {min(fewer)} were compared, since resampling all would take long"

    def _remarks_on_predictions(self, history: ValidationHistory) -> Iterator[str]:
        """Name the choices that are arbitrary, and the values that are not corrected."""
        for how, choice in self._choices.items():
            if choice.identical:
                same = spans(sorted({choice.epoch, *choice.identical}), history.called)
                kind = "steps" if history.stepwise else "epochs"
                yield f"{how}: {kind} {same} predict the same, so the choice among them is arbitrary"
            if choice.sparse:
                names = [self._class_names[at] if self._class_names else str(at) for at in choice.sparse]
                yield f"{how}: not corrected: without a hit of class {', '.join(names)} it is 0, and hits are too few"

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
        found = selected(history, self._columns, self._ties)
        marks = {how: places[0] for how, places in found.items() if places}
        kept = {how: history.at(place.epoch, place.step) for how, place in self._kept_by().items()}
        marks |= {how: at for how, at in kept.items() if at is not None}
        limits = band(self._columns[self._banded], history)
        return plot_selection(
            history.values,
            ax,
            selected=marks,
            intervals={} if limits is None else {self._banded: limits},
            places=history.called,
            xlabel="Step" if history.stepwise else "Epoch",
            trivial=trivial_values(history, self._columns, self._class_names)[1],
        )

    def _some_history(self) -> ValidationHistory:
        if not self._validations or not self._columns:
            raise RuntimeError("no validation of fit was kept yet, so there is nothing to select from")
        return self.history()

    def _kept_by(self) -> dict[str, Kept]:
        """Return what each checkpoint callback kept; where two are called alike, they are numbered."""
        found: dict[str, Kept] = {}
        for kept in self._kept.values():
            same = sum(known["how"] == kept["how"] for known in self._kept.values())
            number = f" ({1 + sum(name.startswith(kept['how']) for name in found)})" if same > 1 else ""
            measure = self._monitored.get(kept.get("monitor") or "", "")
            found[kept["how"] + number] = Kept(kept["epoch"], kept["step"], measure)
        return found


def _monitors(trainer: Any, report: ImbalanceReport) -> list[str]:
    """Names of a report that checkpoint callbacks monitor."""
    names = [getattr(checkpoint, "monitor", None) for checkpoint in trainer.checkpoint_callbacks]
    logged = report.keys()
    return [name for name in names if name in logged]


def _tie_rule(trainer: Any) -> Ties:
    """Return which of tied epochs the first checkpoint callback that monitors a value keeps; the latest without one."""
    monitoring = (each for each in trainer.checkpoint_callbacks if getattr(each, "monitor", None))
    return next((getattr(each, "ties", "earliest") for each in monitoring), "latest")


def _add_monitored(columns: dict[str, Column], report: ImbalanceReport, monitor: str) -> str:
    """Add what is monitored to the columns, unless one shows it already; return the name of its column."""
    name, column = read_column(report, _measure_of(report, monitor))
    name = next((known for known, other in columns.items() if other == column), name)
    columns.setdefault(name, column)
    return name


def _several(computed: Mapping[str, ImbalanceReport]) -> str:
    """What to say where it is not known which report is meant."""
    choose = f"SelectionSummary(report={next(iter(computed), '')!r})"
    return f"validation computed several reports ({', '.join(computed)}); choose one, as in {choose}"


def _measure_of(report: ImbalanceReport, name: str) -> str:
    """The measure itself where its limit is named, as ``intervals=True`` adds them."""
    short = report[name].name
    measure = short.removesuffix("_low").removesuffix("_high")
    return measure if short not in report.measures and measure in report.measures else short


def _kept_how(checkpoint: Any) -> dict[str, Any]:
    """Return the monitor of a checkpoint callback, and what the table calls it."""
    monitor = getattr(checkpoint, "monitor", None)
    how = f"kept by {type(checkpoint).__name__}" + (f"({monitor})" if monitor else ", the last")
    return {"monitor": monitor, "how": how}
