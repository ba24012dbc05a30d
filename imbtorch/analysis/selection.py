"""Which of several models a measure would keep (Mortaz 2020; Garcia et al. 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch import measures as formulas
from imbtorch.analysis.dominance import undominated
from imbtorch.analysis.tables import aligned
from imbtorch.counts import Measure, double, evaluated, matrix, square

__all__ = ["Selection", "select_model"]

FIVE: dict[str, Measure] = {
    "accuracy": formulas.accuracy,
    "cba": formulas.class_balance_accuracy,
    "recall": formulas.recall,
    "precision": formulas.precision,
    "f1": formulas.f_score,
}
POINT: dict[str, Measure] = {
    "dominance": formulas.dominance,
    "gmean": formulas.geometric_mean,
    "area": formulas.accuracy_dominance_area,
}


def select_model(candidates: Mapping[str, Tensor], measures: Mapping[str, Measure] | None = None) -> Selection:
    """Compare models by their confusion matrices, by each measure, by all of them together, and by IAM alone.

    Args:
        candidates: name of a model (or epoch) -> ``[K, K]`` counts, all with the same number of classes.
        measures: name -> function of ``[..., K, K]`` counts with a value ``[...]``, of which higher is better; by
            default the five of the IAM paper: accuracy, CBA, macro recall, macro precision, macro F1.

    Returns:
        :class:`Selection`; print it for a table.

    Raises:
        ValueError: without candidates or measures, for matrices of different shapes or with nan or negative cells, for
            a measure that does not return one value for each matrix.
        TypeError: for a candidate that is no tensor.

    Source: Mortaz (2020), sections 2.2 and 3.5; Garcia et al. (2009), section 2.1, for the points of two classes.

    >>> a, b = [[100, 102, 99], [105, 100, 10], [102, 10, 90]], [[114, 86, 101], [100, 100, 15], [110, 10, 82]]
    >>> found = select_model({"a": torch.tensor(a), "b": torch.tensor(b)})
    >>> found.by_measure["accuracy"], found.by_max_min, found.by_iam
    (('b',), ('b',), ('a',))
    """
    if not candidates:
        raise ValueError("candidates is empty; give at least one model and its confusion matrix")
    shapes = {name: list(square(counts).shape) for name, counts in candidates.items()}
    if len({tuple(shape) for shape in shapes.values()}) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(f"candidates must be matrices [K, K] of the same classes, got {shapes}")
    chosen = FIVE if measures is None else measures
    if not chosen:
        raise ValueError("measures is empty; leave it out for the five of the paper")
    stacked = torch.stack([double(counts).detach().cpu() for counts in candidates.values()])
    impossible = [name for name, counts in zip(candidates, stacked, strict=True) if bool(matrix(counts).isnan().any())]
    if impossible:
        raise ValueError(
            f"counts must be >= 0 and not nan, which those of {impossible} are not; select among the others"
        )

    def table(of: Mapping[str, Measure]) -> Tensor:
        return torch.stack([evaluated(measure, stacked) for measure in of.values()], 1)

    points = table(POINT) if stacked.shape[-1] == 2 else None
    return Selection(tuple(candidates), tuple(chosen), table(chosen), formulas.imbalance_accuracy(stacked), points)


@dataclass(frozen=True, eq=False)
class Selection:
    """Measures of several models, and which model each way of choosing keeps.

    Where models are equally good all of them are named, in the order of the candidates. A value that is nan never
    wins and is nobody's lowest; where all are nan none is chosen.

    Attributes:
        models: M names.
        measures: S names.
        values: ``[M, S]``.
        iam: ``[M]``.
        points: for two classes ``[M, 3]``: dominance, G-mean and area of the accuracy-dominance space, else None.
    """

    models: tuple[str, ...]
    measures: tuple[str, ...]
    values: Tensor
    iam: Tensor
    points: Tensor | None = None

    @property
    def lowest(self) -> tuple[str | None, ...]:
        """Lowest measure of each model, the one that the paper underlines and reports; None without any value."""
        least = self.values.nan_to_num(nan=torch.inf).argmin(1).tolist()
        missing = self.values.isnan().all(1).tolist()
        return tuple(None if none else self.measures[at] for at, none in zip(least, missing, strict=True))

    @property
    def by_measure(self) -> dict[str, tuple[str, ...]]:
        """Measure -> the models of which it is highest."""
        return {name: self._best(self.values[:, index]) for index, name in enumerate(self.measures)}

    @property
    def by_max_min(self) -> tuple[str, ...]:
        """Models whose lowest measure is highest: the paper's multiple-metric choice."""
        least = self.values.nan_to_num(nan=torch.inf).amin(1)
        return self._best(torch.where(self.values.isnan().all(1), torch.nan, least))

    @property
    def by_majority(self) -> tuple[str, ...]:
        """Models that most measures are highest for; a tie of a measure is a vote for each."""
        votes = [sum(name in best for best in self.by_measure.values()) for name in self.models]
        return self._best(torch.tensor([vote or torch.nan for vote in votes], dtype=torch.float64))

    @property
    def by_iam(self) -> tuple[str, ...]:
        """Models of highest IAM (and so of highest CBA)."""
        return self._best(self.iam)

    @property
    def by_area(self) -> tuple[str, ...] | None:
        """For two classes the models of the largest accuracy-dominance area."""
        return None if self.points is None else self._best(self.points[:, 2])

    @property
    def undominated(self) -> tuple[str, ...] | None:
        """For two classes the models that no other has both a higher G-mean and a higher dominance than.

        See :func:`~imbtorch.analysis.undominated`.
        """
        if self.points is None:
            return None
        front = undominated(self.points[:, :2])
        return tuple(name for name, kept in zip(self.models, front.tolist(), strict=True) if kept)

    @property
    def agree(self) -> bool:
        """Whether max-min, majority and IAM keep the same models."""
        return self.by_max_min == self.by_majority == self.by_iam

    def _best(self, values: Tensor) -> tuple[str, ...]:
        defined = values[~values.isnan()]
        if not len(defined):
            return ()
        equal = torch.isclose(values, defined.max(), rtol=1e-12, atol=1e-12)  # false for nan
        return tuple(name for name, each in zip(self.models, equal.tolist(), strict=True) if each)

    def __str__(self) -> str:
        """Aligned text: ``*`` marks the best of a column, ``_`` the lowest measure of a row."""
        columns = [(name, self.values[:, index], best) for index, (name, best) in enumerate(self.by_measure.items())]
        columns.append(("IAM", self.iam, self.by_iam))
        if self.points is not None:  # no dominance and no G-mean is best on its own
            bests = ((), (), self.by_area or ())
            columns += zip(POINT, self.points.unbind(1), bests, strict=True)
        rows = [["", *(name for name, _, _ in columns)]]
        for index, (model, low) in enumerate(zip(self.models, self.lowest, strict=True)):
            row = [model]
            for place, (name, values, best) in enumerate(columns):
                lowest = name == low and place < len(self.measures)
                row.append("*" * (model in best) + "_" * lowest + f"{values[index].item():.3f}")
            rows.append(row)
        lines = aligned(rows)
        ways = {"max-min": self.by_max_min, "majority": self.by_majority, "IAM": self.by_iam, "area": self.by_area}
        chosen = "; ".join(f"{way}: {', '.join(names) or 'none'}" for way, names in ways.items() if names is not None)
        verdict = "max-min, majority and IAM " + ("agree" if self.agree else "do not agree")
        front = [] if self.undominated is None else [f"none lies northeast of {', '.join(self.undominated)}"]
        return "\n".join(
            [*lines, "* best of its column, _ lowest measure of its row", f"chosen by {chosen}", verdict, *front]
        )
