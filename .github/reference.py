"""Write the pages of the reference from the package: the command, the metrics and the list of all names.

python .github/reference.py          # writes examples/command.md, examples/metrics.md and examples/api.md
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imbtorch
from imbtorch.measures.traits import CATALOGUE, Traits
from imbtorch.predictions import parser
from imbtorch.suggestions import PUBLIC_MODULES, SYNONYMS

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = Path(imbtorch.__file__).resolve().parents[1]  # the same folder, but for a copy of this one
PAGES = ROOT / "examples"
WIDTH = 120


# --- the command ------------------------------------------------------------------------------------------------------

COMMAND = """\
# The command imbtorch

`imbtorch`, or `python -m imbtorch`, reads files of saved predictions: CSV, TSV, Parquet and JSON lines, also `.gz` and
`.zst`. It needs the extra `files` ([install](install.md)). `imbtorch COMMAND --help` prints what stands here.
[Saved predictions](predictions.md#on-the-command-line) shows the commands with their output,
[labels where they count](labels/README.md) those for pools of rows.

{commands}

Exit codes: 0, done; 2, an error, whose text names the option to change; 130, interrupted by Ctrl-C. `compare` adds 1,
the new model is worse, and 3, the samples do not decide. The rows of a file are counted from 0, without the head.
"""


def command() -> str:
    """Return the page of the command."""
    commands = next(each for each in parser._parser()._actions if isinstance(each, argparse._SubParsersAction))
    helps = {each.dest: each.help for each in commands._choices_actions}
    lines = ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#imbtorch-{name}) | {helps[name]} |" for name in commands.choices]
    sections = [section(name, one) for name, one in commands.choices.items()]
    return "\n\n".join([COMMAND.format(commands="\n".join(lines)).rstrip(), *sections]) + "\n"


def section(name: str, one: argparse.ArgumentParser) -> str:
    """Return what one command takes."""
    files = [each for each in one._actions if not each.option_strings]
    needed = [shown(each) for each in one._actions if each.option_strings and each.required]
    either = [
        " | ".join(map(shown, group._group_actions)) for group in one._mutually_exclusive_groups if group.required
    ]
    usage = " ".join([f"imbtorch {name}", *map(positional, files), *needed, *(f"({each})" for each in either)])
    lines = [f"## imbtorch {name}", "", *filled(one.description or ""), "", "```text", usage, "```", ""]
    lines += ["| option | meaning |", "|---|---|"]
    lines += [f"| `{each.dest.upper()}` | {each.help} |" for each in files]
    hidden = (argparse._HelpAction,)
    for each in one._actions:
        if each.option_strings and not isinstance(each, hidden) and each.help != argparse.SUPPRESS:
            lines.append(f"| `{shown(each)}` | {meaning(each)} |")
    return "\n".join(lines)


def positional(action: argparse.Action) -> str:
    """Return a file as a command line shows it."""
    name = action.dest.upper()
    return f"{name} ..." if action.nargs == "+" else f"[{name}]" if action.nargs == "?" else name


def shown(action: argparse.Action) -> str:
    """Return an option with its value, as a command line shows it."""
    if action.nargs == 0:
        return action.option_strings[-1]
    value = action.metavar or ("VALUE" if action.choices else action.dest.upper())
    return f"{action.option_strings[-1]} {value}" + " ..." * (action.nargs == "+")


def meaning(action: argparse.Action) -> str:
    """Return the help of an option, with the values that it takes and its default."""
    text = (action.help or "").replace("%%", "%").replace("|", "\\|")
    if action.choices:
        text += f"; one of {', '.join(f'`{each}`' for each in action.choices)}"
    if action.default not in (None, False) and "default" not in text:
        text += f"; default `{action.default}`"
    return text


def filled(text: str) -> list[str]:
    """Return a text in lines that are short enough for a page."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


# --- the metrics ------------------------------------------------------------------------------------------------------

METRICS = """\
# Metrics in one table

Each row is a measure: `imbtorch.CLASS` is its metric for training loops, `imbtorch.FUNCTION` the same measure as a
function of a confusion matrix, and KEY its name in reports, in `measures=` and in logs, as in `val_iam`. **Bold** keys
are those that a report logs by default. [Formulas, ranges and undefined values](../imbtorch/measures/README.md) have a
page of their own, and so has [which to choose](../imbtorch/measures/README.md#choose-a-measure).

- **Other names** are those of other packages and papers. A report that is asked for one of them names the key to use.
- **Tasks**: all metrics take `"binary"`, `"multiclass"` and `"multilabel"`. Metrics of *two classes* average each class
  against the rest if there are more; *ordered* classes must have a meaningful order.
- **Averages**: `macro` is the default of several classes, `binary` (the positive class) of two.

"""
SPELLED = {  # as SYNONYMS spell them -> in words
    "truepositiverate": "true positive rate",
    "tpr": "TPR",
    "hitrate": "hit rate",
    "positivepredictivevalue": "positive predictive value",
    "ppv": "PPV",
    "truenegativerate": "true negative rate",
    "tnr": "TNR",
    "f1score": "F1 score",
    "fscore": "F-score",
    "fbeta": "F-beta",
    "fmeasure": "F-measure",
    "f2": "F2",
    "jaccardindex": "Jaccard index",
    "meaniou": "mean IoU",
    "intersectionoverunion": "intersection over union",
    "unweightedaveragerecall": "unweighted average recall",
    "uar": "UAR",
    "informedness": "informedness",
    "bookmakerinformedness": "bookmaker informedness",
    "youdensj": "Youden's J",
    "matthewscorrelationcoefficient": "Matthews correlation coefficient",
    "phicoefficient": "phi coefficient",
    "quadraticweightedkappa": 'quadratic weighted kappa (`weights="quadratic"`)',
    "qwk": "QWK",
    "fmi": "FMI",
    "sensitivity": "sensitivity",
    "selectivity": "selectivity",
    "dice": "Dice",
    "dicescore": "Dice score",
    "dicecoefficient": "Dice coefficient",
}
MORE = {"likelihood_ratio": ["positive likelihood ratio", "LR+"], "precision": ["lift, if divided by the prevalence"]}
ORDERED = {"macro_averaged_absolute_error"}
OTHERS = """\

Values of scores rather than of classes have no function of counts:

| measure | how to get it | name in logs | other names |
|---|---|---|---|
| area under the ROC curve | `ThresholdSweep(..., also=["auc"])`, `report(scores=)` | `auc` | AUROC, ROC AUC |
| average precision | `also=["average_precision"]`, `report(scores=)` | `average_precision` | AP, AUPRC |
| part of the area under the ROC curve | `sweep.result().partial_auc(...)` | - | partial AUC |
| mean AUC over pairs of classes | `HandTill` | as you log it | M measure, multiclass AUC |
| calibration, Brier score | `sweep.result().calibration()` | - | reliability diagram |
| the value at the best threshold | `ThresholdSweep(KEY)` | `value`, `threshold` | - |
| the counts themselves | `ConfusionMatrix`, `confusion_matrix` | - | confmat |

A measure of your own is a function of counts ([recipe](recipes.md#a-measure-of-your-own)).
"""


def metrics() -> str:
    """Return the page of the metrics."""
    metric_of = {each.measure: each for each in metric_classes()}
    titles = {
        name: title for title, name in re.findall(r"^\| ([^|]+) \| `\w+` \| `(\w+)` \|", formulas(), re.MULTILINE)
    }
    usual = set(default_keys("binary"))
    lines = ["| measure | class | function | key | other names | tasks | averages |", "|---|---|---|---|---|---|---|"]
    for function, traits in sorted(CATALOGUE.items(), key=lambda item: titles[metric_of[item[0]].__name__].lower()):
        name = metric_of[function].__name__
        key = f"**`{traits.key}`**" if traits.key in usual else f"`{traits.key}`"
        cells = [titles[name], f"`{name}`", f"`{function.__name__}`", key, other_names(function, traits)]
        lines.append("| " + " | ".join([*cells, tasks(traits), ", ".join(traits.averages) or "-"]) + " |")
    return METRICS + "\n".join(lines) + "\n" + OTHERS


def metric_classes() -> list[Any]:
    """Return the metrics of single measures."""
    found = [getattr(imbtorch, name) for name in imbtorch.__all__]
    return [each for each in found if inspect.isclass(each) and getattr(each, "measure", None) in CATALOGUE]


def formulas() -> str:
    """Return the page of formulas."""
    return (ROOT / "imbtorch" / "measures" / "README.md").read_text(encoding="utf-8")


def default_keys(task: str) -> list[str]:
    """Return the keys of the values that a report logs by default."""
    report = imbtorch.ImbalanceReport(task)
    return [value.name for value in report.values() if "/" not in value.name]


def other_names(function: Callable[..., Any], traits: Traits) -> str:
    """Return the names of a measure in other packages and papers."""
    own = {function.__name__.replace("_", ""), traits.key.replace("_", "")}
    groups = [group for group in SYNONYMS if own.intersection(group)]
    names = dict.fromkeys(SPELLED[each] for group in groups for each in group if each in SPELLED and each not in own)
    return ", ".join([*names, *MORE.get(function.__name__, [])]) or "-"


def tasks(traits: Traits) -> str:
    """Return what is special about the tasks of a measure."""
    return "two classes" if traits.binary_only else "ordered" if traits.key in ORDERED else "all"


# --- all names --------------------------------------------------------------------------------------------------------

API = """\
# All public names

What you can import, with the file that defines it, whose docstring has arguments, errors and an example; `help(NAME)`
shows the same. The web site has a page for each name (`python -m sphinx .github/docs out/site` builds it). The most
used: `ImbalanceReport`, `ThresholdSweep`, `LogitAdjustmentSweep`, `Predictions`, `report`,
`imbtorch.lightning.ModelCheckpoint`. Metrics stand with their keys and other names [in one table](metrics.md).

"""


def api() -> str:
    """Return the page of all public names."""
    parts = []
    for module in PUBLIC_MODULES:
        lines = [f"## {module}", "", "| name | what it is |", "|---|---|"]
        for name in sorted(importlib.import_module(module).__all__, key=str.lower):
            value = getattr(importlib.import_module(module), name)
            lines.append(f"| [`{name}`](../{source(value, module)}) | {first_sentence(value)} |")
        parts.append("\n".join(lines))
    return API + "\n\n".join(parts) + "\n"


def source(value: Any, module: str) -> str:
    """Return the file that defines an object."""
    found = value if inspect.isclass(value) or inspect.isfunction(value) else importlib.import_module(module)
    return Path(inspect.getsourcefile(inspect.unwrap(found)) or "").resolve().relative_to(INSTALLED).as_posix()


def first_sentence(value: Any) -> str:
    """Return the first sentence of the docstring of a class or function; for a metric name its measure."""
    if not callable(value):
        return "Constant or type."
    measure = getattr(value, "measure", None)
    if inspect.isclass(value) and measure in CATALOGUE:
        return f"The measure `{measure.__name__}` as a metric."
    summary = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    text = re.split(r"(?<=[a-z)\]`])\. (?=[A-Z])", summary)[0].rstrip(".")
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")
    return f"{text}."


GENERATED = {"command": command, "metrics": metrics, "api": api}


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    for name, text in GENERATED.items():
        yield PAGES / f"{name}.md", text()


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
