"""Resolution of measures, in every form in which users pass them, to functions of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from types import FunctionType
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torchmetrics import Metric

from imbtorch.counts import check_choice
from imbtorch.measures.traits import Traits, by_key, declared, direction_of, traits_of
from imbtorch.metrics.averaging import AveragedMeasure, allowed_averages
from imbtorch.metrics.catalogue import BY_KEY
from imbtorch.metrics.confusion_matrix import METRICS, ConfusionMatrix, ConfusionMatrixMetric
from imbtorch.tasks import Counting

__all__ = [
    "PER_CLASS",
    "Measured",
    "as_given",
    "directed",
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
            f"ImbalanceAccuracy}}, got {measures!r}"
        )
    for name in measures:
        check_choice("measures", name, tuple(BY_KEY))
    if len(set(measures)) < len(measures):
        raise ValueError(f"measures must not name a measure twice, got {list(measures)}")
    return {name: BY_KEY[name] for name in measures}


def per_class_measures(given: Sequence[str] | Mapping[str, Measured], counting: Counting) -> dict[str, AveragedMeasure]:
    """Resolve the measures of each class; return key -> measure.

    Args:
        given: names in :data:`PER_CLASS`, or of measures of two classes, which are then computed for each class against
            the rest (dominance: the recall of the class minus that of the rest); or key -> such a name, a metric, or a
            function of the counts.
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
    return replace(resolved(name, name, counting), average="none")


def _of_one(name: object, measured: Measured, counting: Counting) -> AveragedMeasure:
    if not isinstance(name, str) or not name:
        raise TypeError(f"per_class must map names to measures, got the name {name!r}")
    measure = resolved(name, measured, counting)
    own = not measure.batched  # a function of the user
    if not own and "none" not in allowed_averages(measure.traits, counting):
        raise ValueError(
            f"per_class[{name!r}] has one value for all classes in task={counting.task!r}, not one for each; name it "
            f"in measures instead. Measures with a value for each class are {', '.join(PER_CLASS)}"
        )
    return replace(measure, average="none")


def resolved(name: str, measured: Measured, counting: Counting, batched: bool = False) -> AveragedMeasure:
    """Resolve a measure to an object that computes it from the counts of a task.

    Functions of this package are averaged like their metrics: in the binary task they are computed for the positive
    class, if they have one.

    Args:
        name: name of the measure in error messages.
        measured: name in the catalogue; metric class, instance, or ``functools.partial`` of a class; function of the
            counts or ``partial`` of one; or ``(function, higher_is_better)``.
        counting: way in which samples are counted.
        batched: whether a function of the user takes leading dimensions.

    Raises:
        ValueError: for a metric whose settings do not fit, and an unknown name.
        TypeError: for something that is not a measure.
    """
    measured, direction = as_given(name, measured)
    metric, keywords = metric_class(measured)
    if isinstance(measured, ConfusionMatrixMetric):
        found = _of_instance(name, measured, counting)
    elif metric is not None:
        found = _of_class(name, metric, keywords, counting)
    elif callable(measured) and not isinstance(measured, (type, Metric)):
        if direction is None:
            direction = declared(measured, "higher_is_better")
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


def directed(
    found: AveragedMeasure, bare: Any, direction: bool | None, higher_is_better: bool | None, what: str
) -> AveragedMeasure:
    """Return a measure with a direction.

    Args:
        found: the measure as :func:`resolved` returns it.
        bare: the measure as :func:`as_given` returns it.
        direction: direction that a pair gave, or None.
        higher_is_better: argument of that name, or None.
        what: name of what is chosen by the measure, for errors.

    Raises:
        ValueError: for a measure without a direction, and for one that is given twice.
    """
    if direction is not None and higher_is_better is not None:
        raise ValueError("the direction of a measure is given twice, in a pair and as higher_is_better; give it once")
    direction = higher_is_better if direction is None else direction
    if direction is not None or (metric_class(bare)[0] is None and not isinstance(bare, ConfusionMatrixMetric)):
        found = found.towards(direction_of(bare, direction))
    if found.higher_is_better is None:
        raise ValueError(
            f"measure {found.name} has no direction, so no {what} is best; pass a function of which higher is "
            "better, such as lambda counts: -imbtorch.dominance(counts).abs(), or (function, True)"
        )
    return found


def as_given(name: str, measured: Measured) -> tuple[Any, bool | None]:
    """Look up a measure given by name, and split a pair; return measure and direction, None without one."""
    if isinstance(measured, str):
        check_choice(name, measured, tuple(BY_KEY))
        return BY_KEY[measured], None
    return measured if _is_pair(measured) else (measured, None)


def metric_class(measured: object) -> tuple[type[ConfusionMatrixMetric] | None, dict[str, Any]]:
    """Return the metric class of a class, partial or function of the catalogue, with its arguments.

    The class is None for anything else.
    """
    given: Any = measured
    keywords: dict[str, Any] = {}
    if isinstance(measured, partial) and not measured.args:
        given, keywords = measured.func, dict(measured.keywords)
    if isinstance(given, FunctionType):
        given = METRICS.get(given, given)
    if isinstance(given, type) and issubclass(given, ConfusionMatrixMetric):
        return given, keywords
    return None, keywords


def _is_pair(measured: Measured) -> TypeGuard[tuple[Callable[..., Tensor], bool | None]]:
    """Return whether a measure is given as ``(function, higher_is_better)``."""
    if not isinstance(measured, tuple) or len(measured) != 2 or isinstance(measured[0], (type, Metric)):
        return False
    return measured[1] in (True, False, None)


def _of_class(
    name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any], counting: Counting
) -> AveragedMeasure:
    """Resolve a metric class; an instance is made only if there are arguments or the class is not in the catalogue."""
    missing = [
        each.name
        for each in signature(metric).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty and each.name not in keywords
    ]
    if missing:
        raise TypeError(
            f"{metric.__name__} requires {missing[0]}; pass functools.partial({metric.__name__}, {missing[0]}=...) "
            f"for {name!r}"
        )
    if not keywords and metric in METRICS.values():
        return metric._measure_in(counting)
    same: dict[str, Any] = {name: getattr(counting, name) for name in ("threshold", "logits", "ignore_index")}
    if counting.task != "binary":
        same["num_labels" if counting.task == "multilabel" else "num_classes"] = counting.size
    with torch.device("meta"):  # without memory for its counts
        made = metric(counting.task, **{**same, **keywords})
    return _of_instance(name, made, counting)


# settings that change counts
MEANING = ("task", "num_classes", "num_labels", "threshold", "logits", "ignore_index")
# settings of the state, which do not change the meaning of counts
STATE_ALONE = ("layout", "weighted", "groups", "clusters")


def _of_instance(name: str, metric: ConfusionMatrixMetric, counting: Counting) -> AveragedMeasure:
    """Resolve a metric instance, whose settings must equal those of the counts; its state is ignored."""
    if type(metric).evaluate not in (ConfusionMatrixMetric.evaluate, ConfusionMatrix.evaluate):
        raise TypeError(
            f"{name!r} was given as {type(metric).__name__}, whose own evaluate would not be called; define "
            "measure = staticmethod(function) in the class instead, or pass the function"
        )
    counted = replace(metric._counting, **{name: getattr(counting, name) for name in STATE_ALONE})
    if counted != counting:
        differing = [each for each in MEANING if getattr(counted, each) != getattr(counting, each)]
        own, others = (
            ", ".join(f"{each}={getattr(some, each)!r}" for each in differing) for some in (counted, counting)
        )
        raise ValueError(
            f"{name!r} was made with {own}, but the counts have {others}; use the same settings for both, or pass the "
            f"class ({type(metric).__name__}, or functools.partial of it) without {', '.join(differing)}"
        )
    return replace(metric._measure, counting=counting)
