"""Costs of decisions: named ones against loops over samples, and what a point says of them."""

import json
import math

import pytest
import torch
from rooms import checked_costs

import imbtorch
from imbtorch import ThresholdSweep


def drawn(samples=1500, share=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(samples, generator=generator) < share).long()
    return (torch.randn(samples, generator=generator, dtype=torch.float64) + 2 * target - 2).sigmoid(), target


def paid(flagged, target, miss=0.0, false_alarm=0.0, investigation=0.0):
    """Pay for each sample in turn; return the mean."""
    total = 0.0
    for flag, true in zip(flagged.tolist(), target.tolist(), strict=True):
        total += investigation * flag + (false_alarm if flag and not true else miss if true and not flag else 0.0)
    return total / len(target)


@pytest.mark.parametrize(
    "costs",
    [
        {"miss": 10, "false_alarm": 1},
        {"miss": 8, "investigation": 2},
        {"miss": 9, "false_alarm": 2, "investigation": 1},
    ],
)
def test_named_costs_are_paid_for_each_sample(costs):
    scores, target = drawn()
    sweep = ThresholdSweep("f1", 101, costs=costs)
    sweep.update(scores, target)
    chosen = sweep.compute()["threshold"].item()
    assert sweep.costs.tolist() == checked_costs(costs).tolist()
    of_each = {cut: paid(scores > cut, target, **costs) for cut in sweep.thresholds.tolist()}
    assert of_each[chosen] == pytest.approx(min(of_each.values()))
    point = sweep.best()
    assert point.threshold == chosen == sweep.result().best(costs=costs, at_least={}).threshold
    wanted = {
        "chosen": of_each[chosen],
        "half": paid(scores > 0.5, target, **costs),
        "no_alarm": paid(scores > 2, target, **costs),
        "all_alarms": paid(scores > -1, target, **costs),
        "miss": costs.get("miss", 0),
        "false_alarm": costs.get("false_alarm", 0) + costs.get("investigation", 0),
        "hit": costs.get("investigation", 0),
        "true_negative": 0,
    }
    assert dict(point.costs) == pytest.approx(wanted)


def test_costs_at_a_prevalence_are_those_of_weighted_samples():
    scores, target = drawn()
    sweep = ThresholdSweep("f1", 101, prevalence=[0.98, 0.02], costs={"miss": 30, "false_alarm": 1})
    sweep.update(scores, target)
    point, share = sweep.best(), target.double().mean().item()
    weight = torch.where(target == 1, 0.02 / share, 0.98 / (1 - share))
    for name, cut in (("chosen", point.threshold), ("half", 0.5)):
        errors = torch.where(target == 1, 30.0 * (scores <= cut), 1.0 * (scores > cut))
        assert point.costs[name] == pytest.approx((errors * weight).mean().item())


def test_a_point_says_what_errors_cost_and_keeps_it_in_its_file(tmp_path):
    scores, target = drawn()
    sweep = ThresholdSweep("f1")
    sweep.update(scores, target)
    point = sweep.result().best(costs={"miss": 10, "false_alarm": 1, "investigation": 2})
    text = " ".join(str(point).split())
    assert "; a miss costs 10, a false alarm 3, a hit 2: " in text
    assert f"{10 * target.double().mean():.3g} without alarms" in text
    assert "swapped" not in text
    point.to_json(tmp_path / "point.json")
    again = imbtorch.open_result(tmp_path / "point.json")
    assert (again.costs, str(again)) == (point.costs, str(point))
    sweep.result().best(alerts=0.1).to_json(tmp_path / "plain.json")
    assert "costs" not in json.loads((tmp_path / "plain.json").read_text())  # as in files of 0.7
    assert imbtorch.open_result(tmp_path / "plain.json").costs == {}


def test_a_dear_false_alarm_is_noted_if_positives_are_rarer():
    scores, target = drawn()
    swapped = {"miss": 1, "false_alarm": 10}
    sweep = ThresholdSweep("f1", costs=swapped)
    sweep.update(scores, target)
    with pytest.warns(UserWarning, match="false alarm costs more than a miss, although positives are rarer"):
        sweep.compute()
    assert "check that costs are not swapped" in " ".join(str(sweep.best()).split())
    assert "swapped" in str(sweep.table())
    common = ThresholdSweep("f1", costs=swapped)
    common.update(1 - scores, 1 - target)
    common.compute()  # warnings are errors
    assert "swapped" not in str(common.best())


@pytest.mark.parametrize(
    ("costs", "error", "text"),
    [
        ([1, 10], ValueError, r"\{'miss': 10, .*\} or \[\[0, false_alarm\], \[miss, 0\]\], got shape \[2\]"),
        ([[0, 0], [0, 0]], ValueError, "got zeros alone"),
        ({}, ValueError, "got zeros alone"),
        ({"fn": 3}, ValueError, "costs must be one of 'miss', 'false_alarm', 'investigation', got 'fn'"),
        ({"miss": "10"}, TypeError, r"costs\['miss'\] must be a number, got '10'"),
        ({"miss": math.nan}, ValueError, "costs must be finite"),
        ("1,10", TypeError, r"costs must be \{'miss'.*got '1,10'"),
    ],
)
def test_other_costs_name_both_forms(costs, error, text):
    with pytest.raises(error, match=text):
        ThresholdSweep("f1", costs=costs)
