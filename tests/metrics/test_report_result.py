"""Pictures of the result of a report, and what a result says without its report."""

import itertools

import pytest
import torch
from matplotlib import pyplot as plt
from reports import OVERALL, data, filled, peers
from sklearn import metrics as sklearn_metrics

from imbtorch import ImbalanceReport

# --- pictures and looks ---------------------------------------------------------------------------------------------


def ticks(ax, axis):
    return [tick.get_text() for tick in getattr(ax, f"get_{axis}ticklabels")()]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_plot_of_the_matrix(task):
    names = ["cat", "dog", "owl"][: 2 if task == "binary" else 3]
    report = filled(task, class_names=names)
    fig, ax = report.plot()
    preds, target = data(task)
    matrix = sklearn_metrics.confusion_matrix(target, preds)
    assert fig is ax.figure
    assert ticks(ax, "x") == ticks(ax, "y") == names
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Predicted class", "True class")
    shares = matrix / matrix.sum(1, keepdims=True)
    torch.testing.assert_close(torch.tensor(ax.images[0].get_array().data), torch.tensor(shares))
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert matrix.all()
    for row, column in itertools.product(range(len(names)), repeat=2):
        assert written[column, row] == f"{matrix[row][column]}\n{shares[row][column]:.0%}"
    figure, axes = plt.subplots(1, 2)
    assert report.plot(ax=axes[1]) == (None, axes[1])
    assert axes[1].images
    assert not axes[0].images
    assert figure.axes == list(axes)


@pytest.mark.parametrize(
    ("task", "arguments", "item"), [("multiclass", {"state": "margins"}, "Class"), ("multilabel", {}, "Label")]
)
def test_plot_without_a_matrix_shows_recalls(task, arguments, item):
    names = ["cat", "dog", "owl"]
    _, ax = filled(task, class_names=names, **arguments).plot()
    preds, target = data(task)
    wanted = sklearn_metrics.recall_score(target, preds, average=None)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(wanted.tolist())
    assert ticks(ax, "x") == names
    assert (ax.get_xlabel(), ax.get_ylabel()) == (item, "recall")


def test_plot_of_a_course():
    results = [filled("multiclass", seed=seed, prefix="val_").compute() for seed in range(3)]
    report = ImbalanceReport("multiclass", num_classes=3, prefix="val_")
    _, ax = report.plot(results)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    for name in OVERALL:
        wanted = [peers(*data("multiclass", seed=seed), "macro")[name] for seed in range(3)]
        assert lines[f"val_{name}"] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"val_{name}" for name in OVERALL]


def test_plot_of_a_course_of_classes_alone():
    report = filled("multiclass", measures={}, per_class=("recall",))
    _, ax = report.plot([report.compute(), report.compute()])
    assert [line.get_label() for line in ax.lines] == report.keys()


def test_plot_shows_the_last_result():
    report = filled("multiclass", seed=0)
    report.compute()
    report.reset()
    _, ax = report.plot()
    assert sum(int(text.get_text().split("\n")[0]) for text in ax.texts) == 60


# --- size, and torchmetrics' tools ----------------------------------------------------------------------------------


def test_the_course_of_values_beside_trivial_ones():
    report = ImbalanceReport("binary", measures=["accuracy", "gmean", "dominance"], per_class=())
    report.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    results = [report.compute(), report.compute()]
    _, ax = report.plot(results)
    dotted = {line.get_color(): line.get_ydata() for line in ax.lines if line.get_linestyle() == ":"}
    course = {line.get_label(): line.get_color() for line in ax.lines}
    assert list(dotted[course["accuracy"]]) == [0.75, 0.75]  # always class 0
    assert list(dotted[course["gmean"]]) == [0.0, 0.0]
    assert "baseline" in course
    report.reset()
    _, ax = ImbalanceReport("binary", measures=["accuracy"], per_class=()).plot(results)
    assert "baseline" not in {line.get_label() for line in ax.lines}
