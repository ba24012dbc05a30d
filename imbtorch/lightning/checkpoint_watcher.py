"""Epoch and step of weights: those that checkpoint callbacks keep, and those of a checkpoint."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imbtorch.compat import step_of_last_save


class TrainingPoint(NamedTuple):
    """Point of a training at which weights are taken: its last epoch, None if unknown, and its optimizer steps."""

    epoch: int | None
    step: int

    @classmethod
    def of_training(cls, trainer: Any) -> TrainingPoint:
        """Return the point of the present or last training: ``current_epoch`` counts on once an epoch has ended."""
        started = trainer.fit_loop.epoch_progress.current.ready
        return cls(started - 1 if started else None, trainer.global_step)

    @classmethod
    def of_checkpoint(cls, checkpoint: Mapping[str, Any]) -> TrainingPoint:
        """Return the point of the training that wrote a checkpoint."""
        try:
            started = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"]
        except KeyError:  # written by an older Trainer
            return cls(checkpoint.get("epoch"), checkpoint.get("global_step", 0))
        return cls(started - 1 if started else None, checkpoint["global_step"])

    @classmethod
    def of_file(cls, path: str | Path) -> TrainingPoint | None:
        """Return the point of the training that wrote a local file, without its weights; None if it is not known."""
        try:
            return cls.of_checkpoint(checkpoint) if (checkpoint := loaded(path)) else None
        except (ValueError, LookupError, TypeError, AttributeError):  # no checkpoint
            return None


def loaded(path: str | PathLike[str]) -> Mapping[str, Any]:
    """Return the content of a local checkpoint; nothing if it cannot be read."""
    if not Path(path).is_file():
        return {}
    try:
        checkpoint = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError):  # an old format, or objects that are not safe to load
        return {}
    except (ValueError, LookupError, TypeError, AttributeError, EOFError):  # a damaged file
        return {}
    return checkpoint if isinstance(checkpoint, Mapping) else {}


class CheckpointWatcher:
    """Watcher of checkpoint callbacks, which notes changes of what they keep."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, ...]] = {}

    def newly_kept(self, trainer: Any) -> Iterator[Any]:
        """Yield the checkpoint callbacks whose best checkpoint has changed since the last call."""
        for checkpoint in trainer.checkpoint_callbacks:
            path, score, step = mark = _mark(checkpoint)
            old_path, old_score, old_step = self._seen.get(checkpoint.state_key, ("", None, None))
            if path and (path != old_path or score is not old_score or step != old_step):
                self._seen[checkpoint.state_key] = mark
                yield checkpoint


def _mark(checkpoint: Any) -> tuple[Any, ...]:
    """Return values that change with the kept file, even if it keeps its name; no value leaves the device."""
    score = getattr(checkpoint, "best_model_score", None)
    step = step_of_last_save(checkpoint) if score is None else None
    return getattr(checkpoint, "best_model_path", ""), score, step
