"""What a measure does: skew, invariance, correlation, and which model it selects. Takes any function of counts."""

from imbtorch.analysis.baselines import beats_trivial, skill, trivial
from imbtorch.analysis.caveats import choice_caveats
from imbtorch.analysis.comparisons import Comparison, compare, paired_compare
from imbtorch.analysis.correlation import Correlations, measure_correlations, perturbed_scores
from imbtorch.analysis.dominance import undominated
from imbtorch.analysis.epochs import ChosenEpoch, select_epoch
from imbtorch.analysis.exact import BalancedAccuracyPosterior, balanced_accuracy_posterior
from imbtorch.analysis.intervals import Interval, bootstrap, posterior
from imbtorch.analysis.invariance import SOKOLOVA, InvarianceTable, invariance_table, invariances
from imbtorch.analysis.isometrics import partial_auc
from imbtorch.analysis.planning import samples_needed
from imbtorch.analysis.prevalence import PrevalenceCurves, prevalence_curves
from imbtorch.analysis.selection import Selection, select_model
from imbtorch.analysis.sensitivity import SensitivityCurves, sensitivity_curves
from imbtorch.analysis.skew import effective_skew_ratio, implied_cost, skew, skew_delta, skew_map, skew_ratio
from imbtorch.analysis.thresholds import OperatingPoint

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
    "beats_trivial",
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
