"""Docstrings name every parameter, have an example that is run, and begin in plain words."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint as LightningCheckpoint
from rooms import PUBLIC_MODULES, MetricArguments, TorchmetricsArguments

from imbtorch import ConfusionMatrixMetric

ROOT = Path(__file__).parents[2]
VALUES = {"Counts", "SOKOLOVA"}  # exported names that are neither classes nor functions
QUESTIONS = {"What", "How", "Which", "Whether", "Where", "Who", "When", "Why"}
VERBS = """
accept accumulate add adjust align announce answer append apply approximate ask assert assign attach average
begin bind blend bound break build call cast change check choose clear close collect combine compare complete
compose compute configure convert copy correct count cover create cut decide derive describe detach detect determine
divide document double drain draw drop empty enter estimate evaluate exclude expand explain extract fall feed
fetch fill filter find fit flag fold follow forget format gather generate get give go group guard halve hand
hash hatch hide hold identify ignore index integrate invert iterate join keep label leave let limit line list
listen load locate log look lower make map mark match mean measure mend merge mirror move name narrow normalise
note notify observe open order pack pad pair parse pass pick place plot pool prepare print promise propose put
raise rank read rebuild record reduce refuse register reject remember remove rename repeat replace report
resample rescale reset resolve restore resume return round run sample save say scale scan search select send set
share shift shorten show shrink shuffle simulate skip smooth solve sort split spread stack start state step stop
store strip sum summarise swap switch sync take tally tell test throw track transform treat trim try turn undo
unpickle update upgrade use validate view wait walk warn weigh widen wrap write yield
"""


OF_LIGHTNING = set(inspect.signature(LightningCheckpoint).parameters)  # the checkpoint shows and passes them on


def exported():
    """Return every exported class and function by its name."""
    found = {
        name: getattr(room, name) for room in map(importlib.import_module, PUBLIC_MODULES) for name in room.__all__
    }
    return {name: found[name] for name in sorted(found.keys() - VALUES)}


EXPORTED = exported()
OWN_CONSTRUCTORS = [
    name
    for name, each in EXPORTED.items()
    if each is not ConfusionMatrixMetric
    and inspect.isclass(each)
    and issubclass(each, ConfusionMatrixMetric)
    and "__init__" in vars(each)
]


def test_all_else_that_is_exported_is_a_class_or_a_function():
    assert all(inspect.isclass(each) or inspect.isfunction(each) for each in EXPORTED.values())


def documented_names(text):
    """Return the names of the entries of a docstring's sections."""
    entries = re.findall(r"^ *((?:\*{0,2}\w+, )*\*{0,2}\w+)(?: \([^)]*\))?:", text or "", re.MULTILINE)
    return {each.strip("* ") for entry in entries for each in entry.split(",")}


def undocumented(documented):
    """Return the parameters of a class or function that its docstring does not name."""
    known = documented_names(inspect.getdoc(documented))
    if inspect.isclass(documented):
        known |= documented_names(inspect.getdoc(documented.__init__))
    if inspect.isclass(documented) and issubclass(documented, LightningCheckpoint):
        known |= OF_LIGHTNING
    return [each for each in inspect.signature(documented).parameters if each not in known and each[0] != "_"]


def test_every_parameter_is_documented():
    wrong = [f"{name}: {', '.join(left)}" for name, each in EXPORTED.items() if (left := undocumented(each))]
    assert not wrong, "\n".join(wrong)


def test_a_metric_with_arguments_of_its_own_documents_all_of_them_in_its_source():
    inherited = MetricArguments.__annotations__.keys() - TorchmetricsArguments.__annotations__.keys()
    wrong = []
    for name in OWN_CONSTRUCTORS:
        constructor = vars(EXPORTED[name])["__init__"]
        taken = {*inspect.signature(constructor).parameters, *inherited} - {"self"}
        left = sorted(taken - documented_names(constructor.__doc__))
        wrong += [f"{name}: {', '.join(left)}"] if left else []
    assert "FScore" in OWN_CONSTRUCTORS
    assert not wrong, "\n".join(wrong)


def has_example(documented):
    """Return whether the docstring of a class or function has an example that is run."""
    (found,) = doctest.DocTestFinder(recurse=False, exclude_empty=False).find(documented, documented.__name__)
    return any(not each.options.get(doctest.SKIP) for each in found.examples)


def test_all_have_an_example_that_is_run():
    wrong = [name for name, each in EXPORTED.items() if not has_example(each)]
    assert not wrong, "\n".join(wrong)


def docstrings(tree):
    """Yield the first words of the docstrings of a file, and the definitions that they stand in, if they do in one."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            for place, each in enumerate(node.body):
                if isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str):
                    yield each.value.value, node if place == 0 else None  # behind an attribute they document that


def begins_well(text, node):
    """Return whether a docstring begins with a verb where its function does something, else with a noun."""
    first = re.split(r"[ .,:;\n]", text.strip(), maxsplit=1)[0]
    decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
    if any(each.startswith("catalogued") for each in decorators):  # a measure begins with its own name
        return first not in QUESTIONS
    does = isinstance(node, ast.FunctionDef) and not any("property" in each for each in decorators)
    return first.lower() in VERBS.split() and first[0].isupper() if does else first not in QUESTIONS | {"Return", "Get"}


def files():
    """Return the files of the package by their names."""
    found = {path.relative_to(ROOT / "imbtorch").as_posix(): path for path in (ROOT / "imbtorch").rglob("*.py")}
    return {name: found[name] for name in sorted(found)}


def test_docstrings_begin_with_a_verb_or_a_noun():
    wrong = [
        f"{name}: {text.splitlines()[0]}"
        for name, path in files().items()
        for text, node in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if not begins_well(text, node)
    ]
    assert "metrics/base.py" in files()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "well"),
    [
        ("def f():\n    'Return one.'", True),
        ("def f():\n    'Value of one.'", False),
        ("def f():\n    'Whether it is one.'", False),
        ("@property\ndef f():\n    'Value of one.'", True),
        ("@cached_property\ndef f():\n    'Return one.'", False),
        ("@catalogued('f')\ndef f():\n    'F-score: a mean.'", True),
        ("class F:\n    'Which one it is.'", False),
        ("class F:\n    'Table of ones.'\n    one = 1\n    'How many.'", False),
    ],
)
def test_the_check_of_words_finds_each_kind(code, well):
    assert all(begins_well(text, node) for text, node in docstrings(ast.parse(code))) == well
