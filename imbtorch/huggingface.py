"""Reports as ``compute_metrics`` of a ``transformers.Trainer``, checked against its TrainingArguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from imbtorch.compat import evaluation_of_transformers, rank_zero, training_has_ended, warn_caller, warn_once
from imbtorch.metrics.flat_monitors import Course, is_harmed
from imbtorch.metrics.shared_result import ReportedValue, SharedResult
from imbtorch.suggestions import did_you_mean, first_names

__all__ = ["compute_metrics"]


def compute_metrics(
    report: SharedResult, args: Any | None = None, cluster: Callable[[Any], Any] | None = None
) -> Callable[..., dict[str, float]]:
    """Make the ``compute_metrics`` function of a ``transformers.Trainer`` from a report, and check its monitor.

    ::

        report = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], ignore_index=-100)
        args = TrainingArguments(..., metric_for_best_model="iam", load_best_model_at_end=True)
        Trainer(model, args, ..., compute_metrics=compute_metrics(report, args))

    The Trainer logs ``eval_iam``, ``eval_recall/cat`` and so on. Names lack the prefix of the report, since the Trainer
    adds its own. The function works with and without ``batch_eval_metrics``, which avoids keeping all predictions in
    memory.

    The Trainer passes the predictions of all processes to each process. To count them once, this function changes the
    report: from now on it counts only in its own process (``distributed_available_fn``). The report keeps the counts of
    the last evaluation, for ``report.table()`` and ``report.interval("iam")``.

    Predictions may be arrays or tensors, a tuple of several outputs (the first one is used), or a list of batches
    (``eval_do_concat_batches=False``). Classes are expected in the last dimension of logits of tokens, ``[B, T, C]``,
    else in dimension 1, as for images ``[B, C, H, W]``. Floating labels, as multilabel models need them, must be whole
    numbers.

    Args:
        report: an :class:`~imbtorch.ImbalanceReport` or :class:`~imbtorch.ThresholdSweep`. Models return logits, so
            pass ``logits=True`` with ``task="binary"`` and ``"multilabel"``. Padded tokens have label -100, so pass
            ``ignore_index=-100`` for tokens.
        args: the ``TrainingArguments``, for checks that a Trainer does not make; by default nothing is checked. A
            ``metric_for_best_model`` gives a warning if the report has no such value, if it begins with the prefix of
            the report, or if it has no direction; ``load_best_model_at_end=True`` does if it keeps the epoch with the
            lowest loss because no metric is named.
        cluster: function of the ``EvalPrediction`` that returns the id of each sample's cluster, such as its patient,
            for a report with ``clusters=True``; ``include_for_metrics=["inputs"]`` passes columns on (page "Recipes by
            tool").

    Returns:
        A function of an ``EvalPrediction`` (and ``compute_result``). It returns all values as floats by name, and an
        empty dict before the last batch.

    Raises:
        TypeError: for anything but a report, and for ``args`` that are no TrainingArguments.
        ValueError: for a report with ``groups``; for ``prediction_loss_only``; for a ``metric_for_best_model`` that is
            misspelt; and if ``greater_is_better``, or the mode of ``reduce_lr_on_plateau``, would treat the worst value
            as the best.

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
    evaluation: FrameType | None = None  # call of the evaluation whose batches are counted
    already_warned: set[str] = set()
    key = None if args is None else args.metric_for_best_model
    course = None if key is None else _course(report, key)

    def computed(evaluated: Any, compute_result: bool = True) -> dict[str, float]:
        nonlocal begins, evaluation
        before, evaluation = evaluation, evaluation_of_transformers()
        if begins or evaluation is not before:  # an interrupted evaluation has no last batch
            report.reset()
        begins = True  # if this raises, the evaluation does not continue
        predictions, labels = evaluated.predictions, evaluated.label_ids
        batches = isinstance(predictions, list)
        ids = None if cluster is None else cluster(evaluated)
        parts = (predictions, labels, ids or [None] * len(predictions)) if batches else ([predictions], [labels], [ids])
        for scores, target, some in zip(*parts, strict=True):
            _count(report, scores, target, {} if some is None else {"cluster": torch.as_tensor(some)})
        begins = compute_result
        if not compute_result:
            return {}
        ended, evaluation = training_has_ended(evaluation), None
        values = report.compute()
        if course is not None:
            course.add(float(values[course.value.full_name]))
            _warn_of_flat_values(course, str(key), ended, already_warned)
        return {value.name + report.postfix: float(values[value.full_name]) for value in report.values()}

    return computed


def _alone() -> bool:
    """Return False: other processes count the same samples, so their counts are not added."""
    return False


# --- predictions ----------------------------------------------------------------------------------------------------


def _count(report: SharedResult, predictions: Any, labels: Any, more: Mapping[str, Tensor]) -> None:
    """Count the predictions and labels of a Trainer."""
    if isinstance(labels, (tuple, list)):
        raise ValueError(
            f"labels must be one array, got {len(labels)}; choose one with TrainingArguments(label_names=['labels'])"
        )
    if isinstance(predictions, Mapping):
        raise TypeError(
            f"predictions must be one array, got a dict of {sorted(predictions)}; choose one with "
            "Trainer(preprocess_logits_for_metrics=lambda outputs, labels: outputs['logits'])"
        )
    scores = torch.as_tensor(predictions[0] if isinstance(predictions, tuple) else predictions)
    scores, target = _classes_second(report, scores, _whole(torch.as_tensor(labels)))
    if report.device != scores.device:
        report.to(scores.device)
    report.update(scores, target, **more)


def _classes_second(report: SharedResult, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Move the dimension of classes, or of labels, from last, as in transformers, to dimension 1, as in reports."""
    if report.task == "multilabel":
        return (scores.movedim(-1, 1), target.movedim(-1, 1)) if scores.ndim == target.ndim == 3 else (scores, target)
    if scores.ndim != target.ndim + 1:
        return scores, target
    if report.task == "binary" and scores.shape[-1] == 1:  # num_labels=1
        return scores.squeeze(-1), target
    tokens = scores.ndim == 3 and scores.shape[:-1] == target.shape
    return scores.movedim(-1, 1) if tokens else scores, target


def _whole(labels: Tensor) -> Tensor:
    """Convert floating labels to integers; raise ValueError unless they are whole numbers."""
    if not labels.is_floating_point():
        return labels
    whole = labels.long()
    if not torch.equal(whole.to(labels.dtype), labels):
        raise ValueError(
            "labels must be whole numbers, got fractions; a report cannot count soft labels or regression targets"
        )
    return whole


def _monitored(report: SharedResult, key: str | None) -> ReportedValue | None:
    """Return the value of a ``metric_for_best_model``, which the name of an evaluation set may precede."""
    named = [value for value in report.values() if f"_{key}".endswith(f"_{value.name}{report.postfix}")]
    return max(named, key=lambda value: len(value.name), default=None)  # as in eval_night_iam


def _course(report: SharedResult, key: str) -> Course | None:
    """Return the evaluations of the monitored value, to come, if it can be judged."""
    value = _monitored(report, key)
    return None if value is None or not Course.judges(value) else Course(value)


def _warn_of_flat_values(course: Course, key: str, ended: bool, shown: set[str]) -> None:
    """Warn once if the monitored value could not choose, as the guard does in Lightning."""
    kept = 0 if ended and all(course.flat) else None  # of other evaluations it is not known which one is kept
    if is_harmed(course.flat, kept, ended) and rank_zero():
        text = f"metric_for_best_model={key!r} could not choose in {len(course.flat)} evaluations: {course.reasons[-1]}"
        how = f"compute_metrics({course.sweep()}, args) and metric_for_best_model='value'"
        warn_once(shown, "flat", f"{text}. {course.remedy(how)}", again=True)


# --- checks ---------------------------------------------------------------------------------------------------------


def _check_report(report: object) -> None:
    if not isinstance(report, SharedResult):
        raise TypeError(
            f"report must be an ImbalanceReport or ThresholdSweep, got {report!r:.80}; use "
            "Trainer(compute_metrics=compute_metrics(ImbalanceReport('multiclass', num_classes=3, measures=['iam'])))"
        )
    if getattr(report, "groups", None):
        raise ValueError("report must have no groups, since a Trainer does not pass them on; leave groups out")


def _check_arguments(report: SharedResult, args: Any) -> None:
    """Raise if a Trainer would compute no values or keep the worst epoch; warn about doubtful arguments."""
    if not hasattr(args, "metric_for_best_model"):
        raise TypeError(f"args must be TrainingArguments, got {args!r:.80}; use compute_metrics(report, trainer.args)")
    if args.prediction_loss_only:
        raise ValueError(
            "prediction_loss_only must be False, got True: the Trainer would pass no predictions to compute_metrics; "
            "leave it out of TrainingArguments"
        )
    key = args.metric_for_best_model
    if report.prefix and key in {value.full_name for value in report.values()}:
        warn_caller(
            f"metric_for_best_model={key!r} begins with the prefix of the report, but the names of a Trainer do not; "
            f"use metric_for_best_model={key.removeprefix(report.prefix)!r}, unless the prefix is the name of one of "
            "several evaluation sets"
        )
    names = {value.name + report.postfix: value.higher_is_better for value in report.values()}
    if (value := _monitored(report, key)) is not None:
        _check_direction(key, value.higher_is_better, args)
    elif args.load_best_model_at_end and key in (None, "loss"):  # the default is "loss"
        directed = {name: better for name, better in names.items() if better is not None}
        name = next(iter(directed), "iam")
        lower = "" if directed.get(name, True) else ", greater_is_better=False"
        warn_caller(
            "metric_for_best_model is 'loss', which is the default, so the Trainer will keep the epoch with the lowest "
            f"loss; write metric_for_best_model={name!r}{lower}, or 'eval_loss' if you mean the loss"
        )
    elif key is not None and (meant := did_you_mean(key.removeprefix("eval_"), names)):
        raise ValueError(f"metric_for_best_model={key!r} is no value of the report{meant}")
    elif key is not None and not key.endswith("loss"):
        warn_caller(
            f"metric_for_best_model={key!r} is no value of the report, so the Trainer will stop after its first "
            f"evaluation unless other code logs it; the report has {first_names(list(names))}"
        )


def _check_direction(key: str, better: bool | None, args: Any) -> None:
    """Raise ValueError if the worst value would be treated as the best; warn if the value has no direction."""
    if better is None:
        warn_caller(
            f"metric_for_best_model={key!r} has no direction, so greater_is_better={args.greater_is_better} cannot be "
            "checked; monitor a measure with a direction"
        )
        return
    direction, right = ("higher", "max") if better else ("lower", "min")
    if args.greater_is_better != better:
        raise ValueError(
            f"{direction} values of {key!r} are better, but greater_is_better={args.greater_is_better} (the default is "
            "True for names that do not end in 'loss'), so the Trainer would keep the worst epoch; use "
            f"TrainingArguments(metric_for_best_model={key!r}, greater_is_better={better})"
        )
    mode = (args.lr_scheduler_kwargs or {}).get("mode", "min")
    if args.lr_scheduler_type == "reduce_lr_on_plateau" and mode != right:
        raise ValueError(
            f"{direction} values of {key!r} are better, but the mode of reduce_lr_on_plateau is {mode!r}, so it would "
            "lower the learning rate while the model improves; use "
            f"TrainingArguments(lr_scheduler_kwargs={{'mode': {right!r}}})"
        )
