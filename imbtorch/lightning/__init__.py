"""Callbacks for Lightning; needs ``lightning`` or ``pytorch_lightning`` (``pip install 'imbtorch[lightning]'``)."""

from imbtorch.lightning.checkpoint import ModelCheckpoint, TiesCheckpoint
from imbtorch.lightning.figures import ConfusionFigures
from imbtorch.lightning.monitor_guard import MonitorGuard, unguarded
from imbtorch.lightning.selection_summary import SelectionSummary, ValidationHistory
from imbtorch.sampler import ExactBatchSampler

__all__ = [
    "ConfusionFigures",
    "ExactBatchSampler",
    "ModelCheckpoint",
    "MonitorGuard",
    "SelectionSummary",
    "TiesCheckpoint",
    "ValidationHistory",
    "unguarded",
]
