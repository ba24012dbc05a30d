"""The M measure of Hand and Till against scikit-learn, kept scores and bins, on any number of processes."""

import copy
import pickle
import warnings

import pytest
import torch
from processes import launch
from sklearn.metrics import roc_auc_score
from torch import nn
from torchmetrics import MetricCollection

from imbtorch.scores import HandTill


def data(classes=4, samples=200, seed=0, dtype=torch.float64, levels=6):
    """Normalised scores with many ties, targets of very uneven classes, each of which occurs."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(0.5 ** torch.arange(classes).double(), samples, replacement=True, generator=generator)
    target[:classes] = torch.arange(classes)
    raw = torch.randint(1, levels, (samples, classes), generator=generator).double()
    raw += 2 * torch.nn.functional.one_hot(target, classes)
    return (raw / raw.sum(1, keepdim=True)).to(dtype), target


def pairwise(scores, target):
    """Mean area of all pairs of classes that occur, each by scikit-learn's binary AUC of both classes' scores."""
    scores, target = scores.double().numpy(), target.numpy()
    present = sorted(set(target.tolist()))
    areas = []
    for one in present:
        for other in present:
            if one != other:
                among = (target == one) | (target == other)
                areas.append(roc_auc_score(target[among] == one, scores[among, one]))
    return sum(areas) / len(areas)


def oracle(scores, target):
    if scores.shape[1] == 2:
        return pairwise(scores, target)
    return roc_auc_score(target, scores, multi_class="ovo", average="macro", labels=range(scores.shape[1]))


def value(metric):
    """Value of all digits."""
    torch.set_default_dtype(torch.float64)
    try:
        return metric.compute().item()
    finally:
        torch.set_default_dtype(torch.float32)


def counted(scores, target, **arguments):
    metric = HandTill(scores.shape[1], **arguments)
    metric.update(scores, target)
    return value(metric)


BOTH = pytest.mark.parametrize("thresholds", [None, 50])


# --- against scikit-learn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", range(2, 9))
@pytest.mark.parametrize("seed", range(3))
def test_exact_equals_scikit_learn(classes, seed):
    scores, target = data(classes, seed=seed)
    assert len(scores[:, 0].unique()) < 150  # ties
    assert counted(scores, target) == pytest.approx(oracle(scores, target), abs=1e-12)
    assert pairwise(scores, target) == pytest.approx(oracle(scores, target), abs=1e-12)


def test_two_classes_give_the_area_under_the_curve():
    scores, target = data(2)
    assert counted(scores, target) == pytest.approx(roc_auc_score(target, scores[:, 1]), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype):
    scores, target = data(dtype=dtype)
    assert counted(scores, target) == pytest.approx(pairwise(scores, target), abs=1e-12)
    assert HandTill(4)(scores, target).dtype == torch.float32


@pytest.mark.parametrize("absent", [[1], [0, 3]])
def test_classes_without_targets_take_no_part(absent):
    scores, target = data(5)
    kept = ~torch.isin(target, torch.tensor(absent))
    expected = pairwise(scores[kept], target[kept])
    assert counted(scores[kept], target[kept]) == pytest.approx(expected, abs=1e-12)
    # constant scores of the absent classes leave those of the others normalised, as scikit-learn wants them
    present = [each for each in range(5) if each not in absent]
    rest = scores[kept][:, present] / scores[kept][:, present].sum(1, keepdim=True)
    whole = torch.zeros(len(rest), 5, dtype=torch.float64)
    whole[:, present] = rest
    targets = torch.tensor([present.index(each) for each in target[kept].tolist()])
    assert counted(whole, target[kept]) == pytest.approx(oracle(rest, targets), abs=1e-12)


@BOTH
def test_fewer_than_two_classes_are_nan_with_a_warning(thresholds):
    metric = HandTill(3, thresholds=thresholds)
    with pytest.warns(UserWarning, match="at least two classes"):
        assert metric.compute().isnan()
    metric.update(torch.eye(3), torch.ones(3, dtype=torch.long))
    with pytest.warns(UserWarning, match="at least two classes"):
        assert metric.compute().isnan()


@BOTH
@pytest.mark.parametrize("ignore_index", [-100, 1])
def test_ignored_samples(thresholds, ignore_index):
    scores, target = data()
    scores = ((scores * 50).floor() + 0.5) / 50
    dropped = torch.arange(len(target)) % 3 == 0 if ignore_index < 0 else target == ignore_index
    marked = target.masked_fill(dropped, ignore_index)
    scores[0] = torch.nan if bool(dropped[0]) else scores[0]
    found = counted(scores, marked, thresholds=thresholds, ignore_index=ignore_index)
    assert found == pytest.approx(pairwise(scores[~dropped], target[~dropped]), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_logits(dtype):
    scores, target = data()
    raw = (scores * 5).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert counted(raw, target, logits=True) == pytest.approx(pairwise(raw.to(wide).softmax(1), target), abs=1e-12)


@BOTH
def test_extra_dimensions_and_other_targets(thresholds):
    scores, target = data(samples=120)
    expected = counted(scores, target, thresholds=thresholds)
    shaped = scores.view(20, 6, 4).movedim(-1, 1)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        assert counted(shaped, target.view(20, 6).to(dtype), thresholds=thresholds) == expected


# --- bins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bins", [2, 10, 64])
def test_bins_are_exact_for_scores_at_their_centres(bins, dtype):
    generator = torch.Generator().manual_seed(bins)
    target = torch.randint(4, (300,), generator=generator)
    scores = ((torch.randint(bins, (300, 4), generator=generator) + 0.5) / bins).to(dtype)
    expected = pairwise(scores, target)
    assert counted(scores, target, thresholds=bins) == pytest.approx(expected, abs=1e-12)
    assert counted(scores, target) == pytest.approx(expected, abs=1e-12)


def test_bins_converge_to_the_exact_value():
    generator = torch.Generator().manual_seed(2)
    target = torch.randint(3, (500,), generator=generator)
    scores = (torch.randn(500, 3, generator=generator, dtype=torch.float64) + nn.functional.one_hot(target)).softmax(1)
    expected = oracle(scores, target)
    errors = [abs(counted(scores, target, thresholds=bins) - expected) for bins in (4, 32, 4096)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-3
    assert errors[-1] < 1e-4


def test_the_ends_of_the_range_fall_into_bins():
    scores, target = torch.eye(3)[[0, 1, 2, 2, 0]], torch.tensor([0, 1, 2, 1, 2])
    assert counted(scores, target, thresholds=7) == pytest.approx(pairwise(scores, target), abs=1e-12)


# --- the life of a metric -------------------------------------------------------------------------------------------


@BOTH
def test_chunks_forward_reset_and_merge(thresholds):
    scores, target = data(samples=150)
    expected = counted(scores, target, thresholds=thresholds)
    metric = HandTill(4, thresholds=thresholds)
    for chunk in (slice(0, 1), slice(1, 1), slice(1, 90)):
        metric.update(scores[chunk], target[chunk])
    batch = metric(scores[90:], target[90:])
    assert batch.item() == pytest.approx(counted(scores[90:], target[90:], thresholds=thresholds), abs=1e-6)
    assert value(metric) == expected
    assert metric.update_count == 4
    metric.reset()
    metric.update(scores[:40], target[:40])
    assert value(metric) == counted(scores[:40], target[:40], thresholds=thresholds)
    other = HandTill(4, thresholds=thresholds)
    other.update(scores[40:], target[40:])
    metric.merge_state(other)
    assert value(metric) == expected
    assert metric.update_count == 2
    assert value(other) == counted(scores[40:], target[40:], thresholds=thresholds)
    again = HandTill(4, thresholds=thresholds)
    again.merge_state(metric.metric_state)
    assert value(again) == expected


@BOTH
def test_a_state_that_does_not_fit_is_not_merged_in_part(thresholds):
    scores, target = data(samples=30)
    metric = HandTill(4, thresholds=thresholds)
    metric.update(scores, target)
    before = value(metric), metric.update_count
    state = metric.metric_state
    for stranger in (HandTill(5, thresholds=thresholds), HandTill(4, thresholds=9), HandTill(4, logits=True)):
        with pytest.raises(ValueError, match="cannot merge"):
            metric.merge_state(stranger)
    with pytest.raises(ValueError, match="incoming_state must"):
        metric.merge_state(3)
    if thresholds is None:
        del state["targets"]
        with pytest.raises(ValueError, match=r"has no .*targets"):
            metric.merge_state(state)
    assert (value(metric), metric.update_count) == before


@BOTH
def test_a_forward_of_one_class_does_not_warn(thresholds):
    metric = HandTill(3, thresholds=thresholds)
    assert metric(torch.eye(3), torch.zeros(3, dtype=torch.long)).isnan()
    assert metric(torch.eye(3), torch.tensor([0, 1, 2])) == 1


@BOTH
def test_copies_count_apart(thresholds):
    scores, target = data(samples=60)
    metric = HandTill(4, thresholds=thresholds)
    metric.update(scores, target)
    before = value(metric)
    for twin in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), copy.copy(metric), metric.clone()):
        assert value(twin) == before
        twin.update(scores.flip(1), target)
        assert value(metric) == before
        assert value(twin) == counted(
            torch.cat((scores, scores.flip(1))), torch.cat((target, target)), thresholds=thresholds
        )
    assert repr(metric) == f"HandTill(num_classes=4, thresholds={thresholds})"


@BOTH
def test_moves_keep_the_digits(thresholds):
    scores, target = data(samples=60)
    metric = HandTill(4, thresholds=thresholds)
    metric.update(scores, target)
    before = value(metric)
    for move in (lambda m: m.to("cpu"), lambda m: m.half(), lambda m: nn.ModuleList([m]).bfloat16()):
        move(metric)
        assert value(metric) == before


def test_kept_scores_do_not_follow_the_tensor_that_was_given():
    scores, target = data(samples=60)
    metric = HandTill(4)
    given = scores.clone().requires_grad_()
    metric.update(given, target)
    before = value(metric)
    with torch.no_grad():
        given.zero_()
    target_before = target.clone()
    target.zero_()
    assert value(metric) == before == counted(scores, target_before)
    assert not metric.scores[0].requires_grad


@BOTH
def test_equal_metrics_of_a_collection(thresholds):
    """torchmetrics lets only one of them count and shares its states."""
    scores, target = data(samples=90)
    collection = MetricCollection({name: HandTill(4, thresholds=thresholds) for name in "ab"})
    for _ in range(2):
        for some, true in zip(scores.chunk(3), target.chunk(3), strict=True):
            collection.update(some, true)
        expected = counted(scores, target, thresholds=thresholds)
        assert {name: found.item() for name, found in collection.compute().items()} == pytest.approx(
            {"a": expected, "b": expected}, abs=1e-6
        )
        collection.reset()


@BOTH
def test_checkpoints_hold_everything(thresholds):
    scores, target = data(samples=60)
    metric, other = HandTill(4, thresholds=thresholds), HandTill(4, thresholds=thresholds)
    assert metric.state_dict() == {}
    metric.update(scores, target)
    metric.persistent(True)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    assert value(other) == value(metric)


# --- what is refused ------------------------------------------------------------------------------------------------

SCORES = torch.full((2, 3), 1 / 3)
GOOD = torch.tensor([0, 1])


@pytest.mark.parametrize("call", ["update", "forward"])
@pytest.mark.parametrize(
    ("thresholds", "preds", "target", "error", "message"),
    [
        (None, torch.full((2, 3), torch.nan), GOOD, ValueError, "preds hold NaN scores"),
        (9, torch.full((2, 3), torch.nan), GOOD, ValueError, "preds hold NaN scores"),
        (9, torch.tensor([[0.0, 1.0, 0.0], [0.0, 2.5, 0.0]]), GOOD, ValueError, "preds hold 2.5.*logits=True"),
        (9, torch.tensor([[0.0, 1.0, 0.0], [0.0, -2.0, 0.0]]), GOOD, ValueError, "preds hold -2.*logits=True"),
        (None, SCORES, torch.tensor([0, 3]), ValueError, "target holds class 3 .*ignore_index=3"),
        (9, SCORES, torch.tensor([-1, 0]), ValueError, "target holds class -1 .*ignore_index=-1"),
        (None, SCORES, torch.tensor([0.0, 1.0]), TypeError, r"target must hold integers.*target\.long"),
        (None, torch.tensor([0, 1]), GOOD, TypeError, "preds must be floating scores"),
        (None, [[0.5, 0.5, 0.0]] * 2, GOOD, TypeError, "preds must be floating scores"),
        (None, torch.full((2, 4), 0.25), GOOD, ValueError, "preds hold scores of 4 classes but num_classes=3"),
        (9, torch.full((3, 3), 0.25), GOOD, ValueError, "preds and target do not fit"),
    ],
)
def test_bad_input_raises_and_leaves_the_state(call, thresholds, preds, target, error, message):
    metric = HandTill(3, thresholds=thresholds)
    metric.update(torch.eye(3), torch.tensor([0, 1, 2]))
    before = metric._state.clone()
    with pytest.raises(error, match=message):
        getattr(metric, call)(preds, target)
    assert torch.equal(metric._state, before)
    assert metric.update_count == 1
    assert metric.compute() == 1


def test_scores_of_any_range_are_ranked_where_they_are_kept():
    scores, target = data()
    assert counted(10 * scores - 7, target) == pytest.approx(pairwise(10 * scores - 7, target), abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_classes": 1}, ValueError, "num_classes must be at least 2"),
        ({"num_classes": 2.0}, TypeError, "num_classes must be an int"),
        ({"num_classes": 3, "thresholds": 1}, ValueError, "thresholds must be None or a number"),
        ({"num_classes": 3, "thresholds": True}, ValueError, "thresholds must be None or a number"),
        ({"num_classes": 3, "thresholds": torch.tensor([0.5])}, ValueError, "thresholds must be None or a number"),
        ({"num_classes": 3, "logits": 1}, TypeError, "logits must be True or False"),
        ({"num_classes": 3, "ignore_index": 0.5}, TypeError, "ignore_index must be an int"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        HandTill(**arguments)


# --- several processes ----------------------------------------------------------------------------------------------


def uneven(rank, world):
    """Batches of 17 go round among the ranks but the last, which has none (on one process, to that one)."""
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)
    scores, target = data(5, 230)
    answers = []
    for thresholds in (None, 50):
        metric = HandTill(5, thresholds=thresholds)
        for index, start in enumerate(range(0, 230, 17)):
            if rank == index % max(1, world - 1):
                metric.update(scores[start : start + 17], target[start : start + 17])
        before = metric.update_count, sum(map(len, metric.targets))
        answers += [metric.compute().item(), metric.compute().item()]
        assert (metric.update_count, sum(map(len, metric.targets))) == before  # this process's own came back
        metric.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert metric.compute().isnan()  # nobody has data
    stepwise = HandTill(5, dist_sync_on_step=True)
    answers.append(stepwise(scores[rank::world], target[rank::world]).item())
    return answers


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_processes_gives_the_same_value(world):
    scores, target = data(5, 230)
    expected, binned = oracle(scores, target), counted(scores, target, thresholds=50)
    for answer in launch(world, uneven):
        assert answer == pytest.approx([expected, expected, binned, binned, expected], abs=1e-12)


def bad_on_one_rank(rank, world):
    answers = []
    for thresholds in (None, 50):
        for preds, target in ((torch.full((2, 3), torch.nan), GOOD), (SCORES, torch.tensor([0, 5]))):
            metric = HandTill(3, thresholds=thresholds)
            metric(*((SCORES, GOOD) if rank == 0 else (preds, target)))
            try:
                answers.append(metric.compute().item())
            except ValueError as error:
                answers.append(str(error))
    return answers


def test_bad_input_of_one_process_raises_on_all():
    for answer in launch(2, bad_on_one_rank):
        for found, message in zip(answer, ["2 NaN scores", "1 targets out of range"] * 2, strict=True):
            assert message in found
            assert "reset()" in found
