"""The benchmark of least squares: its problems, and what ksdmin makes of them."""

import numpy as np
import pytest
from scipy.optimize import leastsq

from examples.benchmarks.least_squares_suite import (
    more_garbow_hillstrom,
    nist,
    other_residuals,
    robust_and_bounded,
    runs,
    tables,
)
from examples.benchmarks.least_squares_suite.fits import by_complex_step


def all_fits():
    return [
        *nist.fits(),
        *more_garbow_hillstrom.fits(),
        *other_residuals.fits(0),
        *other_residuals.fits(1),
        *robust_and_bounded.robust(),
        *robust_and_bounded.bounded(),
    ]


def test_derivatives_and_starts():
    for fit in all_fits():
        with np.errstate(all="ignore"):
            J = fit.jacobian(fit.start)
            assert J.shape == (len(fit.residuals(fit.start)), len(fit.start))
            exact = by_complex_step(fit.residuals)(fit.start)
        np.testing.assert_allclose(J, exact, rtol=1e-9, atol=1e-12 * abs(exact).max())


def test_certified_values_have_the_certified_sum_of_squares():
    for name, known in nist.data().items():
        fit = nist.fit(name, 0)
        square = (fit.residuals(fit.certified) ** 2).sum()
        assert square == pytest.approx(known["rss"], rel=1e-6, abs=1e-20)


def test_minpack_takes_as_many_evaluations_as_its_own_driver_prints():
    nfev = njev = 0
    tol = float(np.sqrt(np.finfo(float).eps))
    for fit in more_garbow_hillstrom.fits():
        most = 100 * (len(fit.start) + 1)
        with np.errstate(all="ignore"):
            _, _, info, _, _ = leastsq(
                fit.residuals, fit.start, Dfun=fit.jacobian, full_output=True, ftol=tol,
                xtol=tol, gtol=0, maxfev=most,
            )  # fmt: skip
        nfev, njev = nfev + info["nfev"], njev + info["njev"]
    assert nfev == pytest.approx(2524, rel=0.02)
    assert njev == pytest.approx(2139, rel=0.02)


@pytest.fixture(scope="module")
def made():
    """ksdmin's runs, once each."""

    def of(name, monkeypatch):
        monkeypatch.setattr(runs, "REPEATS", 1)
        fits, with_jac, _ = tables.SETS[name]
        return [runs.run(fit, "ksdmin", with_jac) for fit in fits()]

    return of


def solved(made, digits=runs.SOLVED):
    return sum(run["digits"] >= digits for run in made)


def false(made):
    return [run["problem"] for run in made if run["success"] and run["digits"] < runs.SOLVED]


def test_nist_with_a_jacobian(made, monkeypatch):
    own = made("nist", monkeypatch)
    assert (solved(own), solved(own, runs.MORE_DIGITS), false(own)) == (54, 54, [])
    assert sum(run["nfev"] for run in own) < 1500  # lm: 3,638
    assert sum(run["njev"] for run in own) < 900  # lm: 3,202


def test_nist_without_a_jacobian(made, monkeypatch):
    own = made("nist-values", monkeypatch)
    assert (solved(own), false(own)) == (54, [])
    assert solved(own, runs.MORE_DIGITS) >= 50
    assert sum(run["nfev"] for run in own) < 6000  # lm: 16,704


def test_more_garbow_hillstrom(made, monkeypatch):
    own = made("mgh", monkeypatch)
    assert (solved(own), false(own)) == (53, [])
    assert sum(run["nfev"] for run in own) <= 2524
    assert sum(run["njev"] for run in own) <= 2139
