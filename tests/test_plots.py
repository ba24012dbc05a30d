"""What the pictures show: each is rendered and read back."""

import functools
import itertools
import math
import sys
import warnings
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch

mpl.use("Agg")

from matplotlib import colors
from matplotlib import pyplot as plt

import imbtorch
from imbtorch import plots
from imbtorch.analysis import Correlations, Interval, measure_correlations, select_model, skew_map

SVG_TEXT = "{http://www.w3.org/2000/svg}text"
COUNTS = torch.tensor([[90, 10, 0], [5, 15, 0], [1, 1, 3]])
TWO = torch.tensor([[90, 10], [2, 8]])
DRAWINGS = {
    "plot_values": lambda ax=None: plots.plot_values(torch.tensor([0.5, 0.25]), ax),
    "plot_confusion_matrix": lambda ax=None: plots.plot_confusion_matrix(COUNTS, ax),
    "plot_accuracy_dominance": lambda ax=None: plots.plot_accuracy_dominance(torch.tensor([[0.1, 0.8]]), ax),
    "plot_skew_map": lambda ax=None: plots.plot_skew_map(skew_map(imbtorch.precision, 5, 8), ax),
    "plot_correlations": lambda ax=None: plots.plot_correlations(correlations(), "b", ax),
    "plot_prevalence": lambda ax=None: plots.plot_prevalence({"accuracy": imbtorch.accuracy}, TWO, ax),
    "plot_selection": lambda ax=None: plots.plot_selection({"a": [0.1, 0.5], "b": [0.9, 0.4]}, ax, selected={"a": 1}),
    "plot_sensitivity": lambda ax=None: plots.plot_sensitivity({"accuracy": imbtorch.accuracy}, [5, 9], ax),
}


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def correlations():
    """Three measures at two shares; b and c go together, a goes against b."""
    matrix = torch.tensor([[1.0, -0.5, 0.2], [-0.5, 1.0, 0.9], [0.2, 0.9, 1.0]], dtype=torch.float64)
    return Correlations(("a", "b", "c"), (0.1, 0.25), torch.stack((matrix, matrix / 2)))


def ticks(ax, axis):
    return [tick.get_text() for tick in getattr(ax, f"get_{axis}ticklabels")()]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def pixels(figure):
    """Render, so that whatever is drawn late is drawn, and return what was rendered."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def line(ax, label):
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return found


# --- of all pictures -------------------------------------------------------------------------------------------------


def test_every_picture_is_in_the_catalogue_of_these_tests():
    assert set(DRAWINGS) == set(plots.__all__)
    assert plots.__all__ == sorted(plots.__all__)


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
        return plots.plot_accuracy_dominance(torch.rand(len(names), 2) / 2, labels=names), names
    if drawn == "correlations":
        return plots.plot_correlations(found, names[1]), [*names[:1], *names[2:]]
    if drawn == "prevalence":
        return plots.plot_prevalence(moved, TWO), names
    if drawn == "selection":
        bands = {name: interval(line) for name, line in several.items()}
        return plots.plot_selection(several, selected=dict.fromkeys(names, 1), intervals=bands, xlabel=names[0]), names
    return plots.plot_sensitivity(moved, [5] * len(names), labels=names, classes=[0, 1]), names


@pytest.mark.parametrize(
    "drawn", ["bars", "lines", "matrix", "dominance", "correlations", "prevalence", "selection", "sensitivity"]
)
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
        assert text.get_text() == f"{counts[row, column]}\n{rates[row, column].double():.0%}"
        assert text.get_fontsize() >= 7
        background = 1 - rates[row, column].item()  # bright where the rate is small
        assert luminance(text) == (1.0 if background < 0.5 else 0.0)
    wide = ax.get_window_extent().width / classes
    assert max(text.get_window_extent().width for text in ax.texts) <= wide
    assert max(text.get_window_extent().height for text in ax.texts) <= wide
    assert fig.axes == [ax]  # no bar is needed
    assert ticks(ax, "x") == ticks(ax, "y") == [str(index) for index in range(classes)]


@pytest.mark.parametrize("classes", [21, 40, 100])
def test_many_classes_have_a_bar_instead_of_numbers(classes):
    counts = many(classes)
    names = [f"a class with a longer name {index}" for index in range(classes)]
    fig, ax = plots.plot_confusion_matrix(counts, labels=names)
    pixels(fig)
    assert not ax.texts
    (bar,) = [each for each in fig.axes if each is not ax]
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


@pytest.mark.parametrize("classes", [2, 10, 40])
def test_long_names_are_cut_and_leave_room(classes):
    fig, ax = plots.plot_confusion_matrix(many(classes), labels=["x" * 200] * classes)
    pixels(fig)
    assert set(ticks(ax, "x")) == set(ticks(ax, "y")) == {"x" * 29 + "…"}
    assert ax.get_window_extent().width / classes > 15
    assert ax.get_window_extent().width > 0.4 * fig.get_window_extent().width


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


# --- accuracy-dominance space ----------------------------------------------------------------------------------------


def boundary(ax):
    """The line between feasible and infeasible."""
    return next(each for each in ax.lines if len(each.get_xdata()) == 401)


def polygons(ax):
    return [patch for patch in ax.patches if patch.get_hatch()]


def test_the_empty_space_has_its_region_and_lines_of_equal_area():
    fig, ax = plots.plot_accuracy_dominance()
    pixels(fig)
    xs, ys = (np.asarray(each) for each in boundary(ax).get_data())
    np.testing.assert_allclose(ys, np.sqrt(1 - np.abs(xs)), atol=1e-12)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-1.0, 1.0), (0.0, 1.0))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Dominance", "G-mean")
    assert ax.get_legend() is None
    assert not polygons(ax)
    (shade,) = ax.collections  # what cannot be reached
    corners = shade.get_paths()[0].vertices
    assert (corners[:, 1] >= np.sqrt(1 - np.abs(corners[:, 0])) - 1e-9).all()
    levels = [each for each in ax.lines if each is not boundary(ax)]
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.5", "0.75", "1", "1.25"]
    assert len(levels) == 5
    for each, text in zip(levels, ax.texts, strict=True):
        xs, ys = (np.asarray(data) for data in each.get_data())
        np.testing.assert_allclose(ys * (xs + 3) / 2, float(text.get_text()))
        assert (ys <= np.sqrt(1 - np.abs(xs)) + 1e-12).all()


def test_points_of_a_selection_are_labelled_and_the_largest_area_is_hatched():
    models = {
        "cautious": torch.tensor([[95, 5], [8, 2]]),
        "balanced": torch.tensor([[80, 20], [2, 8]]),
        "eager": torch.tensor([[40, 60], [0, 10]]),
        "perfect negatives": torch.tensor([[100, 0], [5, 5]]),
    }
    found = select_model(models)
    fig, ax = plots.plot_accuracy_dominance(found)
    pixels(fig)
    assert legend(ax) == list(models)
    for name, (dominance, gmean, _) in zip(models, found.points.tolist(), strict=True):
        point = line(ax, name)
        assert (point.get_xdata()[0], point.get_ydata()[0]) == pytest.approx((dominance, gmean))
        assert point.get_linestyle() == "None"
    looks = [(line(ax, name).get_marker(), line(ax, name).get_markerfacecolor()) for name in models]
    assert looks == [("o", "black"), ("o", "white"), ("o", "0.65"), ("s", "black")]
    (trapezium,) = polygons(ax)
    (best,) = found.by_area
    dominance, gmean, area = found.points[list(models).index(best)].tolist()
    corners = trapezium.get_xy()[:4]
    np.testing.assert_allclose(corners, [[-1, 0], [-1, gmean], [dominance, gmean], [1, 0]])
    xs, ys = corners.T
    shoelace = abs(np.dot(xs, np.roll(ys, -1)) - np.dot(ys, np.roll(xs, -1))) / 2
    assert shoelace == pytest.approx(area)


def test_a_perfect_classifier_has_the_largest_trapezium():
    _, ax = plots.plot_accuracy_dominance(torch.tensor([[0.0, 1.0]]), levels=(1.5,))
    np.testing.assert_allclose(polygons(ax)[0].get_xy()[:4], [[-1, 0], [-1, 1], [0, 1], [1, 0]])
    assert legend(ax) == ["0"]
    (level,) = [each for each in ax.lines if each is not boundary(ax) and each.get_label() != "0"]
    assert (level.get_xdata()[0], level.get_ydata()[0], len(level.get_xdata())) == pytest.approx((0.0, 1.0, 1))


def test_which_trapezium_is_hatched_can_be_chosen():
    points = torch.tensor([[0.0, 0.9], [-0.5, 0.6]])
    _, ax = plots.plot_accuracy_dominance(points, trapezium=1)
    np.testing.assert_allclose(polygons(ax)[0].get_xy()[2], [-0.5, 0.6], atol=1e-6)
    _, ax = plots.plot_accuracy_dominance(points, trapezium=None)
    assert not polygons(ax)
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=rf"'best', None or an index 0\.\.1, got {wrong}"):
            plots.plot_accuracy_dominance(points, trapezium=wrong)


def test_an_infeasible_point_is_named_so_and_is_never_the_best():
    points = torch.tensor([[-0.36, 0.94], [-0.06, 0.74], [-0.36, 0.805]])  # the first is SVM on Pima as it was printed
    fig, ax = plots.plot_accuracy_dominance(points, labels=["original", "SMOTE", "rounded"])
    pixels(fig)
    assert legend(ax) == ["original (infeasible)", "SMOTE", "rounded"]
    np.testing.assert_allclose(polygons(ax)[0].get_xy()[2], [-0.06, 0.74], atol=1e-6)
    point = line(ax, "original (infeasible)")
    where = ax.transData.transform((point.get_xdata()[0], point.get_ydata()[0]))
    assert not ax.get_legend().get_window_extent().contains(*where)
    assert ax.get_legend().get_zorder() < point.get_zorder()
    _, ax = plots.plot_accuracy_dominance(points[:1])
    assert not polygons(ax)


def test_many_models_have_their_legend_beside_the_space():
    points = torch.stack((torch.linspace(-0.5, 0.5, 30), torch.full((30,), 0.5)), 1)
    fig, ax = plots.plot_accuracy_dominance(points)
    pixels(fig)
    assert len(legend(ax)) == 30
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
    looks = {(each.get_marker(), each.get_markerfacecolor()) for each in ax.lines if each.get_linestyle() == "None"}
    assert len(looks) == 30


def test_points_must_lie_in_the_space():
    many_classes = select_model({"a": COUNTS})
    with pytest.raises(ValueError, match=r"two classes; use one_vs_rest"):
        plots.plot_accuracy_dominance(many_classes)
    with pytest.raises(ValueError, match=r"\[M, 2\] of dominance and G-mean, got \[3\]"):
        plots.plot_accuracy_dominance(torch.zeros(3))
    for wrong in ([[0.0, 1.2]], [[-1.1, 0.5]], [[math.nan, 0.5]]):
        with pytest.raises(ValueError, match=r"dominance must lie in \[-1, 1\]"):
            plots.plot_accuracy_dominance(torch.tensor(wrong))
    with pytest.raises(ValueError, match="labels must hold 1 names, got 2"):
        plots.plot_accuracy_dominance(torch.tensor([[0.0, 0.5]]), labels=["a", "b"])
    assert not plt.get_fignums()


# --- skew ------------------------------------------------------------------------------------------------------------


def precision(counts):
    return imbtorch.precision(counts, "binary")


def test_a_skew_map_shows_the_logarithm_with_lines_at_powers_of_two():
    ratios = skew_map(precision, 20, 40)
    fig, ax = plots.plot_skew_map(ratios)
    pixels(fig)
    (image,) = ax.images
    shown = np.asarray(image.get_array())
    np.testing.assert_allclose(shown, ratios.log2().clamp(-4, 4), atol=1e-6)
    assert image.get_clim() == (-4.0, 4.0)
    assert image.get_extent() == [-0.5, 40.5, -0.5, 20.5]
    assert image.origin == "lower"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("True negatives", "True positives")
    (bar,) = [each for each in fig.axes if each is not ax]
    assert ticks(bar, "y") == ["1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8", "16"]
    assert bar.get_ylabel() == "Skew ratio"
    assert {text.get_text() for text in ax.texts} <= {"1/8", "1/4", "1/2", "1", "2", "4", "8"}
    assert "1" in {text.get_text() for text in ax.texts}
    (lines,) = ax.collections
    assert list(lines.levels) == [-3, -2, -1, 0, 1, 2, 3]
    assert lines.get_linewidths()[3] > 2 * lines.get_linewidths()[2]  # where both classes count alike
    dashes = [pattern for _, pattern in lines.get_linestyles()]
    assert [pattern is not None for pattern in dashes] == [True] * 3 + [False] * 4


def test_a_constant_skew_is_written():
    for positives, negatives, text in ((5, 5, "1 everywhere"), (5, 40, "8 everywhere")):
        fig, ax = plots.plot_skew_map(skew_map(imbtorch.balanced_accuracy, positives, negatives))
        pixels(fig)
        assert [each.get_text() for each in ax.texts] == [text]
        assert not ax.collections


def test_the_limit_bounds_what_is_told_apart():
    fig, ax = plots.plot_skew_map(torch.tensor([[0.001, 1.0], [3.0, math.inf]]), limit=4.0)
    pixels(fig)
    np.testing.assert_allclose(ax.images[0].get_array(), [[-2, 0], [math.log2(3), 2]], atol=1e-6)


@pytest.mark.parametrize("kind", ["log", "indicator"])
def test_results_without_a_ratio_are_hatched(kind):
    ratios = torch.tensor([[math.nan, 2.0], [0.5, 4.0]])
    fig, ax = plots.plot_skew_map(ratios, kind=kind)
    pixels(fig)
    assert np.isnan(ax.images[0].get_array()).sum() == 1 or np.ma.count_masked(ax.images[0].get_array()) == 1
    assert ax.patch.get_hatch()
    fig, ax = plots.plot_skew_map(torch.full((2, 2), math.nan), kind=kind)
    assert pixels(fig)[..., :3].std() > 5


def test_the_indicator_is_white_above_one():
    ratios = skew_map(imbtorch.precision, 100, 200)
    fig, ax = plots.plot_skew_map(ratios, kind="indicator")
    (image,) = ax.images
    np.testing.assert_array_equal(np.asarray(image.get_array()), (ratios > 1).double())
    assert image.cmap(image.norm(1.0))[:3] == (1.0, 1.0, 1.0)
    assert max(image.cmap(image.norm(0.0))[:3]) < 0.5
    assert ax.get_title() == "skew ratio > 1 (white): 75%"
    assert fig.axes == [ax]


def test_only_one_skew_map_is_drawn():
    with pytest.raises(ValueError, match=r"got shape \[3\]; choose one"):
        plots.plot_skew_map(torch.ones(3))
    with pytest.raises(ValueError, match="kind must be one of 'log', 'indicator', got 'linear'"):
        plots.plot_skew_map(torch.ones(3, 3), kind="linear")
    for wrong in (1.0, 0.5, math.nan):
        with pytest.raises(ValueError, match="limit must be a ratio above 1"):
            plots.plot_skew_map(torch.ones(3, 3), limit=wrong)
    assert not plt.get_fignums()


# --- correlations ----------------------------------------------------------------------------------------------------


def test_correlations_are_drawn_over_the_share_of_positives():
    fig, ax = plots.plot_correlations(correlations(), "b")
    pixels(fig)
    assert legend(ax) == ["a", "c"]
    assert list(line(ax, "a").get_xdata()) == [-0.5, -0.25]
    assert list(line(ax, "c").get_xdata()) == [0.9, 0.45]
    assert list(line(ax, "a").get_ydata()) == [10.0, 25.0]
    assert ticks(ax, "y") == ["10", "25"]
    assert ax.get_xlim() == (-1.05, 1.05)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Correlation with b", "Positive samples (%)")
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def test_a_measure_keeps_its_line_from_one_picture_to_the_next():
    _, first = plots.plot_correlations(correlations(), "b")
    _, second = plots.plot_correlations(correlations(), "a", others=["c"])
    assert legend(second) == ["c"]
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(line(first, "c"), look)() == getattr(line(second, "c"), look)()


def test_a_constant_measure_leaves_a_gap():
    measures = {"accuracy": imbtorch.accuracy, "constant": lambda counts: counts.double().sum((-1, -2)) * 0}
    found = measure_correlations(measures, [0.1, 0.2], n=50, draws=2)
    fig, ax = plots.plot_correlations(found, "accuracy")
    pixels(fig)
    assert np.isnan(line(ax, "constant").get_xdata()).all()


def test_correlations_of_unknown_measures():
    with pytest.raises(ValueError, match="measure must be one of 'a', 'b', 'c', got 'd'"):
        plots.plot_correlations(correlations(), "d")
    with pytest.raises(ValueError, match="others must be one of 'a', 'b', 'c', got 'e'"):
        plots.plot_correlations(correlations(), "a", others=["b", "e"])
    assert not plt.get_fignums()


# --- prevalence ------------------------------------------------------------------------------------------------------

READ = {
    "precision": functools.partial(imbtorch.precision, average="binary"),
    "IAM": imbtorch.imbalance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
}


@pytest.mark.parametrize("counts", [TWO, TWO.half(), TWO.double().requires_grad_(), TWO / 110])
def test_measures_over_the_share_of_positives(counts):
    """By hand, from TPR .8 and TNR .9."""
    fig, ax = plots.plot_prevalence(READ, counts)
    pixels(fig)
    share = np.asarray(line(ax, "precision").get_xdata())
    np.testing.assert_allclose(share[[0, -1]], [1e-4, 0.5])
    np.testing.assert_allclose(np.diff(np.log(share)), np.log(5000) / 120)  # a straight row on the log axis
    precision, right = 0.8 * share / (0.8 * share + 0.1 * (1 - share)), 0.9 * (1 - share)
    rest = right / np.maximum(1 - share, right + 0.2 * share)  # the smaller of precision and recall
    near = {"rtol": 1e-3} if counts.dtype == torch.half else {"rtol": 1e-6}
    np.testing.assert_allclose(line(ax, "precision").get_ydata(), precision, **near)
    np.testing.assert_allclose(line(ax, "accuracy").get_ydata(), 0.8 * share + right, **near)
    np.testing.assert_allclose(line(ax, "IAM").get_ydata(), np.minimum(precision, 0.8) + rest - 1, atol=1e-6)
    np.testing.assert_allclose(line(ax, "balanced accuracy (does not move)").get_ydata(), 0.85, **near)
    assert line(ax, "as counted: 0.0909").get_xdata()[0] == pytest.approx(1 / 11, rel=1e-3)
    assert legend(ax) == [*list(READ)[:3], "balanced accuracy (does not move)", "as counted: 0.0909"]
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "Share of positives", "Measure")
    assert {"0.001", "0.01", "0.1"} <= set(ticks(ax, "x"))


def test_the_span_holds_the_share_that_was_counted():
    for counts, span, ends in (
        (torch.tensor([[1, 1], [3, 15]]), (0.01, 0.5), (0.01, 0.9)),
        (torch.tensor([[90000, 9990], [2, 8]]), (0.01, 0.5), (1e-4, 0.5)),
        (TWO, (0.01, 0.2), (0.01, 0.2)),
    ):
        _, ax = plots.plot_prevalence(READ, counts, span=span, steps=5)
        found = line(ax, "precision").get_xdata()
        assert (len(found), found[0], found[-1]) == (5, pytest.approx(ends[0]), pytest.approx(ends[1]))
        low, high = ax.get_xlim()
        assert low <= ends[0] < ends[1] < high


def test_what_has_no_share_of_positives_is_refused():
    for wrong in (COUNTS, torch.ones(2, 2, 2)):
        with pytest.raises(ValueError, match=r"counts must be one matrix \[2, 2\], got .*one_vs_rest"):
            plots.plot_prevalence(READ, wrong)
    for wrong in ([[0, 0], [1, 2]], [[1, 2], [0, 0]]):
        with pytest.raises(ValueError, match=r"targets of both classes, got"):
            plots.plot_prevalence(READ, torch.tensor(wrong))
    for arguments in ({"span": (0.5, 0.1)}, {"span": (0, 0.5)}, {"span": (0.1, 1)}, {"steps": 1}):
        with pytest.raises(ValueError, match=r"span must hold two shares rising within \(0, 1\) and steps"):
            plots.plot_prevalence(READ, TWO, **arguments)
    with pytest.raises(ValueError, match=r"recalls must return one value for each matrix, got \[121, 2\]; average it"):
        plots.plot_prevalence({"recalls": lambda counts: imbtorch.recall(counts, "none")}, TWO)
    assert not plt.get_fignums()


# --- selection -------------------------------------------------------------------------------------------------------


def courses(epochs, measures=5):
    random = torch.Generator().manual_seed(0)
    return {f"m{index}": torch.rand(epochs, generator=random) for index in range(measures)}


def interval(values, level=0.9):
    return Interval(values, values - 0.1, values + 0.2, level, "posterior")


@pytest.mark.parametrize("epochs", [1, 2, 30, 300])
def test_every_choice_has_its_mark_above_the_curves(epochs):
    """No mark hides another, and all are within the figure, whatever the layout makes of it."""
    values = courses(epochs)
    ways = {name: int(line.argmax()) for name, line in values.items()} | {"max-min": epochs - 1, "kept": epochs - 1}
    fig, ax = plots.plot_selection(values, selected=ways, intervals={"m2": interval(values["m2"])})
    pixels(fig)
    (strip,) = ax.child_axes
    assert ticks(strip, "y") == list(ways)
    marks = [each for each in strip.lines if each.get_linestyle() == "None"]
    assert [(each.get_xdata()[0], each.get_ydata()[0]) for each in marks] == list(
        zip(ways.values(), range(7), strict=True)
    )
    assert [text.get_text() for text in strip.texts] == [str(index) for index in ways.values()]
    for name, mark in zip(values, marks, strict=False):
        assert (mark.get_color(), mark.get_marker()) == (line(ax, name).get_color(), line(ax, name).get_marker())
    places = [strip.transData.transform((0, row))[1] for row in range(7)]
    assert min(a - b for a, b in itertools.pairwise(places)) > 0.15 * fig.dpi  # inches: room for their names
    box = strip.get_tightbbox()
    assert fig.bbox.x0 <= box.x0 < box.x1 <= fig.bbox.x1
    assert box.y1 <= fig.bbox.y1
    assert strip.get_window_extent().y0 >= ax.get_window_extent().y1
    assert strip.get_xlim() == ax.get_xlim()
    assert legend(ax) == ["90 % interval of m2", *values]


def test_the_band_is_the_interval():
    values = courses(4, 2) | {"gaps": torch.tensor([0.1, math.nan, 0.3, 0.4])}
    fig, ax = plots.plot_selection(
        values, intervals={"m0": interval(values["m0"])}, places=[10, 20, 40, 80], xlabel="Step"
    )
    pixels(fig)
    (band,) = ax.collections
    corners = {tuple(corner) for corner in np.round(band.get_paths()[0].vertices, 6).tolist()}
    for place, value in zip((10, 20, 40, 80), values["m0"].tolist(), strict=True):
        assert {(place, round(value - 0.1, 6)), (place, round(value + 0.2, 6))} <= corners
    np.testing.assert_allclose(line(ax, "gaps").get_ydata(), values["gaps"])
    assert list(line(ax, "m1").get_xdata()) == [10, 20, 40, 80]
    assert (ax.get_xlabel(), ax.child_axes) == ("Step", [])


def test_measures_that_coincide_can_be_told_apart():
    same = torch.linspace(0, 1, 30)
    _, ax = plots.plot_selection(dict.fromkeys("abcde", same))
    assert len({each.get_color() for each in ax.lines}) == 5
    assert len({each.get_markevery() for each in ax.lines}) > 2  # few markers lie on one another
    assert [each.get_linestyle() for each in ax.lines].count("-") == 1  # gaps let the others through
    _, ax = plots.plot_selection(dict.fromkeys("abcde", same[:3]))
    sizes = [each.get_markersize() for each in ax.lines]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 5  # where all markers coincide, the later are smaller


def test_what_cannot_be_selected_from_is_refused():
    for wrong in ({}, {"a": [0.5], "b": [0.5, 0.6]}, {"a": torch.ones(2, 2)}):
        with pytest.raises(ValueError, match="values must hold one measure or more, of equally many epochs"):
            plots.plot_selection(wrong)
    for wrong in ([1], [1, 1], [2, 1]):
        with pytest.raises(ValueError, match="places must hold 2 increasing positions"):
            plots.plot_selection({"a": [0.5, 0.6]}, places=wrong)
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match=r"selected must hold indices 0\.\.1, got .* for 'kept'"):
            plots.plot_selection({"a": [0.5, 0.6]}, selected={"kept": wrong})
    with pytest.raises(ValueError, match="intervals must be"):
        plots.plot_selection({"a": [0.5, 0.6]}, intervals={"b": interval(torch.ones(2))})
    with pytest.raises(ValueError, match=r"interval of 'a' must have limits \[2\], got \[3\]"):
        plots.plot_selection({"a": [0.5, 0.6]}, intervals={"a": interval(torch.ones(3))})
    assert not plt.get_fignums()


# --- sensitivity -----------------------------------------------------------------------------------------------------

THREE = {
    "accuracy": imbtorch.accuracy,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
}


def test_a_rare_class_that_degrades_moves_iam_but_not_accuracy():
    """On the heavily skewed set, by hand: class 2 of 100 samples gives s/2 of them to each other class."""
    fig, ax = plots.plot_sensitivity(THREE, torch.tensor([1_000_000, 100, 100]), classes=[2], steps=5)
    pixels(fig)
    assert legend(ax) == list(THREE)
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(line(ax, "CBA").get_xdata(), shares)
    moved = 100 * shares
    np.testing.assert_allclose(line(ax, "accuracy").get_ydata(), 1 - moved / 1_000_200)
    cba = (1e6 / (1e6 + moved / 2) + 100 / (100 + moved / 2) + 1 - shares) / 3
    np.testing.assert_allclose(line(ax, "CBA").get_ydata(), cba)
    np.testing.assert_allclose(line(ax, "IAM").get_ydata(), 2 * cba - 1)
    assert ax.get_xlabel() == "Share of class 2 that is misclassified"
    assert ax.get_ylabel() == "Measure"
    assert ax.get_xlim() == (0.0, 1.0)


def test_every_class_degrades_alike_on_a_balanced_set():
    _, ax = plots.plot_sensitivity(THREE, [100, 100, 100], classes=range(3), until=0.5, steps=3)
    np.testing.assert_allclose(line(ax, "accuracy").get_ydata(), [1.0, 0.75, 0.5])
    np.testing.assert_allclose(line(ax, "CBA").get_ydata(), [1.0, 0.75, 0.5])
    np.testing.assert_allclose(line(ax, "IAM").get_ydata(), [1.0, 0.5, 0.0], atol=1e-12)
    assert ax.get_xlabel() == "Share of each class that is misclassified"
    assert ax.get_xlim() == (0.0, 0.5)
    assert len({line(ax, name).get_markevery() for name in THREE}) == 1  # so few points are all marked
    _, ax = plots.plot_sensitivity(THREE, [100, 100, 100])
    assert len({line(ax, name).get_markevery() for name in THREE}) == 3  # lines on one another show by their markers


@pytest.mark.parametrize(
    ("support", "classes", "which"),
    [
        ([1000, 60, 50, 50, 20, 20, 10, 5, 3, 2], None, "class 9"),
        ([5, 3, 9], None, "class 1"),
        ([1000, 60, 50, 50, 20, 20, 10, 5, 2, 2], range(1, 10), "each of 9 classes"),
        ([5200, 4800], [0, 1], "each class"),
        ([5, 6, 7], [0, 2], "classes 0, 2"),
    ],
)
def test_the_classes_that_degrade_are_named(support, classes, which):
    _, ax = plots.plot_sensitivity({"own": lambda counts: counts.sum((-1, -2))}, support, classes=classes)
    assert ax.get_xlabel() == f"Share of {which} that is misclassified"
    np.testing.assert_allclose(line(ax, "own").get_ydata(), sum(support))  # samples are moved, not lost
    assert len(line(ax, "own").get_xdata()) == 41


def test_the_classes_that_degrade_have_names():
    _, ax = plots.plot_sensitivity(THREE, [5, 6, 7], classes=[0, 2], labels=["cat", "dog", "owl"])
    assert ax.get_xlabel() == "Share of classes cat, owl that is misclassified"


def test_what_cannot_degrade_is_refused():
    with pytest.raises(ValueError, match="labels must hold 2 names, got 1"):
        plots.plot_sensitivity(THREE, [5, 5], labels=["cat"])
    for wrong in ([5], [], [5, 0], [[1, 2]], [5, math.nan]):
        with pytest.raises(ValueError, match="support must hold the samples of two classes or more"):
            plots.plot_sensitivity(THREE, wrong)
    for wrong in ([], [2], [-1]):
        with pytest.raises(ValueError, match=r"classes must hold indices 0\.\.1"):
            plots.plot_sensitivity(THREE, [5, 5], classes=wrong)
    for arguments in ({"until": 0.0}, {"until": 1.5}, {"steps": 1}):
        with pytest.raises(ValueError, match=r"until must lie in \(0, 1\] and steps be 2 or more"):
            plots.plot_sensitivity(THREE, [5, 5], **arguments)
    with pytest.raises(ValueError, match=r"recalls must return one value for each matrix, got \[41, 2\]; average it"):
        plots.plot_sensitivity({"recalls": lambda counts: imbtorch.recall(counts, "none")}, [5, 5])
    assert not plt.get_fignums()


def test_pictures_of_gradients_and_devices_are_of_their_values():
    """A tensor that needs a gradient, or of another dtype, is drawn like any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.plot_confusion_matrix(COUNTS.float().requires_grad_())
        plots.plot_skew_map(torch.ones(3, 3, requires_grad=True) * 2)
        plots.plot_accuracy_dominance(torch.tensor([[0.0, 0.5]], requires_grad=True))
        plots.plot_sensitivity(THREE, torch.tensor([5.0, 6.0], requires_grad=True))
        plots.plot_confusion_matrix(COUNTS.half())
