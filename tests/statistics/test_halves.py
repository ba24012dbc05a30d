"""Counts of random halves, part by part and on several processes."""

import threading

import pytest
import torch
from distributions import LEARNING, drawn, facts, seeded
from sklearn import metrics

from imbtorch import Margins, balanced_accuracy
from imbtorch.statistics import epochs, halves, select_epoch

# --- several processes ----------------------------------------------------------------------------------------------


def on_processes(world, work):
    """Run ``work(rank, sum_counts)`` on threads that sum as processes do, and return what each found."""
    barrier, shared, found, failed = threading.Barrier(world, timeout=60), [None] * world, [None] * world, []

    def start(rank):
        def sum_counts(counts):
            assert not counts.is_floating_point()
            shared[rank] = counts
            barrier.wait()
            total = torch.stack(shared).sum(0, dtype=counts.dtype)  # raises for shapes that differ
            barrier.wait()
            return total

        try:
            found[rank] = work(rank, sum_counts)
        except BaseException as error:  # handed to the test below
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=start, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


@pytest.mark.parametrize("world", [2, 3])
def test_processes_with_known_positions_find_what_one_finds(world):
    predictions, target = drawn(LEARNING, [61, 20])
    alone = select_epoch(predictions, target, balanced_accuracy, generator=seeded(3), samples=100)
    order = torch.randperm(len(target), generator=seeded())
    bounds = [0, 7, 40, 81] if world == 3 else [0, 50, 81]

    def work(rank, sum_counts):
        own = order[bounds[rank] : bounds[rank + 1]]
        return select_epoch(
            predictions[:, own].to(torch.uint8),
            target[own],
            balanced_accuracy,
            num_classes=2,
            generator=seeded(3),
            samples=100,
            positions=own,
            sum_counts=sum_counts,
        )

    for found in on_processes(world, work):
        assert facts(found) == facts(alone)
        assert found.interval.low == alone.interval.low


def test_processes_without_positions_agree_among_themselves_and_one_may_be_empty():
    predictions, target = drawn(LEARNING, [61, 20])
    bounds = [0, 50, 50, 81]

    def work(rank, sum_counts):
        own = slice(bounds[rank], bounds[rank + 1])
        arguments = {"num_classes": 2, "generator": seeded(rank), "samples": 100, "sum_counts": sum_counts}
        return select_epoch(predictions[:, own], target[own], balanced_accuracy, **arguments)

    first, *others = on_processes(3, work)
    assert [facts(other) for other in others] == [facts(first)] * 2
    alone = select_epoch(predictions, target, balanced_accuracy, generator=seeded(9))
    assert (first.epoch, first.value) == (alone.epoch, alone.value)
    assert first.corrected == pytest.approx(alone.corrected, abs=0.03)  # other coins


# --- many classes ---------------------------------------------------------------------------------------------------


def many(classes=12, number=30):
    recalls = [[0.3 + 0.02 * epoch] * classes for epoch in range(number)]
    return drawn(recalls, [8] * classes)


def test_margins_stand_for_matrices_where_those_are_too_many(monkeypatch):
    predictions, target = many()
    whole = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), samples=50)
    monkeypatch.setattr(epochs, "CELLS_IN_ALL", 1000)
    assert facts(select_epoch(predictions, target, balanced_accuracy, generator=seeded(), samples=50)) == facts(whole)
    read = []

    def recall_of_margins(counts):
        read.append(type(counts))
        return balanced_accuracy(counts)

    select_epoch(predictions, target, recall_of_margins, generator=seeded(), samples=50)
    assert read.count(Margins) > 2


def test_parts_of_the_repeats_and_epochs_change_nothing(monkeypatch):
    predictions, target = many()
    whole = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), samples=50, repeats=10)
    monkeypatch.setattr(halves, "SAMPLES_AT_ONCE", 500)
    monkeypatch.setattr(halves, "CELLS_AT_ONCE", 30 * 144 * 10)
    assert facts(whole) == facts(
        select_epoch(predictions, target, balanced_accuracy, generator=seeded(), samples=50, repeats=10)
    )
    monkeypatch.setattr(halves, "CELLS_AT_ONCE", 1)  # one repeat, one matrix at a time; other coins
    parts = select_epoch(predictions, target, balanced_accuracy, generator=seeded(), samples=50, repeats=10)
    assert (parts.epoch, parts.value, parts.repeats) == (whole.epoch, whole.value, 10)
    assert parts.corrected == pytest.approx(whole.corrected, abs=0.03)


def test_a_function_that_takes_margins_for_something_else_gets_matrices(monkeypatch):
    def first_row(counts):  # of Margins it would be the diagonal
        return counts[0].sum(-1) if isinstance(counts, Margins) else balanced_accuracy(counts)

    predictions, target = many()
    monkeypatch.setattr(epochs, "CELLS_IN_ALL", 1000)
    found = select_epoch(predictions, target, first_row, generator=seeded(), samples=50)
    assert len(found.compared) == 7
    assert found.value == pytest.approx(metrics.balanced_accuracy_score(target, predictions[found.epoch]))
