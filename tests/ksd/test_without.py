"""The option `without`: each rule can be switched off, and then is off for the whole run."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import _solver
from ksdmin._options import RULES
from tests.linear_models import squares
from tests.nets import fitted_to_a_wave, tanh_net


@pytest.fixture
def states_of(monkeypatch):
    """Runs, and returns the result and all states after the first."""

    def run(problem, **options):
        seen, own = [], _solver.METHODS["ksd"]

        def step(run, state):
            seen.append(own.step(run, state))
            return seen[-1]

        with monkeypatch.context() as patch:
            patch.setitem(_solver.METHODS, "ksd", own._replace(step=step))
            return ksdmin.minimize(**problem, options=options), seen

    return run


def valley(n=30):
    return {"fun": rosen, "x0": np.full(n, -1.2), "jac": rosen_der, "hessp": rosen_hess_prod}


def regression(size=200, n_samples=4000, n=60):
    """Least squares whose Hessian spans six decades, from few samples."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n)) * np.geomspace(1, 1e-3, n)
    y = X @ rng.standard_normal(n) + 0.1 * rng.standard_normal(n_samples)
    subsets = ksdmin.Subsets(n_samples, 1.0, size, size)
    return {**squares(X, y), "x0": np.zeros(n), "subsets": subsets, "rng": 0}


def net(**more):
    return {"fun": fitted_to_a_wave(tanh_net(4, 8, 1), **more), "rng": 0}


@pytest.mark.parametrize("rule", RULES)
def test_a_run_goes_on_without_any_of_them(rule):
    assert ksdmin.minimize(**valley(10), options={"without": [rule]}).success


def test_a_run_goes_on_without_all_of_them():
    assert ksdmin.minimize(**valley(10), options={"without": RULES}).success


def test_without_damping(states_of):
    res, states = states_of(net(), maxiter=4, without=["damping", "gauss-newton"])
    damped, _ = states_of(net(), maxiter=4, without=["gauss-newton"])
    assert {state.rules.damping.value for state in states} == {0.0}
    assert res.history["step_norm"][1] > 2 * damped.history["step_norm"][1]


def test_without_forcing_the_space_always_has_all_vectors(states_of):
    options = {"krylov_dim": 8, "memory": 0, "maxiter": 10, "pairs": 0}
    res, states = states_of(valley(), **options, without=["forcing"])
    default, _ = states_of(valley(), **options)
    assert set(res.history["dim"][1:]) == {8}
    assert min(default.history["dim"][1:]) < 8
    assert {state.rules.forcing.value for state in states} == {None}


def test_without_set_sizes_the_sets_stay(states_of):
    res, _ = states_of(regression(size=20), maxiter=12, without=["set_sizes"])
    default, _ = states_of(regression(size=20), maxiter=12)
    assert set(res.history["size_B"]) == set(res.history["size_C"]) == {20}
    assert max(default.history["size_B"]) > 20


def test_without_quasi_newton_steps_every_step_has_products(states_of):
    res, states = states_of(valley(), without=["quasi-newton"])
    default, _ = states_of(valley())
    assert (np.diff(res.history["nhev"]) > 0).all()
    assert not (np.diff(default.history["nhev"]) > 0).all()
    assert not any(state.rules.quasi_newton.may_follow for state in states)


def test_without_finer_arithmetic_the_rounding_stays(states_of):
    coarse, options = net(l2=0.1, precision="high"), {"maxiter": 30, "gtol": 1e-7}
    _, states = states_of(coarse, **options, without=["finer_arithmetic"])
    _, default = states_of(coarse, **options)
    noise = [{state.ledger.problem.traits.noise for state in run} for run in (states, default)]
    assert len(noise[0]) == 1 < len(noise[1])


def test_without_stall_a_run_that_gains_nothing_goes_on(states_of):
    """gtol=0 cannot be reached: the default says so."""
    options = {"gtol": 0.0, "maxiter": 60}
    bent = {
        "fun": lambda x: rosen(x) + np.exp(x).sum(),
        "x0": np.full(5, -1.2),
        "jac": lambda x: rosen_der(x) + np.exp(x),
        "hessp": lambda x, p: rosen_hess_prod(x, p) + np.exp(x) * p,
    }
    res, states = states_of(bent, **options, without=["stall"])
    default, _ = states_of(bent, **options)
    assert default.status == ksdmin.Status.PRECISION_LOSS
    assert (res.status, res.nit) == (ksdmin.Status.MAXITER, 60)
    assert not any(state.stalled for state in states)
