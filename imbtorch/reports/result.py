"""Results of reports: values by row, with table, picture and intervals, independent of the report."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from imbtorch.counting.tasks import Counting
from imbtorch.counts import Counts, Margins, confusion_counts, mapped, margins, ratio
from imbtorch.intervals.buckets import ONE_BUCKET
from imbtorch.intervals.draws import DRAWS
from imbtorch.intervals.intervals import Interval
from imbtorch.intervals.weighted import NO_SQUARES
from imbtorch.measures.named import of_name
from imbtorch.reports.files import text_of_file
from imbtorch.reports.groups import comparable_groups
from imbtorch.reports.problems import FINDERS
from imbtorch.reports.readings import ENDS, LEVEL, Readings, values_of_classes
from imbtorch.reports.rows import Finder, Result, Row, Snapshot, group_label, shown
from imbtorch.reports.texts import UNSQUARED, WEIGHTED
from imbtorch.tables import COUNTS, Cell, Table, baseline_line, replace_file
from imbtorch.version import __version__


@dataclass(frozen=True, eq=False, repr=False)
class ReportResult(Result):
    """Result of a report: its values and the counts behind them, with table, picture and intervals.

    :meth:`ImbalanceReport.result` returns it. ``result["iam"]`` is one value, :attr:`values` is a dict of all,
    without prefix and postfix. A result never changes and never communicates. It can be pickled, next to a checkpoint
    for example, and read later without the report; functions among the measures must then be defined at the top level
    of a module.

    >>> from imbtorch import ImbalanceReport
    >>> report = ImbalanceReport("binary", measures=["iam", "accuracy"], class_names=["ok", "fraud"])
    >>> report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    >>> result = report.result()
    >>> result["accuracy"]
    tensor(0.7500)
    >>> result.interval("accuracy", generator=torch.Generator().manual_seed(0)).low < 0.75
    tensor(True)
    """

    _at: Snapshot
    _readings: Readings
    _version: str = __version__
    _notes: tuple[str, ...] = ()
    _parts: tuple[Sequence[str], ...] = ()  # names and digests of the files that were added

    @property
    def _all_counts(self) -> Counts:
        return self._at.whole.counts

    @property
    def _came(self) -> tuple[Counting, bool]:
        return self._readings.counting, self._at.dependent

    @property
    def _finders(self) -> tuple[Finder, ...]:
        return FINDERS

    @property
    def groups(self) -> Counts | None:
        """Counts of each group of samples, ``[G, ...]``; None without groups."""
        groups = self._at.whole.groups
        return None if groups is None else mapped(groups, Tensor.clone)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups of samples in values and in the table, in the order of :attr:`groups`."""
        return self._readings.group_names

    @property
    def margins(self) -> Margins:
        """Correct samples, targets and predictions of each class as counted, ``[K]`` each; of labels ``[L, 2]``."""
        at = self._at if self._at.prevalence is None else replace(self._at, prevalence=None)
        return Margins(*map(Tensor.clone, at.read().marginal))

    @property
    def signature(self) -> str:
        """Version, task, number of samples, settings and a hash of the counts, in one line.

        Equal signatures mean equal counts, in the same order of classes. A threshold of 0.5 is not named.

        >>> from imbtorch import report
        >>> report(preds=["cat", "dog", "dog"], target=["cat", "dog", "cat"]).signature.partition(" | ")[2]
        'multiclass, 2 classes | 3 samples | counts b98406b6'
        """
        counting, counts = self._readings.counting, self._at.whole.counts
        actual = margins(counts).actual
        samples = (actual[0] if counting.task == "multilabel" else actual).sum().item()
        limits = counting.threshold if isinstance(counting.threshold, tuple) else (counting.threshold,)
        parts = [
            f"imbtorch {self._version}",
            f"{counting.task}, {counting.size} {'labels' if counting.num_labels else 'classes'}",
        ]
        parts.append(f"{samples:.10g} samples")
        parts += [f"threshold {', '.join(f'{limit:.10g}' for limit in limits)}"] * (set(limits) != {0.5})
        parts += ["weighted"] * counting.weighted
        parts += [] if counting.ignore_index is None else [f"ignore_index {counting.ignore_index}"]
        shares = self._at.prevalence
        if shares is not None:
            shares = shares[:, 1] if counting.task == "multilabel" else shares
            parts.append(f"prevalence {', '.join(f'{share:.6g}' for share in shares.tolist())}")
        cells = torch.stack(counts) if isinstance(counts, Margins) else counts
        digest = hashlib.sha256(cells.contiguous().numpy().astype("<f8" if counting.weighted else "<i8").tobytes())
        return " | ".join([*parts, f"counts {digest.hexdigest()[:8]}"])

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write settings and counts to a JSON file, which :func:`imbtorch.open_result` opens.

        Opening computes the values, intervals and table from them. The file also holds the values that counts cannot
        give: areas under curves, and those of your own functions, whose code no file holds. It is strict JSON,
        with null for nan and the texts "inf" and "-inf", and needs no pickle.

        Args:
            path: path of the file; an older one is replaced once the new one is complete.
        """
        at, more = self._at.whole, (self._notes, self.problems, self._parts)
        replace_file(path, text_of_file(self._rows, self.signature, self._version, at, self._readings, *more).encode())

    def of_classes(self, key: str) -> Tensor:
        """Return the values of a measure for each class ``[K]``, or label ``[L]``.

        Args:
            key: name of a measure in ``per_class`` or in the catalogue, whether reported or not.

        Raises:
            ValueError: for an unknown measure, and one without values of single classes.
        """
        measure = self._readings.per_class.get(key) or of_name(key, self._readings.counting)
        at = self._at.whole if measure.needs_matrix else self._at
        return torch.stack(shown([at.of_classes(key, measure)]))

    def interval(
        self,
        name: str,
        *,
        level: float = 0.95,
        draws: int = DRAWS,
        generator: torch.Generator | None = None,
        clusters: bool | None = None,
    ) -> Interval:
        """Compute the interval of a value.

        A mean over classes and its interval leave out classes with neither targets nor predictions. Without a
        ``generator`` the interval is that of :meth:`table`, and the same after ``to_json`` and
        :func:`imbtorch.open_result`: draws are seeded by the counts and the level.

        Args:
            name: measure of the report, or value of a class, class group or group of samples, such as
                ``recall/fraud``, without prefix and postfix.
            level: nominal coverage of the interval, in (0, 1).
            draws: number of draws.
            generator: source of randomness, on the CPU; by default one that is seeded by the counts and the level.
            clusters: True to resample clusters (:func:`imbtorch.statistics.bootstrap`), which needs a report with
                ``clusters=True``; False to treat all samples as independent (:func:`imbtorch.statistics.posterior`). By
                default clusters are resampled if the report has them, except for values of a single label while each of
                its samples is a cluster of its own. Samples of the binary and multiclass tasks that came without ids
                are always treated as independent.

        Raises:
            ValueError: for an unknown name, a minimum over classes or groups, a value that depends on classes without
                targets, ``clusters=True`` without clusters or with samples of fewer than two, ``state="margins"``, and
                weights whose squares are unknown.
        """
        row = next((row for row in self._rows if row.name == name), None)
        if row is not None and row not in self._readings.rows:
            remedy = "report(..., intervals=True) without clusters, or an interval of a sweep, gives its bounds"
            if f"{name}_low" in self:
                remedy = f"result['{name}_low'] and result['{name}_high'] are its 95% bounds"
            raise ValueError(
                f"{name!r} is a value of scores, or by a function that this result does not hold; {remedy}"
            )
        place = self._readings.with_interval(name, clusters)
        return self._interval(place, clusters=clusters, draws=draws, level=level, generator=generator)

    def _interval(self, place: tuple[Row, int | None], clusters: bool | None, **options: Any) -> Interval:
        """Compute the interval of a row, for a group of samples or for all."""
        at, (row, group) = self._at.whole, place
        counts = confusion_counts(at.counts)
        interval = self._readings.intervals(at, [row], group, clusters=clusters, **options)[row]
        if bool(interval.low.isnan()):
            cause = "it depends on classes without targets; count samples of every class"
            if not bool(counts.any()):
                cause = "no sample was counted; call update before interval"
            elif interval.method.startswith(ONE_BUCKET):
                cause = "all samples lie in one bucket of clusters; count samples of more clusters"
            elif interval.method == NO_SQUARES:
                cause = UNSQUARED
            name = row.name if group is None else self._readings.of_group(row, self._readings.groups[group]).name
            raise ValueError(f"{name!r} has no interval, because {cause}")
        if clusters is not False:
            self._warn_if_dependent()
        return interval

    def table(self, sort: str | None = None, head: int | None = None, digits: int = 3) -> Table:
        """Return all values as a table, to print, show in a notebook or write as CSV.

        Its blocks are ``"class"``, ``"class group"`` and ``"group"`` (of samples), with a row for each of them, and
        ``"measure"`` with the values over all classes: ``table["class"]["cat"]["recall"]`` and
        ``table["measure"]["iam"]["all"]``. Columns are the measures of ``per_class`` (recall and precision if it is
        empty), for groups of samples the ``measures``. Groups of samples are sorted, the worst first. ``support``
        (number of targets), ``positives`` of a group (of labels their sum), its ``alarms`` (predicted positives of two
        classes) and ``predicted`` (number of predictions) are counts of samples, also with ``prevalence``; ``alerts``
        is the share of alarms.

        Args:
            sort: column by which classes are sorted, the worst first; ``"support"`` sorts the rarest first. Classes
                without targets come last if a measure sorts. By default classes stay in the order of their indices.
                ``"name"`` sorts groups of samples by their names, as they were given: months by time.
            head: number of classes to print, by default all; ``to_csv`` and the other forms of
                :class:`~imbtorch.tables.Table` always hold all of them.
            digits: decimals of values in text, Markdown and LaTeX.

        Raises:
            ValueError: for an unknown column, a ``head`` below 1, and ``digits`` outside 0..15.

        >>> from imbtorch import ImbalanceReport
        >>> report = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"], measures=["iam"])
        >>> report.update(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 0, 1, 2, 2]))
        >>> print(report.result().table(sort="recall", head=2))
        class  support  predicted  recall  precision
        emu          2          1   0.500      1.000
        cat          2          2   1.000      1.000
        ... 1 more
        <BLANKLINE>
        measure    all
        iam      0.333
        <BLANKLINE>
        - iam: mean over the classes (macro)
        - Baseline: always predicting 'cat': iam -0.733
        """
        if head is not None and (isinstance(head, bool) or not isinstance(head, int) or head < 1):
            raise ValueError(f"head must be the number of classes to print, 1 or more, got {head!r}")
        whole = self._whole_table(by_name=sort == "name")
        blocks = dict(whole.blocks)
        if sort not in (None, "name"):
            known = list(next(iter(blocks["class"].values())))
            if sort not in known:
                raise ValueError(f"sort must be a column of the classes, {', '.join(known)}, or name, got {sort!r}")
            better = next((row.better for row in self._rows if row.kind == "class" and row.measure == sort), None)
            blocks["class"] = _worst_first(blocks["class"], sort, better)
        printed = {**whole.printed, **({} if head is None else {"class": head})}
        return replace(whole, blocks=blocks, printed=printed, digits=digits)

    def _added_rows(self) -> dict[Row, Tensor]:
        """Return values of the table that are not reported: of each group, and recall and precision."""
        settings = self._readings
        more = {row: value for row, value in settings.values.items() if row.kind == "overall" and settings.groups}
        if not settings.per_class:
            columns = {key: of_name(key, settings.counting) for key in ("recall", "precision")}
            more |= values_of_classes(columns, settings.class_names)
        return replace(settings, values=more, bounded=(), per_group=tuple(settings.measures)).read(self._at.whole)

    def _whole_table(self, by_name: bool = False) -> Table:
        """Return the table with the classes in the order of their indices, and groups the worst first or by name."""
        settings, at = self._readings, self._at.whole
        blocks: dict[str, dict[str, dict[str, Any]]] = {
            kind: {} for kind in ("class", "class group", "group", "measure")
        }
        counted, positive = margins(at.counts), 1 if settings.counting.task == "multilabel" else slice(None)
        supports = zip(counted.actual[..., positive].tolist(), counted.predicted[..., positive].tolist(), strict=True)
        for name, (support, predicted) in zip(settings.class_names, supports, strict=True):
            blocks["class"][name] = {"support": support, "predicted": predicted}
        if at.groups is not None:
            samples, _ = comparable_groups(settings.counting, at.groups)
            of_groups, counts = margins(at.groups), dict[str, Tensor]()
            if settings.counting.task != "multiclass":
                counts["positives"] = of_groups.actual[..., 1].reshape(len(samples), -1).sum(-1)
            if settings.counting.task == "binary":
                counts["alarms"] = of_groups.predicted[..., 1]
                counts["alerts"] = ratio(counts["alarms"].double(), samples.double())
            for at_group, (name, size) in enumerate(zip(settings.group_names, samples.tolist(), strict=True)):
                known = {key: each[at_group].item() for key, each in counts.items()}
                blocks["group"][name] = {"support": size, **known}
        for row, cell in _cells({**self._rows, **self._added_rows()}).items():
            if row.kind == "overall":
                blocks["measure"][row.measure] = {"all": cell}
            elif row.kind in blocks:
                blocks[row.kind].setdefault(group_label(row.by, row.of), {})[row.measure] = cell
        directed = next((row for row in self._rows if row.kind == "overall" and row.better is not None), None)
        if directed is not None and not by_name:
            blocks["group"] = _worst_first(blocks["group"], directed.measure, directed.better)
        baseline = baseline_line(*settings.baseline(at))
        notes = means_text(settings), baseline, settings.intervals_text(at), *self._notes, *self.problems.values()
        return Table(
            {kind: found for kind, found in blocks.items() if found},
            tuple(filter(None, notes)),
            title=WEIGHTED * settings.counting.weighted,
            printed={"group": FEW},
        )

    def plot(self, ax: Any | None = None) -> tuple[Any, Any]:
        """Draw the confusion matrix with the recall of each class next to its row.

        The multilabel task, and ``state="margins"``, which keeps no matrix, draw a bar for the recall of each label or
        class. Error bars show 95% intervals of recalls in ``per_class``; margins have none. Titles say if counts are
        weighted.

        Args:
            ax: matplotlib axes to draw into; by default a new figure.

        Returns:
            Figure (None if axes were given) and axes.
        """
        from imbtorch.plots.matrix import plot_confusion_matrix
        from imbtorch.plots.values import plot_values

        settings, counts = self._readings, self._at.whole.counts
        names, weighted = settings.class_names, settings.counting.weighted
        ends: dict[str | None, tuple[float, float]] = {}
        if isinstance(counts, Tensor) and not (weighted and self._at.squares is None):
            rows = [row for row in settings.values if row.kind == "class" and row.measure == "recall"]
            found = settings.intervals(self._at.whole, rows, draws=DRAWS, level=LEVEL, generator=None)
            ends = {row.of: (each.low.item(), each.high.item()) for row, each in found.items()}
        low, high = torch.tensor([ends.get(name, (nan, nan)) for name in names], dtype=torch.float64).unbind(-1)
        recalls = Interval(self.of_classes("recall"), low, high, LEVEL, "")
        if isinstance(counts, Tensor) and counts.ndim == 2:
            figure, axes = plot_confusion_matrix(counts, ax, labels=names, recalls=recalls)
            if weighted:
                axes.set_title(f"Weighted {axes.get_title().lower()}", fontsize="small")
            return figure, axes
        item = "Label" if settings.counting.task == "multilabel" else "Class"
        name = "recall" + ", weighted" * weighted
        return plot_values(recalls, ax, name=name, value_range=(0.0, 1.0), item=item, labels=names)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.table()._repr_html_()


FEW = 20  # number of groups of samples to print


def with_values(result: ReportResult, rows: Mapping[Row, Tensor], notes: Sequence[str] = ()) -> ReportResult:
    """Return a result with further values, which need more than its counts, and notes below its table."""
    taken = {row.name for row in result._rows}.intersection(row.name for row in rows)
    if taken:
        raise ValueError(f"measures contains {sorted(taken)[0]!r}, which scores add; rename it in measures")
    return replace(result, _rows={**result._rows, **rows}, _notes=(*result._notes, *notes))


def _cells(rows: Mapping[Row, Any]) -> dict[Row, Cell]:
    """Return each value with its bounds."""
    cells = {}
    for row, value in rows.items():
        if not row.bound:
            low, high = (float(rows.get(replace(row, bound=end), nan)) for end in ENDS)
            cells[row] = Cell(float(value), low, high)
    return cells


def means_text(settings: Readings) -> str:
    """Return a text that says which values are means over the classes or labels, or those of the positive class."""
    kind = "binary" if settings.counting.task == "binary" else "macro"
    names = [key for key, each in settings.measures.items() if each.is_averaged and each.average == kind]
    whole = "labels" if settings.counting.task == "multilabel" else "classes"
    of = f"of {settings.class_names[-1]!r}" if kind == "binary" else f"mean over the {whole} (macro)"
    return f"{', '.join(names)}: {of}" if names else ""


def _worst_first(
    rows: Mapping[str, Mapping[str, Any]], column: str, higher_is_better: bool | None
) -> dict[str, dict[str, Any]]:
    """Sort rows by a column, the worst first; the lowest counts as worst without a direction.

    If a measure sorts, nan comes after all other values, and rows without targets come last of all.
    """
    sign, of_measure = -1 if higher_is_better is False else 1, column not in COUNTS

    def rank(name: str) -> tuple[bool, bool, float]:
        value, without_targets = rows[name].get(column, nan), rows[name]["support"] == 0
        return of_measure and without_targets, isnan(value), 0.0 if isnan(value) else sign * value

    return {name: dict(rows[name]) for name in sorted(rows, key=rank)}
