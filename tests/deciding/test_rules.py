"""Decision rules: their decisions, their numbers in checkpoints, their precision, and other forms of a module."""

import contextlib
import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torchmetrics
from adjustments import long_tail
from processes import launch
from sklearn.metrics import balanced_accuracy_score
from torch.fx.experimental.proxy_tensor import make_fx

import imbtorch
from imbtorch import LogitAdjustment, LogitAdjustmentSweep, Threshold, ThresholdSweep

PRIOR = [900, 90, 10]
ADJUSTMENT = LogitAdjustment(PRIOR, logits=True)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 5)])
@pytest.mark.parametrize("tau", [0.0, 1.0, -0.5])
def test_adjusted_logits(shape, tau):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    logs = np.log(np.array(PRIOR) / 1000).reshape(3, *[1] * (len(shape) - 2))
    found = LogitAdjustment(PRIOR, tau, logits=True)(logits)
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), logits.numpy() - tau * logs, atol=1e-6)


def test_tau_one_chooses_by_the_likelihood():
    """Of calibrated logits tau = 1 leaves the log-likelihood of each class, up to a constant."""
    logits, _, prior = long_tail(200)
    likelihood = logits - prior.div(prior.sum()).log()
    assert torch.allclose(LogitAdjustment(prior, logits=True)(logits), likelihood, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rules_add_in_float32_at_least(dtype):
    logits = torch.tensor([[10.0, 0.0, 0.0]], dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert LogitAdjustment(PRIOR, logits=True)(logits).dtype == wide
    half = LogitAdjustment([90000, 9, 1], 0.1, logits=True).to(dtype)
    assert half.prior.dtype == half.tau.dtype == torch.float64
    assert half.tau == 0.1
    assert torch.equal(half(logits), LogitAdjustment([90000, 9, 1], 0.1, logits=True)(logits))
    label = Threshold([0.1, 0.2]).half()
    assert label.threshold.tolist() == [0.1, 0.2]


def test_thresholds_are_strict_and_count_as_metrics_do():
    scores, target = torch.rand(300, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 2
    scores[:50] = 0.3
    for logits, dtype in ((False, torch.float32), (True, torch.float32), (True, torch.float64), (False, torch.half)):
        given = (scores.double().logit() if logits else scores).to(dtype)
        metric = imbtorch.ConfusionMatrix("binary", threshold=0.3, logits=logits)
        rule = imbtorch.ConfusionMatrix("binary")
        metric.update(given, target)
        rule.update(Threshold(0.3, logits=logits)(given), target)
        assert torch.equal(rule.compute(), metric.compute())
    assert Threshold(0.3)(torch.tensor([0.3, 0.31])).tolist() == [0, 1]
    assert Threshold(0.0, logits=True)(torch.tensor([-100.0])).tolist() == [1]
    assert Threshold(1.0, logits=True)(torch.tensor([100.0])).tolist() == [0]


def test_thresholds_of_labels():
    scores = torch.tensor([[0.3, 0.3], [0.6, 0.6]])
    assert Threshold([0.2, 0.5])(scores).tolist() == [[1, 0], [1, 1]]
    several = scores.unsqueeze(-1).expand(2, 2, 3)
    assert Threshold([0.2, 0.5])(several)[0].tolist() == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (LogitAdjustment(PRIOR, 0.5, logits=True), (4, 3)),
        (LogitAdjustment(PRIOR, 0.5, logits=True), (4, 3, 2)),
        (Threshold(0.4, logits=True), (4,)),
        (Threshold([0.4, 0.3, 0.2]), (4, 3)),
    ],
)
def test_other_forms_decide_alike(rule, shape):
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    expected = rule(scores)
    scripted = torch.jit.script(rule)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    exported = torch.export.export(torch.nn.Sequential(rule), (scores,))
    forms = (scripted, torch.jit.load(buffer), exported.module(), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule)))
    for form in forms:
        assert torch.equal(form(scores), expected)


def test_the_state_dict_holds_the_rule():
    source, target = LogitAdjustment(PRIOR, 0.25, logits=True), LogitAdjustment([1, 2, 3], logits=True)
    assert list(source.state_dict()) == ["prior", "tau", "chosen"]
    target.load_state_dict(source.state_dict())
    assert target.tau == 0.25
    assert torch.equal(target.prior, source.prior)
    assert list(Threshold(0.5).state_dict()) == ["threshold", "log_odds", "chosen", "class_axis"]
    empty = LogitAdjustment(PRIOR, logits=True).to("meta").to_empty(device="cpu")
    empty.load_state_dict(source.state_dict())
    assert torch.equal(empty.prior, source.prior)


def swept():
    logits, target, prior = long_tail(2000)
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(2 * logits, target)  # overconfident, so that tau is near 2
    return sweep


def test_take_writes_in_place():
    sweep, rule = swept(), LogitAdjustment([1, 2, 3, 4, 5], logits=True)
    prior, tau = rule.prior, rule.tau
    kept = rule.state_dict()
    result = sweep.result()
    rule.take(result)
    assert rule.tau == result.tau != 1
    assert torch.equal(rule.prior, result.prior)
    assert rule.prior is prior
    assert rule.tau is tau
    assert kept["tau"] == result.tau
    point = sweep.best(measure="accuracy")
    rule.take(point)
    assert rule.tau == point.tau != result.tau
    rule.take(result)
    assert rule.tau == result.tau
    with torch.inference_mode():
        rule.take(point)
    assert rule.tau == point.tau


def test_take_of_a_threshold():
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 0, 1, 1]))
    rule = Threshold(0.5)
    rule.take(sweep.result())
    assert rule.threshold == sweep.compute()["threshold"] != 0.5
    rule.take(sweep.best(at_least={"recall": 0.5}))
    labels = ThresholdSweep("f1", task="multilabel", num_labels=2, also=("auc",))
    scores = torch.tensor([[0.1, 0.9], [0.3, 0.4], [0.6, 0.3], [0.8, 0.2]])
    labels.update(scores, torch.tensor([[0, 1], [0, 1], [1, 0], [1, 0]]))
    both = Threshold([0.5, 0.5])
    both.take(labels.result())
    assert both.threshold.tolist() == [value.item() for name, value in labels.compute().items() if "thresh" in name]
    assert torch.equal(both(scores), torch.tensor([[0, 1], [0, 1], [1, 0], [1, 0]]))
    both.take(labels.best())
    with pytest.raises(ValueError, match="2 thresholds, but this rule has 1"):
        rule.take(labels.result())
    with pytest.raises(TypeError, match=r"result of a ThresholdSweep or a point of its best\(\), got a float"):
        rule.take(0.5)
    with pytest.raises(TypeError, match="got a ThresholdSweep; it owns a rule that holds its choice"):
        rule.take(sweep)


def test_take_refuses_other_classes():
    with pytest.raises(ValueError, match="source has 5 classes, but this rule has 3"):
        LogitAdjustment(PRIOR, logits=True).take(swept().result())
    with pytest.raises(TypeError, match=r"LogitAdjustmentSweep or a point of its best\(\), got a float"):
        LogitAdjustment(PRIOR, logits=True).take(0.5)
    with pytest.raises(TypeError, match="got a LogitAdjustmentSweep; it owns a rule"):
        LogitAdjustment([1, 2, 3, 4, 5], logits=True).take(swept())


def test_take_refuses_another_kind_of_scores():
    adjusted, threshold = swept(), ThresholdSweep("f1", logits=True)
    threshold.update(torch.tensor([-1.0, 2.0, 1.0]), torch.tensor([0, 1, 1]))
    labels = ThresholdSweep("f1", task="multilabel", num_labels=1, logits=True)
    labels.update(torch.tensor([[-1.0], [2.0], [1.0]]), torch.tensor([[0], [1], [1]]))
    for rule, sources in {
        LogitAdjustment([1, 2, 3, 4, 5], logits=False): (adjusted.result(), adjusted.best()),
        Threshold(0.5): (threshold.result(), threshold.best()),
        Threshold([0.5]): (labels.result(), labels.best()),
    }.items():
        before = copy.deepcopy(rule.state_dict())
        for source in sources:
            with pytest.raises(ValueError, match=r"chosen for logits, but this .* takes probabilities"):
                rule.take(source)
        assert all(torch.equal(before[name], each) for name, each in rule.state_dict().items())
    adjusted.rule.take(adjusted.best(measure="accuracy"))
    assert adjusted.rule.tau == adjusted.best(measure="accuracy").tau


def test_probabilities_are_adjusted_as_their_logits():
    logits, _, prior = long_tail(500)
    of_logits, of_probabilities = LogitAdjustment(prior, 0.7, logits=True), LogitAdjustment(prior, 0.7, logits=False)
    expected = (logits - 0.7 * prior.div(prior.sum()).log()).argmax(1)
    assert torch.equal(of_logits.predict(logits), expected)
    assert torch.equal(of_probabilities.predict(logits.softmax(1)), expected)
    assert torch.equal(of_probabilities(logits.softmax(1)).argmax(1), expected)
    assert not torch.equal(logits.argmax(1), expected)
    assert torch.equal(Threshold(0.3).predict(torch.tensor([0.3, 0.31])), torch.tensor([0, 1]))


@pytest.mark.parametrize("shape", [(4, 1), (4, 2), (3,), (4, 1, 3)])
def test_thresholds_refuse_another_number_of_labels(shape):
    with pytest.raises(ValueError, match=r"scores must be \[N, 3, ...\]"):
        Threshold([0.1, 0.2, 0.3])(torch.rand(shape))


# --- numbers that are neither cast nor averaged -----------------------------------------------------------------------

RULES = (
    lambda: LogitAdjustment([90000, 9, 1], 0.7, logits=True),
    lambda: Threshold(0.9999),
    lambda: Threshold([0.9999, 1e-5]),
)


def columns(rule):
    """Return the number of scores of a sample."""
    return len(rule.prior) if isinstance(rule, LogitAdjustment) else rule.threshold.numel()


def numbers(module):
    """Return the entries of a state dict as exact numbers."""
    return {name: each.double().tolist() for name, each in module.state_dict().items()}


@pytest.mark.parametrize("make", RULES)
def test_nothing_is_a_buffer_or_a_parameter(make):
    rule = make()
    assert not list(rule.parameters())
    assert not list(rule.buffers())
    for moved in (rule.half(), rule.bfloat16(), rule.float(), rule.to(torch.bfloat16)):
        assert numbers(moved) == numbers(make())
    assert {each.dtype for each in rule.state_dict().values()} == {torch.float64}


@pytest.mark.parametrize("make", RULES)
def test_rules_built_on_the_meta_device_keep_their_values(make):
    with torch.device("meta"):
        rule = make()
    assert numbers(rule) == numbers(make())
    assert numbers(rule.to("meta").to_empty(device="cpu")) == numbers(make())
    scores = torch.rand(4, columns(rule))
    assert rule(scores.to("meta")).shape == rule(scores).shape
    with pytest.raises(ValueError, match="meta device, which holds no numbers"):
        Threshold(torch.tensor(0.5, device="meta"))


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("copied", [True, False])
def test_take_works_inside_and_outside_of_inference_mode(inside, copied):
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.1, 0.3, 0.6, 0.8]), torch.tensor([0, 0, 1, 1]))
    point = sweep.best()
    with torch.inference_mode():
        rule = Threshold(torch.tensor(0.25))
        rule = copy.deepcopy(rule) if copied else rule
    with torch.inference_mode(inside):
        rule.take(point)
        rule.load_state_dict(rule.state_dict())
    assert rule.threshold == point.threshold


class Ruled(torch.nn.Module):
    """Network with rules and a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.rules = torch.nn.ModuleList(make() for make in RULES)
        self.register_buffer("cast", torch.tensor(0.9999))

    def forward(self, scores):
        return self.rules[0](self.layer(scores))


def sharded(rank, world, folder):
    """Wrap rules by FSDP in bfloat16; save and load them."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    half = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    network = Ruled()
    wrapped = FullyShardedDataParallel(network, mixed_precision=half, device_id=torch.device("cpu"))
    assert wrapped(torch.ones(1, 3)).dtype == torch.float32
    assert network.cast.dtype == torch.bfloat16
    found = [numbers(rule) for rule in network.rules]
    saved = get_model_state_dict(wrapped)
    checkpoint.save(saved, checkpoint_id=folder)
    for each in network.rules.state_dict().values():
        each.zero_()
    loaded = get_model_state_dict(wrapped)
    checkpoint.load(loaded, checkpoint_id=folder)
    set_model_state_dict(wrapped, loaded)
    return found, [numbers(rule) for rule in network.rules]


@pytest.mark.filterwarnings("ignore")
def test_fully_sharded_training_in_bfloat16_casts_no_rule(tmp_path):
    ((found, loaded),) = launch(1, sharded, str(tmp_path))
    assert found == loaded == [numbers(make()) for make in RULES]


@pytest.mark.parametrize("use_buffers", [True, False])
def test_averaged_models_average_no_rule(use_buffers):
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), Threshold(0.9999))
    model = torch.optim.swa_utils.AveragedModel(network, use_buffers=use_buffers)
    network[1].load_state_dict(Threshold(0.1).state_dict())
    for _ in range(3):
        model.update_parameters(network)
    assert numbers(model.module[1]) == numbers(Threshold(0.9999))


def test_safetensors_hold_rules(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    network = torch.nn.Sequential(*(make() for make in RULES))
    safetensors.save_model(network, str(tmp_path / "model"))
    other = torch.nn.Sequential(LogitAdjustment(PRIOR, logits=True), Threshold(0.5), Threshold([0.5, 0.5]))
    safetensors.load_model(other, str(tmp_path / "model"))
    assert numbers(other) == numbers(network)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize("make", RULES)
def test_compiled_rules_are_one_graph(make):
    rule = make()
    scores = torch.rand(8, columns(rule))
    compiled = torch.compile(rule, backend="eager", fullgraph=True)
    assert torch.equal(compiled(scores), rule(scores))
    assert torch.equal(torch.jit.trace(rule, scores)(scores), rule(scores))


# --- loading ----------------------------------------------------------------------------------------------------------


def test_rules_alone_are_loaded_strictly():
    with pytest.raises(RuntimeError, match=r'Missing key.*"tau"'):
        LogitAdjustment(PRIOR, logits=True).load_state_dict({"prior": torch.ones(3)})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"tau"'):
        Threshold(0.5).load_state_dict({**Threshold(0.5).state_dict(), "tau": torch.tensor(0.5)})
    assert Threshold(0.5).load_state_dict({}, strict=False).missing_keys == ["threshold", "log_odds"]


def test_another_number_of_classes_names_both():
    with pytest.raises(RuntimeError, match="prior holds 5 classes, but this LogitAdjustment has 3"):
        LogitAdjustment(PRIOR, logits=True).load_state_dict(LogitAdjustment([1, 2, 3, 4, 5], logits=True).state_dict())
    with pytest.raises(RuntimeError, match="threshold holds 2 thresholds, but this Threshold has 1"):
        Threshold(0.5).load_state_dict(Threshold([0.1, 0.2]).state_dict())
    one, other = (
        torch.nn.ModuleDict({"sweep": LogitAdjustmentSweep("recall", prior, logits=True)})
        for prior in (PRIOR, [5, 4, 3, 2, 1])
    )
    with pytest.raises(RuntimeError, match=r"sweep\.rule\.prior holds 5 classes, but this LogitAdjustment has 3"):
        one.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("rule", "change", "text"),
    [
        (Threshold(0.3), {"threshold": torch.tensor(1.5)}, "threshold holds numbers outside"),
        (Threshold(0.3), {"threshold": torch.tensor(torch.nan)}, "threshold holds numbers outside"),
        (Threshold([0.3, 0.4]), {"threshold": torch.tensor([0.3, -0.1])}, "threshold holds numbers outside"),
        (Threshold(0.3), {"log_odds": torch.tensor(3.0)}, "log_odds is not that of threshold"),
        (Threshold(0.3), {"log_odds": torch.tensor(torch.nan)}, "log_odds is not that of threshold"),
        (Threshold(0.3), {"threshold": torch.tensor(0.3, device="meta")}, "dense tensor of real numbers, got one of"),
        (Threshold(0.3), {"threshold": torch.tensor(0.3).to_sparse()}, "got one of torch.float32, torch.sparse_coo"),
        (Threshold(0.3), {"threshold": 0.3}, "must be a dense tensor of real numbers, got float"),
        (Threshold(0.3), {"threshold": torch.tensor(1)}, "got one of torch.int64"),
        (ADJUSTMENT, {"tau": torch.tensor(torch.inf)}, "tau is inf, which no LogitAdjustment has"),
        (ADJUSTMENT, {"prior": torch.tensor([0.5, 0.5, 0.0])}, "prior holds no positive shares"),
        (ADJUSTMENT, {"prior": torch.tensor([0.5, 0.5, 0.5])}, "prior holds no positive shares"),
        (ADJUSTMENT, {"prior": torch.tensor([0.5, 0.5, torch.nan])}, "prior holds no positive shares"),
    ],
)
def test_numbers_that_no_rule_has_are_refused_and_change_nothing(rule, change, text):
    before = numbers(rule)
    with pytest.raises(RuntimeError, match=rf"Error\(s\) in loading state_dict.*\n.*{text}"):
        rule.load_state_dict(rule.state_dict() | change)
    assert numbers(rule) == before
    rounded = {name: each.float() for name, each in rule.state_dict().items()}
    rule.load_state_dict(rounded)  # of a device without float64


def test_a_module_saved_without_a_sweep_loads_and_its_rule_warns_once():
    older = torch.nn.ModuleDict({"net": torch.nn.Linear(1, 1)})
    module = torch.nn.ModuleDict({"net": torch.nn.Linear(1, 1), "sweep": ThresholdSweep("f1")})
    module.load_state_dict(older.state_dict())
    scores = torch.tensor([0.4, 0.6])
    with pytest.warns(UserWarning, match="holds no rule, so Threshold.threshold=0.5, logits=False. decides as before"):
        assert module["sweep"].rule(scores).tolist() == [0, 1]
    module["sweep"].rule(scores)
    module.load_state_dict(older.state_dict())
    module["sweep"].update(scores, torch.tensor([0, 1]))
    module["sweep"].compute()
    module["sweep"].rule(scores)  # it was chosen since


@pytest.mark.parametrize("inside", [False, True])
def test_a_tracker_of_sweeps_within_a_module_loads(inside):
    def make():
        sweep = ThresholdSweep("f1")
        tracked = torchmetrics.MetricCollection({"s": sweep}) if inside else sweep
        return torch.nn.ModuleDict(
            {"tracker": torchmetrics.MetricTracker(tracked, maximize=[True] if inside else True)}
        )

    module = make()
    for shift in (0.0, 0.1):
        module["tracker"].increment()
        module["tracker"].update(torch.tensor([0.1, 0.3, 0.6]) + shift, torch.tensor([0, 0, 1]))
        module["tracker"].compute()
    saved = copy.deepcopy(module.state_dict())
    assert sum("threshold" in key for key in saved) == 3
    make().load_state_dict(saved)
    module["tracker"].increment()
    module.load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other"):
        make().load_state_dict(saved | {"tracker.other.rule.threshold": torch.tensor(0.5)})


@pytest.mark.parametrize(
    ("prior", "error", "text"),
    [
        ([900, 0, 10], ValueError, "prior is 0 for class 1"),
        ([900, 0, 0], ValueError, "prior is 0 for classes 1, 2"),
        ([900, -1, 10], ValueError, "not negative"),
        ([900, float("inf")], ValueError, "finite"),
        ([900], ValueError, "at least two classes"),
        ([[1, 2], [3, 4]], ValueError, r"shape \[2, 2\]"),
        ("many", TypeError, "prior must be the number or share"),
    ],
)
def test_priors_that_are_refused(prior, error, text):
    with pytest.raises(error, match=text):
        LogitAdjustment(prior, logits=True)


def test_other_arguments_that_are_refused():
    with pytest.raises(ValueError, match="tau must be a finite number"):
        LogitAdjustment(PRIOR, float("nan"), logits=True)
    with pytest.raises(ValueError, match=r"scores must be \[N, 3, ...\]"):
        LogitAdjustment(PRIOR, logits=True)(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\]"):
        Threshold(1.5)
    with pytest.raises(TypeError, match="threshold must be a number"):
        Threshold("0.5")


def test_equal_shares_are_told():
    with pytest.warns(UserWarning, match="prior is the same for all classes"):
        LogitAdjustment([5, 5, 5], logits=True)


def test_the_prior_is_a_copy():
    counts = torch.tensor([9.0, 1.0], dtype=torch.float64)
    rule = LogitAdjustment(counts, logits=True)
    counts.zero_()
    assert rule.prior.tolist() == [0.9, 0.1]


# --- what a rule tells at its first use -------------------------------------------------------------------------------

START = {
    "Threshold": (lambda: ThresholdSweep("f1"), "predicts at its start, threshold 0.5: log the sweep"),
    "labels": (
        lambda: ThresholdSweep("f1", task="multilabel", num_labels=3),
        "predicts at its start, threshold 0.5: log the sweep",
    ),
    "LogitAdjustment": (
        lambda: LogitAdjustmentSweep("balanced_accuracy", PRIOR),
        "predicts at its start, tau 0: log the sweep",
    ),
}
SCORES = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.3, 0.6, 0.1], [0.2, 0.3, 0.5]])


def counted(kind):
    """Return a sweep that has counted samples, and scores for its rule."""
    sweep = START[kind][0]()
    scores = SCORES[:, 0] if kind == "Threshold" else SCORES
    target = {"Threshold": torch.tensor([1, 1, 0, 0]), "labels": (SCORES > 0.4).long()}
    sweep.update(scores, target.get(kind, torch.tensor([0, 0, 1, 2])))
    return sweep, scores


@pytest.mark.parametrize("kind", START)
def test_a_rule_that_was_never_chosen_tells_once(kind):
    sweep, scores = counted(kind)
    with pytest.warns(UserWarning, match=START[kind][1]):
        sweep.rule(scores)
    sweep.rule.predict(scores)  # once
    sweep, scores = counted(kind)
    sweep.compute()
    sweep.rule(scores)
    other, _ = counted(kind)
    other.rule.take(sweep.result())
    other.rule(scores)
    quiet, _ = counted(kind)
    quiet.rule.quiet = True
    quiet.rule(scores)


@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("copied", ["state", "without metadata", "file", "in place"])
def test_whether_a_rule_was_chosen_travels_in_its_state(kind, copied, tmp_path):
    for chosen in (False, True):
        sweep, scores = counted(kind)
        module = torch.nn.ModuleDict({"sweep": sweep})
        if chosen:
            sweep.compute()
        state = module.state_dict()
        if copied == "without metadata":
            state = {name: each.clone() for name, each in state.items()}
        if copied == "file":
            torch.save(state, tmp_path / "state")
            state = torch.load(tmp_path / "state", weights_only=True)
        other = torch.nn.ModuleDict({"sweep": START[kind][0]()})
        if copied == "in place":
            for name, each in other.state_dict().items():
                each.copy_(state[name])
        else:
            other.load_state_dict(state)
        with contextlib.nullcontext() if chosen else pytest.warns(UserWarning, match=START[kind][1]):
            other["sweep"].rule(scores)
        again = START[kind][0]()
        again.rule.load_state_dict(other["sweep"].rule.state_dict())  # as to averaged weights
        assert again.rule.chosen == chosen


def test_a_threshold_that_was_chosen_as_one_half_was_chosen():
    sweep = ThresholdSweep("f1", thresholds=3)
    sweep.update(torch.tensor([0.3, 0.4, 0.6, 0.7]), torch.tensor([0, 0, 1, 1]))
    assert sweep.compute()["threshold"] == 0.5
    other = ThresholdSweep("f1")
    other.load_state_dict(sweep.state_dict())
    other.rule(SCORES[:, 0])


@pytest.mark.parametrize("kind", START)
def test_a_state_that_does_not_say_whether_its_rule_was_chosen_is_silent(kind):
    """Those of older versions hold the numbers alone, which may be those of the start."""
    state = {name: each for name, each in START[kind][0]().state_dict().items() if "chosen" not in name}
    assert len(state) < len(START[kind][0]().state_dict())
    other, scores = counted(kind)
    other.load_state_dict(state)
    other.rule(scores)


def test_rules_of_the_user_were_chosen_by_the_user():
    for rule in (Threshold(0.5), LogitAdjustment(PRIOR, 0.0, logits=False), Threshold([0.5, 0.5, 0.5])):
        scores = SCORES[:, 0] if rule.state_dict().get("threshold", SCORES).dim() == 0 else SCORES
        rule(scores)
        rule.load_state_dict({name: each for name, each in rule.state_dict().items() if name != "chosen"})
        rule(scores)
    sweep = ThresholdSweep("f1")
    sweep.rule.load_state_dict(Threshold(0.5).state_dict())
    sweep.rule(SCORES[:, 0])
    deployed = Threshold(0.5)
    deployed.load_state_dict(ThresholdSweep("f1").rule.state_dict())
    with pytest.warns(UserWarning, match="predicts at its start, threshold 0.5"):
        deployed(SCORES[:, 0])


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", START)
def test_a_rule_says_nothing_while_it_is_compiled_traced_or_exported(kind, missing):
    expected = None
    for form in (
        lambda rule, scores: torch.compile(rule, backend="eager", fullgraph=True)(scores),
        lambda rule, scores: torch.jit.trace(rule, scores)(scores),
        lambda rule, scores: torch.jit.script(rule)(scores),
        lambda rule, scores: torch.export.export(rule, (scores,)).module()(scores),
        lambda rule, scores: torch.export.export(rule, (scores,), strict=True).module()(scores),
        lambda rule, scores: make_fx(rule)(scores)(scores),
        lambda rule, scores: make_fx(rule, tracing_mode="fake", _allow_non_fake_inputs=True)(scores)(scores),
        lambda rule, scores: torch.vmap(rule)(scores.unsqueeze(0))[0],
    ):
        sweep, scores = counted(kind)
        scores = scores.repeat(10, *[1] * (scores.dim() - 1))
        if missing:
            torch.nn.ModuleDict({"sweep": sweep}).load_state_dict({})
        found = form(sweep.rule, scores)
        with pytest.warns(UserWarning, match="holds no rule" if missing else START[kind][1]):
            expected = sweep.rule(scores)
        assert torch.equal(found, expected)


# --- probabilities in place of logits ---------------------------------------------------------------------------------


def test_a_rule_of_logits_tells_that_it_was_given_probabilities():
    """Its decisions would be others without a word; the first batch on the CPU shows it."""
    logits, _, prior = long_tail(200)
    rule = LogitAdjustment(prior, logits=True)
    with pytest.warns(UserWarning, match=r"LogitAdjustment: scores sum to 1 .* write logits=False"):
        rule(logits.softmax(1))
    rule(logits.softmax(1))  # once
    one = 3 * torch.randn(200, generator=torch.Generator().manual_seed(0)) - 2
    for threshold in (Threshold(0.3, logits=True), Threshold([0.3, 0.4], logits=True)):
        scores = one if threshold.threshold.dim() == 0 else torch.stack((one, one.flip(0)), 1)
        with pytest.warns(UserWarning, match=r"Threshold: the scores lie in \[0, 1\] and crowd near 0"):
            threshold(scores.sigmoid())
        copy.deepcopy(threshold)(scores.sigmoid())
    for fine, scores in (
        (LogitAdjustment(prior, logits=True), logits),
        (LogitAdjustment(prior, logits=True), logits.log_softmax(1)),
        (LogitAdjustment(prior, logits=False), logits.softmax(1)),
        (Threshold(0.3, logits=True), one),
        (Threshold(0.3), one.sigmoid()),
    ):
        fine(scores)
    batches = torch.stack((logits, -logits))  # a transform does not let values be read
    assert torch.equal(
        torch.vmap(LogitAdjustment(prior, logits=True))(batches),
        LogitAdjustment(prior, logits=True)(batches.movedim(0, -1)).movedim(-1, 0),
    )


def beta(generator, samples=400, zeros=0):
    """Draw probabilities of a rare class, Beta(.3, 10), none of them above 0.5 in most draws; the first are 0."""
    found = torch.from_numpy(np.random.default_rng(generator).beta(0.3, 10, samples)).float()
    found[:zeros] = 0
    return found


@pytest.mark.parametrize("zeros", [0, 1, 8])
def test_probabilities_of_a_rare_class_are_told_by_rules_and_in_update(zeros):
    for seed in range(20):
        scores = beta(seed, zeros=zeros)
        for rule in (Threshold(0.5, logits=True), Threshold(0.1, logits=True)):
            with pytest.warns(UserWarning, match="crowd near 0, as probabilities do"):
                decided = rule(scores)
            assert decided.sum() >= 400 - zeros  # all of them are alarms
        if zeros < 8:  # of 32 samples, which metrics judge, so many may be logits that a clamp has cut
            report = imbtorch.ImbalanceReport("binary", logits=True)
            with pytest.warns(UserWarning, match="crowd near 0, as probabilities do"):
                report.update(scores, (scores > 0.1).long())


def test_the_first_scores_that_suffice_are_looked_at():
    rule, scores = Threshold(0.1, logits=True), beta(0)
    for few in scores[:60].split(20):
        rule(few)
    with pytest.warns(UserWarning, match="crowd near 0"):
        rule(scores)
    rule(scores)


def heads(number, generator):
    """Yield scores of untrained networks, with and without ReLU at their end, that all lie in [0, 1]."""
    while number:
        features, width, depth = (
            int(torch.randint(*ends, (1,), generator=generator)) for ends in ((3, 40), (8, 64), (0, 3))
        )
        scores = torch.randn(400, features, generator=generator)
        for size in [width] * depth + [1]:
            reach = scores.shape[1] ** -0.5
            weight, bias = (
                reach * (2 * torch.rand(rows, size, generator=generator) - 1) for rows in (scores.shape[1], 1)
            )
            scores = scores @ weight + bias
            scores = scores.relu() if size > 1 or number % 2 else scores
        if scores.min() >= 0 and 0.01 < scores.max() <= 1:
            number -= 1
            yield scores.flatten()


def test_logits_of_right_programs_are_no_probabilities():
    """Half of the heads end in ReLU; untrained networks without it give scores in [0, 1] by chance."""
    some = list(heads(400, torch.Generator().manual_seed(0)))
    assert sum(bool((scores == 0).any()) for scores in some) > 150
    assert sum(bool((scores < 0.05).any() and (scores > 0).all()) for scores in some) > 30  # all would be alarms
    for scores in some:
        Threshold(0.5, logits=True)(scores)
        Threshold(0.3, logits=True)(scores)
        imbtorch.ImbalanceReport("binary", logits=True).update(scores, (torch.arange(400) % 9 == 0).long())


# --- scores of both classes -------------------------------------------------------------------------------------------


def both(shape=(200,), logits=True, dtype=torch.float32):
    """Return scores of both classes and targets, and the log-odds or the probability of class 1 in float64."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(shape, generator=generator) < 0.2).long()
    scores = torch.randn(shape[0], 2, *shape[1:], generator=generator)
    scores[:, 1] += 2 * target - 1
    scores = (scores if logits else scores.softmax(1)).to(dtype)
    wide = scores.double().numpy()
    return scores, target, wide[:, 1] - wide[:, 0] if logits else wide[:, 1]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(200,), (20, 5, 2), (100, 2)])
@pytest.mark.parametrize("logits", [True, False])
def test_a_rule_takes_both_classes_as_its_sweep_did(logits, shape, dtype):
    torch.compiler.reset()  # which else counts the graphs of other cases
    scores, target, one = both(shape, logits, dtype)
    sweep = ThresholdSweep("balanced_accuracy", logits=logits)
    sweep.update(scores, target)
    value = sweep.compute()["value"]
    own, of_a_point, loaded = (Threshold(0.5, logits=logits) for _ in range(3))
    own.take(sweep.result())
    of_a_point.take(sweep.best())
    loaded.load_state_dict({name: each.clone() for name, each in sweep.rule.state_dict().items()})
    network = torch.nn.Sequential(torch.nn.Identity(), sweep.rule)
    forms = {
        "rule": sweep.rule,
        "predict": sweep.rule.predict,
        "NumPy": lambda given: torch.from_numpy(sweep.rule.predict(given.numpy())),
        "of the result": sweep.result().rule,
        "taken": own,
        "taken of a point": of_a_point,
        "loaded": loaded,
        "sequential": network,
        "scripted": torch.jit.script(network),
        "exported": torch.export.export(network, (scores,)).module(),
        "compiled": torch.compile(sweep.rule, backend="eager", fullgraph=True),
        "copied": pickle.loads(pickle.dumps(sweep.rule)),
    }
    expected = one > float(sweep.rule.log_odds if logits else sweep.rule.threshold)
    for name, form in forms.items():
        found = form(scores)
        assert np.array_equal(found.numpy(), expected), name
    assert value == pytest.approx(balanced_accuracy_score(target.numpy().ravel(), expected.ravel()), abs=1e-6)
    sweep.rule.take(sweep.best(at_least={"recall": 0.5}))
    assert sweep.rule(scores).shape == target.shape
    for metric in (imbtorch.ImbalanceReport("binary"), imbtorch.BalancedAccuracy("binary")):
        metric.update(sweep.rule(scores), target)
    assert sweep.rule(torch.from_numpy(one)).shape == target.shape  # scores of class 1 are taken as well


def test_without_a_class_axis_a_rule_compares_each_score():
    """Two time steps and two labels are no classes, whatever an earlier epoch had."""
    scores, target, _ = both((200, 3))
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(scores, target)
    sweep.compute()
    assert sweep.rule(scores).shape == (200, 3)
    steps, ends = torch.randn(50, 2), torch.arange(100).view(50, 2) // 3 % 2
    assert sweep.rule(steps).shape == (50, 2)  # as many dimensions as a target has
    sweep.reset()
    sweep.update(steps, ends)
    sweep.compute()
    assert sweep.rule(scores).shape == scores.shape
    labels = ThresholdSweep("f1", task="multilabel", num_labels=2, logits=True)
    labels.update(steps, ends)
    labels.compute()
    assert labels.rule(steps).shape == (50, 2)
    assert Threshold(0.3, logits=True)(steps).shape == (50, 2)


def test_a_rule_of_both_classes_tells_of_probabilities():
    scores, target, _ = both()
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(scores, target)
    sweep.compute()
    with pytest.warns(UserWarning, match=r"Threshold: scores sum to 1 .* write logits=False"):
        sweep.rule(scores.softmax(1))


# --- points of another threshold --------------------------------------------------------------------------------------


def test_a_point_says_how_the_rule_takes_it_until_it_has():
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.1, 0.3, 0.4, 0.45, 0.6, 0.8]), torch.tensor([0, 1, 0, 0, 1, 1]))
    assert "sweep.rule" not in str(sweep.best())  # which is the threshold of the rule
    point = sweep.best(costs=[[0, 1], [50, 0]])
    assert str(point).endswith("sweep.rule.take(point)")
    assert str(pickle.loads(pickle.dumps(point))) == str(copy.deepcopy(point)) == str(point)
    sweep.rule.take(point)
    assert "sweep.rule" not in str(point)
    assert str(sweep.best()).endswith("sweep.rule.take(point)")
    assert "sweep.rule" not in str(sweep.result().best(costs=[[0, 1], [50, 0]]))  # a result knows no rule


def test_points_of_labels_and_of_tau_say_how_the_rule_takes_them():
    labels = ThresholdSweep("f1", task="multilabel", num_labels=2)
    scores = torch.tensor([[0.1, 0.9], [0.3, 0.4], [0.6, 0.3], [0.8, 0.2]])
    labels.update(scores, torch.tensor([[0, 1], [0, 1], [1, 0], [1, 0]]))
    assert not any("sweep.rule" in str(point) for point in labels.best().values())
    points = labels.best(alerts=0.25)
    assert str(points["0"]).endswith("sweep.rule.take(points)")
    labels.rule.take(points)
    assert not any("sweep.rule" in str(point) for point in points.values())
    classes = ThresholdSweep("f1", task="multiclass", num_classes=3)  # has no rule
    classes.update(SCORES, torch.tensor([0, 0, 1, 2]))
    assert not any("sweep.rule" in str(point) for point in classes.best().values())
    sweep = swept()
    assert "sweep.rule" not in str(sweep.best())
    point = sweep.best(measure="accuracy")
    assert str(point).endswith("sweep.rule.take(point)")
    sweep.rule.take(point)
    assert "sweep.rule" not in str(point)
