"""Workarounds for other packages: their private attributes and call frames are read in two modules."""

import ast
from pathlib import Path

import imbtorch

ROOT = Path(imbtorch.__file__).parent
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


def private(name):
    return name.startswith("_") and not name.startswith("__")


def defined(tree):
    """Private names that a module gives: its functions and classes, fields, and what is assigned to an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets:
                for each in ast.walk(target):
                    yield getattr(each, "id", getattr(each, "attr", ""))


def read_of_others(tree):
    """Private attributes that a module reads of anything but ``self``, ``cls`` and ``super()``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()) if private(name):
                if ast.unparse(owner) not in ("self", "cls", "super()"):
                    yield name
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]) if private(name):
                yield name


# torchmetrics' `_forward_cache` is set by ours too; methods of named tuples and one of torch are read anywhere
HOMES = {"compat.py", "metrics/merging.py"}  # the latter reads those of torchmetrics, which compat does not import
OURS = {name for path, tree in TREES.items() if path not in HOMES for name in defined(tree)} - {"_forward_cache"}
ANYWHERE = {"_asdict", "_replace", "_standard_gamma"}


def test_privates_of_other_packages_are_read_in_two_modules():
    wrong = [
        f"{path}: {name}"
        for path in sorted(set(TREES) - HOMES)
        for name in sorted(set(read_of_others(TREES[path])) - OURS - ANYWHERE)
    ]
    assert not wrong, "\n".join(wrong)


def test_these_modules_read_them():
    read = {name for home in HOMES for name in read_of_others(TREES[home])}
    assert {"_getframe", "_groups_checked", "_forward_cache", "_results"} <= read
