"""Pictures of values, counts and the behaviour of measures; matplotlib is imported with the first picture."""

from imbtorch.plots.matrix import plot_confusion_matrix
from imbtorch.plots.operating import plot_precision_recall, plot_roc
from imbtorch.plots.selection import plot_selection
from imbtorch.plots.thresholds import plot_sweep
from imbtorch.plots.values import plot_values

__all__ = [
    "plot_confusion_matrix",
    "plot_precision_recall",
    "plot_roc",
    "plot_selection",
    "plot_sweep",
    "plot_values",
]
