"""Measures as users give them: names, classes, instances, partials, functions, pairs."""

import functools
import pickle
from functools import partial

import jsonargparse
import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from oracles import FACTS
from reports import BINARY, TASKS, assert_same, batch_of, data, error_rate, filled, jaccard_of_each, report_of
from sklearn import metrics as sklearn_metrics
from torchmetrics.classification import MulticlassAccuracy

import imbtorch
from imbtorch import FScore, ImbalanceReport, ThresholdSweep
from imbtorch.analysis import posterior
from imbtorch.measures.traits import direction_of, needs_matrix
from imbtorch.metrics import catalogue as metrics
from imbtorch.metrics.catalogue import BY_KEY
from imbtorch.metrics.resolving import resolved
from imbtorch.tasks import Counting


def hits_of_last(counts):
    """Recall of the last class, read off the cells of one matrix."""
    return counts[-1, -1] / counts[-1].sum()


# --- measures of one's own ------------------------------------------------------------------------------------------


class ShareOfThird(imbtorch.ConfusionMatrixMetric):
    """Reads a cell that only a matrix of three classes or more has."""

    higher_is_better = False
    measure = staticmethod(lambda counts: counts[..., 2, :].sum(-1) / counts.sum((-2, -1)))


def test_measures_are_metrics_functions_and_pairs():
    chosen = {
        "iam": metrics.ImbalanceAccuracy,
        "cen": metrics.ConfusionEntropy,
        "dominance": metrics.Dominance,
        "error": error_rate,
        "error_min": (error_rate, False),
        "hits": (hits_of_last, True),
        "open": (error_rate, None),
        "f2": functools.partial(imbtorch.f_score, beta=2.0),
        "cost": (functools.partial(imbtorch.expected_cost, costs=torch.ones(3, 3) - torch.eye(3)), False),
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
        "open": None,
        "f2": True,
        "cost": False,
    }
    preds, target = data("multiclass")
    error = sklearn_metrics.zero_one_loss(target, preds)
    wanted = {
        "error": error,
        "error_min": error,
        "hits": sklearn_metrics.recall_score(target, preds, average=None)[2],
        "open": error,
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
    same = {name: value for name, value in arguments.items() if name == "threshold"}  # of the counts and the measure
    cls = getattr(metrics, name)
    metric = cls("binary", **arguments)
    of_report = ImbalanceReport("binary", measures={"it": functools.partial(cls, **arguments)}, **same).measure("it")
    forms = [metric.evaluate, of_report, functools.partial(cls.measure, **arguments)]
    forms += [functools.partial(each) for each in (metric.evaluate, of_report)]
    decorated = [torch.no_grad()(each) for each in forms]
    decorated += [functools.partial(torch.no_grad()(traced(cls.measure)), **arguments), torch.vmap(forms[2])]
    forms += decorated
    for form in forms:
        assert ImbalanceReport("binary", measures={"it": form}, **same)["it"].higher_is_better is better
        if better is None:
            with pytest.raises(ValueError, match=f"measure {name}.* has no direction|{name.lower()} has no direction"):
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
    with pytest.raises(ValueError, match="given twice, in a pair and as higher_is_better"):
        ThresholdSweep((imbtorch.accuracy, True), higher_is_better=False)


class OwnEvaluate(imbtorch.Accuracy):
    """Says what it reports by evaluate in place of measure."""

    higher_is_better = False

    def evaluate(self, counts):
        """Share of wrong predictions."""
        return 1 - super().evaluate(counts)


@pytest.mark.parametrize("given", [OwnEvaluate, OwnEvaluate("binary")], ids=["class", "instance"])
def test_a_metric_with_an_evaluate_of_its_own_is_refused_where_that_is_not_called(given):
    for make in (ThresholdSweep, lambda measure: ImbalanceReport("binary", measures={"error": measure})):
        with pytest.raises(TypeError, match="was given as OwnEvaluate, whose own evaluate would not be called; define"):
            make(given)
    assert (
        ImbalanceReport("binary", measures={"error": OwnEvaluate("binary").evaluate})["error"].higher_is_better is False
    )


def test_a_decorator_may_read_single_cells_of_the_counts():
    """The value of 20 classes by a loop over the smoothed cells; the measure itself would get margins."""

    @functools.wraps(imbtorch.recall)
    def smoothed(counts):
        return imbtorch.recall(counts + 1)

    assert (needs_matrix(imbtorch.recall), needs_matrix(smoothed)) == (False, True)
    counts = torch.arange(400).reshape(20, 20)
    wanted = sum((counts[i, i].item() + 1) / (counts[i].sum().item() + 20) for i in range(20)) / 20
    assert posterior(smoothed, counts, samples=10).estimate.item() == pytest.approx(wanted)


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


def test_a_metric_of_ones_own_may_read_any_cell():
    preds, target = data("multiclass")
    report = ImbalanceReport("multiclass", num_classes=3, measures={"third": ShareOfThird}, per_class=())
    report.update(preds, target)
    assert report.compute()["third"] == pytest.approx((target == 2).float().mean().item())
    assert report["third"].higher_is_better is False


@pytest.mark.parametrize(
    ("measured", "error", "match"),
    [
        (
            metrics.ExpectedCost,
            TypeError,
            r"ExpectedCost requires costs; pass functools.partial\(.*costs=",
        ),
        (
            metrics.Accuracy("binary"),
            ValueError,
            "'x' was made with task='binary', num_classes=2, but the counts have .*num_classes=3",
        ),
        (MulticlassAccuracy, TypeError, "must be a metric class of imbtorch"),
        (MulticlassAccuracy(num_classes=3), TypeError, "must be a metric class of imbtorch"),
        (ImbalanceReport, TypeError, "must be a metric class of imbtorch"),
        ("youden", ValueError, "x must be one of .*got 'youden'.*'accuracy'"),
        (None, TypeError, "must be a metric class of imbtorch"),
        ((error_rate,), TypeError, "or a pair"),
        ((error_rate, "max"), TypeError, r"or a pair \(function, higher_is_better\)"),
        ((error_rate, True, 1), TypeError, "or a pair"),
        ((metrics.Accuracy, True), TypeError, "or a pair"),
    ],
)
def test_what_is_no_measure(measured, error, match):
    with pytest.raises(error, match=match):
        ImbalanceReport("multiclass", num_classes=3, measures={"x": measured})


@pytest.mark.parametrize("name", [name for name in metrics.__all__ if getattr(metrics, name).needs_matrix])
def test_margins_are_refused_where_the_matrix_is_needed(name):
    measured = getattr(metrics, name)
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
        FScore("binary", beta=2),
        functools.partial(FScore, beta=2),
        functools.partial(imbtorch.f_score, beta=2),
        (functools.partial(imbtorch.f_score, beta=2), True),
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
    by_name, by_class = ThresholdSweep("iba"), ThresholdSweep(imbtorch.IndexBalancedAccuracy)
    assert by_name._settings_text() == by_class._settings_text()


@pytest.mark.parametrize(
    ("measures", "error", "text"),
    [
        (["iam", "youden"], ValueError, "measures must be one of .*got 'youden'.*'iam'"),
        ({"j": "youden"}, ValueError, "j must be one of .*got 'youden'.*'iam'"),
        (["iam", "iam"], ValueError, r"must not name a measure twice, got \['iam', 'iam'\]"),
        ("iam", TypeError, r"names such as \['iam', 'mcc'\].*got 'iam'"),
        ([imbtorch.ImbalanceAccuracy], TypeError, r"or map names to measures, as in \{'iam': ImbalanceAccuracy\}"),
        ({1: "iam"}, TypeError, "got the name 1"),
        ({"f2": FScore("multiclass", num_classes=4, beta=2)}, ValueError, "'f2' was made with num_classes=4, but"),
    ],
)
def test_words_that_name_no_measure(measures, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("multiclass", num_classes=3, measures=measures)


def test_measures_tell_reports_apart_on_several_processes():
    texts = {
        ImbalanceReport("binary", measures=measures, per_class=per_class)._settings_text()
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
      f2:
        class_path: imbtorch.FScore
        init_args: {task: binary, beta: 2}
      sensitivity: imbtorch.Recall
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
        *("val_iam", "val_f2", "val_sensitivity", "val_right"),
        *("val_recall/ok", "val_recall/fraud"),
    ]
    preds, target = batch_of(2)
    report.update(preds, target)
    values = report.compute()
    assert values["val_f2"].item() == pytest.approx(sklearn_metrics.fbeta_score(target, preds, beta=2), abs=1e-6)
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
    assert parsed(sweep, ThresholdSweep)._measure.name == "IndexBalancedAccuracy"


PREDS = torch.tensor([0] * 70 + [1] * 10 + [0] * 4 + [1] * 16)
TARGET = torch.tensor([0] * 80 + [1] * 20)


@pytest.mark.parametrize("name", BY_KEY)
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_a_name_is_read_like_the_metric_that_it_names(name, task):
    """Names are read off the catalogue alone; a metric says the same of itself."""
    counting = Counting.of(task, *{"binary": (), "multiclass": (3,), "multilabel": (None, 3)}[task], clusters=None)
    metric = BY_KEY[name]
    if metric is imbtorch.ExpectedCost:
        with pytest.raises(TypeError, match="ExpectedCost requires costs"):
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
    assert report.table()["measure"]["cost"]["all"] == pytest.approx(wanted)


def test_costs_of_several_classes_and_against_the_trivial_prediction():
    costs = [[0, 1, 4], [2, 0, 1], [9, 3, 0]]
    preds, target = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0]), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    paid = sum(costs[t][p] for t, p in zip(target.tolist(), preds.tolist(), strict=True))
    constant = min(sum(costs[t][p] for t in target.tolist()) for p in range(3))
    measures = {
        "mean": partial(imbtorch.ExpectedCost, costs=costs),
        "total": partial(imbtorch.ExpectedCost, costs=costs, normalize=False),
        "baseline": imbtorch.ExpectedCost("multiclass", 3, costs=costs, normalize="baseline"),
    }
    report = ImbalanceReport("multiclass", 3, measures=measures, per_class=())
    report.update(preds, target)
    values = {name: value.item() for name, value in report.compute().items()}
    assert values == pytest.approx({"mean": paid / 8, "total": paid, "baseline": paid / constant})


def test_costs_that_do_not_fit_the_report():
    with pytest.raises(ValueError, match=r"costs must be 3 x 3 finite numbers, got shape \[2, 2\]"):
        ImbalanceReport("multiclass", 3, measures={"cost": partial(imbtorch.ExpectedCost, costs=COSTS)})
    with pytest.raises(TypeError, match=r"pass functools.partial\(ExpectedCost, costs="):
        ImbalanceReport("multiclass", 3, measures=["expected_cost"])
    with pytest.raises(ValueError, match=r"'cost' was made with .*, but the counts have"):
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
    with pytest.raises(TypeError, match=r"ExpectedCost requires costs; .*functools.partial\(ExpectedCost"):
        ThresholdSweep(imbtorch.ExpectedCost)
