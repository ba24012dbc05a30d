"""Exact intervals from labels within predicted classes: bounds, coverage, monotony, the population, and plans."""

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rooms import CATALOGUE, Counting, label_bounds, resolved
from scipy import stats

import imbtorch

Labelled, LabelledPool = label_bounds.Labelled, label_bounds.LabelledPool
BINARY = Counting.of("binary")
COSTS = torch.tensor([[0.0, 1.0], [5.0, 0.0]])
SHOWN = ("f1", "mcc", "iam", "precision", "recall", "balanced_accuracy")


def measure_of(measured, average=None):
    function = measured if callable(measured) else {t.key: f for f, t in CATALOGUE.items()}[measured]
    return resolved("it", function if average is None else partial(function, average=average), BINARY, batched=True)


# --- bounds ----------------------------------------------------------------------------------------------------------


def chance(rows, positives, labelled, found):
    """Probability that so many labelled rows are positive."""
    ways = math.comb(positives, found) * math.comb(rows - positives, labelled - found)
    return Fraction(ways, math.comb(rows, labelled))


@pytest.mark.parametrize("rows", [1, 2, 7, 30])
def test_bounds_are_those_of_exact_fractions(rows):
    for labelled, error in itertools.product(range(1, rows + 1), (0.0125, 0.025)):
        found = np.arange(labelled + 1)
        low, high = Labelled(rows, labelled, found).positive_bounds(error)
        for a in range(labelled + 1):
            possible = range(a, rows - labelled + a + 1)
            some = {k: [chance(rows, k, labelled, x) for x in range(labelled + 1)] for k in possible}
            exact = Fraction(error)
            assert low[a] == min(k for k in possible if sum(some[k][a:]) > exact)
            assert high[a] == max(k for k in possible if sum(some[k][: a + 1]) > exact)


@pytest.mark.parametrize(("rows", "labelled"), [(1_000, 200), (20_000, 300)])
def test_bounds_are_those_of_the_beta_binomial(rows, labelled):
    """If positive rows are numbered first, the number of the a-th labelled one is beta-binomial."""
    found = np.unique(np.linspace(0, labelled, 9).astype(int))
    low, high = Labelled(rows, labelled, found).positive_bounds(0.0125)
    for a, least, most in zip(found, low, high, strict=True):
        if a > 0:
            assert least == a + stats.betabinom(rows - labelled, a, labelled - a + 1).ppf(0.0125)
        if a < labelled:
            assert most == a + stats.betabinom(rows - labelled, a + 1, labelled - a).isf(0.0125)
    assert (low[0], high[-1]) == (0, rows)


@pytest.mark.parametrize(("rows", "labelled", "found"), [(10**6, 600, 3), (10**7, 2_000, 0), (10**8, 300, 7)])
def test_upper_bounds_of_large_pools_are_exact(rows, labelled, found):
    """One positive more than the bound is found so rarely with a chance of at most .0125, the bound itself is not."""
    high = int(Labelled(rows, labelled, found).positive_bounds(0.0125)[1])
    for positives, possible in ((high, True), (high + 1, False)):
        chance_of_so_few = sum(chance(rows, positives, labelled, x) for x in range(found + 1))
        assert (chance_of_so_few > Fraction(0.0125)) == possible


def test_bounds_of_a_huge_pool_are_those_of_a_rate():
    rows, found = label_bounds.MOST_ROWS, np.array([0, 3, 500])
    bounds = Labelled(rows, 1_000, found).positive_bounds(0.0125)
    rates = Labelled(rows, 1_000, found).rate_bounds(0.0125)
    for number, rate in zip(bounds, rates, strict=True):
        np.testing.assert_allclose(number / rows, rate, rtol=1e-3, atol=1e-9)


def test_bounds_of_a_rate_are_those_of_scipy():
    for samples, found in ((1, 0), (1, 1), (20, 3), (600, 0), (600, 599)):
        expected = stats.binomtest(found, samples).proportion_ci(1 - 2 * 0.01125, "exact")
        np.testing.assert_allclose(Labelled(1_000, samples, found).rate_bounds(0.01125), expected, atol=1e-12)


def test_bounds_hold_for_every_decision_of_unclear_rows():
    decided = [Labelled(500, 40, found).positive_bounds(0.0125) for found in (3, 4, 5)]
    low, high = Labelled(500, 40, 3, unclear=2).positive_bounds(0.0125)
    assert (low, high) == (min(each[0] for each in decided), max(each[1] for each in decided))
    rates = Labelled(500, 40, 3, unclear=2).rate_bounds(0.01)
    assert rates == (Labelled(500, 40, 3).rate_bounds(0.01)[0], Labelled(500, 40, 5).rate_bounds(0.01)[1])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((10, 0, 0), "got 0 labels of 10 rows"),
        ((10, 11, 0), "got 11 labels of 10 rows"),
        ((2**31, 5, 0), "at most 2,147,483,647 rows"),
        ((10, 5, 6), "got 6 positive and 0 unclear"),
        ((10, 5, -1), "got -1 positive"),
        ((10, 5, 3, 3), "got 3 positive and 3 unclear"),
        ((10, 5, 0, 5), "one at least must be clear"),
    ],
)
def test_impossible_labels_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        Labelled(*counts)


# --- monotony --------------------------------------------------------------------------------------------------------

FEW = tuple(itertools.product((1, 2, 3, 6, 10), repeat=2))
MANY = (*itertools.product(range(1, 11), repeat=2), (30, 30), (200, 1), (1, 200), (40, 150))
CHOSEN = {  # arguments of measures that need some, and others that matter
    "expected_cost": [{"costs": COSTS}, {"costs": torch.tensor([[3.0, 1.0], [5.0, 0.0]])}],
    "f1": [{}, {"beta": 0.5}, {"beta": 2.0}],
    "gmean": [{}],
    "iba": [{}, {"alpha": 1 / 3}],
    "likelihood_ratio": [{}, {"positive": False}],
    "net_benefit": [{"threshold": 0.0}, {"threshold": 0.2}],
    "weighted_accuracy": [{}, {"alpha": 0.0}, {"alpha": 1.0}],
}
CASES = {
    f"{traits.key}-{average}-{number}": (function, average, arguments)
    for function, traits in CATALOGUE.items()
    for number, arguments in enumerate(CHOSEN.get(traits.key, [{}]))
    for average in traits.averages or [None]
    if not (traits.key == "f1" and number and average in ("weighted", "min"))  # refused for the sake of F1
}


def changes(measure, negative, positive):
    """Differences of all values of a pool that one more positive makes, among those predicted negative and positive."""
    k0, k1 = np.meshgrid(np.arange(negative + 1), np.arange(positive + 1), indexing="ij")
    counts = np.stack([negative - k0, positive - k1, k0, k1], -1).reshape(*k0.shape, 2, 2).astype(float)
    values = measure(torch.from_numpy(counts)).numpy()
    assert not np.isnan(values).any()
    values = np.minimum(values, 1e300)  # likelihood ratios may be infinite
    return np.diff(values, axis=0), np.diff(values, axis=1)


def found_dependence(measure, pools):
    """Return whether a measure rises, falls or neither on all tables, and whether it depends on k0 and k1."""
    by_k0, by_k1 = zip(*(changes(measure, *pool) for pool in pools), strict=True)
    signs = [{s for each in parts for s in (-1, 1) if (s * each > 1e-12).any()} for parts in (by_k0, by_k1)]
    rising = {True: signs[0] <= {-1} and signs[1] <= {1}, False: signs[0] <= {1} and signs[1] <= {-1}}
    return rising, (bool(signs[0]), bool(signs[1]))


@pytest.mark.parametrize("pools", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("case", CASES)
def test_allowed_are_those_that_are_monotone_in_all_tables(case, pools):
    function, average, arguments = CASES[case]
    measure = measure_of(partial(function, **arguments), average)
    rising, on = found_dependence(measure, pools)
    if any(rising.values()):
        depends = label_bounds.dependence(measure)
        assert rising[depends.rising]
        assert depends.on == on
    else:
        with pytest.raises(ValueError, match="has no exact interval from labels") as error:
            label_bounds.dependence(measure)
        assert str(measure) in str(error.value)


REFUSED = {
    "correction": partial(imbtorch.geometric_mean, correction=0.5),
    "alpha": partial(imbtorch.index_balanced_accuracy, alpha=1.0),
    "dear right predictions": partial(imbtorch.expected_cost, costs=torch.tensor([[0.0, 1.0], [5.0, 6.0]])),
    "dear right negatives": partial(imbtorch.expected_cost, costs=torch.tensor([[3.0, 4.0], [2.0, 0.0]])),
    "baseline": partial(imbtorch.expected_cost, costs=COSTS, normalize="baseline"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_break_monotony_are_refused(name):
    measure = measure_of(REFUSED[name])
    assert not any(found_dependence(measure, FEW)[0].values())
    with pytest.raises(ValueError, match="use other arguments"):
        label_bounds.dependence(measure)


def test_what_was_not_tried_is_refused():
    for measured in (
        lambda counts: counts[..., 1, 1],
        partial(imbtorch.index_balanced_accuracy, measure="mcc"),
        partial(imbtorch.expected_cost, costs=COSTS, normalize=False),
    ):
        with pytest.raises(ValueError, match="has no exact interval"):
            label_bounds.dependence(measure_of(measured))
    with pytest.raises(ValueError, match=r"precision \(weighted\) .* use average='binary' or average='macro'"):
        label_bounds.dependence(measure_of("precision", "weighted"))


def test_every_measure_is_tried():
    assert {case.split("-")[0] for case in CASES} == {traits.key for traits in CATALOGUE.values()}
    assert {*label_bounds.RISING, *label_bounds.FALLING} < {traits.key for traits in CATALOGUE.values()}


@given(st.data())
def test_steps_in_large_pools_are_monotone(data):
    negative, positive = data.draw(st.integers(1, 10**6)), data.draw(st.integers(1, 10**6))
    k0, k1 = data.draw(st.integers(0, negative - 1)), data.draw(st.integers(0, positive - 1))
    table = torch.tensor([[negative - k0, positive - k1], [k0, k1]]).double()
    one_more = torch.tensor([[[-1.0, 0], [1, 0]], [[0, -1.0], [0, 1]]]).double()
    for key, averages in label_bounds.RISING.items():
        for average in averages:
            measure = measure_of(key, average or None)
            value, (by_k0, by_k1) = measure(table), measure(table + one_more)
            rounding = 1e-12 * (1 + value.abs())
            assert (by_k0 <= value + rounding).all(), (key, average)
            assert (by_k1 >= value - rounding).all(), (key, average)


# --- intervals of the pool -------------------------------------------------------------------------------------------


def tables(number, seed=0):
    """Pools of some ten to some hundred rows, and their labels."""
    random = np.random.default_rng(seed)
    for place in range(number):
        rows = random.integers(1, 60, size=2) * [random.integers(1, 6), 1]
        labelled = [int(random.integers(1, min(size, 25) + 1)) for size in rows]
        if place % 4 == 0:  # all alarms are labelled
            labelled[1] = int(min(rows[1], 25))
            rows[1] = labelled[1]
        yield [int(size) for size in rows], labelled, [int(random.integers(0, size + 1)) for size in rows]


@pytest.mark.parametrize("table", list(tables(20)), ids=str)
def test_coverage_of_the_pool_is_enumerated(table):
    rows, labelled, positives = table
    exact = [[chance(*each, x) for x in range(each[2] + 1)] for each in zip(rows, positives, labelled, strict=True)]
    assert [sum(each) for each in exact] == [1, 1]
    probability = np.array([[float(p * q) for q in exact[1]] for p in exact[0]])
    counts = [np.arange(each + 1) for each in labelled]
    pool = LabelledPool(
        Labelled(rows[0], labelled[0], counts[0][:, None]), Labelled(rows[1], labelled[1], counts[1][None])
    )
    truth = torch.tensor([[rows[0] - positives[0], rows[1] - positives[1]], positives]).double()
    for measured in (*SHOWN, "npv", "likelihood_ratio", partial(imbtorch.likelihood_ratio, positive=False), "kappa"):
        measure = measure_of(measured)
        interval, true = pool.pool_interval(measure), measure(truth)
        held = (interval.low <= true + 1e-12) & (true <= interval.high + 1e-12)
        assert probability[held.expand(probability.shape).numpy()].sum() >= 0.95, measure
        assert ((interval.low <= interval.estimate + 1e-12) & (interval.estimate <= interval.high + 1e-12)).all()


def test_the_error_is_shared_among_the_unknown_numbers():
    pool = LabelledPool(Labelled(9_000, 300, 4), Labelled(1_000, 200, 130))
    precision = pool.pool_interval(measure_of("precision"))
    low, high = (1_000 - x for x in Labelled(1_000, 200, 70).positive_bounds(0.025)[::-1])
    assert (precision.low.item(), precision.high.item()) == (low / 1_000, high / 1_000)
    assert (precision.estimate.item(), precision.level, precision.measure) == (0.65, 0.95, "precision (binary)")
    assert str(precision).endswith("(95% exact, of the pool)")
    recall = pool.pool_interval(measure_of("recall"))
    (low0, high0), (low1, high1) = pool.negative.positive_bounds(0.0125), pool.positive.positive_bounds(0.0125)
    assert recall.low.item() == pytest.approx(low1 / (low1 + high0), abs=1e-12)
    assert recall.high.item() == pytest.approx(high1 / (high1 + low0), abs=1e-12)
    assert recall.estimate.item() == pytest.approx(650 / (650 + 120), abs=1e-12)


def test_known_numbers_have_no_bounds():
    pool = LabelledPool(Labelled(9_000, 300, 4), Labelled(200, 200, 130))
    precision, recall = pool.pool_interval(measure_of("precision")), pool.pool_interval(measure_of("recall"))
    assert precision.low == precision.high == 0.65
    low, high = pool.negative.positive_bounds(0.025)
    assert recall.low.item() == pytest.approx(130 / (130 + high), abs=1e-12)
    assert recall.high.item() == pytest.approx(130 / (130 + low), abs=1e-12)
    everything = LabelledPool(Labelled(50, 50, 4), Labelled(20, 20, 13)).pool_interval(measure_of("mcc"))
    assert everything.low == everything.estimate == everything.high


def test_no_positive_is_a_result():
    pool = LabelledPool(Labelled(99_900, 66, 0), Labelled(100, 100, 0))
    interval = pool.pool_interval(measure_of("recall"))
    assert (interval.estimate, interval.low, interval.high) == (0, 0, 0)
    some = LabelledPool(Labelled(99_900, 66, 0), Labelled(100, 100, 60))
    low, high = some.negative.positive_bounds(0.025)  # 66 labels miss them all with a chance of just above .025
    assert low == 0
    assert chance(99_900, int(high), 66, 0) > Fraction(0.025) >= chance(99_900, int(high) + 1, 66, 0)
    assert some.pool_interval(measure_of("recall")).high == 1


# --- the population --------------------------------------------------------------------------------------------------


def population_by_hand(pool, measure, shares):
    """Extremes over all corners of both rates and many shares, with bounds by SciPy."""
    rows0, rows1 = pool.negative.rows, pool.positive.rows
    share = np.linspace(*stats.binomtest(rows1, rows0 + rows1).proportion_ci(1 - 2 * 0.0025, "exact"), shares)
    rates = [
        stats.binomtest(each.positives, each.labelled).proportion_ci(1 - 2 * 0.01125, "exact")
        for each in (pool.negative, pool.positive)
    ]
    values = []
    for rate0, rate1 in itertools.product(*rates):
        cells = [(1 - share) * (1 - rate0), share * (1 - rate1), (1 - share) * rate0, share * rate1]
        values.append(measure(torch.from_numpy(np.stack(cells, -1).reshape(-1, 2, 2))))
    return min(each.min() for each in values), max(each.max() for each in values)


@pytest.mark.parametrize("number", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_extremes_are_those_of_many_shares(number):
    random = np.random.default_rng(0)
    for _ in range(number):
        rows = random.integers(1, [5_000, 500])
        labelled = [int(random.integers(1, each + 1)) for each in np.minimum(rows, 500)]
        found = [int(random.binomial(each, random.beta(0.3, 1))) for each in labelled]
        pool = LabelledPool(*(Labelled(*map(int, each)) for each in zip(rows, labelled, found, strict=True)))
        for name in ("f1", "mcc", "iam", "recall", "balanced_accuracy"):
            measure = measure_of(name)
            interval, (low, high) = pool.population_interval(measure), population_by_hand(pool, measure, 20_001)
            assert interval.low.item() == pytest.approx(low.item(), abs=1e-3), name
            assert interval.high.item() == pytest.approx(high.item(), abs=1e-3), name
            own = pool.pool_interval(measure)
            assert interval.low <= own.estimate <= interval.high


def test_precision_in_the_population_depends_on_one_rate():
    pool = LabelledPool(Labelled(9_000, 300, 4), Labelled(200, 200, 130))
    expected = stats.binomtest(130, 200).proportion_ci(0.95, "exact")
    interval = pool.population_interval(measure_of("precision"))
    assert (interval.low.item(), interval.high.item()) == pytest.approx(tuple(expected))
    assert str(interval).endswith("(95% exact, of the population)")
    missed = stats.binomtest(4, 300).proportion_ci(0.95, "exact")
    interval = pool.population_interval(measure_of("npv"))
    assert (interval.low.item(), interval.high.item()) == pytest.approx((1 - missed[1], 1 - missed[0]))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_coverage_of_the_population_is_enumerated(share):
    """Pools of 40 independent rows; 20 are labelled by plan, if both classes are predicted."""
    size, rates, covered, total = 40, (0.1, 0.7), dict.fromkeys(SHOWN, 0.0), 0.0
    truth = torch.tensor([[(1 - share) * 0.9, share * 0.3], [(1 - share) * 0.1, share * 0.7]])
    for positive in range(1, size):
        chance_of_pool = stats.binom(size, share).pmf(positive)
        total += chance_of_pool
        labelled = label_bounds.plan_sizes(size - positive, positive, 20)
        counts = [np.arange(each + 1) for each in labelled]
        chances = [stats.binom(n, rate).pmf(x) for n, rate, x in zip(labelled, rates, counts, strict=True)]
        pool = LabelledPool(
            Labelled(size - positive, labelled[0], counts[0][:, None]), Labelled(positive, labelled[1], counts[1])
        )
        for name in SHOWN:
            measure = measure_of(name)
            interval, true = pool.population_interval(measure), measure(truth.double())
            held = ((interval.low <= true + 1e-12) & (true <= interval.high + 1e-12)).expand(*map(len, counts))
            covered[name] += chance_of_pool * float(chances[0] @ held.double().numpy() @ chances[1])
    assert all(each / total >= 0.95 for each in covered.values()), covered


# --- plans -----------------------------------------------------------------------------------------------------------


def test_sizes_of_a_plan():
    sizes = label_bounds.plan_sizes
    for negative, positive, labels in itertools.product((1, 5, 90, 4_000), (1, 7, 300), (2, 8, 301)):
        if labels > negative + positive:
            continue
        for aim, least in (("f1", Fraction(1, 3)), ("recall", Fraction(1, 10)), ("precision", 1)):
            n0, n1 = sizes(negative, positive, labels, aim)
            assert n0 + n1 == labels
            assert 1 <= n0 <= negative
            assert 1 <= n1 <= positive
            wanted = math.ceil(labels * max(least, Fraction(positive, negative + positive)))
            assert n1 == max(min(positive, wanted, labels - 1), labels - negative)


def test_pools_without_a_plan_are_refused():
    with pytest.raises(ValueError, match="got 100 rows predicted negative and 0 predicted positive"):
        label_bounds.plan_sizes(100, 0, 10)
    with pytest.raises(ValueError, match="got 0 rows predicted negative"):
        label_bounds.plan_sizes(0, 100, 10)
    with pytest.raises(ValueError, match="labels must be 2 to 120"):
        label_bounds.plan_sizes(100, 20, 121)
    with pytest.raises(ValueError, match="aim must be"):
        label_bounds.plan_sizes(100, 20, 12, "iam")
