"""Choose the decision rule of several classes on validation data, and test it: logit adjustment of a long tail.

The data are scikit-learn's digits with noise. Training has 100 samples of 0 and ever fewer up to five of 9; validation
and test share the others. A small network learns with a plain loss, which favours the frequent digits. After the last
epoch a sweep chooses tau on the validation set for balanced accuracy; the rule, a module, holds it. The table
says what it gains, corrected for the choice, with an interval. The test set, used for no choice, shows what is true.

python examples/decide.py  # ten seconds; --seed 1 for another split and network
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import imbtorch

MOST, LEAST, NOISE = 100, 5, 0.35  # training samples of 0 and of 9; standard deviation, of pixels in [0, 1]


def parts(seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return features and targets of training, validation and test."""
    generator = torch.Generator().manual_seed(seed)
    arrays = load_digits(return_X_y=True)
    pixels, target = torch.from_numpy(arrays[0]).float() / 16, torch.from_numpy(arrays[1])
    pixels += NOISE * torch.randn(pixels.shape, generator=generator)
    indices: list[list[Tensor]] = [[], [], []]
    for digit in range(10):
        own = (target == digit).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        taken = round(MOST * (LEAST / MOST) ** (digit / 9))
        half = (len(own) - MOST) // 2  # each digit has as many validation samples as the others, or so
        for place, some in zip(indices, (own[:taken], own[MOST : MOST + half], own[MOST + half :]), strict=True):
            place.append(some)
    chosen = [torch.cat(some) for some in indices]
    return [(pixels[some], target[some]) for some in chosen]


def trained(features: Tensor, target: Tensor, epochs: int) -> nn.Module:
    """Train a network with a plain loss."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(target)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(features[batch]), target[batch]).backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    """Train, choose, test and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train, val, test = parts(args.seed)
    counts = torch.bincount(train[1], minlength=10)
    net = trained(*train, args.epochs)

    sweep = imbtorch.LogitAdjustmentSweep(
        "balanced_accuracy", counts, logits=True, class_groups=imbtorch.shot_groups(counts, many=50, few=15)
    )
    with torch.no_grad():
        sweep.update(net(val[0]), val[1])
        sweep.compute()  # sets sweep.rule
        print(f"validation, {len(val[1])} samples; training samples {counts.tolist()}\n{sweep.table()}\n")

        deployed = nn.Sequential(net, sweep.rule)
        print(f"test, {len(test[1])} samples")
        for name, module in (
            ("plain", net),
            ("tau = 1", nn.Sequential(net, imbtorch.LogitAdjustment(counts, logits=True))),
            (f"tau = {float(sweep.rule.tau):g}", deployed),
        ):
            report = imbtorch.ImbalanceReport("multiclass", 10, measures=["balanced_accuracy", "accuracy", "f1", "iam"])
            report.update(module(test[0]), test[1])
            values = {key: report.compute()[key].item() for key in report.measures}
            print(f"{name:12}" + "  ".join(f"{key} {value:.4f}" for key, value in values.items()))

    figure, _ = sweep.plot()
    args.out.mkdir(exist_ok=True)
    figure.savefig(args.out / "decide.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
