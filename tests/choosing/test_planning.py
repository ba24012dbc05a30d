"""Numbers of samples that make an interval narrow, held against simulated validation sets."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from distributions import seeded
from scipy import stats

import imbtorch
from imbtorch import balanced_accuracy
from imbtorch.statistics import posterior, samples_needed

# --- planning -------------------------------------------------------------------------------------------------------


DRAWS = 400  # of a posterior: bounds are the same for planning and for the simulation, and need not be precise


def share_of_narrow(measure, rates, size, prevalence, width, number=400, seed=5):
    """Share of random test sets of this size, drawn by NumPy, whose interval is narrow enough."""
    joint = (np.array(rates) * np.array(prevalence)[:, None]).flatten()
    counts = np.random.default_rng(seed).multinomial(size, joint / joint.sum(), number).reshape(number, *rates.shape)
    found = posterior(measure, torch.from_numpy(counts), draws=DRAWS, generator=seeded(seed))
    return ((found.high - found.low) <= width).double().mean().item()


@pytest.mark.default_cases("balanced_accuracy-rates0-prevalence0-0.12-0.8")
@pytest.mark.parametrize(
    ("name", "rates", "prevalence", "width", "assurance"),
    [
        ("balanced_accuracy", [[0.9, 0.1], [0.2, 0.8]], [0.99, 0.01], 0.12, 0.8),
        ("imbalance_accuracy", [[0.9, 0.1], [0.2, 0.8]], [0.8, 0.2], 0.2, 0.9),
        ("geometric_mean", [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], [0.6, 0.3, 0.1], 0.15, 0.5),
    ],
)
def test_so_many_samples_make_the_interval_narrow_and_fewer_do_not(name, rates, prevalence, width, assurance):
    measure = getattr(imbtorch, name)
    needed = samples_needed(measure, torch.tensor(rates), torch.tensor(prevalence), width, assurance, draws=DRAWS)
    for times, low, high in ((1.0, assurance - 0.06, 1.0), (0.75, 0.0, assurance - 0.1)):
        size = round(times * needed / min(prevalence))
        assert low <= share_of_narrow(measure, np.array(rates), size, prevalence, width) <= high


def test_a_class_that_does_not_come_and_counts_in_place_of_rates():
    with_it = samples_needed(
        balanced_accuracy,
        torch.tensor([[9, 1, 0], [2, 8, 0], [0, 0, 0]]),
        torch.tensor([19, 1, 0]),
        0.2,
        test_sets=100,
        draws=DRAWS,
    )
    without = samples_needed(
        balanced_accuracy,
        torch.tensor([[0.9, 0.1], [0.2, 0.8]]),
        torch.tensor([0.95, 0.05]),
        0.2,
        test_sets=100,
        draws=DRAWS,
    )
    assert with_it == pytest.approx(without, abs=2)


def test_a_width_that_any_test_set_has_takes_samples_of_both_classes():
    """Two expected samples of each class: 1/8 of such test sets lack one; of two samples together half do."""
    rates, prevalence = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0.5, 0.5])
    assert samples_needed(balanced_accuracy, rates, prevalence, 1.0, draws=100) == 2
    assert samples_needed(balanced_accuracy, rates, prevalence, 1.0, assurance=0.3, draws=100) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0.0}, "width must be positive, got 0.0"),
        ({"assurance": 1.0}, r"assurance must lie in \(0, 1\), got 1.0"),
        ({"prevalence": torch.ones(3)}, r"got \[2, 2\] and \[3\]"),
        ({"prevalence": torch.tensor([1.0, -1.0])}, "prevalence must be finite and not negative"),
        ({"prevalence": torch.zeros(2)}, "prevalence must not all be 0"),
        (
            {"rates": torch.tensor([[1.0, 0.0], [0.0, 0.0]])},
            "rates has an empty row for a class of positive prev",
        ),
        ({"measure": lambda counts: torch.full(counts.shape[:-2], math.nan)}, "measure has no value"),
        ({"measure": lambda counts: torch.rand(counts.shape[:-2])}, "is not reached with 1073741824 samples"),
    ],
)
def test_planning_refuses_what_does_not_fit(change, message):
    arguments = {
        "measure": balanced_accuracy,
        "rates": torch.tensor([[0.9, 0.1], [0.2, 0.8]]),
        "prevalence": torch.tensor([0.95, 0.05]),
        "width": 0.1,
        "test_sets": 20,
        "draws": 100,
    }
    with pytest.raises(ValueError, match=message):
        samples_needed(**(arguments | change))


def test_priors_scale_the_other_classes():
    """The closed form for one rare class beside one that is known exactly: width 2 z sd / 2."""
    rates = torch.tensor([[1.0, 0.0], [0.3, 0.7]])
    needed = samples_needed(balanced_accuracy, rates, torch.tensor([0.999, 0.001]), 0.1, assurance=0.5, draws=DRAWS)
    z = stats.norm.ppf(0.975)
    expected = 0.3 * 0.7 * (z / 0.1) ** 2
    assert needed == pytest.approx(expected, rel=0.1)


def test_a_measure_of_several_values_has_no_width():
    rates, prevalence = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0.95, 0.05])
    with pytest.raises(ValueError, match=r"one value for each matrix, .* got \[2\]"):
        samples_needed(partial(imbtorch.recall, average="none"), rates, prevalence, 0.1)
