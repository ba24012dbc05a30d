"""Comparisons of two models from joint counts: of a target, what the old and what the new model predicts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from imbtorch.choosing.gate import PairedModels
from imbtorch.choosing.outcomes import JointOutcomes
from imbtorch.columns import IGNORED, LEFT_OUT, Array, Classes, Column, Rules, typed, without_left_out
from imbtorch.counting.arguments import checked_threshold, real_number
from imbtorch.deciding.curves import AREAS
from imbtorch.predictions.samples import ids_of
from imbtorch.predictions.scores import are_above, checked_scores
from imbtorch.predictions.sources import Arrays, Engine, Source, check_roles, floats, placed, single
from imbtorch.suggestions import first_names
from imbtorch.waiting import LOG

BYTES = 100  # memory of a row that is paired by id
UNLIKE = 0.1  # difference of two shares of alerts, as a share of the larger one, from which they are not compared
ROLES = ("target", "again", "old", "new", "cluster")
CHOSEN = (
    "thresholds are taken as given: one that was chosen on these rows makes its model look better than it is; choose "
    "it on other rows, or compare at equal alerts"
)
OTHER = {"again": "target of new"}  # name of a role in texts, where it differs


class Pairing(NamedTuple):
    """Two models of the same samples: their predictions, how rows are paired, and how scores become classes."""

    old: Any
    new: Any
    other: Any = None  # predictions of the new model, if they have a source of their own
    id: str | Sequence[str] | None = None
    by_row: bool = False
    model: str | None = None
    threshold: float | Sequence[float] | None = None
    alerts: float | None = None


def paired(
    source: Source | None,
    other: Source | None,
    roles: Mapping[str, Any],
    target: Any,
    rules: Rules,
    measure: str,
    how: Pairing,
) -> PairedModels:
    """Pair the rows of two models.

    Args:
        source: source of both models, or of the old one; None if the roles hold the values.
        other: source of the new model, if it has one.
        roles: target, old, new and cluster -> column, or values.
        target: column of the targets of ``other``.
        rules: rules for the classes.
        measure: name of the measure.
        how: way in which rows are paired.
    """
    cuts, called = _thresholds(measure, how), ("new", "old")
    if source is None:
        if how.other or how.model or how.id:
            raise ValueError("other, model and id are for sources of columns; without a source pass both predictions")
        source, names = _of_values(roles)
    elif other is None and how.model is None:
        names = {role: single(source, role, name) for role, name in roles.items() if name is not None}
        if names["old"] == names["new"]:
            raise ValueError("old and new are the same column; name two, or pass other= or model=")
        check_roles(names.items())
        called = how.new, how.old
    elif other is None:
        named = {**roles, "model": how.model}
        wanted = {role: single(source, role, name) for role, name in named.items() if name is not None}
        if wanted["old"] != wanted["new"]:
            raise ValueError("old and new must name the same column of a long source, whose models are in model=")
        ids = _ids(how.id, source)
        check_roles(
            [*((role, name) for role, name in wanted.items() if role != "new"), *(("id", name) for name in ids)]
        )
        first, second, called = _split_models(source, wanted.pop("model"), [*wanted.values(), *ids])
        source, names = _joined(first, second, roles, roles["target"], how)
    else:
        if how.old != how.new and str(how.new) in source.names:
            raise ValueError(f"the first source holds both {how.old!r} and {how.new!r}; leave the second one out")
        source, names = _joined(source, other, roles, target, how)
    source.called |= {name: OTHER.get(role, role) for role, name in names.items()}
    if cuts is not None:
        pair = _of_scores(source, names, rules, how, cuts)
    else:
        found = source.counted([names[role] for role in ROLES if role in names])[0]
        pair = _of_classes({role: found[name] for role, name in names.items()}, rules, how.id)
    return replace(pair, called=called)


def _thresholds(measure: str, how: Pairing) -> tuple[float, ...] | None:
    """Return the thresholds of the old and the new model; none for areas and alerts, None for predicted classes."""
    if measure in AREAS:
        if how.threshold is not None or how.alerts is not None:
            raise ValueError(f"{measure!r} is an area over all thresholds; leave threshold and alerts out")
        return ()
    if how.threshold is not None and how.alerts is not None:
        raise ValueError("threshold and alerts both choose thresholds; leave one of them out")
    if how.alerts is not None:
        if not 0 < real_number("alerts", how.alerts) < 1:
            raise ValueError(
                f"alerts must lie in (0, 1), got {how.alerts!r}; it is a share of the samples, such as 0.005"
            )
        return ()
    if how.threshold is None:
        return None
    given = how.threshold if isinstance(how.threshold, (list, tuple)) else [how.threshold]
    found = tuple(checked_threshold("binary", each) for each in given) * (2 if len(given) == 1 else 1)
    if len(found) != 2:
        raise ValueError(f"threshold must be one number or two, the old model's first, got {how.threshold!r}")
    return found


def _of_values(roles: Mapping[str, Any]) -> tuple[Source, dict[str, str]]:
    """Return columns that the arguments hold."""
    held = {role: values for role, values in roles.items() if values is not None}
    return Arrays(held, called={role: role for role in held}), {role: role for role in held}


def _of_scores(
    source: Source, names: Mapping[str, str], rules: Rules, how: Pairing, cuts: tuple[float, ...]
) -> PairedModels:
    """Return the scores of both models, or the classes at their thresholds."""
    targets = [role for role in ("target", "again") if role in names]
    found = source.counted([names[role] for role in targets])[0]
    classes = _typed({role: found[names[role]] for role in targets}, rules)
    if not classes.binary:
        held = first_names(classes.names)
        raise ValueError(f"scores are of two classes; name the positive one of {held} by positive=")
    parts, wrong = dict[str, list[Array]](), list[dict[str, Array]]()
    keys, start = [role for role in ("target", "again", "cluster") if role in names], 0
    for found, arrays in source.batches([names[role] for role in keys], [names["old"], names["new"]]):
        columns = {role: found[names[role]] for role in keys}
        codes = {role: classes.table(columns[role], True)[columns[role].codes] for role in targets}
        if "again" in codes:
            _check_targets(codes["target"], codes["again"], None, classes.names, how.id)
        part = {"target": np.stack(list(codes.values())).min(0)}
        if "cluster" in columns:
            part["cluster"] = ids_of(columns["cluster"])
        there = part["target"] != IGNORED
        for role in ("old", "new"):
            part[role], have = checked_scores(
                floats(role, arrays[names[role]], start),
                there if how.alerts is not None else part["target"] >= 0,
                f"scores of {role}",
                start,
                missing=rules.missing,
                logits=not cuts,
            )
            there = there & have
            codes[role] = np.where(np.isnan(part[role]), LEFT_OUT, 0)
        wrong.append({role: each[each < 0] for role, each in codes.items()})
        start += len(there)
        for role, each in part.items():
            parts.setdefault(role, []).append(each[there])
    joined = {role: np.concatenate(some) for role, some in parts.items()}
    shares, models = None, ("old", "new")
    if how.alerts is not None:  # shares of all rows, also of those without a label
        cuts = tuple(at_alerts(joined[role], how.alerts) for role in models)
        shares = tuple(float((joined[role] > cut).mean()) for role, cut in zip(models, cuts, strict=True))
        if abs(shares[0] - shares[1]) > UNLIKE * max(shares):
            raise ValueError(
                f"alerts={how.alerts:g} becomes {shares[0]:.3g} for old and {shares[1]:.3g} for new, since samples with"
                " equal scores are flagged together; choose another share, or a threshold for each by threshold="
            )
    labelled = joined["target"] >= 0
    joined, shares = {role: each[labelled] for role, each in joined.items()}, None if labelled.all() else shares
    target, notes = torch.from_numpy(joined["target"]), _left_out(wrong)
    notes += (CHOSEN,) if how.threshold is not None and cuts[0] != cuts[1] else ()
    cluster = torch.from_numpy(joined["cluster"]) if "cluster" in joined else None
    if not cuts:
        scores = torch.from_numpy(joined["new"]), torch.from_numpy(joined["old"]), target
        return PairedModels(classes.names, True, None, scores, cluster, left_out=notes)
    types = [source.type_of(names[role]) for role in models]
    above = [are_above(joined[role], placed(cut, [kind])) for role, cut, kind in zip(models, cuts, types, strict=True)]
    outcomes = JointOutcomes.of(torch.from_numpy(np.stack(above[::-1]).astype(np.int64)), target, 2, cluster)
    of_new: Any = {"thresholds": cuts[::-1], "shares": shares and shares[::-1]}
    return PairedModels(classes.names, True, outcomes, **of_new, left_out=notes)


def _left_out(parts: Sequence[Mapping[str, Array]], times: Array | float = 1.0) -> tuple[str, ...]:
    """Return lines that say how many rows have no value, or a target to ignore, of which role."""
    lines = []
    for code, why in ((LEFT_OUT, "a value is missing"), (IGNORED, "ignore names their target")):
        numbers = {role: sum(float(((codes[role] == code) * times).sum()) for codes in parts) for role in parts[0]}
        some = [f"{OTHER.get(role, role)} {number:,.10g}" for role, number in numbers.items() if number]
        lines += [f"rows left out because {why}: {', '.join(some)}"] if some else []
    return tuple(lines)


def at_alerts(scores: Array, alerts: float) -> float:
    """Return the lowest threshold strictly above which at most a share of the scores lies."""
    most = math.floor(alerts * len(scores) + 1e-9)
    return float(-np.partition(-scores, most)[most])


def _typed(columns: dict[str, Column], rules: Rules) -> Classes:
    """Decide the classes of columns by their roles, those of targets of both sources alike."""
    classed = [role for role in columns if role != "cluster"]
    if "again" in columns:
        columns["again"] = replace(columns["again"], again=True)
    columns.update(zip(classed, without_left_out([columns[role] for role in classed], rules), strict=True))
    return typed(columns["target"], [columns[role] for role in classed if role != "target"], rules)


def _of_classes(columns: dict[str, Column], rules: Rules, id: Any) -> PairedModels:
    """Return the joint counts of predicted classes."""
    classes = _typed(columns, rules)
    classed = [role for role in columns if role != "cluster"]
    codes = {role: classes.table(columns[role], role in ("target", "again"))[columns[role].codes] for role in classed}
    times = columns["target"].times
    times = np.ones(len(columns["target"].codes)) if times is None else times
    if "again" in codes:
        _check_targets(codes["target"], codes["again"], times, classes.names, id)
    keep = np.stack(list(codes.values())).min(0) >= 0
    target, new, old = (torch.from_numpy(codes[role][keep]) for role in ("target", "new", "old"))
    number = torch.from_numpy(times[keep])
    cluster = torch.from_numpy(ids_of(columns["cluster"])[keep]) if "cluster" in columns else None
    outcomes = JointOutcomes.of(torch.stack((new, old)), target, len(classes.names), cluster, number)
    return PairedModels(classes.names, classes.binary, outcomes, left_out=_left_out([codes], times))


def _check_targets(target: Array, again: Array, times: Array | None, names: Sequence[str], id: Any) -> None:
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


def _split_models(source: Source, name: str, wanted: Sequence[str]) -> tuple[Source, Source, tuple[str, str]]:
    """Split a long source into those of the old and the new model; also return the names of the new and the old one."""
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
    return found.where(name, old), found.where(name, new), (str(new), str(old))


def _relation(source: Source, like: Source | None, wanted: Sequence[str], more: Sequence[str]) -> Any:
    """Return a source as a DuckDB relation of our own, which pairs rows; files as they are, others in memory."""
    from imbtorch.predictions.files import in_memory

    if isinstance(source, Engine):
        raise ValueError("rows of an engine have no order; join both models into one frame by id, and name two columns")
    return source if getattr(source, "connection", None) else in_memory(source, wanted, like, more)


def check_ids(source: Source | None, id: Any) -> None:
    """Raise unless some columns together tell the rows of a source apart."""
    if source is None or isinstance(source, Engine):
        kind = "columns" if source is None else "files and frames; collect the lazy frame"
        raise ValueError(f"id= is for sources of {kind}, in which rows that occur twice are found")
    keys = _ids(id, source)
    found: Any = source if hasattr(source, "check_ids") else _relation(source, None, keys, ())
    found.check_ids(keys)


def _ids(id: Any, source: Source) -> list[str]:
    """Return the columns whose values together pair the rows."""
    names = id if isinstance(id, (list, tuple)) else [id]
    return [single(source, "id", name) for name in names if name is not None]


def _is_id(name: str) -> bool:
    """Return whether a column tells which sample a row is, by its name."""
    return re.fullmatch(r"(.*_)?id|image|path", name, re.IGNORECASE) is not None


def _joined(
    old: Source, new: Source, roles: Mapping[str, Any], of_new: Any, how: Pairing
) -> tuple[Source, dict[str, str]]:
    """Return one source with the paired rows of two, and its columns by role."""
    own = [role for role in ("target", "old", "cluster") if roles[role] is not None]
    first = {role: single(old, role, roles[role]) for role in own}
    second = {"new": single(new, "new", roles["new"])}
    if str(of_new) in new.names or how.id is None:
        second["again"] = single(new, "target", of_new)
    if how.id is None:
        keys = [] if how.by_row else [name for name in old.names if _is_id(name) and name in new.names]
    else:
        keys = list(dict.fromkeys([*_ids(how.id, old), *_ids(how.id, new)]))
        LOG.warning("imbtorch: pairing rows by %r keeps all ids in memory, about %d bytes a row", how.id, BYTES)
    ids = [("id", name) for name in keys] if how.id is not None else []
    check_roles([*first.items(), *ids])
    check_roles([("target" if role == "again" else role, name) for role, name in second.items()] + ids)
    used = [*first.values(), *second.values(), *keys]
    more = [name for name in old.names if name not in used and old.names.count(name) == new.names.count(name) == 1]
    more = [] if how.by_row or how.id is not None else more
    one = _relation(old, new, [*first.values(), *keys], more)
    other = _relation(new, one, [*second.values(), *keys], more)
    telling = other.telling(one.telling([name for name in more if name in one.names and name in other.names]))
    paired = one.paired(other, first, second, keys, how.id is not None, telling)
    return paired, {role: role for role in (*first, *second)}
