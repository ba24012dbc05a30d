"""Advice on which epoch to keep: the answer of two studies, in six lines.

README, guide and the results of the studies give the same lines, and ``SelectionSummary`` prints those that apply.
"""

from __future__ import annotations

__all__ = ["ADVICE"]

ADVICE: dict[str, str] = {
    "default": "By default monitor the measure you will report on test data, and keep the latest of tied epochs.",
    "loss": "Do not keep the epoch with the lowest validation loss, nor stop training by it, if rare classes matter "
    "and the loss has no class weights.",
    "undecided": "Undecided? With two classes monitor MCC; with ten or more, IAM or balanced accuracy; in between, "
    "the studies do not decide. No monitor is best everywhere.",
    "last": "No wrong labels, and a loss without class weights? Then the last epoch is about as good as the one that "
    "a monitor keeps.",
    "ties": "Few classes and few samples of the rare ones? Epochs tie: keep the latest. G-mean cannot choose if it is "
    "0 in every epoch.",
    "wrong labels": "Wrong labels? Do not keep the epoch with the lowest validation loss nor, if training labels are "
    "wrong, the last epoch. Monitor the measure you will report, but MCC if there are two classes and both training "
    "and validation labels are wrong.",
}
