"""A checkpoint callback that keeps the latest of tied epochs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import Tensor

from imbtorch.compat import logged, rank_zero, warn_once
from imbtorch.counts import check_choice
from imbtorch.deciding.ties import TIES, Ties
from imbtorch.lightning.base import Callback
from imbtorch.lightning.checkpoint_watcher import loaded

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import ModelCheckpoint as LightningCheckpoint

    _Base = LightningCheckpoint
else:  # the package that the other callbacks are built on
    _package = "pytorch_lightning" if Callback.__module__.startswith("pytorch_lightning") else "lightning.pytorch"
    LightningCheckpoint, _Base = import_module(f"{_package}.callbacks").ModelCheckpoint, object


class TieRule(_Base):
    """Rule for ties, to put before Lightning's ``ModelCheckpoint`` among the bases of a class, as TiesCheckpoint does.

    A program that imports both ``lightning`` and ``pytorch_lightning`` needs one of each package::

        class Checkpoint(TieRule, pytorch_lightning.callbacks.ModelCheckpoint):
            pass
    """

    def __init__(self, *args: Any, ties: Ties = "latest", **kwargs: Any) -> None:
        check_choice("ties", ties, TIES)
        super().__init__(*args, **kwargs)
        self.ties = ties
        self._stage, self._has_fitted = "", False
        self._already_warned: set[str] = set()
        self._of_validation = False  # whether a validation of this fit has measured the monitored value
        self._measured_step: int | None = None  # step of the weights whose monitored value was measured last
        self._validated: dict[str, float] = {}  # values of the last validation of this fit
        self._kept: dict[str, dict[str, float] | None] = {}  # by name of the file; None where no validation was made

    @property
    def state_key(self) -> str:
        """Key of the state in checkpoints: Lightning's and the rule, so that both can be combined."""
        return self._key(self.ties)

    def _key(self, ties: str) -> str:
        return f"{super().state_key}, ties={ties!r}"

    @property
    def kept(self) -> dict[str, float]:
        """Values of the validation behind the best checkpoint, by their names in ``trainer.callback_metrics``.

        ``"epoch"`` and ``"step"`` say when it was made. The values are part of the state of the callback, so a resumed
        run has them; a file of weights only does not hold them.

        Raises:
            ValueError: if no file is kept, or if its weights were saved without a validation.

        >>> checkpoint = TiesCheckpoint(monitor="val_iam", mode="max")
        >>> checkpoint.kept
        Traceback (most recent call last):
            ...
        ValueError: no checkpoint is kept yet; call `fit` first
        """
        if not self.best_model_path:
            raise ValueError("no checkpoint is kept yet; call `fit` first")
        return self.kept_of(self.best_model_path)

    def kept_of(self, path: str | PathLike[str]) -> dict[str, float]:
        """Return the values of the validation behind one of the kept checkpoints, as :attr:`kept`.

        Args:
            path: file that ``best_k_models`` or ``best_model_path`` names, wherever its folder is now.

        Raises:
            ValueError: for another file, or one whose weights were saved without a validation.
        """
        named = "/" + str(path).replace("\\", "/")
        kept = self._kept or self._kept_by_file(path)
        name = max((name for name in kept if named.endswith("/" + name)), key=len, default=None)
        if name is None:
            raise ValueError(
                f"this callback holds no values of {str(path)!r}; it holds those of {sorted(kept)}. A run that "
                "began with another checkpoint callback has none of the files which that one saved"
            )
        values = kept[name]
        if values is None:
            raise ValueError(
                f"the weights in {str(path)!r} were saved without a validation, so there are no values of them; call "
                "`trainer.validate(ckpt_path=...)` with this file, or let each epoch that saves validate first"
            )
        return dict(values)

    def _kept_by_file(self, path: str | PathLike[str]) -> dict[str, dict[str, float] | None]:
        """Return the values that a file holds, if other processes trained, as those of ``ddp_spawn`` and notebooks."""
        states = loaded(path).get("callbacks") if self.best_model_path else None
        return dict((states or {}).get(self.state_key, {}).get("kept", {}))

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse the Trainer of the other package, which would keep the last epoch in place of the best.

        Raises:
            TypeError: for that Trainer.
        """
        modules = {base.__module__.partition(".trainer.")[0] for base in type(trainer).__mro__}
        for package in modules & {"lightning.pytorch", "pytorch_lightning"}:
            if not isinstance(self, import_module(f"{package}.callbacks").Checkpoint):
                raise TypeError(
                    f"{type(self).__name__} is not built on {package}, so this Trainer does not take it for a "
                    f"checkpoint callback. Import {package} before imbtorch.lightning, or, in a program that imports "
                    "both packages of Lightning, use `class Checkpoint(imbtorch.lightning.checkpoint.TieRule, "
                    f"{package}.callbacks.ModelCheckpoint): pass`"
                )
        self._stage, self._has_fitted = stage, self._has_fitted or stage == "fit"
        if stage == "fit":
            self._validated = {}
        if stage == "fit" and trainer.global_step == 0:
            self._last_global_step_saved = 0  # else that step of an earlier fit is not saved in this one
        super().setup(trainer, pl_module, stage)

    def state_dict(self) -> dict[str, Any]:
        """Return Lightning's state and the values of each kept checkpoint."""
        return {**super().state_dict(), "kept": self._kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a checkpoint, but not in ``validate``, ``test`` and ``predict`` after ``fit``.

        Lightning restores it there, too: after ``test`` of an older checkpoint ``best_model_path`` would be the file
        that was the best one then, which may have been deleted since.
        """
        if self._stage == "fit" or not self._has_fitted:
            super().load_state_dict(state_dict)
            self._kept = dict(state_dict.get("kept", {}))
            if self.best_model_path in self.best_k_models:  # first of tied ones, whoever chose it
                best = {self.best_model_path: self.best_k_models[self.best_model_path]}
                self.best_k_models = best | self.best_k_models
                self._rank()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take over what Lightning's own callback, or the other rule, kept in the run that is resumed."""
        states, attached = checkpoint["callbacks"], {callback.state_key for callback in trainer.callbacks}
        rules = [self._key(ties).removeprefix(type(self).__qualname__) for ties in TIES]
        lightnings = "ModelCheckpoint" + super().state_key.removeprefix(type(self).__qualname__)
        for key in (
            lightnings,
            *(name + rule for name in (type(self).__qualname__, "ModelCheckpoint") for rule in rules),
        ):
            if self.state_key not in states and key in states and key not in attached:
                states[self.state_key] = states[key]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Warn of settings that save between validations, if the sanity check has measured the monitored value."""
        super().on_train_start(trainer, pl_module)
        self._warn_of_settings(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Note whether this validation measured the monitored value, before Lightning may save the weights."""
        self._note_measured(trainer)
        if self._stage == "fit" and not trainer.sanity_checking:
            self._validated = _values_of_validation(trainer)
        if self._stage == "fit" and self._measured_step == trainer.global_step:
            self._of_validation = True
            if not trainer.sanity_checking:  # which knows no training batches yet
                self._warn_of_settings(trainer)
        super().on_validation_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note whether this epoch of training measured the monitored value, before Lightning may save the weights."""
        self._note_measured(trainer)
        super().on_train_epoch_end(trainer, pl_module)

    def _note_measured(self, trainer: Any) -> None:
        """Note the step of the present weights if the running loop has logged the monitored value."""
        if any(name == self.monitor and not result.has_reset for name, result in logged(trainer)):
            self._measured_step = trainer.global_step

    def _warn_of_settings(self, trainer: Any) -> None:
        """Warn of a setting by which weights that were not validated are saved with a value of validation."""
        cause = self._saves_between_validations(trainer) if self._of_validation else ""
        if cause:
            self._warn_of_unvalidated(
                f"saves between validations, by {cause}, and compares the value of the last validation again, so the "
                f"best file may hold weights that were never validated; leave {cause.partition('=')[0]} out, and to "
                "save more often add a second callback without monitor"
            )

    def _warn_of_unvalidated(self, text: str) -> None:
        """Warn once on rank zero about files of weights that were not validated."""
        if rank_zero():
            warn_once(self._already_warned, "unvalidated", f"{type(self).__name__}(monitor={self.monitor!r}) {text}")

    def _saves_between_validations(self, trainer: Any) -> str:
        """Return the setting by which files are also saved between validations; empty if there is none."""
        if self._every_n_train_steps:
            return f"every_n_train_steps={self._every_n_train_steps}"
        if self._train_time_interval is not None:
            return f"train_time_interval={self._train_time_interval!r}"
        every, interval = trainer.check_val_every_n_epoch, trainer.val_check_batch
        at_end = interval == math.inf or trainer.num_training_batches % (interval or math.inf) == 0
        validated = at_end and every and self._every_n_epochs % every == 0  # whether each saved epoch is, at its end
        return "save_on_train_epoch_end=True" if self._save_on_train_epoch_end and not validated else ""

    def check_monitor_top_k(self, trainer: Any, current: Tensor | None = None) -> bool:
        """Return whether a value is among the best ``save_top_k``; a tie must be measured on the present weights."""
        all_taken = 0 < self.save_top_k <= len(self.best_k_models)
        if self.ties == "earliest" or current is None or not all_taken:
            return bool(super().check_monitor_top_k(trainer, current))
        worst = self.best_k_models[self.kth_best_model_path]
        sign = 1 if self.mode == "max" else -1
        value, limit = (sign * each.nan_to_num(-sign * math.inf, math.inf, -math.inf) for each in (current, worst))
        enters = value > limit or (value == limit and trainer.global_step == self._measured_step)
        return bool(trainer.strategy.reduce_boolean_decision(bool(enters)))

    def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
        """Rank the checkpoints before the file, which holds the best one's path and values, is written."""
        if filepath in self.best_k_models:
            saved = {filepath: self.best_k_models.pop(filepath)}
            measured = trainer.global_step == self._measured_step
            first = self.ties == "latest" and measured
            self.best_k_models = saved | self.best_k_models if first else self.best_k_models | saved
            self._rank()
            if self._of_validation and not measured and filepath == self.best_model_path:
                self._warn_of_unvalidated(
                    f"saves step {trainer.global_step} as the best, whose weights were not validated, with the value "
                    "of the last validation; let the run end with an epoch that every_n_epochs saves"
                )
        self._note_kept(trainer, filepath)
        super()._save_checkpoint(trainer, filepath)

    def _note_kept(self, trainer: Any, filepath: str) -> None:
        """Note the values of the weights that are saved, and forget those of files that are no longer kept."""
        validated = self._validated if self._validated.get("step") == trainer.global_step else None
        values = {**self._kept, _name(filepath, self.dirpath): validated}
        files = {_name(path, self.dirpath) for path in (*self.best_k_models, self.best_model_path)}
        self._kept = {name: values[name] for name in values if name in files}

    def _rank(self) -> None:
        """Find the best and the worst of the checkpoints; of tied ones the first is to be kept, the last deleted."""
        best, worst = (max, min) if self.mode == "max" else (min, max)
        self.best_model_path = best(self.best_k_models, key=self.best_k_models.__getitem__)
        self.best_model_score = self.best_k_models[self.best_model_path]
        if len(self.best_k_models) == self.save_top_k:
            self.kth_best_model_path = worst(reversed(self.best_k_models), key=self.best_k_models.__getitem__)


def _values_of_validation(trainer: Any) -> dict[str, float]:
    """Return what the validation that has just ended has logged, with its epoch and step."""
    names = {name for name, result in logged(trainer) if not result.has_reset}
    values = {name: float(value) for name, value in trainer.callback_metrics.items() if name in names}
    return {**values, "epoch": trainer.current_epoch, "step": trainer.global_step}


def _name(path: str | PathLike[str], folder: str | PathLike[str] | None) -> str:
    """Return the name of a file below its folder, which may move."""
    inner = str(path).removeprefix(str(folder or ""))
    return inner.replace("\\", "/").lstrip("/")


def _with_ties(init: Callable[..., None]) -> inspect.Signature:
    """Return the signature of a constructor with the argument ``ties``, for programs that read it."""
    theirs = inspect.signature(init)
    ties = inspect.Parameter("ties", inspect.Parameter.KEYWORD_ONLY, default="latest", annotation=Ties)
    return theirs.replace(parameters=[*theirs.parameters.values(), ties])


class TiesCheckpoint(TieRule, LightningCheckpoint):
    """Drop-in replacement for Lightning's ``ModelCheckpoint`` that keeps the latest of tied epochs, not the earliest.

    ``imbtorch.lightning.ModelCheckpoint`` and ``TiesCheckpoint`` are two names of this class.

    On a small validation set many epochs can have the same best value of a measure. On the test parts of 31 small
    tables (16 families), with an unweighted loss and right labels, the latest of them was better than the earliest by
    3.0 percentage points of balanced accuracy (95% interval 1.3 to 4.3) and 5.6 of IAM (2.6 to 7.6). With class
    weights, or with wrong labels, the mean over four measures is inconclusive (a study that
    the page "Evidence for decisions" names).

    Leave ``every_n_train_steps``, ``train_time_interval`` and ``save_on_train_epoch_end`` unset: Lightning would save
    weights that were not validated. A warning says so. To save more often, add a second callback without ``monitor``.

    Everything else is Lightning's: arguments, ``save_top_k``, ``save_last``, both modes, several processes. Among the
    best ``save_top_k`` checkpoints ``best_model_path`` is the latest of tied ones, and of tied worst ones the earliest
    is deleted; with ``ties="earliest"`` the other way round. nan is worse than any value. A run that began with
    Lightning's own callback, or with the other rule, keeps its best value when it is resumed. :class:`MonitorGuard`
    checks the mode, and :class:`SelectionSummary` follows the rule.

    Unlike Lightning's, it keeps its own state when ``validate``, ``test`` or ``predict`` load a checkpoint after
    ``fit``, so the files of several callbacks can be tested one after the other.

    ``EarlyStopping`` counts a tie as no improvement, so ties use up its patience. In six tasks of 20 epochs a patience
    of 10 changed test values by 0.2 points at most; one of 3 stopped among tied first epochs in the task with two
    classes (another study that is named there).

    Args:
        *args: positional arguments of Lightning's ``ModelCheckpoint``, such as ``dirpath``.
        ties: the epoch to keep of those with the same value,  ``"latest"`` or ``"earliest"``.
        **kwargs: keyword arguments of Lightning's ``ModelCheckpoint``, such as ``monitor="val_iam"`` and
            ``mode="max"``.

    Raises:
        ValueError: for another rule.
        TypeError: at the start of ``fit``, for a Trainer of the other Lightning package.

    >>> TiesCheckpoint(monitor="val_iam", mode="max").ties
    'latest'
    """

    def __init__(self, *args: Any, ties: Ties = "latest", **kwargs: Any) -> None:
        super().__init__(*args, ties=ties, **kwargs)

    vars()["__init__"].__signature__ = _with_ties(LightningCheckpoint.__init__)


ModelCheckpoint = TiesCheckpoint
