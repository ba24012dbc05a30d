"""Thresholds that a sweep stores (`sweep_settings.py`): a saved point gives its own counts again."""

import numpy as np
import pytest
import torch

import imbtorch
from imbtorch import ImbalanceReport, Threshold, ThresholdSweep

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def scores_beside(edges, dtype, logits):
    """Return scores on both sides of thresholds, as near as the dtype allows, with random ones and classes."""
    generator = torch.Generator().manual_seed(0)
    near = edges[torch.randint(len(edges), (800,), generator=generator)].to(dtype)
    above = torch.nextafter(near.float(), torch.tensor(50.0)).to(dtype)
    drawn = torch.rand(800, generator=generator, dtype=torch.float64)
    scores = torch.cat((near, above, (10 * drawn - 5 if logits else drawn).to(dtype)))
    scores = scores if logits else scores.clamp(0, 1)
    chances = scores.double().sigmoid() if logits else scores.double()
    return scores, (torch.rand(len(scores), generator=generator) < chances).long()


def counts_of(predicted, target):
    predicted, target = np.asarray(predicted, dtype=bool), target.numpy()
    return [[int((~predicted & (target == true)).sum()), int((predicted & (target == true)).sum())] for true in (0, 1)]


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("thresholds", [None, 101])
@pytest.mark.filterwarnings("ignore:ThresholdSweep")
def test_a_point_gives_its_counts_again(tmp_path, thresholds, dtype, logits):
    sweep = ThresholdSweep("f1", thresholds, logits=logits)
    edges = sweep.thresholds.logit() if logits else sweep.thresholds
    scores, target = scores_beside(edges[edges.isfinite() & (edges.abs() < 20)], dtype, logits)
    sweep.update(scores, target)
    for limits in ({}, {"at_least": {"recall": 0.8}}, {"alerts": 0.2}):
        sweep.best(**limits).to_json(tmp_path / "point.json")
        point = imbtorch.open_result(tmp_path / "point.json")
        expected, limit = point.counts.tolist(), point.log_odds if logits else point.threshold
        assert torch.tensor(limit, dtype=torch.float64).to(dtype).item() == limit
        assert counts_of(scores > limit, target) == expected  # as torch compares scores with a Python float
        if dtype != torch.bfloat16:
            assert counts_of(scores.numpy() > limit, target) == expected  # as NumPy does
        assert counts_of(scores.double().numpy() > limit, target) == expected  # lists and wider columns
        for given in (scores, scores.double()):
            report = ImbalanceReport("binary", threshold=point.threshold, logits=logits)
            report.update(given, target)
            assert report.result().counts.tolist() == expected
            rules = [Threshold(point.threshold, logits=logits)]
            rules += [Threshold(log_odds=point.log_odds, logits=True)] if logits else []
            assert all(counts_of(rule(given), target) == expected for rule in rules)
        sweep.rule.take(point)
        assert counts_of(sweep.rule(scores), target) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_thresholds_are_compared_as_torch_does(dtype):
    scores = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.7, 0.9], dtype=torch.float64).to(dtype).repeat(2)
    target = torch.arange(12) % 2
    for threshold in (0.1, 0.3, 0.6, 0.7):
        expected = counts_of(scores > threshold, target)
        report = ImbalanceReport("binary", threshold=threshold)
        report.update(scores, target)
        assert report.result().counts.tolist() == expected
        assert counts_of(Threshold(threshold)(scores), target) == expected


def test_the_coarsest_dtype_of_several_batches_counts():
    """A number that the coarsest dtype represents is one of the others as well."""
    sweep = ThresholdSweep("f1", torch.tensor([0.3]))
    for dtype in (torch.float64, torch.float16, torch.float32):
        sweep.update(torch.tensor([0.2, 0.4]).to(dtype), torch.tensor([0, 1]))
    assert sweep.compute()["threshold"].item() == np.nextafter(np.float16(0.3), np.float16(0))
    sweep.reset()
    sweep.update(torch.tensor([0.2, 0.4], dtype=torch.float64), torch.tensor([0, 1]))
    assert sweep.compute()["threshold"].item() == torch.tensor([0.3]).double().item()
