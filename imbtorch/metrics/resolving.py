"""What a user may give as a measure, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torchmetrics import Metric

from imbtorch.counting import Counting
from imbtorch.counts import check_choice
from imbtorch.metrics.averaging import AveragedMeasure, Traits
from imbtorch.metrics.catalogue import BY_NAME, METRICS
from imbtorch.metrics.confusion_matrix import ConfusionMatrixMetric

__all__ = ["Measured", "as_given", "metric_class", "named_measures", "resolved"]

Measured: TypeAlias = (
    type[ConfusionMatrixMetric]
    | ConfusionMatrixMetric
    | Callable[..., Any]
    | tuple[Callable[..., Tensor], bool | None]
    | str
)


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
        check_choice("measures", name, tuple(BY_NAME))
    if len(set(measures)) < len(measures):
        raise ValueError(f"measures must not name a measure twice, got {list(measures)}")
    return {name: BY_NAME[name] for name in measures}


def resolved(name: str, measured: Measured, counting: Counting, batched: bool = False) -> AveragedMeasure:
    """How a measure is read off the counts of a task, whichever way it was given.

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
    if isinstance(measured, ConfusionMatrixMetric):
        return _of_instance(name, measured, counting)
    metric, keywords = metric_class(measured)
    if metric is not None:
        found = _of_instance(name, _built(name, metric, keywords, counting), counting)
        return found if direction is None else found.towards(direction)
    if not callable(measured) or isinstance(measured, (type, Metric)):
        raise TypeError(
            f"measures[{name!r}] must be a metric class of imbtorch, its name, an instance or "
            f"functools.partial of one, a function of the counts, or a pair (function, higher_is_better), got "
            f"{measured!r}"
        )
    return AveragedMeasure(Traits(name, measured, higher_is_better=direction, batched=batched), counting)


def as_given(name: str, measured: Measured) -> tuple[Any, bool | None]:
    """Return a measure without its name, and the direction that came with it; None without one."""
    if isinstance(measured, str):
        check_choice(name, measured, tuple(BY_NAME))
        return BY_NAME[measured], None
    return measured if _is_pair(measured) else (measured, None)


def metric_class(measured: object) -> tuple[type[ConfusionMatrixMetric] | None, dict[str, Any]]:
    """Metric class that is given, alone, as a partial, or by its function, and its arguments; None for another one."""
    function, keywords = measured, dict[str, Any]()
    if isinstance(measured, partial) and not measured.args:
        function, keywords = measured.func, dict(measured.keywords)
    if callable(function) and isinstance(function, Hashable):
        function = METRICS.get(function, function)
    if isinstance(function, type) and issubclass(function, ConfusionMatrixMetric):
        return function, keywords
    return None, keywords


def _is_pair(measured: Measured) -> TypeGuard[tuple[Callable[..., Tensor], bool | None]]:
    """Whether a function comes with its direction."""
    if not isinstance(measured, tuple) or len(measured) != 2 or isinstance(measured[0], (type, Metric)):
        return False
    return measured[1] in (True, False, None)


def _built(
    name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any], counting: Counting
) -> ConfusionMatrixMetric:
    """Make a metric, without memory for its counts."""
    _check_arguments(name, metric, keywords)
    same: dict[str, Any] = {name: getattr(counting, name) for name in ("threshold", "logits", "ignore_index")}
    if counting.task != "binary":
        same["num_labels" if counting.task == "multilabel" else "num_classes"] = counting.size
    with torch.device("meta"):
        return metric(counting.task, **{**same, **keywords})


def _check_arguments(name: str, metric: type[ConfusionMatrixMetric], keywords: Mapping[str, Any]) -> None:
    """Raise where a metric lacks an argument without which it cannot be made."""
    parameters = signature(metric).parameters.values()
    missing = [
        each.name
        for each in parameters
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty and each.name not in keywords
    ]
    if missing:
        raise TypeError(
            f"{metric.__name__} takes arguments of its own; give {name!r} functools.partial({metric.__name__}, "
            f"{missing[0]}=...)"
        )


MEANING = ("task", "size", "threshold", "logits", "ignore_index", "soft")  # settings that say what counts mean
STATE_ALONE = ("layout", "weighted", "groups")  # what says how counts are kept, not what they mean


def _of_instance(name: str, metric: ConfusionMatrixMetric, counting: Counting) -> AveragedMeasure:
    """Traits and arguments of a metric that counts alike; its state plays no part."""
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
    if counting.layout == "margins" and metric._measure.needs_matrix:
        raise ValueError(f"{name!r} needs the whole matrix, which state='margins' does not keep")
    return replace(metric._measure, counting=counting)
