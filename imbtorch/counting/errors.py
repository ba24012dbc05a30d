"""Checks of tensors, and error messages about shapes and values of a batch, each with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, strided

from imbtorch.counting.batches import FAULTS
from imbtorch.suggestions import first_names

__all__ = [
    "check_class_indices",
    "check_pair",
    "check_tensor",
    "misfit",
    "misfit_of_class_scores",
    "value_message",
]


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
            remedy = f"; use torch.stack({name})"
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
    remedies = {"MaskedTensor": f"{name}.to_tensor(ignore_index)", "DTensor": f"{name}.full_tensor()"}
    if kind in remedies:
        raise TypeError(f"{name} must be an ordinary tensor, got a {kind}; use {remedies[kind]}")
    if value.is_floating_point() and value.itemsize == 1:
        raise TypeError(f"{name} must have a dtype that torch can compare, got {value.dtype}; use {name}.float()")


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
    *,
    task: str,
    classes: int,
    groups: int,
    group_names: Sequence[str] | None = None,
    logits: bool,
    sized_by_names: bool = False,
) -> str:
    """Return the error message for a fault of a batch; it quotes the first of the offending values.

    Args:
        fault: index into :data:`~imbtorch.counting.batches.FAULTS`.
        values: the offending values.
        samples: number of values in the batch.
        task: task of the metric.
        classes: number of classes of the metric.
        groups: number of groups of the metric.
        group_names: names of the groups, if the user gave them names.
        logits: whether scores are logits.
        sized_by_names: whether the number of classes is that of ``class_names``.
    """
    value, many = values.flatten()[0].item(), f"({values.numel()} of {samples} values)"
    remedy = "pass logits=True for raw scores"
    match FAULTS[fault]:
        case "NaN scores":
            wrong = "NaN scores" + ", or infinite logits whose probability is undefined" * logits
            return f"preds hold {wrong} {many}; the usual cause is a diverged model: check its loss"
        case "probabilities outside [0, 1]":
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
    return _class_out_of_range(argument, value, many, task, classes, sized_by_names)


def _class_out_of_range(argument: str, value: float, many: str, task: str, classes: int, sized_by_names: bool) -> str:
    """Return the error message for a class index that the metric does not have."""
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
    return f"{argument} holds class {value} but {limit} 0..{classes - 1} {many}; {remedy}"
