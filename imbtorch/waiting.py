"""Notices of long computations, logged by one process."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

from imbtorch.compat import rank_zero

LOG = logging.getLogger("imbtorch")
SECONDS = 3.0  # estimated time above which a computation is announced
EVIDENCE = 0.5  # seconds of work before the total time is estimated
_announced: dict[str, float] = {}  # work -> seconds of its latest notice


def announced(parts: Iterable[int], total: int, work: str, remedy: str) -> Iterator[int]:
    """Yield the sizes of the parts of a computation, and log a notice on rank zero if it will take long.

    The total time is estimated from the first parts. The same work is announced again only if it takes twice as long,
    so that a computation in every epoch is announced once.

    Args:
        parts: sizes of the parts, which add up to ``total``.
        total: size of the whole computation.
        work: noun for the computation, such as ``"posterior intervals"``.
        remedy: clause that tells the user how to shorten it.

    >>> list(announced([60, 40], 100, "bootstrap", "pass fewer samples"))
    [60, 40]
    """
    start, done, silent = time.monotonic(), 0, not rank_zero()
    for size in parts:
        spent = time.monotonic() - start
        if not silent and done and spent > EVIDENCE:
            estimate = spent * total / done
            if estimate > max(SECONDS, 2 * _announced.get(work, 0.0)):
                _announced[work], silent = estimate, True
                LOG.warning("imbtorch: %s will take about %.0f seconds; %s", work, estimate, remedy)
        yield size
        done += size
