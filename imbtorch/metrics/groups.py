"""Values of each group of samples (site, dataloader, subgroup), and of the worst group.

Group indices are checked with the other inputs of an update, in :mod:`imbtorch.arguments` and :mod:`imbtorch.batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counts import Counts
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import targets
from imbtorch.metrics.class_groups import check_group_name
from imbtorch.metrics.rows import Row, Snapshot
from imbtorch.suggestions import did_you_mean, first_names
from imbtorch.tasks import Counting

__all__ = ["Groups"]

FEW_GROUPS = 20  # number of groups up to which the values of each group are reported by default
LARGE = 100_000_000  # bytes of a state above which the constructor warns


@dataclass(frozen=True)
class Groups:
    """View of the measures of each group of samples, and of the worst group.

    Attributes:
        names: names of the groups, in the order of their indices.
        measures: key -> measure of all classes.
        counting: how samples are counted.
        each: keys of the measures that are reported for each group; the worst value is reported for all measures that
            have a direction.
    """

    names: tuple[str, ...]
    measures: Mapping[str, AveragedMeasure]
    counting: Counting
    each: tuple[str, ...]
    argument: ClassVar[str] = "groups"
    drawn: ClassVar[bool] = False

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows of each measure: one for each group, and one for the worst."""
        found = []
        for key, measure in self.measures.items():
            better = measure.higher_is_better
            names = self.names if key in self.each else ()
            found += [Row(key, better, "group", name) for name in names]
            found += [Row(key, better, "worst")] if better is not None else []
        return tuple(found)

    def values(self, at: Snapshot) -> Sequence[Tensor]:
        """Return one value for each row."""
        assert at.groups is not None
        _, comparable = comparable_groups(self.counting, at.groups)
        found: list[Tensor] = []
        for key, measure in self.measures.items():
            if key not in self.each and measure.higher_is_better is None:
                continue
            of_each = at.value(measure, of_groups=True)
            if of_each.shape != (len(self.names),):
                raise ValueError(
                    f"measure {key!r} must return one value for each of {len(self.names)} groups, got "
                    f"{list(of_each.shape)}"
                )
            found += [of_each] if key in self.each else []
            if measure.higher_is_better is not None:
                found.append(worst(of_each, comparable, measure.higher_is_better))
        return found

    def problems(self, at: Snapshot) -> dict[str, str]:
        """Describe the groups without samples or without targets of some class: kind -> text."""
        assert at.groups is not None
        samples, comparable = comparable_groups(self.counting, at.groups)
        if not bool(samples.any()):
            return {}
        empty = (samples == 0).tolist()
        lacking = [not full and not none for full, none in zip(comparable.tolist(), empty, strict=True)]
        texts = {}
        if any(empty):
            texts["empty groups"] = f"{self._listed(empty)} had no samples; their values are nan"
        if any(lacking):
            texts["lacking groups"] = (
                f"{self._listed(lacking)} had no target of a class that other groups have; they take no part in "
                f"the worst value{'' if bool(comparable.any()) else ', which is nan because no group has all classes'}"
            )
        return texts

    def _listed(self, chosen: Sequence[bool]) -> str:
        names = [name for name, yes in zip(self.names, chosen, strict=True) if yes]
        return f"{len(names)} of {len(self.names)} groups ({first_names(names)})"


def checked_per_group(
    per_group: Sequence[str] | None, names: Sequence[str], measures: Mapping[str, AveragedMeasure]
) -> tuple[str, ...]:
    """Return the keys of the measures that are reported for each group.

    Raises:
        ValueError: for measures that the report does not have.
        TypeError: for a string in place of a sequence.
    """
    if isinstance(per_group, str):
        raise TypeError(f"per_group must be a sequence of names such as ({per_group!r},), got a string")
    if per_group is None:
        return tuple(measures) if len(names) <= FEW_GROUPS else ()
    unknown = [key for key in per_group if key not in measures]
    if unknown:
        meant = did_you_mean(unknown[0], measures)
        raise ValueError(f"per_group holds {unknown}, which are not among measures: {', '.join(measures)}{meant}")
    return tuple(dict.fromkeys(per_group))


def checked_group_names(groups: Sequence[str] | int | None) -> tuple[str, ...] | None:
    """Return the names of the groups; a number gives ``group 0``, ``group 1``, ...

    Raises:
        ValueError: for no group, equal names, and names that a checkpoint's file name cannot hold.
        TypeError: for anything but names and numbers.
    """
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool):
        names: Sequence[str] = [f"group {index}" for index in range(groups)]
    elif isinstance(groups, Sequence) and not isinstance(groups, str):
        names = [check_group_name(name, "groups") for name in groups]
    else:
        raise TypeError(
            f"groups must be a sequence of names, in the order of their indices, or a number, got {groups!r}"
        )
    if not names:
        raise ValueError(f"groups must name at least one group, got {groups!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"groups must differ, got {list(names)}")
    return tuple(names)


def report_memory(counting: Counting) -> None:
    """Warn if the counts of all groups and buckets of clusters take much memory."""
    taken = 8 * counting.cells
    if taken > LARGE and (counting.groups is not None or counting.clusters):
        layout = "; clusters=False takes less" if counting.clusters else ""
        if not layout and counting.task == "multiclass" and counting.layout == "matrix":
            layout = "; state='margins' takes less"
        kept = [f"{counting.groups} groups"] * (counting.groups is not None)
        kept += [f"{counting.table.buckets} buckets of clusters"] * counting.clusters
        warn_caller(
            f"the counts of {' times '.join(kept)} take {taken / 1e6:,.0f} MB, and twice as much during the sum over "
            f"processes{layout}"
        )


def comparable_groups(counting: Counting, counts: Counts) -> tuple[Tensor, Tensor]:
    """Return the sample size of each group, and a mask of the groups that have all classes of any group: ``[G]``."""
    actual = targets(counts)
    samples = actual.sum(-1)
    if counting.task == "multilabel":  # each label has a positive and a negative class
        samples = samples.amax(-1)
        actual = actual.flatten(-2)
    pooled = actual.sum(0) > 0
    return samples, ((actual > 0) | ~pooled).all(-1) & (samples > 0)


def worst(values: Tensor, comparable: Tensor, higher_is_better: bool) -> Tensor:
    """Return the worst of the values ``[G]`` of comparable groups; nan if one of them is nan or there are none."""
    last = torch.inf if higher_is_better else -torch.inf
    ranked = torch.where(comparable, values, last)
    found = ranked.amin() if higher_is_better else ranked.amax()
    return torch.where(comparable.any(), found, torch.nan)
