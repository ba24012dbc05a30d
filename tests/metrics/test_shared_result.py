"""Values of a report as metrics: one shared result, fresh after whatever changes the counts."""

import copy
import itertools
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from report_cases import (
    OVERALL,
    TASKS,
    assert_same,
    column,
    data,
    directed,
    error_rate,
    filled,
    joined,
    numbers,
    peers,
    support_of,
)
from rooms import Readings
from sklearn import metrics as sklearn_metrics
from torchmetrics import Metric, MetricCollection, MetricTracker

import imbtorch
from imbtorch import ImbalanceReport

# --- reading a value ------------------------------------------------------------------------------------------------


def test_children_refuse_to_count():
    report = filled("multiclass")
    before = report.counts()
    with pytest.raises(TypeError, match="'iam' is a value of a report; call update of the report itself"):
        report["iam"].update(*data("multiclass"))
    with pytest.raises(TypeError, match="'iam' is a value of a report; call the report itself"):
        report["iam"](*data("multiclass"))
    assert torch.equal(report.counts(), before)


def test_children_have_no_state():
    report = filled("multiclass")
    report.persistent(True)
    assert list(report.state_dict()) == ["counts_matrix_multiclass_3"]
    assert report["iam"].metric_state == {}
    assert sum(isinstance(module, ImbalanceReport) for module in report.modules()) == 1


class Reader:
    """Reads the next names of a report, each in its turn, and compares them with the peers' values of these batches.

    A name that is read again is computed again; what another name left behind must be noticed to be stale.
    """

    def __init__(self, report):
        self.report, self.names = report, itertools.cycle(OVERALL)

    def check(self, *seeds, names=2):
        expected = peers(*joined(*seeds), "macro")
        for name in itertools.islice(self.names, names):
            assert self.report[name].compute().item() == pytest.approx(expected[name], rel=2e-6, abs=2e-6), name


def test_a_value_is_fresh_after_whatever_changes_the_counts():
    report = filled("multiclass", seed=0)
    reader = Reader(report)
    reader.check(0)
    report.update(*data("multiclass", seed=1))
    reader.check(0, 1)
    report(*data("multiclass", seed=2))
    reader.check(0, 1, 2)
    report.merge_state(filled("multiclass", seed=3))
    reader.check(0, 1, 2, 3)
    report.merge_state(dict(filled("multiclass", seed=4).metric_state))
    reader.check(0, 1, 2, 3, 4)
    saved = filled("multiclass", seed=5)
    saved.persistent(True)
    report.load_state_dict(saved.state_dict())
    reader.check(5)
    report.reset()
    report.update(*data("multiclass", seed=6))
    reader.check(6)
    report.counts_matrix_multiclass_3 = filled("multiclass", seed=7).counts_matrix_multiclass_3
    reader.check(7)
    with torch.inference_mode():
        report.update(*data("multiclass", seed=8))
        reader.check(7, 8)
        report.update(*data("multiclass", seed=9))
        reader.check(7, 8, 9)
    report.update(*data("multiclass", seed=10))
    reader.check(7, 8, 9, 10)


def test_a_value_is_fresh_after_any_number_of_loads():
    """Whatever addresses the replaced states had."""
    report = ImbalanceReport("multiclass", num_classes=3)
    report.persistent(True)
    saved = []
    for seed in range(4):
        each = filled("multiclass", seed=seed)
        each.persistent(True)
        saved.append(each.state_dict())
    reader = Reader(report)
    for turn in range(60):
        for seed in (turn, turn + 1):
            report.load_state_dict(saved[seed % 4])
            report.state_dict()  # hands the state out, so that the next load takes a new one
        reader.check((turn + 1) % 4, names=1)


def test_the_table_is_fresh_after_any_number_of_epochs():
    """Whatever addresses the states had that reset replaced."""
    report = ImbalanceReport("multiclass", num_classes=3)
    for epoch in range(40):
        report.update(*data("multiclass", seed=epoch))
        assert report.metric_state  # hands the state out, so that reset takes a new one
        if epoch % 2 == 0:
            found = column(report.table(), "support")
            assert found == support_of(epoch)
        report.reset()


def test_the_same_name_twice():
    report = filled("multiclass")
    first = report["iam"].compute()
    assert report["iam"].compute() == first
    report.update(*data("multiclass", seed=1))
    assert report["iam"].compute() != first


def test_values_read_one_result(monkeypatch):
    report = filled("multiclass")
    computed = []
    original = Readings.read
    monkeypatch.setattr(Readings, "read", lambda *given: computed.append(1) or original(*given))
    for value in report.values():
        value.compute()
    assert len(computed) == 1
    values = {name: value.compute() for name, value in report.items()}
    assert len(computed) == 2
    assert_same(values, report.compute())


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("first", ["report", "accuracy"])
def test_grouped_in_a_collection(first, inference):
    with torch.inference_mode(inference):
        check_in_a_collection(first)


def check_in_a_collection(first):
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", per_class=())
    accuracy = imbtorch.Accuracy("multiclass", num_classes=3)
    both = {"report": report, "accuracy": accuracy}
    collection = MetricCollection({first: both.pop(first), **both})
    reader = Reader(report)
    for epoch in range(2):
        collection.update(*data("multiclass", seed=0))
        collection.update(*data("multiclass", seed=1))
        assert len(collection.compute_groups) == 1  # one of them counts for both
        reader.check(0, 1)
        collection.update(*data("multiclass", seed=2))
        reader.check(0, 1, 2)
        if epoch:
            collection(*data("multiclass", seed=3))
            reader.check(0, 1, 2, 3)
        assert column(report.table(), "support") == support_of(*range(3 + epoch))
        preds, target = joined(*range(3 + epoch))
        values = numbers(collection.compute())
        assert values["accuracy"] == values["val_accuracy"]
        assert values["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))
        assert set(values) == {"accuracy", *(f"val_{name}" for name in OVERALL)}
        collection.reset()
        assert report.counts().sum() == 0


def test_reset_by_values_happens_once(monkeypatch):
    report = filled("multiclass", prefix="val_")
    resets = []
    original = ImbalanceReport.reset
    monkeypatch.setattr(ImbalanceReport, "reset", lambda self: resets.append(1) or original(self))
    for _ in range(2):
        for value in report.values():
            value.compute()
        for value in report.values():
            value.reset()
        assert report.counts().sum() == 0
        report.update(*data("multiclass"))
    assert len(resets) == 2
    for value in report.values():  # nobody has read it since
        value.reset()
    assert len(resets) == 3
    assert report.counts().sum() == 0


@pytest.mark.parametrize("way", ["loaded", "merged", "set"])
def test_reset_by_a_value_whatever_the_counts_came_from(way):
    report, source = ImbalanceReport("multiclass", num_classes=3), filled("multiclass")
    if way == "loaded":
        source.persistent(True)
        report.load_state_dict(source.state_dict())
    elif way == "merged":
        report.merge_state(source)
    else:
        report.counts_matrix_multiclass_3 = source.counts_matrix_multiclass_3
    assert report.counts().sum() == 60
    report["iam"].reset()
    assert report.counts().sum() == 0
    assert source.counts().sum() == 60


def test_counts_and_values_are_copies():
    for task, state in (("multiclass", "matrix"), ("multiclass", "margins"), ("multilabel", "matrix")):
        report = filled(task, state=state)
        for part in report.counts() if state == "margins" else [report.counts()]:
            part.fill_(7)
        wanted = numbers(filled(task, state=state).compute())
        assert numbers(report.compute()) == wanted
        text = str(report.table())
        for value in report.compute().values():
            value.fill_(7.0)
        report.compute().clear()
        assert str(report.table()) == text
        report["cba"].compute().fill_(7.0)
        assert report["iam"].compute() == wanted["iam"]
        assert str(report.table()) == text


# --- copies, devices, checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda report: report.clone(),
        lambda report: pickle.loads(pickle.dumps(report)),
        lambda report: pickle.loads(ForkingPickler.dumps(report)),
    ],
    ids=["deepcopy", "clone", "pickle", "sent to a process"],
)
def test_copies_count_apart_and_their_values_read_the_copy(task, duplicate):
    report = filled(
        task, prefix="val_", measures=ImbalanceReport.default_measures(task) | {"error": directed(error_rate, False)}
    )
    before = numbers(report.compute())
    twin = duplicate(report)
    assert all(value.report is twin for value in twin.values())
    assert all(value.report is report for value in report.values())
    assert numbers(twin.compute()) == before
    assert repr(twin) == repr(report)
    assert [value.higher_is_better for value in twin.values()] == [value.higher_is_better for value in report.values()]
    twin.update(*data(task, seed=1))
    report["iam"].reset()
    assert report.counts().sum() == 0
    wanted = filled(task, prefix="val_")
    wanted.update(*data(task, seed=1))
    assert twin["iam"].compute() == wanted["iam"].compute()
    with pytest.raises(TypeError, match="call update of the report itself"):
        twin["iam"].update(*data(task))


def test_a_copy_of_a_module_reads_its_own_report():
    module = torch.nn.ModuleDict({"val": filled("multiclass")})
    twin = copy.deepcopy(module)
    assert {id(value.report) for value in twin["val"].values()} == {id(twin["val"])}
    child = copy.deepcopy(module["val"]["iam"])
    assert child.report is not module["val"]
    assert child.compute() == module["val"]["iam"].compute()


# --- table ----------------------------------------------------------------------------------------------------------


def test_several_processes_must_compute_before_they_show():
    """Showing never communicates, so rank zero alone may do it."""
    several = []
    report = ImbalanceReport("multiclass", num_classes=3, distributed_available_fn=lambda: bool(several))
    report.update(*data("multiclass", seed=0))
    several.append(1)
    for show in (report.table, report.plot):
        with pytest.raises(RuntimeError, match=r"call compute\(\) on all processes first"):
            show()
    several.clear()
    report.compute()
    several.append(1)
    report.update(*data("multiclass", seed=1))
    assert column(report.table(), "support") == support_of(0)


# --- size, and torchmetrics' tools ----------------------------------------------------------------------------------


def test_a_tracker_follows_the_values():
    tracker = MetricTracker(ImbalanceReport("multiclass", num_classes=3), maximize=True)
    for seed in range(3):
        tracker.increment()
        tracker.update(*data("multiclass", seed=seed))
        assert_same({name: tracker.compute()[name] for name in OVERALL}, peers(*data("multiclass", seed=seed), "macro"))
    every = tracker.compute_all()
    wanted = [peers(*data("multiclass", seed=seed), "macro")["mcc"] for seed in range(3)]
    assert every["mcc"].tolist() == pytest.approx(wanted, rel=1e-5)


def test_many_values_take_one_constructor_of_torchmetrics(monkeypatch):
    """It takes .3 ms, which would be half a minute for 100,000 classes."""
    made = []
    original = Metric.__init__
    monkeypatch.setattr(Metric, "__init__", lambda self, **kwargs: made.append(type(self)) or original(self, **kwargs))
    names = [f"class {index}" for index in range(500)]
    report = ImbalanceReport("multiclass", class_names=names, per_class=["recall", "precision"])
    assert made == [ImbalanceReport]
    assert len(report) == len([*report.values()]) == 1009
    assert sum(isinstance(module, Metric) for module in report.modules()) == 1010  # Lightning looks them up there


class Ordinary(Metric):
    """Metric with a constructor of torchmetrics and nothing else."""

    update = compute = lambda self: None


def test_a_value_has_all_attributes_of_a_metric():
    value, other = filled("multiclass")["iam"], filled("multiclass")["mcc"]
    assert not [name for name in vars(Ordinary()) if not hasattr(value, name)]
    assert (value.training, value.dtype, value.update_called) == (True, torch.float32, False)
    assert not [*value.parameters(), *value.buffers(), *value.children()]
    value.eval()
    value.note = "mine"
    assert (value.training, other.training, hasattr(other, "note")) == (False, True, False)
    assert copy.deepcopy(value).note == pickle.loads(pickle.dumps(value)).note == "mine"
    assert value.float().half() is value
    assert not value.state_dict()


# --- another population ---------------------------------------------------------------------------------------------


def test_values_of_a_report_refuse_to_merge_and_draw_themselves():
    report = ImbalanceReport("binary")
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    with pytest.raises(TypeError, match="call merge_state of the report itself"):
        report["iam"].merge_state(report["iam"])
    figure, axes = report["iam"].plot()
    assert figure is not None
    assert axes.has_data()


# --- copies for stages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "postfix", "names"),
    [
        ("val/", None, ["val/iam_old", "val/recall_old", "val/recall/0_old", "val/recall/1_old", "val/recall/2_old"]),
        (None, "_new", ["old_iam_new", "old_recall_new", "old_recall/0_new", "old_recall/1_new", "old_recall/2_new"]),
        ("", "", ["iam", "recall", "recall/0", "recall/1", "recall/2"]),
        (None, None, ["old_iam_old", "old_recall_old", "old_recall/0_old", "old_recall/1_old", "old_recall/2_old"]),
    ],
)
def test_a_clone_has_names_and_counts_of_its_own(prefix, postfix, names):
    report = filled("multiclass", measures=["iam", "recall"], per_class=["recall"], prefix="old_", postfix="_old")
    before = report.compute()
    copied = report.clone(prefix=prefix, postfix=postfix)
    assert list(copied.compute()) == copied.keys() == names
    assert list(copied.compute().values()) == list(before.values())
    assert copied.result().table()["class"] == report.table()["class"]
    copied.update(*data("multiclass", seed=1))
    wanted = peers(*joined(0, 1), "macro")
    assert copied[names[0]].compute().item() == pytest.approx(wanted["iam"], rel=2e-6)
    assert copied["recall"].compute().item() == pytest.approx(wanted["recall"], rel=2e-6)
    assert copied[names[0]].report is copied
    assert report.compute() == before
    assert report.keys() == list(before)


def test_clones_of_clones_with_intervals_groups_and_pickle():
    report = ImbalanceReport(
        "binary", groups=["A", "B"], measures=["iam"], per_class=(), intervals=["iam"], prefix="val_", clusters=False
    )
    test = pickle.loads(pickle.dumps(report.clone(prefix="train/").clone(prefix="test/", postfix="!")))
    assert test.keys() == [f"test/{name.removeprefix('val_')}!" for name in report.keys()]  # noqa: SIM118
    for each in (report, test):
        each.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1]), group=torch.tensor([0, 0, 1, 1]))
    assert [test.compute()[f"test/iam{end}!"] == report.compute()[f"val_iam{end}"] for end in ("", "/A", "_worst")]
    assert "test/iam_low!" in test.compute()


def test_a_clone_of_a_sweep():
    sweep = imbtorch.ThresholdSweep("f1", 11, prefix="val/")
    sweep.update(torch.tensor([0.2, 0.8, 0.4]), torch.tensor([0, 1, 1]))
    test = sweep.clone(prefix="test/")
    assert test.compute() == {name.replace("val/", "test/"): value for name, value in sweep.compute().items()}
    assert test.best().threshold == sweep.best().threshold


def test_a_clone_refuses_names_that_clash_and_what_is_no_text():
    clash = ImbalanceReport("binary", measures={"a": error_rate, "aa": error_rate}, per_class=())
    with pytest.raises(ValueError, match="prefix='a' would log 'a' as 'aa', which is the name of another value"):
        clash.clone(prefix="a")
    with pytest.raises(TypeError, match="prefix must be a string such as 'val_', got 3"):
        clash.clone(prefix=3)
    assert clash.keys() == ["a", "aa"]


def test_a_clone_keeps_the_last_result():
    report = filled("multiclass", prefix="val_")
    report.compute()
    report.reset()
    last = report.clone(prefix="best_").last_result
    assert last["iam"] == report.last_result["iam"]
