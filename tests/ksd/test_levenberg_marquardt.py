"""The steps of a fit: few unknowns and a dense Jacobian, through minimize."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import least_squares

import ksdmin
from examples.benchmarks.least_squares_suite import more_garbow_hillstrom as classic
from examples.benchmarks.least_squares_suite.fits import by_complex_step
from tests.decay import START, T, decay, slopes_of_decay
from tests.noted import noted

brown_dennis = partial(classic.brown_dennis, 20)
slopes_of_brown_dennis = by_complex_step(brown_dennis)


def fit(r, J, x0, bounds=None, **options):
    problem = ksdmin.as_problem(residuals=r, jac=J)
    return ksdmin.minimize(problem, x0, bounds=bounds, options=options)


@pytest.mark.parametrize("m", [100, 5000])  # the larger matrix is made triangular first
def test_an_ill_conditioned_polynomial_keeps_its_digits(m):
    t = np.linspace(0, 1, m)
    A = np.vander(t, 10)
    y = np.sin(3 * t) + 0.01 * np.cos(50 * t)
    res = fit(lambda x: A @ x - y, lambda x: A, np.zeros(10))
    expected = np.linalg.lstsq(A, y, rcond=None)[0]
    np.testing.assert_allclose(res.x, expected, atol=1e-8 * abs(expected).max())
    assert res.success


@pytest.mark.parametrize("power", [-12, 0, 9])
def test_units_of_variables_and_residuals_change_nothing(power):
    plain = fit(decay, slopes_of_decay, START)
    units, unit = np.array([2.0**20, 2.0**-30, 2.0**5]), 2.0**power
    scaled = fit(
        lambda z: unit * decay(z / units),
        lambda z: unit * slopes_of_decay(z / units) / units,
        START * units,
    )

    def of_steps(res):  # beside the check of jac at x0, which looks as far as x is large
        return res.nfev - res.history[0].nfev, res.njev, res.status

    assert of_steps(scaled) == of_steps(plain)
    np.testing.assert_allclose(scaled.x / units, plain.x, rtol=1e-9)
    assert plain.success
    assert plain.nfev <= 12


def test_large_residuals_are_fitted_with_second_derivatives_learned_on_the_way():
    """Gauss and Newton's model alone takes 250 evaluations: it contracts slowly."""
    res = fit(brown_dennis, slopes_of_brown_dennis, np.array([25.0, 5.0, -5.0, -1.0]))
    assert res.success
    assert res.fun == pytest.approx(85822.20162635 / 2, rel=1e-10)
    assert res.nfev < 40
    assert res.njev < 40


@pytest.mark.parametrize("x0", [[26.0, 7.0, -24.0, 0.0], [3.0, -3.0, 13.0, 2.0]])
def test_no_point_is_tried_twice(x0):
    """Neither a step that failed, nor one that its correction has not improved."""
    residuals, tried = noted(brown_dennis)
    assert fit(residuals, slopes_of_brown_dennis, x0).success
    assert len(set(map(tuple, tried))) == len(tried)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_to_where_residuals_are_not_finite_is_shortened(bad):
    r, asked = noted(lambda x: decay(x) if x[1] < 1.36 else np.full_like(T, bad))
    res = fit(r, slopes_of_decay, START)
    assert max(x[1] for x in asked) > 1.36
    np.testing.assert_allclose(res.x, fit(decay, slopes_of_decay, START).x, rtol=1e-6)
    assert res.success


def test_a_step_to_where_the_jacobian_is_not_finite_is_shortened():
    asked = []

    def J(x):
        asked.append(x)
        edge = x[0] > 1.5 and len(asked) < 4
        return np.full((25, 3), np.nan) if edge else slopes_of_decay(x)

    res = fit(decay, J, START)
    assert res.success
    assert any(x[0] > 1.5 for x in asked[:3])
    np.testing.assert_allclose(res.x, fit(decay, slopes_of_decay, START).x, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"gtol": 1e-6, "ftol": 0, "xtol": 0}, ksdmin.Status.CONVERGED),
        ({"gtol": 0, "ftol": 1e-8, "xtol": 0}, ksdmin.Status.FTOL),
        ({"gtol": 0, "ftol": 0, "xtol": 1e-6}, ksdmin.Status.XTOL),
    ],
)
def test_the_status_says_which_test_holds(options, status):
    res = fit(decay, slopes_of_decay, START, **options)
    assert res.status == status
    assert res.success
    assert {0: "gtol", 13: "ftol", 14: "xtol"}[status] in res.message


def test_a_small_gradient_far_from_the_minimum_is_no_success():
    """A cost of 1e-20 passes any absolute test of the gradient."""
    tiny = 1e-10
    r, J = (lambda x: tiny * decay(x)), (lambda x: tiny * slopes_of_decay(x))
    res = fit(r, J, START, maxiter=1)
    assert not res.success
    assert abs(res.jac).max() < 1e-15
    assert res.status == ksdmin.Status.MAXITER


def test_a_run_without_any_test_ends_by_rounding_and_says_so():
    res = fit(decay, slopes_of_decay, START, gtol=0, ftol=0, xtol=0)
    assert not res.success
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert res.nfev < 60
    np.testing.assert_allclose(res.x, fit(decay, slopes_of_decay, START).x, rtol=1e-7)


def test_a_wrong_jacobian_is_no_success():
    with pytest.warns(RuntimeWarning):
        res = fit(decay, lambda x: -slopes_of_decay(x), START)
    assert not res.success


def test_a_column_that_was_very_long_does_not_hide_it_as_it_is_now():
    t = np.linspace(0.0, 10.0, 40)

    def residuals(x):
        return x[0] * np.exp(x[1] * t) - 5 * np.exp(0.4 * t) - np.cos(9 * t)

    def slopes(x):
        e = np.exp(x[1] * t)
        return np.stack([e, x[0] * t * e], 1)

    res = fit(residuals, slopes, np.array([1.0, 5.0]))  # e^50 at first, and a is nearly 0 soon
    assert res.success
    np.testing.assert_allclose(res.x, [5.0, 0.4], rtol=0.02)


def test_residuals_that_overflow_along_a_hidden_direction():
    t = np.linspace(0.0, 10.0, 80)
    y = 2 * np.exp(-0.3 * t) + 3 * np.exp(-1.5 * t) + np.exp(-0.05 * t)
    y += 0.002 * np.random.default_rng(0).standard_normal(80)

    def residuals(p):
        with np.errstate(all="ignore"):
            return sum(p[i] * np.exp(-p[i + 1] * t) for i in (0, 2, 4)) - y

    res = ksdmin.least_squares(residuals, [5, 0.2, -4, 0.3, 1, 0.05])  # two rates become equal
    assert res.cost < 0.02


def test_zero_residuals_have_no_column_to_be_compared_with():
    res = fit(lambda x: x - 1.0, lambda x: np.eye(3), np.zeros(3))
    assert res.success
    assert res.fun < 1e-25


@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (6, 4)])
def test_columns_that_depend_on_each_other(shape):
    rng = np.random.default_rng(3)
    A = rng.standard_normal(shape)
    A[:, 3] = A[:, 0] - A[:, 1]
    b = rng.standard_normal(shape[0])
    res = fit(lambda x: A @ x - b, lambda x: A, np.ones(4))
    best = np.linalg.lstsq(A, b)[0]
    assert res.success
    assert res.fun == pytest.approx(np.sum((A @ best - b) ** 2) / 2, rel=1e-9, abs=1e-20)


@pytest.mark.parametrize("limit", [(-math.inf, 1.0), (1.5, math.inf), (1.2, 1.2)])
@pytest.mark.parametrize("jac", [slopes_of_decay, None, "3-point"])
def test_bounds(limit, jac):
    lower, upper = np.array([-np.inf, limit[0], 0.0]), np.array([np.inf, limit[1], 0.3])
    bounds, x0 = list(zip(lower, upper, strict=True)), np.clip(START, lower, upper)
    r, asked = noted(decay)
    res = fit(r, jac, x0, bounds)
    assert res.success
    assert all(((x >= lower) & (x <= upper)).all() for x in asked)
    apart = np.where(lower == upper, 1e-9, 0.0)
    tight = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    own = least_squares(
        decay, np.clip(x0, lower, upper), slopes_of_decay, (lower - apart, upper + apart), **tight
    )
    assert res.fun <= own.cost * (1 + 1e-6)
    assert len(asked) <= own.nfev + 2 or jac is not slopes_of_decay


def test_a_run_goes_on_bit_for_bit_where_it_was_saved(tmp_path):
    problem = ksdmin.as_problem(residuals=brown_dennis, jac=slopes_of_brown_dennis)
    x0, path = np.array([25.0, 5.0, -5.0, -1.0]), tmp_path / "run"
    whole = ksdmin.minimize(problem, x0)
    ksdmin.minimize(problem, x0, options={"maxiter": 7, "checkpoint": path})
    rest = ksdmin.resume(path, problem, options={"maxiter": 800})
    assert (rest.nit, rest.nfev, rest.njev) == (whole.nit, whole.nfev, whole.njev)
    np.testing.assert_array_equal(rest.x, whole.x)


def test_a_saved_run_goes_on_with_other_tolerances(tmp_path):
    problem, path = ksdmin.as_problem(residuals=decay, jac=slopes_of_decay), tmp_path / "run"
    loose = {"gtol": 0.1, "ftol": 0, "xtol": 0}
    first = ksdmin.minimize(problem, START, options={"checkpoint": path, **loose})
    rest = ksdmin.resume(path, problem, options={"gtol": 1e-6})
    assert first.success
    assert rest.success
    assert rest.nit > first.nit
    assert "gtol 1e-06" in rest.message
