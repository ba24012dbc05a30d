"""Intervals of weighted counts, from the sums of weights and of squared weights in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imbtorch.counts import Measure, ratio
from imbtorch.intervals.draws import seeded
from imbtorch.intervals.intervals import Interval, posterior_of, values

OF_WEIGHTS, NO_SQUARES = "posterior of weights", "weights without their squares"  # methods


@dataclass(frozen=True, eq=False)
class OfEffective:
    """Measure of weighted counts as a function of effective numbers of samples, ``each`` of which has a weight."""

    unweighted: Measure
    each: Tensor
    needs_matrix: ClassVar[bool] = True  # since each cell has a weight of its own

    def __call__(self, counts: Tensor) -> Tensor:
        """Evaluate the weights of some numbers of samples."""
        return self.unweighted(counts * self.each)


def effective_counts(sums: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the effective number of samples in each cell, and the weight of each of these samples.

    Weights with the sum W and the sum of squares S are worth W^2 / S samples, each of the weight S / W (Kish). A cell
    of few rows shows too little of the spread of its weights. Its samples therefore weigh at least as much as those of
    its row or of its column, whichever is less, and so much more as the cell has few of them, if cells differ. Samples
    of an empty cell weigh as much as those of its row or of its column, whichever is more: a miss that was not seen
    weighs as much as other rows that are predicted negative.

    >>> effective_counts(torch.tensor([[6.0, 2.0], [0.0, 4.0]]), torch.tensor([[12.0, 4.0], [0.0, 8.0]]))
    (tensor([[3., 1.],
            [0., 2.]]), tensor([[2., 2.],
            [2., 2.]]))
    """
    held, own = sums > 0, ratio(squares, sums)
    of_row, of_column = (ratio(squares.sum(dim, keepdim=True), sums.sum(dim, keepdim=True)) for dim in (-1, -2))
    least, most = own.masked_fill(~held, torch.inf).amin((-1, -2), keepdim=True), own.amax((-1, -2), keepdim=True)
    seen = torch.maximum(own, torch.minimum(of_row, of_column))
    seen = seen * (1 + (1 - ratio(least, most)).clamp(min=0) * ratio(seen, sums))
    each = torch.where(held, seen, torch.maximum(of_row, of_column))
    each = torch.where(each > 0, each, 1.0)
    return torch.round(sums / each, decimals=8), each  # rounded, so that the unit of the weights changes no draw


def posterior_of_weights(
    measures: Mapping[str, Measure],
    sums: Tensor,
    squares: Tensor | None,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    event_dims: int = 2,
) -> dict[str, Interval]:
    """Compute posterior intervals of weighted counts; bounds are nan if the squares of the weights are unknown.

    Draws are those of the effective numbers of samples, and each sample counts as its weight. Equal weights therefore
    give the intervals of the unweighted counts. Sums and squares are ``[..., K, K]``, of labels ``[..., L, 2, 2]``.
    """
    if squares is None:
        found = {name: values(each, sums, event_dims) for name, each in measures.items()}
        bound = {name: torch.full_like(each, torch.nan) for name, each in found.items()}
        return {name: Interval(each, bound[name], bound[name], level, NO_SQUARES) for name, each in found.items()}
    counts, each = effective_counts(sums, squares)
    if not torch.allclose(each, each.flatten()[0], rtol=1e-9, atol=0):
        measures = {name: OfEffective(measure, each) for name, measure in measures.items()}
    source = seeded(counts.round(), level, generator)
    drawn = posterior_of(measures, counts, draws, level, source, event_dims=event_dims)
    return {name: replace(interval, method=OF_WEIGHTS) for name, interval in drawn.items()}
