"""Values of coarse classes beside those of the fine ones, read off the same counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imbtorch.counting import Counting
from imbtorch.counts import Counts, merge_classes
from imbtorch.metrics.averaging import AveragedMeasure, one_value
from imbtorch.metrics.class_groups import check_group_name

__all__ = ["CoarseClasses", "CoarseMeasure"]


@dataclass(frozen=True)
class CoarseMeasure:
    """A measure of coarse classes that takes the counts of the fine ones.

    Attributes:
        of_coarse: the measure, of coarse counts.
        merged: name of a coarse class -> names of the fine ones that it is made of.
        class_names: names of the fine classes.
        needs_matrix: True: margins do not say which errors stay in a coarse class.
    """

    of_coarse: AveragedMeasure
    merged: Mapping[str, Sequence[str]]
    class_names: tuple[str, ...]
    needs_matrix: ClassVar[bool] = True

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the measure; None without one."""
        return self.of_coarse.higher_is_better

    def __call__(self, counts: Counts) -> Tensor:
        """Value of fine counts ``[..., K, K]``."""
        assert isinstance(counts, Tensor)
        return self.of_coarse(merge_classes(counts, self.merged, self.class_names)[0])


@dataclass(frozen=True)
class CoarseClasses:
    """Coarse classes of a report, and what is reported of them.

    Attributes:
        merged: name of a coarse class -> names of the fine ones that it is made of.
        class_names: names of the fine classes.
        measures: reported name -> measure: ``<measure>/coarse`` of all coarse classes, and ``<measure>/<coarse class>``
            of those that are merged; the others' values are their fine ones.
    """

    merged: dict[str, tuple[str, ...]]
    class_names: tuple[str, ...]
    measures: dict[str, CoarseMeasure]

    @classmethod
    def of(
        cls,
        given: Mapping[str, Sequence[str]] | None,
        class_names: tuple[str, ...],
        counting: Counting,
        measures: Mapping[str, AveragedMeasure],
        per_class: Mapping[str, AveragedMeasure],
    ) -> CoarseClasses | None:
        """Check what is to be merged; None without it.

        Raises:
            ValueError: for another task than multiclass, for margins, classes that do not exist, are in two coarse ones
                or are left out by ``ignore_index``, fewer than two coarse classes, and measures that cannot be read off
                so few classes.
            TypeError: for what is no mapping of names to names.
        """
        if given is None:
            return None
        if counting.task != "multiclass" or counting.layout == "margins":
            got = f"task={counting.task!r}" if counting.task != "multiclass" else "state='margins'"
            raise ValueError(f"coarse merges classes: it needs task='multiclass' and state='matrix', got {got}")
        merged = _checked(given, class_names)
        zeros = torch.zeros(counting.size, counting.size, dtype=torch.int64)
        try:
            _, names = merge_classes(zeros, merged, class_names)
        except ValueError as error:
            raise ValueError(f"coarse cannot be merged: {error}") from error
        if len(names) < 2:
            raise ValueError(f"coarse must leave at least two classes, got {names}")
        coarse = replace(counting, size=len(names), ignore_index=_ignored(counting, class_names, merged, names))

        def read(measure: AveragedMeasure, of_class: int | None = None) -> CoarseMeasure:
            return CoarseMeasure(replace(measure, counting=coarse, of_class=of_class), merged, class_names)

        found = {f"{name}/coarse": read(measure) for name, measure in measures.items()}
        for name, measure in per_class.items():
            found |= {f"{name}/{each}": read(measure, names.index(each)) for each in merged}
        _check_readable(found, len(names))
        return cls(merged, class_names, found)

    def directions(self) -> list[tuple[str, bool | None]]:
        """Reported names, and which direction of each is better."""
        return [(name, measure.higher_is_better) for name, measure in self.measures.items()]

    def values(self, counts: Counts) -> dict[str, Tensor]:
        """Values by name, of fine counts or rates ``[K, K]``."""
        assert isinstance(counts, Tensor)
        coarse = merge_classes(counts, self.merged, self.class_names)[0]
        return {name: one_value(name, measure.of_coarse(coarse)) for name, measure in self.measures.items()}


def _checked(given: Mapping[str, Sequence[str]], class_names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"coarse must map names to classes, as in {{'animal': ['cat', 'dog']}}, got {given!r}")
    merged = {}
    for name, some in given.items():
        if isinstance(some, str) or not isinstance(some, Sequence):
            raise TypeError(f"coarse[{name!r}] must be a sequence of class names, got {some!r}")
        unknown = [each for each in some if each not in class_names]
        if unknown:
            raise ValueError(f"coarse[{name!r}] holds {unknown}, which are not among class_names {list(class_names)}")
        merged[check_group_name(name, "coarse")] = tuple(some)
    return merged


def _ignored(
    counting: Counting, class_names: Sequence[str], merged: Mapping[str, Sequence[str]], names: Sequence[str]
) -> int | None:
    """The ignored class among the coarse ones."""
    if counting.ignored_class is None:
        return counting.ignore_index
    ignored = class_names[counting.ignored_class]
    holding = [name for name, some in merged.items() if ignored in some]
    if holding:
        raise ValueError(
            f"coarse[{holding[0]!r}] holds {ignored!r}, whose samples ignore_index leaves out; leave it out there too"
        )
    return names.index(ignored)


def _check_readable(measures: Mapping[str, CoarseMeasure], classes: int) -> None:
    """Raise where a measure takes the fine classes alone, as one with costs does."""
    trial, name = torch.ones(classes, classes, dtype=torch.int64), ""
    try:
        for name, measure in measures.items():
            one_value(name, measure.of_coarse(trial))
    except (ValueError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"{name!r} cannot be read off {classes} coarse classes ({error}); leave that measure out, or give it to a "
            "report of its own, without coarse="
        ) from error
