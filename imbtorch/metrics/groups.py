"""Values of each group of samples (a site, a dataloader, a subgroup), and of the worst of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor

from imbtorch.counting import Counting
from imbtorch.counts import Counts, mapped, margins
from imbtorch.metrics.averaging import AveragedMeasure
from imbtorch.metrics.base import targets
from imbtorch.metrics.class_groups import check_group_name
from imbtorch.metrics.compat import warn_caller
from imbtorch.metrics.intervals_of_report import ReportedIntervals

__all__ = ["Groups"]

FEW_GROUPS = 20  # groups up to which the values of each are reported without being asked for
LARGE = 100_000_000  # bytes of a state that the constructor speaks of


@dataclass(frozen=True)
class Groups:
    """Groups of a report, and what is reported of each.

    Attributes:
        names: of the groups, in the order of their indices.
        measures: names of the measures whose value in each group is reported as ``<measure>/<group>``.
        worst: names of the measures whose worst value over groups is reported as ``<measure>_worst``.
    """

    names: tuple[str, ...]
    measures: tuple[str, ...]
    worst: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Sequence[str], per_group: Sequence[str] | None, measures: Mapping[str, AveragedMeasure]
    ) -> Groups:
        """Check what is to be reported.

        Raises:
            ValueError: for measures that are not reported.
            TypeError: for a string in place of a sequence.
        """
        if isinstance(per_group, str):
            raise TypeError(f"per_group must be a sequence of names such as ({per_group!r},), got a string")
        usual = tuple(measures) if len(names) <= FEW_GROUPS else ()
        chosen = usual if per_group is None else tuple(dict.fromkeys(per_group))
        unknown = [name for name in chosen if name not in measures]
        if unknown:
            raise ValueError(f"per_group holds {unknown}, which are not among measures: {', '.join(measures)}")
        directed = (name for name, measure in measures.items() if measure.higher_is_better is not None)
        return cls(tuple(names), chosen, tuple(directed))

    def evaluated(self, measures: Mapping[str, AveragedMeasure], counts: Counts) -> dict[str, Tensor]:
        """Evaluate what is reported of each group: name of the measure -> ``[G]``.

        Args:
            measures: name -> measure.
            counts: of each group, ``[G, K, K]`` or ``[G, L, 2, 2]``, or rates.
        """
        marginal, found = margins(counts), {}
        for name in dict.fromkeys((*self.measures, *self.worst)):
            found[name] = measures[name].value_of(counts, marginal)
            if found[name].shape != (len(self.names),):
                raise ValueError(
                    f"measure {name!r} must return one value for each of {len(self.names)} groups, got "
                    f"{list(found[name].shape)}"
                )
        return found

    def values(
        self,
        measures: Mapping[str, AveragedMeasure],
        of_each: Mapping[str, Tensor],
        comparable: Tensor,
        suffix: str = "",
    ) -> dict[str, Tensor]:
        """Name the values of groups, and the worst of them.

        Args:
            measures: name -> measure.
            of_each: what :meth:`evaluated` returns.
            comparable: bool ``[G]``, groups among which the worst is sought.
            suffix: comes behind the names of measures.
        """
        values: dict[str, Tensor] = {}
        for name in self.measures:
            pairs = zip(self.names, of_each[name].unbind(), strict=True)
            values |= {f"{name}{suffix}/{group}": value for group, value in pairs}
        for name in self.worst:
            better = bool(measures[name].higher_is_better)
            values[f"{name}{suffix}_worst"] = worst(of_each[name], comparable, better)
        return values

    def directions(
        self, measures: Mapping[str, AveragedMeasure], intervals: Sequence[str] = (), suffix: str = ""
    ) -> Iterable[tuple[str, bool | None]]:
        """Names that are reported, with the limits of their intervals, and which direction of each is better."""
        for name in dict.fromkeys((*self.measures, *self.worst)):
            direction = measures[name].higher_is_better
            limits = ("", "_low", "_high") if name in intervals else ("",)
            if name in self.measures:
                yield from ((f"{name}{suffix}/{group}{limit}", direction) for group in self.names for limit in limits)
            if name in self.worst:
                yield f"{name}{suffix}_worst", direction

    def limits(self, limits: ReportedIntervals, counts: Counts) -> dict[str, tuple[ReportedIntervals, Counts]]:
        """Of each group, the values that have an interval, and the counts."""
        names = tuple(name for name in limits.names if name in self.measures)
        reported = ReportedIntervals({name: limits.overall[name] for name in names}, {}, {}, names)
        return {group: (reported, mapped(counts, itemgetter(index))) for index, group in enumerate(self.names)}

    def problems(self, samples: Tensor, comparable: Tensor) -> dict[str, str]:
        """What there is to say of groups: kind -> text."""
        empty = (samples == 0).tolist()
        lacking = [not full and not none for full, none in zip(comparable.tolist(), empty, strict=True)]
        texts = {}
        if any(empty):
            texts["empty groups"] = f"{self._listed(empty)} had no sample, so that their values are nan"
        if any(lacking):
            texts["lacking groups"] = (
                f"{self._listed(lacking)} had no target of some class that others have, so that they take no part in "
                f"the worst{'' if bool(comparable.any()) else ', which is nan without a group that has all of them'}"
            )
        return texts

    def _listed(self, chosen: Sequence[bool]) -> str:
        names = [name for name, yes in zip(self.names, chosen, strict=True) if yes]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return f"{len(names)} of {len(self.names)} groups ({shown})"


def checked_group_names(groups: Sequence[str] | int | None) -> tuple[str, ...] | None:
    """Names of the groups; a number of them are ``group 0``, ``group 1``, ...

    Raises:
        ValueError: for no group, equal names, and names that a checkpoint's file name cannot bear.
        TypeError: for what is neither names nor a number.
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
    """Warn where the counts of all groups take much memory."""
    taken = 8 * counting.cells
    if counting.groups is not None and taken > LARGE:
        layout = "; state='margins' keeps less" if counting.task == "multiclass" and counting.layout == "matrix" else ""
        warn_caller(
            f"the counts of {counting.groups} groups take {taken / 1e6:,.0f} MB, and twice as much while processes are "
            f"summed{layout}"
        )


def comparable_groups(counting: Counting, counts: Counts) -> tuple[Tensor, Tensor]:
    """Samples of each group, and which groups have targets of every class that all of them together have: ``[G]``."""
    actual = targets(counts)
    samples = actual.sum(-1)
    if counting.task == "multilabel":  # each label has a positive and a negative class
        samples = samples.amax(-1)
        actual = actual.flatten(-2)
    pooled = actual.sum(0) > 0
    return samples, ((actual > 0) | ~pooled).all(-1) & (samples > 0)


def worst(values: Tensor, comparable: Tensor, higher_is_better: bool) -> Tensor:
    """Worst of the values ``[G]`` of comparable groups; nan without any, and where one of them is nan."""
    last = torch.inf if higher_is_better else -torch.inf
    ranked = torch.where(comparable, values, last)
    found = ranked.amin() if higher_is_better else ranked.amax()
    return torch.where(comparable.any(), found, torch.nan)
