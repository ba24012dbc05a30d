"""The table of bins of `histogram.py` against a search."""

import math

import numpy as np
import pytest
import torch
from rooms import Grid, bins_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [False, True])
def test_the_table_of_bins_finds_what_a_search_finds(logits, dtype):
    """Scores on edges, beside them, and where float32 has few numbers left."""
    edges = Grid.of(None, logits).edges
    on = edges.to(dtype)
    ends = torch.tensor(
        [-math.inf, math.inf, 1e30, -1e30, 1e-40, -0.0, 0.0, 0.5, 1.0, 1 - 2**-24, 0.4999999], dtype=dtype
    )
    scores = torch.cat([ends, *(torch.nextafter(on, torch.tensor(end, dtype=dtype)) for end in (-9e9, 9e9)), on])
    odds = torch.randn(20_000, generator=torch.Generator().manual_seed(0), dtype=dtype) * 20
    scores = torch.cat((scores, odds)) if logits else torch.cat((scores[(scores >= 0) & (scores <= 1)], odds.sigmoid()))
    expected = np.searchsorted(on.numpy(), scores.numpy())
    assert bins_of(scores, edges, logits).tolist() == expected.tolist()
    few = scores[::200].contiguous()  # which are searched for
    assert bins_of(few, edges, logits).tolist() == expected[::200].tolist()


@pytest.mark.parametrize(
    "thresholds", [torch.linspace(0, 1, 300), torch.tensor([0.5] * 300), torch.rand(500).sort().values]
)
@pytest.mark.parametrize("logits", [False, True])
def test_thresholds_of_ones_own_are_searched_as_well(thresholds, logits):
    grid = Grid.of(thresholds, logits)
    scores = torch.cat((grid.edges, torch.linspace(-3, 3, 999) if logits else torch.linspace(0, 1, 999))).float()
    expected = np.searchsorted(grid.edges.float().numpy(), scores.numpy())
    assert bins_of(scores, grid.edges, logits).tolist() == expected.tolist()
