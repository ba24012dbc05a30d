"""Geometry of the accuracy-dominance space of two classes (Garcia, Mollineda and Sanchez 2009)."""

from __future__ import annotations

import torch
from torch import Tensor

from imbtorch import measures as formulas
from imbtorch.counts import Measure, check_square, double, evaluated, two_by_two
from imbtorch.plots.curves import class_totals


def greatest_gmean(dominance: Tensor) -> Tensor:
    """Compute the greatest G-mean that a classifier of this dominance can have, ``[...]``: sqrt(1 - abs(dominance)).

    >>> greatest_gmean(torch.tensor([0.0, -0.75]))
    tensor([1.0000, 0.5000])
    """
    return (1 - dominance.abs()).sqrt()


def equal_area_gmean(area: float, dominance: Tensor) -> Tensor:
    """Compute the G-mean ``[...]`` at which a classifier of this dominance spans a trapezium of a given area.

    >>> equal_area_gmean(1.0, torch.tensor([-1.0, 1.0]))
    tensor([1.0000, 0.5000])
    """
    return 2 * area / (dominance + 3)


def feasible(points: Tensor, rounding: float = 0.01) -> Tensor:
    """Find the points ``[..., 2]`` of dominance and G-mean at which a classifier can lie, bools ``[...]``.

    A point may lie above the greatest G-mean by ``rounding``, since printed values have two decimals.

    >>> feasible(torch.tensor([[-0.36, 0.94], [-0.36, 0.805]]))  # the first was printed in the paper
    tensor([False,  True])
    """
    return points[..., 1] <= greatest_gmean(points[..., 0]) + rounding


def largest_trapezium(points: Tensor, possible: Tensor | None = None) -> int | None:
    """Find the feasible point of ``[M, 2]`` with the largest trapezium; return its index, the first of tied ones.

    ``possible``, bools ``[M]``, says which are feasible; by default :func:`feasible` for G-mean. None without any.
    """
    inside = (feasible(points) if possible is None else possible) & ~points.isnan().any(-1)
    areas = points[:, 1] * (points[:, 0] + 3) / 2
    return int(torch.where(inside, areas, -torch.inf).argmax()) if bool(inside.any()) else None


def space_points(counts: Tensor, measure: Measure = formulas.geometric_mean) -> Tensor:
    """Compute dominance and the value of a measure, float64 ``[M, 2]``, of counts or rates ``[M, 2, 2]``.

    >>> from imbtorch import accuracy
    >>> space_points(torch.tensor([[[8, 2], [0, 5]]]), accuracy)
    tensor([[0.2000, 0.8667]], dtype=torch.float64)
    """
    if check_square(counts).ndim != 3 or counts.shape[-1] != 2:
        raise ValueError(
            f"counts must be [M, 2, 2], got {list(counts.shape)}; use one_vs_rest(counts) for more classes"
        )
    wide = double(counts).detach().cpu()
    return torch.stack((formulas.dominance(wide), evaluated(measure, wide)), -1)


def greatest_value(measure: Measure, dominance: Tensor, negatives: float, positives: float, steps: int = 101) -> Tensor:
    """Compute the greatest value ``[...]`` of a measure that a classifier of this dominance ``[...]`` can have.

    At each dominance, ``steps`` true negative rates are tried, from the smallest to the largest.

    >>> from imbtorch import accuracy
    >>> greatest_value(accuracy, torch.tensor([0.0, -0.5, 0.5]), negatives=3, positives=1)
    tensor([1.0000, 0.8750, 0.6250], dtype=torch.float64)
    """
    wide = double(dominance)
    least, most = (-wide).clamp(min=0), 1 - wide.clamp(min=0)
    part = torch.linspace(0, 1, steps, dtype=torch.float64)
    tnr = least.unsqueeze(-1) + (most - least).unsqueeze(-1) * part
    tpr = (tnr + wide.unsqueeze(-1)).clamp(0, 1)
    rates = two_by_two(tnr, 1 - tnr, 1 - tpr, tpr)
    totals = torch.tensor([[negatives], [positives]], dtype=torch.float64)
    return evaluated(measure, rates * totals).amax(-1)


def dominance_points(counts: Tensor) -> Tensor:
    """Compute dominance and G-mean at each threshold, ``[T, 2]`` of counts ``[T, 2, 2]``."""
    class_totals(counts)
    return space_points(counts)
