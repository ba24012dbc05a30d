"""The accuracy paradox, and the figure that Vergne (2017), Can we use accuracy with unbalanced datasets?, announces.

The text compares an arithmetic with a geometric average of the two rates "as shown by the figures below", and below
stands "None yet". Draws both over all pairs of rates, with the predictions that look at nothing: biased, random, and
always wrong. Beside them accuracy at several class shares, and what each measure gives those predictions as one class
grows rare. No data are needed, and with or without --quick it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from common import Results, arguments
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor

import imbtorch
from imbtorch.statistics import skill, trivial

POINTS = {  # TPR and TNR of predictions that look at nothing, of the perfect ones, and of those always wrong
    "always positive": (1.0, 0.0),
    "always negative": (0.0, 1.0),
    "a coin": (0.5, 0.5),
    "perfect": (1.0, 1.0),
    "always wrong": (0.0, 0.0),
}
MARKERS = dict(zip(POINTS, "^vosX", strict=True))
NAMES = {"always 1": "always positive", "always 0": "always negative", "uniform": "a coin"}
LINES = {"always 0": ("-", 5), "always 1": ("--", 3), "uniform": (":", 2)}
MEASURES: dict[str, Callable[..., Tensor]] = {
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
    "G-mean": imbtorch.geometric_mean,
    "IAM": imbtorch.imbalance_accuracy,
    "MCC": imbtorch.matthews_corrcoef,
}


def matrix(tpr: Tensor, tnr: Tensor, share: float) -> Tensor:
    """Rates ``[..., 2, 2]`` of a population with this share of positives."""
    negative = torch.stack((tnr, 1 - tnr), -1) * (1 - share)
    return torch.stack((negative, torch.stack((1 - tpr, tpr), -1) * share), -2)


def draw_plane(ax: Axes, measure: Callable[..., Tensor], share: float, title: str) -> None:
    """Draw a measure over all pairs of rates, with the trivial predictions and their values."""
    rates = torch.linspace(0, 1, 201, dtype=torch.float64)
    tnr, tpr = torch.meshgrid(rates, rates, indexing="ij")
    values = measure(matrix(tpr, tnr, share))
    drawn = ax.contourf(rates, rates, values.T, levels=torch.linspace(0, 1, 21).tolist(), cmap="viridis")
    lines = ax.contour(rates, rates, values.T, levels=[0.25, 0.5, 0.75], colors="white", linewidths=1)
    for name, (x, y) in POINTS.items():
        value = measure(matrix(torch.tensor(x), torch.tensor(y), share)).item()
        ax.plot(y, x, MARKERS[name], color="white", markeredgecolor="black", markersize=9, clip_on=False, zorder=3)
        ax.annotate(
            f"{name}: {value:.2f}",
            (y, x),
            xytext=(-8 if y == 1 else 8, -12 if x == 1 else 8),
            textcoords="offset points",
            ha="right" if y == 1 else "left",
            fontsize="small",
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"},
        )
    ax.set(title=title, xlabel="tn / n", ylabel="tp / p", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, ticks=[0, 0.25, 0.5, 0.75, 1]).add_lines(lines)


def draw_shares(axes: list[Axes], shares: Tensor) -> None:
    """Draw what each measure gives the trivial predictions as the share of the positives changes."""
    counts = torch.stack((torch.stack((1 - shares, 0 * shares), -1), torch.stack((0 * shares, shares), -1)), -2)
    for ax, (name, measure) in zip(axes, MEASURES.items(), strict=True):
        for key, values in trivial(measure, counts).items():
            if key in NAMES:
                dashes, width = LINES[key]  # lines that lie on each other are all seen
                ax.plot(shares, values, dashes, label=NAMES[key], linewidth=width)
        ax.set(title=name, xlabel="share of positives", xlim=(0, 1), ylim=(-1.05, 1.05))
        ax.axhline(0, color="gray", linewidth=0.5)
    axes[0].set_ylabel("value of a prediction that looks at nothing")
    axes[0].legend(loc="lower center")


def exact(positives: int, negatives: int) -> dict[str, tuple[Fraction, Fraction]]:
    """Accuracy and balanced accuracy of the three trivial predictions, as the text derives them."""
    share, half = Fraction(positives, positives + negatives), Fraction(1, 2)
    return {"always positive": (share, half), "always negative": (1 - share, half), "a coin": (half, half)}


def main() -> None:
    given = arguments(__doc__).parse_args()
    results = Results("The accuracy paradox (Vergne 2017)", given.out)

    results.say("## Figure: two averages of tp / p and tn / n, and accuracy")
    figure, axes = plt.subplots(1, 4, figsize=(19, 4.8), layout="constrained")
    draw_plane(axes[0], imbtorch.balanced_accuracy, 0.5, "arithmetic: balanced accuracy\n(any share of positives)")
    draw_plane(axes[1], imbtorch.geometric_mean, 0.5, "geometric: G-mean\n(any share of positives)")
    for ax, share in zip(axes[2:], (0.9, 0.99), strict=True):
        draw_plane(ax, imbtorch.accuracy, share, f"accuracy,\n{100 * share:g}% positives")
    results.picture(figure, "two_averages.png", "Arithmetic and geometric average of the two rates, and accuracy")
    results.say(
        "As the text says: the arithmetic average takes a fully biased prediction for an uninformative one (1/2, as "
        "the coin), the geometric one for a wrong one (0, as the prediction that is always wrong; the coin has 1/2 "
        "there too). Accuracy takes it for a good one, the better the rarer the other class."
    )

    results.say("## What looks at nothing, as one class grows rare")
    figure, axes = plt.subplots(1, len(MEASURES), figsize=(19, 4.2), layout="constrained", sharey=True)
    draw_shares(list(axes), torch.linspace(0.001, 0.999, 499, dtype=torch.float64))
    results.picture(figure, "trivial_predictions.png", "Values of trivial predictions over the share of positives")

    results.say("## Table: 990 positives and 10 negatives")
    counts = torch.tensor([[10, 0], [0, 990]])
    values = {name: trivial(measure, counts) for name, measure in MEASURES.items()}
    rows = []
    for key, name in NAMES.items():
        accuracy, balanced = exact(990, 10)[name]
        rows.append([name, *(values[measure][key].item() for measure in MEASURES), f"{accuracy} and {balanced}"])
    results.table(["prediction", *MEASURES, "accuracy and balanced accuracy in the text"], rows)

    results.say("## Skill: how far from the best of them to the perfect classifier")
    models = {"8 of 10 negatives, 950 of 990 positives": [[8, 2], [40, 950]], "2 of 10 and 985": [[2, 8], [5, 985]]}
    rows = []
    for name, cells in models.items():
        table = torch.tensor(cells)
        rows.append([name, *(f"{m(table):.3f} ({skill(m, table):+.3f})" for m in MEASURES.values())])
    results.table(["right", *MEASURES], rows)
    results.say(
        "In brackets the skill: (value - best trivial) / (1 - best trivial). The first classifier finds the rare class "
        "and has less accuracy than predicting positive throughout; every other measure here puts it above that."
    )
    results.write("accuracy_paradox.md")


if __name__ == "__main__":
    main()
