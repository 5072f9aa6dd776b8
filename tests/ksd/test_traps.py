"""Traps that a review found: each of these runs went wrong without a word."""

import math

import numpy as np
import pytest

import ksdmin
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._problem.arrays import Space
from tests.linear_models import squares

RNG = np.random.default_rng(0)


def test_a_step_to_infinity_is_refused():
    """One sample of many is infinite beyond 1: the sets must see it, and the run go on."""
    targets = np.r_[np.full(2000, 3.0), 1.0]

    def fun(x, idx):
        wall = np.where((targets[idx] == 1.0) & (x[0] > 1), np.inf, 0.0)
        return float(np.mean((x[0] - targets[idx]) ** 2 + wall))

    def jac(x, idx):
        return np.array([2 * np.mean(x[0] - targets[idx])])

    subsets = ksdmin.Subsets(len(targets), curvature=50, search=50)
    res = ksdmin.minimize(fun, np.zeros(1), jac=jac, subsets=subsets, rng=0)
    assert res.nit > 1
    assert 0.9 < res.x[0] <= 1
    assert math.isfinite(res.fun)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_the_search_on_samples_ends_at_a_bound(seed):
    """Its linear term once fell without end along a path that the bounds had stopped."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 4))
    y = X @ np.full(4, 3.0) + 3 * rng.standard_normal(2000)
    res = ksdmin.minimize(
        **squares(X, y),
        x0=np.full(4, 0.5),
        subsets=ksdmin.Subsets(2000, curvature=40, search=20),
        bounds=[(0, 1)] * 4,
        rng=seed,
    )
    assert res.success
    assert res.x.tolist() == [1, 1, 1, 1]
    assert res.nfev < 10


def test_damping_comes_back_when_sets_are_samples_again():
    """The user's own sets are everything in one iteration of five."""
    n, whole = 400, slice(None)
    X = RNG.standard_normal((n, 3))

    def sets(iteration, rng):
        if iteration == 2:
            return whole, whole, whole
        return whole, np.sort(rng.choice(n, 50, replace=False)), np.arange(50)

    res = ksdmin.minimize(
        lambda w, idx: float(np.mean(np.cosh(X[idx] @ w - 1))),
        np.ones(3),
        jac=lambda w, idx: np.sinh(X[idx] @ w - 1) @ X[idx] / len(X[idx]),
        subsets=ksdmin.Subsets(sets, full=whole),
        rng=0,
        options={"damping": 1e9, "maxiter": 4, "gtol": 0},
    )
    steps = res.history["step_norm"]
    assert steps[3] > 0.1  # on everything
    assert max(steps[1], steps[2], steps[4]) < 1e-5


def test_hf_without_damping_bears_a_diagonal_with_zeros():
    res = ksdmin.minimize(
        lambda x: float((x[0] - 1) ** 2 + 0 * x[1]),
        np.zeros(2),
        jac=lambda x: np.array([2 * (x[0] - 1), 0.0]),
        hessp=lambda x, p: np.array([2 * p[0], 0.0]),
        precond=np.array([2.0, 0.0]),
        method="hf",
        options={"damping": 0},
    )
    assert np.isfinite(res.x).all()
    assert res.x[0] == pytest.approx(1)


def test_a_model_of_no_pairs_learns_none():
    ones = np.ones(2)
    assert QuasiNewton(0).with_pair(Space(ones), ones, ones).pairs is None
