"""Names of files: paths, patterns and folders; files that are named twice, and those to write among those to read."""

from __future__ import annotations

import filecmp
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

PACKED = {".gz": "gzip", ".zst": "zstd"}
START = 65_536  # bytes at the beginning of a file that tell it from others of its size


def found_files(given: Any, endings: Iterable[str]) -> list[str]:
    """Return the files that a path, a pattern, a folder, or a list of these names.

    A name is a pattern only if no file or folder has it. Of a folder, files with some ``endings`` are taken.
    """
    paths: list[str] = []
    for each in given if isinstance(given, (list, tuple)) else [given]:
        path = os.fspath(each)
        found = [path]
        if os.path.isdir(path):
            every = (str(file) for file in sorted(Path(path).rglob("*")) if not file.is_dir())
            found = [file for file in every if Path(file).suffix.lower() in {*endings, *PACKED}]
            found = [file for file in found if not re.search(r"(^|[/\\])[._]", os.path.relpath(file, path))]
        elif not os.path.exists(path):
            matched = sorted({*_matches("", Path(path).parts)})
            found = [file for file in matched if os.path.exists(file) and not os.path.isdir(file)]
        if not found:
            raise FileNotFoundError(f"there is no file {path!r}; a glob must match files, and a folder hold some")
        paths += found
    if not paths:
        raise ValueError("the source is an empty list of paths")
    for path in paths:
        if not os.path.isfile(path):
            raise ValueError(f"{path} is not a regular file, such as a pipe, which is read only once; save it first")
        if os.sep == "/" and "\\" in os.path.abspath(path):
            raise ValueError(f"{path}: DuckDB cannot read names that contain a backslash; rename the file or folder")
    check_twice(paths)
    return paths


def _matches(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield what the parts of a pattern name in a folder; a part that exists is a name."""
    if not parts:
        yield folder
        return
    found = [os.path.join(folder, parts[0])]
    if not os.path.lexists(found[0]):
        found = glob.glob(os.path.join(glob.escape(folder), parts[0]), recursive=True)
    for each in [folder, *found] if parts[0] == "**" else found:
        yield from _matches(each, parts[1:])


def check_twice(paths: Sequence[str]) -> None:
    """Raise for one file under two names, and for a file beside the same one compressed."""
    files: dict[Any, str] = {}
    for path in paths:
        status, (bare, ending) = os.stat(path), os.path.splitext(os.path.abspath(path))
        plain = bare if ending.lower() in PACKED else bare + ending
        unpacked = os.path.realpath(os.path.dirname(plain)), os.path.basename(plain)
        for key, how in (((status.st_dev, status.st_ino), "the same file"), (unpacked, "equal but for compression")):
            if key in files:
                raise ValueError(f"{files[key]} and {path} are {how}, so samples would count twice; name one of them")
            files[key] = path


def note_on_copies(paths: Sequence[str]) -> list[str]:
    """Return a note on files that hold the same bytes, which may be copies or equal parts."""
    starts: dict[tuple[int, int], str] = {}
    for path in paths if len(paths) > 1 else ():
        with open(path, "rb") as file:
            key = os.path.getsize(path), hash(file.read(START))
        if key in starts and filecmp.cmp(starts[key], path, shallow=False):
            return [f"{starts[key]} and {path} hold the same bytes; if one is a copy, its samples count twice"]
        starts[key] = path
    return []


def check_output(argument: str, output: Any, inputs: Iterable[Any]) -> None:
    """Raise for a file to write that is one of those to read, also through a link."""
    for path in inputs:
        if output is not None and os.path.exists(output) and os.path.samefile(output, path):
            raise ValueError(f"{argument} names {output}, which is read ({path}); name another file to write")
