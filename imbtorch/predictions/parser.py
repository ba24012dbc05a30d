"""The command ``imbtorch`` but for what it runs: options, errors and exit codes.

This module imports nothing of the package, so that help, the version and errors of options need no torch.
"""

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ERROR, INTERRUPTED = 2, 130  # exit codes; those of verdicts are in choosing.gate
ARGUMENTS = re.compile(
    r"\b(?P<name>class_names|positive|task|missing|ignore|no_answer|scores|preds|threshold|logits|group|frequency|encoding|decimal"
    r"|head|prevalence|plan|unclear|id|by_row|model|alerts|margin|looks_file|looks|look)=(?P<value>\[\.\.\.\]|'[^']*'|\"[^\"]*\"|-?\w*)"
)  # in remedies of errors
OF_PYTHON = re.compile(r"; [^;]*(?:draws=|functools\.partial)[^;]*")  # remedies for which the command has no option
EXPECTED = (ValueError, TypeError, KeyError, OSError, ImportError)  # input errors, whose text alone is printed


def main(run: Callable[[argparse.Namespace], tuple[int, str]], arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Any error returns 2, since 1 means that the new model is worse; Ctrl-C 130.

    Args:
        run: function of the options that returns an exit code and what to print.
        arguments: arguments after the name of the program; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):  # consoles of Windows know few letters; "\\u732b" is better than an error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    command, code = "imbtorch", ERROR
    try:
        try:
            options = parsed(sys.argv[1:] if arguments is None else arguments)
        except SystemExit as stop:  # of --help and --version, 0; of bad usage, 2
            code = ERROR if stop.code else 0
            print(end="", flush=True)
            return code
        command = f"imbtorch {options.command}"
        verdict, text = run(options)
        code = int(verdict)
        print(text, flush=True)
        return code
    except BrokenPipeError:  # "| head" has read enough
        text = ""
    except EXPECTED as error:
        text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        printable: Any = getattr(sys.modules.get("imbtorch.tables"), "printable", str)
        code, text = ERROR, f"{command}: error: {printable(of_command(text))}\n"
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


def of_command(text: str) -> str:
    """Return an error with options in place of arguments, without remedies that only Python has."""
    if "functools.partial" in text:
        text += "; the command has no option for it"
    return re.sub(r"(--\S+(?: \S+)?) \(\1\)", r"\1", ARGUMENTS.sub(_as_option, OF_PYTHON.sub("", text)))


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
        """Stop with the usage and a message."""
        if re.search("required: (file|old)", message):
            message += "; write files before options that take several values, such as --class-names a b"
        super().error(message + "; write --option=VALUE if VALUE begins with -" * ("one argument" in message))


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """Return the options; exit after help, the version, and an error, as argparse does."""
    return _parser().parse_args([re.sub("^(--(?:ignore|no-answer|unclear)=)(--)$", r"\1\0\2", each) for each in given])


def version() -> str:
    """Return the version of the package, without an import of it."""
    text = (Path(__file__).parents[1] / "version.py").read_text(encoding="utf-8")
    return str(re.findall(r'"([\w.+!]+)"', text)[-1])


def _parser() -> Parser:
    parser = Parser(
        "imbtorch",
        description="Report and compare saved predictions, and choose thresholds, in files with a row a sample: CSV, "
        "TSV, Parquet and JSON lines, also .gz and .zst. Errors count rows from 0, without the head.",
    )
    parser.add_argument("--version", action="version", version=f"imbtorch {version()}")
    commands = parser.add_subparsers(dest="command", required=True)

    one = commands.add_parser(
        "report",
        help="print all measures of files",
        description="Print the values of each class and all measures, and a signature. COLUMNS is a name, several "
        "between commas, class=name pairs, or a pattern with * and ?, such as 'p_*'.",
    )
    _add_source(one)
    predicted = one.add_mutually_exclusive_group(required=True)
    predicted.add_argument("--preds", metavar="COLUMNS", help="predicted classes; multilabel: a column each")
    predicted.add_argument(
        "--scores", metavar="COLUMNS", help="scores of the positive class, or of all classes, as in 'p_*'"
    )
    _add_reading(one)
    one.add_argument(
        "--threshold", metavar="T", help="score above which 1 is predicted, or the JSON file of a point; default .5"
    )
    one.add_argument("--logits", action="store_true", help="scores are logits, not probabilities")
    one.add_argument(
        "--id", type=names_in, metavar="COLUMNS", help="columns that tell rows apart; none may occur twice"
    )
    one.add_argument("--group", metavar="COLUMN", help="column of sites or the like: values of each, and of the worst")
    _add_prevalence(one)
    one.add_argument(
        "--measures", type=names_in, metavar="NAMES", help="measures, as in iam,mcc; the documentation lists all"
    )
    one.add_argument("--intervals", action="store_true", help="add the 95%% intervals of all measures")
    _add_output(one, "the result, for open_result and merge")

    rule = commands.add_parser(
        "thresholds",
        help="choose a threshold of scores",
        description="Choose the threshold with the best value of a measure, or the lowest costs, under constraints; "
        "its value is corrected for the choice.",
    )
    _add_source(rule)
    rule.add_argument("--scores", required=True, metavar="COLUMN", help="scores of the positive class, or of labels")
    _add_reading(rule)
    rule.add_argument("--measure", help="measure to maximise, such as f1; left out with --costs of rows")
    rule.add_argument("--logits", action="store_true", help="scores are logits, not probabilities")
    rule.add_argument(
        "--costs",
        type=costs_in,
        metavar="COSTS",
        help="costs, as in miss=50,false_alarm=1; investigation= is paid for each flagged row; without a measure also "
        "columns, as in miss=amount,investigation=4",
    )
    rule.add_argument("--alerts", type=share_in, metavar="SHARE", help="greatest share that may be predicted positive")
    rule.add_argument("--at-least", type=shares_in, metavar="LIMITS", help="least values, as in recall=.8,precision=.3")
    rule.add_argument("--sure", type=float, metavar="LEVEL", help="level of a guarantee of these, such as .9")
    _add_prevalence(rule)
    rule.add_argument("--calibration", action="store_true", help="add how calibrated the scores are")
    rule.add_argument("--plot", metavar="FILE", help="draw the measure and the curves, as in out.png")
    _add_output(rule, "the operating point, for --threshold of report")

    plan = commands.add_parser(
        "label",
        help="draw the rows of a pool to label",
        description="Draw rows at random within the two classes that a model predicts, and write all rows as CSV with "
        "three more columns: an empty 'label', 'label_order', 1 to N for the rows to label, and 'label_plan'. You may "
        "stop early. The plan is written beside it; 'imbtorch estimate' takes both.",
    )
    plan.add_argument("file", nargs="+", help="files, folders, or a glob in quotes")
    _add_pool(plan)
    plan.add_argument("--labels", type=int, required=True, metavar="N", help="number of rows to label")
    plan.add_argument("--aim", choices=("f1", "recall", "precision"), default="f1", help="f1 is also for mcc and iam")
    plan.add_argument("--seed", type=int, default=0, help="seed of the draw")
    plan.add_argument("--out", metavar="FILE", help="CSV file to write, as in to_label.csv")
    plan.add_argument(
        "--drawn-out", metavar="FILE", help="CSV file of the rows to label alone, without predictions and scores"
    )
    plan.add_argument("--show", type=names_in, metavar="COLUMNS", help="columns of --drawn-out, such as text")
    plan.add_argument(
        "--labelled", metavar="FILE", help="file of an earlier, smaller plan of this pool, whose labels are kept"
    )
    plan.add_argument(
        "--expect",
        type=shares_in,
        metavar="GUESS",
        help="say how wide F1 and recall will be, as in precision=.6,recall=.3; needs no file to write",
    )

    pool = commands.add_parser(
        "estimate",
        help="estimate all measures of a pool from labels that a plan drew",
        description="Print the values of a pool of which some rows are labelled, with exact intervals. 'imbtorch "
        "label' draws these rows.",
    )
    pool.add_argument("file", nargs="+", help="files, folders, or a glob in quotes")
    pool.add_argument("--target", required=True, metavar="COLUMN", help="column of labels, empty in the other rows")
    _add_pool(pool, required=False)
    for role in ("group", "cluster", "weight", "frequency"):  # which labels of a pool refuse with the reason
        pool.add_argument(f"--{role}", help=argparse.SUPPRESS)
    pool.add_argument(
        "--plan",
        type=plan_in,
        required=True,
        metavar="PLAN",
        help="file of 'imbtorch label'; or rows of the pool by predicted class, as in 0=19800,1=200, on trust that "
        "labels were drawn at random within each",
    )
    pool.add_argument(
        "--measures", type=names_in, metavar="NAMES", help="measures, as in iam,mcc; the documentation lists all"
    )
    _add_values(pool, "--unclear", "label that nobody could decide")
    pool.add_argument("--of", choices=("pool", "population"), default="pool", help="what exact intervals are of")
    pool.add_argument("--level", type=share_in, default=0.95, help="least coverage of the intervals; by default .95")
    _add_output(pool, "the result, for open_result")

    more = commands.add_parser(
        "merge",
        help="add results of shards",
        description="Add the counts of JSON files of 'imbtorch report --json', with the same settings, classes and "
        "groups.",
    )
    more.add_argument("file", nargs="+", help="JSON files")
    _add_output(more, "the result, for open_result and merge")

    two = commands.add_parser(
        "compare",
        help="say whether new predictions are worse than old ones",
        description="Compare new predictions with old ones of the same samples. Exit code: 0 if they are not worse by "
        "more than the margin or no prediction differs, 1 if they are worse, 3 if these samples do not decide, 2 for "
        "an error. The verdict holds for one test, at a number of samples that you fixed before: of models that are "
        "worse by exactly the margin at most some 6% pass one test, but up to 17% pass one of 20 tests of a growing "
        "sample. If samples keep coming, plan the looks by --looks 20, and pass --look 1, --look 2, ... with all "
        "samples so far: together they err like one test.",
    )
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
    two.add_argument(
        "--threshold", type=numbers_in, metavar="T", help="score above which 1 is predicted, or one for each: .1,.4"
    )
    two.add_argument(
        "--alerts", type=share_in, metavar="SHARE", help="share that each model predicts positive, as in .005"
    )
    two.add_argument(
        "--model", metavar="COLUMN", help="column of the model of each row of a long file; the first row's is old"
    )
    two.add_argument(
        "--id", type=names_in, metavar="COLUMNS", help="columns that pair the rows; by default their order"
    )
    two.add_argument("--by-row", action="store_true", help="pair by order although a column of ids differs")
    _add_reading(two)
    two.add_argument("--measure", required=True, help="measure to compare, such as balanced_accuracy, or auc")
    two.add_argument("--margin", type=loss_in, required=True, help="loss that is still accepted, such as .01")
    two.add_argument(
        "--looks", type=int, metavar="N", help="number of looks at growing samples, planned before the first"
    )
    two.add_argument("--look", type=int, metavar="K", help="this look, from 1")
    two.add_argument("--looks-file", metavar="FILE", help="JSON file that records the looks and refuses repeated ones")
    two.add_argument("--undecided", choices=("fail", "pass"), default="fail", help="with pass, exit 0 in place of 3")
    return parser


def _add_source(command: argparse.ArgumentParser) -> None:
    """Add the files, and the columns of targets and weights."""
    command.add_argument("file", nargs="+", help="files, folders, or a glob in quotes")
    command.add_argument(
        "--target", required=True, metavar="COLUMNS", help="true classes; multilabel: columns of 0 and 1"
    )
    command.add_argument(
        "--task", choices=("binary", "multiclass", "multilabel"), help="by default taken from the columns"
    )
    command.add_argument("--weight", metavar="COLUMN", help="column of the weights of samples")
    command.add_argument("--frequency", metavar="COLUMN", help="column of the number of samples that a row stands for")


def _add_prevalence(command: argparse.ArgumentParser) -> None:
    """Add the class shares."""
    command.add_argument(
        "--prevalence",
        type=shares_in,
        metavar="SHARES",
        help="class shares of the population, in the order of the classes or by name, as in 999,1 or ok=999,fraud=1",
    )


def _add_output(command: argparse.ArgumentParser, what: str) -> None:
    """Add the options that say how a result is printed and written."""
    command.add_argument("--json", metavar="FILE", help=f"also write {what}")
    if "merge" in what:
        command.add_argument(
            "--sort", metavar="COLUMN", help="sort classes, the worst first; name: groups by their names"
        )
    form = command.add_mutually_exclusive_group()
    for name, text in (("markdown", "Markdown"), ("latex", "LaTeX"), ("csv", "CSV")):
        form.add_argument(f"--{name}", action="store_const", const=name, dest="form", help=f"print {text}")


def _add_pool(command: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the predictions of a pool, which those of ``--drawn-out`` lack, and how they are read."""
    chosen = command.add_mutually_exclusive_group(required=required)
    chosen.add_argument("--preds", metavar="COLUMN", help="column of predicted classes")
    chosen.add_argument("--scores", metavar="COLUMN", help="column of scores of the positive class; needs --threshold")
    command.add_argument(
        "--threshold", metavar="T", help="score above which 1 is predicted, or the JSON file of a point"
    )
    command.add_argument("--logits", action="store_true", help="scores are logits, not probabilities")
    _add_columns(command)


def _add_reading(command: argparse.ArgumentParser) -> None:
    """Add the options that say how columns are read, and which rows are left out."""
    command.add_argument("--cluster", metavar="COLUMN", help="column of patients or the like, which intervals resample")
    _add_values(command, "--ignore", "target to leave out, as in -100")
    _add_values(command, "--no-answer", "prediction that stands for no answer, as in INVALID")
    _add_columns(command)


def _add_values(command: argparse.ArgumentParser, option: str, text: str) -> None:
    """Add an option of values, which may hold commas: each value has an option of its own."""
    of_each = f"{text}; several by several {option}"
    command.add_argument(option, action="append", type=value_in, metavar="VALUE", help=of_each)


def _add_columns(command: argparse.ArgumentParser) -> None:
    """Add the options that say how columns are read, those of all commands."""
    command.add_argument("--positive", help="positive one of two classes; by default 1 or True")
    command.add_argument("--class-names", nargs="+", metavar="NAME", help="classes in their order; by default sorted")
    command.add_argument(
        "--missing",
        choices=("raise", "drop", "class"),
        default="raise",
        help="rows without a value: an error by default",
    )
    command.add_argument("--encoding", help="encoding of CSV files: utf-8, latin-1 or utf-16")
    command.add_argument("--decimal", default=".", metavar="SIGN", help="decimal sign of numbers, as in ,")
    command.add_argument("--no-head", action="store_true", help="the first row is no head; columns are 0, 1, ...")


def value_in(text: str) -> str:
    """Return a value as it is; :func:`parsed` marks "--", which argparse would lose."""
    return text.removeprefix("\0")


def pairs_in(text: str) -> dict[str, str]:
    """Split names with numbers, such as ``ok=999,fraud=1``; a name may hold commas."""
    pairs = [each.rpartition("=") for each in re.sub("(=[^=,]*),", "\\1\n", text).split("\n")]
    return {name.strip(): number for name, _, number in pairs}


def names_in(text: str) -> list[str]:
    """Split names between commas."""
    names = [each.strip() for each in text.split(",")]
    return list(filter(None, names)) or [""]


def numbers_in(text: str) -> list[float]:
    """Convert numbers between commas."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be numbers between commas such as 900,90,10, got {text!r}") from error


def costs_in(text: str) -> dict[str, float | str]:
    """Convert costs behind names, numbers or columns; those of older versions, a false alarm and a miss, had none."""
    if "=" not in text:
        alarm, _, miss = text.partition(",")
        form = f"miss={miss or 50},false_alarm={alarm or 1}"
        raise argparse.ArgumentTypeError(f"must name the costs, as in {form}, got {text!r}")
    costs: dict[str, float | str] = {}
    for name, _, given in (each.partition("=") for each in text.split(",")):
        costs[name.strip()] = given.strip()
        with suppress(ValueError):
            costs[name.strip()] = float(given)
    return costs


def loss_in(text: str) -> float:
    """Convert a margin."""
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a loss of 0 or more, such as .01, got {text!r}")


def share_in(text: str) -> float:
    """Convert a share of samples; 1 would be all of them, and is rather meant as a percentage."""
    with suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a share between 0 and 1, such as .01 for 1%, got {text!r}")


def plan_in(text: str) -> Any:
    """Return the numbers of rows behind names, such as ``0=19800,1=200``, or else the name of a file."""
    if os.path.exists(text) or "=" not in text:
        return text
    try:
        return {name: int(number) for name, number in pairs_in(text).items()}
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be a file, or rows by class as in 0=19800,1=200, got {text!r}"
        ) from error


def shares_in(text: str) -> Any:
    """Convert numbers between commas to a list, or those behind names, such as ``ok=999,fraud=1``, to a dict."""
    if "=" not in text:
        return numbers_in(text)
    pairs = pairs_in(text)
    return dict(zip(pairs, numbers_in(",".join(pairs.values())), strict=True))
