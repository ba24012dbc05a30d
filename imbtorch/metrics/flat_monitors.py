"""Monitored values that cannot choose an epoch, for example because one class is predicted for all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from imbtorch.counting.logits import PROBABILITIES
from imbtorch.counts import Margins
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.shared_result import ReportedValue
from imbtorch.suggestions import first_names

FEWEST, MANY = 3, 10  # validations of a fit that has ended, and validations in a row, from which to tell
SWEPT = ("balanced_accuracy", "cba", "f1", "gmean", "iam", "mcc")  # measures whose best threshold is a compromise


def is_harmed(flat: Sequence[bool], best: int | None, ended: bool = False, stopped: bool = False) -> bool:
    """Return whether the best validation of a callback, by its index, is one in which the value could not choose.

    ``flat`` says of each validation of a fit whether the value could not choose. Before a fit has ended it takes ten of
    them in a row, and a callback need not know its best one. A callback may have ``stopped`` the fit.

    >>> is_harmed([True, True, False], best=1, ended=True), is_harmed([True, True, False], best=2, ended=True)
    (True, False)
    >>> is_harmed([True] * 9, best=8), is_harmed([True] * 10, best=8), is_harmed([False] + [True] * 10, best=0)
    (False, True, False)
    """
    if ended:
        return best is not None and flat[best] and (stopped or len(flat) >= FEWEST)
    return (all(flat) if best is None else flat[best]) and len(flat) >= MANY and all(flat[-MANY:])


def never_predicted(margins: Margins) -> list[list[int]]:
    """Return for each label (one list without labels) the classes that have targets and no prediction.

    The lists are empty unless one class is predicted in each label that has targets of several classes.

    >>> import torch
    >>> never_predicted(Margins(*torch.tensor([[8, 0, 0], [8, 1, 1], [10, 0, 0]])))
    [[1, 2]]
    """
    actual, predicted = (part.reshape(-1, part.shape[-1]) for part in (margins.actual, margins.predicted))
    several = (actual > 0).sum(-1) > 1
    flat = bool(several.any()) and bool(((predicted > 0).sum(-1) == 1)[several].all())
    lacking = (actual > 0) & (predicted == 0) & several.unsqueeze(-1)
    return [row.nonzero().flatten().tolist() if flat else [] for row in lacking]


class Course:
    """Validations of a monitored value in a fit.

    Attributes:
        value: metric, or value of a report, that is logged.
        reasons: for each validation, why the value could not choose it or another one: one class was predicted for all
            samples. Empty if it could.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.reasons: list[str] = []
        self._numbers: list[float] = []
        self._seen: object = None  # what the last computation has left

    @property
    def flat(self) -> list[bool]:
        """For each validation, whether the value could not choose."""
        return [bool(reason) for reason in self.reasons]

    @property
    def counter(self) -> Any:
        """Metric that counts: the report of a value, or the metric itself."""
        return self.value.report if isinstance(self.value, ReportedValue) else self.value

    @staticmethod
    def judges(value: Any) -> bool:
        """Return whether a logged value is a single metric, or of all samples of a report at their class shares."""
        if not isinstance(value, ReportedValue):
            return hasattr(value, "last_margins")
        of_report = isinstance(value.report, ImbalanceReport) and value.report.prevalence is None
        return of_report and value.row.kind in ("overall", "class", "class group") and not value.row.bound

    def add(self, number: float) -> None:
        """Add a validation, after the metric was computed; do nothing if it was not computed since the last one."""
        single = not isinstance(self.value, ReportedValue)
        last = self.counter.last_margins if single else self.counter.last_result
        if last is None or last is self._seen:  # None where only values of batches are logged
            return
        self._seen = last
        lacking = self._never_predicted(last if single else last.margins)
        self.reasons.append(f"no sample was predicted {first_names(lacking)}{self._cause()}" if lacking else "")
        self._numbers.append(number)

    def best_by(self, score: float | None) -> int | None:
        """Return the last validation with the score that a callback kept before this fit, if none of it could choose.

        >>> Course(None).best_by(0.5)
        """
        known = bool(self.reasons) and all(self.reasons) and score in self._numbers
        return len(self._numbers) - 1 - self._numbers[::-1].index(cast(float, score)) if known else None

    def _never_predicted(self, margins: Margins) -> list[str]:
        """Return the classes without predictions as texts; empty if several classes are predicted."""
        counter, row = self.counter, getattr(self.value, "row", None)
        names = list(getattr(counter, "class_names", None) or map(str, range(counter.counting.size)))
        if counter.task == "multilabel" and row is not None and row.kind == "class":
            margins, names = Margins(*(part[names.index(row.of)] for part in margins)), [row.of]
        found = never_predicted(margins)
        self._lacks = {index for lacking in found for index in lacking}
        if counter.task != "multilabel":
            return [f"as {names[index]!r}" for index in found[0]]
        pairs = zip(names, found, strict=True)
        return [f"{'positive' if 1 in lacking else 'negative'} for {name!r}" for name, lacking in pairs if lacking]

    def _cause(self) -> str:
        """Return why no positive is predicted, if scores of class 1 decide."""
        if self.counter.task == "multiclass" or self._lacks != {1}:
            return ""
        return ", since no score passes 0.5" + " (log-softmax of one column never does)" * bool(self.counter.logits)

    def remedy(self, how: str) -> str:
        """Return what to do about a value that could not choose, given how to monitor a sweep."""
        if self.counter.like_probabilities:
            return f"But {PROBABILITIES}"
        doubt = " If the scores are probabilities, write logits=False." * (self.counter.logits and 0 in self._lacks)
        return f"Monitor the value of a sweep, and test with its rule: {how}{doubt}"

    def sweep(self, more: str = "") -> str:
        """Return the call that builds a sweep whose value can choose, with further arguments."""
        counter, row = self.counter, getattr(self.value, "row", None)
        measure = counter.traits.key if row is None else row.measure if row.kind == "overall" else ""
        measure = measure if measure in SWEPT else "balanced_accuracy"
        made = f"LogitAdjustmentSweep({measure!r}, train_counts"
        if counter.task != "multiclass":
            labels = f", task='multilabel', num_labels={counter.counting.size}" * (counter.task == "multilabel")
            made = f"ThresholdSweep({measure!r}{labels}"
        return f"imbtorch.{made}, logits={counter.logits}{more})"
