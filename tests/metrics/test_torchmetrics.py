"""A theme of several modules: metrics within torchmetrics (collections, wrappers, composition, shared counts)."""

import copy
import pickle
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rooms import Counting, state_of
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.classification import BinaryF1Score, MulticlassConfusionMatrix, MulticlassRecall
from torchmetrics.wrappers import BootStrapper, ClasswiseWrapper, MinMaxMetric, Running

import imbtorch
from imbtorch import (
    Accuracy,
    ClassBalanceAccuracy,
    ConfusionEntropy,
    ConfusionMatrix,
    Dominance,
    FScore,
    GeometricMean,
    ImbalanceReport,
    IndexBalancedAccuracy,
    Precision,
    Recall,
)

SIZE = 3


def batch(seed, samples=30):
    """Class indices; every class is among the first three targets."""
    generator = torch.Generator().manual_seed(seed)
    preds, target = torch.randint(SIZE, (2, samples), generator=generator)
    target[:SIZE] = torch.arange(SIZE)
    return preds, target


def metrics():
    """Metrics that count alike, and one that does not."""
    return {
        "matrix": ConfusionMatrix("multiclass", SIZE),
        "recall": Recall("multiclass", SIZE, average="none"),
        "f": FScore("multiclass", SIZE, beta=2.0),
        "lean": Recall("multiclass", SIZE, state="margins", average="none"),
        "other": ConfusionMatrix("multiclass", SIZE, ignore_index=0),
    }


def expected(batches):
    """What these metrics report of batches, by scikit-learn."""
    preds, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
    kept = target != 0
    recalls = sklearn_metrics.recall_score(target, preds, average=None)
    return {
        "matrix": sklearn_metrics.confusion_matrix(target, preds),
        "recall": recalls,
        "f": sklearn_metrics.fbeta_score(target, preds, beta=2.0, average="macro"),
        "lean": recalls,
        "other": sklearn_metrics.confusion_matrix(target[kept], preds[kept], labels=range(SIZE)),
    }


def assert_reports(values, batches, rename="{}"):
    wanted = {rename.format(name): value for name, value in expected(batches).items()}
    assert set(values) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(values[name].double(), torch.as_tensor(value).double(), rtol=1e-6, atol=1e-6)


# --- collections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute_groups", [True, False])
@pytest.mark.parametrize("first", ["update", "forward"])
def test_collection(first, compute_groups):
    data = [batch(seed) for seed in range(4)]
    collection = MetricCollection(metrics(), prefix="val_", postfix="_x", compute_groups=compute_groups)
    value = getattr(collection, first)(*data[0])
    if first == "forward":
        assert_reports(value, data[:1], "val_{}_x")
    collection.update(preds=data[1][0], target=data[1][1])
    assert_reports(collection.compute(), data[:2], "val_{}_x")
    copies = {
        "train_{}_x": collection.clone(prefix="train_"),
        "val_{}_x": copy.deepcopy(collection),
        "val_{}_y": pickle.loads(pickle.dumps(collection)).clone(postfix="_y"),
    }
    collection.update(*data[2])
    assert_reports(collection(*data[3]), data[3:], "val_{}_x")
    assert_reports(collection.compute(), data, "val_{}_x")
    for rename, each in copies.items():
        assert_reports(each.compute(), data[:2], rename)
        each.update(*data[3])
        assert_reports(each.compute(), [*data[:2], data[3]], rename)
    collection.reset()
    collection.update(*data[0])
    assert_reports(collection.compute(), data[:1], "val_{}_x")


@pytest.mark.parametrize(
    "order",
    [
        "update forward forward compute",
        "update reset forward compute",
        "forward update compute forward compute",
        "forward forward update update compute",
        "update compute forward update compute reset update compute",
        "reset update update forward update forward compute",
        "update update reset forward forward update compute",
    ],
)
@pytest.mark.parametrize("compute_groups", [True, False])
def test_orders_of_update_forward_and_reset(order, compute_groups):
    collection, seen = MetricCollection(metrics(), compute_groups=compute_groups), []
    for seed, act in enumerate(order.split()):
        if act == "reset":
            collection.reset()
            seen = []
        elif act == "compute":
            assert_reports(collection.compute(), seen)
        else:
            seen.append(batch(seed))
            value = getattr(collection, act)(*seen[-1])
            if act == "forward":
                assert_reports(value, seen[-1:])


ACTS = ("update", "forward", "compute", "reset", "clone", "pickle", "index", "iterate", "values", "convert", "save")


@pytest.mark.filterwarnings("ignore:.*has counted no sample")
@given(acts=st.lists(st.sampled_from(ACTS), min_size=1, max_size=14), compute_groups=st.booleans())
def test_any_sequence_equals_separate_metrics(acts, compute_groups):
    collection, apart, seen = MetricCollection(metrics(), compute_groups=compute_groups), metrics(), []
    collection.persistent(True)
    left = []  # former selves, which must not change any more
    for seed, act in enumerate([*acts, "compute"]):
        if act in ("update", "forward"):
            seen.append(batch(seed, 10))
            values = getattr(collection, act)(*seen[-1])
            others = {name: getattr(metric, act)(*seen[-1]) for name, metric in apart.items()}
            if act == "forward":
                assert all(torch.equal(values[name], others[name]) for name in apart)
                assert_reports(values, seen[-1:])
        elif act == "compute":
            values = collection.compute()
            assert all(torch.equal(values[name], metric.compute()) for name, metric in apart.items() if seen)
            if seen:
                assert_reports(values, seen)
        elif act == "reset":
            collection.reset()
            for metric in apart.values():
                metric.reset()
            seen = []
        elif act in ("clone", "pickle"):
            left.append((collection, list(seen)))
            collection = collection.clone() if act == "clone" else pickle.loads(pickle.dumps(collection))
        elif act == "index":
            assert int(collection["matrix"].local_confmat.sum()) == 10 * len(seen)
        elif act == "iterate":
            assert {
                int(metric.local_margins.actual.sum()) for name, metric in collection.items() if name != "other"
            } == {10 * len(seen)}
        elif act == "values":
            for metric in collection.values(copy_state=False):
                assert metric.update_count == len(seen)
        elif act == "convert":
            collection.half().to(torch.float64).set_dtype(torch.float32)
        elif act == "save":
            collection.load_state_dict(collection.state_dict())
    for former, then in left:
        if then:
            assert_reports(former.compute(), then)


def test_a_metric_taken_out_counts_apart():
    collection = MetricCollection(metrics())
    data = [batch(seed) for seed in range(3)]
    collection.update(*data[0])
    taken = collection["recall"]  # its state becomes a copy
    taken.update(*data[1])
    collection["matrix"].update(*data[2])
    assert int(collection["f"].local_confmat.sum()) == 30
    assert int(taken.local_confmat.sum()) == int(collection["matrix"].local_confmat.sum()) == 60


@pytest.mark.parametrize("name", ["f", "matrix", "recall"])
@pytest.mark.parametrize("act", ["update", "forward", "reset", "merge_state", "load_state_dict"])
def test_what_one_member_does_leaves_the_others(act, name):
    data = batch(0)
    collection = MetricCollection(metrics())
    collection.persistent(True)
    collection.update(*data)
    members = dict(collection.items(copy_state=False))
    source = copy.deepcopy(members[name])
    source.update(*data)
    arguments = {
        "update": data,
        "forward": data,
        "reset": (),
        "merge_state": (source,),
        "load_state_dict": (source.state_dict(),),
    }[act]
    getattr(members[name], act)(*arguments)
    totals = {each: int(members[each].local_confmat.sum()) for each in ("f", "matrix", "recall")}
    assert totals.pop(name) == {"reset": 0, "merge_state": 90}.get(act, 60)
    if act != "update" or name != groups(collection)[0][0]:  # the leader's updates may be those of its group
        assert set(totals.values()) == {30}


@pytest.mark.parametrize("act", ["update", "forward"])
@pytest.mark.parametrize("order", [("f", "matrix", "recall"), ("recall", "matrix", "f")])
def test_members_that_count_one_by_one(order, act):
    members = metrics()
    data = [batch(seed) for seed in range(3)]
    MetricCollection(members).update(*data[0])
    for each in data[1:]:
        for name in order:
            getattr(members[name], act)(*each)
    for name in order:
        assert int(members[name].local_confmat.sum()) == 90


def test_torchmetrics_own_members_count_into_one_tensor():
    """The case for which shared states have a rule of their own here."""
    members = {name: MulticlassConfusionMatrix(SIZE) for name in ("one", "other")}
    data = [batch(seed) for seed in range(3)]
    MetricCollection(members).update(*data[0])
    for each in data[1:]:
        for metric in members.values():
            metric.update(*each)
    assert [int(metric.confmat.sum()) for metric in members.values()] == [150, 150]


@pytest.mark.parametrize("act", ["update", "forward"])
def test_metrics_added_later(act):
    collection = MetricCollection(metrics())
    data = [batch(seed) for seed in range(3)]
    collection.update(*data[0])
    collection.add_metrics({"late": ConfusionMatrix("multiclass", SIZE)})
    for each in data[1:]:
        getattr(collection, act)(*each)
    values = collection.compute()
    assert values.pop("late").tolist() == expected(data[1:])["matrix"].tolist()
    assert_reports(values, data)


def test_beside_metrics_of_torchmetrics():
    collection = MetricCollection({"ours": Recall("multiclass", SIZE), "theirs": MulticlassRecall(SIZE)})
    data = [batch(seed) for seed in range(3)]
    for seed in range(2):
        collection.update(preds=data[seed][0], target=data[seed][1])
    forwarded = collection(*data[2])
    for values, part in ((forwarded, data[2:]), (collection.compute(), data)):
        preds, target = (torch.cat(parts) for parts in zip(*part, strict=True))
        assert values["ours"].item() == pytest.approx(recall(preds, target))
        assert values["theirs"].item() == pytest.approx(recall(preds, target))
    assert groups(collection) == [["ours"], ["theirs"]]


def groups(collection):
    return sorted(sorted(group) for group in collection.compute_groups.values())


def test_metrics_that_count_alike_share_one_update():
    collection = MetricCollection(metrics())
    collection.update(*batch(0))
    assert groups(collection) == [["f", "matrix", "recall"], ["lean"], ["other"]]
    with patch.object(Counting, "add_", autospec=True, side_effect=Counting.add_) as counted:
        collection.update(*batch(1))
    assert counted.call_count == 3
    collection.compute()
    members = dict(collection.items(copy_state=False))
    states = [state_of(members[name]) for name in ("f", "matrix", "recall")]
    assert states[0] is states[1] is states[2]
    assert_reports(collection.compute(), [batch(0), batch(1)])


def test_groups_may_be_given():
    collection = MetricCollection(metrics(), compute_groups=[["f", "matrix", "recall"], ["lean"], ["other"]])
    data = [batch(seed) for seed in range(3)]
    collection.update(*data[0])
    assert_reports(collection(*data[1]), data[1:2])
    collection.update(*data[2])
    assert_reports(collection.compute(), data)


def binary(preds, target):
    return torch.tensor(preds), torch.tensor(target)


# two ways to count that give the same cells for a first batch, and a second batch on which they part
PARTING = {
    "threshold": (
        lambda: [ConfusionMatrix("binary"), ConfusionMatrix("binary", threshold=0.9)],
        binary([0.1, 0.95], [0, 1]),
        binary([0.6, 0.7], [0, 1]),
    ),
    "logits": (
        lambda: [ConfusionMatrix("binary"), ConfusionMatrix("binary", logits=True)],
        binary([0, 1], [0, 1]),
        binary([0.2, 0.7], [0, 1]),
    ),
    "ignore_index": (
        lambda: [ConfusionMatrix("binary"), ConfusionMatrix("binary", ignore_index=0)],
        binary([1, 0], [1, 1]),
        binary([1, 0], [1, 0]),
    ),
    "two ignore_index": (
        lambda: [ConfusionMatrix("multiclass", 3, ignore_index=index) for index in (1, 2)],
        binary([0, 2], [0, 0]),
        binary([0, 2], [0, 2]),
    ),
    "task": (
        lambda: [ConfusionMatrix("binary"), ConfusionMatrix("multilabel", num_labels=1)],
        binary([[1], [0]], [[1], [0]]),
        binary([[1], [0]], [[0], [0]]),
    ),
    "binary or two classes": (
        lambda: [ConfusionMatrix("binary"), ConfusionMatrix("multiclass", 2)],
        binary([1, 0], [1, 0]),
        binary([1, 0], [0, 0]),
    ),
    "number of classes": (
        lambda: [ConfusionMatrix("multiclass", size) for size in (3, 4)],
        binary([1, 0], [1, 0]),
        binary([1, 0], [0, 0]),
    ),
    "layout": (  # 3 x 3 cells both
        lambda: [Recall("multiclass", 3, state=state, average="none") for state in ("matrix", "margins")],
        binary([], []),
        binary([1, 0, 2], [0, 1, 2]),
    ),
}


@pytest.mark.parametrize(("build", "first", "second"), PARTING.values(), ids=PARTING)
def test_metrics_that_count_differently_are_never_merged(build, first, second):
    first = tuple(part.long() if part.numel() == 0 else part for part in first)
    collection, apart = MetricCollection(dict(zip("ab", build(), strict=True))), build()
    for data in (first, second, second):
        collection.update(*data)
        for metric in apart:
            metric.update(*data)
    assert groups(collection) == [["a"], ["b"]]
    for name, metric in zip("ab", apart, strict=True):
        assert torch.equal(collection[name].compute(), metric.compute())


def test_torchmetrics_merges_by_the_first_batch():
    first, second = PARTING["threshold"][1:]
    collection = MetricCollection({"a": BinaryF1Score(threshold=0.5), "b": BinaryF1Score(threshold=0.9)})
    ours = MetricCollection({"a": FScore("binary", threshold=0.5), "b": FScore("binary", threshold=0.9)})
    for data in (first, second):
        collection.update(*data)
        ours.update(*data)
    preds, target = (torch.cat(parts) for parts in zip(first, second, strict=True))
    wanted = {name: sklearn_metrics.f1_score(target, preds > limit) for name, limit in (("a", 0.5), ("b", 0.9))}
    assert wanted["a"] != wanted["b"]
    theirs = collection.compute()
    assert theirs["a"] == theirs["b"]  # one of them is wrong
    assert {name: value.item() for name, value in ours.compute().items()} == pytest.approx(wanted)


# --- wrappers --------------------------------------------------------------------------------------------------------


def recall(preds, target):
    return sklearn_metrics.recall_score(target, preds, average="macro")


@pytest.mark.parametrize(
    ("name", "metric", "best"),
    [
        ("Recall", Recall("multiclass", SIZE), max),
        ("ConfusionEntropy", ConfusionEntropy("multiclass", SIZE), min),
    ],
)
def test_tracker_knows_the_direction(name, metric, best):
    tracker = MetricTracker(metric)
    for seed in range(4):
        tracker.increment()
        tracker.update(*batch(seed))
        tracker(*batch(seed + 10))
    values = tracker.compute_all().tolist()
    assert len(set(values)) == 4
    value, step = tracker.best_metric(return_step=True)
    assert (value, step) == (best(values), values.index(best(values)))
    joined = [torch.cat(parts) for parts in zip(batch(2), batch(12), strict=True)]
    if name == "Recall":
        assert values[2] == pytest.approx(recall(*joined))


def test_tracker_of_a_collection():
    pair = {"cba": ClassBalanceAccuracy("multiclass", SIZE), "recall": Recall("multiclass", SIZE)}
    tracker = MetricTracker(MetricCollection(pair))
    for seed in range(3):
        tracker.increment()
        tracker.update(*batch(seed))
    assert tracker.compute_all()["recall"].tolist() == pytest.approx([recall(*batch(seed)) for seed in range(3)])
    best, step = tracker.best_metric(return_step=True)
    values = [recall(*batch(seed)) for seed in range(3)]
    assert best["recall"] == pytest.approx(max(values))
    assert step["recall"] == values.index(max(values))


def test_tracker_of_a_metric_without_direction_must_be_told():
    with pytest.raises(AttributeError, match="higher_is_better"):
        MetricTracker(Dominance("binary"), maximize=None)
    assert MetricTracker(Dominance("binary"), maximize=True).maximize


def test_classwise_wrapper():
    metric = ClasswiseWrapper(Recall("multiclass", SIZE, average="none"), labels=["cat", "dog", "owl"])
    forwarded = metric(*batch(0))
    metric.update(*batch(1))
    joined = [torch.cat(parts) for parts in zip(batch(0), batch(1), strict=True)]
    for values, (preds, target) in ((forwarded, batch(0)), (metric.compute(), joined)):
        wanted = sklearn_metrics.recall_score(target, preds, average=None)
        assert {name: value.item() for name, value in values.items()} == pytest.approx(
            {f"recall_{name}": value for name, value in zip(("cat", "dog", "owl"), wanted, strict=True)}
        )
    collection = MetricCollection({"recalls": metric.clone(), "matrix": ConfusionMatrix("multiclass", SIZE)})
    collection.update(*batch(2))
    assert {"recall_cat", "recall_dog", "recall_owl", "matrix"} == set(collection.compute())


def test_min_max():
    metric = MinMaxMetric(Recall("multiclass", SIZE))
    preds, target = zip(*(batch(seed) for seed in range(4)), strict=True)
    values = []
    for last in range(4):
        metric.update(preds[last], target[last])
        result = metric.compute()
        values.append(recall(torch.cat(preds[: last + 1]), torch.cat(target[: last + 1])))
        assert result["raw"].item() == pytest.approx(values[-1])
        assert result["min"].item() == pytest.approx(min(values))
        assert result["max"].item() == pytest.approx(max(values))
    assert len(set(values)) == 4


def test_min_max_of_one_value_of_a_report():
    report = ImbalanceReport("multiclass", num_classes=SIZE)
    metric, values = MinMaxMetric(report["recall"]), []
    for seed in range(3):
        report.update(*batch(seed))
        result = metric.compute()
        parts = [torch.cat(each) for each in zip(*(batch(each) for each in range(seed + 1)), strict=True)]
        values.append(recall(*parts))
        wanted = {"raw": values[-1], "max": max(values), "min": min(values)}
        assert {name: value.item() for name, value in result.items()} == pytest.approx(wanted)
    assert len(set(values)) == 3
    with pytest.raises(TypeError, match="call update of the report itself, once for all values"):
        metric.update(*batch(0))


@pytest.mark.parametrize("act", ["update", "forward"])
def test_running_window(act):
    metric = Running(ConfusionMatrix("multiclass", SIZE), window=2)
    data = [batch(seed, 10 + seed) for seed in range(5)]
    for seed, each in enumerate(data):
        getattr(metric, act)(*each)
        preds, target = (torch.cat(parts) for parts in zip(*data[max(seed - 1, 0) : seed + 1], strict=True))
        assert metric.compute().tolist() == sklearn_metrics.confusion_matrix(target, preds).tolist()
    metric.reset()
    metric.update(*data[0])
    assert metric.compute().tolist() == sklearn_metrics.confusion_matrix(*data[0][::-1]).tolist()


@pytest.mark.parametrize("strategy", ["poisson", "multinomial"])
def test_bootstrapper(strategy):
    torch.manual_seed(0)
    preds, target = batch(0, 400)
    metric = BootStrapper(
        Accuracy("multiclass", SIZE), num_bootstraps=50, mean=True, std=True, raw=True, sampling_strategy=strategy
    )
    metric.update(preds, target)
    share = sklearn_metrics.accuracy_score(target, preds)
    result = metric.compute()
    assert len(set(result["raw"].tolist())) > 10
    assert result["mean"].item() == pytest.approx(share, abs=0.02)
    spread = (share * (1 - share) / 400) ** 0.5
    assert spread / 1.5 < result["std"].item() < 1.5 * spread
    if strategy == "multinomial":
        assert [int(each.local_confmat.sum()) for each in metric.metrics] == [400] * 50


def test_composition():
    first, second = Recall("multiclass", SIZE), Precision("multiclass", SIZE, state="margins")
    total = first + second
    scaled, gap = 2 * Recall("multiclass", SIZE), abs(Recall("multiclass", SIZE) - 1)
    data = [batch(seed) for seed in range(2)]
    preds, target = (torch.cat(parts) for parts in zip(*data, strict=True))
    precision = sklearn_metrics.precision_score(target, preds, average="macro")
    assert (total(*data[0])).item() == pytest.approx(
        recall(*data[0]) + sklearn_metrics.precision_score(data[0][1], data[0][0], average="macro")
    )
    total.update(*data[1])
    assert total.compute().item() == pytest.approx(recall(preds, target) + precision)
    for metric, wanted in ((scaled, 2 * recall(preds, target)), (gap, 1 - recall(preds, target))):
        for each in data:
            metric.update(*each)
        assert metric.compute().item() == pytest.approx(wanted)
        metric.reset()
        metric.update(*data[0])
        metric.update(*data[1])
        assert metric.compute().item() == pytest.approx(wanted)
    matrix = ConfusionMatrix("multiclass", SIZE)
    both = matrix + matrix.clone()
    both.update(*data[0])
    assert both.compute().tolist() == (2 * sklearn_metrics.confusion_matrix(*data[0][::-1])).tolist()


# --- arguments of torchmetrics.Metric --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"sync_on_compute": False},
        {"dist_sync_on_step": True},
        {"compute_with_cache": False},
        {"compute_on_cpu": True},
        {"process_group": None},
        {"dist_sync_fn": lambda state, group: [state]},
        {"distributed_available_fn": lambda: False},
    ],
    ids=lambda arguments: "-".join(arguments),
)
def test_arguments_of_torchmetrics(arguments):
    for build in (Recall, GeometricMean, IndexBalancedAccuracy, ConfusionMatrix):
        metric = build("multiclass", SIZE, **arguments)
        value = metric(*batch(0))
        assert torch.equal(metric.compute(), value)
    for name, value in arguments.items():
        assert getattr(metric, name) is value
    with pytest.raises(TypeError, match="Recall has no argument 'sync'"):
        Recall("binary", sync=True)
    with pytest.raises(ValueError, match="Expected keyword argument `sync_on_compute` to be a `bool`"):
        Recall("binary", sync_on_compute="no")


@pytest.mark.parametrize("grouped", [False, True])
def test_gathering_function_of_ones_own(grouped):
    calls = []

    def gather(state, group):
        calls.append(group)
        return [state, state if len(calls) == 1 else 2 * state]  # settings are equal, counts are not

    arguments = {"dist_sync_fn": gather, "distributed_available_fn": lambda: True, "process_group": "some"}
    metric = ConfusionMatrix("multiclass", SIZE, **arguments)
    other = Recall("multiclass", SIZE, **arguments)
    preds, target = batch(0)
    if grouped:
        MetricCollection({"matrix": metric, "recall": other}).update(preds, target)
    else:
        metric.update(preds, target)
    matrix = sklearn_metrics.confusion_matrix(target, preds)
    for _ in range(2):
        assert metric.compute().tolist() == (3 * matrix).tolist()
        assert metric.local_confmat.tolist() == matrix.tolist()
    assert calls == ["some"] * 3  # the first sync compares settings first
    metric.update(preds, target)
    assert metric.local_confmat.tolist() == (2 * matrix).tolist()
    with metric.sync_context(dist_sync_fn=gather):
        assert metric.local_confmat.tolist() == (6 * matrix).tolist()
    assert metric.local_confmat.tolist() == (2 * matrix).tolist()


def test_local_counts_come_back_where_compute_raises():
    metric = Recall(
        "multiclass",
        SIZE,
        dist_sync_fn=lambda state, group: [state, state],
        distributed_available_fn=lambda: True,
    )
    metric.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 9]))
    for _ in range(2):
        with pytest.raises(ValueError, match="did not count 2 of the samples it was given: 2 targets out of range"):
            metric.compute()
        assert metric.local_confmat.sum() == 2
    metric.reset()
    metric.update(*batch(0))
    assert metric.compute().item() == pytest.approx(recall(*batch(0)))


def test_a_failed_update_of_a_group_is_not_made_up_for_later():
    members = {"f": imbtorch.FScore("multiclass", 3), "r": imbtorch.Recall("multiclass", 3), "a": Accuracy("binary")}
    collection = MetricCollection(members)
    good = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
    collection.update(*good)
    with pytest.raises(ValueError, match="holds class 5"):
        collection.update(torch.tensor([5]), torch.tensor([0]))
    for name, metric in members.items():
        metric.update(*good)
        assert int(members["a"].local_confmat.sum()) == (6 if name == "a" else 3), name
    assert [int(metric.local_confmat.sum()) for metric in members.values()] == [6, 6, 6]


def test_a_collection_within_a_collection_is_told_where_a_report_goes():
    with pytest.raises(AttributeError, match="add the report to the outer collection itself"):
        MetricCollection({"in": MetricCollection({"report": ImbalanceReport("binary")})})


def test_a_tracker_of_a_report_gives_all_steps():
    tracker = MetricTracker(ImbalanceReport("multiclass", num_classes=SIZE), maximize=True)
    for seed in range(3):
        tracker.increment()
        tracker.update(*batch(seed))
    assert tracker.compute()["recall"] == pytest.approx(recall(*batch(2)))
    assert tracker.compute_all()["recall"].tolist() == pytest.approx([recall(*batch(seed)) for seed in range(3)])


# --- TorchScript ----------------------------------------------------------------------------------------------------


class MaskedReport(ImbalanceReport):
    def update(self, preds, target, mask):
        super().update(preds[mask], target[mask])

    @property
    def shown(self):
        return f"{self.task} {len(self)}"


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:This property will be removed in 2.0.0:DeprecationWarning"
)
@pytest.mark.parametrize(
    "made",
    [
        lambda: Accuracy("binary", threshold=0.3),
        lambda: ConfusionMatrix("multiclass", SIZE, normalize="true"),
        lambda: ImbalanceReport("multilabel", num_labels=2, groups=["A"], prevalence=[0.2, 0.3], intervals=True),
        lambda: imbtorch.ThresholdSweep("f1", also=["auc"]),
        lambda: imbtorch.HandTill(3),
        lambda: MaskedReport("binary"),
        lambda: MetricCollection([Accuracy("binary"), Recall("binary")]),
    ],
)
def test_a_module_that_holds_one_can_be_scripted(made, tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.metric = torch.nn.Linear(2, 3), made()

        def forward(self, inputs):
            return self.net(inputs)

    module = Net()
    torch.jit.script(module).save(tmp_path / "net.pt")
    inputs = torch.rand(5, 2)
    assert torch.equal(torch.jit.load(tmp_path / "net.pt")(inputs), module(inputs))
