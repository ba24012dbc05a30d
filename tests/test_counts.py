"""Counts: margins, one class against the rest, rates, and the counts of other populations."""

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest
import torch
from cases import MEANS, close, forms, margins_of, matrices, pool
from hypothesis import assume, given
from hypothesis import strategies as st
from processes import launch
from rooms import normalized
from sklearn import metrics as sklearn_metrics
from versions import needs_simulated_device

import imbtorch
from imbtorch import (
    Margins,
    ThresholdSweep,
    accuracy,
    at_prevalence,
    confusion_matrix,
    f_score,
    margins,
    merge_classes,
    one_vs_rest,
    papers,
    specificity,
    statistics,
)

NAN = math.nan
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TWO, THREE, LONE = torch.tensor([[8, 2], [1, 3]]), torch.ones(3, 3), torch.tensor([[3, 2], [0, 0]])


# --- margins, one against the rest -----------------------------------------------------------------------------------


@given(matrices())
def test_margins(matrix):
    parts = margins(torch.tensor(matrix))
    diagonal = [matrix[k][k] for k in range(len(matrix))]
    assert [part.tolist() for part in parts] == [diagonal, oracles.rows(matrix), oracles.columns(matrix)]
    again = margins(Margins(*(part.long() for part in parts)))
    assert all(part.dtype == torch.float64 for part in (*parts, *again))
    assert all(map(torch.equal, parts, again))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.uint8])
def test_margins_of_narrow_counts_are_exact(dtype):
    assert margins(torch.full((30, 30), 251).to(dtype)).actual.tolist() == [30 * 251.0] * 30


@given(matrices())
def test_one_vs_rest(matrix):
    counts, expected = torch.tensor(matrix), oracles.one_vs_rest(matrix)
    assert one_vs_rest(counts).tolist() == expected
    for parts in (margins_of(counts), margins(counts)):
        for part, exact in zip(one_vs_rest(parts), margins_of(torch.tensor(expected)), strict=True):
            assert part.tolist() == exact.tolist()


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float64, torch.float32, torch.float16])
def test_one_vs_rest_of_other_dtypes(dtype):
    batch = [[[120, 7, 0], [100, 127, 3], [90, 80, 110]], [[0, 0, 0], [0, 1, 0], [0, 0, 0]]]
    assert one_vs_rest(torch.tensor(batch).to(dtype)).tolist() == [oracles.one_vs_rest(matrix) for matrix in batch]


@pytest.mark.parametrize(
    "counts",
    [
        torch.tensor([[0.999997, 1e-6], [0.5e-6, 1.5e-6]], dtype=torch.float32),
        torch.tensor([[60000, 3], [5, 40000]], dtype=torch.float16),
        torch.tensor([[40000, 30000], [20000, 10000]], dtype=torch.float16),
    ],
)
def test_one_vs_rest_of_narrow_counts_keeps_their_digits(counts):
    expected = torch.stack((counts.flip(0, 1), counts))
    torch.testing.assert_close(one_vs_rest(counts), expected, rtol=1e-6, atol=0)


@given(matrices(cells=st.integers(0, 50)), st.data())
def test_at_prevalence(matrix, data):
    counts, sums = torch.tensor(matrix), oracles.rows(matrix)
    prevalence = [data.draw(st.integers(0, 9)) if r else 0 for r in sums]
    assume(any(prevalence))
    expected = [
        [float(oracles.quotient(count * prior, r * sum(prevalence))) for count in row]
        for row, prior, r in zip(matrix, prevalence, sums, strict=True)
    ]
    close(at_prevalence(counts, prevalence), expected, 1e-12)
    close(at_prevalence(counts, prevalence).sum(-1), [prior / sum(prevalence) for prior in prevalence], 1e-12)
    many = torch.tensor([prevalence, [2 * prior for prior in prevalence]])
    close(at_prevalence(counts, many), [expected] * 2, 1e-12)
    close(at_prevalence(counts.expand(2, *counts.shape), many), [expected] * 2, 1e-12)
    if len(matrix) == 2:
        exact = margins_of(torch.tensor(expected, dtype=torch.float64))
        for part, whole in zip(at_prevalence(margins_of(counts), prevalence), exact, strict=True):
            close(part, whole, 1e-12)


@pytest.mark.parametrize("dtype", [torch.int64, *FLOATS])
def test_at_prevalence_keeps_the_dtype_of_floating_counts(dtype):
    counts = torch.tensor([[9, 1], [2, 8]]).to(dtype)
    expected = dtype if dtype.is_floating_point else torch.float64
    assert at_prevalence(counts, [0.99, 0.01]).dtype == expected
    assert {part.dtype for part in at_prevalence(margins_of(counts), [0.99, 0.01])} == {expected}


@pytest.mark.parametrize("case", MEANS, ids=str)
def test_at_its_own_prevalence_nothing_changes(case):
    for size in case.sizes((2, 3, 6)):
        suited = [m for m in pool(size) if all(oracles.rows(m)) and oracles.total(m) < 10**7][:40]
        counts = torch.tensor(suited)
        close(case.ours(at_prevalence(counts, counts.sum(-1))), case.ours(counts))
        if size == 2:
            for layout in forms(case, counts)[1:]:
                close(case.ours(at_prevalence(layout, counts.sum(-1))), case.ours(counts))


@pytest.mark.parametrize("by", ["true", "pred", "all"])
def test_normalized(by):
    for matrix in (matrix for size in (1, 2, 5) for matrix in pool(size)[:60]):
        r, p, n = oracles.rows(matrix), oracles.columns(matrix), oracles.total(matrix)
        expected = [
            [float(oracles.quotient(c, {"true": r[i], "pred": p[j], "all": n}[by])) for j, c in enumerate(row)]
            for i, row in enumerate(matrix)
        ]
        close(normalized(torch.tensor(matrix), by), expected, 1e-14)
    assert normalized(torch.ones(2, 2, dtype=torch.float16), by).dtype == torch.float16


def test_one_vs_rest_of_counts_equals_sklearn():
    target = torch.randint(4, (80,), generator=torch.Generator().manual_seed(0))
    preds = torch.randint(4, (80,), generator=torch.Generator().manual_seed(1))
    counts = confusion_matrix(preds, target, "multiclass", num_classes=5)
    expected = torch.tensor(sklearn_metrics.multilabel_confusion_matrix(target, preds, labels=range(5)))
    assert torch.equal(one_vs_rest(counts), expected)
    for part, whole in zip(one_vs_rest(margins(counts)), margins(expected), strict=True):
        assert torch.equal(part, whole)


@pytest.mark.parametrize(
    ("counts", "prevalence", "match"),
    [
        ([[9, 1], [2, 8]], [-0.5, 1.5], "non-negative"),
        ([[9, 1], [2, 8]], [0.0, 0.0], "not all 0"),
        ([[9, 1], [2, 8]], [NAN, 1.0], "finite"),
        ([[9, 1], [2, 8]], [0.2, 0.3, 0.5], "one share for each of 2 classes"),
        ([[9, 1], [0, 0]], [0.5, 0.5], r"classes \[1\] have no targets.*prevalence 0"),
    ],
)
def test_shares_that_cannot_be(counts, prevalence, match):
    with pytest.raises(ValueError, match=match):
        at_prevalence(torch.tensor(counts), prevalence)


def test_at_prevalence_rescales_rows():
    counts = torch.tensor([[6, 2, 0], [1, 1, 2], [0, 3, 9]])
    rates = at_prevalence(counts, [2, 1, 1])
    expected = [[0.375, 0.125, 0], [0.0625, 0.0625, 0.125], [0, 0.0625, 0.1875]]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"whole matrix for 3 classes.*state='matrix'"):
        at_prevalence(margins(counts), [1, 1, 1])
    two = torch.tensor([[9, 1], [2, 8]])
    whole, parts = at_prevalence(two, [1, 3]), at_prevalence(margins(two), [1, 3])
    np.testing.assert_allclose(parts.predicted, whole.sum(0), rtol=1e-12)
    np.testing.assert_allclose(parts.correct, whole.diagonal(), rtol=1e-12)


def test_what_rounding_leaves_of_a_difference_of_rates_is_0_and_has_its_gradient():
    counts = torch.tensor([[0, 1, 0], [7, 0, 0], [3, 0, 0]])  # none of the rest of class 0 is told from it
    rates = at_prevalence(counts, [1, 1000, 7]).requires_grad_()
    each = one_vs_rest(rates)
    assert each[0, 0, 0] == 0
    assert one_vs_rest(margins(rates)).correct[0].tolist() == [0, 0]
    (gradient,) = torch.autograd.grad(each[0, 0, 0], rates)
    np.testing.assert_allclose(gradient, [[0, 0, 0], [0, 1, 1], [0, 1, 1]], atol=1e-12)


@given(matrices(sizes=st.integers(2, 6), cells=st.integers(0, 10**6)), st.sampled_from(FLOATS), st.data())
def test_rounding_makes_no_counts_impossible(matrix, dtype, data):
    assume(oracles.total(matrix))
    counts = torch.tensor(matrix).double()
    rates = (counts / counts.sum()).to(dtype)
    noise = torch.where(rates == 0, -1e-12 * rates.sum(), rates)  # what a difference may leave
    for layout in (rates, noise, margins_of(rates), margins_of(noise), one_vs_rest(margins_of(rates))):
        assert not any(part.isnan().any() for part in margins(layout))
    prevalence = torch.tensor([float(sum(row)) for row in matrix])
    assert not any(
        part.isnan().any() for part in margins(at_prevalence(rates, torch.where(rates.sum(-1) > 0, prevalence, 0.0)))
    )


def test_other_populations_of_what_cannot_be_counts_are_nan():
    counts = torch.tensor([[-3.0, 1.0], [1.0, 4.0]])  # a row whose sum is negative would leave no trace
    assert at_prevalence(counts, [0.5, 0.5]).isnan().all()


# --- merged classes -------------------------------------------------------------------------------------------------

FIVE = ("cat", "dog", "car", "bus", "sky")


@given(matrices(sizes=st.just(5), cells=st.integers(0, 12)), st.data())
def test_merged_classes_are_sklearns_of_mapped_labels(matrix, data):
    assume(oracles.total(matrix))
    kinds = data.draw(st.lists(st.sampled_from(("animal", "vehicle", "")), min_size=5, max_size=5))
    groups = {kind: [name for name, own in zip(FIVE, kinds, strict=True) if own == kind] for kind in set(kinds) - {""}}
    found, names = merge_classes(torch.tensor(matrix), groups, FIVE)
    mapped = [kind or name for name, kind in zip(FIVE, kinds, strict=True)]
    assert list(names) == sorted(set(mapped), key=mapped.index)
    target, preds = ([mapped[label] for label in labels] for labels in oracles.samples(matrix))
    with oracles.quiet():
        assert found.tolist() == sklearn_metrics.confusion_matrix(target, preds, labels=list(names)).tolist()
    batched, _ = merge_classes(torch.tensor([[matrix, matrix]]).half(), groups, FIVE)
    assert batched.dtype == torch.float16
    assert batched[0, 1].tolist() == found.tolist()


def test_merging_does_not_overflow_and_has_gradients():
    narrow = torch.full((5, 5), 200, dtype=torch.uint8)
    assert merge_classes(narrow, {"all": FIVE}, FIVE)[0].tolist() == [[5000]]
    counts = torch.rand(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    groups = {"animal": ["cat", "dog"]}
    assert torch.autograd.gradcheck(lambda c: f_score(merge_classes(c, groups, FIVE)[0]), counts)
    many = counts.detach().expand(3, 5, 5)
    close(torch.vmap(lambda c: merge_classes(c, groups, FIVE)[0])(many), merge_classes(many, groups, FIVE)[0])


@pytest.mark.parametrize(
    ("superclasses", "names", "message"),
    [
        ({}, FIVE[:4], "class_names must be 5 different names"),
        ({}, (*FIVE[:4], "cat"), "class_names must be 5 different names"),
        ({"animal": ["cat", "cow"]}, FIVE, "hold classes of .*cow"),
        ({"animal": []}, FIVE, "superclasses must be non-empty"),
        ({"animal": ["cat"], "pet": ["cat"]}, FIVE, "each in at most one superclass"),
        ({"car": ["cat", "dog"]}, FIVE, r"must not be named like classes outside them, got \['car'\]"),
    ],
)
def test_what_cannot_be_merged_is_named(superclasses, names, message):
    with pytest.raises(ValueError, match=message):
        merge_classes(torch.ones(5, 5), superclasses, names)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_normalized_names_what_it_cannot_divide_by():
    with pytest.raises(ValueError, match=r"\bby\b"):
        normalized(TWO, "rows")


def test_at_prevalence_names_classes_without_targets():
    with pytest.raises(ValueError, match=r"\[1\] have no targets"):
        at_prevalence(LONE, [0.5, 0.5])
    close(at_prevalence(LONE, [0.5, 0]), [[0.6, 0.4], [0, 0]])


def test_at_prevalence_refuses_margins_of_three_classes():
    with pytest.raises(ValueError, match="whole matrix"):
        at_prevalence(margins_of(THREE), [0.2, 0.3, 0.5])


def test_margins_must_have_one_shape():
    with pytest.raises(ValueError, match="one shape"):
        accuracy(Margins(torch.ones(2), torch.ones(3), torch.ones(2)))


@pytest.mark.parametrize("share", [1e-6, 1e-12, 1e-18])
def test_rare_classes_keep_their_digits_among_two(share):
    """Class 0 has the recall 9/10, class 1 that of 8/10, whatever their shares."""
    rates = at_prevalence(torch.tensor([[9, 1], [2, 8]]), [1 - share, share])
    assert specificity(rates, average="none").tolist() == pytest.approx([0.8, 0.9], rel=1e-12)
    assert one_vs_rest(rates)[0].flatten().tolist() == pytest.approx(
        [0.8 * share, 0.2 * share, 0.1 * (1 - share), 0.9 * (1 - share)], rel=1e-12
    )
    of_margins = one_vs_rest(margins(rates))
    assert of_margins.correct[0].tolist() == pytest.approx([0.8 * share, 0.9 * (1 - share)], rel=1e-12)


def rates_of_rare_classes(size):
    """Shares that fall from 1 to 1e-18; an eighth of each class is confused with the class before it."""
    shares = torch.logspace(0, -18, size, dtype=torch.float64)
    rates = torch.diag(shares * 7 / 8) + torch.diag(shares[1:] / 8, -1)
    rates[0, 1] = shares[0] / 8
    return rates


def specificity_on_a_device(rank, world, sizes):
    """Specificity of rare classes on the simulated accelerator; for a process of its own."""
    import simulated_device  # noqa: F401, registers the device

    torch.use_deterministic_algorithms(True)
    return [specificity(rates_of_rare_classes(size).to("sim"), average="none").cpu().tolist() for size in sizes]


@needs_simulated_device
def test_rare_classes_keep_their_digits_on_a_device_with_deterministic_algorithms():
    sizes = (3, 4, 17)
    [found] = launch(1, specificity_on_a_device, sizes)
    for size, there in zip(sizes, found, strict=True):
        rates = rates_of_rare_classes(size)
        exact, wanted = [[Fraction(each) for each in row] for row in rates.tolist()], []
        for place in range(size):
            others = [row for row in range(size) if row != place]
            right = sum(exact[row][column] for row in others for column in others)
            wanted.append(float(right / sum(sum(exact[row]) for row in others)))
        assert there == pytest.approx(wanted, rel=1e-14)
        assert specificity(rates, average="none").tolist() == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("measure", [imbtorch.ImbalanceAccuracy, imbtorch.ImbalanceAccuracy("binary"), None])
def test_what_is_no_function_of_counts_is_told_how_to_become_one(measure):
    counts, target = torch.tensor([[9, 1], [2, 3]]), torch.tensor([0, 1] * 6)
    for call in (
        lambda: statistics.posterior(measure, counts),
        lambda: statistics.bootstrap({"a": measure}, counts),
        lambda: statistics.trivial(measure, counts),
        lambda: statistics.select_epoch(torch.stack((target, 1 - target)), target, measure),
    ):
        with pytest.raises(
            TypeError, match=r"must be the name of a measure such as 'f1', a function of counts such as"
        ):
            call()
    with pytest.raises(TypeError, match=r"must be a function of counts such as imbtorch\.imbalance_accuracy or"):
        papers.skew(measure, counts)
    with pytest.raises(TypeError, match=r"must be a torch.Tensor, got list; use torch.stack\(predictions\)"):
        statistics.select_epoch([target, target], target, imbtorch.accuracy)
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match=r"at_least must be a dict of floors such as .*, got 0\.8"):
        sweep.best(at_least=0.8)
