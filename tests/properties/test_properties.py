import itertools
import math
import random
from fractions import Fraction
from functools import partial

import numpy as np
import oracles
import pytest
import scipy.stats
import torch
from cases import CASES, DEFAULTS, TOTAL, Case, close

import imbtorch
from imbtorch.analysis import (
    SOKOLOVA,
    Selection,
    effective_skew_ratio,
    implied_cost,
    invariance_table,
    invariances,
    measure_correlations,
    perturbed_scores,
    select_model,
    skew,
    skew_delta,
    skew_map,
    skew_ratio,
)

NAN, INF = math.nan, math.inf
ONE_VALUE = [case for case in CASES if case.arguments.get("average") != "none"]

every_case = pytest.mark.parametrize("case", ONE_VALUE, ids=str)


def random_counts(rng, size, least=1, most=60):
    return [[rng.randint(least, most) for _ in range(size)] for _ in range(size)]


def two_by_two(tp, tn, pos, neg):
    return [[tn, neg - tn], [pos - tp, tp]]


# --- skew against exact differences ---------------------------------------------------------------------------------


def who_gives(matrix, j, from_errors):
    """Which shares of a sample the wrong cells of row j give up when it becomes right."""
    wrong = [k for k in range(len(matrix)) if k != j]
    if isinstance(from_errors, list):
        weights = {k: from_errors[j][k] for k in wrong}
    elif from_errors == "proportional" or from_errors == j:
        weights = {k: matrix[j][k] for k in wrong}
        if not any(weights.values()):
            weights = dict.fromkeys(wrong, 1)
    else:
        weights = {k: int(k == from_errors) for k in wrong}
    return {k: Fraction(weight) / sum(weights.values()) for k, weight in weights.items()}


def after(matrix, j, step, from_errors="proportional"):
    """The matrix with so many more samples of class j right."""
    moved = [[Fraction(count) for count in row] for row in matrix]
    moved[j][j] += step
    for k, share in who_gives(matrix, j, from_errors).items():
        moved[j][k] -= share * step
    return moved


TINY = Fraction(1, 10**6)


def slopes(case, matrix, from_errors="proportional", left=TINY, right=TINY):
    """Difference quotients of the exact measure, which have an error of about the step squared."""
    values = []
    for j in range(len(matrix)):
        ends = case.exact(after(matrix, j, right, from_errors)), case.exact(after(matrix, j, -left, from_errors))
        values.append(float((ends[0] - ends[1]) / (left + right)))
    return values


def as_argument(from_errors):
    return torch.tensor(from_errors) if isinstance(from_errors, list) else from_errors


@every_case
@pytest.mark.parametrize("kind", ["proportional", "class", "weights"])
def test_skew_equals_exact_differences(case, kind):
    for size in case.sizes((2, 3, 5)):
        rng = random.Random(size)
        for trial in range(2):
            matrix, from_errors = random_counts(rng, size), "proportional"
            if kind == "class":
                from_errors = (size - 1) * trial
            elif kind == "weights":
                from_errors = random_counts(rng, size, 0, 3)
                for j in range(size):
                    from_errors[j][(j + 1) % size] += 1
            elif size > 2:  # empty cells give up nothing
                for j in range(size):
                    matrix[j][(j + 1 + trial) % size] = 0
            found = skew(case.ours, torch.tensor(matrix), as_argument(from_errors))
            assert found.dtype == torch.float64
            close(found, slopes(case, matrix, from_errors))


@pytest.mark.parametrize(
    ("from_errors", "expected"),
    [
        ("proportional", [-Fraction(2, 5) * 7, 2, 0]),
        (1, [-7, 2, 0]),  # class 1 itself: proportionally
        (2, [0, 2, 0]),
        ([[9, 1, 3], [1, 0, 1], [1, 1, 0]], [-Fraction(1, 4) * 7, 2, 0]),
    ],
)
def test_skew_of_a_function_of_ones_own(from_errors, expected):
    counts = torch.tensor([[10, 2, 3], [4, 7, 1], [0, 5, 6]])
    found = skew(lambda c: c[..., 0, 1] * c[..., 1, 1], counts, as_argument(from_errors))
    close(found, [float(value) for value in expected], 1e-14)


def test_in_two_classes_there_is_one_place_to_take_from():
    counts = torch.tensor([[8, 2], [1, 4]])
    for from_errors in (0, 1, torch.tensor([[5.0, 0.1], [3.0, 7.0]])):
        close(skew(imbtorch.f_score, counts, from_errors), skew(imbtorch.f_score, counts), 1e-15)


TIES = [
    (Case("ImbalanceAccuracy", {}), [[8, 2], [2, 9]]),
    (Case("ClassBalanceAccuracy", {}), [[8, 2, 1], [3, 9, 0], [0, 1, 5]]),  # rows as long as columns
    (Case("OptimizedPrecision", {}), [[9, 3], [1, 3]]),  # both rates 3/4
]


@pytest.mark.parametrize(("case", "matrix"), TIES, ids=str)
def test_at_a_tie_skew_is_the_mean_of_both_sides(case, matrix):
    left, right = slopes(case, matrix, right=Fraction(0)), slopes(case, matrix, left=Fraction(0))
    assert max(abs(a - b) for a, b in zip(left, right, strict=True)) > 0.01
    found = skew(case.ours, torch.tensor(matrix))
    close(found, [(a + b) / 2 for a, b in zip(left, right, strict=True)], 1e-6)


ENTROPIES = ("RelativeClassifierInformation", "ConfusionEntropy")


@every_case
def test_a_class_without_errors_has_the_slope_from_below(case):
    for matrix in ([[9, 0], [3, 5]], [[9, 0, 0], [1, 7, 3], [2, 5, 6]], [[8, 1, 1], [0, 6, 0], [3, 2, 9]]):
        if case.name in ENTROPIES or len(matrix) not in case.sizes((2, 3)):
            continue
        if math.isinf(case.exact(matrix)):  # a likelihood ratio without false positives, which is at its highest
            continue
        clean = [j for j, row in enumerate(matrix) if sum(row) == row[j]]
        found, expected = skew(case.ours, torch.tensor(matrix)), slopes(case, matrix, right=Fraction(0))
        assert clean
        close(found[clean], [expected[j] for j in clean], 1e-5)
        rest = [j for j in range(len(matrix)) if j not in clean]
        both = slopes(case, matrix)
        close(found[rest], [both[j] for j in rest], 1e-9)


def test_infinite_slopes_count_as_zero():
    never_hit = torch.tensor([[8, 2], [5, 0]])  # G-mean rises as the root of the first hit
    close(skew_delta(imbtorch.geometric_mean, never_hit)[1], (0.8 * 0.2) ** 0.5)
    close(skew(imbtorch.geometric_mean, never_hit), [0, 0])
    clean = torch.tensor([[8, 0], [3, 6]])
    assert skew_delta(imbtorch.confusion_entropy, clean, step=-1e-9)[0] < -1  # x log x
    assert skew(imbtorch.confusion_entropy, clean).isfinite().all()


def test_a_class_without_targets_has_no_skew():
    counts = torch.tensor([[8, 2, 1], [0, 0, 0], [1, 1, 4]])
    found = skew(imbtorch.accuracy, counts)
    close(found, [1 / 17, NAN, 1 / 17], 1e-15)
    close(skew_delta(imbtorch.accuracy, counts), [1 / 17, NAN, 1 / 17], 1e-12)
    close(implied_cost(imbtorch.balanced_accuracy, counts), [6 / 17 * 2, NAN, 11 / 17 * 2], 1e-12)
    assert skew_ratio(imbtorch.accuracy, torch.tensor([[8, 2], [0, 0]])).isnan()
    assert skew(imbtorch.accuracy, torch.zeros(3, 3)).isnan().all()


# --- shapes, dtypes, modes ------------------------------------------------------------------------------------------


@every_case
def test_batched_equals_looped(case):
    for size in case.sizes((2, 3)):
        rng = random.Random(size)
        counts = torch.tensor([random_counts(rng, size, 0) for _ in range(6)])
        functions = [skew, skew_delta, implied_cost]
        functions += [skew_ratio, effective_skew_ratio] if size == 2 else []
        for function in functions:
            looped = torch.stack([function(case.ours, matrix) for matrix in counts])
            assert looped.shape == ((6,) if size == 2 and "ratio" in function.__name__ else (6, size))
            batched = function(case.ours, counts.view(2, 1, 3, size, size))
            assert torch.allclose(batched, looped.view(2, 1, 3, *looped.shape[1:]), 1e-12, 1e-14, equal_nan=True)


@pytest.mark.parametrize("function", [skew, skew_delta, implied_cost, skew_ratio, effective_skew_ratio])
def test_any_dtype_gives_float64_and_the_counts_stay(function):
    counts = torch.tensor([[50, 50], [20, 80]])
    expected = function(imbtorch.imbalance_accuracy, counts)
    assert expected.dtype == torch.float64
    for dtype in (torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        given = counts.to(dtype)
        assert torch.equal(function(imbtorch.imbalance_accuracy, given), expected)
        assert torch.equal(given, counts.to(dtype))


def test_skew_in_every_grad_mode():
    counts = torch.tensor([[50.0, 50.0], [20.0, 80.0]], dtype=torch.float64)
    expected = skew(imbtorch.f_score, counts)
    with torch.no_grad():
        assert torch.equal(skew(imbtorch.f_score, counts), expected)
    with torch.inference_mode():
        assert torch.equal(skew(imbtorch.f_score, counts.clone()), expected)
    tracked = counts.clone().requires_grad_()
    found = skew(imbtorch.f_score, tracked)
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert tracked.grad is None


def test_a_bfloat16_default_changes_nothing():
    counts, weights = (
        torch.tensor([[50, 5, 3], [20, 80, 1], [2, 3, 9]]),
        torch.tensor([[0, 1, 3], [1, 0, 1], [1, 7, 0]]),
    )
    expected = skew(imbtorch.f_score, counts, weights), perturbed_scores(20, 0.25, 0.1, 0.3, seeded(0))[0]
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(skew(imbtorch.f_score, counts, weights), expected[0])
        assert torch.equal(perturbed_scores(20, 0.25, 0.1, 0.3, seeded(0))[0], expected[1])
        assert skew_map(imbtorch.accuracy, 1, 2).tolist() == [[1.0] * 3] * 2
    finally:
        torch.set_default_dtype(torch.float32)


# --- closed forms ---------------------------------------------------------------------------------------------------


def macro_precision(tp, tn, pos, neg):
    n = pos + neg
    positive = neg * (pos + tn - tp) ** 2 + tn * n * (neg - pos + 2 * (tp - tn))
    return positive / (pos * (neg + tp - tn) ** 2 + tp * n * (pos - neg + 2 * (tn - tp)))


COSTS = torch.tensor([[0, 1], [7, 0]])
RATIOS = {  # measure, skew ratio in the paper's letters
    "accuracy": (imbtorch.accuracy, lambda tp, tn, pos, neg: Fraction(1)),
    "total cost": (
        lambda counts: imbtorch.expected_cost(counts, COSTS, normalize=False),
        lambda tp, tn, pos, neg: Fraction(7),
    ),
    "expected cost": (lambda counts: imbtorch.expected_cost(counts, COSTS), lambda tp, tn, pos, neg: Fraction(7)),
    "three-point AUC": (imbtorch.balanced_accuracy, lambda tp, tn, pos, neg: neg / pos),
    "recall": (lambda counts: imbtorch.recall(counts, "binary"), lambda tp, tn, pos, neg: INF),
    "precision": (lambda counts: imbtorch.precision(counts, "binary"), lambda tp, tn, pos, neg: (neg - tn) / tp),
    "F1": (lambda counts: imbtorch.f_score(counts, 1, "binary"), lambda tp, tn, pos, neg: (pos + neg - tn) / tp),
    "sqrt(P R)": (
        lambda counts: imbtorch.fowlkes_mallows(counts, "binary"),
        lambda tp, tn, pos, neg: (2 * neg + tp - 2 * tn) / tp,
    ),
    "micro recall": (lambda counts: imbtorch.recall(counts, "micro"), lambda tp, tn, pos, neg: Fraction(1)),
    "macro recall": (imbtorch.recall, lambda tp, tn, pos, neg: neg / pos),
    "micro precision": (lambda counts: imbtorch.precision(counts, "micro"), lambda tp, tn, pos, neg: Fraction(1)),
    "macro precision": (imbtorch.precision, macro_precision),
}


def random_results(number=60):
    """tp, tn and the class sizes, with every kind of cell but no empty one."""
    rng = random.Random(7)
    for _ in range(number):
        pos, neg = rng.randint(2, 10 ** rng.randint(1, 6)), rng.randint(2, 10 ** rng.randint(1, 6))
        yield tuple(map(Fraction, (rng.randint(1, pos - 1), rng.randint(1, neg - 1), pos, neg)))


RESULTS = list(random_results())


def as_counts(results):
    return torch.tensor([[[int(cell) for cell in row] for row in two_by_two(*result)] for result in results])


@pytest.mark.parametrize("name", RATIOS)
def test_skew_ratios_of_liu(name):
    measure, closed = RATIOS[name]
    ratios = [closed(*result) for result in RESULTS]
    close(skew_ratio(measure, as_counts(RESULTS)), [float(ratio) for ratio in ratios])
    slope = [float(neg / pos / ratio) for ratio, (_, _, pos, neg) in zip(ratios, RESULTS, strict=True)]
    close(effective_skew_ratio(measure, as_counts(RESULTS)), slope)


def test_skews_of_recall_for_any_number_of_classes():
    matrix = random_counts(random.Random(0), 5)
    counts, sums = torch.tensor(matrix), oracles.rows(matrix)
    for from_errors in ("proportional", 2, torch.ones(5, 5)):
        close(skew(imbtorch.recall, counts, from_errors), [1 / (5 * n) for n in sums], 1e-14)
        for measure in (imbtorch.recall, imbtorch.precision):
            micro = skew(lambda counts, measure=measure: measure(counts, "micro"), counts, from_errors)
            close(micro, [1 / sum(sums)] * 5, 1e-14)


def test_two_closed_forms_are_misprinted():
    printed = RATIOS["precision"][1]  # Table 2 gives F1 the row of precision
    found = skew_ratio(RATIOS["F1"][0], as_counts(RESULTS))
    close(found, [float(printed(*result) + pos / tp) for result in RESULTS for tp, _, pos, _ in [result]])
    counts = torch.tensor([[50, 40], [2, 8]])
    found = skew(RATIOS["micro recall"][0], counts)
    close(found, [1 / 100] * 2)
    assert bool(((found - 1 / 90).abs() > 0.001).all())  # as the text prints it: 1 / negatives


def test_f1_and_sqrt_pr_favour_the_positives_everywhere():
    for name in ("F1", "sqrt(P R)"):
        grid = skew_map(RATIOS[name][0], 20, 30)
        assert grid[1:].min() >= 1 - 1e-12
        equal = (grid - 1).abs() < 1e-12
        expected = [[20, 30]] if name == "F1" else [[tp, 30] for tp in range(1, 21)]
        assert equal.nonzero().tolist() == expected


def test_total_cost_without_a_price_on_false_positives():
    counts = torch.tensor([[8, 2], [1, 4]])
    for price in (3, -3):
        costs = torch.tensor([[0, 0], [price, 0]])
        assert skew_ratio(lambda c, costs=costs: imbtorch.expected_cost(c, costs), counts) == INF
        assert effective_skew_ratio(lambda c, costs=costs: imbtorch.expected_cost(c, costs), counts) == 0


def test_a_measure_of_one_class_or_of_none():
    counts = torch.tensor([[8, 2], [1, 4]])

    def specificity(counts):
        return imbtorch.specificity(counts, "binary")

    assert skew_ratio(specificity, counts) == 0
    assert effective_skew_ratio(specificity, counts) == INF
    assert skew_ratio(lambda c: c.sum((-2, -1)), counts).isnan()


# --- Theorem 0.1: slope of the isometric in ROC space ---------------------------------------------------------------


def isometric_slope(case, fpr, tpr, pos, neg, step=Fraction(1, 10**4)):
    """Follow the line of equal values a little to either side, by bisection."""

    def value(fpr, tpr):
        return case.exact(two_by_two(tpr * pos, (1 - fpr) * neg, Fraction(pos), Fraction(neg)))

    level, ends = value(fpr, tpr), []
    for x in (fpr - step, fpr + step):
        low, high = tpr - Fraction(1, 50), tpr + Fraction(1, 50)
        rising = value(x, high) > value(x, low)
        assert (value(x, low) < level < value(x, high)) if rising else (value(x, high) < level < value(x, low))
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if (value(x, middle) < level) == rising else (low, middle)
        ends.append(low)
    return float((ends[1] - ends[0]) / (2 * step))


ON_ISOMETRICS = [
    Case("Accuracy", {}),
    Case("BalancedAccuracy", {}),
    Case("ClassBalanceAccuracy", {}),
    Case("ExpectedCost", {"costs": [[-1, 2], [5, 0]]}),
    Case("FScore", {"average": "binary"}),
    Case("FScore", {}),
    Case("FowlkesMallows", {"average": "binary"}),
    Case("GeometricMean", {}),
    Case("IndexBalancedAccuracy", {}),
    Case("MatthewsCorrCoef", {}),
    Case("OptimizedPrecision", {}),
    Case("Precision", {"average": "binary"}),
    Case("Precision", {}),
    Case("RelativeClassifierInformation", {}),
]


@pytest.mark.parametrize("case", ON_ISOMETRICS, ids=str)
def test_effective_skew_ratio_is_the_slope_of_the_isometric(case):
    for fpr, tpr, pos, neg in ((0.2, 0.7, 100, 100), (0.1, 0.8, 100, 1000), (0.6, 0.85, 300, 70)):
        fpr, tpr = Fraction(str(fpr)), Fraction(str(tpr))
        counts = as_counts([(tpr * pos, (1 - fpr) * neg, pos, neg)])
        close(effective_skew_ratio(case.ours, counts), [isometric_slope(case, fpr, tpr, pos, neg)], 1e-6)


# --- finite steps ---------------------------------------------------------------------------------------------------

OF_RESULTS = {  # m(tp, tn) of the paper, eq. 4 to 6
    "precision": (RATIOS["precision"][0], lambda tp, tn, pos, neg: tp / (neg + tp - tn)),
    "recall": (RATIOS["recall"][0], lambda tp, tn, pos, neg: tp / pos),
    "F1": (RATIOS["F1"][0], lambda tp, tn, pos, neg: 2 * tp / (pos + neg + tp - tn)),
    "accuracy": (RATIOS["accuracy"][0], lambda tp, tn, pos, neg: (tp + tn) / (pos + neg)),
}


@pytest.mark.parametrize("name", OF_RESULTS)
@pytest.mark.parametrize("step", [1, -1, 5, -7, 0.5])
def test_skew_delta_is_equations_11_and_12(name, step):
    measure, m = OF_RESULTS[name]
    tp, tn, pos, neg = map(Fraction, (80, 50, 100, 100))
    h = Fraction(step)
    by_positives = (m(tp + h, tn, pos, neg) - m(tp, tn, pos, neg)) / h
    by_negatives = (m(tp, tn + h, pos, neg) - m(tp, tn, pos, neg)) / h
    close(
        skew_delta(measure, as_counts([(tp, tn, pos, neg)])[0], step=step), [float(by_negatives), float(by_positives)]
    )


@every_case
def test_skew_delta_equals_exact_differences(case):
    rng = random.Random(3)
    for size in case.sizes((2, 3, 5)):
        matrix = random_counts(rng, size, 3)
        weights = random_counts(rng, size)
        for from_errors, step in (("proportional", 1), ("proportional", -2), (size - 1, 2.5), (weights, 0.25)):
            h = Fraction(step)
            expected = [
                float((case.exact(after(matrix, j, h, from_errors)) - case.exact(matrix)) / h) for j in range(size)
            ]
            close(skew_delta(case.ours, torch.tensor(matrix), as_argument(from_errors), step), expected)


@pytest.mark.parametrize(
    ("matrix", "from_errors", "step", "movable"),
    [
        ([[8, 2], [0, 5]], "proportional", 1, [True, False]),
        ([[8, 2], [1, 5]], "proportional", 2, [True, False]),
        ([[8, 2], [1, 5]], "proportional", -5, [True, True]),
        ([[8, 2], [1, 5]], "proportional", -6, [True, False]),
        ([[8, 2], [0, 5]], "proportional", -1, [True, True]),
        ([[8, 1, 1], [3, 5, 0], [0, 0, 0]], "proportional", 2, [True, True, False]),
        ([[8, 1, 1], [3, 5, 0], [0, 0, 0]], "proportional", -1, [True, True, False]),
        ([[8, 1, 1], [3, 5, 0], [1, 0, 0]], 1, 1, [True, True, False]),
        ([[8, 1, 1], [3, 5, 0], [1, 4, 0]], 1, 1, [True, True, True]),
        ([[8, 1, 1], [3, 5, 0], [1, 4, 2]], [[0, 0, 1], [0, 0, 1], [1, 0, 0]], 1, [True, False, True]),
    ],
)
def test_skew_delta_is_nan_where_there_is_nothing_to_move(matrix, from_errors, step, movable):
    found = skew_delta(imbtorch.accuracy, torch.tensor(matrix), as_argument(from_errors), step)
    close(found, [1 / oracles.total(matrix) if can else NAN for can in movable])


@pytest.mark.parametrize("scale", [1, 10**12, 1e-12])
def test_all_errors_of_a_class_can_be_moved_at_any_scale(scale):
    counts = torch.tensor([[8, 1, 2], [3, 5, 7], [1, 1, 4]]).double() * scale
    step = (counts[1, 0] + counts[1, 2]).item()
    found = skew_delta(imbtorch.recall, counts, step=step) * step
    close(found, [NAN, 10 / 15 / 3, NAN])
    close(skew_delta(imbtorch.recall, counts, step=1.0001 * step), [NAN] * 3)


def test_a_measure_is_never_asked_about_negative_counts():
    generator, asked = seeded(0), []
    for _ in range(20):
        counts = torch.rand(4, 4, dtype=torch.float64, generator=generator)
        step = (counts[2].sum() - counts[2, 2]).item()
        skew_delta(lambda c: asked.append(c) or imbtorch.accuracy(c), counts, step=step)
    assert min(counts.min() for counts in asked) >= 0


def test_skew_delta_of_a_measure_that_has_no_slope():
    found = skew_delta(lambda c: (imbtorch.accuracy(c) > 0.7).double(), torch.tensor([[7, 3], [4, 6]]), step=2)
    close(found, [0.5, 0.5])  # .65 to .75


def test_table_1_of_liu():
    cases = torch.tensor([two_by_two(80, 50, 100, 100), two_by_two(50, 80, 100, 100)])
    printed = {"accuracy": "0.65 0.65", "precision": "0.62 0.71", "recall": "0.80 0.50", "F1": "0.70 0.59"}
    for name, texts in printed.items():
        assert " ".join(f"{value:.2f}" for value in OF_RESULTS[name][0](cases).tolist()) == texts


# --- maps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["precision", "macro precision"])
@pytest.mark.parametrize(
    ("negatives", "shares"), [(100, (0.50, 0.49)), (200, (0.75, 0.75)), (500, (0.90, 0.86)), (1000, (0.95, 0.92))]
)
def test_share_of_the_grid_that_favours_positives(name, negatives, shares):
    measure, closed = RATIOS[name]
    found = skew_map(measure, 100, negatives)
    assert found.shape == (101, negatives + 1)
    tp, tn = (np.asarray(axis, dtype=np.float64) for axis in np.indices((101, negatives + 1)))
    with np.errstate(all="ignore"):
        expected = closed(tp, tn, 100, negatives)
    if name == "macro precision":  # a class that is never predicted: the other's precision alone
        expected[0, negatives] = expected[100, 0] = negatives / 100
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-9, atol=1e-9, equal_nan=True)
    above = (found > 1 + 1e-9).double().mean().item()
    assert above == (expected > 1 + 1e-9).mean()
    assert round(above, 2) == shares[name == "macro precision"]


def test_rows_of_a_map_are_true_positives():
    found = skew_map(RATIOS["precision"][0], 2, 3)
    close(found, [[INF, INF, INF, NAN], [3, 2, 1, 0], [1.5, 1, 0.5, 0]])


def test_corners_of_maps():
    assert skew_map(imbtorch.accuracy, 2, 3).tolist() == [[1.0] * 4] * 3
    close(skew_map(imbtorch.balanced_accuracy, 2, 3), [[1.5] * 4] * 3)
    close(skew_map(RATIOS["recall"][0], 1, 1), [[INF, INF], [INF, INF]])
    gmean = skew_map(imbtorch.geometric_mean, 2, 3)  # ratio of tn to tp; without slope where a rate is 0
    close(gmean, [[NAN] * 4, [NAN, 1, 2, 3], [NAN, 1 / 2, 1, 3 / 2]])
    assert skew_map(imbtorch.accuracy, 1, 1).shape == (2, 2)


def test_a_map_is_of_few_calls():
    shapes = []

    def measure(counts):
        shapes.append(counts.shape)
        assert torch.equal(counts.sum(-1), torch.tensor([999.0, 399.0], dtype=torch.float64).expand(len(counts), 2))
        return imbtorch.accuracy(counts)

    assert torch.allclose(skew_map(measure, 399, 999), torch.ones(400, 1000, dtype=torch.float64))
    assert sum(shape[0] for shape in shapes) == 400_000
    assert len(shapes) < 10


# --- implied costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [True, False])
def test_the_implied_cost_of_costs_is_those_costs(normalize):
    for false_positive, false_negative in ((1, 1), (1, 7), (2.5, 0.5), (0, 3)):
        costs = torch.tensor([[0, false_positive], [false_negative, 0]])
        mean = (false_positive + false_negative) / 2
        for matrix in ([[8, 2], [1, 4]], [[900, 0], [4, 1]]):
            found = implied_cost(
                lambda c, costs=costs: imbtorch.expected_cost(c, costs, normalize), torch.tensor(matrix)
            )
            close(found, [false_positive / mean, false_negative / mean])


def test_implied_costs_of_three_classes_depend_on_who_gives():
    costs = torch.tensor([[0.0, 1, 2], [3, 0, 5], [4, 4, 0]])
    counts = torch.tensor([[10, 2, 6], [1, 7, 1], [3, 0, 9]])
    prices = {
        "proportional": [(2 * 1 + 6 * 2) / 8, (3 + 5) / 2, 4],
        0: [14 / 8, 3, 4],
        2: [2, 5, 4],
    }
    for from_errors, price in prices.items():
        found = implied_cost(lambda c: imbtorch.expected_cost(c, costs), counts, from_errors)
        close(found, [each / (sum(price) / 3) for each in price])
        close(found.mean(), 1.0)


@every_case
def test_implied_costs_are_in_proportion_to_the_slopes(case):
    for size in case.sizes((2, 4)):
        matrix = random_counts(random.Random(11), size)
        slope = slopes(case, matrix)
        close(implied_cost(case.ours, torch.tensor(matrix)), [each / (sum(slope) / size) for each in slope], 1e-6)


def test_implied_cost_of_dominance_rewards_errors_on_negatives():
    close(implied_cost(imbtorch.dominance, torch.tensor([[15, 5], [1, 4]])), [-2 / 3, 8 / 3])  # slopes -1/20 and 1/5
    assert implied_cost(lambda c: c.sum((-2, -1)), torch.tensor([[15, 5], [1, 4]])).isnan().all()


# --- errors ---------------------------------------------------------------------------------------------------------

TWO, THREE = torch.tensor([[8, 2], [1, 4]]), torch.tensor([[8, 2, 1], [1, 4, 1], [3, 2, 9]])


@pytest.mark.parametrize(
    "from_errors",
    [3, -1, True, "errors", 1.0, None, [[0, 1, 1]] * 3]
    + [
        torch.tensor(weights)
        for weights in (
            [[0, 1], [1, 0]],
            [[0, 1, -1], [1, 0, 1], [1, 1, 0]],
            [[0, 1, 1], [0, 5, 0], [1, 1, 0]],
            [[0, 1, 1], [NAN, 0, 1], [1, 1, 0]],
            [[0, 1, 1], [INF, 0, 1], [1, 1, 0]],
        )
    ],
)
@pytest.mark.parametrize("function", [skew, skew_delta, implied_cost])
def test_bad_from_errors(function, from_errors):
    with pytest.raises(ValueError, match="from_errors"):
        function(imbtorch.accuracy, THREE, from_errors)


def test_the_diagonal_of_weights_does_not_matter():
    weights = torch.tensor([[NAN, 1, 2], [3, INF, 1], [1, 1, -7]])
    off = weights.clone().fill_diagonal_(0)
    assert torch.equal(skew(imbtorch.f_score, THREE, weights), skew(imbtorch.f_score, THREE, off))
    close(skew(imbtorch.f_score, THREE, 5 * off), skew(imbtorch.f_score, THREE, off), 1e-14)


@pytest.mark.parametrize(
    "measure",
    [
        lambda c: imbtorch.recall(c, "none"),
        lambda c: imbtorch.accuracy(c).item(),
        lambda c: imbtorch.accuracy(c).unsqueeze(0),
    ],
)
@pytest.mark.parametrize("function", [skew, skew_delta, skew_ratio, implied_cost])
def test_a_measure_must_give_one_value(function, measure):
    with pytest.raises(ValueError, match=r"measure must return \[\], one value for each matrix"):
        function(measure, TWO)


@pytest.mark.parametrize(
    "measure",
    [
        lambda c: imbtorch.accuracy(c.detach()),
        lambda c: (c[..., 0, 0] > 3).double(),
        lambda c: torch.ones(c.shape[:-2], requires_grad=True) * 2,
    ],
)
def test_a_measure_must_have_a_slope(measure):
    for function in (skew, skew_ratio, implied_cost):
        with pytest.raises(ValueError, match="measure is not differentiable"):
            function(measure, TWO)


@pytest.mark.parametrize("step", [0, 0.0, INF, NAN])
def test_a_step_must_move_something(step):
    with pytest.raises(ValueError, match="step"):
        skew_delta(imbtorch.accuracy, TWO, step=step)


@pytest.mark.parametrize("function", [skew_ratio, effective_skew_ratio])
def test_ratios_are_of_two_classes(function):
    with pytest.raises(ValueError, match=r"two classes.*got 3.*skew\(\)"):
        function(imbtorch.accuracy, THREE)


@pytest.mark.parametrize("function", [skew, skew_delta, skew_ratio, effective_skew_ratio, implied_cost])
def test_counts_must_be_a_confusion_matrix(function):
    with pytest.raises(ValueError, match="counts must be a confusion matrix"):
        function(imbtorch.accuracy, torch.ones(2, 3))
    with pytest.raises(TypeError, match="counts must be"):
        function(imbtorch.accuracy, [[1, 2], [3, 4]])
    with pytest.raises(TypeError, match="whole matrix"):
        function(imbtorch.accuracy, imbtorch.margins(TWO))


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (-1, 5)])
def test_a_map_needs_both_classes(sizes):
    with pytest.raises(ValueError, match="positives and negatives"):
        skew_map(imbtorch.accuracy, *sizes)


# --- invariances ----------------------------------------------------------------------------------------------------

CHANGES = ("p1", "p2", "p3", "p4", "I3", "I4", "permutation", "transpose", "scaling", "prior shift")


def signs_of(row):
    signs = "".join("-+"[row[change]] for change in CHANGES)
    return f"{signs[:4]} {signs[4:6]} {signs[6:]}"


# What each entry rests on, with r the row sums, p the column sums, n the total:
# p1 is the permutation of two classes. p2, p3, I3 and I4 leave a measure alone only where TN, FP, TP or FN do not occur
# in it. p4 divides out of c_ii / p_i alone. Permutation is kept by what treats all classes alike, transposition by what
# is symmetric in r and p, scaling by all ratios of degree 0, a prior shift by functions of the rates c_ij / r_i.
TABLE = [(case, case.facts.invariances) for case in DEFAULTS] + [
    (Case("CohenKappa", {"weights": "linear"}), "+--- -- -++-"),  # far errors are worse
    (Case("Jaccard", {"average": "binary"}), "-+-- -- -++-"),
    (Case("NegativePredictiveValue", {"average": "binary"}), "--++ +- --+-"),
    (TOTAL, "-+-- +- ----"),  # right samples cost nothing, and nothing is divided by
    (Case("ExpectedCost", {"costs": [[0, 1], [1, 0]]}), "+--- -- +++-"),  # 1 - accuracy
    (Case("FScore", {"average": "binary"}), "-+-- -- -++-"),
    (Case("FScore", {"average": "weighted"}), "+--- -- +-+-"),  # weights are of the targets
    (Case("FowlkesMallows", {"average": "binary"}), "-+-- -- -++-"),
    (Case("IndexBalancedAccuracy", {"alpha": 0}), "+--- -- +-++"),  # G-mean
    (Case("Precision", {"average": "binary"}), "-+-+ -+ --+-"),
    (Case("Precision", {"average": "weighted"}), "+--- -- +-+-"),
    (Case("Precision", {"average": "micro"}), "+--- -- +++-"),  # accuracy
    (Case("Recall", {"average": "binary"}), "-++- -- --++"),
    (Case("Recall", {"average": "weighted"}), "+--- -- +++-"),  # accuracy
    (Case("Specificity", {"average": "binary"}), "---- ++ --++"),
    (Case("WeightedAccuracy", {"alpha": 0.25}), "---- -- --++"),
]


def changed_counts(matrix, rng):
    """Each change of Garcia's section 4.2 cell by cell, and those of any number of classes."""
    size = range(len(matrix))
    order, factor = list(size), rng.randint(2, 9)
    while order == list(size):
        rng.shuffle(order)
    rare = rng.randrange(len(matrix))
    yield "permutation", [[matrix[order[i]][order[j]] for j in size] for i in size]
    yield "transpose", [[matrix[j][i] for j in size] for i in size]
    yield "scaling", [[factor * count for count in row] for row in matrix]
    yield "prior shift", [[count * (factor if i == rare else 1) for count in row] for i, row in enumerate(matrix)]
    if len(matrix) == 2:
        (tn, fp), (fn, tp) = matrix
        k1, k2 = Fraction(rng.randint(2, 9), 10), rng.randint(2, 9)
        yield "p1", [[tp, fn], [fp, tn]]
        yield "p2", [[tn + factor, fp], [fn, tp]]
        yield "p3", [[tn, fp + factor], [fn, tp]]
        yield "p4", [[k2 * tn, k1 * fp], [k2 * fn, k1 * tp]]
        yield "I3", [[tn, fp], [fn, tp + factor]]
        yield "I4", [[tn, fp], [fn + factor, tp]]


@pytest.mark.parametrize(("case", "signs"), TABLE, ids=str)
def test_invariances_in_exact_arithmetic(case, signs):
    """By fractions, by the measure on the same matrices, and by what the library says of it."""
    rng, kept, ours = random.Random(5), dict.fromkeys(CHANGES, True), dict.fromkeys(CHANGES, True)
    for size in case.sizes((2, 3, 4)):
        for _ in range(5):
            matrix = random_counts(rng, size)
            value = case.ours(counts_of(matrix))
            for name, changed in changed_counts(matrix, rng):
                kept[name] &= abs(case.exact(changed) - case.exact(matrix)) < Fraction(1, 10**30)
                ours[name] &= math.isclose(case.ours(counts_of(changed)), value, rel_tol=1e-9, abs_tol=1e-12)
    assert signs_of(kept) == signs_of(ours) == signs_of(invariances(case.ours)) == signs


def counts_of(matrix):
    """Fractions, which a prior shift makes, as counts."""
    return torch.tensor([[float(count) for count in row] for row in matrix], dtype=torch.float64)


def test_invariances_of_the_catalogue():
    found = invariance_table({str(case): case.ours for case, _ in TABLE})
    assert list(found.rows) == [str(case) for case, _ in TABLE]
    for case, signs in TABLE:
        assert signs_of(found.rows[str(case)]) == signs, case
        assert invariances(case.ours) == found.rows[str(case)]


# Under class noise the covariance of label and prediction shrinks by 1 - e0 - e1 for every model, and the variance of
# the label does not depend on the model: measures of that covariance and the predictions keep their order. Under
# uniform noise each precision moves along one line, and so does accuracy; recalls of three classes do not, as their
# totals mix.
OF_THE_COVARIANCE = {"LikelihoodRatio", "Markedness", "MatthewsCorrCoef", "NegativePredictiveValue", "Precision"}
KEEP_ORDER = {
    "class noise": OF_THE_COVARIANCE
    | {"AdjustedBalancedAccuracy", "BalancedAccuracy", "MacroAveragedAbsoluteError", "Recall", "Specificity"}
    | {"WeightedAccuracy"},
    "uniform noise": OF_THE_COVARIANCE | {"Accuracy", "WeightedAccuracy"},
}


def test_the_order_of_models_under_wrong_labels():
    names = {str(case): case.ours for case in DEFAULTS}
    found = invariance_table(names).rows
    for noise, keepers in KEEP_ORDER.items():
        assert {name for name, row in found.items() if row[noise]} == keepers


def order_in_fractions(name, size, noisy_rows, rng, pairs):
    """Pairs of which a measure turns the order round once labels are wrong, in exact arithmetic."""
    turned = 0
    for _ in range(pairs):
        totals = [rng.randint(20, 60) for _ in range(size)]
        both = []
        for _ in range(2):
            cuts = [sorted(rng.sample(range(1, total), size - 1)) for total in totals]
            both.append(
                [
                    [b - a for a, b in itertools.pairwise([0, *cut, total])]
                    for cut, total in zip(cuts, totals, strict=True)
                ]
            )
        rates = noisy_rows(size, rng)
        noisy = [
            [[sum(rates[i][k] * matrix[i][j] for i in range(size)) for j in range(size)] for k in range(size)]
            for matrix in both
        ]
        clean, after = (oracles.exact(name, x) - oracles.exact(name, y) for x, y in (both, noisy))
        turned += clean * after < 0
    return turned


def class_noise(size, rng):
    first = Fraction(rng.randint(0, 99), 100)
    second = Fraction(rng.randint(0, 99), 100) * (1 - first)
    return [[1 - first, first], [second, 1 - second]]


def uniform_noise(size, rng):
    rate = Fraction(rng.randint(0, 99), 100) * Fraction(size - 1, size)
    return [[1 - rate if i == k else rate / (size - 1) for k in range(size)] for i in range(size)]


@pytest.mark.parametrize(
    ("name", "kept", "uniform"),
    [
        ("BalancedAccuracy", True, False),
        ("MatthewsCorrCoef", True, True),
        ("Precision", True, True),
        ("NegativePredictiveValue", True, True),
        ("Accuracy", False, True),
        ("ImbalanceAccuracy", False, False),
        ("FScore", False, False),
        ("GeometricMean", False, False),
    ],
)
def test_the_order_of_models_under_wrong_labels_in_exact_arithmetic(name, kept, uniform):
    rng = random.Random(1)
    assert (order_in_fractions(name, 2, class_noise, rng, 200) == 0) == kept
    assert (order_in_fractions(name, 3, uniform_noise, rng, 200) == 0) == uniform


GARCIA = {  # Table 4
    "accuracy": (imbtorch.accuracy, "+---"),
    "AUC": (imbtorch.balanced_accuracy, "+---"),
    "Gmean": (imbtorch.geometric_mean, "+---"),
    "OP": (imbtorch.optimized_precision, "+---"),
    "TPrate": (lambda c: imbtorch.recall(c, "binary"), "-++-"),
    "TNrate": (lambda c: imbtorch.specificity(c, "binary"), "----"),
    "dominance": (imbtorch.dominance, "----"),
    "area": (imbtorch.accuracy_dominance_area, "----"),
    "IBA": (imbtorch.index_balanced_accuracy, "----"),
}


def test_iba_is_not_the_only_measure_that_sees_all_four_changes():
    rows = invariance_table({name: measure for name, (measure, _) in GARCIA.items()}).rows
    for name, (_, signs) in GARCIA.items():
        assert signs_of(rows[name])[:4] == signs
    assert {name for name, row in rows.items() if not any(row[change] for change in CHANGES[:4])} == {
        "TNrate",
        "dominance",
        "area",
        "IBA",
    }


def test_invariances_of_functions_of_ones_own():
    of_first = invariances(lambda c: c[..., 0, 0] / c[..., 0, :].sum(-1))  # blind to the other classes' samples
    assert [name for name, kept in of_first.items() if kept] == ["I3", "I4", "scaling", "prior shift"]
    constant = invariances(lambda c: c.new_zeros(len(c)))
    assert all(constant.values())
    assert tuple(constant) == (*CHANGES, *KEEP_ORDER)
    last_row = invariances(lambda c: c[..., -1, -1] / c.sum((-2, -1)))  # the share of class 1 that is right
    assert [name for name, kept in last_row.items() if kept] == ["transpose", "scaling"]
    of_middle = invariances(lambda c: c[..., c.shape[-1] // 2, :].sum(-1) / c.sum((-2, -1)))
    assert not of_middle["prior shift"]


def test_a_measure_of_two_classes_is_tried_on_two():
    def seen(measure):
        sizes = set()

        def watched(counts):
            value = measure(counts)
            sizes.add(counts.shape[-1])
            return value

        return invariances(watched), sizes

    assert seen(imbtorch.accuracy)[1] == {2, 3, 5}
    assert seen(imbtorch.dominance)[1] == {2}
    costs = torch.tensor([[0, 1], [1, 0]])
    found, sizes = seen(lambda c: imbtorch.expected_cost(c, costs))
    assert sizes == {2}
    assert found == invariances(imbtorch.accuracy)


def test_what_invariances_refuse():
    with pytest.raises(ValueError, match="costs"):
        invariances(lambda c: imbtorch.expected_cost(c, torch.ones(3, 3)))
    with pytest.raises(ValueError, match="choose an average"):
        invariances(lambda c: imbtorch.recall(c, "none"))

    def of_two_then_each(counts):
        return imbtorch.recall(counts, "macro" if counts.shape[-1] == 2 else "none")

    with pytest.raises(ValueError, match="choose an average"):
        invariances(of_two_then_each)
    with pytest.raises(IndexError):
        invariances(lambda c: c[..., 1, 1] if c.shape[-1] == 2 else c[..., 7, 7])


def test_differences_within_the_tolerance_are_rounding():
    def nearly(counts):
        return imbtorch.accuracy(counts) + 1e-6 * (counts[..., -1, -1] / counts.sum((-2, -1)))

    assert not invariances(nearly)["p1"]
    assert invariances(nearly, tolerance=1e-4)["p1"]
    assert not invariances(nearly, tolerance=1e-4)["p2"]
    assert invariances(lambda c: imbtorch.accuracy(c).float(), tolerance=1e-6) == invariances(imbtorch.accuracy)


def test_random_matrices_are_reproducible():
    def tried(**arguments):
        seen = []

        def measure(counts):
            seen.append(counts)
            return imbtorch.accuracy(counts)

        invariances(measure, **arguments)
        return seen

    first, again, other, few = tried(), tried(), tried(generator=seeded(1)), tried(samples=7)
    assert all(map(torch.equal, first, again))
    assert all(map(torch.equal, other, tried(generator=seeded(1))))
    assert not torch.equal(first[1], other[1])
    assert first[1].shape == (256, 2, 2)
    assert few[1].shape == (7, 2, 2)
    assert all((counts > 0).all() for counts in first)
    table = invariance_table({"a": imbtorch.accuracy}, samples=7, tolerance=1e-7, generator=seeded(1))
    assert table.rows["a"] == invariances(imbtorch.accuracy)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_the_table_prints():
    table = invariance_table({"F1": RATIOS["F1"][0], "balanced accuracy": imbtorch.balanced_accuracy})
    assert [line[:87] for line in str(table).splitlines()] == [
        "                   p1  p2  p3  p4  I3  I4  permutation  transpose  scaling  prior shift",
        "                   I1  I2  I5  I7  I3  I4                               I6           I8",
        "F1                  -   +   -   -   -   -            -          +        +            -",
        "balanced accuracy   +   -   -   -   -   -            +          -        +            +",
    ]
    noise = ["class noise  uniform noise", "", "-              -", "+              -"]
    assert [line[87:].strip() for line in str(table).splitlines()] == noise


def test_sokolova_names_eight_changes():
    assert sorted(SOKOLOVA.values()) == [f"I{number}" for number in range(1, 9)]
    assert set(SOKOLOVA) == set(CHANGES) - {"permutation", "transpose"}


# --- perturbed scores -----------------------------------------------------------------------------------------------


def test_table_3_of_garcia_2010():
    scores, target = perturbed_scores(12, 0.25, 0, 0)
    printed = "0.06 0.11 0.17 0.22 0.28 0.33 0.39 0.44 0.5 0.67 0.83 1.0"
    assert scores.dtype == torch.float64
    assert scores.shape == (1, 12)
    assert " ".join(f"{score:.2f}" for score in scores[0]) == " ".join(f"{float(text):.2f}" for text in printed.split())
    exact_scores = [Fraction(i, 18) for i in range(1, 10)] + [Fraction(1, 2) + Fraction(i, 6) for i in range(1, 4)]
    close(scores[0], [float(score) for score in exact_scores], 1e-15)
    assert target.tolist() == [0] * 9 + [1] * 3
    assert target.dtype == torch.int64


def test_the_true_tuple_makes_no_error():
    for share in (0.05, 0.1, 0.25, 0.5, 0.9):
        scores, target = perturbed_scores(200, share, 0, 0)
        assert torch.equal(scores[0] > 0.5, target == 1)
        assert target.sum() == round(200 * share)
        assert bool((scores.diff() > 0).all())


@pytest.mark.parametrize(("eps_negative", "eps_positive"), [(0.3, 0.0), (0.0, 0.3), (0.2, 0.4), (2.0, 0.05)])
def test_perturbed_scores_are_uniform_within_their_bounds(eps_negative, eps_positive):
    truth, target = perturbed_scores(12, 0.25, 0, 0)
    scores, _ = perturbed_scores(12, 0.25, eps_negative, eps_positive, seeded(0), draws=2000)
    assert scores.shape == (2000, 12)
    for index, p in enumerate(truth[0].tolist()):
        eps = eps_positive if target[index] else eps_negative
        least, most = max(0.0, p - eps), min(1.0, p + eps)
        drawn = scores[:, index]
        assert least <= drawn.min() <= drawn.max() <= most
        if eps:
            assert scipy.stats.kstest(drawn.numpy(), "uniform", (least, most - least)).pvalue > 1e-3
        else:
            close(drawn, [p] * 2000, 1e-15)


def test_perturbed_scores_are_reproducible():
    first, _ = perturbed_scores(30, 0.2, 0.3, 0.3, seeded(0), draws=4)
    assert torch.equal(first, perturbed_scores(30, 0.2, 0.3, 0.3, seeded(0), draws=4)[0])
    assert not torch.equal(first, perturbed_scores(30, 0.2, 0.3, 0.3, seeded(1), draws=4)[0])
    assert len({tuple(row) for row in first.tolist()}) == 4
    torch.manual_seed(0)
    assert torch.equal(first, perturbed_scores(30, 0.2, 0.3, 0.3, draws=4)[0])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((12, 0.0, 0, 0), "positive_share"),
        ((12, 1.0, 0, 0), "positive_share"),
        ((12, 0.01, 0, 0), "positive_share"),
        ((12, -0.2, 0, 0), "positive_share"),
        ((12, 0.25, -0.1, 0), "eps_negative"),
        ((12, 0.25, 0, -0.1), "eps_positive"),
        ((12, 0.25, NAN, 0), "eps_negative"),
    ],
)
def test_perturbed_scores_name_what_is_wrong(arguments, named):
    with pytest.raises(ValueError, match=named):
        perturbed_scores(*arguments)


# --- correlations ---------------------------------------------------------------------------------------------------

CORRELATED = {name: measure for name, (measure, _) in GARCIA.items() if name not in ("dominance", "area")}


def counted(n, shares, eps, steps, draws, generator):
    """Four counts of each simulated classifier, one by one."""
    for share in shares:
        rows = []
        for index in range(steps + 1):
            split = eps * (steps - index) / steps, eps * index / steps
            scores, target = perturbed_scores(n, share, *split, generator, draws)
            positive = target.numpy() == 1
            for row in scores.numpy():
                hit = row > 0.5
                rows.append([np.sum(~hit & ~positive), np.sum(hit & ~positive)])
                rows[-1] += [np.sum(~hit & positive), np.sum(hit & positive)]
        yield np.array(rows, dtype=np.float64).T


def garcia_measures(tn, fp, fn, tp):
    tpr, tnr, accuracy = tp / (tp + fn), tn / (tn + fp), (tp + tn) / (tn + fp + fn + tp)
    gmean = np.sqrt(tpr * tnr)
    optimized = accuracy - np.abs(tnr - tpr) / (tnr + tpr)
    return [accuracy, (tpr + tnr) / 2, gmean, optimized, tpr, tnr, (1 + 0.05 * (tpr - tnr)) * gmean]


@pytest.mark.parametrize(("n", "eps", "step", "draws"), [(200, 0.6, 0.05, 10), (501, 0.8, 0.2, 3)])
def test_correlations_equal_those_of_numpy(n, eps, step, draws):
    shares = (0.05, 0.25, 0.4)
    found = measure_correlations(CORRELATED, shares, n=n, eps=eps, step=step, draws=draws, generator=seeded(5))
    assert found.names == tuple(CORRELATED)
    assert found.shares == shares
    steps = round(eps / step)
    for matrix, cells in zip(found.matrix, counted(n, shares, eps, steps, draws, seeded(5)), strict=True):
        assert cells.shape == (4, (steps + 1) * draws)
        close(matrix, np.corrcoef(garcia_measures(*cells)), 1e-10)
    first, second = found.names.index("TPrate"), found.names.index("IBA")
    assert torch.equal(found.of("TPrate", "IBA"), found.matrix[:, first, second])
    assert torch.equal(found.of("IBA", "TPrate"), found.matrix[:, second, first])


def test_each_share_has_130_classifiers_and_each_measure_one_call():
    calls = []

    def measure(counts):
        calls.append(counts)
        return imbtorch.accuracy(counts)

    found = measure_correlations({"a": measure})
    (counts,) = calls
    assert counts.shape == (5, 130, 2, 2)
    assert found.shares == (0.05, 0.10, 0.15, 0.20, 0.25)
    for share, each in zip(found.shares, counts, strict=True):
        assert torch.equal(each.sum(-1), torch.tensor([2000 - round(2000 * share), round(2000 * share)]).expand(130, 2))
    assert counts[:, 120:, 0, 1].sum() == 0  # the last split moves no negative, the first no positive
    assert counts[:, :10, 1, 0].sum() == 0
    assert counts[:, :10, 0, 1].min() > 0
    measure_correlations({"a": measure})
    assert torch.equal(calls[0], calls[1])  # by default one seed


@pytest.fixture(scope="module")
def figure_1():
    return {
        n: [measure_correlations(CORRELATED, n=n, draws=60, generator=seeded(seed)) for seed in range(3)]
        for n in (200, 2000)
    }


@pytest.mark.parametrize("n", [200, 2000])
def test_what_figure_1_shows_for_any_n(figure_1, n):
    for found in figure_1[n]:
        others = [name for name in CORRELATED if name not in ("IBA", "TPrate")]
        assert all(bool((found.of("IBA", "TPrate") > found.of(name, "TPrate")).all()) for name in others)
        for name in ("AUC", "Gmean"):
            assert bool((found.of("IBA", name) > 0.9).all())
            assert bool((found.of(name, "accuracy") > 0).all())
            assert bool((found.of(name, "TNrate") > 0).all())
        assert bool((found.of("IBA", "TNrate") < 0).all())
        assert bool((found.of("OP", "accuracy") > 0.7).all())


def test_the_sign_of_iba_with_accuracy_depends_on_n(figure_1):
    for found in figure_1[2000]:
        assert bool((found.of("IBA", "accuracy") < -0.05).all())
    for found in figure_1[200]:
        assert bool((found.of("IBA", "accuracy")[1:] > 0).all())  # from a tenth of positives on


def test_accuracy_goes_against_tprate_more_closely_than_iba_goes_with_it(figure_1):
    for found in figure_1[2000]:
        assert bool((found.of("accuracy", "TPrate") < -0.85).all())
        assert bool((found.of("IBA", "TPrate") < 0.6).all())


def test_a_constant_measure_has_no_correlation():
    constant = {"a": imbtorch.accuracy, "c": lambda counts: torch.full(counts.shape[:-2], 0.1, dtype=torch.float64)}
    matrix = measure_correlations(constant, [0.1, 0.2], n=50).matrix
    assert matrix.isnan().tolist() == [[[False, True], [True, True]]] * 2


@pytest.mark.parametrize(
    ("measures", "arguments", "named"),
    [
        ({}, {}, "measures"),
        (CORRELATED, {"shares": []}, "shares"),
        (CORRELATED, {"step": 0}, "step"),
        (CORRELATED, {"step": -0.05}, "step"),
        (CORRELATED, {"step": 0.35}, "step"),
        (CORRELATED, {"eps": 0}, "step"),
        (CORRELATED, {"shares": [0.001], "n": 50}, "positive_share"),
        ({"each": lambda c: imbtorch.recall(c, "none")}, {}, "choose an average"),
    ],
)
def test_correlations_name_what_is_wrong(measures, arguments, named):
    with pytest.raises(ValueError, match=named):
        measure_correlations(measures, **arguments)


# --- selection ------------------------------------------------------------------------------------------------------

ML1 = [[4900, 90, 10, 0], [255, 245, 0, 0], [45, 5, 45, 5], [11, 3, 1, 10]]
ML2 = [[4900, 90, 10, 0], [250, 250, 0, 0], [50, 10, 35, 5], [9, 4, 2, 10]]
ML3 = [[100, 102, 99], [105, 100, 10], [102, 10, 90]]
ML4 = [[114, 86, 101], [100, 100, 15], [110, 10, 82]]
FIVE = {
    "accuracy": "Accuracy",
    "cba": "ClassBalanceAccuracy",
    "recall": "Recall",
    "precision": "Precision",
    "f1": "FScore",
}


def models(**matrices):
    return {name: torch.tensor(matrix) for name, matrix in matrices.items()}


def test_values_of_a_selection_are_exact():
    matrices = {"ML1": ML1, "ML2": ML2}
    found = select_model(models(**matrices))
    assert (found.models, found.measures) == (("ML1", "ML2"), tuple(FIVE))
    assert found.values.dtype == found.iam.dtype == torch.float64
    close(
        found.values, [[float(oracles.exact(name, matrix)) for name in FIVE.values()] for matrix in matrices.values()]
    )
    close(found.iam, [float(oracles.imbalance_accuracy(matrix)) for matrix in matrices.values()])
    assert found.points is None
    assert found.by_area is None


def test_example_1_of_the_iam_paper():
    found = select_model(models(ML1=ML1, ML2=ML2))
    assert found.lowest == ("cba", "cba")
    assert found.by_measure == dict.fromkeys(FIVE, ("ML1",))
    assert found.by_max_min == found.by_majority == found.by_iam == ("ML1",)
    assert found.agree


def test_example_2_of_the_iam_paper():
    found = select_model(models(ML3=ML3, ML4=ML4))
    assert found.lowest == ("accuracy", "cba")
    assert {name for name, best in found.by_measure.items() if best == ("ML4",)} == {
        "accuracy",
        "recall",
        "precision",
        "f1",
    }
    assert found.by_measure["cba"] == ("ML3",)
    assert found.by_max_min == found.by_majority == ("ML4",)
    assert found.by_iam == ("ML3",)
    assert not found.agree


def test_example_3_of_the_iam_paper():
    printed = [[0.37, 0.34, 0.33, 0.33, 0.31], [0.36, 0.37, 0.33, 0.35, 0.31], [0.35, 0.35, 0.35, 0.35, 0.30]]
    names, iam = ("ACC", "MAP", "MAR", "F", "CBA", "IAM"), torch.tensor([-0.38, -0.37, -0.50], dtype=torch.float64)
    rows = [dict(zip(names, [*row, each], strict=True)) for row, each in zip(printed, iam.tolist(), strict=True)]
    found = select_model(dict(zip(("ML5", "ML6", "ML7"), rows, strict=True)))
    assert found.most_often_lowest == ("CBA",)
    assert found.unbeaten == ("ML5", "ML6", "ML7")  # the highest accuracy, precision, recall
    assert found.iam.tolist() == iam.tolist()
    without = {model: {name: row[name] for name in names[:5]} for model, row in zip("abc", rows, strict=True)}
    close(select_model(without).iam, [2 * row[4] - 1 for row in printed])
    assert found.lowest == ("CBA",) * 3
    assert found.by_max_min == ("ML6", "ML5")  # the latest first
    earliest = select_model(dict(zip(("ML5", "ML6", "ML7"), rows, strict=True)), ties="earliest")
    assert earliest.by_max_min == ("ML5", "ML6")
    with pytest.raises(ValueError, match="ties must be one of 'latest', 'earliest', got 'first'"):
        select_model({"a": ML1}, ties="first")
    assert found.by_majority == ("ML6",)  # three of five, two of them shared
    assert found.by_iam == ("ML6",)
    assert not found.agree
    off = iam - (2 * torch.tensor(printed)[:, 4] - 1)  # IAM is twice CBA less one: ML7's cannot be right
    assert (off.abs() > 2 * 0.01 + 0.01).tolist() == [False, False, True]


def at_point(dominance, gmean):
    tnr = (-dominance + math.hypot(dominance, 2 * gmean)) / 2
    return torch.tensor([[tnr, 1 - tnr], [1 - tnr - dominance, tnr + dominance]], dtype=torch.float64)


def test_area_prefers_under_sampling_on_glass_as_in_garcia_2009():
    candidates = {"SMOTE": at_point(-0.32, 0.71), "under-sampling": at_point(0.12, 0.69)}
    found = select_model(candidates, {"gmean": imbtorch.geometric_mean})
    assert found.by_measure == {"gmean": ("SMOTE",)}
    assert found.by_area == ("under-sampling",)
    close(found.points, [[-0.32, 0.71, 0.71 * 2.68 / 2], [0.12, 0.69, 0.69 * 3.12 / 2]], 1e-12)
    assert [f"{area:.2f}" for area in found.points[:, 2].tolist()] == ["0.95", "1.08"]


@pytest.mark.parametrize("seed", range(5))
def test_every_choice_follows_its_rule(seed):
    rng = random.Random(seed)
    size = rng.choice((2, 2, 3, 6))
    matrices = {f"m{index}": random_counts(rng, size, 0, 20) for index in range(6)}
    found = select_model(models(**matrices))
    table = {
        model: {name: oracles.exact(of, matrix) for name, of in FIVE.items()} for model, matrix in matrices.items()
    }

    def best(values):
        return tuple(name for name, value in values.items() if value == max(values.values()))[::-1]  # latest first

    assert found.lowest == tuple(min(row, key=row.get) for row in table.values())
    assert found.by_max_min == best({model: min(row.values()) for model, row in table.items()})
    winners = {name: best({model: row[name] for model, row in table.items()}) for name in FIVE}
    assert found.by_measure == winners
    assert found.by_majority == best({model: sum(model in each for each in winners.values()) for model in table})
    assert found.by_iam == best({model: oracles.imbalance_accuracy(matrix) for model, matrix in matrices.items()})
    assert found.by_iam == winners["cba"]
    if size == 2:
        points = [oracles.dominance, oracles.geometric_mean, oracles.accuracy_dominance_area]
        close(found.points, [[float(point(matrix)) for point in points] for matrix in matrices.values()])
        assert found.by_area == best({name: oracles.accuracy_dominance_area(each) for name, each in matrices.items()})
    assert found.agree == (found.by_max_min == found.by_majority == found.by_iam)


def test_folds_are_averaged_and_spread():
    folds = {"a": [ML1, ML2, ML1], "b": [ML2, ML2, ML2]}
    found = select_model({name: torch.tensor(matrices) for name, matrices in folds.items()})
    each = {
        name: np.array([[float(oracles.exact(of, fold)) for of in FIVE.values()] for fold in matrices])
        for name, matrices in folds.items()
    }
    close(found.values, [values.mean(0).tolist() for values in each.values()])
    assert found.spread is not None
    close(found.spread, [values.std(0, ddof=1).tolist() for values in each.values()], 1e-12)
    close(found.iam, [np.mean([float(oracles.imbalance_accuracy(fold)) for fold in each]) for each in folds.values()])
    assert found.by_max_min == found.unbeaten == ("a",)
    lines = str(found).splitlines()
    assert f"*{each['a'].mean(0)[0]:.3f}±{each['a'].std(0, ddof=1)[0]:.3f}" in lines[1]
    assert lines[2].split()[1].endswith("±0.000")
    assert lines[3].endswith(", ± standard deviation over the folds")
    two = select_model({"a": TWO.expand(3, 2, 2)})
    close(two.points, select_model({"a": TWO}).points)


def test_lower_may_be_better_and_is_then_no_part_of_max_min():
    measures = {"right": lambda c: c[..., 0, 0], "wrong": lambda c: c[..., 0, 1], "other": lambda c: c[..., 1, 0]}
    candidates = models(a=[[5, 1], [7, 0]], b=[[4, 2], [9, 0]], c=[[5, 1], [6, 0]])
    found = select_model(candidates, measures, higher_is_better={"wrong": False})
    assert found.by_measure == {"right": ("c", "a"), "wrong": ("c", "a"), "other": ("b",)}
    assert found.lowest == ("right",) * 3
    assert found.most_often_lowest == ("right",)
    assert found.by_max_min == ("c", "a")
    assert found.by_majority == ("c", "a")
    assert found.unbeaten == ("a", "b")  # c is as good as a but for the last
    assert "wrong: lower is better, so no part of max-min" in str(found).splitlines()
    with pytest.raises(ValueError, match="higher_is_better must be one of 'right', 'wrong', 'other', got 'oops'"):
        select_model(candidates, measures, higher_is_better={"oops": False})


def test_values_that_differ_by_rounding_alone_tie_wherever_models_are_compared():
    printed = {"a": {"one": 0.1 + 0.2, "two": 0.5}, "b": {"one": 0.3, "two": 0.5}, "c": {"one": 0.3, "two": 0.6}}
    two = select_model({name: printed[name] for name in "ab"})
    assert two.by_measure == {"one": ("b", "a"), "two": ("b", "a")}
    assert two.unbeaten == ("a", "b")
    assert select_model(printed).unbeaten == ("c",)
    endless = {"a": {"one": math.inf, "two": 1.0}, "b": {"one": math.inf, "two": 0.5}, "c": {"one": 9.0, "two": 0.5}}
    assert select_model(endless).unbeaten == ("a",)


def test_max_min_of_the_five_is_the_bottom_line():
    rng = random.Random(7)
    candidates = models(**{f"m{index}": random_counts(rng, 4, 0, 9) for index in range(20)})
    lines = {name: float(oracles.bottom_line(matrix.tolist())) for name, matrix in candidates.items()}
    assert select_model(candidates).by_max_min == tuple(
        name for name in lines if math.isclose(lines[name], max(lines.values()), rel_tol=1e-12)
    )


def test_equal_models_share_every_choice():
    renamed = [[ML3[i][j] for j in (2, 0, 1)] for i in (2, 0, 1)]
    found = select_model(models(a=ML3, b=renamed, c=[[100, 103, 98], [105, 99, 11], [103, 10, 89]]))
    assert found.by_measure == dict.fromkeys(FIVE, ("b", "a"))
    assert found.by_max_min == found.by_majority == found.by_iam == ("b", "a")
    assert found.agree
    tie = select_model(models(a=[[9, 1], [4, 6]], b=[[6, 4], [1, 9]]))  # classes changed places
    assert tie.by_majority == ("b", "a")
    assert tie.by_area == ("b",)


def test_votes_of_a_tie_count_for_each():
    values = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.9]])
    found = Selection(("a", "b", "c"), ("x", "y", "z"), values, torch.tensor([0.0, 0.0, 0.1]))
    assert found.by_measure == {"x": ("b", "a"), "y": ("b",), "z": ("c",)}
    assert found.by_majority == ("b",)
    assert found.lowest == ("y", "z", "x")  # the first of equals
    assert found.by_iam == ("c",)


def test_one_candidate_wins():
    found = select_model(models(only=ML4))
    assert found.by_max_min == found.by_majority == found.by_iam == ("only",)
    assert found.agree


def test_nan_never_wins_and_is_nobodys_lowest():
    values = torch.tensor([[NAN, NAN], [0.2, NAN], [0.3, 0.1]])
    found = Selection(("a", "b", "c"), ("x", "y"), values, torch.tensor([NAN, -0.5, -0.6]))
    assert found.lowest == (None, "x", "y")
    assert found.by_measure == {"x": ("c",), "y": ("c",)}
    assert found.by_max_min == ("b",)
    assert found.by_majority == ("c",)
    assert found.by_iam == ("b",)
    assert "nan" in str(found)
    empty = select_model(
        {"a": torch.zeros(2, 2), "b": torch.tensor([[0, 9], [9, 0]])}
    )  # as bad as can be, but something
    assert empty.by_max_min == empty.by_majority == empty.by_iam == empty.by_area == ("b",)
    none = select_model({"a": torch.zeros(2, 2)})
    assert none.by_max_min == none.by_majority == none.by_iam == none.by_area == ()
    assert none.by_measure == dict.fromkeys(FIVE, ())
    assert none.lowest == (None,)
    assert "IAM: none" in str(none)


@pytest.mark.parametrize("least", [-INF, -1e30])
def test_unbounded_values(least):
    values = torch.tensor([[least, 5.0], [least, 7.0]], dtype=torch.float64)
    found = Selection(("a", "b"), ("x", "y"), values, torch.tensor([0.0, 1.0]))
    assert found.lowest == ("x", "x")
    assert found.by_measure == {"x": ("b", "a"), "y": ("b",)}
    assert found.by_max_min == ("b", "a")
    highest = Selection(("a", "b"), ("x",), -values[:, :1], torch.tensor([0.0, 1.0]))
    assert highest.by_measure == {"x": ("b", "a")}
    assert highest.lowest == ("x", "x")


def test_measures_of_ones_own_and_any_dtype():
    candidates = {"a": TWO.float(), "b": TWO.flip(0, 1).double(), "c": TWO.short(), "d": TWO.double().requires_grad_()}
    found = select_model(candidates, {"tp": lambda c: c[..., 1, 1], "mcc": imbtorch.matthews_corrcoef})
    assert found.by_measure["tp"] == ("b",)
    close(found.values[:, 0], [4, 8, 4, 4])
    assert not found.values.requires_grad
    assert not found.iam.requires_grad
    close(select_model({"a": TWO.half()}).values, select_model({"a": TWO}).values, 1e-15)


@pytest.mark.parametrize(
    ("candidates", "measures", "error", "named"),
    [
        ({}, None, ValueError, "candidates"),
        ({"a": TWO, "b": THREE}, None, ValueError, r"same classes.*'b': \[3, 3\]"),
        ({"a": TWO.expand(4, 4, 2, 2)}, None, ValueError, "candidates must be matrices"),
        ({"a": TWO.expand(4, 2, 2), "b": TWO}, None, ValueError, r"of the same classes.*'b': \[2, 2\]"),
        ({"a": TWO, "b": {"cba": 0.5}}, None, ValueError, "must all be printed values"),
        ({"a": {"cba": 0.5}}, FIVE, ValueError, "printed values, which take no measures"),
        ({"a": {"cba": 0.5}, "b": {"f1": 0.5}}, None, ValueError, r"the same measures, \['cba'\]; 'b': \['f1'\]"),
        ({"a": {"IAM": 0.5}}, None, ValueError, "at least one measure beside IAM"),
        ({"a": torch.ones(2, 3)}, None, ValueError, "confusion matrix"),
        ({"a": [[1, 2], [3, 4]]}, None, TypeError, "counts must be a tensor"),
        ({"a": TWO}, {}, ValueError, "measures"),
        ({"a": TWO}, {"each": lambda c: imbtorch.recall(c, "none")}, ValueError, "choose an average"),
        ({"a": TWO, "b": torch.tensor([[1.0, math.nan], [2.0, 3.0]])}, None, ValueError, r"nan.*\['b'\]"),
        ({"a": torch.tensor([[5, -1], [2, 3]]), "b": TWO}, None, ValueError, r">= 0.*\['a'\]"),
    ],
)
def test_select_model_names_what_is_wrong(candidates, measures, error, named):
    with pytest.raises(error, match=named):
        select_model(candidates, measures)


def test_a_selection_prints_its_marks():
    found = select_model(models(first=[[8, 2], [1, 1]], second=[[5, 5], [0, 2]]))
    assert str(found).splitlines() == [
        "        accuracy      cba  recall  precision      f1     IAM  dominance  gmean    area",
        " first    *0.750  *_0.567   0.650      0.611  *0.621  *0.133     -0.300  0.632   0.854",
        "second     0.583   _0.393  *0.750     *0.643   0.556  -0.214      0.500  0.707  *1.237",
        "* best of its column, _ lowest measure of its row",
        "chosen by max-min: first; majority: first; IAM: first; area: second",
        "max-min, majority and IAM agree",
        "beaten by no other on all measures: first, second; most often the lowest: cba",
        "none lies northeast of second",
    ]


def test_a_measure_called_like_a_column_keeps_its_own():
    measures = {"area": lambda c: c[..., 0, 0], "IAM": lambda c: c[..., 1, 1]}
    head, row, *_ = str(select_model({"a": TWO}, measures)).splitlines()
    assert head.split() == ["area", "IAM", "IAM", "dominance", "gmean", "area"]
    assert row.split() == ["a", "*8.000", "*_4.000", "*0.467", "0.000", "0.800", "*1.200"]
    assert "do not agree" in str(select_model(models(ML3=ML3, ML4=ML4)))


def test_a_step_beyond_the_samples_of_a_row_has_no_value_however_large_the_row():
    found = skew_delta(imbtorch.accuracy, torch.tensor([[2_000_000_000, 0], [5, 5]]))
    assert found[0].isnan()
    assert found[1].item() == pytest.approx(1 / 2_000_000_010)
    assert skew_delta(imbtorch.accuracy, torch.tensor([[2_000_000_000, 1], [5, 5]]), step=2.0)[0].isnan()
    assert skew_delta(imbtorch.accuracy, torch.tensor([[1_000_000, 0], [5, 5]]), step=1e-4)[0].isnan()
    assert skew_delta(imbtorch.accuracy, torch.tensor([[0.7, 0.1 + 0.2]] * 2), step=0.3)[0] == pytest.approx(0.5)


def test_skew_has_no_value_where_the_measure_has_none():
    both = torch.tensor([[[3.0, -1.0], [0.0, 2.0]], [[3.0, 1.0], [0.0, 2.0]]])
    assert skew(imbtorch.accuracy, both).isnan().tolist() == [[True, True], [False, False]]


def test_slopes_do_not_know_which_direction_is_better():
    counts = torch.tensor([[8, 2], [1, 4]])
    for sign in (1, -1):
        assert effective_skew_ratio(lambda c, sign=sign: sign * imbtorch.specificity(c, "binary"), counts) == math.inf


def test_the_index_of_several_values_is_refused():
    counts = torch.tensor([[[8, 2], [1, 1]], [[5, 5], [0, 9]]])
    with pytest.raises(ValueError, match=r"must return \[2\], one value for each matrix, got \[2, 2\]"):
        imbtorch.index_balanced_accuracy(counts, partial(imbtorch.f_score, average="none"))
