"""Coverage of the difference of two models, each at the threshold that flags the same share of the samples: ``alerts``.

Run by ``coverage.py``. Scores are normal, those of positives shifted, and 0.8 of their variance is common to both
models. The thresholds are chosen on the samples that are compared, as ``Predictions.compare(..., alerts=)`` does; the
true difference is that of the thresholds which flag this share of the population.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from scipy import stats
from scipy.optimize import brentq

from imbtorch.predictions.compare import at_alerts
from imbtorch.statistics import paired_compare

MEASURES = ("recall", "precision", "f1")
SHIFTS = ((1.5, 2.0), (2.0, 2.0), (2.0, 3.0))
CELLS = [
    (samples, share, alerts, *shifts)
    for samples, share, alerts, shifts in product((1000, 10_000), (0.01, 0.05, 0.2), (0.005, 0.02, 0.1), SHIFTS)
    if min(share, alerts) * samples >= 10
]
COLUMNS = "samples, share, alerts, shift of old, shift of new | covered recall, covered precision, covered F1"


def values_of(share: float, alerts: float, shift: float) -> tuple[float, float, float]:
    """Recall, precision and F1 at the threshold that flags a share of the population."""

    def flagged(cut: float) -> float:
        return share * stats.norm.sf(cut - shift) + (1 - share) * stats.norm.sf(cut)

    recall = float(stats.norm.sf(brentq(lambda cut: flagged(cut) - alerts, -10, 10 + shift) - shift))
    return recall, share * recall / alerts, 2 * share * recall / (share + alerts)


def of_alerts(sets: int, samples: int, share: float, alerts: float, *shifts: float) -> list[float]:
    """Share of sets whose interval covers the true difference, new minus old."""
    old, new = (values_of(share, alerts, shift) for shift in shifts)
    covered = dict.fromkeys(MEASURES, 0)
    for _ in range(sets):
        target = (torch.rand(samples) < share).long()
        common = math.sqrt(0.8) * torch.randn(samples)
        scores = [shift * target + common + math.sqrt(0.2) * torch.randn(samples) for shift in shifts]
        preds = [(each > at_alerts(each.numpy(), alerts)).long() for each in scores]
        for name, was, is_now in zip(MEASURES, old, new, strict=True):
            found = paired_compare(name, preds[1], preds[0], target, 2, draws=1000).difference
            covered[name] += bool(found.low <= is_now - was <= found.high)
    return [covered[name] / sets for name in MEASURES]
