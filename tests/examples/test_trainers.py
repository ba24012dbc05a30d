"""The recipes for trainers and loggers are run against the packages they name, offline."""

import os
import re
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import oracles
import pytest
import sklearn.metrics
import torch
import torchmetrics.segmentation
from sklearn.model_selection import cross_val_score
from versions import import_or_skip, needs_fsdp2_on_cpus

import imbtorch
from imbtorch import ImbalanceReport

GUIDE = (Path(__file__).parents[2] / "examples" / "trainers.md").read_text(encoding="utf-8")
SECTIONS = {section.splitlines()[0]: section for section in GUIDE.split("\n## ")[1:]}
# the first three cannot be imported beside torch for CPUs alone; the others need other versions or many packages
STAND_INS = {"ultralytics", "timm", "torchgeo", "pytorch_tabular", "chemprop"}
SNIPPETS = [
    (name, snippet)
    for name, section in SECTIONS.items()
    for snippet in re.findall(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
]
PROGRAMS = {"FSDP2", "Ray Train"}  # which start processes, or are started as several
PROGRAMS |= {"Spark", "Ray Data", "BigQuery and Snowflake"}  # tests/predictions/test_engines.py runs them
TESTED = [(name, snippet) for name, snippet in SNIPPETS if name not in STAND_INS | PROGRAMS]
TABLE = re.findall(r"^\| `(.*)` \| `(.*)` \|$", GUIDE, flags=re.MULTILINE)
PACKAGES = {
    "transformers": "transformers",
    "accelerate": "accelerate",
    "Ignite": "ignite",
    "MONAI": "monai",
    "Fabric": "lightning",
    "skorch": "skorch",
    "LightningCLI": "typeshed_client",  # of jsonargparse[signatures]
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
    assert set(PACKAGES) | STAND_INS | PROGRAMS | untied == {each for each, _ in SNIPPETS} == set(SECTIONS)


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
    _, snippet, *_ = [code for section, code in SNIPPETS if section == "transformers"]
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


def skorch_history(values, *callbacks, **scoring):
    """Fit a skorch net whose IAM takes the given values over the epochs, and return its history."""
    skorch = import_or_skip("skorch")
    left = iter(values)
    epoch_scoring = skorch.callbacks.EpochScoring(lambda net, inputs, target: next(left), name="iam", **scoring)
    net = skorch.NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=1,
        module__out_features=2,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=len(values),
        callbacks=[epoch_scoring, *callbacks],
        verbose=0,
    )
    return net.fit(np.zeros((20, 1), np.float32), np.arange(20) % 2).history


def test_skorch_marks_the_worst_epoch_unless_told():
    assert skorch_history([0.3, 0.1, 0.2])[:, "iam_best"] == [True, True, False]
    assert skorch_history([0.3, 0.1, 0.2], lower_is_better=False)[:, "iam_best"] == [True, False, False]


def test_early_stopping_of_skorch_needs_its_direction_and_an_absolute_threshold():
    stopping = import_or_skip("skorch.callbacks").EarlyStopping
    assert len(skorch_history([0.1, 0.2, 0.3, 0.4, 0.5], stopping("iam", patience=2))) == 3
    told = {"monitor": "iam", "patience": 2, "lower_is_better": False}
    assert len(skorch_history([0.1, 0.2, 0.3, 0.4, 0.5], stopping(**told))) == 5
    assert len(skorch_history([-0.5] * 5, stopping(**told))) == 5  # no tie ever counts as a miss
    assert len(skorch_history([-0.5] * 5, stopping(**told, threshold_mode="abs"))) == 3


@pytest.mark.usefixtures("_offline")
def test_a_function_makes_skorch_keep_the_latest_of_tied_epochs():
    checkpoint = import_or_skip("skorch.callbacks").Checkpoint

    def latest(net):
        return eval(re.search(r'`(net.history\[-1, "iam"\] == [^`]*)`', GUIDE)[1], {"net": net})

    ties = [0.2, 0.4, 0.4, 0.3]
    assert skorch_history(ties, checkpoint(latest), lower_is_better=False)[:, "event_cp"] == [True, True, True, False]
    kept = skorch_history(ties, checkpoint("iam_best"), lower_is_better=False)
    assert kept[:, "event_cp"] == [True, True, False, False]
    with pytest.warns(UserWarning, match="Perhaps you meant to set the parameter to 'iam_best'"):
        assert all(skorch_history(ties, checkpoint("iam"), lower_is_better=False)[:, "event_cp"])


@pytest.mark.usefixtures("_offline")
def test_the_scoring_of_skorch_serves_scikit_learn():
    import_or_skip("skorch")
    names = {"print": lambda *values: None}
    exec(dict(TESTED)["skorch"], names)
    inputs, target = (tensor.numpy() for tensor in names["valid"].tensors)
    net = names["net"].set_params(train_split=None, callbacks=None, max_epochs=1)
    expected = []

    def scoring(net, inputs, target):
        matrix = sklearn.metrics.confusion_matrix(target, net.predict(inputs), labels=[0, 1, 2])
        expected.append(float(oracles.imbalance_accuracy(matrix.tolist())))
        return names["iam"](net, inputs, target)

    assert cross_val_score(net, inputs, target, scoring=scoring, cv=2).tolist() == pytest.approx(expected)


def monai_evaluator(handler, **options):
    """Make an evaluator of MONAI on five samples, whose model is right about all but one."""
    engines = import_or_skip("monai.engines")
    target = torch.tensor([0, 0, 0, 1, 2])
    images = torch.eye(3)[torch.tensor([0, 0, 0, 1, 1])]
    data = [{"image": image, "label": label} for image, label in zip(images, target, strict=True)]
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    return engines.SupervisedEvaluator(
        torch.device("cpu"), loader, torch.nn.Identity(), key_val_metric={"iam": handler}, **options
    )


def test_monai_hands_out_samples_as_the_guide_says():
    events, seen, counts = import_or_skip("ignite.engine").Events, [], []

    class Handler:
        def attach(self, engine, name):
            engine.add_event_handler(events.ITERATION_COMPLETED, self.count)
            engine.state.metrics[name] = 0.0

        def count(self, engine):
            codes = re.findall(r"`(torch\.\w+\(\[sample[^`]*)`", GUIDE)
            preds, target = (eval(code, {"torch": torch, "engine": engine}) for code in codes)
            seen.extend(sample["label"] for sample in engine.state.output)
            counts.append(imbtorch.confusion_matrix(preds, target, "multiclass", num_classes=3))

    monai_evaluator(Handler()).run()
    assert all(type(label) is int for label in seen)
    assert sum(counts).tolist() == [[3, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_monai_takes_lower_for_better_if_told(tmp_path):
    events, handlers = import_or_skip("ignite.engine").Events, import_or_skip("monai.handlers")

    class Handler:
        values = (0.3, 0.1, 0.2)

        def attach(self, engine, name):
            engine.add_event_handler(events.EPOCH_COMPLETED, self.read)

        def read(self, engine):
            engine.state.metrics["iam"] = self.values[engine.state.epoch - 1]

    lower = eval(re.search(r"metric_cmp_fn=(lambda [^`]*)`", GUIDE)[1])
    for told, best in (({}, 1), ({"metric_cmp_fn": lower}, 2)):
        marks = [torch.zeros(()), *(torch.tensor(epoch) for epoch in (1, 2, 3))]
        model = torch.nn.Module()
        model.register_buffer("epoch", marks[0])
        keeper = handlers.CheckpointSaver(
            tmp_path,
            {"model": model},
            save_key_metric=True,
            key_metric_filename=f"{best}.pt",
            key_metric_negative_sign=bool(told),
        )
        evaluator = monai_evaluator(Handler(), val_handlers=[keeper], **told)
        for epoch in (1, 2, 3):
            model.epoch = marks[epoch]
            evaluator.run(epoch)
        assert evaluator.state.best_metric_epoch == best
        assert torch.load(tmp_path / f"{best}.pt")["epoch"] == best


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
@needs_fsdp2_on_cpus
def test_fsdp2_prints_the_same_on_one_and_two_processes(tmp_path, monkeypatch):
    launcher = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
    assert printed_by("FSDP2", tmp_path, 2, *launcher)[0] == [said_in("FSDP2")] * 2
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)  # as torchrun does
    (tmp_path / "one").mkdir()
    assert printed_by("FSDP2", tmp_path / "one", 1)[0] == [said_in("FSDP2")]
    assert np.sum(eval(said_in("FSDP2")[-1])) == 303
    saved = torch.load(tmp_path / "deployed.pt", weights_only=True)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model.load_state_dict(saved["model"])
    assert saved["rule"]["tau"].item() == float(said_in("FSDP2")[1])


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


# --- with stand-ins of the same interface ---------------------------------------------------------------------------


def module_with(monkeypatch, name, **members):
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_recipe_for_ultralytics_counts_true_classes_in_rows(monkeypatch):
    class ClassificationValidator:  # of ultralytics 8.4.190: the best five classes of each sample
        def __init__(self, dataloader=None, save_dir=None, args=None, _callbacks=None):
            self.args, self.names = args, {0: "cat", 1: "dog", 2: "emu"}
            self.targets = [torch.tensor([0, 0, 0], dtype=torch.int32), torch.tensor([1, 1, 2], dtype=torch.int32)]
            best = torch.tensor([0, 0, 1, 1, 1, 0], dtype=torch.int32)
            self.pred = [*torch.stack([best, (best + 1) % 3, (best + 2) % 3], 1).split(3)]

        def get_stats(self):
            return {"metrics/accuracy_top1": 4 / 6, "metrics/accuracy_top5": 1.0, "fitness": 5 / 6}

        @property
        def confusion_matrix(self):
            matrix = np.zeros((3, 3))
            for preds, target in zip(torch.cat(self.pred)[:, 0], torch.cat(self.targets), strict=True):
                matrix[preds][target] += 1
            return SimpleNamespace(matrix=matrix)

    class ClassificationTrainer:
        test_loader, save_dir, args, callbacks = [], "out", SimpleNamespace(data="images"), {}

    class YOLO:
        def __init__(self, model):
            pass

        def train(self, data, trainer):
            self.validator = trainer().get_validator()

        def val(self, data, split):
            return self.validator

    classify = {"ClassificationValidator": ClassificationValidator, "ClassificationTrainer": ClassificationTrainer}
    for name, members in {
        "ultralytics": {"YOLO": YOLO},
        "ultralytics.models": {},
        "ultralytics.models.yolo": {},
        "ultralytics.models.yolo.classify": classify,
    }.items():
        module_with(monkeypatch, name, **members)
    printed = []
    names = {"__name__": "trainers", "print": printed.append}
    exec(dict(SNIPPETS)["ultralytics"], names)
    stats = names["model"].validator.get_stats()
    assert stats["fitness"] == stats["metrics/cba"] == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert list(stats)[:2] == ["metrics/accuracy_top1", "metrics/accuracy_top5"]
    assert names["counts"].tolist() == [[2, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert printed == [pytest.approx(2 * 4 / 9 - 1)]
    assert names["model"].validator.args is not ClassificationTrainer.args


def test_a_transposed_matrix_changes_the_measures_that_the_guide_names():
    matrix = torch.tensor([[20, 3, 1], [2, 7, 4], [0, 1, 5]])
    for same in (imbtorch.imbalance_accuracy, imbtorch.class_balance_accuracy, imbtorch.matthews_corrcoef):
        assert same(matrix.mT) == pytest.approx(float(same(matrix)))
    assert imbtorch.accuracy(matrix.mT) == imbtorch.accuracy(matrix)
    for other in (imbtorch.balanced_accuracy, imbtorch.geometric_mean):
        assert abs(other(matrix.mT) - other(matrix)) > 0.01
    assert torch.equal(imbtorch.recall(matrix.mT, average="none"), imbtorch.precision(matrix, average="none"))


def test_the_recipe_for_timm_leaves_out_what_its_sampler_repeats(monkeypatch):
    class ClassificationEvaluator:  # of timm 1.0.31
        metric_names = ("loss", "top1", "top5")

        def __init__(self, device=None, *, max_samples=None, criterion=None):
            self.max_samples = max_samples
            self.reset()

        def reset(self):
            self.num_samples = 0

        def update(self, output, target):
            left = len(target) if self.max_samples is None else max(0, self.max_samples - self.num_samples)
            self.num_samples += len(target[:left])

        def compute(self, distributed=False):
            return dict.fromkeys(self.metric_names[:3], 50.0)

    module_with(monkeypatch, "timm")
    module_with(monkeypatch, "timm.task", ClassificationEvaluator=ClassificationEvaluator)
    names = {"__name__": "trainers"}
    exec(dict(SNIPPETS)["timm"], names)
    assert SECTIONS["timm"].count("max_samples=evaluation_sample_limit(loader_eval)") == 2
    report = imbtorch.ImbalanceReport("multiclass", num_classes=3, measures=["iam"], per_class=())
    evaluator = names["ImbalanceEvaluator"](report, device="cpu", max_samples=5)
    logits, target = torch.eye(3)[torch.tensor([0, 1, 2, 0, 1, 0, 0])] - 0.5, torch.tensor([0, 1, 2, 0, 2, 0, 0])
    for _ in range(2):  # epochs
        evaluator.reset()
        for batch in torch.arange(7).split(3):
            evaluator.update(logits[batch], target[batch])
        assert report.result().counts.tolist() == [[2, 0, 0], [0, 1, 0], [0, 1, 1]]
    metrics = evaluator.compute()
    assert tuple(metrics) == evaluator.metric_names == ("loss", "top1", "top5", "iam")
    assert metrics["iam"] == pytest.approx((1 + 0 + 0) / 3)


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "masks"])
def test_the_recipe_for_torchgeo_counts_what_its_tasks_pass(task, monkeypatch):
    class ClassificationTask:  # of torchgeo 0.8.1
        def __init__(self, **hparams):
            self.hparams = hparams
            self.configure_metrics()

        def configure_metrics(self):
            self.train_metrics = self.val_metrics = self.test_metrics = "theirs"

        def validation_step(self, y_hat, y):
            self.val_metrics(y_hat, y)
            return self.val_metrics

    module_with(monkeypatch, "torchgeo")
    module_with(monkeypatch, "torchgeo.trainers", ClassificationTask=ClassificationTask)
    names = {"__name__": "trainers"}
    exec(dict(SNIPPETS)["torchgeo"], names)
    generator = torch.Generator().manual_seed(0)
    size = {"binary": (40,), "multiclass": (40, 3), "multilabel": (40, 3), "masks": (4, 3, 5, 5)}[task]
    logits = torch.randn(size, generator=generator)
    target = torch.randint(3, (4, 5, 5) if task == "masks" else (40,), generator=generator)
    hparams = {"task": task, "num_classes": 3, "num_labels": None}
    if task == "binary":
        target, hparams["num_classes"] = target.clamp(max=1), None
    elif task == "multilabel":
        target, hparams = (target[:, None] == torch.arange(3)).long(), {**hparams, "num_classes": None, "num_labels": 3}
    elif task == "masks":  # of SemanticSegmentationTask
        hparams |= {"task": "multiclass", "ignore_index": 0}
    made = names["ImbalanceTask"](**hparams)
    for batch in torch.arange(len(target)).split(3):
        report = made.validation_step(logits[batch], target[batch])
    preds = (logits > 0).long() if task in ("binary", "multilabel") else logits.argmax(1)
    if task == "multilabel":
        pairs = zip(target.T, preds.T, strict=True)
        expected = sum(sklearn.metrics.recall_score(*pair, average="macro") for pair in pairs) / 3
    elif task == "masks":
        expected = sklearn.metrics.recall_score(
            target[target > 0], preds[target > 0], labels=[1, 2], average="macro", zero_division=0
        )
    else:
        expected = sklearn.metrics.balanced_accuracy_score(target, preds)
    assert report.compute()["val_balanced_accuracy"] == pytest.approx(expected)
    assert next(iter(made.test_metrics)).startswith("test_")
    assert made.train_metrics == "theirs"


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:.*smaller than the logging interval"
)
def test_the_recipe_for_pytorch_tabular_counts_all_samples(tmp_path):
    lightning = import_or_skip("pytorch_lightning")
    names = {"__name__": "trainers"}
    exec(dict(SNIPPETS)["pytorch_tabular"], names)
    generator = torch.Generator().manual_seed(0)
    inputs, target = torch.randn(50, 3, generator=generator), torch.randint(3, (50, 1), generator=generator)

    class Model(lightning.LightningModule):  # as BaseModel of pytorch_tabular 1.2.0
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(3, 3)

        def training_step(self, batch, batch_idx):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1].squeeze(1))

        def validation_step(self, batch, batch_idx):
            return self.net(batch[0]), batch[1]

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    report = ImbalanceReport("multiclass", num_classes=3, logits=True, prefix="report_")
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    keeper = lightning.callbacks.ModelCheckpoint(tmp_path, monitor="report_balanced_accuracy", mode="max")
    callbacks = [names["ReportCallback"](report), keeper]
    trainer = lightning.Trainer(max_epochs=2, callbacks=callbacks, **options)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, target), batch_size=8)
    model = Model()
    trainer.fit(model, loader, loader)
    expected = sklearn.metrics.balanced_accuracy_score(target.squeeze(1), model.net(inputs).argmax(1))
    assert trainer.callback_metrics["report_balanced_accuracy"] == pytest.approx(expected)
    assert keeper.best_model_score is not None

    function = partial(imbtorch.functional.evaluate, "balanced_accuracy")  # called as by calculate_metrics
    probabilities = model.net(inputs).softmax(-1)
    assert function(probabilities, target.squeeze(), task="multiclass", num_classes=3) == pytest.approx(expected)


def test_the_recipe_for_chemprop_leaves_out_unknown_targets(monkeypatch):
    layers = dict.fromkeys(("BinaryClassificationFFN", "BondMessagePassing", "MeanAggregation"), SimpleNamespace)
    models = SimpleNamespace(MPNN=lambda *layers, metrics: SimpleNamespace(metrics=metrics))
    module_with(monkeypatch, "chemprop", nn=SimpleNamespace(**layers), models=models)
    names = {"__name__": "trainers"}
    exec(dict(SNIPPETS)["chemprop"], names)
    metric = names["model"].metrics[0]
    generator = torch.Generator().manual_seed(0)
    preds, targets = torch.rand(40, 2, generator=generator), torch.randint(2, (40, 2), generator=generator).float()
    targets[torch.rand(40, 2, generator=generator) < 0.3] = torch.nan
    for batch in torch.arange(40).split(7):  # as in MPNN._evaluate_batch of chemprop 2.3.1
        mask, ones = targets[batch].isfinite(), torch.ones(len(batch))
        metric.update(preds[batch], targets[batch].nan_to_num(nan=0.0), mask, ones, None, None)
    known = targets.isfinite()
    expected = sklearn.metrics.balanced_accuracy_score(targets[known], preds[known] > 0.5)
    assert metric.compute() == pytest.approx(expected)
    assert metric.alias == "balanced_accuracy"
    assert list(metric.state_dict()) == ["task_weights"]

    report = ImbalanceReport("multilabel", num_labels=2, ignore_index=-1)
    report.update(preds, targets.nan_to_num(nan=-1).long())
    assert report.result().counts.sum((1, 2)).tolist() == known.sum(0).tolist()


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
