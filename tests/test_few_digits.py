"""Functions without `jac` whose values have fewer digits than x0: differences of them vanish."""

import warnings

import numpy as np
import pytest

import ksdmin

X = np.random.default_rng(0).standard_normal((100, 3)).astype(np.float32)
Y = X @ np.array([1, 2, 3], dtype=np.float32)


def single(x):
    return np.mean((X @ np.asarray(x, dtype=np.float32) - Y) ** 2)


def hidden(x):
    """The same as a float of Python, whose type does not tell."""
    return float(single(x))


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_type_of_a_value_tells(start):
    with pytest.raises(TypeError, match=r"fun returns float32, .* fewer digits than x0"):
        ksdmin.minimize(single, np.full(3, start))


@pytest.mark.parametrize("x0", [np.zeros(3), [0.0, 0.0, 0.0]])
def test_a_function_of_jax_with_x0_of_numpy(x0):
    jnp = pytest.importorskip("jax.numpy")

    def fun(x):
        return jnp.mean((X @ x - Y) ** 2, dtype=jnp.float32)

    with pytest.raises(TypeError, match="Pass a jax array as x0: then jax differentiates fun"):
        ksdmin.minimize(fun, x0)
    assert ksdmin.minimize(fun, jnp.zeros(3)).fun < 1e-6


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_values_tell_where_the_type_does_not(start):
    with pytest.warns(RuntimeWarning, match="all differences of fun at x0 are zero, but over"):
        ksdmin.minimize(hidden, np.full(3, start))


def rounded(digits):
    """A parabola whose values have so many digits; its minimum is 10."""
    return lambda x: float(f"{10 + np.sum((x - 1) ** 2 * [1, 5, 10]):.{digits}g}")


@pytest.mark.parametrize("digits", [7, 8, 9, 11])
def test_longer_steps_where_differences_are_zero(digits):
    """Runs ended with success at a slope of up to 70, where shorter steps changed no value."""
    with warnings.catch_warnings(action="ignore"):
        res = ksdmin.minimize(rounded(digits), np.full(3, -1.0))
        assert ksdmin.minimize(hidden, np.ones(3)).fun < 1e-8
    assert res.fun == pytest.approx(10, rel=2e3 * 10.0**-digits)


@pytest.mark.parametrize("digits", [5, 6])
def test_no_success_where_longer_steps_show_a_slope(digits):
    with warnings.catch_warnings(action="ignore"):
        res = ksdmin.minimize(rounded(digits), np.full(3, -1.0))
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert "All differences of fun at x are zero, but over longer steps" in res.message


@pytest.mark.parametrize("fun", [single, hidden])
def test_x0_in_float32_has_longer_steps(fun):
    assert fun(ksdmin.minimize(fun, np.zeros(3, dtype=np.float32)).x) < 1e-5


def test_with_jac_values_may_be_rounded():
    res = ksdmin.minimize(single, np.zeros(3), jac=lambda x: 2 * X.T @ (X @ x - Y) / 100)
    assert res.success
    assert res.fun < 1e-8


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: 1.0 + x @ x,
        lambda x: float(x[0] ** 3 * 1e6),
        lambda x: float(np.floor(x[0])),
        lambda x: 3.0,
        lambda x: float(np.maximum(np.abs(x) - 1e-6, 0).sum()),
        lambda x: np.cosh(x).sum() - x @ x / 2,
    ],
)
def test_no_warning_where_the_gradient_vanishes(fun):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ksdmin.minimize(fun, np.zeros(2)).success


def test_a_kink_where_no_shorter_step_is_left():
    """In float32 a step was tried 3000 times, at a point that rounding does not let it leave."""
    res = ksdmin.minimize(
        lambda x: np.abs(x - 1).sum(),
        np.zeros(2, np.float32),
        jac=lambda x: np.where(x >= 1, 1, -1).astype(np.float32),
        hessp=lambda x, p: 0 * p,
    )
    assert res.fun == 0
    assert res.nfev < 500
