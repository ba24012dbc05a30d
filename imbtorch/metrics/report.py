"""One state, many names: the report that a training loop logs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counts import Counts, mapped, sums
from imbtorch.inference.intervals import Interval
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import UNSURE, Counter, LocalCounts, OnInvalid, TorchmetricsArguments, canonical
from imbtorch.metrics.bounds import Bounds, checked_intervals
from imbtorch.metrics.catalogue import BY_ANY_NAME, BY_KEY
from imbtorch.metrics.class_groups import ClassGroups, checked_class_groups
from imbtorch.metrics.groups import Groups, checked_group_names, checked_per_group, report_memory
from imbtorch.metrics.report_result import Reading, ReportResult
from imbtorch.metrics.report_table import ReportTable
from imbtorch.metrics.resolving import Measured, named_measures, per_class_measures, resolved
from imbtorch.metrics.rows import Overall, PerClass, Row, Snapshot, View
from imbtorch.metrics.shared_result import SharedResult, checked_names
from imbtorch.metrics.state import Setting
from imbtorch.metrics.superclasses import MergedMeasure, Superclasses, checked_superclasses
from imbtorch.plots import plot_values
from imbtorch.suggestions import did_you_mean
from imbtorch.tasks import Counting, Layout, Task, Threshold

__all__ = ["ImbalanceReport"]

DEFAULT = ("iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc")
DEFAULT_OF_TWO_CLASSES = ("iba",)
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
            what the measure can differ by; a share above 0 and below 1, or True for 0.02. On a small validation set
            many epochs tie for the best value, and Lightning's ``ModelCheckpoint`` keeps the earliest, often the worst
            of them. Where :class:`imbtorch.lightning.ModelCheckpoint` cannot stand in its place,
            ``ModelCheckpoint(monitor="val_iam_soft", mode="max")`` breaks ties by probability. ``preds`` must be
            floating then: multiclass scores are probabilities that sum to 1 within 0.01, or ``logits=True``; binary and
            multilabel ones take no threshold but 0.5. All else stays of hard counts.
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
        superclasses: name -> names of the classes that a superclass is made of, as in ``{"animal": ["cat", "dog"]}``:
            reports ``<measure>/superclasses`` of each of ``measures``, for which taking one class for another of the
            same superclass is right, and ``<measure>/<superclass>`` of each in ``per_class``. Both are read off the
            same counts (:func:`~imbtorch.merge_classes`). For ``task="multiclass"`` with ``state="matrix"``; of hard
            counts, all groups together, without intervals.
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

    class_names = Setting[tuple[str, ...]](
        "_reading.class_names", "Names of classes or labels, in the order of their indices."
    )
    measures = Setting[tuple[str, ...]](
        lambda report: tuple(report._reading.measures), "Keys of the measures of all classes."
    )
    per_class = Setting[tuple[str, ...]](
        lambda report: tuple(report._reading.per_class), "Keys of the measures that are reported for each class."
    )
    class_groups = Setting[dict[str, tuple[int, ...]]](
        lambda report: dict(report._class_groups.groups), "Indices of the classes of each class group."
    )
    superclasses = Setting[dict[str, tuple[str, ...]]](
        lambda report: {} if report._superclasses is None else dict(report._superclasses.merged),
        "Names of the classes that each superclass is made of.",
    )
    groups = Setting[tuple[str, ...] | None](
        lambda report: None if report._reading.groups is None else report._reading.groups.names,
        "Names of the groups of samples.",
    )
    per_group = Setting[tuple[str, ...]](
        lambda report: () if report._reading.groups is None else report._reading.groups.each,
        "Keys of the measures whose value is reported for each group.",
    )
    intervals = Setting[tuple[str, ...]]("_intervals", "Names of the values whose intervals are reported.")

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
        superclasses: Mapping[str, Sequence[str]] | None = None,
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
        _check_together(bool(intervals), state, weighted, bool(soft), group_names, per_group)
        names = None if class_names is None else checked_names(class_names)
        num_classes, num_labels = _sized(task, num_classes, num_labels, names)
        number = None if group_names is None else len(group_names)
        counting = Counting.of(
            task, num_classes, num_labels, threshold, logits, ignore_index, state, soft, weighted, number
        )
        if names is not None and len(names) != counting.size:
            raise ValueError(f"class_names holds {len(names)} names for {counting.size} classes; name each, in order")
        super().__init__(counting, on_invalid, **kwargs)
        class_names = tuple(names or map(str, range(counting.size)))
        self._priors = None if prevalence is None else _checked_prevalence(prevalence, counting, class_names)
        given = named_measures(self.default_measures(counting.task) if measures is None else measures)
        overall = {name: resolved(name, measured, counting) for name, measured in given.items()}
        some_classes = checked_class_groups(class_groups, class_names)
        # where nothing is said, the groups of many classes are reported without each of these
        of_classes = per_class_measures(("recall", "precision") if per_class is None else per_class, counting)
        few = per_class is not None or names is not None or counting.size <= FEW_CLASSES
        of_each = of_classes if few else {}
        if some_classes and not of_classes:
            raise ValueError("class_groups are averages of the measures in per_class, which names none")

        bounds = checked_intervals(intervals, overall, of_each, class_names)
        self._intervals = tuple(row.name for row in bounds.measured)
        self._class_groups, self._superclasses, of_groups = ClassGroups(of_classes, some_classes), None, None
        if superclasses is not None:
            self._superclasses = checked_superclasses(superclasses, class_names, counting, overall, of_each)
        if group_names is not None:
            of_groups = Groups(group_names, overall, counting, checked_per_group(per_group, group_names, overall))
        of_one = PerClass(of_each, class_names)
        views = _views(
            counting.soft, Overall(overall), bounds, of_one, self._class_groups, self._superclasses, of_groups
        )
        self._reading = Reading(counting, class_names, overall, of_each, tuple(views), of_groups)
        self._check_names()
        self._name(self._reading.rows, prefix, postfix)
        report_memory(counting)

    @staticmethod
    def default_measures(task: Task) -> dict[str, Measured]:
        """Names and metrics that are reported unless told otherwise, to add to or take from."""
        names = DEFAULT + DEFAULT_OF_TWO_CLASSES * (task == "binary")
        return {name: BY_KEY[name] for name in names}

    def _check_names(self) -> None:
        """Raise where two values have one name, and where there is none."""
        taken: set[str] = set()
        for view in self._reading.views:
            for row in view.rows:
                if row.name in taken:
                    raise ValueError(_collision(row.name, view.argument))
                taken.add(row.name)
        if not taken:
            raise ValueError("measures and per_class are both empty, so there is nothing to report")

    # --- computing --------------------------------------------------------------------------------------------------

    def _counter_of_a_batch(self) -> Counter:
        read = (*self._reading.measures.values(), *self._reading.per_class.values())
        at_once = self._priors is not None or self._superclasses is not None
        return self._counting.of_a_batch(at_once or any(measure.needs_matrix for measure in read))

    def _snapshot(self, counting: Counting, state: Tensor) -> Snapshot:
        """View a state as counts."""
        groups, soft = counting.groups is not None, counting.soft > 0
        return Snapshot(
            counting.counts(state),
            counting.counts(state, soft=True) if soft else None,
            counting.counts(state, of_groups=True) if groups else None,
            counting.counts(state, of_groups=True, soft=True) if groups and soft else None,
            self._priors,
        )

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> dict[str, Tensor]:
        assert isinstance(counter, Counting)
        values = self._reading.values(self._snapshot(counter, state), drawn=False)
        return self._by_full_name({row.name: value for row, value in values.items()})

    def compute(self) -> dict[str, Tensor]:
        """All values of all counts, of all processes, by name.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        at = self._snapshot(self._counting, self._own(self._state))
        self._report_problems(sums(at.counts).actual, self._priors)
        groups = self._reading.groups
        if groups is not None and (self._may_warn("empty groups") or self._may_warn("lacking groups")):
            for kind, text in groups.problems(at).items():
                self._warn_once(kind, f"{type(self).__name__}: {text}")
        values = self._reading.values(at)
        if self._intervals and self._may_warn("no interval") and bool(sums(at.counts).actual.any()):
            low = {row: value for row, value in values.items() if row.bound == "low" and row.kind != "group"}
            names = [replace(row, bound="").name for row, value in low.items() if bool(value.isnan())]
            if names:
                shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
                text = f"bounds are nan of values that depend on classes without targets: {shown}"
                self._warn_once("no interval", f"{type(self).__name__}: {text}")
        return self._keep(ReportResult(values, at, self._reading))

    def measure(self, name: str) -> AveragedMeasure | MergedMeasure:
        """A measure as this report reads it, or would: a function of counts that knows its direction.

        Args:
            name: of the report, with prefix and postfix or without both; or of a metric or function of the catalogue.

        Raises:
            ValueError: for a name that neither has, and for values of groups of samples, soft counts and bounds, which
                are no function of the counts of all samples.
        """
        if name not in self:
            if name not in BY_ANY_NAME:
                names = dict.fromkeys((*self.measures, *(f"{key}/..." for key in self.per_class), *BY_ANY_NAME))
                meant = did_you_mean(name, names)
                raise ValueError(f"measures holds {name!r}, which is unknown; names are {', '.join(names)}{meant}")
            return resolved(name, BY_ANY_NAME[name], self._counting)
        row, reading = self[name].row, self._reading
        if row.soft or row.bound or row.kind in ("group", "worst"):
            raise ValueError(f"{name!r} is no function of the counts of all samples, but of their {_source(row)}")
        if row.kind == "superclass":
            assert self._superclasses is not None
            return self._superclasses.measure(row)
        if row.kind == "class group":
            return self._class_groups.measure(row)
        if row.kind == "overall":
            return reading.measures[row.measure]
        return replace(reading.per_class[row.measure], of_class=reading.class_names.index(row.of))

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

        Arguments, prefix and postfix of the name being left out or not, and errors as :meth:`ReportResult.interval` of
        the last result, which never communicates. Processes draw each for themselves: give all of them a generator of
        one seed where they must agree. Like the value, the interval of a mean over classes is of the classes that have
        targets; a warning names the others.
        """
        row = self[name].row if name in self else None
        if row is not None and (row.kind not in ("overall", "class") or row.soft or row.bound):
            raise ValueError(
                f"{name!r} has no interval here, but overall values and those of single classes; bounds of the values "
                "of groups come with intervals=[...] of the report"
            )
        short, reading = name if row is None else row.name, self._reading
        checked_intervals([short], reading.measures, reading.per_class, reading.class_names)  # before anybody waits
        with self._counts_of_all():
            at = self._snapshot(self._counting, self._state.clone())
            self._report_problems(sums(at.counts).actual, self._priors)
        found = ReportResult({}, at, self._reading)
        return found.interval(short, level=level, generator=generator, clusters=clusters, samples=samples)

    def _label(self, index: int) -> str:
        return self.class_names[index]

    # --- looks ------------------------------------------------------------------------------------------------------

    def result(self) -> ReportResult:
        """Return the last computed result, which can be shown, asked and pickled; never communicates.

        On a single process it is computed anew if counts came since; after ``reset`` the last result stays.

        Raises:
            RuntimeError: if several processes count and nothing was computed yet.
        """
        return cast(ReportResult, super().result())

    def table(self, sort: str | None = None, head: int | None = None) -> ReportTable:
        """Return the last computed result as a table; never communicates. Arguments as :meth:`ReportResult.table`.

        >>> report = ImbalanceReport("binary", class_names=["ok", "fraud"], per_class=())
        >>> report.update(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        >>> print(report.table().overall["accuracy"])
        0.75
        """
        return self.result().table(sort, head)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the last computed result as :meth:`ReportResult.plot` does; never communicates.

        Args:
            val: results of ``compute``, one or a sequence: draws the course of each value over epochs instead, and
                dotted lines at what always predicting the most common class is worth, at the targets of the last one.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        if val is None:
            return self.result().plot(ax)
        results = [val] if isinstance(val, Mapping) else val
        names = [f"{self.prefix}{name}{self.postfix}" for name in self.measures] or self.keys()
        steps = [torch.stack([torch.as_tensor(step[name]) for name in names]) for step in results]
        baseline = {} if self._last is None else self._reading.baseline(self.result()._at)[1]
        levels = torch.tensor([baseline.get(name, math.nan) for name in self.measures]) if baseline else None
        return plot_values(steps, ax, labels=names, trivial=levels)

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments()
        shown |= {name: value for name in ("prefix", "postfix") if (value := getattr(self, name))}
        shown |= {} if self.prevalence is None else {"prevalence": list(self.prevalence)}
        every = self.intervals == self.measures
        shown |= {"intervals": every or list(self.intervals)} if self.intervals else {}
        shown |= {} if self.groups is None else {"groups": list(self.groups), "per_group": list(self.per_group)}
        shown |= {"class_groups": self.class_groups} if self.class_groups else {}
        shown |= {"superclasses": self.superclasses} if self.superclasses else {}
        return shown | {"measures": list(self.measures), "per_class": list(self.per_class)}

    def _settings_text(self) -> str:
        read = (self._reading.measures, self._reading.per_class)
        measures = [{key: (each.function, each.arguments) for key, each in some.items()} for some in read]
        merged = {} if self._superclasses is None else self._superclasses.merged
        return f"{super()._settings_text()} {canonical((measures, self.class_names, self.keys(), merged))}"


def _views(
    soft: float,
    overall: Overall,
    bounds: Bounds,
    per_class: PerClass,
    class_groups: ClassGroups,
    superclasses: Superclasses | None,
    groups: Groups | None,
) -> Iterator[View]:
    """Yield what is reported, in the order of the names."""
    yield overall
    yield bounds
    if soft:
        yield replace(overall, soft=soft)
    yield per_class
    yield class_groups
    if superclasses is not None:
        yield superclasses
    if groups is not None:
        yield groups
        if soft:
            yield replace(groups, soft=soft)
        of_each = {
            row: measure for row, measure in bounds.measured.items() if row.measure in groups.each and not row.of
        }
        yield Bounds(of_each, groups.names)


def _source(row: Row) -> str:
    """Name what a value is read off that is no function of the counts of all samples."""
    if row.bound:
        return "interval"
    return "soft counts" if row.soft else "groups"


def _checked_prevalence(
    prevalence: Mapping[str, float] | Sequence[float] | Tensor, counting: Counting, class_names: Sequence[str]
) -> Tensor:
    """Class priors of the population that values are read at, in the order of classes."""
    if counting.layout == "margins" and counting.size > 2:
        raise ValueError(
            "prevalence needs the whole matrix for more than two classes: margins do not say where the errors of "
            "each class went; use state='matrix'"
        )
    if isinstance(prevalence, Mapping):
        ignored = None if counting.task == "multilabel" else counting.ignored_class
        optional = set() if ignored is None else {class_names[ignored]}
        missing = [name for name in class_names if name not in optional.union(prevalence)]
        unknown = [name for name in prevalence if name not in class_names]
        if missing or unknown:
            raise ValueError(
                f"prevalence must name every class; missing are {missing}, not among class_names are {unknown}"
            )
        prevalence = [prevalence.get(name, 0.0) for name in class_names]
    return counting.class_priors(prevalence, "prevalence")


def _check_together(
    intervals: bool,
    state: Layout,
    weighted: bool,
    soft: bool,
    groups: Sequence[str] | None,
    per_group: Sequence[str] | None,
) -> None:
    """Raise for arguments of a report that do not go together."""
    if intervals and state == "margins":
        raise ValueError("intervals draws whole matrices; use state='matrix'")
    if intervals and weighted:
        raise ValueError(UNSURE)
    if per_group is not None and groups is None:
        raise ValueError("per_group names measures of each group, but no groups are given; use groups=[...]")
    if groups is not None and soft and state == "margins":
        raise ValueError("state='margins' keeps no soft counts of each group; use state='matrix', or leave soft out")


def _sized(
    task: Task | None, num_classes: int | None, num_labels: int | None, names: Sequence[str] | None
) -> tuple[int | None, int | None]:
    """Number of classes and of labels, where names say what was not given."""
    named = None if names is None else len(names)
    if task == "multilabel":
        return num_classes, named if num_labels is None else num_labels
    return named if num_classes is None else num_classes, num_labels


def _collision(name: str, cause: str) -> str:
    """What is wrong where an argument adds a name that is reported already."""
    if "groups" in cause or cause == "superclasses":
        what = "superclass" if cause == "superclasses" else "group"
        return f"{name!r} is reported already, and {cause} adds it once more; give that {what} another name"
    return f"measures already holds {name!r}, which {cause} adds; rename it there"
