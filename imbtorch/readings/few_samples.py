"""Warning of values at a prevalence that one error more would change far more than the same values of the counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from imbtorch.counts import rescaled_rows
from imbtorch.suggestions import first_names

__all__ = ["few_samples_text"]

FRAGILE = 0.1  # change by one error from which the first decimal of a value is chance


def few_samples_text(
    read: Callable[[Tensor], Tensor],
    names: Sequence[str],
    counts: Tensor,
    shares: Tensor,
    classes: Iterable[int],
    samples_text: Callable[[int, int], str],
) -> str:
    """Return a warning of the first class with too few samples for the prevalence; empty if there is none.

    Args:
        read: function of counts that returns values ``[V]``.
        names: names of the values.
        counts: float64 ``[..., K, K]``.
        shares: class shares of the population, ``[K]`` or ``[..., K]``.
        classes: classes to check.
        samples_text: function that tells the number of samples of a class, given the index of the value that an error
            changes most.
    """
    rates = rescaled_rows(counts, shares)
    plain, logged = read(counts), read(rates)
    for index in classes:
        moved = with_an_error(counts, rates, index)
        changes = (read(rescaled_rows(moved, shares)) - logged).abs() - (read(moved) - plain).abs()
        excess = changes.nan_to_num(nan=-1.0)
        fragile = [name for name, change in zip(names, excess.tolist(), strict=True) if change > FRAGILE]
        if fragile:
            most = int(excess.argmax())
            return (
                f"{samples_text(index, most)} are too few for this prevalence; one error more would change "
                f"{first_names(fragile)}, by up to {excess[most]:.2f} more than without prevalence; count more of "
                "them, or compare intervals instead of values"
            )
    return ""


def with_an_error(counts: Tensor, rates: Tensor, index: int) -> Tensor:
    """Move a right prediction of a class, if there is one, to the other class with the lowest positive share.

    Args:
        counts: float64 ``[..., K, K]``.
        rates: the counts at a prevalence.
        index: true class.

    >>> counts = torch.tensor([[5.0, 0.0], [1.0, 2.0]])
    >>> with_an_error(counts, counts, 0)
    tensor([[4., 1.],
            [1., 2.]])
    """
    predicted = rates.sum(-2)
    predicted = torch.where(predicted > 0, predicted, 2.0)  # after all that are predicted
    predicted[..., index] = 3.0
    moved, one = counts.clone(), (counts[..., index, index] > 0).to(counts)
    moved[..., index, index] -= one
    moved[..., index, :].scatter_add_(-1, predicted.argmin(-1, keepdim=True), one.unsqueeze(-1))
    return moved
