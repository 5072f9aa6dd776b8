"""The test problems themselves: derivatives, starting values and best known values."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import issparse

from examples.benchmarks.comparison.classic_functions import LARGE, PROBLEMS, SMALL, all_problems

# f(x0), in closed form or to the digits commonly listed (in MINPACK's test results, for CUTE)
START = {
    "rosenbrock": 24.2,
    "freudenstein_roth": 400.5,
    "powell_badly_scaled": 1.0 + (np.exp(-1) - 0.0001) ** 2,
    "brown_badly_scaled": 999998000003.0,
    "beale": 14.203125,
    "jennrich_sampson": 4171.306162,
    "helical_valley": 2500.0,
    "bard": 41.68170,
    "gaussian": 3.888107e-6,
    "meyer": 1.693608e9,
    "gulf": 12.11071,
    "box3d": 1031.154,
    "powell_singular": 215.0,
    "wood": 19192.0,
    "kowalik_osborne": 5.313172e-3,
    "brown_dennis": 7926693.337,
    "osborne1": 0.8790263,
    "biggs_exp6": 0.7790701,
    "osborne2": 2.093420,
    "watson": 30.0,
    "extended_rosenbrock": 5 * 24.2,
    "extended_powell": 3 * 215.0,
    "penalty1": 1e-5 * 285 + 384.75**2,
    "variably_dimensioned": 3.85 + 38.5**2 + 38.5**4,
    "brown_almost_linear": 9 * 5.5**2 + (0.5**10 - 1) ** 2,
    "broyden_tridiagonal": 21.0,
    "broyden_banded": 360.0,
    "linear_full_rank": 50.0,
    "chebyquad": 3.861770e-2,
    "srosenbr": 500 * 24.2,
    "woods": 250 * 19192.0,
    "arwhead": 3 * 999.0,
    "bdqrtic": 226 * 96.0,
    "edensch": 17 * 999 + 16.0,
    "engval1": 59 * 999.0,
    "fletchcr": 100 * 99.0,
    "liarwhd": 585 * 1000.0,
    "nondia": 4 + 400 * 999.0,
    "nondquar": 106.0,
    "power": 5050.0**2,
    "tridia": 500499.0,
    "schmvett": -998 * (2 + np.sin((np.pi + 1) / 4)),
    "tointgss": 998 * (9 + 10 / 1002),
}

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
@pytest.mark.parametrize("name", SMALL)
def test_derivatives_small(name):
    problem = SMALL[name]()
    assert_derivatives(problem, np.eye(problem.n))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_derivatives_large(name):
    problem = LARGE[name]()
    assert_derivatives(problem, np.random.default_rng(1).choice([-1.0, 1.0], (3, problem.n)))


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


def test_all_problems():
    names = [problem.name for problem in all_problems("small") + all_problems("large")]
    assert names == [problem.name for problem in all_problems()] == list(PROBLEMS)
    assert len(names) == len(set(names)) == len(SMALL) + len(LARGE)


@pytest.mark.parametrize("name", START)
def test_start(name):
    problem = PROBLEMS[name]()
    assert problem.fun(problem.x0) == pytest.approx(START[name], rel=1e-6)


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
