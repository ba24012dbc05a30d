"""Table by situation: what to monitor and what to choose afterwards, as four studies found it.

README, guide and ``examples/evidence.md`` give the same rows, and ``SelectionSummary`` prints the one that fits its
task. The figures are percentage points on test data with their 95% intervals over data sets.
"""

from __future__ import annotations

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
        sure: how sure that is, by the number of units: pools of data or families of data sets.
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
        """Write the row as text."""
        return f"{self.have}. To monitor: {self.monitor}. To choose afterwards: {self.choose}. Evidence: {self.sure}."


SITUATIONS: dict[str, Situation] = {
    "two classes": Situation(
        "Two classes",
        "the measure you report, or keep the last epoch",
        "a threshold: balanced accuracy +10.4 [+8.3, +12.4], IAM +8.7 [+6.5, +11.0], macro F1 +3.4 [+2.5, +4.4], MCC "
        "+5.7 [+3.9, +7.4], G-mean +23.2 [+18.1, +28.3]; accuracy stays within 1 point",
        "strong (52 families)",
        "threshold_study",
        "New families, both models (52 families)",
    ),
    "rare": Situation(
        "Two classes with fewer than 10 rare validation samples",
        "the measure you report, or keep the last epoch; compared with the epoch of the lowest loss, balanced accuracy "
        "gains +2.1 [+1.0, +3.1] and IAM +4.6 [+2.1, +7.0]",
        "a threshold: balanced accuracy +7.3 [+3.3, +11.4], accuracy -0.8 [-1.5, -0.1]; macro F1, MCC and IAM are "
        "inconclusive (all measured with the single best threshold of version 0.4)",
        "strong (16 units)",
        table="Two classes, by rare validation samples, falling rate",
    ),
    "three to nine classes": Situation(
        "Three to nine classes",
        "the measure you report, or keep the last epoch, which is better for IAM (monitoring IAM: -0.8 [-1.6, -0.0])",
        "a logit adjustment: balanced accuracy +3.9 [+1.3, +6.5]; macro F1, MCC and accuracy stay within 1 point, "
        "IAM is inconclusive; without the four pools on which the rule was found +2.7 [-0.3, +5.7] (11 units)",
        "moderate (15 units)",
    ),
    "many classes": Situation(
        "Ten classes or more, long-tailed",
        "the measure you report, or keep the last epoch",
        "a logit adjustment: balanced accuracy +6.0 [+1.6, +10.4], macro F1 +1.5 [+0.0, +3.0]; MCC and accuracy "
        "stay within 1 point, IAM is inconclusive",
        "weak (4 units)",
    ),
    "class weights": Situation(
        "Class-weighted loss",
        "the measure you report, or keep the last epoch; compared with the epoch of the lowest loss, IAM gains +6.0 "
        "[+3.3, +8.7] and accuracy +2.2 [+0.6, +3.8]",
        "with two classes a threshold: balanced accuracy +2.7 [+0.8, +4.6], but IAM -4.0 [-7.1, -0.8], MCC -2.2 [-3.8, "
        "-0.7] and macro F1 -1.4 [-2.3, -0.5]; with three or more, a logit adjustment changes balanced accuracy by "
        "less than 1 point (+0.5 [-0.0, +0.9]); tau = 1 costs IAM with any number of classes (-17.8 [-23.1, -12.6])",
        "strong (24 units)",
        table="By regime: all units",
    ),
    "falling rate": Situation(
        "Learning rate falling to zero",
        "nothing: keep the last epoch, which equals the epoch of the measure's best value within 1 point of balanced "
        "accuracy and IAM; the epoch of the lowest loss is worse (IAM +3.1 [+1.2, +4.9] for the measure's best value)",
        "by the number of classes, as above; after 6 epochs instead of 20 a rule gains more: balanced accuracy +11.5 "
        "[+7.5, +15.5], IAM +12.5 [+5.8, +19.3]",
        "strong (24 units)",
        table="By regime: all units",
    ),
    "wrong labels": Situation(
        "Wrong labels (15% at random)",
        "the measure you report, whatever the number of classes; if training labels are wrong, the last epoch "
        "costs 9.6 [5.5, 13.5] points more in the mean of four measures; for IAM of two classes with wrong labels in "
        "training and validation, MCC",
        "not studied",
        "moderate (16 families of small tables)",
        "monitor_study",
        "15% wrong labels, each test measure, latest, all (31 sets)",
    ),
    "labels": Situation(
        "Several labels (multilabel), or segmentation",
        "not studied; by default the measure you report, the latest of tied epochs",
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
