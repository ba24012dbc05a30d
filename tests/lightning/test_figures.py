"""Confusion figures of real trainings, in the logs and in loggers that stand in for services."""

import warnings

import lightning
import pytest
import pytorch_lightning
import torch
from both_packages import fit
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from matplotlib import image
from pictures import recalls_beside
from sklearn import metrics as sklearn_metrics
from trainings import (
    QUIET,
    THIRD_PARTY,
    TRAIN_HOOKS,
    TRUTH,
    Comet,
    MLflow,
    Notes,
    Wandb,
    indices,
    listening,
    new_pictures,
    predictions,
    scripted,
)
from versions import loading, needs_callbacks_for

from imbtorch import ImbalanceReport
from imbtorch.lightning import ConfusionFigures

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]


# --- figures --------------------------------------------------------------------------------------------------------


class Bare(Notes):
    """Has no experiment, which Lightning does not ask for."""


class Deaf(Notes):
    """Has an experiment that takes no figures."""

    experiment = property(lambda self: object())


def drawn(logger, script=(4, 1, 3), package=lightning, **options):
    callbacks = [ConfusionFigures(**options)]
    return fit(scripted(package)(script), callbacks, package, logger=logger)


def assert_drawn(path):
    picture = image.imread(path)
    assert min(picture.shape[:2]) > 200
    assert len({tuple(pixel) for row in picture[::7, ::7, :3].tolist() for pixel in row}) > 3


@pytest.mark.parametrize(("every", "epochs"), [(1, [0, 1, 2]), (2, [0, 2])])
def test_pictures_beside_the_csv_log(every, epochs, tmp_path):
    logger = CSVLogger(tmp_path)
    drawn(logger, every_n_epochs=every)
    paths = sorted((tmp_path / "lightning_logs" / "version_0" / "figures").iterdir())
    assert [path.name for path in paths] == [f"val_confusion_epoch{epoch:04d}.png" for epoch in epochs]
    for path in paths:
        assert_drawn(path)
    first, second = (image.imread(path) for path in paths[:2])
    assert (first != second).any()


def test_pictures_in_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    drawn(TensorBoardLogger(tmp_path))
    events = EventAccumulator(str(tmp_path / "lightning_logs" / "version_0"), {"images": 0})
    events.Reload()
    assert events.Tags()["images"] == ["val_confusion"]
    images = events.Images("val_confusion")
    assert [each.step for each in images] == [4, 8, 12]
    (tmp_path / "picture.png").write_bytes(images[0].encoded_image_string)
    assert_drawn(tmp_path / "picture.png")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Wandb, ["val_confusion at 4", "val_confusion at 8"]),
        (Comet, ["val_confusion at 4", "val_confusion at 8"]),
        (MLflow, ["figures/val_confusion_epoch0000.png", "figures/val_confusion_epoch0001.png"]),
    ],
)
def test_pictures_for_other_loggers(kind, names):
    logger = kind()
    drawn(logger, (4, 1))
    assert list(logger.figures) == names
    (matrix,) = logger.figures[names[1]].axes
    assert [tick.get_text() for tick in matrix.get_xticklabels()] == ["0", "1"]
    counts = sklearn_metrics.confusion_matrix(TRUTH, predictions(1))
    assert [int(text.get_text().split("\n")[0]) for text in matrix.texts] == counts[counts > 0].tolist()
    wanted = sklearn_metrics.recall_score(TRUTH, predictions(1), average=None)
    assert recalls_beside(matrix) == pytest.approx(wanted.tolist())


@pytest.mark.parametrize("kind", [Deaf, Bare, Notes])
def test_a_logger_without_pictures_is_told_once(kind):
    with listening() as told:
        drawn(kind())
    takers = "TensorBoardLogger, WandbLogger, MLFlowLogger, CometLogger, CSVLogger"
    assert told == [f"{kind.__name__} gets no figures and tables of imbtorch, which {takers} take"]


class Broken(Comet):
    """Of a version that calls its arguments otherwise, or without a connection."""

    def log_figure(self, name, figure):
        raise AssertionError("is not called")


def test_a_logger_that_fails_is_told_once_and_the_training_goes_on():
    logger = Broken()
    with listening() as told:
        trainer = drawn(logger)
    (text,) = told
    assert text.startswith("Broken did not take 'val_confusion': TypeError: ")
    assert trainer.current_epoch == 3
    assert len(logger.values("val_iam")) == 3


def test_a_fast_run_has_a_logger_that_keeps_nothing():
    with listening() as told:
        fit(scripted(lightning)((4,)), [ConfusionFigures()], logger=True, fast_dev_run=True)
    assert told == []


def test_pictures_without_a_logger_and_with_the_other_package(tmp_path):
    drawn(False)
    needs_callbacks_for(pytorch_lightning)
    drawn(pytorch_lightning.loggers.CSVLogger(tmp_path), (1,), pytorch_lightning)
    assert [path.name for path in tmp_path.rglob("*.png")] == ["val_confusion_epoch0000.png"]


def test_pictures_of_one_report(tmp_path):
    module = scripted(lightning)((4, 1), **TRAIN_HOOKS["on_train_epoch_end"])
    fit(module, [ConfusionFigures()], logger=CSVLogger(tmp_path / "all"))
    names = {path.name for path in tmp_path.rglob("*.png")}
    assert names == {"val_confusion_epoch0000.png", "val_confusion_epoch0001.png"}  # what validation computed
    with pytest.raises(ValueError, match=r"no report 'oops'; it has \['train_report', 'val'\]"):
        drawn(CSVLogger(tmp_path / "oops"), report="oops")
    drawn(CSVLogger(tmp_path / "one"), (4,), report="val")
    assert [path.name for path in (tmp_path / "one").rglob("*.png")] == ["val_confusion_epoch0000.png"]


def trained_with_figures(tmp_path, script=(4, 1, 3), saver=None, epochs=3, **options):
    """A trainer after so many epochs, of which the second is the best, its module and the names of its pictures."""
    module = scripted(lightning)((*script, 2))  # what is validated after the training is wrong by two of ten
    module.test_step = lambda batch, batch_idx: module.counted(module.val, batch[0]) and None
    module.on_test_epoch_end = lambda: module.log_dict(module.val)
    saver = saver or ModelCheckpoint(tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max")
    callbacks = [ConfusionFigures(**options), saver]
    trainer = fit(module, callbacks, logger=CSVLogger(tmp_path, "", ""), max_epochs=epochs)
    return trainer, module, lambda: new_pictures(tmp_path / "figures")


@pytest.mark.parametrize("weights_only", [False, True], ids=["all", "weights only"])
def test_pictures_bear_the_epoch_of_the_weights_that_they_show(weights_only, tmp_path):
    """Of a run of epochs 0 to 2, whose best is 1; checkpoints of weights alone reach no callback."""
    saver = ModelCheckpoint(
        tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max", save_weights_only=weights_only
    )
    trainer, module, names = trained_with_figures(tmp_path, saver=saver, every_n_epochs=2)
    assert names() == ["val_confusion_epoch0000.png", "val_confusion_epoch0002.png"]
    trainer.validate(module, indices(), verbose=False)  # weights of the last epoch
    assert names() == ["val_confusion_epoch0002.png"]
    trainer.validate(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    assert names() == ["val_confusion_epoch0001.png"]
    trainer.test(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    assert names() == ["val_confusion_test_epoch0001.png"]
    trainer.save_checkpoint(tmp_path / "after.ckpt", weights_only=weights_only)  # says that its epoch is 3
    assert torch.load(tmp_path / "after.ckpt", weights_only=False)["epoch"] == 3
    trainer.validate(module, indices(), **loading(lightning, tmp_path / "after.ckpt", weights_only), verbose=False)
    assert names() == ["val_confusion_epoch0002.png"]


@pytest.mark.parametrize("weights_only", [False, True], ids=["all", "weights only"])
def test_pictures_of_weights_that_were_loaded_before(weights_only, tmp_path):
    saver = ModelCheckpoint(
        tmp_path / "saved", "{epoch}", monitor="val_iam", mode="max", save_weights_only=weights_only
    )
    trainer, module, names = trained_with_figures(tmp_path, saver=saver)
    trainer.validate(module, indices(), **loading(lightning, "best", weights_only), verbose=False)
    names()
    trainer.test(module, indices(), verbose=False)  # which loads nothing
    assert names() == ["val_confusion_test_epoch0001.png"]


def test_pictures_of_weights_of_an_unknown_epoch(tmp_path):
    module = scripted(lightning)()
    trainer = lightning.Trainer(**QUIET, logger=CSVLogger(tmp_path, "", ""), callbacks=[ConfusionFigures()])
    trainer.validate(module, indices(), verbose=False)
    assert new_pictures(tmp_path / "figures") == ["val_confusion.png"]


def test_the_step_of_a_picture_is_that_of_the_weights(tmp_path):
    logger = Wandb()
    module, saver = scripted(lightning)((4, 1, 3, 2)), ModelCheckpoint(tmp_path, monitor="val_iam", mode="max")
    trainer = fit(module, [ConfusionFigures(), saver], logger=logger, max_epochs=3)
    assert list(logger.figures) == ["val_confusion at 4", "val_confusion at 8", "val_confusion at 12"]
    logger.figures.clear()
    trainer.validate(module, indices(), **loading(lightning, "best", False), verbose=False)
    assert list(logger.figures) == ["val_confusion at 8"]


@pytest.mark.parametrize("epochs", [2, 3])
def test_the_picture_of_the_epoch_that_is_kept(epochs, tmp_path):
    trained_with_figures(tmp_path / "all")
    trainer, *_ = trained_with_figures(tmp_path / "kept", epochs=epochs, kept_only=True)
    assert "epoch=1" in trainer.checkpoint_callback.best_model_path
    (path,) = (tmp_path / "kept").rglob("*.png")
    assert path.name == "val_confusion_epoch0001.png"
    assert (image.imread(path) == image.imread(tmp_path / "all" / "figures" / path.name)).all()


def test_the_pictures_of_the_epochs_that_two_callbacks_keep(tmp_path):
    first = ModelCheckpoint(tmp_path / "first", monitor="val_iam", mode="max")
    last = ModelCheckpoint(tmp_path / "last")
    fit(scripted(lightning)(), [ConfusionFigures(kept_only=True), first, last], logger=CSVLogger(tmp_path, "", ""))
    assert new_pictures(tmp_path / "figures") == ["val_confusion_epoch0001.png", "val_confusion_epoch0002.png"]


def test_the_picture_of_what_was_kept_until_a_training_failed(tmp_path):
    def fail(module):
        module.log_dict(module.val)
        if module.current_epoch == 2:
            raise KeyError("disk full")

    callbacks = [
        ConfusionFigures(kept_only=True),
        ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max"),
    ]
    with pytest.raises(KeyError):
        fit(scripted(lightning)(on_validation_epoch_end=fail), callbacks, logger=CSVLogger(tmp_path, "", ""))
    assert new_pictures(tmp_path / "figures") == ["val_confusion_epoch0001.png"]


def test_kept_weights_that_were_not_validated_are_not_drawn(tmp_path):
    saver = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=3)
    with listening() as told:
        fit(scripted(lightning)((4,)), [ConfusionFigures(kept_only=True), saver], logger=CSVLogger(tmp_path, "", ""))
    assert told == [
        "ConfusionFigures: the weights that a ModelCheckpoint keeps were not validated, so they are not drawn"
    ]
    assert not list(tmp_path.rglob("*.png"))


def test_the_epoch_that_is_kept_needs_somebody_who_keeps_it():
    module = scripted(lightning)()
    with pytest.raises(ValueError, match=r"kept_only=True.*a ModelCheckpoint keeps, and there is none"):
        fit(module, [ConfusionFigures(kept_only=True)])
    assert module.steps == 0
    with pytest.raises(ValueError, match="leave every_n_epochs out"):
        ConfusionFigures(2, kept_only=True)


def test_a_resumed_run_draws_what_it_keeps_itself(tmp_path):
    def run(script, **options):
        saver = ModelCheckpoint(tmp_path / "saved", monitor="val_iam", mode="max", save_last=True)
        trainer = lightning.Trainer(
            **QUIET,
            max_epochs=len(script),
            callbacks=[ConfusionFigures(kept_only=True), saver],
            logger=CSVLogger(tmp_path, "", ""),
        )
        trainer.fit(scripted(lightning)(script), indices(), indices(), **options)
        return new_pictures(tmp_path / "figures")

    resumed = loading(lightning, tmp_path / "saved" / "last.ckpt", False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
        warnings.filterwarnings("ignore", "Experiment logs directory .* exists and is not empty")
        assert run((4, 1)) == ["val_confusion_epoch0001.png"]
        assert run((4, 1, 3), **resumed) == []  # the best one was drawn by the run before
        assert run((4, 1, 3, 0), **resumed) == ["val_confusion_epoch0003.png"]


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_pictures_of_labels_and_of_margins(state, tmp_path):
    """Where there is no matrix of all classes, the recalls are drawn alone."""
    labels = state == "matrix"
    target = torch.tensor([[0, 1], [1, 1], [1, 0], [0, 1]]) if labels else torch.tensor([0, 1, 2, 2])
    preds = torch.tensor([[0, 1], [1, 0], [0, 0], [0, 1]]) if labels else torch.tensor([0, 2, 2, 2])

    def made():
        if labels:
            return ImbalanceReport("multilabel", class_names=["left", "right"], prefix="val_")
        return ImbalanceReport("multiclass", class_names=["a", "b", "c"], state="margins", prefix="val_")

    module = scripted(lightning)((4,), validation_step=lambda module, index, _: module.val.update(preds, target))
    module.val, logger = made(), MLflow()
    fit(module, [ConfusionFigures()], logger=logger)
    (axes,) = logger.figures["figures/val_confusion_epoch0000.png"].axes
    wanted = sklearn_metrics.recall_score(target.numpy(), preds.numpy(), average=None)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(wanted.tolist())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == (["left", "right"] if labels else ["a", "b", "c"])


@pytest.mark.parametrize("every", [0, -1])
def test_pictures_come_at_most_every_epoch(every):
    with pytest.raises(ValueError, match=f"every_n_epochs must be at least 1, got {every}"):
        ConfusionFigures(every_n_epochs=every)
