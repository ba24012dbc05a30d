"""Soft counts: probabilities beside the counts, equal to the last bit for any order, split and number of processes."""

import functools
import itertools
import pickle
import sys
from fractions import Fraction
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from cases import CASES, MEANS, averages, close, layouts, own_arguments, special_matrices
from lightning.pytorch.callbacks import ModelCheckpoint
from oracles import FACTS
from processes import counted_collectives, launch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from versions import traced

import imbtorch
from imbtorch import (
    Accuracy,
    ConfusionMatrix,
    Dominance,
    ImbalanceAccuracy,
    ImbalanceReport,
    Margins,
    Recall,
    confusion_matrix,
    imbalance_accuracy,
    soft,
    soft_confusion_matrix,
)
from imbtorch.batches import FAULTS
from imbtorch.tasks import Counting

pytestmark = pytest.mark.filterwarnings("ignore:.*had no (positive )?target")
SIZE = {
    "binary": {},
    "two columns": {},
    "multiclass": {"num_classes": 5},
    "many": {"num_classes": 30},
    "multilabel": {"num_labels": 3},
}
TASKS = {"two columns": "binary", "many": "multiclass"}
UNIT = 2**24
SIZES_OF = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 2}}


def task_of(kind):
    return TASKS.get(kind, kind)


def made(metric, kind, **arguments):
    return metric(task_of(kind), **SIZE[kind], **arguments)


def batch(kind, samples=60, seed=0, places=(), dtype=torch.float32, logits=False):
    """Scores and targets of which class 1 (of several classes: the last) is rare."""
    generator = torch.Generator().manual_seed(seed)
    columns = {"binary": (), "two columns": (2,), "multiclass": (5,), "many": (30,), "multilabel": (3,)}[kind]
    scores = torch.randn(samples, *columns, *places, generator=generator).to(dtype)
    if not logits:
        wide = scores.float()
        scores = (wide.softmax(1) if kind in ("two columns", "multiclass", "many") else wide.sigmoid()).to(dtype)
    shape = (samples, 3, *places) if kind == "multilabel" else (samples, *places)
    high = SIZE[kind].get("num_classes", 2)
    target = torch.randint(high - (high > 2), shape, generator=generator)
    target[:2] = high - 1
    return scores, target


def exact(scores, target, classes):
    """Hard and soft counts of rows of probabilities, in fractions; the definition read aloud."""
    hard = [[Fraction(0)] * classes for _ in range(classes)]
    mass = [[0] * classes for _ in range(classes)]
    for row, true in zip(scores.tolist(), target.tolist(), strict=True):
        hard[true][row.index(max(row))] += 1
        for column, value in enumerate(row):
            mass[true][column] += round(value * UNIT)  # a power of 2 rounds nothing but the whole number
    present = [any(hard[i]) or any(row[i] for row in hard) for i in range(classes)]
    soft = []
    for counts, probabilities in zip(hard, mass, strict=True):
        kept = [Fraction(value if there else 0) for value, there in zip(probabilities, present, strict=True)]
        soft.append([sum(counts) * value / sum(kept) if sum(kept) else Fraction(0) for value in kept])
    return hard, soft


def floats(rows):
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)


def as_rows(kind, scores, target):
    """Probabilities of each class beside one target, for the tasks of two classes in float64."""
    if kind in ("multiclass", "many"):
        return scores.float().movedim(1, -1).reshape(-1, scores.shape[1]), target.reshape(-1)
    one = scores[:, 1] if kind == "two columns" else scores
    one = one.double().reshape(-1)
    return torch.stack((1 - one, one), -1), target.reshape(-1)


# --- what is counted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [(), (7,), (40, 150)], ids=["flat", "few places", "image"])
@pytest.mark.parametrize("kind", ["binary", "two columns", "multiclass", "many"])
def test_soft_counts_are_those_of_exact_fractions(kind, places):
    scores, target = batch(kind, 60 if len(places) < 2 else 3, places=places)
    got = soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind])
    rows, flat = as_rows(kind, scores, target)
    hard, wanted = exact(rows, flat, rows.shape[1])
    torch.testing.assert_close(got, floats(wanted), rtol=1e-14, atol=1e-13)
    metric = made(ConfusionMatrix, kind, soft=0.25)
    metric.update(scores, target)
    torch.testing.assert_close(metric.compute(), 0.75 * floats(hard) + 0.25 * floats(wanted), rtol=1e-14, atol=1e-13)
    counts = confusion_matrix(scores, target, task_of(kind), **SIZE[kind])
    torch.testing.assert_close(got.sum(1), counts.sum(1).double(), rtol=1e-14, atol=0)


def test_labels_are_counted_apart():
    scores, target = batch("multilabel", places=(4,))
    got = soft_confusion_matrix(scores, target, "multilabel", num_labels=3)
    for label in range(3):
        rows, flat = as_rows("binary", scores[:, label], target[:, label])
        torch.testing.assert_close(got[label], floats(exact(rows, flat, 2)[1]), rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", SIZE)
def test_logits_count_their_probabilities(kind, dtype):
    scores, target = batch(kind, dtype=dtype, logits=True)
    several = kind in ("two columns", "multiclass", "many")
    wide = scores.numpy(force=True).astype(np.float64) if dtype != torch.bfloat16 else scores.double().numpy()
    if several:
        raised = np.exp(wide - wide.max(1, keepdims=True))
        probabilities = torch.from_numpy(raised / raised.sum(1, keepdims=True))
    else:
        probabilities = torch.from_numpy(1 / (1 + np.exp(-wide)))
    got = soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind], logits=True)
    wanted = soft_confusion_matrix(probabilities, target, task_of(kind), **SIZE[kind])
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-6)  # a softmax in float32 is right to about 1e-7


def test_mass_on_classes_that_are_not_there_moves_nothing():
    """Counts of two classes among four; 1e-6 of probability on the others made IAM -.191 once."""
    hard = torch.tensor([[8, 2, 0, 0], [1, 9, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    target, guess = (hard > 0).nonzero().repeat_interleave(hard[hard > 0], 0).T
    scores = torch.full((20, 4), 1e-6).scatter_(1, guess[:, None], 1 - 3e-6)
    got = soft_confusion_matrix(scores, target, "multiclass", num_classes=4)
    assert not got[:, 2:].any()
    alone = soft_confusion_matrix(scores[:, :2], target, "multiclass", num_classes=2)
    torch.testing.assert_close(got[:2, :2], alone, rtol=1e-6, atol=0)
    hard_value = imbalance_accuracy(hard)
    assert hard_value == pytest.approx(2 * (8 / 10 + 9 / 11) / 2 - 1)
    for layout in ("matrix", "margins"):
        metric = ImbalanceAccuracy("multiclass", num_classes=4, soft=True, state=layout)
        metric.update(scores, target)
        assert metric.compute().item() == pytest.approx(hard_value.item(), abs=1e-6)


def test_ties_go_to_the_first_class_as_they_do_in_hard_counts():
    scores = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.4, 0.1]]).repeat(30, 1)
    target = torch.arange(60) % 4
    metric = ConfusionMatrix("multiclass", num_classes=4, soft=True)
    metric.update(scores, target)
    assert torch.equal(metric.local_confmat, confusion_matrix(scores, target, "multiclass", num_classes=4))


@pytest.mark.parametrize("kind", SIZE)
@pytest.mark.parametrize("ignore_index", [-100, 0])
def test_ignored_samples_leave_nothing(kind, ignore_index):
    scores, target = batch(kind)
    target.view(-1)[5:15] = ignore_index
    if kind == "multilabel":
        got = soft_confusion_matrix(scores, target, "multilabel", num_labels=3, ignore_index=ignore_index)
        for label in range(3):
            keep = target[:, label] != ignore_index
            alone = soft_confusion_matrix(scores[keep, label], target[keep, label], "binary")
            assert torch.equal(got[label], alone)
        return
    keep = target != ignore_index
    got = soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind], ignore_index=ignore_index)
    assert torch.equal(got, soft_confusion_matrix(scores[keep], target[keep], task_of(kind), **SIZE[kind]))
    scores[~keep] = torch.nan  # what is ignored may be anything
    assert torch.equal(
        got, soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind], ignore_index=ignore_index)
    )


# --- margins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["multiclass", "many"])
@pytest.mark.parametrize("logits", [False, True])
def test_margins_are_those_of_the_matrix_where_every_class_is_there(kind, logits):
    scores, target = batch(kind, 2000, logits=logits)
    matrix, margin = (
        made(Recall, kind, soft=0.4, logits=logits, state=state, average="none") for state in ("matrix", "margins")
    )
    for metric in (matrix, margin):
        metric.update(scores, target)
    whole = matrix.soft_counts()
    got = margin.soft_counts()
    assert isinstance(got, Margins)
    for part, wanted in zip(got, (whole.diagonal(), whole.sum(1), whole.sum(0)), strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(margin.compute(), matrix.compute())


@pytest.mark.parametrize("classes", [2, 3, 7, 40])
def test_soft_margins_never_contradict_one_another(classes):
    """No measure may be nan for probabilities that sum to 1 within .01 and that lie on absent classes as well."""
    generator = torch.Generator().manual_seed(classes)
    for _ in range(40):
        scores = (4 * torch.randn(12, classes, generator=generator)).softmax(1)
        scores *= 1 - 0.009 * torch.rand(12, 1, generator=generator)
        target = torch.randint(max(1, classes // 2), (12,), generator=generator)
        metric = ImbalanceAccuracy("multiclass", num_classes=classes, soft=0.9, state="margins")
        metric.update(scores, target)
        counts = metric.soft_counts()
        assert imbtorch.margins(counts).predicted.isfinite().all()
        assert imbtorch.margins(imbtorch.one_vs_rest(counts)).predicted.isfinite().all()  # true negatives as well
        hard = metric.local_margins
        torch.testing.assert_close(counts.actual, hard.actual.double())
        absent = (hard.actual + hard.predicted) == 0
        assert not counts.predicted[absent].any()


# --- to the last bit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIZE)
def test_order_and_split_change_no_bit(kind):
    scores, target = batch(kind, 999)
    order = torch.randperm(999, generator=torch.Generator().manual_seed(1))
    whole, shuffled, split = (made(ConfusionMatrix, kind, soft=0.3) for _ in range(3))
    whole.update(scores, target)
    shuffled.update(scores[order], target[order])
    for start, end in ((0, 1), (1, 4), (4, 300), (300, 999)):
        split.update(scores[start:end], target[start:end])
    (wanted,) = whole.metric_state.values()
    for other in (shuffled, split):
        (state,) = other.metric_state.values()
        assert torch.equal(state, wanted)
        assert torch.equal(other.compute(), whole.compute())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 8, 9, 10, 16, 19, 20, 33])
def test_logits_one_by_one_change_no_bit(classes, dtype):
    generator = torch.Generator().manual_seed(classes)
    scores = (3 * torch.randn(120, classes, generator=generator)).to(dtype)
    target = torch.randint(classes, (120,), generator=generator)
    whole, split = (ConfusionMatrix("multiclass", num_classes=classes, soft=0.3, logits=True) for _ in range(2))
    whole.update(scores, target)
    for sample in range(120):
        split.update(scores[sample : sample + 1], target[sample : sample + 1])
    assert torch.equal(*(state for each in (whole, split) for state in each.metric_state.values()))


@pytest.mark.parametrize("columns", [1, 2])
def test_logits_of_two_classes_one_by_one_change_no_bit(columns):
    """Probabilities in the middle between two units, where the last bit of a sigmoid decides."""
    middle = (torch.randint(2**22, 2**23, (2000,), generator=torch.Generator().manual_seed(0)).double() + 0.5) / 2**24
    scores, target = middle.logit(), torch.zeros(2000, dtype=torch.int64)
    if columns == 2:
        scores = torch.stack((-scores / 2, scores / 2), -1)
    whole, split = (ConfusionMatrix("binary", soft=0.3, logits=True) for _ in range(2))
    whole.update(scores, target)
    for sample in range(2000):
        split.update(scores[sample : sample + 1], target[sample : sample + 1])
    assert torch.equal(*(state for each in (whole, split) for state in each.metric_state.values()))


@pytest.mark.parametrize("kind", SIZE)
def test_blocks_change_no_bit(kind, monkeypatch, request):
    scores, target = batch(kind, 500, places=(3,))
    wanted = soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind])
    monkeypatch.setattr(soft, "BLOCK", 100)
    monkeypatch.setattr(soft, "DEVICE_BLOCK", 90)
    assert torch.equal(soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind]), wanted)
    request.getfixturevalue("accelerator")
    assert torch.equal(soft_confusion_matrix(scores, target, task_of(kind), **SIZE[kind]), wanted)


@pytest.mark.parametrize("layout", ["matrix", "margins"])
@pytest.mark.parametrize("classes", [5, 30])
def test_both_ways_of_counting_give_the_same_state(classes, layout, request):
    scores, target = batch("multiclass" if classes == 5 else "many", 300)
    counting = Counting.of("multiclass", classes, soft=True, layout=layout, ignore_index=1)
    states = []
    for free in (True, False):
        if not free:
            request.getfixturevalue("accelerator")
        state = counting.zeros()
        counting.add_(state, counting.read(scores, target), defer=lambda: False)
        states.append(state)
    assert torch.equal(*states)


def rank_counts(rank, world):
    """Uneven parts of one validation set; the last rank of three sees nothing."""
    torch.set_num_threads(1)
    results = {}
    for kind in SIZE:
        scores, target = batch(kind, 101)
        parts = [slice(0, 70), slice(70, 101), slice(0, 0)]
        report = made(ImbalanceReport, kind, soft=True, per_class=())
        report.update(scores[parts[rank]], target[parts[rank]])
        with counted_collectives() as calls:
            values = report.compute()
        assert calls == ["all_reduce"]
        results[kind] = {name: value.item() for name, value in values.items()}, report.soft_counts().tolist()
    margin = ImbalanceAccuracy("multiclass", num_classes=30, soft=0.1, state="margins")
    scores, target = batch("many", 101)
    margin.update(scores[rank::world], target[rank::world])
    return results, [part.tolist() for part in margin.soft_counts()]


@pytest.mark.parametrize("world", [2, 3])
def test_the_number_of_processes_changes_no_bit(world):
    answers = launch(world, rank_counts)
    margin = ImbalanceAccuracy("multiclass", num_classes=30, soft=0.1, state="margins")
    margin.update(*batch("many", 101))
    for results, margins in answers:
        assert margins == [part.tolist() for part in margin.soft_counts()]
        for kind, (values, counts) in results.items():
            single = made(ImbalanceReport, kind, soft=True, per_class=())
            single.update(*batch(kind, 101))
            assert counts == single.soft_counts().tolist()
            for name, value in single.compute().items():
                assert values[name] == value.item() or value.isnan()


def differing_shares(rank, world):
    metric = Accuracy("binary", soft=0.1 + 0.1 * rank)
    metric.update(torch.tensor([0.2, 0.9]), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="not set up alike"):
        metric.compute()
    return True


def test_processes_with_other_shares_are_refused():
    assert launch(2, differing_shares) == [True, True]


# --- metrics and reports --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIZE)
def test_a_report_says_the_soft_value_beside_each_measure(kind):
    scores, target = batch(kind, 200)
    report, hard = made(ImbalanceReport, kind, soft=0.2), made(ImbalanceReport, kind)
    for each in (report, hard):
        each.update(scores, target)
    values, wanted = report.compute(), hard.compute()
    assert {name: values[name].item() for name in wanted} == {name: value.item() for name, value in wanted.items()}
    assert set(values) == set(wanted) | {f"{name}_soft" for name in ImbalanceReport.default_measures(task_of(kind))}
    for name, metric in ImbalanceReport.default_measures(task_of(kind)).items():
        single = made(metric, kind, soft=0.2)
        single.update(scores, target)
        assert values[f"{name}_soft"].item() == pytest.approx(single.compute().item(), rel=1e-6)
        of_counts, of_soft = single.evaluate(report.counts()).item(), single.evaluate(report.soft_counts()).item()
        assert values[f"{name}_soft"].item() == pytest.approx(0.8 * of_counts + 0.2 * of_soft, rel=1e-6)
        assert report[f"{name}_soft"].higher_is_better is report[name].higher_is_better
    assert torch.equal(report.local_confmat, hard.local_confmat)
    assert torch.equal(report.counts(), hard.counts())
    assert str(report.table()) == str(hard.table())


def test_forward_gives_the_value_of_the_batch():
    batches = [batch("many", 20, seed=seed) for seed in range(3)]
    report = made(ImbalanceReport, "many", soft=0.3, prefix="val_")
    metric = made(ImbalanceAccuracy, "many", soft=0.3)
    for scores, target in batches:
        alone = made(ImbalanceReport, "many", soft=0.3, prefix="val_")
        alone.update(scores, target)
        wanted = alone.compute()
        assert report(scores, target)["val_iam_soft"] == wanted["val_iam_soft"]
        assert metric(scores, target) == wanted["val_iam_soft"]
        assert wanted["val_iam_soft"] != wanted["val_iam"]
    whole = made(ImbalanceAccuracy, "many", soft=0.3)
    whole.update(*(torch.cat(parts) for parts in zip(*batches, strict=True)))
    assert metric.compute() == whole.compute() == report.compute()["val_iam_soft"]


def test_soft_values_are_read_at_the_prevalence():
    scores, target = batch("binary", 300)
    report = ImbalanceReport(
        "binary", soft=0.2, prevalence=[99, 1], intervals=True, measures={"p": imbtorch.Precision}, per_class=()
    )
    metric = imbtorch.Precision("binary", soft=0.2)
    for each in (report, metric):
        each.update(scores, target)
    assert set(report.compute()) == {"p", "p_low", "p_high", "p_soft"}
    parts = [
        imbtorch.at_prevalence(counts.double(), [99, 1]) for counts in (metric.local_confmat, metric.soft_counts())
    ]
    hard, soft_part = (imbtorch.precision(part, average="binary") for part in parts)
    wanted = 0.8 * hard + 0.2 * soft_part
    assert report.compute()["p_soft"].item() == pytest.approx(wanted.item(), rel=1e-6)
    assert metric.at_prevalence([99, 1]).item() == pytest.approx(wanted.item(), rel=1e-6)


def test_intervals_are_of_hard_counts():
    scores, target = batch("binary", 300)
    soft_metric, hard_metric = ImbalanceAccuracy("binary", soft=0.5), ImbalanceAccuracy("binary")
    for each in (soft_metric, hard_metric):
        each.update(scores, target)
    found = [
        each.interval(samples=200, generator=torch.Generator().manual_seed(0)) for each in (soft_metric, hard_metric)
    ]
    assert found[0].low == found[1].low
    assert found[0].high == found[1].high
    assert soft_metric.compute() != hard_metric.compute()


def scores_of(matrix):
    """Probabilities and targets of which a matrix is the confusion matrix; no two samples have the same."""
    size = len(matrix)
    cells = [(true, guess) for true in range(size) for guess in range(size) for _ in range(matrix[true][guess])]
    target, guess = torch.tensor(cells, dtype=torch.long).reshape(-1, 2).T
    rest = torch.rand(len(cells), size, generator=torch.Generator().manual_seed(size)).scatter(1, guess[:, None], 0)
    kept = 0.4 * torch.rand(len(cells), 1, generator=torch.Generator().manual_seed(0))
    rest = kept * rest / rest.sum(1, keepdim=True)
    return rest.scatter(1, guess[:, None], 1 - rest.sum(1, keepdim=True)), target


@functools.cache
def batches_of(task, size):
    """Batches of whole matrices, degenerate ones among them: classes without targets, predictions, hits, misses."""
    drawn = [scores_of(matrix) for matrix in special_matrices(size) if sum(map(sum, matrix)) < 1000]
    if task == "multiclass":
        return drawn
    drawn = [(scores[:, 1], target) for scores, target in drawn]
    if task == "binary":
        return drawn
    beside = scores_of([[5, 4], [6, 3]])  # a label with both classes
    some = [min(18, len(target)) for _, target in drawn]
    return [
        (torch.stack((scores[:n], beside[0][:n, 1]), 1), torch.stack((target[:n], beside[1][:n]), 1))
        for (scores, target), n in zip(drawn, some, strict=True)
    ]


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("task", SIZES_OF)
def test_a_soft_value_tends_to_the_hard_one(task, name):
    """Whatever the measure and average: a class that was never predicted once had its full soft precision."""
    size = 3 if task == "multiclass" else 2
    cases = [case for case in CASES if case.name == name and "average" not in case.arguments]
    for case, average in itertools.product(cases, averages(name, task) or (None,)):
        own = case.arguments if "costs" not in case.arguments or size == 2 else {}
        arguments = own_arguments(name, size) | own | ({"average": average} if average else {}) | {"threshold": 0.5}
        if "measure" in own:
            arguments["measure"] = getattr(imbtorch, own["measure"])
        for layout in layouts(name, task) if "weights" not in own else ("matrix",):
            soft_metric, hard_metric = (
                getattr(imbtorch, name)(task, **SIZES_OF[task], state=layout, **arguments, **share)
                for share in ({"soft": 1e-9}, {})
            )
            for scores, target in batches_of(task, size):
                for metric in (soft_metric, hard_metric):
                    metric.quiet = True  # some matrices are empty
                    metric.reset()
                    metric.update(scores, target)
                close(soft_metric.compute(), hard_metric.compute(), 1e-6)


@pytest.mark.parametrize("share", [0.5, 0.02, 1e-6])
def test_a_class_that_was_never_predicted_has_little_soft_precision(share):
    """180 samples of class 0 at p = .1 and 20 of class 1 at p = .45, all predicted as class 0."""
    target = torch.arange(200) >= 180
    report = ImbalanceReport("binary", soft=share, measures=list(NEVER_PREDICTED), per_class=())
    report.update(torch.where(target, 0.45, 0.1), target)
    values = report.compute()
    for name, (hard, of_soft) in NEVER_PREDICTED.items():
        assert values[name].item() == pytest.approx(hard)
        assert values[f"{name}_soft"].item() == pytest.approx((1 - share) * hard + share * of_soft, rel=1e-5)


# soft counts [[162, 18], [11, 9]]; what precision, recall, ... of these are, by hand
NEVER_PREDICTED = {
    "precision": (0.0, 9 / 27),
    "recall": (0.0, 9 / 20),
    "npv": (0.9, 162 / 173),
    "markedness": (0.0, 9 / 27 + 162 / 173 - 1),
    "likelihood_ratio": (1.0, (9 / 20) / (18 / 180)),
    "f1": (0.0, 18 / 47),
}


@pytest.mark.parametrize("case", [case for case in MEANS if "costs" not in case.arguments], ids=str)
def test_a_soft_value_is_a_share_of_that_of_exact_soft_counts(case):
    """Values of both matrices, in fractions."""
    for task, matrix in (("binary", [[7, 2], [0, 0]]), ("multiclass", [[5, 1, 0], [2, 0, 0], [1, 0, 0]])):
        size = len(matrix)
        arguments = case.complete(size)
        if size not in case.sizes() or arguments.get("threshold", 0.5) != 0.5:  # soft counts know no other threshold
            continue
        scores, target = scores_of(matrix)
        if "measure" in arguments:
            arguments["measure"] = getattr(imbtorch, arguments["measure"])
        metric = getattr(imbtorch, case.name)(task, **SIZES_OF[task], **arguments, soft=0.25)
        metric.update(scores[:, 1] if task == "binary" else scores, target)
        rows = as_rows("binary", scores[:, 1], target) if task == "binary" else (scores, target)
        hard, of_soft = (torch.tensor(case.reference(counts)) for counts in exact(*rows, size))
        close(metric.compute(), 0.75 * hard + 0.25 * of_soft, 1e-6)


def test_soft_counts_break_a_tie_in_favour_of_the_better_probabilities():
    target = torch.tensor([0, 0, 0, 1])
    values = {}
    for name, scores in {"sure": [0.1, 0.1, 0.1, 0.9], "unsure": [0.4, 0.4, 0.4, 0.6]}.items():
        report = ImbalanceReport("binary", soft=True)
        report.update(torch.tensor(scores), target)
        values[name] = report.compute()
    assert values["sure"]["iam"] == values["unsure"]["iam"]
    assert values["sure"]["iam_soft"] > values["unsure"]["iam_soft"]


def test_collections_share_counts_only_where_they_mean_the_same():
    scores, target = batch("multiclass")
    metrics = {
        "iam": ImbalanceAccuracy("multiclass", num_classes=5, soft=0.2),
        "recall": Recall("multiclass", num_classes=5, soft=0.2),
        "other": Recall("multiclass", num_classes=5, soft=0.4),
        "hard": Recall("multiclass", num_classes=5),
    }
    collection = MetricCollection({name: metric.clone() for name, metric in metrics.items()})
    for part in (slice(0, 20), slice(20, 60)):
        collection.update(scores[part], target[part])
    groups = sorted(sorted(group) for group in collection.compute_groups.values())
    assert groups == [["hard"], ["iam", "recall"], ["other"]]
    for name, metric in metrics.items():
        metric.update(scores, target)
        assert collection.compute()[name] == metric.compute()


def test_the_share_is_a_setting_that_travels():
    metric = ImbalanceAccuracy("multiclass", num_classes=3, soft=True)
    assert metric.soft == 0.02
    assert "soft=0.02" in repr(metric)
    assert ImbalanceAccuracy("multiclass", num_classes=3).soft == 0.0
    with pytest.raises(AttributeError, match="soft cannot be changed"):
        metric.soft = 0.5
    metric.update(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([0]))
    for other in (pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert torch.equal(other.soft_counts(), metric.soft_counts())
    merged = ImbalanceAccuracy("multiclass", num_classes=3, soft=True)
    merged.merge_state(metric)
    assert torch.equal(merged.soft_counts(), metric.soft_counts())
    with pytest.raises(ValueError, match="cannot merge counts"):
        ImbalanceAccuracy("multiclass", num_classes=3).merge_state(metric.metric_state)
    metric.reset()
    assert not any(state.any() for state in metric.metric_state.values())


def test_a_measure_without_a_direction_has_none_when_soft():
    report = ImbalanceReport(
        "binary", soft=True, measures={"dominance": Dominance, "mine": lambda counts: counts[0, 1]}
    )
    assert report["dominance_soft"].higher_is_better is None
    report.update(torch.tensor([0.25, 0.75]), torch.tensor([0, 1]))
    assert report.compute()["mine_soft"].item() == pytest.approx(0.02 * 0.25)


# --- faults and errors ----------------------------------------------------------------------------------------------

BAD = {
    "target": (lambda scores, target: target.__setitem__(3, 9), False, "target holds class 9"),
    "NaN": (lambda scores, target: scores.__setitem__((3, 2), torch.nan), False, "preds hold NaN scores"),
    "NaN logit": (lambda scores, target: scores.__setitem__((3, 2), torch.nan), True, "preds hold NaN or infinite"),
    "infinite logit": (lambda scores, target: scores.__setitem__((3, 2), torch.inf), True, "NaN or infinite logits"),
    "negative": (
        lambda scores, target: scores[3].add_(torch.tensor([-1.0, 1, 0, 0, 0])),
        False,
        "must be probabilities",
    ),
    "above 1": (lambda scores, target: scores[3].mul_(0).add_(torch.eye(5)[1] * 1.005), False, "got 1.005"),
    "sum": (lambda scores, target: scores[3].mul_(0.9), False, "sum to 1 over all classes"),
}
PLACES = {"target": 0, "NaN": 2, "NaN logit": 2, "infinite logit": 2, "negative": 3, "above 1": 3, "sum": 4}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("classes", [5, 30])
def test_what_cannot_be_counted_raises_and_leaves_the_counts(name, classes):
    spoil, logits, text = BAD[name]
    scores, target = batch("multiclass", logits=logits)
    padding = torch.full((60, classes - 5), -torch.inf if logits else 0.0)
    good = torch.cat((scores, padding), 1), target.clone()
    spoil(scores, target)
    bad = torch.cat((scores, padding), 1), target if name != "target" else target.masked_fill(target == 9, 99)
    metric = ConfusionMatrix("multiclass", num_classes=classes, soft=True, logits=logits)
    metric.update(*good)
    before = metric.soft_counts()
    with pytest.raises(ValueError, match=text.replace("class 9", "class 99")):
        metric.update(*bad)
    assert torch.equal(metric.soft_counts(), before)
    warning = ConfusionMatrix("multiclass", num_classes=classes, soft=True, logits=logits, on_invalid="warn")
    warning.update(*bad)
    (state,) = warning.metric_state.values()
    assert state[-len(FAULTS) :].tolist() == [int(place == PLACES[name]) for place in range(len(FAULTS))]
    with pytest.warns(UserWarning, match="did not count 1 of the samples"):
        got = warning.compute()
    kept = torch.arange(60) != 3
    wanted = ConfusionMatrix("multiclass", num_classes=classes, soft=True, logits=logits)
    wanted.update(good[0][kept], good[1][kept])
    torch.testing.assert_close(got, wanted.compute(), rtol=1e-6, atol=1e-7)


def test_probabilities_of_two_classes_outside_their_range_leave_the_counts():
    metric = ImbalanceAccuracy("binary", soft=True)
    metric.update(torch.tensor([0.2, 0.9]), torch.tensor([0, 1]))
    before = metric.soft_counts()
    for scores, words in (([0.2, 1.5], "preds must be probabilities"), ([0.2, torch.nan], "preds hold NaN")):
        with pytest.raises(ValueError, match=words):
            metric.update(torch.tensor(scores), torch.tensor([0, 1]))
    assert torch.equal(metric.soft_counts(), before)
    tallying = ImbalanceAccuracy("binary", soft=True, on_invalid="warn")
    tallying.update(torch.tensor([0.2, 1.5, 0.9, torch.nan]), torch.tensor([0, 1, 1, 7]))
    with pytest.warns(UserWarning, match="1 targets out of range, 1 probabilities outside"):
        assert torch.equal(tallying.soft_counts(), before)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_classes_in_place_of_scores_are_refused(task):
    metric = ImbalanceAccuracy(task, soft=True, **({"num_classes": 3} if task == "multiclass" else {}))
    for preds in (torch.tensor([0, 1]), torch.tensor([False, True])):
        with pytest.raises(TypeError, match=r"preds must be floating scores, since soft=0\.02.*logits=True"):
            metric.update(preds, torch.tensor([0, 1]))


def test_raw_scores_say_what_to_do():
    with pytest.raises(ValueError, match=r"must be probabilities.*pass logits=True"):
        soft_confusion_matrix(torch.tensor([[3.0, -1.0]]), torch.tensor([0]), "multiclass", num_classes=2)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"soft": 1.0}, ValueError, r"soft must be above 0 and below 1, got 1\.0"),
        ({"soft": 2}, ValueError, "soft must be above 0 and below 1, got 2"),
        ({"soft": -0.1}, ValueError, "soft must be above 0 and below 1"),
        ({"soft": float("nan")}, ValueError, "soft must be above 0 and below 1"),
        ({"soft": "yes"}, TypeError, "soft must be True, False or a share"),
        ({"soft": True, "threshold": 0.3}, ValueError, r"cannot be combined with threshold=0\.3"),
        (
            {"soft": True, "measures": {"iam": Accuracy, "iam_soft": Accuracy}},
            ValueError,
            "measures already contains 'iam_soft', which soft=True adds",
        ),
        (
            {"measures": {"iam": ImbalanceAccuracy("binary", soft=0.1)}},
            ValueError,
            "was made with .*, but the counts have",
        ),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, text):
    with pytest.raises(error, match=text):
        ImbalanceReport("binary", **arguments)


def test_soft_counts_that_were_not_kept():
    with pytest.raises(ValueError, match="ImbalanceReport keeps no soft counts; build it with soft=True"):
        ImbalanceReport("binary").soft_counts()


def test_soft_counts_refuse_what_compute_refuses(monkeypatch):
    metric = ImbalanceAccuracy("binary", soft=True)
    monkeypatch.setattr("imbtorch.metrics.base.reading_is_free", lambda _: False)  # as on a device, which defers
    metric.update(torch.tensor([0.5, 2.0]), torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="did not count 1 of the samples"):
        metric.soft_counts()


def test_an_instance_that_is_not_soft_is_read_softly_in_a_report():
    report = ImbalanceReport("binary", soft=0.5, measures={"iam": ImbalanceAccuracy("binary")})
    report.update(torch.tensor([0.25, 0.75]), torch.tensor([0, 1]))
    assert report.compute()["iam_soft"].item() == pytest.approx(2 * 0.875 - 1)


def test_empty_batches_and_single_samples():
    metric = ImbalanceAccuracy("binary", soft=True)
    metric.update(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    metric.update(torch.tensor(0.75), torch.tensor(1))
    assert metric.soft_counts().tolist() == [[0, 0], [0, 1]]  # class 0 is not there
    several = ImbalanceAccuracy("multiclass", num_classes=3, soft=True)
    several.update(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    assert not several.soft_counts().any()


# --- interrupts -----------------------------------------------------------------------------------------------------


def interrupted(work, instructions):
    """Run, with a KeyboardInterrupt after so many instructions of imbtorch; return whether it came so far."""

    def trace(frame, event, _):
        nonlocal instructions
        if Path(frame.f_code.co_filename).parent != Path(imbtorch.__file__).parent:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        instructions -= event == "opcode"
        if instructions < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize(
    ("task", "size", "groups", "on_device"),
    [
        ("multiclass", 300, None, False),
        ("multiclass", 300, None, True),
        ("multiclass", 10, 700, False),
        ("multilabel", 17_000, None, False),
        ("binary", None, 3, True),
    ],
)
def test_an_interrupt_parts_no_soft_counts_from_hard_ones(task, size, groups, on_device, request):
    """Also where there are more than 65,536 cells, which the CPU does not count in blocks."""
    if on_device:
        request.getfixturevalue("accelerator")
    generator = torch.Generator().manual_seed(0)
    shape = (5, size) if task == "multilabel" else (5,)
    target = torch.randint(2 if task != "multiclass" else size, shape, generator=generator)
    scores = torch.rand(*shape, *([size] if task == "multiclass" else []), generator=generator)
    number = {} if size is None else {"num_labels" if task == "multilabel" else "num_classes": size}
    counting = Counting.of(task, **number, soft=True, logits=True, groups=groups)
    group = None if groups is None else torch.tensor([0, 2, 1, 1, 0])
    empty, full = counting.zeros(), counting.zeros()
    batch = counting.with_axes(counting.read(scores, target), target, group, None)
    counting.add_(full, batch, defer=lambda: False)
    seen = set()
    for instructions in itertools.count(0, 5):
        state = counting.zeros()
        stopped = interrupted(lambda state=state: counting.add_(state, batch, defer=lambda: False), instructions)
        assert torch.equal(state, full) or (stopped and torch.equal(state, empty))
        seen.add((stopped, bool(state.any())))
        if not stopped:
            break
    assert {(True, False), (False, True)} <= seen


# --- graphs and training loops --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "layout"), [*((kind, "matrix") for kind in SIZE), ("many", "margins")])
def test_counting_is_one_graph(kind, layout):
    torch.compiler.reset()
    for logits in (False, True):
        counting = made(Counting.of, kind, soft=True, logits=logits, ignore_index=-100, layout=layout)
        step = traced(
            lambda state, scores, target, counting=counting: counting.add_(
                state, counting.read(scores, target), defer=lambda: True
            )
        )
        state, expected = counting.zeros(), counting.zeros()
        for seed, samples in enumerate((60, 60, 17)):
            scores, target = batch(kind, samples, seed, logits=logits)
            target.view(-1)[7] = -100
            step(state, scores, target)
            counting.add_(expected, counting.read(scores, target), defer=lambda: True)
        difference = (state - expected).abs()
        assert not difference[: counting.table.cells].any()
        assert difference.max() <= (2 * 137 if logits else 0)  # softmax itself may differ in the last bit
        assert not counting.faults(state).any()
    torch.compiler.reset()


def test_no_value_is_read_and_no_kernel_depends_on_it():
    """What a device would wait for cannot run on tensors without values."""
    counting = Counting.of("multiclass", 5, soft=True)
    state = torch.zeros(counting.cells + 5, dtype=torch.long, device="meta")
    scores, target = (part.to("meta") for part in batch("multiclass"))
    counting.add_(state, counting.read(scores, target), defer=lambda: True)
    two = Counting.of("binary", soft=True, logits=True)
    state = torch.zeros(two.cells + 5, dtype=torch.long, device="meta")
    scores, target = (part.to("meta") for part in batch("two columns"))
    two.add_(state, two.read(scores, target), defer=lambda: True)


class Scores(lightning.LightningModule):
    """Predicts the same classes in each epoch, more surely right in the third of five."""

    SURE = (0.6, 0.7, 0.95, 0.8, 0.55)

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.val = ImbalanceReport("binary", class_names=["ok", "fraud"], prefix="val_", soft=True)

    def training_step(self, batch, batch_idx):
        return self.weight.square().sum()

    def validation_step(self, batch, batch_idx):
        (target,) = batch
        sure = self.SURE[self.current_epoch]
        self.val.update(torch.where(target == 1, sure, 1 - sure), target)

    def on_validation_epoch_end(self):
        self.log_dict(self.val)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fitted(folder, mode, monitor="val_iam_soft"):
    checkpoint = ModelCheckpoint(folder, "{epoch}", monitor=monitor, mode=mode)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=5,
        callbacks=[checkpoint],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    loader = DataLoader(TensorDataset(torch.tensor([0, 0, 0, 1, 1])), batch_size=2)
    trainer.fit(Scores(), loader, loader)
    return checkpoint


THIRD_PARTY = (r"`isinstance\(treespec, LeafSpec\)` is deprecated", r"The '\w+_dataloader' does not have many workers")


@pytest.mark.filterwarnings(*[f"ignore:{text}" for text in THIRD_PARTY])
def test_lightning_keeps_the_best_of_epochs_that_tie(tmp_path):
    assert "epoch=2" in fitted(tmp_path / "soft", "max").best_model_path
    assert "epoch=0" in fitted(tmp_path / "hard", "max", "val_iam").best_model_path  # all tie: the earliest
    with pytest.raises(ValueError, match=r"monitor='val_iam_soft'\) has mode='min', but of 'val_iam_soft' higher"):
        fitted(tmp_path / "wrong", "min")


@pytest.mark.parametrize(
    "scores",
    [[[3.0, -1.0, 0.5], [0.0, 2.0, 1.0], [-1.0, 0.0, 4.0]], [[0.9, 0.8, 0.7], [0.1, 0.9, 0.3], [0.2, 0.1, 0.6]]],
    ids=["logits", "sigmoids"],
)
def test_raw_scores_are_answered_with_the_call_that_takes_them(scores):
    """Which hard counts of the same report take: what is advised must work as it stands."""
    preds, target = torch.tensor(scores), torch.arange(3)  # each is right
    ImbalanceReport("multiclass", num_classes=3).update(preds, target)
    with pytest.raises(ValueError, match=r"logits=True for raw scores, as in ImbalanceReport\(") as told:
        ImbalanceReport("multiclass", num_classes=3, soft=True).update(preds, target)
    report = eval(str(told.value).partition(", as in ")[2])
    report.update(preds, target)
    powers = np.exp(np.array(scores, dtype=np.float64))
    assert report.soft_counts().numpy() == pytest.approx(powers / powers.sum(1, keepdims=True), abs=1e-7)
