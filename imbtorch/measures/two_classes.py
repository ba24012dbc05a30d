"""Measures of two classes, of which class 1 is positive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, double, evaluated, margins, ratio, restore
from imbtorch.measures.overall import geometric_mean
from imbtorch.measures.shared import check_two, defined, quotient, root, two_rates, zero_if_absent
from imbtorch.measures.traits import catalogued, declared, measure_function, needs_matrix, of_two_classes

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


@catalogued("weighted_accuracy", higher_is_better=True, value_range=(0, 1), binary_only=True)
def weighted_accuracy(counts: Counts, alpha: float = 0.5) -> Tensor:
    r"""Weighted accuracy: the weighted mean of the recalls of the positive and the negative class.

    .. math:: \mathrm{WA}_\alpha = \alpha \, \mathrm{TPR} + (1 - \alpha) \, \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        alpha: weight of the positive class in [0, 1]; 1/2 gives balanced accuracy, the share of positives accuracy.

    Returns:
        ``[...]`` in [0, 1], higher is better. If one class has no targets, it is the recall of the other; nan where all
        counts are zero.

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


@catalogued("dominance", higher_is_better=None, value_range=(-1, 1), binary_only=True)
def dominance(counts: Counts) -> Tensor:
    r"""Dominance: the recall of the positive class minus the recall of the negative class.

    .. math:: D = \mathrm{TPR} - \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1]; 0 is balance, and no direction is better. 0 where one class has no targets; nan where all
        counts are zero.

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2009), eq. 1.

    >>> dominance(torch.tensor([[8, 2], [1, 1]]))
    tensor(-0.3000, dtype=torch.float64)
    """
    tpr, tnr = two_rates(counts)
    return restore(tpr - tnr, counts)


@catalogued("dominance_area", higher_is_better=True, value_range=(0, 1.5), binary_only=True)
def accuracy_dominance_area(counts: Counts) -> Tensor:
    r"""Area of the accuracy-dominance trapezium: G-mean, weighted towards the positive class.

    .. math:: A = \frac{G \, (D + 3)}{2} = \tfrac32 \, \mathrm{IBA}_{1/3}(G)

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [0, 1.5], higher is better; 1.5 for the perfect classifier. A class without targets has the recall
        of the other; nan where all counts are zero. A point is feasible if G <= sqrt(1 - abs(D)).

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
    value_range=(0, None),
    binary_only=True,
    needs_matrix=lambda given: needs_matrix(measure_function(given["measure"])),
)
def index_balanced_accuracy(
    counts: Counts, measure: Callable[..., Any] | str = geometric_mean, alpha: float = 0.05
) -> Tensor:
    r"""Index of balanced accuracy (IBA): a measure weighted by dominance, to favour the positive class.

    .. math:: \mathrm{IBA}_\alpha(M) = (1 + \alpha D) \, M

    The default is the paper's recommendation, alpha = 0.05 on the plain G-mean. imbalanced-learn's default is
    alpha = 0.1 on the *squared* G-mean, and with its default average the dominance of binary data is 0, so that alpha
    has no effect (``average="binary"`` weights as in the paper). PyCM's ``IBA`` is alpha = 1 on the squared G-mean.

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        measure: measure to weight: a name of the catalogue, a function of counts or a ``functools.partial`` of one. As
            in reports of two classes, recall, precision and F-score are those of the positive class;
            ``functools.partial(recall, average="macro")`` is the mean of both. Where a measure is negative (MCC and
            optimized precision can be), the weighting favours the negative class.
        alpha: influence of dominance, >= 0. Above 1/2 an imperfect classifier can exceed the value 1 of the perfect one
            (for alpha 1: 1.0887 at TPR 1, TNR 2/3).

    Returns:
        ``[...]``, higher is better; in [0, 1 + alpha] for G-mean. A class without targets has the recall of the other;
        nan where all counts are zero.

    Raises:
        ValueError: for a negative alpha, an unknown name, more than two classes (use :func:`one_vs_rest`), a measure of
            which lower is better, and one that returns more than one value per matrix.
        TypeError: for an object that is not a measure, and for a measure that needs arguments.

    Source: Garcia, Mollineda and Sanchez (2010), Theoretical analysis of a performance measure for imbalanced data,
    eq. 2 and 3.

    >>> index_balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6230, dtype=torch.float64)
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number >= 0, got {alpha!r}")
    tpr, tnr = two_rates(counts)
    weighted = measure_function(measure)
    if not torch.compiler.is_compiling() and declared(weighted, "higher_is_better") is False:
        raise ValueError(
            "index_balanced_accuracy weights a measure of which higher is better, got "
            f"{getattr(measure, '__name__', measure)!r}; pass a function such as lambda counts: 1 - error(counts)"
        )
    value = evaluated(of_two_classes(weighted), margins(counts) if isinstance(counts, Margins) else double(counts))
    value = zero_if_absent(value, margins(counts).actual)
    return restore((1 + alpha * (tpr - tnr)) * value, counts)


@catalogued("op", higher_is_better=True, value_range=(-1, 1), binary_only=True)
def optimized_precision(counts: Counts) -> Tensor:
    r"""Optimized precision (OP): accuracy minus the relative difference of the recalls of the two classes.

    .. math:: \mathrm{OP} = \mathrm{ACC} - \frac{\lvert \mathrm{TNR} - \mathrm{TPR} \rvert}{\mathrm{TNR} + \mathrm{TPR}}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1], higher is better. The second term is 1 where both recalls are 0, and 0 where one class
        has no targets and the recall of the other is positive; nan where all counts are zero.

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


@catalogued("markedness", higher_is_better=True, value_range=(-1, 1), binary_only=True)
def markedness(counts: Counts) -> Tensor:
    r"""Markedness: the reliability of the predictions of both classes, PPV + NPV - 1.

    It is to predictions what informedness is to targets.

    .. math:: \mathrm{PPV} + \mathrm{NPV} - 1

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1], higher is better; 0 where only one class is predicted, like MCC (the geometric mean of
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
    "likelihood_ratio", higher_is_better=lambda given: bool(given["positive"]), value_range=(0, None), binary_only=True
)
def likelihood_ratio(counts: Counts, positive: bool = True) -> Tensor:
    r"""Likelihood ratio: the factor by which a prediction multiplies the odds of the positive class.

    .. math:: \mathrm{LR}_+ = \frac{\mathrm{TPR}}{1 - \mathrm{TNR}}, \quad
        \mathrm{LR}_- = \frac{1 - \mathrm{TPR}}{\mathrm{TNR}}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        positive: True for positive predictions (LR+), False for negative ones (LR-).

    Returns:
        ``[...]`` from 0 to inf; 1 for an uninformative prediction. Higher is better for LR+, lower for LR-. inf where
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
    r"""Net benefit: true alarms per sample minus false alarms, weighted by the cost that the threshold implies.

    .. math:: \frac{\mathrm{TP}}{n} - \frac{\mathrm{FP}}{n} \, \frac{t}{1 - t}

    To act from probability t on means that one true alarm outweighs (1 - t)/t false alarms. The two baselines are to
    act never, with net benefit 0, and to act always.

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.
        threshold: probability t in [0, 1) from which on you act, and at which the predictions were made; one for all,
            or ``[L]``, one for each label of ``[..., L, 2, 2]``.

    Returns:
        ``[...]`` in true alarms per sample, at most the share of positives; higher is better; nan where all
        counts are zero.

    Raises:
        ValueError: for a threshold outside [0, 1) (on other devices than the CPU, the value is nan instead), and for
            more than two classes (use :func:`~imbtorch.counts.one_vs_rest`).

    Source: Vickers and Elkin (2006), Decision curve analysis.

    >>> net_benefit(torch.tensor([[8, 2], [1, 1]]), threshold=0.2)  # (1 - 2/4) / 12
    tensor(0.0417, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    given = threshold if isinstance(threshold, Tensor) else torch.tensor(threshold, dtype=torch.float64, device="cpu")
    chosen = double(given)
    possible, price = (chosen >= 0) & (chosen < 1), chosen / (1 - chosen)
    if not chosen.is_cpu:  # an error would have to wait for the device
        price = price.where(possible, torch.nan)
    elif not bool(possible.all()):
        raise ValueError(f"threshold must lie in [0, 1), got {threshold!r}")
    check_two(actual.shape[-1], "net_benefit")
    false_alarms = actual[..., 0] - tp[..., 0]
    price = price if price.ndim == 0 and price.is_cpu else price.to(tp.device)  # a number needs no copy to the device
    value = ratio(tp[..., 1] - false_alarms * price, actual.sum(-1))
    return restore(defined(value, actual), counts)


@catalogued("p4", higher_is_better=True, value_range=(0, 1), binary_only=True)
def p4(counts: Counts) -> Tensor:
    r"""P4: the harmonic mean of precision, recall, specificity and negative predictive value (NPV).

    .. math:: \frac{4 \, \mathrm{TP} \, \mathrm{TN}}
        {4 \, \mathrm{TP} \, \mathrm{TN} + (\mathrm{TP} + \mathrm{TN})(\mathrm{FP} + \mathrm{FN})}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.counts.Margins` of two classes.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 where a class has no right prediction, also at 0/0; nan where
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
