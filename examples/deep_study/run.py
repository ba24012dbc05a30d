"""Trains the networks of the study and keeps their predictions after each epoch; measures nothing.

    python examples/deep_study/run.py --out kept                 # ten seeds; see protocol.md for the time
    python examples/deep_study/run.py --out kept --until 22:10   # the last run begins before that time of day (UTC)
    python examples/deep_study/run.py --out kept --subset        # two small tasks, two seeds: seconds
    python examples/deep_study/measure.py kept                   # the CSV files from the predictions
    python examples/deep_study/report.py                         # tables and pictures from the CSV files

A file for each run holds the logarithms of the probabilities of the validation pool and of the test part
``[epochs, samples, classes]`` in half precision, and the targets. Runs whose file stands there, or that another
process has begun (``.part``), are left alone, so that several processes can share the work. All plain runs come first,
seed by seed, so that the design is balanced wherever it stops.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from data import IGNORED, LENGTH, TASKS, Data, Part, tokens
from torch import Tensor, nn
from torch.nn import functional

NOISE = 0.15  # share of the training labels that are wrong, in that regime
FIRST, SEEDS, EPOCHS, DECAY = 10, 10, 20, 0.3  # seeds 10 to 19; those before were used to try the scripts


@dataclass(frozen=True)
class Task:
    """Data, a network, the number of training samples and of those (tokens: sequences) in a batch, rate and regimes."""

    data: str
    network: str
    samples: int
    batch: int
    rate: float
    regimes: tuple[str, ...]


FOUR = ("plain", "weighted", "adjusted", "noise")
STUDY = {
    "glyphs": Task("glyphs", "convolutional", 5_000, 50, 2e-3, (*FOUR, "decay")),
    "tokens": Task("tokens", "transformer", 15_000, 16, 3e-3, (*FOUR, "decay")),
    "chess": Task("chess", "perceptron", 8_000, 50, 4e-3, FOUR),
    "digits": Task("digits", "perceptron", 250, 25, 2e-3, FOUR),
    "digit": Task("digit", "perceptron", 300, 25, 2e-3, FOUR),
    "glyphs-residual": Task("glyphs", "residual", 5_000, 100, 2e-3, ("plain", "weighted")),
}
SUBSET = {"digits": STUDY["digits"], "digit": STUDY["digit"]}


# networks -------------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions with batch normalization, added to what went in."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.norms[0](self.first(images)).relu()
        return (self.norms[1](self.second(inner)) + self.skip(images)).relu()


class Layer(nn.Module):
    """Layer of a transformer: causal attention, then two linear maps, each added to what went in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.projected, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, inner: Tensor) -> Tensor:
        batch, length, width = inner.shape
        projected = self.projected(self.norms[0](inner)).view(batch, length, 3, self.heads, width // self.heads)
        attended = functional.scaled_dot_product_attention(*projected.permute(2, 0, 3, 1, 4), is_causal=True)
        inner = inner + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return inner + self.down(functional.gelu(self.up(self.norms[1](inner))))


class Transformer(nn.Module):
    """Small causal transformer; returns logits ``[batch, length, classes]``."""

    def __init__(self, vocabulary: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.layers = nn.Sequential(Layer(width, 4), Layer(width, 4))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids) + self.position))


def network_of(name: str, data: Data) -> nn.Module:
    """Network with its initial weights."""
    classes = len(data.classes)
    if name == "transformer":
        return Transformer(tokens()[2]["vocabulary"], classes)
    if name == "perceptron":
        features = data.train.inputs.shape[1]
        wide = [nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, classes)]
        return nn.Sequential(*wide)
    if name == "residual":
        stem = [nn.Conv2d(1, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
        blocks = [Residual(32, 32, 2), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*stem, *blocks, nn.Linear(64, classes)).to(memory_format=torch.channels_last)
    seen = [nn.Conv2d(1, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU()]
    seen += [nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    head = [nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(*seen, *head).to(memory_format=torch.channels_last)


# training -------------------------------------------------------------------------------------------------------------


def noisy(target: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Give 15% of the samples another class, each of the others as likely."""
    flipped = (torch.rand(target.shape, generator=generator) < NOISE) & (target != IGNORED)
    shift = torch.randint(1, classes, target.shape, generator=generator)
    return torch.where(flipped, (target + shift) % classes, target)


def criterion(regime: str, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the classes, and what is added to their logits, in a regime; ``counts`` are the training samples."""
    counts = counts.clamp(min=1).float()
    weights, added = torch.ones(len(counts)), torch.zeros(len(counts))
    if regime == "weighted":
        weights = counts.sum() / (len(counts) * counts)
    if regime == "adjusted":
        added = (counts / counts.sum()).log()
    return weights, added


def log_probabilities(model: nn.Module, part: Part) -> Tensor:
    """Logarithms of the predicted probabilities of the samples ``[samples, classes]`` in half precision."""
    model.eval()
    with torch.inference_mode():
        found = []
        for inputs, target in zip(part.inputs.split(500), part.target.split(500), strict=True):
            found.append(model(inputs)[target != IGNORED].log_softmax(-1).half())
    return torch.cat(found)


def trained(data: Data, task: Task, regime: str, seed: int, epochs: int) -> Iterator[nn.Module]:
    """Train a network; yield it after each epoch. Regimes of a seed share the initial weights and the order."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = network_of(task.network, data)
    classes = len(data.classes)
    target = data.train.target
    if regime == "noise":
        target = noisy(target, classes, torch.Generator().manual_seed(seed + 1_000))
    weights, added = criterion(regime, torch.bincount(target[target != IGNORED], minlength=classes))
    decay = DECAY if regime == "decay" else 0.0
    optimizer = torch.optim.AdamW(model.parameters(), task.rate, weight_decay=decay, fused=True)
    inputs = data.train.inputs
    if inputs.ndim == 4:
        inputs = inputs.to(memory_format=torch.channels_last)
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(target), generator=generator).split(task.batch):
            logits = model(inputs[batch]).flatten(0, -2)
            loss = functional.cross_entropy(logits + added, target[batch].flatten(), weights, ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield model


def one_run(name: str, task: Task, regime: str, seed: int, epochs: int, path: Path) -> None:
    """Train a network and write its file."""
    data = TASKS[task.data](seed, task.samples)
    start = time.process_time()
    pool, test = [], []
    for model in trained(data, task, regime, zlib.crc32(f"{name} {seed}".encode()), epochs):
        pool.append(log_probabilities(model, data.pool))
        test.append(log_probabilities(model, data.test))
    counts = torch.bincount(data.train.labels, minlength=len(data.classes))
    kept = {
        "pool": torch.stack(pool),
        "test": torch.stack(test),
        "pool_target": data.pool.labels.to(torch.uint8),
        "test_target": data.test.labels.to(torch.uint8),
        "counts": counts,
        "shares": torch.bincount(data.test.labels, minlength=len(counts)) / len(data.test.labels)
        if data.shares is None
        else data.shares,
        "rescaled": torch.tensor(data.shares is not None),
        "seconds": torch.tensor(time.process_time() - start),
    }
    with path.with_suffix(".part").open("wb") as file:
        np.savez(file, **{key: value.numpy() for key, value in kept.items()})
    os.replace(file.name, path)


def in_order(tasks: dict[str, Task], seeds: range) -> list[tuple[str, str, int]]:
    """Task, regime and seed of all runs: first all plain ones and those of digits, seed by seed, then the others."""
    runs = [(name, regime, seed) for seed in seeds for name, task in tasks.items() for regime in task.regimes]
    return sorted(runs, key=lambda run: run[1] != "plain" and not run[0].startswith("digit"))


def claimed(path: Path) -> bool:
    """Claim a run; return False if it is done, or begun elsewhere."""
    if path.exists():
        return False
    try:
        path.with_suffix(".part").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    """Train all runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the predictions: some 4 GB in all")
    parser.add_argument("--tasks", nargs="+", choices=list(STUDY), default=list(STUDY))
    parser.add_argument("--regimes", nargs="+", help="only these of a task's regimes")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--until", help="time of day, UTC, after which no run begins: 22:10")
    parser.add_argument("--subset", action="store_true", help="the two small tasks, two seeds: seconds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks = SUBSET if arguments.subset else {name: STUDY[name] for name in arguments.tasks}
    if arguments.regimes:
        chosen = {name: [some for some in task.regimes if some in arguments.regimes] for name, task in tasks.items()}
        tasks = {name: replace(task, regimes=tuple(chosen[name])) for name, task in tasks.items()}
    seeds = range(2) if arguments.subset else range(FIRST, FIRST + arguments.seeds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, regime, seed in in_order(tasks, seeds):
        path = arguments.out / f"{name}_{regime}_{seed}.npz"
        now = datetime.datetime.now(datetime.timezone.utc)
        if arguments.until and now.strftime("%H:%M") >= arguments.until:
            print(f"stopped by the clock before {path.stem}")
            return
        if not claimed(path):
            continue
        one_run(name, tasks[name], regime, seed, arguments.epochs, path)
        seconds = float(np.load(path)["seconds"])
        print(f"{now:%H:%M:%S} {path.stem} {seconds:.1f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
