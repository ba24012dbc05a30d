"""Sweep of a binary measure over all thresholds, from one histogram of scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import Task
from imbtorch.counting.batches import Batch
from imbtorch.counting.tasks import Counter
from imbtorch.deciding.costs import Costs
from imbtorch.deciding.histogram import Hidden, Histogram
from imbtorch.deciding.rules import Threshold
from imbtorch.deciding.sweep_result import SweepResult, result_of_histogram
from imbtorch.deciding.sweep_settings import Also, SweepSettings
from imbtorch.measures.named import Measured
from imbtorch.metrics.base import OnInvalid, TaskOptions, TorchmetricsArguments, canonical
from imbtorch.metrics.deciding import DecidingSweep, of_last_result
from imbtorch.metrics.shared_result import PREVALENCE, ReportedValue
from imbtorch.metrics.state import Setting
from imbtorch.reports.rows import PROMISED, Row


class ThresholdSweep(TaskOptions, DecidingSweep):
    """Sweep of a binary measure over all thresholds: it logs the chosen threshold and the value there.

    Update it with the scores of a validation set. In Lightning, log the sweep itself; each checkpoint that is saved
    after a validation holds its threshold::

        self.sweep = ThresholdSweep("f1", prefix="val_")
        self.sweep.update(scores, y)  # in validation_step
        self.log_dict(self.sweep)  # in on_validation_epoch_end: val_threshold and val_value; elsewhere compute()
        self.test.update(self.sweep.rule(scores), y)  # in test_step, also after ckpt_path="best"

    ``sweep.rule`` is a :class:`~imbtorch.Threshold`, a submodule that takes the scores of class 1 and returns 0 and 1
    (multilabel: a threshold for each label; multiclass and areas alone: none). It predicts at 0.5, with a warning,
    until ``compute`` chooses. Lightning's sanity check, test and predict do not change it; elsewhere do not update it
    with test data. ``sweep.rule.take(sweep.best(...))`` sets another threshold until new samples are computed.

    The logged value is too high, because the same samples chose the threshold; :meth:`interval` corrects it (page "How
    a choice is corrected"). The state is a histogram of scores, by default of 64 kB: AUC and average precision are
    exact to 0.002 unless ``compute`` tells of scores that share a bin (of few ones, on the CPU, from 0.01 on).

    Args:
        measure: name in the catalogue such as ``"f1"``, function of ``[..., 2, 2]`` counts, or a partial of one such as
            ``partial(net_benefit, threshold=0.2)``, for the positive class; left out for areas alone.
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
        costs: ``{"miss": 10, "false_alarm": 1}``, by which the cheapest threshold is chosen, as in :meth:`best`.
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
        lambda sweep: sweep._settings.thresholds.clone(), "Sorted thresholds, float64 ``[T]`` on the CPU."
    )
    also = Setting[tuple[str, ...]]("_settings.also", "Further values.")
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
    class_names = Setting[tuple[str, ...]]("_settings.class_names", "Names of labels or classes.")

    def __init__(
        self,
        measure: Measured | None = None,
        thresholds: int | Tensor | None = None,
        task: Task = "binary",
        *,
        num_labels: int | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        also: Sequence[Also] = (),
        at_least: Mapping[str, float] | None = None,
        alerts: float | None = None,
        costs: Costs | None = None,
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
        settings = SweepSettings.of(
            measure, thresholds, task, num_labels=num_labels, num_classes=num_classes, class_names=class_names,
            also=also, at_least=at_least, alerts=alerts, costs=costs, sure=sure, prevalence=prevalence,
            higher_is_better=higher_is_better, logits=logits, ignore_index=ignore_index, weighted=weighted,
            clusters=clusters,
        )  # fmt: skip
        super().__init__(settings.counting, on_invalid, settings.histogram(), **kwargs)
        self._settings, self._measure, self._prevalence = settings, settings.measure, settings.prevalence
        self._name(self._settings.rows, prefix, postfix)
        self._hidden = Hidden()
        self._axis = 0  # number of dimensions of scores of both classes; 0 for scores of class 1
        initial = [0.5] * len(settings.class_names) if task == "multilabel" else 0.5
        self._own_rule(None if task == "multiclass" or measure is None else Threshold(initial, logits))
        if clusters:
            self._warn_if_large(
                f"{len(settings.thresholds)} thresholds and 64 buckets of clusters", "fewer thresholds="
            )

    if TYPE_CHECKING:
        rule: Threshold

        def result(self) -> SweepResult:
            """Return the last computed result."""

    @property
    def _histogram(self) -> Histogram:
        return cast(Histogram, self._counter)

    def _label(self, index: int) -> str:
        return str(index) if self.task == "binary" else self.class_names[index]

    def _shown_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"measure": self._measure.function} if self._settings.name else {}
        shown |= {} if self._settings.crowded else {"thresholds": len(self._settings.thresholds)}
        costs, prevalence = self._settings.costs, self.prevalence
        lists = {"costs": costs if costs is None else costs.tolist(), "prevalence": prevalence and list(prevalence)}
        own = {name: getattr(self, name) for name in ("also", "at_least", "alerts", "costs", "sure", "prevalence")}
        shown |= {name: value for name, value in (own | lists).items() if value}
        shown |= super()._shown_arguments()
        shown.pop("clusters", None)  # which are the default of metrics of labels, but never of a sweep
        return shown | ({"clusters": True} if self.clusters else {})

    def _settings_text(self) -> str:
        own = (self._measure.settings, self.class_names, self.at_least, self.alerts, self.costs)
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

    def items(self) -> Iterator[tuple[str, ReportedValue]]:
        """Iterate over names and metrics to log; thresholds of several labels or classes stay in ``compute()``."""
        for name, value in super().items():
            if self.task == "binary" or value.row.measure != "threshold":
                yield name, value

    # --- computing --------------------------------------------------------------------------------------------------

    def _counter_of_a_batch(self) -> Counter:
        # another one with clusters, since the bucket of a sample depends on the number before it
        return copy(self._histogram) if self.clusters else self._counter

    def _values_of_a_batch(self, counter: Counter, state: Tensor) -> dict[Row, Tensor]:
        return result_of_histogram(self._settings, cast(Histogram, counter), state, self._hidden).rows

    def compute(self) -> dict[str, Tensor]:
        """Choose a threshold from the scores of all processes (a collective step), compute its value, and set the rule.

        With several labels or classes the names are ``threshold/<label>``, ``value/<label>`` and ``value``, the mean of
        the labels with targets of both classes and a value; it is nan while no threshold keeps the limits of a label.
        Thresholds are float64; torch and NumPy round a Python float to the dtype of the scores.

        Raises:
            ValueError: if there were invalid samples and ``on_invalid="raise"``.
        """
        state = self._state.clone() if self._state.is_cpu else self._copied(self._state)
        counts, faults = self._histogram.counts(state), self._histogram.faults(state)
        actual = counts.sum(-1)
        self._report_problems(faults, actual[:, 1] if self.task == "multiclass" else actual, self._prevalence)
        settings = replace(self._settings, class_axis=self._axis)
        result = result_of_histogram(settings, self._histogram, state, self._hidden)
        self._warn_of_problems(result)
        if self.sure is not None:
            result._warn_if_dependent(PROMISED)
        return self._keep_choice(result, actual.sum().item())

    def _read(self, counter: Counter, preds: Tensor, *others: Any) -> Batch:
        """Read a batch, and note what its bins hide."""
        batch = super()._read(counter, preds, *others)
        axis = preds.ndim * (self._counting.task == "binary" and preds.ndim > batch.target.ndim)
        compiling = torch.compiler.is_compiling()
        if axis != self._axis and (axis or not (compiling or self._update_count)):
            self._axis = axis
            if self.decides and self.rule is not None and not compiling:
                self.rule._mark("class_axis", axis)
        if not compiling:  # a graph that noted anything would be compiled anew
            self._hidden = self._histogram.hidden_with(self._hidden, preds, batch, not self._update_count)
        return batch

    def reset(self) -> None:
        """Set all counts to zero; the rule and the last result stay."""
        super().reset()
        self._hidden = Hidden()

    # --- the last result --------------------------------------------------------------------------------------------

    interval = of_last_result(SweepResult.interval)
    best = of_last_result(SweepResult.best)
    gain = of_last_result(SweepResult.gain)
    metric = of_last_result(SweepResult.metric)
    table = of_last_result(SweepResult.table)

    def plot(self, kind: Any | None = None, ax: Any | None = None) -> Any:
        """Draw the last result: ``sweep.plot("roc")`` draws what ``sweep.result().plot("roc")`` draws.

        Args:
            kind: as for :meth:`SweepResult.plot`. Values, which torchmetrics passes first, are not used.
            ax: matplotlib axes for one picture; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        picture: Any = kind if isinstance(kind, str) else None
        return self.result().plot(picture, ax)
