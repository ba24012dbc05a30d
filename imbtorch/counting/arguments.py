"""Checks of a user's arguments and batches, with error messages that name the remedy."""

from __future__ import annotations

import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, strided

from imbtorch.counting.batches import FAULTS
from imbtorch.counting.kernels import integers
from imbtorch.counts import check_choice
from imbtorch.suggestions import did_you_mean, first_names


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError unless a value is a dense tensor of real numbers that torch can compare."""
    if not isinstance(value, Tensor):
        got = "None" if value is None else type(value).__name__
        remedy = f"; use torch.as_tensor({name})"
        if value is None or isinstance(value, (str, Mapping)):
            remedy = ""
        elif isinstance(value, (list, tuple)) and any(isinstance(each, str) for each in value):
            remedy = "; imbtorch.report(preds=..., target=...) takes names of classes"
        elif isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
            joined = "stack" if len({each.shape for each in value if isinstance(each, Tensor)}) == 1 else "cat"
            remedy = f"; use torch.{joined}({name})"
        elif callable(value):
            remedy = "; check the order of the arguments"
        raise TypeError(f"{name} must be a torch.Tensor, got {got}{remedy}")
    kind = type(value).__name__
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}; use {name}.real or {name}.abs()")
    if value.is_nested:
        raise TypeError(f"{name} must be an ordinary tensor, got a nested one; use torch.cat({name}.unbind())")
    if value.layout is not strided:
        raise TypeError(f"{name} must be a dense tensor, got {value.layout}; use {name}.to_dense()")
    if kind in ("MaskedTensor", "DTensor"):
        raise TypeError(f"{name} must be an ordinary tensor, got a {kind}; use {_plain(name, value)}")
    if value.is_floating_point() and value.itemsize == 1:
        raise TypeError(f"{name} must have a dtype that torch can compare, got {value.dtype}; use {name}.float()")


def _plain(name: str, value: Any) -> str:
    """Return the expression for an ordinary tensor, of a distributed one with the samples of this process alone."""
    if type(value).__name__ == "MaskedTensor":
        return f"{name}.to_tensor(ignore_index)"
    own = all(each.is_shard(0) for each in value.placements)  # a full tensor would be counted by each process
    return f"{name}{'' if own else f'.redistribute(placements=[Shard(0)] * {name}.device_mesh.ndim)'}.to_local()"


def check_class_indices(name: str, labels: Tensor, *, predicted: bool) -> None:
    """Raise TypeError unless labels are a dense tensor of integers or bools; the remedy depends on ``predicted``."""
    check_tensor(name, labels)
    if labels.is_floating_point():
        remedy = "pass classes: scores.argmax(-1), or (scores > 0.5).long()" if predicted else f"use {name}.long()"
        raise TypeError(f"{name} must hold class indices, got {labels.dtype}; {remedy}")


def check_pair(preds: Tensor, target: Tensor) -> None:
    """Raise TypeError for predictions or targets of a wrong type, ValueError if they are on different devices."""
    check_tensor("preds", preds)
    check_tensor("target", target)
    if target.is_floating_point():
        remedy = "use target.long()"
        if not preds.is_floating_point():
            remedy += ", or swap the arguments if these are the scores: update(preds, target)"
        if target.ndim > 1 and (target.shape == preds.shape or target.ndim > preds.ndim):
            remedy += ", or target.argmax(1) if it is one-hot"
        raise TypeError(f"target must hold integers or bools, got {target.dtype}; {remedy}")
    if preds.device != target.device:
        raise ValueError(f"preds are on {preds.device} but target is on {target.device}; move one of them")


# --- shapes ---------------------------------------------------------------------------------------------------------


def misfit(preds: Tensor, target: Tensor, task: str) -> str:
    """Return the error message for predictions whose shape does not fit the targets."""
    remedy = ""
    if preds.numel() == target.numel():
        remedy = "; use preds.reshape(target.shape) if their elements are in the same order"
    elif preds.ndim == target.ndim + 1 and task == "multiclass":
        remedy = "; integer preds are class indices; if they are scores, use preds.float()"
    elif target.ndim == preds.ndim + 1 and task != "multilabel":
        remedy = "; use target.argmax(1) if target is one-hot"
    elif preds.ndim == target.ndim + 1 and task == "binary":
        remedy = " or scores of both classes, [N, 2, ...]; for one score per class use task='multiclass'"
        if preds.shape == (*target.shape, 2):
            remedy = " or scores of both classes, [N, 2, ...]; use preds.movedim(-1, 1)"
    return (
        f"preds and target do not fit: got shapes {list(preds.shape)} and {list(target.shape)}, expected preds of "
        f"shape {list(target.shape)}{remedy}"
    )


def misfit_of_class_scores(preds: Tensor, target: Tensor, classes: int, sized_by_names: bool = False) -> str:
    """Return the error message for scores that are not ``[N, C, ...]`` for targets ``[N, ...]``."""
    shapes = f"got shapes {list(preds.shape)} and {list(target.shape)}"
    if target.ndim == 0:
        return f"preds and target need a batch dimension, {shapes}; use preds.unsqueeze(0) and target.unsqueeze(0)"
    if preds.ndim != target.ndim + 1:
        remedy = "reshape one of them"
        if preds.shape == target.shape:
            remedy = "use preds.long() if they are class indices"
            remedy += ", or target.argmax(1) if target is one-hot" * (target.ndim > 1)
        return f"floating preds must be scores [N, C, ...] for target [N, ...], {shapes}; {remedy}"
    if preds.ndim > 2 and preds.shape == (*target.shape, classes):
        remedy = "use preds.movedim(-1, 1)"
        if target.ndim == 2 and target.shape[0] == 1:  # a loader takes each list of indices as one sample
            remedy += ", or give an ExactBatchSampler to the DataLoader as batch_sampler=, not as sampler="
        return f"preds must have the classes in dimension 1, [N, C, ...], {shapes}; {remedy}"
    if preds.shape[1] != classes:
        many = preds.shape[1]
        found, remedy = f"{many} classes", f"pass num_classes={many} (or {many} class_names) to the metric"
        limit = f"num_classes={classes}"
        if sized_by_names:
            limit, remedy = f"class_names has {classes} names", f"name {many} classes"
        if preds.shape[1] == 1:
            found, remedy = "1 class", "use task='binary' and preds.squeeze(1) for one score per sample"
        return f"preds hold scores of {found} but {limit}; {remedy}, or check the last layer of the model"
    expected = [target.shape[0], classes, *target.shape[1:]]
    return f"preds and target do not fit: {shapes}, expected preds of shape {expected}; reshape one of them"


# --- values ---------------------------------------------------------------------------------------------------------


def value_message(
    fault: int,
    values: Tensor,
    samples: int,
    target: Tensor,
    *,
    task: str,
    classes: int,
    groups: int,
    group_names: Sequence[str] | None = None,
    logits: bool,
    sized_by_names: bool = False,
) -> str:
    """Return the error message for a fault of a batch; it quotes the first of the offending values.

    The fault is an index into :data:`~imbtorch.counting.batches.FAULTS`, ``samples`` the number of values in the batch
    and ``target`` all of its targets; what follows are settings of the metric.
    """
    value, many = values.flatten()[0].item(), f"({values.numel()} of {samples} values)"
    remedy = "pass logits=True for raw scores"
    match FAULTS[fault]:
        case "NaN scores":
            wrong = "NaN scores" + ", or infinite logits whose probability is undefined" * logits
            return f"preds hold {wrong} {many}; the usual cause is a diverged model: check its loss"
        case "probabilities outside [0, 1]":
            if bool((values > 0).all()):
                remedy = "divide percentages by 100, or pass logits=True for raw scores"
            return f"preds must be probabilities in [0, 1], got {value:.6g} {many}; {remedy}"
        case "probabilities that do not sum to 1":
            over = "both classes" if task == "binary" else "the classes"
            return f"preds must be probabilities that sum to 1 over {over}, got other sums {many}; {remedy}"
        case "negative or infinite weights or frequencies" if not values.is_floating_point():
            return f"frequency must not be negative, got {value} {many}; it is the number of samples of a row"
        case "negative or infinite weights or frequencies":
            return (
                f"weight must be finite and not negative, got {value:.6g} {many}; pass weight 0 to leave a sample out"
            )
        case "groups out of range":
            wrong = f"group holds {value} but the metric has groups 0..{groups - 1}"
            if group_names is None:
                return f"{wrong} {many}; raise groups to include it"
            return f"{wrong} ({first_names(group_names)}) {many}; add its name to groups="
    argument = "preds" if FAULTS[fault] == "predictions out of range" else "target"
    text, remedy = _class_out_of_range(argument, value, many, task, classes, sized_by_names)
    if argument == "target" and classes == 2 and bool((target.abs() == 1).all()) and bool((target == 1).any()):
        remedy = "if the classes are -1 and 1, pass (target + 1) // 2"
    return f"{text}; {remedy}"


def _class_out_of_range(
    argument: str, value: float, many: str, task: str, classes: int, sized_by_names: bool
) -> tuple[str, str]:
    """Return the error message for a class index that the metric does not have, and the remedy."""
    limit = f"num_classes={classes} allows" if task == "multiclass" else f"task={task!r} allows"
    more = f"raise num_classes to {value + 1}"
    if sized_by_names and task == "multiclass":
        limit, more = f"class_names has {classes} names, which allow", f"name {value + 1} classes"
    if argument == "preds":
        remedy = "pass 0 and 1"
        if task == "multiclass":
            remedy = f"{more}, or pass floating scores"
        if value < 0:
            remedy = "a prediction must be a class; to leave samples out, mark their targets and pass ignore_index"
    else:
        remedy = f"if {value} marks ignored samples, pass ignore_index={value}"
        if value == classes:
            remedy += f"; if classes run from 1 to {value}, pass target - 1"
        if task == "multiclass" and value >= classes:
            remedy += f"; if it is a class, {more}"
    return f"{argument} holds class {value} but {limit} 0..{classes - 1} {many}", remedy


# --- arguments -------------------------------------------------------------------------------------------------------
Task: TypeAlias = Literal["binary", "multiclass", "multilabel"]
Layout: TypeAlias = Literal["matrix", "margins"]
Thresholds: TypeAlias = float | Sequence[float] | Tensor
P = ParamSpec("P")
R = TypeVar("R")
ELSEWHERE = {
    "average": "the average is an argument of a measure, as in "
    "measures={'f1': functools.partial(FScore, average='weighted')}",
    "multidim_average": "all samples are counted together, as with 'global', so leave it out; for one value per "
    "sample ('samplewise'), pass a stack of confusion matrices [N, K, K] to the functions of measures",
    "top_k": "the class of the highest score is predicted, as with top_k=1; to count the target as predicted where it "
    "is among the k highest scores, as torchmetrics does, pass "
    "preds=torch.where((scores.topk(k, 1).indices == target.unsqueeze(1)).any(1), target, scores.argmax(1))",
    "validate_args": "every input is checked, without waiting for the device, so leave it out; a metric or report with "
    "on_invalid='warn' skips invalid samples and warns how many there were",
    "zero_division": "each measure has one rule for 0/0, stated in its docstring, so leave it out",
}  # arguments of torchmetrics and scikit-learn, each with the remedy for a user who passes it


def refuse_arguments_of_others(name: str, given: Iterable[str]) -> None:
    """Raise TypeError for arguments of torchmetrics or scikit-learn that imbtorch lacks; the error names the remedy."""
    known = [argument for argument in given if argument in ELSEWHERE]
    if known:
        remedies = "; ".join(f"{argument}: {ELSEWHERE[argument]}" for argument in known)
        raise TypeError(f"{name} takes no {', '.join(known)}. {remedies}")


def in_class_order(
    argument: str,
    given: Mapping[str, float] | Sequence[float] | Tensor,
    class_names: Sequence[str],
    optional: Collection[str] = (),
) -> Sequence[float] | Tensor:
    """Return the numbers of a mapping of class names in the order of the classes; anything else as it is.

    Names in ``optional`` may be missing; their number is then 0. A ValueError tells of all other differences.
    """
    if not isinstance(given, Mapping):
        return given
    missing = [name for name in class_names if name not in given and name not in optional]
    unknown = [name for name in given if name not in class_names]
    if missing or unknown:
        parts = ((missing, "missing are"), (unknown, "not among class_names are"))
        wrong = ", ".join(f"{what} {names}" for names, what in parts if names)
        raise ValueError(f"{argument} must name every class; {wrong}")
    return [given.get(name, 0.0) for name in class_names]


def refuses_arguments_of_others(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function such that unknown arguments, such as torchmetrics' own, raise an error with a remedy."""
    parameters = inspect.signature(function).parameters
    named = [f"{name}=" for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY]

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_arguments_of_others(function.__name__, kwargs)
        if (most := len(parameters) - len(named)) < len(args):
            text = f"{function.__name__} takes {most} argument{'s' * (most > 1)} without a name, got {len(args)}"
            raise TypeError(f"{text}; name the others, such as {' and '.join(named[:2])}")
        for name in kwargs:
            if name not in parameters:
                raise TypeError(f"{function.__name__} has no argument {name!r}{did_you_mean(name, parameters)}")
        return function(*args, **kwargs)

    return wrapped


def computed_on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function such that all its tensors are on the CPU, those it is given and those it makes.

    Results are then equal on every device, also on one without float64, and with any default device.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with cpu_by_default():
            return function(*_on_cpu(args), **_on_cpu(kwargs))

    return wrapped


def cpu_by_default() -> AbstractContextManager[Any]:
    """Return a context in which new tensors are on the CPU."""
    if torch.get_default_device().type == "cpu":  # a device as context makes each call of torch slower
        return nullcontext()
    return torch.device("cpu")


def _on_cpu(value: Any) -> Any:
    """Move tensors, also those in mappings, lists and tuples, to the CPU."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, Mapping):
        return {name: _on_cpu(each) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_on_cpu, value))
    return type(value)(map(_on_cpu, value)) if type(value) in (list, tuple) else value


def real_number(name: str, value: object) -> float:
    """Return a real number of any type, NumPy's included, as a float; raise TypeError for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name} must be a number, got {reprlib.repr(value)}")
    return float(value)


def whole_number(name: str, value: object, expected: str = "an int") -> int:
    """Return an integer of any type, NumPy's included, as an int; raise TypeError for anything else."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    try:
        return operator.index(cast(int, value))
    except TypeError:
        raise TypeError(f"{name} must be {expected}, got {reprlib.repr(value)}") from None


def check_generator(generator: object) -> None:
    """Raise unless a source of randomness is a torch.Generator on the CPU, or None for torch's own."""
    if generator is not None and not isinstance(generator, torch.Generator):
        remedy = "torch.Generator().manual_seed(0)"
        raise TypeError(f"generator must be a torch.Generator, got {reprlib.repr(generator)}; pass {remedy}")
    if generator is not None and generator.device.type != "cpu":
        raise ValueError(
            f"generator must be on the CPU, where all draws are made, got one on {generator.device}; pass "
            "torch.Generator().manual_seed(0)"
        )


def spread(name: str, values: object, target: Tensor, counted: Tensor) -> Tensor:
    """Expand values of samples, such as weights, to the shape in which the samples are counted.

    Args:
        name: name of the argument, for errors.
        values: one value per element of ``target``, or per index of its leading dimensions.
        target: targets as the user passed them, ``[N, ...]``.
        counted: targets as they are counted: ``[N, ...]``; ``[N, C, ...]`` where each class is swept on its own.
    """
    check_tensor(name, values)
    given = cast(Tensor, values)
    if given.device != target.device:
        raise ValueError(f"{name} is on {given.device} but target is on {target.device}; move one of them")
    if given.shape != target.shape[: given.ndim] or given.ndim < min(1, target.ndim):
        fitting = [list(target.shape[:1]), list(target.shape)][: max(1, target.ndim)]
        raise ValueError(
            f"{name} must hold one value per sample: shape {' or '.join(map(str, fitting))} for target of shape "
            f"{list(target.shape)}, got {list(given.shape)}; reshape or expand it"
        )
    if given.shape == counted.shape:
        return given
    given = given.reshape(*given.shape, *[1] * (target.ndim - given.ndim))
    return (given.unsqueeze(1) if counted.ndim > target.ndim else given).expand(counted.shape)


def group_of_each(group: Tensor | int, target: Tensor, counted: Tensor, names: Sequence[str] = ()) -> Tensor | int:
    """Return the group of each sample as int64 in the shape of ``counted``, or one int for all; see :func:`spread`."""
    if not isinstance(group, Tensor):
        return _group_index(group, names)
    usual = not group.is_nested and group.dtype == torch.int64 and group.device == target.device
    if usual and group.shape == target.shape == counted.shape:
        return group  # the checks below take as long as counting a small batch
    if group.is_floating_point() or group.is_complex():
        raise TypeError(f"group must hold integers, got {group.dtype}; use group.long()")
    wide = group.expand(target.shape[:1]) if group.ndim == 0 else group
    return integers(spread("group", wide, target, counted))


def _group_index(group: object, names: Sequence[str]) -> int:
    """Return the index of one group as an int; raise TypeError for anything else, such as one of the names."""
    if isinstance(group, str) and group in names:
        raise TypeError(f"group must be the index of a group, got {group!r}; its index is {names.index(group)}")
    if isinstance(group, (list, tuple)) and group and all(each in names for each in group):
        indices = ", ".join(str(names.index(each)) for each in group[:3])
        more = ", ..." * (len(group) > 3)
        raise TypeError(
            f"group must be a tensor of group indices, got names; of these, torch.tensor([{indices}{more}])"
        )
    return whole_number("group", group, "a tensor [N] of group indices, or an int")


def checked_ids(cluster: object) -> Tensor:
    """Return the ids of clusters as int64; raise TypeError unless they are a tensor of integers."""
    if isinstance(cluster, Tensor) and cluster.dtype == torch.int64 and not cluster.is_nested:
        return cluster
    if not isinstance(cluster, Tensor) or cluster.is_floating_point() or cluster.is_complex():
        got = cluster.dtype if isinstance(cluster, Tensor) else type(cluster).__name__
        raise TypeError(
            f"cluster must be a tensor of integers, the id of each sample's cluster, got {got}; "
            "imbtorch.cluster_ids(names) converts names, once and outside the loop"
        )
    check_tensor("cluster", cluster)
    return integers(cluster)


def checked_task(task: Task | None) -> Task:
    """Return the task; raise ValueError if it is missing or unknown."""
    if task is None:
        raise ValueError(
            "task must be 'binary', 'multiclass' or 'multilabel', got None; pass it as the first argument, as in "
            "ImbalanceAccuracy('multiclass', num_classes=3)"
        )
    check_choice("task", task, get_args(Task))
    return task


def check_flag(name: str, value: object) -> None:
    """Raise TypeError unless a value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def checked_size(task: Task, num_classes: int | None, num_labels: int | None) -> int:
    """Return the number of classes (of labels for multilabel); raise if it is missing, too small or misplaced."""
    if task == "binary" and num_classes is None:
        num_classes = 2
    wanted, given, other, superfluous = ("num_classes", num_classes, "num_labels", num_labels)
    if task == "multilabel":
        wanted, given, other, superfluous = other, superfluous, wanted, given
    if superfluous is not None:
        raise ValueError(f"task={task!r} takes {wanted}, got {other}={superfluous!r}; pass {wanted} or change the task")
    if given is None:
        raise ValueError(f"task={task!r} needs {wanted}: the number of {wanted[4:]}, as in {wanted}=10")
    size, least = whole_number(wanted, given), 1 if task == "multilabel" else 2
    if task == "binary" and size != 2:
        raise ValueError(f"task='binary' has two classes, got num_classes={size}; use task='multiclass'")
    if size < least:
        raise ValueError(f"{wanted} must be at least {least}, got {size}")
    return size


def checked_threshold(task: Task, threshold: object) -> float:
    """Return the threshold as a float; raise if it is no probability, or if the task has no threshold."""
    value = real_number("threshold", threshold)
    if not 0 <= value <= 1:
        raise ValueError(f"threshold must be a probability in [0, 1], with logits=True too, got {threshold!r}")
    if task == "multiclass" and value != 0.5:
        raise ValueError(
            f"threshold={threshold!r} has no meaning for task='multiclass', where the class of the highest score is "
            "predicted; use task='binary' or 'multilabel', or apply the threshold yourself and pass class indices"
        )
    return value


def checked_thresholds(task: Task, size: int, threshold: object) -> float | tuple[float, ...]:
    """Return one threshold as a float, or one per label as a tuple of floats."""
    if isinstance(threshold, (Tensor, np.ndarray)) and threshold.ndim > 0:
        threshold = threshold.tolist()
    if isinstance(threshold, str) or not isinstance(threshold, Sequence):
        return checked_threshold(task, threshold)
    if task != "multilabel":
        raise ValueError(
            f"threshold must be one number for task={task!r}, got {threshold!r}; a threshold per label needs "
            "task='multilabel'"
        )
    if len(threshold) != size:
        raise ValueError(f"threshold must be one number or one for each of {size} labels, got {len(threshold)} numbers")
    numbers = [each.item() if isinstance(each, Tensor) and each.ndim == 0 else each for each in threshold]
    return tuple(checked_threshold(task, each) for each in numbers)
