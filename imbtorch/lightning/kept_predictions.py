"""Predicted classes of each validation, kept by each process, and what they say of the choice of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.epochs import FEW_CLASSES, ChosenEpoch, select_epoch
from imbtorch.choosing.models import Ties
from imbtorch.lightning.selection_table import Column, ValidationHistory, selected
from imbtorch.metrics.report import ImbalanceReport

__all__ = ["PredictionListener", "Processes", "choose_with_predictions", "seconds_to_choose", "why_not_predictable"]

REPEATS = 100  # how often samples are halved


class PredictionListener:
    """Listens to a report during one validation, and keeps what was predicted in the smallest integer dtype."""

    def __init__(self, report: ImbalanceReport) -> None:
        classes = report.counting.classes
        self._dtype = next(
            (dtype for dtype in (torch.uint8, torch.int16) if classes <= torch.iinfo(dtype).max + 1), torch.int32
        )
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []
        self._report = report
        report.add_listener(self)

    def __call__(self, predicted: Tensor, target: Tensor, counted: Tensor) -> None:
        """Keep a batch where it is, so that the device is not waited for."""
        self._batches.append((predicted.to(self._dtype), target.to(self._dtype), counted))

    def stop(self) -> None:
        """Listen no more."""
        self._report.remove_listener(self)

    def heard(self) -> tuple[Tensor, Tensor]:
        """Predicted classes and targets of all samples that were counted, on the CPU."""
        if not self._batches:
            return torch.zeros(0, dtype=self._dtype), torch.zeros(0, dtype=self._dtype)
        predicted, target, counted = (torch.cat(parts).cpu() for parts in zip(*self._batches, strict=True))
        return predicted[counted], target[counted]


def why_not_predictable(report: ImbalanceReport) -> str:
    """Why choices cannot be replayed from the predicted classes of a report; empty if they can."""
    if report.task == "multilabel":
        return "counts labels, several of which a sample can have; leave predictions out"
    if report.counting.layout == "margins":
        return "keeps state='margins', and intervals are drawn from whole matrices; use state='matrix'"
    if report.weighted:
        return "counts weights, which predicted classes do not know; leave predictions out"
    return ""


@dataclass(frozen=True)
class Processes:
    """The processes of a training.

    Attributes:
        rank: index of this one.
        number: how many there are.
        device: where collective operations take place.
        group: of processes that the report sums over; None for all.
    """

    rank: int
    number: int
    device: torch.device
    group: Any = None

    def sum(self, counts: Tensor) -> Tensor:
        """Sum integers over all processes: a collective step."""
        if self.number == 1:
            return counts
        moved = counts.to(self.device, copy=True).contiguous()
        torch.distributed.all_reduce(moved, group=self.group)
        return moved.to(counts.device)


def choose_with_predictions(
    history: ValidationHistory,
    predictions: Sequence[Tensor | None],
    target: Tensor | None,
    columns: Mapping[str, Column],
    ties: Ties,
    classes: int,
    processes: Processes,
    announce: Callable[[float], None],
) -> tuple[dict[str, ChosenEpoch], list[int]]:
    """Choose by each measure on resampled predictions: a collective step, whose result is that of all processes.

    Args:
        history: counts and values of M validations, the same in all processes.
        predictions: M times what this process predicted, None where it is not known.
        target: the targets of that.
        columns: name -> measure.
        ties: which of tied epochs to keep.
        classes: number of classes.
        processes: of this training.
        announce: is told how many seconds it will take, about.

    Returns:
        Measure -> choice, in which epochs are indices of validations, for those that keep the epoch that they select;
        and the validations whose predictions are known to all processes and agree with the counts.
    """
    complete = _complete(history, predictions, target, processes)
    known = [predictions[at] for at in complete]
    if target is None or not complete:  # on all processes alike
        return {}, []
    candidates = {
        name: column
        for name, column in columns.items()
        if column.better is not None
        and column.measure is not None
        and bool((history.values[name][complete] < torch.inf).any())
    }
    if not candidates:
        return {}, complete
    samples = int(processes.sum(torch.tensor(len(target)))) // processes.number
    announce(seconds_to_choose(len(complete), samples, classes, len(candidates)))
    chosen = select_epoch(
        torch.stack([each for each in known if each is not None]),
        target,
        {name: column.function for name, column in candidates.items()},
        num_classes=classes,
        repeats=REPEATS,
        higher_is_better={name: bool(column.better) for name, column in candidates.items()},
        ties=ties,
        tie_break={
            name: history.values[name][complete] if column.logged else None  # of soft counts
            for name, column in candidates.items()
        },
        generator=torch.Generator().manual_seed(processes.rank),
        sum_counts=processes.sum,
    )
    first = selected(history, columns, ties)
    moved = {name: _renumbered(choice, complete) for name, choice in chosen.items()}
    return {name: choice for name, choice in moved.items() if first[name][:1] == (choice.epoch,)}, complete


def seconds_to_choose(epochs: int, samples: int, classes: int, measures: int) -> float:
    """How long resampling takes, about: counting halves of the samples, reading them, and drawing intervals."""
    numbers = 3 * classes if classes > FEW_CLASSES else classes**2
    counting = 1.5e-8 * REPEATS * epochs * samples
    return counting + measures * (2e-8 * REPEATS * epochs * numbers + 0.2 * min(1.0, classes / 100))


def _renumbered(choice: ChosenEpoch, places: Sequence[int]) -> ChosenEpoch:
    """The same of all validations, given which of them took part."""

    def moved(epochs: Sequence[int]) -> tuple[int, ...]:
        return tuple(places[epoch] for epoch in epochs)

    return replace(
        choice,
        epoch=places[choice.epoch],
        tied=moved(choice.tied),
        identical=moved(choice.identical),
        indistinguishable=moved(choice.indistinguishable),
        compared=moved(choice.compared),
    )


def _complete(
    history: ValidationHistory, predictions: Sequence[Tensor | None], target: Tensor | None, processes: Processes
) -> list[int]:
    """Validations whose predictions all processes have, as many samples and as many right ones as were counted."""
    rows = [
        [0, 0, 0] if target is None or each is None else [1, len(target), int((each == target).sum())]
        for each in predictions
    ]
    found = processes.sum(torch.tensor(rows)).tolist()
    samples, correct = history.margins.actual.sum(-1).tolist(), history.margins.correct.sum(-1).tolist()
    wanted = [[processes.number, number, right] for number, right in zip(samples, correct, strict=True)]
    return [at for at, (have, want) in enumerate(zip(found, wanted, strict=True)) if have == want]
