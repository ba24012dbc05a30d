"""Lightning's entry points: a guard for programs that use imbtorch, nothing for all others on the machine.

Lightning loads them for every ``Trainer``. ``pyproject.toml`` therefore installs this file as ``imbtorch_entry_point``,
a module beside the package: loading one inside the package would import imbtorch. The command line starts here too, so
that it can say that imbtorch itself cannot be imported.
"""

from __future__ import annotations

import sys
import traceback
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
    """Run the command ``imbtorch``; return 2 if it cannot be imported, since 1 means that a model is worse."""
    try:
        from imbtorch.predictions.command_line import main
    except KeyboardInterrupt:
        sys.stderr.write("imbtorch: interrupted\n")
        return 130
    except Exception:
        traceback.print_exc()
        return 2
    return main()
