"""Pictures of values, counts and the behaviour of measures; matplotlib is imported with the first picture."""

from imbtorch.plots.curves import plot_correlations, plot_prevalence, plot_sensitivity
from imbtorch.plots.dominance import plot_accuracy_dominance, plot_dominance_curve
from imbtorch.plots.matrix import plot_confusion_matrix
from imbtorch.plots.operating import plot_precision_recall, plot_roc
from imbtorch.plots.selection import plot_selection
from imbtorch.plots.skew import plot_skew_map
from imbtorch.plots.thresholds import plot_sweep
from imbtorch.plots.values import plot_values

__all__ = [
    "plot_accuracy_dominance",
    "plot_confusion_matrix",
    "plot_correlations",
    "plot_dominance_curve",
    "plot_precision_recall",
    "plot_prevalence",
    "plot_roc",
    "plot_selection",
    "plot_sensitivity",
    "plot_skew_map",
    "plot_sweep",
    "plot_values",
]
