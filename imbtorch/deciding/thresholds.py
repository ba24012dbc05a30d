"""Thresholds of a histogram of scores, their limits and promises, and operating points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import torch
from scipy import special
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Counts, Measure, double, evaluated, ratio, rescaled
from imbtorch.deciding.curves import matrices_of
from imbtorch.deciding.ties import ROUNDING
from imbtorch.intervals.draws import gammas

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
    tail = special.betainc(successes.clamp(min=1).numpy(), (trials - successes + 1).numpy(), floor)
    return torch.where(successes > 0, torch.from_numpy(tail), 1.0)


def _starts_of_precision(alerts: Tensor, missed: Tensor, floor: float, error: float) -> list[int]:
    """Return starts of walks for precision, given rising alerts; but for ties they depend on samples below alone."""
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


# --- operating points ------------------------------------------------------------------------------------------------


class Limit(NamedTuple):
    """Least or greatest value of a measure that an operating point must keep."""

    measure: Measure
    bound: float
    least: bool

    def kept(self, counts: Counts) -> Tensor:
        """Return whether counts ``[..., K, K]``, or margins, keep the limit, up to rounding; nan does not."""
        values = evaluated(self.measure, counts)
        return values >= self.bound - 1e-12 if self.least else values <= self.bound + 1e-12


Limits: TypeAlias = Mapping[str, Limit]
DRAWS = 2000  # draws of the posterior; the standard error of a probability of .9 is .007


def distinct(histogram: Tensor, thresholds: int) -> tuple[Tensor, Tensor]:
    """Drop empty bins of ``[2, B]`` counts, so that each remaining threshold predicts differently.

    Returns:
        Histogram ``[2, K + 1]``, and the index of the lowest threshold between each two of its bins, ``[K]``. The first
        threshold may have no sample below it, the last none above. All bins above the last threshold are merged.

    >>> distinct(torch.tensor([[3, 0, 1, 0], [0, 0, 2, 0]]), thresholds=3)
    (tensor([[3, 1, 0],
            [0, 2, 0]]), tensor([0, 2]))
    """
    whole = torch.cat((histogram[:, :thresholds], histogram[:, thresholds:].sum(-1, keepdim=True)), -1)
    held = whole.sum(0) > 0
    held[0], held[-1] = True, True
    return whole[:, held], held[:-1].nonzero().flatten()


def bounded(odds: Tensor) -> Tensor:
    """Return log-odds ``[T]``, of which infinite ones count as the outermost ones between them."""
    inner = odds[odds.isfinite()]
    return odds.clamp(inner[0], inner[-1]) if len(inner) else odds.sign()


def best_of_tied(values: Tensor, odds: Tensor) -> Tensor:
    """Find the index of the greatest of values ``[..., T]``, up to rounding: of tied thresholds, the one nearest 0.5.

    >>> best_of_tied(torch.tensor([3.0, 3.0, 3.0, 1.0]), torch.tensor([-2.0, -1.0, 1.5, 2.0]))
    tensor(1)
    """
    nearest = odds.abs().argsort(stable=True)
    tied = values >= values.amax(-1, keepdim=True) - ROUNDING
    return nearest[tied[..., nearest].to(torch.uint8).argmax(-1)]


class InfeasibleError(ValueError):
    """Error about constraints that no threshold or ``tau`` satisfies, or can be guaranteed to satisfy.

    Args:
        text: message.
        limits: name of each constraint -> the bound that was asked for.
        reachable: name of a constraint -> the best value that is reachable while the others are satisfied. It lacks
            constraints that have none, and is empty where a guarantee (``sure``) fails.

    >>> error = InfeasibleError("no threshold has recall >= 0.9", {"recall": 0.9}, {"recall": 0.75})
    >>> error.reachable
    {'recall': 0.75}
    """

    def __init__(
        self, text: str, limits: Mapping[str, float] | None = None, reachable: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(text)
        self.limits, self.reachable = dict(limits or {}), dict(reachable or {})


class Candidates(NamedTuple):
    """Thresholds that predict differently: their indices ``[K]``, counts ``[K, 2, 2]``, and rates at other shares.

    At the last one, which may lie behind all thresholds, nothing is flagged.
    """

    places: Tensor
    counts: Tensor
    rates: Tensor

    @computed_on_cpu
    def best(self, objective: Measure, limits: Limits, where: str) -> tuple[int, Tensor]:
        """Return the index of the best threshold within limits, and which of them keep the limits, bools ``[K]``."""
        kept = {name: limit.kept(self.rates) for name, limit in limits.items()}
        feasible = torch.stack([*kept.values(), torch.ones(len(self.places), dtype=torch.bool)]).all(0)
        if not bool(feasible.any()):
            raise infeasible(limits, kept, self.rates, where=where)
        return self.best_of(objective, feasible), feasible

    def best_of(self, objective: Measure, feasible: Tensor) -> int:
        """Return the index of the best of the feasible thresholds, the lowest of tied ones."""
        goodness = evaluated(objective, self.rates).nan_to_num(nan=-torch.inf)
        order = goodness.argsort(descending=True, stable=True)
        return int(order[feasible[order]][0])


@computed_on_cpu
def candidates(histogram: Tensor, shares: Tensor | None) -> Candidates:
    """Find the thresholds of ``[2, B]`` that predict differently; one at which nothing is flagged is among them."""
    histogram = with_one(histogram)
    small, index = distinct(histogram, histogram.shape[-1] - 1)
    counts = matrices_of(small)
    return Candidates(index, counts, read_at(shares, counts.double()))


def with_one(histogram: Tensor) -> Tensor:
    """Add an empty bin behind a threshold of 1, at which nothing is flagged, if scores lie above all thresholds."""
    return torch.nn.functional.pad(histogram, (0, int(bool(histogram[..., -1].any()))))


def read_at(shares: Tensor | None, counts: Tensor) -> Tensor:
    """Rescale counts to the class shares at which all values are read."""
    return counts if shares is None else cast(Tensor, rescaled(counts, shares))


@computed_on_cpu
def all_promised(limits: Limits, counts: Tensor, sure: float, where: str) -> Tensor:
    """Find the thresholds ``[K]`` at which all limits are promised, given counts ``[K, 2, 2]``; raise for none."""
    single = {name: promised(name, limit.bound, counts, 1 - sure) for name, limit in limits.items()}
    every = torch.stack(list(single.values())).all(0)
    if not bool(every.any()):
        alone = {name: limit for name, limit in limits.items() if not bool(single[name].any())}
        reason = f"{limits_text(alone)} at none" if alone else "each limit at some, but never all at one"
        raise InfeasibleError(
            f"{where}no threshold can be promised to have {limits_text(limits)} at sure={sure:g} ({reason}); count "
            "more samples, lower sure, or loosen the limits",
            {name: limit.bound for name, limit in limits.items()},
        )
    return every


def probabilities(
    counts: Tensor, limits: Limits, shares: Tensor | None, generator: torch.Generator | None, worth: Tensor | None
) -> dict[str, float]:
    """Return the posterior probability of each limit, given counts ``[2, 2]``."""
    if not limits:
        return {}
    drawn = read_at(shares, _drawn(counts.double(), generator, worth))
    return {name: limit.kept(drawn).double().mean().item() for name, limit in limits.items()}


def _drawn(counts: Tensor, generator: torch.Generator | None, worth: Tensor | None) -> Tensor:
    """Draw counts ``[DRAWS, 2, 2]`` from the posterior at a threshold that was chosen by the scores.

    The recall of a threshold just below the k-th highest of P positives has the distribution Beta(k, P - k + 1), since
    that score is an order statistic. For a threshold chosen without the scores it would be Beta(k + 1/2, P - k + 1/2),
    whose probability is 0.67 where 0.5 is true.
    """
    prior = torch.tensor([[0.5, 0.5], [1.0, 1e-9]], dtype=torch.float64)
    totals = counts.sum(-1)
    share = torch.ones_like(totals) if worth is None else ratio(worth, totals).masked_fill(totals == 0, 1.0)
    concentrations = counts * share.unsqueeze(-1) + prior, totals * share + 0.5
    cells, sizes = (gammas(each.flatten(), DRAWS, generator).T.reshape(DRAWS, *each.shape) for each in concentrations)
    return cells / cells.sum(-1, keepdim=True) * (sizes / share).unsqueeze(-1)


def limits_text(limits: Limits) -> str:
    """Write limits as text."""
    return " and ".join(f"{name} {'>=' if limit.least else '<='} {limit.bound:g}" for name, limit in limits.items())


def held_text(limits: Limits, counts: Counts) -> str:
    """Return the limited measures on held-out samples as text; empty without limits."""
    values = (f"{name} {evaluated(limit.measure, counts):.3f}" for name, limit in limits.items())
    return f"on held-out samples {', '.join(values)}" if limits else ""


def infeasible(
    limits: Limits, kept: Mapping[str, Tensor], counts: Counts, what: str = "threshold", where: str = ""
) -> InfeasibleError:
    """Return the error about limits that no candidate keeps, with the best value of each while the others hold."""
    reached, reachable = [], {}
    for name, limit in limits.items():
        others = [each for other, each in kept.items() if other != name]
        values = evaluated(limit.measure, counts)
        possible = ~values.isnan() & (torch.stack(others).all(0) if others else True)
        if bool(possible.any()):
            end, best = ("highest", values[possible].max()) if limit.least else ("lowest", values[possible].min())
            reached.append(f"the {end} {name}{' with the other limits' * bool(others)} is {best:.4g}")
            reachable[name] = best.item()
    nowhere = f"even without any one of them, no {what} keeps the others"
    text = f"{where}no {what} has {limits_text(limits)}: {'; '.join(reached) or nowhere}"
    return InfeasibleError(text, {name: limit.bound for name, limit in limits.items()}, reachable)


def worst_value(higher_is_better: bool | None, bounds: tuple[float | None, float | None]) -> float:
    """Return the finite worst value, to log where no candidate keeps the limits: nan would end EarlyStopping's run."""
    worst = bounds[0] if higher_is_better else bounds[1]
    largest = torch.finfo(torch.float32).max
    return worst if worst is not None else -largest if higher_is_better else largest
