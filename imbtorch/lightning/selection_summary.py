"""The table of the epochs that were kept and those that each measure selects, printed at the end of training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.epochs import ChosenEpoch
from imbtorch.compat import warn_once
from imbtorch.lightning.base import Callback, is_fitting, reports
from imbtorch.lightning.checkpoint_watcher import CheckpointWatcher
from imbtorch.lightning.kept_predictions import (
    PredictionListener,
    Processes,
    choose_with_predictions,
    why_not_predictable,
)
from imbtorch.lightning.loggers import file_name, log_figure, log_table
from imbtorch.lightning.selection_table import Kept, baseline_of, selection_table
from imbtorch.lightning.validation_history import FollowedReport, PackedCounts, ValidationHistory
from imbtorch.measures.traits import by_any_name
from imbtorch.plots import plot_selection
from imbtorch.reports.report import ImbalanceReport
from imbtorch.tables import Table

LARGE = 10_000_000  # bytes of the predictions of one validation from which a warning is worth its line
SLOW = 3.0  # seconds of silence after which one wonders


class SelectionSummary(Callback):
    """Table of the epoch that was kept and the one that each measure selects, printed at the end of ``fit``.

    After every validation the callback keeps the counts of a report, summed over all processes. At the end of ``fit``
    rank zero prints :meth:`table`: the value of every measure at the kept epoch, at the best epoch of each measure, and
    of majority-class prediction. Notes below it name what makes the choice doubtful, such as tied epochs and classes
    that are too rare or were never predicted, and give the advice of the studies that applies to the run. After Ctrl-C
    or an exception rank zero prints the same table of the validations until then, and talks to no other process.

    Of tied epochs the rows of measures show the one that the first checkpoint callback with a monitor keeps: the latest
    for :class:`TiesCheckpoint`, the earliest for Lightning's own. Without such a callback they show
    the latest. Values that a checkpoint callback monitors get a column even if ``measures`` leaves them out.

    **Correction for the choice.** The best of many epochs looks better than it is. With ``predictions=True`` the choice
    is repeated on random halves of the samples (:func:`imbtorch.statistics.select_epoch`). For each measure the table
    then adds the corrected value with its interval, the share of the halves that select the same epoch (``-`` where
    epochs tie), the number of epochs indistinguishable from it, and how much worse than the best these may be; the
    attribute ``choices`` maps each measure to its :class:`~imbtorch.statistics.ChosenEpoch`, which names them. Epochs
    can tie in halves only, and each half keeps the latest or the earliest by the same rule. The rule therefore changes
    corrected values and stability, even of an epoch that ties with no other.

    Each process keeps the predicted classes of its own samples on the CPU and in checkpoints, in the smallest integer
    dtype: up to 256 classes one byte for each sample (each pixel in segmentation) and validation. More than 10 MB a
    validation are announced by a warning. Every validation must see the same samples in the same order
    (``shuffle=False``); otherwise a warning tells that its predictions are left out, and its counts stay. All processes
    add up counts of the halves at the end of ``fit``; the callback communicates at no other time.

    If the report has ``clusters=True``, halves and intervals consist of whole clusters: the clusters of
    ``update(..., cluster=ids)``, or each sample with its positions. Their ids are kept as well, 8 bytes for each
    sample. If a report without clusters gets ids or several positions, a warning says that its samples are treated as
    independent.

    **Resumed runs.** The history is part of checkpoints, so a resumed run has it from the beginning. Lightning saves
    the state of rank zero alone: after a run on several processes, or on another number of them, only the validations
    since the checkpoint have predictions and are compared, which the table says.

    **Output.** Loggers get the table as ``<report>_selection_table`` (Weights & Biases as rows, with ``_notes`` apart)
    and, if matplotlib is installed, a picture of all measures over the epochs as ``<report>_selection``. A CSV logger
    writes both next to its log, the picture in ``figures``. Loggers that take no text get neither. Validations within
    one epoch are named by their step. To compare models without Lightning, see
    :func:`imbtorch.statistics.select_model`.

    Args:
        report: attribute of the report, such as ``"val"``; by default the one that validation computes. A module with
            several reports needs a name, and one callback for each report.
        measures: names of values of the report (``"iam"``, ``"recall/cat"``), or of measures that it does not log:
            names of :meth:`~imbtorch.ImbalanceReport.default_measures` and of functions in :mod:`imbtorch.measures`. A
            measure without a known direction is shown and selects nothing.
        out: folder for the table, ``<report>_selection.txt``, and the picture, ``<report>_selection.png``, which needs
            matplotlib; by default no files are written.
        predictions: keep the predicted classes of each validation and correct the values for the choice. Not for
            multilabel reports, ``state="margins"`` and ``weighted=True``.

    Raises:
        ValueError: for no measures, or one named twice; at the start of ``fit`` for an unknown report or measure, for a
            resumed history of a report that counts otherwise, and for ``predictions`` of a report that has none; in the
            sanity check if several reports are computed and ``report`` names none.
        TypeError: for a report or measures that are no names.
        ModuleNotFoundError: at the start of ``fit`` for ``out`` without matplotlib.

    Examples:
        Attach it together with the checkpoint callback; :meth:`table` is also available after ``fit``::

            best = TiesCheckpoint(monitor="val_iam", mode="max")
            summary = SelectionSummary(measures=["iam", "accuracy"], predictions=True)
            Trainer(callbacks=[best, summary]).fit(module, train_loader, val_loader)
            summary.table()["selected"]["best iam"]["epoch"]

        >>> SelectionSummary(measures=["iam", "mcc"]).measures
        ('iam', 'mcc')
    """

    def __init__(
        self,
        report: str | None = None,
        measures: Sequence[str] = ("iam", "accuracy", "balanced_accuracy", "gmean", "mcc"),
        out: str | Path | None = None,
        predictions: bool = False,
    ) -> None:
        given: object = report
        if given is not None and not isinstance(given, str):
            got = f"got an object of type {type(given).__name__}"
            if isinstance(given, (list, tuple)):
                got = f"got {given!r}; to choose the measures write measures={given!r}"
            raise TypeError(f"report must be the name of a report, the attribute of the module such as 'val', {got}")
        if isinstance(measures, str) or not all(isinstance(name, str) for name in measures):
            raise TypeError(f"measures must be a sequence of names such as ('iam', 'accuracy'), got {measures!r}")
        if not measures or len(set(measures)) < len(measures):
            raise ValueError(f"measures must name one measure or more and none twice, got {list(measures)}")
        self.report = report
        self.measures = tuple(measures)
        self.out = None if out is None else Path(out)
        self.predictions = predictions
        self._followed: FollowedReport | None = None  # known once the module's reports are
        self._validations: list[dict[str, Any]] = []
        self._targets: Tensor | None = None  # of this process, in the order of its predictions
        self._clusters: Tensor | None = None  # ids of the same samples, if the report has clusters
        self._dependent = False  # whether samples of this process depend on each other and the report has no clusters
        self._listeners: dict[str, PredictionListener] = {}
        self.choices: dict[str, ChosenEpoch] = {}
        self._resampled: list[int] | None = None  # validations that these chose from; None before the end of fit
        self._kept: dict[str, dict[str, Any]] = {}  # state key of a checkpoint callback -> what it kept, and when
        self._watcher = CheckpointWatcher()
        self._before: dict[str, object] = {}  # path of a report -> its result when the validation began
        self._epoch = 0  # of the last training batch
        self._processes = 1
        self._stage = "fit"  # or "validate", ...
        self._already_warned: set[str] = set()

    # --- state in checkpoints ---------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """Key of the state in checkpoints, by the report: measures and folder may change when a run is resumed."""
        return self._generate_state_key(report=self.report)

    def state_dict(self) -> dict[str, Any]:
        """Return the validations and the epochs of the kept checkpoints, as tensors and plain values."""
        return {
            "validations": list(self._validations),
            "kept": {key: dict(kept) for key, kept in self._kept.items()},
            "targets": self._targets,
            "clusters": self._clusters,
            "processes": self._processes,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the history of a checkpoint for a resumed ``fit``; do nothing in ``validate`` and ``test``."""
        if self._stage != "fit":
            return
        self._validations, self._kept = list(state_dict["validations"]), dict(state_dict["kept"])
        self._targets, self._clusters = state_dict.get("targets"), state_dict.get("clusters")
        if not self.predictions or self._processes > 1 or state_dict.get("processes") != 1:  # those of rank zero alone
            self._targets = self._clusters = None
            self._validations = [
                {key: value for key, value in entry.items() if key != "predictions"} for entry in self._validations
            ]

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the state to a checkpoint that is being written, which may itself be the one that is kept."""
        self._look_at_checkpoints(trainer, trainer.current_epoch)
        checkpoint["callbacks"][self.state_key] = self.state_dict()

    # --- during fit -------------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Drop the history of another run, and check for matplotlib before the training rather than after it."""
        self._stage = stage
        self._processes = trainer.world_size
        if stage == "fit" and trainer.global_step == 0:  # a checkpoint is restored after this
            self._validations, self._kept, self._targets, self._clusters = [], {}, None, None
        if stage == "fit" and self.out is not None and not find_spec("matplotlib"):
            raise ModuleNotFoundError(
                "SelectionSummary(out=...) draws a picture, which needs matplotlib: pip install 'imbtorch[plot]'"
            )

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the report and check all names."""
        known = dict(reports(pl_module))
        self._followed, self._already_warned, self._dependent = None, set(), False
        if self.report is not None and self.report not in known:
            choice = f"; to choose the measure write measures=[{self.report!r}]" * (self.report in by_any_name())
            raise ValueError(f"the module has no report {self.report!r}; it has {sorted(known) or 'none'}{choice}")
        if not known:
            raise ValueError("SelectionSummary needs an ImbalanceReport, and the module has none among its children")
        path = next(iter(known)) if len(known) == 1 else self.report
        if path is not None:
            self._followed = self._follow(path, known[path], trainer)

    def _follow(self, path: str, report: ImbalanceReport, trainer: Any) -> FollowedReport:
        """Read off the report and the callbacks of the trainer what is to be compared."""
        reason = why_not_predictable(report)
        if self.predictions and reason:
            raise ValueError(
                f"predictions=True resamples the predicted class of each sample, but the report {path!r} {reason}"
            )
        return FollowedReport.of(path, report, self.measures, trainer, resamples=not reason)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note what the checkpoint callbacks kept before a resumed run, and check that its history can be continued."""
        if self._followed is not None:
            self._check_counting(self._followed.path, pl_module.get_submodule(self._followed.path))
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
        """Remember results computed before, by training for example, and listen to the predictions."""
        self._before = {path: report.last_result for path, report in reports(pl_module)}
        self._stop_listening()
        if self.predictions and is_fitting(trainer) and not trainer.sanity_checking:
            path = None if self._followed is None else self._followed.path
            self._listeners = {
                name: PredictionListener(report, with_ids=report.clusters and self._clusters is None)
                for name, report in reports(pl_module)
                if path in (None, name)
            }

    def _stop_listening(self) -> dict[str, PredictionListener]:
        """Stop all listeners and return them."""
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.stop()
        return listeners

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the counts that this validation computed, on all processes alike."""
        if not is_fitting(trainer):
            return
        listeners, known = self._stop_listening(), dict(reports(pl_module))
        computed = {
            path: report
            for path, report in known.items()
            if report.last_result is not None and report.last_result is not self._before.get(path)
        }
        if self._followed is None and len(computed) == 1:
            self._followed = self._follow(*next(iter(computed.items())), trainer)
        if self._followed is None and computed:
            choose = f"SelectionSummary(report={next(iter(computed))!r})"
            text = f"validation computed several reports ({', '.join(computed)}); choose one, as in {choose}"
            if trainer.sanity_checking:
                raise ValueError(text)
            self._warn(trainer, text)  # after hours of training not worth an error
        elif not trainer.sanity_checking:
            path = next(iter(known)) if self._followed is None else self._followed.path
            if path in computed:
                self._record(trainer, path, computed[path], listeners.get(path))
                return
            self._warn(
                trainer,
                f"no report was computed by validation, so there is no history; call self.{path}.update(...) in "
                f"validation_step and self.log_dict(self.{path}) in on_validation_epoch_end",
            )

    def _record(self, trainer: Any, path: str, report: ImbalanceReport, listener: PredictionListener | None) -> None:
        """Keep the counts of a validation, in place of those of the same step."""
        result, epoch, step = report.last_result, trainer.current_epoch, trainer.global_step
        assert result is not None and self._followed is not None  # noqa: PT018
        self._check_counting(path, report)
        self._validations = [each for each in self._validations if (each["epoch"], each["step"]) != (epoch, step)]
        logged = {column.logged for column in self._followed.columns.values() if column.logged}
        entry = {
            "epoch": epoch,
            "step": step,
            "counting": report.counting.name,
            "logged": {name: float(result.values[name]) for name in sorted(logged)},
            **PackedCounts.pack(result.counts),
        }
        self._validations.append(entry)
        self.choices, self._resampled = {}, None
        if listener is not None:
            self._dependent |= listener.dependent
            if listener.dependent:
                self._warn_of_dependent(trainer, path)
            self._keep_predictions(trainer, entry, *listener.heard())

    def _check_counting(self, path: str, report: ImbalanceReport) -> None:
        """Refuse a report whose counts cannot be compared with those of the history."""
        for entry in self._validations[-1:]:
            if entry["counting"] != report.counting.name:
                raise ValueError(
                    f"the report {path!r} counts otherwise ({report.counting.name}) than the history that the run goes "
                    f"on from ({entry['counting']}); give it the arguments that it had, or start a new run"
                )

    def _keep_predictions(
        self, trainer: Any, entry: dict[str, Any], predicted: Tensor, target: Tensor, cluster: Tensor | None
    ) -> None:
        """Keep the predicted classes of a validation, unless its samples differ from those before."""
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
            self._clusters = cluster if self._clusters is None else self._clusters
            return
        number = len(self._targets)
        seen = f"{number} samples in another order" if len(target) == number else f"{len(target)} in place of {number}"
        self._warn(
            trainer,
            f"the validation of epoch {entry['epoch']}, step {entry['step']}, counted {seen}, so its predictions "
            "cannot be compared and are left out; give its DataLoader shuffle=False, and the same samples each time",
        )

    def _look_at_checkpoints(self, trainer: Any, epoch: int) -> None:
        """Note the epoch and step of what the checkpoint callbacks have newly kept, in the order of the callbacks."""
        for checkpoint in self._watcher.newly_kept(trainer):
            place = {"path": checkpoint.best_model_path, "epoch": epoch, "step": trainer.global_step}
            self._kept[checkpoint.state_key] = place | _rule_of(checkpoint)
        order = [each.state_key for each in trainer.checkpoint_callbacks]
        self._kept = {key: self._kept[key] for key in order if key in self._kept}

    def _warn(self, trainer: Any, text: str, kind: str = "missing") -> None:
        """Warn about the first thing that is missing, which explains the others, or once about something else."""
        if trainer.is_global_zero:
            warn_once(self._already_warned, kind, f"SelectionSummary: {text}")

    def _warn_of_dependent(self, trainer: Any, path: str) -> None:
        """Warn that the choice is corrected as if dependent samples were independent."""
        self._warn(
            trainer,
            f"samples of self.{path} came with clusters or have several positions, such as pixels, but it was built "
            "without clusters, so the choice is corrected as if they were independent, by too little and with too "
            "narrow an interval; build the report with clusters=True, and pass update(..., cluster=ids) unless each "
            "sample is a cluster of its own positions",
            "dependent",
        )

    # --- the end of fit ---------------------------------------------------------------------------------------------

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Print the table of the stored counts, on rank zero alone: the other processes may be gone."""
        self._stop_listening()
        if is_fitting(trainer) and trainer.is_global_zero and self._validations and self._followed is not None:
            self._look_at_checkpoints(trainer, self._epoch)
            print(f"\n{self.table()}", flush=True)  # noqa: T201

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Resample predictions, on all processes; then print, write and log table and picture, on rank zero."""
        if not self._validations or self._followed is None:
            self._warn(trainer, "fit ended without a validation, so there is nothing to tell")
            return
        if self.predictions:
            self._resample(trainer, self._followed, pl_module.get_submodule(self._followed.path))
        if not trainer.is_global_zero:
            return
        table, name, step = self.table(), f"{self._followed.path}_selection", trainer.global_step
        print(f"\n{table}")  # noqa: T201
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / f"{file_name(name)}.txt").write_text(f"{table}\n", encoding="utf-8")
        loggers = [each for each in trainer.loggers if log_table(each, f"{name}_table", table, step)]
        if self.out is None and not (loggers and find_spec("matplotlib")):
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.5, 4.4 + 0.2 * len(table["selected"])), layout="constrained")
        self.plot(figure.subplots())
        if self.out is not None:
            figure.savefig(self.out / f"{file_name(name)}.png", dpi=120)
        for logger in loggers:
            log_figure(logger, name, figure, step)

    def _resample(self, trainer: Any, followed: FollowedReport, report: ImbalanceReport) -> None:
        """Repeat the choice on halves of the samples: a collective step."""

        def announce(seconds: float) -> None:
            if trainer.is_global_zero and seconds > SLOW:
                text = f"SelectionSummary: resampling {len(self._validations)} validations, some {seconds:.0f} s"
                print(text, flush=True)  # noqa: T201

        processes = Processes(
            trainer.global_rank, trainer.world_size, trainer.strategy.root_device, report.process_group
        )
        if bool(processes.sum(torch.tensor([int(self._dependent)]))):
            self._warn_of_dependent(trainer, followed.path)
        self.choices, self._resampled = choose_with_predictions(
            followed,
            self.history(),
            [entry.get("predictions") for entry in self._validations],
            self._targets,
            self._clusters,
            report.counting.classes,
            processes,
            announce,
        )

    # --- results ----------------------------------------------------------------------------------------------------

    def history(self) -> ValidationHistory:
        """Return counts and values of the validations, in their order; never communicates."""
        columns, ties = ({}, "latest") if self._followed is None else (self._followed.columns, self._followed.ties)
        return ValidationHistory.of(self._validations, columns, ties)

    def _found(self) -> tuple[FollowedReport, ValidationHistory, dict[str, Kept]]:
        """Return the report, its validations, and the kept checkpoints by name."""
        if self._followed is None or not self._validations:
            raise RuntimeError("no validation of fit was kept yet, so there is nothing to select from")
        return self._followed, self.history(), _named([*self._kept.values()], self._followed.monitored)

    def table(self) -> Table:
        """Return the kept epochs and those that the measures select, with every measure at each of them.

        The rows of the block ``"selected"`` are what the checkpoint callbacks kept, such as ``"kept by val_iam"`` or
        ``"kept last"``, then ``"best iam"`` and so on for each measure, and the ``"Baseline"``. If callbacks monitor
        the same value, their rules for ties or their numbers follow, as in ``"kept by val_iam (latest of ties)"``.
        Columns are ``"epoch"`` (and ``"step"`` where an epoch had several validations), ``"tied"``, the measures, and
        with ``predictions=True`` ``"corrected"``, ``"stability"``, ``"indistinguishable"`` and ``"shortfall"``.

        Never communicates, so that rank zero alone may call it.

        Raises:
            RuntimeError: before the first validation.
        """
        followed, history, kept = self._found()
        if not followed.resamples:
            remedy = "report its value on test data"
        elif not self.predictions:
            remedy = "SelectionSummary(predictions=True) corrects it"
        elif self._resampled is None:
            remedy = "it is corrected when fit ends without an error"
        else:
            remedy = "no validation has predictions that agree with the counts of all processes, so it is not corrected"
        return selection_table(followed, history, kept, self.choices, self._resampled or [], remedy)

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measures over the epochs, what is selected, and the interval of the monitored measure as a band.

        Args:
            ax: matplotlib axes to draw into; by default the axes of a new figure.

        Returns:
            Figure (None if axes were given) and axes.

        Raises:
            RuntimeError: before the first validation.
        """
        followed, history, kept = self._found()
        places = {how: history.at(each.epoch, each.step) for how, each in kept.items()}
        places |= {name: tied[0] for name, tied in history.best.items() if tied}
        banded = [*followed.monitored.values(), *followed.columns][0]
        bounds = history.band(followed.columns[banded])
        _, baseline = baseline_of(followed, history)
        return plot_selection(
            history.values,
            ax,
            selected={how: at for how, at in places.items() if at is not None},
            intervals={} if bounds is None else {banded: bounds},
            places=history.labels,
            xlabel="Step" if history.unit == "step" else "Epoch",
            baseline=baseline,
        )


def _rule_of(checkpoint: Any) -> dict[str, Any]:
    """Return the monitor of a checkpoint callback, and its rule for ties."""
    return {"monitor": getattr(checkpoint, "monitor", None), "ties": getattr(checkpoint, "ties", "earliest")}


def _named(kept: Sequence[Mapping[str, Any]], monitored: Mapping[str, str]) -> dict[str, Kept]:
    """Name the kept checkpoints by their monitor; those of one monitor also by their rule for ties or their number.

    Args:
        kept: what each checkpoint callback kept, with its monitor and its rule for ties.
        monitored: monitor -> measure of the report.
    """
    named = {}
    for index, one in enumerate(kept):
        same = [place for place, other in enumerate(kept) if other["monitor"] == one["monitor"]]
        monitor, number = one["monitor"] or "", None
        name = f"kept by {monitor}" if monitor else "kept last"
        if monitor and len({kept[place]["ties"] for place in same}) == len(same) > 1:
            name += f" ({one['ties']} of ties)"
        elif len(same) > 1:
            number = same.index(index) + 1
            name += f" ({number})"
        named[name] = Kept(one["epoch"], one["step"], monitored.get(monitor, ""), monitor, number)
    return named
