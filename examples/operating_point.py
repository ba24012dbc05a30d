"""Train, choose the operating point of a classifier of rare samples, and test with it; says how sure each value is.

With ecoli.csv of the UCI repository in the folder that IMBTORCH_DATA names, the positive class is imU, 35 of 336
proteins; else scikit-learn's bundled breast cancer data, of whose malignant samples 45 are kept beside 357 benign ones.
A small network learns on half of them. A quarter, the validation set, chooses two thresholds: the one with the best
index of balanced accuracy (IBA), and the one with the best precision at which a recall of 0.6 is promised (at 0.8). The
last quarter measures IBA at 0.5 and at the thresholds chosen.

Read the result with care. The value at the chosen threshold on the validation set is too high, as this set chose it;
the corrected one and that of the test set count. And both sets have few positives, eight to twelve of them, so the
intervals are wide: that of one threshold may hold the value of the other.
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
from imbtorch.metrics.sweep import ThresholdSweep
from imbtorch.plots import plot_confusion_matrix
from imbtorch.statistics import Interval, OperatingPoint


def samples(seed: int) -> tuple[str, Tensor, Tensor]:
    """Name of the data set, features and 0/1 targets."""
    folder = os.environ.get("IMBTORCH_DATA")
    if folder:
        rows = [
            line.split(",") for line in (Path(folder) / "ecoli.csv").read_text(encoding="utf-8").splitlines() if line
        ]
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
        logits = net(features)

    sweep = ThresholdSweep(imbtorch.index_balanced_accuracy, logits=True, also=("auc", "average_precision"))
    sweep.update(logits[val], target[val])
    found = sweep.compute()
    generator = torch.Generator().manual_seed(args.seed)
    floor = surely(sweep, logits[val], target[val], generator)

    best = found["threshold"].item()
    metrics = {
        "0.5": imbtorch.IndexBalancedAccuracy("binary", logits=True),
        f"{best:.3g}": sweep.metric(imbtorch.IndexBalancedAccuracy),
        f"{floor.threshold:.3g} (floor)": sweep.metric(imbtorch.IndexBalancedAccuracy, at=floor),
    }
    tested: dict[str, tuple[Tensor, Interval]] = {}
    for label, metric in metrics.items():
        metric.update(logits[test], target[test])
        tested[label] = metric.local_confmat, metric.interval(generator=generator)

    parts = (("training", train), ("validation", val), ("test", test))
    print(f"{name}: " + ", ".join(f"{int(target[i].sum())} of {len(i)} positive ({part})" for part, i in parts))
    for area in ("auc", "average_precision"):
        print(f"{area} on validation  {sweep.interval(area)}")
    print(f"IBA on validation at {best:.3g}  {found['value']:.3f}  (best of all thresholds there, so too high)")
    print(f"  corrected for the choice  {sweep.interval('value', generator=generator)}")
    print(f"recall of 0.6 promised: {floor}")
    for label, (_, interval) in tested.items():
        print(f"IBA on test at {label}  {interval}")
    print(f"The intervals are wide because the test set has few positives, {int(target[test].sum())}.")
    args.out.mkdir(parents=True, exist_ok=True)
    picture = args.out / "operating_point.png"
    draw(name, sweep, tested, picture)
    print(f"Picture: {picture}")


def surely(sweep: ThresholdSweep, logits: Tensor, target: Tensor, generator: torch.Generator) -> OperatingPoint:
    """Return the threshold of best precision that promises a recall of 0.6, wrongly in at most 0.2 of samples."""
    precise = ThresholdSweep(imbtorch.precision, logits=True)
    precise.update(logits, target)
    point = precise.best(at_least={"recall": 0.6}, sure=0.8, generator=generator)
    assert isinstance(point, OperatingPoint)
    return point


def draw(name: str, sweep: ThresholdSweep, tested: dict[str, tuple[Tensor, Interval]], picture: Path) -> None:
    """Validation curve with both thresholds, intervals on the test set, and its confusion matrices."""
    figure, axes = plt.subplot_mosaic(
        [["curve", "curve", "intervals"], ["0", "1", "2"]], figsize=(12, 8), layout="constrained"
    )
    sweep.plot(ax=axes["curve"])
    axes["curve"].set(title="Validation: IBA at each threshold", ylabel="IBA", ylim=(-0.02, 1.1))
    axes["curve"].annotate(".5", (0.5, 0.02), (3, 0), textcoords="offset points", color="0.3")
    intervals = axes["intervals"]
    for index, (label, (counts, interval)) in enumerate(tested.items()):
        value, low, high = (float(each) for each in (interval.estimate, interval.low, interval.high))
        intervals.errorbar(index, value, [[value - low], [high - value]], fmt="osD"[index], color="black", capsize=8)
        intervals.annotate(f"{value:.3f}", (index, value), (8, 0), textcoords="offset points")
        plot_confusion_matrix(counts, axes[str(index)], labels=["rest", "positive"])
        axes[str(index)].set_title(f"Test at threshold {label}")
    intervals.set_xticks(range(len(tested)), [label.replace(" ", "\n") for label in tested])
    intervals.set(
        title="Test: IBA, 95% posterior interval",
        ylabel="IBA",
        xlim=(-0.4, 2.8),
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
