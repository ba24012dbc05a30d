"""What a rebalanced validation set says about deployment, where one sample in a thousand is positive.

The data are made up, so that a stream can be drawn that is large enough to check the prediction: eight independent
normal features, of which a positive sample has five shifted by 1.3 standard deviations. A small network learns on
classes of equal size, and validation has classes of equal size, as is common where positives are rare. It gives an
alarm above a probability of 0.8, and nearly all alarms in validation are right.

In deployment there are a thousand negatives for each positive. The report with ``prevalence=`` reads the counts of the
same validation set at those class shares, with 95% posterior intervals; a stream of two million samples then shows
what is true there. Precision collapses, and F1, MCC, CBA and IAM fall with it. Recall and balanced accuracy do not
move, and accuracy even rises, so none of the three says that nearly all alarms are false.

The prediction assumes that class shares are all that differs: that the samples of a class look alike in both places.
Of these data that is true by construction; of others, nothing in the counts can tell. The intervals hold the
uncertainty of the validation set alone; the stream has one of its own, from its two thousand positives. Over the seeds
0 to 7 that of precision held the measured value seven times.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import imbtorch
from imbtorch.papers import plot_prevalence

THRESHOLD = 0.8
MEASURES = {
    "precision": partial(imbtorch.precision, average="binary"),
    "F1": imbtorch.f_score,
    "MCC": imbtorch.matthews_corrcoef,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
    "recall": imbtorch.recall,
}


def samples(negatives: int, positives: int) -> tuple[Tensor, Tensor]:
    """Features and 0/1 targets."""
    target = torch.cat((torch.zeros(negatives), torch.ones(positives))).long()
    features = torch.randn(len(target), 8)
    features[target == 1, :5] += 1.3
    return features, target


def trained(features: Tensor, target: Tensor, epochs: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(features.shape[1], 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(features), target.float()).backward()
        optimizer.step()
    return net.eval()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    net = trained(*samples(5000, 5000), args.epochs)

    def report(**arguments: Any) -> imbtorch.ImbalanceReport:
        names = ["ordinary", "rare"]
        return imbtorch.ImbalanceReport(
            "binary", class_names=names, measures=MEASURES, logits=True, threshold=THRESHOLD, **arguments
        )

    counted, measured = report(), report()
    read = report(prevalence={"ordinary": args.ratio, "rare": 1}, intervals=True)
    with torch.inference_mode():
        features, target = samples(args.validation, args.validation)
        for each in (counted, read):
            each.update(net(features), target)
        for _ in range(args.positives // 100):
            features, target = samples(100 * args.ratio, 100)
            measured.update(net(features), target)
    before, there, truth = counted.compute(), read.compute(), measured.compute()

    deployed = f"1:{args.ratio}"
    print(f"{'':17}  counted at 1:1  read at {deployed} with its 95% interval  measured at {deployed}")
    for name in MEASURES:
        value, low, high = (float(there[name + end]) for end in ("", "_low", "_high"))
        predicted = f"{value:.4f} [{low:.4f}, {high:.4f}]"
        print(f"{name:17}  {float(before[name]):14.4f}  {predicted:>{len(deployed) + 30}}  {float(truth[name]):>18.4f}")
    for what, each in (("validation", counted), (f"the stream of {deployed}", measured)):
        (_, false), (_, right) = each.counts().tolist()
        print(f"In {what}, {right} of {right + false} alarms are right.")
    args.out.mkdir(parents=True, exist_ok=True)
    picture = args.out / "deployment.png"
    draw(counted.counts(), truth, 1 / (1 + args.ratio), picture)
    print(f"Picture: {picture}")


def draw(counts: Tensor, truth: dict[str, Tensor], share: float, picture: Path) -> None:
    """Each measure over the share of positives, read off the validation counts; rings are what the stream measured."""
    shown = ("precision", "IAM", "accuracy", "balanced accuracy")
    readers = {name: MEASURES[name] for name in shown}
    figure, ax = plot_prevalence(readers, counts, span=(share / 10, 0.5))
    for line, name in zip(ax.lines, shown, strict=False):
        ax.plot([share], [float(truth[name])], "o", markersize=12, fillstyle="none", color=line.get_color())
    ax.axvline(share, color="0.4", linewidth=0.8, zorder=0)
    ax.annotate("deployment", (share, 0.55), (5, 0), textcoords="offset points", color="0.3")
    ax.set_title("Read off a validation set of 1:1; rings: measured", fontsize="medium")
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--validation", type=int, default=5000, help="validation samples of each class")
    parser.add_argument("--ratio", type=int, default=1000, help="negatives for each positive in deployment")
    parser.add_argument("--positives", type=int, default=2000, help="positives of the stream, in hundreds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    return parser.parse_args()


if __name__ == "__main__":
    main()
