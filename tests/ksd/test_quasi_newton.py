"""The model that a run learns: it agrees with its pairs, and is used as long as that pays."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod

import ksdmin
from ksdmin._ksd.factor import Factor
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import IDENTITY, Preconditioner
from ksdmin._ksd.quasi_newton import Drift, QuasiNewton
from ksdmin._ksd.rules.quasi_newton import Forecast
from ksdmin._ksd.steps.quasi_newton import HiddenSlope
from ksdmin._problem.arrays import Space
from tests.noted import noted

rng = np.random.default_rng(0)
A = rng.standard_normal((8, 8))
H = A @ A.T + np.eye(8)
g = rng.standard_normal(8)


SPACE = Space(g)


def basis_of(H, g, K):
    return krylov_basis(SPACE, g, IDENTITY, lambda v: H @ v, [], K, lambda growth: False)


def solve(model, w, D=None):
    return model.preconditioner(SPACE, Preconditioner.diagonal(D)).solve(w)


@pytest.mark.parametrize("drift", [None, Drift()], ids=["as measured", "drifting"])
def test_pairs_older_than_a_matrix_serve_again_without_it(drift):
    steps = np.random.default_rng(2).standard_normal((6, 8))
    scale = np.diag(H) ** -0.5
    lower = np.linalg.cholesky(H * np.outer(scale, scale))
    matrix = replace(basis_of(H, g, 1), of_matrix=True, factor=Factor(lower, scale))
    model, alone = QuasiNewton(4, drift=drift), QuasiNewton(4, drift=drift)
    fresh = QuasiNewton(4, drift=drift).with_basis(SPACE, matrix)
    for i, s in enumerate(steps):
        y = H @ s + np.sin(s)
        model, alone = model.with_pair(SPACE, s, y), alone.with_pair(SPACE, s, y)
        if i >= 3:
            fresh = fresh.with_pair(SPACE, s, y)
            assert_allclose(solve(model, g), solve(fresh, g), rtol=1e-9)
        if i == 2:
            model = model.with_basis(SPACE, matrix)
            assert_allclose(solve(model, g), np.linalg.solve(H, g), rtol=1e-9)
    assert_allclose(solve(model.without_base(), g), solve(alone, g), rtol=1e-12)


def test_the_size_of_a_diagonal_does_not_matter_once_there_is_a_pair():
    model, D = QuasiNewton(3).with_pair(SPACE, g, H @ g), np.arange(1.0, 9.0)
    assert_allclose(solve(model, A[0], D), solve(model, A[0], 1e3 * D), rtol=1e-12)


@pytest.mark.parametrize("D", [None, np.arange(1.0, 9.0)], ids=["identity", "diagonal"])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_it_is_the_two_loop_recursion(D, count):
    """Nocedal and Wright, Algorithm 7.4."""
    pairs = [(s, H @ s) for s in np.random.default_rng(1).standard_normal((count, 8))]
    model = QuasiNewton(6)
    for s, y in pairs:
        model = model.with_pair(SPACE, s, y)
    pairs, q, shares = pairs[-6:], g.copy(), []
    for s, y in reversed(pairs):
        shares.append((s @ q) / (s @ y))
        q -= shares[-1] * y
    s, y = pairs[-1]
    first = np.ones(8) if D is None else D
    q *= (s @ y) / (y @ (y / first)) / first
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - (y @ q) / (s @ y)) * s
    assert_allclose(solve(model, g, D), q, rtol=1e-9)


def test_negative_curvature_is_left_out():
    s = np.ones(8)
    for y in (-s, 0 * s, np.full(8, np.inf)):
        assert len(QuasiNewton(5).with_pair(SPACE, s, y)) == 0
    indefinite = H - 5 * np.eye(8)
    model = QuasiNewton(10).with_basis(SPACE, basis_of(indefinite, g, 8))
    solved = np.array([solve(model, e) for e in np.eye(8)])
    assert np.linalg.eigvalsh(solved + solved.T).min() > 0


def test_a_slope_next_to_nothing_is_forgotten():
    """Its quotient overflows."""
    forecast = Forecast(5.0, 1e-310).followed_by(1.0, 1.0)
    assert forecast.slopes_left == np.inf
    assert forecast.followed_by(0.5, 0.5) == Forecast(0.5, 0.5)


@pytest.mark.parametrize(("noise", "found"), [(0.0, True), (10.0, False)])
def test_trials_that_rounding_spoils_do_not_contradict_a_slope(noise, found):
    check = HiddenSlope(1.0, 2.0, noise, np.inf)
    for t in (1.0, 0.3):
        check.note(t, 1.0 + t * t / 2)  # whose slope at zero is none
    assert check.found is found


def test_a_step_of_the_model_asks_for_no_other_diagonal():
    precond, asked = noted(lambda x: np.diag(rosen_hess(x)).clip(1.0))
    res = ksdmin.minimize(
        rosen, np.zeros(30), jac=rosen_der, hessp=rosen_hess_prod, precond=precond
    )
    with_products = int(np.count_nonzero(np.diff(res.history["nhev"])))
    assert res.success
    assert res.nit > with_products + 10
    assert len(asked) == 1 + with_products


def test_differences_of_huge_values():
    """Steps were rounded to 0 beside slopes of 1e268, and divided by."""
    with np.errstate(all="ignore"):
        res = ksdmin.minimize(lambda x: np.exp(100 * x[0]) - 100 * x[0], [6.2])
    assert res.status != ksdmin.Status.FAILED
    assert res.fun < 1e268
