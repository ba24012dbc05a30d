"""What a sweep says of rare events on its default grid, beside scikit-learn, SciPy and simulations of known truth."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import imbtorch
from imbtorch import ThresholdSweep
from imbtorch.bins import bins_of
from imbtorch.metrics.histogram import Grid


def rare(prevalence, gain=1.0, positives=400, seed=0, dtype=torch.float64):
    """Logits, calibrated where the gain is 1, of two normal classes two standard deviations apart; targets."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.zeros(min(int(positives / prevalence), 1_000_000), dtype=torch.long)
    target[: int(len(target) * prevalence)] = 1
    evidence = torch.randn(len(target), generator=generator, dtype=torch.float64) + 2 * target - 1
    return (gain * (2 * evidence + math.log(prevalence / (1 - prevalence)))).to(dtype), target


def best_of_all_thresholds(logits, target):
    """Best F1 and G-mean over every cut between scores, from cumulated counts."""
    order = np.argsort(-logits.numpy(), kind="stable")
    hits, last = np.cumsum(target.numpy()[order]), np.append(np.diff(logits.numpy()[order]) != 0, True)
    flagged, positives, n = np.arange(1, len(hits) + 1)[last], hits[-1], len(hits)
    hits = hits[last]
    gmean = np.sqrt(hits / positives * (1 - (flagged - hits) / (n - positives)))
    return (2 * hits / (flagged + positives)).max(), gmean.max()


@pytest.mark.parametrize("gain", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("prevalence", [0.5, 0.01, 1e-3, 1e-4])
def test_the_default_grid_holds_for_rare_events(prevalence, gain):
    logits, target = rare(prevalence, gain, positives=100 if prevalence < 1e-3 else 400, dtype=torch.float32)
    f1, gmean = best_of_all_thresholds(logits, target)
    auc, precision = sk.roc_auc_score(target, logits), sk.average_precision_score(target, logits)
    of_logits = ThresholdSweep("f1", logits=True)
    of_logits.update(logits, target)
    of_chances = ThresholdSweep("f1")
    of_chances.update(logits.double().sigmoid(), target)
    for sweep in (of_logits, of_chances):
        assert sweep.compute()["value"].item() == pytest.approx(f1, abs=0.002)
        assert sweep.result().auc().item() == pytest.approx(auc, abs=0.002)
        assert sweep.result().average_precision().item() == pytest.approx(precision, abs=0.002)
    sweep = ThresholdSweep("gmean", logits=True)
    sweep.update(logits, target)
    assert sweep.compute()["value"].item() == pytest.approx(gmean, abs=0.002)


def test_areas_and_curves_are_those_of_scikit_learn_where_scores_of_a_bin_are_equal():
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(21, (400,), generator=generator)
    target = (torch.rand(400, generator=generator) * 40 < steps).long()
    sweep = ThresholdSweep("f1", 21)
    sweep.update(steps / 20.0, target)
    sweep.compute()
    assert sweep.result().average_precision().item() == pytest.approx(
        sk.average_precision_score(target, steps), abs=1e-12
    )
    precision, recall, _ = sk.precision_recall_curve(target, steps)
    found = torch.stack(sweep.result().precision_recall()).flip(1)
    found = found[:, ~found[1].isnan()]
    np.testing.assert_allclose(np.unique(found, axis=1), np.unique([recall[:-1], precision[:-1]], axis=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [False, True])
def test_the_table_of_bins_finds_what_a_search_finds(logits, dtype):
    """Scores on edges, beside them, and where float32 has few numbers left."""
    edges = Grid.of(None, logits).edges
    on = edges.to(dtype)
    ends = torch.tensor(
        [-math.inf, math.inf, 1e30, -1e30, 1e-40, -0.0, 0.0, 0.5, 1.0, 1 - 2**-24, 0.4999999], dtype=dtype
    )
    scores = torch.cat([ends, *(torch.nextafter(on, torch.tensor(end, dtype=dtype)) for end in (-9e9, 9e9)), on])
    odds = torch.randn(20_000, generator=torch.Generator().manual_seed(0), dtype=dtype) * 20
    scores = torch.cat((scores, odds)) if logits else torch.cat((scores[(scores >= 0) & (scores <= 1)], odds.sigmoid()))
    expected = np.searchsorted(on.numpy(), scores.numpy())
    assert bins_of(scores, edges, logits).tolist() == expected.tolist()
    few = scores[::200].contiguous()  # which are searched for
    assert bins_of(few, edges, logits).tolist() == expected[::200].tolist()


@pytest.mark.parametrize(
    "thresholds", [torch.linspace(0, 1, 300), torch.tensor([0.5] * 300), torch.rand(500).sort().values]
)
@pytest.mark.parametrize("logits", [False, True])
def test_thresholds_of_ones_own_are_searched_as_well(thresholds, logits):
    grid = Grid.of(thresholds, logits)
    scores = torch.cat((grid.edges, torch.linspace(-3, 3, 999) if logits else torch.linspace(0, 1, 999))).float()
    expected = np.searchsorted(grid.edges.float().numpy(), scores.numpy())
    assert bins_of(scores, grid.edges, logits).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", ["sigmoid", "two columns", "classes"])
def test_saturated_logits_are_told_apart(shape):
    """Logits of 20 to 35, whose sigmoids and softmaxes are 1 in float32."""
    generator = torch.Generator().manual_seed(0)
    odds = 20 + 15 * torch.rand(500, generator=generator)
    target = (torch.rand(500, generator=generator) * 15 < odds - 20).long()
    settings, preds = {}, odds
    if shape == "two columns":
        preds = torch.stack((-odds / 2, odds / 2), 1)
    if shape == "classes":
        settings, preds = {"task": "multiclass", "num_classes": 2, "per_class": True}, torch.stack((0 * odds, odds), 1)
    assert (odds.sigmoid() == 1).all()
    sweep = ThresholdSweep("f1", logits=True, **settings)
    sweep.update(preds, target)
    sweep.compute()
    assert torch.as_tensor(sweep.result().auc()).flatten()[-1] == pytest.approx(
        sk.roc_auc_score(target, odds), abs=0.003
    )
    f1, _ = best_of_all_thresholds(odds, target)
    assert sweep.result().curve()[1].reshape(-1, len(sweep.thresholds))[-1].max().item() == pytest.approx(f1, abs=0.003)


def test_log_odds_of_classes_are_those_of_exact_arithmetic():
    logits = torch.tensor([[50.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-80.0, 10.0, 90.0], [1.5, -2.0, -torch.inf]])
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3, per_class=True, logits=True)
    sweep.update(logits, torch.tensor([0, 1, 2, 0]))
    counts = sweep._histogram.counts(sweep._state)
    edges = sweep._histogram.edges
    for k in range(3):
        wide = logits.double()
        others = wide[:, [j for j in range(3) if j != k]]
        odds = wide[:, k] - torch.logsumexp(others, 1)
        assert (
            counts[k].sum(0).tolist() == torch.bincount(torch.bucketize(odds, edges), minlength=len(edges) + 1).tolist()
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.parametrize("gain", [1.0, 8.0])
def test_a_metric_of_the_threshold_counts_what_the_sweep_counted(task, dtype, gain):
    logits, target = rare(0.2, gain, positives=400, dtype=dtype)
    settings = {"task": task, "logits": True} | ({"num_labels": 2} if task == "multilabel" else {})
    if task == "multilabel":
        logits, target = torch.stack((logits, logits + 30), 1), torch.stack((target, target), 1)
    sweep = ThresholdSweep("f1", **settings)
    sweep.update(logits, target)
    found = sweep.compute()
    best = [value.item() for name, value in found.items() if name.startswith("threshold")]
    values = [value.item() for name, value in found.items() if name.startswith("value")]
    average = {"average": "none"} if task == "multilabel" else {}
    metric = imbtorch.FScore(**settings, **average, threshold=best if task == "multilabel" else best[0])
    metric.update(logits, target)
    assert metric.compute().flatten().tolist() == values
    for index, value in enumerate(values):
        scores = logits.reshape(len(logits), -1)[:, index].double()
        preds = scores > math.log(best[index] / (1 - best[index]))
        assert value == pytest.approx(sk.f1_score(target.reshape(len(target), -1)[:, index], preds), abs=1e-6)


def test_scores_that_crowd_in_one_bin_are_warned_of_once():
    target = torch.arange(400) % 4 == 0
    saturated = (torch.where(target, 22.0, 20.0)).sigmoid()
    sweep = ThresholdSweep("f1")
    sweep.update(saturated, target)
    with pytest.warns(
        UserWarning, match=r"400 scores above 0\.99.*average precision may be off by 0\.\d+; pass logits"
    ):
        sweep.compute()
    sweep.update(saturated, target)
    sweep.compute()  # once
    few = ThresholdSweep("f1")
    few.update(saturated[:80], target[:80])
    few.compute()
    own = ThresholdSweep("f1", 11)  # as asked for
    own.update(saturated, target)
    own.compute()


@pytest.mark.parametrize("highest", [38.0, 150.0, math.inf])
def test_logits_beyond_every_threshold_crowd_too(highest):
    target = torch.arange(300) % 3 == 0
    sweep = ThresholdSweep("f1", logits=True, also=("auc",))
    sweep.update(torch.tensor([highest, -1.0]).repeat(150), target)
    with pytest.warns(UserWarning, match=r"150 scores of a logit above \d+\.?\d* fall between two thresholds"):
        values = sweep.compute()
    found = [sk.f1_score(target, np.tile([True, False], 150)), sk.f1_score(target, np.ones(300))]
    assert values["value"].item() == pytest.approx(max(found))
    assert values["auc"].item() == pytest.approx(sk.roc_auc_score(target, np.tile([1, 0], 150)))


@pytest.mark.filterwarnings("ignore:ThresholdSweep.*had no .*target")
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_macro_averages_are_those_of_scikit_learn(task):
    """Over the classes that come: the last of four never does."""
    random = np.random.default_rng(0)
    target = random.choice(3, 500, p=[0.6, 0.3, 0.1])
    scores = 0.7 * random.dirichlet([2.0, 1.0, 0.5, 0.5], 500) + 0.3 * np.eye(4)[target]
    options = {"num_classes": 4, "per_class": True} if task == "multiclass" else {"num_labels": 4}
    sweep = ThresholdSweep(imbtorch.FScore, task=task, also=("auc", "average_precision", "partial_auc"), **options)
    one_hot = np.eye(4, dtype=int)[target]
    given = torch.from_numpy(scores), torch.from_numpy(target if task == "multiclass" else one_hot)
    sweep.update(*given)
    values, present = sweep.compute(), (one_hot[:, :3], scores[:, :3])
    wanted = {
        "auc": sk.roc_auc_score(*present, average="macro"),
        "average_precision": sk.average_precision_score(*present, average="macro"),
    }
    assert {name: values[name].item() for name in wanted} == pytest.approx(wanted, abs=0.002)
    assert "partial_auc" not in values
    assert sweep["auc"].higher_is_better
    sweep.reset()
    sweep.update(*(each[target == 0] for each in given))
    assert math.isnan(sweep.compute()["auc"])
