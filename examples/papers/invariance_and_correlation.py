"""What the index of balanced accuracy sees and goes with: tables and figure of Garcia, Mollineda and Sanchez (2010).

Draws an example in the manner of Table 2 (seven classifiers of the same AUC at an imbalance of 1:10; the paper's rates
are not in the text that was at hand, so these are chosen to fit what it says about them), the first row of Table 3,
Table 4 (invariances) and Figure 1 (correlations over the share of positives). The paper does not say how many samples
its test sets have, and the sign of the correlation of IBA with accuracy depends on it, so n is 200 and 2000 here. No
data are needed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from common import Results, arguments
from matplotlib import pyplot as plt
from torch import Tensor
from tqdm import tqdm

import imbtorch
from imbtorch.papers import (
    SOKOLOVA,
    Correlations,
    invariance_table,
    measure_correlations,
    perturbed_scores,
    plot_correlations,
)

MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "accuracy": imbtorch.accuracy,
    "AUC": imbtorch.balanced_accuracy,  # of a single operating point
    "G-mean": imbtorch.geometric_mean,
    "OP": imbtorch.optimized_precision,
    "IBA": imbtorch.index_balanced_accuracy,
    "TPrate": lambda counts: imbtorch.recall(counts, "binary"),
    "TNrate": lambda counts: imbtorch.specificity(counts, "binary"),
}
OTHERS = {
    "dominance": imbtorch.dominance,
    "area": imbtorch.accuracy_dominance_area,
    "MCC": imbtorch.matthews_corrcoef,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
}
RATES = [(0.60, 0.90), (0.65, 0.85), (0.70, 0.80), (0.75, 0.75), (0.80, 0.70), (0.85, 0.65), (0.90, 0.60)]
TRUE_TUPLE = [0.06, 0.11, 0.17, 0.22, 0.28, 0.33, 0.39, 0.44, 0.50, 0.67, 0.83, 1.00]  # Table 3


def seven(results: Results) -> None:
    """Which of seven classifiers each measure would keep."""
    results.say("## In the manner of Table 2: 100 positives, 1000 negatives, AUC 0.75")
    rates = torch.tensor(RATES, dtype=torch.float64)
    totals = torch.tensor([1000.0, 100.0], dtype=torch.float64)
    right = rates.flip(-1) * totals  # negatives first
    counts = torch.diag_embed(right) + torch.diag_embed(totals - right).flip(-1)
    measures = {name: MEASURES[name] for name in ("accuracy", "AUC", "G-mean", "OP")}
    for alpha in (0.05, 0.1, 0.2):
        measures[f"IBA {alpha:g}"] = lambda c, alpha=alpha: imbtorch.index_balanced_accuracy(c, alpha=alpha)
    values = torch.stack([measure(counts) for measure in measures.values()], 1)
    rows = [
        [f"θ{index + 1}", f"{tpr:.2f}", f"{tnr:.2f}", *line]
        for index, ((tpr, tnr), line) in enumerate(zip(RATES, values.tolist(), strict=True))
    ]
    kept = []
    for column in values.T:
        best = [f"θ{index + 1}" for index in (column >= column.max() - 1e-12).nonzero().flatten().tolist()]
        kept.append("all" if len(best) == len(RATES) else ", ".join(best))
    results.table(["", "TPrate", "TNrate", *measures], [*rows, ["keeps", "", "", *kept]])
    results.say(
        "As the paper has it: AUC cannot choose, accuracy keeps the most lopsided for the majority, G-mean and OP the "
        "balanced one, IBA with a small alpha a moderate one with the better rate on the positives, and alpha = 0.2 "
        "already one that is lopsided the other way."
    )


def invariances(results: Results) -> None:
    """Table 4, with measures that the paper does not have."""
    results.say("## Table 4: what a measure does not see (+)")
    results.say(
        "p1: classes change places; p2: TN changes; p3: FP changes; p4: predicted columns are scaled; I3: TP changes; "
        "I4: FN changes. In brackets the number that Sokolova (2006), whom the paper cites, gives the change. "
        "Class noise, uniform noise: labels are wrong, and the order of models by the measure stays. The columns "
        "behind p4 are not in the paper, nor are the rows from dominance on."
    )
    found = invariance_table(MEASURES | OTHERS).rows
    columns = list(next(iter(found.values())))
    headings = [f"{key} ({SOKOLOVA[key]})" if SOKOLOVA.get(key, key) != key else key for key in columns]
    results.table(["", *headings], [[name, *("+-"[not row[key]] for key in columns)] for name, row in found.items()])
    sees = [name for name, row in found.items() if not any(row[key] for key in ("p1", "p2", "p3", "p4"))]
    results.say(
        "Difference from the paper: it says that IBA alone detects all four changes. So do "
        f"{', '.join(name for name in sees if name != 'IBA')}."
    )


def correlations(results: Results, repeats: int) -> None:
    """Figure 1 at two sizes of the test sets, and the paper's remarks on it."""
    results.say("## Table 3, first row: the true probabilities of 12 samples, a quarter of them positive")
    truth = perturbed_scores(12, 0.25, 0.0, 0.0)[0][0].tolist()
    apart = max(abs(ours - paper) for ours, paper in zip(truth, TRUE_TUPLE, strict=True))
    results.say(
        f"{', '.join(f'{each:.2f}' for each in truth)}; the paper's differ by at most {apart:.3f}, its rounding."
    )
    results.say(f"## Figure 1: correlations of 130 simulated classifiers at each share of positives, {repeats} times")
    first: dict[int, Correlations] = {}
    every: dict[int, list[Tensor]] = {200: [], 2000: []}
    with tqdm(total=repeats * len(every), desc="simulations") as bar:
        for n, found in every.items():
            for seed in range(repeats):
                one = measure_correlations(MEASURES, n=n, generator=torch.Generator().manual_seed(seed))
                first.setdefault(n, one)
                found.append(one.matrix)
                bar.update()
    for n, found in first.items():
        figure, axes = plt.subplots(2, 4, figsize=(15, 7.5), layout="constrained")
        for ax, name in zip(axes.flat, MEASURES, strict=False):
            plot_correlations(found, name, ax)
            ax.get_legend().remove()
        lines = {line.get_label(): line for ax in axes.flat for line in ax.lines if line.get_label() in MEASURES}
        axes.flat[-1].axis("off")
        axes.flat[-1].legend([lines[name] for name in MEASURES], list(MEASURES), loc="center")
        figure.suptitle(f"Test sets of n = {n} samples")
        results.picture(figure, f"correlations_n{n}.png", f"Correlations of measures, n = {n}")
    names = list(MEASURES)
    for n, found in every.items():
        matrices = torch.stack(found)[:, :, names.index("IBA")]  # repeats, shares, measures
        rows = []
        for index, share in enumerate(first[n].shares):
            cells = []
            for name in names:
                if name != "IBA":
                    values = matrices[:, index, names.index(name)]
                    cells.append(f"{values.mean():+.2f} ({values.min():+.2f} to {values.max():+.2f})")
            rows.append([f"{share:.0%}", *cells])
        results.say(f"Correlation with IBA, n = {n}: mean (range) over {repeats} simulations")
        results.table(["positives", *(name for name in names if name != "IBA")], rows)
    remarks(results, {n: torch.stack(found).mean(0) for n, found in every.items()})


def remarks(results: Results, means: dict[int, Tensor]) -> None:
    """How far the paper's remarks on Figure 1 hold."""
    names = list(MEASURES)

    def of(matrices: Tensor, one: str, other: str) -> Tensor:
        return matrices[:, names.index(one), names.index(other)]

    def nearest(m: Tensor, one: str) -> Tensor:
        return torch.stack([of(m, name, one).abs() for name in ("AUC", "G-mean")]).amin(0) > of(m, "IBA", one).abs()

    said = {
        "IBA is negatively correlated with accuracy": lambda m: of(m, "IBA", "accuracy") < 0,
        "and less so than AUC and G-mean are positively": lambda m: nearest(m, "accuracy"),
        "IBA goes with AUC and with G-mean (above 0.8)": lambda m: (
            torch.minimum(of(m, "IBA", "AUC"), of(m, "IBA", "G-mean")) > 0.8
        ),
        "of accuracy, AUC, G-mean, OP and IBA it is IBA that goes with TPrate most": lambda m: (
            torch.stack([of(m, name, "TPrate") for name in names[:5]]).argmax(0) == names.index("IBA")
        ),
        "IBA is negatively correlated with TNrate": lambda m: of(m, "IBA", "TNrate") < 0,
        "AUC and G-mean are positively": lambda m: torch.minimum(of(m, "AUC", "TNrate"), of(m, "G-mean", "TNrate")) > 0,
        "OP goes with accuracy (above 0.6)": lambda m: of(m, "OP", "accuracy") > 0.6,
    }
    results.say("What the paper says of Figure 1, and at how many of the five shares of positives it holds here:")
    rows = [[text, *(f"{int(holds(m).sum())} of {len(m)}" for m in means.values())] for text, holds in said.items()]
    results.table(["remark", *(f"n = {n}" for n in means)], rows)


def main() -> None:
    given = arguments(__doc__).parse_args()
    results = Results("Invariance and correlation of measures (Garcia, Mollineda and Sanchez 2010)", given.out)
    seven(results)
    invariances(results)
    correlations(results, repeats=3 if given.quick else 50)
    results.write("invariance_and_correlation.md")


if __name__ == "__main__":
    main()
