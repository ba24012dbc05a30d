"""Counts of random halves of the samples, from which :mod:`epochs` chooses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_class_indices, checked_ids, whole_number
from imbtorch.counting.batches import readable
from imbtorch.counting.clusters import BUCKETS, bucket_of_each, coin_of_each
from imbtorch.counting.kernels import integers
from imbtorch.counts import Counts, Margins, Measure, evaluated

CELLS_AT_ONCE = 8_000_000  # cells of half counts in memory, 32 MB of int32; the measure reads a sixteenth at a time
SAMPLES_AT_ONCE = 2_000_000  # samples counted in one call
MOST_CELLS = 60_000_000  # cells of all buckets of clusters, 480 MB


@dataclass(frozen=True)
class CellOrder:
    """Order of counts in one dimension: the cells of a matrix, or its margins one after the other.

    Attributes:
        classes: K.
        margins: whether counts are margins.
    """

    classes: int
    margins: bool

    @property
    def size(self) -> int:
        """Length of that dimension."""
        return 3 * self.classes if self.margins else self.classes**2

    def add_(self, counts: Tensor, predictions: Tensor, target: Tensor, times: Tensor) -> None:
        """Add predictions ``[m, N]`` with times ``[N, R]`` to counts ``[m, size, R]``, in place."""
        epochs = len(predictions)
        flat = counts.view(epochs * self.size, -1)
        start = self.size * torch.arange(epochs).unsqueeze(-1)

        def add(places: Tensor, what: Tensor) -> None:
            flat.index_add_(0, (start + places).flatten(), what)

        every = times.repeat(epochs, 1)
        if self.margins:
            right = (predictions == target).view(-1, 1)
            add(target, every * right)
            add(target + self.classes, every)
            add(predictions + 2 * self.classes, every)
        else:
            add(target * self.classes + predictions, every)

    def read(self, counts: Tensor) -> Counts:
        """Convert counts ``[..., size]`` to a matrix or margins for a measure."""
        if self.margins:
            return Margins(*counts.view(*counts.shape[:-1], 3, self.classes).unbind(-2))
        return counts.view(*counts.shape[:-1], self.classes, self.classes).double()


@dataclass(frozen=True)
class Samples:
    """Predictions and targets of all samples, with the means to count them.

    Attributes:
        predictions: ``[M, N]`` class indices.
        target: ``[N]`` class indices.
        classes: K.
        clusters: ids of the clusters, and ``[N]`` the place of each sample's id among them; or None.
    """

    predictions: Tensor
    target: Tensor
    classes: int
    clusters: tuple[Tensor, Tensor] | None

    @classmethod
    def of(
        cls,
        predictions: Tensor,
        target: Tensor,
        num_classes: int | None,
        cluster: Tensor | None,
    ) -> Samples:
        """Check the arguments of ``select_epoch`` that concern samples."""
        _check_labels(predictions, target)
        predictions, target = readable(predictions.detach().cpu()), integers(target.detach().cpu())
        if not len(target):
            raise ValueError("target has no samples to count")
        ends = [labels.aminmax() for labels in (predictions, target)]
        lowest, highest = min(int(end.min) for end in ends), max(int(end.max) for end in ends)
        classes = highest + 1 if num_classes is None else whole_number("num_classes", num_classes)
        if lowest < 0 or highest >= classes:
            raise ValueError(
                f"predictions and target must lie in 0..{classes - 1}, got {lowest}..{highest}; leave ignored samples "
                "out"
            )
        clusters = None if cluster is None else _checked_clusters(cluster, target, classes)
        return cls(predictions, target, classes, clusters)

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.predictions)

    def ones(self) -> Tensor:
        """Return times ``[N, 1]`` of 1."""
        return torch.ones(len(self.target), 1, dtype=torch.int32)

    def count(self, layout: CellOrder, epochs: Sequence[int], times: Tensor) -> Tensor:
        """Count some epochs, ``[m, size, R]``, with times ``[N, R]`` of the samples."""
        at_once = max(1, SAMPLES_AT_ONCE // max(times.numel(), 1))
        counts = times.new_zeros(len(epochs), layout.size, times.shape[1])
        for some, part in zip(
            torch.split(torch.tensor(list(epochs)), at_once), torch.split(counts, at_once), strict=True
        ):
            layout.add_(part, self.predictions[some].long(), self.target, times)
        return counts

    @property
    def buckets(self) -> int:
        """Number of matrices B: one for each bucket of clusters, or 1 without clusters."""
        return 1 if self.clusters is None else BUCKETS

    def summed(self, epoch: int, weights: Tensor | None = None) -> Tensor:
        """Sum weights of the samples by the cells of an epoch in each bucket, ``[B * K * K]``."""
        cells = self.target * self.classes + self.predictions[epoch].long()
        if self.clusters is not None:
            ids, place = self.clusters
            cells = cells + self.classes**2 * bucket_of_each(ids)[place]
        return torch.bincount(cells, weights, self.buckets * self.classes**2)

    def matrices(self, epoch: int) -> Tensor:
        """Count one epoch on all samples, ``[B, K, K]``."""
        return self.summed(epoch).view(-1, self.classes, self.classes)

    def values(self, layout: CellOrder, measure: Measure) -> Tensor:
        """Compute the value of each epoch on all samples, ``[M]``."""
        at_once = max(1, CELLS_AT_ONCE // 16 // layout.size)
        some = torch.split(torch.arange(self.epochs), at_once)
        counts = (self.count(layout, part.tolist(), self.ones()) for part in some)
        return torch.cat([measure_counts(measure, layout, part)[:, 0] for part in counts])

    def differences(self, epoch: int) -> Tensor:
        """Count for each epoch the samples that it predicts otherwise than a given one, ``[M]``."""
        return (self.predictions != self.predictions[epoch]).sum(-1)

    def coins(self, repeats: int, generator: torch.Generator | None) -> Tensor:
        """Throw a coin for each sample or cluster and repeat, int32 ``[N, R]``."""
        if self.clusters is not None:
            ids, place = self.clusters
            return coin_of_each(ids, repeats, generator)[place]
        return torch.randint(2, (len(self.target), repeats), dtype=torch.int32, generator=generator)


def _check_labels(predictions: Tensor, target: Tensor) -> None:
    """Raise for predictions and targets that are no class indices or do not fit each other."""
    check_class_indices("predictions", predictions, predicted=True)
    check_class_indices("target", target, predicted=False)
    if predictions.ndim != 2 or target.ndim != 1 or predictions.shape[1] != target.shape[0]:
        got = f"{list(predictions.shape)} and {list(target.shape)}"
        raise ValueError(f"predictions must be [M, N], a row for each epoch, and target [N], got {got}")
    if not len(predictions):
        raise ValueError("predictions has no epochs to choose from")


def _checked_clusters(cluster: Tensor, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the ids of the clusters, and the place of each sample's id among them; raise for wrong ones."""
    ids = checked_ids(cluster).detach().cpu()
    if ids.shape != target.shape:
        raise ValueError(f"cluster must hold one id per sample, {list(target.shape)}, got {list(ids.shape)}")
    if BUCKETS * classes**2 > MOST_CELLS:
        most = math.isqrt(MOST_CELLS // BUCKETS)
        raise ValueError(f"cluster needs {BUCKETS} matrices, which are too large for more than {most} classes")
    known, place = torch.unique(ids, return_inverse=True)
    return known, place


def parts(repeats: int, cells: int) -> Iterator[int]:
    """Split the repeats into parts that bound the memory."""
    most = max(1, CELLS_AT_ONCE // cells)
    return (min(most, repeats - start) for start in range(0, repeats, most))


def measure_counts(measure: Measure, layout: CellOrder, counts: Tensor) -> Tensor:
    """Compute the values ``[m, R]`` of counts ``[m, size, R]``."""
    most = CELLS_AT_ONCE // 16 // layout.size  # matrices that the measure reads at once
    found = []
    for some in torch.split(counts.transpose(-1, -2), max(1, most)):  # [m, R, size]
        blocks = torch.split(some, max(1, most // len(some)), 1)
        found.append(torch.cat([evaluated(measure, layout.read(part)) for part in blocks], 1))
    return torch.cat(found)


def crossed(samples: Samples, epochs: Sequence[int], coins: Tensor, choice: Tensor) -> Tensor:
    """Count each half at the epoch that the other half chose, summed over the repeats.

    Args:
        samples: all samples.
        epochs: m epochs, the candidates.
        coins: ``[N, R]``, 1 where a sample belongs to the first half.
        choice: ``[R, 2]``, indices into ``epochs``, chosen by the first and the second half.

    Returns:
        int64 ``[B * K * K]``, by bucket of clusters.
    """
    counts = torch.zeros(samples.buckets * samples.classes**2, dtype=torch.int64)
    for index in sorted(set(choice.flatten().tolist())):
        by_first, by_second = (choice == index).double().unbind(-1)
        weights = coins.double() @ (by_second - by_first) + by_first.sum()  # (1 - coin) by_first + coin by_second
        counts += samples.summed(epochs[index], weights).round().long()
    return counts
