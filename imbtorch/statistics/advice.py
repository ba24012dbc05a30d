"""Table by situation: which epoch to keep and what to choose afterwards, as four studies found it.

``examples/evidence.md`` gives the same rows with the gains, and ``SelectionSummary`` prints the one that fits its task.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SITUATIONS", "Situation", "situation_of"]

MANY_CLASSES = 10
TODAY = "The rule of today (two classes: the resampled threshold), added when the results were known"


class Situation(NamedTuple):
    """Row of the table by situation.

    Attributes:
        have: what a user has.
        last: how good the last epoch is, compared with the best one of the measure that is reported.
        choose: what to choose after training.
        sure: how much evidence there is, by the number of units: large data sets or families of small ones.
        study: folder in ``examples`` of the study that measured it; empty for none.
        table: heading of the table in the study's results.
    """

    have: str
    last: str
    choose: str
    sure: str
    study: str = "decision_study"
    table: str = TODAY

    def __str__(self) -> str:
        """Write the row as text."""
        monitor = f"Monitor the measure you report; the last epoch: {self.last}"
        return f"{self.have}. {monitor}. Choose afterwards: {self.choose}. Evidence: {self.sure}."


SITUATIONS: dict[str, Situation] = {
    "two classes": Situation(
        "Two classes",
        "as good",
        "a threshold",
        "strong (52 families)",
        "threshold_study",
        "New families, both models (52 families)",
    ),
    "three to nine classes": Situation(
        "Three to nine classes",
        "as good, for IAM better",
        "a logit adjustment",
        "moderate (15 units); for IAM inconclusive",
    ),
    "many classes": Situation(
        "Ten classes or more, long-tailed",
        "inconclusive, but not worse by a point",
        "a logit adjustment",
        "weak (4 units); for IAM inconclusive",
    ),
    "class weights": Situation(
        "Class-weighted loss",
        "as good for IAM, inconclusive for balanced accuracy",
        "the rule for your number of classes, but never tau = 1",
        "strong (24 units)",
    ),
    "short training": Situation(
        "Short training (6 epochs)",
        "as good",
        "the rule for your number of classes",
        "strong (24 units)",
    ),
    "wrong labels": Situation(
        "Wrong labels (15% at random)",
        "5 to 10 points worse if training labels are wrong",
        "not studied",
        "moderate (16 families of small tables)",
        "monitor_study",
        "15% wrong labels, each test measure, latest, all (31 sets)",
    ),
    "labels": Situation(
        "Several labels (multilabel), or segmentation",
        "not studied",
        "not studied; by default a threshold for each label",
        "not studied",
        "",
        "",
    ),
}


def situation_of(classes: int) -> Situation:
    """Return the row that fits a task with this number of classes; 0 for labels."""
    if not classes:
        return SITUATIONS["labels"]
    if classes == 2:
        return SITUATIONS["two classes"]
    return SITUATIONS["three to nine classes" if classes < MANY_CLASSES else "many classes"]
