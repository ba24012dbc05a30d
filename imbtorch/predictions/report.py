"""Reports of saved predictions: arrays, frames, files and engines, with classes of any name."""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor

from imbtorch.columns import Missing, Rules
from imbtorch.counting.arguments import Task, Thresholds
from imbtorch.counts import check_choice
from imbtorch.deciding.curves import AREAS
from imbtorch.deciding.scores import Curves
from imbtorch.measures.named import Measured
from imbtorch.measures.overall import macro_averaged_absolute_error
from imbtorch.measures.traits import by_any_name, needs_matrix
from imbtorch.metrics.base import UNSURE
from imbtorch.metrics.rows import Row
from imbtorch.predictions.samples import Samples, from_arrays, from_source
from imbtorch.predictions.sources import Arrays, Engine, Source
from imbtorch.reports.report import ImbalanceReport
from imbtorch.reports.result import ReportResult, with_values
from imbtorch.suggestions import first_names

LARGE = 25_000_000  # cells of a matrix from which margins are counted if they are enough: 0.2 GB
SLOW = 2.0  # seconds after which, and between which, a terminal shows progress


def report(
    source: Any = None,
    *,
    target: Any,
    preds: Any = None,
    scores: Any = None,
    class_names: Sequence[Any] | Mapping[Any, Any] | None = None,
    positive: Any = None,
    task: Task | None = None,
    threshold: Thresholds = 0.5,
    logits: bool = False,
    group: Any = None,
    cluster: Any = None,
    weight: Any = None,
    frequency: Any = None,
    ignore: Any = None,
    missing: Missing = "raise",
    prevalence: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
    measures: Mapping[str, Measured] | Sequence[str] | None = None,
    intervals: bool | Sequence[str] = False,
    rule: str | None = None,
    prior: Mapping[Any, float] | Sequence[float] | Tensor | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    head: bool = True,
) -> ReportResult:
    """Report saved predictions, as :class:`ImbalanceReport` reports predictions in a training.

    ``source`` is a frame (pandas, Polars, PyArrow), a mapping of columns, a lazy frame of an engine, or files: a path,
    glob, folder or list of paths of CSV, TSV, Parquet or JSON lines, also ``.gz`` and ``.zst``
    (``pip install imbtorch[files]``). The other arguments then name columns: one, a list, a pattern such as ``"p_*"``,
    or a mapping of class to column. Only these are read, and memory does not grow with rows. Without ``source`` they
    hold the values: lists, NumPy arrays, torch tensors, columns of frames; several columns as a mapping or frame.

    **Classes** are integers if all values of targets and predictions are whole numbers, however written, booleans
    if all are true or false, else texts. The guide has all rules. Booleans, and 0 and 1, are the binary task, with True
    or 1 as the positive class. Two other classes are reported like several ones unless ``positive`` names one of them.

    **Scores** add the area under the ROC curve (``auc``) and the average precision (``average_precision``), with
    several classes of each one against the rest and their mean: exact up to 5 million samples, then by a sweep's bins.

    **The rule.** ``rule`` names the measure for which a decision rule is chosen on the same samples: with two classes
    or labels the threshold of a :class:`ThresholdSweep`, with several classes the tau of a
    :class:`LogitAdjustmentSweep`. ``table()["rule"][rule]`` holds it (of logits also as ``log_odds``), the values of
    the measure without and with it (``plain`` and ``chosen``), and the corrected gain to expect on new samples.

    Args:
        source: frame, mapping of columns, lazy frame, or files; None if the arguments hold the values.
        target: true classes; of several labels columns of 0 and 1, ``[N, L]`` or label -> ``[N]``.
        preds: predicted classes, of several labels a column each. Floating arrays are scores; columns never are.
        scores: score of class 1, True or ``positive``, or of each class, by name or ``[N, K]`` in their order.
        class_names: classes in the order of the report, also those that do not occur; names of the integers 0 to
            K - 1, or a mapping of class to name.
        positive: positive one of two classes.
        task: ``"multilabel"`` for labels of which each row has one, ``"multiclass"`` for the mean over 0 and 1.
        threshold: score strictly above which 1 is predicted, for two classes and labels.
        logits: whether scores are logits rather than probabilities; never guessed.
        group: group of each sample, such as its site; adds the values of each and of the worst.
        cluster: id of the cluster of each sample, such as its patient, which intervals and the rule resample; areas
            then have no intervals.
        weight: weight of each sample; weighted values have no intervals.
        frequency: number of samples that each row stands for.
        ignore: target, or list of targets, whose samples are left out, such as -100.
        missing: ``"raise"``, ``"drop"`` to leave out samples with a missing value, ``"class"`` to make a class of them.
        prevalence: class shares of the population for which values are computed, by class or in the order of the
            classes (by class if ``positive`` names the first of two); for labels the share of positives of each.
        measures: measures over all classes, as in :class:`ImbalanceReport`.
        intervals: True for the 95% intervals of all measures, or names of values; False by default.
        rule: name of the measure for which a decision rule is chosen; by default none.
        prior: number or share of the training samples of each class, for ``rule`` with several classes.
        encoding: encoding of CSV files: ``"utf-8"``, ``"latin-1"`` or ``"utf-16"``.
        decimal: decimal sign of numbers in CSV files.
        head: whether the first row of CSV files names the columns; if not, they are ``"0"``, ``"1"``, ...

    Returns:
        :class:`~imbtorch.reports.result.ReportResult`, as ``ImbalanceReport.result()``: print its ``table()``.

    Raises:
        ValueError: for values that have no single meaning, and arguments that do not fit each other. The error names
            the argument, the row (from 0, without the head) and the remedy.
        TypeError: for values that are no classes, and classes of different types.

    >>> from imbtorch import report
    >>> columns = {"label": ["cat", "dog", "dog", "emu"], "pred": ["cat", "cat", "dog", "emu"]}
    >>> round(float(report(columns, target="label", preds="pred").values["balanced_accuracy"]), 3)
    0.833
    """
    check_choice("missing", missing, ("raise", "drop", "class"))
    if (preds is None) == (scores is None):
        raise TypeError("preds or scores must be given, one of them: predicted classes, or scores of classes")
    if weight is not None and frequency is not None:
        raise ValueError("weight and frequency exclude each other; multiply them into one weight")
    roles = {"group": group, "cluster": cluster, "weight": weight, "frequency": frequency}
    more = {name: each for name, each in roles.items() if each is not None}
    argument, predicted = ("preds", preds) if scores is None else ("scores", scores)
    if source is None:
        given = from_arrays(argument, predicted, target, more)
    else:
        wanted = [each for each in (target, predicted, *more.values()) if isinstance(each, str)]
        given = from_source(opened(source, wanted, encoding, decimal, head), argument, predicted, target, more)
    with _reading(given.source):
        samples = Samples(given, Rules(class_names, positive, task, ignore, missing), logits)
        return _counted(samples, threshold, prevalence, measures, intervals, rule, prior)


def opened(
    source: Any, wanted: Sequence[str], encoding: str | None, decimal: str, head: bool, like: Source | None = None
) -> Source:
    """Open a source: a frame, a mapping, or files; raise a TypeError for anything else."""
    if isinstance(source, Mapping):
        return Arrays({str(name): each for name, each in source.items()})
    if isinstance(source, (str, PathLike, list, tuple)):
        from imbtorch.predictions.files import Files

        plain = [each for each in wanted if not set(each) & set("*?,")]
        return Files(source, plain, encoding, decimal, head, like)
    if type(source).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        from imbtorch.predictions.files import Relation

        return Relation(source)
    nw = importlib.import_module("narwhals")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Dask support is moving", FutureWarning)  # to a package of its own
        frame = nw.from_native(source, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        return Engine(frame)
    if isinstance(frame, nw.DataFrame):
        return Arrays({str(name): frame[name].to_native() for name in frame.columns})
    raise TypeError(
        f"source must be a frame, a mapping of columns, a path or a list of paths, got {type(source).__name__}; arrays "
        "are passed as preds= and target="
    )


@contextmanager
def _reading(source: Source) -> Iterator[None]:
    """Show progress of files, and leave the other cores to the engine, whose threads those of torch would slow down."""
    if isinstance(source, Arrays):
        yield
        return
    threads, connection = torch.get_num_threads(), getattr(source, "connection", None)
    torch.set_num_threads(1)
    try:
        with nullcontext() if connection is None else progress(connection):
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def progress(connection: Any) -> Iterator[None]:
    """Show on a terminal how much of a query of DuckDB is done, once it takes long."""
    done = threading.Event()

    def show() -> None:
        while not done.wait(SLOW):
            sys.stderr.write(f"\rreading: {max(connection.query_progress(), 0):.0f}% ")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()


def _counted(
    samples: Samples,
    threshold: Thresholds,
    prevalence: Any,
    measures: Mapping[str, Measured] | Sequence[str] | None,
    intervals: bool | Sequence[str],
    rule: str | None,
    prior: Any,
) -> ReportResult:
    """Count all samples, and compute the result."""
    given, scored = samples.given, samples.given.scored
    asked = _listed(measures)
    _check_order(samples, prevalence, asked)
    if scored:
        _check_rule(rule, prior, samples, prevalence)
        if rule is not None and threshold != 0.5:
            raise ValueError("threshold is chosen by rule; leave one of them out")
    elif rule is not None or samples.logits:
        raise ValueError(f"{'rule' if rule else 'logits'} needs scores, but preds are classes; pass their scores")
    elif threshold != 0.5:
        raise ValueError("threshold is for scores, but preds are classes; pass scores=")
    own, bounded = _split(intervals, samples, prevalence)
    counted = ImbalanceReport(
        samples.task,
        class_names=samples.names,
        measures=_without_areas(measures, scored),
        intervals=own,
        logits=samples.logits,
        groups=samples.groups or None,
        clusters=True if "cluster" in given.more else False if "frequency" in given.more else None,
        prevalence=keyed_by_name(prevalence),
        weighted="weight" in given.more,
        threshold=threshold,
        state=_layout(samples, asked, own, prevalence),
    )
    curves = None
    if scored:
        kind = samples.task, samples.names, samples.logits
        roles = "weight" in given.more, "cluster" in given.more
        curves = Curves(*kind, counted.prevalence, samples.rows, *roles, rule, keyed_by_name(prior))
    for part in samples.parts():
        counted.update(part.preds, part.target, **part.extra)
        if curves is not None and len(part.target):
            extra = {name: each for name, each in part.extra.items() if name != "group"}
            curves.update(part.preds, part.target, **extra)
    result, rows, notes = counted.result(), dict[Row, Tensor](), list[str]()
    if curves is not None:
        rows, notes = curves.values(bounded)
    return with_values(result, rows, (*samples.notes, *notes))


def _listed(measures: Any) -> list[Any]:
    """Return measures as a list."""
    return list(measures.values() if isinstance(measures, Mapping) else measures or ())


def keyed_by_name(given: Any) -> Any:
    """Return a mapping of classes with their names as keys, and anything else as it is."""
    return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else given


def _without_areas(measures: Any, scored: bool) -> Any:
    """Return measures of counts, without those of scores, which scores always have."""
    if measures is None or isinstance(measures, (str, Mapping)):
        return measures
    named = [each for each in measures if each in AREAS]
    if named and not scored:
        raise ValueError(f"measures contains {named[0]!r}, which needs scores; pass scores=, or floating preds")
    return [each for each in measures if each not in AREAS]


def _layout(samples: Samples, asked: Sequence[Any], intervals: Any, prevalence: Any) -> Literal["matrix", "margins"]:
    """Return margins for so many classes that their matrix is large, if nothing asked for needs its cells."""
    clustered = {"cluster", "group"} & set(samples.given.more)
    if samples.task != "multiclass" or len(samples.names) ** 2 <= LARGE or intervals or clustered:
        return "matrix"
    known = [by_any_name().get(each) if isinstance(each, str) else each for each in asked]
    cells = prevalence is not None or any(each is None or needs_matrix(each) for each in known)
    return "matrix" if cells else "margins"


def _check_order(samples: Samples, prevalence: Any, asked: Sequence[Any]) -> None:
    """Raise for class shares and measures that need an order which is unclear."""
    classes, names = samples.classes, samples.names
    if classes is None:
        return
    if classes.swapped and prevalence is not None and not isinstance(prevalence, Mapping):
        shares = ", ".join(f"{name!r}: ..." for name in names)
        raise ValueError(
            f"positive puts {names[-1]!r} last, so the order of prevalence is unclear; give the shares by class, "
            f"prevalence={{{shares}}}"
        )
    ordinal = [each for each in asked if each in ("macro_averaged_absolute_error", macro_averaged_absolute_error)]
    if ordinal and not classes.ordered and len(names) > 2:
        raise ValueError(
            f"macro_averaged_absolute_error needs the order of the classes, which texts do not have; name them in "
            f"their order by class_names=[...], or pass an ordered Categorical; sorted they are {first_names(names)}"
        )


def _split(
    intervals: bool | Sequence[str], samples: Samples, prevalence: Any
) -> tuple[bool | Sequence[str], Sequence[str]]:
    """Return the names of values with intervals of the report, and those of areas under curves."""
    given, names = samples.given, samples.names
    keys = list(AREAS) if prevalence is None else ["auc"]  # average precision has none at another prevalence
    known = keys if samples.task == "binary" else [f"{area}/{name}" for area in keys for name in names]
    independent = not {"cluster", "weight"} & set(given.more)
    if isinstance(intervals, (bool, str)) or not given.scored:
        return intervals, known if intervals is True and independent else ()
    of_areas = [name for name in intervals if name.partition("/")[0] in AREAS]
    if of_areas and not independent:
        raise ValueError(
            UNSURE
            if "weight" in given.more
            else f"intervals contains {of_areas[0]!r}, but areas have no intervals with cluster=; a "
            "ThresholdSweep(..., clusters=True) has them, sweep.interval('auc')"
        )
    for name in of_areas:
        if name not in known:
            raise ValueError(
                f"intervals contains {name!r}, but areas have intervals for {first_names(known)} only"
                + ("" if prevalence is None else "; average precision has no interval at another prevalence")
            )
    return [name for name in intervals if name not in of_areas], of_areas


def _check_rule(rule: str | None, prior: Any, samples: Samples, prevalence: Any) -> None:
    """Raise for a rule and a prior that do not fit the classes."""
    several, names = samples.task == "multiclass", samples.names
    if prior is not None and (rule is None or not several):
        raise ValueError(
            "prior is for the rule of several classes; " + ("leave it out" if rule else "add rule='balanced_accuracy'")
        )
    if rule is None or not several:
        return
    if prior is None:
        raise ValueError(
            "rule needs prior for several classes: the number or share of the training samples of each class, as in "
            f"prior={{{', '.join(f'{name!r}: ...' for name in names[:3])}}}; of two classes positive= names the "
            "positive one, and the rule is then a threshold"
        )
    if "weight" in samples.given.more or prevalence is not None:
        raise ValueError(
            "rule takes neither weight nor prevalence for several classes; choose the rule in a report without them"
        )
    if isinstance(prior, Mapping):
        wrong = sorted(set(map(str, prior)).symmetric_difference(names))
        if wrong:
            raise ValueError(f"prior must name each class, {first_names(names)}; {wrong[0]!r} differs")
