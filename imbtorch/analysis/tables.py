"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]], names_left: bool = False) -> list[str]:
    """Lines in which the cells of a column end at one place.

    Args:
        rows: cells, equally many in each.
        names_left: let the cells of the first column begin at one place instead.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        name = first.ljust(widths[0]) if names_left else first.rjust(widths[0])
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([name, *cells]).rstrip())
    return lines
