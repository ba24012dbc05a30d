"""Plans of looks, against published bounds and simulated random walks."""

import json

import numpy as np
import pytest
import torch
from rooms import LooksFile, quantile_of_look
from scipy import stats

from imbtorch.statistics import paired_compare

TARGET = torch.tensor([0] * 180 + [1] * 20)
A, B = TARGET.clone(), TARGET.clone()
A[:10], B[:14], B[195:] = 1, 1, 0


@pytest.mark.default_cases("1-4.8769", "2-3.3569")
@pytest.mark.parametrize(("look", "bound"), [(1, 4.8769), (2, 3.3569), (3, 2.6803), (4, 2.2898), (5, 2.0310)])
def test_bounds_are_the_published_ones(look, bound):
    """Five looks with the O'Brien-Fleming spending function, one-sided 0.025 (as in the R package ldbounds)."""
    assert quantile_of_look(0.95, 5, look) == pytest.approx(bound, abs=2e-4)


@pytest.mark.default_cases("2.0")
@pytest.mark.parametrize("growth", [0.5, 1.0, 2.0])
def test_all_looks_together_err_as_often_as_one(growth):
    """Random walks whose information grows unevenly cross a bound at one of ten looks in 5%."""
    information = [look**growth for look in range(1, 11)]
    bounds = np.array([quantile_of_look(0.9, 10, look, information[:look]) for look in range(1, 11)])
    steps = np.sqrt(np.diff([0, *information]))
    walks = (np.random.default_rng(0).standard_normal((100_000, 10)) * steps).cumsum(1)
    crossed = (walks / np.sqrt(information) > bounds).any(1).mean()
    assert stats.binomtest(int(crossed * 100_000), 100_000, 0.05).pvalue > 0.001


def test_one_look_is_the_usual_interval():
    assert quantile_of_look(0.95, 1, 1) == pytest.approx(stats.norm.ppf(0.975))
    plain, planned = (
        paired_compare("f1", A, B, TARGET, 2, draws=2000, generator=torch.Generator().manual_seed(0), **plan).difference
        for plan in ({}, {"looks": 1, "look": 1})
    )
    assert [planned.low.item(), planned.high.item()] == pytest.approx([plain.low.item(), plain.high.item()], abs=1e-9)


def test_early_bounds_reach_beyond_the_draws():
    """At look 10 of 20 z is 2.6 and at look 5 it is 4.3: the tails go on as those of a normal distribution."""
    found = [
        paired_compare(
            "recall", A, B, TARGET, 2, draws=4000, generator=torch.Generator().manual_seed(0), looks=20, look=look
        ).difference
        for look in (5, 8, 20)
    ]
    halves = [(each.high - each.low).item() for each in found]
    expected = [quantile_of_look(0.95, 20, look) for look in (5, 8)]
    assert halves[0] / halves[1] == pytest.approx(expected[0] / expected[1])
    assert halves[1] > halves[2]
    assert "look 5 of 20" in str(found[0])


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"looks": 20}, "looks and look belong together"),
        ({"look": 2}, "looks and look belong together"),
        ({"looks": 20, "look": 21}, "look must be 1 to looks=20, got 21"),
        ({"looks": 20, "look": 0}, "look must be 1 to looks=20, got 0"),
    ],
)
def test_plans_that_are_none(plan, text):
    with pytest.raises(ValueError, match=text):
        paired_compare("f1", A, B, TARGET, 2, **plan)


def test_information_must_be_known_at_each_look():
    for wrong in ([1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="information must be positive at each of 2 looks"):
            quantile_of_look(0.95, 5, 2, wrong)


def test_a_file_refuses_repeated_and_skipped_looks(tmp_path):
    path, plan = tmp_path / "looks.json", {"measure": "f1", "margin": 0.02, "level": 0.9, "looks": 3}
    first = LooksFile(path, plan)
    first.check(1, 100, "a")
    first.add(samples=100, information=50.0, bound=-0.1, verdict="undecided", digest="a")
    again = LooksFile(path, plan)
    with pytest.raises(ValueError, match="holds 1 looks, so the next is look 2, got 3"):
        again.check(3, 300, "b")
    with pytest.raises(ValueError, match="look 2 must see more samples than the 100 of look 1, got 100"):
        again.check(2, 100, "b")
    with pytest.raises(ValueError, match="look 2 must see more samples"):
        again.check(2, 200, "a")
    again.check(2, 200, "b")
    with pytest.raises(ValueError, match=r"plans margin=0\.02, got 0\.03"):
        LooksFile(path, {**plan, "margin": 0.03})
    assert [each["verdict"] for each in json.loads(path.read_text(encoding="utf-8"))["looks"]] == ["undecided"]


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "looks.json"
    path.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(ValueError, match="is no file that records looks"):
        LooksFile(path, {})
