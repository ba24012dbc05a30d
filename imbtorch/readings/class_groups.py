"""Class groups, such as head and tail, foreground and background, or many, medium and few shots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import whole_number
from imbtorch.counting.kernels import integers

__all__ = ["check_group_name", "checked_class_groups", "shot_groups"]

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
    """Return the indices of the classes of each group.

    Raises:
        ValueError: for unknown classes, classes that occur twice in a group, and names that a checkpoint's file name
            cannot hold.
        TypeError: for anything but a mapping of names to sequences of classes that are not empty.
    """
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
