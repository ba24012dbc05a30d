"""Weka's multi-layer perceptron with its default hyper-parameters, many networks trained side by side.

``weka.classifiers.functions.MultilayerPerceptron -L 0.3 -M 0.2 -N 500 -V 0 -S 0 -E 20 -H a``: inputs in [-1, 1] on the
training set, one hidden layer of (inputs + classes) // 2 sigmoid units, a sigmoid output for each class, squared error,
first weights uniform in [-0.05, 0.05], and 500 epochs of single samples, in an order that is drawn once.

A step on one sample is far too small for an array library. But the networks of a cross-validation have the same shape,
so one step here takes one sample of every network: arrays end in an axis of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RATE, MOMENTUM, EPOCHS = 0.3, 0.2, 500
CLASSES = 2


class Network(NamedTuple):
    """A trained network; the last row of a layer's weights is its bias."""

    middle: np.ndarray  # [inputs] of the training set, and half its range
    half_range: np.ndarray
    first: np.ndarray  # [inputs + 1, hidden units]
    second: np.ndarray  # [hidden units + 1, classes]

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Class of the largest output for each row of ``[samples, inputs]``."""
        values = (inputs - self.middle) / self.half_range
        for layer in (self.first, self.second):
            values = sigmoid(values @ layer[:-1] + layer[-1])
        return values.argmax(1)


def train_networks(
    inputs: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    seed: int,
    epochs: int = EPOCHS,
    dtype: type = np.float32,
) -> list[Network]:
    """Train one network on each pair of ``[samples, inputs]`` and 0/1 ``[samples]``, all in lockstep.

    The training sets may differ in length: in each epoch a network stands still when its own samples are through.
    ``seed`` draws first weights and orders, ``dtype`` is that of the arithmetic.
    """
    random = np.random.default_rng(seed)
    longest_first = sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))
    lengths = np.array([len(inputs[index]) for index in longest_first])
    width = inputs[0].shape[1]
    hidden = (width + CLASSES) // 2
    scales = [middle_and_half_range(inputs[index]) for index in longest_first]
    samples = np.ones((lengths[0], width + 1, len(inputs)), dtype)
    wanted = np.zeros((lengths[0], CLASSES, len(inputs)), dtype)
    for position, (index, (middle, half_range)) in enumerate(zip(longest_first, scales, strict=True)):
        order = random.permutation(len(inputs[index]))
        samples[: len(order), :-1, position] = ((inputs[index] - middle) / half_range)[order]
        wanted[: len(order), :, position] = np.eye(CLASSES)[targets[index][order]]
    size = (width + 1) * hidden + (hidden + 1) * CLASSES
    weights = random.uniform(-0.05, 0.05, (size, len(inputs))).astype(dtype)
    changes = np.zeros_like(weights)

    counts = [int((lengths > step).sum()) for step in range(lengths[0])]  # of networks that have a sample left
    together = {count: Lockstep(weights[:, :count], changes[:, :count], width, hidden) for count in set(counts)}
    epoch = [
        (together[count], sample[:, :count], target[:, :count])
        for sample, target, count in zip(samples, wanted, counts, strict=True)
    ]
    for _ in range(epochs):
        for networks, sample, target in epoch:
            networks.learn(sample, target)
    everyone = together[len(inputs)]
    trained = {
        index: Network(*scales[position], everyone.first[..., position], everyone.second[..., position])
        for position, index in enumerate(longest_first)
    }
    return [trained[index] for index in range(len(inputs))]


class Lockstep:
    """Networks that take a step together, on views of weights and of their last changes: ``[weights, networks]``."""

    def __init__(self, weights: np.ndarray, changes: np.ndarray, width: int, hidden: int) -> None:
        self.weights, self.changes = weights, changes
        self.descent = np.empty_like(weights)  # the learning rate times the negative gradient
        self.first, self.second = layers(weights, width, hidden)
        self.first_descent, self.second_descent = layers(self.descent, width, hidden)
        self.units = np.ones((hidden + 1, weights.shape[1]), weights.dtype)  # the last one is the bias

    def learn(self, sample: np.ndarray, target: np.ndarray) -> None:
        """One step on ``[inputs + 1, networks]`` and ``[classes, networks]``."""
        units = self.units
        hidden = units[:-1]
        hidden[:] = sigmoid(np.einsum("in,ihn->hn", sample, self.first))
        output = sigmoid(np.einsum("hn,hon->on", units, self.second))
        delta = (target - output) * output * (1 - output) * RATE
        hidden_delta = np.einsum("on,hon->hn", delta, self.second[:-1]) * hidden * (1 - hidden)
        np.multiply(units[:, None], delta, out=self.second_descent)
        np.multiply(sample[:, None], hidden_delta, out=self.first_descent)
        self.changes *= MOMENTUM
        self.changes += self.descent
        self.weights += self.changes


def layers(weights: np.ndarray, width: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of both layers' weights: ``[width + 1, hidden, networks]`` and ``[hidden + 1, classes, networks]``."""
    first, second = np.split(weights, [(width + 1) * hidden])
    return first.reshape(width + 1, hidden, -1), second.reshape(hidden + 1, CLASSES, -1)


def middle_and_half_range(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is taken off each input, and by what it is divided: a constant input becomes 0."""
    low, high = inputs.min(0), inputs.max(0)
    return (high + low) / 2, np.where(high > low, (high - low) / 2, 1.0)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-values)), by a tanh that does not overflow."""
    return np.tanh(values / 2) / 2 + 0.5


def without_complements(inputs: np.ndarray) -> np.ndarray:
    """Leave out a column that is one minus the column before it: Weka codes two nominal values as one input."""
    complements = (inputs[:, 1:] + inputs[:, :-1] == 1).all(0)
    return inputs[:, np.concatenate([[True], ~complements])]
