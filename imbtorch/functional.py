"""Confusion matrices of one batch, without a metric."""

from __future__ import annotations

from typing import cast, get_args

import torch
from torch import Tensor

from imbtorch.arguments import Task, Threshold, refuses_arguments_of_others
from imbtorch.counts import Normalize, check_choice, normalized
from imbtorch.tasks import Counting

__all__ = ["confusion_matrix", "soft_confusion_matrix"]


@refuses_arguments_of_others
def confusion_matrix(
    preds: Tensor,
    target: Tensor,
    task: Task,
    *,
    num_classes: int | None = None,
    num_labels: int | None = None,
    threshold: Threshold = 0.5,
    logits: bool = False,
    ignore_index: int | None = None,
    normalize: Normalize | None = None,
) -> Tensor:
    """Confusion matrix of one batch; rows are true classes, columns predicted ones.

    Args:
        preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1 or probabilities ``[N, ...]``, or
            those of both classes ``[N, 2, ...]`` (binary); ``[N, L, ...]`` (multilabel). The class of the highest score
            is predicted; a probability strictly above ``threshold`` predicts 1, as in torchmetrics.
        target: class indices or 0/1 of any integer or bool dtype: ``[N, ...]``; multilabel ``[N, L, ...]``.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes, required for multiclass.
        num_labels: number of labels, required for multilabel.
        threshold: a probability in [0, 1], for multilabel also one for each label; binary and multilabel only. It is
            rounded to the dtype of the scores, to float32 for those of half precision, which are read as float32.
        logits: whether floating ``preds`` are logits rather than probabilities (binary and multilabel; never guessed).
        ignore_index: samples with this target are left out; any integer, inside or outside the classes.
        normalize: ``"true"`` divides by the row sums, ``"pred"`` by the column sums, ``"all"`` by the total.

    Returns:
        int64 ``[K, K]`` (``[2, 2]`` for binary, ``[L, 2, 2]`` for multilabel), or rates of the default dtype.

    Raises:
        ValueError: for shapes that do not fit, an argument that is missing or unknown, a class out of range, a NaN
            score, or a probability outside [0, 1].
        TypeError: for floating targets and inputs that are no tensors.

    >>> confusion_matrix(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), "multiclass", num_classes=3)
    tensor([[1, 1, 0],
            [0, 1, 0],
            [0, 0, 1]])
    """
    counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index)
    check_choice("normalize", normalize, (None, *get_args(Normalize)))
    counts = cast(Tensor, counting.counts(_state(counting, preds, target)))
    return counts if normalize is None else normalized(counts, normalize).to(torch.get_default_dtype())


@refuses_arguments_of_others
def soft_confusion_matrix(
    preds: Tensor,
    target: Tensor,
    task: Task,
    *,
    num_classes: int | None = None,
    num_labels: int | None = None,
    logits: bool = False,
    ignore_index: int | None = None,
) -> Tensor:
    """Confusion matrix of one batch in which each sample adds its probabilities along the row of its target.

    :func:`confusion_matrix` adds one 1 at the predicted class. On a small validation set many epochs have the same
    confusion matrix; this one tells them apart.

    Each row is scaled to its number of targets, and classes with neither targets nor predictions get nothing, since a
    mean over classes would take 1e-6 of probability for a class that is there. Probabilities are kept as whole numbers
    of 2^-24.

    Args:
        preds: floating scores: ``[N, C, ...]`` (multiclass), probabilities unless ``logits=True``; ``[N, ...]`` or
            those of both classes ``[N, 2, ...]`` (binary); ``[N, L, ...]`` (multilabel). A binary score p counts as 1 -
            p and p. Half precision is read as float32.
        target: class indices or 0/1 of any integer or bool dtype: ``[N, ...]``; multilabel ``[N, L, ...]``.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes, required for multiclass.
        num_labels: number of labels, required for multilabel.
        logits: whether ``preds`` are logits: of a softmax for multiclass and two columns, else of a sigmoid.
        ignore_index: samples with this target are left out; any integer, inside or outside the classes.

    Returns:
        float64 ``[K, K]`` (``[2, 2]`` for binary, ``[L, 2, 2]`` for multilabel), whose rows sum to the targets.

    Raises:
        ValueError: for shapes that do not fit, an argument that is missing or unknown, a target out of range, a NaN
            score, probabilities outside [0, 1] or, for several classes, not summing to 1 within 0.01.
        TypeError: for class indices as ``preds``, floating targets, and inputs that are no tensors.

    >>> preds, target = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), torch.tensor([0, 0, 1])
    >>> soft_confusion_matrix(preds, target, "multiclass", num_classes=2)
    tensor([[1.2500, 0.7500],
            [0.2500, 0.7500]], dtype=torch.float64)
    """
    counting = Counting.of(task, num_classes, num_labels, 0.5, logits, ignore_index, soft=True)
    return cast(Tensor, counting.counts(_state(counting, preds, target), soft=True))


def _state(counting: Counting, preds: Tensor, target: Tensor) -> Tensor:
    """State of one batch; what cannot be counted raises."""
    batch = counting.read(preds, target)
    state = counting.zeros(target.device)
    counting.add_(state, batch, defer=lambda: False)
    return state
