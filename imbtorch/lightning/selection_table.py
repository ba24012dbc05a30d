"""What the validations of a training would select: the numbers behind :class:`SelectionSummary`, without Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from imbtorch.analysis.comparisons import compare
from imbtorch.analysis.intervals import Interval, posterior
from imbtorch.analysis.selection import Selection
from imbtorch.analysis.tables import aligned
from imbtorch.counts import Counts, Margins
from imbtorch.metrics.report import ImbalanceReport

__all__ = [
    "Choice",
    "Column",
    "SelectedEpoch",
    "SelectionTable",
    "ValidationHistory",
    "choices",
    "read_column",
    "selection",
]

DRAWS = 2000  # of a posterior
FEWEST_DRAWS = 500  # with fewer, limits are noise
CELLS = 200_000_000  # drawn at most for the band, and as many for the probabilities: some twenty seconds each
CAVEAT = (
    "P(better): probability that the epoch is better than the runner-up by the measure of its row (analysis.compare),",
    "as if each had a test set of its own. Both saw the same samples, so as a rule the difference is surer than that;",
    "with the predictions, analysis.paired_compare tells. The best of many looks better than it is: test it elsewhere.",
)


@dataclass(frozen=True, eq=False)
class ValidationHistory:
    """Counts and values of M validations.

    Attributes:
        epochs: M epochs.
        steps: M numbers of optimizer steps that had been taken.
        counts: ``"epoch 3"``, or ``"epoch 3, step 40"`` where an epoch has several -> its counts: ``[K, K]``,
            ``[L, 2, 2]`` or :class:`~imbtorch.counts.Margins`. A mapping of matrices is what
            :func:`imbtorch.analysis.select_model` takes.
        values: name of a measure -> float64 ``[M]``; without names before the first ``fit``.
    """

    epochs: tuple[int, ...]
    steps: tuple[int, ...]
    counts: dict[str, Counts]
    values: dict[str, Tensor]

    @classmethod
    def of(
        cls, epochs: Sequence[int], steps: Sequence[int], counts: Sequence[Counts], columns: Mapping[str, Column]
    ) -> ValidationHistory:
        """Name the validations and take their values."""
        stepwise = len(set(epochs)) < len(epochs)
        names = [f"epoch {epoch}" + f", step {step}" * stepwise for epoch, step in zip(epochs, steps, strict=True)]
        values = {name: column.values(counts) for name, column in columns.items()}
        return cls(tuple(epochs), tuple(steps), dict(zip(names, counts, strict=True)), values)

    def at(self, epoch: int | None, step: int | None) -> int | None:
        """Index of a validation; None if there was none then."""
        places = list(zip(self.epochs, self.steps, strict=True))
        return places.index((epoch, step)) if (epoch, step) in places else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class SelectedEpoch:
    """One row of a :class:`SelectionTable`.

    Attributes:
        how: what selects: a measure, ``"max-min"``, or a checkpoint.
        epoch: the epoch, the earliest of those that are equally good; None if nothing is selected or it is not known.
        step: optimizer steps that had been taken.
        values: measure -> value then; empty for a checkpoint of weights that were not validated.
        best: measures that no other epoch is better by.
        tied: number of other epochs that are as good.
        runner_up: name of the next best validation.
        probability: that the epoch is better than the next best.
    """

    how: str
    epoch: int | None = None
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    tied: int = 0
    runner_up: str | None = None
    probability: float | None = None


@dataclass(frozen=True)
class SelectionTable:
    """Which epoch each way of choosing selects; print it for a table.

    Attributes:
        report: attribute of the report.
        validations: how many there were to select from.
        measures: names of the columns.
        rows: one for each way.
        notes: what is to be known beside the numbers.
    """

    report: str
    validations: int
    measures: tuple[str, ...]
    rows: tuple[SelectedEpoch, ...]
    notes: tuple[str, ...]

    def __getitem__(self, how: str) -> SelectedEpoch:
        """Row of one way of choosing."""
        for row in self.rows:
            if row.how == how:
                return row
        raise KeyError(f"nothing is selected by {how!r}; rows are {', '.join(row.how for row in self.rows)}")

    def __str__(self) -> str:
        """Aligned text: ``*`` marks the best of a column."""
        lines = [["selected by", "epoch", "step", "tied", *self.measures, "runner-up", "P(better)"]]
        for row in self.rows:
            values = ["*" * (name in row.best) + _cell(row.values.get(name)) for name in self.measures]
            sure = "" if row.probability is None else f"{row.probability:.2f}"
            lines.append(
                [row.how, _cell(row.epoch), _cell(row.step), str(row.tied or ""), *values, row.runner_up or "", sure]
            )
        columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
        rows = aligned(list(zip(*columns, strict=True)), names_left=True)
        title = f"Selection by {self.report!r} among {self.validations} validation{'s' * (self.validations != 1)}"
        return "\n".join([title, *rows, *self.notes])


@dataclass(frozen=True)
class Column:
    """A measure as a report reads it.

    Attributes:
        measure: function of the counts of one validation, or of a stack of draws.
        better: whether higher is better; None without a direction.
        labels: whether counts are ``[L, 2, 2]``, of which it gives one value.
    """

    measure: Callable[[Counts], Tensor]
    better: bool | None
    labels: bool

    def values(self, counts: Sequence[Counts]) -> Tensor:
        """Value of each counts, float64 ``[M]``."""
        return torch.tensor([self.measure(each).item() for each in counts], dtype=torch.float64)

    def interval(self, counts: Sequence[Counts]) -> Interval | None:
        """Posterior interval of each counts, ``[M]``; None where there is nothing to draw from or it takes too long."""
        draws = _affordable(counts[0], len(counts))
        if not draws:
            return None
        stacked = torch.stack(counts)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(0)
        event_dims = 3 if self.labels else 2
        return posterior(self.measure, stacked, samples=draws, generator=generator, event_dims=event_dims)


@dataclass(frozen=True)
class Choice:
    """What one way of choosing selects.

    Attributes:
        chosen: indices of the best validations, the earliest first.
        second: index of the best of all but the first of them; None without another.
        measure: function of draws of which higher is better.
    """

    chosen: tuple[int, ...]
    second: int | None
    measure: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, columns: Mapping[str, Column], history: ValidationHistory) -> Choice:
        """Choose by the lowest of some measures."""
        names, models = tuple(columns), tuple(history.counts)
        signs = [1.0 if column.better else -1.0 for column in columns.values()]
        values = torch.stack([sign * history.values[name] for sign, name in zip(signs, names, strict=True)], 1)
        nobody = torch.full((len(models),), math.nan)  # a Selection compares with IAM, which is not asked for here
        chosen = tuple(models.index(model) for model in Selection(models, names, values, nobody).by_max_min)
        lowest = torch.where(values.isnan().all(1), -math.inf, values.nan_to_num(nan=math.inf).amin(1)).tolist()
        others = [at for at in range(len(models)) if at not in chosen[:1] and lowest[at] > -math.inf]

        def measure(counts: Tensor) -> Tensor:
            parts = [sign * column.measure(counts) for sign, column in zip(signs, columns.values(), strict=True)]
            return parts[0] if len(parts) == 1 else torch.stack(parts).nan_to_num(nan=math.inf).amin(0)

        return cls(chosen, max(others, key=lambda at: (lowest[at], -at)) if others else None, measure)

    def probability(self, counts: Sequence[Counts], draws: int) -> float | None:
        """Probability that the first is better than the second; None without a second or without draws."""
        if self.second is None or not self.chosen or not draws:
            return None
        first, second = counts[self.chosen[0]], counts[self.second]
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        generator = torch.Generator().manual_seed(0)
        found = compare(self.measure, first, second, samples=draws, generator=generator, event_dims=first.ndim)
        return found.probability.item()


def choices(history: ValidationHistory, columns: Mapping[str, Column], named: Sequence[str]) -> dict[str, Choice]:
    """What each measure with a direction selects, and max-min over the named ones of which higher is better."""
    ways = {name: {name: column} for name, column in columns.items() if column.better is not None}
    higher = {name: columns[name] for name in named if columns[name].better}
    if len(higher) > 1:
        ways["max-min"] = higher
    return {how: Choice.of(some, history) for how, some in ways.items()}


def selection(
    report: str,
    history: ValidationHistory,
    columns: Mapping[str, Column],
    named: Sequence[str],
    kept: Mapping[str, tuple[int | None, int | None]],
) -> SelectionTable:
    """Table of what each way of choosing selects, the checkpoints with what they kept below."""
    counts, names, found = list(history.counts.values()), list(history.counts), choices(history, columns, named)
    draws = _affordable(counts[0], 2 * len(found))

    def row(how: str, at: int, **more: Any) -> SelectedEpoch:
        values = {name: line[at].item() for name, line in history.values.items()}
        best = tuple(name for name in columns if name in found and at in found[name].chosen)
        return SelectedEpoch(how, history.epochs[at], history.steps[at], values, best, **more)

    rows = []
    for how, choice in found.items():
        if choice.chosen:
            second = None if choice.second is None else names[choice.second]
            sure = choice.probability(counts, draws)
            rows.append(row(how, choice.chosen[0], tied=len(choice.chosen) - 1, runner_up=second, probability=sure))
        else:
            rows.append(SelectedEpoch(how))
    for how, (epoch, step) in kept.items():
        at = history.at(epoch, step)
        rows.append(SelectedEpoch(how, epoch, step) if at is None else row(how, at))
    notes = tuple(_notes(history, columns, named, kept, draws))
    return SelectionTable(report, len(counts), tuple(columns), tuple(rows), notes)


def _notes(
    history: ValidationHistory,
    columns: Mapping[str, Column],
    named: Sequence[str],
    kept: Mapping[str, tuple[int | None, int | None]],
    draws: int,
) -> Iterator[str]:
    """What is to be known beside the numbers."""
    yield "* best of its column; of equally good epochs the earliest is selected, and 'tied' counts the others"
    yield from _notes_on_measures(columns, named)
    for how, (epoch, step) in kept.items():
        if epoch is None:
            yield f"{how}: kept by a run before this history, so its epoch is not known"
        elif history.at(epoch, step) is None:
            yield f"{how}: the weights of that step were not validated"
    if any(isinstance(each, Margins) for each in history.counts.values()):
        yield "no probabilities and no interval: state='margins' keeps no matrix to draw from"
    elif len(history.epochs) > 1 and draws:
        yield from CAVEAT
    elif len(history.epochs) > 1:
        yield "no probabilities: drawing so large matrices would take long; see history().counts and analysis.compare"


def _notes_on_measures(columns: Mapping[str, Column], named: Sequence[str]) -> Iterator[str]:
    """Which measures max-min looks at, and why not at others."""
    higher = [name for name in named if columns[name].better]
    if len(higher) > 1:
        yield f"max-min: the lowest of {', '.join(higher)} is highest"
    for better, text in ((False, "lower is better, so no part of max-min"), (None, "no direction, so selects nothing")):
        which = [name for name, column in columns.items() if column.better is better]
        if which:
            yield f"{', '.join(which)}: {text}"


def read_column(report: ImbalanceReport, name: str) -> tuple[str, Column]:
    """Name without prefix and postfix, and the measure as the report reads it, or would.

    Raises:
        ValueError: for a name that neither the report nor the catalogue has.
    """
    measure = report.measure(name)
    short = report[name].name if name in report else name
    return short, Column(measure, measure.higher_is_better, report.task == "multilabel")


def _affordable(counts: Counts, posteriors: int) -> int:
    """Draws of each of so many posteriors; 0 where there is nothing to draw from, or it would take too long."""
    if isinstance(counts, Margins) or counts.is_floating_point():  # of weights, which are no numbers of samples
        return 0
    draws = min(DRAWS, CELLS // max(1, counts.numel() * posteriors))
    return draws if draws >= FEWEST_DRAWS else 0


def _cell(value: float | None) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
