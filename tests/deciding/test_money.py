"""Costs of rows: the offset and its costs by loops over rows and all cuts, the rule as SQL and NumPy, and its file."""

import itertools
import json
import math
import random
import sqlite3

import numpy as np
import pytest
import torch
from rooms import money

from imbtorch import open_result
from imbtorch.statistics import CostPoint

SCORES = [0.0, 0.02, 0.1, 0.1, 0.25, 0.4, 0.4, 0.6, 0.9, 0.97, 1.0]


def some_rows(seed, number=60):
    """Scores with ties, 0 and 1, classes, costs that are often 0 or alike, and clusters of four."""
    drawn = random.Random(seed)
    return [
        {
            "s": drawn.choice(SCORES),
            "y": float(drawn.random() < 0.4),
            "miss": drawn.choice([0.0, 2.0, 3.0, 20.0, 75.5]),
            "false_alarm": drawn.choice([0.0, 0.0, 2.5]),
            "investigation": drawn.choice([0.0, 2.0]),
            "cluster": place // 4,
        }
        for place in range(number)
    ]


def ledger_of(rows):
    fields = ("s", "y", "miss", "false_alarm", "investigation", "cluster")
    s, y, *costs, cluster = (torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in fields)
    return money.Ledger(s.logit(), y == 1, *costs, cluster.long())


def is_flagged(row, offset):
    """Decide one row by the rule as it is documented, with its limits."""
    if row["miss"] <= row["investigation"] or row["s"] == 0:
        return False
    paid = row["investigation"] + row["false_alarm"]
    if row["s"] == 1 or paid == 0:
        return True
    odds = math.log(row["s"] / (1 - row["s"]))
    return odds > offset + math.log(paid / (row["miss"] - row["investigation"]))


def cost_of(row, flagged):
    if flagged:
        return row["investigation"] + (row["false_alarm"] if row["y"] == 0 else 0)
    return row["miss"] if row["y"] == 1 else 0


def total(rows, offset):
    return math.fsum(cost_of(row, is_flagged(row, offset)) for row in rows)


def all_offsets(rows):
    """Return an offset between each two neighbours among the rows' own, and one at either end."""
    own = set()
    for row in rows:
        paid, gain = row["investigation"] + row["false_alarm"], row["miss"] - row["investigation"]
        if gain > 0 and paid > 0 and 0 < row["s"] < 1:
            own.add(round(math.log(row["s"] / (1 - row["s"])) - math.log(paid / gain), 9))
    own = sorted(own)
    return [own[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(own)), own[-1] + 1]


@pytest.mark.parametrize("seed", range(6))
def test_the_offset_is_the_cheapest_of_all(seed):
    rows = some_rows(seed)
    offset = ledger_of(rows).cheapest()
    costs = {each: total(rows, each) for each in all_offsets(rows)}
    least = min(costs.values())
    assert total(rows, offset) == pytest.approx(least)
    assert offset == pytest.approx(max(each for each, cost in costs.items() if cost == pytest.approx(least)))


@pytest.mark.parametrize("seed", range(3))
def test_values_are_sums_over_rows(seed):
    rows, offset = some_rows(seed), 0.7
    found = ledger_of(rows).at(offset)
    positive = [row for row in rows if row["y"] == 1]
    flagged = [row for row in rows if is_flagged(row, offset)]
    missed = sorted((row["miss"] for row in positive), reverse=True)
    assert found == {
        "cost": pytest.approx(total(rows, offset)),
        "no_alerts": pytest.approx(sum(missed)),
        "all_alerts": pytest.approx(sum(cost_of(row, True) for row in rows)),
        "foresight": pytest.approx(sum(min(cost_of(row, flag) for flag in (True, False)) for row in rows)),
        "alerts": len(flagged),
        "rows": len(rows),
        "recall": pytest.approx(sum(row["y"] for row in flagged) / len(positive)),
        "recall_of_miss": pytest.approx(sum(row["miss"] for row in flagged if row["y"] == 1) / sum(missed)),
        "largest": pytest.approx(sum(missed[:10]) / sum(missed)),
        "never": sum(row["miss"] <= row["investigation"] for row in rows),
    }


def test_held_out_tenths_keep_clusters_whole(monkeypatch):
    rows, kept = some_rows(4), []
    ledger = ledger_of(rows)
    cheapest = money.Ledger.cheapest

    def remembered(self, some):
        kept.append(some)
        return cheapest(self, some)

    monkeypatch.setattr(money.Ledger, "cheapest", remembered)
    found = ledger.held_out()
    left_out = [{row for row in range(60) if not some[row]} for some in kept]
    assert sorted(itertools.chain(*left_out)) == list(range(60))
    assert all({rows[row]["cluster"] for row in part} == {row // 4 for row in part} for part in left_out)
    assert all(len(part) % 4 == 0 for part in left_out)
    expected = 0.0
    for some, part in zip(kept, left_out, strict=True):
        chosen = [row for row, keep in zip(rows, some.tolist(), strict=True) if keep]
        costs = {each: total(chosen, each) for each in all_offsets(chosen)}
        offset = max(each for each, cost in costs.items() if cost == pytest.approx(min(costs.values())))
        expected += sum(cost_of(rows[row], is_flagged(rows[row], offset)) for row in part)
    assert found == pytest.approx(expected)


def point(costs, offset=0.7, scores="s", logits=False, **more):
    values = {"cost": 3.0, "no_alerts": 4.0, "all_alerts": 9.0, "foresight": 1.0, "alerts": 2, "rows": 5}
    values |= {"recall": 0.5, "recall_of_miss": 0.8, "largest": 1.0, "never": 0} | more
    return CostPoint(offset, {"miss": 9, "false_alarm": 0, "investigation": 0} | costs, scores, logits, {}, values)


@pytest.mark.parametrize("offset", [-1.3, 0.7, 2.0])
def test_sql_and_numpy_flag_the_same_rows(offset):
    rows = [row for seed in range(5) for row in some_rows(seed)]
    own = point({name: name for name in money.NAMES}, offset)
    expected = [is_flagged(row, offset) for row in rows]
    assert 20 < sum(expected) < len(rows) - 20
    columns = {name: np.array([row[name] for row in rows]) for name in ("s", *money.NAMES)}
    assert eval(own.numpy, {"rows": columns, "np": np}).tolist() == expected
    with sqlite3.connect(":memory:") as base:
        base.execute("create table t (s real, miss real, false_alarm real, investigation real)")
        base.executemany(
            "insert into t values (?, ?, ?, ?)", zip(*map(np.ndarray.tolist, columns.values()), strict=True)
        )
        assert [bool(found) for (found,) in base.execute(f"select {own.sql} from t")] == expected
    assert (ledger_of(rows).relative > offset).tolist() == expected


def test_numbers_and_odd_names_are_written_into_the_rule():
    own = point({"miss": "the amount", "investigation": 4}, 0.0)
    assert own.sql == '"s" * ("the amount" - 4) > 1.0 * (1 - "s") * 4'
    assert own.numpy == 'rows["s"] * (rows["the amount"] - 4) > 1.0 * (1 - rows["s"]) * 4'
    assert point({"miss": 'a"b'}).sql.startswith('"s" * ("a""b" - 0)')
    logits = point({"miss": "miss", "false_alarm": 2.5, "investigation": 1}, 0.5, logits=True)
    assert logits.sql == 'EXP("s" - 0.5) * ("miss" - 1) > (1 + 2.5)'
    s, miss = np.array([-3.0, 0.0, 0.5, 4.0, 9.0]), np.array([80.0, 3.0, 10.0, 1.5, 1.0])
    odds = [bool(m > 1 and z > 0.5 + math.log(3.5 / (m - 1))) for z, m in zip(s, miss, strict=True)]
    assert eval(logits.numpy, {"rows": {"s": s, "miss": miss}, "np": np}).tolist() == odds


def test_the_text_names_what_is_cheaper():
    text = str(point({"miss": "amount"}, held_out=3.5))
    assert "costs 3, 25% less than without alerts (4); 3.5 in held-out tenths" in text
    assert "recall 0.500; recall of amount 0.800; the 10 largest positives hold 100% of amount" in " ".join(
        text.split()
    )
    assert "never" not in text
    dear = str(point({}, cost=12345.0, all_alerts=2000.0, no_alerts=3000.0, never=7))
    assert "costs 12,345, 517% more than with all alerts (2,000)" in dear
    assert "7 rows are never flagged" in " ".join(dear.split())
    assert "recall of" not in dear


def test_other_units_are_noted():
    ledger = ledger_of(some_rows(1))
    own = point({"miss": "amount"})
    euros = CostPoint(*(vars(own) | {"medians": {"amount": 30.0}}).values())
    assert len(euros.notes(ledger, {"amount": 290.0})) == 1
    (_, note) = euros.notes(ledger, {"amount": 3100.0})
    assert "the median of amount is 3100" in note
    assert len(euros.notes(ledger, {"amount": 2.9})) == 2
    assert len(euros.notes(ledger, {"amount": 3.1})) == 1


def test_a_file_holds_the_point(tmp_path):
    own = point({"miss": "amount", "investigation": 4}, held_out=math.nan)
    own.to_json(tmp_path / "point.json")
    found = open_result(tmp_path / "point.json")
    assert (found.offset, found.costs, found.scores, found.logits) == (own.offset, own.costs, "s", False)
    assert str(found) == str(own)
    data = json.loads((tmp_path / "point.json").read_text(encoding="utf-8"))
    data["offset"] = 1.0
    (tmp_path / "point.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match="not complete or was changed"):
        open_result(tmp_path / "point.json")


def test_without_a_row_that_a_choice_concerns_the_offset_is_0():
    rows = [{"s": 0.5, "y": 1.0, "miss": 1.0, "false_alarm": 0.0, "investigation": 2.0, "cluster": 0}] * 3
    assert ledger_of(rows).cheapest() == 0
    assert ledger_of(rows).at(0.0)["never"] == 3
