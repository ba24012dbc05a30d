"""Names in errors and warnings: the first of many, and suggestions for unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

PUBLIC_MODULES = (
    "imbtorch",
    "imbtorch.statistics",
    "imbtorch.papers",
    "imbtorch.plots",
    "imbtorch.lightning",
    "imbtorch.huggingface",
)
"""Modules from which users import; their ``__all__`` hold all public names."""

# synonyms, in imbtorch and elsewhere, without capitals and underscores; the first one that is allowed is suggested
SYNONYMS = (
    ("recall", "sensitivity", "truepositiverate", "tpr", "hitrate"),
    ("precision", "positivepredictivevalue", "ppv"),
    ("specificity", "truenegativerate", "tnr", "selectivity"),
    ("npv", "negativepredictivevalue"),
    ("f1", "fscore", "f1score", "fbeta", "fbetascore", "fmeasure", "f2", "f2score"),
    ("dice", "f1", "fscore", "dicescore", "dicecoefficient", "generalizeddicescore"),
    ("iou", "jaccard", "jaccardindex", "jaccardscore", "meaniou", "intersectionoverunion"),
    ("accuracy", "acc", "accuracyscore"),
    ("balancedaccuracy", "bacc", "balaccuracy", "balancedaccuracyscore", "unweightedaveragerecall", "uar"),
    ("weightedaccuracy",),  # no average of accuracy
    ("adjustedbalancedaccuracy", "informedness", "bookmakerinformedness", "youdensj"),
    ("gmean", "geometricmean", "geometricmeanscore"),
    ("mcc", "matthewscorrcoef", "matthewscorrelationcoefficient", "phi", "phicoefficient"),
    ("kappa", "cohenkappa", "cohenkappascore", "quadraticweightedkappa", "qwk"),
    ("iam", "imbalanceaccuracy"),
    ("cba", "classbalanceaccuracy"),
    ("iba", "indexbalancedaccuracy"),
    ("fowlkesmallows", "fmi"),
    ("confusionmatrix", "confmat"),
)
OF_SCORES = ("auc", "auroc", "rocauc", "rocaucscore", "ap", "auprc", "aupr", "prauc", "averageprecision")
SWEEP = "; areas under curves need scores: ThresholdSweep(..., also=('auc', 'average_precision')) reports them"
AVERAGES = ("macro", "micro", "weighted")
LONGEST = 1000  # characters up to which names are compared, which takes their square
STAGE = re.compile(r"(train|val|valid|validation|test|eval|predict)[_/.-]")  # prefix that a report may not have
NEAR = 0.75  # similarity of a misspelled name, as difflib computes it; "mcc" and "acc" have 0.67


def first_names(names: Sequence[str], most: int = 20) -> str:
    """Join names for a text, three dots in place of all behind the first.

    >>> first_names(["cat", "dog", "emu"], most=2)
    'cat, dog, ...'
    """
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def did_you_mean(value: object, allowed: Iterable[object]) -> str:
    """Return a clause for the end of an error that suggests the most likely allowed name; empty if none is near.

    Names of measures have no suggestions but their synonyms: "balanced_accuracy" is no misspelled "imbalance_accuracy".

    Args:
        value: the unknown name; numbers, and anything but a string, give no suggestion.
        allowed: allowed names; anything but strings is skipped.

    >>> did_you_mean("sensitivity", ["precision", "recall", "specificity"])
    "; did you mean 'recall'?"
    >>> did_you_mean("macro_recall", ["precision", "recall", "specificity"])
    "; did you mean 'recall'?"
    >>> did_you_mean("sensitivity", ["specificity"])
    ''
    """
    if not isinstance(value, str) or value.lstrip("+-").isdigit() or len(value) > LONGEST:
        return ""
    strings = [name for name in allowed if isinstance(name, str) and len(name) <= LONGEST]
    name = nearest_name(value, strings)
    if name is None:
        measures = {name for group in SYNONYMS for name in group}.intersection(map(_plain, strings))
        return SWEEP if measures and _plain(value) in OF_SCORES else ""
    return f"; did you mean {name!r}?"


def nearest_name(value: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that :func:`did_you_mean` suggests; None if none is near.

    Args:
        value: the unknown name.
        allowed: allowed names.

    >>> nearest_name("jaccard", ["iou", "f1"])
    'iou'
    >>> nearest_name("dog/recall", ["recall/cat", "recall/dog"])
    'recall/dog'
    """
    strings = sorted(
        allowed, key=lambda name: name[:1].isupper() == value[:1].isupper()
    )  # of Recall and recall, keep the one in the case of value
    names = {_plain(name): name for name in strings}
    meant: dict[str, str] = {}
    for group in SYNONYMS:
        known = [names[name] for name in group if name in names]
        meant |= dict.fromkeys(group, known[0]) if known else {}
    meant |= names
    begin, slash, end = value.partition("/")
    if slash and f"{end}/{begin}" in strings:  # the class before the measure
        return f"{end}/{begin}"
    given = _plain(value)
    is_measure = any(given in group for group in SYNONYMS)
    bare = [given, *(given.removeprefix(average).removesuffix(average) for average in AVERAGES if not is_measure)]
    near = [name for name in bare if name in meant]
    if not near and not is_measure and given not in OF_SCORES:
        near = [name for name in get_close_matches(given, meant, cutoff=NEAR) if _part_by_part_near(given, name)]
        near = near or [name for name in meant if _one_letter_differs(given, name)]
    if not near and (stage := STAGE.match(value)):
        return nearest_name(value[stage.end() :], strings)
    return meant[near[0]] if near else None


def _one_letter_differs(given: str, name: str) -> bool:
    """Return whether a letter behind the first differs, also in names that are too short to be similar otherwise."""
    at = _equal_letters(given, name)
    return at > 0 and given.isalpha() and len(given) == len(name) > 2 and given[at + 1 :] == name[at + 1 :]


def one_slip_apart(given: str, name: str) -> bool:
    """Return whether a name is another one but for a slip: a letter more or less, two swapped, case or separators.

    The first letter, digits and other known measures are no slips: "eval_iam" is not "val_iam", nor "miou" "iou".

    >>> [one_slip_apart(given, "val_iam") for given in ("val_iamm", "val_ima", "val/IAM", "eval_iam", "val_iam2")]
    [True, True, True, False, False]
    """
    given, name = given.lower(), name.lower()
    words, others = ([word for word in re.split("[^a-z0-9]+", text) if word] for text in (given, name))
    if "".join(words) == "".join(others):
        return True
    start = _equal_letters(given, name)
    rest, other = given[start:], name[start:]
    end = _equal_letters(rest[::-1], other[::-1])
    rest, other = rest[: len(rest) - end], other[: len(other) - end]
    slip = len(rest) + len(other) == 1 or (len(rest) == 2 and rest == other[::-1])
    known = {measure for group in (*SYNONYMS, OF_SCORES) for measure in group}
    return start > 0 and slip and (rest + other).isalpha() and not known & (set(words) - set(others))


def _equal_letters(given: str, name: str) -> int:
    """Count the letters with which both texts begin."""
    return next(
        (at for at, pair in enumerate(zip(given, name, strict=False)) if len(set(pair)) > 1), min(len(given), len(name))
    )


def _part_by_part_near(given: str, name: str) -> bool:
    """Return whether names such as "recall/dogs" and "recall/dog" are near in each part; numbers must be equal."""
    parts, others = given.split("/"), name.split("/")
    return len(parts) == len(others) and all(
        part == other or (not other.isdigit() and bool(get_close_matches(part, [other], cutoff=NEAR)))
        for part, other in zip(parts, others, strict=True)
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")
