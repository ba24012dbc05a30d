"""Train a classifier on long-tailed, noisy digits and keep the checkpoint with the best imbalance accuracy (IAM).

The data are scikit-learn's bundled 8 x 8 digits. Training and validation keep one image of 7, 8 and 9 for every 20 of
another digit; the test set is balanced. For 15 epochs the loss takes all images alike, afterwards it weighs the classes
by their rarity, so that the rare digits are learnt late, when the accuracy no longer rises. One checkpoint is kept by
``val_iam``, one by ``val_acc``, and both are read on the test set.

Read the result with care. Gaussian noise (sigma 1, as large as the contrast of the images) was added, and recipe and
seed were chosen to show the effect; the gain of the default seed, 0, is the median of the seeds 0 to 7. Over these
eight the two picks differ in 7, and the mean recall of the rare digits on the test set is 0.142 for the pick of val_iam
and 0.013 for that of val_acc (one seed is slightly worse by val_iam). It is 0.128 for the pick of val_bal_acc; eight
seeds do not decide between the two.

With ``--devices 2`` the loss is weighed within each process's half batch: over the same seeds the picks differ in 7,
with mean recalls of 0.089 and 0.027. Validation counts each image once, whatever the number of processes.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import lightning
import matplotlib.pyplot as plt
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

import imbtorch
from imbtorch.lightning import SelectionSummary
from imbtorch.plots import plot_confusion_matrix

RARE = (7, 8, 9)
WEIGHTED_FROM = 15  # the first epoch whose loss weighs the classes
MONITORS = ("val_iam", "val_acc")

ABOUT = """
Noise was added to the images, and recipe and seed were chosen to show the effect. With the defaults and the seeds 0 to
7 the two picks differ in 7 of 8, and the mean recall of the rare digits is 0.142 for the pick of val_iam, 0.013 for
that of val_acc. It is 0.128 for the pick of val_bal_acc; eight seeds do not decide between IAM and balanced accuracy.
"""


def digits(imbalance: float, seed: int) -> tuple[TensorDataset, ...]:
    """Training, validation and test set with 60, 60 and 50 images of a digit; rare ones are fewer in the first two."""
    generator = torch.Generator().manual_seed(seed)
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = ((images - images.mean()) / images.std()).float()
    images = images + torch.randn(images.shape, generator=generator)
    parts: list[list[Tensor]] = [[], [], []]
    for digit in range(10):
        members = (labels == digit).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        kept = max(1, round(60 / imbalance)) if digit in RARE else 60
        for part, chosen in zip(parts, (members[:60][:kept], members[60:120][:kept], members[120:170]), strict=True):
            part.append(chosen)
    return tuple(TensorDataset(images[index], labels[index]) for index in map(torch.cat, parts))


class DigitClassifier(lightning.LightningModule):
    def __init__(self, class_weights: Tensor) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.register_buffer("class_weights", class_weights)
        shown = {"iam": "iam", "acc": "accuracy", "bal_acc": "balanced_accuracy"}
        self.val = imbtorch.ImbalanceReport(
            "multiclass", num_classes=10, measures=shown, per_class=("recall",), prefix="val_"
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        weights = self.class_weights if self.current_epoch >= WEIGHTED_FROM else None
        return nn.functional.cross_entropy(self(images), labels, weight=weights)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        images, labels = batch
        self.val.update(self(images), labels)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.val)  # the report, not its values: computed once, over all processes, and reset

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3, weight_decay=1e-2)


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", ".*does not have many workers")  # the images are in memory already
    warnings.filterwarnings("ignore", ".*LeafSpec")  # Lightning 2.6 and torch 2.13 between themselves
    lightning.seed_everything(args.seed)
    train, val, test = digits(args.imbalance, args.seed)
    class_counts = train.tensors[1].bincount(minlength=10)
    model = DigitClassifier(class_weights=len(train) / (10 * class_counts))
    logger = CSVLogger(args.out, name=None)
    checkpoints = [ModelCheckpoint(monitor=name, mode="max", filename=name + "-{epoch:02d}") for name in MONITORS]
    summary = SelectionSummary(measures=("iam", "acc", "bal_acc", "mcc"))  # printed when fit ends
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        max_epochs=args.epochs,
        callbacks=[*checkpoints, summary],
        logger=logger,
        log_every_n_steps=1,  # an epoch has fewer steps than the default, 50
        enable_model_summary=False,
    )
    batch_size = max(1, 32 // args.devices)
    exact = imbtorch.ExactBatchSampler(
        SequentialSampler(val), batch_size=256
    )  # each image once, on any number of devices
    trainer.fit(model, DataLoader(train, batch_size, shuffle=True), DataLoader(val, batch_sampler=exact))
    if not trainer.is_global_zero:
        return

    tested = [on_test_set(model, checkpoint.best_model_path, test) for checkpoint in trainer.checkpoint_callbacks]
    print(
        f"\n{len(train)} images for training and {len(val)} for validation, long-tailed; {len(test)} to test, balanced"
    )
    print(table(tested), ABOUT, sep="\n")
    picture = args.out / "train_digits.png"
    draw(Path(logger.log_dir) / "metrics.csv", tested, picture)
    print(f"Pictures: {picture}, {Path(logger.log_dir) / 'figures' / 'val_selection.png'}")
    print(f"Checkpoints and the metrics of each epoch: {logger.log_dir}")


def on_test_set(model: DigitClassifier, path: str, test: TensorDataset) -> tuple[int, Tensor]:
    """Epoch and confusion matrix of a checkpoint; plain torch, since rank zero alone comes here."""
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["state_dict"])
    images, labels = test.tensors
    with torch.inference_mode():
        scores = model.eval()(images)
    return saved["epoch"], imbtorch.confusion_matrix(scores, labels, "multiclass", num_classes=10)


def table(tested: list[tuple[int, Tensor]]) -> str:
    rows = [["kept by", "epoch", "accuracy", "balanced accuracy", "IAM", *(f"recall of {digit}" for digit in RARE)]]
    for name, (epoch, counts) in zip(MONITORS, tested, strict=True):
        values = [f(counts) for f in (imbtorch.accuracy, imbtorch.balanced_accuracy, imbtorch.imbalance_accuracy)]
        values += imbtorch.recall(counts, average="none")[list(RARE)]
        rows.append([name, str(epoch), *(f"{value:.3f}" for value in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def draw(metrics: Path, tested: list[tuple[int, Tensor]], picture: Path) -> None:
    """Validation curves with the epochs that were kept, and the confusion matrices of these on the test set."""
    with metrics.open(newline="", encoding="utf-8") as file:
        history = [row for row in csv.DictReader(file) if row["val_iam"]]
    epochs, kept = [int(row["epoch"]) for row in history], dict(zip(MONITORS, tested, strict=True))
    figure, axes = plt.subplot_mosaic(
        [["curves", "curves"], [*MONITORS]], figsize=(11, 10), height_ratios=(0.65, 1), layout="constrained"
    )
    curves = axes["curves"]
    looks = {"val_iam": ("#0072B2", "--", "D"), "val_acc": ("#D55E00", "-", "o"), "val_bal_acc": ("#444444", ":", "")}
    for name, (color, line, marker) in looks.items():
        values = [float(row[name]) for row in history]
        curves.plot(epochs, values, line, color=color, label=name)
        if name in kept:
            epoch, counts = kept[name]
            label = f"kept by {name}: epoch {epoch}"
            curves.axvline(epoch, color=color, linestyle=line, linewidth=0.8)
            curves.plot(epoch, values[epochs.index(epoch)], marker, color=color, markersize=9, label=label)
            plot_confusion_matrix(counts, axes[name])
            recall = imbtorch.recall(counts, average="none")[list(RARE)].mean()
            axes[name].set_title(f"Test, {label}\nmean recall of the rare digits (bold): {recall:.3f}")
            for digit in RARE:
                axes[name].get_xticklabels()[digit].set_fontweight("bold")
                axes[name].get_yticklabels()[digit].set_fontweight("bold")
    if epochs[-1] >= WEIGHTED_FROM:
        curves.axvspan(WEIGHTED_FROM - 0.5, epochs[-1] + 0.5, color="0.92", zorder=0, label="loss weighs the classes")
    curves.set(title="Validation (long-tailed)", xlabel="Epoch", ylabel="Value", xlim=(-0.5, epochs[-1] + 0.5))
    curves.xaxis.get_major_locator().set_params(integer=True)
    curves.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False)
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--imbalance", type=float, default=20.0, help="images of a common digit for one of a rare one")
    parser.add_argument("--devices", type=int, default=1, help="CPU processes")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture, checkpoints and metrics")
    return parser.parse_args()


if __name__ == "__main__":
    main()
