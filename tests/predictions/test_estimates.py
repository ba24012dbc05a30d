"""Estimates of a pool (`estimates.py`): their type, marks of values that one label more moves, and their files."""

import json
import os
import pickle
import threading

import numpy as np
import pytest
import scipy.stats
from rooms import digest_of

import imbtorch
from imbtorch import Predictions


def estimated(missed, hits, negatives=100, alarms=50, pool=(5000, 50), **more):
    """Estimate from so many positives among labels of both predicted classes."""
    labels = [1] * missed + [0] * (negatives - missed) + [1] * hits + [0] * (alarms - hits)
    data = Predictions({"pred": [0] * negatives + [1] * alarms, "label": labels}, target="label")
    return data.estimate("pred", plan=dict(enumerate(pool)), **more)


def cell(estimate, name):
    """Return what the table prints of a value."""
    (line,) = (line for line in str(estimate.table()).splitlines() if line.startswith(f"{name} "))
    return line.split(maxsplit=1)[1]


def test_an_estimate_is_no_report():
    estimate = estimated(5, 30)
    assert isinstance(estimate, imbtorch.statistics.Estimate)
    assert not isinstance(estimate, imbtorch.ReportResult)
    assert not hasattr(estimate, "counts")
    for use in (lambda: imbtorch.statistics.posterior("f1", estimate.counts), lambda: estimate.counts):
        with pytest.raises(AttributeError, match=r"no counts, since only some rows are labelled: merge, posterior and"):
            use()
    assert estimate.expected_cells.tolist() == [[4750, 20], [250, 30]]
    again = pickle.loads(pickle.dumps(estimate))
    assert (str(again.table()), again["f1"]) == (str(estimate.table()), estimate["f1"])
    assert "<table>" in estimate._repr_html_()


@pytest.mark.parametrize(("missed", "marked"), [(1, True), (2, True), (3, False)])
def test_the_interval_stands_first_where_few_missed_positives_were_found(missed, marked):
    estimate = estimated(missed, 30, measures=["f1", "recall", "precision"])
    low, high, value = (f"{estimate[name].item():.3f}" for name in ("f1_low", "f1_high", "f1"))
    assert cell(estimate, "f1") == (f"[{low}, {high}] ~{value}" if marked else f"{value} [{low}, {high}]")
    assert cell(estimate, "precision") == "0.600 [0.600, 0.600]"
    assert any("fewer than three missed positives" in note for note in estimate.table().notes) is marked


def test_without_a_missed_positive_the_table_has_bounds():
    estimate = estimated(0, 30, measures=["f1", "recall", "precision"])
    most = max(k for k in range(4901) if scipy.stats.hypergeom.cdf(0, 5000, k, 100) > 0.025)
    assert cell(estimate, "recall") == f"at least {30 / (30 + most):.3f} (97.5%)"
    assert cell(estimate, "f1") == f"[{60 / (60 + 20 + most):.3f}, {60 / 80:.3f}]"
    assert cell(estimate, "precision") == "0.600 [0.600, 0.600]"
    assert estimate["recall"] == 1
    recall = estimate.table()["measure"]["recall"]["all"]
    assert np.isnan(recall)
    assert recall.low == pytest.approx(30 / (30 + most))
    known = estimated(0, 30, pool=(100, 50), measures=["recall"])
    assert cell(known, "recall") == "1.000 [1.000, 1.000]"  # all rows are labelled


def test_without_a_false_alarm_among_some_alarms_the_table_has_bounds():
    estimate = estimated(9, 50, pool=(5000, 200), measures=["precision", "recall", "npv"])
    least = min(k for k in range(50, 201) if scipy.stats.hypergeom.sf(49, 200, k, 50) > 0.025)
    assert cell(estimate, "precision") == f"at least {least / 200:.3f} (97.5%)"
    assert cell(estimate, "npv").startswith("0.910 [")
    assert cell(estimated(9, 50, measures=["precision"]), "precision") == "1.000 [1.000, 1.000]"


def test_without_a_positive_values_that_need_one_are_undefined():
    names = ["recall", "f1", "balanced_accuracy", "gmean", "mcc", "iam", "precision", "accuracy"]
    estimate = estimated(0, 0, measures=names)
    undefined = [name for name in names if estimate[name].isnan()]
    assert undefined == names[:-2]
    most = max(k for k in range(4901) if scipy.stats.hypergeom.cdf(0, 5000, k, 100) > 0.025)
    assert float(estimate["accuracy_low"]) == pytest.approx((5000 - most) / 5050)
    assert float(estimate["balanced_accuracy_high"]) == pytest.approx(5000 / 5050)
    assert float(estimate["recall_low"]) == float(estimate["recall_high"]) == 0  # all alarms are labelled
    assert any(note.startswith("no label is '1', so values that need one") for note in estimate.table().notes)


def test_sizes_on_trust_print_the_alert_rate_that_they_imply():
    turned = estimated(5, 30, pool=(200, 19_800))
    assert "these 20,000 rows imply that 99% are predicted as '1' (alert rate)" in turned.table().notes


@pytest.mark.parametrize("missed", [0, 2, 7])
@pytest.mark.parametrize("of", ["pool", "population"])
def test_estimates_open_as_they_were_written(missed, of, tmp_path):
    estimate = estimated(missed, 30, of=of, level=0.9)
    estimate.to_json(tmp_path / "pool.json")
    opened = imbtorch.open_result(tmp_path / "pool.json")
    assert (str(opened.table()), opened.signature) == (str(estimate.table()), estimate.signature)
    assert opened.values.keys() == estimate.values.keys()
    data = json.loads((tmp_path / "pool.json").read_text(encoding="utf-8"))
    assert data["estimates"]["recall"]["mark"] == {0: "bounds", 2: "few", 7: ""}[missed]
    assert data["estimates"]["f1"]["value"] == pytest.approx(float(estimate["f1"]))
    for change in ({"pool": data["pool"] | {"method": "other"}}, {"expected_cells": [[1.0]]}, {"pool": {}}):
        changed = data | change
        text = json.dumps(changed | {"sha256": digest_of(changed)})
        (tmp_path / "changed.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="is not complete or was changed"):
            imbtorch.open_result(tmp_path / "changed.json")
    with pytest.raises(ValueError, match="an estimate has no counts"):
        imbtorch.merge_results(tmp_path / "pool.json", tmp_path / "changed.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_an_estimate_is_written_to_a_pipe_once(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    writer = threading.Thread(target=estimated(5, 30).to_json, args=(pipe,), daemon=True)
    writer.start()
    for thread in (writer, reader):
        thread.join(20)
        assert not thread.is_alive()
    assert json.loads(got[0])["pool"]["negative"] == [5000, 100, 5, 0]
    assert os.listdir(tmp_path) == ["pipe"]
    assert pipe.is_fifo()
