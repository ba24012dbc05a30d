"""Results of sweeps over logit adjustments: values, curves, the choice of tau and its gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_generator, in_class_order
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Margins, evaluated
from imbtorch.deciding.adjusted_margins import AdjustedMargins
from imbtorch.deciding.adjustments import AdjustmentPoint, Adjustments, at, maximised, over_buckets
from imbtorch.deciding.limits import checked_floors
from imbtorch.deciding.problems import OF_ADJUSTMENTS
from imbtorch.deciding.rules import LogitAdjustment, checked_shares
from imbtorch.deciding.thresholds import InfeasibleError, Limits, held_text, worst_value
from imbtorch.intervals.intervals import Interval, check_level
from imbtorch.measures.named import PER_CLASS, AveragedMeasure, Measured, directed, of_name, resolved
from imbtorch.measures.traits import by_any_name, short_name
from imbtorch.reports.groups import checked_class_groups
from imbtorch.reports.readings import values_of_class_groups, values_of_classes
from imbtorch.reports.rows import Finder, Result, Row, shown
from imbtorch.reports.texts import checked_names
from imbtorch.suggestions import did_you_mean, first_names
from imbtorch.tables import Cell, Table

SHOWN = ("accuracy", "balanced_accuracy", "f1", "gmean", "iam", "mcc")  # measures of the table
FROM, STEPS, PER_UNIT = -2, 41, 8  # default taus: 41 from -2 in steps of an eighth, to 3
DRAWN = ("accuracy", "balanced_accuracy")  # measures of the picture beside the swept one


@dataclass(frozen=True, eq=False)
class AdjustmentSettings:
    """Settings by which a sweep computes values from its counts; its results share them.

    ``prior`` holds the class shares of training, float64 ``[K]`` on the CPU, ``taus`` sorted multiples of their
    logarithms, ``groups`` the indices of the classes of each class group.
    """

    counting: Counting
    prior: Tensor
    taus: tuple[float, ...]
    measure: AveragedMeasure
    name: str
    class_names: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    limits: Limits

    @classmethod
    def of(
        cls,
        measure: Measured,
        prior: Tensor | Sequence[float] | Mapping[str, float],
        *,
        at_least: Mapping[str, float] | None = None,
        taus: Tensor | Sequence[float] | None = None,
        class_names: Sequence[str] | None = None,
        class_groups: Mapping[str, Sequence[str | int]] | None = None,
        higher_is_better: bool | None = None,
        logits: bool = False,
        ignore_index: int | None = None,
    ) -> AdjustmentSettings:
        """Check the arguments of :class:`~imbtorch.LogitAdjustmentSweep`; raise ValueError or TypeError."""
        names = None if class_names is None else checked_names(class_names)
        given = in_class_order("prior", prior, names or ())
        shares = checked_shares(given, names).cpu().double()
        if names is not None and len(names) != len(shares):
            raise ValueError(f"class_names holds {len(names)} names for the {len(shares)} classes of prior; name each")
        counting = replace(Counting.of("multiclass", len(shares), None, 0.5, logits, ignore_index), clusters=True)
        grid = checked_taus(taus)
        swept = directed(of_margins("measure", measure, counting), higher_is_better)
        ones = torch.ones(3, counting.size, dtype=torch.float64, device="cpu")
        evaluated(swept, Margins(ones, ones, ones))  # before the first epoch
        class_labels = tuple(map(str, range(len(shares))) if names is None else names)
        name = swept.traits.key or str(getattr(swept.function, "__name__", "value"))
        groups = checked_class_groups(class_groups, class_labels)
        settings = cls(counting, shares, grid, swept, name, class_labels, groups, {})
        return replace(settings, limits=settings.checked_limits(at_least))

    def counter(self) -> AdjustedMargins:
        """Return the counter of decisions, without counts."""
        return AdjustedMargins(self.counting, self.taus, self.prior, torch.device("cpu"))

    @property
    def rows(self) -> list[Row]:
        """Rows of the reported values."""
        return [Row("tau", None), Row("value", self.measure.higher_is_better)]

    def named(self, name: str, argument: str) -> AveragedMeasure:
        """Return the measure of a name: of the catalogue, or of a value of a class or class group."""
        name = short_name(name)
        if name == self.name:
            return self.measure
        if name in by_any_name():
            return of_margins(argument, name, self.counting)
        of_each = {key: of_name(key, self.counting) for key in PER_CLASS}
        values = values_of_class_groups(of_each, self.groups) | values_of_classes(of_each, self.class_names)
        known = {row.name: value for row, value in values.items()}
        if name not in known:
            names = [*self.class_names, *self.groups]
            raise ValueError(
                f"{argument} names {name!r}, which is unknown; write a measure of the catalogue, or one with a value "
                f"for each class ({', '.join(PER_CLASS)}), a slash and a class or class group "
                f"({first_names(names, 20)}){did_you_mean(name, (*by_any_name(), *known))}"
            )
        return known[name].function

    def checked_limits(self, at_least: Mapping[str, float] | None) -> Limits:
        """Check floors of measures; raise as :func:`~imbtorch.deciding.limits.checked_floors`."""
        return {} if at_least is None else checked_floors(at_least, lambda name: self.named(name, "at_least"))


def checked_taus(taus: Tensor | Sequence[float] | None) -> tuple[float, ...]:
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


def of_margins(argument: str, measured: Measured, counting: Counting) -> AveragedMeasure:
    """Resolve a measure of margins; raise for one that needs the whole matrix or prices errors by a threshold."""
    found = resolved(argument, measured, counting, batched=True)
    if found.needs_matrix and found.traits.key:
        raise ValueError(
            f"{argument} {found.name} needs the whole matrix, but a sweep of tau keeps margins; sweep another measure, "
            "and compute this one with metric.update(sweep.result().rule(logits), target)"
        )
    if found.traits.reads_threshold:
        raise ValueError(
            f"{argument} is a measure that prices errors by a threshold, which several classes do not have; sweep "
            "another measure"
        )
    return found


def _worse(measure: AveragedMeasure, value: Tensor, plain: Tensor) -> bool:
    """Return whether a value is worse than that of the plain rule."""
    return bool(value < plain if measure.higher_is_better else value > plain)


@dataclass(frozen=True, eq=False, repr=False)
class LogitAdjustmentResult(Result):
    """Result of a sweep over logit adjustments: the chosen tau with its value, curves, its gain and other choices.

    :meth:`imbtorch.LogitAdjustmentSweep.result` returns it. ``result["value"]`` is one value, :attr:`values` is a dict
    of all, without prefix and postfix. A result never changes and never communicates. It can be pickled, so that you
    can choose another tau later without the sweep; a function that is swept must then be defined at the top level of a
    module.

    In shapes, T is the number of taus and K the number of classes.

    >>> from imbtorch import LogitAdjustmentSweep
    >>> sweep = LogitAdjustmentSweep("balanced_accuracy", [8, 2], logits=True)
    >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [3.0, 1.5]])
    >>> sweep.update(logits.repeat(40, 1), torch.tensor([0, 1, 0]).repeat(40))
    >>> result = sweep.result()
    >>> result.tau, result.rule
    (0.375, LogitAdjustment(num_classes=2, tau=0.375))
    """

    _buckets: Margins
    _tau_settings: AdjustmentSettings
    _index: int
    _feasible: bool

    @property
    def _all_counts(self) -> Margins:
        return over_buckets(self._buckets)

    @property
    def _finders(self) -> tuple[Finder, ...]:
        return OF_ADJUSTMENTS

    @cached_property
    def _adjustments(self) -> Adjustments:
        return Adjustments(self._tau_settings.taus, self._buckets)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle."""
        return {name: part for name, part in super().__getstate__().items() if name != "_adjustments"}

    @property
    def tau(self) -> float:
        """Chosen multiple of the log class shares."""
        return self._tau_settings.taus[self._index]

    @property
    def logits(self) -> bool:
        """True if the scores were logits."""
        return self._tau_settings.counting.logits

    @property
    def prior(self) -> Tensor:
        """Class shares of training, float64 ``[K]``."""
        return self._tau_settings.prior.clone()

    @property
    def taus(self) -> Tensor:
        """Multiples that were counted, float64 ``[T]``."""
        return torch.tensor(self._tau_settings.taus, dtype=torch.float64)

    @property
    def rule(self) -> LogitAdjustment:
        """Module with the prior and the chosen tau, for metrics and for deployment."""
        return LogitAdjustment(self._tau_settings.prior, self.tau, logits=self.logits)

    def curve(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """Return the taus and a measure at each of them, both float64 ``[T]``.

        Args:
            name: measure in the catalogue, or value of a class or class group such as ``"recall/fraud"`` or
                ``"recall/few"``; by default the swept measure.

        Raises:
            ValueError: for an unknown name, and measures that need the matrix.
        """
        measure = self._tau_settings.measure if name is None else self._tau_settings.named(name, "name")
        return self.taus, evaluated(measure, self._adjustments.total)

    def best(self, *, measure: Measured | None = None, at_least: Mapping[str, float] | None = None) -> AdjustmentPoint:
        """Choose tau for a measure, under the constraints you set.

        The buckets of samples are resampled 100 times, and the best taus of the resamples are averaged. This mean
        varies less than the single best tau. With constraints, it is moved to the nearest tau that satisfies them on
        all samples; a constraint that is just satisfied may fail on new data.

        Args:
            measure: name in the catalogue, function of margins, or ``functools.partial`` of one; by default the swept
                measure.
            at_least: name of a value -> least value, such as ``{"recall/fraud": 0.8, "accuracy": 0.9}``. These
                constraints add to the ones of the sweep; ``{}`` removes all constraints of the sweep.

        Returns:
            :class:`~imbtorch.statistics.AdjustmentPoint`, which :meth:`imbtorch.LogitAdjustment.take` accepts.

        Raises:
            ValueError: if no tau satisfies the constraints (the error says what is reachable); for unknown measures,
                measures without a direction and measures that need the matrix.
            TypeError: for something that is not a measure, and for constraints that are no mapping.
        """
        settings = self._tau_settings
        self._check_counted()
        limits = {**settings.limits, **settings.checked_limits(at_least)} if at_least != {} else {}
        swept = settings.measure
        if isinstance(measure, str):
            swept = settings.named(measure, "measure")
        elif measure is not None:
            swept = of_margins("measure", measure, settings.counting)
        swept = directed(swept, swept.higher_is_better)
        return self._point(swept, self._adjustments.chosen(maximised(swept), limits), limits)

    def _check_counted(self) -> None:
        """Raise if there are no samples to choose from."""
        if not bool(self._all_counts.actual.any()):
            raise ValueError("no sample was counted, so there is no tau to choose; call update and compute before")

    def _point(self, measure: AveragedMeasure, index: int, limits: Limits) -> AdjustmentPoint:
        adjustments = self._adjustments
        values, counts = evaluated(measure, adjustments.total), at(adjustments.total, index)
        kept = {name: evaluated(limit.measure, counts).item() for name, limit in limits.items()}
        gain = None
        if _worse(measure, values[index], values[adjustments.plain]):
            gain = adjustments.gain(maximised(measure), limits, index, 0.95, torch.Generator().manual_seed(0))
        return AdjustmentPoint(
            self._tau_settings.taus[index],
            self.prior,
            values[index].item(),
            values[adjustments.plain].item(),
            Margins(*(part.clone() for part in counts)),
            kept,
            self.logits,
            gain,
        )

    def gain(self, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """Estimate the gain of the chosen tau over tau = 0 on new samples, with an interval.

        Each bucket of samples is counted at the tau that resamples without this bucket choose. If no sample of the
        rarest classes is right at either tau, ``method`` says so, since the interval may then be too narrow
        (page "How a choice is corrected"). Positive is better, also for a measure of which lower is better. With
        constraints, ``method`` gives the constrained measures on held-out samples.

        Args:
            level: nominal coverage of the interval, in (0, 1).
            generator: source of randomness, on the CPU; by default one of a fixed seed.

        Raises:
            ValueError: for a level outside (0, 1), and if no tau satisfies the constraints of the sweep.
        """
        check_level(level)
        check_generator(generator)
        self._check_counted()
        objective, limits = maximised(self._tau_settings.measure), self._tau_settings.limits
        if not self._feasible:
            self._adjustments.chosen(objective, limits)  # raises with what is reachable
        generator = generator or torch.Generator().manual_seed(0)  # table and interval agree
        found = self._adjustments.gain(objective, limits, self._index, level, generator)
        return replace(found, method=f"{found.method}; {held}") if (held := self._held_text()) else found

    def _held_text(self) -> str:
        """Return the limited measures on held-out samples as text; empty without limits."""
        if not self._tau_settings.limits:
            return ""
        counts = self._adjustments.held_out(maximised(self._tau_settings.measure), self._tau_settings.limits)
        return held_text(self._tau_settings.limits, counts)

    def _gain_text(self) -> str:
        """Return a sentence about the gain."""
        if not self._feasible:
            return "No tau keeps the floors."
        if self.tau == 0:
            return f"The chosen tau is 0: no adjustment improves {self._tau_settings.name} steadily."
        found = self.gain()
        low, high = float(found.low), float(found.high)
        shown = f"{self._tau_settings.name} {float(found.estimate):+.3f} [{low:+.3f}, {high:+.3f}] (95% {found.method})"
        shown = f"Gain over the plain rule, corrected for the choice: {shown}"
        shown += ": not shown by these samples" * (not low > 0)
        values = self.curve()[1]
        if not self._tau_settings.limits and _worse(
            self._tau_settings.measure, values[self._index], values[self._adjustments.plain]
        ):
            shown += "; its value above is worse than the plain one, because tau is a mean over resamples"
        held = self._held_text()
        return f"{shown}; {held}" if held else shown

    def table(self, digits: int = 3) -> Table:
        """Return the values of the plain rule, of tau = 1 and of the chosen tau: measures and recalls of class groups.

        ``table["value"]["recall/few"]["plain"]`` is one of them. The last line is :meth:`gain` with its interval.
        ``digits`` is the number of decimals of values.
        """
        adjustments, settings = self._adjustments, self._tau_settings
        chosen = f"tau = {self.tau:g}" if self._feasible else ""
        columns = {"plain": adjustments.plain}
        columns |= {"tau = 1": settings.taus.index(1.0)} if 1.0 in settings.taus else {}
        columns |= {f"tau = {self.tau:g}": self._index}
        names = dict.fromkeys(
            (settings.name, *SHOWN, *settings.limits, *(f"recall/{name}" for name in settings.groups))
        )
        values = {}
        for name in names:
            each = self.curve(name)[1]
            values[name] = {head: Cell(each[i].item(), mark="*" * (head == chosen)) for head, i in columns.items()}
        notes = ("*: the chosen tau. " * bool(chosen) + self._gain_text(),)
        return Table({"value": values}, notes, digits=digits)

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw measures and recalls of the class groups over tau, with the chosen one marked.

        Args:
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.adjustments import plot_adjustments

        settings = self._tau_settings
        names = dict.fromkeys((settings.name, *DRAWN, *(f"recall/{name}" for name in settings.groups)))
        lines = {name: self.curve(name)[1] for name in names}
        return plot_adjustments(self.taus, lines, ax, chosen=self.tau)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


def result_of_buckets(settings: AdjustmentSettings, buckets: Margins) -> LogitAdjustmentResult:
    """Choose tau and compute the values from the counts of buckets of clusters."""
    adjustments, feasible = Adjustments(settings.taus, buckets), True
    try:
        index = adjustments.chosen(maximised(settings.measure), settings.limits)
        value = evaluated(settings.measure, adjustments.total)[index]
    except InfeasibleError:
        index, feasible = adjustments.plain, False
        worst = worst_value(settings.measure.higher_is_better, settings.measure.traits.value_range)
        value = torch.tensor(worst, dtype=torch.float64)
    tau = torch.tensor(settings.taus[index], dtype=torch.float64)
    values = dict(zip(settings.rows, shown((tau, value)), strict=True))
    return LogitAdjustmentResult(values, buckets, settings, index, feasible)
