"""Joint outcomes of several predictions of the same samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_class_indices, checked_ids, spread, whole_number
from imbtorch.counting.kernels import integers
from imbtorch.counts import Margins, Measure, evaluated
from imbtorch.intervals.intervals import values

LARGEST = 2**62  # numbers of combined columns, below the end of int64


@dataclass(frozen=True)
class JointOutcomes:
    """Outcomes of R predictions of the same samples: a column for each different one, in the order of the true classes.

    Attributes:
        preds: ``[R, U]`` predicted classes.
        target: ``[U]`` true classes.
        times: float64 ``[U]`` numbers of samples.
        classes: number of classes K; of L labels 2 L, as class y of label l is 2 l + y.
        cluster: ``[U]`` place of the cluster among all clusters; None for independent samples.
        labels: number of labels L; 0 for classes.
    """

    preds: Tensor
    target: Tensor
    times: Tensor
    classes: int
    cluster: Tensor | None = None
    labels: int = 0

    @classmethod
    def of(
        cls,
        preds: Tensor,
        target: Tensor,
        classes: int,
        cluster: Tensor | None = None,
        times: Tensor | None = None,
        labels: int = 0,
    ) -> JointOutcomes:
        """Count the different outcomes of samples, or of groups of equal samples.

        Args:
            preds: ``[R, N]`` predicted classes of each sample or group.
            target: ``[N]`` true classes.
            classes: number of classes K.
            cluster: ``[N]`` ids of clusters.
            times: ``[N]`` numbers of samples of each group; by default 1.
            labels: number of labels; 0 for classes.
        """
        if cluster is not None:
            cluster = torch.unique(cluster, return_inverse=True)[1]
        key, most = torch.zeros_like(target), 1
        for column in (target, *preds, *([] if cluster is None else [cluster])):
            size = max(classes, int(column.max()) + 1)
            if most > LARGEST // size:  # ranks keep the order
                known, key = torch.unique(key, return_inverse=True)
                most = len(known)
            key, most = key * size + column, most * size
        known, place = torch.unique(key, return_inverse=True)
        first = torch.zeros_like(known).scatter_(0, place, torch.arange(len(place)))
        ones = torch.ones_like(target) if times is None else times
        summed = torch.zeros(len(known), dtype=torch.float64).index_add_(0, place, ones.double())
        place_of = None if cluster is None else cluster[first]
        return cls(preds[:, first], target[first], summed, classes, place_of, labels)

    @property
    def measured(self) -> tuple[int, int | None]:
        """Number of classes of each matrix, and of labels, as :func:`measure_of_counts` takes them."""
        return (2, self.labels) if self.labels else (self.classes, None)

    def evaluated(self, measure: Measure, counts: Tensor) -> Tensor:
        """Return one value ``[...]`` of each matrix ``[..., K, K]``, or of all labels ``[..., L, 2, 2]``."""
        if not self.labels:
            return evaluated(measure, counts)
        value = values(measure, counts, 3)
        if value.shape != counts.shape[:-3]:
            raise ValueError(f"measure must return one value of all {self.labels} labels; choose an average")
        return value

    def pooled(self) -> JointOutcomes:
        """Return the outcomes without their clusters."""
        return JointOutcomes.of(self.preds, self.target, self.classes, times=self.times)

    @property
    def clusters(self) -> int:
        """Number of clusters; 0 for independent samples."""
        return 0 if self.cluster is None else int(self.cluster.max()) + 1

    @property
    def seen(self) -> Tensor:
        """Classes that occur among targets or predictions."""
        found: Tensor = torch.unique(torch.cat((self.target, self.preds.flatten())))
        return found

    def actual(self, mass: Tensor | None = None) -> Tensor:
        """Sum samples, or mass ``[U, D]``, by true class, ``[K]`` or ``[K, D]``."""
        mass = self.times if mass is None else mass
        sums: Tensor = mass.new_zeros(self.classes, *mass.shape[1:])
        return sums.index_add_(0, self.target, mass)

    def of_clusters(self, mass: Tensor) -> Tensor:
        """Sum mass ``[U]`` by cluster and true class, ``[M, K]``."""
        assert self.cluster is not None
        sums: Tensor = mass.new_zeros(self.clusters * self.classes)
        return sums.index_add_(0, self.cluster * self.classes + self.target, mass).view(-1, self.classes)

    def counted(self) -> Tensor:
        """Count each prediction, ``[R, K, K]``, or ``[R, L, 2, 2]``."""
        return self.matrices(self.times.unsqueeze(-1))[0]

    def matrices(self, mass: Tensor, lumps: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
        """Sum mass ``[U, D]`` of the outcomes into matrices ``[D, R, K, K]``, of labels ``[D, R, L, 2, 2]``.

        Args:
            mass: mass of each outcome in each draw.
            lumps: mass ``[L, D]`` of other outcomes, their true classes ``[L]``, and predicted classes ``[R, L, D]``.
        """
        width = 2 if self.labels else self.classes
        flat = mass.new_zeros(len(self.preds), self.classes * width, mass.shape[-1])
        for own, preds in zip(flat, self.preds, strict=True):
            own.index_add_(0, self.target * width + preds % width, mass)
        if lumps is not None:
            more, rows, columns = lumps
            for own, column in zip(flat, columns, strict=True):
                own.scatter_add_(0, rows.unsqueeze(-1) * width + column % width, more)
        shape = (self.labels, 2, 2) if self.labels else (width, width)
        return flat.permute(2, 0, 1).reshape(-1, len(flat), *shape).contiguous()

    def margins(self, mass: Tensor, lumps: tuple[Tensor, Tensor, Tensor]) -> list[Margins]:
        """Sum mass of the outcomes into the margins ``[D, K]`` of each prediction; see :meth:`matrices`."""
        more, rows, columns = lumps
        actual, found = self.actual(mass).index_add_(0, rows, more), list[Margins]()
        for preds, column in zip(self.preds, columns, strict=True):
            hit, hits = preds == self.target, torch.where(column == rows.unsqueeze(-1), more, 0.0)
            right, predicted = mass.new_zeros(2, *actual.shape).unbind()
            right.index_add_(0, self.target[hit], mass[hit]).index_add_(0, rows, hits)
            predicted.index_add_(0, preds, mass).scatter_add_(0, column, more)
            found.append(Margins(right.t(), actual.t(), predicted.t()))
        return found


def check_predictions(name: str, preds: Tensor, target: Tensor) -> None:
    """Raise unless predictions are class indices, one for each target."""
    check_class_indices(name, preds, predicted=True)
    if preds.shape != target.shape:
        raise ValueError(
            f"{name} must hold a class index for each target, {list(target.shape)}, got {list(preds.shape)}"
        )


def number_of_labels(preds: Iterable[Tensor], target: Tensor, classes: int | None, ignore_index: int | None) -> int:
    """Return the number of labels of targets ``[N, L]`` of 0 and 1; 0 for classes, of which a number may be given."""
    if classes is not None or target.ndim != 2 or target.shape[1] < 2:
        return 0
    known = ((target == 0) | (target == 1) | (target == ignore_index)).all()
    return target.shape[1] * int(known and all(bool(((each == 0) | (each == 1)).all()) for each in preds))


def checked_outcomes(
    preds: Mapping[str, Tensor],
    target: Tensor,
    num_classes: int | None,
    cluster: Tensor | None,
    ignore_index: int | None = None,
) -> JointOutcomes:
    """Check predictions of the same samples and ids of clusters, and return their joint outcomes.

    Args:
        preds: name for errors -> ``[N, ...]`` class indices.
        target: ``[N, ...]`` class indices, or ``[N, L]`` of 0 and 1 for labels, which are a cluster of each sample.
        num_classes: number of classes; None for labels, or the largest index plus one.
        cluster: ids, ``[N]`` or in the shape of the targets.
        ignore_index: target of the samples, or of single labels, to leave out.
    """
    check_class_indices("target", target, predicted=False)
    kept = (target != ignore_index if ignore_index is not None else torch.ones_like(target, dtype=torch.bool)).flatten()
    if not bool(kept.any()):
        raise ValueError("target holds no samples, so there is nothing to compare")
    for name, each in preds.items():
        check_predictions(name, each, target)
    if number := number_of_labels(preds.values(), target, num_classes, ignore_index):
        cluster = torch.arange(len(target)) if cluster is None else cluster
    flat = {name: integers(each).flatten()[kept] for name, each in {**preds, "target": target}.items()}
    largest = max(int(each.max()) for each in flat.values())
    classes = max(largest + 1, 2) if num_classes is None else whole_number("num_classes", num_classes)
    if classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes!r}")
    for name, each in flat.items():
        low, high = int(each.min()), int(each.max())
        if low < 0:
            raise ValueError(f"{name} holds the class {low}; classes count from 0")
        if high >= classes:
            raise ValueError(f"{name} holds the class {high}, but num_classes={classes} allows 0..{classes - 1}")
    if cluster is not None:
        cluster = spread("cluster", checked_ids(cluster), target, target).flatten()[kept]
    *predicted, true = flat.values()
    if number:
        place = 2 * torch.arange(number).expand(target.shape).flatten()[kept]
        predicted, true, classes = [each + place for each in predicted], true + place, 2 * number
    return JointOutcomes.of(torch.stack(predicted), true, classes, cluster, labels=number)
