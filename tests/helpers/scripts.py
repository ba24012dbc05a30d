"""Loads scripts of ``examples/`` that import one another by short names, which several folders use."""

import contextlib
import importlib
import sys


@contextlib.contextmanager
def scripts_of(*folders):
    """Yield a function that loads a script of the folders by its short name; the names are forgotten afterwards."""
    names = {path.stem for folder in folders for path in folder.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    path = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield importlib.import_module
    finally:
        sys.path[:] = path
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
