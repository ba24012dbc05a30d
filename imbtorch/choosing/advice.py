"""Advice on which epoch to keep: the answer of two studies, in six lines.

README, guide and the results of the studies give the same lines, and ``SelectionSummary`` prints those that apply.
"""

from __future__ import annotations

__all__ = ["ADVICE"]

ADVICE: dict[str, str] = {
    "default": "By default monitor the measure you report, and keep the latest of tied epochs.",
    "loss": "Do not keep the epoch with the lowest unweighted loss where rare classes matter, nor stop training by it.",
    "undecided": "Undecided? With two classes monitor MCC, with ten or more IAM or balanced accuracy. No monitor is "
    "best everywhere.",
    "last": "Correct labels and an unweighted loss? Then the last epoch is about as good as any monitor's choice.",
    "ties": "Few classes and few samples of the rare ones? Epochs tie: keep the latest, or monitor soft values. A "
    "G-mean of 0 in every epoch chooses nothing.",
    "wrong labels": "Wrong labels? Keep neither the epoch with the lowest loss nor, if you trained on them, the last "
    "one. Monitor the measure you report; only with two classes, and wrong labels in training and validation, monitor "
    "MCC instead.",
}
