"""Measures as users give them: names, functions, and partials of functions."""

import functools
import pickle
from dataclasses import replace
from functools import partial

import jsonargparse
import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from oracles import FACTS
from report_cases import (
    BINARY,
    TASKS,
    assert_same,
    batch_of,
    data,
    directed,
    error_rate,
    filled,
    jaccard_of_each,
    report_of,
)
from rooms import (
    METRICS,
    Counting,
    by_key,
    direction_of,
    measure_of,
    measure_of_counts,
    needs_matrix,
    resolved,
    settings_text,
)
from rooms import catalogue as metrics
from sklearn import metrics as sklearn_metrics
from torchmetrics.classification import MulticlassAccuracy

import imbtorch
from imbtorch import FScore, ImbalanceReport, ThresholdSweep
from imbtorch.statistics import bootstrap, compare, paired_compare, posterior, select_epoch, select_model, trivial


def hits_of_last(counts):
    """Recall of the last class, read off the cells of one matrix."""
    return counts[-1, -1] / counts[-1].sum()


# --- measures of one's own ------------------------------------------------------------------------------------------


def test_measures_are_names_functions_and_partials():
    chosen = {
        "iam": "imbalance_accuracy",
        "cen": imbtorch.confusion_entropy,
        "dominance": "dominance",
        "error": error_rate,
        "error_min": directed(error_rate, False),
        "hits": directed(hits_of_last, True),
        "f2": functools.partial(imbtorch.f_score, beta=2.0),
        "cost": functools.partial(imbtorch.expected_cost, costs=torch.ones(3, 3) - torch.eye(3)),
    }
    report = filled("multiclass", measures=chosen, per_class=())
    assert report.keys() == list(chosen)
    directions = {name: report[name].higher_is_better for name in chosen}
    assert directions == {
        "iam": True,
        "cen": False,
        "dominance": None,
        "error": None,
        "error_min": False,
        "hits": True,
        "f2": True,
        "cost": False,
    }
    preds, target = data("multiclass")
    error = sklearn_metrics.zero_one_loss(target, preds)
    wanted = {
        "error": error,
        "error_min": error,
        "hits": sklearn_metrics.recall_score(target, preds, average=None)[2],
        "f2": sklearn_metrics.fbeta_score(target, preds, beta=2.0, average="macro"),
        "cost": error,
    }
    values = report.compute()
    assert_same({name: values[name] for name in wanted}, wanted)
    assert report.table()["measure"]["hits"]["all"] == pytest.approx(wanted["hits"])


def traced(function):
    """Decorate a function."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        """Call the function."""
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("name", FACTS)
def test_the_direction_is_the_same_in_every_form_of_a_measure(name):
    better, required = FACTS[name].better, FACTS[name].required
    arguments = required(2) if required is not None else {}
    cls = getattr(metrics, name)
    metric = cls("binary", **arguments)
    forms = [functools.partial(cls.measure, **arguments)]
    of_report = ImbalanceReport("binary", measures={"it": forms[0]}).measure("it")
    forms += [metric.evaluate, of_report]
    forms += [functools.partial(each) for each in (metric.evaluate, of_report)]
    decorated = [torch.no_grad()(each) for each in forms]
    decorated += [functools.partial(torch.no_grad()(traced(cls.measure)), **arguments), torch.vmap(forms[0])]
    forms += decorated
    for form in forms:
        assert ImbalanceReport("binary", measures={"it": form})["it"].higher_is_better is better
        if better is None:
            with pytest.raises(ValueError, match="has no direction; pass higher_is_better=True or False"):
                direction_of(form, None)
            with pytest.raises(ValueError, match="has no direction"):
                ThresholdSweep(form)
        else:
            assert direction_of(form, None) is better
            assert ThresholdSweep(form)["value"].higher_is_better is better
        assert ThresholdSweep(form, higher_is_better=False)["value"].higher_is_better is False
    for form in decorated:
        member = type("Decorated", (imbtorch.ConfusionMatrixMetric,), {"measure": staticmethod(form)})
        assert member.higher_is_better is better


class Scorer:
    """Measures that are methods of an object which is no metric."""

    def error(self, counts):
        """Share of wrong predictions."""
        return error_rate(counts)

    error.higher_is_better = False


def test_the_direction_stands_on_a_function_a_method_or_a_partial():
    marked = functools.partial(error_rate)
    marked.higher_is_better = False
    for form in (Scorer().error, functools.partial(Scorer().error), marked):
        assert direction_of(form, None) is False
        assert ImbalanceReport("binary", measures={"it": form})["it"].higher_is_better is False
        assert ThresholdSweep(lambda counts, form=form: form(counts), higher_is_better=False)
    assert direction_of(error_rate, None) is True
    opposite = traced(imbtorch.accuracy)
    opposite.higher_is_better = False  # a decorator may turn the values round
    compiled = [torch.compile(each, backend="eager") for each in (marked, imbtorch.confusion_entropy)]
    for form in (traced(marked), *compiled, opposite):
        assert direction_of(form, None) is False
    below = functools.partial(traced(imbtorch.likelihood_ratio), positive=False)
    assert direction_of(below, None) is direction_of(traced(below), None) is False
    assert direction_of(traced(imbtorch.likelihood_ratio), None) is True
    for wrong in ("min", 1, torch.tensor([True])):
        with pytest.raises(TypeError, match="higher_is_better must be True, False or None, got"):
            direction_of(error_rate, wrong)
        with pytest.raises(TypeError, match="higher_is_better must be True, False or None, got"):
            ThresholdSweep(imbtorch.accuracy, higher_is_better=wrong)


class OwnEvaluate(imbtorch.Accuracy):
    """Says what it reports by evaluate in place of measure."""

    higher_is_better = False

    def evaluate(self, counts):
        """Share of wrong predictions."""
        return 1 - super().evaluate(counts)


def test_the_evaluate_of_a_metric_is_a_function_of_counts():
    report = ImbalanceReport("binary", measures={"error": OwnEvaluate("binary").evaluate})
    assert report["error"].higher_is_better is False
    report.update(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]))
    assert report.compute()["error"] == 0.25


def test_a_decorator_may_read_single_cells_of_the_counts():
    """The value of 20 classes by a loop over the smoothed cells; the measure itself would get margins."""

    @functools.wraps(imbtorch.recall)
    def smoothed(counts):
        return imbtorch.recall(counts + 1)

    assert (needs_matrix(imbtorch.recall), needs_matrix(smoothed)) == (False, True)
    counts = torch.arange(400).reshape(20, 20)
    wanted = sum((counts[i, i].item() + 1) / (counts[i].sum().item() + 20) for i in range(20)) / 20
    assert posterior(smoothed, counts, draws=10).estimate.item() == pytest.approx(wanted)


def test_a_measure_that_cannot_be_hashed_is_a_function_like_any_other():
    grouped = ImbalanceReport("multiclass", class_names=list("abc"), class_groups={"first": ["a", "b"]})
    counts = torch.tensor([[5, 2, 1], [3, 4, 0], [1, 1, 8]])
    measure = grouped.measure("recall/first")
    report = ImbalanceReport("multiclass", 3, measures={"it": measure})
    assert report["it"].higher_is_better is direction_of(measure, None) is True
    report.update(*pairs_of(counts))
    assert report.compute()["it"].item() == pytest.approx((5 / 8 + 4 / 7) / 2)


def pairs_of(counts):
    """Predictions and targets with these counts."""
    actual, predicted = torch.meshgrid(torch.arange(len(counts)), torch.arange(len(counts)), indexing="ij")
    times = counts.flatten()
    return predicted.flatten().repeat_interleave(times), actual.flatten().repeat_interleave(times)


def test_a_measure_of_ones_own_need_not_take_the_margins_of_its_base_class():
    class FalseAlarms(imbtorch.Accuracy):
        """Share of all samples that are a 1 predicted of a 0."""

        measure = staticmethod(lambda counts: counts[..., 0, 1] / counts.sum((-2, -1)))

    metric = FalseAlarms("multiclass", 3)
    assert metric.needs_matrix
    assert metric(torch.tensor([1, 1, 2, 0]), torch.tensor([0, 1, 1, 0])).item() == 0.25
    with pytest.raises(ValueError, match="FalseAlarms needs the matrix, which state='margins' does not keep"):
        FalseAlarms("multiclass", 3, state="margins")


def test_defaults_can_be_added_to_and_taken_from():
    measures = {name: each for name, each in ImbalanceReport.default_measures("binary").items() if name != "op"}
    report = filled("binary", measures=measures | {"error": error_rate}, per_class=())
    assert report.keys() == [name for name in BINARY if name != "op"] + ["error"]
    assert ImbalanceReport("binary", per_class=()).keys() == BINARY


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_function_sees_the_counts(state):
    seen = []

    def see(counts):
        seen.append(counts)
        return torch.tensor(0.25)

    report = filled("multiclass", measures={"seen": see}, state=state)
    assert report.compute()["seen"] == 0.25
    preds, target = data("multiclass")
    matrix = sklearn_metrics.confusion_matrix(target, preds)
    counts = seen[-1]
    if state == "matrix":
        assert counts.tolist() == matrix.tolist()
    else:
        assert counts.correct.tolist() == matrix.diagonal().tolist()
        assert counts.actual.tolist() == matrix.sum(1).tolist()
        assert counts.predicted.tolist() == matrix.sum(0).tolist()


def test_a_function_reads_each_label():
    """Not the stack of their matrices, in which the first two labels would be taken for rows."""
    preds, target = data("multilabel", classes=2)
    report = ImbalanceReport("multilabel", num_labels=2, measures={"hits": hits_of_last})
    report.update(preds, target)
    wanted = sklearn_metrics.recall_score(target, preds, average="macro")
    assert report.compute()["hits"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("measured", "error", "match"),
    [
        (metrics.FScore, TypeError, r"measures\['x'\] must be the name .*; pass imbtorch.f_score or 'f1'$"),
        (metrics.FScore("binary"), TypeError, r"pass functools.partial\(imbtorch.f_score, beta=...\)$"),
        (partial(metrics.FScore, beta=2), TypeError, r"pass functools.partial\(imbtorch.f_score, beta=...\)$"),
        (OwnEvaluate, TypeError, "; pass imbtorch.accuracy or 'accuracy'$"),
        (
            "expected_cost",
            TypeError,
            r"measures\['x'\]: expected_cost needs costs; pass functools.partial\(imbtorch.expected_cost, co",
        ),
        (partial(imbtorch.f_score, beta=-1), ValueError, "beta must be"),
        (partial(imbtorch.f_score, gamma=2), TypeError, "unexpected keyword argument 'gamma'"),
        (MulticlassAccuracy, TypeError, r"measures\['x'\] must be the name of a measure"),
        (MulticlassAccuracy(num_classes=3), TypeError, r"measures\['x'\] must be the name of a measure"),
        (ImbalanceReport, TypeError, r"measures\['x'\] must be the name of a measure"),
        ("youden", ValueError, r"measures\['x'\] must be one of .*got 'youden'.*nearest: '"),
        (None, TypeError, r"measures\['x'\] must be the name of a measure"),
        ((error_rate, True), TypeError, "set the direction as an attribute of the function: function.higher_is_better"),
    ],
)
def test_what_is_no_measure(measured, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport("multiclass", num_classes=3, measures={"x": measured})


@pytest.mark.parametrize("name", [name for name in metrics.__all__ if getattr(metrics, name).needs_matrix])
def test_margins_are_refused_where_the_matrix_is_needed(name):
    measured = getattr(metrics, name).measure
    if name == "ExpectedCost":
        measured = functools.partial(measured, costs=torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"'x' needs the whole matrix, which state='margins' does not keep"):
        ImbalanceReport("multiclass", num_classes=3, measures={"x": measured}, state="margins")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda counts: 0.5, "float"),
        (lambda counts: None, "NoneType"),
        (lambda counts: torch.ones(2, 5), r"\[2, 5\]"),
        (lambda counts: torch.ones(0), r"\[0\]"),
    ],
    ids=["float", "None", "matrix", "empty"],
)
def test_a_function_must_return_one_value(task, function, got):
    report = filled(task, measures={"mine": function})
    with pytest.raises(ValueError, match=f"measure 'mine' must return a tensor of one value, got {got}"):
        report.compute()


def test_a_value_with_one_element_is_a_scalar():
    report = filled("multiclass", measures={"one": lambda counts: counts.sum().reshape(1, 1)}, per_class=())
    value = report.compute()["one"]
    assert (value.shape, value.dtype, value.item()) == ((), torch.float32, 60.0)


def test_measures_by_name_equal_the_single_metrics():
    values = report_of(measures=["mcc", "gmean"], per_class=()).compute()
    preds, target = batch_of()
    recalls = torch.tensor(sklearn_metrics.recall_score(target, preds, average=None))
    assert list(values) == ["mcc", "gmean"]
    assert values["mcc"].item() == pytest.approx(sklearn_metrics.matthews_corrcoef(target, preds), abs=1e-6)
    assert values["gmean"].item() == pytest.approx(recalls.prod().item() ** (1 / 3), abs=1e-6)


@pytest.mark.parametrize(
    "f2",
    [
        functools.partial(imbtorch.f_score, beta=2),
        functools.partial(functools.partial(imbtorch.f_score, beta=3), beta=2),
        FScore("binary", beta=2).evaluate,
    ],
)
def test_a_measure_with_an_argument_of_its_own(f2):
    preds, target = batch_of(2)
    expected = sklearn_metrics.fbeta_score(target, preds, beta=2)
    report = report_of("binary", 2, measures={"f2": f2, "again": "recall"}, per_class=())
    assert report.compute()["f2"].item() == pytest.approx(expected, abs=1e-6)
    assert report["f2"].higher_is_better is True
    assert report.compute()["again"].item() == pytest.approx(sklearn_metrics.recall_score(target, preds), abs=1e-6)
    sweep = ThresholdSweep(f2, thresholds=torch.tensor([0.5]))
    sweep.update(preds.float(), target)
    assert sweep.compute()["value"].item() == pytest.approx(expected, abs=1e-6)


def test_a_sweep_takes_a_name():
    by_name, by_function = ThresholdSweep("iba"), ThresholdSweep(imbtorch.index_balanced_accuracy)
    assert settings_text(by_name) == settings_text(by_function)


@pytest.mark.parametrize(
    ("measures", "error", "text"),
    [
        (["iam", "youden"], ValueError, "measures must be one of .*got 'youden'.*nearest: '"),
        ({"j": "youden"}, ValueError, r"measures\['j'\] must be one of .*got 'youden'.*nearest: '"),
        (["iam", "iam"], ValueError, r"must not name a measure twice, got \['iam', 'iam'\]"),
        ("iam", TypeError, r"names such as \['iam', 'mcc'\].*got 'iam'"),
        ([imbtorch.imbalance_accuracy], TypeError, r"or map names to measures, as in \{'iam': imbalance_accuracy\}"),
        ({1: "iam"}, TypeError, "got the name 1"),
    ],
)
def test_words_that_name_no_measure(measures, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", num_classes=3, measures=measures)


def test_measures_tell_reports_apart_on_several_processes():
    texts = {
        settings_text(ImbalanceReport("binary", measures=measures, per_class=per_class))
        for measures in (["iam"], ["mcc"], {"iam": "mcc"})
        for per_class in ((), {"iou": jaccard_of_each}, {"iou": "recall"})
    }
    assert len(texts) == 9


REPORT_IN_YAML = """
report:
  class_path: imbtorch.ImbalanceReport
  init_args:
    task: binary
    class_names: [ok, fraud]
    prefix: val_
    measures:
      iam: iam
      sensitivity: imbtorch.measures.recall
      right: imbtorch.measures.accuracy
    per_class: [recall]
"""


def parsed(text, kind):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--report", type=kind)
    return parser.instantiate(parser.parse_string(text)).report


def test_a_report_from_a_yaml_file():
    report = parsed(REPORT_IN_YAML, ImbalanceReport)
    assert report.keys() == [
        *("val_iam", "val_sensitivity", "val_right"),
        *("val_recall/ok", "val_recall/fraud"),
    ]
    preds, target = batch_of(2)
    report.update(preds, target)
    values = report.compute()
    assert values["val_sensitivity"].item() == pytest.approx(sklearn_metrics.recall_score(target, preds), abs=1e-6)
    assert values["val_right"].item() == pytest.approx(sklearn_metrics.accuracy_score(target, preds), abs=1e-6)


def test_names_in_a_yaml_file():
    text = """
report:
  class_path: imbtorch.ImbalanceReport
  init_args: {task: multiclass, num_classes: 3, measures: [iam, mcc], per_class: []}
"""
    assert parsed(text, ImbalanceReport).keys() == ["iam", "mcc"]
    sweep = "report: {class_path: imbtorch.ThresholdSweep, init_args: {measure: iba, thresholds: 11}}"
    assert measure_of(parsed(sweep, ThresholdSweep)).function is imbtorch.index_balanced_accuracy


PREDS = torch.tensor([0] * 70 + [1] * 10 + [0] * 4 + [1] * 16)
TARGET = torch.tensor([0] * 80 + [1] * 20)


@pytest.mark.parametrize("name", by_key())
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_a_name_is_read_like_the_metric_that_it_names(name, task):
    """Names are read off the catalogue alone; a metric says the same of itself."""
    counting = Counting.of(task, *{"binary": (), "multiclass": (3,), "multilabel": (None, 3)}[task], clusters=None)
    metric = METRICS[by_key()[name]]
    if metric is imbtorch.ExpectedCost:
        with pytest.raises(TypeError, match="expected_cost needs costs"):
            resolved(name, name, counting)
        return
    made = metric(task, counting.num_classes if task == "multiclass" else None, num_labels=counting.num_labels)
    for given in (name, metric.measure.__name__, metric.measure, partial(metric.measure)):
        assert replace(resolved(name, given, counting), name=metric.__name__) == measure_of(made)


def test_no_metric_is_made_for_measures(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a metric was made")

    monkeypatch.setattr(imbtorch.ConfusionMatrixMetric, "__init__", refuse)
    names = [name for name in by_key() if name != "expected_cost"]
    report = ImbalanceReport("binary", measures=names, per_class=("recall", "iam"))
    assert [*report.measures] == names
    ImbalanceReport("binary", measures={"f2": partial(imbtorch.f_score, beta=2)})


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


COSTS = [[0.0, 1.0], [5.0, 0.0]]


@pytest.mark.parametrize(
    "cost",
    [
        partial(imbtorch.expected_cost, costs=COSTS),
        partial(imbtorch.expected_cost, costs=torch.tensor(COSTS)),
    ],
    ids=["list", "tensor"],
)
def test_costs_in_a_report(cost):
    report = ImbalanceReport("binary", measures={"cost": cost}, per_class=())
    report.update(PREDS, TARGET)
    weights = [COSTS[t][p] for t, p in zip(TARGET.tolist(), PREDS.tolist(), strict=True)]
    wanted = np.mean(weights)
    assert report.compute()["cost"].item() == pytest.approx(wanted)
    assert report["cost"].higher_is_better is False
    assert report.table()["measure"]["cost"]["all"] == pytest.approx(wanted)


def test_costs_of_several_classes_and_against_the_trivial_prediction():
    costs = [[0, 1, 4], [2, 0, 1], [9, 3, 0]]
    preds, target = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0]), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    paid = sum(costs[t][p] for t, p in zip(target.tolist(), preds.tolist(), strict=True))
    constant = min(sum(costs[t][p] for t in target.tolist()) for p in range(3))
    measures = {
        "mean": partial(imbtorch.expected_cost, costs=costs),
        "total": partial(imbtorch.expected_cost, costs=costs, normalize=False),
        "baseline": partial(imbtorch.expected_cost, costs=costs, normalize="baseline"),
    }
    report = ImbalanceReport("multiclass", 3, measures=measures, per_class=())
    report.update(preds, target)
    values = {name: value.item() for name, value in report.compute().items()}
    assert values == pytest.approx({"mean": paid / 8, "total": paid, "baseline": paid / constant})


def test_costs_that_do_not_fit_the_report():
    with pytest.raises(ValueError, match=r"costs must be \[3, 3\] like the matrix, got \[2, 2\]"):
        ImbalanceReport("multiclass", 3, measures={"cost": partial(imbtorch.expected_cost, costs=COSTS)})
    with pytest.raises(TypeError, match=r"pass functools.partial\(imbtorch.expected_cost, costs="):
        ImbalanceReport("multiclass", 3, measures=["expected_cost"])


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
    report = ImbalanceReport("multiclass", 2, measures={"x": functools.partial(metric.measure, **keywords)})
    assert report(scores, target)["x"] == binary.compute()
    views = metric("multiclass", 2, average="none", **keywords)(scores, target)
    assert views[1] == binary.compute()
    named = metric("multiclass", 2, average="macro", **keywords)(scores, target)
    assert named.item() == pytest.approx(views.mean().item())


F1_MEASURES = {
    "name": "f1",
    "name of the function": "f_score",
    "function": imbtorch.f_score,
    "partial": functools.partial(imbtorch.f_score, beta=1.0),
    "method": imbtorch.FScore("binary").evaluate,
}


@pytest.mark.parametrize("measured", F1_MEASURES.values(), ids=F1_MEASURES)
def test_one_rule_for_the_positive_class(measured):
    scores, target = torch.tensor([0.2, 0.9, 0.7, 0.4, 0.6]), torch.tensor([0, 1, 1, 1, 0])
    wanted = sk.f1_score(target, scores > 0.5)
    report = ImbalanceReport("binary", measures={"f1": measured}, per_class=())
    assert report(scores, target)["f1"].item() == pytest.approx(wanted)
    assert report["f1"].higher_is_better is True
    sweep = ThresholdSweep(measured, torch.tensor([0.5]))
    assert sweep(scores, target)["value"].item() == pytest.approx(wanted)
    counts = imbtorch.confusion_matrix(scores, target, "binary")
    assert posterior(measured, counts, draws=10).estimate.item() == pytest.approx(wanted)
    assert trivial(measured, counts)["always 1"].item() == pytest.approx(sk.f1_score(target, torch.ones(5)))
    chosen = select_epoch((scores > 0.5).long().unsqueeze(0), target, measured, draws=10)
    assert chosen.value == pytest.approx(wanted)
    table = select_model({"a": counts}, {"f1": measured})
    assert table.values.item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "name", [name for name, function in by_key().items() if function is not imbtorch.expected_cost]
)
@pytest.mark.parametrize("task", TASKS)
def test_a_measure_of_counts_is_that_of_a_report(task, name):
    given = partial(imbtorch.net_benefit, threshold=0.2) if name == "net_benefit" else name
    report = filled(task, measures={"x": given}, per_class=())
    labels = 3 if task == "multilabel" else None
    measure = measure_of_counts(given, report.counts().shape[-1], labels)
    torch.testing.assert_close(measure(report.counts()).float(), report.compute()["x"], rtol=0, atol=0, equal_nan=True)


def test_results_print_measure_and_average():
    counts = torch.tensor([[90, 10], [1, 9]])
    macro = partial(imbtorch.recall, average="macro")
    assert str(posterior("recall", counts, draws=10)).startswith("recall (binary) 0.900 [")
    assert str(posterior(macro, counts, draws=10)).startswith("recall (macro) 0.900 [")
    assert str(posterior(partial(imbtorch.f_score, beta=2), counts, draws=10)).startswith("f_score (beta=2, binary) ")
    assert str(posterior(error_rate, counts, draws=10)).startswith("error_rate 0.1")
    assert str(posterior(lambda counts: error_rate(counts), counts, draws=10)).startswith("0.1")
    both = bootstrap({"a": "recall", "b": "mcc"}, counts, draws=10)
    assert {name: each.measure for name, each in both.items()} == {"a": "recall (binary)", "b": "mcc"}
    labels = bootstrap("f1", counts.repeat(4, 2, 1, 1), draws=10, clusters=True, event_dims=3)
    assert str(labels).startswith("f1 (macro over 2 labels) 0.6")
    assert str(compare("iba", counts.repeat(3, 3)[:3, :3], counts.repeat(3, 3)[:3, :3], draws=10)).startswith(
        "iba (macro), a"
    )
    preds, target = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    found = paired_compare("recall", preds, target, target, 2, draws=10)
    assert str(found).startswith("recall (binary), a - b: -0.500 [")
    assert "recall (binary), a - b" in found._repr_html_()
    assert str(select_epoch(preds.unsqueeze(0), target, "recall", draws=10)).startswith(
        "epoch 0: recall (binary) 0.500"
    )


def test_arguments_of_partials_count():
    scores, target = torch.tensor([0.2, 0.9, 0.7, 0.4, 0.6]), torch.tensor([0, 1, 1, 1, 0])
    wanted = sk.fbeta_score(target, scores > 0.5, beta=2)
    costs = torch.tensor([[0.0, 1.0], [5.0, 0.0]])
    f2 = functools.partial(imbtorch.f_score, beta=2.0)
    sweep = ThresholdSweep(f2, torch.tensor([0.5]))
    assert sweep(scores, target)["value"].item() == pytest.approx(wanted)
    report = ImbalanceReport("binary", measures={"f2": f2}, per_class=())
    assert report(scores, target)["f2"].item() == pytest.approx(wanted)
    macro = functools.partial(imbtorch.f_score, average="macro")
    report = ImbalanceReport("binary", measures={"f1": macro}, per_class=())
    assert report(scores, target)["f1"].item() == pytest.approx(sk.f1_score(target, scores > 0.5, average="macro"))
    sweep = ThresholdSweep(functools.partial(imbtorch.expected_cost, costs=costs), torch.tensor([0.5]))
    assert sweep(scores, target)["value"].item() == pytest.approx((1 + 5) / 5)
    assert sweep["value"].higher_is_better is False
    with pytest.raises(TypeError, match=r"expected_cost needs costs; .*functools.partial\(imbtorch.expected_cost"):
        ThresholdSweep("expected_cost")


def test_net_benefit_needs_a_price_where_no_task_gives_one():
    counts = torch.tensor([[90, 10], [1, 9]])
    with pytest.raises(TypeError, match=r"needs threshold; pass functools.partial\(imbtorch.net_benefit, threshold="):
        posterior("net_benefit", counts)
    priced = posterior(partial(imbtorch.net_benefit, threshold=0.2), counts, draws=10)
    assert priced.estimate.item() == pytest.approx((9 - 10 * 0.2 / 0.8) / 110)


def test_reports_count_an_absent_positive_class_as_0_and_direct_calls_leave_it_undefined():
    """So that a monitor is never nan for an epoch with samples; the value of the class itself is undefined in both."""
    nobody = torch.zeros(5, dtype=torch.long)
    counts = imbtorch.confusion_matrix(nobody, nobody, "binary")
    report = ImbalanceReport("binary", measures=["f1", "iou", "specificity"], per_class=["f1"])
    report.update(nobody, nobody)
    with pytest.warns(UserWarning, match="1 of 2 classes had no target"):
        values = report.compute()
    assert {name: each.item() for name, each in values.items() if name != "f1/1"} == {
        "f1": 0, "iou": 0, "specificity": 1, "f1/0": 1
    }  # fmt: skip
    assert values["f1/1"].isnan()
    assert imbtorch.functional.evaluate("f1", nobody, nobody, "binary") == report.measure("f1")(counts) == 0
    assert imbtorch.f_score(counts, average="binary").isnan()
    labels = ImbalanceReport("multilabel", num_labels=2, measures=["f1"], per_class=["f1"])
    labels.update(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[0, 1], [0, 0]]))
    assert labels.measure("f1")(labels.counts()) == 1  # the mean of the label that came


# --- names of the field -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "oracle"),
    [
        ("sensitivity", "recall", lambda t, p: sk.recall_score(t, p)),
        ("tpr", "recall", lambda t, p: sk.recall_score(t, p)),
        ("ppv", "precision", lambda t, p: sk.precision_score(t, p)),
        ("tnr", "specificity", lambda t, p: sk.recall_score(t, p, pos_label=0)),
        ("jaccard_index", "iou", lambda t, p: sk.jaccard_score(t, p)),
        ("phi", "mcc", lambda t, p: sk.matthews_corrcoef(t, p)),
        ("bacc", "balanced_accuracy", lambda t, p: sk.balanced_accuracy_score(t, p)),
        ("dice", "dice", lambda t, p: sk.f1_score(t, p)),
        ("imbalance_accuracy", "iam", None),
    ],
)
def test_a_measure_of_several_names_is_logged_under_its_key(name, key, oracle):
    target, preds = [0] * 10 + [1] * 6, [0] * 7 + [1] * 3 + [1] * 4 + [0] * 2
    report = ImbalanceReport("binary", measures=[name], per_class=(), prefix="val_")
    report.update(torch.tensor(preds), torch.tensor(target))
    values = report.compute()
    assert list(values) == [f"val_{key}"]
    if oracle is not None:
        assert values[f"val_{key}"].item() == pytest.approx(oracle(target, preds))
        assert ThresholdSweep("mcc", at_least={name: 0.2}).at_least == {key: 0.2}
    with pytest.raises(ValueError, match="measures must not name a measure twice"):
        ImbalanceReport("binary", measures=[name, "f1", key if name != key else name])


def test_names_of_the_field_are_taken_for_each_class_areas_and_plans():
    assert ImbalanceReport("binary", measures=["f1"], per_class=["ppv"]).per_class == ("precision",)
    assert ThresholdSweep("f1", also=["auroc", "auc", "ap"]).also == ("auc", "average_precision")
    with pytest.raises(ValueError, match=r"at_least must not name a measure twice, got \['tpr', 'recall'\]"):
        ThresholdSweep("f1", at_least={"tpr": 0.2, "recall": 0.5})
    rates, shares = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0.5, 0.5])
    needed = [
        imbtorch.statistics.samples_needed(each, rates, shares, 0.2, test_sets=40, draws=200)
        for each in ("recall", "sensitivity", functools.partial(imbtorch.recall, average="binary"))
    ]
    assert needed[0] == needed[1] == needed[2]
    target, scores = torch.tensor([0, 0, 1, 1] * 20), torch.tensor([0.1, 0.6, 0.7, 0.3] * 20)
    areas = [imbtorch.statistics.paired_compare(each, scores, 1 - scores, target) for each in ("auc", "roc_auc")]
    assert str(areas[0]) == str(areas[1])


def test_an_unknown_name_lists_the_five_nearest():
    with pytest.raises(
        ValueError, match=r"measure must be one of \d+ names, got 'recal'.*did you mean 'recall'"
    ) as told:
        ThresholdSweep("recal")
    assert str(told.value).count("'") == 2 * (1 + 1 + 5)
    assert "nearest: 'recall', " in str(told.value)
