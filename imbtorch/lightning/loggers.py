"""Figures and tables, handed to whichever logger there is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["file_name", "log_figure", "log_table"]


def log_figure(logger: Any, name: str, figure: Any, step: int, file: str = "") -> bool:
    """Hand a figure to a logger, on rank zero alone.

    Args:
        logger: of Lightning. TensorBoard, Weights & Biases and MLflow take it; beside a CSV log it becomes a PNG in
            ``figures``.
        name: of the figure.
        figure: of matplotlib.
        step: optimizer steps that had been taken.
        file: name without ending where it becomes a file; by default that of the figure.

    Returns:
        Whether the logger takes figures.
    """
    experiment: Any = getattr(logger, "experiment", None)
    path = f"figures/{file_name(file or name)}.png"
    if hasattr(experiment, "add_figure"):  # TensorBoard
        experiment.add_figure(name, figure, global_step=step)
    elif hasattr(logger, "log_image"):  # Weights & Biases
        logger.log_image(key=name, images=[figure], step=step)
    elif hasattr(experiment, "log_figure"):  # MLflow
        experiment.log_figure(logger.run_id, figure, path)
    elif _is_csv(logger):
        figure.savefig(_beside_the_log(logger, path), dpi=120)
    else:
        return False
    return True


def log_table(
    logger: Any, name: str, text: str, rows: Sequence[Sequence[Any]], notes: Sequence[str], step: int
) -> bool:
    """Hand a table to a logger, on rank zero alone.

    Args:
        logger: see :func:`log_figure`. Weights & Biases takes rows, and notes as ``<name>_notes``; the others text.
        name: of the table.
        text: of table and notes.
        rows: cells, those of the head first.
        notes: what is to be known beside them.
        step: optimizer steps that had been taken.

    Returns:
        Whether the logger takes tables.
    """
    experiment: Any = getattr(logger, "experiment", None)
    path = f"{file_name(name)}.txt"
    if hasattr(experiment, "add_text"):  # TensorBoard, which reads Markdown
        experiment.add_text(name, "\n".join(f"    {line}" for line in text.splitlines()), global_step=step)
    elif hasattr(logger, "log_table"):  # Weights & Biases
        head, *cells = (list(row) for row in rows)
        logger.log_table(key=name, columns=head, data=cells, step=step)
        logger.log_text(key=f"{name}_notes", columns=["note"], data=[[note] for note in notes], step=step)
    elif hasattr(experiment, "log_text"):  # MLflow
        experiment.log_text(logger.run_id, f"{text}\n", path)
    elif _is_csv(logger):
        _beside_the_log(logger, path).write_text(f"{text}\n", encoding="utf-8")
    else:
        return False
    return True


def _is_csv(logger: Any) -> bool:
    return type(logger).__name__ == "CSVLogger"


def file_name(name: str) -> str:
    """Name of a report's attribute without what a path cannot bear."""
    return re.sub(r"[^-\w.]", "_", name)


def _beside_the_log(logger: Any, path: str) -> Path:
    """Where a file belongs, in a folder that exists."""
    place = Path(logger.log_dir) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
