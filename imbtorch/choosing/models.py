"""Choice among models by several measures (Mortaz 2020; Garcia et al. 2009)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import cast

import torch
from torch import Tensor

from imbtorch import measures as formulas
from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Measure, check_choice, check_square, double, evaluated, matrix
from imbtorch.deciding.ties import TIES, Ties, best_first, pareto_front, undominated
from imbtorch.measures.named import Measured, measure_of_counts
from imbtorch.measures.traits import by_any_name, by_key, direction_of
from imbtorch.suggestions import did_you_mean
from imbtorch.tables import aligned, html_table, wrapped

FIVE: dict[str, Measured] = {
    "accuracy": "accuracy",
    "cba": "cba",
    **{key: partial(by_key()[key], average="macro") for key in ("recall", "precision", "f1")},
}
POINT: dict[str, Measure] = {
    "dominance": formulas.dominance,
    "gmean": formulas.geometric_mean,
    "area": formulas.accuracy_dominance_area,
}


@computed_on_cpu
def select_model(
    candidates: Mapping[str, Tensor] | Mapping[str, Mapping[str, float]],
    measures: Mapping[str, Measured] | None = None,
    *,
    higher_is_better: Mapping[str, bool] | None = None,
    ties: Ties = "latest",
) -> Selection:
    """Compare models by their confusion matrices: by each measure, by all measures together, and by IAM alone.

    IAM is the imbalance accuracy measure, CBA the class balance accuracy; IAM = 2 CBA - 1.

    Args:
        candidates: name of a model (or epoch) -> ``[K, K]`` counts, or ``[F, K, K]`` counts of F folds, over which each
            measure is averaged; all of one shape. Values that a paper prints are given as name of a model -> name of a
            measure -> value. Then the value ``iam`` is IAM; without it, IAM is computed from the value ``cba``.
        measures: name -> measure: a name in the catalogue, averaged as in a report of these classes, or a function of
            ``[..., K, K]`` counts with a value ``[...]``; functions of this package are averaged like their names. By
            default the five of the IAM paper: accuracy, CBA, macro recall, macro precision, macro F1, whose lowest is
            :func:`imbtorch.bottom_line`.
        higher_is_better: name of a measure -> direction; by default the attribute ``higher_is_better`` of the measure,
            or True if it has none. Printed values have the direction of the measure of the catalogue that they are
            named after, in any case (``"MCC"``); other names must be given one. A measure of which lower is better is
            left out of max-min and is never the lowest of a model.
        ties: ``"latest"`` or ``"earliest"``, the tied candidate that is named first. If the candidates are epochs in
            their order, it is the one to keep.

    Returns:
        :class:`Selection`; print it for a table.

    Raises:
        ValueError: without candidates or measures; for matrices of different shapes or with nan or negative cells; for
            printed values of different measures, of unknown direction, or together with ``measures``; for a direction
            of an unknown measure; for a measure without a direction, or without one value for each matrix; and for an
            unknown ``ties``.
        TypeError: for a candidate that is neither a tensor nor a mapping.

    Source: Mortaz (2020), sections 2.2 and 3.5; Garcia et al. (2009), section 2.1, for the points of two classes.

    >>> a, b = [[100, 102, 99], [105, 100, 10], [102, 10, 90]], [[114, 86, 101], [100, 100, 15], [110, 10, 82]]
    >>> found = select_model({"a": torch.tensor(a), "b": torch.tensor(b)})
    >>> found.by_measure["accuracy"], found.by_max_min, found.by_iam
    (('b',), ('b',), ('a',))
    """
    check_choice("ties", ties, TIES)
    if not candidates:
        raise ValueError("candidates is empty; give at least one model and its confusion matrix")
    printed = {name: each for name, each in candidates.items() if isinstance(each, Mapping)}
    if printed:
        if len(printed) < len(candidates) or measures is not None:
            raise ValueError("candidates must all be printed values, which take no measures, or all be counts")
        return _of_printed(printed, higher_is_better, ties)
    given = FIVE if measures is None else measures
    if not given:
        raise ValueError("measures is empty; leave it out for the five of the paper")
    stacked = _stacked(cast("Mapping[str, Tensor]", candidates))
    chosen = {name: measure_of_counts(measure, stacked.shape[-1]) for name, measure in given.items()}

    def table(of: Mapping[str, Measure]) -> Tensor:
        return torch.stack([evaluated(measure, stacked) for measure in of.values()], -1)  # [M, F, S]

    values, iam = table(chosen), formulas.imbalance_accuracy(stacked).mean(1)
    spread = values.std(1) if stacked.shape[1] > 1 else None
    points = table(POINT).mean(1) if stacked.shape[-1] == 2 else None
    higher = _directions(chosen, higher_is_better)
    return Selection(tuple(candidates), tuple(chosen), values.mean(1), iam, points, spread, higher, ties)


def _stacked(candidates: Mapping[str, Tensor]) -> Tensor:
    """Stack the counts of all candidates, ``[M, F, K, K]``; raise for impossible ones."""
    shapes = {name: list(check_square(counts).shape) for name, counts in candidates.items()}
    different = len({tuple(shape) for shape in shapes.values()}) > 1
    if different or any(len(shape) not in (2, 3) or not shape[0] for shape in shapes.values()):
        raise ValueError(
            f"candidates must be matrices [K, K], or [F, K, K] of folds, of the same classes each, got {shapes}"
        )
    stacked = torch.stack([double(counts).detach().cpu() for counts in candidates.values()])
    stacked = stacked.unsqueeze(1) if stacked.ndim == 3 else stacked
    impossible = [name for name, counts in zip(candidates, stacked, strict=True) if bool(matrix(counts).isnan().any())]
    if impossible:
        raise ValueError(
            f"counts must be >= 0 and not nan; those of {impossible} are not, so leave these candidates out"
        )
    return stacked


def _of_printed(
    candidates: Mapping[str, Mapping[str, float]], higher_is_better: Mapping[str, bool] | None, ties: Ties
) -> Selection:
    """Compare models by printed values, without counts."""
    names = tuple(next(iter(candidates.values())))
    for model, row in candidates.items():
        if set(row) != set(names):
            raise ValueError(f"candidates must have values of the same measures, {list(names)}; {model!r}: {list(row)}")
    columns = {name: torch.tensor([row[name] for row in candidates.values()], dtype=torch.float64) for name in names}
    known = {name.lower(): column for name, column in columns.items()}
    iam = known.get("iam", 2 * known["cba"] - 1 if "cba" in known else torch.full((len(candidates),), torch.nan))
    shown = {name: column for name, column in columns.items() if name.lower() != "iam"}
    if not shown:
        raise ValueError("candidates must have values of at least one measure beside IAM")
    values = torch.stack([*shown.values()], 1)
    catalogue = {name.lower(): function for name, function in by_any_name().items()}
    higher = _directions({name: catalogue.get(name.lower()) for name in shown}, higher_is_better)
    return Selection(tuple(candidates), tuple(shown), values, iam, higher=higher, ties=ties)


def _directions(measures: Mapping[str, object | None], higher_is_better: Mapping[str, bool] | None) -> tuple[bool, ...]:
    """Return for each measure whether higher is better; the measure of printed values is None if it is unknown."""
    given = {} if higher_is_better is None else higher_is_better
    if not isinstance(given, Mapping):
        raise TypeError(f"higher_is_better must map names of measures to True or False, got {given!r}")
    for name in given:
        check_choice("name in higher_is_better", name, tuple(measures))
    unknown = [name for name, measure in measures.items() if measure is None and name not in given]
    if unknown:
        raise ValueError(
            f"printed values of {', '.join(unknown)} have no known direction; pass higher_is_better={{{unknown[0]!r}: "
            f"True}}, or False if lower is better{did_you_mean(unknown[0], by_any_name())}"
        )
    return tuple(direction_of(measure, given.get(name)) for name, measure in measures.items())


@dataclass(frozen=True, eq=False)
class Selection:
    """Values of several models by several measures, and the model that each way of choosing keeps.

    Each way names all models that tie for the best value, first the one to keep. A value that is nan is never the best
    and never the lowest; if all are nan, no model is chosen. :func:`select_model` makes selections.

    Attributes:
        models: M names of models.
        measures: S names of measures.
        values: ``[M, S]`` values, averaged over folds.
        iam: ``[M]`` values of IAM, averaged over folds.
        points: ``[M, 3]``: dominance, G-mean and area of the accuracy-dominance space; None unless there are two
            classes.
        spread: ``[M, S]`` standard deviations over the folds; None without folds. They give no interval, because folds
            are tested on different samples by models that share training samples; :func:`over_runs` has intervals for
            seeds that are tested on the same samples.
        higher: for each measure, whether higher is better; None if it is for all.
        ties: ``"latest"`` or ``"earliest"``, the tied model that is named first.

    >>> accuracy, iam = torch.tensor([[0.9], [0.8]]), torch.tensor([0.1, 0.3])
    >>> found = Selection(("plain", "balanced"), ("accuracy",), accuracy, iam)
    >>> found.by_measure, found.by_iam
    ({'accuracy': ('plain',)}, ('balanced',))
    """

    models: tuple[str, ...]
    measures: tuple[str, ...]
    values: Tensor
    iam: Tensor
    points: Tensor | None = None
    spread: Tensor | None = None
    higher: tuple[bool, ...] | None = None
    ties: Ties = "latest"

    @property
    def lowest(self) -> tuple[str | None, ...]:
        """Lowest measure of each model, which the paper underlines; None for a model without any value."""
        least = self._compared.nan_to_num(nan=torch.inf).argmin(1).tolist()
        missing = self._compared.isnan().all(1).tolist()
        return tuple(None if none else self.measures[at] for at, none in zip(least, missing, strict=True))

    @property
    def most_often_lowest(self) -> tuple[str, ...]:
        """Measures that are the lowest of most models, and so decide max-min most often."""
        times = Counter(name for name in self.lowest if name is not None)
        return tuple(name for name in self.measures if times and times[name] == max(times.values()))

    @property
    def by_measure(self) -> dict[str, tuple[str, ...]]:
        """Measure -> the models with its best value."""
        return {name: self._best(self._worth[:, index]) for index, name in enumerate(self.measures)}

    @property
    def by_max_min(self) -> tuple[str, ...]:
        """Models with the highest lowest measure: the paper's choice by several measures."""
        least = self._compared.nan_to_num(nan=torch.inf).amin(1)
        return self._best(torch.where(self._compared.isnan().all(1), torch.nan, least))

    @property
    def by_majority(self) -> tuple[str, ...]:
        """Models that are best by most measures; a tied measure votes for each of its best models."""
        votes = [sum(name in best for best in self.by_measure.values()) for name in self.models]
        return self._best(torch.tensor([vote or torch.nan for vote in votes], dtype=torch.float64))

    @property
    def unbeaten(self) -> tuple[str, ...]:
        """Models of the Pareto front: no other is as good on each measure and better on one; nan beats nothing."""
        return self._named(pareto_front(self._worth) & ~self._worth.isnan().all(1))

    @property
    def _higher(self) -> Tensor:
        """Directions of the measures, bool ``[S]``: True where higher is better."""
        return torch.tensor(self.higher or (True,) * len(self.measures), device=self.values.device)

    @property
    def _worth(self) -> Tensor:
        """Values with their signs changed where lower is better."""
        return torch.where(self._higher, self.values, -self.values)

    @property
    def _compared(self) -> Tensor:
        """Values that max-min compares, nan elsewhere."""
        return torch.where(self._higher, self.values, torch.nan)

    @property
    def by_iam(self) -> tuple[str, ...]:
        """Models of the highest IAM, and so of the highest CBA."""
        return self._best(self.iam)

    @property
    def by_area(self) -> tuple[str, ...] | None:
        """Models of the largest accuracy-dominance area; None unless there are two classes."""
        return None if self.points is None else self._best(self.points[:, 2])

    @property
    def undominated(self) -> tuple[str, ...] | None:
        """Models to whose northeast no other lies in the accuracy-dominance space; None unless there are two classes.

        See :func:`~imbtorch.statistics.undominated`.
        """
        if self.points is None:
            return None
        return self._named(undominated(self.points[:, :2]))

    @property
    def agree(self) -> bool:
        """True if max-min, majority and IAM keep the same models."""
        return self.by_max_min == self.by_majority == self.by_iam

    def _best(self, values: Tensor) -> tuple[str, ...]:
        """Name the models of the highest of values ``[M]``, the one to keep first."""
        return tuple(self.models[index] for index in best_first(values, self.ties))

    def _named(self, chosen: Tensor) -> tuple[str, ...]:
        """Name the models for which ``[M]`` is true, in the order of the candidates."""
        return tuple(name for name, each in zip(self.models, chosen.tolist(), strict=True) if each)

    def __str__(self) -> str:
        """Return aligned text: ``*`` marks the best of a column, ``_`` the lowest measure of a row."""
        return "\n".join([*aligned(self._cells()), *map(wrapped, self._notes())])

    def _repr_html_(self) -> str:
        """Return the same for notebooks; names are escaped."""
        return html_table(self._cells()) + "".join(f"<p>{escape(note)}</p>" for note in self._notes())

    def _cells(self) -> list[list[str]]:
        """Return the cells of the table, the head first."""
        columns = [(name, self.values[:, index], best) for index, (name, best) in enumerate(self.by_measure.items())]
        columns.append(("IAM", self.iam, self.by_iam))
        if self.points is not None:  # no dominance and no G-mean is best on its own
            bests = ((), (), self.by_area or ())
            columns += zip(POINT, self.points.unbind(1), bests, strict=True)
        rows = [["", *(name for name, _, _ in columns)]]
        for index, (model, low) in enumerate(zip(self.models, self.lowest, strict=True)):
            row = [model]
            for place, (name, values, best) in enumerate(columns):
                chosen = place < len(self.measures)
                marks = "*" * (model in best) + "_" * (chosen and name == low)
                spread = f"±{self.spread[index, place].item():.3f}" if chosen and self.spread is not None else ""
                row.append(f"{marks}{values[index].item():.3f}{spread}")
            rows.append(row)
        return rows

    def _notes(self) -> list[str]:
        """Explain the marks, and name the models that each way of choosing keeps."""

        def text(names: Iterable[str]) -> str:
            return ", ".join(names) or "none"

        folds = "" if self.spread is None else ", ± standard deviation over the folds"
        notes = [f"* best of its column, _ lowest measure of its row{folds}"]
        lower = [name for name, higher in zip(self.measures, self._higher.tolist(), strict=True) if not higher]
        if lower:
            notes.append(f"{text(lower)}: lower is better, so no part of max-min")
        ways = {"max-min": self.by_max_min, "majority": self.by_majority, "IAM": self.by_iam, "area": self.by_area}
        chosen = (f"{way}: {text(names)}" for way, names in ways.items() if names is not None)
        notes.append(f"chosen by {'; '.join(chosen)}")
        notes.append("max-min, majority and IAM " + ("agree" if self.agree else "do not agree"))
        notes.append(
            f"beaten by no other on all measures: {text(self.unbeaten)}; most often the lowest: "
            f"{text(self.most_often_lowest)}"
        )
        if self.undominated is not None:
            notes.append(f"none lies northeast of {', '.join(self.undominated)}")
        return notes
