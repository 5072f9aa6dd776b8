"""The test problems themselves: derivatives and best known values."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import issparse

from examples.benchmarks.comparison.classic_functions import PROBLEMS, SMALL

# From x0, descent leads to local minima of these that are not global
LOCAL = {"freudenstein_roth", "trigonometric"}


def steps(x):
    return 3e-4 * np.where(x == 0, 1.0, np.abs(x))


def central_difference(fun, x, p):
    """Fourth-order approximation of the derivative of ``fun`` along p."""
    return (8 * (fun(x + p) - fun(x - p)) - (fun(x + 2 * p) - fun(x - 2 * p))) / 12


def assert_derivatives(problem, directions):
    """Compare along all directions, at x0 and nearby, in variables scaled by the steps."""
    noise = np.random.default_rng(0).uniform(-0.05, 0.05, problem.n)
    for x in (problem.x0, problem.x0 + noise * np.where(problem.x0 == 0, 1.0, problem.x0)):
        d = steps(x)
        f, g, h = problem.fun(x), problem.grad(x), problem.hess(x)
        fd_g = [central_difference(problem.fun, x, d * p) for p in directions]
        fd_h = [d * central_difference(problem.grad, x, d * p) for p in directions]
        for actual, expected, magnitude in (
            ([g @ (d * p) for p in directions], fd_g, abs(f)),
            ([d * (h @ (d * p)) for p in directions], fd_h, np.max(np.abs(d * g))),
        ):
            atol = 1e-6 * np.max(np.abs(expected)) + 1e-13 * magnitude
            np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_derivatives(name):
    problem = PROBLEMS[name]()
    some = np.random.default_rng(1).choice([-1.0, 1.0], (3, problem.n))
    assert_derivatives(problem, np.eye(problem.n) if name in SMALL else some)


@pytest.mark.parametrize("name", PROBLEMS)
def test_interface(name):
    problem = PROBLEMS[name]()
    x, n = problem.x0, problem.n
    assert problem.name == name
    assert isinstance(problem.fun(x), float)
    assert problem.grad(x).shape == (n,)
    h = problem.hess(x)
    assert issparse(h) == (n > 100)
    assert abs(h - h.T).max() <= 1e-12 * abs(h).max()
    for at in (x, x + 0.1, x):
        np.testing.assert_array_equal(problem.hessp(at, x), problem.hess(at) @ x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_fmin(name):
    problem = PROBLEMS[name]()
    fun, x0 = problem.fun, problem.x0
    if problem.n <= 50:
        kwargs = {"method": "trust-exact", "hess": problem.hess}
    else:
        kwargs = {"method": "trust-ncg", "hessp": problem.hessp}
    options = {"maxiter": 600, "max_trust_radius": 1e6, "gtol": 1e-6}
    reached = minimize(fun, x0, jac=problem.grad, options=options, **kwargs).fun
    assert problem.fmin <= reached + 1e-10 * abs(reached)
    if name not in LOCAL:
        assert reached - problem.fmin <= 1e-3 * (fun(x0) - problem.fmin)
