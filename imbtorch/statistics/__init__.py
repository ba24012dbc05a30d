"""Intervals, comparisons, and choices of epochs, thresholds and models, for any function of counts."""

from imbtorch.choosing.comparisons import Comparison, compare, compare_groups, paired_compare
from imbtorch.choosing.epochs import ChosenEpoch, select_epoch
from imbtorch.choosing.gate import Verdict
from imbtorch.choosing.images import over_images
from imbtorch.choosing.mean_areas import mean_auc
from imbtorch.choosing.models import Selection, select_model
from imbtorch.choosing.planning import samples_needed
from imbtorch.choosing.runs import Runs, RunsByMeasure, over_runs
from imbtorch.deciding.adjustments import AdjustmentPoint
from imbtorch.deciding.calibration import Calibration
from imbtorch.deciding.curves import partial_auc
from imbtorch.deciding.money import CostPoint
from imbtorch.deciding.points import OperatingPoint
from imbtorch.deciding.ties import undominated
from imbtorch.intervals.baselines import beats_baseline, skill, trivial
from imbtorch.intervals.intervals import Interval, bootstrap, posterior
from imbtorch.predictions.estimates import Estimate
from imbtorch.predictions.labels import LabelPlan

__all__ = [
    "AdjustmentPoint",
    "Calibration",
    "ChosenEpoch",
    "Comparison",
    "CostPoint",
    "Estimate",
    "Interval",
    "LabelPlan",
    "OperatingPoint",
    "Runs",
    "RunsByMeasure",
    "Selection",
    "Verdict",
    "beats_baseline",
    "bootstrap",
    "compare",
    "compare_groups",
    "mean_auc",
    "over_images",
    "over_runs",
    "paired_compare",
    "partial_auc",
    "posterior",
    "samples_needed",
    "select_epoch",
    "select_model",
    "skill",
    "trivial",
    "undominated",
]
