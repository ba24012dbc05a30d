"""A theme of several modules: Lightning, Fabric and FSDP2 on several processes, exact counts, and never a hang."""

import collections
import itertools
import os
import re
import subprocess
import sys
import types
import warnings

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from processes import counted_collectives, launch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)
from trainings import CLASSES, QUIET, THIRD_PARTY, Classifier, Notes, dataset, exact, join_lightning, listening
from versions import loading, needs_fsdp2_on_cpus, needs_resumed_epochs

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.lightning import ConfusionFigures, MonitorGuard

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]


# --- two processes --------------------------------------------------------------------------------------------------


class Data(lightning.LightningDataModule):
    def __init__(self, train, val):
        super().__init__()
        self.train_dataloader, self.val_dataloader = (lambda: train), (lambda: val)


def padded(data, **options):
    return DataLoader(data, 16, **options)


class OwnBatches(BatchSampler):
    """Around which Lightning puts a padded sampler too."""


class WithoutMetrics(Classifier):
    """As it would be without this package."""

    def __init__(self):
        super().__init__(report=False, keep=False)
        del self.val

    def validation_step(self, batch, batch_idx):
        self.net(batch[0])


def own_batches(data, **options):
    return DataLoader(data, batch_sampler=OwnBatches(SequentialSampler(data), 16, False), **options)


class Unsharded(IterableDataset):
    """Data set whose processes all yield all samples."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return (self.data[index] for index in range(len(self.data)))


def whole(data, **options):
    return DataLoader(data, 4, **options)


def unsharded(data, **options):
    return DataLoader(Unsharded(data), 4, **options)


def mixed(data, **options):
    order = torch.Generator().manual_seed(torch.distributed.get_rank())
    return DataLoader(data, 4, sampler=RandomSampler(data, generator=order), **options)


LOADERS = {
    "exact": exact,
    "padded": padded,
    "own": own_batches,
    "whole": whole,
    "mixed": mixed,
    "iterable": unsharded,
}


def trained(rank, world, options):
    """Run a trainer on all processes; options say what is out of the ordinary."""
    join_lightning(world)
    torch.manual_seed(0)
    data = dataset(options.get("samples", 101))
    module = WithoutMetrics() if options.get("bare") else Classifier(**options.get("module", {}))
    workers = options.get("workers", 0)
    val_data = Subset(data, range(0, len(data), 2)) if options.get("subset") else data
    make = LOADERS[options.get("batches", "exact")]
    train, val = DataLoader(data, 16, shuffle=True, drop_last=True), make(val_data, num_workers=workers)
    trainer = lightning.Trainer(
        **QUIET,
        strategy="ddp",
        devices=world,
        max_epochs=options.get("epochs", 1),
        logger=CSVLogger(options["folder"], name="") if "folder" in options else False,
        enable_checkpointing=False,
        callbacks=[ConfusionFigures()] * ("folder" in options) + [EarlyStopping("val_iam")] * ("monitor" in options),
        **options.get("trainer", {}),
    )
    assert trainer.world_size == world
    assert any(isinstance(callback, MonitorGuard) for callback in trainer.callbacks)
    act, answer, error = options.get("act", "fit"), None, ""
    with listening() as told, counted_collectives() as calls:
        filters = list(warnings.filters)
        try:
            if act == "fit" and options.get("datamodule"):
                trainer.fit(module, datamodule=Data(train, val))
            elif act == "fit":
                trainer.fit(module, train, val, **loading(lightning, options.get("checkpoint"), False))
            elif act == "predict":
                answer = trainer.predict(module, val)
            else:
                getattr(trainer, act)(module, val, verbose=False)
        except ValueError as raised:
            error = str(raised)
        assert warnings.filters == filters  # what the guard keeps back it lets through again, errors or not
    return types.SimpleNamespace(
        epochs=module.epochs,
        metrics={name: value.item() for name, value in trainer.callback_metrics.items()},
        told=told,
        calls=collections.Counter(calls),
        answer=answer,
        error=error,
        steps=trainer.global_step,
    )


def assert_exact(ranks, samples=range(101), epochs=1):
    """Each sample once over all ranks, and its prediction in the counts of every rank."""
    assert {len(rank.epochs) for rank in ranks} == {epochs}
    for number in range(epochs):
        seen = sorted(itertools.chain.from_iterable(rank.epochs[number][1] for rank in ranks))
        assert [index for index, _, _ in seen] == list(samples)
        target, preds = [target for _, target, _ in seen], [predicted for _, _, predicted in seen]
        wanted = sklearn_metrics.confusion_matrix(target, preds, labels=range(3)).tolist()
        for rank in ranks:
            assert rank.epochs[number][0] == wanted
    return target, preds  # of the last epoch


SCENARIOS = {
    "fit": {},
    "two epochs": {"epochs": 2},
    "twice an epoch": {"trainer": {"val_check_interval": 1, "limit_train_batches": 2}},
    "validate": {"act": "validate"},
    "test": {"act": "test"},
    "97 samples": {"samples": 97},
    "synced steps": {"module": {"log_steps": True}},
    "data module": {"datamodule": True},
    "no injected sampler": {"trainer": {"use_distributed_sampler": False}},
    "workers": {"workers": 1, "act": "validate"},
    "half of the data": {"subset": True},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_sample_counts_once(name):
    options = SCENARIOS[name]
    ranks = launch(2, trained, options)
    samples = range(0, 101, 2) if "subset" in options else range(options.get("samples", 101))
    target, preds = assert_exact(ranks, samples, 2 if name in ("two epochs", "twice an epoch") else 1)
    assert target.count(2) == 3 or "subset" in options
    recall = sklearn_metrics.recall_score(target, preds, average=None, labels=range(3), zero_division=0)
    f1 = sklearn_metrics.f1_score(target, preds, average=None, labels=range(3), zero_division=0)
    for rank in ranks:
        assert rank.error == ""
        assert rank.told == []
        assert rank.metrics["val_accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))
        assert rank.metrics["val_balanced_accuracy"] == pytest.approx(recall.mean())
        for index, label in enumerate(CLASSES):
            assert rank.metrics[f"val_recall/{label}"] == pytest.approx(recall[index])
            assert rank.metrics[f"val_f1/{label}"] == pytest.approx(f1[index])


def test_each_sample_is_predicted_once():
    ranks = launch(2, trained, {"act": "predict"})
    assert sorted(itertools.chain(*(batch for rank in ranks for batch in rank.answer))) == list(range(101))


@pytest.mark.parametrize("batches", ["padded", "own"])
def test_lightnings_own_sampler_counts_a_sample_twice_and_says_so_once(batches):
    ranks = launch(2, trained, {"batches": batches, "epochs": 2})
    for rank in ranks:
        assert [sum(map(sum, counts)) for counts, _ in rank.epochs] == [102, 102]
    assert len(ranks[0].told) == 1
    assert "validation counts 1 of 101 samples twice" in ranks[0].told[0]
    assert "batch_sampler=imbtorch.ExactBatchSampler(SequentialSampler(dataset)" in ranks[0].told[0]
    assert ranks[1].told == []


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 100},
        {"samples": 100, "act": "validate"},
        {"samples": 100, "act": "test"},
        {"module": {"report": False, "keep": False}},
    ],
    ids=["divisible", "divisible in validate", "divisible in test", "not logged"],
)
def test_nothing_is_said_of_the_sampler(options):
    for rank in launch(2, trained, {"batches": "padded", **options}):
        assert [text for text in rank.told if "still held" not in text] == []


@pytest.mark.parametrize(("act", "stage"), [("validate", "validation"), ("test", "test")])
def test_repeated_samples_are_told_in_validate_and_test_in_place_of_lightnings_warning(act, stage):
    ranks = launch(2, trained, {"batches": "padded", "act": act})
    (text,) = ranks[0].told
    assert text.startswith(f"{stage} counts 1 of 101 samples twice")
    assert ranks[1].told == []


@pytest.mark.parametrize("act", ["fit", "validate", "test"])
@pytest.mark.parametrize("batches", ["whole", "mixed", "iterable"])
def test_loaders_that_give_all_processes_all_samples_are_told_once(batches, act):
    """Also if the sanity check sees no more than eight samples; the batches are of four."""
    options = {"act": act, "batches": batches, "epochs": 2, "trainer": {"use_distributed_sampler": False}}
    ranks = launch(2, trained, options)
    for rank in ranks:
        assert [sum(map(sum, counts)) for counts, _ in rank.epochs] == [202] * (2 if act == "fit" else 1)
    (text,) = [text for text in ranks[0].told if "shuffling enabled" not in text]  # of Lightning
    what = "samples are" if batches == "mixed" else "first batch is"
    assert text.startswith(f"ImbalanceReport: the {what} the same on all processes")
    assert "use_distributed_sampler=True" in text
    assert [text for text in ranks[1].told if "shuffling enabled" not in text] == []


class ByHand(Classifier):
    """Logs numbers that it has computed, under a name of its own."""

    def on_validation_epoch_end(self):
        self.log("my own name", self.val.compute()["val_iam"], rank_zero_only=True)
        self.val.reset()


def by_hand(rank, world):
    """Return what is told of a padded loader whose report is computed by hand."""
    join_lightning(world)
    options = {**QUIET, "strategy": "ddp", "devices": world, "logger": False, "enable_checkpointing": False}
    with listening() as told:
        trainer = lightning.Trainer(**options, max_epochs=2)
        trainer.fit(ByHand(), DataLoader(dataset(), 16), padded(dataset()))
    return [text for text in told if "sync_dist=True" not in text]  # which Lightning recommends


def test_a_padded_loader_is_told_of_a_report_that_is_computed_by_hand():
    (text,), silent = launch(2, by_hand)
    assert text.startswith("validation counts 1 of 101 samples twice")
    assert silent == []


def test_lightning_warns_as_ever_where_there_is_no_metric_of_ours():
    ranks = launch(2, trained, {"batches": "padded", "act": "validate", "bare": True})
    (text,) = ranks[0].told
    assert text.startswith("Using `DistributedSampler` with the dataloaders")


def test_fewer_samples_than_processes_is_an_error_on_all():
    for rank in launch(2, trained, {"samples": 1, "act": "validate"}, timeout=30):
        assert "1 samples cannot be distributed over 2 processes" in rank.error


@pytest.mark.parametrize(("act", "ends"), [("validate", 1), ("fit", 3)])
def test_one_all_reduce_an_epoch_belongs_to_the_report(act, ends):
    """The run without the report has one collective less for each validation, and one less to compare settings."""
    options = {"act": act, "epochs": 2}
    with_report = launch(2, trained, {**options, "module": {"report": True, "keep": False}})
    without = launch(2, trained, {**options, "module": {"report": False, "keep": False}})
    for ours, others in zip(with_report, without, strict=True):
        assert sum(name.startswith("val_") for name in ours.metrics) == 9 + 4 * 3
        assert ours.calls - others.calls == {"all_reduce": ends + 1}
        assert others.calls - ours.calls == {}


def test_a_wrong_mode_raises_on_all_processes():
    for rank in launch(2, trained, {"monitor": True}, timeout=30):
        assert "Write EarlyStopping(monitor='val_iam', mode='max')" in rank.error
        assert rank.steps == 0


def test_figures_are_drawn_by_rank_zero_alone(tmp_path):
    launch(2, trained, {"folder": str(tmp_path), "epochs": 2})
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == [
        "val_confusion_epoch0000.png",
        "val_confusion_epoch0001.png",
    ]


# --- launchers ------------------------------------------------------------------------------------------------------

SCRIPT = """
import lightning, torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from imbtorch import ExactBatchSampler, ImbalanceReport

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 3)
        self.val = ImbalanceReport("multiclass", num_classes=3, prefix="val_")

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).mean()

    def validation_step(self, batch, batch_idx):
        self.val.update(batch[2], batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)
        counts = self.val.counts()
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            print("COUNTS", self.trainer.world_size, counts.tolist(), flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

if __name__ == "__main__":
    torch.set_num_threads(1)
    target, preds = torch.arange(101) % 3, torch.arange(101) // 3 % 3
    data = TensorDataset(torch.zeros(101, 1), target, preds)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_spawn", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    val = DataLoader(data, batch_sampler=ExactBatchSampler(SequentialSampler(data), 16))
    trainer.fit(Module(), DataLoader(data, 16), val)
    if trainer.is_global_zero:
        print("ACCURACY", trainer.callback_metrics["val_accuracy"].item(), flush=True)
"""


@pytest.mark.slow
def test_processes_that_lightning_spawns(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    target, preds = [index % 3 for index in range(101)], [index // 3 % 3 for index in range(101)]
    wanted = sklearn_metrics.confusion_matrix(target, preds).tolist()
    assert [line for line in run.stdout.splitlines() if "COUNTS" in line] == [f"COUNTS 2 {wanted}"]
    accuracy = re.search(r"ACCURACY (\S+)", run.stdout)[1]
    assert float(accuracy) == pytest.approx(sklearn_metrics.accuracy_score(target, preds))


# --- FSDP2 and Fabric -----------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 8), nn.Linear(8, 3)
        self.val = ImbalanceReport("multiclass", num_classes=3)

    def forward(self, features):
        return self.head(self.body(features).relu())


def seen_of(loader, model, report):
    seen = []
    with torch.no_grad():
        for features, target, index in loader:
            scores = model(features)
            report.update(scores, target)
            seen += zip(index.tolist(), target.tolist(), scores.argmax(1).tolist(), strict=True)
    return seen


def sharded(rank, world):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, data = Net(), dataset()
    mesh = init_device_mesh("cpu", (world,))
    for part in (model.body, model.head, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    epochs = []
    for epoch in range(2):
        features, target, _ = data[rank::world]
        nn.functional.cross_entropy(model(features), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = seen_of(exact(data), model, model.val)
        with counted_collectives() as calls:
            values = {name: value.item() for name, value in model.val.compute().items()}
        assert calls == ["all_reduce"] * (1 if epoch else 2)  # the first sync compares settings
        epochs.append((model.val.counts().tolist(), seen))
        model.val.reset()
    return types.SimpleNamespace(epochs=epochs, metrics=values)


@needs_fsdp2_on_cpus
def test_a_report_in_a_module_sharded_by_fsdp2():
    ranks = launch(2, sharded)
    target, preds = assert_exact(ranks, epochs=2)
    for rank in ranks:
        assert rank.metrics["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))


class Parallel(lightning.LightningModule):
    """Counts the same sample on each tensor-parallel process; a second metric sums over data-parallel ones."""

    def __init__(self, grouped):
        super().__init__()
        self.grouped, self.net, self.counts = grouped, nn.Linear(1, 1), []

    def configure_model(self):
        group = self.device_mesh["data_parallel"].get_group() if self.grouped else None
        self.val = imbtorch.ConfusionMatrix("binary", process_group=group)

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        self.val.update(batch[0] % 2, batch[0] % 2)

    def on_validation_epoch_end(self):
        self.counts.append(int(self.val.compute().sum()))
        self.val.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def in_tensor_parallel(rank, world):
    join_lightning(world)
    found = []
    for grouped in (False, True):
        for act in ("fit", "validate"):
            module, loader = Parallel(grouped), exact(TensorDataset(torch.arange(7)), 2)
            strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2)
            options = {"strategy": strategy, "devices": world, "logger": False, "enable_checkpointing": False}
            trainer = lightning.Trainer(**QUIET, **options, max_epochs=1, num_sanity_val_steps=0)
            with listening() as told:
                if act == "fit":
                    trainer.fit(module, loader, loader)
                else:
                    trainer.validate(module, loader, verbose=False)
            found.append((grouped, module.counts, [text for text in told if "tensor-parallel" in text]))
    return found


def test_tensor_parallel_processes_are_told_and_a_process_group_counts_samples_once():
    for rank, found in enumerate(launch(4, in_tensor_parallel)):
        for grouped, counts, told in found:
            assert counts == [7 if grouped else 14]
            assert len(told) == (rank == 0 and not grouped)
            assert all('process_group=self.device_mesh["data_parallel"].get_group()' in text for text in told)


class TwoProcesses(SingleDeviceStrategy):
    """Runs two processes without torch.distributed, as XLA does."""

    def __init__(self):
        super().__init__("cpu")
        self.world_size = 2


@pytest.mark.parametrize("act", ["fit", "validate", "test"])
def test_several_processes_without_torch_distributed_raise(act):
    def run(**arguments):
        module = Classifier(report=False, keep=False)
        module.val = ImbalanceReport("multiclass", 3, **arguments)
        options = {"logger": False, "enable_checkpointing": False, "max_epochs": 1, "num_sanity_val_steps": 0}
        trainer = lightning.Trainer(**QUIET, **options, strategy=TwoProcesses())
        try:
            getattr(trainer, act)(module, *[exact(dataset())] * (2 if act == "fit" else 1))
        finally:
            counted.append(module.val.update_count)

    counted = []
    with pytest.raises(RuntimeError, match=r"runs 2 processes, but torch.distributed is not .* self\.val would report"):
        run()
    run(dist_sync_fn=lambda state, group: [state])
    run(distributed_available_fn=lambda: False)
    assert counted == [0, 7, 7]


def on_fabric(rank, world):
    join_lightning(world)
    notes = Notes()
    fabric = lightning.Fabric(accelerator="cpu", devices=world, strategy="ddp", loggers=[notes])
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    model = fabric.setup(Net())
    loader = fabric.setup_dataloaders(exact(dataset()))
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_")
    epochs = []
    for _ in range(2):
        seen = seen_of(loader, model, report)
        fabric.log_dict(report.compute())
        epochs.append((report.counts().tolist(), seen))
        report.reset()
    padded = len(list(fabric.setup_dataloaders(DataLoader(range(303), 16)).sampler))
    return types.SimpleNamespace(epochs=epochs, logged=notes.rows, padded=padded)


def test_fabric():
    ranks = launch(2, on_fabric)
    target, preds = assert_exact(ranks, epochs=2)
    for rank in ranks:
        assert rank.padded == 152  # as examples/trainers.md says of 303 samples
        assert len(rank.logged) == 2
        for row in rank.logged:
            assert row["val_accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))


# --- resuming -------------------------------------------------------------------------------------------------------


class Resumed(Classifier):
    """Counts in training as well."""

    def __init__(self):
        super().__init__()
        self.train_report = ImbalanceReport("multiclass", num_classes=3, prefix="train_")
        self.trained = []

    def training_step(self, batch, batch_idx):
        self.train_report.update(batch[1], batch[1])
        return super().training_step(batch, batch_idx)

    def on_train_epoch_end(self):
        self.trained.append(int(self.train_report.counts().sum()))
        self.log_dict(self.train_report)


@pytest.mark.filterwarnings(r"ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.filterwarnings(r"ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_states_are_not_in_checkpoints_so_a_resumed_epoch_trains_on_the_rest_and_validates_exactly(tmp_path):
    needs_resumed_epochs(lightning)

    def run(checkpoint=None):
        torch.manual_seed(0)
        module, data = Resumed(), dataset()
        saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=4, save_top_k=-1)
        trainer = lightning.Trainer(**QUIET, max_epochs=2, logger=False, callbacks=[saver])
        trainer.fit(module, DataLoader(data, 16, drop_last=True), exact(data), **loading(lightning, checkpoint, False))
        return module, trainer

    module, _ = run()
    assert module.trained == [96, 96]  # six batches of 16
    path = tmp_path / "step=4.ckpt"
    saved = torch.load(path, weights_only=False)
    assert not any("counts" in name for name in saved["state_dict"])
    module, trainer = run(path)
    assert trainer.global_step == 12
    assert module.trained == [32, 96]
    assert_exact([types.SimpleNamespace(epochs=module.epochs)], epochs=2)
    ranks = launch(2, trained, {"checkpoint": str(path), "epochs": 2})  # with another number of processes
    assert_exact(ranks, epochs=2)
