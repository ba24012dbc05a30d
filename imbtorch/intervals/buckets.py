"""Intervals from resampled buckets of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from imbtorch.counting.clusters import BUCKETS
from imbtorch.counts import Measure
from imbtorch.intervals.intervals import Interval, of_clusters, values

FEW_BUCKETS = 10  # number of buckets of a class below which its interval says so
ONE_BUCKET = "cluster bootstrap of fewer than two buckets"


def resample_buckets(
    measures: Mapping[str, Measure],
    buckets: Tensor,
    *,
    draws: int,
    level: float,
    generator: torch.Generator | None,
) -> dict[str, Interval]:
    """Compute intervals from resampled buckets of clusters; bounds are nan if fewer than two buckets hold samples.

    Measures are functions of counts ``[..., K, K]``, for labels ``[..., L, 2, 2]``, by name. Buckets are the counts of
    each, ``[B, K, K]`` or ``[B, L, 2, 2]``, and need not be whole.
    """
    filled, dims = buckets[buckets.flatten(1).any(1)], buckets.ndim - 1
    if len(filled) < 2:
        estimates = {name: values(each, filled.sum(0).double(), dims) for name, each in measures.items()}
        unknown = {name: torch.full_like(each, torch.nan) for name, each in estimates.items()}
        return {name: Interval(estimates[name], nan, nan, level, ONE_BUCKET) for name, nan in unknown.items()}
    found = of_clusters(measures, filled.double(), draws, level, generator, False, dims, BUCKETS)
    method = f"cluster bootstrap of {len(filled)} buckets"

    def of_buckets(text: str) -> str:
        return text.replace("cluster bootstrap", method).replace("clusters holds", "buckets holds")

    return {name: replace(each, method=of_buckets(each.method)) for name, each in found.items()}
