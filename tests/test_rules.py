"""Decision rules: their decisions, their buffers in checkpoints, their precision, and other forms of a module."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from adjustments import long_tail

import imbtorch
from imbtorch import LogitAdjustment, LogitAdjustmentSweep, Threshold, ThresholdSweep

PRIOR = [900, 90, 10]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 5)])
@pytest.mark.parametrize("tau", [0.0, 1.0, -0.5])
def test_adjusted_logits(shape, tau):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    logs = np.log(np.array(PRIOR) / 1000).reshape(3, *[1] * (len(shape) - 2))
    found = LogitAdjustment(PRIOR, tau)(logits)
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), logits.numpy() - tau * logs, atol=1e-6)


def test_tau_one_chooses_by_the_likelihood():
    """Of calibrated logits tau = 1 leaves the log-likelihood of each class, up to a constant."""
    logits, _, prior = long_tail(200)
    likelihood = logits - prior.div(prior.sum()).log()
    assert torch.allclose(LogitAdjustment(prior)(logits), likelihood, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rules_add_in_float32_at_least(dtype):
    logits = torch.tensor([[10.0, 0.0, 0.0]], dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert LogitAdjustment(PRIOR)(logits).dtype == wide
    half = LogitAdjustment([90000, 9, 1], 0.1).to(dtype)
    assert half.prior.dtype == half.tau.dtype == torch.float64
    assert half.tau == 0.1
    assert torch.equal(half(logits), LogitAdjustment([90000, 9, 1], 0.1)(logits))
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
        (LogitAdjustment(PRIOR, 0.5), (4, 3)),
        (LogitAdjustment(PRIOR, 0.5), (4, 3, 2)),
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
    source, target = LogitAdjustment(PRIOR, 0.25), LogitAdjustment([1, 2, 3])
    assert list(source.state_dict()) == ["prior", "tau"]
    target.load_state_dict(source.state_dict())
    assert target.tau == 0.25
    assert torch.equal(target.prior, source.prior)
    assert list(Threshold(0.5).state_dict()) == ["threshold"]
    empty = LogitAdjustment(PRIOR).to("meta").to_empty(device="cpu")
    empty.load_state_dict(source.state_dict())
    assert torch.equal(empty.prior, source.prior)


def swept():
    logits, target, prior = long_tail(2000)
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(2 * logits, target)  # overconfident, so that tau is near 2
    return sweep


def test_take_writes_in_place():
    sweep, rule = swept(), LogitAdjustment([1, 2, 3, 4, 5])
    prior, tau = rule.prior, rule.tau
    kept = rule.state_dict()
    rule.take(sweep)
    result = sweep.result()
    assert rule.tau == result.tau != 1
    assert torch.equal(rule.prior, result.prior)
    assert rule.prior is prior
    assert rule.tau is tau
    assert kept["tau"] == result.tau
    point = sweep.best("accuracy")
    rule.take(point)
    assert rule.tau == point.tau != result.tau
    rule.take(result)
    assert rule.tau == result.tau
    with torch.inference_mode():
        rule.take(point)
    assert rule.tau == point.tau


def test_take_computes_what_was_counted_since():
    sweep, rule = swept(), LogitAdjustment([1, 2, 3, 4, 5])
    first = sweep.result().tau
    logits, target, _ = long_tail(20_000, seed=1)
    sweep.update(logits, target)
    rule.take(sweep)
    assert rule.tau == sweep.result().tau < first


def test_take_of_a_threshold():
    sweep = ThresholdSweep("f1")
    sweep.update(torch.tensor([0.1, 0.3, 0.6, 0.8]), torch.tensor([0, 0, 1, 1]))
    rule = Threshold(0.5)
    rule.take(sweep)
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
        rule.take(labels)
    with pytest.raises(TypeError, match="ThresholdSweep, its result or an operating point"):
        rule.take(0.5)


def test_take_refuses_other_classes():
    with pytest.raises(ValueError, match="source has 5 classes, but this rule has 3"):
        LogitAdjustment(PRIOR).take(swept().result())
    with pytest.raises(TypeError, match="LogitAdjustmentSweep or its result, got a float"):
        LogitAdjustment(PRIOR).take(0.5)


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
        LogitAdjustment(prior)


def test_other_arguments_that_are_refused():
    with pytest.raises(ValueError, match="tau must be a finite number"):
        LogitAdjustment(PRIOR, float("nan"))
    with pytest.raises(ValueError, match=r"logits must be \[N, 3, ...\]"):
        LogitAdjustment(PRIOR)(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\]"):
        Threshold(1.5)
    with pytest.raises(TypeError, match="threshold must be a number"):
        Threshold("0.5")


def test_equal_shares_are_told():
    with pytest.warns(UserWarning, match="prior is the same for all classes"):
        LogitAdjustment([5, 5, 5])


def test_the_prior_is_a_copy():
    counts = torch.tensor([9.0, 1.0], dtype=torch.float64)
    rule = LogitAdjustment(counts)
    counts.zero_()
    assert rule.prior.tolist() == [0.9, 0.1]
