"""Resolution of measures, given by users as names or functions, to functions of the counts of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Margins, Measure, check_choice
from imbtorch.measures.traits import (
    Traits,
    arguments_of,
    by_any_name,
    by_key,
    declared,
    defaults_of,
    direction_of,
    measure_function,
    traits_of,
)
from imbtorch.readings.averaging import AveragedMeasure, allowed_averages, chosen_average

__all__ = [
    "PER_CLASS",
    "Measured",
    "directed",
    "measure_of_counts",
    "measure_text",
    "measures_of_counts",
    "named_measures",
    "of_name",
    "per_class_measures",
    "resolved",
]

Measured: TypeAlias = Callable[..., Any] | str
"""Measure as users give it: a name of the catalogue, a function of counts, or a ``functools.partial`` of one."""


TRAITS = {name: traits for name, function in by_key().items() if (traits := traits_of(function)) is not None}
PER_CLASS = tuple(name for name, traits in TRAITS.items() if "none" in traits.averages)


def named_measures(measures: Mapping[str, Measured] | Sequence[str]) -> Mapping[str, Measured]:
    """Return name -> measure, given such a mapping or names of the catalogue.

    Raises:
        ValueError: for an unknown name, and one that occurs twice.
        TypeError: for anything else.
    """
    if isinstance(measures, Mapping):
        for name in measures:
            if not isinstance(name, str) or not name:
                raise TypeError(f"measures must map names to measures, got the name {name!r}")
        return measures
    if isinstance(measures, str) or not isinstance(measures, Sequence) or not all(isinstance(m, str) for m in measures):
        raise TypeError(
            "measures must be names such as ['iam', 'mcc'], or map names to measures, as in {'iam': "
            f"imbalance_accuracy}}, got {measures!r}"
        )
    for name in measures:
        check_choice("measures", name, tuple(by_any_name()))
    if len(set(measures)) < len(measures):
        raise ValueError(f"measures must not name a measure twice, got {list(measures)}")
    return {name: name for name in measures}


def per_class_measures(given: Sequence[str] | Mapping[str, Measured], counting: Counting) -> dict[str, AveragedMeasure]:
    """Resolve the measures of each class; return key -> measure.

    Args:
        given: names in :data:`PER_CLASS`, or of measures of two classes, which are then computed for each class against
            the rest (dominance: the recall of the class minus that of the rest); or key -> such a name or a function of
            the counts.
        counting: way in which samples are counted.

    Raises:
        ValueError: for an unknown name, a name that occurs twice, and a measure without values of single classes.
        TypeError: for a string, and for something that is not a measure.
    """
    if isinstance(given, str):
        raise TypeError(f"per_class must be a sequence of names such as ({given!r},), got a string")
    if not isinstance(given, Mapping):
        fit = (name for name, traits in TRAITS.items() if "none" in allowed_averages(traits, counting))
        allowed = tuple(dict.fromkeys((*PER_CLASS, *fit)))  # error messages list the common ones first
        for each in given:
            check_choice("per_class", each, allowed)
        if len(set(given)) < len(given):
            raise ValueError(f"per_class must not name a measure twice, got {list(given)}")
        given = {name: name for name in given}
    return {name: _of_one(name, measured, counting) for name, measured in given.items()}


def of_name(name: str, counting: Counting) -> AveragedMeasure:
    """Return a measure of :data:`PER_CLASS`, with one value for each class or label."""
    check_choice("key", name, PER_CLASS)
    return replace(resolved("key", name, counting), average="none")


def _of_one(name: object, measured: Measured, counting: Counting) -> AveragedMeasure:
    if not isinstance(name, str) or not name:
        raise TypeError(f"per_class must map names to measures, got the name {name!r}")
    measure = resolved(name, measured, counting, argument=f"per_class[{name!r}]")
    if measure.traits.key and "none" not in allowed_averages(measure.traits, counting):
        raise ValueError(
            f"per_class[{name!r}] has one value for all classes in task={counting.task!r}, not one for each; name it "
            f"in measures instead. Measures with a value for each class are {', '.join(PER_CLASS)}"
        )
    return replace(measure, average="none")


def resolved(
    name: str, measured: Measured, counting: Counting, batched: bool = False, argument: str = ""
) -> AveragedMeasure:
    """Resolve a measure to an object that computes it from the counts of a task.

    A name and a function of this package mean the same: in the binary task they are computed for the positive class, if
    they have one, and otherwise averaged over classes. ``functools.partial(recall, average="macro")`` chooses another
    average. A function from elsewhere is called as it is.

    Args:
        name: name of the measure, for errors.
        measured: name in the catalogue, function of the counts, or ``functools.partial`` of one.
        counting: way in which samples are counted.
        batched: whether a function from elsewhere takes leading dimensions.
        argument: text that errors name in place of the name.

    Raises:
        ValueError: for a measure whose arguments do not fit, and an unknown name.
        TypeError: for something that is not a measure, and for a measure that lacks an argument.
    """
    given = measure_function(measured, argument or name, given=("threshold",))
    known, direction = traits_of(given), declared(given, "higher_is_better")
    if known is None:
        return AveragedMeasure(name, given, Traits(higher_is_better=direction), counting, batched=batched)
    traits, (function, arguments) = replace(known, higher_is_better=direction), arguments_of(given)
    if counting.layout == "margins" and traits.needs_matrix:
        raise ValueError(f"{name!r} needs the whole matrix, which state='margins' does not keep")
    called = measured if isinstance(measured, str) else str(function.__name__)
    average = chosen_average(called, traits, counting, arguments.pop("average", "auto"))
    defaults = defaults_of(function)
    if traits.reads_threshold:
        defaults["threshold"] = counting.threshold
        traits = replace(traits, reads_threshold="threshold" not in arguments)
    found = AveragedMeasure(called, function, traits, counting, average, {**defaults, **arguments})
    if arguments:
        found(_ones(found))  # raises for arguments that do not fit
    return found


def _ones(measure: AveragedMeasure) -> Counts:
    """Return counts on which to try a measure: one sample of each class."""
    counting = measure.counting
    shape = (counting.classes,) if counting.num_labels is None else (counting.num_labels, 2)
    ones = torch.ones(shape, dtype=torch.float64, device="cpu")
    return torch.diag_embed(ones) if measure.needs_matrix else Margins(ones, ones, ones)


def directed(found: AveragedMeasure, higher_is_better: bool | None = None) -> AveragedMeasure:
    """Return a measure with a direction: as given, else its own; higher is better for functions that have none.

    Raises:
        ValueError: for a measure that is known to have no direction, unless one is given.
        TypeError: for a direction that is neither True, False nor None.
    """
    return found.towards(direction_of(found if found.traits.key else found.function, higher_is_better))


# --- counts without a task ------------------------------------------------------------------------------------------


def measure_of_counts(measured: Measured, classes: int, labels: int | None = None) -> Measure:
    """Return a measure as a report of these counts computes it; functions from elsewhere are returned as they are.

    Args:
        measured: name in the catalogue, function of the counts, or ``functools.partial`` of one.
        classes: number of classes. Matrices of two classes are those of the binary task, others of the multiclass task.
        labels: number of labels of which one value is made, for the multilabel task; None for single matrices.

    Raises:
        ValueError: for an unknown name, and a measure whose arguments do not fit.
        TypeError: for something that is not a measure, and for a measure that lacks an argument.
    """
    function = measure_function(measured)
    if traits_of(function) is None or classes < 2:
        return function
    if labels is not None:
        counting = Counting.of("multilabel", num_labels=labels)
    else:
        counting = Counting.of("binary") if classes == 2 else Counting.of("multiclass", classes)
    return resolved("measure", measured, counting, batched=True)


def measures_of_counts(
    measure: Measured | Mapping[str, Measured], counts: Tensor, event_dims: int
) -> dict[str, Measure]:
    """Return name -> measure as :func:`measure_of_counts`; the name of a single measure is empty."""
    given = measure if isinstance(measure, Mapping) else {"": measure}
    labels = counts.shape[-3] if event_dims == 3 and counts.shape[-1] == 2 else None
    return {name: measure_of_counts(each, counts.shape[-1], labels) for name, each in given.items()}


def measure_text(measure: object) -> str:
    """Return the name of a measure with its average, such as ``recall (binary)``; empty for functions without a name.

    >>> measure_text(measure_of_counts("recall", 2))
    'recall (binary)'
    """
    if isinstance(measure, AveragedMeasure):
        return str(measure)
    name = getattr(measure, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""
