"""Rows of a report, which stay structured until they are printed, and views that compute their values from counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, mapped, margins, rescaled, sums
from imbtorch.metrics.averaging import AveragedMeasure, one_value

__all__ = ["Bound", "Kind", "Overall", "PerClass", "Row", "Snapshot", "View"]

Kind: TypeAlias = Literal["overall", "class", "class group", "superclass", "group", "worst"]
Bound: TypeAlias = Literal["", "low", "high"]


@dataclass(frozen=True)
class Row:
    """Identity of one value of a report.

    Attributes:
        measure: key of the measure in the report.
        better: whether higher is better; None without a direction.
        kind: scope of the value: all classes, one class, a class group, a superclass, a group of samples, or the worst
            of these groups.
        of: name of that class or group; empty for all classes.
        bound: ``"low"`` or ``"high"`` for a bound of its interval; empty for the value itself.
    """

    measure: str
    better: bool | None
    kind: Kind = "overall"
    of: str = ""
    bound: Bound = ""

    @cached_property
    def name(self) -> str:
        """Name in the report, without prefix and postfix. Names are composed only here and never parsed.

        >>> Row("recall", True, "class", "cat", bound="low").name
        'recall/cat_low'
        """
        measure = f"{self.measure}_worst" if self.kind == "worst" else self.measure
        measure = f"{measure}/{self.of}" if self.of else measure
        return f"{measure}_{self.bound}" if self.bound else measure


class Rates(NamedTuple):
    """Counts, or rates at another prevalence, with their margins."""

    counts: Counts
    marginal: Margins


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Counts of all processes at one moment.

    Attributes:
        counts: ``[K, K]``, ``[L, 2, 2]``, or their margins.
        groups: counts of each group of samples, ``[G, ...]``; None without groups.
        prevalence: class shares of the population for which values are computed; None for those of the counts.
        buckets: counts of each bucket of clusters, ``[B, ...]``, or with groups ``[G, B, ...]``; None without clusters.
        dependent: number of samples that came with the id of a cluster or with several positions; None without
            clusters.
    """

    counts: Counts
    groups: Counts | None = None
    prevalence: Tensor | None = None
    buckets: Tensor | None = None
    dependent: Tensor | None = None
    _read: dict[bool, Rates] = field(default_factory=dict, init=False, repr=False)

    def read(self, *, of_groups: bool = False) -> Rates:
        """Return the counts, rescaled to the prevalence, with their margins; cached."""
        if of_groups not in self._read:
            counts = self.groups if of_groups else self.counts
            assert counts is not None
            rates = counts if self.prevalence is None else rescaled(counts, self.prevalence)
            counted = sums(rates) if rates is counts else rates  # counts of a state need no check
            self._read[of_groups] = Rates(rates, margins(counted))
        return self._read[of_groups]

    def value(self, measure: AveragedMeasure, *, of_groups: bool = False) -> Tensor:
        """Return the value of a measure, ``[]``, or ``[G]`` for groups."""
        return measure.value_of(*self.read(of_groups=of_groups))

    def of_classes(self, key: str, measure: AveragedMeasure) -> Tensor:
        """Return the values of a measure for each class ``[K]``, or label ``[L]``.

        Raises:
            ValueError: if a function of the user returns another shape.
        """
        counts, marginal = self.read()
        values = measure.value_of(counts, marginal)
        shape = marginal.actual.shape[:-1] if measure.counting.task == "multilabel" else marginal.actual.shape
        if not isinstance(values, Tensor) or values.shape != shape:
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"per_class[{key!r}] must return one value for each class, {list(shape)} for counts "
                f"{[*shape, shape[-1]]}, got {got}"
            )
        return values

    def shown(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return values as scalars on the device of the counts, in float32, or float64 if that is the default dtype.

        Half precision would hide differences between epochs.
        """
        counts = self.counts.actual if isinstance(self.counts, Margins) else self.counts
        wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        return [part for value in values for part in value.to(counts.device, wide).reshape(-1).unbind()]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, on the CPU and without the cache."""
        counted = {name: part for name, part in vars(self).items() if name != "_read"}
        return {name: None if part is None else mapped(part, Tensor.cpu) for name, part in counted.items()} | {
            "_read": {}
        }


class View(Protocol):
    """Protocol of some values of a report: their rows, and their computation from counts."""

    argument: ClassVar[str]
    """Argument of the report that adds these rows."""
    drawn: ClassVar[bool]
    """True if values need random draws; :meth:`forward` leaves them out of the values of a batch."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows in the order in which they are reported."""

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row, in their order; a tensor may hold one ``[]`` or several ``[n]`` of them."""


@dataclass(frozen=True)
class Overall:
    """View of the measures of all classes.

    Attributes:
        measures: key -> measure.
    """

    measures: Mapping[str, AveragedMeasure]
    argument: ClassVar[str] = "measures"
    drawn: ClassVar[bool] = False

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows, one for each measure."""
        return tuple(Row(key, measure.higher_is_better) for key, measure in self.measures.items())

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row."""
        return [one_value(key, at.value(measure)) for key, measure in self.measures.items()]


@dataclass(frozen=True)
class PerClass:
    """View of the measures of each class, or label.

    Attributes:
        measures: key -> measure with one value for each class.
        class_names: names of the classes or labels.
    """

    measures: Mapping[str, AveragedMeasure]
    class_names: tuple[str, ...]
    argument: ClassVar[str] = "per_class"
    drawn: ClassVar[bool] = False

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows, one for each measure and class."""
        directions = ((key, measure.higher_is_better) for key, measure in self.measures.items())
        return tuple(Row(key, better, "class", name) for key, better in directions for name in self.class_names)

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row."""
        return [at.of_classes(key, measure) for key, measure in self.measures.items()]
