"""Intervals of the values of `metrics/report.py`: by name, of classes, of clusters; in tables and pictures."""

import functools
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
import torch
from processes import counted_collectives, launch
from scipy import stats

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.statistics import Interval, posterior

TARGET = torch.tensor([0] * 200 + [1] * 50 + [2] * 30)
PREDS = torch.tensor([0] * 180 + [1] * 12 + [2] * 8 + [1] * 45 + [0] * 5 + [2] * 24 + [0] * 6)
NAMES = ["ok", "fraud", "late"]


def filled(**arguments):
    report = ImbalanceReport("multiclass", class_names=NAMES, **{"measures": ["iam", "accuracy"], **arguments})
    report.update(PREDS, TARGET)
    return report


def test_named_values_have_bounds_and_no_others():
    report = filled(intervals=["iam", "recall/fraud"])
    bounds = {name for name in report.compute() if name.endswith(("_low", "_high"))}
    assert bounds == {"iam_low", "iam_high", "recall/fraud_low", "recall/fraud_high"}
    assert report.intervals == ("iam", "recall/fraud")
    assert "intervals=['iam', 'recall/fraud']" in repr(report)
    assert filled(intervals=True).intervals == ("iam", "accuracy")
    assert filled().intervals == ()


def test_bounds_of_a_recall_are_those_of_jeffreys():
    values = filled(intervals=["recall/fraud", "recall/late"]).compute()
    for name, right, number in (("fraud", 45, 50), ("late", 24, 30)):
        low, high = scipy.stats.beta.ppf([0.025, 0.975], right + 0.5, number - right + 0.5)
        assert values[f"recall/{name}_low"].item() == pytest.approx(low, abs=0.015)
        assert values[f"recall/{name}_high"].item() == pytest.approx(high, abs=0.015)


def test_one_draw_serves_all_names():
    values = filled(intervals=["precision/late", "accuracy", "precision/ok"]).compute()
    measures = {"accuracy": imbtorch.accuracy, "precision": lambda counts: imbtorch.precision(counts, "none")}
    counts, generator = filled().counts(), torch.Generator().manual_seed(0)
    expected = posterior(measures, counts, draws=2000, generator=generator)
    for index, name in ((0, "ok"), (2, "late")):
        assert values[f"precision/{name}_low"].item() == pytest.approx(
            expected["precision"].low[index].item(), abs=0.02
        )
        assert values[f"precision/{name}_high"].item() == pytest.approx(
            expected["precision"].high[index].item(), abs=0.02
        )
    assert values["accuracy_low"].item() == pytest.approx(expected["accuracy"].low.item(), abs=0.01)


def test_classes_of_a_function_of_ones_own_and_labels():
    def iou(counts):
        return counts.diagonal() / (counts.sum(0) + counts.sum(1) - counts.diagonal())

    own = filled(per_class={"iou": iou}, intervals=["iou/late"]).compute()
    ours = filled(per_class=("iou",), intervals=["iou/late"]).compute()
    for limit in ("low", "high"):
        assert own[f"iou/late_{limit}"].item() == pytest.approx(ours[f"iou/late_{limit}"].item(), abs=1e-6)
    labels = ImbalanceReport("multilabel", class_names=["a", "b"], measures=["iam"], intervals=["recall/b"])
    labels.update(torch.tensor([[0, 1]] * 45 + [[1, 0]] * 5), torch.ones(50, 2, dtype=torch.long))
    low, high = scipy.stats.beta.ppf([0.025, 0.975], 45.5, 5.5)
    values = labels.compute()
    assert [values["recall/b_low"].item(), values["recall/b_high"].item()] == pytest.approx([low, high], abs=0.015)


@pytest.mark.parametrize(
    ("intervals", "error", "text"),
    [
        (
            ["mcc"],
            ValueError,
            r"intervals names \['mcc'\], which are not reported; names are iam, accuracy, worst, recall/ok",
        ),
        (["recall/nobody"], ValueError, "which are not reported"),
        (["iam", "iam"], ValueError, "must not name a value twice"),
        ("iam", TypeError, r"such as \['iam'\], got a string"),
        (["worst"], ValueError, r"intervals names \['worst'\], but the lowest"),
    ],
)
def test_what_has_no_interval_is_refused(intervals, error, text):
    worst = {"iam": "iam", "accuracy": "accuracy", "worst": functools.partial(imbtorch.recall, average="min")}
    with pytest.raises(error, match=text):
        filled(measures=worst, intervals=intervals)
    assert filled(measures=worst, intervals=True).intervals == ("iam", "accuracy")


def test_patterns_and_names_of_measures_of_each_class_name_values():
    def named(intervals, **more):
        return filled(
            measures=["iam", "recall"], class_groups={"rare": NAMES[1:]}, intervals=intervals, **more
        ).intervals

    of_classes = [f"recall/{name}" for name in NAMES]
    everything = named("*")
    assert everything == named(["*"])
    assert set(everything) == {"iam", "recall", *of_classes, *(f"precision/{n}" for n in NAMES), "recall/rare",
        "precision/rare"}  # fmt: skip
    assert named(["recall/*"]) == (*of_classes, "recall/rare")
    assert named(["recall"]) == ("recall",)  # the value of that name
    assert named(["precision"]) == (*(f"precision/{name}" for name in NAMES), "precision/rare")  # which has none
    assert named([f"*/{NAMES[0]}", "recall/*"]) == (f"recall/{NAMES[0]}", f"precision/{NAMES[0]}", *of_classes[1:],
        "recall/rare")  # fmt: skip
    with pytest.raises(ValueError, match=r"intervals names \['f1/\*'\], which are not reported"):
        named(["f1/*"])
    worst = {"iam": "iam", "worst": functools.partial(imbtorch.recall, average="min")}
    assert filled(measures=worst, per_class=(), intervals="*").intervals == ("iam",)  # minima have none


def test_the_table_shows_bounds_where_there_are_any():
    table = filled(intervals=["iam", "recall/fraud"]).table()
    fraud, iam = table["class"]["fraud"]["recall"], table["measure"]["iam"]["all"]
    text = str(table).splitlines()
    assert f"0.900 [{fraud.low:.3f}, {fraud.high:.3f}]" in text[2]
    assert "[" not in text[1]
    assert f"[{iam.low:.3f}, {iam.high:.3f}]" in text[6]
    row = table.to_dict()["class"]["fraud"]
    assert (row["recall"], row["recall_low"], row["recall_high"]) == (fraud, fraud.low, fraud.high)
    assert [*filled().table().to_dict()["class"]["fraud"]] == ["support", "predicted", "recall", "precision"]


def test_error_bars_stand_beside_the_matrix_and_on_bars():
    report = filled(intervals=[f"recall/{name}" for name in NAMES])
    values = report.compute()
    expected = [[values[f"recall/{name}_{limit}"].item() for limit in ("low", "high")] for name in NAMES]
    for each in (report, filled(), filled(intervals=["iam"])):  # also without being asked for
        (beside,) = each.plot()[1].child_axes
        (bars,) = beside.containers
        drawn = [segment[:, 0].tolist() for segment in bars.lines[2][0].get_segments()]
        np.testing.assert_allclose(drawn, expected, atol=1e-6)
    added = ImbalanceReport("multiclass", class_names=NAMES, weighted=True)
    added.add(filled().counts())  # without squares of weights
    assert not added.plot()[1].child_axes[0].collections[0].get_segments()
    labels = ImbalanceReport("multilabel", class_names=["a", "b"], measures=["iam"], intervals=["recall/b"])
    labels.update(torch.ones(50, 2, dtype=torch.long), torch.ones(50, 2, dtype=torch.long))
    assert len(labels.plot()[1].containers) == 2  # bars, and the error bar
    with pytest.raises(ValueError, match=r"bounds must be \[2\] like the values, got \[3\] and \[3\]"):
        imbtorch.plots.plot_values(Interval(torch.ones(2), torch.zeros(3), torch.ones(3), 0.95, ""))
    plt.close("all")


def test_an_interval_needs_what_it_is_of():
    for ask in (filled().interval, filled().result().interval):
        with pytest.raises(ValueError, match=r"built without clusters, .* build it with clusters=True"):
            ask("iam", clusters=True)
    with pytest.raises(ValueError, match=r"^interval\('mcc'\) names a value that is not reported; names are iam, acc"):
        filled().interval("mcc")
    few = ImbalanceReport("binary", measures=["accuracy"], per_class=(), clusters=True)
    few.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]), cluster=torch.tensor([7, 7, 7]))
    with pytest.raises(ValueError, match="all samples lie in one bucket of clusters; count samples of more clusters"):
        few.interval("accuracy")
    worst = filled(measures={"worst": functools.partial(imbtorch.recall, average="min")})
    with pytest.raises(ValueError, match=r"^interval\('worst'\) names a minimum, but the lowest"):
        worst.interval("worst")


@pytest.mark.filterwarnings("ignore:.*classes had no target", "ignore:.*labels had no positive")
def test_an_absent_class_has_no_interval():
    """Nothing is known of it; the bounds of the others are those of the counts without its row and column."""
    names = ["recall/late", "precision/late", "recall/ok", "iam"]
    report = ImbalanceReport("multiclass", class_names=NAMES, measures=["iam"], intervals=names)
    report.update(PREDS[:250], TARGET[:250])
    with pytest.warns(UserWarning, match="depend on classes without targets: recall/late, precision/late$"):
        values = report.compute()
    unknown = {name for name, value in values.items() if value.isnan()}
    assert unknown == {f"{name}/late_{limit}" for name in ("recall", "precision") for limit in ("low", "high")}
    low, high = scipy.stats.beta.ppf([0.025, 0.975], 180.5, 20.5)
    assert values["recall/ok_low"].item() == pytest.approx(low, abs=0.01)
    assert values["recall/ok_high"].item() == pytest.approx(high, abs=0.01)
    with pytest.raises(
        ValueError, match="'recall/late' has no interval, because it depends on classes without targets"
    ):
        report.interval("recall/late")
    assert report.interval("recall/ok").high < 1


@pytest.mark.parametrize(
    ("target", "unknown", "known"),
    [(0, ["recall", "precision", "f1"], "specificity"), (1, ["precision", "npv"], "recall")],
)
@pytest.mark.filterwarnings("ignore:.*classes had no target", "ignore:.*labels had no positive")
def test_values_of_two_classes_that_one_class_alone_decides(target, unknown, known):
    """Precision without negatives is 1 in any sample, recall without positives 0: that says nothing of others."""
    right = torch.tensor([1] * 45 + [0] * 5)
    preds, targets = (right if target else 1 - right), torch.full((50,), target)
    names = [*unknown, known]
    report = ImbalanceReport("binary", measures=names, per_class=(), intervals=True)
    report.update(preds, targets)
    of_labels = ImbalanceReport(
        "multilabel", class_names=["cat", "dog"], per_class=names, intervals=[f"{name}/dog" for name in names]
    )
    of_labels.update(torch.stack((preds, preds), 1), torch.stack((preds, targets), 1))
    low, high = scipy.stats.beta.ppf([0.025, 0.975], 45.5, 5.5)
    for each, label in ((report, ""), (of_labels, "/dog")):
        shown = ", ".join(f"{name}{label}" for name in unknown)
        with pytest.warns(UserWarning, match=f"depend on classes without targets: {shown}$"):
            values = each.compute()
        for name in unknown:
            assert values[f"{name}{label}_low"].isnan()
            assert values[f"{name}{label}_high"].isnan()
            with pytest.raises(ValueError, match=f"'{name}{label}' has no interval"):
                each.interval(f"{name}{label}")
        bounds = [values[f"{known}{label}_{limit}"].item() for limit in ("low", "high")]
        assert bounds == pytest.approx([low, high], abs=0.015)


def test_bounds_of_a_group_of_one_class_are_unknown():
    report = ImbalanceReport("binary", measures=["recall"], intervals=True, groups=["a", "b"], per_class=())
    preds = torch.tensor([0, 1, 1, 0])
    report.update(preds, preds, group=0)
    report.update(preds, torch.zeros(4, dtype=torch.long), group=1)
    with pytest.warns(UserWarning, match="no target of a class that"):
        values = report.compute()
    assert values["recall/b_low"].isnan()
    assert values["recall/a_low"] > 0.2
    assert values["recall_low"] > 0.2


@pytest.mark.parametrize("argument", ["prefix", "postfix"])
def test_a_prefix_is_a_string(argument):
    for make in (lambda **a: ImbalanceReport("binary", **a), lambda **a: imbtorch.ThresholdSweep("f1", **a)):
        with pytest.raises(TypeError, match=f"{argument} must be a string such as 'val_', got 1"):
            make(**{argument: 1})


@pytest.mark.parametrize("ask", [lambda report: report.compute(), lambda report: report.interval("iam", draws=20)])
def test_a_warning_names_the_class_that_intervals_leave_out(ask):
    report = ImbalanceReport("multiclass", class_names=NAMES, measures=["iam"], intervals=True)
    report.update(PREDS[:250], TARGET[:250])
    with pytest.warns(UserWarning, match="1 of . classes had no target: late; means leave them out"):
        ask(report)


def test_an_interval_is_of_the_classes_that_are_there():
    """Without a class, its counts are those of a report that never had it."""
    report = ImbalanceReport("multiclass", num_classes=4, measures=["balanced_accuracy"], prefix="")
    fewer = ImbalanceReport("multiclass", num_classes=3, measures=["balanced_accuracy"], prefix="")
    preds, target = torch.tensor([0, 0, 0, 1, 1, 2, 2, 1, 0, 2] * 5), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 0, 0] * 5)
    intervals = []
    for each in (report, fewer):
        each.update(preds, target)
        each.quiet = True
        intervals.append(each.interval("balanced_accuracy", generator=torch.Generator().manual_seed(0)))
    assert float(intervals[0].low) == pytest.approx(float(intervals[1].low), abs=5e-3)
    assert float(intervals[0].high) == pytest.approx(float(intervals[1].high), abs=5e-3)


def test_a_report_with_intervals():
    report = imbtorch.ImbalanceReport("binary", intervals=True, prefix="val_", per_class=())
    preds, target = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1, 1, 0] * 8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0] * 8)
    report.update(preds, target)
    values = report.compute()
    assert len(values) == 3 * 10
    for name in imbtorch.ImbalanceReport.default_measures("binary"):
        low, value, high = (values[f"val_{name}{end}"].item() for end in ("_low", "", "_high"))
        assert low < value < high, name
        assert report[f"{name}_low"].compute().item() == low  # the seed is fixed
        assert report[f"{name}_low"].higher_is_better == report[name].higher_is_better
    (tnr_hits, tnr_all), (tpr_hits, tpr_all) = (32, 40), (32, 40)
    rates = (
        stats.beta(hits + 0.5, total - hits + 0.5).rvs(200_000, random_state=seed)
        for seed, (hits, total) in enumerate(((tnr_hits, tnr_all), (tpr_hits, tpr_all)))
    )
    expected = np.quantile(sum(rates) / 2, [0.025, 0.975])
    assert [values["val_balanced_accuracy_low"].item(), values["val_balanced_accuracy_high"].item()] == pytest.approx(
        expected.tolist(), abs=0.01
    )
    assert set(report(preds, target)) == {f"val_{name}" for name in imbtorch.ImbalanceReport.default_measures("binary")}
    with pytest.raises(ValueError, match="intervals need the whole matrix"):
        imbtorch.ImbalanceReport("multiclass", num_classes=3, intervals=True, state="margins")
    with pytest.raises(ValueError, match="measures already contains 'a_low'"):
        imbtorch.ImbalanceReport("binary", intervals=True, measures={"a": imbtorch.accuracy, "a_low": imbtorch.recall})


def test_a_report_of_labels_with_intervals():
    report = imbtorch.ImbalanceReport("multilabel", num_labels=2, intervals=True, per_class=(), clusters=False)
    preds = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0], [1, 1]] * 8)
    target = torch.tensor([[0, 0], [1, 1], [1, 1], [1, 0], [0, 0]] * 8)
    report.update(preds, target)
    values = report.compute()
    rates = [(16, 24), (16, 16)]  # of 24 and 16 positives
    draws = [stats.beta(h + 0.5, n - h + 0.5).rvs(200_000, random_state=n) for h, n in rates]
    low = np.quantile(sum(draws) / 2, 0.025)
    high = np.quantile((draws[0] + 1) / 2, 0.975)  # all positives of the second label are found
    assert values["recall"].item() == pytest.approx((16 / 24 + 1) / 2)
    assert [values["recall_low"].item(), values["recall_high"].item()] == pytest.approx([low, high], abs=0.01)


def test_worst_values_and_bounds_have_no_interval():
    report = ImbalanceReport("multiclass", num_classes=2, groups=["x", "y"], measures=["iam"], intervals=["iam"])
    target = torch.arange(8) % 2
    report.update(target, target, group=torch.arange(8) // 4)
    for name, kind in (("iam_worst", "the worst of several uncertain values"), ("iam_low", "a bound of one")):
        assert name in report
        for ask in (report.interval, report.result().interval):
            with pytest.raises(ValueError, match=f"{name!r} has no interval, because it is {kind}"):
                ask(name)
    with pytest.raises(ValueError, match=r"interval\('iam/z'\) names a value that is not reported"):
        report.interval("iam/z")


def test_class_groups_and_groups_have_intervals_of_their_counts():
    """Expected values come from independent recalls, whose posteriors are those of Jeffreys."""
    report = ImbalanceReport(
        "multiclass",
        class_names=["ok", "fraud", "late"],
        measures=["accuracy"],
        class_groups={"tail": ["fraud", "late"]},
        groups=["x", "y"],
        intervals=["recall/tail"],
        prefix="test_",
    )
    for group, matrix in enumerate(([[90, 10, 0], [5, 40, 5], [3, 3, 24]], [[95, 5, 0], [0, 30, 0], [2, 0, 28]])):
        cells = torch.tensor(matrix).flatten()
        rows, columns = (torch.arange(9) // 3).repeat_interleave(cells), (torch.arange(9) % 3).repeat_interleave(cells)
        report.update(columns, rows, group=group)
    generator = np.random.default_rng(0)
    recall = np.mean([generator.beta(r + 0.5, w + 0.5, 100_000) for r, w in ((70, 10), (52, 8))], 0)
    low, high = np.quantile(recall, [0.025, 0.975])
    values, found = report.compute(), report.interval("recall/tail")
    ends = [values[f"test_recall/tail_{end}"].item() for end in ("low", "high")]
    assert ends == pytest.approx([low, high], abs=0.015)
    assert [found.low.item(), found.high.item()] == pytest.approx([low, high], abs=0.015)
    of_site = report.interval("accuracy/y", generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    alone = posterior(imbtorch.accuracy, report.result().groups[1], draws=2000, generator=generator)
    assert [of_site.estimate, of_site.low, of_site.high] == [alone.estimate, alone.low, alone.high]


# --- one interval, whoever asks ---------------------------------------------------------------------------------------
PATIENTS = torch.arange(280) // 7
ONE_INTERVAL = {  # arguments of a report, of its updates, and the names of values
    "classes": ({"intervals": ["iam", "accuracy", "recall/fraud"]}, {}),
    "clusters": ({"intervals": ["iam", "accuracy", "recall/fraud"], "clusters": True}, {"cluster": PATIENTS}),
    "groups": ({"intervals": True, "groups": ["x", "y"]}, {"group": torch.arange(280) % 2}),
    "prevalence": ({"intervals": ["iam", "mcc"], "measures": ["iam", "mcc"], "prevalence": [90, 9, 1]}, {}),
    "class groups": ({"intervals": ["recall/rare"], "class_groups": {"rare": ["fraud", "late"]}}, {}),
}


def bounds_of(interval):
    return [interval.estimate.float().item(), interval.low.float().item(), interval.high.float().item()]


@pytest.mark.parametrize("kind", ONE_INTERVAL)
def test_table_interval_and_an_opened_result_show_the_same_bounds(kind, tmp_path):
    arguments, extra = ONE_INTERVAL[kind]
    report = ImbalanceReport("multiclass", class_names=NAMES, **{"measures": ["iam", "accuracy"], **arguments})
    report.update(PREDS, TARGET, **extra)
    result = report.result()
    result.to_json(tmp_path / "result.json")
    opened = imbtorch.open_result(tmp_path / "result.json")
    names = [*report.intervals, *["iam/x", "accuracy/y"] * (kind == "groups")]
    for name in names:
        shown = [result[name].item(), result[f"{name}_low"].item(), result[f"{name}_high"].item()]
        for seed, ask in enumerate((report.interval, result.interval, opened.interval, result.interval)):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            assert bounds_of(ask(name)) == shown, name
            assert torch.equal(torch.get_rng_state(), state)
        assert [opened[name].item(), opened[f"{name}_low"].item(), opened[f"{name}_high"].item()] == shown
        if "/" not in name:
            table = [each.table()["measure"][name]["all"] for each in (result, opened)]
            assert [[cell, cell.low, cell.high] for cell in table] == [shown, shown]
        assert bounds_of(result.interval(name, generator=torch.Generator().manual_seed(1))) != shown
        assert bounds_of(result.interval(name, level=0.9)) != shown
        wide, narrow = (np.diff(bounds_of(result.interval(name, level=level))[1:]) for level in (0.95, 0.9))
        assert wide > narrow


def test_what_else_is_asked_for_changes_no_interval():
    """A measure of the whole matrix, one of margins, values of classes: each as if it were asked for alone."""
    measures = ["iam", "mcc", "rci", "f1"]
    every = filled(measures=measures, intervals=[*measures, "recall/fraud", "precision/ok"]).compute()
    for name in (*measures, "recall/fraud", "precision/ok"):
        alone = filled(measures=measures, intervals=[name]).compute()
        assert [every[f"{name}_{end}"] for end in ("low", "high")] == [
            alone[f"{name}_{end}"] for end in ("low", "high")
        ]


@pytest.mark.parametrize("clusters", [False, True])
def test_a_metric_has_the_interval_of_a_report_of_the_same_counts(clusters):
    extra = {"cluster": PATIENTS} if clusters else {}
    report = ImbalanceReport("multiclass", class_names=NAMES, measures=["iam", "recall"], clusters=clusters)
    metrics = {
        "iam": imbtorch.ImbalanceAccuracy("multiclass", num_classes=3, clusters=clusters),
        "recall": imbtorch.Recall("multiclass", num_classes=3, clusters=clusters),
    }
    for each in (report, *metrics.values()):
        each.update(PREDS, TARGET, **extra)
    for name, metric in metrics.items():
        assert bounds_of(metric.interval()) == bounds_of(metric.interval()) == bounds_of(report.interval(name))


def intervals_of_a_part(rank, world):
    report = filled_part("clusters", rank, world)
    metric = imbtorch.Recall("multiclass", num_classes=3)
    metric.update(PREDS[rank::world], TARGET[rank::world])
    torch.manual_seed(rank)
    values = [value.item() for value in report.compute().values()]
    return [bounds_of(report.interval("iam")), bounds_of(metric.interval()), values]


def filled_part(kind, rank, world):
    arguments, extra = ONE_INTERVAL[kind]
    report = ImbalanceReport("multiclass", class_names=NAMES, **{"measures": ["iam", "accuracy"], **arguments})
    part = slice(rank, None, world)
    report.update(PREDS[part], TARGET[part], **{name: each[part] for name, each in extra.items()})
    return report


def test_several_processes_have_the_interval_of_one():
    first, second = launch(2, intervals_of_a_part, timeout=60)
    assert first == second == intervals_of_a_part(0, 1)


# --- clusters without ids ---------------------------------------------------------------------------------------------
WITHOUT_IDS = "built with clusters=True, but no update passed cluster=, so each sample is a cluster of its own"


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_clusters_without_ids_are_told_once_and_taken_for_independent_samples(task):
    names = ["ok", "fraud"] if task == "binary" else NAMES
    preds, target = (each.clamp(max=len(names) - 1) for each in (PREDS, TARGET))
    report = ImbalanceReport(task, class_names=names, measures=["accuracy"], clusters=True, intervals=True)
    plain = ImbalanceReport(task, class_names=names, measures=["accuracy"], intervals=True)
    for each in (report, plain):
        each.update(preds, target)
    with pytest.warns(UserWarning, match=f"^ImbalanceReport: {WITHOUT_IDS}"):
        report.compute()
    report.result().interval("accuracy", clusters=True)  # told once: warnings are errors here
    assert report.interval("accuracy").method == "posterior"
    assert bounds_of(report.interval("accuracy")) == bounds_of(plain.interval("accuracy"))
    assert "intervals: 95% posterior" in report.table().notes
    metric = imbtorch.Accuracy(task, len(names) if task == "multiclass" else None, clusters=True)
    metric.update(preds, target)
    with pytest.warns(UserWarning, match=f"^Accuracy: {WITHOUT_IDS}"):
        assert metric.interval().method == "posterior"
    sweep = imbtorch.ThresholdSweep("f1", clusters=True)
    sweep.update(torch.linspace(0, 1, 280)[TARGET.argsort().argsort()], (TARGET > 0).long())
    with pytest.warns(UserWarning, match=f"^SweepResult: {WITHOUT_IDS}"):
        found = sweep.interval("value")
    assert re.fullmatch(r"held-out buckets, bootstrap of 6\d buckets", found.method)


def test_right_programs_with_clusters_hear_nothing():
    """200 programs with ids, with several positions, with labels, without clusters, or without an interval."""
    random = np.random.default_rng(0)
    for at in range(200):
        kind = ("ids", "positions", "labels", "plain", "no interval")[at % 5]
        number = int(random.integers(20, 60))
        shape = (number, 4) if kind in ("positions", "labels") else (number,)
        target = torch.from_numpy(random.integers(0, 2, shape))
        target[:2] = torch.tensor([0, 1])[(...,) + (None,) * (len(shape) - 1)]
        preds = torch.where(torch.from_numpy(random.random(shape)) < 0.2, 1 - target, target)
        task, size = ("multilabel", {"num_labels": 4}) if kind == "labels" else ("binary", {})
        clusters = {"ids": True, "positions": True, "no interval": True}.get(kind)
        extra = {"cluster": torch.arange(number) // 3} if kind == "ids" else {}
        made = ImbalanceReport, imbtorch.FScore
        metric = made[at % 2](task, clusters=clusters, **size)
        metric.update(preds, target, **extra)
        metric.compute()
        if kind != "no interval":
            metric.interval(*["iam"] * (at % 2 == 0), draws=20)  # warnings are errors here


# --- after a reset --------------------------------------------------------------------------------------------------


def test_an_interval_after_a_reset_is_that_of_the_last_result():
    report = filled(prefix="test_")
    counted = report.interval("recall/fraud", generator=torch.Generator().manual_seed(0))
    report.compute()
    report.reset()
    after = report.interval("test_recall/fraud", generator=torch.Generator().manual_seed(0))
    assert (after.estimate, after.low, after.high) == (counted.estimate, counted.low, counted.high)
    report.update(torch.tensor([1, 0, 0, 0, 2]), torch.tensor([1, 1, 1, 0, 2]))  # the next epoch
    assert report.interval("recall/fraud").estimate.item() == pytest.approx(1 / 3)


def test_without_samples_there_is_no_interval():
    text = "'iam' has no interval, because no sample was counted"
    report = ImbalanceReport("multiclass", class_names=NAMES, measures=["iam"])
    with pytest.warns(UserWarning, match="counted no sample"), pytest.raises(ValueError, match=text):
        report.interval("iam")
    report.update(PREDS, TARGET)
    report.reset()  # nothing was computed before
    with pytest.warns(UserWarning, match="counted no sample"), pytest.raises(ValueError, match=text):
        report.interval("iam")


def interval_after_reset(rank, world):
    """Both processes reset; then only the second one counts."""
    report = ImbalanceReport("multiclass", class_names=NAMES, measures=["accuracy"])
    report.update(PREDS[rank::world], TARGET[rank::world])
    report.compute()
    report.reset()
    estimates = [report.interval("accuracy").estimate.item()]
    if rank == 1:
        report.update(torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 1]))
    with counted_collectives() as collectives:
        estimates.append(report.interval("accuracy").estimate.item())
    return estimates, collectives


def test_all_processes_agree_whether_there_is_a_last_result_to_read():
    accuracy = (PREDS == TARGET).double().mean().item()
    for estimates, collectives in launch(2, interval_after_reset, timeout=60):
        assert estimates == [pytest.approx(accuracy), 0.75]
        assert collectives == ["all_reduce"]


def test_a_measure_with_the_words_of_another_name_has_its_own_interval():
    """Accuracy, under a name that reads like all recalls, keeps the bounds that it has under its own."""

    def right(counts):
        return imbtorch.accuracy(counts)

    right.higher_is_better = True
    name = "recall of each class"
    renamed = filled(measures={name: right}, intervals=[name, "recall/fraud"]).compute()
    plain = filled(measures=["accuracy"], intervals=["accuracy", "recall/fraud"]).compute()
    for end in ("low", "high"):
        assert renamed[f"{name}_{end}"] == plain[f"accuracy_{end}"]
        assert renamed[f"recall/fraud_{end}"] == plain[f"recall/fraud_{end}"]


@pytest.mark.parametrize(("times", "named", "warned"), [(1, False, False), (11, True, False), (60, True, True)])
def test_a_bucket_that_holds_many_samples_is_named_and_warned_of(times, named, warned):
    """Of 200 clusters of 10 samples one is so many times as large; buckets hold 3 clusters on average."""
    sizes = torch.full((200,), 10)
    sizes[7] *= times
    ids = torch.arange(200).repeat_interleave(sizes)
    target = (torch.arange(len(ids)) % 4 == 0).long()
    preds = torch.where(torch.arange(len(ids)) % 7 == 0, 1 - target, target)
    report = ImbalanceReport("binary", measures=["accuracy"], per_class=(), clusters=True, intervals=True)
    report.update(preds, target, cluster=ids)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        report.compute()
        report.update(preds, target, cluster=ids)
        report.compute()
    texts = [str(each.message) for each in told]
    assert [text.startswith("ImbalanceReport: the largest of 6") for text in texts] == [True] * warned
    share = sizes[7].item() / sizes.sum().item()
    result = report.result()
    found = re.search(r"the largest of 6\d buckets holds ([\d.]+)%, too narrow", result.interval("accuracy").method)
    assert bool(found) == named
    notes = [note for note in result.table().notes if "the largest of 6" in note]
    assert len(notes) == named
    assert [note.startswith("the largest of 6") for note in notes] == [warned] * named
    if named:
        assert 100 * share <= float(found[1]) + 0.5 <= 100 * share + 3  # the bucket has some other clusters as well
        assert f"buckets of clusters holds {found[1]}% of the samples" in notes[0]
        assert "too narrow" in notes[0]
    alone = ImbalanceReport("binary", measures=["accuracy"], per_class=(), clusters=True)
    alone.update(preds, target, cluster=ids)
    alone.compute()  # without intervals there is nothing to warn of
    assert len(alone.result().table().notes) == len(result.table().notes) - 1 - warned


def test_classes_whose_names_look_like_bounds_are_named_in_the_error():
    names = {"class_names": ["x", "x_low"], "intervals": ["recall/x"]}
    with pytest.raises(ValueError, match=r"'recall/x_low' is a bound, which intervals adds, and a value of 'x_low'"):
        ImbalanceReport("multiclass", **names)
