"""What all pictures share, and those of values and of matrices: each is rendered and read back."""

import itertools
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import colors
from matplotlib import pyplot as plt
from pictures import (
    COUNTS,
    SWEPT,
    TWO,
    correlations,
    cut_off,
    interval,
    legend,
    line,
    pixels,
    recalls_beside,
    ticks,
)

import imbtorch
from imbtorch import papers, plots
from imbtorch.papers import Correlations, skew_map
from imbtorch.statistics import Interval

SVG_TEXT = "{http://www.w3.org/2000/svg}text"
DRAWINGS = {
    "plot_values": lambda ax=None: plots.plot_values(torch.tensor([0.5, 0.25]), ax),
    "plot_confusion_matrix": lambda ax=None: plots.plot_confusion_matrix(COUNTS, ax),
    "plot_accuracy_dominance": lambda ax=None: papers.plot_accuracy_dominance(torch.tensor([[0.1, 0.8]]), ax),
    "plot_skew_map": lambda ax=None: papers.plot_skew_map(skew_map(imbtorch.precision, 5, 8), ax),
    "plot_correlations": lambda ax=None: papers.plot_correlations(correlations(), "b", ax),
    "plot_dominance_curve": lambda ax=None: papers.plot_dominance_curve(SWEPT, ax),
    "plot_precision_recall": lambda ax=None: plots.plot_precision_recall(SWEPT, ax, measure=imbtorch.accuracy),
    "plot_roc": lambda ax=None: plots.plot_roc(SWEPT, ax, measure=imbtorch.accuracy),
    "plot_prevalence": lambda ax=None: papers.plot_prevalence({"accuracy": imbtorch.accuracy}, TWO, ax),
    "plot_selection": lambda ax=None: plots.plot_selection({"a": [0.1, 0.5], "b": [0.9, 0.4]}, ax, selected={"a": 1}),
    "plot_sensitivity": lambda ax=None: papers.plot_sensitivity({"accuracy": imbtorch.accuracy}, [5, 9], ax),
    "plot_sweep": lambda ax=None: plots.plot_sweep(torch.tensor([0.2, 0.6]), torch.tensor([0.3, 0.7]), ax),
}


# --- of all pictures -------------------------------------------------------------------------------------------------


def test_every_picture_is_in_the_catalogue_of_these_tests():
    assert set(DRAWINGS) == {*plots.__all__, *(name for name in papers.__all__ if name.startswith("plot_"))}
    assert plots.__all__ == sorted(plots.__all__)


@pytest.mark.default_cases("plot_values", "plot_confusion_matrix", "plot_sweep")
@pytest.mark.parametrize("name", DRAWINGS)
def test_a_new_figure_is_made_or_given_axes_are_used(name):
    fig, ax = DRAWINGS[name]()
    assert ax.figure is fig
    assert len(plt.get_fignums()) == 1
    assert pixels(fig)[..., :3].std() > 5  # not blank
    figure, axes = plt.subplots(1, 2, layout="constrained")
    made, drawn = DRAWINGS[name](axes[1])
    assert made is None
    assert drawn is axes[1]
    assert not axes[0].has_data()
    assert axes[1].has_data()
    pixels(figure)
    assert len(plt.get_fignums()) == 2  # no third one
    plt.close(figure)
    plt.close(fig)
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_matplotlib_the_error_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'imbtorch\[plot\]'"):
        DRAWINGS[name]()


@pytest.mark.default_cases("plot_values", "plot_sweep")
@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_reads_without_colour(name):
    """Turned to grey, it still has as many shades or more than black and white."""
    fig, _ = DRAWINGS[name]()
    grey = pixels(fig)[..., :3].astype(float) @ [0.299, 0.587, 0.114]
    assert grey.min() < 60
    assert grey.max() == pytest.approx(255, abs=1)


def test_lines_differ_in_more_than_colour():
    steps = [torch.rand(12) for _ in range(4)]
    _, ax = plots.plot_values(steps)
    looks = [(each.get_linestyle(), each.get_marker()) for each in ax.lines]
    assert len(set(looks)) == len(looks) == 12
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in itertools.pairwise(looks))
    for first, second in itertools.pairwise(ax.lines):
        assert first.get_color() != second.get_color()


AWKWARD = ["$5 to $10", "_hidden", r"\$\frac{", "a $b$ _c_", "__", ""]


def awkward(names, drawn):
    """Drawings whose names are awkward, and the names that must be read in each."""
    several = {name: torch.linspace(0.1, 0.9, 3) + 0.01 * index for index, name in enumerate(names)}
    found = Correlations(tuple(names), (0.1, 0.2), torch.rand(2, len(names), len(names)))
    moved = {name: lambda counts, shift=index: imbtorch.accuracy(counts) + shift for index, name in enumerate(names)}
    if drawn == "bars":
        return plots.plot_values(torch.rand(len(names)), labels=names, name=names[0], item=names[1]), names
    if drawn == "lines":
        return plots.plot_values([torch.rand(len(names))] * 3, labels=names, name=names[0]), names
    if drawn == "matrix":
        return plots.plot_confusion_matrix(many(len(names)), labels=names), names
    if drawn == "dominance":
        return papers.plot_accuracy_dominance(torch.rand(len(names), 2) / 2, labels=names), names
    if drawn == "correlations":
        return papers.plot_correlations(found, names[1]), [*names[:1], *names[2:]]
    if drawn == "prevalence":
        return papers.plot_prevalence(moved, TWO), names
    if drawn == "selection":
        bands = {name: interval(line) for name, line in several.items()}
        return plots.plot_selection(several, selected=dict.fromkeys(names, 1), intervals=bands, xlabel=names[0]), names
    if drawn in ("roc", "precision_recall", "dominance_curve"):
        home = papers if drawn == "dominance_curve" else plots
        return getattr(home, f"plot_{drawn}")(dict.fromkeys(names, SWEPT)), names
    if drawn == "sweep":
        values = torch.rand(len(names), 3)
        return plots.plot_sweep(torch.tensor([0.2, 0.5, 0.7]), values, labels=names, name=names[0]), names
    return papers.plot_sensitivity(moved, [5] * len(names), labels=names, classes=[0, 1]), names


AWKWARDLY_NAMED = (
    *("bars", "lines", "matrix", "dominance", "correlations", "prevalence", "selection", "sensitivity", "sweep"),
    *("roc", "precision_recall", "dominance_curve"),
)


@pytest.mark.default_cases("bars", "matrix")
@pytest.mark.parametrize("drawn", AWKWARDLY_NAMED)
def test_names_are_drawn_as_they_are_written(drawn, tmp_path):
    """Read from the picture itself: dollars are no formula, and what begins with an underscore is in the legend."""
    (fig, ax), names = awkward(AWKWARD, drawn)
    with mpl.rc_context({"svg.fonttype": "none"}):
        fig.savefig(tmp_path / "picture.svg")
    written = {"".join(text.itertext()) for text in ElementTree.parse(tmp_path / "picture.svg").iter(SVG_TEXT)}
    for name in filter(None, names):
        assert any(name in text for text in written), name
    if drawn not in ("bars", "matrix"):
        assert len(legend(ax)) >= len(names)


# --- values ----------------------------------------------------------------------------------------------------------


def test_names_of_values_must_fit():
    with pytest.raises(ValueError, match="labels must hold 2 names, got 1"):
        plots.plot_values(torch.tensor([0.5, 0.25]), labels=["cat"])
    with pytest.raises(ValueError, match="labels must hold 2 names, got 3"):
        plots.plot_values([torch.tensor([0.5, 0.25])] * 2, labels=["cat", "dog", "owl"])


def test_many_bars_have_as_many_names_as_fit():
    fig, ax = plots.plot_values(torch.rand(100), labels=[f"species {index}" for index in range(100)], name="recall")
    pixels(fig)
    shown = ticks(ax, "x")
    assert shown == [f"species {index}" for index in range(0, 100, 3)]
    assert {tick.get_rotation() for tick in ax.get_xticklabels()} == {90.0}
    boxes = [tick.get_window_extent() for tick in ax.get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


# --- confusion matrix ------------------------------------------------------------------------------------------------


def many(classes, per_class=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 6, (classes, classes), generator=generator)
    counts.diagonal().copy_(torch.full((classes,), per_class))
    return counts


def luminance(text):
    return sum(colors.to_rgb(text.get_color())) / 3


def test_a_rare_error_is_not_called_none():
    _, ax = plots.plot_confusion_matrix(torch.tensor([[299567, 433], [0, 50]]))
    assert [text.get_text() for text in ax.texts] == ["299567\n>99%", "433\n<1%", "50\n100%"]


@pytest.mark.default_cases("1", "3")
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 20])
def test_up_to_twenty_classes_each_cell_has_its_numbers(classes):
    counts = many(classes)
    fig, ax = plots.plot_confusion_matrix(counts)
    pixels(fig)
    rates = counts / counts.sum(1, keepdim=True)
    (image,) = ax.images
    np.testing.assert_allclose(image.get_array(), rates, atol=1e-6)
    assert image.get_clim() == (0.0, 1.0)
    written = {text.get_position(): text for text in ax.texts}
    assert len(written) == len(ax.texts) == int((counts > 0).sum())
    for (column, row), text in written.items():
        rate = rates[row, column].double().item()
        share = "<1%" if rate < 0.005 else ">99%" if 0.995 <= rate < 1 else f"{rate:.0%}"
        assert text.get_text() == f"{counts[row, column]}\n{share}"
        assert text.get_fontsize() >= 7
        background = 1 - rates[row, column].item()  # bright where the rate is small
        assert luminance(text) == (1.0 if background < 0.5 else 0.0)
    wide = ax.get_window_extent().width / classes
    assert max(text.get_window_extent().width for text in ax.texts) <= wide
    assert max(text.get_window_extent().height for text in ax.texts) <= wide
    assert fig.axes == [ax]
    assert not ax.child_axes  # no bar is needed
    assert ticks(ax, "x") == ticks(ax, "y") == [str(index) for index in range(classes)]


@pytest.mark.default_cases("21")
@pytest.mark.parametrize("classes", [21, 40, 100])
def test_many_classes_have_a_bar_instead_of_numbers(classes):
    counts = many(classes)
    names = [f"a class with a longer name {index}" for index in range(classes)]
    fig, ax = plots.plot_confusion_matrix(counts, labels=names)
    pixels(fig)
    assert not ax.texts
    (bar,) = ax.child_axes
    assert fig.axes == [ax]
    assert not cut_off(fig)
    assert bar.get_window_extent().height == pytest.approx(ax.get_window_extent().height)
    assert bar.get_ylabel() == "Share of the true class"
    assert ticks(bar, "y")[:3] == ["0%", "1%", "5%"]
    (image,) = ax.images
    assert image.get_clim() == (0.0, 1.0)
    assert float(image.norm(0.01)) == pytest.approx(0.1)  # by the square root
    stride = {21: 1, 40: 1, 100: 3}[classes]
    assert ticks(ax, "x") == ticks(ax, "y") == names[::stride]
    for axis in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [tick.get_window_extent() for tick in axis]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
        assert {tick.get_fontsize() >= 7 for tick in axis} == {True}
    area = ax.get_window_extent()
    assert area.width == pytest.approx(area.height, rel=0.01)
    assert area.width > 0.5 * fig.get_window_extent().width  # the names do not crowd the matrix out
    assert max(fig.get_size_inches()) < 19


@pytest.mark.default_cases("2")
@pytest.mark.parametrize("classes", [2, 10, 30, 60])
def test_recalls_stand_beside_their_rows(classes):
    counts = many(classes)
    values = imbtorch.recall(counts, "none")
    low = torch.where(torch.arange(classes) == 1, values - 0.1, torch.nan)
    given = Interval(values, low, low + 0.15, 0.9, "posterior")
    fig, ax = plots.plot_confusion_matrix(counts, recalls=given)
    assert not cut_off(fig)
    assert recalls_beside(ax) == pytest.approx((counts.diag() / counts.sum(1)).tolist())
    *bar, beside = ax.child_axes
    assert len(bar) == (classes > 20)
    matrix, area = ax.get_window_extent(), beside.get_window_extent()
    assert (area.y0, area.y1) == pytest.approx((matrix.y0, matrix.y1))
    assert matrix.x1 < area.x0
    assert all(area.x1 < each.get_tightbbox().x0 for each in bar)
    assert beside.get_xlabel() == "Recall\n90% interval"
    (segment,) = beside.collections[0].get_segments()
    np.testing.assert_allclose(segment, [[values[1] - 0.1, 1], [values[1] + 0.05, 1]], atol=1e-6)
    _, ax = plots.plot_confusion_matrix(counts, recalls=values)
    assert recalls_beside(ax) == pytest.approx(values.tolist())
    assert ax.child_axes[-1].get_xlabel() == "Recall"
    assert not [each for each in ax.child_axes[-1].collections if hasattr(each, "get_segments")]


@pytest.mark.default_cases("3-None")
@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("classes", [3, 30])
def test_what_stands_beside_a_matrix_stays_out_of_other_axes(classes, layout):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout=layout)
    counts = many(classes)
    for ax in axes:
        plots.plot_confusion_matrix(counts, ax, recalls=imbtorch.recall(counts, "none"))
    assert not cut_off(figure)
    beside = [each.get_tightbbox().x1 for each in axes[0].child_axes]
    assert len(beside) == 1 + (classes > 20)
    assert max(beside) < axes[1].get_tightbbox().x0
    assert min(ax.get_window_extent().width for ax in axes) > 100


def test_values_say_how_sure_their_interval_is():
    values = torch.tensor([0.5, 0.25])
    _, ax = plots.plot_values(Interval(values, values - 0.1, values + 0.2, 0.9, ""), name="recall")
    assert ax.get_ylabel() == "recall (90% interval)"
    assert [bar.get_height() for bar in ax.patches] == [0.5, 0.25]
    ends = [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()]
    assert ends == [pytest.approx([0.4, 0.7]), pytest.approx([0.15, 0.45])]
    none = torch.full_like(values, torch.nan)
    _, ax = plots.plot_values(Interval(values, none, none, 0.9, ""), name="recall")
    assert ax.get_ylabel() == "recall"
    _, ax = plots.plot_values(Interval(values[0], values[1], values[0], 0.9, ""))
    assert ax.collections[0].get_segments()[0][:, 1].tolist() == [0.25, 0.5]


def test_long_names_that_differ_in_their_number_stay_apart():
    labels = [f"a very long name of a hospital, number {index}" for index in range(3)]
    _, ax = plots.plot_confusion_matrix(many(3), labels=labels)
    assert ticks(ax, "y") == [f"a very long name of…, number {index}" for index in range(3)]


@pytest.mark.parametrize("classes", [2, 10, 40])
def test_long_names_are_cut_and_leave_room(classes):
    fig, ax = plots.plot_confusion_matrix(many(classes), labels=["x" * 200] * classes)
    pixels(fig)
    assert set(ticks(ax, "x")) == set(ticks(ax, "y")) == {"x" * 19 + "…" + "x" * 10}
    assert ax.get_window_extent().width / classes > 15
    assert ax.get_window_extent().width > 0.4 * fig.get_window_extent().width


@pytest.mark.slow
def test_small_axes_show_a_bar_instead_of_numbers():
    _, axes = plt.subplots(4, 4, layout="constrained")
    plots.plot_confusion_matrix(many(15), axes[0, 0])
    assert not axes[0, 0].texts
    _, ax = plots.plot_confusion_matrix(many(15))
    assert ax.texts


def test_names_shrink_in_small_axes():
    figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
    plots.plot_confusion_matrix(many(36), ax, labels=[f"species {index}" for index in range(36)])
    pixels(figure)
    for axis in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert len(axis) == 36
        boxes = [tick.get_window_extent() for tick in axis]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_large_counts_fit_their_cells():
    counts = torch.full((12, 12), 123_456_789)
    fig, ax = plots.plot_confusion_matrix(counts)
    pixels(fig)
    width = ax.get_window_extent().width / 12
    assert ax.texts
    assert all(text.get_window_extent().width <= width for text in ax.texts)


@pytest.mark.parametrize(
    ("normalize", "shares"),
    [("true", ["90%", "10%", "25%"]), ("pred", ["94%", "38%", "5%"]), ("all", ["72%", "8%", "4%"])],
)
def test_rates_are_shares_of_what_is_asked(normalize, shares):
    _, ax = plots.plot_confusion_matrix(COUNTS, normalize=normalize)
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert [written[place] for place in ((0, 0), (1, 0), (0, 1))] == [
        f"{count}\n{share}" for count, share in zip((90, 10, 5), shares, strict=True)
    ]
    assert (2, 0) not in written  # an empty cell stays empty
    top = 90 / 125 if normalize == "all" else 1.0
    assert ax.images[0].get_clim() == pytest.approx((0.0, top))
    white = {text.get_position() for text in ax.texts if luminance(text) == 1}
    assert white == {(0, 0), (1, 1), (2, 2)} - ({(1, 1), (2, 2)} if normalize == "all" else set())


def test_rates_and_weighted_counts_are_written_as_they_are():
    _, ax = plots.plot_confusion_matrix(torch.tensor([[0.75, 0.25], [0.0, 1.0]]))
    assert {text.get_text() for text in ax.texts} == {"0.75\n75%", "0.25\n25%", "1\n100%"}


@pytest.mark.parametrize("counts", [torch.zeros(3, 3, dtype=torch.int64), torch.zeros(30, 30)])
@pytest.mark.parametrize("normalize", ["true", "all"])
def test_an_empty_matrix_is_an_empty_picture(counts, normalize):
    fig, ax = plots.plot_confusion_matrix(counts, normalize=normalize)
    pixels(fig)
    assert not ax.texts
    assert np.asarray(ax.images[0].get_array()).max() == 0


def test_only_one_square_matrix_is_drawn():
    with pytest.raises(ValueError, match=r"got shape \[2, 3, 3\]; choose one"):
        plots.plot_confusion_matrix(torch.zeros(2, 3, 3))
    with pytest.raises(ValueError, match=r"\[..., K, K\], got shape \[2, 3\]"):
        plots.plot_confusion_matrix(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="labels must hold 3 names, got 2"):
        plots.plot_confusion_matrix(COUNTS, labels=["cat", "dog"])
    with pytest.raises(ValueError, match="must be one of 'true', 'pred', 'all', got 'row'"):
        plots.plot_confusion_matrix(COUNTS, normalize="row")
    assert not plt.get_fignums()  # what is refused leaves no figure behind


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_tensors_that_need_gradients_are_drawn_like_any_other(dtype):
    """And every dtype; warnings are errors here."""

    def given(values):
        return torch.tensor(values, dtype=dtype, requires_grad=True)

    _, ax = plots.plot_confusion_matrix(given([[3.0, 1.0], [0.0, 4.0]]))
    assert ax.images[0].get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    _, ax = papers.plot_skew_map(given([[2.0, 4.0], [1.0, 0.5]]))
    assert ax.images[0].get_array().tolist() == [[1.0, 2.0], [0.0, -1.0]]
    _, ax = papers.plot_accuracy_dominance(given([[0.25, 0.5]]))
    assert line(ax, "0").get_xydata().tolist() == [[0.25, 0.5]]
    _, ax = papers.plot_sensitivity({"accuracy": imbtorch.accuracy}, given([6.0, 2.0]), steps=2)
    assert list(line(ax, "accuracy").get_ydata()) == [1.0, 0.75]
    _, ax = plots.plot_sweep(given([0.25, 0.75]), given([0.5, 1.0]), chosen=given([0.75, 1.0]))
    assert ax.lines[0].get_xydata().tolist() == [[0.25, 0.5], [0.75, 1.0]]
    for drawn, expected in ((given(0.5), [0.5]), ([given(0.5), given(0.25)], [0.5, 0.25])):
        _, ax = plots.plot_values(drawn)
        assert list(ax.lines[0].get_ydata()) == expected
