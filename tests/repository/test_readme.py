"""README, guide and recipes are run and held against the package: snippets, commands, claims about peers."""

import io
import math
import re
import shlex
import shutil
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import imblearn.metrics
import numpy as np
import pycm
import pytest
import sklearn.metrics
import torch
import torchmetrics
from pages import BLOCK, PAGES, ROOT, read
from rooms import command_line
from torchmetrics.classification import (
    BinaryConfusionMatrix,
    BinaryF1Score,
    BinaryMatthewsCorrCoef,
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
)
from versions import import_or_skip

import imbtorch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated, by a FutureWarning in torch 2.15
    import torcheval.metrics
    import torcheval.metrics.functional

README, GUIDE, COMPARISON = map(read, ("README.md", "examples/README.md", "examples/comparison.md"))
COMPLETE = [  # pages whose blocks are programs of their own; those of the guide continue each other
    text
    for path in PAGES
    if path.name not in ("trainers.md", "CHANGELOG.md")
    and BLOCK.search(text := path.read_text(encoding="utf-8"))
    and text != GUIDE
]
SNIPPETS = [found for page in COMPLETE for found in BLOCK.findall(page)]  # with what it prints
COMMANDS = re.findall(r"^```bash\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
SETUP = 'python3 -m venv .venv && .venv/bin/pip install -q -e ".[{}]" && '


# --- snippets and commands ------------------------------------------------------------------------------------------


LIGHTNING = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec",  # Lightning and torch
    "ignore:.*does not have many workers",
    "ignore:.*GPU available but not used",
    "ignore:Checkpoint directory .* is not empty",  # of a run that is resumed
)


@LIGHTNING
@pytest.mark.parametrize(("snippet", "text"), SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run_and_print_what_they_say(snippet, text, tmp_path, monkeypatch):
    for package in re.findall(r"^import (optuna|duckdb|pandas)$", snippet, flags=re.MULTILINE):
        import_or_skip(package)
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    names, printed = run(snippet)
    said = text.splitlines() or re.findall(r"^print\(.*\)  # (.*)$", snippet, flags=re.MULTILINE)
    assert text or len(said) == snippet.count("print(")
    assert printed.splitlines() == said
    if "best" in names:  # the checkpoint of the best epoch was kept
        assert Path(names["best"].best_model_path).is_file()


@LIGHTNING
def test_the_blocks_of_the_guide_continue_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = None
    for snippet, text in BLOCK.findall(GUIDE):
        names, printed = run(snippet, names)
        assert printed == text.strip("\n")
    assert {"checkpoint", "deployed", "result"} <= names.keys()


@pytest.fixture
def quickstart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")


def run(program, names=None):
    """Run a program, which may continue another one, and return its names and what it prints."""
    names = names or {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "program.py", "exec"), names)
    return names, printed.getvalue().strip("\n")


def test_the_picture_says_what_its_program_finds():
    names, printed = run(read("examples/two_classes.py"))
    target, found = names["y_test"].numpy(), {}
    for rule, preds in (("0.5", names["test"] > 0.5), ("chosen", names["sweep"].rule(names["test"]))):
        preds = np.asarray(preds).astype(bool)
        found[rule] = int((preds & target).sum()), int((preds & ~target).sum())
    assert (found["chosen"][0], target.sum(), found["0.5"][0]) == (41, 52, 33)
    assert (found["chosen"][1], found["0.5"][1]) == (10, 4)
    assert "![A threshold for a precision of 0.8 finds 41 of 52 eights, not 33, with 10 false alarms, not 4]" in README
    assert "test recall rises in 12 of 12 splits" in printed
    assert "below 0.8 in 4\n" in printed


@LIGHTNING
def test_the_quickstart_finds_what_the_readme_says(quickstart):
    names, printed = run(quickstart)
    assert Path(names["checkpoint"].best_model_path).is_file()
    assert "recall of eights rises from 0.444 to 0.907; accuracy falls from 0.911 to 0.863" in " ".join(README.split())
    for rule in (
        "plain      accuracy 0.911  balanced_accuracy 0.718  iam 0.380  recall/eight 0.444",
        "adjusted   accuracy 0.863  balanced_accuracy 0.888  iam 0.349  recall/eight 0.907",
    ):
        assert rule in printed


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return (ROOT / "examples" / "lightning_module.py").read_text(encoding="utf-8")


@LIGHTNING
def test_the_module_of_the_readme_is_that_of_its_program(module):
    block = README.partition("## The same in Lightning")[2].partition("```py\n")[2].partition("```")[0]
    names, _ = run(module)
    shown, _, use = block.partition("\n\n\n")
    assert shown in module
    values = {**names["checkpoint"].kept, **names["tested"]}
    told = re.findall(r"((?:val|test)_\w+) (0\.\d+)", use)
    assert len(told) == 5
    for name, value in told:
        assert f"{values[name]:.3f}" == value
    assert f"epoch {names['checkpoint'].kept['epoch']}," in use


@LIGHTNING
def test_the_guard_says_what_the_readme_shows(module):
    program = module.replace(', mode="max")', ")")
    with pytest.raises(ValueError, match="mode='min'") as caught:
        run(program)
    shown = re.search(r"^```text\nValueError: (.*?)^```", README, flags=re.DOTALL | re.MULTILINE)[1]
    assert str(caught.value) == " ".join(shown.split())


def test_the_command_of_the_readme_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    import_or_skip("duckdb")
    made = run_path(str(shutil.copy(ROOT / "examples" / "data" / "alarms.py", tmp_path)))
    assert made["score"].shape == (300,)
    assert (tmp_path / "alarms.csv").read_bytes() == (ROOT / "examples" / "data" / "alarms.csv").read_bytes()
    monkeypatch.chdir(ROOT)
    ((command, text),) = re.findall(r"^```console\n\$ imbtorch (.*)\n((?:.*\n)*?)```", README, flags=re.MULTILINE)
    assert command_line.main(shlex.split(command)) == 0
    assert capsys.readouterr().out == text


def test_the_lines_for_a_module_are_of_its_program(module):
    for name in ("ImbalanceReport", "ThresholdSweep"):
        assert f"imbtorch.{name}(" in README.partition("## ")[0]
        assert f"imbtorch.{name}(" in module
    names = {"imbtorch": imbtorch, "self": SimpleNamespace()}
    lines = re.search(r"^```py\n(self.val.*?)^```", README, flags=re.DOTALL | re.MULTILINE)[1]
    exec(compile("import imbtorch.lightning\n" + lines, "README", "exec"), names)
    names["self"].val.update(torch.tensor([2.0, -2.0]), torch.tensor([1, 0]))
    assert names["checkpoint"].monitor in names["self"].val.compute()


def test_both_commands_are_complete():
    assert [
        f"{SETUP.format('examples')}.venv/bin/python examples/train_digits.py\n",
        f"{SETUP.format('dev')}.venv/bin/python -m pytest -q -n auto\n",
    ] == COMMANDS
    assert (ROOT / "examples" / "train_digits.py").is_file()


# --- what it says about itself and about peers ----------------------------------------------------------------------

TARGET, PREDS = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 1, 1])  # class 2 is predicted but has no targets


def test_a_class_without_targets_tells_conventions_apart():
    counts = imbtorch.confusion_matrix(PREDS, TARGET, "multiclass", num_classes=3)
    assert imbtorch.balanced_accuracy(counts) == 0.75
    assert imbtorch.recall(counts) == 0.5
    assert imbtorch.geometric_mean(counts) == pytest.approx(0.707, abs=0.0005)
    assert torchmetrics.functional.recall(PREDS, TARGET, "multiclass", num_classes=3, average="macro") == 0.5
    with pytest.warns(UserWarning, match="not in y_true"):
        assert sklearn.metrics.balanced_accuracy_score(TARGET, PREDS) == 0.75
    with pytest.warns(UserWarning, match="ill-defined"):
        assert sklearn.metrics.recall_score(TARGET, PREDS, average="macro") == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert imblearn.metrics.geometric_mean_score(TARGET.numpy(), PREDS.numpy()) == 0
    assert pycm.ConfusionMatrix(TARGET.tolist(), PREDS.tolist()).TPR_Macro == "None"


def test_torchmetrics_differs_as_described():
    assert MulticlassAccuracy(3)(PREDS, TARGET) == 0.5
    assert MulticlassAccuracy(3, average="micro")(PREDS, TARGET) == imbtorch.Accuracy("multiclass", 3)(PREDS, TARGET)

    def cell(preds, target):
        return MulticlassConfusionMatrix(3)(torch.tensor([preds]), torch.tensor([target])).nonzero().tolist()

    assert cell(3, 0) == [[1, 0]]
    assert cell(-1, 1) == [[0, 2]]
    assert cell([math.nan] * 3, 2) == [[2, 0]]
    for preds, target in ((3, 0), (-1, 1), ([math.nan] * 3, 2)):
        with pytest.raises(ValueError, match="preds hold"):
            imbtorch.confusion_matrix(torch.tensor([preds]), torch.tensor([target]), "multiclass", num_classes=3)

    ones = torch.tensor([1, 1])
    assert BinaryConfusionMatrix()(torch.tensor([0.3, 0.4]), ones).tolist() == [[0, 0], [2, 0]]
    assert BinaryConfusionMatrix()(torch.tensor([0.3, 1.4]), ones).tolist() == [[0, 0], [0, 2]]

    def f1(low, high):
        both = torchmetrics.MetricCollection({"low": low, "high": high})
        both.update(torch.tensor([0.95, 0.1]), torch.tensor([1, 0]))
        both.update(torch.tensor([0.7, 0.6]), ones)
        return both.compute()

    merged = f1(BinaryF1Score(threshold=0.5), BinaryF1Score(threshold=0.9))
    assert merged["low"] == merged["high"]
    apart = f1(imbtorch.FScore("binary", threshold=0.5), imbtorch.FScore("binary", threshold=0.9))
    assert apart == {"low": 1, "high": 0.5}

    counts = torch.tensor([[1_050_000_000 - 1397, 347], [348, 702]])
    peer = BinaryMatthewsCorrCoef()
    peer.update(ones, ones)
    peer.confmat = counts
    value = 0.656 if torchmetrics.__version__.startswith("1.7.") else 0.688
    assert peer.compute() == pytest.approx(value, abs=0.0006)
    assert imbtorch.matthews_corrcoef(counts) == pytest.approx(0.669, abs=0.0005)


def test_the_numbers_that_are_wrong_elsewhere_are_those_of_the_readme():
    program = run_path(str(ROOT / "examples" / "comparison.py"))
    assert f"torchmetrics {torchmetrics.__version__}" in README or not torchmetrics.__version__.startswith("1.9")
    assert program["two_thresholds"]() == [0.5, 0.5]
    assert program["two_thresholds"](compute_groups=False) == program["two_thresholds_here"]() == [1.0, 0.5]
    scores, target = program["SCORES"].flatten(), program["TARGET"].flatten()
    assert [sklearn.metrics.f1_score(target, scores > threshold) for threshold in (0.5, 0.9)] == [1.0, 0.5]
    assert program["out_of_range"]()[0] == "as class 0 for class 1"
    right = sklearn.metrics.roc_auc_score(program["POSITIVE"], program["LOGITS"])
    assert program["area_of_logits"]() == (1.0, right) == (1.0, 0.5)


def test_the_others_differ_as_described():
    absent = {"y_true": [0, 0, 1, 1], "y_pred": [0, 1, 1, 1], "labels": [0, 1, 2], "average": "macro"}
    assert sklearn.metrics.recall_score(**absent, zero_division=0) == 0.5
    assert sklearn.metrics.recall_score(**absent, zero_division=np.nan) == 0.75
    counts = torch.tensor([[1, 1, 0], [0, 2, 0], [0, 0, 0]])
    assert imbtorch.recall(counts) == 0.75

    target, preds = [0] * 10 + [1] * 5, [0] * 8 + [1] * 2 + [1] * 2 + [0] * 3  # TPR .4, TNR .8
    squared, dominance = 0.32, -0.4
    for alpha in (0.1, 1.0):
        score = imblearn.metrics.make_index_balanced_accuracy(alpha=alpha)(imblearn.metrics.geometric_mean_score)
        assert score(target, preds) == pytest.approx(squared)
        assert score(target, preds, average="binary") == pytest.approx((1 + alpha * dominance) * squared)
    peer = pycm.ConfusionMatrix(target, preds)
    assert peer.IBA[1] == pytest.approx((1 + dominance) * squared)
    assert peer.IBA_alpha(0.05)[1] == pytest.approx((1 + 0.05 * dominance) * squared)
    assert peer.GM[1] == pytest.approx(math.sqrt(squared))
    assert peer.G[1] == pytest.approx(float(imbtorch.fowlkes_mallows(torch.tensor([[8, 2], [3, 2]]), average="binary")))
    peer = pycm.ConfusionMatrix(matrix={i: dict(enumerate(row)) for i, row in enumerate(counts.tolist())})
    assert peer.TPR_Macro == peer.CBA == peer.Overall_CEN == "None"
    assert pycm.ConfusionMatrix([0, 1], [1, 1]).Overall_MCC == "None"


def test_a_sample_that_counts_twice_moves_iam():
    assert imbtorch.imbalance_accuracy(torch.tensor([[96, 2], [1, 2]])) == pytest.approx(0.480, abs=0.0005)
    assert imbtorch.imbalance_accuracy(torch.tensor([[96, 2], [1, 3]])) == pytest.approx(0.580, abs=0.0005)


def test_torcheval_differs_as_described():
    functional = torcheval.metrics.functional
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert functional.multiclass_accuracy(PREDS, TARGET, num_classes=3, average="macro") == 0.75
        assert functional.multiclass_recall(PREDS, TARGET, num_classes=3, average="macro") == 0.5
        with pytest.raises(RuntimeError, match="must match the size"):
            functional.multiclass_recall(PREDS, TARGET, num_classes=4, average="macro")
    metric = torcheval.metrics.MulticlassConfusionMatrix(3)
    metric.update(torch.tensor([-1]), torch.tensor([1]))
    assert metric.compute().nonzero().tolist() == [[0, 2]]
    with pytest.raises(ValueError, match="too large"):
        metric.update(torch.tensor([3]), torch.tensor([0]))
    right = torcheval.metrics.MulticlassAccuracy()
    right.num_correct, right.num_total = torch.tensor(2.0**24), torch.tensor(2.0**24)
    right.update(torch.tensor([0]), torch.tensor([1]))
    assert right.compute() == 1
    assert imbtorch.accuracy(torch.tensor([[2**24, 0], [1, 0]])) < 1


def test_who_has_which_measure():
    lines = [line for line in COMPARISON.splitlines() if line.startswith("|")][:9]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    said = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    cm = pycm.ConfusionMatrix([0, 1, 1], [0, 0, 1])
    having = {
        "torchmetrics": dir(torchmetrics.classification),
        "torcheval": dir(torcheval.metrics),
        "scikit-learn": sklearn.metrics.__all__,
        "imbalanced-learn": imblearn.metrics.__all__,
        "PyCM": dir(cm),
    }
    words = {
        "IAM": ("iam", "imbalance_accuracy", "imbalanceaccuracy"),
        "CBA": ("cba", "class_balance", "classbalance"),
        "G-mean": ("gm", "geometric_mean", "geometricmean"),
        "IBA": ("iba", "index_balanced", "indexbalanced"),
        "MCC": ("mcc", "matthews"),
        "optimized precision, RCI, CEN": ("op", "rci", "cen", "optimized", "confusionentropy"),
    }
    for measure, parts in words.items():
        for peer, names in having.items():
            found = [
                name
                for name in names
                if any(part in name.lower() if len(part) > 3 else part == name.lower() for part in parts)
            ]
            assert bool(found) == (said[measure][peer] != "-"), (measure, peer, found)
        assert said[measure]["imbtorch"] == "yes"


# --- how they are laid out ------------------------------------------------------------------------------------------


def test_the_version_has_its_changes():
    assert imbtorch.__version__ in read(".github/CHANGELOG.md")


def test_the_guide_is_in_the_order_of_a_project():
    steps = re.findall(r"^## \d\. (.*)$", GUIDE, re.MULTILINE)
    assert steps == ["Log", "Monitor", "Keep", "Decide", "Test", "Deploy", "After training"]
    for section in re.split(r"^## ", GUIDE, flags=re.MULTILINE)[1 : len(steps) + 1]:
        assert section.count("```python") == section.count("```text") == 1  # what is typed, and what it prints
