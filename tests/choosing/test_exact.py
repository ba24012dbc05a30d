"""The exact posterior of balanced accuracy, by SciPy's Beta distribution and numerical integration."""

import math

import numpy as np
import pytest
import torch
from distributions import CASES, MATRICES, WEIGHT, A, betas, mean_cdf, mean_density
from scipy import optimize, stats
from scipy.special import roots_legendre

from imbtorch.statistics import balanced_accuracy_posterior

# --- exact posterior of balanced accuracy ---------------------------------------------------------------------------

LARGE = [
    pytest.param([[10**6, 5], [2, 10**4]], "uniform", id="both narrow"),
    pytest.param([[10**6, 5], [2, 10**4]], "jeffreys", id="both narrow-jeffreys"),
    pytest.param([[10**9, 5], [1, 1]], "uniform", id="one narrow"),
    pytest.param([[10**6, 0], [0, 10**5]], "uniform", id="many without errors"),
]


def integrated_cdf(matrix, prior, z):
    """CDF of the mean of two recalls by quadrature over the quantiles of the narrower one."""
    narrow, other = sorted(betas(matrix, WEIGHT[prior]), key=lambda each: each.std())
    kinks = narrow.cdf(2 * z - np.array([0, 1, *other.ppf([1e-9, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-4, 1 - 1e-9])]))
    places = np.unique(np.clip([*kinks, 0, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6, 1], 0, 1))
    nodes, weights = roots_legendre(100)
    low, high = places[:-1, None], places[1:, None]
    share = (nodes + 1) / 2
    u = low + (high - low) * share**2 * (3 - 2 * share)  # smooth at the ends of each piece
    steps = (high - low) * 3 * share * (1 - share) * weights
    return (other.cdf(2 * z - narrow.ppf(u)) * steps).sum()


@pytest.mark.parametrize(("matrix", "prior"), [*CASES, *LARGE])
def test_convolution_against_numerical_integration(matrix, prior):
    """To 1e-6; beside 0 and 1, where a density may be infinite, within the values one bin apart."""
    found = balanced_accuracy_posterior(torch.tensor(matrix), prior)
    first, second = betas(matrix, WEIGHT[prior])
    spacing = float(found.grid[-1] - found.grid[0]) / (len(found.grid) - 1)
    assert float(found.density.sum()) * spacing == pytest.approx(1)
    assert found.mean == pytest.approx((first.mean() + second.mean()) / 2, abs=1e-12)
    for q in (1e-5, 0.025, 0.5, 0.975, 1 - 1e-5):
        place = found.quantile(q)
        slack = spacing if min(place, 1 - place) < 2 * spacing else 0
        assert 1 - found.probability_above(place) == pytest.approx(q, abs=1e-4 if slack else 1e-9)
        assert integrated_cdf(matrix, prior, place - slack) - 1e-6 <= q
        assert q <= integrated_cdf(matrix, prior, place + slack) + 1e-6
    places = [found.quantile(q) for q in np.linspace(0, 1, 101).tolist()]
    assert places == sorted(places)
    assert 0 <= places[0] < places[-1] <= 1


@pytest.mark.parametrize("name", ["errors in both", "few positives", "no errors in one"])
def test_density_and_mode_of_the_convolution(name):
    density = mean_density(MATRICES[name], 1.0)
    found = balanced_accuracy_posterior(torch.tensor(MATRICES[name]))
    for place in range(9000, len(found.grid), 30_000):
        assert float(found.density[place]) == pytest.approx(density(float(found.grid[place])), rel=1e-2, abs=1e-3)
    best = optimize.minimize_scalar(lambda z: -density(z), bounds=(0, 1), method="bounded", options={"xatol": 1e-7})
    assert found.mode == pytest.approx(best.x, abs=2e-3)


def test_convolution_of_one_and_of_three_classes():
    one = balanced_accuracy_posterior(torch.tensor([[7, 3], [0, 0]]))
    assert one.mode == pytest.approx(0.7, abs=1e-5)
    for q in (0.025, 0.5, 0.975):
        assert one.quantile(q) == pytest.approx(stats.beta(8, 4).ppf(q), abs=1e-8)
    three = balanced_accuracy_posterior(torch.tensor([[7, 1, 2], [0, 5, 0], [9, 0, 0]]), "jeffreys")
    assert three.mean == pytest.approx((7.5 / 11 + 5.5 / 6 + 0.5 / 10) / 3)
    pooled = balanced_accuracy_posterior(torch.tensor([[7, 1, 2], [0, 5, 0], [9, 0, 0]]), "pooled")
    share = (0.7 + 1 + 0 + 0.5) / 4
    assert pooled.mean == pytest.approx(((7 + share) / 11 + (5 + share) / 6 + share / 10) / 3)


def test_convolution_where_the_density_is_infinite():
    """Fifty classes of three hits in three and one of none: the prior leaves a hundredth on the other side of each."""
    counts = torch.diag(torch.tensor([3] * 50 + [0]))
    counts[50, 0] = 3
    found = balanced_accuracy_posterior(counts, "pooled")
    share = 50.5 / 52
    rng = np.random.default_rng(0)
    simulated = sum(
        stats.beta(hits + share, 3 - hits + 1 - share).rvs(100_000, random_state=rng) / 51 for hits in [3] * 50 + [0]
    )
    assert [found.quantile(q) for q in (0.025, 0.5, 0.975)] == pytest.approx(
        np.quantile(simulated, [0.025, 0.5, 0.975]).tolist(), abs=4e-4
    )


@pytest.mark.parametrize(("matrix", "prior"), CASES)
def test_probability_above(matrix, prior):
    found = balanced_accuracy_posterior(torch.tensor(matrix), prior)
    cdf = mean_cdf(matrix, WEIGHT[prior])
    for x in (0.0, 0.1, 0.5, 0.77, 0.85, 0.999, 1.0):
        assert found.probability_above(x) == pytest.approx(1 - cdf(x), abs=5e-4)
    assert found.probability_above(-1) == 1
    assert found.probability_above(2) == 0
    for q in (0.03, 0.4, 0.98):
        assert found.probability_above(found.quantile(q)) == pytest.approx(1 - q)


# --- errors ---------------------------------------------------------------------------------------------------------

COUNTS = torch.tensor(A)


def test_exact_posterior_refuses():
    with pytest.raises(ValueError, match="prior must be one of"):
        balanced_accuracy_posterior(COUNTS, "flat")
    for counts in (torch.zeros(2, 2), torch.ones(3, 2, 2)):
        with pytest.raises(ValueError, match="counts must be one matrix"):
            balanced_accuracy_posterior(counts)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q must lie in"):
            balanced_accuracy_posterior(COUNTS).quantile(q)


# --- of metrics and reports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_default_dtype_rounds_no_distribution(dtype):
    counts = torch.tensor([[90_000, 10_000], [30, 70]])
    torch.set_default_dtype(dtype)
    try:
        found = balanced_accuracy_posterior(counts)
    finally:
        torch.set_default_dtype(torch.float32)
    grid = np.linspace(0, 1, 40_001)
    rare = stats.beta(71, 31).sf(1.6 - grid)  # of which common recall is ``grid``
    above = np.sum((rare[1:] + rare[:-1]) / 2 * np.diff(stats.beta(90_001, 10_001).cdf(grid)))
    assert found.probability_above(0.8) == pytest.approx(above, abs=1e-3)


def test_many_samples_take_no_time():
    found = balanced_accuracy_posterior(torch.tensor([[9 * 10**10, 10**10], [1, 9]]))
    assert found.probability_above(0.8) == pytest.approx(stats.beta(10, 2).sf(0.7), abs=1e-3)
