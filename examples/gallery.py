"""Draw the pictures of ``examples/figures``, each with the public functions of imbtorch.

    python examples/gallery.py
    python examples/gallery.py --only front thresholds --out out

The data are scikit-learn's bundled digits. ``front``, ``selection`` and ``confusion`` show the training of
``train_digits.py`` with its default arguments, so what is said there holds here: noise was added to the images, and
recipe and seed were chosen to show the effect. ``thresholds`` shows a classifier that tells 8, 174 of 1797 images with
the same noise, from the other digits, in 5-fold cross-validation. ``quickstart`` shows the program of the README. The
other pictures need no data. All are drawn in half a minute on one core, and a second run with the same versions draws
the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import logging
import runpy
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lightning
import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler
from train_digits import RARE, DigitClassifier, digits

import imbtorch
from imbtorch.papers import plot_prevalence, plot_sensitivity
from imbtorch.plots import plot_confusion_matrix, plot_selection
from imbtorch.statistics import posterior

Measure = Callable[[Tensor], Tensor]

WIDTH = 5.6  # inches of every picture; 900 pixels at
DPI = 161
BLUE, ORANGE = "#0072B2", "#D55E00"  # of Okabe and Ito, as in the library's pictures
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2, "fontsize": "small", "frameon": False}
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def binary(measure: Callable[..., Tensor]) -> Measure:
    """Return a measure for the positive class."""
    return functools.partial(measure, average="binary")


MEASURES: dict[str, Measure] = {
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
    "macro F1": functools.partial(imbtorch.f_score, average="macro"),
    "MCC": imbtorch.matthews_corrcoef,
    "CBA": imbtorch.class_balance_accuracy,
    "G-mean": imbtorch.geometric_mean,
    "IAM": imbtorch.imbalance_accuracy,
}


# --- data -----------------------------------------------------------------------------------------------------------


class Training(NamedTuple):
    """Confusion matrices of every epoch of a training, ``[E, K, K]``."""

    val: Tensor
    test: Tensor


class Matrices(lightning.Callback):
    """Record of the confusion matrices of every validation set at the end of each epoch."""

    def __init__(self, *sets: tuple[Tensor, Tensor]) -> None:
        self.sets = sets
        self.found: list[list[Tensor]] = [[] for _ in sets]

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if trainer.sanity_checking:
            return
        for (images, labels), found in zip(self.sets, self.found, strict=True):
            found.append(imbtorch.confusion_matrix(pl_module(images), labels, "multiclass", num_classes=10))


@functools.cache
def training() -> Training:
    """Repeat the run of ``train_digits.py`` with its default arguments, without files."""
    lightning.seed_everything(0, verbose=False)
    train, val, test = digits(imbalance=20.0, seed=0)
    model = DigitClassifier(class_weights=len(train) / (10 * train.tensors[1].bincount(minlength=10)))
    matrices = Matrices(val.tensors, test.tensors)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=30,
        callbacks=[matrices],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    exact = imbtorch.ExactBatchSampler(SequentialSampler(val), batch_size=256)
    trainer.fit(model, DataLoader(train, 32, shuffle=True), DataLoader(val, batch_sampler=exact))
    return Training(*map(torch.stack, matrices.found))


@functools.cache
def eights() -> tuple[Tensor, Tensor]:
    """Return digits ``[N, 64]`` with noise as in ``train_digits.py``, and 1 for the 174 eights among 1797 images."""
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = (images - images.mean()) / images.std()
    noise = torch.randn(images.shape, dtype=images.dtype, generator=torch.Generator().manual_seed(0))
    return images + noise, (labels == 8).long()


def predicted(model: ClassifierMixin, method: str = "predict") -> Tensor:
    """Predict each image by a model that was fitted to other images (5 folds)."""
    images, target = eights()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return torch.from_numpy(cross_val_predict(model, images.numpy(), target.numpy(), cv=folds, method=method))


# --- pictures -------------------------------------------------------------------------------------------------------


def latest_best(values: Tensor) -> int:
    """Return the index of the highest value, the latest of tied ones, which imbtorch's checkpoint keeps."""
    return int((values == values.max()).nonzero()[-1])


def front() -> Figure:
    """Draw the epochs that accuracy and IAM keep, and their recalls of the rare classes."""
    val, test = training()
    values = {"accuracy": imbtorch.accuracy(val), "IAM": imbtorch.imbalance_accuracy(val)}
    iam = posterior(imbtorch.imbalance_accuracy, val, generator=torch.Generator().manual_seed(0))
    kept = {name: latest_best(line) for name, line in values.items()}
    figure, (curves, bars) = plt.subplots(1, 2, figsize=(WIDTH, 2.9), width_ratios=(1, 1.1), layout="constrained")
    curves.fill_between(
        range(len(val)),
        iam.low.tolist(),
        iam.high.tolist(),
        color=BLUE,
        alpha=0.18,
        linewidth=0,
        label="95% interval of IAM",
    )
    rare = list(RARE)
    looks = (
        {"color": ORANGE, "linestyle": "--", "marker": "D", "hatch": "///", "written": (7, 0.95)},
        {"color": BLUE, "linestyle": "-", "marker": "o", "hatch": None, "written": (13, -0.2)},
    )
    for index, ((name, epoch), look) in enumerate(zip(kept.items(), looks, strict=True)):
        line, color = values[name].tolist(), look["color"]
        curves.plot(line, look["linestyle"], color=color, linewidth=2)
        curves.plot(epoch, line[epoch], look["marker"], color=color, markersize=9, markeredgecolor="white")
        curves.text(*look["written"], f"{name}: epoch {epoch}", color=color, fontweight="bold")
        recalls = imbtorch.recall(test[epoch], average="none")
        shown = [recalls[: rare[0]].mean().item(), *recalls[rare].tolist()]
        places = [place + 0.42 * (index - 0.5) for place in range(len(shown))]
        drawn = bars.bar(places, shown, 0.4, color=color, hatch=look["hatch"], edgecolor="white", label=name)
        written = [f"{value:.2f}".lstrip("0") if value else "0" for value in shown]
        bars.bar_label(drawn, written, color=color, padding=1, fontsize=7)
    explain_jump(curves, values["IAM"], (3, 0.58))
    curves.set(title="Validation: kept epoch", xlabel="Epoch", ylabel="Value of the measure", xlim=(-0.5, 30))
    curves.set_ylim(-0.68, 1.12)
    curves.legend(loc="lower right", frameon=False, fontsize=9, borderaxespad=0.1)
    bars.set_xticks(range(len(rare) + 1), [f"0 to {rare[0] - 1}", *map(str, rare)])
    bars.set(title="Recall on test images", xlabel="Digit (7, 8 and 9 are rare)", ylim=(0, 1.0))
    bars.legend(title="Epoch kept by", loc="upper right", frameon=False)
    for ax in (curves, bars):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def explain_jump(ax: Axes, values: Tensor, place: tuple[float, float]) -> None:
    """Write at the jump of a curve that the first seven is recognised there."""
    val, _ = training()
    epoch = int(val[:, RARE[0], RARE[0]].nonzero()[0])
    arrow = {"arrowstyle": "->", "color": "0.3"}
    text = f"first {RARE[0]} recognised"
    ax.annotate(text, (epoch, values[epoch].item()), place, color="0.3", fontsize=9, arrowprops=arrow)


def selection() -> Figure:
    """Draw measures over the epochs, and the epoch that each selects.

    Macro F1 runs along balanced accuracy here, and CBA is (IAM + 1) / 2; their lines would cover one another.
    """
    val, _ = training()
    values = {name: measure(val) for name, measure in MEASURES.items() if name not in ("macro F1", "CBA")}
    kept = {name: latest_best(line) for name, line in values.items()}
    figure, ax = plt.subplots(figsize=(WIDTH, 4.2), layout="constrained")
    plot_selection(values, ax, selected=kept)
    ax.get_legend().remove()  # the rows above the curves name every line
    explain_jump(ax, values["IAM"], (19, 0.36))
    return figure


def two_classes() -> Figure:
    """Draw what the threshold that ``two_classes.py`` chooses finds, and what it costs."""
    with contextlib.redirect_stdout(io.StringIO()):
        names = runpy.run_path(str(Path(__file__).with_name("two_classes.py")))
    sweep, test, target = names["sweep"], names["test"], torch.from_numpy(names["y_test"]).long()
    thresholds, curve = sweep.result().curve()
    chosen = sweep.rule.threshold.item()
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), width_ratios=(1, 1.5), layout="constrained")
    left.plot(thresholds, curve, color="0.3")
    for threshold, side, color in ((0.5, 4, ORANGE), (chosen, -4, BLUE)):
        left.axvline(threshold, color=color, linewidth=1.2)
        beside = {"xytext": (side, 0), "textcoords": "offset points", "ha": "left" if side > 0 else "right"}
        left.annotate(f"{threshold:.2g}", (threshold, -0.1), color=color, fontsize="small", **beside)
    left.set(xlabel="threshold", ylabel="IAM of validation images", ylim=(-0.2, 1))
    measures = {
        "IAM": imbtorch.imbalance_accuracy,
        "F1": imbtorch.f_score,
        "recall": imbtorch.recall,
        "precision": imbtorch.precision,
        "balanced\naccuracy": imbtorch.balanced_accuracy,
    }
    binary = {"recall", "precision", "F1"}
    values = []
    for threshold in (0.5, chosen):
        counts = imbtorch.confusion_matrix((test > threshold).long(), target, "binary")
        means = {name: {"average": "binary"} if name in binary else {} for name in measures}
        values.append([measure(counts, **means[name]).item() for name, measure in measures.items()])
    arrows(right, list(measures), values, ("threshold 0.5", "chosen threshold"))
    right.set(xlabel="value on test images", xlim=(0.15, 1.15))
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def quickstart() -> Figure:
    """Draw recalls, their mean, accuracy and IAM on the test images of ``quickstart.py``, with and without its rule."""
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        names = runpy.run_path(str(Path(__file__).with_name("quickstart.py")))
    images, target = names["test"][:]
    values = []
    for rule in (torch.nn.Identity(), names["model"].sweep.rule):
        with torch.no_grad():
            scores = rule(names["model"].net(images))
        counts = imbtorch.confusion_matrix(scores, target, "multiclass", num_classes=3)
        means = [
            measure(counts) for measure in (imbtorch.balanced_accuracy, imbtorch.accuracy, imbtorch.imbalance_accuracy)
        ]
        values.append([*imbtorch.recall(counts, "none").tolist(), *(mean.item() for mean in means)])
    shares = torch.bincount(target) / len(target)
    labels = [f"{name} found\n({share:.0%} of images)" for name, share in zip(names["CLASSES"], shares, strict=True)]
    labels += ["balanced accuracy\n(mean of the three)", "accuracy", "IAM"]
    figure, ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
    arrows(ax, labels, values, ("argmax", "chosen logit adjustment"))
    ax.set_xlim(0.22, 1.09)
    ax.set_xlabel("value on the test images")
    ax.axhline(2.5, color="0.8", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def arrows(ax: Axes, labels: list[str], values: list[list[float]], rules: tuple[str, str]) -> None:
    """Draw an arrow from the value of one rule to that of another, a row for each label."""
    for place, (before, after) in enumerate(zip(*values, strict=True)):
        ax.annotate("", (after, place), (before, place), arrowprops={"arrowstyle": "->", "color": "0.5", "shrinkB": 5})
        up = after > before
        for value, right in ((before, not up), (after, up)):
            ax.annotate(
                f"{value:.2f}",
                (value, place),
                (9 if right else -9, 0),
                textcoords="offset points",
                va="center",
                ha="left" if right else "right",
                fontsize="small",
            )
    places = range(len(labels))
    ax.plot(values[0], places, "o", color=ORANGE, markerfacecolor="white", label=rules[0], markersize=8)
    ax.plot(values[1], places, "o", color=BLUE, label=rules[1], markersize=8)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.legend(**BELOW | {"bbox_to_anchor": (0.5, -0.2)})


def sensitivity() -> Figure:
    """Draw measures of a classifier that misclassifies more and more of the rarest class."""
    figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    plot_sensitivity(MEASURES, [1000, 100, 10], ax, steps=201)
    ax.set_xlabel(
        "Misclassified share of the rarest class, 10 of 1110 samples\n"
        "(G-mean falls to 0, where no right prediction is left)"
    )
    ax.legend(fontsize="small")  # within: there is room
    return figure


def thresholds() -> Figure:
    """Draw F1 and G-mean of one classifier at every threshold, and the chosen threshold of each."""
    _, target = eights()
    scores = predicted(LogisticRegression(max_iter=1000), "predict_proba")[:, 1].contiguous()
    figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    for measure in ("f1", "gmean"):
        sweep = imbtorch.ThresholdSweep(measure)
        sweep.update(scores, target)
        sweep.compute()
        sweep.plot(ax=ax)
    names, looks = ("F1", "G-mean"), ((ORANGE, "--", "center"), (BLUE, "-", "left"))
    for name, (color, style, side), line, point, text in zip(
        names, looks, ax.lines[::3], ax.lines[1::3], ax.texts, strict=True
    ):
        line.set(label=name, color=color, linestyle=style, linewidth=2)
        point.set(color=color, label="")  # without the corrected value
        text.set(color=color, ha=side, fontweight="bold", text=text.get_text().replace(", ", "\n"))
    ax.set_xscale("linear")  # no threshold of interest is rare here
    ax.set(title="", ylabel="Value of the measure", ylim=(0, 0.9), xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1])
    ax.lines[2].set_label("")  # both sweeps mark it
    ax.legend(loc="upper right")
    return figure


def confusion() -> Figure:
    """Draw the validation matrix of the epoch that IAM keeps, and the recall of each class with its interval."""
    val, _ = training()
    counts = val[latest_best(imbtorch.imbalance_accuracy(val))]
    of_classes = functools.partial(imbtorch.recall, average="none")
    recalls = posterior(of_classes, counts, generator=torch.Generator().manual_seed(0))
    figure, ax = plt.subplots(figsize=(WIDTH, 4.4), layout="constrained")
    plot_confusion_matrix(counts, ax, labels=NAMES, recalls=recalls)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for digit in RARE:
            ticks[digit].set_fontweight("bold")
    return figure


def intervals() -> Figure:
    """Draw intervals of the same rates, measured on few and on many samples."""
    names = ("accuracy", "balanced accuracy", "G-mean", "F1", "MCC", "IAM")
    measures = {name: (MEASURES | {"F1": binary(imbtorch.f_score)})[name] for name in names}
    figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    looks = ((10, ORANGE, "D"), (100, BLUE, "s"), (1000, "black", "o"))
    for index, (positives, color, marker) in enumerate(looks):
        counts = torch.tensor([[95, 5], [2, 8]]) * (positives // 10)
        found = posterior(measures, counts, generator=torch.Generator().manual_seed(0))
        for row, interval in enumerate(found.values()):
            value, low, high = (each.item() for each in (interval.estimate, interval.low, interval.high))
            ax.errorbar(
                value,
                row + 0.24 * (index - 1),
                xerr=[[value - low], [high - value]],
                fmt=marker,
                color=color,
                linewidth=2,
                capsize=4,
                label=None if row else f"{positives:,} positives, {10 * positives:,} negatives",
            )
    ax.set_yticks(range(len(measures)), list(measures))
    ax.invert_yaxis()
    ax.set_xlabel("Value and 95% interval, for recalls of 0.80 (positives) and 0.95")
    ax.grid(visible=True, axis="x", alpha=0.3)
    ax.legend(loc="upper left", fontsize="small", handlelength=1.0, borderpad=0.3)
    ax.set_xlim(0.2, 1.0)
    return figure


def prevalence() -> Figure:
    """Draw measures of one classifier from balanced classes to ever rarer positives."""
    shown: dict[str, Measure] = {
        "accuracy": imbtorch.accuracy,
        "balanced accuracy": imbtorch.balanced_accuracy,
        "MCC": imbtorch.matthews_corrcoef,
        "F1": binary(imbtorch.f_score),
        "precision": binary(imbtorch.precision),
        "IAM": imbtorch.imbalance_accuracy,
    }
    figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    plot_prevalence(shown, torch.tensor([[950, 50], [100, 900]]), ax)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0.0, 0.9), labelspacing=0.3, borderpad=0.3)
    ax.set_ylim(-0.1, 1.02)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "two_classes": two_classes,
    "front": front,
    "selection": selection,
    "quickstart": quickstart,
    "sensitivity": sensitivity,
    "thresholds": thresholds,
    "confusion": confusion,
    "intervals": intervals,
    "prevalence": prevalence,
}


TITLES = {  # what each picture shows
    "two_classes": "A threshold chosen for IAM finds 41 of 52 eights,\nnot 33, with 10 false alarms, not 4",
    "front": "Accuracy keeps an epoch that finds almost no rare digit",
    "selection": "Accuracy and MCC select an epoch\nbefore a rare digit is recognised",
    "quickstart": "The rule doubles the eights found; accuracy and IAM fall",
    "sensitivity": "Accuracy and MCC hardly notice a lost class",
    "thresholds": "The chosen thresholds of a rare class lie below 0.5",
    "confusion": "Accuracy 0.82, but no eight and no nine is found",
    "intervals": "With 10 positives IAM is uncertain: 0.25 to 0.80",
    "prevalence": "With rarer positives precision and F1 fall,\naccuracy stays",
}


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", ".*does not have many workers")  # the images are in memory already
    warnings.filterwarnings("ignore", ".*LeafSpec")  # Lightning 2.6 and torch 2.13 between themselves
    warnings.filterwarnings("ignore", ".*is smaller than the logging interval")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)  # sums in another order would draw other bytes
    args.out.mkdir(parents=True, exist_ok=True)
    margin = {f"figure.constrained_layout.{side}_pad": 0.08 for side in "hw"}  # so that nothing touches a dark page
    with mpl.rc_context({"font.size": 10, "savefig.facecolor": "white", **margin}):
        for name in args.only:
            figure, path = PICTURES[name](), args.out / f"{name}.png"
            figure.suptitle(TITLES[name], fontsize=11, fontweight="bold")
            save(figure, path)
            plt.close(figure)
            print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of at most 256 colours, a third of the bytes, without its date or program."""
    with io.BytesIO() as file:
        figure.savefig(file, dpi=DPI, format="png", metadata={"Software": None})
        Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES), help="pictures to draw")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures", help="folder of the pictures")
    return parser.parse_args()


if __name__ == "__main__":
    mpl.use("Agg")
    main()
