"""What an operating point must keep, as a user says it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from imbtorch.arguments import real_number
from imbtorch.choosing.promises import PROPORTIONS
from imbtorch.choosing.thresholds import Limit, Limits
from imbtorch.counts import Counts, matrix, ratio
from imbtorch.metrics.resolving import resolved
from imbtorch.tasks import Counting

__all__ = ["checked_limits", "priced_text"]


def checked_limits(at_least: Mapping[str, float], alerts: float | None, sure: float | None) -> Limits:
    """Floors of measures and a budget of alerts as what an operating point must keep.

    Raises:
        ValueError: for unknown measures, those of which less is better, limits out of range, and no limits to be sure
            of or one that cannot be promised.
        TypeError: for floors that are no mapping, and limits that are no numbers.
    """
    if not isinstance(at_least, Mapping):
        raise TypeError(f"at_least must be a dict of floors such as {{'recall': 0.8}}, got {at_least!r}")
    binary = Counting.of("binary")
    limits: dict[str, Limit] = {}
    for name, floor in at_least.items():
        measure = resolved("at_least", name, binary, batched=True)
        if measure.traits.reads_threshold:
            raise ValueError(priced_text("at_least", name))
        if not measure.higher_is_better:
            raise ValueError(f"at_least names {name!r}, of which less is better or nothing; choose another measure")
        bound = real_number(f"at_least[{name!r}]", floor)
        if math.isnan(bound):
            raise ValueError(f"at_least[{name!r}] must be a number such as 0.8, got {floor!r}")
        limits[name] = Limit(measure, bound, least=True)
    if alerts is not None:
        if not 0 < real_number("alerts", alerts) <= 1:
            raise ValueError(f"alerts must be a share of samples in (0, 1], got {alerts!r}; 50 in 10,000 are 0.005")
        limits["alerts"] = Limit(_alerts, float(alerts), least=False)
    if sure is not None:
        _check_promise(limits, sure)
    return limits


def priced_text(argument: str, name: str) -> str:
    """Say why a measure that is priced by the threshold cannot be compared between thresholds."""
    return (
        f"{argument} names {name}, which prices false alarms by the threshold itself, so that its values at two "
        "thresholds are not of one scale; sweep functools.partial(NetBenefit, threshold=0.2), whose price is that of "
        "0.2 throughout, or give best(costs=...)"
    )


def _check_promise(limits: Limits, sure: float) -> None:
    """Raise where no promise can be made of limits at this level."""
    if not 0 < real_number("sure", sure) < 1:
        raise ValueError(f"sure must be a probability in (0, 1) such as 0.9, got {sure!r}")
    if not limits:
        raise ValueError("sure is the level of a promise; give at_least={'recall': 0.8} or alerts=0.005 with it")
    for name in limits:
        if name not in PROPORTIONS:
            raise ValueError(
                f"sure= cannot promise {name!r}, which is no share of independent samples; it can promise "
                f"{', '.join(PROPORTIONS)}. Without sure=, holds of the result is the posterior probability"
            )


def _alerts(counts: Counts) -> Tensor:
    """Share of samples that are predicted positive."""
    wide = matrix(counts)
    return ratio(wide[..., 1].sum(-1), wide.sum((-2, -1)))
