"""Monitor, choose and keep by one measure in a LightningModule, and test the kept model with its threshold.

    pip install ".[lightning]" scikit-learn
    python examples/lightning_module.py

The data are scikit-learn's 1,797 digits; the rare class are the eights, a tenth of the images.
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

import imbtorch
from imbtorch.lightning import ModelCheckpoint


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 1), torch.nn.Flatten(0))
        self.val = imbtorch.ImbalanceReport("binary", logits=True, prefix="val_")
        self.sweep = imbtorch.ThresholdSweep("balanced_accuracy", logits=True, prefix="val_sweep_")
        self.test = imbtorch.ImbalanceReport("binary", prefix="test_")

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.binary_cross_entropy_with_logits(self.net(batch[0]), batch[1].float())

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        self.val.update(logits, batch[1])
        self.sweep.update(logits, batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)  # val_balanced_accuracy, val_recall, ...
        self.log_dict(self.sweep)  # val_sweep_threshold, val_sweep_value; sets self.sweep.rule, which checkpoints hold

    def test_step(self, batch, batch_idx):
        self.test.update(self.sweep.rule(self.net(batch[0])), batch[1])

    def on_test_epoch_end(self):
        self.log_dict(self.test)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


torch.manual_seed(0)
pixels, digits = map(torch.from_numpy, load_digits(return_X_y=True))
train, val, test = random_split(TensorDataset(pixels.float() / 16, (digits == 8).long()), [0.4, 0.3, 0.3])
quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

checkpoint = ModelCheckpoint(monitor="val_balanced_accuracy", mode="max")
trainer = lightning.Trainer(max_epochs=20, callbacks=[checkpoint], **quiet)
trainer.fit(Classifier(), DataLoader(train, batch_size=64, shuffle=True), DataLoader(val, batch_size=100))
print("kept:", {name: checkpoint.kept[name] for name in ("epoch", "val_balanced_accuracy", "val_recall", "val_f1")})
(tested,) = trainer.test(Classifier(), DataLoader(test, batch_size=100), ckpt_path="best", verbose=False)
print("test:", {name: tested[name] for name in ("test_balanced_accuracy", "test_recall", "test_f1")})
