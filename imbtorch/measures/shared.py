"""Shared parts of the measures: types of arguments, means over classes, roots and logarithms at 0."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from imbtorch.counts import Counts, check_choice, margins, ratio

ClassAverage: TypeAlias = Literal["macro", "weighted", "none", "min"] | None
Average: TypeAlias = Literal["macro", "weighted", "none", "min", "micro", "binary"] | None


def class_mean(
    values: Tensor, actual: Tensor, predicted: Tensor, average: str | None, samples: Tensor | None = None
) -> Tensor:
    """Average the values of classes (or labels), leaving out those with neither targets nor predictions.

    Args:
        values: ``[..., K]``.
        actual: ``[..., K]``, number of targets of each class; nan makes the mean nan.
        predicted: ``[..., K]``, number of predictions of each class.
        average: ``"macro"``, ``"weighted"`` by targets, ``"none"`` (None), or ``"min"`` for the lowest value of the
            classes with targets.
        samples: ``[..., K]``, number of samples of each label. If no label takes part, those with samples do, so that
            only counts that are all zero give nan (all labels can be absent from a batch; all classes cannot).

    Returns:
        ``[...]``, or ``[..., K]`` for ``"none"``; nan where no class takes part.

    Raises:
        ValueError: for an unknown average.

    >>> targets, predictions = torch.tensor([10.0, 2.0, 0.0]), torch.tensor([9.0, 3.0, 0.0])
    >>> class_mean(torch.tensor([0.75, 0.25, 0.0]), targets, predictions, "macro")
    tensor(0.5000)
    """
    check_choice("average", average, ("macro", "weighted", "none", "min", None))
    if average == "min":
        without = actual <= 0  # false for nan
        return torch.where(without.all(-1), math.nan, torch.where(without, math.inf, values).amin(-1))
    present = ~(actual + predicted <= 0)  # also true for nan, so that the mean is nan
    if average in ("none", None):
        return torch.where(present, values, math.nan)
    weight = actual if average == "weighted" else present
    if samples is not None:
        weight = torch.where((weight > 0).any(-1, keepdim=True), weight, (samples > 0).to(weight.dtype))
    if average == "macro":
        return mean_where(values, weight)
    return (torch.where(weight > 0, values, 0.0) * weight).sum(-1) / weight.sum(-1)


def averaged(parts: tuple[Tensor, Tensor], actual: Tensor, predicted: Tensor, average: str | None) -> Tensor:
    """Average the ratio of two parts over classes: ``"micro"`` sums the parts first, ``"binary"`` takes class 1."""
    check_choice("average", average, ("macro", "weighted", "none", "min", "micro", "binary", None))
    numerator, denominator = parts
    if average == "micro":
        present = actual + predicted > 0
        sums = [torch.where(present, part, 0.0).sum(-1) for part in parts]
        return defined(ratio(sums[0], sums[1]), actual)
    if average == "binary":
        check_two(actual.shape[-1], "average='binary'")
        undefined = (denominator + actual + predicted)[..., 1] <= 0  # 0/0 of an absent class; false for nan
        return defined(torch.where(undefined, math.nan, ratio(numerator, denominator)[..., 1]), actual)
    return class_mean(ratio(numerator, denominator), actual, predicted, average)


def two_rates(counts: Counts) -> tuple[Tensor, Tensor]:
    """Compute TPR and TNR of two classes; the rate of a class without targets is that of the other class."""
    tp, actual, _ = margins(counts)
    check_two(actual.shape[-1], "this measure")
    tnr, tpr = defined(ratio(tp, actual), actual, keepdim=True).unbind(-1)
    negatives, positives = actual.unbind(-1)
    return torch.where(positives > 0, tpr, tnr), torch.where(negatives > 0, tnr, tpr)


def check_two(classes: int, what: str) -> None:
    """Check that there are two classes."""
    if classes != 2:
        raise ValueError(f"{what} is for two classes, got {classes}; use one_vs_rest(counts) to read each class")


def defined(value: Tensor, weight: Tensor, keepdim: bool = False) -> Tensor:
    """Replace values by nan where all weights along the last dimension are zero."""
    return torch.where((weight > 0).any(-1, keepdim=keepdim), value, math.nan)


def zero_if_absent(value: Tensor, actual: Tensor) -> Tensor:
    """Replace the undefined value of an absent class by 0 where there are samples ``actual`` ``[..., K]``."""
    return torch.where(value.isnan() & (actual.sum(-1) > 0).to(value.device), 0.0, value)


def mean_where(values: Tensor, present: Tensor) -> Tensor:
    """Average the present values over the last dimension; return nan if there are none."""
    return torch.where(present, values, 0.0).sum(-1) / present.sum(-1)


def root(x: Tensor) -> Tensor:
    """Return the square root, with gradient 0 at 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def xlogx(x: Tensor) -> Tensor:
    """Return x log x, with value and gradient 0 at 0."""
    positive = x > 0
    return x * torch.where(positive, x, 1.0).log()


def quotient(numerator: Tensor, denominator: Tensor, undefined: float) -> Tensor:
    """Divide non-negative numbers: x/0 is inf and 0/0 is ``undefined``, both with gradient 0."""
    empty = denominator <= 0
    limit = torch.where(numerator <= 0, undefined, math.inf)
    return torch.where(empty, limit, numerator / torch.where(empty, 1.0, denominator))


def class_distances(counts: Tensor) -> Tensor:
    """Return the distance between true and predicted class, ``[K, K]``, for ordered classes."""
    place = torch.arange(counts.shape[-1], dtype=counts.dtype, device=counts.device)
    return (place.unsqueeze(-1) - place).abs()
