"""`monitor_guard.py` and `metrics/flat_monitors.py`: one hundred right trainings, none of which gets a false alarm.

Their tables are those of scikit-learn. A warning that a value could not choose must be true of the predictions that the
module itself has counted; no other warning may come.
"""

import random
import re
from functools import cache

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks import ModelCheckpoint as LightningCheckpoint
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, listening

import imbtorch
from imbtorch.lightning import ModelCheckpoint

pytestmark = [pytest.mark.slow, *(pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY)]

KINDS = ("fresh", "fine-tuned", "resumed", "perfect", "falling rate")
SAID_BY_LIGHTNING = (
    r"Checkpoint directory|The `srun`|You're resuming|Found \d+ module|`isinstance|The number of training"
)


@cache
def table(name, rare):
    """Return features and targets of two classes for training and validation; every ``rare``-th positive is kept."""
    features, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    target = (target == {"breast_cancer": 0, "wine": 2, "digits": 8}[name]).astype(int)
    kept = [
        at
        for at, (label, place) in enumerate(zip(target, target.cumsum(), strict=True))
        if not label or place % rare == 0
    ]
    features, target = StandardScaler().fit_transform(features)[kept], target[kept]
    return train_test_split(features, target, test_size=0.4, stratify=target, random_state=0)


class Learner(lightning.LightningModule):
    """Small network with a report, a single metric or a sweep beside it, which notes what each validation predicts."""

    def __init__(self, features, plan):
        super().__init__()
        self.net, self.plan, self.rate = torch.nn.Linear(features, 1), plan, plan["rate"]
        prefix = {"prefix": "val_", "logits": True}
        self.val = imbtorch.ImbalanceReport("binary", **prefix) if plan["report"] else None
        self.single = None if plan["report"] else imbtorch.BalancedAccuracy("binary", logits=True)
        self.sweep = imbtorch.ThresholdSweep("balanced_accuracy", logits=True, prefix="val_sweep_")
        self.epochs, self.seen = [], []

    def logits(self, batch):
        return self.net(batch[0]).squeeze(1)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.binary_cross_entropy_with_logits(self.logits(batch), batch[1].float())

    def validation_step(self, batch, batch_idx):
        logits = self.logits(batch)
        self.seen += (logits > 0).tolist()
        for metric in (self.val or self.single, self.sweep):
            metric.update(logits, batch[1])

    def on_validation_epoch_end(self):
        self.epochs, self.seen = [*self.epochs, len(set(self.seen)) == 1], []
        self.log_dict(self.sweep)
        if self.plan["report"]:
            self.log_dict(self.val)
        else:
            self.log("val_balanced_accuracy", self.single)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.rate)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.3 if self.plan["falls"] else 1.0)]


@pytest.mark.parametrize("seed", range(100), ids=str)
def test_a_right_training_gets_no_false_alarm(seed, tmp_path):
    draw, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    plan = {"report": draw.random() < 0.5, "falls": kind == "falling rate", "rate": draw.choice([3e-3, 0.02, 0.1])}
    parts = table(draw.choice(["breast_cancer", "wine", "digits"]), draw.choice([1, 3]))
    features, held, target, truth = (torch.as_tensor(part) for part in parts)
    batch = draw.choice([1, 8, 16, 31, 32, 64]) if len(truth) < 300 else draw.choice([16, 31, 64])
    torch.manual_seed(seed)
    module = Learner(features.shape[1], plan)
    if kind != "fresh":  # what an earlier run, or a pretrained network, brought
        fit_at_once(module.net, features, target, 300 if kind == "perfect" else 30)
        module.rate = 1e-5 if kind in ("resumed", "perfect") else plan["rate"]
    monitor = draw.choice(["val_balanced_accuracy", "val_sweep_value"])
    kept = draw.choice([LightningCheckpoint, ModelCheckpoint])(
        tmp_path, "{epoch}", monitor=monitor, mode="max", save_last=True
    )
    stop = [EarlyStopping(monitor, mode="max", patience=3)] if draw.random() < 0.3 else []
    loaders = (
        DataLoader(TensorDataset(features.float(), target), 32, shuffle=True),
        DataLoader(TensorDataset(held.float(), truth), batch),
    )
    with listening() as texts:
        for epochs in (4, 7) if kind == "resumed" else (4,):
            options = {**QUIET, "logger": False, "num_sanity_val_steps": 0, "default_root_dir": tmp_path}
            trainer = lightning.Trainer(max_epochs=epochs, callbacks=[kept, *stop], **options)
            trainer.fit(module, *loaders, ckpt_path=kept.last_model_path or None)
    said = [text for text in texts if not re.match(SAID_BY_LIGHTNING, text)]
    choosing = [text for text in said if "could not choose" in text]
    assert said == choosing, said
    best = module.epochs[int(re.search(r"epoch=(\d+)", kept.best_model_path)[1])]
    assert not choosing or (monitor != "val_sweep_value" and (best or (stop and any(module.epochs)))), choosing


def fit_at_once(net, features, target, steps):
    """Train with all samples in each step."""
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for _ in range(steps):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(features.float()).squeeze(1), target.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
