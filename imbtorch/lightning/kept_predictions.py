"""Predicted classes of each validation, kept by each process, on which the choice of an epoch is repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.epochs import FEW_CLASSES, ChosenEpoch, select_epoch
from imbtorch.lightning.validation_history import FollowedReport, ValidationHistory
from imbtorch.reports.report import ImbalanceReport

REPEATS = 100  # how often samples are halved


class PredictionListener:
    """Listener of a report during one validation, which keeps predicted classes in the smallest integer dtype.

    Args:
        report: the report.
        with_ids: keep the ids of clusters as well.
    """

    def __init__(self, report: ImbalanceReport, with_ids: bool) -> None:
        classes = report.counting.classes
        self._dtype = next(
            (dtype for dtype in (torch.uint8, torch.int16) if classes <= torch.iinfo(dtype).max + 1), torch.int32
        )
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []
        self._ids: list[Tensor] = []
        self._report, self._with_ids = report, with_ids
        self.dependent = False  # whether samples came with ids or have several positions, and the report no clusters
        report.add_listener(self, clusters=True)

    def __call__(self, predicted: Tensor, target: Tensor, counted: Tensor, cluster: Tensor | None) -> None:
        """Keep a batch on its device, without waiting for it."""
        self._batches.append((predicted.to(self._dtype), target.to(self._dtype), counted))
        if cluster is not None and self._with_ids:
            self._ids.append(cluster)
        self.dependent |= cluster is not None and not self._report.clusters

    def stop(self) -> None:
        """Stop listening."""
        self._report.remove_listener(self)

    def heard(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return predicted classes, targets and ids of all samples that were counted, on the CPU."""
        none = torch.zeros(0, dtype=torch.int64) if self._with_ids else None
        if not self._batches:
            return torch.zeros(0, dtype=self._dtype), torch.zeros(0, dtype=self._dtype), none
        predicted, target, counted = (torch.cat(parts).cpu() for parts in zip(*self._batches, strict=True))
        ids = torch.cat(self._ids).cpu()[counted] if self._ids else none
        return predicted[counted], target[counted], ids


def why_not_predictable(report: ImbalanceReport) -> str:
    """Return the reason why predicted classes of a report cannot be resampled; empty if they can."""
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
        rank: index of this process.
        number: number of processes.
        device: device of collective operations.
        group: group of processes that the report sums over; None for all.
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
    followed: FollowedReport,
    history: ValidationHistory,
    predictions: Sequence[Tensor | None],
    target: Tensor | None,
    cluster: Tensor | None,
    classes: int,
    processes: Processes,
    announce: Callable[[float], None],
) -> tuple[dict[str, ChosenEpoch], list[int]]:
    """Choose by each measure on halves of the samples: a collective step, with the same result on all processes.

    Args:
        followed: the report and its measures.
        history: counts and values of M validations, the same in all processes.
        predictions: M times the predicted classes of this process, None where they are not known.
        target: their targets, in the same order.
        cluster: ids of the clusters of the same samples; None, on all processes alike, to resample single samples.
        classes: number of classes.
        processes: processes of this training.
        announce: function that is given the seconds that resampling will take, about.

    Returns:
        Measure -> choice, in which epochs are indices of validations, for the measures that keep the epoch that they
        select; and the validations whose predictions are known to all processes and agree with the counts.
    """
    complete = _complete(history, predictions, target, processes)
    known = [each for each in (predictions[at] for at in complete) if each is not None]
    if target is None or not complete:  # on all processes alike
        return {}, []
    candidates = {
        name: followed.columns[name]
        for name in history.best
        if followed.columns[name].measure is not None and bool((history.values[name][complete] < torch.inf).any())
    }
    if not candidates:
        return {}, complete
    samples = int(processes.sum(torch.tensor(len(target)))) // processes.number
    announce(seconds_to_choose(len(complete), samples, classes, len(candidates)))
    chosen = select_epoch(
        torch.stack(known),
        target,
        {name: column.function for name, column in candidates.items()},
        num_classes=classes,
        repeats=REPEATS,
        higher_is_better={name: bool(column.better) for name, column in candidates.items()},
        ties=followed.ties,
        # clusters fall into the same half on all processes; of single samples no two may have the same coins
        generator=torch.Generator().manual_seed(processes.rank if cluster is None else 0),
        sum_counts=processes.sum,
        cluster=cluster,
    )
    moved = {name: _renumbered(choice, complete) for name, choice in chosen.items()}
    return {name: choice for name, choice in moved.items() if history.best[name][:1] == (choice.epoch,)}, complete


def _complete(
    history: ValidationHistory, predictions: Sequence[Tensor | None], target: Tensor | None, processes: Processes
) -> list[int]:
    """Return the validations whose predictions all processes have, as many and as many right ones as were counted."""
    rows = [
        [0, 0, 0] if target is None or each is None else [1, len(target), int((each == target).sum())]
        for each in predictions
    ]
    have = processes.sum(torch.tensor(rows)).tolist()
    samples, correct = history.margins.actual.sum(-1).tolist(), history.margins.correct.sum(-1).tolist()
    counted = [[processes.number, number, right] for number, right in zip(samples, correct, strict=True)]
    return [at for at in range(len(counted)) if have[at] == counted[at]]


def _renumbered(choice: ChosenEpoch, places: Sequence[int]) -> ChosenEpoch:
    """Return a choice among some validations as one among all of them."""

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


def seconds_to_choose(epochs: int, samples: int, classes: int, measures: int) -> float:
    """Estimate how long resampling takes: counting halves of the samples, reading them, and drawing intervals."""
    numbers = 3 * classes if classes > FEW_CLASSES else classes**2
    counting = 1.5e-8 * REPEATS * epochs * samples
    return counting + measures * (2e-8 * REPEATS * epochs * numbers + 0.2 * min(1.0, classes / 100))
