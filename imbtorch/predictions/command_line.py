"""Command line for saved predictions, also as ``python -m imbtorch``."""

from __future__ import annotations

import argparse
import ast
import io
import math
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from imbtorch.choosing.gate import NOT_WORSE, UNDECIDED, Gate
from imbtorch.columns import Rules
from imbtorch.predictions.compare import paired
from imbtorch.predictions.files import KINDS
from imbtorch.predictions.merge import merge_results
from imbtorch.predictions.paths import check_output, found_files
from imbtorch.predictions.report import report
from imbtorch.reports.result import ReportResult
from imbtorch.tables import printable
from imbtorch.version import __version__

ERROR, INTERRUPTED = 2, 130  # exit codes; those of verdicts are in choosing.gate
ARGUMENTS = re.compile(
    r"\b(?P<name>class_names|positive|task|missing|ignore|scores|preds|threshold|logits|group|frequency|encoding|decimal"
    r"|head|rule|prior|prevalence|id|by_row|model)=(?P<value>\[\.\.\.\]|'[^']*'|\"[^\"]*\"|-?\w*)"
)  # in remedies of errors
EXPECTED = (ValueError, TypeError, KeyError, OSError, ImportError)  # input errors, whose text alone is printed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Any error returns 2, since 1 means that the new model is worse; Ctrl-C 130.

    Args:
        arguments: arguments after the name of the program; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):  # consoles of Windows know few letters; "\\u732b" is better than an error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    command, code = "imbtorch", ERROR
    try:
        try:
            given = sys.argv[1:] if arguments is None else arguments
            given = ["--ignore=,--" if each == "--ignore=--" else each for each in given]  # argparse loses a "--"
            options = _parser().parse_args(given)
        except SystemExit as stop:  # of --help and --version, 0; of bad usage, 2
            code = ERROR if stop.code else 0
            print(end="", flush=True)
            return code
        command = f"imbtorch {options.command}"
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda text, *_, **__: print(f"warning: {printable(str(text))}", file=sys.stderr)
            verdict, text = options.run(options)
        code = int(verdict)
        print(text, flush=True)
        return code
    except BrokenPipeError:  # "| head" has read enough
        text = ""
    except EXPECTED as error:
        text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        code, text = ERROR, f"{command}: error: {printable(ARGUMENTS.sub(_as_option, text))}\n"
    except KeyboardInterrupt:
        code, text = INTERRUPTED, f"{command}: interrupted\n"
    except BaseException:  # exit code 1 would mean "worse"
        code, text = ERROR, traceback.format_exc()
    for stream, rest in ((sys.stderr, text), (sys.stdout, "")):
        try:
            print(rest, end="", file=stream, flush=True)
        except OSError:  # noqa: PERF203 - Python would write the rest at its end again, and exit with another code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _as_option(argument: re.Match[str]) -> str:
    """Return an argument of Python, such as ``missing='drop'``, as an option of the command."""
    name, value = argument["name"].replace("_", "-"), argument["value"]
    if name == "head":
        return "--no-head"
    if value in ("", "True", "[...]"):
        return f"--{name}"
    value = shlex.quote(ast.literal_eval(value) if value[0] in "'\"" else value)
    return f"--{name}={value}" if re.match(r"-(?!\d+$)", value) else f"--{name} {value}"


class Parser(argparse.ArgumentParser):
    """Parser whose errors name the remedy."""

    def error(self, message: str) -> NoReturn:
        """Exit with the usage and a message."""
        if re.search("required: (file|old)", message):
            message += "; write files before options that take several values, such as --class-names a b"
        super().error(message + "; write --option=VALUE if VALUE begins with -" * ("one argument" in message))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "imbtorch",
        description="Report and compare saved predictions, in files with a row a sample: CSV, TSV, Parquet and JSON "
        "lines, also .gz and .zst. Errors count rows from 0, without the head.",
    )
    parser.add_argument("--version", action="version", version=f"imbtorch {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    one = commands.add_parser(
        "report",
        help="print all measures of files",
        description="Print the values of each class and all measures, and a signature. COLUMNS is a name, several "
        "between commas, class=name pairs, or a pattern with * and ?, such as 'p_*'.",
    )
    one.set_defaults(run=_report)
    one.add_argument("file", nargs="+", help="files, folders, or a glob in quotes")
    one.add_argument("--target", required=True, metavar="COLUMNS", help="true classes; multilabel: columns of 0 and 1")
    predicted = one.add_mutually_exclusive_group(required=True)
    predicted.add_argument("--preds", metavar="COLUMNS", help="predicted classes; multilabel: a column each")
    predicted.add_argument(
        "--scores", metavar="COLUMNS", help="scores of the positive class, or of all classes, as in 'p_*'"
    )
    _add_reading(one)
    one.add_argument("--task", choices=("binary", "multiclass", "multilabel"), help="by default taken from the columns")
    one.add_argument("--threshold", type=_numbers, metavar="T", help="score above which 1 is predicted, by default .5")
    one.add_argument("--logits", action="store_true", help="scores are logits, not probabilities")
    one.add_argument("--group", metavar="COLUMN", help="column of sites or the like: values of each, and of the worst")
    one.add_argument("--weight", metavar="COLUMN", help="column of the weights of samples")
    one.add_argument("--frequency", metavar="COLUMN", help="column of the number of samples that a row stands for")
    one.add_argument(
        "--prevalence",
        type=_shares,
        metavar="SHARES",
        help="class shares of the population, in the order of the classes or by name, as in 999,1 or ok=999,fraud=1",
    )
    one.add_argument(
        "--measures", type=_names, metavar="NAMES", help="measures, as in iam,mcc; an unknown name lists all"
    )
    one.add_argument("--intervals", action="store_true", help="add the 95%% intervals of all measures")
    one.add_argument("--rule", metavar="MEASURE", help="choose a threshold (with --prior a logit adjustment) for it")
    one.add_argument(
        "--prior", type=_shares, metavar="SIZES", help="training samples of each class in their order, as in 900,90,10"
    )
    _add_output(one)

    more = commands.add_parser(
        "merge",
        help="add results of shards",
        description="Add the counts of JSON files of 'imbtorch report --json', with the same settings, classes and "
        "groups.",
    )
    more.set_defaults(run=_merge)
    more.add_argument("file", nargs="+", help="JSON files")
    _add_output(more)

    two = commands.add_parser(
        "compare",
        help="say whether new predictions are worse than old ones",
        description="Compare new predictions with old ones of the same samples. Exit code: 0 if they are not worse by "
        "more than the margin or no prediction differs, 1 if they are worse, 3 if these samples do not decide, 2 for "
        "an error. The verdict holds for one test, at a number of samples that you fixed before: of models that are "
        "worse by exactly the margin at most some 6% pass one test, but up to 18% pass one of 20 tests of a growing "
        "sample. If samples keep coming, plan the looks by --looks 20, and pass --look 1, --look 2, ... with all "
        "samples so far: together they err like one test.",
    )
    two.set_defaults(run=_compare)
    two.add_argument("old", help="file with the predictions of the old model, or of both")
    two.add_argument("new", nargs="?", help="file with those of the new model")
    two.add_argument("--target", required=True, metavar="COLUMN", help="column of true classes")
    predicted = two.add_mutually_exclusive_group(required=True)
    predicted.add_argument(
        "--preds", nargs="+", metavar="COLUMN", help="column of predicted classes; of one file two columns"
    )
    predicted.add_argument(
        "--scores", nargs="+", metavar="COLUMN", help="column of scores of the positive class; of one file two"
    )
    two.add_argument("--threshold", type=float, default=0.5, help="score above which 1 is predicted")
    two.add_argument(
        "--model", metavar="COLUMN", help="column of the model of each row of a long file; the first row's is old"
    )
    two.add_argument("--id", metavar="COLUMN", help="column that pairs the rows; by default their order")
    two.add_argument("--by-row", action="store_true", help="pair by order although a column of ids differs")
    _add_reading(two)
    two.add_argument("--measure", required=True, help="measure to compare, such as balanced_accuracy, or auc")
    two.add_argument("--margin", type=_loss, required=True, help="loss that is still accepted, such as .01")
    two.add_argument(
        "--looks", type=int, metavar="N", help="number of looks at growing samples, planned before the first"
    )
    two.add_argument("--look", type=int, metavar="K", help="this look, from 1")
    two.add_argument("--looks-file", metavar="FILE", help="JSON file that records the looks and refuses repeated ones")
    two.add_argument("--undecided", choices=("fail", "pass"), default="fail", help="with pass, exit 0 in place of 3")
    return parser


def _add_output(command: argparse.ArgumentParser) -> None:
    """Add the options that say how a result is printed and written."""
    command.add_argument("--json", metavar="FILE", help="also write the result, for open_result and merge")
    form = command.add_mutually_exclusive_group()
    for name, text in (("markdown", "Markdown"), ("latex", "LaTeX"), ("csv", "CSV")):
        form.add_argument(f"--{name}", action="store_const", const=name, dest="form", help=f"print {text}")


def _add_reading(command: argparse.ArgumentParser) -> None:
    """Add the options that say how columns are read."""
    command.add_argument("--positive", help="positive one of two classes; by default 1 or True")
    command.add_argument("--class-names", nargs="+", metavar="NAME", help="classes in their order; by default sorted")
    command.add_argument("--cluster", metavar="COLUMN", help="column of patients or the like, which intervals resample")
    command.add_argument("--ignore", type=_names, metavar="VALUES", help="targets to leave out, as in -100")
    command.add_argument(
        "--missing",
        choices=("raise", "drop", "class"),
        default="raise",
        help="rows without a value: an error by default",
    )
    command.add_argument("--encoding", help="encoding of CSV files: utf-8, latin-1 or utf-16")
    command.add_argument("--decimal", default=".", metavar="SIGN", help="decimal sign of numbers, as in ,")
    command.add_argument("--no-head", action="store_true", help="the first row is no head; columns are 0, 1, ...")


def _names(text: str) -> list[str]:
    """Split names between commas."""
    names = [each.strip() for each in text.split(",")]
    return list(filter(None, names)) or [""]


def _numbers(text: str) -> list[float]:
    """Convert numbers between commas."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be numbers between commas such as 900,90,10, got {text!r}") from error


def _loss(text: str) -> float:
    """Convert a margin."""
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a loss of 0 or more, such as .01, got {text!r}")


def _shares(text: str) -> list[float] | dict[str, float]:
    """Convert numbers between commas, or those behind names, such as ``ok=999,fraud=1``."""
    if "=" not in text:
        return _numbers(text)
    names, numbers = zip(*(each.rpartition("=")[::2] for each in text.split(",")), strict=True)
    return dict(zip((name.strip() for name in names), _numbers(",".join(numbers)), strict=True))


def _reading(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that say how columns are read."""
    names = options.class_names
    if names is not None and len(names) == 1:
        names = _names(names[0])
    more = {
        name: getattr(options, name) for name in ("positive", "cluster", "ignore", "missing", "encoding", "decimal")
    }
    return more | {"class_names": names, "head": not options.no_head}


# --- commands -------------------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> tuple[int, str]:
    """Report the predictions of files."""
    names = ("target", "preds", "scores", "task", "logits", "group", "weight", "frequency", "prevalence", "measures")
    more = {name: getattr(options, name) for name in (*names, "intervals", "rule", "prior")}
    check_output("--json", options.json, found_files(options.file, KINDS))
    if options.threshold is not None:
        more["threshold"] = options.threshold[0] if len(options.threshold) == 1 else options.threshold
    return 0, _written(report(options.file, **more, **_reading(options)), options)


def _merge(options: argparse.Namespace) -> tuple[int, str]:
    """Add results of shards."""
    check_output("--json", options.json, options.file)
    return 0, _written(merge_results(*options.file), options)


def _written(result: ReportResult, options: argparse.Namespace) -> str:
    """Write a result if a file is named; return the table and the signature in the form that options name."""
    if options.json is not None:
        result.to_json(options.json)
    table = result.table()
    if options.form == "csv":
        buffer = io.StringIO()
        table.to_csv(buffer)
        return buffer.getvalue().rstrip("\n")
    text = {"markdown": table.to_markdown, "latex": table.to_latex, None: table.__str__}[options.form]()
    signature = {"markdown": "`{}`", "latex": "% {}", None: "{}"}[options.form].format(printable(result.signature))
    return f"{text}\n\n{signature}"


def _compare(options: argparse.Namespace) -> tuple[int, str]:
    """Return the verdict on two models as exit code and text."""
    for name in ("preds", "scores"):
        given = getattr(options, name)
        if given is not None and len(given) == 1:
            setattr(options, name, _names(given[0]))
    for source in filter(None, [options.old, options.new]):
        check_output("--looks-file", options.looks_file, found_files(source, KINDS))
    reading = _reading(options)
    rules = Rules(reading["class_names"], options.positive, None, options.ignore, options.missing)
    columns = {name: getattr(options, name) for name in ("target", "preds", "scores", "model", "id", "cluster")}
    how = options.encoding, options.decimal, not options.no_head
    pair = paired(options.old, options.new, columns, rules, options.measure, options.threshold, options.by_row, how)
    gate = Gate(pair, options.measure, options.margin)
    settings = {
        name: getattr(options, name) for name in ("measure", "target", "preds", "scores", "threshold", "positive")
    }
    interval, holds = gate.at_look(options.looks, options.look, options.looks_file, settings)
    difference, low, high = (float(part) for part in (interval.estimate, interval.low, interval.high))
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"{options.measure} is undefined for these samples: it depends on classes without targets")
    how_sure = f"{100 * interval.level:.4g}% {interval.method}"
    head = f"{options.measure}, new - old: {difference:+.3f} [{low:+.3f}, {high:+.3f}] ({how_sure})"
    code = NOT_WORSE if pair.equal else gate.verdict(interval)
    text = "\n".join([head, *gate.lines(interval, holds, options.looks is not None), *pair.notes])
    return NOT_WORSE if code == UNDECIDED and options.undecided == "pass" else code, text
