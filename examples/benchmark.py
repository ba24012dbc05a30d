"""Measures imbtorch beside torchmetrics, torcheval and scikit-learn on the same tensors; prints medians and ratios.

    python examples/benchmark.py --update --memory     # some sections
    python examples/benchmark.py --all                 # all of them, in some minutes
    python examples/benchmark.py --all --quick         # in about two minutes, with more scatter

A ratio says how many times as long the peer takes. All that stands in one row was timed in turns, and a turn in which
all took longer, since the machine was slower, counts as one of the usual pace; run it on an idle machine all the same.
Ratios can be compared, times of different machines cannot. A target beside a ratio is what we aim at for one CPU core;
the last table says which were reached. Every library validates its input as it does by default. On CUDA times are taken
between two events.

Two lower bounds stand beside the updates. "read" reads predictions and targets once (their sums). "bare" is the same
counting without any check, bookkeeping or protection: ``counts.index_add_(0, target * K + preds, ones)``. "unchecked"
is the update itself, its check of the values left out.

A peer that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import itertools
import logging
import os
import pickle
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchmetrics
import torchmetrics.classification as tm
from torch.utils import benchmark

import imbtorch
from imbtorch.counting import kernels
from imbtorch.papers import skew_map
from imbtorch.statistics import bootstrap, paired_compare, posterior

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PEERS = {name: importlib.util.find_spec(name) is not None for name in ("torcheval", "sklearn", "lightning")}
Work = Callable[[], object]


@dataclass
class Bench:
    """How long to measure, and what came of the targets so far."""

    quick: bool
    before: str | None = None  # folder of another version
    aims: list[list[object]] = field(default_factory=list)

    def medians(self, **works: Work) -> dict[str, float]:
        """Median seconds of one call of each, measured in turns; what made all of a turn slower is taken off."""
        gc.collect()  # a metric is in cycles; those of the row before need not be held beside these
        rounds, seconds = (4, 0.1) if self.quick else (10, 0.5)
        blocks = cuda_blocks if DEVICE == "cuda" else cpu_blocks
        spent, turns = dict.fromkeys(works, 0.0), list[dict[str, float]]()
        for turn in range(rounds):
            going = [name for name in works if turn < 3 or spent[name] < seconds]  # a slow one has had its time
            if going:
                turns.append({name: statistics.median(blocks(works[name], seconds / rounds)) for name in going})
            for name in going:
                spent[name] += turns[-1][name]
        paces = [statistics.geometric_mean(turn[name] for name in turns[-1]) for turn in turns]
        usual = statistics.median(paces)
        return {
            name: statistics.median(
                turn[name] * usual / pace for turn, pace in zip(turns, paces, strict=True) if name in turn
            )
            for name in works
        }

    def at_least(self, wanted: float, came: float, what: str) -> str:
        """Target of a ratio that should be large, as it is printed."""
        return self._aim(f"≥ {wanted:g}", came >= wanted, came, what)

    def at_most(self, wanted: float, came: float, what: str) -> str:
        """Target of a ratio that should be small, as it is printed."""
        return self._aim(f"≤ {wanted:g}", came <= wanted, came, what)

    def _aim(self, target: str, reached: bool, came: float, what: str) -> str:
        if DEVICE != "cpu":
            return "-"  # the targets are for one CPU core
        self.aims.append([what, target, came, "yes" if reached else "no"])
        return target if reached else f"{target}, missed"


def cpu_blocks(work: Work, seconds: float) -> list[float]:
    """Seconds of a call, of each block of calls."""
    timer = benchmark.Timer("work()", globals={"work": work}, num_threads=1)
    return timer.blocked_autorange(min_run_time=seconds).times


def cuda_blocks(work: Work, seconds: float) -> list[float]:
    """Seconds of a call, of each block of calls queued between two events; nobody waits within a block."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def block(calls: int) -> float:
        start.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    calls = 1
    block(calls)  # warms up
    while calls < 1000 and block(calls) < 1e-3:
        calls *= 2
    blocks = [block(calls)]
    while sum(blocks) < seconds:
        blocks.append(block(calls))
    return [took / calls for took in blocks]


def table(title: str, columns: list[str], rows: list[list[object]], note: str = "") -> None:
    """Print a Markdown table; None becomes a dash."""
    print(f"\n### {title}\n\n{note + chr(10) * 2 if note else ''}| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print("| " + " | ".join(map(cell, row)) + " |", flush=True)


def cell(value: object) -> str:
    """Three digits of a number, without an exponent."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def labels(classes: int, batch: int, device: str = DEVICE) -> tuple[torch.Tensor, torch.Tensor]:
    """Random predictions and targets."""
    return torch.randint(classes, (batch,), device=device), torch.randint(classes, (batch,), device=device)


def ours(classes: int, **arguments: Any) -> imbtorch.ConfusionMatrix:
    """Confusion matrix of imbtorch."""
    return imbtorch.ConfusionMatrix("multiclass", num_classes=classes, **arguments).to(DEVICE)


def theirs(classes: int, **arguments: Any) -> tm.MulticlassConfusionMatrix:
    """Confusion matrix of torchmetrics."""
    return tm.MulticlassConfusionMatrix(classes, **arguments).to(DEVICE)


def in_turn(function: Callable[..., object], batches: Sequence[tuple[torch.Tensor, ...]]) -> Work:
    """One call with the next of some batches."""
    turns = itertools.cycle(batches)
    return lambda: function(*next(turns))


def feed(metric: Any, *batch: torch.Tensor) -> Work:
    """One update with a batch."""
    return lambda: metric.update(*batch)


def call(metric: Any, *batch: torch.Tensor) -> Work:
    """One forward with a batch: its value, and accumulation."""
    return lambda: metric(*batch)


def read(*tensors: torch.Tensor) -> Work:
    """Read tensors once."""
    return lambda: [tensor.sum() for tensor in tensors]


def bare(classes: int, preds: torch.Tensor, target: torch.Tensor) -> Work:
    """Count without any check."""
    counts = torch.zeros(classes * classes, dtype=torch.int64, device=DEVICE)
    ones = torch.ones_like(target)
    return lambda: counts.index_add_(0, target * classes + preds, ones)


def unchecked(metric: Any, *batch: torch.Tensor) -> Work:
    """Update as ``feed`` does, without the check of the values (on the CPU, where it can be left out)."""
    check = kernels.below

    def work() -> None:
        kernels.below = lambda *_: True
        metric.update(*batch)
        kernels.below = check

    return work


# --- updates --------------------------------------------------------------------------------------------------------


def update(bench: Bench) -> None:
    """Class indices into a confusion matrix, and how the cost grows with K and with the batch."""
    wanted = {(10, 256): 3, (10, 65_536): 15, (1000, 256): 40, (10_000, 256): 5000}
    rows: list[list[object]] = []
    for classes, batch in ((10, 256), (10, 65_536), (100, 4096), (1000, 256), (10_000, 256)):
        preds, target = labels(classes, batch)
        took = bench.medians(
            read=read(preds, target),
            bare=bare(classes, preds, target),
            unchecked=unchecked(ours(classes), preds, target),
            ours=feed(ours(classes), preds, target),
            theirs=feed(theirs(classes), preds, target),
            **peers_of_update(classes, preds, target),
        )
        what = f"update, K = {classes:,}, batch {batch:,}"
        mine, ratio = took["ours"], took["theirs"] / took["ours"]
        aim, bare_ratio, checking = wanted.get((classes, batch)), mine / took["bare"], mine / took["unchecked"]
        rows.append(
            [classes, batch, *(1e6 * took[name] for name in ("read", "bare", "ours", "theirs")), ratio]
            + [
                bench.at_least(aim, ratio, f"{what}: torchmetrics / imbtorch") if aim else None,
                mine / took["read"],
                bare_ratio,
            ]
            + [bench.at_most(1.5, bare_ratio, f"{what}: imbtorch / bare") if batch == 65_536 else None]
            + [checking, bench.at_most(2, checking, f"{what}: imbtorch / the same without its check")]
            + [took[name] / mine if name in took else None for name in ("torcheval", "sklearn")]
        )
    columns = ["K", "batch", "read µs", "bare µs", "imbtorch µs", "torchmetrics µs", "ratio", "target", "over read"]
    columns += ["over bare", "target", "over unchecked", "target", "torcheval ratio", "scikit-learn ratio"]
    table("update: class indices into a confusion matrix", columns, rows)
    growth_with_classes(bench)
    growth_with_batch(bench)


def peers_of_update(classes: int, preds: torch.Tensor, target: torch.Tensor) -> dict[str, Work]:
    """Updates of the peers besides torchmetrics (scikit-learn keeps no state: it counts the batch)."""
    found: dict[str, Work] = {}
    if PEERS["torcheval"] and classes <= 1000:
        from torcheval.metrics import MulticlassConfusionMatrix

        found["torcheval"] = feed(MulticlassConfusionMatrix(classes, device=torch.device(DEVICE)), preds, target)
    if PEERS["sklearn"] and classes <= 1000 and not preds.is_floating_point():
        from sklearn.metrics import confusion_matrix

        truth, guess = target.cpu().numpy(), preds.cpu().numpy()
        found["sklearn"] = lambda: confusion_matrix(truth, guess, labels=range(classes))
    return found


def growth_with_classes(bench: Bench) -> None:
    """Update of 4096 samples for more and more classes."""
    rows: list[list[object]] = []
    for classes in (10, 100, 1000, 10_000, 100_000, 1_000_000):
        preds, target = labels(classes, 4096)
        works = {"margins": feed(margins_metric(classes).to(DEVICE), preds, target)}
        if classes <= 10_000:
            works |= {"matrix": feed(ours(classes), preds, target), "theirs": feed(theirs(classes), preds, target)}
        took = bench.medians(**works)
        times = [1e6 * took[name] if name in took else None for name in ("matrix", "margins", "theirs")]
        rows.append([classes, *times, took["theirs"] / took["matrix"] if "theirs" in took else None])
    columns = ["K", "imbtorch matrix µs", "imbtorch margins µs", "torchmetrics matrix µs", "ratio of matrices"]
    table("update: growth with K, batch 4096", columns, rows)


def growth_with_batch(bench: Bench) -> None:
    """Update of ten classes for larger and larger batches."""
    rows: list[list[object]] = []
    for batch in (64, 1024, 16_384, 131_072, 1_000_000):
        preds, target = labels(10, batch)
        works = {"read": read(preds, target), "ours": feed(ours(10), preds, target)}
        took = bench.medians(**works, theirs=feed(theirs(10), preds, target))
        times = [1e6 * took[name] for name in ("read", "ours", "theirs")]
        rows.append([batch, *times, took["theirs"] / took["ours"], 1e9 * took["ours"] / batch])
    columns = ["batch", "read µs", "imbtorch µs", "torchmetrics µs", "ratio", "imbtorch ns a sample"]
    table("update: growth with the batch, K = 10", columns, rows)


def logits(bench: Bench) -> None:
    """Scores ``[4096, K]`` into a confusion matrix."""
    rows: list[list[object]] = []
    for classes in (10, 100, 1000):
        scores, (_, target) = torch.randn(4096, classes, device=DEVICE), labels(classes, 4096)
        works = {"read": read(scores, target), "argmax": lambda scores=scores: scores.argmax(1)}
        works |= {"ours": feed(ours(classes), scores, target), "theirs": feed(theirs(classes), scores, target)}
        took = bench.medians(**works, **peers_of_update(classes, scores, target))
        ratio = took["theirs"] / took["ours"]
        times = [1e6 * took[name] for name in ("read", "argmax", "ours", "theirs")]
        what = "logits, K = 1000, batch 4096: torchmetrics / imbtorch"
        rows.append([classes, *times, ratio, bench.at_least(4, ratio, what) if classes == 1000 else None])
        rows[-1].append(took["torcheval"] / took["ours"] if "torcheval" in took else None)
    columns = ["K", "read µs", "argmax µs", "imbtorch µs", "torchmetrics µs", "ratio", "target", "torcheval ratio"]
    table("update: logits of a batch of 4096", columns, rows)
    scores_of_few_classes(bench)


def scores_of_few_classes(bench: Bench) -> None:
    """Class scores of small batches and few classes, the commonest call.

    64 batches take turns: a processor that sees one batch again and again guesses all branches of an argmax right.
    """
    rows: list[list[object]] = []
    for classes in (2, 3, 10):
        for batch in (256, 1024, 4096):
            pairs = [(torch.randn(batch, classes, device=DEVICE), labels(classes, batch)[1]) for _ in range(64)]
            took = bench.medians(
                argmax=in_turn(lambda scores, _: scores.argmax(1), pairs),
                ours=in_turn(ours(classes).update, pairs),
                theirs=in_turn(theirs(classes).update, pairs),
            )
            ratio = took["theirs"] / took["ours"]
            what = f"scores, K = {classes}, batch {batch:,}: torchmetrics / imbtorch"
            rows.append([classes, batch, *(1e6 * each for each in took.values()), ratio])
            rows[-1].append(bench.at_least(1.3, ratio, what))
    columns = ["K", "batch", "argmax µs", "imbtorch µs", "torchmetrics µs", "ratio", "target"]
    table("update: scores of few classes", columns, rows)


def ignore(bench: Bench) -> None:
    """Updates of which a tenth is ignored, beside the same updates without ``ignore_index``."""
    rows: list[list[object]] = []
    for batch in (256, 65_536):
        preds, target = labels(10, batch)
        for index in (-100, 0):
            some = target if index == 0 else target.masked_fill(target == 0, index)
            took = bench.medians(
                ours=feed(ours(10), preds, target),
                ours_ignoring=feed(ours(10, ignore_index=index), preds, some),
                theirs=feed(theirs(10), preds, target),
                theirs_ignoring=feed(theirs(10, ignore_index=index), preds, some),
            )
            cost = took["ours_ignoring"] / took["ours"]
            what = f"ignore_index={index}, K = 10, batch {batch:,}: with / without"
            aim = bench.at_most(1.3, cost, what) if batch == 65_536 else None
            rows.append([batch, index, 1e6 * took["ours"], 1e6 * took["ours_ignoring"], cost, aim])
            rows[-1] += [1e6 * took["theirs"], 1e6 * took["theirs_ignoring"], took["theirs_ignoring"] / took["theirs"]]
            rows[-1].append(took["theirs_ignoring"] / took["ours_ignoring"])
    columns = ["batch", "ignore_index", "imbtorch without µs", "with µs", "with / without", "target"]
    columns += ["torchmetrics without µs", "with µs", "with / without", "ratio with"]
    table("update: a tenth of the targets ignored, K = 10", columns, rows)


def groups(bench: Bench) -> None:
    """Updates of a report with 20 groups, beside the same updates without them."""
    rows: list[list[object]] = []
    for classes, batch in ((10, 4096), (10, 65_536), (100, 4096)):
        preds, target = labels(classes, batch)
        ids, weight = torch.randint(20, (batch,), device=DEVICE), torch.rand(batch, device=DEVICE, dtype=torch.float64)
        for kind, given in (("indices", preds), ("scores", torch.randn(batch, classes, device=DEVICE))):
            plain, grouped = report_of_nine(classes), report_of_nine(classes, groups=20)
            weighted = report_of_nine(classes, weighted=True)
            took = bench.medians(
                plain=feed(plain, given, target),
                grouped=partial(grouped.update, given, target, group=ids),
                one=partial(grouped.update, given, target, group=7),
                weighted=partial(weighted.update, given, target, weight=weight),
            )
            cost, limit = took["grouped"] / took["plain"], 1.3 if kind == "scores" else 1.5
            what = f"20 groups, {kind}, K = {classes}, batch {batch:,}: with / without"
            rows.append([classes, batch, kind, 1e6 * took["plain"], 1e6 * took["grouped"], cost])
            rows[-1] += [
                bench.at_most(limit, cost, what),
                took["one"] / took["plain"],
                took["weighted"] / took["plain"],
            ]
    columns = ["K", "batch", "predictions", "without µs", "with µs", "with / without", "target"]
    columns += ["one group for the batch / without", "weights / without"]
    table("update: a report of 20 groups", columns, rows)


def clusters(bench: Bench) -> None:
    """Updates that count buckets of clusters, beside the same updates without them."""
    rows: list[list[object]] = []
    ids = torch.randint(1000, (4096,), device=DEVICE)
    preds, target = labels(10, 4096)
    several = torch.rand(4096, 14, device=DEVICE), torch.randint(2, (4096, 14), device=DEVICE)
    cases = (
        ("10 classes, indices", {"num_classes": 10}, (preds, target), 0.5),
        ("10 classes, scores", {"num_classes": 10}, (torch.randn(4096, 10, device=DEVICE), target), 0.8),
        ("14 labels, probabilities", {"num_labels": 14}, several, None),
    )
    for name, size, given, least in cases:
        task = "multilabel" if "num_labels" in size else "multiclass"
        plain, bucketed = (imbtorch.Recall(task, **size, clusters=each) for each in (False, True))
        took = bench.medians(
            plain=feed(plain, *given),
            ids=partial(bucketed.update, *given, cluster=ids),
            none=feed(bucketed, *given),
        )
        speed = took["plain"] / took["ids"]
        target_text = "" if least is None else bench.at_least(least, speed, f"clusters, {name}: speed with / without")
        rows.append([name, *(1e6 * took[each] for each in ("plain", "ids", "none")), speed, target_text])
        rows[-1].append(took["plain"] / took["none"])
    columns = ["4,096 samples", "without µs", "with ids µs", "without ids µs", "speed with ids / without", "target"]
    table("update: clusters", [*columns, "speed without ids / without clusters"], rows)


def adjustments(bench: Bench) -> None:
    """Updates of a sweep over 41 logit adjustments, beside one argmax of torch for each of them that counts nothing."""
    rows: list[list[object]] = []
    for classes in (3, 10, 100, 1000):
        for batch in (256, 4096):
            prior = torch.arange(classes, 0, -1, device="cpu").double()
            sweep = imbtorch.LogitAdjustmentSweep("balanced_accuracy", prior, logits=True).to(DEVICE)
            scores, target = torch.randn(batch, classes, device=DEVICE), torch.randint(classes, (batch,), device=DEVICE)
            shifts = [tau * prior.div(prior.sum()).log().to(DEVICE) for tau in sweep.taus]

            def loop(scores: torch.Tensor = scores, shifts: list[torch.Tensor] = shifts) -> object:
                wide = scores.double()
                return [(wide - shift).argmax(1) for shift in shifts]

            took = bench.medians(sweep=feed(sweep, scores, target), loop=loop)
            speed = took["loop"] / took["sweep"]
            least = 0.4 if classes <= 10 and batch == 256 else 0.9  # of less than a ms counting takes the half
            target_text = bench.at_least(least, speed, f"41 adjustments, K = {classes}, batch {batch:,}: loop / sweep")
            rows.append([classes, batch, 1e3 * took["loop"], 1e3 * took["sweep"], speed, target_text])
    table("update: 41 logit adjustments", ["K", "batch", "loop ms", "sweep ms", "loop / sweep", "target"], rows)


def contention(bench: Bench) -> None:
    """All samples in few cells, where parallel additions collide, beside uniform ones."""
    rows: list[list[object]] = []
    for batch in (10**5, 10**6) if bench.quick or DEVICE == "cpu" else (10**5, 10**6, 10**7):
        for classes in (2, 10, 100):
            for name in ("uniform", "99% in one cell"):
                preds, target = labels(classes, batch)
                if name != "uniform":
                    rare = torch.rand(batch, device=DEVICE) < 0.01
                    preds, target = preds * rare, target * rare
                took = bench.medians(
                    bincount=bincount(classes, preds, target),
                    ours=feed(ours(classes), preds, target),
                    theirs=feed(theirs(classes), preds, target),
                )
                row = [batch, classes, name, *(1e6 * took[each] for each in ("bincount", "ours", "theirs"))]
                rows.append([*row, took["bincount"] / took["ours"], took["theirs"] / took["ours"]])
    columns = ["batch", "K", "samples", "torch.bincount µs", "imbtorch µs", "torchmetrics µs"]
    table("update: contention", [*columns, "bincount ratio", "torchmetrics ratio"], rows)


def bincount(classes: int, preds: torch.Tensor, target: torch.Tensor) -> Work:
    """Count with the function that torch has for it, without any further check."""
    return lambda: torch.bincount(target * classes + preds, minlength=classes * classes)


# --- values ---------------------------------------------------------------------------------------------------------

NINE = {
    "iam": imbtorch.imbalance_accuracy,
    "cba": imbtorch.class_balance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced_accuracy": imbtorch.balanced_accuracy,
    "precision": imbtorch.precision,
    "recall": imbtorch.recall,
    "f1": imbtorch.f_score,
    "gmean": imbtorch.geometric_mean,
    "mcc": imbtorch.matthews_corrcoef,
}


def report_of_nine(classes: int, **arguments: Any) -> imbtorch.ImbalanceReport:
    """Nine values as imbtorch reports them."""
    return imbtorch.ImbalanceReport("multiclass", num_classes=classes, measures=NINE, per_class=(), **arguments)


def torchmetrics_of_one_matrix(measure: Callable[..., torch.Tensor]) -> type[tm.MulticlassConfusionMatrix]:
    """Metric as a torchmetrics user writes it: subclass the confusion matrix, so that a collection shares the state."""

    class OfTheMatrix(tm.MulticlassConfusionMatrix):
        def compute(self) -> torch.Tensor:
            return measure(self.confmat)

    return OfTheMatrix


def nine_of_one_matrix(classes: int) -> torchmetrics.MetricCollection:
    """The same nine values by such subclasses; no value is kept from one call to the next."""
    return torchmetrics.MetricCollection(
        {name: torchmetrics_of_one_matrix(each)(classes, compute_with_cache=False) for name, each in NINE.items()}
    )


def six_of_torchmetrics(classes: int) -> torchmetrics.MetricCollection:
    """Those of the nine that torchmetrics has (not IAM, CBA, G-mean), as its documentation combines them."""
    averages = {
        "accuracy": tm.MulticlassAccuracy(classes, average="micro", compute_with_cache=False),
        "balanced_accuracy": tm.MulticlassAccuracy(classes, average="macro", compute_with_cache=False),
        "precision": tm.MulticlassPrecision(classes, average="macro", compute_with_cache=False),
        "recall": tm.MulticlassRecall(classes, average="macro", compute_with_cache=False),
        "f1": tm.MulticlassF1Score(classes, average="macro", compute_with_cache=False),
        "mcc": tm.MulticlassMatthewsCorrCoef(classes, compute_with_cache=False),
    }
    return torchmetrics.MetricCollection(averages)


def forward(bench: Bench) -> None:
    """Value of the batch and accumulation in one call."""
    rows: list[list[object]] = []
    for classes in (10, 1000):
        batch = labels(classes, 256)
        own = tm.MulticlassRecall(classes, average="macro").to(DEVICE)
        for metric, peers in (
            (imbtorch.Recall, {"own": call(own, *batch)}),
            (imbtorch.ImbalanceAccuracy, {}),
            (imbtorch.ConfusionMatrix, {"own": call(theirs(classes), *batch)}),
        ):
            is_measure = metric is not imbtorch.ConfusionMatrix
            if is_measure:
                subclass = torchmetrics_of_one_matrix(metric.measure)(classes).to(DEVICE)
                peers = {**peers, "subclass": call(subclass, *batch)}
            took = bench.medians(ours=call(metric("multiclass", num_classes=classes).to(DEVICE), *batch), **peers)
            row: list[object] = [classes, metric.__name__, 1e6 * took["ours"], *against(took, "subclass"), None]
            if is_measure and classes == 1000:
                what = f"forward of {metric.__name__}, K = 1,000, batch 256: of torchmetrics' matrix / imbtorch"
                row[-1] = bench.at_least(20, took["subclass"] / took["ours"], what)
            rows.append([*row, *against(took, "own")])
    columns = ["K", "metric", "imbtorch µs", "of torchmetrics' matrix µs", "ratio", "target"]
    note = (
        "Of torchmetrics' matrix: a subclass of `MulticlassConfusionMatrix` that computes the same measure of it. Its\n"
        "own: `MulticlassRecall` (macro), which keeps no matrix, and `MulticlassConfusionMatrix` itself."
    )
    table("forward: value of a batch of 256, and accumulation", [*columns, "its own metric µs", "ratio"], rows, note)


def against(took: dict[str, float], peer: str) -> list[object]:
    """Microseconds and ratio of a peer, if it was measured."""
    return [1e6 * took[peer], took[peer] / took["ours"]] if peer in took else [None, None]


def compute(bench: Bench) -> None:
    """Nine values of one state."""
    rows: list[list[object]] = []
    for classes in (10, 1000):
        target = torch.arange(20 * classes, device=DEVICE) % classes
        preds = torch.where(torch.rand(20 * classes, device=DEVICE) < 0.7, target, torch.randint_like(target, classes))
        peers = {"six": six_of_torchmetrics(classes), "nine": nine_of_one_matrix(classes)}
        metrics = {"ours": report_of_nine(classes), "margins": report_of_nine(classes, state="margins"), **peers}
        for metric in metrics.values():
            metric.to(DEVICE).update(preds, target)
        counts = metrics["ours"].counts()
        took = bench.medians(read=read(counts), **{name: metric.compute for name, metric in metrics.items()})
        ratio = took["six"] / took["ours"]
        what = "compute, K = 1000: six of torchmetrics / nine of imbtorch"
        rows.append([classes, *(1e6 * took[name] for name in ("read", "ours", "margins", "six")), ratio])
        rows[-1] += [bench.at_least(5, ratio, what) if classes == 1000 else None, took["six"] / took["margins"]]
        rows[-1] += [1e6 * took["nine"], took["nine"] / took["ours"]]
    columns = ["K", "read matrix µs", "imbtorch, nine µs", "imbtorch margins, nine µs", "torchmetrics, six µs", "ratio"]
    columns += ["target", "ratio to margins", "torchmetrics, nine of one matrix µs", "ratio"]
    note = (
        "Six: a collection of those of the nine that torchmetrics has (not IAM, CBA, G-mean). Nine of one matrix: a "
        "collection\nof subclasses of its confusion matrix, with the formulas of imbtorch. No value is cached."
    )
    table("compute: nine values at the end of an epoch, one process", columns, rows, note)


def intervals(bench: Bench) -> None:
    """Draws of nine measures from a matrix of ten classes, and one measure beside torchmetrics' BootStrapper."""
    counts = torch.randint(1, 30, (10, 10)) + torch.diag(torch.randint(50, 500, (10,)))
    counts = counts.to(DEVICE)
    took = bench.medians(
        posterior=lambda: posterior(NINE, counts, draws=10_000),
        bootstrap=lambda: bootstrap(NINE, counts, draws=10_000),
    )
    rows: list[list[object]] = [[name, 10_000, seconds] for name, seconds in took.items()]
    table("intervals of nine measures, K = 10", ["method", "draws", "seconds"], rows)

    resamples = 100 if bench.quick else 500
    preds, target = labels(10, 10_000)
    recall = imbtorch.Recall("multiclass", num_classes=10).to(DEVICE)

    def mine() -> object:
        recall.reset()
        recall.update(preds, target)
        return recall.interval(draws=resamples, method="bootstrap")

    def peer() -> object:
        base = tm.MulticlassRecall(10, average="macro")
        metric = torchmetrics.BootStrapper(base, resamples, quantile=0.95).to(DEVICE)
        metric.update(preds, target)
        return metric.compute()

    start = time.perf_counter()
    peer()
    other, own = time.perf_counter() - start, bench.medians(mine=mine)["mine"]
    columns = ["resamples", "imbtorch ms", "torchmetrics ms", "ratio"]
    table("bootstrap of macro recall, 10,000 samples", columns, [[resamples, 1e3 * own, 1e3 * other, other / own]])
    intervals_of_reports(bench)


REPORTS = ((100, 0.25), (300, 0.6), (1000, 5.0))  # classes, seconds aimed at


def intervals_of_reports(bench: Bench) -> None:
    """Values and intervals of all that a report says by default, at the end of an epoch."""
    rows: list[list[object]] = []
    for classes, wanted in REPORTS[:2] if bench.quick else REPORTS:
        seconds, held = processes(1, end_with_intervals, classes)
        what = f"report with intervals, K = {classes}"
        aims = [bench.at_most(wanted, seconds, f"{what}, s")]
        aims.append(None if held is None else bench.at_most(500, held / 1e6, f"{what}, MB"))
        rows.append([classes, seconds, *aims[:1], None if held is None else held / 1e6, *aims[1:]])
    columns = ["K", "seconds", "target", "MB above what was held", "target"]
    table("report with intervals=True, 50 samples of each class, 2,000 draws", columns, rows)


def end_with_intervals(_: int, __: int, classes: int) -> tuple[float, float | None]:
    """Median seconds of compute, and its peak of memory."""
    report = imbtorch.ImbalanceReport("multiclass", num_classes=classes, intervals=True).to(DEVICE)
    report.quiet = True
    preds, target = labels(classes, 50 * classes)
    preds = torch.where(torch.rand(len(preds), device=DEVICE) < 0.8, target, preds)
    report.update(preds, target)
    held, took = peak_above(report.compute), []  # apart from the times: to watch the memory takes time
    for _turn in range(5):
        report.reset()
        report.update(preds, target)
        start = time.perf_counter()
        report.compute()
        took.append(time.perf_counter() - start)
    return statistics.median(took), held


# --- several processes ----------------------------------------------------------------------------------------------


def processes(world: int, work: Callable[..., object], *arguments: object) -> Any:
    """Run ``work(rank, world, *arguments)`` in fresh processes; return what rank zero returns.

    Several processes form one group (gloo).
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(one_process, (world, folder, work, arguments), nprocs=world)
        return pickle.loads((Path(folder) / "answer").read_bytes())


def one_process(rank: int, world: int, folder: str, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """Join the group, do the work, leave together."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*had no target")
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    answer = work(rank, world, *arguments)
    if rank == 0:
        (Path(folder) / "answer").write_bytes(pickle.dumps(answer))
    if world > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def sync(bench: Bench) -> None:
    """Nine values at the end of an epoch on several processes."""
    sizes = {1: (1000,), 2: (100, 1000) if bench.quick else (100, 1000, 2000), 3: (1000,)}
    if not bench.quick:
        sizes[4] = (1000,)
    rows: list[list[object]] = []
    for world, classes in sizes.items():
        for size, found in zip(classes, processes(world, end_of_epoch, classes, 5 if bench.quick else 11), strict=True):
            mine, other = found
            rows.append([world, size, 1e3 * mine, 1e3 * other, other / mine])
    columns = ["processes", "K", "imbtorch ms", "torchmetrics ms", "ratio"]
    note = "torchmetrics: nine subclasses of its confusion matrix in one collection."
    title = f"end of epoch: nine values on several processes (gloo, CPU, {os.cpu_count()} cores for all)"
    table(title, columns, rows, note)

    with exact_allocation():
        peaks = [[world, 1000, *processes(world, peaks_of_nine, 1000)] for world in ((2,) if bench.quick else (2, 4))]
    note = "Most that each process holds during compute above what it held before, in states of 8 K² bytes."
    table("end of epoch: memory for nine values", ["processes", "K", "imbtorch", "torchmetrics"], peaks, note)


def end_of_epoch(_: int, world: int, sizes: tuple[int, ...], repeats: int) -> list[list[float]]:
    """For each K: seconds of compute, of imbtorch and of torchmetrics in turns."""
    found = []
    for classes in sizes:
        preds, target = labels(classes, 4096, "cpu")
        metrics = report_of_nine(classes), nine_of_one_matrix(classes)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(1 + (3 if classes > 1000 else repeats)):
            for metric, took in zip(metrics, times, strict=True):
                metric.update(preds, target)
                if world > 1:
                    torch.distributed.barrier()
                start = time.perf_counter()
                metric.compute()
                took.append(time.perf_counter() - start)
        found.append([statistics.median(took[1:]) for took in times])  # the first one warms up
    return found


def peaks_of_nine(_: int, __: int, classes: int) -> list[float | None]:
    """Peak of compute in states, of imbtorch and of torchmetrics."""
    found = []
    for size in (20, classes):  # the small one loads what the other runs
        preds, target = labels(size, 4096, "cpu")
        for metric in (report_of_nine(size), nine_of_one_matrix(size)):
            metric.update(preds, target)
            peak = peak_above(metric.compute)
            found.append(None if peak is None else peak / (8 * size**2))
    return found[2:]


# --- memory ---------------------------------------------------------------------------------------------------------


def resident(kind: str) -> int:
    """Bytes that this process holds (``VmRSS``), or has held at most since the last reset (``VmHWM``)."""
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith(kind)
    )
    return 1024 * int(line.split()[1])


def peak_above(work: Work, base: int | None = None) -> float | None:
    """Most bytes held during work above what was held before (or above a base); None where Linux does not tell.

    ``getrusage`` would not do: a fresh process starts with the maximum of its parent.
    """
    if platform.system() != "Linux":
        return None
    gc.collect()
    base = resident("VmRSS") if base is None else base
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the maximum is now what is held now
    work()
    return float(resident("VmHWM") - base)


@contextlib.contextmanager
def exact_allocation() -> Iterator[None]:
    """Let processes that start here return every freed tensor to the system, so that the next one shows."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    try:
        yield
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]


NOISE = 2e6  # bytes that a process may take for other things meanwhile


def amount(size: float) -> str:
    """Bytes as people write them."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    step = next(step for step in range(len(units)) if size < 1000 ** (step + 1) or step == len(units) - 1)
    return f"{cell(size / 1000**step)} {units[step]}"


def margins_metric(classes: int) -> imbtorch.ImbalanceAccuracy:
    """Metric that keeps 3 K counts."""
    return imbtorch.ImbalanceAccuracy("multiclass", num_classes=classes, state="margins")


@dataclass(frozen=True)
class Kept:
    """A metric whose memory is measured where that fits, and computed where it does not.

    Attributes:
        make: the metric of a number of classes.
        counts: how many counts that number makes.
        held: copies of the state that the metric holds.
        update: copies that it holds at most during an update, and matrices of K * K counts that come on top.
        sync: copies at most held while processes sum their states: a constant, and how many each process adds.
        compute: copies that computing the value needs on top.
    """

    make: Callable[[int], Any]
    counts: Callable[[int], int]
    held: float
    update: tuple[float, int]
    sync: tuple[float, float]
    compute: float

    def computed(self, classes: int, world: int) -> dict[str, float]:
        """Bytes held and at most held, in each process."""
        state = 8 * self.counts(classes)
        summed = self.sync[0] + self.sync[1] * world if world > 1 else self.held
        return {
            "state": self.held * state,
            "update": self.update[0] * state + 8 * self.update[1] * classes**2,
            "sync": summed * state,
            "compute": (summed + self.compute) * state,
        }


KEPT = {
    # one tensor; a copy of it is summed
    "imbtorch matrix": Kept(
        lambda k: imbtorch.ImbalanceAccuracy("multiclass", num_classes=k), lambda k: k * k, 1, (1, 0), (2, 0), 0
    ),
    "imbtorch margins": Kept(margins_metric, lambda k: 3 * k, 1, (1, 0), (2, 0), 2.4),
    # state and default, a cached copy; all states gathered, the buffer of that or their stack, and the sum
    "torchmetrics matrix": Kept(
        lambda k: torchmetrics_of_one_matrix(imbtorch.imbalance_accuracy)(k), lambda k: k * k, 2, (3, 0), (3, 2), 0
    ),
    # four states of K, gathered together and stacked one by one
    "torchmetrics recall": Kept(lambda k: tm.MulticlassRecall(k), lambda k: 4 * k, 2, (2, 1), (3.7, 1.25), 0.9),
}


def memory(bench: Bench) -> None:
    """Memory of the state, of an update, of a sync and of compute, up to 128,256 classes and 4096 processes."""
    margins_held(bench)
    transient(bench)
    cases = [(name, classes) for classes in (10, 1000, 10_000, 21_841, 128_256) for name in KEPT]
    measured = {
        (name, classes, world): peak
        for world in ((1, 2) if bench.quick else (1, 2, 4))
        for (name, classes), peak in measured_peaks(cases, world, 1.5e9 if bench.quick else float("inf")).items()
    }

    def shown(name: str, classes: int, world: int, what: str) -> str:
        computed = KEPT[name].computed(classes, world)[what]
        peak = measured.get((name, classes, world), {}).get(what)
        return amount(peak) if peak and computed > NOISE else f"≈ {amount(computed)}"

    one = [[k, name, *(shown(name, k, 1, what) for what in ("state", "update", "compute"))] for name, k in cases]
    note = (
        "Without ≈: measured in fresh processes above what they held before. With ≈: computed, where that does not\n"
        "fit or is too little to be told. Matrices: `ImbalanceAccuracy`, and a subclass of torchmetrics' matrix.\n"
        "Recall: torchmetrics' own, which keeps 4 K counts and makes a matrix in its update."
    )
    table("memory of one process", ["K", "metric", "state", "peak of an update", "peak of compute"], one, note)
    columns = [(what, world) for what in ("sync", "compute") for world in (2, 4, 64, 4096)]
    many = [[k, name, *(shown(name, k, world, what) for what, world in columns)] for name, k in cases]
    title = "memory of each of 2 to 4096 processes (CPU), at the peak of a sync and of compute"
    note = "Measured (without ≈) with gloo, whose own buffers of 1 to 2 MB are in it."
    table(title, ["K", "metric", *(f"{what}, {world}" for what, world in columns)], many, note)


def measured_peaks(cases: list[tuple[str, int]], world: int, limit: float) -> dict[tuple[str, int], dict[str, float]]:
    """Peaks of those cases that are more than noise and fit into a third of the free memory, all processes together."""
    if platform.system() != "Linux":
        return {}
    limit = min(limit, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 3)
    most = {(name, classes): max(KEPT[name].computed(classes, world).values()) for name, classes in cases}
    fitting = [case for case, size in most.items() if size > NOISE and size * world < limit]
    with exact_allocation():
        return dict(zip(fitting, processes(world, peaks, fitting), strict=True))


def peaks(_: int, world: int, cases: list[tuple[str, int]]) -> list[dict[str, float]]:
    """Bytes held, and at most held in update, sync and compute, above what the process holds without the metric."""
    found = []
    for name, classes in [(name, 20) for name in KEPT] + cases:  # the small ones load what the others run
        kept = KEPT[name]
        target = preds = torch.arange(classes)  # every class, and every page of a matrix
        if kept.counts(classes) == classes**2:
            cells = torch.arange(0, classes**2, 512)
            target, preds = torch.cat((target, cells // classes)), torch.cat((preds, cells % classes))
            del cells
        gc.collect()
        base = resident("VmRSS")
        metric = kept.make(classes)
        took = {"update": peak_above(feed(metric, preds, target), base), "state": float(resident("VmRSS") - base)}
        if world > 1:
            took["sync"] = peak_above(metric.sync, base)
            metric.unsync()
        took["compute"] = peak_above(metric.compute, base)
        found.append(took)
        del metric
    return found[len(KEPT) :]


def margins_held(bench: Bench) -> None:
    """Bytes that a metric of many classes holds as margins, and the time of its update."""
    rows: list[list[object]] = []
    for classes in (1000, 21_841, 128_256, 1_000_000):
        metric = margins_metric(classes).to(DEVICE)
        took = bench.medians(update=feed(metric, *labels(classes, 4096)))["update"]
        tensors = [
            *(each for each in vars(metric).values() if isinstance(each, torch.Tensor)),
            *metric._defaults.values(),
        ]
        held = sum(each.untyped_storage().nbytes() for each in tensors) / 1e6
        aims: list[object] = [None, None]
        if classes == 128_256:
            aims[0] = bench.at_most(8, held, "margins of 128,256 classes: MB held")
            aims[1] = bench.at_most(1, 1e3 * took, "margins of 128,256 classes: update of 4096, ms")
        rows.append([classes, held, aims[0], 8 * classes**2 / 1e6, 1e3 * took, aims[1]])
    columns = ["K", "MB held", "target", "MB of a matrix (computed)", "update of 4096, ms", "target"]
    table("state='margins'", columns, rows)


SEGMENTATION: dict[str, Callable[[], Any]] = {
    "imbtorch": lambda: ours(20),
    "imbtorch, ignore_index=255": lambda: ours(20, ignore_index=255),
    "torchmetrics": lambda: theirs(20),
    "torchmetrics, ignore_index=255": lambda: theirs(20, ignore_index=255),
}


def transient(bench: Bench) -> None:
    """Memory that an update of many samples takes for its own time."""
    pixels = 10**6 if bench.quick else 10**7
    if DEVICE == "cuda":
        found = [transient_bytes(name, pixels) for name in SEGMENTATION]
    else:
        with exact_allocation():
            found = processes(1, transient_of_all, pixels)
    rows: list[list[object]] = []
    for name, value in zip(SEGMENTATION, found, strict=True):
        each = None if value is None else value / pixels
        aim = None
        if name == "imbtorch" and each is not None:
            aim = bench.at_most(40, each, f"memory of an update of {pixels:,} pixels: bytes a sample")
        rows.append([name, each, aim])
    note = "Above the inputs, which are 16 bytes a sample."
    table(f"memory of an update: {pixels:,} pixels, K = 20", ["metric", "bytes a sample", "target"], rows, note)


def transient_of_all(_: int, __: int, pixels: int) -> list[float | None]:
    """Transient bytes of each metric, in a fresh process."""
    return [transient_bytes(name, pixels) for name in SEGMENTATION]


def transient_bytes(name: str, pixels: int) -> float | None:
    """Bytes above the inputs that an update holds at most."""
    metric, (preds, target) = SEGMENTATION[name](), labels(20, pixels)
    metric.update(preds[:1000], target[:1000])  # loads what it runs
    if DEVICE != "cuda":
        return peak_above(feed(metric, preds, target))
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    metric.update(preds, target)
    return float(torch.cuda.max_memory_allocated() - before)


# --- a simulated accelerator ----------------------------------------------------------------------------------------

HELPERS = Path(__file__).resolve().parents[1] / "tests" / "helpers"  # where the simulated device is


@dataclass(frozen=True)
class OnDevice:
    """A metric on the simulated device, and our targets.

    Attributes:
        make: the metric.
        batch: predictions and targets of a number of samples.
        launches: most launches of an update that we aim at.
        memory: most bytes a sample, above its inputs, that an update should take.
    """

    make: Callable[[], Any]
    batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
    launches: int | None = None
    memory: int | None = None


def classes_of(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Predicted and true classes."""
    return labels(10, samples, "cpu")


def chances_of(samples: int, *more: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and targets of two classes."""
    return torch.rand(samples, *more), torch.randint(2, (samples, *more))


def on_device() -> dict[str, OnDevice]:
    """Metrics whose launches are counted: each of imbtorch, before its peers."""
    of_labels = partial(chances_of_labels, 10)
    shares = [0.2, 0.2, *[0.075] * 8]
    found = {
        "matrix": OnDevice(lambda: imbtorch.ConfusionMatrix("multiclass", 10), classes_of, 9, 24),
        "matrix, torchmetrics": OnDevice(lambda: tm.MulticlassConfusionMatrix(10), classes_of),
        "binary": OnDevice(lambda: imbtorch.ConfusionMatrix("binary"), chances_of, 13, 24),
        "binary, torchmetrics": OnDevice(tm.BinaryConfusionMatrix, chances_of),
        "ten labels": OnDevice(lambda: imbtorch.FScore("multilabel", num_labels=10), of_labels, 32),
        "ten labels, clusters=False": OnDevice(
            lambda: imbtorch.FScore("multilabel", num_labels=10, clusters=False), of_labels, 16
        ),
        "ten labels, torchmetrics": OnDevice(lambda: tm.MultilabelF1Score(10), of_labels),
        "margins": OnDevice(lambda: margins_metric(10), classes_of),
        "report": OnDevice(lambda: imbtorch.ImbalanceReport("multiclass", 10), classes_of, 9, 24),
        "report at a prevalence": OnDevice(
            lambda: imbtorch.ImbalanceReport("multiclass", 10, prevalence=shares), classes_of, 9, 24
        ),
        "six values, torchmetrics": OnDevice(lambda: six_of_torchmetrics(10), classes_of),
        "sweep": OnDevice(lambda: imbtorch.ThresholdSweep("f1"), chances_of, 13),
        "AUC of 4,097 bins, torchmetrics": OnDevice(lambda: tm.BinaryAUROC(thresholds=4097), chances_of),
        "adjustments": OnDevice(
            lambda: imbtorch.LogitAdjustmentSweep("f1", shares, logits=True),
            lambda samples: (torch.randn(samples, 10), torch.randint(10, (samples,))),
        ),
    }
    if PEERS["torcheval"]:
        from torcheval.metrics import MulticlassAccuracy  # the matrix is sparse there, which no simulation covers

        found["accuracy, torcheval"] = OnDevice(MulticlassAccuracy, classes_of)
    return found


def chances_of_labels(size: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and targets of several labels."""
    return chances_of(samples, size)


def launches(bench: Bench) -> None:
    """Launches, waits, copies and memory of update, forward and compute on a simulated accelerator."""
    sys.path.insert(0, str(HELPERS))
    try:
        import simulated_device
    except ModuleNotFoundError:
        print(f"\n--launches needs the simulated device of the tests, which is not in {HELPERS}: clone the repository")
        return
    if not simulated_device.AVAILABLE:
        print(f"\n--launches needs torch 2.10, whose backends can be written in Python; this is {torch.__version__}")
        return
    samples = 10**5 if bench.quick else 10**6
    with exact_allocation():
        memory = processes(1, memory_on_device, samples)
    rows: list[list[object]] = []
    for (name, each), taken in zip(on_device().items(), memory, strict=True):
        metric, batch = each.make().to("sim"), [given.to("sim") for given in each.batch(4096)]
        works = {"update": feed(metric, *batch), "compute": metric.compute}
        if callable(metric):  # torcheval has no forward
            works["forward"] = call(metric, *batch)
        logs = {}
        for what, work in works.items():
            for _turn in range(2):  # the first one fills caches
                forget_value(metric)
                with simulated_device.Log() as logs[what]:
                    work()
        shown = {what: f"{len(log.launched):,} / {len(log.waits)} / {len(log.copies)}" for what, log in logs.items()}
        bytes_each = None if taken is None else taken / samples
        rows.append([name, *(shown.get(what) for what in ("update", "forward", "compute")), bytes_each])
        if "torch" in name:
            continue
        aims = [
            ("waits of an update", 0, len(logs["update"].waits)),
            ("waits of compute", 1, len(logs["compute"].waits)),
        ]
        aims.append(("launches of compute", 12, len(logs["compute"].launched)))
        if each.launches is not None:
            aims.append(("launches of an update", each.launches, len(logs["update"].launched)))
        for what, wanted, came in aims:
            bench.at_most(wanted, float(came), f"{name}: {what}")
        if each.memory is not None and bytes_each is not None:
            bench.at_most(each.memory, bytes_each, f"{name}: bytes a sample of an update")
    note = (
        "Launches / waits / copies between host and device. Bytes a sample are those that an update takes above its\n"
        "inputs, at most. Operators run on the CPU and are counted as those of a device."
    )
    columns = ["metric", "update", "forward", "compute", "bytes a sample of an update"]
    table("launches on a simulated accelerator", columns, rows, note)


def forget_value(metric: Any) -> None:
    """Drop a cached value, so that compute computes."""
    members = metric.values(copy_state=False) if isinstance(metric, torchmetrics.MetricCollection) else [metric]
    for each in members:
        each._computed = None


def memory_on_device(_: int, __: int, samples: int) -> list[float | None]:
    """Transient bytes of an update of each metric on the simulated device, in a fresh process."""
    sys.path.insert(0, str(HELPERS))
    import simulated_device  # noqa: F401, it registers the device

    found = []
    for each in on_device().values():
        metric = each.make().to("sim")
        small, batch = ([given.to("sim") for given in each.batch(size)] for size in (1000, samples))
        metric.update(*small)  # loads what it runs
        found.append(peak_above(feed(metric, *batch)))
    return found


def skew(_: Bench) -> None:
    """Skew of a measure at every result of a test set of 999 positives and 999 negatives."""
    rows: list[list[object]] = []
    for name, measure in (("precision", imbtorch.precision), ("iam", imbtorch.imbalance_accuracy)):
        start = time.perf_counter()
        peak = peak_above(lambda measure=measure: skew_map(measure, 999, 999))
        rows.append([name, time.perf_counter() - start, None if peak is None else peak / 1e6])
    table("skew_map of 1000 x 1000 results", ["measure", "seconds", "MB above what was held"], rows)


# --- Lightning ------------------------------------------------------------------------------------------------------

REPORTED = "imbtorch: update; log_dict(report) at the end"
LOGGED_IN_STEPS = "torchmetrics: update and log_dict(collection) in each step"


def lightning(bench: Bench) -> None:
    """Cost that logging nine values adds to a validation step of Lightning."""
    if not PEERS["lightning"]:
        return
    steps = 300
    ways = validations(steps)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3 if bench.quick else 10):
        for name, validate in ways.items():
            start = time.perf_counter()
            validate()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - start)

    def added(name: str) -> list[float]:
        """Microseconds of a step above those of a step that does nothing, of each round; the first warms up."""
        differences = [each - nothing for each, nothing in zip(times[name], times["nothing"], strict=True)]
        return [1e6 * difference / steps for difference in differences[1:]]

    own = added(REPORTED)
    rows: list[list[object]] = []
    for name, found in times.items():
        ratio = statistics.median(each / mine for each, mine in zip(added(name), own, strict=True))
        rows.append([name, 1e6 * statistics.median(found[1:]) / steps, statistics.median(added(name)), ratio, None])
        if name == LOGGED_IN_STEPS:
            what = "Lightning, cost added to a step: torchmetrics logged in each step / imbtorch"
            rows[-1][-1] = bench.at_least(30, ratio, what)
    title = f"Lightning: validation of {steps} steps of 256 samples, K = 10, one process"
    note = (
        "Added: above a step that does nothing; the end of the epoch is spread over its steps. imbtorch logs nine\n"
        "values, torchmetrics those six of them that it has, but for the row of nine."
    )
    table(title, ["what is done", "step µs", "added µs", "ratio to the first of imbtorch", "target"], rows, note)


def validations(steps: int) -> dict[str, Work]:
    """Validation epochs of a Trainer that differ in what they log."""
    from lightning.pytorch import LightningModule, Trainer

    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")

    class Validated(LightningModule):
        """Model of a validation alone; the metric is updated in each step."""

        def __init__(self, metric: Any = None) -> None:
            super().__init__()
            self.metric = metric

        def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
            if self.metric is not None:
                self.metric.update(*batch)

    class LoggedInSteps(Validated):
        def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
            super().validation_step(batch)
            self.log_dict(self.metric, on_step=False, on_epoch=True)

    class LoggedAtEnd(Validated):
        def on_validation_epoch_end(self) -> None:
            self.log_dict(self.metric)

    class ComputedAtEnd(Validated):
        def on_validation_epoch_end(self) -> None:
            self.log_dict(self.metric.compute())
            self.metric.reset()

    loader = torch.utils.data.DataLoader([labels(10, 256, "cpu")] * steps, batch_size=None)

    def validation(module: LightningModule) -> Work:
        trainer = Trainer(
            accelerator="gpu" if DEVICE == "cuda" else "cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        return lambda: trainer.validate(module, loader, verbose=False)

    return {
        "nothing": validation(Validated()),
        REPORTED: validation(LoggedAtEnd(report_of_nine(10))),
        "imbtorch: log_dict(report) in each step": validation(LoggedInSteps(report_of_nine(10))),
        LOGGED_IN_STEPS: validation(LoggedInSteps(six_of_torchmetrics(10))),
        "the same, nine values of one matrix": validation(LoggedInSteps(nine_of_one_matrix(10))),
        "torchmetrics: update; log_dict(compute()) at the end": validation(ComputedAtEnd(six_of_torchmetrics(10))),
    }


def scores(bench: Bench) -> None:
    """AUC and average precision of rare events: update, compute, and error against exact values."""
    if not PEERS["sklearn"]:
        return
    from sklearn.metrics import average_precision_score, roc_auc_score

    rows: list[list[object]] = []
    for prevalence, batch in ((0.01, 4096), (0.001, 65_536)):
        generator = torch.Generator().manual_seed(0)
        target = (torch.rand(8 * batch, generator=generator) < prevalence).long()
        evidence = torch.randn(8 * batch, generator=generator) + 2 * target - 1
        chances = (2 * evidence + torch.logit(torch.tensor(prevalence))).sigmoid().to(DEVICE)
        exact = roc_auc_score(target, chances.cpu()), average_precision_score(target, chances.cpu())
        batches = list(zip(chances.split(batch), target.to(DEVICE).split(batch), strict=True))
        ways = scores_counted()
        updates = {name: partial(update_all, metric, batches[:1]) for name, metric in ways.items()}
        took = bench.medians(**updates)
        for metric in ways.values():
            metric.reset()
            update_all(metric, batches)
        ends = {name: partial(computed, metric) for name, metric in ways.items()}
        kept = target, chances.cpu()
        ends["scikit-learn"] = lambda kept=kept: (roc_auc_score(*kept), average_precision_score(*kept))
        took_end = bench.medians(**ends)
        for name, end in ends.items():
            errors = [abs(float(value) - right) for value, right in zip(end(), exact, strict=True)]
            update_time = 1e6 * took[name] if name in took else None
            aim = None
            if name == OUR_SWEEP:
                aim = bench.at_most(0.002, max(errors), f"error of AUC and AP, prevalence {prevalence:g}")
            rows.append([prevalence, batch, name, update_time, 1e3 * took_end[name], *errors, aim])
    columns = ["prevalence", "batch", "what", "update µs", "end ms", "AUC error", "AP error", "target"]
    note = (
        "End: both values of eight batches. Exact metrics keep all scores, binned ones and the sweep a table.\n"
        "An update of torchmetrics is one of both metrics in a collection, with its reset."
    )
    table("scores: AUC and average precision of calibrated scores", columns, rows, note)
    errors_of_bins()
    grids(bench)


def errors_of_bins() -> None:
    """Errors of a sweep's bins against scikit-learn at every score: areas, highest F1 and highest G-mean."""
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    rows: list[list[object]] = []
    for prevalence, positives in ((0.5, 400), (0.01, 400), (1e-3, 400), (1e-4, 100)):
        worst = [0.0] * 4
        for seed in range(5):
            generator = torch.Generator().manual_seed(seed)
            target = (torch.arange(round(positives / prevalence)) < positives).long()
            evidence = torch.randn(len(target), generator=generator) + 2 * target - 1
            logits = 2 * evidence + torch.logit(torch.tensor(prevalence))
            swept = [imbtorch.ThresholdSweep(name, logits=True) for name in ("f1", "gmean")]
            for sweep in swept:
                sweep.update(logits.to(DEVICE), target.to(DEVICE))
            precision, recall, _ = precision_recall_curve(target, logits)
            false_alarms, hits, _ = roc_curve(target, logits, drop_intermediate=False)
            f1, gmean = (sweep.result() for sweep in swept)
            pairs = (
                (f1.auc(), roc_auc_score(target, logits)),
                (f1.average_precision(), average_precision_score(target, logits)),
                (f1.curve()[1].max(), (2 * precision * recall / (precision + recall).clip(1e-12)).max()),
                (gmean.curve()[1].max(), (hits * (1 - false_alarms)).max() ** 0.5),
            )
            worst = [max(most, abs(float(own) - right)) for most, (own, right) in zip(worst, pairs, strict=True)]
        rows.append([prevalence, positives, *worst])
    columns = ["prevalence", "positives", "AUC", "AP", "highest F1", "highest G-mean"]
    table("errors of the sweep's bins: the largest of five sets", columns, rows, "Against scikit-learn at every score.")


OUR_SWEEP = "imbtorch sweep"


def scores_counted() -> dict[str, Any]:
    """Metrics that know AUC and average precision, on an even footing: one object for both values."""
    sweep = imbtorch.ThresholdSweep(imbtorch.f_score, also=("auc", "average_precision"))
    found: dict[str, Any] = {OUR_SWEEP: sweep.to(DEVICE)}
    for name, thresholds in (("torchmetrics, 101 bins", 101), ("torchmetrics, 4097 bins", 4097), ("exact", None)):
        both = [each(thresholds=thresholds) for each in (tm.BinaryAUROC, tm.BinaryAveragePrecision)]
        name = "torchmetrics, exact" if thresholds is None else name
        found[name] = torchmetrics.MetricCollection(both).to(DEVICE)
    return found


def grids(bench: Bench) -> None:
    """Updates of sweeps of few and of many thresholds with new scores, beside a search among the thresholds."""
    rows: list[list[object]] = []
    for batch in (256, 1024, 4096, 65_536):
        scores, target = torch.rand(2**20, device=DEVICE), torch.randint(2, (batch,), device=DEVICE)
        new = itertools.cycle(scores.split(batch))  # those seen before a CPU finds in half the time
        for thresholds in (101, 1001, 4097):
            edges = torch.linspace(0, 1, thresholds, device=DEVICE)
            ours = imbtorch.ThresholdSweep(imbtorch.f_score, thresholds=thresholds).to(DEVICE)
            theirs = tm.BinaryPrecisionRecallCurve(thresholds=thresholds).to(DEVICE)
            took = bench.medians(
                search=lambda edges=edges, new=new: torch.bucketize(next(new), edges),
                ours=lambda ours=ours, new=new, target=target: ours.update(next(new), target),
                theirs=lambda theirs=theirs, new=new, target=target: theirs.update(next(new), target),
            )
            rows.append([batch, thresholds, *(1e6 * each for each in took.values()), took["theirs"] / took["ours"]])
    columns = ["batch", "thresholds", "torch.bucketize µs", "imbtorch µs", "torchmetrics µs", "ratio"]
    table("update: scores among thresholds", columns, rows)


def sweeps(bench: Bench) -> None:
    """End of an epoch of sweeps of many labels, and comparisons of two models, beside sorts of as many scores."""
    rows: list[list[object]] = []
    for size in (1000,) if bench.quick else (1000, 10_000):
        sweep = imbtorch.ThresholdSweep("f1", task="multilabel", num_labels=size, compute_with_cache=False).to(DEVICE)
        for _ in range(5):
            chances = torch.rand(200, size, device=DEVICE)
            sweep.update(chances, (torch.rand_like(chances) < chances**2).long())
        held = resident("VmRSS") if platform.system() == "Linux" else 0
        above = peak_above(sweep.compute, held)
        result = sweep.result()
        works: dict[str, Work] = {"compute": sweep.compute}
        if size == 1000:
            works |= {"table()": result.table, "best()": result.best}
            works |= {f"interval({name!r})": partial(result.interval, name) for name in ("auc", "average_precision")}
        for name, seconds in bench.medians(**works).items():
            what = f"sweep of {size:,} labels, {name}"
            if name == "compute":
                first, aim = seconds, bench.at_most(size / 1000, seconds, f"{what}, s")
                if above is not None:
                    bench.at_most(2e9, above + held, f"{what}, peak of the process, bytes")
            else:
                aim = bench.at_most(2, seconds / first, f"{what}, times that of compute")
            rows.append([what, 1e3 * seconds, aim, amount(above) if above and name == "compute" else None])
    for samples in (200_000,) if bench.quick else (200_000, 2_000_000):
        target = (torch.rand(samples) < 0.01).long()
        a, b = (torch.randn(samples) + target for _ in range(2))
        compare = partial(paired_compare, "average_precision", a, b, target)
        took = bench.medians(sort=a.sort, compare=compare)
        what = f"comparison of average precisions, {samples:,} rows"
        aim = bench.at_most(400, took["compare"] / took["sort"], f"{what}, times a sort")
        rows.append([what, 1e3 * took["compare"], aim, None])
    table("sweeps and comparisons of scores", ["what", "ms", "target", "above what was held"], rows)


def update_all(metric: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for batch in batches:
        metric.update(*batch)
    if isinstance(metric, torchmetrics.MetricCollection) and len(batches) == 1:
        metric.reset()  # an exact one would keep the scores of all repetitions


def computed(metric: Any) -> list[float]:
    """AUC and average precision."""
    values = metric.compute()
    if isinstance(metric, imbtorch.ThresholdSweep):
        return [values["auc"].item(), values["average_precision"].item()]
    for each in metric.values(copy_state=False):
        each._computed = None  # else it is asked once
    return [values["BinaryAUROC"].item(), values["BinaryAveragePrecision"].item()]


IMPORTS = """
import time
for name in ("torch", "torchmetrics", "imbtorch"):
    start = time.process_time()
    __import__(name)
    print(1e3 * (time.process_time() - start))
"""


def imports(bench: Bench) -> None:
    """Import of imbtorch over that of torchmetrics, in processes of their own."""
    took = []
    with tempfile.TemporaryDirectory() as folder:  # compiled once, as an installer does
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(4 if bench.quick else 11):
            command = [sys.executable, "-c", IMPORTS]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            took.append([float(line) for line in done.stdout.split()])
    torch_alone, theirs_over_torch, over_theirs = zip(*took[1:], strict=True)  # the first one compiled
    rows: list[list[object]] = [
        ["torch", statistics.median(torch_alone), min(torch_alone), "-"],
        ["torchmetrics", statistics.median(theirs_over_torch), min(theirs_over_torch), "-"],
    ]
    aim = bench.at_most(50, min(over_theirs), "import over that of torchmetrics, least ms")
    rows.append(["imbtorch", statistics.median(over_theirs), min(over_theirs), aim])
    note = "CPU time of each import where what stands in the rows above it is imported already."
    table("import", ["package", "median ms", "least ms", "target"], rows, note)


FILES_DATA = """
import duckdb
c = duckdb.connect()
c.execute("SET enable_progress_bar=false; SELECT setseed(0.5)")
c.execute("CREATE TABLE t AS SELECT (random() < .05)::INT AS label, random() AS u FROM range({rows})")
c.execute("CREATE VIEW v AS SELECT label, (u < .1 + .7 * label)::INT AS pred, u * (.6 + .4 * label) AS score FROM t")
for name in ("classes.csv", "classes.parquet", "scores.parquet"):
    columns = "label, score" if "scores" in name else "label, pred"
    c.execute(f"COPY (SELECT {{columns}} FROM v) TO '{folder}/{{name}}'")
"""
FILES = {
    "classes.csv": "preds='pred'",
    "classes.parquet": "preds='pred'",
    "scores.parquet": "scores='score'",
}
FILES_PEER = {
    "preds='pred'": "m.classification_report(f['label'], f['pred']); m.confusion_matrix(f['label'], f['pred'])",
    "scores='score'": "m.roc_auc_score(f['label'], f['score']); m.average_precision_score(f['label'], f['score'])",
}
FILES_JOBS = {  # imports and work
    "imbtorch": ("import imbtorch, duckdb, pyarrow", "imbtorch.report(path, target='label', {predicted})"),
    "duckdb": (
        "import duckdb; duckdb.execute('SET enable_progress_bar=false')",
        "duckdb.sql(f\"SELECT label, pred, count(*) FROM '{{path}}' GROUP BY ALL\").fetchall()",
    ),
    "pandas": ("import pandas, pyarrow, sklearn.metrics as m", "f = pandas.read_{kind}(path); {peer}"),
}
FILES_CHILD = """
import time, warnings
warnings.simplefilter("ignore")
{imports}
path = {path!r}
start = time.perf_counter()
{work}
print(time.perf_counter() - start)
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
FILES_TEXT = """
import time, numpy, imbtorch
t, p = numpy.random.default_rng(0).integers(0, 10, (2, 1_000_000))
names = numpy.array([f"class {at}" for at in range(10)])
target, preds = names[t].tolist(), names[p].tolist()
start = time.perf_counter()
imbtorch.report(target=target, preds=preds)
print(time.perf_counter() - start)
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

FILES_MANY = """
import os, tempfile, time, imbtorch
folder = tempfile.TemporaryDirectory()
for number in range(3000):
    head = "label,pred" if number % 2 else "pred,label"
    with open(f"{folder.name}/{number:04}.csv", "w") as file:
        file.write(head + "".join(f"\\n{(number + row) % 3},{number * row % 3}" for row in range(20)))
start = time.perf_counter()
imbtorch.report(folder.name, target="label", preds="pred")
print(time.perf_counter() - start)
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

FILES_COMPARED = """
import time, warnings, numpy, imbtorch, torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
random, classes, rows, clusters = numpy.random.default_rng(0), {classes}, {rows}, {clusters}
shares = 1 / numpy.arange(1, classes + 1)

def chosen(wrong, right):
    return numpy.where(random.random(rows) < wrong, random.integers(classes, size=rows), right)

target = random.choice(classes, rows, p=shares / shares.sum())
old = chosen(0.2, target)
new = numpy.where(random.random(rows) < 0.9, old, chosen(0.18, target))
columns = dict(label=target, old=old, new=new, customer=random.integers(max(clusters, 1), size=rows))
more = dict(cluster="customer") if clusters else dict()
start = time.process_time()
imbtorch.Predictions(columns, target="label", **more).compare("old", "new", "f1")
print(time.process_time() - start)
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
COMPARED = ((100, 100_000, 0), (10, 1_000_000, 100_000), (2, 1_000_000, 100_000))  # classes, rows, clusters


def files(bench: Bench) -> None:
    """Reports of files, beside DuckDB and pandas with scikit-learn, in processes of their own; comparisons."""

    def child(program: str, runs: int = 3, **more: str) -> tuple[float, float]:
        """Return the least seconds and the largest peak in MB of some runs of a program."""
        found, known = [], {**os.environ, **more}
        for _ in range(1 if bench.quick else runs):
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=known)
            found.append([float(line) for line in done.stdout.split()])
        return min(seconds for seconds, _ in found), max(peak for _, peak in found)

    rows: list[list[object]] = []
    sizes = (2, 4) if bench.quick else (20, 40)  # millions of rows
    for millions in sizes:
        with tempfile.TemporaryDirectory() as folder:
            made = FILES_DATA.format(rows=millions * 1_000_000, folder=folder)
            subprocess.run([sys.executable, "-c", made], check=True)
            for file, predicted in FILES.items():
                kind, path, took = file.rpartition(".")[2], str(Path(folder) / file), dict[str, tuple[float, float]]()
                for name, (modules, work) in FILES_JOBS.items():
                    if name == "imbtorch" or (millions == sizes[0] and (name, file) != ("duckdb", "scores.parquet")):
                        done = work.format(predicted=predicted, kind=kind, peer=FILES_PEER[predicted])
                        program = FILES_CHILD.format(imports=modules, path=path, work=done)
                        took[name] = child(program, 1 if name == "pandas" else 3)
                own, peak = took["imbtorch"]
                aim = "-"
                if millions == 20 and kind == "csv":
                    aim = bench.at_most(1.6, own / took["duckdb"][0], f"{file}, times DuckDB's GROUP BY")
                elif millions == 20:
                    aim = bench.at_most(0.6 if "classes" in file else 3.0, own, f"{file}, s")
                if not bench.quick:
                    bench.at_most(700, peak, f"{file}, {millions} million rows, peak MB")
                both = [took.get(name, (None, None)) for name in ("duckdb", "pandas")]
                rows.append([file, millions, own, *(each[0] for each in both), peak, *(each[1] for each in both), aim])
    seconds, peak = child(FILES_TEXT)
    aim = bench.at_most(0.35, seconds, "a million texts, s")
    rows.append(["lists of ten text classes", 1, seconds, None, None, peak, None, None, aim])
    seconds, peak = child(FILES_MANY, 1)
    aim = bench.at_most(6, seconds, "3,000 CSV files whose columns alternate, s")
    rows.append(["3,000 CSV files, columns alternate", 0.06, seconds, None, None, peak, None, None, aim])
    head = ["data", "million rows", "imbtorch s", "duckdb s", "pandas s", "imbtorch MB", "duckdb MB", "pandas MB"]
    note = "Seconds without imports, and peaks of whole processes (VmHWM); pandas is with scikit-learn's metrics."
    table("files", [*head, "target"], rows, note)
    rows = []
    for classes, number, clusters in COMPARED:
        number, clusters = (each // 10 if bench.quick else each for each in (number, clusters))
        program = FILES_COMPARED.format(classes=classes, rows=number, clusters=clusters)
        (own, peak), other = child(program), None
        if bench.before:
            other = child(program, PYTHONPATH=bench.before)[0]
        rows.append([classes, number, clusters, own, other, None if other is None else own / other, peak])
    head = ["classes", "rows", "clusters", "seconds", "before", "ratio", "MB"]
    table("compare: F1 of predicted classes", head, rows, "CPU time without imports; before: the version of --before.")


SECTIONS = {
    "update": update,
    "forward": forward,
    "logits": logits,
    "scores": scores,
    "sweeps": sweeps,
    "ignore": ignore,
    "groups": groups,
    "clusters": clusters,
    "adjustments": adjustments,
    "contention": contention,
    "compute": compute,
    "sync": sync,
    "intervals": intervals,
    "memory": memory,
    "launches": launches,
    "lightning": lightning,
    "import": imports,
    "skew": skew,
    "files": files,
}


def main() -> None:
    """Run the sections that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=section.__doc__)
    parser.add_argument("--all", action="store_true", help="all sections")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, which scatter more")
    parser.add_argument("--before", metavar="FOLDER", help="checkout of another version, which --files measures too")
    given = vars(parser.parse_args())
    chosen = [name for name in SECTIONS if given[name] or given["all"]]
    if not chosen:
        parser.error(f"choose sections: {' '.join('--' + name for name in SECTIONS)}, or --all")
    torch.set_num_threads(1)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else f"CPU ({platform.machine()}), one core"
    print(f"torch {torch.__version__}, torchmetrics {torchmetrics.__version__}, {device}")
    print("".join(f"{peer} is not installed and left out\n" for peer, there in PEERS.items() if not there), end="")
    warnings.filterwarnings("ignore", message=".*had no target")
    bench = Bench(given["quick"], given["before"])
    for name in chosen:
        SECTIONS[name](bench)
    if bench.aims:
        table("targets", ["what", "target", "came", "reached"], bench.aims)


if __name__ == "__main__":
    main()
