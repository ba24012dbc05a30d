"""Rules in checkpoints (`checkpoint.py`): another process tests with the rule of the epoch that was kept."""

import contextlib
import os
import re

import lightning
import pytest
import torch
from adjustments import decided, long_tail
from processes import launch
from sklearn import metrics as sk
from sweeps import drawn
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, exact, join_lightning, listening

import imbtorch
from imbtorch import LogitAdjustmentSweep, ThresholdSweep
from imbtorch.lightning import ModelCheckpoint

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]

CONFIDENCE, NOISE = (1.0, 2.0, 0.5), (1.0, 0.0, 1.0)  # of the scores after each epoch; the second one is the best


class Trained(lightning.LightningModule):
    """Network whose scores are those of the data, with the confidence and the noise of the epoch."""

    def __init__(self, sweep, metric):
        super().__init__()
        self.sweep, self.metric = sweep, metric
        self.net = torch.nn.Linear(1, 1)
        self.register_buffer("confidence", torch.tensor(0.0))
        self.register_buffer("noise", torch.tensor(0.0))

    def forward(self, batch):
        scores, noise, _ = batch
        return self.confidence * (scores + self.noise * noise)

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1, 1)).sum()

    def on_validation_epoch_start(self):
        self.confidence.fill_(CONFIDENCE[self.current_epoch])
        self.noise.fill_(NOISE[self.current_epoch])

    def validation_step(self, batch, batch_idx):
        self.sweep.update(self(batch), batch[-1])

    def on_validation_epoch_end(self):
        self.log_dict(self.sweep)

    def test_step(self, batch, batch_idx):
        self.metric.update(self.sweep.rule(self(batch)), batch[-1])

    def on_test_epoch_end(self):
        self.log("test", self.metric)

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), 0.1)


def of_classes():
    """Return the module of several classes, and its scores, noise and targets."""
    logits, target, prior = long_tail(1001)
    noise = 3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    sweep = LogitAdjustmentSweep("balanced_accuracy", prior, logits=True, prefix="val_")
    metric = imbtorch.BalancedAccuracy("multiclass", 5)
    return Trained(sweep, metric), (logits.float(), noise, target)


UNCHOSEN = {"threshold": 0.5, "log_odds": 0.0, "chosen": 0.0, "class_axis": 0.0}


def of_a_threshold():
    """Return the module of two classes, and its scores, noise and targets."""
    logits, target = drawn(1001, 0.2)
    noise = 3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    sweep = ThresholdSweep("f1", logits=True, prefix="val_")
    return Trained(sweep, imbtorch.FScore("binary")), (logits.float(), noise, target)


def fitted(rank, world, build, folder):
    """Fit, and return the path of the kept checkpoint, the rules of all epochs, and the tested value."""
    if world > 1:
        join_lightning(world)
    module, data = build()
    options = {**QUIET, "devices": world, "strategy": "ddp" if world > 1 else "auto", "use_distributed_sampler": False}
    kept = ModelCheckpoint(folder, "{epoch}", monitor="val_value", mode="max", save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[kept], logger=False, num_sanity_val_steps=1, default_root_dir=folder, **options
    )
    loader = exact(TensorDataset(*data), 100)
    trainer.fit(module, loader, loader)
    last = numbers(module.sweep.rule.state_dict())
    value = trainer.test(module, loader, ckpt_path="best", verbose=False)[0]["test"]
    paths = (os.path.join(folder, f"epoch={epoch}.ckpt") for epoch in range(3))
    rules = [numbers(torch.load(path, weights_only=True)["state_dict"], "sweep.rule.") for path in paths]
    return kept.best_model_path, rules, last, value


def numbers(state, prefix=""):
    """Return the entries of a state dict as numbers, which a process can send."""
    return {name[len(prefix) :]: each.tolist() for name, each in state.items() if name.startswith(prefix)}


def measured(rank, world, build, path):
    """Test a checkpoint with a module that was never validated."""
    module, data = build()
    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, **QUIET)
    value = trainer.test(module, DataLoader(TensorDataset(*data), 100), ckpt_path=path, verbose=False)[0]["test"]
    return value, numbers(module.sweep.rule.state_dict())


@pytest.mark.parametrize("world", [1, 2])
def test_each_checkpoint_holds_its_own_tau(world, tmp_path):
    path, rules, last, value = launch(world, fitted, of_classes, str(tmp_path))[0]
    taus = [rule["tau"] for rule in rules]
    assert path.endswith("epoch=1.ckpt")
    assert taus[1] == pytest.approx(2, abs=0.3)
    assert len(set(taus)) == 3
    assert last["tau"] == taus[2]
    ((again, rule),) = launch(1, measured, of_classes, path)
    assert rule["tau"] == taus[1]
    _, (logits, _, target) = of_classes()
    prior = long_tail(1)[2]
    assert rule["prior"] == pytest.approx((prior / prior.sum()).tolist())
    chosen = decided(2 * logits, prior, [taus[1]])[0]
    assert again == value == pytest.approx(sk.balanced_accuracy_score(target, chosen), abs=1e-6)
    assert again > sk.balanced_accuracy_score(target, decided(2 * logits, prior, [taus[2]])[0])


def test_each_checkpoint_holds_its_own_threshold(tmp_path):
    ((path, rules, last, value),) = launch(1, fitted, of_a_threshold, str(tmp_path))
    thresholds = [rule["threshold"] for rule in rules]
    assert path.endswith("epoch=1.ckpt")
    assert len(set(thresholds)) == 3
    assert last["threshold"] == thresholds[2]
    ((again, rule),) = launch(1, measured, of_a_threshold, path)
    assert rule == rules[1]
    _, (logits, _, target) = of_a_threshold()
    assert again == value == pytest.approx(sk.f1_score(target, (2 * logits).sigmoid() > thresholds[1]), abs=1e-6)


# --- stages that choose nothing ---------------------------------------------------------------------------------------


class Swept(Trained):
    """Module that counts and logs the sweep in each stage, and fails where it is told to."""

    fails_in = ""

    def test_step(self, batch, batch_idx):
        self.sweep.update(self(batch), 1 - batch[-1])
        if self.fails_in == "test":
            raise OSError("no data")

    def on_test_epoch_end(self):
        self.log_dict(self.sweep)

    def predict_step(self, batch, batch_idx):
        self.sweep.update(self(batch), 1 - batch[-1])
        self.sweep.compute()
        return self.sweep.rule.predict(self(batch))

    def on_validation_epoch_end(self):
        super().on_validation_epoch_end()
        self.rules = [*getattr(self, "rules", []), numbers(self.sweep.rule.state_dict())]


def staged():
    """Return a module, a trainer that has fitted it for two epochs, and its loader."""
    trained, data = of_a_threshold()
    module = Swept(trained.sweep, trained.metric)
    options = {"logger": False, "enable_checkpointing": False, "num_sanity_val_steps": 1, **QUIET}
    trainer = lightning.Trainer(max_epochs=2, **options)
    loader = DataLoader(TensorDataset(*data), 100)
    trainer.fit(module, loader, loader)
    return module, trainer, loader


def test_the_sanity_check_leaves_the_rule_alone():
    module, _, _ = staged()
    # a hook runs before the value is computed, so that it shows the rule of the validation before
    assert module.rules[:2] == [UNCHOSEN, UNCHOSEN]
    assert module.rules[2] != UNCHOSEN


def test_a_test_and_a_prediction_choose_nothing_and_a_validation_chooses_anew():
    module, trainer, loader = staged()
    rule = numbers(module.sweep.rule.state_dict())
    with pytest.warns(UserWarning, match="ThresholdSweep: its rule stays as it was chosen before"):
        logged = trainer.test(module, loader, verbose=False)[0]
    assert logged["val_threshold"] != rule["threshold"]
    with pytest.warns(UserWarning, match="its rule stays"):
        trainer.predict(module, loader)
    assert numbers(module.sweep.rule.state_dict()) == rule
    module.sweep.reset()
    few = torch.utils.data.Subset(loader.dataset, range(200))
    logged = trainer.validate(module, DataLoader(few, 100), verbose=False)[0]
    assert (
        numbers(module.sweep.rule.state_dict())["threshold"]
        == pytest.approx(logged["val_threshold"])
        != rule["threshold"]
    )
    module.sweep.reset()
    with pytest.warns(UserWarning, match="has counted no sample"):
        module.sweep.compute()
    assert module.sweep.rule.threshold.item() == pytest.approx(logged["val_threshold"])


def test_sweeps_decide_again_after_a_test_that_failed():
    module, trainer, loader = staged()
    module.fails_in = "test"
    with pytest.raises(OSError, match="no data"):
        trainer.test(module, loader, verbose=False)
    assert module.sweep.decides


def test_a_sweep_of_test_data_alone_says_nothing():
    module, data = of_a_threshold()
    module = Swept(module.sweep, module.metric)
    module.confidence.fill_(1)
    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, **QUIET)
    trainer.test(module, DataLoader(TensorDataset(*data), 100), verbose=False)
    assert numbers(module.sweep.rule.state_dict()) == UNCHOSEN


# --- rules that were never chosen -------------------------------------------------------------------------------------

AT_START = "Threshold: the rule of the sweep predicts at its start, threshold 0.5"


class Deciding(Trained):
    """Module that decides by its rule in each step, and logs its sweep or does not."""

    def __init__(self, logs=True):
        trained, _ = of_a_threshold()
        super().__init__(trained.sweep, trained.metric)
        self.logs, self.confidence[...] = logs, 1

    def training_step(self, batch, batch_idx):
        self.sweep.rule(batch[0])
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.sweep.rule(self(batch))

    def on_validation_epoch_end(self):
        if self.logs:
            self.log_dict(self.sweep)
        else:
            self.sweep.reset()


def deciding(folder, epochs=2, sanity=2, callbacks=()):
    """Return a trainer and its loader."""
    kept = lightning.pytorch.callbacks.ModelCheckpoint(folder, "{epoch}")
    options = {"logger": False, "num_sanity_val_steps": sanity, "default_root_dir": folder, **QUIET}
    trainer = lightning.Trainer(max_epochs=epochs, callbacks=[kept, *callbacks], **options)
    return trainer, DataLoader(TensorDataset(*of_a_threshold()[1]), 100)


@pytest.mark.parametrize("sanity", [0, 2, -1])
def test_a_rule_may_be_used_until_the_first_validation_of_a_fit_has_ended(sanity, tmp_path):
    trainer, loader = deciding(tmp_path, sanity=sanity)
    module = Deciding()
    trainer.fit(module, loader, loader)
    assert module.sweep.rule.chosen
    trainer.test(module, loader, ckpt_path="best", verbose=False)


def test_a_rule_of_a_sweep_that_is_not_logged_tells_from_the_second_validation_on(tmp_path):
    trainer, loader = deciding(tmp_path, epochs=1)
    module = Deciding(logs=False)
    trainer.fit(module, loader, loader)  # its first validation may choose
    trainer, loader = deciding(tmp_path / "more", epochs=2)
    with pytest.warns(UserWarning, match=AT_START):
        trainer.fit(Deciding(logs=False), loader, loader)
    other = Deciding(logs=False)
    with pytest.warns(UserWarning, match=AT_START):  # the state in the file says that nothing was chosen
        trainer.test(other, loader, ckpt_path="best", verbose=False)


def test_a_test_after_an_interrupted_first_validation_tells(tmp_path):
    trainer, loader = deciding(tmp_path, sanity=0)
    module = Deciding()
    module.on_validation_epoch_end = lambda: (_ for _ in ()).throw(OSError("no data"))
    with pytest.raises(OSError, match="no data"):
        trainer.fit(module, loader, loader)
    with pytest.warns(UserWarning, match=AT_START):
        deciding(tmp_path)[0].test(module, loader, verbose=False)


@pytest.mark.skipif(not hasattr(lightning.pytorch.callbacks, "EMAWeightAveraging"), reason="Lightning before 2.6")
@pytest.mark.parametrize("logs", [False, True])
def test_averaged_weights_get_whether_the_rule_was_chosen(logs, tmp_path):
    averaging = lightning.pytorch.callbacks.EMAWeightAveraging(decay=0.5)
    trainer, loader = deciding(tmp_path, epochs=1, callbacks=[averaging])
    trainer.fit(Deciding(logs), loader, loader)
    assert averaging._average_model.module.sweep.rule.chosen == logs
    other, (path,) = Deciding(), tmp_path.glob("*.ckpt")
    other.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
    with contextlib.nullcontext() if logs else pytest.warns(UserWarning, match=AT_START):
        other.sweep.rule(torch.tensor([0.3, -1.0]))


# --- a sweep that is monitored, and a test without its rule ----------------------------------------------------------

HALF = (
    r"the checkpoint was kept by 'val_value', .* write self\.metric\.update\(self\.sweep\.rule\(scores\), target\) in"
)


class Half(Trained):
    """Module whose test counts scores at 0.5, or what ``decide`` makes of them."""

    decide = None

    def test_step(self, batch, batch_idx):
        scores = self(batch)
        self.metric.update(scores if self.decide is None else self.decide(scores), batch[-1])


def half_adopted(folder, decide=None, monitor="val_value", act="same process", build=of_a_threshold, others=()):
    """Keep epochs by a value and by others, test the best one; return what is said of the rule."""
    module, data = build()
    task = module.sweep.task
    options = {"num_classes": 5} if task == "multiclass" else {"logits": True}

    def made():
        found = Half(build()[0].sweep, imbtorch.BalancedAccuracy(task, **options))
        found.decide = decide and (lambda scores: decide(found, scores))
        return found

    kept = ModelCheckpoint(folder, "{epoch}", monitor=monitor, mode="max")
    settings = {"logger": False, "default_root_dir": folder, **QUIET}
    beside = [ModelCheckpoint(folder / other, "{epoch}", monitor=other, mode="max") for other in others]
    trainer = lightning.Trainer(max_epochs=2, callbacks=[*beside, kept], **settings)
    loader, module = DataLoader(TensorDataset(*data), 100), made()
    with listening() as texts:
        trainer.fit(module, loader, loader)
        if act == "another process":
            module, trainer = made(), lightning.Trainer(**settings)
        trainer.test(module, loader, ckpt_path=kept.best_model_path, verbose=False)
    return [text for text in texts if "was kept by" in text]


@pytest.mark.parametrize("act", ["same process", "another process"])
@pytest.mark.parametrize("build", [of_a_threshold, of_classes])
def test_a_test_without_the_rule_by_which_the_checkpoint_was_kept_is_told(build, act, tmp_path):
    (text,) = half_adopted(tmp_path, act=act, build=build)
    assert re.search(HALF, text)


def test_of_two_checkpoints_of_one_name_that_of_the_folder_is_tested(tmp_path):
    (text,) = half_adopted(tmp_path / "a", others=["val_threshold"])
    assert re.search(HALF, text)
    assert half_adopted(tmp_path / "b", monitor="val_threshold", others=["val_value"]) == []


@pytest.mark.parametrize(
    "decide",
    [
        lambda module, scores: module.sweep.rule(scores),
        lambda module, scores: (scores > 1).long(),
        lambda module, scores: torch.where(scores > 1, 1.0, 0.0),
        lambda module, scores: scores - module.sweep.rule.log_odds.float(),
    ],
    ids=["rule", "classes", "numbers 0 and 1", "log-odds"],
)
def test_a_test_that_decides_itself_is_not_told(decide, tmp_path):
    assert half_adopted(tmp_path, decide) == []
    assert half_adopted(tmp_path, decide, act="another process") == []
