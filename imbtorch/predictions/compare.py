"""Comparisons of two models from joint counts: of a target, what the old and what the new model predicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imbtorch.choosing.comparisons import SCORE_MEASURES, Comparison, compare_outcomes, paired_compare
from imbtorch.choosing.outcomes import JointOutcomes
from imbtorch.columns import Array, Column, Missing, Rules, typed, without_left_out
from imbtorch.counting.tasks import Counting
from imbtorch.measures.named import AveragedMeasure, directed, resolved
from imbtorch.predictions.report import opened
from imbtorch.predictions.samples import ids_of
from imbtorch.predictions.scores import check_scores, floats
from imbtorch.predictions.sources import Arrays, Engine, Source, chosen
from imbtorch.reports.report import ImbalanceReport
from imbtorch.suggestions import first_names
from imbtorch.waiting import LOG

IDS = re.compile(r"(.*_)?id|image|path", re.IGNORECASE)  # names of columns that tell which sample a row is
BYTES = 100  # memory of a row that is paired by id
ROLES = ("target", "again", "old", "new", "cluster")


def compare_predictions(
    old: Any,
    new: Any = None,
    *,
    measure: str,
    target: str,
    preds: str | Sequence[str] | None = None,
    scores: str | Sequence[str] | None = None,
    threshold: float = 0.5,
    model: str | None = None,
    id: str | None = None,
    by_row: bool = False,
    cluster: str | None = None,
    class_names: Sequence[Any] | Mapping[Any, Any] | None = None,
    positive: Any = None,
    ignore: Any = None,
    missing: Missing = "raise",
    level: float = 0.95,
    generator: torch.Generator | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    head: bool = True,
) -> Comparison:
    """Compare the saved predictions of two models on the same samples, as :func:`imbtorch.statistics.paired_compare`.

    Classes are compared by joint counts of target, old and new prediction, which the source groups: memory does not
    grow with rows, unless they are paired by ``id``.

    Args:
        old: predictions of the old model, or of both: files, a frame, or a lazy frame, as for :func:`imbtorch.report`.
        new: predictions of the new model; None if ``old`` holds both.
        measure: name in the catalogue, or ``"auc"`` or ``"average_precision"`` for scores.
        target: column of true classes; the new source may lack it if rows are paired by ``id``.
        preds: column of predicted classes; two columns if one source holds both models, the old one first.
        scores: column of scores of the positive class, or two; instead of ``preds``.
        threshold: score strictly above which 1 is predicted.
        model: column that names the model of each row of one source; the model of the first row is the old one.
        id: column that pairs the rows; by default they are paired by their order, and targets must agree.
        by_row: whether to pair rows by order although columns such as ``"image_id"`` differ.
        cluster: column of ids of clusters, such as patients.
        class_names: classes in their order.
        positive: positive one of two classes.
        ignore: target, or list of targets, whose samples are left out.
        missing: ``"raise"``, ``"drop"`` or ``"class"``, as for :func:`imbtorch.report`.
        level: nominal coverage of the interval.
        generator: source of randomness, on the CPU; by default torch's.
        encoding: encoding of CSV files.
        decimal: decimal sign of numbers in CSV files.
        head: whether the first row of CSV files names the columns.

    Returns:
        :class:`~imbtorch.statistics.Comparison` of new minus old.

    Raises:
        ValueError: for rows that cannot be paired, targets that differ, and as :func:`imbtorch.report`.

    >>> columns = {"label": [0, 0, 1, 1] * 50, "old": [0, 1, 1, 0] * 50, "new": [0, 0, 1, 0] * 50}
    >>> print(compare_predictions(columns, measure="recall", target="label", preds=["old", "new"]).difference.estimate)
    tensor(0., dtype=torch.float64)
    """
    marks = tuple(ignore) if isinstance(ignore, (list, tuple, set)) else () if ignore is None else (ignore,)
    rules = Rules(class_names, positive, None, marks, missing)
    columns = {"target": target, "preds": preds, "scores": scores, "model": model, "id": id, "cluster": cluster}
    joint = joint_counts(
        old, new, columns, rules, None if measure in SCORE_MEASURES else threshold, by_row, (encoding, decimal, head)
    )
    return joint.compare(measure, level, generator)


@dataclass
class Joint:
    """Joint outcomes of two models, the new one first.

    Attributes:
        names: names of the classes.
        binary: whether the last of two classes is the positive one.
        outcomes: different outcomes, with their numbers of samples; None for scores.
        scores: ``[N]`` scores of the new and the old model, and the targets; empty for classes.
    """

    names: tuple[str, ...]
    binary: bool
    outcomes: JointOutcomes | None
    scores: tuple[Tensor, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether no prediction differs."""
        new, old = self.scores[:2] if self.outcomes is None else self.outcomes.preds
        return torch.equal(new, old)

    def measure(self, name: str) -> AveragedMeasure:
        """Return a measure as a report of these classes computes it."""
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
        """Compare both models, or as many times as many samples with the same shares."""
        if self.outcomes is None:
            new, old, target = self.scores
            return paired_compare(str(measure), new, old, target, draws=draws, level=level, generator=generator)
        if isinstance(measure, str):
            measure = self.measure(measure)
        several = replace(self.outcomes, times=self.outcomes.times * times)
        return compare_outcomes(measure, several, bool(measure.higher_is_better), draws, level, generator)

    def notes(self) -> list[str]:
        """Return lines that say how many samples differ, and the signatures of both models."""
        if self.outcomes is None:
            return [f"{len(self.scores[0])} samples"]
        new, old = self.outcomes.preds
        times = self.outcomes.times.long()
        changed = int(times[old != new].sum())
        lines = [f"{int(times.sum())} samples, of which {changed or 'none'} are predicted differently"]
        for called, preds in (("old", old), ("new", new)):
            report = ImbalanceReport("binary" if self.binary else "multiclass", class_names=self.names)
            report.quiet = True
            report.update(preds, self.outcomes.target, frequency=times)
            lines.append(f"{called}: {report.result().signature}")
        return lines


def joint_counts(
    old: Any,
    new: Any,
    columns: Mapping[str, Any],
    rules: Rules,
    threshold: float | None,
    by_row: bool,
    reading: tuple[str | None, str, bool],
) -> Joint:
    """Pair the rows of two models and count their joint outcomes.

    Args:
        old: source of the old model, or of both.
        new: source of the new model, or None.
        columns: argument -> columns.
        rules: how values become classes.
        threshold: score above which 1 is predicted; None to keep scores.
        by_row: whether ids may differ.
        reading: encoding, decimal sign, and whether files have a head.
    """
    if (columns["preds"] is None) == (columns["scores"] is None):
        raise TypeError("preds or scores must be given, one of them")
    scored = columns["scores"] is not None
    predicted = columns["scores"] if scored else columns["preds"]
    predicted = [predicted] if isinstance(predicted, str) else list(predicted)
    for name in (*predicted, *(columns[role] for role in ("target", "model", "id", "cluster"))):
        if name is not None and (not isinstance(name, str) or "*" in name):
            raise ValueError(f"compare takes names of single columns, without *, got {name!r}")
    roles = {"target": columns["target"], "old": predicted[0], "new": predicted[-1], "cluster": columns["cluster"]}
    source = opened(old, [columns["target"], *predicted], *reading)
    if new is None and columns["model"] is None:
        if len(predicted) != 2:
            raise ValueError("one source needs two columns of predictions, the old one first; or pass model=, or two")
        names = {role: chosen(source, role, name)[""] for role, name in roles.items() if name is not None}
    else:
        pair = source, source
        if new is None:
            pair = _split_models(source, columns["model"])
        else:
            pair = source, opened(new, predicted[-1:], *reading, source)
        source, names = _paired(*pair, roles, columns["id"], by_row)
    source.called |= {name: role for role, name in names.items()}
    if scored:
        return _of_scores(source, names, rules, threshold, columns["id"])
    return _of_classes(source.counted([names[role] for role in ROLES if role in names])[0], names, rules, columns["id"])


def _of_scores(
    source: Source, names: Mapping[str, str], rules: Rules, threshold: float | None, id: str | None
) -> Joint:
    """Return the scores of both models, or the classes at a threshold."""
    classes = typed(source.counted([names["target"]])[0][names["target"]], [], rules)
    if not classes.binary:
        held = first_names(classes.names)
        raise ValueError(f"scores are of two classes; name the positive one of {held} by positive=")
    parts: dict[str, list[Array]] = {role: [] for role in ROLES}
    keys = [names[role] for role in ("target", "again", "cluster") if role in names]
    for found, arrays in source.batches(keys, [names["old"], names["new"]]):
        columns = {role: found[names[role]] for role in ("target", "again", "cluster") if role in names}
        codes = classes.table(columns["target"], True)[columns["target"].codes]
        if "again" in columns:
            again = classes.table(columns["again"], False)[columns["again"].codes]
            _check_targets(codes, again, None, classes.names, id)
        keep = codes >= 0
        for role in ("old", "new"):
            scores = floats(role, arrays[names[role]], 0)[keep]
            if np.isnan(scores).any():
                raise ValueError(f"scores of {role} hold NaN ({int(np.isnan(scores).sum())} values); leave these out")
            if threshold is not None:
                scores = (check_scores(scores, (), role, False, False, 0) > threshold).astype(np.int64)
            parts[role].append(scores)
        parts["target"].append(codes[keep])
        if "cluster" in columns:
            parts["cluster"].append(ids_of(columns["cluster"])[keep])
    joined = {role: torch.from_numpy(np.concatenate(some)) for role, some in parts.items() if some}
    new, old, target = (joined[role] for role in ("new", "old", "target"))
    if threshold is None:
        if "cluster" in joined:
            raise ValueError("cluster is for classes; auc and average_precision treat samples as independent")
        return Joint(classes.names, True, None, (new, old, target))
    return Joint(classes.names, True, JointOutcomes.of(torch.stack((new, old)), target, 2, joined.get("cluster")))


def _of_classes(found: Mapping[str, Column], names: Mapping[str, str], rules: Rules, id: str | None) -> Joint:
    """Return the joint counts of predicted classes."""
    columns = {role: found[name] for role, name in names.items()}
    classed = [role for role in columns if role != "cluster"]
    columns.update(zip(classed, without_left_out([columns[role] for role in classed], rules), strict=True))
    preds = [columns[role] for role in ("again", "old", "new") if role in columns]
    classes = typed(columns["target"], preds, rules)
    codes = {
        role: classes.table(columns[role], role == "target")[columns[role].codes]
        for role in columns
        if role != "cluster"
    }
    times = columns["target"].times
    times = np.ones(len(columns["target"])) if times is None else times
    if "again" in codes:
        _check_targets(codes["target"], codes["again"], times, classes.names, id)
    keep = np.stack(list(codes.values())).min(0) >= 0
    parts = {role: torch.from_numpy(each[keep]) for role, each in codes.items()}
    cluster = torch.from_numpy(ids_of(columns["cluster"])[keep]) if "cluster" in columns else None
    both, number = torch.stack((parts["new"], parts["old"])), torch.from_numpy(times[keep])
    outcomes = JointOutcomes.of(both, parts["target"], len(classes.names), cluster, number)
    return Joint(classes.names, classes.binary, outcomes)


def _check_targets(target: Array, again: Array, times: Array | None, names: Sequence[str], id: str | None) -> None:
    """Raise unless both sources have the same targets."""
    wrong = (target != again) & (target >= 0)
    if wrong.any():
        place = int(wrong.argmax())
        number, rows = (wrong.sum(), len(wrong)) if times is None else (times[wrong].sum(), times.sum())
        remedy = "" if id else "; if the rows are in another order, pair them by id= (--id)"
        both = [names[each[place]] if each[place] >= 0 else "" for each in (target, again)]
        raise ValueError(
            f"the targets of both models differ in {number:.15g} of {rows:.15g} rows, such as {both[0]!r} and "
            f"{both[1]!r}{remedy}"
        )


# --- pairs ------------------------------------------------------------------------------------------------------------


def _split_models(source: Source, model: str) -> tuple[Source, Source]:
    """Split a long source into those of two models."""
    name = chosen(source, "model", model)[""]
    column = source.counted([name])[0][name]
    levels = [column.levels[int(at)] for at in dict.fromkeys(column.codes.tolist())]
    if len(levels) != 2:
        raise ValueError(f"model must name two models, but column {name!r} holds {first_names(list(map(str, levels)))}")
    found = _relation(source, None)
    return found.where(name, levels[0]), found.where(name, levels[1])


def _relation(source: Source, like: Source | None) -> Any:
    """Return columns as a DuckDB relation, which pairs rows."""
    from imbtorch.predictions.files import in_memory

    if isinstance(source, Arrays):
        return in_memory(source.columns, like)
    if isinstance(source, Engine):
        raise ValueError("rows of an engine have no order; join both models into one frame by id, and name two columns")
    return source


def _paired(
    old: Source, new: Source, roles: Mapping[str, str | None], id: str | None, by_row: bool
) -> tuple[Source, dict[str, str]]:
    """Return one source with the paired rows of two, and its columns by role."""
    one = _relation(old, None)
    other = _relation(new, one)
    single = [role for role in ("target", "old", "cluster") if roles[role] is not None]
    first = {role: chosen(old, role, roles[role])[""] for role in single}
    second = {"new": chosen(new, "new", roles["new"])[""]}
    if roles["target"] in new.names or id is None:
        second["again"] = chosen(new, "target", roles["target"])[""]
    if id is not None:
        keys = chosen(old, "id", id)[""], chosen(new, "id", id)[""]
        LOG.warning("imbtorch: pairing rows by %r keeps all ids in memory, about %d bytes a row", id, BYTES)
        return one.joined(other, first, second, keys), {role: role for role in (*first, *second)}
    shared = [] if by_row else [name for name in old.names if IDS.fullmatch(name) and name in new.names]
    return one.beside(other, first, second, shared), {role: role for role in (*first, *second)}
