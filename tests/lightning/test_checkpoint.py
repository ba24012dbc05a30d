"""A checkpoint that keeps the latest of tied epochs, with real trainers; rules for ties are written out in loops."""

import gc
import inspect
import math
import pickle
import random
import re
import types
import warnings
from collections import Counter
from datetime import timedelta
from pathlib import Path

import lightning
import pytest
import pytorch_lightning
import torch
from both_packages import CALLBACKS, EVERY_PACKAGE
from both_packages import fit as fit_report
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks import ModelCheckpoint as LightningsOwn
from lightning.pytorch.cli import LightningCLI
from processes import counted_collectives, launch
from rooms import TieRule, checkpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, join_lightning, listening, python, scripted
from versions import loading, needs_callbacks_for

from imbtorch.lightning import ModelCheckpoint, TiesCheckpoint

pytestmark = [
    *(pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY),
    pytest.mark.filterwarnings(r"ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings(r"ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]


class OfPytorchLightning(TieRule, pytorch_lightning.callbacks.ModelCheckpoint):
    """What a program that imports both packages writes."""


OURS = {lightning: ModelCheckpoint, pytorch_lightning: OfPytorchLightning}
MODULES = {}
NAN = math.nan
TIED = (1, 3, NAN, 2, 3, 1, 3, 2, NAN, 2)  # epochs 1, 4 and 6 are best


def module_of(package):
    class Scripted(package.LightningModule):
        """Logs a value after each epoch, or after so many of its steps."""

        def __init__(self, values):
            super().__init__()
            self.net, self.values = nn.Linear(1, 1), values

        def training_step(self, batch, batch_idx):
            return self.net(batch[0]).sum()

        def validation_step(self, batch, batch_idx):
            pass

        def on_validation_epoch_end(self):
            value = self.values[self.current_epoch]
            self.log("value", float(value[self.global_rank] if isinstance(value, tuple) else value))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return MODULES.setdefault(package, Scripted)


def run(values, *callbacks, package=lightning, checkpoint=None, **options):
    needs_callbacks_for(package)
    data = DataLoader(TensorDataset(torch.ones(2, 1)))
    options = {"max_epochs": len(values), "logger": False, "num_sanity_val_steps": 0, **QUIET, **options}
    trainer = package.Trainer(callbacks=list(callbacks), **options)
    resume = {} if checkpoint is None else loading(package, checkpoint, True)
    trainer.fit(module_of(package)(values), data, data, **resume)
    return trainer


def epoch_of(path):
    return torch.load(path, weights_only=True)["epoch"]


def epochs_on_disk(folder):
    return {int(re.search(r"epoch=(\d+)", path.name)[1]) for path in Path(folder).glob("epoch=*.ckpt")}


def kept_of(values, mode, number, ties="latest"):
    """Epochs of the best values, nan the worst and tied ones in the order of the rule; the very best first."""
    sign, order = 1 if mode == "max" else -1, 1 if ties == "latest" else -1
    worth = {at: -math.inf if math.isnan(value) else sign * value for at, value in enumerate(values)}
    ordered = sorted(worth, key=lambda at: (worth[at], order * at), reverse=True)
    return ordered if number == -1 else ordered[:number]


@EVERY_PACKAGE
@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("number", [1, 2, 3, -1])
def test_the_latest_of_tied_epochs_is_kept(number, mode, package, tmp_path):
    if package is pytorch_lightning and number == 3:
        pytest.skip("as 2")
    values = TIED if mode == "max" else [-value for value in TIED]
    saver = OURS[package](tmp_path, "{epoch}", monitor="value", mode=mode, save_top_k=number)
    trainer = run(values, saver, package=package)
    wanted = kept_of(values, mode, number)
    assert trainer.checkpoint_callback is saver
    assert epoch_of(saver.best_model_path) == wanted[0] == 6
    assert saver.best_model_score == values[6]
    assert epochs_on_disk(tmp_path) == set(wanted)
    last_saved = torch.load(tmp_path / f"epoch={max(wanted)}.ckpt", weights_only=True)  # the file knows the best
    assert last_saved["callbacks"][saver.state_key]["best_model_path"] == saver.best_model_path


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("number", [1, 2, 3, -1])
def test_the_earliest_is_kept_where_it_is_asked_for(number, mode, tmp_path):
    """Lightning's own keeps the earliest of tied best ones, too, but deletes the earliest of tied worst ones."""
    options = {"monitor": "value", "mode": mode, "save_top_k": number}
    ours = ModelCheckpoint(tmp_path / "ours", "{epoch}", ties="earliest", **options)
    theirs = LightningsOwn(tmp_path / "theirs", "{epoch}", **options)
    values = [value if mode == "max" else -value for value in TIED]
    run(values, ours, theirs)
    wanted = kept_of(values, mode, number, "earliest")
    assert epoch_of(ours.best_model_path) == epoch_of(theirs.best_model_path) == wanted[0] == 1
    assert epochs_on_disk(tmp_path / "ours") == set(wanted)


def test_where_every_value_is_nan_the_latest_is_kept(tmp_path):
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    run([NAN, NAN, NAN], saver)
    assert epoch_of(saver.best_model_path) == 2


def test_nothing_is_kept_where_nothing_is_asked_for_and_the_last_without_a_monitor(tmp_path):
    nothing = ModelCheckpoint(tmp_path / "nothing", monitor="value", mode="max", save_top_k=0)
    last = ModelCheckpoint(tmp_path / "last")
    run(TIED[:4], nothing, last)
    assert nothing.best_model_path == ""
    assert epoch_of(last.best_model_path) == 3


def test_one_file_the_last_one_and_weights_alone(tmp_path):
    one = ModelCheckpoint(tmp_path / "one", "best", monitor="value", mode="max")
    last = ModelCheckpoint(tmp_path / "last", "{epoch}", monitor="value", mode="max", save_last=True)
    weights = ModelCheckpoint(tmp_path / "weights", monitor="value", mode="max", save_weights_only=True)
    for saver in (one, last, weights):  # in trainers of their own: Lightning takes one of each rule and monitor
        run(TIED[:9], saver)
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["best.ckpt"]
    assert epoch_of(one.best_model_path) == epoch_of(weights.best_model_path) == 6
    assert {path.name for path in (tmp_path / "last").iterdir()} == {"epoch=6.ckpt", "last.ckpt"}
    state = torch.load(tmp_path / "last" / "last.ckpt", weights_only=True)
    assert state["epoch"] == 6
    assert state["callbacks"][last.state_key]["best_model_path"] == last.best_model_path
    assert "callbacks" not in torch.load(weights.best_model_path, weights_only=True)


# --- the weights that were validated --------------------------------------------------------------------------------


def stepwise_of(package):
    class Stepwise(module_of(package)):
        """Logs a value for each step in validation, None for nothing; notes steps, weights and values."""

        def __init__(self, value_at, notes):
            super().__init__(())
            self.value_at, self.notes, self.is_first = value_at, notes, True

        def on_validation_epoch_end(self):
            step = self.trainer.global_step
            value = self.value_at(step, self.is_first)
            if value is not None:
                self.log("value", float(value))
            if value is not None and not self.trainer.sanity_checking:
                self.is_first = False
                self.notes.append((step, self.net.bias.item(), value))

    return Stepwise


def fit_stepwise(value_at, notes, *callbacks, package=lightning, checkpoint=None, **options):
    needs_callbacks_for(package)
    data, val = (DataLoader(TensorDataset(torch.ones(samples, 1))) for samples in (12, 1))
    options = {"max_epochs": -1, "logger": False, **QUIET, **options}
    trainer = package.Trainer(callbacks=list(callbacks), **options)
    resume = {} if checkpoint is None else loading(package, checkpoint, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of intervals, resumed epochs and folders
        trainer.fit(stepwise_of(package)(value_at, notes), data, val, **resume)
    return trainer


def weights_of(path):
    state = torch.load(path, weights_only=True)
    return state["global_step"], state["state_dict"]["net.bias"].item()


EVERY_STEP = {"train_time_interval": timedelta(0)}
BETWEEN = {  # of a Trainer, of the callbacks, and the steps that Lightning's own and ours keep where all values tie
    "max_steps": ({}, {}, 10, 30),
    "every_n_train_steps": ({}, {"every_n_train_steps": 3}, 12, 12),  # with the value of step 10
    "train_time_interval": ({}, EVERY_STEP, 11, 11),
    "third steps and validations": ({}, {"every_n_train_steps": 3, "save_on_train_epoch_end": False}, 10, 30),
    "times and validations": ({}, EVERY_STEP | {"save_on_train_epoch_end": False}, 10, 30),
    "half an epoch": ({"val_check_interval": 0.5}, {}, 5, 35),
    "five steps": ({"val_check_interval": 5}, {}, 5, 35),
    "seven steps": ({"val_check_interval": 7, "check_val_every_n_epoch": None}, {}, 7, 35),
    "between validations": ({"val_check_interval": 5}, {"every_n_train_steps": 4}, 5, 20),
    "second epochs": ({"check_val_every_n_epoch": 2}, {"save_on_train_epoch_end": True}, 20, 20),
}


@pytest.mark.parametrize("number", [1, 2, -1])
@pytest.mark.parametrize("kind", BETWEEN)
def test_where_all_values_tie_the_weights_validated_last_are_kept(kind, number, tmp_path):
    """37 steps, 10 an epoch."""
    options, saving, earliest, latest = BETWEEN[kind]
    saving = {"monitor": "value", "mode": "max", "save_top_k": number, **saving}
    own, ours = LightningsOwn(tmp_path / "own", **saving), ModelCheckpoint(tmp_path / "ours", **saving)
    notes = []
    fit_stepwise(lambda *_: 1, notes, own, ours, max_steps=37, limit_train_batches=10, **options)
    assert weights_of(own.best_model_path)[0] == earliest
    step, bias = weights_of(ours.best_model_path)
    assert step == latest
    assert ((step, bias, 1) in notes) == (latest not in (11, 12))


def random_run(seed, folder, package):
    """Train once or in two parts with Lightning's own callback, ours, and a random configuration."""
    rng, notes = random.Random(seed), []
    batches = rng.randint(4, 10)
    validating = rng.choice(
        [
            {},
            {"check_val_every_n_epoch": rng.choice([2, 3])},
            {"val_check_interval": rng.choice([0.25, 0.34, 0.5])},
            {"val_check_interval": rng.randint(2, batches)},
            {"val_check_interval": rng.randint(2, 13), "check_val_every_n_epoch": None},
        ]
    )
    options = {
        "limit_train_batches": batches,
        "num_sanity_val_steps": rng.choice([0, 2]),
        "accumulate_grad_batches": rng.choice([1, 1, 1, 2, 3]),
        **validating,
    }
    trigger = rng.choice([{}, {}, {"every_n_epochs": 2}, {"every_n_train_steps": rng.randint(1, 12)}, EVERY_STEP])
    saving = {
        "monitor": "value",
        "mode": rng.choice(["max", "min"]),
        "save_top_k": rng.choice([1, 1, 1, 2, 3, -1]),
        "save_last": rng.choice([None, None, True, "link"]),
        "save_on_train_epoch_end": rng.choice([None, None, True, False]),
        "filename": rng.choice([None, "{epoch}", "best"]),
        "enable_version_counter": rng.random() < 0.8,
        **trigger,
    }
    levels, gaps = rng.choice([1, 2, 3, 5]), rng.choice([0, 0, 0.4])

    def value_at(step, is_first):
        draw = random.Random(1000 * seed + step)  # the same where a resumed run validates again
        value = draw.choice([*range(levels), NAN] if draw.random() < 0.5 else range(levels))
        return value if is_first or step < 12 or draw.random() >= gaps else None

    end, checkpoint = rng.randint(15, 45), None
    for max_steps in (rng.randint(3, 14), end) if rng.random() < 0.5 else (end,):
        savers = [kind(folder / name, **saving) for name, kind in (("own", kind_of(package)), ("ours", OURS[package]))]
        ended = {"max_steps": max_steps} if seed % 2 else {"max_epochs": -(-max_steps // batches)}
        trainer = fit_stepwise(value_at, notes, *savers, package=package, checkpoint=checkpoint, **options, **ended)
        checkpoint = folder / "end.ckpt"
        trainer.save_checkpoint(checkpoint)
    every = not trigger and not saving["save_on_train_epoch_end"] and saving["enable_version_counter"]
    return savers, notes, saving["mode"], every


def kind_of(package):
    return CALLBACKS[package].ModelCheckpoint


@EVERY_PACKAGE
def test_the_best_file_holds_the_weights_that_were_validated_with_its_value(package, tmp_path, monkeypatch):
    """Replay of 100 random trainers: what Lightning's own keeps right, ours does, and later; else no further off.

    A file of other weights is warned of.
    """
    seen, told = Counter(), []
    monkeypatch.setattr(checkpoint, "warn_once", lambda *warned: told.append(warned))
    for seed in range(50) if package is lightning else range(50, 100):
        told.clear()
        (own, ours), notes, mode, every = random_run(seed, tmp_path / str(seed), package)
        if not own.best_model_path:
            assert not ours.best_model_path
            seen["nothing"] += 1
            continue
        worst = -math.inf if mode == "max" else math.inf
        notes = [(step, bias, worst if math.isnan(value) else value) for step, bias, value in notes]
        score = own.best_model_score.item()
        assert ours.best_model_score == score, seed
        (own_step, own_bias), (step, bias) = weights_of(own.best_model_path), weights_of(ours.best_model_path)
        own_drift, drift = (at - max(known for known, *_ in notes if known <= at) for at in (own_step, step))
        assert drift <= own_drift, seed
        assert step >= own_step, seed
        if (own_step, own_bias, score) in notes:
            assert (step, bias, score) in notes, seed
        assert (step, bias, score) in notes or told, seed
        if every:  # all validated weights are saved
            best = (max if mode == "max" else min)(value for *_, value in notes)
            assert (step, score) == (max(at for at, _, value in notes if value == best), best), seed
            assert not told, seed
        seen["all saved" if every else "some saved"] += 1
        seen["later" if step > own_step else "the same"] += 1
        seen["ours drifts" if drift else "ours is exact"] += 1
    assert len(seen) >= 6, seen
    assert min(seen[what] for what in ("all saved", "later", "ours drifts")) >= 5, seen


TOLD = {  # options of the Trainer and the callback, and what the warning names
    "steps": ({}, {"every_n_train_steps": 4}, "every_n_train_steps=4"),
    "times": ({}, EVERY_STEP, "train_time_interval=datetime.timedelta(0)"),
    "thirds": ({"val_check_interval": 0.3}, {"save_on_train_epoch_end": True}, "save_on_train_epoch_end=True"),
    "third epochs": (
        {"check_val_every_n_epoch": 2},
        {"save_on_train_epoch_end": True, "every_n_epochs": 3},
        "save_on_train_epoch_end=True",
    ),
    "halves": ({"val_check_interval": 0.5}, {"save_on_train_epoch_end": True}, ""),
    "fourth epochs": (
        {"check_val_every_n_epoch": 2},
        {"save_on_train_epoch_end": True, "every_n_epochs": 4},
        "",
    ),
    "plain": ({}, {}, ""),
}


@EVERY_PACKAGE
@pytest.mark.parametrize("kind", TOLD)
def test_settings_that_save_between_validations_are_told_before_training(kind, package, tmp_path):
    needs_callbacks_for(package)
    options, saving, named = TOLD[kind]
    saver = OURS[package](tmp_path, monitor="value", mode="max", **saving)

    trainer = package.Trainer(callbacks=[saver], limit_train_batches=10, max_epochs=2, logger=False, **QUIET, **options)
    data, val = (DataLoader(TensorDataset(torch.ones(samples, 1))) for samples in (12, 1))
    seen = []

    class Module(stepwise_of(package)):
        def on_train_start(self):
            seen.extend(warnings_so_far)

    with warnings.catch_warnings(record=True) as warnings_so_far:
        warnings.simplefilter("always")
        trainer.fit(Module(lambda step, _: step, []), data, val)
    warned = [str(each.message) for each in seen if "were never validated" in str(each.message)]
    assert len(warned) == bool(named)
    assert all(f"(monitor='value') saves between validations, by {named}, and" in text for text in warned)


def test_a_run_that_ends_within_an_epoch_tells_of_weights_that_were_not_validated(tmp_path):
    """Epochs of 10 steps, every second of which is saved; the value of step 30 is saved with step 37."""
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max", every_n_epochs=2)
    module, data = stepwise_of(lightning)(lambda step, _: step, []), DataLoader(TensorDataset(torch.ones(12, 1)))
    trainer = lightning.Trainer(callbacks=[saver], limit_train_batches=10, max_steps=37, logger=False, **QUIET)
    with listening() as warned:
        trainer.fit(module, data, data)
    assert (weights_of(saver.best_model_path)[0], saver.best_model_score) == (37, 30)
    (text,) = (each for each in warned if "TiesCheckpoint" in each)
    assert "saves step 37 as the best, whose weights were not validated" in text


def test_a_value_of_training_ties_at_the_end_of_its_epochs(tmp_path):
    """In its midst the value is that of the last epoch."""

    class Trained(module_of(lightning)):
        def training_step(self, batch, batch_idx):
            self.log("trained", self.values[self.current_epoch], on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    data = DataLoader(TensorDataset(torch.ones(2, 1)))
    for name, options, steps in (("epochs", {}, (4, 6)), ("steps", {"every_n_train_steps": 1}, (5, 5))):
        options |= {"monitor": "trained", "mode": "max"}
        savers = LightningsOwn(tmp_path / name / "own", **options), ModelCheckpoint(tmp_path / name / "ours", **options)
        trainer = lightning.Trainer(callbacks=[*savers], max_epochs=4, logger=False, limit_val_batches=0, **QUIET)
        trainer.fit(Trained((1.0, 3.0, 3.0, 2.0)), data, data)
        assert tuple(weights_of(saver.best_model_path)[0] for saver in savers) == steps


def test_a_value_of_one_of_two_dataloaders_ties(tmp_path):
    class Two(module_of(lightning)):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("each", self.values[self.current_epoch] if dataloader_idx else 0.0)

    saver = ModelCheckpoint(tmp_path, monitor="each/dataloader_idx_1", mode="max")
    data = DataLoader(TensorDataset(torch.ones(2, 1)))
    trainer = lightning.Trainer(callbacks=[saver], max_epochs=4, logger=False, **QUIET)
    trainer.fit(Two((1.0, 3.0, 3.0, 2.0)), data, [data, data])
    assert epoch_of(saver.best_model_path) == 2


def test_a_second_fit_saves_at_the_step_at_which_the_first_saved_last(tmp_path):
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    run((1, 1), saver)
    assert epoch_of(saver.best_model_path) == 1
    run((0, 2), saver)
    assert saver.best_model_score == 2
    assert epoch_of(saver.best_model_path) == 1


# --- resumed runs ---------------------------------------------------------------------------------------------------


def test_a_second_callback_without_a_monitor_keeps_the_last_epoch_where_save_last_keeps_an_old_one(tmp_path):
    """As the guide says of interrupted runs; the value only falls."""
    folder, last_of_best = tmp_path / "last", tmp_path / "best" / "last.ckpt"

    def callbacks():
        return (
            ModelCheckpoint(last_of_best.parent, monitor="value", mode="max", save_last=True),
            ModelCheckpoint(folder, filename="last", enable_version_counter=False),
            EarlyStopping("value", mode="max", patience=9),
        )

    run((3, 2), *callbacks())
    assert epoch_of(last_of_best) == 0
    assert epoch_of(folder / "last.ckpt") == 1
    best, last, stop = callbacks()
    run((3, 2, 1, 0), best, last, stop, checkpoint=folder / "last.ckpt")
    assert [path.name for path in folder.iterdir()] == ["last.ckpt"]
    assert epoch_of(folder / "last.ckpt") == 3
    assert best.best_model_score == 3
    assert stop.wait_count == 3


def saver_of(folder, kind=ModelCheckpoint, **options):
    return kind(folder, "{epoch}", monitor="value", mode="max", save_top_k=2, save_last=True, **options)


@EVERY_PACKAGE
@pytest.mark.parametrize("begun", ["ours", "earliest", "lightning's own"])
def test_a_resumed_run_goes_on_with_the_best_value(begun, package, tmp_path):
    own = package.pytorch.callbacks.ModelCheckpoint if package is lightning else package.callbacks.ModelCheckpoint
    first = {
        "ours": saver_of(tmp_path, OURS[package]),
        "earliest": saver_of(tmp_path, OURS[package], ties="earliest"),
        "lightning's own": saver_of(tmp_path, own),
    }[begun]
    values = (3, 2, 2, 1, 3, 3, 1)
    run(values[:2], first, package=package)
    assert first.best_model_score == 3
    resumed = saver_of(tmp_path, OURS[package])
    seen = []

    class Watch(package.Callback):
        def on_train_start(self, trainer, module):
            seen.append((resumed.best_model_score, epoch_of(resumed.best_model_path), len(resumed.best_k_models)))

    run(values, resumed, Watch(), package=package, checkpoint=tmp_path / "last.ckpt")
    assert seen == [(3, 0, 2)]
    assert epoch_of(resumed.best_model_path) == 5
    assert epochs_on_disk(tmp_path) == {4, 5}


def test_a_run_of_another_class_of_the_rule_is_resumed(tmp_path):
    class Checkpoint(TieRule, LightningsOwn):
        """Has a key of its own, as that of version 0.3 had, which was named ModelCheckpoint."""

    Checkpoint.__qualname__ = "ModelCheckpoint"
    options = {"monitor": "value", "mode": "max", "save_last": True}
    run((3, 2), Checkpoint(tmp_path, "{epoch}", **options))
    resumed = ModelCheckpoint(tmp_path, "{epoch}", **options)
    run((3, 2, 1), resumed, checkpoint=tmp_path / "last.ckpt")
    assert epoch_of(resumed.best_model_path) == 0


@pytest.mark.parametrize(("begun", "best"), [("lightning's own", 0), ("0.3", 2)])
def test_a_resumed_run_leaves_the_best_of_tied_files_as_it_was(begun, best, tmp_path):
    """Lightning's own takes the first of them; version 0.3 had them in the order of epochs, too, and took the last."""
    options = {"monitor": "value", "mode": "max", "save_top_k": 5}
    first = (LightningsOwn if begun == "lightning's own" else ModelCheckpoint)(tmp_path, "{epoch}", **options)
    trainer = run((3, 3, 3), first)
    trainer.save_checkpoint(tmp_path / "end")
    state = torch.load(tmp_path / "end", weights_only=True)
    files = {str(tmp_path / f"epoch={epoch}.ckpt"): torch.tensor(3.0) for epoch in range(3)}
    state["callbacks"][first.state_key].update(best_k_models=files, best_model_path=list(files)[best])
    torch.save(state, tmp_path / "end")
    resumed = ModelCheckpoint(tmp_path, "{epoch}", **options)
    run((3, 3, 3, 1), resumed, checkpoint=tmp_path / "end")
    assert epochs_on_disk(tmp_path) == {0, 1, 2, 3}
    assert epoch_of(resumed.best_model_path) == best


def test_callbacks_of_both_rules_and_lightnings_own_stand_beside_each_other_and_are_resumed(tmp_path):
    def three():
        return (
            LightningsOwn(tmp_path / "own", monitor="value", mode="max"),
            ModelCheckpoint(tmp_path / "latest", monitor="value", mode="max"),
            ModelCheckpoint(tmp_path / "earliest", monitor="value", mode="max", ties="earliest", save_last=True),
        )

    begun = three()
    assert len({saver.state_key for saver in begun}) == 3
    run((3, 3, 4), *begun, max_epochs=3)
    resumed = three()
    run((3, 3, 4, 1), *resumed, checkpoint=tmp_path / "earliest" / "last.ckpt")
    assert [epoch_of(saver.best_model_path) for saver in resumed] == [2, 2, 2]
    assert [Path(saver.best_model_path).parent.name for saver in resumed] == ["own", "latest", "earliest"]


def test_a_run_that_goes_on_with_lightnings_own_beside_it_leaves_its_files_alone(tmp_path):
    run((3, 2), LightningsOwn(tmp_path, "{epoch}", monitor="value", mode="max", save_last=True))
    own = LightningsOwn(tmp_path, "{epoch}", monitor="value", mode="max", save_last=True)
    ours = ModelCheckpoint(tmp_path / "ours", monitor="value", mode="max")
    run((3, 2, 2, 1), own, ours, checkpoint=tmp_path / "last.ckpt")
    assert epoch_of(own.best_model_path) == 0
    assert epoch_of(ours.best_model_path) == 2  # of those that it saw


@EVERY_PACKAGE
def test_checkpoints_of_two_callbacks_are_tested_one_after_the_other(package, tmp_path):
    """The value rises and the other one falls: the last best file of the one knows only its first, deleted files."""

    class Two(module_of(package)):
        def on_validation_epoch_end(self):
            super().on_validation_epoch_end()
            self.log("other", -float(self.current_epoch))

        def test_step(self, batch, batch_idx):
            self.seen = self.net.bias.item()

        def predict_step(self, batch, batch_idx):
            return self.net(batch[0])

        def on_train_start(self):
            self.kept_before = [rising.best_model_path, falling.best_model_path]

    needs_callbacks_for(package)
    rising, falling = (
        OURS[package](tmp_path / name, "{epoch}", monitor=name, mode="max") for name in ("value", "other")
    )
    data = DataLoader(TensorDataset(torch.ones(2, 1)))
    options = {"max_epochs": 3, "logger": False, "num_sanity_val_steps": 0, **QUIET}
    trainer, module = package.Trainer(callbacks=[falling, rising], **options), Two((1, 2, 3, 0, 0))
    trainer.fit(module, data, data)
    paths, biases = [rising.best_model_path, falling.best_model_path], []
    assert list(map(epoch_of, paths)) == [2, 0]
    for saver in (falling, rising):  # the file of the first was written when the other one had kept epoch 0
        checkpoint = loading(package, saver.best_model_path, True)
        for act in (trainer.validate, trainer.test, trainer.predict):
            act(module, data, **checkpoint, **({} if act == trainer.predict else {"verbose": False}))
            assert [rising.best_model_path, falling.best_model_path] == paths
            assert rising.best_model_score == 3
        biases.append(module.seen)
    states = [torch.load(path, weights_only=True)["state_dict"]["net.bias"].item() for path in reversed(paths)]
    assert biases == states
    assert states[0] != states[1]
    trainer.fit(module, data, data, **loading(package, falling.best_model_path, True))
    assert module.kept_before == ["", paths[1]]  # a resumed fit restores, also after a test
    assert list(map(epoch_of, (rising.best_model_path, falling.best_model_path))) == [2, 0]


def test_a_callback_that_never_fitted_takes_the_state_of_a_tested_checkpoint(tmp_path):
    first = saver_of(tmp_path)
    run((3, 2), first)
    later = saver_of(tmp_path)

    class Tested(module_of(lightning)):
        def test_step(self, batch, batch_idx):
            pass

    data = DataLoader(TensorDataset(torch.ones(2, 1)))
    trainer = lightning.Trainer(callbacks=[later], logger=False, **QUIET)
    trainer.test(Tested(()), data, **loading(lightning, tmp_path / "last.ckpt", True), verbose=False)
    assert later.best_model_path == first.best_model_path


# --- other parts ----------------------------------------------------------------------------------------------------


def on_processes(rank, world, folder):
    join_lightning(world)
    kept = []
    for kind, values in ((ModelCheckpoint, TIED[:7]), (ModelCheckpoint, ((1, 1), (2, 0), (0, 2), (1, 1), (2, 2)))):
        saver = kind(Path(folder) / str(len(kept)), monitor="value", mode="max")
        run(values, saver, strategy="ddp", devices=world)
        kept.append(saver.best_model_path)
    calls = []
    for kind in (LightningsOwn, ModelCheckpoint):
        with counted_collectives() as made:
            saver = kind(Path(folder) / kind.__module__, monitor="value", mode="max")
            run((1, 2, 3, 2), saver, strategy="ddp", devices=world)
        calls.append(list(made))
    return types.SimpleNamespace(kept=kept, calls=calls)


def test_two_processes_keep_the_same_epoch_and_talk_no_more_than_with_lightnings_own(tmp_path):
    first, second = launch(2, on_processes, str(tmp_path))
    assert first.kept == second.kept
    assert epoch_of(first.kept[0]) == 6
    assert epoch_of(first.kept[1]) == 4  # where processes disagree, nothing is kept
    own, ours = first.calls
    assert own == ours != []


def test_the_trainer_of_the_other_package_is_refused(tmp_path):
    needs_callbacks_for(pytorch_lightning)
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    with pytest.raises(TypeError, match=r"Import pytorch_lightning before imbtorch.lightning, or.*TieRule, pytorch_l"):
        run(TIED, saver, package=pytorch_lightning)

    class Own(pytorch_lightning.Trainer):
        pass

    trainer = Own(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    with pytest.raises(TypeError, match=r"not built on pytorch_lightning, so"):
        saver.setup(trainer, None, "fit")


def test_a_trainer_that_does_not_hold_the_callback_is_no_other_package(tmp_path):
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, **QUIET)
    saver.setup(trainer, module_of(lightning)([1]), "fit")
    assert saver.dirpath == str(tmp_path)


def test_its_signature_is_lightnings_with_the_rule():
    parameters = inspect.signature(TiesCheckpoint).parameters
    assert list(parameters) == [*inspect.signature(LightningsOwn).parameters, "ties"]
    assert parameters["mode"].default == "min"
    assert parameters["ties"].default == "latest"
    assert ModelCheckpoint is TiesCheckpoint

    class Named(TiesCheckpoint):
        def __init__(self, name):
            super().__init__(name, monitor="value")

    assert list(inspect.signature(Named).parameters) == ["name"]


def test_short_names_of_classes_in_a_configuration(tmp_path, monkeypatch):
    """``ModelCheckpoint`` remains Lightning's, whatever is imported."""
    gc.collect()  # classes of that name that other tests have made
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # of what Lightning calls
    config = {
        "callbacks": [
            {"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(tmp_path)}},
            {"class_path": "TiesCheckpoint", "init_args": {"monitor": "value", "mode": "max", "ties": "earliest"}},
            {"class_path": "imbtorch.lightning.ModelCheckpoint", "init_args": {"monitor": "value", "save_top_k": 2}},
        ]
    }
    args = {"trainer": config | QUIET | {"max_epochs": 1}, "model": {"values": [1]}}
    cli = LightningCLI(module_of(lightning), run=False, seed_everything_default=False, args=args)
    own, ours, alias = cli.trainer.checkpoint_callbacks
    assert type(own) is LightningsOwn
    assert (type(ours), ours.ties, ours.mode) == (TiesCheckpoint, "earliest", "max")
    assert (type(alias), alias.ties, alias.save_top_k) == (TiesCheckpoint, "latest", 2)


@pytest.mark.slow
def test_it_is_built_on_the_package_that_was_imported_first():
    done = python("""
        import pytorch_lightning
        from imbtorch.lightning import ModelCheckpoint, TiesCheckpoint
        print(ModelCheckpoint.__mro__[2].__module__.partition(".")[0])
    """)
    assert done.stdout == "pytorch_lightning\n", done.stderr


def test_the_guard_checks_its_mode(tmp_path):
    with pytest.raises(ValueError, match=r"Write ModelCheckpoint\(monitor='val_iam', mode='max'\)"):
        fit_report(scripted(lightning)(), [ModelCheckpoint(tmp_path, monitor="val_iam")])


def test_a_rule_is_the_latest_or_the_earliest_and_launchers_can_pickle_it(tmp_path):
    with pytest.raises(ValueError, match="ties must be one of 'latest', 'earliest', got 'last'"):
        ModelCheckpoint(tmp_path, ties="last")
    again = pickle.loads(pickle.dumps(ModelCheckpoint(tmp_path, monitor="value", ties="earliest")))
    assert (again.ties, again.monitor) == ("earliest", "value")


def test_early_stopping_counts_a_tie_as_no_improvement(tmp_path):
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    trainer = run([1, 1, 1, 1, 2], saver, EarlyStopping("value", mode="max", patience=2))
    assert trainer.current_epoch == 3
    assert epoch_of(saver.best_model_path) == 2


class Losses(lightning.LightningModule):
    """Logs two values of each validation and one of training; the list ``seen`` is the oracle."""

    def __init__(self, values):
        super().__init__()
        self.net, self.values, self.seen = nn.Linear(1, 1), values, []

    def training_step(self, batch, batch_idx):
        loss = self.net(batch[0]).sum()
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def on_validation_epoch_end(self):
        value = float(self.values[min(len(self.seen), len(self.values) - 1)])
        logged = {"value": value, "double": 2 * value}
        if not self.trainer.sanity_checking:
            self.seen.append({**logged, "epoch": self.current_epoch, "step": self.global_step})
        self.log_dict(logged)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run_losses(model, saver, **options):
    data = DataLoader(TensorDataset(torch.ones(4, 1)))
    resume = options.pop("resume", {})
    options = {"max_epochs": len(model.values), "logger": False, "num_sanity_val_steps": 1, **QUIET, **options}
    trainer = lightning.Trainer(callbacks=[saver], **options)
    trainer.fit(model, data, data, **resume)
    return trainer


@pytest.mark.parametrize("number", [1, 2, -1])
@pytest.mark.parametrize("ties", ["latest", "earliest"])
def test_the_values_of_each_kept_file_are_those_of_its_validation(ties, number, tmp_path):
    model = Losses(TIED[:8])
    saver = ModelCheckpoint(tmp_path, "{epoch}", monitor="value", mode="max", save_top_k=number, ties=ties)
    run_losses(model, saver)
    assert saver.kept == model.seen[epoch_of(saver.best_model_path)]
    assert set(saver.kept) == {"value", "double", "epoch", "step"}  # nothing of training
    for path in saver.best_k_models:
        expected = model.seen[epoch_of(path)]
        assert saver.kept_of(path) == pytest.approx(expected, nan_ok=True)
        assert saver.kept_of(Path("moved") / Path(path).name) == pytest.approx(expected, nan_ok=True)
    assert len(saver.state_dict()["kept"]) == len(saver.best_k_models)  # those of deleted files have left


def test_values_of_files_in_folders_of_their_own_are_told_apart(tmp_path):
    model = Losses([1, 3, 2])
    saver = ModelCheckpoint(tmp_path, "{epoch}/best", monitor="value", mode="max", save_top_k=-1)
    run_losses(model, saver)
    assert [saver.kept_of(f"elsewhere/epoch={at}/best.ckpt")["value"] for at in range(3)] == [1, 3, 2]
    with pytest.raises(ValueError, match="holds no values of"):
        saver.kept_of("best.ckpt")


def test_a_run_that_is_resumed_from_the_last_file_has_the_values_and_a_later_one_replaces_them(tmp_path):
    model = Losses([1, 3, 2])
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max", save_last=True)
    run_losses(model, saver)
    for more, best in ([0, 1], 3), ([0, 5], 5):
        later = Losses([*model.values, *more])
        last = torch.load(tmp_path / "last.ckpt", weights_only=True)
        later.seen = [each for each in model.seen if each["step"] <= last["global_step"]]
        resumed = ModelCheckpoint(tmp_path, monitor="value", mode="max", save_last=True)
        run_losses(later, resumed, resume=loading(lightning, tmp_path / "last.ckpt", True))
        assert resumed.kept == next(each for each in later.seen if each["value"] == best)
        model = later


def test_an_interrupted_fit_keeps_the_values_of_its_best_validation(tmp_path):
    class Interrupted(Losses):
        def training_step(self, batch, batch_idx):
            if self.current_epoch == 2 and batch_idx == 1:
                raise RuntimeError("power cut")
            return super().training_step(batch, batch_idx)

    model = Interrupted([1, 3, 2, 5])
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max", save_on_exception=True)
    with pytest.raises(RuntimeError, match="power cut"):
        run_losses(model, saver)
    assert saver.kept == model.seen[1]


def test_validations_within_an_epoch_are_told_apart(tmp_path):
    model = Losses([1, 3, 2, 0])
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    run_losses(model, saver, max_epochs=2, val_check_interval=0.5)
    assert saver.kept == model.seen[1] == {"value": 3, "double": 6, "epoch": 0, "step": 4}


def test_weights_that_were_not_validated_have_no_values(tmp_path):
    model = Losses([1, 3])
    saver = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=1)  # steps 3 and 6; validations after 4 and 8
    with pytest.raises(ValueError, match="no checkpoint is kept yet"):
        _ = saver.kept
    run_losses(model, saver)
    with pytest.raises(ValueError, match=r"saved without a validation.*trainer.validate\(ckpt_path"):
        _ = saver.kept


def test_validate_and_a_sanity_check_change_no_value(tmp_path):
    model = Losses([1, 3, 2])
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max")
    trainer = run_losses(model, saver)
    before = saver.kept
    model.values = [9]
    trainer.validate(model, DataLoader(TensorDataset(torch.ones(4, 1))), verbose=False)
    assert saver.kept == before


def test_files_of_weights_only_hold_no_values_but_the_callback_does(tmp_path):
    model = Losses([1, 3, 2])
    saver = ModelCheckpoint(tmp_path, monitor="value", mode="max", save_weights_only=True)
    run_losses(model, saver)
    assert saver.kept == model.seen[1]
    assert "callbacks" not in torch.load(saver.best_model_path, weights_only=True)


def test_a_run_that_began_with_lightnings_own_has_no_values_of_its_files(tmp_path):
    model = Losses([1, 3, 2])
    run_losses(model, LightningsOwn(tmp_path, monitor="value", mode="max", save_last=True))
    resumed = ModelCheckpoint(tmp_path, monitor="value", mode="max", save_last=True)
    later = Losses([1, 3, 2, 0])
    later.seen = model.seen[:2]  # last.ckpt was written with the best one
    run_losses(later, resumed, resume=loading(lightning, tmp_path / "last.ckpt", True))
    with pytest.raises(ValueError, match="began with another checkpoint callback"):
        _ = resumed.kept


def test_values_are_read_from_the_file_where_another_process_has_trained(tmp_path):
    """As after ``ddp_spawn``, ``ddp_fork`` and ``ddp_notebook``: Lightning hands on the path of the best file alone."""
    trained, here = (ModelCheckpoint(tmp_path, "{epoch}", monitor="value", mode="max", save_top_k=2) for _ in range(2))
    run([1, 3, 2], trained)
    with pytest.raises(ValueError, match="no checkpoint is kept yet"):
        _ = here.kept
    here.best_model_path = trained.best_model_path
    assert here.kept == trained.kept == {"value": 3, "epoch": 1, "step": 4}
    assert here.kept_of(tmp_path / "epoch=2.ckpt") == {"value": 2, "epoch": 2, "step": 6}
    with pytest.raises(ValueError, match="holds no values of"):
        here.kept_of(tmp_path / "other.ckpt")
