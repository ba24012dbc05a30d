"""What samples of two classes show against their values (`samples.py`): confidences, and labels of alarms alone."""

import numpy as np
import pandas
import pytest
import scipy.stats

import imbtorch
from imbtorch import Predictions

RNG = np.random.default_rng(3)
Y = (RNG.random(3000) < 0.1).astype(int)
SCORES = 1 / (1 + np.exp(3 - 3 * Y - 1.5 * RNG.normal(size=len(Y))))
FLAGGED = SCORES > 0.5


def told(result, word):
    return [note for note in result.table().notes if word in note]


def test_confidences_of_the_predicted_class_are_told():
    """They are max(p, 1 - p); their AUC is scikit-learn's of another thing, so that only a note tells."""
    confidence = np.maximum(SCORES, 1 - SCORES)
    data = Predictions({"y": Y, "confidence": confidence, "score": SCORES}, target="y")
    (note,) = told(data.report(scores="confidence"), "confidences of the predicted class")
    assert f"{(confidence[Y == 0] > 0.75).sum()} of {(Y == 0).sum()} rows of class '0'" in note
    assert data.thresholds("confidence", "f1").problems["confidences"] == note
    assert not told(data.report(scores="score"), "confidences")
    assert "confidences" not in data.thresholds("score", "f1").problems


def test_scores_that_are_high_for_their_own_reasons_are_no_confidences():
    """Scores of class 1 from 0.5 on are low in class 0; one score below 0.5 is no confidence of two classes."""
    shifted = 0.5 + SCORES / 2
    assert not told(imbtorch.report(target=Y, scores=shifted), "confidences")
    confidence = np.maximum(SCORES, 1 - SCORES)
    confidence[0] = 0.49
    assert not told(imbtorch.report(target=Y, scores=confidence), "confidences")


@pytest.mark.parametrize("of", ["scores", "preds"])
def test_labels_of_alarms_alone_are_told(of):
    """Every alarm has a label and nothing else: recall would be 1."""
    label = pandas.Series(Y).astype("Int64").where(FLAGGED)
    given = {"scores": SCORES} if of == "scores" else {"preds": FLAGGED.astype(int)}
    result = imbtorch.report(target=label, missing="drop", **given)
    assert result["recall"].item() == 1
    (note,) = told(result, "follow the alarms")
    assert f"{FLAGGED.sum()} of {FLAGGED.sum()} rows" in note
    assert "0 of 2," in note
    assert "imbtorch label" in note
    ignored = label.fillna(-1).astype(int)
    assert told(imbtorch.report(target=ignored, ignore=-1, **given), "follow the alarms") == [note]


@pytest.mark.parametrize(("more", "seed"), [(1.0, 11), (1.0, 12), (1.3, 13), (2.0, 14), (6.0, 15)])
def test_labels_that_follow_the_alarms_are_told_as_a_test_of_counts_decides(more, seed):
    """The oracle is SciPy's G-test of labels and alarms; rates that differ by less than half are not told."""
    draws = np.random.default_rng(seed).random(len(Y))
    labelled = draws < np.where(FLAGGED, min(0.15 * more, 1), 0.15)
    pair = [[(labelled == has) & (flag == FLAGGED) for flag in (False, True)] for has in (True, False)]
    sizes = np.array([[each.sum() for each in row] for row in pair])
    rates = sizes[:, 1] / sizes.sum(1)
    chance = scipy.stats.chi2_contingency(sizes, correction=False, lambda_="log-likelihood").pvalue
    expected = chance < 0.001 and max(rates) > 1.5 * min(rates)
    assert expected == (more >= 2)
    label = pandas.Series(Y).astype("Int64").where(labelled)
    result = imbtorch.report(target=label, missing="drop", preds=FLAGGED.astype(int))
    assert bool(told(result, "follow the alarms")) == expected
