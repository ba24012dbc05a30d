"""Base of the sweeps, which own the rule that they choose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.batches import Batch
from imbtorch.counting.logits import SUMS, sum_to_one
from imbtorch.deciding.adjustments import AdjustmentPoint
from imbtorch.deciding.points import OperatingPoint
from imbtorch.deciding.rules import LogitAdjustment, Threshold
from imbtorch.metrics.shared_result import SharedResult
from imbtorch.reports.rows import Result

if TYPE_CHECKING:
    from imbtorch.deciding.adjustment_result import LogitAdjustmentResult
    from imbtorch.deciding.sweep_result import SweepResult

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LARGE = 100_000_000  # bytes of a state above which the constructor warns
LEFT = (
    "{}: its rule stays as it was chosen before, because a test chooses nothing; measure the rule on these samples by "
    "a metric that is updated with the rule's predictions, metric.update(sweep.rule(scores), target)"
)


def of_last_result(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[DecidingSweep, P], T]:
    """Return a method of a result as a method of its sweep, which calls it on the last result; never communicates."""

    @wraps(method)
    def call(sweep: DecidingSweep, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return sweep._advised(method(cast(R, sweep.result()), *args, **kwargs))

    return call


class DecidingSweep(SharedResult):
    """Base of the sweeps: metrics whose :attr:`rule` takes what ``compute`` chooses."""

    if TYPE_CHECKING:  # TorchScript would read the annotation
        rule: Threshold | LogitAdjustment

        def result(self) -> SweepResult | LogitAdjustmentResult:
            """Return the last computed result."""

    decides: bool = True
    """True if ``compute`` sets the rule; Lightning's sanity check, test and predict switch it off."""
    keeps: str = ""
    """Name of its value by which a callback kept the checkpoint that is tested; empty if that is not known."""

    def begin_fit(self) -> None:
        """Let the warnings that come once a fit come again; the guard of Lightning calls it."""
        self._already_warned = set()

    def _to_judge(self, preds: Tensor, batch: Batch) -> Tensor | None:
        of_classes = self.task == "multiclass" or preds.ndim > batch.target.ndim
        return preds if of_classes else super()._to_judge(preds, batch)

    def _judge(self, scores: Tensor, counted: bool) -> None:
        """Raise if the first logits of several classes are probabilities; warn with ``on_invalid="warn"``, or later."""
        if self.task == "multilabel" or scores.shape[1] == 1:
            super()._judge(scores, counted)
            return
        self.like_probabilities = bool(sum_to_one(scores))
        if self.like_probabilities and self.on_invalid == "raise" and not counted:
            self._first = []
            raise ValueError(f"preds {SUMS}")
        if self.like_probabilities:
            self._warn_once("probabilities", f"{type(self).__name__}: preds {SUMS}")

    def _own_rule(self, rule: Threshold | LogitAdjustment | None) -> None:
        """Make a rule a submodule, on the device of the counts."""
        self._decided_on = 0.0  # number of samples on which the rule was chosen, since the last reset
        self.rule = rule if rule is None else rule.to(self._state.device)  # type: ignore[assignment]
        if rule is not None:
            rule.of_a_sweep = True
            rule._mark("chosen", 0)

    def _warn_if_large(self, what: str, remedy: str) -> None:
        """Warn if the counts take much memory."""
        taken = 8 * self._counter.length
        if taken > LARGE:
            warn_caller(f"{type(self).__name__}: the counts of {what} take {1e-6 * taken:,.0f} MB; {remedy} take less")

    def _keep_choice(self, result: Result, samples: float) -> dict[str, Tensor]:
        """Keep a result, and let the rule take what it chose from new samples of all processes; return the values.

        A result of no samples replaces neither the rule nor an earlier result.
        """
        before = self._last
        values = self._keep(result)
        if not samples:
            self._last = before or result
        elif self.rule is not None and samples != self._decided_on:
            if self.decides:
                used = {*self.rule._uses}
                self.rule.take(result)
                self.rule._uses = used  # by programs
                self._decided_on = samples
            elif self.rule.chosen and not getattr(self, "also", ()):  # areas need no rule
                self._warn_once("left", LEFT.format(type(self).__name__))
        return values

    def _advised(self, found: T) -> T:
        """Let the text of points whose number is not that of the rule say how it takes them; return what was found."""
        several = isinstance(found, dict)
        points: list[Any] = list(cast(Any, found).values()) if several else [found]
        for place, point in enumerate(points if self.rule is not None else ()):
            if isinstance(point, (OperatingPoint, AdjustmentPoint)):
                number: Any = point.tau if isinstance(point, AdjustmentPoint) else point.log_odds
                advice = partial(self.rule._advice_on, number, place, "points" if several else "point")
                object.__setattr__(point, "_advice", advice)  # they are frozen
        return found

    def reset(self) -> None:
        """Set all counts to zero; the rule and the last result stay."""
        super().reset()
        self._decided_on = 0.0
