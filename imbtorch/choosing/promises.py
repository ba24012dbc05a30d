"""Promises that limits hold, made by exact binomial tests: few samples make one that does not hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.counts import double
from imbtorch.inference.special import beta_cdf

__all__ = ["PROPORTIONS", "promised"]

REACHES = (1 / 8, 1 / 4, 1 / 2)  # recalls at which the walks over precision start
ALERTS = (1 / 2, 1.0, 2.0)  # alerts per positive at which the walks over measures with a peak start


class Proportion(NamedTuple):
    """A limit as the least share of successes in independent trials.

    Attributes:
        successes: whether each of the cells tn, fp, fn, tp is one of successes.
        trials: whether it is one of trials.
        monotone: whether the share rises or falls over the thresholds for certain.
        floor: function that turns the bound of the limit into the least share.
    """

    successes: tuple[int, int, int, int]
    trials: tuple[int, int, int, int]
    monotone: bool = False
    floor: Callable[[float], float] = float


OF_F1 = Proportion((0, 0, 0, 1), (0, 1, 1, 1), floor=lambda f1: f1 / (2 - f1))  # F1 = 2 IoU / (1 + IoU)
PROPORTIONS = {
    "recall": Proportion((0, 0, 0, 1), (0, 0, 1, 1), monotone=True),
    "specificity": Proportion((1, 0, 0, 0), (1, 1, 0, 0), monotone=True),
    "alerts": Proportion((1, 0, 1, 0), (1, 1, 1, 1), monotone=True, floor=lambda most: 1 - most),
    "precision": Proportion((0, 0, 0, 1), (0, 1, 0, 1)),
    "npv": Proportion((1, 0, 0, 0), (1, 0, 1, 0)),
    "accuracy": Proportion((1, 0, 0, 1), (1, 1, 1, 1)),
    "iou": Proportion((0, 0, 0, 1), (0, 1, 1, 1)),
    "f1": OF_F1,
    "dice": OF_F1,
}


def promised(name: str, bound: float, counts: Tensor, error: float) -> Tensor:
    """Find thresholds at which a limit can be promised, wrongly in at most the share ``error`` of samples.

    At a threshold that is given beforehand, an exact binomial test tells whether the limit holds. Recall, specificity
    and alerts are monotone over the thresholds: all thresholds at which the test succeeds are promised, because a wrong
    one among them implies that the test errs at the first threshold beyond the limit. The other measures are tested
    along walks, from threshold to threshold until a test fails, which start at several places that share ``error``; a
    walk that arrives at the next start carries its part on (the fallback procedure).

    - Precision: from few alerts to many. Walks start where a precision at its floor would reach a recall of 1/8, 1/4
      and 1/2, or at the fewest alerts that could pass the test.
    - NPV: the same, with the classes exchanged.
    - Accuracy, IoU and F1, which have a peak: in both directions, with half of ``error`` for each, from half as many,
      as many and twice as many alerts as positives.

    Nothing can be said of the promises that are made: where a limit cannot be reached, all of them are wrong.

    Args:
        name: key of :data:`PROPORTIONS`.
        bound: greatest share of alerts, least value of the others.
        counts: ``[K, 2, 2]`` whole counts at rising thresholds, on the CPU.
        error: greatest share of samples in which a promise may be wrong, in (0, 1).

    Returns:
        bool ``[K]``.

    Source: Clopper and Pearson (1934) for the tests; Wiens (2003), A fixed sequence Bonferroni procedure for testing
    multiple endpoints.

    >>> counts = torch.tensor([[[0, 90], [0, 10]], [[80, 10], [0, 10]], [[90, 0], [1, 9]], [[90, 0], [9, 1]]])
    >>> promised("precision", 0.5, counts, 0.1)  # 9 of 9 passes, 10 of 20 fails, 1 of 1 is too few
    tensor([False, False,  True, False])
    >>> promised("recall", 0.5, counts, 0.1)
    tensor([ True,  True,  True, False])
    """
    if name == "npv":
        return promised("precision", bound, counts.flip(0, 1, 2), error).flip(0)
    proportion = PROPORTIONS[name]
    floor = proportion.floor(bound)
    if not 0 < floor < 1:  # no test is needed, or none can pass
        return torch.full((len(counts),), floor <= 0)
    chances = _chances(proportion, floor, double(counts))
    if proportion.monotone:
        return chances <= error
    few_first, alerts = chances.flip(0), counts[..., 1].sum(-1).flip(0)
    if name == "precision":
        starts = _starts_of_precision(alerts, counts[:, 1, 0].flip(0), floor, error)
        return _walked(few_first, starts, error).flip(0)
    positives = counts[0, 1].sum()
    starts = [_last(alerts <= times * positives) for times in ALERTS]
    upwards = _walked(chances, [len(chances) - 1 - start for start in starts], error / 2)
    return _walked(few_first, starts, error / 2).flip(0) | upwards


def _chances(proportion: Proportion, floor: float, counts: Tensor) -> Tensor:
    """Return probabilities ``[K]`` of so many successes or more, if their true share were the floor."""
    cells = counts.flatten(-2)
    successes, trials = (cells @ cells.new_tensor(each) for each in (proportion.successes, proportion.trials))
    tail = beta_cdf(cells.new_tensor(floor), successes.clamp(min=1), trials - successes + 1)
    return torch.where(successes > 0, tail, 1.0)


def _starts_of_precision(alerts: Tensor, missed: Tensor, floor: float, error: float) -> list[int]:
    """Return where walks over precision start, of thresholds with ever more alerts and fewer missed positives.

    Up to ties a start depends only on the samples below it, so that those above are as if drawn for its test.
    """
    fewest = math.ceil(math.log(error / len(REACHES)) / math.log(floor))  # alerts that pass the test if all are right
    first = min(int((alerts < fewest).sum()), len(alerts) - 1)
    return [max(first, _last(floor * alerts * (1 - reach) <= reach * missed)) for reach in REACHES]


def _last(chosen: Tensor) -> int:
    """Return the place of the last of the chosen ones, which come first; 0 without any."""
    return max(int(chosen.sum()) - 1, 0)


def _walked(chances: Tensor, starts: Sequence[int], error: float) -> Tensor:
    """Return the places ``[K]`` that are reached by tests in this order, from starts that share the error."""
    reached, carried = torch.zeros_like(chances, dtype=torch.bool), 0.0
    ordered = sorted(starts)
    for start, stop in zip(ordered, [*ordered[1:], len(chances)], strict=True):
        carried += error / len(starts)
        failed = (chances[start:stop] > carried).nonzero()
        end = start + int(failed[0]) if len(failed) else stop
        reached[start:end] = True
        if end < stop:
            carried = 0.0
    return reached
