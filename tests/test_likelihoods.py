"""Likelihoods as users write them: sums over the observations, without a gradient."""

from functools import partial

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

import ksdmin
from tests.likelihoods import Logistic, Poisson


def regressors(rng, n):
    rows = int(rng.integers(200, 2001))
    return np.c_[np.ones(rows), rng.standard_normal((rows, n - 1))]


def linear(kind, scale, draw, seed):
    rng = np.random.default_rng(seed)
    X = regressors(rng, n=int(rng.integers(3, 12)))
    model = kind(X, draw(rng, X @ rng.normal(0, scale, X.shape[1])))
    return model.fun, model.jac, np.zeros(X.shape[1])


poisson = partial(linear, Poisson, 0.2, lambda rng, z: rng.poisson(np.exp(z)))
logistic = partial(linear, Logistic, 0.3, lambda rng, z: rng.random(len(z)) < expit(z))


def gaussian(seed):
    """The last parameter is the logarithm of the variance."""
    rng = np.random.default_rng(seed)
    X = regressors(rng, n=int(rng.integers(2, 11)))
    y = X @ rng.standard_normal(X.shape[1]) + 2 * rng.standard_normal(len(X))

    def fun(t):
        return float(((y - X @ t[:-1]) ** 2 / np.exp(t[-1]) + t[-1] + np.log(2 * np.pi)).sum() / 2)

    def jac(t):
        r, w = y - X @ t[:-1], np.exp(-t[-1])
        return np.r_[-w * (X.T @ r), (len(X) - w * (r @ r)) / 2]

    return fun, jac, np.zeros(X.shape[1] + 1)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [poisson, logistic, gaussian])
@pytest.mark.parametrize("jac", [None, "2-point"])
def test_a_right_answer_is_no_failure(kind, seed, jac):
    fun, gradient, x0 = kind(seed)
    res = ksdmin.minimize(fun, x0, jac=jac)
    assert res.success, res.message
    assert np.abs(gradient(res.x)).max() <= 1.5e-5  # gtol, and the error of differences


def test_as_a_method_of_scipy():
    fun, _, x0 = poisson(0)
    assert optimize.minimize(fun, x0, method=ksdmin.ksd).success


def test_without_the_rule_right_answers_are_failures():
    runs = [
        ksdmin.minimize(fun, x0, options={"without": ["finer_arithmetic"]})
        for fun, _, x0 in map(poisson, range(4, 10))
    ]
    assert ksdmin.Status.PRECISION_LOSS in [res.status for res in runs]


def test_differences_stay_coarse_where_that_is_enough():
    both = [
        ksdmin.minimize(lambda x: (x - 1) @ (x - 1), np.zeros(4), options={"without": rules})
        for rules in ([], ["finer_arithmetic"])
    ]
    assert both[0].nfev == both[1].nfev


def test_the_message_says_how_well_the_gradient_is_known():
    fun, gradient, x0 = poisson(0)
    res = ksdmin.minimize(fun, x0, options={"gtol": 1e-10})
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert res.message.startswith("Desired error not necessarily achieved due to precision loss.")
    assert "with an error of about" in res.message
    assert "gtol is 1e-10: pass jac" in res.message
    known_to = float(res.message.split("with an error of about ")[1].split(",")[0])
    error = np.abs(res.jac - gradient(res.x)).max()
    assert error / 30 <= known_to <= 1e3 * error


def test_a_user_who_passes_jac_reads_nothing_of_differences():
    fun, gradient, x0 = poisson(0)
    res = ksdmin.minimize(fun, x0, jac=gradient, options={"gtol": 1e-16})
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert "differences" not in res.message
