"""Catalogue of the measures: the traits of each one, declared at its function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import Parameter, signature
from types import FunctionType, MethodType
from typing import Any, TypeAlias, TypeVar, cast

from torch import Tensor, nn

from imbtorch.counts import check_choice

__all__ = [
    "CATALOGUE",
    "Traits",
    "by_any_name",
    "by_key",
    "catalogued",
    "declared",
    "defaults_of",
    "direction_of",
    "measure_function",
    "needs_matrix",
    "traits_of",
]

PER_CLASS = ("macro", "weighted", "none", "min")
PER_CLASS_OR_POSITIVE = (*PER_CLASS, "micro", "binary")
ALIASES = {"dice": "f1"}  # alternative keys

Function = TypeVar("Function", bound=Callable[..., Tensor])
OfArguments: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Traits:
    """Traits of a measure.

    Attributes:
        key: name of the measure in reports; empty for a function outside the catalogue.
        higher_is_better: direction; None if no direction is better.
        bounds: lowest and highest possible value; None for no bound.
        averages: accepted averages; empty for measures of the whole matrix.
        binary_only: whether the measure is for two classes only.
        reads_threshold: whether the argument ``threshold`` is the decision threshold of the predictions.
        needs_matrix: whether the measure needs the matrix; False if it also takes :class:`~imbtorch.counts.Margins`.
    """

    key: str = ""
    higher_is_better: bool | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    averages: tuple[str, ...] = ()
    binary_only: bool = False
    reads_threshold: bool = False
    needs_matrix: bool = True


CATALOGUE: dict[Callable[..., Tensor], Traits] = {}
"""Traits of each measure, for the defaults of its arguments."""
_DEFAULTS: dict[Callable[..., Tensor], Mapping[str, Any]] = {}
_READ_OFF: dict[Callable[..., Tensor], Mapping[str, OfArguments]] = {}  # traits that depend on arguments


def catalogued(
    key: str,
    *,
    higher_is_better: bool | OfArguments | None,
    bounds: tuple[float | None, float | None] = (None, None),
    averages: tuple[str, ...] = (),
    binary_only: bool = False,
    reads_threshold: bool = False,
    needs_matrix: bool | OfArguments = False,
) -> Callable[[Function], Function]:
    """Enter a function of counts into the catalogue with its key and its :class:`Traits`.

    Args:
        key: name in reports.
        higher_is_better: direction, or a function that derives it from the arguments of the measure.
        bounds: lowest and highest possible value.
        averages: accepted averages.
        binary_only: whether the measure is for two classes only.
        reads_threshold: whether the argument ``threshold`` is the decision threshold of the predictions.
        needs_matrix: whether margins are not enough, or a function that derives it from the arguments of the measure.
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
        CATALOGUE[function] = Traits(key, direction, bounds, averages, binary_only, reads_threshold, matrix)
        CATALOGUE[function] = _given(function, {})
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
    function: Any = measure
    arguments: dict[str, Any] = {}
    while isinstance(function, partial):
        function, arguments = function.func, {**function.keywords, **arguments}
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
    """Look up a trait in the catalogue, or as an attribute, of a measure or of the function or object within it.

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


def measure_function(measure: object) -> Callable[..., Tensor]:
    """Return the function of a measure, given as a function, a name or a metric class.

    Raises:
        ValueError: for an unknown name.
        TypeError: for an object that is not a measure, and for the name or class of a measure that needs arguments.
    """
    function: Any = measure
    if isinstance(measure, str):
        known = by_any_name()
        check_choice("measure", measure, tuple(known))
        function = known[measure]
    elif isinstance(measure, type):
        function = getattr(measure, "measure", None)
    if not callable(function) or isinstance(function, nn.Module):
        remedy = "; pass its class or its evaluate" if hasattr(measure, "evaluate") else ""
        raise TypeError(
            "measure must be a function of the counts, a metric class of imbtorch or a name such as 'geometric_mean', "
            f"got {measure!r}{remedy}"
        )
    if function is not measure:  # a given function may be called with more than counts
        _, *others = signature(function).parameters.values()
        needed = [each.name for each in others if each.default is Parameter.empty]
        if needed:
            name = function.__name__
            raise TypeError(f"measure {name} needs {needed[0]}; give functools.partial({name}, {needed[0]}=...)")
    return cast("Callable[..., Tensor]", function)
