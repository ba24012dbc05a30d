"""Sentences that warn when a choice means little, and the advice of four studies by situation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Counts, margins
from imbtorch.ties import as_good_as_best

DISCORDANT = 6  # discordant samples that, all in favour of one epoch, give p < .05 in a sign test: 2 * 2^-6 = .031
RARE = 60  # samples of a class up to which six of them are a tenth or more
NAMED = 3  # classes that a sentence names; of the others it gives the number


def choice_caveats(
    counts: Counts, values: Tensor, classes: Sequence[str] | None = None, *, higher_is_better: bool = True
) -> list[str]:
    """List the reasons why a choice among these epochs means little, a sentence for each.

    - All epochs, or at least half of them, tie for the best value.
    - A class that has targets was predicted in no epoch.
    - A class has so few samples (at most 60) that its differences between epochs are within noise. All epochs predict
      the same samples, so two epochs are compared by the samples that one predicts right and the other wrong. Even if
      all of these favour one epoch, six are needed for p < 0.05 in an exact sign test (McNemar's). A difference of
      fewer than six samples of the class is noise, whatever the predictions are.

    Args:
        counts: ``[M, K, K]`` counts of M epochs, or :class:`~imbtorch.Margins` of ``[M, K]``. For labels, the margins
            of class 1: ``Margins(c[..., 1, 1], c[..., 1, :].sum(-1), c[..., :, 1].sum(-1))`` with c ``[M, L, 2, 2]``.
        values: ``[M]`` values of the measure that chooses; nan for an epoch without a value.
        classes: K names; by default the indices.
        higher_is_better: direction of the measure.

    Returns:
        Sentences without a full stop; an empty list if there is no such reason.

    Raises:
        ValueError: for values or names that do not fit the counts, and without epochs.

    >>> import torch
    >>> counts = torch.tensor([[[90, 0], [8, 0]], [[89, 1], [8, 0]], [[90, 0], [8, 0]]])
    >>> for caveat in choice_caveats(counts, torch.tensor([0.5, 0.49, 0.5]), ["ok", "bad"]):
    ...     print(caveat)
    2 of 3 epochs tie for the best value, 0.500: the measure does not choose between them
    Class 'bad' (8 validation samples): all epochs have the same number of its hits; do not compare epochs by its recall
    """
    return caveats_of(counts, values, classes, higher_is_better, "epoch")


@computed_on_cpu
def caveats_of(
    counts: Counts, values: Tensor, classes: Sequence[str] | None, higher_is_better: bool, unit: str
) -> list[str]:
    """List the same reasons, in sentences about units such as ``"epoch"`` or ``"step"``."""
    right, actual, predicted = margins(counts)
    if right.ndim != 2 or values.shape != right.shape[:1] or not len(values):
        got = f"{list(right.shape)} and {list(values.shape)}"
        raise ValueError(
            f"counts must be those of M >= 1 epochs, [M, K, K], and values [M]; got margins and values {got}"
        )
    names = [f"{name!r}" for name in classes] if classes is not None else [str(k) for k in range(right.shape[1])]
    if len(names) != right.shape[1]:
        raise ValueError(f"classes must hold {right.shape[1]} names, got {len(names)}")
    found = (
        _ties(values.double() if higher_is_better else -values.double(), values, unit),
        _never_predicted(actual, predicted, names, unit),
        _too_rare(right, actual, names, unit),
    )
    return [sentence for sentence in found if sentence]


def _ties(worth: Tensor, values: Tensor, unit: str) -> str:
    """Tell that at least half of the epochs tie; otherwise return an empty text."""
    ties = as_good_as_best(worth)
    number, candidates = int(ties.sum()), len(worth)
    if number < 2 or 2 * number < candidates:
        return ""
    value = values[int(ties.int().argmax())].item()
    which = f"{number} of {candidates} {unit}s tie for the best value,"
    if number == candidates:
        which = f"all {number} {unit}s tie at the value"
    return f"{which} {value:.3f}: the measure does not choose between them"


def _never_predicted(actual: Tensor, predicted: Tensor, names: Sequence[str], unit: str) -> str:
    """Name the classes that have targets and are never predicted; without any return an empty text."""
    never = (actual.amax(0) > 0) & (predicted.amax(0) == 0)
    if not bool(never.any()):
        return ""
    which = _listed([names[k] for k in never.nonzero().flatten().tolist()])
    among = f" in any of {len(actual)} {unit}s" if len(actual) > 1 else ""
    return f"{which} {'was' if int(never.sum()) == 1 else 'were'} never predicted{among}"


def _too_rare(right: Tensor, actual: Tensor, names: Sequence[str], unit: str) -> str:
    """Name the classes in which epochs differ by no more than noise, the rarest first."""
    samples, spread = actual.amax(0), right.amax(0) - right.amin(0)
    rare = ((samples > 0) & (samples <= RARE) & (spread < DISCORDANT)).nonzero().flatten().tolist()
    if not rare or len(actual) < 2:
        return ""
    k, *others = sorted(rare, key=lambda k: samples[k].item())
    number, seen = int(samples[k]), int(spread[k])
    reason = f"its hits differ by at most {seen} between {unit}s, and fewer than {DISCORDANT} may be chance"
    if number < DISCORDANT:
        reason = "differences in its hits may be chance"
    if not seen:
        reason = f"all {unit}s have the same number of its hits"
    size = f"{'only ' * (number < DISCORDANT)}{number} validation sample{'s' * (number != 1)}"
    also = f", nor by that of {_listed([names[each] for each in others])}" if others else ""
    return f"Class {names[k]} ({size}): {reason}; do not compare {unit}s by its recall{also}"


def _listed(names: Sequence[str]) -> str:
    """Return text such as ``class 3`` or ``classes 1, 2, 3 and 4 more``."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"class{'es' * (len(names) > 1)} {', '.join(names[:NAMED])}{more}"


# --- advice by situation ---------------------------------------------------------------------------------------------
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
