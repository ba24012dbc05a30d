"""Command line for saved predictions, also as ``python -m imbtorch``."""

from __future__ import annotations

import argparse
import io
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from imbtorch.choosing.gate import NOT_WORSE, UNDECIDED, Gate
from imbtorch.deciding.curves import AREAS
from imbtorch.deciding.money import CostPoint
from imbtorch.deciding.points import OperatingPoint
from imbtorch.measures.traits import short_name
from imbtorch.predictions import parser
from imbtorch.predictions.compare import Pairing
from imbtorch.predictions.estimates import Estimate
from imbtorch.predictions.files import KINDS, Files, labels_of, write_labels
from imbtorch.predictions.labels import open_plan
from imbtorch.predictions.parser import names_in
from imbtorch.predictions.paths import check_output, found_files
from imbtorch.predictions.results import merge_results, open_result
from imbtorch.predictions.saved import ROLES, Predictions, paired_models
from imbtorch.reports.result import ReportResult
from imbtorch.suggestions import first_names
from imbtorch.tables import Table, moved_when_whole, printable
from imbtorch.waiting import LOG


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; arguments are by default those of the process."""
    return parser.main(run, arguments)


def run(options: argparse.Namespace) -> tuple[int, str]:
    """Run a command; return its exit code and what it prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda told, *_, **__: print("warning:", _of_command(str(told)), file=sys.stderr)
        LOG.addFilter(_of_notice)
        try:
            return RUN[options.command](options)
        finally:
            LOG.removeFilter(_of_notice)


def _of_command(text: str) -> str:
    """Return a warning with options in place of arguments, which acts on no terminal."""
    return printable(parser.of_command(text))


def _of_notice(record: logging.LogRecord) -> bool:
    """Take remedies that only Python has out of a notice."""
    record.msg, record.args = parser.OF_PYTHON.sub("", record.getMessage()), ()
    return True


def _report(options: argparse.Namespace) -> tuple[int, str]:
    """Report the predictions of files."""
    data = _predictions(options, options.file, "group", "weight", "frequency", *OF_TARGETS)
    names = ("scores", "logits", "prevalence", "measures", "intervals", "id")
    threshold, more = _threshold(options.threshold), {name: getattr(options, name) for name in names}
    return _finished(options, data.report(options.preds, threshold=threshold, **more))


def _estimate(options: argparse.Namespace) -> tuple[int, str]:
    """Estimate the values of a pool from labels that a plan drew."""
    data = _predictions(options, options.file, *ROLES)
    names = ("scores", "logits", "plan", "measures", "of", "unclear", "level")
    threshold, more = _threshold(options.threshold), {name: getattr(options, name) for name in names}
    return _finished(options, data.estimate(options.preds, threshold=threshold, **more))


def _finished(options: argparse.Namespace, result: ReportResult | Estimate) -> tuple[int, str]:
    """Write a result where asked, and return what is printed."""
    if options.json is not None:
        result.to_json(options.json)
    table = result.table(options.sort) if isinstance(result, ReportResult) else result.table()
    return 0, _printed(table, options.form, result.signature)


def _threshold(text: str | None) -> Any:
    """Return a threshold, one for each label, or the point that a JSON file holds; None without an option."""
    if text is None:
        return None
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        point = open_result(text)
        if not isinstance(point, OperatingPoint | CostPoint):
            raise ValueError(f"{text} holds no operating point; 'imbtorch thresholds --json' writes one") from None
        return point
    return numbers[0] if len(numbers) == 1 else numbers


def _thresholds(options: argparse.Namespace) -> tuple[int, str]:
    """Choose a threshold of the scores of files."""
    data = _predictions(options, options.file, "weight", "frequency", *OF_TARGETS)
    names = ("logits", "prevalence", "at_least", "alerts", "costs", "sure")
    more: Any = {name: getattr(options, name) for name in names}
    if options.measure is None and options.costs is None:
        raise ValueError("name a measure by --measure, or costs of rows by --costs miss=amount,investigation=4")
    result: Any = data.thresholds(options.scores, options.measure, **more)
    if isinstance(result, CostPoint):
        if options.calibration or options.plot is not None or options.form is not None:
            raise ValueError("--calibration, --plot and forms of tables are of a measure; name one by --measure")
        if options.json is not None:
            result.to_json(options.json)
        return 0, str(result)
    points = result.best()
    named = points if isinstance(points, dict) else {"": points}
    if options.json is not None:
        if len(named) > 1:
            raise ValueError(f"--json holds one point, but there are those of {first_names(list(named))}")
        next(iter(named.values())).to_json(options.json)
    texts = [_printed(result.table(), options.form)]
    for name, point in named.items():
        corrected = "" if point.corrected is None else f"\ncorrected for the choice: {point.corrected}"
        texts.append(f"{name}: {point}{corrected}".removeprefix(": "))
    if options.calibration:
        found = result.calibration()
        texts += map(str, found.values() if isinstance(found, dict) else [found])
    if options.plot is not None:
        figure, _ = result.plot()
        figure.savefig(options.plot, dpi=150)
    return 0, "\n\n".join(texts) if options.form is None else texts[0]


def _label(options: argparse.Namespace) -> tuple[int, str]:
    """Draw the rows of a pool to label, and write them with the plan."""
    outputs = {"--out": options.out, "--drawn-out": options.drawn_out}
    written = {option: Path(path) for option, path in outputs.items() if path is not None}
    if not written and options.expect is None:
        raise ValueError("name a file to write by --out or --drawn-out; with --expect none is needed")
    plans = {option: path.with_suffix(".plan.json") for option, path in written.items()}
    for option, path in [*written.items(), *plans.items()]:
        check_output(option, path, found_files(options.file, KINDS))
        if os.path.lexists(path):
            what = "exists and may hold labels" if path.is_file() and not path.is_symlink() else "is no regular file"
            raise ValueError(f"{path} {what}; name another file by {option}, or remove it first")
    plan = _predictions(options, options.file).label_plan(
        options.preds,
        labels=options.labels,
        scores=options.scores,
        threshold=_threshold(options.threshold),
        logits=options.logits,
        aim=options.aim,
        seed=options.seed,
    )
    known = dict[int, str]()
    if options.labelled is not None:
        beside = Path(options.labelled).with_suffix(".plan.json")
        if not beside.exists():
            raise ValueError(f"--labelled {options.labelled} needs its plan beside it, {beside}, which came with it")
        earlier = open_plan(beside)
        plan.check_holds(earlier)
        known = labels_of(Files(options.labelled, ["label"], None, ".", True, None), earlier)
    told = "--expect precision=.6,recall=.3 says how wide F1 and recall will be, for this guess"
    if options.expect is not None:
        if not isinstance(options.expect, dict) or options.expect.keys() != {"precision", "recall"}:
            raise ValueError("--expect needs a guess of both, as in precision=.6,recall=.3")
        told = str(plan.expected(**options.expect))
    if not written:
        return 0, told
    source = Files(options.file, [], options.encoding, options.decimal, not options.no_head, None)
    with moved_when_whole(*written.values(), *plans.values()) as names:
        of_option = dict(zip(written, names, strict=False))
        whole, drawn = (of_option.get(option) for option in outputs)
        write_labels(source, plan, known, options.show or (), whole, drawn)
        for name in names[len(written) :]:
            plan.save(name)
    pairs, hits = zip(plan.pool, plan.classes, strict=True), sum(plan.predicted)
    negative, positive = (f"{size:,} rows predicted as {name!r}" for size, name in pairs)
    order = "in the order of label_order" if options.out else "from above"
    return 0, (
        f"{' or '.join(map(str, written.values()))}: fill in the column label of {len(plan.rows):,} rows, {order}"
        f"{f'; {len(known):,} are filled in' if known else ''}\n"
        f"{hits:,} of {positive} and {len(plan.rows) - hits:,} of {negative}\n"
        f"{told}\n"
        f"then: {shlex.join(_after(options, *next(zip(written.values(), plans.values(), strict=True))))}"
    )


def _after(options: argparse.Namespace, out: Path, plan: Path) -> list[str]:
    """Return the command that estimates the values of a pool once its rows are labelled."""
    predicted = ["--preds", options.preds] if options.scores is None else ["--scores", options.scores]
    predicted += [] if options.threshold is None else ["--threshold", options.threshold]
    predicted += ["--logits"] * options.logits
    predicted += [] if options.positive is None else ["--positive", options.positive]
    predicted += [] if options.class_names is None else ["--class-names", *options.class_names]
    predicted += [] if options.decimal == "." else ["--decimal", options.decimal]
    predicted = [] if options.out is None else predicted  # the plan knows the predictions of the drawn rows
    return ["imbtorch", "estimate", str(out), "--target", "label", *predicted, "--plan", str(plan)]


def _merge(options: argparse.Namespace) -> tuple[int, str]:
    """Add results of shards."""
    check_output("--json", options.json, options.file)
    return _finished(options, merge_results(*options.file))


def _compare(options: argparse.Namespace) -> tuple[int, str]:
    """Return the verdict on two models as exit code and text."""
    options.measure = short_name(options.measure)
    columns = _columns(options)
    data = _predictions(options, options.old, *OF_TARGETS[1:])
    other = None if options.new is None else _predictions(options, options.new, *OF_TARGETS[1:])
    how = {name: getattr(options, name) for name in ("id", "by_row", "model", "threshold", "alerts")}
    pair = paired_models(data, Pairing(columns[0], columns[-1], other, **how), options.measure)
    gate = Gate(pair, options.measure, options.margin)
    shared = ("measure", "target", "preds", "scores", "threshold", "alerts", "positive")
    settings = {name: getattr(options, name) for name in shared}
    verdict = gate.decide(options.looks, options.look, options.looks_file, settings)
    return NOT_WORSE if verdict.code == UNDECIDED and options.undecided == "pass" else verdict.code, verdict.text


def _columns(options: argparse.Namespace) -> list[str]:
    """Return the columns of both models."""
    columns = options.preds or options.scores
    columns = names_in(columns[0]) if len(columns) == 1 else columns
    single = options.new is not None or options.model is not None
    if len(columns) != 2 and not (single and len(columns) == 1):
        option = "preds" if options.preds else "scores"
        raise ValueError(f"name two columns of one file, such as --{option} old new, got {first_names(columns)}")
    if options.new is not None and len(set(columns)) > 1:
        raise ValueError("two files need one column of predictions, of the same name in both")
    if options.scores and options.measure not in AREAS and options.threshold is None and options.alerts is None:
        raise ValueError("scores need --threshold or --alerts, unless the measure is auc or average_precision")
    return list(columns)


RUN = {"report": _report, "thresholds": _thresholds, "label": _label, "estimate": _estimate, "merge": _merge}
RUN |= {"compare": _compare}
OF_TARGETS = ("task", "cluster", "ignore", "no_answer")  # options of commands whose rows all have targets


def _predictions(options: argparse.Namespace, files: Any, *more: str) -> Predictions:
    """Return the predictions of files; raise for a file to write that is among those to read."""
    for option in ("json", "plot", "looks_file"):
        if (path := getattr(options, option, None)) is not None:
            check_output(f"--{option.replace('_', '-')}", path, found_files(files, KINDS))
    names = options.class_names
    names = names_in(names[0]) if names is not None and len(names) == 1 else names
    taken = ("positive", "missing", "encoding", "decimal", *more)
    reading: Any = {name: each for name in taken if (each := getattr(options, name)) is not None}
    target = getattr(options, "target", "label")  # rows to label have none yet
    return Predictions(files, target=target, class_names=names, head=not options.no_head, **reading)


def _printed(table: Table, form: str | None, signature: str = "") -> str:
    """Return a table, and a signature below it, in the form that options name."""
    if form == "csv":
        buffer = io.StringIO()
        table.to_csv(buffer)
        return buffer.getvalue().rstrip("\n")
    text = {"markdown": table.to_markdown, "latex": table.to_latex, None: table.__str__}[form]()
    below = {"markdown": "`{}`", "latex": "% {}", None: "{}"}[form].format(printable(signature))
    return f"{text}\n\n{below}" if signature else text
