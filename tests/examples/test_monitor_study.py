"""The study of monitors: its ways to keep an epoch, its readings, and tables that are those of its CSV file."""

import csv
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import stdtrit
from scripts import scripts_of
from sklearn import metrics as sk
from sklearn.datasets import make_classification

FOLDER = Path(__file__).parents[2] / "examples" / "monitor_study"
with scripts_of(FOLDER, FOLDER.parent / "threshold_study", FOLDER.parent / "decision_study") as script:
    study, thresholds, mark = script("monitors"), script("run"), script("report").MARK


def generated():
    x, y = make_classification(400, 6, n_informative=4, weights=[0.85], random_state=1)
    return thresholds.Task("new", "made", "made", torch.from_numpy(x).float(), torch.from_numpy(y))


def test_the_latest_of_ties_is_kept_and_undefined_values_are_the_worst():
    nan = float("nan")
    found = study.kept([0.1, 0.3, 0.3, nan], [0.2, 0.5, 0.4, nan], [3.0, 1.0, 1.0, 2.0])
    assert found == {"half": 2, "best": 1, "loss": 1, "last": 3}


def test_readings_are_those_of_scikit_learn(monkeypatch):
    draw = np.random.default_rng(0)
    target = torch.from_numpy((draw.random(400) < 0.2).astype(int))
    epochs = [torch.from_numpy(draw.normal(size=400) + gain * target.numpy() - 2) for gain in (1, 3, 2)]
    held, test = slice(200), slice(200, 400)
    monkeypatch.setattr(study, "scores_of_epochs", lambda *_: iter([[each[held], each[test]] for each in epochs]))
    part = (None, target[held])
    row = study.read("falling", 0, part, part, (None, target[test]))["f1"]
    at_half = [sk.f1_score(target[held], each[held] > 0) for each in epochs]
    assert int(np.argmax(at_half)) == 1
    cuts = epochs[1][held].unique()
    best = max(sk.f1_score(target[held], epochs[1][held] >= cut) for cut in cuts)
    assert best - 0.1 < row["said"] <= best + 1e-9  # at the resampled threshold
    assert row["half"] == row["best"]
    possible = {round(sk.f1_score(target[test], epochs[1][test] > cut), 9) for cut in study.ODDS}
    assert round(row["best"], 9) in possible
    losses = [sk.log_loss(target[held], each[held].sigmoid()) for each in epochs]
    assert row["loss"] == (row["best"] if int(np.argmin(losses)) == 1 else row["loss"])


def test_a_small_run_gives_rows_and_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "EPOCHS", {"constant": 2, "falling": 2, "short": 2})
    rows = study.rows_of(generated(), [60])
    assert {(row["regime"], row["measure"]) for row in rows} == {(a, b) for a in study.EPOCHS for b in study.MEASURES}
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, study.FIELDS)
        writer.writeheader()
        for shift, family in enumerate("abcd"):
            better = {"best": 0.9, **dict.fromkeys(study.OTHERS, 0.8 - shift / 100)}
            writer.writerows(row | {"family": family} | better for row in rows)
    assert "minus the others: adopted" in study.report(tmp_path)
    assert "| lowest loss | F1 | 4 | +11.50 | [+9.45, +13.55] | above -1 | yes |" in study.report(tmp_path)


def test_tables_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(mark)[1].strip() == study.report(FOLDER).strip()


def test_the_figures_of_the_text_are_those_of_the_tables():
    text, tables = (FOLDER / "results.md").read_text(encoding="utf-8").split(mark)
    evidence = (FOLDER.parent / "evidence.md").read_text(encoding="utf-8").split("**Two classes: the value at 0.5")[1]
    figures = re.findall(r"[+-][\d.]+\s\[[^]]+\]", text + evidence.partition("study of monitors")[0])
    assert len(figures) == 14
    rows = "\n".join(tables.replace("*", "").replace(" | [", " [").splitlines())
    assert not [figure for figure in figures if " ".join(figure.split()) not in rows]
    assert ("not adopted" in text) == ("not adopted" in tables)


@pytest.mark.parametrize("other", study.OTHERS)
def test_the_comparisons_by_hand(other):
    values = {}
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["measure"] == "iam":
                tasks = values.setdefault(row["family"], {})
                tasks.setdefault(row["task"], []).append(100 * (float(row["best"]) - float(row[other])))
    families = [statistics.mean(map(statistics.mean, tasks.values())) for tasks in values.values()]
    number, mean = len(families), statistics.mean(families)
    reach = stdtrit(number - 1, 0.975) * statistics.stdev(families) / number**0.5
    assert number == 71
    shown = f"| {study.WAYS[other]} | IAM | 71 | {mean:+.2f} | [{mean - reach:+.2f}, {mean + reach:+.2f}] |"
    assert shown in study.report(FOLDER)
