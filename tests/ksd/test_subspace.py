"""Flooring, and the objective within the subspace. (Whitening: tests/reference.)"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import IDENTITY
from ksdmin._ksd.presets import absolute, floored
from ksdmin._ksd.steps.search import SubspaceObjective, Whitening, bfgs
from ksdmin._problem.arrays import Space
from ksdmin._problem.counting import as_counting
from ksdmin._problem.entry import as_problem
from ksdmin._problem.subsets import Subsets
from ksdmin._run.evaluator import Budget, Evaluator, Ledger


def rotated(spectrum):
    """A symmetric matrix with these eigenvalues; always the same eigenvectors."""
    E, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    return E * spectrum @ E.T


@pytest.mark.parametrize(
    ("rule", "spectrum", "expected"),
    [
        (floored, [10, 2, 1], [10, 2, 1]),
        (floored, [10, 0.5, -20], [10, 1, 1]),  # of the largest, not of the largest magnitude
        (floored, [1e-3, -1, -2], [1e-3, 1e-4, 1e-4]),
        (floored, [-1, -2, -10], [1, 1, 1]),  # unless none is positive
        (floored, [0, -5, -10], [1, 1, 1]),
        (absolute, [10, 2, 1], [10, 2, 1]),
        (absolute, [10, 0.5, -20], [10, 2, 20]),
        (absolute, [-1, -2, -10], [1, 2, 10]),
        (absolute, [0, 0.1, 10], [1, 1, 10]),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-100, 1e100])
def test_floor_of_a_tenth(rule, spectrum, expected, scale):
    H_hat = rule(scale * rotated(spectrum), 0.1)
    assert_allclose(H_hat / scale, rotated(expected), rtol=0, atol=1e-13)


# The objective


def fun(x, idx):
    return float(np.mean((X[idx] @ x - 1) ** 4) + x @ x)


def jac(x, idx):
    return 4 * X[idx].T @ (X[idx] @ x - 1) ** 3 / len(X[idx]) + 2 * x


def both(x, idx):
    return fun(x, idx), jac(x, idx)


X = np.random.default_rng(0).standard_normal((20, 6))
x = np.linspace(-1, 1, 6)
A, C = slice(None), np.arange(0, 20, 3)


class Setting:
    """A subspace of three dimensions at x, whitened, and the search objective on C there."""

    def __init__(self, tilted=False, C=C, jac=jac, fun=fun):
        self.space = Space(x)
        problem = as_problem(fun, jac=jac, subsets=20)
        ledger, budget = Ledger(as_counting(problem, self.space)), Budget(math.inf, math.inf)
        self.evaluator = Evaluator(
            ledger, self.space, Subsets(20), budget, lambda problem: problem.traits, lambda _, D: D
        )
        here = self.evaluator.evaluate(x, A, diagonal=True)
        scale = np.arange(1, 7)
        self.basis = krylov_basis(
            self.space, here.gradient, IDENTITY, lambda v: v * scale, [], 3, lambda _: False
        )
        self.whitening = Whitening(self.basis.H_bar)
        self.evaluator.counts.nfev = self.evaluator.counts.njev = 0
        self.phi = SubspaceObjective(
            self.evaluator, here, C, self.basis, self.whitening, tilted=tilted
        )

    @property
    def counts(self):
        return self.evaluator.counts.nfev, self.evaluator.counts.njev


@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.parametrize(("fun", "jac"), [(fun, jac), (both, True)], ids=["apart", "together"])
def test_values_and_gradients(tilted, fun, jac):
    setting = Setting(tilted, fun=fun, jac=jac)
    phi, V = setting.phi, setting.basis.V
    a = np.array([0.3, -0.2, 0.1])
    point = phi.at(a)
    d = V.T @ setting.whitening.coefficients(a)
    tilt = (both(x, A)[1] - both(x, C)[1]) @ d if tilted else 0.0
    assert_allclose(point.x, x + d, rtol=1e-14)
    assert_allclose(V.T @ point.c, d, rtol=1e-14)
    assert point.value == pytest.approx(both(x + d, C)[0] + tilt, rel=1e-12)
    h = 1e-5
    slopes = [(phi.at(a + e).value - phi.at(a - e).value) / (2 * h) for e in h * np.eye(3)]
    assert_allclose(point.gradient, slopes, rtol=1e-7)


def saturated(x, idx):
    return float(np.mean(np.tanh(X[idx] @ x - 1) ** 2))


def slope_of_saturated(x, idx):
    t = np.tanh(X[idx] @ x - 1)
    return 2 * X[idx].T @ (t * (1 - t**2)) / len(X[idx])


@pytest.mark.parametrize("C", [np.arange(1), np.arange(2, 4), np.arange(10)], ids=len)
def test_a_search_that_follows_its_linear_term_to_infinity_ends(C):
    setting = Setting(tilted=True, C=C, jac=slope_of_saturated, fun=saturated)
    phi, start = setting.phi, setting.phi.start()
    before = setting.counts[0]
    found, _ = bfgs(phi.at, start, maxiter=100, noise=0.0, spent=lambda: phi.astray)
    assert phi.astray  # or it would take more than a thousand evaluations
    assert setting.counts[0] <= before + 12
    assert found.value < start.value < found.loss  # so that the step will be refused


def test_a_long_way_on_which_the_loss_falls_is_not_astray():
    setting = Setting(
        tilted=True, fun=lambda x, idx: -float(np.sum(x)), jac=lambda x, idx: -1 + 0 * x
    )
    far = setting.phi.at(-1e3 * setting.phi.start().gradient)
    assert math.isfinite(far.value)
    assert not setting.phi.astray
