"""Callbacks for Lightning; needs ``lightning`` or ``pytorch_lightning`` (``pip install 'imbtorch[lightning]'``)."""

from imbtorch.lightning.figures import ConfusionFigures
from imbtorch.lightning.monitor_guard import MonitorGuard
from imbtorch.sampler import ExactBatchSampler

__all__ = ["ConfusionFigures", "ExactBatchSampler", "MonitorGuard"]
