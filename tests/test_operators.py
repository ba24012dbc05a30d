"""A theme of several modules: operators of an update, and whether a compiler can trace it."""

import copy

import pytest
import torch
from rooms import FAULTS, Counting
from torch.utils._python_dispatch import TorchDispatchMode
from updates import CASES, ONE_OF_EACH_KERNEL, SIZE, batch
from versions import ONE_GRAPH, traced

import imbtorch
from imbtorch import ConfusionMatrix, Recall, confusion_matrix

SYNCHRONISING = ("bincount", "unique", "nonzero", "_local_scalar_dense", "masked_select", "(bool)")


class OperatorLog(TorchDispatchMode):
    """Names of the operators that reach a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masked = name in ("index", "index_put", "index_put_") and any(
            isinstance(each, torch.Tensor) and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        )
        self.names.append(f"{name}(bool)" if masked else name)
        return func(*args, **(kwargs or {}))

    def synchronising(self):
        return [name for name in self.names if any(part in name for part in SYNCHRONISING)]


def test_the_log_sees_what_it_looks_for():
    x = torch.tensor([1, 0, 2])
    with OperatorLog() as log:
        _ = x[x > 0], x.unique(), x.bincount(), x.nonzero(), x.masked_select(x > 0), x.max().item()
        x[x > 0] = torch.tensor([3, 4])
    found = log.synchronising()
    assert not [part for part in SYNCHRONISING if not any(part in name for name in found)]
    assert [name for name in found if name.startswith("index_put")]


def test_the_cpu_reads_values_beforehand():
    with OperatorLog() as log:
        ConfusionMatrix("binary").update(torch.tensor([0.2, 0.9]), torch.tensor([0, 1]))
    assert "_local_scalar_dense" in log.synchronising()


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_an_update_is_one_index_add(task, layout, scores, ignore_index):
    preds, target = batch(task, scores, ignore_index)
    metric = Recall(task, **SIZE[task], ignore_index=ignore_index, state=layout)
    with OperatorLog() as log:
        metric.update(preds, target)
    assert log.synchronising() == []
    assert log.names.count("index_add_") == 1
    assert not {name for name in log.names if name.startswith(("scatter", "index_put"))}
    with OperatorLog() as log:
        metric(preds, target)
        metric.reset()
    assert log.synchronising() == []


@pytest.mark.usefixtures("accelerator")
def test_bad_values_change_nothing_about_the_operators():
    logs = []
    for bad in (False, True):
        preds, target = batch("multiclass")
        if bad:
            preds[3], target[5] = float("nan"), 77
        metric = ConfusionMatrix("multiclass", 5)
        with OperatorLog() as log:
            metric.update(preds, target)
        logs.append(log.names)
    assert logs[0] == logs[1]
    assert metric.local_confmat.sum() == 38


def reference(task, layout, preds, target, ignore_index):
    counts = confusion_matrix(preds, target, task, **SIZE[task], ignore_index=ignore_index)
    if layout == "margins":
        counts = torch.stack((counts.diagonal(), counts.sum(1), counts.sum(0)))
    return counts.flatten()


@pytest.fixture
def compiled():
    """Compile reading and counting as one graph; recompiling for each counting must not hit dynamo's limit."""

    def compile_it(counting, backend):
        def count(state, preds, target):
            counting.add_(state, counting.read(preds, target), defer=lambda: True)

        return torch.compile(count, fullgraph=True, backend=backend)

    torch.compiler.reset()
    yield compile_it
    torch.compiler.reset()


@pytest.mark.default_cases(*ONE_OF_EACH_KERNEL)
@pytest.mark.parametrize(("task", "layout", "scores", "ignore_index"), CASES)
def test_counting_is_one_graph(task, layout, scores, ignore_index, compiled):
    counting = Counting.of(task, **SIZE[task], ignore_index=ignore_index, layout=layout)
    count, state = compiled(counting, "eager"), counting.zeros()
    wanted = torch.zeros(counting.cells, dtype=torch.long)
    for seed, samples in enumerate((40, 40, 17)):
        preds, target = batch(task, scores, ignore_index, samples, seed)
        count(state, preds, target)
        wanted += reference(task, layout, preds, target, ignore_index)
    assert torch.equal(state[: counting.cells], wanted)
    assert not counting.faults(state).any()
    preds, target = batch(task, scores, ignore_index)
    target.view(-1)[3] = 77
    count(state, preds, target)
    assert counting.faults(state).tolist() == [1, *[0] * (len(FAULTS) - 1)]


@pytest.fixture(scope="module")
def inductor():
    """Skip where no C++ compiler works."""
    try:
        torch.compile(lambda x: x + 1, backend="inductor")(torch.ones(2))
    except Exception as error:  # a missing or broken toolchain shows in many ways
        pytest.skip(f"inductor cannot compile here: {type(error).__name__}: {str(error)[:200]}")


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("task", "layout"), [("multiclass", "matrix"), ("multilabel", "matrix")])
def test_inductor_counts_the_same(task, layout, compiled):
    preds, target = batch(task, ignore_index=-100)
    counting = Counting.of(task, **SIZE[task], ignore_index=-100, layout=layout)
    count, state = compiled(counting, "inductor"), counting.zeros()
    for _ in range(2):
        count(state, preds, target)
    assert torch.equal(state[: counting.cells], 2 * reference(task, layout, preds, target, -100))


STEPS = {
    "matrix": lambda: ConfusionMatrix("multiclass", 5),
    "margins": lambda: Recall("multiclass", 5, state="margins", ignore_index=2),
    "report": lambda: imbtorch.ImbalanceReport("multiclass", 5, prefix="val_"),
    "binary": lambda: imbtorch.MatthewsCorrCoef("binary", logits=True),
    "multilabel": lambda: imbtorch.FScore("multilabel", num_labels=5, on_invalid="warn"),
    "sweep": lambda: imbtorch.ThresholdSweep(imbtorch.f_score, task="multiclass", num_classes=5),
}


@pytest.mark.default_cases("matrix-no_grad", "margins-inference_mode", "sweep-enable_grad")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("name", STEPS)
def test_a_compiled_validation_step(name, mode):
    torch.compiler.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.manual_seed(0)
    with mode():
        metric = STEPS[name]()  # born under inference_mode as well
    expected, net = STEPS[name](), torch.nn.Linear(5, 5)
    task = metric.task if name != "sweep" else "multiclass"

    def step(inputs, target):
        scores = net(inputs)
        scores = scores if task == "binary" else scores.softmax(-1)
        metric.update(scores[:, 0] if task == "binary" else scores, target)
        return scores

    compiled = traced(step, backend)
    with mode():
        for seed in range(100):
            _, target = batch(task, seed=seed)
            scores = compiled(torch.randn(40, 5, generator=torch.Generator().manual_seed(seed)), target)
            expected.update(scores[:, 0] if task == "binary" else scores, target)
    assert len(graphs) == 1 or not ONE_GRAPH  # neither a break nor a second compilation
    assert metric.update_called
    state = metric.metric_state
    assert [each.tolist() for each in state.values()] == [each.tolist() for each in expected.metric_state.values()]
    metric.update(*([0.3 * torch.ones(4)] if task == "binary" else [torch.rand(4, 5).softmax(-1)]), target[:4])
    assert metric.update_count == 2  # a graph cannot count its calls: they are one
    torch.compiler.reset()


@pytest.mark.parametrize("name", STEPS)
def test_modes_leave_a_state_that_can_be_written_to(name):
    metric = STEPS[name]()
    task = metric.task if name != "sweep" else "multiclass"
    preds, target = batch(task)
    updates = 0
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            for given in (preds, preds.bfloat16(), preds.clone().requires_grad_()):
                metric.update(given, target)
                metric(given, target)
                updates += 2
            metric.compute()
        copies = copy.deepcopy(metric), metric.clone()
        for each in copies:
            each.update(preds, target)
            assert each.update_count == updates + 1
        metric.update(preds, target)
        updates += 1
        counted = sum(int(each.sum()) for each in metric.metric_state.values())
        assert counted == updates * sum(int(each.sum()) for each in fresh(name, preds, target).values())


def fresh(name, preds, target):
    metric = STEPS[name]()
    metric.update(preds, target)
    return metric.metric_state


@pytest.mark.parametrize("name", STEPS)
def test_deterministic_algorithms(name):
    metric = STEPS[name]()
    preds, target = batch(metric.task if name != "sweep" else "multiclass")
    torch.use_deterministic_algorithms(True)
    try:
        metric.update(preds, target)
        metric(preds, target)
        metric.compute()
    finally:
        torch.use_deterministic_algorithms(False)
    twice = STEPS[name]()
    twice.update(preds, target)
    twice.update(preds, target)
    assert {key: each.tolist() for key, each in metric.metric_state.items()} == {
        key: each.tolist() for key, each in twice.metric_state.items()
    }


@pytest.mark.parametrize("samples", [10, 100])
def test_compute_reads_one_value(samples):
    metric = imbtorch.ImbalanceReport("multiclass", 5)
    for _ in range(samples // 10):
        metric.update(*batch("multiclass"))
    with OperatorLog() as log:
        metric.compute()
    assert log.names.count("_local_scalar_dense") <= 11  # of one tensor: Tensor.tolist reads them one by one on the CPU
    assert not {name for name in log.names if name in ("nonzero", "is_nonzero", "equal", "index(bool)")}
