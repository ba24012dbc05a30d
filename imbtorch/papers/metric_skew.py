"""Skew: the gain of a measure for one more right sample of each class (Liu, Ghosh and Martin 2007)."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from imbtorch.counts import Measure, check_square, double, evaluated, ratio, two_by_two

FromErrors: TypeAlias = Literal["proportional"] | int | Tensor


def skew(measure: Measure, counts: Tensor, from_errors: FromErrors = "proportional") -> Tensor:
    r"""Compute metric skew: the derivative of a measure when one more sample of a class is right and its total stays.

    .. math:: s_j = \frac{\partial m}{\partial c_{jj}} - \sum_{k \ne j} w_{jk} \frac{\partial m}{\partial c_{jk}},
        \qquad \sum_{k \ne j} w_{jk} = 1

    With two classes the sample comes from the other cell of its row. With more classes it comes from several wrong
    cells, with weights w that ``from_errors`` chooses.

    Args:
        measure: differentiable function of ``[..., K, K]`` counts with a value ``[...]``, from this package or your
            own.
        counts: ``[..., K, K]`` counts or rates.
        from_errors: ``"proportional"`` takes from the wrong cells of the row in proportion to their counts (evenly from
            a row without errors). A class index takes from the samples that were predicted as that class, and
            proportionally in the row of the class itself. ``[K, K]`` non-negative weights give w for each row; their
            diagonal is ignored.

    Returns:
        float64 ``[..., K]``, in units of the measure per sample; nan for a class without targets, and if the measure
        has no value. At a tie of a maximum or an absolute value it is the mean of both sides; classes that tie for a
        minimum share its slope evenly. The measures of this package count an infinite slope as 0 (the root of a rate of
        0, the logarithm of an empty cell that gives up a sample).

    Raises:
        ValueError: for weights that do not fit or a row of them without a positive one, for a class out of range, and
            for a measure that does not return one value for each matrix or is not differentiable.

    Source: Liu, Ghosh and Martin (2007), A framework for analyzing skew in evaluation metrics.

    >>> from imbtorch import recall
    >>> skew(recall, torch.tensor([[8, 2], [1, 4]]))  # 1 / (2 n_j)
    tensor([0.0500, 0.1000], dtype=torch.float64)
    """
    wide = double(check_square(counts)).detach()
    weights = _weights(wide, from_errors)
    with torch.inference_mode(False), torch.enable_grad():  # a validation epoch may end in inference mode
        leaf = wide.clone().requires_grad_()
        value = evaluated(measure, leaf)
        slope = torch.autograd.grad(value.sum(), leaf, allow_unused=True)[0] if value.requires_grad else None
    if slope is None:
        raise ValueError("measure is not differentiable: its value does not depend on the counts through autograd")
    moved = slope.diagonal(dim1=-2, dim2=-1) - (weights * slope).sum(-1)
    return torch.where((wide.sum(-1) > 0) & ~value.detach().isnan().unsqueeze(-1), moved, torch.nan)


def skew_delta(measure: Measure, counts: Tensor, from_errors: FromErrors = "proportional", step: float = 1.0) -> Tensor:
    r"""Compute a finite version of :func:`skew`: the change of a measure, per sample, for ``step`` more right samples.

    .. math:: \delta_j(h) = \frac{m(c_{jj} + h,\; c_{jk} - w_{jk} h) - m(c)}{h}

    Args:
        measure: function of ``[..., K, K]`` counts with a value ``[...]``; need not be differentiable.
        counts: ``[..., K, K]`` counts or rates.
        from_errors: origin of the samples, as in :func:`skew`.
        step: number of samples that become right; negative for samples that become wrong.

    Returns:
        float64 ``[..., K]``, in units of the measure per sample; nan for a class with too few samples to move.

    Raises:
        ValueError: for a step of 0 or not finite; for weights, a class or a measure as in :func:`skew`.

    Source: Liu et al. (2007), eq. 11 and 12.

    >>> from imbtorch import accuracy
    >>> skew_delta(accuracy, torch.tensor([[8, 2], [0, 5]]))  # class 1 has no error to correct
    tensor([0.0667,    nan], dtype=torch.float64)
    """
    if step == 0 or not math.isfinite(step):
        raise ValueError(f"step must be finite and not 0 (skew() is the limit), got {step!r}")
    wide = double(check_square(counts))
    before = evaluated(measure, wide)
    right = torch.diag_embed(torch.ones_like(wide[..., 0]))
    move = right - _weights(wide, from_errors)  # row j: one sample moves from wrong cells to (j, j)
    moved = wide.unsqueeze(-3) + step * right.unsqueeze(-1) * move.unsqueeze(-3)  # [..., j, row, column]: only j moves
    change = (evaluated(measure, moved.clamp(min=0)) - before.unsqueeze(-1)) / step
    return torch.where((moved < -1e-9 * abs(step)).any(-1).any(-1), torch.nan, change)


def skew_ratio(measure: Measure, counts: Tensor) -> Tensor:
    r"""Compute the skew of the positive class (class 1) over that of the negative; above 1, positives are favoured.

    .. math:: \rho = \frac{\partial m / \partial \mathit{tp}}{\partial m / \partial \mathit{tn}}

    Two closed forms are misprinted in the paper: the ratio of F1 is (n - tn)/tp (Table 2 repeats (n_neg - tn)/tp, the
    ratio of precision), and the skew of micro recall is 1/n for each class (printed 1/n_neg).

    Args:
        measure: differentiable function of ``[..., 2, 2]`` counts.
        counts: ``[..., 2, 2]`` counts or rates.

    Returns:
        float64 ``[...]``; inf if the measure depends on the positive class alone, nan if it depends on neither class or
        one has no targets.

    Raises:
        ValueError: for more than two classes (compare their values of :func:`skew` instead); as :func:`skew`.

    Source: Liu et al. (2007), Table 2.

    >>> from imbtorch import f_score
    >>> skew_ratio(lambda c: f_score(c, average="binary"), torch.tensor([[50, 50], [20, 80]]))  # (n - tn) / tp
    tensor(1.8750, dtype=torch.float64)
    """
    if check_square(counts).shape[-1] != 2:
        raise ValueError(
            f"counts must be of two classes for a skew ratio, got {counts.shape[-1]}; compare the values of skew()"
        )
    negative, positive = skew(measure, counts).unbind(-1)
    return torch.where(negative == 0, positive.abs() / 0.0, positive / negative + 0.0)  # + 0.0 turns -0 to 0


def effective_skew_ratio(measure: Measure, counts: Tensor) -> Tensor:
    r"""Compute the slope of a measure's isometric in ROC space: negatives over positives, over the :func:`skew_ratio`.

    .. math:: \frac{d\,\mathrm{TPR}}{d\,\mathrm{FPR}} = \frac{n_-}{n_+} \frac1\rho

    Args:
        measure: differentiable function of ``[..., 2, 2]`` counts.
        counts: ``[..., 2, 2]`` counts or rates.

    Returns:
        float64 ``[...]``; inf if the measure depends on the negative class alone, nan as :func:`skew_ratio`.

    Raises:
        ValueError: as :func:`skew_ratio`.

    Source: Liu et al. (2007), Theorem 0.1; Flach (2003), The geometry of ROC space.

    >>> from imbtorch import balanced_accuracy
    >>> effective_skew_ratio(balanced_accuracy, torch.tensor([[50, 50], [2, 8]]))
    tensor(1., dtype=torch.float64)
    """
    ratios = skew_ratio(measure, counts)
    negatives, positives = double(counts).sum(-1).unbind(-1)
    return negatives / positives / ratios


def skew_map(measure: Measure, positives: int, negatives: int) -> Tensor:
    """Compute the skew ratio at every possible result of a test set, in a few batched calls.

    Args:
        measure: differentiable function of ``[..., 2, 2]`` counts.
        positives: number of positive targets.
        negatives: number of negative targets.

    Returns:
        float64 ``[positives + 1, negatives + 1]``: rows are true positives from 0, columns true negatives from 0; inf
        and nan as :func:`skew_ratio`.

    Raises:
        ValueError: for a class without targets, and as :func:`skew`.

    Source: Liu et al. (2007), Figures 1 and 2.

    >>> from imbtorch import accuracy
    >>> skew_map(accuracy, 1, 2)
    tensor([[1., 1., 1.],
            [1., 1., 1.]], dtype=torch.float64)
    """
    if positives < 1 or negatives < 1:
        raise ValueError(f"positives and negatives must be at least 1, got {positives!r} and {negatives!r}")
    tp, tn = torch.meshgrid(
        torch.arange(positives + 1, dtype=torch.float64),
        torch.arange(negatives + 1, dtype=torch.float64),
        indexing="ij",
    )
    counts = two_by_two(tn, negatives - tn, positives - tp, tp)
    blocks = torch.split(counts.flatten(0, 1), 2**16)  # autograd would need a gigabyte for a whole grid
    return torch.cat([skew_ratio(measure, block) for block in blocks]).view_as(tp)


def implied_cost(measure: Measure, counts: Tensor, from_errors: FromErrors = "proportional") -> Tensor:
    r"""Compute the misclassification costs that are implied by selection with this measure, around these counts.

    .. math:: \hat c_j = s_j \Bigm/ \frac1K \sum_i s_i

    Selection by a measure, even for unknown costs, implies costs in proportion to the skew.

    Args:
        measure: differentiable function of ``[..., K, K]`` counts.
        counts: ``[..., K, K]`` counts or rates.
        from_errors: origin of the samples, as in :func:`skew`.

    Returns:
        float64 ``[..., K]`` with mean 1: the cost of an error on a class, relative to the others. It has the opposite
        sign if the measure rewards errors of a class (as dominance does) and is infinite if the slopes cancel. It is
        nan for a class without targets, which is left out of the mean, and if the measure depends on no class.

    Raises:
        ValueError: as :func:`skew`.

    Source: Liu et al. (2007), discussion.

    >>> from imbtorch import balanced_accuracy
    >>> implied_cost(balanced_accuracy, torch.tensor([[80, 10], [2, 8]]))  # 9 negatives for each positive
    tensor([0.2000, 1.8000], dtype=torch.float64)
    """
    slopes = skew(measure, counts, from_errors)
    return slopes / slopes.nanmean(-1, keepdim=True)


def _weights(counts: Tensor, from_errors: FromErrors) -> Tensor:
    """Compute the weights of the wrong cells of each row, ``[..., K, K]``; the diagonal is 0, rows sum to 1."""
    size = counts.shape[-1]
    wrong = 1.0 - torch.eye(size, dtype=counts.dtype, device=counts.device)
    proportional = counts * wrong
    empty = proportional.sum(-1, keepdim=True) == 0
    proportional = torch.where(empty, wrong, proportional)
    if isinstance(from_errors, Tensor):
        if from_errors.shape != counts.shape[-2:]:
            shapes = list(counts.shape[-2:]), list(from_errors.shape)
            raise ValueError(f"from_errors must be {shapes[0]} like the matrix, got {shapes[1]}")
        chosen = torch.where(wrong > 0, from_errors.to(counts), 0.0)
        if not bool(((chosen >= 0) & chosen.isfinite()).all() & (chosen.sum(-1) > 0).all()):
            raise ValueError("each row of from_errors must hold finite weights >= 0, one of them > 0 off the diagonal")
        chosen = chosen.expand(counts.shape)
    elif from_errors == "proportional":
        chosen = proportional
    elif isinstance(from_errors, int) and not isinstance(from_errors, bool) and 0 <= from_errors < size:
        column = torch.arange(size, device=counts.device) == from_errors
        chosen = torch.where(column.unsqueeze(-1), proportional, (wrong * column).expand(counts.shape))
    else:
        raise ValueError(f"from_errors must be 'proportional', a class 0..{size - 1} or weights, got {from_errors!r}")
    return ratio(chosen, chosen.sum(-1, keepdim=True))
