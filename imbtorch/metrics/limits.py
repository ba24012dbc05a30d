"""What an operating point must keep, as a user says it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from imbtorch.analysis.thresholds import Limit, Limits
from imbtorch.counting import Counting
from imbtorch.counts import Counts, matrix, ratio
from imbtorch.metrics.resolving import resolved

__all__ = ["checked_limits"]


def checked_limits(at_least: Mapping[str, float], alerts: float | None, sure: float | None) -> Limits:
    """Floors of measures and a budget of alerts as what an operating point must keep.

    Raises:
        ValueError: for unknown measures, those of which less is better, limits out of range, and no limits to be sure
            of.
        TypeError: for floors that are no mapping.
    """
    if not isinstance(at_least, Mapping):
        raise TypeError(f"at_least must be a dict of floors such as {{'recall': 0.8}}, got {at_least!r}")
    binary = Counting.of("binary")
    limits: dict[str, Limit] = {}
    for name, floor in at_least.items():
        measure = resolved("at_least", name, binary, batched=True)
        if not measure.higher_is_better:
            raise ValueError(f"at_least names {name!r}, of which less is better or nothing; choose another measure")
        limits[name] = Limit(measure, float(floor), least=True)
    if alerts is not None:
        if not 0 < alerts <= 1:
            raise ValueError(f"alerts must be a share of samples in (0, 1], got {alerts!r}; 50 in 10,000 are 0.005")
        limits["alerts"] = Limit(_alerts, float(alerts), least=False)
    if sure is not None and not 0 < sure < 1:
        raise ValueError(f"sure must be a probability in (0, 1) such as 0.9, got {sure!r}")
    if sure is not None and not limits:
        raise ValueError("sure is how likely limits hold; give at_least={'recall': 0.8} or alerts=0.005 with it")
    return limits


def _alerts(counts: Counts) -> Tensor:
    """Share of samples that are predicted positive."""
    wide = matrix(counts)
    return ratio(wide[..., 1].sum(-1), wide.sum((-2, -1)))
