"""Invariances of the catalogue against exact arithmetic and the tables of the papers."""

import itertools
import math
import random
from fractions import Fraction
from functools import partial

import oracles
import pytest
import torch
from cases import DEFAULTS, GARCIA, TOTAL, Case, close

import imbtorch
from imbtorch.papers import SOKOLOVA, invariance_table, invariances, perturbed_scores


def random_counts(rng, size, least=1, most=60):
    return [[rng.randint(least, most) for _ in range(size)] for _ in range(size)]


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
    table = invariance_table(
        {"F1": partial(imbtorch.f_score, average="binary"), "balanced accuracy": imbtorch.balanced_accuracy}
    )
    lines = str(table).splitlines()
    assert lines[:4] == [
        "                   p1  p2  p3  p4  I3  I4  permutation  transpose  scaling  prior shift  class noise",
        "                   I1  I2  I5  I7  I3  I4                               I6           I8",
        "F1                  -   +   -   -   -   -            -          +        +            -            -",
        "balanced accuracy   +   -   -   -   -   -            +          -        +            +            +",
    ]
    assert [line.split() for line in lines[4:] if line.strip()][-2:] == [["F1", "-"], ["balanced", "accuracy", "-"]]


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
