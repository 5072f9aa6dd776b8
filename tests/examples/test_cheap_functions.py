"""The functions of the benchmark of seconds: their derivatives, and their twins in the gallery."""

import numpy as np
import pytest

from examples.benchmarks.cheap_functions import families
from examples.benchmarks.comparison import classic_functions

N = 24
TWINS = sorted(set(families.FAMILIES) & set(classic_functions.LARGE))


def point(problem):
    rng = np.random.default_rng(3)
    return problem.x0 + 0.1 * rng.standard_normal(len(problem.x0)), rng.standard_normal(
        len(problem.x0)
    )


@pytest.mark.parametrize("name", families.FAMILIES)
def test_gradients_and_products_are_derivatives(name):
    problem = families.make(name, N)
    x, p = point(problem)
    h = 1e-5
    slope = (problem.value(x + h * p) - problem.value(x - h * p)) / (2 * h)
    g = problem.gradient(x)
    scale = np.abs(g).max() * np.abs(p).sum()
    assert g @ p == pytest.approx(slope, rel=1e-5, abs=1e-7 * scale)
    change = (problem.gradient(x + h * p) - problem.gradient(x - h * p)) / (2 * h)
    product = problem.hessian(x) @ p
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-6 * np.abs(product).max())


@pytest.mark.parametrize("name", TWINS)
def test_the_gallery_has_the_same_function(name):
    problem, twin = families.make(name, N), classic_functions.PROBLEMS[name](n=N)
    np.testing.assert_array_equal(problem.x0, twin.x0)
    x, p = point(problem)
    assert problem.value(x) == pytest.approx(twin.fun(x), rel=1e-12)
    np.testing.assert_allclose(problem.gradient(x), twin.grad(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(problem.hessian(x) @ p, twin.hess(x) @ p, rtol=1e-9, atol=1e-8)
