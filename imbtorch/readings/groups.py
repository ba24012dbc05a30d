"""Values of each group of samples (site, dataloader, subgroup), and of the worst group.

Group indices are checked with the other inputs of an update, in :mod:`imbtorch.counting.arguments` and
:mod:`imbtorch.counting.batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, targets
from imbtorch.readings.averaging import AveragedMeasure
from imbtorch.readings.class_groups import check_group_name
from imbtorch.suggestions import did_you_mean, first_names

__all__ = [
    "checked_group_names",
    "checked_per_group",
    "comparable_groups",
    "group_problems",
    "report_memory",
    "worst",
]

FEW_GROUPS = 20  # number of groups up to which the values of each group are reported by default
LARGE = 100_000_000  # bytes of a state above which the constructor warns


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


def group_problems(counting: Counting, counts: Counts, names: Sequence[str]) -> dict[str, str]:
    """Describe the groups without samples or without targets of some class: kind -> text.

    Args:
        counting: how samples are counted.
        counts: counts of each group.
        names: names of the groups.
    """
    samples, comparable = comparable_groups(counting, counts)
    if not bool(samples.any()):
        return {}

    def listed(chosen: Tensor) -> str:
        some = [name for name, yes in zip(names, chosen.tolist(), strict=True) if yes]
        return f"{len(some)} of {len(names)} groups ({first_names(some)})"

    empty, texts = samples == 0, {}
    if bool(empty.any()):
        texts["empty groups"] = f"{listed(empty)} had no samples; their values are nan"
    if bool((lacking := ~comparable & ~empty).any()):
        texts["lacking groups"] = (
            f"{listed(lacking)} had no target of a class that other groups have; they take no part in "
            f"the worst value{'' if bool(comparable.any()) else ', which is nan because no group has all classes'}"
        )
    return texts
