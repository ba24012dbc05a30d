"""Base of the callbacks, of the Lightning package that the program uses, and what all of them ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.shared_result import SharedResult

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:  # the package that the program has imported already, else whichever is installed
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            raise ImportError
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ModuleNotFoundError(
                "imbtorch.lightning needs Lightning: pip install 'imbtorch[lightning]'"
            ) from error

__all__ = ["Callback", "is_fitting", "reports", "shared_results"]  # exports what is imported above


def shared_results(module: nn.Module) -> Iterator[tuple[str, SharedResult]]:
    """Yield all reports and sweeps of a module, by the path of their attribute."""
    for path, child in module.named_modules():
        if isinstance(child, SharedResult):
            yield path, child


def reports(module: nn.Module) -> Iterator[tuple[str, ImbalanceReport]]:
    """Yield all reports of a module, by the path of their attribute."""
    for path, child in shared_results(module):
        if isinstance(child, ImbalanceReport):
            yield path, child


def is_fitting(trainer: Any) -> bool:
    """Return whether the trainer is in ``fit`` rather than ``validate`` or ``test``."""
    return bool(trainer.state.fn == "fit")
