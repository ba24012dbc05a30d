"""Base of results of metrics with several values, which are frozen and independent of the metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pickle import UnpicklingError
from typing import Any, TypeVar

from torch import Tensor

from imbtorch.compat import rank_zero, warn_once
from imbtorch.counts import Counts, mapped
from imbtorch.readings.rows import Row
from imbtorch.readings.tables import wrapped

__all__ = ["PROMISED", "Result", "dependent_text"]

SCHEMA = 4  # version of pickled results; raise it when their contents change
R = TypeVar("R", bound="Result")

TOO_NARROW = (
    "the interval treats them as independent and is too narrow; build it with clusters=True, and pass "
    "update(..., cluster=ids) unless each sample is a cluster of its own positions"
)
PROMISED = (
    "the promise treats them as independent and fails more often than it says; promise on one sample of each cluster"
)


def dependent_text(name: str, consequence: str = TOO_NARROW) -> str:
    """Return the warning about dependent samples that are taken for independent ones."""
    return (
        f"{name}: samples came with clusters or have several positions, such as pixels, but were counted by a metric "
        f"without clusters, so {consequence}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Base class of the results of reports and sweeps, computed from the counts of all processes.

    A result never changes and never communicates; it returns copies of its tensors. It can be pickled, and unpickled
    without the metric and without the device that counted.
    """

    _rows: Mapping[Row, Tensor]

    @property
    def _counted(self) -> Counts:
        raise NotImplementedError

    @property
    def _dependent(self) -> bool:
        """True if samples depend on each other and no buckets show how much."""
        return False

    def _warn_with(self, warned: set[str]) -> None:
        """Warn about nothing that a metric has warned about, and the other way round."""
        vars(self)["_warned"] = warned

    def _warn_if_dependent(self, consequence: str = TOO_NARROW) -> None:
        """Warn once, on rank zero, if dependent samples are taken for independent ones."""
        if self._dependent and rank_zero():
            warned = vars(self).setdefault("_warned", set())
            warn_once(warned, "dependent", dependent_text(type(self).__name__, consequence))

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
        return mapped(self._counted, Tensor.clone)

    @cached_property
    def _by_name(self) -> dict[str, Tensor]:
        return {row.name: value for row, value in self._rows.items()}

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of a name, without prefix and postfix."""
        if name not in self._by_name:
            raise KeyError(f"{name!r} was not computed; names are {', '.join(self._by_name)}")
        return self._by_name[name].clone()

    def __deepcopy__(self: R, memo: dict[int, Any]) -> R:
        """Return the same object, because it never changes."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle."""
        own = {name: part for name, part in vars(self).items() if name not in ("_by_name", "_warned")}
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
