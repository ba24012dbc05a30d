"""Counts to counts: confusion matrices, their margins, rates, one against the rest, other populations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from imbtorch.suggestions import did_you_mean

__all__ = ["Counts", "Margins", "at_prevalence", "margins", "merge_classes", "normalized", "one_vs_rest"]

Normalize: TypeAlias = Literal["true", "pred", "all"]

ROUNDING = 1e-9  # of the total: what differences of rates may leave below 0


class Margins(NamedTuple):
    """Margins of a confusion matrix, 3 x K numbers in place of K x K: all that the measures marked m need.

    Attributes:
        correct: ``[..., K]``, the diagonal: samples of each class that were predicted right.
        actual: ``[..., K]``, row sums: targets of each class.
        predicted: ``[..., K]``, column sums: predictions of each class.
    """

    correct: Tensor
    actual: Tensor
    predicted: Tensor


class CountedMargins(Margins):
    """Margins of one matrix or state, which cannot contradict one another: measures do not check them again.

    They stay inside: where a function is given to ``torch.vmap``, old versions know a NamedTuple but not its heirs.
    """

    __slots__ = ()


Counts: TypeAlias = Tensor | Margins
Measure: TypeAlias = Callable[[Any], Tensor]
"""A function of counts; of a user's own it is not known whether it takes Margins."""


def normalized(counts: Tensor, by: Normalize) -> Tensor:
    """Counts as rates: divided by row sums (``"true"``), column sums (``"pred"``) or the total (``"all"``); 0/0 is 0.

    Args:
        counts: ``[..., K, K]``.
        by: what to divide by.

    Returns:
        ``[..., K, K]``, float64 for integer counts, else the dtype of the counts.

    >>> normalized(torch.tensor([[3, 1], [0, 4]]), "true")
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    check_choice("by", by, get_args(Normalize))
    dims = {"true": (-1,), "pred": (-2,), "all": (-2, -1)}[by]
    wide = double(check_square(counts))
    return restore(ratio(wide, wide.sum(dims, keepdim=True)), counts)


def margins(counts: Counts) -> Margins:
    """Diagonal, row sums and column sums of a confusion matrix, in float64.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`Margins`, which are passed on in float64.

    Returns:
        :class:`Margins` of float64 ``[..., K]`` (on the CPU where the device has no float64). All of them are nan where
        the counts cannot be counts: a cell is nan or negative (below -1e-9 of the total), or margins contradict one
        another (more right samples than targets or predictions of a class, other totals of targets and predictions).

    >>> margins(torch.tensor([[8, 2], [1, 1]])).predicted
    tensor([9., 3.], dtype=torch.float64)
    >>> margins(torch.tensor([[8, 2], [-1, 1]])).predicted
    tensor([nan, nan], dtype=torch.float64)
    """
    if isinstance(counts, Margins):
        if not counts.correct.shape == counts.actual.shape == counts.predicted.shape:
            raise ValueError(
                "the tensors of Margins must have one shape [..., K], got "
                f"{[list(part.shape) for part in counts]} for correct, actual, predicted"
            )
        if isinstance(counts, CountedMargins):
            if counts.correct.dtype == torch.float64:
                return counts
            return CountedMargins(*(double(part) for part in counts))
        parts = Margins(*(double(part) for part in counts))
        possible = _consistent(parts, counts.correct.dtype)
    else:
        wide = double(counts) if check_square(counts).is_floating_point() else counts
        parts = Margins(*(double(part) for part in sums(wide)))  # of integers 3 K conversions, not K * K
        possible = _non_negative(wide, parts.actual.sum(-1))
    return Margins(*(torch.where(possible.unsqueeze(-1), part, torch.nan) for part in parts))


def one_vs_rest(counts: Counts) -> Counts:
    """Binary counts of each class against all others.

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`Margins` of ``[..., K]``.

    Returns:
        ``[..., K, 2, 2]`` (class 1 is the class itself, class 0 the rest), or :class:`Margins` of ``[..., K, 2]``.

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

    Rates keep the digits of rare classes: nothing that is small is a difference of what is large, but for the errors of
    more than two classes where margins are all that is given.

    Args:
        counts: ``[..., K, K]`` counts or rates, or their margins.
        own: their margins, int64 or float64.
    """
    tp, actual, predicted = own
    size = tp.shape[-1]
    if size == 2:
        fn = actual - tp
        return tp, fn, fn.flip(-1), tp.flip(-1)
    if not tp.is_floating_point():
        fp = predicted - tp
        return tp, actual - tp, fp, actual.sum(-1, keepdim=True) - actual - fp
    if isinstance(counts, Margins) or not counts.is_floating_point():
        fn, fp = _zero_if_rounding(actual - tp, actual), _zero_if_rounding(predicted - tp, predicted)
    else:
        errors = double(counts).masked_fill(torch.eye(size, dtype=torch.bool, device=tp.device), 0.0)
        known = tp - tp  # 0, and nan of what cannot be counts
        fn, fp = errors.sum(-1) + known, errors.sum(-2) + known
    targets, predictions = _sum_of_others(actual), _sum_of_others(predicted)
    few = targets <= predictions
    tn = torch.where(few, targets, predictions) - torch.where(few, fp, fn)
    return tp, fn, fp, _zero_if_rounding(tn, torch.minimum(targets, predictions))


def _sum_of_others(x: Tensor) -> Tensor:
    """Sum over the last dimension without each element itself, from both ends: a difference would lose rare classes."""
    none = torch.zeros_like(x[..., :1])
    before = torch.cat((none, x[..., :-1].cumsum(-1)), -1)
    return before + torch.cat((x[..., 1:].flip(-1).cumsum(-1).flip(-1), none), -1)


def merge_classes(
    counts: Tensor, groups: Mapping[str, Sequence[str]], class_names: Sequence[str]
) -> tuple[Tensor, tuple[str, ...]]:
    """Count groups of classes as one class each: counts of classes to those of superclasses.

    Taking one class of a group for another is right then. The classes that no group names stay as they are.

    Args:
        counts: ``[..., K, K]`` counts or rates. Margins do not do: they do not say which errors stay in a group.
        groups: name of a new class -> names of the classes that it is made of.
        class_names: K names, in the order of the counts.

    Returns:
        The counts ``[..., M, M]``, int64 for integers, else in their dtype, and the M names: each new class stands
        where the first of its classes stood.

    Raises:
        ValueError: for names that do not fit the counts or are not different, a group without classes, a class that
            does not exist or is in two groups, and a new name that a class outside the group has.

    >>> counts = torch.tensor([[5, 2, 1], [1, 6, 0], [0, 1, 4]])
    >>> merge_classes(counts, {"animal": ["cat", "dog"]}, ["cat", "dog", "car"])
    (tensor([[14,  1],
            [ 1,  4]]), ('animal', 'car'))
    """
    wide, names = _wide_enough(check_square(counts)), tuple(class_names)
    if len(names) != wide.shape[-1] or len(set(names)) != len(names):
        raise ValueError(f"class_names must be {wide.shape[-1]} different names, one for each class, got {list(names)}")
    _check_groups(groups, names)
    merged = {name: new for new, group in groups.items() for name in group}
    coarse = tuple(dict.fromkeys(merged.get(name, name) for name in names))
    place = torch.tensor([coarse.index(merged.get(name, name)) for name in names], device=wide.device)
    rows = wide.new_zeros((*wide.shape[:-2], len(coarse), len(names))).index_add(-2, place, wide)
    whole = wide.new_zeros((*wide.shape[:-2], len(coarse), len(coarse))).index_add(-1, place, rows)
    return restore(whole, counts), coarse


def _check_groups(groups: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    members = [name for group in groups.values() for name in group]
    if not set(members) <= set(names) or len(set(members)) != len(members) or not all(map(len, groups.values())):
        raise ValueError(
            f"groups must hold classes of {list(names)}, each in one; no group may be empty; got {dict(groups)}"
        )
    taken = [new for new, group in groups.items() if new in names and new not in group]
    if taken:
        raise ValueError(f"groups must not have the names {taken}, which classes outside them have")


def at_prevalence(counts: Counts, priors: Tensor | Sequence[float]) -> Counts:
    """The same classifier in another population: rows rescaled to other class shares.

    What the classifier does to each true class stays, which is an assumption about that population; how often the
    class comes changes. Every measure reads the result, since measures take rates as well as counts. Metrics do both
    in one step: ``metric.at_prevalence(priors)``, ``ImbalanceReport(..., prevalence=...)``.

    Args:
        counts: ``[..., K, K]``, or :class:`Margins` of two classes.
        priors: ``[K]`` (or ``[..., K]``) shares of the classes there; normalised to sum to 1.

    Returns:
        Rates of the shape of ``counts`` whose rows sum to the priors: float64 for integer counts, else their dtype.

    Raises:
        ValueError: for a negative prior, priors that do not fit the classes or sum to 0, a positive prior for a class
            without targets, or margins of more than two classes, which do not determine the predictions.

    >>> at_prevalence(torch.tensor([[9, 1], [2, 8]]), [0.99, 0.01])
    tensor([[0.8910, 0.0990],
            [0.0020, 0.0080]], dtype=torch.float64)
    """
    whole = _of_margins(counts) if isinstance(counts, Margins) else counts
    actual = double(check_square(whole)).sum(-1)
    share = torch.as_tensor(priors, dtype=torch.float64, device=actual.device)
    if share.shape[-1:] != actual.shape[-1:]:
        raise ValueError(f"priors must hold one share for each of {actual.shape[-1]} classes, got {list(share.shape)}")
    if not bool((share >= 0).all()) or not bool(((share.sum(-1) > 0) & share.sum(-1).isfinite()).all()):
        raise ValueError(f"priors must be finite, non-negative and not all 0, got {share.tolist()}")
    missing = (actual == 0) & (share > 0)
    if bool(missing.any()):
        classes = missing.reshape(-1, missing.shape[-1]).any(0).nonzero().flatten().tolist()
        raise ValueError(f"classes {classes} have no targets, so what becomes of them is unknown; give them prior 0")
    return rescaled(counts, share)


def rescaled(counts: Counts, share: Tensor) -> Counts:
    """Rates at the given class shares, unchecked and without waiting for a device.

    The share of a class without targets goes to the others; where no class with a share has targets, all rates are 0.
    """
    if isinstance(counts, Margins):
        scaled = margins(rescaled(_of_margins(counts), share))
        return Margins(*(restore(part, like) for part, like in zip(scaled, counts, strict=True)))
    return restore(rescaled_rows(matrix(counts), share), counts)


def rescaled_rows(rows: Tensor, share: Tensor) -> Tensor:
    """Float64 rows ``[..., R, C]`` whose sums become the shares ``[R]`` or ``[..., R]``; see :func:`rescaled`."""
    actual = rows.sum(-1)
    there = torch.where(actual > 0, share.to(rows.device), 0.0)
    there = ratio(there, there.sum(-1, keepdim=True))
    return ratio(rows, actual.unsqueeze(-1)) * there.unsqueeze(-1)


def _of_margins(counts: Margins) -> Tensor:
    """Matrix of two classes, in float64, from its margins, which determine it."""
    if counts.correct.shape[-1] != 2:
        raise ValueError(
            f"at_prevalence needs the whole matrix for {counts.correct.shape[-1]} classes: margins do not say "
            "where the errors of each class went; count with state='matrix'"
        )
    (tn, tp), (negatives, positives), _ = (part.unbind(-1) for part in margins(counts))
    return two_by_two(tn, negatives - tn, positives - tp, tp)


# --- small pieces that measures share -------------------------------------------------------------------------------


def check_square(counts: Counts) -> Tensor:
    """Return the tensor if it is ``[..., K, K]``, else raise."""
    if isinstance(counts, Margins):
        raise TypeError("counts must be the whole matrix here: Margins do not say which class was taken for which")
    if not isinstance(counts, Tensor):
        raise TypeError(f"counts must be a tensor [..., K, K] or Margins, got {type(counts).__name__}")
    if counts.ndim < 2 or counts.shape[-1] != counts.shape[-2]:
        raise ValueError(
            f"counts must be a confusion matrix [..., K, K], got shape {list(counts.shape)}; "
            "confusion_matrix(preds, target, task) makes one"
        )
    return counts


def two_by_two(tn: Tensor, fp: Tensor, fn: Tensor, tp: Tensor) -> Tensor:
    """Confusion matrices ``[..., 2, 2]`` of their four cells ``[...]``."""
    return torch.stack((torch.stack((tn, fp), -1), torch.stack((fn, tp), -1)), -2)


def matrix(counts: Counts) -> Tensor:
    """Confusion matrix in float64; all of it is nan where a cell is nan or negative (below -1e-9 of the total)."""
    wide = double(check_square(counts))
    return torch.where(_non_negative(wide, wide.sum((-2, -1)))[..., None, None], wide, torch.nan)


def _non_negative(counts: Tensor, total: Tensor) -> Tensor:
    """Return whether no cell of ``[..., K, K]`` is nan, or negative beyond rounding: bool ``[...]``."""
    cells = counts.detach()
    if not cells.numel():
        return torch.ones_like(total, dtype=torch.bool)
    # over all dimensions min is eight times as fast as amin for int64, but half as fast for floating counts
    least = cells.min() if cells.ndim == 2 and not cells.is_floating_point() else cells.amin((-2, -1))
    return double(least) >= -ROUNDING * total.detach()  # false for nan


def _consistent(parts: Margins, dtype: torch.dtype) -> Tensor:
    """Return whether a confusion matrix can have these margins, which were rounded to a dtype: bool ``[...]``."""
    correct, actual, predicted = (part.detach() for part in parts)
    if not correct.numel():
        return torch.ones_like(correct[..., :1].sum(-1), dtype=torch.bool)
    rounding = max(ROUNDING, correct.shape[-1] * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
    total = actual.sum(-1)
    least = torch.minimum(correct, torch.minimum(actual, predicted) - correct).amin(-1)
    apart = (total - predicted.sum(-1)).abs()
    return torch.minimum(least, -apart) >= -rounding * total  # false for nan


def has_float64(device: torch.device | None) -> bool:
    """Return whether a device (None for the default one) knows float64, which Apple's do not."""
    return (torch.get_default_device() if device is None else device).type != "mps"


def double(x: Tensor) -> Tensor:
    """To float64, on the CPU where the device has none."""
    if x.dtype == torch.float64:
        return x
    return (x if has_float64(x.device) else x.cpu()).double()


def _wide_enough(x: Tensor) -> Tensor:
    """To float64, or int64 for integers, so that sums and differences are exact."""
    return double(x) if x.is_floating_point() else x.long()


def _zero_if_rounding(difference: Tensor, total: Tensor) -> Tensor:
    """Put 0 where a difference of rates is what rounding left of 0: a root or a ratio would make much of it.

    Gradients pass unchanged.
    """
    if not difference.is_floating_point():
        return difference
    small = difference.abs() <= difference.shape[-1] * torch.finfo(difference.dtype).eps * total
    return difference - torch.where(small, difference, 0.0).detach()


def restore(value: Tensor, counts: Counts) -> Tensor:
    """Return a float64 value in the floating dtype and on the device of ``counts`` (float64 for integer counts)."""
    like = counts.correct if isinstance(counts, Margins) else counts
    return value.to(like) if like.is_floating_point() else value


def sums(counts: Counts) -> Margins:
    """Margins in the dtype of the counts, which are those of a state and need no check."""
    if isinstance(counts, Margins):
        return CountedMargins(*counts)
    return CountedMargins(counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1), counts.sum(-2))


def mapped(counts: Counts, change: Callable[[Tensor], Tensor]) -> Counts:
    """Counts of which the matrix, or each tensor of the margins, is changed alike."""
    return Margins(*map(change, counts)) if isinstance(counts, Margins) else change(counts)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Quotient with 0 where the denominator is 0, which is made infinite, so that gradients stay finite as well."""
    return numerator / denominator.masked_fill(denominator == 0, torch.inf)


def evaluated(measure: Measure, counts: Counts, name: str = "measure") -> Tensor:
    """Value of a measure, which must be one for each matrix; ``name`` is what an error calls it."""
    shape = counts.actual.shape[:-1] if isinstance(counts, Margins) else counts.shape[:-2]
    value = checked_function(measure, name)(counts)
    if not isinstance(value, Tensor) or value.shape != shape:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{name} must return {list(shape)}, one value for each matrix, got {got}; choose an average "
            "(a function of one's own indexes cells as counts[..., 0, 0])"
        )
    return double(value)


def checked_function(measure: Measure, name: str = "measure") -> Measure:
    """Return what is a function of counts; names and metrics, which reports take, are none."""
    if isinstance(measure, (str, type)) or not callable(measure) or hasattr(measure, "evaluate"):
        got = f"{measure!r}" if isinstance(measure, (str, type)) else f"a {type(measure).__name__}"
        raise TypeError(
            f"{name} must be a function of counts such as imbtorch.imbalance_accuracy, got {got}; metric.evaluate is "
            "that of a metric, report.measure(name) that of a name"
        )
    return measure


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise where an argument is none of the values that it can take."""
    if value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {choices}, got {value!r}{did_you_mean(value, allowed)}")
