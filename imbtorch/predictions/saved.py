"""Saved predictions of any model, described once: reports, thresholds, logit adjustments and comparisons of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import partial
from os import PathLike
from typing import Any, TypedDict, TypeVar, get_args, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.choosing.comparisons import Comparison
from imbtorch.choosing.gate import Gate, PairedModels, Verdict
from imbtorch.columns import Missing, Rules
from imbtorch.counting.arguments import (
    Task,
    Thresholds,
    checked_threshold,
    in_class_order,
    refuses_arguments_of_others,
)
from imbtorch.counts import check_choice
from imbtorch.deciding.adjustment_result import AdjustmentSettings, LogitAdjustmentResult, result_of_buckets
from imbtorch.deciding.costs import NAMES, Costs
from imbtorch.deciding.money import CostPoint, row_costs
from imbtorch.deciding.points import OperatingPoint, check_kind
from imbtorch.deciding.sweep_result import Origin, SweepResult
from imbtorch.deciding.sweep_settings import Also, SweepSettings
from imbtorch.intervals.intervals import check_level
from imbtorch.measures.named import Measured
from imbtorch.measures.traits import short_name
from imbtorch.predictions.compare import Pairing, check_ids, paired
from imbtorch.predictions.estimates import Estimate, Of, estimate_of
from imbtorch.predictions.label_bounds import Aim
from imbtorch.predictions.labels import DRAWN, POSITION, UNFIT, LabelPlan, Pool, Read, open_plan, planned, pool_of
from imbtorch.predictions.parts import Part, count_
from imbtorch.predictions.report import check_order, opened, reading, report_of
from imbtorch.predictions.samples import Given, Samples, from_arrays, from_source, samples_of
from imbtorch.predictions.scores import BinnedScores, CostedRows, sizes_of
from imbtorch.predictions.sources import Source
from imbtorch.reports.result import ReportResult, with_values
from imbtorch.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


class Reading(TypedDict, total=False):
    """Arguments that say how a source is read; :class:`Predictions` explains them."""

    class_names: Sequence[Any] | Mapping[Any, Any] | None
    positive: Any
    task: Task | None
    group: Any
    cluster: Any
    weight: Any
    frequency: Any
    ignore: Any
    missing: Missing
    no_answer: Any
    encoding: str | None
    decimal: str
    head: bool


DEFAULTS: dict[str, Any] = dict.fromkeys(Reading.__annotations__)
DEFAULTS |= {"missing": "raise", "no_answer": (), "decimal": ".", "head": True}
ROLES = ("group", "cluster", "weight", "frequency")
POOLED = (
    "group= plays no part in thresholds: rows of all groups are pooled, and alerts= is a share of all of them; for a "
    "budget within each group, such as each day, choose a threshold from its rows alone"
)


def spelled_out(function: F) -> F:
    """Show the arguments of :class:`Reading` one by one in the signature of a function, for help and completion."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    hints = Reading.__annotations__
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name].__forward_arg__)
        for name, default in DEFAULTS.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return function


class Predictions:
    """Saved predictions of one model or several, described once; each method reads the columns that it needs.

    ``source`` is a frame (pandas, Polars, PyArrow), a mapping of columns, a lazy frame of an engine, or files: a path,
    glob, folder or list of paths of CSV, TSV, Parquet or JSON lines, also ``.gz`` and ``.zst``
    (``pip install imbtorch[files]``). The other arguments then name columns: one, a list, a pattern such as ``"p_*"``,
    or a mapping of class to column. Memory does not grow with rows. Without ``source`` they hold the values: lists,
    NumPy arrays, torch tensors, columns of frames; several columns as a mapping or frame.

    **Classes** are integers if all values of targets and predictions are whole numbers, however written, booleans
    if all are true or false, else texts. The page "Saved predictions" has all rules. Booleans, and 0 and 1, are the
    binary task, with True or 1 as the positive class. Two other classes are reported like several ones unless
    ``positive`` names one of them.

    Args:
        source: frame, mapping of columns, lazy frame, or files; None if the arguments hold the values.
        target: true classes; of several labels columns of 0 and 1, ``[N, L]`` or label -> ``[N]``.
        class_names: classes in their order, also those that do not occur; names of the integers 0 to K - 1, or a
            mapping of class to name.
        positive: positive one of two classes.
        task: ``"multilabel"`` for labels of which each row has one, ``"multiclass"`` for the mean over 0 and 1.
        group: group of each sample, such as its site; :meth:`report` adds the values of each and of the worst.
        cluster: id of the cluster of each sample, such as its patient, which intervals and choices resample; the areas
            of :meth:`report` then have no intervals.
        weight: weight of each sample; areas and thresholds then have no intervals.
        frequency: number of samples that each row stands for.
        ignore: target, or list of targets, whose samples are left out, such as -100; of several labels only the label.
        missing: ``"raise"``, ``"drop"`` to leave out samples with a missing value, ``"class"`` to make a class of them.
        no_answer: predicted value, or list of values, that stands for no answer, such as ``"INVALID"``; None for
            missing predictions. It is a miss of its class and no class of its own.
        encoding: encoding of CSV files: ``"utf-8"``, ``"latin-1"`` or ``"utf-16"``.
        decimal: decimal sign of numbers in CSV files.
        head: whether the first row of CSV files names the columns; if not, they are ``"0"``, ``"1"``, ...

    Raises:
        ValueError: for values that have no single meaning, arguments that do not fit each other, and a file that
            changed since it was read. The error names the argument, the row (from 0, without the head) and the remedy.
        TypeError: for values that are no classes, and classes of different types.

    >>> columns = {"label": [0, 0, 0, 1, 1] * 20, "score": [0.1, 0.2, 0.6, 0.4, 0.8] * 20}
    >>> data = Predictions(columns, target="label")
    >>> round(data.report(scores="score", threshold=0.3)["precision"].item(), 3)
    0.667
    >>> data.thresholds("score", "f1").best(alerts=0.3).threshold > 0.6
    True
    """

    @spelled_out
    def __init__(self, source: Any = None, *, target: Any, **arguments: Unpack[Reading]) -> None:
        for name in arguments:
            if name not in DEFAULTS:
                raise TypeError(f"Predictions has no argument {name!r}{did_you_mean(name, DEFAULTS)}")
        given = {**DEFAULTS, **arguments}
        check_choice("missing", given["missing"], ("raise", "drop", "class"))
        if given["weight"] is not None and given["frequency"] is not None:
            raise ValueError("weight and frequency exclude each other; multiply them into one weight")
        if isinstance(given["positive"], str) and not given["positive"].strip():
            raise ValueError(
                f"positive is {given['positive']!r}, which names no class; name one, or leave positive out"
            )
        self._source, self._target = source, target
        self._more = {name: each for name in ROLES if (each := given[name]) is not None}
        self._rules = Rules(
            *(given[name] for name in ("class_names", "positive", "task", "ignore", "missing", "no_answer"))
        )
        self._how = given["encoding"], given["decimal"], given["head"]
        self._stamps: dict[str, tuple[int, int]] = {}

    def _open(self, wanted: Sequence[Any], like: Source | None = None, drawn: bool = False) -> Source:
        """Open the source; raise if a file changed since it was read first, and for labels that a plan has drawn."""
        source = opened(self._source, [each for each in wanted if isinstance(each, str)], *self._how, like)
        for path in getattr(source, "paths", ()):
            found = os.stat(path)
            stamp = found.st_size, found.st_mtime_ns
            if self._stamps.setdefault(path, stamp) != stamp:
                raise ValueError(f"{path} changed since it was read; make new Predictions of it")
        found_marks = [] if drawn else [each for each in DRAWN if each in source.names]
        if found_marks:
            raise ValueError(
                f"the source has a column {found_marks[0]!r}: a plan drew these labels, and without it they are "
                "biased; estimate takes them by plan="
            )
        return source

    def _given(self, argument: str, predicted: Any, target: Any, more: Mapping[str, Any], drawn: bool = False) -> Given:
        """Return the columns of some predictions by their roles; only a pool has labels that a plan drew."""
        if self._source is None:
            return from_arrays(argument, predicted, target, more)
        source = self._open([target, predicted, *more.values(), *DRAWN * drawn], None, drawn)
        return from_source(source, argument, predicted, target, more)

    def _samples(self, argument: str, predicted: Any, logits: bool, roles: Sequence[str] = ROLES[1:]) -> Samples:
        """Read the columns of some predictions."""
        more = {name: each for name, each in self._more.items() if name in roles}
        given = self._given(argument, predicted, self._target, more)
        with reading(given.source):
            return samples_of(given, self._rules, logits)

    def report(
        self,
        preds: Any = None,
        *,
        scores: Any = None,
        threshold: Thresholds | OperatingPoint | CostPoint | None = None,
        logits: bool = False,
        prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
        measures: Mapping[str, Measured] | Sequence[str] | None = None,
        intervals: bool | str | Sequence[str] = False,
        class_groups: Mapping[str, Sequence[Any]] | None = None,
        id: str | Sequence[str] | None = None,
    ) -> ReportResult:
        """Report predicted classes or scores, as :class:`imbtorch.ImbalanceReport` reports those of a training.

        **Scores** add the area under the ROC curve (``auc``) and the average precision (``average_precision``), with
        several classes of each one against the rest and their mean: exact up to 5 million samples, then by a sweep's
        bins. Groups have those over all classes, up to 5 million samples.

        Args:
            preds: predicted classes, of several labels a column each. Floating arrays are scores; columns never are.
            scores: score of class 1, True or ``positive``, or of each class, by name or ``[N, K]`` in their order.
            threshold: score strictly above which 1 is predicted, for two classes and labels; by default 0.5, with a
                note. Or an operating point of a sweep.
            logits: whether scores are logits rather than probabilities; never guessed.
            prevalence: class shares of the population for which values are computed, by class or in the order of the
                classes (by class if ``positive`` names the first of two); for labels the share of positives of each.
            measures: measures over all classes, as in :class:`imbtorch.ImbalanceReport`.
            intervals: True for the 95% intervals of all measures, ``"*"`` for all values, or names of values and
                patterns such as ``"recall/*"``; False by default.
            class_groups: name -> classes, such as :func:`~imbtorch.shot_groups`, whose mean recall and precision are
                added.
            id: column, or several, that tell rows apart: two rows with the same id are an error.

        Returns:
            :class:`imbtorch.ReportResult`, as ``ImbalanceReport.result()``: print its ``table()``.

        >>> data = Predictions({"label": ["cat", "dog", "dog"], "pred": ["cat", "cat", "dog"]}, target="label")
        >>> data.report("pred")["balanced_accuracy"]
        tensor(0.7500)
        """
        if isinstance(threshold, CostPoint):
            costed, samples, at = *self._costed(scores, threshold, logits, preds=preds, prevalence=prevalence), None
        else:
            argument, predicted, at = _one_of(preds, scores, threshold, logits)
            samples, costed = self._samples(argument, predicted, logits, ROLES), None
        chosen_for = threshold.scores if isinstance(threshold, OperatingPoint) else ""
        if self._source is not None and chosen_for not in ("", *samples.columns):
            samples.notes.append(
                f"the threshold was chosen for the scores of column {chosen_for!r}, and these are of "
                f"{samples.columns[-1]!r}"
            )
        with reading(samples.given.source):
            if id is not None:
                check_ids(None if self._source is None else samples.given.source, id)
            result = report_of(samples, samples.placed(at), prevalence, measures, intervals, class_groups, costed)
        counts = result.counts
        if isinstance(threshold, OperatingPoint) and isinstance(counts, Tensor) and counts.shape == (2, 2):
            result = with_values(result, {}, threshold.notes_on(counts))
        return result

    def _costed(self, scores: Any, given: Any, logits: bool, **others: Any) -> tuple[CostedRows, Samples]:
        """Read rows with costs of their own, or a point of such; raise for what these do not allow."""
        point = given if isinstance(given, CostPoint) else None
        check_kind(None if point is None else point.logits, logits)
        others |= {name: self._more.get(name) for name in ("weight", "frequency")}
        costs = row_costs(given if point is None else point.costs, others)
        data = copy(self)
        data._more = self._more | {name: each for name, each in costs.items() if isinstance(each, str)}
        samples = data._samples("scores", scores, logits, (*ROLES, *NAMES))
        if samples.task != "binary" or "" not in samples.given.preds or samples.rules.columns is not None:
            raise ValueError("costs of rows need two classes, and one column of scores, those of the positive class")
        return CostedRows(costs, logits, point), samples

    def label_plan(
        self,
        preds: Any = None,
        *,
        labels: int,
        scores: Any = None,
        threshold: float | OperatingPoint | None = None,
        logits: bool = False,
        aim: Aim = "f1",
        seed: int = 0,
        id: Any = None,
    ) -> LabelPlan:
        """Draw the rows of a pool of two classes to label, at random within each predicted class.

        Plans nest: one of more labels, with the same seed and aim, holds the rows of this one.

        Args:
            preds: predicted classes.
            labels: number of labels, of which one at least is of each predicted class.
            scores: scores of the positive class in place of predicted classes.
            threshold: score strictly above which 1 is predicted, or an operating point.
            logits: whether scores are logits.
            aim: ``"f1"``, also for MCC and IAM, which labels a third of all among the rows predicted positive;
                ``"recall"`` labels a tenth, which pays for a recall below .8, ``"precision"`` as many as possible.
            seed: seed of the draw.
            id: column that tells rows apart, which the plan then holds in place of positions; relations of DuckDB and
                lazy frames need it, whose rows have no order.

        Returns:
            :class:`imbtorch.statistics.LabelPlan`: ``plan.rows`` are the positions to read; ``plan.save(path)``.

        >>> data = Predictions({"pred": [0] * 9_000 + [1] * 1_000}, target="label")
        >>> plan = data.label_plan("pred", labels=300)
        >>> len(plan.rows), sum(plan.predicted)
        (300, 100)
        """
        argument, predicted, at = _one_of(preds, scores, threshold, logits)
        return planned(self._pool(argument, predicted, at, logits, id=id), labels, aim, seed, at)

    def estimate(
        self,
        preds: Any = None,
        *,
        scores: Any = None,
        threshold: float | OperatingPoint | None = None,
        logits: bool = False,
        plan: LabelPlan | str | PathLike[str] | Mapping[Any, int],
        measures: Mapping[str, Measured] | Sequence[str] | None = None,
        of: Of = "pool",
        unclear: Any = None,
        level: float = 0.95,
        id: Any = None,
    ) -> Estimate:
        """Estimate the values of a pool of two classes from labels that a plan drew, with exact intervals.

        Only some rows are labelled, at random within each predicted class; targets of the other rows are missing. The
        source is the whole pool as the plan saw it, or rows that ``imbtorch label`` wrote, which hold the plan's id.

        Args:
            preds: predicted classes, as for :meth:`label_plan`, like all arguments up to ``logits``. The drawn rows
                alone need neither these nor scores if they have the column ``label_row``, or ids.
            scores: scores of the positive class in place of predicted classes.
            threshold: score strictly above which 1 is predicted, or an operating point.
            logits: whether scores are logits.
            plan: plan of :meth:`label_plan` or its file; or the number of rows of the pool by predicted class, on trust
                that you drew the labelled rows at random within each.
            measures: measures over both classes, as in :class:`imbtorch.ImbalanceReport`.
            of: ``"pool"``, or ``"population"`` for new rows of the same source.
            unclear: value or list of values of labels that nobody can decide; bounds take either class.
            level: least coverage of the intervals, in (0, 1).
            id: column of the ids that the plan holds.

        Returns:
            :class:`imbtorch.statistics.Estimate`: print its ``table()``.

        Raises:
            ValueError: for labels that are not those of the plan, and as :meth:`report`.

        >>> columns = {"pred": [0] * 90 + [1] * 10, "label": [0] * 20 + [1] * 3 + [None] * 72 + [1] * 4 + [0]}
        >>> data = Predictions(columns, target="label")
        >>> print(data.estimate("pred", plan={0: 90, 1: 10}, measures=["precision", "recall"]).table())
        predicted  pool  labelled  1 among labels
        0            90        23               3
        1            10         5               4
        <BLANKLINE>
        measure                     all
        precision  0.800 [0.500, 0.900]
        recall     0.405 [0.118, 0.750]
        <BLANKLINE>
        - of the pool (exact: holds in 95% or more of all labellings of any pool)
        - precision, recall: of '1'
        - on trust: drawn at random within the classes that this model and threshold predict; not
          complaints, not labels drawn for another model or used for the threshold
        - these 100 rows imply that 10% are predicted as '1' (alert rate)
        """
        check_choice("of", of, get_args(Of))
        check_level(level)
        sizes = plan if isinstance(plan, Mapping) else None
        opened = plan if isinstance(plan, (Mapping, LabelPlan)) else open_plan(plan)
        drawn = opened if isinstance(opened, LabelPlan) else None
        joined = drawn is not None and self._source is not None and (not drawn.by_id or id is not None)
        if preds is None and scores is None and drawn is not None and joined:
            argument, predicted, at, id = (
                ("id", id, threshold, None) if drawn.by_id else (POSITION, POSITION, threshold, id)
            )
        else:
            argument, predicted, at = _one_of(preds, scores, threshold, logits)
        read = self._pool(argument, predicted, at, logits, self._target, unclear, drawn, id)
        return estimate_of(*pool_of(read, drawn, sizes, level), of, read.names, measures)

    def _pool(
        self,
        argument: str,
        predicted: Any,
        threshold: Any,
        logits: bool,
        target: Any = None,
        unclear: Any = None,
        plan: LabelPlan | None = None,
        id: Any = None,
    ) -> Read:
        """Read the rows of a pool; before rows are labelled, it has no target."""
        wrong = [f"{name}=: {why}" for name, why in UNFIT.items() if name in self._more]
        wrong += ["missing=: rows without a label are the pool"] * (self._rules.missing != "raise")
        wrong += ["ignore=: leaving rows out biases the values; pass unclear="] * (self._rules.ignore is not None)
        wrong += ["no_answer=: predict a class for each row"] * (self._rules.no_answer != ())
        if wrong:
            raise ValueError(f"labels of a pool take no {wrong[0]}")
        if argument != "scores" and (logits or threshold is not None):
            raise ValueError(f"{'logits' if logits else 'threshold'} needs scores, but preds are classes; pass scores=")
        if argument == "scores":
            if threshold is None:
                raise ValueError("scores of a pool need threshold=, the one that was fixed before rows were drawn")
            checked_threshold("binary", threshold)
        if plan is not None and threshold != plan.threshold and argument in ("preds", "scores"):
            raise ValueError(f"threshold must be that of the plan, {plan.threshold}, got {threshold}")
        given = self._given(argument, predicted, target, {} if id is None else {"id": id}, drawn=True)
        if given.labels or list(given.preds) != [""] or self._rules.task not in (None, "binary"):
            raise ValueError("labels within predicted classes are of two classes, by one column of predictions")
        with reading(given.source):
            return Pool(given, self._rules, threshold, logits, plan).read(unclear)

    # fmt: off
    @overload
    def thresholds(
        self, scores: Any, measure: Measured, *, logits: bool = ..., thresholds: int | Tensor | None = ...,
        also: Sequence[Also] = ..., at_least: Mapping[str, float] | None = ..., alerts: float | None = ...,
        costs: Costs | None = ..., sure: float | None = ...,
        prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = ..., higher_is_better: bool | None = ...
    ) -> SweepResult: ...
    @overload
    def thresholds(self, scores: Any, *, costs: Mapping[str, float | str], logits: bool = ...) -> CostPoint: ...
    # fmt: on
    def thresholds(
        self,
        scores: Any,
        measure: Measured | None = None,
        *,
        logits: bool = False,
        thresholds: int | Tensor | None = None,
        also: Sequence[Also] = (),
        at_least: Mapping[str, float] | None = None,
        alerts: float | None = None,
        costs: Any = None,
        sure: float | None = None,
        prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
        higher_is_better: bool | None = None,
    ) -> SweepResult | CostPoint:
        """Try thresholds of two classes, of each label, or of each class against the rest.

        Args:
            scores: as for :meth:`report`.
            measure: measure to maximise; this and all that follows as for :class:`imbtorch.ThresholdSweep`.
            logits: whether scores are logits.
            thresholds: number of thresholds, or probabilities; 4,097 by default.
            also: further values, such as ``"auc"``.
            at_least: name of a measure -> least value.
            alerts: greatest share of samples that may be predicted positive.
            costs: the threshold with the lowest expected cost is chosen, as for ``{"miss": 10, "false_alarm": 1}``.
                Without a measure, costs of each row, numbers or names of columns, as for ``{"miss": "amount",
                "investigation": 4}``: the result is the offset of their own ratios with the lowest total, for which all
                rows are kept in memory.
            sure: level of a guarantee that the constraints hold in the population.
            prevalence: class shares of the population, as for :meth:`report`.
            higher_is_better: direction; by default that of the measure.

        Returns:
            :class:`imbtorch.SweepResult`: its table, ``best(...)``, intervals, curves, calibration, pictures, and
            ``rule``, a :class:`imbtorch.Threshold`. Of costs of rows a :class:`imbtorch.statistics.CostPoint`.

        >>> data = Predictions({"label": [0, 0, 1, 1] * 9, "score": [0.1, 0.4, 0.3, 0.9] * 9}, target="label")
        >>> data.thresholds("score", "f1").rule.predict([0.2, 0.95])
        array([0, 1])
        """
        if measure is None or (isinstance(costs, Mapping) and str in map(type, costs.values())):
            others: dict[str, Any] = {"measure": measure, "at_least": at_least, "alerts": alerts, "sure": sure}
            others |= {"prevalence": prevalence, "thresholds": thresholds, "also": also or None}
            others |= {"higher_is_better": higher_is_better}
            rows, samples = self._costed(scores, costs, logits, **others)
            _count(samples, rows.update)
            return rows.chosen(samples.columns[0])
        samples = self._samples("scores", scores, logits)
        check_order(samples, prevalence, ())
        if isinstance(prevalence, Mapping):
            prevalence = in_class_order("prevalence", _by_name(prevalence), samples.names)
        settings = SweepSettings.of(
            measure,
            thresholds,
            samples.task,
            also=also,
            at_least=at_least,
            alerts=alerts,
            costs=costs,
            sure=sure,
            prevalence=prevalence,
            higher_is_better=higher_is_better,
            logits=logits,
            weighted="weight" in self._more,
            clusters="cluster" in self._more,
            **sizes_of(samples.task, samples.names, samples.ignored_label),
        )
        binned = BinnedScores(settings)
        _count(samples, binned.update)
        problems = {"groups": POOLED} if "group" in self._more else {}
        columns = samples.columns[-1:] if samples.task == "binary" else samples.columns
        found = () if self._source is None else tuple(columns)
        return replace(
            binned.result(), _origin=Origin(samples.names[-1], found, problems | samples.problems, tuple(samples.notes))
        )

    def adjustments(
        self,
        scores: Any,
        measure: Measured,
        prior: Mapping[Any, float] | Sequence[float] | Tensor,
        *,
        logits: bool = False,
        at_least: Mapping[str, float] | None = None,
        taus: Tensor | Sequence[float] | None = None,
        class_groups: Mapping[str, Sequence[str | int]] | None = None,
        higher_is_better: bool | None = None,
    ) -> LogitAdjustmentResult:
        """Try logit adjustments of several classes.

        Args:
            scores: scores of all classes, as for :meth:`report`.
            measure: measure to maximise; this and all that follows as for :class:`imbtorch.LogitAdjustmentSweep`.
            prior: number or share of the training samples of each class, by class or in their order.
            logits: whether scores are logits.
            at_least: name of a value -> least value.
            taus: multiples to try.
            class_groups: name -> classes, whose mean recall the table shows.
            higher_is_better: direction; by default that of the measure.

        Returns:
            :class:`imbtorch.LogitAdjustmentResult`: its table, ``best(...)``, gain, picture, and ``rule``.

        >>> columns = {"label": ["a", "a", "b"] * 9, "p_a": [0.9, 0.8, 0.6] * 9, "p_b": [0.1, 0.2, 0.4] * 9}
        >>> Predictions(columns, target="label").adjustments("p_*", "balanced_accuracy", {"a": 8, "b": 2}).tau > 0
        True
        """
        samples = self._samples("scores", scores, logits)
        if samples.task == "multilabel" or "weight" in self._more:
            raise ValueError("logit adjustments are of the classes of unweighted samples; choose thresholds instead")
        if samples.task == "binary" and "" in samples.given.preds:
            raise ValueError("logit adjustments need scores of both classes; choose a threshold instead, by thresholds")
        settings = AdjustmentSettings.of(
            measure,
            in_class_order("prior", _by_name(prior), samples.names) if isinstance(prior, Mapping) else prior,
            at_least=at_least,
            taus=taus,
            class_names=samples.names,
            class_groups=class_groups,
            higher_is_better=higher_is_better,
            logits=logits,
        )
        counter = settings.counter()
        state = counter.zeros()
        _count(samples, partial(count_, counter, state))
        return result_of_buckets(settings, counter.of_buckets(state))

    # fmt: off
    @overload
    def compare(
        self, old: Any, new: Any, measure: str, *, other: Predictions | None = ...,
        id: str | Sequence[str] | None = ..., by_row: bool = ..., model: str | None = ...,
        threshold: float | Sequence[float] | None = ..., alerts: float | None = ..., margin: None = ...,
        level: float = ..., generator: torch.Generator | None = ...
    ) -> Comparison: ...
    @overload
    def compare(
        self, old: Any, new: Any, measure: str, *, other: Predictions | None = ...,
        id: str | Sequence[str] | None = ..., by_row: bool = ..., model: str | None = ...,
        threshold: float | Sequence[float] | None = ..., alerts: float | None = ..., margin: float,
        level: float = ..., generator: torch.Generator | None = ...
    ) -> Verdict: ...
    # fmt: on
    def compare(
        self,
        old: Any,
        new: Any,
        measure: str,
        *,
        other: Predictions | None = None,
        id: str | Sequence[str] | None = None,
        by_row: bool = False,
        model: str | None = None,
        threshold: float | Sequence[float] | None = None,
        alerts: float | None = None,
        margin: float | None = None,
        level: float = 0.95,
        generator: torch.Generator | None = None,
    ) -> Comparison | Verdict:
        """Compare two models on the same samples: the value of the new one minus that of the old one.

        Classes are compared by joint counts of target, old and new prediction, which the source groups: memory does not
        grow with rows, unless they are paired by ``id``. Columns hold scores of the positive class if the measure is
        ``"auc"`` or ``"average_precision"``, or if ``threshold`` or ``alerts`` is given.

        Args:
            old: predictions of the old model: a column, or ``[N]`` without a source.
            new: predictions of the new model.
            measure: name in the catalogue, or ``"auc"`` or ``"average_precision"``.
            other: source of the new model; its targets may be left out if rows are paired by ``id``.
            id: column, or several, that pair the rows of two sources; by default their order pairs them, and targets
                must agree.
            by_row: whether to pair rows by order although columns such as ``"image_id"`` differ.
            model: column that names the model of each row of a long source; the model of the first row is the old one.
            threshold: score strictly above which 1 is predicted, or one for each model, the old one first.
            alerts: share of the samples, such as 0.005: each model gets its own threshold, at which at most this share
                is predicted positive. The thresholds are taken as given; the interval covers new samples at them.
            margin: loss that is still accepted, such as 0.01; the result is then a verdict, with a 90% interval.
            level: nominal coverage of the interval of a comparison.
            generator: source of randomness, on the CPU; by default torch's. A verdict draws with a fixed seed.

        Returns:
            :class:`imbtorch.statistics.Comparison`, or with ``margin`` a :class:`imbtorch.statistics.Verdict`.

        Raises:
            ValueError: for rows that cannot be paired, targets that differ, scores without a threshold, and shares of
                alerts that cannot be reached alike.

        >>> columns = {"label": [0, 0, 1, 1] * 50, "old": [0, 1, 1, 0] * 50, "new": [0, 0, 1, 0] * 50}
        >>> data = Predictions(columns, target="label")
        >>> data.compare("old", "new", "precision").difference.estimate.item()
        0.5
        >>> data.compare("old", "new", "recall", margin=0.1).code
        0
        """
        measure = short_name(measure)
        pair = paired_models(self, Pairing(old, new, other, id, by_row, model, threshold, alerts), measure)
        if margin is not None:
            return Gate(pair, measure, margin).decide()
        return pair.compare(pair.measure(measure), level, generator)


def paired_models(data: Predictions, how: Pairing, measure: str) -> PairedModels:
    """Pair the predictions of two models."""
    unfit: list[str] = [name for name in ("weight", "frequency") if name in data._more]
    unfit += ["no_answer"] * (data._rules.no_answer != ())
    if unfit:
        raise ValueError(f"a comparison takes no {unfit[0]}=; compare two reports by imbtorch.statistics.compare")
    source = None if data._source is None else data._open([data._target, how.old, how.new])
    other, target = how.other, None
    known = {each.name: [repr(getattr(rules, each.name)) for rules in (data._rules, Rules())] for each in fields(Rules)}
    if other is not None:
        target = other._target
        other = other._open([target, how.new], source)
        differ = [
            each.name for each in fields(Rules) if repr(getattr(how.other._rules, each.name)) not in known[each.name]
        ]
        if differ:
            raise ValueError(
                f"{differ[0]} of other= is {getattr(how.other._rules, differ[0])!r}, but the settings of the first "
                "predictions hold for both; pass it there, or leave it out of other="
            )
    elif how.model is None and source is not None and (how.id is not None or how.by_row):
        raise ValueError("id and by_row pair the rows of two models; two columns of one source need neither")
    roles = {"target": data._target, "old": how.old, "new": how.new, "cluster": data._more.get("cluster")}
    return paired(source, other, roles, target, data._rules, measure, how)


def _one_of(preds: Any, scores: Any, threshold: Any, logits: bool) -> tuple[str, Any, Any]:
    """Return the name and the value of the argument of predictions, and the threshold of a point."""
    if (preds is None) == (scores is None):
        raise TypeError("preds or scores must be given, one of them: predicted classes, or scores of classes")
    if isinstance(threshold, CostPoint):
        raise ValueError("threshold is a point of row costs, which only report takes; others decide by one threshold")
    threshold = threshold.checked_for(logits) if isinstance(threshold, OperatingPoint) else threshold
    return ("preds", preds, threshold) if scores is None else ("scores", scores, threshold)


def _by_name(given: Mapping[Any, float]) -> dict[str, float]:
    """Return a mapping of classes with their names as keys."""
    return {str(key): value for key, value in given.items()}


def _count(samples: Samples, count: Callable[[Part], Any]) -> None:
    """Count all samples."""
    with reading(samples.given.source):
        for part in samples.parts():
            if len(part.target):
                count(part)


@refuses_arguments_of_others
@spelled_out
def report(
    source: Any = None,
    *,
    target: Any,
    preds: Any = None,
    scores: Any = None,
    threshold: Thresholds | OperatingPoint | CostPoint | None = None,
    logits: bool = False,
    prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
    measures: Mapping[str, Measured] | Sequence[str] | None = None,
    intervals: bool | str | Sequence[str] = False,
    class_groups: Mapping[str, Sequence[Any]] | None = None,
    id: str | Sequence[str] | None = None,
    **arguments: Unpack[Reading],
) -> ReportResult:
    """Report saved predictions in one call: ``Predictions(source, target=..., ...).report(preds, ...)``.

    :class:`Predictions` explains how sources are read, and also chooses thresholds and compares models.

    Args:
        source: frame, mapping of columns, lazy frame, or files; None if the arguments hold the values.
        target: true classes; of several labels columns of 0 and 1, ``[N, L]`` or label -> ``[N]``.
        preds: predicted classes, as for :meth:`Predictions.report`, like all arguments up to ``id``.
        scores: scores of the positive class, or of all classes.
        threshold: score strictly above which 1 is predicted, or an operating point.
        logits: whether scores are logits.
        prevalence: class shares of the population.
        measures: measures over all classes.
        intervals: True for the 95% intervals of all measures, ``"*"`` for those of all values, or names and patterns.
        class_groups: name -> classes whose mean recall and precision are added.
        id: column, or several, that tell rows apart: two rows with the same id are an error.
        class_names, positive, task, group, cluster, weight, frequency, ignore, missing: as for :class:`Predictions`.
        no_answer, encoding, decimal, head: as for :class:`Predictions`.

    Returns:
        :class:`imbtorch.ReportResult`, as ``ImbalanceReport.result()``: print its ``table()``.

    Raises:
        ValueError: as :class:`Predictions`.
        TypeError: as :class:`Predictions`.

    >>> from imbtorch import report
    >>> columns = {"label": ["cat", "dog", "dog", "emu"], "pred": ["cat", "cat", "dog", "emu"]}
    >>> round(float(report(columns, target="label", preds="pred").values["balanced_accuracy"]), 3)
    0.833
    """
    return Predictions(source, target=target, **arguments).report(
        preds,
        scores=scores,
        threshold=threshold,
        logits=logits,
        prevalence=prevalence,
        measures=measures,
        intervals=intervals,
        class_groups=class_groups,
        id=id,
    )
