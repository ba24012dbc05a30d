"""Ties of candidates: which are the best up to rounding, which of them to keep, and which no other beats."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

Ties: TypeAlias = Literal["latest", "earliest"]  # of tied candidates, the one to keep
TIES: tuple[Ties, ...] = ("latest", "earliest")
ROUNDING = 1e-12  # difference of values, and share of them, up to which they tie


def as_good_as_best(values: Tensor) -> Tensor:
    """Find the highest of values ``[..., M]``, up to rounding: several where they tie, never nan; M may be 0.

    >>> as_good_as_best(torch.tensor([0.3, torch.inf, torch.nan, torch.inf]))
    tensor([False,  True, False,  True])
    """
    numbers = values.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    highest = numbers.amax(-1, keepdim=True) if values.shape[-1] else numbers
    return torch.isclose(values, highest, rtol=ROUNDING, atol=ROUNDING)


def best_first(values: Tensor, ties: Ties) -> list[int]:
    """List the indices of the highest of values ``[M]``, the one to keep first; none if all are nan.

    >>> best_first(torch.tensor([0.9, 0.2, 0.9]), "latest"), best_first(torch.tensor([0.9, 0.2, 0.9]), "earliest")
    ([2, 0], [0, 2])
    """
    places: list[int] = as_good_as_best(values).nonzero().flatten().tolist()
    return places[::-1] if ties == "latest" else places


def index_to_keep(values: Tensor, ties: Ties) -> Tensor:
    """Find the index of the highest of ``[..., M]``, the latest or earliest of tied ones; 0 if all are nan.

    >>> index_to_keep(torch.tensor([[0.9, 0.2, 0.9], [0.1, 0.2, 0.1]]), "latest")
    tensor([2, 1])
    """
    ranks = torch.arange(values.shape[-1])
    return torch.where(as_good_as_best(values), ranks if ties == "latest" else ranks.flip(0), -1).argmax(-1)


def undominated(points: Tensor) -> Tensor:
    """Find the points that no other point dominates: none has both values as high and one of them higher.

    The weight of each class decides which of these points is best. A classifier that predicts everything positive is
    always among them, since no dominance is higher.

    Args:
        points: ``[M, 2]`` of dominance and G-mean (or another measure of which higher is better), or ``[M, D]`` of D
            such values.

    Returns:
        bool ``[M]``; points that are equal up to rounding share their fate, and a point with a nan value is False.

    Raises:
        ValueError: for another shape.

    Source: Garcia, Mollineda and Sanchez (2009), section 2.1.

    >>> undominated(torch.tensor([[0.0, 0.8], [0.1, 0.7], [-0.1, 0.7], [0.0, 0.8]]))
    tensor([ True,  True, False,  True])
    """
    if points.ndim != 2:
        raise ValueError(f"points must be [M, 2] of dominance and G-mean, got {list(points.shape)}")
    defined = ~points.isnan().any(-1)
    return defined & pareto_front(torch.where(defined.unsqueeze(-1), points, -torch.inf))


def pareto_front(values: Tensor) -> Tensor:
    """Find the candidates ``[M, D]`` that no other beats: as good in every value, up to rounding, and better in one.

    >>> pareto_front(torch.tensor([[0.9, 0.2], [0.2, 0.9], [0.2, 0.2], [torch.nan, 1.0]]))
    tensor([ True,  True, False,  True])
    """
    ranked = values.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    others = ranked.unsqueeze(1)  # [other, 1, D]
    tied = torch.isclose(others, ranked, rtol=ROUNDING, atol=ROUNDING)
    as_good, better = (others >= ranked) | tied, (others > ranked) & ~tied
    return ~(as_good.all(-1) & better.any(-1)).any(0)
