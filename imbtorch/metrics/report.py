"""One state, many names: the report that a training loop logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.analysis.baselines import always_commonest
from imbtorch.analysis.intervals import Interval, bootstrap, posterior
from imbtorch.analysis.tables import trivial_line
from imbtorch.counting import Counting, Layout, Task, Threshold
from imbtorch.counts import Counts, Margins, Result, mapped, margins, rescaled, sums
from imbtorch.metrics.averaging import AveragedMeasure, blended, one_value
from imbtorch.metrics.base import (
    UNSURE,
    Counter,
    LocalCounts,
    OnInvalid,
    TorchmetricsArguments,
    canonical,
    confusion_counts,
)
from imbtorch.metrics.catalogue import BY_ANY_NAME, BY_NAME
from imbtorch.metrics.class_groups import checked_class_groups, mean_over_classes
from imbtorch.metrics.coarse import CoarseClasses, CoarseMeasure
from imbtorch.metrics.groups import Groups, checked_group_names, comparable_groups, report_memory
from imbtorch.metrics.intervals_of_report import ReportedIntervals
from imbtorch.metrics.per_class import class_values, of_name, per_class_measures
from imbtorch.metrics.report_arguments import check_together, checked_prevalence, collision, sized
from imbtorch.metrics.report_table import ReportTable
from imbtorch.metrics.resolving import Measured, named_measures, resolved
from imbtorch.metrics.shared import SharedResult, checked_names
from imbtorch.metrics.state import Setting
from imbtorch.plots import plot_confusion_matrix, plot_values

__all__ = ["ImbalanceReport"]

DEFAULT = ("iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc")
DEFAULT_OF_TWO_CLASSES = ("dominance", "iba", "op", "area")
FEW_CLASSES = 20  # classes up to which per-class values are reported without being asked for


class ImbalanceReport(SharedResult, LocalCounts):
    """Many measures of one state: one update, one all_reduce, as many logged values as wanted.

    In Lightning each name is a metric of its own, so that values are computed once at the end of the epoch, exact over
    all processes, and reset::

        self.val = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], prefix="val_")
        self.val.update(logits, y)  # in validation_step
        self.log_dict(self.val)  # in on_validation_epoch_end: val_iam, val_cba, ..., val_recall/cat, ...

    In plain PyTorch and Fabric ``compute()`` returns a dict of scalars: ``fabric.log_dict(report.compute())``.

    Where validation was rebalanced, ``prevalence`` reads every value at the class shares of deployment: what the
    classifier does to each true class stays, how often the class comes changes (:func:`imbtorch.at_prevalence`).
    Precision, F-score, accuracy, CBA, IAM and MCC then differ; recall, balanced accuracy and G-mean do not::

        ImbalanceReport("binary", class_names=["ok", "fraud"], prevalence={"ok": 1000, "fraud": 1})

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes; from ``class_names`` if those are given.
        num_labels: number of labels; from ``class_names`` if those are given.
        class_names: names of the classes (labels for multilabel), in the order of their indices.
        measures: names of the catalogue, as in ``["iam", "mcc"]``; or name -> such a name, a metric class, an instance
            or ``functools.partial`` of one, a function of the counts, or ``(function, higher_is_better)``; by default
            those of :meth:`default_measures`. An instance gives its arguments, not its counts; it must be made to
            count alike. A function sees ``[K, K]`` (each label's ``[2, 2]`` for multilabel, averaged), or
            :class:`~imbtorch.counts.Margins` under ``state="margins"``, and returns one value.
        intervals: report ``<name>_low`` and ``<name>_high`` as well, the limits of the 95 % posterior interval
            (:func:`imbtorch.analysis.posterior`, 2,000 draws with a fixed seed, so that all processes agree), of these
            names, such as ``["iam", "recall/fraud"]``; True for all ``measures``. Not for lowest values
            (``average="min"``), and not for the values of a batch that ``forward`` returns. nan, with a warning, where
            they depend on classes without targets. The cost grows with K * K.
        prevalence: shares of the classes, in any unit, in the population that all values are read at, those of
            ``forward`` included: one for each class, or name -> share. For multilabel the share of positives of each
            label, in [0, 1]. A class that is ``ignore_index`` gets share 0 (a name can be left out). The share of a
            class without targets goes to the others, and a warning names it. ``counts()`` and ``plot()`` show the
            counts; functions in ``measures`` see rates. By default values are read off the counts as they are.
        soft: report ``<name>_soft`` beside each of ``measures``, in which probabilities count a little: (1 - share)
            times its value plus share times that of :meth:`soft_counts`, so that the two differ by at most the share of
            what the measure can differ by; a share above 0 and below 1, or True for 0.02. On a
            small validation set many epochs tie for the best value, and a checkpoint keeps the earliest, often the
            worst of them; ``ModelCheckpoint(monitor="val_iam_soft", mode="max")`` breaks ties by probability. ``preds``
            must be floating then: multiclass scores are probabilities that sum to 1 within 0.01, or ``logits=True``;
            binary and multilabel ones take no threshold but 0.5. All else stays of hard counts.
        per_class: measures to report for each class as ``<measure>/<class>``, among recall, precision, specificity, f1,
            fowlkes_mallows, iou, npv, cba, iam, and those of two classes such as dominance, of each class against the
            rest; by default recall and precision where names were given or up to 20 classes. Or name -> such a name,
            a metric as in ``measures``, or a function that makes ``[K]`` of ``[K, K]`` (for multilabel one value of
            each label's ``[2, 2]``), as in ``{"iou": jaccard}``.
        class_groups: name -> some classes, by name or index, as in ``{"tail": ["emu", 7]}``: reports the mean of each
            measure in ``per_class`` over them as ``<measure>/<group>``. Classes with neither targets nor predictions
            take no part in it. A class may be in several groups. :func:`~imbtorch.shot_groups` makes those of
            long-tailed recognition. Where ``per_class`` is left out and there are more than 20 classes without names,
            recall and precision are reported for the groups alone.
        coarse: name of a coarse class -> names of the classes that it is made of, as in ``{"animal": ["cat", "dog"]}``:
            reports ``<measure>/coarse`` of each of ``measures``, by which taking one class for another of the same
            coarse one is right, and ``<measure>/<coarse class>`` of each in ``per_class``. Both are read off the same
            counts (:func:`~imbtorch.merge_classes`). For ``task="multiclass"`` with ``state="matrix"``; of hard counts,
            all groups together, without intervals.
        prefix: comes before each name.
        postfix: comes after each name.
        threshold: see :class:`ConfusionMatrixMetric`, like the following.
        logits: whether floating ``preds`` are logits.
        ignore_index: target of the samples to leave out.
        on_invalid: ``"raise"`` or ``"warn"``.
        state: ``"matrix"`` or ``"margins"``.
        weighted: whether ``update`` takes ``weight``.
        groups: names of the groups of the samples (sites, dataloaders, subgroups), or their number, which makes them
            ``group 0``, ``group 1``, ...; ``update(preds, target, group=ids)`` then takes the index of each sample's
            group. All values are as without groups, and ``<measure>/<group>`` and ``<measure>_worst`` come with them:
            the worst value (by the measure's direction; none without one) over the groups that have targets of every
            class that all groups together have. The others are named once in a warning; without any it is nan. The
            state is as many times as large, and the constructor warns from 100 MB on. With ``soft`` there are
            ``<measure>_soft/<group>`` and ``<measure>_soft_worst`` too. With ``intervals`` the values in ``per_group``
            have theirs, the worst has none: an interval of a minimum would rarely hold it.
        per_group: measures whose value is reported for each group; by default all of ``measures`` up to 20 groups, else
            none, so that the worst stand alone.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for arguments that do not fit each other, and names that occur twice.
        TypeError: for arguments of the wrong type.

    Reading a value (``report["iam"].compute()``, logging it) is a collective step like ``compute()``: all processes, in
    the same order, all names in one go. :meth:`table` and :meth:`plot` show the last computed result and never
    communicate.

    >>> report = ImbalanceReport("multiclass", class_names=["cat", "dog"], num_classes=2)
    >>> report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    >>> report.compute()["recall/cat"]
    tensor(0.6667)
    """

    class_names = Setting[tuple[str, ...]]("_class_names", "Names of classes or labels, in the order of their indices.")
    measures = Setting[tuple[str, ...]](lambda report: tuple(report._measures), "Names of the measures of all classes.")
    per_class = Setting[tuple[str, ...]](
        lambda report: tuple(report._per_class), "Names of the measures that are reported for each class."
    )
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda report: dict(report._class_groups), "Indices of the classes of each class group."
    )
    coarse = Setting[dict[str, tuple[str, ...]]](
        lambda report: {} if report._coarse is None else dict(report._coarse.merged),
        "Names of the classes that each coarse class is made of.",
    )
    groups = Setting[tuple[str, ...] | None](
        lambda report: None if report._groups is None else report._groups.names, "Names of the groups of samples."
    )
    per_group = Setting[tuple[str, ...]](
        lambda report: () if report._groups is None else report._groups.measures,
        "Measures whose value is reported for each group.",
    )
    intervals = Setting[tuple[str, ...]]("_intervals.names", "Names of the values whose intervals are reported.")

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        class_names: Sequence[str] | None = None,
        measures: Mapping[str, Measured] | Sequence[str] | None = None,
        per_class: Sequence[str] | Mapping[str, Measured] | None = None,
        class_groups: Mapping[str, Sequence[str | int]] | None = None,
        coarse: Mapping[str, Sequence[str]] | None = None,
        intervals: bool | Sequence[str] = False,
        prevalence: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        prefix: str = "",
        postfix: str = "",
        threshold: Threshold = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        groups: Sequence[str] | int | None = None,
        per_group: Sequence[str] | None = None,
        state: Layout = "matrix",
        soft: bool | float = False,
        weighted: bool = False,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        group_names = checked_group_names(groups)
        check_together(bool(intervals), state, weighted, bool(soft), group_names, per_group)
        names = None if class_names is None else checked_names(class_names)
        num_classes, num_labels = sized(task, num_classes, num_labels, names)
        number = None if group_names is None else len(group_names)
        counting = Counting.of(
            task, num_classes, num_labels, threshold, logits, ignore_index, state, soft, weighted, number
        )
        if names is not None and len(names) != counting.size:
            raise ValueError(f"class_names holds {len(names)} names for {counting.size} classes; name each, in order")
        super().__init__(counting, on_invalid, **kwargs)
        self._class_names = tuple(names or map(str, range(counting.size)))
        self._priors = None if prevalence is None else checked_prevalence(prevalence, counting, self._class_names)
        self._class_groups = checked_class_groups(class_groups, self._class_names)
        self._take_per_class(per_class, names is not None or counting.size <= FEW_CLASSES)
        given = named_measures(self.default_measures(counting.task) if measures is None else measures)
        self._measures = {name: resolved(name, measured, counting) for name, measured in given.items()}
        self._coarse = CoarseClasses.of(coarse, self._class_names, counting, self._measures, self._per_class)
        self._intervals = ReportedIntervals.of(intervals, self._measures, self._per_class, self._class_names)
        self._groups = None if group_names is None else Groups.of(group_names, per_group, self._measures)
        self._name(self._directions(), prefix, postfix)
        report_memory(counting)

    def _take_per_class(self, given: Sequence[str] | Mapping[str, Measured] | None, few: bool) -> None:
        """Resolve the measures of each class, and those that are averaged over class groups."""
        usual = given is None
        named = ("recall", "precision") if given is None else given
        self._per_class = per_class_measures(named if few or not usual else (), self._counting)
        # where nothing is said, the groups of many classes are reported without each of these
        self._of_class_groups = per_class_measures(named, self._counting) if self._class_groups else {}
        if self._class_groups and not self._of_class_groups:
            raise ValueError("class_groups are averages of the measures in per_class, which names none")

    @staticmethod
    def default_measures(task: Task) -> dict[str, Measured]:
        """Names and metrics that are reported unless told otherwise, to add to or take from."""
        names = DEFAULT + DEFAULT_OF_TWO_CLASSES * (task == "binary")
        return {name: BY_NAME[name] for name in names}

    def _directions(self) -> dict[str, bool | None]:
        """All names that are reported, and which direction of each is better."""
        directions = {name: measure.higher_is_better for name, measure in self._measures.items()}
        added = [(*named, "intervals") for named in self._intervals.directions()]
        if self.soft:
            added += [(f"{name}_soft", direction, "soft=True") for name, direction in directions.items()]
        added += [
            (f"{each}/{label}", measure.higher_is_better, "per_class")
            for each, measure in self._per_class.items()
            for label in self._class_names
        ]
        added += [
            (f"{each}/{group}", measure.higher_is_better, "class_groups")
            for each, measure in self._of_class_groups.items()
            for group in self._class_groups
        ]
        if self._coarse is not None:
            added += [(*named, "coarse") for named in self._coarse.directions()]
        if self._groups is not None:
            added += [(*named, "groups") for named in self._groups.directions(self._measures, self._intervals.names)]
        if self._groups is not None and self.soft:
            added += [(*named, "groups") for named in self._groups.directions(self._measures, suffix="_soft")]
        for name, direction, cause in added:
            if name in directions:
                raise ValueError(collision(name, cause))
            directions[name] = direction
        if not directions:
            raise ValueError("measures and per_class are both empty, so there is nothing to report")
        return directions

    # --- computing --------------------------------------------------------------------------------------------------

    def _needs_matrix(self) -> bool:
        """Whether what is reported cannot be read off margins."""
        read = (*self._measures.values(), *self._per_class.values())
        return self._priors is not None or self._coarse is not None or any(measure.needs_matrix for measure in read)

    def _counter_of_a_batch(self) -> Counter:
        return self._counting.of_a_batch(self._needs_matrix())

    def _read_at(self, counts: Counts) -> Counts:
        """What values are read off: the counts, or rates at the prevalence."""
        return counts if self._priors is None else rescaled(counts, self._priors)

    def _evaluated(self, counts: Counts, soft: Counts | None = None) -> dict[str, Tensor]:
        rates = self._read_at(counts)
        return self._values_of(rates, margins(rates), soft)

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> dict[str, Tensor]:
        assert isinstance(counter, Counting)
        values = self._evaluated(counter.counts(state), counter.soft_counts(state) if self.soft else None)
        return self._by_full_name(values | self._values_of_groups(counter, state))

    def _values_of(self, counts: Counts, marginal: Margins, soft: Counts | None) -> dict[str, Tensor]:
        """All values of counts or rates, whose margins are taken once, and of the soft counts as they were counted."""
        values = self._overall_values(counts, marginal)
        if soft is not None:
            there = self._read_at(soft)
            of_soft = self._overall_values(there, margins(there))
            values |= {f"{name}_soft": blended(values[name], of_soft[name], self.soft) for name in of_soft}
        for name, measure in self._per_class.items():
            parts = class_values(name, measure, counts, marginal).unbind()
            values |= {f"{name}/{label}": part for label, part in zip(self._class_names, parts, strict=True)}
        if self._coarse is not None:
            values |= self._coarse.values(counts)
        values |= self._values_of_class_groups(counts, marginal)
        return {name: self._narrow(value) for name, value in values.items()}

    def _overall_values(self, counts: Counts, marginal: Margins) -> dict[str, Tensor]:
        """Values of all classes, by name."""
        return {name: one_value(name, measure.value_of(counts, marginal)) for name, measure in self._measures.items()}

    def _values_of_groups(self, counter: Counting, state: Tensor, warn: bool = False) -> dict[str, Tensor]:
        """Values of each group, and the worst of them; without groups none."""
        if self._groups is None:
            return {}
        counts = counter.counts_of_groups(state)
        samples, comparable = comparable_groups(counter, counts)
        if warn and (self._may_warn("empty groups") or self._may_warn("lacking groups")) and bool(samples.any()):
            for kind, text in self._groups.problems(samples, comparable).items():
                self._warn_once(kind, f"{type(self).__name__}: {text}")
        hard = self._groups.evaluated(self._measures, self._read_at(counts))
        values = self._groups.values(self._measures, hard, comparable)
        if self.soft:
            soft = self._groups.evaluated(self._measures, self._read_at(counter.soft_counts_of_groups(state)))
            both = {name: blended(hard[name], soft[name], self.soft) for name in hard}
            values |= self._groups.values(self._measures, both, comparable, suffix="_soft")
        return {name: self._narrow(value) for name, value in values.items()}

    def _values_of_class_groups(self, counts: Counts, marginal: Margins) -> dict[str, Tensor]:
        values = {}
        for name, measure in self._of_class_groups.items():
            parts = class_values(name, measure, counts, marginal)
            seen = counts if measure.needs_matrix else marginal
            for group, classes in self._class_groups.items():
                values[f"{name}/{group}"] = mean_over_classes(measure, classes, seen, parts)
        return values

    def _label(self, index: int) -> str:
        return self._class_names[index]

    def compute(self) -> dict[str, Tensor]:
        """All values of all counts, of all processes, by name.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._own(self._counter.counts(self._state))
        marginal = sums(counts)
        self._report_problems(marginal.actual, self._priors)
        rates = self._read_at(counts)
        soft = self._counting.soft_counts(self._state) if self.soft else None
        values = self._values_of(rates, margins(marginal if rates is counts else rates), soft)
        values |= self._values_of_groups(self._counting, self._state, warn=True)
        values |= self._drawn_limits(self._intervals, counts)
        self._warn_of_unknown_limits(counts, values)
        if self._groups is None:
            return self._keep(counts, values)
        groups = self._own(self._counting.counts_of_groups(self._state))
        for group, (limits, part) in self._groups.limits(self._intervals, groups).items():
            values |= self._drawn_limits(limits, part, f"/{group}")
        return self._keep(counts, values, groups)

    def _drawn_limits(self, limits: ReportedIntervals, counts: Counts, suffix: str = "") -> dict[str, Tensor]:
        """Limits of intervals by name."""
        if not limits:
            return {}
        assert isinstance(counts, Tensor)
        values = {}
        for name, found in limits.drawn(counts, self._priors).items():
            values[f"{name}{suffix}_low"] = self._narrow(found.low)
            values[f"{name}{suffix}_high"] = self._narrow(found.high)
        return values

    def _warn_of_unknown_limits(self, counts: Counts, values: Mapping[str, Tensor]) -> None:
        """Warn once where intervals were asked for that nothing is known of; of no sample at all there is a warning."""
        if not self._intervals or not self._may_warn("no interval") or not bool(sums(counts).actual.any()):
            return
        names = [name for name in self._intervals.names if bool(values[f"{name}_low"].isnan())]
        if names:
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            text = f"{type(self).__name__}: limits are nan of values that depend on classes without targets: {shown}"
            self._warn_once("no interval", text)

    def measure(self, name: str) -> AveragedMeasure | CoarseMeasure:
        """A measure as this report reads it, or would: a function of counts that knows its direction.

        Args:
            name: of the report, with prefix and postfix or without both; or of a metric or function of the catalogue.

        Raises:
            ValueError: for a name that neither has.
        """
        short = self[name].name if name in self else name
        if short in self._measures:
            return self._measures[short]
        if self._coarse is not None and short in self._coarse.measures:
            return self._coarse.measures[short]
        each, _, label = short.partition("/")
        if name in self and each in self._per_class:
            index = self._class_names.index(label)
            return replace(self._per_class[each], of_class=index)
        if short not in BY_ANY_NAME:
            names = [*self._measures, *(f"{each}/..." for each in self._per_class), *BY_ANY_NAME]
            raise ValueError(f"measures holds {name!r}, which is unknown; names are {', '.join(dict.fromkeys(names))}")
        return resolved(short, BY_ANY_NAME[short], self._counting)

    def counts(self) -> Counts:
        """Copy of the counts of all processes (a collective step): int64 ``[K, K]``, ``[L, 2, 2]``, or Margins."""
        with self._counts_of_all() as counts:
            return mapped(counts, Tensor.clone)

    def interval(
        self,
        name: str,
        *,
        level: float = 0.95,
        generator: torch.Generator | None = None,
        clusters: bool = False,
        samples: int = 10_000,
    ) -> Interval:
        """How sure a value is, from the counts of all processes, hard ones always (a collective step).

        Processes draw each for themselves: give all of them a generator of one seed where they must agree.

        Args:
            name: a measure of the report, or a value of a class such as ``recall/fraud``; prefix and postfix may be
                left out.
            level: probability that the interval holds.
            generator: source of randomness, on the device of the report.
            clusters: whether the ``groups`` of the report are clusters of samples that resemble one another (pixels of
                an image, visits of a patient), which :func:`imbtorch.analysis.bootstrap` then resamples whole; groups
                without samples take no part. Otherwise samples are independent, as
                :func:`imbtorch.analysis.posterior` has it.
            samples: number of draws.

        Raises:
            ValueError: for an unknown name, one of a lowest value, one that depends on classes without targets,
                ``clusters`` without two groups that have samples, ``state="margins"`` and
                weighted counts.
        """
        if self.weighted:
            raise ValueError(UNSURE)
        short = self[name].name if name in self else name
        known = {*self._measures, *(f"{each}/{label}" for each in self._per_class for label in self._class_names)}
        if name in self and short not in known:
            raise ValueError(
                f"{name!r} has no interval here, but overall values and those of single classes; limits of the values "
                "of groups come with intervals=[...] of the report"
            )
        wanted = ReportedIntervals.of([short], self._measures, self._per_class, self._class_names)
        if clusters and self._groups is None:
            raise ValueError(
                "clusters=True resamples the groups of the report, which has none; make it with groups=..."
            )
        with self._counts_of_all() as counted:
            counts = confusion_counts(counted).clone()
            parts = confusion_counts(self._counting.counts_of_groups(self._state)).clone() if clusters else counts
        measures, dims = wanted.to_draw(self._priors), counts.ndim
        if clusters:
            parts = parts[parts.flatten(1).any(1)]
            found = bootstrap(measures, parts, samples, level, generator=generator, event_dims=dims, clusters=True)
        else:
            found = posterior(measures, counts, samples=samples, level=level, generator=generator, event_dims=dims)
        interval = wanted.by_name(found)[short]
        if bool(interval.low.isnan()):
            raise ValueError(
                f"{name!r} has no interval, since it depends on classes without targets; count samples of every class"
            )
        return interval

    # --- looks ------------------------------------------------------------------------------------------------------

    def table(self) -> ReportTable:
        """Per-class table beside the overall values, of the last computed result; never communicates.

        Support and predictions are as counted, all other columns are read at the ``prevalence``.

        >>> report = ImbalanceReport("binary", class_names=["ok", "fraud"], per_class=())
        >>> report.update(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        >>> print(report.table().overall["accuracy"])
        0.75
        """
        result = self.result()
        counted = margins(result.counts)
        shown = 1 if self.task == "multilabel" else slice(None)
        columns: dict[str, list[float]] = {
            "support": counted.actual[..., shown].tolist(),
            "predicted": counted.predicted[..., shown].tolist(),
        }
        read = counted if self._priors is None else margins(self._read_at(result.counts))
        for name in ("precision", "recall", "f1", "cba", "iam"):
            columns[name] = class_values(name, of_name(name, self._counting), read, read).tolist()
        overall = {name: float(result.values[name]) for name in self._measures}
        return ReportTable(
            list(self.class_names),
            columns,
            overall,
            self._table_of_groups(result),
            self._intervals_of(result),
            trivial_line(*self._trivial(result.counts)),
        )

    def _intervals_of(self, result: Result) -> dict[str, tuple[float, float]]:
        """Limits of the intervals of a result, by the name of the value."""
        of_groups = (
            () if self._groups is None else (f"{m}/{g}" for m in self._groups.measures for g in self._groups.names)
        )
        names = (name for name in (*self._intervals.names, *of_groups) if f"{name}_low" in result.values)
        return {name: (float(result.values[f"{name}_low"]), float(result.values[f"{name}_high"])) for name in names}

    def _recall_limits(self, result: Result) -> tuple[Tensor, Tensor] | None:
        """Limits of the recalls of all classes; nan where a class has none, None where no class has."""
        known = self._intervals_of(result)
        pairs = [known.get(f"recall/{label}") for label in self._class_names]
        if not any(pairs):
            return None
        low, high = zip(*(pair or (math.nan, math.nan) for pair in pairs), strict=True)
        return torch.tensor(low), torch.tensor(high)

    def _trivial(self, counts: Counts) -> tuple[str, dict[str, float]]:
        """What always predicts the most common class, and measure -> its value of that; none without samples."""
        directed = {name: each for name, each in self._measures.items() if each.higher_is_better is not None}
        if not directed or not bool(sums(counts).actual.any()):
            return "", {}
        name, guessed = always_commonest(self._read_at(counts), self.class_names)
        return name, {key: float(self._narrow(measure(guessed))) for key, measure in directed.items()}

    def _table_of_groups(self, result: Result) -> dict[str, dict[str, float]]:
        """Samples and measures of each group."""
        if self._groups is None or result.groups is None:
            return {}
        samples, comparable = comparable_groups(self._counting, result.groups)
        every = replace(self._groups, measures=tuple(self._measures), worst=())
        found = every.evaluated(self._measures, self._read_at(result.groups))
        values = every.values(self._measures, found, comparable)
        return {
            group: {"support": number}
            | {name: float(self._narrow(values[f"{name}/{group}"])) for name in self._measures}
            for group, number in zip(self._groups.names, samples.tolist(), strict=True)
        }

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the confusion matrix of the last computed result with the class names; never communicates.

        Args:
            val: results of ``compute``, one or a sequence: draws the course of each value over epochs instead, and
                dotted lines at what always predicting the most common class is worth, at the targets of the last one.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes. Multilabel draws one bar a label, its recall; so does
            ``state="margins"``, which keeps no matrix. Where ``intervals`` names recalls of classes, such as
            ``recall/fraud``, error bars show them, beside a matrix too.
        """
        if val is not None:
            results = [val] if isinstance(val, Mapping) else val
            names = [f"{self.prefix}{name}{self.postfix}" for name in self._measures] or self.keys()
            steps = [torch.stack([torch.as_tensor(step[name]) for name in names]) for step in results]
            trivial = {} if self._last is None else self._trivial(self._last.counts)[1]
            levels = torch.tensor([trivial.get(name, math.nan) for name in self._measures]) if trivial else None
            return plot_values(steps, ax, labels=names, trivial=levels)
        result = self.result()
        counts, limits = result.counts, self._recall_limits(result)
        marginal = margins(counts)
        recalls = class_values("recall", of_name("recall", self._counting), marginal, marginal)
        if isinstance(counts, Tensor) and counts.ndim == 2:
            beside = None if limits is None else (recalls, *limits)
            return plot_confusion_matrix(counts, ax, labels=self.class_names, recalls=beside)
        item = "Label" if self.task == "multilabel" else "Class"
        return plot_values(
            recalls, ax, name="recall", bounds=(0.0, 1.0), item=item, labels=self.class_names, limits=limits
        )

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments()
        shown |= {name: value for name in ("prefix", "postfix") if (value := getattr(self, name))}
        shown |= {} if self.prevalence is None else {"prevalence": list(self.prevalence)}
        every = self._intervals.names == tuple(self._measures)
        shown |= {"intervals": every or list(self._intervals.names)} if self._intervals else {}
        shown |= {} if self.groups is None else {"groups": list(self.groups), "per_group": list(self.per_group)}
        shown |= {"class_groups": self.class_groups} if self._class_groups else {}
        shown |= {"coarse": self.coarse} if self._coarse else {}
        return shown | {"measures": list(self._measures), "per_class": list(self._per_class)}

    def _settings_text(self) -> str:
        read = (self._measures, self._per_class)
        measures = [{name: (m.traits.measure, m.arguments) for name, m in each.items()} for each in read]
        groups = "" if self._groups is None else canonical(astuple(self._groups))
        coarse = "" if self._coarse is None else canonical(self._coarse.merged)
        return f"{super()._settings_text()} {canonical(measures)} {canonical(self._class_names)} {groups}{coarse}"
