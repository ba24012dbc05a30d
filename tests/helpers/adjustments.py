"""Scores of long-tailed classes, and what an argmax at each tau makes of them: shared by tests of logit adjustments."""

import numpy as np
import torch
from sklearn import metrics as sk
from torch import Tensor

TAUS = tuple(step / 8 for step in range(-16, 25))


def long_tail(samples: int, classes: int = 5, seed: int = 0, gap: float = 1.5) -> tuple[Tensor, Tensor, Tensor]:
    """Calibrated logits of normal classes in a plane, targets, and training counts that fall to a twentieth."""
    generator = torch.Generator().manual_seed(seed)
    prior = 1000 * 0.05 ** (torch.arange(classes, dtype=torch.float64) / max(1, classes - 1))
    angles = 2 * torch.pi * torch.arange(classes, dtype=torch.float64) / classes
    centres = gap * torch.stack((angles.cos(), angles.sin()), -1)
    target = torch.multinomial(prior, samples, True, generator=generator)
    points = centres[target] + torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    return -((points.unsqueeze(1) - centres) ** 2).sum(-1) / 2 + prior.div(prior.sum()).log(), target, prior


def decided(scores: Tensor, prior: Tensor, taus=TAUS) -> Tensor:
    """Classes ``[T, ...]`` of the highest of adjusted logits ``[N, K, ...]``: one argmax in float64 for each tau."""
    logs = (prior.double() / prior.double().sum()).log().view(-1, *[1] * (scores.ndim - 2))
    return torch.stack([(scores.double() - tau * logs).argmax(1) for tau in taus])


def expected_margins(chosen: Tensor, target: Tensor, classes: int) -> list[np.ndarray]:
    """Right predictions, targets and predictions of each class at each tau, from scikit-learn's matrices."""
    labels = list(range(classes))
    matrices = np.stack([sk.confusion_matrix(target.flatten(), each.flatten(), labels=labels) for each in chosen])
    return [matrices.diagonal(axis1=1, axis2=2), matrices.sum(2), matrices.sum(1)]
