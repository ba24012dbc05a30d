"""Measures as a user gives them, and as they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torchmetrics import Metric

from imbtorch.counts import check_choice
from imbtorch.measures.traits import Traits, by_key, traits_of
from imbtorch.metrics.averaging import AveragedMeasure, allowed_averages
from imbtorch.metrics.catalogue import BY_KEY
from imbtorch.metrics.confusion_matrix import METRICS, ConfusionMatrixMetric
from imbtorch.tasks import Counting

__all__ = [
    "PER_CLASS",
    "Measured",
    "as_given",
    "metric_class",
    "named_measures",
    "of_name",
    "per_class_measures",
    "resolved",
]

Measured: TypeAlias = (
    type[ConfusionMatrixMetric]
    | ConfusionMatrixMetric
    | Callable[..., Any]
    | tuple[Callable[..., Tensor], bool | None]
    | str
)


TRAITS = {name: traits for name, function in by_key().items() if (traits := traits_of(function)) is not None}
PER_CLASS = tuple(name for name, traits in TRAITS.items() if "none" in traits.averages)


def named_measures(measures: Mapping[str, Measured] | Sequence[str]) -> Mapping[str, Measured]:
    """Name -> measure, of a mapping or of names of the catalogue.

    Raises:
        ValueError: for unknown names and one that occurs twice.
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
            f"ImbalanceAccuracy}}, got {measures!r}"
        )
    for name in measures:
        check_choice("measures", name, tuple(BY_KEY))
    if len(set(measures)) < len(measures):
        raise ValueError(f"measures must not name a measure twice, got {list(measures)}")
    return {name: BY_KEY[name] for name in measures}


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


def resolved(name: str, measured: Measured, counting: Counting, batched: bool = False) -> AveragedMeasure:
    """Resolve a measure, whichever way it was given, to what reads it off the counts of a task.

    Functions of this package are read like their metrics: in the binary task for the positive class, if they have one.

    Args:
        name: what messages call it.
        measured: name in the catalogue; metric class, instance, or ``functools.partial`` of a class; function of the
            counts or ``partial`` of one; or ``(function, higher_is_better)``.
        counting: what is counted.
        batched: whether a user's own function takes leading dimensions.

    Raises:
        ValueError: for a metric whose settings do not fit, and an unknown name.
        TypeError: for what is no measure.
    """
    measured, direction = as_given(name, measured)
    metric, keywords = metric_class(measured)
    if isinstance(measured, ConfusionMatrixMetric):
        found = _of_instance(name, measured, counting)
    elif metric is not None:
        found = _of_class(name, metric, keywords, counting)
    elif callable(measured) and not isinstance(measured, (type, Metric)):
        return AveragedMeasure(name, measured, Traits(higher_is_better=direction), counting, batched=batched)
    else:
        raise TypeError(
            f"measures[{name!r}] must be a metric class of imbtorch, its name, an instance or "
            f"functools.partial of one, a function of the counts, or a pair (function, higher_is_better), got "
            f"{measured!r}"
        )
    if counting.layout == "margins" and found.needs_matrix:
        raise ValueError(f"{name!r} needs the whole matrix, which state='margins' does not keep")
    return found if direction is None else found.towards(direction)


def as_given(name: str, measured: Measured) -> tuple[Any, bool | None]:
    """Return a measure without its name, and the direction that came with it; None without one."""
    if isinstance(measured, str):
        check_choice(name, measured, tuple(BY_KEY))
        return BY_KEY[measured], None
    return measured if _is_pair(measured) else (measured, None)


def metric_class(measured: object) -> tuple[type[ConfusionMatrixMetric] | None, dict[str, Any]]:
    """Return the class that is given, alone, as a partial, or by its function, and its arguments; None for no class."""
    given: Any = measured
    keywords: dict[str, Any] = {}
    if isinstance(measured, partial) and not measured.args:
        given, keywords = measured.func, dict(measured.keywords)
    if getattr(given, "__hash__", None) is not None:
        given = METRICS.get(given, given)
    if isinstance(given, type) and issubclass(given, ConfusionMatrixMetric):
        return given, keywords
    return None, keywords


def _is_pair(measured: Measured) -> TypeGuard[tuple[Callable[..., Tensor], bool | None]]:
    """Return whether a function comes with its direction."""
    if not isinstance(measured, tuple) or len(measured) != 2 or isinstance(measured[0], (type, Metric)):
        return False
    return measured[1] in (True, False, None)


def _of_class(
    name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any], counting: Counting
) -> AveragedMeasure:
    """Read a measure as metrics of a class do; only for arguments, and for a class of one's own, is a metric made."""
    missing = [
        each.name
        for each in signature(metric).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty and each.name not in keywords
    ]
    if missing:
        raise TypeError(
            f"{metric.__name__} takes arguments of its own; give {name!r} functools.partial({metric.__name__}, "
            f"{missing[0]}=...)"
        )
    if not keywords and metric in METRICS.values():
        return metric._measure_in(counting)
    same: dict[str, Any] = {name: getattr(counting, name) for name in ("threshold", "logits", "ignore_index")}
    if counting.task != "binary":
        same["num_labels" if counting.task == "multilabel" else "num_classes"] = counting.size
    with torch.device("meta"):  # without memory for its counts
        made = metric(counting.task, **{**same, **keywords})
    return _of_instance(name, made, counting)


MEANING = ("task", "num_classes", "num_labels", "threshold", "logits", "ignore_index", "soft")  # of counts
STATE_ALONE = ("layout", "weighted", "groups")  # what says how counts are kept, not what they mean


def _of_instance(name: str, metric: ConfusionMatrixMetric, counting: Counting) -> AveragedMeasure:
    """Read a measure as a metric does that counts alike; its state plays no part."""
    counted = replace(metric._counting, **{name: getattr(counting, name) for name in STATE_ALONE})
    counted = replace(counted, soft=counted.soft or counting.soft)  # a report may be soft where a metric is not
    if counted != counting:
        differing = [each for each in MEANING if getattr(counted, each) != getattr(counting, each)]
        own, others = (
            ", ".join(f"{each}={getattr(some, each)!r}" for each in differing) for some in (counted, counting)
        )
        raise ValueError(
            f"{name!r} was made to count otherwise: {own}, where it is to be read off counts of {others}; give both "
            f"the same, or a class ({type(metric).__name__}, or functools.partial of it) without {', '.join(differing)}"
        )
    return replace(metric._measure, counting=counting)
