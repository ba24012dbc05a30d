"""Text for terminals: no line is wider than 100 columns."""

import pytest
import torch

from imbtorch import ImbalanceReport
from imbtorch.tables import aligned


def test_columns_that_do_not_fit_stand_below_next_to_their_names():
    names = ["a", "b " + 10 * "many words "]
    rows = [["", *(f"measure {number}" for number in range(12))]]
    rows += [[name, *(f"{name[0]}{number}.5" for number in range(12))] for name in names]
    lines = aligned(rows, names_left=True)
    assert max(map(len, lines)) <= 100
    for row in rows[1:]:
        cells = [cell for line in lines if line.startswith(row[0][:10]) for cell in line.split() if cell.endswith(".5")]
        assert cells == row[1:]
    assert aligned([row[:2] for row in rows[:2]], names_left=True) == ["   measure 0", "a       a0.5"]


@pytest.mark.parametrize("names", [["a", "b", "c"], [f"class with a rather long name {index}" for index in range(3)]])
def test_tables_of_reports_with_many_columns(names):
    shown = ["recall", "precision", "specificity", "f1", "fowlkes_mallows", "npv", "cba"]
    intervals = [f"{measure}/{name}" for measure in shown for name in names]
    report = ImbalanceReport("multiclass", class_names=names, per_class=shown, intervals=intervals)
    report.update(torch.arange(60) % 7 % 3, torch.arange(60) % 3)
    report.compute()
    text = str(report.table())
    assert max(map(len, [*text.splitlines(), *repr(report.result()).splitlines()])) <= 100
    values = report.table().to_dict()["classes"]
    assert all(f"{values[name][measure]:.4f} [" in text for name in names for measure in shown)
