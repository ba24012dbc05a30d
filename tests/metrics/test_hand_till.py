"""The M measure of Hand and Till against scikit-learn, on any number of processes."""

import copy
import pickle
import warnings

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot as plt
from processes import launch
from sklearn.metrics import roc_auc_score
from torch import nn
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.wrappers import Running

from imbtorch import HandTill


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


def test_fewer_than_two_classes_are_nan_with_a_warning():
    metric = HandTill(3)
    with pytest.warns(UserWarning, match="at least two classes"):
        assert metric.compute().isnan()
    metric.update(torch.eye(3), torch.ones(3, dtype=torch.long))
    with pytest.warns(UserWarning, match="at least two classes"):
        assert metric.compute().isnan()


@pytest.mark.parametrize("ignore_index", [-100, 1])
def test_ignored_samples(ignore_index):
    scores, target = data()
    dropped = torch.arange(len(target)) % 3 == 0 if ignore_index < 0 else target == ignore_index
    marked = target.masked_fill(dropped, ignore_index)
    scores[0] = torch.nan if bool(dropped[0]) else scores[0]
    found = counted(scores, marked, ignore_index=ignore_index)
    assert found == pytest.approx(pairwise(scores[~dropped], target[~dropped]), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_logits_rank_as_their_softmax_would_without_rounding(dtype):
    scores, target = data()
    raw = (scores * 5 + torch.rand(scores.shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    digits = 2e-4 if dtype == torch.float16 else 1e-12  # half precision makes ties, which rounding of sums breaks
    assert counted(raw, target, logits=True) == pytest.approx(pairwise(raw.double().softmax(1), target), abs=digits)
    sure = raw * 64  # every float32 softmax of these has ties at 1
    apart = sure.double() - sure.double().logsumexp(1, keepdim=True)
    rest = torch.stack([sure.double()[:, [j for j in range(4) if j != k]].logsumexp(1) for k in range(4)], 1)
    assert (apart > -1e-9).any(0).all()
    assert counted(sure, target, logits=True) == pytest.approx(pairwise(sure.double() - rest, target), abs=digits)


def test_extra_dimensions_and_other_targets():
    scores, target = data(samples=120)
    expected = counted(scores, target)
    shaped = scores.view(20, 6, 4).movedim(-1, 1)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        assert counted(shaped, target.view(20, 6).to(dtype)) == expected


# --- the life of a metric -------------------------------------------------------------------------------------------


def test_chunks_forward_reset_and_merge():
    scores, target = data(samples=150)
    expected = counted(scores, target)
    metric = HandTill(4)
    for chunk in (slice(0, 1), slice(1, 1), slice(1, 90)):
        metric.update(scores[chunk], target[chunk])
    batch = metric(scores[90:], target[90:])
    assert batch.item() == pytest.approx(counted(scores[90:], target[90:]), abs=1e-6)
    assert value(metric) == expected
    assert metric.update_count == 4
    metric.reset()
    metric.update(scores[:40], target[:40])
    assert value(metric) == counted(scores[:40], target[:40])
    other = HandTill(4)
    other.update(scores[40:], target[40:])
    metric.merge_state(other)
    assert value(metric) == expected
    assert metric.update_count == 2
    assert value(other) == counted(scores[40:], target[40:])
    again = HandTill(4)
    again.merge_state(metric.metric_state)
    assert value(again) == expected


def test_a_state_that_does_not_fit_is_not_merged_in_part():
    scores, target = data(samples=30)
    metric = HandTill(4)
    metric.update(scores, target)
    before = value(metric), metric.update_count
    for stranger in (HandTill(5), HandTill(4, ignore_index=9), HandTill(4, logits=True)):
        for state in (stranger, stranger.metric_state):
            with pytest.raises(ValueError, match="cannot merge a HandTill with another num_classes, logits"):
                metric.merge_state(state)
    with pytest.raises(ValueError, match="must be a HandTill or its metric_state, got int"):
        metric.merge_state(3)
    state = metric.metric_state
    del state["targets"]
    with pytest.raises(ValueError, match=r"got the states \['not_counted', 'scores', 'settings'\]"):
        metric.merge_state(state)
    assert (value(metric), metric.update_count) == before


def test_a_forward_of_one_class_does_not_warn():
    metric = HandTill(3)
    assert metric(torch.eye(3), torch.zeros(3, dtype=torch.long)).isnan()
    assert metric(torch.eye(3), torch.tensor([0, 1, 2])) == 1


def test_copies_count_apart():
    scores, target = data(samples=60)
    metric = HandTill(4)
    metric.update(scores, target)
    before = value(metric)
    for twin in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), copy.copy(metric), metric.clone()):
        assert value(twin) == before
        twin.update(scores.flip(1), target)
        assert value(metric) == before
        assert value(twin) == counted(torch.cat((scores, scores.flip(1))), torch.cat((target, target)))


def test_moves_keep_the_digits():
    scores, target = data(samples=60)
    metric = HandTill(4)
    metric.update(scores, target)
    before = value(metric)
    for move in (
        lambda m: m.to("cpu"),
        lambda m: m.to(torch.float16),
        lambda m: m.half(),
        lambda m: nn.ModuleList([m]).bfloat16(),
        lambda m: m.set_dtype(torch.float16),  # which would round the digest of the settings
        lambda m: m.set_dtype(torch.int32),
        lambda m: m.set_dtype(torch.float64),  # which would make tallies floats
        lambda m: MetricCollection([m]).set_dtype(torch.bfloat16),
        lambda m: m.to_empty(device="cpu"),
    ):
        move(metric)
        assert value(metric) == before
    metric.reset()
    metric.update(scores, target)
    assert value(metric) == before


def test_a_metric_of_the_meta_device_counts_once_it_has_memory():
    scores, target = data(samples=60)
    with torch.device("meta"):
        metric = HandTill(4)
    metric.to_empty(device="cpu")
    for _ in range(2):
        metric.update(scores, target)
        assert value(metric) == pytest.approx(oracle(scores, target))
        metric.reset()


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


def test_equal_metrics_of_a_collection():
    """torchmetrics lets only one of them count and shares its states."""
    scores, target = data(samples=90)
    collection = MetricCollection({name: HandTill(4) for name in "ab"})
    for _ in range(2):
        for some, true in zip(scores.chunk(3), target.chunk(3), strict=True):
            collection.update(some, true)
        expected = counted(scores, target)
        assert {name: found.item() for name, found in collection.compute().items()} == pytest.approx(
            {"a": expected, "b": expected}, abs=1e-6
        )
        collection.reset()


def test_a_collection_that_is_updated_one_way_and_another_counts_each_batch_once():
    """Its metrics share their states from the first update on, and ``forward`` lets each of them count."""
    scores, target = data(samples=120)
    collection = MetricCollection({name: HandTill(4) for name in "ab"})
    parts = list(zip(scores.chunk(6), target.chunk(6), strict=True))
    for index, part in enumerate(parts):
        if index % 2:
            batch = counted(*part)
            assert {name: found.item() for name, found in collection(*part).items()} == pytest.approx(
                {"a": batch, "b": batch}, abs=1e-6
            )
        else:
            collection.update(*part)
    expected = counted(scores, target)
    assert {name: found.item() for name, found in collection.compute().items()} == pytest.approx(
        {"a": expected, "b": expected}, abs=1e-6
    )
    collection.update(*parts[0])  # which makes them share their states again
    collection["b"].update(*parts[1])
    collection["a"].update(*parts[2])
    for name, own in (("a", parts[2]), ("b", parts[1])):
        every = [
            torch.cat((all_of, first, last))
            for all_of, first, last in zip((scores, target), parts[0], own, strict=True)
        ]
        assert value(collection[name]) == pytest.approx(counted(*every), abs=1e-6)
    collection["a"].reset()
    assert sum(map(len, collection["b"].targets)) == 160


@pytest.mark.default_cases("5")
@pytest.mark.parametrize("window", [2, 5, 10])
def test_a_running_window_is_of_the_last_batches(window):
    scores, target = data(samples=200)
    metric = Running(HandTill(4), window=window)
    for index, part in enumerate(zip(scores.chunk(8), target.chunk(8), strict=True)):
        (metric if index % 2 else metric.update)(*part)
        last = slice(max(0, 25 * (index + 1 - window)), 25 * (index + 1))
        for _ in range(2):
            assert value(metric) == pytest.approx(pairwise(scores[last], target[last]), abs=1e-12)
    metric.reset()
    metric.update(scores, target)
    assert value(metric) == pytest.approx(pairwise(scores, target), abs=1e-12)


def running_window(rank, world):
    scores, target = data(samples=240)
    metric = Running(HandTill(4), window=3)
    for part in range(6):
        own = slice(40 * part + rank, 40 * (part + 1), world)
        metric.update(scores[own], target[own])
    return metric.compute().item()


def test_a_running_window_on_two_processes():
    scores, target = data(samples=240)
    expected = pairwise(scores[120:], target[120:])
    assert launch(2, running_window) == pytest.approx([expected] * 2, abs=1e-6)


def test_a_tracker_keeps_one_value_for_each_step():
    scores, target = data(samples=90)
    tracker = MetricTracker(HandTill(4))
    for some, true in zip(scores.chunk(3), target.chunk(3), strict=True):
        tracker.increment()
        tracker.update(some, true)
    expected = [pairwise(*part) for part in zip(scores.chunk(3), target.chunk(3), strict=True)]
    assert tracker.compute_all().tolist() == pytest.approx(expected, abs=1e-6)
    best, step = tracker.best_metric(return_step=True)
    assert (best, step) == (pytest.approx(max(expected), abs=1e-6), expected.index(max(expected)))


def test_checkpoints_hold_everything():
    scores, target = data(samples=60)
    metric, other = HandTill(4), HandTill(4)
    assert metric.state_dict() == {}
    metric.update(scores, target)
    metric.persistent(True)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    assert value(other) == value(metric)


def test_an_update_does_not_touch_what_was_kept_before():
    """An epoch of 10^5 updates would otherwise copy ever longer lists."""
    scores, target = data(samples=60)
    metric = HandTill(4)
    metric.update(scores[:20], target[:20])
    kept, first = metric.scores, metric.scores[0]
    metric.update(scores[20:40], target[20:40])
    metric(scores[40:], target[40:])
    assert metric.scores is kept
    assert kept[0] is first
    assert [len(batch) for batch in kept] == [len(batch) for batch in metric.targets] == [20, 20, 20]


def test_metrics_of_other_settings_count_apart_in_a_collection():
    """Also where the first batch, by which torchmetrics judges, does not tell them apart."""
    scores, target = data(samples=90)
    first = (target != 3).nonzero().flatten()[:20]
    collection = MetricCollection({"all": HandTill(4), "three": HandTill(4, ignore_index=3)})
    collection.update(scores[first], target[first])
    collection.update(scores, target)
    whole, true = torch.cat((scores[first], scores)), torch.cat((target[first], target))
    assert value(collection["all"]) == pytest.approx(pairwise(whole, true), abs=1e-12)
    assert value(collection["three"]) == pytest.approx(pairwise(whole[true != 3], true[true != 3]), abs=1e-12)


def test_a_checkpoint_of_other_settings_is_refused():
    scores, target = data(samples=60)
    metric, other = HandTill(4, logits=True), HandTill(4)
    metric.persistent(True)
    metric.update(scores, target)
    other.load_state_dict(metric.state_dict())
    with pytest.raises(
        ValueError, match=r"num_classes=4, logits=False, ignore_index=None, but .* loading a checkpoint"
    ):
        other.compute()


@pytest.mark.parametrize(("name", "changed"), [("num_classes", 5), ("logits", True), ("ignore_index", 0)])
def test_settings_cannot_be_changed(name, changed):
    metric = HandTill(4)
    before = getattr(metric, name)
    with pytest.raises(AttributeError, match=f"build a new HandTill with {name}={changed}"):
        setattr(metric, name, changed)
    assert getattr(metric, name) == before
    assert getattr(pickle.loads(pickle.dumps(HandTill(**{"num_classes": 4, name: changed}))), name) == changed


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [({}, "num_classes=4"), ({"logits": True, "ignore_index": -1}, "num_classes=4, logits=True, ignore_index=-1")],
)
def test_the_repr_is_the_call(arguments, shown):
    assert repr(HandTill(4, **arguments)) == f"HandTill({shown})"


def test_values_are_drawn():
    mpl.use("Agg")
    scores, target = data(samples=60)
    metric = HandTill(4)
    steps = [metric(scores[:30], target[:30]), metric(scores[30:], target[30:])]
    _, ax = metric.plot()
    assert ax.lines[0].get_ydata()[0] == pytest.approx(counted(scores, target), abs=1e-6)
    assert ax.get_ylabel() == "HandTill"
    assert [each.get_ydata()[0] for each in ax.lines[1:]] == [0.0, 1.0]  # the bounds
    _, axes = plt.subplots(1, 2)
    made, drawn = metric.plot(steps, axes[1])
    assert (made, drawn) == (None, axes[1])
    assert drawn.lines[0].get_ydata().tolist() == pytest.approx([float(step) for step in steps])
    assert not axes[0].has_data()
    plt.close("all")


# --- what is refused ------------------------------------------------------------------------------------------------

SCORES = torch.full((2, 3), 1 / 3)
GOOD = torch.tensor([0, 1])


@pytest.mark.parametrize("call", ["update", "forward"])
@pytest.mark.parametrize(
    ("preds", "target", "error", "message"),
    [
        (torch.full((2, 3), torch.nan), GOOD, ValueError, "preds hold NaN scores"),
        (SCORES * 3 + 1, GOOD, ValueError, r"preds must be probabilities .*pass logits=True for raw scores"),
        (SCORES, torch.tensor([0, 3]), ValueError, "target holds class 3 .*ignore_index=3"),
        (SCORES, torch.tensor([-1, 0]), ValueError, "target holds class -1 .*ignore_index=-1"),
        (SCORES, torch.tensor([0.0, 1.0]), TypeError, r"target must hold integers.*target\.long"),
        (torch.tensor([0, 1]), GOOD, TypeError, "preds must be floating scores"),
        ([[0.5, 0.5, 0.0]] * 2, GOOD, TypeError, "preds must be floating scores"),
        (torch.full((2, 4), 0.25), GOOD, ValueError, "preds hold scores of 4 classes but num_classes=3"),
        (torch.full((3, 3), 0.25), GOOD, ValueError, "preds and target do not fit"),
    ],
)
def test_bad_input_raises_and_leaves_the_state(call, preds, target, error, message):
    metric = HandTill(3)
    metric.update(torch.eye(3), torch.tensor([0, 1, 2]))
    with pytest.raises(error, match=message):
        getattr(metric, call)(preds, target)
    assert metric.update_count == len(metric.scores) == len(metric.targets) == 1
    assert metric.compute() == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_classes": 1}, ValueError, "num_classes must be at least 2"),
        ({"num_classes": 2.0}, TypeError, "num_classes must be an int"),
        ({"num_classes": 3, "logits": 1}, TypeError, "logits must be True or False"),
        ({"num_classes": 3, "ignore_index": 0.5}, TypeError, "ignore_index must be an int"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        HandTill(**arguments)


# --- several processes ----------------------------------------------------------------------------------------------


class Broken:
    """Gathers for a single process until it fails at a given call, once."""

    def __init__(self, fails_at):
        self.calls_left = fails_at

    def __call__(self, tensor, group=None):
        self.calls_left -= 1
        if self.calls_left == -1:
            raise ConnectionError("the other process is gone")
        return [tensor]


@pytest.mark.parametrize("fails_at", range(5))  # comparison of settings, settings, tally, scores, targets
def test_a_gather_that_fails_changes_nothing(fails_at):
    scores, target = data(samples=60)
    metric = HandTill(4, dist_sync_fn=Broken(fails_at), distributed_available_fn=lambda: True)
    metric.update(scores[:20], target[:20])
    metric.update(scores[20:], target[20:])
    kept = metric.scores
    with pytest.raises(ConnectionError, match="gone"):
        metric.compute()
    assert not metric._is_synced
    assert metric.scores is kept
    assert value(metric) == pytest.approx(pairwise(scores, target), abs=1e-12)
    metric.update(scores, target)
    assert value(metric) == pytest.approx(pairwise(scores, target), abs=1e-12)
    assert [len(batch) for batch in metric.scores] == [20, 40, 60]


def uneven(rank, world, idle):
    """Batches of 17 go round among the ranks but one, which has none (on one process, to that one)."""
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)
    scores, target = data(5, 230)
    busy = [each for each in range(world) if each != idle % world] or [0]
    metric = HandTill(5)
    for index, start in enumerate(range(0, 230, 17)):
        if rank == busy[index % len(busy)]:
            metric.update(scores[start : start + 17], target[start : start + 17])
    before = metric.update_count, sum(map(len, metric.targets))
    answers = [metric.compute().item(), metric.compute().item()]
    assert (metric.update_count, sum(map(len, metric.targets))) == before  # this process's own came back
    metric.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metric.compute().isnan()  # nobody has data
    stepwise = HandTill(5, dist_sync_on_step=True)
    mixed = ((scores * 64).round() / 64).to(torch.float32 if rank else torch.float64)  # no digit is lost in either
    answers += [stepwise(mixed[rank::world], target[rank::world]).item(), stepwise.compute().item()]
    return answers


@pytest.mark.parametrize(("world", "idle"), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 2)])
def test_any_number_of_processes_gives_the_same_value(world, idle):
    scores, target = data(5, 230)
    rounded = pairwise((scores * 64).round(), target)
    expected = oracle(scores, target)
    for answer in launch(world, uneven, idle):
        assert answer == pytest.approx([expected, expected, rounded, rounded], abs=1e-12)


def bad_on_one_rank(rank, world):
    answers = []
    for preds, target in ((torch.full((2, 3), torch.nan), GOOD), (SCORES, torch.tensor([0, 5]))):
        metric = HandTill(3)
        metric(*((SCORES, GOOD) if rank == 0 else (preds, target)))
        for _ in range(2):  # what raises leaves the metric as it was, so that it raises again
            with pytest.raises(ValueError, match="HandTill did not count") as caught:
                metric.compute()
            answers.append(str(caught.value))
    return answers


def test_bad_input_of_one_process_raises_on_all():
    for answer in launch(2, bad_on_one_rank):
        for text, message in zip(answer, ["2 NaN scores"] * 2 + ["1 targets out of range"] * 2, strict=True):
            assert message in text
            assert "reset()" in text


def other_settings(rank, world):
    answers = []
    for arguments in ({"logits": True}, {"ignore_index": 2}, {"num_classes": 4}):
        metric = HandTill(**{"num_classes": 3} | (arguments if rank == 1 else {}))
        metric.update(torch.full((2, metric.num_classes), 0.25), GOOD)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="HandTill is not set up alike on all processes") as caught:
                metric.compute()
        answers.append(str(caught.value))
    return answers


def loaded_settings(rank, world):
    """Rank 1 loads the samples of another metric."""
    saved, metric = HandTill(3, logits=True), HandTill(3)
    saved.update(SCORES, GOOD)
    metric.update(SCORES, GOOD)
    for each in (saved, metric):
        each.persistent(True)
    if rank == 1:
        metric.load_state_dict(saved.state_dict())
    with pytest.raises(ValueError, match="samples were kept with other settings; use the same"):
        metric.compute()


def test_samples_of_other_settings_on_one_process_raise_on_all():
    launch(2, loaded_settings)


def test_processes_of_other_settings_raise_on_all():
    first, second = launch(2, other_settings)
    assert len(first) == len(second) == 3
    assert "logits=True" in second[0]
    assert "HandTill(num_classes=3). Build it from the same arguments" in first[0]


def test_a_uint64_target_beyond_int64_is_no_negative_class():
    with pytest.raises(ValueError, match="target holds class 9223372036854775807 but num_classes=3 allows"):
        HandTill(3).update(SCORES, torch.tensor([0, 2**64 - 100], dtype=torch.uint64))


def test_a_batch_without_samples_where_faults_are_tallied():
    metric = HandTill(3, distributed_available_fn=lambda: True)
    metric.update(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    assert metric.not_counted.sum() == 0


@pytest.mark.parametrize(("low", "high"), [(103.0, 104.0), (110.0, 120.0), (200.0, 300.0)])
def test_no_gap_between_logits_is_too_wide(low, high):
    raw = torch.tensor([[0.0, low], [0.0, high], [0.0, low - 1], [0.0, high + 1]])
    assert counted(raw, torch.tensor([0, 1, 0, 1]), logits=True) == 1
    third = torch.cat((raw, torch.full((4, 1), -7.0)), 1)
    assert counted(third, torch.tensor([0, 1, 0, 1]), logits=True) == 1
