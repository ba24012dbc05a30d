"""Comparisons of two models from joint counts: of a target, what the old and what the new model predicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imbtorch.choosing.comparisons import SCORE_MEASURES, Comparison, paired_compare
from imbtorch.columns import Array, Column, Missing, Rules, typed
from imbtorch.counting.tasks import Counting
from imbtorch.measures.named import AveragedMeasure, directed, resolved
from imbtorch.predictions.report import opened
from imbtorch.predictions.samples import ids_of
from imbtorch.predictions.scores import check_scores, floats
from imbtorch.predictions.sources import Source, chosen
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
    joint = joint_counts(old, new, columns, rules, threshold, by_row, measure, (encoding, decimal, head))
    return joint.compare(measure, level, generator)


@dataclass
class Joint:
    """Joint counts of two models: classes as indices, or scores.

    Attributes:
        names: names of the classes.
        binary: whether the last of two classes is the positive one.
        target: ``[U]`` true classes.
        old: ``[U]`` predictions of the old model.
        new: ``[U]`` predictions of the new model.
        times: ``[U]`` numbers of samples.
        cluster: ``[U]`` ids of clusters.
    """

    names: tuple[str, ...]
    binary: bool
    target: Tensor
    old: Tensor
    new: Tensor
    times: Tensor
    cluster: Tensor | None

    def measure(self, name: str) -> AveragedMeasure:
        """Return a measure as a report of these classes computes it."""
        counting = Counting.of("binary") if self.binary else Counting.of("multiclass", len(self.names))
        return directed(resolved("measure", name, counting, batched=True))

    def compare(self, name: str, level: float, generator: torch.Generator | None) -> Comparison:
        """Compare both models."""
        if self.old.is_floating_point():
            return paired_compare(name, self.new, self.old, self.target, level=level, generator=generator)
        parts = (self.new, self.old, self.target, *([] if self.cluster is None else [self.cluster]))
        new, old, target, *cluster = (part.repeat_interleave(self.times) for part in parts)
        more = {"cluster": cluster[0]} if cluster else {}
        return paired_compare(
            self.measure(name),
            new,
            old,
            target,
            len(self.names),
            level=level,
            generator=generator,
            prior="differing",
            **more,
        )

    def notes(self) -> list[str]:
        """Return lines that say how many samples differ, and the signatures of both models."""
        samples, changed = int(self.times.sum()), int(self.times[self.old != self.new].sum())
        if self.old.is_floating_point():
            return [f"{samples} samples"]
        lines = [f"{samples} samples, of which {changed or 'none'} are predicted differently"]
        for called, preds in (("old", self.old), ("new", self.new)):
            report = ImbalanceReport("binary" if self.binary else "multiclass", class_names=self.names)
            report.quiet = True
            report.update(preds, self.target, frequency=self.times)
            lines.append(f"{called}: {report.result().signature}")
        return lines


def joint_counts(
    old: Any,
    new: Any,
    columns: Mapping[str, Any],
    rules: Rules,
    threshold: float,
    by_row: bool,
    measure: str,
    reading: tuple[str | None, str, bool],
) -> Joint:
    """Pair the rows of two models and count their joint outcomes."""
    argument = "preds" if columns["scores"] is None else "scores"
    predicted = columns[argument]
    if (columns["preds"] is None) == (columns["scores"] is None):
        raise TypeError("preds or scores must be given, one of them")
    predicted = [predicted] if isinstance(predicted, str) else list(predicted)
    for name in (*predicted, *(columns[role] for role in ("target", "model", "id", "cluster"))):
        if name is not None and ("*" in name or not isinstance(name, str)):
            raise ValueError(f"compare takes names of single columns, without *, got {name!r}")
    wanted = [columns["target"], *predicted]
    source = opened(old, wanted, *reading)
    if columns["model"] is not None:
        pair = _split_models(source, columns["model"])
    elif new is None:
        if len(predicted) != 2:
            raise ValueError(
                f"one source needs two columns of {argument}, the old one first, or model= or a second source"
            )
        pair = None
    else:
        pair = source, opened(new, predicted[-1:], *reading, source)
    roles = {"target": columns["target"], "old": predicted[0], "new": predicted[-1], "cluster": columns["cluster"]}
    if pair is None:
        names = {role: chosen(source, role, name)[""] for role, name in roles.items() if name is not None}
    else:
        source, names = _paired(*pair, roles, columns["id"], by_row)
    source.called |= {name: role for role, name in names.items()}
    keys = [names[role] for role in ROLES if role in names and (argument == "preds" or role not in ("old", "new"))]
    if argument == "preds":
        return _of_classes(source.counted(keys)[0], names, rules, columns["id"])
    values = [names["old"], names["new"]]
    target = source.counted([names["target"]])[0][names["target"]]
    classes = typed(target, [], rules)
    if not classes.binary:
        raise ValueError(
            f"scores are of two classes; name the positive one of {first_names(classes.names)} by positive="
        )
    parts: dict[str, list[Array]] = {role: [] for role in ROLES}
    for found, arrays in source.batches(keys, values):
        codes = classes.table(found[names["target"]], True)[found[names["target"]].codes]
        scores = [floats(role, arrays[names[role]], 0) for role in ("old", "new")]
        keep = codes >= 0
        for role, each in zip(("old", "new"), scores, strict=True):
            if np.isnan(each[keep]).any():
                raise ValueError(
                    f"the {role} scores hold NaN ({int(np.isnan(each).sum())} values); leave these rows out"
                )
            each = (
                each[keep]
                if measure in SCORE_MEASURES
                else check_scores(each[keep], (), role, False, False, 0) > threshold
            )
            parts[role].append(each if measure in SCORE_MEASURES else each.astype(np.int64))
        parts["target"].append(codes[keep])
        if "again" in names:
            again = classes.table(found[names["again"]], False)[found[names["again"]].codes]
            _check_targets(codes, again, None, classes.names, columns["id"])
        if "cluster" in names:
            parts["cluster"].append(ids_of(found[names["cluster"]])[keep])
    joined = {role: torch.from_numpy(np.concatenate(some)) for role, some in parts.items() if some}
    ones = torch.ones(len(joined["target"]), dtype=torch.int64)
    return Joint(classes.names, True, joined["target"], joined["old"], joined["new"], ones, joined.get("cluster"))


def _of_classes(found: Mapping[str, Column], names: Mapping[str, str], rules: Rules, id: str | None) -> Joint:
    """Return the joint counts of predicted classes."""
    columns = {role: found[name] for role, name in names.items()}
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
    number = torch.from_numpy(times[keep].astype(np.int64))
    return Joint(classes.names, classes.binary, parts["target"], parts["old"], parts["new"], number, cluster)


def _check_targets(target: Array, again: Array, times: Array | None, names: Sequence[str], id: str | None) -> None:
    """Raise unless both sources have the same targets."""
    wrong = (target != again) & (target >= 0)
    if wrong.any():
        place = int(wrong.argmax())
        number, rows = (wrong.sum(), len(wrong)) if times is None else (times[wrong].sum(), times.sum())
        remedy = "" if id else "; if the rows are in another order, pair them by id= (--id)"
        both = [names[each[place]] if each[place] >= 0 else "" for each in (target, again)]
        raise ValueError(
            f"the targets of both models differ in {number:g} of {rows:g} rows, such as {both[0]!r} and {both[1]!r}{remedy}"
        )


# --- pairs ------------------------------------------------------------------------------------------------------------


def _split_models(source: Source, model: str) -> tuple[Source, Source]:
    """Split a long source into those of two models."""
    name = chosen(source, "model", model)[""]
    column = source.counted([name])[0][name]
    levels = [column.levels[int(at)] for at in dict.fromkeys(column.codes.tolist())]
    if len(levels) != 2:
        raise ValueError(f"model must name two models, but column {name!r} holds {first_names(list(map(str, levels)))}")
    return source.where(name, levels[0]), source.where(name, levels[1])


def _paired(
    old: Source, new: Source, roles: Mapping[str, str | None], id: str | None, by_row: bool
) -> tuple[Source, dict[str, str]]:
    """Return one source with the paired rows of two, and its columns by role."""
    if type(old) is not type(new):
        raise ValueError("old and new must both be files, both be frames, or both be frames of one engine")
    first = {
        role: chosen(old, role, roles[role])[""] for role in ("target", "old", "cluster") if roles[role] is not None
    }
    second = {"new": chosen(new, "new", roles["new"])[""]}
    if roles["target"] in new.names or id is None:
        second["again"] = chosen(new, "target", roles["target"])[""]
    if id is not None:
        keys = chosen(old, "id", id)[""], chosen(new, "id", id)[""]
        LOG.warning("imbtorch: pairing rows by %r keeps all ids in memory, about %d bytes a row", id, BYTES)
        return old.joined(new, first, second, keys), {role: role for role in (*first, *second)}
    shared = [] if by_row else [name for name in old.names if IDS.fullmatch(name) and name in new.names]
    return old.beside(new, first, second, shared), {role: role for role in (*first, *second)}
