"""Costs of decisions: of a miss, a false alarm and an investigation, as a matrix and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from imbtorch.counting.arguments import real_number
from imbtorch.counts import check_choice
from imbtorch.measures import expected_cost

Costs: TypeAlias = Mapping[str, float] | Tensor | Sequence[Sequence[float]]
NAMES = ("miss", "false_alarm", "investigation")
BESIDE = {"chosen": "a sample", "half": "at 0.5", "no_alarm": "without alarms", "all_alarms": "with all alarms"}
PRICES = ("true_negative", "false_alarm", "miss", "hit", *BESIDE)
FORMS = "{'miss': 10, 'false_alarm': 1, 'investigation': 0} or [[0, false_alarm], [miss, 0]]"


def checked_costs(costs: Costs | None) -> Tensor | None:
    """Fold costs into a matrix, float64 ``[2, 2]`` on the CPU: rows true, columns predicted; None stays None.

    An investigation is paid for each flagged sample, right or wrong; names that are left out cost 0.

    >>> checked_costs({"miss": 10, "false_alarm": 1, "investigation": 2})
    tensor([[ 0.,  3.],
            [10.,  2.]], dtype=torch.float64)
    """
    if costs is None:
        return None
    if isinstance(costs, Mapping):
        for name in costs:
            check_choice("costs", name, NAMES)
        miss, alarm, flagged = (real_number(f"costs[{name!r}]", costs.get(name, 0)) for name in NAMES)
        costs = [[0.0, alarm + flagged], [miss, flagged]]
    try:
        given = torch.as_tensor(costs, dtype=torch.float64, device="cpu").clone()
    except (TypeError, ValueError) as error:
        raise TypeError(f"costs must be {FORMS}, got {costs!r}") from error
    if given.shape != (2, 2) or not given.any():
        got = f"shape {list(given.shape)}" if given.shape != (2, 2) else "zeros alone"
        raise ValueError(f"costs must be {FORMS}, got {got}")
    expected_cost(torch.ones(2, 2, dtype=torch.float64, device="cpu"), costs=given)  # raises for those not finite
    return given


def prices(costs: Tensor, chosen: Tensor, half: Tensor) -> dict[str, float]:
    """Return the costs of single samples, and the costs a sample at a threshold, at 0.5, without alarms and with all.

    ``chosen`` and ``half`` are ``[2, 2]`` counts or rates at the threshold and at 0.5.
    """
    actual, none = chosen.sum(-1), torch.zeros(2, dtype=chosen.dtype, device="cpu")
    ways = torch.stack((chosen, half, torch.stack((actual, none), -1), torch.stack((none, actual), -1)))
    every = [*costs.flatten().tolist(), *expected_cost(ways, costs).tolist()]
    return dict(zip(PRICES, every, strict=True))


def price_text(costs: Mapping[str, float], counts: Tensor) -> str:
    """Return the costs of an operating point as text, with a note if they may be swapped; empty without costs."""
    if not costs:
        return ""
    rest = "".join(f", a {name.replace('_', ' ')} {costs[name]:g}" for name in ("hit", "true_negative") if costs[name])
    beside = ", ".join(f"{costs[name]:.3g} {text}" for name, text in BESIDE.items())
    excess = costs["false_alarm"] - costs["true_negative"], costs["miss"] - costs["hit"]
    swapped = swapped_text(*excess, counts)
    of_errors = f"a miss costs {costs['miss']:g}, a false alarm {costs['false_alarm']:g}{rest}"
    return f"; {of_errors}: {beside}" + (f"; {swapped}" if swapped else "")


def swapped_text(false_alarm: float, miss: float, counts: Tensor) -> str:
    """Return a note if errors of the more frequent class cost more, given counts ``[2]`` or ``[2, 2]``; else empty."""
    rarer = bool(counts[1].sum() < counts[0].sum())
    text = "a false alarm costs more than a miss, although positives are rarer: check that costs are not swapped"
    return text if rarer and false_alarm > miss else ""
