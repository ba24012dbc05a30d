"""Scores of saved predictions: checks, and areas under curves, some samples at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imbtorch.columns import Array, Missing
from imbtorch.counting.arguments import Task
from imbtorch.counting.logits import (
    PROBABILITIES,
    SUMS,
    against_the_rest,
    like_probabilities,
    logit_threshold,
    of_class_one,
    sum_to_one,
)
from imbtorch.counting.tasks import UNEVEN
from imbtorch.counts import rescaled_rows
from imbtorch.deciding.curves import AREAS, histogram_of_ranks
from imbtorch.deciding.histogram import Hidden
from imbtorch.deciding.money import CostPoint, Ledger
from imbtorch.deciding.sweep_result import SweepResult, result_of_histogram
from imbtorch.deciding.sweep_settings import SweepSettings
from imbtorch.intervals.intervals import Interval
from imbtorch.predictions.parts import Part, count_
from imbtorch.reports.readings import Readings
from imbtorch.reports.rows import Row, shown
from imbtorch.suggestions import first_names

MOST_ROWS, MOST_SCORES = 5_000_000, 50_000_000  # up to which areas are exact
LOW, ENOUGH = 0.3, 10  # area below which scores may be reversed, with so many positives
DECIMALS = (1, 2, 3, 4)  # of probabilities that may have been rounded
ONE_POINT = "all scores are 0 or 1, so curves have a single point; pass probabilities, or classes as preds"
OUTSIDE = "sigmoids or percentages? logits=True only for logits"


def checked_scores(
    scores: Array,
    keep: Array,
    called: str,
    start: int,
    *,
    names: Sequence[str] = (),
    missing: Missing = "raise",
    logits: bool = False,
    whole: bool = False,
) -> tuple[Array, Array]:
    """Check scores ``[n]`` or ``[n, K]`` of the samples to keep, those of all doors.

    Args:
        scores: scores of some samples.
        keep: bools ``[n]`` of the samples that nothing else leaves out.
        called: name of the argument in errors.
        start: number of samples before these.
        names: names of the columns.
        missing: ``"drop"`` to leave out samples with NaN.
        logits: whether scores may be any number.
        whole: whether the probabilities of a sample must sum to 1.

    Returns:
        Scores, rounded probabilities divided by their sums, and bools of the samples to keep that have some.

    Raises:
        ValueError: for NaN, and unless scores are probabilities or ``logits``.
    """
    of_rows = keep if scores.ndim == 1 else keep[:, None]

    def where(wrong: Array) -> str:
        row, *column = map(int, np.argwhere(wrong)[0])
        return f"in row {start + row}" + (f", column {names[column[0]]!r}" if column else "")

    lacking = np.isnan(scores)
    if missing != "drop" and (lacking & of_rows).any():
        remedy = "leave these rows out, as missing='drop' does"
        number = int((lacking & of_rows).sum())
        raise ValueError(f"{called} hold NaN {where(lacking & of_rows)} ({number} values); {remedy}")
    keep = keep & ~(lacking if scores.ndim == 1 else lacking.any(1))
    if logits:
        return scores, keep
    outside = ((scores < 0) | (scores > 1)) & (keep if scores.ndim == 1 else keep[:, None])
    if outside.any():
        value = float(scores[tuple(np.argwhere(outside)[0])])
        raise ValueError(
            f"{called} must be probabilities in [0, 1], got {value:g} {where(outside)} ({int(outside.sum())} values); "
            f"percentages must be divided by 100; pass logits=True only for logits"
        )
    if not whole or scores.ndim == 1:
        return scores, keep
    sums = scores.sum(-1, dtype=np.float64)
    away = np.flatnonzero(keep & (np.abs(sums - 1) > 1e-6))
    rounded = away[_are_rounded(scores[away], sums[away])] if len(away) else away
    if len(rounded):
        scores = scores.astype(np.float64)
        scores[rounded] = (scores[rounded] / sums[rounded, None]).round(12)  # equal quotients tie
        sums[rounded] = 1.0
    uneven = keep & (np.abs(sums - 1) > UNEVEN)
    if uneven.any():
        row = int(uneven.argmax())
        raise ValueError(
            f"{called} must sum to 1 over the classes, got {sums[row]:g} in row {start + row} ({int(uneven.sum())} "
            f"rows); these are not probabilities over classes: {OUTSIDE}"
        )
    return scores, keep


def are_above(scores: Array, threshold: float, logits: bool = False) -> Array:
    """Return which scores lie above a threshold, a probability: of logits, above its logit."""
    above: Array = scores > (logit_threshold(threshold) if logits else threshold)
    return above


def _are_rounded(scores: Array, sums: Array) -> Array:
    """Return which rows have few decimals, whose rounding explains that they do not sum to 1."""
    slack = 1e-6 if scores.dtype == np.float64 else 1e-3
    known, found = np.zeros(len(scores), dtype=bool), np.zeros(len(scores), dtype=bool)
    for digits in DECIMALS:
        shifted = scores.astype(np.float64) * 10**digits
        few = (np.abs(shifted - np.rint(shifted)) < slack).all(-1)
        near = np.abs(sums - 1) <= scores.shape[-1] * 10.0**-digits / 2 + 1e-9
        found |= few & ~known & near & (sums > 0)
        known |= few
    return found


@dataclass
class BinnedScores:
    """Histogram of scores that come in parts, and the result of a sweep of them."""

    settings: SweepSettings

    def __post_init__(self) -> None:
        """Begin without samples."""
        self._counter, self._hidden, self._parts = self.settings.histogram(), Hidden(), 0
        self._state = self._counter.zeros()

    def update(self, part: Part) -> None:
        """Count samples.

        Raises:
            ValueError: for logits that are probabilities, and as a sweep.
        """
        of_classes = self.settings.counting.logits and part.preds.ndim > part.target.ndim
        if of_classes and not self._parts and sum_to_one(part.preds):
            raise ValueError(f"scores {SUMS}")
        batch = count_(self._counter, self._state, part)
        self._hidden = self._counter.hidden_with(self._hidden, part.preds, batch, not self._parts)
        self._parts += 1

    def result(self) -> SweepResult:
        """Return the result of all samples so far."""
        return result_of_histogram(self.settings, self._counter, self._state, self._hidden)


@dataclass
class CostedRows:
    """Rows with costs of their own that come in parts, and the point that flags them; None to choose one."""

    costs: Mapping[str, float | str]
    logits: bool
    point: CostPoint | None = None
    _kept: list[tuple[Tensor, ...]] = field(default_factory=list)

    def update(self, part: Part) -> Part:
        """Keep samples; return them without costs, and flagged by the point in place of scores."""
        odds = part.preds.double() if self.logits else part.preds.double().logit()
        start = sum(len(each) for each, *_ in self._kept)
        cluster = part.extra.get("cluster", torch.arange(start, start + len(odds)))
        by_row = [
            part.extra.pop(name) if isinstance(each, str) else torch.full_like(odds, each)
            for name, each in self.costs.items()
        ]
        self._kept.append((odds, part.target == 1, *by_row, cluster))
        flagged = Ledger(*self._kept[-1]).relative > (0.0 if self.point is None else self.point.offset)
        return part._replace(preds=4.0 * flagged - 2 if self.logits else flagged.double())

    def ledger(self) -> tuple[Ledger, dict[str, float]]:
        """Return all rows, and the median of each column of costs."""
        ledger = Ledger(*map(torch.cat, zip(*self._kept, strict=True)))
        named = {each: getattr(ledger, name) for name, each in self.costs.items() if isinstance(each, str)}
        return ledger, {name: float(each.median()) for name, each in named.items()}

    def notes(self) -> list[str]:
        """Return what the alerts of the point cost, if there is one."""
        return [] if self.point is None else self.point.notes(*self.ledger())

    def chosen(self, scores: str) -> CostPoint:
        """Return the point with the lowest costs of all rows."""
        ledger, medians = self.ledger()
        if bool(ledger.positive.all()) or not bool(ledger.positive.any()):
            raise ValueError("costs of rows need targets of both classes to choose by; name more rows")
        offset = ledger.cheapest()
        values = ledger.at(offset) | {"held_out": ledger.held_out()}
        return CostPoint(offset, self.costs, scores, self.logits, medians, values)


@dataclass
class Curves:
    """Areas under curves, from scores that come in parts.

    Areas are exact for few samples, whose scores are kept; of many they are those of a sweep's bins.

    Args:
        settings: description of the report: how it counts, its classes or labels, prevalence and groups of samples.
        rows: number of samples to come.
    """

    settings: Readings
    rows: int
    _kept: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)
    _hard: bool = True
    _notes: list[str] = field(default_factory=list)
    _binned: BinnedScores | None = None

    def __post_init__(self) -> None:
        """Make a sweep for many samples."""
        counting, self.names, shares = self.settings.counting, self.settings.class_names, self.settings.prevalence
        self.task, self.logits = counting.task, counting.logits
        self.prevalence = shares[:, 1] if shares is not None and self.task == "multilabel" else shares
        width = 1 if self.task == "binary" else len(self.names)
        if self.rows > MOST_ROWS or self.rows * width > MOST_SCORES:
            settings = SweepSettings.of(
                "balanced_accuracy",
                task=self.task,
                prevalence=self.prevalence,
                logits=self.logits,
                weighted=counting.weighted,
                also=("auc", "average_precision"),
                **sizes_of(self.task, self.names, self.settings.counting.ignore_index),
            )
            self._binned = BinnedScores(settings)

    def update(self, part: Part, odds: Tensor | None) -> None:
        """Add samples, with ``weight``, ``frequency`` and ``group`` where they have them.

        The log-odds of the first of two classes or labels may turn out to be probabilities.
        """
        scores, target, extra = part
        if self.logits and self.task != "multiclass" and odds is not None and not self._notes:
            self._notes = [PROBABILITIES] * like_probabilities(odds, of_labels=self.task == "multilabel")
        self._hard = self._hard and not self.logits and bool(((scores == 0) | (scores == 1)).all())
        sums = {name: each for name, each in extra.items() if name in ("weight", "frequency")}
        if self._binned is None:
            weight = next(iter(sums.values()), torch.ones(len(target), dtype=torch.float64))
            self._kept.append((scores, target, weight, extra.get("group", torch.zeros(len(target), dtype=torch.long))))
        else:
            self._binned.update(Part(scores, target, sums))

    def values(self, bounded: Sequence[str]) -> tuple[dict[Row, Tensor], list[str]]:
        """Return all rows, areas with the bounds that are named, and what a reader of them must know."""
        self._notes += [ONE_POINT] * self._hard
        if self._binned is None:
            return self._exact(bounded), self._notes
        note = f"auc, average_precision: by the bins of a sweep, since there are {self.rows:,} samples"
        self._notes.append(note + "; groups have none" * bool(self.settings.groups))
        return self._of_bins(self._binned.result(), bounded), self._notes

    def _exact(self, bounded: Sequence[str]) -> dict[Row, Tensor]:
        """Return areas of all samples, and of each group of them, from all scores."""
        given, target, weight, group = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        self._kept.clear()
        scores, weight = _ranked(given, self.task, self.logits), weight.double()
        del given
        rows = self._areas(scores, target, weight, bounded)
        if self.settings.groups:
            sizes = torch.bincount(group, minlength=len(self.settings.groups)).tolist()
            for name, some in zip(self.settings.groups, torch.split(group.argsort(stable=True), sizes), strict=True):
                areas = self._areas(scores[some], target[some], weight[some], None)
                rows |= {self.settings.of_group(row, name): areas[row] for row in areas if row.kind == "overall"}
        return dict(zip(rows, shown(list(rows.values())), strict=True))

    def _areas(
        self, scores: Tensor, target: Tensor, weight: Tensor, bounded: Sequence[str] | None
    ) -> dict[Row, Tensor]:
        """Return areas of each label or class against the rest and their mean, with bounds; None is of a group."""
        binary = self.task == "binary"
        shares = self.prevalence[1:] if binary and self.prevalence is not None else self.prevalence
        found: dict[str, dict[Row, Tensor]] = {measure: {} for measure in AREAS}
        bounds: dict[Row, Tensor] = {}
        whole, positives = [], []  # whether there are samples of both classes
        for at in range(scores.shape[1]):  # one at a time: a histogram has a cell for each sample
            kept = target[:, at] >= 0 if self.task == "multilabel" else slice(None)  # others are ignored
            positive = target[kept, at] if self.task == "multilabel" else target == at + binary
            different, place = torch.unique(scores[kept, at], return_inverse=True)
            histogram = histogram_of_ranks(place, positive, len(different), weight[kept].unsqueeze(0))[0]
            rates = histogram
            if shares is not None:
                rates = rescaled_rows(histogram, torch.stack((1 - shares[at], shares[at])))
            whole.append(bool(histogram.sum(-1).all()))
            positives.append(int(positive.sum()))
            for measure, (value, interval) in AREAS.items():
                row = Row(measure, True) if binary else Row(measure, True, "class", self.names[at])
                found[measure][row] = value(rates)
                if row.name in (bounded or ()) and whole[-1]:
                    bounds |= ends_of(row, interval(histogram))
        if bounded is not None:
            self._note_if_reversed(found["auc"], positives)
        if not binary:
            for measure, areas in found.items():
                of_whole = torch.where(torch.tensor(whole), torch.stack(list(areas.values())), torch.nan)
                areas[Row(measure, True)] = of_whole.nanmean()
        return {row: value for areas in found.values() for row, value in areas.items()} | bounds

    def _of_bins(self, result: SweepResult, bounded: Sequence[str]) -> dict[Row, Tensor]:
        """Return areas from the bins of a sweep."""
        binary = self.task == "binary"
        rows: dict[Row, Tensor] = {}
        for measure in AREAS:
            kinds = [Row(measure, True)]
            kinds = kinds if binary else [*(Row(measure, True, "class", name) for name in self.names), *kinds]
            rows |= {row: result.values[row.name] for row in kinds}
            for row in kinds if binary else kinds[:-1]:
                if row.name in bounded:
                    interval, place = result.interval(measure), 0 if binary else self.names.index(row.of)
                    rows |= ends_of(row, interval, place)
        areas = {row: value for row, value in rows.items() if row.measure == "auc" and not row.bound}
        self._note_if_reversed(areas, [ENOUGH] * len(areas))
        return rows

    def _note_if_reversed(self, areas: Mapping[Row, Tensor], positives: Sequence[int]) -> None:
        """Note areas that chance hardly makes so low."""
        low = [
            f"{row.name} {value.item():.3f}"
            for (row, value), number in zip(areas.items(), positives, strict=True)
            if number >= ENOUGH and value < LOW
        ]
        if low:
            self._notes.append(
                f"{first_names(low)}, so the scores may be those of the other class; pass the scores of the positive "
                "class, such as 1 - preds of probabilities"
            )


def _ranked(preds: Tensor, task: Task, logits: bool) -> Tensor:
    """Return float64 scores ``[N, L]`` that rank the samples: of the positive class, or of each label or class."""
    scores = preds.double()
    if task == "binary":
        scores = of_class_one(scores, 1) if logits or scores.ndim == 1 else scores[:, 1]
        return scores.unsqueeze(1)
    if task == "multiclass" and logits:
        most = torch.finfo(scores.dtype).max / 4
        return against_the_rest(scores.clamp(-most, most))
    return scores


def ends_of(row: Row, interval: Interval, place: int = 0) -> dict[Row, Tensor]:
    """Return the bounds of a value."""
    low, high = shown([interval.low.reshape(-1)[place], interval.high.reshape(-1)[place]])
    own = (row.measure, row.better, row.kind, row.of)
    return {Row(*own, "low"): low, Row(*own, "high"): high}


def sizes_of(task: Task, names: Sequence[str], ignored: int | None) -> dict[str, Any]:
    """Return the arguments of a sweep that tell its classes or labels, and the target of labels to ignore."""
    number = {"binary": "", "multiclass": "num_classes", "multilabel": "num_labels"}[task]
    ignored = ignored if task == "multilabel" else None
    return {number: len(names), "class_names": names, "ignore_index": ignored} if number else {}
