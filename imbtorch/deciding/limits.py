"""Constraints on an operating point: floors of measures, a budget of alerts, and promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from imbtorch.counting.arguments import real_number
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, matrix, ratio
from imbtorch.deciding.thresholds import PROPORTIONS, Limit, Limits
from imbtorch.measures.named import AveragedMeasure, Measured, resolved
from imbtorch.measures.traits import short_name


def checked_limits(at_least: Mapping[str, float], alerts: float | None) -> Limits:
    """Check the constraints on an operating point, floors of measures and a budget of alerts."""
    limits = checked_floors(at_least, partial(of_binary_counts, "at_least"))
    if alerts is not None:
        if not 0 < real_number("alerts", alerts) <= 1:
            raise ValueError(
                f"alerts must be a share of samples in (0, 1], got {alerts!r}; 150 of 5,000 rows a day is 0.03"
            )
        limits["alerts"] = Limit(alert_rate, float(alerts), least=False)
    return limits


def checked_floors(at_least: Mapping[str, float], measure_of: Callable[[str], AveragedMeasure]) -> dict[str, Limit]:
    """Check floors, name of a value -> least value, of measures that ``measure_of`` finds by name."""
    if not isinstance(at_least, Mapping):
        raise TypeError(f"at_least must be a dict of floors such as {{'recall': 0.8}}, got {at_least!r}")
    limits: dict[str, Limit] = {}
    for given, floor in at_least.items():
        name, measure = short_name(given), measure_of(given)
        if name in limits:
            raise ValueError(f"at_least must not name a measure twice, got {list(at_least)}")
        if not measure.higher_is_better:
            raise ValueError(f"at_least names {name!r}, but higher values of it are not better; choose another measure")
        bound = real_number(f"at_least[{name!r}]", floor)
        if math.isnan(bound):
            raise ValueError(f"at_least[{name!r}] must be a number such as 0.8, got {floor!r}")
        highest = measure.traits.value_range[1]
        high = math.inf if highest is None else highest
        if bound > high:
            percent = f"; {bound:g}% is {bound / 100:g}" if high == 1 and bound <= 100 else ""
            raise ValueError(f"at_least[{name!r}] is {floor!r}, but {name} is at most {high:g}{percent}")
        limits[name] = Limit(measure, bound, least=True)
    return limits


def of_binary_counts(argument: str, measured: Measured) -> AveragedMeasure:
    """Resolve a measure of the counts at each threshold; raise for one that prices errors by the threshold itself."""
    found = resolved(argument, measured, Counting.of("binary"), batched=True)
    if found.traits.reads_threshold:
        raise ValueError(
            f"{argument} names {found.name}, which prices false alarms by the threshold itself, so that its values at "
            "different thresholds cannot be compared; sweep functools.partial(imbtorch.net_benefit, threshold=0.2), "
            "which keeps the price at 0.2, or use best(costs=...)"
        )
    return found


def at_observed_odds(limits: Limits, actual: Tensor, shares: Tensor) -> Limits:
    """Return limits on counted samples that hold if and only if the given ones hold at other class shares.

    ``actual`` and ``shares`` are ``[2]`` of negatives and positives. Limits that depend on the shares in another way
    than precision and NPV do are errors.

    >>> import torch
    >>> floors = checked_limits({"precision": 0.02}, None)
    >>> converted = at_observed_odds(floors, torch.tensor([90, 10]), torch.tensor([0.99, 0.01]))
    >>> round(converted["precision"].bound, 3)
    0.183
    """
    (negatives, positives), (others, share) = actual.double().tolist(), shares.double().tolist()
    if not min(negatives, positives, others, share):
        return limits
    odds = positives / negatives / (share / others)
    converted = {}
    for name, limit in limits.items():
        if name not in ("precision", "npv", "recall", "specificity"):
            raise ValueError(
                f"sure= cannot promise {name!r} at the prevalence, because it depends on the number of samples of each "
                "class; limit recall, specificity, precision or npv, or sweep without prevalence="
            )
        ratio_of_odds = {"precision": odds, "npv": 1 / odds}.get(name, 1.0)
        scaled = limit.bound * ratio_of_odds
        converted[name] = limit._replace(bound=scaled / (scaled + 1 - limit.bound))
    return converted


def check_promise(limits: Limits, sure: float) -> None:
    """Raise if the limits cannot be promised with this probability."""
    if not 0.5 <= real_number("sure", sure) < 1:
        raise ValueError(f"sure must be a probability in [0.5, 1) such as 0.9, got {sure!r}")
    if not limits:
        raise ValueError("sure is the probability that limits hold; add at_least={'recall': 0.8} or alerts=0.005")
    for name in limits:
        if name not in PROPORTIONS:
            raise ValueError(
                f"sure= cannot promise {name!r}, which is not a share of independent samples; it can promise "
                f"{', '.join(PROPORTIONS)}. Without sure=, the result's .holds is the posterior probability"
            )


def alert_rate(counts: Counts) -> Tensor:
    """Return the share of samples that are predicted positive."""
    wide = matrix(counts)
    return ratio(wide[..., 1].sum(-1), wide.sum((-2, -1)))
