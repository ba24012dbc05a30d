"""What loggers get beside numbers: figures of reports and sweeps, the table and picture of the choice of an epoch."""

import ast
import inspect
import io
import math
import re
import warnings

import lightning
import numpy as np
import pytest
import torch
from both_packages import fit
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger
from pictures import legend, recalls_beside
from rooms import drawings
from sklearn import metrics as sklearn_metrics
from torch import nn
from torchmetrics import MetricCollection
from trainings import QUIET, THIRD_PARTY, Comet, MLflow, Notes, Wandb, indices, listening, new_pictures, scripted
from versions import import_or_skip

from imbtorch import BalancedAccuracy, ImbalanceReport, ThresholdSweep, balanced_accuracy, f_score
from imbtorch.lightning import ConfusionFigures, SelectionSummary
from imbtorch.plots import plot_values

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]

NAMES = ["cat", "dog", "car"]
RANDOM = np.random.default_rng(0)
TARGET = RANDOM.choice(3, 120, p=[0.6, 0.3, 0.1])
PREDS = np.where(RANDOM.random(120) < 0.7, TARGET, RANDOM.choice(3, 120))
GROUP = np.arange(120) % 2
SCORES = np.clip(0.3 * (TARGET == 2) + 0.7 * RANDOM.random(120), 0, 1)


@pytest.mark.parametrize("name", ["log_image", "log_table", "log_text"])
def test_the_stand_in_takes_what_the_real_logger_takes(name):
    ours, theirs = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (Wandb, WandbLogger))
    assert ours == theirs


@pytest.mark.parametrize("name", ["log_figure", "log_text"])
def test_the_stand_in_takes_what_a_client_of_mlflow_takes(name):
    client = import_or_skip("mlflow").tracking.MlflowClient
    ours, theirs = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (MLflow, client))
    assert ours == theirs


def validated(metric, update, callbacks=None, logger=None, **options):
    """Figures by name of an epoch whose validation updates a metric once."""
    module = scripted(lightning)((4,), validation_step=lambda module, index, _: index[0] or update(module.val))
    module.val = metric
    logger = MLflow() if logger is None else logger
    fit(module, [ConfusionFigures()] if callbacks is None else callbacks, logger=logger, **options)
    return {
        name.removeprefix("figures/").removesuffix("_epoch0000.png"): figure
        for name, figure in getattr(logger, "figures", {}).items()
    }


def heights(ax):
    return [bar.get_height() for bar in ax.patches]


def ticks(ax):
    return [tick.get_text() for tick in ax.get_xticklabels()]


def test_a_report_of_everything_has_a_figure_for_each_kind():
    report = ImbalanceReport(
        "multiclass",
        class_names=NAMES,
        measures=["balanced_accuracy", "accuracy"],
        intervals=["accuracy", "recall/car"],
        groups=["site A", "site B"],
        class_groups={"head": ["cat"], "tail": ["dog", "car"]},
    )
    scores = torch.from_numpy(0.7 * np.eye(3)[PREDS] + 0.1)
    target, group = torch.from_numpy(TARGET), torch.from_numpy(GROUP)
    figures = validated(report, lambda metric: metric.update(scores, target, group=group))
    assert list(figures) == ["val_confusion", "val_groups", "val_class_groups"]

    recalls = sklearn_metrics.recall_score(TARGET, PREDS, average=None)
    (matrix,) = figures["val_confusion"].axes
    counts = sklearn_metrics.confusion_matrix(TARGET, PREDS)
    assert [int(text.get_text().split("\n")[0]) for text in matrix.texts] == counts[counts > 0].tolist()
    assert recalls_beside(matrix) == pytest.approx(recalls.tolist())
    (ends,) = [part.get_segments() for part in matrix.child_axes[0].collections]  # of error bars, also unasked
    bounds = [report.last_result.interval(f"recall/{name}") for name in ("cat", "dog", "car")]
    shown = [[[each.low.item(), at], [each.high.item(), at]] for at, each in enumerate(bounds)]
    np.testing.assert_allclose(ends, shown)
    low, high = (report.last_result.values[f"recall/car_{end}"].item() for end in ("low", "high"))
    assert shown[2] == [[pytest.approx(low), 2], [pytest.approx(high), 2]]
    assert matrix.child_axes[0].get_xlabel() == "Recall\n95% interval"

    of_balanced, of_accuracy = figures["val_groups"].axes
    parts = [slice(None), GROUP == 0, GROUP == 1]
    for ax, score in (
        (of_balanced, sklearn_metrics.balanced_accuracy_score),
        (of_accuracy, sklearn_metrics.accuracy_score),
    ):
        assert heights(ax) == pytest.approx([score(TARGET[part], PREDS[part]) for part in parts])
        assert ticks(ax) == ["all (120)", "site A (60)", "site B (60)"]
    assert [len(ax.collections) for ax in (of_balanced, of_accuracy)] == [1, 1]
    assert len(of_accuracy.collections[0].get_segments()) == 3  # an interval each; balanced accuracy has none
    assert len(of_balanced.collections[0].get_segments()) == 0
    assert (of_balanced.get_ylabel(), of_accuracy.get_ylabel()) == ("balanced_accuracy", "accuracy (95% interval)")

    of_recall, of_precision = figures["val_class_groups"].axes
    assert heights(of_recall) == pytest.approx([recalls[0], recalls[1:].mean()])
    precisions = sklearn_metrics.precision_score(TARGET, PREDS, average=None)
    assert heights(of_precision) == pytest.approx([precisions[0], precisions[1:].mean()])
    assert (of_recall.get_ylabel(), of_precision.get_ylabel()) == ("recall", "precision")


def test_groups_have_room_for_their_names():
    """Five panels: two above three, names below those alone; a group of the name of all groups is one beside them."""
    measures = ["accuracy", "recall", "precision", "f1", "balanced_accuracy"]
    names = ["all", *(f"hospital of a very long name {index}" for index in range(12))]
    report = ImbalanceReport("multiclass", class_names=NAMES, groups=names, measures=measures, intervals=["accuracy"])
    report.update(torch.from_numpy(PREDS), torch.from_numpy(TARGET), group=torch.from_numpy(GROUP))
    with pytest.warns(UserWarning, match="11 of 13 groups"):
        report.compute()
    figure = dict(drawings(report))["groups"]()
    figure.savefig(io.BytesIO())
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy (95% interval)", *measures[1:]]
    assert [len(set(ticks(ax))) for ax in figure.axes] == [1, 1, 14, 14, 14]
    assert ticks(figure.axes[-1])[:3] == ["all (120)", "all (60)", "hospital of a very …ame 0 (60)"]
    assert all(ax.get_window_extent().height > 0.25 * figure.bbox.height for ax in figure.axes)
    scores = [sklearn_metrics.accuracy_score(TARGET[part], PREDS[part]) for part in (slice(None), GROUP == 0)]
    assert heights(figure.axes[0])[:2] == pytest.approx(scores)
    limits = [
        [report.last_result.values[f"accuracy{of}_{end}"].item() for end in ("low", "high")] for of in ("", "/all")
    ]
    ends = figure.axes[0].collections[0].get_segments()[:2]
    assert [each[:, 1].tolist() for each in ends] == [pytest.approx(each) for each in limits]


def test_many_bars_without_a_value_are_counted():
    _, ax = plot_values(torch.tensor([0.5, *[math.nan] * 50]))
    assert not ax.texts
    assert ax.get_title("right") == "50 of 51 have no value"


@pytest.mark.parametrize("prevalence", [None, [0.5, 0.5]])
def test_a_sweep_has_its_curves_with_the_chosen_threshold(prevalence):
    target, scores = torch.from_numpy(1 * (TARGET == 2)), torch.from_numpy(SCORES)
    sweep = ThresholdSweep(f_score, prevalence=prevalence)
    figures = validated(sweep, lambda metric: metric.update(scores, target))
    (value, roc, curve), weight = figures["val_curves"].axes, None
    if prevalence is not None:
        weight = np.where(target == 1, 0.5 / target.sum(), 0.5 / (1 - target).sum())
    best = sweep.last_result.values["threshold"].item()
    told = best < SCORES
    rates = [told[target == each].mean() for each in (0, 1)]
    assert roc.lines[-1].get_xydata().tolist() == [pytest.approx(rates)]
    precision = sklearn_metrics.precision_score(target, told, sample_weight=weight)
    assert curve.lines[-1].get_xydata().tolist() == [pytest.approx([rates[1], precision])]
    wanted = sklearn_metrics.f1_score(target, told, sample_weight=weight)
    highest = max(sklearn_metrics.f1_score(target, cut < SCORES, sample_weight=weight) for cut in [-1.0, *SCORES])
    beside = f", highest {highest:.3f}" if f"{highest:.3f}" != f"{wanted:.3f}" else ""
    assert [text.get_text() for text in value.texts] == [f"chosen {wanted:.3f} at {best:.2f}{beside}"]
    low, high = (getattr(sweep.interval("auc"), end).item() for end in ("low", "high"))
    auc = f"AUC {sklearn_metrics.roc_auc_score(target, SCORES):.3f} [{low:.3f}, {high:.3f}]"
    assert legend(roc) == ["random guessing", auc, "threshold chosen for f1"]
    precision = f"AP {sklearn_metrics.average_precision_score(target, SCORES, sample_weight=weight):.3f}"
    if prevalence is None:  # which leaves average precision without an interval
        low, high = (getattr(sweep.interval("average_precision"), end).item() for end in ("low", "high"))
        precision += f" [{low:.3f}, {high:.3f}]"
    assert legend(curve)[2:] == [precision, "threshold chosen for f1"]


@pytest.mark.filterwarnings("ignore:ThresholdSweep.*had no target")
def test_a_sweep_of_classes_shows_the_rarest_that_come():
    """Class 0 is the most frequent of eleven, and class 11 never comes."""
    target = np.repeat(np.arange(11), [40, *[10] * 9, 5])
    scores = np.random.default_rng(0).dirichlet(np.ones(12), len(target)) + 0.4 * np.eye(12)[target]
    scores /= scores.sum(1, keepdims=True)
    sweep = ThresholdSweep(balanced_accuracy, task="multiclass", num_classes=12)
    given = torch.from_numpy(scores), torch.from_numpy(target)
    figures = validated(sweep, lambda metric: metric.update(*given))
    value, roc, bars = figures["val_curves"].axes
    shown = range(1, 11)
    titles = [f"The 10 rarest of 12\n{each}" for each in ("balanced_accuracy at each threshold", "ROC")]
    assert [value.get_title(), roc.get_title()] == titles
    assert bars.get_title() == "The 10 rarest of 12\nDotted: random guessing (share of positives)"
    area, best = sweep.interval("auc"), sweep.last_result.values
    curves = []
    for each in shown:
        auc = sklearn_metrics.roc_auc_score(target == each, scores[:, each])
        curves.append(f"{each}: AUC {auc:.3f} [{area.low[each]:.3f}, {area.high[each]:.3f}]")
        curves[-1] += f", threshold {best[f'threshold/{each}']:.2f}"
    assert legend(roc) == ["random guessing", *curves, "threshold chosen for balanced_accuracy"]
    assert [text.split(":")[0] for text in legend(value)] == [*map(str, shown), "threshold 0.5"]
    wanted = [sklearn_metrics.average_precision_score(target == each, scores[:, each]) for each in shown]
    assert heights(bars) == pytest.approx(wanted, abs=1e-6)
    assert ticks(bars) == [*map(str, shown)]
    found = sweep.interval("average_precision")
    ends = [found.low[1:11].tolist(), found.high[1:11].tolist()]
    assert [part[:, 1].tolist() for part in bars.collections[0].get_segments()] == [
        pytest.approx(pair) for pair in zip(*ends, strict=True)
    ]
    dotted = [each.get_ydata()[0] for each in bars.lines if each.get_linestyle() == ":" and len(each.get_ydata())]
    assert dotted == pytest.approx([(target == each).mean() for each in shown])


def test_a_sweep_without_positives_has_no_curves_and_says_so_once():
    scores, target = torch.from_numpy(SCORES), torch.zeros(120).long()
    with listening() as told:  # the sweep itself warns of the class first
        assert validated(ThresholdSweep(f_score), lambda metric: metric.update(scores, target)) == {}
    assert told[1:] == ["ConfusionFigures: 'val' has no targets of both classes, so there is no curve to draw"]


def test_a_report_whose_name_is_no_file_name(tmp_path):
    module = scripted(lightning)((4,))
    module.reports = nn.ModuleDict({"a/b": module.val})
    del module.val
    module.hooks = {
        "validation_step": lambda module, index, _: module.counted(module.reports["a/b"], index),
        "on_validation_epoch_end": lambda module: module.log_dict(module.reports["a/b"]),
    }
    stand_in = MLflow()
    fit(module, [ConfusionFigures(), SelectionSummary("reports.a/b")], logger=[CSVLogger(tmp_path, "", ""), stand_in])
    wanted = ["reports.a_b_confusion_epoch0000.png", "reports.a_b_selection.png"]
    assert new_pictures(tmp_path / "figures") == wanted
    assert list(stand_in.figures) == [f"figures/{name}" for name in wanted]
    text = (tmp_path / "reports.a_b_selection_table.txt").read_text(encoding="utf-8")
    assert text == stand_in.tables["reports.a_b_selection_table.txt"]
    assert text.startswith("Kept and best epochs of 1 validation of self.reports.a/b ")


def test_the_choice_of_an_epoch_in_tensorboard_weights_and_biases_and_comet(tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    summary, stand_in, comet = SelectionSummary("val", measures=["accuracy", "gmean"]), Wandb(), Comet()
    with listening() as told:
        fit(scripted(lightning)(), [summary], logger=[TensorBoardLogger(tmp_path, "", ""), stand_in, comet])
    assert told == []
    table = summary.table()
    events = EventAccumulator(str(tmp_path), {"images": 0, "tensors": 0})
    events.Reload()
    (text,) = events.Tensors("val_selection_table/text_summary")
    shown = text.tensor_proto.string_val[0].decode()
    assert [line.removeprefix("    ") for line in shown.split("\n")] == str(table).split("\n")
    assert capsys.readouterr().out == f"\n{table}\n"
    (picture,) = events.Images("val_selection")
    assert (text.step, picture.step) == (12, 12)
    head, rows = stand_in.tables["val_selection_table at 12"]
    assert head == ["kind", "name", "epoch", "accuracy", "gmean"]
    wanted = [["best accuracy", 1], ["best gmean", 1], ["Baseline", None]]
    assert [row[:3] for row in rows] == [["selected", *row] for row in wanted]
    assert stand_in.tables["val_selection_table_notes at 12"] == (["note"], [[note] for note in table.notes])
    assert list(stand_in.figures) == list(comet.figures) == ["val_selection at 12"]
    assert comet.tables == {"val_selection_table at 12": str(table)}


def test_a_logger_that_takes_nothing_is_no_reason_to_draw(monkeypatch):
    monkeypatch.setattr(SelectionSummary, "plot", lambda *_: pytest.fail("drawn for nobody"))
    for logger in (False, Notes()):
        with listening() as told:
            fit(scripted(lightning)((4,)), [SelectionSummary("val")], logger=logger)
        assert [text.partition(" of imbtorch")[0] for text in told] == ["Notes gets no figures and tables"] * bool(
            logger
        )


# --- names that MLflow refuses or takes for one -----------------------------------------------------------------------

COLLIDING = {
    "one name": (
        ["<30", ">30", "NO"],
        "gives both 'val_recall/<30' and 'val_recall/>30' the same name, 'val_recall/30",
    ),
    "one is a part": (
        ["C", "C#", "C++"],
        "gives both 'val_recall/C' and 'val_recall/C#' the same name, 'val_recall/C'",
    ),
    "nothing left of one": (["<=50K", ">50K", "?"], "gives both 'val_recall/<=50K' and 'val_recall/>50K' the same"),
    "no ASCII letter": (["猫", "犬", "鳥"], "refuses 'val_recall/猫', of which it would get 'val_recall/', and ends"),
    "a path": (["a/../b", "b", "c"], "refuses 'val_recall/a/../b'"),
    "a folder": (["a/", "b", "c"], "refuses 'val_recall/a/'"),
    "long": (["a", "b", "c" * 250], "refuses 'val_recall/ccc"),
    "apart": (["low <3%", "mid.", "größer"], ""),
}


def mlflow_takes(names):
    """Whether MLflow takes all these names, after Lightning's logger, for as many metrics."""
    mlflow = import_or_skip("mlflow")
    sent = [re.sub("[^a-zA-Z0-9_/. -]+", "", name) for name in names]  # as lightning/pytorch/loggers/mlflow.py does
    try:
        for name in sent:
            mlflow.utils.validation._validate_metric_name(name)
    except mlflow.exceptions.MlflowException:
        return False
    return len(set(sent)) == len(sent) and max(map(len, sent)) <= mlflow.utils.validation.MAX_ENTITY_KEY_LENGTH


@pytest.mark.default_cases("one name-fit", "no ASCII letter-validate", "long-test", "apart-fit")
@pytest.mark.parametrize("act", ["fit", "validate", "test"])
@pytest.mark.parametrize("kind", COLLIDING)
def test_names_that_mlflow_refuses_or_merges_are_told_at_the_start(kind, act):
    names, text = COLLIDING[kind]
    options = {"measures": ["iam"], "per_class": ["recall"], "prefix": "val_"}
    seen = []

    def log(module):
        seen.append([str(each.message) for each in caught if "MLflow" in str(each.message)])
        module.log_dict(module.val)

    module = scripted(lightning)((1,), on_validation_epoch_end=log)
    module.val = ImbalanceReport("multiclass", class_names=names, **options)
    module.test_step, module.on_test_epoch_end = module.validation_step, module.on_validation_epoch_end
    trainer = lightning.Trainer(**QUIET, max_epochs=1, logger=[MLflow(), Notes()], enable_checkpointing=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(trainer, act)(module, *[indices()] * (2 if act == "fit" else 1))
    assert mlflow_takes(module.val.keys()) is (text == "")
    assert seen[0] == seen[-1]  # before the first value is logged, once
    assert len(seen[0]) == bool(text)
    if text:
        assert seen[0][0].startswith(f"MLflow {text}")
        better = ast.literal_eval(re.search(r"build self\.val with class_names named (\[.*\])$", seen[0][0])[1])
        assert len(better) == len(names)
        assert mlflow_takes(ImbalanceReport("multiclass", class_names=better, **options).keys())


def test_names_of_groups_labels_and_collections_are_told_too():
    report = ImbalanceReport("binary", groups=["a+", "a-", "a"], measures=["iam"], per_class=())
    sweep = ThresholdSweep("f1", task="multilabel", num_labels=2, class_names=["猫", "犬"])
    pair = MetricCollection({"F1 %": BalancedAccuracy("binary"), "F1 #": BalancedAccuracy("binary")})
    remedies = {
        "groups named ['a_0', 'a-_1', 'a_2']": report,
        "class_names named ['class_0', 'class_1']": sweep,
        "choose names that differ in these": pair,
    }
    for remedy, metric in remedies.items():
        module = scripted(lightning)((1,), on_validation_epoch_end=lambda module: None)
        module.other = metric
        for logger, told in ((MLflow(), True), (Notes(), False)):
            trainer = lightning.Trainer(**QUIET, logger=logger, enable_checkpointing=False)
            with listening() as texts:
                trainer.validate(module, indices(), verbose=False)
            assert [remedy in text for text in texts if "MLflow" in text] == [True] * told
