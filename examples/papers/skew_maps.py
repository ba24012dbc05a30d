"""Which class a measure favours: tables and figures of Liu, Ghosh and Martin (2007).

Draws Table 1 (an example of asymmetry), Table 2 (skew ratios in closed form, held against automatic differentiation,
with its misprint), Figure 1 (skew ratios of 100 positives and 100 negatives, logarithmic and linear) and Figure 2
(where they exceed 1 as the negatives grow in number, at sizes that agree with the text, for the paper does not give
them). No data are needed, and with or without --quick it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from common import Results, arguments
from matplotlib import pyplot as plt
from torch import Tensor

import imbtorch
from imbtorch.papers import plot_skew_map, skew, skew_map, skew_ratio
from imbtorch.statistics import partial_auc

Form = Callable[[Tensor, Tensor, float, float], Tensor]  # of true positives and negatives, all positives and negatives

TABLE_1 = {"accuracy": (0.65, 0.65), "precision": (0.62, 0.71), "recall": (0.80, 0.50), "F1": (0.70, 0.59)}
COST = 5.0  # of a false negative; that of a false positive is 1
SIZES = (100, 200, 900, 1900)  # negatives in Figure 2
LEFT, RIGHT = (
    (30.0, 190.0),
    (95.0, 60.0),
)  # true positives and negatives of both neighbours on the ROC curve


def precision(counts: Tensor) -> Tensor:
    return imbtorch.precision(counts, "binary")


def recall(counts: Tensor) -> Tensor:
    return imbtorch.recall(counts, "binary")


def f1(counts: Tensor) -> Tensor:
    return imbtorch.f_score(counts, average="binary")


def total_cost(counts: Tensor) -> Tensor:
    return imbtorch.expected_cost(counts, torch.tensor([[0.0, 1.0], [COST, 0.0]]), normalize=False)


def macro_precision_form(tp: Tensor, tn: Tensor, pos: float, neg: float) -> Tensor:
    n = pos + neg
    above = neg * (pos + tn - tp) ** 2 + tn * n * (neg - pos + 2 * (tp - tn))
    below = pos * (neg + tp - tn) ** 2 + tp * n * (pos - neg + 2 * (tn - tp))
    return above / below


def matrix(tp: Tensor, tn: Tensor, positives: float, negatives: float) -> Tensor:
    return torch.stack((torch.stack((tn, negatives - tn), -1), torch.stack((positives - tp, tp), -1)), -2)


NEIGHBOURS = [matrix(*torch.tensor(each, dtype=torch.float64), 100.0, 200.0) for each in (LEFT, RIGHT)]
TABLE_2: dict[str, tuple[Callable[[Tensor], Tensor], str, Form]] = {
    "accuracy": (imbtorch.accuracy, "1", lambda tp, tn, pos, neg: 1 + 0 * tp),
    f"total cost, c_fn = {COST:g}": (total_cost, "c_fn", lambda tp, tn, pos, neg: COST + 0 * tp),
    "partial AUC": (
        lambda counts: partial_auc(counts, NEIGHBOURS[0], NEIGHBOURS[1]),
        "(tn1 - tn2) / (tp2 - tp1)",
        lambda tp, tn, pos, neg: (LEFT[1] - RIGHT[1]) / (RIGHT[0] - LEFT[0]) + 0 * tp,
    ),
    "three-point AUC": (imbtorch.balanced_accuracy, "n- / n+", lambda tp, tn, pos, neg: neg / pos + 0 * tp),
    "recall": (recall, "infinite", lambda tp, tn, pos, neg: torch.inf + 0 * tp),
    "precision": (precision, "(n- - tn) / tp", lambda tp, tn, pos, neg: (neg - tn) / tp),
    "F1": (f1, "(n - tn) / tp", lambda tp, tn, pos, neg: (pos + neg - tn) / tp),
    "sqrt(precision * recall)": (
        lambda counts: imbtorch.fowlkes_mallows(counts, "binary"),
        "(2 n- + tp - 2 tn) / tp",
        lambda tp, tn, pos, neg: (2 * neg + tp - 2 * tn) / tp,
    ),
    "micro recall": (lambda counts: imbtorch.recall(counts, "micro"), "1", lambda tp, tn, pos, neg: 1 + 0 * tp),
    "macro recall": (imbtorch.recall, "n- / n+", lambda tp, tn, pos, neg: neg / pos + 0 * tp),
    "micro precision": (lambda counts: imbtorch.precision(counts, "micro"), "1", lambda tp, tn, pos, neg: 1 + 0 * tp),
    "macro precision": (imbtorch.precision, "the long form", macro_precision_form),
}


def main() -> None:
    given = arguments(__doc__).parse_args()
    results = Results("Skew of measures (Liu, Ghosh and Martin 2007)", given.out)

    results.say("## Table 1: an example of asymmetry")
    results.say("Of 100 positives and 100 negatives, 80 and 50 are right in case 1, 50 and 80 in case 2.")
    cases = torch.tensor([[[50, 50], [20, 80]], [[80, 20], [50, 50]]])
    measures = {"accuracy": imbtorch.accuracy, "precision": precision, "recall": recall, "F1": f1}
    rows = []
    for name, measure in measures.items():
        rows.append(
            [name, *(f"{ours:.2f} / {paper:.2f}" for ours, paper in zip(measure(cases), TABLE_1[name], strict=True))]
        )
    results.table(["measure", "case 1: here / paper", "case 2: here / paper"], rows)

    results.say("## Table 2: skew ratios")
    positives, negatives = 100.0, 200.0
    tp, tn = torch.meshgrid(
        torch.arange(1, 100, dtype=torch.float64), torch.arange(1, 200, dtype=torch.float64), indexing="ij"
    )
    counts = matrix(tp, tn, positives, negatives)
    rows, at = [], (79, 149)  # 80 true positives, 150 true negatives
    for name, (measure, form, closed) in TABLE_2.items():
        ours, wanted = skew_ratio(measure, counts), closed(tp, tn, positives, negatives)
        apart = torch.where(ours == wanted, 0.0, (ours - wanted).abs() / wanted.abs().clamp(min=1)).max().item()
        rows.append([name, form, ours[at].item(), wanted[at].item(), f"{apart:.0e}"])
    results.table(["measure", "closed form", "by differentiation", "by closed form", "largest difference"], rows)
    misprint = (negatives - tn) / tp
    true, printed = skew_ratio(f1, counts)[at].item(), misprint[at].item()
    results.say(
        "The two middle columns are at 80 of 100 positives and 150 of 200 negatives right; the last is the largest "
        "difference (relative above 1) over all results with at least one right and one wrong sample of each class.\n\n"
        "Misprint: the table of the paper repeats precision's form for F1, (n- - tn) / tp, which would be "
        f"{printed:.3f} here; its text has (n - tn) / tp, which differentiation confirms: {true:.3f}."
    )
    micro = skew(lambda c: imbtorch.recall(c, "micro"), counts)[at]
    results.say(
        f"Misprint: the skew of micro recall is 1 / n = {1 / 300:.5f} (by differentiation {micro[1]:.5f} for the "
        f"positives and {micro[0]:.5f} for the negatives), not 1 / n- = {1 / 200:.5f} as the text says."
    )

    macro = skew(imbtorch.recall, counts)[at]
    results.say(
        "Misprint: the skew of macro recall is by the paper's own eq. 8 1 / (k n_j) with k classes, here "
        f"1 / (2 n+) = {1 / 200:.5f} (by differentiation {macro[1]:.5f}) and 1 / (2 n-) = {1 / 400:.5f} "
        f"({macro[0]:.5f}), not 1 / n_j as the text says; the skew ratio is n- / n+ either way."
    )

    results.say("## Figure 1: skew ratios of 100 positives and 100 negatives")
    results.say(
        "The paper draws precision and F1 by the logarithm and macro precision as it is. Here the upper row has all "
        "three by the logarithm, where x and 1 / x are equally far from 1, the lower row as they are."
    )
    figure, axes = plt.subplots(2, 3, figsize=(15, 9), layout="constrained")
    shown = {"precision": precision, "F1": f1, "macro precision": imbtorch.precision}
    for column, (name, measure) in enumerate(shown.items()):
        ratios = skew_map(measure, 100, 100)
        plot_skew_map(ratios, axes[0, column])
        plot_skew_map(ratios, axes[1, column], kind="linear", limit=4)
        for ax, scale in zip(axes[:, column], ("logarithmic", "linear, up to 4"), strict=True):
            ax.set_title(f"{name}, {scale}")
    results.picture(figure, "skew_ratios.png", "Skew ratios of precision, F1 and macro precision")

    results.say("## Figure 2: where the skew ratio exceeds 1, 100 positives")
    prevalence = ", ".join(f"{100 / (100 + size):.2f}" for size in SIZES)
    results.say(
        "The sizes of the paper's columns are unknown: neither text nor caption names them. The text says that n- "
        "grows from left to right and that only the two right-most columns have a positive prior of at most 0.1, which "
        f"with n+ = 100 takes n- >= 900 twice and fewer before. The sizes here are chosen to agree: n- = "
        f"{', '.join(map(str, SIZES))}, prevalence {prevalence}."
    )
    figure, axes = plt.subplots(2, len(SIZES), figsize=(15, 7), layout="constrained")
    rows, shown = [], {"precision": precision, "macro precision": imbtorch.precision}
    for line, (name, measure) in zip(axes, shown.items(), strict=True):
        shares = []
        for ax, size in zip(line, SIZES, strict=True):
            ratios = skew_map(measure, 100, size)
            plot_skew_map(ratios, ax, kind="indicator")
            ax.set_title(f"{name}, n- = {size}\n{ax.get_title()}", fontsize="medium")
            shares.append((ratios > 1).double().mean().item())
        rows.append([name, *shares])
    results.picture(figure, "skew_indicator.png", "Where precision and macro precision favour the positives")
    results.table(["share with a skew ratio > 1", *(f"n- = {size}" for size in SIZES)], rows, digits=2)
    results.say(
        "The paper shows these shares as pictures alone. "
        "All results from 0 to n are counted, infinite ratios as above 1."
    )
    results.write("skew_maps.md")


if __name__ == "__main__":
    main()
