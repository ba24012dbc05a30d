"""Networks of the study: those of pools, and perceptrons of which many are trained at once, as one model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from pools import LENGTH, Data, tokens
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 64  # of the perceptrons of tables


@dataclass(frozen=True)
class Settings:
    """A network, the number of training samples (tokens: sequences) in a batch, and the rate."""

    network: str
    batch: int
    rate: float


SETTINGS = {
    "glyphs": Settings("convolutional", 50, 2e-3),
    "tokens": Settings("transformer", 16, 3e-3),
    "chess": Settings("perceptron", 50, 4e-3),
    "digits": Settings("perceptron", 25, 2e-3),
    "digit": Settings("perceptron", 25, 2e-3),
}


# pools ----------------------------------------------------------------------------------------------------------------


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
        return Transformer(tokens()[2], classes)
    if name == "perceptron":
        features = data.train.inputs.shape[1]
        wide = [nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, classes)]
        return nn.Sequential(*wide)
    seen = [nn.Conv2d(1, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU()]
    seen += [nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    head = [nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(*seen, *head).to(memory_format=torch.channels_last)


# tables ---------------------------------------------------------------------------------------------------------------


def initial(seed: int, sizes: Sequence[int]) -> list[Tensor]:
    """Weights ``[in, out]`` and biases ``[1, out]`` of the layers, drawn as :class:`torch.nn.Linear` draws them."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for size, following in itertools.pairwise(sizes):
        drawn += [(2 * torch.rand(rows, following, generator=generator) - 1) / math.sqrt(size) for rows in (size, 1)]
    return drawn


def logits_of(parameters: Sequence[Tensor], features: Tensor) -> Tensor:
    """Logits ``[runs, samples, classes]`` of all networks."""
    hidden = features
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        if hidden is not features:
            hidden = hidden.relu()
        hidden = torch.baddbmm(bias, hidden, weight)
    return hidden


def losses(logits: Tensor, target: Tensor, class_weights: Tensor) -> Tensor:
    """Mean cross entropy ``[runs]``, weighted by the classes' weights ``[runs, classes]``."""
    weights = class_weights.gather(1, target)
    each = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
    return (weights * each).sum(1) / weights.sum(1)


def trained_together(
    samples: tuple[Tensor, Tensor],
    class_weights: Tensor,
    seeds: Sequence[int],
    batch_size: int,
    epochs: int,
    rate_at: Callable[[int, int], float],
) -> Iterator[list[Tensor]]:
    """Train perceptrons at once, as one model with a leading dimension; yield their parameters after each epoch.

    Losses are summed and AdamW (without weight decay) works on each number for itself, so that no run sees another.

    Args:
        samples: features ``[runs, samples, features]`` and classes ``[runs, samples]``.
        class_weights: ``[runs, classes]``.
        seeds: one for each run; runs of the same seed have the same initial weights and order.
        batch_size: of each run.
        epochs: their number.
        rate_at: rate of a step, given its place and the number of all steps.
    """
    features, target = samples
    sizes = (features.shape[-1], WIDTH, WIDTH, class_weights.shape[-1])
    drawn = zip(*(initial(seed, sizes) for seed in seeds), strict=True)
    parameters = [torch.stack(some).requires_grad_() for some in drawn]
    optimizer = torch.optim.AdamW(parameters, weight_decay=0.0, fused=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    runs, number = target.shape
    every, step, steps = torch.arange(runs)[:, None], 0, epochs * -(-number // batch_size)
    for _ in range(epochs):
        orders = torch.stack([torch.randperm(number, generator=each) for each in generators])
        for batch in orders.split(batch_size, 1):
            optimizer.param_groups[0]["lr"] = rate_at(step, steps)
            optimizer.zero_grad()
            logits = logits_of(parameters, features[every, batch])
            losses(logits, target[every, batch], class_weights).sum().backward()
            optimizer.step()
            step += 1
        yield [parameter.detach() for parameter in parameters]
