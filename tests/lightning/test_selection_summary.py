"""What SelectionSummary tells of real trainings, whose confusion matrices are scripted and known exactly."""

import contextlib
import csv
import functools
import io
import itertools
import math
import re
import types

import lightning
import matplotlib as mpl
import numpy as np
import oracles
import pytest
import pytorch_lightning
import torch
from both_packages import CALLBACKS, EVERY_PACKAGE
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from processes import counted_collectives, launch
from report_cases import directed
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, exact, join_lightning, listening
from versions import loading, needs_callbacks_for

from imbtorch import ImbalanceReport, ThresholdSweep, accuracy, expected_cost, imbalance_accuracy
from imbtorch.lightning import ModelCheckpoint as TieKeeper
from imbtorch.lightning import SelectionSummary
from imbtorch.statistics import select_model

mpl.use("Agg")
from matplotlib import image
from matplotlib import pyplot as plt

pytestmark = [
    *(pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY),
    pytest.mark.filterwarnings(r"ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings(r"ignore:You're resuming from a checkpoint that ended before the epoch ended"),
]

# 20, 12 and 8 targets; IAM, accuracy and max-min choose different epochs, and the fourth is as the second
MATRICES = [
    [[14, 3, 3], [3, 8, 1], [3, 1, 4]],
    [[20, 0, 0], [3, 9, 0], [5, 0, 3]],
    [[15, 2, 3], [2, 9, 1], [1, 1, 6]],
    [[20, 0, 0], [3, 9, 0], [5, 0, 3]],
    [[18, 1, 1], [2, 9, 1], [4, 1, 3]],
]
MEASURES = ("iam", "accuracy", "balanced_accuracy", "gmean", "mcc")
EXACT = {
    "iam": oracles.imbalance_accuracy,
    "accuracy": oracles.accuracy,
    "balanced_accuracy": oracles.balanced_accuracy,
    "gmean": oracles.geometric_mean,
    "mcc": oracles.matthews_corrcoef,
    "bottom_line": oracles.bottom_line,
}
STEPS = 2  # training batches of an epoch


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def values(measure, matrices=None):
    return [float(EXACT[measure](matrix)) for matrix in (MATRICES if matrices is None else matrices)]


def best(values):
    return values.index(max(values))


def latest(values):
    return max(range(len(values)), key=lambda at: (round(values[at], 12), at))


def samples(matrix):
    """Targets and predictions that a matrix counts, targets in order."""
    cells = [(i, j) for i, row in enumerate(matrix) for j, count in enumerate(row) for _ in range(count)]
    return [torch.tensor(each) for each in zip(*cells, strict=True)]


@functools.cache
def scripted(package):
    class Scripted(package.LightningModule):
        """Predicts, after so many steps, what the matrix of that validation counts."""

        def __init__(self, matrices=None, every=STEPS, log=("val",), sanity=True, count=None, **reports):
            super().__init__()
            self.net = nn.Linear(1, 1)
            self.matrices, self.every, self.log_names, self.sanity = matrices or MATRICES, every, log, sanity
            self.pairs = [samples(matrix) for matrix in self.matrices]
            self.count = count or (lambda report, preds, target: report.update(preds, target))
            defaults = {"val": ImbalanceReport("multiclass", num_classes=len(self.matrices[0]), prefix="val_")}
            for name, report in (reports or defaults).items():
                setattr(self, name, report)
            self.counted, self.steps = tuple(reports or defaults), 0

        def training_step(self, batch, batch_idx):
            self.steps += 1
            return self.net(torch.ones(1)).sum()

        def validation_step(self, batch, batch_idx):
            target, preds = self.pairs[max(0, self.trainer.global_step // self.every - 1)]
            for name in self.counted:
                self.count(getattr(self, name), preds[batch[0]], target[batch[0]])

        def on_validation_epoch_end(self):
            for name in self.log_names if self.sanity or not self.trainer.sanity_checking else ():
                self.log_dict(getattr(self, name))

        test_step, on_test_epoch_end = validation_step, on_validation_epoch_end

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Scripted


def loaders(size=40, batches=STEPS):
    data = TensorDataset(torch.arange(size))
    return DataLoader(TensorDataset(torch.arange(2 * batches)), 2), exact(data, 7)


def run(module, *callbacks, package=lightning, checkpoint=None, batches=STEPS, **options):
    options = {"max_epochs": len(module.matrices), "logger": False, **QUIET, **options}
    needs_callbacks_for(package)
    saves = any(isinstance(each, CALLBACKS[package].ModelCheckpoint) for each in callbacks)
    trainer = package.Trainer(callbacks=list(callbacks), enable_checkpointing=saves, **options)
    resume = {} if checkpoint is None else loading(package, checkpoint, True)
    trainer.fit(module, *loaders(int(torch.tensor(module.matrices[0]).sum()), batches), **resume)
    return trainer


def summary(*callbacks, module=None, trainer=None, **options):
    """A summary after a run with other callbacks."""
    made = SelectionSummary(**options)
    run(module or scripted(lightning)(), made, *callbacks, **(trainer or {}))
    return made


def selected(made, how):
    """Row of the table of a summary."""
    return made.table()["selected"][how]


def columns_of(made):
    """Names of the measures in the table of a summary."""
    return tuple(selected(made, "Baseline"))


def matrices(history):
    return [counts.tolist() for counts in history.counts.values()]


# --- the table ------------------------------------------------------------------------------------------------------


@EVERY_PACKAGE
def test_each_row_is_the_epoch_that_exact_values_select(package, capsys):
    made = SelectionSummary()
    run(scripted(package)(), made, package=package)
    table = made.table()
    rows = table["selected"]
    assert [*rows] == [*(f"best {name}" for name in MEASURES), "Baseline"]
    columns = {name: values(name) for name in MEASURES}
    for name, wanted in columns.items():
        row = rows[f"best {name}"]
        assert row["epoch"] == latest(wanted)
        assert {other: row[other] for other in MEASURES} == pytest.approx(
            {other: column[row["epoch"]] for other, column in columns.items()}, abs=1e-12
        )
        tied = sum(math.isclose(value, max(wanted), rel_tol=1e-12) for value in wanted)
        assert row["tied"] == (tied if tied > 1 else None)
        marked = {other for other in MEASURES if row[other].mark == "*"}
        assert marked == {other for other, column in columns.items() if column[row["epoch"]] >= max(column) - 1e-12}
    assert {rows["best iam"]["epoch"], rows["best accuracy"]["epoch"]} == {2, 3}  # the script has them differ
    assert rows["best accuracy"]["tied"] == 2
    printed = capsys.readouterr().out
    assert printed == f"\n{table}\n"
    assert "Kept and best epochs of 5 validations of self.val (epochs count from 0; * best of all epochs)\n" in printed
    assert re.search(r"\nselected +epoch  tied  +iam ", printed)
    assert re.search(r"\nbest accuracy +3 +2 ", printed)
    assert max(map(len, printed.splitlines())) <= 100
    assert f"*{max(columns['iam']):.3f}" in printed
    assert "P(better)" not in printed
    assert "corrected  " not in printed


def test_many_measures_and_long_names_stay_within_100_columns(tmp_path):
    names = {f"a_measure_with_a_very_long_name_{index}": "iam" for index in range(12)}
    report = ImbalanceReport("multiclass", 3, measures=names, prefix="validation/of/a/long/path/")
    keeper = ModelCheckpoint(
        tmp_path, monitor="validation/of/a/long/path/a_measure_with_a_very_long_name_3", mode="max"
    )
    made = summary(keeper, module=scripted(lightning)(val=report), measures=tuple(names))
    text = str(made.table())
    assert max(map(len, text.splitlines())) <= 100
    assert "\nkept by validation/.._a_very_long_name_3 " in text
    assert text.count("\nbest ") > len(names)  # in several blocks
    assert text.count(f"{max(values('iam')):.3f}") >= len(names)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_prints_what_was_counted_until_then(error, capsys):
    class Interrupted(scripted(lightning)):
        def on_train_epoch_start(self):
            if self.current_epoch == 3:
                raise error

    made = SelectionSummary()
    with pytest.raises((error, SystemExit)):
        run(Interrupted(), made)
    printed = capsys.readouterr().out
    assert "Kept and best epochs of 3 validations" in printed
    assert printed == f"\n{made.table()}\n"
    assert selected(made, "best iam")["epoch"] == 2


class WithLoss(scripted(lightning)):
    def on_validation_epoch_end(self):
        super().on_validation_epoch_end()
        self.log("val_loss", -float(self.trainer.global_step))


def situation(**options):
    """The row of the studies at the end of the printed text, as one line."""
    text = " ".join(str(summary(**options).table()).split())
    return text.partition('- Situation (README, "What to monitor"): ')[2]


def test_of_epochs_of_infinite_value_the_latest_is_selected():
    scripts = [[[8, 2], [1, 9]], [[10, 0], [3, 7]], [[10, 0], [2, 8]]]  # the last two without a false alarm
    module = scripted(lightning)(scripts, val=ImbalanceReport("binary", prefix="val_"))
    row = selected(summary(module=module, measures=("likelihood_ratio",)), "best likelihood_ratio")
    assert (row["epoch"], row["tied"], row["likelihood_ratio"]) == (2, 2, math.inf)


def test_max_min_is_the_lowest_of_the_five_measures_of_the_paper():
    """Not of those that are named: a G-mean of 0 in every epoch would tie all of them."""
    made = summary(measures=("gmean", "bottom_line"))
    five = [oracles.accuracy, *(functools.partial(each) for each in (oracles.precision, oracles.recall))]
    five += [oracles.f_score, oracles.class_balance_accuracy]
    lowest = [float(min(measure(matrix) for measure in five)) for matrix in MATRICES]
    assert made.history().values["bottom_line"].tolist() == pytest.approx(lowest)
    assert selected(made, "best bottom_line")["epoch"] == best(lowest)


def test_ties_and_the_baseline_are_told():
    made = summary()
    assert re.search("\nBaseline +-0.667 +0.500 +0.333 +0.000 +0.000\n", str(made.table()))
    assert made.table().notes == (
        "Baseline: always predicting '0'",
        "tied: number of epochs that share the best value; best rows show the latest of them",
        "The best of several values is too high, because it was selected; report its value on test data",
    )
    assert len(summary(trainer={"max_epochs": 1}).table().notes) == 1  # one epoch is no choice


def test_the_history_is_what_was_counted_and_select_model_takes_it():
    made = summary()
    history = made.history()
    assert matrices(history) == MATRICES
    assert (history.epochs, history.steps) == ((0, 1, 2, 3, 4), (2, 4, 6, 8, 10))
    for name in MEASURES:
        assert history.values[name].dtype == torch.float64
        assert history.values[name].tolist() == pytest.approx(values(name), abs=1e-12)
    found = select_model(history.counts, {"accuracy": accuracy, "iam": imbalance_accuracy})
    assert found.by_measure["accuracy"] == ("epoch 3", "epoch 1")
    assert found.by_iam == (f"epoch {selected(made, 'best iam')['epoch']}",)


def test_lower_is_better_where_the_report_says_so_and_without_a_direction_nothing_is_selected():
    report = ImbalanceReport(
        "multiclass",
        num_classes=3,
        prefix="val_",
        measures={
            "wrong": directed(lambda counts: (counts.sum() - counts.trace()).double(), False),
            "first": lambda counts: counts[0, 0],
        },
    )
    made = summary(
        module=scripted(lightning)(val=report), measures=("wrong", "first", "val_recall/2", "iam", "accuracy")
    )
    table = made.table()
    rows = table["selected"]
    assert [*rows] == ["best wrong", "best recall/2", "best iam", "best accuracy", "Baseline"]
    wrong = [sum(map(sum, matrix)) - sum(matrix[k][k] for k in range(3)) for matrix in MATRICES]
    rare = [matrix[2][2] / 8 for matrix in MATRICES]
    assert rows["best wrong"]["epoch"] == latest([-value for value in wrong])
    assert rows["best wrong"]["tied"] == 2
    assert rows["best wrong"]["first"] == MATRICES[rows["best wrong"]["epoch"]][0][0]
    assert made.history().values["wrong"].tolist() == wrong
    assert made.history().values["recall/2"].tolist() == pytest.approx(rare)
    assert "first: no direction is known, so no epoch is selected" in table.notes


def test_what_is_monitored_is_shown_and_kept_comes_first(tmp_path):
    made = summary(ModelCheckpoint(tmp_path, monitor="val_iam", mode="max"), measures=("accuracy", "mcc"))
    rows = made.table()["selected"]
    assert [*rows] == ["kept by val_iam", "best accuracy", "best mcc", "best iam", "Baseline"]
    assert [*rows["Baseline"]] == ["accuracy", "mcc", "iam"]
    rows = summary(measures=("mcc",), trainer={"max_epochs": 1}).table()["selected"]
    assert [*rows] == ["best mcc", "Baseline"]
    assert rows["best mcc"]["epoch"] == 0


def test_measures_are_read_at_the_prevalence_that_the_report_reads_them_at():
    """Recalls .8 and .7, then .9 and .55: at 10 to 2 the second is the more accurate, at 1 to 1 the first."""
    pair = [[[80, 20], [6, 14]], [[90, 10], [9, 11]]]
    report = ImbalanceReport("binary", prefix="val_", prevalence=[1, 1])
    made = summary(module=scripted(lightning)(pair, val=report), measures=("accuracy",))
    assert made.history().values["accuracy"].tolist() == pytest.approx([0.75, 0.725])
    assert selected(made, "best accuracy")["epoch"] == 0


def test_one_measure_with_other_costs_is_monitored(tmp_path):
    costs = {name: torch.ones(3, 3) - torch.eye(3) + torch.eye(3)[place] for place, name in enumerate(("a", "b", "c"))}
    costs["same"] = costs["a"].clone()
    measures = {name: functools.partial(expected_cost, costs=each) for name, each in costs.items()}
    module = scripted(lightning.pytorch)(val=ImbalanceReport("multiclass", 3, measures=measures, prefix="val_"))
    keepers = [ModelCheckpoint(tmp_path / name, monitor=f"val_{name}") for name in ("b", "same")]
    made = summary(*keepers, module=module, measures=("a",))
    assert columns_of(made) == ("a", "b", "same")
    for how, name in (("val_b", "b"), ("val_same", "same")):
        values = [(torch.tensor(matrix) * costs[name]).sum().item() for matrix in MATRICES]
        assert selected(made, f"kept by {how}")["epoch"] == values.index(min(values))


def test_the_note_on_ties_says_which_of_them_the_checkpoints_keep(tmp_path):
    module = scripted(lightning)([[[8, 2], [1, 4]]] * 2, val=ImbalanceReport("binary", prefix="val_"))
    made = summary(ModelCheckpoint(tmp_path, monitor="val_accuracy", mode="max"), module=module, measures=("iam",))
    table = made.table()
    assert columns_of(made) == ("iam", "accuracy")
    *rows, _ = table["selected"].values()
    assert [(row["epoch"], row["tied"]) for row in rows] == [(0, 2)] * 3
    (note,) = [note for note in table.notes if note.startswith("tied: ")]  # Lightning's own callback is attached
    assert note.endswith("best rows show the earliest of them")
    made.plot()


def test_the_worst_group_is_monitored_and_read_off_its_logged_values(tmp_path):
    grouped = ImbalanceReport("multiclass", num_classes=3, prefix="val_", groups=["even", "odd"])
    module = scripted(lightning)(
        val=grouped, count=lambda report, preds, target: report.update(preds[:, 0], target, group=preds[:, 1])
    )
    module.pairs = [(target, torch.stack((preds, torch.arange(40) % 2), 1)) for target, preds in module.pairs]
    keeper = ModelCheckpoint(tmp_path, monitor="val_iam_worst", mode="max")
    callback = summary(keeper, module=module)
    expected = []
    for target, preds in map(samples, MATRICES):
        parts = [(target[half::2], preds[half::2]) for half in (0, 1)]
        matrices = [sklearn_metrics.confusion_matrix(*part, labels=[0, 1, 2]).tolist() for part in parts]
        expected.append(min(float(oracles.imbalance_accuracy(matrix)) for matrix in matrices))
    assert callback.history().values["iam_worst"].tolist() == pytest.approx(expected, abs=1e-6)
    assert selected(callback, "best iam_worst")["epoch"] == best(expected)
    assert selected(callback, "kept by val_iam_worst")["epoch"] == best(expected)


def test_names_of_the_catalogue_are_read_as_the_report_would():
    names = ("geometric_mean", "specificity", "iba", "confusion_entropy")
    report = ImbalanceReport("binary", prefix="val_", measures={}, per_class=("recall",))
    pair = [[[80, 20], [6, 14]], [[90, 10], [9, 11]]]
    made = summary(module=scripted(lightning)(pair, val=report), measures=names)
    found = made.history().values
    for name, oracle, arguments in (
        ("geometric_mean", oracles.geometric_mean, {}),
        ("specificity", oracles.specificity, {"average": "binary"}),
        ("iba", oracles.index_balanced_accuracy, {}),
        ("confusion_entropy", oracles.confusion_entropy, {}),
    ):
        assert found[name].tolist() == pytest.approx([float(oracle(matrix, **arguments)) for matrix in pair])
    assert selected(made, "best confusion_entropy")["epoch"] == best(
        [-value for value in found["confusion_entropy"].tolist()]
    )


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_labels_are_averaged():
    def count(report, preds, target):
        report.update(torch.stack((preds == 1, preds == 2), 1).long(), torch.stack((target == 1, target == 2), 1))

    report = ImbalanceReport("multilabel", num_labels=2, prefix="val_")
    made = summary(module=scripted(lightning)(val=report, count=count), measures=("accuracy", "recall", "recall/1"))
    assert [list(counts.shape) for counts in made.history().counts.values()] == [[2, 2, 2]] * 5
    wanted = {"accuracy": [], "recall": [], "recall/1": []}
    for matrix in MATRICES:
        target, preds = (each.numpy() for each in samples(matrix))
        wanted["accuracy"].append(np.mean([((target == k) == (preds == k)).mean() for k in (1, 2)]))
        recalls = sklearn_metrics.recall_score(target, preds, average=None)[1:]
        wanted["recall"].append(recalls.mean())
        wanted["recall/1"].append(recalls[1])
    for name, column in wanted.items():
        assert made.history().values[name].tolist() == pytest.approx(column)
        assert selected(made, f"best {name}")["epoch"] == latest(column)
    assert made.table().notes[0] == "Baseline: predicting no label"
    assert selected(made, "Baseline") == {"accuracy": 0.75, "recall": 0.0, "recall/1": 0.0}
    made.plot()


def test_margins_are_selected_from_without_intervals():
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", state="margins")
    made = summary(module=scripted(lightning)(val=report))
    assert selected(made, "best iam")["epoch"] == best(values("iam"))
    assert made.history().values["mcc"].tolist() == pytest.approx(values("mcc"))
    assert made.history().counts["epoch 1"].predicted.tolist() == [28, 9, 3]
    _, ax = made.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [*MEASURES, "baseline"]
    with pytest.raises(ValueError, match="'confusion_entropy' needs the whole matrix"):
        summary(module=scripted(lightning)(val=report), measures=("confusion_entropy",))


def test_a_class_that_is_ignored_is_left_out():
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", ignore_index=0)
    module = scripted(lightning)(val=report)
    made = summary(module=module, measures=("iam", "balanced_accuracy", "gmean"))
    for matrix, rate in zip(MATRICES, made.history().values["balanced_accuracy"].tolist(), strict=True):
        assert rate == pytest.approx((matrix[1][1] / 12 + matrix[2][2] / 8) / 2)
    assert made.history().counts["epoch 0"][0].tolist() == [0, 0, 0]
    for name in ("iam", "gmean"):  # the report's own reading
        assert made.history().values[name][-1].item() == pytest.approx(
            module.trainer.callback_metrics[f"val_{name}"].item()
        )


# --- checkpoints ----------------------------------------------------------------------------------------------------


class Deleter(lightning.Callback):
    """Removes a checkpoint as soon as it is there."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_batch_start(self, *_):
        for path in self.folder.glob("*.ckpt"):
            path.unlink()


KEEPERS = {
    "iam": {"monitor": "val_iam", "mode": "max"},
    "accuracy": {"monitor": "val_accuracy", "mode": "max"},
    "the last": {},
    "every epoch": {"save_top_k": -1, "monitor": "val_mcc", "mode": "max"},
    "last as well": {"monitor": "val_iam", "mode": "max", "save_last": True},
    "every second": {"monitor": "val_iam", "mode": "max", "every_n_epochs": 2},
    "one file": {"monitor": "val_iam", "mode": "max", "filename": "best"},
    "one file, the last": {"filename": "best"},
    "weights": {"monitor": "val_iam", "mode": "max", "save_weights_only": True},
    "after validation": {"monitor": "val_iam", "mode": "max", "save_on_train_epoch_end": False},
}


@pytest.mark.parametrize(("package", "kind"), [*((lightning, kind) for kind in KEEPERS), (pytorch_lightning, "iam")])
def test_the_epoch_that_a_checkpoint_kept(package, kind, tmp_path):
    saver = CALLBACKS[package].ModelCheckpoint(tmp_path, **KEEPERS[kind])
    made = SelectionSummary()
    run(scripted(package)(), made, saver, package=package)
    saved = torch.load(saver.best_model_path, weights_only=True)
    monitor = KEEPERS[kind].get("monitor")
    first, *others = made.table()["selected"]
    assert first == (f"kept by {monitor}" if monitor else "kept last")
    assert not [how for how in others if how.startswith("kept ")]
    row = selected(made, first)
    assert row["epoch"] == saved["epoch"]
    assert made.history().at(saved["epoch"], saved["global_step"]) is not None
    assert row["accuracy"] == pytest.approx(values("accuracy")[row["epoch"]])
    wanted = {"val_iam": 2, "val_accuracy": 1, "val_mcc": best(values("mcc")), None: 4}[monitor]
    assert row["epoch"] == (wanted if kind != "every second" else 1 + 2 * best(values("iam", MATRICES[1::2])))


@pytest.mark.parametrize(("ties", "epoch"), [("latest", 3), ("earliest", 1), (None, 1)])
def test_the_table_follows_the_rule_for_ties_of_the_attached_callback(ties, epoch, tmp_path):
    options = {"monitor": "val_accuracy", "mode": "max"}
    saver = ModelCheckpoint(tmp_path, **options) if ties is None else TieKeeper(tmp_path, **options, ties=ties)
    last = ModelCheckpoint(tmp_path / "last")  # monitors nothing, so has no rule
    table = summary(last, saver, measures=("accuracy", "iam")).table()
    row = table["selected"]["best accuracy"]
    assert (row["epoch"], row["tied"]) == (epoch, 2)
    assert table["selected"]["kept by val_accuracy"]["epoch"] == epoch
    assert table.notes[1].endswith(f"best rows show the {ties or 'earliest'} of them")


def test_rows_of_one_monitor_are_named_by_their_rules_for_ties(tmp_path):
    """Epochs 1 and 3 tie; each checkpoint keeps another one, and the file shows which."""
    options = {"monitor": "val_accuracy", "mode": "max"}
    for kinds, shown in (((TieKeeper, ModelCheckpoint), "latest"), ((ModelCheckpoint, TieKeeper), "earliest")):
        keepers = [kind(tmp_path / f"{shown}-{at}", **options) for at, kind in enumerate(kinds)]
        table = summary(*keepers, measures=("accuracy",)).table()
        rows = table["selected"]
        assert rows["kept by val_accuracy (latest of ties)"]["epoch"] == 3
        assert rows["kept by val_accuracy (earliest of ties)"]["epoch"] == 1
        assert [row.get("tied") for row in rows.values()] == [2, 2, 2, None]
        (note,) = [note for note in table.notes if note.startswith("tied: ")]
        assert note.endswith(f"best rows show the {shown} of them")
        assert rows["best accuracy"]["epoch"] == {"latest": 3, "earliest": 1}[shown]


def test_several_checkpoints_and_one_whose_file_is_gone(tmp_path):
    keepers = [
        ModelCheckpoint(tmp_path / "a", monitor="val_iam", mode="max"),
        ModelCheckpoint(tmp_path / "b", monitor="val_iam", mode="max", every_n_epochs=2),
        ModelCheckpoint(tmp_path / "c", monitor="val_precision/2", mode="max"),
        ModelCheckpoint(tmp_path / "none", save_top_k=0),
    ]
    made = summary(*keepers, Deleter(tmp_path / "c"))
    table = made.table()
    rows = table["selected"]
    assert [*rows][:3] == ["kept by val_iam (1)", "kept by val_iam (2)", "kept by val_precision/2"]
    precision = [matrix[2][2] / max(1, sum(row[2] for row in matrix)) for matrix in MATRICES]
    assert [row.get("epoch") for row in rows.values()][:3] == [2, 1, best(precision)]
    assert columns_of(made) == (*MEASURES, "precision/2")  # what is monitored is shown as well
    assert rows["best precision/2"]["epoch"] == best(precision)


def test_a_checkpoint_of_a_step_without_a_validation_has_no_values(tmp_path):
    saver = ModelCheckpoint(tmp_path, every_n_train_steps=3)
    made = summary(saver, module=scripted(lightning)(MATRICES[:2]), trainer={"max_epochs": 2})
    row = selected(made, "kept last")
    assert row["epoch"] == 1
    assert all(math.isnan(row[name]) for name in columns_of(made))
    assert re.search(r"\nkept last +1( +-){5}\n", str(made.table()))
    assert "kept last: the weights of step 3 were not validated" in made.table().notes
    made.plot()


# --- what enters the history ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sanity", [0, 1, -1])
def test_neither_the_sanity_check_nor_validate_nor_test_enters(sanity):
    module, made = scripted(lightning)(), SelectionSummary()
    trainer = run(module, made, num_sanity_val_steps=sanity, max_epochs=2)
    trainer.validate(module, loaders()[1], verbose=False)
    trainer.test(module, loaders()[1], verbose=False)
    assert matrices(made.history()) == MATRICES[:2]


def test_the_history_outlives_a_look_at_the_best_checkpoint(tmp_path):
    """Lightning restores callbacks in ``validate`` and ``test`` too, and a checkpoint knows the epochs before it."""
    module, made = scripted(lightning)(), SelectionSummary()
    saver = ModelCheckpoint(tmp_path, monitor="val_iam", mode="max")
    trainer = run(module, made, saver, max_epochs=4)
    table = str(made.table())
    for act in (trainer.validate, trainer.test):
        act(module, loaders()[1], **loading(lightning, saver.best_model_path, True), verbose=False)
        assert matrices(made.history()) == MATRICES[:4]
        assert str(made.table()) == table


def test_validations_of_one_epoch_are_told_apart(tmp_path):
    keeper = ModelCheckpoint(tmp_path, monitor="val_iam", mode="max")
    made = summary(keeper, module=scripted(lightning)(every=1), trainer={"val_check_interval": 0.5, "max_epochs": 2})
    history = made.history()
    assert list(history.counts) == [f"epoch {epoch}, step {step}" for epoch, step in ((0, 1), (0, 2), (1, 3), (1, 4))]
    assert matrices(history) == MATRICES[:4]
    for how in ("best iam", "kept by val_iam"):
        assert (selected(made, how)["epoch"], selected(made, how)["step"]) == (1, 3)
    _, ax = made.plot()
    assert ax.get_xlabel() == "Step"
    assert list(ax.lines[0].get_xdata()) == [1, 2, 3, 4]


def test_validations_of_the_same_step_are_of_the_same_weights():
    made = summary(trainer={"val_check_interval": 0.25, "accumulate_grad_batches": 4, "batches": 4, "max_epochs": 1})
    assert (made.history().epochs, made.history().steps) == ((0, 0), (0, 1))


def test_validation_every_second_epoch():
    made = summary(trainer={"check_val_every_n_epoch": 2, "max_epochs": 4})
    assert made.history().epochs == (1, 3)
    assert matrices(made.history()) == [MATRICES[1], MATRICES[3]]


def test_a_callback_used_again_starts_anew():
    made = SelectionSummary()
    run(scripted(lightning)(), made)
    report = ImbalanceReport("binary", prefix="val_")
    pair = [[[80, 20], [6, 14]], [[90, 10], [9, 11]]]
    trainer = run(scripted(lightning)(pair, val=report), made)
    assert matrices(made.history()) == pair
    trainer.fit_loop.max_epochs = 3  # goes on where it was
    module = scripted(lightning)([*pair, pair[0]], val=report)
    trainer.fit(module, *loaders(120))
    assert matrices(made.history()) == [*pair, pair[0]]


def test_nothing_to_tell():
    """Neither before a fit nor after one without validation."""
    made = SelectionSummary()
    for _ in range(2):
        for result in (made.history, made.table, made.plot):
            with pytest.raises(RuntimeError, match="no validation of fit was kept yet"):
                result()
        with listening() as told:
            run(scripted(lightning)(), made, limit_val_batches=0, max_epochs=1)
        assert told == []


# --- resuming -------------------------------------------------------------------------------------------------------


def test_a_resumed_run_has_the_history_of_an_uninterrupted_one(tmp_path):
    script = [MATRICES[2], *MATRICES[:2], MATRICES[4], MATRICES[3]]  # the best by IAM comes first

    def go(folder, epochs, checkpoint=None, **options):
        keepers = [
            ModelCheckpoint(folder, "best-{epoch}", monitor="val_iam", mode="max"),
            ModelCheckpoint(folder, "last-{epoch}", save_top_k=-1, every_n_epochs=1),
        ]
        made = SelectionSummary(**options)
        run(scripted(lightning)(script), *keepers, made, max_epochs=epochs, checkpoint=checkpoint)
        return made

    whole = go(tmp_path / "whole", 5)
    go(tmp_path / "parts", 3)
    resumed = go(tmp_path / "parts", 5, tmp_path / "parts" / "last-epoch=2.ckpt")
    for made in (whole, resumed):
        assert matrices(made.history()) == script
        assert made.history().epochs == (0, 1, 2, 3, 4)
    assert str(resumed.table()) == str(whole.table())
    assert selected(resumed, "kept by val_iam")["epoch"] == 0
    # from an earlier checkpoint, whose own epoch is the one that is kept, and with other measures
    again = go(tmp_path / "parts", 3, tmp_path / "parts" / "best-epoch=0.ckpt", measures=("gmean",))
    assert matrices(again.history()) == script[:3]
    assert selected(again, "kept by val_iam")["epoch"] == 0
    assert columns_of(again) == ("gmean", "iam")


def test_a_run_that_began_without_the_callback(tmp_path):
    keeper = {"dirpath": tmp_path / "a", "monitor": "val_iam", "mode": "max"}
    script = [MATRICES[2], *MATRICES[:2]]
    first = ModelCheckpoint(**keeper)
    run(scripted(lightning)(script), first, max_epochs=1)
    made = summary(ModelCheckpoint(tmp_path / "b", monitor="val_iam", mode="max"))  # of another run
    run(scripted(lightning)(script), made, ModelCheckpoint(**keeper), checkpoint=first.best_model_path)
    assert made.history().epochs == (1, 2)
    row = selected(made, "kept by val_iam")
    assert all(math.isnan(row[name]) for name in ("epoch", *columns_of(made)))
    assert "kept by a run before this history" in str(made.table())


def test_a_history_that_counts_otherwise_is_refused(tmp_path):
    keeper = {"dirpath": tmp_path, "monitor": "val_iam", "mode": "max"}
    first = ModelCheckpoint(**keeper)
    run(scripted(lightning)(), first, SelectionSummary(), max_epochs=1)
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", ignore_index=0)
    module = scripted(lightning)(val=report)
    with pytest.raises(ValueError, match=r"the report 'val' counts otherwise \(matrix_multiclass_3_ignore_0\) than"):
        run(module, SelectionSummary(), ModelCheckpoint(**keeper), checkpoint=first.best_model_path)
    assert module.steps == 0


@pytest.mark.filterwarnings("ignore:ImbalanceReport. 997 of 1000 classes had no target")
def test_many_classes_weigh_little_in_a_checkpoint():
    made, report = SelectionSummary(), ImbalanceReport("multiclass", num_classes=1000, prefix="val_", per_class=())
    run(scripted(lightning)(val=report), made, max_epochs=1)
    (entry,) = made.state_dict()["validations"]
    assert len(entry["cells"]) == len(entry["counts"]) == 9
    (counts,) = made.history().counts.values()
    assert counts.shape == (1000, 1000)
    assert counts[:3, :3].tolist() == MATRICES[0]
    assert counts.sum() == 40


# --- which report and which measures --------------------------------------------------------------------------------


def two(**options):
    reports = {name: ImbalanceReport("multiclass", num_classes=3, prefix=f"{name}_") for name in ("val", "other")}
    return scripted(lightning)(**options, **reports)


@pytest.mark.filterwarnings(r"ignore:self\.val still held")  # counted and not logged
def test_of_several_reports_the_one_that_a_callback_monitors(tmp_path):
    with pytest.raises(
        ValueError, match=r"several reports \(val, other\); choose one, as in SelectionSummary\(report='val'"
    ):
        summary(module=two(log=("val", "other")))
    assert matrices(summary(module=two(log=("val", "other")), report="other").history()) == MATRICES
    keeper = ModelCheckpoint(tmp_path, monitor="other_iam", mode="max")
    made = summary(keeper, module=two(log=("val", "other")))
    assert made.table().title.startswith("Kept and best epochs of 5 validations of self.other ")
    assert "kept by other_iam" in made.table()["selected"]


def test_a_report_that_is_not_logged_is_told_once():
    """Once by the summary, and once by the guard, since nothing resets what is not logged."""
    with listening() as told:
        summary(module=scripted(lightning)(log=()))
    piled, text = told
    assert piled.startswith("self.val still held 2 earlier updates when this validation began")
    assert "call self.val.update(...) in validation_step and self.log_dict(self.val) in on_validation_epoch_end" in text
    with listening() as told:
        summary(module=two(log=("val",)), report="other")
    piled, text = told
    assert piled.startswith("self.other still held 2 earlier updates")
    assert "self.log_dict(self.other)" in text
    with listening() as told:  # who logs nothing in the sanity check has its samples in the first epoch
        made = summary(module=scripted(lightning)(sanity=False))
    (piled,) = told
    assert piled.startswith("self.val still held 2 earlier updates")
    assert [int(counts.sum()) for counts in made.history().counts.values()] == [53, 40, 40, 40, 40]


def test_several_summaries_beside_each_other(tmp_path):
    both = [SelectionSummary(name) for name in ("val", "other")]
    keeper = ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max")
    run(two(log=("val", "other")), *both, keeper, max_epochs=2, logger=CSVLogger(tmp_path, ""))
    assert {path.name for path in tmp_path.glob("**/*_selection*")} == {
        "other_selection.png",
        "other_selection_table.txt",
        "val_selection.png",
        "val_selection_table.txt",
    }
    states = torch.load(keeper.best_model_path, weights_only=True)["callbacks"]
    assert {"SelectionSummary{'report': 'val'}", "SelectionSummary{'report': 'other'}"} <= set(states)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"report": "oops"}, r"no report 'oops'; it has \['val'\]$"),
        ({"report": "iam"}, r"no report 'iam'; it has \['val'\]; to choose the measure write measures=\['iam'\]$"),
        ({"measures": ("iam", "oops")}, "'oops', which is unknown; names are iam, cba, .*recall/..., .*, dominance"),
        ({"measures": ("recall/oops",)}, "'recall/oops', which is unknown"),
    ],
)
def test_unknown_names_raise_before_the_first_step(options, error):
    module = scripted(lightning)()
    with pytest.raises(ValueError, match=error):
        summary(module=module, **options)
    assert module.steps == 0


def test_a_module_without_a_report():
    module = scripted(lightning)(val=nn.Identity(), log=(), count=lambda *_: None)
    with pytest.raises(ValueError, match="needs an ImbalanceReport, and the module has none"):
        summary(module=module)


@pytest.mark.parametrize(
    ("measures", "error", "text"),
    [
        ("iam", TypeError, "sequence of names such as"),
        ((imbalance_accuracy,), TypeError, "sequence of names"),
        ((), ValueError, "one measure or more"),
        (("iam", "mcc", "iam"), ValueError, "none twice"),
    ],
)
def test_measures_are_names(measures, error, text):
    with pytest.raises(error, match=text):
        SelectionSummary(measures=measures)


def test_a_report_is_a_name():
    for given in (["iam", "mcc"], ImbalanceReport("binary")):
        with pytest.raises(TypeError, match=rf"such as 'val', and measures=\[...\], got {re.escape(repr(given))}$"):
            SelectionSummary(given)


# --- files ----------------------------------------------------------------------------------------------------------


def test_table_and_picture_are_logged(tmp_path, capsys):
    keeper = ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max")
    made = summary(keeper, trainer={"logger": CSVLogger(tmp_path, "", version="log")})
    text = (tmp_path / "log" / "val_selection_table.txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"\n{made.table()}\n"
    assert text.strip() == str(made.table())
    picture = image.imread(tmp_path / "log" / "figures" / "val_selection.png")
    assert min(picture.shape[:2]) > 500
    assert len({tuple(pixel) for row in picture[::3, ::3, :3].tolist() for pixel in row}) > 20


def test_the_table_as_csv(tmp_path):
    made = summary(ModelCheckpoint(tmp_path, monitor="val_iam", mode="max"))
    made.table().to_csv(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["kind", "name", "epoch", "tied", *MEASURES]
    kept, by_iam, accuracy = rows[:3]
    assert by_iam[:4] == ["selected", "best iam", "2", ""]
    assert accuracy[:4] == ["selected", "best accuracy", "1", "2"]  # the fourth is as the second
    assert [float(cell) for cell in by_iam[4:]] == pytest.approx([values(name)[2] for name in MEASURES])
    assert kept[1] == "kept by val_iam"
    assert rows[-1][1:4] == ["Baseline", "", ""]


def test_the_picture_shows_all_measures_and_marks_every_choice(tmp_path):
    made = summary(ModelCheckpoint(tmp_path, monitor="val_iam", mode="max"))
    _, ax = made.plot()
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    for name in MEASURES:
        assert lines[name] == pytest.approx(values(name))
    dotted = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":" and len(line.get_ydata()) == 2]
    always = [[20, 0, 0], [12, 0, 0], [8, 0, 0]]
    assert {round(float(EXACT[name](always)), 9) for name in MEASURES} <= {round(value, 9) for value in dotted}
    (strip,) = ax.child_axes
    named = [text.get_text() for text in strip.get_yticklabels()]
    assert named == ["kept by val_iam", *MEASURES]
    marked = {
        line.get_ydata()[0]: line.get_xdata()[0] for line in strip.lines if line.get_marker() not in ("None", None)
    }
    *rows, _ = made.table()["selected"].values()
    assert [marked[row] for row in range(len(named))] == [row["epoch"] for row in rows]


# --- two processes --------------------------------------------------------------------------------------------------


def trained(rank, world, folder):
    join_lightning(world)
    made = SelectionSummary()
    calls = []
    for number, callbacks in enumerate(([], [made])):
        module = scripted(lightning)(every=STEPS // world)
        options = {"strategy": "ddp", "devices": world, "logger": CSVLogger(f"{folder}/log", str(number), "")}
        with listening() as told, counted_collectives() as made_now:
            run(module, *callbacks, EarlyStopping("val_iam", mode="max", patience=9), **options)
        calls.append(list(made_now))
    history, epoch = made.history(), selected(made, "best iam")["epoch"]
    return types.SimpleNamespace(matrices=matrices(history), epoch=epoch, calls=calls, told=told)


def test_two_processes_have_the_history_of_one(tmp_path):
    alone = matrices(summary().history())
    for rank in launch(2, trained, str(tmp_path)):
        assert rank.matrices == alone == MATRICES
        assert rank.epoch == 2
        assert rank.told == []
        without, with_summary = rank.calls
        assert with_summary == without != []  # it never communicates
    logged = {str(path.relative_to(tmp_path / "log")) for path in tmp_path.glob("log/**/*.*")}
    assert {name for name in logged if not name.endswith("hparams.yaml")} == {  # which older Lightning always writes
        "0/metrics.csv",
        "1/metrics.csv",
        "1/figures/val_selection.png",
        "1/val_selection_table.txt",
    }


class Watched(SelectionSummary):
    """Counts the collectives of what it does after an exception."""

    def on_exception(self, trainer, pl_module, exception):
        with counted_collectives() as self.calls:
            super().on_exception(trainer, pl_module, exception)


def failing(rank, world, folder, failing_rank, error):
    """Train until one process fails in its fourth epoch; the other then waits for it in vain."""
    join_lightning(world)

    class Failing(scripted(lightning)):
        def on_train_epoch_start(self):
            if self.current_epoch == 3 and rank == failing_rank:
                raise error("of one process")

    made = Watched()
    options = {"strategy": "ddp", "devices": world, "logger": CSVLogger(folder, "log", "")}
    raised, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            run(Failing(every=STEPS // world), made, **options)
        except BaseException as failure:
            raised = type(failure).__name__
    return types.SimpleNamespace(raised=raised, printed=printed.getvalue(), table=str(made.table()), calls=made.calls)


@pytest.mark.parametrize(("failing_rank", "error"), [(0, KeyboardInterrupt), (1, RuntimeError)])
def test_where_one_of_two_processes_fails_rank_zero_prints_what_it_counted(failing_rank, error, tmp_path):
    zero, one = launch(2, failing, str(tmp_path), failing_rank, error, timeout=60.0)
    assert None not in (zero.raised, one.raised)
    assert "Kept and best epochs of 3 validations of self.val " in zero.table
    assert zero.printed == f"\n{zero.table}\n"
    assert one.printed == ""
    assert zero.calls == one.calls == []  # nobody else is asked
    assert re.search(rf"\nbest iam +2 +\*{max(values('iam')[:3]):.3f} ", zero.table)
    assert not [*tmp_path.glob("**/*selection*")]  # nor a logger


def test_the_script_is_what_the_tests_take_it_for():
    picks = {name: best(values(name)) for name in MEASURES}
    assert picks["iam"] != picks["accuracy"]
    for matrix in MATRICES:
        target, preds = samples(matrix)
        assert sklearn_metrics.confusion_matrix(target, preds).tolist() == matrix
        assert [sum(row) for row in matrix] == [20, 12, 8]
    assert len({tuple(itertools.chain(*matrix)) for matrix in MATRICES}) == 4


@pytest.mark.filterwarnings("ignore:.*are too few for this prevalence")
def test_the_commonest_class_is_that_of_the_population():
    shares = [1, 1, 1000]  # of which the last is rarest in the matrices
    made = summary(
        module=scripted(lightning)(
            val=ImbalanceReport("multiclass", class_names=["a", "b", "c"], prevalence=shares, prefix="val_")
        ),
        measures=("accuracy", "iam"),
    )
    guessed = [[0, 0, share] for share in shares]
    accuracy, iam = (float(oracle(guessed)) for oracle in (oracles.accuracy, oracles.imbalance_accuracy))
    assert "Baseline: always predicting 'c'" in made.table().notes
    assert selected(made, "Baseline") == pytest.approx({"accuracy": accuracy, "iam": iam})


# --- a sweep as monitor -----------------------------------------------------------------------------------------------


class Swept(lightning.LightningModule):
    """Module that predicts negatives only, while its scores get better; its second report is that of a test."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.val = ImbalanceReport("binary", prefix="val_")
        self.test = self.val.clone(prefix="test_")
        self.sweep = ThresholdSweep("balanced_accuracy", prefix="val_sweep_")

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        (index,) = batch
        target = (index % 4 == 0).long()
        scores = 0.1 + 0.1 * ((index % 4 == 0) & (index < 10 * (1 + self.current_epoch)))
        self.val.update(scores, target)
        self.sweep.update(scores, target)

    def on_validation_epoch_end(self):
        self.log_dict(self.val)
        self.log_dict(self.sweep)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def test_a_monitored_sweep_chooses_the_report_and_is_shown(tmp_path):
    summary, kept = SelectionSummary(), TieKeeper(tmp_path, "{epoch}", monitor="val_sweep_value", mode="max")
    loader = DataLoader(TensorDataset(torch.arange(40)), 10)
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[kept, summary], default_root_dir=tmp_path, logger=False, **QUIET
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        trainer.fit(Swept(), loader, loader)
    assert "self.val" in printed.getvalue()
    found = [(1 + hits / 10) / 2 for hits in (3, 5, 8)]  # no false alarm, and 3, 5 and 8 of 10 positives
    assert summary.history().values["val_sweep_value"].tolist() == pytest.approx(found)
    row = summary.table()["selected"]["kept by val_sweep_value"]
    assert row["epoch"] == 2
    assert float(row["val_sweep_value"]) == pytest.approx(found[-1])
    assert float(row["balanced_accuracy"]) == 0.5
    assert math.isnan(float(summary.table()["selected"]["Baseline"]["val_sweep_value"]))
    assert "val_sweep_value" in [line.get_label() for line in summary.plot()[1].get_lines()]
