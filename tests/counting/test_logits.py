"""Log-odds of classes against exact arithmetic."""

import torch
from rooms import counter_of, state_of

from imbtorch import ThresholdSweep


def test_log_odds_of_classes_are_those_of_exact_arithmetic():
    logits = torch.tensor([[50.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-80.0, 10.0, 90.0], [1.5, -2.0, -torch.inf]])
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3, logits=True)
    sweep.update(logits, torch.tensor([0, 1, 2, 0]))
    counts = counter_of(sweep).counts(state_of(sweep))
    edges = counter_of(sweep).edges
    for k in range(3):
        wide = logits.double()
        others = wide[:, [j for j in range(3) if j != k]]
        odds = wide[:, k] - torch.logsumexp(others, 1)
        assert (
            counts[k].sum(0).tolist() == torch.bincount(torch.bucketize(odds, edges), minlength=len(edges) + 1).tolist()
        )
