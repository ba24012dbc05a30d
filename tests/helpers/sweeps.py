"""Scores, thresholds and expected values that tests of sweeps share."""

import functools
import math
import warnings

import numpy as np
import torch
from scipy import stats
from sklearn import metrics as sk

import imbtorch
from imbtorch import ThresholdSweep

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def quietly(oracle):
    @functools.wraps(oracle)
    def silent(target, preds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return oracle(target, preds)

    return silent


def gmean(target, preds):
    return (sk.recall_score(target, preds) * sk.recall_score(target, preds, pos_label=0)) ** 0.5


def iba(target, preds):
    """Index of balanced accuracy as the paper has it: alpha = .05 on the plain G-mean, dominance of the positives."""
    dominance = sk.recall_score(target, preds) - sk.recall_score(target, preds, pos_label=0)
    return (1 + 0.05 * dominance) * gmean(target, preds)


MEASURES = {
    "f1": (imbtorch.f_score, lambda t, p: sk.f1_score(t, p, zero_division=0)),
    "f1 function": (imbtorch.f_score, lambda t, p: sk.f1_score(t, p, zero_division=0)),
    "precision": (imbtorch.precision, lambda t, p: sk.precision_score(t, p, zero_division=0)),
    "iou": (imbtorch.jaccard, lambda t, p: sk.jaccard_score(t, p, zero_division=0)),
    "gmean": (imbtorch.geometric_mean, gmean),
    "iba": (imbtorch.index_balanced_accuracy, iba),
    "mcc": (imbtorch.matthews_corrcoef, sk.matthews_corrcoef),
    "lambda": (lambda counts: counts[..., 1, 1] / counts.sum((-2, -1)), lambda t, p: np.mean(t & p)),
}


def even(n, dtype):
    """Thresholds i/(n-1) as NumPy floats, each divided in float64 and rounded once."""
    return torch.tensor([index / (n - 1) for index in range(n)], dtype=torch.float64).to(dtype).double().numpy()


def data(dtype=torch.float32, shape=(300,), seed=0, thresholds=101):
    """Random targets with few positives and scores, a third of them exactly on a threshold, with both ends."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(shape, generator=generator) < 0.2).long()
    scores = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.6 * target).div(1.6).to(dtype)
    grid = torch.tensor([index / (thresholds - 1) for index in range(thresholds)], dtype=torch.float64).to(dtype)
    on_it = torch.rand(shape, generator=generator) < 0.33
    scores = torch.where(on_it, grid[torch.randint(thresholds, shape, generator=generator)], scores)
    scores.view(-1)[:4] = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=dtype)
    target.view(-1)[:4] = torch.tensor([0, 1, 1, 0])
    return scores, target


def expected_matrices(scores, target, grid):
    scores, target = scores.double().numpy(), target.long().numpy()
    return [sk.confusion_matrix(target, scores > t, labels=[0, 1]).tolist() for t in grid]


def expected_values(oracle, scores, target, grid):
    scores, target = scores.double().numpy(), target.long().numpy()
    return [quietly(oracle)(target, (scores > t).astype(int)) for t in grid]


def item(values):
    return {name: value.item() for name, value in values.items()}


ALSO = ("auc", "average_precision", "partial_auc")
LABELS = {"task": "multilabel", "num_labels": 2, "class_names": ["cat", "dog"]}


def drawn(samples, prevalence=0.1, seed=0):
    """Calibrated logits of two normal classes two standard deviations apart, and targets."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(samples, generator=generator) < prevalence).long()
    evidence = torch.randn(samples, generator=generator, dtype=torch.float64) + 2 * target - 1
    return 2 * evidence + math.log(prevalence / (1 - prevalence)), target


def rates_of(threshold, prevalence=0.1):
    """True false and true positive rate of a threshold in the population of :func:`drawn`."""
    cut = (math.log(threshold / (1 - threshold)) - math.log(prevalence / (1 - prevalence))) / 2
    return stats.norm.sf(cut + 1), stats.norm.sf(cut - 1)


def swept(measure="f1", samples=2000, seed=0, **arguments):
    logits, target = drawn(samples, seed=seed)
    sweep = ThresholdSweep(measure, logits=True, **arguments)
    if arguments.get("task") == "multilabel":
        logits, target = torch.stack((logits, -logits), 1), torch.stack((target, 1 - target), 1)
    sweep.update(logits, target)
    sweep.compute()
    return sweep, logits, target


def oracle_points(logits, target):
    """Recall, precision and share of alerts at each cut between scores, and at none."""
    precision, recall, cuts = sk.precision_recall_curve(target, logits)
    alerts = np.array([(logits.numpy() >= cut).mean() for cut in cuts])
    return recall[:-1], precision[:-1], alerts


def rare(prevalence, gain=1.0, positives=400, seed=0, dtype=torch.float64):
    """Logits, calibrated where the gain is 1, of two normal classes two standard deviations apart; targets."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.zeros(min(int(positives / prevalence), 1_000_000), dtype=torch.long)
    target[: int(len(target) * prevalence)] = 1
    evidence = torch.randn(len(target), generator=generator, dtype=torch.float64) + 2 * target - 1
    return (gain * (2 * evidence + math.log(prevalence / (1 - prevalence)))).to(dtype), target


def best_of_all_thresholds(logits, target):
    """Best F1 and G-mean over every cut between scores, from cumulated counts."""
    order = np.argsort(-logits.numpy(), kind="stable")
    hits, last = np.cumsum(target.numpy()[order]), np.append(np.diff(logits.numpy()[order]) != 0, True)
    flagged, positives, n = np.arange(1, len(hits) + 1)[last], hits[-1], len(hits)
    hits = hits[last]
    gmean = np.sqrt(hits / positives * (1 - (flagged - hits) / (n - positives)))
    return (2 * hits / (flagged + positives)).max(), gmean.max()
