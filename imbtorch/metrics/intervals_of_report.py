"""Intervals of the values of a report: whose limits are reported, and drawing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.analysis.intervals import Interval, posterior
from imbtorch.counts import Measure
from imbtorch.metrics.averaging import AtPrevalence, AveragedMeasure

__all__ = ["ReportedIntervals"]

DRAWS = 2000  # of the posterior


@dataclass(frozen=True)
class ReportedIntervals:
    """Values of a report that have an interval.

    Attributes:
        overall: name -> measure of all classes.
        of_classes: name -> measure with one value for each class.
        classes: name such as ``recall/fraud`` -> the measure and the index of the class.
        names: of the report, in the order in which they were asked for.
    """

    overall: Mapping[str, AveragedMeasure]
    of_classes: Mapping[str, AveragedMeasure]
    classes: Mapping[str, tuple[str, int]]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        given: bool | Sequence[str],
        measures: Mapping[str, AveragedMeasure],
        per_class: Mapping[str, AveragedMeasure],
        class_names: Sequence[str],
    ) -> ReportedIntervals:
        """Find the values that are meant: True for all ``measures``.

        Raises:
            ValueError: for names that are not reported, that occur twice, and for lowest values, whose intervals would
                not hold them.
            TypeError: for a string.
        """
        if isinstance(given, str):
            raise TypeError(f"intervals must be True, False or a sequence of names such as [{given!r}], got a string")
        classes = {f"{each}/{label}": (each, at) for each in per_class for at, label in enumerate(class_names)}
        minima = [name for name, measure in measures.items() if measure.average == "min"]
        names = [name for name in measures if name not in minima] if given is True else list(given or ())
        _check_names(names, [*measures, *classes], minima)
        wanted = {name: classes[name] for name in names if name not in measures}
        of_classes = {each: per_class[each] for each, _ in wanted.values()}
        return cls({name: measures[name] for name in names if name in measures}, of_classes, wanted, tuple(names))

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.names)

    def directions(self) -> Iterator[tuple[str, bool | None]]:
        """Names of all limits, and which direction of each is better."""
        for name in self.names:
            measure = self.overall.get(name) or self.of_classes[self.classes[name][0]]
            for limit in ("low", "high"):
                yield f"{name}_{limit}", measure.higher_is_better

    def to_draw(self, priors: Tensor | None) -> Mapping[str, Measure]:
        """Measures to draw, each once for all of its classes.

        Args:
            priors: class shares at which draws, which are of counts, are read; None for the draws themselves, of which
                measures then say whether margins will do.
        """
        measures = {**self.overall, **{f"{each}/": measure for each, measure in self.of_classes.items()}}
        if priors is None:
            return measures
        return {name: AtPrevalence(measure, priors) for name, measure in measures.items()}

    def by_name(self, found: Mapping[str, Interval]) -> dict[str, Interval]:
        """Interval of each value, of those of the measures in :meth:`to_draw`."""
        of_classes = {name: _at(found[f"{each}/"], index) for name, (each, index) in self.classes.items()}
        return {name: found[name] if name in self.overall else of_classes[name] for name in self.names}

    def drawn(self, counts: Tensor, priors: Tensor | None) -> dict[str, Interval]:
        """Interval of each value of ``[K, K]`` or ``[L, 2, 2]``, all from the same draws, the same on all processes."""
        generator = torch.Generator(counts.device).manual_seed(0)
        found = posterior(self.to_draw(priors), counts, samples=DRAWS, generator=generator, event_dims=counts.ndim)
        return self.by_name(found)


def _at(interval: Interval, index: int) -> Interval:
    """Interval of one class."""
    value, low, high = (part[..., index] for part in (interval.estimate, interval.low, interval.high))
    return Interval(value, low, high, interval.level, interval.method)


def _check_names(names: Sequence[str], known: Sequence[str], minima: Sequence[str]) -> None:
    """Raise for names of values that are not known, that occur twice, or that are lowest values."""
    unknown = [name for name in names if name not in known]
    if unknown:
        shown = ", ".join(known[:30]) + (", ..." if len(known) > 30 else "")
        raise ValueError(f"intervals names {unknown}, which are not reported; names are {shown}")
    if len(set(names)) < len(names):
        raise ValueError(f"intervals must not name a value twice, got {list(names)}")
    lowest = [name for name in names if name in minima]
    if lowest:
        raise ValueError(
            f"intervals names {lowest}, but the lowest of several uncertain values has no interval that holds it; name "
            "the values of the classes"
        )
