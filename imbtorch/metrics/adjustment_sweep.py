"""Sweep of a measure of several classes over logit adjustments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.tasks import Counter
from imbtorch.deciding.adjusted_margins import AdjustedMargins
from imbtorch.deciding.adjustment_result import (
    AdjustmentSettings,
    LogitAdjustmentResult,
    checked_taus,
    result_of_buckets,
)
from imbtorch.deciding.rules import LogitAdjustment
from imbtorch.measures.named import Measured
from imbtorch.metrics.base import OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.deciding import DecidingSweep, of_last_result
from imbtorch.metrics.state import Setting
from imbtorch.reports.rows import Row

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

    >>> import torch
    >>> sweep = LogitAdjustmentSweep("balanced_accuracy", [8, 2], logits=True)
    >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [3.0, 1.5]])
    >>> sweep.update(logits.repeat(40, 1), torch.tensor([0, 1, 0]).repeat(40))
    >>> sweep.compute()
    {'tau': tensor(0.3750), 'value': tensor(1.)}
    """

    prior = Setting[Tensor](
        lambda sweep: sweep._tau_settings.prior.clone(), "Class shares of training, float64 ``[K]``."
    )
    taus = Setting[tuple[float, ...]]("_tau_settings.taus", "Multiples that are tried, sorted.")
    class_names = Setting[tuple[str, ...]]("_tau_settings.class_names", "Names of the classes.")
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda sweep: dict(sweep._tau_settings.groups), "Indices of the classes of each class group."
    )
    at_least = Setting[dict[str, float]](
        lambda sweep: {name: limit.bound for name, limit in sweep._tau_settings.limits.items()},
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
        settings = AdjustmentSettings.of(
            measure, prior, at_least=at_least, taus=taus, class_names=class_names, class_groups=class_groups,
            higher_is_better=higher_is_better, logits=logits, ignore_index=ignore_index,
        )  # fmt: skip
        super().__init__(settings.counting, on_invalid, settings.counter(), **kwargs)
        self._tau_settings, self._prevalence = settings, None
        self._name(self._tau_settings.rows, prefix, postfix)
        self._own_rule(LogitAdjustment(settings.prior, 0.0, logits=logits))
        self._warn_if_large(f"{len(settings.taus)} taus and {len(settings.prior)} classes", "fewer taus=")

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
        shown: dict[str, Any] = {"measure": self._tau_settings.measure.function}
        shown |= {"prior": prior if len(prior) <= SHOWN else f"{len(prior)} shares"}
        shown |= {"at_least": self.at_least} if self.at_least else {}
        shown |= {"taus": list(self.taus)} if self.taus != checked_taus(None) else {}
        defaults = {"logits": False, "ignore_index": None, "on_invalid": "raise"}
        return shown | {name: value for name in defaults if (value := getattr(self, name)) != defaults[name]}

    def _settings_text(self) -> str:
        own = (self._tau_settings.measure.settings, self.class_names, self.class_groups, self.at_least)
        return f"{super()._settings_text()} {canonical(own)}"

    # --- computing --------------------------------------------------------------------------------------------------

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        assert isinstance(counter, AdjustedMargins)
        return result_of_buckets(self._tau_settings, counter.of_buckets(state)).rows

    def compute(self) -> dict[str, Tensor]:
        """Compute the best tau and the value there from the scores of all processes (a collective step); set the rule.

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        state = self._copied(self._state)
        buckets = self._adjusted.of_buckets(state)
        actual = buckets.actual.sum((0, 1))
        self._report_problems(self._adjusted.faults(state), actual)
        result = result_of_buckets(self._tau_settings, buckets)
        self._warn_of_problems(result)
        return self._keep_choice(result, actual.sum().item())

    # --- the last result --------------------------------------------------------------------------------------------

    best = of_last_result(LogitAdjustmentResult.best)
    gain = of_last_result(LogitAdjustmentResult.gain)
    table = of_last_result(LogitAdjustmentResult.table)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw measures and class groups of the last result over tau.

        Args:
            val: not used; torchmetrics passes values here.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        return self.result().plot(ax)
