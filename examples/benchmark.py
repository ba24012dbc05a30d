"""Measures imbtorch beside torchmetrics, torcheval and scikit-learn on the same tensors and prints medians and ratios.

    python examples/benchmark.py --update --memory     # some sections
    python examples/benchmark.py --all --quick         # all of them, in about a minute

A ratio says how many times as long the peer takes. Run it on an idle machine; ratios of one run can be compared, times
of different machines cannot. A peer that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
import torchmetrics
import torchmetrics.classification as tm
from torch.utils import benchmark

import imbtorch
from imbtorch.analysis import bootstrap, posterior, skew_map

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PEERS = {name: importlib.util.find_spec(name) is not None for name in ("torcheval", "sklearn")}


def median(work: Callable[[], object], seconds: float) -> float:
    """Median time of a call in seconds; on CUDA the benchmark synchronises."""
    return (
        benchmark.Timer("work()", globals={"work": work}, num_threads=1).blocked_autorange(min_run_time=seconds).median
    )


def table(title: str, columns: list[str], rows: list[list[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")


def labels(classes: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random predictions and targets."""
    return torch.randint(classes, (batch,), device=DEVICE), torch.randint(classes, (batch,), device=DEVICE)


def update(seconds: float) -> None:
    """Class indices, validation as each library does it by default."""
    rows: list[list[object]] = []
    for classes, batch in ((10, 256), (10, 65_536), (100, 4096), (1000, 256), (10_000, 256)):
        preds, target = labels(classes, batch)
        ours = imbtorch.ConfusionMatrix("multiclass", num_classes=classes).to(DEVICE)
        theirs = tm.MulticlassConfusionMatrix(classes).to(DEVICE)
        bound = median(lambda preds=preds, target=target: (preds.sum(), target.sum()), seconds)
        mine = median(lambda ours=ours, preds=preds, target=target: ours.update(preds, target), seconds)
        other = median(lambda theirs=theirs, preds=preds, target=target: theirs.update(preds, target), seconds)
        row: list[object] = [classes, batch, 1e6 * mine, 1e6 * other, other / mine, mine / bound]
        for name, peer in peers_of_update(classes, preds, target):
            row.append(median(peer, seconds) / mine if name else "-")
        rows.append(row)
    columns = ["K", "batch", "imbtorch µs", "torchmetrics µs", "torchmetrics ratio", "over read bound"]
    table("update", [*columns, "torcheval ratio", "scikit-learn ratio"], rows)


def peers_of_update(classes: int, preds: torch.Tensor, target: torch.Tensor) -> list[tuple[str, Callable[[], object]]]:
    """Updates of the other peers, which accumulate a matrix as well."""
    found: list[tuple[str, Callable[[], object]]] = [("", lambda: None), ("", lambda: None)]
    if PEERS["torcheval"] and classes <= 1000:
        from torcheval.metrics import MulticlassConfusionMatrix

        metric = MulticlassConfusionMatrix(classes, device=torch.device(DEVICE))
        found[0] = ("torcheval", lambda: metric.update(preds, target))
    if PEERS["sklearn"] and classes <= 1000:
        from sklearn.metrics import confusion_matrix

        truth, guess = target.cpu().numpy(), preds.cpu().numpy()
        found[1] = ("sklearn", lambda: confusion_matrix(truth, guess, labels=range(classes)))
    return found


def memory(seconds: float) -> None:
    """Bytes of state, and the time of an update where many classes are kept as margins."""
    rows: list[list[object]] = []
    for classes in (1000, 21_841, 128_256, 1_000_000):
        metric = imbtorch.ImbalanceAccuracy("multiclass", num_classes=classes, state="margins").to(DEVICE)
        preds, target = labels(classes, 4096)
        took = median(lambda metric=metric, preds=preds, target=target: metric.update(preds, target), seconds)
        held = sum(t.untyped_storage().nbytes() for t in metric.__dict__.values() if isinstance(t, torch.Tensor))
        held += sum(default.untyped_storage().nbytes() for default in metric._defaults.values())
        rows.append([classes, held / 1e6, 8 * classes**2 / 1e6, 1e3 * took])
    table("state='margins'", ["K", "MB held", "MB of a matrix (computed)", "update of 4096, ms"], rows)


# --- end of an epoch on several processes ---------------------------------------------------------------------------

NINE = {
    "iam": imbtorch.ImbalanceAccuracy,
    "cba": imbtorch.ClassBalanceAccuracy,
    "accuracy": imbtorch.Accuracy,
    "balanced_accuracy": imbtorch.BalancedAccuracy,
    "precision": imbtorch.Precision,
    "recall": imbtorch.Recall,
    "f1": imbtorch.FScore,
    "gmean": imbtorch.GeometricMean,
    "mcc": imbtorch.MatthewsCorrCoef,
}


def torchmetrics_of_one_matrix(measure: Callable[..., torch.Tensor]) -> type[tm.MulticlassConfusionMatrix]:
    """Metric as a torchmetrics user writes it: subclass the confusion matrix, so that a collection shares the state."""

    class OfTheMatrix(tm.MulticlassConfusionMatrix):
        def compute(self) -> torch.Tensor:
            return measure(self.confmat)

    return OfTheMatrix


def end_of_epoch(rank: int, world: int, folder: str, classes: int, repeats: int, which: str, answers: object) -> None:
    """Time nine values at the end of an epoch, and the memory that the process peaks at above its states."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    preds, target = labels(classes, 4096)
    if which == "imbtorch":
        metric = imbtorch.ImbalanceReport("multiclass", num_classes=classes, measures=NINE, per_class=())
    else:
        metric = torchmetrics.MetricCollection(
            {name: torchmetrics_of_one_matrix(each.measure)(classes) for name, each in NINE.items()}
        )
    metric.update(preds, target)
    metric.update(preds, target)
    torch.distributed.barrier()
    before, times = peak_bytes(), []
    for _ in range(repeats):
        torch.distributed.barrier()
        start = time.perf_counter()
        metric.compute()
        times.append(time.perf_counter() - start)
        metric.update(preds, target)
    if rank == 0:
        answers.put((sorted(times)[len(times) // 2], (peak_bytes() - before) / (8 * classes**2)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def peak_bytes() -> int:
    """Most memory that this process has held so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def sync(seconds: float) -> None:
    """Nine values at the end of an epoch on two processes."""
    context, rows = multiprocessing.get_context("spawn"), []
    for classes in (100, 1000, 5000) if seconds > 0.2 else (100, 1000):
        found = {}
        for which in ("imbtorch", "torchmetrics"):
            with tempfile.TemporaryDirectory() as folder:
                answers = context.Queue()
                arguments = (folder, classes, 3 if classes > 1000 else 11, which, answers)
                workers = [context.Process(target=end_of_epoch, args=(rank, 2, *arguments)) for rank in range(2)]
                for worker in workers:
                    worker.start()
                found[which] = answers.get(timeout=600)
                for worker in workers:
                    worker.join()
        (mine, held), (other, other_held) = found["imbtorch"], found["torchmetrics"]
        rows.append([classes, 1e3 * mine, 1e3 * other, other / mine, held, other_held])
    columns = ["K", "imbtorch ms", "torchmetrics ms", "ratio", "imbtorch peak, states", "torchmetrics peak, states"]
    table("end of epoch: nine values, two processes (gloo)", columns, rows)


def intervals(seconds: float) -> None:
    """Draws of nine measures from a matrix of ten classes, and one measure beside torchmetrics' BootStrapper."""
    measures = {name: metric.measure for name, metric in NINE.items()}
    counts = torch.randint(1, 30, (10, 10)) + torch.diag(torch.randint(50, 500, (10,)))
    rows: list[list[object]] = []
    for name, draw in (("posterior", posterior), ("bootstrap", bootstrap)):
        rows.append([name, 10_000, median(lambda draw=draw: draw(measures, counts, samples=10_000), seconds)])
    table("intervals of nine measures, K = 10", ["method", "draws", "seconds"], rows)

    resamples = 100 if seconds < 0.2 else 500
    preds, target = torch.randint(10, (10_000,)), torch.randint(10, (10_000,))
    ours = imbtorch.Recall("multiclass", num_classes=10)

    def mine() -> object:
        ours.reset()
        ours.update(preds, target)
        return ours.interval("bootstrap", samples=resamples)

    def theirs() -> object:
        metric = torchmetrics.BootStrapper(tm.MulticlassRecall(10, average="macro"), resamples, quantile=0.95)
        metric.update(preds, target)
        return metric.compute()

    start = time.perf_counter()
    theirs()
    other, own = time.perf_counter() - start, median(mine, seconds)
    columns = ["resamples", "imbtorch ms", "torchmetrics ms", "ratio"]
    table("bootstrap of macro recall, 10,000 samples", columns, [[resamples, 1e3 * own, 1e3 * other, other / own]])


def skew(seconds: float) -> None:
    """Skew of a measure at every result of a test set of 999 positives and 999 negatives."""
    rows: list[list[object]] = []
    for name, measure in (("precision", imbtorch.precision), ("iam", imbtorch.imbalance_accuracy)):
        start, before = time.perf_counter(), peak_bytes()
        skew_map(measure, 999, 999)
        rows.append([name, time.perf_counter() - start, (peak_bytes() - before) / 1e6])
    table("skew_map of 1000 x 1000 results", ["measure", "seconds", "MB above what was held"], rows)


SECTIONS = {"skew": skew, "update": update, "memory": memory, "sync": sync, "intervals": intervals}


def main() -> None:
    """Run the sections that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=section.__doc__)
    parser.add_argument("--all", action="store_true", help="all sections")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, which scatter more")
    given = vars(parser.parse_args())
    chosen = [name for name in SECTIONS if given[name] or given["all"]]
    if not chosen:
        parser.error(f"choose sections: {' '.join('--' + name for name in SECTIONS)}, or --all")
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU, one core"
    print(f"torch {torch.__version__}, torchmetrics {torchmetrics.__version__}, {name}")
    print("".join(f"{peer} is not installed and left out\n" for peer, there in PEERS.items() if not there), end="")
    warnings.filterwarnings("ignore", message=".*had no target")
    for name in chosen:
        SECTIONS[name](0.1 if given["quick"] else 1.0)


if __name__ == "__main__":
    main()
