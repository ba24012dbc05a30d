"""Simulated classifiers and the correlations of their measures, against NumPy and the figures of the papers."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from cases import GARCIA, close

import imbtorch
from imbtorch.papers import measure_correlations, perturbed_scores

NAN, INF = math.nan, math.inf


# --- invariances ----------------------------------------------------------------------------------------------------


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# --- perturbed scores -----------------------------------------------------------------------------------------------


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
