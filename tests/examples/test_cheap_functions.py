"""The functions of the benchmark of seconds: their derivatives."""

import numpy as np
import pytest

from examples.benchmarks.cheap_functions import families


@pytest.mark.parametrize("name", families.FAMILIES)
def test_gradients_and_products_are_derivatives(name):
    problem, rng, h = families.make(name, 24), np.random.default_rng(3), 1e-5
    x, p = rng.standard_normal((2, len(problem.x0)))
    x = problem.x0 + 0.1 * x
    slope = (problem.value(x + h * p) - problem.value(x - h * p)) / (2 * h)
    g = problem.gradient(x)
    scale = np.abs(g).max() * np.abs(p).sum()
    assert g @ p == pytest.approx(slope, rel=1e-5, abs=1e-7 * scale)
    change = (problem.gradient(x + h * p) - problem.gradient(x - h * p)) / (2 * h)
    product = problem.hessian(x) @ p
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-6 * np.abs(product).max())
