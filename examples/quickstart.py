"""Train a small classifier with Lightning, keep the epoch with the highest validation IAM, and choose a decision rule.

    pip install ".[lightning]" scikit-learn
    python examples/quickstart.py

The data are scikit-learn's 1,797 digits with three labels: eight and nine, a tenth of the images each, and other. A
linear network trains for ten epochs, in seconds. Accuracy hides that it misses half of the rare digits. A logit
adjustment, chosen on the validation images, finds most of them; the test images, which chose nothing, show it, too.
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

import imbtorch
from imbtorch.lightning import ModelCheckpoint

CLASSES = ["other", "eight", "nine"]


class Classifier(lightning.LightningModule):
    def __init__(self, train_counts):
        super().__init__()
        self.net = torch.nn.Linear(64, 3)
        self.val = imbtorch.ImbalanceReport("multiclass", class_names=CLASSES, intervals=True, prefix="val_")
        self.sweep = imbtorch.LogitAdjustmentSweep("balanced_accuracy", train_counts, logits=True, prefix="val_")

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        self.val.update(logits, batch[1])
        self.sweep.update(logits, batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)  # val_iam, val_balanced_accuracy, ..., val_recall/eight, ...
        self.log_dict(self.sweep)  # val_tau, val_value; sets self.sweep.rule, which each checkpoint holds

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(0)
pixels, digits = map(torch.from_numpy, load_digits(return_X_y=True))
data = TensorDataset(pixels.float() / 16, (digits - 7).clamp(min=0))
train, val, test = random_split(data, [0.4, 0.3, 0.3])
quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

model = Classifier(torch.bincount(train[:][1]))
checkpoint = ModelCheckpoint(monitor="val_iam", mode="max")
trainer = lightning.Trainer(max_epochs=10, callbacks=[checkpoint], **quiet)
trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True), DataLoader(val, batch_size=100))

trainer.validate(model, DataLoader(val, batch_size=100), ckpt_path="best", verbose=False)
print(f"The kept epoch on {len(val)} validation images\n{model.val.result().table()}")
print(f"\nThe decision rule, chosen on the same images\n{model.sweep.table()}")
print(f"\nBoth rules on {len(test)} test images")
images, labels = test[:]
logits = model.net(images)
for name, scores in (("plain", logits), ("adjusted", model.sweep.rule(logits))):
    report = imbtorch.ImbalanceReport("multiclass", class_names=CLASSES)
    values = report(scores, labels)
    keys = "accuracy", "balanced_accuracy", "iam", "recall/eight", "recall/nine"
    print(f"{name:9}", *(f" {key} {values[key]:.3f}" for key in keys))
