"""Measures of each class as a report takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, check_choice
from imbtorch.measures.traits import by_key, traits_of
from imbtorch.metrics.averaging import AveragedMeasure, allowed_averages
from imbtorch.metrics.resolving import Measured, resolved
from imbtorch.tasks import Counting

__all__ = ["PER_CLASS", "class_values", "per_class_measures"]

TRAITS = {name: traits for name, function in by_key().items() if (traits := traits_of(function)) is not None}
PER_CLASS = tuple(name for name, traits in TRAITS.items() if "none" in traits.averages)


def per_class_measures(given: Sequence[str] | Mapping[str, Measured], counting: Counting) -> dict[str, AveragedMeasure]:
    """Resolve the measures of each class, by the names that they are reported under.

    Args:
        given: names among :data:`PER_CLASS`, or of a measure of two classes, which is then read of each class against
            the rest (dominance: how much better the class is recognised than the others); or name -> such a name,
            metric, or function of the counts.
        counting: what is counted.

    Raises:
        ValueError: for unknown names, a name that occurs twice, and measures that have no value for each class.
        TypeError: for a string, and what is no measure.
    """
    if isinstance(given, str):
        raise TypeError(f"per_class must be a sequence of names such as ({given!r},), got a string")
    if not isinstance(given, Mapping):
        fit = (name for name, traits in TRAITS.items() if "none" in allowed_averages(traits, counting))
        allowed = tuple(dict.fromkeys((*PER_CLASS, *fit)))  # in an error the usual ones come first
        for each in given:
            check_choice("per_class", each, allowed)
        if len(set(given)) < len(given):
            raise ValueError(f"per_class must not name a measure twice, got {list(given)}")
        given = {name: name for name in given}
    return {name: _of_one(name, measured, counting) for name, measured in given.items()}


def of_name(name: str, counting: Counting) -> AveragedMeasure:
    """Return a measure of :data:`PER_CLASS`, with one value for each class or label."""
    check_choice("key", name, PER_CLASS)
    return replace(resolved(name, name, counting), average="none")


def _of_one(name: object, measured: Measured, counting: Counting) -> AveragedMeasure:
    if not isinstance(name, str) or not name:
        raise TypeError(f"per_class must map names to measures, got the name {name!r}")
    measure = resolved(name, measured, counting)
    own = not measure.batched  # a function of the user's
    if not own and "none" not in allowed_averages(measure.traits, counting):
        raise ValueError(
            f"per_class[{name!r}] has one value of all classes in task={counting.task!r} and none of each; it belongs "
            f"among measures. Measures of each class are {', '.join(PER_CLASS)}"
        )
    return replace(measure, average="none")


def class_values(name: str, measure: AveragedMeasure, counts: Counts, marginal: Margins) -> Tensor:
    """One value for each class ``[..., K]`` or label ``[..., L]``.

    Raises:
        ValueError: where a function of the user's own returns something else.
    """
    values = measure.value_of(counts, marginal)
    shape = marginal.actual.shape[:-1] if measure.counting.task == "multilabel" else marginal.actual.shape
    if not isinstance(values, Tensor) or values.shape != shape:
        got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"per_class[{name!r}] must return one value for each class, {list(shape)} for counts "
            f"{list(torch.Size((*shape, shape[-1])))}, got {got}"
        )
    return values
