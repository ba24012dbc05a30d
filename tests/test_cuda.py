"""A theme of several modules: CUDA devices, where nothing waits and graphs are captured; skipped without one."""

import warnings

import pytest
import torch
from rooms import catalogue as metrics
from rooms import state_of
from updates import CASES, LAYOUTS, SIZE, batch

import imbtorch
from imbtorch import ConfusionMatrix, Recall, confusion_matrix

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = "cuda"


def on_cpu(task, layout, ignore_index, *batches, **arguments):
    """State of a metric on the CPU, whose counts other tests hold against scikit-learn."""
    metric = Recall(task, **SIZE[task], ignore_index=ignore_index, state=layout, **arguments)
    for each in batches:
        metric.update(*each)
    return counted(metric)


def counted(metric):
    return state_of(metric).cpu()  # not by its name: a state that was handed out is replaced at the next reset


def moved(*tensors):
    return tuple(each.to(DEVICE) for each in tensors)


@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_an_update_does_not_wait(task, layout, scores, ignore_index):
    given = batch(task, scores, ignore_index)
    bad = given[1].clone()
    bad.view(-1)[3] = 77
    metric = Recall(task, **SIZE[task], ignore_index=ignore_index, state=layout, on_invalid="warn").to(DEVICE)
    there, bad_there = moved(*given), bad.to(DEVICE)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        metric.update(*there)
        metric.reset()
        metric.update(*there)
        metric(*there)
        metric.update(there[0], bad_there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wanted = on_cpu(task, layout, ignore_index, given, given, (given[0], bad), on_invalid="warn")
    assert torch.equal(counted(metric), wanted)


@pytest.mark.parametrize("classes", [3, 100])
def test_an_update_of_adjustments_does_not_wait(classes):
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(500, classes, generator=generator), torch.arange(500) % classes
    here, there = (imbtorch.LogitAdjustmentSweep("f1", torch.arange(classes, 0, -1), logits=True) for _ in range(2))
    there = there.to(DEVICE)
    given = moved(scores, target)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        there.update(*given)
        there.update(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here.update(scores, target)
    here.update(scores, target)
    assert torch.equal(counted(there).cpu(), counted(here))
    assert {name: value.item() for name, value in there.compute().items()} == {
        name: value.item() for name, value in here.compute().items()
    }
    rule = there.result().rule.to(DEVICE).half()
    assert rule.prior.dtype == torch.float64
    assert torch.equal(rule(given[0]).cpu().argmax(1), here.result().rule(scores).argmax(1))


@pytest.mark.parametrize("name", [*metrics.__all__, "ImbalanceReport", "ConfusionMatrix"])
def test_compute_waits_once(name):
    arguments = {"costs": torch.ones(2, 2)} if name == "ExpectedCost" else {}
    metric = getattr(imbtorch, name)("binary", **arguments).to(DEVICE)
    metric.update(*moved(*batch("binary")))
    metric.compute()  # the first call may load kernels
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            metric.compute()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waited = [each for each in caught if "synchroniz" in str(each.message)]
    assert len(waited) <= 1


@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_an_update_in_a_cuda_graph(task, layout, scores, ignore_index):
    metric = Recall(task, **SIZE[task], ignore_index=ignore_index, state=layout, on_invalid="warn").to(DEVICE)
    preds, target = moved(*batch(task, scores, ignore_index))
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # warm up aside, as captures want
        metric.update(preds, target)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        metric.update(preds, target)
    for _ in range(2):  # the state keeps its address through reset and compute
        metric.reset()
        given = [batch(task, scores, ignore_index, seed=seed) for seed in range(1, 5)]
        for new_preds, new_target in given:
            preds.copy_(new_preds)
            target.copy_(new_target)
            graph.replay()
        metric.compute()
        assert torch.equal(counted(metric), on_cpu(task, layout, ignore_index, *given))


@pytest.mark.parametrize("share", [0.0, 0.99])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_many_samples_in_one_cell(classes, share):
    preds, target = (torch.randint(classes, (1_000_000,), device=DEVICE) for _ in range(2))
    target[torch.rand(1_000_000, device=DEVICE) < share] = 0
    preds = torch.where(target == 0, 0, preds) if share else preds
    metric = ConfusionMatrix("multiclass", classes).to(DEVICE)
    metric.update(preds, target)
    wanted = torch.bincount(target * classes + preds, minlength=classes**2).view(classes, classes)
    assert torch.equal(metric.compute(), wanted)


@pytest.mark.parametrize("ignore_index", [None, 255])
def test_memory_of_an_update(ignore_index):
    pixels = 10_000_000
    preds, target = (torch.randint(20, (pixels,), device=DEVICE) for _ in range(2))
    metric = ConfusionMatrix("multiclass", 20, ignore_index=ignore_index).to(DEVICE)
    metric.update(preds[:10], target[:10])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    metric.update(preds, target)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= 40 * pixels


@pytest.mark.parametrize(("task", "layout"), LAYOUTS)
def test_deterministic_algorithms(task, layout):
    given = batch(task)
    metric = Recall(task, **SIZE[task], state=layout).to(DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        metric.update(*moved(*given))
        metric(*moved(*given))
        metric.compute()
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(counted(metric), on_cpu(task, layout, None, given, given))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(("task", "layout"), LAYOUTS)
def test_a_compiled_update(task, layout, mode):
    torch.compiler.reset()
    metric = Recall(task, **SIZE[task], state=layout).to(DEVICE)
    step = torch.compile(lambda preds, target: metric.update(preds, target), fullgraph=True)
    given = [batch(task, seed=seed) for seed in range(5)]
    with mode():
        for each in given:
            step(*moved(*each))
    assert torch.equal(counted(metric), on_cpu(task, layout, None, *given))
    torch.compiler.reset()


def test_autocast_and_half_precision():
    net = torch.nn.Linear(5, 5).to(DEVICE)
    metric = imbtorch.ImbalanceReport("multiclass", 5).to(DEVICE)
    inputs, target = torch.randn(64, 5, device=DEVICE), torch.randint(5, (64,), device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        scores = net(inputs)
        metric.update(scores, target)
        values = metric.compute()
    assert scores.dtype == torch.bfloat16
    wanted = confusion_matrix(scores.cpu(), target.cpu(), "multiclass", num_classes=5)
    assert torch.equal(metric.counts().cpu(), wanted)
    assert values["iam"].dtype == torch.float32
    assert values["iam"].device.type == DEVICE
    torch.testing.assert_close(values["iam"].double().cpu(), imbtorch.imbalance_accuracy(wanted), rtol=1e-6, atol=1e-7)


def test_a_metric_left_on_the_cpu_says_so():
    metric = ConfusionMatrix("multiclass", 5)
    with pytest.raises(ValueError, match=r"move the metric: metric.to\('cuda:0'\)"):
        metric.update(*moved(*batch("multiclass")))
