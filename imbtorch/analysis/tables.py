"""Tables as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["aligned", "spans", "trivial_line"]


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


def spans(indices: Sequence[int], names: Sequence[object] | None = None) -> str:
    """Return text such as ``3, 5 to 9`` for increasing indices, by their names if those are given."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    ends = [[run[0]] if len(run) == 1 else [run[0], run[-1]] for run in runs]
    return ", ".join(" to ".join(str(index if names is None else names[index]) for index in end) for end in ends)


def trivial_line(name: str, values: Mapping[str, float]) -> str:
    """Return text such as ``always 'ok': accuracy 0.9900, iam -0.0100``."""
    return f"{name}: {', '.join(f'{key} {value:.4f}' for key, value in values.items())}"
