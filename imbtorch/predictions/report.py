"""Reports of saved predictions: lists, arrays, tensors and data frames, with classes of any name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from imbtorch.choosing.paired_scores import histogram_of_ranks
from imbtorch.compat import warn_caller
from imbtorch.counting.logits import against_the_rest, of_class_one
from imbtorch.counts import rescaled_rows
from imbtorch.deciding.adjustment_result import LogitAdjustmentResult
from imbtorch.deciding.adjustment_sweep import LogitAdjustmentSweep
from imbtorch.deciding.curves import area, area_interval, average_precision, average_precision_interval
from imbtorch.deciding.sweep import ThresholdSweep
from imbtorch.intervals.intervals import Interval
from imbtorch.measures.named import Measured
from imbtorch.measures.traits import by_any_name, needs_matrix
from imbtorch.metrics.base import UNSURE
from imbtorch.metrics.rows import Row, shown
from imbtorch.predictions.columns import (
    Samples,
    as_array,
    is_table,
    keyed_by_name,
    read_classes,
    read_clusters,
    read_labels,
    read_weights,
)
from imbtorch.reports.report import ImbalanceReport
from imbtorch.reports.result import ReportResult, with_values
from imbtorch.suggestions import first_names

LARGE = 25_000_000  # cells of a matrix from which margins are counted if they are enough: 0.2 GB
LOW, ENOUGH = 0.3, 10  # area below which scores may be reversed, with so many positives
AREAS = {"auc": (area, area_interval), "average_precision": (average_precision, average_precision_interval)}


def report(
    *,
    preds: Any,
    target: Any,
    class_names: Sequence[Any] | None = None,
    positive: Any = None,
    logits: bool = False,
    cluster: Any = None,
    weight: Any = None,
    prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
    measures: Mapping[str, Measured] | Sequence[str] | None = None,
    intervals: bool | Sequence[str] = False,
    rule: str | None = None,
    prior: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
) -> ReportResult:
    """Report saved predictions, as :class:`ImbalanceReport` reports predictions in a training.

    Arguments are lists, NumPy arrays, torch tensors, or columns of pandas; a table of several columns is a mapping or a
    DataFrame. Classes are strings, integers or booleans, in sorted order or the order of ``class_names``.

    **Two classes.** Booleans, and 0 and 1, are the binary task, with True or 1 as the positive class. Two other classes
    are reported like several ones unless ``positive`` names one of them; it is never guessed.

    **Scores.** Floating ``preds`` are scores, and the table then also has the area under the ROC curve (``auc``) and
    the average precision (``average_precision``), with several classes of each one against the rest and their mean.
    They are exact; a :class:`ThresholdSweep`, which does not keep the scores, has them up to the width of its bins.

    **The rule.** ``rule`` names the measure for which a decision rule is chosen on the same samples: with two classes
    or labels the threshold of a :class:`ThresholdSweep`, with several classes the tau of a
    :class:`LogitAdjustmentSweep`. ``table()["rule"][rule]`` holds it (of logits also as ``log_odds``), the values of
    the measure without and with it (``plain`` and ``chosen``), and the corrected gain to expect on new samples.

    Args:
        preds: predicted classes ``[N]``; or scores: ``[N]`` of class 1, True or ``positive``, ``[N, K]`` in the order
            of the classes, or a mapping or DataFrame of class -> ``[N]``. Of several labels classes or scores
            ``[N, L]``, or label -> ``[N]``.
        target: true classes ``[N]``; of several labels 0 and 1 ``[N, L]``, or label -> ``[N]``.
        class_names: classes in the order of the report, also those that neither ``target`` nor ``preds`` holds. If
            classes are the integers 0 to K - 1 or booleans, their names, in this order; of labels their names.
        positive: positive one of two classes.
        logits: whether scores are logits rather than probabilities; never guessed.
        cluster: id of the cluster of each sample, such as its patient, ``[N]``. Intervals and the rule then resample
            clusters, but AUC and average precision have no intervals.
        weight: weight of each sample, ``[N]``; weighted values have no intervals.
        prevalence: class shares of the population for which values are computed, by class or in the order of the
            classes (by class if ``positive`` names the first of two, which the report puts last); for labels the share
            of positives of each. See :class:`ImbalanceReport`.
        measures: measures over all classes, as in :class:`ImbalanceReport`.
        intervals: True for the 95% intervals of all measures, or names of values; False by default.
        rule: name of the measure for which a decision rule is chosen; by default none.
        prior: number or share of the training samples of each class, by class or in the order of the classes, for
            ``rule`` with several classes.

    Returns:
        :class:`~imbtorch.reports.result.ReportResult`, as ``ImbalanceReport.result()``: print its ``table()``.

    Raises:
        ValueError: for lengths that differ, missing values, a class that no target has, columns that match no class,
            NaN scores, scores that are no probabilities, and arguments that do not fit each other. The error names row
            (from 0) and column.
        TypeError: for values that are no classes, and classes of different types.

    >>> from imbtorch import report
    >>> result = report(
    ...     preds=["cat", "cat", "dog", "emu"], target=["cat", "dog", "dog", "emu"], measures=["balanced_accuracy"]
    ... )
    >>> print(result.table())
    class  support  predicted  recall  precision
    cat          1          2   1.000      0.500
    dog          2          1   0.500      1.000
    emu          1          1   1.000      1.000
    <BLANKLINE>
    measure              all
    balanced_accuracy  0.833
    Baseline: always predicting 'dog': balanced_accuracy 0.333
    """
    if isinstance(target, str) or isinstance(preds, str):
        raise TypeError("preds and target must hold a value for each sample, got a string; pass the column itself")
    data = read_labels if is_table(target) or as_array("target", target).ndim > 1 else read_classes
    read = data(preds, target, class_names, positive, logits)
    extra: dict[str, Tensor] = {}
    if cluster is not None:
        extra["cluster"] = read_clusters(cluster, len(read.target))
    if weight is not None:
        extra["weight"] = read_weights(weight, len(read.target))
    _check_order(read, prevalence)
    own, of_areas = _split(intervals, read, prevalence, extra)
    counted = ImbalanceReport(
        read.task,
        class_names=read.names,
        measures=measures,
        intervals=own,
        logits=logits,
        clusters=True if cluster is not None else None,
        prevalence=keyed_by_name(prevalence),
        weighted=weight is not None,
        state=_layout(read, measures, own, cluster, prevalence),
    )
    if read.scored:
        _check_rule(rule, prior, read, weight, prevalence)
    elif rule is not None or logits:
        raise ValueError(f"{'rule' if rule else 'logits'} needs scores, but preds are classes; pass their scores")
    counted.update(read.preds, read.target, **extra)
    result = counted.result()
    if not read.scored:
        return result
    rows = _areas(read, logits, counted.prevalence, extra.get("weight"), of_areas)
    if rule is not None and read.task == "multiclass":
        rows |= _adjusted(read, rule, prior, logits, extra)
    elif rule is not None:
        rows |= _thresholds(read, rule, counted.prevalence, logits, extra)
    return with_values(result, rows)


def _layout(
    read: Samples, measures: Any, intervals: bool | Sequence[str], cluster: Any, prevalence: Any
) -> Literal["matrix", "margins"]:
    """Return margins for so many classes that their matrix is large, if nothing asked for needs its cells."""
    if read.task != "multiclass" or len(read.names) ** 2 <= LARGE or intervals or cluster is not None:
        return "matrix"
    given = measures.values() if isinstance(measures, Mapping) else measures or ()
    known = [by_any_name().get(each) if isinstance(each, str) else each for each in given]
    cells = prevalence is not None or any(each is None or needs_matrix(each) for each in known)
    return "matrix" if cells else "margins"


def _check_order(read: Samples, prevalence: Any) -> None:
    """Raise for class shares in an order that ``positive`` makes unclear."""
    if read.swapped and prevalence is not None and not isinstance(prevalence, Mapping):
        shares = ", ".join(f"{name!r}: ..." for name in read.names)
        raise ValueError(
            f"positive puts {read.names[-1]!r} last, so the order of prevalence is unclear; give the shares by class, "
            f"prevalence={{{shares}}}"
        )


def _split(
    intervals: bool | Sequence[str], read: Samples, prevalence: Any, extra: Mapping[str, Tensor]
) -> tuple[bool | Sequence[str], Sequence[str]]:
    """Return the names of values with intervals of the report, and those of areas under curves."""
    bounded = list(AREAS) if prevalence is None else ["auc"]  # average precision has none at another prevalence
    if isinstance(intervals, (bool, str)) or not read.scored:
        return intervals, bounded if intervals is True and not extra else ()
    of_areas = [name for name in intervals if name.partition("/")[0] in AREAS]
    if of_areas and extra:
        raise ValueError(
            UNSURE
            if "weight" in extra
            else f"intervals contains {of_areas[0]!r}, but areas have no intervals with cluster=; a "
            "ThresholdSweep(..., clusters=True) has them, sweep.interval('auc')"
        )
    known = bounded if read.task == "binary" else [f"{area}/{name}" for area in bounded for name in read.names]
    for name in of_areas:
        if name not in known:
            raise ValueError(
                f"intervals contains {name!r}, but areas have intervals for {first_names(known)} only"
                + ("" if prevalence is None else "; average precision has no interval at another prevalence")
            )
    return [name for name in intervals if name not in of_areas], of_areas


def _check_rule(rule: str | None, prior: Any, read: Samples, weight: Any, prevalence: Any) -> None:
    """Raise for a rule and a prior that do not fit the classes."""
    several = read.task == "multiclass"
    if prior is not None and (rule is None or not several):
        raise ValueError(
            "prior is for the rule of several classes; " + ("leave it out" if rule else "add rule='balanced_accuracy'")
        )
    if rule is None or not several:
        return
    if prior is None:
        raise ValueError(
            "rule needs prior for several classes: the number or share of the training samples of each class, as in "
            f"prior={{{', '.join(f'{name!r}: ...' for name in read.names[:3])}}}; of two classes positive= names the "
            "positive one, and the rule is then a threshold"
        )
    if weight is not None or prevalence is not None:
        raise ValueError(
            "rule takes neither weight nor prevalence for several classes; choose the rule in a report without them"
        )
    if isinstance(prior, Mapping):
        names = set(map(str, prior))
        wrong = sorted(names.symmetric_difference(read.names))
        if wrong:
            raise ValueError(f"prior must name each class, {first_names(read.names)}; {wrong[0]!r} differs")


def _areas(
    read: Samples, logits: bool, prevalence: Sequence[float] | None, weight: Tensor | None, bounded: Sequence[str]
) -> dict[Row, Tensor]:
    """Return areas under curves, of each label or class against the rest and their mean, with the bounds of some."""
    binary, scores = read.task == "binary", _ranked(read, logits)
    shares = prevalence[1:] if binary and prevalence is not None else prevalence
    one = torch.ones(len(scores), dtype=torch.float64) if weight is None else weight
    found: dict[str, dict[Row, Tensor]] = {measure: {} for measure in AREAS}
    bounds: dict[Row, Tensor] = {}
    whole, positives = [], []  # whether there are samples of both classes
    for at in range(scores.shape[1]):  # one at a time: a histogram has a cell for each sample
        positive = read.target[:, at] if read.task == "multilabel" else read.target == at + binary
        different, place = torch.unique(scores[:, at], return_inverse=True)
        histogram = histogram_of_ranks(place, positive, len(different), one.unsqueeze(0))[0]
        rates = histogram
        if shares is not None:
            rates = rescaled_rows(histogram, torch.tensor([1 - shares[at], shares[at]], dtype=torch.float64))
        whole.append(bool(histogram.sum(-1).all()))
        positives.append(int(positive.sum()))
        for measure, (value, interval) in AREAS.items():
            row = Row(measure, True) if binary else Row(measure, True, "class", read.names[at])
            found[measure][row] = value(rates)
            if row.name in bounded and whole[-1]:
                bounds |= _ends(row, interval(histogram))
    _warn_if_reversed(found["auc"], positives)
    if not binary:
        for measure, areas in found.items():
            of_whole = torch.where(torch.tensor(whole), torch.stack(list(areas.values())), torch.nan)
            areas[Row(measure, True)] = of_whole.nanmean()
    rows = {row: value for areas in found.values() for row, value in areas.items()}
    return dict(zip(rows, shown(list(rows.values())), strict=True)) | bounds


def _warn_if_reversed(areas: Mapping[Row, Tensor], positives: Sequence[int]) -> None:
    """Warn of areas that chance hardly makes so low."""
    low = [
        f"{row.name} {value.item():.3f}"
        for (row, value), number in zip(areas.items(), positives, strict=True)
        if number >= ENOUGH and value < LOW
    ]
    if low:
        warn_caller(
            f"report: {first_names(low)}, so the scores may be those of the other class; pass the scores of the "
            "positive class, such as 1 - preds of probabilities"
        )


def _ranked(read: Samples, logits: bool) -> Tensor:
    """Return float64 scores ``[N, L]`` that rank the samples: of the positive class, or of each label or class."""
    scores = read.preds.double()
    if read.task == "binary":
        scores = of_class_one(scores, 1) if logits or scores.ndim == 1 else scores[:, 1]
        return scores.unsqueeze(1)
    if read.task == "multiclass" and logits:
        most = torch.finfo(scores.dtype).max / 4
        return against_the_rest(scores.clamp(-most, most))
    return scores


def _ends(row: Row, interval: Interval, place: int = 0) -> dict[Row, Tensor]:
    """Return the bounds of a value."""
    low, high = shown([interval.low.reshape(-1)[place], interval.high.reshape(-1)[place]])
    own = (row.measure, row.better, row.kind, row.of)
    return {Row(*own, "low"): low, Row(*own, "high"): high}


def _chosen(
    name: str, of: str, better: bool | None, numbers: Sequence[float], interval: Interval | None, place: int = 0
) -> dict[Row, Tensor]:
    """Return the rows of a rule: its number, the values of the measure without and with it, and its gain."""
    keys = ((name, None), ("plain", better), ("chosen", better))
    rows = [Row(key, direction, "rule", of) for key, direction in keys]
    found = dict(zip(rows, torch.tensor(numbers, dtype=torch.float64).unbind(), strict=True))
    if interval is not None:
        gain = Row("gain", True, "rule", of)
        found[gain] = shown([interval.estimate.reshape(-1)[place]])[0]
        found |= _ends(gain, interval, place)
    return found


def _thresholds(
    read: Samples, rule: str, prevalence: Sequence[float] | None, logits: bool, extra: Mapping[str, Tensor]
) -> dict[Row, Tensor]:
    """Return the rows of the threshold of two classes, or of each label."""
    options: dict[str, Any] = {"weighted": "weight" in extra, "clusters": "cluster" in extra}
    options |= {} if read.task == "binary" else {"num_labels": len(read.names), "class_names": read.names}
    counted = ThresholdSweep(rule, task=read.task, prevalence=prevalence, logits=logits, **options)
    counted.update(read.preds, read.target, **extra)
    sweep = counted.result()
    thresholds, values = sweep.curve()
    plain = values[..., int((thresholds - 0.5).abs().argmin())].reshape(-1).tolist()
    interval = None if "weight" in extra else sweep.gain(generator=torch.Generator().manual_seed(0))
    found: dict[Row, Tensor] = {}
    chosen, at_it = ([row for row in sweep.rows if row.measure == each] for each in ("threshold", "value"))
    for place, (number, value) in enumerate(zip(chosen, at_it, strict=True)):
        of = rule if read.task == "binary" else f"{rule}/{number.of}"
        numbers = (sweep.rows[number].item(), plain[place], sweep.rows[value].item())
        found |= _chosen("threshold", of, value.better, numbers, interval, place)
        if logits:
            found[Row("log_odds", None, "rule", of)] = sweep.log_odds.reshape(-1)[place]
    return found


def _adjusted(read: Samples, rule: str, prior: Any, logits: bool, extra: Mapping[str, Tensor]) -> dict[Row, Tensor]:
    """Return the rows of the logit adjustment of several classes."""
    prior = keyed_by_name(prior)
    shares = [prior[name] for name in read.names] if isinstance(prior, Mapping) else prior
    sweep = LogitAdjustmentSweep(rule, shares, class_names=read.names, logits=logits)
    sweep.update(read.preds, read.target, **extra)
    result: LogitAdjustmentResult = sweep.result()
    taus, values = result.curve()
    plain, chosen = (values[int((taus == tau).double().argmax())].item() for tau in (0.0, result.tau))
    interval = result.gain(generator=torch.Generator().manual_seed(0))
    return _chosen("tau", rule, sweep["value"].row.better, (result.tau, plain, chosen), interval)
