"""Newton steps: directions from the whole matrix, in real runs."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess
from scipy.special import expit

import ksdmin
from ksdmin._ksd.steps import newton


def spd(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((2 * n, n))
    return A.T @ A / n


def logistic(samples=2000, n=100, l2=1e-4, **given):
    """Arguments of minimize for a logistic regression."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((samples, n)) * np.geomspace(1, 0.1, n)
    y = rng.random(samples) < expit(X @ rng.standard_normal(n))

    def fun(w, idx):
        z = X[idx] @ w
        g = (expit(z) - y[idx]) @ X[idx] / len(z) + l2 * w
        return np.mean(np.logaddexp(0, z) - y[idx] * z) + l2 / 2 * (w @ w), g

    def hess(w, idx):
        p = expit(X[idx] @ w)
        return X[idx].T @ (X[idx] * (p * (1 - p) / len(p))[:, None]) + l2 * np.eye(n)

    arguments = {"fun": fun, "x0": np.zeros(n), "jac": True, "hess": hess, "rng": 0}
    return {**arguments, "subsets": samples, **given}


# The directions


@pytest.mark.parametrize("units", [1e3, 1e6])
def test_units_change_no_run(units):
    """A logistic regression took 2,000 iterations where features were twelve decades apart."""
    rng, s = np.random.default_rng(0), np.geomspace(1 / units, units, 10)
    X, y = rng.standard_normal((50, 10)), rng.choice([-1, 1], 50)

    def fun(w):
        z = -y * (X @ (s * w))
        return np.logaddexp(0, z).sum() + 0.05 * np.sum((s * w) ** 2)

    def jac(w):
        return s * (0.1 * s * w - X.T @ (y * expit(-y * (X @ (s * w)))))

    def hess(w):
        p = expit(X @ (s * w))
        return s[:, None] * (X.T @ (X * (p * (1 - p))[:, None]) + 0.1 * np.eye(10)) * s

    res = ksdmin.minimize(fun, np.zeros(10), jac=jac, hess=hess)
    assert res.success
    assert res.nit < 20
    assert np.abs(res.jac / s).max() < 1e-5


def test_a_step_to_an_infinite_gradient():
    """It ended in a math domain error."""

    def fun(x):
        return -np.inf if x[0] <= 0 else x[0] - np.log(x[0])

    def jac(x):
        return np.array([np.inf if x[0] <= 0 else 1 - 1 / x[0]])

    res = ksdmin.minimize(fun, [3.0], jac=jac, hess=lambda x: np.array([[1 / x[0] ** 2]]))
    assert res.status == ksdmin.Status.UNBOUNDED


def test_a_zero_matrix_gives_steepest_descent():
    found = newton.newton_directions(np.zeros((3, 3)), np.ones(3), 1e-10, damped=False)
    assert np.isfinite(found.rows).all()
    assert (found.rows @ np.ones(3) < 0).all()


# Runs


def test_a_logistic_regression_takes_few_iterations_and_matrices():
    res = ksdmin.minimize(**logistic(), options={"gtol": 1e-8})
    assert res.success
    assert res.nit <= 12
    assert res.nhev <= 3
    assert set(res.history["dim"][1:]) == {1}
    krylov = ksdmin.minimize(
        **logistic(), options={"gtol": 1e-9, "without": ["newton", "gauss-newton"]}
    )
    np.testing.assert_allclose(res.x, krylov.x, atol=1e-5)
    assert krylov.history["dim"].max() > 1


def test_of_many_samples_the_matrix_is_of_a_part():
    res = ksdmin.minimize(**logistic(8000, 400))
    assert res.success
    assert res.history["size_B"][0] < 8000
    assert set(res.history["size_A"]) == set(res.history["size_C"]) == {8000}
    assert res.nhev <= 4


def test_hess_beside_hessp_is_called_only_where_it_is_less_work():
    def never(x):
        raise AssertionError("called")

    n = 3000
    d = np.geomspace(1, 100, n)
    res = ksdmin.minimize(
        lambda x: x @ (d * x) / 2 - x.sum(),
        np.zeros(n),
        jac=lambda x: d * x - 1,
        hess=never,
        hessp=lambda x, p: d * p,
    )
    assert res.success


def test_a_small_memory_budget_leaves_it_out():
    given = logistic()
    res = ksdmin.minimize(**given, options={"memory_budget": 4 * 8 * 100 * 100 - 1})
    assert res.success
    assert res.history["dim"].max() > 1


def test_the_inverse_hessian_of_the_result_is_close_to_the_true_one():
    given = logistic(n=30)
    res = ksdmin.minimize(**given, options={"gtol": 1e-8})
    true = given["hess"](res.x, slice(None))
    assert res.hess_inv.shape == (30, 30)
    error = np.linalg.norm(res.hess_inv.todense() @ true - np.eye(30), 2)
    assert error < 0.5


@pytest.mark.parametrize(
    "hess",
    [
        lambda x: np.eye(len(x)),
        lambda x: 1e4 * np.eye(len(x)),
        lambda x: np.diag(np.diag(rosen_hess(x))),
        lambda x: rosen_hess(np.full(len(x), -1.0)),
    ],
)
def test_a_hess_that_predicts_badly_gives_way_to_what_the_steps_teach(hess):
    res = ksdmin.minimize(rosen, np.full(10, -1.0), jac=rosen_der, hess=hess)
    assert res.success
    assert res.nit < 250  # 1,500 to more than 2,000 without that
