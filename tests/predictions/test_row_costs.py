"""Costs of rows of saved predictions (`saved.py`, `scores.py`, the command): against loops over the rows of a frame."""

import json
import math

import numpy as np
import pytest
import torch
from rooms import command_line

import imbtorch
from imbtorch import Predictions, open_result
from imbtorch.statistics import CostPoint

COSTS = {"miss": "amount", "investigation": 4}


def columns(seed=0, rows=3000):
    """Scores that rank positives higher, amounts with a heavy tail, and shops of three rows."""
    drawn = np.random.default_rng(seed)
    fraud = (drawn.random(rows) < 0.05).astype(int)
    odds = drawn.normal(size=rows) - 3 + 2 * fraud
    amount = np.exp(drawn.normal(4, 1.2, rows)).round(2)
    score = 1 / (1 + np.exp(-odds))
    return {"s": score, "z": odds, "fraud": fraud, "amount": amount, "fee": amount / 50, "shop": np.arange(rows) // 3}


def flags(held, offset, fee=0.0):
    """Decide each row by the documented rule."""
    found = []
    for odds, amount, each in zip(held["z"], held["amount"], np.broadcast_to(fee, len(held["z"])), strict=True):
        found.append(amount > 4 and bool(odds > offset + math.log((4 + each) / (amount - 4))))
    return np.array(found)


def cost(held, flagged, fee=0.0):
    alarms = (flagged * (4 + (1 - held["fraud"]) * fee)).sum()
    return alarms + (held["amount"] * held["fraud"])[~flagged].sum()


@pytest.mark.parametrize("more", [{}, {"false_alarm": "fee"}])
def test_a_point_has_the_lowest_costs(more):
    held = columns()
    fee = held["fee"] if more else 0.0
    point = Predictions(held, target="fraud").thresholds("s", costs=COSTS | more)
    assert isinstance(point, CostPoint)
    assert point.values["cost"] == pytest.approx(cost(held, flags(held, point.offset, fee), fee))
    tried = [cost(held, flags(held, offset, fee), fee) for offset in np.linspace(-6, 6, 601)]
    assert point.values["cost"] <= min(tried) + 1e-6
    assert point.values["cost"] > point.values["foresight"]
    assert point.values["held_out"] >= point.values["cost"]
    assert point.medians["amount"] == pytest.approx(np.sort(held["amount"])[1499])


def test_logits_give_the_point_of_their_probabilities():
    data = Predictions(columns(), target="fraud")
    point, of_logits = data.thresholds("s", costs=COSTS), data.thresholds("z", costs=COSTS, logits=True)
    assert of_logits.offset == pytest.approx(point.offset)
    assert of_logits.values == pytest.approx(point.values)
    with pytest.raises(ValueError, match="threshold was chosen for logits, but the scores are probabilities"):
        data.report(scores="s", threshold=of_logits)


@pytest.mark.parametrize("logits", [False, True])
def test_a_report_of_other_rows_is_that_of_their_flags(logits):
    point = Predictions(columns(), target="fraud").thresholds("z" if logits else "s", costs=COSTS, logits=logits)
    held = columns(1)
    flagged = flags(held, point.offset)
    data = Predictions(held, target="fraud", cluster="shop")
    found = data.report(scores="z" if logits else "s", threshold=point, logits=logits, intervals=["recall"])
    plain = imbtorch.report(held, target="fraud", scores="s", cluster="shop", intervals=["recall"])
    expected = imbtorch.report(preds=flagged.astype(int), target=held["fraud"], cluster=held["shop"])
    assert torch.equal(found.counts, expected.counts)
    assert found["auc"] == plain["auc"]
    text = " ".join(str(found.table()).split())
    all_alerts = 4 * len(flagged)
    assert all_alerts < (held["amount"] * held["fraud"]).sum()
    share = 1 - cost(held, flagged) / all_alerts
    assert f"costs {cost(held, flagged):,.0f}, {share:.0%} less than with all alerts (12,000)" in text
    assert "chooses one" not in text
    assert "held-out" not in text


def test_a_month_without_positives_costs_its_alerts():
    point = Predictions(columns(), target="fraud").thresholds("s", costs=COSTS)
    held = columns(1) | {"fraud": np.zeros(3000, int)}
    table = str(Predictions(held, target="fraud").report(scores="s", threshold=point).table())
    number = int(flags(held, point.offset).sum())
    assert f"costs {4 * number:,}, more than without alerts (0)" in table
    assert f"{number} alerts" in " ".join(table.split())


def test_another_unit_is_noted():
    point = Predictions(columns(), target="fraud").thresholds("s", costs=COSTS)
    held = columns(1) | {"amount": 100 * columns(1)["amount"]}
    table = Predictions(held, target="fraud").report(scores="s", threshold=point).table()
    assert str(table).count("the median of amount is") == 1


def test_numbers_alone_are_the_constant_costs_of_one_threshold():
    held = columns()
    point = Predictions(held, target="fraud").thresholds("s", costs={"miss": 60, "false_alarm": 1, "investigation": 2})
    flagged = held["z"] > point.offset + math.log(3 / 58)
    cuts = [held["z"] > each for each in np.linspace(-8, 4, 500)]
    alike = [2 * cut.sum() + cut[held["fraud"] == 0].sum() + 60 * held["fraud"][~cut].sum() for cut in cuts]
    own = 2 * flagged.sum() + flagged[held["fraud"] == 0].sum() + 60 * held["fraud"][~flagged].sum()
    assert point.values["cost"] == own <= min(alike)
    assert "recall of" not in str(point)


@pytest.mark.parametrize(
    ("given", "costs", "arguments", "message"),
    [
        ({}, {"miss": "amount"}, {"at_least": {"recall": 0.5}}, "costs of rows take no at_least"),
        ({}, {"miss": "amount"}, {"alerts": 0.1}, "costs of rows take no alerts"),
        ({}, {"miss": "amount"}, {"at_least": {"recall": 0.5}, "sure": 0.9}, "take no at_least"),
        ({}, {"miss": "amount"}, {"prevalence": [0.9, 0.1]}, "costs of rows take no prevalence"),
        ({"weight": "fee"}, {"miss": "amount"}, {}, "costs of rows take no weight"),
        ({"frequency": "shop"}, {"miss": "amount"}, {}, "costs of rows take no frequency"),
        ({}, None, {}, "costs must name that of a miss if there is no measure"),
        ({}, {"investigation": 4}, {}, "costs must name that of a miss"),
        (
            {},
            {"miss": "amount", "alarm": 1},
            {},
            "costs must be one of 'miss', 'false_alarm', 'investigation', got 'alarm'",
        ),
        ({}, {"miss": -1}, {}, r"costs\['miss'\] must be finite and not negative"),
        ({}, {"miss": math.nan}, {}, r"costs\['miss'\] must be finite and not"),
        ({}, {"miss": "amuont"}, {}, "miss: there is no column 'amuont'; did you mean 'amount'"),
        ({}, {"miss": "s"}, {}, "scores and miss are one column"),
        ({}, {"miss": "z"}, {}, "miss must be finite and not negative, got -"),
    ],
)
def test_costs_that_do_not_fit_are_errors(given, costs, arguments, message):
    data = Predictions(columns(), target="fraud", **given)
    with pytest.raises(ValueError, match=message):
        data.thresholds("s", costs=costs, **arguments)


def test_a_missing_or_infinite_cost_is_an_error():
    for wrong, message in ((math.nan, "miss has no value in row 7"), (math.inf, "miss must be finite .* in row 7")):
        held = columns()
        held["amount"][7] = wrong
        with pytest.raises(ValueError, match=message):
            Predictions(held, target="fraud", missing="drop").thresholds("s", costs=COSTS)


def test_labels_several_scores_and_one_class_are_errors():
    held = columns() | {"other": columns(1)["fraud"], "s2": columns()["s"]}
    with pytest.raises(ValueError, match="costs of rows need two classes"):
        Predictions(held, target=["fraud", "other"]).thresholds({"fraud": "s", "other": "s2"}, costs=COSTS)
    with pytest.raises(ValueError, match="one column of scores"):
        Predictions(held, target="fraud").thresholds({"0": "s", "1": "s2"}, costs=COSTS)
    with pytest.raises(ValueError, match="targets of both classes"):
        Predictions(held | {"fraud": np.zeros(3000, int)}, target="fraud", positive=1, class_names=[0, 1]).thresholds(
            "s", costs=COSTS
        )


def test_a_point_is_for_reports_of_its_columns_alone():
    held = columns()
    data = Predictions(held, target="fraud")
    point = data.thresholds("s", costs=COSTS)
    with pytest.raises(ValueError, match="which only report takes"):
        data.label_plan(scores="s", threshold=point, labels=10)
    with pytest.raises(ValueError, match="costs of rows take no prevalence"):
        data.report(scores="s", threshold=point, prevalence=[0.9, 0.1])
    with pytest.raises(ValueError, match="miss: there is no column 'amount'"):
        Predictions({name: held[name] for name in ("s", "fraud")}, target="fraud").report(scores="s", threshold=point)


@pytest.fixture
def files(tmp_path):
    for name, seed in (("may", 0), ("june", 1)):
        held = columns(seed)
        lines = [",".join(map(repr, map(float, row))) for row in zip(*held.values(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(held), *lines]).replace(".0,", ","), encoding="utf-8")
    return tmp_path


def test_the_command_prints_and_keeps_the_point(files, capsys):
    pytest.importorskip("duckdb", reason="the extra `files` is not installed")
    saved = str(files / "point.json")
    choose = ["thresholds", str(files / "may.csv"), "--target", "fraud", "--scores", "s"]
    code = command_line.main([*choose, "--costs", "miss=amount,investigation=4", "--json", saved])
    printed = capsys.readouterr().out
    assert code == 0
    point = Predictions(columns(), target="fraud").thresholds("s", costs=COSTS)
    assert printed.strip() == str(open_result(saved))
    assert json.loads((files / "point.json").read_text(encoding="utf-8"))["costs"] == {
        "miss": "amount",
        "false_alarm": 0,
        "investigation": 4,
    }
    assert open_result(saved).offset == pytest.approx(point.offset)
    month = ["report", str(files / "june.csv"), "--target", "fraud", "--scores", "s", "--threshold", saved]
    assert command_line.main(month) == 0
    held = columns(1)
    assert f"costs {cost(held, flags(held, point.offset)):,.0f}, " in capsys.readouterr().out
    for arguments, message in (
        ([], "name a measure by --measure, or costs of rows by --costs miss=amount"),
        (["--costs", "miss=amount", "--calibration"], "--calibration, --plot and forms of tables are of a measure"),
        (["--costs", "miss=amount", "--alerts", ".1"], "costs of rows take no alerts"),
        (["--costs", "miss=amount", "--measure", "f1"], "costs of rows take no measure"),
    ):
        assert command_line.main([*choose, *arguments]) == 2
        assert message in capsys.readouterr().err
