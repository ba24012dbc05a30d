"""A theme of several modules: samples that weigh more or less than one, counted as float64 sums of weights."""

import pickle

import numpy as np
import pytest
import torch
from processes import launch
from rooms import check_cell, state_name
from sklearn import metrics as sklearn_metrics
from torch.torch_version import TorchVersion
from torchmetrics import MetricCollection
from versions import traced

import imbtorch
from imbtorch import ConfusionMatrix, ImbalanceReport, ThresholdSweep

NAN, INF = float("nan"), float("inf")


def samples(classes=3, size=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (size,), generator=generator)
    noise = torch.randint(classes, (size,), generator=generator)
    preds = torch.where(torch.rand(size, generator=generator) < 0.6, target, noise)
    return preds, target, torch.rand(size, generator=generator, dtype=torch.float64) * 3


def masked(metric):
    """The path of devices, on the CPU: nothing is read while counting."""
    torch._dynamo.reset()  # which compiles one function only so often
    return traced(metric.update)


def read(metric):
    return metric.update


# --- equal to scikit-learn ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [read, masked])
@pytest.mark.parametrize("size", [300, 200_000])  # in one block and in several
def test_counts_equal_scikit_learn(path, size):
    preds, target, weight = samples(size=size)
    metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
    path(metric)(preds, target, weight=weight)
    expected = sklearn_metrics.confusion_matrix(target, preds, sample_weight=weight)
    assert metric.local_confmat.dtype == torch.float64
    assert np.allclose(metric.local_confmat.numpy(), expected, rtol=1e-12, atol=0)


def test_margins_are_those_of_scikit_learns_matrix():
    preds, target, weight = samples()
    metric = imbtorch.Accuracy("multiclass", num_classes=3, weighted=True, state="margins")
    metric.update(preds, target, weight=weight)
    matrix = sklearn_metrics.confusion_matrix(target, preds, sample_weight=weight)
    expected = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    assert np.allclose(np.stack(metric.local_margins), expected, rtol=1e-12, atol=0)


def test_values_equal_scikit_learn():
    torch.set_default_dtype(torch.float64)
    try:
        preds, target, weight = samples()
        names = ["accuracy", "balanced_accuracy", "mcc", "precision", "recall", "f1"]
        report = ImbalanceReport("multiclass", num_classes=3, measures=names, per_class=["recall"], weighted=True)
        report.update(preds, target, weight=weight)
        values = report.compute()
    finally:
        torch.set_default_dtype(torch.float32)
    how = {"sample_weight": weight.numpy()}
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(target, preds, **how),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(target, preds, **how),
        "mcc": sklearn_metrics.matthews_corrcoef(target, preds, **how),
        "precision": sklearn_metrics.precision_score(target, preds, average="macro", **how),
        "recall": sklearn_metrics.recall_score(target, preds, average="macro", **how),
        "f1": sklearn_metrics.f1_score(target, preds, average="macro", **how),
    }
    for index, recall in enumerate(sklearn_metrics.recall_score(target, preds, average=None, **how)):
        expected[f"recall/{index}"] = recall
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected, rel=1e-12)


@pytest.mark.default_cases("read")
@pytest.mark.parametrize("path", [read, masked])
def test_labels_take_a_weight_for_each_sample_or_each_label(path):
    generator = torch.Generator().manual_seed(1)
    preds, target = (torch.randint(2, (90, 4), generator=generator) for _ in range(2))
    weight = torch.rand(90, 4, generator=generator, dtype=torch.float64)
    for given in (weight, weight[:, 0]):
        metric = ConfusionMatrix("multilabel", num_labels=4, weighted=True)
        path(metric)(preds, target, weight=given)
        for label in range(4):
            own = given[:, label] if given.ndim == 2 else given
            expected = sklearn_metrics.confusion_matrix(target[:, label], preds[:, label], sample_weight=own)
            assert np.allclose(metric.local_confmat[label].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("path", [read, masked])
@pytest.mark.parametrize("ignore_index", [1, -7])
@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_ignored_samples_may_weigh_anything(path, ignore_index, state):
    preds, target, weight = samples()
    target[::5] = ignore_index
    kept = target != ignore_index
    weight[~kept] = NAN
    metric = imbtorch.Accuracy("multiclass", num_classes=3, weighted=True, ignore_index=ignore_index, state=state)
    path(metric)(preds, target, weight=weight)
    expected = sklearn_metrics.confusion_matrix(target[kept], preds[kept], sample_weight=weight[kept], labels=range(3))
    assert np.allclose(metric.local_margins.correct.numpy(), expected.diagonal(), rtol=1e-12)
    assert np.allclose(metric.local_margins.actual.numpy(), expected.sum(1), rtol=1e-12)
    assert np.allclose(metric.local_margins.predicted.numpy(), expected.sum(0), rtol=1e-12)


def test_pixels_weigh_by_image_or_each_for_itself():
    generator = torch.Generator().manual_seed(2)
    scores = torch.rand(6, 3, 4, 5, generator=generator)
    target = torch.randint(3, (6, 4, 5), generator=generator)
    for weight in (torch.rand(6, generator=generator), torch.rand(6, 4, 5, generator=generator)):
        metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
        metric.update(scores, target, weight=weight)
        each = weight.reshape(6, *[1] * (3 - weight.ndim), *weight.shape[1:]).expand(6, 4, 5).double()
        expected = sklearn_metrics.confusion_matrix(
            target.flatten(), scores.argmax(1).flatten(), sample_weight=each.flatten()
        )
        assert np.allclose(metric.local_confmat.numpy(), expected, rtol=1e-12)


# --- whole weights are repetition -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float16, torch.float64])
def test_whole_weights_equal_repetition_exactly(dtype):
    preds, target, _ = samples()
    times = torch.randint(5, target.shape, generator=torch.Generator().manual_seed(3))
    weighted = ImbalanceReport("multiclass", num_classes=3, weighted=True)
    plain = ImbalanceReport("multiclass", num_classes=3)
    for some in range(0, 300, 77):
        part = slice(some, some + 77)
        batch = weighted(preds[part], target[part], weight=times[part].to(dtype))
        alone = plain(preds[part].repeat_interleave(times[part]), target[part].repeat_interleave(times[part]))
        assert batch == alone
    assert torch.equal(weighted.local_confmat, plain.local_confmat.double())
    assert weighted.compute() == plain.compute()


def test_without_weight_a_sample_weighs_one():
    preds, target, _ = samples()
    metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
    metric.update(preds, target)
    metric.update(preds, target, weight=torch.ones(300))
    assert np.array_equal(metric.local_confmat.numpy(), 2 * sklearn_metrics.confusion_matrix(target, preds))


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_sweep_counts_weights(task):
    generator = torch.Generator().manual_seed(4)
    shape = {"binary": (80,), "multilabel": (80, 3), "multiclass": (80, 3)}[task]
    scores = torch.rand(shape, generator=generator)
    target = (
        torch.randint(3, (80,), generator=generator)
        if task == "multiclass"
        else torch.randint(2, shape, generator=generator)
    )
    sizes = {"binary": {}, "multilabel": {"num_labels": 3}, "multiclass": {"num_classes": 3}}[task]
    times = torch.randint(4, (80,), generator=generator)
    weighted = ThresholdSweep("mcc", 11, task, weighted=True, **sizes)
    plain = ThresholdSweep("mcc", 11, task, **sizes)
    weighted.update(scores, target, weight=times)
    plain.update(scores.repeat_interleave(times, 0), target.repeat_interleave(times, 0))
    assert torch.equal(weighted.result().matrices(), plain.result().matrices().double())
    thresholds, values = weighted.result().curve()
    found = weighted.compute()
    for value, each in zip(values.reshape(-1, 11), ("",) if task == "binary" else ("/0", "/1", "/2"), strict=True):
        tied = thresholds[value >= value.max() - 1e-12]  # the best plain threshold, of tied ones that nearest .5
        assert found[f"threshold{each}"] == min(tied.tolist(), key=lambda cut: (abs(cut - 0.5), cut))
        assert found[f"value{each}"].item() == pytest.approx(value.max().item(), abs=1e-6)


# --- what cannot be counted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-1.0, NAN, INF, -INF])
def test_impossible_weights_raise_and_leave_the_counts(wrong):
    preds, target, weight = samples()
    metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
    metric.update(preds, target, weight=weight)
    before = metric.local_confmat
    weight[7] = wrong
    with pytest.raises(
        ValueError, match=rf"weight must be finite and not negative, got {wrong:.6g} \(1 of 300 values\); pass weight 0"
    ):
        metric.update(preds, target, weight=weight)
    assert torch.equal(metric.local_confmat, before)


@pytest.mark.parametrize("path", [read, masked])
def test_impossible_weights_are_tallied(path):
    preds, target, weight = samples()
    weight[[3, 9]] = torch.tensor([NAN, -2.0], dtype=torch.float64)
    metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True, on_invalid="warn")
    path(metric)(preds, target, weight=weight)
    sound = weight >= 0
    with pytest.warns(UserWarning, match=r"did not count 2 of .*: 2 negative or infinite weights or frequencies"):
        counts = metric.compute()
    expected = sklearn_metrics.confusion_matrix(target[sound], preds[sound], sample_weight=weight[sound])
    assert np.allclose(counts.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("weight", "error", "text"),
    [
        (torch.ones(299), ValueError, r"weight must hold one value per sample: shape \[300\] .* got \[299\]"),
        (torch.ones(300, 1), ValueError, r"got \[300, 1\]"),
        (torch.ones(()), ValueError, r"got \[\]"),
        (1.5, TypeError, "weight must be a torch.Tensor, got float"),
        (torch.ones(300, dtype=torch.complex64), TypeError, "weight must be real"),
        (torch.ones(300, device="meta"), ValueError, "weight is on meta but target is on cpu"),
    ],
)
def test_weights_that_do_not_fit(weight, error, text):
    preds, target, _ = samples()
    with pytest.raises(error, match=text):
        ConfusionMatrix("multiclass", num_classes=3, weighted=True).update(preds, target, weight=weight)


@pytest.mark.parametrize("call", ["update", "forward"])
def test_weight_without_weighted_raises(call):
    preds, target, weight = samples()
    metric = imbtorch.Accuracy("multiclass", num_classes=3)
    with pytest.raises(ValueError, match="construct it with weighted=True"):
        getattr(metric, call)(preds, target, weight=weight)
    assert not metric.local_confmat.any()


def test_weighted_is_a_flag_and_a_bootstrap_needs_samples():
    preds, target, weight = samples()
    metric = imbtorch.Accuracy("multiclass", num_classes=3, weighted=True)
    metric.update(preds, target, weight=weight)
    with pytest.raises(ValueError, match="resamples numbers of samples, which weighted=True does not count"):
        metric.interval(method="bootstrap")
    with pytest.raises(TypeError, match="weighted must be True or False, got 1"):
        ImbalanceReport("binary", weighted=1)


def test_mps_has_no_float64():
    with pytest.raises(ValueError, match=r"weighted=True counts in float64, which the device mps does not have"):
        check_cell(torch.float64, torch.device("mps"))


@pytest.mark.parametrize("version", ["2.4.0", "2.8.0+cpu"])
def test_old_versions_cannot_count_on_apples_devices(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    with pytest.raises(RuntimeError, match=r"cannot count on the device mps, .*; install torch 2.9 or later, or keep"):
        check_cell(torch.int64, torch.device("mps"))
    check_cell(torch.int64, torch.device("cuda"))
    for recent in ("2.9.0", "2.10.1"):
        monkeypatch.setattr(torch, "__version__", TorchVersion(recent))
        check_cell(torch.int64, torch.device("mps"))


# --- the life of the state ------------------------------------------------------------------------------------------


def test_it_is_part_of_the_settings():
    weighted, plain = (ImbalanceReport("binary", weighted=weighted) for weighted in (True, False))
    assert "weighted=True" in repr(weighted)
    assert state_name(weighted) != state_name(plain)
    assert weighted.weighted is True
    assert plain.weighted is False
    with pytest.raises(AttributeError, match="weighted cannot be changed"):
        weighted.weighted = False
    with pytest.raises(ValueError, match="cannot merge counts"):
        weighted.merge_state(plain)


def test_state_dict_pickle_clone_reset_and_half():
    preds, target, weight = samples()
    metric = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
    metric.update(preds, target, weight=weight)
    metric.persistent(True)
    loaded = ConfusionMatrix("multiclass", num_classes=3, weighted=True)
    loaded.load_state_dict(metric.state_dict())
    for each in (
        loaded,
        pickle.loads(pickle.dumps(metric)),
        metric.clone(),
        metric.clone().half(),
        metric.clone().float(),
    ):
        assert torch.equal(each.local_confmat, metric.local_confmat)
        assert each.local_confmat.dtype == torch.float64
    loaded.merge_state(metric)
    assert torch.equal(loaded.local_confmat, 2 * metric.local_confmat)
    metric.reset()
    assert metric.local_confmat.dtype == torch.float64
    assert not metric.local_confmat.any()


def test_a_collection_passes_the_keyword():
    preds, target, weight = samples()
    collection = MetricCollection(
        {
            "report": ImbalanceReport("multiclass", num_classes=3, weighted=True, measures=["accuracy"], per_class=()),
            "iam": imbtorch.ImbalanceAccuracy("multiclass", num_classes=3, weighted=True),
            "mcc": imbtorch.MatthewsCorrCoef("multiclass", num_classes=3, weighted=True),
        }
    )
    for _ in range(2):  # the second by the leader of the group
        collection.update(preds, target, weight=weight)
    values = collection.compute()
    assert values["mcc"].item() == pytest.approx(
        sklearn_metrics.matthews_corrcoef(target, preds, sample_weight=weight), abs=1e-6
    )
    assert values["accuracy"].item() == pytest.approx(
        sklearn_metrics.accuracy_score(target, preds, sample_weight=weight), abs=1e-6
    )


def test_gradients_do_not_hang_on_weights():
    preds, target, weight = samples()
    weight.requires_grad_()
    metric = imbtorch.Accuracy("multiclass", num_classes=3, weighted=True)
    assert not metric(preds, target, weight=weight).requires_grad
    assert not metric.local_confmat.requires_grad


def test_the_table_and_the_picture_show_weights():
    report = ImbalanceReport("binary", weighted=True)
    report.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), weight=torch.tensor([0.25, 1.5, 2.0]))
    assert [row["support"] for row in report.table()["class"].values()] == [2.25, 1.5]
    assert "2.25" in str(report.table())
    assert str(report.table()).startswith("weighted: counts and values are of the weight of samples, not of their")
    assert report.plot()[1].get_title() == "Weighted count and share of the true class"
    labels = ImbalanceReport("multilabel", num_labels=2, weighted=True)
    labels.update(torch.ones(3, 2).long(), torch.ones(3, 2).long(), weight=torch.tensor([0.25, 1.5, 2.0]))
    assert labels.plot()[1].get_ylabel().startswith("recall, weighted")
    metric = imbtorch.Recall("binary", weighted=True)
    metric.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]), weight=torch.tensor([0.25, 1.5, 2.0]))
    assert metric.plot()[1].get_ylabel() == "Recall, weighted"


# --- several processes ----------------------------------------------------------------------------------------------


def counted_on(rank, world):
    preds, target, weight = samples()
    report = ImbalanceReport("multiclass", num_classes=3, weighted=True)
    for start in range(rank, 300, 4 * world):
        part = slice(start, start + 4 * world, world)
        report.update(preds[part], target[part], weight=weight[part])
    counts = report.counts()
    assert isinstance(counts, torch.Tensor)
    interval = report.interval("iam")
    return counts.tolist(), report.compute()["iam"].item(), interval.low.item(), interval.high.item()


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes(world):
    preds, target, weight = samples()
    expected = sklearn_metrics.confusion_matrix(target, preds, sample_weight=weight)
    answers = launch(world, counted_on)
    for counts, *values in answers:
        assert np.allclose(counts, expected, rtol=1e-12)
        assert np.allclose(values, counted_on(0, 1)[1:], atol=1e-6)
    assert len({tuple(values) for _, *values in answers}) == 1


def wrong_on_one(rank, world):
    preds, target, weight = samples()
    metric = imbtorch.Accuracy("multiclass", num_classes=3, weighted=True)
    metric.update(preds, target, weight=-weight if rank else weight)
    with pytest.raises(ValueError, match=r"did not count 300 .* negative or infinite weights or frequencies"):
        metric.compute()


def test_impossible_weights_on_one_process_raise_on_all():
    launch(2, wrong_on_one)


# --- frequencies: rows that stand for several samples ---------------------------------------------------------------


def frequencies(size=300, seed=5):
    """Numbers of samples, of which some are 0."""
    return torch.randint(4, (size,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.default_cases(
    "matrix-dtype0-read",
    "matrix-dtype1-masked",
    "matrix-dtype2-read",
    "margins-dtype0-masked",
    "margins-dtype1-read",
)
@pytest.mark.parametrize("path", [read, masked])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_a_frequency_is_repetition(path, dtype, state):
    preds, target, _ = samples()
    times = frequencies()
    metric = imbtorch.Accuracy("multiclass", num_classes=3, state=state)
    path(metric)(preds, target, frequency=times.to(dtype))
    path(metric)(preds, target)  # 1 each
    matrix = sklearn_metrics.confusion_matrix(target, preds, sample_weight=(times + 1).numpy())
    expected = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    assert torch.stack(metric.local_margins).tolist() == np.stack(expected).round().tolist()
    assert metric.local_margins.actual.dtype == torch.int64


@pytest.mark.parametrize("path", [read, masked])
def test_frequencies_of_images_labels_and_ignored_samples(path):
    generator = torch.Generator().manual_seed(6)
    times = torch.tensor([3, 0, 2, 10**15])
    scores, target = torch.rand(4, 3, 5, generator=generator), torch.randint(-1, 3, (4, 5), generator=generator)
    metric = ConfusionMatrix("multiclass", num_classes=3, ignore_index=-1)
    path(metric)(scores, target, frequency=times)
    expected = torch.zeros(3, 3, dtype=torch.int64)
    for row, column, number in zip(
        target.flatten(), scores.argmax(1).flatten(), times.repeat_interleave(5), strict=True
    ):
        if row >= 0:
            expected[row, column] += number
    assert metric.local_confmat.tolist() == expected.tolist()
    preds, target = torch.randint(2, (2, 4, 3), generator=generator)
    metric = ConfusionMatrix("multilabel", num_labels=3, clusters=False)
    path(metric)(preds, target, frequency=times)
    hits = ((preds & target) * times.unsqueeze(1)).sum(0)
    assert metric.local_confmat[:, 1, 1].tolist() == hits.tolist()


def test_reports_with_groups_and_intervals_and_their_batches():
    preds, target, _ = samples()
    times, group = frequencies(), torch.arange(300) % 2
    options = {"num_classes": 3, "groups": ["A", "B"], "intervals": ["iam"]}
    grouped, plain = (ImbalanceReport("multiclass", **options) for _ in range(2))
    rows = torch.arange(300).repeat_interleave(times)
    batch = grouped(preds, target, group=group, frequency=times)
    assert batch == plain(preds[rows], target[rows], group=group[rows])
    intervals = [report.interval("iam", generator=torch.Generator().manual_seed(0)) for report in (grouped, plain)]
    assert intervals[0] == intervals[1]
    assert str(grouped.table()) == str(plain.table())
    assert grouped.result().counts.sum() == times.sum()


def test_clusters_with_ids_take_frequencies():
    preds, target, _ = samples()
    times, patient = frequencies(), torch.arange(300) // 7
    rows = torch.arange(300).repeat_interleave(times)
    grouped, plain = (ImbalanceReport("multiclass", num_classes=3, clusters=True) for _ in range(2))
    grouped.update(preds, target, cluster=patient, frequency=times)
    plain.update(preds[rows], target[rows], cluster=patient[rows])
    intervals = [report.interval("iam", generator=torch.Generator().manual_seed(0)) for report in (grouped, plain)]
    assert intervals[0] == intervals[1]
    with pytest.raises(ValueError, match=r"clusters are unknown.*pass cluster=ids of each row, or .* clusters=False"):
        grouped.update(preds, target, frequency=times)


@pytest.mark.parametrize("path", [read, masked])
@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_sweep_counts_frequencies(path, task):
    generator = torch.Generator().manual_seed(7)
    shape = {"binary": (80,), "multilabel": (80, 3), "multiclass": (80, 3)}[task]
    scores = torch.rand(shape, generator=generator)
    target = torch.randint(3 if task == "multiclass" else 2, shape[: 1 + (task == "multilabel")], generator=generator)
    sizes = {"binary": {}, "multilabel": {"num_labels": 3}, "multiclass": {"num_classes": 3}}[task]
    times = frequencies(80)
    grouped, plain = (ThresholdSweep("mcc", 11, task, **sizes) for _ in range(2))
    path(grouped)(scores, target, frequency=times)
    plain.update(scores.repeat_interleave(times, 0), target.repeat_interleave(times, 0))
    assert grouped.compute() == plain.compute()
    assert torch.equal(grouped.result().matrices(), plain.result().matrices())


@pytest.mark.parametrize("path", [read, masked])
def test_frequencies_are_exact_up_to_the_largest_sum(path):
    metric = ConfusionMatrix("binary")
    times = torch.tensor([2**53 - 4, 1, 1, 1])
    for _ in range(3):
        path(metric)(torch.tensor([1, 0, 0, 1]), torch.tensor([1, 0, 1, 0]), frequency=times)
    assert metric.local_confmat.tolist() == [[3, 3], [3, 3 * (2**53 - 4)]]


@pytest.mark.parametrize(
    ("times", "error", "text"),
    [
        (torch.tensor([2**53 - 1, 1, 0]), ValueError, r"frequency must sum to less than 2\*\*53 in a batch"),
        (torch.tensor([2**62, 2**62, 2**62]), ValueError, r"frequency must sum to less than 2\*\*53 in a batch"),
        (torch.tensor([3, -1, 2]), ValueError, r"frequency must not be negative, got -1 \(1 of 3 values\)"),
        (torch.tensor([1.0, 2.0, 3.0]), TypeError, "frequency must hold integers, got torch.float32; use weight"),
        ([1, 2, 3], TypeError, "frequency must be a torch.Tensor, got list"),
        (torch.ones(2, dtype=torch.int64), ValueError, r"frequency must hold one value per sample: shape \[3\]"),
    ],
)
@pytest.mark.parametrize("call", ["update", "forward"])
def test_frequencies_that_do_not_fit(times, error, text, call):
    metric = ConfusionMatrix("binary")
    with pytest.raises(error, match=text):
        getattr(metric, call)(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), frequency=times)
    assert not metric.local_confmat.any()


def test_negative_frequencies_are_tallied_on_devices():
    metric = ConfusionMatrix("binary", on_invalid="warn")
    masked(metric)(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), frequency=torch.tensor([5, -2, 3]))
    with pytest.warns(UserWarning, match=r"did not count 1 of .*: 1 negative or infinite weights or frequencies"):
        assert metric.compute().tolist() == [[5, 3], [0, 0]]


def test_frequencies_are_refused_with_weights():
    batch = torch.tensor([0, 1]), torch.tensor([0, 1])
    times = torch.tensor([2, 3])
    with pytest.raises(ValueError, match="weighted=True does not count; pass weight instead"):
        ConfusionMatrix("binary", weighted=True).update(*batch, frequency=times)


def test_a_collection_passes_frequencies():
    preds, target, _ = samples()
    times = frequencies()
    collection = MetricCollection(
        [imbtorch.Accuracy("multiclass", num_classes=3), imbtorch.MatthewsCorrCoef("multiclass", num_classes=3)]
    )
    for _ in range(2):  # the second by the leader of the group
        collection.update(preds, target, frequency=times)
    values = collection.compute()
    assert values["MatthewsCorrCoef"].item() == pytest.approx(
        sklearn_metrics.matthews_corrcoef(target, preds, sample_weight=times), abs=1e-6
    )


def test_scores_that_are_rounded_up_stay_on_their_side_of_each_threshold():
    """What the recipe for databases does to make few rows of many scores."""
    generator = torch.Generator().manual_seed(8)
    scores = torch.rand(5000, generator=generator, dtype=torch.float64)
    scores[:129] = torch.arange(129) / 128
    target = (torch.rand(5000, generator=generator) < scores).long()
    rounded, sweep = (ThresholdSweep("f1", 129) for _ in range(2))
    sweep.update(scores, target)
    cells, times = torch.stack((torch.ceil(scores * 128) / 128, target.double())).unique(dim=1, return_counts=True)
    assert cells.shape[1] < 300
    rounded.update(cells[0], cells[1].long(), frequency=times)
    assert torch.equal(rounded.result().matrices(), sweep.result().matrices())
