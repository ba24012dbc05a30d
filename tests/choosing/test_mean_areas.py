"""Means of areas over labels against scikit-learn, and their variances against DeLong's and Obuchowski's sums."""

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from scipy import stats

from imbtorch.statistics import mean_auc


def placements(score, truth):
    """Share of the other class that each sample outranks (a positive), or is outranked by (a negative)."""
    wins = np.sign(score[truth == 1][:, None] - score[truth == 0][None]) / 2 + 0.5
    found = np.zeros(len(score))
    found[truth == 1], found[truth == 0] = wins.mean(1), wins.mean(0)
    return found


def standard_error(labels, cluster, scores, other=None):
    """Root of the sum over clusters of their components of all labels, less the area; Obuchowski (1997), eq. 4 to 8."""
    total = np.zeros(cluster.max() + 1)
    for at, truth in enumerate(labels.T):
        apart = placements(scores[:, at], truth) - sk.roc_auc_score(truth, scores[:, at])
        if other is not None:
            apart -= placements(other[:, at], truth) - sk.roc_auc_score(truth, other[:, at])
        for kind in (0, 1):
            held = len(np.unique(cluster[truth == kind]))
            of_kind = apart[truth == kind] / (truth == kind).sum() * (held / (held - 1)) ** 0.5
            np.add.at(total, cluster[truth == kind], of_kind)
    return np.sqrt((total**2).sum()) / labels.shape[1]


def data(samples=400, labels=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = (rng.random((samples, labels)) < 0.2).astype(int)
    hard = rng.normal(size=(samples, 1))
    scores = [np.round(truth * shift + hard + rng.normal(size=truth.shape), 1) for shift in (1.5, 1.0)]  # with ties
    return truth, *scores


@pytest.mark.parametrize("size", [1, 4])
def test_means_and_their_errors_are_those_of_delong_and_obuchowski(size):
    truth, scores, other = data()
    cluster = np.arange(len(truth)) // size
    ids = None if size == 1 else torch.from_numpy(cluster)
    found = mean_auc(*map(torch.from_numpy, (scores, truth)), cluster=ids, label_names=["a", "b", "hernia"])
    areas = [sk.roc_auc_score(truth[:, at], scores[:, at]) for at in range(3)]
    assert list(found) == ["auc", "auc/a", "auc/b", "auc/hernia"]
    assert float(found["auc"].estimate) == pytest.approx(np.mean(areas))
    assert float(found["auc/hernia"].estimate) == pytest.approx(areas[2])
    held = min(len(np.unique(cluster[truth[:, at] == kind])) for at in range(3) for kind in (0, 1))
    quantile = stats.t.ppf(0.975, held - 1)
    half = quantile * standard_error(truth, cluster, scores)
    assert float(found["auc"].high - found["auc"].estimate) == pytest.approx(half)
    assert found["auc"].method == ("DeLong" if size == 1 else "DeLong, 100 clusters")
    two = mean_auc(*map(torch.from_numpy, (scores, truth)), other=torch.from_numpy(other), cluster=ids)["auc"]
    others = [sk.roc_auc_score(truth[:, at], other[:, at]) for at in range(3)]
    assert float(two.estimate) == pytest.approx(np.mean(areas) - np.mean(others))
    half = quantile * standard_error(truth, cluster, scores, other)
    assert [float(two.low), float(two.high)] == pytest.approx([float(two.estimate) + way * half for way in (-1, 1)])


def test_classes_are_taken_one_against_the_rest():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 4, 500)
    scores = rng.dirichlet(np.ones(4), 500)
    scores[np.arange(500), target] += 0.2
    found = mean_auc(torch.from_numpy(scores), torch.from_numpy(target))
    each = [sk.roc_auc_score(target == k, scores[:, k]) for k in range(4)]
    assert float(found["auc"].estimate) == pytest.approx(np.mean(each))
    assert float(found["auc/3"].estimate) == pytest.approx(each[3])


def test_missing_labels_and_labels_with_few_positives_are_left_out():
    truth, scores, _ = data()
    truth[::3, 0], truth[:, 2] = -1, 0
    truth[:7, 2] = 1
    tensors = [torch.from_numpy(each) for each in (scores, truth)]
    found = mean_auc(*tensors)
    known = truth[:, 0] >= 0
    first = sk.roc_auc_score(truth[known, 0], scores[known, 0])
    assert float(found["auc/0"].estimate) == pytest.approx(first)
    assert found["auc"].low.isnan()
    assert found["auc"].method == "DeLong; only 7 with '2'"
    assert bool(found["auc/1"].low.isfinite())
    enough = mean_auc(*tensors, min_positives=20)
    assert list(enough) == ["auc", "auc/0", "auc/1"]
    assert bool(enough["auc"].low.isfinite())
    with pytest.raises(ValueError, match="a label with 500 positives and a negative"):
        mean_auc(*tensors, min_positives=500)


def test_wrong_inputs_say_what_is_right():
    truth, scores, other = (torch.from_numpy(each) for each in data(60))
    with pytest.raises(ValueError, match=r"other must be \[N, L\] with a row for each target, got \[60, 2\]"):
        mean_auc(scores, truth, other=other[:, :2])
    with pytest.raises(ValueError, match=r"target must hold class indices \[N\], or 0, 1 and -1"):
        mean_auc(scores, truth + 1)
    with pytest.raises(ValueError, match="label_names must be 3 different names"):
        mean_auc(scores, truth, label_names=["a", "a", "b"])


def test_intervals_of_patients_cover_the_truth():
    """Five findings of 60 patients with four images each; a patient is hard for all findings. Truth by simulation."""
    covered, rng = 0, np.random.default_rng(0)
    true = stats.norm.cdf(1.2 / 2)  # scores of both classes have the variance 2
    ids = torch.arange(240) // 4
    for _ in range(150):
        truth = (rng.random((60, 5)) < 0.5).astype(int).repeat(4, 0)
        scores = 1.2 * truth + np.repeat(rng.normal(size=(60, 1)), 4, 0) + rng.normal(size=truth.shape)
        found = mean_auc(torch.from_numpy(scores), torch.from_numpy(truth), cluster=ids)["auc"]
        covered += bool(found.low <= true <= found.high)
    assert covered >= 0.9 * 150
