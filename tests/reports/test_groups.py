"""Groups of samples: the values of each and of the worst, from one state and one sum over processes."""

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from distributions import splitmix64
from fairlearn.metrics import MetricFrame
from processes import launch
from report_cases import directed
from rooms import Counting, settings_text, state_name, state_of, traits_of
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection
from versions import traced

import imbtorch
from imbtorch import ImbalanceReport

SITES = ["site A", "site B", "site C"]


def samples(task="multiclass", size=600, seed=0, groups=3):
    """Predictions, targets and groups, the later groups the worse."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size, 3) if task == "multilabel" else (size,)
    classes = 3 if task == "multiclass" else 2
    group = torch.randint(groups, (size,), generator=generator)
    target = torch.randint(classes, shape, generator=generator)
    noise = torch.randint(classes, shape, generator=generator)
    right = torch.rand(shape, generator=generator) < (0.9 - 0.2 * group).reshape(-1, *[1] * (len(shape) - 1))
    return torch.where(right, target, noise), target, group


SIZES = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}


def filled(task="multiclass", groups=SITES, **arguments):
    report = ImbalanceReport(task, **SIZES[task], groups=groups, **arguments)
    preds, target, group = samples(task)
    report.update(preds, target, group=group)
    return report


def updated(report, path, *args, **kwargs):
    if path == "masked":
        torch._dynamo.reset()  # which compiles one function only so often
        traced(report.update)(*args, **kwargs)
    else:
        report.update(*args, **kwargs)


# --- oracles --------------------------------------------------------------------------------------------------------


@pytest.mark.default_cases("read")
@pytest.mark.parametrize("path", ["read", "masked"])
def test_values_equal_fairlearn(path):
    preds, target, group = samples()
    report = ImbalanceReport(
        "multiclass", num_classes=3, groups=SITES, measures=["accuracy", "balanced_accuracy", "mcc"]
    )
    updated(report, path, preds, target, group=group)
    values = report.compute()
    frame = MetricFrame(
        metrics={
            "accuracy": sklearn_metrics.accuracy_score,
            "balanced_accuracy": sklearn_metrics.balanced_accuracy_score,
            "mcc": sklearn_metrics.matthews_corrcoef,
        },
        y_true=target.numpy(),
        y_pred=preds.numpy(),
        sensitive_features=np.array(SITES)[group],
    )
    for name in ("accuracy", "balanced_accuracy", "mcc"):
        assert values[name].item() == pytest.approx(frame.overall[name], abs=1e-6)
        assert values[f"{name}_worst"].item() == pytest.approx(frame.group_min()[name], abs=1e-6)
        for site in SITES:
            assert values[f"{name}/{site}"].item() == pytest.approx(frame.by_group[name][site], abs=1e-6)


@pytest.mark.default_cases(
    "binary-arguments0-read",
    "binary-arguments0-masked",
    "multiclass-arguments1-read",
    "multiclass-arguments2-read",
    "multiclass-arguments3-read",
    "multiclass-arguments4-masked",
    "multilabel-arguments5-read",
    "multilabel-arguments6-masked",
    "multiclass-arguments7-read",
)
@pytest.mark.parametrize("path", ["read", "masked"])
@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("binary", {}),
        ("multiclass", {}),
        ("multiclass", {"ignore_index": 1}),
        ("multiclass", {"ignore_index": -1, "state": "margins"}),
        ("multiclass", {"prevalence": [0.8, 0.1, 0.1]}),
        ("multilabel", {}),
        ("multilabel", {"ignore_index": 0}),
        ("multiclass", {"weighted": True}),
    ],
)
def test_values_equal_those_of_each_group_alone_and_of_all_together(task, arguments, path):
    preds, target, group = samples(task)
    keywords = {"weight": torch.arange(len(target)) % 5} if "weighted" in arguments else {}
    report = ImbalanceReport(task, **SIZES[task], groups=SITES, **arguments)
    updated(report, path, preds, target, group=group, **keywords)
    pooled = ImbalanceReport(task, **SIZES[task], **arguments)
    pooled.update(preds, target, **keywords)
    values, together = report.compute(), pooled.compute()
    found = {name: values[name].item() for name in together}
    assert found == pytest.approx({name: each.item() for name, each in together.items()}, rel=0, abs=0, nan_ok=True)
    alone = []
    for index, site in enumerate(SITES):
        some = group == index
        one = ImbalanceReport(task, **SIZES[task], **arguments)
        one.update(preds[some], target[some], **{name: each[some] for name, each in keywords.items()})
        alone.append(one.compute())
        for name in ImbalanceReport.default_measures(task):
            assert values[f"{name}/{site}"] == alone[-1][name]
    for name, measure in ImbalanceReport.default_measures(task).items():
        if traits_of(measure).higher_is_better is not None:
            assert values[f"{name}_worst"] == min(one[name] for one in alone)
        else:
            assert f"{name}_worst" not in values


def test_the_value_of_a_batch_has_groups_too():
    preds, target, group = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES, prefix="val_")
    assert report(preds, target, group=group) == report.compute()
    many = ImbalanceReport(
        "multiclass", num_classes=3, groups=2000, measures=["iam"], per_class=()
    )  # a batch of margins
    assert many(preds, target, group=group)["iam_worst"] == report.compute()["val_iam_worst"]


def test_lower_is_better_has_its_worst_at_the_top():
    values = filled(measures=["confusion_entropy"]).compute()
    assert values["confusion_entropy_worst"] == max(values[f"confusion_entropy/{site}"] for site in SITES)


def test_a_function_of_ones_own_sees_one_matrix_at_a_time():
    seen = []

    def hits_of_the_last(counts):
        seen.append(tuple(counts.shape))
        return counts[-1, -1] / counts[-1].sum()

    values = filled(
        measures={"hits": directed(hits_of_the_last, True), "none": hits_of_the_last}, per_class=()
    ).compute()
    preds, target, group = samples()
    for index, site in enumerate(SITES):
        some = group == index
        expected = sklearn_metrics.recall_score(target[some], preds[some], average=None)[-1]
        assert values[f"hits/{site}"].item() == pytest.approx(expected, abs=1e-6)
    assert set(seen) == {(3, 3)}
    assert "hits_worst" in values
    assert "none_worst" not in values  # without a direction


def test_one_group_for_a_batch():
    preds, target, group = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES)
    for index in range(3):
        some = group == index
        ids = [index, torch.tensor(index), np.int64(index)][index]
        report.update(preds[some], target[some], group=ids)
    assert report.compute() == filled().compute()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_indices_of_any_integer_dtype(dtype):
    preds, target, group = samples(groups=2)
    report = ImbalanceReport("multiclass", num_classes=3, groups=2)
    report.update(preds, target, group=group.to(dtype))
    same = ImbalanceReport("multiclass", num_classes=3, groups=2)
    same.update(preds, target, group=group)
    assert report.compute() == same.compute()
    assert torch.equal(report.local_confmat, torch.tensor(sklearn_metrics.confusion_matrix(target, preds)))


def test_the_pixels_of_an_image_share_its_group():
    generator = torch.Generator().manual_seed(5)
    scores = torch.rand(8, 3, 6, 6, generator=generator)
    target = torch.randint(3, (8, 6, 6), generator=generator)
    group = torch.arange(8) % 2
    report = ImbalanceReport("multiclass", num_classes=3, groups=2, measures=["accuracy"])
    report.update(scores, target, group=group)
    for index in range(2):
        expected = (scores.argmax(1) == target)[group == index].double().mean().item()
        assert report.compute()[f"accuracy/group {index}"].item() == pytest.approx(expected, abs=1e-6)


# --- which groups are compared --------------------------------------------------------------------------------------


def test_groups_without_targets_of_a_class_take_no_part_in_the_worst():
    report = ImbalanceReport("binary", groups=["full", "only negatives", "empty"], measures=["accuracy"], per_class=())
    report.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0]), group=0)
    report.update(torch.tensor([1, 1]), torch.tensor([0, 0]), group=1)
    with pytest.warns(UserWarning, match="groups") as warned:
        values = report.compute()
    texts = sorted(str(each.message) for each in warned)
    assert len(texts) == 2
    assert "1 of 3 groups (empty) had no sample" in texts[0]
    assert "1 of 3 groups (only negatives) had no target of a class that other groups have" in texts[1]
    assert values["accuracy/only negatives"] == 0
    assert values["accuracy/empty"].isnan()
    assert values["accuracy_worst"] == values["accuracy/full"] == 0.75
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        report.compute()


@pytest.mark.parametrize(
    ("lost", "undefined"),
    [(1, {"balanced_accuracy", "recall", "gmean"}), (0, {"balanced_accuracy", "specificity", "gmean"})],
)
def test_a_group_without_a_class_has_no_value_that_needs_its_recall(lost, undefined):
    """Those of scikit-learn are those of the other class alone, or 0."""
    measures = ["balanced_accuracy", "recall", "specificity", "gmean", "accuracy", "f1", "mcc"]
    report = ImbalanceReport("binary", groups=["both", "one"], measures=measures, per_class=(), intervals=True)
    report.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1]), group=0)
    report.update(torch.tensor([0, 1, 1]), torch.full((3,), 1 - lost), group=1)
    with pytest.warns(UserWarning, match="values that need it are nan"):
        result = report.result()
    assert {name for name in measures if result[f"{name}/one"].isnan()} == undefined
    assert {name for name in measures if math.isnan(result.table()["group"]["one"][name])} == undefined
    assert all(result[f"{name}/one_low"].isnan() for name in undefined)
    assert result["accuracy/one"].item() == pytest.approx((2 - lost) / 3)
    with pytest.raises(ValueError, match="depends on classes without targets"):
        result.interval("balanced_accuracy/one")


def test_the_worst_group_says_how_many_clusters_hold_its_rarest_class():
    """North has its positives in two clusters, and south in thirty."""
    target = torch.tensor([1, 0] * 100)
    group, ids = torch.arange(2).repeat_interleave(100), torch.arange(100).repeat_interleave(2)
    target[:100] = torch.tensor([1] * 4 + [0] * 96)
    preds = torch.where(torch.arange(200) % 4 == 0, 1 - target, target)
    preds[:4] = torch.tensor([0, 0, 0, 1])
    report = ImbalanceReport("binary", groups=["north", "south"], measures=["recall"], per_class=(), clusters=True)
    report.update(preds, target, group=group, cluster=ids)
    with pytest.warns(UserWarning, match="the worst group is north"):
        result = report.result()
    assert result["recall_worst"] == result["recall/north"] == 0.25
    text = result.problems["few clusters"]
    held = len({splitmix64(each) // 2**58 for each in (0, 1)})
    assert text.startswith("by recall, the worst group is north: it has ")
    assert text.endswith(f" buckets of clusters, only {held} of them with '1'")
    assert any(text in note for note in result.table().notes)
    report.update(1 - target, target, group=1 - group, cluster=ids)  # south is worse, and has many
    assert "few clusters" not in report.result().problems


def test_a_class_that_no_group_has_is_not_asked_for():
    report = ImbalanceReport("multiclass", num_classes=3, groups=2, measures=["accuracy"], per_class=())
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), group=0)
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]), group=1)
    with pytest.warns(UserWarning, match="1 of 3 classes had no target"):
        assert report.compute()["accuracy_worst"].item() == pytest.approx(2 / 3)


def test_no_group_with_all_classes_has_no_worst():
    report = ImbalanceReport("binary", groups=2, measures=["accuracy"], per_class=())
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]), group=torch.tensor([0, 1]))
    with pytest.warns(UserWarning, match="which is nan because no group has all classes"):
        assert report.compute()["accuracy_worst"].isnan()


def test_labels_need_positives_and_negatives():
    preds, target, group = samples("multilabel")
    target[group == 2, 1] = 0
    report = ImbalanceReport("multilabel", num_labels=3, groups=SITES, measures=["accuracy"])
    report.update(preds, target, group=group)
    with pytest.warns(UserWarning, match=r"1 of 3 groups \(site C\) had no target of a class that"):
        values = report.compute()
    assert values["accuracy_worst"] == min(values["accuracy/site A"], values["accuracy/site B"])


# --- names and arguments --------------------------------------------------------------------------------------------


def test_names_and_directions():
    report = ImbalanceReport("binary", groups=["a", "b"], measures=["iam", "dominance"], per_class=(), intervals=True)
    assert report.keys() == [
        *("iam", "dominance", "iam_low", "iam_high", "dominance_low", "dominance_high"),
        *("iam/a", "iam/b", "iam_worst", "dominance/a", "dominance/b"),
        *("iam/a_low", "iam/a_high", "dominance/a_low", "dominance/a_high"),
        *("iam/b_low", "iam/b_high", "dominance/b_low", "dominance/b_high"),
    ]
    assert report["iam_worst"].higher_is_better is True
    assert report["iam/a_low"].higher_is_better is True
    assert report["dominance/a"].higher_is_better is None
    assert report.groups == ("a", "b")
    assert report.per_group == ("iam", "dominance")
    assert ImbalanceReport("binary").groups is None


def test_many_groups_report_the_worst_alone_unless_asked():
    assert list(ImbalanceReport("binary", groups=21, measures=["iam"], per_class=())) == ["iam", "iam_worst"]
    asked = ImbalanceReport("binary", groups=21, measures=["iam", "mcc"], per_class=(), per_group=["mcc"])
    assert asked.keys() == ["iam", "mcc", "iam_worst", *(f"mcc/group {index}" for index in range(21)), "mcc_worst"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"groups": []}, ValueError, r"groups must name at least one group, got \[\]"),
        ({"groups": 0}, ValueError, "groups must name at least one group, got 0"),
        ({"groups": ["a", "a"]}, ValueError, "groups must differ"),
        ({"groups": "site A"}, TypeError, "groups must be a sequence of names"),
        ({"groups": True}, TypeError, "groups must be a sequence of names"),
        ({"groups": ["a", 1]}, TypeError, "names that are non-empty strings, got 1"),
        ({"groups": ["fold: 1"]}, ValueError, "a checkpoint's file name cannot hold :"),
        ({"groups": 2, "per_group": ["mcc"], "measures": ["iam"]}, ValueError, r"per_group holds \['mcc'\]"),
        ({"groups": 2, "per_group": "iam"}, TypeError, r"such as \('iam',\)"),
        ({"per_group": ["iam"]}, ValueError, "per_group needs groups"),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("binary", **arguments)


@pytest.mark.parametrize("call", ["update", "forward"])
def test_group_without_groups_raises(call):
    preds, target, group = samples()
    for metric in (ImbalanceReport("multiclass", num_classes=3), imbtorch.Accuracy("multiclass", num_classes=3)):
        with pytest.raises(ValueError, match=r"without groups; construct an ImbalanceReport with groups=\[...\]"):
            getattr(metric, call)(preds, target, group=group)
    with pytest.raises(ValueError, match=r"use update\(preds, target, group=indices\)"):
        getattr(ImbalanceReport("multiclass", num_classes=3, groups=3), call)(preds, target)


@pytest.mark.parametrize(
    ("group", "error", "text"),
    [
        (torch.zeros(5, dtype=torch.long), ValueError, r"group must hold one value per sample: shape \[600\]"),
        (torch.zeros(600), TypeError, "group must hold integers, got torch.float32"),
        (1.5, TypeError, "group must be a tensor"),
        (True, TypeError, "group must be a tensor"),
        (3, ValueError, r"group holds 3 but the metric has groups 0..2 \(600 of 600 values\)"),
        (torch.full((600,), -1), ValueError, "group holds -1"),
    ],
)
def test_groups_that_do_not_fit(group, error, text):
    preds, target, _ = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=3)
    with pytest.raises(error, match=text):
        report.update(preds, target, group=group)
    assert not report.local_confmat.any()


def test_errors_about_named_groups_name_them():
    preds, target, _ = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=["north", "south"])
    expected = r"has groups 0\.\.1 \(north, south\) \(600 of 600 values\); add its name to groups="
    for group in (2, torch.full((600,), 2)):
        with pytest.raises(ValueError, match=f"group holds 2 but the metric {expected}"):
            report.update(preds, target, group=group)
    with pytest.raises(TypeError, match=r"group must be the index of a group, got 'south'; its index is 1$"):
        report.update(preds, target, group="south")
    with pytest.raises(TypeError, match=r"or an int, got 'west'$"):
        report.update(preds, target, group="west")
    many = ImbalanceReport("multiclass", num_classes=3, groups=[f"site {index}" for index in range(21)])
    with pytest.raises(ValueError, match=r"0\.\.20 \(site 0, .*, site 19, \.\.\.\) \(600 of"):
        many.update(preds, target, group=21)


@pytest.mark.parametrize("path", ["read", "masked"])
def test_groups_out_of_range_are_tallied(path):
    preds, target, group = samples()
    wrong = group.clone()
    wrong[:4] = torch.tensor([3, -1, 2**40, 7])
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES, on_invalid="warn")
    updated(report, path, preds, target, group=wrong)
    with pytest.warns(UserWarning, match="did not count 4 of the samples it was given: 4 groups out of range"):
        values = report.compute()
    rest = ImbalanceReport("multiclass", num_classes=3, groups=SITES)
    rest.update(preds[4:], target[4:], group=group[4:])
    assert values == rest.compute()


def test_the_group_of_an_ignored_sample_does_not_matter():
    preds, target, group = samples()
    target[:3], group[:3] = -1, 99
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES, ignore_index=-1)
    report.update(preds, target, group=group)
    assert int(report.local_confmat.sum()) == 597


def test_the_constructor_speaks_of_much_memory():
    with pytest.warns(UserWarning, match=r"the counts of 2000 groups take 160 MB, .*; state='margins' takes less"):
        ImbalanceReport("multiclass", num_classes=100, groups=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = ImbalanceReport("multiclass", num_classes=100, groups=2000, state="margins")
    assert state_of(report).numel() == 2000 * 300 + 8  # as many times as large, and no more


# --- with everything else -------------------------------------------------------------------------------------------


def test_intervals_are_those_of_each_group_alone():
    report = filled(measures=["iam"], per_class=(), intervals=True)
    values = report.compute()
    preds, target, group = samples()
    for index, site in enumerate(SITES):
        alone = ImbalanceReport("multiclass", num_classes=3, measures=["iam"], per_class=(), intervals=True)
        alone.update(preds[group == index], target[group == index])
        assert values[f"iam/{site}_low"] == alone.compute()["iam_low"]
        assert values[f"iam/{site}_high"] == alone.compute()["iam_high"]
    assert "iam_worst_low" not in values


def test_the_table_has_a_row_for_each_group():
    report = filled(measures=["iam", "mcc"], per_group=["iam"])
    values, table = report.compute(), report.table()
    _, _, group = samples()
    assert {name: row["support"] for name, row in table["group"].items()} == {
        site: int((group == index).sum()) for index, site in enumerate(SITES)
    }
    assert table["group"]["site B"]["iam"] == values["iam/site B"].item()
    assert set(table.to_dict()["group"]["site C"]) == {"support", "iam", "mcc"}
    assert any(line.split()[:2] == ["site", "A"] for line in str(table).splitlines())


def test_the_result_holds_the_counts_of_each_group():
    report = filled()
    preds, target, group = samples()
    expected = [sklearn_metrics.confusion_matrix(target[group == index], preds[group == index]) for index in range(3)]
    kept = report.result().groups
    assert np.array_equal(kept.numpy(), expected)
    assert torch.equal(report.result().counts, kept.sum(0))
    report.update(preds, target, group=group)
    assert np.array_equal(kept.numpy(), expected)  # a copy
    assert ImbalanceReport("binary").last_result is None


def test_settings_pickle_clone_merge_and_reset():
    report = filled()
    other = ImbalanceReport("multiclass", num_classes=3, groups=SITES[::-1])
    assert "groups=['site A', 'site B', 'site C']" in repr(report)
    assert settings_text(report) != settings_text(other)
    assert state_name(report) != state_name(ImbalanceReport("multiclass", num_classes=3, groups=4))
    assert state_name(report) != state_name(ImbalanceReport("multiclass", num_classes=3))
    for name in ("groups", "per_group"):
        with pytest.raises(AttributeError, match=f"{name} cannot be changed"):
            setattr(report, name, ())
    values = report.compute()
    for each in (pickle.loads(pickle.dumps(report)), report.clone()):
        assert each.compute() == values
    twice = report.clone()
    twice.merge_state(report)
    assert torch.equal(twice.result().groups, 2 * report.result().groups)
    twice.reset()
    assert not twice.local_confmat.any()


def test_a_collection_passes_the_keyword():
    preds, target, group = samples()
    collection = MetricCollection(
        {
            "one": ImbalanceReport("multiclass", num_classes=3, groups=SITES, measures=["iam"], per_class=()),
            "two": ImbalanceReport("multiclass", num_classes=3, groups=SITES, measures=["mcc"], per_class=()),
        }
    )
    for _ in range(2):
        collection.update(preds, target, group=group)
    values = collection.compute()
    assert values["iam_worst"] == filled().compute()["iam_worst"]
    assert values["mcc_worst"] == filled().compute()["mcc_worst"]


# --- several processes ----------------------------------------------------------------------------------------------


def counted_on(rank, world):
    reduced = []
    original = torch.distributed.all_reduce
    torch.distributed.all_reduce = lambda *args, **kwargs: (reduced.append(1), original(*args, **kwargs))[1]
    preds, target, group = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES)
    report.update(preds[rank::world], target[rank::world], group=group[rank::world])
    report.compute()
    reduced.clear()  # of the comparison of settings
    return {name: value.item() for name, value in report.compute().items()}, len(reduced)


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes(world):
    expected = {name: value.item() for name, value in filled().compute().items()}
    assert launch(world, counted_on) == [(expected, 1)] * world


def a_site_each(rank, world):
    preds, target, group = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES)
    some = group == rank
    report.update(preds[some], target[some], group=rank)
    return report.compute()["iam_worst"].item()


def test_a_process_for_each_group():
    assert launch(3, a_site_each) == [filled().compute()["iam_worst"].item()] * 3


def wrong_on_one(rank, world):
    preds, target, group = samples()
    report = ImbalanceReport("multiclass", num_classes=3, groups=SITES)
    report.update(preds, target, group=group + 9 * rank)
    with pytest.raises(ValueError, match=r"did not count 600 of .*: 600 groups out of range"):
        report.compute()
    other = ImbalanceReport("multiclass", num_classes=3, groups=SITES if rank else SITES[::-1])
    with pytest.raises(RuntimeError, match="not set up alike"):
        other.compute()


def test_all_processes_raise_what_one_finds():
    launch(2, wrong_on_one)


# --- positions within a sample ---------------------------------------------------------------------------------------

PLACES = {"binary": (4, 3), "two columns": (4, 3), "multilabel": (4, 2, 3), "multiclass": (4, 3)}  # of the target


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("within", ["one group a sample", "groups differ within a sample"])
@pytest.mark.parametrize("kind", PLACES)
def test_counts_of_positions_are_those_of_their_groups(kind, within, on_device, request):
    if on_device:
        request.getfixturevalue("accelerator")
    generator = torch.Generator().manual_seed(0)
    shape = PLACES[kind]
    classes = 3 if kind == "multiclass" else 2
    target = torch.randint(classes, shape, generator=generator)
    target[0, ..., 0], target[2] = 255, 255  # the first position of a sample, and all of another one
    columns = {"two columns": (2,), "multiclass": (3,)}.get(kind, ())
    scores = torch.rand(shape[0], *columns, *shape[1:], generator=generator)
    scores = scores / scores.sum(1, keepdim=True) if columns else scores
    group = torch.randint(3, shape if "differ" in within else shape[:1], generator=generator)
    size = {"multilabel": {"num_labels": 2}, "multiclass": {"num_classes": 3}}.get(kind, {})
    counting = Counting.of("binary" if kind == "two columns" else kind, **size, ignore_index=255, groups=3)
    state = counting.zeros()
    batch = counting.with_axes(counting.read(scores, target), target, group, None)
    counting.add_(state, batch, defer=lambda: False)
    wanted = torch.zeros(3, *[2] * (kind == "multilabel"), classes, classes, dtype=torch.int64)
    for place in np.ndindex(*shape):
        if target[place] != 255:
            row = scores.movedim(1, -1)[place] if columns else scores[place]
            label = place[1:2] if kind == "multilabel" else ()
            of_group = group[place] if "differ" in within else group[place[0]]
            wanted[(of_group, *label, target[place], row.argmax() if columns else int(row > 0.5))] += 1
    assert torch.equal(counting.counts(state, of_groups=True), wanted)


@pytest.mark.parametrize(("wrong", "group"), [(3, 0), (-1, 1)])
def test_a_target_out_of_range_is_no_row_of_the_next_group(wrong, group):
    report = ImbalanceReport("multiclass", num_classes=3, measures=["iam"], groups=2)
    with pytest.raises(ValueError, match=f"target holds class {wrong}"):
        report.update(torch.eye(3), torch.tensor([0, wrong, 2]), group=group)
    assert report.counts().sum() == 0


def test_names_in_the_place_of_indices_of_groups_are_not_all_listed():
    report = ImbalanceReport("binary", groups=["north", "south"])
    text = r"^group must be a tensor of group indices, got names; of these, torch\.tensor\(\[0, 0, 0, \.\.\.\]\)$"
    with pytest.raises(TypeError, match=text):
        report.update(torch.rand(100), torch.arange(100) % 2, group=["north"] * 100)


def test_the_table_counts_the_positives_of_each_group():
    target, site = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 1])
    report = ImbalanceReport("binary", measures=["accuracy"], groups=["north", "south"])
    report.update(target, target, group=site)
    table = report.table()["group"]
    assert {name: (row["support"], row["positives"]) for name, row in table.items()} == {
        "north": (3, 1),
        "south": (3, 2),
    }
    labels = ImbalanceReport("multilabel", num_labels=2, measures=["accuracy"], groups=["north", "south"])
    labels.update(*[torch.stack((target, 1 - target), 1)] * 2, group=site)
    assert [row["positives"] for row in labels.table()["group"].values()] == [3, 3]
    several = ImbalanceReport("multiclass", 3, measures=["accuracy"], groups=["north", "south"])
    several.update(*[torch.arange(6) % 3] * 2, group=site)
    assert "positives" not in str(several.table())


@pytest.mark.parametrize("names", [["0", "1"], ["a", "b", "c"], ["x", "b"]])
@pytest.mark.parametrize("grouped_by", ["site", None])
def test_groups_that_are_called_like_a_class_are_named_with_their_column(names, grouped_by):
    """All of them or none, in keys, rows, the table and a copy; values are scikit-learn's of each group."""
    classes = ["0", "1", "b"]
    groups = names if grouped_by is None else {grouped_by: names}
    report = imbtorch.ImbalanceReport("multiclass", class_names=classes, groups=groups, measures=["accuracy"])
    rng = np.random.default_rng(0)
    preds, target = rng.integers(3, size=(2, 90))
    group = np.arange(90) % len(names)
    report.update(*map(torch.from_numpy, (preds, target)), group=torch.from_numpy(group))
    found = report.compute()
    shown = names if {*names}.isdisjoint(classes) else [f"{grouped_by or 'group'}={name}" for name in names]
    for index, name in enumerate(shown):
        held = group == index
        expected = sklearn_metrics.accuracy_score(target[held], preds[held])
        assert found[f"accuracy/{name}"].item() == pytest.approx(expected)
    assert [key for key in found if key.startswith("accuracy/")] == [f"accuracy/{name}" for name in shown]
    result = pickle.loads(pickle.dumps(report.result()))
    assert all(name in str(result.table()) for name in shown)
    assert result[f"accuracy/{shown[0]}"] == found[f"accuracy/{shown[0]}"]
