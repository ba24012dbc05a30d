"""Metric that reports one measure of a confusion matrix, and metric that reports the matrix itself."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from imbtorch.counting.arguments import Layout, Task, Thresholds
from imbtorch.counting.tasks import Counter, Counting
from imbtorch.counts import (
    Counts,
    Margins,
    Normalize,
    check_choice,
    check_square,
    confusion_counts,
    has_float64,
    normalized,
    rescaled,
    sums,
    targets,
)
from imbtorch.intervals.buckets import resample_buckets
from imbtorch.intervals.draws import DRAWS, seeded
from imbtorch.intervals.intervals import Interval, bootstrap_of, posterior_of
from imbtorch.measures import (
    Average,
    accuracy,
    cohen_kappa,
    confusion_entropy,
    expected_cost,
    matthews_corrcoef,
    relative_classifier_information,
)
from imbtorch.measures.named import AveragedMeasure, chosen_average
from imbtorch.measures.traits import CATALOGUE, Traits, declared, traits_of
from imbtorch.metrics.base import (
    CountsMetric,
    LocalCounts,
    MetricArguments,
    OnInvalid,
    TorchmetricsArguments,
    canonical,
)
from imbtorch.metrics.state import Setting
from imbtorch.reports.texts import NO_BUCKETS, UNSURE

# measures of all samples; all others are means over classes, which leave out classes without targets
OVER_SAMPLES = frozenset(
    (accuracy, cohen_kappa, confusion_entropy, expected_cost, matthews_corrcoef, relative_classifier_information)
)


class ConfusionMatrixMetric(LocalCounts):
    """Base of the metrics of one measure: it accumulates a confusion matrix on the device, exact across processes.

    A subclass sets :attr:`measure`, any function of a confusion matrix. The constructor documents the arguments. States
    are not part of ``state_dict`` unless ``persistent(True)`` is called.

    >>> from imbtorch import accuracy
    >>> class ErrorRate(ConfusionMatrixMetric):
    ...     higher_is_better = False
    ...     measure = staticmethod(lambda counts: 1 - accuracy(counts))
    >>> metric = ErrorRate("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.2500)
    """

    average = Setting[str]("_average", "Average over classes or labels.")
    measure_arguments = Setting[dict[str, Any]](
        lambda metric: copy.deepcopy(metric._arguments), "Arguments of the measure beside the counts."
    )

    measure: ClassVar[Callable[..., Tensor]]
    """Function of counts that is reported; a measure of the catalogue supplies the attributes that a class omits."""
    traits: ClassVar[Traits] = Traits()
    """Traits of the measure in the catalogue; the attributes of the class, such as its direction, hold before them."""
    last_margins: Margins | None = None
    """Margins of all processes that the last :meth:`compute` read; None before the first."""
    needs_matrix: bool = True
    """True for a measure that needs the whole matrix; False if it takes :class:`~imbtorch.counts.Margins` too."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the attributes that the class does not declare from the traits of its measure."""
        super().__init_subclass__(**kwargs)
        traits = traits_of(cls.measure) if "measure" in vars(cls) else None
        if traits is None:
            if vars(cls).keys() & {"measure", "evaluate"}:  # which need not take the margins that its base class takes
                cls.needs_matrix = vars(cls).get("needs_matrix", True)
            better = declared(vars(cls).get("measure"), "higher_is_better")
            if better is not None and "higher_is_better" not in vars(cls):
                cls.higher_is_better = better
            return
        if cls.measure in CATALOGUE and METRICS.setdefault(cls.measure, cls) is cls and cls.__doc__:
            cls.__doc__ = _full_docstring(cls)
        low, high = traits.value_range
        known = {"traits": traits, "higher_is_better": traits.higher_is_better, "needs_matrix": traits.needs_matrix}
        for name, value in {**known, "plot_lower_bound": low, "plot_upper_bound": high}.items():
            if name not in vars(cls):
                setattr(cls, name, value)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        average: Average | Literal["auto"] | None = "auto",
        threshold: Thresholds = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        state: Layout = "matrix",
        weighted: bool = False,
        clusters: bool | None = None,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        """Configure the task, the counting and the averaging.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            num_labels: number of labels; required for multilabel.
            average: average over classes or labels: ``"macro"``, ``"weighted"`` by targets, ``"none"`` for one value
                each, ``"micro"`` (sums counts before it divides), ``"binary"`` (the positive class alone), or ``"min"``
                for the lowest value, if the measure has it. ``"auto"`` is ``"binary"`` for precision, recall,
                specificity, F-score, Fowlkes-Mallows, Jaccard and negative predictive value in the binary task, and
                otherwise ``"macro"``. Measures of the whole matrix take an average in the multilabel task only, over
                labels; measures of two classes are averaged over classes, each against the rest, in the multiclass
                task.
            threshold: probability strictly above which 1 is predicted (binary and multilabel). For multilabel also a
                sequence of one threshold for each label, such as those that a :class:`~imbtorch.ThresholdSweep` finds.
            logits: True if floating ``preds`` of the binary and multilabel tasks are logits; never guessed.
            ignore_index: target of the samples that are not counted; any integer. If it is one of the classes, that
                class also takes no part in a mean over classes.
            on_invalid: response to a class out of range, a NaN score, or a probability outside [0, 1]; such samples are
                never counted. ``"raise"``: on the CPU of a single process ``update`` raises an error and leaves the
                counts as they were; on other devices and with several processes ``compute`` raises it, on all processes
                alike, without waiting for the GPU in ``update``; then call ``reset``. ``"warn"``: ``compute`` warns and
                gives the number of such samples.
            state: ``"matrix"`` keeps K x K counts, ``"margins"`` 3 x K (multiclass): 3 MB in place of 123 GB for
                128,256 classes. Measures that need the matrix refuse it.
            weighted: True if ``update`` takes ``weight``, the weights of samples. Counts are then float64 sums of
                weights (not on MPS devices): exact for whole weights with sums below 2**53, which count like repeated
                samples; otherwise rounded, with last digits that depend on the order of samples. Weighted counts have
                no intervals.
            clusters: True to keep counts of 64 buckets of clusters (images, patients), from which ``interval``
                resamples; see :class:`~imbtorch.ImbalanceReport`. By default True in the multilabel task, else False.
            kwargs: arguments of :class:`torchmetrics.Metric`: ``process_group``, ``dist_sync_on_step``,
                ``sync_on_compute``, ``dist_sync_fn``, ``distributed_available_fn``. ``compute_with_cache`` has no
                effect: values are always computed anew.

        Raises:
            ValueError: for an argument that is missing, unknown, or has no meaning for the task or measure.
            TypeError: for an argument of the wrong type.
        """
        counting = Counting.of(
            task, num_classes, num_labels, threshold, logits, ignore_index, state, weighted, None, clusters
        )
        if state == "margins" and self.needs_matrix:
            raise ValueError(
                f"{type(self).__name__} needs the matrix, which state='margins' does not keep; use state='matrix' (a "
                "metric of your own whose measure takes Margins sets needs_matrix = False)"
            )
        chosen = chosen_average(type(self).__name__, declared_traits(type(self)), counting, average)
        super().__init__(counting, on_invalid, **kwargs)
        self._average, self._arguments = chosen, dict[str, Any]()
        over_samples = chosen in ("micro", "weighted") or (task != "multilabel" and type(self).measure in OVER_SAMPLES)
        self.warns_of_unseen = type(self).warns_of_unseen and not over_samples

    def _set_measure_arguments(self, **arguments: Any) -> None:
        """Set the arguments of the measure, which checks them at once, and take its traits given these arguments."""
        measure = type(self).measure
        measure(torch.ones(2, 2, device="cpu"), **arguments)
        self._arguments = arguments
        traits = traits_of(partial(measure, **arguments))
        if traits is None or traits == traits_of(measure):
            return
        self.needs_matrix = traits.needs_matrix
        self.__dict__["higher_is_better"] = traits.higher_is_better  # torchmetrics refuses the assignment
        if traits.needs_matrix and self._counting.layout == "margins":
            given = ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in arguments.items())
            raise ValueError(
                f"{type(self).__name__} with {given} needs the whole matrix, which state='margins' does not keep; use "
                "state='matrix' (a function of your own that takes Margins has an attribute needs_matrix = False)"
            )

    @property
    def _measure(self) -> AveragedMeasure:
        """Measure with this metric's average and arguments; not stored, since a user's function may not pickle."""
        return self._measure_with(self._arguments)

    def _measure_with(self, arguments: dict[str, Any]) -> AveragedMeasure:
        name, function = type(self).__name__, type(self).measure
        return AveragedMeasure(name, function, declared_traits(self), self._counting, self._average, arguments)

    def _arguments_on(self, device: torch.device) -> dict[str, Any]:
        """Return the arguments of the measure, their tensors on a device if this metric keeps them there."""
        return self._arguments

    def _counter_of_a_batch(self) -> Counter:
        return self._counting.of_a_batch(self.needs_matrix)

    def compute(self) -> Tensor:
        """Return the value of the counts of all processes; the measure documents its range and undefined cases.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counting, state = self._counting.on_host(
            self._state, matrix=self.needs_matrix, buckets=False, copy=self._copied
        )
        counts = self._needed(counting.counts(state))
        self._report_problems(counting.faults(state), targets(counts))
        self.last_margins = Margins(*(part.clone() for part in sums(counts)))
        return self._reported(counts)

    def _reported_of_a_batch(self, counter: Counter, state: Tensor) -> Tensor:
        state = state if has_float64(state.device) else state.cpu()
        return self._reported(self._needed(counter.counts(state)))

    def _needed(self, counts: Counts) -> Counts:
        """Return the counts, or their margins if the measure needs no more; warnings then use the same sums."""
        return counts if self.needs_matrix else sums(counts)

    def evaluate(self, counts: Counts) -> Tensor:
        """Compute the measure of any counts of this task: pure, batched and differentiable.

        Args:
            counts: ``[..., K, K]`` or :class:`~imbtorch.counts.Margins`; ``[..., L, 2, 2]`` for multilabel.

        Returns:
            ``[...]``, or ``[..., K]`` with ``average="none"``.
        """
        device = (counts.correct if isinstance(counts, Margins) else counts).device
        return self._measure_with(self._arguments_on(device))(counts)

    def _reported(self, counts: Counts) -> Tensor:
        return self._narrow(self.evaluate(counts))

    def at_prevalence(self, prevalence: Tensor | Sequence[float]) -> Tensor:
        """Return the value in a population with other class shares, from the counts of all processes.

        This is a collective step. It predicts the value in deployment from a rebalanced validation set, assuming that
        the predictions for each true class keep their distribution and only the class shares differ
        (:func:`imbtorch.at_prevalence`). Recall and the measures that depend on recalls alone (balanced accuracy,
        G-mean; for two classes also specificity, dominance and IBA) keep their values; precision, F-score, accuracy,
        CBA, IAM and MCC change. To get an interval of the value in that population, pass
        ``lambda counts: metric.evaluate(at_prevalence(counts, prevalence))`` to :func:`imbtorch.statistics.posterior`.

        Args:
            prevalence: ``[K]`` shares of the classes in that population, in any unit (``[1000, 1]``); for multilabel
                ``[L]`` shares of each label's positives, in [0, 1], to which the label's 2x2 counts are rescaled.

        Returns:
            Value of the same shape and dtype as from ``compute``; :class:`ConfusionMatrix` returns rates instead of
            counts.

        Raises:
            ValueError: for shares that do not fit the classes, are negative, not finite or all 0; for a positive share
                of a class without targets or of ``ignore_index``; for ``state="margins"`` of more than two classes,
                which does not keep the matrix to rescale; and as ``compute``.
            TypeError: for shares that are not numbers.

        >>> from imbtorch import Precision
        >>> metric = Precision("binary")
        >>> metric(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
        tensor(0.8000)
        >>> metric.at_prevalence([1000, 1])  # all positives are found, but 250 false alarms for each
        tensor(0.0040)
        """
        with self._state_of_all() as state:
            counts, there = self._counting.counts(state), self._counting.checked_prevalence(prevalence)
            self._report_problems(self._counting.faults(state), targets(counts), there, needed=True)
            return self._narrow(self.evaluate(rescaled(counts, there)))

    # --- intervals and text -----------------------------------------------------------------------------------------

    def interval(
        self,
        *,
        level: float = 0.95,
        draws: int = DRAWS,
        generator: torch.Generator | None = None,
        clusters: bool | None = None,
        method: Literal["posterior", "bootstrap"] = "posterior",
    ) -> Interval:
        """Compute the interval of the value from the counts of all processes (a collective step).

        Without a ``generator`` draws are seeded by the counts and the level: all processes, and a report of the same
        counts, have the same interval. Like the value, the interval of a mean over classes covers the classes that have
        targets; a warning names the others.

        Args:
            level: nominal coverage of the interval, in (0, 1).
            draws: number of draws.
            generator: source of randomness, on the CPU; by default one that is seeded by the counts and the level.
            clusters: True to resample clusters, which needs a metric with ``clusters=True``; False to treat all
                samples as independent. By default clusters are resampled if the metric has them, except for values of
                single labels (``average="none"``) while each of their samples is a cluster of its own. Samples of the
                binary and multiclass tasks that came without ids are always treated as independent.
            method: :func:`imbtorch.statistics.posterior` or :func:`imbtorch.statistics.bootstrap` of independent
                samples.

        Returns:
            :class:`imbtorch.statistics.Interval` of the shape of ``compute()``.

        Raises:
            ValueError: for ``state="margins"``, which does not keep the matrix to draw; for ``average="min"``, since an
                interval of the lowest of several uncertain values does not cover it; for weighted counts, which do not
                hold the number of samples; for ``clusters=True`` without clusters.
        """
        if self.weighted:
            raise ValueError(UNSURE)
        check_choice("method", method, ("posterior", "bootstrap"))
        if self._average == "min":
            raise ValueError(
                "the lowest of several uncertain values has no interval that covers it; use average='none'"
            )
        if clusters and not self.clusters:
            raise ValueError(NO_BUCKETS.format(type(self).__name__))
        counting = self._counting
        with self._state_of_all() as state:
            counts, buckets = confusion_counts(counting.counts(state)).clone(), None
            if counting.clusters and clusters is not False:
                several = self.task == "multilabel" and (clusters or self._average != "none")
                if several or bool(counting.dependent(state)):
                    buckets = confusion_counts(counting.counts(state, of_buckets=True)).clone()
            self._report_problems(counting.faults(state), counts.sum(-1))
            self._warn_if_dependent(state, clusters)
        generator = seeded(counts, level, generator)
        own = type(self).evaluate is not ConfusionMatrixMetric.evaluate
        measures = {"": self.evaluate if own else self._measure}  # which tells if margins suffice
        if buckets is not None:
            return resample_buckets(measures, buckets, draws=draws, level=level, generator=generator)[""]
        draw = posterior_of if method == "posterior" else bootstrap_of
        return draw(measures, counts.double(), draws, level, generator, event_dims=counts.ndim)[""]

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments() | self.measure_arguments
        of_classes = self.traits.averages or (self.traits.binary_only and self.task == "multiclass")
        if of_classes or self.task == "multilabel":
            shown["average"] = self.average
        return shown

    def _settings_text(self) -> str:
        functions = getattr(type(self), "measure", None), type(self).evaluate
        return f"{super()._settings_text()} {canonical(functions)}"


METRICS: dict[Callable[..., Tensor], type[ConfusionMatrixMetric]] = {}
"""First metric class of each measure of the catalogue, the one of this package."""


def _full_docstring(cls: type[ConfusionMatrixMetric]) -> str:
    """Compose the docstring of a metric class from its measure's, its constructor's and its own, for ``help``.

    The source of a class holds a short docstring, which editors show, with a link to the measure; text before the link
    in the same paragraph repeats the measure's and is left out.
    """
    own, _, example = inspect.cleandoc(cls.__doc__ or "").partition(">>>")
    measure = inspect.cleandoc(cls.measure.__doc__ or "")
    said, sections = re.split(r"\n\n(?=Args:\n|Returns:\n|Source: |>>> )", measure)[0], _sections(measure)
    remarks = [re.sub(r".*:func:`imbtorch\.measures\.\w+`\.", "", each, flags=re.DOTALL) for each in own.split("\n\n")]
    shared, inputs = (_entries(each) for each in (ConfusionMatrixMetric.__init__, ConfusionMatrixMetric.update))
    of_class = {name: text for name, text in _entries(cls.__init__).items() if ", " not in name and name != "kwargs"}
    arguments = of_class | {name: text for name, text in shared.items() if name not in of_class}
    value = re.sub(r"\n +", "\n", sections.get("Returns", "").strip())
    parts = [
        said,
        *(each.strip() for each in remarks),
        "\n    ".join(["Inputs of update:", inputs["preds"], inputs["target"]]),
        "\n    ".join(["Args:", *arguments.values()]),
        value and f"Value: {value}",
        *re.findall(r"^Source: .*?(?=\n\n|\Z)", measure, re.DOTALL | re.MULTILINE),
        f">>>{example}",
    ]
    return "\n\n".join(filter(None, parts))


def _sections(docstring: str) -> dict[str, str]:
    """Return the indented sections of a docstring by their heads, such as ``Args``."""
    return dict(re.findall(r"^(\w+):\n((?: .*\n?|\n)+)", docstring, re.MULTILINE))


@cache
def _entries(function: Callable[..., Any]) -> dict[str, str]:
    """Return the entries of a function's arguments by name, with the names, indented for the same section."""
    text = _sections(inspect.cleandoc(function.__doc__ or "")).get("Args", "")
    return {each.partition(":")[0].strip(): each.strip() for each in re.split(r"^(?=    \S)", text, flags=re.M) if each}


def declared_traits(metric: ConfusionMatrixMetric | type[ConfusionMatrixMetric]) -> Traits:
    """Return the traits that a metric or its class declares for its measure."""
    bounds = metric.plot_lower_bound, metric.plot_upper_bound
    own = {"higher_is_better": metric.higher_is_better, "needs_matrix": metric.needs_matrix, "value_range": bounds}
    return replace(metric.traits, **own)  # type: ignore[arg-type]


class ConfusionMatrix(ConfusionMatrixMetric):
    """Confusion matrix, rows true and columns predicted: the counts from which the measures are computed.

    >>> metric = ConfusionMatrix("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]])
    """

    warns_of_unseen = False
    normalize = Setting[Normalize | None]("_normalize", "Total by which counts are divided.")
    measure = staticmethod(check_square)

    def __init__(
        self,
        task: Task | None = None,
        num_classes: int | None = None,
        *,
        normalize: Normalize | None = None,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        """Set the normalization and the task.

        Args:
            task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
            num_classes: number of classes; required for multiclass.
            normalize: ``"true"`` for shares of the true class, ``"pred"`` of the predicted class, ``"all"`` of all
                samples; None for int64 counts.
            average: not accepted, since a matrix is not averaged.
            state: ``"matrix"``; a matrix cannot be kept as margins.
            num_labels, threshold, logits, ignore_index, on_invalid, weighted, clusters: arguments of
                :class:`ConfusionMatrixMetric`, which explains them.
            kwargs: arguments of :class:`torchmetrics.Metric`.
        """
        check_choice("normalize", normalize, (None, *get_args(Normalize)))
        if "average" in kwargs:
            raise ValueError("ConfusionMatrix reports counts and takes no average; use normalize")
        super().__init__(task, num_classes, **kwargs)
        self._normalize = normalize

    def evaluate(self, counts: Counts) -> Tensor:
        """Return the counts, normalized if asked for: ``[..., K, K]``, for multilabel ``[..., L, 2, 2]``."""
        if isinstance(counts, Margins):
            raise TypeError("a confusion matrix cannot be derived from Margins; pass a [..., K, K] tensor")
        return counts if self.normalize is None else normalized(counts, self.normalize)

    def _reported(self, counts: Counts) -> Tensor:
        value = self.evaluate(counts)
        return self._narrow(value) if self.normalize else value.to(self._state.device, non_blocking=True, copy=True)

    def _shown_arguments(self) -> dict[str, Any]:
        return CountsMetric._shown_arguments(self) | ({"normalize": self.normalize} if self.normalize else {})

    def plot(
        self,
        val: Tensor | Sequence[Tensor] | None = None,
        ax: Any | None = None,
        labels: Sequence[str] | None = None,
    ) -> tuple[Any, Any]:
        """Draw the matrix with counts and rates.

        Args:
            val: value of ``compute`` or ``forward``; by default ``compute()``.
            ax: matplotlib axes to draw into; by default a new figure.
            labels: class names.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.matrix import plot_confusion_matrix

        counts = self.compute() if val is None else val
        if not isinstance(counts, Tensor):
            raise TypeError("a confusion matrix is drawn from one tensor; choose an element of the sequence")
        return plot_confusion_matrix(counts, ax, labels=labels, normalize=self.normalize or "true")
