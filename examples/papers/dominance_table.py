"""The accuracy-dominance space on ten data sets: Figures 1 and 2 and Table 3 of Garcia, Mollineda and Sanchez (2009).

1-NN, a support vector machine and a multi-layer perceptron are trained on ten sets of two classes as they are, with
SMOTE, and randomly under-sampled (RUS) to equal classes, in stratified 10-fold cross-validation, 5 times. The ten
matrices of one cross-validation are summed, and the values of the five sums are averaged. The paper does not say which
it did, but the perceptron's G-mean on glass (0.37 at dominance -0.83) is too large for a mean over folds with one or
two positives each.

The paper used Weka with its default hyper-parameters. Here the classifiers are scikit-learn's, with its defaults but
for what makes them Weka's: one neighbour, and a linear kernel for the support vector machine. Inputs are scaled to
[0, 1], nominal ones as one column for each value. scikit-learn's perceptron (100 hidden units, Adam) is not Weka's;
--weka-mlp trains Weka's own, of perceptron.py, in which two nominal values are one input. Still apart from Weka: its
random numbers, arithmetic in single precision, and SMOTE in scaled inputs; and the folds are drawn anew.

Weka's perceptron comes nearer to the printed one. Over the eight sets without phoneme and satimage, 5 x 10 folds, the
mean absolute differences are 0.018 (G-mean), 0.055 (dominance) and 0.042 (area), and 0.078, 0.144 and 0.120 with
scikit-learn's; scikit-learn's is nearer in the dominance of breast and of pima and in the area of pima. On phoneme
Weka's is off by 0.005, 0.031 and 0.018, on satimage by 0.012, 0.039 and 0.034.

Needs the ten sets in the folder that IMBTORCH_DATA names; without them the figures and the checks of the printed table
are made all the same. With --quick three sets are taken, once, in 5 folds. The full run takes a quarter of an hour or
more; --repeats 1 takes a fifth of it. Weka's perceptron took 9 to 64 seconds of processor time a set, on german 206, on
phoneme 228, on satimage 642; with it --repeats 1 saves less, as repeats are trained together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from common import SOURCES, Results, arguments, load_binary, missing, stop
from imblearn.over_sampling import SMOTE
from imblearn.under_sampling import RandomUnderSampler
from matplotlib import pyplot as plt
from perceptron import train_networks, without_complements
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from torch import Tensor
from tqdm import tqdm

import imbtorch
from imbtorch.papers import plot_accuracy_dominance

CLASSIFIERS = {
    "1-NN": lambda seed: KNeighborsClassifier(n_neighbors=1),
    "SVM": lambda seed: SVC(kernel="linear"),
    "MLP": lambda seed: MLPClassifier(random_state=seed),
}
RESAMPLERS = {"original": None, "SMOTE": SMOTE, "RUS": RandomUnderSampler}
QUICK = ("Glass", "Pima", "Vehicle")
# Table 3: G-mean, dominance and area of the original set, with SMOTE, and with random under-sampling
PRINTED = {
    "1-NN": {
        "Breast": (0.59, -0.31, 0.79, 0.60, -0.24, 0.83, 0.60, 0.05, 0.92),
        "Ecoli": (0.70, -0.43, 0.90, 0.83, -0.14, 1.19, 0.85, 0.04, 1.30),
        "German": (0.59, -0.31, 0.79, 0.61, -0.16, 0.86, 0.61, 0.02, 0.93),
        "Glass": (0.55, -0.63, 0.65, 0.71, -0.32, 0.95, 0.69, 0.12, 1.08),
        "Haberman": (0.50, -0.44, 0.64, 0.55, -0.24, 0.77, 0.55, -0.07, 0.81),
        "Phoneme": (0.87, -0.14, 1.25, 0.88, -0.09, 1.28, 0.87, 0.00, 1.30),
        "Pima": (0.64, -0.27, 0.88, 0.68, -0.11, 0.98, 0.68, -0.05, 1.00),
        "Satimage": (0.82, -0.26, 1.13, 0.90, -0.03, 1.33, 0.87, 0.06, 1.34),
        "Vehicle": (0.62, -0.39, 0.81, 0.66, -0.19, 0.94, 0.71, -0.01, 1.06),
        "Yeast": (0.63, -0.34, 0.83, 0.65, -0.20, 0.91, 0.66, -0.02, 0.98),
    },
    "SVM": {
        "Breast": (0.55, -0.52, 0.69, 0.65, -0.02, 0.97, 0.64, -0.04, 0.95),
        "Ecoli": (0.00, -1.00, 0.00, 0.88, 0.04, 1.33, 0.85, 0.19, 1.35),
        "German": (0.65, -0.41, 0.85, 0.72, 0.01, 1.09, 0.71, 0.02, 1.07),
        "Glass": (0.00, -1.00, 0.00, 0.55, 0.60, 1.00, 0.55, 0.59, 0.98),
        "Haberman": (0.00, -1.00, 0.00, 0.56, -0.56, 0.69, 0.56, -0.49, 0.70),
        "Phoneme": (0.70, -0.28, 0.95, 0.75, 0.10, 1.16, 0.75, 0.09, 1.15),
        "Pima": (0.94, -0.36, 1.24, 0.74, -0.06, 1.09, 0.74, -0.07, 1.09),
        "Satimage": (0.00, -1.00, 0.00, 0.70, 0.43, 1.20, 0.68, 0.47, 1.19),
        "Vehicle": (0.00, -1.00, 0.00, 0.74, 0.08, 1.15, 0.72, 0.07, 1.10),
        "Yeast": (0.42, -0.79, 0.47, 0.71, 0.05, 1.08, 0.71, 0.06, 1.08),
    },
    "MLP": {
        "Breast": (0.56, -0.48, 0.70, 0.57, -0.30, 0.77, 0.58, -0.02, 0.86),
        "Ecoli": (0.83, -0.24, 1.14, 0.88, -0.09, 1.29, 0.87, 0.05, 1.32),
        "German": (0.64, -0.31, 0.86, 0.66, -0.12, 0.95, 0.67, 0.00, 1.00),
        "Glass": (0.37, -0.83, 0.40, 0.74, -0.32, 1.00, 0.75, 0.07, 1.15),
        "Haberman": (0.49, -0.65, 0.57, 0.63, -0.01, 0.95, 0.63, -0.03, 0.93),
        "Phoneme": (0.78, -0.13, 1.12, 0.81, 0.10, 1.26, 0.81, 0.11, 1.26),
        "Pima": (0.68, -0.31, 0.92, 0.73, 0.03, 1.10, 0.72, -0.04, 1.07),
        "Satimage": (0.78, -0.33, 1.05, 0.86, -0.13, 1.24, 0.87, 0.04, 1.32),
        "Vehicle": (0.75, -0.29, 1.01, 0.78, -0.10, 1.13, 0.78, 0.00, 1.17),
        "Yeast": (0.67, -0.35, 0.88, 0.71, -0.04, 1.05, 0.69, -0.03, 1.03),
    },
}
WAYS = list(product(CLASSIFIERS, RESAMPLERS))
LABELS = [f"{classifier} {way}" for classifier, way in WAYS]


def printed(name: str) -> Tensor:
    """The paper's nine results of one data set: ``[9, 3]`` of G-mean, dominance and area."""
    return torch.tensor([PRINTED[classifier][name] for classifier in CLASSIFIERS], dtype=torch.float64).reshape(9, 3)


def check_printed(results: Results) -> None:
    """What can be said of the printed table without any data."""
    results.say("## The printed table")
    fits, infeasible, no_better = 0, [], []
    for name in SOURCES:
        table = printed(name)
        for label, (gmean, dominance, area) in zip(LABELS, table.tolist(), strict=True):
            corners = [(gmean + g) * (dominance + d + 3) / 2 for g in (-0.005, 0.005) for d in (-0.005, 0.005)]
            fits += min(corners) - 0.005 <= area <= max(corners) + 0.005
            if gmean - 0.005 > math.sqrt(min(1.0, 1.005 - abs(dominance))):
                most = math.sqrt(1 - abs(dominance))
                infeasible.append(f"{label} on {name} (G-mean {gmean} at dominance {dominance}, at most {most:.2f})")
        for label, area, before in zip(LABELS, table[:, 2].tolist(), table[::3, 2].repeat_interleave(3), strict=True):
            if not label.endswith("original") and area <= before:
                no_better.append(f"{label} on {name}")
    results.say(f"Area = G-mean (dominance + 3) / 2 explains {fits} of the 90 areas within the rounding of all three.")
    results.say(f"Outside the feasible region, so it cannot be right: {'; '.join(infeasible)}.")
    results.say(
        "The paper says that resampling enlarges the area in all cases. In its table it does not for "
        f"{', '.join(no_better)}, the cells that are compared with the infeasible one."
    )


def draw(results: Results, found: dict[str, Tensor]) -> None:
    """Figure 1, and Figure 2 from the printed numbers and from those found here."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
    plot_accuracy_dominance(None, axes[0])
    axes[0].set_title("Feasible region and lines of equal area")
    plot_accuracy_dominance(torch.tensor([[0.0, 1.0]]), axes[1], labels=["perfect"])
    axes[1].set_title("The largest trapezium, 1.5")
    results.picture(figure, "dominance_space.png", "Figure 1: accuracy-dominance space")
    figure, axes = plt.subplots(1 + bool(found), 3, figsize=(17, 5.4 * (1 + bool(found))), layout="constrained")
    panels = [("paper", {name: printed(name) for name in QUICK})]
    if found:
        panels.append(("here", found))
    for row, (source, tables) in zip(axes.reshape(-1, 3), panels, strict=True):
        for ax, name in zip(row, ("Glass", "Vehicle", "Pima"), strict=True):
            if name not in tables:
                ax.axis("off")
                continue
            plot_accuracy_dominance(tables[name][:, [1, 0]], ax, labels=LABELS)
            ax.set_title(f"{name}, {source}")
    results.picture(figure, "dominance_points.png", "Figure 2: nine methods on three data sets")


class Fold(NamedTuple):
    """One fit: inputs are scaled to [0, 1] on the training set, which is resampled then."""

    repeat: int
    inputs: np.ndarray
    target: np.ndarray
    test_inputs: np.ndarray
    test_target: np.ndarray


def cross_validations(inputs: np.ndarray, target: np.ndarray, way: str, repeats: int, folds: int) -> Iterator[Fold]:
    """The folds of all cross-validations."""
    for repeat in range(repeats):
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=repeat).split(inputs, target):
            scaler = MinMaxScaler().fit(inputs[train])
            sample, labels = scaler.transform(inputs[train]), target[train]
            resampler = RESAMPLERS[way]
            if resampler is not None:
                sample, labels = resampler(random_state=repeat).fit_resample(sample, labels)
            yield Fold(repeat, sample, labels, scaler.transform(inputs[test]), target[test])


def predictions(classifier: str, weka: bool, parts: Iterator[Fold]) -> Iterator[tuple[Fold, np.ndarray]]:
    """Each fold with the classes that are predicted for its test set."""
    if weka and classifier == "MLP":
        everything = list(parts)
        networks = train_networks([part.inputs for part in everything], [part.target for part in everything], seed=0)
        for part, network in zip(everything, networks, strict=True):
            yield part, network.predict(part.test_inputs)
    else:
        for part in parts:
            yield part, CLASSIFIERS[classifier](part.repeat).fit(part.inputs, part.target).predict(part.test_inputs)


def experiment(name: str, repeats: int, folds: int, weka: bool, bar: tqdm) -> Tensor:
    """The nine results of one data set: ``[9, 3]`` of G-mean, dominance and area."""
    inputs, target = load_binary(name)
    rows = []
    for classifier, way in WAYS:
        bar.set_description(f"{name} {classifier} {way}")
        coded = without_complements(inputs) if weka and classifier == "MLP" else inputs
        counts = torch.zeros(repeats, 2, 2, dtype=torch.int64)
        parts = cross_validations(coded, target, way, repeats, folds)
        for part, predicted in predictions(classifier, weka, parts):
            tested = torch.from_numpy(part.test_target)
            counts[part.repeat] += imbtorch.confusion_matrix(torch.from_numpy(predicted), tested, "binary")
            bar.update()
        measures = (imbtorch.geometric_mean, imbtorch.dominance, imbtorch.accuracy_dominance_area)
        rows.append(torch.stack([measure(counts).mean() for measure in measures]))
    return torch.stack(rows)


def compare(results: Results, found: dict[str, Tensor], how: str) -> None:
    """Table 3 beside the paper's, and what follows from it."""
    results.say(f"## Table 3: {how}")
    columns = [f"{key} {way}" for way in RESAMPLERS for key in ("G-mean", "dominance", "area")]
    names = list(found)
    here, paper = torch.stack(list(found.values())), torch.stack([printed(name) for name in names])
    for index, classifier in enumerate(CLASSIFIERS):
        results.say(f"### {classifier}: here / paper")
        part = slice(3 * index, 3 * index + 3)
        rows = []
        for name, ours, theirs in zip(names, here[:, part].flatten(1), paper[:, part].flatten(1), strict=True):
            pairs = zip(ours.tolist(), theirs.tolist(), strict=True)
            cells = [f"{round(one, 2) + 0.0:.2f} / {other:.2f}" for one, other in pairs]  # no -0.00
            rows.append([name, *cells])
        results.table(["", *columns], rows)
        apart = here[:, part] - paper[:, part]
        where = int(apart[..., 2].abs().argmax())
        results.say(
            f"Mean absolute difference: G-mean {apart[..., 0].abs().mean():.3f}, dominance "
            f"{apart[..., 1].abs().mean():.3f}, area {apart[..., 2].abs().mean():.3f}. Largest difference of an area: "
            f"{apart[..., 2].flatten()[where]:+.2f}, {names[where // 3]} {list(RESAMPLERS)[where % 3]}."
        )
    for source, table in (("here", here), ("in the paper", paper)):
        areas = table[..., 2].reshape(len(names), 3, 3)
        larger = (areas[..., 1:] > areas[..., :1]).sum(0)
        text = ", ".join(
            f"{classifier} SMOTE {smote} RUS {rus}"
            for classifier, (smote, rus) in zip(CLASSIFIERS, larger.tolist(), strict=True)
        )
        results.say(f"Sets of {len(names)} whose area is larger than the original's, {source}: {text}.")
    if "Pima" in found:
        gmean, dominance, _ = found["Pima"][LABELS.index("SVM original")].tolist()
        results.say(
            f"The infeasible cell, SVM on Pima as it is, comes out as G-mean {gmean:.2f} at dominance {dominance:.2f}."
        )
    best = [
        f"{name} {LABELS[int(one[:, 2].argmax())]} ({LABELS[int(other[:, 2].argmax())]})"
        for name, one, other in zip(names, here, paper, strict=True)
    ]
    results.say(f"Largest area here (in the paper): {'; '.join(best)}.")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="cross-validations (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", choices=list(SOURCES), help="data sets (default: all, with --quick three)")
    parser.add_argument("--weka-mlp", action="store_true", help="Weka's perceptron, not scikit-learn's")
    given = parser.parse_args()
    results = Results("The accuracy-dominance space (Garcia, Mollineda and Sanchez 2009)", given.out)
    check_printed(results)
    names = tuple(given.sets or (QUICK if given.quick else SOURCES))
    absent = missing(names)
    found = {}
    if absent is None:
        warnings.simplefilter("ignore", ConvergenceWarning)  # default hyper-parameters are part of the experiment
        repeats, folds = (1, 5) if given.quick else (given.repeats, 10)
        with tqdm(total=len(names) * len(WAYS) * repeats * folds, unit="fit") as bar:
            for name in names:
                found[name] = experiment(name, repeats, folds, given.weka_mlp, bar)
    draw(results, found)
    if absent is None:
        perceptron = "Weka's MLP" if given.weka_mlp else "MLP with scikit-learn's defaults"
        compare(results, found, f"{repeats} x {folds}-fold cross-validation, {perceptron}")
    results.write("dominance_table.md")
    if absent is not None:
        stop(f"Table 3. {absent}")


if __name__ == "__main__":
    main()
