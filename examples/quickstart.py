"""Train a small classifier with Lightning and keep the epoch with the highest validation IAM.

    pip install ".[lightning]"
    python examples/quickstart.py

Three classes of 400, 160 and 40 random points; it trains for ten epochs, in seconds. `SelectionSummary` prints which
epoch each measure selects. The seed was chosen so that they differ.
"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

import imbtorch
from imbtorch.lightning import ModelCheckpoint, SelectionSummary


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(5, 3)
        self.val = imbtorch.ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], prefix="val_")

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.val.update(self.net(batch[0]), batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)  # val_iam, val_balanced_accuracy, ..., val_recall/cat, ...

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


torch.manual_seed(1)
labels = torch.arange(3).repeat_interleave(torch.tensor([400, 160, 40]))  # many cats, few emus
train, val = random_split(TensorDataset(torch.randn(600, 5) + 2 * torch.eye(3, 5)[labels], labels), [0.5, 0.5])

quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

checkpoint = ModelCheckpoint(monitor="val_iam", mode="max")
summary = SelectionSummary(measures=["iam", "accuracy", "gmean"])
trainer = lightning.Trainer(max_epochs=10, callbacks=[checkpoint, summary], **quiet)
trainer.fit(Classifier(), DataLoader(train, batch_size=64, shuffle=True), DataLoader(val, batch_size=100))
