"""Plans for several looks at growing samples, whose errors together stay below that of one look."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.arguments import whole_number
from imbtorch.intervals.draws import normal_quantile
from imbtorch.intervals.intervals import Interval, clamped
from imbtorch.tables import replace_file

POINTS, REACH = 400, 8.0  # nodes of the numerical integration, and standard deviations that it covers
DRAWN = 0.99  # level whose bounds draws can tell
GROWTH = 1.001  # least growth of information between two looks


def quantile_of_look(
    level: float, looks: int | None, look: int | None, information: Sequence[float] | None = None
) -> float:
    r"""Compute how many standard deviations a bound is away at one of several planned looks at growing samples.

    Whoever looks several times and stops once a bound lies above a margin errs more often than a level says. Here the
    errors at all looks together stay at that of one look (one side of ``level``): of the error :math:`\alpha`, a share
    of :math:`2 - 2 \Phi(z_{\alpha / 2} / \sqrt t)` is spent up to the share t = look / looks of the plan, which is
    little at early looks (O'Brien and Fleming). The values at two looks correlate by the root of the ratio of their
    information, the inverse variance of the difference.

    Args:
        level: nominal coverage of the interval at a single look, in (0, 1).
        looks: number of planned looks.
        look: this look, from 1.
        information: information at each look up to this one; by default it grows by the same amount at each look.

    Raises:
        ValueError: for a look without a plan, one beyond it, and information that is not positive.

    Source: Lan and DeMets (1983), Discrete sequential boundaries for clinical trials; Lan and DeMets (1989), Changing
    frequency of interim analysis in sequential monitoring, for looks that are planned by time.

    >>> [round(quantile_of_look(0.95, 5, look), 2) for look in (1, 2, 3, 4, 5)]  # 1.96 for one look
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    if looks is None or look is None:
        raise ValueError("looks and look belong together: the number of planned looks, and which of them this is")
    if not 1 <= whole_number("look", look) <= whole_number("looks", looks):
        raise ValueError(f"look must be 1 to looks={looks}, got {look}")
    error = (1 - level) / 2
    found = torch.tensor(information if information is not None else range(1, look + 1), dtype=torch.float64)
    if len(found) != look or not bool((found > 0).all()):
        raise ValueError(f"information must be positive at each of {look} looks, got {found.tolist()}")
    for later in range(1, look):
        found[later] = torch.maximum(found[later], GROWTH * found[later - 1])
    return _bound(found / found[-1], [_spent(error, each / looks) for each in range(look + 1)])


def _spent(error: float, share: float) -> float:
    """Compute the error that is spent up to a share of the plan."""
    if share == 0:
        return 0.0
    z = torch.special.ndtri(torch.tensor(error / 2, dtype=torch.float64)) / math.sqrt(share)
    return 2 * float(torch.special.ndtr(z))


def _bound(times: Tensor, spent: Sequence[float]) -> float:
    """Compute z of the bound at the last of several times, by recursive numerical integration.

    The density of a Brownian motion that crossed no earlier bound is kept at the nodes of a Gauss-Legendre rule.
    """
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(POINTS))
    place, mass, before = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64), 0.0
    bound = math.inf
    for time, part in zip(times.tolist(), np.diff(spent), strict=True):
        step, reach = math.sqrt(time - before), REACH * math.sqrt(time)
        low, high = -reach, 2 * reach
        for _ in range(80):  # the mass beyond falls with the bound
            middle = (low + high) / 2
            beyond = float(mass @ torch.special.ndtr((place - middle) / step))
            low, high = (middle, high) if beyond > part else (low, middle)
        bound = high / math.sqrt(time)
        half = (min(high, reach) + reach) / 2
        new = half * (nodes + 1) - reach
        density = torch.exp(-(((new.unsqueeze(-1) - place) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        place, mass, before = new, half * weights * (density @ mass), time
    return bound


def at_look(found: Interval, quantile: float, text: str, ends: tuple[float, float]) -> Interval:
    """Return an interval of :func:`level_to_draw` at a look: farther tails than draws tell are taken as normal.

    Bounds do not exceed ``ends``, between which differences lie.
    """
    times = max(quantile / normal_quantile(found.level), 1)
    low, high = (found.estimate + times * (bound - found.estimate) for bound in (found.low, found.high))
    found = replace(found, low=low, high=high, level=_level(quantile), method=f"{found.method}, {text}")
    return clamped(found, *ends)


def level_to_draw(quantile: float) -> float:
    """Return the level of the interval to compute by draws."""
    return min(_level(quantile), DRAWN)


def _level(quantile: float) -> float:
    return math.erf(quantile / math.sqrt(2))


def digest(*parts: str) -> str:
    """Compute a short text that tells samples apart, from what was printed of them."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class LooksFile:
    """File of a plan of looks: what all looks share, and samples, information, bound, verdict and digest of each.

    Args:
        path: JSON file; a first look makes it.
        plan: settings that all looks share.
    """

    def __init__(self, path: str, plan: dict[str, Any]) -> None:
        self.path, self.plan = Path(path), plan
        self.seen: list[dict[str, Any]] = []
        if self.path.exists():
            held: Any = None
            with suppress(ValueError):
                held = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(held, dict) or held.keys() != {"plan", "looks"}:
                raise ValueError(f"{path} is no file that records looks")
            for name in {**held["plan"], **plan}:
                if held["plan"].get(name) != plan.get(name):
                    raise ValueError(f"{path} plans {name}={held['plan'].get(name)}, got {plan.get(name)}")
            self.seen = held["looks"]

    def check(self, look: int, samples: int, of_data: str) -> None:
        """Refuse a look that is not the next one, or that sees nothing new."""
        following = len(self.seen) + 1
        if look != following:
            raise ValueError(f"{self.path} holds {len(self.seen)} looks, so the next is look {following}, got {look}")
        if self.seen and (self.seen[-1]["digest"] == of_data or self.seen[-1]["samples"] >= samples):
            last = self.seen[-1]["samples"]
            raise ValueError(f"look {look} must see more samples than the {last} of look {look - 1}, got {samples}")

    def add(self, **found: Any) -> None:
        """Add a look, and write the file."""
        self.seen.append(found)
        text = json.dumps({"plan": self.plan, "looks": self.seen}, indent=1)
        replace_file(self.path, f"{text}\n".encode())
