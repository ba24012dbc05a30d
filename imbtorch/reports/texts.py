"""Texts and names that results share."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

UNSURE = (
    "intervals of scores need numbers of independent samples, and sums of weights are not such numbers; count without "
    "weighted=True; a report, which counts at one threshold, has intervals of weights"
)
UNSQUARED = (
    "the squares of some weights, which intervals need, are unknown: counts were added, or come from a version before "
    "0.8; count the samples again by update(preds, target, weight=weight)"
)
WEIGHTED = "weighted: counts and values are of the weight of samples, not of their number"

NO_BUCKETS = "{} was built without clusters, so it holds no counts of clusters; build it with clusters=True"

LONGEST = 100_000  # characters of the name of a class


def checked_names(class_names: Sequence[str]) -> list[str]:
    """Return class names as a list; raise unless they are distinct strings."""
    if isinstance(class_names, str):
        raise TypeError(f"class_names must be a sequence of names, got the string {class_names!r}")
    if isinstance(class_names, (AbstractSet, Mapping)) or not isinstance(class_names, Iterable):
        raise TypeError(
            "class_names must be a sequence in the order of the classes, such as a list, got a "
            f"{type(class_names).__name__}"
        )
    names = list(class_names)
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"class_names must be non-empty strings, got {names!r}")
    if (most := max(map(len, names), default=0)) > LONGEST:
        raise ValueError(f"class_names holds a name of {most:,} characters; names have at most {LONGEST:,}")
    twice = sorted(name for name, times in collections.Counter(names).items() if times > 1)
    if twice:
        raise ValueError(f"class_names must differ, got {', '.join(twice)} more than once")
    return names
