"""Intervals and comparisons, choice of epochs and models, and properties of measures, for any function of counts."""

from imbtorch.choosing.baselines import beats_baseline, skill, trivial
from imbtorch.choosing.caveats import choice_caveats
from imbtorch.choosing.epochs import ChosenEpoch, select_epoch
from imbtorch.choosing.models import Selection, select_model
from imbtorch.choosing.thresholds import OperatingPoint
from imbtorch.choosing.ties import undominated
from imbtorch.inference.comparisons import Comparison, compare, paired_compare
from imbtorch.inference.exact import BalancedAccuracyPosterior, balanced_accuracy_posterior
from imbtorch.inference.intervals import Interval, bootstrap, posterior
from imbtorch.inference.planning import samples_needed
from imbtorch.inference.scores import partial_auc
from imbtorch.properties.correlation import Correlations, measure_correlations, perturbed_scores
from imbtorch.properties.invariance import SOKOLOVA, InvarianceTable, invariance_table, invariances
from imbtorch.properties.prevalence import PrevalenceCurves, prevalence_curves
from imbtorch.properties.sensitivity import SensitivityCurves, sensitivity_curves
from imbtorch.properties.skew import effective_skew_ratio, implied_cost, skew, skew_delta, skew_map, skew_ratio

__all__ = [
    "SOKOLOVA",
    "BalancedAccuracyPosterior",
    "ChosenEpoch",
    "Comparison",
    "Correlations",
    "Interval",
    "InvarianceTable",
    "OperatingPoint",
    "PrevalenceCurves",
    "Selection",
    "SensitivityCurves",
    "balanced_accuracy_posterior",
    "beats_baseline",
    "bootstrap",
    "choice_caveats",
    "compare",
    "effective_skew_ratio",
    "implied_cost",
    "invariance_table",
    "invariances",
    "measure_correlations",
    "paired_compare",
    "partial_auc",
    "perturbed_scores",
    "posterior",
    "prevalence_curves",
    "samples_needed",
    "select_epoch",
    "select_model",
    "sensitivity_curves",
    "skew",
    "skew_delta",
    "skew_map",
    "skew_ratio",
    "skill",
    "trivial",
    "undominated",
]
