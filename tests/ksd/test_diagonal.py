"""When a run asks for the diagonal: where a Krylov space needs it, and not before."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin

N = 12


class Precond:
    """A diagonal that counts how often it is asked for."""

    calls = 0

    def __call__(self, x, idx=None):
        self.calls += 1
        return 1 + abs(x)


def of_residuals(precond):
    A = np.random.default_rng(1).standard_normal((30, N)) / N**0.5
    return ksdmin.as_problem(
        residuals=lambda x: np.tanh(A @ x) - 0.3,
        jac=lambda x: (1 - np.tanh(A @ x) ** 2)[:, None] * A,
        precond=precond,
    )


def of_matrix(precond):
    """Definite everywhere."""
    return ksdmin.as_problem(
        lambda x: np.sum(np.cosh(x - 1)),
        jac=lambda x: np.sinh(x - 1),
        hess=lambda x: np.diag(np.cosh(x - 1)),
        precond=precond,
    )


def of_products(precond):
    return ksdmin.as_problem(rosen, jac=rosen_der, hessp=rosen_hess_prod, precond=precond)


@pytest.mark.parametrize("make", [of_residuals, of_matrix], ids=["rows", "matrix"])
def test_steps_of_the_whole_curvature_need_none(make):
    precond = Precond()
    res = ksdmin.minimize(make(precond), np.full(N, 0.1), options={"maxiter": 4})
    assert res.nit > 2
    assert res.history["dim"].max() == 1
    assert precond.calls == 0


@pytest.mark.parametrize("make", [of_residuals, of_matrix], ids=["rows", "matrix"])
def test_a_krylov_space_has_one_wherever_the_run_began(make):
    precond = Precond()
    without = {"maxiter": 1, "without": ["newton", "gauss-newton"]}
    ksdmin.minimize(make(precond), np.full(N, 0.1), options=without)
    assert precond.calls > 0


@pytest.mark.parametrize("make", [of_residuals, of_matrix, of_products])
def test_the_start_costs_one_evaluation_and_one_value_that_checks_it(make):
    res = ksdmin.minimize(make(Precond()), np.full(N, 0.1), options={"maxiter": 1})
    assert res.history["nfev"][0] == 2
    assert res.history["njev"][0] == 1


@pytest.mark.parametrize("make", [of_residuals, of_matrix, of_products])
def test_one_that_is_given_is_checked_also_where_it_is_not_needed(make):
    with pytest.raises(ValueError, match="precond returned shape"):
        ksdmin.minimize(make(np.ones(N - 1)), np.full(N, 0.1))
    with pytest.raises(ValueError, match="precond must be positive: entry 2"):
        ksdmin.minimize(make(np.arange(2.0, 2.0 - N, -1.0) - 0.5), np.full(N, 0.1))
