"""The validations of a training, and the measures of the report by which they are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, sums
from imbtorch.intervals.intervals import Interval, posterior
from imbtorch.reports.report import ImbalanceReport
from imbtorch.ties import Ties, best_first

DRAWS = 2000  # of a posterior
FEWEST_DRAWS = 500  # with fewer, bounds are noise
CELLS = 100_000_000  # drawn at most for the band
NONE = Margins(*torch.zeros(3, 0, 0, dtype=torch.int64))  # of no validation


# --- the report and its measures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A measure as a report reads it.

    Attributes:
        measure: function of the counts of one validation, or of a stack of draws; None for values that counts do not
            give, such as those of groups of samples.
        better: whether higher is better; None without a direction.
        logged: name of the logged value that is read if there is no measure.
    """

    measure: Callable[[Counts], Tensor] | None
    better: bool | None
    logged: str = ""

    @property
    def function(self) -> Callable[[Counts], Tensor]:
        """The measure, of a column that has one."""
        assert self.measure is not None
        return self.measure

    @property
    def needs_matrix(self) -> bool:
        """True for a measure that must see the matrix rather than margins."""
        return self.measure is not None and getattr(self.measure, "needs_matrix", True)

    def value(self, counts: Counts, logged: Mapping[str, float]) -> float:
        """Return the value of the counts of one validation, or of their margins where those suffice."""
        if self.measure is None:
            return logged.get(self.logged, math.nan)
        return self.measure(counts).item()


def read_column(report: ImbalanceReport, name: str) -> tuple[str, Column]:
    """Return a name without prefix and postfix, and the measure as the report reads it, or would.

    Args:
        report: the report, which need not have the measure.
        name: of the report, or of the catalogue.

    Raises:
        ValueError: for a name that neither the report nor the catalogue has.
    """
    if name not in report:
        measure = report.measure(name)
        return name, Column(measure, measure.higher_is_better)
    row = report[name].row
    if row.bound or row.kind in ("group", "worst"):
        return row.name, Column(None, row.better, row.name)
    return row.name, Column(report.measure(row.name), row.better)


@dataclass(frozen=True, eq=False)
class FollowedReport:
    """The report whose validations are compared, and what the callbacks of the training do with its values.

    Attributes:
        path: attribute of the report in the module.
        columns: name -> measure: those that were asked for, and those that a checkpoint callback monitors.
        monitored: monitor of a checkpoint callback -> name of its column.
        ties: the one of tied epochs that the first checkpoint callback with a monitor keeps; the latest without one.
        stops_early: True if a callback stops by a value of the report.
        class_names: names of the classes or labels.
        prevalence: class shares that values are read at; None for those that were counted.
        resamples: True if the choice can be repeated on predicted classes.
    """

    path: str
    columns: Mapping[str, Column]
    monitored: Mapping[str, str]
    ties: Ties
    stops_early: bool
    class_names: tuple[str, ...]
    prevalence: Tensor | None
    resamples: bool

    @classmethod
    def of(
        cls, path: str, report: ImbalanceReport, measures: Sequence[str], trainer: Any, *, resamples: bool
    ) -> FollowedReport:
        """Read the measures off a report, and the monitors off the callbacks of a trainer."""
        prevalence = None if report.prevalence is None else report.counting.checked_prevalence(report.prevalence)
        columns = dict(read_column(report, name) for name in measures)
        keepers = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "monitor", None)]
        monitored = {}
        for monitor in (keeper.monitor for keeper in keepers if keeper.monitor in report.keys()):  # noqa: SIM118
            measured = replace(report[monitor].row, bound="").name  # in place of an end of its interval
            name, column = read_column(report, measured)
            name = next((known for known, other in columns.items() if other == column), name)
            columns.setdefault(name, column)
            monitored[monitor] = name
        stopping = {each.monitor for each in trainer.early_stopping_callbacks}
        return cls(
            path,
            columns,
            monitored,
            getattr(keepers[0], "ties", "earliest") if keepers else "latest",
            not stopping.isdisjoint(report.keys()),
            report.class_names,
            prevalence,
            resamples,
        )


# --- the validations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ValidationHistory:
    """Counts and values of M validations.

    Attributes:
        epochs: M epochs.
        steps: M numbers of optimizer steps that had been taken.
        counts: ``"epoch 3"``, or ``"epoch 3, step 40"`` where an epoch has several -> its counts: ``[K, K]``,
            ``[L, 2, 2]`` or :class:`~imbtorch.counts.Margins`. A mapping of matrices is what
            :func:`imbtorch.statistics.select_model` takes. Matrices are made on demand: only the cells that are not
            zero are kept.
        margins: margins of all counts, ``[M, K]`` or ``[M, L, 2]`` each.
        values: name of a measure -> float64 ``[M]``; without names before the first ``fit``.
        best: name of a measure with a direction -> indices of its best validations, the one to keep first; none where
            all values are nan.
    """

    epochs: tuple[int, ...]
    steps: tuple[int, ...]
    counts: Mapping[str, Counts]
    margins: Margins
    values: dict[str, Tensor]
    best: dict[str, tuple[int, ...]]

    @classmethod
    def of(
        cls, validations: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], ties: Ties
    ) -> ValidationHistory:
        """Name the validations, compute their values, and find the best ones."""
        epochs, steps = (tuple(entry[key] for entry in validations) for key in ("epoch", "step"))
        stepwise = len(set(epochs)) < len(epochs)
        names = [f"epoch {epoch}" + f", step {step}" * stepwise for epoch, step in zip(epochs, steps, strict=True)]
        counts = PackedCounts(dict(zip(names, validations, strict=True)))
        marginal = [counts.margins(name) for name in names]
        rows = []
        for name, entry, parts in zip(names, validations, marginal, strict=True):
            one = counts[name] if any(column.needs_matrix for column in columns.values()) else parts
            logged = entry.get("logged", {})
            rows.append([column.value(one if column.needs_matrix else parts, logged) for column in columns.values()])
        by_measure = torch.tensor(rows, dtype=torch.float64).view(len(names), len(columns)).unbind(1)
        values, best = dict(zip(columns, by_measure, strict=True)), {}
        for name, column in columns.items():
            if column.better is not None:
                best[name] = tuple(best_first(values[name] if column.better else -values[name], ties))
        stacked = Margins(*(torch.stack(some) for some in zip(*marginal, strict=True))) if names else NONE
        return cls(epochs, steps, counts, stacked, values, best)

    def at(self, epoch: int | None, step: int | None) -> int | None:
        """Return the index of a validation; None if there was none then."""
        places = list(zip(self.epochs, self.steps, strict=True))
        return places.index((epoch, step)) if (epoch, step) in places else None  # type: ignore[arg-type]

    @property
    def unit(self) -> str:
        """``"epoch"``, or ``"step"`` where an epoch had several validations."""
        return "step" if len(set(self.epochs)) < len(self.epochs) else "epoch"

    @property
    def labels(self) -> tuple[int, ...]:
        """Epochs of the validations, or their steps where an epoch had several."""
        return self.steps if self.unit == "step" else self.epochs

    def band(self, column: Column) -> Interval | None:
        """Return the posterior interval of each validation, ``[M]``; None where drawing is impossible or slow."""
        first = next(iter(self.counts.values()))
        if column.measure is None or isinstance(first, Margins) or first.is_floating_point():
            return None
        draws = min(DRAWS, CELLS // max(1, first.numel() * len(self.epochs)))
        if draws < FEWEST_DRAWS:
            return None
        stacked = torch.stack([each for each in self.counts.values() if isinstance(each, Tensor)])
        generator = torch.Generator().manual_seed(0)
        return posterior(column.measure, stacked, draws=draws, generator=generator, event_dims=stacked.ndim - 1)


class PackedCounts(Mapping[str, Counts]):
    """Counts of which only the cells that are not zero are in memory: few of the many that many classes have."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Counts:
        """Return the counts of one validation."""
        entry = self._entries[name]
        flat = torch.zeros(math.prod(entry["shape"]), dtype=entry["counts"].dtype)
        flat[entry["cells"]] = entry["counts"]
        counts = flat.reshape(entry["shape"])
        return Margins(*counts.unbind()) if entry["margins"] else counts

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the validations."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of validations."""
        return len(self._entries)

    def margins(self, name: str) -> Margins:
        """Return the margins of one validation, without making its matrix."""
        entry = self._entries[name]
        if entry["margins"] or len(entry["shape"]) != 2:
            return Margins(*(part.clone() for part in sums(self[name])))
        size, counts = entry["shape"][0], entry["counts"]
        rows, columns = entry["cells"] // size, entry["cells"] % size

        def total(places: Tensor, counted: Tensor) -> Tensor:
            return counted.new_zeros(size).index_add_(0, places, counted)

        return Margins(total(rows, counts * (rows == columns)), total(rows, counts), total(columns, counts))

    @staticmethod
    def pack(counts: Counts) -> dict[str, Any]:
        """Return plain values and tensors that a checkpoint can hold."""
        stacked = (torch.stack(tuple(counts)) if isinstance(counts, Margins) else counts).cpu()
        cells = stacked.flatten().nonzero().flatten()
        return {
            "margins": isinstance(counts, Margins),
            "shape": list(stacked.shape),
            "cells": cells,
            "counts": stacked.flatten()[cells],
        }
