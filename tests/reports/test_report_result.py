"""Pictures and tables of `result.py`, and what a result says without its report."""

import itertools
import json
import math

import pytest
import torch
from matplotlib import pyplot as plt
from report_cases import (
    COLUMNS,
    COUNTING,
    OVERALL,
    SHOWN,
    column,
    data,
    filled,
    peers,
    support_of,
    table_peers,
    weighted,
)
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
    for true, guess in itertools.product(range(len(names)), repeat=2):
        assert written[guess, true] == f"{matrix[true][guess]}\n{shares[true][guess]:.0%}"
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
    shown = "recall" if item == "Class" else "recall (95% interval)"  # margins have none
    assert (ax.get_xlabel(), ax.get_ylabel()) == (item, shown)


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


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_says_what_looking_at_nothing_would_be_worth():
    """Of 1000 samples 10 are fraud: 990 right in all, recalls 1 and 0, CBA terms .99 and 0, read at 1:1 one half."""
    counts = {(0, 0): 985, (0, 1): 5, (1, 0): 7, (1, 1): 3}
    target, preds = (torch.tensor([pair[k] for pair, n in counts.items() for _ in range(n)]) for k in (0, 1))
    measures = ["accuracy", "balanced_accuracy", "iam", "dominance"]
    for prevalence, wanted in ((None, (0.99, 0.5, -0.01)), ([1, 1], (0.5, 0.5, -0.5))):
        report = ImbalanceReport("binary", class_names=["ok", "fraud"], measures=measures, prevalence=prevalence)
        report.update(preds, target)
        text = "Baseline: always predicting 'ok': accuracy {:.3f}, balanced_accuracy {:.3f}, iam {:.3f}".format(*wanted)
        assert str(report.table()).splitlines()[-1] == text


@pytest.mark.parametrize("state", ["matrix", "margins"])
def test_table_of_classes(state):
    names = ["a cat", "dog", "long-eared owl"]
    report = filled("multiclass", class_names=names, state=state, prefix="val_", per_class=SHOWN)
    wanted = table_peers(*data("multiclass"))
    table = report.table()
    nested = json.loads(json.dumps(table.to_dict()))
    assert list(nested["class"]) == names
    for index, name in enumerate(names):
        assert nested["class"][name] == pytest.approx({column: wanted[column][index] for column in COLUMNS})
    overall = {name: row["all"] for name, row in nested["measure"].items()}
    assert overall == pytest.approx(peers(*data("multiclass"), "macro"), rel=1e-6)

    head, *lines = str(table).splitlines()
    assert head.split() == ["class", *COLUMNS]
    assert len({len(head), *map(len, lines[:3])}) == 1  # all end in one column
    for index, name in enumerate(names):
        assert lines[index].startswith(name)
        cells = [f"{wanted[name][index]:{'.0f' if name in COLUMNS[:2] else '.3f'}}" for name in COLUMNS]
        assert lines[index].split()[-7:] == cells
        for name, cell in zip(COLUMNS, cells, strict=True):
            end = head.index(f" {name}") + 1 + len(name)
            assert lines[index][:end].endswith(f" {cell}")
    assert lines[3] == ""
    assert max(map(len, lines)) <= 100
    means, start = (at for at, line in enumerate(lines) if line.startswith("- "))
    assert lines[means] == "- iam, cba, precision, recall, f1: mean over the classes (macro)"
    lines, last = lines[: means - 1], " ".join(map(str.strip, lines[start:]))
    assert last.count(", ") == 8
    assert last.startswith(
        f"- Baseline: always predicting {names[int(torch.bincount(data('multiclass')[1]).argmax())]!r}: iam "
    )
    assert lines[4].split() == ["measure", "all"]
    overall = {line.split()[0]: line.split()[1] for line in lines[5:]}
    assert overall == {name: f"{value:.3f}" for name, value in peers(*data("multiclass"), "macro").items()}
    assert len(set(map(len, lines[4:]))) == 1


@pytest.mark.parametrize(("task", "arguments"), COUNTING)
def test_columns_hold_the_terms_of_the_overall_values(task, arguments):
    table = filled(task, per_class=SHOWN, **arguments).table()
    means = ("cba", "iam") if task == "binary" else ("precision", "recall", "f1", "cba", "iam")
    for name in means:
        terms = [term for term in column(table, name) if not math.isnan(term)]
        assert sum(terms) / len(terms) == pytest.approx(table["measure"][name]["all"], rel=1e-6, abs=1e-6), name


def test_table_of_labels():
    names = ["cat", "dog", "owl"]
    table = filled("multilabel", class_names=names, per_class=SHOWN).table()
    preds, target = data("multilabel")
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(target, preds)
    columns = {"support": support, "predicted": preds.sum(0), "precision": precision, "recall": recall, "f1": f1}
    for name, values in columns.items():
        assert column(table, name) == pytest.approx(values.tolist()), name
    assert [line.split()[0] for line in str(table).splitlines()[1:4]] == names


def test_a_class_that_does_not_occur_has_dashes():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog", "owl"])
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    with pytest.warns(UserWarning, match="no target"):
        table = report.table()
    assert str(table).splitlines()[3].split() == ["owl", "0", "0", "-", "-"]
    assert math.isnan(table.to_dict()["class"]["owl"]["recall"])


def test_table_shows_the_last_result():
    report = ImbalanceReport("multiclass", num_classes=3, on_invalid="raise")
    report.update(*data("multiclass", seed=0))
    assert column(report.table(), "support") == support_of(0)  # computed for the occasion
    report.update(*data("multiclass", seed=1))
    assert column(report.table(), "support") == support_of(0, 1)
    report.compute()
    report.reset()
    assert column(report.table(), "support") == support_of(0, 1)  # an epoch's report, after the epoch
    report["iam"].reset()
    assert column(report.table(), "support") == support_of(0, 1)
    report.update(*data("multiclass", seed=2))
    assert column(report.table(), "support") == support_of(2)


@pytest.mark.parametrize("way", ["loaded", "set"])
def test_table_after_a_reset_shows_counts_from_elsewhere(way):
    report, source = filled("multiclass", seed=0), filled("multiclass", seed=1)
    report.compute()
    report.reset()
    if way == "loaded":
        source.persistent(True)
        report.load_state_dict(source.state_dict())
    else:
        report.counts_matrix_multiclass_3 = source.counts_matrix_multiclass_3
    assert column(report.table(), "support") == support_of(1)


def test_table_of_nothing():
    report = ImbalanceReport("multiclass", num_classes=3)
    with pytest.warns(UserWarning, match="counted no sample"):
        table = report.table()
    assert column(table, "support") == [0, 0, 0]
    assert all(math.isnan(row["all"]) for row in table["measure"].values())
    assert "nan" not in str(table)


def test_classes_without_targets_are_sorted_last_by_measures():
    """Recalls by hand: ok 3/4, fraud 1/2; late and void have no targets, but late is predicted."""
    report = ImbalanceReport("multiclass", class_names=["void", "late", "ok", "fraud"], measures=["accuracy"])
    report.update(torch.tensor([2, 2, 2, 1, 3, 2]), torch.tensor([2, 2, 2, 2, 3, 3]))
    with pytest.warns(UserWarning, match="had no target: void, late"):
        report.compute()
    assert list(report.table(sort="recall")["class"]) == ["fraud", "ok", "late", "void"]
    assert list(report.table(sort="precision")["class"]) == ["ok", "fraud", "late", "void"]  # 3/4 and 1
    assert list(report.table(sort="support")["class"]) == ["void", "late", "fraud", "ok"]
    assert list(report.table(sort="predicted")["class"]) == ["void", "late", "fraud", "ok"]


@pytest.mark.filterwarnings("ignore:.*are too few for this prevalence")
def test_a_table_at_a_prevalence_has_the_support_that_was_counted():
    report = filled("multiclass", prevalence=[1000, 1, 30], per_class=SHOWN)
    preds, target = data("multiclass")
    wanted = weighted(preds, target, [1000, 1, 30])
    table, values = report.table(), report.compute()
    assert column(table, "support") == target.bincount().tolist()
    assert column(table, "predicted") == preds.bincount().tolist()
    assert column(table, "recall") == pytest.approx([wanted[f"recall/{index}"] for index in range(3)])
    assert column(table, "precision") == pytest.approx([float(values[f"precision/{index}"]) for index in range(3)])
    assert table["measure"]["accuracy"]["all"] == pytest.approx(wanted["accuracy"])
    assert sum(column(table, "f1")) / 3 == pytest.approx(wanted["f1"])
    _, ax = report.plot()
    assert sum(int(text.get_text().split("\n")[0]) for text in ax.texts) == 60


@pytest.mark.parametrize("names", [["ok", "fraud"], ["fraud", "ok"]])
def test_the_commonest_class_is_that_of_the_population(names):
    """In a validation set with more frauds than in a thousand of the population."""
    shares = {"ok": 1000, "fraud": 1}
    report = ImbalanceReport("binary", class_names=names, prevalence=shares, measures=["accuracy", "iam"])
    ok = names.index("ok")
    target = torch.tensor([ok] * 100 + [1 - ok] * 120)
    report.update(torch.where(torch.arange(220) % 5 == 0, 1 - target, target), target)
    report.compute()
    assert "Baseline: always predicting 'ok': accuracy 0.999, iam -0.001" in str(report.table())
    _, ax = report.plot([report.compute()] * 2)
    levels = {round(float(level), 4) for line in ax.get_lines() for level in line.get_ydata()[:1]}
    assert 0.999 in levels


def test_labels_that_most_samples_have_are_always_predicted():
    report = ImbalanceReport("multilabel", num_labels=2, prevalence=[0.9, 0.2], measures=["accuracy"], per_class=())
    target = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]] * 5)
    report.update(target.flip(0), target)
    report.compute()
    assert "predicting the more common value of each label: accuracy 0.850" in str(report.table())
