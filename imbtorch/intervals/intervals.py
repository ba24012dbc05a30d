"""Intervals of measures, computed from the confusion matrix alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, get_args, overload

import torch
from scipy import special
from torch import Tensor

from imbtorch.compat import warn_caller
from imbtorch.counting.arguments import check_generator, computed_on_cpu, real_number, whole_number
from imbtorch.counts import Counts, Margins, Measure, check_choice, checked_function, margins, ratio, reads_margins
from imbtorch.intervals.class_means import bounds_of_recalls, recall_weights
from imbtorch.intervals.draws import (
    CountsPosterior,
    Prior,
    Totals,
    check_prior,
    checked_whole,
    chunks,
    clusters_drawn,
    effective_samples,
    multinomial,
    normal_quantile,
    sizes_of_errors,
    student_quantile,
)
from imbtorch.measures.named import Measured, measure_text, measures_of_counts
from imbtorch.measures.traits import needs_matrix
from imbtorch.tables import wrapped
from imbtorch.waiting import announced

LEAST_FREEDOM = 8  # degrees of freedom of Student's t for means over classes
TOLD = 0.05  # bias from which texts name it: some 30 samples a class, for IAM
LARGE = 3  # times the mean size of clusters from which a text names the largest: nearly all misses in heavy tails
HEAVY = 5  # times the mean from which a warning does: kinds of sizes with less on average covered .86 or more
COLLISION = 0.05  # buckets of equal clusters that may be called large
LEAST = 0.01  # share of the samples below which no cluster is large, however small the others are
OF_MEANS = "Fay-Feuer of clusters"  # method of means of recalls over classes
TOO_NARROW = "too narrow if values fall with cluster size"
SIMULATED = 200  # test sets from which the bias of an average is estimated
FASTER = "fewer draws=, measures or classes shorten it (2,000 draws move a bound by some 2% of the width)"


@dataclass(frozen=True)
class Interval:
    """A value with its interval.

    :func:`posterior` returns Bayesian intervals: quantiles of posterior draws, by default with a prior that is worth
    one sample for each class. They are widened so that they cover the true value about as often as ``level`` says, and
    are read like confidence intervals. :func:`bootstrap` resamples test sets or clusters. Some values have other
    methods, such as Newcombe's for the AUC; ``method`` names them.

    For one confusion matrix and a measure with one value, the tensors are scalars: ``interval.low.item()`` is a float.
    A measure with a value for each class gives ``[K]``. A batch of matrices adds its dimensions in front.

    Attributes:
        estimate: value of the counts themselves.
        low: lower bound.
        high: upper bound.
        level: nominal coverage, such as 0.95. A widened interval contains more than this share of the draws.
        method: name of the method.
        draws: values of the draws, ``[draws, ...]``, if ``keep_draws=True`` was passed; else None.
        bias: estimated bias of the value: its mean over test sets of this size minus the true value. Only averages over
            three or more classes have one, from a posterior or a bootstrap of clusters; otherwise it is None. The
            bounds are widened by the bias. The estimate is not corrected, so that it equals the value that reports log.
        measure: name of the measure and its average, such as ``recall (binary)``, which begins the printed text; empty
            for values of reports and metrics.

    >>> print(Interval(torch.tensor(0.8), torch.tensor(0.7), torch.tensor(0.9), 0.95, "posterior"))
    0.800 [0.700, 0.900] (95% posterior)
    """

    estimate: Tensor
    low: Tensor
    high: Tensor
    level: float
    method: str
    draws: Tensor | None = field(default=None, repr=False)
    bias: Tensor | None = None
    measure: str = ""

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError, with the remedy for ``value``."""
        meant = "; its value is `estimate`" if name == "value" else ""
        raise AttributeError(f"an Interval has no attribute {name!r}{meant}")

    def __str__(self) -> str:
        """Return text such as ``iam 0.133 [-0.311, 0.540] (95% posterior)``, a line for each value."""
        return "\n".join(wrapped(f"{self.measure} {text}".lstrip()) for text in interval_texts(self))


def interval_texts(interval: Interval) -> list[str]:
    """Return the text of each value of an interval, in one line."""
    bias = torch.zeros_like(interval.estimate) if interval.bias is None else interval.bias
    parts = (each.double().flatten().tolist() for each in (interval.estimate, interval.low, interval.high, bias))
    lines = []
    for value, low, high, off in zip(*parts, strict=True):
        about = f"; on average {abs(off):.2f} too {'high' if off > 0 else 'low'}" if abs(off) >= TOLD else ""
        lines.append(f"{value:.3f} [{low:.3f}, {high:.3f}] ({100 * interval.level:.4g}% {interval.method}{about})")
    return lines


# fmt: off
@overload
def posterior(
    measure: Measured, counts: Tensor, prior: Prior = ..., draws: int = ..., level: float = ...,
    generator: torch.Generator | None = ..., keep_draws: bool = ..., event_dims: int = ..., *, totals: Totals = ...
) -> Interval: ...
@overload
def posterior(
    measure: Mapping[str, Measured], counts: Tensor, prior: Prior = ..., draws: int = ..., level: float = ...,
    generator: torch.Generator | None = ..., keep_draws: bool = ..., event_dims: int = ..., *, totals: Totals = ...
) -> dict[str, Interval]: ...
# fmt: on
@computed_on_cpu
def posterior(
    measure: Measured | Mapping[str, Measured],
    counts: Tensor,
    prior: Prior = "auto",
    draws: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
    keep_draws: bool = False,
    event_dims: int = 2,
    *,
    totals: Totals = "drawn",
) -> Interval | dict[str, Interval]:
    """Compute the posterior interval of a measure, given counts of independent samples.

    The rates of each true class have a Dirichlet distribution; the values of the measure on draws of the rates give
    equal-tailed bounds. They are widened so that they cover the true value about as often as ``level`` says, and always
    include the estimate. The page "Intervals" describes priors and widening, the page "Coverage of 95% intervals" the
    coverage in simulations.

    Means over classes leave out classes without targets; the bounds of a value that depends only on such a class are
    nan. Use :func:`bootstrap` with clusters for samples that resemble each other, also for labels of the same samples.

    Args:
        measure: name in the catalogue, averaged as in a report: of two classes, recall is that of the positive class
            (``functools.partial(imbtorch.recall, average="macro")`` is the mean of both), and ``event_dims=3`` averages
            over labels. Or function of ``[..., K, K]`` with one value ``[...]``, or several values such as
            ``[..., K]``, for each matrix; functions of this package are averaged like their names. Or name -> measure,
            all of the same draws. From 16 classes on, measures that take :class:`~imbtorch.Margins` get them, which is
            many times as fast.
        counts: ``[..., K, K]`` whole counts, neither rates nor sums of weights.
        prior: prior of each class: ``"jeffreys"`` for values of single classes, ``"pooled"`` for averages over classes,
            ``"auto"`` chooses one of them by the shape of the value; ``"uniform"``; or pseudo-counts ``[K, K]``.
        draws: number of draws.
        level: nominal coverage of the interval, in (0, 1).
        generator: source of randomness, on the CPU; by default torch's.
        keep_draws: keep the values of the draws.
        event_dims: number of last dimensions of the counts that one value is made of: 2 for a matrix, 3 for a measure
            that computes one value from all labels of ``[..., L, 2, 2]``.
        totals: ``"drawn"`` if the samples are a random sample of the population, so that class totals are uncertain;
            ``"fixed"`` if classes were sampled by quota, or the value at these class shares is meant.

    Returns:
        :class:`Interval`, or name -> interval, on the CPU.

    Raises:
        ValueError: for counts that are NaN, infinite, negative or not whole, such as sums of weights, whose numbers of
            samples are unknown (intervals covered 0.80 to 0.84), a level outside (0, 1), fewer than 2 samples, values
            that do not fit the counts, an unknown ``totals`` or ``prior``, and pseudo-counts that do not fit or are not
            positive.

    Source: Brodersen et al. (2010), The balanced accuracy and its posterior distribution.

    >>> from imbtorch import balanced_accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> print(posterior(balanced_accuracy, torch.tensor([[90, 10], [1, 9]]), generator=generator))
    balanced_accuracy 0.900 [0.754, 0.952] (95% posterior)
    """
    wide = checked_whole(counts, event_dims)
    measures = measures_of_counts(measure, wide, event_dims)
    found = posterior_of(measures, wide, draws, level, generator, prior, keep_draws, event_dims, totals)
    return _named(found, measures, measure)


@computed_on_cpu
def posterior_of(
    measures: Mapping[str, Measure],
    counts: Tensor,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    prior: Prior = "auto",
    keep_draws: bool = False,
    event_dims: int = 2,
    totals: Totals = "drawn",
) -> dict[str, Interval]:
    """Compute posterior intervals without names, given float64 counts that need not be whole."""
    check_draws(draws, level, generator)
    check_choice("totals", totals, get_args(Totals))
    check_prior(prior, counts.shape[-1])
    source = CountsPosterior(counts, prior, totals)
    return _drawn(measures, counts, source, (counts, totals), draws, level, generator, keep_draws, event_dims)


def _named(
    found: Mapping[str, Interval], measures: Mapping[str, Measure], given: Measured | Mapping[str, Measured]
) -> Interval | dict[str, Interval]:
    """Return intervals with the names of their measures."""
    named = {name: replace(interval, measure=measure_text(measures[name])) for name, interval in found.items()}
    return named if isinstance(given, Mapping) else named[""]


def _drawn(
    measures: Mapping[str, Measure],
    counts: Tensor,
    source: CountsPosterior,
    independent: tuple[Tensor, Totals],
    draws: int,
    level: float,
    generator: torch.Generator | None,
    keep_draws: bool,
    event_dims: int,
) -> dict[str, Interval]:
    """Compute intervals from draws of a posterior; the bias is that of test sets like ``independent`` counts."""
    measured = {name: _Measured(each, counts, event_dims, source) for name, each in measures.items()}
    at_mean, recalls = _evaluate(list(measured.values()), source, draws, generator)
    if recalls is not None and event_dims == 2:
        plain = [(each, getattr(each.measure, "unweighted", each.measure)) for each in measured.values()]
        averages = [(each, one) for each, one in plain if each.kind == "average" and reads_margins(one, counts)]
        several = (counts.sum(-1) > 0).sum(-1) > 2  # two classes have another prior
        biases = simulated_bias([one for _, one in averages], *independent)
        for (each, _), bias in zip(averages, biases, strict=True):
            each.bias = torch.where(several, bias, 0.0)
    return {name: each.interval(counts, at_mean, recalls, level, keep_draws) for name, each in measured.items()}


class _Measured:
    """A measure, with its value on the counts and its values on the draws."""

    def __init__(self, measure: Measure, counts: Tensor, event_dims: int, source: CountsPosterior) -> None:
        self.measure, self.event_dims = measure, event_dims
        self.estimate = self.of(counts)
        self.kind = "class" if self.estimate.ndim > counts.ndim - event_dims else "average"
        self.margins = not needs_matrix(measure)
        self.sized = source.sizes is not None and not self._reads_rows(counts + 1)
        self.drawn: dict[str, list[Tensor]] = {}
        self.bias: Tensor | None = None

    def of(self, counts: Counts) -> Tensor:
        """Compute values of counts."""
        return values(self.measure, counts, self.event_dims)

    def _reads_rows(self, counts: Tensor) -> bool:
        """Return whether values depend on the rates of each true class alone, as recalls do; counts must hold all."""
        factors = torch.arange(1.0, counts.shape[-1] + 1, dtype=counts.dtype, device=counts.device).unsqueeze(-1)
        return torch.allclose(self.of(counts), self.of(counts * factors), equal_nan=True)

    def interval(
        self,
        counts: Tensor,
        at_mean: Mapping[tuple[str, bool], Tensor],
        recalls: Tensor | None,
        level: float,
        keep_draws: bool,
    ) -> Interval:
        """Compute the outermost bounds of all variants of the draws, moved outwards for curvature, dispersion and bias.

        Args:
            counts: counts of the posterior.
            at_mean: kind of measure, and whether it reads columns -> mean draw.
            recalls: ``[samples, ..., K]`` recalls of the draws with the pooled prior, or None.
            level: nominal coverage of the interval.
            keep_draws: whether the interval keeps the draws.
        """
        parts = {variant: torch.cat(some) for variant, some in self.drawn.items()}
        ends = [quantiles(each, level) for each in parts.values()]
        low = torch.stack([end[0] for end in ends]).amin(0)
        high = torch.stack([end[1] for end in ends]).amax(0)
        plain, at_mean_draw = parts["plain"], self.of(at_mean[self.kind, self.sized])
        perfect = self.of(torch.diag_embed(counts.sum(-1)))  # nan for a class that has neither targets nor predictions
        lower, upper = moved_outwards(low, high, 2 * (at_mean_draw - plain.mean(0)))  # infinite draws have no mean
        if self.kind == "average" and recalls is not None:
            wider = self._dispersion(plain, recalls, counts, level)
            spread = [wider * (end - at_mean_draw) for end in (low, high)]
            spread = [torch.where(each.isfinite(), each, 0.0) for each in spread]
            lower, upper = (
                torch.minimum(lower, self.estimate + spread[0]),
                torch.maximum(upper, self.estimate + spread[1]),
            )
        if self.bias is not None:
            lower, upper = moved_outwards(lower, upper, -self.bias)
        least, most = (torch.stack([end(each, 0) for each in parts.values()]) for end in (torch.amin, torch.amax))
        low = torch.minimum(low, torch.maximum(lower, torch.fmin(least.amin(0), perfect)))
        high = torch.maximum(high, torch.minimum(upper, torch.fmax(most.amax(0), perfect)))
        low, high = outermost(low, high, self.estimate)
        absent = (counts.sum(-1) == 0).flatten(counts.ndim - self.event_dims).any(-1)
        absent = absent.reshape((*absent.shape, *[1] * (low.ndim - absent.ndim)))
        unknown = absent & (high - low <= 1e-12)  # equal in all draws: it depends only on a class without targets
        low, high = torch.where(unknown, torch.nan, low), torch.where(unknown, torch.nan, high)
        return Interval(self.estimate, low, high, level, "posterior", plain if keep_draws else None, self.bias)

    def _dispersion(self, drawn: Tensor, recalls: Tensor, counts: Tensor, level: float) -> Tensor:
        """Compute the ratio of the dispersion of test sets' values about the truth to the dispersion of the draws.

        A recall of n samples has the variance r (1 - r) / n, its draws with a prior of one sample r (1 - r) / (n + 2).
        That variance is an estimate as well, with few degrees of freedom by Welch and Satterthwaite. The weight of a
        class is its squared correlation with the value.
        """
        places = tuple(range(-self.event_dims + 1, 0))
        share = class_shares(drawn, recalls, places)
        size = counts.sum(-1)
        share = torch.where((size > 0).sum(-1, keepdim=True) > 2, share, 0.0)  # two classes have another prior
        freedom = 1 / (share**2 / (size - 1).clamp(min=1)).sum(places)
        student = student_quantile(level, freedom.clamp(LEAST_FREEDOM, 1e6).cpu()) / normal_quantile(level)
        return student.to(size.device) * (1 + ratio(2 * share, size).sum(places)).sqrt()


def simulated_bias(measures: Sequence[Measure], counts: Counts, totals: Totals) -> list[Tensor]:
    """Estimate the bias of averages that read margins, from test sets simulated with shrunk rates.

    The larger of two noisy numbers, targets and predictions, is too large on average; so IAM and CBA are too low. A
    difference within two standard errors of the simulation counts as no bias. Measures of recalls alone have none but
    that of the curvature, which the draws of a posterior show.

    Args:
        measures: functions of :class:`Margins` ``[..., K]`` with one value for each.
        counts: ``[..., K, K]`` counts or margins.
        totals: ``"drawn"`` or ``"fixed"`` class totals.

    Returns:
        ``[...]`` mean value of test sets less the value of the rates from which they are drawn, for each measure.
    """
    if not measures:
        return []
    truth, chances = _shrunk(margins(counts), totals)
    generator = torch.Generator(truth.actual.device).manual_seed(0)  # its own: draws seeded elsewhere stay as they are
    parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in measures]
    for size in chunks(SIMULATED, truth.actual.numel(), truth.actual.device, joint=1):
        actual = truth.actual.expand(size, *truth.actual.shape)
        if totals == "drawn":
            actual = multinomial(truth.actual, actual.sum(-1).round(), generator)
        right = torch.binomial(actual, ratio(truth.correct, truth.actual).expand_as(actual), generator=generator)
        false = multinomial(chances, (actual - right).sum(-1), generator)
        sets = Margins(right, actual, right + false), Margins(right, actual, actual)
        for measure, some in zip(measures, parts, strict=True):
            some.append((values(measure, sets[0]), values(measure, sets[1])))
    found = []
    for measure, some in zip(measures, parts, strict=True):
        drawn, by_recalls = (torch.cat(column) for column in zip(*some, strict=True))
        bias = drawn.nanmean(0) - values(measure, truth)
        error = (drawn - drawn.nanmean(0)).square().nanmean(0).sqrt() / math.sqrt(SIMULATED)
        noise = (bias.abs() <= 2 * error) | bias.isnan() | torch.allclose(drawn, by_recalls, equal_nan=True)
        found.append(torch.where(noise, 0.0, bias))
    return found


def _shrunk(counts: Margins, totals: Totals) -> tuple[Margins, Tensor]:
    """Shrink recalls, false-positive rates and drawn totals to their means, until they vary as the classes truly do.

    Rates of small classes vary by chance as well. What they vary more than binomial (recalls) or Poisson numbers (false
    positives) do is the variance of the classes. Return margins, and the false positives.
    """
    right, actual, predicted = counts
    recalls = _shrunk_rates(right, actual, lambda mean: mean * (1 - mean)).clamp(max=1)
    others = actual.sum(-1, keepdim=True) - actual
    false = _shrunk_rates(predicted - right, torch.where(actual + predicted > 0, others, 0.0), lambda mean: mean)
    false = false * others
    size = torch.where(actual > 0, actual.round().clamp(min=1), 0.0)
    if totals == "drawn":
        size = _shrunk_rates(size, (actual > 0).double(), lambda mean: mean)
    hits = size * recalls
    false = false * ratio((size - hits).sum(-1, keepdim=True), false.sum(-1, keepdim=True))
    return Margins(hits, size, hits + false), false


def _shrunk_rates(events: Tensor, trials: Tensor, variance: Callable[[Tensor], Tensor]) -> Tensor:
    """Shrink rates ``[..., K]`` of events to their mean, so that they keep the variance not explained by chance."""
    known = trials > 0
    number = known.sum(-1, keepdim=True)
    rates = ratio(events, trials)
    mean = ratio(rates.sum(-1, keepdim=True), number.double())
    chance = ratio(variance(mean).expand_as(trials), trials)
    apart = torch.where(known, (rates - mean) ** 2 - chance, 0.0).sum(-1, keepdim=True)
    between = ratio(apart, number - 1.0).clamp(min=0)
    kept = ratio(between.expand_as(chance), between + chance).sqrt()
    return torch.where(known, mean + kept * (rates - mean), 0.0).clamp(min=0)


def _evaluate(
    measured: list[_Measured], source: CountsPosterior, draws: int, generator: torch.Generator | None
) -> tuple[dict[tuple[str, bool], Tensor], Tensor | None]:
    """Let measures read the draws; return the mean draw of each kind of measure, and the recalls drawn for averages."""
    kinds = sorted({each.kind for each in measured})
    empty = torch.zeros(source.shape, dtype=torch.float64, device=source.rows.device)
    rates = {(each.kind, each.sized): empty.clone() for each in measured}
    totals = torch.zeros_like(source.actual)
    ways = sorted({(each.kind, each.margins, each.sized) for each in measured})
    recalls: list[Tensor] = []
    first = ways[0] if source.pooled and source.size > 2 and kinds[0] == "average" else None
    sizes = source.chunks(draws, matrices=not all(each.margins for each in measured))
    for size in announced(sizes, draws, "posterior intervals", FASTER):
        some = source.draw(size, generator, kinds)
        totals += some.totals.sum(-1) / draws
        for (kind, sized), summed in rates.items():
            summed += some.sum_of_rates(kind, sized) / draws
        for way, variant in itertools.product(ways, source.variants):
            counts = some.counts(way[0], variant, margins=way[1], sized=way[2])
            if (way, variant) == (first, "plain"):
                right, actual, _ = margins(counts)
                recalls.append(ratio(right, actual))
            for each in measured:
                if (each.kind, each.margins, each.sized) == way:
                    each.drawn.setdefault(variant, []).append(each.of(counts))
    at_mean = {each: source.mean(summed, totals) for each, summed in rates.items()}
    return at_mean, torch.cat(recalls) if recalls else None


# fmt: off
@overload
def bootstrap(
    measure: Measured, counts: Tensor, draws: int = ..., level: float = ..., stratified: bool = ...,
    generator: torch.Generator | None = ..., keep_draws: bool = ..., event_dims: int = ..., *, clusters: bool = ...
) -> Interval: ...
@overload
def bootstrap(
    measure: Mapping[str, Measured], counts: Tensor, draws: int = ..., level: float = ..., stratified: bool = ...,
    generator: torch.Generator | None = ..., keep_draws: bool = ..., event_dims: int = ..., *, clusters: bool = ...
) -> dict[str, Interval]: ...
# fmt: on
@computed_on_cpu
def bootstrap(
    measure: Measured | Mapping[str, Measured],
    counts: Tensor,
    draws: int = 10_000,
    level: float = 0.95,
    stratified: bool = False,
    generator: torch.Generator | None = None,
    keep_draws: bool = False,
    event_dims: int = 2,
    *,
    clusters: bool = False,
) -> Interval | dict[str, Interval]:
    """Compute the bootstrap interval of a measure, from resampled test sets or clusters.

    Resampling the cells of the matrix has the same distribution as resampling the samples, at a cost that does not
    depend on their number. For rare classes use :func:`posterior`: a class without errors in the test set has none in
    any resample.

    With ``clusters=True`` whole clusters are resampled, such as the visits of a patient or the pixels of an image,
    which resemble each other. The page "Intervals" describes how their bounds are widened. ``method`` of the result
    names the largest cluster if it is more than thrice as large as the mean: where recalls fall with the size of
    clusters, intervals are too narrow (see the page "Coverage of 95% intervals").

    Args:
        measure: name in the catalogue, function of counts, or name -> measure, all of the same resamples; as in
            :func:`posterior`.
        counts: ``[..., K, K]`` whole counts.
        draws: number of resamples.
        level: nominal coverage of the interval, in (0, 1).
        stratified: keep the number of targets of each class.
        generator: source of randomness, on the CPU; by default torch's.
        keep_draws: keep the values of the resamples.
        event_dims: number of event dimensions, as in :func:`posterior`.
        clusters: True if counts are ``[..., M, K, K]`` of M clusters, which are resampled as wholes.

    Returns:
        :class:`Interval`, or name -> interval, on the CPU.

    Raises:
        ValueError: for counts that are NaN, infinite, negative or not whole, a level outside (0, 1), fewer than 2
            samples, values that do not fit the counts, and fewer than 2 clusters or stratified ones.

    Source: Efron and Tibshirani (1993), An introduction to the bootstrap, ch. 13.

    >>> from imbtorch import accuracy
    >>> generator = torch.Generator().manual_seed(0)
    >>> print(bootstrap(accuracy, torch.tensor([[90, 10], [1, 9]]), generator=generator))
    accuracy 0.900 [0.845, 0.955] (95% bootstrap)

    Labels of one sample resemble each other as well. Counts ``[N, L, 2, 2]`` of N samples, each a cluster, with
    ``event_dims=3`` give the interval of a mean over L labels for any correlation between them:

    >>> from imbtorch import f_score
    >>> target = torch.rand(200, 5, generator=generator) < 0.3
    >>> hard = torch.rand(200, 1, generator=generator) < 0.2  # samples on which all labels are wrong
    >>> preds = target ^ hard
    >>> cells = 2 * target.long() + preds.long()
    >>> counts = torch.nn.functional.one_hot(cells, 4).reshape(200, 5, 2, 2)
    >>> def macro_f1(counts):
    ...     return f_score(counts).mean(-1)
    >>> print(bootstrap(macro_f1, counts, generator=generator, clusters=True, event_dims=3))
    macro_f1 0.813 [0.754, 0.869] (95% cluster bootstrap)
    >>> print(posterior(macro_f1, counts.sum(0), generator=generator, event_dims=3))  # assumes independent labels
    macro_f1 0.813 [0.782, 0.835] (95% posterior)
    """
    wide = checked_whole(counts, event_dims)
    measures = measures_of_counts(measure, wide, event_dims)
    if clusters:
        if stratified:
            raise ValueError("stratified=True keeps class totals, which clusters=True cannot; choose one of them")
        if wide.ndim < event_dims + 1 or wide.shape[-event_dims - 1] < 2:
            raise ValueError(f"counts must be [..., M, K, K] of M >= 2 clusters, got {list(wide.shape)}")
        held = wide.flatten(-event_dims).any(-1).reshape(-1, wide.shape[-event_dims - 1]).any(0)
        if int(held.sum()) < 2:
            raise ValueError(f"counts must hold samples in at least 2 clusters, got {int(held.sum())} of {len(held)}")
        wide = wide.index_select(wide.ndim - event_dims - 1, held.nonzero().flatten())
        warn_of_large_cluster("bootstrap", wide.flatten(-event_dims).sum(-1))
        found = of_clusters(measures, wide, draws, level, generator, keep_draws, event_dims)
        return _named(found, measures, measure)
    found = bootstrap_of(measures, wide, draws, level, generator, stratified, keep_draws, event_dims)
    return _named(found, measures, measure)


@computed_on_cpu
def bootstrap_of(
    measures: Mapping[str, Measure],
    counts: Tensor,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    stratified: bool = False,
    keep_draws: bool = False,
    event_dims: int = 2,
) -> dict[str, Interval]:
    """Compute bootstrap intervals without names, given float64 counts of independent samples."""
    check_draws(draws, level, generator)
    cells = counts if stratified else counts.flatten(-2).unsqueeze(-2)  # [..., strata, cells]
    sizes = announced(chunks(draws, counts.numel(), counts.device), draws, "bootstrap intervals", FASTER)
    totals = cells.sum(-1)
    resamples = (multinomial(cells, totals.expand(size, *totals.shape), generator) for size in sizes)
    drawn = _values_of(measures, (some.reshape(len(some), *counts.shape) for some in resamples), event_dims)
    method, found = "stratified bootstrap" if stratified else "bootstrap", {}
    for name, each in measures.items():
        ends = quantiles(drawn[name], level)
        estimate = values(each, counts, event_dims)
        found[name] = Interval(estimate, *ends, level, method, drawn[name] if keep_draws else None)
    return found


def _values_of(measures: Mapping[str, Measure], drawn: Iterable[Tensor], event_dims: int) -> dict[str, Tensor]:
    """Compute the values of all resamples, by name."""
    found: dict[str, list[Tensor]] = {name: [] for name in measures}
    for some in drawn:
        for name, each in measures.items():
            found[name].append(values(each, some, event_dims))
    return {name: torch.cat(parts) for name, parts in found.items()}


def of_clusters(
    measures: Mapping[str, Measure],
    clusters: Tensor,
    draws: int,
    level: float,
    generator: torch.Generator | None,
    keep_draws: bool,
    event_dims: int,
    hashed: int = 0,
) -> dict[str, Interval]:
    """Compute the outermost bounds of resampled clusters, stretched, and of the posterior of effective samples.

    Clusters are float64 ``[..., M, K, K]``, all with samples, and need not be whole; see :func:`bootstrap`. They may be
    those of ``hashed`` buckets that hold samples.
    """
    check_draws(draws, level, generator)
    counts = clusters.sum(-event_dims - 1)
    resampled = _values_of(measures, clusters_drawn(clusters, draws, generator, event_dims), event_dims)
    worth = effective_samples(clusters, event_dims, hashed)
    sizes = sizes_of_errors(clusters, event_dims, hashed)
    source = CountsPosterior(counts, "auto", "fixed", worth, sizes)
    independent = counts * ratio(worth, counts.sum(-1)).unsqueeze(-1)
    by_class = _drawn(measures, counts, source, (independent, "drawn"), draws, level, generator, True, event_dims)
    right, sizes_of_all = torch.diag_embed(counts.sum(-1)), clusters.flatten(-event_dims).sum(-1)
    largest = largest_cluster(sizes_of_all, hashed=hashed)
    method = f"cluster bootstrap; {largest}, {TOO_NARROW}" if largest else "cluster bootstrap"
    found = {}
    for name, measure in measures.items():
        drawn, own = resampled[name], by_class[name]
        if (weight := recall_weights(measure, counts)) is not None:
            low, high = bounds_of_recalls(clusters.diagonal(dim1=-2, dim2=-1), clusters.sum(-1), weight, level, hashed)
            named = method.replace("cluster bootstrap", OF_MEANS)
            found[name] = Interval(own.estimate, low, high, level, named, drawn if keep_draws else None)
            continue
        estimate, (low, high) = own.estimate, quantiles(drawn, level, of_defined=True)
        wider, finite = stretch(measure, clusters, counts, level, event_dims), estimate.isfinite()
        low, high = (torch.where(finite, estimate + wider * (end - estimate), end) for end in (low, high))
        low, high = moved_outwards(low, high, 2 * (estimate - drawn.nanmean(0)))
        if own.bias is not None:
            low, high = moved_outwards(low, high, -own.bias)
        assert own.draws is not None
        ends = [values(measure, each, event_dims).unsqueeze(0) for each in (right, right.roll(1, -1))]
        reached = torch.cat((drawn, own.draws, *ends))
        reached = torch.where(reached.isnan(), estimate, reached)
        low = torch.minimum(torch.maximum(low, reached.amin(0)), own.low)
        high = torch.maximum(torch.minimum(high, reached.amax(0)), own.high)
        found[name] = Interval(estimate, low, high, level, method, drawn if keep_draws else None, own.bias)
    return found


def largest_cluster(sizes: Tensor, times: float = LARGE, hashed: int = 0) -> str:
    """Name the share of the largest cluster if it is so many times as large as the mean; else return an empty text.

    Args:
        sizes: samples of each cluster, ``[..., M]``; of several problems, the one with the largest share counts.
        times: least ratio of the largest to the mean size.
        hashed: number of buckets, also of empty ones, if the sizes are those of buckets that a hash filled; 0 for
            clusters. The largest then also holds more than a hash may put together of clusters of equal sizes.
    """
    number = sizes.shape[-1]
    share = ratio(sizes.amax(-1).double(), sizes.sum(-1).double()).max().item() if sizes.numel() else 0.0
    large = share * number > times and share >= LEAST
    if large and number < hashed:
        clusters = math.log1p(-number / hashed) / math.log1p(-1 / hashed)  # that fill so many buckets on average
        together = itertools.count(1)
        most = next(each for each in together if hashed * special.pdtrc(each, clusters / hashed) < COLLISION)
        large = share * clusters > most + 0.5
    return f"the largest of {number} clusters holds {100 * share:.2g}%" if large else ""


def large_cluster_text(largest: str) -> str:
    """Return a text on what the largest cluster, which a text names, does to intervals."""
    return (
        f"{largest} of the samples; if values fall with the size of clusters, intervals are too narrow, as "
        "larger clusters may not have come (in simulations 95% intervals then covered 0.70 to 0.98)"
    )


def warn_of_large_cluster(name: str, sizes: Tensor) -> None:
    """Warn of clusters with so uneven sizes that intervals may be too narrow."""
    if largest := largest_cluster(sizes, HEAVY):
        warn_caller(f"{name}: {large_cluster_text(largest)}")


def stretch(measure: Measure, clusters: Tensor, pooled: Tensor, level: float, event_dims: int) -> Tensor:
    """Compute the factor by which percentiles of resampled clusters are too narrow, for each value of the measure."""
    number = clusters.shape[pooled.ndim - event_dims]
    _, freedom = jackknife(measure, clusters, pooled, event_dims)
    wider = student_quantile(level, freedom.cpu()) / normal_quantile(level)
    return wider.to(pooled.device) * math.sqrt(number / (number - 1))


def jackknife(measure: Measure, clusters: Tensor, pooled: Tensor, event_dims: int) -> tuple[Tensor, Tensor]:
    """Compute the variance of values from their changes when a cluster is left out, and its degrees of freedom.

    Args:
        measure: function of counts.
        clusters: ``[..., M, K, K]`` counts of M clusters, with ``event_dims`` dimensions after M.
        pooled: their sum.
        event_dims: number of event dimensions, as in :func:`posterior`.
    """
    place = pooled.ndim - event_dims  # dimension of the clusters
    number = clusters.shape[place]
    rest = pooled.unsqueeze(place)
    parts = torch.split(clusters, chunks(number, pooled.numel(), pooled.device), place)
    change = torch.cat([values(measure, rest - part, event_dims) for part in parts], place)
    squares = ((change - change.nanmean(place, keepdim=True)) ** 2).nan_to_num()  # undefined without a class's cluster
    total = squares.sum(place)
    freedom = (3 * total**2 / (squares**2).sum(place) - 3).nan_to_num(number)  # nan if nothing changes
    return total * (number - 1) / number, freedom.clamp(min(2, number - 1), number - 1)


# --- shared with other modules --------------------------------------------------------------------------------------


def clamped(interval: Interval, least: float, most: float) -> Interval:
    """Keep the bounds of an interval within a range; nan stays."""
    return replace(interval, low=interval.low.clamp(min=least), high=interval.high.clamp(max=most))


def outermost(low: Tensor, high: Tensor, *ends: Tensor) -> tuple[Tensor, Tensor]:
    """Widen bounds where necessary, so that they include further values; nan stays."""
    for end in ends:
        low, high = torch.minimum(low, end), torch.maximum(high, end)
    return low, high


def moved_outwards(low: Tensor, high: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outermost of bounds and of the same bounds shifted; an infinite shift is left out."""
    shift = torch.where(shift.isfinite(), shift, 0.0)
    return torch.minimum(low, low + shift), torch.maximum(high, high + shift)


def class_shares(drawn: Tensor, recalls: Tensor, places: tuple[int, ...]) -> Tensor:
    """Compute the share of each class in the variance of a value: the squared correlation with its recall.

    Args:
        drawn: ``[S, ...]`` values of the draws.
        recalls: ``[S, ..., K]`` recalls of the draws.
        places: dimensions of the classes, the last ones.
    """
    own = drawn - drawn.mean(0)
    own = own.reshape(*own.shape, *[1] * len(places))
    apart = recalls - recalls.mean(0)
    share = ratio((own * apart).sum(0) ** 2, (own**2).sum(0) * (apart**2).sum(0))
    share = (share.nan_to_num(0) - 1 / len(drawn)).clamp(min=0)  # expected for independent draws
    return share / share.sum(places, keepdim=True).clamp(min=1)


def check_draws(draws: int, level: float, generator: torch.Generator | None) -> None:
    """Raise for an invalid number of draws, level or generator."""
    if whole_number("draws", draws) < 2:
        raise ValueError(f"draws must be at least 2, got {draws!r}")
    check_level(level)
    check_generator(generator)


def check_level(level: float) -> None:
    """Raise for a level outside (0, 1)."""
    if not 0 < real_number("level", level) < 1:
        remedy = f"; write {level / 100:g}" if 1 < level < 100 else ""
        raise ValueError(f"level must lie in (0, 1), got {level!r}{remedy}")


def values(measure: Callable[..., Tensor], counts: Counts, event_dims: int = 2) -> Tensor:
    """Compute values of a measure in float64; their leading dimensions must be those of the counts."""
    value = checked_function(measure)(counts)
    shape = (*counts.actual.shape, 1) if isinstance(counts, Margins) else counts.shape
    lead = shape[: len(shape) - event_dims]
    if not isinstance(value, Tensor) or value.shape[: len(lead)] != lead:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"measure must return one value for each matrix, {list(lead)}, or several, {[*lead, '...']}, got {got}"
        )
    return value.double()


def quantiles(drawn: Tensor, level: float, of_defined: bool = False) -> tuple[Tensor, Tensor]:
    """Compute equal-tailed bounds over the first dimension, nan if any value is.

    ``torch.quantile`` takes at most 16 million values.

    Args:
        drawn: ``[S, ...]`` values.
        level: probability between the bounds.
        of_defined: leave out nan; bounds are then nan only if all values are.
    """
    ordered = drawn.sort(0).values
    last = (~ordered.isnan()).sum(0) - 1  # nan is sorted last, as if it were high
    if not of_defined:
        ordered, last = torch.where(last < len(drawn) - 1, math.nan, ordered), torch.full_like(last, len(drawn) - 1)
    bounds = []
    for q in ((1 - level) / 2, (1 + level) / 2):
        place = q * last.double().clamp(min=0)
        below, above = (ordered.gather(0, each.long().unsqueeze(0))[0] for each in (place.floor(), place.ceil()))
        share = place % 1
        bounds.append(torch.where(below == above, below, (1 - share) * below + share * above))  # both may be infinite
    return bounds[0], bounds[1]
