"""Runs a function in several processes that form a gloo group, or a script, bounded by a timeout; counts collectives.

Processes are forked from one that has imported what takes long. Windows cannot fork and spawns them;
``IMBTORCH_TESTS_START=spawn`` does the same elsewhere.
"""

import contextlib
import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

START = os.environ.get("IMBTORCH_TESTS_START", "spawn" if sys.platform == "win32" else "forkserver")
CONTEXT = multiprocessing.get_context(START)
if START == "forkserver":
    # what test modules import takes longer than what most of their processes do; not pytorch_lightning, whose loggers
    # lightning would take for its own once both are imported
    CONTEXT.set_forkserver_preload(
        [
            "torch",
            "torchmetrics",
            "imbtorch.statistics",
            "pytest",
            "hypothesis",
            "sklearn.metrics",
            "imblearn.metrics",
            "lightning.pytorch",
            "imbtorch.lightning",
            "accelerate",
            "pycm",
            "torcheval.metrics",
        ]
    )

COLLECTIVES = [
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "scatter",
    "all_to_all",
    "monitored_barrier",
]


def fork_workers_of_loaders() -> None:
    """Fork the workers of loaders, which else import all again."""
    if START == "forkserver" and sys.platform == "linux":
        multiprocessing.set_start_method("fork", force=True)


def launch(world: int, work: Callable[..., Any], *args: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``work(rank, world, *args)`` on every rank and return what each returned.

    Raises AssertionError with the tracebacks if a process raises or does not end in time.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps files that are open
        queue = CONTEXT.Queue()
        processes = [
            CONTEXT.Process(target=_run, args=(queue, folder, rank, world, timeout, work, args))
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        answers: dict[int, tuple[bool, Any]] = {}
        try:
            for _ in processes:
                rank, fine, answer = queue.get(timeout=timeout)
                answers[rank] = fine, answer
        except Exception as error:  # queue.Empty: somebody hangs
            missing = sorted(set(range(world)) - set(answers))
            raise AssertionError(f"ranks {missing} did not answer within {timeout} s; others: {answers}") from error
        finally:
            for process in processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.kill()
    failed = [f"rank {rank}:\n{answer}" for rank, (fine, answer) in sorted(answers.items()) if not fine]
    assert not failed, "\n".join(failed)
    return [answers[rank][1] for rank in range(world)]


def _run(queue: Any, folder: str, rank: int, world: int, timeout: float, work: Callable[..., Any], args: Any) -> None:
    torch.set_num_threads(1)
    fork_workers_of_loaders()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)
    limit = timedelta(seconds=timeout)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    torch.distributed.barrier()  # a rank that is done at once would close connections that others are still making
    try:
        answer = (rank, True, work(rank, world, *args))
    except BaseException:
        answer = (rank, False, traceback.format_exc())
    queue.put(answer)
    queue.close()
    queue.join_thread()
    os._exit(0)  # without waiting for others, who may have failed


def run_script(
    script: Path, *arguments: str, folder: Path, environment: dict[str, str] | None = None, timeout: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run ``python script arguments`` in a folder, but for the second or more that importing torch takes."""
    with tempfile.TemporaryDirectory() as written:
        given = (str(script), *arguments)
        process = CONTEXT.Process(target=_run_script, args=(given, folder, environment or dict(os.environ), written))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(given, timeout)
        said, warned = ((Path(written) / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(given, process.exitcode or 0, said, warned)


def _run_script(given: tuple[str, ...], folder: Path, environment: dict[str, str], written: str) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(written) / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    torch.set_num_threads(1)
    fork_workers_of_loaders()
    sys.argv, sys.path[0] = list(given), str(Path(given[0]).parent)
    code = 0
    try:
        runpy.run_path(given[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stderr.write(end.code if isinstance(end.code, str) else "")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def counted_collectives():
    """Names of the collectives that are called within."""
    calls, originals = [], {}
    for name in COLLECTIVES:
        originals[name] = original = getattr(torch.distributed, name)

        def wrapper(*args, _name=name, _original=original, **kwargs):
            calls.append(_name)
            return _original(*args, **kwargs)

        setattr(torch.distributed, name, functools.wraps(original)(wrapper))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(torch.distributed, name, original)
