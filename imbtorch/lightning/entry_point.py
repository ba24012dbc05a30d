"""Lightning's entry points: a guard for programs that use imbtorch, nothing for all others on the machine.

Lightning loads them for every ``Trainer``. ``pyproject.toml`` therefore installs this file as ``imbtorch_entry_point``,
a module beside the package: loading one inside the package would import imbtorch. The command line starts here too, so
that it answers without imbtorch where it can.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


def lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``lightning`` its guard if the program has imported imbtorch."""
    if "imbtorch" not in sys.modules:
        return []
    from imbtorch.lightning.monitor_guard import guards

    return guards("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """Give a Trainer of ``pytorch_lightning`` its guard if the program has imported imbtorch."""
    if "imbtorch" not in sys.modules:
        return []
    from imbtorch.lightning.monitor_guard import guards

    return guards("pytorch_lightning")


def command_line() -> int:
    """Run the command ``imbtorch``.

    Its options are a file that is loaded without the package, so that help and errors of options need no torch.
    """
    package: Any = importlib.util.find_spec("imbtorch")
    path = f"{package.submodule_search_locations[0]}/predictions/parser.py"
    spec: Any = importlib.util.spec_from_file_location("imbtorch_parser", path)
    parser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parser)

    def run(options: Any) -> tuple[int, str]:
        from imbtorch.predictions.command_line import run

        return run(options)

    return int(parser.main(run))
