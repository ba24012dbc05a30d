"""Measures of two classes, class 1 being the positive one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, double, evaluated, margins, ratio, restore
from imbtorch.measures.overall import geometric_mean
from imbtorch.measures.shared import check_two, defined, quotient, root, two_rates
from imbtorch.measures.traits import catalogued, measure_function, needs_matrix

__all__ = [
    "accuracy_dominance_area",
    "dominance",
    "index_balanced_accuracy",
    "likelihood_ratio",
    "markedness",
    "net_benefit",
    "optimized_precision",
    "p4",
    "weighted_accuracy",
]


@catalogued("weighted_accuracy", higher_is_better=True, bounds=(0, 1), binary_only=True)
def weighted_accuracy(counts: Counts, alpha: float = 0.5) -> Tensor:
    r"""Weighted accuracy: a weighted mean of the accuracies on the positive and the negative class.

    .. math:: \mathrm{WA}_\alpha = \alpha \, \mathrm{TPR} + (1 - \alpha) \, \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        alpha: weight of the positive class in [0, 1]; 1/2 is balanced accuracy, the share of positives is accuracy.

    Returns:
        ``[...]`` in [0, 1], higher is better. Where one class has no targets it is the rate of the other.

    Raises:
        ValueError: for alpha outside [0, 1], and for more than two classes (use :func:`one_vs_rest`).

    Source: Vergne, Can we use accuracy with unbalanced datasets?; Brodersen et al. (2010) for alpha = 1/2.

    >>> weighted_accuracy(torch.tensor([[8, 2], [1, 1]]), alpha=0.75)
    tensor(0.5750, dtype=torch.float64)
    """
    tpr, tnr = two_rates(counts)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
    return restore(alpha * tpr + (1 - alpha) * tnr, counts)


@catalogued("dominance", higher_is_better=None, bounds=(-1, 1), binary_only=True)
def dominance(counts: Counts) -> Tensor:
    r"""Dominance: how far the positive class is better recognised than the negative one.

    .. math:: D = \mathrm{TPR} - \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1]; 0 is balance, and no direction is better. 0 where one class has no targets.

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2009), eq. 1.

    >>> dominance(torch.tensor([[8, 2], [1, 1]]))
    tensor(-0.3000, dtype=torch.float64)
    """
    tpr, tnr = two_rates(counts)
    return restore(tpr - tnr, counts)


@catalogued("dominance_area", higher_is_better=True, bounds=(0, 1.5), binary_only=True)
def accuracy_dominance_area(counts: Counts) -> Tensor:
    r"""Area of the accuracy-dominance trapezium: G-mean, weighted towards the positive class.

    .. math:: A = \frac{G \, (D + 3)}{2} = \tfrac32 \, \mathrm{IBA}_{1/3}(G)

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [0, 1.5], higher is better; 1.5 is the perfect classifier. A point is feasible where
        G <= sqrt(1 - abs(D)).

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2009), section 2.1. That it is 1.5 IBA_{1/3} of G-mean is our remark.

    >>> accuracy_dominance_area(torch.tensor([[4, 0], [0, 4]]))
    tensor(1.5000, dtype=torch.float64)
    """
    tpr, tnr = two_rates(counts)
    return restore(root(tpr * tnr) * (tpr - tnr + 3) / 2, counts)


@catalogued(
    "iba",
    higher_is_better=True,
    bounds=(0, None),
    binary_only=True,
    needs_matrix=lambda given: needs_matrix(measure_function(given["measure"])),
)
def index_balanced_accuracy(
    counts: Counts, measure: Callable[..., Any] | str = geometric_mean, alpha: float = 0.05
) -> Tensor:
    r"""Index of balanced accuracy (IBA): a measure weighted by dominance, to favour the positive class.

    .. math:: \mathrm{IBA}_\alpha(M) = (1 + \alpha D) \, M

    The default is the paper's recommendation, alpha = .05 on the plain G-mean. imbalanced-learn's default is
    alpha = .1 on the *squared* G-mean, and with its default average the dominance of binary data is 0, so alpha does
    nothing there (``average="binary"`` weights as the paper does). PyCM's ``IBA`` is alpha = 1 on the squared G-mean.

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        measure: what is weighted: a function of the counts, its name in :mod:`imbtorch.measures` or in reports, or a
            metric class, whose function is taken. All three are read with their defaults (recall is the mean of both
            classes then); ``functools.partial`` gives a function others. Of a measure that can be negative (MCC,
            optimized precision) the weighting turns the reward round.
        alpha: influence of dominance, >= 0. Above 1/2 an imperfect classifier can exceed the perfect one's 1 (alpha 1:
            1.0887 at TPR 1, TNR 2/3).

    Returns:
        ``[...]``, for G-mean in [0, 1 + alpha]; higher is better.

    Raises:
        ValueError: for a negative alpha, an unknown name, more than two classes (use :func:`one_vs_rest`), and a
            measure that gives more than one value a matrix.
        TypeError: for what is no measure, and for one that needs arguments.

    Source: Garcia, Mollineda and Sanchez (2010), Theoretical analysis of a performance measure for imbalanced data,
    eq. 2 and 3.

    >>> index_balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6230, dtype=torch.float64)
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number >= 0, got {alpha!r}")
    tpr, tnr = two_rates(counts)
    weighted = measure_function(measure)
    value = evaluated(weighted, margins(counts) if isinstance(counts, Margins) else double(counts))
    return restore((1 + alpha * (tpr - tnr)) * value, counts)


@catalogued("op", higher_is_better=True, bounds=(-1, 1), binary_only=True)
def optimized_precision(counts: Counts) -> Tensor:
    r"""Optimized precision (OP): accuracy minus the relative difference of the two classes' rates.

    .. math:: \mathrm{OP} = \mathrm{ACC} - \frac{\lvert \mathrm{TNR} - \mathrm{TPR} \rvert}{\mathrm{TNR} + \mathrm{TPR}}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1], higher is better. The second term is 1 where both rates are 0, and 0 where one class has
        no targets and the other was hit.

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Ranawana and Palade (2006); Garcia et al. (2010), eq. 1.

    >>> optimized_precision(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.5192, dtype=torch.float64)
    """
    tpr, tnr = two_rates(counts)
    both = tpr + tnr
    penalty = torch.where(both == 0, 1.0, ratio((tnr - tpr).abs(), both))
    tp, actual, _ = margins(counts)
    return restore(ratio(tp.sum(-1), actual.sum(-1)) - penalty, counts)


@catalogued("markedness", higher_is_better=True, bounds=(-1, 1), binary_only=True)
def markedness(counts: Counts) -> Tensor:
    r"""Markedness: how far predictions of both classes can be relied on; informedness read the other way.

    .. math:: \mathrm{PPV} + \mathrm{NPV} - 1

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1], higher is better; 0 where only one class is predicted, as MCC (the geometric mean of
        informedness and markedness); nan where all counts are zero.

    Raises:
        ValueError: for more than two classes (use :func:`~imbtorch.counts.one_vs_rest`).

    Source: Powers (2011), Evaluation: from precision, recall and F-measure to ROC, informedness, markedness and
    correlation.

    >>> markedness(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.2222, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    check_two(actual.shape[-1], "markedness")
    value = torch.where((predicted <= 0).any(-1), 0.0, ratio(tp, predicted).sum(-1) - 1)
    return restore(defined(value, actual), counts)


@catalogued(
    "likelihood_ratio", higher_is_better=lambda given: bool(given["positive"]), bounds=(0, None), binary_only=True
)
def likelihood_ratio(counts: Counts, positive: bool = True) -> Tensor:
    r"""Likelihood ratio of a prediction: how many times it multiplies the odds of the positive class.

    .. math:: \mathrm{LR}_+ = \frac{\mathrm{TPR}}{1 - \mathrm{TNR}}, \quad
        \mathrm{LR}_- = \frac{1 - \mathrm{TPR}}{\mathrm{TNR}}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        positive: of a positive prediction (LR+), else of a negative one (LR-).

    Returns:
        ``[...]`` from 0 to inf; 1 is a prediction that says nothing. Higher is better for LR+, lower for LR-. inf where
        only the denominator is 0; 1 for 0/0 and where a class has no targets; nan where all counts are zero.
        scikit-learn's ``class_likelihood_ratios`` has nan in place of inf and 1.

    Raises:
        ValueError: for more than two classes (use :func:`~imbtorch.counts.one_vs_rest`).

    Source: Deeks and Altman (2004), Diagnostic tests 4: likelihood ratios.

    >>> likelihood_ratio(torch.tensor([[8, 2], [1, 1]]))
    tensor(2.5000, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    check_two(actual.shape[-1], "likelihood_ratio")
    tn, hits = tp.unbind(-1)
    negatives, positives = actual.unbind(-1)
    parts = (hits, negatives - tn) if positive else (positives - hits, tn)
    numerator, denominator = parts[0] * negatives, parts[1] * positives
    one_class = (actual <= 0).any(-1)
    value = torch.where(one_class, 1.0, quotient(numerator, denominator, undefined=1.0))
    return restore(defined(value, actual), counts)


@catalogued("net_benefit", higher_is_better=True, binary_only=True, reads_threshold=True)
def net_benefit(counts: Counts, threshold: float | Sequence[float] | Tensor) -> Tensor:
    r"""Net benefit: right alarms for each sample, less false alarms at the price that a threshold sets on them.

    .. math:: \frac{\mathrm{TP}}{n} - \frac{\mathrm{FP}}{n} \, \frac{t}{1 - t}

    Who acts from probability t on holds one right alarm as dear as (1 - t)/t false ones. Not acting at all is worth 0;
    acting always is the other prediction to beat.

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        threshold: the probability t in [0, 1) from which on it is worth to act, at which predictions were made; one for
            all, or ``[L]``, one for each label of ``[..., L, 2, 2]``.

    Returns:
        ``[...]`` in right alarms for each sample, at most the share of positives; higher is better; nan where all
        counts are zero.

    Raises:
        ValueError: for a threshold outside [0, 1), and for more than two classes (use
            :func:`~imbtorch.counts.one_vs_rest`).

    Source: Vickers and Elkin (2006), Decision curve analysis.

    >>> net_benefit(torch.tensor([[8, 2], [1, 1]]), threshold=0.2)  # (1 - 2/4) / 12
    tensor(0.0417, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    chosen = torch.as_tensor(threshold, dtype=torch.float64, device="cpu")
    if not bool(((chosen >= 0) & (chosen < 1)).all()):
        raise ValueError(f"threshold must lie in [0, 1), got {threshold!r}")
    check_two(actual.shape[-1], "net_benefit")
    price, false_alarms = (chosen / (1 - chosen)).to(tp), actual[..., 0] - tp[..., 0]
    value = ratio(tp[..., 1] - false_alarms * price, actual.sum(-1))
    return restore(defined(value, actual), counts)


@catalogued("p4", higher_is_better=True, bounds=(0, 1), binary_only=True)
def p4(counts: Counts) -> Tensor:
    r"""P4: the harmonic mean of precision, recall, specificity and NPV.

    .. math:: \frac{4 \, \mathrm{TP} \, \mathrm{TN}}
        {4 \, \mathrm{TP} \, \mathrm{TN} + (\mathrm{TP} + \mathrm{TN})(\mathrm{FP} + \mathrm{FN})}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 where there is no right sample of one class, 0/0 included; nan where
        all counts are zero.

    Raises:
        ValueError: for more than two classes (use :func:`~imbtorch.counts.one_vs_rest`).

    Source: Sitarz (2023), Extending F1 metric, probabilistic approach.

    >>> p4(torch.tensor([[8, 2], [1, 1]]))  # 32 / (32 + 27)
    tensor(0.5424, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    check_two(actual.shape[-1], "p4")
    negatives, positives = tp.unbind(-1)
    product = 4 * negatives * positives
    errors = (actual - tp).sum(-1)
    return restore(defined(ratio(product, product + (negatives + positives) * errors), actual), counts)
