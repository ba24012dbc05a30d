"""Confusion matrix and measures of one batch, computed without a metric."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast, get_args

import torch
from torch import Tensor

from imbtorch.counting.arguments import Task, Thresholds, check_flag, refuses_arguments_of_others, spread
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Normalize, check_choice, normalized
from imbtorch.measures import __all__ as measures
from imbtorch.measures.named import Measured, resolved


@refuses_arguments_of_others
def confusion_matrix(
    preds: Tensor,
    target: Tensor,
    task: Task,
    *,
    num_classes: int | None = None,
    num_labels: int | None = None,
    threshold: Thresholds = 0.5,
    logits: bool = False,
    ignore_index: int | None = None,
    normalize: Normalize | None = None,
    samplewise: bool = False,
) -> Tensor:
    """Compute the confusion matrix of one batch; rows are true classes, columns predicted ones.

    ``samplewise=True`` gives the matrix of each image. A measure of it averages both of two classes, background among
    them, unless you pass ``average="binary"``; :func:`imbtorch.statistics.over_images` is the mean of the images:

    >>> from imbtorch.statistics import over_images
    >>> target, preds = torch.tensor([[0, 1, 1], [0, 1, 0], [0, 0, 0]]), torch.tensor([[0, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> over_images("dice", confusion_matrix(preds, target, "binary", samplewise=True), empty="skip").estimate
    tensor(0.8333, dtype=torch.float64)

    Args:
        preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1 or probabilities of class 1
            ``[N, ...]``, or probabilities of both classes ``[N, 2, ...]`` (binary); 0/1 or probabilities
            ``[N, L, ...]`` (multilabel). With several classes the one with the highest score is predicted; a
            probability strictly above ``threshold`` predicts 1, as in torchmetrics.
        target: class indices or 0/1 of any integer or bool dtype: ``[N, ...]``; multilabel ``[N, L, ...]``.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes, required for multiclass.
        num_labels: number of labels, required for multilabel.
        threshold: a probability in [0, 1], for multilabel also one for each label; binary and multilabel only. It is
            rounded to the dtype of the scores. Scores of half precision are converted to float32.
        logits: whether floating ``preds`` are logits, not probabilities (binary and multilabel; never guessed).
        ignore_index: target of samples to leave out; any integer, whether it is a class or not.
        normalize: ``"true"`` divides by the row sums, ``"pred"`` by the column sums, ``"all"`` by the total.
        samplewise: whether to return the matrix of each sample with its positions, such as of each image, ``[N, ...]``.

    Returns:
        int64 ``[K, K]`` (``[2, 2]`` for binary, ``[L, 2, 2]`` for multilabel), or rates of the default dtype.

    Raises:
        ValueError: for shapes that do not fit, an argument that is missing or unknown, a class out of range, a NaN
            score, or a probability outside [0, 1].
        TypeError: for floating targets, and inputs that are no tensors.

    >>> confusion_matrix(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), "multiclass", num_classes=3)
    tensor([[1, 1, 0],
            [0, 1, 0],
            [0, 0, 1]])
    """
    counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index)
    check_choice("normalize", normalize, (None, *get_args(Normalize)))
    check_flag("samplewise", samplewise)
    batch = counting.read(preds, target)
    if samplewise:
        counting = replace(counting, groups=max(len(target), 1))
        batch = batch._replace(group=spread("target", torch.arange(len(target), device=target.device), target, target))
    state = counting.zeros(target.device)
    counting.add_(state, batch, defer=lambda: False)
    counts = cast(Tensor, counting.counts(state, of_groups=samplewise))
    if samplewise:
        counts = counts[: len(target)]
    return counts if normalize is None else normalized(counts, normalize).to(torch.get_default_dtype())


@refuses_arguments_of_others
def evaluate(
    measure: Measured,
    preds: Tensor,
    target: Tensor,
    task: Task,
    *,
    num_classes: int | None = None,
    num_labels: int | None = None,
    threshold: Thresholds = 0.5,
    logits: bool = False,
    ignore_index: int | None = None,
) -> Tensor:
    """Compute a measure of predictions in one call, for frameworks that take a function of them.

    Args:
        measure: name in the catalogue such as ``"iam"``, function of counts, or ``functools.partial`` of one, averaged
            as in ``ImbalanceReport(measures=...)``.
        preds: as in :func:`confusion_matrix`, which documents the other arguments, too.
        target: as in :func:`confusion_matrix`.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes, required for multiclass.
        num_labels: number of labels, required for multilabel.
        threshold: probability strictly above which 1 is predicted.
        logits: whether floating ``preds`` are logits, not probabilities.
        ignore_index: target of samples to leave out.

    Returns:
        Value of the measure, ``[]``, or with ``average="none"`` one for each class or label.

    Raises:
        ValueError: as :func:`confusion_matrix`, and for an unknown measure.
        TypeError: as :func:`confusion_matrix`, and for something that is not a measure.

    >>> evaluate("balanced_accuracy", torch.tensor([0.1, 0.9, 0.8]), torch.tensor([0, 0, 1]), "binary")
    tensor(0.7500)
    """
    counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index)
    batch, state = counting.read(preds, target), counting.zeros(target.device)
    evaluated = resolved("measure", measure, counting)
    counting.add_(state, batch, defer=lambda: False)
    return evaluated(counting.counts(state)).to(torch.get_default_dtype())


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Refuse the name of a measure with the two ways to compute it."""
        if name in measures:
            raise AttributeError(
                f"imbtorch.functional has no {name}; imbtorch.{name}(counts) takes a confusion matrix, and "
                f"imbtorch.functional.evaluate(imbtorch.{name}, preds, target, task) takes predictions"
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
