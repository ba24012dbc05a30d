"""Command line for saved predictions: ``imbtorch report`` and ``imbtorch compare``, also as ``python -m imbtorch``."""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import math
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imbtorch.choosing.comparisons import compare, compare_outcomes
from imbtorch.choosing.outcomes import checked_outcomes
from imbtorch.counting.tasks import Counting
from imbtorch.intervals.intervals import Interval
from imbtorch.measures.named import AveragedMeasure, directed, resolved
from imbtorch.predictions.columns import encoded
from imbtorch.predictions.report import report
from imbtorch.reports.opened import open_result
from imbtorch.reports.result import ReportResult, depends_on_clusters
from imbtorch.suggestions import did_you_mean, first_names
from imbtorch.version import __version__

NOT_WORSE, WORSE, ERROR, UNDECIDED = 0, 1, 2, 3  # exit codes
LEVEL = 0.9  # of the interval of a difference: each bound is wrong in 5% of cases
MOST = 1024  # times as many samples, up to which the number that would decide is looked for
EXPECTED = (ValueError, TypeError, KeyError, OSError, ImportError)  # input errors, whose text alone is printed
PARQUET = (".parquet", ".pq")
BOOLEANS = {"true": True, "false": False}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Any error returns 2, since 1 means that the new model is worse.

    Args:
        arguments: arguments after the name of the program; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):  # consoles of Windows know few letters; "\\u732b" is better than an error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # of --help and --version, 0; of bad usage, 2
        return ERROR if stop.code else 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
            code: int = options.run(options)
            sys.stdout.flush()
            return code
    except EXPECTED as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"imbtorch {options.command}: error: {text}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"imbtorch {options.command}: interrupted", file=sys.stderr)
    except BaseException:  # exit code 1 would mean "worse"
        traceback.print_exc()
    return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "imbtorch",
        description="Report and compare saved predictions, in CSV or Parquet files with a row a sample. "
        "Errors count rows from 0, without the head.",
    )
    parser.add_argument("--version", action="version", version=f"imbtorch {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    one = commands.add_parser(
        "report",
        help="print all measures of a file",
        description="Print the values of each class and all measures, and a signature.",
    )
    one.set_defaults(run=_report)
    one.add_argument("file", help="CSV or Parquet file with a head")
    one.add_argument("--target", required=True, help="column of true classes; with a *, columns of 0 and 1 of labels")
    predicted = one.add_mutually_exclusive_group(required=True)
    predicted.add_argument("--preds", help="column of predicted classes; with a *, columns of labels")
    predicted.add_argument(
        "--scores", help="column of scores of the positive class, or with a * for the class those of all, as in 'p_*'"
    )
    one.add_argument("--positive", help="positive one of two classes; by default 1 or True")
    one.add_argument("--class-names", nargs="+", metavar="NAME", help="classes in their order; by default sorted")
    one.add_argument("--logits", action="store_true", help="scores are logits, not probabilities")
    one.add_argument("--cluster", metavar="COLUMN", help="column of patients or the like, which intervals resample")
    one.add_argument("--weight", metavar="COLUMN", help="column of the weights of samples")
    one.add_argument(
        "--prevalence",
        type=_shares,
        metavar="SHARES",
        help="class shares of the population, in the order of the classes or by name, as in 999,1 or ok=999,fraud=1",
    )
    one.add_argument("--measures", type=_names, metavar="NAMES", help="measures, as in iam,mcc")
    one.add_argument("--intervals", action="store_true", help="add the 95%% intervals of all measures")
    one.add_argument("--rule", metavar="MEASURE", help="choose a threshold, or with --prior a logit adjustment, for it")
    one.add_argument(
        "--prior", type=_numbers, metavar="SIZES", help="training samples of each class in their order, as in 900,90,10"
    )
    one.add_argument("--json", metavar="FILE", help="also write the result, for imbtorch.open_result and compare")
    one.add_argument("--markdown", action="store_true", help="print Markdown")

    two = commands.add_parser(
        "compare",
        help="say whether new predictions are worse than old ones",
        description="Compare new predictions with old ones of the same samples. Exit code: 0 if they are not worse by "
        "more than the margin or no prediction differs, 1 if they are worse, 3 if these samples do not decide, 2 for "
        "an error. Two JSON files of 'imbtorch report --json' are compared as independent samples. Test once, at a "
        "number of samples that you fixed before: of models that are worse by exactly the margin some 5% pass one "
        "test, but up to 14% pass one of 20 tests of a growing sample.",
    )
    two.set_defaults(run=_compare)
    two.add_argument("old", help="file with the predictions of the old model")
    two.add_argument("new", help="file with those of the new model")
    two.add_argument("--target", help="column of true classes")
    two.add_argument("--preds", help="column of predicted classes")
    two.add_argument("--id", metavar="COLUMN", help="column that pairs the rows; by default their order")
    two.add_argument("--positive", help="positive one of two classes; by default 1 or True")
    two.add_argument("--class-names", nargs="+", metavar="NAME", help="classes in their order; by default sorted")
    two.add_argument("--measure", required=True, help="measure to compare, such as balanced_accuracy")
    two.add_argument("--margin", type=float, required=True, help="loss that does not count, such as .01")
    two.add_argument("--undecided", choices=("fail", "pass"), default="fail", help="with pass, exit 0 in place of 3")
    return parser


def _names(text: str) -> list[str]:
    """Split names between commas."""
    return [each.strip() for each in text.split(",")]


def _numbers(text: str) -> list[float]:
    """Convert numbers between commas."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be numbers between commas such as 900,90,10, got {text!r}") from error


def _shares(text: str) -> list[float] | dict[str, float]:
    """Convert numbers between commas, or those behind names, such as ``ok=999,fraud=1``."""
    if "=" not in text:
        return _numbers(text)
    names, numbers = zip(*(each.rpartition("=")[::2] for each in text.split(",")), strict=True)
    return dict(zip((name.strip() for name in names), _numbers(",".join(numbers)), strict=True))


# --- commands -------------------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    """Print a report, and write it if a file is named."""
    predicted = options.preds or options.scores
    _check_single("--cluster and --weight name one column each, without *", options.cluster, options.weight)
    columns = _read(options.file, [options.target, predicted, options.cluster, options.weight])
    target, preds = columns[options.target], columns[predicted]
    if isinstance(target, dict):
        target = {label: _floats(f"{options.target}, {label}", column) for label, column in target.items()}
    if options.scores:
        parts = preds.items() if isinstance(preds, dict) else [("", preds)]
        scores = {name: _floats(f"{options.scores}, {name}" if name else options.scores, part) for name, part in parts}
        preds = scores if isinstance(preds, dict) else scores[""]
        target = target if isinstance(target, dict) else _typed(target)[0]
    elif isinstance(preds, dict):
        preds = {label: _typed(column)[0] for label, column in preds.items()}
    elif not isinstance(target, dict):
        target, preds = _typed(target, preds)
    result = report(
        preds=preds,
        target=target,
        class_names=options.class_names,
        positive=options.positive,
        logits=options.logits,
        cluster=None if options.cluster is None else _typed(columns[options.cluster])[0],
        weight=None if options.weight is None else _floats(options.weight, columns[options.weight]),
        prevalence=options.prevalence,
        measures=options.measures,
        intervals=options.intervals,
        rule=options.rule,
        prior=options.prior,
    )
    if options.json is not None:
        result.to_json(options.json)
    table = result.table()
    print(table.to_markdown() if options.markdown else table, end="\n\n")
    print(f"`{result.signature}`" if options.markdown else result.signature)
    return 0


def _compare(options: argparse.Namespace) -> int:
    """Print the difference of two models, and return whether the new one is worse."""
    if not 0 <= options.margin < math.inf:
        raise ValueError(f"--margin must be a loss of 0 or more, such as .01, got {options.margin:g}")
    files = [options.old, options.new]
    if all(Path(each).suffix == ".json" for each in files):
        found = _of_results(open_result(files[0]), open_result(files[1]), options)
    elif options.target is None or options.preds is None:
        raise ValueError("--target and --preds name the columns to compare; only two JSON files need none")
    else:
        found = _of_predictions(options)
    interval = found.interval(1, 10_000)
    difference, low, high = (float(part) for part in (interval.estimate, interval.low, interval.high))
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"{options.measure} is undefined for these samples: it depends on classes without targets")
    code = found.verdict(interval, options.margin)
    texts = {
        NOT_WORSE: f"The new model is not worse by more than {options.margin:g}.",
        WORSE: f"The new model is worse by more than {options.margin:g}.",
        UNDECIDED: f"Undecided: these samples do not say whether it is worse by more than {options.margin:g}.",
    }
    print(f"{options.measure}, new - old: {difference:+.3f} [{low:+.3f}, {high:+.3f}] (90% {interval.method})")
    print("No prediction differs." if found.equal else texts[code])
    if found.equal:
        code = NOT_WORSE
    elif code == UNDECIDED:
        print(_needed(found, options.margin))
    print("\n".join(found.notes))
    return NOT_WORSE if code == UNDECIDED and options.undecided == "pass" else code


class _Compared(NamedTuple):
    """Comparison of two models.

    Attributes:
        interval: function of a number of times and of draws; it returns the interval of new minus old for so many times
            as many samples, with the same shares.
        better: whether higher values are better.
        rarest: name of the rarest class, and its number of samples.
        equal: whether no prediction differs.
        notes: lines to print.
    """

    interval: Callable[[float, int], Interval]
    better: bool
    rarest: tuple[str, int]
    equal: bool
    notes: list[str]

    def verdict(self, interval: Interval, margin: float) -> int:
        """Return the exit code for an interval."""
        low, high = float(interval.low), float(interval.high)
        gain = (low, high) if self.better else (-high, -low)
        return NOT_WORSE if gain[0] >= -margin else WORSE if gain[1] < -margin else UNDECIDED


def _needed(found: _Compared, margin: float) -> str:
    """Say how many samples of the rarest class would decide, if all shares stay as they are."""

    def decides(times: float) -> bool:
        return found.verdict(found.interval(times, 1000), margin) != UNDECIDED

    most = 2.0
    while not decides(most):
        most *= 2
        if most > MOST:
            return f"With these shares {MOST:,} times as many samples would not decide either."
    least = most / 2
    for _ in range(4):
        middle = math.sqrt(least * most)
        least, most = (least, middle) if decides(middle) else (middle, most)
    name, number = found.rarest
    return (
        f"With these shares some {math.ceil(most * number):,} samples of {name}, the rarest class, would decide; here "
        f"are {number:,}."
    )


def _of_predictions(options: argparse.Namespace) -> _Compared:
    """Compare two models on the same samples."""
    names = [options.target, options.preds, options.id]
    _check_single("compare takes one class for each sample, so --target, --preds and --id name one column each", *names)
    old, new = (_read(each, names) for each in (options.old, options.new))
    rows = len(old[options.target])
    if len(new[options.target]) != rows:
        raise ValueError(
            f"{options.old} has {rows} rows and {options.new} {len(new[options.target])}; both must be "
            "predictions of the same samples"
        )
    if options.id is not None:
        order = _places(old[options.id], new[options.id], options)
        new = {name: [column[at] for at in order] for name, column in new.items()}
    truth, again, of_old, of_new = _typed(
        old[options.target], new[options.target], old[options.preds], new[options.preds]
    )
    different = [row for row, pair in enumerate(zip(truth, again, strict=True)) if pair[0] != pair[1]]
    if different:
        row = different[0]
        remedy = "" if options.id else "; if the rows are in another order, pair them by --id"
        raise ValueError(
            f"the targets of the files differ in row {row}: {truth[row]!r} and {again[row]!r} ({len(different)} of "
            f"{rows} rows){remedy}"
        )
    classes, binary, (target, before, after) = encoded(
        truth, of_old, of_new, class_names=options.class_names, positive=options.positive
    )
    measure = _measure(options, classes, binary)
    better = bool(measure.higher_is_better)
    outcomes = checked_outcomes({"new": after, "old": before}, target, len(classes), None)

    def interval(times: float, draws: int) -> Interval:
        several = replace(outcomes, times=outcomes.times * times)
        return compare_outcomes(measure, several, better, draws, LEVEL, _generator()).difference

    changed = int((before != after).sum())
    notes = [f"{rows} samples, of which {changed or 'none'} are predicted differently"]
    for name, preds in (("old", of_old), ("new", of_new)):
        result = report(preds=preds, target=truth, class_names=options.class_names, positive=options.positive)
        notes.append(f"{name}: {result.signature}")
    return _Compared(interval, better, _rarest(outcomes.actual(), classes), not changed, notes)


def _of_results(old: ReportResult, new: ReportResult, options: argparse.Namespace) -> _Compared:
    """Compare two results without rows, as independent samples."""
    first, second = (result.signature.split(" | ")[1] for result in (old, new))
    of_old, of_new = (list(result.table()["class"]) for result in (old, new))
    if first != second or of_old != of_new:
        got = f"{first}: {first_names(of_old)}; and {second}: {first_names(of_new)}"
        raise ValueError(f"both files must be of the same classes in the same order, got {got}")
    if any("weighted" in result.signature for result in (old, new)):
        raise ValueError("weighted counts have no intervals, so they cannot be compared")
    if any("prevalence" in result.signature for result in (old, new)):
        raise ValueError("compare reads counts, not values at a prevalence; write both files without --prevalence")
    if any(map(depends_on_clusters, (old, new))):
        raise ValueError(
            "compare treats samples as independent, but these files count clusters; compare the predictions of both "
            "models by imbtorch.statistics.paired_compare(..., cluster=)"
        )
    task, names = first.partition(",")[0], list(old.table()["class"])
    if task == "multilabel":
        raise ValueError("compare takes one class for each sample; compare labels by imbtorch.statistics.compare")
    measure = _measure(options, names, task == "binary")
    after, before = new.counts, old.counts
    if not (isinstance(after, torch.Tensor) and isinstance(before, torch.Tensor)):
        raise ValueError("both files must hold whole matrices; state='margins' has no intervals")

    def interval(times: float, draws: int) -> Interval:
        counts = ((each * times).round() for each in (after, before))
        return compare(measure, *counts, draws=draws, level=LEVEL, generator=_generator()).difference

    note = "compared as independent samples, because the files hold counts and no rows; predictions decide more"
    notes = [note, f"old: {old.signature}", f"new: {new.signature}"]
    return _Compared(interval, bool(measure.higher_is_better), _rarest(after.sum(-1), names), False, notes)


def _rarest(actual: torch.Tensor, names: Sequence[Any]) -> tuple[str, int]:
    """Return the class with the fewest targets, of those that have some, and their number."""
    place = int(torch.where(actual > 0, actual, torch.inf).argmin())
    return repr(names[place]), int(actual[place])


def _measure(options: argparse.Namespace, names: Sequence[str], binary: bool) -> AveragedMeasure:
    """Return the measure as a report of these classes computes it; refuse a margin that all models would keep."""
    counting = Counting.of("binary") if binary else Counting.of("multiclass", len(names))
    measure = directed(resolved("--measure", options.measure, counting, batched=True))
    low, high = measure.traits.value_range
    if low is not None and high is not None and options.margin >= (high - low) / 2:
        raise ValueError(
            f"--margin must be a difference of {options.measure} such as .01, one point of a hundred, got "
            f"{options.margin:g}, by which hardly any model is worse"
        )
    return measure


def _generator() -> torch.Generator:
    """Return a source of randomness that gives the same verdict again."""
    return torch.Generator().manual_seed(0)


def _check_single(text: str, *names: str | None) -> None:
    """Raise with a text for names of several columns."""
    if any("*" in name for name in names if name is not None):
        raise ValueError(text)


# --- files ----------------------------------------------------------------------------------------------------------


def _read(path: str, names: Sequence[str | None]) -> dict[str, Any]:
    """Read columns of a file; a name with a * is a dict of columns, by the text in its place."""
    table = _parquet(path) if Path(path).suffix in PARQUET else _csv(path)
    found: dict[str, Any] = {}
    for name in filter(None, names):
        begin, star, end = name.partition("*")
        if not star:
            if name not in table:
                columns = first_names(list(table))
                if len(table) == 1 and any(each in columns for each in ";\t"):
                    columns += "; separate them by commas"
                raise ValueError(f"{path} has no column {name!r}{did_you_mean(name, table)}; columns are {columns}")
            found[name] = table[name]
            continue
        fit = [each for each in table if each.startswith(begin) and each.endswith(end) and len(each) >= len(name)]
        if not fit:
            raise ValueError(f"{path} has no column like {name!r}; columns are {first_names(list(table))}")
        found[name] = {each[len(begin) : len(each) - len(end)]: table[each] for each in fit}
    return found


def _csv(path: str) -> dict[str, list[str]]:
    """Read a CSV file."""
    most = csv.field_size_limit(sys.maxsize)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)  # which refuses a quote that is not closed
            head = next(rows, [])
            lines = [row for row in rows if row]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8: {error}") from error
    except csv.Error as error:
        raise ValueError(f"{path} is no CSV file, line {rows.line_num}: {error}") from error
    finally:
        csv.field_size_limit(most)
    if not head or not lines:
        raise ValueError(f"{path} must have a head and at least one row")
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has several columns {twice[0]!r}; rename them")
    for at, row in enumerate(lines):
        if len(row) != len(head):
            raise ValueError(
                f"{path} has {len(row)} cells in row {at}, but {len(head)} columns; quote cells with commas"
            )
    return dict(zip(head, map(list, zip(*lines, strict=True)), strict=True))


def _parquet(path: str) -> dict[str, Any]:
    """Read a Parquet file."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError("Parquet files need pandas: pip install pandas pyarrow") from error
    frame = pandas.read_parquet(path)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _places(old: Sequence[Any], new: Sequence[Any], options: argparse.Namespace) -> list[int]:
    """Return the row of the new file for each row of the old one."""
    for path, ids in ((options.old, old), (options.new, new)):
        if len(set(ids)) < len(ids):
            twice = next(each for each, times in Counter(ids).items() if times > 1)
            raise ValueError(f"{path} has several rows with {options.id} {twice!r}; ids must differ")
    place = {each: at for at, each in enumerate(new)}
    lacking = [each for each in old if each not in place]
    if lacking:
        raise ValueError(f"{options.new} has no row with {options.id} {lacking[0]!r} ({len(lacking)} are missing)")
    return [place[each] for each in old]


def _typed(*columns: Sequence[Any]) -> list[Any]:
    """Convert classes that are texts to integers or booleans, if those of all columns are such."""
    if not all(isinstance(column, list) for column in columns):
        return list(columns)
    texts = set().union(*columns) - {""}
    if texts and all(text.removeprefix("-").isdecimal() and str(int(text)) == text for text in texts):
        return [_converted(column, int) for column in columns]
    if texts and {text.lower() for text in texts} <= set(BOOLEANS):
        return [_converted(column, lambda text: BOOLEANS[text.lower()]) for column in columns]
    return list(columns)


def _converted(column: Sequence[str], convert: Callable[[str], Any]) -> list[Any]:
    """Convert the texts of a column; None stays for an empty one, which a report refuses."""
    values = {text: convert(text) if text else None for text in set(column)}
    return [values[text] for text in column]


def _floats(name: str, column: Sequence[Any]) -> Any:
    """Convert texts to floating numbers; an empty one is NaN."""
    if not isinstance(column, list):
        return column
    try:
        return [float(text) if text else math.nan for text in column]
    except ValueError:
        row, text = next((row, text) for row, text in enumerate(column) if text and not _is_number(text))
        raise ValueError(f"column {name!r} holds {text!r} in row {row}, which is no number") from None


def _is_number(text: str) -> bool:
    """Return whether a text is that of a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
