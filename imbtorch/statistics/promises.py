"""Promises that limits hold, made by exact binomial tests and false in a limited share of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from imbtorch.counts import double
from imbtorch.statistics.special import beta_cdf

__all__ = ["PROPORTIONS", "promised"]

REACHES = (1 / 8, 1 / 4, 1 / 2)  # recalls at which walks for precision start
ALERTS = tuple(2 ** (third / 3) for third in range(-3, 4))  # alerts per positive where walks for a peak start


class Proportion(NamedTuple):
    """A limit, expressed as the least share of successes in independent trials.

    Attributes:
        successes: 1 for each of the cells tn, fp, fn, tp whose samples are successes.
        trials: 1 for each of these cells whose samples are trials.
        monotone: whether the share is monotone over the thresholds in every sample.
        floor: function that converts the bound of the limit to the least share.
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
    """Find the thresholds at which a limit can be promised; a false promise is made in at most ``error`` of samples.

    For a threshold that is chosen without the sample, an exact binomial test shows whether the limit holds. Recall,
    specificity and alerts are monotone over the thresholds. All thresholds that pass the test are promised for them: if
    one of these is false, the test errs at the first threshold beyond the limit as well. The other measures are tested
    along walks, from threshold to threshold until a test fails. Walks start at several places, which share ``error``;
    a walk that arrives at the next start keeps its own share of it (the fallback procedure).

    - Precision: from few alerts to many. Walks start where a precision equal to the limit would reach a recall of 1/8,
      1/4 and 1/2, or at the fewest alerts that can pass the test.
    - Negative predictive value (NPV): the same, with the classes exchanged.
    - Accuracy, intersection over union (IoU) and F1, which have a peak: in both directions, from seven numbers of
      alerts between half and twice the number of positives, in geometric steps. The test at a start takes its whole
      share of ``error``, because one that lies outside the true range is wrong once, whatever follows. Walks onward
      take half of it in either direction, because the true range has two ends.

    At most a share ``error`` of all samples leads to a false promise. This is no probability that a promise, once made,
    holds: if a limit cannot be reached, all promises of it are false.

    Args:
        name: key of :data:`PROPORTIONS`.
        bound: greatest share of alerts, or least value of another measure.
        counts: ``[K, 2, 2]`` whole counts at rising thresholds, on the CPU.
        error: greatest share of samples in which a false promise may be made, in (0, 1).

    Returns:
        bool ``[K]``, True where the limit can be promised.

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
    passed = few_first.clone()
    passed[[start for start in starts if few_first[start] <= error / len(starts)]] = 0.0
    upwards = _walked(passed.flip(0), [len(chances) - 1 - start for start in starts], error / 2)
    return _walked(passed, starts, error / 2).flip(0) | upwards


def _chances(proportion: Proportion, floor: float, counts: Tensor) -> Tensor:
    """Return the probabilities ``[K]`` of at least so many successes if their true share were the floor."""
    cells = counts.flatten(-2)
    successes, trials = (cells @ cells.new_tensor(each) for each in (proportion.successes, proportion.trials))
    tail = beta_cdf(cells.new_tensor(floor), successes.clamp(min=1), trials - successes + 1)
    return torch.where(successes > 0, tail, 1.0)


def _starts_of_precision(alerts: Tensor, missed: Tensor, floor: float, error: float) -> list[int]:
    """Return the starts of walks for precision, given thresholds with rising alerts and falling missed positives.

    Except for ties a start depends only on samples below it, so that the samples above are independent of its choice.
    """
    fewest = math.ceil(math.log(error / len(REACHES)) / math.log(floor))  # alerts that pass the test if all are true
    first = min(int((alerts < fewest).sum()), len(alerts) - 1)
    return [max(first, _last(floor * alerts * (1 - reach) <= reach * missed)) for reach in REACHES]


def _last(chosen: Tensor) -> int:
    """Return the index of the last True of a tensor that begins with all its True; 0 without any."""
    return max(int(chosen.sum()) - 1, 0)


def _walked(chances: Tensor, starts: Sequence[int], error: float) -> Tensor:
    """Return the thresholds ``[K]`` that walks in this order reach, from starts that share the error."""
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
