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

__all__ = ["Callback", "is_fitting", "logged", "reports", "shared_results"]


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


def logged(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and results of what the running loop has logged; nothing if Lightning keeps them elsewhere."""
    results = getattr(trainer, "_results", None)
    for result in results.values() if isinstance(results, dict) else ():
        meta = getattr(result, "meta", None)
        name = getattr(meta, "name", None)
        if not isinstance(name, str) or getattr(result, "value", None) is None:
            continue
        names = [name, f"{name}_step", f"{name}_epoch"] if getattr(meta, "forked", False) else [name]
        index = getattr(meta, "dataloader_idx", None) if getattr(meta, "add_dataloader_idx", False) else None
        for each in names:
            yield each if index is None else f"{each}/dataloader_idx_{index}", result
