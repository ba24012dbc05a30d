"""Metrics for torchmetrics and Lightning: one state of counts, summed over all processes by one ``all_reduce``."""

from imbtorch.metrics.base import *
from imbtorch.metrics.base import __all__ as _base
from imbtorch.metrics.catalogue import *
from imbtorch.metrics.catalogue import __all__ as _catalogue
from imbtorch.metrics.hand_till import *
from imbtorch.metrics.hand_till import __all__ as _hand_till
from imbtorch.metrics.report import *
from imbtorch.metrics.report import __all__ as _report
from imbtorch.metrics.sweep import *
from imbtorch.metrics.sweep import __all__ as _sweep

__all__ = [*_base, *_catalogue, *_hand_till, *_report, *_sweep]
