"""`metrics/flat_monitors.py`: monitored values that cannot choose, in simulated series and with real trainers."""

import random
import re
import subprocess
import sys
import types
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from both_packages import CALLBACKS, Watcher
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks import ModelCheckpoint as LightningCheckpoint
from rooms import is_harmed, never_predicted
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, listening

import imbtorch
from imbtorch import ImbalanceReport, ThresholdSweep
from imbtorch.lightning import ModelCheckpoint, unguarded

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]

# --- series of small trainings ----------------------------------------------------------------------------------------

SERIES, EPOCHS, STEPS, TRAIN, HELD = 2000, 18, 5, 300, 200


def trained(generator):
    """Train all networks at once; return true and predicted positives of each validation, ``[EPOCHS, SERIES]``.

    The first half is slow: a rate of .0003 and 1% positives. The others have rates to .03 and 2 to 20% positives.
    """
    slow = torch.arange(SERIES) < SERIES // 2
    share = torch.where(slow, 0.01, 0.02 + 0.18 * torch.rand(SERIES, generator=generator))
    rate = torch.where(slow, 3e-4, 3e-4 * 100 ** torch.rand(SERIES, generator=generator)).view(-1, 1, 1)
    target = torch.rand(SERIES, TRAIN + HELD, generator=generator) < share.unsqueeze(1)
    target[:, [0, TRAIN, TRAIN + 1]] = True  # no part is without positives
    features = torch.randn(SERIES, TRAIN + HELD, 5, generator=generator) + 1.2 * target.unsqueeze(2)
    features = torch.cat((features, torch.ones(SERIES, TRAIN + HELD, 10)), 2)  # as hidden units that are always active
    weights = (0.04 * torch.rand(SERIES, 15, 1, generator=generator) - 0.02).requires_grad_()
    mean, square, found = torch.zeros_like(weights), torch.zeros_like(weights), []
    for epoch in range(EPOCHS):
        for step in range(STEPS):
            some = torch.randint(TRAIN, (100,), generator=generator)
            logits = (features[:, some] @ weights).squeeze(2)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target[:, some].float()) * SERIES
            (gradient,) = torch.autograd.grad(loss, weights)
            mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
            count = epoch * STEPS + step + 1
            moved = rate * (mean / (1 - 0.9**count)) / ((square / (1 - 0.99**count)).sqrt() + 1e-8)
            weights = (weights - moved).detach().requires_grad_()
        alarms = (features[:, TRAIN:] @ weights.detach()).squeeze(2) > 0
        found.append(torch.stack(((alarms & target[:, TRAIN:]).sum(1), alarms.sum(1), target[:, TRAIN:].sum(1))))
    return torch.stack(found).transpose(0, 1).tolist()


def iam(hits, alarms, positives):
    """Imbalance accuracy of counts, by its formula."""
    found = 0.0
    for right, actual, predicted in (
        (hits, positives, alarms),
        (HELD - alarms - positives + hits, HELD - positives, HELD - alarms),
    ):
        found += (right - max(actual, predicted) + right) / max(actual, predicted) / 2
    return found


def test_two_thousand_series_are_told_only_where_the_kept_epoch_predicts_one_class():
    draw = random.Random(0)
    told = {"so far": 0, "end": 0, "stopped": 0, "silent": 0}
    moves_later = 0
    for hits, alarms, positives in zip(
        *(zip(*part, strict=True) for part in trained(torch.Generator().manual_seed(0))), strict=True
    ):
        one_class = [each in (0, HELD) for each in alarms]  # by the counts alone
        latest, patience, epochs = draw.choice([True, False]), draw.choice([None, 4]), draw.choice([6, 9, EPOCHS])
        flat, values, best, first_best, said, stopped = [], [], None, 0, None, False
        for epoch in range(epochs):
            predicted = torch.tensor([HELD - alarms[epoch], alarms[epoch]])
            actual = torch.tensor([HELD - positives[epoch], positives[epoch]])
            correct = torch.tensor([HELD - alarms[epoch] - positives[epoch] + hits[epoch], hits[epoch]])
            flat.append(any(never_predicted(imbtorch.Margins(correct, actual, predicted))))
            if said is None and is_harmed(flat, best):
                said = "so far"
                assert all(one_class[epoch - 9 : epoch + 1])
                assert one_class[best]
            values.append(iam(hits[epoch], alarms[epoch], positives[epoch]))
            first_best = values.index(max(values))
            best = len(values) - 1 - values[::-1].index(max(values)) if latest else first_best
            if patience is not None and epoch - first_best >= patience:
                stopped = True
                break
        harmed = is_harmed(flat, best, ended=True) or (
            stopped and is_harmed(flat, first_best, ended=True, stopped=True)
        )
        assert flat == one_class[: len(flat)]
        assert harmed == (one_class[best] or (stopped and one_class[first_best]))
        moves_later += said is not None and not harmed
        told[said or ("stopped" if harmed and stopped else "end" if harmed else "silent")] += 1
    assert min(told.values()) > 100, told
    assert moves_later > 5  # worded "so far", since some of them move after ten validations


def test_counts_and_not_values_say_whether_one_class_is_predicted():
    """Recall and F1 are 0 with false alarms as well; a validation set of one class says nothing."""

    def flat(matrix):
        return never_predicted(imbtorch.margins(torch.tensor(matrix)))

    assert flat([[90, 0], [10, 0]]) == [[1]]
    assert flat([[0, 90], [0, 10]]) == [[0]]
    assert flat([[89, 1], [10, 0]]) == [[]]  # a false alarm
    assert flat([[90, 0], [0, 0]]) == [[]]
    assert flat([[90, 0, 0], [10, 0, 0], [0, 0, 0]]) == [[1]]
    assert flat([[80, 10, 0], [10, 0, 0], [5, 0, 0]]) == [[]]
    assert flat([[[9, 0], [1, 0]], [[5, 0], [5, 0]]]) == [[1], [1]]
    assert flat([[[9, 0], [1, 0]], [[5, 0], [4, 1]]]) == [[], []]  # one label is enough to choose by
    assert flat([[[9, 0], [1, 0]], [[9, 0], [0, 0]]]) == [[1], []]


# --- programs of Lightning --------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "examples" / "monitoring.md"
TRUTH = torch.arange(40) % 4 == 0
SAID_BY_LIGHTNING = (r"Checkpoint directory .* exists", r"Found \d+ module\(s\) in eval mode")


def shares(preds):
    """Return scores of several classes or labels that predict as given."""
    return 0.8 * torch.nn.functional.one_hot(preds, 3) + 0.05


class Module(lightning.LightningModule):
    """Module that predicts as scripted: no positives (-), only these (+), most rightly (x), or some falsely (z)."""

    def __init__(self, script, metrics=None, plateau=None, logs=("val", "sweep")):
        super().__init__()
        self.net, self.script, self.plateau, self.logs = torch.nn.Linear(1, 1), script, plateau, logs
        for name, metric in (
            metrics or {"val": ImbalanceReport("binary", class_names=["ok", "fraud"], prefix="val_")}
        ).items():
            setattr(self, name, metric)

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        (index,), truth = batch, TRUTH[batch[0]].long()
        kind = self.script[self.current_epoch]
        found = (index % 8 == 0).long() if kind == "x" else torch.full_like(truth, int(kind == "+"))
        found = (index % 4 == 1).long() if kind == "z" else found
        found = torch.where(index == self.current_epoch + 1, 1 - found, found) if kind == "x" else found
        for name in ("val", "sweep"):
            metric = getattr(self, name, None)
            task = getattr(metric, "task", "")
            options = {"group": index % 2} if getattr(metric, "groups", None) else {}
            if task == "binary":
                metric.update(0.1 + 0.8 * found if name == "sweep" else found, truth, **options)
            elif task:
                wanted = truth if task == "multiclass" else torch.nn.functional.one_hot(truth, 3)
                metric.update(shares(found), wanted, **options)

    def on_validation_epoch_end(self):
        for name in self.logs:
            metric = getattr(self, name, None)
            if isinstance(metric, imbtorch.ImbalanceAccuracy):
                self.log("val_iam", metric)
            elif metric is not None:
                self.log_dict(metric)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        if self.plateau is None:
            return optimizer
        scheduler = ReduceLROnPlateau(optimizer, mode="max", patience=100)
        scheduler = unguarded(scheduler) if self.plateau == "unguarded" else scheduler
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_iam"}}


def told(script, folder, *callbacks, key="val_iam", keeps=True, cls=Module, **options):
    """Fit; return what is said of values that cannot choose."""
    kept = [ModelCheckpoint(folder, "{epoch}", monitor=key, mode="max")] if keeps else []
    module = cls(script, **options)
    loader = DataLoader(TensorDataset(torch.arange(40)), 10)
    settings = {**QUIET, "logger": False, "num_sanity_val_steps": 0, "enable_checkpointing": keeps}
    trainer = lightning.Trainer(
        max_epochs=len(script), callbacks=[*kept, *callbacks], default_root_dir=folder, **settings
    )
    with listening() as texts:
        trainer.fit(module, loader, loader)
    return [text for text in texts if "choose" in text]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("---", "has kept an epoch"),
        ("--", None),  # fewer than three validations
        ("+++", "has kept an epoch"),
        ("--x", None),
        ("--" + "z" * 3, "has kept an epoch"),  # false alarms only, whose value is lower
        ("x--", None),
        ("-----x", None),
        ("----------x", "so far"),
        ("x----------", None),  # the kept epoch is the first
    ],
)
def test_a_report_that_predicts_one_class_is_told_where_it_harms(script, says, tmp_path):
    texts = told(script, tmp_path)
    assert len(texts) == (says is not None)
    for text in texts:
        assert re.search(f"ModelCheckpoint.monitor='val_iam', mode='max'. .*{says}", text)
        assert "no sample was predicted as " + ("'ok'" if script[0] == "+" else "'fraud'") in text


def test_the_line_to_write_is_that_of_the_sweep_of_the_module(tmp_path):
    report = {"val": ImbalanceReport("binary", class_names=["ok", "fraud"], prefix="val_")}
    sweep = ThresholdSweep("f1", prefix="val_sweep_")
    (text,) = told("---", tmp_path / "a", metrics={**report, "sweep": sweep})
    (shown,) = re.findall(r"^```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert text == " ".join(shown.split())
    sweep = ThresholdSweep("f1", prefix="val_sweep_")
    (text,) = told("---", tmp_path / "b", metrics={**report, "sweep": sweep}, logs=("val",))
    assert "log it by self.log_dict(self.sweep), write monitor='val_sweep_value', mode='max', and in test_step" in text


@pytest.mark.parametrize(
    ("report", "key", "made"),
    [
        (
            ImbalanceReport("binary", prefix="val_"),
            "val_iam",
            "imbtorch.ThresholdSweep('iam', logits=False, prefix='val_sweep_')",
        ),
        (
            ImbalanceReport("binary", prefix="val_", logits=False),
            "val_recall",
            "imbtorch.ThresholdSweep('balanced_accuracy', logits=False, prefix='val_sweep_')",
        ),
        (
            ImbalanceReport("multiclass", num_classes=3, prefix="a/"),
            "a/gmean",
            "imbtorch.LogitAdjustmentSweep('gmean', train_counts, logits=False, prefix='a/sweep_')",
        ),
        (
            ImbalanceReport("multilabel", num_labels=3, measures=["f1"]),
            "f1",
            "imbtorch.ThresholdSweep('f1', task='multilabel', num_labels=3, logits=False, prefix='sweep_')",
        ),
    ],
)
def test_without_a_sweep_the_text_says_how_to_add_one_that_can_be_built(report, key, made, tmp_path):
    (text,) = told("---", tmp_path, metrics={"val": report}, key=key)
    assert f"self.sweep = {made} in __init__" in text
    sweep = eval(made, {"imbtorch": imbtorch, "train_counts": [3, 2, 1]})
    assert f"monitor='{sweep['value'].full_name}', mode='max'" in text


def test_early_stopping_is_told_when_it_stops_by_such_a_value(tmp_path):
    def stop():
        return EarlyStopping("val_iam", mode="max", patience=1)

    (text,) = told("-----", tmp_path, stop(), keeps=False)
    assert "EarlyStopping(monitor='val_iam', mode='max') has stopped although 'val_iam' could not choose" in text
    assert told("-x-----", tmp_path, stop(), keeps=False) == []  # stops, but its best epoch predicts both classes
    assert told("--", tmp_path, EarlyStopping("val_iam", mode="max", patience=5), keeps=False) == []
    assert len(told("-----", tmp_path, stop())) == 1  # once, although two callbacks act by it


def test_schedulers_and_other_callbacks_are_told_so_far(tmp_path):
    (text,) = told("-" * 11, tmp_path, keeps=False, plateau="guarded")
    assert "ReduceLROnPlateau(monitor='val_iam', mode='max') has nothing to choose by so far, in 10 validations" in text
    (text,) = told("-" * 11, tmp_path, Watcher("val_iam", "max"), keeps=False)
    assert text.startswith("Watcher(monitor='val_iam', mode='max') has nothing to choose by so far")
    assert told("-" * 9, tmp_path, Watcher("val_iam", "max"), keeps=False) == []
    assert told("-" * 11, tmp_path, unguarded(Watcher("val_iam", "max")), keeps=False, plateau="unguarded") == []


def test_a_single_metric_is_judged_by_its_counts(tmp_path):
    metrics = {"val": imbtorch.ImbalanceAccuracy("binary")}
    (text,) = told("----", tmp_path / "a", metrics=metrics)
    assert "could not choose: no sample was predicted as '1', since no score passes 0.5. Monitor the value" in text
    (made,) = re.findall(r"build self.sweep = (\S+\)) in __init__", text.replace(", ", ","))
    sweep = eval(made, {"imbtorch": imbtorch})
    assert f"monitor='{sweep['value'].full_name}', mode='max'" in text
    assert told("---x", tmp_path / "b", metrics=metrics) == []
    assert told("xxxx", tmp_path / "d", metrics=metrics) == []  # the same good value, as after a resumed run
    assert len(told("-" * 11, tmp_path / "c", metrics=metrics)) == 1


def test_measures_that_are_best_where_one_class_is_predicted_are_told(tmp_path):
    report = ImbalanceReport("binary", measures=["specificity"], prefix="val_", per_class=())
    (text,) = told("---", tmp_path, metrics={"val": report}, key="val_specificity")
    assert "no sample was predicted as '1'" in text


@pytest.mark.parametrize("kind", ["report", "single"])
def test_values_that_training_logs_are_judged_as_well(kind, tmp_path):
    class Trained(Module):
        def training_step(self, batch, batch_idx):
            super().validation_step(batch, batch_idx)
            if isinstance(self.val, imbtorch.ImbalanceAccuracy):
                self.log("val_iam", self.val, on_step=False, on_epoch=True)
            else:
                self.log_dict(self.val, on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            pass

    def fitted(script, folder, *callbacks):
        metric = imbtorch.ImbalanceAccuracy("binary") if kind == "single" else ImbalanceReport("binary", prefix="val_")
        return told(script, folder, *callbacks, metrics={"val": metric}, logs=(), cls=Trained)

    (text,) = fitted("---", tmp_path / "a")
    assert "has kept an epoch although 'val_iam' could not choose: no sample was predicted as '1'" in text
    assert fitted("--x", tmp_path / "b") == []
    assert fitted("x--", tmp_path / "c") == []
    stop = EarlyStopping("val_iam", mode="max", patience=1, check_on_train_epoch_end=True)
    assert len(fitted("-----", tmp_path / "d", stop)) == 1


def test_each_fit_is_told_also_where_python_shows_a_text_once(tmp_path):
    """As in a notebook, in folds and in a resumed run."""
    program = (
        "import sys; sys.path[:0] = {paths}\n"
        "import lightning, torch\nfrom test_flat_monitors import *\n"
        "loader = DataLoader(TensorDataset(torch.arange(40)), 10)\n"
        "for fold in range(2):\n"
        "    kept = LightningCheckpoint({folder!r} + str(fold), monitor='val_iam', mode='max', save_last=True)\n"
        "    module = Module('-' * 9)\n"
        "    for epochs, path in ((3, None), (6, kept)):\n"
        "        trainer = lightning.Trainer(max_epochs=epochs, callbacks=[kept], logger=False, **QUIET)\n"
        "        trainer.fit(module, loader, loader, ckpt_path=path and path.last_model_path)\n"
        "    trainer.fit_loop.max_epochs = 9\n"
        "    trainer.fit(module, loader, loader)\n"
    ).format(paths=[str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")], folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("has kept an epoch although 'val_iam' could not choose") == 6


def test_probabilities_in_place_of_logits_are_the_cause_that_is_named(tmp_path):
    scores = (3 * torch.randn(40, generator=torch.Generator().manual_seed(0)) - 3).sigmoid()

    class Given(Module):
        def validation_step(self, batch, batch_idx):
            self.val.update(self.given[batch[0]], TRUTH[batch[0]].long())

    for given, says in ((scores, "But the scores lie in [0, 1]"), (scores + 0.2, "are probabilities, write logits=Fa")):
        Given.given = given
        report = ImbalanceReport("binary", logits=True, prefix="val_")
        (text,) = told("---", tmp_path / says[:3], metrics={"val": report}, cls=Given)
        assert says in text
        assert "predicted as '0'" in text
    Given.given = torch.linspace(-3, -1, 40)
    (text,) = told(
        "---", tmp_path / "c", metrics={"val": ImbalanceReport("binary", logits=True, prefix="val_")}, cls=Given
    )
    assert "since no score passes 0.5 (log-softmax of one column never does). Monitor the value of a sweep" in text


def test_what_is_left_alone(tmp_path):
    groups = ImbalanceReport("binary", groups=["a", "b"], prefix="val_", intervals=["iam"])
    for at, key in enumerate(("val_iam/a", "val_iam_worst", "val_iam_low")):
        assert told("---", tmp_path / str(at), metrics={"val": groups}, key=key) == []
    prevalence = ImbalanceReport("binary", prevalence=[0.5, 0.5], prefix="val_")
    assert told("---", tmp_path / "p", metrics={"val": prevalence}) == []
    sweep = ThresholdSweep("f1", prefix="val_sweep_")
    assert told("---", tmp_path / "s", metrics={"sweep": sweep}, key="val_sweep_value") == []


def test_values_of_batches_are_left_alone(tmp_path):
    class Stepped(Module):
        def validation_step(self, batch, batch_idx):
            (index,) = batch
            self.val(torch.zeros_like(index), TRUTH[index].long())
            self.log_dict(self.val, on_step=True, on_epoch=False)

    with listening() as texts:
        loader = DataLoader(TensorDataset(torch.arange(40)), 10)
        watcher = Watcher("val_iam", "max")
        trainer = lightning.Trainer(
            max_epochs=11, callbacks=[watcher], logger=False, enable_checkpointing=False, **QUIET
        )
        trainer.fit(Stepped("-" * 11, logs=()), loader, loader)
    assert not [text for text in texts if "choose" in text]


def test_labels_name_those_that_are_never_positive(tmp_path):
    report = ImbalanceReport("multilabel", class_names=["a", "b", "c"], prefix="val_")
    (text,) = told("---", tmp_path / "a", metrics={"val": report}, key="val_f1")
    assert "no sample was predicted negative for 'a', positive for 'b'. Monitor" in text  # label c has no positives
    report = ImbalanceReport("multilabel", class_names=["a", "b", "c"], prefix="val_")
    (text,) = told("---", tmp_path / "b", metrics={"val": report}, key="val_recall/b")
    assert "no sample was predicted positive for 'b', since no score passes 0.5. Monitor" in text


def test_a_second_fit_begins_anew(tmp_path):
    module, loader = Module("--" + "x" * 8), DataLoader(TensorDataset(torch.arange(40)), 10)
    kept = ModelCheckpoint(tmp_path, "{epoch}", monitor="val_iam", mode="max")
    trainer = lightning.Trainer(max_epochs=2, callbacks=[kept], default_root_dir=tmp_path, **QUIET, logger=False)
    with listening() as texts:
        trainer.fit(module, loader, loader)
        trainer.fit_loop.max_epochs = 6
        trainer.fit(module, loader, loader)
    assert not [text for text in texts if "choose" in text]


# --- twenty trainings -------------------------------------------------------------------------------------------------


class Learner(lightning.LightningModule):
    """Logistic regression on data with few positives; notes how many positives each validation predicts."""

    def __init__(self, rate):
        super().__init__()
        self.net, self.rate = torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Flatten(0)), rate
        self.val = ImbalanceReport("binary", logits=True, prefix="val_")
        self.sweep = ThresholdSweep("iam", logits=True, prefix="val_sweep_")
        self.alarms, self.positives = [], 0

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.binary_cross_entropy_with_logits(self.net(batch[0]), batch[1].float())

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        self.positives += int((logits > 0).sum())
        self.val.update(logits, batch[1])
        self.sweep.update(logits, batch[1])

    def on_validation_epoch_end(self):
        self.alarms, self.positives = [*self.alarms, self.positives], 0
        self.log_dict(self.val)
        self.log_dict(self.sweep)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.rate)


def rare_data(samples, share, draw):
    target = (draw.random(samples) < share).astype(int)
    target[:2] = 1
    features = draw.normal(size=(samples, 5)) + 1.5 * target[:, None]
    return DataLoader(TensorDataset(torch.from_numpy(features).float(), torch.from_numpy(target)), 50)


@pytest.mark.default_cases("0", "1", "6")
@pytest.mark.parametrize("seed", range(20), ids=str)
def test_trainings_are_told_where_the_kept_epoch_predicts_one_class(seed, tmp_path):
    plan, draw = random.Random(seed), np.random.default_rng(seed)
    slow = seed % 2 == 0
    run = types.SimpleNamespace(
        rate=3e-4 if slow else plan.choice([0.01, 0.05]),
        share=0.01 if slow else 0.1,
        epochs=plan.choice([3, 6, 9]),
        interval=plan.choice([0.5, 1.0]),
        lightnings=plan.choice([True, False]),
        patience=plan.choice([None, 2]),
    )
    torch.manual_seed(seed)
    module = Learner(run.rate)
    kept = (LightningCheckpoint if run.lightnings else ModelCheckpoint)(
        tmp_path, "{epoch}-{step}", monitor="val_iam", mode="max"
    )
    stop = [] if run.patience is None else [EarlyStopping("val_iam", mode="max", patience=run.patience)]
    trainer = lightning.Trainer(
        max_epochs=run.epochs, val_check_interval=run.interval, num_sanity_val_steps=0, callbacks=[kept, *stop],
        logger=False, default_root_dir=tmp_path, **QUIET,
    )  # fmt: skip
    with listening() as texts:
        trainer.fit(module, rare_data(400, run.share, draw), rare_data(300, run.share, draw))
    one_class = [alarms in (0, 300) for alarms in module.alarms]
    steps = [round((1 + at) * 8 * run.interval) for at in range(len(one_class))]
    step = int(re.search(r"step=(\d+)", kept.best_model_path)[1])
    texts = [text for text in texts if "choose" in text]
    assert len(texts) <= 1
    if texts and "so far" in texts[0]:
        assert any(all(one_class[at : at + 10]) for at in range(len(one_class) - 9))
    elif run.patience is None:
        assert bool(texts) == (one_class[steps.index(step)] and len(one_class) >= 3)
    elif texts:
        assert one_class[steps.index(step)] or one_class[0]
    else:
        assert not one_class[steps.index(step)] or len(one_class) < 3
    for text in texts:
        assert "write monitor='val_sweep_value', mode='max', and in test_step update with self.sweep.rule" in text


# --- unguarded --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", CALLBACKS)
def test_a_callback_is_left_alone_where_it_says_so(package, tmp_path):
    worst = unguarded(CALLBACKS[package].ModelCheckpoint(tmp_path, monitor="val_iam", mode="min"))
    assert isinstance(worst, CALLBACKS[package].ModelCheckpoint)
    assert "unguarded" not in str(worst.state_dict())
    if package is lightning:
        assert told("xx", tmp_path, worst) == []
        assert worst.best_model_path


@pytest.mark.parametrize(
    "wrong", ["val_iam", LightningCheckpoint, None, lightning.Callback(), {"scheduler": None, "monitor": "val_iam"}]
)
def test_only_callbacks_and_schedulers_can_be_unguarded(wrong):
    with pytest.raises(TypeError, match=r"unguarded takes a callback with a monitor, or a ReduceLROnPlateau, got"):
        unguarded(wrong)
