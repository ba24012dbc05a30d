"""One shared result under many names: the base of metrics that report more than one value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from imbtorch.confusion import Counts, Margins
from imbtorch.metric import CountsMetric

__all__ = ["NamedValues", "ReportedValue"]


class NamedValues(CountsMetric):
    """A metric with many values, each of them a :class:`ReportedValue` that reads one shared result."""

    def _name(self, directions: Mapping[str, bool | None], prefix: str = "", postfix: str = "") -> None:
        """Make a metric of each name, given which direction of it is better."""
        self.prefix, self.postfix = prefix, postfix
        self._values = nn.ModuleList(ReportedValue(self, name, better) for name, better in directions.items())
        self._index = {name: index for index, name in enumerate(directions)}
        self._index |= {f"{prefix}{name}{postfix}": index for index, name in enumerate(directions)}
        self._result: _Result | None = None  # what the values read; dropped wherever it could be stale
        self._fresh = self._mark()  # tells whether there is anything to reset
        self._shown: _Result | None = None  # what is drawn and tabled; outlives a reset

    def keys(self) -> list[str]:
        """All names, with prefix and postfix."""
        return [value.full_name for value in self.values()]

    def values(self) -> Iterator[ReportedValue]:
        """All values, each a metric that reads this report."""
        yield from self._values  # type: ignore[misc]

    def items(self) -> Iterator[tuple[str, ReportedValue]]:
        """Names with prefix and postfix, and the metric of each: what ``self.log_dict(report)`` logs."""
        for value in self.values():
            yield value.full_name, value

    def __contains__(self, name: object) -> bool:
        """Whether a name is reported, with prefix and postfix or without both."""
        return name in self._index

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        """Names with prefix and postfix."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Number of values."""
        return len(self._values)

    def __getitem__(self, name: str) -> ReportedValue:  # type: ignore[override]
        """Metric of one name, with prefix and postfix or without both."""
        if name not in self._index:
            raise KeyError(f"{name!r} is not reported; names are {', '.join(value.name for value in self.values())}")
        return self._values[self._index[name]]  # type: ignore[return-value]

    def _keep(self, counts: Counts, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Keep a result for what is shown later, and return its values by full name."""
        last = None if self._shown is None else self._shown.counts
        self._shown = self._result = None
        # a synced state is this call's own; the local one goes on counting, so what is shown later is a copy of it
        kept = counts if self._is_synced else copied(counts, last)
        self._shown = _Result(kept, values, self._mark(), set())
        return {f"{self.prefix}{name}{self.postfix}": value.clone() for name, value in values.items()}

    def _value_of(self, name: str) -> Tensor:
        """One value for a :class:`ReportedValue`, from a result that all of them share.

        A result serves each name once: whoever reads a name again wants it anew. On a single process it also serves
        only while the counts are unchanged. Several processes must not ask that, since one of them alone may have
        counted in between: it would wait for a sum that the others do not see the need for.
        """
        result = self._result
        changed = result is not None and result.mark != self._mark()
        if result is None or name in result.served or (changed and not self._distributed()):
            self.compute()
            result = self._result = self._shown
            assert result is not None
        elif changed:
            warnings.warn(
                f"{name!r} is read from the same sum over processes as the names before it, although counts came "
                "since; read all names in one go, or call compute() for new ones",
                stacklevel=3,
            )
        result.served.add(name)
        return result.values[name].clone()

    def _last(self) -> _Result:
        """Last computed result; on a single process, a fresh one if counts came since."""
        stale = self._shown is None or self._mark() not in (self._shown.mark, self._fresh)
        if stale and not self._distributed():
            self.compute()
        if self._shown is None:
            raise RuntimeError(
                "nothing was computed yet; call compute() on all processes first (table() and plot() never communicate)"
            )
        return self._shown

    def reset(self) -> None:
        """Set all counts to zero and start anew; the last result can still be shown."""
        super().reset()
        self._result = None
        self._fresh = self._mark()

    def _reset_by_value(self) -> None:
        """Reset once, however many values are told to."""
        if self._result is not None or self._mark() != self._fresh:
            self.reset()


class ReportedValue(Metric):
    """One name of a report: a metric without a state that reads the report's one result.

    Args:
        report: where the counts are.
        name: name in the report, without prefix and postfix.
        better: whether higher is better; None without a direction.
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, report: NamedValues, name: str, better: bool | None) -> None:
        super().__init__()
        object.__setattr__(self, "report", report)  # not a submodule: the report holds its values, not they it
        self.name = name
        self._better = better

    report: NamedValues

    @property
    def full_name(self) -> str:
        """Name with prefix and postfix, as it is logged."""
        return f"{self.report.prefix}{self.name}{self.report.postfix}"

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether higher is better; None without a direction."""
        return self._better

    @property  # type: ignore[override]
    def _forward_cache(self) -> Tensor | None:
        """Value of the report's last batch, which Lightning logs for ``on_step=True``."""
        cache = self.report._forward_cache
        return None if cache is None else cache.get(self.full_name)

    @_forward_cache.setter
    def _forward_cache(self, value: object) -> None:
        """Ignore what torchmetrics sets: the report keeps the batch values."""

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return compute

    def _apply(self, *_: Any, **__: Any) -> ReportedValue:
        """Nothing to move; Lightning asks for it with every value that is logged."""
        return self

    @property
    def device(self) -> torch.device:
        """Where the report counts."""
        return self.report.device

    def update(self, *_: Any, **__: Any) -> None:
        """Refuse: the report counts for all its values.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self.name!r} is read off a report; call update of the report itself, once for all values")

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Refuse: the report counts for all its values.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self.name!r} is read off a report; call the report itself, once for all values")

    def compute(self) -> Tensor:
        """Value of all counts, of all processes (a collective step)."""
        return self.report._value_of(self.name)

    def reset(self) -> None:
        """Reset the report."""
        self.report._reset_by_value()

    def __hash__(self) -> int:
        """Hash by identity."""
        return hash((type(self).__name__, id(self)))

    def __repr__(self) -> str:
        """One line."""
        return f"{type(self).__name__}({self.full_name!r}, higher_is_better={self._better})"


@dataclass
class _Result:
    """Values and the counts they are of."""

    counts: Counts
    values: dict[str, Tensor]
    mark: tuple[int, int, int]
    served: set[str]


def copied(counts: Counts, into: Counts | None = None) -> Counts:
    """Copy of counts, in the memory of others that are needed no more: that of a large matrix takes long to get."""
    if isinstance(counts, Margins):
        return Margins(*(part.clone() for part in counts))
    if not isinstance(into, Tensor) or (into.shape, into.device) != (counts.shape, counts.device):
        return counts.clone()
    if into.is_inference() and not torch.is_inference_mode_enabled():
        return counts.clone()
    return into.copy_(counts)


def checked_names(class_names: Sequence[str]) -> list[str]:
    """Return class names as a list if they are strings that differ, else raise."""
    if isinstance(class_names, str):
        raise TypeError(f"class_names must be a sequence of names, got the string {class_names!r}")
    names = list(class_names)
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"class_names must be non-empty strings, got {names!r}")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if twice:
        raise ValueError(f"class_names must differ, got {', '.join(twice)} more than once")
    return names
