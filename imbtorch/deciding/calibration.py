"""Calibration of scores: whether of the samples with a score of 0.3 three in ten are positive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy import special
from torch import Tensor

from imbtorch.counts import check_choice, double
from imbtorch.deciding.steady import filled, pooled
from imbtorch.intervals.buckets import resample_buckets
from imbtorch.intervals.intervals import jackknife
from imbtorch.tables import Cell, Table

DRAWS = 2000  # resamples of buckets
TINY = 1e-12  # weight of a score of 0 or 1, which parts them where all scores are


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of one class and the share of positives among the samples that have them, in bins of rising scores.

    :meth:`~imbtorch.deciding.sweep_result.SweepResult.calibration` returns it; print it for a table. The bins have
    equal sums of sqrt(s (1 - s)) over their scores s, the precision to which so many samples show a share of s. Bins of
    equal numbers would put nearly all positives of a rare class into one bin.

    Attributes:
        above: ``[D]`` lower edge of each bin that holds samples; scores equal to it are in the bin below.
        score: ``[D]`` mean score.
        share: ``[D]`` share of positives; the scores are calibrated if it equals the mean score.
        low: ``[D]`` lower bound of the share: exact (Clopper and Pearson 1934) for independent samples, from resampled
            clusters otherwise, nan for weighted counts.
        high: ``[D]`` upper bound.
        number: ``[D]`` number of samples, or the sum of their weights.
        level: nominal coverage of each interval.
        squared_error: mean of (score - share)^2 over the samples, with the score and the share of their bins, less what
            sampling adds to it (Kumar, Liang and Ma 2019); it can be negative. Errors that cancel within a bin are not
            in it. nan for weighted counts.
        brier: mean of (score - target)^2 over the samples. It and the mean scores are exact to within half a step of
            the thresholds of the sweep, of which the default ones are 4,097.
        skill: 1 - ``brier`` / (p (1 - p)) for a share p of positives: 1 for a perfect forecast, 0 for the constant p,
            nan without samples of both classes.
        method: name of the method of the intervals; empty for weighted counts.

    Source: Kumar, Liang and Ma (2019), Verified uncertainty calibration, definition 3.1 and section 4.

    >>> from imbtorch import ThresholdSweep
    >>> sweep = ThresholdSweep("f1")
    >>> sweep.update(torch.tensor([0.1, 0.2, 0.6, 0.7]).repeat(50), torch.tensor([0, 0, 0, 1]).repeat(50))
    >>> print(sweep.result().calibration(bins=2))
    above  score                 share  number
    0      0.150   0.00 [0.00, 0.0362]     100
    0.599  0.650  0.500 [0.398, 0.602]     100
    <BLANKLINE>
    - Scores of all samples are too high by a factor of 1.6; 2 of 2 intervals say so.
    - squared calibration error 0.021, Brier score 0.12, skill 0.33
    - share: 95% Clopper-Pearson interval
    """

    above: Tensor
    score: Tensor
    share: Tensor
    low: Tensor
    high: Tensor
    number: Tensor
    level: float
    squared_error: float
    brier: float
    skill: float
    method: str = ""

    @classmethod
    def of(
        cls,
        histogram: Tensor,
        thresholds: Tensor,
        bins: int,
        level: float,
        generator: torch.Generator | None,
        weighted: bool,
    ) -> Calibration:
        """Compute the calibration of a histogram ``[2, B]``, or with clusters of ``[M, 2, B]`` of M buckets.

        The first T edges of its bins are the ``thresholds``, probabilities ``[T]``; the probability of the others is 1.
        """
        parts = double(histogram)
        edges = torch.ones(parts.shape[-1] + 1, dtype=torch.float64)
        edges[0], edges[1 : len(thresholds) + 1] = 0.0, thresholds
        scores = (edges[1:] + edges[:-1]) / 2
        numbers = pooled(parts).sum(0)
        information = numbers * ((scores * (1 - scores)).sqrt() + TINY)
        middles = (information.cumsum(0) - information / 2) / information.sum()
        first, place = _runs((middles * bins).long()[numbers > 0])
        held = parts[..., numbers > 0]
        counts = held.new_zeros(*held.shape[:-1], int(place.amax()) + 1).index_add_(-1, place, held)
        number, positives = pooled(counts).sum(0), pooled(counts)[1]
        sums = torch.zeros_like(number).index_add_(0, place, (numbers * scores)[numbers > 0])
        low, high, noise, method = _uncertainty(counts, level, generator, weighted)
        score, share = sums / number, positives / number
        total, rate = number.sum(), positives.sum() / number.sum()
        squares = ((score - share) ** 2 - noise).masked_fill(noise.isinf(), 0.0)
        brier = (pooled(parts)[0] * scores**2 + pooled(parts)[1] * (1 - scores) ** 2).sum() / total
        return cls(
            edges[:-1][numbers > 0][first].index_fill(0, place.new_tensor([0]), 0.0),
            score,
            share,
            low,
            high,
            number,
            level,
            ((number * squares).sum() / total).item(),
            brier.item(),
            (1 - brier / (rate * (1 - rate)) if 0 < rate < 1 else rate * torch.nan).item(),
            method,
        )

    @property
    def verdict(self) -> str:
        """Sentence on the adjacent bins whose scores are most too high, or too low, beyond their intervals."""
        if bool(self.low.isnan().all()):
            return "weighted counts have no intervals"
        signs = (self.score > self.high).long() - (self.score < self.low).long()
        if not bool(signs.any()):
            return f"none of {len(signs)} intervals excludes its mean score"
        _, run = _runs(signs)
        excess = self.number * (self.score - self.share) * signs.ne(0)
        sums = torch.zeros_like(excess).index_add_(0, run, excess)
        inside = run == sums.abs().argmax()
        expected, found = ((self.number * each)[inside].sum().item() for each in (self.score, self.share))
        side, sign, less, more = ("high", 1, found, expected) if expected > found else ("low", -1, expected, found)
        factor = f"by a factor of {more / less:.2g}" if less else f"({expected:.3g} positives expected, none found)"
        agree, others = int((signs == sign).sum()), int((signs == -sign).sum())
        say = f"{agree} of {len(signs)} intervals say so" + f", {others} the opposite" * bool(others)
        return f"scores {self._span(inside)} are too {side} {factor}; {say}"

    def _span(self, inside: Tensor) -> str:
        """Return the scores of adjacent bins as text."""
        first, last = inside.nonzero().flatten()[[0, -1]].tolist()
        lower = "" if first == 0 else f"above {self.above[first].item():.3g}"
        upper = "" if last == len(inside) - 1 else f"up to {self.above[last + 1].item():.3g}"
        return " ".join(filter(None, (lower, upper))) or "of all samples"

    def table(self) -> Table:
        """Return a row for each bin, and a note with the verdict, the squared error and the Brier score."""
        numbers = [int(each) if each.is_integer() else each for each in self.number.tolist()]
        columns = zip(self.above, self.score, self.share, self.low, self.high, numbers, strict=True)
        rows = {
            f"{above:.3g}": {"score": float(score), "share": Cell(float(share), float(low), float(high)), "number": n}
            for above, score, share, low, high, n in columns
        }
        errors = f"squared calibration error {self.squared_error:.2g}, Brier score {self.brier:.2g}"
        notes = f"{self.verdict[0].upper()}{self.verdict[1:]}.", f"{errors}, skill {self.skill:.2f}"
        interval = (f"share: {100 * self.level:g}% {self.method}",) if self.method else ()
        return Table({"above": rows}, notes + interval)

    def plot(self, ax: Any | None = None, scale: Literal["logit", "linear"] = "logit") -> Any:
        """Draw the share of positives over the mean score with intervals, and a histogram below.

        Args:
            ax: matplotlib axes, for the shares alone; by default a new figure with both.
            scale: ``"logit"``, which shows rare classes, or ``"linear"``, from 0 to 1.

        Returns:
            Figure (None if axes were given) and axes of the shares.
        """
        from imbtorch.plots.calibration import plot_calibration

        check_choice("scale", scale, ("logit", "linear"))
        shares = torch.stack((self.share, self.low, self.high))
        return plot_calibration(self.score, shares, self.above, self.number, ax, level=self.level, scale=scale)

    def __str__(self) -> str:
        """Return the table as text."""
        return str(self.table())


def _runs(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return where runs of equal values begin, bool ``[N]``, and the run of each value, from 0."""
    first = torch.cat((torch.ones_like(values[:1], dtype=torch.bool), values.diff() != 0))
    return first, first.cumsum(0) - 1


def _uncertainty(
    counts: Tensor, level: float, generator: torch.Generator | None, weighted: bool
) -> tuple[Tensor, Tensor, Tensor, str]:
    """Compute bounds of the shares of positives ``[D]``, their variance, infinite for a single sample, and a method."""
    negatives, positives = pooled(counts)
    if weighted:
        unknown = torch.full_like(positives, torch.nan)
        return unknown, unknown, unknown, ""
    if counts.ndim == 2:
        number, tail = positives + negatives, (1 - level) / 2
        low = special.betaincinv(positives.clamp(min=TINY).numpy(), (negatives + 1).numpy(), tail)
        high = special.betaincinv((positives + 1).numpy(), negatives.clamp(min=TINY).numpy(), 1 - tail)
        share = positives / number
        variance = torch.where(number > 1, share * (1 - share) / (number - 1), torch.inf)
        ends = torch.from_numpy(low), torch.from_numpy(high)
        low, high = torch.where(positives == 0, 0.0, ends[0]), torch.where(negatives == 0, 1.0, ends[1])
        return low, high, variance, "Clopper-Pearson interval"
    held = filled(counts.movedim(-2, -1))  # [M, D, 2]
    matrices = torch.stack((torch.zeros_like(held), held), -2)  # in each bin the share is a recall

    def share_of(matrices: Tensor) -> Tensor:
        return matrices[..., 1, 1] / matrices[..., 1, :].sum(-1)

    found = resample_buckets({"": share_of}, matrices, draws=DRAWS, level=level, generator=generator)[""]
    variance, _ = jackknife(share_of, matrices, matrices.sum(0), 3)
    return found.low, found.high, variance, found.method
