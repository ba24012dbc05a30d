"""Segmentation: mean IoU and the IoU of the worst class as monitors, void pixels left out, on generated scenes.

Each scene of 48 x 48 pixels has a background, two to four trees (discs), a house (a rectangle) and, in half of the
scenes, a sign of 3 x 3 pixels: one pixel of 500. Pixels on the rim of an object are void (255), as in street scenes
that people have labelled; they are neither learnt nor counted. A network of four convolutions learns for a few epochs,
with a loss in which a pixel of a sign weighs six times as much as another.

The validation logs val_iou, the mean over classes, val_iou_min, that of the worst class, and val_iou/<class>, all from
one state of 4 x 4 counts. One checkpoint is kept by each of the first two, and one by pixel accuracy. The signs are so
few that accuracy hardly knows them; the mean knows a quarter of them. The scenes are made up, so nothing here says how
large that effect is on yours.

At the end the time of an update is measured beside torchmetrics, on a batch of 8 x 4 x 256 x 256 logits; values of both
are compared.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import matplotlib.pyplot as plt
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from matplotlib.colors import ListedColormap
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassJaccardIndex

from imbtorch import ImbalanceReport, jaccard

CLASSES = ["background", "tree", "house", "sign"]
BRIGHTNESS = torch.tensor([[0.5, 0.5, 0.5], [0.3, 0.6, 0.3], [0.6, 0.4, 0.3], [0.75, 0.7, 0.2]])  # a colour for each
VOID = 255
SIZE = 48
NOISE = 0.2
MONITORS = ("val_iou", "val_iou_min", "val_accuracy")


def scene(generator: torch.Generator) -> Tensor:
    """Classes of the pixels of one scene, int64 ``[H, W]``."""

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    target = torch.zeros(SIZE, SIZE, dtype=torch.int64)

    def paint(inside: Tensor, rim: Tensor, label: int) -> None:
        target[rim] = VOID
        target[inside] = label

    for _ in range(number(2, 5)):
        distance = ((rows - number(0, SIZE)) ** 2 + (columns - number(0, SIZE)) ** 2).sqrt()
        radius = number(4, 9)
        paint(distance < radius, distance < radius + 1, 1)
    top, left, height, width = number(4, 30), number(4, 30), number(8, 16), number(8, 16)
    inside = (rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)
    rim = (rows >= top - 1) & (rows <= top + height) & (columns >= left - 1) & (columns <= left + width)
    paint(inside, rim, 2)
    if number(0, 2):
        middle = number(3, SIZE - 3), number(3, SIZE - 3)
        paint((rows - middle[0]).abs().maximum((columns - middle[1]).abs()) < 2, torch.zeros_like(inside), 3)
    return target


def scenes(count: int, seed: int) -> TensorDataset:
    """Noisy images ``[N, 3, H, W]`` and their classes ``[N, H, W]``."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.stack([scene(generator) for _ in range(count)])
    colours = BRIGHTNESS[target.where(target != VOID, 0)].movedim(-1, 1)
    return TensorDataset(colours + NOISE * torch.randn(colours.shape, generator=generator), target)


class Segmenter(lightning.LightningModule):
    """Four convolutions, and a report of their pixels."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
        for dilation in (1, 2):
            parts += [nn.Conv2d(16, 16, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        self.net = nn.Sequential(*parts, nn.Conv2d(16, len(CLASSES), 1))
        self.register_buffer("weights", torch.tensor([1.0, 1.0, 1.0, 6.0]))
        self.report = ImbalanceReport(
            "multiclass",
            class_names=CLASSES,
            measures={"accuracy": "accuracy", "iou": "iou", "iou_min": partial(jaccard, average="min")},
            per_class=("iou",),
            ignore_index=VOID,
            prefix="val_",
        )

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        images, target = batch
        return nn.functional.cross_entropy(self.net(images), target, self.weights, ignore_index=VOID)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        images, target = batch
        self.report.update(self.net(images), target)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.report)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Record(lightning.Callback):
    """Keeps what each validation has logged."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.epochs.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def trained(epochs: int, seed: int, out: Path) -> tuple[Segmenter, TensorDataset, list[dict[str, float]], list[str]]:
    """Model, validation scenes, values of each epoch, and the checkpoints of the monitors."""
    lightning.seed_everything(seed, verbose=False)
    train, validation = scenes(160, seed), scenes(64, seed + 1)
    record, model = Record(), Segmenter()
    kept = [ModelCheckpoint(out / "checkpoints", f"{name}-{{epoch}}", monitor=name, mode="max") for name in MONITORS]
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[record, *kept],
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    shuffled = torch.Generator().manual_seed(seed)
    trainer.fit(model, DataLoader(train, 16, shuffle=True, generator=shuffled), DataLoader(validation, 32))
    return model, validation, record.epochs, [each.best_model_path for each in kept]


def draw(model: Segmenter, validation: TensorDataset, epochs: list[dict[str, float]], path: Path) -> None:
    """A scene with a sign, what was labelled and predicted, and the IoU of the classes over the epochs."""
    images, target = validation.tensors
    chosen = int((target == CLASSES.index("sign")).flatten(1).any(1).nonzero()[0])
    with torch.no_grad():
        found = model.net(images[chosen : chosen + 1])[0].argmax(0)
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained", width_ratios=[1, 1, 1, 1.6])
    axes[0].imshow(images[chosen].movedim(0, -1).clamp(0, 1).numpy())
    colours = ListedColormap(["#dddddd", "#009E73", "#D55E00", "#000000"])
    axes[1].imshow(target[chosen].where(target[chosen] != VOID, torch.nan).numpy(), cmap=colours, vmin=0, vmax=3)
    axes[2].imshow(found.numpy(), cmap=colours, vmin=0, vmax=3)
    for ax, title in zip(axes[:3], ("scene", "labels (void is white)", "predictions"), strict=True):
        ax.set_title(title)
        ax.axis("off")
    for name, style in zip(CLASSES, (":", "--", "-.", "-"), strict=True):
        values = [epoch[f"val_iou/{name}"] for epoch in epochs]
        axes[3].plot(values, style, color="black", linewidth=1, label=name)
    axes[3].plot([epoch["val_iou"] for epoch in epochs], color="#0072B2", linewidth=2.5, label="mean")
    axes[3].plot([epoch["val_accuracy"] for epoch in epochs], color="#E69F00", linewidth=2.5, label="pixel accuracy")
    axes[3].set_xlabel("Epoch")
    axes[3].set_ylabel("IoU, accuracy")
    axes[3].set_ylim(0, 1)
    axes[3].legend(fontsize="small")
    figure.savefig(path, dpi=110)


def seconds(update: Callable[..., Any], *arguments: Any, repeats: int = 7) -> float:
    """Least time of a call after a first one."""
    update(*arguments)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        update(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def compare(size: int) -> tuple[float, float, float]:
    """Seconds of an update here and in torchmetrics, and the largest difference of the classes' IoU."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, len(CLASSES), size, size, generator=generator)
    target = torch.randint(len(CLASSES), (8, size, size), generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.1] = VOID
    ours = ImbalanceReport("multiclass", class_names=CLASSES, measures=["iou"], per_class=("iou",), ignore_index=VOID)
    theirs = MulticlassJaccardIndex(len(CLASSES), average=None, ignore_index=VOID)
    times = seconds(ours.update, logits, target), seconds(theirs.update, logits, target)
    values = torch.stack([ours.compute()[f"iou/{name}"] for name in CLASSES])
    return *times, (values - theirs.compute()).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="epochs of training (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of scenes and weights (default: %(default)s)")
    parser.add_argument("--size", type=int, default=256, help="pixels of a side when timing (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the results (default: %(default)s)")
    given = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*|.*fewer than|.*number of training batches.*")
    given.out.mkdir(parents=True, exist_ok=True)
    model, validation, epochs, kept = trained(given.epochs, given.seed, given.out)
    columns = ["val_accuracy", "val_iou", "val_iou_min", *(f"val_iou/{name}" for name in CLASSES)]
    print(f"{'kept by':<14}" + "".join(f"{name.removeprefix('val_'):>16}" for name in ("epoch", *columns)))
    for name in MONITORS:
        at = max(range(len(epochs)), key=lambda index: epochs[index][name])  # the first of equals, as the checkpoint
        print(f"{name:<14}{at:>16}" + "".join(f"{epochs[at][column]:>16.3f}" for column in columns))
    print("checkpoints: " + ", ".join(Path(path).name for path in kept))
    draw(model, validation, epochs, given.out / "segmentation.png")
    ours, theirs, apart = compare(given.size)
    print(
        f"update of 8 x 4 x {given.size} x {given.size} logits: {1000 * ours:.1f} ms here, {1000 * theirs:.1f} ms in "
        f"torchmetrics ({theirs / ours:.1f} times as long); largest difference of an IoU {apart:.0e}"
    )


if __name__ == "__main__":
    main()
