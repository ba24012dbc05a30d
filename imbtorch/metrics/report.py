"""Report of many measures of one confusion matrix, for training loops to log."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import Layout, Task, Thresholds
from imbtorch.counting.tasks import Counter, Counting
from imbtorch.counts import Counts, Measure, mapped, sums
from imbtorch.intervals.draws import DRAWS
from imbtorch.intervals.intervals import Interval
from imbtorch.measures.named import AtPrevalence, AveragedMeasure, Measured, resolved
from imbtorch.measures.traits import by_any_name
from imbtorch.metrics.base import LocalCounts, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.shared_result import PREVALENCE, SharedResult
from imbtorch.metrics.state import Setting
from imbtorch.reports.description import default_measures, described
from imbtorch.reports.groups import report_memory
from imbtorch.reports.result import ReportResult
from imbtorch.reports.rows import Row, Snapshot
from imbtorch.suggestions import did_you_mean
from imbtorch.tables import Table


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
        weighted: whether :meth:`update` takes ``weight``, the weight of each sample; tables then say so.
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
        "_readings.class_names", "Names of classes or labels, in the order of their indices."
    )
    measures = Setting[tuple[str, ...]](
        lambda report: tuple(report._readings.measures), "Keys of the measures over all classes."
    )
    per_class = Setting[tuple[str, ...]](
        lambda report: tuple(report._readings.per_class), "Keys of the measures of each class."
    )
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda report: report._readings.class_groups, "Indices of the classes of each class group."
    )
    groups = Setting[tuple[str, ...] | None](
        lambda report: report._readings.groups or None, "Names of the groups of samples."
    )
    per_group = Setting[tuple[str, ...]]("_readings.per_group", "Keys of the measures of each group.")
    intervals = Setting[tuple[str, ...]](
        lambda report: tuple(row.name for row in report._readings.bounded),
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
        readings = described(
            task, num_classes, class_names=class_names, measures=measures, per_class=per_class, intervals=intervals,
            logits=logits, num_labels=num_labels, class_groups=class_groups, groups=groups, per_group=per_group,
            clusters=clusters, prevalence=prevalence, threshold=threshold, ignore_index=ignore_index, state=state,
            weighted=weighted, default=self.default_measures,
        )  # fmt: skip
        super().__init__(readings.counting, on_invalid, **kwargs)
        self._readings, self._prevalence = readings, readings.prevalence
        self._name(readings.rows, prefix, postfix)
        report_memory(readings.counting)

    @staticmethod
    def default_measures(task: Task) -> dict[str, Measured]:
        """Return the default measures, name -> function of counts, for you to add to or remove from."""
        return default_measures(task)

    # --- computing --------------------------------------------------------------------------------------------------

    def _counter_of_a_batch(self) -> Counter:
        return self._counting.of_a_batch(self._prevalence is not None or self._readings.needs_matrix)

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        assert isinstance(counter, Counting)
        return self._readings.read(Snapshot.of(counter, state, self._prevalence), drawn=False)

    def compute(self) -> dict[str, Tensor]:
        """Compute all values from the counts of all processes, by name (a collective step).

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        own, drawn = self._own(self._state), bool(self._readings.bounded)
        matrix = drawn or self._prevalence is not None or self._readings.needs_matrix
        counting, state = self._counting.on_host(own, matrix=matrix, buckets=drawn, copy=self._copied)
        rest = None if counting is self._counting else (self._counting, own)
        at = Snapshot.of(counting, state, self._prevalence, rest)
        counted = at.read().marginal if self._prevalence is None else sums(at.counts)
        self._report_problems(counting.faults(state), counted.actual, self._prevalence)
        result = ReportResult(self._readings.read(at), at, self._readings)
        self._warn_of_problems(result)
        return self._keep(result)

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
        if row not in self._readings.values:
            source = "an interval" if row.bound else "the groups of samples"
            raise ValueError(f"{name!r} is not a function of the counts of all samples, but of {source}")
        return self._readings.values[row].function

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
        place = self._readings.with_interval(short, clusters)  # raises before any process waits
        with self._state_of_all() as state:
            # all processes decide alike, because the sum is the same on all of them
            if self._last is not None and not bool(state.any()):
                found = cast(ReportResult, self._last)
            else:
                at = Snapshot.of(self._counting, state.clone(), self._prevalence)
                self._report_problems(self._counting.faults(state), sums(at.counts).actual, self._prevalence)
                found = ReportResult({}, at, self._readings)
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
        baseline = {} if self._last is None else self._readings.baseline(self.result()._at)[1]
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
        read = (self._readings.measures, self._readings.per_class)
        measures = [{key: each.settings for key, each in some.items()} for some in read]
        return f"{super()._settings_text()} {canonical((measures, self.class_names, self.keys()))}"


def _refuse_misspelt(cls: type, given: Iterable[str]) -> None:
    """Raise TypeError for an unknown argument that is similar to one of a class, before other errors hide it."""
    for name in given:
        meant = did_you_mean(name, inspect.signature(cls).parameters)
        if meant and name not in TorchmetricsArguments.__annotations__:
            raise TypeError(f"{cls.__name__} has no argument {name!r}{meant}")
