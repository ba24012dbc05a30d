"""Trains the networks of the study and keeps their predictions after each epoch; measures nothing.

    python examples/decision_study/train.py --out kept            # see protocol.md for the time
    python examples/decision_study/train.py --out kept --subset   # three small tasks, two seeds: seconds
    python examples/decision_study/measure.py kept                # results.csv from the predictions
    python examples/decision_study/report.py                      # tables and pictures from results.csv

A file for each task and regime (of a large pool also for each seed) holds the logarithms of the probabilities of the
validation pool and of the test part ``[seeds, epochs, samples, classes]``, and the targets. Runs that have a file are
not run again, so that a run that was stopped goes on where it was. ``log.csv`` gets a line for each file.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import tasks as study
import torch
from keel import scaled, split
from networks import SETTINGS, logits_of, network_of, trained_together
from pools import IGNORED, Data, Part
from tasks import Task
from torch import Tensor, nn
from torch.nn import functional

FIRST, SEEDS, SMALL_SEEDS = 40, 5, 10  # seeds 40 to 44 of glyphs, tokens and chess, to 49 of the others
EPOCHS = {"constant": 20, "falling": 20, "short": 6, "weighted": 20, "pretrained": 6}
PRETRAINED_EPOCHS = {"glyphs": 8, "tokens": 4, "chess": 10, "digits": 3}
KEEL_RATE, STEPS, FEWEST = 3e-3, 25, 8  # of KEEL sets: rate, steps in an epoch, and samples in a batch at least
LOG_FIELDS = ("end", "file", "seeds", "seconds")
SUBSET = ("digits", "digits-merged", "digit")


# training -------------------------------------------------------------------------------------------------------------


def class_weights(regime: str, counts: Tensor) -> Tensor:
    """Weights of the classes ``[..., K]`` in the loss, given the numbers of training samples."""
    counts = counts.clamp(min=1).float()
    if regime != "weighted":
        return torch.ones_like(counts)
    return counts.sum(-1, keepdim=True) / (counts.shape[-1] * counts)


def rate_at(regime: str, rate: float, step: int, steps: int) -> float:
    """Rate of a step: constant, or falling in a line from the first step to zero after the last."""
    return rate if regime == "constant" else rate * (1 - step / steps)


def log_probabilities(model: nn.Module, part: Part) -> Tensor:
    """Logarithms of the predicted probabilities of the samples ``[samples, classes]``."""
    model.eval()
    with torch.inference_mode():
        found = [
            model(inputs)[target != IGNORED].log_softmax(-1)
            for inputs, target in zip(part.inputs.split(500), part.target.split(500), strict=True)
        ]
    return torch.cat(found)


def trained(data: Data, pool: str, regime: str, seed: int, epochs: int, start: nn.Module | None) -> Iterator[nn.Module]:
    """Train a network of a pool's task; yield it after each epoch. Regimes of a seed share weights and order."""
    settings = SETTINGS[pool]
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = network_of(settings.network, data)
    if start is not None:  # all but the last layer
        some = list(start.state_dict().items())[:-2]
        model.load_state_dict(dict(some), strict=False)
    target = data.train.target
    weights = class_weights(regime, torch.bincount(target[target != IGNORED], minlength=len(data.classes)))
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, weight_decay=0.0, fused=True)
    inputs = data.train.inputs
    if inputs.ndim == 4:
        inputs = inputs.to(memory_format=torch.channels_last)
    steps, step = epochs * -(-len(target) // settings.batch), 0
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(target), generator=generator).split(settings.batch):
            optimizer.param_groups[0]["lr"] = rate_at(regime, settings.rate, step, steps)
            logits = model(inputs[batch]).flatten(0, -2)
            loss = functional.cross_entropy(logits, target[batch].flatten(), weights, ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        yield model


def pretrained(pool: str, folder: Path) -> nn.Module:
    """Network of a pool that is trained on other data, once for all seeds and tasks; kept in a file."""
    base = "digits" if pool == "digit" else pool
    data, path = study.pretraining(base), folder / f"pretrained_{base}.pt"
    if not path.exists():
        *_, model = trained(data, base, "falling", 0, PRETRAINED_EPOCHS[base], None)
        torch.save(model.state_dict(), path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)
    model = network_of(SETTINGS[base].network, data)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


def of_pool(task: Task, regime: str, seeds: Sequence[int], epochs: int, folder: Path) -> dict[str, Tensor]:
    """Predictions of a task of a pool."""
    assert task.pool is not None
    start = pretrained(task.pool, folder) if regime == "pretrained" else None
    held, tested, rest = [], [], []
    for seed in seeds:
        data = study.parts(task, seed)
        own_seed = zlib.crc32(f"{task.name} {seed} decision".encode())
        pool, test = [], []
        for model in trained(data, task.pool, regime, own_seed, epochs, start):
            pool.append(log_probabilities(model, data.pool))
            test.append(log_probabilities(model, data.test))
        held.append(torch.stack(pool))
        tested.append(torch.stack(test))
        counts = torch.bincount(data.train.labels, minlength=len(data.classes))
        shares = torch.bincount(data.test.labels, minlength=len(counts)) / len(data.test.labels)
        shares = shares.double() if data.shares is None else data.shares
        rest.append((data.pool.labels, data.test.labels, counts, shares))
    names = ("pool_target", "test_target", "counts", "shares")
    found = {name: torch.stack(some) for name, some in zip(names, zip(*rest, strict=True), strict=True)}
    rescaled = torch.tensor(data.shares is not None)
    return found | {"pool": torch.stack(held), "test": torch.stack(tested), "rescaled": rescaled}


def of_keel(task: Task, regime: str, seeds: Sequence[int], epochs: int) -> dict[str, Tensor]:
    """Predictions of a KEEL set: all seeds are trained at once, as one model with a leading dimension."""
    data = study.keel_sets()[task.name]
    parts: list[list[tuple[Tensor, Tensor]]] = []
    for seed in seeds:
        indices = split(data.target, torch.Generator().manual_seed(seed))
        features = scaled(data.features, indices[0])
        parts.append([(features[some], data.target[some]) for some in indices])
    (x, y), (pool, pool_target), (test, test_target) = (
        tuple(torch.stack(some) for some in zip(*of_seeds, strict=True)) for of_seeds in zip(*parts, strict=True)
    )
    counts = functional.one_hot(y, task.classes).sum(1)
    weights = class_weights(regime, counts)
    held, tested = [], []
    batch_size = max(FEWEST, -(-y.shape[1] // STEPS))
    rate = partial(rate_at, regime, KEEL_RATE)
    for parameters in trained_together((x, y), weights, seeds, batch_size, epochs, rate):
        with torch.inference_mode():
            held.append(logits_of(parameters, pool).log_softmax(-1))
            tested.append(logits_of(parameters, test).log_softmax(-1))
    shares = functional.one_hot(test_target, task.classes).double().mean(1)
    targets = {"pool_target": pool_target, "test_target": test_target, "counts": counts, "shares": shares}
    return targets | {"pool": torch.stack(held, 1), "test": torch.stack(tested, 1), "rescaled": torch.tensor(False)}


# files ----------------------------------------------------------------------------------------------------------------


def in_order(some: Sequence[Task], first: int, seeds: int, small_seeds: int) -> list[tuple[Task, str, list[int]]]:
    """Task, regime and seeds of all files: the falling rate first, large pools seed by seed."""
    whole = list(range(first, first + small_seeds))
    small = [task for task in some if task.pool in (None, "digits", "digit")]
    found = []
    for regime in ("falling", "constant", "weighted", "short", "pretrained"):
        found += [(task, regime, whole) for task in small if regime in task.regimes]
    large = [task for task in some if task not in small]
    for seed in whole[:seeds]:
        for regime in ("falling", "constant", "weighted", "short", "pretrained"):
            found += [(task, regime, [seed]) for task in large]
    return found


def main() -> None:
    """Train all runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the predictions: some 8 GB in all")
    parser.add_argument("--first", type=int, default=FIRST, help="first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds on glyphs, tokens and chess")
    parser.add_argument("--small-seeds", type=int, default=SMALL_SEEDS, help="number of seeds on the others")
    parser.add_argument("--tasks", nargs="+", help="only these tasks")
    parser.add_argument("--subset", action="store_true", help="three small tasks, seeds 0 and 1: seconds")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if arguments.subset:
        arguments.first, arguments.small_seeds, arguments.tasks = 0, 2, SUBSET
    known = study.POOLS if arguments.subset else study.tasks()
    some = [task for task in known if not arguments.tasks or task.name in arguments.tasks]
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "log.csv"
    if not log.exists():
        log.write_text(",".join(LOG_FIELDS) + "\n", encoding="utf-8")
    for task, regime, seeds in in_order(some, arguments.first, arguments.seeds, arguments.small_seeds):
        path = arguments.out / f"{task.name}_{regime}_{seeds[0]}.npz"
        if path.exists():
            continue
        start = time.process_time()
        if task.pool is None:
            found = of_keel(task, regime, seeds, EPOCHS[regime])
        else:
            found = of_pool(task, regime, seeds, EPOCHS[regime], arguments.out)
        with path.with_suffix(".part").open("wb") as file:
            np.savez(file, **{key: value.numpy() for key, value in found.items()})
        os.replace(file.name, path)
        now = datetime.datetime.now(datetime.timezone.utc)
        with log.open("a", encoding="utf-8", newline="") as lines:
            row = (f"{now:%Y-%m-%d %H:%M:%S}", path.stem, len(seeds), f"{time.process_time() - start:.1f}")
            csv.writer(lines, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()
