"""The confusion matrix of each validation, drawn for whichever logger is attached."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from imbtorch.confusion import margins
from imbtorch.lightning.base import Callback, reports
from imbtorch.measures import recall
from imbtorch.plots import plot_values
from imbtorch.report import ImbalanceReport

__all__ = ["ConfusionFigures"]


class ConfusionFigures(Callback):
    """Draws the confusion matrix and the recall of each class at the end of validation, and hands it to the loggers.

    TensorBoard, Weights & Biases and MLflow take the figure; with the CSV logger it becomes a PNG in ``figures`` beside
    the log. A logger that cannot take figures is named in a warning, once. Needs matplotlib.

    Args:
        every_n_epochs: draw every n-th epoch.
        report: attribute of the report to draw, such as ``"val"``; by default all reports that validation computed.

    Raises:
        ValueError: for ``every_n_epochs`` below 1.
    """

    def __init__(self, every_n_epochs: int = 1, report: str | None = None) -> None:
        if every_n_epochs < 1:
            raise ValueError(f"every_n_epochs must be at least 1, got {every_n_epochs!r}")
        self.every_n_epochs = every_n_epochs
        self.report = report
        self._told: set[str] = set()
        self._before: dict[str, object] = {}

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember what was computed before, by training for example."""
        self._before = {path: report._last for path, report in reports(pl_module)}

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw what validation computed, on rank zero."""
        if trainer.sanity_checking or not trainer.is_global_zero or trainer.current_epoch % self.every_n_epochs:
            return
        found = dict(reports(pl_module))
        if self.report is not None and self.report not in found:
            raise ValueError(f"the module has no report {self.report!r}; it has {sorted(found) or 'none'}")
        for path, report in found.items():
            result = report._last
            if self.report not in (None, path) or result is None or result is self._before.get(path):
                continue  # not wanted, or not computed by this validation
            figure = _figure(report)
            for logger in trainer.loggers:
                self._hand_over(logger, figure, f"{path}_confusion", trainer.global_step, trainer.current_epoch)

    def _hand_over(self, logger: Any, figure: Any, name: str, step: int, epoch: int) -> None:
        kind = type(logger).__name__
        experiment: Any = getattr(logger, "experiment", None)
        if hasattr(experiment, "add_figure"):  # TensorBoard
            experiment.add_figure(name, figure, global_step=step)
        elif hasattr(logger, "log_image"):  # Weights & Biases
            logger.log_image(key=name, images=[figure], step=step)
        elif hasattr(experiment, "log_figure"):  # MLflow
            experiment.log_figure(logger.run_id, figure, f"figures/{name}_epoch{epoch:04d}.png")
        elif kind == "CSVLogger":
            folder = Path(logger.log_dir) / "figures"
            folder.mkdir(parents=True, exist_ok=True)
            stem = re.sub(r"[^-\w.]", "_", name)
            figure.savefig(folder / f"{stem}_epoch{epoch:04d}.png", dpi=120)
        elif kind not in self._told:
            self._told.add(kind)
            warnings.warn(f"ConfusionFigures: {kind} takes no figures, so none are logged there", stacklevel=2)


def _figure(report: ImbalanceReport) -> Any:
    """Confusion matrix beside the recalls; recalls alone where there is no matrix."""
    from matplotlib.figure import Figure

    counts = report.result().counts
    matrix = isinstance(counts, Tensor) and counts.ndim == 2
    side = min(max(4.0, 0.45 * len(report.class_names)), 12.0)
    figure = Figure(figsize=(2 * side if matrix else side, side), layout="constrained")
    if not matrix:
        report.plot(ax=figure.subplots())
        return figure
    left, right = figure.subplots(1, 2)
    report.plot(ax=left)
    recalls = recall(margins(counts), average="none")
    plot_values(recalls, right, name="recall", bounds=(0.0, 1.0), labels=report.class_names)
    return figure
