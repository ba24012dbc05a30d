"""The law of the house: which rooms of imbtorch import which, what can be taken out, and how large it may become.

The core counts, measures, reports and computes intervals. A wing stands on the core (and on few other wings) and can be
deleted. The faces re-export what users import. ``.github/CONTRIBUTING.md`` draws the house.
"""

import ast
import graphlib
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torchmetrics

import imbtorch
from imbtorch.suggestions import PUBLIC_MODULES

ROOT = Path(imbtorch.__file__).parent
CORE = {"counts", "tables", "columns", "compat", "suggestions", "functional", "waiting", "version"} | {
    "measures",
    "counting",
    "intervals",
    "reports",
}
WINGS = {  # each with the wings that it may import; any wing may import plots
    "deciding": set(),
    "choosing": {"deciding"},
    "metrics": {"deciding"},
    "predictions": {"choosing", "deciding"},
    "lightning": {"choosing", "deciding", "predictions", "metrics", "sampler"},
    "papers": {"choosing", "deciding"},
    "plots": set(),
    "huggingface": {"metrics", "deciding"},
    "sampler": set(),
}
FACES = {"imbtorch", "imbtorch.__main__", "imbtorch.statistics"}
PUBLIC = {*PUBLIC_MODULES, "imbtorch.measures", "imbtorch.functional", "imbtorch.version"}
TORCHMETRICS = {  # the modules that may import it
    "imbtorch.lightning.monitor_guard",
    "imbtorch.metrics.hand_till",
    "imbtorch.metrics.merging",
    "imbtorch.metrics.shared_result",
    "imbtorch.metrics.state",
}
CORE_LINES, CORE_MODULES, LINES = 9_900, 40, 34_500
COMPLEXITY, DOCSTRING_LINES = 18, 60
PARAMETERS, OF_LIGHTNING = 12, 16  # most of a public callable; Lightning's ModelCheckpoint has 15
MORE_PARAMETERS = {  # whoever raises one of these names it in the subject of the commit
    "ChosenEpoch": 14,
    "ImbalanceReport": 20,
    "OperatingPoint": 13,
    "ThresholdSweep": 20,
    "paired_compare": 15,
    "Predictions": 15,
    "report": 24,
}


COUNTED_REPORT = """
import torch
from imbtorch.reports.description import described, result_of_counts

readings = described("multiclass", class_names=["cat", "dog"], intervals=["recall"])
result = result_of_counts(readings, torch.tensor([[2, 1], [0, 1]]))
print(result.table())
print(result.interval("recall"))
"""


@dataclass(frozen=True)
class Import:
    """One import of a module of the package, and whether a function makes it."""

    source: str
    target: str
    lazy: bool

    @property
    def drawing(self):
        """Whether a function that draws loads the room of pictures."""
        return self.lazy and room(self.target) == "plots"


def room(module):
    """Return the folder or the file right below the package that holds a module."""
    return (module + ".").split(".")[1]


@cache
def modules():
    """Return the syntax tree of each module by its dotted name."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths().items()}


def paths():
    """Return the file of each module by its dotted name."""
    found = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def within(tree, *kinds):
    """Return the nodes below nodes of some kinds."""
    return {id(below) for node in ast.walk(tree) if isinstance(node, kinds) for below in ast.walk(node)}


@cache
def imports():
    """Return all imports within the package but those for type checkers."""
    found = []
    for source, tree in modules().items():
        lazy = within(tree, ast.FunctionDef, ast.AsyncFunctionDef)
        typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
        skipped = {id(below) for node in typing for below in ast.walk(node)}
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                dotted = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules() else node.module for name in dotted]
            own = [name for name in names if name.split(".")[0] == "imbtorch" and id(node) not in skipped]
            found += [Import(source, name, id(node) in lazy) for name in own]
    return found


def between_rooms():
    """Return the imports from one room into another, without those of faces and of functions that draw."""
    return [
        each
        for each in imports()
        if each.source not in FACES and room(each.source) != room(each.target) and not each.drawing
    ]


def lines(module):
    """Return the number of lines of a module."""
    place = ROOT.parent.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return len(path.read_text(encoding="utf-8").splitlines())


def test_every_module_has_a_room():
    assert {room(name) for name in modules() if name not in FACES} <= CORE | set(WINGS)


def test_no_two_rooms_import_each_other():
    pairs = {(room(each.source), room(each.target)) for each in between_rooms()}
    assert {pair for pair in pairs if pair[::-1] in pairs} == set()


def test_no_module_of_the_core_imports_a_wing():
    assert [each for each in between_rooms() if room(each.source) in CORE and room(each.target) in WINGS] == []


def test_wings_import_the_core_and_few_other_wings():
    wrong = []
    for each in imports():
        source, target = room(each.source), room(each.target)
        if each.source not in FACES and {source, target} <= set(WINGS) and source != target and not each.drawing:
            allowed = target in WINGS[source] | {"plots"} and (
                each.lazy or (source, target) != ("lightning", "predictions")
            )
            wrong += [] if allowed else [each]
    assert wrong == []


def test_faces_only_export():
    assert [each for each in imports() if each.target in FACES and each.source not in FACES] == []
    for face in FACES - {"imbtorch.__main__"}:
        defined = [node for node in ast.walk(modules()[face]) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert {node.name for node in defined} <= {"__getattr__", "__dir__"}


def test_no_circle_among_modules():
    graph = {name: set() for name in modules()}
    for each in imports():
        if each.source not in FACES:
            graph[each.source] |= {each.target} - {each.source}
    assert "imbtorch.counts" in graph["imbtorch.metrics.base"]
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_rooms_import_only_their_dependencies():
    needed = {"imbtorch", "torch", "numpy", "scipy", "typing_extensions", *sys.stdlib_module_names}
    optional = {"lightning": {"lightning", "pytorch_lightning"}, "predictions": {"narwhals", "duckdb", "pyarrow"}}
    for name, tree in modules().items():
        lazy = within(tree, ast.FunctionDef, ast.AsyncFunctionDef, ast.If)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert getattr(node, "level", 0) == 0, f"{name} has a relative import"
                full = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
                others = {each.split(".")[0] for each in full} - needed - optional.get(room(name), set())
                if "torchmetrics" in others and name in TORCHMETRICS:
                    continue
                assert others <= {"matplotlib"}, name
                assert not others or id(node) in lazy, f"{name} must import matplotlib inside its functions"


OF_COMMANDS = """
import contextlib, io, sys
from imbtorch.predictions.command_line import main

rows = "".join(f"{at % 3 == 0:d},{at % 4 == 0:d},{at % 7 / 7:.2f}\\n" for at in range(60))
with open("t.csv", "w") as file:
    file.write("label,pred,score\\n" + rows)
with open("pool.csv", "w") as file:
    file.write("truth,pred,score\\n" + rows)
commands = [
    "report t.csv --target label --preds pred --intervals --json r.json",
    "report t.csv --target label --scores score",
    "thresholds t.csv --target label --scores score --measure f1",
    "compare t.csv --target label --scores pred score --measure auc --margin .1",
    "label pool.csv --preds pred --positive 1 --labels 20 --out drawn.csv",
    "merge r.json",
]
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(command.split()) in (0, 1, 3), command
    for slow in ("torchmetrics", "matplotlib", "scipy.stats", "scipy.signal"):
        assert slow not in sys.modules, (command, slow)
"""


def test_no_command_imports_torchmetrics_or_matplotlib(tmp_path):
    """Each takes longer to import than a report of a small file takes."""
    run_in(tmp_path, OF_COMMANDS, ROOT.parent)


def test_the_budget():
    core = [name for name in modules() if room(name) in CORE]
    assert sum(lines(name) for name in core) <= CORE_LINES
    assert len(core) <= CORE_MODULES
    assert sum(lines(name) for name in modules()) <= LINES


def branches(function):
    """Count one for a function and one for each decision in it; functions in it count apart."""
    total, queue = 1, list(ast.iter_child_nodes(function))
    decisions = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.match_case)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        total += isinstance(node, decisions)
        total += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        total += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        queue.extend(ast.iter_child_nodes(node))
    return total


def test_no_function_makes_too_many_decisions():
    functions = [
        (f"{name}.{node.name}", branches(node))
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    assert [each for each in functions if each[1] > COMPLEXITY] == []


def test_no_docstring_is_long():
    long = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node) or ""
                if len(docstring.splitlines()) > DOCSTRING_LINES:
                    long.append(f"{name}.{getattr(node, 'name', '')}")
    assert long == []


def test_no_docstring_sends_readers_to_a_file_that_no_wheel_holds():
    """They name the page of the site, which links them."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths().items()}
    assert [name for name, text in texts.items() if re.search(r"examples/|[\w/]+\.md\b", text)] == []


def public_objects():
    """Return what users import: dotted name -> object, once for each object."""
    found = {}
    for module in map(importlib.import_module, PUBLIC_MODULES):
        for name in module.__all__:
            found.setdefault(id(getattr(module, name)), (f"{module.__name__}.{name}", getattr(module, name)))
    return dict(found.values())


def own_functions(value):
    """Yield the function itself, or the public ones that this package defines of a class, those of properties too."""
    if not inspect.isclass(value):
        yield from [value] * inspect.isfunction(value)
        return
    for base in value.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("imbtorch") else ():
            bare = getattr(member, "fget", getattr(member, "func", getattr(member, "__func__", member)))
            if inspect.isfunction(bare) and (name == "__getitem__" or not name.startswith("_")):
                yield bare


def test_what_public_calls_return_is_public():
    """A base class is, if users import its heirs."""
    public = set(map(id, public_objects().values()))
    classes = {}
    for name in modules().keys() - {"imbtorch.__main__"}:
        for each in vars(importlib.import_module(name)).values():
            if inspect.isclass(each) and each.__module__ == name:
                classes[each.__name__] = each
    wrong = {}
    for place, value in public_objects().items():
        for function in own_functions(value):
            returned = str(inspect.unwrap(function).__annotations__.get("return", ""))
            for name in re.findall(r"\b[A-Z]\w+", returned):
                owner = classes.get(name)
                if owner and not public & {id(owner), *map(id, owner.__subclasses__())}:
                    wrong.setdefault(name, place)
    assert wrong == {}


def test_completion_shows_the_public_names():
    modules_of_users = {name.rpartition(".")[2] for name in PUBLIC_MODULES[1:]}
    assert set(dir(imbtorch)) == {*imbtorch.__all__, *modules_of_users}


def test_no_public_call_takes_many_parameters():
    taken = {}
    for place, value in public_objects().items():
        named = place.rpartition(".")[2]
        for function in [value] * callable(value) + list(own_functions(value)) * inspect.isclass(value):
            name = named if function is value else f"{named}.{function.__name__}"
            try:
                parameters = inspect.signature(function).parameters.values()
            except (TypeError, ValueError):
                continue
            own = [each for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != "self"]
            taken[name] = max(taken.get(name, 0), len(own))
    most = dict.fromkeys(taken, PARAMETERS) | {"ModelCheckpoint": OF_LIGHTNING} | MORE_PARAMETERS
    assert {name: number for name, number in taken.items() if number > most[name]} == {}
    assert {name for name, limit in MORE_PARAMETERS.items() if taken[name] < limit} == set()  # what went stays gone


def private_names():
    """Return the private attributes that classes of the package define, without those that torchmetrics has as well."""
    found = set()
    for tree in modules().values():
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for node in ast.walk(owner):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.attr)
                elif isinstance(node, ast.FunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
    theirs = torchmetrics.MeanMetric()
    return {name for name in found if re.match("_[a-z].*[a-z]$", name) and not hasattr(theirs, name)}


def test_tests_read_internals_in_one_place():
    """So that a change of the layout edits ``tests/helpers/rooms.py`` and no test."""
    private, wrong = private_names(), []
    assert {"_state", "_counter"} <= private
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        if path.name in ("rooms.py", "surface.py", Path(__file__).name):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                dotted = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules() else node.module for name in dotted]
            elif isinstance(node, ast.Attribute) and node.attr in private:
                wrong.append((path.name, node.lineno, node.attr))
            internal = [name for name in names if name in modules() and name not in PUBLIC]
            wrong += [(path.name, node.lineno, name) for name in internal]
    assert wrong == []


def cut(face, wings):
    """Remove from a face the imports of wings and the names that they bring."""
    text = face.read_text(encoding="utf-8")
    rows, names, places = text.split("\n"), set(), []
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module and room(node.module) in wings:
            names |= {alias.asname or alias.name for alias in node.names}
            places.append((node.lineno - 1, node.end_lineno))
    for begin, end in reversed(places):
        del rows[begin:end]
    dropped = {f'"{name}",' for name in names} | {f"*{name}," for name in names}
    face.write_text("\n".join(row for row in rows if row.strip() not in dropped), encoding="utf-8")


def without(wings, folder):
    """Copy the package into a folder, delete wings from the copy and from its faces."""
    copy = folder / "imbtorch"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for wing in wings:
        shutil.rmtree(copy / wing) if (copy / wing).is_dir() else (copy / f"{wing}.py").unlink()
    for face in ("__init__.py", "statistics/__init__.py"):
        cut(copy / face, wings)
    return copy


def run_in(folder, program, package=None):
    """Run a program in a folder, by a fresh interpreter that takes imbtorch from there; return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(package or folder), "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def importing(folder, left_out=()):
    """Return a program that imports every module below a folder and prints the errors."""
    copy = folder / "imbtorch"
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in sorted(copy.rglob("*.py"))]
    names = [name.removesuffix(".__init__") for name in names]
    names = [name for name in names if name != "imbtorch.__main__" and room(name) not in left_out]
    return (
        "import importlib\n"
        f"for name in {names}:\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ImportError as error:\n        print(name, error)\n"
    )


def test_the_core_alone_counts_a_report(tmp_path):
    without(WINGS, tmp_path)
    printed, errors = run_in(tmp_path, COUNTED_REPORT + "print('---')\n" + importing(tmp_path)).split("---\n")
    assert "cat" in printed
    assert "95% posterior" in printed
    assert errors == ""


def importers(wing):
    """Return a wing and the wings that import it, directly or through another one."""
    pairs = {(room(each.source), room(each.target)) for each in imports() if each.source not in FACES}
    found, queue = {wing}, [wing]
    while queue:
        wanted = queue.pop()
        more = {source for source, target in pairs if target == wanted and source in WINGS} - found
        found |= more
        queue += more
    return found


FORKED = """
import os
import sys
import lightning.pytorch, matplotlib.pyplot, narwhals, torchmetrics
for wing, (folder, program) in {programs}.items():
    if not os.fork():
        try:
            sys.path.insert(0, folder)
            exec(program)
            print(wing, "left", flush=True)
        finally:
            os._exit(0)
    os.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_each_wing_can_leave_with_those_that_stand_on_it(tmp_path):
    """In forks of a process that has imported what imbtorch imports, since that takes most of the time."""
    programs = {}
    for wing in sorted(WINGS):
        (tmp_path / wing).mkdir()
        without(importers(wing), tmp_path / wing)
        programs[wing] = str(tmp_path / wing), importing(tmp_path / wing)
    printed = run_in(tmp_path, FORKED.format(programs=programs))
    assert printed.splitlines() == [f"{wing} left" for wing in sorted(WINGS)]


def test_a_file_of_tests_is_found_by_the_module_that_it_tests():
    """By its own name, or by the module that its first line names, unless its theme is several modules."""
    for path in sorted(Path(__file__).parents[1].glob("*/test_*.py")):
        home = ROOT / path.parent.name
        own = path.stem.removeprefix("test_")
        if not home.is_dir() or own == home.name or (home / f"{own}.py").exists():
            continue
        title = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
        named = re.findall(r"`([\w/]+\.py)`", title)
        assert named or title.startswith("A theme of several modules"), path
        assert all((home / name).exists() or (ROOT / name).exists() for name in named), path
