"""Rows of a report, which stay structured until they are printed, and snapshots of the counts behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Margins, check_square, margins, rescaled, shown_dtype, sums
from imbtorch.readings.averaging import AveragedMeasure

__all__ = ["Bound", "Kind", "Row", "Snapshot", "shown"]

Kind: TypeAlias = Literal["overall", "class", "class group", "group", "worst", "rule"]
Bound: TypeAlias = Literal["", "low", "high"]


@dataclass(frozen=True)
class Row:
    """Identity of one value of a report.

    Attributes:
        measure: key of the measure in the report.
        better: whether higher is better; None without a direction.
        kind: scope of the value: all classes, one class, a class group, a group of samples, the worst of these groups,
            or a decision rule.
        of: name of that class, group or rule; empty for all classes.
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
    """Counts of all processes at one moment, on the CPU.

    Attributes:
        counts: ``[K, K]``, ``[L, 2, 2]``, or their margins.
        groups: counts of each group of samples, ``[G, ...]``; None without groups.
        prevalence: class shares of the population for which values are computed; None for those of the counts.
        buckets: counts of each bucket of clusters, ``[B, ...]``, or with groups ``[G, B, ...]``; None without clusters.
        dependent: whether samples came with the ids of clusters or with several positions.
        rest: settings and state on another device, if the counts are large and only their margins were copied.
    """

    counts: Counts
    groups: Counts | None = None
    prevalence: Tensor | None = None
    buckets: Tensor | None = None
    dependent: bool = False
    rest: tuple[Counting, Tensor] | None = None
    _read: dict[bool, Rates] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        counting: Counting,
        state: Tensor,
        prevalence: Tensor | None,
        rest: tuple[Counting, Tensor] | None = None,
    ) -> Snapshot:
        """View a state on the CPU as counts."""
        groups = None if counting.groups is None else counting.counts(state, of_groups=True)
        buckets = None
        if counting.clusters:
            buckets = check_square(counting.counts(state, of_groups=counting.groups is not None, of_buckets=True))
        return cls(counting.counts(state), groups, prevalence, buckets, bool(counting.dependent(state)), rest)

    @cached_property
    def whole(self) -> Snapshot:
        """Snapshot of the whole counts, which are copied from the device if only margins are here."""
        if self.rest is None:
            return self
        counting, state = self.rest
        return Snapshot.of(counting, state.cpu(), self.prevalence)

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

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: the whole counts, without the cache."""
        whole = self.whole
        counted = {each.name: getattr(whole, each.name) for each in fields(self)}
        return counted | {"rest": None, "_read": {}}


def shown(values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the numbers in values as scalars, in the dtype in which values are reported."""
    flat = [value.reshape(-1).double() for value in values]
    return torch.cat(flat).to(shown_dtype()).unbind() if flat else ()
