"""What sweeps over all measures share: cases of a measure, averages, metrics and batches."""

import functools
import random
from html.parser import HTMLParser
from typing import Any, NamedTuple

import numpy as np
import oracles
import pytest
import torch
from hypothesis import strategies as st
from oracles import FACTS, OF_EACH, OF_POSITIVE, OF_TWO
from sklearn import metrics as sklearn_metrics
from torch import Tensor

import imbtorch
from imbtorch import Margins

TASKS = ("binary", "multiclass", "multilabel")
SIZES = range(1, 13)
PER_CLASS = ("macro", "weighted", "none", "min")
POOLED = (*PER_CLASS, "micro", "binary")
AVERAGES = {
    name: {OF_EACH: PER_CLASS, OF_POSITIVE: POOLED}[facts.kind]
    for name, facts in FACTS.items()
    if facts.kind in (OF_EACH, OF_POSITIVE)
}

# metrics on which what does not depend on the formula is tested: the matrix, one per class, one of two classes with a
# function as argument, one with a tensor as argument
STATES = ("ConfusionMatrix", "Recall", "IndexBalancedAccuracy", "ExpectedCost")

OWN_ARGUMENTS = {
    "FScore": {"beta": 2.0},
    "GeometricMean": {"correction": 0.1},
    "NetBenefit": {"threshold": 0.5},
    "IndexBalancedAccuracy": {"measure": imbtorch.balanced_accuracy, "alpha": 0.3},
    "WeightedAccuracy": {"alpha": 0.7},
}


def of_kind(*kinds: str) -> list[str]:
    """Names of the measures of these kinds."""
    return [name for name, facts in FACTS.items() if facts.kind in kinds]


NEED_MATRIX = [name for name, facts in FACTS.items() if not facts.margins]


# --- a measure and its arguments ------------------------------------------------------------------------------------


class Case(NamedTuple):
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.arguments.items())])

    @property
    def facts(self) -> oracles.Facts:
        return FACTS[self.name]

    @property
    def binary(self) -> bool:
        return self.facts.kind == OF_TWO or self.arguments.get("average") == "binary" or "costs" in self.arguments

    @property
    def needs_matrix(self) -> bool:
        return not self.facts.margins or bool(self.arguments.get("weights"))

    def sizes(self, sizes=SIZES) -> list[int]:
        return [size for size in sizes if size == 2 or not self.binary]

    def complete(self, size: int) -> dict[str, Any]:
        """Arguments, those included that the measure cannot do without."""
        return self.facts.required(size) | self.arguments

    def ready(self, size: int) -> dict[str, Any]:
        """Arguments as the function takes them."""
        arguments = self.complete(size)
        if "measure" in arguments:
            arguments["measure"] = getattr(imbtorch, arguments["measure"]).measure
        if "costs" in arguments:
            arguments["costs"] = torch.tensor(arguments["costs"])
        return arguments

    def ours(self, counts: Any) -> Tensor:
        size = (counts.correct if isinstance(counts, Margins) else counts).shape[-1]
        return getattr(imbtorch, self.name).measure(counts, **self.ready(size))

    def exact(self, matrix: oracles.Matrix) -> Any:
        return oracles.exact(self.name, matrix, **self.complete(len(matrix)))

    def reference(self, matrix: oracles.Matrix) -> Any:
        return oracles.number(self.exact(matrix))


DEFAULTS = [Case(name, {}) for name in FACTS]
MEANS = [case for case in DEFAULTS if case.name not in AVERAGES]
MEANS += [Case(name, {"average": average}) for name, averages in AVERAGES.items() for average in averages]
MEANS += [Case("FScore", {"beta": b, "average": a}) for b, a in zip((0, 0.5, 3, 2, 0.5, 3), POOLED, strict=True)]
MEANS += [Case("GeometricMean", {"correction": correction}) for correction in (0.001, 1)]
MEANS += [Case("CohenKappa", {"weights": weights}) for weights in ("linear", "quadratic")]
MEANS += [Case("LikelihoodRatio", {"positive": False})]
MEANS += [Case("NetBenefit", {"threshold": threshold}) for threshold in (0, 0.5, 0.9)]
MEANS += [Case("WeightedAccuracy", {"alpha": alpha}) for alpha in (0, 0.3, 1)]
MEANS += [Case("IndexBalancedAccuracy", {"alpha": alpha}) for alpha in (0, 0.5, 1)]
MEANS += [
    Case("IndexBalancedAccuracy", {"measure": measure, "alpha": 0.08})
    for measure in ("Accuracy", "FScore", "ClassBalanceAccuracy")
]
MEANS += [Case("ExpectedCost", {"costs": [[-1, 2], [5, 0]]})]
MEANS += [Case("ExpectedCost", {"normalize": "baseline"})]
MEANS += [Case("ExpectedCost", {"costs": [[1, -2], [5, 6]], "normalize": "baseline"})]
TOTAL = Case("ExpectedCost", {"normalize": False})
CASES = [*MEANS, Case("IndexBalancedAccuracy", {"measure": "MatthewsCorrCoef"}), TOTAL]


def close(value: Tensor, expected: Any, tolerance: float = 1e-9) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


# --- metrics and batches --------------------------------------------------------------------------------------------


def averages(name: str, task: str) -> tuple[str, ...]:
    """Averages that a metric takes."""
    kind, means = FACTS[name].kind, PER_CLASS[:-1]
    if task == "multilabel":
        return (*(PER_CLASS if name in AVERAGES else means), "micro")
    if kind == OF_POSITIVE:
        return POOLED if task == "binary" else POOLED[:-1]
    if kind == OF_EACH:
        return PER_CLASS
    return means if kind == OF_TWO and task == "multiclass" else ()


def resolved(name: str, task: str, average: str) -> str:
    """The average that "auto" stands for."""
    if average != "auto":
        return average
    return "binary" if task == "binary" and name in of_kind(OF_POSITIVE) else "macro"


def layouts(name: str, task: str) -> tuple[str, ...]:
    """Layouts of the state that serve a metric."""
    lean = task == "multiclass" and name in FACTS and FACTS[name].margins
    return ("matrix", "margins") if lean else ("matrix",)


def own_arguments(name: str, classes: int) -> dict[str, Any]:
    """Arguments of a metric that its measure gets."""
    return (FACTS[name].required(classes) if name in FACTS else {}) | OWN_ARGUMENTS.get(name, {})


def build(name: str, task: str, size: int = 5, **kwargs: Any) -> imbtorch.ConfusionMatrixMetric:
    sizes = {"binary": {}, "multiclass": {"num_classes": size}, "multilabel": {"num_labels": size}}[task]
    own = own_arguments(name, size if task == "multiclass" else 2)
    return getattr(imbtorch, name)(task, **sizes, **own, **kwargs)


def batch(task: str, size: int = 5, samples: int = 120, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores and targets in which every class, or label, occurs."""
    generator = torch.Generator().manual_seed(seed)
    if task == "multiclass":
        target = torch.arange(samples)[torch.randperm(samples, generator=generator)] % size
        noise = torch.rand(samples, size, generator=generator)
        return noise + torch.eye(size)[target] * torch.rand(samples, 1, generator=generator), target
    shape = (samples, size) if task == "multilabel" else (samples,)
    target = (torch.rand(shape, generator=generator) < 0.3).long()
    return (torch.rand(shape, generator=generator) + 0.4 * target).clamp(max=1.0), target


# --- matrices -------------------------------------------------------------------------------------------------------


def special_matrices(size: int) -> list[list[list[int]]]:
    """Empty, one sample, diagonal, always wrong, one class in targets or predictions, absent classes, huge."""
    last = size - 1
    formulas = [
        lambda i, j: 0,
        lambda i, j: i == j == 0,
        lambda i, j: i == j == last,
        lambda i, j: (i, j) == (0, last),
        lambda i, j: (i, j) == (last, 0),
        lambda i, j: (i + 1) * (i == j),
        lambda i, j: (i + 1) % size == j,
        lambda i, j: j + 1,
        lambda i, j: (i == 0) * (j + 1),
        lambda i, j: (i == last) * (j + 1),
        lambda i, j: (j == 0) * (i + 1),
        lambda i, j: (j == last) * (i + 1),
        lambda i, j: (i != last) * (i + 2 * j + 1),
        lambda i, j: (j != last) * (2 * i + j + 1),
        lambda i, j: (i != last and j != last) * (i + j + 1),
        lambda i, j: (i != j) * (3 * i + j),
        lambda i, j: (i != j or i == 0) * (i + 2 * j),
        lambda i, j: 10**12 * (i == j),
        lambda i, j: 10**12 if i == j == 0 else i + j,
        lambda i, j: 10**12 - i * j,
    ]
    return [[[int(formula(i, j)) for j in range(size)] for i in range(size)] for formula in formulas]


def random_matrix(rng: random.Random, size: int, largest: tuple[int, ...]) -> list[list[int]]:
    most, zeros, skill = rng.choice(largest), rng.choice((0.0, 0.2, 0.5, 0.8, 0.95)), rng.choice((1, 1, 5, 50))
    matrix = [[0 if rng.random() < zeros else rng.randint(0, most) for _ in range(size)] for _ in range(size)]
    if rng.random() < 0.3:  # imbalance
        matrix = [[count // 10 ** rng.randrange(6) for count in row] for row in matrix]
    for k in range(size):
        matrix[k][k] *= skill if most < 10**12 else 1
    if rng.random() < 0.2:  # a class without targets
        matrix[rng.randrange(size)] = [0] * size
    if rng.random() < 0.2:  # a class without predictions
        gone = rng.randrange(size)
        for row in matrix:
            row[gone] = 0
    return matrix


@functools.cache
def pool(size: int) -> list[list[list[int]]]:
    rng, largest = random.Random(size), (1, 3, 30, 1000, 10**6, 10**12)
    return special_matrices(size) + [random_matrix(rng, size, largest) for _ in range(1000 if size == 2 else 50)]


@functools.cache
def small_pool(size: int) -> list[list[list[int]]]:
    """Few enough samples to list them for a peer."""
    rng = random.Random(size)
    dense = [[[rng.randint(1, 20) for _ in range(size)] for _ in range(size)] for _ in range(4)]
    return special_matrices(size)[:-3] + [random_matrix(rng, size, (1, 3, 30)) for _ in range(5)] + dense


class_counts = st.integers(1, 12)
cells = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 10**12))


@st.composite
def matrices(draw, sizes=class_counts, cells=cells):
    size = draw(sizes)
    row = st.lists(cells, min_size=size, max_size=size)
    return draw(st.lists(row, min_size=size, max_size=size))


def margins_of(counts: Tensor) -> Margins:
    return Margins(counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1), counts.sum(-2))


def forms(case: Case, counts: Tensor) -> list[Any]:
    """Counts as a matrix and, where that suffices, as margins."""
    return [counts] if case.needs_matrix else [counts, margins_of(counts)]


GARCIA = {  # Table 4 of García et al. (2010): measures and the changes that they notice
    "accuracy": (imbtorch.accuracy, "+---"),
    "AUC": (imbtorch.balanced_accuracy, "+---"),
    "Gmean": (imbtorch.geometric_mean, "+---"),
    "OP": (imbtorch.optimized_precision, "+---"),
    "TPrate": (lambda c: imbtorch.recall(c, "binary"), "-++-"),
    "TNrate": (lambda c: imbtorch.specificity(c, "binary"), "----"),
    "dominance": (imbtorch.dominance, "----"),
    "area": (imbtorch.accuracy_dominance_area, "----"),
    "IBA": (imbtorch.index_balanced_accuracy, "----"),
}


class _Notebook(HTMLParser):
    """Texts of a table and of the paragraphs below it, as a browser shows them."""

    def __init__(self):
        super().__init__()
        self.rows, self.notes, self.texts = [], [], None

    def handle_starttag(self, tag, attrs):
        assert tag in ("table", "tr", "th", "td", "p"), tag  # others come from names that were not escaped
        assert not attrs
        if tag == "tr":
            self.rows.append([])
        elif tag != "table":
            self.texts = self.notes if tag == "p" else self.rows[-1]
            self.texts.append("")

    def handle_data(self, data):
        self.texts[-1] += data


def shown_in_notebook(result):
    """Return rows of cells and notes of what a notebook shows of a result."""
    parser = _Notebook()
    parser.feed(result._repr_html_())
    return parser.rows, parser.notes


def joined(batches):
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def over_labels(values, average, weights):
    """Mean over labels (or one-vs-rest classes) in plain Python; the lowest of those with targets."""
    if average == "min":
        return min(value for value, weight in zip(values, weights, strict=True) if weight)
    return np.average(values, weights=weights if average == "weighted" else None)


def expected(name, task, average, preds, target):
    """Measure of scikit-learn's confusion matrix."""
    size = preds.shape[1] if task != "binary" else 2
    labels = preds.argmax(1) if task == "multiclass" else (preds > 0.5).long()
    if name == "ConfusionMatrix":
        prefix = "multilabel_" if task == "multilabel" else ""
        return getattr(sklearn_metrics, f"{prefix}confusion_matrix")(target, labels)
    cls, own = getattr(imbtorch, name), own_arguments(name, size if task == "multiclass" else 2)
    if "costs" in own:
        own = {"costs": torch.tensor(own["costs"])}

    def measured(matrix, average):
        if name in AVERAGES:
            own["average"] = average
        return cls.measure(torch.as_tensor(matrix), **own)

    if task == "multilabel" or (task == "multiclass" and name in of_kind(OF_TWO)):
        inner = "binary" if name in of_kind(OF_POSITIVE) else "macro"
        ranks = range(size) if task == "multiclass" else None
        matrices = sklearn_metrics.multilabel_confusion_matrix(target, labels, labels=ranks)
        if average == "micro":
            return measured(matrices.sum(0), inner)
        values = torch.stack([measured(matrix, inner) for matrix in matrices])
        return values if average == "none" else over_labels(values.tolist(), average, matrices[:, 1].sum(1))
    matrix = sklearn_metrics.confusion_matrix(target, labels, labels=range(size))
    return measured(matrix, average)


def assert_equal(value, wanted, tolerance=2e-6, case=""):
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    limits = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    torch.testing.assert_close(value.double(), wanted, **limits, msg=lambda text: f"{case}\n{text}")


def multiclass(preds, target, name="ConfusionMatrix", size=3, **kwargs):
    """A metric that has seen one batch of class indices."""
    metric = build(name, "multiclass", size, **kwargs)
    metric.update(torch.tensor(preds), torch.tensor(target))
    return metric


FOUR_METRICS = pytest.mark.parametrize("name", STATES)
EVERY_TASK = pytest.mark.parametrize("task", TASKS)
