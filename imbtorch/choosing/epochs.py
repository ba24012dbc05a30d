"""Choice of the epoch to keep, with its corrected value and the epochs indistinguishable from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from imbtorch.choosing.halves import CellOrder, Samples, crossed, measure_counts, parts
from imbtorch.choosing.outcomes import check_predictions
from imbtorch.counting.arguments import check_class_indices, computed_on_cpu, whole_number
from imbtorch.counting.batches import readable
from imbtorch.counts import Measure, check_choice, evaluated, ratio, reads_margins
from imbtorch.deciding.ties import ROUNDING, TIES, Ties, as_good_as_best, index_to_keep
from imbtorch.intervals.buckets import resample_buckets
from imbtorch.intervals.draws import effective_samples
from imbtorch.intervals.intervals import Interval, check_draws, interval_texts, outermost, posterior_of
from imbtorch.measures.named import Measured, measure_of_counts, measure_text
from imbtorch.measures.traits import direction_of
from imbtorch.tables import Table, spans, wrapped
from imbtorch.waiting import announced

CELLS_IN_ALL = 100_000_000  # most cells of matrices that a measure reads, some seconds; margins have no such limit
CROSSED = 9 / 10  # weight of the halves, below 1 because half of the samples choose a little worse than all
FEW_CLASSES = 12  # number of classes up to which matrices are as fast as margins
FEWEST = 7  # least number of epochs and of repeats, however many classes there are
DRAWN_CELLS = 10_000_000  # number of cells that the interval draws by default
NAMES = 5  # number of candidates that a text lists
FEW_SAMPLES = 10  # samples of a class below which measures that one recall of 0 makes 0 are not corrected


@dataclass(frozen=True)
class ChosenEpoch:
    """Epoch, model or trial that a measure keeps, with the uncertainty of the choice; print it for a line of text.

    :func:`select_epoch` returns it. Candidates are numbered from 0, in the order in which they were given.

    Attributes:
        epoch: number of the candidate with the best value.
        value: its value on all samples; it looks better than it is, because the candidate was chosen by it.
        corrected: value corrected for the choice; None if ``sparse`` names classes.
        interval: interval of the corrected value, extended to ``value``; None if the value is not corrected.
        stability: share of the half-samples that keep the same candidate. It is not the probability that the candidate
            is the best. None if other candidates tie with the kept one, because the rule for ties decides then.
        tied: numbers of the other candidates with the same value.
        identical: tied candidates with the same prediction for every sample; the choice among them is arbitrary.
        indistinguishable: numbers of the candidates whose difference from the best may be noise, the kept one included.
        shortfall: upper bound of the distance between the best candidate and the worst indistinguishable one, in units
            of the measure, with the nominal coverage of the interval.
        sparse: classes with so few samples or hits that a value such as G-mean is not corrected.
        compared: candidates that were resampled: all, or only the best if there are too many classes to resample all.
        repeats: number of times that the samples were divided into halves.
        names: names of the candidates; None for epochs, whose numbers are their names.
        measure: name of the measure and its average, such as ``recall (binary)``; empty for functions without a name.

    >>> from imbtorch import accuracy
    >>> target = torch.tensor([0] * 12 + [1] * 4)
    >>> found = select_epoch({"A": target, "B": 1 - target}, target, accuracy)
    >>> found.name, found.value, found.stability, found.indistinguishable
    ('A', 1.0, 1.0, (0,))
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
    measure: str = ""

    @property
    def name(self) -> str:
        """Name of the kept candidate, such as ``epoch 24``."""
        return f"epoch {self.epoch}" if self.names is None else self.names[self.epoch]

    def __str__(self) -> str:
        """Return a text: value, corrected value with its interval, stability, and indistinguishable candidates."""
        value, corrected, stability, tied, others = self._texts()
        if self.interval is not None:
            corrected = f"corrected for having been chosen {corrected}"
        ties = f" (tied with {tied})" if tied else ""
        named = f"{self.measure} {value}".lstrip()
        text = f"{self.name}: {named}, {corrected}, stability {stability}{ties}"
        if others:
            return wrapped(f"{text}; indistinguishable from {others}")
        every = "epochs" if self.names is None else "candidates"
        return wrapped(f"{text}; distinguishable from all other {every}" if len(self.compared) > 1 else text)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks; names are escaped."""
        value, corrected, stability, tied, others = self._texts()
        rows = {self.measure or "value": value, "corrected": corrected, "stability": stability}
        rows |= {"tied with": tied} if tied else {}
        rows |= {"indistinguishable from": others or "none"} if len(self.compared) > 1 else {}
        return Table({str(self.name): {head: {"": text} for head, text in rows.items()}})._repr_html_()

    def _texts(self) -> tuple[str, str, str, str, str]:
        """Return value, corrected value, stability, tied and indistinguishable candidates as texts."""

        def listed(candidates: tuple[int, ...], noun: str = "") -> str:
            if self.names is None:
                return f"{noun}{'s' * (len(candidates) > 1)} {spans(candidates)}" if noun else spans(candidates)
            shown = [str(self.names[candidate]) for candidate in candidates[:NAMES]]
            return ", ".join(shown + [f"{len(candidates) - NAMES} more"] * (len(candidates) > NAMES))

        if self.interval is None:
            classes = "class" if len(self.sparse) == 1 else "classes"
            corrected = f"not corrected, too few hits of {classes} {spans(self.sparse)}"
        else:
            (corrected,) = interval_texts(self.interval)
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
    predictions: Tensor | Mapping[str, Tensor], target: Tensor, measure: Measured, *,
    num_classes: int | None = ...,
    higher_is_better: bool | Mapping[str, bool] | None = ..., ties: Ties = ...,
    repeats: int = ..., draws: int | None = ..., level: float = ..., generator: torch.Generator | None = ...,
    cluster: Tensor | None = ...
) -> ChosenEpoch: ...
@overload
def select_epoch(
    predictions: Tensor | Mapping[str, Tensor], target: Tensor, measure: Mapping[str, Measured], *,
    num_classes: int | None = ...,
    higher_is_better: bool | Mapping[str, bool] | None = ..., ties: Ties = ...,
    repeats: int = ..., draws: int | None = ..., level: float = ..., generator: torch.Generator | None = ...,
    cluster: Tensor | None = ...
) -> dict[str, ChosenEpoch]: ...
# fmt: on
@computed_on_cpu
def select_epoch(
    predictions: Tensor | Mapping[str, Tensor],
    target: Tensor,
    measure: Measured | Mapping[str, Measured],
    *,
    num_classes: int | None = None,
    higher_is_better: bool | Mapping[str, bool] | None = None,
    ties: Ties = "latest",
    repeats: int = 100,
    draws: int | None = None,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    cluster: Tensor | None = None,
) -> ChosenEpoch | dict[str, ChosenEpoch]:
    r"""Choose the epoch with the best value, correct that value, and find the epochs indistinguishable from it.

    Pass the classes that each epoch predicted for the same validation samples; models or trials of a search work the
    same way. Print the result for one line of text:

    - the kept epoch, its **value**, and the value **corrected** for being the best of many, with an interval;
    - its **stability**: how often a random half of the samples keeps the same epoch;
    - the **indistinguishable** epochs, whose difference from the best one may be noise, and the **shortfall**: how far
      below the best one these may be at most.

    The page "How a choice is corrected" describes the methods and how well they hold in simulations.

    Args:
        predictions: ``[M, N]`` class indices of N samples predicted in M epochs, of any integer dtype or bool. For
            other candidates a dict of name -> ``[N]``; the result uses these names.
        target: ``[N]`` class indices.
        measure: name in the catalogue such as ``"f1"``, averaged as in a report of these classes, or function of
            ``[..., K, K]`` counts that returns ``[...]``; functions of this package are averaged like their names. Or a
            dict of name -> measure; all measures then share the halves.
        num_classes: number of classes K; by default the largest index plus one.
        higher_is_better: direction, or name -> direction; by default the attribute ``higher_is_better`` of the measure,
            or True if it has none.
        ties: epoch to keep among those with the same value, ``"latest"`` (default) or ``"earliest"``, in all samples
            and in each half.
        repeats: number of times that the samples are divided into halves, 100 by default and at least 2.
        draws: number of draws for the interval; by default 10,000 for up to 31 classes, fewer for more.
        level: nominal coverage of the interval, and nominal probability that the truly best epoch is among the
            indistinguishable ones and that the shortfall is a true bound.
        generator: source of randomness, on the CPU; by default torch's.
        cluster: ``[N]`` integers, the id of each sample's cluster, such as its patient; by default all samples are
            independent. :func:`imbtorch.cluster_ids` makes ids of names.

    Returns:
        :class:`ChosenEpoch`, or for several measures a dict of name -> :class:`ChosenEpoch`.

    Raises:
        ValueError: for shapes that do not fit, classes out of range, no epochs or no samples, a measure that has no
            value in any epoch or does not return one value for each matrix, ``repeats`` below 2, an unknown ``ties``,
            and ``cluster`` with more than 968 classes.
        TypeError: for predictions, targets or ids that are not tensors of integers.

    Source: half-sampling (Shao and Tu 1995) and the model confidence set (Hansen, Lunde and Nason 2011).

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([0] * 90 + [1] * 10)
    >>> right = torch.stack([torch.rand(100, generator=generator) < p for p in (0.3, 0.5, 0.7)])
    >>> predictions = torch.where(right, target, 1 - target)
    >>> found = select_epoch(predictions, target, balanced_accuracy, generator=generator)
    >>> found.epoch, found.corrected < found.value, found.indistinguishable
    (2, True, (1, 2))
    """
    check_choice("ties", ties, TIES)
    if whole_number("repeats", repeats) < 2:
        raise ValueError(f"repeats must be at least 2, got {repeats!r}")
    check_draws(2 if draws is None else draws, level, generator)
    given = measure if isinstance(measure, Mapping) else {"": measure}
    if not given:
        raise ValueError("measure is an empty dict; give at least one measure")
    directions = _directions(higher_is_better, given)
    names = tuple(predictions) if isinstance(predictions, Mapping) else None
    if isinstance(predictions, Mapping):
        predictions = _stacked(predictions, target)
    held = Samples.of(predictions, target, num_classes, cluster)
    measures = {name: measure_of_counts(each, held.classes) for name, each in given.items()}
    found = {}
    for layout, group in _groups(measures, held, repeats):
        ways = {name: _Way.of(held, layout, measures[name], directions[name], ties) for name in group}
        epochs, times = _affordable(ways, layout, repeats)
        for name, halves in _halved(held, layout, ways, epochs, times, generator).items():
            choice = _chosen(held, layout, ways[name], halves, draws, level, generator)
            found[name] = replace(choice, names=names, measure=measure_text(measures[name]))
    return {name: found[name] for name in measures} if isinstance(measure, Mapping) else found[""]


@dataclass(frozen=True)
class _Way:
    """Choice by one measure on all samples."""

    measure: Measure
    sign: float  # -1 if lower is better
    ties: Ties
    values: Tensor  # [M], higher is better
    kept: int

    @classmethod
    def of(cls, held: Samples, layout: CellOrder, measure: Measure, higher_is_better: bool | None, ties: Ties) -> _Way:
        """Choose on all samples."""
        sign = 1.0 if direction_of(measure, higher_is_better) else -1.0
        values = sign * held.values(layout, measure)
        if bool(values.isnan().all()):
            raise ValueError("measure has no value in any epoch (all are nan), so there is nothing to choose")
        return cls(measure, sign, ties, values, int(index_to_keep(values, ties)))

    def read(self, layout: CellOrder, counts: Tensor, epochs: Tensor) -> Tensor:
        """Compute values ``[m, R]``, higher is better; nan for epochs whose value on all samples is nan."""
        values = self.sign * measure_counts(self.measure, layout, counts)
        return torch.where(self.values[epochs].isnan().unsqueeze(-1), torch.nan, values)


@dataclass(frozen=True)
class _Halves:
    """Results of halving the samples R times, for one way of choosing among m epochs."""

    epochs: Tensor  # [m]
    values: Tensor  # [m, 2 R] of each half, higher is better
    choices: Tensor  # [2 R], indices of epochs
    crossed: Tensor  # [B * K * K]: counts of each half at the epoch that is best on the other, summed


def _stacked(predictions: Mapping[str, Tensor], target: Tensor) -> Tensor:
    """Stack the predictions of named candidates, ``[M, N]``."""
    check_class_indices("target", target, predicted=False)
    if not predictions:
        raise ValueError("predictions hold no candidates, so there is nothing to choose")
    for name, each in predictions.items():
        if each is None:
            raise TypeError(f"predictions[{name!r}] is None; leave out candidates without predictions")
        check_predictions(f"predictions[{name!r}]", each, target)
    return torch.stack([readable(each) for each in predictions.values()])


def _directions(given: bool | Mapping[str, bool] | None, measures: Mapping[str, Measured]) -> dict[str, bool | None]:
    """Return the direction given for each measure; None for a measure that a given mapping leaves out."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(measures, given)
    if "" in measures:
        raise TypeError(
            f"higher_is_better must be one value, since measure is not a dict of name -> function, got {given!r}"
        )
    for name in given:
        check_choice("name in higher_is_better", name, tuple(measures))
    return {name: given.get(name) for name in measures}


def _groups(measures: Mapping[str, Measure], held: Samples, repeats: int) -> Iterator[tuple[CellOrder, list[str]]]:
    """Yield groups of measures that read the same counts: matrices, or margins, which are faster for many classes."""
    whole, flat = CellOrder(held.classes, False), CellOrder(held.classes, True)
    possible = 2 * repeats * held.epochs * whole.size <= CELLS_IN_ALL
    if possible and held.classes <= FEW_CLASSES:
        yield whole, list(measures)
        return
    matrix = held.matrices(held.epochs - 1).sum(0)
    by_margins = [name for name, measure in measures.items() if reads_margins(measure, matrix)]
    if by_margins:
        yield flat, by_margins
    others = [name for name in measures if name not in by_margins]
    for names in [others] if possible else [[name] for name in others]:
        if names:
            yield whole, names


def _affordable(ways: Mapping[str, _Way], layout: CellOrder, repeats: int) -> tuple[Tensor, int]:
    """Choose the epochs to resample and the number of repeats: the best epochs if matrices would take too long."""
    way = next(iter(ways.values()))
    epochs = len(way.values)
    if layout.margins or 2 * repeats * epochs * layout.size <= CELLS_IN_ALL:
        return torch.arange(epochs), repeats
    number = min(epochs, max(FEWEST, CELLS_IN_ALL // (2 * repeats * layout.size)))
    repeats = min(repeats, max(FEWEST, CELLS_IN_ALL // (2 * number * layout.size)))
    worth = way.values.nan_to_num(nan=-torch.inf).tolist()
    others = [epoch for epoch in range(epochs) if epoch != way.kept]
    others.sort(key=lambda epoch: (worth[epoch], epoch if way.ties == "latest" else -epoch), reverse=True)
    return torch.tensor(sorted([way.kept, *others[: number - 1]])), repeats


def _halved(
    held: Samples,
    layout: CellOrder,
    ways: Mapping[str, _Way],
    epochs: Tensor,
    repeats: int,
    generator: torch.Generator | None,
) -> dict[str, _Halves]:
    """Choose on each half of the samples, and count on the other."""
    every = epochs.tolist()
    full = held.count(layout, every, held.ones())
    sums = {name: torch.zeros(held.buckets * held.classes**2, dtype=torch.int64) for name in ways}
    values: dict[str, list[Tensor]] = {name: [] for name in ways}
    choices: dict[str, list[Tensor]] = {name: [] for name in ways}
    sizes = parts(repeats, max(len(every) * layout.size, len(held.target)))
    for size in announced(sizes, repeats, "the choice among epochs", "fewer repeats=, epochs or measures shorten it"):
        coins = held.coins(size, generator)
        first = held.count(layout, every, coins)
        second = full - first
        for name, way in ways.items():
            pair = torch.stack([way.read(layout, half, epochs) for half in (first, second)], -1)  # [m, R, 2]
            choice = index_to_keep(pair.movedim(0, -1), way.ties)  # [R, 2]
            choice = torch.where(pair.isnan().all(0), every.index(way.kept), choice)  # no value on this half
            sums[name] += crossed(held, every, coins, choice)
            values[name].append(pair.flatten(1))
            choices[name].append(epochs[choice].flatten())
    return {name: _Halves(epochs, torch.cat(values[name], 1), torch.cat(choices[name]), sums[name]) for name in ways}


def _chosen(
    held: Samples,
    layout: CellOrder,
    way: _Way,
    halves: _Halves,
    draws: int | None,
    level: float,
    generator: torch.Generator | None,
) -> ChosenEpoch:
    """Combine the results for one measure."""
    size, repeats = held.classes, len(halves.choices) // 2
    cross = halves.crossed.view(-1, size, size).double() / repeats
    buckets = (1 - CROSSED) * held.matrices(way.kept).double() + CROSSED * cross  # [B, K, K]
    counts = buckets.sum(0)
    worth = counts.sum(-1) if held.clusters is None else effective_samples(buckets, 2)
    sparse = _sparse_classes(way.measure, counts * ratio(worth, counts.sum(-1)).unsqueeze(-1))
    interval = None
    if not sparse:
        draws = draws or max(200 if layout.margins else 100, min(10_000, DRAWN_CELLS // size**2))
        if held.clusters is None:
            interval = posterior_of({"": way.measure}, counts, draws, level, generator)[""]
        else:
            of_buckets = resample_buckets({"": way.measure}, buckets, draws=draws, level=level, generator=generator)
            interval = of_buckets[""]
        # the kept epoch may be truly better than the others, which halves cannot tell
        own = interval.low.new_tensor(way.sign * way.values[way.kept].item())
        low, high = outermost(interval.low, interval.high, own)
        interval = replace(interval, low=low, high=high)
    tied = as_good_as_best(way.values)
    tied[way.kept] = False
    identical = tied & (held.differences(way.kept) == 0)
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


def _sparse_classes(measure: Measure, counts: Tensor) -> tuple[int, ...]:
    """Find the classes of corrected counts ``[K, K]`` with too few hits to correct a measure (none for most measures).

    Some measures are 0 if one class has no hit. That happens by chance, in halves more often than in all samples. Then
    the measure lies far below its value in the population, and one half predicts nothing about the other.
    """
    hits, actual = counts.diagonal(), counts.sum(-1)
    sparse = (actual > 0) & ((actual < FEW_SAMPLES) | (hits < 1))
    if not bool(sparse.any()):
        return ()
    for lost in {0, len(counts) - 1}:  # one recall of 0 is tried for the first class and the last
        tried = torch.ones_like(counts).fill_diagonal_(len(counts))
        tried[lost, lost] = 0
        if evaluated(measure, tried).abs().item() > 1e-12:  # nan is treated like 0
            return ()
    return tuple(sparse.nonzero().flatten().tolist())


def _indistinguishable(values: Tensor, resampled: Tensor, level: float) -> tuple[Tensor, float]:
    """Find the epochs indistinguishable from the best one, and bound how far below it the worst of them lies.

    Args:
        values: ``[m]`` values on all samples, higher is better.
        resampled: ``[m, B]`` values on resamples.
        level: probability that the best epoch is among them, and that the bound holds.

    Returns:
        bool ``[m]``, and the bound.
    """
    resampled = resampled[:, resampled.isfinite().all(0)]
    if resampled.shape[1] < 2 or not bool(values.isfinite().all()):  # infinite values have no differences
        return torch.ones_like(values, dtype=torch.bool), math.inf if len(values) > 1 else 0.0
    noise = resampled - values.unsqueeze(-1)
    spread = torch.stack([(noise - row).square().mean(-1).sqrt() for row in noise])  # [m, m]
    others = spread[~torch.eye(len(values), dtype=torch.bool)]
    if len(others):
        spread = spread.clamp(min=0.25 * others.median().item())
    inverse = torch.where(spread > 0, 1 / spread, 0.0)
    apart = values - values.unsqueeze(-1)
    constant = torch.where(apart > ROUNDING, torch.inf, 0.0)  # resampling never changes these differences
    seen = torch.where(spread > 0, apart * inverse, constant).amax(-1)
    by_chance = torch.stack(
        [((noise - row) * scale.unsqueeze(-1)).amax(0) for row, scale in zip(noise, inverse, strict=True)]
    )
    alike = seen <= by_chance.quantile(level, dim=-1)
    best = int(values.argmax())
    bounds = values[best] - values + (noise - noise[best]).quantile(level, dim=-1)
    return alike, bounds[alike].amax().item()
