"""Comparisons of two models from joint counts: of a target, what the old and what the new model predicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from imbtorch.choosing.comparisons import Comparison
from imbtorch.choosing.gate import PairedModels
from imbtorch.choosing.outcomes import JointOutcomes
from imbtorch.columns import Array, Classes, Column, Missing, Rules, typed, without_left_out
from imbtorch.deciding.curves import AREAS
from imbtorch.deciding.scores import check_scores
from imbtorch.predictions.report import opened
from imbtorch.predictions.samples import ids_of
from imbtorch.predictions.sources import Engine, Source, floats, single
from imbtorch.suggestions import first_names
from imbtorch.waiting import LOG

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
    grow with rows of files, unless they are paired by ``id``.

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
        by_row: whether to pair rows by order although columns such as ``"image_id"`` show another one.
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
    rules = Rules(class_names, positive, None, ignore, missing)
    columns = {"target": target, "preds": preds, "scores": scores, "model": model, "id": id, "cluster": cluster}
    pair = paired(old, new, columns, rules, measure, threshold, by_row, (encoding, decimal, head))
    return pair.compare(pair.measure("measure", measure), level, generator)


def paired(
    old: Any,
    new: Any,
    columns: Mapping[str, Any],
    rules: Rules,
    measure: str,
    threshold: float,
    by_row: bool,
    reading: tuple[str | None, str, bool],
) -> PairedModels:
    """Pair the rows of two models; ``reading`` has the encoding, the decimal sign, and whether files have a head."""
    predicted = _columns_of_predictions(columns)
    source = opened(old, [columns["target"], *predicted], *reading)
    roles = {"target": columns["target"], "old": predicted[0], "new": predicted[-1], "cluster": columns["cluster"]}
    if new is None and columns["model"] is None:
        if len(predicted) != 2:
            raise ValueError("one source needs two columns of predictions, the old one first, or model=")
        names = {role: single(source, role, name) for role, name in roles.items() if name is not None}
    elif new is None:
        named = {**roles, "id": columns["id"], "model": columns["model"]}
        wanted = {role: single(source, role, name) for role, name in named.items() if name is not None}
        both = _split_models(source, wanted.pop("model"), list(wanted.values()))
        source, names = _joined(*both, roles, columns["id"], by_row)
    else:
        if len(set(predicted)) > 1 and set(predicted) <= set(source.names):
            raise ValueError(f"the first source holds both {first_names(predicted)}; leave the second one out")
        other = opened(new, predicted[-1:], *reading, source)
        source, names = _joined(source, other, roles, columns["id"], by_row)
    source.called |= {name: "target of new" if role == "again" else role for role, name in names.items()}
    if columns["scores"] is not None:
        return _of_scores(source, names, rules, None if measure in AREAS else threshold, columns["id"])
    found = source.counted([names[role] for role in ROLES if role in names])[0]
    return _of_classes({role: found[name] for role, name in names.items()}, rules, columns["id"])


def _columns_of_predictions(columns: Mapping[str, Any]) -> list[str]:
    """Return one or two columns of predictions; raise unless each argument names single columns."""
    if (columns["preds"] is None) == (columns["scores"] is None):
        raise TypeError("preds or scores must be given, one of them")
    predicted = columns["preds"] if columns["scores"] is None else columns["scores"]
    predicted = [predicted] if isinstance(predicted, str) else list(predicted)
    for name in (*predicted, *(columns[role] for role in ("target", "model", "id", "cluster"))):
        if name is not None and (not isinstance(name, str) or "*" in name):
            raise ValueError(
                f"compare takes names of single columns, without *, such as two columns (--preds old new), got {name!r}"
            )
    if len(predicted) > 2:
        raise ValueError(f"compare takes one column of predictions or two, got {first_names(predicted)}")
    return predicted


def _of_scores(
    source: Source, names: Mapping[str, str], rules: Rules, threshold: float | None, id: str | None
) -> PairedModels:
    """Return the scores of both models, or the classes at a threshold."""
    classes = typed(source.counted([names["target"]])[0][names["target"]], [], rules)
    if not classes.binary:
        held = first_names(classes.names)
        raise ValueError(f"scores are of two classes; name the positive one of {held} by positive=")
    parts: dict[str, list[Array]] = {}
    keys = [role for role in ("target", "again", "cluster") if role in names]
    start = 0
    for found, arrays in source.batches([names[role] for role in keys], [names["old"], names["new"]]):
        columns = {role: found[names[role]] for role in keys}
        codes = {role: _codes(classes, columns[role], role) for role in keys if role != "cluster"}
        if "again" in codes:
            _check_targets(codes["target"], codes["again"], None, classes.names, id)
        part = {"target": codes["target"]}
        if "cluster" in columns:
            part["cluster"] = ids_of(columns["cluster"])
        part |= {role: floats(role, arrays[names[role]], start) for role in ("old", "new")}
        keep = np.stack(list(codes.values())).min(0) >= 0
        keep &= _are_there(np.stack((part["old"], part["new"])), keep, start, rules)
        for role in ("old", "new") if threshold is not None else ():
            scores = check_scores(np.where(keep, part[role], 0.0), (), role, False, False, start)
            part[role] = (scores > threshold).astype(np.int64)
        start += len(keep)
        for role, each in part.items():
            parts.setdefault(role, []).append(each[keep])
    joined = {role: torch.from_numpy(np.concatenate(some)) for role, some in parts.items()}
    (new, old, target), cluster = (joined[role] for role in ("new", "old", "target")), joined.get("cluster")
    if threshold is None:
        return PairedModels(classes.names, True, None, (new, old, target), cluster)
    return PairedModels(classes.names, True, JointOutcomes.of(torch.stack((new, old)), target, 2, cluster))


def _are_there(scores: Array, keep: Array, start: int, rules: Rules) -> Array:
    """Return which rows have scores ``[2, n]``; raise for one to keep that has none, unless such rows are dropped."""
    lacking = np.isnan(scores).any(0)
    wrong = lacking & keep
    if wrong.any() and rules.missing != "drop":
        row = start + int(wrong.argmax())
        raise ValueError(f"scores hold NaN in row {row} ({wrong.sum()} rows); missing='drop' leaves such rows out")
    return ~lacking


def _of_classes(columns: dict[str, Column], rules: Rules, id: str | None) -> PairedModels:
    """Return the joint counts of predicted classes."""
    classed = [role for role in columns if role != "cluster"]
    columns.update(zip(classed, without_left_out([columns[role] for role in classed], rules), strict=True))
    classes = typed(columns["target"], [columns[role] for role in classed if role != "target"], rules)
    codes = {role: _codes(classes, columns[role], role) for role in classed}
    times = columns["target"].times
    times = np.ones(len(columns["target"].codes)) if times is None else times
    if "again" in codes:
        _check_targets(codes["target"], codes["again"], times, classes.names, id)
    keep = np.stack(list(codes.values())).min(0) >= 0
    target, new, old = (torch.from_numpy(codes[role][keep]) for role in ("target", "new", "old"))
    number = torch.from_numpy(times[keep])
    cluster = torch.from_numpy(ids_of(columns["cluster"])[keep]) if "cluster" in columns else None
    outcomes = JointOutcomes.of(torch.stack((new, old)), target, len(classes.names), cluster, number)
    return PairedModels(classes.names, classes.binary, outcomes)


def _codes(classes: Classes, column: Column, role: str) -> Array:
    """Return the index of the class of each row; negative for those that are left out."""
    return classes.table(column, role == "target")[column.codes]


def _check_targets(target: Array, again: Array, times: Array | None, names: Sequence[str], id: str | None) -> None:
    """Raise unless both sources have the same targets."""
    wrong = (target != again) & (np.minimum(target, again) >= 0)
    if wrong.any():
        place = int(wrong.argmax())
        number, rows = (wrong.sum(), len(wrong)) if times is None else (times[wrong].sum(), times.sum())
        remedy = "" if id else "; if the rows are in another order, pair them by id= (--id)"
        both = [names[each[place]] for each in (target, again)]
        raise ValueError(
            f"the targets of both models differ in {number:.15g} of {rows:.15g} rows, such as {both[0]!r} and "
            f"{both[1]!r}{remedy}"
        )


# --- pairs ------------------------------------------------------------------------------------------------------------


def _split_models(source: Source, name: str, wanted: Sequence[str]) -> tuple[Source, Source]:
    """Split a long source into those of two models."""
    column = source.counted([name])[0][name]
    levels = [column.levels[int(at)] for at in dict.fromkeys(column.codes.tolist())]  # groups have no order
    if len(levels) != 2:
        raise ValueError(f"model must name two models, but column {name!r} holds {first_names(list(map(str, levels)))}")
    found: Any = source
    if not hasattr(source, "where"):
        found = _relation(source, None, [name, *wanted, *filter(_is_id, source.names)], source.names)
    found.verify([name, *wanted])
    old = found.first(name)
    (new,) = (level for level in levels if level != old)
    return found.where(name, old), found.where(name, new)


def _relation(source: Source, like: Source | None, wanted: Sequence[str], more: Sequence[str]) -> Any:
    """Return a source as a DuckDB relation of our own, which pairs rows; files as they are, others in memory."""
    from imbtorch.predictions.files import in_memory

    if isinstance(source, Engine):
        raise ValueError("rows of an engine have no order; join both models into one frame by id, and name two columns")
    return source if getattr(source, "connection", None) else in_memory(source, wanted, like, more)


def _is_id(name: str) -> bool:
    """Return whether a column tells which sample a row is, by its name."""
    return re.fullmatch(r"(.*_)?id|image|path", name, re.IGNORECASE) is not None


def _joined(
    old: Source, new: Source, roles: Mapping[str, str | None], id: str | None, by_row: bool
) -> tuple[Source, dict[str, str]]:
    """Return one source with the paired rows of two, and its columns by role."""
    own = [role for role in ("target", "old", "cluster") if roles[role] is not None]
    first = {role: single(old, role, roles[role]) for role in own}
    second = {"new": single(new, "new", roles["new"])}
    if roles["target"] in new.names or id is None:
        second["again"] = single(new, "target", roles["target"])
    if id is None:
        keys = [] if by_row else [name for name in old.names if _is_id(name) and name in new.names]
    else:
        keys = list({single(each, "id", id) for each in (old, new)})
        LOG.warning("imbtorch: pairing rows by %r keeps all ids in memory, about %d bytes a row", id, BYTES)
    used = [*first.values(), *second.values(), *keys]
    more = [name for name in old.names if name not in used and old.names.count(name) == new.names.count(name) == 1]
    more = [] if by_row or id is not None else more
    one = _relation(old, new, [*first.values(), *keys], more)
    other = _relation(new, one, [*second.values(), *keys], more)
    telling = other.telling(one.telling([name for name in more if name in one.names and name in other.names]))
    paired = one.paired(other, first, second, keys, id is not None, telling)
    return paired, {role: role for role in (*first, *second)}
