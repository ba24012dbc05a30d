"""Of which epoch are the weights: those that checkpoint callbacks keep, and those of a checkpoint."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

__all__ = ["CheckpointWatcher", "TrainingPoint"]


class TrainingPoint(NamedTuple):
    """When in a training weights were as they are.

    Attributes:
        epoch: the epoch that they were trained in last; None if it is not known.
        step: optimizer steps that had been taken.
    """

    epoch: int | None
    step: int

    @classmethod
    def of_training(cls, trainer: Any) -> TrainingPoint:
        """Where a trainer's training is, or ended: its ``current_epoch`` counts on once an epoch has ended."""
        started = trainer.fit_loop.epoch_progress.current.ready
        return cls(started - 1 if started else None, trainer.global_step)

    @classmethod
    def of_checkpoint(cls, checkpoint: Mapping[str, Any]) -> TrainingPoint:
        """Where the training was that wrote a checkpoint."""
        try:
            started = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"]
        except KeyError:  # not written by a Trainer of today
            return cls(checkpoint.get("epoch"), checkpoint.get("global_step", 0))
        return cls(started - 1 if started else None, checkpoint["global_step"])

    @classmethod
    def of_file(cls, path: str | Path) -> TrainingPoint | None:
        """Where the training was that wrote a local file, whose weights are not read; None if it cannot be told."""
        if not Path(path).is_file():
            return None
        try:
            return cls.of_checkpoint(torch.load(path, map_location="cpu", mmap=True, weights_only=True))
        except (RuntimeError, pickle.UnpicklingError):  # an old format, or objects that are not safe to load
            return None


class CheckpointWatcher:
    """Tells which checkpoint callbacks keep other weights than when they were looked at last."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, ...]] = {}

    def newly_kept(self, trainer: Any) -> Iterator[Any]:
        """Checkpoint callbacks that have something new as their best."""
        for checkpoint in trainer.checkpoint_callbacks:
            path, score, step = mark = _mark(checkpoint)
            old_path, old_score, old_step = self._seen.get(checkpoint.state_key, ("", None, None))
            if path and (path != old_path or score is not old_score or step != old_step):
                self._seen[checkpoint.state_key] = mark
                yield checkpoint


def _mark(checkpoint: Any) -> tuple[Any, ...]:
    """What changes with the file that is kept, which may be overwritten under its name; no value leaves the device."""
    score = getattr(checkpoint, "best_model_score", None)
    step = getattr(checkpoint, "_last_global_step_saved", None) if score is None else None
    return getattr(checkpoint, "best_model_path", ""), score, step
