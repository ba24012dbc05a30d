"""The study of labels: its methods against other code, its pools, and tables that are those of its CSV file."""

import csv
import importlib.util
import itertools
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import imbtorch

FOLDER = Path(__file__).parents[2] / "examples" / "labels"
SHORT = ("methods", "pools", "run", "report")


def loaded():
    """The modules of the study, whose short names other studies use as well."""
    before = {name: sys.modules.pop(name, None) for name in SHORT}
    found = {}
    for name in SHORT:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        sys.modules[name] = found[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[name])
    for name, some in before.items():
        sys.modules.pop(name)
        if some is not None:
            sys.modules[name] = some
    return found.values()


methods, pools, run, report = loaded()


def random_counts(size, seed=0):
    counts = np.random.default_rng(seed).integers(0, 6, size=(200, size, size))
    counts[:20, 1] = 0  # no targets
    counts[20:40, :, 1] = 0  # no predictions
    return counts[counts.sum((1, 2)) > 0]


@pytest.mark.parametrize("size", [2, 3])
def test_measures_are_those_of_imbtorch(size):
    counts = random_counts(size)
    found = methods.measures(counts.astype(float))
    for place, name in enumerate(methods.NAMES[size]):
        expected = methods.REPORTED[name](torch.from_numpy(counts)).reshape(-1).numpy()
        expected = np.nan_to_num(expected)  # a class with neither targets nor predictions, which no pool has
        np.testing.assert_allclose(found[:, place], expected, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [2, 3])
def test_uniform_report_is_that_of_a_report(size):
    counts = np.array([[90, 4], [3, 7]]) if size == 2 else np.array([[90, 3, 2], [2, 6, 1], [1, 0, 4]])
    found = methods.uniform_report(np.stack([counts, counts]), 4_000, 0)
    update = torch.from_numpy(np.repeat(np.argwhere(counts >= 0), counts.ravel(), axis=0))
    task = {"task": "binary"} if size == 2 else {"task": "multiclass", "num_classes": 3}
    report_of = imbtorch.ImbalanceReport(**task, measures=["balanced_accuracy", "iam"])
    report_of.update(update[:, 1], update[:, 0])
    for name in ("balanced_accuracy", "iam"):
        place = methods.NAMES[size].index(name)
        interval = report_of.result().interval(name, generator=torch.Generator().manual_seed(1))
        assert found.value[0, place] == pytest.approx(interval.estimate.item())
        for own, bound in ((found.low, interval.low), (found.high, interval.high)):
            assert own[0, place] == own[1, place] == pytest.approx(bound.item(), abs=0.02)


def test_allocation_keeps_totals_and_room():
    random = np.random.default_rng(0)
    weights, room = random.gamma(0.3, size=(50, 7)), random.integers(0, 30, size=(50, 7))
    found = methods.allocate(weights, 60, room)
    assert ((found >= 0) & (found <= room)).all()
    np.testing.assert_array_equal(found.sum(1), np.minimum(60, room.sum(1)))
    wide = methods.allocate(weights, 60, np.full((50, 7), 1_000))
    assert (abs(wide - 60 * weights / weights.sum(1, keepdims=True)) < 1.001).all()


def test_oracle_draws_without_replacement():
    classes = np.array([[5, 3, 0], [20, 0, 2]])
    label = methods.Oracle(classes, 400, np.random.default_rng(0))
    first = label(np.tile([4, 11], (400, 1)))
    np.testing.assert_array_equal(first.sum(-1), np.tile([4, 11], (400, 1)))
    np.testing.assert_allclose(first.mean(0), [[2.5, 1.5, 0], [10, 0, 1]], atol=0.15)
    np.testing.assert_array_equal(first + label(np.tile([4, 11], (400, 1))), np.broadcast_to(classes, (400, 2, 3)))


def test_uniform_counts_hold_every_class():
    matrix = np.array([[900, 20], [10, 5]])
    found, tried = methods.uniform_counts(matrix, 40, 500, np.random.default_rng(0), range(2))
    assert (found.sum(-1) > 0).all()
    assert (found.sum((1, 2)) == 40).all()
    assert 500 / tried == pytest.approx(1 - stats.hypergeom(935, 15, 40).pmf(0), abs=0.06)


def test_two_strata_have_the_posterior_of_the_finite_pool():
    # all rows of the other stratum are labelled, so that precision is the number of positives among 30 rows
    def label(number):
        np.testing.assert_array_equal(number, [[30, 15]])
        return np.array([[[30, 0], [9, 6]]])

    found = methods.two_strata(np.array([[30, 30]]), 45, label, np.random.default_rng(0), 20_000)
    rest = stats.betabinom(15, 6.5, 9.5)
    assert found.value[0, 1] == pytest.approx((6 + rest.mean()) / 30, abs=0.003)
    assert found.low[0, 1] == pytest.approx((6 + rest.ppf(0.0025)) / 30, abs=0.034)
    assert found.high[0, 1] == pytest.approx((6 + rest.ppf(0.9975)) / 30, abs=0.034)


POSITIONS = np.array([np.full(8, -1.0), np.linspace(0.5, 1.5, 8), np.full(8, 2.0)])


def small_strata():
    sizes, predicted = np.array([500, 60, 40]), np.array([0, 0, 1])
    return methods.ScoreStrata(np.repeat(np.arange(3), sizes), sizes, predicted, POSITIONS[None], np.array([1.6]))


def test_curves_have_the_likelihood_of_the_beta_binomial():
    curves = methods.RateCurves(small_strata(), 1)
    hits, number = np.array([[0, 2, 9]]), np.array([[30, 20, 15]])
    grid = list(itertools.product(methods.SLOPES, methods.LEVELS, methods.SPREADS, methods.FIRMNESS))
    places = [0, *np.random.default_rng(0).choice(len(grid), 40, replace=False)]
    logs = []
    for slope, level, spread, firmness in (grid[place] for place in places):
        rates = [np.mean([1 / (1 + math.exp(-level - slope * (z - 1.6))) for z in row]) for row in POSITIONS]
        whole = float(np.dot(rates, [500, 60, 40]) / 600)
        log = math.log(methods.FLAT if slope == 0 else (1 - methods.FLAT) / 6) + math.log(whole) / 2
        for rate, k, n in zip(rates, hits[0], number[0], strict=True):
            mean = (1 - spread) * rate + spread * whole
            worth = firmness / min(mean, 1 - mean)
            log += stats.betabinom(n, worth * mean, worth * (1 - mean)).logpmf(k)
        logs.append(log)
    likelihood = curves.likelihood(hits, number)
    found = np.log(curves.weights(likelihood, 0.5)[0, places])
    np.testing.assert_allclose(found - found[0], np.array(logs) - logs[0], atol=1e-3)
    np.testing.assert_allclose(curves.weights(likelihood, 0.5).sum(), 1)


def test_draws_have_the_hypergeometric_posterior():
    """With a uniform prior of the number of positives, its posterior is in proportion to the hypergeometric chance."""
    curves = methods.RateCurves(small_strata(), 1)
    curves.hits = np.ones_like(curves.hits)
    curves.others = np.ones_like(curves.others)
    size, number, hits = 12, 5, 2
    exact = [Fraction(math.comb(m, hits) * math.comb(size - m, number - hits)) for m in range(size + 1)]
    left = np.full((1, 40_000, 3), size - number)
    weights = curves.weights(np.zeros((1, len(curves.hits))), 0.0)
    drawn = curves.draw(weights, np.full((1, 3), hits), np.full((1, 3), number), left, np.random.default_rng(0))
    found = np.bincount(hits + drawn[0, :, 0], minlength=size + 1) / 40_000
    np.testing.assert_allclose(found, [float(each / sum(exact)) for each in exact], atol=0.01)


@pytest.mark.parametrize("size", [2, 3])
def test_everything_labelled_is_exact(size):
    random = np.random.default_rng(0)
    pool = pools.generated(size, "calibrated", 0.1, 2.0, random)
    some = random.choice(len(pool.target), 400, replace=False)
    strata = methods.ScoreStrata.of(pool.scores[some], pool.predicted[some])
    number = len(strata.sizes)
    cells = strata.stratum * size + pool.target[some]
    classes = np.bincount(cells, minlength=number * size).reshape(number, size)
    matrix = np.bincount(pool.target[some] * size + pool.predicted[some], minlength=size**2).reshape(size, size)
    found = methods.score_strata(strata, 3, 400, methods.Oracle(classes, 3, random), random, 20)
    for each in (found.value, found.low, found.high):
        np.testing.assert_allclose(each, np.tile(methods.measures(matrix.astype(float)), (3, 1)), atol=1e-9)


def test_strata_depend_on_the_order_of_scores_alone_and_keep_ties():
    pool = pools.generated(2, "ten trees", 0.02, 2.0, np.random.default_rng(0))
    first = methods.ScoreStrata.of(pool.scores, pool.predicted)
    second = methods.ScoreStrata.of(np.arctan(pool.scores), pool.predicted)
    np.testing.assert_array_equal(first.stratum, second.stratum)
    np.testing.assert_allclose(first.positions, second.positions)
    np.testing.assert_array_equal(first.sizes, np.bincount(first.stratum))
    for stratum, predicted in enumerate(first.predicted):
        assert set(pool.predicted[first.stratum == stratum]) == {predicted}
    for value in np.unique(pool.scores[:, 1]):
        assert len(np.unique(first.stratum[pool.scores[:, 1] == value])) == 1


@pytest.mark.default_cases("2")
@pytest.mark.parametrize("size", [2, 3])
def test_two_stages_spend_the_budget_and_cover(size):
    case = pools.Case(size, "slope 2.5", 0.02, 500)
    rows = list(run.rows_of(case, 40, 4))
    assert {row["method"] for row in rows} == set(run.METHODS)
    assert all(float(row["coverage"]) >= 0.85 for row in rows)
    wide = {row["method"]: float(row["width"]) for row in rows if row["measure"] == "f1"}
    assert wide["strata of scores"] < wide["uniform"]


def test_scores_of_generated_pools():
    random = np.random.default_rng(0)
    pool = pools.generated(3, "calibrated", 0.1, 2.0, random)
    for c in range(3):  # calibrated: the mean probability is the share of the class, also where it is high
        chance = 1 / (1 + np.exp(-pool.scores[:, c]))
        for some in (chance >= 0, chance > 0.5):
            assert chance[some].mean() == pytest.approx((pool.target[some] == c).mean(), abs=0.02)
    shifted = pools.generated(2, "shift 2", 0.01, 2.0, random)
    assert shifted.predicted.mean() > 0.05
    noise = pools.generated(2, "noise", 0.1, 2.0, random)
    assert abs(np.corrcoef(noise.scores[:, 1], noise.target)[0, 1]) < 0.02


def test_the_file_holds_the_cases_of_the_protocol():
    cells = report.cells_of(FOLDER / "results.csv")
    assert len(pools.cases()) == 216
    assert len(cells) == 1_188
    assert {cell.rows["uniform"]["sets"] for cell in cells} == {"1000"}
    keys = {(cell.classes, cell.scores, cell.positives, cell.budget) for cell in cells}
    assert keys == {case.key for case in pools.cases()}


def test_tables_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(report.MARK)[1].strip() == report.tables(FOLDER).strip()
    assert ("Not adopted" in text.splitlines()[2]) == report.verdict(
        report.cells_of(FOLDER / "results.csv")
    ).startswith("Not adopted")


def test_criteria_by_other_code():
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = {tuple(row[name] for name in report_key): row for row in csv.DictReader(file)}
    found = {each.number: each for each in report.criteria(report.cells_of(FOLDER / "results.csv"), report.SCORES)}
    own = [key for key in rows if key[4] == "strata of scores"]
    gap = [float(rows[(*key[:4], "uniform", key[5])]["coverage"]) - float(rows[key]["coverage"]) for key in own]
    assert found[2].found.startswith(f"{sum(each > 0.0300001 for each in gap)} of 1188")
    held = [float(rows[key]["coverage"]) >= 0.9 for key in own]
    assert found[1].found.startswith(f"{100 * np.mean(held):.1f}%")
    logs = [
        math.log(float(rows[(*key[:4], "two strata", "iam")]["error"]) / float(rows[key]["error"]))
        for key in own
        if key[1] != "noise" and key[2] in ("", "0.002", "0.01", "0.03") and key[5] == "iam"
    ]
    assert found[5].found.startswith(f"{math.exp(np.mean(logs)):.2f} ")


report_key = ("classes", "scores", "positives", "budget", "method", "measure")
