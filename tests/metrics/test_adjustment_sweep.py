"""Sweeps of logit adjustments: values against scikit-learn at each tau, the choice, its result, table and picture."""

import functools
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from adjustments import TAUS, decided, long_tail
from processes import counted_collectives, launch
from report_cases import directed
from rooms import state_of
from sklearn import metrics as sk
from torchmetrics import MetricCollection

import imbtorch
from imbtorch import LogitAdjustment, LogitAdjustmentSweep

MEASURES = {
    "balanced_accuracy": ("balanced_accuracy", sk.balanced_accuracy_score),
    "accuracy": (imbtorch.accuracy, sk.accuracy_score),
    "f1": ("f1", functools.partial(sk.f1_score, average="macro", zero_division=0)),
    "weighted": (
        functools.partial(imbtorch.f_score, average="weighted"),
        functools.partial(sk.f1_score, average="weighted", zero_division=0),
    ),
    "mcc": ("mcc", sk.matthews_corrcoef),
    "function": (
        lambda counts: counts.correct.sum(-1) / counts.actual.sum(-1),
        sk.accuracy_score,
    ),
}
NAMES = ["a", "b", "c", "d", "e"]


def swept(measure="balanced_accuracy", samples=2000, classes=5, seed=0, confidence=1.0, **arguments):
    logits, target, prior = long_tail(samples, classes, seed)
    sweep = LogitAdjustmentSweep(measure, prior, logits=True, **arguments)
    sweep.update(confidence * logits, target)
    return sweep


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_at_every_tau(name):
    measure, oracle = MEASURES[name]
    logits, target, prior = long_tail(1500)
    sweep = LogitAdjustmentSweep(measure, prior, logits=True)
    sweep.update(logits, target)
    expected = [oracle(target, each) for each in decided(logits, prior)]
    taus, values = sweep.result().curve()
    assert taus.tolist() == list(TAUS)
    assert values.tolist() == pytest.approx(expected, abs=1e-12)
    found = sweep.compute()
    assert found["value"].item() == pytest.approx(expected[TAUS.index(found["tau"].item())], abs=1e-6)
    assert found["value"] > max(expected) - 0.01


def test_the_best_tau_of_calibrated_logits_is_one():
    """Balanced accuracy is best by the likelihood, whatever the logits were multiplied by."""
    for confidence, seed in ((1.0, 0), (0.5, 1), (2.0, 2)):
        found = swept(samples=20_000, seed=seed, confidence=confidence).compute()
        assert found["tau"].item() == pytest.approx(confidence, abs=0.25)
    assert swept("accuracy", samples=20_000).compute()["tau"].abs() <= 0.25


def test_two_classes_in_closed_form():
    """Of two normal classes two apart, a shift of tau log odds moves the cut; balanced accuracy is known exactly."""
    generator = torch.Generator().manual_seed(0)
    share = 0.05
    target = (torch.rand(100_000, generator=generator) < share).long()
    evidence = 2 * (torch.randn(100_000, generator=generator, dtype=torch.float64) + 2 * target - 1)
    odds = math.log(share / (1 - share))
    sweep = LogitAdjustmentSweep("balanced_accuracy", [1 - share, share], logits=True)
    sweep.update(torch.stack((torch.zeros_like(evidence), evidence + odds), 1), target)
    taus, values = sweep.result().curve()
    cut = (taus - 1) * odds / 2  # where evidence / 2 exceeds it the rare class is predicted
    normal = torch.distributions.Normal(0.0, 1.0)
    exact = (1 - normal.cdf(cut - 1) + normal.cdf(cut + 1)) / 2
    assert torch.allclose(values, exact.double(), atol=0.012)
    assert sweep.compute()["tau"] == pytest.approx(1, abs=0.2)


def test_measures_of_which_lower_is_better():
    sweep = swept(directed(lambda counts: 1 - counts.correct.sum(-1) / counts.actual.sum(-1), False), samples=5000)
    _, values = sweep.result().curve()
    assert sweep["value"].higher_is_better is False
    assert sweep.compute()["value"] < values.min() + 0.005


def test_what_is_logged():
    sweep = swept(prefix="val_", postfix="_x")
    assert list(sweep.keys()) == ["val_tau_x", "val_value_x"]
    assert set(sweep.compute()) == {"val_tau_x", "val_value_x"}
    assert sweep["tau"].higher_is_better is None
    assert sweep["value"].higher_is_better is True


def test_forward_gives_what_compute_gives_for_the_batch_alone():
    logits, target, prior = long_tail(500)
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    for some in torch.arange(500).split(100):
        batch, alone = sweep(logits[some], target[some]), LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
        alone.update(logits[some], target[some])
        assert batch == alone.compute()
        (chosen,) = decided(logits[some], prior, [batch["tau"].item()])
        assert batch["value"].item() == pytest.approx(sk.balanced_accuracy_score(target[some], chosen), abs=1e-6)
    assert not sweep.rule.chosen
    whole = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    whole.update(logits, target)
    assert torch.equal(state_of(whole), state_of(sweep))


# --- floors ---------------------------------------------------------------------------------------------------------


def test_floors_hold_for_the_chosen_tau():
    free = swept()
    floor = float(free.result().curve("accuracy")[1][TAUS.index(0)]) - 0.03
    bound = swept(at_least={"accuracy": floor, "recall/e": 0.1}, class_names=NAMES)
    result = bound.result()
    assert 0 < result.tau < free.result().tau
    index = TAUS.index(result.tau)
    assert result.curve("accuracy")[1][index] >= floor
    assert result.curve("accuracy")[1][index + 1] < floor
    assert free.best(at_least={"accuracy": floor}).tau == result.tau
    assert bound.at_least == {"accuracy": floor, "recall/e": 0.1}
    method = bound.gain(generator=torch.Generator().manual_seed(0)).method
    held = float(method.split("on held-out samples accuracy ")[1][:5])
    assert held == pytest.approx(floor, abs=0.03)
    assert method.split("; ")[1] in bound.table().notes[0]
    assert "held-out" not in free.table().notes[0]


@pytest.mark.parametrize(("direction", "worst"), [(True, 0.0), (False, 1.0)])
def test_unreachable_floors_log_the_worst_value_once(direction, worst):
    sweep = swept("accuracy", higher_is_better=direction, at_least={"balanced_accuracy": 0.99})
    with pytest.warns(UserWarning, match=r"no tau has balanced_accuracy >= 0.99: the highest .*; the worst possible"):
        found = sweep.compute()
    assert found["tau"] == 0
    assert found["value"] == worst
    assert sweep.compute() == found  # without a second warning
    for ask in (sweep.gain, sweep.best):
        with pytest.raises(ValueError, match=r"no tau has balanced_accuracy >= 0\.99: the highest"):
            ask()
    assert "No tau keeps the floors" in str(sweep.table())


def test_the_worst_value_of_an_unbounded_measure_is_finite():
    sweep = swept(lambda counts: counts.correct.sum(-1) * 1.0, at_least={"accuracy": 1.0})
    with pytest.warns(UserWarning, match="no tau has accuracy >= 1"):
        value = sweep.compute()["value"]
    assert value.isfinite()
    assert value < -1e38


# --- the result -----------------------------------------------------------------------------------------------------


def test_curves_of_classes_and_groups():
    logits, target, prior = long_tail(1500)
    groups = {"few": ["d", "e"], "many": [0]}
    sweep = LogitAdjustmentSweep("f1", prior, logits=True, class_names=NAMES, class_groups=groups)
    sweep.update(logits, target)
    result, chosen = sweep.result(), decided(logits, prior)
    recalls = np.array([sk.recall_score(target, each, average=None) for each in chosen])
    precisions = np.array([sk.precision_score(target, each, average=None, zero_division=0) for each in chosen])
    assert np.allclose(result.curve("recall/d")[1], recalls[:, 3])
    assert np.allclose(result.curve("recall/few")[1], recalls[:, 3:].mean(1))
    assert np.allclose(result.curve("precision/many")[1], precisions[:, 0])
    assert np.allclose(result.curve("accuracy")[1], [sk.accuracy_score(target, each) for each in chosen])
    for name, text in (
        ("recall/zebra", "'recall/zebra', which is unknown"),
        ("recal/d", "'recal/d', which is unknown.*did you mean 'recall/d'"),
        ("accurac", "'accurac', which is unknown.*did you mean 'accuracy'"),
    ):
        with pytest.raises(ValueError, match=text):
            result.curve(name)


def test_the_rule_decides_as_was_counted():
    logits, target, prior = long_tail(1500)
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(logits, target)
    result = sweep.result()
    assert isinstance(result.rule, LogitAdjustment)
    metric = imbtorch.BalancedAccuracy("multiclass", 5)
    metric.update(result.rule(logits), target)
    assert metric.compute() == result["value"]
    assert torch.equal(result.prior, prior / prior.sum())


def test_results_pickle_and_never_change():
    sweep = swept()
    result = sweep.result()
    values = result.values
    result.gain(generator=torch.Generator().manual_seed(0))
    again = pickle.loads(pickle.dumps(result))
    assert str(again.table()) == str(result.table())
    assert again.tau == result.tau
    sweep.update(*long_tail(500, seed=3)[:2])
    assert sweep.compute() != values
    assert result.values == values
    assert result.counts.correct.shape == (41, 5)
    assert result.counts.actual[0].sum() == 2000
    with pytest.raises(AttributeError):
        result.tau = 1.0


def test_best_of_another_measure():
    result = swept(samples=5000).result()
    point = result.best(measure="accuracy")
    assert abs(point.tau) <= 0.25 < result.tau
    assert point.value >= point.plain - 0.005
    assert point.plain == pytest.approx(float(result.curve("accuracy")[1][TAUS.index(0)]))
    both = result.best(measure=imbtorch.accuracy, at_least={"balanced_accuracy": result["value"].item() - 0.02})
    assert point.tau < both.tau <= result.tau
    assert "balanced_accuracy" in str(both)
    with pytest.raises(ValueError, match=r"no tau has recall/4 >= 0.999"):
        result.best(at_least={"recall/4": 0.999, "accuracy": 0.8})


def test_a_choice_below_the_plain_value_shows_its_corrected_gain_instead():
    """The mean over resamples may lie below the plain rule on these samples, which is no loss on others."""
    points = []
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        shares = torch.tensor([0.7, 0.2, 0.1])
        target = torch.multinomial(shares, 200, True, generator=generator)
        logits = torch.randn(200, 3, generator=generator) + 1.5 * torch.eye(3)[target] + 0.3 * shares.log()
        sweep = LogitAdjustmentSweep("iam", [7, 2, 1], logits=True)
        sweep.update(logits, target)
        points.append((sweep.best(), sweep))
    below = [pair for pair in points if pair[0].value < pair[0].plain]
    assert 0 < len(below) < len(points)
    for point, sweep in below:
        gain = sweep.gain(generator=torch.Generator().manual_seed(0))
        assert point.gain.estimate == gain.estimate
        assert "without adjustment" not in str(point)
        assert f"(gain corrected for the choice {gain.estimate.item():+.3f} [" in str(point)
        assert "worse than the plain one, because tau is a mean over resamples" in sweep.table().notes[0]
    point, sweep = next(pair for pair in points if pair[0].value > pair[0].plain)
    assert point.gain is None
    assert f"(without adjustment {point.plain:.3f})" in str(point)
    assert "worse than the plain one" not in sweep.table().notes[0]


def test_table_and_gain():
    sweep = swept(samples=4000, confidence=2.0, class_names=NAMES, class_groups={"few": ["e"], "many": ["a"]})
    result = sweep.result()
    table = result.table()
    columns = list(table["value"]["accuracy"])
    assert columns == ["plain", "tau = 1", f"tau = {result.tau:g}"]
    few = table["value"]["recall/few"]
    assert few["plain"] < few["tau = 1"] < few[columns[2]]
    assert table["value"]["balanced_accuracy"][columns[2]] == pytest.approx(result["value"].item(), abs=1e-6)
    gain = result.gain()
    assert gain.low > 0
    assert f"balanced_accuracy {float(gain.estimate):+.3f} [{float(gain.low):+.3f}, " in table.notes[0]
    assert "(95% pseudo-samples and 64 resampled buckets)" in table.notes[0]
    assert table.notes[0].startswith("*: the chosen tau. ")
    marks = [cell.mark for row in table["value"].values() for cell in row.values()]
    assert marks == ["", "", "*"] * len(table["value"])
    assert "not shown" not in table.notes[0]
    assert f"{few['plain']:.5f}" in str(result.table(digits=5))
    assert " ".join(table.notes[0].split()) in " ".join(str(table).split())
    assert "<table>" in result._repr_html_()


def test_a_gain_that_may_be_nothing_is_told_so():
    few = swept("f1", samples=80)
    assert few.result().tau != 0
    assert few.gain(generator=torch.Generator().manual_seed(0)).low < 0
    assert "not shown by these samples" in few.table().notes[0]


def test_the_picture_marks_the_chosen_tau():
    sweep = swept(class_names=NAMES, class_groups={"few": ["e"]})
    figure, axes = sweep.plot()
    assert figure is not None
    labels = axes.get_legend_handles_labels()[1]
    assert labels[:3] == ["balanced_accuracy", "accuracy", "recall/few"]
    assert f"chosen tau {sweep.result().tau:g}" in labels
    line = axes.lines[0]
    assert np.allclose(line.get_ydata(), sweep.result().curve()[1])
    nothing, same = sweep.plot(ax=axes)
    assert nothing is None
    assert same is axes


# --- arguments and warnings -----------------------------------------------------------------------------------------


def test_the_end_of_the_grid_is_told():
    sweep = swept(confidence=6.0, samples=5000)
    with pytest.warns(UserWarning, match="the chosen tau 3 is an end of the grid.*pass taus="):
        sweep.compute()
    assert swept(confidence=4.0, samples=5000, taus=[0, 2, 4, 6]).compute()["tau"] == 4


def test_grids():
    assert LogitAdjustmentSweep("f1", [2, 1]).taus == TAUS
    assert LogitAdjustmentSweep("f1", [2, 1], taus=[1, 0.5, 0.5]).taus == (0.0, 0.5, 1.0)
    assert LogitAdjustmentSweep("f1", [2, 1], taus=torch.tensor([-0.0, -1.0])).taus == (-1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"prior": [3, 0, 1], "class_names": ["cat", "dog", "emu"]}, ValueError, "prior is 0 for class 'dog'"),
        ({"class_names": ["cat", "dog"]}, ValueError, "2 names for the 3 classes"),
        ({"taus": [0.0]}, ValueError, "at least one of them not 0"),
        ({"taus": [float("nan"), 1.0]}, ValueError, "taus must be finite"),
        ({"taus": "all"}, TypeError, "taus must be a sequence"),
        ({"measure": "dominance"}, ValueError, "no direction"),
        (
            {"measure": "macro_averaged_absolute_error"},
            ValueError,
            "needs the whole matrix, but a sweep of tau keeps margins",
        ),
        ({"measure": imbtorch.Precision("binary")}, TypeError, "pass imbtorch.precision or 'precision'"),
        ({"measure": 3}, TypeError, "must be the name of a measure"),
        ({"at_least": {"confusion_entropy": 0.5}}, ValueError, "needs the whole matrix|not better"),
        ({"at_least": ["accuracy"]}, TypeError, "at_least must be a dict"),
        ({"at_least": {"accuracy": "high"}}, TypeError, "must be a number"),
        ({"at_least": {"accuracy": float("nan")}}, ValueError, "must be a number such as"),
        ({"class_groups": {"few": [7]}}, ValueError, "which is no class"),
        ({"threshold": 0.3}, TypeError, "no argument 'threshold'"),
    ],
)
def test_arguments_that_are_refused(arguments, error, text):
    given = {"measure": "f1", "prior": [3, 2, 1]} | arguments
    with pytest.raises(error, match=text):
        LogitAdjustmentSweep(given.pop("measure"), given.pop("prior"), **given)


def test_classes_without_targets_are_told():
    sweep = LogitAdjustmentSweep("recall", [3, 2, 1], logits=True, class_names=["cat", "dog", "emu"])
    sweep.update(torch.rand(100, 3), torch.arange(100) % 2)
    with pytest.warns(UserWarning, match="1 of 3 classes had no target: emu"):
        sweep.compute()
    with pytest.warns(UserWarning, match="counted no sample"):
        LogitAdjustmentSweep("recall", [3, 2, 1]).compute()


def test_large_states_are_told():
    with pytest.warns(UserWarning, match="41 taus and 5000 classes take 212 MB"), torch.device("meta"):
        LogitAdjustmentSweep("recall", torch.arange(5000, 0, -1, device="cpu"))


def test_the_text_of_a_sweep():
    text = repr(LogitAdjustmentSweep("f1", [3, 1], logits=True, taus=[0, 1]))
    assert text == "LogitAdjustmentSweep(measure=f_score, prior=[0.75, 0.25], taus=[0.0, 1.0], logits=True)"


def test_in_a_collection():
    """Sweeps with one prior share their counts, whatever they choose by."""
    logits, target, prior = long_tail(600)
    pair = MetricCollection(
        {
            "ba": LogitAdjustmentSweep("balanced_accuracy", prior, logits=True, prefix="ba_"),
            "f1": LogitAdjustmentSweep("f1", prior, logits=True, prefix="f1_"),
        }
    )
    for some, truth in zip(logits.split(200), target.split(200), strict=True):
        pair.update(some, truth)
    assert len(pair.compute_groups) == 1
    found = pair.compute()
    for name in ("balanced_accuracy", "f1"):
        single = LogitAdjustmentSweep(name, prior, logits=True)
        single.update(logits, target)
        short = "ba" if name == "balanced_accuracy" else "f1"
        assert found[f"{short}_value"] == single.compute()["value"]


# --- several processes ----------------------------------------------------------------------------------------------


def on_processes(rank, world):
    logits, target, prior = long_tail(1200)
    patients = torch.arange(1200) % 90
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    sweep.update(logits[rank::world], target[rank::world], cluster=patients[rank::world])
    sweep.compute()  # the first sum also compares the settings
    with counted_collectives() as calls:
        values = sweep.compute()
    rule = sweep.rule
    gain = sweep.gain(generator=torch.Generator().manual_seed(0))
    return {name: value.item() for name, value in values.items()}, calls, float(rule.tau), str(gain), str(sweep.table())


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_number_of_processes_does_not_matter(world):
    logits, target, prior = long_tail(1200)
    single = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True)
    single.update(logits, target, cluster=torch.arange(1200) % 90)
    expected = {name: value.item() for name, value in single.compute().items()}
    gain = str(single.gain(generator=torch.Generator().manual_seed(0)))
    for values, calls, tau, told, table in launch(world, on_processes):
        assert values == expected
        assert calls == ["all_reduce"]
        assert tau == expected["tau"]
        assert told == gain
        assert table == str(single.table())


def test_forward_and_compute_of_one_batch_agree():
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        target = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 120, True, generator=generator)
        logits = torch.randn(120, 3, generator=generator) + 1.5 * torch.eye(3)[target]
        sweep = LogitAdjustmentSweep("balanced_accuracy", [70, 20, 10], logits=True)
        assert sweep(logits, target) == sweep.compute()


def test_a_prior_in_another_order_than_the_classes_is_told():
    """Total variation .6 between both, and 0 between both sorted."""
    generator = torch.Generator().manual_seed(0)
    target = torch.tensor([0, 1, 2]).repeat_interleave(torch.tensor([80, 15, 5]))
    scores = torch.randn(100, 3, generator=generator)
    for prior, told in (([80, 15, 5], False), ([5, 15, 80], True), ([1, 1, 1], False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sweep = LogitAdjustmentSweep("recall", prior, logits=True, taus=[0, 0.5, 1])
            for _ in range(2):
                sweep.update(scores, target)
                sweep.compute()
        texts = [str(each.message) for each in caught if "another order" in str(each.message)]
        assert len(texts) == told
        assert all("largest number is that of class '2', and most samples are of class '0'" in text for text in texts)


def test_a_prior_may_name_its_classes():
    names = ["cat", "dog", "emu"]
    named = LogitAdjustmentSweep("recall", {"emu": 5, "cat": 80, "dog": 15}, class_names=names)
    assert named.prior.tolist() == pytest.approx([0.8, 0.15, 0.05])
    with pytest.raises(ValueError, match=r"prior must name every class; missing are \['emu'\].*\['cow'\]"):
        LogitAdjustmentSweep("recall", {"cow": 5, "cat": 80, "dog": 15}, class_names=names)


def test_a_sweep_without_samples_has_nothing_to_choose():
    sweep = LogitAdjustmentSweep("f1", [3, 2, 1], logits=True)
    with pytest.warns(UserWarning, match="has counted no sample"):
        sweep.compute()
    for call in (sweep.best, sweep.gain, lambda: sweep.best(at_least={"accuracy": 0.1})):
        with pytest.raises(ValueError, match="no sample was counted, so there is no tau to choose; call update"):
            call()
