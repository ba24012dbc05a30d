"""The guard of monitored values, with real trainers: right checkpoints, right directions, nothing counted twice."""

import contextlib
import math
import pickle
import re
import signal
import types
import warnings
from functools import partial

import lightning
import pytest
import torch
from both_packages import CALLBACKS, EVERY_PACKAGE, FACTORIES, Watcher, fit, watch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from report_cases import directed
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import (
    BinaryTargetTransformer,
    ClasswiseWrapper,
    LambdaInputTransformer,
    MetricTracker,
    MinMaxMetric,
    MultitaskWrapper,
    Running,
)
from torchmetrics.wrappers.abstract import WrapperMetric
from trainings import (
    BATCHES,
    CLASSES,
    QUIET,
    THIRD_PARTY,
    TRAIN_HOOKS,
    TRUTH,
    Classifier,
    Notes,
    dataset,
    exact,
    iam,
    indices,
    listening,
    predictions,
    scripted,
    update_train_report,
)

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.lightning import MonitorGuard

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]


# --- what is monitored ----------------------------------------------------------------------------------------------

KINDS = ["ModelCheckpoint", "EarlyStopping", "ReduceLROnPlateau", "Watcher"]


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
        rf"{kind}\(monitor='val_iam'\) has mode='min', but a higher 'val_iam' is better.*"
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
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["val_iamm", "val_ima", "val_im", "vall_iam", "vla_iam", "val/iam", "val_IAM"])
def test_a_misspelt_monitor_raises_after_the_first_validation(key, kind, package, tmp_path):
    """Not in the sanity check or after a batch: training or a later validation step could log that name."""
    arguments, callbacks = watch(kind, key, "min", tmp_path, package)
    module = scripted(package)(**arguments)
    wanted = (
        rf"{kind}\(monitor='{key}'\): neither training nor the first validation logged '{key}', but "
        rf"'val_iam' was logged\. Write {kind}\(monitor='val_iam', mode='max'\)"
    )
    with pytest.raises(ValueError, match=wanted):
        fit(module, callbacks, package)
    assert module.steps == BATCHES
    assert list(tmp_path.iterdir()) == []


LATE_NAMES = {  # how training logs a name that looks like one of validation
    "training_step": lambda key: {"training_step": lambda module, index: module.log(key, 1.0)},
    "training_step by epoch": lambda key: {
        "training_step": lambda module, index: module.log(key, 1.0, on_step=False, on_epoch=True)
    },
    "on_train_epoch_end": lambda key: {"on_train_epoch_end": lambda module: module.log(key, 1.0)},
    "last training batch": lambda key: {
        "training_step": lambda module, index: module.log(key, 1.0) if index[0] == 30 else None
    },
    "validation after the sanity check": lambda key: {
        "on_validation_epoch_end": lambda module: module.log_dict(
            module.val if module.trainer.sanity_checking else {**module.val, key: torch.tensor(1.0)}
        )
    },
}


TRAINING_NAMES = ["tal_iam", "train_iam", "train_balanced_accuracy", "val_loss", "val_ian", "eval_iam"]


@pytest.mark.default_cases(
    "training_step-train_iam",
    "training_step by epoch-val_ian",
    "on_train_epoch_end-val_loss",
    "last training batch-eval_iam",
    "validation after the sanity check-val_ian",
)
@pytest.mark.parametrize(
    ("where", "key"),
    [
        (where, key)
        for where in LATE_NAMES
        for key in TRAINING_NAMES
        if (where, key) != ("on_train_epoch_end", "val_ian")
    ]
    + [(where, "val_iamm") for where in LATE_NAMES if where != "on_train_epoch_end"],
)
def test_names_that_only_training_logs_are_not_refused(where, key, tmp_path):
    module = scripted(lightning)(**LATE_NAMES[where](key))
    with listening() as told:
        trainer = fit(module, [ModelCheckpoint(tmp_path, monitor=key)])
    assert trainer.checkpoint_callback.best_model_path
    assert [text for text in told if "neither" in text] == []


def test_names_of_a_training_report_are_not_refused(tmp_path):
    """Its names, one letter from those of validation, come at the end of the epoch."""
    module = scripted(lightning)(**TRAIN_HOOKS["on_train_epoch_end"])
    module.train_report = ImbalanceReport("binary", prefix="vall_")
    trainer = fit(module, [ModelCheckpoint(tmp_path, monitor="vall_iam", mode="max")])
    assert trainer.checkpoint_callback.best_model_score.item() == pytest.approx(iam(1))


SIMILAR = {
    "iam": "val_iam",
    "val_acc": "val_accuracy",
    "val_balanced_acc": "val_balanced_accuracy",
    "val_iam2": "val_iam",
}


@pytest.mark.parametrize("key", SIMILAR)
def test_a_similar_monitor_is_told_once_and_not_refused(key):
    module = scripted(lightning)(on_train_epoch_end=lambda module: module.log(key, 1.0))
    with listening() as told:
        fit(module, [Watcher(key)])
    assert told == [
        f"Watcher(monitor='{key}'): neither training nor the first validation logged '{key}'; did you mean "
        f"'{SIMILAR[key]}'?"
    ]


def test_a_misspelt_monitor_raises_without_a_sanity_check():
    with pytest.raises(ValueError, match="neither training nor the first validation logged 'val_iamm', but 'val_iam'"):
        fit(scripted(lightning)(), [Watcher("val_iamm")], num_sanity_val_steps=0)


def test_names_are_not_compared_without_names_of_this_package():
    nothing = {"validation_step": lambda *_: None}
    with listening() as told:
        fit(
            scripted(lightning)(on_validation_epoch_end=lambda module: module.log("val_ima", 1.0), **nothing),
            [Watcher("val_iamm")],
        )
    assert told == []


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

    with pytest.raises(ValueError, match=rf"a lower 'val_entropy' is better.*Write {kind}\(.*mode='min'\)"):
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
        "binary",
        measures={"dominance": imbtorch.dominance, "error": error, "known": directed(error, False)},
        prefix="val_",
    )
    with listening() as told:
        fit(module, [Watcher("val_dominance", mode), Watcher("val_error", mode), Watcher("val_known", "min")])
    for text, name in zip(told, ["val_dominance", "val_error"], strict=True):
        assert text.startswith(
            f"Watcher(monitor={name!r}, mode={mode!r}) takes the {taken} {name!r} for the best, which cannot be checked"
        )
        assert "as (function, True), or False where lower is better" in text
    with pytest.raises(ValueError, match="a lower 'val_known' is better"):
        fit(module, [Watcher("val_known", "max")])


def test_a_metric_or_threshold_without_a_direction_is_told_too(tmp_path):
    module = scripted(lightning)(**cross("dominance"))
    module.dominance = imbtorch.Dominance("binary")
    with pytest.warns(UserWarning, match=r"ModelCheckpoint\(monitor='val_dominance', mode='min'\) takes the lowest"):
        fit(module, [ModelCheckpoint(tmp_path, monitor="val_dominance")])
    module = swept(lambda module: module.log_dict(module.sweep))
    with pytest.warns(UserWarning, match=r"EarlyStopping\(monitor='val_threshold', mode='min'\) takes the lowest"):
        fit(module, [EarlyStopping("val_threshold")])
    with pytest.raises(ValueError, match="a higher 'val_value' is better"):
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
    with pytest.raises(ValueError, match="a higher 'val_auc' is better"):
        fit(module, [EarlyStopping("val_auc")])


TRAIN_COUNTS = {"training_step": update_train_report}


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


@pytest.mark.default_cases("train_iam_step", "val_iam_epoch")
@pytest.mark.parametrize("key", ["train_iam", "train_iam_step", "train_iam_epoch", "val_iam", "val_iam_epoch"])
def test_keys_logged_by_step_and_epoch(key):
    module = scripted(lightning)(**FORKED)
    with pytest.raises(ValueError, match=f"a higher '{key}' is better"):
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


def test_scores_that_share_a_bin_are_told_once_in_each_fit():
    def count(module, index, _):
        module.sweep.update(-3 + 1e-5 * index / 10, torch.tensor(TRUTH)[index])

    module = scripted(lightning)(
        validation_step=count, on_validation_epoch_end=lambda module: module.log_dict(module.sweep)
    )
    module.sweep = imbtorch.ThresholdSweep("f1", logits=True, prefix="val_")
    for _ in range(2):
        with listening() as told:
            fit(module)
        (text,) = told
        assert "scores of both classes differ but fall between the same two thresholds" in text
        assert "so that no threshold separates them" in text


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


class BrokenFileError(Exception):
    """Error of a loader."""


@pytest.mark.parametrize("barebones", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_counts_that_an_interrupted_training_left_are_told_with_a_remedy(same, barebones):
    """Thirty samples before the error; the metric is logged itself, so that logging it is no remedy."""
    counted, broken = [], True

    def count(module, index):
        if broken and index[0] == 30:
            raise BrokenFileError
        update_train_report(module, index)

    def read(module):
        counted.append(int(module.train_report.counts().sum()))
        if barebones:
            module.train_report.compute()
        else:
            module.log_dict(module.train_report)

    def trainer():
        options = {"accelerator": "cpu"} if barebones else {**QUIET, "logger": False, "enable_checkpointing": False}
        return lightning.Trainer(barebones=barebones, max_epochs=2, **options)

    hooks = {"on_validation_epoch_end": lambda module: module.val.reset()}
    module, first = scripted(lightning)(training_step=count, on_train_epoch_end=read, **hooks), trainer()
    with contextlib.suppress(BrokenFileError):
        first.fit(module, indices(), indices())
    broken = False
    with listening() as told:
        (first if same else trainer()).fit(module, indices(), indices())
    (text,) = [text for text in told if "still held" in text]
    assert counted[0] == 70
    assert text.startswith(PILED.format("train_report", 3, "training"))
    assert text.endswith("left them: call self.train_report.reset() before fit()")
    module.train_report.reset()
    counted.clear()
    with listening() as told:
        trainer().fit(module, indices(), indices())
    assert counted[0] == 40
    if barebones:  # which nothing but the module itself can reset
        (text,) = [text for text in told if "still held" in text]
        assert text.endswith("Call self.train_report.reset() after compute(), since barebones=True logs nothing")
    else:
        assert told == []
        assert counted == [40, 40]


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
        fit(module, [Watcher("val_iam", "min"), Watcher("val_gmean", "max"), Watcher("val_loss", "min")])
    text, *modes = told
    assert [each.partition(")")[0] for each in modes] == ["Watcher(monitor='val_iam', mode='min'"] * (kind == "report")
    assert all("keeps the worst epoch" in each and "write mode='max'" in each for each in modes)
    name, call = {
        "report": ("val_iam", "self.log_dict(self.val)"),
        "metric": ("val_gmean", "self.log('val_gmean', self.val_gmean)"),
    }[kind]
    assert text.startswith(f"'{name}' was logged as a plain value although")
    assert f"Log the metric, not its value: write {call}. Then" in text
    unchecked = [("val_iam", "min")] * (kind == "report") + [("val_gmean", "max")]
    listed = "".join(f". Not checked: Watcher(monitor={key!r}, mode={mode!r})" for key, mode in unchecked)
    assert text.partition("are checked")[2] == listed


def test_plain_values_of_training_do_not_hide_a_monitored_one_of_validation():
    def log_values(module, report):
        module.log_dict(report.compute())
        report.reset()

    module = scripted(lightning)(
        training_step=update_train_report,
        on_train_epoch_end=lambda module: log_values(module, module.train_report),
        on_validation_epoch_end=lambda module: log_values(module, module.val),
    )
    late = {"num_sanity_val_steps": 0, "check_val_every_n_epoch": 2}  # training ends an epoch before any validation
    with listening() as told:
        fit(module, [Watcher("val_iam", "min")], **late)
    first, second, *_ = told
    assert first.startswith("'train_accuracy' was logged as a plain value")
    assert first.endswith("are checked")
    assert second.endswith(". Not checked: Watcher(monitor='val_iam', mode='min')")


class Renamed(imbtorch.BalancedAccuracy):
    """A user's subclass."""


IAM = "ImbalanceAccuracy"
ITSELF = r", and log the metric itself, self\.log\('value', {}\), so that its monitors are checked"
PLAIN = {  # what the module has, the better mode, and what it is told
    "metric": (lambda: imbtorch.ImbalanceAccuracy("binary"), "max", IAM, r"self\.own"),
    "lower": (lambda: imbtorch.ConfusionEntropy("binary"), "min", "ConfusionEntropy", r"self\.own"),
    "subclass": (lambda: Renamed("binary"), "max", "Renamed", r"self\.own"),
    "report": (lambda: ImbalanceReport("binary"), "max", "iam", r"self\.own\['iam'\]"),
    "prefix": (lambda: ImbalanceReport("binary", prefix="a/"), "max", "a/iam", r"self\.own\['a/iam'\]"),
    "of a class": (lambda: imbtorch.Recall("binary", average="none"), "max", r"Recall\[1\]", ""),
    "MinMaxMetric": (lambda: MinMaxMetric(imbtorch.ImbalanceAccuracy("binary")), "max", IAM, ""),
    "MultitaskWrapper": (lambda: MultitaskWrapper({"a": imbtorch.ImbalanceAccuracy("binary")}), "max", IAM, ""),
    "MetricTracker": (lambda: MetricTracker(imbtorch.ImbalanceAccuracy("binary")), "max", IAM, ""),
    "ClasswiseWrapper": (
        lambda: ClasswiseWrapper(imbtorch.Recall("binary", average="none"), ["a", "b"]),
        "max",
        r"Recall\[1\]",
        "",
    ),
}


def fit_plain(build, mode, turned=lambda value: value, script=(4, 1, 3), key="value", *, at="end", act="fit", off=()):
    """Train a module that logs a number in place of its metric ``own``; return the warnings.

    ``at`` the end of validations or of training epochs, or in batches; in the epochs ``off`` nothing is logged.
    """

    def number(value):
        if isinstance(value, dict):
            value = next(value[name] for name in ("iam", "a/iam", "raw", "recall_b", "a") if name in value)
        return turned(value if value.ndim == 0 else value[-1])

    def begin(module):
        if isinstance(module.own, MetricTracker):
            module.own.increment()

    def count(module, index, *_):
        chosen, target = (
            torch.tensor(each)[index] for each in (predictions(module.wrong[module.current_epoch]), TRUTH)
        )
        batch = ({"a": chosen}, {"a": target}) if isinstance(module.own, MultitaskWrapper) else (chosen, target)
        if at == "batches":
            module.log(key, number(module.own(*batch)))
        else:
            module.own.update(*batch)

    def end(module):
        value = None if at == "batches" else number(module.own.compute())
        if value is not None and module.current_epoch not in off:
            module.log(key, value)
        module.own.reset()

    hooks = {"validation_step": count, "on_validation_epoch_end": end}
    if at == "training":
        nothing = dict.fromkeys(hooks, lambda *_: None)
        hooks = {"training_step": count, "on_train_epoch_end": end, **nothing}
    module = scripted(lightning)(list(script), **hooks)
    module.on_validation_epoch_start = lambda: begin(module)
    del module.val
    module.own = build()
    with listening() as told:
        if act == "fit":
            fit(module, [Watcher(key, mode)])
        else:
            trainer = lightning.Trainer(
                **QUIET, callbacks=[Watcher(key, mode)], logger=False, enable_checkpointing=False
            )
            for module.wrong[0] in script:
                trainer.validate(module, indices(), verbose=False)
    return [text for text in told if not text.startswith("Found 1 module(s) in eval mode")]  # made by the tracker


@pytest.mark.parametrize("at", ["end", "batches"])
def test_nothing_is_told_of_evaluations(at):
    """In them nothing is monitored."""
    assert fit_plain(PLAIN["metric"][0], "min", act="validate", at=at) == []


def log_inverse(value):
    return 1 - value


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("key", ["val_one_minus_iam", "val_in_accuracy", "own", "iam"])
def test_a_plain_value_is_not_judged_by_its_name(key, kind):
    build, right, *_ = PLAIN[kind]
    mode = "min" if right == "max" else "max"
    told = fit_plain(build, mode, log_inverse, key=key)
    assert [text for text in told if "worst" in text or "is better" in text] == []


NO_PROOF = {  # wrong predictions of ten in each epoch, and the number that is logged of an accuracy
    "equal once": ((2, 1, 3), lambda value: value if value == 0.8 else 1 - value),
    "equal at last": ((2, 1, 3, 4), lambda value: value if value < 0.75 else 1 - value),
    "one value": ((2, 2, 2), lambda value: value),
    "common values": ((10, 5, 0), lambda value: value),
    "nan": ((2, 1, 3), lambda value: value * math.nan),
}


@pytest.mark.parametrize("kind", NO_PROOF)
def test_values_that_agree_by_chance_prove_nothing(kind):
    script, turned = NO_PROOF[kind]
    assert fit_plain(lambda: imbtorch.Accuracy("binary"), "min", turned, script) == []


LOGGED = {  # wrappers of torchmetrics that Lightning logs as they are
    "Running": lambda metric: Running(metric, window=2),
    "LambdaInputTransformer": lambda metric: LambdaInputTransformer(metric, lambda preds: preds),
    "BinaryTargetTransformer": lambda metric: BinaryTargetTransformer(metric, threshold=0),
}


@pytest.mark.parametrize("kind", LOGGED)
def test_metrics_inside_wrappers_are_checked(kind):
    def fitted(mode):
        module = scripted(lightning)(**cross("wrapped"))
        module.wrapped = LOGGED[kind](imbtorch.ImbalanceAccuracy("binary"))
        return fit(module, [Watcher("val_wrapped", mode)])

    with pytest.raises(ValueError, match=r"a higher 'val_wrapped' is better.*monitor='val_wrapped', mode='max'\)"):
        fitted("min")
    assert fitted("max").callback_metrics["val_wrapped"].item() == pytest.approx(iam(3))


def test_arithmetic_and_wrappers_of_others_are_left_alone():
    class Turned(WrapperMetric):
        """A user's wrapper, of which lower is better."""

        def __init__(self, metric):
            super().__init__()
            self.metric = metric

        def compute(self):
            return 1 - self.metric.compute()

        def update(self, *batch):
            self.metric.update(*batch)

        def reset(self):
            self.metric.reset()

    for build in (Turned, lambda metric: 1 - metric):
        module = scripted(lightning)(**cross("turned"))
        module.turned = build(imbtorch.ImbalanceAccuracy("binary"))
        trainer = fit(module, [Watcher("val_turned", "min")])
        assert trainer.callback_metrics["val_turned"].item() == pytest.approx(1 - iam(3))


def test_an_explicit_guard_beside_the_registered_one_says_nothing_twice():
    def log_values(module):
        module.log_dict(module.val.compute())
        module.val.reset()

    with listening() as told:
        fit(scripted(lightning)(on_validation_epoch_end=log_values), [MonitorGuard()])
    assert len(told) == 1


@pytest.mark.parametrize("results", [{}, {"_results": None}, {"_results": {"val_iam": object()}}, {"_results": 3}])
def test_the_guard_does_without_what_lightning_keeps_to_itself(results):
    trainer = types.SimpleNamespace(
        callbacks=[Watcher("val_iam")],
        checkpoint_callbacks=[],
        lr_scheduler_configs=[],
        sanity_checking=False,
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
            with pytest.raises(ValueError, match="a higher 'val_mcc' is better"):
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


# --- what is imported -----------------------------------------------------------------------------------------------


@pytest.mark.default_cases("True-validate", "False-fit")
@pytest.mark.parametrize("stage", ["fit", "validate", "test"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_report_shared_by_two_dataloaders_is_told_once(shared, stage, tmp_path):
    class TwoLoaders(Classifier):
        def __init__(self):
            super().__init__(report=False, keep=False)
            self.other = ImbalanceReport("multiclass", class_names=CLASSES, prefix="other_")

        def validation_step(self, batch, batch_idx, dataloader_idx):
            report = self.val if shared or dataloader_idx == 0 else self.other
            report.update(self.net(batch[0]), batch[1])
            self.log_dict(report)

        test_step = validation_step

    told = []
    data = dataset()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaders = [exact(data), exact(data)]
        if stage == "fit":
            trainer.fit(TwoLoaders(), DataLoader(data, 16), loaders)
        else:
            getattr(trainer, stage)(TwoLoaders(), loaders, verbose=False)
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

    with pytest.raises(ValueError, match=r"a higher 'val_auc' is better.*monitor='val_auc', mode='max'\)"):
        fit(module(lambda made: made.log("val_auc", made.auc)), [ModelCheckpoint(monitor="val_auc")])
    with pytest.warns(UserWarning, match=r"self\.auc still held \d+ earlier updates when this validation began"):
        fit(module(lambda made: made.log("other", made.auc.compute())))


def count_in_training(module, index):
    module.counted(module.val, index)


@EVERY_PACKAGE
def test_a_report_that_training_updates_too_is_told_once(package):
    """Its first values are of 80 samples, 40 of them of training."""
    with listening() as told:
        fit(scripted(package)(training_step=count_in_training), package=package, num_sanity_val_steps=0)
    (text,) = told
    assert text.startswith("self.val was updated in training and now in validation, without a reset in between")


def reset_after_logging(module):
    module.log_dict(module.val)
    module.val.reset()


@EVERY_PACKAGE
@pytest.mark.parametrize("stage", ["fit", "validate", "test"])
def test_a_reset_between_logging_and_computing_raises(package, stage):
    module = scripted(package)(on_validation_epoch_end=reset_after_logging)
    module.test_step, module.on_test_epoch_end = module.validation_step, module.on_validation_epoch_end
    trainer = package.Trainer(**QUIET, logger=False, enable_checkpointing=False, max_epochs=1, num_sanity_val_steps=0)
    run = partial(trainer.fit, module, indices(), indices()) if stage == "fit" else None
    run = run or partial(getattr(trainer, stage), module, indices())
    told = r"self\.val was reset after it was logged and before.*'val_[\w/]+' is a value of no samples"
    with pytest.warns(UserWarning, match="has counted no sample"), pytest.raises(ValueError, match=told):
        run()


@EVERY_PACKAGE
@pytest.mark.parametrize(
    ("key", "remedy"),
    [("val_f1/1", r"per_class=\[\.\.\., 'f1'\]"), ("val_rci", r"measures=\[\.\.\., 'rci'\]"), ("val_f1/damp", None)],
)
def test_a_monitor_of_a_value_that_the_report_could_make_says_how(key, remedy, package, tmp_path):
    with listening() as told, contextlib.suppress(Exception):  # Lightning's own error follows
        fit(scripted(package)(), [CALLBACKS[package].ModelCheckpoint(tmp_path, monitor=key, mode="max")], package)
    found = [text for text in told if "self.val logs it if it is built with" in text]
    assert len(found) == (remedy is not None)
    assert all(re.search(remedy, text) for text in found)


def test_errors_name_our_checkpoint_as_it_is_imported(tmp_path):
    from imbtorch.lightning import ModelCheckpoint as Ours

    with pytest.raises(ValueError, match=r"^ModelCheckpoint\(monitor='val_iam'\) has mode='min'"):
        fit(scripted(lightning)(), [Ours(tmp_path, monitor="val_iam", mode="min")])


def log_as_one(name, **options):
    def step(module, index, *_):
        report = getattr(module, name)
        report(0.5 * torch.tensor(predictions(1))[index], torch.tensor(TRUTH)[index])
        module.log("x", report, **options)

    return step


@pytest.mark.parametrize("options", [{}, {"on_step": True}, {"on_step": True, "on_epoch": True}, {"on_epoch": True}])
@pytest.mark.parametrize("name", ["train_report", "val", "sweep"])
def test_a_report_that_a_step_logs_as_one_value_says_what_to_write(name, options):
    """Lightning itself says only that the value must be a tensor, or leaves it out."""
    step = "training_step" if name == "train_report" else "validation_step"
    module = scripted(lightning)(**{step: log_as_one(name, **options)})
    module.sweep = imbtorch.ThresholdSweep("f1")
    with pytest.raises(
        TypeError, match=rf"self\.log\('x'\) takes a single value, .*; write self\.log_dict\(self\.{name}\)$"
    ):
        fit(module)
    assert module.steps == (name == "train_report")


def test_the_call_to_write_names_lists_and_collections():
    def count(module, index, _):
        chosen, target = module.counted(module.reports[1], index)
        for name, value in module.metrics(chosen, target).items():
            module.log(name, value)
        module.log_dict(module.reports[1].compute())
        module.reports[1].reset()

    told = {}
    for monitor in ("Recall", "val_iam"):
        module = scripted(lightning)(validation_step=count, on_validation_epoch_end=lambda _: None)
        del module.val
        module.reports = nn.ModuleList(ImbalanceReport("binary", prefix=prefix) for prefix in ("other_", "val_"))
        module.metrics = MetricCollection([imbtorch.Recall("binary"), imbtorch.Precision("binary")])
        with listening() as told[monitor]:
            fit(module, [Watcher(monitor, "max")], num_sanity_val_steps=0)
    assert any(
        "'Recall' was logged" in text and "write self.log_dict(self.metrics)." in text for text in told["Recall"]
    )
    assert any("'val_iam' was logged" in text and "self.log_dict(self.reports[1])." in text for text in told["val_iam"])


class Exported(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.report, self.sweep = ImbalanceReport("binary"), imbtorch.ThresholdSweep("f1")

    def forward(self, inputs):
        return 2 * inputs


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*",
    "ignore:This property will be removed in 2.0.0",
    "ignore:.*to_torchscript.* has been deprecated",
)
def test_a_lightning_module_with_a_report_becomes_torchscript():
    assert Exported().to_torchscript()(torch.ones(2)).tolist() == [2, 2]


# --- mistakes of a first module --------------------------------------------------------------------------------------


def test_two_reports_of_one_name_are_told_once():
    """Training's report replaces that of validation in the values that monitors read."""

    def fitted(prefix):
        module = scripted(lightning)(
            training_step=update_train_report,
            on_train_epoch_end=lambda module: module.log_dict(module.train_report),
        )
        module.train_report = ImbalanceReport("binary", prefix=prefix)
        with listening() as told:
            fit(module, [])
        return told

    assert fitted("train_") == []
    (text,) = fitted("val_")
    assert re.match(r"self\.\w+ and self\.train_report are both logged as 'val_\w+', so that one replaces", text)
    assert "prefix='train_'" in text


def test_a_report_logged_as_one_value_at_the_end_of_the_epoch_is_told():
    """Lightning's error quotes the dict of values; a collection logs a report in the same way."""
    module = scripted(lightning)(on_validation_epoch_end=lambda module: module.log("iam", module.val))
    line = r"^self\.log\('iam'\) takes a single value, but ImbalanceReport has a value for each name; write "
    with pytest.raises(ValueError, match=line + r"self\.log_dict\(self\.val\)$"):
        fit(module, [])
    module = scripted(lightning)(on_validation_epoch_end=lambda module: module.log_dict(module.both))
    module.both = MetricCollection({"iam": module.val, "other": imbtorch.Accuracy("binary")})
    with pytest.raises(ValueError, match=line + r"self\.log_dict\(self\.(val|both\.iam)\)$"):
        fit(module, [])


def test_a_report_that_is_replaced_in_a_step_is_told():
    """Lightning's error names attributes of values, none of which helps."""

    def step(module, index, _):
        module.val = ImbalanceReport("binary", prefix="val_")
        module.counted(module.val, index)

    module = scripted(lightning)(validation_step=step)
    with listening() as told, pytest.raises(Exception, match="Could not find the `LightningModule` attribute"):
        fit(module, [])
    assert [text for text in told if "build metrics once, in __init__" in text]
