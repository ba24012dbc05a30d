"""Checks of what a user gives to be counted: numbers, thresholds, tensors, groups and weights."""

from __future__ import annotations

import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, ParamSpec, TypeAlias, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor

from imbtorch.counts import check_choice
from imbtorch.errors import check_tensor
from imbtorch.kernels import integers
from imbtorch.suggestions import did_you_mean

__all__ = ["Layout", "Task", "Threshold"]

Task: TypeAlias = Literal["binary", "multiclass", "multilabel"]
Layout: TypeAlias = Literal["matrix", "margins"]
Threshold: TypeAlias = float | Sequence[float] | Tensor
P = ParamSpec("P")
R = TypeVar("R")

SOFT = 0.02  # share of soft counts that soft=True stands for: it breaks ties and near-ties, and little else

ELSEWHERE = {
    "average": "an average belongs to a measure, as in measures={'f1': functools.partial(FScore, average='weighted')}",
    "multidim_average": "all samples are counted together, as by 'global', so leave it out; for a value of each sample "
    "('samplewise') give the functions of measures a stack of matrices, [N, K, K], one confusion_matrix for each",
    "top_k": "the highest score alone is predicted, so leave out 1; to count one of the k highest as right, as "
    "torchmetrics does, pass preds=torch.where((scores.topk(k, 1).indices == target.unsqueeze(1)).any(1), target, "
    "scores.argmax(1))",
    "validate_args": "every input is checked, without waiting for the device, so leave it out; on_invalid='warn' of a "
    "metric or report leaves out the samples that cannot be counted, and says how many",
    "zero_division": "each measure has one rule for 0/0, which its docstring tells, so leave it out",
}  # arguments of torchmetrics and scikit-learn, and what to do instead


def refuse_arguments_of_others(name: str, given: Iterable[str]) -> None:
    """Raise for arguments that torchmetrics or scikit-learn have, saying what to do instead."""
    known = [argument for argument in given if argument in ELSEWHERE]
    if known:
        remedies = "; ".join(f"{argument}: {ELSEWHERE[argument]}" for argument in known)
        raise TypeError(f"{name} takes no {', '.join(known)}. {remedies}")


def refuses_arguments_of_others(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function say what to do in place of arguments that it does not have, such as those of torchmetrics."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_arguments_of_others(function.__name__, kwargs)
        for name in kwargs:
            if name not in parameters:
                raise TypeError(f"{function.__name__} has no argument {name!r}{did_you_mean(name, parameters)}")
        return function(*args, **kwargs)

    return wrapped


def real_number(name: str, value: object) -> float:
    """Return a real number of any kind (of NumPy's, say) as a float."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name} must be a number, got {reprlib.repr(value)}")
    return float(value)


def whole_number(name: str, value: object, expected: str = "an int") -> int:
    """Return an integer of any kind (of NumPy's, say) as an int."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    try:
        return operator.index(cast(int, value))
    except TypeError:
        raise TypeError(f"{name} must be {expected}, got {reprlib.repr(value)}") from None


def spread(name: str, values: object, target: Tensor, counted: Tensor) -> Tensor:
    """Return values of samples in the shape of what is counted of them.

    Args:
        name: what errors call them.
        values: one for each target, or for its first dimensions.
        target: as the user gave it.
        counted: as it is counted: of multiclass scores that are swept, with the classes in a dimension of their own.
    """
    check_tensor(name, values)
    given = cast(Tensor, values)
    if given.device != target.device:
        raise ValueError(f"{name} is on {given.device} but target is on {target.device}; move one of them")
    if given.shape != target.shape[: given.ndim] or given.ndim < min(1, target.ndim):
        fitting = [list(target.shape[:1]), list(target.shape)][: max(1, target.ndim)]
        raise ValueError(
            f"{name} must hold one for each sample, {' or '.join(map(str, fitting))} for target "
            f"{list(target.shape)}, got {list(given.shape)}"
        )
    if given.shape == counted.shape:
        return given
    given = given.reshape(*given.shape, *[1] * (target.ndim - given.ndim))
    return (given.unsqueeze(1) if counted.ndim > target.ndim else given).expand(counted.shape)


def group_of_each(group: Tensor | int, target: Tensor, counted: Tensor) -> Tensor | int:
    """Return the group of each sample, int64 in the shape of what is counted, or of all; see :func:`spread`."""
    if not isinstance(group, Tensor):
        return whole_number("group", group, "a tensor [N] of indices of groups, or an int")
    if group.dtype == torch.int64 and group.shape == target.shape == counted.shape and group.device == target.device:
        return group  # as it comes most often: to check all else costs as much as counting some
    if group.is_floating_point() or group.is_complex():
        raise TypeError(f"group must hold integers, got {group.dtype}; use group.long()")
    wide = group.expand(target.shape[:1]) if group.ndim == 0 else group
    return integers(spread("group", wide, target, counted))


def checked_task(task: Task | None) -> Task:
    """Return the task, which must be given and known."""
    if task is None:
        raise ValueError(
            "task=None is missing; the first argument must be 'binary', 'multiclass' or 'multilabel', as in "
            "ImbalanceAccuracy('multiclass', num_classes=3)"
        )
    check_choice("task", task, get_args(Task))
    return task


def check_flag(name: str, value: object) -> None:
    """Raise for what is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def checked_size(task: Task, num_classes: int | None, num_labels: int | None) -> int:
    """Return the number of classes, or of labels for multilabel."""
    if task == "binary" and num_classes is None:
        num_classes = 2
    wanted, given, other, superfluous = ("num_classes", num_classes, "num_labels", num_labels)
    if task == "multilabel":
        wanted, given, other, superfluous = other, superfluous, wanted, given
    if superfluous is not None:
        raise ValueError(f"task={task!r} takes {wanted}, got {other}={superfluous!r}")
    if given is None:
        raise ValueError(f"task={task!r} needs {wanted}: the number of {wanted[4:]}, as in {wanted}=10")
    size, least = whole_number(wanted, given), 1 if task == "multilabel" else 2
    if task == "binary" and size != 2:
        raise ValueError(f"task='binary' has two classes, got num_classes={size}; use task='multiclass'")
    if size < least:
        raise ValueError(f"{wanted} must be at least {least}, got {size}")
    return size


def checked_threshold(task: Task, threshold: object) -> float:
    """Return the threshold as a float."""
    value = real_number("threshold", threshold)
    if not 0 <= value <= 1:
        raise ValueError(f"threshold must be a probability in [0, 1] (for logits too), got {threshold!r}")
    if task == "multiclass" and value != 0.5:
        raise ValueError(
            f"threshold={threshold!r} has no meaning for task='multiclass', where the highest score is predicted; "
            "use task='binary' or 'multilabel', or threshold the scores yourself"
        )
    return value


def checked_thresholds(task: Task, size: int, threshold: object) -> float | tuple[float, ...]:
    """Return the threshold as a float, those of labels as a tuple of them."""
    if isinstance(threshold, (Tensor, np.ndarray)) and threshold.ndim > 0:
        threshold = threshold.tolist()
    if isinstance(threshold, str) or not isinstance(threshold, Sequence):
        return checked_threshold(task, threshold)
    if task != "multilabel":
        raise ValueError(
            f"threshold={threshold!r} holds one for each label, which task={task!r} does not have; give one number, or "
            "use task='multilabel'"
        )
    if len(threshold) != size:
        raise ValueError(f"threshold must be one number, or one for each of {size} labels, got {len(threshold)}")
    numbers = [each.item() if isinstance(each, Tensor) and each.ndim == 0 else each for each in threshold]
    return tuple(checked_threshold(task, each) for each in numbers)


def checked_soft(soft: object) -> float:
    """Return the share of soft counts; 0 for none."""
    if isinstance(soft, (bool, np.bool_)):
        return SOFT if soft else 0.0
    if not isinstance(soft, (int, float, np.floating, np.integer)):
        raise TypeError(f"soft must be True, False or a share between 0 and 1, got {soft!r}")
    share = float(soft)
    if share != 0 and not 0 < share < 1:
        raise ValueError(
            f"soft must be above 0 and below 1, got {soft!r}: it is the share of soft counts beside the hard ones; "
            f"soft=True takes {SOFT}"
        )
    return share
