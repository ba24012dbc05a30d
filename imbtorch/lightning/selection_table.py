"""What the validations of a training would select: the numbers behind :class:`SelectionSummary`, without Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from textwrap import wrap
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor

from imbtorch.choosing.baselines import always_commonest
from imbtorch.choosing.caveats import choice_caveats
from imbtorch.choosing.epochs import ChosenEpoch
from imbtorch.choosing.models import Ties, as_good_as_best
from imbtorch.counts import Counts, Margins, rescaled, sums
from imbtorch.inference.intervals import Interval, posterior
from imbtorch.metrics.averaging import AtPrevalence
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.tables import aligned, html_table, trivial_line, write_csv

__all__ = [
    "Column",
    "Kept",
    "SelectedEpoch",
    "SelectionTable",
    "ValidationHistory",
    "band",
    "read_column",
    "selected",
    "selection",
    "trivial_values",
]

DRAWS = 2000  # of a posterior
FEWEST_DRAWS = 500  # with fewer, limits are noise
CELLS = 100_000_000  # drawn at most for the band
WIDTH, NAME = 100, 34  # columns of the text, and of what selects
CORRECTED = "Corrected for having been chosen among these validations:"
NONE = Margins(*torch.zeros(3, 0, 0, dtype=torch.int64))  # of no validation


@dataclass(frozen=True, eq=False)
class ValidationHistory:
    """Counts and values of M validations.

    Attributes:
        epochs: M epochs.
        steps: M numbers of optimizer steps that had been taken.
        counts: ``"epoch 3"``, or ``"epoch 3, step 40"`` where an epoch has several -> its counts: ``[K, K]``,
            ``[L, 2, 2]`` or :class:`~imbtorch.counts.Margins`. A mapping of matrices is what
            :func:`imbtorch.analysis.select_model` takes. Matrices are made when they are asked for: only the cells that
            are not zero are kept.
        margins: those of all counts, ``[M, K]`` or ``[M, L, 2]`` each.
        values: name of a measure -> float64 ``[M]``; without names before the first ``fit``.
    """

    epochs: tuple[int, ...]
    steps: tuple[int, ...]
    counts: Mapping[str, Counts]
    margins: Margins
    values: dict[str, Tensor]

    @classmethod
    def of(cls, validations: Sequence[Mapping[str, Any]], columns: Mapping[str, Column]) -> ValidationHistory:
        """Name the validations and take their values."""
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
        values = torch.tensor(rows, dtype=torch.float64).view(len(names), len(columns))
        stacked = Margins(*(torch.stack(some) for some in zip(*marginal, strict=True))) if names else NONE
        return cls(epochs, steps, counts, stacked, dict(zip(columns, values.unbind(1), strict=True)))

    def at(self, epoch: int | None, step: int | None) -> int | None:
        """Index of a validation; None if there was none then."""
        places = list(zip(self.epochs, self.steps, strict=True))
        return places.index((epoch, step)) if (epoch, step) in places else None  # type: ignore[arg-type]

    @property
    def stepwise(self) -> bool:
        """Whether an epoch had several validations."""
        return len(set(self.epochs)) < len(self.epochs)

    @property
    def called(self) -> tuple[int, ...]:
        """What the validations are called: their epochs, or their steps where an epoch had several."""
        return self.steps if self.stepwise else self.epochs


class PackedCounts(Mapping[str, Counts]):
    """Counts of which only the cells that are not zero are in memory: few of the many that many classes have."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Counts:
        """Counts of one validation."""
        entry = self._entries[name]
        flat = torch.zeros(math.prod(entry["shape"]), dtype=entry["counts"].dtype)
        flat[entry["cells"]] = entry["counts"]
        counts = flat.reshape(entry["shape"])
        return Margins(*counts.unbind()) if entry["margins"] else counts

    def __iter__(self) -> Iterator[str]:
        """Names of the validations."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Number of validations."""
        return len(self._entries)

    def margins(self, name: str) -> Margins:
        """Margins of one validation, of a matrix without making it."""
        entry = self._entries[name]
        if entry["margins"] or len(entry["shape"]) != 2:
            return Margins(*(part.clone() for part in sums(self[name])))
        size, counts = entry["shape"][0], entry["counts"]
        rows, columns = entry["cells"] // size, entry["cells"] % size

        def total(places: Tensor, what: Tensor) -> Tensor:
            return what.new_zeros(size).index_add_(0, places, what)

        return Margins(total(rows, counts * (rows == columns)), total(rows, counts), total(columns, counts))

    @staticmethod
    def pack(counts: Counts) -> dict[str, Any]:
        """Plain values and tensors that a checkpoint can hold."""
        stacked = (torch.stack(tuple(counts)) if isinstance(counts, Margins) else counts).cpu()
        cells = stacked.flatten().nonzero().flatten()
        return {
            "margins": isinstance(counts, Margins),
            "shape": list(stacked.shape),
            "cells": cells,
            "counts": stacked.flatten()[cells],
        }


@dataclass(frozen=True)
class SelectedEpoch:
    """One row of a :class:`SelectionTable`.

    Attributes:
        how: what selects: a checkpoint callback or a measure.
        epoch: the epoch, of tied ones the latest or the earliest; None if nothing is selected or it is not known.
        step: optimizer steps that had been taken.
        values: measure -> value then; empty for a checkpoint of weights that were not validated.
        best: measures that no other epoch is better by.
        tied: number of other epochs of the same value.
        choice: with ``predictions=True`` what resampling says of this choice: its value corrected for having been
            chosen, the interval of that, its stability, which epochs cannot be told from it, and how far below the best
            these may lie. Its epochs are indices of the validations.
    """

    how: str
    epoch: int | None = None
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    tied: int = 0
    choice: ChosenEpoch | None = None


@dataclass(frozen=True)
class SelectionTable:
    """The epoch that was kept, and the one that each measure selects; print it for a table.

    Attributes:
        report: attribute of the report.
        validations: what the validations are called in the table: their epochs, or their steps.
        measures: names of the columns.
        rows: what the checkpoints kept first, then one for each measure.
        notes: what is to be known beside the numbers.
    """

    report: str
    validations: tuple[int, ...]
    measures: tuple[str, ...]
    rows: tuple[SelectedEpoch, ...]
    notes: tuple[str, ...]

    def __getitem__(self, how: str) -> SelectedEpoch:
        """Row of one way of choosing."""
        for row in self.rows:
            if row.how == how:
                return row
        raise KeyError(f"nothing is selected by {how!r}; rows are {', '.join(row.how for row in self.rows)}")

    def rows_of_cells(self) -> list[list[Any]]:
        """Head and rows: what selects, its epoch, step and number of ties, all values, and what resampling says."""
        resampled = any(row.choice is not None for row in self.rows)
        head = ["selected by", "epoch", "step", "ties", *self.measures]
        cells: list[list[Any]] = [[*head, "corrected", "low", "high", "stability", "shortfall"] if resampled else head]
        for row in self.rows:
            line = [row.how, row.epoch, row.step, row.tied, *(row.values.get(name) for name in self.measures)]
            cells.append(line + _numbers(row.choice) if resampled else line)
        return cells

    def to_csv(self, to: str | PathLike[str] | TextIO) -> None:
        """Write :meth:`rows_of_cells` as CSV, without the notes.

        Args:
            to: path of a file that is written anew, or a text file that is open (with ``newline=""``).
        """
        write_csv(self.rows_of_cells(), to)

    def __str__(self) -> str:
        """Aligned text of at most 100 columns: ``*`` marks the best of a column."""
        number = len(self.validations)
        title = f"Selection by {self.report!r} among {number} validation{'s' * (number != 1)}"
        head = ["selected by", "epoch", "step", "tied"]
        first = [
            [row.how, _cell(row.epoch), _cell(row.step), str(row.tied + 1) if row.tied else ""] for row in self.rows
        ]
        columns = [list(each) for each in zip(head, *first, strict=True)]
        columns = [columns[0], *(column for column in columns[1:] if any(column[1:]))]
        for name in self.measures:
            cells = ["*" * (name in row.best) + _cell(row.values.get(name)) for row in self.rows]
            columns.append([_shortened(name, 18), *cells])
        lines = [title, *_blocks(columns)]
        if any(row.choice is not None for row in self.rows):
            lines += [CORRECTED, *_blocks([columns[0], *zip(*self._resampled(), strict=True)])]
        return "\n".join([*lines, *(line for note in self.notes for line in wrap(note, WIDTH, subsequent_indent="  "))])

    def _resampled(self) -> Iterator[list[str]]:
        """Yield head and rows of cells of what resampling says."""
        yield ["corrected", "95 % interval", "stability", "cannot be told from"]
        for choice in (row.choice for row in self.rows):
            if choice is None:
                yield [""] * 4
                continue
            interval, stability = choice.interval, choice.stability
            bounds = "-" if interval is None else f"[{interval.low.item():.4f}, {interval.high.item():.4f}]"
            others = len(choice.indistinguishable) - 1
            told = f"{others} other{'s' * (others > 1)}, to {choice.shortfall:.2f} lower" if others else "no other"
            yield [_cell(choice.corrected), bounds, "-" if stability is None else f"{stability:.2f}", told]

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table for notebooks, and the notes below."""
        cells = [["" if cell is None else _cell(cell) for cell in row] for row in self.rows_of_cells()]
        return html_table(cells) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)


def _blocks(columns: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, the first of which is repeated wherever the others would pass the width."""
    names = [columns[0][0], *(_shortened(cell, NAME) for cell in columns[0][1:])]
    widths = [max(map(len, column)) + 2 for column in columns]
    lines: list[str] = []
    block: list[Sequence[str]] = [names]
    for column, width in zip(columns[1:], widths[1:], strict=True):
        taken = max(map(len, names)) + sum(max(map(len, each)) + 2 for each in block[1:])
        if len(block) > 1 and taken + width > WIDTH:
            lines += aligned(list(zip(*block, strict=True)), names_left=True)
            block = [names]
        block.append(column)
    return lines + aligned(list(zip(*block, strict=True)), names_left=True)


def _shortened(name: str, width: int) -> str:
    """Leave out the middle of a long name."""
    return name if len(name) <= width else f"{name[: width // 2 - 1]}..{name[len(name) - (width - width // 2 - 1) :]}"


def _numbers(choice: ChosenEpoch | None) -> list[float | None]:
    """Corrected value, its limits, stability, and how far below the best it may be."""
    if choice is None:
        return [None] * 5
    interval = choice.interval
    limits = [None, None] if interval is None else [interval.low.item(), interval.high.item()]
    return [choice.corrected, *limits, choice.stability, choice.shortfall]


@dataclass(frozen=True)
class Column:
    """A measure as a report reads it.

    Attributes:
        measure: function of the counts of one validation, or of a stack of draws; None for what counts do not tell.
        better: whether higher is better; None without a direction.
        logged: name in the report of the value that is read in place of the measure's: of soft counts, or of groups.
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
        """Whether the measure must see the matrix rather than margins."""
        return not self.logged and getattr(self.measure, "needs_matrix", True)

    def value(self, counts: Counts, logged: Mapping[str, float]) -> float:
        """Value of the counts of one validation, or of their margins where those will do."""
        if self.logged or self.measure is None:
            return logged.get(self.logged, math.nan)
        return self.measure(counts).item()


def band(column: Column, history: ValidationHistory) -> Interval | None:
    """Posterior interval of each validation, ``[M]``; None where counts do not tell or drawing would take long."""
    first = next(iter(history.counts.values()))
    draws = _affordable(first, len(history.epochs))
    if not draws or column.measure is None or column.logged:
        return None
    stacked = torch.stack([each for each in history.counts.values() if isinstance(each, Tensor)])
    generator = torch.Generator().manual_seed(0)
    return posterior(column.measure, stacked, samples=draws, generator=generator, event_dims=stacked.ndim - 1)


def _affordable(counts: Counts, posteriors: int) -> int:
    """Draws of each of so many posteriors; 0 where there is nothing to draw from, or it would take too long."""
    if isinstance(counts, Margins) or counts.is_floating_point():  # of weights, which are no numbers of samples
        return 0
    draws = min(DRAWS, CELLS // max(1, counts.numel() * posteriors))
    return draws if draws >= FEWEST_DRAWS else 0


def _as_read(report: ImbalanceReport, measure: Callable[[Counts], Tensor]) -> Callable[[Counts], Tensor]:
    """Measure as the report reads it."""
    if report.prevalence is None:
        return measure
    return AtPrevalence(measure, report.counting.class_priors(report.prevalence, "prevalence"))


def read_column(report: ImbalanceReport, name: str) -> tuple[str, Column]:
    """Name without prefix and postfix, and the measure as the report reads it, or would.

    Raises:
        ValueError: for a name that neither the report nor the catalogue has.
    """
    short = report[name].name if name in report else name
    try:
        measure = report.measure(name)
    except ValueError:
        if name not in report:
            raise
        hard = short.removesuffix("_soft")
        of_soft = report.soft and hard in report.measures
        read = _as_read(report, report.measure(hard)) if of_soft else None
        return short, Column(read, report[name].higher_is_better, short)
    return short, Column(_as_read(report, measure), measure.higher_is_better)


# --- choosing -------------------------------------------------------------------------------------------------------


def selected(history: ValidationHistory, columns: Mapping[str, Column], ties: Ties) -> dict[str, tuple[int, ...]]:
    """Map each measure that has a direction to its best validations, the one to keep first.

    A measure of which all values are nan has none.
    """
    found = {}
    for name, column in columns.items():
        if column.better is not None:
            values = history.values[name] if column.better else -history.values[name]
            places = as_good_as_best(values).nonzero().flatten().tolist()
            found[name] = tuple(places[::-1] if ties == "latest" else places)
    return found


class Kept(NamedTuple):
    """What a checkpoint callback kept."""

    epoch: int | None
    step: int | None
    measure: str  # the column that it monitors; empty for none


def selection(
    report: str,
    history: ValidationHistory,
    columns: Mapping[str, Column],
    ties: Ties,
    kept: Mapping[str, Kept],
    choices: Mapping[str, ChosenEpoch],
    class_names: Sequence[str],
    remarks: Sequence[str],
) -> SelectionTable:
    """Make the table of what the checkpoints kept and, below, what each measure selects."""
    found = selected(history, columns, ties)

    def row(how: str, at: int, measure: str) -> SelectedEpoch:
        values = {name: line[at].item() for name, line in history.values.items()}
        starred = tuple(name for name, places in found.items() if at in places)
        tied, choice = found.get(measure, ()), choices.get(measure)
        choice = choice if choice is not None and choice.epoch == at else None
        number = max(0, len(tied) - 1) if at in tied else 0
        return SelectedEpoch(how, history.epochs[at], history.steps[at], values, starred, number, choice)

    rows = []
    for how, (epoch, step, measure) in kept.items():
        at = history.at(epoch, step)
        rows.append(SelectedEpoch(how, epoch, step) if at is None else row(how, at, measure))
    rows += [row(name, places[0], name) if places else SelectedEpoch(name) for name, places in found.items()]
    notes = [
        *_notes(history, columns, ties, kept),
        *_caveats(history, columns, class_names),
        *filter(None, [trivial_line(*trivial_values(history, columns, class_names))]),
        *remarks,
    ]
    return SelectionTable(report, history.called, tuple(columns), tuple(rows), tuple(notes))


# --- notes ----------------------------------------------------------------------------------------------------------


def _notes(
    history: ValidationHistory,
    columns: Mapping[str, Column],
    ties: Ties,
    kept: Mapping[str, Kept],
) -> Iterator[str]:
    """Yield what is to be known beside the numbers."""
    yield f"* best of its column; of tied epochs the {ties} is selected"
    if "bottom_line" in columns:
        yield "bottom_line: epoch with the highest min(accuracy, CBA), the max-min choice"
    undirected = [name for name, column in columns.items() if column.better is None]
    if undirected:
        yield f"{', '.join(undirected)}: no direction, so selects nothing"
    for how, (epoch, step, _) in kept.items():
        if epoch is None:
            yield f"{how}: kept by a run before this history, so its epoch is not known"
        elif history.at(epoch, step) is None:
            yield f"{how}: the weights of that step were not validated"


def _caveats(history: ValidationHistory, columns: Mapping[str, Column], class_names: Sequence[str]) -> Iterator[str]:
    """Yield why choices mean little; what holds for all measures is said without their names."""
    marginal = history.margins
    if marginal.actual.is_floating_point():
        return  # of weights, which are no numbers of samples
    if marginal.actual.ndim > 2:  # class 1 of each label
        marginal = Margins(*(part[..., 1] for part in marginal))
    directed = {name: column.better for name, column in columns.items() if column.better is not None}
    known = {name: better for name, better in directed.items() if not history.values[name].isnan().all()}
    measures: dict[str, list[str]] = {}
    for name, better in known.items():
        for sentence in choice_caveats(marginal, history.values[name], class_names, higher_is_better=better):
            measures.setdefault(sentence, []).append(name)
    for sentence, names in measures.items():
        yield sentence if len(names) == len(directed) else f"{', '.join(names)}: {sentence}"


def trivial_values(
    history: ValidationHistory, columns: Mapping[str, Column], class_names: Sequence[str]
) -> tuple[str, dict[str, float]]:
    """Return the name of majority-class prediction and its value by each measure, at the last validation's targets."""
    last = history.counts[[*history.counts][-1]]
    if not bool(sums(last).actual.any()):
        return "", {}
    read = (column.function for column in columns.values() if not column.logged)
    shares = next((each.shares for each in read if isinstance(each, AtPrevalence)), None)
    name, counts = always_commonest(last if shares is None else rescaled(last, shares), class_names)
    directed = {key: column for key, column in columns.items() if column.better is not None and not column.logged}
    return name, {key: column.function(counts).item() for key, column in directed.items()}


def _cell(value: float | None) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
