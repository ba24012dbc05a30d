"""What SelectionSummary makes of the predictions of each validation, beside half-sampling written out with NumPy."""

import math
import re
import types

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import ModelCheckpoint
from processes import counted_collectives, launch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainings import QUIET, THIRD_PARTY, exact, join_lightning, listening
from versions import loading

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.lightning import ModelCheckpoint as TieKeeper
from imbtorch.lightning import SelectionSummary
from imbtorch.statistics import select_epoch

pytestmark = [
    *(pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY),
    pytest.mark.filterwarnings(r"ignore:Checkpoint directory .* exists and is not empty"),
]

SIZE, EPOCHS = 90, 6
TARGET = torch.tensor([0] * 60 + [1] * 20 + [2] * 10)[torch.randperm(SIZE, generator=torch.Generator().manual_seed(3))]


def scripted_predictions(epochs=EPOCHS):
    """Classifiers that become better up to the last epoch but one, errors shared by neighbours."""
    random = torch.Generator().manual_seed(0)
    chance, wrong = torch.rand(SIZE, generator=random), (TARGET + 1 + (torch.rand(SIZE, generator=random) > 0.5)) % 3
    shift = torch.rand(epochs, SIZE, generator=random)
    rates = [0.5, 0.6, 0.65, 0.7, 0.72, 0.6][:epochs]
    rows = [torch.where(0.7 * chance + 0.3 * s < rate, TARGET, wrong) for rate, s in zip(rates, shift, strict=True)]
    return torch.stack(rows)


PREDICTIONS = scripted_predictions()


class Scripted(lightning.LightningModule):
    """Predicts in each epoch what the script says; the loader hands out indices of samples."""

    def __init__(self, report=None, predictions=PREDICTIONS, steps=2, count=None):
        super().__init__()
        self.net, self.predictions, self.steps = nn.Linear(1, 1), predictions, steps
        self.val = report or ImbalanceReport("multiclass", num_classes=3, prefix="val_")
        self.count = count or (lambda report, preds, target: report.update(preds, target))

    def training_step(self, batch, batch_idx):
        return self.net(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        epoch = max(0, self.trainer.global_step // self.steps - 1)
        self.count(self.val, self.predictions[epoch][batch[0]], TARGET[batch[0]])

    def on_validation_epoch_end(self):
        self.log_dict(self.val)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run(module, *others, validation=None, checkpoint=None, **options):
    options = {"max_epochs": len(module.predictions), "logger": False, **QUIET, **options}
    saves = any(isinstance(each, ModelCheckpoint) for each in others)
    trainer = lightning.Trainer(callbacks=list(others), enable_checkpointing=saves, **options)
    samples = exact(TensorDataset(torch.arange(SIZE)), 16) if validation is None else validation
    resume = {} if checkpoint is None else loading(lightning, checkpoint, True)
    trainer.fit(module, DataLoader(TensorDataset(torch.arange(4)), 2), samples, **resume)


def summary(module=None, *others, measures=("accuracy", "balanced_accuracy"), **options):
    made = SelectionSummary(predictions=True, measures=measures)
    run(module or Scripted(), made, *others, **options)
    return made


def half_sampled(score, predictions=PREDICTIONS, target=TARGET, repeats=3000):
    """Kept epoch, mean value of each half at the choice of the other one, and share of halves that keep the epoch."""
    predictions, target = predictions.numpy(), target.numpy()
    random = np.random.default_rng(0)
    values = [score(target, row) for row in predictions]
    kept = int(np.flatnonzero(np.isclose(values, max(values)))[-1])  # the latest of tied epochs
    crossed, same = [], []
    for _ in range(repeats):
        coins = random.random(len(target)) < 0.5
        halves = [[score(target[half], row[half]) for row in predictions] for half in (coins, ~coins)]
        choices = [int(np.flatnonzero(np.isclose(half, max(half)))[-1]) for half in halves]
        crossed += [halves[1][choices[0]], halves[0][choices[1]]]
        same += [choice == kept for choice in choices]
    return kept, values[kept], float(np.mean(crossed)), float(np.mean(same))


def accuracy(target, predicted):
    return float(np.mean(np.asarray(target) == np.asarray(predicted)))


def balanced_accuracy(target, predicted):
    target, predicted = np.asarray(target), np.asarray(predicted)
    return float(np.mean([np.mean(predicted[target == k] == k) for k in np.unique(target)]))


def test_the_kept_value_is_corrected_by_what_the_other_half_says():
    made = summary()
    rows, choice = made.table()["selected"], made.choices["accuracy"]
    row = rows["best accuracy"]
    kept, value, crossed, _ = half_sampled(accuracy)
    assert row["epoch"] == choice.epoch == kept
    assert row["accuracy"] == choice.value == pytest.approx(value)
    assert row["corrected"] == pytest.approx(value / 10 + 9 / 10 * crossed, abs=0.006)  # of 100 repeats
    assert row["corrected"] < value - 0.003
    assert row["tied"] == 2  # the rule keeps the latest in each half too
    assert math.isnan(row["stability"])
    *_, stability = half_sampled(balanced_accuracy, repeats=500)
    assert rows["best balanced_accuracy"]["tied"] is None
    assert rows["best balanced_accuracy"]["stability"] == pytest.approx(stability, abs=0.12)
    assert kept in choice.indistinguishable
    assert 0 not in choice.indistinguishable  # .72 against .5, of 90 samples
    assert (row["indistinguishable"], row["shortfall"]) == (len(choice.indistinguishable) - 1, choice.shortfall)
    text = str(made.table())
    line = next(each for each in text.splitlines() if each.startswith("best accuracy ") and "[" in each)
    assert f"{row['corrected']:.3f} [{row['corrected'].low:.3f}, {row['corrected'].high:.3f}]" in line
    assert "because it is the best of 6" in " ".join(text.split())
    assert "stability: how often a random half selects this epoch" in text
    assert "SelectionSummary(predictions=True)" not in text
    assert {name for name, row in rows.items() if "corrected" not in row} == {"Baseline"}
    assert "not corrected" not in text


def noted(made):
    return [note for note in made.table().notes if "not corrected" in note]


def corrected_rows(made):
    """Names of the rows that have a corrected value."""
    return [name for name, row in made.table()["selected"].items() if "corrected" in row]


def test_each_kept_row_is_corrected_or_says_why_not(tmp_path):
    class WithLoss(Scripted):
        def on_validation_epoch_end(self):
            super().on_validation_epoch_end()
            self.log("val_loss", -float(self.trainer.global_step))

    def keeper(name, kind=ModelCheckpoint, **options):
        return kind(tmp_path / name, **{"monitor": "val_accuracy", "mode": "max", **options})

    keepers = [
        keeper("latest", TieKeeper),
        keeper("own"),
        keeper("second", TieKeeper, every_n_epochs=3),  # of epochs 2 and 5, neither of which is the best
        keeper("loss", monitor="val_loss", mode="min"),
        keeper("last", monitor=None),
    ]
    made = summary(WithLoss(), *keepers, measures=("accuracy",))
    table = made.table()
    tied = half_sampled(accuracy)[0]
    values = [accuracy(TARGET, each) for each in PREDICTIONS]
    *rows, _ = table["selected"].values()
    assert [row["epoch"] for row in rows] == [tied, values.index(max(values)), 2, 5, 5, tied]
    assert rows[1]["epoch"] < tied
    assert values[5] < values[2] < max(values)
    assert corrected_rows(made) == ["kept by val_accuracy (1)", "best accuracy"]  # which is the same epoch
    assert noted(made) == [
        "kept by val_accuracy (2): not corrected, since resampling keeps the latest of tied epochs by accuracy",
        "kept by val_accuracy (3): not corrected, since resampling keeps the best epoch by accuracy",
        "kept by val_loss: not corrected, since val_loss is not a value of self.val",
        "kept last: not corrected, since no value selected it",
    ]


def test_two_checkpoints_of_the_same_epoch_are_both_corrected(tmp_path):
    keepers = [
        kind(tmp_path / str(at), monitor="val_balanced_accuracy", mode="max")
        for at, kind in enumerate((TieKeeper, ModelCheckpoint))
    ]
    made = summary(None, *keepers)
    assert corrected_rows(made) == [
        "kept by val_balanced_accuracy (latest of ties)",
        "kept by val_balanced_accuracy (earliest of ties)",
        "best accuracy",
        "best balanced_accuracy",
    ]


def test_a_value_that_predictions_do_not_give_says_so_and_explains_no_table():
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", groups=["a", "b"])

    def count(report, preds, target):
        report.update(preds, target, group=torch.arange(len(target)) % 2)

    module = Scripted(report, count=count)
    made = summary(module, measures=("accuracy_worst",))
    assert noted(made) == ["accuracy_worst: not corrected, since predicted classes do not give it"]
    assert corrected_rows(made) == []
    text = " ".join(str(made.table()).split())
    assert "stability: " not in text
    assert "indistinguishable: " not in text
    assert "selected as the best; report its value on test data" in text


def test_a_monitor_without_a_direction_is_not_corrected(tmp_path):
    measures = {"accuracy": "accuracy", "first": lambda counts: counts[..., 0, 0].double()}
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_", measures=measures)
    keeper = ModelCheckpoint(tmp_path, monitor="val_first", mode="max")
    with listening() as told:  # by the guard, which does not know the mode
        made = summary(Scripted(report), keeper, measures=("accuracy",))
    assert len(told) == 1
    assert noted(made) == ["kept by val_first: not corrected, since first selects no epoch"]
    assert corrected_rows(made) == ["best accuracy"]


def test_of_a_single_epoch_nothing_is_corrected():
    made = summary(max_epochs=1)
    assert "Corrected for" not in str(made.table())
    assert "stability: " not in str(made.table())


def test_one_byte_is_kept_for_each_sample_and_only_while_validation_runs():
    module = Scripted()
    made = summary(module)
    entries = made.state_dict()["validations"]
    assert {entry["predictions"].dtype for entry in entries} == {torch.uint8}
    assert torch.equal(torch.stack([entry["predictions"] for entry in entries]).long(), PREDICTIONS)
    assert torch.equal(made.state_dict()["targets"].long(), TARGET)
    module.val.update(torch.tensor([0]), torch.tensor([0]))
    assert len(made.state_dict()["validations"][-1]["predictions"]) == SIZE


@pytest.mark.parametrize("kind", ["logits", "ignored", "binary"])
def test_whatever_the_report_counts_is_kept(kind):
    reports = {
        "logits": {"num_classes": 3},
        "ignored": {"num_classes": 3, "ignore_index": 2},
        "binary": {"threshold": 0.3},
    }
    report = ImbalanceReport("binary" if kind == "binary" else "multiclass", prefix="val_", **reports[kind])

    def count(report, preds, target):
        scores = nn.functional.one_hot(preds, 3) * 0.7 + 0.1
        if kind == "binary":
            report(0.2 + 0.2 * (preds == 1), (target == 1).long())  # as forward
        else:
            report.update(preds if kind == "ignored" else scores, target)

    made = summary(Scripted(report, count=count))
    wanted, target = PREDICTIONS, TARGET
    if kind == "binary":
        wanted, target = (PREDICTIONS == 1).long(), (TARGET == 1).long()
    if kind == "ignored":
        wanted, target = PREDICTIONS[:, TARGET != 2], TARGET[TARGET != 2]
    for entry, predicted in zip(made.state_dict()["validations"], wanted, strict=True):
        assert torch.equal(entry["predictions"].long(), predicted)
    assert made.choices["accuracy"].value == pytest.approx(max(accuracy(target, each) for each in wanted))


def test_epochs_that_predict_the_same_have_a_corrected_value_but_no_stability(tmp_path):
    """Whichever each half keeps, nothing is chosen by luck."""
    predicted = (TARGET == 1).long() ^ (torch.arange(SIZE) % 7 == 0).long()

    def count(report, preds, target):
        report.update(preds, (target == 1).long())

    module = Scripted(ImbalanceReport("binary", prefix="val_"), predicted.expand(3, -1), count=count)
    made = summary(module, ModelCheckpoint(tmp_path, monitor="val_accuracy", mode="max"))
    rows, choice = made.table()["selected"], made.choices["accuracy"]
    row = rows["best accuracy"]
    assert (row["epoch"], row["tied"], choice.stability) == (0, 3, None)
    assert choice.identical == (1, 2)
    same = "accuracy, balanced_accuracy: epochs 0 to 2 predict the same, so the choice among them is arbitrary"
    assert same in made.table().notes
    assert re.search(r"\nbest balanced_accuracy .* -\n", str(made.table()))
    assert (row["indistinguishable"], row["shortfall"]) == (2, 0)
    assert math.isnan(row["stability"])
    assert choice.indistinguishable == (0, 1, 2)
    assert row["corrected"] == pytest.approx(1 - 13 / 90, abs=1e-9)
    assert rows["kept by val_accuracy"] == pytest.approx(row, nan_ok=True)


def test_a_validation_of_other_samples_is_left_out_and_loses_nothing():
    class Shuffled(Scripted):
        def on_validation_epoch_start(self):
            self.order = torch.randperm(SIZE) if self.trainer.current_epoch == 1 else torch.arange(SIZE)

        def validation_step(self, batch, batch_idx):
            super().validation_step([self.order[batch[0]]], batch_idx)

    with listening() as told:
        made = summary(Shuffled())
    assert len(told) == 1
    assert "the validation of epoch 1, step 4, counted 90 samples in another order, so its predictions" in told[0]
    assert "shuffle=False" in told[0]
    history, table = made.history(), made.table()
    assert len(history.counts) == EPOCHS
    assert history.values["accuracy"].tolist() == pytest.approx([accuracy(TARGET, each) for each in PREDICTIONS])
    choice = made.choices["accuracy"]
    assert choice.compared == (0, 2, 3, 4, 5)
    assert choice.epoch == table["selected"]["best accuracy"]["epoch"]
    assert any(note.startswith("epoch 1: not compared, for lack of predictions that agree") for note in table.notes)

    def count(report, preds, target):
        report.update(preds, target)
        report.local_confmat  # noqa: B018
        listeners, report._listeners = report._listeners, []
        report.update(preds, target)  # not heard: as if counted by another metric of a collection
        report._listeners = listeners

    made = summary(Scripted(count=count))
    assert made.choices == {}
    assert "; no validation has predictions that agree with the counts of all processes" in made.table().notes[-2]


def test_a_resumed_run_has_the_predictions_of_an_uninterrupted_one(tmp_path):
    def keeper():
        return ModelCheckpoint(tmp_path, "first", save_top_k=1)

    whole = summary()
    summary(None, keeper(), max_epochs=3)
    resumed = summary(None, keeper(), checkpoint=tmp_path / "first.ckpt")
    assert str(resumed.choices["accuracy"]) == str(whole.choices["accuracy"])
    summary(None, keeper(), max_epochs=3)
    plain = SelectionSummary(measures=("accuracy",))
    run(Scripted(), plain, keeper(), checkpoint=tmp_path / "first.ckpt")
    assert len(plain.history().epochs) == EPOCHS
    assert not any("predictions" in entry for entry in plain.state_dict()["validations"])


@pytest.mark.parametrize(
    ("task", "options", "error"),
    [
        ("multilabel", {"num_labels": 3}, "counts labels, several of which a sample can have; leave predictions out"),
        ("multiclass", {"num_classes": 3, "state": "margins"}, "keeps state='margins', .*; use state='matrix'"),
        ("multiclass", {"num_classes": 3, "weighted": True}, "counts weights, which predicted classes do not know"),
    ],
)
def test_reports_whose_predictions_say_too_little(task, options, error):
    with pytest.raises(ValueError, match=f"predictions=True resamples .* but the report 'val' {error}"):
        summary(Scripted(ImbalanceReport(task, prefix="val_", **options)))


def test_what_takes_long_is_announced(monkeypatch, capsys):
    from rooms import kept_predictions

    summary()
    assert "resampling" not in capsys.readouterr().out
    monkeypatch.setattr(kept_predictions, "seconds_to_choose", lambda *_: 7.2)
    summary()
    assert "SelectionSummary: resampling 6 validations, some 7 s\n" in capsys.readouterr().out


def test_predictions_that_take_much_memory_are_told_once(monkeypatch):
    from rooms import selection_summary

    monkeypatch.setattr(selection_summary, "LARGE", SIZE - 1)
    with listening() as told:
        summary()
    assert len(told) == 1
    assert told[0].startswith("SelectionSummary(predictions=True) keeps 0 MB of predicted classes for each validation")
    monkeypatch.setattr(selection_summary, "LARGE", SIZE)
    with listening() as told:
        summary()
    assert told == []


# --- clusters -------------------------------------------------------------------------------------------------------

PATIENTS = torch.arange(SIZE) // 6  # 15 of them
NAMES = ("epoch", "value", "corrected", "stability", "shortfall", "indistinguishable", "compared")  # without tensors


def report_of(clusters, **options):
    return ImbalanceReport("multiclass", num_classes=3, prefix="val_", clusters=clusters, **options)


class OfPatients(Scripted):
    """Passes the patient of each sample; ``shape`` says how many positions a sample has."""

    def __init__(self, clusters=True, ids=True, shape=(-1,), **options):
        super().__init__(report_of(clusters), **options)
        self.ids, self.shape = ids, shape

    def validation_step(self, batch, batch_idx):
        epoch = max(0, self.trainer.global_step // self.steps - 1)
        preds, target = (each[batch[0]].view(self.shape) for each in (self.predictions[epoch], TARGET))
        self.val.update(preds, target, **({"cluster": PATIENTS[batch[0]]} if self.ids else {}))


def chosen_by_hand(ids):
    """Choose on all samples of one process."""
    measures = {name: getattr(imbtorch, name) for name in ("accuracy", "balanced_accuracy")}
    return select_epoch(PREDICTIONS, TARGET, measures, cluster=ids, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["ids", "rows"])
def test_clusters_of_the_report_are_kept_together(kind):
    """Without ids a sample is a cluster of its positions."""
    with listening() as told:
        made = summary(OfPatients() if kind == "ids" else OfPatients(ids=False, shape=(-1, 3)))
    assert told == []
    ids, kept = PATIENTS if kind == "ids" else torch.arange(SIZE) // 3, made.state_dict()["clusters"]
    assert torch.equal(kept.unique(return_inverse=True)[1], ids)
    for name, wanted in chosen_by_hand(kept).items():
        assert [getattr(made.choices[name], each) for each in NAMES] == [getattr(wanted, each) for each in NAMES]
        assert made.choices[name].interval == wanted.interval
    row = made.table()["selected"]["best accuracy"]
    assert (row["corrected"].low, row["corrected"].high) == ends_of(made.choices["accuracy"])
    assert ends_of(made.choices["accuracy"]) != ends_of(summary().choices["accuracy"])


def ends_of(choice):
    return choice.interval.low.item(), choice.interval.high.item()


def test_a_resumed_run_keeps_the_clusters(tmp_path):
    def keeper():
        return ModelCheckpoint(tmp_path, "first", save_top_k=1)

    whole = summary(OfPatients())
    summary(OfPatients(), keeper(), max_epochs=3)
    resumed = summary(OfPatients(), keeper(), checkpoint=tmp_path / "first.ckpt")
    assert str(resumed.choices["accuracy"]) == str(whole.choices["accuracy"])


@pytest.mark.parametrize("options", [{}, {"ids": False, "shape": (-1, 3)}, {"ids": False}], ids=str)
def test_dependent_samples_without_clusters_are_told_once(options):
    with listening() as told:
        made = summary(OfPatients(clusters=False, **options))
    dependent = options != {"ids": False}
    assert len(told) == dependent
    assert all(
        "SelectionSummary: samples of self.val came with clusters or have several positions" in text for text in told
    )
    assert made.state_dict()["clusters"] is None
    assert ends_of(made.choices["accuracy"]) == ends_of(summary().choices["accuracy"])


# --- beside other callbacks -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(callbacks, "EMAWeightAveraging"), reason="this Lightning averages no weights")
@pytest.mark.parametrize("kind", ["EMAWeightAveraging", "WeightAveraging"])
def test_validation_sees_averaged_weights(kind):
    """The weight rises by .1 a step; its average, of all or half of the newest, decides how many are right."""

    class Rising(Scripted):
        def training_step(self, batch, batch_idx):
            return -self.net.weight.sum()

        def validation_step(self, batch, batch_idx):
            right = batch[0] < 97 * self.net.weight.item()
            self.val.update(torch.where(right, TARGET[batch[0]], (TARGET[batch[0]] + 1) % 3), TARGET[batch[0]])

    module = Rising(predictions=PREDICTIONS[:3])
    nn.init.zeros_(module.net.weight)
    exponential = kind == "EMAWeightAveraging"
    made = summary(module, getattr(callbacks, kind)(**({"decay": 0.5} if exponential else {})))
    average, wanted = 0.0, []
    for step in range(1, 7):
        newest = 1 if step == 1 else 1 / 2 if exponential else 1 / step
        average += newest * (0.1 * step - average)
        wanted += [np.mean(np.arange(SIZE) < 97 * average)] if step % 2 == 0 else []
    assert made.history().values["accuracy"].tolist() == pytest.approx(wanted)
    assert made.choices["accuracy"].value == pytest.approx(wanted[-1])


# --- several processes ----------------------------------------------------------------------------------------------


def trained_on_patients(rank, world):
    """Of patients on all processes choose; then rank 1 alone has ids, and the report no clusters."""
    join_lightning(world)
    made = SelectionSummary(predictions=True, measures=("accuracy", "balanced_accuracy"))
    options = {"strategy": "ddp", "devices": world}
    run(OfPatients(steps=1), made, **options)
    choices = [[getattr(made.choices[name], each) for each in NAMES] for name in made.measures]
    with listening() as told:
        run(OfPatients(clusters=False, ids=rank == 1, steps=1), SelectionSummary(predictions=True), **options)
    return choices, [text for text in told if "came with clusters" in text]


def test_a_patient_on_two_processes_falls_into_one_half():
    ranks = launch(2, trained_on_patients)
    wanted = [[getattr(each, name) for name in NAMES] for each in chosen_by_hand(PATIENTS).values()]
    for choices, _ in ranks:
        assert choices == wanted
    assert [len(told) for _, told in ranks] == [1, 0]  # rank zero tells what rank 1 has seen


def trained(rank, world, folder):
    join_lightning(world)
    options = {"strategy": "ddp", "devices": world}
    with counted_collectives() as calls:
        keeper = ModelCheckpoint(folder, "first", save_top_k=1)
        made = SelectionSummary(predictions=True, measures=("accuracy", "balanced_accuracy"))
        run(Scripted(steps=1), made, keeper, max_epochs=3, **options)
        first = made.choices["accuracy"]
        made = SelectionSummary(predictions=True, measures=("accuracy", "balanced_accuracy"))
        run(Scripted(steps=1), made, checkpoint=f"{folder}/first.ckpt", **options)
    choices = [first, made.choices["accuracy"]]
    rows = [types.SimpleNamespace(**{name: getattr(choice, name) for name in NAMES}) for choice in choices]
    kept = [len(entry.get("predictions", ())) for entry in made.state_dict()["validations"]]
    return types.SimpleNamespace(rows=rows, calls=list(calls), kept=kept, notes=made.table().notes)


def test_three_processes_choose_as_one_does(tmp_path):
    ranks = launch(3, trained, str(tmp_path))
    kept, value, crossed, _ = half_sampled(accuracy, PREDICTIONS[:3])
    for rank in ranks:
        assert rank.calls == ranks[0].calls
        first, resumed = rank.rows
        assert (first.epoch, first.value) == (kept, pytest.approx(value))
        assert first.corrected == pytest.approx(value / 10 + 9 / 10 * crossed, abs=0.01)
        assert rank.rows == ranks[0].rows
        assert rank.kept[:3] == [0, 0, 0]  # rank zero alone saves its predictions, so a resumed run starts anew
        assert resumed.compared == (3, 4, 5)
        assert any(note.startswith("epochs 0 to 2: not compared, for lack of predictions") for note in rank.notes)
    assert [sum(each) for each in zip(*(rank.kept for rank in ranks), strict=True)] == [0, 0, 0, SIZE, SIZE, SIZE]
