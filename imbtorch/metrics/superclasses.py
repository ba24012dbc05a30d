"""Values of superclasses, computed from the counts of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from imbtorch.counts import Counts, check_square, merge_classes
from imbtorch.metrics.averaging import AveragedMeasure, one_value
from imbtorch.metrics.class_groups import check_group_name
from imbtorch.metrics.rows import Row, Snapshot
from imbtorch.tasks import Counting

__all__ = ["MergedMeasure", "Superclasses", "checked_superclasses"]

ALL = "superclasses"  # stands for all superclasses together in the names of values


@dataclass(frozen=True)
class MergedMeasure:
    """Measure of superclasses as a function of the counts of the classes.

    Attributes:
        measure: measure of the merged counts.
        merged: name of a superclass -> names of its classes.
        class_names: names of the classes.
        needs_matrix: True, since margins do not show the errors within a superclass.
    """

    measure: AveragedMeasure
    merged: Mapping[str, Sequence[str]]
    class_names: tuple[str, ...]
    needs_matrix: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the measure in messages."""
        return self.measure.name

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher values are better; None if neither direction is."""
        return self.measure.higher_is_better

    def __call__(self, counts: Counts) -> Tensor:
        """Evaluate the counts of the classes, ``[..., K, K]``."""
        return self.measure(merge_classes(check_square(counts), self.merged, self.class_names)[0])


@dataclass(frozen=True)
class Superclasses:
    """View of the measures of superclasses: ``<measure>/superclasses`` of all, and ``<measure>/<superclass>``.

    Classes outside all superclasses stay as they are and have no rows of their own.

    Attributes:
        merged: name of a superclass -> names of its classes.
        class_names: names of the classes.
        measures: row -> measure of the merged counts.
    """

    merged: dict[str, tuple[str, ...]]
    class_names: tuple[str, ...]
    measures: dict[Row, AveragedMeasure]
    argument: ClassVar[str] = "superclasses"
    drawn: ClassVar[bool] = False

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows of each measure for all superclasses, and of each per-class measure for each superclass."""
        return tuple(self.measures)

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row."""
        counts = at.read().counts
        assert isinstance(counts, Tensor)
        merged = merge_classes(counts, self.merged, self.class_names)[0]
        return [one_value(row.name, measure(merged)) for row, measure in self.measures.items()]

    def measure(self, row: Row) -> MergedMeasure:
        """Return the measure of a row, a function of the counts of the classes."""
        return MergedMeasure(self.measures[row], self.merged, self.class_names)


def checked_superclasses(
    given: Mapping[str, Sequence[str]],
    class_names: tuple[str, ...],
    counting: Counting,
    measures: Mapping[str, AveragedMeasure],
    per_class: Mapping[str, AveragedMeasure],
) -> Superclasses:
    """Return the view of the superclasses that a user names.

    Raises:
        ValueError: for other tasks than multiclass, for ``state="margins"``, for classes that do not exist, are in two
            superclasses or are left out by ``ignore_index``, for fewer than two classes after merging, and for measures
            that cannot be computed for the merged classes.
        TypeError: for anything but a mapping of names to names.
    """
    if counting.task != "multiclass" or counting.layout == "margins":
        got = f"task={counting.task!r}" if counting.task != "multiclass" else "state='margins'"
        raise ValueError(f"superclasses need task='multiclass' and state='matrix', got {got}")
    merged = _checked(given, class_names)
    zeros = torch.zeros(counting.size, counting.size, dtype=torch.int64)
    _, names = merge_classes(zeros, merged, class_names)
    if len(names) < 2:
        raise ValueError(f"superclasses must leave at least two classes, got {names}")
    of_merged = replace(counting, size=len(names), ignore_index=_ignored(counting, class_names, merged, names))
    found = {
        Row(key, measure.higher_is_better, "superclass", ALL): replace(measure, counting=of_merged)
        for key, measure in measures.items()
    }
    for key, measure in per_class.items():
        for name in merged:
            row = Row(key, measure.higher_is_better, "superclass", name)
            found[row] = replace(measure, counting=of_merged, of_class=names.index(name))
    trial, row = torch.ones(len(names), len(names), dtype=torch.int64), Row("", None)
    try:  # a measure may need the original number of classes, such as one with costs
        for row, measure in found.items():
            one_value(row.name, measure(trial))
    except (ValueError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"{row.name!r} cannot be computed for {len(names)} merged classes ({error}); leave that measure out, or "
            "report it separately, without superclasses="
        ) from error
    return Superclasses(merged, class_names, found)


def _checked(given: Mapping[str, Sequence[str]], class_names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of each superclass; raise unless all classes exist."""
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"superclasses must map names to classes, as in {{'animal': ['cat', 'dog']}}, got {given!r}")
    merged = {}
    for name, some in given.items():
        if isinstance(some, str) or not isinstance(some, Sequence):
            raise TypeError(f"superclasses[{name!r}] must be a sequence of class names, got {some!r}")
        unknown = [each for each in some if each not in class_names]
        if unknown:
            raise ValueError(
                f"superclasses[{name!r}] holds {unknown}, which are not among class_names {list(class_names)}"
            )
        if name == ALL:
            raise ValueError(f"superclasses holds the name {ALL!r}, which stands for all superclasses; rename it")
        merged[check_group_name(name, "superclasses")] = tuple(some)
    return merged


def _ignored(
    counting: Counting, class_names: Sequence[str], merged: Mapping[str, Sequence[str]], names: Sequence[str]
) -> int | None:
    """Return the index of the ignored class among the merged classes; an index that is no class stays."""
    if counting.ignored_class is None:
        return counting.ignore_index
    ignored = class_names[counting.ignored_class]
    holding = [name for name, some in merged.items() if ignored in some]
    if holding:
        raise ValueError(
            f"superclasses[{holding[0]!r}] holds {ignored!r}, whose samples ignore_index leaves out; remove it from "
            "the superclass"
        )
    return names.index(ignored)
