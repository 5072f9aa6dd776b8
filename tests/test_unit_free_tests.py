"""Residuals end their runs by tests that no unit changes, in every door."""

import numpy as np
import pytest

import ksdmin
from ksdmin import Status
from tests.jax_precision import jax_in
from tests.nets import tanh_net

torch = pytest.importorskip("torch")
from torch.func import grad, vmap  # noqa: E402

POINTS = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]


def poisson(unit):
    """A physics-informed net for u'' = -pi^2 sin(pi x), whose residuals are in some unit."""
    net = tanh_net(1, 8, 8, 1).double()

    def equation(net, x):
        def u(point):
            return net(point[None])[0, 0]

        second = vmap(grad(lambda point: grad(u)(point)[0]))(x)[:, 0]
        return unit * (second + torch.pi**2 * torch.sin(torch.pi * x[:, 0]))

    def ends(net, x):
        return unit * net(x)[:, 0]

    blocks = [(equation, POINTS), (ends, POINTS[[0, -1]], 100.0)]
    return net, ksdmin.from_torch(net, residuals=blocks)


def error(net, problem, x):
    problem.load(x)
    exact = torch.sin(torch.pi * POINTS)
    return float((net(POINTS) - exact).detach().abs().max())


@pytest.fixture(scope="module")
def runs():
    found = {}
    for unit in (1e-4, 1.0):
        net, problem = poisson(unit)
        res = ksdmin.minimize(problem, rng=0)
        found[unit] = res, error(net, problem, res.x)
    return found


def test_a_physics_informed_net_goes_on_as_long_as_it_gains(runs):
    """An absolute gradient of 1e-5 would end it at a loss of 1e-9, with an error of 4e-8."""
    res, error = runs[1.0]
    assert (res.success, res.status) == (True, Status.XTOL)
    assert "of their terms" in res.message
    assert res.fun < 1e-12
    assert error < 1e-7
    values = res.history["value"]
    assert values[-1] >= 0.75 * values[-2]


def test_units_of_the_residuals_change_neither_run_nor_verdict(runs):
    unit = 1e-4
    (expected, error_of_it), (res, error) = runs[1.0], runs[unit]
    assert (res.success, res.status) == (expected.success, expected.status)
    few = min(len(expected.history), len(res.history)) // 2
    np.testing.assert_allclose(
        res.history["value"][:few] / unit**2, expected.history["value"][:few], rtol=1e-3
    )
    assert abs(res.nit - expected.nit) <= 0.2 * expected.nit
    assert error < 10 * error_of_it + 1e-9


def test_tolerances_of_the_users_have_their_documented_meaning():
    _, problem = poisson(1.0)
    res = ksdmin.minimize(problem, rng=0, options={"gtol": 1e-3})
    assert res.status == Status.CONVERGED
    assert "max |gradient|" in res.message
    assert float(res.jac.abs().max()) <= 1e-3
    res = ksdmin.minimize(problem, rng=0, options={"gtol": 0, "ftol": 0.5})
    assert res.status == Status.FTOL
    assert "The value fell by" in res.message


def fitted(noise, unit):
    """A net fitted to data that it cannot all meet."""
    net = tanh_net(1, 1, 1, seed=1).double()

    def residuals(net, x):
        return unit * (net(x) - torch.tanh(3 * x - 1) - noise * torch.cos(40 * x))

    return ksdmin.from_torch(net, residuals=[(residuals, POINTS)])


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_residuals_that_stay(unit):
    """The columns are orthogonal to them, or no more is to be gained."""
    problem = fitted(0.1, unit)
    res = ksdmin.minimize(problem, rng=0)
    assert res.success, res.message
    assert res.status in (Status.CONVERGED, Status.FTOL, Status.XTOL)
    J = problem.jacobian(res.x)
    R, r = J.rows.numpy(), J.residuals.numpy()
    cosines = np.abs(R.T @ r) / np.linalg.norm(R, axis=0) / np.linalg.norm(r)
    assert cosines.max() < 1e-6
    step = np.linalg.lstsq(R, -r, rcond=None)[0]
    assert (r @ r - np.sum((r + R @ step) ** 2)) / (r @ r) < 1e-10
    assert res.fun < 0.01 * unit**2


def test_what_is_not_converged_is_no_success():
    res = ksdmin.minimize(fitted(0.1, 1e-6), rng=0, options={"maxiter": 3})
    assert (res.success, res.status) == (False, Status.MAXITER)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_means_over_samples_of_residuals(unit):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    y = np.tanh(X @ np.arange(5) / 5) + 0.1 * rng.standard_normal(400)
    problem = ksdmin.as_problem(
        residuals=lambda w, idx: unit * (np.tanh(X[idx] @ w) - y[idx]),
        jac=lambda w, idx: unit * X[idx] / np.cosh(X[idx] @ w)[:, None] ** 2,
        subsets=400,
    )
    res = ksdmin.minimize(problem, np.zeros(5), rng=0)
    assert res.success, res.message
    g = problem.value_and_gradient(res.x)[1]
    first = problem.value_and_gradient(np.zeros(5))[1]
    assert np.abs(g).max() < 1e-6 * np.abs(first).max()


def test_blocks_of_jax():
    t = np.linspace(0, 3, 30)
    y = 2.5 * np.exp(-1.3 * t) + 0.01 * np.sin(20 * t)
    popt, _ = ksdmin.curve_fit(lambda t, a, b: a * np.exp(-b * t), t, y)
    with jax_in("float64") as jax:
        for unit in (1e-5, 1e5):

            def residuals(p, data, unit=unit):
                t, y = data
                return unit * (p["a"] * jax.numpy.exp(-p["b"] * t) - y)

            problem = ksdmin.from_jax(residuals=[(residuals, (t, y))], params={"a": 1.0, "b": 1.0})
            res = ksdmin.minimize(problem, rng=0)
            assert res.success, res.message
            np.testing.assert_allclose(res.x, popt, rtol=1e-5)
