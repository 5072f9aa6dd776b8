"""Every classic problem that Newton-CG or trust-krylov solves is solved; no success is false."""

import warnings

import numpy as np
import pytest
from scipy import optimize

import ksdmin
from examples.benchmarks.comparison.classic_functions import LARGE, SMALL

RIVALS = ("Newton-CG", "trust-krylov")


def gradient_norm(problem, x):
    return np.abs(problem.grad(x)).max()


def is_solved(problem, x):
    return gradient_norm(problem, x) <= 1e-5 * max(1.0, gradient_norm(problem, problem.x0))


def solved_by(problem, method):
    """Whether one of SciPy's methods solves it, whatever it says itself."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = {"jac": problem.grad, "hessp": problem.hessp, "method": method}
        return is_solved(problem, optimize.minimize(problem.fun, problem.x0, **given).x)


def check(problem, **given):
    with np.errstate(all="ignore"):
        res = ksdmin.minimize(problem.fun, problem.x0, jac=problem.grad, **given)
    assert not res.success or gradient_norm(problem, res.x) <= 1e-5
    assert res.fun == problem.fun(res.x) <= problem.fun(problem.x0)
    assert is_solved(problem, res.x) or not any(solved_by(problem, rival) for rival in RIVALS)


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_with_products(name):
    problem = (SMALL | LARGE)[name]()
    check(problem, hessp=problem.hessp)


@pytest.mark.parametrize("name", SMALL)
def test_without_products(name):
    check(SMALL[name]())
