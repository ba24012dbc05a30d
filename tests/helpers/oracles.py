"""Slow, independent references for every measure, what holds of it, and the peers that compute the same.

A reference reads the formula of the paper as loops over a nested list of ints and is exact: ``Fraction`` throughout,
roots and logarithms rounded once, to 50 digits. Undefined values: a class with neither targets nor predictions takes no
part (nan under "none", and at 0/0 under "binary"), a class with one of them counts 0 at 0/0, and counts that are all
zero give nan.
"""

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import imblearn.metrics
import numpy as np
import pycm
import scipy.stats
import sklearn.metrics
import torch
import torchmetrics.functional.classification as tm
from sklearn.dummy import DummyClassifier

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated, by a FutureWarning in torch 2.15
    import torcheval.metrics.functional as torcheval

Matrix = Sequence[Sequence[int]]
Value = Fraction | float | list[Any]

NAN = math.nan
DIGITS = Context(prec=50)


# --- arithmetic -----------------------------------------------------------------------------------------------------


def quotient(numerator: Fraction | int, denominator: Fraction | int) -> Fraction:
    return Fraction(numerator, denominator) if denominator else Fraction(0)


def decimal(x: Fraction | int) -> Decimal:
    x = Fraction(x)
    return DIGITS.divide(Decimal(x.numerator), Decimal(x.denominator))


def root(x: Fraction | int, degree: int = 2) -> Fraction:
    if degree == 2:
        return Fraction(DIGITS.sqrt(decimal(x)))
    return Fraction(DIGITS.power(decimal(x), DIGITS.divide(1, degree))) if x else Fraction(0)


@functools.lru_cache(100_000)
def log(x: Fraction | int) -> Fraction:
    return Fraction(DIGITS.ln(decimal(x)))


def rows(matrix: Matrix) -> list[int]:
    return [sum(row) for row in matrix]


def columns(matrix: Matrix) -> list[int]:
    return [sum(row[j] for row in matrix) for j in range(len(matrix))]


def total(matrix: Matrix) -> int:
    return sum(rows(matrix))


def one_vs_rest(matrix: Matrix) -> list[list[list[int]]]:
    """``[[tn, fp], [fn, tp]]`` of each class, cell by cell."""
    return _one_vs_rest(tuple(map(tuple, matrix)))


@functools.lru_cache(10_000)
def _one_vs_rest(matrix: tuple[tuple[int, ...], ...]) -> list[list[list[int]]]:
    binary = []
    for k in range(len(matrix)):
        cells = [[0, 0], [0, 0]]
        for i, row in enumerate(matrix):
            for j, count in enumerate(row):
                cells[i == k][j == k] += count
        binary.append(cells)
    return binary


# --- of each class, averaged ----------------------------------------------------------------------------------------


def averaged(formula: Callable[..., Fraction], matrix: Matrix, average: str) -> Value:
    """Average a formula of (tp, fn, fp, tn) over the classes that have targets or predictions."""
    cells = [(tp, fn, fp, tn) for (tn, fp), (fn, tp) in one_vs_rest(matrix)]
    present = [k for k, (tp, fn, fp, _) in enumerate(cells) if tp + fn + fp]
    if average == "none":
        return [formula(*cells[k]) if k in present else NAN for k in range(len(cells))]
    if not present:
        return NAN
    if average == "binary":
        value = formula(*cells[1])  # not 0/0 for an absent class if it reads the negatives
        return value if value or 1 in present else NAN
    if average == "min":
        return min((formula(*part) for part in cells if part[0] + part[1]), default=NAN)
    if average == "micro":
        return formula(*(sum(cells[k][part] for k in present) for part in range(4)))
    weights = {k: cells[k][0] + cells[k][1] if average == "weighted" else 1 for k in present}
    return sum(weights[k] * formula(*cells[k]) for k in present) / Fraction(sum(weights.values()))


def precision(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: quotient(tp, tp + fp), matrix, average)


def recall(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: quotient(tp, tp + fn), matrix, average)


def specificity(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: quotient(tn, tn + fp), matrix, average)


def f_score(matrix: Matrix, beta: float = 1, average: str = "macro") -> Value:
    square = Fraction(beta) ** 2

    def formula(tp: int, fn: int, fp: int, tn: int) -> Fraction:
        p, r = quotient(tp, tp + fp), quotient(tp, tp + fn)
        return quotient((1 + square) * p * r, square * p + r)

    return averaged(formula, matrix, average)


def fowlkes_mallows(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: root(quotient(tp, tp + fp) * quotient(tp, tp + fn)), matrix, average)


def jaccard(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: quotient(tp, tp + fn + fp), matrix, average)


def negative_predictive_value(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: quotient(tn, tn + fn), matrix, average)


def class_balance_accuracy(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: Fraction(tp, max(tp + fn, tp + fp)), matrix, average)


def imbalance_accuracy(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: Fraction(tp - max(fn, fp), max(tp + fn, tp + fp)), matrix, average)


# --- of all classes -------------------------------------------------------------------------------------------------


def accuracy(matrix: Matrix) -> Value:
    return Fraction(sum(matrix[k][k] for k in range(len(matrix))), total(matrix)) if total(matrix) else NAN


def recalls(matrix: Matrix) -> list[Fraction]:
    """Recalls of the classes that have targets."""
    return [Fraction(row[k], sum(row)) for k, row in enumerate(matrix) if sum(row)]


def balanced_accuracy(matrix: Matrix) -> Value:
    found = recalls(matrix)
    return sum(found) / len(found) if found else NAN


def geometric_mean(matrix: Matrix, correction: float = 0) -> Value:
    found = [rate or Fraction(correction) for rate in recalls(matrix)]
    return root(math.prod(found), len(found)) if found else NAN


def matthews_corrcoef(matrix: Matrix) -> Value:
    n, r, p = total(matrix), rows(matrix), columns(matrix)
    trace = sum(matrix[k][k] for k in range(len(matrix)))
    covariance = trace * n - sum(a * b for a, b in zip(r, p, strict=True))
    spread = (n * n - sum(a * a for a in r)) * (n * n - sum(b * b for b in p))
    return quotient(covariance, root(spread)) if n else NAN


def entropy(counts: Sequence[int]) -> Fraction:
    n = sum(counts)
    return -sum(Fraction(c, n) * log(Fraction(c, n)) for c in counts if c)


def relative_classifier_information(matrix: Matrix) -> Value:
    if not total(matrix):
        return NAN
    joint = entropy([count for row in matrix for count in row])
    target = entropy(rows(matrix))
    return quotient(target + entropy(columns(matrix)) - joint, target)


def confusion_entropy(matrix: Matrix) -> Value:
    n, r, p = total(matrix), rows(matrix), columns(matrix)
    present = [k for k in range(len(matrix)) if r[k] + p[k]]
    if not n:
        return NAN
    if len(present) == 1:
        return Fraction(0)
    base = log(2 * (len(present) - 1))
    value = Fraction(0)
    for j in present:
        for k in present:
            for count in (matrix[j][k], matrix[k][j]) if k != j else ():
                if count:
                    share = Fraction(count, r[j] + p[j])
                    value -= Fraction(r[j] + p[j], 2 * n) * share * log(share) / base
    return value


def adjusted_balanced_accuracy(matrix: Matrix) -> Value:
    found = recalls(matrix)
    if len(found) < 2:
        return Fraction(0) if found else NAN
    chance = Fraction(1, len(found))
    return (sum(found) / len(found) - chance) / (1 - chance)


def cohen_kappa(matrix: Matrix, weights: str | None = None) -> Value:
    """One minus the disagreement that is found over that of chance, whatever the weights."""
    n, r, p = total(matrix), rows(matrix), columns(matrix)
    if not n:
        return NAN
    found = chance = Fraction(0)
    for i, row in enumerate(matrix):
        for j, count in enumerate(row):
            weight = {None: i != j, "linear": abs(i - j), "quadratic": (i - j) ** 2}[weights]
            found += Fraction(weight * count, n)
            chance += Fraction(weight * r[i] * p[j], n * n)
    return 1 - found / chance if chance else Fraction(0)


def bottom_line(matrix: Matrix) -> Value:
    """The lowest of all five, as the paper has them."""
    five = (accuracy, precision, recall, f_score, class_balance_accuracy)
    return min(measure(matrix) for measure in five) if total(matrix) else NAN


def macro_averaged_absolute_error(matrix: Matrix) -> Value:
    found = [
        sum(Fraction(abs(i - j) * count, sum(row)) for j, count in enumerate(row))
        for i, row in enumerate(matrix)
        if sum(row)
    ]
    return sum(found) / len(found) if found else NAN


def against_baseline(matrix: Matrix, costs: Sequence[Sequence[float]]) -> Value:
    """Cost over that of the best constant prediction, both beyond the least that these targets can cost."""
    if not total(matrix):
        return NAN
    least = sum(n * min(map(Fraction, prices)) for n, prices in zip(rows(matrix), costs, strict=True))
    whole = [[n * Fraction(price) for price in prices] for n, prices in zip(rows(matrix), costs, strict=True)]
    constant = [sum(column) for column in zip(*whole, strict=True)]
    found, spare = expected_cost(matrix, costs, normalize=False) - least, min(constant) - least
    return found / spare if spare else (math.inf if found else Fraction(0))


def expected_cost(matrix: Matrix, costs: Sequence[Sequence[float]], normalize: bool | str = True) -> Value:
    if normalize == "baseline":
        return against_baseline(matrix, costs)
    cost = Fraction(0)
    for row, prices in zip(matrix, costs, strict=True):
        for count, price in zip(row, prices, strict=True):
            cost += count * Fraction(price)
    if not normalize:
        return cost
    return cost / total(matrix) if total(matrix) else NAN


# --- of two classes -------------------------------------------------------------------------------------------------


def rates(matrix: Matrix) -> tuple[Fraction, Fraction] | None:
    """TPR and TNR; each stands in for the other where that has no targets."""
    (tn, fp), (fn, tp) = matrix
    tpr = Fraction(tp, tp + fn) if tp + fn else None
    tnr = Fraction(tn, tn + fp) if tn + fp else None
    if tpr is None and tnr is None:
        return None
    return (tnr if tpr is None else tpr), (tpr if tnr is None else tnr)


def weighted_accuracy(matrix: Matrix, alpha: float = 0.5) -> Value:
    pair = rates(matrix)
    return Fraction(alpha) * pair[0] + (1 - Fraction(alpha)) * pair[1] if pair else NAN


def dominance(matrix: Matrix) -> Value:
    pair = rates(matrix)
    return pair[0] - pair[1] if pair else NAN


def accuracy_dominance_area(matrix: Matrix) -> Value:
    return geometric_mean(matrix) * (dominance(matrix) + 3) / 2


def index_balanced_accuracy(matrix: Matrix, measure: str = "GeometricMean", alpha: float = 0.05) -> Value:
    positive = {"average": "binary"} if FACTS[measure].kind == OF_POSITIVE else {}
    if not total(matrix):
        return NAN
    value = exact(measure, matrix, **positive)
    return (1 + Fraction(alpha) * dominance(matrix)) * (value if value == value else 0)  # an absent class counts 0


def optimized_precision(matrix: Matrix) -> Value:
    pair = rates(matrix)
    if pair is None:
        return NAN
    tpr, tnr = pair
    return accuracy(matrix) - (abs(tnr - tpr) / (tnr + tpr) if tnr + tpr else 1)


def markedness(matrix: Matrix) -> Value:
    (tn, fp), (fn, tp) = matrix
    if not total(matrix):
        return NAN
    return Fraction(tp, tp + fp) + Fraction(tn, tn + fn) - 1 if tp + fp and tn + fn else Fraction(0)


def likelihood_ratio(matrix: Matrix, positive: bool = True) -> Value:
    (tn, fp), (fn, tp) = matrix
    if not total(matrix):
        return NAN
    if not (tp + fn and tn + fp):
        return Fraction(1)
    among_positives = Fraction(tp if positive else fn, tp + fn)
    among_negatives = Fraction(fp if positive else tn, tn + fp)
    if among_negatives:
        return among_positives / among_negatives
    return math.inf if among_positives else Fraction(1)


def net_benefit(matrix: Matrix, threshold: float) -> Value:
    (_, fp), (_, tp) = matrix
    t = Fraction(threshold)
    return (tp - fp * t / (1 - t)) / total(matrix) if total(matrix) else NAN


def p4(matrix: Matrix) -> Value:
    """The harmonic mean, 0 where one of the four is."""
    (tn, fp), (fn, tp) = matrix
    if not total(matrix):
        return NAN
    four = [quotient(tp, tp + fp), quotient(tp, tp + fn), quotient(tn, tn + fp), quotient(tn, tn + fn)]
    return 4 / sum(1 / each for each in four) if all(four) else Fraction(0)


# --- the table of measures ------------------------------------------------------------------------------------------

# what a measure is of
OF_ALL = "all classes"
OF_EACH = "each class, averaged"
OF_POSITIVE = "each class, averaged, or the positive one alone"
OF_TWO = "two classes"


class Facts(NamedTuple):
    """What holds of a measure at its default arguments, stated apart from its metric class."""

    reference: Callable[..., Value]
    kind: str  # OF_ALL, OF_EACH, OF_POSITIVE or OF_TWO
    invariances: str  # signs in the order of the columns of imbtorch.papers.invariance_table
    low: float
    high: float
    perfect: float  # its value where all samples are right
    better: bool | None = True  # whether higher is better; None where neither is
    margins: bool = True  # whether the margins of the matrix suffice
    relabelled: bool = False  # whether predictions can be put in another order, targets kept
    required: Callable[[int], dict[str, Any]] = lambda size: {}  # arguments without default, for so many classes


def prices(size: int) -> list[list[int]]:
    """Costs of which none but those on the diagonal are 0, far errors cost more, and classes differ."""
    return [[(i + 1) * abs(i - j) for j in range(size)] for i in range(size)]


def costs(size: int) -> dict[str, Any]:
    return {"costs": prices(size)}


FACTS: dict[str, Facts] = {
    "AdjustedBalancedAccuracy": Facts(adjusted_balanced_accuracy, OF_ALL, "+--- -- +-++", -1, 1, 1),
    "BottomLine": Facts(bottom_line, OF_ALL, "+--- -- +++-", 0, 1, 1),
    "CohenKappa": Facts(cohen_kappa, OF_ALL, "+--- -- +++-", -1, 1, 1),
    "Jaccard": Facts(jaccard, OF_POSITIVE, "+--- -- +++-", 0, 1, 1),  # c_ii / (r_i + p_i - c_ii)
    "LikelihoodRatio": Facts(likelihood_ratio, OF_TWO, "---- -- --++", 0, math.inf, math.inf),
    "MacroAveragedAbsoluteError": Facts(  # far errors are worse; at most 11 with twelve classes
        macro_averaged_absolute_error, OF_ALL, "+--- -- --++", 0, 11, 0, better=False, margins=False
    ),
    "Markedness": Facts(markedness, OF_TWO, "+--+ -- +-+-", -1, 1, 1),
    "NegativePredictiveValue": Facts(negative_predictive_value, OF_POSITIVE, "+--+ -- +-+-", 0, 1, 1),
    "NetBenefit": Facts(  # least at a threshold of .9; 2/3 of the samples are positives where all are right
        net_benefit, OF_TWO, "---- -- --+-", -9, 1, 2 / 3, required=lambda size: {"threshold": 0.25}
    ),
    "P4": Facts(p4, OF_TWO, "+--- -- +++-", 0, 1, 1),
    "Accuracy": Facts(accuracy, OF_ALL, "+--- -- +++-", 0, 1, 1),
    "AccuracyDominanceArea": Facts(
        accuracy_dominance_area, OF_TWO, "---- -- --++", 0, 1.5, 1.5
    ),  # TPR and TNR differ in it
    "BalancedAccuracy": Facts(balanced_accuracy, OF_ALL, "+--- -- +-++", 0, 1, 1),
    "ClassBalanceAccuracy": Facts(class_balance_accuracy, OF_EACH, "+--- -- +++-", 0, 1, 1),
    "ConfusionEntropy": Facts(confusion_entropy, OF_ALL, "+--- -- +++-", 0, 1.062, 0, better=False, margins=False),
    "Dominance": Facts(dominance, OF_TWO, "---- -- --++", -1, 1, 0, better=None),  # permutation turns its sign round
    "ExpectedCost": Facts(  # TN is in n; the costs of the classes differ
        expected_cost, OF_ALL, "---- -- --+-", -1, 12 * 11, 0, better=False, margins=False, required=costs
    ),
    "FScore": Facts(f_score, OF_POSITIVE, "+--- -- +++-", 0, 1, 1),  # 2 c_ii / (r_i + p_i)
    "FowlkesMallows": Facts(fowlkes_mallows, OF_POSITIVE, "+--- -- +++-", 0, 1, 1),  # c_ii / sqrt(r_i p_i)
    "GeometricMean": Facts(geometric_mean, OF_ALL, "+--- -- +-++", 0, 1, 1),
    "ImbalanceAccuracy": Facts(imbalance_accuracy, OF_EACH, "+--- -- +++-", -1, 1, 1),
    "IndexBalancedAccuracy": Facts(index_balanced_accuracy, OF_TWO, "---- -- --++", 0, 1.05, 1),
    "MatthewsCorrCoef": Facts(matthews_corrcoef, OF_ALL, "+--- -- +++-", -1, 1, 1),
    "OptimizedPrecision": Facts(optimized_precision, OF_TWO, "+--- -- +-+-", -1, 1, 1),  # accuracy sees priors
    "Precision": Facts(precision, OF_POSITIVE, "+--+ -- +-+-", 0, 1, 1),
    "Recall": Facts(recall, OF_POSITIVE, "+--- -- +-++", 0, 1, 1),
    "RelativeClassifierInformation": Facts(  # over the entropy of the targets
        relative_classifier_information, OF_ALL, "+--- -- +-+-", 0, 1, 1, margins=False, relabelled=True
    ),
    "Specificity": Facts(specificity, OF_POSITIVE, "+--- -- +-+-", 0, 1, 1),  # the other classes' priors, from three on
    "WeightedAccuracy": Facts(weighted_accuracy, OF_TWO, "+--- -- +-++", 0, 1, 1),  # balanced accuracy
}


def exact(name: str, matrix: Matrix, **arguments: Any) -> Value:
    """Exact value of a measure by its name."""
    return FACTS[name].reference(matrix, **arguments)


def number(value: Value) -> Any:
    """Floats of a reference's value."""
    return [number(v) for v in value] if isinstance(value, list) else float(value)


# --- peers ----------------------------------------------------------------------------------------------------------
# A peer is a function of the matrix beside the measure that it should equal, on the matrices where both mean the same.


def nonempty(matrix: Matrix) -> bool:
    return total(matrix) > 0


def hit_classes_have_targets(matrix: Matrix) -> bool:
    return nonempty(matrix) and all(r or not p for r, p in zip(rows(matrix), columns(matrix), strict=True))


def all_classes_have_both(matrix: Matrix) -> bool:
    return all(rows(matrix)) and all(columns(matrix))


def all_classes_present(matrix: Matrix) -> bool:
    return all(r or p for r, p in zip(rows(matrix), columns(matrix), strict=True))


def positive_present(matrix: Matrix) -> bool:
    """Whether the positive class has a value; peers count an absent one 0."""
    return bool(rows(matrix)[1] or columns(matrix)[1])


def all_classes_are_hit(matrix: Matrix) -> bool:
    return all(row[k] for k, row in enumerate(matrix))


def false_alarms_and_positives(matrix: Matrix) -> bool:
    return bool(matrix[0][1]) and any(matrix[1])


def right_negatives_and_positives(matrix: Matrix) -> bool:
    return bool(matrix[0][0]) and any(matrix[1])


def all_cells_filled(matrix: Matrix) -> bool:
    return all(map(all, matrix))


def all_classes_have_targets(matrix: Matrix) -> bool:
    return all(rows(matrix))


def several_classes_have_targets(matrix: Matrix) -> bool:
    return sum(map(bool, rows(matrix))) > 1


class Peer(NamedTuple):
    name: str
    measure: str
    arguments: dict[str, Any]
    value: Callable[[Matrix], Any]
    where: Callable[[Matrix], bool] = nonempty
    binary: bool = False  # for two classes alone
    per_class: bool = False  # equals the binary measure of each class against the rest
    tolerance: float = 1e-9


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Peers warn where a ratio is undefined."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def samples(matrix: Matrix) -> tuple[list[int], list[int]]:
    """Targets and predictions with these counts."""
    cells = [(i, j, count) for i, row in enumerate(matrix) for j, count in enumerate(row)]
    return [i for i, _, count in cells for _ in range(count)], [j for _, j, count in cells for _ in range(count)]


def of_samples(function: Callable[..., Any], **arguments: Any) -> Callable[[Matrix], Any]:
    """As scikit-learn and imbalanced-learn take them: targets, predictions."""
    return lambda matrix: function(*samples(matrix), **arguments)


def of_tensors(function: Callable[..., Any], sized: bool = True, **arguments: Any) -> Callable[[Matrix], Any]:
    """As torchmetrics and torcheval take them: predictions, targets, number of classes."""

    def value(matrix: Matrix) -> Any:
        target, preds = (torch.tensor(labels) for labels in samples(matrix))
        size = {"num_classes": len(matrix)} if sized else {}
        return function(preds, target, **size, **arguments).tolist()

    return value


@functools.lru_cache
def _pycm(matrix: tuple[tuple[int, ...], ...]) -> pycm.ConfusionMatrix:
    return pycm.ConfusionMatrix(matrix=[list(row) for row in matrix])


def of_pycm(statistic: str | Callable[[pycm.ConfusionMatrix], Any]) -> Callable[[Matrix], Any]:
    """One of PyCM's statistics: a name, of all or of each class, or a call; its string "None" becomes nan."""

    def value(matrix: Matrix) -> Any:
        table = _pycm(tuple(map(tuple, matrix)))
        found = table.__dict__ | table.overall_stat
        result = found[statistic] if isinstance(statistic, str) else statistic(table)
        if isinstance(result, dict):
            return [NAN if v == "None" else v for v in result.values()]
        return NAN if result == "None" else result

    return value


def _sklearn_peers() -> Iterator[Peer]:
    sk = sklearn.metrics
    yield Peer("accuracy_score", "Accuracy", {}, of_samples(sk.accuracy_score))
    yield Peer("balanced_accuracy_score", "BalancedAccuracy", {}, of_samples(sk.balanced_accuracy_score))
    yield Peer("matthews_corrcoef", "MatthewsCorrCoef", {}, of_samples(sk.matthews_corrcoef))
    for average in ("macro", "weighted", "micro", "binary"):
        shared = {"average": average, "zero_division": 0.0}
        where = positive_present if average == "binary" else nonempty
        for name, function in (("Precision", sk.precision_score), ("Recall", sk.recall_score)):
            value = of_samples(function, **shared)
            yield Peer(f"{name} {average}", name, {"average": average}, value, where, binary=average == "binary")
        for beta in (0, 0.5, 1, 2):
            value = of_samples(sk.fbeta_score, beta=beta, **shared)
            arguments = {"beta": beta, "average": average}
            yield Peer(f"fbeta {beta} {average}", "FScore", arguments, value, where, binary=average == "binary")
    for name, function in (("Precision", sk.precision_score), ("Recall", sk.recall_score), ("FScore", sk.f1_score)):

        def each(matrix: Matrix, function: Any = function) -> Any:
            return function(*samples(matrix), labels=range(len(matrix)), average=None, zero_division=0.0).tolist()

        yield Peer(f"{name} none", name, {"average": "none"}, each, all_classes_present)

    value = of_samples(sk.recall_score, pos_label=0, zero_division=0.0)
    yield Peer("recall of class 0", "Specificity", {"average": "binary"}, value, binary=True)
    value = of_samples(sk.roc_auc_score)
    for name in ("BalancedAccuracy", "WeightedAccuracy"):
        yield Peer("roc_auc_score", name, {}, value, all_classes_have_targets, binary=True)
    value = of_samples(sk.zero_one_loss)
    yield Peer("zero_one_loss", "ExpectedCost", {"costs": [[0, 1], [1, 0]]}, value, binary=True)
    value = of_samples(sk.zero_one_loss, normalize=False)
    arguments = {"costs": [[0, 1], [1, 0]], "normalize": False}
    yield Peer("number of errors", "ExpectedCost", arguments, value, binary=True)

    for average in ("macro", "weighted", "micro", "binary"):
        value = of_samples(sk.jaccard_score, average=average, zero_division=0.0)
        arguments, two = {"average": average}, average == "binary"
        where = positive_present if two else nonempty
        yield Peer(f"jaccard_score {average}", "Jaccard", arguments, value, where, binary=two)
    value = of_samples(sk.balanced_accuracy_score, adjusted=True)
    yield Peer("adjusted", "AdjustedBalancedAccuracy", {}, value, several_classes_have_targets)
    for weights in (None, "linear", "quadratic"):

        def kappa(matrix: Matrix, weights: Any = weights) -> Any:
            return sk.cohen_kappa_score(*samples(matrix), weights=weights, labels=range(len(matrix)))

        yield Peer(f"kappa {weights}", "CohenKappa", {"weights": weights}, kappa, several_classes_have_targets)
    for positive in (True, False):

        def likelihood(matrix: Matrix, positive: bool = positive) -> Any:
            return sk.class_likelihood_ratios(*samples(matrix))[not positive]

        where = false_alarms_and_positives if positive else right_negatives_and_positives
        yield Peer(f"LR {positive}", "LikelihoodRatio", {"positive": positive}, likelihood, where, binary=True)
    value = of_samples(sk.precision_score, pos_label=0, zero_division=0.0)
    yield Peer("precision of class 0", "NegativePredictiveValue", {"average": "binary"}, value, binary=True)

    def trivial(matrix: Matrix) -> float:
        target, preds = samples(matrix)
        constant = (
            DummyClassifier(strategy="most_frequent").fit([[0]] * len(target), target).predict([[0]] * len(target))
        )
        return sk.zero_one_loss(target, preds) / sk.zero_one_loss(target, constant)

    arguments = {"costs": [[0, 1], [1, 0]], "normalize": "baseline"}
    where = several_classes_have_targets
    yield Peer("errors over those of DummyClassifier", "ExpectedCost", arguments, trivial, where, binary=True)

    def lowest(matrix: Matrix) -> float:
        pair = samples(matrix)
        scores = (sk.precision_score, sk.recall_score, sk.f1_score)
        macros = [score(*pair, average="macro", zero_division=0.0) for score in scores]
        return min(sk.accuracy_score(*pair), of_pycm("CBA")(matrix), *macros)

    yield Peer("lowest of five, with PyCM", "BottomLine", {}, lowest, all_classes_present)

    def decision_curve(matrix: Matrix) -> float:  # as the R package dcurves has it: tp_rate, fp_rate times odds
        pair, odds = samples(matrix), 0.2 / 0.8
        hits = sk.recall_score(*pair, zero_division=0.0) * np.mean(pair[0])
        alarms = (1 - sk.recall_score(*pair, pos_label=0, zero_division=1.0)) * (1 - np.mean(pair[0]))
        return hits - odds * alarms

    yield Peer("net benefit of its rates", "NetBenefit", {"threshold": 0.2}, decision_curve, binary=True)

    def information(matrix: Matrix) -> float:
        target, preds = samples(matrix)
        return sk.mutual_info_score(target, preds) / scipy.stats.entropy(rows(matrix))

    yield Peer("mutual_info_score", "RelativeClassifierInformation", {}, information, several_classes_have_targets)
    value = of_samples(sk.homogeneity_score)  # 1 - H(target | prediction) / H(target)
    yield Peer("homogeneity_score", "RelativeClassifierInformation", {}, value, several_classes_have_targets)

    def geometric(matrix: Matrix) -> float:
        target, preds = samples(matrix)
        return math.sqrt(
            sk.precision_score(target, preds, zero_division=0.0) * sk.recall_score(target, preds, zero_division=0.0)
        )

    yield Peer("sqrt(P R)", "FowlkesMallows", {"average": "binary"}, geometric, positive_present, binary=True)


def _imblearn_peers() -> Iterator[Peer]:
    im = imblearn.metrics
    for average in ("macro", "weighted", "micro", "binary"):
        for name, function in (("Recall", im.sensitivity_score), ("Specificity", im.specificity_score)):
            value = of_samples(function, average=average)
            # without a positive sample or prediction imbalanced-learn reports 0 whatever the negatives are
            where = all_classes_present if average == "binary" else nonempty
            yield Peer(f"{name} {average}", name, {"average": average}, value, where, binary=average == "binary")
    for correction in (0.0, 0.001):
        value = of_samples(im.geometric_mean_score, correction=correction)
        arguments = {"correction": correction}
        yield Peer(f"gmean {correction}", "GeometricMean", arguments, value, hit_classes_have_targets)
    for alpha in (0.05, 0.1, 1.0):
        score = im.make_index_balanced_accuracy(alpha=alpha, squared=False)(im.geometric_mean_score)
        value = of_samples(score, average="binary")
        arguments = {"alpha": alpha}
        yield Peer(f"iba {alpha}", "IndexBalancedAccuracy", arguments, value, all_classes_have_targets, binary=True)
        score = im.make_index_balanced_accuracy(alpha=alpha, squared=False)(sklearn.metrics.accuracy_score)
        arguments = {"alpha": alpha, "measure": "Accuracy"}
        value = of_samples(score)
        yield Peer(f"iba {alpha} acc", "IndexBalancedAccuracy", arguments, value, all_classes_have_targets, binary=True)
    value = of_samples(im.macro_averaged_mean_absolute_error)
    yield Peer("mamae", "MacroAveragedAbsoluteError", {}, value, hit_classes_have_targets)
    score = im.make_index_balanced_accuracy(alpha=1 / 3, squared=False)(im.geometric_mean_score)
    area = of_samples(score, average="binary")
    where = all_classes_have_targets
    yield Peer("1.5 iba 1/3", "AccuracyDominanceArea", {}, lambda m: 1.5 * area(m), where, binary=True)
    sensitivity = of_samples(im.sensitivity_score, average="binary")
    specificity = of_samples(im.specificity_score, average="binary")
    yield Peer("dominance", "Dominance", {}, lambda m: sensitivity(m) - specificity(m), where, binary=True)


def _pycm_peers() -> Iterator[Peer]:
    overall = {
        "Overall ACC": ("Accuracy", {}, nonempty),
        "Overall MCC": ("MatthewsCorrCoef", {}, all_classes_have_both),
        "Overall CEN": ("ConfusionEntropy", {}, all_classes_present),
        "Kappa": ("CohenKappa", {}, all_classes_have_both),
        "RCI": ("RelativeClassifierInformation", {}, several_classes_have_targets),
        "CBA": ("ClassBalanceAccuracy", {}, all_classes_present),
        "PPV Macro": ("Precision", {}, all_classes_have_both),
        "TPR Macro": ("Recall", {}, all_classes_have_both),
        "TNR Macro": ("Specificity", {}, all_classes_have_both),
        "F1 Macro": ("FScore", {}, all_classes_present),
        "PPV Micro": ("Precision", {"average": "micro"}, nonempty),
        "TPR Micro": ("Recall", {"average": "micro"}, nonempty),
        "TNR Micro": ("Specificity", {"average": "micro"}, all_classes_present),
        "F1 Micro": ("FScore", {"average": "micro"}, nonempty),
    }
    for statistic, (name, arguments, where) in overall.items():
        yield Peer(statistic, name, arguments, of_pycm(statistic), where)
    yield Peer(
        "min(ACC, CBA)",
        "BottomLine",
        {},
        lambda m: min(of_pycm(s)(m) for s in ("CBA", "Overall ACC")),
        all_classes_present,
    )
    yield Peer("2 CBA - 1", "ImbalanceAccuracy", {}, lambda m: 2 * of_pycm("CBA")(m) - 1, all_classes_present)
    for statistic, name in (("PPV", "Precision"), ("TPR", "Recall"), ("TNR", "Specificity"), ("F1", "FScore")):
        value = of_pycm(lambda table, statistic=statistic: table.weighted_average(statistic))
        yield Peer(f"{statistic} weighted", name, {"average": "weighted"}, value, all_classes_have_both)
    for statistic, name, beta in (
        ("PPV", "Precision", {}),
        ("TPR", "Recall", {}),
        ("TNR", "Specificity", {}),
        ("F1", "FScore", {}),
        ("F2", "FScore", {"beta": 2}),
        ("F05", "FScore", {"beta": 0.5}),
        ("G", "FowlkesMallows", {}),
        ("J", "Jaccard", {}),
        ("NPV", "NegativePredictiveValue", {}),
    ):
        arguments = beta | {"average": "none"}
        yield Peer(f"{statistic} of each", name, arguments, of_pycm(statistic), all_classes_have_both)
    for statistic, name, where in (
        ("AUC", "WeightedAccuracy", all_classes_have_both),
        ("AUC", "BalancedAccuracy", all_classes_have_both),
        ("MK", "Markedness", all_classes_have_both),
        ("BM", "AdjustedBalancedAccuracy", all_classes_have_both),
        ("PLR", "LikelihoodRatio", all_cells_filled),
        ("GM", "GeometricMean", all_classes_have_both),
        ("OP", "OptimizedPrecision", all_classes_are_hit),
        ("MCC", "MatthewsCorrCoef", all_classes_have_both),
        ("ACC", "Accuracy", nonempty),
    ):
        yield Peer(f"{statistic} of each", name, {}, of_pycm(statistic), where, per_class=True)


def _written_out_peers() -> Iterator[Peer]:
    def harmonic(matrix: Matrix) -> float:
        target, preds = samples(matrix)
        rates = [score(target, preds, pos_label=label, zero_division=0.0) for score in SCORES for label in (0, 1)]
        return scipy.stats.hmean(rates)

    yield Peer("hmean of four", "P4", {}, harmonic, binary=True)


SCORES = (sklearn.metrics.precision_score, sklearn.metrics.recall_score)


def _torchmetrics_peers() -> Iterator[Peer]:
    near = {"tolerance": 2e-6}  # float32
    yield Peer("accuracy", "Accuracy", {}, of_tensors(tm.multiclass_accuracy, average="micro"), **near)
    value = of_tensors(tm.multiclass_accuracy, average="macro")
    yield Peer("accuracy, macro", "BalancedAccuracy", {}, value, hit_classes_have_targets, **near)
    value = of_tensors(tm.multiclass_matthews_corrcoef)
    yield Peer("mcc", "MatthewsCorrCoef", {}, value, all_classes_have_both, tolerance=2e-5)
    value = of_tensors(tm.binary_matthews_corrcoef, sized=False)
    yield Peer("binary mcc", "MatthewsCorrCoef", {}, value, all_classes_have_both, binary=True, tolerance=2e-5)
    functions = {"Precision": tm.multiclass_precision, "Recall": tm.multiclass_recall}
    functions["Specificity"] = tm.multiclass_specificity
    for average in ("macro", "weighted", "micro", "none"):
        where = nonempty if average in ("macro", "weighted") else all_classes_present
        for name, function in functions.items():
            value = of_tensors(function, average=average)
            yield Peer(f"{name} {average}", name, {"average": average}, value, where, **near)
        for beta in (0.5, 1.0, 2.0):
            value = of_tensors(tm.multiclass_fbeta_score, average=average, beta=beta)
            yield Peer(f"fbeta {beta} {average}", "FScore", {"beta": beta, "average": average}, value, where, **near)
    for weights in (None, "linear", "quadratic"):
        value = of_tensors(tm.multiclass_cohen_kappa, weights=weights)
        where = several_classes_have_targets
        yield Peer(f"kappa {weights}", "CohenKappa", {"weights": weights}, value, where, tolerance=2e-5)
    for average in ("macro", "weighted", "micro"):
        value = of_tensors(tm.multiclass_jaccard_index, average=average)
        yield Peer(f"jaccard {average}", "Jaccard", {"average": average}, value, **near)
    value = of_tensors(tm.binary_negative_predictive_value, sized=False)
    arguments = {"average": "binary"}
    yield Peer("binary npv", "NegativePredictiveValue", arguments, value, binary=True, **near)
    functions = {"Precision": tm.binary_precision, "Recall": tm.binary_recall, "FScore": tm.binary_f1_score}
    functions["Specificity"] = tm.binary_specificity
    for name, function in functions.items():
        value = of_tensors(function, sized=False)
        where = nonempty if name == "Specificity" else positive_present
        yield Peer(f"binary {name}", name, {"average": "binary"}, value, where, binary=True, **near)


def _torcheval_peers() -> Iterator[Peer]:
    near = {"tolerance": 2e-6}
    value = of_tensors(torcheval.multiclass_accuracy, average="micro")
    yield Peer("accuracy", "Accuracy", {}, value, **near)
    value = of_tensors(torcheval.multiclass_accuracy, average="macro")
    yield Peer("accuracy, macro", "BalancedAccuracy", {}, value, **near)
    functions = {"Precision": torcheval.multiclass_precision, "Recall": torcheval.multiclass_recall}
    functions["FScore"] = torcheval.multiclass_f1_score
    for name, function in functions.items():
        for average in ("macro", "weighted", "micro", "none"):
            value = of_tensors(function, average=None if average == "none" else average)
            yield Peer(f"{name} {average}", name, {"average": average}, value, all_classes_have_both, **near)
    functions = {"Precision": torcheval.binary_precision, "Recall": torcheval.binary_recall}
    functions["FScore"] = torcheval.binary_f1_score
    for name, function in functions.items():
        value = of_tensors(function, sized=False)
        yield Peer(f"binary {name}", name, {"average": "binary"}, value, all_classes_have_both, binary=True, **near)


PEERS = [
    peer._replace(name=f"{library}: {peer.name} = {peer.measure}")
    for library, peers in (
        ("scikit-learn", _sklearn_peers()),
        ("SciPy", _written_out_peers()),
        ("imbalanced-learn", _imblearn_peers()),
        ("PyCM", _pycm_peers()),
        ("torchmetrics", _torchmetrics_peers()),
        ("torcheval", _torcheval_peers()),
    )
    for peer in peers
]
