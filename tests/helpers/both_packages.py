"""Trainings by ``lightning`` and ``pytorch_lightning``; processes that train with one of them do not import this."""

from functools import partial

import lightning
import pytest
import pytorch_lightning
from rooms import monitor_guard
from trainings import QUIET, indices
from versions import needs_callbacks_for

CALLBACKS = {lightning: lightning.pytorch.callbacks, pytorch_lightning: pytorch_lightning.callbacks}


def fit(module, callbacks=(), package=lightning, loaders=None, **options):
    options = {**QUIET, "max_epochs": len(module.wrong), "logger": False, "callbacks": list(callbacks), **options}
    saves = any(isinstance(each, CALLBACKS[package].ModelCheckpoint) for each in callbacks)
    trainer = package.Trainer(enable_checkpointing=saves, **options)
    trainer.fit(module, indices(), indices() if loaders is None else loaders)
    return trainer


class Watcher(lightning.Callback):
    """Anybody's callback with ``monitor`` and ``mode``."""

    def __init__(self, monitor, mode="min"):
        self.monitor, self.mode = monitor, mode


def watch(kind, key, mode, folder, package=lightning):
    """Arguments for the module and the callbacks of something that monitors a key."""
    if kind == "ReduceLROnPlateau":
        return {"plateau": (key, mode)}, []
    if kind == "ModelCheckpoint":
        return {}, [CALLBACKS[package].ModelCheckpoint(folder, "{epoch}", monitor=key, mode=mode)]
    if kind == "EarlyStopping":
        return {}, [CALLBACKS[package].EarlyStopping(key, mode=mode, patience=0)]
    needs_callbacks_for(package)
    return {}, [Watcher(key, mode)]


EVERY_PACKAGE = pytest.mark.parametrize(
    "package",
    [
        pytest.param(lightning, id="lightning"),
        pytest.param(pytorch_lightning, id="pytorch_lightning", marks=pytest.mark.slow),
    ],
)
FACTORIES = {
    lightning: ("lightning.pytorch", partial(monitor_guard.guards, "lightning.pytorch")),
    pytorch_lightning: ("pytorch_lightning", partial(monitor_guard.guards, "pytorch_lightning")),
}
