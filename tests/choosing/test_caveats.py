"""Sentences that say when the choice of an epoch means little, by hand."""

import math

import pytest
import torch
from rooms import caveats
from scipy import stats

from imbtorch import margins
from imbtorch.statistics import choice_caveats

# --- caveats --------------------------------------------------------------------------------------------------------


def test_ties_are_told_from_one_half_on():
    counts = torch.tensor([[[90, 10], [40, 60]], [[90, 10], [10, 90]], [[80, 20], [0, 100]], [[90, 10], [40, 60]]])
    assert choice_caveats(counts, torch.tensor([0.75, 0.9, 0.9, 0.75])) == [
        "2 of 4 epochs tie for the best value, 0.900: the measure does not choose between them"
    ]
    assert choice_caveats(counts, torch.tensor([0.75, 0.9, 0.9, 0.75]), higher_is_better=False)[0].startswith(
        "2 of 4 epochs tie for the best value, 0.750"
    )
    assert choice_caveats(counts, torch.tensor([0.75, 0.9, 0.8, 0.75])) == []
    assert choice_caveats(counts, torch.tensor([0.75, 0.9, math.nan, 0.75])) == []
    assert choice_caveats(counts, torch.zeros(4)) == [
        "all 4 epochs tie at the value 0.000: the measure does not choose between them"
    ]
    assert choice_caveats(counts, torch.tensor([1.0, math.inf, math.inf, 2.0]))[0].startswith(
        "2 of 4 epochs tie for the best value, inf"
    )
    assert choice_caveats(counts[:1], torch.zeros(1)) == []


def test_classes_that_were_never_predicted_are_named():
    counts = torch.zeros(3, 6, 6).long()
    counts[:, :, 0] = 100  # everything is taken for class 0
    counts[:, 5] = 0  # and class 5 does not come
    told = choice_caveats(counts, torch.tensor([0.1, 0.2, 0.3]), list("abcdef"))
    assert told == ["classes 'b', 'c', 'd' and 1 more were never predicted in any of 3 epochs"]
    counts[0, 1, 1], counts[1, 2, 2], counts[2, 3, 0] = 60, 70, 30
    counts[0, 0, 3] = 1  # once, and wrongly
    told = choice_caveats(margins(counts), torch.tensor([0.1, 0.2, 0.3]))
    assert told == ["class 4 was never predicted in any of 3 epochs"]
    told = choice_caveats(counts[:1], torch.tensor([0.1]))
    assert told == ["classes 2, 4 were never predicted"]


def test_six_samples_are_the_fewest_that_an_exact_test_can_tell():
    six, five = (stats.binomtest(number, number, 0.5).pvalue for number in (6, 5))
    assert six < 0.05 < five
    assert caveats.DISCORDANT == 6


@pytest.mark.parametrize(
    ("hits", "samples", "expected"),
    [
        (
            (2, 4, 3),
            8,
            "Class 1 (8 validation samples): its hits differ by at most 2 between epochs, and fewer than 6 may be "
            "chance",
        ),
        ((1, 7, 3), 8, None),
        (
            (0, 5, 3),
            60,
            "Class 1 (60 validation samples): its hits differ by at most 5 between epochs, and fewer than 6 may be "
            "chance",
        ),
        ((0, 5, 3), 61, None),
        ((3, 3, 3), 8, "Class 1 (8 validation samples): all epochs have the same number of its hits"),
        ((0, 1, 0), 1, "Class 1 (only 1 validation sample): differences in its hits may be chance"),
        ((0, 5, 3), 5, "Class 1 (only 5 validation samples): differences in its hits may be chance"),
    ],
)
def test_differences_on_a_rare_class_are_held_against_the_least_that_can_be_told(hits, samples, expected):
    counts = torch.tensor([[[100, 1], [samples - hit, hit]] for hit in hits])
    told = choice_caveats(counts, torch.tensor([0.1, 0.2, 0.3]))
    assert told == ([] if expected is None else [f"{expected}; do not compare epochs by its recall"])


def test_rare_classes_are_named_the_rarest_first():
    counts = torch.tensor([[[9, 1, 0], [1, 6, 0], [2, 0, 98]], [[8, 2, 0], [1, 6, 0], [1, 0, 99]]])
    (told,) = choice_caveats(counts[[0, 1, 0]], torch.tensor([0.1, 0.2, 0.3]), ("x", "y", "z"))
    assert told.startswith("Class 'y' (7 validation samples): ")
    assert told.endswith("; do not compare epochs by its recall, nor by that of class 'x'")
    counts = torch.tensor([[[3, 4, 0, 0], [0, 6, 0, 0], [0, 0, 2, 0], [0, 0, 0, 99]]]).expand(2, -1, -1)
    (told,) = choice_caveats(counts, torch.tensor([0.1, 0.2]))
    assert told.startswith("Class 2 (only 2 validation samples): ")
    assert told.endswith("; do not compare epochs by its recall, nor by that of classes 1, 0")


def test_caveats_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"values \[M\]; got margins and values \[2, 2\] and \[3\]"):
        choice_caveats(torch.zeros(2, 2, 2), torch.zeros(3))
    with pytest.raises(ValueError, match="classes must hold 2 names, got 1"):
        choice_caveats(torch.zeros(2, 2, 2), torch.zeros(2), ["a"])
