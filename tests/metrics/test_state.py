"""The state of metrics: copies, conversions, checkpoints, merging."""

import copy
import io
import pickle
import re
from fractions import Fraction

import lightning
import numpy as np
import pytest
import torch
from cases import EVERY_TASK, FOUR_METRICS, assert_equal, batch, build, expected, joined, multiclass, resolved
from processes import launch
from rooms import FAULTS, state, state_name, state_of
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from versions import needs_simulated_device

import imbtorch
from imbtorch import Accuracy, ConfusionMatrix, ImbalanceReport, ThresholdSweep

# --- looks -----------------------------------------------------------------------------------------------------------


@FOUR_METRICS
@EVERY_TASK
def test_copies_count_apart_and_repr_builds_the_metric_again(name, task):
    metric = build(name, task)
    metric.update(*batch(task))
    value, counts = metric.compute(), metric.local_confmat
    names = {**vars(imbtorch), "tensor": torch.tensor, "torch": torch}
    assert repr(eval(repr(metric), names)) == repr(metric) == f"{name}({metric.extra_repr()})"
    copies = pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), metric.clone()
    metric.update(*batch(task, seed=1))
    for other in copies:
        assert repr(other) == repr(metric)
        assert torch.equal(other.compute(), value)
        other.update(*batch(task, seed=1))
        assert torch.equal(other.local_confmat, metric.local_confmat)
        other.reset()
        other.update(*batch(task))
        assert torch.equal(other.compute(), value)
    assert metric.local_confmat.sum() == 2 * counts.sum()


def test_a_shallow_copy_counts_apart():
    metric = multiclass([0, 1], [0, 1])
    other = copy.copy(metric)
    other.update(torch.tensor([2]), torch.tensor([2]))
    assert [int(each.local_confmat.sum()) for each in (metric, other)] == [2, 3]
    metric.update(torch.tensor([2, 2]), torch.tensor([2, 2]))
    assert [int(each.local_confmat.sum()) for each in (metric, other)] == [4, 3]


def test_a_single_metric_in_log_dict_says_what_to_call():
    for metric in (Accuracy("binary"), imbtorch.HandTill(3)):
        assert not hasattr(metric, "items")
        with pytest.raises(
            AttributeError, match=r"is a single metric and has no items; log it with self\.log\(name, m"
        ):
            lightning.LightningModule().log_dict(metric)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = metric.nothing


def test_hash_stays():
    metric = build("Recall", "multiclass")
    before = hash(metric)
    held = {metric}
    for act in (metric.update, metric):
        act(*batch("multiclass"))
    metric.compute()
    metric.reset()
    metric.double().to(torch.float16)
    assert hash(metric) == before
    assert metric in held
    assert metric.clone() not in held


# --- the life of the counts ------------------------------------------------------------------------------------------


@FOUR_METRICS
@EVERY_TASK
def test_reset_starts_anew(name, task):
    metric = build(name, task)
    metric.update(*batch(task, seed=1))
    metric(*batch(task, seed=2))
    metric.reset()
    assert metric.local_confmat.sum() == 0
    assert not metric.update_called
    metric.update(*batch(task))
    fresh = build(name, task)
    fresh.update(*batch(task))
    assert metric.update_count == 1
    assert torch.equal(metric.compute(), fresh.compute())


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_the_state_keeps_its_address(task):
    metric = build("Recall", task)
    address = state_of(metric).data_ptr()
    for _ in range(2):
        metric.update(*batch(task))
        metric(*batch(task))
        metric.compute()
        _ = metric.local_confmat, metric.local_margins
        assert state_of(metric).data_ptr() == address
        assert metric.local_confmat.sum() == 240
        assert metric.update_count == 2
        metric.reset()
        assert state_of(metric).data_ptr() == address
        assert metric.local_confmat.sum() == 0


def test_a_move_to_where_it_is_leaves_a_state_that_others_hold():
    metric = multiclass([0, 1], [0, 1])
    held = getattr(metric, state_name(metric))
    metric.to("cpu").reset()
    assert held.sum() == 2


def test_states_that_are_read_are_copies_and_leave_the_address():
    metric = multiclass([0, 1], [0, 1])
    metric.persistent(True)
    address, (read,), (saved,) = state_of(metric).data_ptr(), metric.metric_state.values(), metric.state_dict().values()
    metric.reset()
    assert state_of(metric).data_ptr() == address
    assert read.sum() == saved.sum() == 2


# --- captured in a graph ---------------------------------------------------------------------------------------------


def simulated():
    """Make the simulated accelerator, whose captures are noticed as those of CUDA are; for a process of its own."""
    import simulated_device

    torch.distributed.destroy_process_group()  # which does not know the device
    state.captures = lambda device: simulated_device.settings["graph"] is not None
    return simulated_device.Graph


def on_sim(*parts):
    return [torch.tensor(part).to("sim") for part in parts]


def captured_and_read(rank, world):
    graph_of = simulated()
    metric, given = Accuracy("multiclass", 3, on_invalid="warn").to("sim"), on_sim([0, 1, 2], [0, 1, 1])
    metric.persistent(True)
    with graph_of() as graph:
        metric.update(*given)
    for _ in range(2):
        _ = metric.metric_state, metric.state_dict()
        metric.reset()
        graph.replay()
        graph.replay()
        assert metric.local_confmat.tolist() == [[2, 0, 0], [0, 2, 2], [0, 0, 0]]
        assert_equal(metric.compute().cpu(), 2 / 3)


@needs_simulated_device
def test_a_captured_update_counts_after_reset_though_the_state_was_read():
    launch(1, captured_and_read)


def captured_and_held(rank, world, act):
    graph_of = simulated()
    given = on_sim([0, 1, 2], [0, 1, 1])
    metric = Accuracy("multiclass", 3, on_invalid="warn").to("sim")
    grouped, apart = (
        MetricCollection(
            {name: Accuracy("multiclass", 3, on_invalid="warn") for name in "ab"}, compute_groups=groups
        ).to("sim")
        for groups in (True, False)
    )
    for each in (grouped, apart):
        each.update(*given)
    _ = getattr(metric, state_name(metric))
    before = metric.local_confmat
    for each in (metric, grouped):
        with (
            pytest.raises(RuntimeError, match=r"state of Accuracy is shared .*capture a clone\(\), or a Metric"),
            graph_of(),
        ):
            getattr(each, act)(*given)
    assert torch.equal(metric.local_confmat, before)
    metric.update(*given)  # outside of a graph it is copied
    for each in (apart, metric.clone()):
        with graph_of() as graph:
            getattr(each, act)(*given)
        each.reset()
        graph.replay()
        for counted in each.values() if each is apart else [each]:
            assert counted.local_confmat.sum() == 3


@needs_simulated_device
@pytest.mark.parametrize("act", ["update", "forward"])
def test_a_state_that_others_hold_is_not_captured(act):
    launch(1, captured_and_held, act)


CONVERSIONS = {
    "half": lambda module: module.half(),
    "float": lambda module: module.float(),
    "double": lambda module: module.double(),
    "bfloat16": lambda module: module.bfloat16(),
    "to float16": lambda module: module.to(torch.float16),
    "to float64": lambda module: module.to(torch.float64),
    "to cpu, bfloat16": lambda module: module.to("cpu", torch.bfloat16),
    "type": lambda module: module.type(torch.float16),
    "set_dtype": lambda module: [each.set_dtype(torch.float16) for each in module.modules() if each is not module],
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_counts_stay_int64(convert):
    metric = ConfusionMatrix("binary")
    module = torch.nn.Sequential(metric)
    ones = torch.ones(2049, dtype=torch.long)
    metric.update(ones, ones)
    convert(module)
    metric.update(ones, ones)
    metric(torch.zeros(1), torch.ones(1, dtype=torch.long))
    assert metric.local_confmat.dtype == torch.int64
    assert metric.local_confmat.tolist() == [[0, 0], [1, 4098]]
    metric.reset()
    metric.update(ones, ones)
    assert metric.compute().tolist() == [[0, 0], [0, 2049]]
    recall = multiclass([0, 1, 1], [0, 1, 2], "Recall")
    convert(torch.nn.Sequential(recall))
    assert recall.compute().dtype == torch.float32
    assert_equal(recall.compute(), 2 / 3)


@pytest.fixture
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "default_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], indirect=True, ids=str
)
@FOUR_METRICS
@EVERY_TASK
def test_values_have_float32_or_wider(name, task, default_dtype):
    preds, target = batch(task)
    preds = preds.float()
    metric = build(name, task, **({"normalize": "true"} if name == "ConfusionMatrix" else {}))
    wide = torch.float64 if default_dtype == torch.float64 else torch.float32
    forwarded = metric(preds, target)
    for value in (forwarded, metric.compute()):
        assert value.dtype == wide
        if name != "ConfusionMatrix":
            wanted = expected(name, task, resolved(name, task, "auto"), preds, target)
            assert_equal(value, wanted, 1e-12 if wide == torch.float64 else 2e-6)


@pytest.mark.parametrize("default_dtype", [torch.bfloat16], indirect=True, ids=str)
def test_bfloat16_does_not_hide_which_epoch_is_better(default_dtype):
    matrix = torch.tensor([[4900, 90, 10, 0], [255, 245, 0, 0], [45, 5, 45, 5], [11, 3, 1, 10]])
    better = matrix + torch.tensor([[0] * 4, [-8, 0, 8, 0], [0] * 4, [0] * 4])
    values = []
    for each in (matrix, better):
        cells = torch.arange(16).repeat_interleave(each.flatten())
        metric = build("ImbalanceAccuracy", "multiclass", 4)
        metric.update(cells % 4, cells // 4)
        values.append(metric.compute())
    assert_equal(values[0], 0.1402, 5e-5)
    assert values[0] < values[1]
    assert values[0].bfloat16() == values[1].bfloat16()


@FOUR_METRICS
@EVERY_TASK
def test_meta_device(name, task):
    with torch.device("meta"):
        metric = build(name, task)
    assert metric.device.type == "meta"
    assert torch.nn.Sequential(metric).to_empty(device="cpu")[0] is metric
    assert metric.local_confmat.sum() == 0
    metric.update(*batch(task))
    moved = build(name, task)
    moved.update(*batch(task))
    assert torch.equal(metric.compute(), moved.compute())
    assert moved.to("meta").device.type == "meta"
    with pytest.raises(ValueError, match=r"preds are on cpu but the counts are on meta; .*metric\.to\('cpu'\)"):
        moved.update(*batch(task))


def test_to_empty_of_a_metric_itself():
    metric = multiclass([0, 1], [0, 1]).to("meta")
    assert metric.to_empty(device="cpu") is metric
    assert metric.local_confmat.sum() == 0
    metric.update(torch.tensor([2]), torch.tensor([2]))
    assert metric.local_confmat.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_to_empty_leaves_no_garbage_where_nothing_moves():
    metric = multiclass([0, 1], [0, 1])
    torch.nn.Sequential(metric).to_empty(device="cpu")
    assert metric.local_confmat.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_inference_then_training():
    data = [batch("multiclass", seed=seed) for seed in range(3)]
    metric = build("Recall", "multiclass")
    metric.update(*data[0])
    with torch.inference_mode():
        metric.update(*data[1])
        metric(*data[1])
        metric.compute()
    metric.update(*data[2])
    metric(*data[2])
    wanted = joined([data[0], data[1], data[1], data[2], data[2]])
    assert_equal(metric.compute(), expected("Recall", "multiclass", "macro", *wanted))
    with torch.inference_mode():
        metric.reset()
        metric.update(*data[0])
    metric.update(*data[1])
    assert_equal(metric.compute(), expected("Recall", "multiclass", "macro", *joined(data[:2])))


@pytest.mark.parametrize("act", ["update", "forward", "reset", "merge_state", "load_state_dict", "to", "deepcopy"])
def test_born_under_inference_mode(act):
    data = batch("multiclass")
    source = build("ConfusionMatrix", "multiclass")
    source.persistent(True)
    source.update(*data)
    with torch.inference_mode():
        metric = build("ConfusionMatrix", "multiclass")
        metric.update(*data)
    times = 2
    if act in ("update", "forward"):
        getattr(metric, act)(*data)
    elif act == "reset":
        metric.reset()
        times = 0
    elif act == "merge_state":
        metric.merge_state(source)
    elif act == "load_state_dict":
        metric.load_state_dict(source.state_dict())
        times = 1
    else:
        metric = copy.deepcopy(metric) if act == "deepcopy" else metric.to("cpu", torch.float64)
        times = 1
    metric.update(*data)
    assert torch.equal(metric.compute(), (times + 1) * source.compute())


# --- saving, loading, merging ----------------------------------------------------------------------------------------


def saved(metric):
    metric.persistent(True)
    return metric.state_dict()


def test_counts_stay_out_of_checkpoints_unless_asked_for():
    metric = multiclass([0, 1], [0, 1])
    assert not metric.state_dict()
    assert len(saved(metric)) == 1
    metric.persistent(False)
    assert not torch.nn.Sequential(metric).state_dict()


@pytest.mark.parametrize("nested", [False, True])
@EVERY_TASK
def test_saved_and_loaded(task, nested, tmp_path):
    metric, other = (build("ConfusionMatrix", task) for _ in range(2))
    metric.update(*batch(task))
    metric.persistent(True)
    before = metric.compute()
    modules = [torch.nn.ModuleDict({"val": each}) if nested else each for each in (metric, other)]
    torch.save(modules[0].state_dict(), tmp_path / "state.pt")
    metric.update(*batch(task, seed=1))
    other.update(*batch(task, seed=2))
    other(*batch(task, seed=2))
    other.persistent(True)
    address = state_of(other).data_ptr()
    modules[1].load_state_dict(torch.load(tmp_path / "state.pt"))
    assert state_of(other).data_ptr() == address
    assert torch.equal(other.compute(), before)
    other.update(*batch(task, seed=1))
    assert torch.equal(other.compute(), metric.compute())


def test_two_metrics_loaded_from_one_dict_count_apart():
    data = batch("multiclass")
    source = build("ConfusionMatrix", "multiclass")
    source.update(*data)
    state = saved(source)
    kept = copy.deepcopy(dict(state))
    pair = [build("ConfusionMatrix", "multiclass") for _ in range(2)]
    for each in pair:
        each.load_state_dict(state)
    pair[0].update(*data)
    pair[0](*data)
    assert torch.equal(pair[0].compute(), 3 * source.compute())
    assert torch.equal(pair[1].compute(), source.compute())
    pair[0].reset()
    assert torch.equal(pair[1].compute(), source.compute())
    assert list(state) == list(kept)
    assert all(torch.equal(state[key], kept[key]) for key in kept)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("task", "arguments", "name"),
    [
        ("multiclass", {"num_classes": 4}, "multiclass_4"),
        ("multiclass", {"num_classes": 3, "ignore_index": 0}, "ignore_0"),
        ("multilabel", {"num_labels": 3}, "multilabel_3"),
        ("binary", {}, "binary"),
        ("binary", {"threshold": 0.25}, "0_25"),
        ("binary", {"logits": True}, "logits"),
    ],
)
def test_counts_of_another_kind_are_refused_by_name(task, arguments, name, strict):
    other = ConfusionMatrix(task, **arguments)
    state = saved(other)
    metric = ConfusionMatrix("binary", threshold=0.75) if task == "binary" else multiclass([0, 1], [0, 1])
    before = metric.local_confmat
    for module, prefix in ((metric, ""), (torch.nn.ModuleDict({"val": metric}), "val.")):
        prefixed = {prefix + key: value for key, value in state.items()}
        with pytest.raises(RuntimeError, match=rf"{prefix}counts_\w*{name}\w* counts differently") as error:
            module.load_state_dict(prefixed, strict=strict)
        assert state_name(metric) in str(error.value)
        assert torch.equal(metric.local_confmat, before)
    with pytest.raises(ValueError, match=rf"cannot merge counts of .*{name}"):
        metric.merge_state(other)
    assert torch.equal(metric.local_confmat, before)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("value", [torch.zeros(3, dtype=torch.long), torch.zeros(9 + len(FAULTS)), [1, 2]])
def test_a_state_of_another_shape_or_type_is_refused(value, strict):
    metric = multiclass([0, 1], [0, 1])
    (key,) = saved(metric)
    refused = rf"state '{key}' must be int64 \[{9 + len(FAULTS) + 1}\], got"
    with pytest.raises(RuntimeError, match=refused):
        metric.load_state_dict({key: value}, strict=strict)
    with pytest.raises(ValueError, match=refused):
        metric.merge_state({key: value})
    with pytest.raises(ValueError, match=refused):
        setattr(metric, key, value)
    assert metric.compute().trace() == 2


def test_merge_state_adds():
    data = [batch("multiclass", seed=seed) for seed in range(2)]
    pair = [build("Recall", "multiclass") for _ in range(2)]
    for metric, each in zip(pair, data, strict=True):
        metric.update(*each)
        metric.compute()
    pair[0].merge_state(pair[1])
    assert pair[0].update_count == 2
    assert_equal(pair[0].compute(), expected("Recall", "multiclass", "macro", *joined(data)))
    assert_equal(pair[1].compute(), expected("Recall", "multiclass", "macro", *data[1]))
    pair[0].merge_state(pair[1].metric_state)
    assert_equal(pair[0].compute(), expected("Recall", "multiclass", "macro", *joined([*data, data[1]])))
    pair[0].update(*data[0])
    assert_equal(pair[1].compute(), expected("Recall", "multiclass", "macro", *data[1]))


def test_merge_state_refuses_what_is_no_such_metric():
    metric = multiclass([0, 1], [0, 1], "Recall")
    with pytest.raises(ValueError, match="cannot merge Precision into Recall"):
        metric.merge_state(build("Precision", "multiclass", 3))
    with pytest.raises(ValueError, match="incoming_state must be a dict or a Recall, got"):
        metric.merge_state([1])
    with pytest.raises(ValueError, match="cannot merge counts of"):
        metric.merge_state({})
    assert metric.local_confmat.sum() == 2


# --- states that version 0.6.0 saved ---------------------------------------------------------------------------------

# The states below are what version 0.6.0 saved with persistent(True) after one update with these batches.
PROBABILITIES = [[6, 1, 1], [4, 2, 2], [2, 4, 2], [1, 6, 1], [4, 3, 1], [2, 2, 4], [5, 2, 1]]  # in eighths
TARGETS, GROUPS = [0, 0, 0, 1, 1, 2, 0], [0, 0, 0, 1, 1, 1, 1]
SCORES, POSITIVE, WEIGHTS = [0.1, 0.3, 0.6, 0.2, 0.8, 0.9], [0, 0, 1, 1, 1, 0], [1.0, 2.0, 0.5, 1.0, 4.0, 0.25]
PREDICTED = np.argmax(PROBABILITIES, 1)
FOUND = [score > 0.5 for score in SCORES]
GRID = [0.25, 0.5, 0.75]


def of_0_6(*counts, dtype=torch.int64):
    """Return counts as 0.6.0 saved them, with cells behind them for samples that were not counted or are dependent."""
    return torch.tensor([*counts, *[0] * 8], dtype=dtype)


def histogram_of_0_6(length, filled):
    """Return a state in which each of the filled bins holds one sample."""
    return torch.zeros(length, dtype=torch.int64).index_fill(0, torch.tensor(filled), 1)


def f1_above(threshold):
    return sklearn_metrics.f1_score(POSITIVE, [score > threshold for score in SCORES])


def recall_of_group(group):
    chosen = np.array(GROUPS) == group
    return sklearn_metrics.recall_score(np.array(TARGETS)[chosen], PREDICTED[chosen], average="macro", zero_division=0)


STATES_0_6 = {
    "IAM": (
        lambda: imbtorch.ImbalanceAccuracy("multiclass", num_classes=3),
        {"counts_matrix_multiclass_3": of_0_6(3, 1, 0, 1, 1, 0, 0, 0, 1)},
        lambda metric: metric.compute(),
        # (hits - larger of the two kinds of errors) / larger of targets and predictions, by class
        np.mean([Fraction(3 - 1, 4), Fraction(1 - 1, 2), Fraction(1 - 0, 1)]),
    ),
    "margins": (
        lambda: imbtorch.ImbalanceAccuracy("multiclass", num_classes=3, state="margins"),
        {"counts_margins_multiclass_3": of_0_6(3, 1, 1, 4, 2, 1, 4, 2, 1)},
        lambda metric: torch.stack([metric.compute(), *metric.local_margins.predicted]),
        [0.5, *np.bincount(PREDICTED)],
    ),
    "ignored target": (
        lambda: imbtorch.Recall("multiclass", num_classes=3, ignore_index=2),
        {"counts_matrix_multiclass_3_ignore_2": of_0_6(3, 1, 0, 1, 1, 0, 0, 0, 0)},
        lambda metric: metric.compute(),
        sklearn_metrics.recall_score(TARGETS, PREDICTED, labels=[0, 1], average="macro"),
    ),
    "matrices of labels": (
        lambda: ConfusionMatrix("multilabel", num_labels=2, threshold=[0.5, 0.65], clusters=False),
        {"counts_matrix_multilabel_2_thresholds_11ae895a8a56": of_0_6(1, 1, 0, 1, 0, 1, 2, 0)},
        lambda metric: metric.compute(),
        sklearn_metrics.multilabel_confusion_matrix([[0, 1], [1, 1], [0, 0]], [[0, 0], [1, 0], [1, 1]]),
    ),
    "weights": (
        lambda: imbtorch.Precision("binary", weighted=True),
        {"counts_matrix_binary_2_threshold_0_5_weighted": of_0_6(3.0, 0.25, 1.0, 4.5, dtype=torch.float64)},
        lambda metric: metric.compute(),
        sklearn_metrics.precision_score(POSITIVE, FOUND, sample_weight=WEIGHTS),
    ),
    "report": (
        lambda: ImbalanceReport("multiclass", class_names=["a", "b", "c"], measures=["recall"], groups=["x", "y"]),
        # matrices of the two groups
        {"counts_matrix_multiclass_3_groups_2": of_0_6(2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1)},
        lambda metric: torch.stack([metric.compute()[f"recall/{name}"] for name in "abcxy"]),
        [*sklearn_metrics.recall_score(TARGETS, PREDICTED, average=None), *map(recall_of_group, range(2))],
    ),
    "sweep": (
        lambda: ThresholdSweep(imbtorch.f_score, torch.tensor(GRID)),
        {
            "counts_sweep_3_f0c3f1537e4d_matrix_binary_2_threshold_0_5": of_0_6(1, 1, 0, 1, 1, 0, 1, 1),
        },
        lambda metric: metric.result().curve()[1],
        [f1_above(threshold) for threshold in GRID],
    ),
    "sweep of all scores": (
        lambda: ThresholdSweep(imbtorch.f_score),
        {
            "counts_sweep_logit_spaced_matrix_binary_2_threshold_0_5": histogram_of_0_6(
                7190, [1565, 1804, 2410, 5291, 5668, 5866]
            )
        },
        lambda metric: metric.compute()["value"],
        max(f1_above(threshold) for threshold in [0, *SCORES]),
    ),
    "Hand and Till": (
        lambda: imbtorch.HandTill(3),
        {
            "settings": torch.tensor([225814994211782]),
            "not_counted": torch.zeros(7, dtype=torch.int64),
            "scores": [torch.tensor(PROBABILITIES) / 8],
            "targets": [torch.tensor(TARGETS)],
        },
        lambda metric: metric.compute(),
        sklearn_metrics.roc_auc_score(TARGETS, np.array(PROBABILITIES) / 8, multi_class="ovo"),
    ),
}


@pytest.mark.filterwarnings("ignore:ImbalanceReport. 1 of 2 groups")
@pytest.mark.parametrize(("build", "state", "read", "wanted"), STATES_0_6.values(), ids=STATES_0_6)
def test_a_state_of_0_6_is_loaded(build, state, read, wanted):
    metric = build()
    metric.persistent(True)
    torch.nn.ModuleDict({"val": metric}).load_state_dict({f"val.{name}": value for name, value in state.items()})
    np.testing.assert_allclose(read(metric).numpy(), np.array(wanted, dtype=float), atol=1e-6)
    again = metric.state_dict()
    assert {name for name in again if not name.startswith("rule.")} == state.keys()
    for name in [name for name in state if "counts" in name]:
        cells = len(state[name]) - 1  # in front of the last one lie squares of weights, which are new
        assert torch.equal(again[name][:cells], state[name][:cells])
        assert torch.equal(again[name][-1], state[name][-1])
        assert again[name].shape == state[name].shape or name.endswith("weighted")


def test_a_state_of_0_6_with_other_settings_is_refused():
    with pytest.raises(RuntimeError, match="counts_matrix_multiclass_3 counts differently from this Recall"):
        imbtorch.Recall("multiclass", num_classes=3, ignore_index=2).load_state_dict(STATES_0_6["IAM"][1])
    with pytest.raises(RuntimeError, match=r"clusters=False counts like the saved one"):
        ConfusionMatrix("multilabel", num_labels=2, threshold=[0.5, 0.65]).load_state_dict(
            STATES_0_6["matrices of labels"][1]
        )
    metric = imbtorch.HandTill(3, logits=True)
    metric.persistent(True)
    metric.load_state_dict(STATES_0_6["Hand and Till"][1])
    with pytest.raises(ValueError, match="samples were kept with other settings; use the same"):
        metric.compute()


# --- another population ----------------------------------------------------------------------------------------------

READ_ONLY = [
    (lambda: Accuracy("binary"), "threshold", 0.9),
    (lambda: Accuracy("binary"), "logits", True),
    (lambda: Accuracy("binary"), "ignore_index", 0),
    (lambda: Accuracy("binary"), "task", "multiclass"),
    (lambda: Accuracy("multiclass", 3), "num_classes", 4),
    (lambda: imbtorch.Recall("multiclass", 3), "average", "micro"),
    (lambda: Accuracy("binary"), "on_invalid", "warn"),
    (lambda: ConfusionMatrix("binary"), "normalize", "true"),
    (lambda: ImbalanceReport("binary"), "prefix", "val_"),
    (lambda: ImbalanceReport("binary"), "prevalence", [1, 1]),
    (lambda: ImbalanceReport("binary"), "class_names", ["a", "b"]),
    (lambda: ImbalanceReport("binary"), "intervals", True),
    (lambda: ThresholdSweep(imbtorch.f_score), "thresholds", torch.tensor([0.5])),
    (lambda: imbtorch.HandTill(3), "num_classes", 4),
    (lambda: imbtorch.LogitAdjustmentSweep("f1", [2, 1]), "taus", (0.0, 1.0)),
    (lambda: imbtorch.LogitAdjustmentSweep("f1", [2, 1]), "at_least", {"accuracy": 0.5}),
]


@pytest.mark.parametrize(("build", "name", "value"), READ_ONLY)
def test_settings_cannot_be_changed(build, name, value):
    metric = build()
    before = repr(metric)
    remedy = re.escape(f"build a new {type(metric).__name__} with {name}=")
    with pytest.raises(AttributeError, match=f"{name} cannot be changed, .*{remedy}"):
        setattr(metric, name, value)
    assert repr(metric) == before


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Accuracy("binary"), "counting"),
        (lambda: imbtorch.FScore("binary", beta=2.0), "measure_arguments"),
        (lambda: imbtorch.LogitAdjustmentSweep("f1", [2, 1]), "task"),
    ],
)
def test_what_no_constructor_takes_is_no_remedy(build, name):
    metric = build()
    with pytest.raises(AttributeError, match=f"; build a new {type(metric).__name__}$"):
        setattr(metric, name, None)


def test_a_sweep_has_no_threshold_of_its_own():
    assert not hasattr(ThresholdSweep("f1"), "threshold")


def test_memory_of_the_caller_is_not_kept():
    costs = torch.tensor([[0.0, 1.0], [5.0, 0.0]], dtype=torch.float64)
    thresholds = torch.tensor([0.25, 0.75], dtype=torch.float64)
    metric, sweep = imbtorch.ExpectedCost("binary", costs=costs), ThresholdSweep(imbtorch.f_score, thresholds)
    costs.fill_(9.0), thresholds.fill_(0.5)
    assert metric(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5
    metric.measure_arguments["costs"].fill_(7.0)
    assert metric(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5
    sweep.update(torch.tensor([0.1, 0.9]), torch.tensor([0, 1]))
    sweep.result().curve()[0].fill_(0.0), sweep.thresholds.fill_(0.0)
    assert sweep.result().curve()[0].tolist() == [0.25, 0.75]


# --- names that give counts their meaning -----------------------------------------------------------------------------


def of_classes(names, **arguments):
    """A report in which all samples are cats, by the place of their name; with other arguments than its prefix."""
    report = ImbalanceReport("multiclass", **({"class_names": names} if names else {"num_classes": 2}), **arguments)
    place = names.index("cat") if names and "cat" in names else 0
    report.update(torch.full((10,), place), torch.full((10,), place))
    return report


def of_groups(names):
    report = ImbalanceReport("binary", groups=names, measures=["accuracy"], per_class=())
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]), group=0)
    return report


def of_labels(names):
    sweep = ThresholdSweep("f1", task="multilabel", **({"class_names": names} if names else {}), num_labels=2)
    sweep.update(torch.tensor([[0.1, 0.8], [0.3, 0.9]]), torch.tensor([[0, 0], [1, 1]]))
    sweep.compute()
    return sweep


def against_the_rest(names):
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=2, class_names=names)
    sweep.update(torch.tensor([[0.1, 0.9], [0.3, 0.7]]), torch.tensor([0, 1]))
    return sweep


def of_adjustments(names):
    sweep = imbtorch.LogitAdjustmentSweep("f1", [5, 2], class_names=names)
    sweep.update(torch.tensor([[0.1, 0.9], [0.3, 0.7]]), torch.tensor([0, 1]))
    return sweep


def labels_of_a_report(names):
    report = ImbalanceReport("multilabel", class_names=names, clusters=False)
    report.update(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[0, 1], [1, 0]]))
    return report


NAMED = [of_classes, of_groups, of_labels, against_the_rest, of_adjustments, labels_of_a_report]


def from_file(metric):
    """Return the state dict of a metric from a file."""
    metric.persistent(True)
    file = io.BytesIO()
    torch.save(metric.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("make", NAMED)
@pytest.mark.parametrize("others", [["dog", "cat"], ["cat", "fox"]])
def test_counts_of_other_names_are_neither_merged_nor_loaded(make, others):
    argument = "groups" if make is of_groups else "class_names"
    own, other = make(["cat", "dog"]), make(others)
    before = state_of(own).clone()
    names = rf"{argument}: \['{others[0]}', '{others[1]}'\], where this \w+ has \['cat', 'dog'\]"
    with pytest.raises(ValueError, match=f"cannot merge counts of other {names}; build both with the same names"):
        own.merge_state(other)
    own.persistent(True)
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=f"holds counts of other {names}; build the metric with the names of"):
            own.load_state_dict(from_file(other), strict=strict)
    assert torch.equal(state_of(own), before)
    own.merge_state(other.metric_state)  # tensors alone tell no names
    assert torch.equal(state_of(own), before + state_of(other))


@pytest.mark.parametrize("make", NAMED)
def test_counts_of_equal_names_and_without_names_are_put_together(make):
    names = ["0", "1"] if make is not of_groups else 2
    for first, second in ((["cat", "dog"], ["cat", "dog"]), (["cat", "dog"], names), (names, ["cat", "dog"])):
        own, other = make(first), make(second)
        before = state_of(own).clone()
        own.merge_state(other)
        assert torch.equal(state_of(own), before + state_of(other))
        own.persistent(True)
        own.load_state_dict(from_file(other))
        assert torch.equal(state_of(own), state_of(other))
    other.persistent(True)
    state = from_file(make(["dog", "cat"]))
    own.load_state_dict(dict(state.items()))  # metadata were lost, as in other formats
    assert list(state) == [*make(names).state_dict(), state_name(own)]


class Own(imbtorch.Recall):
    def update(self, preds, target):
        super().update(preds, target)


SCORES = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
COUNTING = {
    "Recall": lambda **more: imbtorch.Recall("multiclass", 2, **more),
    "ImbalanceReport": lambda **more: ImbalanceReport("multiclass", 2, **more),
    "ThresholdSweep": lambda **more: ThresholdSweep("f1", 9, "multiclass", num_classes=2, **more),
    "LogitAdjustmentSweep": lambda **more: imbtorch.LogitAdjustmentSweep("recall", [1, 2], **more),
    "HandTill": lambda **more: imbtorch.HandTill(2, **more),
    "Own": lambda **more: Own("multiclass", 2, **more),
}
WRITES = {
    "update": lambda metric, other: metric.update(*other),
    "forward": lambda metric, other: metric(*other),
    "merge_state": lambda metric, other: metric.merge_state(counted(metric, other)),
    "merge_state of a dict": lambda metric, other: metric.merge_state(counted(metric, other).metric_state),
    "add": lambda metric, other: metric.add(torch.tensor([[2, 0], [0, 2]])),
    "load_state_dict": lambda metric, other: metric.load_state_dict(counted(metric, other).state_dict()),
    "load_state_dict of a module": lambda metric, other: torch.nn.ModuleList([metric]).load_state_dict(
        torch.nn.ModuleList([counted(metric, other)]).state_dict()
    ),
}


def counted(metric, samples):
    """Another metric like this one that counted samples, and saves them."""
    other = COUNTING[type(metric).__name__]()
    other.update(*samples)
    other.persistent(True)
    return other


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", COUNTING)
def test_nothing_is_counted_while_synced(kind, write):
    """Where unsync would lose it; the gather function stands for two processes with equal samples."""
    if write == "add" and kind not in ("Recall", "ImbalanceReport", "Own"):
        return
    metric = COUNTING[kind](dist_sync_fn=lambda x, group=None: [x, x], distributed_available_fn=lambda: True)
    metric.persistent(True)
    metric.update(SCORES, torch.tensor([0, 1, 1, 0]))
    before, value = metric.state_dict(), metric.compute()
    with metric.sync_context(dist_sync_fn=metric.dist_sync_fn):
        with pytest.raises(TorchMetricsUserError, match=r"is synced: .*; count outside sync_context\(\)"):
            WRITES[write](metric, (SCORES[:2], torch.tensor([1, 0])))
        assert metric.update_count == 1
    after = metric.state_dict()
    assert {name: str(each) for name, each in after.items()} == {name: str(each) for name, each in before.items()}
    assert str(metric.compute()) == str(value)
    WRITES[write](metric, (SCORES[:2], torch.tensor([1, 0])))
    assert str(metric.state_dict()) != str(before)


def test_a_state_that_is_set_while_synced_is_that_of_the_process():
    """As a collection does for the members of a group."""
    metric = Accuracy("binary")
    metric.update(torch.tensor([1, 0]), torch.tensor([1, 1]))
    with metric.sync_context(dist_sync_fn=lambda x, group=None: [x, x], distributed_available=lambda: True):
        total = state_of(metric).clone()
        setattr(metric, state_name(metric), torch.zeros_like(total))
        assert torch.equal(state_of(metric), total)
    assert metric.local_confmat.sum() == 0


def test_what_gives_counts_no_meaning_is_not_compared():
    val, test = of_classes(["cat", "dog"], prefix="val_"), of_classes(["cat", "dog"], prefix="test_", per_class=())
    test.merge_state(val)
    other = of_classes(["cat", "dog"], measures=["mcc"], intervals=["mcc"], prevalence=[0.9, 0.1])
    test.merge_state(other)
    assert test.counts().tolist() == [[30, 0], [0, 0]]
    precise = ThresholdSweep("precision", task="multilabel", num_labels=2, class_names=["a", "b"], also=("auc",))
    precise.merge_state(of_labels(["a", "b"]))
    older = torch.nn.ModuleDict({"old": torch.nn.ModuleDict({"path": val})})
    val.persistent(True)
    new = of_classes(["cat", "dog"])
    new.persistent(True)
    new.load_state_dict(older["old"]["path"].state_dict())
    assert torch.equal(state_of(new), state_of(val))


@pytest.mark.parametrize("strict", [True, False])
def test_weights_load_beside_metrics_of_other_names(strict):
    """States of metrics are in no file by default, so that nothing can be mixed."""
    old, new = (
        torch.nn.ModuleDict({"net": torch.nn.Linear(1, 1), "report": of_classes(names)})
        for names in (["cat", "dog"], ["dog", "cat"])
    )
    before = state_of(new["report"]).clone()
    new.load_state_dict(saved_module(old), strict=strict)
    assert torch.equal(new["net"].weight, old["net"].weight)
    assert torch.equal(state_of(new["report"]), before)
    inside, outside = (MetricCollection({"r": of_classes(names)}) for names in (["cat", "dog"], ["dog", "cat"]))
    inside.persistent(True), outside.persistent(True)
    with pytest.raises(RuntimeError, match="holds counts of other class_names"):
        outside.load_state_dict(saved_module(inside), strict=strict)


def saved_module(module):
    file = io.BytesIO()
    torch.save({"state_dict": module.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["state_dict"]


def test_a_saved_rule_compares_the_names_of_labels_only():
    own, other = of_labels(["x", "y"]), of_labels(["y", "x"])
    before = own.rule.threshold.tolist()
    with pytest.raises(RuntimeError, match=r"rule.threshold holds thresholds of other class_names: \['y', 'x'\]"):
        own.load_state_dict(other.state_dict())
    assert own.rule.threshold.tolist() == before
    for names in (["x", "y"], None):
        own.load_state_dict(of_labels(names).state_dict())
    adjusted = imbtorch.LogitAdjustmentSweep("f1", [5, 2], class_names=["cat", "dog"])
    adjusted.load_state_dict(imbtorch.LogitAdjustmentSweep("mcc", [3, 4], class_names=["dog", "cat"]).state_dict())
    assert adjusted.rule.prior.tolist() == pytest.approx([3 / 7, 4 / 7])


def test_counts_at_another_prior_are_not_merged():
    one, other = (imbtorch.LogitAdjustmentSweep("f1", prior) for prior in ([5, 2], [2, 5]))
    with pytest.raises(ValueError, match=r"cannot merge counts of .* build both metrics with the same arguments"):
        one.merge_state(other)


@pytest.mark.parametrize("names", [7, "cat", {"class_names": 7}, {"class_names": ["a"]}, {"groups": ["a", "b"]}])
def test_metadata_of_other_programs_do_not_break_loading(names):
    own = of_classes(["cat", "dog"])
    own.persistent(True)
    state = own.state_dict()
    state._metadata[""]["names"] = names
    if isinstance(names, dict) and "class_names" in names:
        with pytest.raises(RuntimeError, match="counts of other class_names"):
            own.load_state_dict(state)
    else:
        own.load_state_dict(state)
