"""The quasi-Newton model of a regression follows a curvature that changes along the way."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import ksdmin
from ksdmin._ksd import start
from ksdmin._ksd.presets import DEFAULT, PRESETS
from ksdmin._ksd.quasi_newton import Drift, QuasiNewton
from ksdmin._ksd.start import first_model
from ksdmin._problem.arrays import Space
from tests.linear_models import logistic

rng = np.random.default_rng(0)
A = rng.standard_normal((8, 8))
H = A @ A.T + np.eye(8)
STEPS = rng.standard_normal((6, 8))
SPACE = Space(STEPS[0])


def learned(changes, capacity=10, drift=None):
    """The model after steps whose curvature is H, times one of the `changes` for each."""
    model = QuasiNewton(capacity, drift=drift)
    for s, change in zip(STEPS, changes, strict=False):
        model = model.with_pair(SPACE, s, change * H @ s)
    return model


def solve(model, w):
    return model.preconditioner(SPACE).solve(w)


def test_a_factor_is_that_of_the_curvature_along_its_pair():
    model = learned([1, 1, 0.5, 0.2, 0.1], drift=Drift())
    plain = QuasiNewton(10)
    for s, c, factor in zip(STEPS, [1, 1, 0.5, 0.2, 0.1], model.drift.factors, strict=False):
        plain = plain.with_pair(SPACE, s, factor * c * H @ s)
    assert_allclose(solve(model, A[0]), solve(plain, A[0]), rtol=1e-10)


@pytest.mark.parametrize("measured", [np.nan, np.inf, -1e300, -2.0])
def test_what_no_curvature_could_have_changed_by_is_left_out(measured):
    drift = Drift(np.full(1, 0.5), np.full(1, 0.5)).after_step(np.array([measured]), np.ones(1))
    assert drift.factors.tolist() == [0.5, 1]
    assert drift.last.tolist() == [1, 1]


def test_the_factors_stay_finite():
    drift = Drift(np.ones(1), np.ones(1))
    for _ in range(60):
        drift = drift.after_step(
            np.append(1e-8, drift.last[1:] * 0), np.append(1e8, drift.last[1:])
        )
    assert 0 < drift.factors[0] < 1e-15


def separable(seed=0, samples=1000, n=50):
    """A logistic regression whose classes can be separated: the curvature falls on and on."""
    rng = np.random.default_rng(seed)
    X = np.abs(rng.standard_normal((samples, n)))
    y = np.sign((X - X.mean(0)) @ rng.standard_normal(n))

    return {**logistic(X, y, l2=1e-8), "x0": np.zeros(n)}


def first_models(monkeypatch, problem, x0):
    made = []

    def noted(run):
        made.append(first_model(run))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(start, "first_model", noted)
        ksdmin.minimize(problem, x0, options={"maxiter": 1})
    return made


@pytest.mark.parametrize(
    ("samples", "nonlinear", "followed"),
    [(1000, False, True), (1000, True, False), (None, False, False)],
)
def test_only_losses_of_linear_models_are_followed(monkeypatch, samples, nonlinear, followed):
    given = separable()
    x0 = given.pop("x0")
    problem = ksdmin.as_problem(**given, subsets=samples, nonlinear=nonlinear)
    (model,) = first_models(monkeypatch, problem, x0)
    assert (model.drift is not None) == followed


def test_regressions_that_can_be_separated_take_fewer_passes(monkeypatch):
    def passes():
        runs = [
            ksdmin.minimize(**separable(seed), subsets=1000, rng=0, options={"gtol": 1e-5})
            for seed in range(4)
        ]
        assert all(res.success for res in runs)
        return sum(res.passes for res in runs)

    followed = passes()
    monkeypatch.setitem(PRESETS, "default", replace(DEFAULT, drifting=False))
    assert followed < 0.9 * passes()
