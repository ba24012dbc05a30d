"""What hostile use of 0.1.0 found: wrong numbers without a word, and traps. Every test here failed on it."""

import functools
import inspect

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from processes import launch
from torchmetrics import MetricCollection

import imbtorch
from imbtorch import Accuracy, ConfusionMatrix, ImbalanceReport, ThresholdSweep, analysis, confusion_matrix
from imbtorch.batches import FAULTS

NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


# --- values are judged in their own dtype ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_wrapped_prediction_is_no_class(state):
    target = torch.arange(200)
    metric = Accuracy("multiclass", 200, state=state)
    with pytest.raises(ValueError, match=r"preds holds class -128 but num_classes=200"):
        metric.update(target.to(torch.int8), target)
    assert metric.margins.actual.sum() == 0


@pytest.mark.parametrize("dtype", [dtype for dtype in NARROW if dtype.is_signed])
@pytest.mark.parametrize(("classes", "state"), [(300, "matrix"), (300, "margins"), (50_257, "margins")])
@pytest.mark.parametrize("where", ["preds", "target"])
def test_minus_one_of_any_width_is_out_of_range(dtype, classes, state, where):
    metric = imbtorch.Recall("multiclass", classes, state=state)
    good, bad = torch.tensor([0, 1, 2], dtype=dtype), torch.tensor([0, -1, 2], dtype=dtype)
    preds, target = (bad, good) if where == "preds" else (good, bad)
    with pytest.raises(ValueError, match=f"{where} holds class -1 "):
        metric.update(preds, target)
    assert metric.margins.actual.sum() == 0


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(("classes", "samples"), [(3, 50), (100, 40), (50_257, 50)])
def test_every_integer_dtype_counts_what_it_says(dtype, classes, samples):
    limit = min(classes, torch.iinfo(dtype).max + 1)
    random = np.random.default_rng(0)
    preds, target = random.integers(limit, size=(2, samples))
    metric = imbtorch.BalancedAccuracy("multiclass", classes, state="margins")
    metric.update(torch.tensor(preds).to(dtype), torch.tensor(target).to(dtype))
    wanted = [np.bincount(each, minlength=classes) for each in (target[preds == target], target, preds)]
    for got, expected in zip(metric.margins, wanted, strict=True):
        assert got.tolist() == expected.tolist()


def test_a_uint64_beyond_int64_is_neither_a_class_nor_ignored():
    target = torch.tensor([0, 1, 1])
    wide = torch.tensor([0, 2**64 - 1, 1], dtype=torch.uint64)
    with pytest.raises(ValueError, match="target holds class"):
        confusion_matrix(target, wide, "binary", ignore_index=-1)
    with pytest.raises(ValueError, match="preds holds class"):
        confusion_matrix(wide, target, "binary")


@pytest.mark.parametrize("ignore_index", [None, -100, 1])
@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_fault_in_the_last_of_many_samples_leaves_the_state_as_it_was(ignore_index, state):
    metric = imbtorch.Recall("multiclass", 5, ignore_index=ignore_index, state=state)
    metric.update(torch.tensor([0, 3]), torch.tensor([0, 2]))
    before = [part.tolist() for part in metric.margins]
    target = torch.zeros(200_000, dtype=torch.int64)
    target[-1] = 7
    with pytest.raises(ValueError, match="target holds class 7"):
        metric.update(torch.zeros_like(target), target)
    assert [part.tolist() for part in metric.margins] == before


def test_an_interrupt_between_blocks_leaves_the_state_as_it_was(monkeypatch):
    metric = ConfusionMatrix("multiclass", 5)
    target, calls = torch.zeros(200_000, dtype=torch.int64), []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return counted(*given)

    counted = np.bincount
    monkeypatch.setattr(np, "bincount", interrupted)
    with pytest.raises(KeyboardInterrupt):
        metric.update(target, target)
    assert len(calls) == 3
    assert metric.confmat.sum() == 0


# --- functions of one's own -----------------------------------------------------------------------------------------


def harm(counts):
    return counts.fill_diagonal_(0).sum()


class Harmful(imbtorch.ConfusionMatrixMetric):
    measure = staticmethod(harm)


class HarmfulToMargins(imbtorch.ConfusionMatrixMetric):
    needs_matrix = False
    measure = staticmethod(lambda margins: margins.correct.zero_().sum() + margins.actual.sum())


PREDS, TARGET = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1])


@pytest.mark.parametrize("measured", [harm, Harmful, (harm, True), functools.partial(harm)])
def test_a_function_of_ones_own_harms_no_other_value(measured):
    report = ImbalanceReport(
        "multiclass", 3, measures={"mine": measured, "accuracy": Accuracy}, per_class=("recall",), intervals=False
    )
    report.update(PREDS, TARGET)
    for _ in range(2):
        values = report.compute()
        assert values["mine"] == 2
        assert values["accuracy"] == pytest.approx(0.6)
        assert values["recall/1"] == 0.5
    assert report.confmat.trace() == 3
    assert report(PREDS, TARGET)["accuracy"] == pytest.approx(0.6)


@pytest.mark.parametrize("metric", [Harmful, HarmfulToMargins])
def test_a_class_of_ones_own_harms_no_state(metric):
    mine = metric("multiclass", 3)
    mine.update(PREDS, TARGET)
    first = mine.compute()
    assert mine.compute() == first
    assert mine.confmat.trace() == 3


def test_a_function_of_ones_own_in_a_sweep_harms_no_matrix():
    sweep = ThresholdSweep(lambda counts: counts[..., 0, 0].mul_(0) + counts[..., 1, 1], 5)
    sweep.update(torch.tensor([0.1, 0.9, 0.6]), torch.tensor([0, 1, 0]))
    sweep.compute()
    assert sweep.result().matrices().sum((-2, -1)).tolist() == [3] * 5


def test_products_of_cells_do_not_overflow():
    report = ImbalanceReport("binary", measures={"product": lambda c: c[0, 0] * c[1, 1]}, per_class=())
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    for _ in range(32):  # doubles the counts
        report.merge_state(report.metric_state)
    assert report.confmat.tolist() == [[2**32, 0], [0, 2**32]]
    assert report.compute()["product"] == 2.0**64


def test_functions_of_ones_own_keep_their_digits_under_a_default_of_half_precision():
    report = ImbalanceReport("binary", measures={"mine": lambda c: c.diagonal().sum() / c.sum()}, per_class=())
    report.update(torch.arange(1000) % 3 == 0, torch.ones(1000, dtype=torch.int64))
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.warns(UserWarning, match="no target"):
            value = report.compute()["mine"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert value == torch.tensor(0.334)


# --- settings -------------------------------------------------------------------------------------------------------

READ_ONLY = [
    (lambda: Accuracy("binary"), "threshold", 0.9),
    (lambda: Accuracy("binary"), "logits", True),
    (lambda: Accuracy("binary"), "ignore_index", 0),
    (lambda: Accuracy("binary"), "task", "multiclass"),
    (lambda: Accuracy("multiclass", 3), "num_classes", 4),
    (lambda: imbtorch.Recall("multiclass", 3), "average", "micro"),
    (lambda: Accuracy("binary"), "on_invalid", "warn"),
    (lambda: imbtorch.FScore("binary", beta=2.0), "measure_arguments", {}),
    (lambda: ConfusionMatrix("binary"), "normalize", "true"),
    (lambda: ImbalanceReport("binary"), "prefix", "val_"),
    (lambda: ImbalanceReport("binary"), "prevalence", [1, 1]),
    (lambda: ImbalanceReport("binary"), "class_names", ["a", "b"]),
    (lambda: ImbalanceReport("binary"), "intervals", True),
    (lambda: ThresholdSweep(imbtorch.FScore), "thresholds", torch.tensor([0.5])),
    (lambda: imbtorch.HandTill(3), "num_classes", 4),
]


@pytest.mark.parametrize(("build", "name", "value"), READ_ONLY)
def test_settings_cannot_be_changed(build, name, value):
    metric = build()
    before = repr(metric)
    with pytest.raises(AttributeError, match=f"{name} cannot be changed, .*build a new {type(metric).__name__} with"):
        setattr(metric, name, value)
    assert repr(metric) == before


def test_memory_of_the_caller_is_not_kept():
    costs = torch.tensor([[0.0, 1.0], [5.0, 0.0]], dtype=torch.float64)
    thresholds = torch.tensor([0.25, 0.75], dtype=torch.float64)
    metric, sweep = imbtorch.ExpectedCost("binary", costs=costs), ThresholdSweep(imbtorch.FScore, thresholds)
    costs.fill_(9.0), thresholds.fill_(0.5)
    assert metric(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5
    metric.measure_arguments["costs"].fill_(7.0)
    assert metric(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5
    sweep.update(torch.tensor([0.1, 0.9]), torch.tensor([0, 1]))
    sweep.result().curve()[0].fill_(0.0), sweep.thresholds.fill_(0.0)
    assert sweep.result().curve()[0].tolist() == [0.25, 0.75]


# --- answers, refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["compute", "interval", "at_prevalence", "counts", "result"])
def test_every_answer_refuses_what_compute_refuses(ask, accelerator):
    metric = ImbalanceReport("binary") if ask in ("counts", "result") else imbtorch.BalancedAccuracy("binary")
    metric.update(torch.tensor([0, 1, 7]), torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="did not count 1 of the samples"):
        getattr(metric, ask)(*([[1, 1]] if ask == "at_prevalence" else []))


@pytest.mark.parametrize("names", [{"cat", "dog"}, frozenset({"cat", "dog"}), {"cat": 0, "dog": 1}, 3])
def test_class_names_have_an_order(names):
    with pytest.raises(TypeError, match="class_names must be a sequence in the order of the classes"):
        ImbalanceReport("multiclass", class_names=names)


SETTINGS = {
    "threshold": [lambda: Accuracy("binary"), lambda: Accuracy("binary", threshold=0.9)],
    "logits": [lambda: Accuracy("binary"), lambda: Accuracy("binary", logits=True)],
    "ignore_index": [lambda: Accuracy("multiclass", 3), lambda: Accuracy("multiclass", 3, ignore_index=-100)],
    "measure": [lambda: Accuracy("binary"), lambda: imbtorch.Recall("binary")],
    "layout": [lambda: Accuracy("multiclass", 3), lambda: Accuracy("multiclass", 3, state="margins")],
    "class names": [
        lambda: ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"]),
        lambda: ImbalanceReport("multiclass", class_names=["dog", "cat", "emu"]),
    ],
    "thresholds": [
        lambda: ThresholdSweep(imbtorch.FScore, torch.tensor([0.2, 0.5])),
        lambda: ThresholdSweep(imbtorch.FScore, torch.tensor([0.3, 0.5])),
    ],
    "beta": [lambda: imbtorch.FScore("binary", beta=1.0), lambda: imbtorch.FScore("binary", beta=2.0)],
}


def counts_otherwise(rank, world, name):
    first, other = SETTINGS[name]
    metric = (other if rank == world - 1 else first)()
    scores = torch.rand(8, generator=torch.Generator().manual_seed(rank))
    binary = metric.task == "binary"
    preds = scores if binary else (3 * scores).long()
    target = torch.arange(8) % (2 if binary else 3)
    metric.update(preds, target)
    try:
        metric.compute()
    except RuntimeError as error:
        found = str(error)
    else:
        found = "summed"
    alike = first()
    alike.update(preds, target)
    return found, int(alike.counts().sum()) if hasattr(alike, "counts") else float(bool(alike.compute()))


@pytest.mark.parametrize(("name", "world"), [(name, 2) for name in SETTINGS] + [("threshold", 3)])
def test_processes_that_count_otherwise_are_told_so_on_all_of_them(name, world):
    for found, _ in launch(world, counts_otherwise, name):
        assert "not set up alike on all processes" in found


def test_a_digest_is_the_same_in_every_process_whatever_its_hash_seed():
    assert len(set(launch(3, settings_of_a_report))) == 1


def settings_of_a_report(rank, world):
    mine = {"mine": harm, "f2": functools.partial(imbtorch.f_score, beta=2), "iam": imbtorch.ImbalanceAccuracy}
    report = ImbalanceReport("multiclass", 3, measures=mine, prevalence=[1, 2, 3])
    costs = imbtorch.ExpectedCost("binary", costs=torch.eye(2))
    return report._settings_text() + costs._settings_text()


# --- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_read_as_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(5000, generator=generator)).to(dtype)
    target = (torch.rand(5000, generator=generator) < logits.float().sigmoid()).long()
    for threshold in (0.3, 0.999):
        metric = imbtorch.Recall("binary", logits=True, threshold=threshold)
        metric.update(logits, target)
        preds = logits.float().sigmoid() > threshold
        assert metric.compute().item() == pytest.approx(sk.recall_score(target, preds))
        assert int(preds.sum()) > 0
    sweep = ThresholdSweep(imbtorch.Recall, torch.tensor([0.3, 0.999]), logits=True)
    sweep.update(logits, target)
    assert sweep.result().curve()[1].tolist() == pytest.approx(
        [sk.recall_score(target, logits.float().sigmoid() > each) for each in (0.3, 0.999)]
    )


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("shape", [(50,), (10, 5)])
def test_two_columns_are_the_scores_of_both_classes(logits, shape):
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(shape[0], 2, *shape[1:], generator=generator)
    target = torch.randint(2, shape, generator=generator)
    metric = imbtorch.FScore("binary", logits=logits)
    metric.update(raw if logits else raw.softmax(1), target)
    assert metric.compute().item() == pytest.approx(sk.f1_score(target.flatten(), raw.argmax(1).flatten()))


def test_columns_that_do_not_sum_to_one_are_no_probabilities(request):
    scores, target = torch.tensor([[0.3, 0.7], [0.3, 0.3], [0.996, 0.0]]), torch.tensor([1, 0, 0])
    with pytest.raises(ValueError, match=r"do not sum to 1 \(1 of 3 values\); pass logits=True"):
        Accuracy("binary").update(scores, target)
    request.getfixturevalue("accelerator")
    metric = Accuracy("binary")
    metric.update(scores, target)
    with pytest.raises(ValueError, match="1 probabilities that do not sum to 1"):
        metric.compute()
    assert metric.confmat.tolist() == [[1, 0], [0, 1]]
    assert FAULTS[4] == "probabilities that do not sum to 1"


@pytest.mark.parametrize(
    "name", ["IndexBalancedAccuracy", "WeightedAccuracy", "AccuracyDominanceArea", "Dominance", "OptimizedPrecision"]
)
def test_two_classes_are_read_alike_as_binary_and_as_multiclass(name):
    generator = torch.Generator().manual_seed(2)
    scores, target = torch.rand(200, 2, generator=generator).softmax(1), torch.randint(2, (200,), generator=generator)
    keywords = {"alpha": 0.5} if name == "IndexBalancedAccuracy" else {"alpha": 0.8} if "Weighted" in name else {}
    metric = getattr(imbtorch, name)
    binary, multiclass = metric("binary", **keywords), metric("multiclass", 2, **keywords)
    assert multiclass(scores, target) == binary(scores[:, 1], target)
    report = ImbalanceReport("multiclass", 2, measures={"x": functools.partial(metric, **keywords)})
    assert report(scores, target)["x"] == binary.compute()
    views = metric("multiclass", 2, average="none", **keywords)(scores, target)
    assert views[1] == binary.compute()
    named = metric("multiclass", 2, average="macro", **keywords)(scores, target)
    assert named.item() == pytest.approx(views.mean().item())


F1_MEASURES = {
    "function": imbtorch.f_score,
    "partial of a function": functools.partial(imbtorch.f_score, beta=1.0),
    "class": imbtorch.FScore,
    "partial of a class": functools.partial(imbtorch.FScore, beta=1.0),
    "instance": imbtorch.FScore("binary"),
    "pair": (imbtorch.f_score, True),
}


@pytest.mark.parametrize("measured", F1_MEASURES.values(), ids=F1_MEASURES)
def test_one_rule_for_the_positive_class(measured):
    scores, target = torch.tensor([0.2, 0.9, 0.7, 0.4, 0.6]), torch.tensor([0, 1, 1, 1, 0])
    wanted = sk.f1_score(target, scores > 0.5)
    report = ImbalanceReport("binary", measures={"f1": measured}, per_class=())
    assert report(scores, target)["f1"].item() == pytest.approx(wanted)
    assert report["f1"].higher_is_better is True
    if not isinstance(measured, tuple):
        sweep = ThresholdSweep(measured, torch.tensor([0.5]))
        assert sweep(scores, target)["value"].item() == pytest.approx(wanted)


def test_parameters_of_instances_and_partials_count():
    scores, target = torch.tensor([0.2, 0.9, 0.7, 0.4, 0.6]), torch.tensor([0, 1, 1, 1, 0])
    wanted = sk.fbeta_score(target, scores > 0.5, beta=2)
    costs = torch.tensor([[0.0, 1.0], [5.0, 0.0]])
    for f2 in (imbtorch.FScore("binary", beta=2.0), functools.partial(imbtorch.FScore, beta=2.0)):
        sweep = ThresholdSweep(f2, torch.tensor([0.5]))
        assert sweep(scores, target)["value"].item() == pytest.approx(wanted)
        report = ImbalanceReport("binary", measures={"f2": f2}, per_class=())
        assert report(scores, target)["f2"].item() == pytest.approx(wanted)
    macro = functools.partial(imbtorch.f_score, average="macro")
    report = ImbalanceReport("binary", measures={"f1": macro}, per_class=())
    assert report(scores, target)["f1"].item() == pytest.approx(sk.f1_score(target, scores > 0.5, average="macro"))
    sweep = ThresholdSweep(functools.partial(imbtorch.ExpectedCost, costs=costs), torch.tensor([0.5]))
    assert sweep(scores, target)["value"].item() == pytest.approx((1 + 5) / 5)
    assert sweep["value"].higher_is_better is False
    with pytest.raises(TypeError, match=r"ExpectedCost takes arguments of its own; .*functools.partial\(ExpectedCost"):
        ThresholdSweep(imbtorch.ExpectedCost)


# --- collections ----------------------------------------------------------------------------------------------------


def test_a_failed_update_of_a_group_is_not_made_up_for_later():
    members = {"f": imbtorch.FScore("multiclass", 3), "r": imbtorch.Recall("multiclass", 3), "a": Accuracy("binary")}
    collection = MetricCollection(members)
    good = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
    collection.update(*good)
    with pytest.raises(ValueError, match="holds class 5"):
        collection.update(torch.tensor([5]), torch.tensor([0]))
    for name, metric in members.items():
        metric.update(*good)
        assert int(members["a"].confmat.sum()) == (6 if name == "a" else 3), name
    assert [int(metric.confmat.sum()) for metric in members.values()] == [6, 6, 6]


# --- messages -------------------------------------------------------------------------------------------------------


def test_a_missing_task_is_said_as_everything_else():
    for build in (imbtorch.ImbalanceAccuracy, imbtorch.FScore, imbtorch.ExpectedCost, ImbalanceReport, ConfusionMatrix):
        keywords = {"costs": [[0, 1, 1]] * 3} if build is imbtorch.ExpectedCost else {}
        with pytest.raises(ValueError, match=r"task.* must be 'binary', 'multiclass' or 'multilabel', as in"):
            build(num_classes=3, **keywords)


def test_targets_of_one_in_a_row_are_told_from_indices():
    with pytest.raises(ValueError, match=r"preds.long\(\) if .*, target.argmax\(1\) if each target is a one in a row"):
        Accuracy("multiclass", 5).update(torch.rand(4, 5), torch.eye(5, dtype=torch.int64)[:4])


def test_classes_come_second():
    scores = torch.rand(4, 7, 5)
    with pytest.raises(ValueError, match=r"classes second.*\[4, 7, 5\] and \[4, 7\]; use preds.movedim\(-1, 1\)"):
        Accuracy("multiclass", 5).update(scores, torch.zeros(4, 7, dtype=torch.long))
    with pytest.raises(ValueError, match=r"come second: use preds.movedim\(-1, 1\)"):
        Accuracy("binary").update(torch.rand(4, 7, 2), torch.zeros(4, 7, dtype=torch.long))


def test_numpy_numbers_are_numbers():
    metric = Accuracy("multiclass", np.int64(3), ignore_index=np.int32(-1))
    assert metric(torch.tensor([0, 1]), torch.tensor([0, -1])) == 1
    assert Accuracy("binary", threshold=np.float32(0.25)).threshold == 0.25
    assert imbtorch.Recall("multilabel", num_labels=np.uint8(2)).num_labels == 2
    with pytest.raises(TypeError, match="num_classes must be an int"):
        Accuracy("multiclass", np.bool_(True))


def test_more_classes_than_memory_says_what_they_take():
    with pytest.raises(ValueError, match=r"the counts take 80,000,000.0 GB.*state='margins'"):
        Accuracy("multiclass", 10**8)


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        (torch.rand(4).to(torch.float8_e4m3fn), r"float8_e4m3fn cannot be compared; use preds.float\(\)"),
        (torch.rand(4).to_sparse(), r"must be a dense tensor, got torch.sparse_coo; use preds.to_dense\(\)"),
    ],
)
def test_tensors_that_cannot_be_compared(tensor, match):
    with pytest.raises(TypeError, match=match):
        Accuracy("binary").update(tensor, torch.zeros(4, dtype=torch.long))


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
def test_masked_tensors_are_refused():
    masked = torch.masked.masked_tensor(torch.rand(4), torch.tensor([True, False, True, True]))
    with pytest.raises(TypeError, match=r"must be an ordinary tensor, got a MaskedTensor; use preds.to_tensor"):
        Accuracy("binary").update(masked, torch.zeros(4, dtype=torch.long))


def test_a_sweep_of_classes_calls_itself_by_its_name_and_tallies_each_sample_once(accelerator):
    sweep = ThresholdSweep(imbtorch.FScore, 5, "multiclass", num_classes=4, per_class=True)
    assert "task='multiclass'" in repr(sweep)
    assert (sweep.task, sweep.num_classes, sweep.num_labels) == ("multiclass", 4, None)
    assert not hasattr(sweep, "margins")
    scores, target = torch.rand(6, 4), torch.tensor([0, 1, 2, 3, 9, 0])
    scores[0, 2], scores[1, 0], scores[2, 1] = float("nan"), 1.5, -0.5
    sweep.update(scores, target)
    with pytest.raises(ValueError, match=r"4 of the samples.*: 1 targets out of range, 1 NaN scores, 2 probabilities"):
        sweep.compute()


def test_values_of_a_report_refuse_to_merge_and_draw_themselves():
    report = ImbalanceReport("binary")
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    with pytest.raises(TypeError, match="call merge_state of the report itself"):
        report["iam"].merge_state(report["iam"])
    figure, axes = report["iam"].plot()
    assert figure is not None
    assert axes.has_data()


def test_an_empty_rank_is_rank_zero(monkeypatch):
    monkeypatch.setenv("RANK", "")
    monkeypatch.setenv("LOCAL_RANK", "")
    with pytest.warns(UserWarning, match="has counted no sample"):
        Accuracy("binary").compute()


def test_the_worst_class_has_a_value_but_no_interval():
    metric = imbtorch.Recall("multiclass", 3, average="min")
    assert metric(PREDS, TARGET) == 0.5
    with pytest.raises(ValueError, match="no interval that covers it; use average='none'"):
        metric.interval()


# --- the call that other packages take ------------------------------------------------------------------------------


def takes_a_second_argument(name):
    return len(inspect.signature(getattr(imbtorch.measures, name)).parameters) > 1  # of others Python says it


@pytest.mark.parametrize("name", list(filter(takes_a_second_argument, imbtorch.measures.__all__)))
def test_a_measure_given_predictions_and_targets_says_what_makes_counts(name):
    with pytest.raises(ValueError, match=r"^counts must be .*confusion_matrix\(preds, target, task\) makes one"):
        getattr(imbtorch.measures, name)(torch.rand(20), torch.arange(20) % 2)


def test_names_in_the_place_of_indices_of_groups_are_not_all_listed():
    report = ImbalanceReport("binary", groups=["north", "south"])
    with pytest.raises(TypeError, match=r"^group must be a tensor \[N\] of indices .{,100}$"):
        report.update(torch.rand(100), torch.arange(100) % 2, group=["north"] * 100)


# --- what always guessing alike is worth in another population -----------------------------------------------------


@pytest.mark.parametrize("names", [["ok", "fraud"], ["fraud", "ok"]])
def test_the_commonest_class_is_that_of_the_population(names):
    """In a validation set with more frauds than in a thousand of the population."""
    shares = {"ok": 1000, "fraud": 1}
    report = ImbalanceReport("binary", class_names=names, prevalence=shares, measures=["accuracy", "iam"])
    ok = names.index("ok")
    target = torch.tensor([ok] * 100 + [1 - ok] * 120)
    report.update(torch.where(torch.arange(220) % 5 == 0, 1 - target, target), target)
    report.compute()
    assert "Baseline: always predicting 'ok': accuracy 0.9990, iam -0.0010" in str(report.table())
    _, ax = report.plot([report.compute()] * 2)
    levels = {round(float(level), 4) for line in ax.get_lines() for level in line.get_ydata()[:1]}
    assert 0.999 in levels


def test_labels_that_most_samples_have_are_always_predicted():
    report = ImbalanceReport("multilabel", num_labels=2, prevalence=[0.9, 0.2], measures=["accuracy"], per_class=())
    target = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]] * 5)
    report.update(target.flip(0), target)
    report.compute()
    assert "predicting of each label what is more common: accuracy 0.8500" in str(report.table())


# --- names where functions are asked for ----------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["iam", imbtorch.ImbalanceAccuracy, imbtorch.ImbalanceAccuracy("binary"), None])
def test_what_is_no_function_of_counts_is_told_how_to_become_one(measure):
    counts, target = torch.tensor([[9, 1], [2, 3]]), torch.tensor([0, 1] * 6)
    for call in (
        lambda: analysis.posterior(measure, counts),
        lambda: analysis.bootstrap({"a": measure}, counts),
        lambda: analysis.trivial(measure, counts),
        lambda: analysis.skew(measure, counts),
        lambda: analysis.select_epoch(torch.stack((target, 1 - target)), target, measure),
    ):
        with pytest.raises(TypeError, match=r"must be a function of counts such as imbtorch\.imbalance_accuracy, got"):
            call()
    with pytest.raises(TypeError, match=r"predictions must be a tensor of class indices \[M, N\], got a list"):
        analysis.select_epoch([target, target], target, imbtorch.accuracy)
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.2, 0.7]), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match=r"at_least must be a dict of floors such as .*, got 0\.8"):
        sweep.best(at_least=0.8)


def test_reported_values_without_an_interval_are_not_called_unknown():
    report = ImbalanceReport(
        "multiclass",
        class_names=[*"abcd"],
        groups=["x", "y"],
        class_groups={"tail": ["c"]},
        superclasses={"ab": ["a", "b"]},
        measures=["iam"],
        soft=True,
    )
    target = torch.arange(8) % 4
    report.update(torch.eye(4)[target], target, group=torch.arange(8) // 4)
    for name in ("iam/x", "iam_worst", "iam_soft", "iam/superclasses", "recall/tail"):
        assert name in report
        with pytest.raises(ValueError, match=f"{name!r} has no interval here, but overall values and those of single"):
            report.interval(name)
    with pytest.raises(ValueError, match=r"names \['iam/z'\], which are not reported"):
        report.interval("iam/z")


def test_a_collection_within_a_collection_is_told_where_a_report_goes():
    with pytest.raises(AttributeError, match="add the report to the outer one itself"):
        MetricCollection({"in": MetricCollection({"report": ImbalanceReport("binary")})})
