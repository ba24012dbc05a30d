"""Show values of torchmetrics that are wrong without a word, and when; and what fails or is slow there.

python examples/comparison.py          # the table of the README
python examples/comparison.py --slow   # a million classes, and areas of a million scores: one minute
"""

import argparse
import resource
import time
import warnings

import torch
import torchmetrics
from torchmetrics.classification import (
    BinaryAUROC,
    BinaryF1Score,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

import imbtorch

SCORES, TARGET = torch.tensor([[0.95, 0.1], [0.7, 0.6]]), torch.tensor([[1, 0], [1, 1]])  # two batches
LOGITS, POSITIVE = torch.tensor([0.9, 0.95, 1.5, -1.0]), torch.tensor([1, 1, 0, 0])


def two_thresholds(**options: bool) -> list[float]:
    """Return F1 at thresholds of 0.5 and 0.9; no score of the first batch lies between them."""
    both = {"low": BinaryF1Score(threshold=0.5), "high": BinaryF1Score(threshold=0.9)}
    collection = torchmetrics.MetricCollection(both, **options)
    for scores, target in zip(SCORES, TARGET, strict=True):
        collection.update(scores, target)
    return [round(collection.compute()[name].item(), 3) for name in both]


def two_thresholds_here() -> list[float]:
    """Return the same of imbtorch."""
    both = {"low": imbtorch.FScore("binary", threshold=0.5), "high": imbtorch.FScore("binary", threshold=0.9)}
    collection = torchmetrics.MetricCollection(both)
    for scores, target in zip(SCORES, TARGET, strict=True):
        collection.update(scores, target)
    return [round(collection.compute()[name].item(), 3) for name in both]


def out_of_range() -> tuple[str, str]:
    """Return where class 3 of three is counted, if it is predicted for a sample of class 0."""
    preds, target = torch.tensor([3]), torch.tensor([0])
    row, column = MulticlassConfusionMatrix(3)(preds, target).nonzero()[0].tolist()
    try:
        imbtorch.confusion_matrix(preds, target, "multiclass", num_classes=3)
    except ValueError as error:
        return f"as class {column} for class {row}", f"error: {error}"
    raise AssertionError


def area_of_logits() -> tuple[float, float]:
    """Return the area under the ROC curve of four logits, one by one: two of them lie in [0, 1]."""
    theirs, ours = BinaryAUROC(), imbtorch.ThresholdSweep("f1", logits=True, also=["auc"])
    for logit, target in zip(LOGITS.split(1), POSITIVE.split(1), strict=True):
        theirs.update(logit, target)
        ours.update(logit, target)
    return theirs.compute().item(), ours.compute()["auc"].item()


def million_classes() -> tuple[str, str]:
    """Return macro F1 of a million classes and the memory that it takes, or the error."""
    target = torch.randint(1_000_000, (1_000_000,), generator=torch.Generator().manual_seed(0))
    preds = target.where(torch.arange(1_000_000) % 4 > 0, target.roll(1))  # three quarters are right
    try:
        theirs = str(MulticlassF1Score(1_000_000)(preds, target))
    except RuntimeError as error:
        theirs = str(error).strip().splitlines()[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = imbtorch.FScore("multiclass", 1_000_000, state="margins", average="macro")(preds, target)
    return theirs, f"{value:.3g}, {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6:.1f} GB more"


def areas(size: int) -> tuple[float, float, float]:
    """Return the times of both for the area of a million scores in batches of a size, and how the areas differ."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(1_000_000, generator=generator) < 0.01).long()
    scores = torch.sigmoid(torch.randn(1_000_000, generator=generator) + 1.5 * target - 3)
    times, values = [], []
    for metric in (BinaryAUROC(), imbtorch.ThresholdSweep("f1", also=["auc"])):
        start = time.perf_counter()
        for some, truth in zip(scores.split(size), target.split(size), strict=True):
            metric.update(some, truth)
        value = metric.compute()
        times.append(time.perf_counter() - start)
        values.append((value["auc"] if isinstance(value, dict) else value).item())
    return times[0], times[1], abs(values[0] - values[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="show what is wrong, fails, or is slow in torchmetrics")
    parser.add_argument("--slow", action="store_true", help="a million classes, and areas of a million scores")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torchmetrics {torchmetrics.__version__}, imbtorch {imbtorch.__version__}")
    print("F1 at thresholds 0.5 and 0.9:", two_thresholds(), "here", two_thresholds_here())
    print("  with compute_groups=False:", two_thresholds(compute_groups=False))
    print("class 3 of three, predicted for class 0: {}; here {}".format(*out_of_range()))
    print("AUC of four logits, one by one: {:g}, here {:g}".format(*area_of_logits()))
    if given.slow:
        print("macro F1 of a million classes: {}; here {}".format(*million_classes()))
        for size in (256, 4096, 65536):
            theirs, ours, error = areas(size)
            print(
                f"AUC of a million scores, batches of {size}: {theirs:.2f} s, here {ours:.2f} s, differs by {error:.1e}"
            )
