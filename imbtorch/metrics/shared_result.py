"""Base of metrics that report several values from one shared result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from typing_extensions import Self

from imbtorch.compat import rank_zero, warn_caller
from imbtorch.counting.arguments import cpu_by_default
from imbtorch.counting.tasks import MANY_CELLS, Counter
from imbtorch.counts import has_float64
from imbtorch.metrics.base import CountsMetric
from imbtorch.metrics.merging import batch_value
from imbtorch.metrics.state import Setting, property_names
from imbtorch.reports.rows import NOTED, Result, Row
from imbtorch.suggestions import did_you_mean, first_names

NESTED = (
    ". A MetricCollection sets it on members of a collection inside it; add the report to the outer collection itself"
)


def _shown(prevalence: Tensor | None, task: str) -> tuple[float, ...] | None:
    """Return class shares as the user passes them: for labels the shares of positives."""
    if prevalence is None:
        return None
    return tuple((prevalence[:, 1] if task == "multilabel" else prevalence).tolist())


PREVALENCE = Setting[tuple[float, ...] | None](
    lambda metric: _shown(metric._prevalence, metric.task),
    "Class shares for which values are computed (multilabel: the share of positives of each label). None if values are "
    "computed at the shares of the counted samples.",
)
"""Attribute of the metrics that compute values at other class shares."""


class SharedResult(CountsMetric):
    """Metric with several values, each of them a :class:`ReportedValue` that reads one shared result.

    The first name read computes the result; the others reuse it until a name is read again. A single process also
    computes it again if samples were counted since. Several processes do not check this: if only one of them had
    counted more, it would wait for a sum in which the others take no part.
    """

    prefix = Setting[str]("_prefix", "Text before each name.", NESTED)
    postfix = Setting[str]("_postfix", "Text after each name.", NESTED)

    if TYPE_CHECKING:  # TorchScript would read the annotation
        _prevalence: Tensor | None
        """Class shares, as :meth:`~imbtorch.counting.tasks.Counting.checked_prevalence` returns them, or None."""

    def _name(self, rows: Sequence[Row], prefix: str, postfix: str) -> None:
        """Make a metric for each row, and index it by its name with and without prefix and postfix.

        Raises:
            TypeError: for a prefix or postfix that is not a string.
            ValueError: if prefix and postfix turn the name of one value into that of another.
        """
        for argument, affix in (("prefix", prefix), ("postfix", postfix)):
            if not isinstance(affix, str):
                raise TypeError(f"{argument} must be a string such as 'val_', got {affix!r}")
        self._prefix, self._postfix = prefix, postfix
        self._values = nn.ModuleList(ReportedValue(self, row) for row in rows)
        self._index = {row.name: index for index, row in enumerate(rows)}
        for index, row in enumerate(rows):
            if self._index.setdefault(self.full_name(row), index) != index:
                affixes = " and ".join(
                    f"{name}={affix!r}" for name, affix in (("prefix", prefix), ("postfix", postfix)) if affix
                )
                raise ValueError(
                    f"{affixes} would log {row.name!r} as {self.full_name(row)!r}, which is the name of another value; "
                    "choose another prefix or postfix, or rename the measure"
                )
        self._last: Result | None = None
        self._reported_values: dict[Row, Tensor] = {}  # values of the last result on the device of the counts
        self._served: set[Row] | None = None  # rows read from the last result; None if it must be computed again
        self._stale = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count a batch and return its values, as :meth:`forward` does.

        Raises:
            TypeError: for the ``EvalPrediction`` that a ``transformers.Trainer(compute_metrics=report)`` passes.
        """
        if len(args) == 1 and hasattr(args[0], "label_ids"):
            raise TypeError(
                "a report cannot be the compute_metrics function of a Trainer; use "
                "Trainer(compute_metrics=imbtorch.huggingface.compute_metrics(report, args))"
            )
        return super().__call__(*args, **kwargs)

    def clone(self, prefix: str | None = None, postfix: str | None = None) -> Self:
        """Return a copy with counts of its own, for example for each stage of a training.

        Args:
            prefix: text before each name of the copy; by default unchanged.
            postfix: text after each name of the copy; by default unchanged.

        >>> from imbtorch import ImbalanceReport
        >>> report = ImbalanceReport("binary", measures=["iam"], per_class=())
        >>> train, val, test = (report.clone(prefix=name) for name in ("train/", "val/", "test/"))
        >>> val.keys()
        ['val/iam']
        """
        copied = cast(Self, super().clone())
        if prefix is not None or postfix is not None:
            last = copied._last
            affixes = (old if new is None else new for old, new in ((self._prefix, prefix), (self._postfix, postfix)))
            copied._name([value.row for value in self.values()], *affixes)
            copied._last = last
            copied._note_change()
        return copied

    def keys(self) -> list[str]:
        """Return all names, with prefix and postfix."""
        return [value.full_name for value in self.values()]

    def values(self) -> Iterator[ReportedValue]:
        """Iterate over all values, each a metric that reads this report."""
        yield from self._values  # type: ignore[misc]

    def items(self) -> Iterator[tuple[str, ReportedValue]]:
        """Iterate over names, with prefix and postfix, and their metrics, which ``self.log_dict(report)`` logs."""
        for value in self.values():
            yield value.full_name, value

    def __contains__(self, name: object) -> bool:
        """Return whether a name is reported, with or without prefix and postfix."""
        return name in self._index

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        """Iterate over names, with prefix and postfix."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __getitem__(self, name: str) -> ReportedValue:  # type: ignore[override]
        """Return the metric of a name, with or without prefix and postfix."""
        if name not in self._index:
            names = [value.name for value in self.values()]
            raise KeyError(f"{name!r} is not reported{did_you_mean(name, names)}; names are {first_names(names)}")
        return self._values[self._index[name]]  # type: ignore[return-value]

    def full_name(self, row: Row) -> str:
        """Return the name of a value with prefix and postfix, as logged."""
        return f"{self._prefix}{row.name}{self._postfix}"

    def _by_full_name(self, values: Mapping[Row, Tensor]) -> dict[str, Tensor]:
        return {self.full_name(row): value for row, value in values.items()}

    def _own(self, state: Tensor) -> Tensor:
        """Return a state that a result can keep while the metric goes on counting."""
        if self._is_synced or not (state.is_cpu or state.numel() > MANY_CELLS):  # only this call uses it, or a copy
            return state
        self._last = None  # frees its memory for the copy, which is faster than new memory
        return state.clone()

    def _warn_of_problems(self, result: Result) -> None:
        """Warn of what speaks against a result, once for each kind of problem between resets."""
        if not self.quiet and rank_zero():
            for kind, text in result._found(self._already_warned | NOTED):
                self._warn_once(kind, f"{type(self).__name__}: {text}")

    def _keep(self, result: Result) -> dict[str, Tensor]:
        """Keep a result for later reads, and return its values by full name."""
        values = self._on_device(result.rows)
        result._warn_with(self._already_warned)
        # Module.__setattr__ takes as long as a measure
        vars(self).update(_last=result, _served=None, _stale=False, _reported_values=values)
        return self._by_full_name(values)

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        """Return the values of the state of one batch, on the CPU."""
        raise NotImplementedError

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> dict[str, Tensor]:
        with cpu_by_default():
            return self._by_full_name(self._on_device(self._values_of_a_batch(counter, state.cpu())))

    def _on_device(self, values: Mapping[Row, Tensor]) -> dict[Row, Tensor]:
        """Copy scalars to the device of the counts, all at once and without a wait."""
        device = self._state.device
        if device.type == "cpu":
            return dict(values)
        kind = torch.float64 if has_float64(device) else torch.float32
        there = torch.stack([value.to(kind) for value in values.values()]).to(device, non_blocking=True)
        narrow = there.to(torch.float32).unbind()
        moved = zip(values.items(), there.unbind(), narrow, strict=True)
        return {row: wide if value.dtype == torch.float64 else single for (row, value), wide, single in moved}

    def _value_of(self, row: Row) -> Tensor:
        """Return one value from the shared result; compute the result first if it must be."""
        if self._served is None or row in self._served or (self._stale and not self._distributed()):
            self.compute()
            self._served = set()
        elif self._stale:
            warn_caller(
                f"{row.name!r} is read from the same sum over processes as the names before it, although samples were "
                "counted since; read all names one after the other, or call compute() for a new sum",
            )
        self._served.add(row)
        return self._reported_values[row]

    @property
    def last_result(self) -> Result | None:
        """Result computed last, a new object after each computation; None before the first. Never computes."""
        return self._last

    def result(self) -> Result:
        """Return the last computed result; never communicates.

        If samples were added after the last ``compute``, a single process computes the result again; several processes
        keep it until all of them call ``compute``. ``reset`` keeps the last result.

        Raises:
            RuntimeError: on several processes, if nothing was computed yet.
        """
        if (self._last is None or self._stale) and not self._distributed():
            self.compute()
        if self._last is None:
            raise RuntimeError(
                "nothing was computed yet; call compute() on all processes first (table() and plot() never communicate)"
            )
        return self._last

    def reset(self) -> None:
        """Set all counts to zero; the last result stays available."""
        super().reset()
        self._served, self._stale = None, False

    def _reset_by_value(self) -> None:
        """Reset once, even if every value asks for it."""
        if self._served is not None or not self._empty:
            self.reset()


class ReportedValue(Metric):
    """Single value of a report: a metric without a state, which reads the shared result of the report.

    ``report["iam"]`` returns it.

    Args:
        report: report or sweep that counts.
        row: identity of the value.

    >>> from imbtorch import ImbalanceReport
    >>> report = ImbalanceReport("binary", measures=["accuracy", "recall"])
    >>> report.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 1, 1]))
    >>> report["recall"].compute()
    tensor(0.6667)
    """

    full_state_update = False
    is_differentiable = False

    if TYPE_CHECKING:  # TorchScript would read annotations
        report: SharedResult
        row: Row

    def __init__(self, report: SharedResult, row: Row) -> None:
        # torchmetrics' constructor would take half a minute for 100,000 classes and set the same attributes for each
        # value; the class has them. The report is no submodule, since the values are submodules of the report.
        vars(self).update(report=report, row=row)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle or copy."""
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or copied state."""
        vars(self).update(state)

    @property
    def name(self) -> str:
        """Name in the report, without prefix and postfix."""
        return self.row.name

    @property
    def full_name(self) -> str:
        """Name with prefix and postfix, as logged."""
        return self.report.full_name(self.row)

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Direction of the value: True if higher is better, None without a direction."""
        return self.row.better

    @property  # type: ignore[override]
    def _forward_cache(self) -> Tensor | None:
        """Value of the report's last batch, which Lightning logs for ``on_step=True``."""
        cache = batch_value(self.report)
        return None if cache is None else cache.get(self.full_name)

    @_forward_cache.setter
    def _forward_cache(self, value: object) -> None:
        """Ignore values that torchmetrics sets: the report keeps the batch values."""

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return compute

    def _apply(self, *_: Any, **__: Any) -> ReportedValue:
        """Return the metric unchanged: it has no tensors, but Lightning moves every logged value."""
        return self

    @property
    def device(self) -> torch.device:
        """Device on which the report counts."""
        return self.report.device

    def update(self, *_: Any, **__: Any) -> None:
        """Raise a TypeError: only the report itself counts."""
        raise TypeError(f"{self.name!r} is a value of a report; call update of the report itself, once for all values")

    @torch.jit.unused
    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Raise a TypeError: only the report itself counts."""
        raise TypeError(f"{self.name!r} is a value of a report; call the report itself, once for all values")

    def compute(self) -> Tensor:
        """Compute the value from the counts of all processes (a collective step)."""
        return self.report._value_of(self.row)

    def reset(self) -> None:
        """Reset the report."""
        self.report._reset_by_value()

    def merge_state(self, incoming_state: object) -> None:
        """Raise a TypeError: only the report itself counts."""
        raise TypeError(f"{self.name!r} is a value of a report; call merge_state of the report itself")

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the value, or the course of values over epochs.

        Args:
            val: a value or a sequence of values; by default the value of the last result, without communication.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.values import plot_values

        return plot_values(self.report.result()[self.name] if val is None else val, ax, name=self.name)

    def __hash__(self) -> int:
        """Hash by identity."""
        return hash((type(self).__name__, id(self)))

    def __repr__(self) -> str:
        """Return one line."""
        return f"{type(self).__name__}({self.full_name!r}, higher_is_better={self.row.better})"


def _share_attributes(cls: type[Metric]) -> None:
    """Give a class the attributes that torchmetrics' constructor would set on each instance."""
    blank = cls.__new__(cls)
    Metric.__init__(blank)
    for name, value in vars(blank).items():
        if not hasattr(cls, name):
            setattr(cls, name, value)
    cls.__jit_unused_properties__ = property_names(cls)


_share_attributes(ReportedValue)
