"""Operations on counts: margins, rates, one-vs-rest counts, merged classes, and other class shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from imbtorch.suggestions import did_you_mean

Normalize: TypeAlias = Literal["true", "pred", "all"]

ROUNDING = 1e-9  # share of the total by which rounding may push a difference of rates below 0
TYPES_WITH_FLOAT64 = {"cpu": True}  # type of a device -> whether it has float64, as found so far


class Margins(NamedTuple):
    """Margins of a confusion matrix: 3 x K numbers in place of K x K.

    They are enough for every measure that uses no single off-diagonal cell. :func:`margins` computes them from a
    matrix.

    Attributes:
        correct: ``[..., K]``, the diagonal: correctly predicted samples of each class.
        actual: ``[..., K]``, the row sums: targets of each class.
        predicted: ``[..., K]``, the column sums: predictions of each class.

    >>> from imbtorch import accuracy
    >>> counts = Margins(torch.tensor([8, 1]), actual=torch.tensor([10, 2]), predicted=torch.tensor([9, 3]))
    >>> accuracy(counts)  # of the matrix [[8, 2], [1, 1]]
    tensor(0.7500, dtype=torch.float64)
    """

    correct: Tensor
    actual: Tensor
    predicted: Tensor


class CountedMargins(Margins):
    """Margins computed from one matrix or state, which are consistent: measures do not check them again.

    They are internal, since ``torch.vmap`` of old versions accepts a NamedTuple but no subclass of it.
    """

    __slots__ = ()


Counts: TypeAlias = Tensor | Margins
Measure: TypeAlias = Callable[[Any], Tensor]
"""Function of counts. Its argument has no type, because a user's own function may not accept Margins."""


def normalized(counts: Tensor, by: Normalize) -> Tensor:
    """Divide counts by row sums (``"true"``), column sums (``"pred"``) or the total (``"all"``); 0/0 is 0.

    Args:
        counts: ``[..., K, K]``.
        by: the divisor: ``"true"``, ``"pred"`` or ``"all"``.

    Returns:
        ``[..., K, K]`` rates, float64 for integer counts, else in the dtype of the counts.

    Raises:
        ValueError: for an unknown divisor, or counts of another shape.
        TypeError: for counts that are no tensor.

    >>> normalized(torch.tensor([[3, 1], [0, 4]]), "true")
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    check_choice("by", by, get_args(Normalize))
    dims = {"true": (-1,), "pred": (-2,), "all": (-2, -1)}[by]
    wide = double(check_square(counts))
    return restore(ratio(wide, wide.sum(dims, keepdim=True)), counts)


def margins(counts: Counts) -> Margins:
    """Compute the diagonal, row sums and column sums of a confusion matrix, in float64.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`Margins`, which are converted to float64.

    Returns:
        :class:`Margins` of float64 ``[..., K]`` (on the CPU if the device has no float64). All are nan if the counts
        are invalid: a cell is nan or negative (below -1e-9 of the total), or margins contradict one another (a class
        has more correct samples than targets or predictions; targets and predictions differ in their totals).

    Raises:
        ValueError: for a shape other than ``[..., K, K]``, or margins of different shapes.
        TypeError: for counts that are no tensor.

    >>> margins(torch.tensor([[8, 2], [1, 1]])).predicted
    tensor([9., 3.], dtype=torch.float64)
    >>> margins(torch.tensor([[8, 2], [-1, 1]])).predicted
    tensor([nan, nan], dtype=torch.float64)
    """
    if isinstance(counts, Margins):
        if not counts.correct.shape == counts.actual.shape == counts.predicted.shape:
            raise ValueError(
                "correct, actual and predicted of Margins must have one shape [..., K], got "
                f"{', '.join(str(list(part.shape)) for part in counts)}; margins(matrix) computes all three"
            )
        if isinstance(counts, CountedMargins):
            if counts.correct.dtype == torch.float64:
                return counts
            return CountedMargins(*(double(part) for part in counts))
        parts = Margins(*(double(part) for part in counts))
        possible = _consistent(parts, counts.correct.dtype)
    else:
        square = check_square(counts)
        wide = double(square) if square.is_floating_point() else square
        parts = Margins(*(double(part) for part in sums(wide)))  # converts 3 K integers, not K * K
        possible = _non_negative(wide, parts.actual.sum(-1))
    return Margins(*(torch.where(possible.unsqueeze(-1), part, torch.nan) for part in parts))


def one_vs_rest(counts: Counts) -> Counts:
    """Compute the binary counts of each class against all others.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`Margins` of ``[..., K]``.

    Returns:
        ``[..., K, 2, 2]`` (class 1 is the class itself, class 0 the rest), or :class:`Margins` of ``[..., K, 2]``.

    Raises:
        ValueError: for a shape other than ``[..., K, K]``.
        TypeError: for counts that are no tensor.

    >>> one_vs_rest(torch.tensor([[8, 2], [1, 1]]))[0]
    tensor([[1, 1],
            [2, 8]])
    """
    if isinstance(counts, Margins):
        own = Margins(*map(_wide_enough, counts))
        tp, fn, fp, tn = of_each_class(own, own)
        rest = Margins(tn, tn + fp, tn + fn)
        return Margins(*(restore(torch.stack(pair, -1), counts) for pair in zip(rest, own, strict=True)))
    wide = _wide_enough(check_square(counts))
    tp, fn, fp, tn = of_each_class(wide, sums(wide))
    return restore(two_by_two(tn, fp, fn, tp), counts)


def of_each_class(counts: Counts, own: Margins) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Count the true positives, false negatives, false positives and true negatives of each class, ``[..., K]``.

    Rates keep their precision for rare classes, because no small number is computed as a difference of large ones. The
    one exception are the errors of more than two classes, given margins alone.

    Args:
        counts: ``[..., K, K]`` counts or rates, or their margins.
        own: their margins, int64 or float64.
    """
    tp, actual, predicted = own
    size = tp.shape[-1]
    if size == 2:
        fn = actual - tp
        return tp, fn, fn.flip(-1), tp.flip(-1)
    if not (counts.correct if isinstance(counts, Margins) else counts).is_floating_point():
        fp = predicted - tp  # differences of whole numbers are exact, also in float64
        return tp, actual - tp, fp, actual.sum(-1, keepdim=True) - actual - fp
    if isinstance(counts, Margins):
        fn, fp = _zero_if_rounding(actual - tp, actual), _zero_if_rounding(predicted - tp, predicted)
    else:
        errors = double(counts).masked_fill(torch.eye(size, dtype=torch.bool, device=tp.device), 0.0)
        known = tp - tp  # 0, or nan for invalid counts
        fn, fp = errors.sum(-1) + known, errors.sum(-2) + known
    targets, predictions = _sum_of_others(actual), _sum_of_others(predicted)
    few = targets <= predictions
    tn = torch.where(few, targets, predictions) - torch.where(few, fp, fn)
    return tp, fn, fp, _zero_if_rounding(tn, torch.minimum(targets, predictions))


def _sum_of_others(x: Tensor) -> Tensor:
    """Sum all other elements of the last dimension, for each element.

    Cumulative sums from both ends replace the difference to the total, which would lose the digits of rare classes.
    """
    none = torch.zeros_like(x[..., :1])
    before = torch.cat((none, _cumulative(x[..., :-1])), -1)
    return before + torch.cat((_cumulative(x[..., 1:].flip(-1)).flip(-1), none), -1)


def _cumulative(x: Tensor) -> Tensor:
    """Sum each element and those before it in the last dimension; deterministic, unlike ``cumsum`` on CUDA devices."""
    if x.is_cpu:
        return x.cumsum(-1)
    step = 1
    while step < x.shape[-1]:  # each element sums twice as many as in the step before
        x = torch.cat((x[..., :step], x[..., step:] + x[..., :-step]), -1)
        step *= 2
    return x


def merge_classes(
    counts: Tensor, superclasses: Mapping[str, Sequence[str]], class_names: Sequence[str]
) -> tuple[Tensor, tuple[str, ...]]:
    """Merge the classes of each superclass.

    Confusing two classes of one superclass is then no error. Classes outside all superclasses stay as they are.

    Args:
        counts: ``[..., K, K]`` counts or rates. Margins are not enough: they lack the errors within a superclass.
        superclasses: name of each superclass -> names of its classes.
        class_names: K names, in the order of the counts.

    Returns:
        The counts ``[..., M, M]``, int64 for integers, else in their dtype, and the M names. A superclass takes the
        place of the first of its classes.

    Raises:
        ValueError: for ``class_names`` that are not K different names, a superclass without classes, a class that
            does not exist or is in two superclasses, and a superclass named like a class outside it.
        TypeError: for margins.

    >>> counts = torch.tensor([[5, 2, 1], [1, 6, 0], [0, 1, 4]])
    >>> merge_classes(counts, {"animal": ["cat", "dog"]}, ["cat", "dog", "car"])
    (tensor([[14,  1],
            [ 1,  4]]), ('animal', 'car'))
    """
    wide, names = _wide_enough(check_square(counts)), tuple(class_names)
    if len(names) != wide.shape[-1] or len(set(names)) != len(names):
        raise ValueError(f"class_names must be {wide.shape[-1]} different names, one for each class, got {list(names)}")
    _check_superclasses(superclasses, names)
    merged = {name: new for new, group in superclasses.items() for name in group}
    coarse = tuple(dict.fromkeys(merged.get(name, name) for name in names))
    place = torch.tensor([coarse.index(merged.get(name, name)) for name in names], device=wide.device)
    rows = wide.new_zeros((*wide.shape[:-2], len(coarse), len(names))).index_add(-2, place, wide)
    whole = wide.new_zeros((*wide.shape[:-2], len(coarse), len(coarse))).index_add(-1, place, rows)
    return restore(whole, counts), coarse


def _check_superclasses(superclasses: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    members = [name for group in superclasses.values() for name in group]
    if not set(members) <= set(names) or len(set(members)) != len(members) or not all(map(len, superclasses.values())):
        raise ValueError(
            f"superclasses must be non-empty and hold classes of {list(names)}, each in at most one superclass, got "
            f"{dict(superclasses)}"
        )
    taken = [new for new, group in superclasses.items() if new in names and new not in group]
    if taken:
        raise ValueError(f"superclasses must not be named like classes outside them, got {taken}; choose other names")


def at_prevalence(counts: Counts, prevalence: Tensor | Sequence[float]) -> Counts:
    """Rescale the rows of counts to the class shares of another population.

    The result describes the same classifier in that population, assuming that its predictions for samples of each true
    class are distributed as before. Every measure accepts the result, since measures take rates as well as counts.
    Metrics do both in one step: ``metric.at_prevalence(prevalence)``, ``ImbalanceReport(..., prevalence=...)``.

    Args:
        counts: ``[..., K, K]``, or :class:`Margins` of two classes.
        prevalence: ``[K]`` (or ``[..., K]``) class shares of the other population; normalised to sum to 1.

    Returns:
        Rates of the shape of ``counts`` whose rows sum to ``prevalence``: float64 for integer counts, else their dtype.

    Raises:
        ValueError: for a negative share, shares that do not fit the classes or sum to 0, a positive share for a class
            without targets, or margins of more than two classes, which do not determine the predictions.
        TypeError: for counts that are neither a tensor nor margins.

    >>> at_prevalence(torch.tensor([[9, 1], [2, 8]]), [0.99, 0.01])
    tensor([[0.8910, 0.0990],
            [0.0020, 0.0080]], dtype=torch.float64)
    """
    whole = _of_margins(counts) if isinstance(counts, Margins) else counts
    actual = double(check_square(whole)).sum(-1)
    share = torch.as_tensor(prevalence, dtype=torch.float64, device=actual.device)
    if share.shape[-1:] != actual.shape[-1:]:
        raise ValueError(
            f"prevalence must hold one share for each of {actual.shape[-1]} classes, got {list(share.shape)}"
        )
    if not bool((share >= 0).all()) or not bool(((share.sum(-1) > 0) & share.sum(-1).isfinite()).all()):
        raise ValueError(f"prevalence must be finite, non-negative and not all 0, got {share.tolist()}")
    missing = (actual == 0) & (share > 0)
    if bool(missing.any()):
        classes = missing.reshape(-1, missing.shape[-1]).any(0).nonzero().flatten().tolist()
        raise ValueError(f"classes {classes} have no targets, so their predictions are unknown; give them prevalence 0")
    return rescaled(counts, share)


def rescaled(counts: Counts, share: Tensor) -> Counts:
    """Rescale counts to class shares, unchecked and without waiting for a device.

    The share of a class without targets goes to the others; if no class with a share has targets, all rates are 0.
    """
    if isinstance(counts, Margins):
        scaled = margins(rescaled(_of_margins(counts), share))
        return Margins(*(restore(part, like) for part, like in zip(scaled, counts, strict=True)))
    return restore(rescaled_rows(matrix(counts), share), counts)


def rescaled_rows(rows: Tensor, share: Tensor) -> Tensor:
    """Scale float64 rows ``[..., R, C]`` to sums ``share``, ``[R]`` or ``[..., R]``; see :func:`rescaled`."""
    actual = rows.sum(-1)
    there = torch.where(actual > 0, share.to(rows.device), 0.0)
    there = ratio(there, there.sum(-1, keepdim=True))
    return ratio(rows, actual.unsqueeze(-1)) * there.unsqueeze(-1)


def _of_margins(counts: Margins) -> Tensor:
    """Compute the float64 matrix of two classes from its margins, which determine it."""
    if counts.correct.shape[-1] != 2:
        raise ValueError(
            f"at_prevalence needs the whole matrix for {counts.correct.shape[-1]} classes, got Margins, which do not "
            "hold the predictions of each true class; count with state='matrix'"
        )
    (tn, tp), (negatives, positives), _ = (part.unbind(-1) for part in margins(counts))
    return two_by_two(tn, negatives - tn, positives - tp, tp)


# --- helpers that measures share --------------------------------------------------------------------------------


UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # dtypes for which torch has few operations


def check_square(counts: Counts) -> Tensor:
    """Return counts, unsigned ones as int64; raise TypeError or ValueError unless they are ``[..., K, K]``."""
    if isinstance(counts, Margins):
        raise TypeError(
            "counts must be the whole matrix here, got Margins, which do not hold the confusions of single classes; "
            "pass the confusion matrix [..., K, K], or count with state='matrix'"
        )
    if not isinstance(counts, Tensor):
        raise TypeError(
            f"counts must be a tensor [..., K, K] or Margins, got {type(counts).__name__}; use "
            f"{'its counts' if hasattr(type(counts), 'counts') else 'torch.as_tensor'}"
        )
    if counts.is_nested:
        raise TypeError("counts must be an ordinary tensor [..., K, K], got a nested one; pass its parts one by one")
    if counts.ndim < 2 or counts.shape[-1] != counts.shape[-2]:
        raise ValueError(
            f"counts must be a confusion matrix [..., K, K], got shape {list(counts.shape)}; "
            "confusion_matrix(preds, target, task) makes one, and imbtorch.functional.evaluate(measure, preds, target, "
            "task) computes a measure of predictions"
        )
    if counts.dtype == torch.uint64 and bool((counts.view(torch.int64) < 0).any()):
        raise ValueError("counts must be below 2**63, got larger ones of dtype torch.uint64")
    return counts.long() if counts.dtype in UNSIGNED else counts


def two_by_two(tn: Tensor, fp: Tensor, fn: Tensor, tp: Tensor) -> Tensor:
    """Stack four cells ``[...]`` to confusion matrices ``[..., 2, 2]``."""
    return torch.stack((torch.stack((tn, fp), -1), torch.stack((fn, tp), -1)), -2)


def matrix(counts: Counts) -> Tensor:
    """Convert a confusion matrix to float64, all nan if a cell is nan or negative (below -1e-9 of the total)."""
    wide = double(check_square(counts))
    return torch.where(_non_negative(wide, wide.sum((-2, -1)))[..., None, None], wide, torch.nan)


def _non_negative(counts: Tensor, total: Tensor) -> Tensor:
    """Return bools ``[...]``: whether no cell of ``[..., K, K]`` is nan, or negative beyond rounding."""
    cells = counts.detach()
    if not cells.numel():
        return torch.ones_like(total, dtype=torch.bool)
    # for int64, min over all dimensions is eight times as fast as amin; for floating counts it is half as fast
    least = cells.min() if cells.ndim == 2 and not cells.is_floating_point() else cells.amin((-2, -1))
    return double(least) >= -ROUNDING * total.detach()  # false for nan


def _consistent(parts: Margins, dtype: torch.dtype) -> Tensor:
    """Return bools ``[...]``: whether some confusion matrix has these margins, up to the rounding of ``dtype``."""
    correct, actual, predicted = (part.detach() for part in parts)
    if not correct.numel():
        return torch.ones_like(correct[..., :1].sum(-1), dtype=torch.bool)
    rounding = max(ROUNDING, correct.shape[-1] * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
    total = actual.sum(-1)
    least = torch.minimum(correct, torch.minimum(actual, predicted) - correct).amin(-1)
    apart = (total - predicted.sum(-1)).abs()
    return torch.minimum(least, -apart) >= -rounding * total  # false for nan


def has_float64(device: torch.device | None) -> bool:
    """Return whether a device (None for the default one) has float64; each type of device is tried once."""
    kind = (torch.get_default_device() if device is None else device).type
    if kind not in TYPES_WITH_FLOAT64:
        try:
            torch.zeros((), dtype=torch.float64, device=kind)
            TYPES_WITH_FLOAT64[kind] = True
        except (TypeError, RuntimeError):  # Apple's and Intel's devices raise these
            TYPES_WITH_FLOAT64[kind] = False
    return TYPES_WITH_FLOAT64[kind]


def shown_dtype() -> torch.dtype:
    """Return the dtype of reported values, float32 or wider, since half precision would hide differences of epochs."""
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def double(x: Tensor) -> Tensor:
    """Convert to float64, on the CPU if the device has none."""
    if x.dtype == torch.float64:
        return x
    return (x if has_float64(x.device) else x.cpu()).double()


def _wide_enough(x: Tensor) -> Tensor:
    """Convert integers to int64, whose sums and differences are exact, and anything else to float64."""
    return double(x) if x.is_floating_point() else x.long()


def _zero_if_rounding(difference: Tensor, total: Tensor) -> Tensor:
    """Replace differences of rates that are 0 up to rounding by 0, since a root or a ratio would amplify the rest.

    Gradients pass unchanged.
    """
    if not difference.is_floating_point():
        return difference
    small = difference.abs() <= difference.shape[-1] * torch.finfo(difference.dtype).eps * total
    return difference - torch.where(small, difference, 0.0).detach()


def restore(value: Tensor, counts: Counts) -> Tensor:
    """Convert a value to the dtype and device of ``counts``; leave it in float64 if they are integers."""
    like = counts.correct if isinstance(counts, Margins) else counts
    return value.to(like) if like.is_floating_point() else value


def sums(counts: Counts) -> Margins:
    """Compute margins in the dtype of the counts, without the checks of :func:`margins`: for counts of a state."""
    if isinstance(counts, Margins):
        return CountedMargins(*counts)
    if counts.ndim > 2 and counts.shape[-1] == 2 and counts.dtype in (torch.int64, torch.float64):
        actual, predicted = (torch.add(*counts.unbind(dim)) for dim in (-1, -2))  # ten times as fast as sums of two
    else:
        actual, predicted = counts.sum(-1), counts.sum(-2)
    return CountedMargins(counts.diagonal(dim1=-2, dim2=-1), actual, predicted)


def targets(counts: Counts) -> Tensor:
    """Return the number of targets of each class."""
    return counts.actual if isinstance(counts, Margins) else counts.sum(-1)


def confusion_counts(counts: Counts) -> Tensor:
    """Return counts if they are a whole matrix, otherwise raise."""
    if isinstance(counts, Margins):
        raise ValueError("state='margins' keeps no confusion matrix; use state='matrix', or .local_margins")
    return counts


def mapped(counts: Counts, change: Callable[[Tensor], Tensor]) -> Counts:
    """Apply a function to the matrix, or to each tensor of the margins."""
    return Margins(*map(change, counts)) if isinstance(counts, Margins) else change(counts)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide, with 0 where the denominator is 0; gradients stay finite there, because the denominator becomes inf."""
    return numerator / denominator.masked_fill(denominator == 0, torch.inf)


def evaluated(measure: Measure, counts: Counts, name: str = "measure") -> Tensor:
    """Evaluate a measure in float64; raise ValueError unless it returns one value per matrix.

    Args:
        measure: function of counts.
        counts: ``[..., K, K]`` or :class:`Margins`.
        name: name of the measure in errors.
    """
    shape = counts.actual.shape[:-1] if isinstance(counts, Margins) else counts.shape[:-2]
    value = checked_function(measure, name)(counts)
    if not isinstance(value, Tensor) or value.shape != shape:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{name} must return one value for each matrix, {list(shape)}, got {got}; choose an average "
            "(in your own function, index cells as counts[..., 0, 0])"
        )
    return double(value)


def reads_margins(measure: Measure, counts: Tensor) -> bool:
    """Return whether the measure has the same value for margins as for matrices ``[..., K, K]``."""
    try:
        value = measure(margins(counts))
    except (
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RuntimeError,
    ):  # of functions of matrices, which take no named tuple
        return False
    whole = evaluated(measure, double(counts))
    return isinstance(value, Tensor) and value.shape == whole.shape and torch.allclose(value, whole, equal_nan=True)


def checked_function(measure: Measure, name: str = "measure") -> Measure:
    """Return a function of counts; raise TypeError for a name or a metric."""
    called: object = measure.func if isinstance(measure, partial) else measure
    if isinstance(called, (str, type)) or not callable(called) or hasattr(called, "evaluate"):
        got = f"{called!r}" if isinstance(called, (str, type)) else f"a {type(called).__name__}"
        raise TypeError(
            f"{name} must be a function of counts such as imbtorch.imbalance_accuracy or functools.partial of one, "
            f"got {got}"
        )
    return measure


MANY = 12  # allowed values from which an error shows the nearest ones alone
MOST_COMPARED = 100  # characters of a name that are compared with them


def check_choice(name: str, value: object, allowed: Sequence[object], remedy: str = "") -> None:
    """Raise ValueError, which ends with a remedy, unless an argument has one of the allowed values."""
    if value not in allowed:
        choices, meant = ", ".join(map(repr, allowed)), did_you_mean(value, allowed)
        if len(allowed) > MANY:
            near = ", ".join(map(repr, get_close_matches(str(value)[:MOST_COMPARED], map(str, allowed), 5, 0.0)))
            raise ValueError(
                f"{name} must be one of {len(allowed)} names, got {value!r}{meant}{remedy}; nearest: {near}"
            )
        raise ValueError(f"{name} must be one of {choices}, got {value!r}{meant}{remedy}")
