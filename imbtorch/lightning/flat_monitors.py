"""Monitored values that cannot choose an epoch, for example because one class is predicted for all samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from imbtorch.counts import Margins
from imbtorch.lightning.base import shared_results
from imbtorch.metrics.deciding import DecidingSweep
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
        reasons: for each validation, why the value could not choose it or another one: of a report, that one class was
            predicted for all samples; of a single metric, that its value has never changed. Empty if it could.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.reasons: list[str] = []
        self._numbers: list[float] = []

    @property
    def flat(self) -> list[bool]:
        """For each validation, whether the value could not choose."""
        return [bool(reason) for reason in self.reasons]

    @staticmethod
    def judges(value: Any) -> bool:
        """Return whether a logged value is a single metric, or of all samples of a report at their class shares."""
        if not isinstance(value, ReportedValue):
            return True
        of_report = isinstance(value.report, ImbalanceReport) and value.report.prevalence is None
        return of_report and value.row.kind in ("overall", "class", "class group") and not value.row.bound

    def add(self, logged: Tensor) -> None:
        """Add a validation, after the metric was computed."""
        if isinstance(self.value, ReportedValue):
            lacking = self._never_predicted()
            self.reasons.append(f"no sample was predicted {first_names(lacking)}" if lacking else "")
            return
        self._numbers.append(number := float(logged))
        better = self.value.higher_is_better
        best = None if better is None else getattr(self.value, f"plot_{'upper' if better else 'lower'}_bound")
        same = all(each == number or (math.isnan(each) and math.isnan(number)) for each in self._numbers)
        text = f"it has not moved in {len(self._numbers)} validations" if same and number != best else ""
        self.reasons = [text] * len(self._numbers)

    def _never_predicted(self) -> list[str]:
        """Return the classes without predictions as texts; empty if the last result predicts several classes."""
        report, row = self.value.report, self.value.row
        if report.last_result is None:  # only values of batches are logged
            return []
        names, margins = list(report.class_names), report.last_result.margins
        if report.task != "multilabel":
            return [f"as {names[index]!r}" for index in never_predicted(margins)[0]]
        if row.kind == "class":
            margins, names = Margins(*(part[names.index(row.of)] for part in margins)), [row.of]
        found = zip(names, never_predicted(margins), strict=True)
        return [f"{'positive' if 1 in lacking else 'negative'} for {name!r}" for name, lacking in found if lacking]

    def remedy(self, module: nn.Module, calls: Mapping[str, str]) -> str:
        """Return what to monitor in place of a value of a report, given the calls that log other values."""
        report, row = self.value.report, self.value.row
        for path, sweep in shared_results(module):
            if isinstance(sweep, DecidingSweep) and sweep.task == report.task:
                name, mode = sweep["value"].full_name, "max" if sweep["value"].higher_is_better else "min"
                log = f"log it by {calls[name]} and " if name in calls else ""
                return f"The value at the best decision of self.{path} can: {log}write monitor={name!r}, mode={mode!r}"
        measure = row.measure if row.kind == "overall" and row.measure in SWEPT else "balanced_accuracy"
        made, labels = f"ThresholdSweep({measure!r}", f", task='multilabel', num_labels={len(report.class_names)}"
        made += labels if report.task == "multilabel" else ""
        if report.task == "multiclass":
            made = f"LogitAdjustmentSweep({measure!r}, train_counts"
        prefix = f"{report.prefix}best_"
        return (
            f"The value at the best decision can: build self.sweep = imbtorch.{made}, logits={report.logits}, "
            f"prefix={prefix!r}) in __init__, update it with the scores in validation_step, log it by "
            f"self.log_dict(self.sweep) and write monitor='{prefix}value', mode='max'"
        )
