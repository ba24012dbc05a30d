"""Pictures of classifiers over their thresholds (`operating.py`): rendered, read back, set beside scikit-learn."""

import functools
import io
import itertools

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from pictures import SWEPT, cut_off, legend, line, pixels, shaded, unnamed
from rooms import probability
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score

import imbtorch
from imbtorch import papers, plots

F1 = functools.partial(imbtorch.f_score, average="binary")
UNREACHABLE = {"pr": "out of reach at these class shares", "dominance": "out of reach of any classifier"}
PICTURES = {"roc": plots.plot_roc, "pr": plots.plot_precision_recall, "dominance": papers.plot_dominance_curve}
BRACKETS = "in brackets: 95% interval"
REFERENCES = {
    *UNREACHABLE.values(),
    *("random guessing", "marked threshold", "threshold chosen for f1", "threshold 0.5"),
}


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
        area = roc_auc_score(target, scores)
        assert legend(ax) == ["random guessing", f"AUC {area:.3f}"]
        curve = line(ax, f"AUC {area:.3f}").get_xydata()
        assert curve[0].tolist() == [0.0, 0.0]
        assert curve[-1].tolist() == [1.0, 1.0]
        assert torch.trapezoid(*torch.tensor(curve).T.flip(0)).item() == pytest.approx(area)
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


@pytest.mark.parametrize(("positives", "seen"), [(100, True), (25, True), (10, False)])
def test_the_legend_names_the_part_out_of_reach_where_it_is_seen(positives, seen):
    """Its highest place is the share of positives, at a recall of 1: 10%, 2.5% and 1% of 1,000 samples."""
    counts = torch.tensor([[[1000 - positives, 0], [positives // 5, 4 * positives // 5]]])
    fig, ax = plots.plot_precision_recall(counts)
    pixels(fig)
    assert legend(ax) == [UNREACHABLE["pr"]] * seen + ["random guessing"]
    if seen:  # below, the frame covers it
        assert shaded(ax, 0.95, 0.7 * positives / 1000)


def test_a_dominance_curve_runs_from_all_negative_to_all_positive():
    """By hand: TNR 1, .9, .5, 0 beside TPR .2, .6, .9, 1."""
    fig, ax = papers.plot_dominance_curve({"model": SWEPT}, marked={"model": 2})
    pixels(fig)
    assert legend(ax) == [UNREACHABLE["dominance"], "lines of equal area", "model", "marked threshold"]
    expected = [[-1, 0], [-1, 0], [-0.8, 0.2**0.5], [-0.3, 0.54**0.5], [0.4, 0.45**0.5], [1, 0], [1, 0]]
    np.testing.assert_allclose(line(ax, "model").get_xydata(), expected, atol=1e-7)
    np.testing.assert_allclose(line(ax, "marked threshold").get_xydata(), [[-0.3, 0.54**0.5]], atol=1e-7)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Dominance (recall of positives - recall of negatives)", "G-mean")


@pytest.mark.parametrize("name", PICTURES)
def test_several_models_are_drawn_with_their_operating_points(name):
    drawn = {"weak": swept(0.5, 0), "strong": swept(2.0, 1)}
    models = {each: counts for each, (*_, counts) in drawn.items()}
    areas = {each: f": AUC {roc_auc_score(target, scores):.3f}" for each, (scores, target, _) in drawn.items()}
    weak, strong = (each + areas[each] * (name == "roc") for each in models)
    fig, ax = PICTURES[name](models, marked={"strong": 7})
    pixels(fig)
    others = {"roc": ["random guessing"], "pr": [UNREACHABLE["pr"], "random guessing"]}
    others["dominance"] = [UNREACHABLE["dominance"], "lines of equal area"]
    assert legend(ax) == [*others[name], weak, strong, "marked threshold"]
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0  # below the curves
    looks = [(line(ax, each).get_color(), line(ax, each).get_linestyle()) for each in (weak, strong)]
    assert all(one != other for one, other in zip(*looks, strict=True))
    assert {line(ax, each).get_marker() for each in (weak, strong)} == {"None"}  # all marks are operating points
    mark = line(ax, "marked threshold")
    (tn, fp), (fn, tp) = models["strong"][7].tolist()
    tpr, tnr = tp / (tp + fn), tn / (tn + fp)
    expected = {"roc": (1 - tnr, tpr), "pr": (tpr, tp / (tp + fp)), "dominance": (tpr - tnr, (tpr * tnr) ** 0.5)}[name]
    np.testing.assert_allclose(mark.get_xydata(), [expected], atol=1e-7)
    assert mark.get_marker() == "s"
    on_curve = np.abs(line(ax, strong).get_xydata() - expected).max(1).min()
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


@pytest.mark.parametrize("draw", [plots.plot_roc, plots.plot_precision_recall, papers.plot_dominance_curve])
def test_a_sweep_is_drawn_like_its_counts(draw):
    sweep = imbtorch.ThresholdSweep("f1")
    sweep.update(torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0]))
    drawn = [draw(given)[1] for given in (sweep.result().matrices(), sweep, sweep.result())]
    lines = [[line.get_xydata().tolist() for line in ax.lines] for ax in drawn]
    assert lines[0] == lines[1] == lines[2]
    area = f": AUC {roc_auc_score([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8]):.3f}" * (draw is plots.plot_roc)
    assert [line.get_label() for line in draw({"model": sweep})[1].lines][-1] == f"model{area}"
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


def test_a_result_of_a_sweep_shows_areas_intervals_and_the_chosen_threshold():
    target = torch.tensor([0, 0, 0, 0, 0, 0, 1, 0, 1, 1])
    scores = torch.tensor([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.7, 0.8, 0.9])
    sweep = imbtorch.ThresholdSweep("f1", thresholds=21)
    sweep.update(scores, target)
    result, state = sweep.result(), torch.get_rng_state()
    fig, (value, roc, pr) = result.plot()
    fig.savefig(io.BytesIO())
    assert torch.equal(torch.get_rng_state(), state)
    chosen = result["threshold"].item()
    predicted = scores > chosen
    told = f1_score(target, predicted)
    highest = max(f1_score(target, scores > cut) for cut in [0.0, *scores.tolist()])
    beside = f", highest {highest:.3f}" if f"{highest:.3f}" != f"{told:.3f}" else ""
    assert written(value) == [f"chosen {told:.3f} at {chosen:.2f}{beside}"]
    assert written(roc) == written(pr) == [f"threshold {chosen:.2f}"]
    false_alarms = 1 - recall_score(1 - target, ~predicted)
    assert roc.texts[0].xy == pytest.approx((false_alarms, recall_score(target, predicted)))
    assert pr.texts[0].xy == pytest.approx((recall_score(target, predicted), precision_score(target, predicted)))
    auc, ap = result.interval("auc"), result.interval("average_precision")
    assert auc.estimate.item() == pytest.approx(roc_auc_score(target, scores))
    assert ap.estimate.item() == pytest.approx(average_precision_score(target, scores))
    assert models_in(roc) == [bracketed("AUC", auc)]
    assert models_in(pr) == [bracketed("AP", ap)]
    assert legend(roc)[-1] == legend(pr)[-1] == "threshold chosen for f1"
    titles = [ax.get_legend().get_title().get_text() for ax in (value, roc, pr)]
    assert titles == [f"corrected: for the choice of the threshold\n{BRACKETS}", BRACKETS, BRACKETS]
    drawn = result.interval("value")
    on_these = f"{f1_score(target, predicted):.3f} on these samples"
    assert legend(value) == [bracketed(f"{on_these}, corrected", drawn), "threshold 0.5"]
    assert [ax.get_title() for ax in (value, roc, pr)] == ["f1 at each threshold", "ROC", "Precision over recall"]
    assert drawn.low < drawn.estimate < 6 / 7


@pytest.mark.slow
def test_labels_of_other_class_shares_are_drawn_beside_each_other():
    scores = torch.arange(1, 21).view(10, 2) / 21
    target = torch.tensor([[0, 1]] * 6 + [[1, 0], [0, 1], [1, 1], [1, 1]])
    sweep = imbtorch.ThresholdSweep("f1", 21, "multilabel", num_labels=2, class_names=["cat", "dog"])
    sweep.update(scores, target)
    result = sweep.result()
    fig, (value, roc, bars) = result.plot()
    fig.savefig(io.BytesIO())
    fig, pr = result.plot("precision_recall")
    fig.savefig(io.BytesIO())
    auc, ap = result.interval("auc"), result.interval("average_precision")
    of_value = result.interval("value")
    chosen = [result.values[f"threshold/{name}"].item() for name in ("cat", "dog")]
    names = [*enumerate(("cat", "dog"))]
    assert models_in(roc) == [
        f"{name}: {bracketed('AUC', auc, at)}, threshold {probability(chosen[at])}" for at, name in names
    ]
    assert models_in(pr) == [
        f"{name}: {bracketed('AP', ap, at)}, threshold {probability(chosen[at])}" for at, name in names
    ]
    best = {name: result.values[f"value/{name}"].item() for _, name in names}
    corrected = [bracketed("corrected", of_value, at) for at, _ in names]
    assert models_in(value) == [
        f"{name}: chosen {best[name]:.3f} at {probability(chosen[at])}, {corrected[at]}" for at, name in names
    ]
    assert not written(value) + written(roc) + written(pr)
    recall, precision = line(pr, models_in(pr)[1]).get_xydata().T
    expected = [average_precision_score(target[:, label], scores[:, label]) for label in range(2)]
    assert np.sum(np.diff(recall) * precision[1:]) == pytest.approx(expected[1])
    assert not shaded(pr, 0.95, 0.01)  # the part out of reach differs from label to label
    assert [bar.get_height() for bar in bars.patches] == pytest.approx(expected)
    assert [text.get_text() for text in bars.get_xticklabels()] == ["cat", "dog"]
    assert bars.get_ylabel() == "average precision (95% interval)"
    dotted = [each.get_ydata()[0] for each in bars.lines if each.get_linestyle() == ":" and len(each.get_ydata())]
    assert dotted == pytest.approx(target.double().mean(0).tolist())


def of_labels(number, samples=600):
    """The result of a sweep of labels of which each is rarer than the one before, and how many samples have each."""
    generator = torch.Generator().manual_seed(number)
    shares = torch.logspace(-0.3, -1.5, number)
    target = (torch.rand(samples, number, generator=generator) < shares).long()
    scores = torch.randn(samples, number, generator=generator).add(2 * target + shares.logit()).sigmoid()
    names = [f"finding {at}" for at in range(number)]
    sweep = imbtorch.ThresholdSweep("f1", task="multilabel", num_labels=number, class_names=names)
    sweep.update(scores, target)
    return sweep.result(), target.sum(0).tolist()


@pytest.mark.default_cases("1")
@pytest.mark.parametrize("number", [1, 3, 10, 40])
def test_pictures_of_any_number_of_labels_can_be_read(number):
    result, positives = of_labels(number)
    figure, axes = result.plot()
    assert not cut_off(figure)
    rarest = sorted(sorted(range(number), key=lambda at: positives[at])[:10])
    names = [f"finding {at}" for at in rarest]
    titles = [ax.get_title().split("\n")[0] for ax in axes]
    assert [title == "The 10 rarest of 40" for title in titles] == [number > 10] * 3
    single = number == 1
    for ax in axes[: 2 + single]:
        texts = models_in(ax)
        assert len(written(ax)) == single  # texts at the points of several labels would overlap
        if not (single and ax is axes[0]):  # where a single line has no name
            assert [text.split(":")[0] for text in texts] == names
            looks = {(line(ax, text).get_linestyle(), line(ax, text).get_marker()) for text in texts}
            assert len(looks) == len(names)  # told apart without colour
        assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0
    if not single:
        assert [text.get_text() for text in axes[2].get_xticklabels()] == names
    boxes = [ax.get_tightbbox() for ax in axes]
    assert all(one.x1 <= other.x0 + 1 for one, other in itertools.pairwise(boxes))  # no legend runs into the next
    assert all(ax.get_window_extent().height > 0.35 * figure.bbox.height for ax in axes)


@pytest.mark.parametrize("kind", ["value", "roc", "precision_recall", "average_precision"])
def test_labels_of_one_class_are_drawn_only_over_thresholds(kind):
    scores = torch.tensor([[0.2, 0.3, 0.4], [0.7, 0.6, 0.5], [0.9, 0.8, 0.7], [0.8, 0.9, 0.1]])
    target = torch.tensor([[0, 0, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]])
    sweep = imbtorch.ThresholdSweep("f1", 11, "multilabel", num_labels=3, class_names=["cat", "dog", "owl"])
    sweep.update(scores, target)
    with pytest.warns(UserWarning, match="dog"):
        result = sweep.result()
    _, ax = result.plot(kind)
    if kind == "average_precision":
        shown = [text.get_text() for text in ax.get_xticklabels()]
    else:
        shown = [text.split(":")[0] for text in models_in(ax)]
    assert shown == (["cat", "dog", "owl"] if kind == "value" else ["cat", "owl"])
    alone = imbtorch.ThresholdSweep("f1", 11)
    alone.update(scores[:, 1], target[:, 1])
    with pytest.warns(UserWarning, match="had no target"):
        result = alone.result()
    if kind == "value":
        assert legend(result.plot(kind)[1]) == ["threshold 0.5"]
    else:
        with pytest.raises(ValueError, match="there is no curve without positive and negative targets"):
            result.plot(kind)


def test_the_average_precision_of_two_classes_is_one_bar():
    scores, target = torch.tensor([0.2, 0.7, 0.9, 0.8]), torch.tensor([0, 1, 1, 0])
    sweep = imbtorch.ThresholdSweep("f1")
    sweep.update(scores, target)
    _, ax = sweep.result().plot("average_precision")
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([average_precision_score(target, scores)])
    (dotted,) = [each for each in ax.lines if each.get_linestyle() == ":" and len(each.get_ydata())]
    assert list(dotted.get_ydata()) == [0.5, 0.5]


@pytest.mark.filterwarnings("ignore:.*too few for this prevalence")
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
    chosen = many.compute()["threshold/0"].item()
    told = f"chosen {f1_score(target, scores > chosen):.3f} at {chosen:.2f}"
    assert models_in(many.result().plot("value")[1]) == [f"{label}: {told}" for label in range(6)]


@pytest.mark.parametrize("draw", [plots.plot_roc, plots.plot_precision_recall])
def test_a_legend_is_not_cut_off_in_axes_of_a_figure_without_a_layout(draw):
    fig, ax = plt.subplots(figsize=(4, 4))
    draw({"net": SWEPT, "a model with a long name": SWEPT}, ax)
    pixels(fig)
    box, page = ax.get_legend().get_window_extent(), fig.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert page.y0 <= box.y0 < box.y1 <= page.y1
