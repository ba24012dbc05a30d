"""Geometry of the accuracy-dominance space of two classes (Garcia, Mollineda and Sanchez 2009)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["equal_area_gmean", "feasible", "greatest_gmean", "largest_trapezium"]


def greatest_gmean(dominance: Tensor) -> Tensor:
    """Greatest G-mean that a classifier of this dominance can have, ``[...]``: sqrt(1 - abs(dominance)).

    >>> greatest_gmean(torch.tensor([0.0, -0.75]))
    tensor([1.0000, 0.5000])
    """
    return (1 - dominance.abs()).sqrt()


def equal_area_gmean(area: float, dominance: Tensor) -> Tensor:
    """G-mean ``[...]`` at which a classifier of this dominance spans a trapezium of so large an area.

    >>> equal_area_gmean(1.0, torch.tensor([-1.0, 1.0]))
    tensor([1.0000, 0.5000])
    """
    return 2 * area / (dominance + 3)


def feasible(points: Tensor, rounding: float = 0.01) -> Tensor:
    """Whether a classifier can lie at each point.

    Args:
        points: ``[..., 2]`` of dominance and G-mean.
        rounding: how far a point may lie above the greatest G-mean, for printed ones have two decimals.

    Returns:
        bool ``[...]``.

    >>> feasible(torch.tensor([[-0.36, 0.94], [-0.36, 0.805]]))  # the first was printed in the paper
    tensor([False,  True])
    """
    return points[..., 1] <= greatest_gmean(points[..., 0]) + rounding


def largest_trapezium(points: Tensor) -> int | None:
    """Index of the feasible point whose trapezium has the largest area; the first of equal ones, None without any.

    Args:
        points: ``[M, 2]`` of dominance and G-mean.

    >>> largest_trapezium(torch.tensor([[0.0, 0.9], [0.3, 0.8], [0.9, 0.9]]))
    0
    """
    inside = feasible(points)
    areas = points[:, 1] * (points[:, 0] + 3) / 2
    return int(torch.where(inside, areas, -torch.inf).argmax()) if bool(inside.any()) else None
