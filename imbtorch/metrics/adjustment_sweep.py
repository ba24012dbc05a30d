"""Sweep of a measure of several classes over logit adjustments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import in_class_order
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Margins, evaluated
from imbtorch.deciding.adjusted_margins import AdjustedMargins
from imbtorch.deciding.adjustment_result import AdjustmentSettings, LogitAdjustmentResult, maximised, of_margins
from imbtorch.deciding.adjustments import AdjustmentPoint, Adjustments
from imbtorch.deciding.rules import LogitAdjustment, checked_shares
from imbtorch.deciding.thresholds import InfeasibleError, worst_value
from imbtorch.measures.named import Measured, directed
from imbtorch.metrics.base import Counter, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.deciding import DecidingSweep
from imbtorch.metrics.state import Setting
from imbtorch.reports.groups import checked_class_groups
from imbtorch.reports.rows import Row, shown
from imbtorch.reports.texts import checked_names

FROM, STEPS, PER_UNIT = -2, 41, 8  # default taus: 41 from -2 in steps of an eighth, to 3
APART = 0.3  # total variation between prior and samples from which their order may be wrong
ALIKE = 0.1  # total variation between both, each sorted, below which it is
SHOWN = 10  # most shares of the prior that the repr shows


class LogitAdjustmentSweep(DecidingSweep):
    """Sweep of a measure over logit adjustments: it logs the chosen ``tau`` and the value there.

    Post-hoc logit adjustment subtracts ``tau`` times the log class shares of training from the logits
    (:class:`~imbtorch.LogitAdjustment`), which moves decisions from frequent to rare classes. In Lightning, log the
    sweep itself; each checkpoint that is saved after a validation holds its ``tau``::

        self.sweep = LogitAdjustmentSweep("balanced_accuracy", train_counts, logits=True, prefix="val_")
        self.sweep.update(logits, y)  # in validation_step, without the rule
        self.log_dict(self.sweep)  # in on_validation_epoch_end: val_tau and val_value; elsewhere compute()
        self.test.update(self.sweep.rule(logits), y)  # in test_step, also after ckpt_path="best"

    ``sweep.rule`` is a submodule that returns adjusted logits; ``sweep.rule.predict`` returns classes. Its ``tau`` is 0
    until ``compute`` chooses; Lightning's sanity check, test and predict do not change it. Outside Lightning, do not
    update the sweep with test data. ``sweep.rule.take(sweep.best(...))`` sets another ``tau`` until the next
    ``compute`` with new samples. For two classes use :class:`~imbtorch.ThresholdSweep`.

    The choice, :meth:`gain` and the table resample whole clusters (``update(..., cluster=ids)``). Without ids each
    sample with its positions is one, and another number of processes may choose a neighbouring ``tau``.
    The page "How a choice is corrected" describes the method, the page "Evidence for decisions" what it gains. The
    state holds 2 x K integers for each of 64 buckets and each ``tau``: 0.4 MB for 10 classes, 42 MB for 1,000.

    Args:
        measure: name in the catalogue such as ``"balanced_accuracy"``, ``functools.partial`` of a measure, or function
            of :class:`~imbtorch.Margins`. A measure that needs the whole confusion matrix raises an error.
        prior: ``[K]`` number or share of the training samples of each class, in any unit; all must be positive. With
            ``class_names`` also a dict of class name -> number.
        at_least: constraints as name of a value -> least value, such as ``{"accuracy": 0.9, "recall/fraud": 0.8}``. If
            no ``tau`` satisfies them, the worst possible value is logged, with a warning that says what is reachable.
        taus: multiples to try; 0, the plain rule, is always among them. By default -2 to 3 in steps of 0.125.
        class_names: names of the classes, by default their indices.
        class_groups: name -> classes, such as :func:`~imbtorch.shot_groups`; table and picture show their mean recall.
        higher_is_better: direction; by default the attribute of the measure, or True if it has none.
        prefix: text before each name, such as ``"val_"``.
        postfix: text after each name.
        logits: True if scores are logits. By default they are probabilities, such as ``predict_proba`` of scikit-learn,
            and their logarithms are adjusted. The sweep never guesses.
        ignore_index: target of the samples to leave out.
        on_invalid: ``"raise"``, or ``"warn"`` to skip invalid samples, such as probabilities that do not sum to 1.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for a class without training samples, measures that need the matrix or have no direction, and
            arguments that do not fit the classes.
        TypeError: for something that is not a measure, and arguments of the wrong type.

    Source: Menon et al. (2021), Long-tail learning via logit adjustment, section 4.

    >>> sweep = LogitAdjustmentSweep("balanced_accuracy", [8, 2], logits=True)
    >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [3.0, 1.5]])
    >>> sweep.update(logits.repeat(40, 1), torch.tensor([0, 1, 0]).repeat(40))
    >>> sweep.compute()
    {'tau': tensor(0.3750), 'value': tensor(1.)}
    """

    prior = Setting[Tensor](lambda sweep: sweep._settings.prior.clone(), "Class shares of training, float64 ``[K]``.")
    taus = Setting[tuple[float, ...]]("_settings.taus", "Multiples that are tried, sorted.")
    class_names = Setting[tuple[str, ...]]("_settings.class_names", "Names of the classes.")
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda sweep: dict(sweep._settings.groups), "Indices of the classes of each class group."
    )
    at_least = Setting[dict[str, float]](
        lambda sweep: {name: limit.bound for name, limit in sweep._settings.limits.items()},
        "Constraints under which tau is chosen, as name of a value -> least value.",
    )

    def __init__(
        self,
        measure: Measured,
        prior: Tensor | Sequence[float] | Mapping[str, float],
        *,
        at_least: Mapping[str, float] | None = None,
        taus: Tensor | Sequence[float] | None = None,
        class_names: Sequence[str] | None = None,
        class_groups: Mapping[str, Sequence[str | int]] | None = None,
        higher_is_better: bool | None = None,
        prefix: str = "",
        postfix: str = "",
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        names = None if class_names is None else checked_names(class_names)
        given = in_class_order("prior", prior, names or ())
        shares = checked_shares(given, names).cpu().double()
        if names is not None and len(names) != len(shares):
            raise ValueError(f"class_names holds {len(names)} names for the {len(shares)} classes of prior; name each")
        counting = Counting.of("multiclass", len(shares), None, 0.5, logits, ignore_index)
        counting = replace(counting, clusters=True)
        grid = _checked_taus(taus)
        super().__init__(counting, on_invalid, AdjustedMargins(counting, grid, shares, torch.device("cpu")), **kwargs)
        self._prevalence = None
        swept = directed(of_margins("measure", measure, counting), higher_is_better)
        ones = torch.ones(3, counting.size, dtype=torch.float64, device="cpu")
        evaluated(swept, Margins(ones, ones, ones))  # before the first epoch
        class_labels = tuple(map(str, range(len(shares))) if names is None else names)
        name = swept.traits.key or str(getattr(swept.function, "__name__", "value"))
        groups = checked_class_groups(class_groups, class_labels)
        settings = AdjustmentSettings(counting, shares, grid, swept, name, class_labels, groups, {})
        self._settings = replace(settings, limits=settings.checked_limits(at_least))
        self._name(self._settings.rows, prefix, postfix)
        self._own_rule(LogitAdjustment(shares, 0.0, logits))
        self._warn_if_large(f"{len(grid)} taus and {len(shares)} classes", "fewer taus=")

    if TYPE_CHECKING:
        rule: LogitAdjustment

        def result(self) -> LogitAdjustmentResult:
            """Return the last computed result."""

    @property
    def _adjusted(self) -> AdjustedMargins:
        return cast(AdjustedMargins, self._counter)

    def _label(self, index: int) -> str:
        return self.class_names[index]

    def _counter_of_a_batch(self) -> Counter:
        return copy(self._adjusted)  # another one, since the bucket of a sample depends on the number before it

    def _shown_arguments(self) -> dict[str, Any]:
        prior = [round(share, 6) for share in self.prior.tolist()]
        shown: dict[str, Any] = {"measure": self._settings.measure.function}
        shown |= {"prior": prior if len(prior) <= SHOWN else f"{len(prior)} shares"}
        shown |= {"at_least": self.at_least} if self.at_least else {}
        shown |= {"taus": list(self.taus)} if self.taus != _checked_taus(None) else {}
        defaults = {"logits": False, "ignore_index": None, "on_invalid": "raise"}
        return shown | {name: value for name in defaults if (value := getattr(self, name)) != defaults[name]}

    def _settings_text(self) -> str:
        own = (self._settings.measure.settings, self.class_names, self.class_groups, self.at_least)
        return f"{super()._settings_text()} {canonical(own)}"

    # --- computing --------------------------------------------------------------------------------------------------

    def _result(self, buckets: Margins) -> tuple[LogitAdjustmentResult, str]:
        """Return the result of the counts of buckets, and a text about floors that no tau keeps."""
        settings, adjustments, problem = self._settings, Adjustments(self.taus, buckets), ""
        try:
            index = adjustments.chosen(maximised(settings.measure), settings.limits)
            value = evaluated(settings.measure, adjustments.total)[index]
        except InfeasibleError as error:
            index, problem = adjustments.plain, str(error)
            worst = worst_value(settings.measure.higher_is_better, settings.measure.traits.value_range)
            value = torch.tensor(worst, dtype=torch.float64)
        tau = torch.tensor(self.taus[index], dtype=torch.float64)
        values = dict(zip(settings.rows, shown((tau, value)), strict=True))
        return LogitAdjustmentResult(values, buckets, settings, index, not problem), problem

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        assert isinstance(counter, AdjustedMargins)
        return self._result(counter.of_buckets(state))[0].rows

    def compute(self) -> dict[str, Tensor]:
        """Compute the best tau and the value there from the scores of all processes (a collective step); set the rule.

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        state = self._state.cpu()
        buckets = self._adjusted.of_buckets(state)
        actual = buckets.actual.sum((0, 1))
        self._report_problems(self._adjusted.faults(state), actual)
        self._warn_of_another_order(actual)
        result, problem = self._result(buckets)
        if problem and bool(actual.any()):
            logged = result[Row("value", None).name].item()
            self._warn_once(
                "infeasible", f"{type(self).__name__}: {problem}; the worst possible value, {logged:g}, is reported"
            )
        elif result.tau != 0 and result.tau in (self.taus[0], self.taus[-1]):
            self._warn_once(
                "end",
                f"{type(self).__name__}: the chosen tau {result.tau:g} is an end of the grid, so that a better one may "
                "lie beyond it; pass taus= that reach further",
            )
        return self._keep_choice(result, actual.sum().item())

    def _warn_of_another_order(self, actual: Tensor) -> None:
        """Warn if the prior fits the classes of the samples in another order than that of the classes."""
        if not self._may_warn("order") or not bool(actual.any()):
            return
        prior, shares = self._settings.prior, actual.double() / actual.sum()
        apart, sorted_apart = (
            (one - other).abs().sum().item() / 2
            for one, other in ((prior, shares), (prior.sort().values, shares.sort().values))
        )
        if apart > APART and sorted_apart < ALIKE:
            largest = [self.class_names[int(each.argmax())] for each in (prior, shares)]
            self._warn_once(
                "order",
                f"{type(self).__name__}: prior fits the samples in another order of the classes only: its largest "
                f"number is that of class {largest[0]!r}, and most samples are of class {largest[1]!r}; pass prior in "
                "the order of the classes, such as torch.bincount(labels, minlength=K)",
            )

    # --- the last result --------------------------------------------------------------------------------------------

    def best(self, measure: Measured | None = None, *, at_least: Mapping[str, float] | None = None) -> AdjustmentPoint:
        """Choose another tau from the last result.

        Details are in :meth:`~imbtorch.deciding.adjustment_result.LogitAdjustmentResult.best`.

        Args:
            measure: name in the catalogue, function of margins, or ``functools.partial`` of one; by default the swept
                measure.
            at_least: name of a value -> least value, such as ``{"recall/fraud": 0.8}``. These constraints add to the
                ones of the sweep; ``{}`` removes all constraints of the sweep.

        Raises:
            ValueError: if no tau satisfies the constraints; the error says what is reachable.
        """
        found = self.result().best(measure, at_least=at_least)
        self._advise([found])
        return found

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw measures and class groups of the last result over tau.

        Args:
            val: not used; the last computed result is drawn.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        return self.result().plot(ax)


def _checked_taus(taus: Tensor | Sequence[float] | None) -> tuple[float, ...]:
    """Return sorted finite multiples, with 0 among them; raise unless there are others."""
    if taus is None:
        return tuple(FROM + step / PER_UNIT for step in range(STEPS))
    try:
        given = torch.as_tensor(taus, dtype=torch.float64, device="cpu").flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"taus must be a sequence of numbers such as [0, 0.5, 1], got {taus!r}") from error
    found = tuple(sorted({0.0, *(each + 0.0 for each in given.tolist())}))
    if not bool(given.isfinite().all()) or len(found) < 2:
        raise ValueError(f"taus must be finite numbers, at least one of them not 0, got {given.tolist()}")
    return found
