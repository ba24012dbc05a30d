import inspect
import itertools
import math
import random
from fractions import Fraction
from functools import partial

import imblearn.metrics
import oracles
import pytest
import sklearn.metrics
import torch
import torchmetrics.classification
import torchmetrics.functional.classification as tm
from cases import (
    AVERAGES,
    CASES,
    DEFAULTS,
    MEANS,
    NEED_MATRIX,
    PER_CLASS,
    POOLED,
    SIZES,
    TOTAL,
    Case,
    close,
    forms,
    margins_of,
    matrices,
    of_kind,
    pool,
    random_matrix,
    small_pool,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import FACTS, OF_TWO, PEERS, of_pycm, of_samples, of_tensors
from processes import launch
from rooms import CATALOGUE, by_key, catalogue, needs_matrix
from torch import Tensor
from versions import needs_simulated_device, traced

import imbtorch
from imbtorch import Margins, at_prevalence, margins, measures, one_vs_rest

NAN = math.nan
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


# in the order of the columns of imbtorch.papers.invariance_table, behind those of two classes
TRAITS = (
    "classes can be put in another order",
    "targets and predictions can change places",
    "all counts can be multiplied",
    "how often each class comes does not matter",
)
RELABELLED = "predictions can be put in another order, targets kept"


def test_facts_peers_and_cases_cover_the_catalogue():
    assert FACTS.keys() == set(catalogue.__all__)
    assert {peer.measure for peer in PEERS} == FACTS.keys()
    assert {case.name for case in CASES} == FACTS.keys()


def test_every_measure_is_catalogued_once():
    assert sorted(function.__name__ for function in CATALOGUE) == sorted(measures.__all__)
    keys = [traits.key for traits in CATALOGUE.values()]
    assert len(set(keys)) == len(keys) == len(by_key()) - 1  # "dice" is a second name
    assert set(by_key().values()) == {getattr(imbtorch, name).measure for name in catalogue.__all__}
    assert by_key()["dice"] is by_key()["f1"] is imbtorch.f_score


@pytest.mark.parametrize("name", FACTS)
def test_metric_classes_know_their_measure(name):
    cls, facts = getattr(imbtorch, name), FACTS[name]
    assert cls.measure is getattr(measures, cls.measure.__name__)
    assert cls.traits.averages == AVERAGES.get(name, ())
    assert cls.traits.binary_only == (facts.kind == OF_TWO)
    assert cls.needs_matrix == (not facts.margins)
    assert cls.higher_is_better is facts.better
    assert CATALOGUE[cls.measure].key == cls.traits.key
    assert by_key()[cls.traits.key] is cls.measure


every_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)
every_mean = pytest.mark.parametrize("case", MEANS, ids=str)
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def same(value: Tensor, other: Tensor) -> bool:
    return torch.allclose(value, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def present(matrix: oracles.Matrix) -> int:
    return sum(r + p > 0 for r, p in zip(oracles.rows(matrix), oracles.columns(matrix), strict=True))


# --- against the references -----------------------------------------------------------------------------------------


@every_case
def test_equals_its_reference(case):
    for size in case.sizes():
        counts = torch.tensor(pool(size))
        expected = [case.reference(matrix) for matrix in pool(size)]
        for layout in forms(case, counts) + forms(case, counts.double()):
            value = case.ours(layout)
            assert value.dtype == torch.float64
            close(value, expected)


@given(matrices(sizes=st.integers(1, 6)))
def test_all_equal_their_references_on_any_matrix(matrix):
    for case in CASES:
        if len(matrix) in case.sizes():
            close(case.ours(torch.tensor(matrix)), case.reference(matrix))


@given(matrices(sizes=st.just(2)))
def test_all_equal_their_references_on_any_two_classes(matrix):
    for case in CASES:
        close(case.ours(torch.tensor(matrix)), case.reference(matrix))


UNSEEN = [[1, 0, 1], [0, 2, 0], [0, 0, 0]]  # targets 0011, predictions 0211: class 2 is predicted without targets
ABSENT = [[1, 1, 0], [0, 2, 0], [0, 0, 0]]  # class 2 has neither
LONE = [[3, 2], [0, 0]]  # all targets are of class 0
MISSED = [[0, 2], [1, 0]]  # both rates are 0


@pytest.mark.parametrize(
    ("matrix", "name", "arguments", "expected"),
    [
        (UNSEEN, "Recall", {"average": "none"}, [0.5, 1, 0]),
        (UNSEEN, "Recall", {}, 0.5),
        (UNSEEN, "BalancedAccuracy", {}, 0.75),
        (UNSEEN, "GeometricMean", {}, 0.5**0.5),
        (UNSEEN, "ImbalanceAccuracy", {"average": "none"}, [0, 1, -1]),
        (ABSENT, "Recall", {"average": "none"}, [0.5, 1, NAN]),
        (ABSENT, "Recall", {}, 0.75),
        (ABSENT, "ClassBalanceAccuracy", {}, 7 / 12),
        (UNSEEN, "Recall", {"average": "min"}, 0.5),
        (UNSEEN, "ImbalanceAccuracy", {"average": "min"}, 0),
        (LONE, "Precision", {"average": "min"}, 1),
        ([[0, 0], [0, 0]], "FScore", {"average": "min"}, NAN),
        (LONE, "Precision", {"average": "none"}, [1, 0]),
        (LONE, "Precision", {"average": "binary"}, 0),
        (LONE, "Specificity", {"average": "none"}, [0, 0.6]),
        (LONE, "BalancedAccuracy", {}, 0.6),
        (LONE, "GeometricMean", {}, 0.6),
        (LONE, "WeightedAccuracy", {"alpha": 0.9}, 0.6),
        (LONE, "Dominance", {}, 0),
        (LONE, "AccuracyDominanceArea", {}, 0.9),
        (LONE, "IndexBalancedAccuracy", {"alpha": 1}, 0.6),
        (LONE, "OptimizedPrecision", {}, 0.6),
        (LONE, "MatthewsCorrCoef", {}, 0),
        (LONE, "RelativeClassifierInformation", {}, 0),
        ([[5, 0], [0, 0]], "Recall", {"average": "binary"}, NAN),
        ([[5, 0], [0, 0]], "Jaccard", {"average": "binary"}, NAN),
        ([[5, 1], [0, 0]], "FScore", {"average": "binary"}, 0),
        ([[5, 0], [0, 0]], "NegativePredictiveValue", {"average": "binary"}, 1),
        ([[5, 0], [0, 0]], "IndexBalancedAccuracy", {"measure": "FScore"}, 0),
        ([[0, 5], [0, 0]], "OptimizedPrecision", {}, -1),
        (MISSED, "OptimizedPrecision", {}, -1),
    ],
)
def test_undefined_values_follow_one_rule(matrix, name, arguments, expected):
    close(Case(name, arguments).ours(torch.tensor(matrix)), expected)


READ_NEGATIVES = ("Specificity", "NegativePredictiveValue")  # of two classes, defined without a positive sample


@every_case
def test_only_empty_counts_and_absent_classes_are_undefined(case):
    for size in case.sizes():
        counts = torch.tensor(pool(size))
        expected = counts.sum((-2, -1)) == 0
        if case.arguments.get("average") == "none":
            expected = counts.sum(-1) + counts.sum(-2) == 0
        if case.arguments.get("average") == "binary" and case.name not in READ_NEGATIVES:
            expected = (counts.sum(-1) + counts.sum(-2))[..., 1] == 0
        assert torch.equal(case.ours(counts).isnan(), expected & (case != TOTAL))


# --- what cannot be counts ------------------------------------------------------------------------------------------


def impossible_matrices(size: int) -> Tensor:
    """A nan or a negative cell at each place: among right and wrong ones, small and hidden in its row and column."""
    counts = 1 + torch.arange(size * size, dtype=torch.float64).view(size, size) % 7
    places = torch.eye(size * size, dtype=torch.bool).view(-1, size, size)
    return torch.cat([torch.where(places, value, counts) for value in (NAN, -1.0, -1e-6, -math.inf)])


def impossible_margins(size: int) -> Margins:
    """Margins of whole numbers that no matrix has, and a nan in each of them."""
    right, half, every = torch.ones(size), torch.full((size,), 0.5), torch.full((size,), 2.0)
    first = torch.arange(size) == 0
    cases = [
        (2 * right + first, every, every),  # more right samples than targets and predictions
        (2 * right + first, every + first, every),
        (2 * right + first, every, every + first),
        (right, every, every + first),  # more predictions than targets in all
        (right, every + first, every),
        (-1.0 * first, every, every),
        (half, every * torch.where(first, -1, 1), every * torch.where(first, -1, 1)),
        (right * torch.where(first, NAN, 1), every, every),
        (right, every * torch.where(first, NAN, 1), every),
        (right, every, every * torch.where(first, NAN, 1)),
    ]
    return Margins(*(torch.stack(parts) for parts in zip(*cases, strict=True)))


@every_case
def test_what_cannot_be_counts_gives_nan_and_harms_no_neighbour(case):
    for size in case.sizes((1, 2, 3, 5)):
        possible = torch.ones(1, size, size, dtype=torch.float64)
        counts = torch.cat((possible, impossible_matrices(size)))
        whole = counts[counts.isfinite().all(-1).all(-1)]
        for layout in (counts, counts.float(), (whole * 10**6).long(), (whole[:3] * 10**6).int()):
            value = case.ours(layout)
            assert value[1:].isnan().all()
            assert value[0].isfinite().all()
            assert all(case.ours(matrix).isnan().all() for matrix in layout[1:])
        if case.needs_matrix:
            continue
        parts = Margins(*(torch.cat(pair) for pair in zip(margins_of(possible), impossible_margins(size), strict=True)))
        for layout in (parts, Margins(*(part.double() for part in parts))):
            value = case.ours(layout)
            assert value[1:].isnan().all()
            assert value[0].isfinite().all()


@pytest.mark.parametrize("name", ["accuracy", "geometric_mean", "imbalance_accuracy", "matthews_corrcoef"])
def test_found_by_hostile_use(name):
    measure = getattr(imbtorch, name)
    assert measure(torch.tensor([[NAN, 1], [1, 4]])).isnan()  # IAM was .6
    assert measure(torch.tensor([[5, -2], [4, 4]])).isnan()
    assert measure(Margins(torch.tensor([5, 5]), torch.tensor([3, 3]), torch.tensor([3, 3]))).isnan()  # accuracy 1.67


@given(matrices(sizes=st.integers(1, 6), cells=st.integers(0, 10**6)), st.data())
def test_one_impossible_cell_makes_every_measure_nan(matrix, data):
    counts, place = torch.tensor(matrix).double(), st.integers(0, len(matrix) - 1)
    counts[data.draw(place), data.draw(place)] = data.draw(st.sampled_from((NAN, -1.0, -math.inf)))
    for case in CASES:
        if len(matrix) in case.sizes():
            assert case.ours(counts).isnan().all()
            if counts.isnan().any():
                assert case.ours(one_vs_rest(counts)).isnan().any()


def possible_and_impossible(case):
    """Floating and whole counts of some size that a case takes."""
    for size in case.sizes((3,)) or (2,):
        counts = torch.cat((torch.tensor(small_pool(size)).double(), impossible_matrices(size)))
        yield from (counts, counts.nan_to_num(nan=-9).clamp(-9).long())


@every_case
def test_vmap(case):
    for batch in possible_and_impossible(case):
        value = case.ours(batch)
        assert value.isnan().any()
        assert value.isfinite().any()
        close(torch.vmap(case.ours)(batch), value, 1e-14)
        if not case.needs_matrix:
            close(torch.vmap(case.ours)(margins_of(batch)), case.ours(margins_of(batch)), 1e-14)


# of each measure one case for each choice of arguments, all averages of one; the expected cost looks at its costs
GRAPHS = {(case.name, *case.arguments): case for case in CASES if case.name != "ExpectedCost"}
GRAPHS |= {str(case): case for case in CASES if case.name == "Precision"}


@pytest.mark.default_cases("True")
@pytest.mark.parametrize("binary", [False, True])
def test_one_graph(binary):
    cases = [case for case in GRAPHS.values() if case.binary == binary]
    assert len(cases) > 10

    def values(batch):
        return [case.ours(batch) for case in cases]

    torch.compiler.reset()
    compiled = traced(values)
    for batch in possible_and_impossible(cases[0]):
        for case, found, expected in zip(cases, compiled(batch), values(batch), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14, equal_nan=True, msg=str(case))
    torch.compiler.reset()


@every_case
def test_gradients_beside_impossible_counts_are_finite(case):
    for size in case.sizes((2, 3)):
        counts = torch.cat((torch.tensor(small_pool(size)).double(), impossible_matrices(size))).requires_grad_()
        value = case.ours(counts)
        finite = value.isfinite()
        (gradient,) = torch.autograd.grad(value[finite].sum(), counts)
        assert gradient[finite if finite.ndim == 1 else finite.any(-1)].isfinite().all()


def test_an_unknown_label_makes_the_mean_of_labels_unknown():
    values, targets = torch.tensor([0.5, NAN]), torch.tensor([3.0, NAN])
    for average in PER_CLASS:
        mean = measures.class_mean(values, targets, targets, average)
        assert mean.isnan().tolist() == ([False, True] if average == "none" else True)


# --- against the peers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: f"{peer.name}-{peer.arguments}")
def test_equals_its_peer(peer):
    case, compared = Case(peer.measure, peer.arguments), 0
    for size in (2,) if peer.binary else (2, 4):
        for matrix in filter(peer.where, small_pool(size)):
            with oracles.quiet():
                expected = peer.value(matrix)
            counts = torch.tensor(matrix)
            close(case.ours(one_vs_rest(counts) if peer.per_class else counts), expected, peer.tolerance)
            compared += 1
    assert compared >= 8


HUGE = [[10**12, 7], [3, 10]]
PIXELS = [[1049598400, 500], [300, 800]]  # 1.05e9 pixels, 1e-6 of them foreground
tm_mcc = of_tensors(tm.binary_matthews_corrcoef, sized=False)

DIFFERENCES = {  # beyond those that test_readme.py tests: matrix, measure, arguments, our value; peer, its value
    "torchmetrics' multiclass accuracy is a mean of recalls": (
        ([[8, 0], [1, 1]], "Accuracy", {}, 0.9),
        (of_tensors(tm.multiclass_accuracy), 0.75),
    ),
    "torchmetrics gives 0 rather than nan for an absent class": (
        (ABSENT, "Recall", {"average": "none"}, [0.5, 1.0, NAN]),
        (of_tensors(tm.multiclass_recall, average="none"), [0.5, 1.0, 0.0]),
    ),
    "torcheval gives 0 rather than nan for an absent class": (
        (ABSENT, "Precision", {"average": "none"}, [1.0, 2 / 3, NAN]),
        (of_tensors(oracles.torcheval.multiclass_precision, average=None), [1.0, 2 / 3, 0.0]),
    ),
    "torchmetrics pools the specificity of absent classes": (
        (ABSENT, "Specificity", {"average": "micro"}, 0.75),
        (of_tensors(tm.multiclass_specificity, average="micro"), 0.875),
    ),
    "PyCM pools the specificity of absent classes": (
        (ABSENT, "Specificity", {"average": "micro"}, 0.75),
        (of_pycm("TNR Micro"), 0.875),
    ),
    "PyCM has no RCI of one class": (
        (LONE, "RelativeClassifierInformation", {}, 0.0),
        (of_pycm("RCI"), NAN),
    ),
    "PyCM has no optimized precision where both rates are 0": (
        (MISSED, "OptimizedPrecision", {}, -1.0),
        (of_pycm(lambda table: table.OP[1]), NAN),
    ),
    "torchmetrics' MCC of one class, all right, is 1": (([[5, 0], [0, 0]], "MatthewsCorrCoef", {}, 0.0), (tm_mcc, 1.0)),
    "torchmetrics' MCC of one class, all wrong, is -1": (
        ([[0, 5], [0, 0]], "MatthewsCorrCoef", {}, 0.0),
        (tm_mcc, -1.0),
    ),
    "torchmetrics' MCC of one class is not 0": ((LONE, "MatthewsCorrCoef", {}, 0.0), (tm_mcc, 0.1825742)),
    "imbalanced-learn's specificity without positives is 0": (
        ([[5, 0], [0, 0]], "Specificity", {"average": "binary"}, 1.0),
        (of_samples(imblearn.metrics.specificity_score, average="binary"), 0.0),
    ),
    "scikit-learn's Fowlkes-Mallows score compares pairs of samples, as clusters": (
        (MISSED, "FowlkesMallows", {}, 0.0),
        (of_samples(sklearn.metrics.fowlkes_mallows_score), 1.0),
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differs_from_a_peer_as_documented(name):
    (matrix, measure, arguments, expected), (peer, theirs) = DIFFERENCES[name]
    close(Case(measure, arguments).ours(torch.tensor(matrix)), expected)
    with oracles.quiet():
        found = peer(matrix)
    assert found == pytest.approx(theirs, abs=1e-6, nan_ok=True)
    assert found != pytest.approx(expected, abs=1e-3, nan_ok=True)


@pytest.mark.parametrize(("matrix", "printed"), [(PIXELS, 0.6690), (HUGE, 0.6726728)])
def test_mcc_of_huge_counts_keeps_its_digits(matrix, printed):
    counts, exact = torch.tensor(matrix), oracles.number(oracles.matthews_corrcoef(matrix))
    assert exact == pytest.approx(printed, abs=5e-5 if matrix is PIXELS else 5e-8)
    for layout in (counts, counts.double(), margins_of(counts)):
        close(imbtorch.matthews_corrcoef(layout), exact, 1e-12)


def test_mcc_of_the_peers_loses_digits_of_huge_counts():
    metric = torchmetrics.classification.BinaryMatthewsCorrCoef()
    metric.update(torch.tensor([1]), torch.tensor([1]))
    metric.confmat = torch.tensor(PIXELS)  # float32 inside
    assert metric.compute().item() == pytest.approx(0.6969, abs=1e-4)
    theirs = sklearn.metrics.matthews_corrcoef([0, 0, 1, 1], [0, 1, 0, 1], sample_weight=[*HUGE[0], *HUGE[1]])
    assert theirs == pytest.approx(0.6726757, abs=5e-8)
    with oracles.quiet():
        assert of_pycm("Overall MCC")(HUGE) == pytest.approx(0.6726737, abs=5e-8)


# --- worked examples and counter-examples ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "printed"),
    [
        ([[4900, 90, 10, 0], [255, 245, 0, 0], [45, 5, 45, 5], [11, 3, 1, 10]], ".92 .78 .58 .65 .57 .1402"),
        ([[4900, 90, 10, 0], [250, 250, 0, 0], [50, 10, 35, 5], [9, 4, 2, 10]], ".92 .76 .56 .63 .55 .0953"),
        ([[100, 102, 99], [105, 100, 10], [102, 10, 90]], ".40 .42 .41 .4154 .41 -.1757"),
        ([[114, 86, 101], [100, 100, 15], [110, 10, 82]], ".41 .4254 .42 .42 .4076 -.1847"),
    ],
)
def test_worked_examples_of_the_iam_paper(matrix, printed):
    names = ("accuracy", "precision", "recall", "f_score", "class_balance_accuracy", "imbalance_accuracy")
    for name, text in zip(names, printed.split(), strict=True):
        decimals = len(text.partition(".")[2])
        value = getattr(imbtorch, name)(torch.tensor(matrix)).item()
        assert abs(value - float(text)) < 10.0**-decimals, name  # some printed digits are truncated


@given(matrices())
def test_iam_is_twice_cba_minus_one_class_by_class(matrix):
    for average in PER_CLASS:
        iam = oracles.imbalance_accuracy(matrix, average)
        half = [(value + 1) / 2 for value in iam] if average == "none" else (iam + 1) / 2
        close(imbtorch.class_balance_accuracy(torch.tensor(matrix), average), oracles.number(half), 1e-12)


@given(matrices())
def test_cba_is_the_mean_of_the_smaller_of_precision_and_recall(matrix):
    assume(oracles.total(matrix))
    counts = torch.tensor(matrix)
    pairs = zip(oracles.precision(matrix, "none"), oracles.recall(matrix, "none"), strict=True)
    cba = imbtorch.class_balance_accuracy(counts)
    close(cba, float(sum(min(p, r) for p, r in pairs if p is not oracles.NAN) / present(matrix)))
    p, r = imbtorch.precision(counts), imbtorch.recall(counts)
    harmonic = 2 * p * r / (p + r) if p + r else p
    assert imbtorch.imbalance_accuracy(counts) <= cba + 1e-12
    assert cba <= min(p, r, harmonic, imbtorch.f_score(counts)) + 1e-12


def test_the_f_score_of_theorem_3_is_not_that_of_equation_6():
    counts = torch.tensor([[1, 1], [0, 1]])
    close(imbtorch.precision(counts), 0.75)
    close(imbtorch.recall(counts), 0.75)
    close(imbtorch.f_score(counts), 2 / 3)


@pytest.mark.parametrize(
    ("block", "perfect", "iam", "accuracy"),
    [
        ([[0, 1], [6, 0]], 5, Fraction(3, 7), Fraction(5, 12)),
        ([[4, 2], [2, 5]], 3, Fraction(79, 105), Fraction(12, 16)),
    ],
)
def test_theorem_4_fails_from_five_classes_on(block, perfect, iam, accuracy):
    counts = torch.block_diag(torch.tensor(block), *torch.ones(perfect, 1, 1, dtype=torch.int64))
    close(imbtorch.imbalance_accuracy(counts), float(iam))
    close(imbtorch.accuracy(counts), float(accuracy))
    assert iam > accuracy


@given(matrices(sizes=st.integers(2, 4)))
def test_theorem_4_holds_up_to_four_classes(matrix):
    assume(oracles.total(matrix))
    counts = torch.tensor(matrix)
    assert imbtorch.imbalance_accuracy(counts) <= imbtorch.accuracy(counts) + 1e-12
    if len(matrix) == 2:
        assert imbtorch.class_balance_accuracy(counts) <= imbtorch.accuracy(counts) + 1e-12


def test_cba_exceeds_accuracy_for_three_classes():
    counts = torch.tensor([[0, 0, 1], [0, 1, 0], [2, 0, 0]])
    close(imbtorch.class_balance_accuracy(counts), 1 / 3)
    close(imbtorch.accuracy(counts), 1 / 4)


@given(matrices())
def test_corrected_bounds_of_cba_and_iam(matrix):
    assume(oracles.total(matrix))
    counts = torch.tensor(matrix)
    error = 1 - imbtorch.accuracy(counts)
    assert imbtorch.class_balance_accuracy(counts) <= 1 - 2 / present(matrix) * error + 1e-12
    assert imbtorch.imbalance_accuracy(counts) <= 1 - 4 / present(matrix) * error + 1e-12


def test_the_bound_of_cba_is_tight():
    counts = torch.tensor([[3, 1, 0], [1, 3, 0], [0, 0, 0]])
    close(imbtorch.class_balance_accuracy(counts), 1 - 2 / 2 * (1 - 6 / 8))


def test_the_sign_of_iam_does_not_say_that_most_samples_are_right():
    counts = torch.tensor([[95, 3], [2, 0]])
    close(imbtorch.accuracy(counts), 0.95)
    close(imbtorch.imbalance_accuracy(counts), -0.031, 5e-4)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_iam_of_a_random_guess(size):
    close(imbtorch.imbalance_accuracy(torch.ones(size, size, dtype=torch.int64)), 2 / size - 1)


def test_leaving_an_absent_class_out_raises_iam():
    whole, part = torch.tensor([[8, 2, 0], [2, 8, 0], [5, 5, 2]]), torch.tensor([[8, 2, 0], [2, 8, 0], [0, 0, 0]])
    close(imbtorch.imbalance_accuracy(whole), (1 / 15 + 1 / 15 - 8 / 12) / 3)
    close(imbtorch.imbalance_accuracy(part), 0.6)


AREAS = """
.59 -.31 .79  .60 -.24 .83  .60 .05 .92   .70 -.43 .90   .83 -.14 1.19  .85 .04 1.30
.59 -.31 .79  .61 -.16 .86  .61 .02 .93   .55 -.63 .65   .71 -.32 .95   .69 .12 1.08
.50 -.44 .64  .55 -.24 .77  .55 -.07 .81  .87 -.14 1.25  .88 -.09 1.28  .87 .00 1.30
.64 -.27 .88  .68 -.11 .98  .68 -.05 1.00 .82 -.26 1.13  .90 -.03 1.33  .87 .06 1.34
.62 -.39 .81  .66 -.19 .94  .71 -.01 1.06 .63 -.34 .83   .65 -.20 .91   .66 -.02 .98
.55 -.52 .69  .65 -.02 .97  .64 -.04 .95  .00 -1.00 .00  .88 .04 1.33   .85 .19 1.35
.65 -.41 .85  .72 .01 1.09  .71 .02 1.07  .00 -1.00 .00  .55 .60 1.00   .55 .59 .98
.00 -1.00 .00 .56 -.56 .69  .56 -.49 .70  .70 -.28 .95   .75 .10 1.16   .75 .09 1.15
.94 -.36 1.24 .74 -.06 1.09 .74 -.07 1.09 .00 -1.00 .00  .70 .43 1.20   .68 .47 1.19
.00 -1.00 .00 .74 .08 1.15  .72 .07 1.10  .42 -.79 .47   .71 .05 1.08   .71 .06 1.08
.56 -.48 .70  .57 -.30 .77  .58 -.02 .86  .83 -.24 1.14  .88 -.09 1.29  .87 .05 1.32
.64 -.31 .86  .66 -.12 .95  .67 .00 1.00  .37 -.83 .40   .74 -.32 1.00  .75 .07 1.15
.49 -.65 .57  .63 -.01 .95  .63 -.03 .93  .78 -.13 1.12  .81 .10 1.26   .81 .11 1.26
.68 -.31 .92  .73 .03 1.10  .72 -.04 1.07 .78 -.33 1.05  .86 -.13 1.24  .87 .04 1.32
.75 -.29 1.01 .78 -.10 1.13 .78 .00 1.17  .67 -.35 .88   .71 -.04 1.05  .69 -.03 1.03
"""  # G-mean, dominance, area


def at_rates(tpr: Tensor, tnr: Tensor) -> Tensor:
    return torch.stack((torch.stack((tnr, 1 - tnr), -1), torch.stack((1 - tpr, tpr), -1)), -2)


def test_area_reproduces_table_3_of_garcia_2009():
    g, d, area = torch.tensor([float(text) for text in AREAS.split()], dtype=torch.float64).view(90, 3).T
    tnr = (-d + (d * d + 4 * g * g).sqrt()) / 2
    infeasible = g - 0.005 > (1 - d.abs() + 0.005).sqrt()
    assert torch.stack((g, d, area), -1)[infeasible].tolist() == [[0.94, -0.36, 1.24]]  # Pima by SVM
    assert imbtorch.geometric_mean(at_rates(tnr + d, tnr)[infeasible]).isnan().all()  # it needs a rate above 1
    g, d, area, tnr = (column[~infeasible] for column in (g, d, area, tnr.clamp(max=1)))
    counts = at_rates((tnr + d).clamp(max=1), tnr)
    close(imbtorch.geometric_mean(counts), g, 5e-3)
    close(imbtorch.dominance(counts), d, 5e-3)
    rounding = 0.005 * ((d + 3) / 2 + g / 2 + 1)
    assert bool(((imbtorch.accuracy_dominance_area(counts) - area).abs() <= rounding + 1e-9).all())


@given(matrices(sizes=st.just(2)))
def test_area_is_one_and_a_half_iba_and_has_a_feasible_region(matrix):
    assume(all(oracles.rows(matrix)))
    counts = torch.tensor(matrix)
    close(imbtorch.accuracy_dominance_area(counts), 1.5 * float(oracles.index_balanced_accuracy(matrix, alpha=1 / 3)))
    assert imbtorch.geometric_mean(counts) <= (1 - imbtorch.dominance(counts).abs()).sqrt() + 1e-7


def test_iba_exceeds_the_perfect_classifier_above_alpha_one_half():
    grid = torch.linspace(0, 1, 101, dtype=torch.float64)
    counts = at_rates(*torch.meshgrid(grid, grid, indexing="ij"))
    for alpha in (0.05, 0.5):
        assert imbtorch.index_balanced_accuracy(counts, alpha=alpha).max() <= 1 + 1e-12
    assert imbtorch.index_balanced_accuracy(counts, alpha=0.6).max() > 1
    close(imbtorch.index_balanced_accuracy(torch.tensor([[2, 1], [0, 3]]), alpha=1), 1.0887, 5e-5)


def test_iba_of_a_negative_measure_turns_the_reward_round():
    counts = torch.tensor([[10, 90], [30, 70]])  # worse than chance, TPR .7 and TNR .1
    both = torch.stack((counts, counts.flip(0, 1)))
    close(imbtorch.dominance(both), [0.6, -0.6])
    for measure, reward in ((imbtorch.geometric_mean, 1), (imbtorch.matthews_corrcoef, -1)):
        favouring_positives, favouring_negatives = imbtorch.index_balanced_accuracy(both, measure, alpha=0.2)
        assert (favouring_positives - favouring_negatives) * reward > 0.01


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_predicting_only_positives_is_a_coin_toss(positives, negatives):
    counts, share = torch.tensor([[0, negatives], [0, positives]]), positives / (positives + negatives)
    close(imbtorch.weighted_accuracy(counts), 0.5)
    close(imbtorch.weighted_accuracy(counts, alpha=share), share)
    close(imbtorch.accuracy(counts), share)


# --- properties -----------------------------------------------------------------------------------------------------


@every_default
@pytest.mark.parametrize("trait", [*TRAITS, RELABELLED])
def test_traits(trait, case):
    found = []
    for size in case.sizes(range(2, 9)):
        counts = torch.tensor(pool(size))
        if trait == TRAITS[3]:
            counts = counts[(counts.sum(-1) > 0).all(-1) & (counts.sum((-2, -1)) < 10**12)]
        order = torch.arange(size).roll(1)
        priors = torch.arange(1, size + 1).unsqueeze(-1) ** 2
        changes = (counts[:, order][:, :, order], counts.mT, counts * 7, counts * priors, counts[:, :, order])
        assert len(counts) > 5
        found.append(same(case.ours(counts), case.ours(changes[(*TRAITS, RELABELLED).index(trait)])))
    holds = (
        case.facts.relabelled if trait == RELABELLED else case.facts.invariances.split()[-1][TRAITS.index(trait)] == "+"
    )
    assert all(found) == holds


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("average", ["weighted", "micro", "none", "min"])
def test_averages_follow_the_order_of_classes(name, average):
    case = Case(name, {"average": average if average in AVERAGES[name] else "macro"})
    for size in SIZES:
        counts, order = torch.tensor(pool(size)), torch.arange(size).roll(1)
        value = case.ours(counts)
        close(case.ours(counts[:, order][:, :, order]), value[:, order] if value.ndim == 2 else value)


@pytest.mark.parametrize("average", ["macro", "none", "micro", "binary"])
def test_precision_and_recall_change_places_under_transposition(average):
    for size in (2,) if average == "binary" else SIZES:
        counts = torch.tensor(pool(size))
        close(imbtorch.precision(counts, average), imbtorch.recall(counts.mT, average), 1e-14)


@every_case
@pytest.mark.parametrize("scale", [3.0, 2.0**-60])
def test_scaled_counts(scale, case):
    for size in case.sizes():
        counts = torch.tensor(pool(size)).double()
        close(case.ours(counts * scale), case.ours(counts) * (scale if case == TOTAL else 1), 1e-11)


@every_mean
def test_rates_give_the_same_value(case):
    for size in case.sizes():
        counts = torch.tensor([matrix for matrix in pool(size) if 0 < oracles.total(matrix) < 10**8])
        for layout in forms(case, counts / counts.sum((-2, -1), keepdim=True).double()):
            close(case.ours(layout), case.ours(counts))


@every_mean
def test_stays_within_its_bounds(case):
    low, high = case.facts.low, case.facts.high
    if case.name == "IndexBalancedAccuracy":
        high = 1 + case.arguments.get("alpha", 0.05)
    if case.arguments.get("normalize") == "baseline":
        low, high = 0, math.inf
    for size in case.sizes():
        value = case.ours(torch.tensor(pool(size)))
        value = value[value.isfinite()]
        assert low - 1e-12 <= value.min() <= value.max() <= high + 1e-12


@given(matrices(sizes=st.integers(3, 8)))
def test_confusion_entropy_of_three_classes_stays_within_one(matrix):
    assume(present(matrix) > 2)
    assert -1e-12 <= imbtorch.confusion_entropy(torch.tensor(matrix)) <= 1 + 1e-12


def test_confusion_entropy_of_two_classes_can_exceed_one():
    expected = -2 * 3 / 8 * math.log2(3 / 8)
    assert expected > 1
    close(imbtorch.confusion_entropy(torch.tensor([[1, 3], [3, 1]])), expected)


@every_default
def test_perfect_predictions(case):
    for size in case.sizes((2, 5)):
        close(case.ours(torch.diag(torch.arange(1, size + 1))), case.facts.perfect)


@pytest.mark.parametrize("case", [case for case in CASES if not case.binary], ids=str)
def test_an_empty_class_changes_nothing(case):
    for size, first in itertools.product((1, 2, 3, 6, 11), (False, True)):
        counts = torch.tensor(pool(size)[:100])
        edges = (1, 0, 1, 0) if first else (0, 1, 0, 1)
        padded = torch.nn.functional.pad(counts, edges)
        if case.name == "ExpectedCost":
            costs = torch.nn.functional.pad(torch.tensor(oracles.prices(size)), edges, value=999)
            value = imbtorch.expected_cost(padded, costs, **case.arguments)
        else:
            value = case.ours(padded)
        if case.arguments.get("average") == "none":
            empty = 0 if first else -1
            assert value[:, empty].isnan().all()
            value = value[:, 1:] if first else value[:, :-1]
        close(value, case.ours(counts), 1e-12)


@every_case
def test_batched_equals_looped(case):
    for size in case.sizes((1, 2, 3, 7)):
        counts = torch.tensor(pool(size)[:24])
        looped = torch.stack([case.ours(matrix) for matrix in counts])
        for lead in ((24,), (2, 3, 4), (1, 24, 1)):
            close(case.ours(counts.view(*lead, size, size)), looped.view(*lead, *looped.shape[1:]), 1e-14)
        assert case.ours(counts[:0]).shape == looped[:0].shape


@every_case
def test_the_value_has_the_dtype_of_floating_counts_and_is_rounded_once(case):
    for dtype, size in itertools.product((*INTEGERS, *FLOATS), case.sizes((2, 3))):
        rng = random.Random(size)
        counts = torch.tensor([random_matrix(rng, size, (1, 4)) for _ in range(40)])
        counts = counts.clamp_max(80)  # so that sums are exact in bfloat16
        for layout in forms(case, counts.to(dtype)):
            value = case.ours(layout)
            assert value.dtype == (dtype if dtype.is_floating_point else torch.float64)
            torch.testing.assert_close(value, case.ours(counts).to(value.dtype), rtol=0, atol=0, equal_nan=True)


@every_case
def test_the_default_dtype_does_not_matter(case):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        for size in case.sizes((2, 3)):
            close(case.ours(torch.tensor(small_pool(size))), [case.reference(matrix) for matrix in small_pool(size)])
    finally:
        torch.set_default_dtype(before)


# --- gradients ------------------------------------------------------------------------------------------------------


@every_case
def test_gradients_are_finite_wherever_the_value_is(case):
    for size, dtype in itertools.product(case.sizes((1, 2, 3, 6)), (torch.float64, torch.float32)):
        counts = torch.tensor(pool(size)[:120]).to(dtype).requires_grad_()
        for layout in forms(case, counts):
            value = case.ours(layout)
            finite = value.isfinite()
            (gradient,) = torch.autograd.grad(value[finite].sum(), counts)
            assert gradient[finite if finite.ndim == 1 else finite.any(-1)].isfinite().all()


PATTERNS = [  # 1: a positive count, 0: none, and none in its neighbourhood
    [[1, 1], [1, 1]],
    [[0, 0], [1, 1]],  # one class without targets
    [[1, 1], [0, 0]],
    [[1, 0], [1, 0]],  # without predictions
    [[1, 1], [1, 0]],  # without hits
    [[0, 1], [1, 0]],
    [[1, 0], [0, 1]],  # without errors
    [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
    [[1, 0, 1], [0, 0, 0], [1, 0, 1]],  # absent
    [[1, 1, 1], [0, 0, 0], [1, 1, 1]],
    [[1, 1, 0], [1, 1, 0], [1, 1, 0]],
    [[1, 1, 1], [1, 0, 1], [1, 1, 1]],
]


@every_case
def test_gradients_are_right(case):
    generator = torch.Generator().manual_seed(0)
    for pattern in PATTERNS if not case.binary else PATTERNS[:7]:
        where = torch.tensor(pattern, dtype=torch.bool)
        values = 1 + 9 * torch.rand(int(where.sum()), dtype=torch.float64, generator=generator)

        def value(values, where=where):
            result = case.ours(torch.zeros(where.shape, dtype=torch.float64).masked_scatter(where, values))
            return result[result.isfinite()]

        assert torch.autograd.gradcheck(value, values.requires_grad_())


def test_gradients_pass_through_one_vs_rest_and_at_prevalence():
    counts = 1 + torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    counts.requires_grad_()
    assert torch.autograd.gradcheck(lambda c: imbtorch.geometric_mean(one_vs_rest(c)), counts)
    assert torch.autograd.gradcheck(lambda c: imbtorch.f_score(at_prevalence(c, [0.2, 0.3, 0.5])), counts)
    lone = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(at_prevalence(lone, [1, 0]).square().sum(), lone)
    assert gradient.isfinite().all()


# --- errors ---------------------------------------------------------------------------------------------------------

SKEWED = [[8, 2], [1, 3]]
TWO, THREE = torch.tensor(SKEWED), torch.ones(3, 3)


@pytest.mark.parametrize("name", of_kind(OF_TWO))
def test_binary_measures_refuse_other_sizes_and_read_each_class(name):
    for counts in (THREE, margins_of(THREE), torch.ones(1, 1), torch.ones(4, 5, 5)):
        with pytest.raises(ValueError, match="one_vs_rest"):
            Case(name, {}).ours(counts)
    matrix = [[8, 2, 1], [0, 5, 3], [1, 1, 9]]
    expected = [Case(name, {}).reference(binary) for binary in oracles.one_vs_rest(matrix)]
    close(Case(name, {}).ours(one_vs_rest(torch.tensor(matrix))), expected)
    close(Case(name, {}).ours(one_vs_rest(margins(torch.tensor(matrix)))), expected)


@pytest.mark.parametrize("name", AVERAGES)
def test_no_average_is_the_average_none(name):
    for size in (2, 5):
        counts = torch.tensor(pool(size))
        close(Case(name, {"average": None}).ours(counts), Case(name, {"average": "none"}).ours(counts), 0)


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_that_a_measure_does_not_take(name):
    for average in {*POOLED, "samples"} - set(AVERAGES[name]):
        with pytest.raises(ValueError, match="average"):
            Case(name, {"average": average}).ours(TWO)
    if "binary" in AVERAGES[name]:
        with pytest.raises(ValueError, match=r"average.*one_vs_rest"):
            Case(name, {"average": "binary"}).ours(THREE)


BAD_ARGUMENTS = {
    ("f_score", "beta"): (-1, -1e-9, math.inf, NAN),
    ("weighted_accuracy", "alpha"): (-0.01, 1.01, NAN),
    ("index_balanced_accuracy", "alpha"): (-0.01, math.inf, NAN),
    ("geometric_mean", "correction"): (-0.01, 1.01, NAN),
    ("net_benefit", "threshold"): (-0.01, 1, 1.01, NAN),
    ("cohen_kappa", "weights"): ("cubic", "none", True),
    ("expected_cost", "costs"): (torch.ones(3, 3), torch.ones(2), torch.ones(2, 3)),
    ("at_prevalence", "prevalence"): ([-0.1, 1.1], [0, 0], [NAN, 1], [math.inf, 1], [1], [1, 1, 1]),
}


@pytest.mark.parametrize(
    ("function", "argument", "value"), [(*names, value) for names, values in BAD_ARGUMENTS.items() for value in values]
)
def test_bad_arguments_are_named(function, argument, value):
    with pytest.raises(ValueError, match=argument):
        getattr(imbtorch, function)(TWO, **{argument: value})


@pytest.mark.parametrize("normalize", ["all", None, 2])
def test_costs_are_normalized_in_three_ways(normalize):
    with pytest.raises(ValueError, match=r"normalize must be one of True, False, 'baseline'"):
        imbtorch.expected_cost(TWO, torch.ones(2, 2), normalize)


@pytest.mark.parametrize("weights", ["linear", "quadratic"])
def test_weighted_kappa_needs_the_matrix(weights):
    with pytest.raises(TypeError, match="whole matrix"):
        imbtorch.cohen_kappa(margins_of(TWO), weights)


@pytest.mark.parametrize("value", [math.inf, NAN])
def test_costs_must_be_finite(value):
    with pytest.raises(ValueError, match="costs"):
        imbtorch.expected_cost(TWO, torch.tensor([[0, value], [1, 0]]))


@pytest.mark.parametrize("name", NEED_MATRIX)
def test_measures_of_the_whole_matrix_say_so_when_given_margins(name):
    with pytest.raises((TypeError, ValueError), match="matrix"):
        Case(name, {}).ours(margins_of(TWO))


@every_default
def test_what_is_no_confusion_matrix_is_refused(case):
    arguments = case.ready(2)
    for counts in (torch.ones(2, 3), torch.ones(2)):
        with pytest.raises(ValueError, match=r"counts must be a confusion matrix \[..., K, K\], got shape"):
            getattr(imbtorch, case.name).measure(counts, **arguments)
    with pytest.raises(TypeError, match="counts must be a tensor"):
        getattr(imbtorch, case.name).measure(SKEWED, **arguments)


# --- very rare classes ----------------------------------------------------------------------------------------------

RARE = {
    2: [[1, Fraction(1, 10**15)], [Fraction(1, 10**18), 1]],
    3: [[1, *[Fraction(1, 10**15)] * 2], [Fraction(1, 10**15), 1, Fraction(1, 10**8)]],
}
FROM_ONE = ("Markedness", "RelativeClassifierInformation")  # near 0 they are differences of 1 by definition


@pytest.mark.parametrize(
    "case", [case for case in MEANS if case.name not in FROM_ONE and "weights" not in case.arguments], ids=str
)
def test_classes_with_tiny_shares_keep_their_digits(case):
    """Rates in another population against exact fractions: relative errors, for values of 1e-15 as well."""
    rng = random.Random(0)
    for size in set(case.sizes(RARE)):
        for shares, _ in itertools.product(RARE[size], range(8)):
            counts = [[rng.randint(0, 20) + (i == j) for j in range(size)] for i in range(size)]
            rates = [
                [Fraction(cell) * share / sum(row) / sum(shares) for cell in row]
                for row, share in zip(counts, shares, strict=True)
            ]
            got = case.ours(at_prevalence(torch.tensor(counts), [float(share) for share in shares]))
            expected = torch.tensor(case.reference(rates), dtype=torch.float64)
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=0)


def test_mcc_and_specificity_of_classes_with_tiny_shares():
    """By hand: with TNR 0, FNR 4/22 and a share s of positives MCC is -FNR s / sqrt(s FNR s) for small s."""
    rates = at_prevalence(torch.tensor([[0, 49], [4, 18]]), [1, 1e-15])
    for counts in (rates, margins_of(rates)):
        assert imbtorch.matthews_corrcoef(counts).item() == pytest.approx(-math.sqrt(4 / 22), rel=1e-9)
    three = at_prevalence(torch.tensor([[50, 3, 1], [4, 18, 2], [5, 1, 7]]), [1, 1e-15, 1e-15])
    wanted = 1 - (4 / 24 + 5 / 13) / 2  # of the samples of classes 1 and 2
    assert imbtorch.specificity(three, "none")[0].item() == pytest.approx(wanted, rel=1e-12)
    assert imbtorch.dominance(one_vs_rest(three))[0].item() == pytest.approx(50 / 54 - wanted, rel=1e-12)


@pytest.mark.parametrize("measure", CATALOGUE, ids=lambda measure: measure.__name__)
def test_predictions_and_targets_are_no_counts(measure):
    preds, target = torch.tensor([0, 1, 2, 1]), torch.tensor([0, 1, 2, 2])
    with pytest.raises((TypeError, ValueError), match=r"counts.*functional.evaluate\(measure, preds, target, task\)"):
        measure(preds, target)
    assert imbtorch.balanced_accuracy(counts=torch.eye(2)) == 1


def test_the_index_of_several_values_is_refused():
    counts = torch.tensor([[[8, 2], [1, 1]], [[5, 5], [0, 9]]])
    with pytest.raises(ValueError, match=r"must return one value for each matrix, \[2\], got \[2, 2\]"):
        imbtorch.index_balanced_accuracy(counts, partial(imbtorch.f_score, average="none"))


def test_a_measure_of_ones_own_within_another_gets_matrices():
    """Index of balanced accuracy of a function that reads cells: of its metric it was declared, of the function not."""
    own = partial(
        imbtorch.index_balanced_accuracy, measure=lambda counts: counts[..., 1, 1] / counts[..., 1, :].sum(-1)
    )
    assert needs_matrix(own)
    assert not needs_matrix(imbtorch.index_balanced_accuracy)
    assert needs_matrix(partial(imbtorch.index_balanced_accuracy, measure="rci"))
    assert not needs_matrix(partial(imbtorch.index_balanced_accuracy, measure="mcc"))


def takes_a_second_argument(name):
    return len(inspect.signature(getattr(imbtorch.measures, name)).parameters) > 1  # of others Python says it


@pytest.mark.parametrize("name", list(filter(takes_a_second_argument, imbtorch.measures.__all__)))
def test_a_measure_given_predictions_and_targets_says_what_makes_counts(name):
    with pytest.raises(ValueError, match=r"^counts must be .*confusion_matrix\(preds, target, task\) makes one"):
        getattr(imbtorch.measures, name)(torch.rand(20), torch.arange(20) % 2)


def values_of_arguments_on_a_device(rank, world):
    """Net benefit and expected cost for arguments on the simulated accelerator; for a process of its own."""
    from simulated_device import waits

    counts = torch.tensor([[[8, 2], [1, 1]]] * 3).to("sim")
    thresholds, costs = torch.tensor([0.2, 1.0, -0.1]).to("sim"), torch.tensor([[0.0, torch.nan], [5.0, 0.0]]).to("sim")
    with waits("refused"):
        benefit, cost = measures.net_benefit(counts, thresholds), measures.expected_cost(counts, costs)
    one = measures.net_benefit(counts[0].cpu(), thresholds[0])
    return benefit.cpu().tolist(), cost.cpu().tolist(), one.item()


@needs_simulated_device
def test_arguments_on_a_device_are_not_read():
    [(benefit, cost, one)] = launch(1, values_of_arguments_on_a_device)
    assert [*benefit, one] == pytest.approx([(1 - 2 / 4) / 12, math.nan, math.nan, (1 - 2 / 4) / 12], nan_ok=True)
    assert all(map(math.isnan, cost))
