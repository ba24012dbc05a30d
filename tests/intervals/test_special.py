"""Distribution functions that `draws.py` uses, against quadrature of densities and the standard library."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from rooms import draws
from scipy import integrate, special


def integrated(x, a, b):
    """Integrate the density, without its constant, on both sides of x; for large concentrations."""
    mean, rest = a / (a + b), b / (a + b)
    reach = 14 * math.sqrt(mean * rest / (a + b + 1))
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def part(start, stop):
        off = start - mean + (stop - start) / 2 * (1 + nodes)
        return (stop - start) / 2 * weights @ np.exp((a - 1) * np.log1p(off / mean) + (b - 1) * np.log1p(-off / rest))

    below, above = part(max(0.0, mean - reach), x), part(x, min(1.0, mean + reach))
    return below / (below + above)


@pytest.mark.default_cases("pair0", "pair5")
@pytest.mark.parametrize("pair", [(900.5, 2000.3), (9e4, 1e4), (5e5, 5e5), (1e6 + 0.5, 24e6), (3e6, 7e6), (1e8, 3e6)])
def test_beta_distributions_of_megapixels_are_integrals_of_their_density(pair):
    """SciPy before 1.12 is off by up to .015 in the last three."""
    a, b = pair
    mean = a / (a + b)
    places = mean + math.sqrt(mean * (1 - mean) / (a + b + 1)) * np.linspace(-7, 7, 57)
    found = special.betainc(a, b, places)
    np.testing.assert_allclose(found, [integrated(x, a, b) for x in places], rtol=0, atol=1e-8)


@pytest.mark.parametrize("level", [0.2, 0.9, 0.95, 0.998])
def test_quantiles_cut_off_what_the_density_holds(level):
    assert draws.normal_quantile(level) == pytest.approx(NormalDist().inv_cdf((1 + level) / 2), rel=1e-12)
    freedom = torch.tensor([[1, 1.5, 2, 7.3, 19], [400, 999.5, 1000.5, 20_000, 1e7]])
    found = draws.student_quantile(level, freedom)
    assert found.shape == freedom.shape
    assert found[0, 0].item() == pytest.approx(math.tan(math.pi * level / 2), rel=1e-8)  # Cauchy
    assert found[0, 2].item() == pytest.approx(level * math.sqrt(2 / (1 - level**2)), rel=1e-8)
    for n, quantile in zip(freedom.double().flatten().tolist(), found.flatten().tolist(), strict=True):
        scale = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(math.pi * n)
        inside, _ = integrate.quad(lambda t, n=n: math.exp(-(n + 1) / 2 * math.log1p(t * t / n)), 0, quantile)
        assert 2 * scale * inside == pytest.approx(level, abs=2e-9)
