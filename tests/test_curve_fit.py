"""ksdmin.curve_fit: SciPy's interface. (SciPy's own tests: tests/interop.)"""

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import OptimizeWarning

import ksdmin

T = np.linspace(0.0, 3.0, 25)
RNG = np.random.default_rng(1)
SIGMA = RNG.uniform(0.02, 0.2, 25)


def decay(t, a, b, c=0.0):
    return a * np.exp(-b * t) + c


Y = decay(T, 2.5, 1.3, 0.4) + SIGMA * RNG.standard_normal(25)


def derivatives(t, a, b, c):
    e = np.exp(-b * t)
    return np.stack([e, -a * t * e, np.ones_like(t)], 1)


def correlated():
    lag = np.abs(np.subtract.outer(T, T))
    return np.outer(SIGMA, SIGMA) * np.exp(-lag / 0.3)


@pytest.mark.parametrize("jac", [None, "3-point", derivatives])
@pytest.mark.parametrize("absolute_sigma", [False, True])
@pytest.mark.parametrize("sigma", [None, SIGMA, correlated()], ids=["", "each", "all"])
def test_the_same_fit_as_scipys(sigma, absolute_sigma, jac):
    given = {"sigma": sigma, "absolute_sigma": absolute_sigma, "jac": jac}
    popt, pcov = ksdmin.curve_fit(decay, T, Y, **given)
    tight = {"method": "trf", "ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    own, cov = scipy.optimize.curve_fit(decay, T, Y, **given, **tight)
    np.testing.assert_allclose(popt, own, rtol=1e-5)
    np.testing.assert_allclose(pcov, cov, rtol=1e-3)


def test_data_that_are_missing():
    t, y, sigma = T.copy(), Y.copy(), SIGMA.copy()
    t[3], y[7] = np.nan, np.nan
    kept = np.delete(np.arange(25), [3, 7])
    popt, pcov = ksdmin.curve_fit(decay, t, y, sigma=sigma, nan_policy="omit")
    own, cov = ksdmin.curve_fit(decay, T[kept], Y[kept], sigma=sigma[kept])
    np.testing.assert_array_equal(popt, own)
    np.testing.assert_array_equal(pcov, cov)
    for given in ({}, {"nan_policy": "raise"}):
        with pytest.raises(ValueError, match=r"infs or NaNs|nan"):
            ksdmin.curve_fit(decay, t, y, **given)
    with pytest.raises(ValueError, match="nan_policy"):
        ksdmin.curve_fit(decay, t, y, nan_policy="hide")


def test_more_output():
    popt, _, info, message, status = ksdmin.curve_fit(decay, T, Y, full_output=True)
    np.testing.assert_allclose(info["fvec"], decay(T, *popt) - Y)
    assert info["nfev"] > 0
    assert status in (1, 2, 3)
    assert "successfully" in message


def test_parameters_that_the_data_do_not_determine():
    with pytest.warns(OptimizeWarning, match="Covariance"):
        _, pcov = ksdmin.curve_fit(lambda t, a, b: (a + b) * t, T, Y)
    assert np.isinf(pcov).all()


def test_a_fit_that_does_not_converge_is_an_error_with_its_result():
    with pytest.raises(RuntimeError, match="Optimal parameters not found") as error:
        ksdmin.curve_fit(decay, T, Y, maxfev=2)
    assert error.value.ksdmin_result.nfev == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"f": lambda t, *p: t * p[0]}, "pass p0"),
        ({"sigma": np.ones(7)}, "incorrect shape"),
        ({"ydata": Y[:7]}, r"f\(xdata, ...\) has shape \(25,\), ydata \(7,\)"),
        ({"sigma": -np.eye(25)}, "positive definite"),
        ({"ydata": [], "xdata": []}, "empty"),
        ({"args": (1,)}, "lambda"),
        ({"sigma": np.where(np.arange(25) == 4, 0.0, 1.0)}, r"sigma\[4\] is 0"),
        ({"sigma": np.where(np.arange(25) == 4, np.nan, 1.0)}, "sigma contains NaNs"),
        ({"ydata": np.where(np.arange(25) == 4, np.nan, 1.0)}, r"ydata\[4\] is nan"),
        ({"xdata": np.where(np.arange(25) == 4, np.inf, 1.0)}, r"xdata\[4\] is inf"),
    ],
)
def test_wrong_arguments(given, said):
    with pytest.raises(ValueError, match=said):
        ksdmin.curve_fit(**{"f": decay, "xdata": T, "ydata": Y, **given})


def test_data_of_zeros():
    popt, pcov = ksdmin.curve_fit(lambda t, a: a * t, T, np.zeros(25))
    assert abs(popt[0]) < 1e-15
    assert pcov[0, 0] < 1e-30


def test_a_parameter_whose_bounds_are_equal_is_a_constant():
    for absolute_sigma in (False, True):
        given = {"sigma": SIGMA, "absolute_sigma": absolute_sigma}
        bounds = ([-9, 1.3, -9], [9, 1.3, 9])
        popt, pcov = ksdmin.curve_fit(decay, T, Y, [1, 1.3, 0], bounds=bounds, **given)
        alone, cov = ksdmin.curve_fit(lambda t, a, c: decay(t, a, 1.3, c), T, Y, **given)
        np.testing.assert_allclose(popt[[0, 2]], alone, rtol=1e-6)
        np.testing.assert_allclose(pcov[np.ix_([0, 2], [0, 2])], cov, rtol=1e-5)
        assert not pcov[1].any()
        assert not pcov[:, 1].any()


def test_forms_that_scipy_takes():
    popt, _ = ksdmin.curve_fit(decay, T, Y, [1.0, 1.0, 1.0])
    for given in ({"p0": [[1, 1, 1]]}, {"maxfev": 0}, {"bounds": None}):
        np.testing.assert_allclose(ksdmin.curve_fit(decay, T, Y, **given)[0], popt, rtol=1e-6)


@pytest.mark.parametrize("name", ["epsfcn", "factor", "diag", "col_deriv", "Dfun"])
def test_arguments_of_minpack_name_the_cure(name):
    t = np.linspace(0, 1, 9)
    with pytest.raises(TypeError, match=f"{name}= is an argument of MINPACK's"):
        ksdmin.curve_fit(lambda t, a: a * t, t, 2 * t, **{name: 1e-8})


def test_arguments_of_minpack_are_handed_on():
    t = np.linspace(0, 1, 9)
    popt, _ = ksdmin.curve_fit(lambda t, a: a * t, t, 2 * t + 1e-3 * t**2, method="lm", epsfcn=1e-8)
    assert abs(popt[0] - 2) < 0.01


def test_noise_like_that_of_an_integrator_is_named():
    def noisy(t, a, b):
        return a * np.exp(-b * t) + 1e-4 * np.sin(1e9 * (a + b) + np.arange(len(t)))

    t = np.linspace(0.0, 3.0, 25)
    with pytest.raises(RuntimeError, match="compute fun to more digits, if it integrates"):
        ksdmin.curve_fit(noisy, t, 2.5 * np.exp(-1.3 * t) + 0.01 * np.cos(9 * t))


@pytest.mark.parametrize("name", ["xdata", "ydata"])
def test_complex_data_are_refused(name):
    data = {"xdata": np.arange(3.0), "ydata": np.ones(3)}
    data[name] = data[name] + 1j
    with pytest.raises(ValueError, match=rf"^{name} is complex: .*{name}\.imag"):
        ksdmin.curve_fit(lambda x, a: a * x, **data)
