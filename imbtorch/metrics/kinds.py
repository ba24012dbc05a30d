"""What metrics of one kind have in common."""

from __future__ import annotations

from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric

__all__ = ["Correlation", "Share"]


class Share(ConfusionMatrixMetric):
    """A measure of margins in [0, 1], of which higher is better."""

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False


class Correlation(ConfusionMatrixMetric):
    """A measure of margins in [-1, 1], of which higher is better."""

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = -1.0, 1.0
    needs_matrix = False
