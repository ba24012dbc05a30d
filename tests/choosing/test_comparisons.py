"""Comparisons of models against simulation, Dirichlet distributions and exact cases."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from cases import shown_in_notebook
from distributions import A, B, apart, betas, distance, labels, score, seeded
from rooms import checked_outcomes, compare_outcomes
from rooms import draws as drawing
from scipy import stats
from sklearn.metrics import f1_score, recall_score

import imbtorch
from imbtorch import balanced_accuracy
from imbtorch.statistics import Comparison, Interval, compare, compare_groups, paired_compare

# --- comparisons ----------------------------------------------------------------------------------------------------


def test_compare_against_simulation():
    found = compare(balanced_accuracy, torch.tensor(A), torch.tensor(B), draws=100_000, generator=seeded())
    rng = np.random.default_rng(0)
    simulated = sum(
        sign * law.rvs(200_000, random_state=rng) / 2
        for sign, matrix in ((1, A), (-1, B))
        for law in betas(matrix, 0.5)
    )
    assert float(found.difference.estimate) == pytest.approx((0.9 + 0.9 - 0.95 - 0.6) / 2)
    expected = np.quantile(simulated, [0.025, 0.975])
    assert [float(found.difference.low), float(found.difference.high)] == pytest.approx(expected.tolist(), abs=0.004)
    assert float(found.probability) == pytest.approx((simulated > 0).mean(), abs=0.004)
    assert float(found.probability) > 0.9


def test_compare_with_itself_and_the_other_way_round():
    a, b = torch.tensor(A), torch.tensor(B)
    assert float(compare(balanced_accuracy, a, a, generator=seeded()).probability) == pytest.approx(0.5, abs=0.025)
    there, back = (compare(balanced_accuracy, *pair, generator=seeded()) for pair in ((a, b), (b, a)))
    assert float(there.probability + back.probability) == pytest.approx(1, abs=0.02)
    assert float(there.difference.low) == pytest.approx(-float(back.difference.high), abs=0.015)


def test_direction_is_mirrored():
    a, b = torch.tensor(A), torch.tensor(B)
    up = compare(balanced_accuracy, a, b, generator=seeded())
    down = compare(balanced_accuracy, a, b, higher_is_better=False, generator=seeded())
    assert float(up.probability + down.probability) == pytest.approx(1)
    assert torch.equal(up.difference.draws, down.difference.draws)
    target = torch.tensor([0] * 40 + [1] * 20)
    preds_a, preds_b = target.clone(), target.clone()
    preds_a[55:], preds_b[:5] = 0, 1
    pair = [
        paired_compare(balanced_accuracy, preds_a, preds_b, target, 2, higher_is_better=way, generator=seeded())
        for way in (True, False)
    ]
    assert float(pair[0].probability + pair[1].probability) == pytest.approx(1)


def test_the_direction_of_a_measure_of_the_package_is_known():
    good, bad = torch.tensor([[95, 5], [5, 95]]), torch.tensor([[70, 30], [30, 70]])
    assert compare(imbtorch.confusion_entropy, good, bad, generator=seeded()).probability > 0.99  # lower is better
    target = torch.tensor([0, 1] * 50)
    worse = torch.where(torch.arange(100) < 40, 1 - target, target)
    assert paired_compare(imbtorch.confusion_entropy, target, worse, target, 2, generator=seeded()).probability > 0.99
    with pytest.raises(ValueError, match="measure dominance has no direction"):
        compare(imbtorch.dominance, good, bad)


def test_equal_predictions_are_no_proof_of_equal_models():
    target = torch.tensor([0] * 12 + [1] * 4)
    same = target.clone()
    same[::5] = 1
    found = paired_compare(balanced_accuracy, same, same, target, 2, draws=20_000, generator=seeded())
    assert float(found.probability) == pytest.approx(0.5, abs=0.02)
    assert float(found.difference.estimate) == 0
    assert -0.35 < float(found.difference.low) < -0.1
    assert 0.1 < float(found.difference.high) < 0.35


def test_ties_count_one_half():
    a = torch.tensor([[[3, 1], [1, 3]]])
    found = compare(lambda c: (c > -1).double().sum((-1, -2)), a, a, draws=50)
    assert float(found.probability) == 0.5


def test_compare_is_batched():
    found = compare(balanced_accuracy, torch.tensor([A, B]), torch.tensor([B, A]), draws=4000, generator=seeded())
    assert found.probability.shape == found.difference.low.shape == (2,)
    assert float(found.probability.sum()) == pytest.approx(1, abs=0.04)


def test_compare_of_several_matrices_and_of_each_class():
    a, b = torch.tensor([A, B]), torch.tensor([B, A])
    found = compare(lambda c: score(c).mean(-1), a, b, draws=4000, generator=seeded(), event_dims=3)
    assert found.probability.shape == ()
    assert float(found.probability) == pytest.approx(0.5, abs=0.04)
    each = compare(lambda c: imbtorch.recall(c, "none"), a, b, draws=50)
    assert each.probability.shape == each.difference.low.shape == (2, 2)


def outcomes_of_pairs(a, b, target, kind):
    """How often both models, either, or none are right on the samples of a class."""
    right_a, right_b = (a == target)[target == kind], (b == target)[target == kind]
    pairs = itertools.product((True, False), repeat=2)
    return np.array([((right_a == x) & (right_b == y)).sum() for x, y in pairs])


@pytest.mark.parametrize("size", [2, 3])
def test_paired_compare_against_dirichlet_distributions_of_outcomes(size):
    a, b, target = labels(size)
    found = paired_compare(
        lambda c: balanced_accuracy(c),  # by draws, as any function that is not of the package
        *(torch.from_numpy(each) for each in (a, b, target)),
        size,
        draws=40_000,
        generator=seeded(),
    )
    rng = np.random.default_rng(1)
    simulated, estimate, variances, totals = 0.0, 0.0, [], []
    for kind in range(size):
        times = outcomes_of_pairs(a, b, target, kind)
        share = rng.dirichlet(times + np.array([0.25, 0.5, 0.5, 0.25]), 40_000)
        of_class = (share[:, 1] - share[:, 2]) / size
        simulated = simulated + of_class
        variances.append(of_class.var())
        totals.append(times.sum())
        estimate += (times[1] - times[2]) / times.sum() / size
    assert float(found.difference.estimate) == pytest.approx(estimate)
    assert apart(found.difference.draws, simulated) < 2
    spare = rng.gamma(0.5, size=40_000)  # half a sample more of the rarest class
    spare = spare / (min(totals) + 1 + spare) / size
    ends = np.array([np.quantile(simulated - spare, 0.025), np.quantile(simulated + spare, 0.975)])
    weights = np.array(variances) / np.sum(variances)
    about = estimate + np.sqrt(1 + np.sum(2.5 * weights / totals)) * (ends - simulated.mean())
    expected = [min(ends[0], about[0]), max(ends[1], about[1])]
    assert [float(found.difference.low), float(found.difference.high)] == pytest.approx(
        expected, abs=0.1 * simulated.std()
    )
    assert float(found.probability) == pytest.approx((simulated > 0).mean(), abs=0.015)


def test_paired_draws_have_the_cells_and_totals_that_the_outcomes_say():
    a, b, target = labels(3)
    seen = []

    def measure(c):
        seen.append(c)
        return balanced_accuracy(c)

    inputs = [torch.from_numpy(each) for each in (a, b, target)]
    paired_compare(measure, *inputs, 3, draws=20_000, generator=seeded(), totals="fixed")
    totals = torch.bincount(inputs[2], minlength=3).double()
    for each, preds in zip(seen[-2:], (a, b), strict=True):
        torch.testing.assert_close(each.sum(-1), totals.expand(len(each), 3))
        counted = imbtorch.confusion_matrix(torch.from_numpy(preds), inputs[2], "multiclass", num_classes=3)
        hits = counted.diagonal()  # three quarters of a sample of prior on the right cell, as many on the wrong ones
        for index in range(3):
            law = stats.beta(float(hits[index]) + 0.75, float(totals[index] - hits[index]) + 0.75)
            assert distance(each[:, index, index] / totals[index], law.cdf) < 2
    seen.clear()
    paired_compare(measure, *inputs, 3, draws=20_000, generator=seeded())
    drawn = seen[-1].sum(-1)
    torch.testing.assert_close(seen[-2].sum(-1), drawn)  # both models saw the same samples
    assert distance(drawn[:, 2] / 90, stats.beta(float(totals[2]) + 0.5, float(90 - totals[2]) + 1.0).cdf) < 2


def test_paired_compare_says_what_to_make_of_arrays():
    labels = torch.tensor([0, 1])
    with pytest.raises(TypeError, match=r"preds_b must be a torch.Tensor, got ndarray; use torch.as_tensor\(preds_b\)"):
        paired_compare(balanced_accuracy, labels, labels.numpy(), labels, 2)


def test_paired_compare_takes_bools_and_says_what_to_make_of_scores():
    classes, target = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])
    expected = paired_compare(balanced_accuracy, classes, target, target, 2, generator=seeded()).difference
    found = paired_compare(balanced_accuracy, classes.bool(), target, target.bool(), 2, generator=seeded()).difference
    assert (found.low, found.high) == (expected.low, expected.high)
    scores = torch.tensor([0.2, 0.7, 0.9, 0.1])
    remedy = r"must hold class indices, got torch.float32; pass classes: scores.argmax\(-1\), or \(scores > 0.5\)"
    with pytest.raises(TypeError, match=f"preds_a {remedy}"):
        paired_compare(balanced_accuracy, torch.stack((1 - scores, scores), -1), classes, target, 2)
    with pytest.raises(TypeError, match=f"preds_b {remedy}"):
        paired_compare(balanced_accuracy, classes, scores, target, 2)
    with pytest.raises(TypeError, match=r"target must hold class indices, got torch.float32; use target.long\(\)"):
        paired_compare(balanced_accuracy, classes, classes, target.float(), 2)


def test_the_difference_is_that_of_a_minus_b():
    target = torch.tensor([0, 1] * 20)
    found = paired_compare(balanced_accuracy, preds_a=target, preds_b=1 - target, target=target, num_classes=2)
    assert float(found.difference.estimate) == 1
    assert float(found.probability) > 0.9


def test_paired_compare_of_one_class():
    target = torch.zeros(6, dtype=torch.long)
    found = paired_compare(imbtorch.accuracy, target, target, target, 1, draws=20)
    assert float(found.difference.low) == float(found.difference.high) == 0
    assert float(found.probability) == 0.5


def test_pairs_are_narrower_than_independent_test_sets_where_errors_coincide():
    a, b, target = (torch.from_numpy(each) for each in labels())
    paired = paired_compare(balanced_accuracy, a, b, target, 3, generator=seeded()).difference
    counts = [imbtorch.confusion_matrix(each, target, "multiclass", num_classes=3) for each in (a, b)]
    apart_ = compare(balanced_accuracy, *counts, generator=seeded()).difference
    torch.testing.assert_close(paired.estimate, apart_.estimate)
    assert float(paired.high - paired.low) < 0.75 * float(apart_.high - apart_.low)


def test_comparisons_reproduce_and_chunk(monkeypatch):
    a, b, target = (torch.from_numpy(each) for each in labels())

    def once():
        return paired_compare(score, a, b, target, 3, draws=400, generator=seeded())

    first = once()
    assert torch.equal(first.difference.draws, once().difference.draws)
    monkeypatch.setattr(drawing, "CELLS_AT_ONCE", 50)
    assert once().difference.draws.shape == (400,)
    assert apart(once().difference.draws, first.difference.draws) < 2


# --- clusters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "method"),
    [(lambda c: balanced_accuracy(c), "paired posterior"), (balanced_accuracy, "paired Fay-Feuer")],
)
def test_clusters_of_single_or_equal_samples_are_worth_their_number(measure, method):
    """Three copies of each sample, with the same id, tell what one tells."""
    inputs = [torch.from_numpy(each) for each in labels()]
    compared = partial(paired_compare, measure, num_classes=3, draws=300, totals="fixed")
    plain = compared(*inputs, generator=seeded())
    ids = torch.randperm(len(inputs[0]), generator=seeded())
    alone = compared(*inputs, generator=seeded(), cluster=ids)
    copied = [each.repeat_interleave(3) for each in inputs]
    copies = compared(*copied, generator=seeded(), cluster=ids.repeat_interleave(3))
    positions = compared(*(each.view(-1, 3) for each in copied), generator=seeded(), cluster=ids.to(torch.int16))
    for found in (alone, copies, positions):
        for end in ("estimate", "low", "high"):
            assert getattr(found.difference, end) == pytest.approx(getattr(plain.difference, end).item())
        assert found.probability == plain.probability
        assert found.difference.method == f"{method} of {len(ids)} clusters"
    naive = compared(*copied, generator=seeded()).difference
    assert naive.high - naive.low < 0.7 * (plain.difference.high - plain.difference.low)


def test_class_totals_vary_as_those_of_clusters():
    """Accuracies of models that predict one class each differ by the class shares, here of clusters of one class."""
    ids = torch.arange(30).repeat_interleave(10)
    target = (ids % 3 == 0).long()
    compared = partial(paired_compare, imbtorch.accuracy, 0 * target, 0 * target + 1, target, 2, draws=4000)
    apart_ = (compared(cluster=each, generator=seeded()).difference for each in (ids, torch.arange(300)))
    found, plain = (each.draws.std().item() for each in apart_)
    share = stats.beta(20, 10)  # of a third of 30 clusters with exponential weights
    assert found == pytest.approx(2 * share.std(), rel=0.1)
    assert plain < 0.5 * found


@pytest.mark.filterwarnings("ignore:paired_compare. the largest of 3100 clusters")
def test_class_totals_of_many_clusters_are_nearly_normal():
    """A hundred clusters hold class 1 and are drawn one by one; 3,000 others have a normal sum."""
    ids = torch.cat((torch.arange(3000).repeat_interleave(2), 3000 + torch.arange(100).repeat_interleave(30)))
    target = (ids >= 3000).long()
    found = paired_compare(
        imbtorch.accuracy, 0 * target, 0 * target + 1, target, 2, cluster=ids, draws=4000, generator=seeded()
    )
    each = np.random.default_rng(0).standard_exponential((4000, 3100)) * np.bincount(ids.numpy())
    share = each[:, 3000:].sum(1) / each.sum(1)
    assert found.difference.draws.std().item() == pytest.approx(2 * share.std(), rel=0.06)
    assert found.difference.draws.mean().item() == pytest.approx(1 - 2 * share.mean(), abs=0.01)


def test_margins_of_many_classes_are_compared_as_their_matrices_are():
    generator = seeded()
    target = torch.randint(20, (3000,), generator=generator)
    wrong = torch.rand(2, 3000, generator=generator) < torch.tensor([[0.2], [0.25]])
    a, b = torch.where(wrong, torch.randint(20, (2, 3000), generator=generator), target)
    macro = partial(imbtorch.f_score, average="macro")
    of_margins, of_matrices = (
        paired_compare(each, a, b, target, 20, draws=4000, generator=seeded())
        for each in (macro, lambda counts: macro(counts))
    )
    assert of_margins.difference.estimate == of_matrices.difference.estimate
    width = of_matrices.difference.high - of_matrices.difference.low
    for end in ("low", "high"):
        ends = [getattr(each.difference, end).item() for each in (of_margins, of_matrices)]
        assert ends[0] == pytest.approx(ends[1], abs=0.05 * width.item())


@pytest.mark.default_cases("1.0")
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_intervals_of_clusters_cover_the_difference(shared):
    """15 clusters of 20 equal samples; models err on clusters of their own, or partly on the same ones."""
    generator, covered = seeded(2), {"samples": 0, "clusters": 0}
    for _ in range(60):
        ids = torch.arange(15).repeat_interleave(20)
        target = (torch.arange(300) % 3 == 0).long()
        hard, own = torch.rand(2, 15, generator=generator), torch.rand(2, 2, 15, generator=generator)
        wrong_a, wrong_b = own[0] < 0.3, torch.where(torch.tensor(shared > 0), hard, own[1]) < 0.2
        if shared:
            wrong_a = wrong_b | (own[0] < 0.125)  # .3 = .2 + .8 * .125
        a, b = (torch.where(wrong[target, ids], 1 - target, target) for wrong in (wrong_a, wrong_b))
        for kind, options in (("samples", {}), ("clusters", {"cluster": ids})):
            found = paired_compare(balanced_accuracy, a, b, target, 2, draws=300, generator=generator, **options)
            covered[kind] += found.difference.low.item() <= -0.1 <= found.difference.high.item()
    assert covered["samples"] < 35
    assert covered["clusters"] >= 53


def test_a_large_cluster_is_named_and_warned_of():
    ids = torch.cat((torch.zeros(15), torch.arange(1, 20))).long()  # 15 of 34 samples, 8.8 times the mean
    target = torch.arange(34) % 2
    with pytest.warns(
        UserWarning, match="^paired_compare: the largest of 20 clusters holds 44% of the samples"
    ) as told:
        found = paired_compare("accuracy", target, 1 - target, target, 2, draws=50, cluster=ids)
    assert told[0].filename == __file__
    text = (
        "paired posterior of 20 clusters; the largest of 20 clusters holds 44%, too narrow if values fall with cluster"
    )
    assert found.difference.method == f"{text} size"


def test_equal_predictions_of_few_clusters_prove_little():
    target = torch.arange(300) % 2
    compared = partial(paired_compare, balanced_accuracy, target, target, target, 2, draws=500)
    found, plain = (compared(cluster=each, generator=seeded()) for each in (torch.arange(300) // 30, torch.arange(300)))
    for each in (found, plain):
        assert each.difference.estimate == 0
        assert each.probability == pytest.approx(0.5, abs=0.08)
    width, narrow = ((each.difference.high - each.difference.low).item() for each in (found, plain))
    assert width > 5 * narrow > 0


def test_positions_without_clusters_are_told():
    target = torch.arange(60).view(10, 6) % 2
    with pytest.warns(UserWarning, match=r"several positions.*pass cluster=torch.arange\(len\(target\)\)") as told:
        paired_compare(balanced_accuracy, target, 1 - target, target, 2, draws=20)
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        (torch.tensor([0, 1]), ValueError, r"cluster must hold one value per sample: shape \[3\]"),
        (torch.tensor([4, 4, 4]), ValueError, "cluster must name at least 2 clusters, got 1"),
        (["a", "b", "c"], TypeError, r"cluster must be a tensor of integers.*cluster_ids\(names\)"),
    ],
)
def test_ids_that_do_not_fit(ids, error, text):
    with pytest.raises(error, match=text):
        paired_compare(balanced_accuracy, LABELS, LABELS, LABELS, 2, cluster=ids)


# --- errors ---------------------------------------------------------------------------------------------------------

COUNTS = torch.tensor(A)
LABELS = torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("name", "wrong", "match"),
    [
        ("preds_a", torch.tensor([0, 1]), r"preds_a must hold a class index for each target, \[3\], got \[2\]"),
        ("preds_b", torch.tensor([0, 1, 2]), r"preds_b holds the class 2, but num_classes=2 allows 0\.\.1"),
        ("target", torch.tensor([0, -1, 1]), "target holds the class -1; classes count from 0"),
    ],
)
def test_paired_compare_refuses(name, wrong, match):
    arguments = {"preds_a": LABELS, "preds_b": LABELS, "target": LABELS, "num_classes": 2} | {name: wrong}
    with pytest.raises(ValueError, match=match):
        paired_compare(balanced_accuracy, **arguments)


def test_paired_compare_takes_integers_of_every_dtype():
    other = torch.tensor([0, 1, 0])
    expected = paired_compare(balanced_accuracy, LABELS, other, LABELS, 2, draws=100, generator=seeded())
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        labels, others = LABELS.to(dtype), other.to(dtype)
        found = paired_compare(balanced_accuracy, labels, others, labels, 2, draws=100, generator=seeded())
        assert found.probability == expected.probability
        assert found.difference.estimate == expected.difference.estimate == 0.25
    with pytest.raises(TypeError, match="num_classes must be an int, got '2'"):
        paired_compare(balanced_accuracy, LABELS, LABELS, LABELS, "2")


def test_counts_of_different_shapes_are_not_compared():
    for other in (torch.eye(3), torch.ones(4, 2, 2)):
        with pytest.raises(ValueError, match=r"matrices of the same shape, got \[\d, \d\] and"):
            compare(imbtorch.accuracy, COUNTS[:2, :2], other)


def test_comparisons_check_level_and_samples():
    with pytest.raises(ValueError, match="level"):
        compare(score, COUNTS, COUNTS, level=95)
    with pytest.raises(ValueError, match="level"):
        paired_compare(score, LABELS, LABELS, LABELS, 2, level=95)
    with pytest.raises(ValueError, match="draws must be at least 2"):
        paired_compare(score, LABELS, LABELS, LABELS, 2, draws=1)


def test_a_notebook_shows_a_comparison_value_by_value():
    nan = torch.tensor([0.1, torch.nan])
    found = Comparison(Interval(nan, nan - 0.25, nan + 0.25, 0.9, "a < b & c"), torch.tensor([0.75, torch.nan]))
    rows, notes = shown_in_notebook(found)
    assert rows == [
        ["a - b", "probability that a is better"],
        ["0.100 [-0.150, 0.350] (90% a < b & c)", "0.750"],
        ["nan [nan, nan] (90% a < b & c)", "nan"],
    ]
    assert notes == []


# --- few differing predictions ----------------------------------------------------------------------------------------


def lower_bound(measure, sizes, lost, of=-1):
    """Lower bound of a 90% interval if the new model loses so many samples of a class, and nothing else differs."""
    target = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    new, places = target.clone(), (target == of % len(sizes)).nonzero().flatten()
    new[places[:lost]] = (of + 1) % len(sizes)
    generator = torch.Generator().manual_seed(0)
    found = paired_compare(measure, new, target, target, len(sizes), level=0.9, draws=40_000, generator=generator)
    return found.difference.low.item()


@pytest.mark.parametrize("rare", [15, 60, 500])
@pytest.mark.parametrize("lost", [0, 1, 4])
def test_a_class_in_which_few_samples_differ_has_a_nearly_exact_bound(rare, lost):
    """A model that loses as much of the rare class as the bound allows shows so few losses in .03 to .08 of sets."""
    share = -2 * lower_bound("balanced_accuracy", [20_000, rare], lost)
    assert 0.03 < stats.binom.cdf(lost, rare, share) < 0.08


@pytest.mark.parametrize(
    ("measure", "sizes", "of", "times"),
    [
        ("balanced_accuracy", [3000, 500, 25], 2, 3),  # the rarest class sets the bound
        (partial(imbtorch.recall, average="macro"), [25, 3000], 0, 2),
        ("specificity", [40, 3000], 0, 1),  # of the other class alone
        ("accuracy", [2000, 2000], 1, 2),
    ],
)
def test_the_class_in_which_a_sample_changes_most_sets_the_bound(measure, sizes, of, times):
    share = -times * lower_bound(measure, sizes, 0, of)
    assert 0.03 < stats.binom.cdf(0, sizes[of], share) < 0.08


def test_bounds_of_a_loss_mirror_those_of_its_negative():
    target = torch.arange(200) // 150
    a, b = target.clone(), target.clone()
    a[195:], b[:4] = 0, 1

    def negative(counts):
        return -score(counts)

    up, down = (
        paired_compare(measure, a, b, target, 2, higher_is_better=better, generator=seeded()).difference
        for measure, better in ((score, True), (negative, False))
    )
    assert [up.low.item(), up.high.item()] == pytest.approx([-down.high.item(), -down.low.item()])


def test_equal_samples_of_a_cluster_move_a_bound_as_one():
    inputs = [torch.from_numpy(each) for each in labels(2)]
    plain = paired_compare(balanced_accuracy, *inputs, 2, totals="fixed", generator=seeded()).difference
    copied = [each.repeat_interleave(4) for each in inputs]
    ids = torch.arange(len(inputs[0])).repeat_interleave(4)
    found = paired_compare(balanced_accuracy, *copied, 2, totals="fixed", generator=seeded(), cluster=ids).difference
    assert [found.low.item(), found.high.item()] == pytest.approx([plain.low.item(), plain.high.item()])


def test_outcomes_of_several_times_the_samples_are_those_of_repeated_rows():
    preds = {name: torch.from_numpy(each) for name, each in zip(("a", "b"), labels()[:2], strict=True)}
    target = torch.from_numpy(labels()[2])
    outcomes = checked_outcomes(preds, target, 3, None)
    several = replace(outcomes, times=3 * outcomes.times)
    found = compare_outcomes(score, several, True, 300, 0.9, seeded()).difference
    rows = [each.repeat(3) for each in (*preds.values(), target)]
    expected = paired_compare(score, *rows, 3, draws=300, level=0.9, generator=seeded()).difference
    assert torch.equal(found.draws, expected.draws)
    assert (found.low, found.high) == (expected.low, expected.high)


@pytest.mark.slow
def test_as_many_times_the_clusters_are_those_of_repeated_clusters():
    """The bounds allow for bad clusters that few clusters lack, so that those of few are a little wider."""
    generator, ids = seeded(), torch.arange(600) // 6
    target = (torch.rand(600, generator=generator) < 0.3).long()
    hard = torch.rand(100, generator=generator)[ids] < 0.1
    a, b = (torch.where(torch.rand(600, generator=generator) < share, 1 - target, target) for share in (0.1, 0.1))
    b = torch.where(hard, 1 - target, b)
    tiled = [torch.cat([each] * 4) for each in (a, b, target)]
    ends = []
    for preds, times in (((a, b, target), 4), (tiled, 1)):
        named = torch.cat([ids + 100 * copy for copy in range(len(preds[0]) // 600)])
        outcomes = checked_outcomes({"a": preds[0], "b": preds[1]}, preds[2], 2, named)
        found = compare_outcomes(balanced_accuracy, outcomes, True, 4000, 0.9, seeded(), times=times).difference
        ends.append([float(found.low), float(found.high)])
    (low, high), (tiled_low, tiled_high) = ends
    assert 0.95 < (high - low) / (tiled_high - tiled_low) < 1.3
    assert (low + high) / 2 == pytest.approx((tiled_low + tiled_high) / 2, abs=0.15 * (high - low))


def grouped(clusters):
    """Result of two sites, with 36 and 56 of 40 and 80 positives found, in clusters of one or two rows of a site."""
    found = torch.cat((torch.arange(40) < 36, torch.arange(80) < 56, torch.zeros(200, dtype=torch.bool))).long()
    report = imbtorch.ImbalanceReport("binary", groups=["north", "south"], clusters=clusters, measures=["recall"])
    group = torch.cat((torch.zeros(40), torch.ones(80), torch.arange(200) % 2)).long()
    ids = {"cluster": torch.arange(320) // 2} if clusters else {}
    report.update(found, (torch.arange(320) < 120).long(), group=group, **ids)
    return report.result()


@pytest.mark.parametrize("clusters", [False, True])
def test_groups_of_a_report_are_compared(clusters):
    """MOVER of the intervals by Jeffreys of .9 and .7, whose clusters of two equal rows are worth a half of them."""
    found = compare_groups(grouped(clusters), "recall", "north", "south")
    worth = 0.5 if clusters else 1.0
    ends = [
        stats.beta(worth * hits + 0.5, worth * (all_ - hits) + 0.5).ppf([0.025, 0.975])
        for hits, all_ in ((36, 40), (56, 80))
    ]
    (a_low, a_high), (b_low, b_high) = ends
    below, above = np.hypot(0.9 - a_low, b_high - 0.7), np.hypot(a_high - 0.9, 0.7 - b_low)
    tolerance = 0.06 if clusters else 0.02
    assert float(found.difference.estimate) == pytest.approx(0.2)
    assert float(found.difference.low) == pytest.approx(0.2 - below, abs=tolerance)
    assert float(found.difference.high) == pytest.approx(0.2 + above, abs=tolerance)
    assert float(found.probability) == pytest.approx(stats.norm.cdf(1.96 * 0.2 / below), abs=0.02)
    assert str(found).startswith("recall, north - south: 0.200 [")
    other = compare_groups(grouped(clusters), "recall", "south", "north")
    assert float(other.probability) == pytest.approx(1 - float(found.probability))
    assert float(other.difference.low) == pytest.approx(-float(found.difference.high))


def test_groups_and_values_that_are_not_reported():
    for name, group in (("recall", "east"), ("f1", "south")):
        with pytest.raises(ValueError, match=f"the result has no '{name}' of a group"):
            compare_groups(grouped(False), name, group, "north")


def test_a_loss_of_the_margin_is_rarely_called_none():
    """A nominal 5% of sets; 60 rare samples, of which .02 are lost and none is won; .2 with the prior alone."""
    rng, false, sets = np.random.default_rng(0), 0, 0
    target = np.arange(3060) // 3000
    for _ in range(150):
        drawn, old = rng.random(3060), np.where(rng.random(3060) < 0.9, target, 1 - target)
        new = np.where(drawn < np.where(target == 1, 0.05, 0.01), 1 - old, old)  # .01 of the frequent class change
        lost = (target == 1) & (new != old)
        old = np.where(lost, target, old)
        new = np.where(lost, 1 - target, new)
        inputs = map(torch.from_numpy, (new, old, target))
        found = paired_compare("recall", *inputs, 2, level=0.9, draws=300, generator=seeded())
        sets += bool((new != old).any())
        false += found.difference.low.item() >= -0.05
    assert sets == 150
    assert false <= 16  # binomial with .07, 99th percentile 18; .15 would give 22


def test_texts_name_the_models():
    target = torch.tensor([0] * 90 + [1] * 10)
    good, bad = target.clone(), target.clone()
    bad[95:] = 0
    found = paired_compare("recall", good, bad, target, names=("good", "bad"), generator=seeded())
    assert str(found).startswith("recall (binary), good - bad: 0.500 [")
    assert "good is better with probability 0.9" in " ".join(str(found).split())
    assert "probability that good is better" in found._repr_html_()
    plain = paired_compare("recall", good, bad, target, generator=seeded())
    assert (plain.names, plain.difference.low) == (("a", "b"), found.difference.low)
    scores = torch.linspace(0, 1, 100, dtype=torch.float64)
    areas = paired_compare("auc", scores, -scores, target, names=("up", "down"), looks=2, look=1)
    assert str(areas).startswith("auc, up - down: 1.000 [")
    counts = torch.tensor([[90, 10], [1, 9]])
    assert "old - new" in str(compare("f1", counts, counts, names=("old", "new"), generator=seeded()))


@pytest.mark.parametrize("names", ["ab", ("a", "a"), ("a", ""), ("a", "b", "c"), ("a", 1), None])
def test_names_of_models_that_cannot_be(names):
    target = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"names must be two different texts, that of a first"):
        paired_compare("recall", target, target, target, names=names)


# --- labels, and what is left out -------------------------------------------------------------------------------------


def two_models(samples=200, number=4, seed=0):
    """Targets of labels and the predictions of two models that find the same samples hard."""
    random = np.random.default_rng(seed)
    target, hard = random.random((samples, number)) < 0.2, random.random((samples, 1))
    preds = [np.where(random.random(target.shape) < rate * hard, ~target, target) for rate in (0.2, 0.5)]
    return [torch.from_numpy(each).long() for each in (*preds, target)]


def test_labels_are_compared_by_their_mean_or_one_by_one():
    a, b, target = two_models()
    found = paired_compare("f1", a, b, target, draws=300, generator=seeded())
    expected = f1_score(target, a, average="macro") - f1_score(target, b, average="macro")
    assert found.difference.estimate.item() == pytest.approx(expected)
    assert found.measure == "f1 (macro over 4 labels)"
    each = paired_compare(partial(imbtorch.f_score, average="none"), a, b, target, draws=300, generator=seeded())
    expected = f1_score(target, a, average=None) - f1_score(target, b, average=None)
    assert each.difference.estimate.tolist() == pytest.approx(list(expected))
    assert each.measure == "f_score (each of 4 labels)"
    pooled = paired_compare("f1", a, b, target, 2, draws=300, cluster=torch.arange(200), generator=seeded())
    expected = f1_score(target.flatten(), a.flatten()) - f1_score(target.flatten(), b.flatten())
    assert pooled.difference.estimate.item() == pytest.approx(expected)
    assert pooled.measure == "f1 (binary)"


def test_labels_are_resampled_with_their_samples():
    """The interval is that of a bootstrap of samples by NumPy, which draws all labels of a sample at once."""
    a, b, target = two_models(400)
    found = paired_compare("f1", a, b, target, draws=2000, generator=seeded()).difference
    random, drawn = np.random.default_rng(0), []
    for _ in range(400):
        some = random.integers(0, 400, 400)
        drawn.append(np.subtract(*(f1_score(target[some], each[some], average="macro") for each in (a, b))))
    assert (found.high - found.low).item() == pytest.approx(3.92 * np.std(drawn), rel=0.12)


def test_ignored_targets_and_labels_take_no_part():
    a, b, target = two_models()
    flat = target[:, 0].clone()
    flat[::5] = -1
    kept = flat != -1
    found = paired_compare("mcc", a[:, 0], b[:, 0], flat, 2, ignore_index=-1, draws=100, generator=seeded())
    without = paired_compare("mcc", a[kept, 0], b[kept, 0], flat[kept], 2, draws=100, generator=seeded())
    assert (found.difference.low, found.difference.high) == (without.difference.low, without.difference.high)
    unknown = torch.rand(target.shape, generator=seeded()) < 0.3
    found = paired_compare("recall", a, b, target.masked_fill(unknown, -1), ignore_index=-1, draws=100)
    recalls = [
        [recall_score(*(part[~unknown[:, at], at] for part in (target, each))) for at in range(4)] for each in (a, b)
    ]
    assert found.difference.estimate.item() == pytest.approx(np.mean(recalls[0]) - np.mean(recalls[1]))


def test_labels_need_drawn_totals_and_two_samples():
    a, b, target = two_models()
    with pytest.raises(ValueError, match="labels need totals='drawn'"):
        paired_compare("f1", a, b, target, totals="fixed", draws=100)
    with pytest.raises(ValueError, match="two samples or clusters"):
        paired_compare("f1", a[:1], b[:1], target[:1], draws=100)
    with pytest.raises(ValueError, match="ignore_index must be left out for 'auc'"):
        paired_compare("auc", torch.rand(4), torch.rand(4), torch.tensor([0, 1, 0, 1]), ignore_index=-1)


@pytest.mark.parametrize(("measure", "most"), [("precision", 1), ("mcc", 2)])
@pytest.mark.parametrize("plan", [{}, {"looks": 20, "look": 1}])
def test_bounds_are_differences_that_the_measure_can_have(measure, most, plan):
    """A precision of 1 alarm and of 8: bounds about the estimate reached from -1.27 to .92, early looks to -6.8."""
    target = torch.tensor([0] * 290 + [1] * 10)
    one, many = (
        torch.zeros(300, dtype=torch.long).index_fill(0, torch.tensor(at), 1)
        for at in ([290], [*range(3), *range(295, 300)])
    )
    found = paired_compare(measure, one, many, target, 2, draws=500, generator=seeded(), **plan).difference
    assert -most <= found.low < found.estimate < found.high <= most
    mirrored = paired_compare(measure, many, one, target, 2, draws=500, generator=seeded(), **plan).difference
    assert -most <= mirrored.low < mirrored.estimate < mirrored.high <= most
