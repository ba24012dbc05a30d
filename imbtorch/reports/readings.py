"""Values that a report reads from counts: a mapping of rows to measures, with values of groups and intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.counting.clusters import BUCKETS
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Measure, mapped, sums
from imbtorch.intervals.baselines import always_commonest
from imbtorch.intervals.buckets import FEW_BUCKETS, resample_buckets
from imbtorch.intervals.class_means import recall_weights
from imbtorch.intervals.draws import DRAWS, seeded
from imbtorch.intervals.intervals import HEAVY, LARGE, TOO_NARROW, Interval, largest_cluster, posterior_of
from imbtorch.intervals.weighted import OF_WEIGHTS, posterior_of_weights
from imbtorch.measures.named import PER_CLASS, AtPrevalence, AveragedMeasure, of_name, one_value
from imbtorch.reports.groups import comparable_groups, undefined_groups, worst
from imbtorch.reports.rows import Bound, Row, Snapshot, group_label, shown
from imbtorch.reports.texts import NO_BUCKETS
from imbtorch.suggestions import did_you_mean, first_names

FEW_CLASSES = 20  # number of classes up to which per-class values are reported by default
LEVEL = 0.95  # probability with which an interval of a report holds
ENDS: tuple[Bound, Bound] = ("low", "high")


class Value(NamedTuple):
    """One value of a measure.

    Attributes:
        measure: function of counts.
        place: index of the class or label, if the measure has a value for each; None if it has a single one.
    """

    measure: AveragedMeasure
    place: int | None = None

    @property
    def function(self) -> AveragedMeasure:
        """Function of counts that returns this value alone."""
        return self.measure if self.place is None else replace(self.measure, of_class=self.place)

    @property
    def of_one_label(self) -> bool:
        """True for the value of a single class or label, not of a mean."""
        return self.place is not None or len(self.measure.over_classes) == 1


def values_of_classes(measures: Mapping[str, AveragedMeasure], class_names: Sequence[str]) -> dict[Row, Value]:
    """Return the values of measures for each class or label."""
    return {
        Row(key, measure.higher_is_better, "class", name): Value(measure, place)
        for key, measure in measures.items()
        for place, name in enumerate(class_names)
    }


def values_of_class_groups(
    measures: Mapping[str, AveragedMeasure], groups: Mapping[str, tuple[int, ...]]
) -> dict[Row, Value]:
    """Return the means of measures over groups of classes or labels.

    Classes with neither targets nor predictions take no part in a mean.
    """
    return {
        Row(key, measure.higher_is_better, "class group", name): Value(replace(measure, over_classes=classes))
        for key, measure in measures.items()
        for name, classes in groups.items()
    }


@dataclass(frozen=True, eq=False)
class Readings:
    """Rows of a report with their values, which its results share.

    Each value is a function of the counts of all samples. The same functions, evaluated for the counts of a group, for
    rates at another prevalence, or for draws, give the values of groups, those at the prevalence, and intervals.

    Attributes:
        counting: how samples are counted.
        class_names: names of the classes or labels.
        values: row -> value: of all classes first, then of each class and of class groups.
        bounded: rows of ``values`` that are reported with an interval.
        groups: names of the groups of samples, in the order of their indices; empty without groups.
        grouped_by: what groups the samples, such as ``"site"``; empty if it is unknown.
        per_group: keys of the measures that are reported for each group of samples.
        prevalence: class shares of the population for which values are computed, ``[K]`` or for labels ``[L, 2]``;
            None for those of the counts.
    """

    counting: Counting
    class_names: tuple[str, ...]
    values: Mapping[Row, Value]
    bounded: tuple[Row, ...] = ()
    groups: tuple[str, ...] = ()
    grouped_by: str = ""
    per_group: tuple[str, ...] = ()
    prevalence: Tensor | None = None

    @cached_property
    def measures(self) -> dict[str, AveragedMeasure]:
        """Key -> measure of all classes."""
        return {row.measure: value.measure for row, value in self.values.items() if row.kind == "overall"}

    @cached_property
    def per_class(self) -> dict[str, AveragedMeasure]:
        """Key -> measure of each class."""
        return {row.measure: value.measure for row, value in self.values.items() if row.kind == "class"}

    @property
    def class_groups(self) -> dict[str, tuple[int, ...]]:
        """Name -> indices of the classes of each class group."""
        return {row.of: value.measure.over_classes for row, value in self.values.items() if row.kind == "class group"}

    @cached_property
    def by(self) -> str:
        """Text before the names of all groups of samples if one of them is that of a class or class group; else ""."""
        others = {*self.class_names, *(row.of for row in self.values if row.kind == "class group")}
        return "" if others.isdisjoint(self.groups) else self.grouped_by or "group"

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups of samples as they are shown."""
        return tuple(group_label(self.by, name) for name in self.groups)

    def of_group(self, row: Row, name: str) -> Row:
        """Return the row of the same value for a group of samples."""
        return replace(row, kind="group", of=name, by=self.by)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows in the order in which they are reported."""
        return tuple(self._ordered(drawn=True))

    @cached_property
    def _rows_without_bounds(self) -> tuple[Row, ...]:
        return tuple(self._ordered(drawn=False))

    def _ordered(self, drawn: bool) -> Iterator[Row]:
        overall = [row for row in self.values if row.kind == "overall"]
        yield from overall
        yield from _ends(self.bounded) if drawn else ()
        yield from (row for row in self.values if row.kind != "overall")
        for row in overall if self.groups else ():
            if row.measure in self.per_group:
                yield from (self.of_group(row, name) for name in self.groups)
            if row.better is not None:
                yield replace(row, kind="worst")
        for name in self.groups if drawn else ():
            yield from _ends(self.of_group(row, name) for row in self._bounded_of_groups)

    @cached_property
    def _bounded_of_groups(self) -> tuple[Row, ...]:
        return tuple(row for row in self.bounded if row.kind == "overall" and row.measure in self.per_group)

    @property
    def needs_matrix(self) -> bool:
        """True if a value needs more than the margins."""
        return any(value.measure.needs_matrix for value in self.values.values())

    # --- values -----------------------------------------------------------------------------------------------------

    def read(self, at: Snapshot, drawn: bool = True) -> dict[Row, Tensor]:
        """Return the value of each row.

        Args:
            at: counts.
            drawn: whether to include the bounds of intervals, which need random draws.

        Raises:
            ValueError: if a function of the user returns a value of another shape.
        """
        parts = [one_value(key, at.value(measure)) for key, measure in self.measures.items()]
        parts += self._ends_of(at, self.bounded, None) if drawn else ()
        for row, (measure, place) in self.values.items():
            if row.kind == "class group":
                parts.append(one_value(row.name, at.value(measure)))
            elif place == 0:  # the values of all classes are computed at once
                parts.append(at.of_classes(row.measure, measure))
        if self.groups:
            parts += self._of_groups(at)
            for group in range(len(self.groups)) if drawn else ():
                parts += self._ends_of(at, self._bounded_of_groups, group)
        return dict(zip(self.rows if drawn else self._rows_without_bounds, shown(parts), strict=True))

    def _of_groups(self, at: Snapshot) -> Iterator[Tensor]:
        """Yield the values of all groups of samples, and of the worst group."""
        assert at.groups is not None
        _, comparable = comparable_groups(self.counting, at.groups)
        for key, measure in self.measures.items():
            if key not in self.per_group and measure.higher_is_better is None:
                continue
            of_each = at.value(measure, of_groups=True)
            if of_each.shape != (len(self.groups),):
                raise ValueError(
                    f"measure {key!r} must return one value for each of {len(self.groups)} groups, got "
                    f"{list(of_each.shape)}"
                )
            of_each = torch.where(undefined_groups(self.counting, at.groups, measure), torch.nan, of_each)
            if key in self.per_group:
                yield of_each
            if measure.higher_is_better is not None:
                yield worst(of_each, comparable, measure.higher_is_better)

    def _ends_of(self, at: Snapshot, rows: Sequence[Row], group: int | None) -> list[Tensor]:
        """Return the bounds of values."""
        if not rows:
            return []
        drawn = self.intervals(at, rows, group, draws=DRAWS, level=LEVEL, generator=None)
        return [bound for each in drawn.values() for bound in (each.low, each.high)]

    def baseline(self, at: Snapshot) -> tuple[str, dict[str, float]]:
        """Return the name of majority-class prediction, and key -> its value for each measure with a direction.

        Both are empty without samples.
        """
        directed = {key: each for key, each in self.measures.items() if each.higher_is_better is not None}
        if not directed or not bool(sums(at.counts).actual.any()):
            return "", {}
        name, guessed = always_commonest(at.read().counts, self.class_names)
        values = shown([measure(guessed) for measure in directed.values()])
        return name, dict(zip(directed, map(float, values), strict=True))

    # --- intervals --------------------------------------------------------------------------------------------------

    def intervals(
        self,
        at: Snapshot,
        rows: Sequence[Row],
        group: int | None = None,
        *,
        clusters: bool | None = None,
        draws: int,
        level: float,
        generator: torch.Generator | None,
    ) -> dict[Row, Interval]:
        """Compute the intervals of values; what else is asked for changes none of them.

        With clusters, their buckets are resampled. A single label whose samples came without cluster ids is treated as
        independent samples, because resamples would give far wider intervals of few positives.

        The group is the index of a group of samples, None for all. ``clusters`` is True to resample buckets for all
        values, False for none, None for the rule above.
        """
        counts, buckets = _counts_of(at, group, clusters)
        alone = self._independent(rows, at, buckets, clusters)
        ways: dict[tuple[bool, ...], list[Row]] = {}  # rows that share their draws
        for row in rows:
            measure, place = self.values[row]
            ways.setdefault((row in alone, place is None, measure.needs_matrix), []).append(row)
        drawn: dict[str, Interval] = {}
        for (independent, *_), some in ways.items():
            measures = self._at_once(some, at)
            if self.counting.weighted:
                options = draws, level, generator, counts.ndim
                drawn |= posterior_of_weights(measures, counts, at.squares_of(group), *options)
                continue
            source = seeded(counts, level, generator)
            if independent:
                drawn |= posterior_of(measures, counts.double(), draws, level, source, event_dims=counts.ndim)
            else:
                assert buckets is not None
                drawn |= resample_buckets(measures, buckets, draws=draws, level=level, generator=source)
        found = {}
        for row in rows:
            interval, place = drawn[_key(row)], self.values[row].place
            if place is not None:
                estimate, low, high = (part[..., place] for part in (interval.estimate, interval.low, interval.high))
                interval = replace(interval, estimate=estimate, low=low, high=high)
            if buckets is not None and row not in alone:
                few = rarest_text(buckets, self.class_names, row.of if row.kind == "class" else "")
                interval = replace(interval, method=f"{interval.method}; {few}" if few else interval.method)
            if group is not None and bool(undefined_groups(self.counting, at.groups, self.values[row].measure)[group]):
                unknown = torch.full_like(interval.low, torch.nan)
                interval = replace(interval, low=unknown, high=unknown)
            found[row] = interval
        return found

    def _independent(
        self, rows: Iterable[Row], at: Snapshot, buckets: Tensor | None, clusters: bool | None = None
    ) -> set[Row]:
        """Return the rows whose intervals treat samples as independent."""
        labels = clusters is None and not at.dependent
        return {row for row in rows if buckets is None or (labels and self.values[row].of_one_label)}

    def intervals_text(self, at: Snapshot) -> str:
        """Return a text on the intervals of the table: their level and method; empty without intervals."""
        if not self.bounded:
            return ""
        if self.counting.weighted:
            return f"intervals: {100 * LEVEL:g}% {OF_WEIGHTS}"
        counts, buckets = _counts_of(at, None, None)
        alone = self._independent(self.bounded, at, buckets)
        if buckets is None or len(alone) == len(self.bounded):
            return f"intervals: {100 * LEVEL:g}% posterior"
        text = f"intervals: {100 * LEVEL:g}% cluster bootstrap of {int(buckets.flatten(1).any(1).sum())} buckets"
        text += ", posterior for single labels" * bool(alone)
        means = (recall_weights(each, counts) is not None for each in self._at_once(self.bounded, at).values())
        text += ", Fay-Feuer for means of recalls" * any(means)
        few = rarest_text(buckets, self.class_names)
        text += f"; {few}" if few else ""
        largest = "" if largest_bucket(at, HEAVY) else largest_bucket(at)  # a problem of the result names a heavy one
        return f"{text}; {largest} of the samples, {TOO_NARROW}" if largest else text

    def _at_once(self, rows: Sequence[Row], at: Snapshot) -> dict[str, Measure]:
        """Return the measures to draw; a measure of each class occurs once, with the values of all classes."""
        measures: dict[str, Measure] = {_key(row): self.values[row].measure for row in rows}
        return measures if at.prevalence is None else {k: AtPrevalence(m, at.prevalence) for k, m in measures.items()}

    def with_interval(self, name: str, clusters: bool | None) -> tuple[Row, int | None]:
        """Return the row of the value that a user names, and the index of its group of samples, None for all.

        Raises:
            ValueError: for a value that is not reported or has no interval, and for clusters that the counts lack.
        """
        if clusters and not self.counting.clusters:
            raise ValueError(NO_BUCKETS.format("the report"))
        for row in self.rows:
            if row.kind == "group" and not row.bound and row.name == name:
                return Row(row.measure, row.better), self.groups.index(row.of)
        return self.checked_intervals([name], called=True)[0], None

    def checked_intervals(self, given: bool | str | Sequence[str], *, called: bool = False) -> tuple[Row, ...]:
        """Return the rows of the values that a user names; True names all measures of all classes, ``"*"`` all values.

        Args:
            given: names of values, and patterns with ``*``. A name without a value of all classes is that of a measure
                of each class and class group.
            called: whether the user called ``interval(name)``, which errors then quote.

        Raises:
            ValueError: for names that are not reported or occur twice, and for values without an interval, such as
                bounds and lowest values (``average="min"``).
            TypeError: for a string.
        """
        given = [given] if given == "*" else given
        if isinstance(given, str):
            raise TypeError(f"intervals must be True, False or a sequence of names such as [{given!r}], got a string")
        minima = [key for key, measure in self.measures.items() if measure.average == "min"]
        names = [key for key in self.measures if key not in minima] if given is True else list(given or ())
        known = {row.name: row for row in self.values} if names else {}
        if len(set(names)) < len(names):
            raise ValueError(f"intervals must not name a value twice, got {names}")
        if not called:
            values = [name for name in known if name not in minima]
            names = list(dict.fromkeys(found for name in names for found in named_values(name, values, known)))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(self._no_interval(unknown, list(known), called))
        lowest = [name for name in names if name in minima]
        if lowest:
            named = f"interval({lowest[0]!r}) names a minimum" if called else f"intervals names {lowest}"
            raise ValueError(
                f"{named}, but the lowest of several uncertain values has no interval that covers it; name values of "
                "single classes"
            )
        return tuple(known[name] for name in names)

    def _no_interval(self, unknown: Sequence[str], known: Sequence[str], called: bool) -> str:
        """Return the error message for names without an interval, reported or not."""
        row = next((row for row in self.rows if row.name in unknown), None) if called else None
        if row is not None:
            kind = "a bound of one" if row.bound else "the worst of several uncertain values"
            return f"{row.name!r} has no interval, because it is {kind}"
        named = f"intervals names {unknown}, which are not reported"
        if called:
            named = f"interval({unknown[0]!r}) names a value that is not reported"
        remedy = did_you_mean(unknown[0], known)
        if not self.per_class:
            possible = values_of_classes({key: of_name(key, self.counting) for key in PER_CLASS}, self.class_names)
            keys = [row.measure for row in possible if row.name == unknown[0]]
            remedy = f"; per_class=[{keys[0]!r}] reports it for each class" if keys else remedy
        return f"{named}{remedy}; names are {first_names(known, 30)}"


def named_values(name: str, values: Sequence[str], known: Mapping[str, Row] | None = None) -> Sequence[str]:
    """Return the values that a pattern with ``*``, or a measure of each class, names; the name if there are none."""
    if "*" in name:
        return [each for each in values if re.fullmatch(re.escape(name).replace(r"\*", ".*"), each)] or [name]
    of_measure = [each for each, row in (known or {}).items() if row.measure == name]
    return [name] if name in (known or {}) else of_measure or [name]


def _ends(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of the low and the high bound of each value."""
    return (replace(row, bound=end) for row in rows for end in ENDS)


def _key(row: Row) -> str:
    """Return a key of the draws of a value; the values of all classes of a measure share it."""
    return repr((row.measure, row.kind, "" if row.kind == "class" else row.of))


def _counts_of(at: Snapshot, group: int | None, clusters: bool | None) -> tuple[Tensor, Tensor | None]:
    """Return the matrix of a group of samples or of all samples, and its buckets, if they are to be resampled.

    Samples of a single matrix that came without cluster ids are independent.
    """
    counts: Counts = at.counts
    single = isinstance(counts, Tensor) and counts.ndim == 2
    buckets = None if clusters is False or (single and not at.dependent) else at.buckets
    if group is not None:
        assert at.groups is not None
        counts = mapped(at.groups, itemgetter(group))
        buckets = None if buckets is None else buckets[group]
    elif buckets is not None and at.groups is not None:
        buckets = buckets.sum(0)
    assert isinstance(counts, Tensor)
    return counts, buckets


def largest_bucket(at: Snapshot, times: float = LARGE) -> str:
    """Name the share of the largest bucket of clusters if it is so many times as large as the mean; else return ""."""
    buckets = _counts_of(at, None, None)[1]
    if buckets is None:
        return ""
    sizes = buckets.flatten(1).sum(1)
    return largest_cluster(sizes[sizes > 0], times, BUCKETS).replace("clusters", "buckets of clusters")


def rarest_text(buckets: Tensor, class_names: Sequence[str], of: str = "") -> str:
    """Return a text that names the class which lies in few buckets, or ``of`` if it does; empty if none does."""
    held = (buckets.sum(-1) > 0).sum(0).tolist()  # [K], or [L, 2]
    named = [(number, name, repr(name)) for name, number in zip(class_names, held, strict=True)]
    if buckets.ndim == 4:
        negative, positive = ([of_label[index] for of_label in held] for index in (0, 1))
        named = [(number, name, repr(name)) for name, number in zip(class_names, positive, strict=True)]
        named += [(number, name, f"negatives of {name!r}") for name, number in zip(class_names, negative, strict=True)]
    few = [each for each in named if 0 < each[0] < FEW_BUCKETS and of in ("", each[1])]
    return f"only {min(few)[0]} of them with {min(few)[2]}" if few else ""
