"""Figures of the last result of a report or a sweep, ready to be drawn even after the next result is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from imbtorch.intervals.intervals import Interval
from imbtorch.metrics.report import ImbalanceReport
from imbtorch.metrics.shared_result import SharedResult
from imbtorch.metrics.sweep import ThresholdSweep
from imbtorch.plots import plot_values
from imbtorch.reports.readings import LEVEL

Draw: TypeAlias = Callable[[], Any]  # makes a matplotlib figure
PANELS = 3  # most panels side by side


def drawings(metric: SharedResult) -> Iterator[tuple[str, Draw]]:
    """Yield each figure of the last result: the end of its name, and the function that draws it."""
    if isinstance(metric, ImbalanceReport):
        yield from _of_report(metric)
    elif isinstance(metric, ThresholdSweep):
        result = metric.result()
        if not bool(result.auc().isnan().all()):  # without targets of both classes there is no curve
            yield "curves", lambda: result.plot()[0]


def _of_report(report: ImbalanceReport) -> Iterator[tuple[str, Draw]]:
    """Yield the figures of a report: its matrix, groups of samples and groups of classes."""
    result = report.result()
    table = result.table()
    yield "confusion", partial(_one_panel, result.plot, len(report.class_names))
    if report.groups is not None and report.measures:
        names = result.group_names
        groups = [table["group"][name] for name in names]
        sizes = [row["support"] for row in groups]
        labels = [f"{name} ({size:g})" for name, size in zip(names, sizes, strict=True)]
        values = {}
        for key in report.per_group or report.measures:
            cells = [table["measure"][key]["all"], *(row[key] for row in groups)]
            low, high = torch.tensor([(cell.low, cell.high) for cell in cells]).unbind(-1)
            values[key] = Interval(torch.tensor(cells), low, high, LEVEL, "")
        yield "groups", partial(_panels, values, [f"all ({sum(sizes):g})", *labels], "Group (samples)")
    if report.class_groups:
        names, rows = zip(*table["class group"].items(), strict=True)
        means = {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}
        yield "class_groups", partial(_panels, means, names, "Class group")


def _one_panel(plot: Callable[[Any], Any], classes: int) -> Any:
    """Draw values of classes into a figure of their size."""
    from matplotlib.figure import Figure

    side = min(max(4.0, 0.45 * classes), 12.0)
    figure = Figure(figsize=(1.3 * side, side), layout="constrained")
    plot(figure.subplots())
    return figure


def _panels(values: Mapping[str, Tensor | Interval], labels: Sequence[str], item: str) -> Any:
    """Draw one panel of bars for each measure."""
    from matplotlib.figure import Figure

    rows, columns = -(-len(values) // PANELS), min(PANELS, len(values))
    width = columns * min(max(3.2, 0.3 * len(labels)), 9.0)
    figure = Figure(figsize=(width, 2.4 * rows + 2.4), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    spare = len(panels) - len(values)  # left out in the first row, since the last row bears the names
    for ax in panels[columns - spare : columns]:
        ax.remove()
    shown = panels[: columns - spare] + panels[columns:]
    for ax, (name, of_each) in zip(shown, values.items(), strict=True):
        plot_values(of_each, ax, name=name, item=item, labels=labels)
    for ax in shown[:-columns]:
        ax.set(xticklabels=[], xlabel="")
    return figure
