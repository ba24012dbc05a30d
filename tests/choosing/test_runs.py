"""Means over seeds: values against scikit-learn, intervals against what is known of their parts."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

import imbtorch
from imbtorch.statistics import over_runs, posterior


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(samples=400, seeds=6, wrong=0.2, classes=3, seed=0):
    """Targets, and predictions of seeds whose errors are independent."""
    generator = seeded(seed)
    target = torch.multinomial(torch.tensor([0.6, 0.3, 0.1])[:classes], samples, True, generator=generator)
    others = [(target + torch.randint(1, classes, target.shape, generator=generator)) % classes for _ in range(seeds)]
    hit = torch.rand(seeds, samples, generator=generator) >= wrong
    return target, [torch.where(one, target, other) for one, other in zip(hit, others, strict=True)]


@pytest.mark.parametrize(
    ("measure", "oracle"),
    [
        ("balanced_accuracy", sk.balanced_accuracy_score),
        ("mcc", sk.matthews_corrcoef),
        (partial(imbtorch.f_score, average="macro"), partial(sk.f1_score, average="macro")),
    ],
)
def test_values_means_and_differences_are_those_of_the_seeds(measure, oracle):
    target, good = drawn()
    _, poor = drawn(wrong=0.4, seeds=3)
    found = over_runs({"good": good, "poor": poor}, target, measure, draws=50, generator=seeded())
    for name, runs in (("good", good), ("poor", poor)):
        expected = [oracle(target, each) for each in runs]
        assert found.values[name].tolist() == pytest.approx(expected)
        assert found.models[name].estimate.item() == pytest.approx(np.mean(expected))
    expected = np.mean([oracle(target, each) for each in good]) - np.mean([oracle(target, each) for each in poor])
    assert found.differences["good", "poor"].estimate.item() == pytest.approx(expected)


def test_equal_seeds_leave_the_noise_of_the_samples():
    """The interval is then that of one seed, whatever their number; its normal quantile is that of a large test set."""
    target, (preds, *_) = drawn(samples=4000)
    found = over_runs({"one": [preds] * 8}, target, "balanced_accuracy", draws=4000, generator=seeded())
    counts = imbtorch.confusion_matrix(preds, target, "multiclass", num_classes=3)
    one = posterior("balanced_accuracy", counts, generator=seeded())
    assert (found.models["one"].high - found.models["one"].low).item() == pytest.approx(
        (one.high - one.low).item(), rel=0.05
    )


def test_seeds_that_differ_on_a_huge_test_set_give_the_interval_of_student():
    """Whole samples of a class are right or wrong in a seed, so that the draws of samples hardly count."""
    target = torch.arange(2).repeat(50_000)
    shares = [0.7, 0.75, 0.82, 0.9]
    runs = [torch.where(torch.arange(100_000) < 100_000 * share, target, 1 - target) for share in shares]
    found = over_runs({"one": runs}, target, "accuracy", draws=200, generator=seeded()).models["one"]
    half = stats.t.ppf(0.975, 3) * np.std(shares, ddof=1) / 2
    assert [found.low.item(), found.high.item()] == pytest.approx([0.7925 - half, 0.7925 + half], abs=0.003)


def test_the_noise_of_the_samples_is_subtracted_from_five_seeds_on():
    """Seeds of equal expectation differ by the noise of their own errors alone."""
    widths = {}
    for seeds in (4, 5):
        target, runs = drawn(samples=300, seeds=seeds, wrong=0.3, seed=seeds)
        interval = over_runs({"one": runs}, target, "accuracy", draws=2000, generator=seeded()).models["one"]
        values = [sk.accuracy_score(target, each) for each in runs]
        of_seeds = np.var(values, ddof=1) / seeds
        hits = torch.stack(runs).eq(target).double()
        of_samples = hits.mean(0).var().item() / 300  # of a mean over samples
        own = (hits - hits.mean(0)).var(1).sum().item() / (seeds - 1) / 300 / seeds
        spread = max(0, of_seeds - own) if seeds == 5 else of_seeds
        freedom = (of_samples + of_seeds) ** 2 / (of_seeds**2 / (seeds - 1))
        widths[seeds] = 2 * stats.t.ppf(0.975, freedom) * math.sqrt(of_samples + spread)
        assert (interval.high - interval.low).item() == pytest.approx(widths[seeds], rel=0.06)


def test_clusters_of_equal_samples_are_worth_one_sample_each():
    target, runs = drawn(samples=300)
    alone = over_runs({"one": runs}, target, "balanced_accuracy", draws=4000, generator=seeded()).models["one"]
    repeated = [each.repeat_interleave(5) for each in runs]
    ids = torch.arange(300).repeat_interleave(5) * 7 - 4
    together = over_runs(
        {"one": repeated}, target.repeat_interleave(5), "balanced_accuracy", cluster=ids, draws=4000, generator=seeded()
    ).models["one"]
    assert (together.high - together.low).item() == pytest.approx((alone.high - alone.low).item(), rel=0.1)


def test_models_that_are_right_on_the_same_few_samples_may_differ():
    """Each model has a prior sample of its own in a class, half right and half wrong."""
    target = torch.tensor([0] * 100_000 + [1] * 12)
    found = over_runs(dict.fromkeys("ab", [target] * 3), target, "balanced_accuracy", draws=4000, generator=seeded())
    rng = np.random.default_rng(0)
    common, right, wrong = rng.gamma(12, size=100_000), *rng.gamma(0.5, size=(2, 2, 100_000))
    recalls = (common + right) / (common + right + wrong)
    half = stats.norm.ppf(0.975) * (recalls[0] - recalls[1]).std() / 2
    assert half == pytest.approx(0.07, abs=0.01)
    difference = found.differences["a", "b"]
    assert difference.estimate == 0
    assert [difference.low.item(), difference.high.item()] == pytest.approx([-half, half], rel=0.06)


def test_differences_of_unequal_models_are_covered():
    """Eight rare samples, of which ten seeds of both models miss nearly the same: .75 without priors of their own."""
    rng, held = np.random.default_rng(0), 0
    target = np.repeat([0, 1], [242, 8])
    for _ in range(60):
        hard = np.sqrt(0.9) * rng.standard_normal(250)
        runs = {
            name: list(
                torch.from_numpy(
                    np.where(hard + np.sqrt(0.1) * rng.standard_normal((10, 250)) < bounds, target, 1 - target)
                )
            )
            for name, bounds in (
                ("a", stats.norm.ppf([0.95, 0.97])[target]),
                ("b", stats.norm.ppf([0.95, 0.87])[target]),
            )
        }
        found = over_runs(runs, torch.from_numpy(target), "balanced_accuracy", draws=200, generator=seeded())
        held += found.differences["a", "b"].low.item() <= 0.05 <= found.differences["a", "b"].high.item()
    assert held >= 55


def test_a_prior_sample_of_clusters_is_worth_one_cluster_of_equal_samples():
    target, runs = drawn(samples=40, classes=2)
    _, others = drawn(samples=40, classes=2, wrong=0.3)
    alone = over_runs({"a": runs, "b": others}, target, "balanced_accuracy", draws=4000, generator=seeded())
    copies = {name: [each.repeat_interleave(5) for each in some] for name, some in (("a", runs), ("b", others))}
    found = over_runs(
        copies,
        target.repeat_interleave(5),
        "balanced_accuracy",
        draws=4000,
        generator=seeded(),
        cluster=torch.arange(40).repeat_interleave(5),
    )
    widths = [(each.differences["a", "b"].high - each.differences["a", "b"].low).item() for each in (alone, found)]
    assert widths[0] == pytest.approx(widths[1], rel=0.08)


def test_a_large_cluster_is_warned_of():
    target, runs = drawn(samples=60)
    ids = torch.cat((torch.zeros(30), torch.arange(1, 31))).long()
    with pytest.warns(UserWarning, match="^over_runs: the largest of 31 clusters holds 50% of the samples"):
        over_runs({"one": runs}, target, "accuracy", draws=20, cluster=ids)


def test_models_that_predict_the_same_do_not_differ():
    target, runs = drawn()
    found = over_runs({"a": runs, "b": runs, "c": runs[:3]}, target, "iam", generator=seeded())
    assert list(found.differences) == [("a", "b"), ("a", "c"), ("b", "c")]
    same = found.differences["a", "b"]
    assert same.estimate == 0
    assert same.low < 0 < same.high  # other seeds would differ
    table = found.table()
    assert table["model"]["c"]["seeds"] == 3
    assert table["model"]["a"]["sd"] == pytest.approx(found.values["a"].std().item())
    assert "a - b" in str(found)
    assert "iam (macro) over seeds" in str(found)
    assert "<table>" in found._repr_html_()


def test_intervals_stay_within_the_range_of_the_measure():
    target = torch.arange(2).repeat(20)
    interval = over_runs({"one": [target, target]}, target, "balanced_accuracy", generator=seeded()).models["one"]
    assert interval.high == 1
    assert 0.7 < interval.low < 0.99


@pytest.mark.parametrize("measure", ["macro_averaged_absolute_error", "likelihood_ratio", lambda c: c[..., 0, 0]])
def test_a_range_without_an_end_or_unknown_cuts_nothing_off(measure):
    target, runs = drawn(classes=2)
    found = over_runs({"one": runs}, target, measure, draws=200, generator=seeded()).models["one"]
    assert found.low <= found.estimate <= found.high


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"runs": {}}, ValueError, "runs must map the name of each model to the predictions of its seeds"),
        ({"runs": {"a": [torch.tensor([0, 1])]}}, ValueError, r"runs\['a'\] must hold .* at least two seeds, got 1"),
        (
            {"runs": {"a": [torch.tensor([0, 1]), torch.tensor([0])]}},
            ValueError,
            r"runs\['a'\]\[1\] must hold a class index for each target, \[2\], got \[1\]",
        ),
        (
            {"runs": {"a": [torch.tensor([0.2, 0.9])] * 2}},
            TypeError,
            r"runs\['a'\]\[0\] must hold class indices, got torch.float32; pass classes",
        ),
        ({"num_classes": 1}, ValueError, r"runs\['a'\]\[0\] holds the class 1, but num_classes=1 allows 0\.\.0"),
        ({"target": torch.tensor([0, -1])}, ValueError, "target holds the class -1; classes count from 0"),
        ({"cluster": torch.tensor([1])}, ValueError, r"cluster must hold one value per sample: shape \[2\]"),
        ({"target": torch.empty(0, dtype=torch.long)}, ValueError, "target holds no samples"),
        ({"draws": 1}, ValueError, "2"),
    ],
)
def test_input_that_cannot_be_compared(change, error, text):
    arguments = {"runs": {"a": [torch.tensor([0, 1])] * 2}, "target": torch.tensor([0, 1]), "measure": "accuracy"}
    with pytest.raises(error, match=text):
        over_runs(**(arguments | change))
