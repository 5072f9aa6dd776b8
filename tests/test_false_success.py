"""What is not converged is not called success: fits that looked as if they were."""

import numpy as np
import pytest

import ksdmin


@pytest.mark.parametrize("centre", [1e7, 1e8, 1e9, 3e9])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_lines_far_from_the_origin_without_a_jacobian(centre, noise):
    rng = np.random.default_rng(0)
    t = centre + np.linspace(0, 10, 30)
    y = 3 + 2 * (t - centre) + noise * rng.normal(size=30)
    slope = np.polyfit(t - centre, y, 1)[0]
    res = ksdmin.least_squares(lambda p: p[0] + p[1] * t - y, [0.0, 0.0])
    assert res.success
    np.testing.assert_allclose(res.x[1], slope, rtol=1e-4)


@pytest.mark.parametrize("start", [[0.0, 0.0], [1.0, 1.0], [2.0, -1.0], [0.3, 0.4]])
def test_columns_that_are_one_but_for_the_error_of_differences(start):
    """Nothing is known of the slope along their difference: longer steps show it."""
    t = 1e12 + np.arange(20.0)
    y = 3 + 0.5 * np.arange(20.0) + 0.1 * np.random.default_rng(0).standard_normal(20)
    res = ksdmin.least_squares(lambda p: p[0] + p[1] * t - y, start)
    assert res.success
    np.testing.assert_allclose(res.x[1], np.polyfit(t - 1e12, y, 1)[0], rtol=1e-2)


def test_more_unknowns_than_directions_that_matter():
    """Far along the others rounding lowers the value a little: that is no slope."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 8))
    y = rng.standard_normal(30)
    res = ksdmin.least_squares(lambda p: A @ p + 0.1 * np.sin(A @ p) - y, np.zeros(8))
    assert res.success
    assert abs(res.x).max() < 10


def test_columns_that_are_one():
    """No step, however long, shows anything: the fit has converged."""
    res = ksdmin.least_squares(lambda p: (p[0] + p[1]) * np.arange(1.0, 5.0) - 3, [0.0, 0.0])
    assert res.success
    assert abs(res.x.sum() - 1.0) < 1e-8
    assert res.nfev < 60


def test_columns_that_nearly_depend_on_each_other():
    """With a Jacobian: each column is orthogonal to the residuals long before the fit is."""
    t = 1e12 + np.linspace(0, 10, 30)
    y = 3 + 2 * (t - 1e12)
    columns = np.column_stack([np.ones(30), t])
    res = ksdmin.least_squares(lambda p: columns @ p - y, [0.0, 0.0], lambda p: columns)
    assert res.success
    np.testing.assert_allclose(res.x[1], 2.0, rtol=1e-4)


def test_a_condition_of_1e7_with_many_variables():
    rng = np.random.default_rng(0)
    n = 320
    U, V = (np.linalg.qr(rng.normal(size=(m, n)))[0] for m in (500, n))
    J = U * np.logspace(0, -7, n) @ V.T
    b = J @ rng.normal(size=n) + 1e-3 * rng.normal(size=500)
    solution = np.linalg.lstsq(J, b)[0]
    res = ksdmin.least_squares(lambda x: J @ x - b, np.zeros(n), lambda x: J)
    error = np.linalg.norm(res.x - solution) / np.linalg.norm(solution)
    assert not res.success or error < 1e-4


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: 1e8 + 1e-9 * (x - 3) ** 2 * np.ones(3),
        lambda x: 1e20 + x * np.linspace(0, 1, 20),
        lambda x: np.exp(-1e3 * (x - 5) ** 2) * np.ones(4) - 1,
    ],
    ids=["hidden", "far", "plateau"],
)
def test_differences_that_see_nothing(fun):
    res = ksdmin.least_squares(fun, [0.0])
    assert not res.success
    assert "diff_step" in res.message
    m = len(res.fun)
    with pytest.raises(RuntimeError, match="diff_step"):
        ksdmin.curve_fit(lambda t, a: fun(np.array([a])), np.arange(m), np.zeros(m), p0=[0.0])


def test_longer_differences_see_more():
    """Residuals that are rounded to three digits."""
    res = ksdmin.least_squares(lambda x: np.round(x[0] * np.ones(4), 3) - 2.0, [1.0])
    assert res.success
    np.testing.assert_allclose(res.x, 2.0, atol=1e-3)


def test_a_start_at_the_minimum_is_a_success():
    """There the residuals change by longer steps, but have no slope."""
    res = ksdmin.least_squares(lambda x: x**2 + 5, [0.0])
    assert res.success
    assert abs(res.x[0]) < 1e-6


@pytest.mark.parametrize("seed", [5, 38, 42, 49, 69])
def test_an_ill_conditioned_quadratic_without_a_gradient(seed):
    """The last space has a flat direction alone; differences err by the steepest one."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    H = Q * 10 ** rng.uniform(1, 7, n) @ Q.T
    centre = 3 * rng.standard_normal(n)
    x0 = 2 * rng.standard_normal(n)
    res = ksdmin.minimize(lambda x: 0.5 * (x - centre) @ H @ (x - centre), x0)
    assert res.success
    assert abs(H @ (res.x - centre)).max() < 2e-5
