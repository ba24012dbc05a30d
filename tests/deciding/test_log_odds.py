"""Thresholds of logits whose probability is 1 in float64 (`metrics/sweep.py`), from choice to saved rule; and ties."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from matplotlib import pyplot as plt
from sklearn import metrics as sk

import imbtorch
from imbtorch import Threshold, ThresholdSweep


def far(middle, samples=1000, dtype=torch.float32, seed=0):
    """Logits near a number, with a fifth of positives three units above the negatives."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(samples, generator=generator) < 0.2).long()
    target[:2] = torch.tensor([0, 1])
    return (middle + torch.randn(samples, generator=generator, dtype=torch.float64) + 3 * target).to(dtype), target


def best_f1(logits, target):
    """Best F1 of all thresholds, by scikit-learn's curve."""
    precision, recall, _ = sk.precision_recall_curve(target, logits.double())
    return (2 * precision * recall / (precision + recall).clip(1e-9)).max()


MIDDLES = (-90.0, -45.0, 0.0, 30.0, 37.0, 45.0, 90.0)
CHOICES = {
    "mean of resamples": {},
    "constraints": {"at_least": {"recall": 0.1}},
    "alerts": {"alerts": 0.9},
    "costs": {"costs": [[0, 1], [1, 0]]},
    "clusters": {"clusters": True},
    "weights": {"weighted": True},
}


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_chosen_threshold_is_the_best_and_the_rule_decides_by_it(middle, choice, dtype):
    logits, target = far(middle, dtype=dtype)
    sweep = ThresholdSweep("f1", logits=True, **CHOICES[choice])
    sweep.update(logits, target, **({"weight": torch.ones(1000)} if choice == "weights" else {}))
    value = sweep.compute()["value"].item()
    assert value == pytest.approx(sk.f1_score(target, sweep.rule(logits)), abs=1e-6)
    assert value > best_f1(logits, target) - 0.03
    threshold = sweep.compute()["threshold"].item()
    assert sweep.rule.threshold.item() == threshold == pytest.approx(1 / (1 + math.exp(-sweep.rule.log_odds.item())))
    assert (threshold == 1) is (sweep.rule.log_odds.item() > 36.8)
    other = Threshold(0.5, logits=True)
    for source in (sweep.result(), pickle.loads(pickle.dumps(sweep.result())), sweep.best()):
        other.take(source)
        assert torch.equal(other(logits), sweep.rule(logits))


def test_each_label_has_log_odds_of_its_own():
    columns = [far(middle, seed=seed) for seed, middle in enumerate((45.0, -45.0, 0.0))]
    logits, target = (torch.stack(each, 1) for each in zip(*columns, strict=True))
    sweep = ThresholdSweep("f1", task="multilabel", num_labels=3, class_names=["a", "b", "c"], logits=True)
    sweep.update(logits, target)
    values = sweep.compute()
    predicted = sweep.rule(logits)
    for at, name in enumerate("abc"):
        assert values[f"value/{name}"].item() == pytest.approx(sk.f1_score(target[:, at], predicted[:, at]), abs=1e-6)
        assert values[f"value/{name}"].item() > best_f1(*columns[at]) - 0.03
    assert sweep.rule.threshold.tolist() == [values[f"threshold/{name}"].item() for name in "abc"]
    assert torch.equal(sweep.result().log_odds, sweep.rule.log_odds)
    rule = Threshold([0.5] * 3, logits=True)
    rule.take(sweep.best())
    assert torch.equal(rule(logits), predicted)
    assert "probabilities that are rounded: a: 1 (logit 4" in str(sweep.table())


def test_each_class_against_the_rest_has_log_odds_of_its_own():
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(600) % 3
    logits = torch.zeros(600, 3)
    logits[:, 0] = 45 + torch.randn(600, generator=generator) + 3 * (target == 0)
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3, logits=True)
    sweep.update(logits, target)
    odds = logits[:, 0].double() - math.log(2)
    assert sweep.compute()["value/0"].item() == pytest.approx(best_f1(odds, target == 0), abs=0.03)
    assert sk.f1_score(target == 0, odds > sweep.result().log_odds[0]) == pytest.approx(
        sweep.compute()["value/0"].item(), abs=1e-6
    )


def test_methods_of_the_result_use_the_chosen_threshold():
    logits, target = far(45.0, samples=300)
    moved = logits - 45  # the same samples, where probabilities are not rounded
    far_off, near = (ThresholdSweep("f1", logits=True, also=("partial_auc",)) for _ in range(2))
    for sweep, scores in ((far_off, logits), (near, moved)):
        sweep.update(scores, target)
        sweep.compute()
    seeded = [torch.Generator().manual_seed(0) for _ in range(2)]
    found, expected = (
        [each.interval("value", generator=source).estimate, each.result()["partial_auc"], each.result().auc()]
        for each, source in zip((far_off, near), seeded, strict=True)
    )
    assert torch.stack(found).tolist() == pytest.approx(torch.stack([*expected]).tolist(), abs=0.06)
    point = far_off.best(at_least={"recall": 0.9})
    assert point.threshold == 1
    assert point.recall == pytest.approx((logits[target == 1] > point.log_odds).double().mean().item())
    assert f"threshold 1 (logit {point.log_odds:.6g}): value" in str(point).replace("\n  ", " ")
    assert repr(far_off.rule) == f"Threshold(log_odds={far_off.rule.log_odds.item()}, logits=True)"
    for at in (None, point):
        with pytest.raises(ValueError, match=r"that of 1 \(logit 4.*update a metric with the decisions of a rule"):
            far_off.metric(imbtorch.FScore, at)
    figure, axes = far_off.result().plot()
    ((x, y),) = (line.get_xydata()[0] for line in axes[1].lines if len(line.get_xydata()) == 1)
    predicted = far_off.rule(logits)
    assert x == pytest.approx(predicted[target == 0].double().mean().item())
    assert y == pytest.approx(predicted[target == 1].double().mean().item())
    plt.close(figure)


def test_a_prevalence_reads_the_counts_at_the_chosen_threshold():
    """One error more of few negatives changes the value there; at the first of many thresholds of 1 it would not."""
    logits, target = far(45.0, samples=60)
    target[:], logits[:8], logits[8:] = 1, torch.linspace(42, 44, 8), torch.linspace(45, 48, 52)
    target[:8], logits[0] = 0, 45.5
    texts = []
    for scores in (logits, logits - 45):
        sweep = ThresholdSweep("precision", logits=True, prevalence=[0.999, 0.001])
        sweep.update(scores, target)
        with pytest.warns(UserWarning, match="are too few for this prevalence") as caught:
            sweep.compute()
        texts.append(str(caught[0].message).partition("would change")[0])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_thresholds_of_0_and_1_are_infinite_logits(end):
    sweep = ThresholdSweep("accuracy", torch.tensor([0.0, 1.0]), logits=True)
    target = torch.full((40,), 1 - int(end))
    target[0] = int(end)
    sweep.update(torch.linspace(-60, 60, 40), target)
    sweep.compute()
    assert sweep.rule.log_odds.item() == (math.inf if end else -math.inf)
    assert sweep.rule(torch.tensor([-1e30, 1e30])).tolist() == [1 - int(end)] * 2


def test_a_saved_point_holds_the_log_odds(tmp_path):
    logits, target = far(45.0)
    point = imbtorch.Predictions(target=target).thresholds(logits, "f1", logits=True).best()
    rule = imbtorch.Threshold(log_odds=point.log_odds, logits=True)
    assert point.threshold == 1
    assert point.value == pytest.approx(sk.f1_score(target, rule(logits)))
    assert point.value > best_f1(logits, target) - 0.03
    point.to_json(tmp_path / "point.json")
    assert imbtorch.open_result(tmp_path / "point.json").log_odds == point.log_odds
    with pytest.raises(ValueError, match=r"is rounded as a probability; decide by a rule instead"):
        imbtorch.report(scores=logits, target=target, logits=True, threshold=point)


# --- what a grid ties -------------------------------------------------------------------------------------------------


def told(sweep):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sweep.compute()
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("samples", [5, 30, 99, 100, 1000])
@pytest.mark.parametrize("middle", [150.0, -150.0])
def test_logits_beyond_the_grid_are_told_at_any_number(samples, middle):
    logits, target = far(middle, samples)
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(logits, target)
    (text,) = told(sweep)
    assert f"{samples} scores of both classes lie beyond a logit of +-100" in text
    assert "scale or shift the scores. imbtorch.report ranks any scores exactly" in text
    sweep.update(logits, target)
    assert told(sweep) == []  # once
    shifted = ThresholdSweep("f1", logits=True)
    shifted.update(logits - middle, target)
    assert told(shifted) == []
    assert shifted.compute()["value"].item() > best_f1(logits, target) - 0.05
    exact = imbtorch.report(preds=logits, target=target, logits=True)["auc"]
    assert exact.item() == pytest.approx(sk.roc_auc_score(target, logits), abs=1e-6)


def test_ends_of_one_class_each_are_not_told():
    """All scores of an end bin are of one class, so that no order is lost."""
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(torch.tensor([-150.0, -149.0, -3.0, 2.0, 150.0, 160.0]), torch.tensor([0, 0, 1, 0, 1, 1]))
    assert told(sweep) == []
    labels = ThresholdSweep("f1", task="multilabel", num_labels=2, logits=True)
    labels.update(torch.tensor([[-150.0, 1.0], [3.0, -160.0], [150.0, 150.0]]), torch.tensor([[0, 1], [1, 0], [1, 1]]))
    assert told(labels) == []
    labels.update(torch.tensor([[151.0, -2.0]]), torch.tensor([[0, 1]]))
    assert "2 scores of both classes" in told(labels)[0]


@pytest.mark.parametrize("task", ["binary", "two columns", "multilabel", "multiclass"])
def test_tiny_probabilities_that_differ_are_told(task):
    target = torch.arange(40) % 2
    tiny = 10.0 ** (-60 - torch.arange(40, dtype=torch.float64) % 7)
    size = {"multilabel": {"num_labels": 1}, "multiclass": {"num_classes": 2}}.get(task, {})
    shaped = {
        "binary": (tiny, target),
        "multilabel": (tiny[:, None], target[:, None]),
    }.get(task, (torch.stack((1 - tiny, tiny), 1), target))
    sweep = ThresholdSweep("f1", task="binary" if task == "two columns" else task, **size)
    for part in (slice(0, 15), slice(15, 40)):
        sweep.update(shaped[0][part], shaped[1][part])
    (text,) = told(sweep)
    assert "40 scores of both classes lie beyond a probability of 1.4e-38" in text
    sweep.reset()
    sweep.update(shaped[0].round(), shaped[1])
    assert told(sweep) == []  # zeros are equal


@pytest.mark.parametrize("scores", [torch.zeros(40), torch.full((40,), 1e-60).double(), torch.ones(40)])
def test_equal_probabilities_are_not_told(scores):
    sweep = ThresholdSweep("f1")
    sweep.update(scores, torch.arange(40) % 2)
    assert told(sweep) == []


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("odds", [45.3, -45.3, 90.0, 0.4, math.inf, -math.inf, [45.3, -80.0, 1.0]])
def test_all_forms_of_a_rule_agree_in_4096_decisions(odds, tmp_path):
    several = isinstance(odds, list)
    rule = Threshold(log_odds=odds, logits=True)
    centre = torch.tensor(odds).nan_to_num(posinf=95.0, neginf=-95.0)
    scores = centre + torch.randn((4096, 3) if several else 4096, generator=torch.Generator().manual_seed(0))
    scores[:3] = centre  # equal scores are not above
    expected = (scores > torch.tensor(odds)).long()
    assert torch.equal(rule(scores), expected)
    scripted, file = torch.jit.script(rule), io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    program = torch.export.export(torch.nn.Sequential(rule), (scores,))
    torch.export.save(program, tmp_path / "rule.pt2")
    loaded = Threshold([0.5] * 3 if several else 0.5, logits=True)
    loaded.load_state_dict(rule.state_dict())
    forms = [scripted, torch.jit.load(file), torch.export.load(tmp_path / "rule.pt2").module(), loaded]
    for form in [*forms, copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))]:
        assert torch.equal(form(scores), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_onnx_agrees_in_4096_decisions(dynamo, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    rule = Threshold(log_odds=[45.3, -80.0, 1.0], logits=True)
    scores = rule.log_odds.float() + torch.randn(4096, 3, generator=torch.Generator().manual_seed(0))
    torch.onnx.export(rule, (scores,), tmp_path / "rule.onnx", dynamo=dynamo)
    session = runtime.InferenceSession(tmp_path / "rule.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: scores.numpy()})
    assert torch.equal(torch.from_numpy(found), rule(scores))


def test_thresholds_have_log_odds_and_take_either():
    rule = Threshold(log_odds=[45.0, 1.0, -3.0], logits=True)
    assert list(rule.state_dict()) == ["threshold", "log_odds", "chosen", "class_axis"]
    assert Threshold([0.0, 0.75, 1.0]).log_odds.tolist() == pytest.approx([-math.inf, math.log(3), math.inf])
    assert Threshold(0.75).log_odds.item() == pytest.approx(math.log(3))
    assert Threshold(log_odds=math.log(3)).threshold.item() == pytest.approx(0.75)
    assert Threshold(log_odds=-math.inf).threshold.item() == 0
    for given in ({}, {"threshold": 0.5, "log_odds": 0.0}):
        with pytest.raises(ValueError, match="either threshold, a probability, or log_odds; pass one of them"):
            Threshold(**given)
    with pytest.raises(ValueError, match="log_odds must be a"):
        Threshold(log_odds=math.nan)
    with pytest.raises(TypeError, match="log_odds must be a number"):
        Threshold(log_odds="0.5")
    point = imbtorch.statistics.OperatingPoint(0.75, 1.0, torch.eye(2), 1.0, 1.0, 0.5, {})  # without log-odds
    rule = Threshold(0.5, logits=True)
    rule.take(point)
    assert rule.log_odds.item() == pytest.approx(math.log(3))
