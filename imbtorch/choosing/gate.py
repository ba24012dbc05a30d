"""Gates for new models: whether a model is worse than another one by more than a margin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from imbtorch.choosing.comparisons import Comparison, compare_outcomes, paired_compare
from imbtorch.choosing.looks import LooksFile, at_look, digest, level_to_draw, quantile_of_look
from imbtorch.choosing.outcomes import JointOutcomes
from imbtorch.counting.arguments import real_number
from imbtorch.counting.tasks import Counting
from imbtorch.intervals.draws import normal_quantile
from imbtorch.intervals.intervals import Interval, check_draws
from imbtorch.measures.named import AveragedMeasure, directed, range_of, resolved
from imbtorch.reports.description import described, result_of_counts

NOT_WORSE, WORSE, UNDECIDED = 0, 1, 3  # exit codes
LEVEL = 0.9  # of the interval of a difference: each bound is wrong in 5% of cases
VERDICTS = {NOT_WORSE: "not worse", WORSE: "worse", UNDECIDED: "undecided"}
DRAWS = 10_000
MOST = 1024  # times as many samples, up to which the number that would decide is looked for


@dataclass(frozen=True)
class Verdict:
    """Verdict on a new model: whether it is worse than the old one by more than a margin; print it for its text.

    Attributes:
        code: exit code of the command: 0 if the new model is not worse by more than the margin or no prediction
            differs, 1 if it is worse, 3 if these samples do not decide.
        interval: 90% interval of the difference, new minus old; each of its bounds is wrong in 5% of cases.
        text: difference and verdict in words, with what to know of the samples.

    >>> interval = Interval(torch.tensor(0.02), torch.tensor(-0.01), torch.tensor(0.05), 0.9, "paired posterior")
    >>> print(Verdict(0, interval, "The new model is not worse by more than 0.02 (tested once)."))
    The new model is not worse by more than 0.02 (tested once).
    """

    code: int
    interval: Interval
    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass
class PairedModels:
    """Predictions of two models for the same samples, the new one first.

    Attributes:
        names: names of the classes.
        binary: whether the last of two classes is the positive one.
        outcomes: joint outcomes of predicted classes; None for scores.
        scores: ``[N]`` scores of the new and the old model, and the targets; empty for classes.
        cluster: ``[N]`` ids of clusters, for scores.
        thresholds: threshold of the new and of the old model, if classes were predicted from scores.
        called: names of the new and the old model in texts.
        shares: shares that the new and the old model predict positive of all rows, if some have no label.
        left_out: lines on rows that were left out, and on thresholds.
    """

    names: tuple[str, ...]
    binary: bool
    outcomes: JointOutcomes | None
    scores: tuple[Tensor, ...] = ()
    cluster: Tensor | None = None
    thresholds: tuple[float, float] | None = None
    called: tuple[str, str] = ("new", "old")
    shares: tuple[float, float] | None = None
    left_out: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.scores[0]) if self.outcomes is None else int(self.outcomes.times.sum())

    @property
    def equal(self) -> bool:
        """True if no prediction differs."""
        new, old = self.scores[:2] if self.outcomes is None else self.outcomes.preds
        return torch.equal(new, old)

    def measure(self, name: str) -> AveragedMeasure | str:
        """Return a measure as a report of these classes computes it; the name of one of scores."""
        if self.outcomes is None:
            return name
        counting = Counting.of("binary") if self.binary else Counting.of("multiclass", len(self.names))
        return directed(resolved("measure", name, counting, batched=True))

    def compare(
        self,
        measure: AveragedMeasure | str,
        level: float,
        generator: torch.Generator | None,
        draws: int = 10_000,
        times: float = 1,
    ) -> Comparison:
        """Compare both models, by a measure of classes or the name of one of scores.

        With ``times``, as of so many times as many samples, or clusters, with the same shares.
        """
        check_draws(draws, level, generator)
        if self.outcomes is None or isinstance(measure, str):
            options: dict[str, Any] = {"draws": draws, "level": level, "generator": generator}
            new, old, target = self.scores
            found = paired_compare(measure, new, old, target, cluster=self.cluster, names=self.called, **options)
            return replace(found, notes=self.left_out)
        better = bool(measure.higher_is_better)
        found = compare_outcomes(measure, self.outcomes, better, draws, level, generator, times=times)
        return replace(found, names=self.called, notes=(*self.alerts(*self.called), *self.left_out))

    def alerts(self, new: str = "new", old: str = "old") -> list[str]:
        """Say how many samples each model predicts positive; nothing for several classes and for areas."""
        if self.outcomes is None or not self.binary:
            return []
        parts = []
        for place, called in ((1, old), (0, new)):
            share = float(self.outcomes.times[self.outcomes.preds[place] == 1].sum() / self.outcomes.times.sum())
            share = share if self.shares is None else self.shares[place]
            at = "" if self.thresholds is None else f" above {self.thresholds[place]:.6g}"
            parts.append(f"{called} {100 * share:.3g}%{at}")
        return [f"predicted positive{' of all rows' * (self.shares is not None)}: {', '.join(parts)}"]

    @cached_property
    def notes(self) -> list[str]:
        """Lines that say how many samples differ, and the signatures of both models."""
        if self.outcomes is None:
            return [f"{self.samples} samples", *self.left_out]
        new, old = self.outcomes.preds
        times = self.outcomes.times.long()
        changed = int(times[old != new].sum())
        lines = [f"{self.samples} samples, of which {changed or 'none'} are predicted differently", *self.alerts()]
        lines += self.left_out
        readings = described("binary" if self.binary else "multiclass", class_names=self.names)
        for called, preds in (("old", old), ("new", new)):
            counts = torch.zeros(2 * [len(self.names)], dtype=torch.long)
            counts.index_put_((self.outcomes.target.long(), preds.long()), times, accumulate=True)
            lines.append(f"{called}: {result_of_counts(readings, counts).signature}")
        return lines


@dataclass(frozen=True)
class Gate:
    """Difference of two models beside a margin.

    Attributes:
        pair: predictions of both models.
        name: measure, as in the catalogue or of scores.
        margin: loss that does not count.

    Raises:
        ValueError: for a margin that all models would keep.
    """

    pair: PairedModels
    name: str
    margin: float

    def __post_init__(self) -> None:
        """Resolve the measure, and check the margin by its range."""
        if not 0 <= real_number("margin", self.margin) < math.inf:
            raise ValueError(f"margin must be a loss of 0 or more, such as .01, got {self.margin!r}")
        low, high = range_of(self.measure)
        if self.margin >= (high - low) / 2:
            raise ValueError(
                f"margin={self.margin:g} must be a difference of {self.name} such as .01, one point of a hundred; "
                "hardly any model is worse by so much"
            )

    @cached_property
    def measure(self) -> AveragedMeasure | str:
        """Measure as a report of these classes computes it, or the name of one of scores."""
        return self.pair.measure(self.name)

    @property
    def better(self) -> bool:
        """True if higher values are better."""
        return isinstance(self.measure, str) or bool(self.measure.higher_is_better)

    def compared(self, times: float, draws: int, level: float) -> Comparison:
        """Compare new with old for so many times as many samples or clusters, with the same shares."""
        generator = torch.Generator().manual_seed(0)  # the same verdict again
        return self.pair.compare(self.measure, level, generator, draws, times)

    @cached_property
    def comparison(self) -> Comparison:
        """Comparison of these samples, tested once."""
        return self.compared(1, DRAWS, LEVEL)

    def decide(
        self,
        looks: int | None = None,
        look: int | None = None,
        path: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """Decide on the new model.

        Args:
            looks: number of planned looks at growing samples; None for a single one.
            look: this look, from 1.
            path: file that records the looks; None to check nothing.
            settings: what all looks of the file share.

        Raises:
            ValueError: for a measure that is undefined for these samples, and a look that is not the next one.
        """
        interval, holds = self.at_look(looks, look, path, settings or {})
        difference, low, high = (float(part) for part in (interval.estimate, interval.low, interval.high))
        if math.isnan(low) or math.isnan(high):
            raise ValueError(f"{self.name} is undefined for these samples: it depends on classes without targets")
        how_sure = f"{100 * interval.level:.4g}% {interval.method}"
        head = f"{self.name}, new - old: {difference:+.3f} [{low:+.3f}, {high:+.3f}] ({how_sure})"
        chance = float(self.comparison.probability)
        head += "" if self.pair.equal else f"; new is better with probability {chance:.3f}"
        code = NOT_WORSE if self.pair.equal else self.verdict(interval)
        lines = [head, *self.lines(interval, holds, looks is not None), *self.pair.notes]
        return Verdict(code, interval, "\n".join(lines))

    def verdict(self, interval: Interval) -> int:
        """Return the exit code for an interval."""
        low, high = float(interval.low), float(interval.high)
        gain = (low, high) if self.better else (-high, -low)
        return NOT_WORSE if gain[0] >= -self.margin else WORSE if gain[1] < -self.margin else UNDECIDED

    def at_look(
        self, looks: int | None, look: int | None, path: str | None, settings: Mapping[str, Any]
    ) -> tuple[Interval, str]:
        """Return the interval at one of several planned looks, and what the verdict holds for."""
        interval = self.comparison.difference
        if looks is None and look is None:
            if path is not None:
                raise ValueError("a file records planned looks; pass looks= and look= too")
            return interval, "tested once"
        of_data = digest(*self.pair.notes, f"{float(interval.estimate):.12g}")
        file = None if path is None else LooksFile(path, {**settings, "margin": self.margin, "looks": looks})
        information = (2 * normal_quantile(LEVEL) / float(interval.high - interval.low)) ** 2
        if file is not None and look is not None:
            file.check(look, self.pair.samples, of_data)
        before = None if file is None else [*(each["information"] for each in file.seen), information]
        quantile = quantile_of_look(LEVEL, looks, look, before)
        text = f"look {look} of {looks}"
        drawn, ends = self.compared(1, DRAWS, level_to_draw(quantile)), range_of(self.measure, of_difference=True)
        found = at_look(drawn.difference, quantile, text, ends)
        if file is None:
            return found, f"{text}; nothing checked the earlier ones, since no file records them"
        bound, verdict = float(found.low if self.better else -found.high), VERDICTS[self.verdict(found)]
        file.add(samples=self.pair.samples, information=information, bound=bound, verdict=verdict, digest=of_data)
        return found, f"{text}, recorded in {path}"

    def lines(self, interval: Interval, holds: str, several: bool) -> list[str]:
        """Say the verdict; if it is open, how many samples of the rarest class would decide with the same shares."""
        code = self.verdict(interval)
        by = f"worse by more than {self.margin:g}"
        if self.pair.equal:
            return ["No prediction differs."]
        if code != UNDECIDED:
            better = float(interval.low if self.better else -interval.high) > 0
            return [f"The new model is {VERDICTS[code].replace('worse', by)}{', and better' * better} ({holds})."]
        return [
            f"Undecided: these samples do not say whether it is {by} ({holds}).",
            *([] if several else self._needed()),
        ]

    def _needed(self) -> list[str]:
        def decides(times: float) -> bool:
            return self.verdict(self.compared(times, 1000, LEVEL).difference) != UNDECIDED

        if self.pair.outcomes is None:
            return []
        most = 2.0
        while not decides(most):
            most *= 2
            if most > MOST:
                what = "clusters" if self.pair.outcomes.clusters else "samples"
                return [f"At these class shares {MOST:,} times as many {what} would not decide either."]
        least = most / 2
        for _ in range(4):
            middle = math.sqrt(least * most)
            least, most = (least, middle) if decides(middle) else (middle, most)
        name, number = _rarest(self.pair.outcomes.actual(), self.pair.names)
        clusters = self.pair.outcomes.clusters
        more = f", in {math.ceil(most * clusters):,} such clusters," if clusters else ""
        return [
            f"At these class shares some {math.ceil(most * number):,} samples of {name}, the rarest class{more or ','} "
            f"would decide; here are {number:,}{f', in {clusters:,}' if clusters else ''}."
        ]


def _rarest(actual: Tensor, names: Sequence[str]) -> tuple[str, int]:
    """Return the class with the fewest targets, of those that have some, and their number."""
    place = int(torch.where(actual > 0, actual, torch.inf).argmin())
    return repr(names[place]), int(actual[place])
