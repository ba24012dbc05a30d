"""Lightning, Fabric and FSDP2 with real trainers: exact counts, the right checkpoint, and never a hang."""

import collections
import contextlib
import functools
import importlib.metadata
import itertools
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import types
import warnings

import lightning
import matplotlib as mpl
import pytest
import pytorch_lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CometLogger, CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger
from processes import counted_collectives, launch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, Subset, SubsetRandomSampler, TensorDataset
from torchmetrics.classification import MulticlassAccuracy
from versions import loading, needs_callbacks_for, needs_fsdp2_on_cpus, needs_resumed_epochs

import imbtorch
from imbtorch import ExactBatchSampler, ImbalanceReport
from imbtorch.lightning import ConfusionFigures, MonitorGuard, monitor_guard

mpl.use("Agg")
from matplotlib import image

# What the two packages say of each other and of runs as tiny as these. Whatever else is said must be expected.
THIRD_PARTY = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r"The '\w+_dataloader' does not have many workers",
    r"This process \(pid=\d+\) is multi-threaded, use of fork\(\)",  # by workers of loaders, from Python 3.12 on
)
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]
CLASSES = ["common", "other", "rare"]
QUIET = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "log_every_n_steps": 1,
}


@contextlib.contextmanager
def listening():
    """A list that holds, afterwards, every warning that was given, however often, but for those of others."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    said = [str(each.message) for each in caught]
    texts += [text for text in said if not any(re.match(known, text) for known in THIRD_PARTY)]


# --- two processes --------------------------------------------------------------------------------------------------


def dataset(samples=101, rare=3, seed=0):
    """Features that tell three classes apart, the last of them rare; each sample knows its index."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(2, (samples,), generator=generator)
    target[torch.randperm(samples, generator=generator)[:rare]] = 2
    features = torch.randn(samples, 3, generator=generator) + 2 * nn.functional.one_hot(target, 3)
    return TensorDataset(features, target, torch.arange(samples))


class Classifier(lightning.LightningModule):
    """Keeps, for each validation or test, its counts and the samples that this process saw."""

    def __init__(self, report=True, log_steps=False, keep=True):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.val = ImbalanceReport(
            "multiclass", class_names=CLASSES, prefix="val_", per_class=("recall", "f1", "cba", "iam")
        )
        self.report, self.log_steps, self.keep = report, log_steps, keep
        self.epochs, self.seen = [], []

    def training_step(self, batch, batch_idx):
        features, target, _ = batch
        return nn.functional.cross_entropy(self.net(features), target)

    def on_validation_epoch_start(self):
        self.seen = []

    def validation_step(self, batch, batch_idx):
        features, target, index = batch
        scores = self.net(features)
        self.val.update(scores, target)
        self.seen += zip(index.tolist(), target.tolist(), scores.argmax(1).tolist(), strict=True)
        if self.log_steps:
            self.log("loss", nn.functional.cross_entropy(scores, target), on_step=True, on_epoch=True, sync_dist=True)

    def on_validation_epoch_end(self):
        if self.report:
            self.log_dict(self.val)
        if self.keep and not self.trainer.sanity_checking:
            self.epochs.append((self.val.counts().tolist(), self.seen))

    def predict_step(self, batch, batch_idx):
        return batch[-1].tolist()

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Data(lightning.LightningDataModule):
    def __init__(self, train, val):
        super().__init__()
        self.train_dataloader, self.val_dataloader = (lambda: train), (lambda: val)


def join_lightning(world):
    """Let Lightning use the processes that there are, as those of torchrun."""
    os.environ.update(
        TORCHELASTIC_RUN_ID="test",
        GROUP_RANK="0",
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="1",
    )


def exact(data, batch_size=16, **options):
    return DataLoader(data, batch_sampler=ExactBatchSampler(SequentialSampler(data), batch_size), **options)


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


def trained(rank, world, options):
    """Run a trainer on all processes; options say what is out of the ordinary."""
    join_lightning(world)
    torch.manual_seed(0)
    data = dataset(options.get("samples", 101))
    module = WithoutMetrics() if options.get("bare") else Classifier(**options.get("module", {}))
    workers = options.get("workers", 0)
    val_data = Subset(data, range(0, len(data), 2)) if options.get("subset") else data
    make = {"exact": exact, "padded": padded, "own": own_batches}[options.get("batches", "exact")]
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


def test_lightning_warns_as_ever_where_there_is_no_metric_of_ours():
    ranks = launch(2, trained, {"batches": "padded", "act": "validate", "bare": True})
    (text,) = ranks[0].told
    assert text.startswith("Using `DistributedSampler` with the dataloaders")


def test_fewer_samples_than_processes_is_an_error_on_all():
    for rank in launch(2, trained, {"samples": 1, "act": "validate"}, timeout=30):
        assert "1 samples cannot give each of 2 processes a batch" in rank.error


@pytest.mark.parametrize(("act", "ends"), [("validate", 1), ("fit", 3)])
def test_one_all_reduce_an_epoch_belongs_to_the_report(act, ends):
    """The same run without the report makes as many collectives, but for one at each end of a validation."""
    options = {"act": act, "epochs": 2}
    with_report = launch(2, trained, {**options, "module": {"report": True, "keep": False}})
    without = launch(2, trained, {**options, "module": {"report": False, "keep": False}})
    for ours, others in zip(with_report, without, strict=True):
        assert sum(name.startswith("val_") for name in ours.metrics) == 9 + 4 * 3
        assert ours.calls - others.calls == {"all_reduce": ends}
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
import sys, warnings
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
        accelerator="cpu", devices=2, strategy=sys.argv[1], max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    val = DataLoader(data, batch_sampler=ExactBatchSampler(SequentialSampler(data), 16))
    trainer.fit(Module(), DataLoader(data, 16), val)
    if trainer.is_global_zero:
        print("ACCURACY", trainer.callback_metrics["val_accuracy"].item(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp"])
def test_launchers_of_lightning(strategy, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", script, strategy],
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
    for _ in range(2):
        features, target, _ = data[rank::world]
        nn.functional.cross_entropy(model(features), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = seen_of(exact(data), model, model.val)
        with counted_collectives() as calls:
            values = {name: value.item() for name, value in model.val.compute().items()}
        assert calls == ["all_reduce"]
        epochs.append((model.val.counts().tolist(), seen))
        model.val.reset()
    return types.SimpleNamespace(epochs=epochs, metrics=values)


@needs_fsdp2_on_cpus
def test_a_report_in_a_module_sharded_by_fsdp2():
    ranks = launch(2, sharded)
    target, preds = assert_exact(ranks, epochs=2)
    for rank in ranks:
        assert rank.metrics["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))


class Notes(Logger):
    """Remembers what it is given, and takes no figures."""

    name, version = "notes", 0

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        self.rows.append({name: float(value) for name, value in metrics.items()})

    def log_hyperparams(self, params, *args, **kwargs):
        pass

    def values(self, name):
        return [row[name] for row in self.rows if name in row]


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
    return types.SimpleNamespace(epochs=epochs, logged=notes.rows)


def test_fabric():
    ranks = launch(2, on_fabric)
    target, preds = assert_exact(ranks, epochs=2)
    for rank in ranks:
        assert len(rank.logged) == 2
        for row in rank.logged:
            assert row["val_accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(target, preds))


# --- what is monitored ----------------------------------------------------------------------------------------------

TRUTH = [1 if index % 4 == 0 else 0 for index in range(40)]
BATCHES = 4  # of ten samples, in training and validation


def predictions(wrong):
    """True classes, but for the first so many of each ten."""
    return [1 - truth if index % 10 < wrong else truth for index, truth in enumerate(TRUTH)]


def iam(wrong):
    """Imbalance accuracy by scikit-learn's precision and recall: twice the mean of the smaller one, less 1."""
    precision, recall, *_ = sklearn_metrics.precision_recall_fscore_support(TRUTH, predictions(wrong), zero_division=0)
    return 2 * sum(map(min, zip(precision, recall, strict=True))) / 2 - 1


@functools.cache
def scripted(package):
    class Scripted(package.LightningModule):
        """Predicts as the script says for each epoch; ``hooks`` say what is logged where."""

        def __init__(self, wrong=(4, 1, 3), plateau=None, **hooks):
            super().__init__()
            self.net = nn.Linear(1, 1)
            self.val = ImbalanceReport("binary", prefix="val_")
            self.train_report = ImbalanceReport("binary", prefix="train_")
            self.wrong, self.plateau, self.steps, self.rates = wrong, plateau, 0, []
            self.hooks = {"on_validation_epoch_end": lambda module: module.log_dict(module.val)} | hooks

        def hooked(self, name, *args):
            if name in self.hooks:
                self.hooks[name](self, *args)

        def counted(self, report, index):
            chosen = torch.tensor(predictions(self.wrong[self.current_epoch]))[index], torch.tensor(TRUTH)[index]
            report.update(*chosen)
            return chosen

        def training_step(self, batch, batch_idx):
            self.steps += 1
            self.hooked("training_step", batch[0])
            return self.net(torch.ones(1)).sum()

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            if "validation_step" in self.hooks:
                self.hooked("validation_step", batch[0], dataloader_idx)
            else:
                self.counted(self.val, batch[0])

        def on_validation_epoch_end(self):
            self.hooked("on_validation_epoch_end")

        def on_train_epoch_start(self):
            self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

        def on_train_epoch_end(self):
            self.hooked("on_train_epoch_end")

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            if self.plateau is None:
                return optimizer
            key, mode = self.plateau
            scheduler = ReduceLROnPlateau(optimizer, mode=mode, patience=0, factor=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": key}}

    return Scripted


def indices(samples=40):
    return DataLoader(TensorDataset(torch.arange(samples)), 10)


CALLBACKS = {lightning: lightning.pytorch.callbacks, pytorch_lightning: pytorch_lightning.callbacks}


def fit(module, callbacks=(), package=lightning, loaders=None, **options):
    options = {**QUIET, "max_epochs": len(module.wrong), "logger": False, "callbacks": list(callbacks), **options}
    saves = any(isinstance(each, CALLBACKS[package].ModelCheckpoint) for each in callbacks)
    trainer = package.Trainer(enable_checkpointing=saves, **options)
    trainer.fit(module, indices(), indices() if loaders is None else loaders)
    return trainer


class Watcher(lightning.Callback):
    """Anybody's callback with ``monitor`` and ``mode``."""

    def __init__(self, monitor, mode="min"):
        self.monitor, self.mode = monitor, mode


def watch(kind, key, mode, folder, package=lightning):
    """Arguments for the module and the callbacks of something that monitors a key."""
    if kind == "ReduceLROnPlateau":
        return {"plateau": (key, mode)}, []
    if kind == "ModelCheckpoint":
        return {}, [CALLBACKS[package].ModelCheckpoint(folder, "{epoch}", monitor=key, mode=mode)]
    if kind == "EarlyStopping":
        return {}, [CALLBACKS[package].EarlyStopping(key, mode=mode, patience=0)]
    needs_callbacks_for(package)
    return {}, [Watcher(key, mode)]


KINDS = ["ModelCheckpoint", "EarlyStopping", "ReduceLROnPlateau", "Watcher"]
EVERY_PACKAGE = pytest.mark.parametrize("package", CALLBACKS, ids=["lightning", "pytorch_lightning"])
FACTORIES = {
    lightning: ("lightning.pytorch", monitor_guard.lightning_callbacks),
    pytorch_lightning: ("pytorch_lightning", monitor_guard.pytorch_lightning_callbacks),
}


@EVERY_PACKAGE
def test_the_guard_is_registered(package):
    group, _ = FACTORIES[package]
    found = importlib.metadata.entry_points(group=f"{group}.callbacks_factory")
    (entry,) = [each for each in found if each.name == "imbtorch"]
    assert entry.module == "imbtorch_entry_point", "installed before the entry points moved; install imbtorch again"
    (guard,) = entry.load()()
    assert isinstance(guard, CALLBACKS[package].Callback)
    assert type(guard).__name__ == "MonitorGuard"


@EVERY_PACKAGE
def test_the_guard_can_be_pickled(package):
    """As launchers that spawn do."""
    (guard,) = pickle.loads(pickle.dumps(FACTORIES[package][1]()))
    assert isinstance(guard, CALLBACKS[package].Callback)


@EVERY_PACKAGE
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_mode_raises_before_the_first_training_step(kind, package, tmp_path):
    arguments, callbacks = watch(kind, "val_iam", "min", tmp_path, package)
    module = scripted(package)(**arguments)
    wanted = (
        rf"{kind}\(monitor='val_iam'\) has mode='min', but of 'val_iam' higher is better.*"
        rf"Write {kind}\(monitor='val_iam', mode='max'\)"
    )
    with pytest.raises(ValueError, match=wanted):
        fit(module, callbacks, package)
    assert module.steps == 0
    assert list(tmp_path.iterdir()) == []


def test_modelcheckpoint_without_a_mode_raises(tmp_path):
    with pytest.raises(ValueError, match=r"Write ModelCheckpoint\(monitor='val_iam', mode='max'\)"):
        fit(scripted(lightning)(), [ModelCheckpoint(tmp_path, monitor="val_iam")])
    with pytest.raises(ValueError, match=r"Write EarlyStopping\(monitor='val_recall/1', mode='max'\)"):
        fit(scripted(lightning)(), [EarlyStopping("val_recall/1")])


@EVERY_PACKAGE
def test_the_best_epoch_is_kept(package, tmp_path):
    script = (4, 2, 1, 3)
    _, callbacks = watch("ModelCheckpoint", "val_iam", "max", tmp_path, package)
    trainer = fit(scripted(package)(script), callbacks, package)
    values = [iam(wrong) for wrong in script]
    assert trainer.checkpoint_callback.best_model_score.item() == pytest.approx(max(values))
    assert torch.load(trainer.checkpoint_callback.best_model_path)["epoch"] == values.index(max(values)) == 2
    assert trainer.callback_metrics["val_iam"].item() == pytest.approx(values[-1])


@EVERY_PACKAGE
def test_early_stopping_stops_where_it_should(package):
    _, callbacks = watch("EarlyStopping", "val_iam", "max", None, package)
    trainer = fit(scripted(package)((4, 2, 3, 1, 0)), callbacks, package)
    assert callbacks[0].stopped_epoch == 2
    assert trainer.current_epoch == 3
    assert callbacks[0].best_score.item() == pytest.approx(iam(2))


@EVERY_PACKAGE
def test_the_learning_rate_falls_after_a_worse_epoch(package):
    module = scripted(package)((4, 2, 3, 1), plateau=("val_iam", "max"))
    fit(module, package=package)
    assert module.rates == [0.1, 0.1, 0.1, 0.05]


def cross(metric):
    """Count and log a metric of the module under val_<attribute>."""

    def step(module, index, _):
        module.counted(getattr(module, metric), index)

    return {
        "validation_step": step,
        "on_validation_epoch_end": lambda module: module.log(f"val_{metric}", getattr(module, metric)),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_where_lower_is_better(kind, tmp_path):
    def fitted(mode):
        arguments, callbacks = watch(kind, "val_entropy", mode, tmp_path)
        module = scripted(lightning)(**arguments, **cross("entropy"))
        module.entropy = imbtorch.ConfusionEntropy("binary")
        fit(module, callbacks)

    with pytest.raises(ValueError, match=rf"of 'val_entropy' lower is better.*Write {kind}\(.*mode='min'\)"):
        fitted("max")
    fitted("min")


def test_metrics_of_others_are_left_alone(tmp_path):
    module = scripted(lightning)(**cross("iam"))
    module.iam = MulticlassAccuracy(num_classes=2)
    trainer = fit(module, [ModelCheckpoint(tmp_path, monitor="val_iam"), Watcher("val_iam", "max")])
    assert trainer.checkpoint_callback.best_model_path


@pytest.mark.parametrize(("mode", "taken"), [("min", "lowest"), ("max", "highest")])
def test_a_monitor_without_a_direction_is_told_once(mode, taken):
    def error(counts):
        return 1 - imbtorch.accuracy(counts)

    module = scripted(lightning)()
    module.val = ImbalanceReport(
        "binary", measures={"dominance": imbtorch.Dominance, "error": error, "known": (error, False)}, prefix="val_"
    )
    with listening() as told:
        fit(module, [Watcher("val_dominance", mode), Watcher("val_error", mode), Watcher("val_known", "min")])
    for text, name in zip(told, ["val_dominance", "val_error"], strict=True):
        assert text.startswith(
            f"Watcher(monitor={name!r}, mode={mode!r}) takes the {taken} {name!r} for the best, which cannot be checked"
        )
        assert "as (function, True), or False where lower is better" in text
    with pytest.raises(ValueError, match="'val_known' lower is better"):
        fit(module, [Watcher("val_known", "max")])


def test_a_metric_or_threshold_without_a_direction_is_told_too(tmp_path):
    module = scripted(lightning)(**cross("dominance"))
    module.dominance = imbtorch.Dominance("binary")
    with pytest.warns(UserWarning, match=r"ModelCheckpoint\(monitor='val_dominance', mode='min'\) takes the lowest"):
        fit(module, [ModelCheckpoint(tmp_path, monitor="val_dominance")])
    module = swept(lambda module: module.log_dict(module.sweep))
    with pytest.warns(UserWarning, match=r"EarlyStopping\(monitor='val_threshold', mode='min'\) takes the lowest"):
        fit(module, [EarlyStopping("val_threshold")])
    with pytest.raises(ValueError, match="'val_value' higher is better"):
        fit(module, [EarlyStopping("val_value")])


def swept(log):
    """A module that counts scores of .25 and .75 in a sweep."""

    def count(module, index, _):
        chosen = torch.tensor(predictions(module.wrong[module.current_epoch]))[index]
        module.sweep.update(0.25 + 0.5 * chosen, torch.tensor(TRUTH)[index])

    module = scripted(lightning)(validation_step=count, on_validation_epoch_end=log)
    module.sweep = imbtorch.ThresholdSweep(imbtorch.balanced_accuracy, prefix="val_")
    return module


def test_a_report_and_a_sweep_are_logged_together_and_average_precision_is_monitored(tmp_path):
    def log(module):
        module.log_dict(module.val)
        module.log_dict(module.sweep)

    def count(module, index, _):
        chosen, target = module.counted(module.val, index)
        module.sweep.update(0.25 + 0.5 * chosen, target)

    module = scripted(lightning)(validation_step=count, on_validation_epoch_end=log)
    module.sweep = imbtorch.ThresholdSweep("f1", also=("auc", "average_precision"), prefix="val_")
    kept = ModelCheckpoint(tmp_path, monitor="val_average_precision", mode="max")
    trainer = fit(module, [kept])
    oracle = [sklearn_metrics.average_precision_score(TRUTH, predictions(wrong)) for wrong in module.wrong]
    assert kept.best_model_score.item() == pytest.approx(max(oracle))
    assert trainer.callback_metrics["val_average_precision"].item() == pytest.approx(oracle[-1])
    assert {"val_iam", "val_threshold", "val_value", "val_auc"} <= set(trainer.callback_metrics)
    with pytest.raises(ValueError, match="'val_auc' higher is better"):
        fit(module, [EarlyStopping("val_auc")])


def log_report_at_train_end(module):
    module.log_dict(module.train_report)


def update_train_report(module, index):
    module.counted(module.train_report, index)


def update_and_log_train_report(module, index):
    module.counted(module.train_report, index)
    module.log_dict(module.train_report, on_step=False, on_epoch=True)


TRAIN_COUNTS = {"training_step": update_train_report}
TRAIN_HOOKS = {
    "training_step": {"training_step": update_and_log_train_report},
    "on_train_epoch_end": {"training_step": update_train_report, "on_train_epoch_end": log_report_at_train_end},
}


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("where", TRAIN_HOOKS)
@pytest.mark.parametrize("kind", KINDS)
def test_training_keys_raise_at_the_end_of_the_first_epoch(kind, where, epochs, tmp_path):
    arguments, callbacks = watch(kind, "train_iam", "min", tmp_path)
    module = scripted(lightning)((4, 1)[:epochs], **arguments, **TRAIN_HOOKS[where])
    with pytest.raises(ValueError, match=rf"{kind}\(monitor='train_iam'\) has mode='min'"):
        fit(module, callbacks)
    assert module.steps == BATCHES
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", TRAIN_HOOKS)
def test_training_keys_with_the_right_mode(where, tmp_path):
    trainer = fit(
        scripted(lightning)((4, 1, 3), **TRAIN_HOOKS[where]),
        [ModelCheckpoint(tmp_path, monitor="train_iam", mode="max")],
    )
    assert trainer.checkpoint_callback.best_model_score.item() == pytest.approx(iam(1))
    assert torch.load(trainer.checkpoint_callback.best_model_path)["epoch"] == 1


def test_without_a_sanity_check_the_first_validation_raises(tmp_path):
    module = scripted(lightning)()
    with pytest.raises(ValueError, match=r"mode='max'"):
        fit(module, [ModelCheckpoint(tmp_path, monitor="val_iam")], num_sanity_val_steps=0)
    assert module.steps == BATCHES
    assert list(tmp_path.iterdir()) == []


def forward_and_log(module, index, *_):
    report = module.train_report if module.trainer.training else module.val
    report(torch.tensor(predictions(module.wrong[module.current_epoch]))[index], torch.tensor(TRUTH)[index])
    module.log_dict(report, on_step=True, on_epoch=True)


FORKED = {
    "training_step": forward_and_log,
    "validation_step": forward_and_log,
    "on_validation_epoch_end": lambda _: None,
}


@pytest.mark.parametrize("key", ["train_iam", "train_iam_step", "train_iam_epoch", "val_iam", "val_iam_epoch"])
def test_keys_logged_by_step_and_epoch(key):
    module = scripted(lightning)(**FORKED)
    with pytest.raises(ValueError, match=f"'{key}' higher is better"):
        fit(module, [Watcher(key)])
    assert module.steps == (BATCHES if key.startswith("train") else 0)
    fit(scripted(lightning)(**FORKED), [Watcher(key, "max")])


def test_keys_of_several_dataloaders():
    def log_each(module, index, loader):
        module.counted(module.reports[loader], index)
        module.log_dict(module.reports[loader])

    def made():
        module = scripted(lightning)(validation_step=log_each, on_validation_epoch_end=lambda _: None)
        module.reports = nn.ModuleList(ImbalanceReport("binary", prefix="val_") for _ in range(2))
        return module

    with pytest.raises(ValueError, match=r"\(monitor='val_iam/dataloader_idx_1', mode='max'\)"):
        fit(made(), [Watcher("val_iam/dataloader_idx_1")], loaders=[indices(), indices(20)])
    fit(made(), [Watcher("val_iam/dataloader_idx_1", "max")], loaders=[indices(), indices(20)])


def test_a_sweeps_value_logged_in_place_of_the_sweep_is_told_once():
    def log_values(module):
        module.log_dict(module.sweep.compute())
        module.sweep.reset()

    with listening() as told:
        fit(swept(log_values))
    (text,) = told
    assert "'val_threshold' was logged as a plain value" in text


PILED = r"self.{} still held {} earlier updates when this {} began, and counts on"


def test_counts_that_pile_up_over_validations_are_told_once():
    """Ten samples of the sanity check, then forty more in each epoch."""
    counted = []

    def log_values(module):
        counted.append(int(module.val.counts().sum()))
        module.log_dict({f"my_{name}": value for name, value in module.val.compute().items()})

    with listening() as told:
        fit(scripted(lightning)(on_validation_epoch_end=log_values), num_sanity_val_steps=1)
    assert counted == [10, 50, 90, 130]
    (text,) = told
    assert text.startswith(PILED.format("val", 1, "validation"))
    assert "Log self.val itself, not what its compute() returns" in text
    assert "self.val.reset()" in text


def test_counts_that_pile_up_over_training_epochs_are_told_once():
    def count(module, index, *_):
        module.counted(module.train_report, index)
        module.log("mine", module.train_report.compute()["train_iam"], on_step=True)

    with listening() as told:
        fit(scripted(lightning)(training_step=count))
    (text,) = told
    assert text.startswith(PILED.format("train_report", BATCHES, "training"))


@pytest.mark.parametrize("act", ["validate", "test"])
@pytest.mark.parametrize("reset", [True, False])
def test_counts_that_pile_up_over_calls_are_told_once(act, reset):
    def log_values(module):
        module.log("mine", module.val.compute()["val_iam"])
        if reset:
            module.val.reset()

    module = scripted(lightning)(on_validation_epoch_end=log_values)
    module.test_step, module.on_test_epoch_end = module.validation_step, module.on_validation_epoch_end
    trainer = lightning.Trainer(**QUIET, logger=False, enable_checkpointing=False)
    with listening() as told:
        for _ in range(3):
            getattr(trainer, act)(module, indices(), verbose=False)
    stage = {"validate": "validation", "test": "test"}[act]
    assert [text.partition(":")[0] for text in told] == [PILED.format("val", BATCHES, stage)] * (not reset)


INTERRUPTS = {"exception": (KeyError("broken file"), KeyError), "Ctrl-C": (KeyboardInterrupt(), SystemExit)}


@EVERY_PACKAGE
@pytest.mark.parametrize("raised", INTERRUPTS)
@pytest.mark.parametrize("act", ["fit", "validate", "test"])
def test_what_an_interrupted_evaluation_counted_is_forgotten(act, raised, package):
    """Two of four batches of ten; without the sanity check, which would reset a metric that it has logged."""
    error, expected = INTERRUPTS[raised]
    seen = []

    def count(module, index, _):
        if index[0] == 20 and error is not None:
            raise error
        module.counted(module.val, index)
        module.counted(module.single, index)

    def log(module):
        seen.append((int(module.val.counts().sum()), float(module.val["accuracy"].compute())))
        module.log_dict(module.val)
        module.log("val_recall_", module.single)

    module = scripted(package)(validation_step=count, on_validation_epoch_end=log, **TRAIN_COUNTS)
    module.single, module.older = imbtorch.Recall("binary"), imbtorch.Recall("binary")
    module.older.update(*[torch.tensor(TRUTH)] * 2)  # counts of before are nobody's to forget
    module.test_step, module.on_test_epoch_end = module.validation_step, module.on_validation_epoch_end
    options = {**QUIET, "logger": False, "enable_checkpointing": False, "num_sanity_val_steps": 0, "max_epochs": 1}
    handler = signal.getsignal(signal.SIGINT)  # which Lightning turns off

    def run():
        trainer = package.Trainer(**options)
        if act == "fit":
            trainer.fit(module, indices(), indices())
        else:
            getattr(trainer, act)(module, indices(), verbose=False)

    try:
        with pytest.raises(expected):
            run()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert int(module.train_report.local_confmat.sum()) == (40 if act == "fit" else 0)
    assert int(module.older.local_confmat.sum()) == 40
    error = None
    module.train().train_report.reset()
    with listening() as told:
        run()
    assert seen == [(40, pytest.approx(sklearn_metrics.accuracy_score(TRUTH, predictions(4))))]
    assert told == []


@pytest.mark.parametrize("kind", ["report", "metric"])
def test_a_value_logged_in_place_of_the_metric_is_told_once(kind):
    def log_values(module):
        metric = module.val if kind == "report" else module.val_gmean
        module.log_dict(metric.compute() if kind == "report" else {"val_gmean": metric.compute()})
        module.log("val_loss", 1.0)
        metric.reset()

    module = scripted(lightning)(
        validation_step=lambda module, index, _: module.counted(
            module.val if kind == "report" else module.val_gmean, index
        ),
        on_validation_epoch_end=log_values,
    )
    module.val_gmean = imbtorch.GeometricMean("binary")
    with listening() as told:
        fit(module, [Watcher("val_iam", "min")])
    (text,) = told
    name = "val_accuracy" if kind == "report" else "val_gmean"
    assert f"'{name}' was logged as a plain value" in text
    assert "Log the metric, not its value" in text


def test_an_explicit_guard_beside_the_registered_one_says_nothing_twice():
    def log_values(module):
        module.log_dict(module.val.compute())
        module.val.reset()

    with listening() as told:
        fit(scripted(lightning)(on_validation_epoch_end=log_values), [MonitorGuard()])
    assert len(told) == 1


@pytest.mark.parametrize(
    ("value", "guards"), [*((off, 0) for off in ("0", "false", "OFF", "No", " 0 ")), ("1", 1), ("", 1)]
)
def test_what_switches_the_guard_off(value, guards, monkeypatch):
    monkeypatch.setenv("IMBTORCH_MONITOR_GUARD", value)
    assert len(monitor_guard.lightning_callbacks()) == len(monitor_guard.pytorch_lightning_callbacks()) == guards


def test_the_guard_can_be_switched_off(monkeypatch, tmp_path):
    monkeypatch.setenv("IMBTORCH_MONITOR_GUARD", "0")
    for package in CALLBACKS:
        _, callbacks = watch("ModelCheckpoint", "val_iam", "min", tmp_path / package.__name__, package)
        trainer = fit(scripted(package)(), callbacks, package)
        assert not any("MonitorGuard" in type(each).__name__ for each in trainer.callbacks)
        assert trainer.checkpoint_callback.best_model_score.item() == pytest.approx(iam(4))  # the worst epoch


@pytest.mark.parametrize("results", [{}, {"_results": None}, {"_results": {"val_iam": object()}}, {"_results": 3}])
def test_the_guard_does_without_what_lightning_keeps_to_itself(results):
    trainer = types.SimpleNamespace(
        callbacks=[Watcher("val_iam")],
        lr_scheduler_configs=[],
        state=types.SimpleNamespace(fn="fit"),
        val_dataloaders=None,
        is_global_zero=True,
        **results,
    )
    guard, module = MonitorGuard(), scripted(lightning)()
    guard.on_validation_end(trainer, module)
    guard.on_train_epoch_start(trainer, module)
    guard.on_train_epoch_end(trainer, module)
    guard.on_save_checkpoint(trainer, module, {})


def test_two_trainers_at_once():
    """One inside a hook of the other, each with a guard of its own."""

    def log_values(module):
        module.log_dict(module.val.compute())
        module.val.reset()

    def nested(module):
        module.log_dict(module.val)
        if not module.trainer.sanity_checking:
            with pytest.raises(ValueError, match="'val_mcc' higher is better"):
                fit(scripted(lightning)(), [Watcher("val_mcc")])
            fit(scripted(lightning)((1,), on_validation_epoch_end=log_values), [Watcher("val_mcc")])

    with listening() as told:
        trainer = fit(
            scripted(lightning)(on_validation_epoch_end=nested), [Watcher("val_iam", "max"), Watcher("val_mcc", "max")]
        )
    assert trainer.callback_metrics["val_iam"].item() == pytest.approx(iam(3))
    assert len(told) == 3  # each inner trainer that logs values is told of it once


# --- classes without targets, part of the data ----------------------------------------------------------------------


class Late(lightning.LightningModule):
    """Validates on samples in an order in which the last class comes last, if at all."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.val = ImbalanceReport("multiclass", class_names=CLASSES, prefix="val_")
        self.values = []

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        self.val.update(batch[0], batch[0])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)

    def on_train_epoch_end(self):
        self.values.append({name: value.item() for name, value in self.trainer.callback_metrics.items()})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit_late(samples, callbacks=(), **options):
    module, loader = Late(), DataLoader(TensorDataset(torch.tensor(samples)), 2)
    with listening() as told:
        trainer = lightning.Trainer(
            **QUIET, logger=False, enable_checkpointing=False, callbacks=list(callbacks), **{"max_epochs": 1, **options}
        )
        trainer.fit(module, indices(10), loader)
    return trainer, module, told


def test_the_sanity_check_says_nothing_of_unseen_classes():
    _, module, told = fit_late([0, 1, 0, 1, 0, 1, 2, 2])  # the sanity check sees the first two batches of two
    assert told == []
    assert not any(map(math.isnan, module.values[0].values()))


@pytest.mark.parametrize("part", [{}, {"limit_val_batches": 2}, {"limit_val_batches": 1}, {"limit_val_batches": 0.5}])
def test_a_class_without_targets_is_told_in_each_epoch_and_overall_values_are_numbers(part):
    samples = [0, 1, 0, 1, 0, 1, 2, 2] if part else [0, 1, 0, 1]
    _, module, told = fit_late(samples, max_epochs=2, **part)
    assert len(told) == 2
    assert all("1 of 3 classes had no target" in text for text in told)
    for values in module.values:
        undefined = {name for name, value in values.items() if math.isnan(value)}
        assert undefined == {"val_recall/rare", "val_precision/rare"}


def test_early_stopping_does_not_meet_a_nan():
    trainer, _, _ = fit_late([0, 1, 0, 1], [EarlyStopping("val_iam", mode="max", patience=9)], max_epochs=3)
    assert trainer.current_epoch == 3
    assert trainer.early_stopping_callback.best_score.item() == 1


# --- training epochs, several dataloaders ---------------------------------------------------------------------------


def test_values_of_each_step_and_of_the_epoch():
    notes, script = Notes(), (4, 1)
    fit(scripted(lightning)(script, **FORKED), logger=notes)
    steps = []
    for wrong in script:
        for start in range(0, 40, 10):
            part = slice(start, start + 10)
            steps.append(sklearn_metrics.balanced_accuracy_score(TRUTH[part], predictions(wrong)[part]))
    assert notes.values("train_balanced_accuracy_step") == pytest.approx(steps)
    assert notes.values("train_iam_epoch") == pytest.approx([iam(wrong) for wrong in script])
    assert notes.values("val_iam_epoch") == pytest.approx([iam(wrong) for wrong in script])


def test_updates_in_steps_logged_at_the_end_of_the_epoch():
    notes, script = Notes(), (4, 1, 3)
    module = scripted(lightning)(script, **TRAIN_HOOKS["on_train_epoch_end"])
    fit(module, logger=notes)
    assert notes.values("train_iam") == pytest.approx([iam(wrong) for wrong in script])
    assert module.train_report.counts().sum() == 0  # Lightning has reset it


def test_one_value_of_a_report():
    notes = Notes()
    fit(scripted(lightning)(on_validation_epoch_end=lambda module: module.log("mine", module.val["iam"])), logger=notes)
    assert notes.values("mine") == pytest.approx([iam(4), iam(1), iam(3)])


@pytest.mark.parametrize("where", ["step", "epoch end"])
def test_a_report_for_each_dataloader(where):
    def count_each(module, index, loader):
        module.counted(module.reports[loader], index)
        if where == "step":
            module.log_dict(module.reports[loader])

    def log_each(module):
        if where == "epoch end":
            for report in module.reports:
                module.log_dict(report)

    module = scripted(lightning)((4, 1), validation_step=count_each, on_validation_epoch_end=log_each)
    prefixes = ["val_", "val_"] if where == "step" else ["val0_", "val1_"]
    module.reports = nn.ModuleList(ImbalanceReport("binary", prefix=prefix) for prefix in prefixes)
    notes = Notes()
    fit(module, loaders=[indices(), indices(20)], logger=notes)
    for loader, samples in enumerate((40, 20)):
        name = f"val_accuracy/dataloader_idx_{loader}" if where == "step" else f"val{loader}_accuracy"
        wanted = [sklearn_metrics.accuracy_score(TRUTH[:samples], predictions(wrong)[:samples]) for wrong in (4, 1)]
        assert notes.values(name) == pytest.approx(wanted)


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


# --- figures --------------------------------------------------------------------------------------------------------


class StandIn(Notes):
    """A logger of Lightning whose backend is elsewhere: remembers what the backend would have been given."""

    run_id, save_dir = "run", None
    finalize, after_save_checkpoint, log_graph = Logger.finalize, Logger.after_save_checkpoint, Logger.log_graph

    def __init__(self):
        Logger.__init__(self)
        self.rows, self.figures, self.tables = [], {}, {}

    experiment = property(lambda self: types.SimpleNamespace(log_figure=self.log_figure, log_text=self.log_text))


class Wandb(StandIn, WandbLogger):
    def log_image(self, key, images, step=None, **kwargs):
        self.figures[f"{key} at {step}"] = images[0]

    def log_table(self, key, columns=None, data=None, dataframe=None, step=None):
        self.tables[f"{key} at {step}"] = columns, data

    log_text = log_table


class MLflow(StandIn, MLFlowLogger):
    def log_figure(self, run_id, figure, artifact_file, *, save_kwargs=None):
        assert run_id == "run"
        self.figures[artifact_file] = figure

    def log_text(self, run_id, text, artifact_file):
        assert run_id == "run"
        self.tables[artifact_file] = text


class Comet(StandIn, CometLogger):
    """Arguments are those of the experiments of comet_ml 3.58."""

    run_id = property()  # which it does not have

    def log_figure(self, figure_name=None, figure=None, overwrite=False, step=None, metadata=None, format="auto"):
        self.figures[f"{figure_name} at {step}"] = figure

    def log_text(self, text, step=None, metadata=None):
        self.tables[f"{metadata['name']} at {step}"] = text


class Bare(Notes):
    """Has no experiment, which Lightning does not ask for."""


class Deaf(Notes):
    """Has an experiment that takes no figures."""

    experiment = property(lambda self: object())


def drawn(logger, script=(4, 1, 3), package=lightning, **options):
    callbacks = [ConfusionFigures(**options)]
    return fit(scripted(package)(script), callbacks, package, logger=logger)


def assert_drawn(path):
    picture = image.imread(path)
    assert min(picture.shape[:2]) > 200
    assert len({tuple(pixel) for row in picture[::7, ::7, :3].tolist() for pixel in row}) > 3


@pytest.mark.parametrize(("every", "epochs"), [(1, [0, 1, 2]), (2, [0, 2])])
def test_pictures_beside_the_csv_log(every, epochs, tmp_path):
    logger = CSVLogger(tmp_path)
    drawn(logger, every_n_epochs=every)
    paths = sorted((tmp_path / "lightning_logs" / "version_0" / "figures").iterdir())
    assert [path.name for path in paths] == [f"val_confusion_epoch{epoch:04d}.png" for epoch in epochs]
    for path in paths:
        assert_drawn(path)
    first, second = (image.imread(path) for path in paths[:2])
    assert (first != second).any()


def test_pictures_in_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    drawn(TensorBoardLogger(tmp_path))
    events = EventAccumulator(str(tmp_path / "lightning_logs" / "version_0"), {"images": 0})
    events.Reload()
    assert events.Tags()["images"] == ["val_confusion"]
    images = events.Images("val_confusion")
    assert [each.step for each in images] == [4, 8, 12]
    (tmp_path / "picture.png").write_bytes(images[0].encoded_image_string)
    assert_drawn(tmp_path / "picture.png")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Wandb, ["val_confusion at 4", "val_confusion at 8"]),
        (Comet, ["val_confusion at 4", "val_confusion at 8"]),
        (MLflow, ["figures/val_confusion_epoch0000.png", "figures/val_confusion_epoch0001.png"]),
    ],
)
def test_pictures_for_other_loggers(kind, names):
    logger = kind()
    drawn(logger, (4, 1))
    assert list(logger.figures) == names
    matrix, recalls = logger.figures[names[1]].axes
    assert [tick.get_text() for tick in matrix.get_xticklabels()] == ["0", "1"]
    counts = sklearn_metrics.confusion_matrix(TRUTH, predictions(1))
    assert [int(text.get_text().split("\n")[0]) for text in matrix.texts] == counts[counts > 0].tolist()
    wanted = sklearn_metrics.recall_score(TRUTH, predictions(1), average=None)
    assert [bar.get_height() for bar in recalls.patches] == pytest.approx(wanted.tolist())


@pytest.mark.parametrize("kind", [Deaf, Bare, Notes])
def test_a_logger_without_pictures_is_told_once(kind):
    with listening() as told:
        drawn(kind())
    takers = "TensorBoardLogger, WandbLogger, MLFlowLogger, CometLogger, CSVLogger"
    assert told == [f"{kind.__name__} gets no figures and tables of imbtorch, which {takers} take"]


class Broken(Comet):
    """Of a version that calls its arguments otherwise, or without a connection."""

    def log_figure(self, name, figure):
        raise AssertionError("is not called")


def test_a_logger_that_fails_is_told_once_and_the_training_goes_on():
    logger = Broken()
    with listening() as told:
        trainer = drawn(logger)
    (text,) = told
    assert text.startswith("Broken did not take 'val_confusion': TypeError: ")
    assert trainer.current_epoch == 3
    assert len(logger.values("val_iam")) == 3


def test_a_fast_run_has_a_logger_that_keeps_nothing():
    with listening() as told:
        fit(scripted(lightning)((4,)), [ConfusionFigures()], logger=True, fast_dev_run=True)
    assert told == []


def test_pictures_without_a_logger_and_with_the_other_package(tmp_path):
    drawn(False)
    needs_callbacks_for(pytorch_lightning)
    drawn(pytorch_lightning.loggers.CSVLogger(tmp_path), (1,), pytorch_lightning)
    assert [path.name for path in tmp_path.rglob("*.png")] == ["val_confusion_epoch0000.png"]


def test_pictures_of_one_report(tmp_path):
    module = scripted(lightning)((4, 1), **TRAIN_HOOKS["on_train_epoch_end"])
    fit(module, [ConfusionFigures()], logger=CSVLogger(tmp_path / "all"))
    names = {path.name for path in tmp_path.rglob("*.png")}
    assert names == {"val_confusion_epoch0000.png", "val_confusion_epoch0001.png"}  # what validation computed
    with pytest.raises(ValueError, match=r"no report 'oops'; it has \['train_report', 'val'\]"):
        drawn(CSVLogger(tmp_path / "oops"), report="oops")
    drawn(CSVLogger(tmp_path / "one"), (4,), report="val")
    assert [path.name for path in (tmp_path / "one").rglob("*.png")] == ["val_confusion_epoch0000.png"]


def trained_with_figures(tmp_path, script=(4, 1, 3), saver=None, epochs=3, **options):
    """A trainer after so many epochs, of which the second is the best, its module and the names of its pictures."""
    module = scripted(lightning)((*script, 2))  # what is validated after the training is wrong by two of ten
    module.test_step = lambda batch, batch_idx: module.counted(module.val, batch[0]) and None
    module.on_test_epoch_end = lambda: module.log_dict(module.val)
    saver = saver or ModelCheckpoint(tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max")
    callbacks = [ConfusionFigures(**options), saver]
    trainer = fit(module, callbacks, logger=CSVLogger(tmp_path, "", ""), max_epochs=epochs)
    return trainer, module, lambda: new_pictures(tmp_path / "figures")


def new_pictures(folder):
    """Names of the pictures, which are taken away."""
    paths = sorted(folder.glob("*.png"))
    for path in paths:
        path.unlink()
    return [path.name for path in paths]


@pytest.mark.parametrize("weights_only", [False, True], ids=["all", "weights only"])
def test_pictures_bear_the_epoch_of_the_weights_that_they_show(weights_only, tmp_path):
    """Of a run of epochs 0 to 2, whose best is 1; checkpoints of weights alone reach no callback."""
    saver = ModelCheckpoint(
        tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max", save_weights_only=weights_only
    )
    trainer, module, names = trained_with_figures(tmp_path, saver=saver, every_n_epochs=2)
    assert names() == ["val_confusion_epoch0000.png", "val_confusion_epoch0002.png"]
    trainer.validate(module, indices(), verbose=False)  # weights of the last epoch
    assert names() == ["val_confusion_epoch0002.png"]
    trainer.validate(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    assert names() == ["val_confusion_epoch0001.png"]
    trainer.test(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    assert names() == ["val_confusion_test_epoch0001.png"]
    trainer.save_checkpoint(tmp_path / "after.ckpt", weights_only=weights_only)  # says that its epoch is 3
    assert torch.load(tmp_path / "after.ckpt", weights_only=False)["epoch"] == 3
    trainer.validate(module, indices(), **loading(lightning, tmp_path / "after.ckpt", weights_only), verbose=False)
    assert names() == ["val_confusion_epoch0002.png"]


@pytest.mark.parametrize("weights_only", [False, True], ids=["all", "weights only"])
def test_pictures_of_weights_that_were_loaded_before(weights_only, tmp_path):
    saver = ModelCheckpoint(
        tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max", save_weights_only=weights_only
    )
    trainer, module, names = trained_with_figures(tmp_path, saver=saver)
    trainer.validate(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    names()
    trainer.test(module, indices(), verbose=False)  # which loads nothing
    assert names() == ["val_confusion_test_epoch0001.png"]


def test_pictures_of_weights_of_an_unknown_epoch(tmp_path):
    module = scripted(lightning)()
    trainer = lightning.Trainer(**QUIET, logger=CSVLogger(tmp_path, "", ""), callbacks=[ConfusionFigures()])
    trainer.validate(module, indices(), verbose=False)
    assert new_pictures(tmp_path / "figures") == ["val_confusion.png"]


def test_the_step_of_a_picture_is_that_of_the_weights(tmp_path):
    logger = Wandb()
    module, saver = scripted(lightning)((4, 1, 3, 2)), ModelCheckpoint(tmp_path, monitor="val_iam", mode="max")
    trainer = fit(module, [ConfusionFigures(), saver], logger=logger, max_epochs=3)
    assert list(logger.figures) == ["val_confusion at 4", "val_confusion at 8", "val_confusion at 12"]
    logger.figures.clear()
    trainer.validate(module, indices(), **loading(lightning, "best", False), verbose=False)
    assert list(logger.figures) == ["val_confusion at 8"]


@pytest.mark.parametrize("epochs", [2, 3])
def test_the_picture_of_the_epoch_that_is_kept(epochs, tmp_path):
    trained_with_figures(tmp_path / "all")
    trainer, *_ = trained_with_figures(tmp_path / "kept", epochs=epochs, kept_only=True)
    assert "epoch=1" in trainer.checkpoint_callback.best_model_path
    (path,) = (tmp_path / "kept").rglob("*.png")
    assert path.name == "val_confusion_epoch0001.png"
    assert (image.imread(path) == image.imread(tmp_path / "all" / "figures" / path.name)).all()


def test_the_pictures_of_the_epochs_that_two_callbacks_keep(tmp_path):
    first = ModelCheckpoint(tmp_path / "first", monitor="val_iam", mode="max")
    last = ModelCheckpoint(tmp_path / "last")
    fit(scripted(lightning)(), [ConfusionFigures(kept_only=True), first, last], logger=CSVLogger(tmp_path, "", ""))
    assert new_pictures(tmp_path / "figures") == ["val_confusion_epoch0001.png", "val_confusion_epoch0002.png"]


def test_the_picture_of_what_was_kept_until_a_training_failed(tmp_path):
    def fail(module):
        module.log_dict(module.val)
        if module.current_epoch == 2:
            raise KeyError("disk full")

    callbacks = [
        ConfusionFigures(kept_only=True),
        ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max"),
    ]
    with pytest.raises(KeyError):
        fit(scripted(lightning)(on_validation_epoch_end=fail), callbacks, logger=CSVLogger(tmp_path, "", ""))
    assert new_pictures(tmp_path / "figures") == ["val_confusion_epoch0001.png"]


def test_kept_weights_that_were_not_validated_are_not_drawn(tmp_path):
    saver = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=3)
    with listening() as told:
        fit(scripted(lightning)((4,)), [ConfusionFigures(kept_only=True), saver], logger=CSVLogger(tmp_path, "", ""))
    assert told == [
        "ConfusionFigures: the weights that a ModelCheckpoint keeps were not validated, so they are not drawn"
    ]
    assert not list(tmp_path.rglob("*.png"))


def test_the_epoch_that_is_kept_needs_somebody_who_keeps_it():
    module = scripted(lightning)()
    with pytest.raises(ValueError, match=r"kept_only=True.*a ModelCheckpoint keeps, and there is none"):
        fit(module, [ConfusionFigures(kept_only=True)])
    assert module.steps == 0
    with pytest.raises(ValueError, match="leave every_n_epochs out"):
        ConfusionFigures(2, kept_only=True)


def test_a_resumed_run_draws_what_it_keeps_itself(tmp_path):
    def run(script, **options):
        saver = ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max", save_last=True)
        trainer = lightning.Trainer(
            **QUIET,
            max_epochs=len(script),
            callbacks=[ConfusionFigures(kept_only=True), saver],
            logger=CSVLogger(tmp_path, "", ""),
        )
        trainer.fit(scripted(lightning)(script), indices(), indices(), **options)
        return new_pictures(tmp_path / "figures")

    resumed = loading(lightning, tmp_path / "saved" / "last.ckpt", False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
        warnings.filterwarnings("ignore", "Experiment logs directory .* exists and is not empty")
        assert run((4, 1)) == ["val_confusion_epoch0001.png"]
        assert run((4, 1, 3), **resumed) == []  # the best one was drawn by the run before
        assert run((4, 1, 3, 0), **resumed) == ["val_confusion_epoch0003.png"]


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_pictures_of_labels_and_of_margins(state, tmp_path):
    """Where there is no matrix of all classes, the recalls are drawn alone."""
    labels = state == "matrix"
    target = torch.tensor([[0, 1], [1, 1], [1, 0], [0, 1]]) if labels else torch.tensor([0, 1, 2, 2])
    preds = torch.tensor([[0, 1], [1, 0], [0, 0], [0, 1]]) if labels else torch.tensor([0, 2, 2, 2])

    def made():
        if labels:
            return ImbalanceReport("multilabel", class_names=["left", "right"], prefix="val_")
        return ImbalanceReport("multiclass", class_names=["a", "b", "c"], state="margins", prefix="val_")

    module = scripted(lightning)((4,), validation_step=lambda module, index, _: module.val.update(preds, target))
    module.val, logger = made(), MLflow()
    fit(module, [ConfusionFigures()], logger=logger)
    (axes,) = logger.figures["figures/val_confusion_epoch0000.png"].axes
    wanted = sklearn_metrics.recall_score(target.numpy(), preds.numpy(), average=None)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(wanted.tolist())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == (["left", "right"] if labels else ["a", "b", "c"])


@pytest.mark.parametrize("every", [0, -1])
def test_pictures_come_at_most_every_epoch(every):
    with pytest.raises(ValueError, match=f"every_n_epochs must be at least 1, got {every}"):
        ConfusionFigures(every_n_epochs=every)


# --- what is imported -----------------------------------------------------------------------------------------------


def python(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )


BLOCKER = """
class Blocker:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
"""


@pytest.mark.slow
def test_lightning_and_matplotlib_are_imported_on_demand_and_there_is_a_remedy():
    run = python(f"""
        import sys, torch, torchmetrics
        before = set(sys.modules)
        from imbtorch import ExactBatchSampler, ImbalanceReport
        ImbalanceReport("binary")
        print(sorted({{name.split(".")[0] for name in set(sys.modules) - before}} - {{"torch"}}))
        {textwrap.indent(BLOCKER, " " * 8)}
        sys.meta_path.insert(0, Blocker("lightning", "pytorch_lightning"))
        import imbtorch.lightning
    """)
    assert run.stdout == "['imbtorch']\n"
    assert run.returncode == 1
    assert run.stderr.endswith(
        "ModuleNotFoundError: imbtorch.lightning needs Lightning: pip install 'imbtorch[lightning]'\n"
    )


@pytest.mark.slow
def test_pytorch_lightning_alone_will_do():
    run = python(f"""
        import sys, warnings
        {textwrap.indent(BLOCKER, " " * 8)}
        sys.meta_path.insert(0, Blocker("lightning"))
        warnings.simplefilter("ignore")
        import pytorch_lightning
        from imbtorch.lightning import ConfusionFigures, ExactBatchSampler, MonitorGuard
        for kind in (ConfusionFigures, MonitorGuard):
            assert issubclass(kind, pytorch_lightning.Callback)
        print([type(each) is MonitorGuard for each in pytorch_lightning.Trainer(logger=False).callbacks].count(True))
    """)
    assert run.stdout == "1\n", run.stderr


def test_an_inner_sampler_that_lightning_would_replace_is_told():
    with pytest.warns(UserWarning, match=r"around SubsetRandomSampler.*SequentialSampler\(torch.utils.data.Subset\("):
        ExactBatchSampler(SubsetRandomSampler([1, 2, 3]), 2)


def test_a_dataset_is_no_sampler():
    with pytest.raises(TypeError, match=r"got the dataset TensorDataset; use SequentialSampler\(dataset\)"):
        ExactBatchSampler(dataset(), 2)


@pytest.mark.parametrize("shared", [True, False])
def test_a_report_shared_by_two_dataloaders_is_told_once(shared, tmp_path):
    class TwoLoaders(Classifier):
        def __init__(self):
            super().__init__(report=False, keep=False)
            self.other = ImbalanceReport("multiclass", class_names=CLASSES, prefix="other_")

        def validation_step(self, batch, batch_idx, dataloader_idx):
            report = self.val if shared or dataloader_idx == 0 else self.other
            report.update(self.net(batch[0]), batch[1])
            self.log_dict(report)

    told = []
    data = dataset()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(TwoLoaders(), DataLoader(data, 16), [exact(data), exact(data)])
        told = [str(each.message) for each in caught if "several dataloaders" in str(each.message)]
    assert len(told) == shared
    if shared:
        assert "give each dataloader a metric or report of its own" in told[0]


def test_the_guard_knows_metrics_of_scores():
    """HandTill keeps scores rather than counts."""

    def step(module, index, _):
        module.auc.update(torch.eye(2)[torch.tensor([0, 1])], torch.tensor([0, 1]))

    def module(log):
        made = scripted(lightning)(validation_step=step, on_validation_epoch_end=log)
        made.auc = imbtorch.HandTill(2)
        return made

    with pytest.raises(ValueError, match=r"of 'val_auc' higher is better.*monitor='val_auc', mode='max'\)"):
        fit(module(lambda made: made.log("val_auc", made.auc)), [ModelCheckpoint(monitor="val_auc")])
    with pytest.warns(UserWarning, match=r"self\.auc still held \d+ earlier updates when this validation began"):
        fit(module(lambda made: made.log("other", made.auc.compute())))
