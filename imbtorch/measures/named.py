"""Measures as users name them, computed from the counts of a task: averages, resolution of names and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import (
    Counts,
    Margins,
    Measure,
    check_choice,
    double,
    mapped,
    margins,
    one_vs_rest,
    rescaled,
    restore,
)
from imbtorch.measures import class_mean
from imbtorch.measures.shared import zero_if_absent
from imbtorch.measures.traits import (
    Traits,
    arguments_of,
    by_any_name,
    by_key,
    declared,
    defaults_of,
    direction_of,
    measure_function,
    short_name,
    traits_of,
)


@dataclass(frozen=True, eq=False)
class AveragedMeasure:
    """Measure of the counts of a task, with its average and arguments; measures with equal settings are equal.

    Attributes:
        name: name of the measure in messages.
        function: function of counts.
        traits: traits of the function, given the arguments.
        counting: task and options by which samples were counted.
        average: average over classes or labels; :func:`chosen_average` resolves ``"auto"``.
        arguments: arguments of the function beside the counts.
        of_class: index of the class or label to evaluate alone; None for the average.
        over_classes: indices of the classes or labels to average over; empty for all.
        batched: True if the function takes leading dimensions; a user's own may not.
    """

    name: str
    function: Callable[..., Tensor]
    traits: Traits
    counting: Counting
    average: str = "macro"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    of_class: int | None = None
    over_classes: tuple[int, ...] = ()
    batched: bool = True

    def __str__(self) -> str:
        """Return the name with arguments and average, such as ``recall (binary)`` or ``f1 (macro over 14 labels)``."""
        own = defaults_of(self.function) if self.traits.key else {}
        given = [f"{name}={value}" for name, value in self.arguments.items() if _is_new(value, own.get(name))]
        average, number = self.average, self.counting.size
        if self.counting.task == "multilabel":
            average = f"each of {number} labels" if average == "none" else f"{average} over {number} labels"
        details = given + [average] * (self.is_averaged and not self.over_classes)
        return f"{self.name} ({', '.join(details)})" if details else self.name

    @property
    def is_averaged(self) -> bool:
        """True if :attr:`average` tells how values of classes or labels become one."""
        return self.average in allowed_averages(self.traits, self.counting) or self.counting.task == "multilabel"

    @property
    def needs_matrix(self) -> bool:
        """True for a measure that needs the matrix rather than margins."""
        return self.traits.needs_matrix

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher values are better; None if neither direction is."""
        return self.traits.higher_is_better

    @property
    def settings(self) -> tuple[object, ...]:
        """Settings that, with the counting, must be equal on all processes."""
        return self.function, self.arguments, self.average, self.higher_is_better

    def towards(self, direction: bool | None) -> AveragedMeasure:
        """Return the same measure with another direction."""
        return replace(self, traits=replace(self.traits, higher_is_better=direction))

    def __call__(self, counts: Counts) -> Tensor:
        """Evaluate counts ``[..., K, K]``, for multilabel ``[..., L, 2, 2]``, or their :class:`Margins`."""
        if self.over_classes:
            return self._mean_over(list(self.over_classes), counts)
        values = self._averaged(counts)
        return values if self.of_class is None else values[..., self.of_class]

    def _mean_over(self, some: list[int], counts: Counts) -> Tensor:
        """Average over some classes or labels and ignore the others."""
        if self.counting.task == "multilabel":
            _, actual, predicted = margins(counts)
            values, samples = double(self._measured(counts, self._average_of_label)), actual.sum(-1)[..., some]
            actual, predicted = actual[..., 1], predicted[..., 1]
        else:
            values, samples = double(self._averaged(counts)), None
            _, actual, predicted = self.without_ignored(counts)
        mean = class_mean(values[..., some], actual[..., some], predicted[..., some], "macro", samples=samples)
        return restore(mean, counts)

    def _averaged(self, counts: Counts) -> Tensor:
        if self.counting.task == "multilabel":
            return self._of_labels(counts)
        if self.traits.binary_only and self.counting.task == "multiclass" and self.average != "binary":
            _, actual, predicted = self.without_ignored(counts)
            values = double(self._measured(one_vs_rest(counts), ""))
            return restore(class_mean(values, actual, predicted, self.average), counts)
        return self._measured(counts, self.average)

    def value_of(self, counts: Counts, marginal: Margins) -> Tensor:
        """Evaluate the margins if they suffice, otherwise the counts."""
        return self(counts if self.traits.needs_matrix else marginal)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _equal(vars(self), vars(other))

    @property
    def _average_of_label(self) -> str:
        return "binary" if "binary" in self.traits.averages else "macro"

    def _of_labels(self, counts: Counts) -> Tensor:
        inner = self._average_of_label
        if self.average == "micro":
            summed = Margins(*(p.sum(-2) for p in counts)) if isinstance(counts, Margins) else counts.sum(-3)
            return self._measured(summed, inner)
        _, actual, predicted = margins(counts)
        values = double(self._measured(counts, inner))
        labels = class_mean(values, actual[..., 1], predicted[..., 1], self.average, samples=actual.sum(-1))
        return restore(labels, counts)

    def _measured(self, counts: Counts, average: str) -> Tensor:
        if not self.batched and isinstance(counts, Tensor) and counts.ndim > 2:
            singles = counts.reshape(-1, *counts.shape[-2:]).unbind()
            if average == "none":
                return torch.stack([self._measured(each, average) for each in singles]).reshape(counts.shape[:-1])
            found = [one_value(self.name, self._measured(each, average)) for each in singles]
            return torch.stack(found).reshape(counts.shape[:-2])
        if not self.traits.averages:
            return call_measure(self.function, counts, self.arguments)
        ignores = self.counting.task != "multilabel" and self.counting.ignored_class is not None
        if ignores and average not in ("micro", "binary"):
            _, actual, predicted = self.without_ignored(counts)
            values = double(call_measure(self.function, counts, {**self.arguments, "average": "none"}))
            return restore(class_mean(values, actual, predicted, average), counts)
        values = call_measure(self.function, counts, {**self.arguments, "average": average})
        # an absent positive class counts 0 here, so that no epoch with samples has a value that is nan
        return zero_if_absent(values, margins(counts).actual) if average == "binary" else values

    def without_ignored(self, counts: Counts) -> Margins:
        """Return margins without targets and predictions of the ignored class, so that means leave it out."""
        result, ignored = margins(counts), self.counting.ignored_class
        if ignored is None:
            return result
        kept = torch.arange(result.actual.shape[-1], device=result.actual.device) != ignored
        return Margins(*(part * kept for part in result))


@dataclass(frozen=True, eq=False)
class AtPrevalence:
    """Measure in a population with other class shares than the counts.

    Attributes:
        measure: function of counts.
        shares: class shares ``[K]``, for labels ``[L, 2]``.
        needs_matrix: True, since margins of more than two classes cannot be rescaled.
    """

    measure: Callable[[Counts], Tensor]
    shares: Tensor
    needs_matrix: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the measure in messages."""
        return str(getattr(self.measure, "name", ""))

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher values are better; None if neither direction is."""
        better: bool | None = declared(self.measure, "higher_is_better")
        return better

    def __call__(self, counts: Counts) -> Tensor:
        """Evaluate counts after rescaling them to the shares."""
        return self.measure(rescaled(counts, self.shares))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtPrevalence) and _equal(vars(self), vars(other))


def _equal(one: object, other: object) -> bool:
    """Return whether settings are equal; ``==`` would compare tensors, such as costs, element by element."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def _is_new(value: object, default: object) -> bool:
    """Return whether an argument is a number that differs from the default."""
    return isinstance(value, (int, float)) and value != default


def call_measure(measure: Callable[..., Tensor], counts: Counts, arguments: Mapping[str, Any]) -> Tensor:
    """Call a measure; give a float64 copy of the counts to a function from outside this package.

    The function may then change its input, and products of cells neither overflow nor lose digits.
    """
    if not all(_is_ours(each) for each in (measure, *arguments.values()) if callable(each)):
        counts = mapped(counts, _private)
    return measure(counts, **arguments)


def one_value(name: str, value: object) -> Tensor:
    """Return the value of one matrix as a tensor without dimensions; raise unless it is a single value."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"measure {name!r} must return a tensor of one value, got {got}")
    return value if value.ndim == 0 else value.reshape(())


def _is_ours(function: Callable[..., Any]) -> bool:
    """Return whether a function belongs to this package, whose measures never change their input."""
    while isinstance(function, partial):
        if any(callable(each) and not _is_ours(each) for each in (*function.args, *function.keywords.values())):
            return False
        function = function.func
    return getattr(function, "__module__", "").split(".")[0] == "imbtorch"


def _private(part: Tensor) -> Tensor:
    wide = double(part)
    return wide.clone() if wide.dtype == part.dtype else wide


def allowed_averages(traits: Traits, counting: Counting) -> tuple[str, ...]:
    """Return the averages that a measure takes in a task, ``"binary"`` last; none for measures of the whole matrix."""
    if counting.task == "multilabel":
        return ("macro", "weighted", "none", *["min"] * ("min" in traits.averages), "micro")
    if counting.task == "binary":
        return traits.averages
    if traits.binary_only:  # each class against the rest; of two classes, class 1 is positive
        return ("macro", "weighted", "none", *["binary"] * (counting.size == 2))
    return tuple(each for each in traits.averages if each != "binary")


def chosen_average(name: str, traits: Traits, counting: Counting, average: str | None) -> str:
    """Resolve ``"auto"``, and check that a measure takes an average in a task; None means ``"none"``.

    Raises:
        ValueError: for an average that the measure does not take in the task.
    """
    allowed = allowed_averages(traits, counting)
    if average == "auto":
        return "binary" if "binary" in allowed else "macro"
    average = "none" if average is None else average
    if not allowed:
        raise ValueError(
            f"{name} has one value for the whole matrix and takes no average in task={counting.task!r}, got "
            f"{average!r}; leave average out, or use BalancedAccuracy for a mean over classes"
        )
    check_choice(f"average of {name} in task={counting.task!r}", average, ("auto", *allowed))
    return average


# --- resolution of names and functions -------------------------------------------------------------------------------
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
        if short_name(name) not in by_any_name():
            check_choice("measures", name, tuple(by_any_name()))
    return _by_short_name("measures", measures)


def _by_short_name(argument: str, names: Sequence[str]) -> dict[str, Measured]:
    """Return key -> name of measures; raise if two names are those of one measure."""
    found: dict[str, Measured] = {short_name(name): name for name in names}
    if len(found) < len(names):
        raise ValueError(f"{argument} must not name a measure twice, got {list(names)}")
    return found


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
        for each in map(short_name, given):
            check_choice("per_class", each, allowed)
        given = _by_short_name("per_class", given)
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
    called = short_name(measured) if isinstance(measured, str) else str(function.__name__)
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
