"""Counts to values: every measure of the catalogue as a pure function.

All take ``[..., K, K]`` counts or rates (rows true, columns predicted) and are batched over the leading dimensions;
those that need no more also take :class:`~imbtorch.confusion.Margins`. They compute in float64 and return float64 for
integer counts, the dtype of the counts for floating ones. They are differentiable, with finite gradients wherever the
value is finite.

Undefined values follow one rule. A class with neither targets nor predictions takes no part in a mean (nan under
``average="none"``). A class that has targets *or* predictions counts 0 where its ratio is 0/0. Balanced accuracy,
G-mean and weighted accuracy go over the classes with targets. MCC and RCI are 0 at 0/0. Counts that are all zero give
nan, and so do counts that cannot be counts: a nan or negative cell, margins that contradict one another
(:func:`~imbtorch.confusion.margins` says when).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from imbtorch.confusion import Counts, Margins, check_choice, double, margins, matrix, ratio, restore

__all__ = [
    "accuracy",
    "accuracy_dominance_area",
    "balanced_accuracy",
    "class_balance_accuracy",
    "confusion_entropy",
    "dominance",
    "expected_cost",
    "f_score",
    "fowlkes_mallows",
    "geometric_mean",
    "imbalance_accuracy",
    "index_balanced_accuracy",
    "matthews_corrcoef",
    "optimized_precision",
    "precision",
    "recall",
    "relative_classifier_information",
    "specificity",
    "weighted_accuracy",
]

ClassAverage: TypeAlias = Literal["macro", "weighted", "none"] | None
Average: TypeAlias = Literal["macro", "weighted", "none", "micro", "binary"] | None
Measure: TypeAlias = Callable[[Counts], Tensor]


# --- of all classes -------------------------------------------------------------------------------------------------


def accuracy(counts: Counts) -> Tensor:
    r"""Accuracy: the share of samples that were predicted right.

    .. math:: \mathrm{ACC} = \frac{\sum_i c_{ii}}{\sum_{ij} c_{ij}}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero.

    Source: Mortaz (2020), eq. 3.

    >>> accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.7500, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    return restore(_defined(ratio(tp.sum(-1), actual.sum(-1)), actual), counts)


def balanced_accuracy(counts: Counts) -> Tensor:
    r"""Balanced accuracy: mean recall over the classes that have targets.

    With two classes it is (TPR + TNR)/2, which is also the AUC of the ROC curve through this one operating point
    (Garcia et al. 2010; Liu et al. 2007, three-point curve).

    .. math:: \mathrm{BA} = \frac{1}{\lvert\{i : r_i > 0\}\rvert} \sum_{i : r_i > 0} \frac{c_{ii}}{r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero. A class that is predicted but has no
        targets takes no part, as in ``sklearn.metrics.balanced_accuracy_score``; torchmetrics' macro recall counts 0
        for it.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution; Mosley (2013).

    >>> balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6500, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    return restore(_mean_where(ratio(tp, actual), actual > 0), counts)


def geometric_mean(counts: Counts, correction: float = 0.0) -> Tensor:
    r"""G-mean: the geometric mean of the recalls of the classes that have targets; sqrt(TPR * TNR) for two classes.

    .. math:: G = \Bigl(\prod_{i : r_i > 0} \frac{c_{ii}}{r_i}\Bigr)^{1/\lvert\{i : r_i > 0\}\rvert}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        correction: takes the place of a recall of 0, so that one class that was never hit does not hide all others.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero. A class without targets takes no part;
        imbalanced-learn's ``geometric_mean_score`` gives 0 once such a class is predicted.

    Raises:
        ValueError: for a correction outside [0, 1].

    Source: Kubat and Matwin (1997); several classes: Sun, Kamel and Wang (2006).

    >>> geometric_mean(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6325, dtype=torch.float64)
    """
    if not 0 <= correction <= 1:
        raise ValueError(f"correction must lie in [0, 1], got {correction!r}")
    tp, actual, _ = margins(counts)
    rates, present = ratio(tp, actual), actual > 0
    hit = rates > 0
    logs = torch.where(hit, torch.where(hit, rates, 1.0).log(), math.log(correction) if correction else 0.0)
    mean = _mean_where(logs, present).exp()
    if not correction:
        mean = torch.where((present & ~hit).any(-1), 0.0, mean)
    return restore(mean, counts)


def matthews_corrcoef(counts: Counts) -> Tensor:
    r"""Matthews correlation coefficient (MCC), for several classes Gorodkin's R_K.

    .. math:: \mathrm{MCC} = \frac{\sum_i (\mathit{tp}_i \mathit{tn}_i - \mathit{fn}_i \mathit{fp}_i)}
        {\sqrt{\sum_i r_i (n - r_i) \sum_i p_i (n - p_i)}}

    Written so, the numerator is the usual ``trace * n - sum(r * p)`` but keeps its digits: for 10^12 samples the usual
    form is wrong in the sixth, and torchmetrics' float32 in the second.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.

    Returns:
        ``[...]`` in [-1, 1], higher is better; 0 where all targets or all predictions are of one class, as in
        scikit-learn; nan where all counts are zero.

    Source: Matthews (1975); Gorodkin (2004), Comparing two K-category assignments by a K-category correlation
    coefficient.

    >>> matthews_corrcoef(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.2582, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    total = actual.sum(-1, keepdim=True)
    fn, fp = actual - tp, predicted - tp
    covariance = (tp * (total - actual - fp) - fn * fp).sum(-1)
    # each variance has its own root: their product would overflow or lose small rates
    spread = _sqrt((actual * (total - actual)).sum(-1)) * _sqrt((predicted * (total - predicted)).sum(-1))
    return restore(_defined(ratio(covariance, spread), actual), counts)


def relative_classifier_information(counts: Tensor) -> Tensor:
    r"""Relative classifier information (RCI): the share of the targets' entropy that the predictions tell.

    .. math:: \mathrm{RCI} = \frac{\sum_{ij} c_{ij} \log \frac{n c_{ij}}{r_i p_j}}{\sum_i r_i \log \frac{n}{r_i}}

    Args:
        counts: ``[..., K, K]`` counts or rates.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 where only one class has targets; nan where all counts are zero. A
        consistent permutation of the predicted classes does not change it: a classifier that is always wrong in the
        same way has RCI 1.

    Source: Sindhwani, Bhattacharya and Rakshit (2001), Information theoretic feature crediting in multiclass support
    vector machines; named beside IAM in Mortaz (2020).

    >>> relative_classifier_information(torch.tensor([[4, 0], [0, 4]]))
    tensor(1., dtype=torch.float64)
    """
    wide = matrix(counts)
    actual, predicted = wide.sum(-1), wide.sum(-2)
    total = actual.sum(-1, keepdim=True)
    r, p, n = actual.unsqueeze(-1), predicted.unsqueeze(-2), total.unsqueeze(-1)
    hit = wide > 0
    product = torch.where(hit, r * p, 1.0)
    # logarithms near 0 come from the exact difference n c - r p, so that rare classes keep their digits
    excess = torch.where(hit, (wide * (n - r - p + wide) - (r - wide) * (p - wide)) / product, 0.0)
    close = excess.abs() < 0.5
    far = torch.where(hit & ~close, n * wide / product, 1.0).log()
    gain = torch.where(close, torch.where(close, excess, 0.0).log1p(), far)
    entropy = (actual * ratio(total - actual, actual).log1p()).sum(-1)
    return restore(_defined(ratio((wide * gain).sum((-2, -1)), entropy), actual), counts)


def confusion_entropy(counts: Tensor) -> Tensor:
    r"""Confusion entropy (CEN): how evenly the errors of each class spread over the other classes.

    .. math:: \mathrm{CEN} = -\sum_j P_j \sum_{k \ne j} \bigl(P^j_{jk} \log_b P^j_{jk} + P^j_{kj} \log_b P^j_{kj}\bigr),
        \quad P^j_{ik} = \frac{c_{ik}}{r_j + p_j}, \quad P_j = \frac{r_j + p_j}{2n}, \quad b = 2(K - 1)

    Args:
        counts: ``[..., K, K]`` counts or rates.

    Returns:
        ``[...]``, lower is better, 0 without errors. It stays within [0, 1] for three classes and more but can exceed
        1 for two. K counts the classes that have targets or predictions, so an empty class changes nothing (PyCM has
        no value there); nan where all counts are zero.

    Source: Wei, Yuan, Hu and Wang (2010), A novel measure for evaluating classifiers.

    >>> confusion_entropy(torch.tensor([[3, 1], [1, 3]]))
    tensor(0.7500, dtype=torch.float64)
    """
    wide = matrix(counts)
    weight = wide.sum(-1) + wide.sum(-2)
    errors = wide - torch.diag_embed(wide.diagonal(dim1=-2, dim2=-1))
    in_row, in_column = ratio(errors, weight.unsqueeze(-1)), ratio(errors, weight.unsqueeze(-2))
    entropy = -(_xlogx(in_row).sum(-1) + _xlogx(in_column).sum(-2))
    base = 2.0 * ((weight > 0).sum(-1).to(weight) - 1)
    logs = torch.where(base > 1, base, 2.0).log()
    value = ratio((weight * entropy).sum(-1), weight.sum(-1)) / logs
    return restore(_defined(value, weight), counts)


def expected_cost(counts: Tensor, costs: Tensor, normalize: bool = True) -> Tensor:
    r"""Expected cost of a sample, or total cost of all, for known misclassification costs.

    .. math:: \mathrm{EC} = \frac{\sum_{ij} w_{ij} c_{ij}}{\sum_{ij} c_{ij}}

    Args:
        counts: ``[..., K, K]`` counts or rates.
        costs: ``[K, K]``, what a sample of the row's class costs when predicted as the column's; negative is a gain.
        normalize: divide by the number of samples.

    Returns:
        ``[...]`` in units of the costs, lower is better; nan where all counts are zero (0 if not normalized).

    Raises:
        ValueError: for costs that do not fit the counts or are not finite.

    Source: Liu, Ghosh and Martin (2007), eq. 1 and 2.

    >>> expected_cost(torch.tensor([[8, 2], [1, 1]]), torch.tensor([[0.0, 1.0], [5.0, 0.0]]))
    tensor(0.5833, dtype=torch.float64)
    """
    wide = matrix(counts)
    weights = torch.as_tensor(costs, dtype=torch.float64)
    if not bool(weights.isfinite().all()):
        raise ValueError("costs must be finite")
    weights = weights.to(wide.device)
    if weights.shape != wide.shape[-2:]:
        raise ValueError(f"costs must be {list(wide.shape[-2:])} like the matrix, got {list(weights.shape)}")
    total = (wide * weights).sum((-2, -1))
    if normalize:
        total = _defined(ratio(total, wide.sum((-2, -1))), wide.sum(-1))
    return restore(total, counts)


# --- of each class, averaged ----------------------------------------------------------------------------------------


def precision(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Precision: of the samples that were predicted as a class, the share that belongs to it.

    .. math:: P_i = \frac{c_{ii}}{p_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, ``"micro"`` (sums first), ``"none"`` or None for ``[..., K]``,
            or ``"binary"`` for class 1 of two.

    Returns:
        ``[...]`` in [0, 1], higher is better. A class that was never predicted counts 0, one without targets and
        predictions takes no part.

    Source: Mortaz (2020), eq. 4; Liu et al. (2007), eq. 4, 9 and 10.

    >>> precision(torch.tensor([[8, 2], [1, 1]]), average="none")
    tensor([0.8889, 0.3333], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(_averaged((tp, predicted), actual, predicted, average), counts)


def recall(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Recall (sensitivity, true positive rate): of the samples of a class, the share that was predicted as it.

    .. math:: R_i = \frac{c_{ii}}{r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better. A class that is predicted but has no targets counts 0 in the macro
        average, as in scikit-learn's and torchmetrics' macro recall; :func:`balanced_accuracy` leaves it out.

    Source: Mortaz (2020), eq. 5; Liu et al. (2007), eq. 5, 7 and 8.

    >>> recall(torch.tensor([[8, 2], [1, 1]]), average="none")
    tensor([0.8000, 0.5000], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(_averaged((tp, actual), actual, predicted, average), counts)


def specificity(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Specificity (true negative rate): of the samples of all other classes, the share not predicted as this one.

    .. math:: S_i = \frac{n - r_i - p_i + c_{ii}}{n - r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class that has all targets.

    Source: Garcia et al. (2010), TNrate; classes one against the rest.

    >>> specificity(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.8000, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    negatives = actual.sum(-1, keepdim=True) - actual
    return restore(_averaged((negatives - predicted + tp, negatives), actual, predicted, average), counts)


def f_score(counts: Counts, beta: float = 1.0, average: Average = "macro") -> Tensor:
    r"""F-score: the harmonic mean of precision and recall of each class, averaged.

    .. math:: F_i = \frac{(1 + \beta^2) c_{ii}}{\beta^2 r_i + p_i}

    The macro average is that of the classes' F-scores (Mortaz 2020, eq. 6), as in every peer. It is not the harmonic
    mean of macro precision and macro recall, which Theorem 3 there argues with: ``[[1, 1], [0, 1]]`` has both macro
    means .75 and this F-score .667. IAM <= CBA <= F-score holds all the same, for CBA is the mean of the smaller of
    precision and recall.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        beta: how many times as much recall counts as precision; 1 for F1.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better.

    Raises:
        ValueError: for a negative beta.

    Source: Mortaz (2020), eq. 6; Liu et al. (2007), eq. 6.

    >>> f_score(torch.tensor([[1, 1], [0, 1]]))
    tensor(0.6667, dtype=torch.float64)
    """
    if not (beta >= 0 and math.isfinite(beta)):
        raise ValueError(f"beta must be a finite number >= 0, got {beta!r}")
    tp, actual, predicted = margins(counts)
    parts = (1 + beta**2) * tp, beta**2 * actual + predicted
    return restore(_averaged(parts, actual, predicted, average), counts)


def fowlkes_mallows(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Fowlkes-Mallows index: the geometric mean of precision and recall of each class, averaged.

    .. math:: \mathrm{FM}_i = \frac{c_{ii}}{\sqrt{r_i p_i}}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better.

    Source: Fowlkes and Mallows (1983); "geometric mean of precision and recall" in Liu et al. (2007), Table 2.

    >>> fowlkes_mallows(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.4082, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    if average == "micro":
        return restore(_averaged((tp, actual), actual, predicted, "micro"), counts)
    return restore(_averaged((tp, _sqrt(actual) * _sqrt(predicted)), actual, predicted, average), counts)


def class_balance_accuracy(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Class balance accuracy (CBA): for each class the smaller of precision and recall, averaged.

    .. math:: \mathrm{CBA} = \frac1K \sum_i \frac{c_{ii}}{\max(r_i, p_i)}

    So CBA is at most macro precision, macro recall, the macro F-score, and the harmonic mean of macro precision and
    macro recall. It is at most the accuracy for two classes but not for three: ``[[0, 0, 1], [0, 1, 0], [2, 0, 0]]``
    has CBA .333 and accuracy .25. What holds for any K is CBA <= 1 - (2/K)(1 - ACC), K counting the classes present.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, or ``"none"`` or None for ``[..., K]``.

    Returns:
        ``[...]`` in [0, 1], higher is better. Classes with neither targets nor predictions take no part.

    Source: Mosley (2013), A balanced approach to the multi-class imbalance problem; Mortaz (2020), eq. 7.

    >>> class_balance_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.5667, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(class_mean(ratio(tp, torch.maximum(actual, predicted)), actual, predicted, average), counts)


def imbalance_accuracy(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Imbalance accuracy metric (IAM): what each class gets right minus what it gets wrong, averaged.

    .. math:: \mathrm{IAM} = \frac1K \sum_i
        \frac{c_{ii} - \max\bigl(\sum_{j \ne i} c_{ij}, \sum_{j \ne i} c_{ji}\bigr)}{\max(r_i, p_i)}

    Know before you monitor it:

    - **IAM = 2 CBA - 1**, exactly and class by class, since max(r_i, p_i) is c_ii plus the larger of the two sums. So
      IAM and :func:`class_balance_accuracy` select the same model.
    - Theorem 4 of the paper (IAM <= accuracy) holds up to four classes and fails from five on: ``[[4, 2], [2, 5]]``
      beside three classes of one right sample each has IAM 79/105 and accuracy 12/16. The tight bound for any K is
      IAM <= 1 - (4/K)(1 - ACC), K counting the classes present.
    - Its sign does not say whether most samples are right: ``[[95, 3], [2, 0]]`` has accuracy .95 and IAM -.031. A
      random guess on K balanced classes scores 2/K - 1, not 0.
    - Leaving out absent classes raises it on a partial validation set.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.confusion.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, or ``"none"`` or None for ``[..., K]``.

    Returns:
        ``[...]`` in [-1, 1], higher is better. A class with targets or predictions but not one right sample counts -1,
        one with neither takes no part.

    Source: Mortaz (2020), Imbalance accuracy metric for model selection in multi-class imbalance classification
    problems, eq. 8.

    >>> imbalance_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.1333, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    larger = torch.maximum(actual, predicted)
    return restore(class_mean(ratio(2 * tp - larger, larger), actual, predicted, average), counts)


# --- of two classes, class 1 being the positive one -----------------------------------------------------------------


def weighted_accuracy(counts: Counts, alpha: float = 0.5) -> Tensor:
    r"""Weighted accuracy: a weighted mean of the accuracies on the positive and the negative class.

    .. math:: \mathrm{WA}_\alpha = \alpha \, \mathrm{TPR} + (1 - \alpha) \, \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.confusion.Margins` of two classes.
        alpha: weight of the positive class in [0, 1]; 1/2 is balanced accuracy, the share of positives is accuracy.

    Returns:
        ``[...]`` in [0, 1], higher is better. Where one class has no targets it is the rate of the other.

    Raises:
        ValueError: for alpha outside [0, 1], and for more than two classes (use :func:`one_vs_rest`).

    Source: Vergne, Can we use accuracy with unbalanced datasets?; Brodersen et al. (2010) for alpha = 1/2.

    >>> weighted_accuracy(torch.tensor([[8, 2], [1, 1]]), alpha=0.75)
    tensor(0.5750, dtype=torch.float64)
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
    tpr, tnr = _rates(counts)
    return restore(alpha * tpr + (1 - alpha) * tnr, counts)


def dominance(counts: Counts) -> Tensor:
    r"""Dominance: how far the positive class is better recognised than the negative one.

    .. math:: D = \mathrm{TPR} - \mathrm{TNR}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.confusion.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1]; 0 is balance, and no direction is better. 0 where one class has no targets.

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2009), eq. 1.

    >>> dominance(torch.tensor([[8, 2], [1, 1]]))
    tensor(-0.3000, dtype=torch.float64)
    """
    tpr, tnr = _rates(counts)
    return restore(tpr - tnr, counts)


def accuracy_dominance_area(counts: Counts) -> Tensor:
    r"""Area of the accuracy-dominance trapezium: G-mean, weighted towards the positive class.

    .. math:: A = \frac{G \, (D + 3)}{2} = \tfrac32 \, \mathrm{IBA}_{1/3}(G)

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.confusion.Margins` of two classes.

    Returns:
        ``[...]`` in [0, 1.5], higher is better; 1.5 is the perfect classifier. A point is feasible where
        G <= sqrt(1 - abs(D)).

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2009), section 2.1. That it is 1.5 IBA_{1/3} of G-mean is our remark.

    >>> accuracy_dominance_area(torch.tensor([[4, 0], [0, 4]]))
    tensor(1.5000, dtype=torch.float64)
    """
    tpr, tnr = _rates(counts)
    return restore(_sqrt(tpr * tnr) * (tpr - tnr + 3) / 2, counts)


def index_balanced_accuracy(
    counts: Counts, measure: Callable[..., Tensor] = geometric_mean, alpha: float = 0.05
) -> Tensor:
    r"""Index of balanced accuracy (IBA): a measure weighted by dominance, to favour the positive class.

    .. math:: \mathrm{IBA}_\alpha(M) = (1 + \alpha D) \, M

    The default is the paper's recommendation, alpha = .05 on the plain G-mean. imbalanced-learn's default is
    alpha = .1 on the *squared* G-mean, and with its default average the dominance of binary data is 0, so alpha does
    nothing there (``average="binary"`` weights as the paper does). PyCM's ``IBA`` is alpha = 1 on the squared G-mean.

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.confusion.Margins` of two classes.
        measure: what is weighted: a function of the counts. Of a measure that can be negative (MCC, optimized
            precision) the weighting turns the reward round.
        alpha: influence of dominance, >= 0. Above 1/2 an imperfect classifier can exceed the perfect one's 1 (alpha 1:
            1.0887 at TPR 1, TNR 2/3).

    Returns:
        ``[...]``, for G-mean in [0, 1 + alpha]; higher is better.

    Raises:
        ValueError: for a negative alpha, and for more than two classes (use :func:`one_vs_rest`).

    Source: Garcia, Mollineda and Sanchez (2010), Theoretical analysis of a performance measure for imbalanced data,
    eq. 2 and 3.

    >>> index_balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6230, dtype=torch.float64)
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number >= 0, got {alpha!r}")
    tpr, tnr = _rates(counts)
    value = measure(margins(counts) if isinstance(counts, Margins) else double(counts))
    return restore((1 + alpha * (tpr - tnr)) * value, counts)


def optimized_precision(counts: Counts) -> Tensor:
    r"""Optimized precision (OP): accuracy minus the relative difference of the two classes' rates.

    .. math:: \mathrm{OP} = \mathrm{ACC} - \frac{\lvert \mathrm{TNR} - \mathrm{TPR} \rvert}{\mathrm{TNR} + \mathrm{TPR}}

    Args:
        counts: ``[..., 2, 2]`` counts or rates, or :class:`~imbtorch.confusion.Margins` of two classes.

    Returns:
        ``[...]`` in [-1, 1], higher is better. The second term is 1 where both rates are 0, and 0 where one class has
        no targets and the other was hit.

    Raises:
        ValueError: for more than two classes (use :func:`one_vs_rest`).

    Source: Ranawana and Palade (2006); Garcia et al. (2010), eq. 1.

    >>> optimized_precision(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.5192, dtype=torch.float64)
    """
    tpr, tnr = _rates(counts)
    both = tpr + tnr
    penalty = torch.where(both == 0, 1.0, ratio((tnr - tpr).abs(), both))
    tp, actual, _ = margins(counts)
    return restore(ratio(tp.sum(-1), actual.sum(-1)) - penalty, counts)


# --- shared pieces --------------------------------------------------------------------------------------------------


def class_mean(
    values: Tensor, actual: Tensor, predicted: Tensor, average: str | None, samples: Tensor | None = None
) -> Tensor:
    """Average the values of classes (or labels), leaving out those with neither targets nor predictions.

    Args:
        values: ``[..., K]``.
        actual: ``[..., K]``, targets of each; where they are nan the value is.
        predicted: ``[..., K]``, predictions of each.
        average: ``"macro"``, ``"weighted"`` by targets, or ``"none"`` (None).
        samples: ``[..., K]``, samples of each. Where no class takes part, those with samples do, so that only counts
            that are all zero give nan (labels can all be absent from a batch of samples; classes cannot).

    Returns:
        ``[...]``, or ``[..., K]`` for ``"none"``.
    """
    check_choice("average", average, ("macro", "weighted", "none", None))
    absent = (actual <= 0) & (predicted <= 0)  # false for nan, which a mean must not hide
    if average in ("none", None):
        return torch.where(absent, math.nan, values)
    present = ~absent
    weight = actual if average == "weighted" else present
    if samples is not None:
        weight = torch.where((weight > 0).any(-1, keepdim=True), weight, (samples > 0).to(weight.dtype))
    if average == "macro":
        return _mean_where(values, weight)
    return (torch.where(weight > 0, values, 0.0) * weight).sum(-1) / weight.sum(-1)


def _averaged(parts: tuple[Tensor, Tensor], actual: Tensor, predicted: Tensor, average: str | None) -> Tensor:
    """Average the ratio of two parts over classes; micro sums them first, binary takes class 1 of two."""
    check_choice("average", average, ("macro", "weighted", "none", "micro", "binary", None))
    numerator, denominator = parts
    if average == "micro":
        present = (actual > 0) | (predicted > 0)
        sums = [torch.where(present, part, 0.0).sum(-1) for part in parts]
        return _defined(ratio(sums[0], sums[1]), actual)
    if average == "binary":
        _two(actual.shape[-1], "average='binary'")
        return _defined(ratio(numerator, denominator)[..., 1], actual)
    return class_mean(ratio(numerator, denominator), actual, predicted, average)


def _rates(counts: Counts) -> tuple[Tensor, Tensor]:
    """TPR and TNR of two classes; where one has no targets it stands at the other's rate."""
    tp, actual, _ = margins(counts)
    _two(actual.shape[-1], "this measure")
    tnr, tpr = _defined(ratio(tp, actual), actual, keepdim=True).unbind(-1)
    negatives, positives = actual.unbind(-1)
    return torch.where(positives > 0, tpr, tnr), torch.where(negatives > 0, tnr, tpr)


def _two(classes: int, what: str) -> None:
    if classes != 2:
        raise ValueError(f"{what} is for two classes, got {classes}; use one_vs_rest(counts) to read each class")


def _defined(value: Tensor, weight: Tensor, keepdim: bool = False) -> Tensor:
    """Nan where all of the last dimension of ``weight`` is zero."""
    return torch.where((weight > 0).any(-1, keepdim=keepdim), value, math.nan)


def _mean_where(values: Tensor, present: Tensor) -> Tensor:
    """Mean over the last dimension of the values that are present; nan without any."""
    return torch.where(present, values, 0.0).sum(-1) / present.sum(-1)


def _sqrt(x: Tensor) -> Tensor:
    """Square root with gradient 0 at 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def _xlogx(x: Tensor) -> Tensor:
    """Return x log x, with value and gradient 0 at 0."""
    positive = x > 0
    return x * torch.where(positive, x, 1.0).log()
