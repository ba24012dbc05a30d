"""Report of many measures of one confusion matrix, for training loops to log."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import Layout, Task, Thresholds, in_class_order
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Margins, Measure, double, mapped, ratio, sums
from imbtorch.intervals.draws import DRAWS
from imbtorch.intervals.intervals import HEAVY, Interval, large_cluster_warning
from imbtorch.measures.named import (
    AtPrevalence,
    AveragedMeasure,
    Measured,
    named_measures,
    per_class_measures,
    resolved,
)
from imbtorch.measures.traits import by_any_name, by_key
from imbtorch.metrics.base import Counter, LocalCounts, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.shared_result import PREVALENCE, SharedResult
from imbtorch.metrics.state import Setting
from imbtorch.reports.groups import (
    checked_class_groups,
    checked_group_names,
    checked_per_group,
    few_samples_text,
    group_problems,
    report_memory,
)
from imbtorch.reports.readings import (
    FEW_CLASSES,
    Readings,
    Value,
    largest_bucket,
    values_of_class_groups,
    values_of_classes,
)
from imbtorch.reports.result import ReportResult
from imbtorch.reports.rows import Row, Snapshot
from imbtorch.reports.texts import UNSURE, checked_names
from imbtorch.suggestions import did_you_mean, first_names
from imbtorch.tables import Table

DEFAULT = ("iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc")
DEFAULT_OF_TWO_CLASSES = ("iba",)
ARGUMENTS = {
    "overall": "measures",
    "class": "per_class",
    "class group": "class_groups",
    "group": "groups",
    "worst": "groups",
}  # kind of row -> argument that adds it


class ImbalanceReport(SharedResult, LocalCounts):
    """Report of many measures from one confusion matrix: update it once for each batch, and log all values.

    In plain PyTorch ``compute()`` returns a dict of scalars. In Lightning, log the report itself; it is then computed
    over all processes and reset at the end of the epoch::

        self.val = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], prefix="val_")
        self.val.update(logits, y)  # in validation_step
        self.log_dict(self.val)  # in on_validation_epoch_end: val_iam, val_cba, ..., val_recall/cat, ...

    Several processes must read the same names in the same order; :meth:`result`, :meth:`table` and :meth:`plot` show
    what was computed last and never communicate. Most programs need the first eight arguments only.

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``; required.
        num_classes: number of classes; by default the length of ``class_names``.
        class_names: names of the classes (of the labels for multilabel), by default their indices.
        measures: measures over all classes, by default :meth:`default_measures`: names in the catalogue, or a dict of
            your name -> such a name, a function of the counts ``[K, K]``, or a ``functools.partial`` of one. In the
            binary task ``"f1"`` and ``f_score`` are the F1 of the positive class. A function of your own returns one
            value and has a direction if it has an attribute ``higher_is_better``.
        per_class: measures reported for each class as ``<measure>/<class>``, by default recall and precision of up to
            20 classes. As ``measures``, but a function of your own returns ``[K]``.
        intervals: True to report ``<name>_low`` and ``<name>_high`` for all ``measures``, ``"*"`` for all values, or
            names of values such as ``"recall/fraud"``, and patterns such as ``"recall/*"``. 95% intervals from 2,000
            draws, those of :meth:`interval` (page "Intervals"); nan, with a warning, for a value that only a class
            without targets determines.
        logits: True if floating ``preds`` of the binary and multilabel tasks are logits, False if probabilities.
        prefix: text before each name, such as ``"val_"``.

    Further arguments:
        num_labels: number of labels for multilabel; by default the length of ``class_names``.
        class_groups: name -> classes, such as :func:`~imbtorch.shot_groups`; means of ``per_class`` over these classes.
        groups: names of groups of samples, such as sites, or their number; :meth:`update` then takes ``group=``. Adds
            ``<measure>/<group>`` and ``<measure>_worst``, without groups that lack targets of a class. If a group has
            the name of a class, all are called ``group=<name>``, or ``site=<name>`` for ``{"site": names}``.
        per_group: measures reported for each group, by default all for up to 20 groups.
        clusters: True if samples resemble each other in clusters, such as the visits of a patient; intervals then
            resample clusters, and :meth:`update` takes ``cluster=`` ids. By default True for multilabel. The state
            takes 64 times the memory.
        prevalence: class shares of the population for which all values are computed (:func:`~imbtorch.at_prevalence`),
            such as ``{"ok": 1000, "fraud": 1}``; by default those of the counted samples.
        threshold: probability strictly above which 1 is predicted; for multilabel also one for each label.
        ignore_index: target of the samples to leave out.
        on_invalid: ``"raise"``, or ``"warn"`` to skip invalid samples.
        state: ``"matrix"``, or ``"margins"`` for many classes, which has no intervals.
        weighted: whether :meth:`update` takes ``weight``, the weight of each sample.
        postfix: text after each name.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for arguments that do not fit each other, and two values with the same name.
        TypeError: for arguments of the wrong type.

    >>> report = ImbalanceReport("multiclass", class_names=["cat", "dog"], num_classes=2)
    >>> report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    >>> report.compute()["recall/cat"]
    tensor(0.6667)
    """

    prevalence = PREVALENCE
    class_names = Setting[tuple[str, ...]](
        "_settings.class_names", "Names of classes or labels, in the order of their indices."
    )
    measures = Setting[tuple[str, ...]](
        lambda report: tuple(report._settings.measures), "Keys of the measures over all classes."
    )
    per_class = Setting[tuple[str, ...]](
        lambda report: tuple(report._settings.per_class), "Keys of the measures of each class."
    )
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda report: dict(report._class_groups), "Indices of the classes of each class group."
    )
    groups = Setting[tuple[str, ...] | None](
        lambda report: report._settings.groups or None, "Names of the groups of samples."
    )
    per_group = Setting[tuple[str, ...]]("_settings.per_group", "Keys of the measures of each group.")
    intervals = Setting[tuple[str, ...]](
        lambda report: tuple(row.name for row in report._settings.bounded),
        "Names of the values that are reported with intervals.",
    )

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        class_names: Sequence[str] | None = None,
        measures: Mapping[str, Measured] | Sequence[str] | None = None,
        per_class: Sequence[str] | Mapping[str, Measured] | None = None,
        intervals: bool | str | Sequence[str] = False,
        logits: bool = False,
        prefix: str = "",
        num_labels: int | None = None,
        class_groups: Mapping[str, Sequence[str | int]] | None = None,
        groups: Sequence[str] | Mapping[str, Sequence[str]] | int | None = None,
        per_group: Sequence[str] | None = None,
        clusters: bool | None = None,
        prevalence: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        threshold: Thresholds = 0.5,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        state: Layout = "matrix",
        weighted: bool = False,
        postfix: str = "",
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        _refuse_misspelt(type(self), kwargs)
        group_names, grouped_by = checked_group_names(groups)
        _check_together(bool(intervals), state, weighted, group_names, per_group)
        names = None if class_names is None else checked_names(class_names)
        sized_by_names = names is not None and num_classes is None
        num_classes, num_labels = _sized(task, num_classes, num_labels, names)
        number = None if group_names is None else len(group_names)
        counting = Counting.of(
            task, num_classes, num_labels, threshold, logits, ignore_index, state, weighted, number, clusters
        )
        counting = replace(
            counting, group_names=None if isinstance(groups, int) else group_names, sized_by_names=sized_by_names
        )
        class_names = _a_name_each(names, counting.size)
        super().__init__(counting, on_invalid, **kwargs)
        self._prevalence = None if prevalence is None else _checked_prevalence(prevalence, counting, class_names)
        given = named_measures(self.default_measures(counting.task) if measures is None else measures)
        overall = {key: resolved(key, each, counting, argument=f"measures[{key!r}]") for key, each in given.items()}
        self._class_groups = checked_class_groups(class_groups, class_names)
        # by default many classes are reported by class group only
        of_each = per_class_measures(("recall", "precision") if per_class is None else per_class, counting)
        if self._class_groups and not of_each:
            raise ValueError(
                "class_groups averages the measures in per_class, which is empty; use per_class=['recall']"
            )
        values = {Row(key, each.higher_is_better): Value(each) for key, each in overall.items()}
        if per_class is not None or counting.size <= FEW_CLASSES:
            values |= values_of_classes(of_each, class_names)
        values |= values_of_class_groups(of_each, self._class_groups)
        each_group = () if group_names is None else checked_per_group(per_group, group_names, overall)
        readings = Readings(counting, class_names, values, (), group_names or (), grouped_by, each_group)
        self._settings = replace(readings, bounded=readings.checked_intervals(intervals))
        self._check_names()
        self._name(self._settings.rows, prefix, postfix)
        report_memory(counting)

    @staticmethod
    def default_measures(task: Task) -> dict[str, Measured]:
        """Return the default measures, name -> function of counts, for you to add to or remove from."""
        known = by_key()
        return {name: known[name] for name in DEFAULT + DEFAULT_OF_TWO_CLASSES * (task == "binary")}

    def _check_names(self) -> None:
        """Raise if two values have the same name, or if there is no value."""
        taken: dict[str, Row] = {}
        for row in self._settings.rows:
            if (other := taken.setdefault(row.name, row)) is not row:
                raise ValueError(_collision(row.name, row, other))
        if not taken:
            raise ValueError(
                "measures and per_class are both empty, so there is nothing to report; name at least one measure"
            )

    # --- computing --------------------------------------------------------------------------------------------------

    def _counter_of_a_batch(self) -> Counter:
        return self._counting.of_a_batch(self._prevalence is not None or self._settings.needs_matrix)

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        assert isinstance(counter, Counting)
        return self._settings.read(Snapshot.of(counter, state, self._prevalence), drawn=False)

    def compute(self) -> dict[str, Tensor]:
        """Compute all values from the counts of all processes, by name (a collective step).

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        own, drawn = self._own(self._state), bool(self._settings.bounded)
        matrix = drawn or self._prevalence is not None or self._settings.needs_matrix
        counting, state = self._counting.on_host(own, matrix=matrix, buckets=drawn)
        rest = None if counting is self._counting else (self._counting, own)
        at = Snapshot.of(counting, state, self._prevalence, rest)
        counted = at.read().marginal if self._prevalence is None else sums(at.counts)
        self._report_problems(counting.faults(state), counted.actual, self._prevalence)
        groups = self._settings.group_names
        if at.groups is not None and (self._may_warn("empty groups") or self._may_warn("lacking groups")):
            for kind, text in group_problems(self._counting, at.groups, groups).items():
                self._warn_once(kind, f"{type(self).__name__}: {text}")
        if drawn:
            self._warn_if_dependent(state)
            if largest := largest_bucket(at, HEAVY):
                self._warn_once("large cluster", large_cluster_warning(type(self).__name__, largest))
        values = self._settings.read(at)
        self._warn_of_few_samples(at)
        if drawn and bool(counted.actual.any()):
            self._warn_of_missing_bounds(values)
        return self._keep(ReportResult(values, at, self._settings))

    def _warn_of_missing_bounds(self, values: Mapping[Row, Tensor]) -> None:
        """Warn of values without an interval, since they depend on classes without targets."""
        if not self._may_warn("no interval"):
            return
        low = {row: value for row, value in values.items() if row.bound == "low" and row.kind != "group"}
        names = [replace(row, bound="").name for row, value in low.items() if bool(value.isnan())]
        if names:
            text = f"bounds are nan for values that depend on classes without targets: {first_names(names)}"
            self._warn_once("no interval", f"{type(self).__name__}: {text}")

    def _warn_of_few_samples(self, at: Snapshot) -> None:
        """Warn if one error more in a class would change a value at the prevalence far more than in the counts."""
        share = self._prevalence
        if share is None or self._counting.weighted or isinstance(at.counts, Margins):
            return
        rows = [row for row in self._settings.rows if not row.bound and self._within_one(row)]
        if not rows or not self._may_warn("few samples"):
            return
        labels = self.task == "multilabel"
        actual = double(at.counts).sum(-1)
        weights = ratio(share.to(actual), actual)
        actual, weights = (actual.amin(0), weights.amax(0)) if labels else (actual, weights)

        def read(counts: Tensor) -> Tensor:
            found = self._settings.read(replace(at, counts=counts, prevalence=None), drawn=False)
            return torch.stack([found[row] for row in rows])

        def samples_text(index: int, _: int) -> str:
            what = f"{('negatives', 'positives')[index]} of a label" if labels else f"samples of {self._label(index)}"
            return f"{actual[index]:g} {what}"

        names, classes = [row.name for row in rows], weights.topk(2).indices.tolist()
        text = few_samples_text(read, names, double(at.counts), share, classes, samples_text)
        if text:
            self._warn_once("few samples", f"{type(self).__name__}: {text}")

    def _within_one(self, row: Row) -> bool:
        """Return whether a value is of a measure with a range of at most [-1, 1]."""
        measure = self._settings.measures.get(row.measure) or self._settings.per_class.get(row.measure)
        low, high = (None, None) if measure is None else measure.traits.value_range
        return low is not None and high is not None and low >= -1 and high <= 1

    def measure(self, name: str) -> Measure:
        """Return a measure as this report computes it: a function of counts with its direction, ``higher_is_better``.

        If the report has a ``prevalence``, the function rescales the counts to it first.

        Args:
            name: name in the report, with or without prefix and postfix, or of the catalogue, whether reported or not.

        Raises:
            ValueError: for an unknown name, and for values of groups of samples and bounds of intervals, because these
                are not functions of the counts of all samples.
        """
        measure = self._measure_of_counts(name)
        return measure if self._prevalence is None else AtPrevalence(measure, self._prevalence)

    def _measure_of_counts(self, name: str) -> AveragedMeasure:
        """Return a measure of the counts themselves, without rescaling them to the ``prevalence``."""
        if name not in self:
            if name not in by_any_name():
                names = dict.fromkeys((*self.measures, *(f"{key}/..." for key in self.per_class), *by_any_name()))
                meant = did_you_mean(name, names)
                raise ValueError(f"measures holds {name!r}, which is unknown{meant}; names are {', '.join(names)}")
            return resolved(name, name, self._counting)
        row = self[name].row
        if row not in self._settings.values:
            source = "an interval" if row.bound else "the groups of samples"
            raise ValueError(f"{name!r} is not a function of the counts of all samples, but of {source}")
        return self._settings.values[row].function

    def counts(self) -> Counts:
        """Return a copy of the counts of all processes (a collective step).

        They are int64 ``[K, K]`` or ``[L, 2, 2]``, or :class:`~imbtorch.counts.Margins`; float64 if ``weighted``.
        """
        with self._state_of_all() as state:
            return mapped(self._counting.counts(state), lambda part: part.to(self.device, copy=True))

    def interval(
        self,
        name: str,
        *,
        level: float = 0.95,
        draws: int = DRAWS,
        generator: torch.Generator | None = None,
        clusters: bool | None = None,
    ) -> Interval:
        """Compute the interval of a value from the counts of all processes (a collective step).

        If no process has counted a sample since :meth:`reset`, which Lightning calls after each epoch, this is the
        interval of the last computed result. :meth:`ReportResult.interval` always reads that result, without
        communication. Without a ``generator`` it is the same on all processes and in :meth:`table`.

        Args:
            name: measure of the report, or value of a class, class group or group of samples, such as
                ``recall/fraud``, with or without prefix and postfix.
            level: nominal coverage of the interval, in (0, 1).
            draws: number of draws.
            generator: source of randomness, on the CPU; by default as in :meth:`ReportResult.interval`.
            clusters: True to resample clusters, False to treat samples as independent; by default as there.

        Raises:
            ValueError: as :meth:`ReportResult.interval`.
        """
        short = self[name].row.name if name in self else name
        place = self._settings.with_interval(short, clusters)  # raises before any process waits
        with self._state_of_all() as state:
            # all processes decide alike, because the sum is the same on all of them
            if self._last is not None and not bool(state.any()):
                found = cast(ReportResult, self._last)
            else:
                at = Snapshot.of(self._counting, state.clone(), self._prevalence)
                self._report_problems(self._counting.faults(state), sums(at.counts).actual, self._prevalence)
                found = ReportResult({}, at, self._settings)
                found._warn_with(self._already_warned)
        return found._interval(place, clusters=clusters, draws=draws, level=level, generator=generator)

    def _label(self, index: int) -> str:
        return self.class_names[index]

    # --- results ----------------------------------------------------------------------------------------------------

    def result(self) -> ReportResult:
        """Return the last computed result, with table, plot and intervals; it can be pickled. Never communicates.

        If samples were added after the last ``compute``, a single process computes the result again; several processes
        keep it until all of them call ``compute``. ``reset`` keeps the last result.

        Raises:
            RuntimeError: on several processes, if nothing was computed yet.
        """
        return cast(ReportResult, super().result())

    def table(self, sort: str | None = None, head: int | None = None, digits: int = 3) -> Table:
        """Return the last computed result as a table; print it. Never communicates.

        Args:
            sort: column by which classes are sorted, the worst first; see :meth:`ReportResult.table`.
            head: number of classes to print; by default all.
            digits: decimals of values.

        >>> report = ImbalanceReport("binary", class_names=["ok", "fraud"], per_class=())
        >>> report.update(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        >>> print(report.table()["measure"]["accuracy"]["all"])
        0.75
        """
        return self.result().table(sort, head, digits)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the last computed result as :meth:`ReportResult.plot` does; never communicates.

        Args:
            val: by default the last result. A result of ``compute``, or a sequence of them, draws the values over the
                epochs instead. Dotted lines then show the values of always predicting the most common class of the last
                result.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        if val is None:
            return self.result().plot(ax)
        if isinstance(val, str):
            raise TypeError(
                f"val must be results of compute(), got {val!r}; plot() draws the last result, and "
                f"report[{val!r}].plot(values) the course of one value"
            )
        from imbtorch.plots.values import plot_values

        results = [val] if isinstance(val, Mapping) else val
        names = [f"{self.prefix}{name}{self.postfix}" for name in self.measures] or self.keys()
        steps = [torch.stack([torch.as_tensor(step[name]) for name in names]) for step in results]
        baseline = {} if self._last is None else self._settings.baseline(self.result()._at)[1]
        levels = torch.tensor([baseline.get(name, math.nan) for name in self.measures]) if baseline else None
        return plot_values(steps, ax, labels=names, baseline=levels)

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments()
        shown |= {name: value for name in ("prefix", "postfix") if (value := getattr(self, name))}
        shown |= {} if self.prevalence is None else {"prevalence": list(self.prevalence)}
        every = self.intervals == self.measures
        shown |= {"intervals": every or list(self.intervals)} if self.intervals else {}
        shown |= {} if self.groups is None else {"groups": list(self.groups), "per_group": list(self.per_group)}
        shown |= {"class_groups": self.class_groups} if self.class_groups else {}
        return shown | {"measures": list(self.measures), "per_class": list(self.per_class)}

    def _settings_text(self) -> str:
        read = (self._settings.measures, self._settings.per_class)
        measures = [{key: each.settings for key, each in some.items()} for some in read]
        return f"{super()._settings_text()} {canonical((measures, self.class_names, self.keys()))}"


def _refuse_misspelt(cls: type, given: Iterable[str]) -> None:
    """Raise TypeError for an unknown argument that is similar to one of a class, before other errors hide it."""
    for name in given:
        meant = did_you_mean(name, inspect.signature(cls).parameters)
        if meant and name not in TorchmetricsArguments.__annotations__:
            raise TypeError(f"{cls.__name__} has no argument {name!r}{meant}")


def _checked_prevalence(
    prevalence: Mapping[str, float] | Sequence[float] | Tensor, counting: Counting, class_names: Sequence[str]
) -> Tensor:
    """Return the class shares of the population, in the order of the classes."""
    if counting.layout == "margins" and counting.size > 2:
        raise ValueError(
            "prevalence needs the whole matrix for more than two classes, because margins do not show which classes "
            "the errors of each class were predicted as; use state='matrix'"
        )
    ignored = None if counting.task == "multilabel" else counting.ignored_class
    optional = () if ignored is None else (class_names[ignored],)
    return counting.checked_prevalence(in_class_order("prevalence", prevalence, class_names, optional))


def _check_together(
    intervals: bool,
    state: Layout,
    weighted: bool,
    groups: Sequence[str] | None,
    per_group: Sequence[str] | None,
) -> None:
    """Raise for arguments that do not fit each other."""
    if intervals and state == "margins":
        raise ValueError("intervals need the whole matrix; use state='matrix'")
    if intervals and weighted:
        raise ValueError(UNSURE)
    if per_group is not None and groups is None:
        raise ValueError("per_group needs groups; pass groups=[...]")


def _sized(
    task: Task | None, num_classes: int | None, num_labels: int | None, names: Sequence[str] | None
) -> tuple[int | None, int | None]:
    """Return the number of classes and of labels, by default the number of names."""
    named = None if names is None else len(names)
    if task == "multilabel":
        return num_classes, named if num_labels is None else num_labels
    return named if num_classes is None else num_classes, num_labels


def _a_name_each(names: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """Return the names of the classes, by default their indices; raise unless there is one for each."""
    if names is None:
        return tuple(map(str, range(classes)))
    if len(names) != classes:
        raise ValueError(f"class_names holds {len(names)} names for {classes} classes; name each, in order")
    return tuple(names)


def _collision(name: str, row: Row, other: Row) -> str:
    """Return the error message for a name that another argument already reports."""
    cause = "intervals" if row.bound else ARGUMENTS[row.kind]
    bound, plain = (row, other) if row.bound else (other, row)
    if bound.bound and plain.of:
        return f"{name!r} is a bound, which intervals adds, and a value of {plain.of!r}; give {plain.of!r} another name"
    if "groups" in cause:
        return f"{name!r} is already reported, and {cause} adds it again; give that group another name"
    return f"measures already contains {name!r}, which {cause} adds; rename it in measures"
