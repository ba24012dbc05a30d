"""Baselines: predictions that ignore the input, and the skill of a classifier beyond them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imbtorch.counts import Counts, Margins, Measure, check_square, double, evaluated, margins, ratio
from imbtorch.intervals.draws import checked_whole
from imbtorch.intervals.intervals import posterior_of
from imbtorch.measures.named import Measured, measure_of_counts
from imbtorch.measures.traits import direction_of


def trivial(measure: Measured, counts: Counts) -> dict[str, Tensor]:
    r"""Compute the value of each baseline, a prediction that ignores the samples, at the class totals of these counts.

    ``"always k"`` predicts class k for all samples. ``"class shares"`` predicts at random, each class as often as it
    has targets, and ``"uniform"`` all classes equally often; their values are those of the expected counts
    :math:`r_i r_j / n` and :math:`r_i / K`, with :math:`r_i` targets of class i among n. An accuracy of 0.99 is worth
    nothing if always predicting the majority class has 0.99 as well: the accuracy paradox.

    Args:
        measure: name in the catalogue, averaged as in a report of these classes, or function of ``[..., K, K]`` with a
            value ``[...]``; functions of this package are averaged like their names.
        counts: ``[..., K, K]`` counts or rates; only the class totals are read. Or :class:`~imbtorch.Margins`, if the
            measure takes them, which saves much time with many classes.

    Returns:
        Name -> float64 ``[...]``, in the order above; every class from 0 to K - 1 has an entry, with or without
        targets.

    Raises:
        ValueError: for counts that are not matrices, and for a measure that does not return one value for each matrix.

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
    called = measure_of_counts(measure, size)
    constant = torch.eye(size, dtype=totals.dtype, device=totals.device)
    guesses = {f"always {k}": constant[k] for k in range(size)}
    guesses["class shares"] = ratio(totals, totals.sum(-1, keepdim=True))
    guesses["uniform"] = torch.full_like(constant[0], 1 / size)
    as_margins = isinstance(counts, Margins)
    return {name: evaluated(called, _guessed(totals, shares, as_margins)) for name, shares in guesses.items()}


def always_commonest(counts: Counts, class_names: Sequence[str]) -> tuple[str, Counts]:
    """Return name and counts of the majority-class prediction; for labels, of the more common value of each.

    Args:
        counts: ``[K, K]``, or ``[L, 2, 2]`` of labels; or :class:`~imbtorch.Margins`.
        class_names: K names.

    >>> always_commonest(torch.tensor([[985, 5], [7, 3]]), ["ok", "fraud"])
    ("always predicting 'ok'", tensor([[990.,   0.],
            [ 10.,   0.]], dtype=torch.float64))
    """
    totals = _totals(counts)
    most = (totals >= (1 - 1e-9) * totals.amax(-1, keepdim=True)).int().argmax(-1)  # the first of tied classes
    if totals.ndim == 1:
        name = f"always predicting {class_names[int(most)]!r}"
    else:
        name = "predicting the more common value of each label" if bool(most.any()) else "predicting no label"
    shares = torch.nn.functional.one_hot(most, totals.shape[-1]).to(totals)
    return name, _guessed(totals, shares, isinstance(counts, Margins))


def skill(
    measure: Measured, counts: Counts, *, higher_is_better: bool | None = None, costs: Tensor | None = None
) -> Tensor:
    r"""Compute the skill of a classifier: its share of the way from the best baseline to the perfect classifier.

    .. math:: \mathrm{skill} = \frac{m(C) - m_{\text{trivial}}}{m_{\text{perfect}} - m_{\text{trivial}}}

    1 is perfect, 0 as good as the best baseline of :func:`trivial`, and negative worse than that. Skill puts measures
    with different baselines on one scale; for two classes the skill of balanced accuracy is Youden's J.

    Args:
        measure: name in the catalogue, averaged as in a report of these classes, or function of ``[..., K, K]`` with a
            value ``[...]``; functions of this package are averaged like their names.
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.Margins` if the measure takes them.
        higher_is_better: direction; by default the measure's attribute ``higher_is_better``, or True if it has none.
        costs: ``[K, K]`` costs, for a measure of costs: the perfect classifier then predicts the cheapest class of each
            row. By default it predicts every sample's own class.

    Returns:
        float64 ``[...]``, at most 1 for a measure that the perfect classifier maximises; 0 if the perfect classifier is
        no better than a baseline (one class only, equal costs); nan if the measure has no value.

    Raises:
        ValueError: as :func:`trivial`; for costs that do not fit the counts or are not finite; for a measure without a
            direction; and for a measure that is infinite for the perfect classifier, from which every finite value is
            equally far.

    >>> from imbtorch import accuracy, balanced_accuracy
    >>> counts = torch.tensor([[985, 5], [7, 3]])
    >>> skill(accuracy, counts)  # (0.988 - 0.99) / (1 - 0.99)
    tensor(-0.2000, dtype=torch.float64)
    >>> skill(balanced_accuracy, counts)  # 985/990 + 3/10 - 1
    tensor(0.2949, dtype=torch.float64)
    """
    called = measure_of_counts(measure, _totals(counts).shape[-1])
    sign = 1.0 if direction_of(called, higher_is_better) else -1.0
    value, highest = sign * evaluated(called, counts), _best_baseline(called, counts, sign)
    perfect = sign * evaluated(called, _perfect(counts, costs))
    if bool(perfect.isinf().any()):
        raise ValueError(
            "measure must be finite for the perfect classifier, since skill is the share of the way to it; give a form "
            "of it that is, as lambda counts: 1 / likelihood_ratio(counts) with higher_is_better=False"
        )
    alike = torch.isclose(perfect, highest, rtol=1e-12, atol=0.0)
    return torch.where(alike, 0.0 * value, (value - highest) / (perfect - highest))


def beats_baseline(
    measure: Measured,
    counts: Tensor,
    *,
    higher_is_better: bool | None = None,
    draws: int = 10_000,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute the probability that a classifier is better than the best baseline, given these counts.

    Each draw of the posterior is a population with a classifier, whose value is compared with the best of
    :func:`trivial` in that population.

    The probability is right for classifiers that differ clearly from the baseline. It is too high for those that hardly
    differ (0.75 to 0.77 said, 0.55 to 0.62 true), because its prior treats all recalls as equally likely. The page
    "Coverage of 95% intervals" has the simulations.

    Args:
        measure: name in the catalogue, averaged as in a report of these classes, or function of ``[..., K, K]`` with a
            value ``[...]``; functions of this package are averaged like their names.
        counts: ``[..., K, K]`` counts, not rates. Many classes take long: K + 2 values for each draw.
        higher_is_better: direction; by default the measure's attribute ``higher_is_better``, or True if it has none.
        draws: number of draws.
        generator: source of randomness, on the CPU; by default torch's.

    Returns:
        float64 ``[...]`` in [0, 1], the share of draws that the classifier wins, among those in which the measure has a
        value for it and for a baseline; nan without such draws.

    Raises:
        ValueError: as :func:`posterior` and :func:`trivial`, and for a measure without a direction.

    >>> from imbtorch import accuracy, balanced_accuracy
    >>> counts, generator = torch.tensor([[985, 5], [7, 3]]), torch.Generator().manual_seed(0)
    >>> beats_baseline(accuracy, counts, generator=generator) < 0.5 < beats_baseline(balanced_accuracy, counts)
    tensor(True)
    """
    called = measure_of_counts(measure, _totals(counts).shape[-1])
    sign = 1.0 if direction_of(called, higher_is_better) else -1.0

    def lead(drawn: Tensor) -> Tensor:
        return sign * evaluated(called, drawn) - _best_baseline(called, drawn, sign)

    leads = posterior_of({"": lead}, checked_whole(counts), draws, 0.95, generator, keep_draws=True)[""].draws
    assert leads is not None
    return torch.where(leads.isnan(), leads, (leads > 0).to(leads)).nanmean(0)


def _best_baseline(measure: Measure, counts: Counts, sign: float) -> Tensor:
    """Return the highest signed value of the baselines, ``[...]``; nan if none has a value."""
    values = torch.stack([sign * each for each in trivial(measure, counts).values()])
    return torch.where(values.isnan().all(0), torch.nan, torch.where(values.isnan(), -torch.inf, values).amax(0))


def _totals(counts: Counts) -> Tensor:
    """Sum the targets of each class, float64 ``[..., K]``."""
    return margins(counts).actual if isinstance(counts, Margins) else double(check_square(counts)).sum(-1)


def _guessed(totals: Tensor, shares: Tensor, as_margins: bool) -> Counts:
    """Compute the expected counts of predictions that do not depend on the sample."""
    if as_margins:
        return Margins(totals * shares, totals, totals.sum(-1, keepdim=True) * shares)
    return totals.unsqueeze(-1) * shares.unsqueeze(-2)


def _perfect(counts: Counts, costs: Tensor | None) -> Counts:
    """Return counts in which each sample is predicted as its own class, or as the cheapest one of its row."""
    totals = _totals(counts)
    size = totals.shape[-1]
    if costs is None:
        return Margins(totals, totals, totals) if isinstance(counts, Margins) else torch.diag_embed(totals)
    if isinstance(counts, Margins):
        raise ValueError("costs need the whole matrix; pass counts [..., K, K] in place of Margins")
    if costs.shape != (size, size):
        raise ValueError(f"costs must be {[size, size]} like the matrix, got {list(costs.shape)}")
    if not bool(costs.isfinite().all()):
        raise ValueError("costs must be finite, got nan or inf")
    cheapest = torch.nn.functional.one_hot(costs.to(totals.device).argmin(-1), size)
    return totals.unsqueeze(-1) * cheapest
