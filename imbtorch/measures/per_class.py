"""Measures of each class, and their averages over classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from imbtorch.counts import Counts, margins, of_each_class, ratio, restore
from imbtorch.measures.shared import Average, ClassAverage, averaged, class_mean, root
from imbtorch.measures.traits import PER_CLASS, PER_CLASS_OR_POSITIVE, catalogued

__all__ = [
    "class_balance_accuracy",
    "f_score",
    "fowlkes_mallows",
    "imbalance_accuracy",
    "jaccard",
    "negative_predictive_value",
    "precision",
    "recall",
    "specificity",
]


@catalogued("precision", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE)
def precision(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Precision: the share of the predictions of a class that are right.

    .. math:: P_i = \frac{c_{ii}}{p_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, ``"micro"`` (sums first), ``"none"`` or None for ``[..., K]``,
            ``"min"`` for the worst of the classes that have targets, or ``"binary"`` for class 1 of two.

    Returns:
        ``[...]`` in [0, 1], higher is better. A class that is never predicted counts 0; a class with neither targets
        nor predictions takes no part, and is nan with ``"none"`` and ``"binary"``.

    Source: Mortaz (2020), eq. 4; Liu et al. (2007), eq. 4, 9 and 10.

    >>> precision(torch.tensor([[8, 2], [1, 1]]), average="none")
    tensor([0.8889, 0.3333], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(averaged((tp, predicted), actual, predicted, average), counts)


@catalogued("recall", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE, at_an_end=True)
def recall(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Recall (sensitivity, true positive rate): the share of the samples of a class that are predicted as this class.

    .. math:: R_i = \frac{c_{ii}}{r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better. A class that is predicted but has no targets counts 0 in the macro
        average, as in scikit-learn's and torchmetrics' macro recall; :func:`balanced_accuracy` leaves it out.

    Source: Mortaz (2020), eq. 5; Liu et al. (2007), eq. 5, 7 and 8.

    >>> recall(torch.tensor([[8, 2], [1, 1]]), average="none")
    tensor([0.8000, 0.5000], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(averaged((tp, actual), actual, predicted, average), counts)


@catalogued("specificity", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE, at_an_end=True)
def specificity(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Specificity (true negative rate): the share of the samples of other classes not predicted as this class.

    .. math:: S_i = \frac{n - r_i - p_i + c_{ii}}{n - r_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class that has all targets. A class with neither targets nor
        predictions takes no part.

    Source: Garcia et al. (2010), TNrate; several classes are read one against the rest.

    >>> specificity(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.8000, dtype=torch.float64)
    """
    _, actual, predicted = own = margins(counts)
    _, _, fp, tn = of_each_class(counts, own)
    return restore(averaged((tn, tn + fp), actual, predicted, average), counts)


@catalogued("f1", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE)
def f_score(counts: Counts, beta: float = 1.0, average: Average = "macro") -> Tensor:
    r"""F-score (Dice): the harmonic mean of precision and recall of each class, averaged over all classes.

    Of two classes a direct call averages both; ``average="binary"`` gives the F1 of class 1, and
    :func:`imbtorch.statistics.over_images` the mean Dice per image.

    .. math:: F_i = \frac{(1 + \beta^2) c_{ii}}{\beta^2 r_i + p_i}

    The macro average is the mean of the F-scores of the classes (Mortaz 2020, eq. 6), as in other libraries. It is not
    the harmonic mean of macro precision and macro recall, which Theorem 3 of that paper uses: ``[[1, 1], [0, 1]]`` has
    0.75 as both macro means, but this F-score is 0.667. IAM <= CBA <= F-score still holds, because CBA averages the
    smaller of precision and recall.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        beta: weight of recall relative to precision; 1 for F1.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class without right predictions. A class with neither targets nor
        predictions takes no part, and is nan with ``"none"`` and ``"binary"``.

    Raises:
        ValueError: for a beta that is negative or not finite.

    Source: Mortaz (2020), eq. 6; Liu et al. (2007), eq. 6.

    >>> f_score(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.4000, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    if not (beta >= 0 and math.isfinite(beta)):
        raise ValueError(f"beta must be a finite number >= 0, got {beta!r}")
    parts = (1 + beta**2) * tp, beta**2 * actual + predicted
    return restore(averaged(parts, actual, predicted, average), counts)


@catalogued("fowlkes_mallows", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE)
def fowlkes_mallows(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Fowlkes-Mallows index: the geometric mean of precision and recall of each class, averaged.

    .. math:: \mathrm{FM}_i = \frac{c_{ii}}{\sqrt{r_i p_i}}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class without right predictions. A class with neither targets nor
        predictions takes no part.

    Source: Fowlkes and Mallows (1983); "geometric mean of precision and recall" in Liu et al. (2007), Table 2.

    >>> fowlkes_mallows(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.4082, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    if average == "micro":
        return restore(averaged((tp, actual), actual, predicted, "micro"), counts)
    return restore(averaged((tp, root(actual) * root(predicted)), actual, predicted, average), counts)


@catalogued("iou", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE)
def jaccard(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Jaccard index, intersection over union (IoU): right predictions over all samples in or predicted as a class.

    Of two classes a direct call averages both; ``average="binary"`` gives the IoU of class 1, and
    :func:`imbtorch.statistics.over_images` the mean IoU per image.

    .. math:: J_i = \frac{c_{ii}}{r_i + p_i - c_{ii}} = \frac{F_i}{2 - F_i}

    The macro mean is the mean IoU (mIoU) of segmentation; F1 is the Dice score. For a single class both rank models
    alike, but their means over classes can differ in order.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better. A class with neither targets nor predictions takes no part (nan with
        ``"none"`` and ``"binary"``), as in torchmetrics' ``MulticlassJaccardIndex``. scikit-learn also leaves it out
        without ``labels``, and counts ``zero_division`` with ``labels``; PyCM has neither a value nor a mean.

    Source: Jaccard (1901); Everingham et al. (2010), The Pascal visual object classes challenge, for segmentation.

    >>> jaccard(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.2500, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(averaged((tp, actual + predicted - tp), actual, predicted, average), counts)


@catalogued("npv", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS_OR_POSITIVE)
def negative_predictive_value(counts: Counts, average: Average = "macro") -> Tensor:
    r"""Negative predictive value (NPV): the share of the samples not predicted as a class that do not belong to it.

    .. math:: \mathrm{NPV}_i = \frac{n - r_i - p_i + c_{ii}}{n - p_i}

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class that is predicted for all samples. A class with neither
        targets nor predictions takes no part.

    Source: Altman and Bland (1994), Diagnostic tests 2: predictive values; several classes are read one against the
    rest.

    >>> negative_predictive_value(torch.tensor([[8, 2], [1, 1]]), average="binary")
    tensor(0.8889, dtype=torch.float64)
    """
    _, actual, predicted = own = margins(counts)
    _, fn, _, tn = of_each_class(counts, own)
    return restore(averaged((tn, tn + fn), actual, predicted, average), counts)


@catalogued("cba", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS)
def class_balance_accuracy(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Class balance accuracy (CBA): for each class the smaller of precision and recall, averaged.

    .. math:: \mathrm{CBA} = \frac1K \sum_i \frac{c_{ii}}{\max(r_i, p_i)}

    CBA never exceeds macro precision, macro recall, the macro F-score, or the harmonic mean of macro precision and
    macro recall. It never exceeds accuracy for two classes, but can for three: ``[[0, 0, 1], [0, 1, 0], [2, 0, 0]]``
    has CBA 0.333 and accuracy 0.25. For any K, CBA <= 1 - (2/K)(1 - ACC), where K is the number of classes with targets
    or predictions.

    In small classes CBA is biased low, by half as much as :func:`imbalance_accuracy`.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, ``"none"`` or None for ``[..., K]``, or ``"min"`` for the
            worst of the classes that have targets.

    Returns:
        ``[...]`` in [0, 1], higher is better. Classes with neither targets nor predictions take no part.

    Source: Mosley (2013), A balanced approach to the multi-class imbalance problem; Mortaz (2020), eq. 7.

    >>> class_balance_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.5667, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(class_mean(ratio(tp, torch.maximum(actual, predicted)), actual, predicted, average), counts)


@catalogued("iam", higher_is_better=True, value_range=(-1, 1), averages=PER_CLASS)
def imbalance_accuracy(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Imbalance accuracy metric (IAM): right minus wrong predictions of each class, relative to its size, averaged.

    .. math:: \mathrm{IAM} = \frac1K \sum_i
        \frac{c_{ii} - \max\bigl(\sum_{j \ne i} c_{ij}, \sum_{j \ne i} c_{ji}\bigr)}{\max(r_i, p_i)}

    Properties to know before you monitor it:

    - **IAM = 2 CBA - 1**, exactly and class by class, since max(r_i, p_i) is c_ii plus the larger of the two sums. So
      IAM and :func:`class_balance_accuracy` select the same model.
    - Theorem 4 of the paper (IAM <= accuracy) holds up to four classes and fails from five on: ``[[4, 2], [2, 5]]``
      beside three classes of one right sample each has IAM 79/105 and accuracy 12/16. The tight bound for any K is
      IAM <= 1 - (4/K)(1 - ACC), where K is the number of classes with targets or predictions.
    - A negative IAM does not mean that most samples are wrong: ``[[95, 3], [2, 0]]`` has accuracy 0.95 and IAM -0.031.
      Random guessing on K balanced classes scores 2/K - 1, not 0.
    - Absent classes take no part, so a validation set that lacks some classes can have a higher IAM.
    - IAM is biased low in small classes, because the larger of two noisy numbers is too large on average: with 20
      samples a class and recalls of 0.7 by some 0.10, with 10 by 0.14, with 5 by 0.19 (thirty classes;
      the page "Coverage of 95% intervals"). Compare it only on the same samples.
      :func:`imbtorch.statistics.posterior` has intervals that take the bias into account.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: ``"macro"``, ``"weighted"`` by targets, ``"none"`` or None for ``[..., K]``, or ``"min"`` for the
            worst of the classes that have targets.

    Returns:
        ``[...]`` in [-1, 1], higher is better. A class with targets or predictions but no right prediction counts -1;
        a class with neither takes no part.

    Source: Mortaz (2020), Imbalance accuracy metric for model selection in multi-class imbalance classification
    problems, eq. 8.

    >>> imbalance_accuracy(torch.tensor([[8, 2], [1, 1]]))
    tensor(0.1333, dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    larger = torch.maximum(actual, predicted)
    return restore(class_mean(ratio(2 * tp - larger, larger), actual, predicted, average), counts)
