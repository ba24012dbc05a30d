"""Catalogue of the measures: the traits of each one, declared at its function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import Parameter, signature
from types import FunctionType, MethodType
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from imbtorch.counts import check_choice

PER_CLASS = ("macro", "weighted", "none", "min")
PER_CLASS_OR_POSITIVE = (*PER_CLASS, "micro", "binary")
ALIASES = {"dice": "f1"}  # alternative keys
OTHER_NAMES = {  # names of the field -> key
    **dict.fromkeys(("sensitivity", "tpr", "true_positive_rate", "hit_rate"), "recall"),
    **dict.fromkeys(("ppv", "positive_predictive_value"), "precision"),
    **dict.fromkeys(("tnr", "true_negative_rate", "selectivity"), "specificity"),
    **{"f1_score": "f1", "jaccard_index": "iou", "g_mean": "gmean", "phi": "mcc", "bacc": "balanced_accuracy"},
    **{"auroc": "auc", "roc_auc": "auc", "ap": "average_precision"},
}

Function = TypeVar("Function", bound=Callable[..., Tensor])
OfArguments: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Traits:
    """Traits of a measure.

    Attributes:
        key: name of the measure in reports; empty for a function outside the catalogue.
        higher_is_better: direction; None if no direction is better.
        value_range: lowest and highest possible value; None for no bound.
        averages: accepted averages; empty for measures of the whole matrix.
        binary_only: whether the measure is for two classes only.
        reads_threshold: whether the argument ``threshold`` is the decision threshold of the predictions.
        needs_matrix: whether the measure needs the matrix; False if it also takes :class:`~imbtorch.counts.Margins`.
        at_an_end: whether its value for the positive class is best where all samples are flagged, or none, whatever the
            scores.
    """

    key: str = ""
    higher_is_better: bool | None = None
    value_range: tuple[float | None, float | None] = (None, None)
    averages: tuple[str, ...] = ()
    binary_only: bool = False
    reads_threshold: bool = False
    needs_matrix: bool = True
    at_an_end: bool = False


CATALOGUE: dict[Callable[..., Tensor], Traits] = {}
"""Traits of each measure, for the defaults of its arguments."""
_DEFAULTS: dict[Callable[..., Tensor], Mapping[str, Any]] = {}
_READ_OFF: dict[Callable[..., Tensor], Mapping[str, OfArguments]] = {}  # traits that depend on arguments


def catalogued(
    key: str,
    *,
    higher_is_better: bool | OfArguments | None,
    value_range: tuple[float | None, float | None] = (None, None),
    averages: tuple[str, ...] = (),
    binary_only: bool = False,
    reads_threshold: bool = False,
    needs_matrix: bool | OfArguments = False,
    at_an_end: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function of counts into the catalogue with its key and its :class:`Traits`.

    Args:
        key: name in reports.
        higher_is_better: direction, or a function that derives it from the arguments of the measure.
        value_range: lowest and highest possible value.
        averages: accepted averages.
        binary_only: whether the measure is for two classes only.
        reads_threshold: whether the argument ``threshold`` is the decision threshold of the predictions.
        needs_matrix: whether margins are not enough, or a function that derives it from the arguments of the measure.
        at_an_end: whether the value for the positive class is best where all samples are flagged, or none.
    """

    def enter(function: Function) -> Function:
        """Enter one function."""
        direction = None if callable(higher_is_better) else higher_is_better
        matrix = True if callable(needs_matrix) else needs_matrix
        _, *parameters = signature(function).parameters.values()
        if not parameters:
            function = _of_counts_alone(function)
        _DEFAULTS[function] = {
            each.name: each.default
            for each in parameters
            if each.default is not Parameter.empty and each.name != "average"
        }
        given = {"higher_is_better": higher_is_better, "needs_matrix": needs_matrix}
        _READ_OFF[function] = {name: read for name, read in given.items() if callable(read)}
        CATALOGUE[function] = Traits(
            key, direction, value_range, averages, binary_only, reads_threshold, matrix, at_an_end
        )
        CATALOGUE[function] = _given(function, {})
        function.__dict__["averages"] = averages  # torch.compile cannot look up functions in a dict
        return function

    return enter


def _of_counts_alone(function: Function) -> Function:
    """Add a helpful error to a function of counts alone, for calls with predictions and targets."""

    @wraps(function)
    def measure(counts: Any, *others: object) -> Tensor:
        """Call the function, if it gets counts alone."""
        if others:
            raise TypeError(
                f"{function.__name__} takes counts alone, got {1 + len(others)} arguments; "
                "imbtorch.functional.evaluate(measure, preds, target, task) takes predictions"
            )
        return function(counts)

    return cast(Function, measure)


def _given(function: Callable[..., Tensor], arguments: Mapping[str, Any]) -> Traits:
    """Return the traits of a measure for some values of its arguments."""
    known = {**_DEFAULTS[function], **arguments}
    read_off: dict[str, Any] = {name: read(known) for name, read in _READ_OFF[function].items()}
    return replace(CATALOGUE[function], **read_off)


def traits_of(measure: object) -> Traits | None:
    """Look up the traits of a function of the catalogue, or of a ``functools.partial`` of one with its arguments.

    Return None for any other object.

    >>> from imbtorch import cohen_kappa
    >>> traits_of(cohen_kappa).needs_matrix, traits_of(partial(cohen_kappa, weights="linear")).needs_matrix
    (False, True)
    """
    function, arguments = arguments_of(measure)
    if not isinstance(function, FunctionType) or function not in CATALOGUE:
        return None
    return _given(function, arguments)


def needs_matrix(measure: object) -> bool:
    """Return whether a measure needs the whole matrix: by the catalogue, else its attribute ``needs_matrix``.

    Functions without either are assumed to read single cells, and so are decorators of any function.
    """
    return bool(declared(measure, "needs_matrix", True, decorated=False))


def direction_of(measure: object, given: bool | None) -> bool:
    """Return whether higher is better: as given, else as the measure or the catalogue says, True for other functions.

    A decorated function has the direction of the function within, unless it has an attribute ``higher_is_better``.

    Raises:
        ValueError: for a measure that is known to have no direction, unless one is given.
        TypeError: for a direction that is neither True, False nor None.

    >>> import torch
    >>> from imbtorch import confusion_entropy
    >>> direction_of(confusion_entropy, None), direction_of(lambda counts: counts.sum((-2, -1)), None)
    (False, True)
    >>> direction_of(torch.no_grad()(confusion_entropy), None)
    False
    """
    if given is not None:
        if not isinstance(given, bool):
            raise TypeError(f"higher_is_better must be True, False or None, got {given!r}")
        return given
    better = declared(measure, "higher_is_better", True)
    if better is None:
        *_, owner = _layers(measure)
        name = getattr(owner, "__name__", None) or getattr(owner, "name", None) or repr(owner)
        raise ValueError(f"measure {name} has no direction; pass higher_is_better=True or False")
    return bool(better)


def declared(measure: object, attribute: str, default: Any = None, *, decorated: bool = True) -> Any:
    """Look up a trait of a measure; partials, methods and decorators are unwrapped.

    Args:
        measure: function, partial, bound method or decorated function.
        attribute: name of the trait.
        default: value if no part of the measure has the trait.
        decorated: whether a decorator has the trait of the function that it decorates.
    """
    arguments: dict[str, Any] = {}
    for layer in _layers(measure, decorated):
        if isinstance(layer, partial):
            arguments = {**layer.keywords, **arguments}
        if isinstance(layer, FunctionType) and layer in CATALOGUE:
            return getattr(_given(layer, arguments), attribute)
        if hasattr(layer, attribute):
            return getattr(layer, attribute)
    return default


def _layers(measure: object, decorated: bool = True) -> Iterator[object]:
    """Yield a measure, and what lies within it: function of a partial, object of a method, decorated function."""
    layer: Any = measure
    while layer is not None:
        yield layer
        if isinstance(layer, partial):
            layer = layer.func
        elif isinstance(layer, MethodType):
            layer = layer.__self__
        else:  # set by functools.wraps, torch.no_grad() and torch.compile
            layer = getattr(layer, "__wrapped__", None) if decorated else None


def defaults_of(function: Callable[..., Tensor]) -> dict[str, Any]:
    """Return the defaults of a measure's arguments other than the counts and the average."""
    return dict(_DEFAULTS[function])


def by_key() -> dict[str, Callable[..., Tensor]]:
    """Return the measures by their names in reports."""
    named = {traits.key: function for function, traits in CATALOGUE.items()}
    return named | {alias: named[key] for alias, key in ALIASES.items()}


def by_any_name() -> dict[str, Callable[..., Tensor]]:
    """Return the measures by their names in reports and by the names of their functions."""
    return by_key() | {function.__name__: function for function in CATALOGUE}


def short_name(name: Any) -> Any:
    """Return the key of a measure or an area under a curve that has several names; anything else as it is.

    >>> [short_name(name) for name in ("sensitivity", "imbalance_accuracy", "dice", "auroc", "cat")]
    ['recall', 'iam', 'dice', 'auc', 'cat']
    """
    if not isinstance(name, str) or name in ALIASES:
        return name
    function = by_any_name().get(name)
    return OTHER_NAMES.get(name, name) if function is None else CATALOGUE[function].key


def arguments_of(measure: object) -> tuple[Any, dict[str, Any]]:
    """Return the function within a measure and the arguments that ``functools.partial`` adds to it by name."""
    function: Any = measure
    arguments: dict[str, Any] = {}
    while isinstance(function, partial) and not function.args:
        function, arguments = function.func, {**function.keywords, **arguments}
    return function, arguments


def measure_function(measure: object, argument: str = "measure", given: Sequence[str] = ()) -> Callable[..., Tensor]:
    """Return the function of counts of a measure, given by name, as a function, or as ``functools.partial`` of one.

    Args:
        measure: measure as a user gives it.
        argument: name of the argument, for errors.
        given: names of arguments that the caller adds to the measure.

    Raises:
        ValueError: for an unknown name.
        TypeError: for an object that is not a measure, such as a metric, and for a measure that lacks an argument.
    """
    function: Any = measure
    if isinstance(measure, str):
        known = by_any_name()
        if (short := short_name(measure)) not in known:
            check_choice(argument, measure, tuple(known))
        function = known[short]
    bare, arguments = arguments_of(function)
    if not callable(bare) or isinstance(bare, type) or hasattr(bare, "compute"):
        raise TypeError(
            f"{argument} must be the name of a measure such as 'f1', a function of counts such as imbtorch.f_score, or "
            f"functools.partial of one, got {measure!r}{_remedy(bare, arguments)}"
        )
    if not torch.compiler.is_compiling() and isinstance(bare, FunctionType) and bare in CATALOGUE:
        _, *parameters = signature(bare).parameters.values()
        needed = [each.name for each in parameters if each.default is Parameter.empty]
        lacking = [name for name in needed if name not in arguments and name not in given]
        if lacking:
            raise TypeError(f"{argument}: {bare.__name__} needs {lacking[0]}; pass {_partial_text(bare, lacking)}")
    return cast("Callable[..., Tensor]", function)


def _remedy(given: object, arguments: Mapping[str, Any]) -> str:
    """Tell what to pass in place of a metric, or of a pair of a function and a direction."""
    if isinstance(given, tuple):
        return "; set the direction as an attribute of the function: function.higher_is_better = False"
    function = getattr(given, "measure", None)
    if not isinstance(function, FunctionType) or not hasattr(given, "traits"):  # no metric of this package
        return ""
    if function not in CATALOGUE:
        return "; pass the function of its attribute measure"
    given_arguments = arguments or getattr(given, "measure_arguments", {})
    if isinstance(given_arguments, Mapping) and given_arguments:
        return f"; pass {_partial_text(function, given_arguments)}"
    return f"; pass imbtorch.{function.__name__} or {CATALOGUE[function].key!r}"


def _partial_text(function: Callable[..., Tensor], names: Iterable[str]) -> str:
    """Return code that sets arguments of a function of this package."""
    return f"functools.partial(imbtorch.{function.__name__}, {', '.join(f'{name}=...' for name in names)})"


def of_two_classes(measure: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a measure as reports of the binary task average it: for the positive class, if it has such a value.

    >>> from imbtorch import recall
    >>> of_two_classes(recall)(torch.tensor([[8, 2], [1, 1]])), recall(torch.tensor([[8, 2], [1, 1]]))
    (tensor(0.5000, dtype=torch.float64), tensor(0.6500, dtype=torch.float64))
    """
    function, arguments = arguments_of(measure)
    if "average" in arguments or "binary" not in getattr(function, "averages", ()):
        return measure
    return partial(measure, average="binary")
