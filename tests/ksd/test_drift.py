"""The quasi-Newton model of a regression follows a curvature that changes along the way."""

from dataclasses import replace

import numpy as np

import ksdmin
from ksdmin._ksd.presets import DEFAULT, PRESETS
from tests.linear_models import logistic


def separable(seed=0, samples=1000, n=50):
    """A logistic regression whose classes can be separated: the curvature falls on and on."""
    rng = np.random.default_rng(seed)
    X = np.abs(rng.standard_normal((samples, n)))
    y = np.sign((X - X.mean(0)) @ rng.standard_normal(n))
    return {**logistic(X, y, l2=1e-8), "x0": np.zeros(n)}


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
