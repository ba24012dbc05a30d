"""Table by situation: what to monitor and what to choose afterwards, as four studies found it.

The README and ``examples/evidence.md`` give the same rows, and ``SelectionSummary`` prints the one that fits its
task. The figures are percentage points on test data with their 95% intervals over data sets.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["SITUATIONS", "Situation", "situation_of"]

FEW_RARE = 10  # rare validation samples below which the studies have a row of their own
MANY_CLASSES = 10


class Situation(NamedTuple):
    """Row of the table by situation.

    Attributes:
        have: what a user has.
        monitor: what decides which epoch to keep.
        choose: what to choose after training, and its gain over plain argmax (two classes: a threshold of 0.5).
        sure: how much evidence there is, by the number of units: large data sets or families of small ones.
        study: folder in ``examples`` of the study that measured it; empty for none.
        table: heading of the table in the study's results.
    """

    have: str
    monitor: str
    choose: str
    sure: str
    study: str = "decision_study"
    table: str = "The same comparisons by the number of classes, falling rate"

    def __str__(self) -> str:
        """Write the row as text, without its figures."""
        monitor, choose = (re.split(r"[.,:](?: |$)", cell)[0] for cell in (self.monitor, self.choose))
        return f"{self.have}. Monitor: {monitor}. Choose afterwards: {choose}. Evidence: {self.sure}."


SITUATIONS: dict[str, Situation] = {
    "two classes": Situation(
        "Two classes",
        "the measure you report; the last epoch is as good",
        "a threshold: balanced accuracy +10.4 [+8.3, +12.4], IAM +8.7 [+6.5, +11.0], macro F1 +3.4 [+2.5, +4.4], MCC "
        "+5.7 [+3.9, +7.4], G-mean +23.2 [+18.1, +28.3]; accuracy changes by less than 1 point",
        "strong (52 families)",
        "threshold_study",
        "New families, both models (52 families)",
    ),
    "rare": Situation(
        "Two classes with fewer than 10 rare validation samples",
        "the measure you report; the last epoch is as good. Compared with the epoch of the lowest loss, the measure "
        "gains +2.1 [+1.0, +3.1] of balanced accuracy and +4.6 [+2.1, +7.0] of IAM",
        "a threshold, here the single best one: balanced accuracy +7.3 [+3.3, +11.4], accuracy -0.8 [-1.5, -0.1]; the "
        "results for macro F1, MCC and IAM are inconclusive",
        "strong (16 units)",
        table="Two classes, by rare validation samples, falling rate",
    ),
    "three to nine classes": Situation(
        "Three to nine classes",
        "the measure you report; the last epoch is as good, and for IAM better (monitoring IAM: -0.8 [-1.6, -0.0])",
        "a logit adjustment: balanced accuracy +3.9 [+1.3, +6.5], or +2.7 [-0.3, +5.7] without the four units on which "
        "it was developed; macro F1, MCC and accuracy change by less than 1 point, the result for IAM is inconclusive",
        "moderate (15 units)",
    ),
    "many classes": Situation(
        "Ten classes or more, long-tailed",
        "the measure you report; the last epoch is as good",
        "a logit adjustment: balanced accuracy +6.0 [+1.6, +10.4], macro F1 +1.5 [+0.0, +3.0]; MCC and accuracy "
        "change by less than 1 point, the result for IAM is inconclusive",
        "weak (4 units)",
    ),
    "class weights": Situation(
        "Class-weighted loss",
        "the measure you report; compared with the epoch of the lowest loss, it gains +6.0 [+3.3, +8.7] of IAM and "
        "+2.2 [+0.6, +3.8] of accuracy",
        "with two classes a threshold if you report balanced accuracy: +2.7 [+0.8, +4.6] (20 units, single best "
        "threshold). If you report IAM, MCC or macro F1, keep 0.5, because a threshold chosen for them lowers them: "
        "-4.0 [-7.1, -0.8], -2.2 [-3.8, -0.7] and -1.4 [-2.3, -0.5]. With more classes a logit adjustment gains less "
        "than 1 point of balanced accuracy (+0.5 [-0.0, +0.9]); never tau = 1 (IAM -17.8 [-23.1, -12.6])",
        "strong (24 units)",
        table="By regime: all units",
    ),
    "short training": Situation(
        "Short training (6 epochs instead of 20)",
        "the measure you report; the last epoch is as good",
        "the rule for your number of classes. Over all units it gains more than after 20 epochs: balanced accuracy "
        "+11.5 [+7.5, +15.5] (20 epochs: +5.8 [+3.1, +8.4]), IAM +12.5 [+5.8, +19.3]",
        "strong (24 units)",
        table="By regime: all units",
    ),
    "wrong labels": Situation(
        "Wrong labels (15% at random)",
        "the measure you report. Do not keep the epoch of the lowest loss. If training labels are wrong, do not keep "
        "the last epoch, which is 9.6 [5.5, 13.5] points worse (mean of four measures). If validation labels are "
        "wrong, too, and you report IAM of two classes, monitor MCC",
        "not studied",
        "moderate (16 families of small tables)",
        "monitor_study",
        "15% wrong labels, each test measure, latest, all (31 sets)",
    ),
    "labels": Situation(
        "Several labels (multilabel), or segmentation",
        "not studied; by default the measure you report",
        "not studied; for each label a threshold",
        "not studied",
        "",
        "",
    ),
}


def situation_of(classes: int, rarest: float | None) -> Situation:
    """Return the row that fits a task.

    Args:
        classes: number of classes; 0 for labels.
        rarest: number of validation samples of the rarest class; None if it is not known.
    """
    if not classes:
        return SITUATIONS["labels"]
    if classes == 2:
        return SITUATIONS["two classes" if rarest is None or rarest >= FEW_RARE else "rare"]
    return SITUATIONS["three to nine classes" if classes < MANY_CLASSES else "many classes"]
