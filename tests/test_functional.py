"""Functions of predictions: a measure in one call, and a confusion matrix of each sample."""

from functools import partial

import pytest
import torch
import torchmetrics
from cases import TASKS, batch, build, close
from sklearn import metrics as sklearn_metrics
from torchmetrics.functional.classification import multiclass_f1_score

import imbtorch
from imbtorch.functional import confusion_matrix, evaluate

SIZE = {"binary": {}, "multiclass": {"num_classes": 5}, "multilabel": {"num_labels": 5}}


# --- a measure of predictions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["Recall", "Jaccard", "ImbalanceAccuracy", "MatthewsCorrCoef", "ConfusionEntropy"])
def test_it_is_the_value_of_the_metric(task, name):
    preds, target = batch(task)
    target[::7] = -1
    metric = build(name, task, ignore_index=-1)
    value = evaluate(getattr(imbtorch, name).measure, preds, target, task, ignore_index=-1, **SIZE[task])
    assert value == metric(preds, target)
    assert value.dtype == torch.float32
    assert value.shape == ()


@pytest.mark.parametrize(
    "measure",
    ["f1", "f_score", imbtorch.f_score, partial(imbtorch.f_score), imbtorch.FScore("multiclass", 5).evaluate],
)
def test_it_takes_whatever_measures_takes(measure):
    preds, target = batch("multiclass")
    expected = sklearn_metrics.f1_score(target, preds.argmax(1), average="macro")
    close(evaluate(measure, preds, target, "multiclass", num_classes=5), expected, 1e-6)


def test_options_of_measures_and_of_scores():
    preds, target = batch("binary")
    odds = preds.clamp(1e-3, 1 - 1e-3).logit()
    for beta in (0.5, 2.0):
        expected = sklearn_metrics.fbeta_score(target, preds > 0.3, beta=beta)
        found = evaluate(partial(imbtorch.f_score, beta=beta), odds, target, "binary", threshold=0.3, logits=True)
        close(found, expected, 1e-6)
    scores, target = batch("multiclass")
    found = evaluate(partial(imbtorch.recall, average="none"), scores, target, "multiclass", num_classes=5)
    close(found, sklearn_metrics.recall_score(target, scores.argmax(1), average=None), 1e-6)


def test_what_it_refuses():
    preds, target = batch("binary")
    with pytest.raises(ValueError, match=r"measure.*'f2'.*"):
        evaluate("f2", preds, target, "binary")
    with pytest.raises(TypeError, match="measure"):
        evaluate(7, preds, target, "binary")
    with pytest.raises(ValueError, match="target holds class 4"):
        evaluate("f1", preds, target + 3 * (target == 1), "binary")
    with pytest.raises(TypeError, match=r"evaluate has no argument 'top_k'|top_k"):
        evaluate("f1", preds, target, "binary", top_k=2)


def test_functions_of_counts_name_it():
    preds, target = batch("binary")
    with pytest.raises(ValueError, match=r"imbtorch\.functional\.evaluate\(measure, preds, target, task\)"):
        imbtorch.recall(preds)
    for call in (lambda: imbtorch.matthews_corrcoef(preds, target), lambda: imbtorch.recall(preds, target)):
        with pytest.raises(
            (TypeError, ValueError), match=r"imbtorch\.functional\.evaluate\(measure, preds, target, task\)"
        ):
            call()
    with pytest.raises(AttributeError, match=r"no imbalance_accuracy; imbtorch\.imbalance_accuracy\(counts\) takes"):
        _ = imbtorch.functional.imbalance_accuracy
    with pytest.raises(AttributeError, match=r"module 'imbtorch\.functional' has no attribute 'f3_score'"):
        _ = imbtorch.functional.f3_score
    with pytest.raises(ImportError, match="imbalance_accuracy"):
        from imbtorch.functional import imbalance_accuracy  # noqa: F401


# --- a matrix of each sample ----------------------------------------------------------------------------------------


def images(task, shape=(6, 7), samples=5, seed=0):
    """Scores and labels of images, of which some lack classes and the last is all of one."""
    generator = torch.Generator().manual_seed(seed)
    inner = {"binary": (), "multiclass": (), "multilabel": (4,)}[task]
    target = torch.randint(3 if task == "multiclass" else 2, (samples, *inner, *shape), generator=generator)
    target[1] = target[1].clamp(max=1)
    target[-1] = 0
    scores = (
        torch.rand(samples, 3, *shape, generator=generator)
        if task == "multiclass"
        else torch.rand(target.shape, generator=generator)
    )
    return scores, target


SIZES = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 4}}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("shape", [(), (9,), (6, 7)])
def test_each_sample_has_the_matrix_that_it_has_alone(task, shape):
    scores, target = images(task, shape)
    target[2] = torch.where(torch.rand(target[2].shape) < 0.5, -1, target[2])
    found = confusion_matrix(scores, target, task, samplewise=True, ignore_index=-1, **SIZES[task])
    inner = (4, 2, 2) if task == "multilabel" else (3, 3) if task == "multiclass" else (2, 2)
    assert found.shape == (5, *inner)
    assert found.dtype == torch.int64
    for index, matrix in enumerate(found):
        predicted = scores[index].argmax(0) if task == "multiclass" else (scores[index] > 0.5).long()
        for label in range(4) if task == "multilabel" else [()]:
            true, guessed = target[index][label].flatten(), predicted[label].flatten()
            expected = (
                sklearn_metrics.confusion_matrix(true[true >= 0], guessed[true >= 0], labels=range(inner[-1]))
                if (true >= 0).any()
                else torch.zeros(inner[-2:])
            )
            assert matrix[label].tolist() == expected.tolist()
    rates = confusion_matrix(scores, target, task, samplewise=True, ignore_index=-1, normalize="true", **SIZES[task])
    close(rates, (found / found.sum(-1, keepdim=True)).nan_to_num(), 1e-6)


def test_no_samples_and_wrong_ones():
    scores, target = images("multiclass")
    assert confusion_matrix(scores[:0], target[:0], "multiclass", num_classes=3, samplewise=True).shape == (0, 3, 3)
    with pytest.raises(ValueError, match="target holds class 3"):
        confusion_matrix(scores, target + 1, "multiclass", num_classes=3, samplewise=True)
    with pytest.raises(TypeError, match="samplewise must be True or False, got 1"):
        confusion_matrix(scores, target, "multiclass", num_classes=3, samplewise=1)


# --- means over images ----------------------------------------------------------------------------------------------


def mean_over_images(scores, target, task, measure, **sizes):
    """The recipe: a measure of each image, averaged by torchmetrics over batches."""
    mean = torchmetrics.MeanMetric()
    for some in torch.arange(len(target)).split(2):
        counts = confusion_matrix(scores[some], target[some], task, samplewise=True, **sizes)
        mean.update(measure(counts))
    return mean.compute()


def test_means_over_images_are_torchmetrics_samplewise_values():
    scores, target = images("multiclass", samples=7)
    target[:, 0, :3] = torch.arange(3)  # each class in each image
    expected = multiclass_f1_score(scores, target, 3, average="macro", multidim_average="samplewise")
    found = confusion_matrix(scores, target, "multiclass", num_classes=3, samplewise=True)
    close(imbtorch.f_score(found), expected, 1e-6)
    close(mean_over_images(scores, target, "multiclass", imbtorch.f_score, num_classes=3), expected.mean(), 1e-6)


def smp_iou(scores, target, classes, empty):
    """IoU of segmentation_models.pytorch, ``reduction="macro-imagewise"``: over classes in each image, then images.

    ``metrics/functional.py`` of 0.6.0: ``iou_score = tp / (tp + fp + fn)``; what is 0/0 is ``zero_division``.
    """
    predicted, values = scores.argmax(1), []
    for one, true in zip(predicted, target, strict=True):
        of_image = []
        for c in range(classes):
            hits, either = int(((one == c) & (true == c)).sum()), int(((one == c) | (true == c)).sum())
            of_image.append(hits / either if either else empty)
        values.append([value for value in of_image if value is not None])
    return sum(sum(each) / len(each) for each in values) / len(values)


def test_means_over_images_are_those_of_segmentation_models():
    scores, target = images("multiclass", samples=7)
    found = mean_over_images(scores, target, "multiclass", imbtorch.jaccard, num_classes=3)
    close(found, smp_iou(scores, target, 3, None), 1e-6)
    target[0], scores[0] = 1, torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)  # without two of the classes, and no error
    scores[1, 2] = -1.0  # class 2 is neither in the image nor predicted
    ours = mean_over_images(scores, target, "multiclass", imbtorch.jaccard, num_classes=3)
    close(ours, smp_iou(scores, target, 3, None), 1e-6)  # absent classes take no part
    theirs = mean_over_images(
        scores,
        target,
        "multiclass",
        lambda counts: imbtorch.jaccard(counts, average="none").nan_to_num(1.0).mean(-1),
        num_classes=3,
    )
    close(theirs, smp_iou(scores, target, 3, 1.0), 1e-6)
    assert theirs > ours
