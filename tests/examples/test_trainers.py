"""The recipes for trainers and loggers are run against the packages they name, offline."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchmetrics.segmentation
from versions import import_or_skip

import imbtorch
from imbtorch import ImbalanceReport

GUIDE = (Path(__file__).parents[2] / "examples" / "trainers.md").read_text(encoding="utf-8")
SECTIONS = {section.splitlines()[0]: section for section in GUIDE.split("\n## ")[1:]}
SNIPPETS = [
    (name, snippet)
    for name, section in SECTIONS.items()
    for snippet in re.findall(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
]
PROGRAMS = {"Ray Train", "Ray Data"}  # which start processes; tests/predictions/test_engines.py runs the second
TESTED = [(name, snippet) for name, snippet in SNIPPETS if name not in PROGRAMS]
TABLE = re.findall(r"^\| `(.*)` \| `(.*)` \|$", GUIDE, flags=re.MULTILINE)
PACKAGES = {
    "transformers": "transformers",
    "accelerate": "accelerate",
    "Fabric": "lightning",
    "Hydra": "hydra",
    "Weights & Biases": "wandb",
    "MLflow": "mlflow",
}


# --- the guide ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set",
    "ignore:.*LeafSpec",  # Lightning and torch
    "ignore:.*does not have many workers",
    "ignore:.*smaller than the logging interval",
    "ignore:.*GPU available but not used",
    "ignore:.*'str' dtypes are included by select_dtypes",  # MLflow and pandas
)
@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("section", "snippet"), TESTED, ids=[f"{section}-{i}" for i, (section, _) in enumerate(TESTED)]
)
def test_snippets_run_and_print_what_they_say(section, snippet):
    if section in PACKAGES:
        import_or_skip(PACKAGES[section])
    printed = []
    names = {"__name__": "trainers", "print": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(compile(snippet, "trainers.md", "exec"), names)
    said = re.findall(r"^print\(.*\)  # (.*)$", snippet, flags=re.MULTILINE)
    assert len(said) == snippet.count("print(") > 0
    assert printed == said


def test_every_tool_of_the_guide_has_its_snippet():
    untied = {"Plain torch and DDP", "Coming from torchmetrics"}
    assert set(PACKAGES) | PROGRAMS | untied == {each for each, _ in SNIPPETS} == set(SECTIONS) - {"Other tools"}


def test_the_contents_list_every_section_in_order():
    contents = GUIDE.partition("\n## ")[0].rpartition("\n\n")[2]
    assert re.findall(r"\]\(#([^)]+)\)", contents) == [
        re.sub(r"[^\w -]", "", section.lower()).replace(" ", "-") for section in SECTIONS
    ]


def test_links_lead_somewhere():
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^## (.*)$", GUIDE, re.M)}
    for link in re.findall(r"\]\(([^)]+)\)", GUIDE):
        file = Path(__file__).parents[2] / "examples" / link.partition("#")[0]
        assert link[1:] in anchors if link.startswith("#") else file.exists(), link


# --- what the guide says of single tools ----------------------------------------------------------------------------


def trained(folder, values, epochs, callbacks, metric="iam", higher=True, strategy="epoch", sets=False):
    """Train with the recipe's callback; each epoch has one step, which adds 1 to the only weight, and a given value.

    Return the Trainer, whose weight is then the number of the epoch that it kept, from 1 on.
    """
    transformers = import_or_skip("transformers")
    (snippet,) = [code for section, code in SNIPPETS if section == "transformers" and "class LatestOfTies" in code]
    names = {}
    exec(snippet.partition("\n\ndata = ")[0], names)
    made = {"ties": names["LatestOfTies"], "patience": lambda: transformers.EarlyStoppingCallback(2)}

    class Growing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, inputs, labels):
            return {"loss": -self.weight, "logits": torch.stack([-inputs, inputs], 1)}

    left = iter(values)
    args = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=8,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        eval_strategy="epoch",
        save_strategy=strategy,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=higher,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    data = [{"inputs": float(i % 2), "labels": i % 2} for i in range(8)]
    trainer = transformers.Trainer(
        Growing(),
        args,
        train_dataset=data,
        eval_dataset={"day": data, "night": data} if sets else data,
        compute_metrics=lambda _: {"iam": next(left)},
        callbacks=[made[name]() for name in callbacks],
    )
    trainer.train()
    return trainer


@pytest.mark.default_cases("values0-True-2-3-best")
@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("values", "higher", "earliest", "latest", "strategy"),
    [
        ([0.5, 0.7, 0.7, 0.6], True, 2, 3, "best"),
        ([0.5, 0.7, 0.7, 0.6], True, 2, 3, "epoch"),
        ([0.5, 0.7, 0.6, 0.7], True, 2, 4, "best"),
        ([0.0, 0.0, 0.0], True, 1, 3, "epoch"),
        ([0.3, 0.1, 0.1, 0.2], False, 2, 3, "best"),
        ([0.5, float("nan"), 0.5], True, 1, 3, "epoch"),
        ([0.5, 0.5, 0.6, 0.4], True, 3, 3, "best"),
    ],
)
def test_the_callback_makes_a_trainer_keep_the_latest_of_tied_epochs(
    values, higher, earliest, latest, strategy, tmp_path
):
    for callbacks, kept in (([], earliest), (["ties"], latest)):
        folder = tmp_path / f"{len(callbacks)}"
        trainer = trained(folder, values, len(values), callbacks, higher=higher, strategy=strategy)
        assert trainer.state.global_step == len(values)
        assert trainer.state.best_global_step == round(trainer.model.weight.item()) == kept
        assert trainer.state.best_metric == values[kept - 1]
        assert Path(trainer.state.best_model_checkpoint).name == f"checkpoint-{kept}"
        saved = {path.name for path in folder.glob("checkpoint-*")}
        assert f"checkpoint-{kept}" in saved
        assert strategy == "best" or len(saved) == len(values)


@pytest.mark.usefixtures("_offline")
def test_the_callback_reads_one_of_several_sets_and_clears_the_best_value_of_a_later_evaluation(tmp_path):
    values = [0.9, 0.5, 0.9, 0.7, 0.9, 0.7, 0.9, 0.6]  # of day and night in turns
    trainer = trained(tmp_path, [*values, 0.7, 0.7], 4, ["ties"], "night_iam", sets=True)
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (3, 0.7)
    trainer.evaluate()
    assert trainer.state.best_metric is None


@pytest.mark.default_cases("callbacks0-of_dead0-of_alive0")
@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("callbacks", "of_dead", "of_alive"),  # epoch that is kept, and number of epochs
    [
        (["patience"], (1, 3), (1, 3)),
        (["patience", "ties"], (3, 3), (3, 3)),
        (["ties", "patience"], (8, 8), (4, 6)),
    ],
)
def test_the_place_of_the_callback_decides_whether_ties_use_up_patience(callbacks, of_dead, of_alive, tmp_path):
    for number, (expected, some) in enumerate(((of_dead, [0.0] * 8), (of_alive, [0.5] * 3 + [0.6] + [0.4] * 4))):
        state = trained(tmp_path / str(number), some, 8, callbacks).state
        assert (state.best_global_step, state.global_step) == expected


# --- engines that start several processes -----------------------------------------------------------------------------

PRINT = """
def print(*values):  # of each process into a file of its own
    import torch

    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    with open(f"{rank}.txt", "a", encoding="utf-8") as file:
        file.write(" ".join(map(str, values)) + "\\n")


"""


def said_in(section):
    """Return what the recipe of an engine says that it prints: IAM, tau and counts."""
    return re.findall(r"^print\(.*\)  # (.*)$", dict(SNIPPETS)[section], flags=re.MULTILINE)


def printed_by(section, folder, processes, *launcher):
    """Run the recipe of an engine on a number of processes; return the lines that each of them prints."""
    snippet = dict(SNIPPETS)[section]
    snippet = re.sub(r"(devices|num_workers)=\d", rf"\1={processes}", snippet)
    (folder / "train.py").write_text(PRINT + snippet, encoding="utf-8")
    path = os.pathsep.join([str(Path(imbtorch.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, "train.py"],
        cwd=folder,
        env={**os.environ, **alone, "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("?.txt"))]
    return found, done.stdout + done.stderr


@pytest.mark.slow
def test_fabric_prints_the_same_on_one_and_two_processes(tmp_path):
    assert printed_by("Fabric", tmp_path, 2)[0] == [said_in("Fabric")] * 2  # the snippet itself runs on one
    counts = np.array(eval(said_in("Fabric")[-1]))
    assert counts.sum() == 303
    recall, precision = counts.diagonal() / counts.sum(1), counts.diagonal() / counts.sum(0)
    assert float(said_in("Fabric")[0]) == pytest.approx((2 * np.minimum(recall, precision) - 1).mean(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_of_ray_report_what_one_process_of_fabric_does(tmp_path):
    import_or_skip("ray.train")
    printed, told = printed_by("Ray Train", tmp_path, 2)
    assert printed == [said_in("Ray Train")] == [said_in("Fabric")]
    assert "Adding 1 callbacks from entry point 'imbtorch': MonitorGuard" in told


def test_ray_replaces_the_sampler_unless_told(monkeypatch):
    train = import_or_skip("ray.train.torch")
    two = SimpleNamespace(get_world_size=lambda: 2, get_world_rank=lambda: 0)
    monkeypatch.setattr("ray.train.get_context", lambda: two)
    monkeypatch.setattr("torch.utils.data.distributed.dist.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.utils.data.distributed.dist.get_rank", lambda: 0)
    monkeypatch.setattr("torch.utils.data.distributed.dist.is_available", lambda: True)
    exact = imbtorch.ExactBatchSampler(torch.utils.data.SequentialSampler(range(5)), batch_size=4)
    loader = torch.utils.data.DataLoader(range(5), batch_sampler=exact)
    assert train.prepare_data_loader(loader, move_to_device=False).batch_size is None
    kept = train.prepare_data_loader(loader, add_dist_sampler=False, move_to_device=False)
    assert kept.batch_sampler is exact


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_plain_torch_prints_the_same_on_two_machines_as_on_one(tmp_path):
    """Two agents of torchrun on this machine stand in for two machines."""
    script = Path(__file__).parents[2] / "examples" / "plain_torch_ddp.py"
    command = next(line for line in SECTIONS["Plain torch and DDP"].splitlines() if "--nnodes 2" in line)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        command = command.replace("HOST:29500", f"127.0.0.1:{free.getsockname()[1]}")
    agent = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", *command.split()[1:-1]]
    path = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    options = {
        "cwd": tmp_path,
        "env": {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    commands = [[sys.executable, "-W", "ignore", script], *[[*agent, script]] * 2]
    runs = [subprocess.Popen([*map(str, words), "--epochs", "2"], **options) for words in commands]
    try:
        alone, *both = (run.communicate(timeout=240)[0] for run in runs)
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0, 0, 0], (alone, *both)
    pattern = r"^epoch.*of 429 samples on|^imbtorch .*counts \w+|^LogitAdjustment.*tau=\S+|^kept epoch.*"
    found = re.findall(pattern, alone, re.MULTILINE)
    assert len(found) == 5
    assert sorted(re.findall(pattern, "".join(both), re.MULTILINE)) == sorted(found)
    values = re.findall(r"^epoch +(\d) +val_iam ([-+.\d]+) +of 429 samples on 1 process", alone, re.MULTILINE)
    assert f"kept epoch {max(values, key=lambda each: float(each[1]))[0]}:" in alone
    assert "".join(both).count("of 429 samples on 2 process") == 2


# --- coming from torchmetrics ---------------------------------------------------------------------------------------


def samples_of(task):
    """Scores that tell something, and targets, among them all classes."""
    generator = torch.Generator().manual_seed(0)
    shape = {"Multiclass": (300, 5), "Binary": (300,), "Multilabel": (300, 3)}[task]
    scores = torch.rand(shape, generator=generator)
    if task == "Multiclass":
        return scores, (scores + torch.rand(shape, generator=generator)).argmax(1)
    return scores, (torch.rand(shape, generator=generator) < scores).long()


def evaluated(code, package):
    return eval(code, dict(vars(package)))


@pytest.mark.parametrize(("theirs", "ours"), TABLE, ids=[theirs for theirs, _ in TABLE])
def test_each_row_of_the_table_names_two_of_one_value(theirs, ours):
    scores, target = samples_of(re.match(r"Multiclass|Binary|Multilabel", theirs)[0])
    expected = evaluated(theirs, torchmetrics.classification)(scores, target)
    torch.testing.assert_close(evaluated(ours, imbtorch)(scores, target), expected)
    assert expected.double().std() > 0 if expected.ndim else 0 < expected < 1


def test_wrappers_and_dice_are_the_metrics_that_the_guide_names():
    scores, target = samples_of("Multiclass")
    macro = torchmetrics.Accuracy(task="multiclass", num_classes=5, average="macro")(scores, target)
    micro = torchmetrics.Accuracy(task="multiclass", num_classes=5)(scores, target)
    assert imbtorch.BalancedAccuracy("multiclass", 5)(scores, target) == pytest.approx(float(macro))
    assert imbtorch.Accuracy("multiclass", 5)(scores, target) == pytest.approx(float(micro))
    assert macro != micro
    dice = torchmetrics.segmentation.DiceScore(5, average="macro", input_format="index")(
        scores.argmax(1)[None], target[None]
    )
    assert imbtorch.FScore("multiclass", 5)(scores, target) == pytest.approx(float(dice))


def test_where_the_guide_says_so_torchmetrics_differs():
    preds, target = torch.tensor([0, 2, 1, 1]), torch.tensor([0, 0, 1, 1])
    assert torchmetrics.classification.MulticlassAccuracy(3)(preds, target) == 0.5
    assert imbtorch.BalancedAccuracy("multiclass", 3)(preds, target) == 0.75
    assert imbtorch.Recall("multiclass", 3)(preds, target) == 0.5
    theirs = torchmetrics.classification.MulticlassRecall(4, average="none")(preds, target)
    ours = imbtorch.Recall("multiclass", 4, average="none")(preds, target)
    assert theirs.tolist() == [0.5, 1, 0, 0]
    assert ours[:3].tolist() == [0.5, 1, 0]
    assert ours[3].isnan()
    scores, target = samples_of("Multilabel")
    theirs = torchmetrics.classification.MultilabelMatthewsCorrCoef(3)(scores, target)
    each = [torchmetrics.classification.BinaryMatthewsCorrCoef()(scores[:, i], target[:, i]) for i in range(3)]
    ours = imbtorch.MatthewsCorrCoef("multilabel", num_labels=3)(scores, target)
    assert ours == pytest.approx(float(sum(each)) / 3)
    assert abs(ours - theirs) > 1e-4
    scores, ones = torch.tensor([0.3, 1.4]), torch.tensor([1, 1])
    assert torchmetrics.classification.BinaryRecall()(scores, ones) == 1  # 0.3 is a logit beside 1.4
    with pytest.raises(ValueError, match="logits=True"):
        imbtorch.Recall("binary")(scores, ones)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"top_k": 2}, r"preds=torch\.where\(\(scores\.topk\(k, 1\)"),
        ({"multidim_average": "samplewise"}, r"a stack of confusion matrices \[N, K, K\]"),
        ({"validate_args": False}, "every input is checked.* leave it out"),
        ({"zero_division": 1}, "one rule for 0/0"),
        ({"top_k": 1, "validate_args": True}, "top_k, validate_args.*as with top_k=1.*every input"),
    ],
    ids=str,
)
def test_arguments_of_torchmetrics_are_answered(given, remedy):
    for make in (imbtorch.FScore, imbtorch.CohenKappa, ImbalanceReport, imbtorch.ConfusionMatrix):
        with pytest.raises(TypeError, match=f"^{make.__name__} takes no .*?{remedy}"):
            make("multiclass", num_classes=3, **given)
    with pytest.raises(TypeError, match=remedy):
        imbtorch.HandTill(3, **given)
    with pytest.raises(TypeError, match=f"^confusion_matrix takes no .*{remedy}"):
        imbtorch.confusion_matrix(torch.tensor([0]), torch.tensor([0]), "multiclass", num_classes=3, **given)


def test_a_report_says_where_an_average_belongs():
    with pytest.raises(TypeError, match=r"takes no average.*functools\.partial\(FScore, average='weighted'\)"):
        ImbalanceReport("multiclass", num_classes=3, average="weighted")
    with pytest.raises(
        ValueError, match=r"average of FScore.*'macro', 'weighted', 'none', 'min', 'micro', got 'samples'"
    ):
        imbtorch.FScore("multiclass", num_classes=3, average="samples")
