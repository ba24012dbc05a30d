"""Rows of a report for the bounds of intervals, drawn from one posterior or resampled from buckets of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from imbtorch.counts import Measure, mapped
from imbtorch.inference.intervals import Interval, bootstrap, posterior, values
from imbtorch.metrics.averaging import AtPrevalence, AveragedMeasure
from imbtorch.metrics.class_groups import ClassGroups
from imbtorch.metrics.rows import Bound, Row, Snapshot
from imbtorch.metrics.superclasses import MergedMeasure, Superclasses
from imbtorch.suggestions import did_you_mean, first_names

__all__ = ["Bounds", "checked_intervals"]

DRAWS = 2000  # number of draws from the posterior
LEVEL = 0.95  # probability with which an interval of a report holds
ENDS: tuple[Bound, Bound] = ("low", "high")
FEW_BUCKETS = 10  # number of buckets of a class below which its interval says so
ONE_BUCKET = "cluster bootstrap of fewer than two buckets"
RowMeasure: TypeAlias = AveragedMeasure | MergedMeasure


@dataclass(frozen=True)
class Bounds:
    """View of the bounds of intervals, which are drawn at once.

    With clusters, their buckets are resampled, but not for values of a single label while each of its samples is a
    cluster of its own: samples are then independent, and resamples would give far wider intervals of few positives.

    Attributes:
        measured: row of a value -> its measure; for a per-class measure, its value of one class.
        class_names: names of the classes or labels.
        groups: names of the groups of samples, which all have these rows; None for rows of all samples together.
    """

    measured: Mapping[Row, RowMeasure]
    class_names: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    argument: ClassVar[str] = "intervals"
    drawn: ClassVar[bool] = True

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows of the low and the high bound of each value, in each group."""
        values = self.measured
        if self.groups is None:
            return tuple(replace(row, bound=end) for row in values for end in ENDS)
        return tuple(
            replace(row, kind="group", of=name, bound=end) for name in self.groups for row in values for end in ENDS
        )

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row; all processes draw the same numbers."""
        found: list[Tensor] = []
        groups = [None] if self.groups is None else range(len(self.groups))
        for group in groups if self.measured else ():
            generator = torch.Generator().manual_seed(0)
            drawn = self.intervals(at, group, samples=DRAWS, level=LEVEL, generator=generator)
            found += [bound for each in drawn.values() for bound in (each.low, each.high)]
        return found

    def intervals(
        self,
        at: Snapshot,
        group: int | None = None,
        *,
        clusters: bool | None = None,
        samples: int,
        level: float,
        generator: torch.Generator | None,
    ) -> dict[Row, Interval]:
        """Compute the interval of each value.

        Args:
            at: counts.
            group: index of a group of samples; None for all samples.
            clusters: True to resample buckets for all values, False for none; by default as the class says.
            samples: number of draws.
            level: probability that the intervals hold.
            generator: source of randomness.
        """
        counts, buckets = at.counts, None if clusters is False else at.buckets
        if group is not None:
            assert at.groups is not None
            counts = mapped(at.groups, itemgetter(group))
            buckets = None if buckets is None else buckets[group]
        elif buckets is not None and at.groups is not None:
            buckets = buckets.sum(0)
        assert isinstance(counts, Tensor)
        resampled = dict(self.measured) if buckets is not None else {}
        if clusters is None and at.dependent is not None and counts.ndim == 3 and not bool(at.dependent):
            resampled = {row: each for row, each in resampled.items() if not _of_one_label(row, each)}
        found = {}
        if alone := {row: each for row, each in self.measured.items() if row not in resampled}:
            drawn = posterior(
                _at_once(alone, at.prevalence),
                counts,
                samples=samples,
                level=level,
                generator=generator,
                event_dims=counts.ndim,
            )
            found = {row: _of_class(drawn[_key(row)], each) for row, each in alone.items()}
        if resampled:
            assert buckets is not None
            measures = _at_once(resampled, at.prevalence)
            drawn = resample_buckets(measures, buckets, samples=samples, level=level, generator=generator)
            for row, each in resampled.items():
                of_one = _of_class(drawn[_key(row)], each)
                found[row] = replace(of_one, method=of_one.method + self._rarest(row, buckets))
        return {row: found[row] for row in self.measured}

    def _rarest(self, row: Row, buckets: Tensor) -> str:
        """Return a text that names the class of a value which lies in few buckets; empty if none does."""
        held = (buckets.sum(-1) > 0).sum(0).tolist()  # [K], or [L, 2]
        named = [(number, name, repr(name)) for name, number in zip(self.class_names, held, strict=True)]
        if buckets.ndim == 4:
            negative, positive = ([of_label[index] for of_label in held] for index in (0, 1))
            named = [(number, name, repr(name)) for name, number in zip(self.class_names, positive, strict=True)]
            named += [
                (number, name, f"negatives of {name!r}")
                for name, number in zip(self.class_names, negative, strict=True)
            ]
        few = [each for each in named if 0 < each[0] < FEW_BUCKETS and (row.kind != "class" or each[1] == row.of)]
        return f"; only {min(few)[0]} of them with {min(few)[2]}" if few else ""


def _key(row: Row) -> str:
    """Return a key of the draws of a value; the values of all classes of a measure share it."""
    return repr((row.measure, row.kind, "" if row.kind == "class" else row.of))


def _at_once(measured: Mapping[Row, RowMeasure], prevalence: Tensor | None) -> dict[str, Measure]:
    """Return the measures to draw; a per-class measure occurs once, with the values of all classes.

    Args:
        measured: row of a value -> its measure.
        prevalence: class shares to which draws of counts are rescaled; None to leave them as they are.
    """
    whole: dict[str, Measure] = {}
    for row, measure in measured.items():
        each = replace(measure, of_class=None) if isinstance(measure, AveragedMeasure) else measure
        whole[_key(row)] = each if prevalence is None else AtPrevalence(each, prevalence)
    return whole


def _of_class(interval: Interval, measure: RowMeasure) -> Interval:
    """Select the interval of the class of a measure, if it has one."""
    index = measure.of_class if isinstance(measure, AveragedMeasure) else None
    if index is None:
        return interval
    estimate, low, high = (part[..., index] for part in (interval.estimate, interval.low, interval.high))
    return replace(interval, estimate=estimate, low=low, high=high)


def _of_one_label(row: Row, measure: RowMeasure) -> bool:
    """Return whether a value is that of a single label, not a mean over labels."""
    return row.kind == "class" or (isinstance(measure, AveragedMeasure) and len(measure.over_classes) == 1)


def resample_buckets(
    measures: Mapping[str, Measure],
    buckets: Tensor,
    *,
    samples: int,
    level: float,
    generator: torch.Generator | None,
) -> dict[str, Interval]:
    """Compute intervals from resampled buckets of clusters; bounds are nan if fewer than two buckets hold samples.

    Args:
        measures: name -> function of counts ``[..., K, K]``, for labels ``[..., L, 2, 2]``.
        buckets: counts of each bucket, ``[B, K, K]`` or ``[B, L, 2, 2]``.
        samples: number of resamples.
        level: probability that the intervals hold.
        generator: source of randomness.
    """
    filled, dims = buckets[buckets.flatten(1).any(1)], buckets.ndim - 1
    if len(filled) < 2:
        estimates = {name: values(each, filled.sum(0).double(), dims) for name, each in measures.items()}
        unknown = {name: torch.full_like(each, torch.nan) for name, each in estimates.items()}
        return {name: Interval(estimates[name], nan, nan, level, ONE_BUCKET) for name, nan in unknown.items()}
    found = bootstrap(measures, filled, samples, level, generator=generator, event_dims=dims, clusters=True)
    method = f"cluster bootstrap of {len(filled)} buckets"

    def of_buckets(text: str) -> str:
        return text.replace("cluster bootstrap", method).replace("clusters holds", "buckets holds")

    return {name: replace(each, method=of_buckets(each.method)) for name, each in found.items()}


def interval_rows(
    measures: Mapping[str, AveragedMeasure],
    per_class: Mapping[str, AveragedMeasure],
    class_names: Sequence[str],
    class_groups: ClassGroups,
    superclasses: Superclasses | None,
) -> Iterator[tuple[Row, RowMeasure]]:
    """Yield the rows of the values that can have an interval, with their measures."""
    for key, measure in measures.items():
        yield Row(key, measure.higher_is_better), measure
    for key, measure in per_class.items():
        for index, name in enumerate(class_names):
            yield Row(key, measure.higher_is_better, "class", name), replace(measure, of_class=index)
    for row in class_groups.rows:
        yield row, class_groups.measure(row)
    if superclasses is not None:
        for row in superclasses.rows:
            yield row, superclasses.measure(row)


def checked_intervals(
    given: bool | Sequence[str],
    measures: Mapping[str, AveragedMeasure],
    per_class: Mapping[str, AveragedMeasure],
    class_names: tuple[str, ...],
    class_groups: ClassGroups,
    superclasses: Superclasses | None,
    reported: Iterable[Row] = (),
    *,
    called: bool = False,
) -> Bounds:
    """Return the view of the bounds of the values that a user names; True names all ``measures``.

    Args:
        given: names of values; True for all ``measures``.
        measures: key -> measure of all classes.
        per_class: key -> measure of each class.
        class_names: names of the classes.
        class_groups: view of the class groups.
        superclasses: view of the superclasses; None without them.
        reported: rows of values that are reported, with an interval or without.
        called: whether the user called ``interval(name)``, which errors then quote; by default they name ``intervals``.

    Raises:
        ValueError: for names that are not reported or occur twice, for values without an interval, such as bounds of
            others, and for lowest values (``average="min"``), which have no interval that covers them.
        TypeError: for a string.
    """
    if isinstance(given, str):
        raise TypeError(f"intervals must be True, False or a sequence of names such as [{given!r}], got a string")
    minima = [key for key, measure in measures.items() if measure.average == "min"]
    names = [key for key in measures if key not in minima] if given is True else list(given or ())
    if not names:
        return Bounds({}, class_names)
    possible = interval_rows(measures, per_class, class_names, class_groups, superclasses)
    known = {row.name: (row, each) for row, each in possible}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(_no_interval(unknown, reported, [*known], called, () if per_class else class_names))
    if len(set(names)) < len(names):
        raise ValueError(f"intervals must not name a value twice, got {names}")
    lowest = [name for name in names if name in minima]
    if lowest:
        named = f"interval({lowest[0]!r}) names a minimum" if called else f"intervals names {lowest}"
        raise ValueError(
            f"{named}, but the lowest of several uncertain values has no interval that covers it; name values of "
            "single classes"
        )
    return Bounds(dict(known[name] for name in names), class_names)


def _no_interval(
    unknown: Sequence[str], reported: Iterable[Row], known: Sequence[str], called: bool, left_out: Sequence[str]
) -> str:
    """Return the error message for names without an interval, reported or not; ``left_out`` names classes without."""
    row = next((row for row in reported if row.name in unknown), None)
    if row is None:
        named = f"intervals names {unknown}, which are not reported"
        if called:
            named = f"interval({unknown[0]!r}) names a value that is not reported"
        measure, _, of = unknown[0].partition("/")
        remedy = did_you_mean(unknown[0], known)
        if of in left_out:
            remedy = f"; per_class=[{measure!r}] reports it for each class"
        return f"{named}{remedy}; names are {first_names(known, 30)}"
    kind = "a bound of one" if row.bound else "the worst of several uncertain values"
    return f"{row.name!r} has no interval, because it is {kind}"
