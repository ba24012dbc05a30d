"""Settings of all tests: one thread a process, so that parallel test processes do not fight over the cores."""

import os
import sys

import pytest
import rooms
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _figures_are_closed():
    """Whatever a test draws is gone after it; matplotlib warns of many open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def accelerator(monkeypatch):
    """Make the CPU count as an accelerator does, where no value is read during an update."""
    for module in (rooms.batches, rooms.adjusted_margins, rooms.base):
        monkeypatch.setattr(module, "reading_is_free", lambda _: False)


@pytest.fixture
def _offline(tmp_path, monkeypatch):
    """Recipes of trainers and loggers reach no service, and leave no environment behind."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["trainers.py"])  # which LightningCLI reads
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # of what Lightning calls
    torch.manual_seed(0)
    before = dict(os.environ)
    yield
    os.environ.clear()  # of what Lightning and MLflow are told by it
    os.environ.update(before)
