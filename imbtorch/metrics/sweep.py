"""Sweep of a binary measure over all thresholds, from one histogram of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import Task, in_class_order
from imbtorch.counting.batches import Batch
from imbtorch.counting.kernels import reading_is_free
from imbtorch.counting.logits import PROBABILITIES, crowd_near_zero, near_zero
from imbtorch.counting.tasks import Counting, check_memory
from imbtorch.counts import check_choice, evaluated, ratio, two_by_two
from imbtorch.deciding.curves import by_labels, cells_at, unresolved
from imbtorch.deciding.histogram import Grid, Histogram
from imbtorch.deciding.limits import checked_limits, of_binary_counts
from imbtorch.deciding.points import OperatingPoint
from imbtorch.deciding.rules import Threshold
from imbtorch.deciding.sweep_result import SweepResult
from imbtorch.deciding.sweep_settings import Also, SweepSettings, checked_costs
from imbtorch.deciding.thresholds import worst_value
from imbtorch.intervals.intervals import Interval
from imbtorch.measures.named import Measured, directed
from imbtorch.metrics.base import Counter, OnInvalid, TaskOptions, TorchmetricsArguments, canonical
from imbtorch.metrics.deciding import DecidingSweep
from imbtorch.metrics.shared_result import PREVALENCE
from imbtorch.metrics.state import Setting
from imbtorch.reports.groups import few_samples_text
from imbtorch.reports.rows import PROMISED, Row
from imbtorch.reports.texts import UNSURE, checked_names


class ThresholdSweep(TaskOptions, DecidingSweep):
    """Sweep of a binary measure over all thresholds: it logs the chosen threshold and the value there.

    Update it with the scores of a validation set. In Lightning, log the sweep itself; each checkpoint that is saved
    after a validation holds its threshold::

        self.sweep = ThresholdSweep("f1", prefix="val_")
        self.sweep.update(scores, y)  # in validation_step
        self.log_dict(self.sweep)  # in on_validation_epoch_end: val_threshold and val_value; elsewhere compute()
        self.test.update(self.sweep.rule(scores), y)  # in test_step, also after ckpt_path="best"

    ``sweep.rule`` is a :class:`~imbtorch.Threshold`, a submodule that takes the scores of class 1 and returns 0 and 1
    (multilabel: a threshold for each label; multiclass: none). It predicts at 0.5, with a warning, until ``compute``
    chooses.
    Lightning's sanity check, test and predict do not change it; outside Lightning, do not update the sweep with test
    data. ``sweep.rule.take(sweep.best(...))`` sets another threshold until the next ``compute`` with new samples.

    The logged value is too high, because the same samples chose the threshold; :meth:`interval` corrects it (page "How
    a choice is corrected"). The state is a histogram of scores, by default of 64 kB: AUC and average precision are
    exact to 0.002 unless ``compute`` tells of scores that share a bin (of few ones, on the CPU, from 0.01 on).

    Args:
        measure: name in the catalogue such as ``"f1"``, function of ``[..., 2, 2]`` counts, or ``functools.partial`` of
            one, computed for the positive class. Net benefit needs ``functools.partial(net_benefit, threshold=0.2)``.
        thresholds: number of thresholds, evenly spaced from 0 to 1, or a sorted tensor of probabilities; by default
            4,097, the probabilities of logits from -100 to 100.
        task: ``"binary"``; ``"multilabel"``, with a sweep for each label; or ``"multiclass"``, with a sweep for each
            class against the rest.
        num_labels: number of labels; required for multilabel.
        num_classes: number of classes; required for multiclass.
        class_names: names of the labels or classes, by default their indices.
        also: further values: ``"auc"``, ``"average_precision"``, and ``"partial_auc"`` of the chosen threshold
            (:func:`~imbtorch.statistics.partial_auc`); of several labels also the mean of the first two.
        at_least: constraints under which the threshold is chosen, as name of a measure -> least value. If no threshold
            satisfies them, the worst possible value is logged, with one warning that says what is reachable.
        alerts: greatest share of samples that may be predicted positive; by default no constraint.
        costs: ``[[0, fp], [fn, 0]]``: the threshold with the lowest expected cost is chosen.
        sure: level of a guarantee that the constraints hold in the population (:meth:`best` says which can), such as
            0.9; by default they need to hold on the counted samples only.
        prevalence: class shares of the population for which all values are computed, as in
            :class:`~imbtorch.ImbalanceReport`; of a class against the rest the other classes keep their proportions.
        higher_is_better: direction; by default the attribute of the measure, or True if it has none.
        prefix: text before each name, such as ``"val_"``.
        postfix: text after each name.
        logits: True if scores are logits, False if they are probabilities; never guessed.
        ignore_index: target of the samples to leave out.
        on_invalid: ``"raise"``, or ``"warn"`` to skip invalid samples, such as scores outside [0, 1].
        weighted: whether :meth:`update` takes ``weight``, the weight of each sample.
        clusters: True to choose, correct and hold out whole clusters of samples that resemble each other
            (``update(..., cluster=ids)``; without ids each sample with its positions). 4 MB for each label.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for thresholds that are no sorted probabilities, arguments that do not fit the task, and a measure
            without a direction.
        TypeError: for something that is not a measure.

    >>> sweep = ThresholdSweep("balanced_accuracy", thresholds=11)
    >>> sweep.update(torch.tensor([0.1, 0.2, 0.35, 0.3, 0.8]), torch.tensor([0, 0, 0, 1, 1]))
    >>> sweep.compute()
    {'threshold': tensor(0.2000, dtype=torch.float64), 'value': tensor(0.8333)}
    """

    thresholds = Setting[Tensor](
        lambda sweep: sweep._histogram.grid.thresholds.clone(), "Sorted thresholds, float64 ``[T]`` on the CPU."
    )
    also = Setting[tuple[str, ...]]("_also", "Further values.")
    at_least = Setting[dict[str, float]](
        lambda sweep: {name: limit.bound for name, limit in sweep._settings.limits.items() if limit.least},
        "Constraints under which the threshold is chosen, as name of a measure -> least value.",
    )
    alerts = Setting[float | None](
        lambda sweep: next((limit.bound for limit in sweep._settings.limits.values() if not limit.least), None),
        "Greatest share of samples that may be predicted positive.",
    )
    costs = Setting[Tensor | None](
        lambda sweep: None if sweep._settings.costs is None else sweep._settings.costs.clone(),
        "Costs by which the threshold is chosen.",
    )
    sure = Setting[float | None](lambda sweep: sweep._settings.sure, "Level of a guarantee that the constraints hold.")
    prevalence = PREVALENCE
    class_names = Setting[tuple[str, ...]]("_class_names", "Names of labels or classes.")

    def __init__(
        self,
        measure: Measured,
        thresholds: int | Tensor | None = None,
        task: Task = "binary",
        *,
        num_labels: int | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        also: Sequence[Also] = (),
        at_least: Mapping[str, float] | None = None,
        alerts: float | None = None,
        costs: Tensor | Sequence[Sequence[float]] | None = None,
        sure: float | None = None,
        prevalence: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        higher_is_better: bool | None = None,
        prefix: str = "",
        postfix: str = "",
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        weighted: bool = False,
        clusters: bool = False,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if isinstance(thresholds, str):
            raise TypeError(f"thresholds must be a number or a tensor, got {thresholds!r}; use task={thresholds!r}")
        options: Any = {"weighted": weighted, "clusters": clusters}
        counting = Counting.of(task, num_classes, num_labels, 0.5, logits, ignore_index, **options)
        if class_names is not None and task == "binary":
            raise ValueError(
                "class_names must be left out in task='binary', which reports one threshold and one value; or use "
                "another task"
            )
        grid = Grid.of(thresholds, counting.logits)
        histogram = Histogram(counting, grid, grid.edges)
        if clusters:
            check_memory(histogram.cells, "histograms", "count fewer labels or classes, or fewer thresholds=")
        super().__init__(counting, on_invalid, histogram, **kwargs)
        self._class_names = tuple(
            map(str, range(histogram.labels)) if class_names is None else checked_names(class_names)
        )
        if len(self._class_names) != histogram.labels:
            raise ValueError(f"class_names must hold {histogram.labels} names, got {len(self._class_names)}")
        self._measure = directed(of_binary_counts("measure", measure), higher_is_better)
        evaluated(
            self._measure, torch.ones(3, 2, 2, dtype=torch.float64, device="cpu")
        )  # raises before the first epoch
        self._also = _checked_also(also)
        named = ("0", "1") if task == "binary" else self._class_names
        self._prevalence = (
            None if prevalence is None else counting.checked_prevalence(in_class_order("prevalence", prevalence, named))
        )
        self._settings = SweepSettings(
            counting,
            self._class_names,
            self._measure,
            self._measure.traits.key or str(getattr(self._measure.function, "__name__", "value")),
            grid.thresholds,
            grid.odds,
            self._also,
            self._prevalence,
            crowded=grid.name == DEFAULT,
            limits=checked_limits({} if at_least is None else at_least, alerts),
            costs=checked_costs(costs),
        ).promising(sure)
        if weighted and self._settings.limits:
            raise ValueError(f"at_least and alerts need probabilities, and {UNSURE}")
        self._name(self._settings.rows, prefix, postfix)
        self._lowest: tuple[float, ...] = ()  # least and greatest float64 probability below the lowest edge
        self._axis = 0  # number of dimensions of scores of both classes; 0 for scores of class 1
        self._mixed: Tensor | None = None  # bins with scores of both classes that differ in the first batch
        initial = [0.5] * histogram.labels if task == "multilabel" else 0.5
        self._own_rule(None if task == "multiclass" else Threshold(initial, logits))
        if clusters:
            self._warn_if_large(f"{len(grid.thresholds)} thresholds and 64 buckets of clusters", "fewer thresholds=")

    if TYPE_CHECKING:
        rule: Threshold

        def result(self) -> SweepResult:
            """Return the last computed result."""

    @property
    def _histogram(self) -> Histogram:
        return cast(Histogram, self._counter)

    def _label(self, index: int) -> str:
        return str(index) if self.task == "binary" else self._class_names[index]

    def _shown_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"measure": self._measure.function}
        grid = self._histogram.grid
        shown |= {} if grid.name == DEFAULT else {"thresholds": len(grid.thresholds)}
        costs, prevalence = self._settings.costs, self.prevalence
        lists = {"costs": costs if costs is None else costs.tolist(), "prevalence": prevalence and list(prevalence)}
        own = {name: getattr(self, name) for name in ("also", "at_least", "alerts", "costs", "sure", "prevalence")}
        shown |= {name: value for name, value in (own | lists).items() if value}
        shown |= super()._shown_arguments()
        shown.pop("clusters", None)  # which are the default of metrics of labels, but never of a sweep
        return shown | ({"clusters": True} if self.clusters else {})

    def _settings_text(self) -> str:
        own = (self._measure.settings, self._class_names, self.at_least, self.alerts, self.costs)
        sure = "" if self.sure is None else f" sure={self.sure}"
        return f"{super()._settings_text()} {canonical(own)}{sure}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, *others: Any) -> None:
        """Load counts and rule; refuse the thresholds of other labels."""
        of_rule = [key for key in state_dict if key.startswith(f"{prefix}rule.")]
        if of_rule and (differ := self._other_names(local_metadata.get("names"), ("class_names",))):
            *_, error_msgs = others
            error_msgs.append(f"{of_rule[0]} holds thresholds of other {differ}; build the sweep with the saved names")
            for key in of_rule:
                state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)

    # --- computing --------------------------------------------------------------------------------------------------

    def _counter_of_a_batch(self) -> Counter:
        # another one with clusters, since the bucket of a sample depends on the number before it
        return copy(self._histogram) if self.clusters else self._counter

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        assert isinstance(counter, Histogram)
        counts = counter.counts(state)
        return self._settings.values(counts, self._settings.chosen(counts, self._buckets_of(counter, state)))

    def _buckets_of(self, histogram: Histogram, state: Tensor) -> Tensor | None:
        """Return the counts of each bucket of clusters; None without clusters."""
        return histogram.counts(state, of_buckets=True) if self.clusters else None

    def compute(self) -> dict[str, Tensor]:
        """Compute the best threshold and its value from the scores of all processes (a collective step); set the rule.

        With several labels or classes the names are ``threshold/<label>``, ``value/<label>`` and ``value``, the mean of
        the labels with targets of both classes and a value; it is nan while no threshold keeps the limits of a label.
        Thresholds are float64; torch and NumPy round a Python float to the dtype of the scores.

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        state = self._state.to("cpu", copy=True)
        counts, faults = self._histogram.counts(state), self._histogram.faults(state)
        actual = counts.sum(-1)
        self._report_problems(faults, actual[:, 1] if self.task == "multiclass" else actual, self._prevalence)
        self._warn_of_probabilities(counts)
        self._warn_of_ends(counts)
        self._warn_of_mixed_bins(counts)
        self._warn_of_crowds(counts)
        self._warn_of_limits(counts)
        buckets = self._buckets_of(self._histogram, state)
        chosen = self._settings.chosen(counts, buckets)
        self._warn_of_few_samples(counts, chosen.place.reshape(-1))
        several, values = bool(self._counting.dependent(state)), self._settings.values(counts, chosen)
        settings = replace(self._settings, class_axis=self._axis)
        result = SweepResult(values, counts, settings, chosen, buckets, several)
        if self.sure is not None:
            result._warn_if_dependent(PROMISED)
        return self._keep_choice(result, actual.sum().item())

    def _warn_of_few_samples(self, histogram: Tensor, places: Tensor) -> None:
        """Warn, as a report does, if one error more would change the value at the prevalence far too much."""
        settings, shares = self._settings, self._settings.shares()
        low, high = self._measure.traits.value_range
        known = low is not None and high is not None and low >= -1 and high <= 1
        if shares is None or self.weighted or not known or not self._may_warn("few samples"):
            return
        of_labels = histogram.reshape(len(places), *histogram.shape[-2:])
        counts = two_by_two(*cells_at(of_labels, torch.arange(len(places)), places))

        def samples_text(index: int, most: int) -> str:
            of_label = "" if self.task == "binary" else f" of {self._class_names[most]}"
            return f"{counts[most, index].sum():g} {('negatives', 'positives')[index]}{of_label}"

        names = [row.name for row in settings.rows_of("value")]
        text = few_samples_text(self._measure, names, counts, shares.reshape(-1, 2), (0, 1), samples_text)
        if text:
            self._warn_once("few samples", f"{type(self).__name__}: {text}")

    def _warn_of_limits(self, histogram: Tensor) -> None:
        """Warn if no threshold keeps the limits, and say what is reachable."""
        if not self._settings.limits or not self._may_warn("infeasible"):
            return
        problems = self._settings.problems(histogram)
        if problems:
            worst = worst_value(self._measure.higher_is_better, self._measure.traits.value_range)
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            self._warn_once(
                "infeasible",
                f"{type(self).__name__}: {'; '.join(problems[:3])}{more}; the worst possible value, {worst:g}, is "
                "reported",
            )

    def _warn_of_probabilities(self, histogram: Tensor) -> None:
        """Warn if all logits look like probabilities, which is seen in the bins on any device."""
        if not self.logits or self._histogram.grid.name != DEFAULT or not self._may_warn("probabilities"):
            return
        low, high, slack = 0.0, 1.0, 0
        if self.task == "multiclass":  # log-odds of probabilities against the rest
            others = len(self._class_names) - 1
            low, high, slack = -math.log(others - 1 + math.e), 1 - math.log(others), 2
        edges = self._histogram.grid.edges
        begin, end = torch.bucketize(torch.tensor([low, high], dtype=torch.float64), edges).tolist()
        counts = by_labels(lambda some: some.sum(-2), histogram).reshape(-1, histogram.shape[-1])
        below = torch.nn.functional.pad(counts.double().cumsum(-1), (1, 0))  # scores below each bin, [L, B + 1]
        if bool((below[:, begin - slack] + below[:, -1] - below[:, end + 1]).any()):
            return
        last = ((counts > 0) * torch.arange(counts.shape[-1])).amax(-1).clamp(max=len(edges) - 1)
        largest = (edges[last] - low) / (high - low)
        near = torch.bucketize(low + (high - low) * near_zero(largest), edges, right=True).clamp(min=begin + 1)
        zeros = counts[:, begin].double() * (not slack)
        below_near = below.gather(1, near.unsqueeze(1)).squeeze(1) - zeros
        if crowd_near_zero(below[:, -1], largest, zeros, below_near):
            self._warn_once("probabilities", f"{type(self).__name__}: {PROBABILITIES}")

    def _read(self, counter: Counter, preds: Tensor, *others: Any) -> Batch:
        """Read a batch; note what bins hide: probabilities below the lowest edge, and scores of a first batch."""
        batch = super()._read(counter, preds, *others)
        axis = preds.ndim * (self._counting.task == "binary" and preds.ndim > batch.target.ndim)
        compiling = torch.compiler.is_compiling()
        if axis != self._axis and (axis or not (compiling or self._update_count)):
            self._axis = axis
            if self.decides and not compiling:
                self.rule._mark("class_axis", axis)
        if reading_is_free(preds) and not self._update_count and self._histogram.grid.name == DEFAULT:
            scores = preds if self.task == "multiclass" and not self.logits else cast(Tensor, batch.scores)
            self._mixed = self._histogram.mixed(batch, scores.detach())
        if reading_is_free(preds) and preds.dtype == torch.float64 and not self.logits:
            scores = preds if self.task == "multiclass" else cast(Tensor, batch.scores)
            low = scores[(scores >= 0) & (scores <= self._histogram.grid.edges[0])]
            if low.numel():
                ends = [*self._lowest, *(each.item() for each in low.aminmax())]
                self._lowest = (min(ends), max(ends))
        return batch

    def reset(self) -> None:
        """Set all counts to zero; the rule and the last result stay."""
        super().reset()
        self._lowest, self._mixed = (), None

    @property
    def _asks_for_areas(self) -> bool:
        return bool({"auc", "average_precision"} & {*self.also})

    def _warn_of_ends(self, histogram: Tensor) -> None:
        """Warn if scores of both classes lie beyond an outermost edge, where the histogram cannot tell them apart."""
        if self._histogram.grid.name != DEFAULT or not self._may_warn("crowded"):
            return
        differ = len(set(self._lowest)) > 1  # of 0, and of what float32 rounds to it, all are equal
        ends = histogram[..., [0, -1]].reshape(-1, 2, 2) if self.logits else histogram[..., :1].reshape(-1, 2, 1)
        mixed = ends.bool().all(1, keepdim=True) & (self.logits or differ)
        if bool(mixed.any()):
            samples, edge = ends.mul(mixed).sum().item(), self._histogram.grid.edges[-1 if self.logits else 0].item()
            where = f"a logit of +-{edge:.4g}" if self.logits else f"a probability of {edge:.2g}"
            remedy = "scale or shift the scores" if self.logits else "pass logits with logits=True, scaled or shifted"
            self._warn_once(
                "crowded",
                f"{type(self).__name__}: {samples:g} scores of both classes lie beyond {where} and count as equal, "
                f"although they may differ, so that no threshold separates them; {remedy}. "
                "imbtorch.report ranks any scores exactly",
            )

    def _warn_of_mixed_bins(self, histogram: Tensor) -> None:
        """Warn if AUC loses the order of few scores, which the first batch has shown to differ: not those of trees."""
        if self._mixed is None or not self._may_warn("crowded"):
            return
        of_labels, edges = histogram.reshape(-1, *histogram.shape[-2:]), self._histogram.grid.edges
        label, place = self._mixed // of_labels.shape[-1], self._mixed % of_labels.shape[-1]
        inside = (place > 0) & (place < len(edges))  # those at the ends are told otherwise
        counts = of_labels[label, :, place].double() * inside.unsqueeze(-1)
        pairs = torch.zeros(len(of_labels), dtype=torch.float64).index_add_(0, label, counts.prod(-1))
        lost = ratio(pairs, 2 * of_labels.sum(-1).double().prod(-1)).max().item()
        if lost > FEW_TOLERANCE:
            fullest = counts.prod(-1).argmax()
            above = f"{'a logit of ' * self.logits}{edges[place[fullest] - 1].item():.{4 if self.logits else 10}g}"
            self._warn_once(
                "crowded",
                f"{type(self).__name__}: scores of both classes differ but fall between the same two thresholds, such "
                f"as {counts[fullest].sum().item():g} scores above {above}, so that "
                f"{f'AUC may be off by {lost:.3f}' if self._asks_for_areas else 'no threshold separates them'}; "
                "imbtorch.report ranks any scores exactly",
            )

    def _warn_of_crowds(self, histogram: Tensor) -> None:
        """Warn if the samples of one bin could change AUC or average precision too much."""
        if self._histogram.grid.name != DEFAULT or not self._may_warn("crowded"):
            return

        def worst(some: Tensor) -> Tensor:
            """Return the greatest loss of a bin of each label, the samples in the bin, and its index."""
            held = some.sum(-2).double()
            held[:, 0] = 0.0  # probabilities of the lowest bin are 0, or too small for float32
            held[:, -1].mul_(not self.logits)  # of logits the ends are told
            crowded = held >= CROWD
            lost = torch.where(crowded, unresolved(some), 0.0) if bool(crowded.any()) else torch.zeros_like(held)
            most, place = lost.max(-1)
            return torch.stack((most, held[torch.arange(len(some)), place], place.double()), -1)

        of_labels = by_labels(worst, histogram.reshape(-1, *histogram.shape[-2:]))
        most, samples, place = of_labels[of_labels[:, 0].argmax()].tolist()
        if most <= TOLERANCE:
            return
        index, grid = int(place), self._histogram.grid
        above = f"{'a logit of ' * self.logits}{grid.edges[index - 1]:.{4 if self.logits else 10}g}"
        lie = f"above {above} " + ("count as equal" if index == len(grid.edges) else "fall between two thresholds")
        remedy = "" if self.logits else "; pass logits with logits=True, which float32 resolves better"
        areas = f"AUC or average precision may be off by {most:.3f}"
        harm = areas if self._asks_for_areas else "no threshold separates them"
        self._warn_once(
            "crowded", f"{type(self).__name__}: {samples:g} scores {lie}; unless they are equal, {harm}{remedy}"
        )

    # --- the last result --------------------------------------------------------------------------------------------

    def interval(self, name: str, *, level: float = 0.95, generator: torch.Generator | None = None) -> Interval:
        """Compute the interval of a value of the last result with :meth:`SweepResult.interval`; never communicates.

        Args:
            name: ``"threshold"``, ``"value"``, ``"auc"``, ``"average_precision"`` or ``"partial_auc"``, logged or not.
            level: nominal coverage of the interval, in (0, 1).
            generator: source of randomness, on the CPU; by default one of a fixed seed.
        """
        return self.result().interval(name, level=level, generator=generator)

    def best(
        self,
        at_least: Mapping[str, float] | None = None,
        *,
        alerts: float | None = None,
        costs: Tensor | Sequence[Sequence[float]] | None = None,
        sure: float | None = None,
        generator: torch.Generator | None = None,
    ) -> OperatingPoint | dict[str, OperatingPoint]:
        """Find the best threshold of the last result under constraints; details are in :meth:`SweepResult.best`.

        Args:
            at_least: name of a measure -> least value, such as ``{"recall": 0.8}``. These constraints add to the ones
                of the sweep; ``{}`` removes all constraints of the sweep.
            alerts: greatest share of samples that may be predicted positive.
            costs: ``[[0, fp], [fn, 0]]``: the threshold with the lowest expected cost is then chosen, instead of the
                best value of the measure.
            sure: level of a guarantee that all constraints hold in the population, such as 0.9: only thresholds that
                pass exact binomial tests are then considered (learn then test). The model must not have been chosen on
                the same samples. By default the constraints need to hold on the counted samples only.
            generator: source of randomness, on the CPU; by default torch's.

        Returns:
            :class:`~imbtorch.statistics.OperatingPoint`, or for several labels or classes a dict of their names.

        Raises:
            ValueError: if no threshold satisfies the constraints, or if none can be guaranteed to; the error says what
                is achievable. Also for ``sure`` with ``clusters=True``.
        """
        found = self.result().best(at_least, alerts=alerts, costs=costs, sure=sure, generator=generator)
        self._advise(*([[found]] if isinstance(found, OperatingPoint) else [[*found.values()], "points"]))
        return found

    def metric(
        self,
        cls: Callable[..., M],
        at: OperatingPoint | Mapping[str, OperatingPoint] | None = None,
        **arguments: Any,
    ) -> M:
        """Make a metric with the best threshold of the last result, with :meth:`SweepResult.metric`.

        Args:
            cls: metric class, :class:`~imbtorch.ImbalanceReport` or ``functools.partial`` of one.
            at: operating point of :meth:`best`, to use its threshold instead.
            arguments: further arguments of the metric.
        """
        return self.result().metric(cls, at, **arguments)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the measure of the last result over the thresholds; :meth:`SweepResult.plot` draws the curves as well.

        Args:
            val: not used; the last computed result is drawn.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        return cast("tuple[Any, Any]", self.result().plot("value", ax))


M = TypeVar("M")
DEFAULT = Grid.of(None, False).name
TOLERANCE, FEW_TOLERANCE = 0.002, 0.01  # errors of an area that need no warning: of one bin, of AUC by few scores
CROWD = 100  # number of samples in a bin from which to warn


def _checked_also(also: Sequence[Also]) -> tuple[str, ...]:
    """Check the names of further values and drop repeated ones."""
    if isinstance(also, str):
        raise TypeError(f"also must be a sequence of names, got the string {also!r}; write also=({also!r},)")
    for name in also:
        check_choice("also", name, get_args(Also))
    return tuple(dict.fromkeys(also))
