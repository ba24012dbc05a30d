"""Pictures of classifiers over their thresholds: each is rendered and read back, and set beside scikit-learn."""

import functools
import io

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from pictures import SWEPT, legend, line, pixels, shaded, unnamed
from sklearn.metrics import average_precision_score, roc_auc_score

import imbtorch
from imbtorch import plots

F1 = functools.partial(imbtorch.f_score, average="binary")
UNREACHABLE = {"pr": "out of reach at these class shares", "dominance": "out of reach of any classifier"}
PICTURES = {"roc": plots.plot_roc, "pr": plots.plot_precision_recall, "dominance": plots.plot_dominance_curve}
REFERENCES = {*UNREACHABLE.values(), "random guessing", "marked threshold", "threshold 0.5"}


def models_in(ax):
    """Texts of the models in a legend, without those of reference lines and marks."""
    return [text for text in legend(ax) if text not in REFERENCES]


def swept(shift, seed, samples=400):
    """Scores, targets, and the counts at each threshold between the scores, from the highest."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.arange(samples) % 8 == 0).long()
    scores = ((torch.randn(samples, generator=generator) + shift * target) * 8).round() / 8  # with ties
    thresholds = scores.unique().flip(0)
    predicted = (scores >= thresholds.unsqueeze(-1)).long()
    counts = torch.stack([imbtorch.confusion_matrix(row, target, "binary") for row in predicted])
    return scores, target, counts


def drawn_isometrics(ax):
    """Corners of the dashed lines, by level."""
    (contour,) = [each for each in ax.collections if hasattr(each, "levels")]
    return {
        float(level): np.concatenate(parts)
        for level, parts in zip(contour.levels, contour.allsegs, strict=True)
        if parts
    }


def test_the_area_below_a_roc_curve_is_that_of_scikit_learn():
    scores, target, counts = swept(1.0, 0)
    for given in (counts, counts.flip(0)):  # thresholds in either order
        fig, ax = plots.plot_roc(given)
        pixels(fig)
        curve = unnamed(ax).get_xydata()
        assert curve[0].tolist() == [0.0, 0.0]
        assert curve[-1].tolist() == [1.0, 1.0]
        assert torch.trapezoid(*torch.tensor(curve).T.flip(0)).item() == pytest.approx(roc_auc_score(target, scores))
    assert legend(ax) == ["random guessing"]
    assert line(ax, "random guessing").get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("False positive rate", "True positive rate")


def test_the_steps_of_a_precision_recall_curve_are_those_of_average_precision():
    scores, target, counts = swept(1.0, 0)
    none_predicted = torch.tensor([[[350, 0], [50, 0]]])
    fig, ax = plots.plot_precision_recall(torch.cat((none_predicted, counts)))
    pixels(fig)
    curve = unnamed(ax)
    assert curve.get_drawstyle() == "steps-pre"  # the value holds to the left of its point
    recall, precision = curve.get_xydata().T
    assert recall[0] == 0
    assert np.sum(np.diff(recall) * precision[1:]) == pytest.approx(average_precision_score(target, scores))
    assert line(ax, "random guessing").get_ydata() == [0.125, 0.125]
    assert legend(ax) == [UNREACHABLE["pr"], "random guessing"]
    for each in (0.3, 0.6, 0.9):  # with a recall r at least r / (r + 7) of the positive predictions are right
        assert shaded(ax, each, each / (each + 7) - 0.02)
        assert not shaded(ax, each, each / (each + 7) + 0.015)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Recall", "Precision")


def test_a_dominance_curve_runs_from_all_negative_to_all_positive():
    """By hand: TNR 1, .9, .5, 0 beside TPR .2, .6, .9, 1."""
    fig, ax = plots.plot_dominance_curve({"model": SWEPT}, marked={"model": 2})
    pixels(fig)
    assert legend(ax) == [UNREACHABLE["dominance"], "lines of equal area", "model", "marked threshold"]
    expected = [[-1, 0], [-1, 0], [-0.8, 0.2**0.5], [-0.3, 0.54**0.5], [0.4, 0.45**0.5], [1, 0], [1, 0]]
    np.testing.assert_allclose(line(ax, "model").get_xydata(), expected, atol=1e-7)
    np.testing.assert_allclose(line(ax, "marked threshold").get_xydata(), [[-0.3, 0.54**0.5]], atol=1e-7)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Dominance (recall of positives - recall of negatives)", "G-mean")


@pytest.mark.parametrize("name", PICTURES)
def test_several_models_are_drawn_with_their_operating_points(name):
    models = {"weak": swept(0.5, 0)[2], "strong": swept(2.0, 1)[2]}
    fig, ax = PICTURES[name](models, marked={"strong": 7})
    pixels(fig)
    others = {"roc": ["random guessing"], "pr": [UNREACHABLE["pr"], "random guessing"]}
    others["dominance"] = [UNREACHABLE["dominance"], "lines of equal area"]
    assert legend(ax) == [*others[name], "weak", "strong", "marked threshold"]
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0  # below the curves
    looks = [
        (line(ax, each).get_color(), line(ax, each).get_linestyle(), line(ax, each).get_marker()) for each in models
    ]
    assert all(one != other for one, other in zip(*looks, strict=True))
    mark = line(ax, "marked threshold")
    (tn, fp), (fn, tp) = models["strong"][7].tolist()
    tpr, tnr = tp / (tp + fn), tn / (tn + fp)
    expected = {"roc": (1 - tnr, tpr), "pr": (tpr, tp / (tp + fp)), "dominance": (tpr - tnr, (tpr * tnr) ** 0.5)}[name]
    np.testing.assert_allclose(mark.get_xydata(), [expected], atol=1e-7)
    assert mark.get_marker() == line(ax, "strong").get_marker()
    on_curve = np.abs(line(ax, "strong").get_xydata() - expected).max(1).min()
    assert on_curve < 1e-7


@pytest.mark.parametrize("name", ["roc", "pr"])
def test_the_line_through_an_operating_point_is_of_its_value(name):
    """F1 = f: in ROC space tp = f (fp + P) / (2 - f), in precision-recall space precision = f r / (2 r - f)."""
    _, _, counts = swept(1.5, 0)
    best = int(F1(counts).argmax())
    value = F1(counts)[best].item()
    fig, ax = PICTURES[name](counts, marked=best, measure=F1)
    pixels(fig)
    ((level, corners),) = drawn_isometrics(ax).items()
    assert level == pytest.approx(value)
    x, y = corners.T
    expected = value * (7 * x + 1) / (2 - value) if name == "roc" else value * x / (2 * x - value)
    np.testing.assert_allclose(y, expected, atol=2e-3)  # the lines run straight between points of a grid
    assert [text.get_text() for text in ax.texts] == [f"{value:.3g}"]
    assert "lines of equal value, numbered" in legend(ax)


@pytest.mark.parametrize("name", ["roc", "pr"])
def test_levels_can_be_chosen_and_are_even_by_default(name):
    measure = imbtorch.balanced_accuracy
    _, ax = PICTURES[name](SWEPT, measure=measure, levels=[0.9, 0.6, 0.6, 2.0])
    assert list(drawn_isometrics(ax)) == [0.6, 0.9]  # none takes the value 2
    for level, corners in drawn_isometrics(ax).items():
        x, y = corners.T
        false = x if name == "roc" else x * (1 - y) / y / 4
        np.testing.assert_allclose((1 - false + (y if name == "roc" else x)) / 2, level, atol=4e-3)
    _, ax = plots.plot_roc(SWEPT, measure=measure)
    assert list(drawn_isometrics(ax)) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    _, ax = PICTURES[name](SWEPT, measure=lambda counts: counts.sum((-1, -2)))  # the same everywhere
    assert not [each for each in ax.collections if hasattr(each, "levels")]


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_no_curve_is_refused(name):
    draw = PICTURES[name]
    with pytest.raises(ValueError, match="models is empty"):
        draw({})
    for wrong in (SWEPT[0], SWEPT.unsqueeze(0), torch.ones(2, 3, 3), SWEPT[:0]):
        with pytest.raises(ValueError, match=r"counts must be \[T, 2, 2\], a matrix for each threshold"):
            draw(wrong)
    with pytest.raises(ValueError, match="targets of both classes"):
        draw(torch.tensor([[[5, 5], [0, 0]]]))
    with pytest.raises(ValueError, match="same samples at each threshold"):
        draw(SWEPT[1:4].mT)
    for marked in (5, -1, {"": 5}):
        with pytest.raises(ValueError, match=r"marked must hold indices 0\.\.4"):
            draw(SWEPT, marked=marked)
    with pytest.raises(ValueError, match=r"marked must name models out of \['a'\], got 'b'"):
        draw({"a": SWEPT}, marked={"b": 0})
    assert not plt.get_fignums()


def test_models_of_other_class_shares_are_compared_only_where_that_makes_sense():
    other = {"a": SWEPT, "b": SWEPT * torch.tensor([[2], [1]])}
    plots.plot_roc(other)
    plots.plot_roc({"a": SWEPT, "b": 3 * SWEPT}, measure=F1)
    for draw in (plots.plot_precision_recall, functools.partial(plots.plot_roc, measure=F1)):
        with pytest.raises(ValueError, match="models must have the same share of positives"):
            draw(other)
    with pytest.raises(ValueError, match=r"measure must return one value for each matrix"):
        plots.plot_roc(SWEPT, measure=lambda counts: imbtorch.recall(counts, "none"))


@pytest.mark.parametrize("draw", [plots.plot_roc, plots.plot_precision_recall, plots.plot_dominance_curve])
def test_a_sweep_is_drawn_like_its_counts(draw):
    sweep = imbtorch.ThresholdSweep("f1")
    sweep.update(torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0]))
    drawn = [draw(given)[1] for given in (sweep.result().matrices(), sweep, sweep.result())]
    lines = [[line.get_xydata().tolist() for line in ax.lines] for ax in drawn]
    assert lines[0] == lines[1] == lines[2]
    assert [line.get_label() for line in draw({"model": sweep})[1].lines][-1] == "model"
    with pytest.raises(
        TypeError, match=r"must be counts \[T, 2, 2\] at each threshold, or a ThresholdSweep, got a list"
    ):
        draw([1, 2])


def written(ax):
    """Texts beside the points of a picture."""
    return [text.get_text() for text in ax.texts]


def bracketed(name, interval, label=0):
    """What a legend says of a value with its interval."""
    value, low, high = (part.reshape(-1)[label].item() for part in (interval.estimate, interval.low, interval.high))
    return f"{name} {value:.3f} [{low:.3f}, {high:.3f}]"


def test_a_result_of_a_sweep_shows_areas_intervals_and_the_best_threshold():
    target = torch.tensor([0, 0, 0, 0, 0, 0, 1, 0, 1, 1])
    scores = torch.tensor([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.7, 0.8, 0.9])
    sweep = imbtorch.ThresholdSweep("f1", thresholds=21)  # best between .3 and .35: 3 hits, one false alarm
    sweep.update(scores, target)
    result, state = sweep.result(), torch.get_rng_state()
    fig, (value, roc, pr) = result.plot()
    fig.savefig(io.BytesIO())
    assert torch.equal(torch.get_rng_state(), state)
    assert written(value) == ["best 0.857 at 0.30"]
    assert written(roc) == written(pr) == ["threshold 0.30"]
    assert roc.texts[0].xy == pytest.approx((1 / 7, 1))
    assert pr.texts[0].xy == pytest.approx((1, 3 / 4))
    auc, ap = result.interval("auc"), result.interval("average_precision")
    assert auc.estimate.item() == pytest.approx(roc_auc_score(target, scores))
    assert ap.estimate.item() == pytest.approx(average_precision_score(target, scores))
    assert models_in(roc) == [bracketed("AUC", auc)]
    assert models_in(pr) == [bracketed("AP", ap)]
    drawn = result.interval("value", generator=torch.Generator().manual_seed(0))
    assert sorted(legend(value)) == [bracketed("corrected", drawn), "threshold 0.5"]
    assert drawn.low < drawn.estimate < 6 / 7


def test_labels_of_other_class_shares_are_drawn_beside_each_other():
    scores = torch.arange(1, 21).view(10, 2) / 21
    target = torch.tensor([[0, 1]] * 6 + [[1, 0], [0, 1], [1, 1], [1, 1]])
    sweep = imbtorch.ThresholdSweep("f1", 21, "multilabel", num_labels=2, class_names=["cat", "dog"])
    sweep.update(scores, target)
    result = sweep.result()
    fig, (value, roc, pr) = result.plot()
    fig.savefig(io.BytesIO())
    auc, ap = result.interval("auc"), result.interval("average_precision")
    assert models_in(roc) == [f"{name}: {bracketed('AUC', auc, label)}" for label, name in enumerate(("cat", "dog"))]
    assert models_in(pr) == [f"{name}: {bracketed('AP', ap, label)}" for label, name in enumerate(("cat", "dog"))]
    assert [text.split(" 0")[0] for text in models_in(value)] == ["cat: corrected", "dog: corrected"]
    recall, precision = line(pr, "dog").get_xydata().T
    expected = average_precision_score(target[:, 1], scores[:, 1])
    assert np.sum(np.diff(recall) * precision[1:]) == pytest.approx(expected)
    assert not shaded(pr, 0.95, 0.01)  # the part out of reach differs from label to label


def test_values_without_an_interval_are_shown_alone():
    scores, target = torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0])
    weighted = imbtorch.ThresholdSweep("f1", weighted=True)
    weighted.update(scores, target, weight=torch.ones(4))
    _, (value, roc, pr) = weighted.result().plot()
    assert (legend(value), models_in(roc), models_in(pr)) == (["threshold 0.5"], ["AUC 0.750"], ["AP 0.833"])
    rare = imbtorch.ThresholdSweep("f1", prevalence=[9, 1])
    rare.update(scores, target)
    _, (_, roc, pr) = rare.result().plot()
    assert models_in(roc) == [bracketed("AUC", rare.result().interval("auc"))]
    precisions = [1.0, 1 / (1 + 9 * 0.5)]  # at the two positives, with none and half of the negatives above
    assert models_in(pr) == [f"AP {sum(precisions) / 2:.3f}"]
    many = imbtorch.ThresholdSweep("f1", 11, "multilabel", num_labels=6)
    many.update(scores.view(4, 1).expand(4, 6), target.view(4, 1).expand(4, 6))
    assert models_in(many.result().plot("value")[1]) == list("012345")
