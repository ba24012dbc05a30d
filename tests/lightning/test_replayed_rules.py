"""Rules in files of `checkpoint.py`, replayed: files of random trainers hold the rule that was logged before them."""

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
from processes import launch
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, join_lightning

from imbtorch import LogitAdjustmentSweep, ThresholdSweep

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not hasattr(lightning.pytorch.callbacks, "EMAWeightAveraging"), reason="Lightning before 2.6"),
]

BATCHES, SAMPLES = 4, 30  # of each part
SWEEPS = {
    "threshold": lambda: ThresholdSweep("f1", logits=True, prefix="val_"),
    "labels": lambda: ThresholdSweep("f1", task="multilabel", num_labels=2, prefix="val_"),
    "classes": lambda: LogitAdjustmentSweep("balanced_accuracy", [6, 3, 1], logits=True, prefix="val_"),
    "shares": lambda: LogitAdjustmentSweep("balanced_accuracy", [6, 3, 1], prefix="val_"),
}
PACKAGES = {"lightning": lightning, "pytorch_lightning": pytorch_lightning}
AVERAGING = ("plain", "ema, trainer", "ema, module", "ema and buffers, trainer", "ema and buffers, module")


def drawn(kind, generator):
    """Return scores and targets of a batch, whose best rule differs from that of others."""
    shift = torch.randn(1, generator=generator)
    if kind == "threshold":
        target = (torch.rand(SAMPLES, generator=generator) < 0.3).long()
        return torch.randn(SAMPLES, generator=generator) + target + shift, target
    if kind == "labels":
        target = (torch.rand(SAMPLES, 2, generator=generator) < 0.3).long()
        return (torch.randn(SAMPLES, 2, generator=generator) + target + shift).sigmoid(), target
    target = torch.multinomial(torch.tensor([6.0, 3.0, 1.0]), SAMPLES, True, generator=generator)
    logits = 2 * shift.exp() * (torch.randn(SAMPLES, 3, generator=generator) + torch.nn.functional.one_hot(target, 3))
    return (logits if kind == "classes" else logits.softmax(1)), target


@functools.cache
def module_of(package):
    class Module(package.LightningModule):
        """Network whose sweep counts other scores in each validation and test."""

        def __init__(self, plan):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
            self.sweep = SWEEPS[plan.kind]()
            self.plan, self.draws = plan, 1000 * plan.seed
            self.stepped = True  # since the last validation

        def training_step(self, batch, batch_idx):
            self.stepped = True
            return self.net(torch.randn(4, 1, dtype=self.net[0].weight.dtype)).sum()

        def validation_step(self, batch, batch_idx):
            self.draws += 1
            self.sweep.update(*drawn(self.plan.kind, torch.Generator().manual_seed(self.draws)))

        def log_rule(self):
            self.log_dict(self.sweep)
            if self.plan.kind == "labels":  # whose thresholds are logged by name only
                found = self.sweep.compute()
                self.log_dict({name: found[name] for name in found if name.startswith("val_threshold")})

        def on_validation_epoch_end(self):
            self.log_rule()
            self.stepped = self.trainer.sanity_checking

        test_step = validation_step

        def on_test_epoch_end(self):
            self.log_rule()

        def configure_callbacks(self):
            return [averaging(package, self.plan)] if self.plan.averaging.endswith("module") else []

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)

    return Module


def averaging(package, plan):
    """Return the callback that averages the weights."""
    return CALLBACKS[package].EMAWeightAveraging(use_buffers="buffers" in plan.averaging, decay=0.5)


def rule_of(state):
    """Return the numbers of a rule that change, of a state dict of the module."""
    names = sorted(name for name in state if name in ("sweep.rule.threshold", "sweep.rule.tau"))
    return [number for name in names for number in state[name].double().flatten().tolist()]


def logged_by(trainer):
    """Return the numbers of the rule that was logged last, in the order of the labels."""
    rows = trainer.callback_metrics
    return [float(rows[name]) for name in sorted(rows) if re.match("val_(tau|threshold)", name)]


def equal(some, others):
    return len(some) == len(others) and all(abs(a - b) <= 1e-6 * abs(a) for a, b in zip(some, others, strict=True))


def watched(trainer, found):
    """Compare each full file of a trainer, right after it was written, if no step followed the last validation."""
    save = trainer.save_checkpoint

    def save_checkpoint(path, weights_only=False, **options):
        save(path, weights_only, **options)
        if not trainer.lightning_module.stepped:
            saved = torch.load(path, weights_only=False)
            states = [saved[name] for name in ("state_dict", "current_model_state") if name in saved]
            wanted = logged_by(trainer)
            found.append((wanted, all(equal(rule_of(state), wanted) for state in states)))

    trainer.save_checkpoint = save_checkpoint
    return trainer


def planned(seed, strategy="auto"):
    """Draw a trainer."""
    generator = random.Random(seed)
    return types.SimpleNamespace(
        seed=seed,
        package=generator.choice(list(PACKAGES)) if strategy == "auto" else "lightning",
        averaging=AVERAGING[seed % len(AVERAGING)] if strategy == "auto" else "plain",
        kind=generator.choice(list(SWEEPS)),
        precision="bf16-mixed" if strategy == "fsdp" else generator.choice(["32-true", "bf16-mixed"]),
        sanity=generator.choice([0, 2]),
        interval=generator.choice([0.5, 1.0]),
        at_train_end=generator.choice([True, False]),
        resumes=generator.choice([True, False]),
        between=generator.choice([(), ("validate",), ("test",), ("test", "validate", "test")]),
        strategy=strategy,
    )


def trainer_of(plan, folder, found, **options):
    package, strategy = PACKAGES[plan.package], plan.strategy
    kept = CALLBACKS[package].ModelCheckpoint(
        folder, "{epoch}-{step}", save_top_k=-1, save_last=True, save_on_train_epoch_end=plan.at_train_end
    )
    callbacks = [kept] + [averaging(package, plan)] * plan.averaging.endswith("trainer")
    if strategy == "fsdp":
        strategy = fsdp_on_cpu()
    return watched(
        package.Trainer(
            **QUIET, devices=1, precision=plan.precision, strategy=strategy, callbacks=callbacks, logger=False,
            num_sanity_val_steps=plan.sanity, val_check_interval=plan.interval, default_root_dir=folder, **options
        ),
        found,
    )  # fmt: skip


def loader():
    return DataLoader(TensorDataset(torch.arange(BATCHES * SAMPLES)), SAMPLES)


def replayed(plan, folder):
    """Train as planned; return for each full file, and each evaluation between, the rule, and whether it is there."""
    found = []
    module = module_of(PACKAGES[plan.package])(plan)
    trainer = trainer_of(plan, folder, found, max_epochs=2, max_steps=6 if plan.resumes else -1)
    trainer.fit(module, loader(), loader())
    for stage in plan.between:
        before = rule_of(module.state_dict())
        getattr(trainer, stage)(module, loader(), verbose=False)
        after = rule_of(module.state_dict())
        found.append((before, equal(after, before if stage == "test" else logged_by(trainer))))
    if plan.resumes:
        path = Path(folder) / "resumed.ckpt"
        last = max(Path(folder).glob("last*.ckpt"), key=lambda each: each.stat().st_mtime)
        path.write_bytes(last.read_bytes())
        module = module_of(PACKAGES[plan.package])(plan)
        module.draws += 500
        trainer_of(plan, folder, found, max_epochs=3).fit(
            module, loader(), loader(), ckpt_path=path, weights_only=False
        )
    return found


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 80))])
def test_each_file_holds_the_rule_that_was_logged(seed, tmp_path):
    found = replayed(planned(seed), str(tmp_path))
    assert len({tuple(rule) for rule, _ in found}) > 1
    assert all(holds for _, holds in found), found


def test_without_the_guard_files_of_averaged_weights_hold_an_older_rule(tmp_path, monkeypatch):
    monkeypatch.setenv("IMBTORCH_MONITOR_GUARD", "0")
    plan = types.SimpleNamespace(**{**vars(planned(1)), "resumes": False, "between": ()})
    assert plan.averaging == "ema, trainer"
    found = replayed(plan, str(tmp_path))
    assert found
    assert not any(holds for _, holds in found)


# --- fully sharded ----------------------------------------------------------------------------------------------------


def fsdp_on_cpu():
    from lightning.pytorch.strategies import FSDPStrategy
    from torch.distributed.fsdp import FullyShardedDataParallel

    class OnCPU(FSDPStrategy):
        """Strategy that shards on the CPU, which Lightning refuses by name."""

        def _setup_model(self, model):
            return FullyShardedDataParallel(
                model,
                mixed_precision=self.mixed_precision_config,
                device_id=torch.device("cpu"),
                use_orig_params=True,
            )

    return OnCPU(process_group_backend="gloo")


def sharded(rank, world, seeds, folder):
    import warnings

    warnings.simplefilter("ignore")
    join_lightning(world)
    return [replayed(planned(seed, "fsdp"), f"{folder}/{seed}") for seed in seeds]


@pytest.mark.slow
def test_each_file_of_sharded_training_holds_the_rule_that_was_logged(tmp_path):
    (found,) = launch(1, sharded, range(100, 120), str(tmp_path), timeout=280)
    for files in found:
        assert len({tuple(rule) for rule, _ in files}) > 1
        assert all(holds for _, holds in files), files
