"""Suggestions of known names, for errors about unknown ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]

# synonyms, in imbtorch and elsewhere, without capitals and underscores; the first one that is allowed is suggested
SYNONYMS = (
    ("recall", "sensitivity", "truepositiverate", "tpr", "hitrate"),
    ("precision", "positivepredictivevalue", "ppv"),
    ("specificity", "truenegativerate", "tnr", "selectivity"),
    ("npv", "negativepredictivevalue"),
    ("f1", "fscore", "f1score", "fbeta", "fbetascore", "fmeasure", "f2", "f2score"),
    ("dice", "f1", "fscore", "dicescore", "dicecoefficient", "generalizeddicescore"),
    ("iou", "jaccard", "jaccardindex", "jaccardscore", "meaniou", "miou", "intersectionoverunion"),
    ("accuracy", "acc", "accuracyscore"),
    ("balancedaccuracy", "bacc", "balacc", "balancedaccuracyscore", "unweightedaveragerecall", "uar"),
    ("adjustedbalancedaccuracy", "informedness", "bookmakerinformedness", "youden", "youdenj", "youdensj"),
    ("gmean", "geometricmean", "geometricmeanscore"),
    ("mcc", "matthewscorrcoef", "matthewscorrelationcoefficient", "phi", "phicoefficient"),
    ("kappa", "cohenkappa", "cohenkappascore", "quadraticweightedkappa", "qwk"),
    ("iam", "imbalanceaccuracy"),
    ("cba", "classbalanceaccuracy"),
    ("iba", "indexbalancedaccuracy"),
    ("fowlkesmallows", "fowlkesmallowsindex", "fmi"),
    ("confusionmatrix", "confmat"),
)
OF_SCORES = ("auc", "auroc", "rocauc", "rocaucscore", "ap", "auprc", "aupr", "prauc", "averageprecision")
SWEEP = "; areas under curves need scores: ThresholdSweep(..., also=('auc', 'average_precision')) reports them"
AVERAGES = ("macro", "micro", "weighted")


def did_you_mean(value: object, allowed: Iterable[object]) -> str:
    """Return a clause for the end of an error that suggests the most likely allowed name; empty if none is near.

    Args:
        value: the unknown name; anything but a string gives no suggestion.
        allowed: allowed names; anything but strings is skipped.

    >>> did_you_mean("sensitivity", ["precision", "recall", "specificity"])
    "; did you mean 'recall'?"
    >>> did_you_mean("macro_recall", ["precision", "recall", "specificity"])
    "; did you mean 'recall'?"
    """
    if not isinstance(value, str):
        return ""
    strings = [name for name in allowed if isinstance(name, str)]
    strings.sort(
        key=lambda name: name[:1].isupper() == value[:1].isupper()
    )  # of Recall and recall, keep the one in the case of value
    names = {_plain(name): name for name in strings}
    meant: dict[str, str] = {}
    for group in SYNONYMS:
        known = [names[name] for name in group if name in names]
        meant |= dict.fromkeys(group, known[0]) if known else {}
    meant |= names
    given = _plain(value)
    bare = [given, *(given.removeprefix(average).removesuffix(average) for average in AVERAGES)]
    if given in OF_SCORES and given not in meant:
        return SWEEP
    near = [name for name in bare if name in meant] or get_close_matches(given, meant, 1)
    return f"; did you mean {meant[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")
