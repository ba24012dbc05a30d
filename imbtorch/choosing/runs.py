"""Values of models over seeds, with intervals for new seeds and new samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.outcomes import JointOutcomes, checked_outcomes
from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import evaluated, ratio
from imbtorch.intervals.draws import chunks, gammas, pooled_recall, student_quantile, worth_of_hits
from imbtorch.intervals.intervals import Interval, check_draws, warn_of_large_cluster
from imbtorch.measures.named import AveragedMeasure, Measured, measure_of_counts, measure_text
from imbtorch.tables import Cell, Table

CERTAIN = 1e6  # degrees of freedom with which Student's t is normal
FEW_RUNS = 5  # runs below which no noise of samples is subtracted from their spread


@dataclass(frozen=True, eq=False)
class Runs:
    """Means of models over seeds; :func:`over_runs` computes them, print it for a table.

    Attributes:
        models: name of a model -> its mean over seeds, with an interval for new seeds and new samples.
        differences: names of two models -> mean of the first minus mean of the second, likewise.
        values: name of a model -> value of each seed, ``[S]``.
        measure: name of the measure and its average.

    >>> target = torch.tensor([0, 0, 0, 1] * 25)
    >>> preds = [target.roll(shift) for shift in (0, 4, 1, 4)]
    >>> runs = over_runs({"net": preds}, target, "accuracy", generator=torch.Generator().manual_seed(0))
    >>> runs.values["net"]
    tensor([1.0000, 1.0000, 0.5000, 1.0000], dtype=torch.float64)
    """

    models: dict[str, Interval]
    differences: dict[tuple[str, str], Interval]
    values: dict[str, Tensor]
    measure: str = ""

    def table(self) -> Table:
        """Return means and differences as a table, with the number of seeds and their standard deviation."""

        def cell(found: Interval) -> Cell:
            return Cell(found.estimate.item(), found.low.item(), found.high.item())

        models: dict[str, dict[str, Any]] = {
            name: {
                "seeds": len(self.values[name]),
                "mean": cell(found),
                "sd": self.values[name].std().item(),
            }
            for name, found in self.models.items()
        }
        differences = {f"{one} - {other}": {"mean": cell(found)} for (one, other), found in self.differences.items()}
        level = 100 * next(iter(self.models.values())).level
        named = f"mean: {self.measure} over seeds" if self.measure else "mean: mean over seeds"
        note = f"{named}, with a {level:g}% interval for new seeds and new samples; sd: standard deviation over seeds"
        blocks: dict[str, dict[str, dict[str, Any]]] = {"model": models, "difference": {**differences}}
        return Table({kind: rows for kind, rows in blocks.items() if rows}, (note,))

    def __str__(self) -> str:
        """Return the table as text."""
        return str(self.table())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


@computed_on_cpu
def over_runs(
    runs: Mapping[str, Sequence[Tensor]],
    target: Tensor,
    measure: Measured,
    *,
    num_classes: int | None = None,
    cluster: Tensor | None = None,
    draws: int = 1000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Runs:
    r"""Compare models by their means over seeds, all of them tested on the same samples.

    The interval of a mean answers what it would be for new seeds and new samples. All seeds see the same samples, so
    the noise of the samples does not shrink with their number S:

    .. math:: V = \mathrm{Var}^*\Bigl(\frac1S \sum_s v_s\Bigr) + \frac{\max(0, s^2 - N)}{S},
              \qquad N = \frac1{S-1} \sum_s \mathrm{Var}^*(v_s - \bar v).

    Var* is the variance over posterior draws of the samples, which are common to all seeds and models, with a prior of
    one sample for each class as in :func:`posterior`; s is the standard deviation of the values over the seeds, and N
    the part of its square that the samples explain. Below five seeds nothing is subtracted. The interval is the mean
    plus and minus the quantile of Student's t times the root of V, with the degrees of freedom of Welch and
    Satterthwaite for both parts. A difference of two models is treated likewise: what their samples have in common
    cancels out. Each model has a prior of its own, because models that are right on the same few samples may differ.

    In simulations 95% intervals covered the truth in 0.87 or more of the sets, with ``cluster`` in 0.84 or more
    (``examples/intervals.md``). Pass the ids: without them means of clusters covered 0.44 to 0.91. Look at the value of
    each seed: no interval can know of a kind of seed that did not come.

    Args:
        runs: name of a model -> ``[N]`` class indices predicted by each of its seeds. Models may differ in the number
            of seeds; at least two are needed for each.
        target: ``[N]`` class indices.
        measure: name in the catalogue, averaged as in a report, or function of ``[..., K, K]`` counts.
        num_classes: number of classes K; by default the largest index plus one.
        cluster: ``[N]`` id of the cluster of each sample, such as its patient; whole clusters are then drawn. By
            default samples are independent.
        draws: number of draws.
        level: nominal coverage of the intervals, in (0, 1).
        generator: source of randomness, on the CPU; by default torch's.

    Returns:
        :class:`Runs`, on the CPU; print it for a table.

    Raises:
        ValueError: without models, for a model with fewer than two seeds, shapes that differ, classes out of range and
            no samples.
        TypeError: for predictions, targets or ids that are not tensors of integers.

    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([0] * 80 + [1] * 20)
    >>> noise = [torch.rand(100, generator=generator) for _ in range(6)]
    >>> good, poor = ([torch.where(each < rate, 1 - target, target) for each in noise] for rate in (0.1, 0.3))
    >>> print(over_runs({"good": good, "poor": poor}, target, "balanced_accuracy", generator=generator))
    model  seeds                  mean     sd
    good       6  0.899 [0.850, 0.947]  0.041
    poor       6  0.695 [0.645, 0.745]  0.044
    <BLANKLINE>
    difference                   mean
    good - poor  0.204 [0.145, 0.263]
    mean: balanced_accuracy over seeds, with a 95% interval for new seeds and new samples; sd: standard
      deviation over seeds
    """
    check_draws(draws, level, generator)
    outcomes = _outcomes(runs, target, cluster, num_classes)
    called = measure_of_counts(measure, outcomes.classes)
    values = evaluated(called, outcomes.counted())
    sizes = chunks(draws, max(len(values) * outcomes.classes**2, len(outcomes.times)), values.device)
    seeds = [len(some) for some in runs.values()]
    if cluster is not None:
        warn_of_large_cluster("over_runs", outcomes.of_clusters(outcomes.times).sum(-1))
    drawn = torch.cat([evaluated(called, _draw(outcomes, seeds, size, generator)) for size in sizes])
    parts = zip(runs, values.split(seeds), drawn.split(seeds, -1), strict=True)  # type: ignore[no-untyped-call]
    of_models = {name: _Model(name, *each) for name, *each in parts}
    pairs = combinations(of_models.values(), 2)
    return Runs(
        {name: _within(_interval([model], outcomes.clusters, level), called) for name, model in of_models.items()},
        {(one.name, other.name): _interval([one, other], outcomes.clusters, level) for one, other in pairs},
        {name: model.values for name, model in of_models.items()},
        measure_text(called),
    )


def _outcomes(
    runs: Mapping[str, Sequence[Tensor]], target: Tensor, cluster: Tensor | None, num_classes: int | None
) -> JointOutcomes:
    """Check predictions and targets, and return the joint outcomes of all runs."""
    if not isinstance(runs, Mapping) or not runs:
        raise ValueError(f"runs must map the name of each model to the predictions of its seeds, got {runs!r}")
    for name, some in runs.items():
        if len(some) < 2:
            raise ValueError(f"runs[{name!r}] must hold the predictions of at least two seeds, got {len(some)}")
    preds = {f"runs[{name!r}][{index}]": each for name, some in runs.items() for index, each in enumerate(some)}
    return checked_outcomes(preds, target, num_classes, cluster)


def _draw(outcomes: JointOutcomes, seeds: list[int], size: int, generator: torch.Generator | None) -> Tensor:
    """Draw counts of all runs from the same samples, ``[size, R, K, K]``; each model has pseudo-samples of its own."""
    actual = outcomes.actual()
    worth = torch.ones_like(actual)  # samples that a pseudo-sample stands for
    if outcomes.cluster is None:
        mass = gammas(outcomes.times, size, generator)
        totals = gammas(torch.where(actual > 0, actual + 0.5, 0.0), size, generator)
    else:
        each = outcomes.of_clusters(outcomes.times)
        hits = torch.stack(
            [outcomes.of_clusters(outcomes.times * right) for right in outcomes.preds == outcomes.target]
        )
        worth = ratio(actual, worth_of_hits(hits, each.expand_as(hits), 1).mean(0))
        weights = gammas(actual.new_ones(outcomes.clusters), size, generator)
        mass = outcomes.times.unsqueeze(-1) * weights[outcomes.cluster]
        totals = outcomes.actual(mass)
    totals = totals * outcomes.times.sum() / totals.sum(0)
    rows = (actual > 0).nonzero().flatten()
    row = rows.repeat(2)
    right = pooled_recall(outcomes.counted().diagonal(dim1=-2, dim2=-1).mean(0), actual).expand(len(rows))
    seen = outcomes.seen if len(outcomes.seen) > 1 else torch.arange(outcomes.classes)
    drawn = []
    for preds in outcomes.preds.split(seeds):  # type: ignore[no-untyped-call]
        lumps = gammas(torch.cat((right, 1 - right)), size, generator) * worth[row].unsqueeze(-1)
        step = torch.randint(1, len(seen), (len(rows), size), generator=generator)
        wrong = seen[(torch.searchsorted(seen, rows).unsqueeze(-1) + step) % len(seen)]  # another class that occurs
        columns = torch.cat((rows.unsqueeze(-1).expand(-1, size), wrong)).expand(len(preds), -1, -1)
        scale = ratio(totals, outcomes.actual(mass).index_add_(0, row, lumps))
        model = replace(outcomes, preds=preds)
        drawn.append(model.matrices(mass * scale[model.target], (lumps * scale[row], row, columns)))
    return torch.cat(drawn, 1)


@dataclass(frozen=True)
class _Model:
    """Values of the seeds of a model ``[S]``, and of draws ``[D, S]``."""

    name: str
    values: Tensor
    drawn: Tensor

    @property
    def spread(self) -> Tensor:
        """Variance of the mean over seeds that the seeds show, with the noise of the samples in it."""
        return self.values.var() / len(self.values)

    @property
    def noise(self) -> Tensor:
        """Part of :attr:`spread` that the samples explain; 0 for few seeds."""
        seeds = len(self.values)
        apart = (self.drawn - self.drawn.mean(-1, keepdim=True)).var(0).sum() / (seeds - 1)
        return apart / seeds if seeds >= FEW_RUNS else torch.zeros_like(apart)


def _within(found: Interval, measure: object) -> Interval:
    """Cut an interval off at the ends of the range of a measure, where they are known."""
    low, high = measure.traits.value_range if isinstance(measure, AveragedMeasure) else (None, None)
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    return replace(found, low=found.low.clamp(min=ends[0]), high=found.high.clamp(max=ends[1]))


def _interval(models: Sequence[_Model], groups: int, level: float) -> Interval:
    """Compute the interval of the mean of a model, or of the difference of the means of two."""
    signs = (1, -1)
    estimate = sum((sign * model.values.mean() for sign, model in zip(signs, models, strict=False)), torch.zeros(()))
    drawn = sum((sign * model.drawn.mean(-1) for sign, model in zip(signs, models, strict=False)), torch.zeros(()))
    of_samples, spreads = drawn.var(), torch.stack([model.spread for model in models])
    of_seeds = torch.stack([(model.spread - model.noise).clamp(min=0) for model in models]).sum()
    less = torch.tensor([len(model.values) - 1.0 for model in models], dtype=torch.float64)
    squares = (spreads.square() / less).sum() + (of_samples.square() / max(groups - 1, 1) if groups else 0)
    freedom = ((of_samples + spreads.sum()).square() / squares).nan_to_num(nan=CERTAIN).clamp(1, CERTAIN)
    half = student_quantile(level, freedom) * (of_samples + of_seeds).sqrt()
    low, high = estimate - half, estimate + half
    return Interval(estimate, low, high, level, "new seeds and new samples")
