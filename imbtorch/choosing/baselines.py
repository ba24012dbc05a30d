"""Values of predictions that look at nothing, and the skill of a classifier beyond them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, Measure, check_square, double, evaluated, margins, ratio
from imbtorch.inference.intervals import posterior

__all__ = ["always_commonest", "beats_trivial", "skill", "trivial"]


def trivial(measure: Measure, counts: Counts) -> dict[str, Tensor]:
    r"""Value of each way to predict without looking at the samples, at the targets of these counts.

    ``"always k"`` predicts class k for all; ``"class shares"`` guesses each class as often as it comes, ``"uniform"``
    all equally often. The last two are the values of the expected counts :math:`r_i r_j / n` and :math:`r_i / K`. An
    accuracy of .99 is worth nothing where always predicting the common class has .99: the accuracy paradox.

    Args:
        measure: function of ``[..., K, K]`` with a value ``[...]``.
        counts: ``[..., K, K]`` counts or rates, of which only the class totals are read; or
            :class:`~imbtorch.Margins`, which the measure must then take. With many classes they save much time.

    Returns:
        Name -> float64 ``[...]``, in the order above; every class from 0 to K - 1 has an entry, with targets or not.

    Raises:
        ValueError: for counts that are no matrices, and a measure that does not return one value for each.

    Source: the two constant predictions are those of Vergne, Can we use accuracy with unbalanced datasets?

    >>> from imbtorch import accuracy, imbalance_accuracy
    >>> counts = torch.tensor([[985, 5], [7, 3]])
    >>> {name: round(value.item(), 4) for name, value in trivial(accuracy, counts).items()}
    {'always 0': 0.99, 'always 1': 0.01, 'class shares': 0.9802, 'uniform': 0.5}
    >>> trivial(imbalance_accuracy, counts)["always 0"]
    tensor(-0.0100, dtype=torch.float64)
    """
    totals = _totals(counts)
    size = totals.shape[-1]
    constant = torch.eye(size, dtype=totals.dtype, device=totals.device)
    guesses = {f"always {k}": constant[k] for k in range(size)}
    guesses["class shares"] = ratio(totals, totals.sum(-1, keepdim=True))
    guesses["uniform"] = torch.full_like(constant[0], 1 / size)
    as_margins = isinstance(counts, Margins)
    return {name: evaluated(measure, _guessed(totals, shares, as_margins)) for name, shares in guesses.items()}


def always_commonest(counts: Counts, class_names: Sequence[str]) -> tuple[str, Counts]:
    """Name and counts of always predicting the class that comes most often; of labels, what each of them is more often.

    >>> always_commonest(torch.tensor([[985, 5], [7, 3]]), ["ok", "fraud"])
    ("always predicting 'ok'", tensor([[990.,   0.],
            [ 10.,   0.]], dtype=torch.float64))
    """
    totals = _totals(counts)
    most = (totals >= (1 - 1e-9) * totals.amax(-1, keepdim=True)).int().argmax(-1)  # the first, where rates are alike
    if totals.ndim == 1:
        name = f"always predicting {class_names[int(most)]!r}"
    else:
        name = "predicting of each label what is more common" if bool(most.any()) else "predicting no label"
    shares = torch.nn.functional.one_hot(most, totals.shape[-1]).to(totals)
    return name, _guessed(totals, shares, isinstance(counts, Margins))


def skill(measure: Measure, counts: Counts, *, higher_is_better: bool = True, costs: Tensor | None = None) -> Tensor:
    r"""Skill of a classifier: the share of the way from the best trivial prediction to the perfect one.

    .. math:: \mathrm{skill} = \frac{m(C) - m_{\text{trivial}}}{m_{\text{perfect}} - m_{\text{trivial}}}

    1 is perfect, 0 no better than :func:`trivial`'s best, negative worse than that. It puts measures of different
    zeros on one scale; with two classes that of balanced accuracy is Youden's J.

    Args:
        measure: function of ``[..., K, K]`` with a value ``[...]``.
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.Margins` if the measure takes them.
        higher_is_better: direction of the measure; one without a direction has no skill.
        costs: ``[K, K]``, those of a measure of costs: the perfect classifier then predicts the cheapest class of each
            row. Without them it predicts every sample's own class.

    Returns:
        float64 ``[...]``, at most 1 for a measure that the perfect classifier maximises; 0 where perfect and trivial
        are equally good (one class only, costs that are all alike); nan where the measure has no value.

    Raises:
        ValueError: as :func:`trivial`, for costs that do not fit the counts, and for a measure that is infinite for the
            perfect classifier, to which every finite value is equally far.

    >>> from imbtorch import accuracy, balanced_accuracy
    >>> counts = torch.tensor([[985, 5], [7, 3]])
    >>> skill(accuracy, counts)  # (.988 - .99) / (1 - .99)
    tensor(-0.2000, dtype=torch.float64)
    >>> skill(balanced_accuracy, counts)  # 985/990 + 3/10 - 1
    tensor(0.2949, dtype=torch.float64)
    """
    sign = 1.0 if higher_is_better else -1.0
    value, highest = sign * evaluated(measure, counts), _best_trivial(measure, counts, sign)
    perfect = sign * evaluated(measure, _perfect(counts, costs))
    if bool(perfect.isinf().any()):
        raise ValueError(
            "measure must be finite for the perfect classifier, since skill is the share of the way to it; give a form "
            "of it that is, as lambda counts: 1 / likelihood_ratio(counts) with higher_is_better=False"
        )
    alike = torch.isclose(perfect, highest, rtol=1e-12, atol=0.0)
    return torch.where(alike, 0.0 * value, (value - highest) / (perfect - highest))


def beats_trivial(
    measure: Measure,
    counts: Tensor,
    *,
    higher_is_better: bool = True,
    samples: int = 10_000,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute the probability that a classifier is better than the best trivial prediction, given what was counted.

    Each draw of the posterior is a population with a classifier in it, whose value is held against the best of
    :func:`trivial` in that population. An accuracy of .99 on 990 common and 10 rare samples says little of that.

    Simulated (``examples/coverage.md``: 200 samples and 10 to 100 rare ones), the probability comes true for
    classifiers that differ clearly from the trivial prediction (recalls some .3 from .5: said .91 to .95, true .89 to
    .95 by balanced accuracy). Where they are nearly alike it is too sure, .75 to .77 in place of .54 to .63 (recalls
    some .02 from .5), by accuracy .74 to .77 in place of .47 to .66 (false alarms within a tenth of the hits):
    beforehand it takes all recalls for equally likely.

    Args:
        measure: function of ``[..., K, K]`` with a value ``[...]``.
        counts: ``[..., K, K]`` whole counts. With many classes it takes long: K + 2 values for each draw.
        higher_is_better: direction of the measure.
        samples: number of draws.
        generator: source of randomness, on the device of the counts; by default torch's.

    Returns:
        float64 ``[...]`` in [0, 1], of the draws in which the measure has a value there and for a trivial prediction;
        nan without any.

    Raises:
        ValueError: as :func:`posterior` and :func:`trivial`.

    >>> from imbtorch import accuracy, balanced_accuracy
    >>> counts, generator = torch.tensor([[985, 5], [7, 3]]), torch.Generator().manual_seed(0)
    >>> beats_trivial(accuracy, counts, generator=generator) < 0.5 < beats_trivial(balanced_accuracy, counts)
    tensor(True)
    """
    sign = 1.0 if higher_is_better else -1.0

    def lead(drawn: Tensor) -> Tensor:
        return sign * evaluated(measure, drawn) - _best_trivial(measure, drawn, sign)

    draws = posterior(lead, counts, samples=samples, generator=generator, draws=True).draws
    assert draws is not None
    return torch.where(draws.isnan(), draws, (draws > 0).to(draws)).nanmean(0)


def _best_trivial(measure: Measure, counts: Counts, sign: float) -> Tensor:
    """Highest signed value of the trivial predictions, ``[...]``; nan where none has one."""
    values = torch.stack([sign * each for each in trivial(measure, counts).values()])
    return torch.where(values.isnan().all(0), torch.nan, torch.where(values.isnan(), -torch.inf, values).amax(0))


def _totals(counts: Counts) -> Tensor:
    """Targets of each class, float64 ``[..., K]``."""
    return margins(counts).actual if isinstance(counts, Margins) else double(check_square(counts)).sum(-1)


def _guessed(totals: Tensor, shares: Tensor, as_margins: bool) -> Counts:
    """Expected counts of predictions that do not depend on the sample."""
    if as_margins:
        return Margins(totals * shares, totals, totals.sum(-1, keepdim=True) * shares)
    return totals.unsqueeze(-1) * shares.unsqueeze(-2)


def _perfect(counts: Counts, costs: Tensor | None) -> Counts:
    """Each sample at its own class, or at the cheapest one of its row."""
    totals = _totals(counts)
    size = totals.shape[-1]
    if costs is None:
        return Margins(totals, totals, totals) if isinstance(counts, Margins) else torch.diag_embed(totals)
    if isinstance(counts, Margins):
        raise ValueError("costs need the whole matrix: Margins do not say which class was taken for which")
    if costs.shape != (size, size):
        raise ValueError(f"costs must be {[size, size]} like the matrix, got {list(costs.shape)}")
    cheapest = torch.nn.functional.one_hot(costs.to(totals.device).argmin(-1), size)
    return totals.unsqueeze(-1) * cheapest
