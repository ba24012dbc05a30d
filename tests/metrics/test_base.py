"""Updates of metrics: batches, warnings, bad values, arguments that do not fit."""

import copy
import functools
import pickle
import warnings

import numpy as np
import pytest
import torch
from cases import (
    EVERY_TASK,
    FOUR_METRICS,
    TASKS,
    assert_equal,
    batch,
    build,
    expected,
    joined,
    layouts,
    multiclass,
    resolved,
)
from sklearn import metrics as sklearn_metrics
from torchmetrics import MetricCollection

import imbtorch
from imbtorch import Accuracy, ConfusionMatrix, ImbalanceReport, Margins

NAN = float("nan")


# --- values ----------------------------------------------------------------------------------------------------------


@FOUR_METRICS
@pytest.mark.parametrize(("task", "size"), [(task, 5) for task in TASKS] + [("multiclass", 100)])
def test_forward_returns_the_batch_value_and_accumulates(name, task, size):
    batches = [batch(task, size, samples, seed) for seed, samples in enumerate((300, 200, 100))]
    average = resolved(name, task, "auto")
    for state in layouts(name, task):
        metric = build(name, task, size, state=state)
        for each in batches:
            assert_equal(metric(*each), expected(name, task, average, *each))
        metric.update(*batches[0])
        assert_equal(metric.compute(), expected(name, task, average, *joined([*batches, batches[0]])))


@pytest.mark.filterwarnings("ignore:.*has counted no sample")
@FOUR_METRICS
@EVERY_TASK
def test_empty_state_and_empty_batch(name, task):
    metric = build(name, task)
    preds, target = batch(task)
    for value in (metric.compute(), metric(preds[:0], target[:0])):
        assert (value == 0).all() if name == "ConfusionMatrix" else value.isnan().all()
    metric.update(preds, target)
    assert not metric.compute().isnan().any()


# --- looks -----------------------------------------------------------------------------------------------------------


def test_repr_tells_what_differs_from_the_defaults():
    metric = imbtorch.FScore("binary", beta=0.5, threshold=0.3, logits=True, ignore_index=-1, on_invalid="warn")
    arguments = repr(metric).removeprefix("FScore(").removesuffix(")").split(", ")
    assert sorted(arguments) == [
        "average='binary'",
        "beta=0.5",
        "ignore_index=-1",
        "logits=True",
        "on_invalid='warn'",
        "task='binary'",
        "threshold=0.3",
    ]
    assert repr(imbtorch.MatthewsCorrCoef("multiclass", 7, state="margins")) == (
        "MatthewsCorrCoef(task='multiclass', num_classes=7, state='margins')"
    )
    nested = torch.nn.ModuleDict({"val": imbtorch.Recall("multilabel", num_labels=2)})
    assert "(val): Recall(task='multilabel', num_labels=2, average='macro')" in repr(nested)


# --- the life of the counts ------------------------------------------------------------------------------------------


def test_results_are_copies():
    preds, target = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2])
    metric = multiclass([0, 1, 1], [0, 1, 2])
    results = [metric.compute(), metric.local_confmat, metric(preds, target), *metric.local_margins]
    before = [result.clone() for result in results]
    metric.update(preds, target)
    assert all(map(torch.equal, results, before))
    for result in results:
        result.fill_(77)
    assert metric.local_confmat.tolist() == [[3, 0, 0], [0, 3, 0], [0, 3, 0]]
    lean = multiclass([0, 1, 1], [0, 1, 2], "Recall", state="margins")
    for part in lean.local_margins:
        part.fill_(77)
    assert [part.tolist() for part in lean.local_margins] == [[1, 1, 0], [1, 1, 1], [1, 2, 0]]


def test_confmat_and_margins():
    preds, target = batch("multiclass")
    metric, lean = build("Recall", "multiclass"), build("Recall", "multiclass", state="margins")
    for each in (metric, lean):
        each.update(preds, target)
    matrix = sklearn_metrics.confusion_matrix(target, preds.argmax(1))
    assert metric.local_confmat.tolist() == matrix.tolist()
    for each in (metric, lean):
        assert isinstance(each.local_margins, Margins)
        wanted = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
        assert [part.tolist() for part in each.local_margins] == [part.tolist() for part in wanted]
        assert all(part.dtype == torch.int64 for part in each.local_margins)
    with pytest.raises(ValueError, match="state='margins' keeps no confusion matrix; use state='matrix'"):
        _ = lean.local_confmat
    preds, target = batch("multilabel")
    metric = build("Recall", "multilabel")
    metric.update(preds, target)
    wanted = sklearn_metrics.multilabel_confusion_matrix(target, preds > 0.5)
    assert metric.local_confmat.tolist() == wanted.tolist()
    assert metric.local_margins.predicted.tolist() == wanted.sum(1).tolist()


def test_compute_again_gives_the_same_value():
    metric = multiclass([0, 1, 1], [0, 1, 2], "Recall")
    first, second = metric.compute(), metric.compute()
    assert torch.equal(first, second)
    assert_equal(first, 2 / 3)
    first.fill_(7.0)
    assert_equal(metric.compute(), 2 / 3)


# --- warnings and values that cannot be counted ----------------------------------------------------------------------


# Where nothing is said, a warning fails the test: warnings are errors here.
def test_unseen_classes_are_told_once_between_resets():
    metric = multiclass([0, 1, 1], [0, 1, 0], "Recall")
    for _ in range(2):
        with pytest.warns(UserWarning, match="Recall: 1 of 3 classes had no target: 2; "):
            metric.compute()
        metric(torch.tensor([0]), torch.tensor([1]))
        metric.compute()
        metric.reset()
        metric(torch.tensor([0]), torch.tensor([1]))
        metric.reset()
        metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))


@pytest.mark.parametrize("average", ["macro", "none"])
def test_unseen_classes_are_named(average):
    several = multiclass([0, 1], [5, 5], "Recall", size=10, average=average, state="margins")
    with pytest.warns(UserWarning, match="9 of 10 classes had no target: 0, 1, 2, 3, 4, 6, 7, 8, 9;"):
        several.compute()
    many = multiclass([0, 1], [0, 0], "Recall", size=40, average=average)
    with pytest.warns(UserWarning, match=r"39 of 40 classes had no target: 1, 2, .*, 20, \.\.\.;"):
        many.compute()
    labels = build("Recall", "multilabel", 3, average=average)
    labels.update(torch.ones(2, 3), torch.tensor([[0, 0, 1], [0, 0, 1]]))
    with pytest.warns(UserWarning, match="2 of 3 labels had no positive target: 0, 1;"):
        labels.compute()
    binary = build("Recall", "binary")
    binary.update(torch.ones(2), torch.zeros(2, dtype=torch.long))
    with pytest.warns(UserWarning, match="1 of 2 classes had no target: 1;"):
        binary.compute()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Accuracy", {}),
        ("MatthewsCorrCoef", {}),
        ("CohenKappa", {}),
        ("ExpectedCost", {"costs": [[0, 1, 1], [1, 0, 1], [1, 1, 0]]}),
        ("Recall", {"average": "micro"}),
        ("FScore", {"average": "weighted"}),
    ],
)
def test_measures_of_all_samples_say_nothing_of_unseen_classes(name, arguments):
    metric = getattr(imbtorch, name)("multiclass", 3, **arguments)
    metric.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
    assert not metric.compute().isnan()


def test_means_over_labels_say_which_have_no_positives():
    metric = imbtorch.MatthewsCorrCoef("multilabel", num_labels=2)
    metric.update(torch.tensor([[0, 0], [1, 0]]), torch.tensor([[0, 0], [1, 0]]))
    with pytest.warns(UserWarning, match="1 of 2 labels had no positive target: 1;"):
        assert metric.compute() == 1


def test_nothing_is_said_of_ignored_classes_by_other_ranks_and_by_matrices(monkeypatch):
    multiclass([0, 1, 1], [0, 1, 2], "Recall", ignore_index=2).compute()
    multiclass([0, 1, 1], [0, 1, 1]).compute()
    build("Recall", "binary", ignore_index=0)(torch.ones(3), torch.tensor([1, 1, 0]))
    monkeypatch.setenv("RANK", "1")
    multiclass([0, 1, 1], [0, 1, 1], "Recall").compute()
    build("Recall", "binary").compute()


@pytest.mark.parametrize("name", ["Recall", "MatthewsCorrCoef", "ExpectedCost", "ConfusionMatrix"])
@EVERY_TASK
def test_an_empty_state_is_told(name, task):
    metric = build(name, task)
    with pytest.warns(UserWarning, match=f"{name} has counted no sample"):
        value = metric.compute()
    assert (value == 0).all() if name == "ConfusionMatrix" else value.isnan().all()


GOOD, BAD = ([0, 1, 2, 2], [0, 1, 2, 1]), ([0, 1, 777, 0, 0], [0, 1, 2, 333, -1])


def assert_goes_on(metric):
    metric.reset()
    metric.update(*map(torch.tensor, GOOD))
    assert metric.local_confmat.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert_equal(metric.compute(), (1 + 1 / 2 + 1) / 3)


@pytest.mark.parametrize("act", ["update", "forward"])
@pytest.mark.parametrize("size", [3, 100])
def test_bad_values_raise_at_once_on_the_cpu(act, size):
    metric = build("Recall", "multiclass", size)
    metric.update(*map(torch.tensor, GOOD))
    before = metric.local_confmat
    with pytest.raises(ValueError, match="target holds class -1 but"):
        getattr(metric, act)(torch.tensor([0, 0]), torch.tensor([1, -1]))
    assert torch.equal(metric.local_confmat, before)
    assert metric.update_count == 1


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("act", ["update", "forward"])
def test_bad_values_raise_in_compute_on_an_accelerator(act):
    metric = build("Recall", "multiclass", 3)
    getattr(metric, act)(*map(torch.tensor, BAD))
    metric.update(torch.tensor([[0.5, NAN, 0.0]]), torch.tensor([1]))
    assert metric.local_confmat.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    text = r"Recall did not count 4 .*: 2 targets out of range, 1 predictions out of range, 1 NaN scores; .*reset\(\)"
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            metric.compute()
    assert_goes_on(metric)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("size", [5, 100])
@pytest.mark.parametrize("act", ["update", "forward"])
@EVERY_TASK
def test_an_accelerator_counts_the_same(task, act, size):
    data = batch(task, size, 300)
    for state in layouts("Recall", task):
        metric = build("Recall", task, size, state=state)
        getattr(metric, act)(*data)
        assert_equal(metric.compute(), expected("Recall", task, resolved("Recall", task, "auto"), *data))


@pytest.mark.parametrize("act", ["update", "forward"])
def test_on_invalid_warn_goes_on_and_tells(act):
    metric = build("Recall", "multiclass", 3, on_invalid="warn")
    getattr(metric, act)(*map(torch.tensor, BAD))
    metric.update(*map(torch.tensor, GOOD))
    text = "Recall did not count 3 .*: 2 targets out of range, 1 predictions out of range"
    with pytest.warns(UserWarning, match=text):
        value = metric.compute()
    assert_equal(value, (1 + 2 / 3 + 1) / 3)
    assert_equal(metric.compute(), (1 + 2 / 3 + 1) / 3)  # told once
    assert_goes_on(metric)
    probabilities = build("Accuracy", "binary", on_invalid="warn")
    probabilities.update(torch.tensor([0.2, 1.7, NAN, 0.9]), torch.tensor([0, 1, 1, 1]))
    with pytest.warns(UserWarning, match=r"1 NaN scores, 1 probabilities outside \[0, 1\]"):
        assert_equal(probabilities.compute(), 1.0)


def test_forward_tallies_bad_values_once_where_it_counts_the_batch_twice():
    metric = build("Recall", "multiclass", 100, on_invalid="warn")
    assert_equal(metric(*map(torch.tensor, BAD)), 1.0)
    assert metric.local_confmat.sum() == 2
    with pytest.warns(UserWarning, match="did not count 3 .*: 2 targets out of range, 1 predictions out of range"):
        metric.compute()


def test_unseen_classes_do_not_hide_bad_values():
    metric = build("Recall", "multiclass", 3, on_invalid="warn")
    metric.update(torch.tensor([0]), torch.tensor([0]))
    with pytest.warns(UserWarning, match="had no target"):
        metric.compute()
    metric.update(torch.tensor([0]), torch.tensor([9]))
    with pytest.warns(UserWarning, match="1 targets out of range"):
        metric.compute()


# --- arguments and subclasses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("Recall", {"task": "multi"}, "task must be one of"),
        ("Recall", {"task": "multiclass"}, "task='multiclass' needs num_classes"),
        ("Recall", {"task": "multilabel"}, "task='multilabel' needs num_labels"),
        ("Recall", {"task": "binary", "num_classes": 3}, "use task='multiclass'"),
        ("Recall", {"task": "binary", "threshold": 2}, "threshold must be a probability"),
        ("Recall", {"task": "multiclass", "num_classes": 3, "threshold": 0.1}, "threshold=0.1 has no meaning"),
        ("Recall", {"task": "binary", "on_invalid": "ignore"}, "on_invalid must be one of 'raise', 'warn'"),
        ("Recall", {"task": "binary", "state": "margins"}, "state='margins' is for task='multiclass'"),
        ("Recall", {"task": "multiclass", "num_classes": 3, "state": "x"}, "state must be one of 'matrix', 'margins'"),
        ("GeometricMean", {"task": "binary", "correction": 2}, r"correction must lie in \[0, 1\], got 2"),
        ("FScore", {"task": "binary", "beta": -1}, "beta must be .* >= 0, got -1"),
        ("FScore", {"task": "binary", "beta": NAN}, "beta must be a finite number"),
        ("WeightedAccuracy", {"task": "binary", "alpha": 2}, r"alpha must lie in \[0, 1\], got 2"),
        ("IndexBalancedAccuracy", {"task": "binary", "alpha": -1}, "alpha must be .* >= 0, got -1"),
        (
            "IndexBalancedAccuracy",
            {"task": "binary", "measure": "confusion_entropy"},
            "weights a measure of which higher is better, got 'confusion_entropy'",
        ),
        (
            "ExpectedCost",
            {"task": "binary", "costs": [[1.0]]},
            r"costs must be 2 x 2 finite numbers, got shape \[1, 1\]",
        ),
        ("ExpectedCost", {"task": "binary", "costs": [[0, NAN], [1, 0]]}, "costs must be 2 x 2 finite numbers"),
        ("ConfusionMatrix", {"task": "binary", "normalize": "rows"}, "normalize must be one of None, 'true'"),
    ],
)
def test_constructor_errors(name, arguments, match):
    with pytest.raises(ValueError, match=match):
        getattr(imbtorch, name)(**arguments)


def test_constants_cannot_be_changed_on_an_instance():
    metric = build("Recall", "binary")
    with pytest.raises(RuntimeError, match="higher_is_better"):
        metric.higher_is_better = False


def test_update_errors_pass_through():
    metric = build("Recall", "multiclass", 3)
    with pytest.raises(TypeError, match="target must hold integers"):
        metric.update(torch.rand(4, 3), torch.rand(4))
    with pytest.raises(ValueError, match="scores of 4 classes"):
        metric(torch.rand(4, 4), torch.zeros(4, dtype=torch.long))
    assert not metric.update_called


# --- another population ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["compute", "interval", "at_prevalence", "counts", "result"])
def test_every_answer_refuses_what_compute_refuses(ask, accelerator):
    metric = ImbalanceReport("binary") if ask in ("counts", "result") else imbtorch.BalancedAccuracy("binary")
    metric.update(torch.tensor([0, 1, 7]), torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="did not count 1 of the samples"):
        getattr(metric, ask)(*([[1, 1]] if ask == "at_prevalence" else []))


def test_a_missing_task_is_said_as_everything_else():
    for kind in (imbtorch.ImbalanceAccuracy, imbtorch.FScore, imbtorch.ExpectedCost, ImbalanceReport, ConfusionMatrix):
        keywords = {"costs": [[0, 1, 1]] * 3} if kind is imbtorch.ExpectedCost else {}
        with pytest.raises(ValueError, match=r"task must be 'binary', 'multiclass' or 'multilabel', got None.* as in"):
            kind(num_classes=3, **keywords)


def test_numpy_numbers_are_numbers():
    metric = Accuracy("multiclass", np.int64(3), ignore_index=np.int32(-1))
    assert metric(torch.tensor([0, 1]), torch.tensor([0, -1])) == 1
    assert Accuracy("binary", threshold=np.float32(0.25)).threshold == 0.25
    assert imbtorch.Recall("multilabel", num_labels=np.uint8(2)).num_labels == 2
    with pytest.raises(TypeError, match="num_classes must be an int"):
        Accuracy("multiclass", np.bool_(True))


def test_more_classes_than_memory_says_what_they_take():
    with pytest.raises(ValueError, match=r"the counts take 80,000,000.0 GB.*state='margins'"):
        Accuracy("multiclass", 10**8)


def test_an_empty_rank_is_rank_zero(monkeypatch):
    monkeypatch.setenv("RANK", "")
    monkeypatch.setenv("LOCAL_RANK", "")
    with pytest.warns(UserWarning, match="has counted no sample"):
        Accuracy("binary").compute()


# --- a subclass with an update of its own ----------------------------------------------------------------------------


class Masked:
    """Leaves samples out, as tasks with fields of view or padding do."""

    def update(self, preds, target, mask=None):
        if mask is not None:
            preds, target = preds[mask], target[mask]
        super().update(preds, target)


class MaskedRecall(Masked, imbtorch.Recall):
    pass


class MaskedReport(Masked, ImbalanceReport):
    pass


class MaskedSweep(Masked, imbtorch.ThresholdSweep):
    pass


def masked_batches():
    """Three batches with masks, the first of which leaves nothing out, and the samples that remain of each."""
    for seed in range(3):
        preds, target = batch("binary", samples=40, seed=seed)
        mask = torch.arange(40) % 3 != 0 if seed else torch.ones(40, dtype=torch.bool)
        yield (preds, target, mask), (preds[mask], target[mask])


def recall(preds, target, threshold=0.5):
    return sklearn_metrics.recall_score(target, preds > threshold)


def test_forward_calls_the_update_of_a_subclass():
    metric, kept = MaskedRecall("binary"), []
    for given, rest in masked_batches():
        assert_equal(metric(*given), recall(*rest))
        kept.append(rest)
    assert_equal(metric.compute(), recall(*joined(kept)))
    assert metric.update_count == 3
    assert metric(*kept[0]) == metric(*kept[0], mask=None)


def test_forward_of_a_report_and_a_sweep_calls_the_update_of_a_subclass():
    report = MaskedReport("binary", measures=["recall"], per_class=(), clusters=True)
    sweep = MaskedSweep("recall", torch.tensor([0.3, 0.5]), alerts=1.0)  # a limit, without which it warns
    kept = []
    for given, rest in masked_batches():
        assert_equal(report(*given)["recall"], recall(*rest))
        assert_equal(sweep(*given)["value"], recall(*rest, threshold=0.3))
        kept.append(rest)
        assert_equal(report.result()["recall"], recall(*joined(kept)))
        assert_equal(sweep.result()["value"], recall(*joined(kept), threshold=0.3))
        assert_equal(report["recall"].compute(), recall(*joined(kept)))
    assert report.result().counts.sum() == sum(len(target) for _, target in kept)


def test_a_collection_does_not_merge_it_with_metrics_that_update_otherwise():
    """Though the first batch, of which nothing is left out, gives equal counts."""
    metrics = MetricCollection({"masked": MaskedRecall("binary"), "plain": imbtorch.Recall("binary")})
    twins = MetricCollection({"one": MaskedRecall("binary"), "other": MaskedRecall("binary")})
    kept, whole = [], []
    for (preds, target, mask), rest in masked_batches():
        metrics.update(preds, target, mask=mask)
        twins.update(preds, target, mask=mask)
        kept.append(rest)
        whole.append((preds, target))
    assert_equal(metrics.compute()["masked"], recall(*joined(kept)))
    assert_equal(metrics.compute()["plain"], recall(*joined(whole)))
    assert len(twins.compute_groups) == 2
    assert_equal(twins.compute()["other"], recall(*joined(kept)))
    values = metrics(preds, target, mask=mask)
    assert_equal(values["masked"], recall(*rest))
    assert_equal(values["plain"], recall(preds, target))


def of_one_site(base, *given, **arguments):
    """Make a subclass that counts the samples of one site; its attribute is set after all states have names."""

    class OfOneSite(base):
        def __init__(self, site):
            super().__init__(*given, **arguments)
            self.site = site

        def update(self, preds, target, sites):
            super().update(preds[sites == self.site], target[sites == self.site])

    return OfOneSite


class Shifted(imbtorch.Recall):
    """Metric whose own update has no argument more; a decorator gives it the name and module of ours."""

    def __init__(self, shift):
        super().__init__("binary")
        self.shift = shift

    @functools.wraps(imbtorch.Recall.update)
    def update(self, preds, target):
        super().update((preds + self.shift).clamp(0, 1), target)


SITES = {
    "Recall": of_one_site(imbtorch.Recall, "multiclass", num_classes=2),
    "ImbalanceReport": of_one_site(ImbalanceReport, "multiclass", num_classes=2, measures=["recall"], per_class=()),
    "LogitAdjustmentSweep": of_one_site(imbtorch.LogitAdjustmentSweep, "recall", [2, 1], taus=[1e-9]),
    "HandTill": of_one_site(imbtorch.HandTill, 2),
    "a class below": type("Below", (of_one_site(imbtorch.Recall, "multiclass", num_classes=2),), {}),
}


@pytest.mark.parametrize("kind", SITES)
def test_a_collection_does_not_merge_instances_that_an_attribute_makes_differ(kind):
    """Though the first batch counts alike; the right value is that of each site's samples alone."""
    first, later = torch.tensor([0.7, 0.4, 0.7, 0.4]), torch.tensor([0.7, 0.3, 0.2, 0.4])
    batches = [torch.stack((1 - scores, scores), 1) for scores in (first, later, later)]
    target, sites = torch.tensor([1, 0, 1, 0]), torch.tensor([0, 0, 1, 1])
    made = MetricCollection({"zero": SITES[kind](0), "one": SITES[kind](1)})
    for collection in (made, made.clone(), copy.deepcopy(made)):
        for scores in batches:
            collection.update(scores, target, sites)
        values = {key: value.item() for key, value in collection.compute().items() if "tau" not in key}
        wanted = []
        for site in (0, 1):
            scores, truth = torch.cat([each[sites == site] for each in batches]), target[sites == site].repeat(3)
            if kind == "HandTill":
                wanted.append(sklearn_metrics.roc_auc_score(truth, scores[:, 1]))
            else:
                wanted.append(sklearn_metrics.recall_score(truth, scores.argmax(1), average="macro"))
        assert wanted[0] != wanted[1]
        assert [values[key] for key in sorted(values, reverse=True)] == pytest.approx(wanted)


def test_a_collection_does_not_merge_what_a_decorator_disguises():
    collection = MetricCollection({"low": Shifted(0.0), "high": Shifted(0.3)})
    for scores, target in (([0.9, 0.1], [1, 0]), ([0.4, 0.3], [1, 1])):
        collection.update(torch.tensor(scores), torch.tensor(target))
    values = {name: value.item() for name, value in collection.compute().items()}
    assert values == pytest.approx({"low": 1 / 3, "high": 1})


def test_states_of_subclasses_keep_their_names():
    """So that checkpoints of 0.6.0 load, which named the state of this class so."""
    name = "counts_matrix_binary_2_threshold_0_5_b3fb85990f3a"
    metric = MaskedRecall("binary")
    metric.persistent(True)
    assert list(metric.state_dict(prefix="val.")) == [f"val.{name}"]
    metric.load_state_dict({name: torch.arange(12)})
    assert metric.local_confmat.tolist() == [[0, 1], [2, 3]]


def test_a_collection_does_not_merge_classes_of_one_name_that_update_otherwise():
    def without(label):
        class Without(imbtorch.Recall):
            def update(self, preds, target):
                super().update(preds[target != label], target[target != label])

        return Without

    kinds = [without(label) for label in (2, 3)]
    given = [batch("multiclass", size=4, samples=80, seed=seed) for seed in range(2)]
    given[0] = [part[given[0][1] < 2] for part in given[0]]  # the first batch gives equal counts
    metrics = MetricCollection(
        {str(at): kind("multiclass", num_classes=4) for at, kind in enumerate([*kinds, kinds[0]])}
    )
    for each in given:
        metrics.update(*each)
    assert sorted(map(sorted, metrics.compute_groups.values())) == [["0"], ["1"], ["2"]]
    for label, metric in zip((2, 3), metrics.values(), strict=False):
        target = torch.cat([target for _, target in given])
        assert metric.local_margins.actual.tolist() == [int((target == at).sum()) * (at != label) for at in range(4)]


def test_forward_of_a_subclass_warns_of_no_batch_and_keeps_the_counts_of_an_error():
    class Shifted(imbtorch.Recall):
        def update(self, preds, target):
            super().update(preds, target - 1)

    metric = Shifted("multiclass", num_classes=3)
    assert metric(torch.tensor([0, 0]), torch.tensor([1, 1])) == 1  # without a warning of classes 1 and 2
    with pytest.raises(ValueError, match="target holds class 3"):
        metric(torch.tensor([0]), torch.tensor([4]))
    assert metric.local_confmat.sum() == 2
    with pytest.warns(UserWarning, match="2 of 3 classes had no target"):
        metric.compute()
    metric(torch.tensor([0]), torch.tensor([1]))
    metric.compute()  # a second warning would be an error
    metric.reset()
    metric(torch.tensor([0]), torch.tensor([1]))
    with pytest.warns(UserWarning, match="2 of 3 classes had no target"):
        metric.compute()


def test_a_subclass_with_a_forward_of_its_own_keeps_it():
    class Doubled(MaskedRecall):
        def forward(self, *args):
            return 2 * super().forward(*args)

    class Inherited(Doubled):
        pass

    preds, target = batch("binary")
    for metric in (Doubled("binary"), Inherited("binary"), pickle.loads(pickle.dumps(MaskedRecall("binary")))):
        times = 1 if type(metric) is MaskedRecall else 2
        assert_equal(metric(preds, target, target == 1), times * recall(preds[target == 1], target[target == 1]))


# --- counts that exist ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_added_counts_are_those_of_the_samples(task):
    preds, target = batch(task)
    counted = build("Recall", task, clusters=False)
    counted.update(preds, target)
    for state in layouts("Recall", task):
        added = build("Recall", task, state=state, clusters=False)
        for dtype in (torch.int64, torch.int32, torch.float32, torch.uint8):
            added.add(counted.local_confmat.to(dtype))
        assert added.update_count == 4
        assert torch.equal(torch.stack(added.local_margins), 4 * torch.stack(counted.local_margins))
        assert_equal(added.compute(), counted.compute())
        assert added.reset() is None
        assert not torch.stack(added.local_margins).any()


def test_added_counts_make_a_table_and_intervals():
    matrix = torch.tensor([[80, 5, 5], [2, 20, 1], [0, 3, 4]])
    names = {"class_names": ["cat", "dog", "emu"], "measures": ["balanced_accuracy"]}
    report, counted = (ImbalanceReport("multiclass", **names) for _ in range(2))
    cells = torch.cartesian_prod(torch.arange(3), torch.arange(3)).repeat_interleave(matrix.flatten(), 0)
    counted.update(cells[:, 1], cells[:, 0])
    value = report["balanced_accuracy"].compute
    report.add(matrix)
    assert_equal(value(), (80 / 90 + 20 / 23 + 4 / 7) / 3)
    report.add(matrix)
    counted.update(cells[:, 1], cells[:, 0])
    assert report.compute() == counted.compute()
    assert str(report.table()) == str(counted.table())
    intervals = [each.interval("balanced_accuracy", generator=torch.Generator()) for each in (report, counted)]
    assert intervals[0] == intervals[1]


def test_added_counts_of_groups():
    report = ImbalanceReport("binary", groups=["A", "B"], measures=["accuracy"], per_class=())
    report.add(torch.tensor([[[8, 2], [1, 9]], [[3, 0], [1, 0]]]))
    values = {name: value.item() for name, value in report.compute().items()}
    wanted = {"accuracy": 20 / 24, "accuracy/A": 17 / 20, "accuracy/B": 3 / 4, "accuracy_worst": 3 / 4}
    assert values == pytest.approx(wanted)


def test_added_counts_may_be_weights_where_weights_are_counted():
    metric = Accuracy("binary", weighted=True)
    metric.add(torch.tensor([[1.5, 0.5], [0.0, 2.0]]))
    assert_equal(metric.compute(), 3.5 / 4)


@pytest.mark.parametrize(
    ("arguments", "counts", "error", "text"),
    [
        ({}, torch.ones(3, 3), ValueError, r"counts must have the shape \[2, 2\] of this metric, got \[3, 3\]"),
        ({}, torch.ones(1, 2, 2), ValueError, r"got \[1, 2, 2\]"),
        ({}, [[1, 2], [3, 4]], TypeError, "counts must be a torch.Tensor, got list"),
        ({}, torch.tensor([[1, -2], [0, 1]]), ValueError, "counts must be whole numbers from 0 .*, got -2"),
        ({}, torch.tensor([[1, 0.5], [0, 1]]), ValueError, "counts must be whole numbers from 0 .*, got 0.5"),
        ({}, torch.tensor([[1, NAN], [0, 1]]), ValueError, "counts must be whole numbers from 0 .*, got nan"),
        ({}, torch.tensor([[1, 2.0**63], [0, 1]]), ValueError, r"to below 2\*\*63, got 9.22337e\+18"),
        ({"weighted": True}, torch.tensor([[1, float("inf")], [0, 1]]), ValueError, "finite and not negative, got inf"),
        ({"clusters": True}, torch.ones(2, 2), ValueError, "cannot be added to a metric with clusters"),
    ],
)
def test_counts_that_cannot_be_added(arguments, counts, error, text):
    metric = Accuracy("binary", **arguments)
    with pytest.raises(error, match=text):
        metric.add(counts)
    assert not metric.local_confmat.any()
    assert not metric.update_called


def test_added_counts_do_not_overflow():
    metric, half = Accuracy("binary"), torch.tensor([[2**61, 0], [2**60, 2**61]])
    metric.add(half)
    metric.add(half)
    assert_equal(metric.compute(), 4 / 5)
    with pytest.raises(ValueError, match=r"must not add up to more than 2\*\*62 in a cell, got 7 more"):
        metric.add(torch.tensor([[7, 0], [0, 0]]))
    assert metric.local_confmat.tolist() == [[2**62, 0], [2**61, 2**62]]


def test_counts_are_not_added_where_the_next_update_of_a_collection_would_replace_them():
    preds, target = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    collection = MetricCollection([Accuracy("binary"), imbtorch.FScore("binary")])
    for _ in range(2):
        collection.update(preds, target)
    with pytest.raises(RuntimeError, match=r"follows another metric.*MetricCollection\(\.\.\., compute_groups=False\)"):
        collection["FScore"].add(torch.eye(2))
    alone = MetricCollection([Accuracy("binary"), imbtorch.FScore("binary")], compute_groups=False)
    alone.update(preds, target)
    alone["FScore"].add(10 * torch.eye(2))
    alone.update(preds, target)
    assert alone["FScore"].local_confmat.tolist() == [[12, 2], [2, 12]]
    assert alone["Accuracy"].local_confmat.tolist() == [[2, 2], [2, 2]]


def test_forward_of_an_update_that_resets_returns_the_value_of_its_batch():
    class LastBatch(Accuracy):
        def update(self, preds, target):
            self.reset()
            super().update(preds, target)

    metric = LastBatch("binary")
    assert metric(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0])) == 3 / 4
    assert metric(torch.tensor([0, 1]), torch.tensor([0, 0])) == 1 / 2


def test_one_hot_predictions_and_targets_are_told():
    """They are a legal layout of positions, whose value is far from that of the classes."""
    target = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0, 1, 2]), 3)
    for metric in (build("Accuracy", "binary"), build("Accuracy", "multiclass", 3)):
        with pytest.warns(UserWarning, match=r"look one-hot, .* pass preds.argmax\(1\) and target.argmax\(1\)"):
            metric.update(target, target)
        metric.update(target, target)  # told once
    build("Accuracy", "multilabel", 3).update(target, target)
    build("Accuracy", "multiclass", 3).update(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[0, 1], [0, 1]]))


def test_a_subclass_made_by_exec_may_override_update():
    code = "class Mine(Accuracy):\n    def update(self, preds, target): super().update(target, target)\n"
    names = {"Accuracy": imbtorch.Accuracy}
    exec(code, names)
    assert names["Mine"]("multiclass", 3)(torch.tensor([0, 1]), torch.tensor([1, 2])) == 1


# --- probabilities in place of logits --------------------------------------------------------------------------------


def scores_of_a_trained_model(samples=400, shape=(), seed=0):
    """Logits with the log-odds of a rare class, and their targets."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(samples, *shape, generator=generator) - 3
    return logits, (torch.rand(samples, *shape, generator=generator) < logits.sigmoid()).long()


@pytest.mark.parametrize(("task", "shape"), [("binary", ()), ("multilabel", (3,))])
def test_probabilities_with_logits_true_are_told_once(task, shape):
    logits, target = scores_of_a_trained_model(shape=shape)
    report = ImbalanceReport(task, num_labels=3 if shape else None, logits=True)
    with pytest.warns(UserWarning, match=r"crowd near 0, as probabilities do, but logits=True .* write logits=False"):
        report.update(logits.sigmoid(), target)
    assert report.compute()["recall/1" if not shape else "recall/0"] == 1  # everything is predicted positive
    report.update(logits.sigmoid(), target)  # once
    fine = report.clone()
    fine.reset()
    fine.update(logits, target)
    fine.update(logits.sigmoid(), target)  # not the first
    fine.reset()
    fine.update(logits.sigmoid()[:31], target[:31])  # too few to tell
    with pytest.warns(UserWarning, match="crowd near 0"):
        fine.update(logits.sigmoid()[31:32], target[31:32])
    quiet = report.clone()
    quiet.reset()
    quiet.quiet = True  # as in a sanity check
    quiet.update(logits.sigmoid(), target)


@pytest.mark.parametrize("spread", [(0.1, 0.9), (0.001, 0.4), (0.001, 1.2), (-0.1, 0.9)])
def test_small_logits_of_an_untrained_model_are_no_probabilities(spread):
    """They lie in [0, 1] as a whole in many models, but seldom both near 0 and above .5."""
    logits, target = torch.linspace(*spread, 400), torch.arange(400) % 3 == 0
    for logits_of in (logits, torch.full((400,), logits[0].item()), torch.zeros(400)):
        Accuracy("binary", logits=True).update(logits_of, target)
    sweep = imbtorch.ThresholdSweep("f1", logits=True)
    sweep.update(logits, target)
    sweep.compute()


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_sweep_sees_probabilities_in_its_bins_on_any_device(task, monkeypatch):
    logits, target = scores_of_a_trained_model(shape=() if task == "binary" else (3,))
    arguments = {"binary": {}, "multilabel": {"num_labels": 3}, "multiclass": {"num_classes": 3}}[task]
    probabilities = logits.sigmoid()
    if task == "multiclass":
        target, probabilities = logits.argmax(1), logits.softmax(1)
    monkeypatch.setattr(imbtorch.ThresholdSweep, "_judge", lambda *_, **__: None)
    sweep = imbtorch.ThresholdSweep("f1", task=task, logits=True, **arguments)
    for scores, warns in ((logits, False), (probabilities, True)):
        sweep.reset()
        for some in range(0, 400, 20):
            sweep.update(scores[some : some + 20], target[some : some + 20])
        if warns:
            with pytest.warns(UserWarning, match="as probabilities do"):
                sweep.compute()
        else:
            sweep.compute()
    sweep.compute()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("size", [1, 8, 31, 32, 400])
def test_the_first_samples_are_judged_however_they_are_batched(size, dtype):
    """The 32 first ones decide; of images some positions do."""
    logits, target = scores_of_a_trained_model()
    labels, of_labels = torch.stack((logits, -logits), 1), torch.stack((target, 1 - target), 1)
    kinds = {
        "report": (lambda: ImbalanceReport("binary", logits=True), logits, target),
        "metric": (lambda: Accuracy("binary", logits=True), logits, target),
        "labels": (lambda: ImbalanceReport("multilabel", num_labels=2, logits=True), labels, of_labels),
        "sweep": (lambda: imbtorch.ThresholdSweep("f1", logits=True), logits, target),
        "images": (
            lambda: ImbalanceReport("binary", logits=True),
            logits.view(100, 4, 1).repeat(4, 1, 100),
            target.view(100, 4, 1).repeat(4, 1, 100),
        ),
    }
    for name, (make, scores, truth) in kinds.items():
        for given, told in ((scores, False), (scores.sigmoid(), True), (scores, False)):
            metric = make()  # anew after a reset as well
            metric.update(scores[:40], truth[:40])
            metric.reset()
            with warnings.catch_warnings(record=True) as texts:
                warnings.simplefilter("always")
                for some, ends in zip(given.to(dtype).split(size), truth.split(size), strict=True):
                    metric.update(some, ends)
            assert sum("crowd near 0" in str(each.message) for each in texts) == told, name
            assert metric.like_probabilities == told


@pytest.mark.parametrize("size", [1, 3, 5])
def test_sums_of_small_batches_are_judged(size):
    logits, _ = scores_of_a_trained_model(64, (3,))
    for make in (
        lambda: imbtorch.LogitAdjustmentSweep("f1", [5, 3, 2], logits=True),
        lambda: imbtorch.ThresholdSweep("f1", task="multiclass", num_classes=3, logits=True),
    ):
        sweep, target = make(), logits.argmax(1)
        with pytest.raises(ValueError, match="sum to 1 over the classes"):
            _count_all(sweep, logits.softmax(1).split(size), target.split(size))
        sweep.reset()
        _count_all(sweep, logits.split(size), target.split(size))


def _count_all(metric, scores, target):
    for some, ends in zip(scores, target, strict=True):
        metric.update(some, ends)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["adjustment", "per_class", "two"])
def test_class_scores_that_sum_to_one_are_no_logits(name, dtype):
    make = {
        "adjustment": lambda **k: imbtorch.LogitAdjustmentSweep("f1", [5, 3, 2], logits=True, **k),
        "per_class": lambda **k: imbtorch.ThresholdSweep("f1", task="multiclass", num_classes=3, logits=True, **k),
        "two": lambda **k: imbtorch.ThresholdSweep("f1", logits=True, **k),
    }[name]
    logits, _ = scores_of_a_trained_model(64, (2 if name == "two" else 3,))
    target = logits.argmax(1)
    scores = logits.to(dtype).softmax(1)
    sweep = make()
    with pytest.raises(ValueError, match=r"sum to 1 over the classes .* write logits=False, or pass the logits before"):
        sweep.update(scores, target)
    with pytest.raises(ValueError, match="sum to 1 over the classes"):
        sweep(scores, target)
    sweep.update(logits.to(dtype), target)  # as nothing was counted before
    for fine in (logits.log_softmax(1), torch.zeros_like(logits), torch.full_like(logits, 1 / logits.shape[1])):
        make().update(
            fine.to(dtype), target
        )  # no logits of a trained model, but none that sum to 1 by more than chance
    with pytest.warns(UserWarning, match="sum to 1 over the classes"):
        make(on_invalid="warn").update(scores, target)
    if name != "two":
        report = ImbalanceReport("multiclass", num_classes=3, logits=True)
        report.update(scores, target)  # its argmax is that of the logits
        assert report.compute()["accuracy"] > 0.95
