"""Measures of a perfect classifier that misclassifies a growing share of some classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counting.arguments import computed_on_cpu
from imbtorch.counts import Measure, evaluated


@computed_on_cpu
def sensitivity_curves(
    measures: Mapping[str, Measure],
    support: Tensor | Sequence[float],
    *,
    classes: Sequence[int] | None = None,
    until: float = 1.0,
    steps: int = 41,
) -> SensitivityCurves:
    """Compute measures of a perfect classifier that misclassifies a growing share of some classes.

    Misclassified samples of a class are spread evenly over the other classes. The paper does not state how its
    classifiers were made worse, so these curves have the same test sets, but not the same classifiers.

    Args:
        measures: name -> function of ``[..., K, K]`` counts with a value ``[...]``.
        support: ``[K]`` samples of each class.
        classes: indices of the classes that are misclassified; by default the rarest one.
        until: largest share of them that is misclassified, in (0, 1].
        steps: number of shares T, at least 2.

    Returns:
        :class:`SensitivityCurves`.

    Raises:
        ValueError: for fewer than two classes, a class without samples or out of range, a share or a number of steps
            out of range, and for a measure that does not return one value for each matrix.

    Source: Mortaz (2020), Figures 1 to 4, on the class frequencies of Tables 11 to 14.

    >>> from imbtorch import accuracy
    >>> sensitivity_curves({"accuracy": accuracy}, [90, 10], steps=3).values["accuracy"]
    tensor([1.0000, 0.9500, 0.9000], dtype=torch.float64)
    """
    numbers = torch.as_tensor(support, dtype=torch.float64).detach().cpu()
    if numbers.ndim != 1 or len(numbers) < 2 or not bool((numbers > 0).all()):
        raise ValueError(f"support must hold the samples of two classes or more, each above 0, got {support!r}")
    size = len(numbers)
    chosen = [int(numbers.argmin())] if classes is None else list(classes)
    if not chosen or any(not 0 <= index < size for index in chosen):
        raise ValueError(f"classes must hold indices 0..{size - 1}, got {classes!r}")
    if not 0 < until <= 1 or steps < 2:
        raise ValueError(f"until must lie in (0, 1] and steps be 2 or more, got {until!r} and {steps!r}")
    shares = torch.linspace(0, until, steps, dtype=torch.float64)
    lost = torch.zeros(size, dtype=torch.float64)
    lost[chosen] = 1.0
    right = torch.eye(size, dtype=torch.float64)
    moves = (1 - right) / (size - 1) - right  # change of each row for one lost sample of its class
    counts = numbers.diag() + shares.view(-1, 1, 1) * (numbers * lost).unsqueeze(-1) * moves
    values = {name: evaluated(measure, counts, name) for name, measure in measures.items()}
    return SensitivityCurves(shares, values, size, tuple(sorted(set(chosen))))


@dataclass(frozen=True, eq=False)
class SensitivityCurves:
    """Values of measures over the misclassified share of some classes; :func:`sensitivity_curves` computes them.

    Attributes:
        shares: ``[T]`` misclassified shares, from 0 on.
        values: name of a measure -> ``[T]``.
        num_classes: number of classes K.
        classes: indices of the classes that are misclassified, rising.

    >>> from imbtorch import accuracy
    >>> curves = sensitivity_curves({"accuracy": accuracy}, [90, 10], steps=3)
    >>> curves.shares, curves.classes
    (tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64), (1,))
    """

    shares: Tensor
    values: Mapping[str, Tensor]
    num_classes: int
    classes: tuple[int, ...]
