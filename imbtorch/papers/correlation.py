"""Correlation of measures under growing imbalance (Garcia, Mollineda and Sanchez 2010, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imbtorch.counting.arguments import check_generator, computed_on_cpu
from imbtorch.counts import Measure, evaluated, two_by_two


@computed_on_cpu
def perturbed_scores(
    n: int,
    positive_share: float,
    eps_negative: float,
    eps_positive: float,
    generator: torch.Generator | None = None,
    draws: int = 1,
) -> tuple[Tensor, Tensor]:
    r"""Simulate scores of classifiers: a true ranking in which each probability is moved at random within a distance.

    The true probabilities of the negatives rise evenly to 0.5, the ones of the positives from there to 1:

    .. math:: p_i = \frac{i}{2 n_-} \;(i \le n_-), \qquad p_{n_- + i} = \frac12 + \frac{i}{2 n_+} \;(i \le n_+)

    A perturbed probability is uniform in ``[max(0, p - eps), min(1, p + eps)]``; each class has its own distance eps.

    Args:
        n: samples of a test set.
        positive_share: share of positives in (0, 1).
        eps_negative: distance for negatives, >= 0.
        eps_positive: distance for positives, >= 0.
        generator: source of randomness; by default torch's global one.
        draws: number of classifiers.

    Returns:
        Scores, float64 ``[draws, n]`` in [0, 1], and targets ``[n]``, the negatives first.

    Raises:
        ValueError: for a share that leaves one class without samples, or a negative distance.

    Source: Garcia et al. (2010), section 4.1 and Table 3; after Huang and Ling (2007).

    >>> scores, target = perturbed_scores(12, 0.25, 0.0, 0.0)
    >>> scores[0, [0, 8, 9, 11]], target.sum()
    (tensor([0.0556, 0.5000, 0.6667, 1.0000], dtype=torch.float64), tensor(3))
    """
    check_generator(generator)
    positives = round(n * positive_share)
    if not 0 < positives < n:
        raise ValueError(f"positive_share={positive_share!r} of n={n} samples leaves one class empty")
    if not (eps_negative >= 0 and eps_positive >= 0):
        raise ValueError(f"eps_negative and eps_positive must be >= 0, got {eps_negative!r} and {eps_positive!r}")
    negatives = n - positives
    low = torch.arange(1, negatives + 1, dtype=torch.float64) / (2 * negatives)
    high = 0.5 + torch.arange(1, positives + 1, dtype=torch.float64) / (2 * positives)
    truth = torch.cat((low, high))
    target = torch.cat((torch.zeros(negatives, dtype=torch.int64), torch.ones(positives, dtype=torch.int64)))
    distance = torch.tensor((eps_negative, eps_positive), dtype=torch.float64)[target]
    least, most = (truth - distance).clamp(min=0), (truth + distance).clamp(max=1)
    noise = torch.rand(draws, n, generator=generator, dtype=torch.float64)
    return least + noise * (most - least), target


@computed_on_cpu
def measure_correlations(
    measures: Mapping[str, Measure],
    shares: Sequence[float] = (0.05, 0.10, 0.15, 0.20, 0.25),
    *,
    n: int = 2000,
    draws: int = 10,
    eps: float = 0.6,
    step: float = 0.05,
    generator: torch.Generator | None = None,
) -> Correlations:
    r"""Compute the Pearson correlations between measures over simulated classifiers, at each share of positives.

    .. math:: \rho_{ab} = \frac{\sum_t (a_t - \bar a)(b_t - \bar b)}
        {\sqrt{\sum_t (a_t - \bar a)^2 \sum_t (b_t - \bar b)^2}}

    The distortion ``eps`` is split between the two classes in steps of ``step``, from all on the negatives to all on
    the positives (:func:`perturbed_scores`; scores above 0.5 are positive). For each share of positives and each split
    there are ``draws`` classifiers: 130 for a share with the defaults, as in the paper. The paper does not state ``n``,
    and the sign of the correlation between the index of balanced accuracy (IBA) and accuracy depends on it: negative
    for 2000 samples, mostly positive for 200. The paper calls IBA the measure most correlated with the true positive
    rate; that holds for signed correlations, while the correlation of accuracy is negative and larger in size.

    Args:
        measures: M names -> function of ``[..., 2, 2]`` counts with a value ``[...]``; each is called once.
        shares: S shares of positives.
        n: samples of a test set.
        draws: classifiers for each split.
        eps: sum of the distortions of both classes.
        step: step of the splits; must divide ``eps``.
        generator: source of randomness; by default a fixed seed.

    Returns:
        :class:`Correlations`.

    Raises:
        ValueError: without measures or shares, for a step that does not divide ``eps``, for a share that leaves one
            class without samples, and for a measure that does not return one value for each matrix.

    Source: Garcia et al. (2010), Figure 1.

    >>> from imbtorch import accuracy, specificity
    >>> found = measure_correlations({"accuracy": accuracy, "TNrate": lambda c: specificity(c, "binary")}, [0.05])
    >>> bool(found.matrix[0, 0, 1] > 0.99)  # with 95% negatives, accuracy nearly equals TNrate
    True
    """
    if not measures or not shares:
        raise ValueError(f"measures and shares must not be empty, got {list(measures)} and {list(shares)}")
    steps = round(eps / step) if step > 0 else 0
    if steps < 1 or abs(steps * step - eps) > 1e-9:
        raise ValueError(f"step must be positive and divide eps, got step={step!r} and eps={eps!r}")
    check_generator(generator)
    generator = generator or torch.Generator().manual_seed(0)
    rows = []
    for share in shares:
        for index in range(steps + 1):
            negative, positive = eps * (steps - index) / steps, eps * index / steps
            scores, target = perturbed_scores(n, share, negative, positive, generator, draws)
            rows.append(_counts(scores > 0.5, target))
    counts = torch.stack(rows).reshape(len(shares), (steps + 1) * draws, 2, 2)
    values = torch.stack([evaluated(measure, counts) for measure in measures.values()], 1)  # [S, M, classifiers]
    constant = (values == values[..., :1]).all(-1, keepdim=True)  # compared exactly, because means are rounded
    centred = torch.where(constant, torch.nan, values - values.mean(-1, keepdim=True))
    scaled = centred / centred.norm(dim=-1, keepdim=True)
    return Correlations(tuple(measures), tuple(shares), scaled @ scaled.transpose(-1, -2))


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of measures at several shares of positives; :func:`measure_correlations` computes them.

    Attributes:
        names: M names of measures.
        shares: S shares of positives.
        matrix: ``[S, M, M]`` correlations; nan for a measure that was constant.

    >>> found = Correlations(("accuracy", "TPrate"), (0.05,), torch.tensor([[[1.0, -0.5], [-0.5, 1.0]]]))
    >>> found.of("accuracy", "TPrate")
    tensor([-0.5000])
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    matrix: Tensor

    def of(self, first: str, second: str) -> Tensor:
        """Return the correlation of two measures, given by name, at each share, ``[S]``."""
        return self.matrix[:, self.names.index(first), self.names.index(second)]


def _counts(predicted: Tensor, target: Tensor) -> Tensor:
    """Count predictions ``[draws, n]`` of one target ``[n]`` as matrices ``[draws, 2, 2]``."""
    positive = target == 1
    tp, fp = (predicted & positive).sum(-1), (predicted & ~positive).sum(-1)
    fn, tn = positive.sum() - tp, (~positive).sum() - fp
    return two_by_two(tn, fp, fn, tp)
