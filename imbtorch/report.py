"""One state, many names: the report that a training loop logs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import Unpack

from imbtorch import metrics as catalogue
from imbtorch.analysis.intervals import posterior
from imbtorch.confusion import Counts, Margins, check_choice, margins, rescaled, sums
from imbtorch.counting import Counting, Layout, Task
from imbtorch.metric import (
    ConfusionMatrixMetric,
    OnInvalid,
    TorchmetricsArguments,
)
from imbtorch.named import NamedValues, ReportedValue, checked_names, copied
from imbtorch.plots import plot_confusion_matrix, plot_values
from imbtorch.reading import Reading, chosen_average

__all__ = ["ImbalanceReport", "ReportTable", "ReportedValue"]

Measured: TypeAlias = (
    type[ConfusionMatrixMetric] | Callable[[Counts], Tensor] | tuple[Callable[[Counts], Tensor], bool | None]
)

PER_CLASS: dict[str, type[ConfusionMatrixMetric]] = {
    "recall": catalogue.Recall,
    "precision": catalogue.Precision,
    "specificity": catalogue.Specificity,
    "f1": catalogue.FScore,
    "fowlkes_mallows": catalogue.FowlkesMallows,
    "cba": catalogue.ClassBalanceAccuracy,
    "iam": catalogue.ImbalanceAccuracy,
}
DRAWS = 2000  # of the posterior of an interval
FEW_CLASSES = 20  # classes up to which per-class values are reported without being asked for


class ImbalanceReport(NamedValues):
    """Many measures of one state: one update, one all_reduce, as many logged values as wanted.

    In Lightning each name is a metric of its own, so that values are computed once at the end of the epoch, exact over
    all processes, and reset::

        self.val = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], prefix="val_")
        self.val.update(logits, y)  # in validation_step
        self.log_dict(self.val)  # in on_validation_epoch_end: val_iam, val_cba, ..., val_recall/cat, ...

    In plain PyTorch and Fabric ``compute()`` returns a dict of scalars: ``fabric.log_dict(report.compute())``.

    Where validation was rebalanced, ``prevalence`` reads every value at the class shares of deployment: what the
    classifier does to each true class stays, how often the class comes changes (:func:`imbtorch.at_prevalence`).
    Precision, F-score, accuracy, CBA, IAM and MCC then differ; recall, balanced accuracy and G-mean do not::

        ImbalanceReport("binary", class_names=["ok", "fraud"], prevalence={"ok": 1000, "fraud": 1})

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        num_classes: number of classes; from ``class_names`` if those are given.
        num_labels: number of labels; from ``class_names`` if those are given.
        class_names: names of the classes (labels for multilabel), in the order of their indices.
        measures: name -> metric class, function of the counts, or ``(function, higher_is_better)``; by default those of
            :meth:`default_measures`. A function sees ``[K, K]`` (each label's ``[2, 2]`` for multilabel, averaged),
            or :class:`~imbtorch.confusion.Margins` under ``state="margins"``, and returns one value.
        intervals: report ``<name>_low`` and ``<name>_high`` of each measure as well: the limits of its 95 % posterior
            interval (:func:`imbtorch.analysis.posterior`, 2,000 draws with a fixed seed, so that all processes agree).
            Not for the values of a batch that ``forward`` returns. The cost grows with K * K.
        prevalence: shares of the classes, in any unit, in the population that all values are read at, those of
            ``forward`` included: one for each class, or name -> share. For multilabel the share of positives of each
            label, in [0, 1]. A class that is ``ignore_index`` gets share 0 (a name can be left out). The share of a
            class without targets goes to the others, and a warning names it. ``counts()`` and ``plot()`` show the
            counts; functions in ``measures`` see rates. By default values are read off the counts as they are.
        per_class: measures to report for each class as ``<measure>/<class>``, among recall, precision, specificity, f1,
            fowlkes_mallows, cba, iam; by default recall and precision where names were given or up to 20 classes.
        prefix: comes before each name.
        postfix: comes after each name.
        threshold: see :class:`ConfusionMatrixMetric`, like the following.
        logits: whether floating ``preds`` are logits.
        ignore_index: target of the samples to leave out.
        on_invalid: ``"raise"`` or ``"warn"``.
        state: ``"matrix"`` or ``"margins"``.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: for arguments that do not fit each other, and names that occur twice.
        TypeError: for arguments of the wrong type.

    Reading a value (``report["iam"].compute()``, logging it) is a collective step like ``compute()``: all processes, in
    the same order, all names in one go. :meth:`table` and :meth:`plot` show the last computed result and never
    communicate.

    >>> report = ImbalanceReport("multiclass", class_names=["cat", "dog"], num_classes=2)
    >>> report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    >>> report.compute()["recall/cat"]
    tensor(0.6667)
    """

    def __init__(
        self,
        task: Task,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        class_names: Sequence[str] | None = None,
        measures: Mapping[str, Measured] | None = None,
        per_class: Sequence[str] | None = None,
        intervals: bool = False,
        prevalence: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        prefix: str = "",
        postfix: str = "",
        threshold: float = 0.5,
        logits: bool = False,
        ignore_index: int | None = None,
        on_invalid: OnInvalid = "raise",
        state: Layout = "matrix",
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if intervals and state == "margins":
            raise ValueError("intervals=True draws whole matrices; use state='matrix'")
        if class_names is not None:
            class_names = checked_names(class_names)
            if task == "multilabel" and num_labels is None:
                num_labels = len(class_names)
            elif task != "multilabel" and num_classes is None:
                num_classes = len(class_names)
        counting = Counting.of(task, num_classes, num_labels, threshold, logits, ignore_index, state)
        if class_names is not None and len(class_names) != counting.size:
            raise ValueError(f"class_names holds {len(class_names)} names for {counting.size} classes")
        super().__init__(counting, on_invalid, **kwargs)
        named = class_names is not None
        self.class_names = list(class_names) if class_names is not None else [str(i) for i in range(counting.size)]
        self.prevalence: list[float] | None = None
        if prevalence is not None:
            self._set_prevalence(prevalence)
        if per_class is None:
            per_class = ("recall", "precision") if named or counting.size <= FEW_CLASSES else ()
        if isinstance(per_class, str):
            raise TypeError(f"per_class must be a sequence of names such as ({per_class!r},), got a string")
        for each in per_class:
            check_choice("per_class", each, tuple(PER_CLASS))
        if len(set(per_class)) < len(per_class):
            raise ValueError(f"per_class must not name a measure twice, got {list(per_class)}")
        self.per_class = tuple(per_class)
        if measures is not None and not isinstance(measures, Mapping):
            raise TypeError(
                f"measures must map names to metric classes or functions, as in {{'iam': ImbalanceAccuracy}}, got "
                f"{type(measures).__name__}"
            )
        self._readings: dict[str, Reading] = {}
        directions: dict[str, bool | None] = {}
        for name, measured in (self.default_measures(task) if measures is None else measures).items():
            self._readings[name], directions[name] = self._read(name, measured)
        self.intervals = intervals
        for name in list(directions) if intervals else ():
            for limit in (f"{name}_low", f"{name}_high"):
                if limit in directions:
                    raise ValueError(f"measures already holds {limit!r}, which intervals=True adds; rename it there")
                directions[limit] = directions[name]
        for each in self.per_class:
            for class_name in self.class_names:
                name = f"{each}/{class_name}"
                if name in directions:
                    raise ValueError(f"measures already holds {name!r}, which per_class adds; rename it there")
                directions[name] = True
        if not directions:
            raise ValueError("measures and per_class are both empty, so there is nothing to report")
        self._name(directions, prefix, postfix)

    @staticmethod
    def default_measures(task: Task) -> dict[str, Measured]:
        """Names and metrics that are reported unless told otherwise, to add to or take from."""
        chosen: dict[str, Measured] = {
            "iam": catalogue.ImbalanceAccuracy,
            "cba": catalogue.ClassBalanceAccuracy,
            "accuracy": catalogue.Accuracy,
            "balanced_accuracy": catalogue.BalancedAccuracy,
            "precision": catalogue.Precision,
            "recall": catalogue.Recall,
            "f1": catalogue.FScore,
            "gmean": catalogue.GeometricMean,
            "mcc": catalogue.MatthewsCorrCoef,
        }
        if task == "binary":
            chosen |= {
                "dominance": catalogue.Dominance,
                "iba": catalogue.IndexBalancedAccuracy,
                "op": catalogue.OptimizedPrecision,
                "area": catalogue.AccuracyDominanceArea,
            }
        return chosen

    def _set_prevalence(self, prevalence: Mapping[str, float] | Sequence[float] | Tensor) -> None:
        """Check the class shares of the population that values are read at, and keep them in the order of classes."""
        if self._counting.layout == "margins" and self._counting.size > 2:
            raise ValueError(
                "prevalence needs the whole matrix for more than two classes: margins do not say where the errors of "
                "each class went; use state='matrix'"
            )
        if isinstance(prevalence, Mapping):
            ignored = None if self.task == "multilabel" else self._counting.ignored_class
            optional = set() if ignored is None else {self.class_names[ignored]}
            missing = [name for name in self.class_names if name not in optional.union(prevalence)]
            unknown = [name for name in prevalence if name not in self.class_names]
            if missing or unknown:
                raise ValueError(
                    f"prevalence must name every class; missing are {missing}, not among class_names are {unknown}"
                )
            prevalence = [prevalence.get(name, 0.0) for name in self.class_names]
        shares = self._counting.shares(prevalence, "prevalence")
        self._shares: list[Any] = shares.tolist()
        self.prevalence = shares[:, 1].tolist() if self.task == "multilabel" else shares.tolist()

    def _read(self, name: str, measured: Measured) -> tuple[Reading, bool | None]:
        """How a measure is read, and which direction of it is better."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"measures must map names to measures, got the name {name!r}")
        if isinstance(measured, type) and issubclass(measured, ConfusionMatrixMetric):
            if measured.needs_matrix and self._counting.layout == "margins":
                raise ValueError(f"{name!r} needs the whole matrix, which state='margins' does not keep")
            needed = [each for each in signature(measured.measure).parameters.values() if each.default is each.empty]
            if len(needed) > 1:
                raise TypeError(
                    f"{measured.__name__} takes arguments of its own; give {name!r} a function of the counts, such as "
                    f"lambda counts: {measured.measure.__name__}(counts, {needed[1].name})"
                )
            reading = Reading.of(measured, self._counting, chosen_average(measured, self.task))
            return reading, measured.higher_is_better
        function, better = measured if isinstance(measured, tuple) and len(measured) == 2 else (measured, None)
        if not callable(function) or isinstance(function, (type, Metric)) or better not in (True, False, None):
            raise TypeError(
                f"measures[{name!r}] must be a metric class of imbtorch, a function of the counts, or a pair "
                f"(function, higher_is_better), got {measured!r}"
            )
        return Reading(_OneValue(name, function), self.task, needs_matrix=True), better

    # --- computing --------------------------------------------------------------------------------------------------

    def _reads_matrix(self) -> bool:
        return self.prevalence is not None or any(reading.needs_matrix for reading in self._readings.values())

    def _reported(self, counts: Counts) -> dict[str, Tensor]:
        rates = self._read_at(counts)
        values = self._evaluated(rates, margins(rates))
        return {f"{self.prefix}{name}{self.postfix}": value for name, value in values.items()}

    def _share(self) -> Tensor | None:
        """Class shares that values are read at, for multilabel ``[L, 2]``."""
        return None if self.prevalence is None else torch.tensor(self._shares, dtype=torch.float64, device="cpu")

    def _read_at(self, counts: Counts) -> Counts:
        """What values are read off: the counts, or rates at the prevalence."""
        share = self._share()
        return counts if share is None else rescaled(counts, share)

    def _evaluated(self, counts: Counts, marginal: Margins) -> dict[str, Tensor]:
        """All values of counts, whose margins are taken once."""
        values = {}
        for name, reading in self._readings.items():
            values[name] = self._narrow(reading(counts if reading.needs_matrix else marginal))
        for name in self.per_class:
            each = self._narrow(self._of_each_class(name, marginal))
            values |= {f"{name}/{label}": part for label, part in zip(self.class_names, each.unbind(), strict=True)}
        return values

    def _of_each_class(self, name: str, sums: Margins) -> Tensor:
        """One value for each class or label; nan for one with neither targets nor predictions."""
        return Reading.of(PER_CLASS[name], self._counting, "none")(sums)

    def _label(self, index: int) -> str:
        return self.class_names[index]

    def compute(self) -> dict[str, Tensor]:
        """All values of all counts, of all processes, by name.

        Raises:
            ValueError: if samples could not be counted and ``on_invalid="raise"``.
        """
        counts = self._counting.counts(self._state)
        marginal = sums(counts)
        self._tell(marginal, self._share())
        rates = self._read_at(counts)
        values = self._evaluated(rates, margins(marginal if rates is counts else rates))
        if self.intervals:
            assert isinstance(counts, Tensor)
            readings = {name: partial(self._drawn, reading) for name, reading in self._readings.items()}
            generator = torch.Generator(counts.device).manual_seed(0)
            for name, found in posterior(readings, counts, samples=DRAWS, generator=generator).items():
                values |= {f"{name}_low": self._narrow(found.low), f"{name}_high": self._narrow(found.high)}
        return self._keep(counts, values)

    def _drawn(self, reading: Reading, draws: Tensor) -> Tensor:
        """Value of each draw of the posterior, which draws counts: they are read at the prevalence one by one."""
        return reading(self._read_at(draws))

    def counts(self) -> Counts:
        """Copy of the counts of all processes (a collective step): int64 ``[K, K]``, ``[L, 2, 2]``, or Margins."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            return copied(self._counting.counts(self._state))

    # --- looks ------------------------------------------------------------------------------------------------------

    def table(self) -> ReportTable:
        """Per-class table beside the overall values, of the last computed result; never communicates.

        Support and predictions are as counted, all other columns are read at the ``prevalence``.

        >>> report = ImbalanceReport("binary", class_names=["ok", "fraud"], per_class=())
        >>> report.update(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        >>> print(report.table().overall["accuracy"])
        0.75
        """
        result = self._last()
        sums = margins(result.counts)
        shown = 1 if self.task == "multilabel" else slice(None)
        columns: dict[str, list[float]] = {
            "support": sums.actual[..., shown].tolist(),
            "predicted": sums.predicted[..., shown].tolist(),
        }
        read = sums if self.prevalence is None else margins(self._read_at(result.counts))
        for name in ("precision", "recall", "f1", "cba", "iam"):
            columns[name] = self._of_each_class(name, read).tolist()
        overall = {name: float(result.values[name]) for name in self._readings}
        return ReportTable(list(self.class_names), columns, overall)

    def plot(self, val: Any | None = None, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the confusion matrix of the last computed result with the class names; never communicates.

        Args:
            val: results of ``compute``, one or a sequence: draws the course of each value over epochs instead.
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes. Multilabel draws one bar a label, its recall; so does
            ``state="margins"``, which keeps no matrix.
        """
        if val is not None:
            results = [val] if isinstance(val, Mapping) else val
            names = [f"{self.prefix}{name}{self.postfix}" for name in self._readings] or self.keys()
            steps = [torch.stack([torch.as_tensor(step[name]) for name in names]) for step in results]
            return plot_values(steps, ax, labels=names)
        counts = self._last().counts
        if isinstance(counts, Tensor) and counts.ndim == 2:
            return plot_confusion_matrix(counts, ax, labels=self.class_names)
        recalls = self._of_each_class("recall", margins(counts))
        item = "Label" if self.task == "multilabel" else "Class"
        return plot_values(recalls, ax, name="recall", bounds=(0.0, 1.0), item=item, labels=self.class_names)

    def _shown_arguments(self) -> dict[str, Any]:
        shown = super()._shown_arguments()
        shown |= {name: value for name in ("prefix", "postfix") if (value := getattr(self, name))}
        shown |= {} if self.prevalence is None else {"prevalence": self.prevalence}
        shown |= {"intervals": True} if self.intervals else {}
        return shown | {"measures": list(self._readings), "per_class": list(self.per_class)}


@dataclass(frozen=True)
class ReportTable:
    """A report as text: a row for each class, the overall values below.

    Attributes:
        names: class names.
        columns: column name -> one number a class: support (targets) and predicted, as counted; precision, recall, f1,
            and the terms that CBA and IAM average.
        overall: name -> value of the measures of all classes.
    """

    names: list[str]
    columns: dict[str, list[float]]
    overall: dict[str, float]

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested dict: ``["classes"][name][column]`` and ``["overall"][measure]``."""
        rows = {
            name: {column: numbers[index] for column, numbers in self.columns.items()}
            for index, name in enumerate(self.names)
        }
        return {"classes": rows, "overall": dict(self.overall)}

    def to_pandas(self) -> Any:
        """``pandas.DataFrame`` with a row for each class; needs pandas, which imbtorch does not install."""
        return importlib.import_module("pandas").DataFrame(self.columns, index=self.names)

    def __str__(self) -> str:
        """Return aligned text."""
        rows = [["", *self.columns]]
        for index, name in enumerate(self.names):
            rows.append([name, *(_cell(column, numbers[index]) for column, numbers in self.columns.items())])
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        wide = max(map(len, self.overall), default=0)
        lines += ["", *(f"{name.rjust(wide)}  {_cell('', value)}" for name, value in self.overall.items())]
        return "\n".join(lines)


@dataclass(frozen=True)
class _OneValue:
    """A user's function, called for each label apart, with a clear error where it does not return one value."""

    name: str
    function: Callable[[Counts], Tensor]

    def __call__(self, counts: Counts) -> Tensor:
        """Value of one matrix (one for each label), or of each of a stack of draws."""
        if isinstance(counts, Tensor) and counts.ndim > 2:
            return torch.stack([self(each) for each in counts.unbind()])
        return self._of(counts)

    def _of(self, counts: Counts) -> Tensor:
        value = self.function(counts)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"measure {self.name!r} must return a tensor of one value, got {got}")
        return value.reshape(())


def _cell(column: str, value: float) -> str:
    if column in ("support", "predicted"):
        return f"{value:.0f}"
    return "-" if value != value else f"{value:.4f}"
