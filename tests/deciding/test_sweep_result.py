"""What the result of a sweep says: curves, intervals, operating points, metrics and pictures."""

import functools

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from sklearn import metrics as sk
from sweeps import ALSO, DTYPES, LABELS, MEASURES, data, even, expected_values, swept

import imbtorch
from imbtorch import ThresholdSweep

# --- handing a threshold over ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_the_recipe_gives_a_metric_the_value_of_the_sweep(dtype, seed):
    """Every sample's score is on a threshold, so that one of them would be lost by a step too many or too few."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 101, (400,), generator=generator)
    target = (torch.rand(400, generator=generator) * 100 < steps - 40).long()
    scores = (steps.double() / 100).to(dtype)
    sweep = ThresholdSweep(imbtorch.f_score, 101)
    sweep.update(scores, target)

    best = sweep.compute()["threshold"].item()
    test = imbtorch.FScore("binary", threshold=best)

    test.update(scores, target)
    rounded = torch.tensor(best, dtype=torch.float64).to(torch.promote_types(dtype, torch.float32))
    assert test.compute() == sweep.compute()["value"]
    preds = (scores.to(rounded.dtype) > rounded).int()
    assert test.compute().item() == pytest.approx(sk.f1_score(target, preds))
    assert test.local_confmat.tolist() == sk.confusion_matrix(target, preds).tolist()


def test_the_recipe_at_threshold_zero():
    scores, target = torch.tensor([0.25, 0.5, 0.75]), torch.tensor([1, 0, 1])
    sweep = ThresholdSweep(imbtorch.recall, 101, at_least={"recall": 0.1})
    sweep.update(scores, target)
    best = sweep.compute()["threshold"].item()
    assert best == 0
    assert imbtorch.Recall("binary", threshold=best)(scores, target) == 1


# --- ROC ------------------------------------------------------------------------------------------------------------


def test_roc_and_its_area_where_scores_lie_on_the_thresholds():
    generator = torch.Generator().manual_seed(5)
    steps = torch.randint(101, (500,), generator=generator)
    target = (torch.rand(500, generator=generator) * 100 < steps).long()
    scores = (steps.double() / 100).float()
    sweep = ThresholdSweep(imbtorch.f_score, 101)
    sweep.update(scores, target)
    sweep.compute()
    false, true = sweep.result().roc()
    assert len(false) == len(true) == 103
    curve = sk.roc_curve(target, scores, drop_intermediate=False)
    # points at scores that do not occur repeat their neighbours
    expected = np.unique(np.stack(curve[:2], 1), axis=0)
    assert np.unique(torch.stack((false, true), 1).numpy(), axis=0) == pytest.approx(expected)
    assert sweep.result().auc().item() == pytest.approx(sk.roc_auc_score(target, scores), abs=1e-12)
    assert false.diff().min() >= 0
    assert true.diff().min() >= 0


def test_partial_areas_by_hand():
    """Liu, Ghosh and Martin (2007), eq. 3: the two trapezoids beside each point."""
    sweep = ThresholdSweep(imbtorch.f_score, torch.tensor([0.2, 0.6]))
    sweep.update(torch.tensor([0.1, 0.25, 0.7, 0.5, 0.5, 0.9, 0.1, 0.65]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    sweep.compute()
    # (FPR, TPR): (0, 0), at .6 (1/4, 2/4), at .2 (3/4, 3/4), (1, 1)
    assert [part.tolist() for part in sweep.result().roc()] == [[0, 0.25, 0.75, 1], [0, 0.5, 0.75, 1]]
    areas = [0.25 * 0.5 / 2, 0.5 * 1.25 / 2, 0.25 * 1.75 / 2]
    assert sweep.result().auc().item() == pytest.approx(sum(areas))
    assert sweep.result().partial_auc().tolist() == pytest.approx([areas[1] + areas[2], areas[0] + areas[1]])


def test_roc_of_labels():
    scores, target = data(torch.float64, (200, 3))
    steps = (scores * 20).round() / 20
    sweep = ThresholdSweep(imbtorch.f_score, 21, "multilabel", num_labels=3)
    sweep.update(steps, target)
    sweep.compute()
    expected = [sk.roc_auc_score(target[:, label], steps[:, label]) for label in range(3)]
    assert sweep.result().auc().tolist() == pytest.approx(expected)
    assert sweep.result().partial_auc().shape == (3, 21)


# --- the life of a metric -------------------------------------------------------------------------------------------


def test_plot_shows_the_curve_the_best_point_and_a_half():
    scores, target = data(shape=(200, 2))
    sweep = ThresholdSweep(imbtorch.f_score, 21, "multilabel", num_labels=2, class_names=["cat", "dog"])
    sweep.update(scores, target)
    found = sweep.compute()
    figure, axes = sweep.plot("value")
    lines = axes.get_lines()
    for index, label in enumerate(("cat", "dog")):
        curve = next(line for line in lines if line.get_label().startswith(f"{label}:"))
        assert curve.get_xdata() == pytest.approx(even(21, torch.float64))
        flat = scores[:, index], target[:, index]
        assert curve.get_ydata() == pytest.approx(
            expected_values(MEASURES["f1"][1], *flat, even(21, torch.float32)), abs=1e-12
        )
        point = found[f"threshold/{label}"].item(), found[f"value/{label}"].item()
        assert any(
            (line.get_xdata()[0], line.get_ydata()[0]) == pytest.approx(point)
            for line in lines
            if len(line.get_xdata()) == 1
        )
        assert curve.get_label().startswith(f"{label}: chosen {point[1]:.3f} at {point[0]:.2f}, ")
    assert any(list(line.get_xdata()) == [0.5, 0.5] for line in lines)
    assert axes.get_ylabel() == "f1"
    assert [text.get_text().split(":")[0] for text in axes.get_legend().get_texts()] == ["cat", "dog", "threshold 0.5"]
    plt.close(figure)
    figure, axes = plt.subplots()
    single = ThresholdSweep(lambda counts: counts[..., 1, 1].double(), 11)
    single.update(*data())
    assert single.plot(ax=axes) == (None, axes)
    plt.close(figure)


# --- the example ----------------------------------------------------------------------------------------------------


def test_rates_are_what_values_are_read_off():
    scores, target = torch.rand(40, 3), (torch.arange(40) % 4 == 0).long().unsqueeze(1).expand(-1, 3)
    for prevalence in (None, [0.1, 0.5, 0.01]):
        sweep = ThresholdSweep(imbtorch.f_score, 11, "multilabel", num_labels=3, prevalence=prevalence)
        sweep.update(scores, target)
        rates = sweep.result().rates()
        counts = sweep.result().counts
        if prevalence is None:
            assert torch.equal(rates, counts)
            continue
        positives = torch.tensor(prevalence, dtype=torch.float64)
        torch.testing.assert_close(rates.sum(-1), torch.stack((1 - positives, positives), -1))
        within = counts.double()
        torch.testing.assert_close(rates / rates.sum(-1, keepdim=True), within / within.sum(-1, keepdim=True))


def test_intervals_of_each_value_and_label():
    generator = torch.Generator().manual_seed(0)
    sweep, _, _ = swept(samples=400, also=ALSO, **LABELS)
    found = sweep.compute()
    for name in ("threshold", *ALSO):
        interval = sweep.interval(name, generator=generator)
        assert interval.low.shape == (2,)
        expected = [found[f"{name}/{label}"].item() for label in ("cat", "dog")]
        assert interval.estimate.tolist() == pytest.approx(expected)
        assert (interval.low <= interval.estimate).all()
        assert (interval.estimate <= interval.high).all()
    wide, narrow = sweep.interval("auc", level=0.99), sweep.interval("auc", level=0.5)
    assert (wide.low < narrow.low).all()
    with pytest.raises(ValueError, match=r"name must be one of 'threshold', 'value', 'auc'.*Recall, at=point\)\.inter"):
        sweep.interval("recall")
    with pytest.raises(ValueError, match=r"got 'f1'; 'value' is the f1 at the chosen threshold$"):
        swept("f1")[0].interval("f1")
    with pytest.raises(ValueError, match="level must lie in"):
        sweep.interval("threshold", level=1.0)
    with pytest.raises(ValueError, match="average precision has no interval at another prevalence"):
        swept(prevalence=[0.99, 0.01])[0].interval("average_precision")
    weighted = ThresholdSweep("f1", weighted=True)
    weighted.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    for refused in (lambda: weighted.interval("auc"), lambda: weighted.best(at_least={"recall": 0.5})):
        with pytest.raises(ValueError, match="sums of weights are not"):
            refused()
    assert weighted.best().recall == 1


@pytest.mark.default_cases("binary")
@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_table_holds_values_and_what_is_left_of_them(task):
    arguments = LABELS if task == "multilabel" else {}
    sweep, _, target = swept(samples=400, **arguments)
    values, interval = sweep.compute(), sweep.interval("value")
    kind, names = ("label", ["cat", "dog"]) if arguments else ("class", ["1"])
    table = sweep.table()
    assert [*table.blocks] == [kind]
    assert [*table[kind]] == names
    ends = zip(*(part.reshape(-1).tolist() for part in (interval.estimate, interval.low, interval.high)), strict=True)
    for (name, row), positives, bounds in zip(
        table[kind].items(), target.reshape(400, -1).sum(0).tolist(), ends, strict=True
    ):
        of = f"/{name}" if arguments else ""
        assert row["positives"] == positives
        assert (row["threshold"], row["value"]) == (values[f"threshold{of}"].item(), values[f"value{of}"].item())
        assert (row["corrected"], row["corrected"].low, row["corrected"].high) == bounds
        assert row["corrected"] < row["value"]
    assert table.notes == (
        "value: f1 at the chosen threshold, corrected for the choice on the same samples (95% held-out tenths, "
        "posterior)",
    )


def test_a_table_and_pictures_name_the_limits_and_the_highest_value():
    """82 positives whose F1 is highest where no limit holds; every cut of the scores is the oracle."""
    generator = torch.Generator().manual_seed(3)
    target = (torch.arange(2000) < 82).long()
    scores = (torch.randn(2000, generator=generator, dtype=torch.float64) + 1.5 * target - 2).sigmoid()
    sweep = ThresholdSweep("f1", at_least={"recall": 0.9}, alerts=0.5)
    sweep.update(scores, target)
    found, (_, axes) = sweep.compute(), sweep.plot("value")
    flags = [scores > cut for cut in [0.0, *scores[scores.argsort()][::4].tolist(), *scores[:82].tolist()]]
    values = torch.tensor([sk.f1_score(target, each) for each in flags])
    kept = [each[:82].double().mean() >= 0.9 and each.double().mean() <= 0.5 for each in flags]
    highest = values.max().item()
    assert found["value"].item() == pytest.approx(values[torch.tensor(kept)].max().item(), abs=0.003)
    assert found["value"] < highest - 0.1
    (written,) = axes.texts
    assert written.get_text().startswith(f"chosen {found['value']:.3f} at ")
    assert float(written.get_text().rpartition("highest ")[2]) == pytest.approx(highest, abs=0.003)
    within = "with recall >= 0.9 and alerts <= 0.5"
    assert axes.get_legend().get_title().get_text().startswith(f"chosen {within}\ncorrected: ")
    row = sweep.table()["class"]["1"]
    assert row["alerts"] == pytest.approx((scores > found["threshold"]).double().mean().item())
    assert sweep.table().notes[0].startswith(f"value: f1 at the threshold chosen {within}, corrected for ")
    _, axes = sweep.plot("roc")
    assert axes.get_legend().get_texts()[-1].get_text() == f"threshold chosen for f1 {within}"
    plt.close("all")
    dear = ThresholdSweep("f1", costs=[[0, 1], [20, 0]])
    dear.update(scores, target)
    assert dear.table().notes[0].startswith("value: f1 at the threshold chosen by costs, corrected ")


def test_the_alert_rate_of_each_label_is_that_of_its_threshold():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(900, 2, generator=generator) < torch.tensor([0.3, 0.05])).long()
    scores = (torch.randn(900, 2, generator=generator) + 2 * target - 1).sigmoid()
    sweep = ThresholdSweep("f1", task="multilabel", num_labels=2, prevalence=[0.5, 0.01])
    sweep.update(scores, target)
    values, table = sweep.compute(), sweep.table()["label"]
    for at, share in enumerate((0.5, 0.01)):
        flagged = (scores[:, at] > values[f"threshold/{at}"]).double()
        right = share * flagged[target[:, at] == 1].mean() + (1 - share) * flagged[target[:, at] == 0].mean()
        assert table[str(at)]["alerts"] == pytest.approx(right.item())
    above = ThresholdSweep("f1", torch.tensor([0.25, 0.5]), at_least={"specificity": 1.0})
    above.update(torch.tensor([0.2, 0.9, 0.8]), torch.tensor([0, 1, 0]))
    assert above.compute()["threshold"] == 1  # a score of a negative lies above all thresholds
    assert above.table()["class"]["1"]["alerts"] == 0


def test_the_table_names_labels_with_few_positives_and_no_epoch_is_warned_of_them():
    target = torch.zeros(400, 3, dtype=torch.int64)
    for label, positives in enumerate((9, 10, 3)):
        target[:positives, label] = 1
    scores = torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) / 2 + target / 2
    sweep = ThresholdSweep("f1", task="multilabel", num_labels=3, class_names=["cat", "dog", "emu"])
    for _ in range(2):
        sweep.update(scores, target)
        sweep.compute()  # warnings are errors here
        notes = sweep.table().notes
        sweep.reset()
    assert notes[1].startswith("fewer than 10 positives of cat, emu: the threshold rests on a few scores")
    assert sweep.result().problems == {"few positives": notes[1]}
    one = ThresholdSweep("f1")
    one.update(scores[:, 2], target[:, 2])
    assert one.table().notes[1].startswith("fewer than 10 positives: the threshold")


def test_tables_have_as_many_decimals_as_asked_for():
    sweep = ThresholdSweep("accuracy", thresholds=torch.tensor([0.5]))
    sweep.update(torch.tensor([0.1] * 40 + [0.9] * 23), torch.tensor([0] * 39 + [1] * 24))  # 62 of 63 are right
    assert " 0.98413 " in str(sweep.table(digits=5))
    assert "& 0.98 &" in sweep.table(digits=5).to_latex(digits=2)
    assert "| 0.984 |" in sweep.table().to_markdown()


def test_what_cannot_be_corrected_is_a_dash_and_many_labels_are_not():
    weighted = ThresholdSweep("f1", 11, weighted=True)
    weighted.update(torch.tensor([0.15, 0.7]), torch.tensor([0, 1]), weight=torch.tensor([1.0, 2.5]))
    assert str(weighted.table()).splitlines()[1].split() == ["1", "2.50", "0.5", "0.714", "1.000", "-"]
    many = ThresholdSweep("f1", task="multilabel", num_labels=21)
    many.update(torch.tensor([[0.2], [0.7]]).expand(2, 21), torch.tensor([[0], [1]]).expand(2, 21))
    assert [*many.table()["label"]["20"]] == ["positives", "threshold", "alerts", "value"]
    assert many.table().notes[0] == "value: f1 at the chosen threshold"


def test_an_ignored_class_has_no_operating_point():
    target = torch.arange(200) % 3
    scores = (torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(3)[target]).softmax(1)
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3, ignore_index=1)
    sweep.update(scores, target)
    sweep.compute()
    points = sweep.best()
    assert list(points) == ["0", "2"]
    assert points["2"].counts.sum().item() == int((target != 1).sum())


@pytest.mark.parametrize(("costs", "words"), [([[0, 1], [0, 1]], "nobody"), ([[1, 0], [1, 0]], "everybody")])
def test_a_threshold_that_tells_nothing_apart_says_so(costs, words):
    sweep, _, _ = swept(samples=300)
    with pytest.warns(UserWarning, match=f"predicts the same for all samples: .*flags {words}"):
        point = sweep.best(costs=costs)
    assert f"which flags {words}" in str(point)


def test_a_metric_is_made_with_the_threshold_that_was_chosen():
    sweep, logits, target = swept(ignore_index=-1)
    metric = sweep.metric(imbtorch.FScore)
    assert metric(logits, target) == sweep.compute()["value"]
    assert (metric.logits, metric.ignore_index) == (True, -1)
    point = sweep.best(alerts=0.02, generator=torch.Generator().manual_seed(0))
    assert sweep.metric(imbtorch.Recall, at=point)(logits, target).item() == pytest.approx(point.recall)
    two = sweep.metric(functools.partial(imbtorch.FScore, beta=2.0), average="binary")
    assert two.threshold == metric.threshold
    report = sweep.metric(imbtorch.ImbalanceReport, measures=["f1"], prefix="test_")
    assert report(logits, target)["test_f1"] == sweep.compute()["value"]


@pytest.mark.parametrize(
    ("at", "cls", "text"),
    [
        (0.3, imbtorch.Recall, r"got 0\.3; or build Recall\('binary', threshold=0\.3\)$"),
        (0.3, functools.partial(imbtorch.FScore, beta=2.0), r"got 0\.3; or build FScore\('binary', threshold=0\.3\)$"),
        ({"recall": 0.8}, imbtorch.Recall, r"got a dict of \['recall'\]$"),
        ("best", imbtorch.Recall, "got 'best'$"),
    ],
)
def test_at_is_an_operating_point(at, cls, text):
    with pytest.raises(TypeError, match=rf"^at must be an operating point \(sweep\.best\(\.\.\.\)\), {text}"):
        swept()[0].metric(cls, at=at)


def test_at_has_an_operating_point_for_each_label():
    sweep, _, _ = swept(**LABELS)
    points = sweep.best(generator=torch.Generator().manual_seed(0))
    expected = r"^at must be a dict with an operating point for each label \(sweep\.best\(\.\.\.\)\), got "
    for at, text in (
        (0.3, r"0\.3; or build Recall\('multilabel', num_labels=2, threshold=0\.3\)$"),
        (points["cat"], "one point$"),
        ({"cat": points["cat"]}, r"a dict of \['cat'\]$"),
    ):
        with pytest.raises(TypeError, match=expected + text):
            sweep.metric(imbtorch.Recall, at=at)
    imbtorch.Recall("multilabel", num_labels=2, threshold=0.3)  # as it says


def test_a_metric_of_labels_has_a_threshold_for_each():
    sweep, logits, target = swept(**LABELS)
    metric = sweep.metric(imbtorch.FScore, average="none")
    assert metric(logits, target).tolist() == [sweep.compute()[f"value/{label}"].item() for label in ("cat", "dog")]
    points = sweep.best(at_least={"recall": 0.6}, generator=torch.Generator().manual_seed(0))
    found = sweep.metric(imbtorch.Recall, at=points, average="none")(logits, target)
    assert found.tolist() == pytest.approx([points[label].recall for label in ("cat", "dog")])
    classes = ThresholdSweep("f1", task="multiclass", num_classes=2)
    classes.update(torch.tensor([[0.2, 0.8], [0.7, 0.3]]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="have no thresholds; make one with task='binary'"):
        classes.metric(imbtorch.FScore)
