"""Figures and tables, handed to the loggers of Lightning that take them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

from imbtorch.compat import warn_once
from imbtorch.tables import Table


@dataclass(frozen=True)
class _Given:
    """A matplotlib figure or a table, its optimizer step, and the name of its file with loggers that write one."""

    name: str
    content: Any
    step: int
    file: str


class _Adapter:
    """Adapter of one kind of logger, named as in Lightning; by default it takes no figures and tables."""

    kind: ClassVar[str]

    def fits(self, logger: Any) -> bool:
        """Return whether a logger is of this kind.

        Decide by its type, since methods of MLflow and Comet have the same names and other arguments.
        """
        packages = ("lightning", "pytorch_lightning")
        return any(
            parent.__name__ == self.kind and parent.__module__.partition(".")[0] in packages
            for parent in type(logger).__mro__
        )

    def figure(self, logger: Any, given: _Given) -> None: ...

    def table(self, logger: Any, given: _Given) -> None: ...


class _TensorBoard(_Adapter):
    kind = "TensorBoardLogger"

    def figure(self, logger: Any, given: _Given) -> None:
        logger.experiment.add_figure(given.name, given.content, global_step=given.step)

    def table(self, logger: Any, given: _Given) -> None:
        markdown = "\n".join(f"    {line}" for line in str(given.content).splitlines())
        logger.experiment.add_text(given.name, markdown, global_step=given.step)


class _WeightsAndBiases(_Adapter):
    kind = "WandbLogger"

    def figure(self, logger: Any, given: _Given) -> None:
        logger.log_image(key=given.name, images=[given.content], step=given.step)

    def table(self, logger: Any, given: _Given) -> None:
        head, *cells = given.content.to_rows()
        logger.log_table(key=given.name, columns=head, data=cells, step=given.step)
        notes = [[note] for note in given.content.notes]
        logger.log_text(key=f"{given.name}_notes", columns=["note"], data=notes, step=given.step)


class _MLflow(_Adapter):
    kind = "MLFlowLogger"

    def figure(self, logger: Any, given: _Given) -> None:
        logger.experiment.log_figure(logger.run_id, given.content, f"figures/{given.file}.png")

    def table(self, logger: Any, given: _Given) -> None:
        logger.experiment.log_text(logger.run_id, f"{given.content}\n", f"{given.file}.txt")


class _Comet(_Adapter):
    kind = "CometLogger"

    def figure(self, logger: Any, given: _Given) -> None:
        logger.experiment.log_figure(figure_name=given.name, figure=given.content, step=given.step)

    def table(self, logger: Any, given: _Given) -> None:
        logger.experiment.log_text(str(given.content), step=given.step, metadata={"name": given.name})


class _CSV(_Adapter):
    """Adapter that writes files beside the log."""

    kind = "CSVLogger"

    def figure(self, logger: Any, given: _Given) -> None:
        folder = Path(logger.log_dir) / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        given.content.savefig(folder / f"{given.file}.png", dpi=120)

    def table(self, logger: Any, given: _Given) -> None:
        folder = Path(logger.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{given.file}.txt").write_text(f"{given.content}\n", encoding="utf-8")


class _Dummy(_Adapter):
    """Adapter of the logger of ``fast_dev_run``, which keeps nothing."""

    kind = "DummyLogger"


ADAPTERS: tuple[_Adapter, ...] = (_TensorBoard(), _WeightsAndBiases(), _MLflow(), _Comet(), _CSV(), _Dummy())
SHORT = 100  # characters of a class for MLflow, whose limit of 250 is that of the whole name of a value
_warned: WeakSet[Any] = WeakSet()  # loggers that a warning has named


def log_figure(logger: Any, name: str, figure: Any, step: int, file: str = "") -> bool:
    """Hand a figure to a logger, on rank zero alone; return whether the logger took it.

    TensorBoard, Weights & Biases, MLflow and Comet take the figure; a CSV logger writes it as PNG into ``figures``, by
    the name ``file`` without its ending. A warning names, once, any other logger and one that raises.
    """
    return _handed(logger, _Given(name, figure, step, file_name(file or name)))


def log_table(logger: Any, name: str, table: Table, step: int) -> bool:
    """Hand a table to a logger, as :func:`log_figure`: Weights & Biases takes rows and notes, the others take text."""
    return _handed(logger, _Given(name, table, step, file_name(name)))


def _handed(logger: Any, given: _Given) -> bool:
    """Pass a figure or table to the adapter; turn its errors into a warning, so that training goes on."""
    adapter = next((adapter for adapter in ADAPTERS if adapter.fits(logger)), None)
    if adapter is None:
        takers = ", ".join(adapter.kind for adapter in ADAPTERS[:-1])
        warn_once(
            _warned, logger, f"{type(logger).__name__} gets no figures and tables of imbtorch, which {takers} take"
        )
        return False
    try:
        take = adapter.table if isinstance(given.content, Table) else adapter.figure
        take(logger, given)
    except Exception as error:  # a full disk, a lost connection, a version that calls its methods otherwise
        warn_once(
            _warned, logger, f"{type(logger).__name__} did not take {given.name!r}: {type(error).__name__}: {error}"
        )
        return False
    return True


def mlflow_problem(loggers: Iterable[Any], names: Iterable[str]) -> str:
    """Describe the first name of a value that MLflow would refuse, or take for another one; empty without one.

    Lightning's logger drops characters, and MLflow refuses what is no path of a file then, which ends the run.
    """
    if not any(_MLflow().fits(logger) for logger in loggers):
        return ""
    taken: dict[str, str] = {}
    for name in names:
        left = _allowed(name)
        if _refused(left):
            return f"MLflow refuses {name!r}, of which it would get {left!r}, and ends the run"
        if taken.setdefault(left, name) != name:
            return f"MLflow gives both {taken[left]!r} and {name!r} the same name, {left!r}"
    return ""


def names_for_mlflow(names: Sequence[str]) -> list[str]:
    """Return names that MLflow takes and tells apart, similar to these; the same ones if it does.

    >>> names_for_mlflow(["<30", ">30", "NO"]), names_for_mlflow(["cat", "dog"])
    (['30_0', '30_1', 'NO_2'], ['cat', 'dog'])
    """
    left = [_allowed(name) for name in names]
    bare = [each.strip("/. ").replace("/", "_")[:SHORT] for each in left]
    if len(set(left)) == len(left) and not any(map(_refused, left)) and max(map(len, left), default=0) <= SHORT:
        return [*names]
    return [f"{each or 'class'}_{index}" for index, each in enumerate(bare)]


def _allowed(name: str) -> str:
    """Return a name as Lightning's logger hands it to MLflow."""
    return re.sub(r"[^a-zA-Z0-9_/. -]+", "", name)


def _refused(name: str) -> bool:
    """Return whether MLflow refuses a name, which must be a normal path below a folder."""
    return posixpath.normpath(f"a/{name}") != f"a/{name}" or name.startswith("..") or len(name) > 250


def file_name(name: str) -> str:
    """Return a name with ``_`` for characters that file names cannot have.

    >>> file_name("reports.a/b")
    'reports.a_b'
    """
    return re.sub(r"[^-\w.]", "_", name)
