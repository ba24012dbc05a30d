"""Pictures of measures as lines (`papers/plot_curves.py`): each is rendered and read back."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from pictures import COUNTS, TWO, correlations, interval, legend, line, passes, pixels, shaded, ticks, unnamed
from rooms import probability

import imbtorch
from imbtorch import papers, plots
from imbtorch.papers import measure_correlations, prevalence_curves, sensitivity_curves
from imbtorch.statistics import Interval

# --- correlations ----------------------------------------------------------------------------------------------------


def test_correlations_are_drawn_over_the_share_of_positives():
    fig, ax = papers.plot_correlations(correlations(), "b")
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
    _, first = papers.plot_correlations(correlations(), "b")
    _, second = papers.plot_correlations(correlations(), "a", others=["c"])
    assert legend(second) == ["c"]
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(line(first, "c"), look)() == getattr(line(second, "c"), look)()


def test_a_constant_measure_leaves_a_gap():
    measures = {"accuracy": imbtorch.accuracy, "constant": lambda counts: counts.double().sum((-1, -2)) * 0}
    found = measure_correlations(measures, [0.1, 0.2], n=50, draws=2)
    fig, ax = papers.plot_correlations(found, "accuracy")
    pixels(fig)
    assert np.isnan(line(ax, "constant").get_xdata()).all()


def test_correlations_of_unknown_measures():
    with pytest.raises(ValueError, match="measure must be one of 'a', 'b', 'c', got 'd'"):
        papers.plot_correlations(correlations(), "d")
    with pytest.raises(ValueError, match="others must be one of 'a', 'b', 'c', got 'e'"):
        papers.plot_correlations(correlations(), "a", others=["b", "e"])
    assert not plt.get_fignums()


# --- prevalence ------------------------------------------------------------------------------------------------------

READ = {
    "precision": functools.partial(imbtorch.precision, average="binary"),
    "IAM": imbtorch.imbalance_accuracy,
    "accuracy": imbtorch.accuracy,
    "balanced accuracy": imbtorch.balanced_accuracy,
}


def test_measures_are_drawn_over_the_share_of_positives():
    """On a logarithmic axis, with the constant measures named and the counted share marked."""
    fig, ax = papers.plot_prevalence(READ, TWO)
    pixels(fig)
    curves = prevalence_curves(READ, TWO)
    labels = [*list(READ)[:3], "balanced accuracy (constant)"]
    for label, value in zip(labels, curves.values.values(), strict=True):
        np.testing.assert_array_equal(line(ax, label).get_xdata(), curves.shares)
        np.testing.assert_array_equal(line(ax, label).get_ydata(), value)
    assert line(ax, "share in the counts: 0.0909").get_xdata()[0] == pytest.approx(1 / 11)
    assert legend(ax) == [*labels, "share in the counts: 0.0909"]
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "Share of positives", "Value of the measure")
    assert {"0.001", "0.01", "0.1"} <= set(ticks(ax, "x"))


def test_the_axis_holds_the_span():
    _, ax = papers.plot_prevalence(READ, TWO, span=(0.01, 0.2), steps=5)
    assert len(line(ax, "precision").get_xdata()) == 5
    low, high = ax.get_xlim()
    assert low == pytest.approx(0.01)
    assert 0.2 < high < 0.22


def test_what_cannot_be_computed_leaves_no_figure():
    with pytest.raises(ValueError, match=r"counts must be one matrix \[2, 2\]"):
        papers.plot_prevalence(READ, COUNTS)
    with pytest.raises(ValueError, match="support must hold"):
        papers.plot_sensitivity(READ, [5])
    with pytest.raises(ValueError, match="labels must hold 2 names, got 1"):
        papers.plot_sensitivity({"accuracy": imbtorch.accuracy}, [5, 5], labels=["cat"])
    assert not plt.get_fignums()


# --- selection -------------------------------------------------------------------------------------------------------


def courses(epochs, measures=5):
    random = torch.Generator().manual_seed(0)
    return {f"m{index}": torch.rand(epochs, generator=random) for index in range(measures)}


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
    assert strip.get_title("left") == "Epoch selected by"
    assert legend(ax) == ["90% interval of m2", *values]


@pytest.mark.slow
def test_the_band_is_the_interval():
    values = {
        "m0": torch.tensor([0.2, 0.3, 0.25, 0.4]),
        "m1": torch.tensor([0.9, 0.8, 0.9, 0.8]),
        "gaps": torch.tensor([0.7, math.nan, 0.75, 0.8]),
    }
    fig, ax = plots.plot_selection(
        values, intervals={"m0": interval(values["m0"])}, places=[10, 20, 40, 80], xlabel="Step"
    )
    pixels(fig)
    for place, value in zip((10.3, 20, 40, 79.7), values["m0"].tolist(), strict=True):
        assert [shaded(ax, place, value + off) for off in (-0.13, -0.07, 0.17, 0.23)] == [False, True, True, False]
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
        with pytest.raises(
            ValueError, match="values must hold at least one measure, all with values of the same epochs"
        ):
            plots.plot_selection(wrong)
    for wrong in ([1], [1, 1], [2, 1]):
        with pytest.raises(ValueError, match="places must hold 2 increasing positions"):
            plots.plot_selection({"a": [0.5, 0.6]}, places=wrong)
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match=r"selected must hold indices 0\.\.1, got .* for 'kept'"):
            plots.plot_selection({"a": [0.5, 0.6]}, selected={"kept": wrong})
    with pytest.raises(ValueError, match="intervals must be"):
        plots.plot_selection({"a": [0.5, 0.6]}, intervals={"b": interval(torch.ones(2))})
    with pytest.raises(ValueError, match="baseline must be one of 'a', got 'b'"):
        plots.plot_selection({"a": [0.5, 0.6]}, baseline={"b": 0.5})
    with pytest.raises(ValueError, match=r"interval of 'a' must have bounds \[2\], got \[3\]"):
        plots.plot_selection({"a": [0.5, 0.6]}, intervals={"a": interval(torch.ones(3))})
    assert not plt.get_fignums()


# --- sensitivity -----------------------------------------------------------------------------------------------------

THREE = {
    "accuracy": imbtorch.accuracy,
    "CBA": imbtorch.class_balance_accuracy,
    "IAM": imbtorch.imbalance_accuracy,
}


def test_measures_are_drawn_over_the_share_that_is_misclassified():
    support = torch.tensor([1_000_000, 100, 100])
    fig, ax = papers.plot_sensitivity(THREE, support, classes=[2], until=0.5, steps=5)
    pixels(fig)
    assert legend(ax) == list(THREE)
    for name, value in sensitivity_curves(THREE, support, classes=[2], until=0.5, steps=5).values.items():
        np.testing.assert_allclose(line(ax, name).get_xdata(), [0.0, 0.125, 0.25, 0.375, 0.5])
        np.testing.assert_array_equal(line(ax, name).get_ydata(), value)
    assert ax.get_xlabel() == "Share of class 2 that is misclassified"
    assert ax.get_ylabel() == "Value of the measure"
    assert ax.get_xlim() == (0.0, 0.5)


def test_lines_on_one_another_show_by_their_markers():
    _, ax = papers.plot_sensitivity(THREE, [100, 100, 100], steps=3)
    assert len({line(ax, name).get_markevery() for name in THREE}) == 1  # so few points are all marked
    _, ax = papers.plot_sensitivity(THREE, [100, 100, 100])
    assert len({line(ax, name).get_markevery() for name in THREE}) == 3


@pytest.mark.parametrize(
    ("support", "classes", "which"),
    [
        ([1000, 60, 50, 50, 20, 20, 10, 5, 3, 2], None, "class 9"),
        ([5, 3, 9], None, "class 1"),
        ([1000, 60, 50, 50, 20, 20, 10, 5, 2, 2], range(1, 10), "each of 9 classes"),
        ([5200, 4800], [0, 1], "each class"),
        ([5, 6, 7], [2, 0, 2], "classes 0, 2"),
    ],
)
def test_the_classes_that_degrade_are_named(support, classes, which):
    _, ax = papers.plot_sensitivity({"accuracy": imbtorch.accuracy}, support, classes=classes)
    assert ax.get_xlabel() == f"Share of {which} that is misclassified"


def test_the_label_explains_curves_that_jump():
    """Macro precision is (1 + 100 / (100 + x)) / 2 with x of 10 positives missed, until all are and it drops by .5."""
    jump = "\n(curves jump at 1, where no right prediction is left)"
    for measure, until, expected in (("precision", 1, jump), ("precision", 0.9, ""), ("recall", 1, "")):
        _, ax = papers.plot_sensitivity({measure: getattr(imbtorch, measure)}, [100, 10], until=until)
        assert ax.get_xlabel() == f"Share of class 1 that is misclassified{expected}"


def test_the_classes_that_degrade_have_names():
    _, ax = papers.plot_sensitivity(THREE, [5, 6, 7], classes=[0, 2], labels=["cat", "dog", "owl"])
    assert ax.get_xlabel() == "Share of classes cat, owl that is misclassified"


# --- beside what looks at nothing ------------------------------------------------------------------------------------


def test_baselines_are_dotted_lines_below_bars_points_and_curves():
    _, ax = plots.plot_values(torch.tensor([0.9, 0.5, 0.2]), baseline=torch.tensor([0.8, math.nan, 0.1]))
    *dotted, explained = [each for each in ax.lines if each.get_linestyle() == ":"]
    assert [each.get_xydata().tolist() for each in dotted] == [
        [[-0.4, pytest.approx(0.8)], [0.4, pytest.approx(0.8)]],
        [[1.6, pytest.approx(0.1)], [2.4, pytest.approx(0.1)]],
    ]
    assert legend(ax) == [explained.get_label()] == ["baseline"]
    _, ax = plots.plot_values(torch.tensor(0.9), baseline=torch.tensor(0.25))
    assert next(list(each.get_ydata()) for each in ax.lines if each.get_linestyle() == ":") == [0.25, 0.25]
    course = [torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])]
    fig, ax = plots.plot_values(course, labels=["iam", "mcc"], baseline=torch.tensor([-0.5, 0.0]))
    pixels(fig)
    assert legend(ax) == ["iam", "mcc", "baseline"]
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1  # beside the lines
    assert all(step == int(step) for step in ax.get_xticks())
    *dotted, _ = [each for each in ax.lines if each.get_linestyle() == ":"]  # the last one is of the legend alone
    heights = {each.get_color(): each.get_ydata()[0] for each in dotted}
    assert [heights[line(ax, name).get_color()] for name in ("iam", "mcc")] == [-0.5, 0.0]
    with pytest.raises(ValueError, match=r"baseline must be \[2\] like one of the values, got \[3\]"):
        plots.plot_values(course, baseline=torch.ones(3))


# --- thresholds ------------------------------------------------------------------------------------------------------

GRID = torch.tensor([0.0, 0.25, 0.6, 1.0])


def test_a_sweep_marks_its_chosen_threshold():
    values = torch.tensor([0.1, math.nan, 0.9, 0.2])
    fig, ax = plots.plot_sweep(GRID, values, chosen=torch.tensor([0.6, 0.9]), name="f score")
    pixels(fig)
    np.testing.assert_allclose(unnamed(ax).get_xydata(), torch.stack((GRID, values), -1))
    (mark,) = [each for each in ax.lines if len(each.get_xdata()) == 1]
    np.testing.assert_allclose(mark.get_xydata(), [[0.6, 0.9]])
    assert line(ax, "threshold 0.5").get_xdata() == [0.5, 0.5]
    assert passes(ax, [(0.6, 0.9), (1.0, 0.2)])
    assert not passes(ax, [(0.0, 0.1), (0.49, 0.75)])  # nothing is drawn where there is no value
    assert shaded(ax, 0.6, 0.9)
    assert passes(ax, [(0.5, 0.1), (0.5, 0.8)])
    assert [text.get_text() for text in ax.texts] == ["chosen 0.900 at 0.60"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("Threshold", "f score", (0.0, 1.0))
    assert legend(ax) == ["threshold 0.5"]
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0  # below the curve
    assert ax.texts[0].get_window_extent().y1 <= ax.get_window_extent().y1  # there is room for it


def test_a_sweep_of_labels_has_a_line_for_each():
    values = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.9, 0.5, 0.4, 0.3], [0.5] * 4])
    best = torch.stack((GRID[[3, 0, 0]], values.amax(-1)), -1)
    _, ax = plots.plot_sweep(GRID, values, chosen=best, labels=["cat", "dog", "owl"])
    texts = ["cat: chosen 0.400 at 1.00", "dog: chosen 0.900 at 0.00", "owl: chosen 0.500 at 0.00"]
    assert legend(ax) == [*texts, "threshold 0.5"]
    assert not ax.texts  # three would overlap
    marks = {each.get_marker(): each.get_xydata().tolist() for each in ax.lines if len(each.get_xdata()) == 1}
    looks = set()
    for text, value, point in zip(texts, values, best.tolist(), strict=True):
        drawn = line(ax, text)
        np.testing.assert_allclose(drawn.get_ydata(), value)
        assert marks[drawn.get_marker()] == [point]  # the legend shows the mark of each line
        looks.add((drawn.get_linestyle(), drawn.get_marker()))
    assert len(looks) == 3
    _, ax = plots.plot_sweep(GRID, values, labels=["cat", "dog", "owl"])
    assert legend(ax) == ["cat", "dog", "owl", "threshold 0.5"]
    assert not [each for each in ax.lines if len(each.get_xdata()) == 1]


def test_a_sweep_tells_the_values_that_are_corrected():
    values = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.9, 0.5, 0.4, 0.3]])
    best = torch.stack((GRID[[3, 0]], values.amax(-1)), -1)
    found = Interval(*torch.tensor([[0.35, math.nan], [0.25, math.nan], [0.45, math.nan]]), 0.8, "posterior")
    _, ax = plots.plot_sweep(GRID, values, chosen=best, corrected=found, labels=["cat", "dog"])
    corrected = "corrected 0.350 [0.250, 0.450]"
    assert legend(ax) == [f"cat: chosen 0.400 at 1.00, {corrected}", "dog: chosen 0.900 at 0.00", "threshold 0.5"]
    title = "corrected: for the choice of the threshold\nin brackets: 80% interval"
    assert ax.get_legend().get_title().get_text() == title
    of_one = Interval(*torch.tensor([0.35, 0.25, 0.45]), 0.8, "posterior")
    _, ax = plots.plot_sweep(GRID, values[0], chosen=best[0], corrected=of_one)
    both = f"0.400 on these samples, {corrected}"
    assert legend(ax) == [both, "threshold 0.5"]
    assert ax.get_legend().get_title().get_text() == title
    assert line(ax, both).get_xydata().tolist() == best[:1].tolist()
    _, ax = plots.plot_sweep(GRID, values[0], chosen=best[0])
    assert ax.get_legend().get_title().get_text() == ""


def test_rare_thresholds_have_room_on_a_logit_axis():
    grid = torch.tensor([0.0, 1e-6, 1e-4, 1e-3, 0.01, 0.4, 0.999, 1 - 1e-9], dtype=torch.float64)
    values = torch.tensor([0.1, 0.1, 0.1, 0.3, 0.9, 0.2, 0.2, 0.2])
    fig, ax = plots.plot_sweep(grid, values, chosen=torch.tensor([0.0123, 0.9]), scale="logit")
    pixels(fig)
    assert ax.get_xscale() == "logit"
    low, high = ax.get_xlim()
    assert 1e-6 < low < 1e-4  # the values change from here on
    assert 0.7 < high < 0.999
    assert [text.get_text() for text in ax.texts] == ["chosen 0.900 at 0.012"]
    left, right = (ax.transAxes.inverted().transform(ax.transData.transform((x, 0.1)))[0] for x in (1e-3, 0.01))
    assert right - left > 0.15
    _, ax = plots.plot_sweep(grid, torch.ones(8), scale="logit")  # nothing changes
    assert 0.2 < ax.get_xlim()[0] < 0.3
    _, ax = plots.plot_sweep(grid, torch.full((8,), math.nan), chosen=grid[[7, 0]], scale="logit")
    assert 0.7 < ax.get_xlim()[1] < 0.8


@pytest.mark.default_cases("0.0-linear", "1.0-logit")
@pytest.mark.parametrize("scale", ["linear", "logit"])
@pytest.mark.parametrize("best", [0.0, 1e-44, 1.0])
def test_the_chosen_threshold_at_an_end_is_marked_and_told_within_the_axes(best, scale):
    fig, ax = plots.plot_sweep(GRID, torch.tensor([0.1, 0.5, 0.2, 0.4]), chosen=torch.tensor([best, 0.9]), scale=scale)
    pixels(fig)
    axes, (text,) = ax.get_window_extent(), ax.texts
    assert axes.x0 < text.get_window_extent().x0 < text.get_window_extent().x1 < axes.x1
    low, high = (place for place in ax.transAxes.transform([(0, 0), (1, 0)])[:, 0])
    mark = ax.transData.inverted().transform((high - 2 if best == 1 else low + 2, 0))[0]
    assert shaded(ax, mark, 0.9)
    (point,) = [each for each in ax.lines if len(each.get_xdata()) == 1]
    assert point.get_xdata()[0] == pytest.approx(ax.get_xlim()[best == 1], abs=1e-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.50"),
        (0.0123, "0.012"),
        (0.99961, "0.99961"),
        (3.2e-8, "3.2e-08"),
        (1 - 2e-9, "1 - 2.0e-09"),
        (0, "0.00"),
        (1, "1.00"),
    ],
)
def test_a_threshold_is_told_from_zero_and_one(value, text):
    assert probability(value) == text


def test_what_is_no_sweep_is_refused():
    for values in (torch.ones(3), torch.ones(2, 3), torch.ones(1, 2, 4), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"thresholds must be \[T\] and values \[T\] or \[L, T\], got shapes"):
            plots.plot_sweep(GRID, values)
    for values, best in ((torch.ones(4), torch.ones(1, 2)), (torch.ones(3, 4), torch.ones(2, 2))):
        with pytest.raises(ValueError, match=r"chosen must be .*, threshold and value, got"):
            plots.plot_sweep(GRID, values, chosen=best)
    with pytest.raises(ValueError, match="labels must hold 2 names, got 1"):
        plots.plot_sweep(GRID, torch.ones(2, 4), labels=["cat"])
    assert not plt.get_fignums()
