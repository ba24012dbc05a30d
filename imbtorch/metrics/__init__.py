"""Metrics for torchmetrics and Lightning: one state of counts, summed over all processes by one ``all_reduce``."""

from imbtorch.metrics.adjustment_sweep import *
from imbtorch.metrics.adjustment_sweep import __all__ as _adjustment_sweep
from imbtorch.metrics.catalogue import *
from imbtorch.metrics.catalogue import __all__ as _catalogue
from imbtorch.metrics.confusion_matrix import *
from imbtorch.metrics.confusion_matrix import __all__ as _confusion_matrix
from imbtorch.metrics.hand_till import *
from imbtorch.metrics.hand_till import __all__ as _hand_till
from imbtorch.metrics.report import *
from imbtorch.metrics.report import __all__ as _report
from imbtorch.metrics.sweep import *
from imbtorch.metrics.sweep import __all__ as _sweep

__all__ = [*_adjustment_sweep, *_catalogue, *_confusion_matrix, *_hand_till, *_report, *_sweep]
