"""The inner BFGS: few evaluations, and noise that is not fought. (Ends: test_honesty.)"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ksdmin._ksd.steps.search import bfgs


@dataclass
class Objective:
    """A function whose evaluations are counted."""

    fun: object
    jac: object
    points: list = field(default_factory=list)

    def at(self, a):
        self.points.append(Point(np.asarray(a, dtype=float), self))
        return self.points[-1]

    def minimize(self, start, noise=0.0):
        """The point found, and the number of evaluations."""
        found, _ = bfgs(self.at, self.at(start), maxiter=100, noise=noise)
        return found, len(self.points)


@dataclass
class Point:
    a: np.ndarray
    objective: Objective

    def __post_init__(self):
        self.value = float(self.objective.fun(self.a))

    @cached_property
    def gradient(self):
        return self.objective.jac(self.a)


def test_slopes_decide_where_values_cannot():
    """A step that lowers the value by less than its rounding error, up or down."""
    for jitter in (-0.05, 0.0, 0.05):
        objective = Objective(
            lambda a, up=jitter: 1e6 + (up if a.any() else 0.0), lambda a: a - [0.1, 0.2]
        )
        found, evaluations = objective.minimize(np.zeros(2), noise=0.1)
        assert_allclose(found.a, [0.1, 0.2])
        assert evaluations == 2


@pytest.mark.parametrize("seed", range(20))
def test_never_worse_than_the_start_beyond_noise(seed):
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((6, 6))
    H, amplitude = H + H.T, 10.0 ** rng.uniform(-8, -2)

    def fun(a):  # an irregular error, always the same at the same point
        return a @ H @ a / 2 + (a**4).sum() + amplitude * np.sin(1e9 * a.sum())

    objective = Objective(fun, lambda a: H @ a + 4 * a**3)
    found, evaluations = objective.minimize(rng.standard_normal(6), noise=2 * amplitude)
    values = [point.value for point in objective.points]
    assert found.value <= values[0] + 2 * amplitude
    assert found.value <= min(values) + 2 * amplitude
    assert evaluations <= 60


def test_steepest_slope_is_tried_where_what_was_learnt_misleads():
    """After the step to (-1, 0) the only way down is against the gradient there."""

    def fun(a):
        if a[1] == 0:
            return a[0]
        return -2.0 if a[1] == a[0] + 1 < 0 else 1.0

    def jac(a):
        return np.array([1.0, 0.0] if not a.any() else [0.5, 0.5] if a[1] == 0 else [0.0, 0.0])

    found, evaluations = Objective(fun, jac).minimize(np.zeros(2))
    assert found.value == -2
    assert evaluations <= 20
