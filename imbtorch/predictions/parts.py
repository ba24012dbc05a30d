"""Parts of the samples of a source, and how a counter of reports or sweeps counts one."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from imbtorch.counting.batches import Batch
from imbtorch.counting.tasks import Counter


class Part(NamedTuple):
    """Some samples, or groups of equal samples."""

    preds: Tensor
    target: Tensor
    extra: dict[str, Tensor]  # group, cluster, weight or frequency of each


def count_(counter: Counter, state: Tensor, part: Part) -> Batch:
    """Add some samples to a state in place; return what was counted."""
    batch = counter.counting.with_axes(counter.read(part.preds, part.target), part.target, **part.extra)
    counter.add_(state, batch, defer=lambda: False)
    return batch
