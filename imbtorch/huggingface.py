"""What ``transformers.Trainer`` takes: a report as ``compute_metrics``, checked against its TrainingArguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from imbtorch.metrics.compat import evaluation_of_transformers, warn_caller
from imbtorch.metrics.shared_result import SharedResult

__all__ = ["compute_metrics"]


def compute_metrics(report: SharedResult, args: Any | None = None) -> Callable[..., dict[str, float]]:
    """Make the ``compute_metrics`` of a ``transformers.Trainer`` from a report, and check what is monitored.

    ::

        report = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], ignore_index=-100)
        args = TrainingArguments(..., metric_for_best_model="iam", load_best_model_at_end=True)
        Trainer(model, args, ..., compute_metrics=compute_metrics(report, args))

    The Trainer logs ``eval_iam``, ``eval_recall/cat`` and so on: names come without the prefix of the report, since the
    Trainer adds its own. It works with and without ``batch_eval_metrics``, which spares the memory of all predictions.

    The Trainer hands the predictions of all processes to each of them. The report is therefore made to count for its
    process alone from here on (``distributed_available_fn``), for it would sum the same samples over the processes
    again. It keeps the counts of the last evaluation, so that ``report.table()`` and ``report.interval("iam")`` tell
    more of that.

    Predictions may be arrays or tensors, the tuple that a model with further outputs returns (the first is taken), and
    lists of batches (``eval_do_concat_batches=False``). Classes are expected last in logits of three dimensions, as of
    tokens ``[B, T, C]``, else second, as of images ``[B, C, H, W]``. Floating labels, as models of several labels need
    them, must be whole.

    Args:
        report: an :class:`~imbtorch.ImbalanceReport` or :class:`~imbtorch.ThresholdSweep`. Models return logits:
            ``logits=True`` for ``task="binary"`` and ``"multilabel"``. Padded tokens have label -100:
            ``ignore_index=-100``.
        args: the ``TrainingArguments``, for checks that a Trainer does not make. Without them nothing is checked. A
            ``metric_for_best_model`` that the report lacks, that bears its prefix, or that has no direction, is worth a
            warning.

    Returns:
        A function of an ``EvalPrediction`` (and ``compute_result``) that returns all values as floats by name; nothing
        before the last batch.

    Raises:
        TypeError: for anything but a report, and for ``args`` that are no TrainingArguments.
        ValueError: for a report with ``groups``; where ``greater_is_better`` or, for ``reduce_lr_on_plateau``, the mode
            would take the worst value of the report for the best; with ``prediction_loss_only``.

    >>> from types import SimpleNamespace
    >>> from imbtorch import ImbalanceReport
    >>> computed = compute_metrics(ImbalanceReport("multiclass", 3, measures=["accuracy"], per_class=()))
    >>> computed(SimpleNamespace(predictions=torch.eye(3).roll(1, 0).numpy(), label_ids=torch.arange(3).numpy()))
    {'accuracy': 0.0}
    """
    _check_report(report)
    if args is not None:
        _check_arguments(report, args)
    report.distributed_available_fn = _alone
    begins = True  # whether the next predictions are the first of an evaluation
    evaluation: FrameType | None = None  # the one whose batches are counted

    def computed(evaluated: Any, compute_result: bool = True) -> dict[str, float]:
        nonlocal begins, evaluation
        before, evaluation = evaluation, evaluation_of_transformers()
        if begins or evaluation is not before:  # after an interrupt or exception between batches no last one comes
            report.reset()
        begins = True  # an evaluation that raises does not go on
        predictions, labels = evaluated.predictions, evaluated.label_ids
        batches = isinstance(predictions, list)
        for scores, target in zip(predictions, labels, strict=True) if batches else [(predictions, labels)]:
            _count(report, scores, target)
        begins = compute_result
        if not compute_result:
            return {}
        evaluation = None
        values = report.compute()
        return {value.name + report.postfix: float(values[value.full_name]) for value in report.values()}

    return computed


def _alone() -> bool:
    """Whether other processes count into the same result: they count the same samples."""
    return False


# --- predictions ----------------------------------------------------------------------------------------------------


def _count(report: SharedResult, predictions: Any, labels: Any) -> None:
    """Count what a Trainer hands on."""
    if isinstance(labels, (tuple, list)):
        raise ValueError(
            f"a report takes one array of labels, got {len(labels)}; name one with TrainingArguments(label_names="
            "['labels'])"
        )
    if isinstance(predictions, Mapping):
        raise TypeError(
            f"a report takes one array of predictions, got a dict of {sorted(predictions)}; choose one with "
            "Trainer(preprocess_logits_for_metrics=lambda outputs, labels: outputs['logits'])"
        )
    scores = torch.as_tensor(predictions[0] if isinstance(predictions, tuple) else predictions)
    scores, target = _classes_second(report, scores, _whole(torch.as_tensor(labels)))
    if report.device != scores.device:
        report.to(scores.device)
    report.update(scores, target)


def _classes_second(report: SharedResult, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Move classes, or labels, from where models of transformers have them to where a report has them."""
    if report.task == "multilabel":
        return (scores.movedim(-1, 1), target.movedim(-1, 1)) if scores.ndim == target.ndim == 3 else (scores, target)
    if scores.ndim != target.ndim + 1:
        return scores, target
    if report.task == "binary" and scores.shape[-1] == 1:  # num_labels=1
        return scores.squeeze(-1), target
    tokens = scores.ndim == 3 and scores.shape[:-1] == target.shape
    return scores.movedim(-1, 1) if tokens else scores, target


def _whole(labels: Tensor) -> Tensor:
    """Return labels as integers, if floating ones are whole numbers."""
    if not labels.is_floating_point():
        return labels
    whole = labels.long()
    if not torch.equal(whole.to(labels.dtype), labels):
        raise ValueError("labels must be whole numbers to be counted, got fractions, as of soft labels or regression")
    return whole


# --- checks ---------------------------------------------------------------------------------------------------------


def _check_report(report: object) -> None:
    if not isinstance(report, SharedResult):
        raise TypeError(
            f"compute_metrics makes a function from a report, got {report!r:.80}; use "
            "compute_metrics(ImbalanceReport('multiclass', num_classes=3, measures=['iam'])) and give a Trainer what "
            "that returns"
        )
    if getattr(report, "groups", None):
        raise ValueError("a Trainer hands on no groups of samples; make the report without groups")


def _check_arguments(report: SharedResult, args: Any) -> None:
    """Raise about arguments by which a Trainer would compute nothing, or keep the worst epoch."""
    if not hasattr(args, "metric_for_best_model"):
        raise TypeError(f"args must be TrainingArguments, got {args!r:.80}; use compute_metrics(report, trainer.args)")
    if args.prediction_loss_only:
        raise ValueError(
            "TrainingArguments(prediction_loss_only=True) hands no predictions to compute_metrics; leave it out"
        )
    key = args.metric_for_best_model
    if report.prefix and key in {value.full_name for value in report.values()}:
        warn_caller(
            f"metric_for_best_model={key!r} begins with the prefix of the report, which a Trainer's names lack; write "
            f"metric_for_best_model={key.removeprefix(report.prefix)!r} unless the prefix names one of several "
            "sets"
        )
    names = {value.name + report.postfix: value.higher_is_better for value in report.values()}
    # the name of one of several sets comes before it, as in eval_night_iam
    named = [name for name in names if f"_{key}".endswith(f"_{name}")]
    if named:
        _check_direction(key, names[max(named, key=len)], args)
    elif key is not None and not key.endswith("loss"):
        warn_caller(
            f"metric_for_best_model={key!r} is no name of the report, so the Trainer will stop after its first "
            f"evaluation unless something else adds it; names are {', '.join(list(names)[:20])}"
        )


def _check_direction(key: str, better: bool | None, args: Any) -> None:
    """Raise where the worst value would be taken for the best; warn where nobody knows."""
    if better is None:
        warn_caller(
            f"metric_for_best_model={key!r} has no direction, so greater_is_better={args.greater_is_better} cannot be "
            "checked; monitor a measure that has one"
        )
        return
    direction, right = ("higher", "max") if better else ("lower", "min")
    if args.greater_is_better != better:
        raise ValueError(
            f"of {key!r} {direction} is better, but greater_is_better={args.greater_is_better} (True is the default of "
            "all names that do not end in 'loss'), so the Trainer would keep the worst epoch; write "
            f"TrainingArguments(metric_for_best_model={key!r}, greater_is_better={better})"
        )
    mode = (args.lr_scheduler_kwargs or {}).get("mode", "min")
    if args.lr_scheduler_type == "reduce_lr_on_plateau" and mode != right:
        raise ValueError(
            f"of {key!r} {direction} is better, but the mode of reduce_lr_on_plateau is {mode!r}, so it would lower "
            "the learning rate while the model improves; write "
            f"TrainingArguments(lr_scheduler_kwargs={{'mode': {right!r}}})"
        )
