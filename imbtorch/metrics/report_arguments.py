"""Arguments of a report that need one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from imbtorch.metrics.base import UNSURE
from imbtorch.tasks import Counting, Layout, Task

__all__ = ["check_together", "checked_prevalence", "collision", "sized"]


def checked_prevalence(
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


def check_together(
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


def sized(
    task: Task | None, num_classes: int | None, num_labels: int | None, names: Sequence[str] | None
) -> tuple[int | None, int | None]:
    """Number of classes and of labels, where names say what was not given."""
    named = None if names is None else len(names)
    if task == "multilabel":
        return num_classes, named if num_labels is None else num_labels
    return named if num_classes is None else num_classes, num_labels


def collision(name: str, cause: str) -> str:
    """What is wrong where an argument adds a name that is reported already."""
    if "groups" in cause or cause == "superclasses":
        what = "superclass" if cause == "superclasses" else "group"
        return f"{name!r} is reported already, and {cause} adds it once more; give that {what} another name"
    return f"measures already holds {name!r}, which {cause} adds; rename it there"
