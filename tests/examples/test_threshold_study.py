"""The study of thresholds: its sets and splits, its rules, and tables that are those of its CSV file."""

import csv
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from rooms import steady_threshold
from scipy.special import stdtr, stdtrit
from scripts import scripts_of
from sklearn import metrics as sk
from sklearn.datasets import load_wine, make_classification

FOLDER = Path(__file__).parents[2] / "examples" / "threshold_study"
with scripts_of(FOLDER, FOLDER.parent / "decision_study") as script:
    study, mark = script("run"), script("report").MARK


def generated(samples=500):
    x, y = make_classification(samples, 6, n_informative=4, weights=[0.85], random_state=1)
    x[300:320] = x[:20]  # repeated rows
    return study.Task("new", "made", "made", torch.from_numpy(x).float(), torch.from_numpy(y))


def test_a_rare_class_is_thinned_out():
    found = study.tasks_of(study.Source("wine", "wine"))
    _, target = load_wine(return_X_y=True)
    others = int((target != 2).sum())  # class 2 is the smallest, with more than a quarter of the samples
    assert [(task.family, int((task.target == 0).sum()), int(task.target.sum())) for task in found] == [
        ("wine", others, round(0.15 / 0.85 * others))
    ]


def test_numbers_are_cut_at_their_quantiles():
    found = study.tasks_of(study.Source("diabetes", "diabetes", True))
    assert [int(task.target.sum()) for task in found] == [44, 23]  # of 442; nine above .98 are too few


def test_parts_share_no_row():
    task = generated()
    rows = [{row.tobytes() for row in features.numpy()} for features, _ in study.parts(task, 60)]
    assert not rows[0] & rows[1]
    assert not (rows[0] | rows[1]) & rows[2]
    assert sum(map(len, rows)) == 480


def test_rules_are_those_of_scikit_learn_at_each_threshold():
    random = np.random.default_rng(0)
    target = (random.random(300) < 0.2).astype(int)
    scores = 1 / (1 + np.exp(-random.normal(size=300) - 1.5 * target + 2))
    held = study.histogram(torch.from_numpy(scores), torch.from_numpy(target))
    rows = dict(study.read(held, held))
    cuts = study.THRESHOLDS.numpy()
    f1 = [sk.f1_score(target, scores > cut, zero_division=0) for cut in np.unique(scores)]
    row = rows["f1", ""]
    assert row["lowest"] == row["nearest"] == pytest.approx(max(f1), abs=0.005)
    assert row["half"] == pytest.approx(sk.f1_score(target, scores > 0.5))
    place = steady_threshold(held, study.THRESHOLDS.logit(), study.F1)
    assert row["steady"] == row["said_steady"] == pytest.approx(sk.f1_score(target, scores > cuts[place]))
    assert rows["f1", "recall >= 0.8"]["kept_steady"] == 1
    of_costs = rows["saved", "costs 10 to 1"]
    bills = [((scores > cut) & (target == 0)).sum() + 10 * ((scores <= cut) & (target == 1)).sum() for cut in cuts]
    assert of_costs["lowest"] == pytest.approx(-min(bills) / 300)


def test_a_small_run_gives_rows_and_tables(tmp_path):
    rows = study.rows_of(generated(), [60])
    assert {row["model"] for row in rows} == set(study.MODELS)
    assert all(0 <= float(row["steady"]) <= 1 for row in rows if row["measure"] == "balanced_accuracy")
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, study.FIELDS)
        writer.writeheader()
        for shift, family in enumerate("abc"):
            writer.writerows(
                row | {"family": family, "lowest": float(row["lowest"]) + shift / 100, "half": shift / 10}
                for row in rows
            )
    assert "| macro F1 | 3 |" in study.report(tmp_path)


def test_tables_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(mark)[1].strip() == study.report(FOLDER).strip()


def test_the_primary_tests_by_hand():
    values = {}
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["sets"], row["measure"], row["limit"]) == ("new", "iam", ""):
                tasks = values.setdefault(row["family"], {})
                tasks.setdefault(row["task"], []).append(100 * (float(row["steady"]) - float(row["lowest"])))
    families = [statistics.mean(map(statistics.mean, tasks.values())) for tasks in values.values()]
    number, mean, error = len(families), statistics.mean(families), statistics.stdev(families) / len(families) ** 0.5
    reach = stdtrit(number - 1, 0.975) * error
    assert number == 52
    assert f"| IAM | 52 | {mean:+.2f} | [{mean - reach:+.2f}, {mean + reach:+.2f}] |" in study.report(FOLDER)
    p = 2 * stdtr(number - 1, -abs(mean) / error)
    assert math.isclose(study.p_value(np.array(families)), p, rel_tol=1e-6)
