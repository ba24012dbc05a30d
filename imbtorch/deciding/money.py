"""Alerts by the costs of each row: one offset of the rows' own cost ratios, and what its alerts cost."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from imbtorch.counting.arguments import real_number
from imbtorch.counts import check_choice
from imbtorch.deciding.costs import NAMES
from imbtorch.deciding.points import NUMBER, as_json, as_number
from imbtorch.reports.files import digest_of
from imbtorch.reports.opened import fits
from imbtorch.tables import replace_file, wrapped
from imbtorch.version import __version__

FORMAT, SCHEMA = "imbtorch point of row costs", 1  # of files
FOLDS, LARGEST, FAR = 10, 10, 10  # held-out parts; positives whose share is printed; ratio of medians that is noted
NUMBERS = {str: NUMBER}
FORM: dict[str, Any] = {"offset": float, "costs": {str: (float, str)}, "scores": str, "logits": bool}
FORM |= {"medians": NUMBERS, "values": NUMBERS}


@dataclass(frozen=True, eq=False)
class Ledger:
    """Rows with costs of their own, each field ``[N]``: log-odds, whether positive, costs, and the id of a cluster."""

    odds: Tensor
    positive: Tensor
    miss: Tensor
    false_alarm: Tensor
    investigation: Tensor
    cluster: Tensor

    @cached_property
    def relative(self) -> Tensor:
        """Log-odds minus the log of the cost ratio: -inf if never flagged, as any score of 0, and inf if always."""
        paid, gain = self.investigation + self.false_alarm, self.miss - self.investigation
        found = torch.where(gain > 0, self.odds - paid.log() + gain.log(), -math.inf)
        return found.nan_to_num(-math.inf, math.inf, -math.inf)

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """Costs of each row if it is flagged, and if it is not."""
        return self.investigation + self.false_alarm * ~self.positive, self.miss * self.positive

    def cheapest(self, kept: Tensor | slice = slice(None)) -> float:
        """Return the offset with the lowest costs of some rows; of equal costs the one with the fewest alerts."""
        values, order = self.relative[kept].sort(descending=True, stable=True)
        added = (self.sides[0] - self.sides[1])[kept][order][values.isfinite()]
        values = values[values.isfinite()]  # the others are flagged always, or never
        if not len(values):
            return 0.0
        total = torch.cat((added.new_zeros(1), added.cumsum(0)))  # costs of flagging the first rows
        total[1:-1][values[:-1] == values[1:]] = math.inf
        place = int((total <= total.min() + 1e-12 * (self.sides[0] + self.sides[1]).sum()).int().argmax())
        return float(torch.cat((values[:1] + 2, values, values[-1:] - 2))[place : place + 2].mean())

    def held_out(self) -> float:
        """Return the costs of all rows, each at the offset that the other tenths, of whole clusters, choose."""
        ids = torch.unique(self.cluster, return_inverse=True)[1]
        tenth = torch.randperm(int(ids.max()) + 1, generator=torch.Generator().manual_seed(0))[ids] % FOLDS
        offsets = torch.tensor([self.cheapest(tenth != part) for part in range(FOLDS)], dtype=torch.float64)
        return float(torch.where(self.relative > offsets[tenth], *self.sides).sum())

    def at(self, offset: float) -> dict[str, float]:
        """Return what the alerts at an offset cost, and what that is compared with."""
        flagged, missed = self.relative > offset, self.miss[self.positive]
        found = flagged[self.positive]
        sums = {
            "cost": torch.where(flagged, *self.sides),
            "no_alerts": missed,
            "all_alerts": self.sides[0],
            "foresight": torch.minimum(*self.sides),
            "alerts": flagged,
            "never": self.miss <= self.investigation,
        }
        largest = missed.topk(min(LARGEST, len(missed))).values
        shares = {"recall": found.double().mean(), "recall_of_miss": missed[found].sum() / missed.sum()}
        shares |= {"largest": largest.sum() / missed.sum()}
        return {name: each.sum().item() for name, each in (sums | shares).items()} | {"rows": len(flagged)}


@dataclass(frozen=True, eq=False)
class CostPoint:
    """Offset by which rows with costs of their own are flagged. :meth:`imbtorch.Predictions.thresholds` finds it.

    A row is flagged if ``ln(s / (1 - s)) > offset + ln((investigation + false_alarm) / (miss - investigation))``, and
    never if its miss costs no more than its investigation. All costs must be known when you decide.

    Attributes:
        offset: log-odds that are added to those of each row's own cost ratio.
        costs: ``"miss"``, ``"false_alarm"``, ``"investigation"`` -> a number, or the name of a column.
        scores: name of the column of scores.
        logits: whether scores are logits.
        medians: column of costs -> its median, on the rows that chose the offset.
        values: what the alerts cost on these rows, by name; ``"held_out"`` at offsets that other tenths chose.

    >>> costs = {"miss": "amount", "false_alarm": 0, "investigation": 4}
    >>> CostPoint(0.0, costs, "s", logits=False, medians={}, values={}).sql
    '"s" * ("amount" - 4) > 1.0 * (1 - "s") * 4'
    """

    offset: float
    costs: Mapping[str, float | str]
    scores: str
    logits: bool
    medians: Mapping[str, float]
    values: Mapping[str, float]

    @property
    def sql(self) -> str:
        """Condition that is true for the rows to flag; it has no logarithms, which scores of 0 and 1 lack."""

        def term(given: float | str) -> str:
            return f"{given:.15g}" if isinstance(given, (int, float)) else '"' + given.replace('"', '""') + '"'

        miss, alarm, look, score = map(term, (*(self.costs[name] for name in NAMES), self.scores))
        paid = f"({look} + {alarm})" if look != "0" != alarm else look if alarm == "0" else alarm
        odds = f"EXP({score} - {self.offset!r})" if self.logits else score
        paid = paid if self.logits else f"{math.exp(self.offset)!r} * (1 - {score}) * {paid}"
        return f"{odds} * ({miss} - {look}) > {paid}"

    @property
    def numpy(self) -> str:
        """The same for NumPy, where ``rows`` is a frame or a mapping of columns."""
        return re.sub('("[^"]*")', r"rows[\1]", self.sql).replace("EXP(", "np.exp(")

    def notes(self, ledger: Ledger, medians: Mapping[str, float]) -> list[str]:
        """Return what the alerts cost on other rows, and which columns may have another unit there."""
        notes = [money_text(ledger.at(self.offset), self.costs["miss"])]
        for name, median in medians.items():
            low, high = sorted((median, self.medians[name]))
            text = f"the median of {name} is {median:g}; where the offset was chosen, it was {self.medians[name]:g}"
            notes += [f"{text}: other units?"] * (high > FAR * low)
        return notes

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write the point to a JSON file, which :func:`imbtorch.open_result` opens.

        Args:
            path: path of the file, which is overwritten.
        """
        data = as_json({"format": FORMAT, "schema": SCHEMA, "imbtorch": __version__} | vars(self))
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}, indent=1, allow_nan=False).encode())

    def __str__(self) -> str:
        """Return what the alerts cost, and the rule."""
        told = wrapped(f"offset {self.offset:.6g}: {money_text(self.values, self.costs['miss'])}")
        return f"{told}\nflagged, with costs that are known when you decide:\nSQL: {self.sql}\nNumPy: {self.numpy}"


def cost_point_of(data: Mapping[str, Any]) -> CostPoint:
    """Make a point of the contents of a file; raise for those that no point has."""
    given = {name: data[name] for name in FORM}
    if not fits(given, FORM) or {*given["costs"]} != {*NAMES}:
        raise ValueError("a point of row costs has an offset, its costs by name, and what its alerts cost")
    return CostPoint(**given | {"values": {name: as_number(each) for name, each in given["values"].items()}})


def row_costs(costs: Any, others: Mapping[str, Any]) -> dict[str, float | str]:
    """Return all costs of rows by name; raise for those that are none, and for other arguments that are given."""
    if not isinstance(costs, Mapping) or "miss" not in costs:
        example = "{'miss': 'amount', 'investigation': 4}"
        raise ValueError(f"costs must name that of a miss if there is no measure, as in {example}, got {costs!r}")
    for name in costs:
        check_choice("costs", name, NAMES)
    wrong = [name for name, each in others.items() if each is not None]
    if wrong:
        raise ValueError(f"costs of rows take no {wrong[0]}: each row counts by its own costs; leave {wrong[0]} out")
    found = {name: costs.get(name, 0) for name in NAMES}
    found = {k: each if isinstance(each, str) else real_number(f"costs[{k!r}]", each) for k, each in found.items()}
    for name, each in found.items():
        if not isinstance(each, str) and not 0 <= each < math.inf:
            raise ValueError(f"costs[{name!r}] must be finite and not negative, or name a column, got {each:g}")
    return found


def money_text(values: Mapping[str, float], miss: float | str) -> str:
    """Return what alerts cost as a sentence; ``miss`` is a number or the name of its column."""
    told = {name: f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for name, each in values.items()}
    base = min(("no_alerts", "all_alerts"), key=values.__getitem__)
    percent = f"{abs(values['cost'] / values[base] - 1):.0%} " if values[base] else ""
    percent += "more than" if values["cost"] > values[base] else "less than"
    beside = "without alerts" if base == "no_alerts" else "with all alerts"
    parts = [f"costs {told['cost']}, {percent} {beside} ({told[base]})"]
    parts += [
        f"{told[each]} in held-out tenths, which did not choose the offset" for each in told if each == "held_out"
    ]
    parts += [f"perfect foresight {told['foresight']}", f"{values['alerts']:,} alerts in {values['rows']:,} rows"]
    parts += [f"recall {values['recall']:.3f}"]
    if isinstance(miss, str) and values["no_alerts"]:
        parts += [f"recall of {miss} {values['recall_of_miss']:.3f}"]
        parts += [f"the {LARGEST} largest positives hold {values['largest']:.0%} of {miss}"]
    if values["never"]:
        parts += [f"{values['never']:,} rows are never flagged: their miss costs no more than their investigation"]
    return "; ".join(parts)
