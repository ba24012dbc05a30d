"""ExactBatchSampler by itself and under accelerate: each sample once, in every epoch, or an error."""

import os
import types

import accelerate
import numpy as np
import pytest
import torch
from processes import launch
from sklearn import metrics as sklearn_metrics
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, SubsetRandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import imbtorch
from imbtorch import ExactBatchSampler

SAMPLES = 301


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "iterator", [(index for index in range(5)), iter(range(5)), map(int, "01234")], ids=["generator", "iter", "map"]
)
def test_what_can_be_read_once_is_refused(iterator):
    with pytest.raises(TypeError, match=rf"got the iterator {type(iterator).__name__}, which is empty after the first"):
        ExactBatchSampler(iterator, 2)


@pytest.mark.parametrize("sampler", [[3, 1, 2], range(1, 4), SequentialSampler(range(3))], ids=["list", "range", "own"])
def test_every_epoch_has_all_samples(sampler):
    batches = ExactBatchSampler(sampler, 2)
    for _ in range(2):
        assert sorted(index for batch in batches for index in batch) == sorted(sampler)


@pytest.mark.parametrize("size", [np.int64(4), np.uint8(4), 4], ids=["int64", "uint8", "int"])
def test_a_batch_size_may_be_an_integer_of_numpy(size):
    batches = ExactBatchSampler(SequentialSampler(range(8)), size)
    assert type(batches.batch_size) is int
    assert list(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "2", None, np.int64(0)])
def test_a_batch_size_that_is_none(size):
    with pytest.raises(ValueError, match="batch_size must be an int >= 1, got"):
        ExactBatchSampler(SequentialSampler(range(8)), size)


def test_given_as_sampler_the_error_about_the_shape_names_the_argument():
    data = TensorDataset(torch.eye(3).repeat(5, 1), torch.arange(15) % 3)
    exact = ExactBatchSampler(SequentialSampler(data), 14)
    metric = imbtorch.Accuracy("multiclass", num_classes=3)
    with pytest.raises(ValueError, match=r"DataLoader as batch_sampler=, not as sampler=$"):
        metric.update(*next(iter(DataLoader(data, sampler=exact))))
    for batch in DataLoader(data, batch_sampler=exact):
        metric.update(*batch)
    assert metric.local_confmat.tolist() == [[5, 0, 0], [0, 5, 0], [0, 0, 5]]


# --- accelerate -----------------------------------------------------------------------------------------------------


def dataset():
    """Scores of three classes that are often right, targets of which the last class is rare, and indices."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(2, (SAMPLES,), generator=generator)
    target[torch.randperm(SAMPLES, generator=generator)[:3]] = 2
    scores = torch.randn(SAMPLES, 3, generator=generator) + 2 * torch.nn.functional.one_hot(target, 3)
    return TensorDataset(scores, target, torch.arange(SAMPLES))


def order_of(kind, data, rank, world):
    """Inner sampler; a shuffling ``DistributedSampler`` gets its epoch from accelerate."""
    if kind == "shuffled":
        return DistributedSampler(data, world, rank, shuffle=True, seed=1)
    return SequentialSampler(data)


def accelerator_of(world, **config):
    """An accelerator for the processes that there are, as those of ``accelerate launch``."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", LOCAL_WORLD_SIZE=str(world))
    settings = accelerate.DataLoaderConfiguration(**config)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    assert accelerator.num_processes == world
    return accelerator


def counted_under_accelerate(rank, world, options):
    """Two epochs over a prepared loader: what this process saw, what all counted, and the errors of what is refused."""
    data = dataset()
    inner = order_of(options.get("order"), data, rank, world)
    exact = ExactBatchSampler(inner, options.get("batch_size", 50))
    batches = exact if options.get("plain") else exact.for_accelerate()
    accelerator = accelerator_of(world, **options.get("config", {}))
    loader = DataLoader(data, batch_sampler=batches, num_workers=options.get("workers", 0))
    loader = loader if options.get("unprepared") else accelerator.prepare(loader)
    if options.get("skip"):
        loader = accelerate.skip_first_batches(loader, options["skip"])
    metric = imbtorch.ImbalanceReport("multiclass", num_classes=3).to(accelerator.device)
    epochs, error = [], ""
    try:
        for _ in range(2):
            seen = []
            for scores, target, index in loader:
                metric.update(scores, target)
                seen.append(index.tolist())
            assert len(seen) == len(loader)
            epochs.append((seen, metric.compute()["iam"].item(), int(metric.counts().sum())))
            metric.reset()
    except RuntimeError as raised:
        error = str(raised)
    return types.SimpleNamespace(epochs=epochs, error=error)


def expected_iam():
    """Imbalance accuracy of all samples by scikit-learn: twice the mean of the smaller of precision and recall, - 1."""
    scores, target, _ = dataset().tensors
    precision, recall, *_ = sklearn_metrics.precision_recall_fscore_support(target, scores.argmax(1), zero_division=0)
    return 2 * np.minimum(precision, recall).mean() - 1


SETTINGS = {
    "default": {},
    "batches that are full": {"batch_size": 7},
    "workers": {"workers": 1},
    "shuffled": {"order": "shuffled"},
    "no even batches": {"config": {"even_batches": False}},
    "seedable sampler": {"config": {"use_seedable_sampler": True}},
}


@pytest.mark.parametrize(
    ("name", "world"), [*((name, 2) for name in SETTINGS), ("default", 3), ("batches that are full", 3)]
)
def test_accelerate_counts_each_sample_once(name, world):
    ranks = launch(world, counted_under_accelerate, SETTINGS[name])
    assert [rank.error for rank in ranks] == [""] * world
    for epoch in range(2):
        seen = [rank.epochs[epoch][0] for rank in ranks]
        assert sorted(index for batches in seen for batch in batches for index in batch) == list(range(SAMPLES))
        assert len({len(batches) for batches in seen}) == 1
        for rank in ranks:
            assert rank.epochs[epoch][1] == pytest.approx(expected_iam())
            assert rank.epochs[epoch][2] == SAMPLES
    if name == "shuffled":
        assert ranks[0].epochs[0][0] != ranks[0].epochs[1][0]
        assert ranks[0].epochs[0][0][0] != list(range(0, world * len(ranks[0].epochs[0][0][0]), world))


def test_accelerate_on_one_process_takes_either():
    for plain in (True, False):
        (rank,) = launch(1, counted_under_accelerate, {"plain": plain})
        assert [count for *_, count in rank.epochs] == [SAMPLES] * 2


def test_some_batches_can_be_skipped():
    ranks = launch(2, counted_under_accelerate, {"skip": 1})
    full = launch(2, counted_under_accelerate, {})
    for rank, whole in zip(ranks, full, strict=True):
        assert rank.epochs[0][0] == whole.epochs[0][0][1:]


def test_a_plain_one_that_accelerate_would_deal_out_again_raises_on_all_processes():
    for rank in launch(2, counted_under_accelerate, {"plain": True}):
        assert rank.epochs == []
        assert "batch_sampler=ExactBatchSampler(sampler, batch_size).for_accelerate()" in rank.error


def test_a_plain_one_that_was_not_prepared_is_exact():
    ranks = launch(2, counted_under_accelerate, {"plain": True, "unprepared": True})
    assert sorted(index for rank in ranks for batch in rank.epochs[0][0] for index in batch) == list(range(SAMPLES))
    assert [rank.epochs[0][2] for rank in ranks] == [SAMPLES] * 2


def test_one_for_accelerate_that_was_not_prepared_raises():
    for rank in launch(2, counted_under_accelerate, {"unprepared": True}):
        assert rank.epochs == []
        assert "pass the DataLoader to accelerator.prepare" in rank.error


def dispatched(rank, world, plain):
    """Errors of a loader that process 0 reads for all; the others would wait for it, so they do not read."""
    accelerator = accelerator_of(world, dispatch_batches=True)
    exact = ExactBatchSampler(SequentialSampler(dataset()), 50)
    loader = accelerator.prepare(DataLoader(dataset(), batch_sampler=exact if plain else exact.for_accelerate()))
    if rank > 0:
        return ""
    with pytest.raises(RuntimeError) as raised:
        next(iter(loader))
    return str(raised.value)


@pytest.mark.parametrize(("plain", "text"), [(True, ".for_accelerate()"), (False, "without dispatch_batches=True")])
def test_batches_that_process_0_would_cut_up_are_refused(plain, text):
    assert text in launch(2, dispatched, plain)[0]


def split(rank, world):
    batches = ExactBatchSampler(SequentialSampler(dataset()), 50).for_accelerate()
    with pytest.raises(ValueError, match="split_batches"):
        accelerator_of(world, split_batches=True).prepare(DataLoader(dataset(), batch_sampler=batches))
    return True


def test_accelerate_refuses_to_split_batches():
    assert all(launch(2, split))


def test_the_inner_sampler_is_that_of_the_exact_one():
    """As accelerate needs it, which sets its epoch and may replace it by one with a seed."""
    with pytest.warns(UserWarning, match="around RandomSampler"):
        exact = ExactBatchSampler(RandomSampler(range(6)), 2)
    batches = exact.for_accelerate()
    assert batches.sampler is exact.sampler
    batches.sampler = [5, 4, 3]
    assert list(batches) == [[5], [4, 3]]


def test_an_inner_sampler_that_lightning_would_replace_is_told():
    with pytest.warns(UserWarning, match=r"around SubsetRandomSampler.*SequentialSampler\(torch.utils.data.Subset\("):
        ExactBatchSampler(SubsetRandomSampler([1, 2, 3]), 2)


def test_a_dataset_is_no_sampler():
    with pytest.raises(TypeError, match=r"got the dataset TensorDataset; use SequentialSampler\(dataset\)"):
        ExactBatchSampler(TensorDataset(torch.arange(3)), 2)
