"""Intervals, comparisons, and choices of epochs, thresholds and models, for any function of counts."""

from imbtorch.statistics.baselines import beats_baseline, skill, trivial
from imbtorch.statistics.caveats import choice_caveats
from imbtorch.statistics.comparisons import Comparison, compare, paired_compare
from imbtorch.statistics.epochs import ChosenEpoch, select_epoch
from imbtorch.statistics.exact import BalancedAccuracyPosterior, balanced_accuracy_posterior
from imbtorch.statistics.intervals import Interval, bootstrap, posterior
from imbtorch.statistics.models import Selection, select_model
from imbtorch.statistics.planning import samples_needed
from imbtorch.statistics.runs import Runs, over_runs
from imbtorch.statistics.scores import partial_auc
from imbtorch.statistics.thresholds import OperatingPoint
from imbtorch.statistics.ties import undominated

__all__ = [
    "BalancedAccuracyPosterior",
    "ChosenEpoch",
    "Comparison",
    "Interval",
    "OperatingPoint",
    "Runs",
    "Selection",
    "balanced_accuracy_posterior",
    "beats_baseline",
    "bootstrap",
    "choice_caveats",
    "compare",
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
