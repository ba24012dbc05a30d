"""Which epoch to keep, its value once the choice is taken into account, and the epochs it cannot be told from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, overload

import torch
from torch import Tensor

from imbtorch.choosing.halves import (
    Layout,
    Samples,
    SumCounts,
    crossed,
    measure_counts,
    parts,
    reads_margins,
)
from imbtorch.choosing.models import TIES, Ties, as_good_as_best
from imbtorch.counts import Measure, check_choice, evaluated
from imbtorch.errors import check_tensor
from imbtorch.inference.intervals import Interval, posterior
from imbtorch.tables import html_table, spans
from imbtorch.waiting import announced

__all__ = ["ChosenEpoch", "select_epoch"]

T = TypeVar("T")

CELLS_IN_ALL = 100_000_000  # of matrices that a measure reads: some seconds; margins are read without this bound
CROSSED = 9 / 10  # weight of the halves at the other half's choice: they choose from half as much, so a little worse
FEW_CLASSES = 12  # up to which matrices are as fast as margins
FEWEST = 7  # epochs and repeats that are left where that bound cuts
DRAWN_CELLS = 10_000_000  # of the interval by default
NAMES = 5  # of candidates that a text lists
FEW_SAMPLES = 10  # of a class, with fewer of which measures that one recall of 0 makes 0 are not corrected


@dataclass(frozen=True)
class ChosenEpoch:
    """The epoch, model or trial that a measure keeps, and how far that choice can be trusted.

    Candidates are indices from 0, in the order in which they were given; :attr:`name` is what the kept one is called.

    Attributes:
        epoch: the epoch of the best value.
        value: its value, as counted; too good, since it was chosen for it.
        corrected: its value corrected for having been chosen; None where ``sparse`` says why.
        interval: interval of the corrected value; None without one.
        stability: share of the half-samples that keep this epoch too. It is no probability of being the best. None
            where epochs tie: the rule for ties keeps the same one each time.
        tied: other epochs of the same value.
        identical: those of them that predict the same for every sample, so that choosing among them is arbitrary.
        indistinguishable: epochs that cannot be told from the best one, this one among them.
        shortfall: how far the worst of these may lie below the best one: an upper limit, at the level of the interval.
        sparse: classes with so few hits that the value is not corrected.
        compared: epochs that were resampled: all of them, or the best ones where many classes forbid all.
        repeats: how often the samples were halved.
        names: what the candidates are called; None for epochs, which their indices name.
    """

    epoch: int
    value: float
    corrected: float | None
    interval: Interval | None
    stability: float | None
    tied: tuple[int, ...]
    identical: tuple[int, ...]
    indistinguishable: tuple[int, ...]
    shortfall: float
    sparse: tuple[int, ...]
    compared: tuple[int, ...]
    repeats: int
    names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """Name of the kept candidate, such as ``epoch 24``."""
        return f"epoch {self.epoch}" if self.names is None else self.names[self.epoch]

    def __str__(self) -> str:
        """Return one line: value, corrected value with its interval, stability, and what it cannot be told from."""
        value, corrected, stability, tied, others = self._texts()
        if self.interval is not None:
            corrected = f"corrected for having been chosen {corrected}"
        ties = f" (tied with {tied})" if tied else ""
        every = "epochs" if self.names is None else "candidates"
        told = f"cannot be told from {others}" if others else f"told from all other {every}"
        return f"{self.name}: {value}, {corrected}, stability {stability}{ties}; {told}"

    def _repr_html_(self) -> str:
        """Return the same as a table for notebooks; names are escaped."""
        value, corrected, stability, tied, others = self._texts()
        rows = [["", str(self.name)], ["value", value], ["corrected", corrected], ["stability", stability]]
        rows += [["tied with", tied]] * bool(tied)
        return html_table([*rows, ["cannot be told from", others or "no other"]])

    def _texts(self) -> tuple[str, str, str, str, str]:
        """Return value, corrected value, stability, tied candidates and those it cannot be told from, as texts."""

        def listed(candidates: tuple[int, ...], noun: str = "") -> str:
            if self.names is None:
                return f"{noun}{'s' * (len(candidates) > 1)} {spans(candidates)}" if noun else spans(candidates)
            shown = [str(self.names[candidate]) for candidate in candidates[:NAMES]]
            return ", ".join(shown + [f"{len(candidates) - NAMES} more"] * (len(candidates) > NAMES))

        if self.interval is None:
            classes = "class" if len(self.sparse) == 1 else "classes"
            corrected = f"not corrected, too few hits of {classes} {spans(self.sparse)}"
        else:
            corrected = str(self.interval)
        tied = listed(self.tied, "epoch")
        if self.identical:
            same = "which" if self.identical == self.tied else listed(self.identical, "epoch")
            tied += f", {same} predict{'s' * (len(self.identical) == 1)} the same: an arbitrary choice"
        others = tuple(epoch for epoch in self.indistinguishable if epoch != self.epoch)
        below = f"which may lie up to {self.shortfall:.3f} below the best"
        return (
            f"{self.value:.3f}",
            corrected,
            "-" if self.stability is None else f"{self.stability:.2f}",
            tied if self.tied else "",
            f"{len(others)} other{'s' * (len(others) > 1)} ({listed(others)}), {below}" if others else "",
        )


# fmt: off
@overload
def select_epoch(
    predictions: Tensor | Mapping[str, Tensor], target: Tensor, measure: Measure, *,
    num_classes: int | None = ...,
    higher_is_better: bool | Mapping[str, bool] = ..., ties: Ties = ...,
    tie_break: Tensor | Mapping[str, Tensor | None] | None = ...,
    repeats: int = ..., samples: int | None = ..., level: float = ..., generator: torch.Generator | None = ...,
    positions: Tensor | None = ..., sum_counts: SumCounts | None = ...
) -> ChosenEpoch: ...
@overload
def select_epoch(
    predictions: Tensor | Mapping[str, Tensor], target: Tensor, measure: Mapping[str, Measure], *,
    num_classes: int | None = ...,
    higher_is_better: bool | Mapping[str, bool] = ..., ties: Ties = ...,
    tie_break: Tensor | Mapping[str, Tensor | None] | None = ...,
    repeats: int = ..., samples: int | None = ..., level: float = ..., generator: torch.Generator | None = ...,
    positions: Tensor | None = ..., sum_counts: SumCounts | None = ...
) -> dict[str, ChosenEpoch]: ...
# fmt: on
def select_epoch(
    predictions: Tensor | Mapping[str, Tensor],
    target: Tensor,
    measure: Measure | Mapping[str, Measure],
    *,
    num_classes: int | None = None,
    higher_is_better: bool | Mapping[str, bool] = True,
    ties: Ties = "latest",
    tie_break: Tensor | Mapping[str, Tensor | None] | None = None,
    repeats: int = 100,
    samples: int | None = None,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    positions: Tensor | None = None,
    sum_counts: SumCounts | None = None,
) -> ChosenEpoch | dict[str, ChosenEpoch]:
    r"""Choose the epoch of the best value, correct that value, and find the epochs that cannot be told from it.

    The best of many epochs looks better than it is: on real trainings by .013 to .055, in simulations of epochs that
    differ more by up to .16. To correct that, each sample falls on one of two halves by a coin; the epoch is chosen on
    one half and counted on the other, then the halves change places. The counts of ``repeats`` such pairs average to X,
    and

    .. math:: C' = \tfrac1{10} C_{\text{kept}} + \tfrac9{10} X

    gives the corrected value and, by :func:`posterior`, its interval. Rows keep their sums. Measures that one recall of
    0 makes 0, such as G-mean, are not corrected where a class has fewer than ten samples, or less than one hit in C':
    there a zero by chance takes the value far below the one of the population, and choosing on halves says nothing.

    An epoch e cannot be told from the best unless :math:`T_e = \max_j (v_j - v_e) / s_{je}` exceeds the ``level``
    quantile of its distribution over the half-samples, centred; s is the standard deviation of the difference there,
    at least a quarter of the median one. With few rare samples that are most epochs, and many of them are no good: on
    real trainings the set holds 65 to 98 % of the epochs, and its worst lies 3 to 30 points below the best.
    ``shortfall`` is a limit for that: the largest, over the set, of the differences from the best value, each with the
    ``level`` quantile of its deviations over the half-samples.

    In simulations with known truth (``examples/choosing.py``: 40 correlated epochs that stay, learn, drift, overfit,
    jitter, swing or collapse; two, five and ten classes, 5 to 100 samples of the rarest; BA, IAM, G-mean, macro F1) the
    corrected value is off by at most .02 on average over the scenarios and by up to .05 in one. Its interval covers .94
    or more on average, and .85 or more in each. The set holds the best epoch in .94 or more on average, at worst in .7
    to .8 (BA with 5 samples of the rarest of two classes). Its worst member lies within the limit in .97 or more on
    average, at worst in .88. Where few hits let G-mean be corrected in some samples only, these are the lucky ones:
    with ten samples and a recall of .1 it is then too high by up to .1.

    With several processes, each gives its own samples and the same other arguments, and all get the same result (but
    for the draws of the interval, which come from their own generators). ``sum_counts`` adds an integer tensor over
    the processes, such as an ``all_reduce``; it is called equally often and with equal shapes everywhere, and nothing
    is gathered. Generators must then differ between processes, or ``positions`` tell which samples these are.

    What it takes is bounded: counts are halved in parts. From 13 classes on, and where matrices would take too long,
    margins stand for them if the measure reads :class:`~imbtorch.Margins`; else only the epochs of the best values are
    resampled, and fewer times (``compared`` and ``repeats`` of the result).

    Args:
        predictions: ``[M, N]`` class indices predicted in each epoch; any integer dtype, uint8 is enough for 256.
            For other candidates, such as the trials of a search, name -> ``[N]``: results then speak of these names.
        target: ``[N]`` class indices.
        measure: function of ``[..., K, K]`` with a value ``[...]``, or name -> function, which share the coins.
        num_classes: K; by default the largest index and one. Needed with ``sum_counts``.
        higher_is_better: direction of the measure, or name -> direction.
        ties: ``"latest"`` or ``"earliest"``, the epoch to keep of those with the same value.
        tie_break: ``[M]`` values that decide between tied epochs before that, in the direction of the measure, such as
            those of soft counts, or name -> values (None where a measure has none).
        repeats: how often the samples are halved.
        samples: draws of the posterior; by default 10,000 up to 31 classes, fewer above, and 100 at least.
        level: probability that the interval holds, that the set holds the best epoch, and of ``shortfall``.
        generator: source of randomness, on the CPU; by default torch's.
        positions: ``[N]``, index of each sample in the whole validation set. The generators of all processes must then
            be in the same state, and the result is the same to the last digit for any number of processes.
        sum_counts: sums over processes; by default there is one.

    Returns:
        :class:`ChosenEpoch`, or name -> the epoch that each measure keeps.

    Raises:
        ValueError: for shapes that do not fit, classes out of range, no epochs or no samples, a measure that has no
            value in any epoch or does not return one value for each matrix, ``repeats`` below 2, another rule for
            ties, and ``sum_counts`` without ``num_classes``.
        TypeError: for predictions or targets that are no integers.

    Source: half-sampling and the studentised set are built on Shao and Tu (1995), The jackknife and bootstrap, and
    Hansen, Lunde and Nason (2011), The model confidence set; the weights 1/10 and 9/10 were found by simulation.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([0] * 90 + [1] * 10)
    >>> predictions = torch.stack([(torch.rand(100, generator=generator) < p) for p in (0.3, 0.5, 0.7)]).long() ^ target
    >>> found = select_epoch(1 - predictions, target, balanced_accuracy, generator=generator)
    >>> found.epoch, found.corrected < found.value, found.indistinguishable
    (2, True, (1, 2))
    >>> trials = {f"trial {number}": each for number, each in enumerate(1 - predictions)}
    >>> select_epoch(trials, target, balanced_accuracy, generator=generator).name
    'trial 2'
    """
    check_choice("ties", ties, TIES)
    if repeats < 2:
        raise ValueError(f"repeats must be at least 2, got {repeats!r}")
    measures = measure if isinstance(measure, Mapping) else {"": measure}
    names = tuple(predictions) if isinstance(predictions, Mapping) else None
    if isinstance(predictions, Mapping):
        predictions = _stacked(predictions, target)
    held = Samples.of(predictions, target, num_classes, positions, sum_counts)
    found = {}
    for layout, group in _groups(measures, held, repeats):
        ways = {
            name: _Way.of(held, layout, measures[name], _named(higher_is_better, name), ties, _named(tie_break, name))
            for name in group
        }
        epochs, times = _affordable(ways, layout, repeats)
        for name, halves in _halved(held, layout, ways, epochs, times, generator).items():
            choice = _told(held, layout, ways[name], halves, samples, level, generator)
            found[name] = replace(choice, names=names)
    return {name: found[name] for name in measures} if isinstance(measure, Mapping) else found[""]


@dataclass(frozen=True)
class _Way:
    """One way of choosing: a measure, and what it says of all samples."""

    measure: Measure
    sign: float  # -1 where lower is better
    tie_values: Tensor  # [M], what decides between equal epochs first
    ranks: Tensor  # [M], the highest of equal epochs is kept
    values: Tensor  # [M], higher is better
    kept: int

    @classmethod
    def of(
        cls,
        held: Samples,
        layout: Layout,
        measure: Measure,
        higher_is_better: bool,
        ties: Ties,
        tie_break: Tensor | None,
    ) -> _Way:
        """Choose on all samples."""
        sign = 1.0 if higher_is_better else -1.0
        tie_values = torch.zeros(held.epochs, dtype=torch.float64)
        if tie_break is not None:
            if tie_break.shape != tie_values.shape:
                got = list(tie_break.shape)
                raise ValueError(f"tie_break must hold one value for each epoch, [{held.epochs}], got {got}")
            tie_values = (sign * tie_break.detach().cpu().double()).nan_to_num(nan=-torch.inf)
        later = tie_values.argsort(stable=True).argsort()
        earlier = tie_values.flip(0).argsort(stable=True).argsort().flip(0)
        ranks = later if ties == "latest" else earlier
        values = sign * held.values(layout, measure)
        if bool(values.isnan().all()):
            raise ValueError("measure has no value in any epoch (all are nan), so there is nothing to choose")
        return cls(measure, sign, tie_values, ranks, values, int(_best(values, ranks)))

    def read(self, layout: Layout, counts: Tensor, epochs: Tensor) -> Tensor:
        """Values ``[m, R]``, higher is better, nan for an epoch that has no value on all samples."""
        values = self.sign * measure_counts(self.measure, layout, counts)
        return torch.where(self.values[epochs].isnan().unsqueeze(-1), torch.nan, values)


@dataclass(frozen=True)
class _Halves:
    """What the halves say of one way of choosing among m epochs, R times."""

    epochs: Tensor  # [m]
    values: Tensor  # [m, 2 R] of each half, higher is better
    choices: Tensor  # [2 R], indices of epochs
    crossed: Tensor  # [K * K] of this process: each half at the epoch that the other one chose, summed


def _stacked(predictions: Mapping[str, Tensor], target: Tensor) -> Tensor:
    """Stack the predictions of named candidates, ``[M, N]``."""
    check_tensor("target", target)
    if not predictions:
        raise ValueError("predictions hold no candidates, so there is nothing to choose")
    for name, each in predictions.items():
        check_tensor(f"predictions[{name!r}]", each)
        if each.shape != target.shape:
            raise ValueError(
                f"predictions[{name!r}] must hold a class index for each target, {list(target.shape)}, "
                f"got shape {list(each.shape)}"
            )
    return torch.stack(list(predictions.values()))


def _named(given: T | Mapping[str, T], name: str) -> T:
    """What is given for one measure, or for all."""
    return given[name] if isinstance(given, Mapping) else given


def _groups(measures: Mapping[str, Measure], held: Samples, repeats: int) -> Iterator[tuple[Layout, list[str]]]:
    """Measures that are read together: of matrices, or by margins, which are less work for many classes."""
    whole, flat = Layout(held.classes, False), Layout(held.classes, True)
    possible = 2 * repeats * held.epochs * whole.size <= CELLS_IN_ALL
    if possible and held.classes <= FEW_CLASSES:
        yield whole, list(measures)
        return
    matrix = held.matrix(held.epochs - 1)
    by_margins = [name for name, measure in measures.items() if reads_margins(measure, matrix)]
    if by_margins:
        yield flat, by_margins
    others = [name for name in measures if name not in by_margins]
    for names in [others] if possible else [[name] for name in others]:
        if names:
            yield whole, names


def _affordable(ways: Mapping[str, _Way], layout: Layout, repeats: int) -> tuple[Tensor, int]:
    """Epochs that are resampled, in their order, and how often; the best ones where matrices would take too long.

    Their number depends on shapes alone, so that processes agree even if a last digit differs.
    """
    way = next(iter(ways.values()))
    epochs = len(way.values)
    if layout.margins or 2 * repeats * epochs * layout.size <= CELLS_IN_ALL:
        return torch.arange(epochs), repeats
    number = min(epochs, max(FEWEST, CELLS_IN_ALL // (2 * repeats * layout.size)))
    repeats = min(repeats, max(FEWEST, CELLS_IN_ALL // (2 * number * layout.size)))
    worth = way.values.nan_to_num(nan=-torch.inf).tolist()
    others = [epoch for epoch in range(epochs) if epoch != way.kept]
    others.sort(key=lambda epoch: (worth[epoch], int(way.ranks[epoch])), reverse=True)
    return torch.tensor(sorted([way.kept, *others[: number - 1]])), repeats


def _halved(
    held: Samples,
    layout: Layout,
    ways: Mapping[str, _Way],
    epochs: Tensor,
    repeats: int,
    generator: torch.Generator | None,
) -> dict[str, _Halves]:
    """Choose on one half, count on the other, and the other way round."""
    every = epochs.tolist()
    full = held.count(layout, every, held.ones())
    sums = {name: torch.zeros(held.classes**2, dtype=torch.int64) for name in ways}
    values: dict[str, list[Tensor]] = {name: [] for name in ways}
    choices: dict[str, list[Tensor]] = {name: [] for name in ways}
    sizes = parts(repeats, max(len(every) * layout.size, held.total))
    for size in announced(sizes, repeats, "the choice among epochs", "fewer repeats=, epochs or measures shorten it"):
        coins = held.coins(size, generator)
        first = held.count(layout, every, coins)
        second = full - first
        for name, way in ways.items():
            pair = torch.stack([way.read(layout, half, epochs) for half in (first, second)], -1)  # [m, R, 2]
            choice = _best(pair.movedim(0, -1), way.ranks[epochs])  # [R, 2]
            choice = torch.where(pair.isnan().all(0), every.index(way.kept), choice)  # nothing to choose by
            sums[name] += crossed(held, every, coins, choice)
            values[name].append(pair.flatten(1))
            choices[name].append(epochs[choice].flatten())
    return {name: _Halves(epochs, torch.cat(values[name], 1), torch.cat(choices[name]), sums[name]) for name in ways}


def _told(
    held: Samples,
    layout: Layout,
    way: _Way,
    halves: _Halves,
    samples: int | None,
    level: float,
    generator: torch.Generator | None,
) -> ChosenEpoch:
    """Put together what is known of the kept epoch."""
    size, repeats = held.classes, len(halves.choices) // 2
    cross = held.sum(halves.crossed).view(size, size).double() / repeats
    counts = (1 - CROSSED) * held.matrix(way.kept).double() + CROSSED * cross
    sparse = _sparse_classes(way.measure, counts)
    interval = None
    if not sparse:
        draws = samples or max(200 if layout.margins else 100, min(10_000, DRAWN_CELLS // size**2))
        interval = posterior(way.measure, counts, samples=draws, level=level, generator=generator)
        interval = replace(interval, method="posterior")  # of means over halves, which are of as many samples
    tied = as_good_as_best(way.values)
    tied[way.kept] = False
    identical = tied & (held.differences(way.kept) == 0) & (way.tie_values == way.tie_values[way.kept])
    defined = ~way.values[halves.epochs].isnan()
    compared = halves.epochs[defined]
    alike, shortfall = _indistinguishable(way.values[compared], halves.values[defined], level)
    return ChosenEpoch(
        epoch=way.kept,
        value=way.sign * way.values[way.kept].item(),
        corrected=None if interval is None else interval.estimate.item(),
        interval=interval,
        stability=None if bool(tied.any()) else (halves.choices == way.kept).double().mean().item(),
        tied=tuple(tied.nonzero().flatten().tolist()),
        identical=tuple(identical.nonzero().flatten().tolist()),
        indistinguishable=tuple(sorted({way.kept, *compared[alike].tolist()})),
        shortfall=shortfall,
        sparse=sparse,
        compared=tuple(compared.tolist()),
        repeats=repeats,
    )


# --- choices --------------------------------------------------------------------------------------------------------


def _best(values: Tensor, ranks: Tensor) -> Tensor:
    """Index ``[...]`` of the highest of ``[..., M]``, of equal ones that of the highest rank; 0 where all are nan."""
    return torch.where(as_good_as_best(values), ranks, -1).argmax(-1)


def _sparse_classes(measure: Measure, counts: Tensor) -> tuple[int, ...]:
    """Return the classes of corrected counts ``[K, K]`` with too few hits to correct a measure; none for most measures.

    Some measures are 0 as soon as one class has no hit, which happens by chance, in halves more often than in all
    samples: then the measure is far below its value of the population, and one half says nothing of the other.
    """
    hits, actual = counts.diagonal(), counts.sum(-1)
    sparse = (actual > 0) & ((actual < FEW_SAMPLES) | (hits < 1))
    if not bool(sparse.any()):
        return ()
    for lost in {0, len(counts) - 1}:  # one recall of 0 is tried for the first class and the last
        tried = torch.ones_like(counts).fill_diagonal_(len(counts))
        tried[lost, lost] = 0
        if evaluated(measure, tried).abs().item() > 1e-12:  # nan is not 0 either
            return ()
    return tuple(sparse.nonzero().flatten().tolist())


def _indistinguishable(values: Tensor, resampled: Tensor, level: float) -> tuple[Tensor, float]:
    """Return which of m epochs cannot be told from the best, and how far below it the worst of them may lie.

    Args:
        values: ``[m]`` of all samples.
        resampled: ``[m, B]`` of resamples.
        level: probability with which the best is among them, and of the limit.
    """
    resampled = resampled[:, resampled.isfinite().all(0)]
    if resampled.shape[1] < 2 or not bool(values.isfinite().all()):  # infinite values have no differences
        return torch.ones_like(values, dtype=torch.bool), math.inf if len(values) > 1 else 0.0
    noise = resampled - values.unsqueeze(-1)
    spread = torch.stack([(noise - row).square().mean(-1).sqrt() for row in noise])  # [m, m]
    others = spread[~torch.eye(len(values), dtype=torch.bool)]
    if len(others):
        spread = spread.clamp(min=0.25 * others.median().item())
    inverse = torch.where(spread > 0, 1 / spread, 0.0)  # epochs of equal predictions do not differ
    seen = ((values - values.unsqueeze(-1)) * inverse).amax(-1)
    by_chance = torch.stack(
        [((noise - row) * scale.unsqueeze(-1)).amax(0) for row, scale in zip(noise, inverse, strict=True)]
    )
    alike = seen <= by_chance.quantile(level, dim=-1)
    best = int(values.argmax())
    limits = values[best] - values + (noise - noise[best]).quantile(level, dim=-1)
    return alike, limits[alike].amax().item()
