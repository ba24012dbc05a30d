"""Measures that other measures and reports are given: what index of balanced accuracy takes, and costs in a report."""

import functools
import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import oracles
import pytest
import sklearn.metrics
import sklearn.metrics as sk
import torch
import torchmetrics

import imbtorch
from imbtorch import ImbalanceReport, ThresholdSweep
from imbtorch.metrics.catalogue import BY_KEY
from imbtorch.metrics.resolving import resolved
from imbtorch.tasks import Counting

MATRIX = [[70, 10], [4, 16]]
PREDS = torch.tensor([0] * 70 + [1] * 10 + [0] * 4 + [1] * 16)
TARGET = torch.tensor([0] * 80 + [1] * 20)
OF_TWO = {name: metric for name, metric in BY_KEY.items() if metric.__name__ not in ("ExpectedCost", "NetBenefit")}


# --- index of balanced accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_TWO)
def test_iba_takes_a_function_a_class_or_a_name(name):
    metric = OF_TWO[name]
    expected = float(oracles.index_balanced_accuracy(MATRIX, measure=metric.__name__, alpha=Fraction(1, 4)))
    for given in (metric.measure, metric, metric.measure.__name__, name):
        value = imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), given, alpha=0.25)
        assert value.item() == pytest.approx(expected, rel=1e-12)
    for given in (metric.measure, metric, metric.measure.__name__, name):
        weighted = imbtorch.IndexBalancedAccuracy("binary", measure=given, alpha=0.25)
        assert weighted(PREDS, TARGET).item() == pytest.approx(expected, rel=1e-6)
        assert weighted._measure.needs_matrix == metric.needs_matrix


def test_iba_of_the_positive_class_alone():
    recall = partial(imbtorch.recall, average="binary")  # TPR .8, TNR .875
    value = imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), recall, alpha=0.5)
    assert value.item() == pytest.approx((1 + 0.5 * (0.8 - 0.875)) * 0.8)
    assert imbtorch.IndexBalancedAccuracy("binary", measure=recall, alpha=0.5)(PREDS, TARGET).item() == pytest.approx(
        (1 + 0.5 * (0.8 - 0.875)) * 0.8
    )


class Specific(imbtorch.ConfusionMatrixMetric):
    """A user's own metric."""

    measure = staticmethod(lambda counts: counts[..., 0, 0] / counts[..., 0, :].sum(-1))


def test_iba_of_a_metric_class_of_ones_own():
    metric = imbtorch.IndexBalancedAccuracy("binary", measure=Specific, alpha=0.0)
    assert metric(PREDS, TARGET).item() == pytest.approx(0.875)
    report = ImbalanceReport("binary", measures={"a": partial(imbtorch.IndexBalancedAccuracy, measure="mcc", alpha=0)})
    report.update(PREDS, TARGET)
    assert report.compute()["a"].item() == pytest.approx(sklearn.metrics.matthews_corrcoef(TARGET, PREDS))


@pytest.mark.parametrize(
    ("measure", "error", "match"),
    [
        ("gmeen", ValueError, "measure must be .* 'geometric_mean', .*got 'gmeen'"),
        (3, TypeError, "measure must be a function of the counts, a metric class .* or a name .*got 3"),
        (None, TypeError, "measure must be a function .*got None"),
        (torchmetrics.Accuracy, TypeError, "measure must be .*Accuracy"),
        (imbtorch.Recall("binary"), TypeError, r"got Recall\(task='binary'.*; pass its class or its evaluate"),
        (imbtorch.ExpectedCost, TypeError, r"expected_cost needs costs; give functools.partial\(expected_cost, costs="),
        ("net_benefit", TypeError, r"net_benefit needs threshold; give functools.partial\(net_benefit, threshold="),
    ],
)
def test_iba_says_what_it_got(measure, error, match):
    with pytest.raises(error, match=match):
        imbtorch.IndexBalancedAccuracy("binary", measure=measure)
    with pytest.raises(error, match=match):
        imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), measure)


# --- names and classes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_KEY)
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_a_name_is_read_like_the_metric_that_it_names(name, task):
    """Names are read off the catalogue alone; a metric says the same of itself."""
    counting = Counting.of(task, *{"binary": (), "multiclass": (3,), "multilabel": (None, 3)}[task])
    metric = BY_KEY[name]
    if metric is imbtorch.ExpectedCost:
        with pytest.raises(TypeError, match="ExpectedCost takes arguments of its own"):
            resolved(name, name, counting)
        return
    made = metric(task, counting.num_classes if task == "multiclass" else None, num_labels=counting.num_labels)
    for given in (name, metric, metric.measure):
        assert resolved(name, given, counting) == made._measure


def test_no_metric_is_made_for_names_and_classes(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a metric was made")

    monkeypatch.setattr(imbtorch.ConfusionMatrixMetric, "__init__", refuse)
    names = [name for name in BY_KEY if name != "expected_cost"]
    report = ImbalanceReport("binary", measures=names, per_class=("recall", "iam"))
    assert [*report.measures] == names
    ImbalanceReport("binary", measures={name: BY_KEY[name] for name in names})
    ImbalanceReport("binary", measures={"mcc": imbtorch.matthews_corrcoef})


def test_traits_follow_the_arguments():
    ratio = imbtorch.LikelihoodRatio("binary", positive=False)
    assert (ratio.higher_is_better, imbtorch.LikelihoodRatio.higher_is_better) == (False, True)
    kappa = imbtorch.CohenKappa("multiclass", num_classes=3, weights="linear")
    assert (kappa.needs_matrix, imbtorch.CohenKappa.needs_matrix) == (True, False)
    with pytest.raises(ValueError, match=r"CohenKappa with weights='linear' needs the whole matrix"):
        imbtorch.CohenKappa("multiclass", num_classes=3, weights="linear", state="margins")
    for metric in (ratio, kappa):
        again = pickle.loads(pickle.dumps(metric))
        assert (again.higher_is_better, again.needs_matrix) == (metric.higher_is_better, metric.needs_matrix)


# --- costs in a report ----------------------------------------------------------------------------------------------

COSTS = [[0.0, 1.0], [5.0, 0.0]]


@pytest.mark.parametrize(
    "cost",
    [
        partial(imbtorch.ExpectedCost, costs=COSTS),
        partial(imbtorch.ExpectedCost, costs=torch.tensor(COSTS)),
        imbtorch.ExpectedCost("binary", costs=COSTS),
        partial(imbtorch.expected_cost, costs=torch.tensor(COSTS)),
    ],
    ids=["partial", "partial of tensor", "instance", "function"],
)
def test_costs_in_a_report(cost):
    report = ImbalanceReport("binary", measures={"cost": cost}, per_class=())
    report.update(PREDS, TARGET)
    weights = [COSTS[t][p] for t, p in zip(TARGET.tolist(), PREDS.tolist(), strict=True)]
    wanted = np.mean(weights)
    assert report.compute()["cost"].item() == pytest.approx(wanted)
    assert report["cost"].higher_is_better is False
    assert report.table().overall["cost"] == pytest.approx(wanted)


def test_costs_of_several_classes_and_against_the_trivial_prediction():
    costs = [[0, 1, 4], [2, 0, 1], [9, 3, 0]]
    preds, target = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0]), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    paid = sum(costs[t][p] for t, p in zip(target.tolist(), preds.tolist(), strict=True))
    constant = min(sum(costs[t][p] for t in target.tolist()) for p in range(3))
    measures = {
        "mean": partial(imbtorch.ExpectedCost, costs=costs),
        "total": partial(imbtorch.ExpectedCost, costs=costs, normalize=False),
        "trivial": imbtorch.ExpectedCost("multiclass", 3, costs=costs, normalize="trivial"),
    }
    report = ImbalanceReport("multiclass", 3, measures=measures, per_class=())
    report.update(preds, target)
    values = {name: value.item() for name, value in report.compute().items()}
    assert values == pytest.approx({"mean": paid / 8, "total": paid, "trivial": paid / constant})


def test_costs_that_do_not_fit_the_report():
    with pytest.raises(ValueError, match=r"costs must be 3 x 3 finite numbers, got shape \[2, 2\]"):
        ImbalanceReport("multiclass", 3, measures={"cost": partial(imbtorch.ExpectedCost, costs=COSTS)})
    with pytest.raises(TypeError, match=r"give 'expected_cost' functools.partial\(ExpectedCost, costs="):
        ImbalanceReport("multiclass", 3, measures=["expected_cost"])
    with pytest.raises(ValueError, match="'cost' was made to count otherwise"):
        ImbalanceReport("multiclass", 3, measures={"cost": imbtorch.ExpectedCost("binary", costs=COSTS)})


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
