"""Measures of one classifier in populations with other shares of positives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counts import Measure, at_prevalence, check_square, evaluated


def prevalence_curves(
    measures: Mapping[str, Measure], counts: Tensor, *, span: tuple[float, float] = (1e-4, 0.5), steps: int = 121
) -> PrevalenceCurves:
    """Compute measures of one classifier over the share of positives.

    The recall of each class stays as counted, on the assumption that the samples of each class are alike in all
    populations.

    Args:
        measures: name -> function of ``[..., 2, 2]`` counts with a value ``[...]``.
        counts: ``[2, 2]`` counts or rates; class 1 is positive.
        span: least and greatest share of positives, within (0, 1); widened to include the share in the counts.
        steps: number of shares T, at least 2, in a geometric sequence.

    Returns:
        :class:`PrevalenceCurves`.

    Raises:
        ValueError: for counts that are not ``[2, 2]`` or lack a class, for a span or a number of steps out of range,
            and for a measure that does not return one value for each matrix.

    >>> from imbtorch import precision
    >>> curves = prevalence_curves({"PPV": lambda c: precision(c, "binary")}, torch.tensor([[9, 1], [0, 10]]), steps=2)
    >>> curves.values["PPV"]  # 0.5 / (0.5 + 0.05) of as many positives as negatives
    tensor([0.0010, 0.9091], dtype=torch.float64)
    """
    if check_square(counts).shape != (2, 2):
        raise ValueError(
            f"counts must be one matrix [2, 2], got {list(counts.shape)}; take a class out of one_vs_rest(counts)"
        )
    wide = counts.detach().cpu().double()
    negatives, positives = wide.sum(-1).tolist()
    if not (negatives > 0 and positives > 0):
        raise ValueError(f"counts must hold targets of both classes, got {negatives:g} and {positives:g}")
    if not 0 < span[0] < span[1] < 1 or steps < 2:
        raise ValueError(f"span must hold two shares rising within (0, 1) and steps be 2 or more, got {span}, {steps}")
    counted = positives / (negatives + positives)
    low, high = min(span[0], counted), max(span[1], counted)
    shares = torch.logspace(math.log10(low), math.log10(high), steps, dtype=torch.float64)
    rates = at_prevalence(wide, torch.stack((1 - shares, shares), -1))
    assert isinstance(rates, Tensor)
    return PrevalenceCurves(
        shares, {name: evaluated(measure, rates, name) for name, measure in measures.items()}, counted
    )


@dataclass(frozen=True, eq=False)
class PrevalenceCurves:
    """Values of measures over the share of positives; :func:`prevalence_curves` computes them.

    Attributes:
        shares: ``[T]`` shares of positives, rising.
        values: name of a measure -> ``[T]``.
        counted: share of positives in the counts.

    >>> curves = PrevalenceCurves(torch.tensor([0.1, 0.5]), {"recall": torch.tensor([0.8, 0.8])}, 0.5)
    >>> curves.constant
    ('recall',)
    """

    shares: Tensor
    values: Mapping[str, Tensor]
    counted: float

    @property
    def constant(self) -> tuple[str, ...]:
        """Measures that are the same at all shares of positives, since they depend on the two recalls alone."""
        return tuple(name for name, value in self.values.items() if bool(value.max() - value.min() < 1e-9))
