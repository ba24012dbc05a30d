"""Operating points: thresholds with their values, which JSON files hold for programs that decide by them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import evaluated
from imbtorch.deciding.costs import PRICES, price_text
from imbtorch.deciding.limits import checked_limits
from imbtorch.intervals.intervals import Interval
from imbtorch.reports.files import digest_of
from imbtorch.reports.opened import fits
from imbtorch.tables import replace_file, wrapped
from imbtorch.version import __version__

FORMAT = "imbtorch operating point"
SCHEMA = 1  # version of the files
PLAIN = ("measure", "threshold", "log_odds", "logits", "value", "recall", "precision", "alerts", "sure")
ENDS = ("estimate", "low", "high", "level")


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """A threshold with its value, counts and rates. :meth:`imbtorch.ThresholdSweep.best` finds it.

    Attributes:
        threshold: probability strictly above which 1 is predicted; above a logit of 36.7 it is 1 in float64.
        value: value of the measure that was swept; it looks better than it is, see :attr:`corrected`. Nan without
            positives.
        counts: ``[2, 2]`` as counted.
        recall: share of the positives that are predicted positive.
        precision: share of positives among positive predictions, nan without any; at ``prevalence`` if there is one.
        alerts: share of samples predicted positive; at ``prevalence`` if there is one.
        holds: name of each constraint -> posterior probability that it holds at this threshold. For constraints other
            than recall it ignores that the threshold was chosen, and is much too high if the constraint is hard to
            satisfy.
        sure: level of the guarantee that all constraints hold, None without a guarantee: a false guarantee is given in
            at most ``1 - sure`` of validation sets. It is not the probability that this guarantee is true.
        logits: whether the scores were logits; None if it is unknown.
        log_odds: log-odds of the threshold; None if they are those of the probability.
        measure: name of the measure that was swept.
        limits: name of each constraint -> its bound, least or (of alerts) greatest.
        costs: cost of a ``miss``, ``false_alarm``, ``hit`` and ``true_negative``, and the costs a sample at the
            ``chosen`` threshold, at 0.5 (``half``), with ``no_alarm`` and with ``all_alarms``; empty without costs.
        correct: function that computes :attr:`corrected`; None if it is unknown.

    >>> point = OperatingPoint(0.3, 0.8, torch.tensor([[90, 10], [1, 9]]), 0.9, 9 / 19, 19 / 110, {"recall": 0.86})
    >>> print(point)
    threshold 0.3: value 0.800, recall 0.900, precision 0.474, alerts 0.173; limit of recall holds with
      probability 0.86
    """

    threshold: float
    value: float
    counts: Tensor
    recall: float
    precision: float
    alerts: float
    holds: Mapping[str, float]
    sure: float | None = None
    logits: bool | None = None
    log_odds: float | None = None
    measure: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict, init=False)
    correct: Callable[[], Interval] | None = field(default=None, repr=False)
    _advice = staticmethod(str)  # text about the rule of the sweep, which DecidingSweep replaces
    class_axis = 0  # that of the rule
    weighted = False  # whether values and counts are of the weight of samples, not of their number
    scores = ""  # column of the scores that chose it, of saved predictions

    @cached_property
    def corrected(self) -> Interval | None:
        """Value to expect on new samples, corrected for the choice of the threshold; None for weighted samples."""
        return None if self.correct is None else self.correct()

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write the point to a JSON file, which :func:`imbtorch.open_result` opens, with its corrected value.

        Args:
            path: path of the file, which is overwritten.
        """
        found = self.corrected
        data: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA, "imbtorch": __version__}
        data |= {name: getattr(self, name) for name in PLAIN}
        data |= {"limits": dict(self.limits), "holds": dict(self.holds), "counts": self.counts.tolist()}
        data |= {"costs": dict(self.costs)} if self.costs else {}  # which 0.7 knows not
        data |= {"weighted": self.weighted, "scores": self.scores}
        data["corrected"] = found and {name: float(getattr(found, name)) for name in ENDS} | {"method": found.method}
        data = as_json(data)
        replace_file(path, json.dumps(data | {"sha256": digest_of(data)}, indent=1, allow_nan=False).encode())

    def checked_for(self, logits: bool) -> float:
        """Return the threshold for scores; raise if it was chosen for the other kind, or is rounded to 0 or 1."""
        check_kind(self.logits, logits)
        text = threshold_text(self.threshold, self.log_odds)
        if "logit" in text:
            raise ValueError(
                f"threshold {text} is rounded as a probability; decide by a rule instead, "
                "Threshold(log_odds=point.log_odds, logits=True)"
            )
        return self.threshold

    def notes_on(self, counts: Tensor) -> list[str]:
        """Say whether rows with these counts ``[2, 2]`` keep the limits, and whether they probably chose the point."""
        floors, notes = {name: each for name, each in self.limits.items() if name != "alerts"}, []
        for name, limit in checked_limits(floors, self.limits.get("alerts")).items():
            value, kept = evaluated(limit.measure, counts).item(), bool(limit.kept(counts))
            side = "which keeps" if kept else "below" if limit.least else "above"
            notes.append(f"{name} {value:.4g}, {side} the limit of {limit.bound:.4g}")
        if notes and self.sure is not None:
            notes[-1] += f" ({self._promise})"
        if torch.equal(counts.double(), self.counts.double()):
            corrected = "" if self.corrected is None else f"; corrected: {self.corrected}"
            notes.append(f"probably chosen on these rows, so that {self.measure} is too high on average{corrected}")
        return notes

    @property
    def _promise(self) -> str:
        """Text of the guarantee; empty without one."""
        new = f"new samples like the {self.counts.sum():g} that chose it"
        return "" if self.sure is None else f"promised at sure={self.sure:g} for {new}"

    def __str__(self) -> str:
        """Return one sentence, which says how the rule of the sweep takes the threshold if it has another one."""
        flags = {0.0: ", which flags nobody", 1.0: ", which flags everybody"}.get(self.alerts, "")
        held = "".join(f"; limit of {name} holds with probability {chance:.2f}" for name, chance in self.holds.items())
        sure = f"; {self._promise}" if self._promise else ""
        sure += "; weighted, so that all are shares of the weight, not of the rows" * self.weighted
        values = f"value {self.value:.3f}, recall {self.recall:.3f}, precision {self.precision:.3f}"
        values = values if bool(self.counts[1].any()) else "value, recall and precision undefined without positives"
        return wrapped(
            f"threshold {threshold_text(self.threshold, self.log_odds)}{flags}: {values}, alerts "
            f"{self.alerts:.3g}{price_text(self.costs, self.counts)}{held}{sure}{self._advice()}"
        )


def check_kind(chosen: bool | None, logits: bool) -> None:
    """Raise if a threshold was chosen for the other kind of scores; None is unknown."""
    if chosen is not None and chosen != logits:
        kinds = {True: "logits", False: "probabilities"}
        raise ValueError(
            f"threshold was chosen for {kinds[chosen]}, but the scores are {kinds[logits]}; pass scores of its kind "
            f"and logits={chosen}"
        )


def threshold_text(threshold: float, log_odds: float | None) -> str:
    """Return a threshold as text, with its logit if the probability is rounded to 0 or 1.

    >>> threshold_text(0.3, -0.847), threshold_text(1.0, 45.0), threshold_text(1.0, math.inf)
    ('0.3', '1 (logit 45)', '1')
    """
    if threshold in (0, 1) and log_odds is not None and math.isfinite(log_odds):
        return f"{threshold:.6g} (logit {log_odds:.6g})"
    return f"{threshold:.6g}"


def as_json(value: Any) -> Any:
    """Return a value as strict JSON: None for nan, texts for infinite numbers."""
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


NUMBER = (float, None, "inf", "-inf")
INTERVAL = {**dict.fromkeys(("estimate", "low", "high"), NUMBER), "level": float, "method": str}
FORM = {
    **dict.fromkeys(("format", "imbtorch", "measure", "sha256"), str),
    **dict.fromkeys(("log_odds", "value", "recall", "precision", "alerts"), NUMBER),
    **{"schema": int, "threshold": float, "logits": (bool, None), "sure": (float, None), "counts": [[float]]},
    **{
        "costs": (dict.fromkeys(PRICES, float), {}),
        "limits": {str: float},
        "holds": {str: NUMBER},
        "corrected": (INTERVAL, None),
        "weighted": bool,
        "scores": str,
    },
}


def point_of(data: Mapping[str, Any]) -> OperatingPoint:
    """Make an operating point of the contents of a file; raise for those that no point has."""
    data = {"costs": {}, "weighted": False, "scores": "", **data}  # files of 0.7 do not say
    counts = torch.tensor(data["counts"]) if fits(data, FORM) else torch.empty(0)
    if counts.shape != (2, 2) or bool((counts < 0).any()) or not 0 <= data["threshold"] <= 1:
        raise ValueError("a point has a threshold in [0, 1], counts [2, 2], and its values")
    shares = (*(data[name] for name in ("recall", "precision", "alerts", "sure")), *data["holds"].values())
    if not all(share is None or 0 <= share <= 1 for share in shares):
        raise ValueError("recall, precision, alerts, sure and the probabilities of holds lie in [0, 1]")
    plain = {name: as_number(data[name]) if FORM[name] == NUMBER else data[name] for name in PLAIN}
    plain["log_odds"] = odds = None if data["log_odds"] is None else plain["log_odds"]  # None stays
    if odds is not None and abs(torch.tensor(odds, dtype=torch.double).sigmoid() - plain["threshold"]) > 1e-6:
        raise ValueError("log_odds are not those of the threshold")
    holds = {name: as_number(each) for name, each in data["holds"].items()}
    point = OperatingPoint(**plain, counts=counts, holds=holds, limits=dict(data["limits"]))
    vars(point).update(costs=dict(data["costs"]), weighted=data["weighted"], scores=data["scores"])
    if (given := data["corrected"]) is not None:
        low, high, middle = (torch.tensor(as_number(given[k]), dtype=torch.double) for k in ("low", "high", "estimate"))
        vars(point)["corrected"] = Interval(middle, low, high, given["level"], given["method"])
    return point


def as_number(given: Any) -> Any:
    """Return a number that strict JSON cannot hold; anything else as it is."""
    return {None: math.nan, "inf": math.inf, "-inf": -math.inf}.get(given, given)
