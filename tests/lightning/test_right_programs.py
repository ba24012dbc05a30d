"""Random programs without a mistake, of which `monitor_guard.py` says nothing, and with one, of which it tells."""

import contextlib
import functools
import random
import re
import types
from pathlib import Path

import lightning
import pytest
import pytorch_lightning
import torch
from both_packages import CALLBACKS
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex
from trainings import QUIET, THIRD_PARTY, listening

from imbtorch import (
    BalancedAccuracy,
    ImbalanceAccuracy,
    ImbalanceReport,
    LogitAdjustmentSweep,
    ThresholdSweep,
)
from imbtorch.lightning import unguarded

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]

SAID_BY_LIGHTNING = (
    r"Checkpoint directory .* exists",
    r"Found \d+ module\(s\) in eval mode",
    "ReduceLROnPlateau conditioned",
)
PACKAGES = {"lightning": lightning, "pytorch_lightning": pytorch_lightning}
BATCHES, SAMPLES = 4, 30
MISTAKES = {  # what the guard says of each
    "two stages": "was updated in .* and now in .*, without a reset in between",
    "reset after logging": "was reset after it was logged and before Lightning computed it",
    "no reset": "still held .* earlier updates",
    "equal names": "are both logged as",
    "not reported": "logs it if it is built with",
    "misspelt": "but 'val_iam' was logged",
}
PURPOSES = (
    "worst epoch",
    "alarm",
    "appears later",
    "plateau upwards",
    "rule at once",
    "best value",
    "labels",
    "slow start",
)
COUNTERS = ("report", "sweep", "metric", "collection")
VALUES = {"report": "val_iam", "sweep": "val_value", "metric": "val_iam", "collection": "val_BalancedAccuracy"}


def purposeful(seed):
    """Draw a program that does on purpose what is a mistake in others, or monitors or decides in its own way."""
    plan = planned(seed)
    wanted = {"owner": "module", "logs": "epoch end", "resets": "none", "monitor": "value", "loaders": "one"}
    wanted |= {"purpose": PURPOSES[seed % len(PURPOSES)], "counter": "report", "tests": "own metric"}
    if wanted["purpose"] in ("rule at once", "best value", "labels"):
        wanted |= {"counter": "sweep", "classes": 2, "training": "none", "before": ()}
    if wanted["purpose"] == "slow start":
        wanted |= {"every": 1, "interval": 0.5, "goes_on": "no", "limit": 1.0, "classes": 2}
    vars(plan).update(wanted)
    return plan


def planned(seed, mistake=None):
    """Draw a program."""
    draw = random.Random(seed)
    return types.SimpleNamespace(
        seed=seed,
        mistake=mistake,
        purpose="",
        package=draw.choice([*PACKAGES]),
        classes=draw.choice([2, 3]),
        counter=draw.choice(COUNTERS),
        owner=draw.choice(["module"] * 4 + ["list", "callback"]),
        loaders=draw.choice(["one"] * 4 + ["two", "combined", "iterable"]),
        logs=draw.choice(["step", "epoch end", "epoch end", "by hand", "stored"]),
        resets=draw.choice(["none", "none", "start", "validation end", "callback"]),
        computes_again=draw.choice([True, False]),
        training=draw.choice(["none", "step", "forward", "running", "plain at the end", "torchmetrics at the end"]),
        tests=draw.choice(["same metric", "own metric"]),
        monitor=draw.choice(["value", "value", "loss", "training", "ReduceLROnPlateau"]),
        sanity=draw.choice([0, 2, -1]),
        interval=draw.choice([0.5, 1.0]),
        every=draw.choice([1, 1, 2]),
        limit=draw.choice([1.0, 0.5]),
        accumulate=draw.choice([1, 2]),
        before=draw.choice([(), ("validate",), ("test",)]),
        after=draw.choice([(), ("validate",), ("test",), ("test", "validate")]),
        goes_on=draw.choice(["no", "no", "fit again", "from the last file", "from a file of a step", "interrupted"]),
    )


def has_room(plan):
    """Return whether a program logs, counts or resets what its mistake is about."""
    ours, whole = plan.owner == "module", plan.owner == "module" and plan.logs != "by hand"
    return {
        "two stages": ours and plan.logs != "stored" and plan.resets == "none",
        "reset after logging": whole and plan.logs == "epoch end",
        "no reset": ours and not whole and plan.logs != "stored" and plan.resets == "none",
        "equal names": whole and plan.training in ("step", "forward"),
        "not reported": whole and plan.counter == "report" and plan.monitor != "ReduceLROnPlateau",
        "misspelt": whole and plan.counter == "report" and plan.monitor != "ReduceLROnPlateau",
    }[plan.mistake]


def metric_of(plan, prefix="val_"):
    task = (
        {"task": "binary", "logits": True} if plan.classes == 2 else {"task": "multiclass", "num_classes": plan.classes}
    )
    if plan.counter == "report":
        return ImbalanceReport(**task, prefix=prefix)
    if plan.purpose == "labels":
        return ThresholdSweep("f1", task="multilabel", num_labels=2, logits=True, prefix=prefix)
    if plan.counter == "sweep" and plan.classes == 2:
        return ThresholdSweep("f1", logits=True, prefix=prefix)
    if plan.counter == "sweep":
        return LogitAdjustmentSweep("balanced_accuracy", [3, 2, 1], logits=True, prefix=prefix)
    if plan.counter == "metric":
        return ImbalanceAccuracy(**task)
    return MetricCollection([ImbalanceAccuracy(**task), BalancedAccuracy(**task)], prefix=prefix)


def counters_of(plan):
    """Return the metrics of validation, one for each loader."""
    return [metric_of(plan, prefix) for prefix in ["val_", "other_"][: 2 if plan.loaders == "two" else 1]]


def numbers(value, prefix=""):
    """Return what ``compute`` returned as a dict of single numbers, under names of our own."""
    rows = value.items() if isinstance(value, dict) else [("one", value)]
    return {f"{prefix}own {name}": number for name, number in rows if number.numel() == 1}


@functools.cache
def program(package):
    class Counting(package.Callback if hasattr(package, "Callback") else package.pytorch.Callback):
        """Callback that has the metrics of validation, or resets those of the module after it."""

        def __init__(self, plan):
            self.metrics = counters_of(plan) if plan.owner == "callback" else []
            self.plan = plan

        def on_validation_end(self, trainer, module):
            if self.plan.resets == "callback":
                for metric in module.counters():
                    metric.reset()

    class Program(package.LightningModule):
        """Linear network whose metrics are counted and logged as the plan says."""

        def __init__(self, plan):
            super().__init__()
            self.plan = plan
            self.net = torch.nn.Linear(4, 1 if plan.classes == 2 else plan.classes)
            self.counting = Counting(plan)
            self.outside = counters_of(plan) if plan.owner == "list" else []
            if plan.owner == "module":
                self.val = torch.nn.ModuleList(counters_of(plan))
            self.test = metric_of(plan, "test_")
            if plan.counter == "sweep":
                plan.tests = "own metric"  # a sweep chooses nothing in a test, and says so
                self.test = metric_of(types.SimpleNamespace(**{**vars(plan), "counter": "report"}), "test_")
            self.prefix_of_training = "val_" if plan.mistake == "equal names" else "train_"
            self.train_metric = metric_of(plan, self.prefix_of_training)
            task = {} if plan.classes == 2 else {"num_classes": plan.classes}
            self.peer = (BinaryJaccardIndex if plan.classes == 2 else MulticlassJaccardIndex)(**task)
            self.stored, self.trained = [], False

        def counters(self):
            """Return the metrics of validation, one for each loader."""
            if self.plan.owner == "callback":
                return self.counting.metrics
            return list(self.val) if self.plan.owner == "module" else self.outside

        def loss_of(self, batch):
            features, target = batch
            scores = self.net(features)
            scores = scores[:, 0] if self.plan.classes == 2 else scores
            if self.plan.classes == 2:
                return torch.nn.functional.binary_cross_entropy_with_logits(scores, target.float()), scores, target
            return torch.nn.functional.cross_entropy(scores, target), scores, target

        # --- training -------------------------------------------------------------------------------------------------

        def training_step(self, batch, batch_idx):
            loss, scores, target = self.loss_of(batch)
            self.trained = True
            kind = self.plan.training
            if kind == "forward":
                batch_values = self.train_metric(scores.detach(), target)
                self.log_dict(numbers(batch_values, "batch "), on_step=True, on_epoch=False)
            elif kind != "none":
                self.train_metric.update(scores.detach(), target)
            if kind == "step":
                self.logs_whole(self.train_metric, f"{self.prefix_of_training}iam", on_step=False, on_epoch=True)
            if kind == "running" and batch_idx % 2:
                self.log_dict(numbers(self.train_metric.compute(), "running "))
            if kind == "torchmetrics at the end":
                self.peer.update(scores.detach(), target)
            if self.plan.mistake == "two stages":
                self.counters()[0].update(scores.detach(), target)
            return loss

        def on_train_epoch_end(self):
            if not self.trained:  # a fit that resumes at the end of an epoch
                return
            self.trained = False
            if self.plan.training == "forward":
                self.logs_whole(self.train_metric, f"{self.prefix_of_training}iam")
            elif self.plan.training in ("running", "plain at the end", "torchmetrics at the end"):
                self.log_dict(numbers(self.train_metric.compute(), "train_"))
                self.train_metric.reset()
            if self.plan.training == "torchmetrics at the end":
                self.log("train_jaccard", self.peer.compute())
                self.peer.reset()

        # --- validation -----------------------------------------------------------------------------------------------

        def logs_whole(self, metric, name, **options):
            """Log a metric itself, as the guide does."""
            if isinstance(metric, ImbalanceAccuracy):
                self.log(name, metric, **options)
            else:
                self.log_dict(metric, **options)

        def on_validation_epoch_start(self):
            if self.plan.resets == "start":
                for metric in self.counters():
                    metric.reset()

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            if self.plan.loaders == "combined":
                batch = batch["part"]
            loss, scores, target = self.loss_of(batch)
            self.log("other_loss" if dataloader_idx else "val_loss", loss, add_dataloader_idx=False)
            metric = self.counters()[dataloader_idx]
            if self.plan.purpose == "rule at once":
                metric.rule(scores)
            if self.plan.purpose == "labels":
                scores, target = torch.stack((scores, -scores), 1), torch.stack((target, 1 - target), 1)
            if self.plan.purpose == "slow start" and self.current_epoch == 0:
                scores = scores.clamp(max=-1.0)
            if self.plan.logs == "stored":
                self.stored.append((metric, scores, target))
                return
            metric.update(scores, target)
            if self.plan.logs == "step" and self.plan.owner == "module":
                name = "val_iam" if dataloader_idx == 0 else "other_iam"
                self.logs_whole(metric, name, on_step=False, on_epoch=True, add_dataloader_idx=False)

        def on_validation_epoch_end(self):
            if self.plan.purpose == "appears later" and self.current_epoch > 0:
                self.log("val_iams", 0.5)
            for metric, scores, target in self.stored:
                metric.update(scores, target)
            self.stored = []
            for at, metric in enumerate(self.counters()):
                if self.plan.logs == "by hand" or self.plan.owner != "module":
                    self.log_dict(numbers(metric.compute(), f"{at} "))
                    if self.plan.computes_again:
                        metric.compute()
                    if self.plan.mistake != "no reset":
                        metric.reset()
                elif self.plan.logs != "step":
                    self.logs_whole(metric, "other_iam" if at else "val_iam")
                    if self.plan.computes_again:
                        metric.compute()
                    if self.plan.mistake == "reset after logging":
                        metric.reset()

        def on_validation_end(self):
            if self.plan.resets == "validation end":
                for metric in self.counters():
                    metric.reset()

        # --- test -----------------------------------------------------------------------------------------------------

        def test_step(self, batch, batch_idx, dataloader_idx=0):
            _, scores, target = self.loss_of(batch)
            metric = self.counters()[0]
            if self.plan.tests == "own metric":  # what a sweep's value has kept is tested with its rule
                rule, metric = getattr(metric, "rule", None), self.test
                if rule is not None and bool(rule.chosen):
                    labels = self.plan.purpose == "labels"
                    scores = rule(torch.stack((scores, -scores), 1))[:, 0] if labels else rule(scores)
            metric.update(scores, target)

        def on_test_epoch_end(self):
            metric = self.test if self.plan.tests == "own metric" else self.counters()[0]
            if self.plan.owner == "module" or self.plan.tests == "own metric":
                self.logs_whole(metric, "test_iam")
            else:
                self.log_dict(numbers(metric.compute()))
                metric.reset()

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), 0.05)
            if self.plan.monitor != "ReduceLROnPlateau" and self.plan.purpose != "plateau upwards":
                return optimizer
            key, mode = monitored(self.plan)
            schedule = {"scheduler": ReduceLROnPlateau(optimizer, mode, patience=5), "monitor": key, "strict": False}
            if self.plan.purpose == "plateau upwards":
                schedule["scheduler"] = unguarded(ReduceLROnPlateau(optimizer, "min", patience=5))
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    return Program


def monitored(plan):
    """Return the key that is monitored, and its mode."""
    if plan.mistake in ("not reported", "misspelt"):
        return "val_jaccard" if plan.mistake == "not reported" else "val_iamm", "max"
    if plan.monitor == "training" and plan.training == "torchmetrics at the end":
        return "train_jaccard", "max"
    whole = plan.owner == "module" and plan.logs != "by hand"
    return (
        (VALUES[plan.counter], "max")
        if whole and plan.monitor in ("value", "ReduceLROnPlateau")
        else ("val_loss", "min")
    )


def data(plan, seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.tensor([0, 0, 0, 1, 1, 2] if plan.classes == 3 else [0, 0, 1]).repeat(BATCHES * SAMPLES)[
        : BATCHES * SAMPLES
    ]
    features = torch.randn(len(target), 4, generator=generator)
    features[torch.arange(len(target)), target] += 1.5
    return TensorDataset(features, target)


class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def loaders(plan):
    """Return the loaders of training, validation and test."""
    train = DataLoader(data(plan, plan.seed), SAMPLES, shuffle=True)
    validation = DataLoader(data(plan, plan.seed + 1000), SAMPLES)
    test = DataLoader(data(plan, plan.seed + 2000), SAMPLES)
    if plan.loaders == "two":
        return train, [validation, DataLoader(data(plan, plan.seed + 3000), SAMPLES)], test
    if plan.loaders == "combined":
        return train, combined(plan, {"part": validation, "rest": test}), test
    if plan.loaders == "iterable":
        return train, DataLoader(Stream(validation.dataset), SAMPLES), test
    return train, validation, test


def combined(plan, parts):
    utilities = lightning.pytorch.utilities if plan.package == "lightning" else pytorch_lightning.utilities
    return utilities.CombinedLoader(parts, "min_size")


def trainer_of(plan, module, folder, epochs, **options):
    package, callbacks = PACKAGES[plan.package], CALLBACKS[PACKAGES[plan.package]]
    key, mode = monitored(plan)
    training = key == "train_jaccard"
    kept = callbacks.ModelCheckpoint(
        folder,
        "{epoch}-{step}",
        monitor=key,
        mode=mode,
        save_last=True,
        save_top_k=-1,
        save_on_train_epoch_end=training,
    )
    stop = callbacks.EarlyStopping(key, mode=mode, patience=10, check_on_train_epoch_end=training)
    limit = {} if plan.loaders == "iterable" else {"limit_val_batches": plan.limit}
    return package.Trainer(
        **QUIET, **limit, **options, max_epochs=epochs, logger=False,
        callbacks=[kept, stop, module.counting, *added(plan, package, folder, key)],
        num_sanity_val_steps=plan.sanity, val_check_interval=plan.interval, check_val_every_n_epoch=plan.every,
        accumulate_grad_batches=plan.accumulate, default_root_dir=folder,
    )  # fmt: skip


def added(plan, package, folder, key):
    """Return the callbacks that act on purpose against the direction, or on a value that comes later."""
    callbacks = CALLBACKS[package]
    if plan.purpose == "worst epoch":
        return [unguarded(callbacks.ModelCheckpoint(f"{folder}/worst", monitor=key, mode="min"))]
    if plan.purpose == "appears later":
        return [unguarded(callbacks.EarlyStopping("val_iams", mode="max", patience=10, strict=False, verbose=False))]
    if plan.purpose == "alarm":
        alarm = package.Callback() if hasattr(package, "Callback") else package.pytorch.Callback()
        alarm.monitor, alarm.mode = key, "min"
        return [unguarded(alarm)]
    return []


class StopValidationError(Exception):
    """Error of a user's own."""


def interrupt_validation(module, path=None):
    """Let the second batch of a validation raise, after a file was written if a path is given."""
    step = module.validation_step

    def interrupted(*args, **options):
        result = step(*args, **options)
        if not module.trainer.sanity_checking and args[1] == 1:
            if path is not None:
                module.trainer.save_checkpoint(path)
            raise StopValidationError
        return result

    module.validation_step = interrupted


def said(plan, folder):
    """Run a program; return the warnings, and the error that ended it."""
    with listening() as told:
        try:
            run(plan, folder)
        except Exception as error:  # the guard's, or Lightning's of a monitor that nothing logs
            ended = [str(error)]
        else:
            ended = []
    return ended + [text for text in told if not any(re.match(known, text) for known in SAID_BY_LIGHTNING)]


def run(plan, folder):
    """Train, go on and evaluate as planned."""
    torch.manual_seed(plan.seed)
    train, validation, test = loaders(plan)
    epochs, path = 2 * plan.every, Path(folder) / "resumed.ckpt"

    def made(epochs=epochs, **options):
        module = program(PACKAGES[plan.package])(plan)
        return trainer_of(plan, module, folder, epochs, **options), module

    trainer, module = made()
    for stage in plan.before:
        getattr(trainer, stage)(module, validation if stage == "validate" else test, verbose=False)
    if plan.goes_on == "interrupted":
        step = module.validation_step
        interrupt_validation(module)
        with contextlib.suppress(StopValidationError):
            trainer.fit(module, train, validation)
        module.validation_step = step
        module.train_metric.reset()  # the guard leaves counts of training to an epoch that may be resumed
        trainer = trainer_of(plan, module, folder, epochs)
    trainer.fit(module, train, validation)
    if plan.goes_on == "fit again":
        trainer_of(plan, module, folder, epochs).fit(module, train, validation)
    elif plan.goes_on == "from the last file":
        last = max(Path(folder).glob("*.ckpt"), key=lambda each: each.stat().st_mtime)
        path.write_bytes(last.read_bytes())
    elif plan.goes_on == "from a file of a step":
        trainer, module = made(max_steps=3)
        trainer.fit(module, train, validation)
        trainer.save_checkpoint(path)
    if path.exists():
        trainer, module = made(2 * epochs)
        trainer.fit(module, train, validation, ckpt_path=path, weights_only=False)
    for stage in plan.after:
        getattr(trainer, stage)(module, validation if stage == "validate" else test, verbose=False)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 60))])
def test_nothing_is_said_of_a_right_program(seed, tmp_path):
    assert said(planned(seed), str(tmp_path)) == []


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))])
def test_nothing_is_said_of_a_program_that_has_its_purpose(seed, tmp_path):
    assert said(purposeful(seed), str(tmp_path)) == []


@pytest.mark.parametrize("purpose", ["worst epoch", "alarm", "appears later", "plateau upwards"])
def test_without_the_word_unguarded_these_programs_are_stopped(purpose, tmp_path, monkeypatch):
    monkeypatch.setattr("test_right_programs.unguarded", lambda monitor: monitor)
    (error, *_) = said(purposeful(PURPOSES.index(purpose)), str(tmp_path))
    assert "imbtorch.lightning.unguarded(...)" in error


@pytest.mark.default_cases("not reported", "reset after logging")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_told(mistake, tmp_path):
    plans = [plan for plan in (planned(seed, mistake) for seed in range(200, 300)) if has_room(plan)][:5]
    assert len(plans) == 5
    for plan in plans:
        told = said(plan, str(tmp_path / str(plan.seed)))
        assert any(re.search(MISTAKES[mistake], text) for text in told), (plan, told)
