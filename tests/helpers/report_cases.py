"""Reports that tests share: their names, batches and expected values."""

import functools

import pytest
import torch
from imblearn import metrics as imblearn_metrics
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import ImbalanceReport

OVERALL = ["iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc"]
BINARY = [*OVERALL, "iba"]
TWO_CLASSES = [*OVERALL, "dominance", "iba", "op", "dominance_area"]
NAMES = {"binary": BINARY, "multiclass": OVERALL, "multilabel": OVERALL}
SIZES = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}
TASKS = tuple(SIZES)
SHOWN = ["precision", "recall", "f1", "cba", "iam"]
COLUMNS = ["support", "predicted", *SHOWN]


def column(table, name):
    return [row[name] for row in table["class"].values()]


def data(task, samples=60, seed=0, classes=3):
    """Predicted and true classes (or labels), mostly equal, in which everything occurs."""
    random = torch.Generator().manual_seed(seed)
    high = classes if task == "multiclass" else 2
    shape = (samples, classes) if task == "multilabel" else (samples,)
    target = torch.randint(high, shape, generator=random)
    noise = torch.randint(high, shape, generator=random)
    target[:high] = torch.arange(high).reshape(-1, *[1] * (len(shape) - 1)).expand(target[:high].shape)
    return torch.where(torch.rand(shape, generator=random) < 0.6, target, noise), target


def table_peers(preds, target):
    """Columns of the table of classes by scikit-learn."""
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(target, preds)
    predicted = sklearn_metrics.confusion_matrix(target, preds).sum(0)
    cba = [min(pair) for pair in zip(precision, recall, strict=True)]
    iam = [2 * term - 1 for term in cba]
    return dict(zip(COLUMNS, map(list, (support, predicted, precision, recall, f1, cba, iam)), strict=True))


def filled(task, seed=0, **kwargs):
    sizes = {} if "class_names" in kwargs else SIZES[task]
    report = ImbalanceReport(task, **sizes, **kwargs)
    report.update(*data(task, seed=seed))
    return report


def numbers(values):
    return {name: value.item() for name, value in values.items()}


def assert_same(found, wanted, tolerance=2e-6):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(float(value), rel=tolerance, abs=tolerance, nan_ok=True), name


def error_rate(counts):
    return 1 - imbtorch.accuracy(counts)


def directed(function, higher_is_better):
    """The same function with a direction."""
    same = functools.partial(function)
    same.higher_is_better = higher_is_better
    return same


# --- values ---------------------------------------------------------------------------------------------------------


def peers(preds, target, average):
    """The default names by scikit-learn, imbalanced-learn, and plain Python on their precision and recall."""
    precision, recall, _, _ = sklearn_metrics.precision_recall_fscore_support(target, preds)
    mean_precision, mean_recall, mean_f1, _ = sklearn_metrics.precision_recall_fscore_support(
        target, preds, average=average
    )
    cba = sum(map(min, zip(precision, recall, strict=True))) / len(recall)
    return {
        "iam": 2 * cba - 1,
        "cba": cba,
        "accuracy": sklearn_metrics.accuracy_score(target, preds),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(target, preds),
        "precision": mean_precision,
        "recall": mean_recall,
        "f1": mean_f1,
        "gmean": imblearn_metrics.geometric_mean_score(target, preds, correction=0.0),
        "mcc": sklearn_metrics.matthews_corrcoef(target, preds),
    }


def binary_peers(preds, target):
    values = peers(preds, target, "binary")
    tpr = imblearn_metrics.sensitivity_score(target, preds, average="binary")
    tnr = imblearn_metrics.specificity_score(target, preds, average="binary")
    weighted = imblearn_metrics.make_index_balanced_accuracy(alpha=0.05, squared=False)
    values["dominance"] = tpr - tnr
    values["iba"] = weighted(imblearn_metrics.geometric_mean_score)(target, preds, average="binary")
    values["op"] = values["accuracy"] - abs(tnr - tpr) / (tnr + tpr)
    values["dominance_area"] = (
        values["gmean"] * (values["dominance"] + 3) / 2
    )  # the mean height of the trapezium, times its width
    return values


COUNTING = [
    ("binary", {}),
    ("binary", {"ignore_index": -1}),
    ("multiclass", {}),
    ("multiclass", {"state": "margins"}),
    ("multiclass", {"ignore_index": 1}),
    ("multiclass", {"ignore_index": 1, "state": "margins"}),
    ("multilabel", {}),
    ("multilabel", {"ignore_index": -1}),
]


# --- reading a value ------------------------------------------------------------------------------------------------


def joined(*seeds):
    """Predictions and targets of several batches."""
    return tuple(torch.cat(part) for part in zip(*(data("multiclass", seed=seed) for seed in seeds), strict=True))


def support_of(*seeds):
    return torch.bincount(joined(*seeds)[1], minlength=3).tolist()


# --- another population ---------------------------------------------------------------------------------------------


def weighted(preds, target, prevalence):
    """Values of scikit-learn on samples that weigh what brings the classes to their shares."""
    counted = target.bincount(minlength=len(prevalence))
    shares = torch.tensor(prevalence, dtype=torch.float64) * (counted > 0)
    weight = {"sample_weight": (shares / shares.sum() / counted)[target]}
    how = {"average": "binary"} if len(prevalence) == 2 else {"average": "macro"}
    recalls = sklearn_metrics.recall_score(target, preds, average=None, **weight)
    return {
        "accuracy": sklearn_metrics.accuracy_score(target, preds, **weight),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(target, preds, **weight),
        "precision": sklearn_metrics.precision_score(target, preds, zero_division=0, **how, **weight),
        "recall": sklearn_metrics.recall_score(target, preds, **how, **weight),
        "f1": sklearn_metrics.f1_score(target, preds, **how, **weight),
        "mcc": sklearn_metrics.matthews_corrcoef(target, preds, **weight),
    } | {f"recall/{index}": value for index, value in enumerate(recalls)}


def batch_of(classes=3, size=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (size,), generator=generator)
    noise = torch.randint(classes, (size,), generator=generator)
    return torch.where(torch.rand(size, generator=generator) < 0.6, target, noise), target


def report_of(task="multiclass", classes=3, **arguments):
    sizes = {"num_classes": classes} if task == "multiclass" else {}
    report = ImbalanceReport(task, **sizes, **arguments)
    report.update(*batch_of(classes))
    return report


def jaccard_of_each(counts):
    hits = counts.diagonal()
    return hits / (counts.sum(0) + counts.sum(1) - hits)


ANIMALS = ["cat", "dog", "emu", "fox"]
GROUPS = {"head": ["cat", 1], "tail": ["emu", "fox"], "fore": [0, "fox", 2]}
