"""Notices of long computations: one, on rank zero, with the time that the first parts promise."""

import logging
from itertools import count

import pytest
import torch
from rooms import announced, halves, waiting

import imbtorch
from imbtorch.statistics import bootstrap, posterior, select_epoch

CLUSTERS = torch.tensor([[[8, 1], [1, 3]], [[9, 2], [0, 4]], [[7, 0], [2, 2]]])


@pytest.fixture
def clock(monkeypatch):
    """Set the seconds that each look at the clock takes."""
    monkeypatch.setattr(waiting, "_announced", {})

    def ticks(seconds):
        times = count(step=seconds)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: next(times))

    return ticks


def test_a_long_computation_is_announced_once_with_its_time(clock, caplog):
    clock(2.0)  # between parts, so that ten parts of ten take twenty seconds
    assert list(announced([10] * 10, 100, "a census", "count faster")) == [10] * 10
    (record,) = caplog.records
    assert record.name == "imbtorch"
    assert record.levelno == logging.WARNING  # Python shows it where no handler is set up
    text = record.getMessage()
    seconds = int(text.split("about ")[1].split()[0])
    assert 18 <= seconds <= 42  # a look at the clock before the first part counts as well
    assert "a census" in text
    assert text.endswith("count faster")


def test_the_same_work_is_announced_again_only_where_it_takes_twice_as_long(clock, caplog):
    for seconds, expected in ((2.0, 1), (2.0, 1), (3.0, 1), (9.0, 2)):
        clock(seconds)
        list(announced([10] * 10, 100, "a census", "count faster"))
        assert len(caplog.records) == expected
    list(announced([10] * 10, 100, "a poll", "ask fewer"))
    assert len(caplog.records) == 3


def test_short_computations_are_silent(clock, caplog):
    clock(0.1)
    list(announced([10] * 10, 100, "a census", "count faster"))
    clock(100.0)
    list(announced([100], 100, "a census", "count faster"))  # nothing is left to wait for
    list(announced([], 0, "a census", "count faster"))
    assert not caplog.records


def test_other_processes_are_silent(clock, caplog, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    clock(100.0)
    list(announced([10] * 10, 100, "a census", "count faster"))
    assert not caplog.records


@pytest.mark.parametrize(
    "compute",
    [
        lambda: posterior(imbtorch.accuracy, CLUSTERS.sum(0), draws=50_000),
        lambda: bootstrap(imbtorch.accuracy, CLUSTERS.sum(0), draws=50_000),
        lambda: bootstrap(imbtorch.accuracy, CLUSTERS, draws=50_000, clusters=True),
    ],
    ids=["posterior", "bootstrap", "clusters"],
)
def test_intervals_announce_themselves(compute, clock, caplog):
    compute()
    assert not caplog.records
    clock(3.0)
    compute()
    assert caplog.records
    assert all("draws=" in record.getMessage() for record in caplog.records)


def test_a_choice_among_epochs_announces_itself(clock, caplog, monkeypatch):
    monkeypatch.setattr(halves, "CELLS_AT_ONCE", 100)
    target = torch.tensor([0, 1] * 20)
    preds = torch.stack([target.roll(shift) for shift in (0, 2, 3)])
    clock(3.0)
    select_epoch(preds, target, imbtorch.accuracy)
    assert [record.getMessage() for record in caplog.records if "repeats=" in record.getMessage()]
