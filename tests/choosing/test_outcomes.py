"""Joint outcomes of predictions against a plain count of tuples."""

from collections import Counter

import pytest
import torch
from distributions import seeded
from rooms import JointOutcomes, checked_outcomes

from imbtorch import confusion_matrix


def drawn(runs, classes, samples=200):
    """Predictions of runs, targets and ids of clusters."""
    generator = seeded()
    preds = torch.randint(classes, (runs, samples), generator=generator)
    target = torch.randint(classes, (samples,), generator=generator)
    return preds, target, torch.randint(5, (samples,), generator=generator) * 7 - 4


@pytest.mark.parametrize(("runs", "classes"), [(1, 2), (2, 3), (5, 2), (70, 2), (3, 2_000_000)])
@pytest.mark.parametrize("clusters", [False, True])
def test_each_different_outcome_is_held_once_with_its_number(runs, classes, clusters):
    """Seventy runs of two classes, and three of two million, exceed the numbers of one int64."""
    preds, target, ids = drawn(runs, classes)
    preds, target = preds.repeat(1, 2), target.repeat(2)  # each outcome at least twice
    ids = ids.repeat(2) if clusters else None
    found = JointOutcomes.of(preds, target, classes, ids)
    columns = [found.target.tolist(), *found.preds.tolist()]
    expected = [target.tolist(), *preds.tolist()]
    if clusters:
        names = sorted(set(ids.tolist()))
        columns.append([names[place] for place in found.cluster.tolist()])
        expected.append(ids.tolist())
    rows = list(zip(*columns, strict=True))
    assert dict(zip(rows, found.times.tolist(), strict=True)) == Counter(zip(*expected, strict=True))
    assert rows == sorted(set(rows))
    assert found.clusters == (5 if clusters else 0)


def test_groups_of_equal_samples_give_the_outcomes_of_their_rows():
    """An engine counts groups of (target, old, new), some of them in several parts."""
    preds, target, _ = drawn(2, 3)
    whole = JointOutcomes.of(preds, target, 3)
    rows = Counter(zip(*preds[:, :120].tolist(), target[:120].tolist(), strict=True))
    more = Counter(zip(*preds[:, 120:].tolist(), target[120:].tolist(), strict=True))
    groups = torch.tensor([*rows, *more]).T
    found = JointOutcomes.of(groups[:2], groups[2], 3, times=torch.tensor([*rows.values(), *more.values()]))
    for name in ("preds", "target", "times"):
        assert torch.equal(getattr(found, name), getattr(whole, name))


def test_matrices_and_totals_are_those_of_the_samples():
    preds, target, ids = drawn(2, 3)
    found = JointOutcomes.of(preds, target, 3, ids)
    expected = [confusion_matrix(each, target, "multiclass", num_classes=3).tolist() for each in preds]
    for each in (found, found.pooled()):
        assert each.counted().tolist() == expected
        assert each.actual().tolist() == target.bincount(minlength=3).tolist()
    assert found.pooled().cluster is None
    of_each = [target[ids == name].bincount(minlength=3).tolist() for name in sorted(set(ids.tolist()))]
    assert found.of_clusters(found.times).tolist() == of_each
    more = torch.tensor([[2.0, 3.0]]).double(), torch.tensor([1]), torch.tensor([[[0, 2]], [[1, 1]]])
    both = found.matrices(found.times.unsqueeze(-1) * torch.tensor([1.0, 2.0]), more)
    assert both.shape == (2, 2, 3, 3)
    difference = both - torch.tensor([1.0, 2.0]).view(2, 1, 1, 1) * torch.tensor(expected)
    added = {(0, 0, 1, 0): 2, (0, 1, 1, 1): 2, (1, 0, 1, 2): 3, (1, 1, 1, 1): 3}
    assert {tuple(at): difference[tuple(at)].item() for at in difference.nonzero().tolist()} == added


def test_margins_are_those_of_the_matrices():
    preds, target, _ = drawn(2, 4)
    found = JointOutcomes.of(preds, target, 4)
    mass = torch.rand(len(found.times), 3, generator=seeded()).double()
    columns = torch.tensor([[[0, 2, 3]] * 2, [[1, 1, 1]] * 2])
    lumps = torch.rand(2, 3, generator=seeded()).double(), torch.tensor([1, 3]), columns
    for matrices, each in zip(found.matrices(mass, lumps).unbind(1), found.margins(mass, lumps), strict=True):
        expected = matrices.diagonal(dim1=-2, dim2=-1), matrices.sum(-1), matrices.sum(-2)
        assert all(map(torch.allclose, each, expected))


def test_the_number_of_classes_is_that_of_the_largest_index_and_two_at_least():
    zeros = torch.zeros(4, dtype=torch.uint8)
    assert checked_outcomes({"preds": zeros}, zeros, None, None).classes == 2
    found = checked_outcomes({"a": zeros, "b": zeros + 4}, zeros.bool(), None, None)
    assert (found.classes, found.seen.tolist()) == (5, [0, 4])
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        checked_outcomes({"a": zeros}, zeros, 0, None)
