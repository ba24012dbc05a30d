"""Columns of saved predictions, read as the indices and scores that metrics take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from imbtorch.counting.clusters import cluster_ids
from imbtorch.counting.tasks import UNEVEN
from imbtorch.metrics.shared_result import checked_names
from imbtorch.suggestions import did_you_mean, first_names

Array: TypeAlias = Any
"""NumPy array of any dtype; the type checker would ask for one."""
Kind: TypeAlias = Literal["strings", "integers", "booleans"]
WHOLE = np.iinfo(np.int64)
EXACT = 2**53  # up to which floating numbers hold every integer
NARROW = 1_000_000  # span of integer classes up to which a table finds their indices


@dataclass(frozen=True)
class Samples:
    """Predictions and targets as metrics take them.

    Attributes:
        task: task of the metrics.
        names: names of the classes or labels, in the order of their indices.
        preds: indices ``[N]``, for labels ``[N, L]``; or scores.
        target: indices ``[N]``, for labels ``[N, L]``.
        swapped: whether ``positive`` put the first of two classes last.
    """

    task: Literal["binary", "multiclass", "multilabel"]
    names: tuple[str, ...]
    preds: Tensor
    target: Tensor
    swapped: bool = False

    @property
    def scored(self) -> bool:
        """True if predictions are scores."""
        return self.preds.is_floating_point()


class _Classes:
    """Classes of saved targets, and their indices.

    Args:
        target: true classes, as :func:`_labels` returns them.
        kind: type of the classes.
        class_names: classes in their order, or names of the integers from 0 on.
        columns: number of columns of scores without names; None for classes, a single score and named columns.
        positive: positive one of two classes.

    Attributes:
        names: names of the classes, in the order of their indices.
        binary: whether the last of two classes is the positive one.
        swapped: whether ``positive`` put the first of two classes last.
    """

    def __init__(
        self, target: Array, kind: Kind, class_names: Sequence[Any] | None, columns: int | None, positive: Any
    ) -> None:
        self.kind = kind
        given = None if class_names is None else checked_names([str(name) for name in _listed(class_names)])
        classes, names = self._in_order(_unique(target), given, columns)
        if len(names) < 2:
            raise ValueError(f"target holds one class only, {names[0]!r}; name all classes by class_names=[...]")
        self.swapped = False
        self.binary = len(names) == 2 and (kind != "strings") and set(classes) == {0, 1}
        if positive is not None:
            self.swapped, self.binary = _is_first(positive, names), True
        elif self.binary:
            self.swapped = classes[0] == 1
        order = -1 if self.swapped else 1
        self.names = tuple(names[::order])
        self.index = {each: at for at, each in enumerate(classes[::order])}

    def _in_order(
        self, present: list[Any], names: list[str] | None, columns: int | None
    ) -> tuple[list[Any], list[str]]:
        """Return the classes in the order of their indices, and their names."""
        if names is not None:
            return self._named(names, present), names
        if self.kind == "booleans":
            return [0, 1], ["False", "True"]
        if self.kind == "integers":
            if columns is not None and columns > 2:
                _check_first(present, columns)
            from_zero = list(range(columns or 2))
            if set(present) <= set(from_zero):
                return from_zero, list(map(str, from_zero))
        return present, list(map(str, present))

    def _named(self, names: list[str], present: Sequence[Any]) -> list[Any]:
        """Return the class of each name; names that are none of the classes number the integers from 0 on."""
        if self.kind == "strings":
            return list(names)
        texts = {name: int(name) for name in names if _is_int(name)}
        texts = {"False": 0, "True": 1} if self.kind == "booleans" else texts
        found = [texts[name] for name in names if name in texts]
        if len(found) == len(names) and set(present) <= set(found):
            return found
        return list(range(len(names)))

    def encode(self, name: str, values: Array, kind: Kind) -> Tensor:
        """Return the indices of classes ``[N]``.

        Raises:
            ValueError: for a class that is none of these.
            TypeError: for classes of another type.
        """
        if "strings" in (kind, self.kind) and kind != self.kind:
            raise TypeError(f"target holds {self.kind} and {name} {kind}; convert one of them")
        if self.kind == "strings":
            known = self.index
            codes = np.array([known.get(each, -1) for each in values], dtype=np.int64)
        else:
            codes = _codes(values, self.index)
        if len(codes) and codes.min() < 0:
            row = int((codes < 0).argmax())
            wrong = values[row] if self.kind == "strings" else int(values[row])
            where = f"{name} holds {wrong!r} in row {row}, which "
            remedy = "if it is a class, name all classes by class_names=[...]"
            if name == "target":
                raise ValueError(f"{where}is none of class_names ({first_names(self.names)}); add it there")
            raise ValueError(
                f"{where}no target has ({first_names(self.names)}){did_you_mean(str(wrong), self.names)}; {remedy}"
            )
        return torch.from_numpy(codes)


def _check_first(present: Sequence[int], columns: int) -> None:
    """Raise if columns of scores may be the classes from 0 on or those from 1 on."""
    if present[0] > 0 and present[-1] < columns:
        raise ValueError(
            f"target holds neither 0 nor {columns}, so that the {columns} columns of preds may be the classes 0 to "
            f"{columns - 1} or 1 to {columns}; name them by class_names=[...]"
        )


def _is_first(positive: Any, names: Sequence[str]) -> bool:
    """Return whether the first of two classes is the positive one; raise if neither is."""
    if len(names) != 2:
        raise ValueError(
            f"positive is for two classes, but there are {len(names)}: {first_names(names)}; leave it out, or report "
            "one class against the rest: target == positive"
        )
    if str(positive) not in names:
        raise ValueError(
            f"positive is {positive!r}, which is none of the classes {first_names(names)}"
            f"{did_you_mean(str(positive), names)}"
        )
    return names.index(str(positive)) == 0


def encoded(
    target: Any, *preds: Any, class_names: Sequence[Any] | None = None, positive: Any = None
) -> tuple[tuple[str, ...], bool, list[Tensor]]:
    """Read the classes of targets and of the predictions of several models.

    Args:
        target: true classes ``[N]``, as :func:`report` takes them.
        preds: predicted classes ``[N]`` of each model.
        class_names: classes in their order, as in :func:`report`.
        positive: positive one of two classes.

    Returns:
        Names of the classes, whether the last of two is the positive one, and the indices of targets and predictions.

    Raises:
        ValueError: as :func:`report`.
        TypeError: as :func:`report`.
    """
    truth, kind = _labels("target", as_array("target", target))
    classes = _Classes(truth, kind, class_names, None, positive)
    found = [classes.encode("target", truth, kind)]
    for each in preds:
        given = as_array("preds", each)
        _check_length("preds", given, len(truth))
        found.append(classes.encode("preds", *_labels("preds", given)))
    return classes.names, classes.binary, found


def read_classes(preds: Any, target: Any, class_names: Sequence[Any] | None, positive: Any, logits: bool) -> Samples:
    """Read predictions of one class for each sample."""
    truth, kind = _labels("target", as_array("target", target))
    table = _columns("preds", preds) if is_table(preds) else None
    given = None if table is not None else as_array("preds", preds)
    columns = given.shape[1] if given is not None and given.ndim == 2 else None
    classes = _Classes(truth, kind, class_names, columns, positive)
    task: Literal["binary", "multiclass"] = "binary" if classes.binary else "multiclass"
    indices = classes.encode("target", truth, kind)
    if given is not None and given.ndim == 1 and given.dtype.kind != "f":
        _check_length("preds", given, len(truth))
        labels, of_preds = _labels("preds", given)
        return Samples(task, classes.names, classes.encode("preds", labels, of_preds), indices, classes.swapped)
    scores = _class_scores(given, table, classes, len(truth), logits)
    return Samples(task, classes.names, torch.from_numpy(np.ascontiguousarray(scores)), indices, classes.swapped)


def _class_scores(
    given: Array | None, table: Mapping[str, Array] | None, classes: _Classes, rows: int, logits: bool
) -> Array:
    """Return scores ``[N]`` of the positive class, or ``[N, K]`` in the order of the classes."""
    names = list(classes.names[::-1] if classes.swapped else classes.names)
    if table is not None:
        names = [names[-1 - classes.swapped]] if classes.binary and list(table) == [classes.names[-1]] else names
        scores = _stacked(table, names, rows)
        scores = scores[:, 0] if len(names) == 1 else scores
    else:
        scores = _scores("preds", given, names, rows)
    if scores.ndim == 1 and not classes.binary:
        raise ValueError(
            f"preds are one score for each sample, but the classes are {first_names(names)}: floating preds are scores "
            "(convert classes to integers); of two classes name the positive one by positive=, of several pass scores "
            "of all classes, [N, K]"
        )
    _check_scores(scores, names, logits)
    return scores[:, ::-1] if scores.ndim == 2 and classes.swapped else scores


def read_labels(preds: Any, target: Any, class_names: Sequence[Any] | None, positive: Any, logits: bool) -> Samples:
    """Read predictions of several labels for each sample."""
    if positive is not None:
        raise ValueError("positive is for two classes, but target has several columns, of which 1 is positive")
    names = None if class_names is None else checked_names([str(name) for name in _listed(class_names)])
    if is_table(target):
        columns = _columns("target", target)
        if len(columns) == 1:
            raise ValueError(
                f"target is a table of one column; pass the column itself, target[{next(iter(columns))!r}]"
            )
        names = list(columns) if names is None else names
        truth = _stacked(columns, names, None, "target")
    else:
        truth = as_array("target", target)
        if truth.ndim != 2 or truth.shape[1] < 2:
            remedy = "; pass target[:, 0]" if truth.ndim == 2 else ""
            raise ValueError(f"target must be [N], or [N, L] for labels, got the shape {list(truth.shape)}{remedy}")
        names = [str(index) for index in range(truth.shape[1])] if names is None else names
        truth = _scores("target", truth, names, None)
    wrong = ~np.isin(truth, (0, 1))
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        raise ValueError(
            f"target holds {truth[row, column]:g} in row {row}, column {names[column]!r}, but labels are 0 and 1; for "
            "one class of each sample pass one column"
        )
    if is_table(preds):
        columns = _columns("preds", preds)
        floating = any(each.dtype.kind == "f" for each in columns.values())
        scores = _stacked(columns, names, len(truth))
    else:
        given = as_array("preds", preds)
        floating, scores = given.dtype.kind == "f", _scores("preds", given, names, len(truth))
    _check_scores(scores, names, logits, whole=False)
    if not floating:
        scores = scores.astype(np.int64)
    indices = torch.from_numpy(truth.astype(np.int64))
    return Samples("multilabel", tuple(names), torch.from_numpy(np.ascontiguousarray(scores)), indices)


def is_table(given: Any) -> bool:
    """Return whether values are a mapping or a DataFrame of columns."""
    return isinstance(given, Mapping) or (hasattr(given, "columns") and hasattr(given, "to_numpy"))


def _columns(name: str, given: Any) -> dict[str, Array]:
    """Return the columns of a table by name."""
    keys = list(given) if isinstance(given, Mapping) else list(given.columns)
    if not keys:
        raise ValueError(f"{name} has no columns")
    return {str(key): as_array(f"{name}[{key!r}]", given[key]) for key in keys}


def as_array(name: str, given: Any) -> Array:
    """Convert values to an array."""
    if isinstance(given, Tensor):
        dense = given.detach().cpu()
        return (dense.float() if dense.dtype == torch.bfloat16 else dense).numpy()
    if given is None:
        raise TypeError(f"{name} must hold a value for each sample, got None")
    try:
        found: Array = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} must be one column, or rows of equal length: {error}") from error
    if found.ndim == 0:
        raise TypeError(f"{name} must hold a value for each sample, got {given!r}")
    if isinstance(given, np.ma.MaskedArray):
        _refuse_missing(name, np.ma.getmaskarray(given).reshape(len(found), -1).any(1))
    if found.dtype == object and found.size and all(type(each) is float for each in found.flat):
        return found.astype(float)
    if found.dtype.kind == "U" and isinstance(given, (list, tuple)):  # NumPy turns numbers among strings into strings
        return np.array(given, dtype=object)
    return found


def _listed(names: Any) -> list[Any]:
    """Return class names as a list of Python values."""
    if isinstance(names, (str, Mapping)) or not isinstance(names, Iterable):
        raise TypeError(f"class_names must be a sequence in the order of the classes, such as a list, got {names!r}")
    return list(names.tolist() if isinstance(names, (Tensor, np.ndarray)) else names)


def _labels(name: str, given: Array) -> tuple[Array, Kind]:
    """Return classes ``[N]`` as strings in a list or int64, and their type.

    Raises:
        ValueError: for missing values and numbers that are not whole.
        TypeError: for anything else but strings, integers and booleans.
    """
    if not len(given):
        raise ValueError(f"{name} is empty, so there is nothing to report")
    if given.dtype.kind == "b":
        return given.astype(np.int64), "booleans"
    if given.dtype.kind in "iu":
        _refuse_huge(name, given > WHOLE.max)
        return given.astype(np.int64, copy=False), "integers"
    if given.dtype.kind == "f":
        missing, broken = np.isnan(given), given != np.floor(given)
        _refuse_missing(name, missing)
        _refuse_huge(name, np.abs(given) > EXACT)
        if broken.any():
            row = int(broken.argmax())
            raise ValueError(f"{name} holds {given[row]:g} in row {row}, which is no class; pass integers or strings")
        return given.astype(np.int64), "integers"
    values = given.tolist()
    types = set(map(type, values))
    if not types <= {str, bool, int} or "" in values:
        _refuse_missing(name, np.array([_is_missing(each) for each in values]))
    if all(issubclass(each, str) for each in types):
        return values, "strings"
    if types == {bool}:
        return np.array(values, dtype=np.int64), "booleans"
    if all(issubclass(each, (int, np.integer)) for each in types - {bool}):
        _refuse_huge(name, np.array([not WHOLE.min <= each <= WHOLE.max for each in values]))
        return np.array(values, dtype=np.int64), "integers"
    first = type(values[0]) if isinstance(values[0], (str, int)) else str
    row = next(at for at, each in enumerate(values) if type(each) is not first)
    raise TypeError(
        f"{name} must hold strings, integers or booleans, all of one type, got {values[row]!r} in row {row}; convert "
        "all of them to strings"
    )


def _is_missing(value: Any) -> bool:
    """Return whether a class is missing: None, NaN, pandas' NA, or an empty string."""
    if value is None or isinstance(value, str):
        return not value
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)


def _refuse_missing(name: str, missing: Array) -> None:
    """Raise for values that are missing."""
    if missing.any():
        raise ValueError(
            f"{name} has no value in row {int(missing.argmax())} ({int(missing.sum())} of {len(missing)}); leave these "
            "rows out of all arguments"
        )


def _refuse_huge(name: str, huge: Array) -> None:
    """Raise for integers that int64, or the floating numbers that hold them, cannot tell apart."""
    if huge.any():
        raise ValueError(
            f"{name} holds a number in row {int(huge.argmax())} that is too large for a class; pass classes as strings"
        )


def _unique(values: Array) -> list[Any]:
    """Return the different classes, sorted."""
    if isinstance(values, list):
        return sorted(set(values))
    least, most = int(values.min()), int(values.max())
    if most - least < NARROW:
        return (np.bincount(values - least).nonzero()[0] + least).tolist()
    return list(np.unique(values).tolist())


def _codes(values: Array, index: Mapping[int, int]) -> Array:
    """Return the index of each integer class, -1 for others."""
    keys = np.array(sorted(index), dtype=np.int64)
    least, most = int(keys[0]), int(keys[-1])
    if all(key == at for key, at in index.items()):
        return np.where((values < 0) | (values > most), -1, values)
    if most - least < NARROW:
        table = np.full(most - least + 2, -1, dtype=np.int64)  # the last entry is that of values out of range
        table[keys - least] = [index[key] for key in keys.tolist()]
        inside = (values >= least) & (values <= most)
        return table[np.where(inside, values - least, -1)]
    place = np.searchsorted(keys, values).clip(max=len(keys) - 1)
    found = np.array([index[key] for key in keys.tolist()])[place]
    return np.where(keys[place] == values, found, -1)


def _is_int(text: str) -> bool:
    """Return whether a text is that of an integer."""
    return text.removeprefix("-").isdecimal() and str(int(text)) == text


def _check_length(name: str, given: Array, rows: int) -> None:
    """Raise unless there is a value for each target."""
    if len(given) != rows:
        raise ValueError(f"{name} has {len(given)} rows and target {rows}; both must be of the same samples")


def _numbers(name: str, given: Array) -> Array:
    """Convert numbers to floats that torch can count, float32 at least."""
    if given.dtype.kind not in "fbiu":
        try:
            given = np.array([np.nan if _is_missing(each) else each for each in given.flatten().tolist()], dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must hold numbers: {error}") from error
    return given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)


def _stacked(columns: Mapping[str, Array], names: Sequence[str], rows: int | None, argument: str = "preds") -> Array:
    """Stack columns in the order of the classes, ``[N, K]``; raise unless there is one for each class."""
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise ValueError(
            f"column {unknown[0]!r} of {argument} matches no class; classes are {first_names(names)}"
            f"{did_you_mean(unknown[0], names)}; leave the column out, or name all classes by class_names=[...]"
        )
    lacking = [name for name in names if name not in columns]
    if lacking:
        raise ValueError(f"{argument} has no column for {first_names([repr(name) for name in lacking])}; add it")
    least = len(next(iter(columns.values()))) if rows is None else rows
    found = []
    for name in names:
        _check_length(f"column {name!r} of {argument}", columns[name], least)
        if columns[name].ndim != 1:
            raise ValueError(f"column {name!r} of {argument} must be [N], got {list(columns[name].shape)}")
        found.append(_numbers(f"column {name!r} of {argument}", columns[name]))
    return np.stack(found, -1)


def _scores(argument: str, given: Array, names: Sequence[str], rows: int | None) -> Array:
    """Return scores as numbers; raise unless there is one for each sample, or a column for each class."""
    if rows is not None:
        _check_length(argument, given, rows)
    if given.ndim > 2 or (given.ndim == 2 and given.shape[1] != len(names)):
        remedy = f"; for one score pass {argument}[:, 0]" if given.ndim == 2 and given.shape[1] == 1 else ""
        raise ValueError(
            f"{argument} has the shape {list(given.shape)}, but there are {len(names)} classes ({first_names(names)}), "
            f"each of which needs a column{remedy}; class_names=[...] names all classes"
        )
    flat = _numbers(argument, given)
    return flat.reshape(given.shape)


def _check_scores(scores: Array, names: Sequence[str], logits: bool, whole: bool = True) -> None:
    """Raise for NaN, and unless scores are probabilities or ``logits``.

    Args:
        scores: ``[N]`` or ``[N, K]``.
        names: names of the columns.
        logits: whether scores are logits.
        whole: whether the probabilities of a sample must sum to 1.
    """

    def where(wrong: Array) -> str:
        row, *column = map(int, np.argwhere(wrong)[0])
        return f"in row {row}" + (f", column {names[column[0]]!r}" if column else "")

    def value(wrong: Array) -> float:
        return float(scores[tuple(np.argwhere(wrong)[0])])

    missing = np.isnan(scores)
    if missing.any():
        raise ValueError(f"preds hold NaN {where(missing)} ({int(missing.sum())} values); leave these rows out")
    if logits:
        return
    outside = (scores < 0) | (scores > 1)
    if outside.any():
        raise ValueError(
            f"preds must be probabilities in [0, 1], got {value(outside):g} {where(outside)} ({int(outside.sum())} "
            "values); pass logits=True for logits"
        )
    if whole and scores.ndim == 2:
        sums = scores.sum(-1, dtype=np.float64)
        uneven = np.abs(sums - 1) > UNEVEN
        if uneven.any():
            row = int(uneven.argmax())
            raise ValueError(
                f"preds must sum to 1 over the classes, got {sums[row]:g} in row {row} ({int(uneven.sum())} rows); "
                "pass logits=True for logits"
            )


def read_clusters(given: Any, rows: int) -> Tensor:
    """Return the ids of clusters, int64 ``[N]``."""
    found = as_array("cluster", given)
    _check_length("cluster", found, rows)
    if found.dtype.kind in "iu":
        return torch.from_numpy(found.astype(np.int64))
    values = found.tolist()
    _refuse_missing("cluster", np.array([_is_missing(each) for each in values]))
    return cluster_ids(values)


def read_weights(given: Any, rows: int) -> Tensor:
    """Return weights, float64 ``[N]``."""
    found = _numbers("weight", as_array("weight", given)).astype(np.float64)
    _check_length("weight", found, rows)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"weight must be finite and not negative, got {found[row]:g} in row {row}")
    return torch.from_numpy(found)


def keyed_by_name(given: Any) -> Any:
    """Return a mapping of classes with their names as keys, and anything else as it is."""
    return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else given
