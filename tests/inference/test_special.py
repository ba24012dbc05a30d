"""Distribution functions against SciPy."""

import numpy as np
import pytest
import torch
from scipy import stats

from imbtorch.inference import special

# --- bootstrap ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.2, 0.9, 0.95, 0.998])
def test_student_quantiles_are_those_of_scipy(level):
    freedom = np.array([[1, 1.5, 2, 7.3, 19], [400, 999.5, 1000.5, 20_000, 1e7]])
    found = special.student_quantile(level, torch.from_numpy(freedom))
    assert found.numpy() == pytest.approx(stats.t(freedom).ppf((1 + level) / 2), rel=1e-8)
    assert special.normal_quantile(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-12)


@pytest.mark.parametrize("pair", [(0.001, 99), (0.02, 3.1), (0.5, 0.5), (8, 2.5), (9e4, 1e4), (2e6, 0.01), (500, 3e8)])
def test_beta_distributions_are_those_of_scipy(pair):
    known = stats.beta(*pair)
    x = np.concatenate((np.linspace(0, 1, 1001), np.clip(known.mean() + known.std() * np.linspace(-9, 9, 99), 0, 1)))
    found = special.beta_cdf(torch.from_numpy(x), *pair).numpy()
    np.testing.assert_allclose(found, known.cdf(x), atol=1e-11)
