"""Table by situation: which epoch to keep and what to choose afterwards, as four studies found it.

The README gives a part of the table with the gains, ``examples/evidence.md`` has the figures, and
``SelectionSummary`` prints the row that fits its task.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SITUATIONS", "Situation", "situation_of"]

MANY_CLASSES = 10


class Situation(NamedTuple):
    """Row of the table by situation.

    Attributes:
        have: what a user has.
        last: how good the last epoch is, compared with the best one of the measure that is reported.
        choose: what to choose after training.
        sure: how much evidence there is, by the number of units: large data sets or families of small ones.
    """

    have: str
    last: str
    choose: str
    sure: str

    def __str__(self) -> str:
        """Write the row as text."""
        monitor = f"Monitor the measure you report; the last epoch: {self.last}"
        return f"{self.have}. {monitor}. Choose afterwards: {self.choose}. Evidence: {self.sure}."


SITUATIONS: dict[str, Situation] = {
    "two classes": Situation("Two classes", "as good", "a threshold", "strong (52 families)"),
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
        "Two classes, class-weighted loss",
        "inconclusive",
        "a threshold",
        "strong (20 units)",
    ),
    "labels": Situation(
        "Several labels (multilabel), or segmentation",
        "not studied",
        "not studied; by default a threshold for each label",
        "not studied",
    ),
}


def situation_of(classes: int) -> Situation:
    """Return the row that fits a task with this number of classes; 0 for labels."""
    if not classes:
        return SITUATIONS["labels"]
    if classes == 2:
        return SITUATIONS["two classes"]
    return SITUATIONS["three to nine classes" if classes < MANY_CLASSES else "many classes"]
