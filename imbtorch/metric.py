"""The metric that accumulates counts and reports one measure of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, TypedDict, get_args

import torch
from torch import Tensor
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from typing_extensions import Unpack

from imbtorch.analysis.intervals import Interval, bootstrap, posterior
from imbtorch.confusion import (
    Counts,
    Margins,
    Normalize,
    check_choice,
    normalized,
    rescaled,
    square,
    sums,
)
from imbtorch.counting import FAULTS, Counting, Layout, Task, reading_is_free
from imbtorch.measures import Average
from imbtorch.plots import plot_confusion_matrix, plot_values
from imbtorch.reading import Reading, chosen_average
from imbtorch.state import SummedState, rank_zero

__all__ = ["ConfusionMatrix", "ConfusionMatrixMetric"]

OnInvalid = Literal["raise", "warn"]


class TorchmetricsArguments(TypedDict, total=False):
    """Keyword arguments of :class:`torchmetrics.Metric`."""

    dist_sync_on_step: bool
    process_group: Any
    dist_sync_fn: Callable[..., list[Tensor]] | None
    distributed_available_fn: Callable[[], bool] | None
    sync_on_compute: bool
    compute_with_cache: bool
    compute_on_cpu: bool


class MetricArguments(TorchmetricsArguments, total=False):
    """Keyword arguments of :class:`ConfusionMatrixMetric`, for metrics with a parameter of their own."""

    num_labels: int | None
    average: Average | Literal["auto"]
    threshold: float
    logits: bool
    ignore_index: int | None
    on_invalid: OnInvalid
    state: Layout


class CountsMetric(SummedState):
    """Accumulates counts of predictions and targets; subclasses say what of them is reported.

    Constructor arguments are those of :class:`ConfusionMatrixMetric`.
    """

    tells_unseen: ClassVar[bool] = True
    """Whether classes without targets are worth a warning at compute."""

    def __init__(
        self, counting: Counting, on_invalid: OnInvalid = "raise", **kwargs: Unpack[TorchmetricsArguments]
    ) -> None:
        check_choice("on_invalid", on_invalid, get_args(OnInvalid))
        super().__init__(counting.name, counting.cells + len(FAULTS), **kwargs)
        self._counting = counting
        self.task, self.threshold, self.logits = counting.task, counting.threshold, counting.logits
        self.ignore_index = counting.ignore_index
        self.num_classes = None if self.task == "multilabel" else counting.size
        self.num_labels = counting.size if self.task == "multilabel" else None
        self.on_invalid = on_invalid
        self.quiet = False  # in Lightning's sanity check, whose few batches miss classes for no fault of anybody's
        self._warned: set[str] = set()

    def _reads_matrix(self) -> bool:
        """Whether what is reported cannot be read off margins."""
        raise NotImplementedError

    def _reported(self, counts: Counts) -> Any:
        """What is reported of counts."""
        raise NotImplementedError

    # --- counting ---------------------------------------------------------------------------------------------------

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count a batch.

        Args:
            preds: class indices ``[N, ...]`` or scores ``[N, C, ...]`` (multiclass); 0/1, probabilities or logits
                ``[N, ...]`` (binary) or ``[N, L, ...]`` (multilabel).
            target: class indices or 0/1, ``[N, ...]`` or ``[N, L, ...]``, of any integer or bool dtype.

        Raises:
            ValueError: for shapes or devices that do not fit; on the CPU of a single process also for values that
                cannot be counted (see ``on_invalid``). The counts are then as before.
            TypeError: for what is no tensor, or floating targets.
        """
        self._counting.count_(self._writable(exclusive=not self._leads), preds, target, defer=self._defer)

    def _defer(self) -> bool:
        """Whether samples that cannot be counted are tallied rather than raised about at once."""
        return self.on_invalid == "warn" or not reading_is_free(self._state) or self._distributed()

    def forward(self, preds: Tensor, target: Tensor) -> Any:
        """Count a batch and return its own value; arguments as for :meth:`update`.

        With ``dist_sync_on_step=True`` the value is that of the batches of all processes.
        """
        if self._is_synced:
            raise TorchMetricsUserError("The metric is synced; call unsync() before forward().")
        counting = self._counting
        small = counting.cells <= 4096 or self._reads_matrix()
        if not small and counting.layout == "matrix":  # the batch alone needs no second matrix
            counting = replace(counting, layout="margins")
        batch = counting.zeros(self._state.device)
        counting.count_(batch, preds, target, defer=self._defer)
        state = self._writable(exclusive=True)
        if counting is self._counting:
            state.add_(batch)
        else:
            self._counting.count_(state, preds, target, defer=lambda: True)
        self._counted()
        if self.dist_sync_on_step and self._distributed():
            batch = self._summed(batch, self.dist_sync_fn, None)
        value = self._reported(counting.counts(batch))
        self._forward_cache = value
        return value

    @property
    def confmat(self) -> Tensor:
        """Copy of the counts of this process: int64 ``[K, K]``, for multilabel ``[L, 2, 2]``."""
        counts = self._counting.counts(self._state)
        if isinstance(counts, Margins):
            raise ValueError("state='margins' keeps no confusion matrix; use state='matrix', or .margins")
        return counts.clone()

    @property
    def margins(self) -> Margins:
        """Copy of the diagonal, row sums and column sums of this process: int64 ``[K]`` each."""
        counts = self._counting.counts(self._state)
        return Margins(*(part.clone() for part in sums(counts)))

    # --- computing --------------------------------------------------------------------------------------------------

    def compute(self) -> Any:
        """Report all counts, of all processes.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._counting.counts(self._state)
        counts = counts if self._reads_matrix() else sums(counts)  # once, for the value and for what there is to tell
        self._tell(counts)
        return self._reported(counts)

    def _narrow(self, value: Tensor) -> Tensor:
        """To float32, or float64 where that is the default dtype: half precision would hide differences."""
        wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        return value.to(device=self._state.device, dtype=wide)

    def _tell(self, counts: Counts, share: Tensor | None = None, needed: bool = False) -> None:
        """Raise or warn about samples that were not counted; warn once about classes without targets.

        Args:
            counts: of all processes.
            share: of each class (``[L, 2]`` for multilabel) in the population that the counts are read at.
            needed: raise about classes without targets.
        """
        actual = counts.actual if isinstance(counts, Margins) else counts.sum(-1)
        unseen = self._unseen(actual, share)
        *tally, total, missing = torch.cat(
            (self._counting.faults(self._state), actual.sum().view(1), unseen.sum().view(1))
        ).tolist()
        if any(tally):
            found = ", ".join(f"{count} {fault}" for count, fault in zip(tally, FAULTS, strict=True) if count)
            text = f"{type(self).__name__} did not count {sum(tally)} of the samples it was given: {found}"
            if self.on_invalid == "raise":
                raise ValueError(f"{text}; mend the input and call reset() to start anew (on_invalid='warn' goes on)")
            self._warn_once("invalid", text)
        if missing and needed:
            raise ValueError(self._unseen_text(unseen, read_at=True, needed=True))
        if any(tally):
            return
        if total == 0:
            self._warn_once("empty", f"{type(self).__name__} has counted no sample, so there is nothing to report")
        elif missing and self.tells_unseen and self._untold("unseen"):
            self._warn_once("unseen", self._unseen_text(unseen, read_at=share is not None))

    def _unseen(self, actual: Tensor, share: Tensor | None = None) -> Tensor:
        """Which classes, or labels, have no targets; where a share is given, those that should have some there."""
        if share is not None:
            lacking = (actual == 0) & (share > 0).to(actual.device)
            return lacking.any(-1) if self.task == "multilabel" else lacking
        unseen = (actual[:, 1] if self.task == "multilabel" else actual) == 0
        if self._counting.ignored_class is not None and self.task != "multilabel":
            unseen[self._counting.ignored_class] = False
        return unseen

    def _unseen_text(self, unseen: Tensor, read_at: bool = False, needed: bool = False) -> str:
        names = [self._label(index) for index in unseen.nonzero().flatten().tolist()]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        what = "classes had no target"
        if self.task == "multilabel":
            what = "labels had no positive or no negative target" if read_at else "labels had no positive target"
        then = "means over classes leave absent ones out, which flatters a partial validation"
        if needed:
            prior = "prior 0 or 1" if self.task == "multilabel" else "prior 0"
            then = f"what becomes of them in another population is unknown; give them {prior}"
        elif read_at:
            then = f"their share of the prevalence goes to the others, and {then}"
        return f"{type(self).__name__}: {len(names)} of {unseen.numel()} {what}: {shown}; {then}"

    def _label(self, index: int) -> str:
        """What a class or label is called."""
        return str(index)

    def _untold(self, kind: str) -> bool:
        """Whether a warning of this kind would be given."""
        return kind not in self._warned and not self.quiet and rank_zero()

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn once of each kind between resets, on rank zero."""
        if self._untold(kind):
            self._warned.add(kind)
            warnings.warn(text, UserWarning, stacklevel=5)

    def reset(self) -> None:
        """Set all counts to zero and start anew."""
        super().reset()
        self._warned = set()

    def _shown_arguments(self) -> dict[str, Any]:
        """Arguments of the counting that differ from the defaults."""
        shown: dict[str, Any] = {"task": self.task}
        if self.task != "binary":
            shown["num_labels" if self.task == "multilabel" else "num_classes"] = self._counting.size
        defaults = {"threshold": 0.5, "logits": False, "ignore_index": None, "on_invalid": "raise"}
        shown |= {name: value for name in defaults if (value := getattr(self, name)) != defaults[name]}
        if self._counting.layout != "matrix":
            shown["state"] = self._counting.layout
        return shown

    def extra_repr(self) -> str:
        """Arguments that differ from the defaults."""
        shown = self._shown_arguments().items()
        return ", ".join(f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in shown)

    def __repr__(self) -> str:
        """One line, as the metric was made."""
        return f"{type(self).__name__}({self.extra_repr()})"


class ConfusionMatrixMetric(CountsMetric):
    """Accumulates a confusion matrix on the device, over all processes, and reports one measure of it.

    Subclasses set :attr:`measure`. Anything that can be computed from a confusion matrix is a few lines away::

        class ErrorRate(ConfusionMatrixMetric):
            higher_is_better = False
            measure = staticmethod(lambda counts: 1 - accuracy(counts))

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes; required for multiclass.
        num_labels: number of labels; required for multilabel.
        average: how values of classes (or labels) become one: ``"macro"``, ``"weighted"`` by targets, ``"none"`` for
            one value each, ``"micro"`` (sums before it divides), ``"binary"`` (the positive class alone). ``"auto"``
            is ``"binary"`` for precision, recall, specificity, F-score and Fowlkes-Mallows in the binary task, else
            ``"macro"``. Measures of the whole matrix take none but in the multilabel task, where it says how labels
            are averaged; binary measures are averaged over classes, each against the rest, in the multiclass task.
        threshold: a probability strictly above it predicts 1 (binary and multilabel).
        logits: whether floating ``preds`` of the binary and multilabel tasks are logits; never guessed.
        ignore_index: samples with this target are left out; any integer. If it is one of the classes, that class also
            takes no part in a mean over classes.
        on_invalid: what becomes of a class out of range, a NaN score, or a probability outside [0, 1], none of which
            is ever counted: ``"raise"`` raises at once on the CPU of a single process, leaving the counts as they were,
            and else in ``compute`` on all processes alike, so that no device waits for the check; after that error
            call ``reset``. ``"warn"`` says in ``compute`` how many were left out.
        state: ``"matrix"`` keeps K x K counts, ``"margins"`` 3 x K (multiclass): 3 MB in place of 123 GB for 128,256
            classes. Measures that need the matrix refuse it.
        kwargs: arguments of :class:`torchmetrics.Metric`: ``process_group``, ``dist_sync_on_step``,
            ``sync_on_compute``, ``dist_sync_fn``, ``distributed_available_fn``. Values are computed anew each time.

    Raises:
        ValueError: for an argument that is missing, unknown, or has no meaning for the task or measure.
        TypeError: for an argument of the wrong type.

    States are not part of ``state_dict`` unless ``persistent(True)`` is called.
    """

    measure: ClassVar[Callable[..., Tensor]]
    """The function of counts that is reported."""
    averages: ClassVar[tuple[str, ...]] = ()
    """Averages that the measure takes; empty for measures of the whole matrix."""
    binary_only: ClassVar[bool] = False
    """Whether the measure takes two classes only."""
    needs_matrix: ClassVar[bool] = True
    """Whether the measure must see the whole matrix; False if it takes :class:`~imbtorch.confusion.Margins` too."""

    def __init__(
        self,
        task: Task,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        average: Average | Literal["auto"] = "auto",
        threshold: float = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        state: Layout = "matrix",
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index, state)
        if state == "margins" and self.needs_matrix:
            raise ValueError(
                f"{type(self).__name__} needs the matrix, which state='margins' does not keep; use state='matrix' (a "
                "metric of your own whose measure takes Margins sets needs_matrix = False)"
            )
        chosen = chosen_average(type(self), task, average)
        super().__init__(counting, on_invalid, **kwargs)
        self.average = chosen
        self.measure_arguments: dict[str, Any] = {}

    def _set_measure_arguments(self, **arguments: Any) -> None:
        """Keep what the measure takes beside the counts, and let it check that at once."""
        type(self).measure(torch.ones(2, 2), **arguments)
        self.measure_arguments = arguments

    def _reads_matrix(self) -> bool:
        return self.needs_matrix

    def compute(self) -> Tensor:
        """Value of all counts, of all processes; see the measure for its range and undefined cases.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        value: Tensor = super().compute()
        return value

    def evaluate(self, counts: Counts) -> Tensor:
        """Value of the measure for any counts of this task: pure, batched and differentiable.

        Args:
            counts: ``[..., K, K]`` or :class:`~imbtorch.confusion.Margins`; ``[..., L, 2, 2]`` for multilabel.

        Returns:
            ``[...]``, or ``[..., K]`` under ``average="none"``.
        """
        return Reading.of(type(self), self._counting, self.average, **self.measure_arguments)(counts)

    def _reported(self, counts: Counts) -> Tensor:
        return self._narrow(self.evaluate(counts))

    def at_prevalence(self, priors: Tensor | Sequence[float]) -> Tensor:
        """Value in a population with other class shares, from the counts of all processes (a collective step).

        What the classifier does to each true class stays, how often the class comes changes
        (:func:`imbtorch.at_prevalence`): what a validation set that was rebalanced says about deployment. Recall and
        what is made of recalls alone (balanced accuracy, G-mean; for two classes specificity, dominance, IBA too) do
        not move; precision, F-score, accuracy, CBA, IAM and MCC do. For an interval there, give
        :func:`imbtorch.analysis.posterior` ``lambda counts: metric.evaluate(at_prevalence(counts, priors))``.

        Args:
            priors: ``[K]`` shares of the classes there, in any unit (``[1000, 1]``); for multilabel ``[L]``, for each
                label the share of its positives in [0, 1], to which its 2x2 counts are rescaled.

        Returns:
            What ``compute`` returns, of the same shape and dtype; :class:`ConfusionMatrix` gives rates for counts.

        Raises:
            ValueError: for priors that do not fit the classes, are negative, not finite or all 0; for a positive prior
                of a class without targets or of ``ignore_index``; for ``state="margins"`` of more than two classes,
                which does not keep what is rescaled; and as ``compute``.
            TypeError: for priors that are no numbers.

        >>> from imbtorch import Precision
        >>> metric = Precision("binary")
        >>> metric(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
        tensor(0.8000)
        >>> metric.at_prevalence([1000, 1])  # each positive is found, among 250 false alarms
        tensor(0.0040)
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            return self._value_at(priors)

    def _value_at(self, priors: Tensor | Sequence[float]) -> Tensor:
        counts = self._counting.counts(self._state)
        share = self._counting.shares(priors, "priors")
        self._tell(counts, share, needed=True)
        return self._narrow(self.evaluate(rescaled(counts, share)))

    # --- looks ------------------------------------------------------------------------------------------------------

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw a value, one bar for each class, or the course of values over epochs.

        Args:
            val: a value of ``compute`` or ``forward``, or a sequence of them; by default ``compute()``.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.

        Raises:
            ModuleNotFoundError: without matplotlib (``pip install imbtorch[plot]``).
        """
        return plot_values(
            self.compute() if val is None else val,
            ax,
            name=type(self).__name__,
            bounds=(self.plot_lower_bound, self.plot_upper_bound),
            item="Label" if self.task == "multilabel" else "Class",
        )

    def interval(
        self,
        method: Literal["posterior", "bootstrap"] = "posterior",
        samples: int = 10_000,
        level: float = 0.95,
        generator: torch.Generator | None = None,
    ) -> Interval:
        """How sure the value is, from the counts of all processes (a collective step).

        Processes draw each for themselves: give all of them a generator of one seed where they must agree.

        Args:
            method: :func:`imbtorch.analysis.posterior` or :func:`imbtorch.analysis.bootstrap`.
            samples: number of draws.
            level: probability that the interval holds.
            generator: source of randomness, on the device of the metric.

        Returns:
            :class:`imbtorch.analysis.Interval` of the shape of ``compute()``.

        Raises:
            ValueError: for ``state="margins"``, which does not keep what is drawn.
        """
        check_choice("method", method, ("posterior", "bootstrap"))
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            counts = self.confmat
        draw = posterior if method == "posterior" else bootstrap
        if self.average != "none" and self.task == "multilabel":  # one value of all labels: say it for each, take one
            found = draw(
                lambda drawn: self.evaluate(drawn).unsqueeze(-1).expand(drawn.shape[:-2]),
                counts,
                samples=samples,
                level=level,
                generator=generator,
            )
            return replace(found, estimate=found.estimate[0], low=found.low[0], high=found.high[0])
        if self.average != "none" or self.task == "multilabel":
            return draw(self.evaluate, counts, samples=samples, level=level, generator=generator)
        classes = {str(index): partial(_of_class, self.evaluate, index) for index in range(counts.shape[-1])}
        each = draw(classes, counts, samples=samples, level=level, generator=generator).values()
        low, high = (torch.stack([getattr(one, end) for one in each]) for end in ("low", "high"))
        return Interval(torch.stack([one.estimate for one in each]), low, high, level, method)

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments() | self.measure_arguments
        if self.averages or (self.binary_only and self.task == "multiclass") or self.task == "multilabel":
            shown["average"] = self.average
        return shown


def _of_class(evaluate: Callable[[Tensor], Tensor], index: int, counts: Tensor) -> Tensor:
    return evaluate(counts)[..., index]


class ConfusionMatrix(ConfusionMatrixMetric):
    """Confusion matrix, rows true and columns predicted: the counts that all other metrics read.

    Args:
        task: see :class:`ConfusionMatrixMetric`, like the keyword arguments.
        num_classes: number of classes.
        normalize: ``"true"`` for shares of the true class, ``"pred"`` of the predicted class, ``"all"`` of all samples;
            None for int64 counts.
        kwargs: arguments of :class:`ConfusionMatrixMetric`, but for ``average``.

    >>> metric = ConfusionMatrix("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]])
    """

    needs_matrix = True
    tells_unseen = False
    measure = staticmethod(square)

    def __init__(
        self,
        task: Task,
        num_classes: int | None = None,
        *,
        normalize: Normalize | None = None,
        **kwargs: Unpack[MetricArguments],
    ) -> None:
        check_choice("normalize", normalize, (None, *get_args(Normalize)))
        if "average" in kwargs:
            raise ValueError("ConfusionMatrix reports counts and takes no average; use normalize")
        super().__init__(task, num_classes, **kwargs)
        self.normalize = normalize

    def evaluate(self, counts: Counts) -> Tensor:
        """Return the counts, or rates of them: ``[..., K, K]``, for multilabel ``[..., L, 2, 2]``."""
        if isinstance(counts, Margins):
            raise TypeError("a confusion matrix cannot be read off Margins")
        return counts if self.normalize is None else normalized(counts, self.normalize)

    def _reported(self, counts: Counts) -> Tensor:
        value = self.evaluate(counts)
        return value.clone() if self.normalize is None else self._narrow(value)

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
            val: a value of ``compute`` or ``forward``; by default ``compute()``.
            ax: matplotlib axes to draw into; by default a new figure.
            labels: class names.

        Returns:
            Figure (None if axes were given) and axes.
        """
        counts = self.compute() if val is None else val
        if not isinstance(counts, Tensor):
            raise TypeError("a confusion matrix is drawn from one tensor; choose an element of the sequence")
        return plot_confusion_matrix(counts, ax, labels=labels, normalize=self.normalize or "true")
