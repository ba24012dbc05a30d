"""Description of a report: its task, classes, values and groups, from the arguments that users pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from torch import Tensor

from imbtorch.counting.arguments import Layout, Task, Thresholds, in_class_order
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts
from imbtorch.measures.named import Measured, named_measures, per_class_measures, resolved
from imbtorch.measures.traits import by_key
from imbtorch.reports.groups import checked_class_groups, checked_group_names, checked_per_group
from imbtorch.reports.readings import FEW_CLASSES, Readings, Value, values_of_class_groups, values_of_classes
from imbtorch.reports.result import ReportResult
from imbtorch.reports.rows import Row, Snapshot
from imbtorch.reports.texts import checked_names

Shares: TypeAlias = Mapping[str, float] | Sequence[float] | Tensor
DEFAULT = ("iam", "cba", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "gmean", "mcc")
DEFAULT_OF_TWO_CLASSES = ("iba",)
ARGUMENTS = {
    "overall": "measures",
    "class": "per_class",
    "class group": "class_groups",
    "group": "groups",
    "worst": "groups",
}  # kind of row -> argument that adds it


def default_measures(task: Task) -> dict[str, Measured]:
    """Return the default measures of a report, name -> function of counts."""
    known = by_key()
    return {name: known[name] for name in DEFAULT + DEFAULT_OF_TWO_CLASSES * (task == "binary")}


def described(
    task: Task | None,
    num_classes: int | None = None,
    *,
    class_names: Sequence[str] | None = None,
    measures: Mapping[str, Measured] | Sequence[str] | None = None,
    per_class: Sequence[str] | Mapping[str, Measured] | None = None,
    intervals: bool | Sequence[str] = False,
    logits: bool = False,
    num_labels: int | None = None,
    class_groups: Mapping[str, Sequence[str | int]] | None = None,
    groups: Sequence[str] | Mapping[str, Sequence[str]] | int | None = None,
    per_group: Sequence[str] | None = None,
    clusters: bool | None = None,
    prevalence: Shares | None = None,
    threshold: Thresholds = 0.5,
    ignore_index: int | None = None,
    state: Layout = "matrix",
    weighted: bool = False,
    default: Callable[[Task], Mapping[str, Measured]] = default_measures,
) -> Readings:
    """Return the rows that a report reads from counts; :class:`imbtorch.ImbalanceReport` explains the arguments.

    Raises:
        ValueError: for arguments that do not fit each other, and two values with the same name.
        TypeError: for arguments of the wrong type.
    """
    group_names, grouped_by = checked_group_names(groups)
    _check_together(bool(intervals), state, group_names, per_group)
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
    shares = None if prevalence is None else _checked_prevalence(prevalence, counting, class_names)
    given = named_measures(default(counting.task) if measures is None else measures)
    overall = {key: resolved(key, each, counting, argument=f"measures[{key!r}]") for key, each in given.items()}
    indices = checked_class_groups(class_groups, class_names)
    # by default many classes are reported by class group only
    of_each = per_class_measures(("recall", "precision") if per_class is None else per_class, counting)
    if indices and not of_each:
        raise ValueError("class_groups averages the measures in per_class, which is empty; use per_class=['recall']")
    values = {Row(key, each.higher_is_better): Value(each) for key, each in overall.items()}
    if per_class is not None or counting.size <= FEW_CLASSES:
        values |= values_of_classes(of_each, class_names)
    values |= values_of_class_groups(of_each, indices)
    each_group = () if group_names is None else checked_per_group(per_group, group_names, overall)
    readings = Readings(counting, class_names, values, (), group_names or (), grouped_by, each_group, shares)
    readings = replace(readings, bounded=readings.checked_intervals(intervals))
    _check_rows(readings.rows)
    return readings


def result_of_counts(readings: Readings, counts: Counts) -> ReportResult:
    """Return the result of a report of some counts, whose samples are independent."""
    at = Snapshot(counts, None, readings.prevalence)
    return ReportResult(readings.read(at), at, readings)


def _checked_prevalence(prevalence: Shares, counting: Counting, class_names: Sequence[str]) -> Tensor:
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
    groups: Sequence[str] | None,
    per_group: Sequence[str] | None,
) -> None:
    """Raise for arguments that do not fit each other."""
    if intervals and state == "margins":
        raise ValueError("intervals need the whole matrix; use state='matrix'")
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


def _check_rows(rows: Sequence[Row]) -> None:
    """Raise if two values have the same name, or if there is no value."""
    taken: dict[str, Row] = {}
    for row in rows:
        if (other := taken.setdefault(row.name, row)) is not row:
            raise ValueError(_collision(row.name, row, other))
    if not taken:
        raise ValueError(
            "measures and per_class are both empty, so there is nothing to report; name at least one measure"
        )


def _collision(name: str, row: Row, other: Row) -> str:
    """Return the error message for a name that another argument already reports."""
    cause = "intervals" if row.bound else ARGUMENTS[row.kind]
    bound, plain = (row, other) if row.bound else (other, row)
    if bound.bound and plain.of:
        return f"{name!r} is a bound, which intervals adds, and a value of {plain.of!r}; give {plain.of!r} another name"
    if "groups" in cause:
        return f"{name!r} is already reported, and {cause} adds it again; give that group another name"
    return f"measures already contains {name!r}, which {cause} adds; rename it in measures"
