"""Choose the operating point of a classifier of rare samples, and say how sure its value on the test set is.

With ecoli.csv of the UCI repository in the folder that IMBTORCH_DATA names, the positive class is imU, 35 of 336
proteins; else scikit-learn's bundled breast cancer data, of whose malignant samples 45 are kept beside 357 benign ones.
A small network learns on half of them. On a quarter, the validation set, the threshold with the best index of balanced
accuracy (IBA) is found; on the last quarter IBA is measured at .5 and at that threshold, each with its 95 % posterior
interval.

Read the result with care. The value of the chosen threshold on the validation set is the best of 101, so it flatters;
only the one on the test set counts. And the test set has few positives, eight to twelve of them, so the intervals are
wide: that of one threshold holds the value of the other more often than not. Over the seeds 0 to 7 the mean IBA on the
test set is .72 at .5 and .87 at the chosen threshold for ecoli (higher for all eight), .91 and .92 for breast cancer
(higher for three, lower for three). On the validation set the chosen thresholds promised .92 and .97.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import imbtorch
from imbtorch.analysis.intervals import Interval, posterior
from imbtorch.metrics.sweep import ThresholdSweep
from imbtorch.plots import plot_confusion_matrix


def samples(seed: int) -> tuple[str, Tensor, Tensor]:
    """Name of the data set, features and 0/1 targets."""
    folder = os.environ.get("IMBTORCH_DATA")
    if folder:
        rows = [line.split(",") for line in (Path(folder) / "ecoli.csv").read_text().splitlines() if line]
        features = torch.tensor([[float(number) for number in row[:-1]] for row in rows])
        return "ecoli", features, torch.tensor([int(row[-1] == "imU") for row in rows])
    arrays = load_breast_cancer(return_X_y=True)
    features, target = torch.from_numpy(arrays[0]).float(), torch.from_numpy(arrays[1] == 0).long()
    malignant = target.nonzero().flatten()
    malignant = malignant[torch.randperm(len(malignant), generator=torch.Generator().manual_seed(seed))][:45]
    kept = torch.cat(((target == 0).nonzero().flatten(), malignant))
    return "breast cancer", features[kept], target[kept]


def split(target: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Indices for training (half), validation and test (a quarter each), with equal shares of positives."""
    train, rest = train_test_split(torch.arange(len(target)), test_size=0.5, stratify=target, random_state=seed)
    val, test = train_test_split(rest, test_size=0.5, stratify=target[rest], random_state=seed)
    return train, val, test


def trained(features: Tensor, target: Tensor, epochs: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(features.shape[1], 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(features), target.float()).backward()
        optimizer.step()
    return net.eval()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    name, features, target = samples(args.seed)
    train, val, test = split(target, args.seed)
    features = (features - features[train].mean(0)) / features[train].std(0).clamp(min=1e-6)
    net = trained(features[train], target[train], args.epochs)
    with torch.inference_mode():
        scores = net(features).sigmoid()

    sweep = ThresholdSweep(imbtorch.IndexBalancedAccuracy)
    sweep.update(scores[val], target[val])
    found = sweep.compute()
    best = found["threshold"].item()
    generator = torch.Generator().manual_seed(args.seed)
    tested: list[tuple[float, Tensor, Interval]] = []
    for threshold in (0.5, best):
        counts = imbtorch.confusion_matrix(scores[test], target[test], "binary", threshold=threshold)
        tested.append((threshold, counts, posterior(imbtorch.index_balanced_accuracy, counts, generator=generator)))

    parts = (("training", train), ("validation", val), ("test", test))
    print(f"{name}: " + ", ".join(f"{int(target[i].sum())} of {len(i)} positive ({part})" for part, i in parts))
    print(f"IBA on validation at {best:.2f}  {found['value']:.3f}  (the best of 101 thresholds there, so it flatters)")
    for shown, _, interval in tested:
        print(f"IBA on test at {shown:.2f}  {interval}")
    print(f"The intervals are wide because the test set has few positives, {int(target[test].sum())}.")
    args.out.mkdir(parents=True, exist_ok=True)
    picture = args.out / "operating_point.png"
    draw(name, sweep, tested, picture)
    print(f"Picture: {picture}")


def draw(name: str, sweep: ThresholdSweep, tested: list[tuple[float, Tensor, Interval]], picture: Path) -> None:
    """Validation curve with both thresholds, intervals on the test set, and its confusion matrices."""
    figure, axes = plt.subplot_mosaic(
        [["curve", "intervals"], ["0", "1"]], figsize=(10, 9), height_ratios=(0.8, 1), layout="constrained"
    )
    sweep.plot(ax=axes["curve"])
    axes["curve"].set(title="Validation: IBA at each threshold", ylabel="IBA", ylim=(-0.02, 1.1))
    axes["curve"].annotate(".5", (0.5, 0.02), (3, 0), textcoords="offset points", color="0.3")
    intervals = axes["intervals"]
    for index, (threshold, counts, interval) in enumerate(tested):
        value, low, high = (float(each) for each in (interval.estimate, interval.low, interval.high))
        intervals.errorbar(index, value, [[value - low], [high - value]], fmt="os"[index], color="black", capsize=8)
        intervals.annotate(f"{value:.3f}\n[{low:.3f}, {high:.3f}]", (index, value), (10, 0), textcoords="offset points")
        plot_confusion_matrix(counts, axes[str(index)], labels=["rest", "positive"])
        chosen = " (chosen on validation)" * index
        axes[str(index)].set_title(f"Test at threshold {threshold:.2f}{chosen}")
    labels = [f"at {threshold:.2f}" + "\n(chosen)" * index for index, (threshold, _, _) in enumerate(tested)]
    intervals.set_xticks([0, 1], labels)
    intervals.set(
        title="Test: IBA with its 95 % posterior interval",
        ylabel="IBA",
        xlim=(-0.4, 1.8),
        ylim=axes["curve"].get_ylim(),
    )
    intervals.grid(visible=True, axis="y", alpha=0.3)
    figure.suptitle(f"{name}: operating point by IBA")
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    return parser.parse_args()


if __name__ == "__main__":
    main()
