"""Metrics of imbalanced classification for PyTorch: one confusion matrix, every measure, any number of processes.

Most programs need :class:`ImbalanceReport`, in notebooks :func:`report`. The page "All names" of the documentation
lists every public name with one line; ``help(imbtorch.ImbalanceReport)`` explains one.
``imbtorch.statistics``, ``papers``, ``plots``, ``lightning`` and ``huggingface`` need no import of their own.
"""

import importlib
from typing import TYPE_CHECKING

from imbtorch.counting.clusters import cluster_ids
from imbtorch.counts import Counts, Margins, at_prevalence, margins, merge_classes, one_vs_rest
from imbtorch.deciding.adjustment_result import LogitAdjustmentResult
from imbtorch.deciding.rules import LogitAdjustment, Threshold
from imbtorch.deciding.sweep_result import SweepResult
from imbtorch.deciding.thresholds import InfeasibleError
from imbtorch.functional import confusion_matrix
from imbtorch.measures import *
from imbtorch.measures import __all__ as _measures
from imbtorch.metrics.adjustment_sweep import LogitAdjustmentSweep
from imbtorch.metrics.catalogue import *
from imbtorch.metrics.catalogue import __all__ as _catalogue
from imbtorch.metrics.hand_till import HandTill
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.shared_result import ReportedValue
from imbtorch.metrics.single import ConfusionMatrix, ConfusionMatrixMetric
from imbtorch.metrics.sweep import ThresholdSweep
from imbtorch.reports.groups import shot_groups
from imbtorch.reports.result import ReportResult
from imbtorch.reports.rows import Row
from imbtorch.sampler import ExactBatchSampler
from imbtorch.suggestions import PUBLIC_MODULES as _PUBLIC_MODULES
from imbtorch.suggestions import did_you_mean as _did_you_mean
from imbtorch.tables import Cell, Table
from imbtorch.version import __version__ as __version__

if TYPE_CHECKING:
    from imbtorch import huggingface as huggingface
    from imbtorch import lightning as lightning
    from imbtorch import papers as papers
    from imbtorch import plots as plots
    from imbtorch import statistics as statistics
    from imbtorch.predictions.results import merge_results, open_result
    from imbtorch.predictions.saved import Predictions, report


__all__ = [
    "Cell",
    "ConfusionMatrix",
    "ConfusionMatrixMetric",
    "Counts",
    "ExactBatchSampler",
    "HandTill",
    "ImbalanceReport",
    "InfeasibleError",
    "LogitAdjustment",
    "LogitAdjustmentResult",
    "LogitAdjustmentSweep",
    "Margins",
    "Predictions",
    "ReportResult",
    "ReportedValue",
    "Row",
    "SweepResult",
    "Table",
    "Threshold",
    "ThresholdSweep",
    "at_prevalence",
    "cluster_ids",
    "confusion_matrix",
    "margins",
    "merge_classes",
    "merge_results",
    "one_vs_rest",
    "open_result",
    "report",
    "shot_groups",
    *_measures,
    *_catalogue,
]


def __dir__() -> list[str]:
    """Return the public names and modules."""
    return sorted((*__all__, *(module.rpartition(".")[2] for module in _PUBLIC_MODULES[1:])))


# Names of saved predictions are a quarter of the time of an import, and a training needs none of them.
_OF_PREDICTIONS = {"Predictions": "saved", "merge_results": "results", "open_result": "results", "report": "saved"}

if not TYPE_CHECKING:  # type checkers would take any name for one of these

    def __getattr__(name: str) -> object:
        """Return what is imported when it is first read; refuse other names with the one that may be meant."""
        if name in _OF_PREDICTIONS:
            module = importlib.import_module(f"{__name__}.predictions.{_OF_PREDICTIONS[name]}")
            return globals().setdefault(name, getattr(module, name))
        if f"{__name__}.{name}" in _PUBLIC_MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'imbtorch' has no attribute {name!r}{_did_you_mean(name, __dir__())}")
