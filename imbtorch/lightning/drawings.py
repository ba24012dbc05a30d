"""Figures of the last result of a report or a sweep, ready to be drawn even after the next result is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from imbtorch.counts import merge_classes
from imbtorch.inference.scores import matrices_of
from imbtorch.measures import recall
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.shared_result import SharedResult
from imbtorch.metrics.sweep import ThresholdSweep
from imbtorch.plots import plot_confusion_matrix, plot_precision_recall, plot_roc, plot_values
from imbtorch.plots.style import probability

__all__ = ["drawings"]

Draw: TypeAlias = Callable[[], Any]  # makes a matplotlib figure
Intervals: TypeAlias = Mapping[tuple[str, str, str], tuple[float, float]]
CURVES = 10  # most labels or classes of which curves are drawn
PANELS = 3  # most panels side by side
ALL = ""  # key of all groups together; no group has an empty name
NONE = (float("nan"), float("nan"))  # bounds of a value without an interval


def drawings(metric: SharedResult) -> Iterator[tuple[str, Draw]]:
    """Yield each figure of the last result: the end of its name, and the function that draws it.

    Never communicates.
    """
    if isinstance(metric, ImbalanceReport):
        yield from _of_report(metric)
    elif isinstance(metric, ThresholdSweep):
        yield from _of_sweep(metric)


def _of_report(report: ImbalanceReport) -> Iterator[tuple[str, Draw]]:
    """Yield the figures of a report: its matrix, superclasses, groups of samples and groups of classes."""
    result, table = report.result(), report.table()
    counts, item = result.counts, "Label" if report.task == "multilabel" else "Class"
    matrix = counts.cpu() if isinstance(counts, Tensor) and counts.ndim == 2 else None
    recalls = dict(zip(report.class_names, result.of_classes("recall").tolist(), strict=True))
    yield "confusion", partial(_confusion, matrix, recalls, table.bounds, item)
    if report.superclasses and matrix is not None:
        merged, names = merge_classes(matrix, report.superclasses, report.class_names)
        of_merged = dict(zip(names, recall(merged, average="none").tolist(), strict=True))
        yield "superclasses", partial(_confusion, merged, of_merged, {}, "Superclass")
    if report.groups is not None and report.measures:
        sizes = {name: table.groups[name]["support"] for name in report.groups}
        groups = {
            key: {ALL: table.overall[key]} | {name: table.groups[name][key] for name in report.groups}
            for key in (report.per_group or report.measures)
        }
        yield "groups", partial(_panels, groups, table.bounds, "Group (samples)", {ALL: sum(sizes.values())} | sizes)
    if table.class_groups:
        measures = next(iter(table.class_groups.values()))
        values = {key: {name: row[key] for name, row in table.class_groups.items()} for key in measures}
        yield "class_groups", partial(_panels, values, {}, "Class group")


def _confusion(matrix: Tensor | None, recalls: Mapping[str, float], intervals: Intervals, item: str) -> Any:
    """Draw the confusion matrix beside the recalls, or the recalls alone without a matrix."""
    from matplotlib.figure import Figure

    side = min(max(4.0, 0.45 * len(recalls)), 12.0)
    figure = Figure(figsize=(side if matrix is None else 2 * side, side), layout="constrained")
    *left, right = figure.subplots(1, 1 if matrix is None else 2, squeeze=False).flat
    if matrix is not None:
        plot_confusion_matrix(matrix, left[0], labels=list(recalls))
    _bars(right, "recall", recalls, intervals, item, bounds=(0.0, 1.0), kind="class")
    return figure


def _panels(
    values: Mapping[str, Mapping[str, float]],
    intervals: Intervals,
    item: str,
    sizes: Mapping[str, float] | None = None,
) -> Any:
    """Draw one panel of bars for each measure."""
    from matplotlib.figure import Figure

    rows, columns = -(-len(values) // PANELS), min(PANELS, len(values))
    bars = len(next(iter(values.values())))
    figure = Figure(figsize=(columns * min(max(3.2, 0.3 * bars), 9.0), 2.4 * rows + 2.4), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    spare = len(panels) - len(values)  # left out in the first row, since the last row bears the names
    for ax in panels[columns - spare : columns]:
        ax.remove()
    shown = panels[: columns - spare] + panels[columns:]
    for ax, (name, of_each) in zip(shown, values.items(), strict=True):
        _bars(ax, name, of_each, intervals, item, sizes)
    for ax in shown[:-columns]:
        ax.set(xticklabels=[], xlabel="")
    return figure


def _bars(
    ax: Any,
    name: str,
    values: Mapping[str, float],
    intervals: Intervals,
    item: str,
    sizes: Mapping[str, float] | None = None,
    bounds: tuple[float | None, float | None] = (None, None),
    kind: str = "group",
) -> None:
    """Draw the bars of one measure, with intervals if there are any."""
    ends = [intervals.get(("overall" if label == ALL else kind, label, name), NONE) for label in values]
    low, high = torch.tensor(ends, dtype=torch.float64).unbind(-1)
    labels = [f"{label or 'all'} ({sizes[label]:g})" if sizes else label for label in values]
    bars = torch.tensor(list(values.values()), dtype=torch.float64)
    plot_values(bars, ax, name=name, bounds=bounds, item=item, labels=labels, limits=(low, high))


def _of_sweep(sweep: ThresholdSweep) -> Iterator[tuple[str, Draw]]:
    """Yield the curves with the best threshold; nothing if no label has targets of both classes."""
    result, binary = sweep.result(), sweep.task == "binary"
    both = cast(Tensor, result.counts), result.rates()
    histograms, rates = (each.cpu().reshape(-1, *each.shape[-2:]) for each in both)
    whole = histograms.sum(-1).gt(0).all(-1).nonzero().flatten()
    rarest = whole[histograms[whole, 1].sum(-1).argsort(stable=True)[:CURVES]].sort().values.tolist()
    if not rarest:
        return
    names = [""] if binary else [f"/{name}" for name in sweep.class_names]
    aucs, precisions = (each.cpu().reshape(-1) for each in (result.auc(), result.average_precision()))
    counts = {f"{names[at][1:]} (AUC {aucs[at]:.3f})": matrices_of(histograms[at]) for at in rarest}
    found = [result.values[f"threshold{names[at]}"].cpu() for at in rarest]
    best = {name: int(torch.searchsorted(sweep.thresholds, at)) for name, at in zip(counts, found, strict=True)}
    if not binary:
        sizes = rates.sum(-1).double()
        bars = {names[at][1:]: precisions[at].item() for at in rarest}
        title = "" if len(rarest) == len(names) else f"The {len(rarest)} rarest of {len(names)}, best thresholds marked"
        yield "curves", partial(_label_curves, counts, best, bars, (sizes[:, 1] / sizes.sum(-1))[rarest], title)
        return
    (matrices,), (marked,) = counts.values(), best.values()
    there = matrices_of(rates[0])
    yield "curves", partial(_curves, matrices, there, marked, found[0].item(), aucs.item(), precisions.item())


def _curves(matrices: Tensor, rates: Tensor, marked: int, best: float, auc: float, precision: float) -> Any:
    """Draw the ROC and the precision-recall curve, with the best threshold marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_roc(matrices, left, marked=marked)
    plot_precision_recall(rates, right, marked=marked)
    left.set_title(f"AUC {auc:.3f}")
    right.set_title(f"Average precision {precision:.3f}")
    figure.suptitle(f"Marked: the best threshold, {probability(best)}", fontsize="medium")
    return figure


def _label_curves(
    matrices: Mapping[str, Tensor],
    marked: Mapping[str, int],
    precisions: Mapping[str, float],
    shares: Tensor,
    title: str,
) -> Any:
    """Draw the ROC curves of labels, with the best thresholds marked, beside their average precisions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_roc(matrices, left, marked=marked)
    values = torch.tensor(list(precisions.values()), dtype=torch.float64)
    plot_values(
        values, right, name="average precision", bounds=(0.0, 1.0), labels=list(precisions), trivial=shares, item=""
    )
    left.set_title(title or "Marked: the best thresholds", pad=12, fontsize="medium")  # above markers at a rate of 1
    right.set_title("Dotted: random guessing (share of positives)", pad=12, fontsize="medium")
    right.get_legend().remove()  # the title explains the dotted lines, and bars of many labels need the room
    return figure
