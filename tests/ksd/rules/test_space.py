"""Forcing: how well the Newton step is solved for, and when the Krylov space is large enough."""

import numpy as np

import ksdmin
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import IDENTITY
from ksdmin._ksd.rules.space import Forcing
from ksdmin._problem.arrays import Space

# The space


def test_the_space_grows_until_the_newton_step_has_the_residual_asked_for():
    """And no further."""
    rng = np.random.default_rng(0)
    E, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    H, g = E * np.geomspace(1, 100, 30) @ E.T, rng.standard_normal(30)

    def residual(V):
        c = np.linalg.solve(V @ H @ V.T, -V @ g)
        return np.linalg.norm(g + H @ V.T @ c) / np.linalg.norm(g)

    for forcing in (0.5, 0.1, 1e-3):
        enough = Forcing(forcing).satisfied
        basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [], 30, enough)
        assert 2 < basis.dim < 30
        assert residual(basis.V) <= forcing
        assert residual(basis.V[:-1]) > forcing


def test_singular_curvature_is_not_enough():
    """Where the Newton step does not exist the space grows on."""
    H = np.diag([0.0, 1.0, 2.0])
    g, enough = np.array([1.0, 0.0, 0.0]), Forcing(0.5).satisfied
    basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [np.ones(3)], 3, enough)
    assert basis.dim == 2


# Runs


def test_a_right_model_is_solved_well():
    """A quadratic: the model is exact, and the second step may be as good as the first asks for."""
    A = np.diag(np.geomspace(1, 1e4, 40))
    res = ksdmin.minimize(
        lambda x: x @ A @ x / 2 - x.sum(),
        np.zeros(40),
        jac=lambda x: A @ x - 1,
        hessp=lambda x, p: A @ p,
        options={"gtol": 1e-8, "pairs": 0, "without": ["width"]},
    )
    assert res.success
    assert res.nit <= 6
