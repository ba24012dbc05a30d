"""The simulation of gains counts as the sweep does, and its page is the one that it prints."""

import importlib.util
from pathlib import Path

import torch

from imbtorch import LogitAdjustmentSweep

EXAMPLE = Path(__file__).parents[2] / "examples" / "adjustments.py"


def loaded():
    spec = importlib.util.spec_from_file_location("simulated_adjustments", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_counts_as_a_sweep_does(monkeypatch):
    simulation = loaded()
    monkeypatch.setattr(simulation, "POPULATION", 500)
    chosen, target = simulation.Cell(4, 500, 2.0).population()
    counts = simulation.counted(chosen, target, torch.arange(500) % 64, 4, 64)
    assert counts.predicted.sum(-1).unique().tolist() == [7, 8]
    assert counts.correct.sum((0, 2)).tolist() == (chosen == target).sum(1).tolist()
    assert counts.actual.sum((0, 1)).tolist() == target.bincount(minlength=4).tolist()
    assert LogitAdjustmentSweep("f1", [2, 1]).taus == simulation.TAUS


def test_it_prints_its_page(monkeypatch, capsys):
    simulation = loaded()
    monkeypatch.setattr(simulation, "POPULATION", 2000)
    monkeypatch.setattr(simulation, "CLASSES", (3,))
    monkeypatch.setattr(simulation, "RARE", simulation.RARE[:2])
    simulation.main(3)
    printed = capsys.readouterr().out.splitlines()
    page = EXAMPLE.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    assert printed[:7] == page[:7]
    starts = printed.index("## Rare classes"), page.index("## Rare classes")
    (rows, rare), (rows_of_page, rare_of_page) = (
        (lines[:start], lines[start:]) for lines, start in zip((printed, page), starts, strict=True)
    )
    assert [line.split("|")[1:5] for line in rows if line.startswith("| ") and "| 3 |" in line] == [
        line.split("|")[1:5] for line in rows_of_page if "| 3 |" in line
    ]
    assert sum("on average" in line for line in rows) == 3
    heads = [[line for line in lines if not line.startswith("| ")] for lines in (rare, rare_of_page)]
    assert heads[0] == heads[1]
    cells = [[line.split("|")[1:7] for line in lines if line.startswith("| ")] for lines in (rare, rare_of_page)]
    assert cells[0] == cells[1][:4]
