"""Rows of a report for the bounds of intervals, all drawn from one posterior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import ClassVar

import torch
from torch import Tensor

from imbtorch.counts import Counts, Measure, mapped
from imbtorch.inference.intervals import Interval, posterior
from imbtorch.metrics.averaging import AtPrevalence, AveragedMeasure
from imbtorch.metrics.rows import Bound, Kind, Row, Snapshot
from imbtorch.suggestions import did_you_mean

__all__ = ["Bounds", "checked_intervals"]

DRAWS = 2000  # number of draws from the posterior
LEVEL = 0.95  # probability with which an interval of a report holds
ENDS: tuple[Bound, Bound] = ("low", "high")


@dataclass(frozen=True)
class Bounds:
    """View of the bounds of intervals, which are drawn from the posterior at once.

    Attributes:
        measured: row of a value -> its measure; for a per-class measure, its value of one class.
        groups: names of the groups of samples, which all have these rows; None for rows of all samples together.
    """

    measured: Mapping[Row, AveragedMeasure]
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
        parts: list[Counts] = [at.counts]
        if self.groups is not None:
            assert at.groups is not None
            parts = [mapped(at.groups, itemgetter(index)) for index in range(len(self.groups))]
        found = []
        for counts in parts if self.measured else ():
            assert isinstance(counts, Tensor)
            generator = torch.Generator(counts.device).manual_seed(0)
            drawn = posterior(
                self.to_draw(at.prevalence),
                counts,
                samples=DRAWS,
                level=LEVEL,
                generator=generator,
                event_dims=counts.ndim,
            )
            found += [bound for each in self.by_row(drawn).values() for bound in (each.low, each.high)]
        return found

    def to_draw(self, prevalence: Tensor | None) -> dict[str, Measure]:
        """Return the measures to draw by name; a per-class measure occurs once, with the values of all classes.

        Args:
            prevalence: class shares to which draws of counts are rescaled; None to leave them as they are.
        """
        found: dict[str, Measure] = {}
        for row, measure in self.measured.items():
            whole = replace(measure, of_class=None)
            found[self._drawn_as(row)] = whole if prevalence is None else AtPrevalence(whole, prevalence)
        return found

    def by_row(self, found: Mapping[str, Interval]) -> dict[Row, Interval]:
        """Return the interval of each row, given the intervals of the measures in :meth:`to_draw`."""
        return {row: _of_class(found[self._drawn_as(row)], each.of_class) for row, each in self.measured.items()}

    def _drawn_as(self, row: Row) -> str:
        """Return the name under which the measure of a row is drawn."""
        return self._names_of_draws[row.measure, row.kind]

    @cached_property
    def _names_of_draws(self) -> dict[tuple[str, Kind], str]:
        """Name of the first row of each measure and kind, since names of rows are unique."""
        names: dict[tuple[str, Kind], str] = {}
        for row in self.measured:
            names.setdefault((row.measure, row.kind), row.name)
        return names


def _of_class(interval: Interval, index: int | None) -> Interval:
    """Select the interval of one class; None keeps all classes."""
    if index is None:
        return interval
    estimate, low, high = (part[..., index] for part in (interval.estimate, interval.low, interval.high))
    return replace(interval, estimate=estimate, low=low, high=high)


def interval_rows(
    measures: Mapping[str, AveragedMeasure], per_class: Mapping[str, AveragedMeasure], class_names: Sequence[str]
) -> Iterator[tuple[Row, AveragedMeasure]]:
    """Yield the rows of overall and per-class values, all of which can have an interval, with their measures."""
    for key, measure in measures.items():
        yield Row(key, measure.higher_is_better), measure
    for key, measure in per_class.items():
        for index, name in enumerate(class_names):
            yield Row(key, measure.higher_is_better, "class", name), replace(measure, of_class=index)


def checked_intervals(
    given: bool | Sequence[str],
    measures: Mapping[str, AveragedMeasure],
    per_class: Mapping[str, AveragedMeasure],
    class_names: Sequence[str],
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
        reported: rows of values that are reported, with an interval or without.
        called: whether the user called ``interval(name)``, which errors then quote; by default they name ``intervals``.

    Raises:
        ValueError: for names that are not reported or occur twice, for values without an interval, such as means over
            class groups, and for lowest values (``average="min"``), which have no interval that covers them.
        TypeError: for a string.
    """
    if isinstance(given, str):
        raise TypeError(f"intervals must be True, False or a sequence of names such as [{given!r}], got a string")
    minima = [key for key, measure in measures.items() if measure.average == "min"]
    names = [key for key in measures if key not in minima] if given is True else list(given or ())
    if not names:
        return Bounds({})
    known = {row.name: (row, each) for row, each in interval_rows(measures, per_class, class_names)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(_no_interval(unknown, reported, [*known], called))
    if len(set(names)) < len(names):
        raise ValueError(f"intervals must not name a value twice, got {names}")
    lowest = [name for name in names if name in minima]
    if lowest:
        named = f"interval({lowest[0]!r}) names a minimum" if called else f"intervals names {lowest}"
        raise ValueError(
            f"{named}, but the lowest of several uncertain values has no interval that covers it; name values of "
            "single classes"
        )
    return Bounds(dict(known[name] for name in names))


def _no_interval(unknown: Sequence[str], reported: Iterable[Row], known: Sequence[str], called: bool) -> str:
    """Return the error message for names without an interval, reported or not."""
    row = next((row for row in reported if row.name in unknown), None)
    if row is None:
        named = f"intervals names {unknown}, which are not reported"
        if called:
            named = f"interval({unknown[0]!r}) names a value that is not reported"
        shown = ", ".join(known[:30]) + (", ..." if len(known) > 30 else "")
        return f"{named}; names are {shown}{did_you_mean(unknown[0], known)}"
    if row.kind == "class group" and not row.bound:
        return (
            f"{row.name!r} has no interval in the report, because it is a mean over a class group; draw it from the "
            f"counts: imbtorch.analysis.posterior(report.measure({row.name!r}), report.result().counts)"
        )
    return (
        f"{row.name!r} has no interval; overall values and values of single classes have one. For values of groups of "
        "samples pass intervals=[...] to the report"
    )
