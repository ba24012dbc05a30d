"""Skew of measures (`metric_skew.py`) against exact fractions, closed forms and the tables of the papers."""

import math
import random
from fractions import Fraction

import numpy as np
import oracles
import pytest
import torch
from cases import CASES, Case, close

import imbtorch
from imbtorch.papers import effective_skew_ratio, implied_cost, perturbed_scores, skew, skew_delta, skew_map, skew_ratio

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
    with pytest.raises(ValueError, match=r"measure must return one value for each matrix, \[\]"):
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


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# --- selection ------------------------------------------------------------------------------------------------------


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
