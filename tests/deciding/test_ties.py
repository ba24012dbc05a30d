"""Ties of candidates: the best up to rounding, the one to keep, and those that no other beats."""

import math
from itertools import product

import pytest
import torch
from rooms import as_good_as_best, best_first, index_to_keep

from imbtorch.statistics import undominated

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("values", list(product((0.3, 0.3 + 1e-14, 0.9, -INF, INF, NAN), repeat=3)))
def test_the_best_the_first_and_the_one_to_keep_agree(values):
    """By Python's own comparison of floats, where only the two values 1e-14 apart tie by rounding."""
    numbers = [value for value in values if not math.isnan(value)]
    high = max(numbers, default=NAN)
    wanted = [index for index, value in enumerate(values) if value == high or abs(value - high) < 1e-13]
    given = torch.tensor(values, dtype=torch.float64)
    assert as_good_as_best(given).nonzero().flatten().tolist() == wanted
    assert (best_first(given, "earliest"), best_first(given, "latest")) == (wanted, wanted[::-1])
    assert int(index_to_keep(given, "earliest")) == (wanted[0] if wanted else 0)
    if wanted:
        assert int(index_to_keep(given, "latest")) == wanted[-1]


def test_nothing_to_choose_from():
    assert as_good_as_best(torch.empty(2, 0)).shape == (2, 0)
    assert best_first(torch.empty(0), "latest") == []


def test_what_no_other_point_dominates():
    generator = torch.Generator().manual_seed(3)
    points = (torch.rand(60, 2, generator=generator) * 10).round()  # many are equal
    expected = [not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points.tolist()) for p in points.tolist()]
    assert undominated(points).tolist() == expected
    assert 1 < sum(expected) < 30
    assert undominated(torch.tensor([[0.0, math.nan], [0.1, 0.5], [-0.5, 0.4]])).tolist() == [False, True, False]
    assert undominated(torch.empty(0, 2)).tolist() == []
    with pytest.raises(ValueError, match=r"points must be \[M, 2\] .*got \[2\]"):
        undominated(torch.zeros(2))
