"""Trainings that tests of Lightning share: modules, data and loggers that stand in for services."""

import contextlib
import functools
import os
import re
import subprocess
import sys
import textwrap
import types
import warnings

import lightning
import torch
from lightning.pytorch.loggers import CometLogger, MLFlowLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from imbtorch import ExactBatchSampler, ImbalanceReport

# What the two packages say of each other and of runs as tiny as these. Whatever else is said must be expected.
THIRD_PARTY = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r"The '\w+_dataloader' does not have many workers",
    r"This process \(pid=\d+\) is multi-threaded, use of fork\(\)",  # by workers of loaders, from Python 3.12 on
)
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


# --- FSDP2 and Fabric -----------------------------------------------------------------------------------------------


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


def log_report_at_train_end(module):
    module.log_dict(module.train_report)


def update_train_report(module, index):
    module.counted(module.train_report, index)


def update_and_log_train_report(module, index):
    module.counted(module.train_report, index)
    module.log_dict(module.train_report, on_step=False, on_epoch=True)


TRAIN_HOOKS = {
    "training_step": {"training_step": update_and_log_train_report},
    "on_train_epoch_end": {"training_step": update_train_report, "on_train_epoch_end": log_report_at_train_end},
}


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


def new_pictures(folder):
    """Names of the pictures, which are taken away."""
    paths = sorted(folder.glob("*.png"))
    for path in paths:
        path.unlink()
    return [path.name for path in paths]


# --- what is imported -----------------------------------------------------------------------------------------------


def python(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
