"""Counting: every cell of every task, whatever the dtype or layout, and every complaint about unusable input."""

import itertools
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rooms import FAULTS, Counting, below, kernels
from sklearn import metrics as sklearn_metrics
from torchmetrics.functional import classification as tm

import imbtorch
from imbtorch import Accuracy, ConfusionMatrix, Margins, Recall, ThresholdSweep, confusion_matrix, margins

INTEGERS = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
)
LARGEST = {torch.bool: 1, torch.int8: 127}  # the others hold 199 and more
SIZE = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}
NAN = float("nan")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def counted(preds, target, size):
    """Confusion matrix by a plain loop over class indices."""
    matrix = [[0] * size for _ in range(size)]
    for predicted, true in zip(preds.flatten().tolist(), target.flatten().tolist(), strict=True):
        matrix[int(true)][int(predicted)] += 1
    return torch.tensor(matrix)


def labels_first(x):
    """[N, L, ...] to [samples, L], as scikit-learn wants multilabel data."""
    return x.movedim(1, -1).flatten(0, -2).int().numpy()


def count(counting, state, preds, target, masked):
    """Add a batch; masked as on an accelerator, where no value can be read beforehand."""
    with patch("imbtorch.counting.batches.reading_is_free", return_value=not masked) as asked:
        counting.add_(state, counting.read(preds, target), defer=lambda: masked)
    assert asked.called or not target.numel()  # else nothing was masked
    return state


def faults(*first):
    """Numbers of all faults, of which these are the first, the others 0."""
    return [*first, *[0] * (len(FAULTS) - len(first))]


def state_of(counting, preds, target, masked=False):
    return count(counting, counting.zeros(), preds, target, masked)


# --- against scikit-learn and torchmetrics ---------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [(), (7,), (4, 5)], ids=str)
@pytest.mark.parametrize("size", [2, 5, 17])
def test_multiclass_equals_peers(size, extra):
    target = torch.randint(size, (40, *extra), generator=generator())
    scores = torch.randn(40, size, *extra, generator=generator(1))
    labels = scores.argmax(1)
    expected = sklearn_metrics.confusion_matrix(target.flatten(), labels.flatten(), labels=range(size))
    for preds in (scores, scores.softmax(1), labels):
        counts = confusion_matrix(preds, target, "multiclass", num_classes=size)
        assert counts.dtype == torch.int64
        assert counts.tolist() == expected.tolist()
        assert torch.equal(counts, tm.multiclass_confusion_matrix(preds, target, size))


@pytest.mark.parametrize("extra", [(), (7,), (4, 5)], ids=str)
def test_binary_equals_peers(extra):
    target = torch.randint(2, (40, *extra), generator=generator())
    chances = torch.rand(40, *extra, generator=generator(1))
    labels = (chances > 0.5).long()
    expected = sklearn_metrics.confusion_matrix(target.flatten(), labels.flatten(), labels=[0, 1])
    for preds in (chances, labels):
        counts = confusion_matrix(preds, target, "binary")
        assert counts.tolist() == expected.tolist()
        assert torch.equal(counts, tm.binary_confusion_matrix(preds, target))


@pytest.mark.parametrize("extra", [(), (7,), (4, 5)], ids=str)
@pytest.mark.parametrize("size", [2, 5])
def test_multilabel_equals_peers(size, extra):
    target = torch.randint(2, (40, size, *extra), generator=generator())
    chances = torch.rand(40, size, *extra, generator=generator(1))
    labels = (chances > 0.5).long()
    expected = sklearn_metrics.multilabel_confusion_matrix(labels_first(target), labels_first(labels))
    for preds in (chances, labels):
        counts = confusion_matrix(preds, target, "multilabel", num_labels=size)
        assert counts.tolist() == expected.tolist()
        assert torch.equal(counts, tm.multilabel_confusion_matrix(preds, target, size))


@pytest.mark.parametrize(
    ("preds", "target"),
    [
        pytest.param([0, 2, 2, 0], [0, 2, 0, 2], id="absent class"),
        pytest.param([0, 1, 2, 1], [0, 0, 2, 2], id="class without targets"),
        pytest.param([1, 1, 1], [1, 1, 1], id="single class"),
        pytest.param([2], [0], id="one sample"),
        pytest.param([], [], id="empty batch"),
    ],
)
def test_degenerate_batches(preds, target):
    preds, target = torch.tensor(preds, dtype=torch.long), torch.tensor(target, dtype=torch.long)
    expected = counted(preds, target, 3)
    scores = torch.eye(3)[preds]
    for either in (preds, scores):
        assert torch.equal(confusion_matrix(either, target, "multiclass", num_classes=3), expected)
        counting = Counting.of("multiclass", 3, layout="margins")
        correct, actual, predicted = counting.counts(state_of(counting, either, target))
        assert torch.equal(correct, expected.diagonal())
        assert torch.equal(actual, expected.sum(1))
        assert torch.equal(predicted, expected.sum(0))


@pytest.mark.parametrize("task", SIZE)
@pytest.mark.parametrize("masked", [False, True])
def test_empty_batches_of_scores(task, masked):
    shapes = {"binary": ((0,), (0,)), "multiclass": ((0, 3, 4), (0, 4)), "multilabel": ((0, 3), (0, 3))}
    preds, target = (torch.zeros(shape) for shape in shapes[task])
    assert not state_of(Counting.of(task, **SIZE[task]), preds, target.long(), masked).any()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("predicted_dtype", INTEGERS, ids=str)
def test_every_integer_dtype(dtype, predicted_dtype):
    size = min(LARGEST.get(dtype, 199), LARGEST.get(predicted_dtype, 199)) + 1
    target = torch.cat((torch.tensor([size - 1]), torch.randint(size, (300,), generator=generator())))
    preds = torch.cat((torch.tensor([size - 1]), torch.randint(size, (300,), generator=generator(1))))
    expected = counted(preds, target, size)
    batch = preds.to(predicted_dtype), target.to(dtype)
    assert torch.equal(confusion_matrix(*batch, "multiclass", num_classes=size), expected)
    for layout, masked in itertools.product(("matrix", "margins"), (False, True)):
        counting = Counting.of("multiclass", size, layout=layout)
        counts = counting.counts(state_of(counting, *batch, masked))
        actual = counts.actual if isinstance(counts, Margins) else counts.sum(1)
        assert actual.tolist() == expected.sum(1).tolist()
    preds, target = preds % 2, target % 2
    batch = preds.to(predicted_dtype), target.to(dtype)
    expected = counted(preds, target, 2)
    assert torch.equal(confusion_matrix(*batch, "binary"), expected)
    batch = tuple(each.unsqueeze(1) for each in batch)
    assert torch.equal(confusion_matrix(*batch, "multilabel", num_labels=1)[0], expected)


@pytest.mark.parametrize("dtype", [np.bool_, *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8))], ids=str)
def test_all_values_are_compared_in_any_dtype(dtype):
    # where this fails no count is wrong, but each batch of the dtype is counted with masks
    least, most = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for values in ([0], [0, 1], [1, 100, 2], [most], [least], [0, least // 2], [most // 2, 1]):
        if max(values) <= most:
            for limit in (1, 2, 3, 100, 101, most // 2 + 1, most, most + 1):
                assert below(np.array(values, dtype), limit) == all(0 <= value < limit for value in values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_floating_dtype(dtype):
    scores = torch.randn(200, 6, generator=generator()).to(dtype)
    target = torch.randint(6, (200,), generator=generator(1))
    best = torch.tensor([row.index(max(row)) for row in scores.tolist()])  # bfloat16 ties: the first of the highest
    assert torch.equal(confusion_matrix(scores, target, "multiclass", num_classes=6), counted(best, target, 6))
    chances, truth = scores[:, :1].sigmoid(), target[:, None] % 2
    for threshold in (0.3, 0.5, chances[7].item()):
        limit = torch.tensor(threshold, dtype=dtype).item()
        expected = counted(torch.tensor([chance > limit for chance in chances.flatten().tolist()]), truth, 2)
        assert torch.equal(confusion_matrix(chances, truth, "binary", threshold=threshold), expected)
        several = confusion_matrix(chances, truth, "multilabel", num_labels=1, threshold=threshold)
        assert torch.equal(several[0], expected)


def test_ties_go_to_the_first_class():
    scores = torch.tensor([[0.2, 0.4, 0.4], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]])
    target = torch.tensor([0, 1, 2])
    expected = counted(torch.tensor(np.argmax(scores.numpy(), 1)), target, 3)
    assert torch.equal(confusion_matrix(scores, target, "multiclass", num_classes=3), expected)


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_scores_are_compared_as_python_does(dtype, margin):
    """The first of equal ones; NaN of an ignored sample does not matter, and that of another is an error."""
    inf, nan = float("inf"), float("nan")
    pairs = list(itertools.product([-inf, -1.0, -0.0, 0.0, 1e-45, 1.0, inf], repeat=2))
    target = [index % 2 for index in range(len(pairs))]
    wide = torch.tensor([(*pair, 9.0)[: 2 + margin] for pair in [*pairs, (nan, 0.0), (0.0, nan)]], dtype=dtype)
    scores, truth = wide[:, :2], torch.tensor([*target, -1, -1])
    found = confusion_matrix(scores, truth, "multiclass", num_classes=2, ignore_index=-1)
    expected = counted(torch.tensor([pair.index(max(pair)) for pair in scores[:-2].tolist()]), truth[:-2], 2)
    assert torch.equal(found, expected)
    for row in (-2, -1):
        with pytest.raises(ValueError, match="NaN"):
            confusion_matrix(scores[[0, row]], truth[[0, 1]], "multiclass", num_classes=2)


def test_infinite_scores_count():
    inf = float("inf")
    scores, target = torch.tensor([[-inf, 0.0, -inf], [0.0, 1.0, inf]]), torch.tensor([1, 0])
    expected = [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert confusion_matrix(scores, target, "multiclass", num_classes=3).tolist() == expected
    assert confusion_matrix(torch.tensor([-inf, inf]), torch.tensor([0, 0]), "binary", logits=True).tolist() == [
        [1, 1],
        [0, 0],
    ]


@pytest.mark.parametrize("threshold", [0, 0.0, 0.25, 0.5, 0.75, 1, 1.0])
def test_strictly_above_the_threshold_predicts_1(threshold):
    chances = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0, 0.1, 0.6])
    target = torch.tensor([0, 1, 0, 1, 1, 1, 0])
    expected = counted(torch.tensor([chance > threshold for chance in chances.tolist()]), target, 2)
    assert torch.equal(confusion_matrix(chances, target, "binary", threshold=threshold), expected)
    assert torch.equal(tm.binary_confusion_matrix(chances, target, threshold=float(threshold)), expected)
    columns = chances[:, None], target[:, None]
    assert torch.equal(confusion_matrix(*columns, "multilabel", num_labels=1, threshold=threshold)[0], expected)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_logits_equal_their_probabilities(threshold):
    logits = 4 * torch.randn(200, 3, generator=generator())
    target = torch.randint(2, (200, 3), generator=generator(1))
    for task in ("binary", "multilabel"):
        counts = confusion_matrix(logits, target, task, **SIZE[task], threshold=threshold, logits=True)
        assert torch.equal(counts, confusion_matrix(logits.sigmoid(), target, task, **SIZE[task], threshold=threshold))
    assert torch.equal(counts, tm.multilabel_confusion_matrix(logits, target, 3, threshold=threshold))


@pytest.mark.parametrize("normalize", ["true", "pred", "all"])
def test_normalize_equals_sklearn(normalize):
    target = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0])
    preds = torch.tensor([0, 1, 1, 1, 2, 3, 0, 0])  # class 2 has no targets, class 4 neither
    rates = confusion_matrix(preds, target, "multiclass", num_classes=5, normalize=normalize)
    expected = sklearn_metrics.confusion_matrix(target, preds, labels=range(5), normalize=normalize)
    assert rates.dtype == torch.get_default_dtype()
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    columns = preds.view(4, 2) % 2, target.view(4, 2) % 2
    rates = confusion_matrix(*columns, "multilabel", num_labels=2, normalize=normalize)
    for label in range(2):
        one = sklearn_metrics.confusion_matrix(
            columns[1][:, label], columns[0][:, label], labels=[0, 1], normalize=normalize
        )
        np.testing.assert_allclose(rates[label], one, rtol=1e-6)
    np.testing.assert_allclose(
        confusion_matrix(columns[0], columns[1], "binary", normalize=normalize),
        sklearn_metrics.confusion_matrix(target % 2, preds % 2, normalize=normalize),
        rtol=1e-6,
    )


def test_what_torchmetrics_counts_wrong():
    # class indices out of range land in other classes' cells, with its validation on
    wrong = tm.multiclass_confusion_matrix(torch.tensor([3, -1]), torch.tensor([0, 1]), 3, validate_args=True)
    assert wrong.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    for bad in ([3, 1], [0, -1]):
        with pytest.raises(ValueError, match="preds"):
            confusion_matrix(torch.tensor(bad), torch.tensor([0, 1]), "multiclass", num_classes=3)
    # a diverged model predicts class 0
    scores, target = torch.full((2, 3), NAN), torch.tensor([0, 1])
    assert tm.multiclass_confusion_matrix(scores, target, 3)[:, 0].sum() == 2
    with pytest.raises(ValueError, match="NaN"):
        confusion_matrix(scores, target, "multiclass", num_classes=3)
    # whether scores are logits is guessed anew for each batch
    small, target = torch.tensor([0.1, 0.4]), torch.tensor([1, 1])
    assert tm.binary_confusion_matrix(small, target)[1].tolist() == [2, 0]
    assert tm.binary_confusion_matrix(torch.tensor([0.1, 0.4, 2.0]), torch.tensor([1, 1, 1]))[1].tolist() == [0, 3]
    assert confusion_matrix(small, target, "binary", logits=True)[1].tolist() == [0, 2]


# --- ignore_index ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", ["matrix", "margins"])
@pytest.mark.parametrize(
    ("ignore_index", "dtype"),
    [
        (-100, torch.int64),
        (-1, torch.int8),
        (255, torch.uint8),
        (255, torch.int64),
        (3, torch.uint16),
        (0, torch.uint8),
        (2, torch.int32),
        (2**63 - 1, torch.int64),
    ],
)
def test_ignored_samples_leave_no_trace(ignore_index, dtype, layout, masked):
    target = torch.randint(3, (60,), generator=generator())
    scores = torch.rand(60, 3, generator=generator(1))
    target[::4] = ignore_index
    ignored = target == ignore_index
    preds = scores.argmax(1)
    garbage_preds, garbage_scores = preds.clone(), scores.clone()
    garbage_preds[ignored], garbage_scores[ignored] = 10**12, NAN
    counting = Counting.of("multiclass", 3, ignore_index=ignore_index, layout=layout)
    plain = Counting.of("multiclass", 3, layout=layout)
    expected = state_of(plain, preds[~ignored], target[~ignored])
    assert plain.faults(expected).sum() == 0
    for each in (preds, scores, garbage_preds, garbage_scores):
        assert torch.equal(state_of(counting, each, target.to(dtype), masked), expected)
    if layout == "matrix":
        matrix = counted(preds[~ignored], target[~ignored], 3)
        assert torch.equal(counting.counts(expected), matrix)
        peer = tm.multiclass_confusion_matrix(preds, target, 3, ignore_index=ignore_index)
        assert torch.equal(peer, matrix)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.parametrize("ignore_index", [-1, 0, 1, 255])
def test_ignored_labels_leave_no_trace(task, ignore_index, masked):
    target = torch.randint(2, (50, 3), generator=generator())
    chances = torch.rand(50, 3, generator=generator(1))
    target[torch.rand(50, 3, generator=generator(2)) < 0.3] = ignore_index
    ignored = target == ignore_index
    garbage = chances.masked_fill(ignored, NAN)
    garbage[ignored.nonzero()[0].tolist()[0], ignored.nonzero()[0].tolist()[1]] = 7.0
    expected = [counted(chances[:, i][~ignored[:, i]] > 0.5, target[:, i][~ignored[:, i]], 2) for i in range(3)]
    expected = torch.stack(expected) if task == "multilabel" else sum(expected)
    counting = Counting.of(task, **SIZE[task], ignore_index=ignore_index)
    for preds in (chances, garbage):
        state = state_of(counting, preds, target, masked)
        assert torch.equal(counting.counts(state), expected)
        assert not counting.faults(state).any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("ignore_index", [-1, 300, -(2**63), -(2**63) - 1, 2**70])
def test_an_ignore_index_that_no_target_has_ignores_nothing(ignore_index, dtype, masked):
    target = torch.tensor([0, 1, 2, 2], dtype=dtype)
    counting = Counting.of("multiclass", 3, ignore_index=ignore_index)
    for preds in (target, torch.eye(3)[target.long()]):
        state = state_of(counting, preds, target, masked)
        assert counting.counts(state).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 2]]


def test_255_in_uint8_targets_is_not_minus_1():
    target = torch.tensor([0, 1, 2, 255], dtype=torch.uint8)
    with pytest.raises(ValueError, match="target holds class 255"):
        confusion_matrix(target, target, "multiclass", num_classes=3, ignore_index=-1)


def test_an_ignore_index_beyond_int64_is_not_minus_1():
    assert not (torch.tensor([-1]) != 2**64 - 1).any()  # as torch compares them
    counting = Counting.of("multiclass", 3, ignore_index=2**64 - 1)
    state = state_of(counting, torch.tensor([0, 0]), torch.tensor([0, -1]), masked=True)
    assert counting.faults(state).tolist() == faults(1)


# --- layouts, chunks, memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", SIZE)
def test_strided_inputs(task):
    shape = (12, 3) if task == "multilabel" else (12,)
    target = torch.randint(3 if task == "multiclass" else 2, (*shape, 2), generator=generator())[..., 0]
    preds = torch.rand(*shape[:1], 3, *shape[2:], 2, generator=generator(1))[..., 1]
    preds = preds[:, 0] if task == "binary" else preds
    assert not preds.is_contiguous()
    contiguous = confusion_matrix(preds.contiguous(), target.contiguous(), task, **SIZE[task])
    assert torch.equal(confusion_matrix(preds, target, task, **SIZE[task]), contiguous)
    assert contiguous.sum() == target.numel()
    expanded = target[:1].expand(target.shape), preds[:1].expand(preds.shape)
    repeated = confusion_matrix(preds[:1], target[:1], task, **SIZE[task])
    assert torch.equal(confusion_matrix(expanded[1], expanded[0], task, **SIZE[task]), 12 * repeated)


def test_segmentation_scores_in_channels_last():
    scores = torch.randn(2, 5, 6, 7, generator=generator()).to(memory_format=torch.channels_last)
    target = torch.randint(5, (2, 7, 6), generator=generator(1)).transpose(1, 2)
    expected = sklearn_metrics.confusion_matrix(target.flatten(), scores.argmax(1).flatten(), labels=range(5))
    assert confusion_matrix(scores, target, "multiclass", num_classes=5).tolist() == expected.tolist()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("task", SIZE)
def test_counts_of_scores_that_require_grad(task, masked):
    preds = torch.rand(4) if task == "binary" else torch.rand(4, 3)
    target = torch.zeros(preds.shape if task == "multilabel" else 4, dtype=torch.long)
    state = state_of(Counting.of(task, **SIZE[task]), preds.requires_grad_(), target, masked)
    assert not state.requires_grad
    assert state.sum() == target.numel()


@given(
    task=st.sampled_from(["binary", "multiclass", "margins", "multilabel"]),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    masked=st.lists(st.booleans(), min_size=9, max_size=9),
    ignore_index=st.sampled_from([None, -1, 0]),
    scores=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_chunks_of_any_size_equal_one_update(task, cuts, masked, ignore_index, scores, seed):
    layout = "margins" if task == "margins" else "matrix"
    task = "multiclass" if task == "margins" else task
    random = generator(seed)
    target = torch.randint(2 if task != "multiclass" else 3, (60, 3), generator=random)
    target = target if task == "multilabel" else target[:, 0]
    if ignore_index is not None:
        target[::5] = ignore_index
    preds = torch.rand(60, 3, generator=random)
    if not scores:
        preds = preds.argmax(1) if task == "multiclass" else preds.round().long()
    preds = preds[:, 0] if task == "binary" else preds
    counting = Counting.of(task, **SIZE[task], ignore_index=ignore_index, layout=layout)
    state = counting.zeros()
    bounds = [0, *sorted(cuts), 60]
    for (start, stop), mask in zip(itertools.pairwise(bounds), masked, strict=False):
        count(counting, state, preds[start:stop], target[start:stop], mask)
    assert torch.equal(state, state_of(counting, preds, target))
    kept = target != ignore_index if ignore_index is not None else torch.ones_like(target, dtype=torch.bool)
    actual = margins(counting.counts(state)).actual
    assert actual.sum() == kept.sum()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ignore_index", [None, 1, -1])
@pytest.mark.parametrize("scores", [False, True])
def test_margins_layout_equals_margins_of_the_matrix(scores, ignore_index, masked):
    preds = torch.randn(100, 4, generator=generator())
    target = torch.randint(0 if ignore_index != -1 else -1, 4, (100,), generator=generator(1))
    preds = preds if scores else preds.argmax(1)
    kept = target != ignore_index
    expected = counted((preds.argmax(1) if scores else preds)[kept], target[kept], 4)
    counting = Counting.of("multiclass", 4, ignore_index=ignore_index, layout="margins")
    correct, actual, predicted = counting.counts(state_of(counting, preds, target, masked))
    assert torch.equal(correct, expected.diagonal())
    assert torch.equal(actual, expected.sum(1))
    assert torch.equal(predicted, expected.sum(0))


# --- values that cannot be counted -----------------------------------------------------------------------------------

BAD = [  # task, preds, target, place of the spare cell, words of the message
    pytest.param(
        "multiclass", [0, 1, 2], [0, 3, 1], 0, ["target", "class 3", "num_classes=3", "ignore_index=3", "target - 1"]
    ),
    pytest.param("multiclass", [0, 1, 2], [0, 255, 1], 0, ["target", "class 255", "0..2", "ignore_index=255"]),
    pytest.param("multiclass", [0, 1, 2], [0, -1, 1], 0, ["target", "class -1", "0..2", "ignore_index=-1"]),
    pytest.param("multiclass", [0, 3, 2], [0, 1, 1], 1, ["preds", "class 3", "num_classes=3", "0..2"]),
    pytest.param("multiclass", [0, -1, 2], [0, 1, 1], 1, ["preds", "class -1", "num_classes=3", "0..2"]),
    pytest.param(
        "multiclass", [[0.9, 0.1, 0.0], [0.0, NAN, 0.0], [0.0, 0.0, 1.0]], [0, 1, 1], 2, ["preds", "NaN", "1 of 3"]
    ),
    pytest.param("binary", [0, 1, 1], [0, 2, 1], 0, ["target", "class 2", "task='binary'", "ignore_index=2"]),
    pytest.param("binary", [0, 2, 1], [0, 1, 1], 1, ["preds", "class 2", "0..1"]),
    pytest.param("binary", [0.1, NAN, 0.8], [0, 1, 1], 2, ["preds", "NaN", "1 of 3"]),
    pytest.param("binary", [0.1, 1.25, 0.8], [0, 1, 1], 3, ["preds", "1.25", "probabilities in [0, 1]", "logits=True"]),
    pytest.param("binary", [0.1, -0.5, 0.8], [0, 1, 1], 3, ["preds", "-0.5", "probabilities in [0, 1]", "logits=True"]),
    pytest.param("multilabel", [[0, 1, 1]], [[0, -7, 1]], 0, ["target", "class -7", "ignore_index=-7"]),
    pytest.param("multilabel", [[0, 9, 1]], [[0, 1, 1]], 1, ["preds", "class 9", "0..1"]),
    pytest.param("multilabel", [[0.1, NAN, 0.8]], [[0, 1, 1]], 2, ["preds", "NaN"]),
    pytest.param("multilabel", [[0.1, 3.5, 0.8]], [[0, 1, 1]], 3, ["preds", "3.5", "logits=True"]),
]


def layouts(task):
    return ("matrix", "margins") if task == "multiclass" else ("matrix",)


@pytest.mark.parametrize(("task", "preds", "target", "fault", "words"), BAD)
def test_bad_values_raise_at_once_and_leave_no_trace(task, preds, target, fault, words):
    preds, target = torch.tensor(preds), torch.tensor(target)
    with pytest.raises(ValueError, match="target" if fault == 0 else "preds") as error:
        confusion_matrix(preds, target, task, **SIZE[task])
    assert not [word for word in words if word not in str(error.value)]
    for layout, ignore_index in itertools.product(layouts(task), (None, 99)):
        counting = Counting.of(task, **SIZE[task], layout=layout, ignore_index=ignore_index)
        state = torch.arange(counting.zeros().numel())
        with pytest.raises(ValueError, match="target" if fault == 0 else "preds"):
            counting.add_(state, counting.read(preds, target), defer=lambda: False)
        assert torch.equal(state, torch.arange(len(state)))


@pytest.mark.parametrize(("task", "preds", "target", "fault", "words"), BAD)
def test_bad_values_are_tallied_when_deferred(task, preds, target, fault, words):
    preds, target = torch.tensor(preds), torch.tensor(target)
    for layout, ignore_index in itertools.product(layouts(task), (None, 99)):
        counting = Counting.of(task, **SIZE[task], layout=layout, ignore_index=ignore_index)
        state = counting.zeros()
        for _ in range(2):
            counting.add_(state, counting.read(preds, target), defer=lambda: True)
        assert counting.faults(state).tolist() == [2 * (place == fault) for place in range(len(FAULTS))]
        good = Counting.of(task, **SIZE[task], layout=layout, ignore_index=99)
        hidden = target.clone()
        hidden.view(-1)[1] = 99
        assert torch.equal(state[: counting.cells], 2 * state_of(good, preds, hidden)[: counting.cells])
        assert margins(counting.counts(state)).actual.sum() == 2 * 2


def test_first_match_counts():
    counting = Counting.of("binary")
    preds = torch.tensor([NAN, 2.0, NAN, 0.9])
    assert counting.faults(state_of(counting, preds, torch.tensor([5, -1, 1, 1]), True)).tolist() == faults(2, 0, 1)
    counting = Counting.of("multiclass", 3)
    state = state_of(counting, torch.tensor([9, 9, 0]), torch.tensor([9, 0, 9]), True)
    assert counting.faults(state).tolist() == faults(2, 1)
    with pytest.raises(ValueError, match="target holds class 7"):
        confusion_matrix(torch.tensor([9, 9]), torch.tensor([0, 7]), "multiclass", num_classes=3)


@given(
    samples=st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 5)), min_size=1, max_size=30),
    layout=st.sampled_from(["matrix", "margins"]),
    ignore_index=st.sampled_from([None, -2, 1, 5]),
)
def test_deferred_counts_of_any_class_indices(samples, layout, ignore_index):
    kept = [(p, t) for p, t in samples if t != ignore_index]
    good = [(p, t) for p, t in kept if 0 <= t < 4 and 0 <= p < 4]
    bad_targets = sum(not 0 <= t < 4 for _, t in kept)
    counting = Counting.of("multiclass", 4, ignore_index=ignore_index, layout=layout)
    preds, target = torch.tensor(samples).T
    state = state_of(counting, preds, target, True)
    assert counting.faults(state).tolist() == faults(bad_targets, len(kept) - len(good) - bad_targets)
    matrix = counted(*torch.tensor(good, dtype=torch.long).reshape(-1, 2).T, 4)
    for got, expected in zip(margins(counting.counts(state)), margins(matrix), strict=True):
        assert torch.equal(got, expected)
    if layout == "matrix":
        assert torch.equal(counting.counts(state), matrix)


# --- blocks of a large batch on the CPU ------------------------------------------------------------------------------

LARGE = [
    pytest.param(task, layout, ignore_index, id=f"{task}-{layout}-{ignore_index}")
    for task, layout in (
        ("binary", "matrix"),
        ("multiclass", "matrix"),
        ("multiclass", "margins"),
        ("multilabel", "matrix"),
    )
    for ignore_index in (None, 0, 1, -100, 255, 2**40)
]


def large(task, ignore_index, seed=0):
    """10,000 samples in rows of 50, a tenth of them ignored."""
    random = generator(seed)
    shape = (200, 3, 50) if task == "multilabel" else (200, 50)
    classes = 3 if task == "multiclass" else 2
    preds, target = (torch.randint(classes, shape, generator=random) for _ in range(2))
    if ignore_index is not None:
        target[torch.rand(shape, generator=random) < 0.1] = ignore_index
    return preds, target


def expected_of(task, layout, preds, target, ignore_index):
    """Counts by scikit-learn of what is not ignored."""

    def matrix(preds, target, classes):
        kept = target != ignore_index if ignore_index is not None else torch.ones_like(target, dtype=torch.bool)
        return sklearn_metrics.confusion_matrix(target[kept], preds[kept], labels=range(classes))

    if task == "multilabel":
        return np.stack([matrix(preds[:, label], target[:, label], 2) for label in range(3)])
    whole = matrix(preds, target, 3 if task == "multiclass" else 2)
    return whole if layout == "matrix" else np.stack((whole.diagonal(), whole.sum(1), whole.sum(0)))


@pytest.mark.parametrize("block", [333, 65_536])
@pytest.mark.parametrize(("task", "layout", "ignore_index"), LARGE)
def test_blocks_count_as_one_batch(task, layout, ignore_index, block, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block)
    counting = Counting.of(task, **SIZE[task], layout=layout, ignore_index=ignore_index)
    preds, target = large(task, ignore_index)
    state = state_of(counting, preds, target)
    wanted = expected_of(task, layout, preds, target, ignore_index)
    assert state[: counting.cells].tolist() == wanted.flatten().tolist()
    assert torch.equal(state, state_of(counting, preds, target, masked=True))
    count(counting, state, preds.transpose(0, -1).contiguous().transpose(0, -1), target, False)
    assert state[: counting.cells].tolist() == (2 * wanted).flatten().tolist()
    if ignore_index is not None:  # predictions for ignored samples may be anything
        count(counting, state, preds.masked_fill(target == ignore_index, -7), target, False)
        assert state[: counting.cells].tolist() == (3 * wanted).flatten().tolist()
    assert not counting.faults(state).any()


@pytest.mark.parametrize("wrong", ["target", "preds"])
@pytest.mark.parametrize("block", [333, 65_536])
@pytest.mark.parametrize(("task", "layout", "ignore_index"), LARGE)
def test_a_bad_value_in_a_late_block_leaves_no_trace(task, layout, ignore_index, block, wrong, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block)
    counting = Counting.of(task, **SIZE[task], layout=layout, ignore_index=ignore_index)
    preds, target = large(task, ignore_index)
    kept = (target != ignore_index) if ignore_index is not None else torch.ones_like(target, dtype=torch.bool)
    place = tuple(kept.nonzero()[-1])
    (target if wrong == "target" else preds)[place] = -3
    state = torch.arange(counting.zeros().numel())
    with pytest.raises(ValueError, match=f"{wrong} holds class -3"):
        counting.add_(state, counting.read(preds, target), defer=lambda: False)
    assert torch.equal(state, torch.arange(len(state)))
    state = counting.zeros()
    counting.add_(state, counting.read(preds, target), defer=lambda: True)
    assert counting.faults(state).tolist() == faults(wrong == "target", wrong == "preds")
    assert margins(counting.counts(state)).actual.sum() == kept.sum() - 1


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ignore_index", [None, 0, 2, -100])
@pytest.mark.parametrize(
    ("task", "layout"), [("binary", "matrix"), ("multiclass", "matrix"), ("multiclass", "margins")]
)
def test_one_sample_without_a_dimension(task, layout, ignore_index, masked):
    counting = Counting.of(task, **SIZE[task], layout=layout, ignore_index=ignore_index)
    state = counting.zeros()
    for target in (0, 1, ignore_index or 0):
        count(counting, state, torch.tensor(1), torch.tensor(target), masked)
    kept = [(1, target) for target in (0, 1, ignore_index or 0) if target != ignore_index]
    matrix = counted(torch.tensor([p for p, _ in kept]), torch.tensor([t for _, t in kept]), counting.classes)
    for got, expected in zip(margins(counting.counts(state)), margins(matrix), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="target holds class 7"):
        count(counting, state, torch.tensor(1), torch.tensor(7), False)


@pytest.mark.parametrize(("samples", "ignore_index"), [(1237, None), (1238, -1), (12_345, -1)])
def test_the_default_device_does_not_matter(samples, ignore_index):
    target = torch.arange(samples) % 3
    counting = Counting.of("multiclass", 3, ignore_index=ignore_index)
    state = counting.zeros()
    with torch.device("meta"):
        counting.add_(state, counting.read(target, target), defer=lambda: False)
    with torch.inference_mode():
        counting.add_(state, counting.read(target, target), defer=lambda: False)
    counting.add_(state, counting.read(target, target), defer=lambda: False)
    assert counting.counts(state).tolist() == (3 * torch.diag(target.bincount())).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 32, 33, 70])
@pytest.mark.parametrize("samples", [500, 600, 70_000])  # another algorithm for 512 and more, in blocks of 65,536
def test_of_equal_scores_the_first_counts(samples, classes, dtype):
    scores = torch.randint(3, (samples, classes), generator=generator()).to(dtype)
    scores[:5] = torch.inf
    scores[5:9, 0] = -torch.inf
    scores[9:30, 1:] *= -1  # -0.0 equals 0.0
    first = [row.index(max(row)) for row in scores.tolist()]
    target = torch.randint(classes, (samples,), generator=generator(1))
    counting, expected = Counting.of("multiclass", classes), counted(torch.tensor(first), target, classes)
    for logits in (scores, scores.T.contiguous().T, scores.clone().requires_grad_()):
        for masked in (False, True):
            state = state_of(counting, logits, target, masked)
            assert torch.equal(counting.counts(state), expected)
    scores[7, classes - 1] = NAN
    with pytest.raises(ValueError, match=rf"NaN scores \(1 of {samples}"):
        counting.add_(state, counting.read(scores, target), defer=lambda: False)


# --- shapes, types, arguments ----------------------------------------------------------------------------------------


def zeros(*shape, dtype=torch.long):
    return torch.zeros(shape, dtype=dtype)


def scores(*shape):
    return torch.rand(shape, generator=generator())


@pytest.mark.parametrize(
    ("task", "preds", "target", "error", "words"),
    [
        ("multiclass", zeros(4), scores(4), TypeError, ["target", "torch.float32", "target.long()"]),
        ("binary", zeros(4), scores(4), TypeError, ["target", "torch.float32", "target.long()"]),
        ("multilabel", zeros(4, 3), scores(4, 3), TypeError, ["target", "target.long()"]),
        ("multiclass", [0, 1], zeros(2), TypeError, ["preds", "list", "torch.as_tensor(preds)"]),
        ("multiclass", zeros(2), [0, 1], TypeError, ["target", "list", "torch.as_tensor(target)"]),
        ("binary", np.zeros(2), zeros(2), TypeError, ["preds", "ndarray", "torch.as_tensor(preds)"]),
        ("binary", zeros(2, dtype=torch.complex64), zeros(2), TypeError, ["preds", "complex64"]),
        ("binary", zeros(2), zeros(2, dtype=torch.complex64), TypeError, ["target", "complex64"]),
        ("binary", scores(4, 3), zeros(4), ValueError, ["preds", "[4, 3]", "[4]", "task='multiclass'"]),
        ("binary", scores(4, 1), zeros(4), ValueError, ["preds", "[4, 1]", "reshape(target.shape)"]),
        ("binary", scores(4), zeros(4, 1), ValueError, ["preds", "[4, 1]", "reshape(target.shape)"]),
        ("binary", scores(4), zeros(5), ValueError, ["preds", "[4]", "[5]"]),
        ("binary", scores(0), zeros(5), ValueError, ["preds", "[0]", "[5]"]),
        ("multiclass", scores(4, 2), zeros(4), ValueError, ["preds", "2 classes", "num_classes=3"]),
        ("multiclass", scores(4, 1), zeros(4), ValueError, ["preds", "1 class", "num_classes=3"]),
        ("multiclass", scores(4), zeros(4), ValueError, ["preds", "[N, C, ...]", "preds.long()"]),
        ("multiclass", scores(4, 3), zeros(4, 1), ValueError, ["preds", "[4, 3]", "[4, 1]"]),
        ("multiclass", scores(3), torch.tensor(1), ValueError, ["preds", "[3]", "[]"]),
        ("multiclass", scores(4, 3), zeros(5), ValueError, ["preds", "[4, 3]", "[5]"]),
        ("multiclass", scores(2, 3, 4, 5), zeros(2, 5, 4), ValueError, ["[2, 3, 4, 5]", "[2, 5, 4]"]),
        ("multiclass", zeros(4, 3), zeros(4), ValueError, ["preds", "[4, 3]", "preds.float()"]),
        ("multiclass", zeros(4, 1), zeros(4), ValueError, ["preds", "[4, 1]", "reshape(target.shape)"]),
        ("multiclass", zeros(4), zeros(4, 1), ValueError, ["preds", "[4, 1]", "reshape(target.shape)"]),
        ("multiclass", zeros(4), zeros(0), ValueError, ["preds", "[4]", "[0]"]),
        ("multilabel", scores(4, 2), zeros(4, 2), ValueError, ["target", "num_labels=3", "[4, 2]"]),
        ("multilabel", scores(4, 2), zeros(4, 3), ValueError, ["preds", "[4, 2]", "[4, 3]"]),
        ("multilabel", scores(4), zeros(4), ValueError, ["target", "num_labels=3", "[4]"]),
        ("multilabel", scores(4, 3), zeros(4), ValueError, ["target", "num_labels=3", "[4]"]),
        ("multilabel", scores(4, 2, 3), zeros(4, 3), ValueError, ["preds", "[4, 2, 3]", "[4, 3]"]),
        ("binary", scores(4).to("meta"), zeros(4), ValueError, ["preds", "meta", "cpu", "move"]),
        ("binary", scores(4), zeros(4).to("meta"), ValueError, ["target", "meta", "cpu", "move"]),
    ],
)
def test_input_that_does_not_fit(task, preds, target, error, words):
    counting = Counting.of(task, **SIZE[task])
    for defer in (False, True):
        state = counting.zeros()
        with pytest.raises(error) as caught:
            counting.add_(state, counting.read(preds, target), defer=lambda defer=defer: defer)
        assert not [word for word in words if word not in str(caught.value)]
        assert not state.any()
    with pytest.raises(error):
        confusion_matrix(preds, target, task, **SIZE[task])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"task": "multi"}, ValueError, ["task", "'multi'", "'multiclass'"]),
        ({"task": None}, ValueError, ["task", "None", "'binary'"]),
        ({"task": "multiclass"}, ValueError, ["num_classes", "num_classes=10"]),
        ({"task": "multilabel"}, ValueError, ["num_labels", "num_labels=10"]),
        ({"task": "binary", "num_classes": 3}, ValueError, ["num_classes=3", "task='multiclass'"]),
        ({"task": "binary", "num_labels": 3}, ValueError, ["num_labels=3", "task='binary'"]),
        ({"task": "multiclass", "num_classes": 3, "num_labels": 3}, ValueError, ["num_labels=3", "num_classes"]),
        ({"task": "multilabel", "num_classes": 3}, ValueError, ["num_classes=3", "num_labels"]),
        ({"task": "multiclass", "num_classes": "3"}, TypeError, ["num_classes", "'3'", "int"]),
        ({"task": "multiclass", "num_classes": 3.0}, TypeError, ["num_classes", "3.0", "int"]),
        ({"task": "multiclass", "num_classes": True}, TypeError, ["num_classes", "True", "int"]),
        ({"task": "multilabel", "num_labels": True}, TypeError, ["num_labels", "True", "int"]),
        ({"task": "multiclass", "num_classes": 1}, ValueError, ["num_classes", "at least 2", "got 1"]),
        ({"task": "multiclass", "num_classes": -1}, ValueError, ["num_classes", "at least 2", "got -1"]),
        ({"task": "multilabel", "num_labels": 0}, ValueError, ["num_labels", "at least 1", "got 0"]),
        ({"task": "binary", "threshold": 1.5}, ValueError, ["threshold", "[0, 1]", "1.5"]),
        ({"task": "binary", "threshold": -0.1}, ValueError, ["threshold", "[0, 1]", "-0.1"]),
        ({"task": "binary", "threshold": NAN}, ValueError, ["threshold", "[0, 1]", "nan"]),
        ({"task": "binary", "threshold": True}, TypeError, ["threshold", "number", "True"]),
        ({"task": "binary", "threshold": "0.5"}, TypeError, ["threshold", "number", "'0.5'"]),
        ({"task": "multiclass", "num_classes": 3, "threshold": 0.7}, ValueError, ["threshold=0.7", "task='binary'"]),
        ({"task": "binary", "logits": 1}, TypeError, ["logits", "True or False", "1"]),
        ({"task": "binary", "logits": "no"}, TypeError, ["logits", "True or False", "'no'"]),
        ({"task": "binary", "ignore_index": "0"}, TypeError, ["ignore_index", "int", "'0'"]),
        ({"task": "binary", "ignore_index": True}, TypeError, ["ignore_index", "int", "True"]),
        ({"task": "binary", "ignore_index": 1.0}, TypeError, ["ignore_index", "int", "1.0"]),
        ({"task": "binary", "normalize": "rows"}, ValueError, ["normalize", "'rows'", "'true'"]),
        ({"task": "binary", "normalize": True}, ValueError, ["normalize", "True", "'true'"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_arguments_that_cannot_be(arguments, error, words):
    with pytest.raises(error) as caught:
        confusion_matrix(zeros(4), zeros(4), **arguments)
    assert not [word for word in words if word not in str(caught.value)]


def test_margins_are_for_multiclass():
    for task in ("binary", "multilabel"):
        with pytest.raises(ValueError, match=f"state='margins' is for task='multiclass', got task='{task}'"):
            Counting.of(task, **SIZE[task], layout="margins")
    with pytest.raises(ValueError, match="state must be one of 'matrix', 'margins', got 'sparse'"):
        Counting.of("multiclass", 3, layout="sparse")


COUNTINGS = st.one_of(
    st.builds(
        lambda k, i, layout: Counting.of("multiclass", k, ignore_index=i, layout=layout),
        st.integers(2, 4),
        st.none() | st.integers(-2, 2),
        st.sampled_from(["matrix", "margins"]),
    ),
    st.builds(
        lambda t, logits, i: Counting.of("binary", threshold=t, logits=logits, ignore_index=i),
        st.sampled_from([0, 0.05, 0.5, 5e-05, 1]) | st.floats(0, 1),
        st.booleans(),
        st.none() | st.integers(-2, 2),
    ),
    st.builds(
        lambda size, t, logits, i: Counting.of("multilabel", None, size, t, logits, i),
        st.integers(1, 3),
        st.sampled_from([0, 0.05, 0.5, 5e-05, 1]),
        st.booleans(),
        st.none() | st.integers(-2, 2),
    ),
)


@settings(max_examples=300)  # which take .2 s
@given(COUNTINGS, COUNTINGS)
def test_names_differ_wherever_the_counts_do(one, other):
    assert (one.name == other.name) == (one == other)
    assert one.name.isidentifier()


ROWS, CLASSES = torch.eye(3), torch.tensor([0, 2, 1])


@pytest.mark.parametrize(
    ("task", "preds", "target"),
    [
        ("multiclass", ROWS, ROWS[CLASSES].long()),
        ("multiclass", ROWS.argmax(1), ROWS[CLASSES].long()),
        ("multiclass", ROWS, ROWS[CLASSES]),
        ("multiclass", ROWS.argmax(1), ROWS[CLASSES]),
        ("binary", torch.tensor([0.2, 0.9, 0.8]), torch.eye(2)[[0, 1, 1]].long()),
        ("binary", torch.tensor([0.2, 0.9, 0.8]), torch.eye(2)[[0, 1, 1]]),
    ],
    ids=["scores", "classes", "floating, scores", "floating, classes", "binary", "floating, binary"],
)
def test_one_hot_targets_are_answered(task, preds, target):
    size = {"num_classes": 3} if task == "multiclass" else {}
    with pytest.raises((TypeError, ValueError), match=r"target\.argmax\(1\) if "):
        confusion_matrix(preds, target, task, **size)
    found = confusion_matrix(preds, target.argmax(1), task, **size)  # as it says
    hard = preds.argmax(1) if preds.ndim > 1 else (preds > 0.5 if task == "binary" else preds)
    truth = CLASSES if task == "multiclass" else torch.tensor([0, 1, 1])
    assert found.tolist() == sklearn_metrics.confusion_matrix(truth, hard.long()).tolist()


@pytest.mark.parametrize(
    ("task", "scores", "target"),
    [
        ("multiclass", ROWS, CLASSES),
        ("binary", torch.tensor([0.2, 0.9]), torch.tensor([0, 1])),
        ("multilabel", torch.rand(4, 3), torch.ones(4, 3).long()),
    ],
)
def test_predictions_and_targets_that_changed_places_are_answered(task, scores, target):
    size = {"multiclass": {"num_classes": 3}, "binary": {}, "multilabel": {"num_labels": 3}}[task]
    with pytest.raises(TypeError, match=r"swap the arguments if these are the scores: update\(preds, target\)"):
        Recall(task, **size).update(target, scores)
    Recall(task, **size).update(scores, target)


NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_wrapped_prediction_is_no_class(state):
    target = torch.arange(200)
    metric = Accuracy("multiclass", 200, state=state)
    with pytest.raises(ValueError, match=r"preds holds class -128 but num_classes=200"):
        metric.update(target.to(torch.int8), target)
    assert metric.local_margins.actual.sum() == 0


@pytest.mark.parametrize("dtype", [dtype for dtype in NARROW if dtype.is_signed])
@pytest.mark.parametrize(("classes", "state"), [(300, "matrix"), (300, "margins"), (50_257, "margins")])
@pytest.mark.parametrize("where", ["preds", "target"])
def test_minus_one_of_any_width_is_out_of_range(dtype, classes, state, where):
    metric = imbtorch.Recall("multiclass", classes, state=state)
    good, bad = torch.tensor([0, 1, 2], dtype=dtype), torch.tensor([0, -1, 2], dtype=dtype)
    preds, target = (bad, good) if where == "preds" else (good, bad)
    with pytest.raises(ValueError, match=f"{where} holds class -1 "):
        metric.update(preds, target)
    assert metric.local_margins.actual.sum() == 0


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(("classes", "samples"), [(3, 50), (100, 40), (50_257, 50)])
def test_every_integer_dtype_counts_what_it_says(dtype, classes, samples):
    limit = min(classes, torch.iinfo(dtype).max + 1)
    random = np.random.default_rng(0)
    preds, target = random.integers(limit, size=(2, samples))
    metric = imbtorch.BalancedAccuracy("multiclass", classes, state="margins")
    metric.update(torch.tensor(preds).to(dtype), torch.tensor(target).to(dtype))
    wanted = [np.bincount(each, minlength=classes) for each in (target[preds == target], target, preds)]
    for got, expected in zip(metric.local_margins, wanted, strict=True):
        assert got.tolist() == expected.tolist()


def test_a_uint64_beyond_int64_is_neither_a_class_nor_ignored():
    target = torch.tensor([0, 1, 1])
    wide = torch.tensor([0, 2**64 - 1, 1], dtype=torch.uint64)
    with pytest.raises(ValueError, match="target holds class"):
        confusion_matrix(target, wide, "binary", ignore_index=-1)
    with pytest.raises(ValueError, match="preds holds class"):
        confusion_matrix(wide, target, "binary")


@pytest.mark.parametrize("ignore_index", [None, -100, 1])
@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_fault_in_the_last_of_many_samples_leaves_the_state_as_it_was(ignore_index, state):
    metric = imbtorch.Recall("multiclass", 5, ignore_index=ignore_index, state=state)
    metric.update(torch.tensor([0, 3]), torch.tensor([0, 2]))
    before = [part.tolist() for part in metric.local_margins]
    target = torch.zeros(200_000, dtype=torch.int64)
    target[-1] = 7
    with pytest.raises(ValueError, match="target holds class 7"):
        metric.update(torch.zeros_like(target), target)
    assert [part.tolist() for part in metric.local_margins] == before


def test_an_interrupt_between_blocks_leaves_the_state_as_it_was(monkeypatch):
    metric = ConfusionMatrix("multiclass", 5)
    target, calls = torch.zeros(200_000, dtype=torch.int64), []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return counted(*given)

    counted = np.bincount
    monkeypatch.setattr(np, "bincount", interrupted)
    with pytest.raises(KeyboardInterrupt):
        metric.update(target, target)
    assert len(calls) == 3
    assert metric.local_confmat.sum() == 0


def interrupted(work, instructions):
    """Run, with a KeyboardInterrupt after so many instructions of imbtorch; return whether it came so far."""

    def trace(frame, event, _):
        nonlocal instructions
        if Path(imbtorch.__file__).parent not in Path(frame.f_code.co_filename).parents:
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
def test_an_interrupt_at_any_instruction_leaves_no_part_of_a_batch(task, size, groups, on_device, request):
    """Also with more than 65,536 cells, which the CPU does not count in blocks."""
    if on_device:
        request.getfixturevalue("accelerator")
    shape = (5, size) if task == "multilabel" else (5,)
    target = torch.randint(2 if task != "multiclass" else size, shape, generator=generator())
    scores = torch.rand(*shape, *([size] if task == "multiclass" else []), generator=generator())
    number = {} if size is None else {"num_labels" if task == "multilabel" else "num_classes": size}
    counting = Counting.of(task, **number, logits=True, groups=groups)
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


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_counting_on_a_device_reads_no_value_and_depends_on_none(task, logits):
    """What a device would wait for cannot run on tensors without values."""
    counting = Counting.of(task, **SIZE[task], logits=logits)
    scores, target = torch.rand(60, counting.classes, device="meta"), torch.zeros(60, dtype=torch.int64, device="meta")
    counting.add_(counting.zeros(torch.device("meta")), counting.read(scores, target), defer=lambda: True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_read_as_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(5000, generator=generator)).to(dtype)
    target = (torch.rand(5000, generator=generator) < logits.float().sigmoid()).long()
    for threshold in (0.3, 0.999):
        metric = imbtorch.Recall("binary", logits=True, threshold=threshold)
        metric.update(logits, target)
        preds = logits.float().sigmoid() > threshold
        assert metric.compute().item() == pytest.approx(sk.recall_score(target, preds))
        assert int(preds.sum()) > 0
    sweep = ThresholdSweep(imbtorch.precision, torch.tensor([0.3, 0.999]), logits=True)
    sweep.update(logits, target)
    assert sweep.result().curve()[1].tolist() == pytest.approx(
        [sk.precision_score(target, logits.float().sigmoid() > each) for each in (0.3, 0.999)]
    )


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("shape", [(50,), (10, 5)])
def test_two_columns_are_the_scores_of_both_classes(logits, shape):
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(shape[0], 2, *shape[1:], generator=generator)
    target = torch.randint(2, shape, generator=generator)
    metric = imbtorch.FScore("binary", logits=logits)
    metric.update(raw if logits else raw.softmax(1), target)
    assert metric.compute().item() == pytest.approx(sk.f1_score(target.flatten(), raw.argmax(1).flatten()))


def test_columns_that_do_not_sum_to_one_are_no_probabilities(request):
    scores, target = torch.tensor([[0.3, 0.7], [0.3, 0.3], [0.996, 0.0]]), torch.tensor([1, 0, 0])
    with pytest.raises(ValueError, match=r"sum to 1 over .* \(1 of 3 values\); pass logits=True"):
        Accuracy("binary").update(scores, target)
    request.getfixturevalue("accelerator")
    metric = Accuracy("binary")
    metric.update(scores, target)
    with pytest.raises(ValueError, match="1 probabilities that do not sum to 1"):
        metric.compute()
    assert metric.local_confmat.tolist() == [[1, 0], [0, 1]]
    assert FAULTS[4] == "probabilities that do not sum to 1"


def test_targets_of_one_in_a_row_are_told_from_indices():
    with pytest.raises(ValueError, match=r"preds.long\(\) if .*, or target.argmax\(1\) if target is one-hot"):
        Accuracy("multiclass", 5).update(torch.rand(4, 5), torch.eye(5, dtype=torch.int64)[:4])


def test_classes_come_second():
    scores = torch.rand(4, 7, 5)
    with pytest.raises(ValueError, match=r"dimension 1, .*\[4, 7, 5\] and \[4, 7\]; use preds.movedim\(-1, 1\)$"):
        Accuracy("multiclass", 5).update(scores, torch.zeros(4, 7, dtype=torch.long))
    with pytest.raises(ValueError, match=r"of both classes, .*use preds.movedim\(-1, 1\)"):
        Accuracy("binary").update(torch.rand(4, 7, 2), torch.zeros(4, 7, dtype=torch.long))


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        (torch.rand(4).to(torch.float8_e4m3fn), r"got torch.float8_e4m3fn; use preds.float\(\)"),
        (torch.rand(4).to_sparse(), r"must be a dense tensor, got torch.sparse_coo; use preds.to_dense\(\)"),
    ],
)
def test_tensors_that_cannot_be_compared(tensor, match):
    with pytest.raises(TypeError, match=match):
        Accuracy("binary").update(tensor, torch.zeros(4, dtype=torch.long))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout):
    """Two images of unequal size, whose remedy counts all three pixels."""
    nested = torch.nested.nested_tensor([torch.tensor([0, 1]), torch.tensor([1])], layout=layout)
    flat, scores = torch.tensor([0, 1, 1]), torch.nested.nested_tensor([torch.rand(2), torch.rand(1)], layout=layout)
    remedy = r"must be an ordinary tensor, got a nested one; use torch.cat\({}.unbind\(\)\)"
    with pytest.raises(TypeError, match="preds " + remedy.format("preds")):
        Accuracy("binary").update(nested, nested)
    with pytest.raises(TypeError, match="target " + remedy.format("target")):
        Accuracy("binary").update(flat, nested)
    with pytest.raises(TypeError, match="weight " + remedy.format("weight")):
        Accuracy("binary", weighted=True).update(flat, flat, weight=scores)
    with pytest.raises(TypeError, match="group " + remedy.format("group")):
        imbtorch.ImbalanceReport("binary", groups=2).update(flat, flat, group=nested)
    with pytest.raises(TypeError, match="preds " + remedy.format("preds")):
        ThresholdSweep("f1", 11).update(scores, nested)
    with pytest.raises(TypeError, match="preds " + remedy.format("preds")):
        imbtorch.HandTill(2).update(scores, nested)
    with pytest.raises(TypeError, match=r"counts must be an ordinary tensor .*, got a nested one; pass its parts"):
        imbtorch.accuracy(nested)
    metric = Accuracy("binary")
    metric.update(torch.cat(nested.unbind()), torch.cat(nested.unbind()))
    assert metric.local_confmat.tolist() == [[1, 0], [0, 2]]


def negated(values):
    """Return the values as a view whose negative bit is set, as that of a conjugated tensor's imaginary part."""
    view = torch._neg_view(-values)
    assert view.is_neg()
    return view


@pytest.mark.parametrize("samples", [60, 5000])
def test_lazily_negated_tensors_are_counted(samples):
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(samples, generator=generator), torch.randint(2, (samples,), generator=generator)
    classes, group = torch.rand(samples, 3, generator=generator), torch.arange(samples) % 2
    conjugated = torch.complex(scores, -scores).conj().imag
    assert conjugated.is_neg()
    for preds in (conjugated, negated(scores)):
        counts = confusion_matrix(preds, negated(target), "binary")
        assert counts.tolist() == sklearn_metrics.confusion_matrix(target, scores > 0.5, labels=[0, 1]).tolist()
    logits = confusion_matrix(negated(classes), negated(target), "multiclass", num_classes=3)
    wanted = sklearn_metrics.confusion_matrix(target, classes.argmax(1), labels=range(3))
    assert logits.tolist() == wanted.tolist()
    weighted = imbtorch.ImbalanceReport("binary", groups=2, weighted=True)
    weighted.update(scores > 0.5, negated(target), group=negated(group), weight=negated(scores.double()))
    weights = scores.double().numpy()
    sums = sklearn_metrics.confusion_matrix(target, scores > 0.5, labels=[0, 1], sample_weight=weights)
    assert weighted.counts().tolist() == pytest.approx(sums, rel=1e-9)
    weighted.compute()
    assert weighted.result().groups[1].sum().item() == pytest.approx(weights[1::2].sum(), rel=1e-9)
    sweep = ThresholdSweep("f1", 11)
    sweep.update(negated(scores), target)
    assert sweep.result().curve()[1].tolist() == pytest.approx(
        [sk.f1_score(target, scores.double() > each / 10, zero_division=0) for each in range(11)]
    )


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_counts_of_unsigned_dtypes_are_counts(dtype):
    rows = [[5, 1, 0], [2, 3, 1], [0, 4, 9]]
    counts, plain = torch.tensor(rows, dtype=dtype), torch.tensor(rows)
    for measure in (imbtorch.accuracy, imbtorch.imbalance_accuracy, imbtorch.confusion_entropy, imbtorch.cohen_kappa):
        assert torch.equal(measure(counts), measure(plain))
    assert torch.equal(imbtorch.one_vs_rest(counts), imbtorch.one_vs_rest(plain))
    shots = torch.tensor([500, 30, 2])
    assert imbtorch.shot_groups(shots.to(dtype)) == {"many": [0], "medium": [1], "few": [2]}
    if dtype == torch.uint64:
        assert imbtorch.shot_groups(torch.tensor([2**63 + 5, 1], dtype=dtype)) == {"many": [0], "few": [1]}
        with pytest.raises(ValueError, match=r"counts must be below 2\*\*63, got larger ones of dtype torch.uint64"):
            imbtorch.accuracy(torch.tensor([[2**63 + 5, 0], [0, 1]], dtype=dtype))


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
def test_masked_tensors_are_refused():
    masked = torch.masked.masked_tensor(torch.rand(4), torch.tensor([True, False, True, True]))
    with pytest.raises(TypeError, match=r"must be an ordinary tensor, got a MaskedTensor; use preds.to_tensor"):
        Accuracy("binary").update(masked, torch.zeros(4, dtype=torch.long))
