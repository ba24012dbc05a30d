"""Metrics of imbalanced classification for PyTorch: one confusion matrix, every measure, any number of processes.

Most programs need :class:`ImbalanceReport`, in notebooks :func:`report`. The page "All names" of the documentation
lists every public name with one line; ``help(imbtorch.ImbalanceReport)`` explains one.
``imbtorch.statistics``, ``papers``, ``plots``, ``lightning`` and ``huggingface`` need no import of their own.
"""

import importlib
from typing import TYPE_CHECKING

from imbtorch.suggestions import PUBLIC_MODULES as _PUBLIC_MODULES
from imbtorch.suggestions import did_you_mean as _did_you_mean
from imbtorch.version import __version__ as __version__

if TYPE_CHECKING:  # what _NAMES imports when it is first read, for type checkers
    from imbtorch import huggingface as huggingface
    from imbtorch import lightning as lightning
    from imbtorch import papers as papers
    from imbtorch import plots as plots
    from imbtorch import statistics as statistics
    from imbtorch.counting.clusters import cluster_ids as cluster_ids
    from imbtorch.counts import Counts as Counts
    from imbtorch.counts import Margins as Margins
    from imbtorch.counts import at_prevalence as at_prevalence
    from imbtorch.counts import margins as margins
    from imbtorch.counts import merge_classes as merge_classes
    from imbtorch.counts import one_vs_rest as one_vs_rest
    from imbtorch.deciding.adjustment_result import LogitAdjustmentResult as LogitAdjustmentResult
    from imbtorch.deciding.rules import LogitAdjustment as LogitAdjustment
    from imbtorch.deciding.rules import Threshold as Threshold
    from imbtorch.deciding.sweep_result import SweepResult as SweepResult
    from imbtorch.deciding.thresholds import InfeasibleError as InfeasibleError
    from imbtorch.functional import confusion_matrix as confusion_matrix
    from imbtorch.measures import *
    from imbtorch.metrics.adjustment_sweep import LogitAdjustmentSweep as LogitAdjustmentSweep
    from imbtorch.metrics.catalogue import *
    from imbtorch.metrics.hand_till import HandTill as HandTill
    from imbtorch.metrics.report import ImbalanceReport as ImbalanceReport
    from imbtorch.metrics.shared_result import ReportedValue as ReportedValue
    from imbtorch.metrics.single import ConfusionMatrix as ConfusionMatrix
    from imbtorch.metrics.single import ConfusionMatrixMetric as ConfusionMatrixMetric
    from imbtorch.metrics.sweep import ThresholdSweep as ThresholdSweep
    from imbtorch.predictions.results import merge_results as merge_results
    from imbtorch.predictions.results import open_result as open_result
    from imbtorch.predictions.saved import Predictions as Predictions
    from imbtorch.predictions.saved import report as report
    from imbtorch.reports.groups import shot_groups as shot_groups
    from imbtorch.reports.result import ReportResult as ReportResult
    from imbtorch.reports.rows import Row as Row
    from imbtorch.sampler import ExactBatchSampler as ExactBatchSampler
    from imbtorch.tables import Cell as Cell
    from imbtorch.tables import Table as Table

# A name is imported when it is first read, so that a command waits for neither torchmetrics nor what it does not use.
_NAMES = {
    "counting.clusters": "cluster_ids",
    "counts": "Counts Margins at_prevalence margins merge_classes one_vs_rest",
    "deciding.adjustment_result": "LogitAdjustmentResult",
    "deciding.rules": "LogitAdjustment Threshold",
    "deciding.sweep_result": "SweepResult",
    "deciding.thresholds": "InfeasibleError",
    "functional": "confusion_matrix",
    "measures": (
        "accuracy accuracy_dominance_area adjusted_balanced_accuracy balanced_accuracy bottom_line "
        "class_balance_accuracy cohen_kappa confusion_entropy dominance expected_cost f_score fowlkes_mallows "
        "geometric_mean imbalance_accuracy index_balanced_accuracy jaccard likelihood_ratio "
        "macro_averaged_absolute_error markedness matthews_corrcoef negative_predictive_value net_benefit "
        "optimized_precision p4 precision recall relative_classifier_information specificity weighted_accuracy"
    ),
    "metrics.adjustment_sweep": "LogitAdjustmentSweep",
    "metrics.catalogue": (
        "P4 Accuracy AccuracyDominanceArea AdjustedBalancedAccuracy BalancedAccuracy BottomLine ClassBalanceAccuracy "
        "CohenKappa ConfusionEntropy Dominance ExpectedCost FScore FowlkesMallows GeometricMean ImbalanceAccuracy "
        "IndexBalancedAccuracy Jaccard LikelihoodRatio MacroAveragedAbsoluteError Markedness MatthewsCorrCoef "
        "NegativePredictiveValue NetBenefit OptimizedPrecision Precision Recall RelativeClassifierInformation "
        "Specificity WeightedAccuracy"
    ),
    "metrics.hand_till": "HandTill",
    "metrics.report": "ImbalanceReport",
    "metrics.shared_result": "ReportedValue",
    "metrics.single": "ConfusionMatrix ConfusionMatrixMetric",
    "metrics.sweep": "ThresholdSweep",
    "predictions.results": "merge_results open_result",
    "predictions.saved": "Predictions report",
    "reports.groups": "shot_groups",
    "reports.result": "ReportResult",
    "reports.rows": "Row",
    "sampler": "ExactBatchSampler",
    "tables": "Cell Table",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    """Return the public names and modules."""
    return sorted((*__all__, *(module.rpartition(".")[2] for module in _PUBLIC_MODULES[1:])))


if not TYPE_CHECKING:  # type checkers would take any name for one of these

    def __getattr__(name: str) -> object:
        """Return what is imported when it is first read; refuse other names with the one that may be meant."""
        if name in _PLACES:
            found = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
            return globals().setdefault(name, found)
        if f"{__name__}.{name}" in _PUBLIC_MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'imbtorch' has no attribute {name!r}{_did_you_mean(name, __dir__())}")
