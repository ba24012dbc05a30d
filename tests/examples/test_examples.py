"""The example is run as a reader runs it, with few epochs."""

import csv
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from matplotlib import image
from processes import run_script
from versions import needs_simulated_device

import imbtorch

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "train_digits.py"
HEADER = r"kept by +epoch +accuracy +balanced accuracy +IAM +recall of 7 +recall of 8 +recall of 9"


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder."""
    return run_script(EXAMPLES / f"{script}.py", *arguments, folder=folder, environment=os.environ | ENVIRONMENT)


def typed(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a reader types it."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def history(folder: Path) -> list[dict[str, float]]:
    with (folder / "out" / "version_0" / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def check(folder: Path, done: subprocess.CompletedProcess[str], epochs: int, imbalance: int, seed: int) -> None:
    """Check what every run must leave behind."""
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line for line in done.stderr.splitlines() if re.search(r"Warning|\.py:\d+:", line)]
    assert shown == []
    assert done.stdout.count("\nkept by  ") == 1  # rank zero alone speaks
    for words in ("Noise was added", "chosen to show the effect", "do not decide between IAM and balanced"):
        assert words in " ".join(done.stdout.split())

    logged = history(folder)
    assert [row["epoch"] for row in logged] == list(range(epochs))
    lines = done.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if re.fullmatch(HEADER, line))
    kept = {}
    for line, name in zip(lines[start + 1 : start + 3], ("val_iam", "val_acc"), strict=True):
        label, epoch, accuracy, balanced, iam, *recalls = line.split()
        assert len(line) == len(lines[start])  # aligned
        assert label == name
        best = max(logged, key=lambda row: row[name])  # the first of equals
        (path,) = (folder / "out" / "version_0" / "checkpoints").glob(f"{name}-*.ckpt")
        kept[name] = torch.load(path, weights_only=True)
        assert kept[name]["epoch"] == int(epoch) == best["epoch"]
        assert path.name == f"{name}-epoch={int(epoch):02d}.ckpt"
        (summary,) = re.findall(rf"kept by {name} +(\d+) ", done.stdout)
        assert summary == epoch
        assert accuracy == balanced  # the test set is balanced
        assert -1 <= float(iam) <= 2 * float(balanced) - 1 + 0.002  # rounded; CBA is at most macro recall
        assert len(recalls) == 3
        assert all(0 <= float(recall) <= 1 for recall in recalls)

    for picture in ("train_digits.png", "version_0/figures/val_selection.png"):  # as the script prints
        pixels = image.imread(folder / "out" / picture)
        assert min(pixels.shape[:2]) > 500
        assert pixels[..., :3].std() > 0.1
    check_values(folder, kept, imbalance, seed)


def check_values(folder: Path, kept: dict[str, dict[str, object]], imbalance: int, seed: int) -> None:
    """Check what was logged for the kept epochs against their checkpoints."""
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)  # importing it starts nothing
    sizes = [60] * 7 + [60 // imbalance] * 3
    train, val, test = example.digits(imbalance=imbalance, seed=seed)
    assert train.tensors[1].bincount().tolist() == val.tensors[1].bincount().tolist() == sizes
    assert test.tensors[1].bincount().tolist() == [50] * 10

    model = example.DigitClassifier(torch.ones(10))
    for name, saved in kept.items():
        model.load_state_dict(saved["state_dict"])
        with torch.inference_mode():
            counts = imbtorch.confusion_matrix(model(val.tensors[0]), val.tensors[1], "multiclass", num_classes=10)
        row = history(folder)[saved["epoch"]]
        assert row["val_iam"] == pytest.approx(float(imbtorch.imbalance_accuracy(counts)), abs=1e-6), name
        assert row["val_acc"] == pytest.approx(float(imbtorch.accuracy(counts)), abs=1e-6), name
        assert row["val_bal_acc"] == pytest.approx(float(imbtorch.balanced_accuracy(counts)), abs=1e-6), name


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_train_digits_keeps_the_best_epoch_and_logs_exact_values(tmp_path):
    epochs = 17  # two of them with weights
    check(tmp_path, typed(tmp_path, str(SCRIPT), "--epochs", str(epochs), "--imbalance", "10"), epochs, 10, 0)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_train_digits_runs_in_two_processes(tmp_path):
    check(tmp_path, typed(tmp_path, str(SCRIPT), "--epochs", "3", "--devices", "2", "--seed", "1"), 3, 20, 1)


@pytest.mark.slow
def test_benchmark_prints_tables_of_medians_ratios_and_targets(tmp_path):
    done = run(tmp_path, "benchmark", "--quick", "--logits", "--ignore")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"torch {torch.__version__}, torchmetrics ")
    first, *found = done.stdout.split("\n### ")
    assert "one core" in first
    titles = [table.splitlines()[0] for table in found]
    for title, start in zip(
        titles, ("update: logits", "update: scores of few", "update: a tenth", "targets"), strict=True
    ):
        assert title.startswith(start)
    for table in found:
        header, line, *rows = (row.split("|")[1:-1] for row in table.splitlines() if row.startswith("|"))
        assert rows, table
        assert set(line) == {"---"}, table
        assert all(len(row) == len(header) for row in rows), table
    aimed = [row.split("|")[2].strip() for row in found[-1].splitlines()[4:]]
    assert aimed == ["≥ 4", *["≥ 1.3"] * 9, "≤ 1.3", "≤ 1.3"]  # reached or not: a busy machine must not fail a test
    assert all(aim in "".join(found[:-1]) for aim in aimed)


@pytest.mark.slow
@needs_simulated_device
def test_benchmark_counts_launches_on_the_simulated_accelerator(tmp_path):
    done = run(tmp_path, "benchmark", "--quick", "--launches")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    table, targets = done.stdout.split("\n### ")[1:]
    rows = [[each.strip() for each in row.split("|")[1:-1]] for row in table.splitlines() if row.startswith("|")][2:]
    updates = {name: [int(each) for each in update.split(" / ")] for name, update, *_ in rows}
    assert updates["matrix"] == [9, 0, 0]
    assert updates["matrix, torchmetrics"][1] > 0
    assert {tuple(update[1:]) for name, update in updates.items() if "torch" not in name} == {(0, 0)}
    assert "| matrix: bytes a sample of an update | ≤ 24 | " in targets


@pytest.mark.slow
def test_what_validation_says_of_deployment_comes_true(tmp_path):
    done = run(tmp_path, "deployment", "--validation", "2000", "--positives", "400", "--epochs", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    heading, *lines = done.stdout.splitlines()
    assert heading.split("  ")[-1].strip() == "measured at 1:1000"
    number = r"(-?\d\.\d{4})"
    rows = {}
    for row in lines[:8]:
        assert len(row) == len(heading)  # aligned
        found = re.fullmatch(rf"(.+?) +{number} +{number} \[{number}, {number}\] +{number}", row)
        rows[found[1]] = [float(each) for each in found.groups()[1:]]
    alarms = [tuple(map(int, re.findall(r" (\d+) of (\d+) alarms", line)[0])) for line in lines[8:10]]
    for place, (right, every) in zip((0, 4), alarms, strict=True):
        assert rows["precision"][place] == pytest.approx(right / every, abs=6e-5)
        assert rows["recall"][place] == pytest.approx(right / (2000, 400)[place // 4], abs=6e-5)
    (right, every), hit = alarms[0], alarms[0][0] / 2000
    false = (every - right) / 2000
    assert rows["precision"][1] == pytest.approx(hit / (hit + 1000 * false), abs=6e-5)  # Bayes' rule
    assert rows["accuracy"][1] == pytest.approx((hit + 1000 * (1 - false)) / 1001, abs=6e-5)
    for name, (before, there, low, high, truth) in rows.items():
        assert low < there < high, name
        assert low - (high - low) < truth < high + (high - low), name  # two samples, a few standard errors
        assert (before == there) == (name in ("recall", "balanced accuracy"))
    assert rows["precision"][0] > 0.9
    assert max(rows["precision"][3:]) < 0.1
    pixels = image.imread(tmp_path / "out" / "deployment.png")
    assert min(pixels.shape[:2]) > 400
    assert pixels[..., :3].std() > 0.1


@pytest.mark.slow
def test_segmentation(tmp_path):
    done = run(tmp_path, "segmentation", "--epochs", "2", "--size", "32")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"UserWarning|Traceback", done.stderr), done.stderr
    head, *rows = (line.split() for line in done.stdout.splitlines()[:4])
    assert head == ["kept", "by", "epoch", "accuracy", "iou", "iou_min", *(f"iou/{name}" for name in SEEN)]
    assert [row[0] for row in rows] == ["val_iou", "val_iou_min", "val_accuracy"]
    for _, epoch, _, mean, worst, *classes in (tuple(map(number, row)) for row in rows):
        assert epoch in range(2)
        assert mean == pytest.approx(sum(classes) / 4, abs=1e-3)
        assert worst == min(classes)
    assert "largest difference of an IoU 0e+00" in done.stdout  # to torchmetrics, void pixels left out
    kept = {path.name.partition("-")[0] for path in (tmp_path / "out" / "checkpoints").glob("*.ckpt")}
    assert kept == {row[0] for row in rows}
    assert image.imread(tmp_path / "out" / "segmentation.png").std() > 0.1


SEEN = ["background", "tree", "house", "sign"]


def number(cell):
    return cell if cell.startswith("val") else float(cell)


def test_scenes_have_void_rims_and_all_classes():
    spec = importlib.util.spec_from_file_location("segmentation", EXAMPLES / "segmentation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images, target = module.scenes(20, 0).tensors
    assert images.shape == (20, 3, 48, 48)
    assert set(target.unique().tolist()) == {0, 1, 2, 3, 255}
    assert 0 < (target == 3).double().mean() < 0.005
    assert torch.equal(target, module.scenes(20, 0).tensors[1])
