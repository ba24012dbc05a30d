"""Measures of all classes at once: one value of the whole matrix."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from imbtorch.counts import Counts, check_choice, check_square, double, margins, matrix, of_each_class, ratio, restore
from imbtorch.measures.shared import class_distances, class_mean, defined, mean_where, quotient, root, xlogx
from imbtorch.measures.traits import catalogued

__all__ = [
    "accuracy",
    "adjusted_balanced_accuracy",
    "balanced_accuracy",
    "bottom_line",
    "cohen_kappa",
    "confusion_entropy",
    "expected_cost",
    "geometric_mean",
    "macro_averaged_absolute_error",
    "matthews_corrcoef",
    "relative_classifier_information",
]


@catalogued("accuracy", higher_is_better=True, value_range=(0, 1))
def accuracy(counts: Counts) -> Tensor:
    r"""Accuracy: the share of correctly predicted samples.

    .. math:: \mathrm{ACC} = \frac{\sum_i c_{ii}}{\sum_{ij} c_{ij}}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero.

    Source: Mortaz (2020), eq. 3.

    >>> accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.7500, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    return restore(defined(ratio(tp.sum(-1), actual.sum(-1)), actual), counts)


@catalogued("balanced_accuracy", higher_is_better=True, value_range=(0, 1))
def balanced_accuracy(counts: Counts) -> Tensor:
    r"""Balanced accuracy: mean recall over the classes that have targets.

    With two classes it is (TPR + TNR)/2, which is also the area under the ROC curve through this single operating point
    (Garcia et al. 2010; Liu et al. 2007, three-point curve).

    .. math:: \mathrm{BA} = \frac{1}{\lvert\{i : r_i > 0\}\rvert} \sum_{i : r_i > 0} \frac{c_{ii}}{r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero. A class that is predicted but has no
        targets takes no part, as in ``sklearn.metrics.balanced_accuracy_score``; torchmetrics' macro recall counts it
        as 0.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution; Mosley (2013).

    >>> balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6500, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    return restore(mean_where(ratio(tp, actual), actual > 0), counts)


@catalogued("gmean", higher_is_better=True, value_range=(0, 1))
def geometric_mean(counts: Counts, correction: float = 0.0) -> Tensor:
    r"""G-mean: the geometric mean of the recalls of the classes that have targets; sqrt(TPR * TNR) for two classes.

    .. math:: G = \left(\prod_{i : r_i > 0} \frac{c_{ii}}{r_i}\right)^{1/\lvert\{i : r_i > 0\}\rvert}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        correction: value in [0, 1] that replaces a recall of 0, so that one missed class does not hide all others.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero. A class without targets takes no part;
        imbalanced-learn's ``geometric_mean_score`` gives 0 once such a class is predicted.

    Raises:
        ValueError: for a correction outside [0, 1].

    Source: Kubat and Matwin (1997); several classes: Sun, Kamel and Wang (2006).

    >>> geometric_mean(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.6325, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    if not 0 <= correction <= 1:
        raise ValueError(f"correction must lie in [0, 1], got {correction!r}")
    rates, present = ratio(tp, actual), actual > 0
    hit = rates > 0
    missed = math.log(correction) if correction else -math.inf
    logs = torch.where(hit, torch.where(hit, rates, 1.0).log(), missed)
    return restore(mean_where(logs, present).exp(), counts)


@catalogued("mcc", higher_is_better=True, value_range=(-1, 1))
def matthews_corrcoef(counts: Counts) -> Tensor:
    r"""Matthews correlation coefficient (MCC), for several classes Gorodkin's R_K.

    .. math:: \mathrm{MCC} = \frac{\sum_i (\mathit{tp}_i \mathit{tn}_i - \mathit{fn}_i \mathit{fp}_i)}
        {\sqrt{\sum_i r_i (n - r_i) \sum_i p_i (n - p_i)}}

    This numerator equals the usual ``trace * n - sum(r * p)`` but is more precise: for 10^12 samples the usual form is
    wrong in the sixth digit, and torchmetrics' float32 in the second.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.

    Returns:
        ``[...]`` in [-1, 1], higher is better; 0 where all targets or all predictions are of one class, as in
        scikit-learn; nan where all counts are zero.

    Source: Matthews (1975); Gorodkin (2004), Comparing two K-category assignments by a K-category correlation
    coefficient.

    >>> matthews_corrcoef(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.2582, dtype=torch.float64)
    """
    _, actual, predicted = own = margins(counts)
    tp, fn, fp, tn = of_each_class(counts, own)
    # a separate root for each variance, since their product would overflow or lose small rates
    of_targets, of_predictions = root((actual * (tn + fp)).sum(-1)), root((predicted * (tn + fn)).sum(-1))
    covariance = (tp * tn - fn * fp).sum(-1)
    return restore(defined(ratio(covariance, of_targets * of_predictions), actual), counts)


@catalogued("rci", higher_is_better=True, value_range=(0, 1), needs_matrix=True)
def relative_classifier_information(counts: Tensor) -> Tensor:
    r"""Relative classifier information (RCI): the share of the targets' entropy that the predictions explain.

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
    # logarithms near 0 are computed from the exact difference n c - r p, to be precise for rare classes
    excess = torch.where(hit, (wide * (n - r - p + wide) - (r - wide) * (p - wide)) / product, 0.0)
    close = excess.abs() < 0.5
    far = torch.where(hit & ~close, n * wide / product, 1.0).log()
    gain = torch.where(close, torch.where(close, excess, 0.0).log1p(), far)
    entropy = (actual * ratio(total - actual, actual).log1p()).sum(-1)
    return restore(defined(ratio((wide * gain).sum((-2, -1)), entropy), actual), counts)


@catalogued("confusion_entropy", higher_is_better=False, value_range=(0, None), needs_matrix=True)
def confusion_entropy(counts: Tensor) -> Tensor:
    r"""Confusion entropy (CEN): how evenly the errors of each class spread over the other classes.

    .. math:: \mathrm{CEN} = -\sum_j P_j \sum_{k \ne j} \bigl(P^j_{jk} \log_b P^j_{jk} + P^j_{kj} \log_b P^j_{kj}\bigr),
        \quad P^j_{ik} = \frac{c_{ik}}{r_j + p_j}, \quad P_j = \frac{r_j + p_j}{2n}, \quad b = 2(K - 1)

    Args:
        counts: ``[..., K, K]`` counts or rates.

    Returns:
        ``[...]``, lower is better, 0 without errors. It lies within [0, 1] for three or more classes but can exceed 1
        for two. K counts the classes that have targets or predictions, so an empty class changes nothing (PyCM has no
        value there); 0 for one class; nan where all counts are zero.

    Source: Wei, Yuan, Hu and Wang (2010), A novel measure for evaluating classifiers.

    >>> confusion_entropy(torch.tensor([[3, 1], [1, 3]]))
    tensor(0.7500, dtype=torch.float64)
    """
    wide = matrix(counts)
    weight = wide.sum(-1) + wide.sum(-2)
    errors = wide - torch.diag_embed(wide.diagonal(dim1=-2, dim2=-1))
    in_row, in_column = ratio(errors, weight.unsqueeze(-1)), ratio(errors, weight.unsqueeze(-2))
    entropy = -(xlogx(in_row).sum(-1) + xlogx(in_column).sum(-2))
    base = 2.0 * ((weight > 0).sum(-1).to(weight) - 1)
    logs = torch.where(base > 1, base, 2.0).log()
    value = ratio((weight * entropy).sum(-1), weight.sum(-1)) / logs
    return restore(defined(value, weight), counts)


@catalogued("adjusted_balanced_accuracy", higher_is_better=True, value_range=(-1, 1))
def adjusted_balanced_accuracy(counts: Counts) -> Tensor:
    r"""Balanced accuracy, adjusted for chance: 0 for every constant or random prediction, 1 for the perfect one.

    With two classes it is informedness, Youden's J = TPR + TNR - 1.

    .. math:: \frac{\mathrm{BA} - 1/K}{1 - 1/K}, \quad K = {\lvert\{i : r_i > 0\}\rvert}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.

    Returns:
        ``[...]`` in [-1/(K - 1), 1], higher is better; 0 where only one class has targets (scikit-learn's
        ``balanced_accuracy_score(adjusted=True)`` divides by 0 there); nan where all counts are zero.

    Source: Youden (1950), Index for rating diagnostic tests; Powers (2011), informedness; scikit-learn.

    >>> adjusted_balanced_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.3000, dtype=torch.float64)
    """
    tp, actual, _ = margins(counts)
    classes = (actual > 0).sum(-1).to(actual)
    return restore(ratio(classes * mean_where(ratio(tp, actual), actual > 0) - 1, classes - 1), counts)


@catalogued(
    "kappa", higher_is_better=True, value_range=(-1, 1), needs_matrix=lambda given: given["weights"] is not None
)
def cohen_kappa(counts: Counts, weights: Literal["linear", "quadratic"] | None = None) -> Tensor:
    r"""Cohen's kappa: agreement of targets and predictions beyond what their class shares give by chance.

    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e}, \quad p_o = \sum_i \frac{c_{ii}}{n},
        \quad p_e = \sum_i \frac{r_i p_i}{n^2};
        \qquad \kappa_w = 1 - \frac{\sum_{ij} w_{ij} c_{ij}}{\sum_{ij} w_{ij} r_i p_j / n}

    Args:
        counts: ``[..., K, K]`` counts or rates; without weights also :class:`~imbtorch.counts.Margins`.
        weights: weight of each error by its distance, for ordered classes: None (all equal), ``"linear"``
            (w = abs(i - j)) or ``"quadratic"`` (its square).

    Returns:
        ``[...]`` in [-1, 1], higher is better; 0 where all targets and predictions are of one class, like MCC;
        nan where all counts are zero. scikit-learn and PyCM have no value (nan) for one class.

    Raises:
        ValueError: for other weights.
        TypeError: for weights with :class:`~imbtorch.counts.Margins`, which lack the distances of errors.

    Source: Cohen (1960), A coefficient of agreement for nominal scales; Cohen (1968), Weighted kappa.

    >>> cohen_kappa(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.2500, dtype=torch.float64)
    """
    _, actual, predicted = own = margins(counts)
    check_choice("weights", weights, (None, "linear", "quadratic"))
    if weights is None:
        tp, fn, fp, tn = of_each_class(counts, own)
        return restore(defined(ratio((tp * tn - fn * fp).sum(-1), (actual * (tn + fn)).sum(-1)), actual), counts)
    wide = double(check_square(counts))  # its margins are nan where a cell is not a count
    distance = class_distances(wide) ** (2 if weights == "quadratic" else 1)
    found = (distance * wide).sum((-2, -1)) * actual.sum(-1)
    chance = (distance * actual.unsqueeze(-1) * predicted.unsqueeze(-2)).sum((-2, -1))
    return restore(defined(ratio(chance - found, chance), actual), counts)


@catalogued("bottom_line", higher_is_better=True, value_range=(0, 1))
def bottom_line(counts: Counts) -> Tensor:
    r"""Bottom line: the lowest of accuracy, macro precision, macro recall, macro F1 and CBA.

    .. math:: \min(\mathrm{ACC}, \mathrm{CBA})

    The other three are never the lowest. For each class c/max(r, p) is at most c/p (precision), at most c/r (recall)
    and, since r + p <= 2 max(r, p), at most 2 c/(r + p) (F1), and all four are averaged over the same classes. To
    select the highest bottom line is the max-min choice of the IAM paper among five measures.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.

    Returns:
        ``[...]`` in [0, 1], higher is better; nan where all counts are zero.

    Source: Mortaz (2020), section 3.5, for the choice by the lowest of several measures; that two of them are enough is
    our remark.

    >>> bottom_line(torch.tensor([[0, 0, 1], [0, 1, 0], [2, 0, 0]]))  # the accuracy; CBA is 0.333
    tensor(0.2500, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    balance = class_mean(ratio(tp, torch.maximum(actual, predicted)), actual, predicted, "macro")
    return restore(torch.minimum(ratio(tp.sum(-1), actual.sum(-1)), balance), counts)


@catalogued("macro_averaged_absolute_error", higher_is_better=False, value_range=(0, None), needs_matrix=True)
def macro_averaged_absolute_error(counts: Tensor) -> Tensor:
    r"""Macro-averaged mean absolute error (MA-MAE): the mean distance of predictions from each true class, averaged.

    It is meant for ordered classes at equal distances, such as grades.

    .. math:: \frac{1}{\lvert\{i : r_i > 0\}\rvert} \sum_{i : r_i > 0}
        \frac{\sum_j \lvert i - j \rvert \, c_{ij}}{r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates.

    Returns:
        ``[...]`` in [0, K - 1], in classes, lower is better; classes without targets take no part; nan where all
        counts are zero.

    Source: Baccianella, Esuli and Sebastiani (2009), Evaluation measures for ordinal regression; imbalanced-learn's
    ``macro_averaged_mean_absolute_error``.

    >>> macro_averaged_absolute_error(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.3500, dtype=torch.float64)
    """
    wide = matrix(counts)
    actual = wide.sum(-1)
    return restore(mean_where(ratio((class_distances(wide) * wide).sum(-1), actual), actual > 0), counts)


@catalogued("expected_cost", higher_is_better=False, needs_matrix=True)
def expected_cost(counts: Tensor, costs: Tensor, normalize: bool | Literal["baseline"] = True) -> Tensor:
    r"""Expected cost per sample, or total cost, for known misclassification costs.

    .. math:: \mathrm{EC} = \frac{\sum_{ij} w_{ij} c_{ij}}{\sum_{ij} c_{ij}};
        \qquad \mathrm{EC}_{\mathrm{baseline}} = \frac{\mathrm{EC} - s}{\min_j \sum_i w_{ij} r_i / n - s},
        \quad s = \sum_i \frac{r_i}{n} \min_j w_{ij}

    Args:
        counts: ``[..., K, K]`` counts or rates.
        costs: ``[K, K]``, cost of a sample of the row's class that is predicted as the column's; negative is a gain.
        normalize: divide by the number of samples; ``"baseline"`` also rescales the perfect classifier to 0 and the
            best constant prediction to 1, so that a classifier with 1 or more is of no use.

    Returns:
        ``[...]`` in units of the costs, lower is better; nan where all counts are zero (0 if not normalized). With
        ``"baseline"`` it is 0 or more; where a constant prediction is perfect, it is 0 for a perfect classifier, else
        inf.

    Raises:
        ValueError: for costs of a wrong shape, for costs that are not finite (on other devices than the CPU, the value
            is not finite instead), and for an unknown ``normalize``.

    Source: Liu, Ghosh and Martin (2007), eq. 1 and 2; Ferrer (2022), Analysis and comparison of classification metrics,
    for the comparison with the best constant prediction (there s = 0).

    >>> expected_cost(torch.tensor([[8, 2], [1, 1]]), torch.tensor([[0.0, 1.0], [5.0, 0.0]]))
    tensor(0.5833, dtype=torch.float64)
    """
    check_choice("normalize", normalize, (True, False, "baseline"))
    wide = matrix(counts)
    weights = torch.as_tensor(costs, dtype=torch.float64)
    if weights.is_cpu and not bool(weights.isfinite().all()):  # elsewhere the error would have to wait
        raise ValueError("costs must be finite, got nan or inf")
    weights = weights.to(wide.device)
    if weights.shape != wide.shape[-2:]:
        raise ValueError(f"costs must be {list(wide.shape[-2:])} like the matrix, got {list(weights.shape)}")
    if normalize == "baseline":
        needless = weights - weights.amin(-1, keepdim=True)  # so that EC - s is exactly 0 where both are equal
        found, constant = (wide * needless).sum((-2, -1)), (wide.sum(-1, keepdim=True) * needless).sum(-2).amin(-1)
        return restore(defined(quotient(found, constant, undefined=0.0), wide.sum(-1)), counts)
    total = (wide * weights).sum((-2, -1))
    if normalize:
        total = defined(ratio(total, wide.sum((-2, -1))), wide.sum(-1))
    return restore(total, counts)
