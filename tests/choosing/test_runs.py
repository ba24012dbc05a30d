"""Means over seeds: values against scikit-learn, intervals against what is known of their parts."""

import math
import warnings
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas
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


@pytest.mark.filterwarnings("ignore:over_runs. all 8 seeds")
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
    few = torch.tensor([0, 0, 1])
    opposite = over_runs({"right": [few, few], "wrong": [1 - few, 0 * few]}, few, "recall", generator=seeded())
    assert opposite.differences["right", "wrong"].high == 1


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
    arguments = {"runs": {"a": [torch.tensor([0, 1])] * 2}, "target": torch.tensor([0, 1]), "measures": "accuracy"}
    with pytest.raises(error, match=text):
        over_runs(**(arguments | change))


def test_seeds_that_predict_the_same_are_told():
    target, preds = drawn()
    for runs, told in (
        ({"net": [preds[0]] * 5, "other": preds}, True),
        ({"net": [*[preds[0]] * 4, preds[1]]}, False),
        ({"perfect": [target] * 5}, False),
        ({"collapsed": [torch.zeros_like(target)] * 5}, False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            over_runs(runs, target, "accuracy", draws=50, generator=seeded())
        texts = [str(each.message) for each in caught]
        assert len(texts) == told
        assert all("over_runs: all 5 seeds of 'net' predict the same for every sample" in text for text in texts)


# --- several measures, scores, folds ----------------------------------------------------------------------------------


def scored(samples=400, shifts=(2.0, 1.2), seeds=3, seed=0):
    """Targets of two classes, and scores of the seeds of two models."""
    generator = seeded(seed)
    target = (torch.rand(samples, generator=generator) < 0.2).long()
    common = torch.randn(samples, generator=generator)
    return target, {
        name: [shift * target + common + torch.randn(samples, generator=generator) for _ in range(seeds)]
        for name, shift in zip("ab", shifts, strict=True)
    }


def test_a_list_of_measures_holds_the_means_of_each():
    target, good = drawn()
    _, poor = drawn(wrong=0.4, seeds=3)
    found = over_runs({"good": good, "poor": poor}, target, ["balanced_accuracy", "mcc"], generator=seeded())
    assert list(found) == ["balanced_accuracy", "mcc"]
    for name, oracle in (("balanced_accuracy", sk.balanced_accuracy_score), ("mcc", sk.matthews_corrcoef)):
        assert found[name].values["poor"].tolist() == pytest.approx([oracle(target, each) for each in poor])
    table = found.table()
    cell, of_one = (each.table()["difference"]["good - poor"] for each in (found, found["mcc"]))
    oracle = [np.mean([sk.matthews_corrcoef(target, each) for each in some]) for some in (good, poor)]
    assert cell["mcc"] == of_one["mean"] == pytest.approx(oracle[0] - oracle[1])
    assert (cell["mcc"].low, cell["mcc"].high) == (of_one["mean"].low, of_one["mean"].high)
    spread = np.std([sk.matthews_corrcoef(target, each) for each in good], ddof=1)
    assert table["model"]["good"]["sd mcc"] == found["mcc"].table()["model"]["good"]["sd"] == pytest.approx(spread)
    assert table["model"]["good"]["seeds"] == 6
    assert table["model"]["good"]["mcc"].low == found["mcc"].models["good"].low
    assert str(found) == str(table)
    assert "good & 6 &" in table.to_latex()
    with pytest.raises(KeyError, match=r"no measure is named 'iam'; measures are 'balanced_accuracy', 'mcc'"):
        found["iam"]


def test_areas_are_those_of_scikit_learn():
    target, runs = scored()
    found = over_runs(runs, target, ["auc", "average_precision"], draws=200, generator=seeded())
    for name, oracle in (("auc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
        for model, some in runs.items():
            assert found[name].values[model].tolist() == pytest.approx([oracle(target, each) for each in some])
        alone = over_runs(runs, target, name, draws=200, generator=seeded())
        assert alone.differences["a", "b"].estimate == found[name].differences["a", "b"].estimate


@pytest.mark.filterwarnings("ignore:over_runs. all 8 seeds")
def test_equal_seeds_leave_the_variance_of_delong():
    """Beyond the prior, which a large set hides, the draws vary as DeLong's formula says."""
    target, runs = scored(samples=1000, seeds=1)
    found = over_runs({"a": runs["a"] * 8}, target, "auc", draws=1000, generator=seeded()).models["a"]
    positive, negative = (runs["a"][0][target == each].numpy() for each in (1, 0))
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    spread = wins.mean(1).var(ddof=1) / len(positive) + wins.mean(0).var(ddof=1) / len(negative)
    assert (found.high - found.low).item() == pytest.approx(2 * 1.96 * math.sqrt(spread), rel=0.1)


def test_patients_widen_the_intervals_of_areas():
    target, runs = scored(samples=100)
    rows = torch.arange(100).repeat_interleave(8)  # eight equal visits of each patient
    many = {name: [each[rows] for each in some] for name, some in runs.items()}
    ids = over_runs(many, target[rows], "auc", draws=2000, generator=seeded(), cluster=rows).models["a"]
    alone = over_runs(runs, target, "auc", draws=2000, generator=seeded()).models["a"]
    assert (ids.high - ids.low).item() == pytest.approx((alone.high - alone.low).item(), rel=0.1)


def test_folds_have_means_and_no_intervals():
    target, good = drawn(seeds=2)
    _, poor = drawn(wrong=0.4, seeds=2)
    rows = torch.arange(len(target)) % 2 == 0
    targets = [target[rows], target[~rows]]
    runs = {"good": [good[0][rows], good[1][~rows]], "poor": [poor[0][rows], poor[1][~rows]]}
    found = over_runs(runs, targets, "balanced_accuracy")
    expected = {
        name: [sk.balanced_accuracy_score(*pair) for pair in zip(targets, some, strict=True)]
        for name, some in runs.items()
    }
    row = found.table()["model"]["good"]
    assert [row["fold 1"], row["fold 2"]] == pytest.approx(expected["good"])
    assert row["mean"] == pytest.approx(np.mean(expected["good"]))
    assert math.isnan(row["mean"].low)
    difference = np.mean(expected["good"]) - np.mean(expected["poor"])
    assert found.differences["good", "poor"].estimate.item() == pytest.approx(difference)
    assert "no unbiased estimate of the variance exists" in " ".join(str(found).split())
    both = over_runs(runs, targets, ["balanced_accuracy", "iam"])
    assert both.table()["model"]["good"]["balanced_accuracy"] == row["mean"]


def test_folds_of_scores():
    target, runs = scored(seeds=2)
    found = over_runs(runs, [target, target], "auc")
    assert found.values["a"].tolist() == pytest.approx([sk.roc_auc_score(target, each) for each in runs["a"]])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"measures": None}, ValueError, "measures must name at least one measure, such as 'iam', got None"),
        ({"measures": []}, ValueError, "measures must name at least one measure"),
        ({"measures": ["f1", "f1"]}, ValueError, "measures must differ, got f1, f1"),
        ({"measures": ["auc", "f1"]}, ValueError, "'auc' needs scores and the other measures need classes"),
        ({"measures": "auc"}, TypeError, r"runs\['a'\]\[0\] must hold scores for 'auc'"),
        ({"target": [torch.tensor([0, 1])]}, ValueError, r"runs\['a'\] must hold the predictions of 1 folds, got 2"),
        ({"target": [torch.tensor([0, 1])] * 2, "cluster": torch.tensor([0, 1])}, ValueError, "left out for folds"),
    ],
)
def test_measures_and_folds_that_cannot_be(change, error, text):
    given = {"runs": {"a": [torch.tensor([0, 1])] * 2}, "target": torch.tensor([0, 1]), "measures": "f1"}
    with pytest.raises(error, match=text):
        over_runs(**(given | change))


# --- classes of any type ----------------------------------------------------------------------------------------------

NAMES = np.array(["cat", "dog", "emu"])


@pytest.mark.parametrize(
    "put", [np.asarray, list, pandas.Series, torch.tensor], ids=["numpy", "list", "pandas", "torch"]
)
def test_integers_of_any_kind_are_class_indices(put):
    target, good = drawn()
    expected = over_runs({"a": good}, target, "mcc", draws=50, generator=seeded())
    runs = {"a": [put(each.tolist()) for each in good]}
    found = over_runs(runs, put(target.tolist()), "mcc", draws=50, generator=seeded())
    assert str(found) == str(expected)


def test_texts_are_classes_in_their_order():
    target, good = drawn()
    runs = {"a": [NAMES[each] for each in good]}
    found = over_runs(runs, NAMES[target], "balanced_accuracy", draws=50)
    expected = [sk.balanced_accuracy_score(NAMES[target], each) for each in runs["a"]]
    assert found.values["a"].tolist() == pytest.approx(expected)
    folds = over_runs(runs, [NAMES[target]] * len(good), "balanced_accuracy")
    assert folds.values["a"].tolist() == pytest.approx(expected)


def test_the_positive_one_of_two_texts_is_named():
    target, runs = scored()
    names = np.array(["ill", "well"])  # ill is the positive one
    texts = names[1 - target]
    preds = {"a": [names[(each < 1).long()] for each in runs["a"]]}
    with pytest.raises(ValueError, match="positive must name the positive one of two classes, ill, well"):
        over_runs(preds, texts, "f1")
    found = over_runs(preds, texts, "f1", positive="ill", draws=50)
    assert found.values["a"].tolist() == pytest.approx(
        [sk.f1_score(texts, each, pos_label="ill") for each in preds["a"]]
    )
    areas = over_runs({"a": [each.numpy() for each in runs["a"]]}, texts, "auc", positive="ill", draws=50)
    assert areas.values["a"].tolist() == pytest.approx([sk.roc_auc_score(target, each) for each in runs["a"]])


def test_missing_classes_are_told():
    target, good = drawn()
    runs = {"a": [np.where(np.arange(400) == 7, None, NAMES[each]) for each in good]}
    with pytest.raises(ValueError, match=r"runs\['a'\]\[0\] has no value in row 7 \(1 of 400 rows\)"):
        over_runs(runs, NAMES[target], "f1")


def test_class_groups_have_the_mean_recalls_of_scikit_learn():
    random = np.random.default_rng(0)
    target = torch.from_numpy(random.integers(0, 6, 300))
    seeds = [torch.where(torch.from_numpy(random.random(300)) < 0.3, 5 - target, target) for _ in range(3)]
    groups = imbtorch.shot_groups([500, 200, 60, 30, 9, 5])
    found = over_runs({"net": seeds}, target, ["accuracy", "recall"], class_groups=groups, draws=50, generator=seeded())
    assert list(found) == ["accuracy", "recall", "recall/many", "recall/medium", "recall/few"]
    for name, classes in groups.items():
        oracle = [sk.recall_score(target, each, average=None)[classes].mean() for each in seeds]
        assert found[f"recall/{name}"].values["net"].tolist() == pytest.approx(oracle)
    alone = over_runs({"net": seeds}, target, "recall", class_groups=groups, draws=50, generator=seeded())
    assert list(alone) == list(found)[1:]
    report = imbtorch.ImbalanceReport("multiclass", 6, class_groups=groups)
    report.update(seeds[0], target)
    assert report.compute()["recall/few"].item() == pytest.approx(found["recall/few"].values["net"][0].item())
    names = np.array(list("abcdef"))
    texts = {"net": [names[each] for each in seeds]}
    by_name = over_runs(texts, names[target], "recall", class_groups={"few": ["e", "f"]}, draws=50, generator=seeded())
    assert by_name["recall/few"].values["net"].tolist() == pytest.approx(found["recall/few"].values["net"].tolist())
    folds = over_runs(
        {"net": [seeds[0][:150], seeds[1][150:]]}, [target[:150], target[150:]], "f1", class_groups=groups
    )
    oracle = sk.f1_score(target[:150], seeds[0][:150], average=None)[groups["few"]].mean()
    assert folds["f1/few"].values["net"][0].item() == pytest.approx(oracle)
    with pytest.raises(ValueError, match=r"class_groups\['few'\] holds 7, which is no class"):
        over_runs({"net": seeds}, target, "recall", class_groups={"few": [7]})


def test_the_picture_has_a_panel_for_each_measure_with_seeds_means_and_intervals():
    target, good = drawn()
    _, poor = drawn(wrong=0.4, seeds=3)
    found = over_runs({"good": good, "poor": poor}, target, ["balanced_accuracy", "mcc"], generator=seeded())
    figure, panels = found.plot()
    figure.canvas.draw()
    assert [ax.get_xlabel() for ax in panels] == ["balanced_accuracy", "mcc"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["good", "poor"]
    assert panels[0].yaxis_inverted()  # the first model at the top
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["seed", "mean with its 95% interval"]
    for ax, runs in zip(panels, found.values(), strict=True):
        points, others, means = ax.lines[0], ax.lines[1], ax.lines[2]
        assert list(points.get_xdata()) == runs.values["good"].tolist()
        assert list(others.get_xdata()) == runs.values["poor"].tolist()
        assert [round(float(y)) for y in others.get_ydata()] == [1, 1, 1]
        assert list(means.get_xdata()) == [each.estimate.item() for each in runs.models.values()]
        (bars,) = ax.containers
        ends = [segment[:, 0].tolist() for segment in bars.lines[2][0].get_segments()]
        assert ends == [pytest.approx([each.low.item(), each.high.item()]) for each in runs.models.values()]
    _, ax = plt.subplots()
    nothing, same = found["mcc"].plot(ax)
    assert (nothing, same) == (None, ax)
    figure, ax = over_runs({"net": good[:2]}, [target] * 2, "mcc").plot()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fold", "mean"]
    many, panels = over_runs({"net": good}, target, ["f1", "mcc", "iam", "gmean"], draws=50).plot()
    assert len(panels) == len(many.axes) == 4
    plt.close("all")


@pytest.mark.parametrize("given", [torch.zeros(3, 500, dtype=torch.long), [torch.zeros(500)] * 3, {}, None])
def test_runs_that_are_no_mapping_are_refused_in_one_line(given):
    with pytest.raises(
        ValueError, match=r"^runs must map the name of each model to the predictions of its seeds, got"
    ) as told:
        over_runs(given, torch.zeros(500, dtype=torch.long), "f1")
    assert len(str(told.value)) < 130


def test_the_table_says_how_many_clusters_there_are():
    target, good = drawn()
    ids = torch.arange(len(target)) // 2
    found = over_runs({"good": good}, target, "mcc", draws=50, cluster=ids, generator=seeded())
    note = f"with a 95% interval for new seeds and new samples of {len(target) // 2} clusters; sd: standard deviation"
    assert note in found.table().notes[0]


# --- labels, and what is left out -------------------------------------------------------------------------------------


def labelled(samples=150, labels=4, seeds=3, wrong=0.2, seed=0):
    """Targets of labels, and predictions whose errors come together in hard samples."""
    random = np.random.default_rng(seed)
    target, hard = random.random((samples, labels)) < 0.2, 2 * wrong * random.random((samples, 1))
    preds = [np.where(random.random(target.shape) < hard, ~target, target) for _ in range(seeds)]
    return torch.from_numpy(target).long(), [torch.from_numpy(each).long() for each in preds]


def test_labels_have_the_macro_value_of_scikit_learn_and_their_own_if_asked():
    target, preds = labelled()
    runs = {"net": preds, "poor": labelled(wrong=0.3)[1]}
    found = over_runs(runs, target, "f1", draws=50)
    assert found.measure == "f1 (macro over 4 labels)"
    assert found.values["net"].tolist() == pytest.approx([sk.f1_score(target, each, average="macro") for each in preds])
    each = [partial(imbtorch.recall, average="none"), "f1"]
    found = over_runs(runs, target.numpy(), each, class_groups={"last": [2, 3]}, draws=50)
    assert list(found) == ["recall/0", "recall/1", "recall/2", "recall/3", "f1", "recall/last", "f1/last"]
    recalls = sk.recall_score(target, preds[0], average=None)
    assert [found[f"recall/{at}"].values["net"][0].item() for at in range(4)] == pytest.approx(list(recalls))
    assert found["recall/last"].values["net"][0].item() == pytest.approx(recalls[2:].mean())
    assert found.table().notes[0].startswith("mean: f1 (macro over 4 labels) over seeds, with")


def test_labels_of_a_sample_are_drawn_together():
    """A label that is repeated adds nothing: its interval is that of one label; independent ones would halve it."""
    target, preds = labelled(labels=1)
    repeated = [each.expand(-1, 4).contiguous() for each in (target, *preds)]
    one = over_runs(
        {"net": [each[:, 0] for each in preds]},
        target[:, 0],
        "f1",
        cluster=torch.arange(150),
        draws=4000,
        generator=seeded(),
    )
    four = over_runs({"net": repeated[1:]}, repeated[0], "f1", draws=4000, generator=seeded())
    widths = [(each.models["net"].high - each.models["net"].low).item() for each in (one, four)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_ignored_targets_take_no_part():
    target, preds = drawn(samples=200, seeds=3)
    holes = torch.where(torch.arange(200) % 7 == 0, 255, target)
    kept = holes != 255
    with_holes = over_runs({"net": preds}, holes, "balanced_accuracy", ignore_index=255, draws=50, generator=seeded())
    without = over_runs(
        {"net": [each[kept] for each in preds]}, target[kept], "balanced_accuracy", draws=50, generator=seeded()
    )
    assert torch.equal(with_holes.values["net"], without.values["net"])
    assert with_holes.models["net"].low == without.models["net"].low


def test_a_label_can_be_unknown_for_some_samples():
    target, preds = labelled()
    unknown = torch.rand(target.shape, generator=seeded()) < 0.3
    found = over_runs({"net": preds}, target.masked_fill(unknown, -1), "f1", ignore_index=-1, draws=50)
    expected = [
        np.mean([sk.f1_score(*(part[~unknown[:, at], at] for part in (target, each))) for at in range(4)])
        for each in preds
    ]
    assert found.values["net"].tolist() == pytest.approx(expected)


def test_folds_of_labels():
    parts = [labelled(seed=seed, seeds=1) for seed in range(3)]
    found = over_runs({"net": [preds for _, (preds,) in parts]}, [target for target, _ in parts], "f1")
    expected = [sk.f1_score(target, preds, average="macro") for target, (preds,) in parts]
    assert found.values["net"].tolist() == pytest.approx(expected)


def test_class_groups_add_recalls_if_no_measure_has_a_value_for_each_class():
    target, preds = drawn()
    found = over_runs({"net": preds}, target, "mcc", class_groups={"few": [1, 2]}, draws=50)
    assert list(found) == ["mcc", "recall/few"]
    expected = [sk.recall_score(target, each, average=None)[1:].mean() for each in preds]
    assert found["recall/few"].values["net"].tolist() == pytest.approx(expected)


def test_positions_of_two_classes_are_pooled_if_the_number_of_classes_is_given():
    target, preds = labelled()
    found = over_runs({"net": preds}, target, "f1", num_classes=2, draws=50)
    assert found.values["net"].tolist() == pytest.approx([sk.f1_score(target.flatten(), p.flatten()) for p in preds])


def test_functions_of_one_matrix_are_refused_for_labels():
    target, preds = labelled()
    with pytest.raises(ValueError, match="measure must return one value of all 4 labels; choose an average"):
        over_runs({"net": preds}, target, lambda counts: counts[..., 1, 1], draws=50)


@pytest.mark.parametrize("given", [{"ignore_index": -1}, {"class_groups": {"few": [1]}}])
def test_measures_of_scores_take_neither_groups_nor_holes(given):
    target, scores = torch.tensor([0, 1] * 5), torch.rand(10)
    with pytest.raises(ValueError, match="ignore_index and class_groups must be left out for measures of scores"):
        over_runs({"net": [scores, scores.flip(0)]}, target, "auc", **given)
