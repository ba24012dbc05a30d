"""The epochs that a training kept and those that each measure selects: the table of :class:`SelectionSummary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import Any, NamedTuple, TextIO

from imbtorch.choosing.advice import Situation, situation_of
from imbtorch.choosing.baselines import always_commonest
from imbtorch.choosing.caveats import caveats_of
from imbtorch.choosing.epochs import ChosenEpoch
from imbtorch.counts import Margins, rescaled, sums
from imbtorch.inference.intervals import TOLD, simulated_bias
from imbtorch.lightning.validation_history import FollowedReport, ValidationHistory
from imbtorch.tables import aligned, html_table, shortened, spans, wrapped, write_csv

__all__ = ["Kept", "SelectedEpoch", "SelectionTable"]

MEASURE = 18  # characters of the name of a column


class Kept(NamedTuple):
    """The validation that a checkpoint callback kept.

    Attributes:
        epoch: its epoch; None if it is not known.
        step: optimizer steps that had been taken; None if they are not known.
        measure: the column that the callback monitors; empty for none.
        monitor: name of the monitored value, which need not be of the report; empty for none.
        number: place of the callback among those of one monitor, from 1; None if its name shows no number.
    """

    epoch: int | None
    step: int | None
    measure: str
    monitor: str
    number: int | None = None


@dataclass(frozen=True)
class SelectedEpoch:
    """One row of a :class:`SelectionTable`.

    Attributes:
        how: the measure that selects, or what was kept, such as ``"kept by val_iam"``. If checkpoint callbacks monitor
            the same value, their rules for ties or their numbers follow, as in ``"kept by val_iam (latest of ties)"``.
        epoch: the epoch, of tied ones the latest or the earliest; None if nothing is selected or it is not known.
        step: optimizer steps that had been taken.
        values: measure -> value then; empty for a checkpoint of weights that were not validated.
        best: measures whose best value this is.
        tied: number of other epochs of the same value.
        choice: with ``predictions=True`` the result of resampling: the value corrected for having been chosen, its
            interval, its stability, the epochs indistinguishable from this one, and how far below the best these may
            lie. Its epochs are indices of the validations.
        kept: True for the weights that a checkpoint kept, False for the epoch that a measure selects.
    """

    how: str
    epoch: int | None = None
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    tied: int = 0
    choice: ChosenEpoch | None = None
    kept: bool = False

    @property
    def label(self) -> str:
        """Name of the row in the text."""
        return self.how if self.kept else f"best {self.how}"


@dataclass(frozen=True)
class SelectionTable:
    """The epoch that was kept, and the one that each measure selects; print it for a table.

    Attributes:
        report: attribute of the report.
        unit: ``"epoch"``, or ``"step"`` where an epoch had several validations.
        validations: epochs of the validations, or their steps.
        measures: names of the columns.
        rows: the kept checkpoints first, then one row for each measure.
        baseline: name of the majority-class prediction, and measure -> its value; empty without targets.
        notes: sentences to read beside the numbers.
    """

    report: str
    unit: str
    validations: tuple[int, ...]
    measures: tuple[str, ...]
    rows: tuple[SelectedEpoch, ...]
    baseline: tuple[str, Mapping[str, float]]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        followed: FollowedReport,
        history: ValidationHistory,
        kept: Mapping[str, Kept],
        choices: Mapping[str, ChosenEpoch],
        resampled: Sequence[int],
        remedy: str,
    ) -> SelectionTable:
        """Make the table of the kept checkpoints and, below, of the epochs that the measures select.

        Args:
            followed: the report.
            history: its validations.
            kept: name of a checkpoint -> what it is of.
            choices: measure -> its choice on resampled predictions.
            resampled: indices of the validations among which these chose; empty where nothing was resampled.
            remedy: end of the sentence that the best value is too optimistic, where nothing was resampled.
        """
        selected = [
            (SelectedEpoch(how, each.epoch, each.step, kept=True), history.at(each.epoch, each.step), each.measure)
            for how, each in kept.items()
        ]
        selected += [(SelectedEpoch(name), tied[0] if tied else None, name) for name, tied in history.best.items()]
        rows = []
        for row, at, measure in selected:
            if at is None:
                rows.append(row)
                continue
            epoch, step = history.epochs[at], history.steps[at]
            values = {name: line[at].item() for name, line in history.values.items()}
            best = tuple(name for name, indices in history.best.items() if at in indices)
            tied = len(history.best[measure]) - 1 if measure in best else 0
            choice = choices.get(measure)
            choice = choice if choice is not None and choice.epoch == at else None
            rows.append(SelectedEpoch(row.how, epoch, step, values, best, tied, choice, row.kept))
        notes = tuple(_notes(followed, history, kept, choices, resampled, remedy))
        baseline = _baseline(followed, history)
        return cls(followed.path, history.unit, history.labels, tuple(followed.columns), tuple(rows), baseline, notes)

    def __getitem__(self, how: str) -> SelectedEpoch:
        """Return the row of a measure or a kept checkpoint."""
        for row in self.rows:
            if row.how == how:
                return row
        raise KeyError(f"nothing is selected by {how!r}; rows are {', '.join(row.how for row in self.rows)}")

    def rows_of_cells(self) -> list[list[Any]]:
        """Return head and rows as cells: name, epoch, step, number of ties, all values, and the resampled ones."""
        resampled = any(row.choice is not None for row in self.rows)
        head = ["selected by", "epoch", "step", "ties", *self.measures]
        cells: list[list[Any]] = [[*head, "corrected", "low", "high", "stability", "shortfall"] if resampled else head]
        for row in self.rows:
            line: list[Any] = [row.how, row.epoch, row.step, row.tied, *map(row.values.get, self.measures)]
            if resampled and row.choice is None:
                line += [None] * 5
            elif row.choice is not None:
                interval = row.choice.interval
                ends = [None, None] if interval is None else [interval.low.item(), interval.high.item()]
                line += [row.choice.corrected, *ends, row.choice.stability, row.choice.shortfall]
            cells.append(line)
        name, values = self.baseline
        if values:
            line = [f"Baseline: {name}", None, None, None, *map(values.get, self.measures)]
            cells.append(line + [None] * (5 * resampled))
        return cells

    def to_csv(self, to: str | PathLike[str] | TextIO) -> None:
        """Write :meth:`rows_of_cells` as CSV, without the notes; text is written as by :meth:`ReportTable.to_csv`.

        Args:
            to: path of a file that is written anew, or a text file that is open (with ``newline=""``).
        """
        write_csv(self.rows_of_cells(), to)

    def __str__(self) -> str:
        """Return text of at most 100 columns: all values, those corrected for the choice, and the notes."""
        number = len(self.validations)
        of = f"{number} validation{'s' * (number != 1)} of self.{shortened(self.report, MEASURE)}"
        lines = [f"Kept and best epochs of {of} (epochs count from 0; * best of all epochs)"]
        lines += aligned(list(zip(*self._values(), strict=True)), names_left=True)
        corrected = self._corrected()
        if len(corrected) > 1 and number > 1:
            lines += [
                "",
                f"Values of each row's own measure, corrected on random halves for being the best of {number}:",
            ]
            lines += aligned(corrected, names_left=True)
        notes = [wrapped(f"- {note}") for note in self.notes]
        return "\n".join([*lines, *[""] * bool(notes), *notes])

    def _values(self) -> list[list[str]]:
        """Return the columns of all rows and of the baseline, each with its head."""
        _, baseline = self.baseline
        columns = [["", *(row.label for row in self.rows), "Baseline"]]
        for head, cells in (
            ("epoch", [_cell(row.epoch) for row in self.rows]),
            ("step", [_cell(row.step) * (self.unit == "step") for row in self.rows]),
            ("tied", [str(row.tied + 1) if row.tied else "" for row in self.rows]),
        ):
            columns += [[head, *cells, ""]] if any(cells) else []
        for measure in self.measures:
            cells = ["*" * (measure in row.best) + _cell(row.values.get(measure)) for row in self.rows]
            columns.append([shortened(measure, MEASURE), *cells, _cell(baseline.get(measure))])
        return columns if baseline else [column[:-1] for column in columns]

    def _corrected(self) -> list[list[str]]:
        """Return the head and the rows that resampling adds, one for each choice."""
        lines = [["", "corrected [95 % interval]", "stability", "indistinguishable"]]
        kept = [row.choice for row in self.rows if row.kept]
        for row in self.rows:
            choice = row.choice
            if choice is None or (not row.kept and any(choice is other for other in kept)):
                continue
            low_high = (
                ""
                if choice.interval is None
                else (f" [{choice.interval.low.item():.4f}, {choice.interval.high.item():.4f}]")
            )
            others = len(choice.indistinguishable) - 1
            lines.append(
                [
                    row.label,
                    f"{_cell(choice.corrected)}{low_high}",
                    "-" if choice.stability is None else f"{choice.stability:.2f}",
                    f"{others} (<= {choice.shortfall:.2f} worse)" if others else "none",
                ]
            )
        return lines

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table for notebooks, and the notes below."""
        cells = [["" if cell is None else _cell(cell) for cell in row] for row in self.rows_of_cells()]
        return html_table(cells) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)


def _cell(value: float | None) -> str:
    """Return a number as text, and a hyphen without one."""
    if value is None or value != value:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


# --- the baseline and the notes -------------------------------------------------------------------------------------


def _baseline(followed: FollowedReport, history: ValidationHistory) -> tuple[str, dict[str, float]]:
    """Return the name of majority-class prediction and its value by each measure, at the last validation's targets."""
    last = history.counts[[*history.counts][-1]]
    if not bool(sums(last).actual.any()):
        return "", {}
    prevalence = followed.prevalence
    name, counts = always_commonest(last if prevalence is None else rescaled(last, prevalence), followed.class_names)
    columns = {key: column for key, column in followed.columns.items() if column.better is not None}
    return name, {key: column.function(counts).item() for key, column in columns.items() if column.measure is not None}


def _notes(
    followed: FollowedReport,
    history: ValidationHistory,
    kept: Mapping[str, Kept],
    choices: Mapping[str, ChosenEpoch],
    resampled: Sequence[int],
    remedy: str,
) -> Iterator[str]:
    """Yield what is to be read beside the numbers: their meaning, reasons to doubt them, and the row of the studies."""
    baseline, values = _baseline(followed, history)
    if values:
        yield f"Baseline: {baseline}"
    number = len(history.epochs)
    if any(len(places) > 1 for places in history.best.values()):
        yield (
            f"tied: number of {history.unit}s that share the best value, this one included; a best row shows the "
            f"{followed.ties} of them"
            + ", a kept row the one that its checkpoint kept" * bool(kept)
            + " (Lightning's ModelCheckpoint keeps the earliest, imbtorch.lightning.TiesCheckpoint the latest)"
            * (followed.ties == "earliest")
        )
        if followed.stops_early:
            yield (
                "EarlyStopping: a tie is no improvement and uses up patience; in the study of deep networks a patience "
                "of half the validations lost nothing"
            )
    if any(each.number is not None for each in kept.values()):
        yield "(1), (2): checkpoint callbacks, in their order in the Trainer"
    if "bottom_line" in followed.columns:
        yield "bottom_line: epoch with the highest min(accuracy, CBA), the max-min choice"
    undirected = [name for name, column in followed.columns.items() if column.better is None]
    if undirected:
        yield f"{', '.join(undirected)}: no direction is known, so no epoch is selected"
    for how, saved in kept.items():
        if saved.epoch is None:
            yield f"{how}: kept by a run before this history, so its epoch is not known"
        elif history.at(saved.epoch, saved.step) is None:
            yield f"{how}: the weights of step {saved.step} were not validated"
    yield from _caveats(followed, history)
    if number > 1:
        if choices:
            yield from _meanings_of_choices(followed, history)
        else:
            remedy = "report its value on test data" if resampled else remedy
            yield f"The best of {number} values is too optimistic, since it was selected as the best; {remedy}"
        if resampled:
            yield from _doubts_about_choices(followed, history, choices, resampled)
            yield from _uncorrected(followed, history, kept, choices)
        yield f'Situation (README, "What to monitor"): {_situation(history)}'


def _caveats(followed: FollowedReport, history: ValidationHistory) -> Iterator[str]:
    """Yield why choices mean little; a sentence that holds for all measures is given without their names."""
    marginal = history.margins
    if marginal.actual.is_floating_point():
        return  # of weights, which are no numbers of samples
    if marginal.actual.ndim > 2:  # class 1 of each label
        marginal = Margins(*(part[..., 1] for part in marginal))
    measures: dict[str, list[str]] = {}
    for name, places in history.best.items():
        if places:
            better = bool(followed.columns[name].better)
            values, names = history.values[name], followed.class_names
            for sentence in caveats_of(marginal, values, names, better, history.unit):
                measures.setdefault(sentence, []).append(name)
    for sentence, named in measures.items():
        yield sentence if len(named) == len(history.best) else f"{', '.join(named)}: {sentence}"
    yield from _biased(followed, history)


def _biased(followed: FollowedReport, history: ValidationHistory) -> Iterator[str]:
    """Yield by how much averages such as IAM are too low, because the classes have few samples."""
    marginal = history.margins
    if marginal.actual.ndim > 2 or marginal.actual.shape[-1] < 3:
        return
    for name, places in history.best.items():
        column = followed.columns[name]
        if places and not column.needs_matrix and column.measure is not None:
            last = Margins(*(part[places[-1]] for part in marginal))
            bias = simulated_bias([column.measure], last, "drawn")[0].item()
            if abs(bias) >= TOLD:
                samples = int(last.actual[last.actual > 0].median())
                side = "high" if bias > 0 else "low"
                yield (
                    f"{name} is on average some {abs(bias):.2f} too {side} with so few samples (median of a class: "
                    f"{samples}); compare it only on the same samples"
                )


def _meanings_of_choices(followed: FollowedReport, history: ValidationHistory) -> Iterator[str]:
    """Yield the meaning of each column of corrected values."""
    yield (
        f"corrected: estimate for new data; only test data can confirm it. Ties within a half go to the "
        f"{followed.ties} {history.unit}; the other rule gives another estimate"
    )
    yield (
        f'stability: share of the halves that select this {history.unit} ("-": tied with others); not the probability '
        "that it is the best"
    )
    yield (
        f"indistinguishable: number of other {history.unit}s not shown to be worse than the best, and by how much they "
        "may be worse at most (95 %)"
    )


def _doubts_about_choices(
    followed: FollowedReport,
    history: ValidationHistory,
    choices: Mapping[str, ChosenEpoch],
    resampled: Sequence[int],
) -> Iterator[str]:
    """Yield choices that are arbitrary, and validations that were left out."""
    arbitrary: dict[str, list[str]] = {}
    for name, choice in choices.items():
        if choice.identical:
            same = spans(sorted({choice.epoch, *choice.identical}), history.labels)
            arbitrary.setdefault(same, []).append(name)
        if choice.sparse:
            classes = ", ".join(repr(followed.class_names[at]) for at in choice.sparse)
            yield f"{name}: not corrected, since it is 0 without a hit of class {classes}, and hits are too few"
    for same, names in arbitrary.items():
        yield f"{', '.join(names)}: {history.unit}s {same} predict the same, so the choice among them is arbitrary"
    left_out = [at for at in range(len(history.labels)) if at not in resampled]
    if left_out:
        yield (
            f"{history.unit}{'s' * (len(left_out) > 1)} {spans(left_out, history.labels)}: not compared, for lack of "
            "predictions that agree with the counts of all processes (other samples, or before a run was resumed)"
        )
    fewest = min((len(choice.compared) for choice in choices.values()), default=len(resampled))
    if fewest < len(resampled):
        yield f"Only the best {fewest} were compared, since resampling all takes long"


def _uncorrected(
    followed: FollowedReport,
    history: ValidationHistory,
    kept: Mapping[str, Kept],
    choices: Mapping[str, ChosenEpoch],
) -> Iterator[str]:
    """Yield why rows are missing from the corrected values: of measures, and of checkpoints."""
    reasons: dict[str, list[str]] = {}
    for name, places in history.best.items():
        if places and name not in choices:
            counted = followed.columns[name].measure is not None
            reason = f"resampling would keep another {history.unit}" if counted else "predicted classes do not give it"
            reasons.setdefault(reason, []).append(name)
    for how, saved in kept.items():
        at = history.at(saved.epoch, saved.step)
        if at is None:
            continue
        if not saved.monitor:
            reasons.setdefault("no value selected it", []).append(how)
        elif not saved.measure:
            reasons.setdefault(f"{saved.monitor} is not a value of self.{followed.path}", []).append(how)
        elif not history.best.get(saved.measure):
            reasons.setdefault(f"{saved.measure} selects no {history.unit}", []).append(how)
        elif saved.measure in choices and choices[saved.measure].epoch != at:
            tied = at in history.best[saved.measure]
            other = f"the {followed.ties} of tied {history.unit}s" if tied else f"the best {history.unit}"
            reasons.setdefault(f"resampling keeps {other} by {saved.measure}", []).append(how)
    for reason, names in reasons.items():
        yield f"{', '.join(names)}: not corrected, since {reason}"


def _situation(history: ValidationHistory) -> Situation:
    """Return the row of the table by situation that fits the task."""
    actual = history.margins.actual
    classes = actual.shape[-1] if actual.ndim == 2 else 0
    weighted = actual.is_floating_point()  # weights are no numbers of samples
    return situation_of(classes, None if weighted else actual[0].min().item())
