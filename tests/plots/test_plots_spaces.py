"""Pictures of models in a space (`papers/plot_dominance.py`) and of the skew at every result: each is read back."""

import math

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from pictures import COUNTS, legend, line, passes, pixels, shaded, ticks

import imbtorch
from imbtorch import papers
from imbtorch.papers import skew_map
from imbtorch.statistics import select_model

SPACE = ["out of reach of any classifier", "lines of equal area"]  # in the legend beside the models

# --- accuracy-dominance space ----------------------------------------------------------------------------------------


def ends_at(ax, height):
    """Whether the shaded region of the infeasible ends where height, a function of the dominance, says."""
    places = np.linspace(-0.95, 0.95, 20)  # ends and middle are on no place
    room = 0.03 * np.ptp(ax.get_ylim())
    heights = np.array([height(x) for x in places])
    inside = heights + room < ax.get_ylim()[1]
    (edge,) = [each for each in ax.lines if each.get_linestyle() == "-" and len(each.get_xdata()) > 2]
    xs, ys = (np.asarray(data) for data in edge.get_data())
    np.testing.assert_allclose(ys, [height(x) for x in xs], atol=1e-12)
    above, below = shaded(ax, places[inside], heights[inside] + room), shaded(ax, places, heights - room)
    return (~above).sum() < 3 and below.sum() < 3  # where the lines of equal area and their labels are


def hatched(ax):
    """Corners of the hatched trapezium, the third at the point of its model; None without one."""
    found = [patch for patch in ax.patches if patch.get_hatch()]
    return found[0].get_xy()[:4] if found else None


@pytest.mark.slow
def test_the_empty_space_has_its_region_and_lines_of_equal_area():
    fig, ax = papers.plot_accuracy_dominance()
    pixels(fig)
    assert ends_at(ax, lambda x: (1 - abs(x)) ** 0.5)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-1.0, 1.0), (0.0, 1.0))
    assert ax.get_xlabel() == "Dominance (recall of positives - recall of negatives)"
    assert ax.get_ylabel() == "G-mean"
    assert legend(ax) == SPACE
    assert hatched(ax) is None
    assert not any(shaded(ax, each, 0.1) for each in (-0.9, -0.5, 0.5, 0.9))
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.5", "0.75", "1", "1.25"]
    dashed = [each for each in ax.lines if each.get_linestyle() == "--"]
    for each, text in zip(dashed, ax.texts, strict=True):
        area = float(text.get_text())
        xs, ys = (np.asarray(data) for data in each.get_data())
        np.testing.assert_allclose(ys * (xs + 3) / 2, area)
        assert (ys <= np.sqrt(1 - np.abs(xs)) + 1e-12).all()
        assert passes(ax, [(x, 2 * area / (x + 3)) for x in (-0.06, 0.0, 0.06)])
        assert not shaded(ax, 0.0, 2 * (area + 0.06) / 3)


@pytest.mark.slow
def test_points_of_a_selection_are_labelled_and_the_largest_area_is_hatched():
    models = {
        "cautious": torch.tensor([[95, 5], [8, 2]]),
        "balanced": torch.tensor([[80, 20], [2, 8]]),
        "eager": torch.tensor([[40, 60], [0, 10]]),
        "perfect negatives": torch.tensor([[100, 0], [5, 5]]),
    }
    found = select_model(models)
    fig, ax = papers.plot_accuracy_dominance(found)
    pixels(fig)
    assert legend(ax) == [*models, *SPACE, f"area of {found.by_area[0]}"]
    for name, (dominance, gmean, _) in zip(models, found.points.tolist(), strict=True):
        point = line(ax, name)
        assert (point.get_xdata()[0], point.get_ydata()[0]) == pytest.approx((dominance, gmean))
        assert point.get_linestyle() == "None"
    looks = [(line(ax, name).get_marker(), line(ax, name).get_markerfacecolor()) for name in models]
    assert looks == [("o", "black"), ("o", "white"), ("o", "0.65"), ("s", "black")]
    (best,) = found.by_area
    dominance, gmean, area = found.points[list(models).index(best)].tolist()
    corners = np.array([[-1, 0], [-1, gmean], [dominance, gmean], [1, 0]])
    np.testing.assert_allclose(hatched(ax), corners)
    assert passes(ax, corners)
    xs, ys = corners.T
    shoelace = abs(np.dot(xs, np.roll(ys, -1)) - np.dot(ys, np.roll(xs, -1))) / 2
    assert shoelace == pytest.approx(area)


def test_a_perfect_classifier_has_the_largest_trapezium():
    _, ax = papers.plot_accuracy_dominance(torch.tensor([[0.0, 1.0]]), levels=(1.5,))
    np.testing.assert_allclose(hatched(ax), [[-1, 0], [-1, 1], [0, 1], [1, 0]])
    assert legend(ax) == ["0", *SPACE, "area of 0"]
    (level,) = [each for each in ax.lines if each.get_label() == SPACE[1]]
    assert (level.get_xdata()[0], level.get_ydata()[0], len(level.get_xdata())) == pytest.approx((0.0, 1.0, 1))


def test_which_trapezium_is_hatched_can_be_chosen():
    points = torch.tensor([[0.0, 0.9], [-0.5, 0.6]])
    _, ax = papers.plot_accuracy_dominance(points, trapezium=1)
    np.testing.assert_allclose(hatched(ax)[2], [-0.5, 0.6], atol=1e-6)
    _, ax = papers.plot_accuracy_dominance(points, trapezium=None)
    assert hatched(ax) is None
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=rf"'best', None or an index 0\.\.1, got {wrong}"):
            papers.plot_accuracy_dominance(points, trapezium=wrong)


def test_an_infeasible_point_is_named_so_and_is_never_the_best():
    points = torch.tensor([[-0.36, 0.94], [-0.06, 0.74], [-0.36, 0.805]])  # the first is SVM on Pima as it was printed
    fig, ax = papers.plot_accuracy_dominance(points, labels=["original", "SMOTE", "rounded"])
    pixels(fig)
    assert legend(ax) == ["original (infeasible)", "SMOTE", "rounded", *SPACE, "area of SMOTE"]
    np.testing.assert_allclose(hatched(ax)[2], [-0.06, 0.74], atol=1e-6)
    point = line(ax, "original (infeasible)")
    assert point.get_xydata().tolist() == [[pytest.approx(-0.36), pytest.approx(0.94)]]
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1  # beside the points
    _, ax = papers.plot_accuracy_dominance(points[:1])
    assert hatched(ax) is None


def test_many_models_have_their_legend_beside_the_space():
    points = torch.stack((torch.linspace(-0.5, 0.5, 30), torch.full((30,), 0.5)), 1)
    fig, ax = papers.plot_accuracy_dominance(points)
    pixels(fig)
    assert legend(ax)[:30] == [str(index) for index in range(30)]
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
    looks = {(each.get_marker(), each.get_markerfacecolor()) for each in ax.lines if each.get_linestyle() == "None"}
    assert len(looks) == 30


EPOCHS = {  # 100 negatives, 10 positives: the positives are found one by one, then the negatives get lost
    f"epoch {index}": torch.tensor([[100 - lost, lost], [10 - hits, hits]])
    for index, (lost, hits) in enumerate([(0, 0), (1, 2), (4, 5), (10, 8), (30, 9), (60, 9), (80, 10)])
}


@pytest.mark.parametrize("given", ["accuracy", imbtorch.accuracy])
def test_any_measure_over_dominance(given):
    fig, ax = papers.plot_accuracy_dominance(EPOCHS, y=given)
    pixels(fig)
    assert legend(ax) == [
        *EPOCHS,
        *SPACE,
        "area of epoch 3",
    ]  # by hand: accuracy .891 (-.1 + 3), more than .718 (.2 + 3)
    for name, counts in EPOCHS.items():
        (_, lost), (missed, hits) = counts.tolist()
        point = line(ax, name)
        assert point.get_xdata()[0] == pytest.approx(hits / 10 - (100 - lost) / 100)
        assert point.get_ydata()[0] == pytest.approx(1 - (lost + missed) / 110)
    # errors are of one class alone there: all negatives right, or all positives
    assert ends_at(ax, lambda x: 1 - abs(x) * (10 if x < 0 else 100) / 110)
    assert ax.get_ylabel() == "Accuracy"
    points = [line(ax, name).get_xydata()[0] for name in EPOCHS]
    np.testing.assert_allclose(hatched(ax)[2], max(points, key=lambda point: point[1] * (point[0] + 3)))


def test_counts_without_another_measure_are_drawn_by_gmean():
    _, ax = papers.plot_accuracy_dominance(torch.stack(list(EPOCHS.values())), labels=list(EPOCHS))
    assert line(ax, "epoch 3").get_xydata()[0] == pytest.approx([0.8 - 0.9, (0.8 * 0.9) ** 0.5])
    assert ax.get_ylabel() == "G-mean"


def test_a_measure_below_zero_and_models_of_different_test_sets():
    counts = {"a": torch.tensor([[8, 2], [5, 0]]), "b": torch.tensor([[80, 20], [5, 5]])}
    fig, ax = papers.plot_accuracy_dominance(counts, y=lambda c: imbtorch.matthews_corrcoef(c), trapezium=None)
    pixels(fig)
    low = line(ax, "a").get_ydata()[0]
    assert low == pytest.approx(-10 / (5 * 10 * 13 * 2) ** 0.5)  # (0 * 8 - 2 * 5) / sqrt(...)
    assert ax.get_ylim()[0] < low < 0
    assert ax.get_ylabel() == "Value of the measure"
    assert not shaded(ax, 0.97, 0.97 * ax.get_ylim()[1])  # the limit depends on the class totals, which differ


def test_the_path_of_a_training():
    fig, ax = papers.plot_accuracy_dominance(EPOCHS, path=True)
    pixels(fig)
    # the first, the largest area, the last
    assert legend(ax) == ["epoch 0", "epoch 4", "epoch 6", *SPACE, "area of epoch 4"]
    recalls = [(counts.diag() / counts.sum(1)).tolist() for counts in EPOCHS.values()]
    assert passes(ax, [(tpr - tnr, (tpr * tnr) ** 0.5) for tnr, tpr in recalls])
    areas = [(tpr * tnr) ** 0.5 * (tpr - tnr + 3) / 2 for tnr, tpr in recalls]
    assert max(areas) == areas[4]
    shades = [line(ax, name).get_markerfacecolor() for name in ("epoch 0", "epoch 6")]
    assert [float(shade) for shade in shades] == [1, 0]


def test_what_no_other_lies_northeast_of_is_below_the_steps():
    points = torch.tensor([[-0.5, 0.6], [0.0, 0.8], [-0.2, 0.7], [0.3, 0.5], [0.2, 0.5]])
    fig, ax = papers.plot_accuracy_dominance(points, front=True)
    pixels(fig)
    steps = line(ax, "front of the undominated models")
    np.testing.assert_allclose(steps.get_xydata(), [[-1, 0.8], [0, 0.8], [0.3, 0.5], [0.3, 0]], atol=1e-6)
    assert steps.get_drawstyle() == "steps-pre"


def test_another_measure_needs_counts():
    found = select_model({"a": torch.tensor([[8, 2], [1, 4]])})
    for given in (found, torch.tensor([[0.0, 0.5]]), None):
        with pytest.raises(ValueError, match=r"y needs counts, \[M, 2, 2\] or name -> \[2, 2\]"):
            papers.plot_accuracy_dominance(given, y="accuracy")
    with pytest.raises(ValueError, match=r"counts must be \[M, 2, 2\], got \[1, 3, 3\]; use one_vs_rest"):
        papers.plot_accuracy_dominance({"a": COUNTS}, y="accuracy")
    with pytest.raises(ValueError, match=r"y must be one of .*got 'acc'; did you mean 'accuracy'"):
        papers.plot_accuracy_dominance(EPOCHS, y="acc")
    with pytest.raises(ValueError, match="at least one model"):
        papers.plot_accuracy_dominance({})


def test_points_must_lie_in_the_space():
    many_classes = select_model({"a": COUNTS})
    with pytest.raises(ValueError, match=r"two classes; use one_vs_rest"):
        papers.plot_accuracy_dominance(many_classes)
    with pytest.raises(ValueError, match=r"\[M, 2\] of dominance and G-mean, .*, got \[3\]"):
        papers.plot_accuracy_dominance(torch.zeros(3))
    for wrong in ([[0.0, 1.2]], [[-1.1, 0.5]], [[math.nan, 0.5]]):
        with pytest.raises(ValueError, match=r"dominance must lie in \[-1, 1\]"):
            papers.plot_accuracy_dominance(torch.tensor(wrong))
    with pytest.raises(ValueError, match="labels must hold 1 names, got 2"):
        papers.plot_accuracy_dominance(torch.tensor([[0.0, 0.5]]), labels=["a", "b"])
    assert not plt.get_fignums()


# --- skew ------------------------------------------------------------------------------------------------------------


def precision(counts):
    return imbtorch.precision(counts, "binary")


def test_a_skew_map_shows_the_logarithm_with_lines_at_powers_of_two():
    ratios = skew_map(precision, 20, 40)
    fig, ax = papers.plot_skew_map(ratios)
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
    assert bar.get_ylabel() == "Skew ratio (hatched: undefined)"  # no positive prediction has no precision
    assert {text.get_text() for text in ax.texts} <= {"1/8", "1/4", "1/2", "1", "2", "4", "8"}
    assert "1" in {text.get_text() for text in ax.texts}
    (lines,) = ax.collections
    assert list(lines.levels) == [-3, -2, -1, 0, 1, 2, 3]
    assert lines.get_linewidths()[3] > 2 * lines.get_linewidths()[2]  # where both classes count alike
    dashes = [pattern for _, pattern in lines.get_linestyles()]
    assert [pattern is not None for pattern in dashes] == [True] * 3 + [False] * 4


def test_a_constant_skew_is_written():
    for positives, negatives, text in ((5, 5, "1 everywhere"), (5, 40, "8 everywhere")):
        fig, ax = papers.plot_skew_map(skew_map(imbtorch.balanced_accuracy, positives, negatives))
        pixels(fig)
        assert [each.get_text() for each in ax.texts] == [text]
        assert not ax.collections


def test_the_limit_bounds_what_is_told_apart():
    fig, ax = papers.plot_skew_map(torch.tensor([[0.001, 1.0], [3.0, math.inf]]), limit=4.0)
    pixels(fig)
    np.testing.assert_allclose(ax.images[0].get_array(), [[-2, 0], [math.log2(3), 2]], atol=1e-6)
    assert ax.images[0].colorbar.extend == "both"
    _, ax = papers.plot_skew_map(torch.tensor([[0.25, 1.0], [3.0, 4.0]]), limit=4.0)
    assert ax.images[0].colorbar.extend == "neither"
    assert ax.images[0].colorbar.ax.get_ylabel() == "Skew ratio"  # none is undefined


@pytest.mark.parametrize("kind", ["log", "indicator"])
def test_results_without_a_ratio_are_hatched(kind):
    ratios = torch.tensor([[math.nan, 2.0], [0.5, 4.0]])
    fig, ax = papers.plot_skew_map(ratios, kind=kind)
    pixels(fig)
    shown = np.ma.filled(ax.images[0].get_array(), math.nan)
    assert np.isnan(shown).tolist() == [[True, False], [False, False]]
    assert ax.patch.get_hatch()
    fig, ax = papers.plot_skew_map(torch.full((2, 2), math.nan), kind=kind)
    assert pixels(fig)[..., :3].std() > 5


def test_the_indicator_is_white_above_one():
    ratios = skew_map(imbtorch.precision, 100, 200)
    fig, ax = papers.plot_skew_map(ratios, kind="indicator")
    (image,) = ax.images
    np.testing.assert_array_equal(np.asarray(image.get_array()), (ratios > 1).double())
    assert image.cmap(image.norm(1.0))[:3] == (1.0, 1.0, 1.0)
    assert max(image.cmap(image.norm(0.0))[:3]) < 0.5
    assert ax.get_title() == "skew ratio > 1 (white): 75%"
    assert fig.axes == [ax]


def test_a_skew_map_as_it_is():
    ratios = skew_map(precision, 20, 40)
    fig, ax = papers.plot_skew_map(ratios, kind="linear", limit=3)
    pixels(fig)
    shown = np.asarray(ax.images[0].get_array(), dtype=float)
    tp, tn = np.meshgrid(np.arange(21), np.arange(41), indexing="ij")
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(shown, np.minimum((40 - tn) / tp, 3))  # nan at 0 of 0
    assert ax.images[0].get_clim() == (0, 3)
    (one,) = ax.collections[0].get_paths()
    assert np.abs((40 - one.vertices[:, 0]) - one.vertices[:, 1]).max() < 0.5  # a ratio of 1, to half a result
    assert ax.images[0].colorbar.extend == "max"
    _, ax = papers.plot_skew_map(torch.tensor([[0.5, 0.75], [0.25, 0.5]]), kind="linear", limit=2)
    assert ax.images[0].colorbar.extend == "neither"
    assert not ax.collections


def test_only_one_skew_map_is_drawn():
    with pytest.raises(ValueError, match=r"got shape \[3\]; choose one"):
        papers.plot_skew_map(torch.ones(3))
    with pytest.raises(ValueError, match="kind must be one of 'log', 'linear', 'indicator', got 'square'"):
        papers.plot_skew_map(torch.ones(3, 3), kind="square")
    for wrong in (1.0, 0.5, math.nan):
        with pytest.raises(ValueError, match="limit must be a ratio above 1"):
            papers.plot_skew_map(torch.ones(3, 3), limit=wrong)
    assert not plt.get_fignums()
