"""Small functions without `jac`: no stall, as few values as BFGS, a first step that is cheap."""

import warnings

import numpy as np
import pytest
from scipy import optimize
from scipy.optimize import rosen

import ksdmin
from examples.benchmarks.comparison.classic_functions import PROBLEMS
from examples.benchmarks.least_squares_suite import more_garbow_hillstrom as classic

NOT_WORTH_IT = 1e-3  # of the value: a step that gains less


wood = PROBLEMS["wood"]().fun


def helical_valley(x):
    angle = np.arctan2(x[1], x[0]) / (2 * np.pi)
    return 100 * ((x[2] - 10 * angle) ** 2 + (np.hypot(x[0], x[1]) - 1) ** 2) + x[2] ** 2


def powell_singular(x):
    return (classic.powell_singular(4, x) ** 2).sum()


def broyden_tridiagonal(x):
    left, right = np.append(0, x[:-1]), np.append(x[1:], 0)
    return (((3 - 2 * x) * x - left - 2 * right + 1) ** 2).sum()


def shifted_wood(x):
    """Its values are rounded a thousand times more coarsely near the minimum."""
    return wood(x) + 500


def softplus_of_all_scales(x):
    scales = np.arange(1, len(x) + 1)
    return np.logaddexp(0, x * scales).sum() + 0.1 * x @ x


def chain(x):
    return ((x[1:] - x[:-1]) ** 2).sum() + 0.01 * (x**4).sum() - x[0]


SMALL = {
    wood: (4, -3, 1),
    helical_valley: (3, -1, 2),
    powell_singular: (4, -2, 3),
    broyden_tridiagonal: (10, -1, 1),
    shifted_wood: (4, -3, 1),
}


def starts(n, low, high, count):
    return np.random.default_rng(0).uniform(low, high, (count, n))


def values_of_bfgs(fun, x0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optimize.minimize(fun, x0, method="BFGS").nfev


def longest_stall(history):
    """The most iterations in a row that hardly move the value."""
    value = history["value"]
    stands = value[:-1] - value[1:] < NOT_WORTH_IT * np.abs(value[:-1])
    return max(map(len, "".join("x" if s else " " for s in stands).split()), default=0)


def gradient_norm(fun, x):
    h = np.finfo(float).eps ** (1 / 3) * np.maximum(1, np.abs(x))
    slopes = [(fun(x + step) - fun(x - step)) / (2 * step.max()) for step in np.diag(h)]
    return np.abs(slopes).max()


def test_no_stall_on_rosenbrock():
    ours = rivals = 0
    for x0 in starts(3, -2, 3, 20):
        res = ksdmin.minimize(rosen, x0)
        assert res.success
        assert longest_stall(res.history) <= 10, x0
        ours, rivals = ours + res.nfev, rivals + values_of_bfgs(rosen, x0)
    assert ours <= 1.3 * rivals


@pytest.mark.parametrize("high", [5.0, 1.0])
def test_no_stall_within_bounds_either(high):
    for x0 in starts(3, -2, 1, 15):
        res = ksdmin.minimize(rosen, x0, bounds=[(-5, high)] * 3)
        assert res.success
        value = res.history["value"]
        assert (value[:-1] - value[1:] < NOT_WORTH_IT * value[:-1]).sum() <= 10


@pytest.mark.parametrize("fun", SMALL, ids=lambda fun: fun.__name__)
def test_as_few_values_as_bfgs(fun):
    ours = rivals = 0
    for x0 in starts(*SMALL[fun], 8):
        res = ksdmin.minimize(fun, x0)
        assert res.success
        assert gradient_norm(fun, res.x) <= 2e-5  # gtol, and what differences leave unknown
        ours, rivals = ours + res.nfev, rivals + values_of_bfgs(fun, x0)
    assert ours <= 1.3 * rivals


def test_the_turn_to_finer_differences_is_seen_in_the_price_of_a_gradient():
    res = ksdmin.minimize(rosen, [1.0, 2.0, 3.0])
    assert res.nfev <= 250
    last = res.history[-1]
    assert last.nfev - res.history[-2].nfev >= 2 * 3


@pytest.mark.parametrize("scheme", ["2-point", "3-point"])
@pytest.mark.parametrize("n", [1, 2, 5, 20, 60])
@pytest.mark.parametrize("fun", [softplus_of_all_scales, chain, broyden_tridiagonal])
def test_the_first_step_costs_at_most_ten_gradients(fun, n, scheme):
    for x0 in starts(n, -1, 1, 3):
        res = ksdmin.minimize(fun, x0, jac=scheme, options={"maxiter": 1})
        gradient = res.history[0].nfev
        assert gradient == (n if scheme == "2-point" else 2 * n) + 1
        assert res.history[1].nfev - gradient <= 10 * gradient
