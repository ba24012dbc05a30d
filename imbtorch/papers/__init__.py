"""Analyses of the papers: skew, invariance, correlation, accuracy-dominance space and other properties of measures."""

from imbtorch.papers.correlation import Correlations, measure_correlations, perturbed_scores
from imbtorch.papers.invariance import SOKOLOVA, InvarianceTable, invariance_table, invariances
from imbtorch.papers.metric_skew import effective_skew_ratio, implied_cost, skew, skew_delta, skew_map, skew_ratio
from imbtorch.papers.plot_curves import plot_correlations, plot_prevalence, plot_sensitivity
from imbtorch.papers.plot_dominance import plot_accuracy_dominance, plot_dominance_curve
from imbtorch.papers.plot_skew import plot_skew_map
from imbtorch.papers.prevalence import PrevalenceCurves, prevalence_curves
from imbtorch.papers.sensitivity import SensitivityCurves, sensitivity_curves

__all__ = [
    "SOKOLOVA",
    "Correlations",
    "InvarianceTable",
    "PrevalenceCurves",
    "SensitivityCurves",
    "effective_skew_ratio",
    "implied_cost",
    "invariance_table",
    "invariances",
    "measure_correlations",
    "perturbed_scores",
    "plot_accuracy_dominance",
    "plot_correlations",
    "plot_dominance_curve",
    "plot_prevalence",
    "plot_sensitivity",
    "plot_skew_map",
    "prevalence_curves",
    "sensitivity_curves",
    "skew",
    "skew_delta",
    "skew_map",
    "skew_ratio",
]
