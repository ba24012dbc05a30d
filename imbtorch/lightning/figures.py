"""Figures of the results of reports and sweeps after each validation and test, for the attached loggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from imbtorch.compat import warn_once
from imbtorch.lightning.base import Callback, is_fitting, shared_results
from imbtorch.lightning.checkpoint_watcher import CheckpointWatcher, TrainingPoint
from imbtorch.lightning.drawings import drawings
from imbtorch.lightning.loggers import log_figure


class ConfusionFigures(Callback):
    """Figures of reports and sweeps, drawn after each validation and test and handed to the loggers.

    They show the results of each validation, in ``fit`` or ``validate``, and of each ``test``. TensorBoard, Weights &
    Biases, MLflow and Comet take the figures; with the CSV logger they become PNGs in ``figures`` next to the log.
    One warning names a logger that takes no figures or raises an error. Drawing needs matplotlib. A figure is named by
    the attribute of the report or sweep, followed by:

    - ``_confusion``: the confusion matrix of an :class:`~imbtorch.ImbalanceReport` (all groups together)
      and the recall of each class, with its interval if the report has one, as the ``plot`` of its result draws them.
      Labels and margins have no matrix.
    - ``_groups``: each measure (of ``per_group``, or all) for each group of samples, with its value for all groups.
    - ``_class_groups``: each measure of class groups.
    - ``_curves``: the measure of a :class:`~imbtorch.ThresholdSweep` over its thresholds, the ROC curve and precision
      over recall, with the chosen threshold and 95% intervals, as the ``plot`` of its result draws them. With several
      labels or classes, the ten with the fewest positives, and average precisions in place of precision over recall. If
      no label has targets of both classes, nothing is drawn and a warning says so, once.

    Names of figures of ``test`` end in ``_test``. File names add the epoch of the weights, as in ``_epoch0007``: after
    ``validate(ckpt_path="best")`` the epoch of the checkpoint, without a path the last epoch trained. They omit an
    unknown epoch, for example without training.

    Args:
        every_n_epochs: draw every n-th epoch of ``fit``.
        report: attribute of the report or sweep to draw, such as ``"val"``; by default all that validation computed.
        kept_only: draw only the epochs of ``fit`` whose weights a ``ModelCheckpoint`` keeps in the end (its
            ``best_model_path``), after the training or when it is interrupted.

    Raises:
        ValueError: for ``every_n_epochs`` below 1, or together with ``kept_only``; at the start of ``fit`` for
            ``kept_only`` without a checkpoint callback; at the end of validation for a report that the module does not
            have.

    Examples:
        Draw every fifth epoch of ``fit``, and each test::

            Trainer(callbacks=[ConfusionFigures(every_n_epochs=5)], logger=CSVLogger("out"))

        >>> ConfusionFigures(every_n_epochs=5).every_n_epochs
        5
    """

    def __init__(self, every_n_epochs: int = 1, report: str | None = None, *, kept_only: bool = False) -> None:
        if every_n_epochs < 1:
            raise ValueError(f"every_n_epochs must be at least 1, got {every_n_epochs!r}")
        if kept_only and every_n_epochs > 1:
            raise ValueError("kept_only=True draws the epoch that is kept, whichever it is; leave every_n_epochs out")
        self.every_n_epochs = every_n_epochs
        self.report = report
        self.kept_only = kept_only
        self._already_warned: set[str] = set()
        self._results_before: dict[str, object] = {}
        self._loaded: TrainingPoint | None = None  # of the weights, if they come from a checkpoint
        self._loaded_by_hook = False
        self._watcher = CheckpointWatcher()
        self._latest: list[_Drawing] = []  # of the last validation
        self._kept: dict[str, list[_Drawing]] = {}  # state key of a checkpoint callback -> what it keeps

    # --- the weights that are shown -----------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check for a checkpoint callback, which ``kept_only`` needs."""
        self._loaded_by_hook = False
        if stage == "fit" and self.kept_only and not trainer.checkpoint_callbacks:
            raise ValueError(
                "ConfusionFigures(kept_only=True) draws the epoch that a ModelCheckpoint keeps, and there is none; add "
                "one to the callbacks of the Trainer, or draw every epoch"
            )

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Remember the epoch of the weights."""
        self._loaded, self._loaded_by_hook = TrainingPoint.of_checkpoint(checkpoint), True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget loaded weights and kept checkpoints: those of earlier runs cannot be drawn."""
        self._loaded = None
        self._latest, self._kept, self._watcher = [], {}, CheckpointWatcher()
        for _ in self._watcher.newly_kept(trainer):
            pass

    def _weights_of(self, trainer: Any) -> TrainingPoint:
        if is_fitting(trainer):
            return TrainingPoint(trainer.current_epoch, trainer.global_step)
        if trainer.ckpt_path and not self._loaded_by_hook:  # Lightning calls it for some checkpoints alone
            self._loaded = TrainingPoint.of_file(trainer.ckpt_path) or TrainingPoint(None, trainer.global_step)
        return self._loaded or TrainingPoint.of_training(trainer)

    # --- drawing ------------------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember results computed before, by training for example."""
        self._results_before = {path: report.last_result for path, report in shared_results(pl_module)}

    on_test_start = on_validation_start

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw the results of a validation, on rank zero."""
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        if not is_fitting(trainer):
            self._hand_over(trainer, self._drawings(trainer, pl_module))
        elif self.kept_only:
            self._latest = list(self._drawings(trainer, pl_module))
        elif trainer.current_epoch % self.every_n_epochs == 0:
            self._hand_over(trainer, self._drawings(trainer, pl_module))

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw the results of a test, on rank zero."""
        if trainer.is_global_zero:
            self._hand_over(trainer, self._drawings(trainer, pl_module, "_test"))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note the checkpoints kept after the last batch."""
        self._look_at_checkpoints(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw the kept epochs."""
        self._draw_kept(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Draw the epochs kept until the training was interrupted."""
        self._draw_kept(trainer)

    def _look_at_checkpoints(self, trainer: Any) -> None:
        if self.kept_only:
            for checkpoint in self._watcher.newly_kept(trainer):
                of_these_weights = [each for each in self._latest if each.weights.step == trainer.global_step]
                self._kept[checkpoint.state_key] = of_these_weights

    def _draw_kept(self, trainer: Any) -> None:
        if not self.kept_only or not is_fitting(trainer) or not trainer.is_global_zero:
            return
        self._look_at_checkpoints(trainer)
        kept = {(each.name, each.weights): each for drawings in self._kept.values() for each in drawings}
        self._hand_over(trainer, iter(kept.values()))
        if not all(self._kept.values()):
            self._warn("the weights that a ModelCheckpoint keeps were not validated, so they are not drawn")
        self._kept = {}

    def _drawings(self, trainer: Any, module: Any, postfix: str = "") -> Iterator[_Drawing]:
        """Yield the drawings of results computed since the start of this validation or test."""
        known = dict(shared_results(module))
        if self.report is not None and self.report not in known:
            raise ValueError(f"the module has no report {self.report!r}; it has {sorted(known) or 'none'}")
        for path, metric in known.items():
            result = metric.last_result
            if self.report not in (None, path) or result is None or result is self._results_before.get(path):
                continue
            made = [
                _Drawing(f"{path}_{what}{postfix}", self._weights_of(trainer), draw) for what, draw in drawings(metric)
            ]
            if not made:
                self._warn(f"{path!r} has no targets of both classes, so there is no curve to draw")
            yield from made

    # --- loggers and warnings -----------------------------------------------------------------------------------------

    def _hand_over(self, trainer: Any, found: Iterator[_Drawing]) -> None:
        for drawing in found if trainer.loggers else ():
            figure, epoch = drawing.draw(), drawing.weights.epoch
            file = drawing.name if epoch is None else f"{drawing.name}_epoch{epoch:04d}"
            for logger in trainer.loggers:
                log_figure(logger, drawing.name, figure, drawing.weights.step, file)

    def _warn(self, text: str) -> None:
        warn_once(self._already_warned, text, f"ConfusionFigures: {text}")


@dataclass(frozen=True, eq=False)
class _Drawing:
    """A figure to be drawn: its name, the point of its weights, and the function that draws it."""

    name: str
    weights: TrainingPoint
    draw: Callable[[], Any]
