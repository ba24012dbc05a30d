"""The epochs that a training kept and those that each measure selects: the table of :class:`SelectionSummary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

from imbtorch.choosing.caveats import caveats_of, situation_of
from imbtorch.choosing.epochs import ChosenEpoch
from imbtorch.counts import Margins, rescaled, sums
from imbtorch.intervals.baselines import always_commonest
from imbtorch.intervals.intervals import TOLD, simulated_bias
from imbtorch.lightning.validation_history import FollowedReport, ValidationHistory
from imbtorch.tables import Cell, Table, spans


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


def selection_table(
    followed: FollowedReport,
    history: ValidationHistory,
    kept: Mapping[str, Kept],
    choices: Mapping[str, ChosenEpoch],
    resampled: Sequence[int],
    remedy: str,
) -> Table:
    """Make the table of the kept checkpoints and, below, of the epochs that the measures select.

    Args:
        followed: the report.
        history: its validations.
        kept: name of a checkpoint -> what it is of.
        choices: measure -> its choice on resampled predictions.
        resampled: indices of the validations among which these chose; empty where nothing was resampled.
        remedy: end of the sentence that the best value is too optimistic, where nothing was resampled.
    """
    selected = [(how, history.at(each.epoch, each.step), each.measure) for how, each in kept.items()]
    selected += [(f"best {name}", tied[0] if tied else None, name) for name, tied in history.best.items()]
    number, rows = len(history.epochs), {}
    for how, at, measure in selected:
        known = kept.get(how, Kept(None, None, "", ""))
        epoch, step = (known.epoch, known.step) if at is None else (history.epochs[at], history.steps[at])
        tied = history.best.get(measure, ())
        row: dict[str, Any] = {
            "epoch": nan if epoch is None else epoch,
            "step": None if history.unit == "epoch" else nan if step is None else step,
            "tied": len(tied) if at in tied and len(tied) > 1 else None,
        }
        for name, values in history.values.items():
            row[name] = nan if at is None else Cell(values[at].item(), mark="*" * (at in history.best.get(name, ())))
        choice = choices.get(measure)
        if choice is not None and choice.epoch == at and number > 1:
            row |= _corrected(choice)
        rows[how] = row
    _, baseline = baseline_of(followed, history)
    if baseline:
        rows["Baseline"] = {name: baseline.get(name, nan) for name in followed.columns}
    title = f"Kept and best epochs of {number} validation{'s' * (number != 1)} of self.{followed.path}"
    return Table(
        {"selected": rows},
        tuple(_notes(followed, history, kept, choices, resampled, remedy)),
        f"{title} (epochs count from 0; * best of all epochs)",
    )


def _corrected(choice: ChosenEpoch) -> dict[str, Any]:
    """Return the columns that resampling adds."""
    interval = choice.interval
    ends = (nan, nan) if interval is None else (interval.low.item(), interval.high.item())
    return {
        "corrected": nan if choice.corrected is None else Cell(choice.corrected, *ends),
        "stability": nan if choice.stability is None else choice.stability,
        "indistinguishable": len(choice.indistinguishable) - 1,
        "shortfall": choice.shortfall,
    }


# --- the baseline and the notes -------------------------------------------------------------------------------------


def baseline_of(followed: FollowedReport, history: ValidationHistory) -> tuple[str, dict[str, float]]:
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
    baseline, values = baseline_of(followed, history)
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
        actual = history.margins.actual
        classes = actual.shape[-1] if actual.ndim == 2 else 0
        yield f'Situation (README, "What to monitor"): {situation_of(classes)}'


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
    other = "earliest" if followed.ties == "latest" else "latest"
    yield (
        f"corrected: value of the row's own measure to expect on new data (95% interval), estimated on random halves "
        f"because it is the best of {len(history.epochs)}. Ties within a half go to the {followed.ties} "
        f"{history.unit}; ties={other!r} would give another estimate. Only test data can confirm it"
    )
    yield (
        f'stability: how often a random half selects this {history.unit} ("-": tied with others); it is not the '
        f"probability that the {history.unit} is the best"
    )
    yield (
        f"indistinguishable: number of other {history.unit}s not shown to be worse than the best; shortfall: how much "
        "worse they may be at most (95%)"
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
