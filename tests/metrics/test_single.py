"""Metrics of one measure: values beside scikit-learn, own measures, other populations, intervals and pictures."""

import inspect
import math
import pickle
import re
import statistics
import sys
from functools import partial

import numpy as np
import oracles
import pytest
import torch
from cases import (
    AVERAGES,
    EVERY_TASK,
    NEED_MATRIX,
    POOLED,
    assert_equal,
    averages,
    batch,
    build,
    expected,
    layouts,
    multiclass,
    of_kind,
    over_labels,
    own_arguments,
    resolved,
)
from distributions import seeded
from matplotlib import pyplot as plt
from oracles import FACTS, OF_EACH, OF_POSITIVE, OF_TWO
from rooms import state_of
from scipy import stats
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import ConfusionMatrix, ConfusionMatrixMetric, margins

NAN = float("nan")


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FACTS)
@EVERY_TASK
def test_value_is_the_measure_of_sklearns_matrix(name, task):
    """Each class counts for its measure and averages it; test_measures.py tries the measure itself."""
    preds, target = batch(task)
    metric = build(name, task)
    for rows in torch.arange(len(preds)).split(50):  # chunks of 50, 50 and 20
        metric.update(preds[rows], target[rows])
    value = metric.compute()
    assert value.dtype == torch.float32
    assert_equal(value, expected(name, task, resolved(name, task, "auto"), preds, target))
    if "margins" in layouts(name, task):
        lean = build(name, task, state="margins")
        lean.update(preds, target)
        assert torch.equal(lean.compute(), value)
        assert torch.equal(lean(preds, target), value)
        assert lean.local_margins.correct.sum() == 2 * metric.local_confmat.trace()
    for average in ("auto", *averages(name, task)):
        wanted = expected(name, task, resolved(name, task, average), preds, target)
        averaged = build(name, task, average=average)
        for counts in (metric.local_confmat, metric.local_margins)[: 1 if name in NEED_MATRIX else 2]:
            assert_equal(averaged.evaluate(counts), wanted, 1e-12, average)


@pytest.mark.parametrize("name", FACTS)
@EVERY_TASK
def test_other_averages_are_refused(name, task):
    for average in {*POOLED, "samples"} - set(averages(name, task)):
        with pytest.raises(ValueError, match=f"{name}.*average|average.*{name}"):
            build(name, task, average=average)


def test_refusals_say_what_to_do():
    with pytest.raises(ValueError, match=r"Accuracy .*takes no average in task='multiclass', got 'macro'; .*Balanced"):
        imbtorch.Accuracy("multiclass", 3, average="macro")
    assert imbtorch.Recall("multiclass", 3, average=None).average == "none"
    with pytest.raises(ValueError, match=r"average of Recall in task='multiclass' must be one of .*, got 'binary'"):
        imbtorch.Recall("multiclass", 3, average="binary")
    with pytest.raises(ValueError, match=r"ConfusionMatrix .*takes no average; use normalize"):
        ConfusionMatrix("multiclass", 3, average="macro")


@pytest.mark.parametrize("name", [*NEED_MATRIX, "ConfusionMatrix"])
def test_margins_are_refused_where_the_matrix_is_needed(name):
    with pytest.raises(ValueError, match=rf"{name} .*state='margins'.*use state='matrix'"):
        build(name, "multiclass", state="margins")


@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_confusion_matrix_equals_sklearn(normalize):
    target, preds = [0, 0, 1, 1, 1, 3, 3, 0], [0, 1, 1, 1, 2, 3, 0, 0]
    metric = multiclass(preds, target, size=5, normalize=normalize)
    wanted = sklearn_metrics.confusion_matrix(target, preds, labels=range(5), normalize=normalize)
    value = metric.compute()
    assert value.dtype == (torch.int64 if normalize is None else torch.float32)
    assert_equal(value, wanted)
    assert_equal(metric(torch.tensor(preds), torch.tensor(target)), wanted)


@pytest.mark.parametrize("average", ["macro", "weighted", "micro", "none"])
@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("Precision", sklearn_metrics.precision_score),
        ("Recall", sklearn_metrics.recall_score),
        ("FScore", lambda *args, **kwargs: sklearn_metrics.fbeta_score(*args, beta=2.0, **kwargs)),
    ],
)
def test_multilabel_averages_equal_sklearns(name, score, average):
    preds, target = batch("multilabel")
    metric = build(name, "multilabel", average=average)
    wanted = score(target, preds > 0.5, average=None if average == "none" else average)
    assert_equal(metric(preds, target), wanted)


def test_a_label_without_positives_and_predictions_takes_no_part():
    target = torch.tensor([[1, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]])
    preds = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    # recalls 2/3, absent, 0; accuracies of the labels 1/2, absent, 3/4
    for name, values, micro in (("Recall", (2 / 3, 0), 2 / 4), ("Accuracy", (1 / 2, 3 / 4), 9 / 12)):
        wanted = {
            "none": [values[0], NAN, values[1]],
            "macro": sum(values) / 2,
            "weighted": (3 * values[0] + values[1]) / 4,
            "micro": micro,
        }
        for average, value in wanted.items():
            assert_equal(build(name, "multilabel", 3, average=average)(preds, target), value)


@pytest.mark.parametrize("average", ["macro", "weighted", "micro", "none"])
def test_all_labels_absent(average):
    nothing = torch.zeros(6, 3, dtype=torch.long)
    for name, value in (("Accuracy", 1.0), ("Recall", 0.0), ("FScore", 0.0), ("Specificity", 1.0)):
        wanted = [NAN] * 3 if average == "none" else value
        assert_equal(build(name, "multilabel", 3, average=average)(nothing, nothing), wanted)


def exact(name, matrix):
    """Exact value of a class against the rest."""
    own = own_arguments(name, 2) | ({"average": "none"} if name in AVERAGES else {})
    if "measure" in own:
        own["measure"] = "BalancedAccuracy"
    value = oracles.number(oracles.exact(name, matrix, **own))
    return value[1] if name in AVERAGES else value


@pytest.mark.parametrize("name", of_kind(OF_TWO))
def test_one_against_the_rest_leaves_absent_classes_out(name):
    target = [0, 0, 0, 0, 1, 1, 2, 2, 2]
    preds = [0, 0, 1, 4, 1, 0, 2, 2, 0]  # class 3 is absent, class 4 predicted only
    present = (0, 1, 2, 4)
    matrices = sklearn_metrics.multilabel_confusion_matrix(target, preds, labels=range(5)).tolist()
    values = {rank: exact(name, matrices[rank]) for rank in present}
    wanted = {
        "none": [values.get(rank, NAN) for rank in range(5)],
        "macro": statistics.fmean(values.values()),
        "weighted": np.average(list(values.values()), weights=[target.count(rank) for rank in present]),
    }
    for average, value in wanted.items():
        assert_equal(build(name, "multiclass", average=average)(torch.tensor(preds), torch.tensor(target)), value)


@pytest.mark.parametrize("ignored", [0, 1, 2])
@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_an_ignored_class_takes_no_part_in_means(ignored, state):
    preds, target = batch("multiclass", 4, 100)
    labels = preds.argmax(1)
    kept = target != ignored
    others = [rank for rank in range(4) if rank != ignored]
    assert (labels[kept] == ignored).any()
    matrices = sklearn_metrics.multilabel_confusion_matrix(target[kept], labels[kept], labels=others)
    support = matrices[:, 1].sum(1)
    for name in of_kind(OF_EACH, OF_POSITIVE, OF_TWO):
        values = [exact(name, matrix) for matrix in matrices.tolist()]
        for average in set(averages(name, "multiclass")) - {"micro"}:
            metric = build(name, "multiclass", 4, average=average, ignore_index=ignored, state=state)
            metric.update(preds, target)
            full = np.insert(values, ignored, NAN) if average == "none" else over_labels(values, average, support)
            assert_equal(metric.compute(), full)  # and no warning of unseen classes
            assert_equal(metric(preds, target), full)


def test_whole_matrix_measures_with_an_ignored_class():
    target, preds = [0, 0, 1, 1, 2, 2, 2], [0, 2, 1, 1, 0, 1, 2]
    metric = multiclass(preds, target, "BalancedAccuracy", ignore_index=2)
    assert_equal(metric.compute(), (1 / 2 + 1) / 2)
    metric = multiclass(preds, target, "Accuracy", ignore_index=2)
    assert_equal(metric.compute(), 3 / 4)


# --- looks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FACTS, "ConfusionMatrix"])
def test_bounds_of_pictures_are_reached(name):
    metric = build(name, "binary")
    assert metric.full_state_update is False
    assert metric.is_differentiable is False
    worst, best = torch.tensor([1, 0, 0, 1]), torch.tensor([0, 1, 1, 0])
    values = [build(name, "binary")(each, best).max().item() for each in (worst, best)]
    if metric.plot_lower_bound is not None:
        assert min(values) >= metric.plot_lower_bound
    if metric.plot_upper_bound is not None:
        assert max(values) == pytest.approx(0.0 if name == "Dominance" else metric.plot_upper_bound)


def test_the_direction_of_a_likelihood_ratio_is_that_of_its_prediction():
    negative = imbtorch.LikelihoodRatio("binary", positive=False)
    for metric in (negative, negative.clone(), pickle.loads(pickle.dumps(negative))):
        assert metric.higher_is_better is False
        metric.update(torch.tensor([0] * 8 + [1] * 2 + [0, 1]), torch.tensor([0] * 10 + [1] * 2))
        assert_equal(metric.compute(), 0.5 / 0.8)
    assert imbtorch.LikelihoodRatio("binary").higher_is_better is True


def test_net_benefit_reads_the_threshold_of_the_metric():
    metric = imbtorch.NetBenefit("binary", threshold=0.25)
    metric.update(torch.tensor([0.1, 0.3, 0.5, 0.2, 0.7]), torch.tensor([0, 0, 0, 1, 1]))
    assert_equal(metric.compute(), 1 / 5 - 2 / 5 / 3)
    with pytest.raises(ValueError, match="threshold"):
        imbtorch.NetBenefit("binary", threshold=1.0)


def test_weighted_kappa_is_of_the_matrix():
    preds, target = batch("multiclass")
    metric = imbtorch.CohenKappa("multiclass", 5, weights="quadratic")
    metric.update(preds, target)
    assert_equal(metric.compute(), sklearn_metrics.cohen_kappa_score(target, preds.argmax(1), weights="quadratic"))
    with pytest.raises(ValueError, match="state='matrix'"):
        imbtorch.CohenKappa("multiclass", 5, weights="linear", state="margins")


# --- arguments and subclasses ----------------------------------------------------------------------------------------


class ErrorRate(ConfusionMatrixMetric):
    higher_is_better = False
    measure = staticmethod(lambda counts: 1 - imbtorch.accuracy(counts))


class LeanErrorRate(ErrorRate):
    needs_matrix = False


class LargestConfusion(ConfusionMatrixMetric):
    measure = staticmethod(lambda counts: (counts - torch.diag_embed(counts.diagonal(0, -2, -1))).amax((-2, -1)))


@pytest.mark.parametrize("size", [3, 100])
def test_a_measure_of_ones_own(size):
    preds, target = batch("multiclass", size, 300)
    wanted = sklearn_metrics.zero_one_loss(target, preds.argmax(1))
    for cls, state in ((ErrorRate, "matrix"), (LeanErrorRate, "matrix"), (LeanErrorRate, "margins")):
        metric = cls("multiclass", size, state=state)
        assert_equal(metric(preds, target), wanted)
        assert_equal(metric.compute(), wanted)
        assert_equal(pickle.loads(pickle.dumps(metric)).compute(), wanted)
    assert repr(ErrorRate("multiclass", size)) == f"ErrorRate(task='multiclass', num_classes={size})"
    with pytest.raises(ValueError, match=r"ErrorRate needs the matrix.*use state='matrix'.*needs_matrix = False"):
        ErrorRate("multiclass", size, state="margins")


@pytest.mark.parametrize("size", [3, 100])
def test_a_measure_of_ones_own_that_reads_cells(size):
    preds, target = batch("multiclass", size, 300)
    matrix = sklearn_metrics.confusion_matrix(target, preds.argmax(1))
    np.fill_diagonal(matrix, 0)
    metric = LargestConfusion("multiclass", size)
    metric.update(preds, target)
    assert metric.compute().item() == matrix.max()
    assert metric(preds, target).item() == matrix.max()


@pytest.mark.parametrize("size", [3, 100])
def test_index_balanced_accuracy_of_a_measure_that_reads_cells(size):
    preds, target = batch("multiclass", size, 300)
    metric = imbtorch.IndexBalancedAccuracy(
        "multiclass", size, measure=lambda counts: counts[..., 1, 1] / counts[..., 1, :].sum(-1), alpha=0.0
    )
    wanted = sklearn_metrics.recall_score(target, preds.argmax(1), average="macro")
    assert_equal(metric(preds, target), wanted)
    assert_equal(metric.compute(), wanted)
    with pytest.raises(ValueError, match=r"with measure=<lambda>, alpha=0.05 needs the whole.*use state='matrix'"):
        imbtorch.IndexBalancedAccuracy("multiclass", size, measure=lambda counts: counts[..., 1, 1], state="margins")

    def of_margins(counts):
        tp, actual, _ = margins(counts)
        return tp[..., 1] / actual[..., 1]

    of_margins.needs_matrix = False
    lean = imbtorch.IndexBalancedAccuracy("multiclass", size, measure=of_margins, alpha=0.0, state="margins")
    assert_equal(lean(preds, target), wanted)


def test_evaluate_is_batched_and_differentiable():
    metric = build("Dominance", "multiclass", 3)
    counts = torch.rand(4, 3, 3, dtype=torch.float64, requires_grad=True)
    values = metric.evaluate(counts)
    assert values.shape == (4,)
    for value, one in zip(values, counts, strict=True):
        assert_equal(metric.evaluate(one), value.item())
    assert torch.autograd.gradcheck(metric.evaluate, counts)
    with pytest.raises(TypeError, match="cannot be derived from Margins"):
        build("ConfusionMatrix", "multiclass").evaluate(margins(torch.ones(2, 2)))


def test_a_class_of_ones_own_takes_the_traits_of_its_measure_and_may_declare_others():
    class Mine(imbtorch.ConfusionMatrixMetric):
        measure = staticmethod(imbtorch.macro_averaged_absolute_error)

    class Declared(imbtorch.ConfusionMatrixMetric):
        measure = staticmethod(partial(imbtorch.f_score, beta=2))
        higher_is_better = None
        plot_upper_bound = 2.0

    assert (Mine.higher_is_better, Mine.plot_lower_bound, Mine.plot_upper_bound) == (False, 0, None)
    assert (Mine.traits.key, Mine.needs_matrix) == ("macro_averaged_absolute_error", True)
    assert (Declared.higher_is_better, Declared.plot_lower_bound, Declared.plot_upper_bound) == (None, 0, 2)
    assert (Declared.traits.key, Declared.needs_matrix, "binary" in Declared.traits.averages) == ("f1", False, True)
    report = imbtorch.ImbalanceReport("multiclass", 3, measures=["macro_averaged_absolute_error"])
    report.update(torch.tensor([0, 2, 1, 2]), torch.tensor([0, 0, 1, 2]))
    assert report.compute()["macro_averaged_absolute_error"].item() == pytest.approx(1 / 3)  # (1 + 0 + 0) / 3
    assert imbtorch.ImbalanceReport.default_measures("binary")["f1"] is imbtorch.f_score


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bounds"), [("Recall", [0, 1]), ("Dominance", [-1, 1]), ("ConfusionEntropy", [0]), ("ExpectedCost", [])]
)
def test_plot_of_a_value(name, bounds):
    preds, target = batch("multiclass")
    metric = build(name, "multiclass")
    metric.update(preds, target)
    fig, ax = metric.plot()
    value = expected(name, "multiclass", "macro", preds, target).item()
    point, *lines = ax.lines
    assert ax.figure is fig
    assert point.get_ydata() == pytest.approx([value], rel=1e-5)
    assert [line.get_ydata()[0] for line in lines] == bounds
    assert [text.get_text() for text in ax.texts] == [f"{metric.compute().item():.4g}"]
    assert ax.get_ylabel() == name


def test_plot_into_given_axes():
    _, axes = plt.subplots(1, 2)
    metric = multiclass([0, 1, 2], [0, 1, 2], "Recall")
    fig, ax = metric.plot(torch.tensor(0.25), ax=axes[1])
    assert fig is None
    assert ax is axes[1]
    assert ax.lines[0].get_ydata() == pytest.approx([0.25])
    assert not axes[0].lines
    fig, ax = multiclass([0, 1, 2], [0, 1, 2]).plot(ax=axes[0])
    assert fig is None
    assert ax is axes[0]
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize(("task", "item"), [("multiclass", "Class"), ("multilabel", "Label")])
def test_plot_of_classes(task, item):
    preds, target = batch(task)
    metric = build("Recall", task, average="none")
    value = metric(preds, target)
    _, ax = metric.plot(value)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(value.tolist())
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2", "3", "4"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (item, "Recall")
    value[2] = NAN
    _, ax = metric.plot(value)
    assert ax.patches[2].get_height() == 0
    assert [(text.get_text(), text.xy[0]) for text in ax.texts] == [("undefined", 2)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_plot_of_a_sequence(kind):
    steps = kind(torch.tensor(value) for value in (0.2, 0.5, 0.4))
    _, ax = build("Recall", "binary").plot(steps)
    assert ax.lines[0].get_ydata() == pytest.approx([0.2, 0.5, 0.4])
    assert len(ax.lines) == 1 + 2
    assert ax.get_legend() is None
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Step", "Recall")
    steps = kind(torch.tensor([step, 1 - step, 0.5]) for step in (0.1, 0.2))
    _, ax = build("Recall", "multilabel", 3, average="none").plot(steps)
    assert [line.get_ydata() for line in ax.lines[:3]] == [
        pytest.approx([0.1, 0.2]),
        pytest.approx([0.9, 0.8]),
        pytest.approx([0.5, 0.5]),
    ]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Label 0", "Label 1", "Label 2"]


@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_plot_of_a_confusion_matrix(normalize):
    target, preds = [0, 0, 0, 1, 2, 2, 2, 2], [0, 0, 1, 1, 2, 2, 2, 0]
    metric = multiclass(preds, target, normalize=normalize)
    fig, ax = metric.plot(labels=["cat", "dog", "owl"])
    assert ax.figure is fig
    (image,) = ax.images
    wanted = sklearn_metrics.confusion_matrix(target, preds, normalize=normalize or "true")
    np.testing.assert_allclose(image.get_array(), wanted, atol=1e-6)
    assert image.get_clim() == pytest.approx((0, 1 if normalize != "all" else wanted.max()))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["cat", "dog", "owl"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["cat", "dog", "owl"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Predicted class", "True class")
    places = {text.get_position(): text.get_text() for text in ax.texts}
    assert sorted(places) == [(0, 0), (0, 2), (1, 0), (1, 1), (2, 2)]  # x, y of the cells that are not empty
    if normalize in (None, "true"):
        assert places[0, 2].endswith("25%")
        assert places[1, 0].endswith("33%")
    if normalize is None:
        assert places[2, 2].splitlines() == ["3", "75%"]


def test_plot_of_many_classes():
    preds, target = batch("multiclass", 100, 300)
    metric = build("ConfusionMatrix", "multiclass", 100)
    _, ax = metric.plot(metric(preds, target))
    assert len(ax.texts) == 0
    assert ax.images[0].get_array().shape == (100, 100)
    assert 20 <= len(ax.get_xticklabels()) <= 40
    assert [tick.get_text() for tick in ax.get_yticklabels()][:2] == ["0", "3"]


def test_plot_errors(monkeypatch):
    metric = multiclass([0, 1, 2], [0, 1, 2])
    with pytest.raises(ValueError, match="labels must hold 3 names, got 2"):
        metric.plot(labels=["cat", "dog"])
    with pytest.raises(TypeError, match="one tensor; choose"):
        metric.plot([metric.compute()])
    labels = build("ConfusionMatrix", "multilabel", 3)
    labels.update(*batch("multilabel", 3))
    with pytest.raises(ValueError, match=r"got shape \[3, 2, 2\]; choose one"):
        labels.plot()
    assert labels.plot(labels.compute()[1])[1].images
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for each in (metric, multiclass([0, 1, 2], [0, 1, 2], "Recall")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'imbtorch\[plot\]'"):
            each.plot()


# --- another population ----------------------------------------------------------------------------------------------


def at_shares(matrix, shares):
    """Counts, exact and whole, of the same classifier where the classes have these shares."""
    common, pairs = math.lcm(*(sum(row) or 1 for row in matrix)), zip(matrix, shares, strict=True)
    return [[count * share * (common // (sum(row) or 1)) for count in row] for row, share in pairs]


def at_reference(name, task, average, matrices):
    """Exact value of whole counts: one matrix, or one for each label."""

    def measured(matrix, average):
        own = {"average": average} if name in AVERAGES else {}
        return oracles.number(oracles.exact(name, matrix, **own))

    if task != "multilabel" and not (task == "multiclass" and name in of_kind(OF_TWO)):
        return measured(matrices, average)
    binary = oracles.one_vs_rest(matrices) if task == "multiclass" else matrices
    inner = "binary" if name in of_kind(OF_POSITIVE) else "macro"
    if average == "micro":
        return measured(np.sum(binary, axis=0).tolist(), inner)
    values = [measured(matrix, inner) for matrix in binary]
    return values if average == "none" else over_labels(values, average, [float(sum(matrix[1])) for matrix in binary])


PRIORS = {"binary": [1000, 1], "multiclass": [1000, 1, 30, 0, 7], "multilabel": [0.5, 0.01, 0.0, 1.0, 0.2]}


@pytest.mark.parametrize("name", ["MatthewsCorrCoef", "ClassBalanceAccuracy", "Precision", "Markedness"])  # each kind
@EVERY_TASK
def test_value_at_a_prevalence_is_that_of_whole_counts_with_these_shares(name, task):
    preds, target = batch(task)
    prevalence = PRIORS[task]
    labels = preds.argmax(1) if task == "multiclass" else (preds > 0.5).long()
    if task == "multilabel":
        every = sklearn_metrics.multilabel_confusion_matrix(target, labels).tolist()
        shares = [(round(1000 - 1000 * share), round(1000 * share)) for share in prevalence]
        scaled = [at_shares(matrix, each) for matrix, each in zip(every, shares, strict=True)]
        common = math.lcm(*(oracles.total(matrix) for matrix in scaled))  # each label has as many samples
        whole = [[[c * (common // oracles.total(m)) for c in row] for row in m] for m in scaled]
    else:
        whole = at_shares(sklearn_metrics.confusion_matrix(target, labels).tolist(), prevalence)
    for average in ("auto", *averages(name, task)):
        wanted = at_reference(name, task, resolved(name, task, average), whole)
        metric = build(name, task, average=average)
        metric.update(preds, target)
        found = metric.at_prevalence(prevalence)
        assert_equal(found, wanted, 5e-6, average)
        before = metric.compute()
        assert (found.shape, found.dtype, found.device) == (before.shape, before.dtype, before.device)
        assert_equal(metric.at_prevalence(torch.tensor(prevalence)), wanted, 5e-6, average)
        torch.testing.assert_close(metric.compute(), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("Precision", sklearn_metrics.precision_score),
        ("Recall", sklearn_metrics.recall_score),
        ("FScore", sklearn_metrics.f1_score),
        ("Accuracy", sklearn_metrics.accuracy_score),
        ("BalancedAccuracy", sklearn_metrics.balanced_accuracy_score),
        ("MatthewsCorrCoef", sklearn_metrics.matthews_corrcoef),
    ],
)
def test_value_at_a_prevalence_is_sklearns_with_weighted_samples(name, score, task):
    preds, target = batch(task)
    labels = preds.argmax(1) if task == "multiclass" else (preds > 0.5).long()
    prevalence = torch.tensor([0.9, 0.1] if task == "binary" else [0.5, 0.3, 0.1, 0.07, 0.03], dtype=torch.float64)
    weight = (prevalence / target.bincount())[target]
    how = {"average": "macro" if task == "multiclass" else "binary"} if name in AVERAGES else {}
    metric = getattr(imbtorch, name)(task, **({"num_classes": 5} if task == "multiclass" else {}))
    metric.update(preds, target)
    assert_equal(metric.at_prevalence(prevalence), score(target, labels, sample_weight=weight, **how))


def test_measures_made_of_the_recalls_of_two_classes_do_not_move():
    preds, target = torch.tensor([0] * 80 + [1] * 20 + [0] * 3 + [1] * 7), torch.tensor([0] * 100 + [1] * 10)
    still = set()
    for name in FACTS:
        metric = build(name, "binary")
        metric.update(preds, target)
        values = [float(metric.at_prevalence(prevalence)) for prevalence in ([1, 1], [9, 1], [1000, 1])]
        if max(values) - min(values) < 1e-6:
            still.add(name)
    invariant = {name for name, facts in FACTS.items() if facts.invariances.endswith("+")}
    assert still == invariant | {"Specificity"}  # of which a mean over three classes or more moves


@pytest.mark.parametrize("name", ["Precision", "ImbalanceAccuracy", "OptimizedPrecision"])
def test_margins_of_two_classes_can_be_read_at_a_prevalence(name):
    target, preds = [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 0, 1]
    whole, lean = (multiclass(preds, target, name, 2, state=state) for state in ("matrix", "margins"))
    assert_equal(lean.at_prevalence([9, 1]), whole.at_prevalence([9, 1]))
    with pytest.raises(ValueError, match=r"whole matrix for 3 classes.*state='matrix'"):
        multiclass([0, 1, 2], [0, 1, 2], name, state="margins").at_prevalence([1, 1, 1])


@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_a_confusion_matrix_at_a_prevalence_holds_rates(normalize):
    metric = multiclass([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1], size=2, normalize=normalize)
    wanted = {
        None: [[0.675, 0.225], [0.0, 0.1]],
        "all": [[0.675, 0.225], [0.0, 0.1]],
        "true": [[0.75, 0.25], [0.0, 1.0]],
        "pred": [[1.0, 0.225 / 0.325], [0.0, 0.1 / 0.325]],
    }[normalize]
    found = metric.at_prevalence([9, 1])
    assert_equal(found, wanted)
    assert found.dtype == torch.float32


def test_differences_of_rates_that_should_be_0_are():
    """Always wrong: each class against the rest has rates of 0, not what rounding left of them."""
    preds, target = [1] + [0] * 7, [0] + [1] * 7
    assert multiclass(preds, target, "OptimizedPrecision", 2).at_prevalence([1, 1000]) == -1
    metric = build("AccuracyDominanceArea", "multiclass", 3, average="none")
    target, preds = [0] * 7 + [2] * 2, [0, 0, 0, 1, 1, 1, 2, 0, 0]  # the rest of class 0 is taken for class 0
    metric.update(torch.tensor(preds), torch.tensor(target))
    assert metric.at_prevalence([10**6, 0, 1])[0] == 0


@pytest.mark.parametrize(
    ("task", "prevalence", "error", "match"),
    [
        ("binary", 0.01, ValueError, "prevalence must hold one share for each of 2 classes, got the number 0.01"),
        ("binary", [1], ValueError, r"one share for each of 2 classes, got \[1\]"),
        ("multiclass", [1, 1], ValueError, r"one share for each of 5 classes, got \[2\]"),
        ("multiclass", [[1] * 5], ValueError, r"each of 5 classes, got \[1, 5\]"),
        ("multilabel", [0.5, 0.5], ValueError, r"one share for each of 5 labels, got \[2\]"),
        ("binary", [1, -1], ValueError, "prevalence must be finite, non-negative and not all 0"),
        ("binary", [0, 0], ValueError, "not all 0"),
        ("binary", [1, math.inf], ValueError, "must be finite"),
        ("binary", [1, NAN], ValueError, "must be finite"),
        ("binary", [1e308, 1e308], ValueError, "must be finite"),
        ("multilabel", [0.5, 1, 0, 0, 9], ValueError, r"share of positives of each label, in \[0, 1\]"),
        ("multilabel", [0.5, 1, 0, 0, NAN], ValueError, r"share of positives of each label, in \[0, 1\]"),
        ("binary", {"a": 1, "b": 2}, TypeError, "prevalence must be a sequence of numbers"),
        ("binary", ["a", "b"], TypeError, "prevalence must be a sequence of numbers"),
        ("binary", None, TypeError, "prevalence must be a sequence of numbers"),
    ],
)
def test_shares_that_do_not_fit(task, prevalence, error, match):
    metric = build("Recall", task)
    metric.update(*batch(task))
    with pytest.raises(error, match=match):
        metric.at_prevalence(prevalence)


def test_priors_of_classes_without_targets_are_refused_by_name():
    metric = multiclass([0, 1, 1], [0, 1, 0], "Recall", 4)
    with pytest.raises(ValueError, match=r"Recall: 2 of 4 classes had no target: 2, 3; .* give them prevalence 0"):
        metric.at_prevalence([1, 1, 1, 1])
    assert_equal(metric.at_prevalence([1, 1, 0, 0]), 0.75)  # nothing to warn of: nothing of them is asked for
    labels = build("Precision", "multilabel", 3)
    labels.update(torch.tensor([[0, 1, 1], [1, 1, 0]]), torch.tensor([[0, 1, 0], [1, 1, 0]]))
    with pytest.raises(ValueError, match=r"2 of 3 labels had no positive or no negative target: 1, 2; .*nce 0 or 1"):
        labels.at_prevalence([0.5, 0.5, 0.5])
    assert_equal(labels.at_prevalence([0.5, 1, 0]), 2 / 3)
    empty = build("Recall", "binary")
    with pytest.raises(ValueError, match="2 of 2 classes had no target: 0, 1;"):
        empty.at_prevalence([1, 1])


def test_an_ignored_class_has_no_share():
    metric = multiclass([0, 1, 1, 2], [0, 1, 0, 2], "Recall", ignore_index=2)
    with pytest.raises(ValueError, match="must be 0 for class 2, whose samples ignore_index leaves out"):
        metric.at_prevalence([1, 1, 1])
    assert_equal(metric.at_prevalence([1, 1, 0]), 0.75)
    labels = build("Precision", "multilabel", 2, ignore_index=0)
    labels.update(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="must be 0 for class 0"):
        labels.at_prevalence([0.5, 1])
    assert labels.at_prevalence([1, 1]) == 1


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("on_invalid", ["raise", "warn"])
def test_values_that_were_not_counted_are_told_at_a_prevalence_too(on_invalid):
    metric = build("Precision", "binary", on_invalid=on_invalid)
    metric.update(torch.tensor([0.1, NAN, 0.9]), torch.tensor([0, 1, 1]))
    if on_invalid == "raise":
        with pytest.raises(ValueError, match="did not count 1 of the samples it was given: 1 NaN scores"):
            metric.at_prevalence([9, 1])
    else:
        with pytest.warns(UserWarning, match="did not count 1") as caught:
            assert metric.at_prevalence([9, 1]) == 1
        assert caught[0].filename == __file__


def test_a_prevalence_is_read_off_the_counts_of_all_processes():
    other = state_of(multiclass([1, 1, 0], [0, 1, 1], "Precision", 2, average="none")).clone()

    def gather(state, group):
        """Gather equal marks of the settings, and later the counts."""
        return [state, other if len(state) == len(other) else state]

    several = {"dist_sync_fn": gather, "distributed_available_fn": lambda: True}
    metric = multiclass([0, 1], [0, 1], "Precision", 2, average="none", **several)
    # both: [[1, 1], [1, 2]]
    assert_equal(metric.at_prevalence([3, 1]), [1.5 / (1.5 + 1 / 3), (2 / 3) / (2 / 3 + 1.5)])
    with pytest.raises(ValueError, match="each of 2 classes"):
        metric.at_prevalence([1])
    assert metric.local_confmat.tolist() == [[1, 0], [0, 1]]


def test_the_docstring_names_the_measures_whose_average_is_that_of_the_positive_class():
    doc = inspect.getdoc(ConfusionMatrixMetric.__init__)
    (text,) = re.findall(r'is ``"binary"`` for (.*?) in the binary task', doc, re.DOTALL)
    named = {re.sub(r"\W", "", each).lower() for each in re.split(r",\s+| and ", text)}
    given = {"ExpectedCost": {"costs": [[0, 1], [1, 0]]}, "NetBenefit": {"threshold": 0.5}}
    found = set()
    for name in imbtorch.__all__:
        kind = getattr(imbtorch, name)
        if isinstance(kind, type) and issubclass(kind, ConfusionMatrixMetric) and hasattr(kind, "measure"):
            metric = kind("binary", **given.get(name, {}))
            found |= {name.lower()} if metric.average == "binary" else set()
    assert named == found


@pytest.mark.parametrize("method", ["posterior", "bootstrap"])
@pytest.mark.parametrize("average", ["auto", "none"])
@pytest.mark.parametrize(
    ("task", "size", "shape"),
    [("binary", {}, ()), ("multiclass", {"num_classes": 3}, ()), ("multilabel", {"num_labels": 2}, (2,))],
)
def test_interval_of_a_metric(task, size, shape, average, method):
    generator = torch.Generator().manual_seed(0)
    metric = imbtorch.Recall(task, average=average, **size)
    high = 3 if task == "multiclass" else 2
    metric.update(*(torch.randint(high, (80, *shape), generator=generator) for _ in range(2)))
    found = metric.interval(method=method, draws=2000, generator=generator)
    assert found.estimate.shape == metric.compute().shape
    assert found.estimate.tolist() == pytest.approx(metric.compute().tolist(), abs=1e-6)
    assert bool((found.low < found.estimate).all())
    assert bool((found.estimate < found.high).all())


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_intervals_of_recalls_rest_on_half_a_sample_of_prior(task):
    """So few samples that a prior of 1 / K on either side would show, for each class or label."""
    hits, totals = [2, 1, 3, 2], [3, 4, 5, 3]
    if task == "multiclass":
        target = torch.arange(4).repeat_interleave(torch.tensor(totals))
        missed = torch.cat([torch.arange(n) >= h for h, n in zip(hits, totals, strict=True)])
        preds = (target + missed) % 4
        metric = imbtorch.Recall("multiclass", 4, average="none")
    else:
        target = torch.stack([torch.arange(5) < n for n in totals], 1)
        preds = torch.stack([torch.arange(5) < h for h in hits], 1)
        metric = imbtorch.Recall("multilabel", num_labels=4, average="none")
    metric.update(preds, target)
    assert metric.compute().tolist() == pytest.approx([h / n for h, n in zip(hits, totals, strict=True)])
    found = metric.interval(draws=100_000, generator=seeded())
    for index, (hit, total) in enumerate(zip(hits, totals, strict=True)):
        right, other = (stats.beta(hit + each, total - hit + each).ppf([0.025, 0.975]) for each in (1 / 2, 1 / 4))
        assert [found.low[index].item(), found.high[index].item()] == pytest.approx(right.tolist(), abs=0.004)
        assert abs(right - other).max() > 0.01  # which would be seen


def test_interval_needs_the_matrix():
    with pytest.raises(ValueError, match="state='matrix'"):
        imbtorch.Recall("multiclass", num_classes=3, state="margins").interval()
    with pytest.raises(ValueError, match=r"method must be one of 'posterior', 'bootstrap', got 'jackknife'$"):
        imbtorch.Recall("binary").interval(method="jackknife")


def harm(counts):
    return counts.fill_diagonal_(0).sum()


class Harmful(imbtorch.ConfusionMatrixMetric):
    measure = staticmethod(harm)


class HarmfulToMargins(imbtorch.ConfusionMatrixMetric):
    needs_matrix = False
    measure = staticmethod(lambda margins: margins.correct.zero_().sum() + margins.actual.sum())


PREDS, TARGET = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1])


@pytest.mark.parametrize("metric", [Harmful, HarmfulToMargins])
def test_a_class_of_ones_own_harms_no_state(metric):
    mine = metric("multiclass", 3)
    mine.update(PREDS, TARGET)
    first = mine.compute()
    assert mine.compute() == first
    assert mine.local_confmat.trace() == 3


def test_the_worst_class_has_a_value_but_no_interval():
    metric = imbtorch.Recall("multiclass", 3, average="min")
    assert metric(PREDS, TARGET) == 0.5
    with pytest.raises(ValueError, match="no interval that covers it; use average='none'"):
        metric.interval()
