"""Shared parts of the measures: types of their arguments, means over classes, roots and logarithms at 0."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from imbtorch.counts import Counts, Measure, check_choice, margins, ratio

__all__ = ["Average", "ClassAverage", "Measure", "class_mean"]

ClassAverage: TypeAlias = Literal["macro", "weighted", "none", "min"] | None
Average: TypeAlias = Literal["macro", "weighted", "none", "min", "micro", "binary"] | None


def class_mean(
    values: Tensor, actual: Tensor, predicted: Tensor, average: str | None, samples: Tensor | None = None
) -> Tensor:
    """Average the values of classes (or labels), leaving out those with neither targets nor predictions.

    Args:
        values: ``[..., K]``.
        actual: ``[..., K]``, targets of each; where they are nan the value is.
        predicted: ``[..., K]``, predictions of each.
        average: ``"macro"``, ``"weighted"`` by targets, ``"none"`` (None), or ``"min"``, the lowest with targets.
        samples: ``[..., K]``, samples of each. Where no class takes part, those with samples do, so that only counts
            that are all zero give nan (labels can all be absent from a batch of samples; classes cannot).

    Returns:
        ``[...]``, or ``[..., K]`` for ``"none"``.
    """
    check_choice("average", average, ("macro", "weighted", "none", "min", None))
    if average == "min":
        without = actual <= 0  # false for nan
        return torch.where(without.all(-1), math.nan, torch.where(without, math.inf, values).amin(-1))
    present = ~(actual + predicted <= 0)  # true for nan, which a mean must not hide
    if average in ("none", None):
        return torch.where(present, values, math.nan)
    weight = actual if average == "weighted" else present
    if samples is not None:
        weight = torch.where((weight > 0).any(-1, keepdim=True), weight, (samples > 0).to(weight.dtype))
    if average == "macro":
        return mean_where(values, weight)
    return (torch.where(weight > 0, values, 0.0) * weight).sum(-1) / weight.sum(-1)


def averaged(parts: tuple[Tensor, Tensor], actual: Tensor, predicted: Tensor, average: str | None) -> Tensor:
    """Average the ratio of two parts over classes; micro sums them first, binary takes class 1 of two."""
    check_choice("average", average, ("macro", "weighted", "none", "min", "micro", "binary", None))
    numerator, denominator = parts
    if average == "micro":
        present = actual + predicted > 0
        sums = [torch.where(present, part, 0.0).sum(-1) for part in parts]
        return defined(ratio(sums[0], sums[1]), actual)
    if average == "binary":
        check_two(actual.shape[-1], "average='binary'")
        return defined(ratio(numerator, denominator)[..., 1], actual)
    return class_mean(ratio(numerator, denominator), actual, predicted, average)


def two_rates(counts: Counts) -> tuple[Tensor, Tensor]:
    """TPR and TNR of two classes; where one has no targets it stands at the other's rate."""
    tp, actual, _ = margins(counts)
    check_two(actual.shape[-1], "this measure")
    tnr, tpr = defined(ratio(tp, actual), actual, keepdim=True).unbind(-1)
    negatives, positives = actual.unbind(-1)
    return torch.where(positives > 0, tpr, tnr), torch.where(negatives > 0, tnr, tpr)


def check_two(classes: int, what: str) -> None:
    if classes != 2:
        raise ValueError(f"{what} is for two classes, got {classes}; use one_vs_rest(counts) to read each class")


def defined(value: Tensor, weight: Tensor, keepdim: bool = False) -> Tensor:
    """Nan where all of the last dimension of ``weight`` is zero."""
    return torch.where((weight > 0).any(-1, keepdim=keepdim), value, math.nan)


def mean_where(values: Tensor, present: Tensor) -> Tensor:
    """Mean over the last dimension of the values that are present; nan without any."""
    return torch.where(present, values, 0.0).sum(-1) / present.sum(-1)


def root(x: Tensor) -> Tensor:
    """Square root with gradient 0 at 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def xlogx(x: Tensor) -> Tensor:
    """Return x log x, with value and gradient 0 at 0."""
    positive = x > 0
    return x * torch.where(positive, x, 1.0).log()


def quotient(numerator: Tensor, denominator: Tensor, undefined: float) -> Tensor:
    """Quotient of non-negative numbers: inf for x/0, a value of its own for 0/0; gradients are 0 there."""
    empty = denominator <= 0
    limit = torch.where(numerator <= 0, undefined, math.inf)
    return torch.where(empty, limit, numerator / torch.where(empty, 1.0, denominator))


def class_distances(counts: Tensor) -> Tensor:
    """Return the distance of each predicted class from the true one, ``[K, K]``, for classes in an order."""
    place = torch.arange(counts.shape[-1], dtype=counts.dtype, device=counts.device)
    return (place.unsqueeze(-1) - place).abs()
