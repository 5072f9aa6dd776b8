"""Sums of losses: sets that grow until they are everything, and the optimum of the whole."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import ksdmin
from ksdmin._judge import next_forcing
from ksdmin._policies import Outcome

M, N = 8000, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)) * np.geomspace(1, 30, N)
Y = np.where(RNG.random(M) < expit(X @ RNG.standard_normal(N) / 10), 1.0, -1.0)
L2 = 1e-4


def fun(w, idx=slice(None)):
    return float(np.logaddexp(0, -Y[idx] * (X[idx] @ w)).mean() + L2 / 2 * w @ w)


def jac(w, idx=slice(None)):
    return -(Y[idx] * expit(-Y[idx] * (X[idx] @ w))) @ X[idx] / len(Y[idx]) + L2 * w


def hessp(w, p, idx=slice(None)):
    s = expit(X[idx] @ w)
    return (s * (1 - s) * (X[idx] @ p)) @ X[idx] / len(s) + L2 * p


def run(rng=0, subsets=M, **options):
    return ksdmin.minimize(
        fun, np.zeros(N), jac=jac, hessp=hessp, subsets=subsets, rng=rng, options=options
    )


@pytest.fixture(scope="module")
def optimum():
    """By Newton's method on the dense Hessian."""
    w = np.zeros(N)
    for _ in range(30):
        H = np.array([hessp(w, e) for e in np.eye(N)])
        w = w - np.linalg.solve(H, jac(w))
    assert np.abs(jac(w)).max() < 1e-13
    return fun(w)


@pytest.mark.parametrize("rng", range(5))
def test_converges_to_the_optimum_of_the_whole_set(optimum, rng):
    res = run(rng, gtol=1e-10)
    assert res.success
    assert np.abs(jac(res.x)).max() <= 1e-10
    assert res.fun == pytest.approx(optimum, abs=1e-13)


@pytest.mark.parametrize("rng", range(5))
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_a_partial_gradient_set_grows_until_it_is_everything(optimum, rng, share):
    """And stays the same in between, so that the values on it fall."""
    res = run(rng, ksdmin.Subsets(M, gradient=share), gtol=1e-9)
    history = res.history
    sizes = history["size_A"]
    assert res.success
    assert res.fun == pytest.approx(optimum, abs=1e-12)
    assert sizes[0] == round(share * M)
    assert sizes[-1] == M
    assert (np.diff(sizes) >= 0).all()
    same = np.diff(sizes) == 0
    assert (np.diff(history["value"])[same] <= 1e-14).all()


def test_fewer_passes_than_the_methods_of_scipy():
    passes = max(run(rng, gtol=1e-8).passes for rng in range(3))
    scipy = minimize(
        fun, np.zeros(N), jac=jac, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 0}
    )
    assert passes < scipy.nfev  # each of which is two


def test_papers_gradient_sets_are_drawn_anew():
    """PAPER knows no growth: a partial A changes from iteration to iteration."""
    options = ksdmin.PAPER | {"maxiter": 6}
    drawn = []

    def watched(w, idx):
        if not isinstance(idx, slice) and len(idx) == 300:
            drawn.append(tuple(idx))
        return fun(w, idx)

    subsets = ksdmin.Subsets(M, gradient=300)
    ksdmin.minimize(
        watched, np.zeros(N), jac=jac, hessp=hessp, subsets=subsets, rng=0, options=options
    )
    assert len(set(drawn)) >= 6


def test_a_right_model_is_solved_well():
    """A quadratic: the model is exact, and the second step may be as good as the first asks for."""
    A = np.diag(np.geomspace(1, 1e4, 40))
    res = ksdmin.minimize(
        lambda x: x @ A @ x / 2 - x.sum(),
        np.zeros(40),
        jac=lambda x: A @ x - 1,
        hessp=lambda x, p: A @ p,
        options={"gtol": 1e-8, "pairs": 0},
    )
    assert res.success
    assert res.nit <= 6


@pytest.mark.parametrize(
    ("forcing", "achieved", "expected"),
    [
        (0.5, 1.0, 0.5**1.618),  # the model was right: by degrees
        (0.2, 1.0, 1e-3),  # it has been for a while
        (0.5, 0.8, 0.5**1.618),
        (0.2, 0.8, 0.2),
        (0.01, 0.1, 0.5),  # it was not: at once
    ],
)
def test_a_newton_step_is_solved_better_by_degrees(forcing, achieved, expected):
    outcome = Outcome(promised=1.0, achieved=achieved, noise=0.0, modelled=1.0, discord=0.0)
    assert next_forcing(forcing, 1.0, outcome) == pytest.approx(expected, rel=1e-3)
