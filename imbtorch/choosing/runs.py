"""Values of models over seeds, with intervals for new seeds and new samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imbtorch.choosing.outcomes import JointOutcomes, checked_outcomes, number_of_labels
from imbtorch.choosing.paired_scores import ranks
from imbtorch.columns import Column, Rules, typed
from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import checked_ids, computed_on_cpu, spread
from imbtorch.counts import ratio
from imbtorch.deciding.curves import AREAS, histogram_of_ranks
from imbtorch.intervals.draws import chunks, gammas, pooled_recall, student_quantile, worth_of_hits
from imbtorch.intervals.intervals import Interval, check_draws, clamped, warn_of_large_cluster
from imbtorch.measures.named import (
    AveragedMeasure,
    Measured,
    allowed_averages,
    measure_of_counts,
    measure_text,
    range_of,
)
from imbtorch.measures.traits import arguments_of
from imbtorch.reports.groups import checked_class_groups
from imbtorch.suggestions import first_names
from imbtorch.tables import Cell, Table
from imbtorch.waiting import announced

CERTAIN = 1e6  # degrees of freedom with which Student's t is normal
NO_INTERVAL = (
    "folds have no interval: their models share training samples, and no unbiased estimate of the variance exists "
    "(Bengio and Grandvalet 2004)"
)
FEW_RUNS = 5  # runs below which no noise of samples is subtracted from their spread


@dataclass(frozen=True, eq=False)
class Runs:
    """Means of models over seeds; :func:`over_runs` computes them, print it for a table.

    Attributes:
        models: name of a model -> its mean over seeds, with an interval for new seeds and new samples.
        differences: names of two models, in their order -> mean of the first minus mean of the second, likewise.
        values: name of a model -> value of each seed or fold, ``[S]``.
        measure: name of the measure and its average.
        folds: whether the values are of folds, which have no intervals.

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
    folds: bool = False

    def table(self, digits: int = 3) -> Table:
        """Return means and differences as a table, with the number of seeds and their standard deviation.

        Folds have a column each. Values have ``digits`` decimals.
        """
        return _table({"mean": self}, f"mean: {self.measure or 'mean'}", digits, alone=True)

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the value of each seed or fold as a point, and the mean of each model with its interval.

        Args:
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.runs import plot_runs

        figure, axes = plot_runs({self.measure: (self.values, self.models)}, ax, "fold" if self.folds else "seed")
        return figure, axes[0]

    def __str__(self) -> str:
        """Return the table as text."""
        return str(self.table())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


class RunsByMeasure(Mapping[str, Runs]):
    """Means of models over seeds or folds by several measures; :func:`over_runs` computes them, print it for a table.

    A mapping: name of a measure -> :class:`Runs`. The table has a row for each model and each difference of two, and a
    column for each measure. ``table().to_latex()``, ``to_markdown()`` and ``to_csv()`` write it.

    Args:
        measures: name of a measure -> its means.

    >>> target = torch.tensor([0, 0, 0, 1] * 25)
    >>> preds = [target.roll(shift) for shift in (0, 4, 1, 4)]
    >>> found = over_runs({"net": preds}, target, ["accuracy", "recall"], generator=torch.Generator().manual_seed(0))
    >>> list(found), found["recall"].values["net"].tolist()
    (['accuracy', 'recall'], [1.0, 1.0, 0.0, 1.0])
    """

    def __init__(self, measures: Mapping[str, Runs]) -> None:
        self._measures = dict(measures)

    def __getitem__(self, name: str) -> Runs:
        """Return the means by one measure."""
        if name not in self._measures:
            raise KeyError(f"no measure is named {name!r}; measures are {', '.join(map(repr, self))}")
        return self._measures[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the measures."""
        return iter(self._measures)

    def __len__(self) -> int:
        """Return the number of measures."""
        return len(self._measures)

    def table(self, digits: int = 3) -> Table:
        """Return means and differences as a table with a column for each measure, and its standard deviation.

        Values have ``digits`` decimals.
        """
        named = [runs.measure for name, runs in self.items() if runs.measure not in ("", name)]  # such as f1 (binary)
        return _table(self, "mean" + f": {', '.join(named)}" * bool(named), digits)

    def plot(self) -> tuple[Any, Any]:
        """Draw a panel for each measure, as :meth:`Runs.plot`; return the figure and its axes."""
        from imbtorch.plots.runs import plot_runs

        folds = next(iter(self.values())).folds
        panels = {runs.measure or name: (runs.values, runs.models) for name, runs in self.items()}
        return plot_runs(panels, item="fold" if folds else "seed")

    def __str__(self) -> str:
        """Return the table as text."""
        return str(self.table())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


def _cell(found: Interval) -> Cell:
    return Cell(found.estimate.item(), found.low.item(), found.high.item())


def _table(measures: Mapping[str, Runs], named: str, digits: int, alone: bool = False) -> Table:
    """Return a table of means and differences; a single measure of folds has a column for each of them."""
    one, models = next(iter(measures.values())), dict[str, dict[str, Any]]()
    for model, values in one.values.items():
        models[model] = {"folds" if one.folds else "seeds": len(values)}
        for name, runs in measures.items():
            spread = {} if one.folds else {"sd" if alone else f"sd {name}": runs.values[model].std().item()}
            models[model] |= {name: _cell(runs.models[model]), **spread}
        if one.folds and alone:
            models[model] |= {f"fold {at}": value for at, value in enumerate(values.tolist(), 1)}
    differences = {
        " - ".join(pair): {name: _cell(runs.differences[pair]) for name, runs in measures.items()}
        for pair in one.differences
    }
    mean, over = next(iter(one.models.values())), f"folds; {NO_INTERVAL}"
    if not one.folds:
        over = f"seeds, with a {100 * mean.level:g}% interval for {mean.method}; sd: standard deviation over seeds"
    blocks = {"model": models, "difference": differences}
    found = {kind: rows for kind, rows in blocks.items() if rows}
    return Table(found, (f"{named} over {over}",), digits=digits)


@computed_on_cpu
def over_runs(
    runs: Mapping[str, Sequence[Tensor]],
    target: Tensor | Sequence[Tensor],
    measures: Measured | Sequence[Measured],
    *,
    num_classes: int | None = None,
    positive: Any = None,
    class_groups: Mapping[str, Sequence[str | int]] | None = None,
    cluster: Tensor | None = None,
    ignore_index: int | None = None,
    draws: int = 1000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Runs | RunsByMeasure:
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

    In simulations 95% intervals covered the truth in 0.87 or more of the sets, with ``cluster`` in 0.85 or more
    (see the page "Intervals"). Pass the ids: without them means of clusters covered 0.44 to 0.91. Look at the value of
    each seed: no interval can know of a kind of seed that did not come.

    Args:
        runs: name of a model -> ``[N]`` classes predicted by each of its seeds: indices, or arrays of any type, read
            like saved predictions; or ``[N, L]`` of 0 and 1 for labels. Models may differ in the number of seeds; each
            needs two. For ``"auc"`` and ``"average_precision"`` scores of class 1.
        target: ``[N]`` class indices, or ``[N, L]`` of labels; a list of them for folds, which get the means and no
            interval. The labels of a sample are drawn together.
        measures: name in the catalogue, averaged as in a report, or function of ``[..., K, K]`` counts; or a list.
            ``partial(imbtorch.f_score, average="none")`` gives the value of each class or label.
        num_classes: number of classes K; by default the largest index plus one.
        positive: positive one of two classes that are not 0 and 1, such as texts.
        class_groups: name -> classes, such as :func:`~imbtorch.shot_groups`; adds ``recall/few`` and the like, the
            means over these classes of the measures that have a value for each class, of recall if none has.
        cluster: ``[N]`` id of the cluster of each sample, such as its patient; whole clusters are then drawn. By
            default samples are independent.
        ignore_index: target of the samples, or of single labels, to leave out.
        draws: number of draws.
        level: nominal coverage of the intervals, in (0, 1).
        generator: source of randomness, on the CPU; by default torch's.

    Returns:
        :class:`Runs`, on the CPU, or for several measures, classes or class groups a mapping: name -> :class:`Runs`.
        Print it for a table. A difference A - B is the first that was given minus the later one.

    Raises:
        ValueError: without models or measures, for a model with fewer than two seeds, shapes that differ, classes out
            of range, and no samples.
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
    wanted, alone = _wanted(measures)
    folds = isinstance(target, (list, tuple)) and len(target) > 0 and np.ndim(target[0]) > 0
    if folds and cluster is not None:
        raise ValueError("cluster must be left out for folds, which have no intervals")
    targets: list[Tensor] = list(target) if folds else [target]  # type: ignore[list-item]
    _check_folds(runs, targets) if folds else _check_runs(runs)
    runs, targets, names = _as_tensors(runs, targets, positive, ignore_index)
    scored = _are_scores(runs, wanted)
    if scored and (ignore_index, class_groups) != (None, None):
        raise ValueError("ignore_index and class_groups must be left out for measures of scores")
    if not scored:
        preds, labels = [each for some in runs.values() for each in some], 0
        if not names:
            labels = number_of_labels(preds, targets[0], num_classes, ignore_index)
            num_classes = _number_of_classes([*targets, *preds], num_classes, labels, ignore_index)
        wanted = _by_class(wanted, class_groups, names or range(labels or num_classes or 0), labels)
    if folds:
        found = _over_folds(runs, targets, wanted, num_classes, ignore_index, level)
    else:
        (target,) = targets
        if scored:
            parts, groups = _of_scores(runs, target, wanted, cluster, draws, generator)
        else:
            parts, groups = _of_classes(runs, target, wanted, num_classes, cluster, ignore_index, draws, generator)
        found = {name: _summary(runs, each, groups, level) for name, each in parts.items()}
        _warn_of_equal_seeds(runs, target)
    return next(iter(found.values())) if alone and len(found) == 1 else RunsByMeasure(found)


def _wanted(measures: Measured | Sequence[Measured]) -> tuple[list[Measured], bool]:
    """Return the measures as a list, and whether they are one that was not given as a list."""
    if isinstance(measures, str) or callable(measures):
        return [measures], True
    if not measures:
        raise ValueError(f"measures must name at least one measure, such as 'iam', got {measures!r}")
    return list(measures), False


def _number_of_classes(
    indices: Sequence[Tensor], given: int | None, labels: int, ignore_index: int | None
) -> int | None:
    if labels or given is not None:
        return given
    kept = [each if ignore_index is None else each[each != ignore_index] for each in indices]
    return max([1, *(int(each.max()) for each in kept if each.numel())]) + 1


def _by_class(
    wanted: Sequence[Measured],
    class_groups: Mapping[str, Sequence[str | int]] | None,
    classes: Sequence[str | int],
    labels: int,
) -> list[Measured]:
    """Return the measures, those with ``average="none"`` class by class, and their means over class groups."""

    def parts(given: Measured, some: Mapping[str, tuple[int, ...]]) -> dict[str, Measured]:
        one = measure_of_counts(given, 2 if labels else len(classes), labels or None)
        if not isinstance(one, AveragedMeasure) or "none" not in allowed_averages(one.traits, one.counting):
            return {}
        keys = {f"{one.name}/{name}": places for name, places in some.items()}
        return {key: replace(one, name=key, average="none", over_classes=places) for key, places in keys.items()}

    groups, each = checked_class_groups(class_groups, list(map(str, classes))), list[Measured]()
    for given in wanted:
        alone = arguments_of(given)[1].get("average", "macro") in ("none", None)
        each += parts(given, {str(name): (place,) for place, name in enumerate(classes)}).values() if alone else [given]
    of_groups = {key: one for given in wanted for key, one in parts(given, groups).items()}
    return [*each, *(of_groups or parts("recall", groups)).values()]


def _as_tensors(
    runs: Mapping[str, Sequence[Any]], targets: Sequence[Any], positive: Any, ignore_index: int | None
) -> tuple[dict[str, list[Tensor]], list[Tensor], Sequence[str] | None]:
    """Return tensors: indices of classes, which are typed like saved predictions, and scores as they are; and names.

    Args:
        runs: name of a model -> predictions of its seeds, or of its folds.
        targets: targets of all seeds, or of each fold.
        positive: positive one of two classes.
        ignore_index: target to leave out, an index.
    """
    if ignore_index is not None or np.ndim(targets[0]) > 1:  # indices, or 0 and 1 of labels
        as_tensors = partial(map, torch.as_tensor)
        return {name: list(as_tensors(some)) for name, some in runs.items()}, list(as_tensors(targets)), None
    given = {(name, at): each for name, some in runs.items() for at, each in enumerate(some)}
    if positive is None and all(isinstance(each, Tensor) for each in (*targets, *given.values())):
        return {name: list(some) for name, some in runs.items()}, list(targets), None
    arrays = {key: np.asarray(each) for key, each in given.items()}
    columns = [_column("target", np.concatenate([np.asarray(each) for each in targets]))]
    if scored := all(each.dtype.kind == "f" for each in arrays.values()):
        classes = typed(columns[0], [], Rules(positive=positive))
    else:
        columns += [_column(f"runs[{name!r}][{at}]", each) for (name, at), each in arrays.items()]
        classes = typed(columns[0], columns[1:], Rules(positive=positive))
    if len(classes.names) == 2 and not classes.binary:
        raise ValueError(f"positive must name the positive one of two classes, {first_names(classes.names)}")
    indices = [torch.from_numpy(classes.table(each, at == 0)[each.codes]) for at, each in enumerate(columns)]
    found = [torch.from_numpy(each) for each in arrays.values()] if scored else indices[1:]
    taken = iter(found)
    split = list(torch.split(indices[0], [len(each) for each in targets]))
    return {name: [next(taken) for _ in some] for name, some in runs.items()}, split, classes.names


def _column(name: str, values: Any) -> Column:
    """Return values of any type as a column."""
    levels: dict[Any, int] = {}
    codes = np.array([levels.setdefault(value, len(levels)) for value in values.tolist()], dtype=np.int64)
    return Column(name, list(levels), codes)


def _check_folds(runs: Mapping[str, Sequence[Any]], targets: Sequence[Any]) -> None:
    """Raise unless models have predictions of each fold."""
    _check_runs(runs, 1)
    for name, some in runs.items():
        if len(some) != len(targets):
            raise ValueError(f"runs[{name!r}] must hold the predictions of {len(targets)} folds, got {len(some)}")


def _check_runs(runs: Mapping[str, Sequence[Tensor]], least: int = 2) -> None:
    """Raise unless models have enough predictions."""
    if not isinstance(runs, Mapping) or not runs:
        got = "none" if isinstance(runs, Mapping) else f"a {type(runs).__name__}; write {{'net': [seed_0, seed_1]}}"
        raise ValueError(f"runs must map the name of each model to the predictions of its seeds, got {got}")
    for name, some in runs.items():
        if len(some) < least:
            raise ValueError(f"runs[{name!r}] must hold the predictions of at least two seeds, got {len(some)}")


def _are_scores(runs: Mapping[str, Sequence[Tensor]], wanted: Sequence[Measured]) -> bool:
    """Return whether all measures need scores; raise if some do, or if the predictions are of the other kind."""
    of_scores = [each for each in wanted if isinstance(each, str) and each in AREAS]
    if not of_scores:
        return False
    if len(of_scores) < len(wanted):
        raise ValueError(f"{of_scores[0]!r} needs scores and the other measures need classes; ask for them apart")
    for name, some in runs.items():
        for index, each in enumerate(some):
            if not isinstance(each, Tensor) or not each.is_floating_point():
                raise TypeError(f"runs[{name!r}][{index}] must hold scores for {of_scores[0]!r}")
    return True


def _warn_of_equal_seeds(runs: Mapping[str, Sequence[Tensor]], target: Tensor) -> None:
    """Warn of models whose seeds all predict the same, unless they are perfect or predict one class."""
    for name, (first, *others) in runs.items():
        differs = not torch.equal(first.double(), target.double()) and bool((first != first.flatten()[0]).any())
        if differs and all(torch.equal(first, each) for each in others):
            warn_caller(
                f"over_runs: all {len(others) + 1} seeds of {name!r} predict the same for every sample, so they seem "
                "to be one model; pass the predictions of models that were trained with different seeds"
            )


@dataclass(frozen=True)
class _Values:
    """Values of a measure for all runs ``[R]``, and for draws ``[D, R]``, with its name and range."""

    measure: str
    least: float
    most: float
    values: Tensor
    drawn: Tensor


def _of_classes(
    runs: Mapping[str, Sequence[Tensor]],
    target: Tensor,
    wanted: Sequence[Measured],
    num_classes: int | None,
    cluster: Tensor | None,
    ignore_index: int | None,
    draws: int,
    generator: torch.Generator | None,
) -> tuple[dict[str, _Values], int]:
    """Compute measures of predicted classes; return them by name, and the number of clusters."""
    preds = {f"runs[{name!r}][{index}]": each for name, some in runs.items() for index, each in enumerate(some)}
    outcomes = checked_outcomes(preds, target, num_classes, cluster, ignore_index)
    called = [measure_of_counts(each, *outcomes.measured) for each in wanted]
    counts = outcomes.counted()
    values = [outcomes.evaluated(each, counts) for each in called]
    sizes = chunks(draws, max(counts.numel(), len(outcomes.times)), values[0].device)
    seeds = [len(some) for some in runs.values()]
    if cluster is not None:
        warn_of_large_cluster("over_runs", outcomes.of_clusters(outcomes.times).sum(-1))
    drawn = [torch.empty(len(called), 0, len(preds), dtype=torch.float64)]
    for size in announced(sizes, draws, "the comparison of seeds", "fewer draws= shorten it"):
        counts = draw_counts(outcomes, seeds, size, generator)
        drawn.append(torch.stack([outcomes.evaluated(each, counts) for each in called]))
    parts = zip(called, values, torch.cat(drawn, 1), strict=True)
    found = [_Values(measure_text(each), *range_of(each), *some) for each, *some in parts]
    return _by_name(wanted, found), outcomes.clusters if cluster is not None else 0


def _of_scores(
    runs: Mapping[str, Sequence[Tensor]],
    target: Tensor,
    wanted: Sequence[Measured],
    cluster: Tensor | None,
    draws: int,
    generator: torch.Generator | None,
) -> tuple[dict[str, _Values], int]:
    """Compute areas under curves of scores, as :func:`_of_classes`.

    The pseudo-sample of each class ranks above all samples in one half of its mass, and below them in the other.
    """
    preds = {f"runs[{name!r}][{index}]": each for name, some in runs.items() for index, each in enumerate(some)}
    places, positive, sizes = ranks(preds, target)
    groups, ids = 0, torch.arange(len(positive))
    if cluster is not None:
        known, ids, number = torch.unique(
            spread("cluster", checked_ids(cluster), target, target), return_inverse=True, return_counts=True
        )
        groups = len(known)
        warn_of_large_cluster("over_runs", number)
    # a pseudo-sample stands for a cluster
    worth = torch.stack([of_class.sum() / len(torch.unique(ids[of_class])) for of_class in (~positive, positive)])
    areas = [AREAS[str(name)][0] for name in wanted]

    def values(place: Tensor, size: int, weight: Tensor, lumps: Tensor) -> Tensor:
        histogram = histogram_of_ranks(place + 1, positive, size + 2, weight)
        histogram[..., 0] += lumps[..., 0]
        histogram[..., -1] += lumps[..., 1]
        return torch.stack([each(histogram) for each in areas])

    one = torch.ones(1, len(positive), dtype=torch.float64)
    exact = [values(*each, one, one.new_zeros(1, 2, 2)) for each in zip(places, sizes.tolist(), strict=True)]
    drawn = [torch.empty(len(areas), 0, len(places), dtype=torch.float64)]
    parts = chunks(draws, 4 * len(positive), positive.device)
    for some in announced(parts, draws, "the comparison of seeds", "fewer draws= shorten it"):
        weight = gammas(one.new_ones(int(ids.max()) + 1), some, generator).t()[:, ids]
        found = []
        start = 0
        for name in runs:
            lumps = gammas(one.new_full((4,), 0.5), some, generator).t().view(some, 2, 2) * worth.unsqueeze(-1)
            stop = start + len(runs[name])
            pairs = zip(places[start:stop], sizes[start:stop].tolist(), strict=True)
            found += [values(place, size, weight, lumps) for place, size in pairs]
            start = stop
        drawn.append(torch.stack(found, -1))
    named = zip(map(str, wanted), torch.cat(exact, 1), torch.cat(drawn, 1), strict=True)
    return _by_name(wanted, [_Values(name, 0.0, 1.0, *some) for name, *some in named]), groups


def _by_name(wanted: Sequence[Measured], found: Sequence[_Values]) -> dict[str, _Values]:
    """Return values by the names that were asked for; raise if two are equal."""
    keys = [
        each if isinstance(each, str) else some.measure or f"measure {at}"
        for at, (each, some) in enumerate(zip(wanted, found, strict=True), 1)
    ]
    if len(set(keys)) < len(keys):
        raise ValueError(f"measures must differ, got {', '.join(keys)}")
    return dict(zip(keys, found, strict=True))


def _summary(runs: Mapping[str, Sequence[Tensor]], found: _Values, groups: int, level: float) -> Runs:
    """Summarise the values of all runs."""
    seeds = [len(some) for some in runs.values()]
    parts = zip(runs, found.values.split(seeds), found.drawn.split(seeds, -1), strict=True)  # type: ignore[no-untyped-call]
    of_models = {name: _Model(name, *each) for name, *each in parts}
    means = {name: _interval([model], groups, level) for name, model in of_models.items()}
    span = found.most - found.least
    pairs = combinations(of_models.values(), 2)
    return Runs(
        {name: clamped(each, found.least, found.most) for name, each in means.items()},
        {(one.name, other.name): clamped(_interval([one, other], groups, level), -span, span) for one, other in pairs},
        {name: model.values for name, model in of_models.items()},
        found.measure,
    )


def _over_folds(
    runs: Mapping[str, Sequence[Tensor]],
    targets: Sequence[Tensor],
    wanted: Sequence[Measured],
    num_classes: int | None,
    ignore_index: int | None,
    level: float,
) -> dict[str, Runs]:
    """Compute means over folds, whose samples differ."""
    scored = _are_scores(runs, wanted)
    folds = []
    for at, target in enumerate(targets):
        fold = {name: [some[at]] for name, some in runs.items()}
        if scored:
            folds.append(_of_scores(fold, target, wanted, None, 0, None)[0])
        else:
            folds.append(_of_classes(fold, target, wanted, num_classes, None, ignore_index, 0, None)[0])
    none = torch.tensor(math.nan, dtype=torch.float64)

    def mean(values: Tensor) -> Interval:
        return Interval(values.mean(), none, none, level, "folds")

    found = {}
    for key, one in folds[0].items():
        values = dict(zip(runs, torch.stack([each[key].values for each in folds], 1), strict=True))
        pairs = {(a, b): mean(values[a] - values[b]) for a, b in combinations(values, 2)}
        found[key] = Runs({name: mean(each) for name, each in values.items()}, pairs, values, one.measure, True)
    return found


def draw_counts(outcomes: JointOutcomes, seeds: list[int], size: int, generator: torch.Generator | None) -> Tensor:
    """Draw counts of all runs from the same samples, ``[size, R, K, K]``, or ``[size, R, L, 2, 2]``.

    Each model has pseudo-samples of its own.
    """
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
    hits = outcomes.counted().diagonal(dim1=-2, dim2=-1).mean(0).flatten()
    right = pooled_recall(hits, actual).expand(len(rows))
    seen = outcomes.seen if len(outcomes.seen) > 1 else torch.arange(outcomes.classes)
    drawn = []
    for preds in outcomes.preds.split(seeds):  # type: ignore[no-untyped-call]
        lumps = gammas(torch.cat((right, 1 - right)), size, generator) * worth[row].unsqueeze(-1)
        step = torch.randint(1, len(seen), (len(rows), size), generator=generator)
        wrong = seen[(torch.searchsorted(seen, rows).unsqueeze(-1) + step) % len(seen)]  # another class that occurs
        wrong = (rows ^ 1).unsqueeze(-1).expand_as(wrong) if outcomes.labels else wrong
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
    return Interval(estimate, low, high, level, "new seeds and new samples" + f" of {groups} clusters" * bool(groups))
