"""Changes of the confusion matrix that leave a measure unchanged (Garcia, Mollineda and Sanchez 2010, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_generator, computed_on_cpu
from imbtorch.counts import Measure, evaluated
from imbtorch.tables import Table

BINARY = ("p1", "p2", "p3", "p4", "I3", "I4")
ANY = ("permutation", "transpose", "scaling", "prior shift")
NOISE = ("class noise", "uniform noise")
PAIRS = 4096  # pairs of matrices whose order noise may reverse
SOKOLOVA = {
    "p1": "I1",
    "p2": "I2",
    "p3": "I5",
    "p4": "I7",
    "I3": "I3",
    "I4": "I4",
    "scaling": "I6",
    "prior shift": "I8",
}
"""Transformation -> its number in Sokolova (2006); permutation and transpose have none."""


@computed_on_cpu
def invariances(
    measure: Measure, *, samples: int = 256, tolerance: float = 1e-9, generator: torch.Generator | None = None
) -> dict[str, bool]:
    """Find the transformations that leave a measure unchanged, on many random matrices without empty cells.

    For two classes, class 1 positive (in brackets Sokolova's number, as in :data:`SOKOLOVA`):

    - ``p1`` (I1): true positives (TP) and true negatives (TN) change places, and false negatives (FN) and false
      positives (FP).
    - ``p2`` (I2): TN changes, all other cells stay.
    - ``p3`` (I5): FP changes, all other cells stay.
    - ``p4`` (I7): the predicted columns are scaled, TP and FP by one factor, TN and FN by another.
    - ``I3``: TP changes, all other cells stay.
    - ``I4``: FN changes, all other cells stay.

    For two, three and five classes (two alone if a measure raises ``ValueError`` for more):

    - ``permutation``: the classes change places, in rows and columns alike.
    - ``transpose``: targets and predictions change places.
    - ``scaling`` (I6): all counts are multiplied.
    - ``prior shift`` (I8): the samples of each true class are multiplied by a factor of the class.

    Wrong labels change values, but may keep the order of models. Let labels be wrong at random given the true class,
    with probabilities T ``[K, K]`` of labels (columns) for each true class (rows), so that the expected counts are
    ``T.T @ C``. A measure is invariant to that noise if it orders each of 4,096 pairs of matrices with equal class
    totals in the same way with C and with the expected counts:

    - ``class noise``: two classes with error rates e0 and e1, e0 + e1 < 1.
    - ``uniform noise``: two, three and five classes with one error rate below (K - 1) / K; all wrong labels are equally
      likely.

    Args:
        measure: function of ``[..., K, K]`` counts with a value ``[...]``; must take two classes.
        samples: matrices for each number of classes, except for noise.
        tolerance: largest relative or absolute difference that counts as rounding.
        generator: source of randomness; by default a fixed seed.

    Returns:
        Transformation -> whether the measure, or for noise the order of models by it, is invariant.

    Raises:
        ValueError: for a measure that does not return one value for each matrix, or does not take two classes.

    Source: Garcia et al. (2010), Table 4, for p1 to p4; Sokolova (2006), Assessing invariance properties of evaluation
    measures, for I1 to I8. Garcia et al. say that only IBA is changed by all of p1 to p4; TNrate, dominance and the
    accuracy-dominance area are as well.

    >>> from imbtorch import accuracy
    >>> invariances(accuracy)["p1"], invariances(accuracy)["p2"]
    (True, False)
    """
    check_generator(generator)
    generator = generator or torch.Generator().manual_seed(0)
    found = dict.fromkeys((*BINARY, *ANY, *NOISE), True)
    for classes in (2, 3, 5):
        counts = torch.randint(1, 100, (samples, classes, classes), generator=generator).double()
        try:
            measure(counts[:1])
        except ValueError:
            if classes == 2:
                raise
            break  # the measure is defined for two classes only
        before = evaluated(measure, counts)
        changes = _any_changes(counts, generator)
        if classes == 2:
            changes |= _binary_changes(counts, generator)
        for name, changed in changes.items():
            found[name] &= torch.allclose(before, evaluated(measure, changed), rtol=tolerance, atol=tolerance)
        for name, transitions in _transitions(classes, generator).items():
            found[name] &= _keeps_order(measure, transitions, tolerance, generator)
    return found


def invariance_table(
    measures: Mapping[str, Measure],
    *,
    samples: int = 256,
    tolerance: float = 1e-9,
    generator: torch.Generator | None = None,
) -> InvarianceTable:
    """Compute :func:`invariances` of several measures, as a table.

    Args:
        measures: name -> function of counts.
        samples: matrices for each number of classes, as in :func:`invariances`.
        tolerance: largest difference that counts as rounding, as there.
        generator: source of randomness; by default the same fixed seed for each measure.

    Returns:
        :class:`InvarianceTable`; print it.

    >>> from imbtorch import accuracy, dominance
    >>> print(invariance_table({"accuracy": accuracy, "dominance": dominance}))
               p1  p2  p3  p4  I3  I4  permutation  transpose  scaling  prior shift  class noise
               I1  I2  I5  I7  I3  I4                               I6           I8
    accuracy    +   -   -   -   -   -            +          +        +            -            -
    dominance   -   -   -   -   -   -            -          -        +            +            -
               uniform noise
    accuracy               +
    dominance              -
    """
    return InvarianceTable(
        {
            name: invariances(measure, samples=samples, tolerance=tolerance, generator=generator)
            for name, measure in measures.items()
        }
    )


@dataclass(frozen=True)
class InvarianceTable:
    """Invariances of measures: rows of measures, columns of transformations, ``+`` for an invariant measure.

    Sokolova's number stands below each transformation. :func:`invariance_table` makes tables.

    Attributes:
        rows: name of a measure -> transformation -> whether the measure is invariant.

    >>> from imbtorch import accuracy
    >>> table = InvarianceTable({"accuracy": invariances(accuracy)})
    >>> table.rows["accuracy"]["transpose"], len(str(table).splitlines())
    (True, 5)
    """

    rows: dict[str, dict[str, bool]]

    def __str__(self) -> str:
        """Return aligned text."""
        columns = (*BINARY, *ANY, *NOISE)
        rows = {"": {column: SOKOLOVA.get(column, "") for column in columns}}
        rows |= {name: {each: "+" if row[each] else "-" for each in columns} for name, row in self.rows.items()}
        return str(Table({"": rows}))


def _binary_changes(counts: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Change matrices of two classes in each way."""
    factors = torch.randint(2, 10, (len(counts), 5, 2), generator=generator).double()
    factors[..., 0] += 0.5  # so that the factors of the two columns differ

    def one_cell(row: int, column: int, factor: Tensor) -> Tensor:
        changed = counts.clone()
        changed[:, row, column] *= factor
        return changed

    return {
        "p1": counts.flip(-1, -2),
        "p2": one_cell(0, 0, factors[:, 0, 0]),
        "p3": one_cell(0, 1, factors[:, 1, 1]),
        "p4": counts * factors[:, 2:3],
        "I3": one_cell(1, 1, factors[:, 3, 0]),
        "I4": one_cell(1, 0, factors[:, 4, 1]),
    }


def _any_changes(counts: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Change matrices of any number of classes in each way."""
    order = torch.rand(counts.shape[:-1], generator=generator).argsort(-1)  # another order for each matrix
    each = torch.arange(len(counts))[:, None, None]
    return {
        "permutation": counts[each, order[:, :, None], order[:, None, :]],
        "transpose": counts.transpose(-1, -2),
        "scaling": counts * 3,
        "prior shift": counts * torch.randint(1, 10, counts.shape[:-1], generator=generator).unsqueeze(-1),
    }


def _transitions(classes: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw probabilities ``[PAIRS, K, K]`` of labels, columns, for each true class, rows."""
    same = torch.eye(classes, dtype=torch.float64)
    rates = torch.rand(PAIRS, 1, 1, generator=generator, dtype=torch.float64) * (classes - 1) / classes
    found = {"uniform noise": (1 - rates) * same + rates / (classes - 1) * (1 - same)}
    if classes == 2:
        wrong = torch.rand(PAIRS, 2, 1, generator=generator, dtype=torch.float64)
        wrong = torch.where(wrong.sum(1, keepdim=True) < 1, wrong, 1 - wrong)  # even over the triangle
        found["class noise"] = (1 - wrong) * same + wrong * (1 - same)
    return found


def _keeps_order(measure: Measure, transitions: Tensor, tolerance: float, generator: torch.Generator) -> bool:
    """Return whether pairs of matrices with equal row sums have the same order by their counts and by noisy ones."""
    classes = transitions.shape[-1]
    totals = torch.randint(10, 1000, (PAIRS, classes, 1), generator=generator)
    cells = torch.randint(1, 100, (2, PAIRS, classes, classes), generator=generator).double()
    counts = cells / cells.sum(-1, keepdim=True) * totals
    both = counts, transitions.transpose(-1, -2) @ counts
    values = (evaluated(measure, each.flatten(0, 1)).view(2, PAIRS) for each in both)
    before, after = (first - second for first, second in values)
    return not bool(((before > tolerance) & (after < -tolerance) | (before < -tolerance) & (after > tolerance)).any())
