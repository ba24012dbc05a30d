"""Settings of all tests: one thread a process, so that parallel test processes do not fight over the cores."""

import sys

import pytest
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
    for module in ("batches", "tasks", "metrics.base"):
        monkeypatch.setattr(f"imbtorch.{module}.reading_is_free", lambda _: False)
