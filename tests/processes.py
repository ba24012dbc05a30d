"""Runs a function in several processes that form a gloo group, bounded by a timeout so that a hang is a failure."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

CONTEXT = multiprocessing.get_context("forkserver")
# what test modules import takes longer than what most of their processes do
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torchmetrics",
        "imbtorch",
        "pytest",
        "hypothesis",
        "sklearn.metrics",
        "imblearn.metrics",
        "lightning.pytorch",
    ]
)


def launch(world: int, work: Callable[..., Any], *args: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``work(rank, world, *args)`` on every rank and return what each returned.

    Raises AssertionError with the tracebacks if a process raises or does not end in time.
    """
    with tempfile.TemporaryDirectory() as folder:
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
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
    )
    try:
        answer = (rank, True, work(rank, world, *args))
    except BaseException:
        answer = (rank, False, traceback.format_exc())
    queue.put(answer)
    queue.close()
    queue.join_thread()
    os._exit(0)  # without waiting for others, who may have failed
