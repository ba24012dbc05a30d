"""Counts of saved predictions by a report: arrays, frames, files and engines, with classes of any name."""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor

from imbtorch.counting.arguments import Thresholds
from imbtorch.counts import confusion_counts
from imbtorch.deciding.curves import AREAS
from imbtorch.measures.named import Measured
from imbtorch.measures.overall import macro_averaged_absolute_error
from imbtorch.measures.traits import by_any_name, needs_matrix, short_name
from imbtorch.predictions.parts import count_
from imbtorch.predictions.samples import Samples
from imbtorch.predictions.scores import CostedRows, Curves
from imbtorch.predictions.sources import Arrays, Engine, Source
from imbtorch.reports.description import DEFAULT, described
from imbtorch.reports.groups import UNFIT
from imbtorch.reports.readings import Readings, named_values
from imbtorch.reports.result import ReportResult, with_values
from imbtorch.reports.rows import Row, Snapshot
from imbtorch.reports.texts import UNSURE
from imbtorch.suggestions import first_names

LARGE = 25_000_000  # cells of a matrix from which margins are report_of if they are enough: 0.2 GB
AT_HALF = "classes at a threshold of 0.5; Predictions.thresholds chooses one"
SLOW = 2.0  # seconds after which, and between which, a terminal shows progress


def opened(
    source: Any, wanted: Sequence[str], encoding: str | None, decimal: str, head: bool, like: Source | None = None
) -> Source:
    """Open a source: a frame, a mapping, or files; raise a TypeError for anything else."""
    if isinstance(source, Mapping):
        return _arrays(source.items())
    if isinstance(source, (str, PathLike, list, tuple)):
        from imbtorch.predictions.files import Files

        plain = [each for each in wanted if not set(each) & set("*?,")]
        return Files(source, plain, encoding, decimal, head, like)
    if type(source).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        from imbtorch.predictions.files import Relation

        return Relation(source)
    if hasattr(source, "iloc") and not hasattr(source, "dask"):  # of pandas, whose names may be integers or stand twice
        return _arrays((name, source.iloc[:, at]) for at, name in enumerate(source.columns))
    if hasattr(source, "itercolumns"):  # of PyArrow, whose names may stand twice
        return _arrays(zip(source.column_names, source.itercolumns(), strict=True))
    nw = importlib.import_module("narwhals")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Dask support is moving", FutureWarning)  # to a package of its own
        frame = nw.from_native(source, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        return Engine(frame)
    if isinstance(frame, nw.DataFrame):
        return _arrays((name, frame[name].to_native()) for name in frame.columns)
    raise TypeError(
        f"source must be a frame, a mapping of columns, a path or a list of paths, got {type(source).__name__}; arrays "
        "are passed as preds= and target="
    )


def _arrays(columns: Iterable[tuple[Any, Any]]) -> Arrays:
    """Return columns in memory by name, of which a frame may hold several with one name."""
    found, twice = dict[str, Any](), list[str]()
    for name, each in columns:
        twice += [str(name)] if str(name) in found else []
        found.setdefault(str(name), each)
    return Arrays(found, twice=twice)


@contextmanager
def reading(source: Source) -> Iterator[None]:
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


def report_of(
    samples: Samples,
    threshold: Thresholds | None,
    prevalence: Any,
    measures: Mapping[str, Measured] | Sequence[str] | None,
    intervals: bool | str | Sequence[str],
    class_groups: Mapping[str, Sequence[Any]] | None = None,
    costed: CostedRows | None = None,
) -> ReportResult:
    """Count all samples, flagged above a threshold or by a point of row costs, and compute the result."""
    given, scored = samples.given, samples.given.scored
    check_order(samples, prevalence, _listed(measures))
    if not scored and samples.logits:
        raise ValueError("logits needs scores, but preds are classes; pass their scores")
    if not scored and threshold is not None:
        raise ValueError("threshold is for scores, but preds are classes; pass scores=")
    own, bounded = _split(intervals, samples, prevalence)
    readings = _readings_of(samples, threshold, prevalence, measures, own, class_groups)
    counting = readings.counting
    state = counting.zeros()
    curves = Curves(readings, samples.rows) if scored else None
    for part in samples.parts(counting.threshold):
        batch = count_(counting, state, part if costed is None else costed.update(part))
        if curves is not None and len(part.target):
            curves.update(part, batch.scores)
    at = Snapshot.of(counting, state, readings.prevalence)
    result, rows, notes = ReportResult(readings.read(at), at, readings), dict[Row, Tensor](), list[str]()
    if curves is not None:
        rows, notes = curves.values(bounded)
        if intervals is True and "cluster" in given.more:
            notes.append("auc, average_precision: of clusters, Predictions.thresholds(...).interval has bounds")
    if samples.may_abstain:
        notes = answer_notes(samples, result)
    if costed is not None:
        notes += costed.notes()
    elif scored and threshold is None and samples.task != "multiclass":
        notes.append(AT_HALF)
    return with_values(result, rows, (*samples.notes, *samples.problems.values(), *notes))


def _readings_of(
    samples: Samples, threshold: Thresholds | None, prevalence: Any, measures: Any, intervals: Any, class_groups: Any
) -> Readings:
    """Return what a report reads from the counts of some samples."""
    given = samples.given
    column = given.more.get("group", "")
    grouped_by = "group" if set(column) & set(UNFIT) else column  # a checkpoint's file name cannot hold all signs
    options: dict[str, Any] = {
        "intervals": intervals,
        "class_groups": class_groups,
        "logits": samples.logits,
        "groups": {grouped_by: samples.groups} if samples.groups else None,
        "clusters": True if "cluster" in given.more else False if "frequency" in given.more else None,
        "prevalence": keyed_by_name(prevalence),
        "weighted": "weight" in given.more,
        "threshold": 0.5 if threshold is None else threshold,
        "state": _layout(samples, _listed(measures), intervals, prevalence),
    }
    if samples.may_abstain:
        return described("multiclass", **options | with_no_answer(samples, measures, options["prevalence"]))
    named = _without_areas(measures, given.scored)
    ignored = samples.ignored_label
    return described(samples.task, class_names=samples.names, measures=named, ignore_index=ignored, **options)


NO_ANSWER = "no answer"  # class of predictions that are none, behind the others; means over classes leave it out
OF_CLASSES = ("precision", "recall", "f1", "dice")  # of two classes those of the positive one
OF_ANSWERS = (*OF_CLASSES, "accuracy", "balanced_accuracy", "gmean", "iam", "cba")


@dataclass(frozen=True)
class OfOneClass:
    """Measure of one class among counts with a column of predictions that are no answer."""

    measure: str
    place: int

    def __call__(self, counts: Tensor) -> Tensor:
        """Evaluate counts ``[..., K + 1, K + 1]``."""
        return by_any_name()[self.measure](counts, average="none")[..., self.place]

    higher_is_better = True


def with_no_answer(samples: Samples, measures: Any, shares: Any) -> dict[str, Any]:
    """Return the arguments of a report that counts no answer as a miss of its class, and as no class of its own."""
    binary, known = samples.task == "binary", OF_ANSWERS + ("specificity",) * (samples.task == "binary")
    names = [name for name in DEFAULT if name in known] if measures is None else measures
    names = names if isinstance(names, Mapping) else list(map(short_name, names))
    wrong = [name for name in names if name not in known]
    if wrong or isinstance(names, Mapping):
        raise ValueError(
            f"measures of predictions that may be no answer are {', '.join(known)}, by name; got {(wrong or names)!r}"
        )
    found: dict[str, Any] = {name: name for name in names}
    if binary:  # an unanswered negative is no true negative
        found |= {name: OfOneClass(name, 1) for name in OF_CLASSES if name in found}
        found |= {name: OfOneClass("recall", 0) for name in ("specificity",) if name in found}
    number = len(samples.names)
    if shares is not None and not isinstance(shares, Mapping) and len(shares) == number:
        shares = dict(zip(samples.names, map(float, shares), strict=True))
    names = (*samples.names, NO_ANSWER)
    return {"class_names": names, "ignore_index": number, "measures": found, "prevalence": shares}


def answer_notes(samples: Samples, result: ReportResult) -> list[str]:
    """Return how many predictions are answers, and how many of these are right."""
    counts = confusion_counts(result.counts).double()
    answered, right = counts[:, :-1].sum(), counts.diagonal()[:-1].sum()
    notes = [f"answered {answered / counts.sum():.3f}; right among the answered {right / answered:.3f}"]
    named = [name for name in (*OF_CLASSES, "specificity") if name in result.values]
    if samples.task == "binary" and named:
        notes.append(f"{', '.join(named)}: of {samples.names[1]!r}")
    return notes


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
    measures = [short_name(each) for each in measures]
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


def check_order(samples: Samples, prevalence: Any, asked: Sequence[Any]) -> None:
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
    intervals: bool | str | Sequence[str], samples: Samples, prevalence: Any
) -> tuple[bool | str | Sequence[str], Sequence[str]]:
    """Return the names of values with intervals of the report, and those of areas under curves."""
    given, names = samples.given, samples.names
    keys = list(AREAS) if prevalence is None else ["auc"]  # average precision has none at another prevalence
    known = keys if samples.task == "binary" else [f"{area}/{name}" for area in keys for name in names]
    independent = not {"cluster", "weight"} & set(given.more)
    if isinstance(intervals, (bool, str)) or not given.scored:
        return intervals, known if intervals in (True, "*") and independent else ()
    of_areas = [found for name in intervals if name.partition("/")[0] in AREAS for found in named_values(name, known)]
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
    return [name for name in intervals if name.partition("/")[0] not in AREAS], of_areas
