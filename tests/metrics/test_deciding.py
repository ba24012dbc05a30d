"""Rules that their sweep owns: when a computation sets them, and that they decide as the sweep counts."""

import copy
import inspect
import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from adjustments import long_tail
from processes import launch
from sklearn import metrics as sk
from sweeps import drawn

from imbtorch import LogitAdjustmentResult, LogitAdjustmentSweep, SweepResult, ThresholdSweep


def of_classes(logits=True):
    scores, target, prior = long_tail(600)
    scores = scores if logits else scores.softmax(1)
    return LogitAdjustmentSweep("balanced_accuracy", prior, logits=logits), scores, target


def of_a_threshold(logits=True):
    scores, target = drawn(600, 0.2)
    return ThresholdSweep("balanced_accuracy", logits=logits), scores if logits else scores.sigmoid(), target


def of_labels(logits=True):
    sweep, scores, target = of_a_threshold(logits)
    sweep = ThresholdSweep("balanced_accuracy", task="multilabel", num_labels=2, logits=logits)
    return sweep, torch.stack((scores, scores.flip(0)), 1), torch.stack((target, target.flip(0)), 1)


SWEPT = pytest.mark.parametrize("make", [of_classes, of_a_threshold, of_labels])


def rule_of(sweep):
    return {name: each.tolist() for name, each in sweep.rule.state_dict().items()}


@SWEPT
@pytest.mark.parametrize("logits", [True, False])
def test_the_rule_decides_as_the_sweep_counted(make, logits):
    sweep, scores, target = make(logits)
    sweep.update(scores, target)
    values = {name: each.item() for name, each in sweep.compute().items()}
    assert sweep.rule.logits is logits
    predicted = sweep.rule.predict(scores)
    if make is of_labels:
        found = {
            f"value/{label}": sk.balanced_accuracy_score(target[:, label], predicted[:, label]) for label in (0, 1)
        }
        assert sweep.rule.threshold.tolist() == [values["threshold/0"], values["threshold/1"]]
    else:
        found = {"value": sk.balanced_accuracy_score(target, predicted)}
    assert {name: values[name] for name in found} == pytest.approx(found, abs=1e-6)
    assert sk.balanced_accuracy_score(*(each.flatten() for each in (target, predicted))) > 0.55


@SWEPT
def test_only_new_counts_set_the_rule(make):
    sweep, scores, target = make()
    initial = rule_of(sweep)
    sweep.update(scores, target)
    assert rule_of(sweep) == initial
    sweep.compute()
    chosen = rule_of(sweep)
    assert chosen != initial
    by_hand = {name: torch.full_like(each, 0.125) for name, each in sweep.rule.state_dict().items()}
    if "log_odds" in by_hand:
        by_hand["log_odds"] = by_hand["threshold"].logit()
    by_hand |= {name: each for name, each in sweep.rule.state_dict().items() if name == "prior"}
    sweep.rule.load_state_dict(by_hand)
    held = rule_of(sweep)
    sweep.compute()
    sweep.result()
    next(sweep.values()).compute()
    assert rule_of(sweep) == held != chosen
    sweep.update(scores, target)
    sweep.compute()
    assert rule_of(sweep) != held
    sweep.rule.load_state_dict(by_hand)
    sweep.reset()
    sweep.update(scores, target)  # as many as before
    sweep.update(scores, target)
    sweep.compute()
    assert rule_of(sweep) != held


@SWEPT
def test_no_samples_leave_rule_and_result_alone(make):
    sweep, scores, target = make()
    with pytest.warns(UserWarning, match="counted no sample"):
        sweep.compute()
    assert not sweep.rule.chosen
    sweep.update(scores, target)
    sweep.compute()
    chosen, result = rule_of(sweep), sweep.result()
    sweep.reset()
    with pytest.warns(UserWarning, match="counted no sample"):
        empty = sweep.compute()
    assert next(value for name, value in empty.items() if "value" in name).isnan()
    assert rule_of(sweep) == chosen
    assert sweep.result() is result


@SWEPT
def test_a_sweep_that_does_not_decide_warns_once_if_it_has_a_rule(make):
    sweep, scores, target = make()
    sweep.decides = False
    sweep.update(scores, target)
    sweep.compute()  # it has no rule to keep
    assert not sweep.rule.chosen
    sweep.decides = True
    sweep.compute()
    chosen = rule_of(sweep)
    sweep.decides = False
    sweep.update(scores / 2, target)
    with pytest.warns(UserWarning, match=r"its rule stays as it was chosen before, because a test chooses nothing"):
        sweep.compute()
    sweep.compute()
    assert rule_of(sweep) == chosen
    sweep.decides = True
    sweep.compute()
    assert rule_of(sweep) != chosen


@SWEPT
def test_copies_own_a_rule_of_their_own(make):
    sweep, scores, target = make()
    sweep.update(scores, target)
    sweep.compute()
    chosen = rule_of(sweep)
    for copied in (sweep.clone(prefix="a_"), copy.deepcopy(sweep), pickle.loads(pickle.dumps(sweep))):
        assert rule_of(copied) == chosen
        copied.update(scores / 2, target)
        copied.compute()
        assert rule_of(copied) != chosen
    assert rule_of(sweep) == chosen


def test_each_class_against_the_rest_has_no_rule():
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3)
    sweep.update(torch.rand(30, 3, generator=torch.Generator().manual_seed(0)).softmax(1), torch.arange(30) % 3)
    sweep.compute()
    assert sweep.rule is None
    assert not sweep.state_dict()


def test_a_sweep_built_on_the_meta_device_counts_after_to_empty():
    with torch.device("meta"):
        adjusted, threshold = LogitAdjustmentSweep("recall", [6, 3, 1], logits=True), ThresholdSweep("f1", logits=True)
    for sweep, made in ((adjusted, of_classes), (threshold, of_a_threshold)):
        sweep.to_empty(device="cpu")
        _, scores, target = made()
        scores, target = (scores[:, :3], target.clamp(max=2)) if made is of_classes else (scores, target)
        sweep.update(scores, target)
        again = LogitAdjustmentSweep("recall", [6, 3, 1], logits=True)
        again = again if made is of_classes else ThresholdSweep("f1", logits=True)
        again.update(scores, target)
        assert again.compute() == sweep.compute()
        assert rule_of(again) == rule_of(sweep)


# --- several processes ------------------------------------------------------------------------------------------------


def on_processes(rank, world):
    rules = []
    for make in (of_classes, of_a_threshold):
        sweep, scores, target = make()
        sweep.update(scores[:300], target[:300])
        sweep.compute()
        rules.append(rule_of(sweep))
        if rank == 0:  # the other process has no further batch
            sweep.update(scores[300:], target[300:])
        sweep.compute()
        rules.append(rule_of(sweep))
    return rules


def test_all_processes_choose_alike_where_only_one_counts_on():
    one, other = launch(2, on_processes)
    assert one == other
    sweep, scores, target = of_a_threshold()
    for some in (slice(300), slice(300), slice(300, 600)):
        sweep.update(scores[some], target[some])
    sweep.compute()
    assert one[3] == rule_of(sweep) != one[2]


def test_a_sweep_of_areas_does_not_tell_of_its_rule_in_a_test():
    sweep = ThresholdSweep("f1", also=("auc",))
    scores, target = torch.linspace(0, 1, 40), torch.arange(40) % 3 == 0
    sweep.update(scores, target)
    sweep.compute()
    chosen = sweep.rule.threshold.item()
    sweep.decides = False
    sweep.update(scores, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.compute()
    assert sweep.rule.threshold.item() == chosen


# --- answers of the last result ---------------------------------------------------------------------------------------


def curves(axes):
    return [line.get_xydata().tolist() for ax in np.atleast_1d(axes) for line in ax.get_lines()]


@pytest.mark.parametrize("kind", [None, "value", "roc", "precision_recall"])
def test_a_sweep_draws_what_its_result_draws(kind):
    sweep, scores, target = of_a_threshold()
    sweep.update(scores, target)
    (one, own), (other, of_result) = sweep.plot(kind), sweep.result().plot(kind)
    assert np.size(own) == np.size(of_result) == (3 if kind is None else 1)
    assert curves(own) == curves(of_result)
    plt.close(one)
    plt.close(other)


def test_torchmetrics_passes_values_to_a_picture():
    """Its collections call plot(value, ax=ax); the last result is drawn, into these axes."""
    for make in (of_a_threshold, of_classes):
        sweep, scores, target = make()
        sweep.update(scores, target)
        for value in (sweep.compute(), torch.tensor(0.5), [0.1, 0.2]):
            figure, ax = plt.subplots()
            assert sweep.plot(value, ax=ax) == (None, ax)
            assert ax.get_lines()
            plt.close(figure)


@pytest.mark.parametrize(("make", "given"), [(of_classes, "accuracy"), (of_a_threshold, {"recall": 0.5})])
def test_best_takes_keywords_only(make, given):
    sweep, scores, target = make()
    sweep.update(scores, target)
    for each in (sweep, sweep.result()):
        with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
            each.best(given)


@pytest.mark.parametrize("make", [of_classes, of_a_threshold])
def test_methods_of_a_result_have_its_signature_and_help(make):
    sweep, *_ = make()
    names = ["best", "gain", "table", *(["interval", "metric"] if make is of_a_threshold else [])]
    kind = {of_classes: LogitAdjustmentResult, of_a_threshold: SweepResult}[make]
    for name in names:
        own, of_result = getattr(type(sweep), name), getattr(kind, name)
        assert inspect.signature(own) == inspect.signature(of_result)
        assert own.__doc__ == of_result.__doc__
