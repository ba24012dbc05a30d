"""Rows of reports and sweeps, snapshots of the counts behind them, and the base of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pickle import UnpicklingError
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from imbtorch.compat import rank_zero, warn_once
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Margins, check_square, mapped, margins, rescaled, shown_dtype, sums
from imbtorch.measures.named import AveragedMeasure
from imbtorch.tables import wrapped

Kind: TypeAlias = Literal["overall", "class", "class group", "group", "worst"]
Bound: TypeAlias = Literal["", "low", "high"]


@dataclass(frozen=True)
class Row:
    """Identity of one value of a report.

    Attributes:
        measure: key of the measure in the report.
        better: whether higher is better; None without a direction.
        kind: scope of the value: all classes, one class, a class group, a group of samples, or the worst of these.
        of: name of that class or group; empty for all classes.
        bound: ``"low"`` or ``"high"`` for a bound of its interval; empty for the value itself.
        by: what groups the samples, such as ``"site"``, if a group has the name of a class; else empty.

    >>> Row("recall", True, "class", "cat", bound="low").name
    'recall/cat_low'
    """

    measure: str
    better: bool | None
    kind: Kind = "overall"
    of: str = ""
    bound: Bound = ""
    by: str = ""

    @cached_property
    def name(self) -> str:
        """Name in the report, without prefix and postfix. Names are composed only here and never parsed."""
        measure = f"{self.measure}_worst" if self.kind == "worst" else self.measure
        measure = f"{measure}/{group_label(self.by, self.of)}" if self.of else measure
        return f"{measure}_{self.bound}" if self.bound else measure


def group_label(by: str, name: str) -> str:
    """Return the name of a group of samples, such as ``site=0`` where a class has the same name."""
    return f"{by}={name}" if by else name


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


# --- results ---------------------------------------------------------------------------------------------------------
SCHEMA = 4  # version of pickled results; raise it when their contents change
R = TypeVar("R", bound="Result")
Finder: TypeAlias = tuple[str, Callable[[Any], str]]  # kind of a problem, and what describes it
NOTED = {"few positives"}  # kinds that results hold, but no metric warns of
TOO_NARROW = (
    "the interval treats them as independent and is too narrow; build it with clusters=True, and pass "
    "update(..., cluster=ids) unless each sample is a cluster of its own positions"
)
PROMISED = (
    "the promise treats them as independent and fails more often than it says; promise on one sample of each cluster"
)


def dependence_text(counting: Counting, dependent: bool, consequence: str = TOO_NARROW) -> str:
    """Return a warning if dependent samples are taken for independent ones, or if clusters lack ids; else ""."""
    if dependent and not counting.clusters:
        cause = "samples came with clusters or have several positions, such as pixels, but were counted by a metric"
        return f"{cause} without clusters, so {consequence}"
    if dependent or not counting.clusters or counting.task == "multilabel":
        return ""
    return (
        "built with clusters=True, but no update passed cluster=, so each sample is a cluster of its own and intervals "
        "treat samples as independent; pass update(..., cluster=ids), or leave clusters=True out"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Base class of the results of reports and sweeps, computed from the counts of all processes.

    A result never changes and never communicates; it returns copies of its tensors. It can be pickled, and unpickled
    without the metric and without the device that counted.
    """

    _rows: Mapping[Row, Tensor]

    @property
    def _all_counts(self) -> Counts:
        raise NotImplementedError

    @property
    def _came(self) -> tuple[Counting, bool]:
        """Manner of counting, and whether samples came with the ids of clusters or with several positions."""
        raise NotImplementedError

    def _warn_with(self, warned: set[str]) -> None:
        """Warn about nothing that a metric has warned about, and the other way round."""
        vars(self)["_warned"] = warned

    def _warn_if_dependent(self, consequence: str = TOO_NARROW) -> None:
        """Warn once, on rank zero, of :func:`dependence_text`."""
        if (text := dependence_text(*self._came, consequence)) and rank_zero():
            warned = vars(self).setdefault("_warned", set())
            warn_once(warned, "dependent", f"{type(self).__name__}: {text}")

    @property
    def _finders(self) -> tuple[Finder, ...]:
        """Functions that describe what speaks against the values."""
        raise NotImplementedError

    def _found(self, told: set[str]) -> Iterator[tuple[str, str]]:
        """Yield kind and text of each problem, but of kinds that were told; add its kind to them."""
        for kind, find in self._finders:
            if kind not in told and (text := find(self)):
                yield kind, text
                told.add(kind)

    @cached_property
    def problems(self) -> dict[str, str]:
        """Problems of the values, kind -> text: classes without targets, groups without samples, and the like.

        The table shows these texts below its values, and the JSON of a report holds them.

        >>> from imbtorch import report
        >>> result = report(preds=["cat", "dog"], target=["cat", "cat"], class_names=["cat", "dog"])
        >>> result.problems["unseen"].partition(";")[0]
        '1 of 2 classes had no target: dog'
        """
        return dict(self._found(set()))

    @property
    def rows(self) -> dict[Row, Tensor]:
        """Dict of row -> value."""
        return {row: value.clone() for row, value in self._rows.items()}

    @property
    def values(self) -> dict[str, Tensor]:
        """Dict of name -> value; names are without prefix and postfix."""
        return {row.name: value.clone() for row, value in self._rows.items()}

    @property
    def counts(self) -> Counts:
        """Counts from which the values were computed."""
        return mapped(self._all_counts, Tensor.clone)

    @cached_property
    def _by_name(self) -> dict[str, Tensor]:
        return {row.name: value for row, value in self._rows.items()}

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of a name, without prefix and postfix."""
        if name not in self._by_name:
            raise KeyError(f"{name!r} was not computed; names are {', '.join(self._by_name)}")
        return self._by_name[name].clone()

    def __contains__(self, name: object) -> bool:
        """Return whether a value has this name."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._by_name)

    def __deepcopy__(self: R, memo: dict[int, Any]) -> R:
        """Return the same object, because it never changes."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle."""
        own = {name: part for name, part in vars(self).items() if name not in ("_by_name", "_warned", "problems")}
        rows = {row: value.clone() for row, value in self._rows.items()}
        return own | {"schema": SCHEMA, "_rows": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled state of the same schema."""
        schema = state.get("schema")
        if schema != SCHEMA:
            raise UnpicklingError(
                f"this {type(self).__name__} was saved with schema {schema!r}, and this version of imbtorch reads "
                f"schema {SCHEMA}; open it with the version that saved it, or compute it again"
            )
        vars(self).update({name: part for name, part in state.items() if name != "schema"})

    def __repr__(self) -> str:
        """Return the first values."""
        shown = ", ".join(f"{name}={value:.3f}" for name, value in list(self._by_name.items())[:10])
        more = f", and {len(self._rows) - 10} more" if len(self._rows) > 10 else ""
        return wrapped(f"{type(self).__name__}({shown}{more})")
