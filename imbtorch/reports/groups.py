"""Class groups and groups of samples, their values and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import whole_number
from imbtorch.counting.kernels import integers
from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Measure, evaluated, rescaled_rows, targets
from imbtorch.measures.named import AveragedMeasure
from imbtorch.reports.texts import LONGEST
from imbtorch.suggestions import did_you_mean, first_names

SHOTS = ("many", "medium", "few")
UNFIT = ":[]{}"  # not allowed in names, since Lightning formats the names of checkpoint files with them


def shot_groups(train_counts: Sequence[int] | Tensor, many: int = 100, few: int = 20) -> dict[str, list[int]]:
    """Group classes by their number of training samples, as is usual in long-tailed recognition.

    Args:
        train_counts: ``[K]`` numbers of training samples of each class, in the order of the classes; from labels,
            ``torch.bincount(labels, minlength=K)``.
        many: classes with more samples than this are ``"many"``.
        few: classes with fewer samples than this are ``"few"``; the others are ``"medium"``.

    Returns:
        Group -> indices of its classes, for ``ImbalanceReport(..., class_groups=...)``; groups without classes are left
        out.

    Raises:
        ValueError: for counts that are negative, not whole or not ``[K]``, and for ``few`` above ``many``.

    Source: Liu et al. (2019), Large-scale long-tailed recognition in an open world, section 5.1.

    >>> shot_groups([500, 101, 100, 20, 19, 0])
    {'many': [0, 1], 'medium': [2, 3], 'few': [4, 5]}
    """
    try:
        counts = torch.as_tensor(train_counts)
    except (TypeError, ValueError, RuntimeError):  # of a Counter, of names of classes
        counts = torch.tensor(torch.nan)
    if counts.ndim != 1 or counts.is_floating_point() or counts.is_complex() or bool((integers(counts) < 0).any()):
        raise ValueError(
            f"train_counts must hold the number of training samples of each class, [K] integers, got {train_counts!r}; "
            "torch.bincount(labels, minlength=K) counts them"
        )
    if few > many:
        raise ValueError(f"few must be at most many, got few={few} and many={many}")
    groups: dict[str, list[int]] = {name: [] for name in SHOTS}
    for index, count in enumerate(counts.tolist()):
        groups["many" if count > many else "few" if count < few else "medium"].append(index)
    return {name: classes for name, classes in groups.items() if classes}


def checked_class_groups(
    given: Mapping[str, Sequence[str | int]] | None, class_names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the indices of the classes of each group, or raise for a wrong group."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"class_groups must map names to classes, as in {{'tail': ['emu', 7]}}, got {given!r}")
    places = {name: index for index, name in enumerate(class_names)}
    groups = {check_group_name(name, "class_groups"): _indices(name, some, places) for name, some in given.items()}
    grouped = {index for classes in groups.values() for index in classes}
    of_shots = len(groups) > 1 and set(groups) <= set(SHOTS) and grouped == set(range(len(grouped)))
    if of_shots and len(grouped) < len(places):  # a warning, because somebody may leave out the last classes on purpose
        warn_caller(
            f"class_groups holds only the first {len(grouped)} of {len(places)} classes, so the others are in no "
            f"group; {_counts_for_shots(len(places))}"
        )
    return groups


def check_group_name(name: Any, argument: str) -> str:
    """Return the name of a group; raise if a checkpoint's file name cannot hold it."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"{argument} must have names that are non-empty strings, got {name!r}")
    if len(name) > LONGEST:
        raise ValueError(f"{argument} holds a name of {len(name):,} characters; names have at most {LONGEST:,}")
    unfit = [sign for sign in UNFIT if sign in name]
    if unfit:
        raise ValueError(
            f"{argument} holds the name {name!r}, but a checkpoint's file name cannot hold {' '.join(unfit)}; "
            "rename the group"
        )
    return name


def _indices(name: str, classes: Sequence[str | int], places: Mapping[str, int]) -> tuple[int, ...]:
    if isinstance(classes, str) or not isinstance(classes, Sequence) or not classes:
        raise TypeError(f"class_groups[{name!r}] must be a sequence of class names or indices, got {classes!r}")
    found = []
    for each in classes:
        index = places.get(each, -1) if isinstance(each, str) else whole_number(f"class_groups[{name!r}]", each)
        if not 0 <= index < len(places):
            remedy = f"use indices 0..{len(places) - 1} or class_names"
            if name in SHOTS and index >= len(places):
                remedy += f"; {_counts_for_shots(len(places))}"
            raise ValueError(f"class_groups[{name!r}] holds {each!r}, which is no class; {remedy}")
        found.append(index)
    if len(set(found)) < len(found):
        raise ValueError(f"class_groups[{name!r}] must not hold a class twice, got {list(classes)}")
    return tuple(found)


def _counts_for_shots(classes: int) -> str:
    """Return the remedy for shot groups of another number of classes."""
    return (
        "shot_groups takes the number of training samples of each class, not labels: pass it "
        f"torch.bincount(labels, minlength={classes})"
    )


# --- groups of samples -----------------------------------------------------------------------------------------------
FEW_GROUPS = 20  # number of groups up to which the values of each group are reported by default
LARGE = 100_000_000  # bytes of a state above which the constructor warns


def checked_per_group(
    per_group: Sequence[str] | None, names: Sequence[str], measures: Mapping[str, AveragedMeasure]
) -> tuple[str, ...]:
    """Return the keys of the measures that are reported for each group, or raise for unknown ones."""
    if isinstance(per_group, str):
        raise TypeError(f"per_group must be a sequence of names such as ({per_group!r},), got a string")
    if per_group is None:
        return tuple(measures) if len(names) <= FEW_GROUPS else ()
    unknown = [key for key in per_group if key not in measures]
    if unknown:
        meant = did_you_mean(unknown[0], measures)
        raise ValueError(f"per_group holds {unknown}, which are not among measures: {', '.join(measures)}{meant}")
    return tuple(dict.fromkeys(per_group))


def checked_group_names(
    groups: Sequence[str] | Mapping[str, Sequence[str]] | int | None,
) -> tuple[tuple[str, ...] | None, str]:
    """Return the names of the groups, and what groups the samples; a number gives ``group 0``, ``group 1``, ...

    Raises:
        ValueError: for no name, equal names, and names that a checkpoint's file name cannot hold.
        TypeError: for anything else.
    """
    if groups is None:
        return None, ""
    if isinstance(groups, Mapping) and len(groups) == 1:
        ((by, given),) = groups.items()
        return checked_group_names(given)[0], check_group_name(by, "groups")
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
    return tuple(names), ""


def report_memory(counting: Counting) -> None:
    """Warn if the counts of all groups and buckets of clusters take much memory."""
    taken = 8 * counting.cells
    if taken > LARGE and (counting.groups is not None or counting.clusters):
        layout = "; clusters=False takes less" if counting.clusters else ""
        if not layout and counting.task == "multiclass" and counting.layout == "matrix":
            layout = "; state='margins' takes less"
        kept = [f"{counting.groups} groups"] * (counting.groups is not None)
        kept += [f"{counting.shape.buckets} buckets of clusters"] * counting.clusters
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


def undefined_groups(counting: Counting, counts: Counts | None, measure: Measure) -> Tensor:
    """Return a mask of the groups ``[G]`` whose value depends on the recall of a class of which they have no target.

    Only values of two classes are left out: means over many classes are those over the classes that a group has.
    """
    assert counts is not None
    actual = targets(counts)
    undefined = torch.zeros(len(actual), dtype=torch.bool)
    for lost in (0, 1) if counting.task == "binary" and not bool(actual.all()) else ():
        tried = torch.tensor([[[8.0, 2.0], [3.0, 7.0]]] * 2)
        tried[:, lost] = 1e-9 * torch.eye(2)  # one sample of vanishing weight, predicted as either class
        right, wrong = (evaluated(measure, each) for each in tried)
        undefined |= (actual[:, lost] == 0) & ((right - wrong).abs() > 1e-3)
    return undefined


def worst(values: Tensor, comparable: Tensor, higher_is_better: bool) -> Tensor:
    """Return the worst of the values ``[G]`` of comparable groups; nan if one of them is nan or there are none."""
    last = torch.inf if higher_is_better else -torch.inf
    ranked = torch.where(comparable, values, last)
    found = ranked.amin() if higher_is_better else ranked.amax()
    return torch.where(comparable.any(), found, torch.nan)


def group_problems(counting: Counting, counts: Counts, names: Sequence[str]) -> dict[str, str]:
    """Describe the groups without samples or without targets of some class: kind -> text."""
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
            f"{listed(lacking)} had no target of a class that other groups have; "
            f"{'values that need it are nan, and ' * (counting.task == 'binary')}they take no part in the worst value"
            f"{'' if bool(comparable.any()) else ', which is nan because no group has all classes'}"
        )
    return texts


# --- too few samples for a prevalence --------------------------------------------------------------------------------
FRAGILE = 0.1  # change by one error from which the first decimal of a value is chance


def few_samples_text(
    read: Callable[[Tensor], Tensor],
    names: Sequence[str],
    counts: Tensor,
    shares: Tensor,
    classes: Iterable[int],
    samples_text: Callable[[int, int], str],
) -> str:
    """Return a warning of the first class with too few samples for the prevalence; empty if there is none.

    Args:
        read: function of counts that returns values ``[V]``.
        names: names of the values.
        counts: float64 ``[..., K, K]``.
        shares: class shares of the population, ``[K]`` or ``[..., K]``.
        classes: classes to check.
        samples_text: function of a class and the value that changes most that tells the number of samples.
    """
    rates = rescaled_rows(counts, shares)
    plain, logged = read(counts), read(rates)
    for index in classes:
        moved = with_an_error(counts, rates, index)
        changes = (read(rescaled_rows(moved, shares)) - logged).abs() - (read(moved) - plain).abs()
        excess = changes.nan_to_num(nan=-1.0)
        fragile = [name for name, change in zip(names, excess.tolist(), strict=True) if change > FRAGILE]
        if fragile:
            most = int(excess.argmax())
            return (
                f"{samples_text(index, most)} are too few for this prevalence; one error more would change "
                f"{first_names(fragile)}, by up to {excess[most]:.2f} more than without prevalence; count more of "
                "them, or compare intervals instead of values"
            )
    return ""


def with_an_error(counts: Tensor, rates: Tensor, index: int) -> Tensor:
    """Move a right prediction of a class, if there is one, to the other class with the lowest positive share.

    Args:
        counts: float64 ``[..., K, K]``.
        rates: the counts at a prevalence.
        index: true class.

    >>> counts = torch.tensor([[5.0, 0.0], [1.0, 2.0]])
    >>> with_an_error(counts, counts, 0)
    tensor([[4., 1.],
            [1., 2.]])
    """
    predicted = rates.sum(-2)
    predicted = torch.where(predicted > 0, predicted, 2.0)  # after all that are predicted
    predicted[..., index] = 3.0
    moved, one = counts.clone(), (counts[..., index, index] > 0).to(counts)
    moved[..., index, index] -= one
    moved[..., index, :].scatter_add_(-1, predicted.argmin(-1, keepdim=True), one.unsqueeze(-1))
    return moved
